"""Matrix products with more than two operands: ragged products, whose rows have groups, and scaled products."""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Sequence
from typing import Any

from jaxlite.core import dtypes
from jaxlite.core.aval import Ints, ShapedArray, shaped_array
from jaxlite.core.axes import other_axes, with_ones
from jaxlite.core.filtering import boundary
from jaxlite.core.primitive import Primitive, register_rule_modules
from jaxlite.core.values import aval_of
from jaxlite.devices.placement import laid_out_by
from jaxlite.lax import elementwise, reductions, shaping, windows
from jaxlite.lax.dot import (
    DotDimensionNumbers,
    canonical_dimension_numbers,
    canonicalize_precision,
    dot_general,
    dot_general_shape,
    product_dtype,
)
from jaxlite.traces.decompose import decomposes

# --- ragged ------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class RaggedDotDimensionNumbers:
    """Which axes of a ragged product are what.

    dot_dimension_numbers: as of `dot_general`. lhs_ragged_dimensions: the one axis of lhs that is cut into groups.
    rhs_group_dimensions: the axis of rhs that counts the groups, if the ragged axis is neither contracted nor a batch
    axis; else none.
    """

    dot_dimension_numbers: Any
    lhs_ragged_dimensions: Any
    rhs_group_dimensions: Any

    def __post_init__(self) -> None:
        vars(self).update(dot_dimension_numbers=canonical_dimension_numbers(self.dot_dimension_numbers),
                          lhs_ragged_dimensions=tuple(map(operator.index, self.lhs_ragged_dimensions)),
                          rhs_group_dimensions=tuple(map(operator.index, self.rhs_group_dimensions)))


ragged_dot_general_p = Primitive("ragged_dot_general")


def _kind_of_ragged(numbers: RaggedDotDimensionNumbers) -> tuple[str, int]:
    """'contracting', 'batch' or 'row', and the ragged axis of lhs."""
    ((lhs_contract, _), (lhs_batch, _)), (axis,) = numbers.dot_dimension_numbers, numbers.lhs_ragged_dimensions
    return ("contracting" if axis in lhs_contract else "batch" if axis in lhs_batch else "row"), axis


def _outer_axes(numbers: RaggedDotDimensionNumbers, rank: int) -> Ints:
    """The axes of lhs along which groups may differ: the leading axes of full group sizes."""
    (contract, _), (batch, _) = numbers.dot_dimension_numbers
    kind, axis = _kind_of_ragged(numbers)
    if kind == "batch":
        return tuple(batch[:batch.index(axis)])
    if kind == "contracting":
        return (*batch, *contract[:contract.index(axis)])
    return (*batch, *other_axes(axis, (*batch, *contract)))


def _without_group(rhs: ShapedArray, numbers: RaggedDotDimensionNumbers) -> tuple[ShapedArray, Any]:
    """The type of one group's rhs, and the dimension numbers of one group's product."""
    group = numbers.rhs_group_dimensions
    if not group:
        return rhs, numbers.dot_dimension_numbers
    axis = group[0]
    (lhs_contract, rhs_contract), (lhs_batch, rhs_batch) = numbers.dot_dimension_numbers
    shape = rhs.shape[:axis] + rhs.shape[axis + 1:]
    rhs_contract, rhs_batch = (tuple([each - (each > axis) for each in axes]) for axes in (rhs_contract, rhs_batch))
    return shaped_array(shape, rhs.dtype, rhs.weak_type), ((lhs_contract, rhs_contract), (lhs_batch, rhs_batch))


