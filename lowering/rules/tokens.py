"""StableHLO rules of the token primitives."""

from __future__ import annotations

from typing import Any

from lowering.rules import lowers


@lowers("create_token", "after_all")
def _after_all(ctx: Any, *operands: Any) -> Any:
    return ctx.emit1("stablehlo.after_all", *operands)
