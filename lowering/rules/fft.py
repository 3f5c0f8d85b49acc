"""StableHLO rule of `fft`."""

from __future__ import annotations

import math
from typing import Any

from lowering.rules import lowers

_KINDS = ("FFT", "IFFT", "RFFT", "IRFFT")


@lowers("fft")
def _fft(ctx: Any, x: Any, *, fft_type: int, fft_lengths: Any) -> Any:
    out = ctx.aval_out
    if not math.prod(out.shape):  # XLA's transforms want at least one
        return ctx.constant(0, out.dtype, out.shape)
    return ctx.emit1("stablehlo.fft", x, fft_type=ctx.attribute(f"#stablehlo<fft_type {_KINDS[fft_type]}>"),
                     fft_length=ctx.i64s(fft_lengths))
