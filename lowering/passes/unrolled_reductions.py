"""Reductions of short rows, which are slow in XLA's own loops unless LLVM unrolls these.

A library computes sums and extremes of large float arrays, and needs no unrolling. docs/fusion.md has the measurements.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lowering.passes.library_reads import SEARCHED_ROW
from lowering.passes.loops import BFLOAT16, Step, last_axis, row_of
from lowering.passes.operations import IN_LIBRARY, LIBRARY_REDUCTION, REDUCTIONS

_POSITIONS = ("argmax", "argmin")
_FEW, _FEW_IN_LOOP = 1024, 256  # elements whose reduction takes no time, outside of loops and in them
_WINDOW = 32  # elements in a window: XLA reduces long rows in windows


def work_to_unroll(step: Step) -> float:
    """The work of a reduction that LLVM has to unroll whatever it costs to compute its elements; 0 for any other equation.

    An element costs as much as one of a sum across rows.
    """
    eqn, name, in_loop = step.eqn, step.name, step.in_loop
    if name not in REDUCTIONS and name != "reduce":
        return 0.0
    count = step.iterations * eqn.invars[0].aval.size
    if _searches_computed_rows(step):
        return (_PAIR_WORK + step.values.work[eqn.invars[0]]) * count
    if _reduces_pairs(eqn, in_loop):
        return _PAIR_WORK * count
    if _leaves_part_of_window(eqn, in_loop):
        return (_FLOAT_WINDOW_WORK if eqn.invars[0].aval.dtype.kind == "f" else 1) * count
    if _reduces_few_rows(step):
        return (_FEW_ROWS_WORK + step.values.costly_work.get(eqn.invars[0], 0.0)) * count
    if _rounds_each_step(eqn):
        aval = eqn.invars[0].aval
        return (_ROUNDED_WORK if row_of(aval) in _ROW_OF_ROUNDED and aval.size >= LIBRARY_REDUCTION else 1) * count
    return count if reduces_across_rows(eqn, in_loop) else 0.0


def is_by_xla(eqn: Any, in_loop: bool) -> bool:
    """Whether XLA emits a loop for a reduction, into which it fuses the operand, and no call of a library."""
    name, aval = eqn.primitive.name, eqn.invars[0].aval
    if _is_two_reductions(eqn, in_loop):
        return in_loop and aval.size < LIBRARY_REDUCTION
    in_library = name in IN_LIBRARY and aval.dtype.kind in "fV" and not (name == "reduce_sum" and aval.dtype == np.float16)
    return not in_library or in_loop and aval.size < LIBRARY_REDUCTION


def _is_two_reductions(eqn: Any, in_loop: bool) -> bool:
    """Whether it is `argmax` or `argmin` of floats in two reductions, which the library computes if they are large."""
    if eqn.primitive.name not in _POSITIONS or eqn.invars[0].aval.dtype.kind not in "fV":
        return False
    from lowering.rules.reductions import takes_two_passes  # loaded with the program's own rules

    return takes_two_passes(eqn.invars[0].aval, eqn.params["axes"][0], in_loop)


def _reduced_axes(eqn: Any) -> tuple[int, ...]:
    return eqn.params["dimensions" if eqn.primitive.name == "reduce" else "axes"]


# --- across rows --------------------------------------------------------------------------------------


def reduces_across_rows(eqn: Any, in_loop: bool) -> bool:
    """Whether XLA, and not the library, reduces along other axes than the last."""
    name = eqn.primitive.name
    if name not in REDUCTIONS and name != "reduce":
        return False
    aval = eqn.invars[0].aval
    if not is_by_xla(eqn, in_loop) or aval.size <= _FEW and not in_loop:
        return False
    shape, axes = aval.shape, _reduced_axes(eqn)
    return last_axis(shape) not in axes and any(shape[axis] > 1 for axis in axes)


_FEW_ROWS_WORK = 2.5


def _reduces_few_rows(step: Step) -> bool:
    """Whether it reduces across rows that are too few for the library and do not fill XLA's windows of rows.

    LLVM makes vectors of columns once the loop over the rows is unrolled.
    """
    if step.in_loop or step.name not in IN_LIBRARY:
        return False
    (operand,) = step.eqn.invars
    aval, axes = operand.aval, step.eqn.params["axes"]
    few = _FEW_IN_LOOP if step.values.costly_work.get(operand) else _FEW
    if not few < aval.size < LIBRARY_REDUCTION or last_axis(aval.shape) in axes:
        return False
    return any(aval.shape[axis] % _WINDOW for axis in axes if aval.shape[axis] > 1)


# --- along rows ---------------------------------------------------------------------------------------


_FLOAT_WINDOW_WORK = 2.5
_KINDS_IN_WINDOWS = {"reduce_and": "b", "reduce_or": "b", "reduce_sum": "iu", "reduce_prod": "iufV"}  # of dtypes


def _leaves_part_of_window(eqn: Any, in_loop: bool) -> bool:
    """Whether XLA reduces along rows that do not fill its windows, in the kinds of dtypes for which that is slow.

    In each window, XLA checks for each element whether it is in the row, unless LLVM unrolls the window. It is slow for bools,
    integers and products, and for a sum of floats if it is of a single row in a loop.
    """
    kinds = _KINDS_IN_WINDOWS.get(eqn.primitive.name)
    if kinds is None:
        return False
    aval = eqn.invars[0].aval
    if in_loop and aval.ndim == 1 and aval.size < LIBRARY_REDUCTION:
        kinds += "f"
    if aval.dtype.kind not in kinds or aval.size <= (_FEW_IN_LOOP if in_loop else _FEW):
        return False
    last, reduced = last_axis(aval.shape), [axis for axis in eqn.params["axes"] if aval.shape[axis] > 1]
    is_along_rows = last in reduced and (len(reduced) == 1 or aval.dtype.kind == "b")
    return is_along_rows and aval.shape[last] > _WINDOW and aval.shape[last] % _WINDOW > 0


_ROWS_OF_WINDOWS = (64, 96)  # elements of a row that XLA reduces in two or three windows


def takes_extremes_in_windows(eqn: Any) -> bool:
    """Whether it takes an extreme along rows of a few whole windows, which is slow with the limit for shifted rows."""
    if eqn.primitive.name not in ("reduce_max", "reduce_min"):
        return False
    aval = eqn.invars[0].aval
    return (aval.size < LIBRARY_REDUCTION and row_of(aval) in _ROWS_OF_WINDOWS
            and last_axis(aval.shape) in _reduced_axes(eqn))


_PAIR_WORK = 8
_ROW_OF_PAIRS = range(9, 32)
_OF_COMPLEX = ("reduce_max", "reduce_min", "reduce_prod")  # in several operations for an element, if it is complex


def _reduces_pairs(eqn: Any, in_loop: bool) -> bool:
    """Whether it reduces rows of 9 to 31 in several operations for an element: of values with positions, of complex numbers."""
    name = eqn.primitive.name
    if name not in (*_POSITIONS, "reduce", *_OF_COMPLEX):
        return False
    aval = eqn.invars[0].aval
    if name in _OF_COMPLEX and aval.dtype.kind != "c" or _is_two_reductions(eqn, in_loop):
        return False
    return row_of(aval) in _ROW_OF_PAIRS and last_axis(aval.shape) in _reduced_axes(eqn)


_VECTOR = 8  # elements of a row whose search is always slow if they are computed in it,
_SEARCHED_WORK = 3  # and operations for an element that make it slow for other short rows


def _searches_computed_rows(step: Step) -> bool:
    """Whether it searches short rows for the position of an extreme, and computes the rows in the same loop."""
    operand, work = step.eqn.invars[0], step.values.work
    if step.name not in _POSITIONS or operand not in work:
        return False
    row = row_of(operand.aval)
    is_slow = row == _VECTOR or 4 <= row <= SEARCHED_ROW and work[operand] >= _SEARCHED_WORK
    return is_slow and last_axis(operand.aval.shape) in _reduced_axes(step.eqn)


_ROUNDED_ROW = range(6, 17)
_ROW_OF_ROUNDED, _ROUNDED_WORK = range(6, 12), 4  # rows that LLVM unrolls even if their elements are computed in the same loop


def _rounds_each_step(eqn: Any) -> bool:
    """Whether it sums or multiplies rows of 6 to 16 in bfloat16, where each step rounds, in several instructions."""
    if eqn.primitive.name not in ("reduce_sum", "reduce_prod"):
        return False
    aval = eqn.invars[0].aval
    return aval.dtype == BFLOAT16 and row_of(aval) in _ROUNDED_ROW and last_axis(aval.shape) in eqn.params["axes"]


_HALF_VECTORS = (*range(20, 24), *range(28, 32))  # elements of a row that leave at least half a vector over
_RAGGED_ROWS = (9, 10, 12, 13, 18, 19, 26, 27, *_HALF_VECTORS)  # that leave some; 11, 14 and 15 are short rows


def work_in_ragged_rows(step: Step) -> float:
    """The work of costly functions in rows that XLA's loops reduce, and that leave a part of a vector over.

    LLVM computes this part element by element, unless it unrolls the row, which makes vectors of all of it.
    """
    eqn, name, rows = step.eqn, step.name, _RAGGED_ROWS
    if name == "dot_general":
        if not (step.in_loop and sums_products(eqn)):
            return 0.0
        axes = eqn.params["dimension_numbers"][0][0]
    elif name in REDUCTIONS and name not in _POSITIONS and is_by_xla(eqn, True):
        axes = _reduced_axes(eqn)
        rows = rows if step.in_loop or is_by_xla(eqn, False) else _HALF_VECTORS
    else:
        return 0.0
    aval, work = eqn.invars[0].aval, step.most_of_operands(step.values.costly_work)
    is_slow = work > 0 and row_of(aval) in rows and last_axis(aval.shape) in axes
    return step.iterations * aval.size * work if is_slow and (step.in_loop or aval.size > _FEW) else 0.0


def sums_products(eqn: Any) -> bool:
    """Whether a `dot_general` multiplies many pairs of vectors: XLA computes that as a sum, in a loop of its own."""
    (contracted, _), (batched, _) = eqn.params["dimension_numbers"]
    return all(len(contracted) + len(batched) == atom.aval.ndim for atom in eqn.invars)
