"""Values that are better written to memory for what reads them outside of kernels: libraries, and searches.

Such a reader takes whole arrays from memory. Where XLA chooses what it writes for it, it writes more than is needed, or
computes a value in a loop that LLVM does not vectorize. docs/fusion.md has the measurements.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from lowering.passes.operations import ELEMENTWISE, IN_LIBRARY
from lowering.passes.values import CONE, SLICES, Value, work_of

_PARTS = SLICES | {"concatenate", "pad", "real", "imag"}

_SEARCHED, _SEARCHED_EACH = 400, 5  # operations that are worth a kernel beside a search, and more than so many for an element,
SEARCHED_ROW, _SEARCHED_WORK = 12, 200  # and for a row of more than so many elements; LLVM unrolls shorter ones


def write(values: list[Value], found: dict[Any, str], in_loop: bool) -> None:
    """Add the barriers of a program to those that are `found`; `in_loop`, it is the body of a loop, or in one."""
    _write_rounded(values, found)
    _write_searched(values, found, in_loop)
    _write_moved(values, found)
    _write_solved(values, found)
    _write_inverses(values, found)


def _write_rounded(values: list[Value], found: dict[Any, str]) -> None:
    """Choose what a sum of bfloat16 reads, which another kernel makes floats of first, and a product or the like reads too.

    XLA would compute all that both kernels need, each step in a kernel of its own.
    """
    for value in values:
        if value.name == "reduce_sum" and value.eqn.invars[0].aval.dtype == "bfloat16":
            for operand in value.operands:
                others = [user for user in operand.users if user is not value]
                if operand.is_loop and operand.operands and not all(user.is_loop for user in others):
                    found.setdefault(operand.var, f"summed up as floats, and read ({operand.size} elements)")


def _write_searched(values: list[Value], found: dict[Any, str], in_loop: bool) -> None:
    """Choose what the position of an extreme is searched in, where a pass over it would compute it slowly.

    A search in two passes would compute and write it in each. One in pairs of number and position is not a loop of vectors,
    nor is what is computed in it, unless LLVM unrolls the row as a whole: a row of a few elements that cost little.
    """
    from lowering.rules.reductions import takes_two_passes  # loaded with the program's own rules

    for value in values:
        if value.name not in ("argmax", "argmin"):
            continue
        aval, (axis,) = value.eqn.invars[0].aval, value.eqn.params["axes"]
        in_two_passes = takes_two_passes(aval, axis, in_loop)
        for operand in value.operands:
            if operand.name not in ELEMENTWISE or not operand.operands:
                continue
            if in_two_passes:
                found.setdefault(operand.var, f"searched for its {value.name} in two passes ({operand.size} elements)")
            elif operand.is_loop and aval.dtype.kind == "f" and aval.shape[axis] > SEARCHED_ROW:
                work = work_of(operand)
                if work > _SEARCHED_EACH and work * aval.shape[axis] > _SEARCHED_WORK and work * operand.size > _SEARCHED:
                    found.setdefault(operand.var, f"searched for its {value.name} ({operand.size} elements)")
                    operand.is_kernel = True


def _write_moved(values: list[Value], found: dict[Any, str]) -> None:
    """Choose what the library sums up, if it is computed of parts of arrays, or of joined ones.

    The library computes elements itself, but of whole arrays in memory: XLA would write each part for it.
    """
    slices = Counter(_cut_of(value.eqn) for value in values if value.name == "slice")
    for value in values:
        if value.name in IN_LIBRARY and not value.is_loop and value.eqn.invars[0].aval.dtype == "float32":
            for operand in value.operands:
                while operand.name == "transpose" and operand.operands and len(operand.users) == 1:
                    (operand,) = operand.operands
                if operand.name in ELEMENTWISE and _is_of_parts(operand, slices):
                    found.setdefault(operand.var, f"computed of parts, and summed up by a library ({operand.size} elements)")


def _write_solved(values: list[Value], found: dict[Any, str]) -> None:
    """Choose what triangles were solved for, if the library sums up what is computed of it, along the unknowns.

    The lowering of `triangular_solve` transposes its result. XLA would move that behind the sum, which is then along rows of
    few elements, and write a copy of the result for it.
    """
    for value in values:
        if value.name in IN_LIBRARY and not value.is_loop:
            aval = value.eqn.invars[0].aval
            for operand in value.operands if value.eqn.params["axes"] == (aval.ndim - 2,) else ():
                while operand.name in ELEMENTWISE and len(operand.operands) == 1:
                    (operand,) = operand.operands
                if operand.name == "triangular_solve" and operand.var.aval.shape == aval.shape:
                    found.setdefault(operand.var, f"solved for, and summed up by a library ({operand.size} elements)")


def _write_inverses(values: list[Value], found: dict[Any, str]) -> None:
    """Choose inverses of divisors, if the library sums up both what is divided and what is multiplied, along longer arrays.

    XLA multiplies by the inverse for a division, finds that equal, and writes for both sums what they stretch in common.
    """
    for value in values:
        if value.name == "integer_pow" and value.eqn.params["y"] == -1 and value.operands:
            divided = [user for user in value.operands[0].users if user.name == "div" and user.size > value.size]
            multiplied = [user for user in value.users if user.name == "mul" and user.size > value.size]
            if any(map(_is_summed_up, divided)) and any(map(_is_summed_up, multiplied)):
                found.setdefault(value.var, f"stretched for two sums by a library ({value.size} elements)")


def _is_summed_up(value: Value) -> bool:
    """Whether it is only computed for a sum by a library."""
    while value.name in ELEMENTWISE and len(value.users) == 1 and not value.is_result:
        (value,) = value.users
    return value.name in IN_LIBRARY and not value.is_loop


def _is_of_parts(start: Value, slices: Mapping[Any, int]) -> bool:
    """Whether elementwise operations make it of large parts of arrays, and nothing else reads these or what is between."""
    cone = [start]
    for value in cone:
        if len(value.users) > 1 or value.is_result:
            return False
        for operand in value.operands:
            if operand.name in ELEMENTWISE and operand not in cone and len(cone) < CONE:
                cone.append(operand)
    parts = [operand for value in cone for operand in value.operands if operand.name in _PARTS]
    if any(part.name == "slice" and slices[_cut_of(part.eqn)] > 1 for part in parts):  # XLA makes one of equal ones
        return False
    return any(2 * part.size >= start.size for part in parts) and all(user in cone for part in parts for user in part.users)


def _cut_of(eqn: Any) -> tuple[Any, ...]:
    return eqn.invars[0], *(eqn.params[each] for each in ("start_indices", "limit_indices", "strides"))
