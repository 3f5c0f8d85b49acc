"""StableHLO rule of `jit`: a call of a function that is emitted once for each sub-jaxpr."""

from __future__ import annotations

from typing import Any

from lowering.rules import lowers


@lowers("jit")
def _jit(ctx: Any, *operands: Any, jaxpr: Any, name: str, **params: Any) -> list[Any]:
    return ctx.call(jaxpr.jaxpr, name, operands)
