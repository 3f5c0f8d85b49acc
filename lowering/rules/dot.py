"""StableHLO rule of `dot_general`, and the precisions of products in XLA's form."""

from __future__ import annotations

import functools
from typing import Any

import ml_dtypes
import numpy as np

from lowering.rules import lowers
from lowering.small_products import are_many, is_repeated, is_summed, summed
from lowering.vector_products import read_in_place

# The algorithm of each preset: the type that operands are rounded to, the accumulator's, the passes, the dtypes of
# operands that are taken as they are, those of results that come as they are, and whether the CPU has it. What is
# taken or comes in another dtype is converted to or from the first one.
_PRESETS: dict[str, tuple[str, str, int, tuple[str, ...], tuple[str, ...], bool]] = {
    "F16_F16_F16": ("f16", "f16", 1, ("float16",), ("float16",), True),
    "F16_F16_F32": ("f16", "f32", 1, ("float16",), ("float32", "float16"), False),
    "BF16_BF16_BF16": ("bf16", "bf16", 1, ("bfloat16", "float32"), ("bfloat16",), False),
    "BF16_BF16_F32": ("bf16", "f32", 1, ("bfloat16", "float32"), ("float32", "bfloat16"), True),
    "BF16_BF16_F32_X3": ("bf16", "f32", 3, ("float32",), ("float32",), True),
    "BF16_BF16_F32_X6": ("bf16", "f32", 6, ("float32",), ("float32",), True),
    "BF16_BF16_F32_X9": ("bf16", "f32", 9, ("float32",), ("float32",), False),
    "TF32_TF32_F32": ("tf32", "f32", 1, ("float32",), ("float32",), False),
    "TF32_TF32_F32_X3": ("tf32", "f32", 3, ("float32",), ("float32",), False),
    "F32_F32_F32": ("f32", "f32", 1, ("float32",), ("float32",), True),
    "F64_F64_F64": ("f64", "f64", 1, ("float64",), ("float64",), True),
}

_SMALL = 8  # rows and columns of matrices that the library does not take

# XLA:CPU fails on products of packed operands: they are widened to these.
PACKED = {"int2": np.dtype(np.int8), "int4": np.dtype(np.int8), "uint2": np.dtype(np.uint8),
           "uint4": np.dtype(np.uint8), "float4_e2m1fn": np.dtype(np.float32)}


@functools.cache
def is_packed(dtype: Any) -> bool:
    """Whether several elements of a dtype share a byte."""
    return dtype.name in PACKED


@functools.lru_cache(1024)
def _numbers_text(lhs_contract: Any, rhs_contract: Any, lhs_batch: Any, rhs_batch: Any) -> str:
    return (f"#stablehlo.dot<lhs_batching_dimensions = {list(lhs_batch)}, rhs_batching_dimensions = {list(rhs_batch)}, "
            f"lhs_contracting_dimensions = {list(lhs_contract)}, rhs_contracting_dimensions = {list(rhs_contract)}>")


