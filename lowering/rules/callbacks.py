"""StableHLO rule of host callbacks: a custom call that names a Python function by its index among those of the module."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lowering.module import LoweringError, is_ordered, physical
from lowering.rules import HOST_FUNCTIONS, lowers


@lowers("pure_callback", "io_callback", "debug_callback", "debug_print")
def _callback(ctx: Any, *operands: Any, **params: Any) -> list[Any]:
    name = ctx.eqn.primitive.name
    if ctx.platform not in ("cpu", "gpu"):
        raise LoweringError(f"{name} runs on CPU and GPU; this program is for the platform {ctx.platform!r}")
    if ctx.in_computation:  # XLA would end the process
        raise LoweringError(f"{name} cannot run inside the function of a reduction, a scatter or the like: call it on what "
                            "goes in or comes out, or use lax.scan")
    functions, ordered = ctx.builder.host_functions, is_ordered(ctx.eqn)
    function = HOST_FUNCTIONS[name](ctx.avals_in, params)
    functions.append(_with_token(function) if ordered else function)
    types = [ctx.type_of(aval) for aval in ctx.avals_out]
    layouts_in, layouts_out = _layouts(ctx.avals_in), _layouts(ctx.avals_out)
    if ordered:
        operands, types = (ctx.token, *operands), [ctx.builder.token_type, *types]
        layouts_in, layouts_out = [_no_axes, *layouts_in], [_no_axes, *layouts_out]
    meshes = ctx.builder.meshes
    place = {} if meshes is None or meshes.is_manual else {"sdy.sharding": meshes.on_one_device(len(types))}
    attributes = {
        **place,
        "call_target_name": ctx.string(f"xla_ffi_python_{ctx.platform}_callback"), "api_version": ctx.i32(4),
        "has_side_effect": ctx.flag(bool(ctx.eqn.effects)),
        "backend_config": ctx.attribute(f"{{index = {len(functions) - 1} : ui64}}"),
        "operand_layouts": ctx.attribute(f"[{', '.join(layouts_in)}]"),
        "result_layouts": ctx.attribute(f"[{', '.join(layouts_out)}]")}

    def call(ctx: Any, values: Sequence[Any]) -> list[Any]:
        return list(ctx.op("stablehlo.custom_call", values, types, attributes).results)

    if meshes is not None and meshes.is_manual:
        results = meshes.on_each(ctx, operands, types, call)
    else:
        results = call(ctx, operands)
    if ordered:
        ctx.token = results.pop(0)
    return results


_no_axes = "dense<> : tensor<0xindex>"


def _layouts(avals: list[Any]) -> list[str]:
    """NumPy's order of the axes, for each array."""
    ranks = [len(physical(aval)[0]) for aval in avals]
    return [f"dense<{[*range(rank)][::-1]}> : tensor<{rank}xindex>" if rank else _no_axes for rank in ranks]


def _with_token(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function with a token in front of its arguments and of its results."""
    return lambda token, *arrays: (token, *function(*arrays))
