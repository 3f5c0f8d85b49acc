"""Whether LLVM shall unroll the loops of a program on the CPU.

XLA asks it to, and it does so to every loop of few turns: a fifth of what a compile takes, a third where arrays are
small. The code gains from it in one case. A reduction over few elements is a loop in the loop over its results, and only
once it is unrolled is the outer one vectorized. Library reductions have no such loops; other code runs as fast without,
or faster: what XLA compiles in one piece, such as a small scan, outgrows the processor's caches when it is unrolled.
docs/fusion.md has the measurements.
"""

from __future__ import annotations

from typing import Any

from lowering.passes.fusion import LIBRARY_REDUCTION, bodies, call_body

_IN_LIBRARY = ("reduce_sum", "reduce_max", "reduce_min")
_OTHERS = frozenset("reduce_prod reduce_and reduce_or reduce_xor argmax argmin reduce".split())
_WINDOWS = frozenset("reduce_window select_and_scatter select_and_gather_add cummax cummin cumlogsumexp".split())
_WINDOW_FAMILIES = ("reduce_window_", "select_and_scatter_")
_LOOPS = ("while", "scan")
_SHORT = 64  # turns that LLVM unrolls
_FEW = 1024  # elements that are reduced in no time either way, if it happens once


def gains(jaxpr: Any) -> bool:
    """Whether a program, or a program in its equations, runs faster if LLVM unrolls loops."""
    return _gains(jaxpr, False, set())


def _gains(jaxpr: Any, in_loop: bool, seen: set[tuple[int, bool]]) -> bool:
    if (id(jaxpr), in_loop) in seen:
        return False
    seen.add((id(jaxpr), in_loop))
    for eqn in jaxpr.eqns:
        if _is_short_reduction(eqn, in_loop):
            return True
        inner = call_body(eqn)
        if inner is not None and _gains(inner, in_loop, seen):
            return True
        for body in bodies(eqn):
            if _gains(body, in_loop or eqn.primitive.name in _LOOPS, seen):
                return True
    return False


def _is_short_reduction(eqn: Any, in_loop: bool) -> bool:
    name = eqn.primitive.name
    if name == "conv_general_dilated":
        return eqn.invars[0].aval.dtype != "float32" or max(eqn.params["lhs_dilation"], default=1) > 1
    is_window = name in _WINDOWS or name.startswith(_WINDOW_FAMILIES)
    if not (is_window or name in _IN_LIBRARY or name in _OTHERS):
        return False
    aval, params = eqn.invars[0].aval, eqn.params
    if name in _IN_LIBRARY and aval.dtype.kind in "fV" and (not in_loop or aval.size >= LIBRARY_REDUCTION):
        return False  # one that is too small for the library takes no time
    if not in_loop and aval.size <= _FEW:
        return False
    return is_window or any(1 < aval.shape[axis] <= _SHORT for axis in params.get("axes", params.get("dimensions")))
