"""StableHLO rule of `dot_general`."""

from __future__ import annotations

from typing import Any

import numpy as np

from lowering.rules import lowers

_TYPE_TEXT = {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64"}


@lowers("dot_general")
def _dot_general(ctx: Any, lhs: Any, rhs: Any, *, dimension_numbers: Any, precision: Any, preferred_element_type: Any,
                 out_sharding: Any = None) -> Any:
    left, right = ctx.avals_in
    out = ctx.aval_out
    (lhs_contract, rhs_contract), (lhs_batch, rhs_batch) = dimension_numbers
    numbers = ctx.attribute(
        f"#stablehlo.dot<lhs_batching_dimensions = {list(lhs_batch)}, rhs_batching_dimensions = {list(rhs_batch)}, "
        f"lhs_contracting_dimensions = {list(lhs_contract)}, rhs_contracting_dimensions = {list(rhs_contract)}>")
    attributes = {"dot_dimension_numbers": numbers}
    result_dtype = out.dtype
    if ctx.platform == "cpu" or left.dtype != right.dtype:
        # XLA's CPU product wants operands of one type; narrow floats and integers are widened by it anyway.
        common = _common_operand_type(left.dtype, right.dtype, out.dtype)
        lhs = lhs if left.dtype == common else ctx.convert(lhs, left.shape, common)
        rhs = rhs if right.dtype == common else ctx.convert(rhs, right.shape, common)
        if common != left.dtype and out.dtype == left.dtype:
            result_dtype = common
    if precision is not None:
        if isinstance(precision, tuple) and not hasattr(precision, "accumulation_type"):
            names = ", ".join(f"#stablehlo<precision {each.name}>" for each in precision)
            attributes["precision_config"] = ctx.attribute(f"[{names}]")
        else:
            algorithm = precision.algorithm(left.dtype, right.dtype) if hasattr(precision, "algorithm") else precision
            if algorithm is not None and ctx.platform != "cpu":
                attributes["algorithm"] = ctx.attribute(_algorithm_text(algorithm))
    result = ctx.value("stablehlo.dot_general", [lhs, rhs], out.shape, result_dtype, **attributes)
    return result if result_dtype == out.dtype else ctx.convert(result, out.shape, out.dtype)


def _common_operand_type(left: Any, right: Any, out: Any) -> Any:
    if left == right:
        return left
    if left == out or right == out:
        return out
    return out if out.itemsize >= max(left.itemsize, right.itemsize) else np.promote_types(left, right)


def _algorithm_text(algorithm: Any) -> str:
    def name(kind: Any) -> str:
        return "tf32" if kind == "tf32" else _TYPE_TEXT.get(np.dtype(kind).name, np.dtype(kind).name)

    imprecise = "true" if algorithm.allow_imprecise_accumulation else "false"
    return (f"#stablehlo.dot_algorithm<lhs_precision_type = {name(algorithm.lhs_precision_type)}, rhs_precision_type = "
            f"{name(algorithm.rhs_precision_type)}, accumulation_type = {name(algorithm.accumulation_type)}, "
            f"lhs_component_count = {algorithm.lhs_component_count}, rhs_component_count = "
            f"{algorithm.rhs_component_count}, num_primitive_operations = {algorithm.num_primitive_operations}, "
            f"allow_imprecise_accumulation = {imprecise}>")
