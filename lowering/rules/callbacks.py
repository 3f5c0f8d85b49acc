"""StableHLO rule of host callbacks: a custom call that names a Python function by its index among those of the module."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lowering.buffers import physical
from lowering.module import LoweringError, is_ordered
from lowering.rules import HOST_FUNCTIONS, lowers


@lowers("pure_callback", "io_callback", "debug_callback", "debug_print")
def _callback(ctx: Any, *operands: Any, **params: Any) -> list[Any]:
    name, ordered = ctx.eqn.primitive.name, is_ordered(ctx.eqn)
    function = HOST_FUNCTIONS[name](ctx.avals_in, params)
    results, token = emit_callback(ctx, name, function, ctx.token if ordered else None, operands, ctx.avals_in, ctx.avals_out,
                                   bool(ctx.eqn.effects), params.get("partitioned", False))
    if ordered:
        ctx.token = token
    return results


def emit_callback(ctx: Any, name: str, function: Callable[..., Any], token: Any, operands: Sequence[Any],
                  avals_in: Sequence[Any], avals_out: Sequence[Any], has_side_effect: bool,
                  partitioned: bool = False) -> tuple[list[Any], Any]:
    """The call of a Python function of NumPy arrays; gives the results, and the token after it if there is one before.

    With several devices it is called on one, or if it is `partitioned` on each with the part of the operands that is there.
    """
    if ctx.platform not in ("cpu", "gpu"):
        raise LoweringError(f"{name} runs on CPU and GPU; this program is for the platform {ctx.platform!r}")
    if ctx.in_computation:  # XLA would end the process
        raise LoweringError(f"{name} cannot run inside the function of a reduction, a scatter or similar: call it on the "
                            "operands or the results, or use lax.scan")
    functions, ordered = ctx.builder.host_functions, token is not None
    functions.append(_with_token(function) if ordered else function)
    types = [ctx.type_of(aval) for aval in avals_out]
    layouts_in, layouts_out = _layouts(avals_in), _layouts(avals_out)
    if ordered:
        operands, types = (token, *operands), [ctx.builder.token_type, *types]
        layouts_in, layouts_out = [_no_axes, *layouts_in], [_no_axes, *layouts_out]
    meshes = ctx.builder.meshes
    place = {} if meshes is None or meshes.is_manual else {"sdy.sharding": meshes.on_one_device(len(types))}
    kind = "partitioned_python" if place and partitioned and not ordered else "python"
    attributes = {
        **place,
        "call_target_name": ctx.string(f"xla_ffi_{kind}_{ctx.platform}_callback"), "api_version": ctx.i32(4),
        "has_side_effect": ctx.flag(has_side_effect),
        "backend_config": ctx.attribute(f"{{index = {len(functions) - 1} : ui64}}"),
        "operand_layouts": ctx.attribute(f"[{', '.join(layouts_in)}]"),
        "result_layouts": ctx.attribute(f"[{', '.join(layouts_out)}]")}

    def call(ctx: Any, values: Sequence[Any]) -> list[Any]:
        return list(ctx.op("stablehlo.custom_call", values, types, attributes).results)

    if meshes is not None and meshes.is_manual:
        results = meshes.on_each(ctx, operands, types, call)
    else:
        results = call(ctx, operands)
    return (results[1:], results[0]) if ordered else (results, None)


_no_axes = "dense<> : tensor<0xindex>"


def _layouts(avals: Sequence[Any]) -> list[str]:
    """NumPy's order of the axes, for each array."""
    ranks = [len(physical(aval)[0]) for aval in avals]
    return [f"dense<{[*range(rank)][::-1]}> : tensor<{rank}xindex>" if rank else _no_axes for rank in ranks]


def _with_token(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function with a token in front of its arguments and of its results."""
    return lambda token, *arrays: (token, *function(*arrays))
