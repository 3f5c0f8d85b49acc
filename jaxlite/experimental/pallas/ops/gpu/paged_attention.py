"""Attention of one query for each head over pages of keys and values."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxlite import numpy as jnp
from jaxlite.experimental.pallas.ops.attend import MASK_VALUE, attend_one

DEFAULT_MASK_VALUE = MASK_VALUE
__all__ = ["DEFAULT_MASK_VALUE", "paged_attention", "paged_attention_reference"]
__dir__ = lambda: __all__


def paged_attention(q: Any, k_pages: Any, v_pages: Any, block_tables: Any, lengths: Any, k_scales_pages: Any = None,
                    v_scales_pages: Any = None, *, block_h: int = 16, pages_per_compute_block: int = 8, k_splits: int = 16,
                    num_warps: int = 8, num_stages: int = 2, interpret: bool = False, debug: bool = False,
                    mask_value: float = DEFAULT_MASK_VALUE, attn_logits_soft_cap: float | None = None) -> Any:
    """Attention of each head of each sequence. Logits are not scaled.

    Args:
      q: float[batch, heads, dim].
      k_pages, v_pages: float[kv_heads, pages, page_size, dim]; heads a multiple of kv_heads.
      block_tables: int32[batch, pages_per_sequence], the pages of each sequence.
      lengths: int32[batch], how many keys each sequence has, or None for all of its pages.
      k_scales_pages, v_scales_pages: float[kv_heads, pages, page_size], what each key and value is multiplied by.
      attn_logits_soft_cap: a bound of logits, which they approach by a tanh.
      The others are hints for kernels that are written by hand.
    Returns: the shape and dtype of `q`.
    """

    def of_sequences(pages: Any, scales: Any) -> Any:
        if scales is not None:
            pages = pages.astype(np.float32) * scales[..., None]
        own = jnp.moveaxis(pages[:, block_tables], 1, 0)  # batch, kv_heads, pages, page_size, dim
        return own.reshape(*own.shape[:2], -1, own.shape[-1])

    out, total, _ = attend_one(q, of_sequences(k_pages, k_scales_pages), of_sequences(v_pages, v_scales_pages), None, lengths,
                               soft_cap=attn_logits_soft_cap, mask_value=mask_value)
    return (out / total[..., None]).astype(q.dtype)


def paged_attention_reference(q: Any, k: Any, v: Any, lengths: Any, *, mask_value: float = DEFAULT_MASK_VALUE,
                              attn_logits_soft_cap: float | None = None) -> Any:
    """The same over keys and values that are one array, float[batch, kv_len, kv_heads, dim]."""
    out, total, _ = attend_one(q, k.swapaxes(1, 2), v.swapaxes(1, 2), None, lengths, soft_cap=attn_logits_soft_cap,
                               mask_value=mask_value)
    return (out / total[..., None]).astype(q.dtype)
