"""Attention of sequences of different lengths over pages of keys and values.

It is written with the operations of jaxlite, a block of queries at a time: sizes of blocks for kernels that are written by
hand are checked but not used.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxlite import lax
from jaxlite import numpy as jnp
from jaxlite.experimental.pallas.ops.attend import MASK_VALUE, attend_one

DEFAULT_MASK_VALUE = MASK_VALUE
_ROWS = 16  # queries in a block: each takes keys and values of its own


def ragged_paged_attention(q: Any, kv_pages: Any, kv_lens: Any, page_indices: Any, cu_q_lens: Any, num_seqs: Any, *,
                           sm_scale: float = 1.0, sliding_window: int | None = None, soft_cap: float | None = None,
                           mask_value: float | None = DEFAULT_MASK_VALUE, k_scale: float | None = None,
                           v_scale: float | None = None, num_kv_pages_per_block: int | None = None,
                           num_queries_per_block: int | None = None, vmem_limit_bytes: int | None = None) -> Any:
    """Attention of the last queries of each sequence, which see keys up to their own position.

    Args:
      q: float[queries, heads, dim], those of the sequences one after the other.
      kv_pages: float[pages, page_size, 2 * kv_heads, dim], the keys of a head and then its values; heads a multiple of
        kv_heads.
      kv_lens: int32[max_seqs], how many keys each sequence has.
      page_indices: int32[max_seqs, pages_per_seq], the pages of each sequence.
      cu_q_lens: int32[max_seqs + 1], at which query each sequence begins, and the last one ends.
      num_seqs: int32[1], how many sequences there are; others and their queries do not count.
      sm_scale: what logits are multiplied by.
      sliding_window: how many keys up to its own position a query sees; by default all.
      soft_cap: a bound of logits, which they approach by a tanh.
      k_scale, v_scale: what keys and values are multiplied by.
      The others are hints for kernels that are written by hand.
    Returns: the shape and dtype of `q`; 0 for queries that do not count. Raises: ValueError for what does not fit.

    >>> pages = jnp.ones((3, 2, 2, 8))
    >>> lengths, indices = jnp.array([3, 1]), jnp.array([[2, 0], [1, 1]])
    >>> ragged_paged_attention(jnp.ones((4, 1, 8)), pages, lengths, indices, jnp.array([0, 2, 3]), jnp.array([2]))[:, 0, 0]
    Array([1., 1., 1., 0.], dtype=float32)
    """
    static_validate_inputs(q, kv_pages, kv_lens, page_indices, cu_q_lens, num_seqs, sliding_window=sliding_window,
                           soft_cap=soft_cap, num_kv_pages_per_block=num_kv_pages_per_block,
                           num_queries_per_block=num_queries_per_block, vmem_limit_bytes=vmem_limit_bytes)
    q, kv_pages, kv_lens, page_indices, cu_q_lens, num_seqs = map(jnp.asarray, (
        q, kv_pages, kv_lens, page_indices, cu_q_lens, num_seqs))
    mask = DEFAULT_MASK_VALUE if mask_value is None else mask_value
    ends = jnp.where(jnp.arange(kv_lens.shape[0]) < num_seqs[0], cu_q_lens[1:], cu_q_lens[num_seqs[0]])

    def attend(query: Any, row: Any) -> Any:
        own = jnp.minimum(jnp.searchsorted(ends, row, "right"), kv_lens.shape[0] - 1)  # the query's sequence
        last = kv_lens[own] - (cu_q_lens[own + 1] - 1 - row)
        pages = kv_pages[page_indices[own]].reshape(-1, kv_pages.shape[2] // 2, 2, q.shape[2]).swapaxes(0, 1)
        keys, values = pages[:, :, 0], pages[:, :, 1]
        keys = keys if k_scale is None else (keys.astype(np.float32) * k_scale).astype(q.dtype)
        values = values if v_scale is None else values.astype(np.float32) * v_scale
        first = None if sliding_window is None else (last - sliding_window)[None]
        out, total, _ = attend_one(query[None], keys[None], values[None], first, last[None], scale=sm_scale, soft_cap=soft_cap,
                                   mask_value=mask)
        return jnp.where(row < cu_q_lens[num_seqs[0]], out[0] / total[0][..., None], 0).astype(q.dtype)

    return lax.map(lambda pair: attend(*pair), (q, jnp.arange(q.shape[0], dtype=np.int32)), batch_size=_ROWS)


def ref_ragged_paged_attention(queries: Any, kv_pages: Any, kv_lens: Any, page_indices: Any, cu_q_lens: Any, num_seqs: Any, *,
                               sm_scale: float = 1.0, sliding_window: int | None = None, soft_cap: float | None = None,
                               mask_value: float | None = DEFAULT_MASK_VALUE, k_scale: float | None = None,
                               v_scale: float | None = None) -> Any:
    """`ragged_paged_attention` without the queries that do not count, whose number must be known."""
    out = ragged_paged_attention(queries, kv_pages, kv_lens, page_indices, cu_q_lens, num_seqs, sm_scale=sm_scale,
                                 sliding_window=sliding_window, soft_cap=soft_cap, mask_value=mask_value, k_scale=k_scale,
                                 v_scale=v_scale)
    return out[:int(cu_q_lens[num_seqs[0]])]


def static_validate_inputs(q: Any, kv_pages: Any, kv_lens: Any, page_indices: Any, cu_q_lens: Any, num_seqs: Any, *,
                           sm_scale: float | None = None, sliding_window: int | None = None, soft_cap: float | None = None,
                           mask_value: float | None = None, k_scale: float | None = None, v_scale: float | None = None,
                           num_kv_pages_per_block: int | None = None, num_queries_per_block: int | None = None,
                           vmem_limit_bytes: int | None = None) -> None:
    """Raise a ValueError where shapes, dtypes or options of `ragged_paged_attention` do not fit."""
    heads, dim = q.shape[1:]
    combined = kv_pages.shape[2]
    count, pages = page_indices.shape
    seqs = "where `max_num_seqs` is `page_indices.shape[0]`."
    if combined % 2:
        raise ValueError(f"kv_pages must have keys and values of each head, got {combined} of them")
    if dim != kv_pages.shape[3]:
        raise ValueError(f"Q head_dim {dim} must be the same as that of K/V {kv_pages.shape[3]}.")
    if kv_lens.shape != (count,):
        raise ValueError(f"Expected kv_lens.shape={kv_lens.shape} to be ({count},) {seqs}")
    if cu_q_lens.shape != (count + 1,):
        raise ValueError(f"Expected cu_q_lens.shape={cu_q_lens.shape} to be ({count + 1},)  {seqs}")
    if num_seqs.shape != (1,):
        raise ValueError(f"num_seqs.shape={num_seqs.shape} must be (1,)")
    if not kv_lens.dtype == page_indices.dtype == cu_q_lens.dtype == np.int32:
        raise ValueError("The dtype of `kv_lens`, `page_indices`, and `cu_q_lens` must be int32. Got "
                         f"kv_lens.dtype={kv_lens.dtype!r}, page_indices.dtype={page_indices.dtype!r}, "
                         f"cu_q_lens.dtype={cu_q_lens.dtype!r}.")
    if heads % (combined // 2):
        raise ValueError(f"num_q_heads={heads} must be divisible by num_kv_heads={combined // 2}")
    if sliding_window is not None and sliding_window <= 0:
        raise ValueError(f"sliding_window={sliding_window} must be positive.")
    if soft_cap is not None and soft_cap == 0.0:
        raise ValueError(f"soft_cap={soft_cap} must not be 0.0.")
    if num_kv_pages_per_block is not None and not 0 < num_kv_pages_per_block <= pages:
        raise ValueError(f"num_kv_pages_per_block={num_kv_pages_per_block} must be in range (0, {pages}].")
    for name, value in (("num_queries_per_block", num_queries_per_block), ("vmem_limit_bytes", vmem_limit_bytes)):
        if value is not None and value <= 0:
            raise ValueError(f"{name}={value} must be positive.")


def dynamic_validate_inputs(q: Any, kv_pages: Any, kv_lens: Any, page_indices: Any, cu_q_lens: Any, num_seqs: Any,
                            **options: Any) -> None:
    """`static_validate_inputs`, and the same for values, which must be known."""
    static_validate_inputs(q, kv_pages, kv_lens, page_indices, cu_q_lens, num_seqs, **options)
    count = int(num_seqs[0])
    most, size, pages = len(kv_lens), kv_pages.shape[1], page_indices.shape[1]
    if count > most:
        raise ValueError(f"num_seqs[0]={count} must be less or equal to max_num_seqs={most}")
    longest = int(np.max(kv_lens))
    if -(-longest // size) > pages:
        raise ValueError(f"pages_per_seq={pages} must be greater or equal to min_pages_per_seq={-(-longest // size)} given "
                         f"max_kv_len={longest} and page_size={size}.")
    starts = np.asarray(cu_q_lens)
    if starts[count] > q.shape[0]:
        raise ValueError(f"Total q tokens {starts[count]} must be less or equal to max_q_tokens={q.shape[0]}")
    for index in range(count):
        own, keys = int(starts[index + 1] - starts[index]), int(kv_lens[index])
        if own > keys:
            raise ValueError(f"q_len={own} of sequence {index} must be less or equal to kv_len={keys}")
