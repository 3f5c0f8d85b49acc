"""Sparse arrays of random elements."""

from __future__ import annotations

import math

import numpy as np

from jaxlite import numpy as jnp
from jaxlite import random
from jaxlite.core import dtypes
from jaxlite.experimental.sparse.bcoo import BCOO
from jaxlite.transforms.vmap import vmap

__all__ = ["random_bcoo"]
__dir__ = lambda: __all__


def random_bcoo(key, shape, *, dtype=None, indices_dtype=None, nse: float = 0.2, n_batch: int = 0,
                n_dense: int = 0, unique_indices: bool = True, sorted_indices: bool = False, generator=None,
                **kwds) -> BCOO:
    """A BCOO of random elements at random places.

    Args:
      key: a random key.
      shape: of the array; `n_batch` and `n_dense` of its axes are batch and dense axes.
      dtype: of the elements; by default float64, which is float32 without 64-bit types.
      nse: how many elements; below 1, the share of the sparse part that is specified.
      unique_indices: no place occurs twice.
      generator: draws the elements, uniform ones by default: `generator(key, shape, dtype, **kwds)`.
    """
    shape = tuple(shape)
    split = len(shape) - n_dense
    batch, sparse, dense = shape[:n_batch], shape[n_batch:split], shape[split:]
    size = math.prod(sparse)
    count = math.ceil(nse * size) if 0 < nse < 1 else int(nse)
    if not 0 <= count <= size:
        raise ValueError(f"random_bcoo: got {nse=}, expected to be between 0 and {size}")
    keys = random.split(key, 1 + math.prod(batch))  # JAX's use of them: the elements, then the places of each batch
    dtype = dtypes.canonicalize_dtype(np.dtype(np.float64)) if dtype is None else dtype
    kind = indices_dtype or np.int32
    flat = vmap(lambda each: random.choice(each, size, (count,), replace=not unique_indices))(keys[1:])
    places = jnp.array(jnp.unravel_index(flat, sparse)).reshape(len(sparse), *batch, count)
    indices = jnp.moveaxis(places, 0, -1).astype(kind)
    data = (generator or random.uniform)(keys[0], (*batch, count, *dense), dtype, **kwds)
    mat = BCOO((data, indices), shape=shape, unique_indices=unique_indices)
    return mat.sort_indices() if sorted_indices else mat
