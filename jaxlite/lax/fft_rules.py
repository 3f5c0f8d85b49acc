"""Derivative and batching rules of Fourier transforms. They are linear; the matrix of the complex ones is symmetric."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxlite.core.aval import Ints
from jaxlite.core.values import aval_of
from jaxlite.lax import elementwise as e
from jaxlite.lax import shaping
from jaxlite.lax.elementwise_rules import const
from jaxlite.lax.fft import FftType, fft_p
from jaxlite.traces.batching import Axis, move
from jaxlite.traces.jvp import def_linear


def _fft_transpose(ct, x, *, fft_type: FftType, fft_lengths: Ints) -> list[Any]:
    if fft_type == FftType.RFFT:  # the complex transform of real numbers, without its second half
        padding = [(0, 0, 0)] * aval_of(ct).ndim
        padding[-1] = (0, fft_lengths[-1] - aval_of(ct).shape[-1], 0)
        whole = shaping.pad(ct, const(0, ct), padding)
        return [e.real(fft_p.bind(whole, fft_type=FftType.FFT, fft_lengths=fft_lengths))]
    if fft_type == FftType.IRFFT:  # all but the first and, of an even length, the last frequency count twice
        spectrum = fft_p.bind(ct, fft_type=FftType.RFFT, fft_lengths=fft_lengths)
        shape, dtype = aval_of(spectrum).shape, aval_of(spectrum).dtype
        weights = np.full(shape[-1], 2 / math.prod(fft_lengths))
        weights[0] /= 2
        if fft_lengths[-1] % 2 == 0:
            weights[-1] /= 2
        weights = shaping.broadcast_in_dim(weights.astype(dtype), shape, (len(shape) - 1,))
        return [e.conj(e.mul(spectrum, weights))]
    return [fft_p.bind(ct, fft_type=fft_type, fft_lengths=fft_lengths)]


def_linear(fft_p, _fft_transpose)


@fft_p.def_batching
def _fft_batch(axis: Axis, args: Sequence[Any], dims: Sequence[int | None], *, fft_type: FftType,
               fft_lengths: Ints) -> tuple[Any, int]:
    (x,), (dim,) = args, dims
    assert dim is not None
    if dim >= aval_of(x).ndim - len(fft_lengths):
        x, dim = move(x, dim, 0), 0
    return fft_p.bind(x, fft_type=fft_type, fft_lengths=fft_lengths), dim
