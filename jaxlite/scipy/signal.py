"""jaxlite.scipy.signal: convolutions and correlations in any number of dimensions, the removal of trends, spectra.

`mode` says how much of the full result is wanted: 'full' all of it, 'same' its middle in the shape of the first input,
'valid' where the smaller input is within the larger one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxlite import lax
from jaxlite import numpy as jnp
from jaxlite.core.values import aval_of
from jaxlite.lax import shaping
from jaxlite.numpy.api import api, as_array, canonical_axes, check_arrays, is_complex, promote_dtypes_inexact
from jaxlite.scipy.spectra import csd as csd
from jaxlite.scipy.spectra import detrend as detrend
from jaxlite.scipy.spectra import istft as istft
from jaxlite.scipy.spectra import stft as stft
from jaxlite.scipy.spectra import welch as welch

__all__ = ["convolve", "convolve2d", "correlate", "correlate2d", "csd", "detrend", "fftconvolve", "istft", "stft", "welch"]
__dir__ = lambda: __all__

_PADDING = {"fill": "constant", "wrap": "wrap", "symm": "symmetric"}


def _inputs(name: str, in1, in2, mode: str, rank: int | None = None) -> tuple[Any, Any]:
    """Both inputs in one dtype; those of the mode 'valid' in the order of their sizes is the caller's work."""
    check_arrays(name, in1, in2)
    if mode not in ("full", "same", "valid"):
        raise ValueError(f"{name}: mode must be one of ['full', 'same', 'valid'], got {mode!r}")
    a, b = promote_dtypes_inexact(as_array(in1), as_array(in2))
    shapes = a.shape, b.shape
    if rank is not None and not len(shapes[0]) == len(shapes[1]) == rank:
        raise ValueError(f"{name}: inputs must be {rank}-dimensional, got shapes {shapes[0]} and {shapes[1]}")
    if len(shapes[0]) != len(shapes[1]):
        raise ValueError(f"in1 and in2 must have the same number of dimensions. Got {shapes[0]} and {shapes[1]} for {name}")
    return a, b


def _is_swapped(name: str, a, b, axes: Sequence[int]) -> bool:
    """Whether the second of two inputs is the larger one, for the mode 'valid'."""
    sizes = [(aval_of(a).shape[axis], aval_of(b).shape[axis]) for axis in axes]
    if all(first >= second for first, second in sizes):
        return False
    if all(first <= second for first, second in sizes):
        return True
    raise ValueError(f"{name}: for the mode 'valid', one input must be at least as large as the other in every "
                     f"dimension, got shapes {aval_of(a).shape} and {aval_of(b).shape}")


def _window(image, kernel, pads: Sequence[tuple[int, int]], precision):
    """Sums of image[i + n] * kernel[i], where the image is padded with zeros."""
    rank = aval_of(image).ndim
    result = lax.conv_general_dilated(shaping.expand_dims(image, (0, 1)), shaping.expand_dims(kernel, (0, 1)), (1,) * rank,
                                      list(pads), precision=precision)
    return shaping.squeeze(result, (0, 1))


