"""The rule of Threefry's hash on platforms that have a kernel for it."""

from __future__ import annotations

from typing import Any

from lowering.rules import lowers
from lowering.rules.foreign import custom_call


@lowers("threefry2x32")
def _threefry(ctx: Any, *operands: Any) -> Any:
    """The kernel of a GPU's package; elsewhere its operations."""
    if ctx.platform != "gpu":
        return NotImplemented
    layouts = [tuple(range(len(aval.shape))) for aval in ctx.avals_in]
    name = {"cuda": "cu", "rocm": "hip"}[ctx.builder.vendor] + "_threefry2x32_ffi"
    return custom_call(ctx, operands, ctx.avals_out, name, False, ctx.attribute("{}"), layouts, layouts[:2], (), 4)
