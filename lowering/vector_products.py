"""Products of an array and a vector on the CPU, which read the array as it lies in memory.

XLA:CPU multiplies a matrix, or a batch of matrices, by a vector along the first or last axis. It transposes other arrays, and
it takes what a program transposes into the loop over the product, which then goes across the rows: up to thirty times slower.
So the array is taken from before its transposition, and axes in front of the contracted one are a batch, each with the same
vector.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from lowering import xla

_LEAST = 4096  # elements of an array from which on it pays
_LARGE = 4096  # elements of a matrix of complex numbers for which a call is nothing


def read_in_place(ctx: Any, operands: list[Any], shapes: tuple[Any, Any], dimension_numbers: Any, dtypes: tuple[Any, Any]
                  ) -> tuple[list[Any], Any, tuple[int, ...], list[int]] | None:
    """What to multiply instead: operands, dimension numbers, the shape of their product, and the order of axes that it needs.

    None if neither operand is a vector, or the other one is read in place anyway.

    Args:
      operands, shapes, dimension_numbers: as of `dot_general`; `dtypes` of the operands.
    """
    contract, batch = dimension_numbers
    if len(contract[0]) != 1 or not all(type(extent) is int for shape in shapes for extent in shape):
        return None
    if max(map(math.prod, shapes)) < _LEAST:
        return None
    free = [[axis for axis in range(len(shape)) if axis not in (*contract[side], *batch[side])]
            for side, shape in enumerate(shapes)]
    side = next((side for side in (0, 1) if math.prod(shapes[1 - side][axis] for axis in free[1 - side]) == 1), None)
    if side is None:
        return None
    array, shape, order = source(operands[side], shapes[side])
    axis, batches, others = order[contract[side][0]], *([order[each] for each in axes[side]] for axes in (batch, free))
    ahead = sorted(each for each in others if each < axis)
    behind = sorted(each for each in others if each > axis)
    if not behind:  # the last axis is contracted
        ahead, behind = [], ahead
    if ahead:
        if not _are_fast_in_batches(shape[axis] * math.prod(shape[each] for each in behind), dtypes[side]):
            return None
    elif array is operands[side] or batches:  # XLA knows what transposed matrices of a batch are
        return None
    first = [shape[each] for each in (*batches, *ahead)]
    vector = _of_matrices(ctx, operands[1 - side], shapes[1 - side], (contract[1 - side][0], *batch[1 - side]),
                          [*first, shape[axis]], dtypes[1 - side])
    result = [*batches, *ahead, *behind]
    pair = slice(None, None, -1 if side else 1)
    numbers = (((axis,), (len(first),))[pair], ((*batches, *ahead), (*range(len(first)),))[pair])
    return ([array, vector][pair], numbers, tuple([shape[each] for each in result]),
            [*range(len(batches)), *map(result.index, others)])


def source(value: Any, shape: Sequence[int]) -> tuple[Any, Sequence[int], Sequence[int]]:
    """What a value is the transpose of, its shape, and where in it each axis is; of another value itself."""
    places: Sequence[int] = range(len(shape))
    while getattr(value.owner, "name", "") == "stablehlo.transpose":
        order = list(xla.ir.DenseI64ArrayAttr(value.owner.attributes["permutation"]))
        value, places = value.owner.operands[0], [order[place] for place in places]
    return value, [shape[places.index(axis)] for axis in range(len(shape))], places


def _of_matrices(ctx: Any, vector: Any, shape: Sequence[int], axes: Sequence[int], extents: list[int], dtype: Any) -> Any:
    """A vector for each of some matrices: the first of `axes` comes last, the others are the first axes of the batch."""
    kept = sorted(axes)
    if len(kept) < len(shape):
        vector = ctx.value("stablehlo.reshape", [vector], [shape[axis] for axis in kept], dtype)
    places = [axes.index(axis) - 1 if axis != axes[0] else len(extents) - 1 for axis in kept]
    if places == [*range(len(extents))]:
        return vector
    return ctx.value("stablehlo.broadcast_in_dim", [vector], extents, dtype, broadcast_dimensions=ctx.i64s(places))


def _are_fast_in_batches(size: int, dtype: Any) -> bool:
    """Whether XLA multiplies many matrices of a size by vectors as fast as one: of complex numbers each is a call."""
    return dtype.kind in "iu" or dtype in ("float32", "float64") or dtype.kind == "c" and size >= _LARGE
