"""Products of groups of rows with a matrix for each, and of groups of columns with groups of rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxlite import lax
from jaxlite import numpy as jnp
from jaxlite.experimental.pallas.ops.tpu.megablox.ops import gmm as gmm

__all__ = ["gmm", "make_group_metadata", "tgmm"]
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


def make_group_metadata(*, group_sizes: Any, m: int, tm: int, start_group: Any, num_nonzero_groups: int,
                        visit_empty_groups: bool = True) -> Any:
    """In which order a kernel goes through groups of rows and the tiles of `tm` rows that hold them.

    Args:
      group_sizes: how many of the m rows each group has, int32[groups].
      start_group, num_nonzero_groups: the groups that it goes through.
      visit_empty_groups: whether it comes to groups without rows too.
    Returns: ((offsets, group_ids, tile_ids), steps): where groups begin, and where the last one ends; the group and the tile of
      each step, of which the first `steps` count.
    Raises: ValueError if tiles do not divide the rows.

    >>> import jaxlite.numpy as jnp
    >>> (offsets, groups, tiles), steps = make_group_metadata(
    ...     group_sizes=jnp.array([3, 5]), m=8, tm=4, start_group=0, num_nonzero_groups=2)
    >>> groups.tolist(), tiles.tolist(), int(steps)
    ([0, 1, 1], [0, 0, 1], 3)
    """
    if m % tm:
        raise ValueError(f"{m} must be divisible by the size of tiles, {tm}")
    sizes = jnp.asarray(group_sizes)
    number, groups = m // tm, jnp.arange(len(sizes), dtype=jnp.int32)
    ends = jnp.cumsum(sizes)
    first = (ends - sizes) // tm
    tiles = jnp.where(sizes == 0, int(visit_empty_groups), -(-ends // tm) - first)
    group_ids = jnp.repeat(groups, tiles, total_repeat_length=number + len(sizes) - 1)
    steps_within = jnp.arange(len(group_ids), dtype=jnp.int32) - (jnp.cumsum(tiles) - tiles)[group_ids]
    tile_ids = jnp.minimum(first[group_ids] + steps_within, number - 1)
    skipped = jnp.sum(jnp.where(groups < start_group, tiles, 0))
    own = (groups >= start_group) & (groups < start_group + num_nonzero_groups)
    offsets = jnp.concatenate([jnp.zeros(1, jnp.int32), ends])
    return (offsets, jnp.roll(group_ids, -skipped), jnp.roll(tile_ids, -skipped)), jnp.sum(jnp.where(own, tiles, 0))
