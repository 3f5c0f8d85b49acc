"""A module for several platforms: its first parameter is the index of the platform, an i32, on which it branches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lowering.module import ModuleBuilder, RuleContext


def emit_choice(builder: ModuleBuilder, program: Any, values: Sequence[np.ndarray], targets: Sequence[str],
                 result_names: Sequence[str], names: Sequence[str], arg_attributes: list[dict[str, Any]],
                 result_attributes: list[dict[str, Any]]) -> None:
    """`main` with a branch for each platform, which calls the program lowered for it."""
    ir = builder.ir
    symbols = []
    for target in targets:
        builder.lower_for(target)
        builder._functions.clear()
        symbols.append(builder._unique_symbol(f"main_{target}"))
        builder.emit_function(program, symbols[-1], "private", names=names, constants=values)
    in_types = [builder.i32, *(builder.type_of(var.aval) for var in program.invars)]
    in_types[0] = builder.tensor_type((), np.dtype(np.int32))
    out_types = [builder.type_of(var.aval) for var in program.outvars]
    index = ir.DictAttr.get({"jax.global_constant": ir.StringAttr.get("_platform_index")})
    operation = ir.Operation.create("func.func", [], [], {
        "sym_name": ir.StringAttr.get("main"), "sym_visibility": ir.StringAttr.get("public"),
        "function_type": ir.TypeAttr.get(ir.FunctionType.get(in_types, out_types)),
        "arg_attrs": ir.ArrayAttr.get([index, *map(ir.DictAttr.get, arg_attributes)]),
        "res_attrs": ir.ArrayAttr.get([ir.DictAttr.get({"jax.result_info": ir.StringAttr.get(text), **entry})
                                       for text, entry in zip(result_names, result_attributes, strict=True)]),
    }, None, 1, builder.unknown_location, builder.module_ip)
    block = operation.regions[0].blocks.append(*in_types, arg_locs=[builder.unknown_location] * len(in_types))
    scope = RuleContext(builder, block)
    choice, *arguments = scope.arguments
    branch = scope.op("stablehlo.case", [choice], out_types, {}, regions=len(symbols))
    for place, symbol in enumerate(symbols):
        inside = scope.region(branch, place, [])
        callee = {"callee": ir.FlatSymbolRefAttr.get(symbol, builder.context)}
        inside.op("stablehlo.return", list(inside.op("func.call", arguments, out_types, callee).results), [])
    scope.op("func.return", list(branch.results), [])
