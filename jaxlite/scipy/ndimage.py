"""jaxlite.scipy.ndimage: values of an array between its elements."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable
from typing import Any

from jaxlite import lax
from jaxlite import numpy as jnp
from jaxlite.core import dtypes
from jaxlite.core.values import aval_of
from jaxlite.numpy.api import api, as_array, check_arrays

__all__ = ["map_coordinates"]
__dir__ = lambda: __all__


def _mirrored(index, size: int):
    """The index of an array that goes on as its mirror image around its first and its last element."""
    last = size - 1
    return abs((index + last) % (2 * last) - last) if last else index * 0


# How an array continues: the element for an index beyond its ends.
_CONTINUED: dict[str, Callable[[Any, int], Any]] = {
    "constant": lambda index, size: index,
    "nearest": lambda index, size: jnp.clip(index, 0, size - 1),
    "wrap": lambda index, size: index % size,
    "mirror": _mirrored,
    "reflect": lambda index, size: (_mirrored(2 * index + 1, 2 * size + 1) - 1) // 2,
}


def _rounded(x):
    """To the nearest integer, halves away from zero."""
    return lax.round(x) if dtypes.kind(aval_of(x).dtype) == "f" else x


def _neighbors(coordinate, order: int) -> list[tuple[Any, Any]]:
    """The elements around a coordinate, and their weights."""
    if order == 0:
        return [(_rounded(coordinate).astype(dtypes.int32), 1)]
    low = jnp.floor(coordinate)
    weight = coordinate - low
    index = low.astype(dtypes.int32)
    return [(index, 1 - weight), (index + 1, weight)]


@api
def map_coordinates(input, coordinates, order: int, mode: str = "constant", cval=0.0):
    """The values of an array at coordinates between its elements.

    Args:
      input: an array.
      coordinates: for each axis of it, where to look: arrays of one shape.
      order: 0 for the nearest element, 1 for linear interpolation.
      mode: how the array goes on beyond its ends: 'constant' with `cval`, 'nearest' with the last element, 'wrap' from the
        other end, 'mirror' and 'reflect' back to front, without and with the last element again.
    Returns: an array of the coordinates' shape and the input's dtype; integers are rounded.
    Raises: ValueError if there are more or fewer coordinates than axes; NotImplementedError for other orders and modes.

    >>> import jaxlite.numpy as jnp
    >>> from jaxlite.scipy import ndimage
    >>> print(ndimage.map_coordinates(jnp.array([0.0, 10.0, 20.0]), [jnp.array([0.5, 1.25])], order=1))
    [ 5.  12.5]
    """
    places = [jnp.asarray(each) for each in coordinates]
    check_arrays("map_coordinates", input)
    array = as_array(input)
    shape, dtype = array.shape, array.dtype
    if len(places) != len(shape):
        raise ValueError(f"coordinates must be a sequence of length input.ndim, but {len(places)} != {len(shape)}")
    if mode not in _CONTINUED:
        raise NotImplementedError(f"jaxlite.scipy.ndimage.map_coordinates does not yet support mode {mode}. "
                                  f"Modes are {', '.join(sorted(_CONTINUED))}")
    if order not in (0, 1):
        raise NotImplementedError(f"jaxlite.scipy.ndimage.map_coordinates currently requires order<=1. Got {order!r}")
    cval = lax.convert_element_type(cval, dtype)
    axes = []
    for place, size in zip(places, shape, strict=True):
        found = []
        for index, weight in _neighbors(place, order):
            inside = (index >= 0) & (index < size) if mode == "constant" else None
            found.append((_CONTINUED[mode](index, size), inside, weight))
        axes.append(found)
    total: Any = 0
    for corner in itertools.product(*axes):
        value = array[tuple(index for index, _, _ in corner)]
        for _, inside, _ in corner:
            if inside is not None:
                value = jnp.where(inside, value, cval)
        total = total + functools.reduce(operator.mul, (weight for _, _, weight in corner), value)
    return (_rounded(total) if dtypes.kind(dtype) in "iu" else total).astype(dtype)
