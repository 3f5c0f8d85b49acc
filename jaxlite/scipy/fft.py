"""jaxlite.scipy.fft: discrete cosine transforms of the types 1 to 4.

`norm` scales: "backward" (the default) divides the inverse, "forward" the transform, by the product of both; "ortho" divides
both by its root, and makes the transform an orthogonal matrix. How a cosine transform is taken from a Fourier transform:
J. Makhoul, "A fast cosine transform in one and two dimensions", 1980.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence

import numpy as np

from jaxlite import lax
from jaxlite import numpy as jnp
from jaxlite.core import dtypes
from jaxlite.core.values import aval_of
from jaxlite.lax import shaping
from jaxlite.numpy.api import (
    api,
    as_array,
    broadcasts_inside,
    canonical_axes,
    check_arrays,
    each_axis,
    is_complex,
    promote_dtypes_inexact,
    promotes_inside,
)

__all__ = ["dct", "dctn", "idct", "idctn"]
__dir__ = lambda: __all__

_INVERSE = {1: 1, 2: 3, 3: 2, 4: 4}


def _turned(x, turns: np.ndarray):
    """Times exp(-2 pi i turns), along the last axis."""
    return x * jnp.asarray(np.exp(-2j * np.pi * turns), dtypes.to_complex_dtype(aval_of(x).dtype))


def _unscaled(x, type: int):
    """2 sums of x[n] cos(...) along the last axis, real."""
    size = x.shape[-1]
    count = np.arange(size)
    if type == 1:  # the Fourier transform of x and its mirror image
        return jnp.fft.rfft(jnp.concatenate([x, x[..., -2:0:-1]], -1)).real
    if type == 2:  # that of the even elements, then the odd ones back to front
        folded = jnp.concatenate([x[..., ::2], x[..., 1::2][..., ::-1]], -1)
        return 2 * _turned(jnp.fft.fft(folded), count / (4 * size)).real
    if type == 3:  # the same, backwards
        doubled = jnp.concatenate([x[..., :1], 2 * x[..., 1:]], -1)
        folded = jnp.fft.fft(_turned(doubled, count / (4 * size)), norm="backward").real
        return _unfolded(folded)
    return 2 * _turned(jnp.fft.fft(_turned(x, count / (4 * size)), 2 * size)[..., :size], (2 * count + 1) / (8 * size)).real


def _unfolded(x):
    """The first half in the even places, the second one back to front in the odd ones."""
    size = aval_of(x).shape[-1]
    order = np.empty(size, int)
    order[::2] = np.arange((size + 1) // 2)
    order[1::2] = np.arange(size - 1, (size + 1) // 2 - 1, -1)
    return x[..., order]


def _along_last(x, type: int, norm: str | None, inverse: bool):
    if is_complex(x):
        return lax.complex(_along_last(x.real, type, norm, inverse), _along_last(x.imag, type, norm, inverse))
    size = x.shape[-1]
    both = 2 * (size - 1 if type == 1 else size)  # what a transform and its inverse multiply with
    type = _INVERSE[type] if inverse else type
    dtype = x.dtype
    if norm == "ortho":
        ends = np.ones(size)
        ends[[0, -1] if type == 1 else 0] = math.sqrt(2)
        x = x * jnp.asarray(ends, dtype) if type in (1, 3) else x
        x = _unscaled(x, type) / math.sqrt(both)
        return x / jnp.asarray(ends, dtype) if type in (1, 2) else x
    x = _unscaled(x, type)
    return x / both if inverse == (norm != "forward") else x


def _transform(name: str, x, type: int, sizes, axes, norm: str | None, inverse: bool):
    check_arrays(name, x)
    if type not in _INVERSE:
        raise ValueError(f"{name}: type must be 1, 2, 3 or 4, got {type!r}")
    if norm not in (None, "backward", "ortho", "forward"):
        raise ValueError(f"{name}: norm must be None, 'backward', 'ortho' or 'forward', got {norm!r}")
    x = as_array(x)
    shape = x.shape
    sizes = None if sizes is None else [operator.index(size) for size in each_axis(sizes)]
    if axes is None and sizes is not None:
        axes = range(len(shape) - len(sizes), len(shape))
    axes = canonical_axes(None if axes is None else tuple(each_axis(axes)), len(shape))
    sizes = [shape[axis] for axis in axes] if sizes is None else sizes
    if len(sizes) != len(axes):
        raise ValueError(f"{name}: s and axes must have the same length, got {sizes} and {axes}")
    if axes:  # else it is the array itself
        (x,) = promote_dtypes_inexact(x)
        if x.dtype.itemsize < 4:
            x = x.astype(dtypes.float32)
    for axis, size in zip(axes, sizes, strict=True):
        if size < (2 if type == 1 else 1):
            raise ValueError(f"{name}: axis {axis} has {size} elements; a transform of type {type} needs at least "
                             f"{2 if type == 1 else 1}")
        x = jnp.moveaxis(_along_last(jnp.moveaxis(shaping.fit(x, [size], [axis]), axis, -1), type, norm, inverse), -1, axis)
    return x


@api
@broadcasts_inside
def dct(x, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None):
    """The cosine transform along an axis.

    Args:
      x: an array; integers and floating-point types of less than 32 bits are taken as float32, complex numbers part by part.
      type: 1, 2, 3 or 4.
      n: the length of the axis, which is cut off or filled up with zeros.
      norm: None, 'backward', 'ortho' or 'forward'.
    Raises: ValueError for another type or norm, or an axis that is too short.

    >>> import jaxlite.numpy as jnp
    >>> from jaxlite.scipy import fft
    >>> print(fft.dct(jnp.array([1.0, 1.0])).round(3))
    [4. 0.]
    """
    return _transform("dct", x, type, None if n is None else (n,), (axis,), norm, False)


@api
@broadcasts_inside
@promotes_inside
def idct(x, type: int = 2, n: int | None = None, axis: int = -1, norm: str | None = None):
    """The inverse of `dct`, along an axis."""
    return _transform("idct", x, type, None if n is None else (n,), (axis,), norm, True)


@api
@broadcasts_inside
def dctn(x, type: int = 2, s: int | Sequence[int] | None = None, axes: int | Sequence[int] | None = None,
         norm: str | None = None):
    """The cosine transform along several axes, by default all; `s` are their lengths. Arguments as in `dct`."""
    return _transform("dctn", x, type, s, axes, norm, False)


@api
@broadcasts_inside
@promotes_inside
def idctn(x, type: int = 2, s: int | Sequence[int] | None = None, axes: int | Sequence[int] | None = None,
          norm: str | None = None):
    """The inverse of `dctn`."""
    return _transform("idctn", x, type, s, axes, norm, True)
