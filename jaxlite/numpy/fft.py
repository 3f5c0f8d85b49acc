"""Discrete Fourier transforms, as `numpy.fft` names them.

`norm` says which direction divides by the number of elements n: "backward" (the default) the inverse, "forward" the
transform itself, "ortho" both, by sqrt(n).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

from jaxlite import lax
from jaxlite.core import dtypes
from jaxlite.core.aval import Ints
from jaxlite.core.axes import other_axes
from jaxlite.core.filtering import boundary
from jaxlite.core.symbolic import is_symbolic
from jaxlite.core.values import aval_of
from jaxlite.lax import shaping
from jaxlite.lax.fft import FftType
from jaxlite.lax.fft import fft as transform
from jaxlite.numpy import manipulation
from jaxlite.numpy.api import api, as_array, canonical_axes, check_arrays, each_axis, whole_size
from jaxlite.numpy.creation import asarray

__all__ = [
    "fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifft2", "ifftn", "ifftshift", "ihfft", "irfft",
    "irfft2", "irfftn", "rfft", "rfft2", "rfftfreq", "rfftn",
]
__dir__ = lambda: __all__

_FFT, _IFFT, _RFFT, _IRFFT = FftType
_OPPOSITE = {None: "forward", "backward": "forward", "forward": "backward", "ortho": "ortho"}


def _scale(name: str, kind, norm: str | None, count: int) -> float:
    """What to multiply the result of XLA's transform with, which divides in the inverse."""
    if not isinstance(norm, (str, type(None))) or norm not in _OPPOSITE:
        raise ValueError(f'Invalid norm value {norm}; should be "backward","ortho" or "forward". (jnp.fft.{name})')
    inverse = kind in (_IFFT, _IRFFT)
    if not count:
        return 1.0
    if norm == "ortho":
        return math.sqrt(count) if inverse else 1 / math.sqrt(count)
    if norm == "forward":
        return float(count) if inverse else 1 / count
    return 1.0


def _transform(name: str, kind, a, s, axes, norm: str | None):
    """Check the static arguments, then one compiled call."""
    check_arrays(f"fft.{name}", a)
    shape = aval_of(a).shape
    if s is not None:
        s = tuple(map(operator.index, s))
        if any(size < 1 for size in s):
            raise ValueError(f"Shape should be positive. Got {s} for jnp.fft.{name}")
    if axes is None:
        axes = range(len(shape)) if s is None else range(len(shape) - len(s), len(shape))
        if s is not None and len(s) > len(shape):
            raise ValueError(f"jnp.fft.{name}: {len(s)} sizes for an array of shape {shape}")
    axes = canonical_axes(tuple(axes), len(shape))
    if s is not None and len(s) != len(axes):
        raise ValueError(f"Shape and axes have different lengths. Got {s} and {axes} for jnp.fft.{name}")
    if s is None:
        s = tuple(shape[axis] for axis in axes)
        if kind == _IRFFT and axes:
            s = (*s[:-1], max(0, 2 * (s[-1] - 1)))
    if kind == _RFFT and s and not s[-1]:
        raise ValueError(f"jnp.fft.{name}: cannot transform the empty axis {axes[-1]} of an array of shape {shape}")
    if kind == _RFFT and dtypes.kind(aval_of(a).dtype) == "c":
        raise ValueError(f"only real valued inputs supported for {name}, got {aval_of(a).dtype}")
    return _compute(a, kind=kind, sizes=s, axes=axes, scale=_scale(name, kind, norm, math.prod(s)))


