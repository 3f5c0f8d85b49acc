"""StableHLO rule of `conv_general_dilated`."""

from __future__ import annotations

from typing import Any

from lowering.buffers import real_dtype
from lowering.padding import is_symbolic, pad
from lowering.rules import lowers
from lowering.rules.dot import PACKED, precision_config


@lowers("conv_general_dilated")
def _conv_general_dilated(ctx: Any, lhs: Any, rhs: Any, *, window_strides: Any, padding: Any, lhs_dilation: Any,
                          rhs_dilation: Any, dimension_numbers: Any, feature_group_count: int, batch_group_count: int,
                          precision: Any, preferred_element_type: Any, out_sharding: Any = None) -> Any:
    rank = len(window_strides)
    numbers = ctx.attribute(
        f"#stablehlo.conv<[{_spec(dimension_numbers.lhs_spec, 'bf')}]x[{_spec(dimension_numbers.rhs_spec, 'oi')}]->"
        f"[{_spec(dimension_numbers.out_spec, 'bf')}]>")
    attributes = {
        "window_strides": ctx.i64s(window_strides), "lhs_dilation": ctx.i64s(lhs_dilation),
        "rhs_dilation": ctx.i64s(rhs_dilation), "window_reversal": ctx.bools([False] * rank),
        "dimension_numbers": numbers, "feature_group_count": ctx.i64(feature_group_count),
        "batch_group_count": ctx.i64(batch_group_count), "precision_config": precision_config(ctx, precision),
    }  # fmt: skip
    left, right = ctx.avals_in
    if is_symbolic(padding):  # `stablehlo.pad` can have such a padding
        pads, apart = [(0, 0)] * (rank + 2), [1] * (rank + 2)
        for axis, pair, dilation in zip(dimension_numbers.lhs_spec[2:], padding, lhs_dilation, strict=True):
            pads[axis], apart[axis] = pair, dilation
        lhs = pad(ctx, lhs, ctx.constant(0, left.dtype), left.shape, pads, left.dtype, dilation=apart)
        left = left.update(shape=tuple((size - 1) * step + 1 + low + high
                                       for size, step, (low, high) in zip(left.shape, apart, pads, strict=True)))
        padding, attributes["lhs_dilation"] = [(0, 0)] * rank, ctx.i64s([1] * rank)
    if rank:
        attributes["padding"] = ctx.dense_i64(padding)
    out = ctx.aval_out
    product_dtype = out.dtype
    if ctx.platform == "cpu" and left.dtype.name in PACKED:
        product_dtype = PACKED.get(out.dtype.name, out.dtype)
        lhs, rhs = ctx.convert(lhs, left.shape, product_dtype), ctx.convert(rhs, right.shape, product_dtype)
    # XLA:CPU makes one complex convolution of all groups, with filters of zeros, by which NaN comes from one to another.
    if product_dtype.kind == "c" and (ctx.platform == "gpu" or max(feature_group_count, batch_group_count) > 1):
        return _complex_by_parts(ctx, lhs, rhs, left.shape, right.shape, attributes)
    result = ctx.value("stablehlo.convolution", [lhs, rhs], out.shape, product_dtype, **attributes)
    return result if product_dtype == out.dtype else ctx.convert(result, out.shape, out.dtype)


def _complex_by_parts(ctx: Any, lhs: Any, rhs: Any, left: Any, right: Any, attributes: dict[str, Any]) -> Any:
    """By three real convolutions, where XLA has no good complex ones. For (a + bi)(c + di), c(a + b) is in both parts.

    Args: `left` and `right` the shapes.
    """
    shape, dtype = ctx.aval_out.shape, ctx.aval_out.dtype
    part = real_dtype(dtype)

    def convolve(x: Any, y: Any) -> Any:
        return ctx.value("stablehlo.convolution", [x, y], shape, part, **attributes)

    a, b = (ctx.value(f"stablehlo.{name}", [lhs], left, part) for name in ("real", "imag"))
    c, d = (ctx.value(f"stablehlo.{name}", [rhs], right, part) for name in ("real", "imag"))
    shared = convolve(ctx.value("stablehlo.add", [a, b], left, part), c)
    both = convolve(b, ctx.value("stablehlo.add", [c, d], right, part))
    crossed = convolve(a, ctx.value("stablehlo.subtract", [d, c], right, part))
    real = ctx.value("stablehlo.subtract", [shared, both], shape, part)
    imag = ctx.value("stablehlo.add", [shared, crossed], shape, part)
    return ctx.value("stablehlo.complex", [real, imag], shape, dtype)


def _spec(positions: Any, names: str) -> str:
    """`b, 0, 1, f`: what stands at each axis."""
    labels = [""] * len(positions)
    for index, axis in enumerate(positions):
        labels[axis] = names[index] if index < 2 else str(index - 2)
    return ", ".join(labels)
