"""Pallas kernels: a decomposition in interpret mode, otherwise device code in a custom call."""

from __future__ import annotations

import re
from typing import Any

from lowering.buffers import physical
from lowering.kernels import mosaic, triton
from lowering.kernels import mosaic_rules as mosaic_rules
from lowering.kernels import triton_pieces as triton_pieces
from lowering.module import LoweringError
from lowering.rules import DECOMPOSITIONS, lowers
from lowering.rules.foreign import custom_call


@lowers("pallas_call")
def _pallas_call(ctx: Any, *operands: Any, interpret: Any, **params: Any) -> Any:
    if interpret:
        program = DECOMPOSITIONS["pallas_call, interpreted"](ctx.avals_in, ctx.eqn.params)
        return ctx.call(program.jaxpr, "pallas_call", operands)
    if ctx.platform == "cpu":
        raise ValueError("Only interpret mode is supported on CPU backend.")
    if ctx.platform == "gpu":
        return _triton_call(ctx, operands, **params)
    if ctx.platform == "tpu":
        return _mosaic_call(ctx, operands, **params)
    raise LoweringError(f"a pallas_call without interpret=True is not supported on the platform {ctx.platform!r}")


def _name(name: str | None, jaxpr: Any) -> str:
    found = name or getattr(getattr(jaxpr, "debug_info", None), "function", None) or "kernel"
    return re.sub(r"\W", "_", found) or "kernel"


def _triton_call(ctx: Any, operands: Any, *, jaxpr: Any, grid_mapping: Any, input_output_aliases: Any, debug: bool,
                 name: str | None, compiler_params: Any, **params: Any) -> list[Any]:
    """XLA compiles the kernel for a grid, and numbers of warps and stages."""
    name = _name(name, jaxpr)
    text, grid = triton.module_text(name, jaxpr, grid_mapping)
    if debug:
        print(f"The Triton module for the pallas_call {name}:\n{text}")
    num_warps = getattr(compiler_params, "num_warps", None) or 4
    num_stages = getattr(compiler_params, "num_stages", None) or 3
    if num_warps not in (1, 2, 4, 8, 16, 32) or not 1 <= num_stages <= 16:  # XLA would end the process
        raise ValueError(f"CompilerParams: num_warps is a power of two up to 32, num_stages at least 1 and at most 16; got "
                         f"{num_warps} and {num_stages}")
    ir, context = ctx.ir, ctx.builder.context
    numbers = {"num_warps": num_warps, "num_stages": num_stages, **dict(zip(("grid_x", "grid_y", "grid_z"), grid, strict=True))}
    config = ir.DictAttr.get({"name": ctx.string(name), "ir": ctx.string(text), "debug": ctx.flag(debug),
                              **{key: ctx.i32(value) for key, value in numbers.items()}}, context)
    plain = [[tuple(range(len(aval.shape))) for aval in avals] for avals in (ctx.avals_in, ctx.avals_out)]
    return custom_call(ctx, operands, ctx.avals_out, "__gpu$xla.gpu.triton", bool(jaxpr.effects and not ctx.avals_out), config,
                       plain[0], plain[1], input_output_aliases, 4)


def _mosaic_call(ctx: Any, operands: Any, *, jaxpr: Any, grid_mapping: Any, input_output_aliases: Any, debug: bool,
                 name: str | None, compiler_params: Any, cost_estimate: Any, **params: Any) -> list[Any]:
    """libtpu compiles the kernel, which is serialized in the configuration of the call."""
    name = _name(name, jaxpr)
    meshes = ctx.builder.meshes
    text, kernel = mosaic.module_text(name, jaxpr, grid_mapping, compiler_params, {} if meshes is None else meshes.strides())
    if debug:
        print(f"The Mosaic module for the pallas_call {name}:\n{text}")
    config = ctx.string(mosaic.call_config(text, kernel, compiler_params, cost_estimate))
    plain = [[tuple(range(len(physical(aval)[0]))) for aval in avals] for avals in (ctx.avals_in, ctx.avals_out)]
    effects = getattr(compiler_params, "has_side_effects", False)
    has_effects = getattr(effects, "value", effects) not in (False, "pure")
    return custom_call(ctx, operands, ctx.avals_out, "tpu_custom_call", has_effects, config, plain[0], plain[1],
                       input_output_aliases, 1)