@api
def _compute(a, kind: Any, sizes: Ints, axes: Ints, scale: float):
    a = as_array(a)
    dtype = dtypes.to_inexact_dtype(a.dtype)
    if kind == _RFFT:
        dtype = dtype if dtype == dtypes.float64 else dtypes.float32
    else:
        dtype = dtypes.to_complex_dtype(dtype)
    a = shaping.convert(a, dtype, False)
    if not axes:
        return a
    if not math.prod(sizes):  # nothing to transform
        shape = list(a.shape)
        for axis, size in zip(axes, (*sizes[:-1], sizes[-1] // 2 + 1) if kind == _RFFT else sizes, strict=True):
            shape[axis] = size
        return shaping.full(shape, 0, dtypes.real_dtype(dtype) if kind == _IRFFT else dtypes.to_complex_dtype(dtype))
    a = shaping.fit(a, (*sizes[:-1], sizes[-1] // 2 + 1) if kind == _IRFFT else sizes, axes)
    rank = a.ndim
    order = [*other_axes(rank, axes), *axes]
    a = shaping.transpose(a, order)
    # XLA transforms up to three axes at once; the axis that is real on one side comes first or last.
    inner, outer = sizes[-3:], sizes[:-3]
    if kind in (_FFT, _RFFT):
        a = _others(transform(a, kind, inner), _FFT, outer, len(inner))
    else:
        a = transform(_others(a, _IFFT, outer, len(inner)), kind, inner)
    if scale != 1:
        a = a * scale
    return shaping.transpose(a, [order.index(axis) for axis in range(rank)])


def _others(a, kind, sizes: Ints, behind: int):
    """Transform axes that have `behind` others behind them, one at a time."""
    rank = a.ndim
    for position, size in enumerate(reversed(sizes)):
        axis = rank - 1 - behind - position
        order = [*other_axes(rank, (axis,)), axis]
        a = transform(shaping.transpose(a, order), kind, (size,))
        a = shaping.transpose(a, [order.index(each) for each in range(rank)])
    return a


def _one(name: str, kind, a, n, axis, norm: str | None):
    if isinstance(axis, (tuple, list)):
        raise ValueError(f"jaxlite.numpy.fft.{name} does not support multiple axes. Got axis={axis}; use fftn and the like")
    return _transform(name, kind, a, None if n is None else (n,), None if axis is None else (axis,), norm)


# --- complex to complex ------------------------------------------------------------------------------


@boundary
def fft(a, n: int | None = None, axis: int | None = -1, norm: str | None = None):
    """The Fourier transform along an axis.

    Args:
      a: an array of numbers.
      n: the length of the axis, cropped or padded with zeros at its end; default as it is.
      axis: the axis to transform; None transforms all, or the last one if there is an `n`.
      norm: None, 'backward', 'ortho' or 'forward'.
    Raises: ValueError for the axis, an empty axis, or the norm.

    >>> import jaxlite.numpy as jnp
    >>> jnp.fft.fft(jnp.array([1.0, 0.0, 0.0, 0.0])).real
    Array([1., 1., 1., 1.], dtype=float32)
    """
    return _one("fft", _FFT, a, n, axis, norm)


@boundary
def ifft(a, n: int | None = None, axis: int | None = -1, norm: str | None = None):
    """The inverse of `fft`; the arguments are as there."""
    return _one("ifft", _IFFT, a, n, axis, norm)


@boundary
def fft2(a, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1), norm: str | None = None):
    """The Fourier transform over two axes; the arguments are as of `fftn`."""
    return _transform("fft2", _FFT, a, s, _pair("fft2", axes), norm)


@boundary
def ifft2(a, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1), norm: str | None = None):
    """The inverse of `fft2`."""
    return _transform("ifft2", _IFFT, a, s, _pair("ifft2", axes), norm)


@boundary
def fftn(a, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str | None = None):
    """The Fourier transform over several axes.

    Args:
      s: the lengths of the axes, cropped or padded with zeros at their ends; default as they are.
      axes: default the last `len(s)`, or all.
      norm: None, 'backward', 'ortho' or 'forward'.
    Raises: ValueError for axes out of range or named twice, empty ones, or the norm.
    """
    return _transform("fftn", _FFT, a, s, axes, norm)


@boundary
def ifftn(a, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str | None = None):
    """The inverse of `fftn`."""
    return _transform("ifftn", _IFFT, a, s, axes, norm)


# --- real on one side --------------------------------------------------------------------------------


@boundary
def rfft(a, n: int | None = None, axis: int | None = -1, norm: str | None = None):
    """The Fourier transform of real numbers: the n // 2 + 1 coefficients that are not redundant."""
    return _one("rfft", _RFFT, a, n, axis, norm)


@boundary
def irfft(a, n: int | None = None, axis: int | None = -1, norm: str | None = None):
    """The inverse of `rfft`: n real numbers, default an even number of them, 2 * (size - 1)."""
    return _one("irfft", _IRFFT, a, n, axis, norm)


@boundary
def rfft2(a, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1), norm: str | None = None):
    """The Fourier transform of real numbers over two axes; the last one is cut as by `rfft`."""
    return _transform("rfft2", _RFFT, a, s, _pair("rfft2", axes), norm)


@boundary
def irfft2(a, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1), norm: str | None = None):
    """The inverse of `rfft2`."""
    return _transform("irfft2", _IRFFT, a, s, _pair("irfft2", axes), norm)


