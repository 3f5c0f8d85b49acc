"""StableHLO rules of native calls: custom calls to registered handlers, and to Python functions on buffers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lowering.module import LoweringError
from lowering.rules import lowers


@lowers("ffi_call")
def _ffi_call(ctx: Any, *operands: Any, target_name: str, has_side_effect: bool, input_layouts: Any, output_layouts: Any,
              input_output_aliases: Any, custom_call_api_version: int, legacy_backend_config: str | None, attributes: Any,
              **params: Any) -> list[Any]:
    if ctx.in_computation:
        raise LoweringError(f"the native code {target_name!r} cannot run inside the function of a reduction or a scatter")
    if target_name.startswith("__cudnn$") and ctx.platform != "gpu":
        raise LoweringError(f"{target_name} runs on an NVIDIA GPU; this program is for the platform {ctx.platform!r}")
    config = ctx.string(legacy_backend_config or "") if custom_call_api_version < 4 else attribute(ctx, attributes)
    return custom_call(ctx, operands, ctx.avals_out, target_name, has_side_effect, config, input_layouts, output_layouts,
                       input_output_aliases, custom_call_api_version)


@lowers("buffer_callback")
def _buffer_callback(ctx: Any, *operands: Any, callback: Any, has_side_effect: bool, input_output_aliases: Any,
                     **params: Any) -> list[Any]:
    if ctx.platform not in ("cpu", "gpu"):
        raise LoweringError(f"buffer_callback runs on CPU and GPU; this program is for the platform {ctx.platform!r}")
    if ctx.in_computation:
        raise LoweringError("buffer_callback cannot run inside the function of a reduction or a scatter")
    functions = ctx.builder.host_functions
    functions.append(callback)
    config = ctx.attribute(f"{{index = {len(functions) - 1} : ui64}}")
    plain = [[tuple(range(len(getattr(aval, "shape", ())))) for aval in avals] for avals in (ctx.avals_in, ctx.avals_out)]
    return custom_call(ctx, operands, ctx.avals_out, f"xla_buffer_python_{ctx.platform}_callback", has_side_effect, config,
                       plain[0], plain[1], input_output_aliases, 4)


def custom_call(ctx: Any, operands: Sequence[Any], avals_out: Sequence[Any], target: str, has_side_effect: bool, config: Any,
                layouts_in: Any, layouts_out: Any, aliases: Any, version: int) -> list[Any]:
    """A custom call. Layouts have the slowest axis first; `aliases` are pairs of operand and result."""
    several = len(avals_out) > 1
    pairs = ", ".join(
        f"#stablehlo.output_operand_alias<output_tuple_indices = [{result if several else ''}], operand_index = {operand}, "
        "operand_tuple_indices = []>" for operand, result in aliases)
    shapes, which = ctx.shape_operands([getattr(aval, "shape", ()) for aval in avals_out], len(operands))
    layouts_in = [*layouts_in, *[(0,)] * len(shapes)]
    return list(ctx.op("stablehlo.custom_call", [*operands, *shapes], [ctx.type_of(aval) for aval in avals_out], {
        "call_target_name": ctx.string(target), "api_version": ctx.i32(version), "has_side_effect": ctx.flag(has_side_effect),
        "backend_config": config, "operand_layouts": _layouts(ctx, layouts_in), "result_layouts": _layouts(ctx, layouts_out),
        "output_operand_aliases": ctx.attribute(f"[{pairs}]"), **which}).results)


def _layouts(ctx: Any, layouts: Sequence[Sequence[int]]) -> Any:
    """XLA's order, the fastest axis first."""
    return ctx.attribute("[" + ", ".join(
        f"dense<{list(layout)[::-1]}> : tensor<{len(layout)}xindex>" if layout else "dense<> : tensor<0xindex>"
        for layout in layouts) + "]")


def attribute(ctx: Any, value: Any) -> Any:
    """An attribute of a handler, of the type that its value has."""
    ir, context = ctx.ir, ctx.builder.context
    if isinstance(value, (bool, np.bool_)):
        return ctx.flag(bool(value))
    if isinstance(value, bytes):
        return ir.StringAttr.get(value, context)
    if isinstance(value, str):
        return ctx.string(value)
    if isinstance(value, (int, float)) and not isinstance(value, np.generic):
        value = (np.int64 if isinstance(value, int) else np.float64)(value)
    if isinstance(value, np.generic):
        element = ctx.tensor_type((), value.dtype).element_type
        if value.dtype.kind in "iu":
            if value.dtype.kind == "u":
                element = ir.IntegerType.get_unsigned(8 * value.dtype.itemsize, context=context)
            return ir.IntegerAttr.get(element, int(value))
        return ir.FloatAttr.get(element, float(value), loc=ctx.loc)
    if hasattr(value, "array"):
        array = np.asarray(value.array)
        return ir.DenseElementsAttr.get(array, type=ctx.tensor_type((), array.dtype).element_type, shape=array.shape,
                                        context=context)
    if type(value) is tuple:
        return ir.ArrayAttr.get([attribute(ctx, each) for each in value], context)
    return ir.DictAttr.get({name: attribute(ctx, each) for name, each in value if each is not None}, context)
