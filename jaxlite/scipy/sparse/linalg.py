"""jaxlite.scipy.sparse.linalg: linear systems solved by products with the matrix alone.

The matrix is a 2D array, an object that has `@`, or a function of trees of arrays. Derivatives are those of the solution
(`lax.custom_linear_solve`): they take another solve, and are as good as both solves are.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from jaxlite import lax
from jaxlite import numpy as jnp
from jaxlite.lax import linalg as lax_linalg
from jaxlite.numpy.api import is_complex, promote_dtypes_inexact
from jaxlite.transforms.ravel import ravel_pytree
from jaxlite.tree_util import tree_leaves, tree_map, tree_structure

__all__ = ["bicgstab", "cg", "gmres"]
__dir__ = lambda: __all__

Operator = Callable[[Any], Any]


def _operator(A) -> Operator:
    if callable(A):
        return A
    if hasattr(A, "shape"):
        if len(A.shape) != 2 or A.shape[0] != A.shape[1]:
            raise ValueError(f"linear operator must be a square matrix, but has shape: {A.shape}")
        return partial(_product, A)
    raise TypeError(f"linear operator must be either a function or ndarray: {A}")


def _product(x: Any, y: Any) -> Any:
    is_dense = isinstance(x, (jnp.ndarray, np.ndarray))  # sparse matrices have a dtype too
    return jnp.matmul(x, y, precision=lax.Precision.HIGHEST) if is_dense else x @ y


def _identity(x):
    return x


# --- trees as vectors --------------------------------------------------------------------------------


def _add(x, y):
    return tree_map(lambda a, b: a + b, x, y)


def _subtract(x, y):
    return tree_map(lambda a, b: a - b, x, y)


def _scaled(factor, x):
    return tree_map(lambda a: factor * a, x)


def _dot(x, y):
    """The inner product <x, y>, conjugate in x."""
    pairs = zip(tree_leaves(x), tree_leaves(y), strict=True)
    return sum(jnp.vdot(a, b, precision=lax.Precision.HIGHEST) for a, b in pairs)


def _squared_norm(x):
    return sum(jnp.sum(jnp.real(a) ** 2 + jnp.imag(a) ** 2 if is_complex(a) else a * a) for a in tree_leaves(x))


# --- what the solvers share --------------------------------------------------------------------------


def _solved(method: Callable[..., Any], A, b, x0, M, maxiter: int | None, symmetric: bool, **options):
    """Check arguments, and solve with derivatives of the solution.

    Args: `method(A, b, x0, M, maxiter, **options)` solves.
    """
    b = tree_map(lambda x: jnp.asarray(promote_dtypes_inexact(x)[0]), b)
    x0 = tree_map(jnp.zeros_like, b) if x0 is None else tree_map(jnp.asarray, x0)
    if tree_structure(x0) != tree_structure(b):
        raise ValueError(f"x0 and b must have matching tree structure: {tree_structure(x0)} vs {tree_structure(b)}")
    shapes = [[x.shape for x in tree_leaves(tree)] for tree in (x0, b)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"arrays in x0 and b must have matching shapes: {shapes[0]} vs {shapes[1]}")
    x0 = tree_map(lambda x, like: x.astype(like.dtype), x0, b)
    size = sum(x.size for x in tree_leaves(b))
    solve = partial(method, x0=x0, M=_identity if M is None else _operator(M),
                    maxiter=10 * size if maxiter is None else maxiter, **options)
    symmetric = symmetric and not any(map(is_complex, tree_leaves(b)))
    return lax.custom_linear_solve(_operator(A), b, solve, transpose_solve=solve, symmetric=symmetric)


def _threshold(b, tol, atol):
    """The squared norm that a residual has to come down to."""
    total = _squared_norm(b)
    return jnp.maximum(jnp.square(jnp.asarray(tol, total.dtype)) * total, jnp.square(jnp.asarray(atol, total.dtype)))


# --- conjugate gradients -----------------------------------------------------------------------------


def _cg(A: Operator, b, *, x0, M: Operator, maxiter: int, tol, atol):
    threshold = _threshold(b, tol, atol)

    def unfinished(carry):
        _, r, gamma, _, step = carry
        norm = jnp.real(gamma) if M is _identity else _squared_norm(r)
        return (norm > threshold) & (step < maxiter)

    def improve(carry):
        x, r, gamma, p, step = carry
        q = A(p)
        alpha = gamma / _dot(p, q)
        x, r = _add(x, _scaled(alpha, p)), _subtract(r, _scaled(alpha, q))
        z = M(r)
        new = _dot(r, z)
        return x, r, new, _add(z, _scaled(new / gamma, p)), step + 1

    r = _subtract(b, A(x0))
    z = M(r)
    return lax.while_loop(unfinished, improve, (x0, r, _dot(r, z), z, 0))[0]


def cg(A, b, x0=None, *, tol: float = 1e-5, atol: float = 0.0, maxiter: int | None = None, M=None) -> tuple[Any, None]:
    """Solve A x = b by conjugate gradients, for Hermitian positive definite A.

    Args:
      A: a 2D array, or a linear function of trees like b.
      b: a pytree of arrays.
      x0: where to start; by default zeros.
      tol, atol: stop when norm(b - A x) <= max(tol * norm(b), atol).
      maxiter: stop after so many steps in any case; by default ten times the size of b.
      M: an approximate inverse of A, given as A is.
    Returns: (x, None).

    >>> import jaxlite.numpy as jnp
    >>> from jaxlite.scipy.sparse.linalg import cg
    >>> print(cg(lambda x: 4 * x, jnp.array([4.0, 8.0]))[0])
    [1. 2.]
    """
    return _solved(_cg, A, b, x0, M, maxiter, True, tol=tol, atol=atol), None


# --- biconjugate gradients, stabilized ---------------------------------------------------------------


def _bicgstab(A: Operator, b, *, x0, M: Operator, maxiter: int, tol, atol):
    threshold = _threshold(b, tol, atol)

    def unfinished(carry):
        r, step = carry[1], carry[-1]
        return (_squared_norm(r) > threshold) & (step < maxiter) & (step >= 0)

    def improve(carry):  # H. van der Vorst (1992), with the preconditioner applied on the right
        x, r, shadow, alpha, omega, rho, p, q, step = carry
        new_rho = _dot(shadow, r)
        beta = new_rho / rho * alpha / omega
        p = _add(r, _scaled(beta, _subtract(p, _scaled(omega, q))))
        p_hat = M(p)
        q = A(p_hat)
        alpha = new_rho / _dot(shadow, q)
        s = _subtract(r, _scaled(alpha, q))
        is_done = _squared_norm(s) < threshold  # half a step was enough
        s_hat = M(s)
        t = A(s_hat)
        omega = _dot(t, s) / _dot(t, t)
        half = _add(x, _scaled(alpha, p_hat))
        x = tree_map(partial(jnp.where, is_done), half, _add(half, _scaled(omega, s_hat)))
        r = tree_map(partial(jnp.where, is_done), s, _subtract(s, _scaled(omega, t)))
        has_failed = ((omega == 0) | (alpha == 0) | (new_rho == 0)) & ~is_done
        return x, r, shadow, alpha, omega, new_rho, p, q, jnp.where(has_failed, -1, step + 1)

    r = _subtract(b, A(x0))
    one = jnp.ones_like(_dot(r, r))
    nothing = tree_map(jnp.zeros_like, r)
    return lax.while_loop(unfinished, improve, (x0, r, r, one, one, one, nothing, nothing, jnp.zeros((), np.int32)))[0]


def bicgstab(A, b, x0=None, *, tol: float = 1e-5, atol: float = 0.0, maxiter: int | None = None,
             M=None) -> tuple[Any, None]:
    """Solve A x = b by the stabilized biconjugate gradient method, for general A. Arguments and results as for `cg`."""
    return _solved(_bicgstab, A, b, x0, M, maxiter, False, tol=tol, atol=atol), None


# --- generalized minimal residuals -------------------------------------------------------------------


def _normalized(x, least) -> tuple[Any, Any]:
    """x over its norm, and the norm; zeros where the norm is not above `least`."""
    norm = jnp.sqrt(_squared_norm(x))
    counts = norm > least
    return jnp.where(counts, x / jnp.where(counts, norm, 1), 0), jnp.where(counts, norm, 0)


def _arnoldi_step(A: Operator, basis, step) -> tuple[Any, Any]:
    """The next vector of the basis, by Gram-Schmidt done twice, and the column of A in that basis."""
    w = A(basis[step])
    least = float(jnp.finfo(w.dtype).eps) * jnp.sqrt(_squared_norm(w))
    overlap = jnp.zeros(basis.shape[0], w.dtype)
    for _ in range(2):
        part = _product(jnp.conj(basis), w)
        w, overlap = w - _product(part, basis), overlap + part
    w, norm = _normalized(w, least)
    return basis.at[step + 1].set(w), overlap.at[step + 1].set(norm.astype(w.dtype))


def _start_basis(residual, norm, restart: int):
    first = residual / jnp.where(norm == 0, 1, norm)
    return jnp.zeros((restart + 1, residual.size), residual.dtype).at[0].set(first)


def _gmres_batched(A: Operator, residual, norm, restart: int, target):
    """The correction of one restart: all of the basis, then one least squares problem."""

    def extend(step, carry):
        basis, columns = carry
        basis, column = _arnoldi_step(A, basis, step)
        return basis, columns.at[step].set(column)

    columns = jnp.zeros((restart, restart + 1), residual.dtype)
    basis, columns = lax.fori_loop(0, restart, extend, (_start_basis(residual, norm, restart), columns))
    # The right side of the least squares problem as another column: the triangle then is that of the solution.
    right = jnp.zeros((1, restart + 1), residual.dtype).at[0, 0].set(norm.astype(residual.dtype))
    triangle = jnp.linalg.qr(jnp.concatenate([columns, right]).T, mode="r")
    triangle, right = triangle[:-1, :-1], triangle[:-1, -1]
    # Columns of zeros, after an exact solution, must not make the triangle singular.
    sizes = jnp.abs(jnp.diagonal(triangle))
    is_zero = sizes <= float(jnp.finfo(sizes.dtype).eps) * jnp.max(sizes)
    y = lax_linalg.triangular_solve(triangle + jnp.diag(is_zero.astype(triangle.dtype)), jnp.where(is_zero, 0, right),
                                    left_side=True)
    return _product(y, basis[:-1])


def _gmres_incremental(A: Operator, residual, norm, restart: int, target):
    """The same, with the least squares problem kept triangular by rotations: it ends when the residual is small."""
    dtype = residual.dtype

    def unfinished(carry):
        *_, left, step = carry
        return (step < restart) & (left > target)

    def extend(carry):
        basis, triangle, rotations, right, _, step = carry
        basis, column = _arnoldi_step(A, basis, step)

        def turn(k, column):
            c, s = rotations[k, 0], rotations[k, 1]
            x, y = column[k], column[k + 1]
            return column.at[k].set(jnp.conj(c) * x + jnp.conj(s) * y).at[k + 1].set(c * y - s * x)

        column = lax.fori_loop(0, step, turn, column)
        x, y = column[step], column[step + 1]
        length = jnp.sqrt(_squared_norm(x) + _squared_norm(y))
        safe = jnp.where(length == 0, 1, length)
        c, s = jnp.where(length == 0, 1, x / safe), y / safe
        rotations = rotations.at[step].set(jnp.stack([c, s]))
        # A column of zeros, after an exact solution, must not make the triangle singular.
        column = column.at[step].set(jnp.where(length == 0, 1, length).astype(dtype)).at[step + 1].set(0)
        top = right[step]
        right = right.at[step].set(jnp.conj(c) * top).at[step + 1].set(-s * top)
        return basis, triangle.at[:, step].set(column[:-1]), rotations, right, jnp.abs(right[step + 1]), step + 1

    carry = (_start_basis(residual, norm, restart), jnp.eye(restart, dtype=dtype), jnp.zeros((restart, 2), dtype),
             jnp.zeros(restart + 1, dtype).at[0].set(norm.astype(dtype)), norm, 0)
    basis, triangle, _, right, _, step = lax.while_loop(unfinished, extend, carry)
    right = jnp.where(jnp.arange(restart) < step, right[:-1], 0)
    y = lax_linalg.triangular_solve(triangle, right, left_side=True)
    return _product(y, basis[:-1])


_GMRES = {"batched": _gmres_batched, "incremental": _gmres_incremental}


def _gmres(A: Operator, b, *, x0, M: Operator, maxiter: int, tol, atol, restart: int, solve_method: str):
    flat, unravel = ravel_pytree(b)
    if not flat.size:
        return b
    restart = min(restart, flat.size)

    def preconditioned(x):
        return ravel_pytree(M(unravel(x)))[0]

    def product(x):
        return preconditioned(ravel_pytree(A(unravel(x)))[0])

    right = preconditioned(flat)
    size = jnp.sqrt(_squared_norm(flat))
    # What the residual of the preconditioned system has to come down to.
    share = jnp.minimum(1, jnp.sqrt(_threshold(flat, tol, atol)) / jnp.where(size == 0, 1, size))
    target = jnp.sqrt(_squared_norm(right)) * share

    def measured(x) -> tuple[Any, Any]:
        residual = right - product(x)
        return residual, jnp.sqrt(_squared_norm(residual))

    def unfinished(carry):
        _, _, norm, step = carry
        return (norm > target) & (step < maxiter)

    def improve(carry):
        x, residual, norm, step = carry
        x = x + _GMRES[solve_method](product, residual, norm, restart, target)
        return x, *measured(x), step + 1

    start = ravel_pytree(x0)[0]
    return unravel(lax.while_loop(unfinished, improve, (start, *measured(start), 0))[0])


def gmres(A, b, x0=None, *, tol: float = 1e-5, atol: float = 0.0, restart: int = 20, maxiter: int | None = None, M=None,
          solve_method: str = "batched") -> tuple[Any, Any]:
    """Solve A x = b by minimal residuals in Krylov spaces, for general A.

    Args: as for `cg`, and
      restart: the size of the space from which each correction is taken.
      maxiter: how many corrections to make at most.
      M: an approximate inverse of A, applied on the left: residuals are measured after it.
      solve_method: 'batched' builds each space as a whole, 'incremental' stops within one.
    Returns: (x, info): 0, or -1 if x is not a number.
    Raises: ValueError for another solve_method.
    """
    if solve_method not in _GMRES:
        raise ValueError(f"invalid solve_method {solve_method}, must be either 'incremental' or 'batched'")
    x = _solved(_gmres, A, b, x0, M, maxiter, False, tol=tol, atol=atol, restart=restart, solve_method=solve_method)
    return x, jnp.where(jnp.isnan(_squared_norm(x)), -1, 0)
