"""Products of matrices that are stored with one scale for each block of entries."""

from __future__ import annotations

from typing import Any

from jaxlite import numpy as jnp
from jaxlite.core import dtypes


def scaled_matmul(lhs: Any, rhs: Any, lhs_scales: Any, rhs_scales: Any, preferred_element_type: Any = jnp.float32) -> Any:
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


def _scaled(values: Any, scales: Any) -> Any:
    rows, blocks = values.shape[:2], scales.shape[2]
    split = values.astype(jnp.float32).reshape(*rows, blocks, -1)
    return (split * scales.astype(jnp.float32)[..., None]).reshape(values.shape)
