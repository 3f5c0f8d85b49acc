"""Derivative and batching rules of Fourier transforms. They are linear; the matrix of the complex ones is symmetric."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from jaxlite.core.aval import Ints
from jaxlite.core.values import aval_of
from jaxlite.lax import elementwise as e
from jaxlite.lax import shaping
from jaxlite.lax.fft import FftType, fft_p
from jaxlite.traces.batching import Axis, def_batching_of_one, move
from jaxlite.traces.jvp import def_linear


def _fft_transpose(ct, x, *, fft_type: FftType, fft_lengths: Ints) -> list[Any]:
    if fft_type == FftType.RFFT:  # its inverse adds the frequencies of the second half, as conjugates of these
        scaled = _weighted(e.conj(ct), fft_lengths, math.prod(fft_lengths) / 2, 2)
        return [fft_p.bind(scaled, fft_type=FftType.IRFFT, fft_lengths=fft_lengths)]
    if fft_type == FftType.IRFFT:
        spectrum = fft_p.bind(ct, fft_type=FftType.RFFT, fft_lengths=fft_lengths)
        return [e.conj(_weighted(spectrum, fft_lengths, 2 / math.prod(fft_lengths), 0.5))]
    return [fft_p.bind(ct, fft_type=fft_type, fft_lengths=fft_lengths)]


def _weighted(spectrum, fft_lengths: Ints, weight: float, once: float):
    """Each frequency times a weight, and those that have no conjugate, the first and of an even length the last, `once`."""
    shape, dtype = aval_of(spectrum).shape, aval_of(spectrum).dtype
    weights = np.full(shape[-1], weight)
    weights[[0, -1] if fft_lengths[-1] % 2 == 0 else 0] *= once
    return e.mul(spectrum, shaping.broadcast_in_dim(weights.astype(dtype), shape, (len(shape) - 1,)))


def_linear(fft_p, _fft_transpose)


@def_batching_of_one(fft_p)
def _fft_batch(axis: Axis, x, dim: int, *, fft_type: FftType, fft_lengths: Ints) -> tuple[Any, int]:
    if dim >= aval_of(x).ndim - len(fft_lengths):
        x, dim = move(x, dim, 0), 0
    return fft_p.bind(x, fft_type=fft_type, fft_lengths=fft_lengths), dim
