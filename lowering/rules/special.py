"""StableHLO rules of the special functions, all of which are operations of CHLO."""

from __future__ import annotations

from typing import Any

from lowering.rules import lowers
from lowering.rules.elementwise import broadcast_operands


def _chlo(primitive: str) -> None:
    @lowers(primitive)
    def rule(ctx: Any, *operands: Any) -> Any:
        return ctx.emit1(f"chlo.{primitive}", *broadcast_operands(ctx, operands))


for _primitive in ("erf", "erfc", "erf_inv", "lgamma", "digamma", "polygamma", "zeta", "bessel_i1e"):
    _chlo(_primitive)