@ragged_dot_general_p.def_abstract_eval
def _ragged_dot_general_aval(lhs, rhs, sizes, *, ragged_dot_dimension_numbers, precision, preferred_element_type,
                             group_offset, out_sharding) -> ShapedArray:
    numbers = ragged_dot_dimension_numbers
    name = "ragged_dot_general"
    if dtypes.kind(sizes.dtype) not in "iu":
        raise TypeError(f"{name}: group_sizes must be integers, got {sizes.dtype}")
    if len(numbers.lhs_ragged_dimensions) != 1:
        raise TypeError(f"{name} takes exactly one lhs ragged dimension, got {numbers.lhs_ragged_dimensions}")
    if not 0 <= numbers.lhs_ragged_dimensions[0] < lhs.ndim:
        raise TypeError(f"{name}: no axis {numbers.lhs_ragged_dimensions[0]} in lhs of shape {lhs.shape} to be ragged")
    kind, _ = _kind_of_ragged(numbers)
    group = numbers.rhs_group_dimensions
    if len(group) != (kind == "row"):
        raise TypeError(f"{name}: a ragged {'row' if kind == 'row' else kind} dimension takes "
                        f"{'one rhs group dimension' if kind == 'row' else 'no rhs group dimension'}, got {group}")
    if group and (not 0 <= group[0] < rhs.ndim or any(
            group[0] in axes for axes in (numbers.dot_dimension_numbers[0][1], numbers.dot_dimension_numbers[1][1]))):
        raise TypeError(f"{name}: the rhs group dimension {group[0]} must be an axis of rhs {rhs.shape}, neither "
                        "contracted nor a batch axis")
    one_rhs, dot_numbers = _without_group(rhs, numbers)
    shape = dot_general_shape(lhs, one_rhs, dot_numbers)
    if not sizes.ndim:
        raise TypeError(f"{name}: group_sizes must have at least one axis")
    count = sizes.shape[-1]
    expected = (*(lhs.shape[axis] for axis in _outer_axes(numbers, lhs.ndim)), count)
    if sizes.shape not in ((count,), expected):
        raise TypeError(f"{name} expected group_sizes to have shape {(count,)} or {expected}, got {sizes.shape}.")
    if group and rhs.shape[group[0]] != count:
        raise TypeError(f"{name} expected rhs group dimension size to be {count}, got {rhs.shape[group[0]]}.")
    if kind == "contracting":
        shape = (count, *shape)
    dtype = product_dtype(name, lhs.dtype, rhs.dtype, preferred_element_type)
    return shaped_array(shape, dtype, lhs.weak_type and rhs.weak_type)


@decomposes(ragged_dot_general_p)
def _ragged_dot_general(lhs, rhs, sizes, *, ragged_dot_dimension_numbers, precision, preferred_element_type,
                        group_offset, out_sharding):
    """lhs once for each group, zero outside the group's rows, times the group's rhs; or, if the result has fewer elements than
    that, lhs times the rhs of all groups, of which each row takes its own."""
    numbers = ragged_dot_dimension_numbers
    kind, axis = _kind_of_ragged(numbers)
    if kind == "batch":
        return dot_general(lhs, rhs, numbers.dot_dimension_numbers, precision, preferred_element_type)
    count = sizes.shape[-1]
    varied = _outer_axes(numbers, lhs.ndim) if sizes.ndim > 1 else ()
    sizes = shaping.convert(sizes, dtypes.int32, False)
    (lhs_contract, rhs_contract), (lhs_batch, rhs_batch) = numbers.dot_dimension_numbers
    if kind == "row":
        (group,) = numbers.rhs_group_dimensions
        columns = other_axes(rhs.ndim, (*rhs_contract, *rhs_batch))
        extents = [rhs.shape[each] for each in columns if each != group], [rhs.shape[each] for each in rhs_contract]
        if all(type(extent) is int for extent in sum(extents, [])) and math.prod(extents[0]) <= math.prod(extents[1]):
            rows = [*lhs_batch, *other_axes(lhs.ndim, (*lhs_contract, *lhs_batch))]
            every = dot_general(lhs, rhs, numbers.dot_dimension_numbers, precision, preferred_element_type)
            place = len(rows) + columns.index(group)
            own = _members(sizes, aval_of(every).shape, [*map(rows.index, varied), place], rows.index(axis))
            return reductions.reduce_sum(elementwise.select(own, every, shaping.full_like(every, 0)), (place,))
    shape = (count, *lhs.shape)
    own = _members(sizes, shape, [*(each + 1 for each in varied), 0], axis + 1)
    each = shaping.broadcast_in_dim(lhs, shape, range(1, lhs.ndim + 1))
    each = elementwise.select(own, each, shaping.full_like(each, 0))
    lhs_contract, lhs_batch = (tuple([axis + 1 for axis in axes]) for axes in (lhs_contract, lhs_batch))
    if kind == "row":  # each row is of one group: adding up over the groups picks it
        contract = (0, *lhs_contract), (numbers.rhs_group_dimensions[0], *rhs_contract)  # in the order in which rhs lies
        return dot_general(each, rhs, (contract, (lhs_batch, rhs_batch)), precision, preferred_element_type)
    repeated = shaping.broadcast_in_dim(rhs, (count, *rhs.shape), range(1, rhs.ndim + 1))
    rhs_contract, rhs_batch = (tuple([axis + 1 for axis in axes]) for axes in (rhs_contract, rhs_batch))
    return dot_general(each, repeated, ((lhs_contract, rhs_contract), ((0, *lhs_batch), (0, *rhs_batch))), precision,
                       preferred_element_type)


