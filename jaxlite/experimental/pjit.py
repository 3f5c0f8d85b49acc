"""`pjit`, another name of `jit`."""

from jaxlite.compilation.jit import jit as pjit

__all__ = ["pjit"]
