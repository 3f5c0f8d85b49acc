"""Derivative and batching rules of windowed and cumulative reductions.

Tangents of cumulative products and log-sum-exps are a linear recurrence along the axis. Cumulative extremes are differentiated
as a scan of (value, tangent) pairs, in the order of which equal elements share the tangent. A windowed reduction
with a general function is differentiated as a reduction over an axis that contains the elements of each window
(`windows_of`). Letters: g a tangent, ct a cotangent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any

import numpy as np

from jaxlite.core.aval import Ints, ShapedArray
from jaxlite.core.axes import other_axes, with_sizes
from jaxlite.core.jaxpr import ClosedJaxpr
from jaxlite.core.lazy import loader
from jaxlite.core.primitive import Primitive
from jaxlite.core.staging import trace_to_jaxpr
from jaxlite.core.values import aval_of
from jaxlite.lax import elementwise as e
from jaxlite.lax import shaping, slicing
from jaxlite.lax import windows as w
from jaxlite.lax.elementwise_rules import const, filled, moved
from jaxlite.lax.gather_scatter import GatherDimensionNumbers, gather
from jaxlite.lax.reductions import argmax, argmin, reduce_sum
from jaxlite.lax.reductions_rules import combine_along, shifted
from jaxlite.traces import batching
from jaxlite.traces.batching import Axis, bring_to_front
from jaxlite.traces.decompose import decomposes
from jaxlite.traces.jvp import Zero, add_tangents, def_jvp, def_jvp_of_one, def_linear, jvp_flat, jvp_rule, zero_for
from jaxlite.traces.transpose import Linear, backward, is_linear
from lowering.monoids import identity

_scans = loader("jaxlite.lax.control_flow.associative_scan")  # with all of control flow

# --- running totals ----------------------------------------------------------------------------------

def _def_scan_of_pairs(primitive: Primitive, combination: Primitive) -> None:
    """Set the rule from the primitive that combines two elements."""
    combine = lambda one, other: jvp_rule(combination)((one[0], other[0]), (one[1], other[1]))

    @def_jvp_of_one(primitive)
    def jvp(x, g, *, axis: int, reverse: bool) -> tuple[Any, Any]:
        if not aval_of(x).size:
            return x, g
        return _scans().associative_scan(combine, (x, g), reverse=reverse, axis=axis)


def _def_recurrence(primitive: Primitive, start: str, weights: Callable[[Any, Any, Any], tuple[Any, Any]]) -> None:
    """Set the rule from `weights`, which gives what tangents of the total before an element, and of the element, count.

    It takes the total before each element, which is the identity of the monoid `start` before the first one, the elements, and
    their running totals.
    """

    def jvp(g, out, x, *, axis: int, reverse: bool):
        if not aval_of(x).size:
            return g
        before = moved(out, -1 if reverse else 1, axis, identity(start, aval_of(out).dtype))
        factors, weight = weights(before, x, out)
        return w.linear_recurrence(factors, e.mul(weight, g), axis, reverse)

    def_jvp(primitive, jvp)


def _share(part, out):
    """exp(part - out): of the derivative of log(exp(part) + ...) = out. 1 where they are equal, also if infinite."""
    return e.exp(e.select_n(e.eq(part, out), e.sub(part, out), filled(0, part)))


@w.linear_recurrence_p.def_jvp
def _linear_recurrence_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, axis: int, reverse: bool) -> tuple[Any, Any]:
    (factors, terms), (df, dt) = primals, tangents
    out = w.linear_recurrence(factors, terms, axis, reverse)
    added = dt
    if type(df) is not Zero:
        added = add_tangents(e.mul(df, moved(out, -1 if reverse else 1, axis)), dt)
    return out, zero_for(out) if type(added) is Zero else w.linear_recurrence(factors, added, axis, reverse)


@w.linear_recurrence_p.def_transpose
def _linear_recurrence_transpose(ct, factors, terms, *, axis: int, reverse: bool) -> list[Any]:
    assert is_linear(terms) and not is_linear(factors), "linear_recurrence is linear in its terms"
    return [None, w.linear_recurrence(moved(factors, 1 if reverse else -1, axis), ct, axis, not reverse)]


@w.linear_recurrence_p.def_batching
def _linear_recurrence_batch(axis_data: Axis, args: Sequence[Any], dims: Sequence[int | None], *, axis: int,
                             reverse: bool) -> tuple[Any, int]:
    factors, terms = map(bring_to_front, args, dims, repeat(axis_data.size))
    return w.linear_recurrence(factors, terms, axis + 1, reverse), 0


@decomposes(w.linear_recurrence_p)
def _linear_recurrence_in_parallel(factors, terms, *, axis: int, reverse: bool):
    """Pairs that stand for what several elements make of a value: its factor, and what is added."""
    combine = lambda one, other: [e.mul(one[0], other[0]), e.add(e.mul(one[1], other[0]), other[1])]
    return _scans().in_parallel(combine, [factors, terms], axis, reverse)[1]


def_linear(w.cumsum_p, lambda ct, x, *, axis, reverse: [w.cumsum(ct, axis, not reverse)])
_def_recurrence(w.cumprod_p, "prod", lambda before, x, out: (x, before))
_def_scan_of_pairs(w.cummax_p, e.max_p)
_def_scan_of_pairs(w.cummin_p, e.min_p)
_def_recurrence(w.cumlogsumexp_p, "max", lambda before, x, out: (_share(before, out), _share(x, out)))


def _def_cumulative_batching(primitive: Primitive) -> None:
    primitive.def_batching(lambda _, args, dims, *, axis, reverse: (
        primitive.bind(*args, axis=shifted(axis, dims[0]), reverse=reverse), dims[0]))


for _p in (w.cumsum_p, w.cumprod_p, w.cummax_p, w.cummin_p, w.cumlogsumexp_p):
    _def_cumulative_batching(_p)

# --- windows laid out --------------------------------------------------------------------------------


def _out_shape(shape: Ints, window: dict[str, Any]) -> Ints:
    return w.reduce_window_shape_tuple(shape, **window)


def windows_of(x, padding_value, *, window_dimensions: Sequence[int], window_strides: Sequence[int], padding,
               base_dilation: Sequence[int], window_dilation: Sequence[int]):
    """The elements of each window along a new axis in front: an array (size of the window, *number of windows)."""
    counts = _out_shape(aval_of(x).shape, dict(
        window_dimensions=window_dimensions, window_strides=window_strides, padding=padding,
        base_dilation=base_dilation, window_dilation=window_dilation))
    config = [(low, high, step - 1) for (low, high), step in zip(padding, base_dilation, strict=True)]
    if any(map(any, config)):
        x = shaping.pad(x, padding_value, config)
    front = 0  # axis by axis: the windows' own axes gather in front, the first one outermost
    for axis, count in enumerate(counts):
        size, stride = window_dimensions[axis], window_strides[axis]
        if size == stride == 1:
            continue
        positions = (np.arange(size, dtype=np.int32)[:, None] * window_dilation[axis]
                     + np.arange(count, dtype=np.int32) * stride)
        at, shape = front + axis, aval_of(x).shape
        numbers = GatherDimensionNumbers(
            offset_dims=tuple(other_axes(len(shape) + 1, (front, at + 1))),
            collapsed_slice_dims=(at,), start_index_map=(at,))
        x = gather(x, positions[..., None], numbers, with_sizes(shape, at, 1))
        front += 1
    return shaping.reshape(x, (math.prod(window_dimensions), *counts))


# --- sums and extremes of windows --------------------------------------------------------------------

_WINDOW = ("window_dimensions", "window_strides", "padding", "base_dilation", "window_dilation")
_UNBATCHED = {"padding": (0, 0)}  # for the batched axis: a window of one


def _with_axis(dim: int, params: dict[str, Any]) -> dict[str, Any]:
    """A window's params with the batched axis as one more."""
    return {name: (*value[:dim], _UNBATCHED.get(name, 1), *value[dim:]) if name in _WINDOW else value
            for name, value in params.items()}