@lowers("dot_general")
def _dot_general(ctx: Any, lhs: Any, rhs: Any, *, dimension_numbers: Any, precision: Any, preferred_element_type: Any,
                 out_sharding: Any = None) -> Any:
    left, right = ctx.avals_in
    out = ctx.aval_out
    is_swapped = ctx.platform == "cpu" and gains_by_swapping(left, right, dimension_numbers, precision)
    if is_swapped:
        (left, lhs), (right, rhs), dimension_numbers = (right, rhs), (left, lhs), [each[::-1] for each in dimension_numbers]
    (lhs_contract, rhs_contract), (lhs_batch, rhs_batch) = dimension_numbers
    attributes = {"precision_config": precision_config(ctx, precision)}
    lhs_dtype, rhs_dtype, product_dtype = left.dtype, right.dtype, out.dtype
    if lhs_dtype != rhs_dtype and not (_is_float8(lhs_dtype) and _is_float8(rhs_dtype)):
        lhs_dtype = rhs_dtype = out.dtype  # XLA's products are of one dtype
    if ctx.platform == "cpu" and (is_packed(lhs_dtype) or is_packed(rhs_dtype)):
        product_dtype = PACKED.get(out.dtype.name, out.dtype)
        lhs_dtype = rhs_dtype = product_dtype
    name = getattr(precision, "name", "DEFAULT")
    if hasattr(precision, "lhs_precision_type"):  # an algorithm in detail
        attributes["algorithm"] = ctx.attribute(_algorithm_text(ctx, *precision))
    elif name.startswith("ANY_F8"):
        if ctx.platform == "cpu":
            raise _unsupported(name, ctx)
        if not (_is_float8(lhs_dtype) and _is_float8(rhs_dtype)):
            raise ValueError(f"The dot algorithm {name!r} takes 8-bit floats, got {left.dtype} and {right.dtype}.")
        attributes["algorithm"] = ctx.attribute(_algorithm_text(
            ctx, lhs_dtype, rhs_dtype, "f32", fast=name == "ANY_F8_ANY_F8_F32_FAST_ACCUM"))
    elif name != "DEFAULT":
        rounded, accumulator, passes, operands, results, on_cpu = _PRESETS[name]
        if ctx.platform == "cpu" and not on_cpu:
            raise _unsupported(name, ctx)
        if lhs_dtype != rhs_dtype or lhs_dtype.name not in operands:
            lhs_dtype = rhs_dtype = _dtype(operands[0])
        if out.dtype.name not in results or lhs_dtype == np.float32:
            product_dtype = _dtype(results[0])
        attributes["algorithm"] = ctx.attribute(_algorithm_text(ctx, rounded, rounded, accumulator, passes=passes))
    lhs = lhs if lhs_dtype == left.dtype else ctx.convert(lhs, left.shape, lhs_dtype)
    rhs = rhs if rhs_dtype == right.dtype else ctx.convert(rhs, right.shape, rhs_dtype)
    shapes, dtypes = (left.shape, right.shape), (lhs_dtype, product_dtype)
    is_plain = ctx.platform == "cpu" and not is_swapped and lhs_dtype == rhs_dtype and "algorithm" not in attributes
    are_alone = not ctx.in_loop and are_many(*shapes, dimension_numbers, dtypes)
    if ctx.builder.is_split and (ctx.in_loop or are_alone):
        is_plain = False  # between devices XLA sums up by the operations that it knows
    if is_plain and (are_alone or is_summed(*shapes, dimension_numbers, dtypes, ctx.in_loop)) and not (
            ctx.in_loop and is_repeated((lhs, rhs), shapes, dimension_numbers)):
        result = summed(ctx, lhs, rhs, shapes, dimension_numbers, dtypes, ctx.in_loop or are_alone)
        return result if product_dtype == out.dtype else ctx.convert(result, out.shape, out.dtype)
    shape, batch = out.shape, len(lhs_batch)
    rows = right.ndim - batch - len(rhs_contract)
    if is_swapped:
        shape = (*shape[:batch], *shape[batch + rows:], *shape[batch:batch + rows])
    in_place = None
    if ctx.platform == "cpu" and not ctx.builder.is_split:
        in_place = read_in_place(ctx, [lhs, rhs], shapes, dimension_numbers, (lhs_dtype, rhs_dtype))
    factors, numbers, made, places = in_place or ([lhs, rhs], dimension_numbers, shape, [])
    attributes["dot_dimension_numbers"] = ctx.attribute(_numbers_text(*map(tuple, (*numbers[0], *numbers[1]))))
    result = ctx.value("stablehlo.dot_general", factors, made, product_dtype, **attributes)
    if in_place is not None:
        result = result if places == sorted(places) else ctx.transposed(result, made, places, product_dtype)
        result = result if made == shape else ctx.value("stablehlo.reshape", [result], shape, product_dtype)
    if is_swapped:
        columns = out.ndim - rows
        order = (*range(batch), *range(columns, out.ndim), *range(batch, columns))
        result = ctx.transposed(result, shape, order, product_dtype)
    return result if product_dtype == out.dtype else ctx.convert(result, out.shape, out.dtype)


def gains_by_swapping(left: Any, right: Any, dimension_numbers: Any, precision: Any) -> bool:
    """Whether a product of small matrices takes less time in the other order of its operands, on a CPU.

    XLA copies operands that are not contracted along the last axis of the first and the first axis of the second. A second
    that is contracted along an axis in the middle (the cotangents of a Jacobian) is copied in any case. As the first, it has
    the rows that XLA's library needs for matrices of fewer than eight: else each is a call.
    """
    contract, batch = dimension_numbers
    if len(contract[0]) != 1 or not all(type(extent) is int for extent in (*left.shape, *right.shape)):
        return False
    if isinstance(precision, tuple) and precision[0] != precision[1] or hasattr(precision, "lhs_precision_type"):
        return False
    (rows, axis), (columns, other) = (
        ([extent for place, extent in enumerate(aval.shape) if place not in batch[side]],
         contract[side][0] - sum(place < contract[side][0] for place in batch[side]))
        for side, aval in enumerate((left, right)))
    return axis == 0 and len(rows) == 2 and max(rows) <= _SMALL and 0 < other < len(columns) - 1


def precision_config(ctx: Any, precision: Any) -> Any:
    """The attribute for a pair of precisions, default for None and for algorithms."""
    pair = [each.name for each in precision] if type(precision) is tuple else ["DEFAULT", "DEFAULT"]
    return ctx.attribute("[" + ", ".join(f"#stablehlo<precision {name}>" for name in pair) + "]")


def _dtype(name: str) -> Any:
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def _is_float8(dtype: Any) -> bool:
    return dtype.name.startswith("float8")


def _unsupported(name: str, ctx: Any) -> Exception:
    return ValueError(f"The precision {name!r} is not supported by dot_general on {ctx.platform.upper()}")


def _algorithm_text(ctx: Any, lhs: Any, rhs: Any, accumulator: Any, lhs_count: int = 1, rhs_count: int = 1,
                    passes: int = 1, fast: bool = False) -> str:
    def text(kind: Any) -> str:
        return kind if isinstance(kind, str) and "float" not in kind else str(ctx.builder.element_type(np.dtype(kind)))

    return (f"#stablehlo.dot_algorithm<lhs_precision_type = {text(lhs)}, rhs_precision_type = {text(rhs)}, "
            f"accumulation_type = {text(accumulator)}, lhs_component_count = {lhs_count}, rhs_component_count = "
            f"{rhs_count}, num_primitive_operations = {passes}, allow_imprecise_accumulation = "
            f"{'true' if fast else 'false'}>")
