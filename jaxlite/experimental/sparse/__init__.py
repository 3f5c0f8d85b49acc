"""Sparse arrays: BCOO and BCSR for batches, COO, CSR and CSC for matrices, and `sparsify` for functions of them.

>>> import jaxlite.numpy as jnp
>>> from jaxlite.experimental import sparse
>>> m = sparse.BCOO.fromdense(jnp.array([[0.0, 1.0], [2.0, 0.0]]))
>>> print((m.T @ m).todense())
[[4. 0.]
 [0. 1.]]
"""

from __future__ import annotations

import math
from typing import Any

import numpy as _np

from jaxlite import numpy as _jnp
from jaxlite import random as _random
from jaxlite.core.lazy import Lazy as _Lazy
from jaxlite.experimental.sparse.base import (
    CuSparseEfficiencyWarning,
    JAXSparse,
    SparseEfficiencyError,
    SparseEfficiencyWarning,
)
from jaxlite.experimental.sparse.bcoo import (
    BCOO,
    bcoo_broadcast_in_dim,
    bcoo_concatenate,
    bcoo_conv_general_dilated,
    bcoo_dot_general,
    bcoo_dot_general_sampled,
    bcoo_dynamic_slice,
    bcoo_extract,
    bcoo_fromdense,
    bcoo_gather,
    bcoo_multiply_dense,
    bcoo_multiply_sparse,
    bcoo_reduce_sum,
    bcoo_reshape,
    bcoo_rev,
    bcoo_slice,
    bcoo_sort_indices,
    bcoo_squeeze,
    bcoo_sum_duplicates,
    bcoo_todense,
    bcoo_transpose,
    bcoo_update_layout,
)
from jaxlite.experimental.sparse.compressed import (
    BCSR,
    COO,
    CSC,
    CSR,
    bcsr_broadcast_in_dim,
    bcsr_concatenate,
    bcsr_dot_general,
    bcsr_extract,
    bcsr_fromdense,
    bcsr_sum_duplicates,
    bcsr_todense,
    coo_fromdense,
    coo_matmat,
    coo_matvec,
    coo_todense,
    csr_fromdense,
    csr_matmat,
    csr_matvec,
    csr_todense,
)
from jaxlite.experimental.sparse.derivatives import grad, jacfwd, jacobian, jacrev, value_and_grad
from jaxlite.experimental.sparse.transform import sparsify

_lazy = _Lazy(__name__, modules=["linalg"])
__getattr__ = _lazy.load
__dir__ = _lazy.names

_FORMATS: dict[str, Any] = {"bcoo": BCOO, "bcsr": BCSR, "coo": COO, "csr": CSR, "csc": CSC}


def todense(arr: Any) -> Any:
    """The dense array of a sparse one; a dense one stays as it is."""
    return arr.todense() if isinstance(arr, JAXSparse) else arr


def _format(name: str) -> Any:
    if name not in _FORMATS:
        raise ValueError(f"sparse_format={name!r} not recognized; must be one of {[*_FORMATS]}")
    return _FORMATS[name]


def empty(shape: Any, dtype: Any = None, index_dtype: Any = "int32", sparse_format: str = "bcoo", **kwds: Any) -> Any:
    """A sparse array without elements.

    Args: `shape`, `dtype`; `sparse_format` 'bcoo', 'bcsr', 'coo', 'csr' or 'csc'; for BCOO also `n_batch`, `n_dense`, `nse`.
    """
    kind = _format(sparse_format)
    if kind is BCOO:
        return BCOO._empty(tuple(shape), dtype=dtype, index_dtype=_np.dtype(index_dtype), **kwds)
    return kind.fromdense(_jnp.zeros(shape, dtype), index_dtype=_np.dtype(index_dtype), **kwds)


def eye(N: int, M: int | None = None, k: int = 0, dtype: Any = None, index_dtype: Any = "int32", sparse_format: str = "bcoo",
        **kwds: Any) -> Any:
    """Ones on the k-th diagonal of an (N, M) matrix."""
    dense = _jnp.eye(N, N if M is None else M, k, dtype=dtype)
    return _format(sparse_format).fromdense(dense, index_dtype=_np.dtype(index_dtype), **kwds)


def random_bcoo(key: Any, shape: Any, *, dtype: Any = _np.float32, indices_dtype: Any = None, nse: float = 0.2,
                n_batch: int = 0, n_dense: int = 0, unique_indices: bool = True, sorted_indices: bool = False,
                generator: Any = None, **kwds: Any) -> BCOO:
    """A BCOO of random elements at random places.

    Args:
      key: a random key.
      shape: of the array; `n_batch` and `n_dense` of its axes are batch and dense axes.
      nse: how many elements; below 1, the share of the sparse part that is specified.
      unique_indices: no place occurs twice.
      generator: draws the elements, uniform ones by default: `generator(key, shape, dtype, **kwds)`.
    """
    shape = tuple(shape)
    split = len(shape) - n_dense
    batch, sparse, dense = shape[:n_batch], shape[n_batch:split], shape[split:]
    size = math.prod(sparse)
    count = math.ceil(nse * size) if 0 < nse < 1 else int(nse)
    places_key, elements_key = _random.split(key)
    kind = indices_dtype or _np.int32
    keys = _random.split(places_key, max(1, math.prod(batch)))
    flat = _jnp.stack([_random.choice(each, size, (count,), replace=not unique_indices) for each in keys])
    indices = _jnp.stack(_jnp.unravel_index(flat, sparse), -1).astype(kind).reshape(*batch, count, len(sparse))
    data = (generator or _random.uniform)(elements_key, (*batch, count, *dense), dtype, **kwds)
    mat = BCOO((data, indices), shape=shape, unique_indices=unique_indices)
    return mat.sort_indices() if sorted_indices else mat
