"""Derivative and batching rules of sorting: tangents are permuted like their values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxlite.core.axes import other_axes
from jaxlite.core.primitive import Primitive
from jaxlite.core.values import aval_of
from jaxlite.lax import shaping
from jaxlite.lax.gather_scatter import GatherDimensionNumbers, gather
from jaxlite.lax.reductions_rules import shifted
from jaxlite.lax.sorting import approx_top_k_p, sort_p, top_k_p
from jaxlite.traces.batching import Axis, bring, def_batching_of_one
from jaxlite.traces.jvp import Zero, def_jvp_of_one, zero_for


def _taken(x, indices, axis: int):
    """The elements of x at positions along an axis. No position comes twice on a line."""
    if 0 in aval_of(x).shape:  # no slice fits
        return shaping.full(aval_of(indices).shape[:-1], 0, aval_of(x).dtype)
    rank = aval_of(x).ndim
    others = tuple(other_axes(rank, (axis,)))
    numbers = GatherDimensionNumbers(offset_dims=(), collapsed_slice_dims=(axis,), start_index_map=(axis,),
                                     operand_batching_dims=others, start_indices_batching_dims=others)
    return gather(x, indices, numbers, (1,) * rank, unique_indices=True)


def _as_positions(indices):
    return shaping.expand_dims(indices, (aval_of(indices).ndim,))


@sort_p.def_jvp
def _sort_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, dimension: int, **params) -> tuple[Any, Any]:
    if all(type(g) is Zero for g in tangents):
        outs = sort_p.bind(*primals, dimension=dimension, **params)
        return outs, [zero_for(out) for out in outs]
    shape = aval_of(primals[0]).shape
    order = shaping.broadcasted_iota(np.uint32, shape, dimension)
    *outs, order = sort_p.bind(*primals, order, dimension=dimension, **params)
    positions = _as_positions(order)
    return outs, [zero_for(out) if type(g) is Zero else _taken(g, positions, dimension)
                  for g, out in zip(tangents, outs, strict=True)]


@sort_p.def_batching
def _sort_batch(axis: Axis, args: Sequence[Any], dims: Sequence[int | None], *, dimension: int,
                **params) -> tuple[list[Any], list[int]]:
    first = next(dim for dim in dims if dim is not None)
    args = [bring(arg, dim, axis.size, first) for arg, dim in zip(args, dims, strict=True)]
    return sort_p.bind(*args, dimension=shifted(dimension, first), **params), [first] * len(args)


def _def_top(primitive: Primitive, parameter: str) -> None:
    """Set the rules of a primitive that gives values and where they are along an axis."""

    @def_jvp_of_one(primitive)
    def jvp(x, g, **params) -> tuple[Any, Any]:
        values, indices = primitive.bind(x, **params)
        g = _taken(g, _as_positions(indices), params[parameter] % aval_of(x).ndim)
        return [values, indices], [g, zero_for(indices)]

    @def_batching_of_one(primitive)
    def batch(_: Axis, x, dim: int, **params) -> tuple[Any, Any]:
        params[parameter] = shifted(params[parameter] % (aval_of(x).ndim - 1), dim)
        return primitive.bind(x, **params), [dim, dim]


_def_top(top_k_p, "axis")
_def_top(approx_top_k_p, "reduction_dimension")
