"""Joining arrays: concatenate, stack and their relatives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxlite.core import dtypes
from jaxlite.core.aval import Ints
from jaxlite.core.axes import with_sizes
from jaxlite.core.filtering import boundary
from jaxlite.core.tracing import Tracer
from jaxlite.core.values import ArrayImpl, aval_of
from jaxlite.lax import shaping
from jaxlite.numpy import manipulation
from jaxlite.numpy.api import api, as_array, check_arrays, promote_dtypes, refuse_out


def promoted(parts: Sequence[Any], dtype=None) -> list[Any]:
    """All parts in one dtype: the one given, or that of promotion."""
    if dtype is None:
        return promote_dtypes(*map(as_array, parts))
    arrays = [as_array(part) for part in parts]
    for array in arrays:
        shaping.warn_of_lost_parts(aval_of(array).dtype, dtype)
    return [shaping.convert(array, dtype, False) for array in arrays]


def _parts(name: str, arrays) -> tuple[Any, ...]:
    if isinstance(arrays, (ArrayImpl, Tracer)) or hasattr(arrays, "ndim"):
        if not arrays.ndim:
            raise (ValueError if name == "concatenate" else TypeError)(f"Need at least one array to {name}. Got a scalar")
        parts = tuple(arrays[index] for index in range(len(arrays)))
    else:
        parts = tuple(arrays)
        check_arrays(name, *parts)
    if not parts:
        raise ValueError(f"Need at least one array to {'stack' if name == 'stack' else 'concatenate'}.")
    return parts


def _rows_along(a, axis: int):
    """The array with its first axis at the place of another."""
    return shaping.transpose(a, (*range(1, axis + 1), 0, *range(axis + 1, aval_of(a).ndim))) if axis else a


_ARRAYS = ArrayImpl, Tracer, np.ndarray
_COLUMNS = (0, 1), (1,)  # as in AXES_ADDED: vectors become columns


def _join(name: str, arrays, axis: int | None, dtype, added: Sequence[Ints] = ()):
    """Join the arrays of a sequence, or the rows of one array, along an axis, after `with_axes(_, added)` of each."""
    dtype = dtypes.requested_dtype(dtype, name)
    if isinstance(arrays, _ARRAYS) and arrays.ndim and arrays.shape[0] != 0:
        return _join_rows(arrays, axis=axis, dtype=dtype, added=added)
    return _join_parts(*_parts(name, arrays), axis=axis, dtype=dtype, added=added)


@api
def _join_parts(*parts, axis: int | None, dtype: Any, added: Sequence[Ints]):
    values = promoted(parts, dtype)
    if axis is None:
        values, axis = [shaping.reshape(value, (aval_of(value).size,)) for value in values], 0
    values = [manipulation.with_axes(value, added) for value in values]
    return shaping.concatenate(values, _place(axis, aval_of(values[0]).ndim, added))


@api
def _join_rows(a, *, axis: int | None, dtype: Any, added: Sequence[Ints]):
    """The array is turned, not taken apart."""
    (a,) = promoted((a,), dtype)
    if axis is None:
        return shaping.reshape(a, (a.size,))
    a = manipulation.with_axes(a, added, rows=True)
    count, *rest = a.shape
    axis = _place(axis, len(rest), added)
    return shaping.reshape(_rows_along(a, axis), with_sizes(rest, axis, count * rest[axis]))


def _place(axis: int, rank: int, added: Sequence[Ints]) -> int:
    """The axis to join along; vectors have only one."""
    if not rank:
        raise ValueError("Zero-dimensional arrays cannot be concatenated.")
    return min(axis, rank - 1) if added else shaping.canonical_axis(axis, rank)


@boundary
def concatenate(arrays, axis: int | None = 0, dtype=None):
    """Arrays joined along an existing axis; flattened and joined for None.

    Args:
      arrays: a sequence of arrays whose other sizes are equal, or an array of them along axis 0.
      dtype: the result's; default: that of promotion.
    Raises: TypeError if the shapes do not fit, ValueError for nothing or scalars.
    """
    return _join("concatenate", arrays, axis, dtype)


@boundary
def concat(arrays, /, *, axis: int | None = 0):
    """`concatenate` under the array API's name. TypeError for one array without axes."""
    if getattr(arrays, "ndim", None) == 0:
        raise TypeError("Need at least one array to concat. Got a scalar")
    return concatenate(arrays, axis)


@api
def _stack(*parts, axis: int, dtype: Any):
    values = promoted(parts, dtype)
    first = aval_of(values[0]).shape
    if any(aval_of(value).shape != first for value in values):
        raise ValueError("All input arrays must have the same shape, got "
                         f"{', '.join(str(aval_of(value).shape) for value in values)}.")
    axis = shaping.canonical_axis(axis, len(first) + 1)
    return shaping.stack(values, axis)


@api
def _stack_rows(a, *, axis: int, dtype: Any):
    (a,) = promoted((a,), dtype)
    return _rows_along(a, shaping.canonical_axis(axis, a.ndim))


@boundary
def stack(arrays, axis: int = 0, out: None = None, dtype=None):
    """Arrays of one shape joined along a new axis."""
    refuse_out("stack", out)
    if isinstance(arrays, _ARRAYS) and arrays.ndim and arrays.shape[0] != 0:
        return _stack_rows(arrays, axis=axis, dtype=dtypes.requested_dtype(dtype, "stack"))
    return _stack(*_parts("stack", arrays), axis=axis, dtype=dtypes.requested_dtype(dtype, "stack"))


@boundary
def vstack(tup, dtype=None):
    """Rows on top of each other: joined along axis 0; vectors are rows."""
    return _join("vstack", tup, 0, dtype, manipulation.AXES_ADDED[2])


@boundary
def hstack(tup, dtype=None):
    """Side by side: joined along axis 1; vectors along their only axis."""
    return _join("hstack", tup, 1, dtype, manipulation.AXES_ADDED[1])


@boundary
def dstack(tup, dtype=None):
    """In depth: joined along axis 2."""
    return _join("dstack", tup, 2, dtype, manipulation.AXES_ADDED[3])


@boundary
def column_stack(tup):
    """Vectors as the columns of a matrix; matrices are joined as they are."""
    return _join("column_stack", tup, 1, None, _COLUMNS)


@api
def block(arrays):
    """An array from nested lists of blocks: innermost lists are joined along the last axis, and so on."""

    def depth(item) -> int:
        if not isinstance(item, list):
            if isinstance(item, tuple):
                raise ValueError("jnp.block takes lists, not tuples")
            return 0
        if not item:
            raise ValueError("jnp.block: got an empty list")
        depths = {depth(each) for each in item}
        if len(depths) != 1:
            raise ValueError("Mismatched list depths in jaxlite.numpy.block")
        return 1 + depths.pop()

    levels = depth(arrays)

    def rank_of(item) -> int:
        return max(map(rank_of, item)) if isinstance(item, list) else aval_of(item).ndim

    rank = max(levels, rank_of(arrays))

    def join(item, level: int):
        if not isinstance(item, list):
            check_arrays("block", item)
            return shaping.broadcast_to_rank(as_array(item), rank)
        return concatenate([join(each, level + 1) for each in item], axis=rank - levels + level)

    return join(arrays, 0)
