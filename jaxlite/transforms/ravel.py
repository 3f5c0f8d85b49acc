"""Pytrees of arrays as one flat vector, and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from jaxlite import numpy as jnp
from jaxlite.core import dtypes
from jaxlite.core.aval import ShapedArray
from jaxlite.core.filtering import boundary
from jaxlite.core.tree import tree_flatten, tree_unflatten
from jaxlite.core.values import aval_of
from jaxlite.lax import shaping
from jaxlite.numpy.api import as_array


@boundary
def ravel_pytree(pytree: Any) -> tuple[Any, Callable[[Any], Any]]:
    """All leaves of a pytree in one vector, and the function that turns such a vector into a pytree again.

    Returns: (1-d array of the dtype that the leaves promote to, function). The function gives each leaf its shape and
      dtype; it raises ValueError for a vector of another size, TypeError for one of another dtype. Where all leaves have one
      dtype it takes vectors of any, and leaves are of that. Functions for equal trees and types are equal, so they are one
      static argument.

    >>> from jaxlite.transforms.ravel import ravel_pytree
    >>> vector, unravel = ravel_pytree({"a": 1.0, "b": [2.0, 3.0]})
    >>> vector
    Array([1., 2., 3.], dtype=float32, weak_type=True)
    >>> [float(leaf) for leaf in unravel(vector * 2)["b"]]
    [4.0, 6.0]
    """
    leaves, tree = tree_flatten(pytree)
    avals = [aval_of(leaf) for leaf in leaves]
    if not leaves:
        vector = jnp.zeros(0, np.float32)
    else:
        dtype = dtypes.result_type(*leaves)
        weak = all(aval.weak_type and aval.dtype == dtype for aval in avals)
        vector = shaping.concatenate([shaping.reshape(shaping.convert(as_array(leaf), dtype, weak), (aval.size,))
                                      for leaf, aval in zip(leaves, avals, strict=True)], 0)
    return vector, _Unravel(tree, tuple([aval.strip_weak_type() for aval in avals]), aval_of(vector).dtype)


class _Unravel:
    """What makes a tree from a vector; equal for equal trees and types."""

    __slots__ = ("tree", "avals", "dtype")

    def __init__(self, tree: Any, avals: tuple[ShapedArray, ...], dtype: Any):
        self.tree, self.avals, self.dtype = tree, avals, dtype

    def _fields(self) -> tuple[Any, ...]:
        return self.tree, self.avals, self.dtype

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, _Unravel) and self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash(self._fields())

    def __call__(self, flat: Any) -> Any:
        given, avals = aval_of(flat), self.avals
        keeps_dtype = all(aval.dtype == self.dtype for aval in avals)
        if not keeps_dtype and given.dtype != self.dtype:
            raise TypeError(f"unravel function given array of dtype {given.dtype}, but expected dtype {self.dtype}")
        shape = (sum(aval.size for aval in avals),)
        if given.shape != shape:
            raise ValueError(f"unravel function given array of shape {given.shape}, but expected shape {shape}")
        pieces = shaping.split(as_array(flat), [aval.size for aval in avals], 0) if avals else []
        leaves = [shaping.reshape(piece, aval.shape) for piece, aval in zip(pieces, avals, strict=True)]
        if not keeps_dtype:
            leaves = [shaping.convert(leaf, aval.dtype, False) for leaf, aval in zip(leaves, avals, strict=True)]
        return tree_unflatten(self.tree, leaves)
