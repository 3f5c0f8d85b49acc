"""Derivative and batching rules of the reductions over axes.

A reduction with a general function is differentiated (and, if its initial value is batched, computed) as a tree: log2(size)
levels, each of which combines all pairs at once (`combine_along`). Letters: g a tangent, ct a cotangent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from jaxlite.core.aval import Ints, require_sum
from jaxlite.core.axes import other_axes, with_ones
from jaxlite.core.jaxpr import ClosedJaxpr, eval_jaxpr
from jaxlite.core.primitive import Primitive
from jaxlite.core.values import aval_of
from jaxlite.lax import reductions as r
from jaxlite.lax import shaping, slicing
from jaxlite.lax.elementwise import div, eq, mul
from jaxlite.lax.windows import cumprod
from jaxlite.traces import batching
from jaxlite.traces.batching import Axis, batch_flat, def_batching_of_one
from jaxlite.traces.jvp import Zero, add_tangents, def_jvp, def_linear, def_zero, jvp_flat, zero_for

# --- axes --------------------------------------------------------------------------------------------


def shifted(axis: int, dim: int) -> int:
    """The number of an example's axis in the batch, whose own axis is `dim`."""
    return axis + (axis >= dim)


def expand(x, axes: Sequence[int], shape: Ints):
    """A reduced array with the axes put back as ones."""
    return shaping.reshape(x, with_ones(shape, axes))


def _def_reduction_batching(primitive: Primitive) -> None:
    @def_batching_of_one(primitive)
    def batch(axis: Axis, x, dim: int, *, axes: Ints, **params) -> tuple[Any, int]:
        moved = tuple(shifted(each, dim) for each in axes)
        return primitive.bind(x, axes=moved, **params), dim - sum(each < dim for each in moved)


for _p in (r.reduce_sum_p, r.reduce_prod_p, r.reduce_max_p, r.reduce_min_p, r.reduce_and_p, r.reduce_or_p, r.reduce_xor_p,
           r.argmax_p, r.argmin_p):
    _def_reduction_batching(_p)

for _p in (r.reduce_and_p, r.reduce_or_p, r.reduce_xor_p, r.argmax_p, r.argmin_p):
    def_zero(_p)

# --- sums, extremes, products ------------------------------------------------------------------------


@r.reduce_sum_p.def_transpose
def _reduce_sum_transpose(ct, x, *, axes: Ints, out_sharding) -> list[Any]:
    shape = x.aval.shape
    return [shaping.broadcast_in_dim(ct, shape, other_axes(len(shape), axes))]


def_linear(r.reduce_sum_p)


def _def_extreme(primitive: Primitive) -> None:
    """The mean of the tangents where the extreme is attained."""

    def jvp(g, out, x, *, axes: Ints, **params):
        if params.get("out_sharding") is not None:
            require_sum(params["out_sharding"].spec.unreduced_kind)
        aval = aval_of(x)
        attained = shaping.convert(eq(x, expand(out, axes, aval.shape)), aval.dtype, False)
        count = r.reduce_sum(attained, axes)
        return div(r.reduce_sum(mul(g, attained), axes), count)

    def_jvp(primitive, jvp)


_def_extreme(r.reduce_max_p)
_def_extreme(r.reduce_min_p)


def to_front(x, axes: Sequence[int]):
    """An array whose given axes are merged into one in front."""
    shape = aval_of(x).shape
    kept = other_axes(len(shape), axes)
    order = [*axes, *kept]
    if order != list(range(len(shape))):
        x = shaping.transpose(x, order)
    return x if len(axes) == 1 else shaping.reshape(
        x, (math.prod(shape[axis] for axis in axes), *(shape[axis] for axis in kept)))


def _reduce_prod_jvp(g, out, x, *, axes: Ints):
    """Each tangent times the product of all others: of those before and those after. No division, so zeros are fine."""
    axis, shape = axes[0], aval_of(x).shape
    if len(axes) > 1 or 0 < axis == len(shape) - 1 and type(shape[axis]) is int and shape[axis] <= _SHORT_ROW:
        axis, x, g = 0, to_front(x, axes), to_front(g, axes)
    extent = aval_of(x).shape[axis]
    if type(extent) is int and 1 < extent <= _MOST_HALVED:
        return _by_halves(x, g, axis)
    if extent > 1:
        g = mul(g, _products_of_others(x, axis))
    return r.reduce_sum(g, (axis,))


def_jvp(r.reduce_prod_p, _reduce_prod_jvp)


_SHORT_ROW = 8  # elements whose halves are joined faster across rows, and turned then
_MOST_HALVED = 1 << 17  # elements whose products are differentiated as a tree of products: as many levels are kernels


def _by_halves(x, g, axis: int):
    """The tangent of a product: of the product of two halves, and so on."""
    rests: list[tuple[Any, Any]] = []  # of halves of an odd length, the element between them
    while (extent := aval_of(x).shape[axis]) > 1:
        half = extent // 2
        parts = [shaping.split(each, (half, half, extent % 2)[:2 + extent % 2], axis) for each in (x, g)]
        (first, last, *rest), (g_first, g_last, *g_rest) = parts
        rests += zip(rest, g_rest, strict=True)
        x, g = mul(first, last), add_tangents(mul(g_first, last), mul(first, g_last))
    for other, g_other in rests:
        x, g = mul(x, other), add_tangents(mul(g, other), mul(x, g_other))
    return shaping.squeeze(g, (axis,))


