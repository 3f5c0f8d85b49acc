"""StableHLO rules of what programs say and ask about shardings."""

from __future__ import annotations

from typing import Any

from lowering import xla
from lowering.module import physical
from lowering.rules import lowers


@lowers("sharding_constraint")
def _constraint(ctx: Any, x: Any, *, sharding: Any, **params: Any) -> Any:
    meshes = ctx.builder.meshes
    if meshes is None:  # a program for one device
        return x
    attribute = meshes.attribute(sharding, len(physical(ctx.aval_out)[0]))
    return ctx.op("sdy.sharding_constraint", [x], [x.type], {"sharding": attribute}).result


@lowers("inspect_sharding")
def _inspect(ctx: Any, x: Any, *, callback: Any) -> list[Any]:
    meshes = ctx.builder.meshes
    if meshes is None:
        callback(None, None)
        return []

    def tell(found: Any) -> None:
        callback(found, meshes.mesh)

    ctx.builder.host_functions.append(tell)  # XLA calls it during the compile; so it lives that long, and nothing is cached
    ctx.op("stablehlo.custom_call", [x], [x.type], {
        "call_target_name": ctx.string("InspectSharding"), "api_version": ctx.i32(1), "has_side_effect": ctx.flag(True),
        "backend_config": ctx.string(xla.inspection_key(tell))})
    return []
