"""Derivative and batching rules of collectives. vmap over the named axis turns them into reductions and permutations.

The transpose of a sum over examples is a sum of the cotangents. Over mesh axes, if types say that the sum does not vary
(`psum_invariant`), its transpose is the cast to a varying type, and the transpose of this cast is the sum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxlite.core.axes import with_sizes
from jaxlite.core.primitive import Primitive
from jaxlite.core.staging import pvary_p
from jaxlite.core.tracing import Tracer
from jaxlite.core.values import aval_of
from jaxlite.lax import elementwise as e
from jaxlite.lax import parallel as p
from jaxlite.lax import reductions, shaping
from jaxlite.lax.gather_scatter import GatherDimensionNumbers, GatherScatterMode, gather
from jaxlite.traces.batching import Axis, batch_flat, bring_to_front, move
from jaxlite.traces.jvp import Zero, def_jvp_of_one, def_linear, tangent_aval

# --- batching ----------------------------------------------------------------------------------------
# A local rule gets all examples of the named axis at axis 0, and gives its result and where it varies (None: nowhere).


def _take(x, indices: Sequence[int]):
    """Rows of x; zeros for indices beyond the end."""
    shape = aval_of(x).shape
    numbers = GatherDimensionNumbers(tuple(range(1, len(shape))), (0,), (0,))
    positions = np.asarray(indices, np.int32).reshape(-1, 1)
    return gather(x, positions, numbers, (1, *shape[1:]), mode=GatherScatterMode.FILL_OR_DROP, fill_value=0)


def _strong(x):
    """The operand of a collective that reduces: a traced one is strongly typed, as the result is."""
    return shaping.convert(x, aval_of(x).dtype, False) if isinstance(x, Tracer) else x


def _local_psum(size: int, x, **params) -> tuple[Any, int | None]:
    return reductions.reduce_sum(_strong(x), (0,)), None


def _local_pmax(size: int, x, **params) -> tuple[Any, int | None]:
    return reductions.reduce_max(_strong(x), (0,)), None


def _local_pmin(size: int, x, **params) -> tuple[Any, int | None]:
    return reductions.reduce_min(_strong(x), (0,)), None


def _merged(x, axis: int):
    shape = aval_of(x).shape
    return shaping.reshape(x, (*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2:]))


def _cut(x, axis: int, size: int):
    shape = aval_of(x).shape
    return shaping.reshape(x, with_sizes(shape, axis, size, shape[axis] // size))


def _local_all_gather(size: int, x, *, all_gather_dimension: int, tiled: bool, **params) -> tuple[Any, int | None]:
    stacked = move(x, 0, all_gather_dimension)
    return _merged(stacked, all_gather_dimension) if tiled else stacked, None


def _local_reduce_scatter(size: int, x, *, scatter_dimension: int, tiled: bool, **params) -> tuple[Any, int | None]:
    total = reductions.reduce_sum(x, (0,))
    return _cut(total, scatter_dimension, size) if tiled else total, scatter_dimension


def _local_all_to_all(size: int, x, *, split_axis: int, concat_axis: int, tiled: bool,
                      **params) -> tuple[Any, int | None]:
    if tiled:
        x = _cut(x, split_axis + 1, size)
    own = [axis for axis in range(1, aval_of(x).ndim) if axis != split_axis + 1]
    own.insert(concat_axis, 0)
    swapped = shaping.transpose(x, (split_axis + 1, *own))
    return _merged(swapped, concat_axis + 1) if tiled else swapped, 0


def _local_ppermute(size: int, x, *, perm: Sequence[tuple[int, int]], **params) -> tuple[Any, int | None]:
    sources = [size] * size
    for source, target in perm:
        sources[target] = source
    return _take(x, sources), 0


def _local_pbroadcast(size: int, x, *, source: int, **params) -> tuple[Any, int | None]:
    return shaping.squeeze(_take(x, [source]), (0,)), None


def _in_groups(local: Callable, groups: Sequence[Sequence[int]], x, params: dict[str, Any]) -> tuple[Any, int]:
    """Apply a local rule to groups of examples apart from each other."""
    order = [index for group in groups for index in group]
    if len({len(group) for group in groups}) > 1:
        parts = [_in_groups(local, [range(len(group))], _take(x, group), params)[0] for group in groups]
        return _take(shaping.concatenate(parts, 0), np.argsort(order).tolist()), 0
    count, size = len(groups), len(groups[0])
    grouped = _cut(_take(x, order), 0, count)

    def one(rows) -> list[Any]:
        out, dim = local(size, rows, **params)
        return [bring_to_front(out, dim, size)]

    (out,), (dim,) = batch_flat(one, [grouped], [0], Axis(count))
    out = _merged(bring_to_front(out, dim, count), 0)
    return _take(out, np.argsort(order).tolist()), 0


def _def_batching(primitive: Primitive, key: str, local: Callable, unvaried: Callable | None = None) -> None:
    """Set the rule of a collective; `unvaried(size, x)` is what it does to a value that all examples share."""

    def rule(axis: Axis, args: Sequence[Any], dims: Sequence[int | None], **params) -> tuple[Any, int | None]:
        (x,), (dim,) = args, dims
        names = params[key] if isinstance(params[key], tuple) else (params[key],)
        groups = params.get("axis_index_groups")
        if axis.name is None or axis.name not in names:  # another axis: out of its way, at the end
            assert dim is not None
            out = primitive.bind(move(x, dim, aval_of(x).ndim - 1), **params)
            return out, aval_of(out).ndim - 1
        rest = tuple(name for name in names if name != axis.name)
        if rest:  # a reduction, which may go axis by axis
            params = {**params, key: rest}
            if dim is not None:
                out, _ = local(axis.size, bring_to_front(x, dim, axis.size), **params)
            else:
                assert unvaried is not None
                out = unvaried(axis.size, x)
            return primitive.bind(out, **params), None
        if dim is None and unvaried is not None and groups is None:
            return unvaried(axis.size, x), None
        x = bring_to_front(x, dim, axis.size)
        return local(axis.size, x, **params) if groups is None else _in_groups(local, groups, x, params)

    primitive.def_batching(rule)


_def_batching(p.psum_p, "axes", _local_psum, p.times)
_def_batching(p.pmax_p, "axes", _local_pmax, lambda size, x: x)
_def_batching(p.pmin_p, "axes", _local_pmin, lambda size, x: x)
_def_batching(p.psum_invariant_p, "axes", _local_psum)
_def_batching(p.all_gather_invariant_p, "axis_name", _local_all_gather)
_def_batching(p.pbroadcast_p, "axis_name", _local_pbroadcast, lambda size, x: x)
_def_batching(p.all_gather_p, "axis_name", _local_all_gather)
_def_batching(p.reduce_scatter_p, "axis_name", _local_reduce_scatter)
_def_batching(p.all_to_all_p, "axis_name", _local_all_to_all)
_def_batching(p.ppermute_p, "axis_name", _local_ppermute)


@p.axis_index_p.def_batching
def _axis_index_batch(axis: Axis, args: Sequence[Any], dims: Sequence[int | None], *, axis_name) -> tuple[Any, int]:
    return shaping.iota("int32", axis.size), 0


# --- derivatives -------------------------------------------------------------------------------------


def _psum_transpose(ct, x, **params) -> list[Any]:
    return [p.psum_p.bind(ct, **params)]


def _own_part(ct, x, *, all_gather_dimension: int, axis_name, axis_size: int, tiled: bool) -> list[Any]:
    return [p.own_share(p.vary(ct, axis_name), axis_name, all_gather_dimension, tiled)]


def _all_gather_transpose(ct, x, *, all_gather_dimension: int, **params) -> list[Any]:
    return [p.reduce_scatter_p.bind(ct, scatter_dimension=all_gather_dimension, **params)]


def _reduce_scatter_transpose(ct, x, *, scatter_dimension: int, **params) -> list[Any]:
    return [p.all_gather_p.bind(ct, all_gather_dimension=scatter_dimension, **params)]


def _all_to_all_transpose(ct, x, *, split_axis: int, concat_axis: int, **params) -> list[Any]:
    return [p.all_to_all_p.bind(ct, split_axis=concat_axis, concat_axis=split_axis, **params)]


def _ppermute_transpose(ct, x, *, perm: Sequence[tuple[int, int]], **params) -> list[Any]:
    return [p.ppermute_p.bind(ct, perm=tuple((target, source) for source, target in perm), **params)]


def _pbroadcast_transpose(ct, x, *, axis_name, source: int) -> list[Any]:
    total = p.vary(p.psum(ct, axis_name), axis_name if isinstance(axis_name, tuple) else (axis_name,))
    here = shaping.broadcast_in_dim(e.eq(p.axis_index(axis_name), np.int32(source)), aval_of(ct).shape, ())
    return [e.select_n(here, shaping.full_like(total, 0), total)]


@pvary_p.def_batching
def _pvary_batch(axis: Axis, args: Sequence[Any], dims: Sequence[int | None], *, axes) -> tuple[Any, int | None]:
    return pvary_p.bind(*args, axes=axes), dims[0]


def_linear(p.psum_p, _psum_transpose)
def_linear(p.psum_invariant_p, lambda ct, x, *, axes: [pvary_p.bind(ct, axes=axes)])
def_linear(pvary_p, lambda ct, x, *, axes: [p.sum_over(ct, axes)])
def_linear(p.all_gather_invariant_p, _own_part)
def_linear(p.all_gather_p, _all_gather_transpose)
def_linear(p.reduce_scatter_p, _reduce_scatter_transpose)
def_linear(p.all_to_all_p, _all_to_all_transpose)
def_linear(p.ppermute_p, _ppermute_transpose)
def_linear(p.pbroadcast_p, _pbroadcast_transpose)


def _def_extreme(primitive: Primitive) -> None:
    @def_jvp_of_one(primitive)
    def rule(x, dx, **params) -> tuple[Any, Any]:
        out = primitive.bind(x, **params)
        chosen = shaping.convert(e.eq(x, out), aval_of(out).dtype, False)  # equal ones share
        names, groups = params["axes"], params["axis_index_groups"]
        share = e.div(chosen, p.sum_over(chosen, names, groups))
        return out, p.sum_over(e.mul(dx, share), names, groups)

    primitive.no_transpose("it is not linear")


_def_extreme(p.pmax_p)
_def_extreme(p.pmin_p)


@p.axis_index_p.def_jvp
def _axis_index_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, axis_name) -> tuple[Any, Any]:
    out = p.axis_index_p.bind(axis_name=axis_name)
    return out, Zero(tangent_aval(aval_of(out)))
