"""Barriers behind what parts of arrays are updated with: `x.at[1:-1].set(f(x[:-2], x[2:]))`.

XLA:CPU fuses the computation into the update, which is to be done in place. If the computation reads the same array at other
places, XLA copies the array for each of them, or computes all of the new array with a branch for each element. And as what is
read may be what is written, LLVM makes vectors of few functions there. docs/fusion.md has the measurements.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from lowering.passes.values import Value, cone_of

_LARGE, _PART = 64, 1 / 2  # elements of an update that reads its array elsewhere, and of how much of the array
_ROW = 16  # elements of an update in a loop, for functions that LLVM makes vectors of only where nothing may be overwritten
_TWO_WAYS = frozenset("tanh erf erf_inv log1p expm1 sinh asinh atanh digamma".split())


def write(values: list[Value], found: dict[Any, str], in_loop: bool, known: Mapping[Any, Any]) -> None:
    """Add the barriers of a program to those that are `found`; `in_loop`, it is the body of a loop, or in one.

    Args: `known` has other names of inputs, in functions that are called.
    """
    for value in values:
        parts = _parts(value.eqn)
        if parts is None:
            continue
        array, update = parts
        computed = next((each for each in value.operands if update in each.aliases), None)
        if computed is None or computed.var in found or not computed.is_loop:
            continue
        cone = cone_of(computed)
        is_slow_in_place = in_loop and computed.size >= _ROW and any(each.name in _TWO_WAYS for each in cone)
        if _reads_elsewhere(value, array, computed, cone, known) or is_slow_in_place:
            found[computed.var] = f"what a part of an array is updated with ({computed.name} of {computed.size} elements)"
            computed.is_kernel = True


def _parts(eqn: Any) -> tuple[Any, Any] | None:
    """The variables of the array and of the update of an equation that updates one part of an array."""
    if eqn.primitive.name == "dynamic_update_slice":
        return eqn.invars[0], eqn.invars[1]
    if eqn.primitive.name.startswith("scatter"):
        from lowering.rules.gather_scatter import updates_one_box  # loaded with the program's own rules

        return (eqn.invars[0], eqn.invars[2]) if updates_one_box(eqn) else None
    return None


def _reads_elsewhere(value: Value, array: Any, computed: Value, cone: list[Value], known: Mapping[Any, Any]) -> bool:
    """Whether what updates a large part of an array is computed of parts of it that overlap."""
    if computed.size < max(_LARGE, _PART * value.size):
        return False
    aliases = next((each.aliases for each in value.operands if array in each.aliases), {known.get(array, array)})
    parts = {tuple(zip(each.eqn.params["start_indices"], each.eqn.params["limit_indices"], strict=True))
             for each in cone if each.name == "slice" and known.get(atom := each.eqn.invars[0], atom) in aliases}
    return any(_overlap(*pair) for pair in itertools.combinations(parts, 2))


def _overlap(part: Sequence[tuple[int, int]], other: Sequence[tuple[int, int]]) -> bool:
    return all(max(start, other_start) < min(end, other_end)
               for (start, end), (other_start, other_end) in zip(part, other, strict=True))
