"""Pytrees of arrays as one flat vector, and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from jaxlite import numpy as jnp
from jaxlite.core import dtypes
from jaxlite.core.tree import Partial, tree_flatten, tree_unflatten
from jaxlite.core.values import aval_of
from jaxlite.lax import shaping
from jaxlite.numpy.api import as_array


def ravel_pytree(pytree: Any) -> tuple[Any, Callable[[Any], Any]]:
    """All leaves of a pytree in one vector, and the function that turns such a vector into a pytree again.

    Returns: (1-d array of the dtype that the leaves promote to, function). The function gives each leaf its shape and
      dtype; it raises ValueError for a vector of another size, TypeError for one of another dtype.

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
        weak = all(aval.weak_type for aval in avals)
        vector = shaping.concatenate([shaping.reshape(shaping.convert(as_array(leaf), dtype, weak), (aval.size,))
                                      for leaf, aval in zip(leaves, avals, strict=True)], 0)
    expected = aval_of(vector)

    def unravel(flat: Any) -> Any:
        given = aval_of(flat)
        if given.dtype != expected.dtype:
            raise TypeError(f"unravel function given array of dtype {given.dtype}, but expected dtype {expected.dtype}")
        if given.shape != expected.shape:
            raise ValueError(f"unravel function given array of shape {given.shape}, but expected shape {expected.shape}")
        pieces = shaping.split(as_array(flat), [aval.size for aval in avals], 0) if avals else []
        return tree_unflatten(tree, [shaping.convert(shaping.reshape(piece, aval.shape), aval.dtype, False)
                                     for piece, aval in zip(pieces, avals, strict=True)])

    return vector, Partial(unravel)
