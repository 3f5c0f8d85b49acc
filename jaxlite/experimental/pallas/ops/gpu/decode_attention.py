"""Attention of one query for each head: the next token of each sequence."""

from __future__ import annotations

import math
from typing import Any

from jaxlite import numpy as jnp
from jaxlite.experimental.pallas.ops.attend import attend_one

__all__ = ["gqa", "gqa_reference", "mha_reference", "mqa", "mqa_reference"]
__dir__ = lambda: __all__


def _attend(q: Any, k: Any, v: Any, start_idx: Any, kv_seq_len: Any, sm_scale: float | None, return_residuals: bool,
            normalize_output: bool) -> Any:
    scale = 1 / math.sqrt(q.shape[-1]) if sm_scale is None else sm_scale
    out, total, top = attend_one(q, k, v, start_idx, kv_seq_len, scale=scale)
    out = (out / total[..., None] if normalize_output else out).astype(q.dtype)
    return (out, (total, top)) if return_residuals else out


def mqa(q: Any, k: Any, v: Any, start_idx: Any = None, kv_seq_len: Any = None, sm_scale: float | None = None,
        block_h: int = 16, block_k: int = 256, k_splits: int = 16, num_warps: int | None = None, num_stages: int = 2,
        grid: tuple[int, ...] | None = None, interpret: bool = False, debug: bool = False, return_residuals: bool = False,
        normalize_output: bool = True) -> Any:
    """Attention of float[batch, heads, dim], where all heads share keys and values, float[batch, kv_len, dim].

    Args:
      start_idx, kv_seq_len: int[batch], the keys that are seen: from the first on, before the second.
      sm_scale: what logits are multiplied by; by default one over the square root of `dim`.
      return_residuals: whether to return the sums of the exponentials and the greatest logits too, float32[batch, heads].
      normalize_output: whether the result is divided by those sums.
    """
    return _attend(q, k[:, None], v[:, None], start_idx, kv_seq_len, sm_scale, return_residuals, normalize_output)


def gqa(q: Any, k: Any, v: Any, start_idx: Any = None, kv_seq_len: Any = None, sm_scale: float | None = None,
        block_h: int = 16, block_k: int = 128, k_splits: int = 16, num_warps: int | None = None, num_stages: int = 2,
        grid: tuple[int, ...] | None = None, interpret: bool = False, debug: bool = False, return_residuals: bool = False,
        normalize_output: bool = True) -> Any:
    """`mqa` where groups of heads share keys and values, float[batch, kv_len, kv_heads, dim].

    Raises: NotImplementedError for a result that is not divided by the sums, which are not returned either.
    """
    if not normalize_output and not return_residuals:
        raise NotImplementedError("When normalize_output is False, attention residuals must be returned.")
    return _attend(q, jnp.swapaxes(k, 1, 2), jnp.swapaxes(v, 1, 2), start_idx, kv_seq_len, sm_scale, return_residuals,
                   normalize_output)


def mqa_reference(q: Any, k: Any, v: Any, start_idx: Any = None, kv_seq_len: Any = None, sm_scale: float | None = None,
                  return_residuals: bool = False, normalize_output: bool = True) -> Any:
    """`mqa`, to compare with."""
    return mqa(q, k, v, start_idx, kv_seq_len, sm_scale, return_residuals=return_residuals, normalize_output=normalize_output)


def gqa_reference(q: Any, k: Any, v: Any, start_idx: Any = None, kv_seq_len: Any = None, sm_scale: float | None = None,
                  return_residuals: bool = False, normalize_output: bool = True) -> Any:
    """`gqa`, to compare with."""
    return _attend(q, jnp.swapaxes(k, 1, 2), jnp.swapaxes(v, 1, 2), start_idx, kv_seq_len, sm_scale, return_residuals,
                   normalize_output)


def mha_reference(q: Any, k: Any, v: Any, start_idx: Any = None, kv_seq_len: Any = None, sm_scale: float | None = None) -> Any:
    """`gqa` where each head has keys and values of its own."""
    return gqa(q, k, v, start_idx, kv_seq_len, sm_scale)
