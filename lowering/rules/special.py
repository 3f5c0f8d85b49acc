"""StableHLO rules of the special functions, which are CHLO operations."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from lowering.rules import lowers
from lowering.rules.elementwise import broadcast_operands


def _chlo(primitive: str) -> None:
    @lowers(primitive)
    def rule(ctx: Any, *operands: Any, accuracy: Any = None) -> Any:  # how exact `erfc` is, XLA cannot be told
        aval = ctx.aval_out
        operands = tuple(broadcast_operands(ctx, operands))
        if aval.dtype.itemsize > 1:
            return ctx.emit1(f"chlo.{primitive}", *operands)
        # XLA has not all of these for 8-bit floats.
        single = np.dtype(np.float32)
        wide = [ctx.convert(x, aval.shape, single) for x in operands]
        return ctx.convert(ctx.value(f"chlo.{primitive}", wide, aval.shape, single), aval.shape, aval.dtype)


for _primitive in ("erf", "erfc", "erf_inv", "lgamma", "polygamma", "zeta", "bessel_i1e"):
    _chlo(_primitive)


@lowers("digamma")
def _digamma(ctx: Any, x: Any) -> Any:
    aval = ctx.aval_out
    kind = aval.dtype if aval.dtype.itemsize > 1 else np.dtype(np.float32)
    x = ctx.convert(x, aval.shape, kind) if kind != aval.dtype else x
    if ctx.platform == "cpu" and type(aval.size) is int:
        # It divides as `lgamma` does, whose derivative it is, and XLA:CPU writes each quotient that both have to memory. With
        # the least number, a pole, for -infinity it finds none.
        least = ctx.constant(ml_dtypes.finfo(kind).min, kind, aval.shape)
        x = ctx.value("stablehlo.maximum", [x, least], aval.shape, kind)
    x = ctx.value("chlo.digamma", [x], aval.shape, kind)
    return ctx.convert(x, aval.shape, aval.dtype) if kind != aval.dtype else x
