"""StableHLO rules of sharding constraints and of inspecting shardings."""

from __future__ import annotations

from typing import Any

import numpy as np

from lowering import xla
from lowering.buffers import physical
from lowering.rules import lowers


@lowers("sharding_constraint")
def _constraint(ctx: Any, x: Any, *, sharding: Any, layout: Any, **params: Any) -> Any:
    x = _held(ctx, x, sharding, ctx.aval_out)
    return x if layout is None or layout.is_auto else _layout_constraint(ctx, x, layout=layout)


def _held(ctx: Any, x: Any, sharding: Any, aval: Any) -> Any:
    """A value with a sharding constraint; one for a single device adds nothing."""
    return x if ctx.builder.meshes is None else ctx.builder.meshes.held(ctx, x, sharding, aval)


@lowers("device_put")
def _device_put(ctx: Any, *operands: Any, devices: Any = None, **params: Any) -> list[Any]:
    results = []
    for x, place, given, aval in zip(operands, devices or (None,) * len(operands), ctx.avals_in, ctx.avals_out, strict=True):
        x = _held(ctx, x, getattr(place, "sharding", place), aval)  # a format has one
        if ctx.platform != "cpu" and given.memory_space is not aval.memory_space:  # of the CPU, all memory is one
            kind = "pinned_host" if aval.memory_space.name == "Host" else "device"
            x = ctx.op("stablehlo.custom_call", [x], [x.type], {
                "call_target_name": ctx.string("annotate_device_placement"), "api_version": ctx.i32(1),
                "has_side_effect": ctx.flag(True),
                "mhlo.frontend_attributes": ctx.attribute(f'{{_xla_buffer_placement = "{kind}"}}')}).result
        results.append(x)
    return results


@lowers("reshard")
def _reshard(ctx: Any, x: Any, *, dst_sharding: Any, concrete_mesh: Any) -> Any:
    meshes = ctx.builder.meshes
    if meshes is None:
        return x
    aval = ctx.aval_out
    rank = len(physical(aval)[0])
    if not dst_sharding.spec.unreduced or dst_sharding.spec.unreduced_kind.name != "sum":
        return meshes.pinned(ctx, x, dst_sharding, rank)

    def put(value: Any) -> Any:
        own = ctx.avals_in[0].layout
        if own is None or not (any(own.spec) or own.spec.unreduced):  # else Shardy takes each device's whole for its part
            whole = dst_sharding.update(spec=dst_sharding.spec.update(
                partitions=[None] * rank, unreduced=frozenset(), reduced=frozenset()))
            value = meshes.pinned(ctx, value, whole, rank)
        return meshes.pinned(ctx, value, dst_sharding, rank)

    if getattr(aval.dtype, "kind", None) != "c":
        return put(x)
    part = np.dtype(f"float{aval.dtype.itemsize * 4}")  # Shardy has no complex zeros, and ends the process
    halves = [put(ctx.value(f"stablehlo.{half}", [x], aval.shape, part)) for half in ("real", "imag")]
    return meshes.pinned(ctx, ctx.value("stablehlo.complex", halves, aval.shape, aval.dtype), dst_sharding, rank)


@lowers("mesh_cast")
def _mesh_cast(ctx: Any, x: Any, *, dst_sharding: Any) -> Any:
    return x


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


@lowers("custom_partitioning")
def _custom_partitioning(ctx: Any, *operands: Any, call: Any, partition: Any, sharding_rule: Any, **params: Any) -> list[Any]:
    meshes = ctx.builder.meshes
    if meshes is None or meshes.is_manual or not operands:  # there is nothing to cut
        return ctx.inline(call.jaxpr, operands)
    rule = partition.rule_text(ctx.avals_in, ctx.avals_out, meshes.mesh)

    platform = ctx.platform

    def answer(*asked: Any) -> Any:
        return partition.per_shard(call, meshes.mesh, meshes.devices, platform, *asked)

    ctx.builder.keep_alive.append(answer)
    attributes = {"call_target_name": ctx.string("CustomSPMDPartitioning"), "api_version": ctx.i32(2),
                  "backend_config": ctx.string(xla.partitioner_key(answer))}
    if rule is not None:
        attributes["sdy.sharding_rule"] = ctx.attribute(rule)
    return list(ctx.op("stablehlo.custom_call", operands, [ctx.type_of(aval) for aval in ctx.avals_out], attributes).results)


@lowers("shard_alike")
def _shard_alike(ctx: Any, x: Any, y: Any) -> list[Any]:
    meshes = ctx.builder.meshes
    if meshes is not None:
        meshes.alike(ctx, x, y)
    return [x, y]


@lowers("layout_constraint")
def _layout_constraint(ctx: Any, x: Any, *, layout: Any) -> Any:
    ctx.builder.sets_layouts = True
    order = layout.minor_to_major(len(physical(ctx.aval_out)[0]))
    layouts = ctx.attribute(f"[dense<{list(order)}> : tensor<{len(order)}xindex>]")
    return ctx.op("stablehlo.custom_call", [x], [x.type], {
        "call_target_name": ctx.string("LayoutConstraint"), "backend_config": ctx.string(""), "operand_layouts": layouts,
        "result_layouts": layouts}).result
