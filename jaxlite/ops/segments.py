"""Reductions over segments: elements are combined into the place that an array of ids says."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from jaxlite import numpy as jnp
from jaxlite.core import dtypes
from jaxlite.core.errors import ConcretizationTypeError
from jaxlite.core.filtering import boundary
from jaxlite.core.symbolic import as_size
from jaxlite.core.tracing import Tracer
from jaxlite.numpy.api import as_arrays
from jaxlite.numpy.reductions import _highest, _lowest

# The value of empty segments, the update of `x.at[...]`, and the function that combines buckets.
_KINDS: dict[str, tuple[Callable[[Any], Any], str, Callable[..., Any]]] = {
    "segment_sum": (lambda dtype: 0, "add", jnp.sum), "segment_prod": (lambda dtype: 1, "multiply", jnp.prod),
    "segment_max": (_lowest, "max", jnp.max), "segment_min": (_highest, "min", jnp.min),
}  # fmt: skip


def _segments(name: str, data, segment_ids, num_segments, indices_are_sorted, unique_indices, bucket_size, mode, out_sharding):
    identity, update, combine = _KINDS[name]
    data, segment_ids = as_arrays(name, data, segment_ids)
    if dtypes.kind(segment_ids.dtype) not in "iu":
        raise TypeError(f"{name}: segment_ids must be integers, got {segment_ids.dtype}")
    if num_segments is None:
        if isinstance(segment_ids, Tracer):
            raise ConcretizationTypeError(segment_ids, f"{name}: give num_segments, as it decides the shape of the result")
        num_segments = int(jnp.max(segment_ids) + 1) if segment_ids.size else 0  # the largest index wraps, as integers do
    num_segments = as_size(num_segments)
    if num_segments < 0:
        raise ValueError(f"{name}: num_segments must not be negative, got {num_segments}")
    count = segment_ids.shape[0] if segment_ids.ndim else 1
    size = count if bucket_size is None else operator.index(bucket_size)
    if bucket_size is not None and size < 1:
        raise ValueError(f"{name}: bucket_size must be positive, got {bucket_size}")
    if not data.ndim:  # one number for all elements
        data = jnp.broadcast_to(data, segment_ids.shape)
    empty = jnp.full((num_segments, *data.shape[segment_ids.ndim:]), identity(data.dtype), data.dtype)
    if num_segments == 0:
        return empty

    def scattered(part: slice):
        return getattr(empty.at[segment_ids[part]], update)(
            data[part], indices_are_sorted=indices_are_sorted, unique_indices=unique_indices, mode=mode,
            out_sharding=out_sharding, wrap_negative_indices=False)

    if size >= count:
        return scattered(slice(None) if segment_ids.ndim else ...)  # type: ignore[arg-type]
    return combine(jnp.stack([scattered(slice(start, start + size)) for start in range(0, count, size)]), axis=0)


@boundary
def segment_sum(data, segment_ids, num_segments: int | None = None, indices_are_sorted: bool = False,
                unique_indices: bool = False, bucket_size: int | None = None, mode=None, out_sharding=None):
    """The sum of the elements of each segment; 0 for empty ones.

    Args:
      data: an array; its leading axis is summed.
      segment_ids: for each element its segment, integers. Elements of segments that do not exist are left out.
      num_segments: static; by default the greatest id plus 1, which has to be concrete.
      indices_are_sorted, unique_indices: promises about the ids.
      bucket_size: how many elements are summed in one go, before the sums are added: more exact for long segments.
      mode: what happens to ids out of bounds, as in `x.at[...]`; they are dropped by default.

    >>> import jaxlite, jaxlite.numpy as jnp
    >>> jaxlite.ops.segment_sum(jnp.arange(5), jnp.array([0, 0, 1, 1, 2]))
    Array([1, 5, 4], dtype=int32)
    """
    return _segments("segment_sum", data, segment_ids, num_segments, indices_are_sorted, unique_indices, bucket_size, mode,
                     out_sharding)


@boundary
def segment_prod(data, segment_ids, num_segments: int | None = None, indices_are_sorted: bool = False,
                 unique_indices: bool = False, bucket_size: int | None = None, mode=None, out_sharding=None):
    """The product of the elements of each segment, 1 for empty ones; arguments as in `segment_sum`."""
    return _segments("segment_prod", data, segment_ids, num_segments, indices_are_sorted, unique_indices, bucket_size, mode,
                     out_sharding)


@boundary
def segment_max(data, segment_ids, num_segments: int | None = None, indices_are_sorted: bool = False,
                unique_indices: bool = False, bucket_size: int | None = None, mode=None, out_sharding=None):
    """The greatest element of each segment, the least value of the dtype for empty ones; arguments as in `segment_sum`."""
    return _segments("segment_max", data, segment_ids, num_segments, indices_are_sorted, unique_indices, bucket_size, mode,
                     out_sharding)


@boundary
def segment_min(data, segment_ids, num_segments: int | None = None, indices_are_sorted: bool = False,
                unique_indices: bool = False, bucket_size: int | None = None, mode=None, out_sharding=None):
    """The least element of each segment, the greatest value of the dtype for empty ones; arguments as in `segment_sum`."""
    return _segments("segment_min", data, segment_ids, num_segments, indices_are_sorted, unique_indices, bucket_size, mode,
                     out_sharding)