@boundary
def rfftn(a, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str | None = None):
    """The Fourier transform of real numbers over several axes; the last one is cut as by `rfft`."""
    return _transform("rfftn", _RFFT, a, s, axes, norm)


@boundary
def irfftn(a, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str | None = None):
    """The inverse of `rfftn`."""
    return _transform("irfftn", _IRFFT, a, s, axes, norm)


@boundary
def hfft(a, n: int | None = None, axis: int = -1, norm: str | None = None):
    """The real transform of a signal with Hermitian symmetry, of which `a` is one half."""
    check_arrays("fft.hfft", a)
    return _one("hfft", _IRFFT, _conjugate(as_array(a)), n, axis, _opposite("hfft", norm))


@boundary
def ihfft(a, n: int | None = None, axis: int = -1, norm: str | None = None):
    """The inverse of `hfft`."""
    return _conjugate(_one("ihfft", _RFFT, asarray(a), n, axis, _opposite("ihfft", norm)))


def _conjugate(a):
    return lax.conj(a) if dtypes.kind(a.dtype) == "c" else a


def _opposite(name: str, norm: str | None) -> str:
    _scale(name, _FFT, norm, 1)
    return _OPPOSITE[norm]


def _pair(name: str, axes: Sequence[int]) -> tuple[int, int]:
    if len(axes) != 2:
        raise ValueError(f"jnp.fft.{name} transforms 2 axes, got {axes}")
    return axes[0], axes[1]


# --- frequencies -------------------------------------------------------------------------------------


@boundary
def fftfreq(n: int, d=1.0, *, dtype=None, device=None):
    """The frequencies of the coefficients of `fft`: 0, the positive ones, then the negative ones, over `n * d`.

    Args:
      n: the length of the transformed axis; d: the distance of samples.
      dtype: default that of Python's floats.
      device: ignored.
    Raises: ValueError if n is not an int, or d is not a scalar.
    """
    n, dtype = _frequency_arguments("fftfreq", n, d, dtype)
    return _frequencies(d, n=n, count=n, start=n // 2, dtype=dtype)


@boundary
def rfftfreq(n: int, d=1.0, *, dtype=None, device=None):
    """The frequencies of the coefficients of `rfft`; the arguments are as of `fftfreq`."""
    n, dtype = _frequency_arguments("rfftfreq", n, d, dtype)
    return _frequencies(d, n=n, count=n // 2 + 1, start=0, dtype=dtype)


def _frequency_arguments(name: str, n, d, dtype) -> tuple[int, Any]:
    if isinstance(n, (list, tuple)):
        raise ValueError(f"The n argument of jnp.fft.{name} must be an int, got {n!r}")
    if isinstance(d, (list, tuple)) or getattr(d, "ndim", 0):
        raise ValueError(f"The d argument of jnp.fft.{name} must be a scalar, got {d!r}")
    if dtypes.kind(aval_of(d).dtype) == "c":
        raise TypeError(f"The d argument of jnp.fft.{name} must be a real number, got {d!r}")
    dtype = dtypes.requested_dtype(dtype, name, float)
    return n if is_symbolic(n) else whole_size(n), dtype


@api
def _frequencies(d, n: int, count: int, start: int, dtype: Any):
    """0, 1, ..., wrapped around to -start where that is positive, over n * d."""
    index = shaping.iota(dtypes.int32, count)
    if is_symbolic(start) or start:
        wrapped = index >= (n + 1) // 2
        index = lax.select(wrapped, index - n, index)
    span = shaping.convert(as_array(d), dtype, False) * n
    return lax.div(shaping.convert(index, dtype, False), shaping.broadcast_in_dim(span, (count,), ()))


@boundary
def fftshift(x, axes: int | Sequence[int] | None = None):
    """Move frequency zero to the middle of axes (default: all)."""
    return _shift("fftshift", x, axes, lambda size: size // 2)


@boundary
def ifftshift(x, axes: int | Sequence[int] | None = None):
    """The inverse of `fftshift`."""
    return _shift("ifftshift", x, axes, lambda size: -(size // 2))


def _shift(name: str, x, axes, by):
    check_arrays(f"fft.{name}", x)
    shape = aval_of(x).shape
    named = range(len(shape)) if axes is None else each_axis(axes)
    chosen = tuple(shaping.canonical_axis(axis, len(shape)) for axis in named)  # an axis named twice moves twice
    return manipulation.roll(x, tuple(by(shape[axis]) for axis in chosen), chosen)
