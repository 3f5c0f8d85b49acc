"""Bits packed into bytes, and unpacked."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from jaxlite import lax
from jaxlite.core import dtypes
from jaxlite.core.axes import with_sizes
from jaxlite.core.values import aval_of
from jaxlite.lax import shaping
from jaxlite.numpy.api import api, as_arrays


def _places(bitorder: str):
    """By how much each of the eight bits of a byte is shifted, in the order in which they are listed."""
    if bitorder not in ("big", "little"):
        raise ValueError("'order' must be either 'little' or 'big'")
    places = shaping.iota(dtypes.uint8, 8)
    return lax.sub(np.uint8(7), places) if bitorder == "big" else places


def _one_axis(a, axis: int | None) -> tuple[Any, int, int]:
    """The array with an axis in [0, rank), and its rank; flattened for None."""
    if axis is None:
        return shaping.reshape(a, (math.prod(a.shape),)), 0, 1
    rank = a.ndim
    return a, shaping.canonical_axis(axis, rank), rank


@api
def packbits(a, axis: int | None = None, bitorder: str = "big"):
    """Eight booleans to a byte along an axis, filled up with zeros; over all elements, flattened, for None."""
    a = as_arrays("packbits", a)
    if dtypes.kind(a.dtype) not in "biu":
        raise TypeError("Expected an input array of integer or boolean data type")
    weights = _places(bitorder)
    a, axis, rank = _one_axis(a, axis)
    bits = shaping.convert(shaping.convert(a, bool, False), dtypes.uint8, False)
    extent = aval_of(a).shape[axis]
    missing = -extent % 8
    bits = shaping.pad(bits, np.uint8(0), [(0, missing if each == axis else 0, 0) for each in range(rank)])
    sizes = bits.shape
    grouped = shaping.reshape(bits, with_sizes(sizes, axis, sizes[axis] // 8, 8))
    shifts = shaping.broadcast_in_dim(weights, grouped.shape, (axis + 1,))
    return lax.reduce_sum(lax.shift_left(grouped, shifts), (axis + 1,))


@api
def unpackbits(a, axis: int | None = None, count: int | None = None, bitorder: str = "big"):
    """The bits of bytes along an axis; `count` cuts off or fills up with zeros."""
    a = as_arrays("unpackbits", a)
    if a.dtype != dtypes.uint8:
        raise TypeError("Expected an input array of unsigned byte data type")
    places = _places(bitorder)
    a, axis, rank = _one_axis(a, axis)
    sizes = aval_of(a).shape
    wide = shaping.broadcast_in_dim(a, with_sizes(sizes, axis, sizes[axis], 8),
                                    [each + (each > axis) for each in range(rank)])
    masks = lax.shift_left(np.uint8(1), places)  # of a place, not of an element: processors do not shift single bytes
    masks = shaping.broadcast_in_dim(masks, wide.shape, (axis + 1,))
    bits = shaping.convert(lax.ne(wide & masks, shaping.full_like(masks, 0)), dtypes.uint8, False)
    bits = shaping.reshape(bits, with_sizes(sizes, axis, sizes[axis] * 8))
    if count is None:
        return bits
    extent = sizes[axis] * 8
    stop = count if count >= 0 else extent + count
    return shaping.pad(bits, np.uint8(0), [(0, stop - extent if each == axis else 0, 0) for each in range(rank)])