def _members(sizes, shape: Ints, places: Sequence[int], axis: int):
    """Which elements along an axis of an array of some shape belong to the group. `places`: of the axes of `sizes` in it."""
    ends = windows.cumsum(sizes, sizes.ndim - 1)
    order = sorted(range(len(places)), key=places.__getitem__)

    def spread(bounds):
        return shaping.broadcast_in_dim(shaping.transpose(bounds, order), shape, sorted(places))

    position = shaping.broadcasted_iota(dtypes.int32, shape, axis)
    return elementwise.bitwise_and(elementwise.le(spread(elementwise.sub(ends, sizes)), position),
                                   elementwise.lt(position, spread(ends)))


@boundary
def ragged_dot_general(lhs, rhs, group_sizes, ragged_dot_dimension_numbers: RaggedDotDimensionNumbers, precision=None,
                       preferred_element_type=None, group_offset=None, out_sharding=None):
    """A product in which one axis of lhs is cut into g groups of consecutive elements.

    If the ragged axis is
    - a row axis (neither contracted nor batch): rhs has an axis of size g, and each row meets its group's part;
    - contracted: the result has a leading axis of size g, each group's elements contracted on their own;
    - a batch axis: the product is that of `dot_general`.
    Elements beyond all groups count as zeros, except along a batch axis.

    Args:
      group_sizes: (g,), integers; or with leading axes for the axes of lhs along which the groups differ: the batch
        axes and those of the ragged axis' kind before it.
      ragged_dot_dimension_numbers: a `RaggedDotDimensionNumbers`.
      precision, preferred_element_type: as of `dot_general`.
      group_offset: must be None.
      out_sharding: how the result is on a mesh; needed for operands that are cut along explicit axes.
    Raises: TypeError for numbers and sizes that do not fit.
    """
    if group_offset is not None:
        raise NotImplementedError("ragged_dot_general takes no group_offset: slice lhs and group_sizes instead")
    preferred_element_type = dtypes.requested_dtype(preferred_element_type, "ragged_dot_general")
    return laid_out_by(
        out_sharding, ragged_dot_general_p.bind, lhs, rhs, group_sizes,
        ragged_dot_dimension_numbers=ragged_dot_dimension_numbers, precision=canonicalize_precision(precision),
        preferred_element_type=preferred_element_type, group_offset=None, out_sharding=None)


@boundary
def ragged_dot(lhs, rhs, group_sizes, precision=None, preferred_element_type=None, group_offset=None,
               out_sharding=None):
    """A product whose rows are in groups, each with a matrix of its own.

    Args:
      lhs: (m, k); rhs: (g, k, n); group_sizes: (g,), integers; the first `group_sizes[0]` rows of lhs meet rhs[0], and
        so on. Rows beyond all groups give zeros.
      precision, preferred_element_type: as of `dot_general`.
      group_offset: must be None.
      out_sharding: how the result is on a mesh; needed for operands that are cut along explicit axes.
    Returns: (m, n).
    Raises: TypeError for shapes that do not fit.

    >>> import numpy as np
    >>> ragged_dot(np.ones((3, 1)), np.array([[[10.]], [[20.]]]), np.array([2, 1])).tolist()
    [[10.0], [10.0], [20.0]]
    """
    return ragged_dot_general(lhs, rhs, group_sizes, RaggedDotDimensionNumbers((((1,), (1,)), ((), ())), (0,), (0,)),
                              precision, preferred_element_type, group_offset, out_sharding)


