"""Attention whose logits never exist as a whole, with a bias and segments."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from jaxlite import numpy as jnp
from jaxlite.compilation.jit import jit
from jaxlite.experimental.pallas.ops.attend import MASK_VALUE, attend

DEFAULT_MASK_VALUE = MASK_VALUE


class SegmentIds(NamedTuple):
    """Segments of queries and of keys, int[batch, q_len] and int[batch, kv_len]: a query sees keys of its own segment alone."""

    q: Any
    kv: Any


@dataclasses.dataclass(frozen=True)
class BlockSizes:
    """Sizes of the blocks of queries and keys, forward and backward."""

    block_q: int
    block_k_major: int
    block_k: int
    block_b: int
    block_q_major_dkv: int | None = None
    block_k_major_dkv: int | None = None
    block_k_dkv: int | None = None
    block_q_dkv: int | None = None
    block_k_major_dq: int | None = None
    block_k_dq: int | None = None
    block_q_dq: int | None = None

    def __post_init__(self) -> None:
        for minor, major in (("block_k", "block_k_major"), ("block_q_dkv", "block_q_major_dkv"),
                             ("block_k_dkv", "block_k_major_dkv"), ("block_k_dq", "block_k_major_dq")):
            small, large = getattr(self, minor), getattr(self, major)
            if small is not None and large is not None and large % small:
                raise ValueError(f"{minor}={small} should divide {major}={large}")

    @property
    def has_backward_blocks(self) -> bool:
        """Whether the sizes for the backward pass are given."""
        return None not in dataclasses.astuple(self)

    @classmethod
    def get_default(cls, batch_size: int, num_heads: int, q_seq_len: int, kv_len: int, d_model: int) -> BlockSizes:
        """Blocks of 128, whatever the sizes of the operands."""
        return cls(128, 128, 128, 1, 128, 128, 128, 128, 128, 128, 128)


def _check(q: Any, k: Any, v: Any, ab: Any, segment_ids: SegmentIds | None) -> None:
    if not len(q.shape) == len(k.shape) == len(v.shape) == 4:
        raise ValueError(f"q, k and v are of shape (batch, heads, length, dim), got {q.shape}, {k.shape} and {v.shape}")
    for axis, what in enumerate(("Batch size", "Head count")):
        if not q.shape[axis] == k.shape[axis] == v.shape[axis]:
            raise ValueError(f"{what} mismatch: got {q.shape[axis]}, {k.shape[axis]} and {v.shape[axis]} (for q, k, v)")
    if q.shape[3] != k.shape[3]:
        raise ValueError(f"Model dimension mismatch: got {q.shape[3]} and {k.shape[3]} (for q and k)")
    if k.shape[2] != v.shape[2]:
        raise ValueError(f"KV sequence length mismatch: got {k.shape[2]} and {v.shape[2]}")
    if q.shape[3] != v.shape[3]:
        raise NotImplementedError(f"values of another size than queries: got {v.shape[3]} and {q.shape[3]}")
    if ab is not None and ab.shape != (*q.shape[:3], k.shape[2]):
        raise ValueError(f"Attention bias shape mismatch: expected {(*q.shape[:3], k.shape[2])}, got {ab.shape}")
    if segment_ids is not None:
        for what, ids, length in (("Q", segment_ids.q, q.shape[2]), ("KV", segment_ids.kv, k.shape[2])):
            if ids.shape != (q.shape[0], length):
                raise ValueError(f"{what} segment ids shape mismatch: expected {(q.shape[0], length)}, got {ids.shape}")


@jit(static_argnames=("causal", "sm_scale", "block_sizes", "debug"))
def flash_attention(q: Any, k: Any, v: Any, ab: Any = None, segment_ids: SegmentIds | None = None, *, causal: bool = False,
                    sm_scale: float = 1.0, block_sizes: BlockSizes | None = None, debug: bool = False) -> Any:
    """Attention of each head.

    Args:
      q: float[batch, heads, q_len, dim]; `k`, `v`: float[batch, heads, kv_len, dim].
      ab: float[batch, heads, q_len, kv_len], a bias of the logits, which is scaled with them.
      causal: whether a query sees keys up to its own position only.
      sm_scale: what logits are multiplied by.
    Returns: the shape and dtype of `q`. Raises: ValueError for shapes that do not match.

    >>> flash_attention(*[jnp.ones((1, 2, 4, 8))] * 3, causal=True).shape
    (1, 2, 4, 8)
    """
    _check(q, k, v, ab, segment_ids)
    return attend(q, k, v, bias=ab, segments=segment_ids, causal=causal, scale=sm_scale,
                  rows=128 if block_sizes is None else block_sizes.block_q)[0]


def mha_reference_no_custom_vjp(q: Any, k: Any, v: Any, ab: Any = None, segment_ids: SegmentIds | None = None, *,
                                causal: bool = False, mask_value: float = DEFAULT_MASK_VALUE, sm_scale: float = 1.0,
                                save_residuals: bool = False) -> Any:
    """The same in plain operations; with `save_residuals`, also the sums of exponentials and the greatest logits."""
    logits = jnp.einsum("bhqd,bhkd->bhqk", q, k)
    logits = (logits if ab is None else logits + ab) * sm_scale
    seen: Any = np.bool_(True) if segment_ids is None else (segment_ids.q[:, None, :, None] == segment_ids.kv[:, None, None, :])
    if causal:
        seen = seen & np.tri(*logits.shape[2:], dtype=np.bool_)
    logits = logits + jnp.where(seen, 0.0, mask_value)
    top = logits.max(-1)
    weights = jnp.exp(logits - top[..., None])
    total = weights.sum(-1)
    out = jnp.einsum("bhqk,bhkd->bhqd", weights / total[..., None], v)
    return (out, total, top) if save_residuals else out


@jit(static_argnames=("causal", "mask_value", "sm_scale"))
def mha_reference(q: Any, k: Any, v: Any, ab: Any, segment_ids: SegmentIds | None = None, causal: bool = False,
                  mask_value: float = DEFAULT_MASK_VALUE, sm_scale: float = 1.0) -> Any:
    """`flash_attention` in plain operations, to compare with."""
    return mha_reference_no_custom_vjp(q, k, v, ab, segment_ids, causal=causal, mask_value=mask_value, sm_scale=sm_scale)
