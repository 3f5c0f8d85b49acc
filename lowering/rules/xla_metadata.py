"""Rules of what gives operations frontend attributes."""

from __future__ import annotations

from typing import Any

from lowering.rules import lowers

_NAME = "mhlo.frontend_attributes"


def _mark(ctx: Any, operation: Any, words: dict[str, str]) -> None:
    ir = ctx.ir
    attributes = operation.attributes
    if _NAME in attributes:
        words = {each.name: ir.StringAttr(each.attr).value for each in ir.DictAttr(attributes[_NAME])} | words
    attributes[_NAME] = ir.DictAttr.get({name: ctx.string(text) for name, text in words.items()}, ctx.builder.context)


@lowers("xla_metadata_value")
def _value(ctx: Any, x: Any, *, xla_metadata_kvs: Any) -> Any:
    if isinstance(x, ctx.ir.OpResult):  # an argument of a function has no operation
        _mark(ctx, x.owner, dict(xla_metadata_kvs))
    return x


@lowers("xla_metadata_call")
def _call(ctx: Any, *operands: Any, jaxpr: Any, **meta: Any) -> list[Any]:
    results = ctx.call(jaxpr.jaxpr, "xla_metadata_call", operands)
    for owner in {id(each.owner): each.owner for each in results if isinstance(each, ctx.ir.OpResult)}.values():
        _mark(ctx, owner, {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in meta.items()})
    return results
