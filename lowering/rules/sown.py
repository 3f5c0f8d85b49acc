"""StableHLO rules of named values and calls: the names are not part of the module."""

from __future__ import annotations

from typing import Any

from lowering.rules import lowers


@lowers("sow")
def _sow(ctx: Any, *operands: Any, count: int, **params: Any) -> list[Any]:
    return list(operands[:count])


@lowers("nest")
def _nest(ctx: Any, *operands: Any, jaxpr: Any, **params: Any) -> list[Any]:
    return ctx.inline(jaxpr.jaxpr, operands)
