"""Matrices as elements with their rows and columns, as `jax.experimental.sparse.coo` names them: a view."""

from typing import Any as Dtype

from jaxlite.experimental.sparse.base import Shape
from jaxlite.experimental.sparse.compressed import COO, COOInfo, coo_fromdense, coo_matmat, coo_matvec, coo_todense

__all__ = ["COO", "COOInfo", "Dtype", "Shape", "coo_fromdense", "coo_matmat", "coo_matvec", "coo_todense"]
