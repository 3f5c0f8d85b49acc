"""Normalization by mean and variance."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxlite import lax
from jaxlite import numpy as jnp

__all__ = ["layer_norm", "layer_norm_reference"]
__dir__ = lambda: __all__


def layer_norm(x: Any, weight: Any, bias: Any, num_warps: int | None = None, num_stages: int | None = 3, eps: float = 1e-5,
               backward_pass_impl: str = "triton", interpret: bool = False) -> Any:
    """Values along the last axis with mean 0 and variance 1, times `weight`, plus `bias`; computed in float32.

    The other arguments are hints for kernels that are written by hand.
    """
    values = x.astype(np.float32)
    centered = values - values.mean(-1, keepdims=True)
    scale = lax.rsqrt(jnp.square(centered).mean(-1, keepdims=True) + eps)
    return (centered * scale * weight + bias).astype(x.dtype)


def layer_norm_reference(x: Any, weight: Any, bias: Any, *, eps: float = 1e-5) -> Any:
    """`layer_norm` in the dtype of the arguments, to compare with."""
    mean = jnp.mean(x, -1, keepdims=True)
    variance = jnp.maximum(0.0, jnp.mean(jnp.square(x), -1, keepdims=True) - jnp.square(mean))
    return (x - mean) * lax.rsqrt(variance + eps) * weight + bias
