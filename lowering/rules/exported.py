"""StableHLO rule of `call_exported`: adds the functions of the exported module to this one, and calls its `main`."""

from __future__ import annotations

from typing import Any

import numpy as np

from lowering import xla
from lowering.platforms import canonical_name
from lowering.portable import from_artifact, main_shardings, merge, specialise, static_types
from lowering.rules import lowers


@lowers("call_exported")
def _call_exported(ctx: Any, *operands: Any, exported: Any) -> list[Any]:
    builder = ctx.builder
    devices = 1 if builder.meshes is None else len(builder.meshes.devices)
    if exported.nr_devices not in (1, devices):
        raise ValueError(f"Function {exported.fun_name} was exported for {exported.nr_devices} devices and is called in a "
                         f"context with {devices} devices, which is not allowed.")
    place = exported.platform_index(builder.platform, canonical_name)
    values, avals = list(operands), list(ctx.avals_in)
    if len(exported.platforms) > 1:
        values.insert(0, ctx.constant(np.int32(place), np.dtype(np.int32)))
    key = (id(exported), tuple(avals))
    found = builder.merged.get(key)
    if found is None:
        if exported.uses_global_constants and all(type(size) is int for aval in avals for size in aval.shape):
            types = static_types(builder, avals)
            if len(exported.platforms) > 1:
                types.insert(0, builder.tensor_type((), np.dtype(np.int32)))
            module = specialise(exported.mlir_module_serialized, builder.context, types)
        else:
            module = from_artifact(exported.mlir_module_serialized, builder.context)
        xla.register_calls_in(exported.mlir_module_serialized, builder.platform)
        symbol, kind = merge(builder, module)
        builder.sets_layouts = True  # its contents are unknown
        found = builder.merged[key] = symbol, kind, main_shardings(module) if exported.nr_devices > 1 else ([], []), exported
    symbol, kind, (of_operands, of_results), _ = found
    callee = {"callee": ctx.ir.FlatSymbolRefAttr.get(symbol, builder.context)}
    given = _converted(ctx, _constrained(ctx, values, of_operands), kind.inputs)
    call = ctx.op("func.call", given, list(kind.results), callee)
    results = _constrained(ctx, list(call.results), of_results)
    return _converted(ctx, [results[index] for index in exported.results], static_types(builder, ctx.avals_out))


def _converted(ctx: Any, values: list[Any], types: Any) -> list[Any]:
    """Values with types of other static sizes: where callers and callees both have symbolic dimensions."""
    return [value if value.type == wanted else ctx.op("stablehlo.convert", [value], [wanted]).result
            for value, wanted in zip(values, types, strict=True)]


def _constrained(ctx: Any, values: list[Any], shardings: list[Any]) -> list[Any]:
    return [value if sharding is None else
            ctx.op("sdy.sharding_constraint", [value], [value.type], {"sharding": sharding}).result
            for value, sharding in zip(values, shardings or [None] * len(values), strict=True)]
