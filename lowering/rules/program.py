"""StableHLO rules of `composite` and `dce_sink`."""

from __future__ import annotations

from typing import Any

import numpy as np

from lowering.module import is_ordered
from lowering.rules import lowers


@lowers("composite")
def _composite(ctx: Any, *operands: Any, jaxpr: Any, name: str, attributes: Any, version: int) -> list[Any]:
    if ctx.leading or is_ordered(jaxpr):  # a composite has no place for sizes or for a token
        return ctx.call(jaxpr.jaxpr, name, operands)
    ir = ctx.ir
    symbol = ctx.builder.function(jaxpr.jaxpr, name)
    given = ir.DictAttr.get({key: _attribute(ctx, value) for key, value in attributes}, ctx.builder.context)
    operation = ctx.op("stablehlo.composite", operands, [ctx.type_of(aval) for aval in ctx.avals_out], {
        "name": ctx.string(name), "composite_attributes": given, "version": ctx.i32(version),
        "decomposition": ir.FlatSymbolRefAttr.get(symbol, ctx.builder.context)})
    return list(operation.results)


def _attribute(ctx: Any, value: Any) -> Any:
    ir = ctx.ir
    match value:
        case bool():
            return ctx.flag(value)
        case int():
            return ctx.i64(value)
        case float():
            return ir.FloatAttr.get(ir.F64Type.get(ctx.builder.context), value, loc=ctx.loc)
        case str():
            return ctx.string(value)
        case tuple():
            return ir.ArrayAttr.get([_attribute(ctx, each) for each in value], ctx.builder.context)
        case np.dtype() | type():
            return ir.TypeAttr.get(ctx.builder.element_type(np.dtype(value)))
    raise TypeError(f"composite: an attribute must be a number, text, dtype or a sequence of these, got {value!r}")


@lowers("dce_sink")
def _dce_sink(ctx: Any, x: Any, *, prevent_mlir_dce: bool) -> list[Any]:
    if prevent_mlir_dce:
        ctx.op("stablehlo.custom_call", [x], [], {"call_target_name": ctx.string("dce_sink"),
                                                  "has_side_effect": ctx.flag(True)})
    return []
