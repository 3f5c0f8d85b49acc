"""Sparse arrays: BCOO and BCSR for batches, COO, CSR and CSC for matrices, and `sparsify` for functions of them.

>>> import jaxlite.numpy as jnp
>>> from jaxlite.experimental import sparse
>>> m = sparse.BCOO.fromdense(jnp.array([[0.0, 1.0], [2.0, 0.0]]))
>>> print((m.T @ m).todense())
[[4. 0.]
 [0. 1.]]
"""

from __future__ import annotations

from jaxlite.core.lazy import Lazy as _Lazy
from jaxlite.experimental.sparse.api import empty, eye, todense, todense_p
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
    bcoo_dot_general_p,
    bcoo_dot_general_sampled,
    bcoo_dot_general_sampled_p,
    bcoo_dynamic_slice,
    bcoo_extract,
    bcoo_extract_p,
    bcoo_fromdense,
    bcoo_fromdense_p,
    bcoo_gather,
    bcoo_multiply_dense,
    bcoo_multiply_sparse,
    bcoo_reduce_sum,
    bcoo_reshape,
    bcoo_rev,
    bcoo_slice,
    bcoo_sort_indices,
    bcoo_sort_indices_p,
    bcoo_spdot_general_p,
    bcoo_squeeze,
    bcoo_sum_duplicates,
    bcoo_sum_duplicates_p,
    bcoo_todense,
    bcoo_todense_p,
    bcoo_transpose,
    bcoo_transpose_p,
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
    bcsr_dot_general_p,
    bcsr_extract,
    bcsr_extract_p,
    bcsr_fromdense,
    bcsr_fromdense_p,
    bcsr_sum_duplicates,
    bcsr_todense,
    bcsr_todense_p,
    coo_fromdense,
    coo_fromdense_p,
    coo_matmat,
    coo_matmat_p,
    coo_matvec,
    coo_matvec_p,
    coo_todense,
    coo_todense_p,
    csr_fromdense,
    csr_fromdense_p,
    csr_matmat,
    csr_matmat_p,
    csr_matvec,
    csr_matvec_p,
    csr_todense,
    csr_todense_p,
)
from jaxlite.experimental.sparse.derivatives import grad, jacfwd, jacobian, jacrev, value_and_grad
from jaxlite.experimental.sparse.random import random_bcoo
from jaxlite.experimental.sparse.transform import SparseTracer, sparsify

_lazy = _Lazy(__name__, modules=["ad", "api", "bcsr", "coo", "csr", "linalg", "random", "util"])
__getattr__ = _lazy.load
__dir__ = _lazy.names