def _def_window_batching(primitive: Primitive) -> None:
    @primitive.def_batching
    def batch(axis: Axis, args: Sequence[Any], dims: Sequence[int | None], **params) -> tuple[Any, int]:
        first = next(dim for dim in dims if dim is not None)
        args = [batching.bring(arg, dim, axis.size, first) for arg, dim in zip(args, dims, strict=True)]
        return primitive.bind(*args, **_with_axis(first, params)), first


for _p in (w.reduce_window_sum_p, w.reduce_window_max_p, w.reduce_window_min_p, w.select_and_scatter_add_p,
           w.select_and_gather_add_p):
    _def_window_batching(_p)


@w.reduce_window_sum_p.def_transpose
def _reduce_window_sum_transpose(ct, x, *, window_dimensions, window_strides, padding, base_dilation,
                                 window_dilation) -> list[Any]:
    """Each element gets the sum over the windows that see it: a window over the cotangent, spread by the strides."""
    shape, counts = x.aval.shape, aval_of(ct).shape
    if 0 in counts:
        return [shaping.full(shape, 0, x.aval.dtype)]
    pads = []
    for size, count, window, stride, (low, _), step, spread in zip(
            shape, counts, window_dimensions, window_strides, padding, base_dilation, window_dilation, strict=True):
        pads.append((w.dilated(window, spread) - 1 - low, (size - 1) * step + 1 + low - w.dilated(count, stride)))
    return [w.reduce_window_sum_p.bind(
        ct, window_dimensions=window_dimensions, window_strides=base_dilation, padding=tuple(pads),
        base_dilation=window_strides, window_dilation=window_dilation)]


