"""Factorizations of matrices, and solvers that use them, under the names of `jax.lax.linalg`.

Operands have shape (..., m, n), with leading batch axes. All functions are strict: one of float32, float64, complex64,
complex128, without promotion. On the CPU they call LAPACK; if it fails for a matrix, the result is NaN. Each section of the
files is a primitive with its type and its function, and what is computed where a platform has no routine for it; files are
loaded on first use.
"""

from jaxlite.core.lazy import Lazy as _Lazy
from jaxlite.core.primitive import register_rule_modules as _register_rule_modules

_lazy = _Lazy(
    __name__,
    factors="cholesky cholesky_p cholesky_update cholesky_update_p geqrf hessenberg hessenberg_p householder_product "
            "householder_product_p lu lu_p lu_pivots_to_permutation lu_pivots_to_permutation_p ormqr ormqr_p qr qr_p "
            "symmetric_product symmetric_product_p tridiagonal tridiagonal_p",
    solvers="lu_solve lu_solve_p triangular_solve triangular_solve_p tridiagonal_solve tridiagonal_solve_p",
    spectra="EigImplementation EighImplementation SvdAlgorithm eig eig_p eigh eigh_p qdwh schur schur_p svd svd_p",
)

__all__ = _lazy.names()
__getattr__ = _lazy.load
__dir__ = lambda: __all__

_register_rule_modules("jaxlite.lax.linalg_rules")
