"""StableHLO rules of the special functions, which are CHLO operations."""

from __future__ import annotations

from typing import Any

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


for _primitive in ("erf", "erfc", "erf_inv", "lgamma", "digamma", "polygamma", "zeta", "bessel_i1e"):
    _chlo(_primitive)
