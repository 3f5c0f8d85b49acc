"""Rules of primitives that add frontend attributes to operations."""

from __future__ import annotations

from typing import Any

from lowering.metadata import mark
from lowering.rules import lowers


@lowers("xla_metadata_value")
def _value(ctx: Any, x: Any, *, xla_metadata_kvs: Any) -> Any:
    if isinstance(x, ctx.ir.OpResult):  # an argument of a function has no operation
        mark(ctx.ir, ctx.builder.context, x.owner, dict(xla_metadata_kvs))
    return x


@lowers("xla_metadata_call")
def _call(ctx: Any, *operands: Any, jaxpr: Any, ad_metadata: Any = None, xla_metadata: Any = None, **meta: Any) -> list[Any]:
    results = ctx.call(jaxpr.jaxpr, "xla_metadata_call", operands)
    if xla_metadata == ():
        return results
    words = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in (
        meta.items() if xla_metadata is None else xla_metadata)}
    for owner in {id(each.owner): each.owner for each in results if isinstance(each, ctx.ir.OpResult)}.values():
        mark(ctx.ir, ctx.builder.context, owner, words)
    return results
