"""Attention a block of queries at a time, which the kernels of this folder share.

It is written with the operations of jaxlite, so it runs and has derivatives on every platform. Logits exist for one block of
queries; the backward pass computes them again. Where a kernel that is written by hand takes sizes of blocks, warps and stages,
they are hints here: the number of queries in a block counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxlite import lax
from jaxlite import numpy as jnp
from jaxlite.transforms.checkpoint import checkpoint

MASK_VALUE = -0.7 * float(np.finfo(np.float32).max)


def attend(q: Any, k: Any, v: Any, *, bias: Any = None, segments: Sequence[Any] | None = None, causal: bool = False,
           scale: float = 1.0, rows: int = 128) -> tuple[Any, Any]:
    """Attention of each head.

    Args:
      q: float[batch, heads, q_len, dim].
      k, v: float[batch, heads, kv_len, dim].
      bias: float[batch, heads, q_len, kv_len], added before logits are scaled.
      segments: the segments of queries, int[batch, q_len], and of keys, int[batch, kv_len]; queries see their own alone.
      causal: whether a query sees keys up to its own position only.
      rows: how many queries are computed at a time, if they divide q_len.
    Returns: the attention, with the shape and dtype of `q`, and the logarithm of the sum of the exponentials of the logits,
      float32[batch, heads, q_len].
    """
    batch, heads, length, dim = q.shape

    def block(first: Any, q: Any, bias: Any, ids: Any) -> tuple[Any, Any]:
        logits = jnp.einsum("bhqd,bhkd->bhqk", q, k, preferred_element_type=np.float32)
        if bias is not None:
            logits = logits + bias
        logits = logits * scale
        if ids is not None:
            logits = jnp.where(ids[:, None, :, None] == segments[1][:, None, None, :], logits, MASK_VALUE)  # type: ignore[index]
        if causal:
            seen = first + lax.broadcasted_iota(np.int32, logits.shape, 2) >= lax.broadcasted_iota(np.int32, logits.shape, 3)
            logits = jnp.where(seen, logits, MASK_VALUE)
        top = lax.stop_gradient(logits.max(-1, keepdims=True))
        weights = jnp.exp(logits - top)
        total = weights.sum(-1, keepdims=True)
        out = jnp.einsum("bhqk,bhkd->bhqd", weights.astype(v.dtype), v, preferred_element_type=np.float32) / total
        return out.astype(q.dtype), (jnp.log(total) + top)[..., 0]

    ids = None if segments is None else segments[0]
    if rows >= length or length % rows:
        return block(0, q, bias, ids)
    count = length // rows
    cut = lambda x, axis: None if x is None else jnp.moveaxis(
        x.reshape(*x.shape[:axis], count, rows, *x.shape[axis + 1:]), axis, 0)
    firsts = lax.iota(np.int32, count) * rows
    out, logsumexp = lax.map(lambda part: checkpoint(block)(*part), (firsts, cut(q, 2), cut(bias, 2), cut(ids, 1)))
    return jnp.moveaxis(out, 0, 2).reshape(batch, heads, length, dim), jnp.moveaxis(logsumexp, 0, 2).reshape(
        batch, heads, length)


def attend_one(q: Any, k: Any, v: Any, first: Any = None, last: Any = None, *, scale: float = 1.0,
               soft_cap: float | None = None, mask_value: float = MASK_VALUE) -> tuple[Any, Any, Any]:
    """Attention of one query for each head of each sequence, where groups of heads share keys and values.

    Args:
      q: float[batch, heads, dim].
      k, v: float[batch, kv_heads, kv_len, dim], heads a multiple of kv_heads.
      first, last: int[batch], the keys that are seen: from `first` on, before `last`.
      soft_cap: a bound of logits, which they approach by a tanh.
    Returns: what is not divided yet, float32[batch, heads, dim]; the sum of the exponentials, and the greatest of the logits,
      float32[batch, heads].
    """
    batch, heads, dim = q.shape
    groups = k.shape[1]
    if heads % groups:
        raise ValueError(f"there are {heads} heads of queries, which is not a multiple of the {groups} of keys")
    grouped = q.reshape(batch, groups, heads // groups, dim)
    logits = jnp.einsum("bgnd,bgkd->bgnk", grouped, k, preferred_element_type=np.float32) * scale
    if soft_cap:
        logits = jnp.tanh(logits / soft_cap) * soft_cap
    places = jnp.arange(k.shape[2])
    for bound, compare in ((first, jnp.greater_equal), (last, jnp.less)):
        if bound is not None:
            seen = compare(places, jnp.broadcast_to(bound, (batch,))[:, None])
            logits = jnp.where(seen[:, None, None, :], logits, mask_value)
    top = logits.max(-1)
    weights = jnp.exp(logits - top[..., None])
    out = jnp.einsum("bgnk,bgkd->bgnd", weights, v.astype(np.float32))
    return out.reshape(batch, heads, dim), weights.sum(-1).reshape(batch, heads), top.reshape(batch, heads)
