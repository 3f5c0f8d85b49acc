"""Matrices in compressed rows or columns, as `jax.experimental.sparse.csr` names them: a view."""

from jaxlite.experimental.sparse.base import Shape
from jaxlite.experimental.sparse.compressed import (
    CSC,
    CSR,
    csr_fromdense,
    csr_fromdense_p,
    csr_matmat,
    csr_matmat_p,
    csr_matvec,
    csr_matvec_p,
    csr_todense,
    csr_todense_p,
)

__all__ = ["CSC", "CSR", "Shape", "csr_fromdense", "csr_fromdense_p", "csr_matmat", "csr_matmat_p", "csr_matvec",
           "csr_matvec_p", "csr_todense", "csr_todense_p"]
