"""What a BCOO array, a batch of lists of elements, is made of: its kinds of axes, data and indices with batch axes of one size,
and functions of one list over all of the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jaxlite import lax
from jaxlite import numpy as jnp
from jaxlite.transforms.vmap import vmap


def shape_parts(mat: Any) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """The shapes of the batch, sparse and dense axes."""
    split = mat.n_batch + mat.n_sparse
    return mat.shape[:mat.n_batch], mat.shape[mat.n_batch:split], mat.shape[split:]


def is_set(array: Any, n_dense: int) -> Any:
    """Where a dense array is not zero: anywhere in its dense axes."""
    mask = array != 0
    return mask.any(tuple(range(-n_dense, 0))) if n_dense else mask


def full_batch(mat: Any) -> tuple[Any, Any]:
    """Data and indices with every batch axis of its full size."""
    batch, _, dense = shape_parts(mat)
    return (jnp.broadcast_to(mat.data, (*batch, mat.nse, *dense)),
            jnp.broadcast_to(mat.indices, (*batch, mat.nse, mat.n_sparse)))


def common_batch(mat: Any) -> tuple[Any, Any]:
    """Data and indices with batch axes of one size: 1 where all of the batch shares both."""
    data, indices, count = mat.data, mat.indices, mat.n_batch
    batch = lax.broadcast_shapes(data.shape[:count], indices.shape[:count])
    return jnp.broadcast_to(data, (*batch, *data.shape[count:])), jnp.broadcast_to(indices, (*batch, *indices.shape[count:]))


def shared_as(mat: Any, indices):
    """Indices of which the batch shares one copy where it does in an array."""
    for axis, size in enumerate(mat.indices.shape[:mat.n_batch]):
        if size == 1:
            indices = lax.slice_in_dim(indices, 0, 1, axis=axis)
    return indices


def over_batch(function: Callable, count: int) -> Callable:
    for _ in range(count):
        function = vmap(function)
    return function


def columns_of(indices) -> tuple[Any, ...]:
    return tuple(indices[..., axis] for axis in range(indices.shape[-1]))


def past_ends(sizes: Sequence[int], dtype, lead: tuple[int, ...] = ()):
    """The place past the end of each axis, which no element has: dtype[*lead, len(sizes)]."""
    return jnp.stack([jnp.full(lead, size, dtype) for size in sizes], -1) if sizes else jnp.zeros((*lead, 0), dtype)
