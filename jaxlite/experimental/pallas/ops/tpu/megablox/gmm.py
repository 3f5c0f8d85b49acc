"""Products of groups of rows with a matrix for each, and of groups of columns with groups of rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxlite import lax
from jaxlite import numpy as jnp
from jaxlite.experimental.pallas.ops.tpu.megablox.ops import gmm as gmm

__all__ = ["gmm", "tgmm"]
__dir__ = lambda: __all__


def tgmm(lhs: Any, rhs: Any, group_sizes: Any, preferred_element_type: Any = jnp.float32, tiling: Any = (128, 128, 128),
         group_offset: Any = None, num_actual_groups: int | None = None, existing_out: Any = None,
         interpret: bool = False) -> Any:
    """`lhs[:, group i] @ rhs[group i]` for each group.

    Args:
      lhs: [k, m]; rhs: [m, n]. The columns of one and the rows of the other are in groups that follow each other.
      group_sizes: int32, how many columns and rows each group has.
      preferred_element_type: the dtype of the result.
      group_offset, num_actual_groups: the first group to compute, a scalar, and how many; by default all.
      existing_out: [groups, k, n], to which the products are added. It must have the dtype of the result.
      tiling, interpret: for compatibility.
    Returns: [groups, k, n].
    """
    if jnp.ndim(lhs) != 2 or jnp.ndim(rhs) != 2:
        raise ValueError(f"tgmm takes two matrices, got shapes {jnp.shape(lhs)} and {jnp.shape(rhs)}")
    if existing_out is not None and existing_out.dtype != preferred_element_type:
        raise ValueError(f"tgmm: existing_out is of dtype {existing_out.dtype}, the result of "
                         f"{jnp.dtype(preferred_element_type)}")
    numbers = lax.RaggedDotDimensionNumbers((([1], [0]), ([], [])), [1], [])
    out = lax.ragged_dot_general(lhs, rhs, group_sizes, numbers, preferred_element_type=np.dtype(np.float32))
    offset: Any = jnp.int32(0) if group_offset is None else jnp.asarray(group_offset, jnp.int32)
    if offset.shape:
        raise ValueError(f"group_offset must be a ()-shaped array. Got: {offset.shape}.")
    out = lax.dynamic_slice_in_dim(out, offset, out.shape[0] if num_actual_groups is None else num_actual_groups)
    return (out if existing_out is None else out + existing_out).astype(preferred_element_type)