def_linear(w.reduce_window_sum_p)


def _def_window_extreme(primitive: Primitive, select_prim: Primitive) -> None:
    """The tangent of the window's pick."""

    def_jvp(primitive, lambda g, out, x, **window: w.select_and_gather_add_p.bind(g, x, select_prim=select_prim, **window))


_def_window_extreme(w.reduce_window_max_p, e.ge_p)
_def_window_extreme(w.reduce_window_min_p, e.le_p)

# --- a window's pick ---------------------------------------------------------------------------------


def _def_pick(primitive: Primitive) -> None:
    """Linear in what is picked from, the first operand; constant around almost every value of the second."""

    @primitive.def_jvp
    def jvp(primals: Sequence[Any], tangents: Sequence[Any], **params) -> tuple[Any, Any]:
        (values, operand), (g, _) = primals, tangents
        out = primitive.bind(values, operand, **params)
        return out, zero_for(out) if type(g) is Zero else primitive.bind(g, operand, **params)


_def_pick(w.select_and_gather_add_p)
_def_pick(w.select_and_scatter_add_p)


def _undilated(rank: int) -> dict[str, Any]:
    return {"base_dilation": (1,) * rank, "window_dilation": (1,) * rank}


@w.select_and_scatter_add_p.def_transpose
def _select_and_scatter_add_transpose(ct, source, operand, **params) -> list[Any]:
    return [w.select_and_gather_add_p.bind(ct, operand, **params, **_undilated(aval_of(ct).ndim)), None]


@w.select_and_gather_add_p.def_transpose
def _select_and_gather_add_transpose(ct, tangents, operand, *, select_prim, base_dilation, window_dilation,
                                     **window) -> list[Any]:
    if any(step != 1 for step in window_dilation):  # select_and_scatter_add has no such windows
        params = dict(window, base_dilation=base_dilation, window_dilation=window_dilation)
        return [_pulled_back(lambda g: _pick(g, operand, select_prim, params), ct, tangents.aval), None]
    shape = aval_of(operand).shape
    if any(step != 1 for step in base_dilation):
        dtype = aval_of(operand).dtype
        lowest = identity("max" if select_prim is e.ge_p else "min", dtype)
        operand = shaping.pad(operand, lowest, [(0, 0, step - 1) for step in base_dilation])
    out = w.select_and_scatter_add_p.bind(ct, operand, select_prim=select_prim, **window)
    if aval_of(out).shape != shape:
        out = slicing.slice(out, (0,) * len(shape), aval_of(out).shape, base_dilation)
    return [out, None]


