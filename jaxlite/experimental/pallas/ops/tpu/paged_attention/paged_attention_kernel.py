"""Attention of one query for each head over pages of keys and values."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxlite import numpy as jnp
from jaxlite.experimental.pallas.ops.attend import MASK_VALUE, attend_one
from jaxlite.experimental.pallas.ops.tpu.paged_attention.quantization_utils import QuantizedTensor, unquantize_from_int8

DEFAULT_MASK_VALUE = MASK_VALUE


def paged_attention(q: Any, k_pages: Any, v_pages: Any, lengths: Any, page_indices: Any, *,
                    mask_value: float = DEFAULT_MASK_VALUE, attn_logits_soft_cap: float | None = None,
                    pages_per_compute_block: int, megacore_mode: str | None = None, inline_seq_dim: bool = True) -> Any:
    """Attention of each head of each sequence. Logits are not scaled.

    Args:
      q: float[batch, heads, dim].
      k_pages, v_pages: float[kv_heads, pages, page_size, dim], or `QuantizedTensor`s of them; heads a multiple of kv_heads.
      lengths: int32[batch], how many keys each sequence has.
      page_indices: int32[batch, pages_per_sequence], the pages of each sequence.
      attn_logits_soft_cap: a bound of logits, which they approach by a tanh.
      The others are hints for kernels that are written by hand.
    Returns: the shape and dtype of `q`. Raises: ValueError for shapes that do not match.
    """
    k_pages, v_pages = (unquantize_from_int8(each, np.float32) if isinstance(each, QuantizedTensor) else each
                        for each in (k_pages, v_pages))
    batch = q.shape[0]
    if k_pages.shape != v_pages.shape:
        raise ValueError(f"k_pages and v_pages must have the same shape. Got {k_pages.shape} and {v_pages.shape}")
    if q.shape[1] % k_pages.shape[0]:
        raise ValueError(f"Number of Q heads must be divisible by number of KV heads. Got {q.shape[1]} and {k_pages.shape[0]}.")
    if q.shape[2] != k_pages.shape[3]:
        raise ValueError(f"head_dim of Q must be the same as that of K/V. Got {q.shape[2]} and {k_pages.shape[3]}.")
    if lengths.shape != (batch,) or page_indices.shape[0] != batch:
        raise ValueError(f"`lengths` and `page_indices` must have the batch size of `q`, {batch}. Got "
                         f"{lengths.shape} and {page_indices.shape}")
    if page_indices.shape[1] % pages_per_compute_block:
        raise ValueError("pages_per_compute_block must be divisible by pages per sequence. Got "
                         f"{pages_per_compute_block} and {page_indices.shape[1]}.")
    if lengths.dtype != np.int32:
        raise ValueError(f"The dtype of `lengths` must be int32. Got {lengths.dtype}")

    def of_sequences(pages: Any) -> Any:
        own = jnp.moveaxis(pages[:, page_indices], 1, 0)  # batch, kv_heads, pages, page_size, dim
        return own.reshape(*own.shape[:2], -1, own.shape[-1])

    out, total, _ = attend_one(q, of_sequences(k_pages), of_sequences(v_pages), None, lengths, soft_cap=attn_logits_soft_cap,
                               mask_value=mask_value)
    return (out / total[..., None]).astype(q.dtype)
