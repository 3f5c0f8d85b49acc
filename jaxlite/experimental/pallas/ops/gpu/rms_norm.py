"""Normalization by the mean of squares."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxlite import lax
from jaxlite import numpy as jnp

__all__ = ["rms_norm", "rms_norm_reference"]
__dir__ = lambda: __all__


def rms_norm(x: Any, weight: Any, bias: Any, num_warps: int | None = None, num_stages: int | None = 3, eps: float = 1e-5,
             backward_pass_impl: str = "triton", interpret: bool = False) -> Any:
    """Values along the last axis with mean square 1, times `weight`, plus `bias`; computed in float32.

    The other arguments are hints for kernels that are written by hand.
    """
    values = x.astype(np.float32)
    return (values * lax.rsqrt(jnp.square(values).mean(-1, keepdims=True) + eps) * weight + bias).astype(x.dtype)


def rms_norm_reference(x: Any, weight: Any, bias: Any, *, eps: float = 1e-5) -> Any:
    """`rms_norm` in the dtype of the arguments, to compare with."""
    return x * lax.rsqrt(jnp.mean(jnp.square(x), -1, keepdims=True) + eps) * weight + bias
