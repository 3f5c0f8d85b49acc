"""Sparse arrays of any format: none of their elements, the identity, and back to dense arrays."""

from __future__ import annotations

import operator
from typing import Any

from jaxlite.core import dtypes
from jaxlite.core.tracing import Tracer
from jaxlite.core.tree import tree_flatten, tree_unflatten
from jaxlite.experimental.sparse.base import JAXSparse
from jaxlite.experimental.sparse.bcoo import BCOO
from jaxlite.experimental.sparse.compressed import BCSR, COO, CSC, CSR
from jaxlite.experimental.sparse.primitives import sparse_primitive

__all__ = ["empty", "eye", "todense", "todense_p"]
__dir__ = lambda: __all__

_FORMATS: dict[str, Any] = {"bcoo": BCOO, "bcsr": BCSR, "coo": COO, "csr": CSR, "csc": CSC}


@sparse_primitive("todense")
def todense_p(*parts, tree):
    arr = tree_unflatten(tree, parts)
    return arr.todense() if isinstance(arr, JAXSparse) else arr


def todense(arr):
    """The dense array of a sparse one; a dense one stays as it is."""
    if not isinstance(arr, (JAXSparse, Tracer)):
        return arr
    parts, tree = tree_flatten(arr)
    return todense_p.bind(*parts, tree=tree)


def _format(name: str):
    if name not in _FORMATS:
        raise ValueError(f"sparse_format={name!r} not recognized; must be one of {[*_FORMATS]}")
    return _FORMATS[name]


def empty(shape, dtype=None, index_dtype="int32", sparse_format: str = "bcoo", **kwds):
    """A sparse array without elements.

    Args:
      shape, dtype, index_dtype: of the array, its elements and their places.
      sparse_format: 'bcoo', 'bcsr', 'coo', 'csr' or 'csc'.
      **kwds: of BCOO and BCSR also `n_batch`, `n_dense`, and `nse`, the room for elements.
    """
    index_dtype = dtypes.check_user_dtype_supported(index_dtype, "sparse.empty")
    return _format(sparse_format)._empty(tuple(shape), dtype=dtype, index_dtype=index_dtype, **kwds)


def eye(N: int, M: int | None = None, k: int = 0, dtype=None, index_dtype="int32", sparse_format: str = "bcoo", **kwds):
    """Ones on the k-th diagonal of an (N, M) matrix. Its size is known without values: it works under jit.

    Args:
      N, M, k: rows, columns (None: as many as rows), and the diagonal: above the main one if positive.
      dtype, index_dtype, sparse_format: as of `empty`.
      **kwds: of BCOO also `n_batch` and `n_dense`.
    """
    index_dtype = dtypes.check_user_dtype_supported(index_dtype, "sparse.eye")
    rows = operator.index(N)
    columns = rows if M is None else operator.index(M)
    return _format(sparse_format)._eye(rows, columns, operator.index(k), dtype=dtype, index_dtype=index_dtype, **kwds)
