"""Padding of operands of windows and convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def is_symbolic(padding: Sequence[Sequence[Any]]) -> bool:
    """Whether sizes of a padding, pairs (low, high), are known only when the program runs."""
    return any(type(size) is not int for pair in padding for size in pair)


def pad(ctx: Any, x: Any, value: Any, shape: Sequence[int], padding: Any, dtype: Any, sign: int = 1,
        dilation: Sequence[int] | None = None) -> Any:
    """Pad by (low, high) for each dimension, or with `sign` -1 take such a padding away. Elements are put `dilation` apart."""
    if not is_symbolic(padding) and not any(map(any, padding)):
        return x
    low, high = ([sign * pair[side] for pair in padding] for side in (0, 1))
    apart = dilation or [1] * len(shape)
    padded = [(size - 1) * step + 1 + before + after
              for size, step, before, after in zip(shape, apart, low, high, strict=True)]
    return ctx.value("stablehlo.pad", [x, value], padded, dtype, edge_padding_low=ctx.i64s(low),
                     edge_padding_high=ctx.i64s(high), interior_padding=ctx.i64s([step - 1 for step in apart]))
