"""StableHLO rules of calls with custom derivatives, and of checkpoints: plain calls."""

from __future__ import annotations

from typing import Any

from lowering.rules import lowers


@lowers("custom_jvp_call", "custom_vjp_call")
def _custom_call(ctx: Any, *operands: Any, call_jaxpr: Any, **params: Any) -> list[Any]:
    return ctx.inline(call_jaxpr.jaxpr, operands)


@lowers("custom_linear")
def _custom_linear(ctx: Any, *operands: Any, **params: Any) -> Any:
    raise TypeError("can't apply forward-mode autodiff (jvp) to a custom_vjp function.")


@lowers("remat2")
def _checkpoint(ctx: Any, *operands: Any, jaxpr: Any, prevent_cse: bool, differentiated: bool, **params: Any) -> list[Any]:
    if differentiated and prevent_cse and operands:
        # Without a barrier the compiler would find the values computed before, and keep them.
        types = [operand.type for operand in operands]
        operands = tuple(ctx.op("stablehlo.optimization_barrier", operands, types).results)
    return ctx.inline(jaxpr.jaxpr, operands)


@lowers("remat_opt")
def _remat_opt(ctx: Any, *operands: Any, fwd_jaxpr: Any, **params: Any) -> list[Any]:
    return ctx.inline(fwd_jaxpr.jaxpr, operands)


@lowers("name", "remat_kept", "remat_chosen")
def _name(ctx: Any, x: Any, *others: Any, **params: Any) -> Any:
    return x


@lowers("offload")
def _offload(ctx: Any, x: Any, *, src: str, dst: str) -> Any:
    """A note to XLA, that moves the value where the platform has several memories. A CPU has one."""
    if ctx.platform == "cpu":
        return x
    attributes = {"call_target_name": ctx.string("annotate_device_placement"), "has_side_effect": ctx.flag(True),
                  "mhlo.frontend_attributes": ctx.attribute(f'{{_xla_buffer_placement = "{dst}"}}')}
    return ctx.op("stablehlo.custom_call", [x], [ctx.type_of(ctx.avals_out[0])], attributes).results[0]
