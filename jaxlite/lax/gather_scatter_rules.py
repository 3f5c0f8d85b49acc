"""Derivative and batching rules of gather and the scatter family.

The transpose of gather is scatter-add, and vice versa. A batch axis that operand and indices share becomes a batching axis
of the dimension numbers; one of the operand (or the indices) only becomes an axis of the window (or of the positions).
Letters: g a tangent, ct a cotangent, d the batch axis of the operand.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxlite.core.aval import Ints, dual, has_states, with_layout
from jaxlite.core.primitive import Primitive
from jaxlite.core.values import aval_of
from jaxlite.devices import placement
from jaxlite.lax import elementwise, shaping
from jaxlite.lax import gather_scatter as gs
from jaxlite.lax.elementwise_rules import filled
from jaxlite.lax.gather_scatter import GatherDimensionNumbers, GatherScatterMode, ScatterDimensionNumbers
from jaxlite.lax.shaping_rules import Dims, insert, shift
from jaxlite.traces.batching import Axis, bring, move
from jaxlite.traces.jvp import Zero, def_jvp, instantiate, sum_of, zero_for
from jaxlite.traces.transpose import is_linear


def zeros(aval):
    """Zeros that are cut between devices as a value of this type, but are of no weak type."""
    return placement.laid_out_as(shaping.full(aval.shape, 0, aval.dtype), aval)


def _as_aval(operand):
    return operand.aval if is_linear(operand) else aval_of(operand)


# --- gather ------------------------------------------------------------------------------------------


@gs.gather_p.def_jvp
def _gather_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, fill_value, **params) -> tuple[Any, Any]:
    (x, indices), (g, _) = primals, tangents
    out = gs.gather_p.bind(x, indices, fill_value=fill_value, **params)
    if type(g) is Zero:
        return out, zero_for(out)
    fill = 0 if params["mode"] is GatherScatterMode.FILL_OR_DROP else None
    return out, gs.gather_p.bind(g, indices, fill_value=fill, **params)


def _scattered(total, ct, x, indices, *, dimension_numbers: GatherDimensionNumbers, slice_sizes: Ints, unique_indices: bool,
               indices_are_sorted: bool, mode, fill_value):
    return gs.scatter_add(total, indices, ct, ScatterDimensionNumbers(*dimension_numbers),
                          indices_are_sorted=indices_are_sorted, unique_indices=unique_indices, mode=mode)


@gs.gather_p.def_transpose
def _gather_transpose(ct, x, indices, *, dimension_numbers, **params) -> list[Any]:
    aval = dual(x.aval)
    if aval.layout is not None:  # along axes with positions, each device adds up what it has, for all of them
        entries = [None if axis in dimension_numbers.start_index_map else entry for axis, entry in enumerate(aval.layout.spec)]
        aval = with_layout(aval, aval.layout.update(spec=aval.layout.spec.update(partitions=entries)))
    return [_scattered(zeros(aval), ct, x, indices, dimension_numbers=dimension_numbers, **params), None]


def _gather_transpose_onto(total, ct, x, indices, **params):
    """Scatters to what there is, rather than to zeros that are added to it."""
    if has_states(x.aval):
        return sum_of(total, _gather_transpose(ct, x, indices, **params)[0])
    return _scattered(total, ct, x, indices, **params)


gs.gather_p.transpose_onto = _gather_transpose_onto


def _indices_in_front(indices, dim: int) -> tuple[Any, int]:
    """Batched indices with their batched axis off the last, which holds the components of a position."""
    return (move(indices, dim, 0), 0) if dim == aval_of(indices).ndim - 1 else (indices, dim)


def _with_axis_of_box(window: Ints, d: int, missing: Ints) -> tuple[Ints, int]:
    """The axes of boxes in the result of a gather, or in updates, once axis d of the operand is a batch, and where that is.

    Args: `missing` has the axes of the operand that boxes do not have.
    """
    before = sum(each not in missing for each in range(d))
    place = window[before - 1] + 1 if before else 0
    return insert(shift(window, place), before, place), place


def _with_axis_of_positions(window: Ints, indices: Any, dim: int) -> tuple[Ints, int]:
    """The same if axis `dim` of the indices is a batch."""
    positions = [each for each in range(len(window) + aval_of(indices).ndim - 1) if each not in window]
    return shift(window, positions[dim]), positions[dim]


def batch_gather(axis: Axis, args: Sequence[Any], dims: Dims, *, dimension_numbers: GatherDimensionNumbers,
                 slice_sizes: Ints, unique_indices: bool, indices_are_sorted: bool, mode,
                 fill_value) -> tuple[Any, int]:
    """The batching rule of gather."""
    (x, indices), (d, indices_dim) = args, dims
    offset, collapsed, index_map, x_batching, indices_batching = dimension_numbers
    if d is not None:
        collapsed, index_map, x_batching = shift(collapsed, d), shift(index_map, d), shift(x_batching, d)
    if indices_dim is None:  # the box gets one more axis
        assert d is not None
        offset, out_dim = _with_axis_of_box(offset, d, (*collapsed, *x_batching))
        slice_sizes = insert(slice_sizes, d, axis.size)
    else:
        indices, indices_dim = _indices_in_front(indices, indices_dim)
        indices_batching = shift(indices_batching, indices_dim)
        offset, out_dim = _with_axis_of_positions(offset, indices, indices_dim)
        indices_are_sorted = indices_are_sorted and d is not None and indices_dim == 0
        if d is None:
            unique_indices = False
        else:
            at = sum(each < d for each in x_batching)
            x_batching, indices_batching = insert(x_batching, at, d), insert(indices_batching, at, indices_dim)
            slice_sizes = insert(slice_sizes, d, min(1, axis.size))
    numbers = GatherDimensionNumbers(offset, collapsed, index_map, x_batching, indices_batching)
    return gs.gather_p.bind(x, indices, dimension_numbers=numbers, slice_sizes=slice_sizes, mode=mode,
                            unique_indices=unique_indices, indices_are_sorted=indices_are_sorted,
                            fill_value=fill_value), out_dim


gs.gather_p.def_batching(batch_gather)

# --- scatter: what its family shares -----------------------------------------------------------------


def batch_scatter(primitive: Primitive, axis: Axis, args: Sequence[Any], dims: Dims, *,
                  dimension_numbers: ScatterDimensionNumbers, **params) -> tuple[Any, int]:
    """The batching rule of a scatter."""
    (x, indices, updates), (d, indices_dim, updates_dim) = args, dims
    window, inserted, index_map, x_batching, indices_batching = map(tuple, dimension_numbers)
    if d is None:
        x, d = bring(x, None, axis.size, 0), 0
    inserted, index_map, x_batching = shift(inserted, d), shift(index_map, d), shift(x_batching, d)
    if indices_dim is None:  # the box gets one more axis
        window, target = _with_axis_of_box(window, d, (*inserted, *x_batching))
    else:
        indices, indices_dim = _indices_in_front(indices, indices_dim)
        indices_batching = shift(indices_batching, indices_dim)
        window, target = _with_axis_of_positions(window, indices, indices_dim)
        at = sum(each < d for each in x_batching)
        x_batching, indices_batching = insert(x_batching, at, d), insert(indices_batching, at, indices_dim)
        params["indices_are_sorted"] = params["indices_are_sorted"] and indices_dim == 0
    updates = bring(updates, updates_dim, axis.size, target)
    numbers = ScatterDimensionNumbers(window, inserted, index_map, x_batching, indices_batching)
    return primitive.bind(x, indices, updates, dimension_numbers=numbers, **params), d


def _def_batching(primitive: Primitive) -> None:
    primitive.def_batching(lambda axis, args, dims, **params: batch_scatter(primitive, axis, args, dims, **params))


for _p in (gs.scatter_p, gs.scatter_add_p, gs.scatter_sub_p, gs.scatter_mul_p, gs.scatter_min_p, gs.scatter_max_p):
    _def_batching(_p)


def _read(x, indices, updates, params: dict[str, Any], clip: bool = False):
    """The boxes that a scatter's updates meet. Out of bounds they read 0, or if `clip` the nearest box."""
    numbers, aval = params["dimension_numbers"], _as_aval(updates)
    dropped = (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
    sizes = iter([aval.shape[axis] for axis in numbers.update_window_dims])
    shape = aval_of(x).shape
    box = [min(1, size) if axis in dropped else next(sizes) for axis, size in enumerate(shape)]
    mode = params["mode"]
    if clip and mode is GatherScatterMode.FILL_OR_DROP:
        mode = GatherScatterMode.CLIP
    return gs.gather(x, indices, GatherDimensionNumbers(*map(tuple, numbers)), box, mode=mode, fill_value=0)


def _add(x, indices, updates, params: dict[str, Any]):
    """Scatter-add at the positions of another scatter."""
    return gs.scatter_add(x, indices, updates, params["dimension_numbers"], mode=params["mode"],
                          indices_are_sorted=params["indices_are_sorted"], unique_indices=params["unique_indices"])


# --- sums --------------------------------------------------------------------------------------------


def _def_sum(primitive: Primitive, negative: bool) -> None:
    def jvp(primals: Sequence[Any], tangents: Sequence[Any], **params) -> tuple[Any, Any]:
        (x, indices, updates), (g, _, g_updates) = primals, tangents
        out = primitive.bind(x, indices, updates, **params)
        if type(g) is Zero and type(g_updates) is Zero:
            return out, zero_for(out)
        if type(g_updates) is Zero:
            return out, g
        return out, primitive.bind(instantiate(g), indices, g_updates, **params)

    def transpose(ct, x, indices, updates, **params) -> list[Any]:
        share = None
        if is_linear(updates):
            share = _read(ct, indices, updates, params)
            share = elementwise.neg(share) if negative else share
        return [ct if is_linear(x) else None, None, share]

    primitive.def_jvp(jvp)
    primitive.def_transpose(transpose)


_def_sum(gs.scatter_add_p, False)
_def_sum(gs.scatter_sub_p, True)

# --- replacement -------------------------------------------------------------------------------------


def _is_single(indices, params: dict[str, Any]) -> bool:
    """Whether no element is written twice."""
    return params["unique_indices"] or math.prod(aval_of(indices).shape[:-1]) <= 1


def _written(x, indices, updates, params: dict[str, Any]) -> tuple[Any, Any]:
    """Names of the updates, from 1 on, and where each one is written, which is for the backend to say: 0 where none is."""
    shape, window = _as_aval(updates).shape, params["dimension_numbers"].update_window_dims
    positions = [axis for axis in range(len(shape)) if axis not in window]
    sizes = [shape[axis] for axis in positions]
    names = elementwise.add(shaping.iota(np.uint32, math.prod(sizes)), np.uint32(1))
    names = shaping.broadcast_in_dim(shaping.reshape(names, sizes), shape, positions)
    return names, gs.scatter_p.bind(shaping.full(_as_aval(x).shape, 0, np.uint32), indices, names, **params)


def _keep_winners(values, names, written, indices, params: dict[str, Any]):
    """Boxes with 0 for every element that another update overwrote."""
    wins = elementwise.eq(_read(written, indices, names, params, clip=True), names)
    return elementwise.select_n(wins, filled(0, values), values)


def _keep_others(x, written):
    """0 wherever there is an update, as the names that are written tell."""
    return elementwise.select_n(elementwise.eq(written, filled(0, written)), filled(0, x), x)


def _clear(x, indices, updates, params: dict[str, Any]):
    """0 wherever there is an update."""
    aval = _as_aval(updates)
    return gs.scatter_p.bind(x, indices, shaping.full(aval.shape, 0, aval_of(x).dtype), **params)


@gs.scatter_p.def_jvp
def _scatter_jvp(primals: Sequence[Any], tangents: Sequence[Any], **params) -> tuple[Any, Any]:
    (x, indices, updates), (g, _, g_updates) = primals, tangents
    if params["update_jaxpr"] is not None:
        raise NotImplementedError("scatter_apply has no derivative rule; gather, compute and scatter instead")
    out = gs.scatter_p.bind(x, indices, updates, **params)
    if type(g) is Zero and type(g_updates) is Zero:
        return out, zero_for(out)
    if type(g_updates) is Zero:
        return out, _clear(g, indices, updates, params)
    if _is_single(indices, params):
        return out, gs.scatter_p.bind(instantiate(g), indices, g_updates, **params)
    names, written = _written(x, indices, updates, params)
    kept = instantiate(g) if type(g) is Zero else _keep_others(g, written)
    return out, _add(kept, indices, _keep_winners(g_updates, names, written, indices, params), params)


@gs.scatter_p.def_transpose
def _scatter_transpose(ct, x, indices, updates, **params) -> list[Any]:
    if not is_linear(updates):
        return [_clear(ct, indices, updates, params), None, None]
    ct_updates = _read(ct, indices, updates, params)
    if _is_single(indices, params):
        return [_clear(ct, indices, updates, params) if is_linear(x) else None, None, ct_updates]
    names, written = _written(x, indices, updates, params)
    ct_x = _keep_others(ct, written) if is_linear(x) else None
    return [ct_x, None, _keep_winners(ct_updates, names, written, indices, params)]


# --- products ----------------------------------------------------------------------------------------


def _scatter_mul_jvp_of_updates(g, out, x, indices, updates, **params):
    if not _is_single(indices, params):
        raise NotImplementedError("scatter_mul gradients are only implemented if `unique_indices=True`")
    return elementwise.mul(x, _add(zeros(aval_of(x)), indices, g, params))


def_jvp(gs.scatter_mul_p, lambda g, out, x, indices, updates, **params: gs.scatter_mul_p.bind(g, indices, updates, **params),
        None, _scatter_mul_jvp_of_updates)


@gs.scatter_mul_p.def_transpose
def _scatter_mul_transpose(ct, x, indices, updates, **params) -> list[Any]:
    if is_linear(x):
        return [gs.scatter_mul_p.bind(ct, indices, updates, **params), None, None]
    if not _is_single(indices, params):
        raise NotImplementedError("scatter_mul gradients are only implemented if `unique_indices=True`")
    return [None, None, _read(elementwise.mul(ct, x), indices, updates, params)]


# --- extremes ----------------------------------------------------------------------------------------


def _def_extreme(primitive: Primitive) -> None:
    """The derivative is shared evenly by the element and all updates that reach the extreme value."""

    def jvp(primals: Sequence[Any], tangents: Sequence[Any], **params) -> tuple[Any, Any]:
        (x, indices, updates), (g, _, g_updates) = primals, tangents
        out = primitive.bind(x, indices, updates, **params)
        if type(g) is Zero and type(g_updates) is Zero:
            return out, zero_for(out)
        x_wins = elementwise.eq(x, out)
        update_wins = elementwise.eq(updates, _read(out, indices, updates, params, clip=True))
        dtype = aval_of(out).dtype
        count = _add(shaping.convert(x_wins, dtype, False), indices, shaping.convert(update_wins, dtype, False), params)
        total = instantiate(g) if type(g) is Zero else elementwise.select_n(x_wins, filled(0, g), g)
        if type(g_updates) is not Zero:
            total = _add(total, indices, elementwise.select_n(update_wins, filled(0, g_updates), g_updates), params)
        return out, elementwise.div(total, count)

    primitive.def_jvp(jvp)
    primitive.no_transpose("it is not linear")


_def_extreme(gs.scatter_min_p)
_def_extreme(gs.scatter_max_p)
