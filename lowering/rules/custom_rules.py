"""StableHLO rules of calls with derivatives of their own, and of recomputed ones: what is left are plain calls."""

from __future__ import annotations

from typing import Any

from lowering.rules import lowers


@lowers("custom_jvp_call", "custom_vjp_call")
def _custom_call(ctx: Any, *operands: Any, call_jaxpr: Any, **params: Any) -> list[Any]:
    return ctx.inline(call_jaxpr.jaxpr, operands)


@lowers("checkpoint")
def _checkpoint(ctx: Any, *operands: Any, jaxpr: Any, prevent_cse: bool, differentiated: bool, **params: Any) -> list[Any]:
    if differentiated and prevent_cse and operands:
        # Without a barrier the compiler would find the values computed before, and keep them.
        types = [operand.type for operand in operands]
        operands = tuple(ctx.op("stablehlo.optimization_barrier", operands, types).results)
    return ctx.inline(jaxpr.jaxpr, operands)


@lowers("name")
def _name(ctx: Any, x: Any, *, name: str) -> Any:
    return x
