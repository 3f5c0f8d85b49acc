"""Linear algebra of sparse matrices: eigenvalues by LOBPCG, and direct solution of linear systems on the host."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from jaxlite import lax
from jaxlite import numpy as jnp
from jaxlite.core.shape_dtype import ShapeDtypeStruct
from jaxlite.experimental.sparse.base import JAXSparse
from jaxlite.experimental.sparse.compressed import BCSR
from jaxlite.experimental.sparse.primitives import sparse_primitive
from jaxlite.lax.callbacks import pure_callback

__all__ = ["lobpcg_standard", "spsolve", "spsolve_p"]
__dir__ = lambda: __all__


def lobpcg_standard(A, X, m: int = 100, tol: float | None = None) -> tuple[Any, Any, Any]:
    """The largest eigenvalues of a symmetric matrix, by the locally optimal block preconditioned conjugate gradient method.

    Args:
      A: (n, n), dense or sparse, or a function that gives A @ X.
      X: (n, k), the start, with 5 k < n.
      m: the most iterations.
      tol: the relative size of residuals at which an eigenpair is found; the dtype's precision by default.
    Returns: k eigenvalues, the largest first; their eigenvectors (n, k), orthonormal; the number of iterations.
    Raises: ValueError for shapes that do not fit.

    The method is A. V. Knyazev's (2001), with the orthogonal basis of U. Hetmaniuk and R. Lehoucq (2006).
    """
    X = jnp.asarray(X)
    if X.ndim != 2:
        raise ValueError(f"eigenvectors in X must be a matrix, got shape {X.shape}")
    n, k = X.shape
    if k * 5 >= n:
        raise ValueError(f"expected search dim * 5 < matrix dim (got {k * 5}, {n})")
    product: Callable = A if callable(A) and not isinstance(A, JAXSparse) and not hasattr(A, "shape") else lambda x: A @ x
    precision = float(jnp.finfo(X.dtype).eps) if tol is None else tol
    high = lax.Precision.HIGHEST

    def dot(a, b):
        return jnp.matmul(a, b, precision=high)

    def orthonormal(x):
        return jnp.linalg.qr(jnp.linalg.qr(x)[0])[0]

    def outside(x, basis):
        """The part of x that is orthogonal to a basis; twice is enough."""
        for _ in range(2):
            x = x - dot(basis, dot(basis.T, x))
        return x

    def scaled(x):
        size = jnp.linalg.norm(x, axis=0, keepdims=True)
        return x / jnp.where(size == 0, 1, size)

    def unfinished(state):
        count, _, _, _, _, converged = state
        return (count < m) & (converged < k)

    def iterate(state):
        count, x, p, values, residual, _ = state
        directions = orthonormal(jnp.concatenate([x, scaled(outside(scaled(residual), x)), p], 1))
        small = dot(directions.T, product(directions))
        found, vectors = jnp.linalg.eigh((small + small.T) / 2)
        order = jnp.argsort(-found)[:k]
        values, chosen = found[order], vectors[:, order]
        new = orthonormal(dot(directions, chosen))
        image = product(new)
        values = (new * image).sum(0)
        p = scaled(outside(dot(directions, chosen.at[:k].set(0)), new))
        residual = image - new * values
        size = jnp.linalg.norm(residual, axis=0)
        reference = 10 * n * (jnp.abs(values) + jnp.abs(values[0]))
        return count + 1, new, p, values, residual, (size < precision * reference).sum()

    x = orthonormal(X)
    image = product(x)
    values = (x * image).sum(0)
    start = (0, x, jnp.zeros_like(x), values, image - x * values, 0)
    count, x, _, values, _, _ = lax.while_loop(unfinished, iterate, start)
    order = jnp.argsort(-values)
    return values[order], x[:, order], count


def spsolve(data, indices, indptr, b, tol: float = 1e-6, reorder: int = 1):
    """Solve A x = b for a matrix in compressed rows, by a direct method on the host.

    Args: `data`, `indices`, `indptr` of the (n, n) matrix; `b` (n,); `tol` and `reorder` are for GPUs.
    Returns: x (n,).
    """
    return spsolve_p.bind(*map(jnp.asarray, (data, indices, indptr, b)), tol=tol, reorder=reorder)


@sparse_primitive("spsolve")
def spsolve_p(data, indices, indptr, b, *, tol: float, reorder: int):
    def on_host(data, indices, indptr, b, transposed: bool = False) -> np.ndarray:
        from scipy.sparse import csc_matrix, csr_matrix  # jaxlib brings it
        from scipy.sparse.linalg import spsolve as solve

        values, rhs = (np.asarray(each).astype(np.promote_types(each.dtype, np.float32)) for each in (data, b))
        parts = (values, np.asarray(indices), np.asarray(indptr))
        matrix = csc_matrix(parts, shape=(b.size, b.size)) if transposed else csr_matrix(parts, shape=(b.size, b.size))
        return solve(matrix, rhs).astype(b.dtype)

    if data.dtype != b.dtype:
        raise ValueError(f"data types do not match: data.dtype={data.dtype!r} b.dtype={b.dtype!r}")
    if not (jnp.issubdtype(indices.dtype, jnp.integer) and jnp.issubdtype(indptr.dtype, jnp.integer)):
        raise ValueError(f"index arrays must be integer typed; got indices.dtype={indices.dtype!r} "
                         f"indptr.dtype={indptr.dtype!r}")
    arguments = (data, indices, indptr)
    shape = ShapeDtypeStruct(b.shape, b.dtype)

    def matvec(x):
        return BCSR(arguments, shape=(b.size, b.size)) @ x

    def solve(_, rhs):
        return pure_callback(on_host, shape, *arguments, rhs)

    def transpose_solve(_, rhs):
        return pure_callback(partial(on_host, transposed=True), shape, *arguments, rhs)

    if not jnp.issubdtype(b.dtype, jnp.inexact):  # nothing is linear in integers
        return solve(None, b)
    return lax.custom_linear_solve(matvec, b, solve, transpose_solve)
