"""Signals over time: their trends, their spectra (`stft` and its inverse), cross spectral densities by Welch's method.

A signal is cut into segments that overlap, each is multiplied by a window and transformed. P. Welch, "The use of the fast
Fourier transform for the estimation of power spectra", 1967. The windows are SciPy's (`scipy.signal.get_window`).
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxlite import lax
from jaxlite import numpy as jnp
from jaxlite.core import source
from jaxlite.core.filtering import boundary
from jaxlite.core.values import aval_of
from jaxlite.lax import shaping
from jaxlite.numpy.api import (
    api,
    as_array,
    broadcasts_inside,
    canonical_axes,
    check_arrays,
    check_given,
    is_complex,
    promote_dtypes_inexact,
    promotes_inside,
)


@api
@broadcasts_inside
def detrend(data, axis: int = -1, type: str = "linear", bp: Any = 0, overwrite_data: None = None):
    """Samples along an axis without their trend.

    Args:
      type: 'linear' takes the straight line of least squares away, 'constant' the mean.
      bp: where new lines begin, an int or several.
      overwrite_data: has no effect: arrays do not change.
    Raises: ValueError for a place beyond the end of the axis.
    """
    (data,) = promote_dtypes_inexact(jnp.asarray(data))
    if type not in ("linear", "constant"):
        raise ValueError("Trend type must be 'linear' or 'constant'.")
    if type == "constant":
        return data - data.mean(axis, keepdims=True)
    samples = jnp.moveaxis(data, axis, -1)
    size = samples.shape[-1]
    bounds = np.unique(np.concatenate([[0], np.atleast_1d(bp), [size]]).astype(int))
    if bounds[0] < 0 or bounds[-1] > size:
        raise ValueError("Breakpoints must be non-negative and less than length of data along given axis.")
    parts = []
    for start, stop in zip(bounds, bounds[1:], strict=False):
        part = lax.slice_in_dim(samples, int(start), int(stop), axis=-1)
        part = part - part.mean(-1, keepdims=True)
        places = np.arange(stop - start) - (stop - start - 1) / 2
        weights = jnp.asarray(places / (places @ places or 1), part.dtype)
        parts.append(part - (part * weights).sum(-1, keepdims=True) * jnp.asarray(places, part.dtype))
    straight = jnp.moveaxis(jnp.concatenate(parts, -1), -1, axis) if parts else data
    return shaping.convert(straight, None, aval_of(data).weak_type)


_without_trend = detrend  # where an argument has its name

_EXTENSIONS: dict[str, dict[str, Any]] = {
    "even": {"mode": "reflect"}, "odd": {"mode": "reflect", "reflect_type": "odd"}, "constant": {"mode": "edge"},
    "zeros": {"mode": "constant"}}


class _Segments(NamedTuple):
    """How a signal is cut: the window, its length, how far segments overlap, and the length of their transform."""

    window: np.ndarray
    nperseg: int
    noverlap: int
    nfft: int

    @property
    def step(self) -> int:
        return self.nperseg - self.noverlap


# The usual windows as sums of cosines: the coefficients, whose signs alternate. (F. J. Harris, "On the use of windows for
# harmonic analysis with the discrete Fourier transform", 1978)
_COSINES = {"hann": (0.5, 0.5), "hamming": (0.54, 0.46), "blackman": (0.42, 0.5, 0.08), "boxcar": (1.0,)}


def _window(name: Any, size: int) -> np.ndarray:
    """A window by its name, periodic."""
    if not isinstance(name, str) or name not in _COSINES:
        from scipy.signal import get_window  # takes half a second to load

        return get_window(name, size)
    if size == 1:
        return np.ones(1)
    angles = np.arange(size) * (2 * np.pi / size)
    return sum((-1) ** k * factor * np.cos(k * angles) for k, factor in enumerate(_COSINES[name]))


def _segments(window, nperseg: int | None, noverlap: int | None, nfft: int | None, length: int | None) -> _Segments:
    if nperseg is not None and nperseg < 1:
        raise ValueError("nperseg must be a positive integer")
    if isinstance(window, (str, tuple)):
        nperseg = 256 if nperseg is None else nperseg
        if length is not None and nperseg > length:
            source.warn(f"nperseg = {nperseg} is greater than input length  = {length}, using nperseg = {length}")
            nperseg = length
        win = _window(window, nperseg)
    else:
        win = np.asarray(window)
        if win.ndim != 1:
            raise ValueError("window must be 1-D")
        if nperseg is None:
            nperseg = win.shape[0]
        elif nperseg != win.shape[0]:
            raise ValueError("value specified for nperseg is different from length of window")
        if length is not None and nperseg > length:
            raise ValueError("window is longer than input signal")
    noverlap = nperseg // 2 if noverlap is None else int(noverlap)
    if noverlap >= nperseg:
        raise ValueError("noverlap must be less than nperseg.")
    nfft = nperseg if nfft is None else int(nfft)
    if nfft < nperseg:
        raise ValueError("nfft must be greater than or equal to nperseg.")
    return _Segments(win, nperseg, noverlap, nfft)


_FEW_STEPS, _LONG_STEP = 8, 16  # steps in a segment, and elements in each, for which parts are copied as a whole


def _parts(length: int, step: int) -> int:
    """The steps that a segment consists of, or 0 if its elements are better looked up one by one."""
    steps, rest = divmod(length, step)
    return 0 if rest or steps > _FEW_STEPS or step < _LONG_STEP else steps


def _cut(x, count: int, length: int, step: int):
    """The segments of a signal: [..., n] -> [..., count, length]."""
    steps = _parts(length, step)
    if not steps or not count:
        return x[..., np.arange(count)[:, None] * step + np.arange(length)]
    # Parts of segments are rows of the signal: no element is looked up by its place, nor its cotangent added there.
    total = count + steps - 1
    rows = x[..., :total * step].reshape(*aval_of(x).shape[:-1], total, step)
    parts = jnp.stack([rows[..., first:first + count, :] for first in range(steps)], axis=-2)
    return parts.reshape(*aval_of(x).shape[:-1], count, length)


def _added(segments, step: int):
    """The signal to which segments add up: [..., count, length] -> [..., n]."""
    *batch, count, length = aval_of(segments).shape
    total = length + (count - 1) * step
    steps = _parts(length, step)
    if not steps:
        places = np.arange(count)[:, None] * step + np.arange(length)
        return jnp.zeros((*batch, total), segments.dtype).at[..., places].add(segments)
    parts = jnp.split(segments, steps, axis=-1)
    margins = [[(0, 0)] * len(batch) + [(first, steps - 1 - first), (0, 0)] for first in range(steps)]
    return functools.reduce(operator.add, map(jnp.pad, parts, margins)).reshape(*batch, total)


def _transformed(x, cut: _Segments, detrend, one_sided: bool):
    """[..., n] -> [..., segments, frequencies]."""
    count = max(0, (aval_of(x).shape[-1] - cut.noverlap) // cut.step)
    frames = _cut(x, count, cut.nperseg, cut.step)
    if callable(detrend):
        frames = detrend(frames)
    elif detrend:
        frames = _without_trend(frames, type=detrend, axis=-1)
    frames = frames * jnp.asarray(cut.window, aval_of(frames.real).dtype)
    return jnp.fft.rfft(frames, n=cut.nfft) if one_sided else jnp.fft.fft(frames, n=cut.nfft)


def _spectra(name: str, x, y, fs, window, nperseg: int | None, noverlap: int | None, nfft: int | None, detrend,
             return_onesided: bool, scaling: str, axis: int, boundary: str | None, padded: bool,
             is_density: bool) -> tuple[Any, Any, Any]:
    """Frequencies, times and the transforms of segments, or for densities products of two signals' transforms.

    The products of a signal with itself, for y None, are real.
    """
    if boundary is not None and boundary not in _EXTENSIONS:
        raise ValueError(f"Unknown boundary option '{boundary}', must be one of: {[*_EXTENSIONS, None]}")
    if scaling not in ("density", "spectrum"):
        raise ValueError(f"Unknown scaling: {scaling!r}")
    check_given(name, x, y)
    same = y is None
    x, y = promote_dtypes_inexact(as_array(x), as_array(x if y is None else y))
    (axis,) = canonical_axes((axis,), x.ndim)
    back = axis - x.ndim
    x, y = (jnp.moveaxis(each, back, -1) for each in (x, y))
    if not same:
        outer = shaping.broadcast_shapes(aval_of(x).shape[:-1], aval_of(y).shape[:-1])
        length = max(aval_of(x).shape[-1], aval_of(y).shape[-1])
        x, y = (jnp.broadcast_to(jnp.pad(each, [(0, 0)] * (aval_of(each).ndim - 1) + [(0, length - aval_of(each).shape[-1])]),
                                 (*outer, length)) for each in (x, y))
    real = aval_of(x.real).dtype
    if not aval_of(x).size:
        empty = jnp.zeros((*aval_of(x).shape[:-1], 0), real)
        return empty, empty, empty
    cut = _segments(window, nperseg, noverlap, nfft, aval_of(x).shape[-1])

    def prepared(each):
        none = [(0, 0)] * (aval_of(each).ndim - 1)
        if boundary is not None:
            half = cut.nperseg // 2
            each = jnp.pad(each, [*none, (half, half)], **_EXTENSIONS[boundary])
        if padded:
            missing = -(aval_of(each).shape[-1] - cut.nperseg) % cut.step % cut.nperseg
            each = jnp.pad(each, [*none, (0, missing)])
        return each

    x = prepared(x)
    one_sided = return_onesided and not (is_complex(x) or is_complex(y))
    result = _transformed(x, cut, detrend, one_sided)
    if is_density:
        result = (result.real ** 2 + result.imag ** 2 if same else
                  jnp.conj(result) * _transformed(prepared(y), cut, detrend, one_sided))
    square = (cut.window ** 2).sum()
    scale = 1 / (fs * square) if scaling == "density" else 1 / cut.window.sum() ** 2
    scales = np.full(aval_of(result).shape[-1], scale if is_density else np.sqrt(scale))
    if one_sided and is_density:  # the energy of the negative frequencies too
        scales[1:len(scales) - (1 - cut.nfft % 2)] *= 2
    result = result * jnp.asarray(scales, real)
    times = np.arange(cut.nperseg / 2, aval_of(x).shape[-1] - cut.nperseg / 2 + 1, cut.step)
    if boundary is not None:
        times = times - cut.nperseg / 2
    frequencies = (np.fft.rfftfreq if one_sided else np.fft.fftfreq)(cut.nfft)
    place = back - 1
    return (jnp.asarray(frequencies, real) * fs, jnp.asarray(times, real) / fs, jnp.moveaxis(result, -1, place))


@boundary
@broadcasts_inside
@promotes_inside
def stft(x, fs=1.0, window="hann", nperseg: int = 256, noverlap: int | None = None, nfft: int | None = None,
         detrend=False, return_onesided: bool = True, boundary: str | None = "zeros", padded: bool = True,
         axis: int = -1) -> tuple[Any, Any, Any]:
    """The short-time Fourier transform: the spectra of windowed segments.

    Args:
      x: an array; real ones have one-sided spectra unless `return_onesided` is False.
      fs: samples per unit of time.
      window: a name, or a tuple of one and its parameters, as in `scipy.signal.get_window`; or an array.
      nperseg, noverlap, nfft: the length of a segment, how far neighbours overlap (default: half), and the length of the
        transform (default: the segment's).
      detrend: False, 'constant', 'linear', or a function of segments.
      boundary: 'even', 'odd', 'constant', 'zeros' or None: how the signal goes on by half a segment at both ends.
      padded: whether zeros fill up the last segment.
      axis: that of time.
    Returns: frequencies, times of the segments' middles, and the spectra: frequencies at `axis`, segments on the last axis.
    Raises: ValueError for lengths that do not fit and unknown options.

    >>> import jaxlite.numpy as jnp
    >>> frequencies, times, spectra = stft(jnp.sin(jnp.arange(64.0)), nperseg=16)
    >>> spectra.shape
    (9, 9)
    """
    return _spectra("stft", x, None, fs, window, nperseg, noverlap, nfft, detrend, return_onesided, "spectrum", axis, boundary,
                    padded, False)


def _bias_of_median(count: int) -> float:
    """The median of `count` exponential variables over their mean."""
    even = 2.0 * np.arange(1, (count - 1) // 2 + 1)
    return 1 + float(np.sum(1 / (even + 1) - 1 / even))


@boundary
@broadcasts_inside
@promotes_inside
def csd(x, y, fs=1.0, window="hann", nperseg: int | None = None, noverlap: int | None = None, nfft: int | None = None,
        detrend="constant", return_onesided: bool = True, scaling: str = "density", axis: int = -1,
        average: str = "mean") -> tuple[Any, Any]:
    """The cross spectral density of two signals by Welch's method: an average over segments.

    Args: as `stft`; `y` None for that of `x` with itself, which is real; `scaling` 'density' (per frequency) or 'spectrum';
      `average` 'mean' or 'median' (corrected for its bias).
    Returns: frequencies and the density, with the frequencies at `axis`.
    """
    frequencies, _, result = _spectra("csd", x, y, fs, window, nperseg, noverlap, nfft, detrend, return_onesided, scaling, axis,
                                      None, False, True)
    if average not in ("mean", "median"):
        raise ValueError(f"average must be \"median\" or \"mean\", got {average}")
    if result.ndim >= 2 and result.size:
        count = result.shape[-1]
        if count == 1:
            return frequencies, shaping.squeeze(result, (result.ndim - 1,))
        if average == "mean":
            return frequencies, result.mean(-1)
        parts = [jnp.median(part, -1) for part in ((result.real, result.imag) if is_complex(result) else (result,))]
        middle = parts[0] if len(parts) == 1 else lax.complex(*parts)
        return frequencies, middle / _bias_of_median(count)
    return frequencies, result


@boundary
@broadcasts_inside
@promotes_inside
def welch(x, fs=1.0, window="hann", nperseg: int | None = None, noverlap: int | None = None, nfft: int | None = None,
          detrend="constant", return_onesided: bool = True, scaling: str = "density", axis: int = -1,
          average: str = "mean") -> tuple[Any, Any]:
    """The power spectral density by Welch's method. Args and results: as `csd` of a signal with itself; real.

    >>> import jaxlite.numpy as jnp
    >>> frequencies, power = welch(jnp.sin(jnp.arange(256.0)), nperseg=64)
    >>> round(float(frequencies[power.argmax()]), 2)       # 1 / (2 pi)
    0.16
    """
    return csd(x, None, fs, window, nperseg, noverlap, nfft, detrend, return_onesided, scaling, axis, average)


@boundary
@broadcasts_inside
@promotes_inside
def istft(Zxx, fs=1.0, window="hann", nperseg: int | None = None, noverlap: int | None = None, nfft: int | None = None,
          input_onesided: bool = True, boundary: bool = True, time_axis: int = -1,
          freq_axis: int = -2) -> tuple[Any, Any]:
    """The signal of a short-time Fourier transform: segments are transformed back, windowed and added.

    Args: as `stft`; `boundary` whether the signal was continued at its ends; `time_axis` and `freq_axis` those of segments and
      frequencies.
    Returns: times and the signal; real for `input_onesided`.
    Raises: ValueError for lengths and axes that do not fit. Warns where windows leave samples without weight.

    >>> import jaxlite.numpy as jnp
    >>> x = jnp.sin(jnp.arange(64.0))
    >>> _, again = istft(stft(x, nperseg=16)[2])
    >>> bool(jnp.allclose(again, x, atol=1e-5))
    True
    """
    check_arrays("istft", Zxx)
    (Zxx,) = promote_dtypes_inexact(as_array(Zxx))
    rank = Zxx.ndim
    if rank < 2:
        raise ValueError("Input stft must be at least 2d!")
    time, frequency = canonical_axes((time_axis,), rank)[0], canonical_axes((freq_axis,), rank)[0]
    if time == frequency:
        raise ValueError("Must specify differing time and frequency axes!")
    bins, count = Zxx.shape[frequency], Zxx.shape[time]
    usual = 2 * (bins - 1) if input_onesided else bins
    nperseg = usual if nperseg is None else int(nperseg)
    if nperseg < 1:
        raise ValueError("nperseg must be a positive integer")
    if nfft is None:
        nfft = nperseg if input_onesided and nperseg == usual + 1 else usual
    cut = _segments(window, nperseg, noverlap, nfft, None)
    spectra = jnp.moveaxis(Zxx, (time, frequency), (-2, -1))
    frames = jnp.fft.irfft(spectra, n=nfft) if input_onesided else jnp.fft.ifft(spectra, n=nfft)
    frames = frames[..., :nperseg]
    win = jnp.asarray(cut.window, aval_of(frames.real).dtype)
    places = np.arange(count)[:, None] * cut.step + np.arange(nperseg)
    length = nperseg + (count - 1) * cut.step
    weights = np.zeros(length)
    np.add.at(weights, places, np.broadcast_to(cut.window ** 2, places.shape))
    x = _added(frames * (win * cut.window.sum()), cut.step)
    if boundary:
        inside = slice(nperseg // 2, length - nperseg // 2)
        x, weights = x[..., inside], weights[inside]
    if not (weights > 1e-10).all():
        source.warn("NOLA condition failed, STFT may not be invertible.")
    x = x / jnp.asarray(np.where(weights > 1e-10, weights, 1.0), win.dtype)
    if x.ndim > 1:
        x = jnp.moveaxis(x, -1, time - (frequency < time))
    return jnp.arange(x.shape[0], dtype=win.dtype) / fs, x


__all__: Sequence[str] = ["csd", "detrend", "istft", "stft", "welch"]
