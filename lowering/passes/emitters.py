"""Which of two code generators XLA:CPU of jaxlib 0.10 shall use for a program: the one by way of MLIR, or the one before it.

The older one emits LLVM's code directly. It takes two thirds of the time to compile, and its code is as fast for small arrays.
For larger ones the newer code is faster, and only the newer generator compiles small loops in one piece. Complex arithmetic of
the older one is slower at any size, and its functions of 16-bit floats are less exact. Later jaxlibs only have the newer one.
"""

from __future__ import annotations

from typing import Any

from lowering import xla
from lowering.passes.fusion import FUSIBLE, call_body

_SMALL = 1024  # elements
_FIT = FUSIBLE - {"gather"}


def prefers_older(jaxpr: Any) -> bool:
    """Whether a program only consists of elementwise operations, reductions and movement of small arrays."""
    return xla.HAS_OLDER_EMITTER and all(map(_is_small, (*jaxpr.constvars, *jaxpr.invars))) and _is_fit(jaxpr)


def _is_fit(jaxpr: Any) -> bool:
    for eqn in jaxpr.eqns:
        inner = call_body(eqn)
        if inner is not None:
            if not _is_fit(inner):
                return False
        elif eqn.primitive.name not in _FIT or not all(map(_is_small, eqn.outvars)):
            return False
    return True


def _is_small(var: Any) -> bool:
    size, dtype = getattr(var.aval, "size", None), getattr(var.aval, "dtype", None)
    return type(size) is int and size <= _SMALL and (getattr(dtype, "kind", "") in "biu" or dtype in ("float32", "float64"))
