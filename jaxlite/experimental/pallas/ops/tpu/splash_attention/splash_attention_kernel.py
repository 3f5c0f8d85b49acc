"""Attention under masks that are known when a program is traced.

The functions are written with the operations of jaxlite, so they run and have derivatives on every platform, and XLA
chooses how: sizes of blocks and layouts are hints for kernels that are written by hand, and are checked but not used.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from jaxlite import lax
from jaxlite import numpy as jnp
from jaxlite.core.tree_nodes import register_pytree_node_class
from jaxlite.experimental.pallas.ops.tpu.splash_attention.splash_attention_mask import Mask, MultiHeadMask, NumpyMask
from jaxlite.sharding import NamedSharding, PartitionSpec

DEFAULT_MASK_VALUE = -0.7 * float(np.finfo(np.float32).max)


class SegmentIds(NamedTuple):
    """Segments of queries and of keys, int[q_len] and int[kv_len]: a query sees keys of its own segment alone."""

    q: Any
    kv: Any


class QKVLayout(enum.IntEnum):
    """Which of the last two axes of an operand is contiguous."""

    HEAD_DIM_MINOR = 1
    SEQ_MINOR = 2


@dataclasses.dataclass(frozen=True)
class BlockSizes:
    """Sizes of the blocks of queries and keys, forward and backward. Blocks that are computed at a time are whole by default.

    Raises: ValueError for sizes of a backward pass for queries of their own, if `use_fused_bwd_kernel` asks for none.
    """

    block_q: int
    block_kv: int
    block_kv_compute: int | None = None
    block_q_dkv: int | None = None
    block_kv_dkv: int | None = None
    block_kv_dkv_compute: int | None = None
    block_q_dq: int | None = None
    block_kv_dq: int | None = None
    use_fused_bwd_kernel: bool = False
    q_layout: QKVLayout = QKVLayout.HEAD_DIM_MINOR
    k_layout: QKVLayout = QKVLayout.HEAD_DIM_MINOR
    v_layout: QKVLayout = QKVLayout.HEAD_DIM_MINOR

    def __post_init__(self) -> None:
        if self.use_fused_bwd_kernel and (self.block_q_dq, self.block_kv_dq) != (None, None):
            raise ValueError("Block sizes for dq kernel are not needed with a fused kernel.")
        for name, whole in (("block_kv_compute", self.block_kv), ("block_kv_dkv_compute", self.block_kv_dkv)):
            if getattr(self, name) is None:
                object.__setattr__(self, name, whole)

    @property
    def has_backward_blocks(self) -> bool:
        """Whether the sizes for a backward pass are there."""
        own = () if self.use_fused_bwd_kernel else (self.block_q_dq, self.block_kv_dq)
        return None not in (self.block_q_dkv, self.block_kv_dkv, self.block_kv_dkv_compute, *own)

    @classmethod
    def get_default(cls) -> BlockSizes:
        """Blocks of 128."""
        return cls(128, 128, 128, 128, 128, 128, 128, 128)


@register_pytree_node_class
class SplashAttentionKernel:
    """Attention under one mask: `kernel(q, k, v, segment_ids)`. A pytree, whose leaf is the mask."""

    def __init__(self, mask: Any, is_mqa: bool, mask_value: float, soft_cap: float | None, save_residuals: bool,
                 sharded: tuple[int, int] = (1, 1)):
        self.mask = mask
        self.options = (is_mqa, mask_value, soft_cap, save_residuals, sharded)

    def tree_flatten(self) -> tuple[tuple[Any, ...], Any]:
        return (self.mask,), self.options

    @classmethod
    def tree_unflatten(cls, options: Any, children: tuple[Any, ...]) -> SplashAttentionKernel:
        return cls(*children, *options)

    def manual_sharding_spec(self, sharding: NamedSharding) -> SplashAttentionKernel:
        """The same tree with a PartitionSpec for its leaf: how `shard_map` cuts the kernel along heads and queries."""
        spec = sharding.spec
        return SplashAttentionKernel(PartitionSpec(*spec[:2]), *self.options)  # type: ignore[arg-type]

    def __call__(self, q: Any, k: Any, v: Any, segment_ids: SegmentIds | None = None, sinks: Any = None) -> Any:
        """Attention of each head. Queries are not scaled.

        Args:
          q: float[heads, q_len, dim].
          k, v: float[kv_heads, kv_len, dim], heads a multiple of kv_heads; without the first axis if all heads share them.
          segment_ids: what queries see besides, `SegmentIds`.
          sinks: float[heads], logits that take weight and give no value.

        Returns: float[heads, q_len, dim], and if residuals were requested, the logarithm of the sum of the exponentials of
        the logits, float32[heads, q_len], beside it.
        """
        is_mqa, mask_value, soft_cap, save_residuals, _ = self.options
        if is_mqa:
            k, v = k[None], v[None]
        heads = q.shape[0]
        if heads % k.shape[0]:
            raise ValueError(f"there are {heads} heads of queries, which is not a multiple of the {k.shape[0]} of keys")
        if self.mask.shape != (heads, q.shape[1], k.shape[1]):
            raise ValueError(f"the mask is of shape {self.mask.shape}, not {(heads, q.shape[1], k.shape[1])} as the heads, "
                             "queries and keys are")
        grouped = q.reshape(k.shape[0], heads // k.shape[0], *q.shape[1:])
        logits = jnp.einsum("gnqd,gkd->gnqk", grouped, k, preferred_element_type=np.float32).reshape(heads, q.shape[1], -1)
        if soft_cap is not None:
            logits = jnp.tanh(logits / soft_cap) * soft_cap
        seen = self.mask if segment_ids is None else self.mask & (segment_ids.q[:, None] == segment_ids.kv[None, :])
        logits = jnp.where(seen, logits, mask_value)
        top = logits.max(-1, keepdims=True)
        if sinks is not None:
            top = jnp.maximum(top, sinks[:, None, None].astype(np.float32))
        top = lax.stop_gradient(top)
        weights = jnp.exp(logits - top)
        total = weights.sum(-1, keepdims=True)
        if sinks is not None:
            total = total + jnp.exp(sinks[:, None, None].astype(np.float32) - top)
        shares = (weights / total).reshape(k.shape[0], -1, *weights.shape[1:])
        out = jnp.einsum("gnqk,gkd->gnqd", shares, v.astype(np.float32)).reshape(heads, q.shape[1], -1).astype(q.dtype)
        return (out, (jnp.log(total[..., 0]) + top[..., 0],)) if save_residuals else out


def _make(mask: Any, *, block_sizes: BlockSizes | None = None, is_mqa: bool, save_residuals: bool = False,
          mask_value: float = DEFAULT_MASK_VALUE, attn_logits_soft_cap: float | None = None, downcast_smem_data: bool = True,
          head_shards: int, q_seq_shards: int, residual_checkpoint_name: str | None = None, interpret: bool = False,
          ) -> SplashAttentionKernel:
    if isinstance(mask, np.ndarray):
        mask = MultiHeadMask([NumpyMask(each) for each in mask])
    if not isinstance(mask, Mask) or len(mask.shape) != 3:
        raise ValueError(f"a mask has axes for heads, queries and keys: a MultiHeadMask or a bool array, not {mask!r}")
    if mask.shape[0] % head_shards or mask.shape[1] % q_seq_shards:
        raise ValueError(f"a mask of shape {mask.shape} cannot be split into {head_shards} parts of heads, {q_seq_shards} of "
                         "queries")
    return SplashAttentionKernel(jnp.asarray(mask[:, :, :]), is_mqa, mask_value, attn_logits_soft_cap, save_residuals,
                                 (head_shards, q_seq_shards))


def make_splash_mha(mask: Mask | np.ndarray, *, head_shards: int, q_seq_shards: int, **options: Any) -> SplashAttentionKernel:
    """Attention where each head, or group of heads, has keys and values of its own.

    Args:
      mask: which keys each query of each head sees: a `MultiHeadMask`, or bool[heads, q_len, kv_len].
      head_shards, q_seq_shards: into how many parts `shard_map` cuts heads and queries.
      options: `block_sizes`, `save_residuals`, `mask_value`, `attn_logits_soft_cap` and others of hand-written kernels.

    >>> from jaxlite.experimental.pallas.ops.tpu.splash_attention import CausalMask
    >>> kernel = make_splash_mha(MultiHeadMask([CausalMask((4, 4))] * 2), head_shards=1, q_seq_shards=1)
    >>> kernel(*[jnp.ones((2, 4, 8))] * 3).shape
    (2, 4, 8)
    """
    return _make(mask, is_mqa=False, head_shards=head_shards, q_seq_shards=q_seq_shards, **options)


def make_splash_mqa(mask: Mask | np.ndarray, *, head_shards: int, q_seq_shards: int, **options: Any) -> SplashAttentionKernel:
    """Attention where all heads share keys and values, float[kv_len, dim]; otherwise `make_splash_mha`."""
    return _make(mask, is_mqa=True, head_shards=head_shards, q_seq_shards=q_seq_shards, **options)


def _single(make: Callable[..., SplashAttentionKernel], name: str) -> Callable[..., SplashAttentionKernel]:
    def made(mask: Mask | np.ndarray, **options: Any) -> SplashAttentionKernel:
        return make(mask, head_shards=1, q_seq_shards=1, **options)

    made.__name__ = made.__qualname__ = name
    made.__doc__ = f"`{make.__name__}` for arrays on one device."
    return made


make_splash_mha_single_device = _single(make_splash_mha, "make_splash_mha_single_device")
make_splash_mqa_single_device = _single(make_splash_mqa, "make_splash_mqa_single_device")