def _convolve(name: str, a, b, mode: str, precision):
    rank = aval_of(a).ndim
    if not rank:
        return lax.mul(a, b)
    if not (aval_of(a).size and aval_of(b).size):
        raise ValueError(f"{name}: inputs cannot be empty, got shapes {aval_of(a).shape} and {aval_of(b).shape}")
    if mode == "valid" and _is_swapped(name, a, b, range(rank)):
        a, b = b, a
    sizes = aval_of(b).shape
    pads = [{"valid": (0, 0), "same": (size // 2, (size - 1) // 2), "full": (size - 1, size - 1)}[mode] for size in sizes]
    return _window(a, shaping.rev(b, tuple(range(rank))), pads, precision)


def _reversed(x):
    """Back to front along all axes, and conjugated."""
    x = shaping.rev(x, tuple(range(aval_of(x).ndim)))
    return lax.conj(x) if is_complex(x) else x


def _check_method(name: str, method: str) -> None:
    if method not in ("auto", "direct", "fft"):
        raise ValueError(f"{name}: method must be one of ['auto', 'direct', 'fft'], got {method!r}")


@api
def convolve(in1, in2, mode: str = "full", method: str = "auto", precision: Any = None):
    """The convolution of two arrays of any rank: sums of in1[i] * in2[n - i].

    Args:
      in1, in2: arrays of one rank; integers are taken as floating.
      mode: 'full', 'same' or 'valid'.
      method: 'fft' multiplies Fourier transforms; 'direct' and 'auto' add up products.
      precision: of the products, as in `lax.conv_general_dilated`.
    Raises: ValueError for arrays of different ranks or without elements, and an unknown mode or method.

    >>> import jaxlite.numpy as jnp
    >>> from jaxlite.scipy import signal
    >>> print(signal.convolve(jnp.array([1.0, 2.0, 3.0]), jnp.array([1.0, 1.0])))
    [1. 3. 5. 3.]
    """
    _check_method("convolve", method)
    a, b = _inputs("convolve", in1, in2, mode)
    return _by_fft("convolve", a, b, mode, None) if method == "fft" else _convolve("convolve", a, b, mode, precision)


@api
def correlate(in1, in2, mode: str = "full", method: str = "auto", precision: Any = None):
    """The cross-correlation of two arrays of any rank: sums of in1[i + n] * conj(in2[i]). Arguments as in `convolve`."""
    _check_method("correlate", method)
    a, b = _inputs("correlate", in1, in2, mode)
    b = _reversed(b)
    return _by_fft("correlate", a, b, mode, None) if method == "fft" else _convolve("correlate", a, b, mode, precision)


def _in_two_dimensions(name: str, a, b, mode: str, boundary: str, fillvalue, precision, before: Sequence[int]):
    """The convolution of an image that goes on beyond its edges; `before` is what 'same' leaves out at the front."""
    if boundary not in _PADDING:
        raise ValueError(f"{name}: boundary must be one of {sorted(_PADDING)}, got {boundary!r}")
    if not (aval_of(a).size and aval_of(b).size):
        raise ValueError(f"{name}: inputs cannot be empty, got shapes {aval_of(a).shape} and {aval_of(b).shape}")
    margins = [(size - 1 - start, start) if mode == "same" else (size - 1, size - 1)
               for size, start in zip(aval_of(b).shape, before, strict=True)]
    if boundary == "fill" and isinstance(fillvalue, int | float) and fillvalue == 0:
        return _window(a, shaping.rev(b, (0, 1)), margins, precision)
    filled = {"constant_values": lax.convert_element_type(fillvalue, aval_of(a).dtype)} if boundary == "fill" else {}
    return _convolve(name, jnp.pad(a, margins, _PADDING[boundary], **filled), b, "valid", precision)


@api
def convolve2d(in1, in2, mode: str = "full", boundary: str = "fill", fillvalue=0, precision: Any = None):
    """The convolution of two matrices.

    Args:
      mode: 'full', 'same' or 'valid'.
      boundary: what is beyond the edges of in1: 'fill' a value, 'wrap' the opposite side, 'symm' its mirror image.
      fillvalue: that value.
    """
    a, b = _inputs("convolve2d", in1, in2, mode, 2)
    if mode == "valid":
        return _convolve("convolve2d", a, b, mode, precision)
    before = [(size - 1) // 2 for size in aval_of(b).shape]
    return _in_two_dimensions("convolve2d", a, b, mode, boundary, fillvalue, precision, before)


@api
def correlate2d(in1, in2, mode: str = "full", boundary: str = "fill", fillvalue=0, precision: Any = None):
    """The cross-correlation of two matrices; the second is conjugated. Arguments as in `convolve2d`."""
    a, b = _inputs("correlate2d", in1, in2, mode, 2)
    if mode == "valid":
        if _is_swapped("correlate2d", a, b, (0, 1)):  # SciPy conjugates the smaller one then
            return _convolve("correlate2d", shaping.rev(b, (0, 1)), shaping.rev(_reversed(a), (0, 1)), mode, precision)
        return _convolve("correlate2d", a, _reversed(b), mode, precision)
    before = [size // 2 for size in aval_of(b).shape]
    return _in_two_dimensions("correlate2d", a, _reversed(b), mode, boundary, fillvalue, precision, before)


def _by_fft(name: str, a, b, mode: str, axes):
    shapes = aval_of(a).shape, aval_of(b).shape
    rank = len(shapes[0])
    if not rank:
        return lax.mul(a, b)
    axes = canonical_axes(axes, rank)
    for axis, (first, second) in enumerate(zip(*shapes, strict=True)):
        if axis not in axes and first != second and 1 not in (first, second):
            raise ValueError(f"{name}: incompatible shapes {shapes[0]} and {shapes[1]}: axis {axis} is not transformed, so "
                             "its sizes must be equal, or one of them 1")
    if not (aval_of(a).size and aval_of(b).size):
        return shaping.full((0,), 0, aval_of(a).dtype)
    if mode == "valid" and _is_swapped(name, a, b, axes):
        a, b, shapes = b, a, shapes[::-1]
    full = [shapes[0][axis] + shapes[1][axis] - 1 for axis in axes]
    if not axes:
        return lax.mul(*jnp.broadcast_arrays(a, b))
    if is_complex(a):
        result = jnp.fft.ifftn(jnp.fft.fftn(a, full, axes) * jnp.fft.fftn(b, full, axes), full, axes)
    else:
        result = jnp.fft.irfftn(jnp.fft.rfftn(a, full, axes) * jnp.fft.rfftn(b, full, axes), full, axes)
    result = shaping.convert(result, aval_of(a).dtype, False)
    if mode == "full":
        return result
    start, stop = [0] * rank, list(result.shape)
    for axis in axes:
        first, second = shapes[0][axis], shapes[1][axis]
        start[axis], size = ((second - 1) // 2, first) if mode == "same" else (second - 1, first - second + 1)
        stop[axis] = start[axis] + size
    return lax.slice(result, start, stop)


@api
def fftconvolve(in1, in2, mode: str = "full", axes: Sequence[int] | int | None = None):
    """The convolution of two arrays by their Fourier transforms: faster than `convolve` for large arrays, less exact.

    Args:
      mode: 'full', 'same' or 'valid'.
      axes: along which to convolve, by default all; along the others arrays are multiplied, and must be of one size, or of
        size 1.
    """
    a, b = _inputs("fftconvolve", in1, in2, mode)
    return _by_fft("fftconvolve", a, b, mode, axes)
