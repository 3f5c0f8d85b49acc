"""The softmax."""

from __future__ import annotations

from typing import Any

from jaxlite import nn

__all__ = ["softmax"]
__dir__ = lambda: __all__


def softmax(x: Any, *, axis: int = -1, num_warps: int = 4, interpret: bool = False, debug: bool = False) -> Any:
    """`nn.softmax` along an axis; the other arguments are hints for kernels that are written by hand."""
    return nn.softmax(x, axis)
