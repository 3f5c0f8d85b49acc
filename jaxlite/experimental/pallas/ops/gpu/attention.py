"""Attention whose logits never exist as a whole; heads are the third axis."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from jaxlite import nn
from jaxlite import numpy as jnp
from jaxlite.compilation.jit import jit
from jaxlite.experimental.pallas.ops.attend import MASK_VALUE, attend

DEFAULT_MASK_VALUE = MASK_VALUE


@dataclasses.dataclass(frozen=True, slots=True)
class BlockSizes:
    """Sizes of the blocks of queries and keys, forward and backward."""

    block_q: int
    block_k: int
    block_q_dkv: int | None = None
    block_kv_dkv: int | None = None
    block_q_dq: int | None = None
    block_kv_dq: int | None = None

    @classmethod
    def get_default(cls) -> BlockSizes:
        """Blocks of 128, and of 32 backward."""
        return cls(128, 128, 32, 32, 32, 32)

    @property
    def has_backward_blocks(self) -> bool:
        """Whether the sizes for the backward pass are given."""
        return None not in dataclasses.astuple(self)


_DEFAULT = BlockSizes.get_default()


def segment_mask(q_segment_ids: Any, kv_segment_ids: Any) -> Any:
    """Which keys queries see: bool[..., q_len, kv_len]."""
    return q_segment_ids[..., :, None] == kv_segment_ids[..., None, :]


@jit(static_argnames=("sm_scale", "causal", "block_sizes", "backward_pass_impl", "num_warps", "num_stages", "grid", "interpret",
                      "debug", "return_residuals"))
def mha(q: Any, k: Any, v: Any, segment_ids: Any, sm_scale: float = 1.0, causal: bool = False,
        block_sizes: BlockSizes = _DEFAULT, backward_pass_impl: str = "triton", num_warps: int | None = None,
        num_stages: int = 2, grid: tuple[int, ...] | None = None, interpret: bool = False, debug: bool = False,
        return_residuals: bool = False) -> Any:
    """Attention of each head.

    Args:
      q: float[batch, q_len, heads, dim]; `k`, `v`: float[batch, kv_len, heads, dim].
      segment_ids: int[batch, length], or None: which positions see each other.
      sm_scale: what logits are multiplied by.
      causal: whether a query sees keys up to its own position only.
      return_residuals: whether to return the binary logarithm of the sum of the exponentials of the logits too,
        float32[batch, heads, q_len].
    Returns: the shape and dtype of `q`. Raises: ValueError for heads of different sizes.

    >>> mha(*[jnp.ones((1, 4, 2, 8))] * 3, segment_ids=None).shape
    (1, 4, 2, 8)
    """
    if not q.shape[-1] == k.shape[-1] == v.shape[-1]:
        raise ValueError("This kernel expects q, k, and v to have the same head dimension, but found shapes "
                         f"{q.shape}, {k.shape} and {v.shape}.")
    heads_first = [jnp.swapaxes(each, 1, 2) for each in (q, k, v)]
    segments = None if segment_ids is None else (segment_ids, segment_ids)
    out, logsumexp = attend(*heads_first, segments=segments, causal=causal, scale=sm_scale, rows=block_sizes.block_q)
    out = jnp.swapaxes(out, 1, 2)
    return [out, logsumexp * math.log2(math.e)] if return_residuals else out


@jit(static_argnames=("sm_scale", "causal"))
def mha_reference(q: Any, k: Any, v: Any, segment_ids: Any, sm_scale: float = 1.0, causal: bool = False) -> Any:
    """`mha` in plain operations, to compare with; float32."""
    logits = jnp.einsum("bqhd,bkhd->bhqk", q, k, preferred_element_type=np.float32)
    seen: Any = np.bool_(True) if segment_ids is None else segment_mask(segment_ids, segment_ids)[:, None]
    if causal:
        seen = seen & np.tri(*logits.shape[2:], dtype=np.bool_)
    weights = nn.softmax(jnp.where(seen, logits, -np.inf) * sm_scale)
    return jnp.einsum("bhqk,bkhd->bqhd", weights, v, preferred_element_type=np.float32)
