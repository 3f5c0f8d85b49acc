"""Products of small matrices on the CPU, as sums of products of elements.

XLA:CPU multiplies the smallest matrices in loops of its own, and others with a library. If both have fewer than eight rows and
columns, the library is called for each matrix of a batch, which takes 0.4 microseconds. For sums along axes XLA has another
library, which is called once for all, and takes in what is summed up.

In a loop, calls keep XLA from compiling the loop as one function, in which a small product costs next to nothing.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lowering import xla
from lowering.rules.reductions import reduce_by_monoid, unrecognized_region

_ROUNDED, _FLOAT = "bfloat16", np.dtype(np.float32)
_CALLED = 7  # rows, columns and depth of matrices of which each is a call,
_OWN = 3  # but for those with so few rows and columns, or so little depth
_LIBRARY = 4096  # products from which on their sums are the library's
_INLINE = 2048  # products of elements for a matrix, up to which a loop over them takes less time than a call,
_DEEPEST, _DEEPEST_ALONE = 8, 12  # if it sums up so many at most: in a batch, but not along the last axis, and for one matrix
_SHALLOW = 4  # so many at most: for a matrix of any size
_ROW, _ROWS = 8, 1 << 15  # elements of two vectors, and pairs of vectors, whose products take less time in a loop of XLA's own,
_MANY = 1 << 19  # products of elements for other small matrices, and for one with so few rows and columns
_SHORT, _SHORTEST = 5, 4  # and so little depth; rows and depth of matrices that are multiplied by a vector each
_VECTOR = 24  # products of a matrix and a vector up to which they are no loop of XLA's own in small functions
_REPEATED = 16_000  # operations that take longer than a call
_MOST_OPERATIONS, _COSTLY = 200, 15
_CHEAP = frozenset(f"stablehlo.{name}" for name in (
    "add subtract multiply maximum minimum negate abs and or xor not select compare convert broadcast_in_dim reshape transpose "
    "slice shift_left shift_right_logical shift_right_arithmetic bitcast_convert floor clamp iota").split())
_FUSED = _CHEAP | frozenset(f"stablehlo.{name}" for name in (
    "exponential exponential_minus_one log log_plus_one tanh logistic sine cosine tan power sqrt rsqrt cbrt divide "
    "remainder atan2").split())
_WIDEST = 32  # axes of a layer beyond which other products of the same loop are likely to stay calls: not those of examples


def are_many(left: Any, right: Any, dimension_numbers: Any, dtypes: tuple[Any, Any]) -> bool:
    """Whether small products outside of loops are so many that a loop of XLA's own, and its compile, pay.

    Args: as of `is_summed`.
    """
    dtype, result = dtypes
    extents = _extents(left, right, dimension_numbers)
    if extents is None or dtype != result or dtype not in ("float32", "float64"):
        return False
    matrices, rows, columns, depth, axis, _ = extents
    if rows == columns == 1:
        return 1 < depth <= _ROW and matrices >= _ROWS
    if matrices * rows * columns * depth < _MANY:
        return False
    if matrices == 1:
        return columns <= _ROW and 1 < depth <= _SHORT and axis == len(left) - 1
    if min(rows, columns) == 1:
        return max(rows, columns) <= _SHORTEST and 1 < depth <= _SHORTEST
    return max(rows, columns) <= _CALLED and 2 < depth <= _CALLED


def _extents(left: Any, right: Any, dimension_numbers: Any) -> tuple[int, int, int, int, int, int] | None:
    """The number of matrices, of the rows of the left and the columns of the right one, and of what is contracted, and where
    that is in each operand if the axes of the batch come first.

    None for products that are not computed as sums: of unknown extents, empty, of several contracted axes, or where no order of
    axes is that of both operands and of the result.
    """
    contract, batch = dimension_numbers
    if not all(type(extent) is int for extent in (*left, *right)) or len(contract[0]) != 1 or 0 in left or 0 in right:
        return None
    count = len(batch[0])
    (left, axis, _), (right, other, _) = map(_batch_first, (left, right), contract, batch)
    if other > count and axis < len(left) - 1:
        return None
    depth, matrices = left[axis], math.prod(left[:count])
    rows, columns = (math.prod(shape) // (matrices * depth) for shape in (left, right))
    return matrices, rows, columns, depth, axis, other


def is_summed(left: Any, right: Any, dimension_numbers: Any, dtypes: tuple[Any, Any], in_loop: bool) -> bool:
    """Whether a product is computed so.

    Args:
      left, right: the shapes of the operands.
      dimension_numbers: as of `dot_general`.
      dtypes: of the operands and of the result.
      in_loop: whether a loop computes it.
    """
    extents = _extents(left, right, dimension_numbers)
    if extents is None:
        return False
    matrices, rows, columns, depth, axis, other = extents
    count = len(dimension_numbers[1][0])
    dtype, result = dtypes
    is_rounded = dtype == _ROUNDED
    if not (is_rounded and result in (_ROUNDED, _FLOAT) or dtype == result and dtype.kind in "fiuc" and dtype.itemsize >= 4):
        return False
    widest = max(rows, columns)
    is_small = max(widest, depth) <= _CALLED
    if is_small and min(widest, depth) <= _OWN and dtype.kind != "c" and min(rows, columns) > 1 or widest == 1:
        return False
    if in_loop and xla.HAS_SMALL_FUNCTIONS and matrices == min(rows, columns) == 1 and widest * depth > _VECTOR:
        return False
    if in_loop:
        is_alone = matrices == 1 and min(rows, columns) > 1
        deepest = _DEEPEST_ALONE if is_alone else _DEEPEST if other < len(right) - 1 else _CALLED
        is_narrow = (rows <= _WIDEST or axis > count) and (columns <= _WIDEST or other > count)
        return is_narrow and (depth <= _SHALLOW or depth <= deepest and rows * columns * depth <= _INLINE)
    return (is_small and min(rows, columns) > 1 and (is_rounded or dtype == _FLOAT)
            and matrices * rows * columns * depth >= _LIBRARY)


def is_repeated(factors: tuple[Any, Any], shapes: tuple[Any, Any], dimension_numbers: Any) -> bool:
    """Whether the loop over the products of two elements computes a factor again for each, which takes longer than a call.

    From jaxlib 0.11 on, a barrier keeps such a factor in memory (`passes.fusion`).
    """
    if not xla.BARRIER_DROPPER:
        return False
    (contract, _), (batch, _) = dimension_numbers
    left, right = shapes
    products = math.prod(left) * math.prod(right) // math.prod(left[axis] for axis in (*contract, *batch))
    return any((products - math.prod(shape)) * operations(factor) > _REPEATED
               for factor, shape in zip(factors, shapes, strict=True))


def operations(value: Any) -> int:
    """The number of operations for an element of a value, from what other kernels write, up to a limit."""
    pending, seen, count = [value], {value}, 0
    while pending and count < _MOST_OPERATIONS:
        owner = pending.pop().owner
        if getattr(owner, "name", "") not in _FUSED and not getattr(owner, "name", "").startswith("chlo."):
            continue
        count += 1 if owner.name in _CHEAP else _COSTLY
        fresh = set(owner.operands) - seen
        seen |= fresh
        pending += fresh
    return count


def _batch_first(shape: Any, contract: Any, batch: Any) -> tuple[tuple[int, ...], int, list[int]]:
    """The shape of an operand with the axes of its batch in front, where its contracted axis is then, and the order of axes."""
    order = [*batch, *(axis for axis in range(len(shape)) if axis not in batch)]
    return tuple([shape[axis] for axis in order]), order.index(contract[0]), order


def summed(ctx: Any, lhs: Any, rhs: Any, shapes: tuple[Any, Any], dimension_numbers: Any, dtypes: tuple[Any, Any],
           in_own_loop: bool) -> Any:
    """The product of two operands of these shapes, `in_own_loop` of XLA or by its library of sums."""
    dtype, result = dtypes
    contract, batch = dimension_numbers
    (left, axis, order), (right, other, other_order) = map(_batch_first, shapes, contract, batch)
    lhs, rhs = (value if own == sorted(own) else ctx.transposed(value, given, own, dtype)
                for value, given, own in zip((lhs, rhs), shapes, (order, other_order), strict=True))
    count = len(batch[0])
    rows = len(left) - count - 1
    # The axes of all products of two elements: those of the batch, of the rows and of the columns, and where both operands have
    # it, the contracted one.
    place = axis if other == count else other + rows
    lhs_axes = [place if each == axis else each for each in range(len(left))]
    rhs_axes = [each if each < count else place if each == other else each + rows for each in range(len(right))]
    extents = dict(zip(lhs_axes, left, strict=True)) | dict(zip(rhs_axes, right, strict=True))
    shape = tuple([extents[each] for each in range(len(extents))])
    first = 0 if ctx.in_loop else _unlike_others(len(shape), lhs, rhs)
    shape, wide = (*[1] * first, *shape), _FLOAT if dtype == _ROUNDED else dtype
    factors = [ctx.convert(ctx.value("stablehlo.broadcast_in_dim", [value], shape, dtype,
                                     broadcast_dimensions=ctx.i64s([first + each for each in places])), shape, wide)
               for value, places in ((lhs, lhs_axes), (rhs, rhs_axes))]
    terms = ctx.value("stablehlo.multiply", factors, shape, wide)
    kept = (*shape[:first + place], *shape[first + place + 1:])
    if in_own_loop:
        value = _sum_in_loop(ctx, terms, kept, wide, first + place)
    else:
        value = reduce_by_monoid(ctx, "sum", terms, shape, wide, [first + place])
    value = value if wide == result else ctx.convert(value, kept, result)
    return ctx.value("stablehlo.reshape", [value], kept[first:], result) if first else value


def _sum_in_loop(ctx: Any, terms: Any, shape: tuple[int, ...], dtype: Any, axis: int) -> Any:
    """A sum along an axis that XLA does not recognize as one for its library, and computes in a loop."""
    operation = ctx.op("stablehlo.reduce", [terms, ctx.constant(0, dtype)], [ctx.tensor_type(shape, dtype)],
                       {"dimensions": ctx.i64s([axis])}, regions=1)
    unrecognized_region(operation, "stablehlo.add")
    return operation.result


def _unlike_others(rank: int, *values: Any) -> int:
    """How many axes of one element, before all others, make the products unlike others of the same values.

    XLA makes equal operations one, and an array that two sums read is written to memory.
    """
    ranks = {use.owner.results[0].type.rank for value in values for use in value.uses
             if use.owner.name == "stablehlo.broadcast_in_dim"}
    return next(count for count in range(len(ranks) + 1) if rank + count not in ranks)
