"""StableHLO rule of sharding constraints: an operation of Shardy's."""

from __future__ import annotations

from typing import Any

from lowering.module import physical
from lowering.rules import lowers


@lowers("sharding_constraint")
def _constraint(ctx: Any, x: Any, *, sharding: Any, **params: Any) -> Any:
    meshes = ctx.builder.meshes
    if meshes is None:  # a program for one device
        return x
    attribute = meshes.attribute(sharding, len(physical(ctx.aval_out)[0]))
    return ctx.op("sdy.sharding_constraint", [x], [x.type], {"sharding": attribute}).result
