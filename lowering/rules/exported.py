"""StableHLO rule of `call_exported`: the functions of the exported module join this one, and its `main` is called."""

from __future__ import annotations

from typing import Any

import numpy as np

from lowering.platforms import canonical_name
from lowering.portable import from_artifact, merge, specialise, static_types
from lowering.rules import lowers


@lowers("call_exported")
def _call_exported(ctx: Any, *operands: Any, exported: Any) -> list[Any]:
    builder = ctx.builder
    place = exported.platform_index(builder.platform, canonical_name)
    values, avals = list(operands), list(ctx.avals_in)
    if len(exported.platforms) > 1:
        values.insert(0, ctx.constant(np.int32(place), np.dtype(np.int32)))
    key = (id(exported), tuple(avals))
    found = builder.merged.get(key)
    if found is None:
        if exported.uses_global_constants:
            types = static_types(builder, avals)
            if len(exported.platforms) > 1:
                types.insert(0, builder.tensor_type((), np.dtype(np.int32)))
            module = specialise(exported.mlir_module_serialized, builder.context, types)
        else:
            module = from_artifact(exported.mlir_module_serialized, builder.context)
        found = builder.merged[key] = *merge(builder, module), exported
    symbol, kind, _ = found
    callee = {"callee": ctx.ir.FlatSymbolRefAttr.get(symbol, builder.context)}
    results = list(ctx.op("func.call", values, list(kind.results), callee).results)
    return [results[index] for index in exported.results]
