"""Fourier transforms over the last axes: complex to complex, real to complex and back."""

from __future__ import annotations

import enum
import operator
from collections.abc import Sequence

from jaxlite.core import dtypes
from jaxlite.core.aval import Ints, ShapedArray, shaped_array
from jaxlite.core.filtering import boundary
from jaxlite.core.primitive import Primitive
from jaxlite.core.values import aval_of
from jaxlite.lax import shaping


class FftType(enum.IntEnum):
    """Which transform `fft` computes."""

    FFT = 0
    IFFT = 1
    RFFT = 2
    IRFFT = 3


fft_p = Primitive("fft")


@fft_p.def_abstract_eval
def _fft_aval(x, *, fft_type: FftType, fft_lengths: Ints) -> ShapedArray:
    rank = len(fft_lengths)
    if not 1 <= rank <= 3:
        raise ValueError(f"fft transforms 1 to 3 axes, got fft_lengths {fft_lengths}")
    if rank > len(x.shape):
        raise ValueError(f"FFT input shape {x.shape} must have at least as many input dimensions as fft_lengths {fft_lengths}.")
    wanted = (dtypes.float32, dtypes.float64) if fft_type == FftType.RFFT else (dtypes.complex64, dtypes.complex128)
    if x.dtype not in wanted:
        raise ValueError(f"{FftType(fft_type).name} takes {wanted[0]} or {wanted[1]}, got {x.dtype}")
    if any(length < 1 for length in fft_lengths):
        raise ValueError(f"fft_lengths must be positive, got {fft_lengths}")
    batch, last = x.shape[:-rank], fft_lengths[-1]
    whole, half = fft_lengths, (*fft_lengths[:-1], last // 2 + 1)
    expected, shape, dtype = whole, whole, x.dtype
    if fft_type == FftType.RFFT:
        shape, dtype = half, dtypes.to_complex_dtype(x.dtype)
    elif fft_type == FftType.IRFFT:
        expected, dtype = half, dtypes.float32 if x.dtype == dtypes.complex64 else dtypes.float64
    if x.shape[-rank:] != expected:
        raise ValueError(f"FFT input shape {x.shape} minor dimensions must be equal to fft_lengths {expected} of "
                         f"{FftType(fft_type).name}")
    return shaped_array((*batch, *shape), dtype, False)


@boundary
def fft(x, fft_type: FftType | str, fft_lengths: Sequence[int]):
    """The Fourier transform over the last axes.

    Args:
      x: an array; for RFFT real, for the others complex or made so. For IRFFT its last axis holds the half of the
        spectrum that is not redundant: `fft_lengths[-1] // 2 + 1` elements.
      fft_type: a `FftType` or its name. Inverse transforms divide by the number of elements.
      fft_lengths: the sizes of the transformed axes, up to 3 of them; of the real side for RFFT and IRFFT.
    Raises: ValueError for sizes and dtypes that do not fit.
    """
    names = FftType.__members__
    if isinstance(fft_type, str):
        if fft_type.upper() not in names:
            raise ValueError(f"Unknown FFT type '{fft_type}'. There are {', '.join(names)}")
        kind = FftType[fft_type.upper()]
    elif fft_type in FftType.__members__.values():
        kind = FftType(fft_type)
    else:
        raise TypeError(f"fft_type must be a FftType or one of {', '.join(names)}, got {fft_type!r}")
    dtype = aval_of(x).dtype
    if kind == FftType.RFFT:
        if dtypes.kind(dtype) == "c":
            raise ValueError(f"only real valued inputs supported for rfft, got {dtype}")
        target = dtype if dtype in (dtypes.float32, dtypes.float64) else dtypes.float32
    else:
        target = dtypes.to_complex_dtype(dtypes.to_inexact_dtype(dtype))
    x = shaping.convert(x, target, False)
    return fft_p.bind(x, fft_type=kind, fft_lengths=tuple(map(operator.index, fft_lengths))) if len(fft_lengths) else x
