"""`gmm` by `lax.ragged_dot`, on any platform and with its derivatives; the sizes of tiles are left to XLA."""

from __future__ import annotations

from typing import Any

from jaxlite import lax
from jaxlite import numpy as jnp

__all__ = ["gmm"]
__dir__ = lambda: __all__


def gmm(lhs: Any, rhs: Any, group_sizes: Any, preferred_element_type: Any = jnp.float32, tiling: Any = (128, 128, 128),
        group_offset: Any = None, existing_out: Any = None, transpose_rhs: bool = False, interpret: bool = False) -> Any:
    """`lhs[rows of group i] @ rhs[i - group_offset]` for each group.

    Args:
      lhs: [m, k]; the rows of a group follow those of the group before.
      rhs: [groups, k, n], or [groups, n, k] with `transpose_rhs`: the matrices of groups from `group_offset` on.
      group_sizes: int32, how many rows each group has, of all groups.
      preferred_element_type: the dtype of the result.
      group_offset: which group the first matrix is for, a scalar; by default the first.
      existing_out: [m, n], what the rows of other groups are; by default 0. It must have the dtype of the result.
      tiling, interpret: for compatibility.
    Returns: [m, n].
    """
    if jnp.ndim(lhs) != 2 or jnp.ndim(rhs) != 3:
        raise ValueError(f"gmm takes a matrix and one matrix for each group, got shapes {jnp.shape(lhs)} and {jnp.shape(rhs)}")
    if transpose_rhs:
        rhs = jnp.swapaxes(rhs, 1, 2)
    if existing_out is not None and existing_out.dtype != preferred_element_type:
        raise ValueError(f"gmm: existing_out is of dtype {existing_out.dtype}, the result of "
                         f"{jnp.dtype(preferred_element_type)}")
    groups = rhs.shape[0]
    if group_offset is None and existing_out is None and groups == jnp.shape(group_sizes)[0]:
        return lax.ragged_dot(lhs, rhs, group_sizes, preferred_element_type=preferred_element_type)
    offset: Any = jnp.int32(0) if group_offset is None else jnp.asarray(group_offset, jnp.int32)
    if offset.shape:
        raise ValueError(f"group_offset must be a ()-shaped array. Got: {offset.shape}.")
    ends = jnp.cumsum(group_sizes)
    start = jnp.where(offset > 0, ends[jnp.maximum(offset - 1, 0)], 0)
    own = lax.dynamic_slice(group_sizes, (offset,), (groups,))
    out = lax.ragged_dot(jnp.roll(lhs, -start, 0), rhs, own, preferred_element_type=preferred_element_type)
    row = jnp.arange(lhs.shape[0])[:, None]
    inside = (row >= start) & (row < start + own.sum())
    return jnp.where(inside, jnp.roll(out, start, 0), 0 if existing_out is None else existing_out)
