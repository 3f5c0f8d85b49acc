"""StableHLO rule of `jit`: a call of a function that is emitted once for each sub-jaxpr."""

from __future__ import annotations

from typing import Any

from lowering.rules import lowers


@lowers("jit")
def _jit(ctx: Any, *operands: Any, jaxpr: Any, name: str, inline: Any = False, **params: Any) -> list[Any]:
    if inline is False:
        return ctx.call(jaxpr.jaxpr, name, operands)
    if inline is True or inline.name == "JAX_LATE":
        return ctx.inline(jaxpr.jaxpr, operands)
    return ctx.call(jaxpr.jaxpr, name, operands, words={"inlineable": inline.value})