def _products_of_others(x, axis: int):
    aval = aval_of(x)
    one = aval.dtype.type(1)
    left, right = [(0, 0, 0)] * aval.ndim, [(0, 0, 0)] * aval.ndim
    left[axis], right[axis] = (1, -1, 0), (-1, 1, 0)
    return mul(cumprod(shaping.pad(x, one, left), axis), cumprod(shaping.pad(x, one, right), axis, reverse=True))


# --- any computation ---------------------------------------------------------------------------------


def on_arrays(jaxpr: ClosedJaxpr) -> Callable[[Sequence[Any], Sequence[Any]], list[Any]]:
    """The function of two lists of equally shaped arrays that applies a computation of scalars to each pair."""

    def apply(left: Sequence[Any], right: Sequence[Any]) -> list[Any]:
        shape = aval_of(left[0]).shape
        size = math.prod(shape)
        flat = [shaping.reshape(each, (size,)) for each in (*left, *right)]
        outs, dims = batch_flat(lambda *xs: eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, *xs), flat, [0] * len(flat), Axis(size))
        return [shaping.reshape(batching.bring_to_front(out, dim, size), shape)
                for out, dim in zip(outs, dims, strict=True)]

    return apply


def combine_along(jaxpr: ClosedJaxpr, operands: Sequence[Any], inits: Sequence[Any]) -> list[Any]:
    """Reduce the leading axis of each operand by a computation of scalars; the initial values enter once, and first.

    Few elements are combined one after the other, as the compiler does, and many as a tree that keeps their order: so the
    computation need not be commutative, nor associative where there are few.

    Args:
      operands: arrays of one shape (size, *rest).
      inits: scalars, or arrays of shape `rest`.
    """
    apply = on_arrays(jaxpr)
    size, *rest = aval_of(operands[0]).shape
    starts = [init if aval_of(init).shape == tuple(rest) else shaping.broadcast_in_dim(init, rest, ()) for init in inits]
    current, odd = list(operands), None
    if size <= _FEW:
        for index in range(size):
            starts = apply(starts, [slicing.index_in_dim(each, index, 0, keepdims=False) for each in current])
        return starts
    while size > 1:
        half = size // 2
        if size % 2:  # the last one is set aside, together with one set aside before
            last = [slicing.slice_in_dim(each, size - 1, size) for each in current]
            odd = last if odd is None else apply(last, odd)
        current = apply([slicing.slice_in_dim(each, 0, 2 * half, 2) for each in current],
                        [slicing.slice_in_dim(each, 1, 2 * half, 2) for each in current])
        size = half
    if odd is not None:
        current = apply(current, odd)
    return apply(starts, [shaping.squeeze(each, (0,)) for each in current])


_FEW = 16


def _split(values: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
    return values[:len(values) // 2], values[len(values) // 2:]


@r.reduce_p.def_jvp
def _reduce_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, jaxpr: ClosedJaxpr,
                dimensions: Ints) -> tuple[list[Any], list[Any]]:
    if all(type(tangent) is Zero for tangent in tangents):
        outs = r.reduce_p.bind(*primals, jaxpr=jaxpr, dimensions=dimensions)
        return outs, [zero_for(out) for out in outs]

    def fun(*values) -> list[Any]:
        operands, inits = _split(values)
        return combine_along(jaxpr, [to_front(operand, dimensions) for operand in operands], inits)

    return jvp_flat(fun, primals, tangents)


@r.reduce_p.def_batching
def _reduce_batch(axis: Axis, args: Sequence[Any], dims: Sequence[int | None], *, jaxpr: ClosedJaxpr,
                  dimensions: Ints) -> tuple[list[Any], list[int | None]]:
    if all(dim is None for dim in dims):  # called without batched operands: the computation may use the axis by name
        outs = r.reduce_p.bind(*args, jaxpr=jaxpr, dimensions=dimensions)
        return outs, [None] * len(outs)
    (operands, inits), (operand_dims, init_dims) = _split(args), _split(dims)
    if any(dim is not None for dim in init_dims):
        fronted = [batching.bring_to_front(operand, dim, axis.size)
                   for operand, dim in zip(operands, operand_dims, strict=True)]
        lines = [to_front(operand, [each + 1 for each in dimensions]) for operand in fronted]
        shape = aval_of(lines[0]).shape[1:]
        starts = [shaping.broadcast_in_dim(batching.bring_to_front(init, dim, axis.size), shape, (0,))
                  for init, dim in zip(inits, init_dims, strict=True)]
        return combine_along(jaxpr, lines, starts), [0] * len(operands)
    first = next(dim for dim in operand_dims if dim is not None)
    operands = [batching.bring(operand, dim, axis.size, first)
                for operand, dim in zip(operands, operand_dims, strict=True)]
    moved = tuple(shifted(each, first) for each in dimensions)
    outs = r.reduce_p.bind(*operands, *inits, jaxpr=jaxpr, dimensions=moved)
    return outs, [first - sum(each < first for each in moved)] * len(outs)
