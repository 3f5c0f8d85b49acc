"""Derivative and batching rules of the primitives that change dtype, shape or order.

All of them are linear, or have no operands. Batching keeps the batch axis in its place if the operation allows it. Letters:
g a tangent, x the operand, ct a cotangent, d the batch axis.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxlite.core import dtypes
from jaxlite.core.aval import Ints
from jaxlite.core.values import aval_of
from jaxlite.lax import elementwise, shaping, slicing
from jaxlite.lax.elementwise_rules import const
from jaxlite.lax.reductions import reduce_sum
from jaxlite.traces.batching import Axis, bring, def_batching_of_one, def_in_place, move
from jaxlite.traces.jvp import Zero, def_linear, def_zero, instantiate, zero_for
from jaxlite.traces.transpose import is_linear

Dims = Sequence[int | None]


def insert(values: Sequence[Any], position: int, value) -> tuple[Any, ...]:
    """A tuple with one more entry, at a position."""
    return (*values[:position], value, *values[position:])


def shift(axes: Sequence[int], d: int) -> Ints:
    """The numbers of axes once there is a batched axis at d."""
    return tuple([axis + (axis >= d) for axis in axes])


def first_batched(dims: Dims) -> int:
    """The position of the batched axis of the first batched operand."""
    return next(dim for dim in dims if dim is not None)


# --- types -------------------------------------------------------------------------------------------


@shaping.convert_element_type_p.def_jvp
def _convert_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, new_dtype, weak_type: bool) -> tuple[Any, Any]:
    (x,), (g,) = primals, tangents
    out = shaping.convert_element_type_p.bind(x, new_dtype=new_dtype, weak_type=weak_type)
    if type(g) is Zero or dtypes.kind(new_dtype) not in "fc":
        return out, zero_for(out)
    return out, shaping.convert(g, new_dtype, weak_type)


shaping.convert_element_type_p.def_transpose(lambda ct, x, **params: [shaping.convert(ct, x.aval.dtype, x.aval.weak_type)])
def_in_place(shaping.convert_element_type_p)

def_zero(shaping.bitcast_convert_type_p)


@def_batching_of_one(shaping.bitcast_convert_type_p)
def _bitcast_batch(axis: Axis, x, d: int, *, new_dtype) -> tuple[Any, int]:
    aval = aval_of(x)
    if d == aval.ndim - 1 and dtypes.itemsize_bits(aval.dtype) != dtypes.itemsize_bits(new_dtype):
        x, d = move(x, d, 0), 0  # the last axis is that of the parts
    return shaping.bitcast_convert_type_p.bind(x, new_dtype=new_dtype), d


def_linear(shaping.reduce_precision_p, lambda ct, x, **params: [shaping.reduce_precision_p.bind(ct, **params)])
def_in_place(shaping.reduce_precision_p)

# --- broadcasts --------------------------------------------------------------------------------------


def _broadcast_in_dim_transpose(ct, x, *, shape: Ints, broadcast_dimensions: Ints, sharding) -> list[Any]:
    kept = [dim for dim, size in zip(broadcast_dimensions, x.aval.shape, strict=True) if size == shape[dim]]
    total = reduce_sum(ct, [axis for axis in range(len(shape)) if axis not in kept])
    if aval_of(total).shape != x.aval.shape:  # axes of size 1 that were stretched
        stays = [axis for axis, dim in enumerate(broadcast_dimensions) if dim in kept]
        total = shaping.broadcast_in_dim(total, x.aval.shape, stays)
    return [total]


def_linear(shaping.broadcast_in_dim_p, _broadcast_in_dim_transpose)


@def_batching_of_one(shaping.broadcast_in_dim_p)
def _broadcast_in_dim_batch(axis: Axis, x, d: int, *, shape: Ints, broadcast_dimensions: Ints,
                            sharding) -> tuple[Any, int]:
    target = broadcast_dimensions[d - 1] + 1 if d else 0
    dimensions = insert(shift(broadcast_dimensions, target), d, target)
    return shaping.broadcast_in_dim(x, insert(shape, target, axis.size), dimensions), target


# --- shapes and order --------------------------------------------------------------------------------


def _reshape_transpose(ct, x, *, new_sizes: Ints, dimensions: Ints | None, sharding) -> list[Any]:
    shape = x.aval.shape
    if dimensions is None:
        return [shaping.reshape(ct, shape)]
    ct = shaping.reshape(ct, [shape[axis] for axis in dimensions])
    return [shaping.transpose(ct, inverse(dimensions))]


def inverse(permutation: Sequence[int]) -> list[int]:
    """The permutation that undoes one."""
    return sorted(range(len(permutation)), key=permutation.__getitem__)


def_linear(shaping.reshape_p, _reshape_transpose)


@def_batching_of_one(shaping.reshape_p)
def _reshape_batch(axis: Axis, x, d: int, *, new_sizes: Ints, dimensions: Ints | None,
                   sharding) -> tuple[Any, int]:
    if dimensions is None:
        before = math.prod(aval_of(x).shape[:d])
        for target in range(len(new_sizes) + 1):
            if math.prod(new_sizes[:target]) == before:  # the reshape does not mix what is before and after d
                return shaping.reshape(x, insert(new_sizes, target, axis.size)), target
        return shaping.reshape(move(x, d, 0), (axis.size, *new_sizes)), 0
    order = (d, *shift(dimensions, d))
    return shaping.reshape(x, (axis.size, *new_sizes), order), 0


def_linear(shaping.transpose_p, lambda ct, x, *, permutation: [shaping.transpose(ct, inverse(permutation))])


@def_batching_of_one(shaping.transpose_p)
def _transpose_batch(axis: Axis, x, d: int, *, permutation: Ints) -> tuple[Any, int]:
    return shaping.transpose(x, (d, *shift(permutation, d))), 0


def_linear(shaping.squeeze_p, lambda ct, x, *, dimensions: [shaping.expand_dims(ct, dimensions)])


@def_batching_of_one(shaping.squeeze_p)
def _squeeze_batch(axis: Axis, x, d: int, *, dimensions: Ints) -> tuple[Any, int]:
    removed = shift(dimensions, d)
    return shaping.squeeze(x, removed), d - sum(each < d for each in removed)


def_linear(shaping.rev_p, lambda ct, x, *, dimensions: [shaping.rev(ct, dimensions)])
def_batching_of_one(shaping.rev_p)(lambda axis, x, d, *, dimensions: (shaping.rev(x, shift(dimensions, d)), d))

# --- joining and cutting -----------------------------------------------------------------------------


def _concatenate_transpose(ct, *operands, dimension: int) -> list[Any]:
    sizes = [(each.aval if is_linear(each) else aval_of(each)).shape[dimension] for each in operands]
    if len(operands) == 1:
        return [ct]
    parts = shaping.split(ct, sizes, dimension)
    return [part if is_linear(each) else None for part, each in zip(parts, operands, strict=True)]


def_linear(shaping.concatenate_p, _concatenate_transpose)


@shaping.concatenate_p.def_batching
def _concatenate_batch(axis: Axis, args: Sequence[Any], dims: Dims, *, dimension: int) -> tuple[Any, int]:
    d = first_batched(dims)
    if axis.is_short and len({*dims}) > 1 and d == aval_of(args[dims.index(d)]).ndim - 1:
        d = 0  # rather than in short rows, where some are moved anyway
    operands = [bring(arg, dim, axis.size, d) for arg, dim in zip(args, dims, strict=True)]
    return shaping.concatenate(operands, dimension + (dimension >= d)), d


@shaping.pad_p.def_jvp
def _pad_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, padding_config) -> tuple[Any, Any]:
    (x, _), (g, g_value) = primals, tangents
    out = shaping.pad_p.bind(*primals, padding_config=padding_config)
    if type(g) is Zero and type(g_value) is Zero:
        return out, zero_for(out)
    g_value = const(0, x) if type(g_value) is Zero else g_value
    return out, shaping.pad_p.bind(instantiate(g), g_value, padding_config=padding_config)


@shaping.pad_p.def_transpose
def _pad_transpose(ct, x, value, *, padding_config: tuple[tuple[int, int, int], ...]) -> list[Any]:
    inside = shaping.convert(ct, None, False)
    if any(low < 0 or high < 0 for low, high, _ in padding_config):  # what was cut off gets 0
        inside = shaping.pad(inside, const(0, inside), [(max(-low, 0), max(-high, 0), 0) for low, high, _ in padding_config])
    starts = [max(low, 0) for low, _, _ in padding_config]
    limits = [size - max(high, 0) for size, (_, high, _) in zip(aval_of(inside).shape, padding_config, strict=True)]
    strides = [inner + 1 for _, _, inner in padding_config]
    if any(starts) or tuple(limits) != aval_of(inside).shape or any(stride > 1 for stride in strides):
        inside = slicing.slice(inside, starts, limits, strides if any(stride > 1 for stride in strides) else None)
    share = None
    if is_linear(value):
        share = elementwise.sub(_total(ct), _total(inside))
    return [inside if is_linear(x) else None, share]


def _total(x):
    return reduce_sum(x, range(aval_of(x).ndim))


@shaping.pad_p.def_batching
def _pad_batch(axis: Axis, args: Sequence[Any], dims: Dims, *, padding_config) -> tuple[Any, int]:
    (x, value), (d, value_dim) = args, dims
    if d is None:
        x, d = bring(x, None, axis.size, 0), 0
    config = insert(padding_config, d, (0, 0, 0))
    if value_dim is None:
        return shaping.pad(x, value, config), d
    padded = shaping.pad(x, const(0, x), config)
    covered = shaping.pad(shaping.full(aval_of(x).shape, True, dtypes.bool_), np.bool_(False), config)
    return elementwise.select_n(covered, shaping.broadcast_in_dim(value, aval_of(padded).shape, (d,)), padded), d


def _split_transpose(cts: Sequence[Any], x, *, sizes: Ints, axis: int) -> list[Any]:
    return [shaping.concatenate([instantiate(ct) for ct in cts], axis)]


@shaping.split_p.def_jvp
def _split_jvp(primals: Sequence[Any], tangents: Sequence[Any], **params) -> tuple[Any, Any]:
    return shaping.split_p.bind(*primals, **params), shaping.split_p.bind(*tangents, **params)


shaping.split_p.def_transpose(_split_transpose)


@def_batching_of_one(shaping.split_p)
def _split_batch(batched: Axis, x, d: int, *, sizes: Ints, axis: int,
                 ) -> tuple[Any, Any]:
    return shaping.split(x, sizes, axis + (axis >= d)), [d] * len(sizes)


def _stack_transpose(ct, *operands, axis: int) -> list[Any]:
    return [part if is_linear(each) else None
            for part, each in zip(shaping.unstack(ct, axis), operands, strict=True)]


def_linear(shaping.stack_p, _stack_transpose)


@shaping.stack_p.def_batching
def _stack_batch(batched: Axis, args: Sequence[Any], dims: Dims, *, axis: int) -> tuple[Any, int]:
    d = first_batched(dims)
    operands = [bring(arg, dim, batched.size, d) for arg, dim in zip(args, dims, strict=True)]
    return (shaping.stack(operands, axis), d + 1) if axis <= d else (shaping.stack(operands, axis + 1), d)


@shaping.unstack_p.def_jvp
def _unstack_jvp(primals: Sequence[Any], tangents: Sequence[Any], **params) -> tuple[Any, Any]:
    return shaping.unstack_p.bind(*primals, **params), shaping.unstack_p.bind(*tangents, **params)


shaping.unstack_p.def_transpose(lambda cts, x, *, axis: [shaping.stack([instantiate(ct) for ct in cts], axis)])


@def_batching_of_one(shaping.unstack_p)
def _unstack_batch(batched: Axis, x, d: int, *, axis: int) -> tuple[Any, Any]:
    axis += axis >= d
    parts = shaping.unstack(x, axis)
    return parts, [d - (axis < d)] * len(parts)


def _tile_transpose(ct, x, *, reps: Ints) -> list[Any]:
    sizes = [size for pair in zip(reps, x.aval.shape, strict=True) for size in pair]
    return [reduce_sum(shaping.reshape(ct, sizes), range(0, len(sizes), 2))]


def_linear(shaping.tile_p, _tile_transpose)
def_batching_of_one(shaping.tile_p)(lambda axis, x, d, *, reps: (shaping.tile(x, insert(reps, d, 1)), d))

# --- values from nothing -----------------------------------------------------------------------------

for _p in (shaping.iota_p, shaping.empty_p, shaping.dimension_value_p):
    def_zero(_p)
    _p.no_batching("it has no operands")

# --- identities --------------------------------------------------------------------------------------

def_linear(shaping.copy_p, lambda ct, x: [shaping.copy_p.bind(ct)])
def_in_place(shaping.copy_p)
def_zero(shaping.stop_gradient_p)
def_in_place(shaping.stop_gradient_p)


def _barrier_together(values: Sequence[Any]) -> list[Any]:
    """A barrier around those values that there are."""
    present = iter(shaping.optimization_barrier_p.bind(*[each for each in values if _is_array(each)]))
    return [next(present) if _is_array(each) else each for each in values]


def _is_array(value) -> bool:
    return value is not None and type(value) is not Zero


shaping.optimization_barrier_p.def_jvp(
    lambda primals, tangents: (shaping.optimization_barrier_p.bind(*primals), _barrier_together(tangents)))
shaping.optimization_barrier_p.def_transpose(lambda cts, *operands: _barrier_together(
    [ct if is_linear(each) else None for ct, each in zip(cts, operands, strict=True)]))
shaping.optimization_barrier_p.def_batching(
    lambda axis, args, dims: (shaping.optimization_barrier_p.bind(*args), dims))
