"""Kernels of Pallas: in interpret mode a decomposition, else code for the device."""

from __future__ import annotations

from typing import Any

from lowering.module import LoweringError
from lowering.rules import lowers


@lowers("pallas_call")
def _pallas_call(ctx: Any, *operands: Any, interpret: Any, **params: Any) -> Any:
    if interpret:
        return NotImplemented
    if ctx.platform == "cpu":
        raise ValueError("Only interpret mode is supported on CPU backend.")
    raise LoweringError(f"a pallas_call without interpret=True is not supported on the platform {ctx.platform!r}")
