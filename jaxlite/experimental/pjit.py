"""`pjit`, which is `jit`: programs over several devices need no other name."""

from jaxlite.compilation.jit import jit as pjit

__all__ = ["pjit"]
