"""Resizing arrays.

An axis is resampled by a matrix product: each new element is a weighted mean of the elements around it. Elements are cells:
the first of n begins at 0 and the last ends at n, so the centers of new cells seldom coincide with those of old ones. The
kernels: R. G. Keys, "Cubic convolution interpolation for digital image processing", 1981 (with a = -1/2), and Lanczos'
windowed sinc.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxlite import lax
from jaxlite import numpy as jnp
from jaxlite.core import dtypes
from jaxlite.core.filtering import boundary
from jaxlite.core.symbolic import as_size, is_symbolic
from jaxlite.core.values import aval_of
from jaxlite.numpy.api import api, as_array, broadcasts_inside, canonical_axes, check_arrays, promote_dtypes_inexact


class ResizeMethod(enum.Enum):
    """How the values between elements are found."""

    NEAREST = 0
    LINEAR = 1
    LANCZOS3 = 2
    LANCZOS5 = 3
    CUBIC = 4
    CUBIC_PYTORCH = 5
    AREA = 6

    @staticmethod
    def from_string(name: str) -> ResizeMethod:
        """The method of a name: 'nearest', 'linear', 'cubic', 'lanczos3', 'lanczos5', or a synonym of one of them."""
        if name not in _NAMES:
            raise ValueError(f'Unknown resize method "{name}". Known are {sorted(_NAMES)}')
        return _NAMES[name]


_NAMES = {
    "nearest": ResizeMethod.NEAREST, "lanczos3": ResizeMethod.LANCZOS3, "lanczos5": ResizeMethod.LANCZOS5,
    **dict.fromkeys(("linear", "bilinear", "trilinear", "triangle"), ResizeMethod.LINEAR),
    **dict.fromkeys(("cubic", "bicubic", "tricubic"), ResizeMethod.CUBIC), "area": ResizeMethod.AREA,
    **dict.fromkeys(("cubic-pytorch", "bicubic-pytorch"), ResizeMethod.CUBIC_PYTORCH),
}  # fmt: skip


def _triangle(x):
    return jnp.maximum(0, 1 - x)


def _keys(x, slope: float = -0.5):
    """Cubic convolution, with this slope at 1: R. Keys, 1981."""
    near = ((slope + 2) * x - (slope + 3)) * x * x + 1
    far = slope * (((x - 5) * x + 8) * x - 4)
    return jnp.where(x < 1, near, jnp.where(x < 2, far, 0))


def _lanczos(radius: int) -> Callable[[Any], Any]:
    return lambda x: jnp.where(x < radius, jnp.sinc(x) * jnp.sinc(x / radius), 0)


# The weight of an element at a distance.
_KERNELS: dict[ResizeMethod, Callable[[Any], Any]] = {
    ResizeMethod.LINEAR: _triangle, ResizeMethod.CUBIC: _keys, ResizeMethod.LANCZOS3: _lanczos(3),
    ResizeMethod.LANCZOS5: _lanczos(5), ResizeMethod.CUBIC_PYTORCH: _keys,
}


def _method(method: str | ResizeMethod) -> ResizeMethod:
    return method if isinstance(method, ResizeMethod) else ResizeMethod.from_string(method)


def _weights(size: int, new_size: int, scale, translation, method: ResizeMethod, antialias: bool):
    """(size, new_size): how much of each element is in each new one. Columns sum to one, or zero outside the image."""
    dtype = aval_of(scale).dtype
    center = (jnp.arange(new_size, dtype=dtype) + 0.5 - translation) / scale - 0.5
    distances = abs(center - jnp.arange(size, dtype=dtype)[:, None])
    if method is ResizeMethod.AREA:  # the length that an old cell and a new one share
        weights = jnp.clip((1 + 1 / scale) / 2 - distances, 0, jnp.minimum(1, 1 / scale))
    elif method is ResizeMethod.CUBIC_PYTORCH and not antialias:
        # What is beyond the edges is as they are; the kernel reaches over two elements.
        before, after = (sum(_keys(abs(center - place), -0.75) for place in places)
                         for places in ((-2, -1), (size, size + 1)))
        weights = _keys(distances, -0.75).at[0].add(before).at[-1].add(after)
    else:
        # With antialiasing, the kernel is as wide as a new cell where that is wider than an old one.
        width = jnp.maximum(1 / scale, 1) if antialias else 1
        weights = _KERNELS[method](distances / width)
    total = weights.sum(0)
    usable = (abs(total) > 1000 * dtypes.finfo(np.float32).eps) & (center >= -0.5) & (center <= size - 0.5)
    return jnp.where(usable, weights * (1 / jnp.where(usable, total, 1)), 0)


def _resampled(image, matrices: dict[int, Any], precision):
    """Products along one axis after the other: first those that make the others' smaller, in the order with the fewest
    multiplications."""

    def growth(axis: int) -> float:
        size, new_size = aval_of(matrices[axis]).shape
        return 1 / max(1, size) - 1 / max(1, new_size) if type(size) is type(new_size) is int else 0.0

    for axis in sorted(matrices, key=growth):
        matrix = matrices[axis].astype(aval_of(image).dtype)
        if axis == 0:  # neither the image nor the result is turned
            image = lax.dot_general(matrix, image, (((0,), (0,)), ((), ())), precision=precision)
        else:
            contracted = lax.dot_general(image, matrix, (((axis,), (0,)), ((), ())), precision=precision)
            image = jnp.moveaxis(contracted, -1, axis)
    return image


def _new_shape(image, shape: Sequence[int]) -> tuple[int, ...]:
    shape = (as_size(shape),) if isinstance(shape, (int, np.integer)) else tuple(map(as_size, shape))
    if len(shape) != aval_of(image).ndim:
        raise ValueError(f"shape must have length equal to the number of dimensions of x;  {shape} vs "
                         f"{aval_of(image).shape}")
    if any(size < 0 for size in shape):
        raise ValueError(f"resize: sizes cannot be negative, got {shape}")
    return shape


@api
@broadcasts_inside
def scale_and_translate(image, shape: Sequence[int], spatial_dims: Sequence[int], scale, translation,
                        method: str | ResizeMethod, antialias: bool = True, precision: Any = lax.Precision.HIGHEST):
    """An image scaled, then moved, in a frame of a new shape.

    Args:
      image: an array; integers are taken as floating.
      shape: the shape of the result, of the same rank.
      spatial_dims: the axes that are scaled. The sizes of the others must stay.
      scale, translation: for each of those axes, by how much; they may be traced. What was at x comes to x * scale +
        translation.
      method: 'linear', 'cubic', 'lanczos3' or 'lanczos5'.
      antialias: whether to smooth what gets smaller.
      precision: of the products.
    Returns: an array that is zero outside the image.
    Raises: ValueError for a shape of another rank and the method 'nearest'.
    """
    check_arrays("scale_and_translate", image, scale, translation)
    shape, method = _new_shape(image, shape), _method(method)
    if method is ResizeMethod.NEAREST:
        raise ValueError("Nearest neighbor resampling is not currently supported for scale_and_translate.")
    (image,) = promote_dtypes_inexact(as_array(image))
    axes = canonical_axes(tuple(spatial_dims), len(shape))
    for axis, (size, new_size) in enumerate(zip(image.shape, shape, strict=True)):
        if axis not in axes and size != new_size:
            raise ValueError(f"scale_and_translate: axis {axis} is not among spatial_dims {axes}, so its size must stay "
                             f"{size}, got {new_size}")
    scale, translation = (jnp.asarray(each, _working_dtype(image)) for each in (scale, translation))
    if aval_of(scale).shape != (len(axes),) or aval_of(translation).shape != (len(axes),):
        raise ValueError(f"scale_and_translate: scale and translation must have one number for each of the {len(axes)} "
                         f"spatial axes, got shapes {aval_of(scale).shape} and {aval_of(translation).shape}")
    matrices = {axis: _weights(image.shape[axis], shape[axis], scale[place], translation[place],
                               method, antialias) for place, axis in enumerate(axes)}
    return _resampled(image, matrices, precision)


def _working_dtype(image):
    return dtypes.float64 if aval_of(image).dtype in (dtypes.float64, dtypes.complex128) else dtypes.float32


@boundary
@broadcasts_inside
def resize(image, shape: Sequence[int], method: str | ResizeMethod, antialias: bool = True,
           precision=lax.Precision.HIGHEST):
    """An image in another size. Axes whose size stays are left alone.

    Args:
      image: an array of any rank.
      shape: the new shape, of the same rank.
      method: 'nearest'; 'linear' (also 'bilinear', 'trilinear', 'triangle'); 'cubic' ('bicubic', 'tricubic'); 'lanczos3';
        'lanczos5'; 'area', the mean over what a new cell covers; 'cubic-pytorch' ('bicubic-pytorch'), which without
        antialiasing has the weights and edges of PyTorch; or a `ResizeMethod`.
      antialias: whether to smooth axes that get shorter; 'nearest' never does.
      precision: of the products.
    Returns: for 'nearest' an array of the same dtype, else a floating one.
    Raises: ValueError for a shape of another rank or an unknown method.

    >>> import jaxlite.numpy as jnp
    >>> from jaxlite import image
    >>> print(image.resize(jnp.array([0.0, 4.0]), (4,), "linear"))
    [0. 1. 3. 4.]
    """
    check_arrays("resize", image)
    return _resize(image, _new_shape(image, shape), _method(method), antialias, precision)


@api
def _resize(image, shape: tuple[int, ...], method: ResizeMethod, antialias: bool, precision: Any):
    image = as_array(image)
    changed = [axis for axis, size in enumerate(image.shape) if size != shape[axis]]
    if any(not image.shape[axis] for axis in changed):
        raise ValueError(f"resize: cannot make {shape} of an array without elements, of shape {image.shape}")
    if method is ResizeMethod.NEAREST:
        for axis in changed:
            size = image.shape[axis]
            # In integers: the old cell that contains the center of a new one.
            cells: Any = jnp.arange(shape[axis]) if is_symbolic(shape[axis]) else np.arange(shape[axis], dtype=np.int64)
            places = (2 * cells + 1) * size // (2 * shape[axis])
            image = jnp.take(image, places.astype(np.int32), axis, mode="clip")
        return image
    (image,) = promote_dtypes_inexact(image)
    dtype = _working_dtype(image)
    matrices = {axis: _weights(image.shape[axis], shape[axis],
                               jnp.asarray(shape[axis] / image.shape[axis], dtype), jnp.zeros((), dtype),
                               method, antialias) for axis in changed if math.prod(shape)}
    return _resampled(image, matrices, precision) if matrices or not changed else jnp.zeros(shape, image.dtype)