def _pick(g, operand, select_prim, window: dict[str, Any]):
    """`select_and_gather_add` by windows laid out: the first of equal elements has the position 1, others 0."""
    find, monoid = (argmax, "max") if select_prim is e.ge_p else (argmin, "min")
    lines = windows_of(operand, identity(monoid, aval_of(operand).dtype), **window)
    where = find(lines, 0, np.dtype(np.int32))
    shape = aval_of(lines).shape
    spread = shaping.broadcast_in_dim(where, shape, range(1, len(shape)))
    picked = e.eq(shaping.broadcasted_iota(np.int32, shape, 0), spread)
    found = windows_of(g, const(0, g), **window)
    return reduce_sum(e.mul(found, shaping.convert(picked, aval_of(g).dtype, False)), (0,))


def _pulled_back(fun: Callable[[Any], Any], ct, aval: ShapedArray):
    """The cotangent of a linear function's argument."""
    jaxpr, consts = trace_to_jaxpr(lambda g: [fun(g)], [aval])
    return backward(jaxpr, consts, [Linear(aval)], [ct])[0]


w.select_and_scatter_p.no_jvp("what its function of scalars combines is known to the compiler alone; "
                              "use reduce_window and its derivative")


@w.select_and_scatter_p.def_batching
def _select_and_scatter_batch(axis: Axis, args: Sequence[Any], dims: Sequence[int | None],
                              **params) -> tuple[Any, int | None]:
    operand, source, init = args
    if dims[0] is dims[1] is dims[2] is None:  # called without batched operands: the functions may use the axis by name
        return w.select_and_scatter_p.bind(*args, **params), None
    if dims[2] is not None:
        raise NotImplementedError("select_and_scatter: a batch of initial values cannot be batched; the operation takes "
                                  "one for all. Start from the identity of `scatter` and combine afterwards.")
    operand, source = (batching.bring_to_front(each, dim, axis.size) for each, dim in zip(args[:2], dims, strict=False))
    return w.select_and_scatter_p.bind(operand, source, init, **_with_axis(0, params)), 0


# --- any computation ---------------------------------------------------------------------------------


def _reduced_windows(jaxpr: ClosedJaxpr, operands: Sequence[Any], inits: Sequence[Any],
                     window: dict[str, Any]) -> list[Any]:
    lines = [windows_of(operand, init, **window) for operand, init in zip(operands, inits, strict=True)]
    return combine_along(jaxpr, lines, inits)


@w.reduce_window_p.def_jvp
def _reduce_window_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, jaxpr: ClosedJaxpr,
                       **window) -> tuple[list[Any], list[Any]]:
    if all(type(g) is Zero for g in tangents):
        outs = w.reduce_window_p.bind(*primals, jaxpr=jaxpr, **window)
        return outs, [zero_for(out) for out in outs]
    count = len(primals) // 2
    return jvp_flat(lambda *xs: _reduced_windows(jaxpr, xs[:count], xs[count:], window), primals, tangents)


@w.reduce_window_p.def_batching
def _reduce_window_batch(axis: Axis, args: Sequence[Any], dims: Sequence[int | None], *, jaxpr: ClosedJaxpr,
                         **window) -> tuple[list[Any], list[int | None]]:
    count = len(args) // 2
    if all(dim is None for dim in dims):  # called without batched operands: the computation may use the axis by name
        return w.reduce_window_p.bind(*args, jaxpr=jaxpr, **window), [None] * count
    if any(dim is not None for dim in dims[count:]):  # XLA takes one initial value for all windows
        return batching.batch_flat(lambda *xs: _reduced_windows(jaxpr, xs[:count], xs[count:], window), args, dims, axis)
    first = next(dim for dim in dims if dim is not None)
    operands = [batching.bring(each, dim, axis.size, first)
                for each, dim in zip(args[:count], dims[:count], strict=True)]
    outs = w.reduce_window_p.bind(*operands, *args[count:], jaxpr=jaxpr, **_with_axis(first, window))
    return outs, [first] * count
