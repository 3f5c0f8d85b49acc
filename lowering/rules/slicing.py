"""StableHLO rules of static and dynamic slices."""

from __future__ import annotations

from typing import Any

from lowering.rules import lowers


@lowers("slice")
def _slice(ctx: Any, x: Any, *, start_indices: Any, limit_indices: Any, strides: Any) -> Any:
    return ctx.emit1("stablehlo.slice", x, start_indices=ctx.i64s(start_indices),
                     limit_indices=ctx.i64s(limit_indices),
                     strides=ctx.i64s(strides if strides is not None else [1] * len(start_indices)))


@lowers("dynamic_slice")
def _dynamic_slice(ctx: Any, x: Any, *starts: Any, slice_sizes: Any) -> Any:
    return ctx.emit1("stablehlo.dynamic_slice", x, *starts, slice_sizes=ctx.i64s(slice_sizes))


@lowers("dynamic_update_slice")
def _dynamic_update_slice(ctx: Any, x: Any, update: Any, *starts: Any) -> Any:
    return ctx.emit1("stablehlo.dynamic_update_slice", x, update, *starts)
