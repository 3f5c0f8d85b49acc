"""StableHLO rule of `jit`: a call of a function that is emitted once for each sub-jaxpr."""

from __future__ import annotations

from typing import Any

from lowering.rules import lowers


@lowers("jit")
def _jit(ctx: Any, *operands: Any, jaxpr: Any, name: str, inline: Any = False, in_shardings: Any = None,
         out_shardings: Any = None, **params: Any) -> list[Any]:
    operands = _held(ctx, operands, in_shardings, ctx.avals_in)
    if inline is False:
        results = ctx.call(jaxpr.jaxpr, name, operands)
    elif inline is True or inline.name == "JAX_LATE":
        results = ctx.inline(jaxpr.jaxpr, operands)
    else:
        results = ctx.call(jaxpr.jaxpr, name, operands, words={"inlineable": inline.value})
    return _held(ctx, results, out_shardings, ctx.avals_out)


def _held(ctx: Any, values: Any, shardings: Any, avals: Any) -> Any:
    meshes = ctx.builder.meshes
    if shardings is None or meshes is None:
        return values
    return [value if sharding is None else meshes.held(ctx, value, sharding, aval)
            for value, sharding, aval in zip(values, shardings, avals, strict=True)]
