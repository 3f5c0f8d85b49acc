"""Arrays that grow and shrink: append, insert, delete, trim_zeros."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from jaxlite import lax
from jaxlite.core import dtypes
from jaxlite.core.filtering import boundary
from jaxlite.core.symbolic import is_symbolic
from jaxlite.core.tracing import Tracer
from jaxlite.core.values import aval_of
from jaxlite.lax import shaping
from jaxlite.numpy import joining, manipulation
from jaxlite.numpy.api import api, as_array, canonical_axes, check_arrays, scalar


@api
def append(arr, values, axis: int | None = None):
    """An array with values joined at the end of an axis; of all elements, flattened, for None."""
    check_arrays("append", arr, values)
    if axis is None:
        return joining.concatenate([manipulation.ravel(arr), manipulation.ravel(values)], 0)
    return joining.concatenate([as_array(arr), as_array(values)], axis)


def _positions(name: str, obj, extent: int) -> np.ndarray:
    """Concrete positions in an axis from an int, a slice, or an array of ints or booleans."""
    if isinstance(obj, slice):
        return np.arange(extent)[obj]
    found = manipulation.concrete(name, "obj", obj)
    if found.dtype == bool:
        if found.shape != (extent,):
            raise ValueError(f"{name}: a boolean obj must have one entry for each of the {extent} elements")
        return np.flatnonzero(found)
    if found.size == 0 and (found.dtype.kind in "iu" or name == "insert"):
        return found.astype(np.int64).reshape(-1)
    if found.dtype.kind not in "iu":
        aval_of(found)  # a TypeError for what is no number
        raise ValueError(f"jnp.{name}(arr, obj): got obj.dtype={found.dtype}; must be integer or bool, or obj a slice.")
    return found


@boundary
def delete(arr, obj, axis: int | None = None, *, assume_unique_indices: bool = False):
    """An array without some elements of an axis; of all elements, flattened, for None.

    Args:
      obj: what to remove: an int, a slice, or an array of ints or booleans; concrete, unless it is a scalar or
        `assume_unique_indices` promises different integers.
    """
    check_arrays("delete", arr, 0 if isinstance(obj, slice) else obj)
    if axis is None:
        arr, axis = manipulation.ravel(arr), 0
    arr = as_array(arr)
    axis = shaping.canonical_axis(axis, arr.ndim)
    extent = arr.shape[axis]
    if is_symbolic(extent) and isinstance(obj, int):
        return _delete_traced(arr, as_array(obj), axis=axis)
    if isinstance(obj, Tracer) and (not obj.ndim or assume_unique_indices):
        return _delete_traced(arr, obj, axis=axis)
    positions = _positions("delete", obj, extent)
    if positions.size and (positions.min() < -extent or positions.max() >= extent):
        raise np.exceptions.AxisError(f"delete: an index is out of bounds for axis {axis} of size {extent}")
    kept = np.delete(np.arange(extent, dtype=np.int32), positions)
    runs = np.split(kept, np.flatnonzero(np.diff(kept) > 1) + 1)
    # Outside of a trace each place would be a program of its own; more parts than two take longer to join than to gather.
    is_traced = isinstance(arr, Tracer)
    if is_traced and len(kept) and len(runs) <= 2:
        return joining.concatenate([lax.slice_in_dim(arr, int(run[0]), int(run[-1]) + 1, axis=axis) for run in runs], axis)
    return manipulation.take_slices(arr, kept, axis=axis)


@api
def _delete_traced(arr, obj, axis: int):
    extent, count = arr.shape[axis], aval_of(obj).size
    gone = _wrapped(obj, extent)
    # The k-th kept element comes after as many removed ones as have (position - rank) <= k.
    offsets = lax.sort(gone) - shaping.iota(dtypes.int32, count)
    shift = manipulation.passed_by(offsets, extent - count)
    return manipulation.take_slices(arr, shaping.iota(dtypes.int32, extent - count) + shift, axis=axis)


def _wrapped(positions, extent: int):
    """Positions in an axis as a vector, negative ones counted from the end, those out of range at the ends."""
    found = shaping.convert(positions, dtypes.int32, False)
    found = shaping.reshape(found, (aval_of(positions).size,))
    size = scalar(extent, dtypes.int32)
    found = lax.select(found < 0, found + size, found)
    return lax.clamp(np.int32(0), found, size)


@boundary
def insert(arr, obj, values, axis: int | None = None):
    """An array with values put in before some elements of an axis; of all elements, flattened, for None.

    Args:
      obj: before which elements: an int or one element (all values go there), a slice, or an array of ints or booleans;
        positions out of range are the ends. Ints may be traced.
      values: converted to the array's dtype, and broadcast.
    """
    check_arrays("insert", arr, 0 if isinstance(obj, slice) else obj, values)
    if axis is None:
        arr, axis = manipulation.ravel(arr), 0
    axis = shaping.canonical_axis(axis, aval_of(arr).ndim)
    if type(obj) is int:
        aval_of(obj)  # an OverflowError, if no index holds it
    if not isinstance(obj, Tracer) or obj.dtype == dtypes.bool_:
        obj = np.asarray(np.clip(_positions("insert", obj, aval_of(arr).shape[axis]), -(2**31), 2**31 - 1), np.int32)
    if aval_of(obj).ndim > 1:
        raise ValueError(f"jnp.insert(): obj must be a slice, a one-dimensional array, or a scalar; got {obj}")
    if isinstance(obj, np.ndarray) and obj.size == 1 and isinstance(arr, Tracer) and not is_symbolic(arr.shape[axis]):
        return _insert_at(arr, obj, values, axis)
    return _insert(arr, obj, values, axis=axis)


def _insert_at(arr, obj: np.ndarray, values, axis: int):
    """All values at one place that is known."""
    extent = arr.shape[axis]
    place = int(obj.item())
    place = min(max(place + extent if place < 0 else place, 0), extent)
    parts = [lax.slice_in_dim(arr, 0, place, axis=axis), _to_insert(arr, obj, values, axis),
             lax.slice_in_dim(arr, place, extent, axis=axis)]
    return joining.concatenate(parts, axis)


def _to_insert(arr, obj, values, axis: int):
    """The values in the dtype and the shape that they have in the array: one for each place, any number for a single one."""
    values = shaping.of_user(values, arr.dtype, arr.weak_type)
    if values.ndim < arr.ndim:
        values = shaping.broadcast_to_rank(values, arr.ndim)
    if not aval_of(obj).ndim:
        values = manipulation.moveaxis(values, 0, axis)
    sizes = list(arr.shape)
    sizes[axis] = values.shape[axis] if _is_one(obj) else aval_of(obj).size
    return manipulation.broadcast_to(values, tuple(sizes))


def _is_one(obj) -> bool:
    return aval_of(obj).shape in ((), (1,))


@api
def _insert(arr, obj, values, axis: int):
    arr = as_array(arr)
    extent = arr.shape[axis]
    values = _to_insert(arr, obj, values, axis)
    count = values.shape[axis]
    places = _wrapped(obj, extent)
    if _is_one(obj):
        places = manipulation.broadcast_to(places, (count,))
    # One gather from the concatenation of both arrays. Values at one place keep their order.
    places, order = lax.sort((places, shaping.iota(dtypes.int32, count)), num_keys=1)
    is_new = manipulation.counts_of(places + shaping.iota(dtypes.int32, count), extent + count)
    passed = lax.cumsum(is_new)
    new = manipulation.take_slices(order, passed - 1, axis=0) + scalar(extent, dtypes.int32) if count else is_new
    source = lax.select(lax.gt(is_new, np.int32(0)), new, shaping.iota(dtypes.int32, extent + count) - passed)
    return manipulation.take_slices(shaping.concatenate([arr, values], axis), source, axis=axis)


@boundary
def trim_zeros(filt, trim: str = "fb", axis: int | Sequence[int] | None = None):
    """Without the zeros at the front ('f'), the back ('b') or both of a concrete array."""
    value = manipulation.concrete("trim_zeros", "filt", filt)
    nonzero = np.argwhere(value)
    low, high = (nonzero.min(0), nonzero.max(0) + 1) if len(nonzero) else (np.array(value.shape), np.array(value.shape))
    if not len(nonzero):
        low, high = np.zeros_like(low), np.zeros_like(high)
    axes = canonical_axes(axis, value.ndim)
    box = tuple(slice(int(low[each]) if "f" in trim.lower() else 0, int(high[each]) if "b" in trim.lower() else extent)
                if each in axes else slice(None) for each, extent in enumerate(value.shape))
    return as_array(filt)[box] if value.ndim else as_array(filt)
