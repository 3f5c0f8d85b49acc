"""Products of matrices that are stored with one scale per block of entries."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxlite import lax
from jaxlite import numpy as jnp
from jaxlite.core import dtypes
from jaxlite.core.axes import other_axes
from jaxlite.transforms.custom_derivatives import custom_vjp

__all__ = ["BlockScaleConfig", "get_scaled_dot_general_config", "scaled_dot_general", "scaled_matmul"]


def scaled_matmul(lhs, rhs, lhs_scales, rhs_scales, preferred_element_type=jnp.float32):
    """The product of two batches of matrices over their last axes, each entry times the scale of its block.

    Args:
      lhs, rhs: (B, M, K) and (B, N, K), of any dtype, such as the 8-bit floats.
      lhs_scales, rhs_scales: (B, M, K / size) and (B, N, K / size): one scale for each block of `size` entries in a row.
      preferred_element_type: dtype of the result; sums are in 32 bits.
    Returns: (B, M, N).
    Raises: ValueError for shapes that do not fit.

    >>> import jaxlite.numpy as jnp
    >>> scaled_matmul(jnp.array([[[1, 2, 3]]]), jnp.array([[[4, 5, 6]]]), jnp.array([[[0.5]]]), jnp.array([[[0.5]]]))
    Array([[[8.]]], dtype=float32)
    """
    lhs, rhs, lhs_scales, rhs_scales = map(jnp.asarray, (lhs, rhs, lhs_scales, rhs_scales))
    shapes = f"{lhs.shape}, {rhs.shape}, scales {lhs_scales.shape}, {rhs_scales.shape}"
    if {each.ndim for each in (lhs, rhs, lhs_scales, rhs_scales)} != {3}:
        raise ValueError(f"scaled_matmul requires all inputs to have three axes, got {shapes}")
    if (lhs.shape[0], lhs.shape[2]) != (rhs.shape[0], rhs.shape[2]):
        raise ValueError(f"scaled_matmul requires lhs and rhs of equal batches and contracted axes, got {shapes}")
    if lhs_scales.shape[2] != rhs_scales.shape[2]:
        raise ValueError(f"scaled_matmul requires as many blocks in lhs as in rhs, got {shapes}")
    for values, scales in ((lhs, lhs_scales), (rhs, rhs_scales)):
        if scales.shape[:2] != values.shape[:2]:
            raise ValueError(f"scaled_matmul requires scales for each row of lhs and of rhs, got {shapes}")
        if not scales.shape[2] or values.shape[2] % scales.shape[2]:
            raise ValueError(f"scaled_matmul requires a number of blocks that divides the contracted axis, got {shapes}")
    wide = [_scaled(values, scales) for values, scales in ((lhs, lhs_scales), (rhs, rhs_scales))]
    out = jnp.einsum("bmk,bnk->bmn", *wide, precision="highest")
    return out.astype(dtypes.check_user_dtype_supported(preferred_element_type, "scaled_matmul"))


def _scaled(values, scales):
    rows, blocks = values.shape[:2], scales.shape[2]
    split = values.astype(jnp.float32).reshape(*rows, blocks, values.shape[2] // blocks)
    return (split * scales.astype(jnp.float32)[..., None]).reshape(values.shape)


# --- quantizing on the way ---------------------------------------------------------------------------


@dataclass(frozen=True)
class BlockScaleConfig:
    """How an operand becomes blocks of narrow numbers with a scale each.

    Attributes: `mode`; `block_size`, entries along the contracted axis with one scale; `data_type` and `scale_type`, dtypes;
    `global_scale`, a further one for all of the operand, float32[1]; `infer_only`, without derivatives.
    """

    mode: str
    block_size: int
    data_type: Any
    scale_type: Any
    global_scale: Any
    infer_only: bool


def get_scaled_dot_general_config(mode: str, global_scale=None) -> BlockScaleConfig:
    """The configuration of one operand for `scaled_dot_general`.

    Args:
      mode: 'mxfp8': 32 numbers of float8_e4m3fn and a power of two; 'mxfp4': 32 of float4_e2m1fn and a power of two;
        'nvfp4': 16 of float4_e2m1fn and a float8_e4m3fn.
      global_scale: float32[1], of 'nvfp4' alone; 1 by default.
    Raises: ValueError for another mode.

    >>> get_scaled_dot_general_config("mxfp8").block_size
    32
    """
    if mode in ("mxfp8", "mxfp4"):
        narrow = dtypes.float8_e4m3fn if mode == "mxfp8" else dtypes.float4_e2m1fn
        return BlockScaleConfig(mode, 32, narrow, dtypes.float8_e8m0fnu, None, False)
    if mode == "nvfp4":
        scale = jnp.ones((1,), jnp.float32) if global_scale is None else global_scale
        return BlockScaleConfig(mode, 16, dtypes.float4_e2m1fn, dtypes.float8_e4m3fn, scale, False)
    raise ValueError(f"Unsupported mode: {mode}")


def _quantized(values, config: BlockScaleConfig) -> tuple[Any, Any]:
    """(B, rows, K) as narrow numbers and the scales of their blocks; K grows to whole blocks."""
    blocks = -(-values.shape[2] // config.block_size)
    wide = jnp.pad(values.astype(jnp.float32), ((0, 0), (0, 0), (0, blocks * config.block_size - values.shape[2])))
    split = wide.reshape(*wide.shape[:2], blocks, config.block_size)
    if config.global_scale is not None:
        split = split / config.global_scale.reshape(1, 1, 1, 1)
    largest = float(dtypes.finfo(config.data_type).max)
    needed = jnp.max(abs(split), axis=-1) / largest
    if config.mode in ("mxfp8", "mxfp4"):
        scales, factors = _power_of_two(needed)
    else:
        scales = jnp.minimum(needed, float(dtypes.finfo(config.scale_type).max)).astype(config.scale_type)
        factors = scales.astype(jnp.float32)
        factors = jnp.where(factors == 0, 1, factors)  # all of them are zeros, or nearly
    narrow = jnp.clip(split / factors[..., None], -largest, largest).astype(config.data_type)
    return narrow.reshape(wide.shape), scales


def _power_of_two(values) -> tuple[Any, Any]:
    """The next power of two, as float8_e8m0fnu and as float32."""
    bits = lax.bitcast_convert_type(values, np.uint32)
    exponent, rest = bits >> 23, bits & 0x7FFFFF
    up = (rest > 0) & (exponent != 254) & ~((exponent == 0) & (rest <= 0x400000))
    exponent = jnp.where(up, exponent + 1, exponent)
    factors = jnp.where(exponent == 0, np.float32(2.0**-127), lax.bitcast_convert_type(exponent << 23, np.float32))
    return lax.bitcast_convert_type(exponent.astype(np.uint8), dtypes.float8_e8m0fnu), factors


def _scaled_dot(lhs, rhs, lhs_config: BlockScaleConfig, rhs_config: BlockScaleConfig, dtype):
    (a, a_scales), (b, b_scales) = _quantized(lhs, lhs_config), _quantized(rhs, rhs_config)
    out = scaled_matmul(a, b, a_scales, b_scales, dtype)
    for config in (lhs_config, rhs_config):
        if config.global_scale is not None:
            out = (out * config.global_scale.reshape(1, 1, 1)).astype(dtype)
    return out


def scaled_dot_general(lhs, rhs, dimension_numbers, preferred_element_type=jnp.float32,
                       configs: Sequence[BlockScaleConfig] | None = None, implementation: str | None = None):
    """`lax.dot_general` of operands that are first quantized by blocks; so are those of its derivatives.

    Args:
      lhs, rhs: arrays; dimension_numbers: `((lhs_contracting, rhs_contracting), (lhs_batch, rhs_batch))`.
      preferred_element_type: dtype of the result.
      configs: of lhs, of rhs and of the result's cotangent; see `get_scaled_dot_general_config`. None: as `lax.dot_general`.
      implementation: ignored.
    Returns: batch axes, the other axes of lhs, those of rhs.

    >>> import jaxlite.numpy as jnp
    >>> config = get_scaled_dot_general_config("mxfp8")
    >>> scaled_dot_general(jnp.ones((2, 32)), jnp.ones((3, 32)), (((1,), (1,)), ((), ())), configs=[config] * 3)[0]
    Array([32., 32., 32.], dtype=float32)
    """
    if configs is None:
        return lax.dot_general(lhs, rhs, dimension_numbers, preferred_element_type=preferred_element_type)
    lhs, rhs = jnp.asarray(lhs), jnp.asarray(rhs)
    lhs_config, rhs_config, ct_config = configs
    dtype = dtypes.check_user_dtype_supported(preferred_element_type, "scaled_dot_general")
    contracting, batch = dimension_numbers
    (a, lhs_batch, lhs_free), (b, _, rhs_free) = (
        _in_rows(each, axes, first) for each, axes, first in zip((lhs, rhs), contracting, batch, strict=True))

    @custom_vjp
    def product(a, b):
        return _scaled_dot(a, b, lhs_config, rhs_config, dtype)

    def backward(kept, ct) -> tuple[Any, Any]:
        a, b = kept
        turned = lambda each: jnp.swapaxes(each, 1, 2)
        return (_scaled_dot(ct, turned(b), ct_config, rhs_config, a.dtype),
                _scaled_dot(turned(ct), turned(a), ct_config, lhs_config, b.dtype))

    product.defvjp(lambda a, b: (product(a, b), (a, b)), backward)
    return product(a, b).reshape(*lhs_batch, *lhs_free, *rhs_free)


def _in_rows(values, contracting: Sequence[int], batch: Sequence[int]) -> tuple[Any, list[int], list[int]]:
    """(B, rows, K), and the sizes of the batch axes and of the rows."""
    free = other_axes(values.ndim, (*contracting, *batch))
    sizes = [[values.shape[axis] for axis in axes] for axes in (batch, free, contracting)]
    moved = values.transpose(*batch, *free, *contracting)
    return moved.reshape(*map(math.prod, sizes)), sizes[0], sizes[1]
