"""Steps of lowering rules for pyscfad, which has one for a generalized eigenvalue problem: each emits its operations where a
rule is writing, as JAX's functions of these names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxlite import lax
from jaxlite.core.aval import ShapedArray
from jaxlite.extend.lowering_rules import LoweringRuleContext, lower_fun
from lowering import xla


def _emit(ctx: LoweringRuleContext, fun: Any, values: Sequence[Any], avals_in: Sequence[Any], aval_out: ShapedArray) -> Any:
    [result] = lower_fun(fun, multiple_results=False)(ctx.replace(avals_in=list(avals_in), avals_out=[aval_out]), *values)
    return result


def full_like_aval(ctx: LoweringRuleContext, value: Any, aval: ShapedArray) -> Any:
    """One value in every element of an array of a type."""
    return _emit(ctx, lambda: lax.full(aval.shape, value, aval.dtype), (), (), aval)


def _nan_like_hlo(ctx: LoweringRuleContext, aval: ShapedArray) -> Any:
    """NaN in every element; in the real and imaginary parts of complex ones."""
    return full_like_aval(ctx, np.nan if np.dtype(aval.dtype).kind != "c" else complex(np.nan, np.nan), aval)


def compare_hlo(x: Any, y: Any, direction: str, comparison_type: str | None = None) -> Any:
    """Compare values of one type: `direction` is EQ, NE, LT, LE, GT or GE, `comparison_type` as of StableHLO."""
    ir = xla.ir
    kind = x.type
    result = ir.RankedTensorType.get(kind.shape, ir.IntegerType.get_signless(1))
    attributes = {"comparison_direction": ir.Attribute.parse(f"#stablehlo<comparison_direction {direction}>")}
    if comparison_type is not None:
        attributes["compare_type"] = ir.Attribute.parse(f"#stablehlo<comparison_type {comparison_type}>")
    return ir.Operation.create("stablehlo.compare", [result], [x, y], attributes).result


def broadcast_in_dim(ctx: LoweringRuleContext, op: Any, aval_out: ShapedArray, *, broadcast_dimensions: Sequence[int],
                     sharding: Any = None) -> Any:
    """A value as part of a larger array: its axes become `broadcast_dimensions`."""
    axes = tuple(broadcast_dimensions)
    aval = ShapedArray(tuple(op.type.shape), aval_out.dtype)
    return _emit(ctx, lambda x: lax.broadcast_in_dim(x, aval_out.shape, axes), [op], [aval], aval_out)


def _broadcasting_select_hlo(ctx: LoweringRuleContext, which: Any, which_aval: ShapedArray, x: Any, x_aval: ShapedArray, y: Any,
                             y_aval: ShapedArray) -> Any:
    """Elements of x where `which` holds, of y elsewhere; `which` has axes of size 1 where it is for all elements."""

    def chosen(which: Any, x: Any, y: Any) -> Any:
        return lax.select(lax.broadcast_in_dim(which, x.shape, tuple(range(x.ndim))), x, y)

    return _emit(ctx, chosen, [which, x, y], [which_aval, x_aval, y_aval], x_aval)
