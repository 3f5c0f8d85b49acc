"""Derivative and batching rules of static and dynamic slices.

A batch of positions gives a gather or a scatter; one position for the whole batch remains a slice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxlite.core.aval import Ints, dual
from jaxlite.core.symbolic import largest
from jaxlite.core.values import aval_of
from jaxlite.lax import gather_scatter as gs
from jaxlite.lax import shaping, slicing
from jaxlite.lax.elementwise_rules import const
from jaxlite.lax.gather_scatter_rules import batch_gather, batch_scatter, zeros
from jaxlite.lax.shaping_rules import Dims, insert
from jaxlite.traces.batching import Axis, bring, def_batching_of_one
from jaxlite.traces.jvp import Zero, def_linear, instantiate, zero_for
from jaxlite.traces.transpose import is_linear

# --- static positions --------------------------------------------------------------------------------


def _slice_transpose(ct, x, *, start_indices: Ints, limit_indices: Ints, strides: Ints | None) -> list[Any]:
    config = []
    steps = strides or (1,) * len(start_indices)
    for size, cut, start, step in zip(x.aval.shape, aval_of(ct).shape, start_indices, steps, strict=True):
        covered = start + largest(0, (cut - 1) * step + 1)
        config.append((start, size - covered, step - 1))
    return [shaping.pad(ct, const(0, ct, strong=True), config)]


def_linear(slicing.slice_p, _slice_transpose)


@def_batching_of_one(slicing.slice_p)
def _slice_batch(axis: Axis, x, d: int, *, start_indices: Ints,
                 limit_indices: Ints, strides: Ints | None) -> tuple[Any, int]:
    return slicing.slice(x, insert(start_indices, d, 0), insert(limit_indices, d, axis.size),
                         None if strides is None else insert(strides, d, 1)), d


# --- computed positions ------------------------------------------------------------------------------


@slicing.dynamic_slice_p.def_jvp
def _dynamic_slice_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, slice_sizes: Ints,
                       ) -> tuple[Any, Any]:
    (x, *starts), (g, *_) = primals, tangents
    out = slicing.dynamic_slice_p.bind(x, *starts, slice_sizes=slice_sizes)
    if type(g) is Zero:
        return out, zero_for(out)
    return out, slicing.dynamic_slice_p.bind(g, *starts, slice_sizes=slice_sizes)


@slicing.dynamic_slice_p.def_transpose
def _dynamic_slice_transpose(ct, x, *starts, slice_sizes: Ints) -> list[Any]:
    return [slicing.dynamic_update_slice_p.bind(zeros(dual(x.aval)), ct, *starts), *[None] * len(starts)]


def _origin(starts: Sequence[Any]):
    """Position 0, in the integer type of the others."""
    return const(0, starts[0]) if starts else np.int32(0)


def _vectors(axis: Axis, starts: Sequence[Any], dims: Dims):
    """Scalar positions of a batch, as the index array of a gather."""
    columns = [shaping.broadcast_in_dim(start, (axis.size, 1), () if dim is None else (0,))
               for start, dim in zip(starts, dims, strict=True)]
    return shaping.concatenate(columns, 1)


@slicing.dynamic_slice_p.def_batching
def _dynamic_slice_batch(axis: Axis, args: Sequence[Any], dims: Dims, *, slice_sizes: Ints,
                         ) -> tuple[Any, int]:
    (x, *starts), (d, *start_dims) = args, dims
    if d is not None and all(dim is None for dim in start_dims):
        starts = insert(starts, d, _origin(starts))  # type: ignore[assignment]
        return slicing.dynamic_slice_p.bind(x, *starts, slice_sizes=insert(slice_sizes, d, axis.size)), d
    every = tuple(range(len(slice_sizes)))
    return batch_gather(axis, (x, _vectors(axis, starts, start_dims)), (d, 0), slice_sizes=slice_sizes,
                        dimension_numbers=gs.GatherDimensionNumbers(every, (), every), unique_indices=True,
                        indices_are_sorted=True, mode=gs.GatherScatterMode.CLIP, fill_value=None)


@slicing.dynamic_update_slice_p.def_jvp
def _dynamic_update_slice_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    (x, update, *starts), (g, g_update, *_) = primals, tangents
    out = slicing.dynamic_update_slice_p.bind(x, update, *starts)
    if type(g) is Zero and type(g_update) is Zero:
        return out, zero_for(out)
    return out, slicing.dynamic_update_slice_p.bind(instantiate(g), instantiate(g_update), *starts)


@slicing.dynamic_update_slice_p.def_transpose
def _dynamic_update_slice_transpose(ct, x, update, *starts) -> list[Any]:
    shape = (update.aval if is_linear(update) else aval_of(update)).shape
    ct_x = ct_update = None
    if is_linear(x):
        ct_x = slicing.dynamic_update_slice_p.bind(ct, shaping.full(shape, 0, aval_of(ct).dtype), *starts)
    if is_linear(update):
        ct_update = slicing.dynamic_slice_p.bind(ct, *starts, slice_sizes=shape)
    return [ct_x, ct_update, *[None] * len(starts)]


@slicing.dynamic_update_slice_p.def_batching
def _dynamic_update_slice_batch(axis: Axis, args: Sequence[Any], dims: Dims) -> tuple[Any, int]:
    (x, update, *starts), (d, update_dim, *start_dims) = args, dims
    if all(dim is None for dim in start_dims):
        target = d if d is not None else update_dim
        assert target is not None
        x, update = bring(x, d, axis.size, target), bring(update, update_dim, axis.size, target)
        out = slicing.dynamic_update_slice_p.bind(x, update, *insert(starts, target, _origin(starts)))
        return shaping.convert(out, None, aval_of(x).weak_type), target  # as the scatter below, and in JAX
    every = tuple(range(len(starts)))
    return batch_scatter(gs.scatter_p, axis, (x, _vectors(axis, starts, start_dims), update), (d, 0, update_dim),
                         dimension_numbers=gs.ScatterDimensionNumbers(every, (), every), indices_are_sorted=True,
                         unique_indices=True, mode=gs.GatherScatterMode.CLIP, update_jaxpr=None, update_consts=())
