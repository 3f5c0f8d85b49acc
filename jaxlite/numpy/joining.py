"""Joining arrays: concatenate, stack and their relatives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxlite.core import dtypes
from jaxlite.core.filtering import boundary
from jaxlite.core.tracing import Tracer
from jaxlite.core.values import ArrayImpl, aval_of
from jaxlite.lax import shaping
from jaxlite.numpy.api import api, as_array, check_arrays, promote_dtypes


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


def _checked_dtype(dtype, name: str):
    return None if dtype is None else dtypes.check_user_dtype_supported(dtype, name)


@api
def _concatenate(*parts, axis: int | None, dtype: Any):
    values = promoted(parts, dtype)
    if axis is None:
        values = [shaping.reshape(value, (aval_of(value).size,)) for value in values]
        axis = 0
    rank = aval_of(values[0]).ndim
    if not rank:
        raise ValueError("Zero-dimensional arrays cannot be concatenated.")
    axis = shaping.canonical_axis(axis, rank)
    try:
        return shaping.concatenate(values, axis)
    except TypeError as error:
        raise TypeError(f"jnp.concatenate: {error}") from None


@api
def _concatenate_rows(a, *, axis: int | None, dtype: Any, added: tuple[int, ...] = ()):
    """The rows of one array, with axes that are added to each first, joined: it is turned, not taken apart."""
    (a,) = promoted((a,), dtype)
    if axis is None:
        return shaping.reshape(a, (aval_of(a).size,))
    a = shaping.expand_dims(a, [1 + place for place in added])
    shape = aval_of(a).shape
    rest, axis = shape[1:], shaping.canonical_axis(axis, len(shape) - 1)
    return shaping.reshape(_rows_along(a, axis), (*rest[:axis], shape[0] * rest[axis], *rest[axis + 1:]))


def _rows_along(a, axis: int):
    """The array with its first axis at the place of another."""
    return shaping.transpose(a, (*range(1, axis + 1), 0, *range(axis + 1, aval_of(a).ndim))) if axis else a


def _has_rows(arrays, least: int = 2) -> bool:
    return isinstance(arrays, (ArrayImpl, Tracer, np.ndarray)) and arrays.ndim >= least and arrays.shape[0] != 0


@boundary
def concatenate(arrays, axis: int | None = 0, dtype=None):
    """Arrays joined along an existing axis; flattened and joined for None.

    Args:
      arrays: a sequence of arrays whose other sizes are equal, or an array of them along axis 0.
      dtype: the result's; default: that of promotion.
    Raises: TypeError if the shapes do not fit, ValueError for nothing or scalars.
    """
    if _has_rows(arrays):
        return _concatenate_rows(arrays, axis=axis, dtype=_checked_dtype(dtype, "concatenate"))
    return _concatenate(*_parts("concatenate", arrays), axis=axis, dtype=_checked_dtype(dtype, "concatenate"))


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
    return _rows_along(a, shaping.canonical_axis(axis, aval_of(a).ndim))


@boundary
def stack(arrays, axis: int = 0, out: None = None, dtype=None):
    """Arrays of one shape joined along a new axis."""
    if out is not None:
        raise NotImplementedError("The 'out' argument to jnp.stack is not supported.")
    if _has_rows(arrays, 1):
        return _stack_rows(arrays, axis=axis, dtype=_checked_dtype(dtype, "stack"))
    return _stack(*_parts("stack", arrays), axis=axis, dtype=_checked_dtype(dtype, "stack"))


def _added(rank: int, least: int) -> tuple[int, ...]:
    """The axes to add to so many to have at least some: in front, and behind as well to make three of one or two."""
    if least == 3 and rank in (1, 2):
        return (0, 2) if rank == 1 else (2,)
    return tuple(range(least - rank))


@api
def _stack_along(*parts, least: int, axis: int, dtype: Any):
    """Join along an axis after raising each part to at least so many axes."""
    values = [shaping.expand_dims(part, _added(aval_of(part).ndim, least)) for part in promoted(parts, dtype)]
    if least == 1 and aval_of(values[0]).ndim == 1:
        axis = 0
    return shaping.concatenate(values, axis)


@boundary
def vstack(tup, dtype=None):
    """Rows on top of each other: joined along axis 0; vectors are rows."""
    if _has_rows(tup, 1):
        return _concatenate_rows(tup, axis=0, dtype=_checked_dtype(dtype, "vstack"), added=_added(tup.ndim - 1, 2))
    return _stack_along(*_parts("vstack", tup), least=2, axis=0, dtype=_checked_dtype(dtype, "vstack"))


@boundary
def hstack(tup, dtype=None):
    """Side by side: joined along axis 1; vectors along their only axis."""
    if _has_rows(tup):
        return _concatenate_rows(tup, axis=min(1, tup.ndim - 2), dtype=_checked_dtype(dtype, "hstack"))
    return _stack_along(*_parts("hstack", tup), least=1, axis=1, dtype=_checked_dtype(dtype, "hstack"))


@boundary
def dstack(tup, dtype=None):
    """In depth: joined along axis 2."""
    if _has_rows(tup, 1):
        return _concatenate_rows(tup, axis=2, dtype=_checked_dtype(dtype, "dstack"), added=_added(tup.ndim - 1, 3))
    return _stack_along(*_parts("dstack", tup), least=3, axis=2, dtype=_checked_dtype(dtype, "dstack"))


@api
def _column_stack(*parts):
    values = promoted(parts)
    return shaping.concatenate([shaping.expand_dims(value, range(aval_of(value).ndim, 2)) for value in values], 1)


@boundary
def column_stack(tup):
    """Vectors as the columns of a matrix; matrices are joined as they are."""
    if _has_rows(tup, 1):
        return _concatenate_rows(tup, axis=1, dtype=None, added=tuple(range(tup.ndim - 1, 2)))
    return _column_stack(*_parts("column_stack", tup))


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
