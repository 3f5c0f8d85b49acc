"""What the sparse formats share, as `jax.experimental.sparse.util` names it; and batching that broadcasts."""

from __future__ import annotations

from collections.abc import Callable

from jaxlite.core.tree import tree_leaves, tree_map
from jaxlite.core.values import aval_of
from jaxlite.experimental.sparse.base import (
    CuSparseEfficiencyWarning,
    Shape,
    SparseEfficiencyError,
    SparseEfficiencyWarning,
    SparseInfo,
)
from jaxlite.transforms.vmap import vmap

__all__ = ["CuSparseEfficiencyWarning", "Shape", "SparseEfficiencyError", "SparseEfficiencyWarning", "SparseInfo",
           "broadcasting_vmap", "nfold_vmap"]
__dir__ = lambda: __all__


def broadcasting_vmap(fun: Callable, in_axes=0, out_axes=0) -> Callable:
    """`vmap` where arguments of batch size 1 go with any batch.

    >>> import jaxlite.numpy as jnp
    >>> print(broadcasting_vmap(lambda x, y: x + y)(jnp.arange(3.0), jnp.ones(1)))
    [1. 2. 3.]
    """

    def batched(*args):
        axes = list(in_axes) if isinstance(in_axes, (tuple, list)) else [in_axes] * len(args)
        sizes = [None if axis is None else max(aval_of(leaf).shape[axis] for leaf in tree_leaves(arg))
                 for arg, axis in zip(args, axes, strict=True)]
        batch = max((size for size in sizes if size is not None), default=1)
        kept = [axis if size == batch else None for axis, size in zip(axes, sizes, strict=True)]
        squeezed = [tree_map(lambda leaf, axis=axis: leaf.squeeze(axis), arg) if size == 1 != batch else arg
                    for arg, axis, size in zip(args, axes, sizes, strict=True)]
        return vmap(fun, tuple(kept), out_axes)(*squeezed)

    return batched


def nfold_vmap(fun: Callable, N: int, *, broadcasted: bool = True, in_axes=0, out_axes=0) -> Callable:
    """A function batched `N` times, by `broadcasting_vmap` or by `vmap`."""
    for _ in range(N):
        fun = broadcasting_vmap(fun, in_axes, out_axes) if broadcasted else vmap(fun, in_axes, out_axes)
    return fun