# --- scaled ------------------------------------------------------------------------------------------

scaled_dot_p = Primitive("scaled_dot")


@scaled_dot_p.def_abstract_eval
def _scaled_dot_aval(lhs, rhs, lhs_scale, rhs_scale, *, dimension_numbers, preferred_element_type) -> ShapedArray:
    shape = dot_general_shape(lhs, rhs, dimension_numbers)
    for side, operand, scale in ((0, lhs, lhs_scale), (1, rhs, rhs_scale)):
        name, contract = ("lhs", "rhs")[side], dimension_numbers[0][side]
        if operand.ndim != scale.ndim:
            raise TypeError(f"scaled_dot: {name} and its scale must have the same rank, got {operand.shape} and "
                            f"{scale.shape}")
        for axis, (size, scales) in enumerate(zip(operand.shape, scale.shape, strict=True)):
            if axis not in contract and size != scales:
                raise TypeError(f"scaled_dot: axis {axis} of {name} has size {size}, that of its scale {scales}")
            if axis in contract and (not scales or size % scales or size < 2 * scales):
                raise TypeError(f"scaled_dot: the contracted axis {axis} of {name} has size {size}: its scale must "
                                f"have a divisor of that, at most half of it, got {scales}")
    return shaped_array(shape, preferred_element_type, False)


@decomposes(scaled_dot_p)
def _scaled_dot(lhs, rhs, lhs_scale, rhs_scale, *, dimension_numbers, preferred_element_type):
    def scaled(operand, scale):
        split: list[int] = []  # each axis as (blocks, elements of a block)
        for size, scales in zip(operand.shape, scale.shape, strict=True):
            split += [scales, size // scales if scales else 1]
        spread = shaping.broadcast_in_dim(scale, split, range(0, len(split), 2))
        operand, spread = (shaping.convert(each, preferred_element_type) for each in (operand, spread))
        return elementwise.mul(operand, shaping.reshape(spread, operand.shape))

    return dot_general(scaled(lhs, lhs_scale), scaled(rhs, rhs_scale), dimension_numbers,
                       preferred_element_type=preferred_element_type)


@boundary
def scaled_dot(lhs, rhs, *, lhs_scale=None, rhs_scale=None, dimension_numbers: DotDimensionNumbers | None = None,
               preferred_element_type=None):
    """`(lhs * lhs_scale) @ (rhs * rhs_scale)`, where each scale applies to a block of contracted elements.

    Args:
      lhs, rhs: arrays, usually of narrow floats.
      lhs_scale, rhs_scale: of the operand's shape, but shorter along contracted axes: by a whole factor of at least 2.
        None for 1.
      dimension_numbers: as of `dot_general`; default a product of matrices, over batch axes before the last two.
      preferred_element_type: the dtype to compute in and return; default bfloat16.
    Raises: TypeError for shapes that do not fit.
    """
    left, right = aval_of(lhs), aval_of(rhs)
    if dimension_numbers is None:
        rank = left.ndim
        if rank != right.ndim or rank < 2:
            raise TypeError(f"scaled_dot takes operands of one rank of at least 2, got {left.shape} and {right.shape}")
        batch = tuple(range(rank - 2))
        dimension_numbers = (((rank - 1,), (rank - 2,)), (batch, batch))
    numbers = canonical_dimension_numbers(dimension_numbers)

    def ones(aval, contract: Ints):
        return shaping.full(with_ones(aval.shape, contract), 1, dtypes.bfloat16)

    lhs_scale = ones(left, numbers[0][0]) if lhs_scale is None else lhs_scale
    rhs_scale = ones(right, numbers[0][1]) if rhs_scale is None else rhs_scale
    dtype = dtypes.bfloat16 if preferred_element_type is None else preferred_element_type
    return scaled_dot_p.bind(lhs, rhs, lhs_scale, rhs_scale, dimension_numbers=numbers,
                             preferred_element_type=dtypes.check_user_dtype_supported(dtype, "scaled_dot"))


register_rule_modules("jaxlite.lax.ragged_rules")
