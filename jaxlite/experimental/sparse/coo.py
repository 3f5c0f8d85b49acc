"""Matrices as elements with their rows and columns, as `jax.experimental.sparse.coo` names them: a view."""

from typing import Any as Dtype

from jaxlite.experimental.sparse.base import Shape
from jaxlite.experimental.sparse.compressed import (
    COO,
    COOInfo,
    coo_fromdense,
    coo_fromdense_p,
    coo_matmat,
    coo_matmat_p,
    coo_matvec,
    coo_matvec_p,
    coo_todense,
    coo_todense_p,
)

__all__ = ["COO", "COOInfo", "Dtype", "Shape", "coo_fromdense", "coo_fromdense_p", "coo_matmat", "coo_matmat_p",
           "coo_matvec", "coo_matvec_p", "coo_todense", "coo_todense_p"]
