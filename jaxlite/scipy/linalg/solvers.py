"""Systems of linear equations with SciPy's names: by factors, for general, definite and triangular matrices, and
Sylvester's equation. Arguments of integers are taken as floating; leading axes of matrices and right sides broadcast.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from jaxlite import lax
from jaxlite import numpy as jnp
from jaxlite.core.filtering import boundary
from jaxlite.core.values import aval_of
from jaxlite.lax import linalg as lax_linalg
from jaxlite.lax.linalg.solvers import inverse_order, rows_in_order
from jaxlite.numpy.api import api, is_complex, promote_dtypes_inexact
from jaxlite.numpy.matrix_parts import solve_for_columns
from jaxlite.scipy.linalg.factorizations import adjoint, as_complex, cholesky, matrices


def _solve_by(name: str, solve: Callable[[Any, Any], Any], a, b):
    """`solve(a, b)` for matrices, of a right side that may hold vectors, with leading axes broadcast.

    b holds vectors if it is one, or has one for each matrix of a.
    """
    a, b = promote_dtypes_inexact(jnp.asarray(a), jnp.asarray(b))
    left, right = a.shape, b.shape
    if len(left) < 2 or left[-1] != left[-2]:
        raise ValueError(f"{name}: the factor must have shape (..., n, n), got {left}")
    is_vector = len(right) == 1 or right == left[:-1]
    if is_vector:
        b = b[..., None]
    if not right or b.shape[-2] != left[-1]:
        raise ValueError(f"{name}: inconsistent sizes: matrices of shape {left} need right sides (..., {left[-1]}) or "
                         f"(..., {left[-1]}, k), got shape {right}")
    if len(left) == 2 and b.ndim > 2:
        x = solve_for_columns(lambda columns: solve(a, columns), b)
    else:
        batch = jnp.broadcast_shapes(left[:-2], b.shape[:-2])
        x = solve(jnp.broadcast_to(a, (*batch, *left[-2:])), jnp.broadcast_to(b, (*batch, *b.shape[-2:])))
    return x[..., 0] if is_vector else x


# --- by factors --------------------------------------------------------------------------------------


@api
def _cho_solve(c, b, lower: bool):
    return _solve_by("cho_solve", lambda c, b: _by_cholesky(c, b, lower), c, b)


def _by_cholesky(c, b, lower: bool):
    b = lax_linalg.triangular_solve(c, b, left_side=True, lower=lower, transpose_a=not lower, conjugate_a=not lower)
    return lax_linalg.triangular_solve(c, b, left_side=True, lower=lower, transpose_a=lower, conjugate_a=lower)


@boundary
def cho_solve(c_and_lower: tuple[Any, bool], b, overwrite_b: bool = False, check_finite: bool = True):
    """The x with a @ x = b, from `cho_factor(a)`.

    Args:
      c_and_lower: the factor (..., n, n), and whether it is the lower one.
      b: (n,) or (..., n, k), or a vector for each matrix.

    >>> import jaxlite.numpy as jnp
    >>> from jaxlite.scipy.linalg import cho_factor, cho_solve
    >>> print(cho_solve(cho_factor(jnp.array([[4.0, 0.0], [0.0, 16.0]])), jnp.array([4.0, 8.0])))
    [1.  0.5]
    """
    c, lower = c_and_lower
    return _cho_solve(c, b, bool(lower))


@api
def _lu_solve(lu, pivots, b, trans: int):
    shape, batch = aval_of(lu).shape, aval_of(pivots).shape
    if len(shape) < 2 or shape[-1] != shape[-2] or batch[-1:] != shape[-1:]:
        raise ValueError(f"lu_solve: the factors must have shape (..., n, n) and the pivots (..., n), got {shape} and {batch}")
    size = shape[-1]
    permutation = lax_linalg.lu_pivots_to_permutation(jnp.asarray(pivots), size)

    def solve(lu, b):
        order = jnp.broadcast_to(permutation, (*aval_of(lu).shape[:-2], size))
        if trans == 0:
            b = rows_in_order(b, order)
            b = lax_linalg.triangular_solve(lu, b, left_side=True, lower=True, unit_diagonal=True)
            return lax_linalg.triangular_solve(lu, b, left_side=True)
        conjugate = trans == 2
        b = lax_linalg.triangular_solve(lu, b, left_side=True, transpose_a=True, conjugate_a=conjugate)
        b = lax_linalg.triangular_solve(lu, b, left_side=True, lower=True, unit_diagonal=True, transpose_a=True,
                                        conjugate_a=conjugate)
        return rows_in_order(b, inverse_order(order))

    return _solve_by("lu_solve", solve, lu, b)


@boundary
def lu_solve(lu_and_piv: tuple[Any, Any], b, trans: int = 0, overwrite_b: bool = False, check_finite: bool = True):
    """The x with a @ x = b, from `lu_factor(a)`.

    Args:
      lu_and_piv: the factors (..., n, n) and pivots (..., n).
      b: (n,) or (..., n, k), or a vector for each matrix.
      trans: 1 solves with a^T, 2 with a^H.
    """
    if trans not in (0, 1, 2):
        raise ValueError(f"'trans' value must be 0, 1, or 2, got {trans}")
    return _lu_solve(*lu_and_piv, b, int(trans))


# --- of general, definite and triangular matrices ----------------------------------------------------

_KINDS = ["gen", "sym", "her", "pos"]


@boundary
def solve(a, b, lower: bool = False, overwrite_a: bool = False, overwrite_b: bool = False, debug: bool = False,
          check_finite: bool = True, assume_a: str = "gen"):
    """The x with a @ x = b.

    Args:
      a: (..., n, n).
      b: (n,) or (..., n, k).
      assume_a: what is known of a: 'gen' nothing, 'sym' symmetric, 'her' Hermitian, 'pos' positive definite: then one
        triangle is read, and b may hold a vector for each matrix.
      lower: with 'pos', read the lower triangle instead of the upper one.
    Returns: shaped as b, with the leading axes of a. Not finite where a is singular.
    Raises: ValueError for another `assume_a`, and for shapes that do not fit.
    """
    if assume_a not in _KINDS:
        raise ValueError(f"Expected assume_a to be one of {_KINDS}; got {assume_a!r}")
    if assume_a != "pos":
        return jnp.linalg.solve(jnp.asarray(a), jnp.asarray(b))
    return _solve_definite(a, b, bool(lower))


@api
def _solve_definite(a, b, lower: bool):
    left, right = jnp.asarray(a).shape, jnp.asarray(b).shape
    if len(right) not in (len(left), len(left) - 1):
        raise ValueError("The arguments to solve must have shapes a=[..., m, m] and b=[..., m, k] or b=[..., m]; got "
                         f"a={left} and b={right}")
    a, b = promote_dtypes_inexact(jnp.asarray(a), jnp.asarray(b))
    factor = cholesky(lax.stop_gradient(a), lower)

    def by_factor(a, b):
        c = jnp.broadcast_to(factor, aval_of(a).shape)

        def solve(_, b):
            return _by_cholesky(c, b, lower)

        # x is a function of a and b: its derivatives are solves with the same factor.
        return lax.custom_linear_solve(lambda x: _product(a, x), b, solve, lambda _, b: jnp.conj(solve(None, jnp.conj(b))))

    return _solve_by("solve", by_factor, a, b)


_TRANSPOSITIONS = {0: 0, 1: 1, 2: 2, "N": 0, "T": 1, "C": 2}


@api
def solve_triangular(a, b, trans: int | str = 0, lower: bool = False, unit_diagonal: bool = False,
                     overwrite_b: bool = False, debug=None, check_finite: bool = True):
    """The x with a @ x = b, for triangular a.

    Args:
      a: (..., n, n); one triangle is read: the upper one, or with `lower` the lower one.
      b: (n,) or (..., n, k), or a vector for each matrix.
      trans: 1 or 'T' solves with a^T, 2 or 'C' with a^H.
      unit_diagonal: take the diagonal as ones.

    >>> import jaxlite.numpy as jnp
    >>> from jaxlite.scipy.linalg import solve_triangular
    >>> print(solve_triangular(jnp.array([[1.0, 2.0], [0.0, 4.0]]), jnp.array([3.0, 4.0])))
    [1. 1.]
    """
    if trans not in _TRANSPOSITIONS:
        raise ValueError(f"Invalid 'trans' value {trans}")
    trans = _TRANSPOSITIONS[trans]
    def solve(a, b):
        return lax_linalg.triangular_solve(a, b, left_side=True, lower=lower, transpose_a=trans > 0, conjugate_a=trans == 2,
                                           unit_diagonal=unit_diagonal)

    return _solve_by("solve_triangular", solve, a, b)


# --- Sylvester's equation ----------------------------------------------------------------------------


def _product(x, y):
    return jnp.matmul(x, y, precision=lax.Precision.HIGHEST)


def solve_shifted(triangle, diagonal, shift, side, count=None):
    """The vector x with (triangle + shift) @ x = side, for an upper triangular matrix.

    Args:
      triangle: (n, n), whose diagonal is not read. diagonal: (n,). shift: a scalar. side: (n,).
      count: solve for the first `count` rows alone: the others are zero. A pivot of zero then counts as one.
    """
    pivots = diagonal + shift
    if count is not None:
        inside = jnp.arange(aval_of(side).shape[0]) < count
        pivots = jnp.where(inside & (pivots != 0), pivots, 1)
        side = jnp.where(inside, side, 0)
    matrix = jnp.where(jnp.eye(aval_of(side).shape[0], dtype=bool), pivots[:, None], triangle)
    return lax_linalg.triangular_solve(matrix, side, left_side=True)


def _sylvester_by_schur(A, B, C) -> tuple[Any, Any, Any]:
    R, U = lax_linalg.schur(as_complex(A))
    S, V = lax_linalg.schur(as_complex(B))
    F = _product(_product(adjoint(U), as_complex(C)), V)
    values, shifts = jnp.diagonal(R), jnp.diagonal(S)

    def column(j, Y):  # R y_j + Y S_j = f_j, with zeros in Y for columns that are not done yet
        return Y.at[:, j].set(solve_shifted(R, values, shifts[j], F[:, j] - _product(Y, S[:, j])))

    Y = lax.fori_loop(0, aval_of(F).shape[1], column, jnp.zeros_like(F))
    return _product(_product(U, Y), adjoint(V)), values, shifts


def _sylvester_by_eigenvectors(A, B, C) -> tuple[Any, Any, Any]:
    a, U = jnp.linalg.eig(A)
    b, V = jnp.linalg.eig(B)
    F = _product(jnp.linalg.solve(U, as_complex(C)), V)
    Y = F / (a[:, None] + b[None, :])
    return _product(U, _product(Y, jnp.linalg.inv(V))), a, b


_METHODS = {"schur": _sylvester_by_schur, "eigen": _sylvester_by_eigenvectors}


@api
def solve_sylvester(A, B, C, *, method: str = "schur", tol: float = 1e-8):
    """The X with A @ X + X @ B = C. On the CPU alone.

    Args:
      A: (..., m, m). B: (..., n, n). C: (..., m, n). Leading axes broadcast.
      method: 'schur', by Schur forms; 'eigen', by eigenvectors: faster, less accurate where these are nearly dependent.
      tol: how close to zero a sum of eigenvalues of A and B may be, before the result is NaN; at least
        their rounding.
    Raises: ValueError for another method, and for shapes that do not fit.
    """
    shapes = [jnp.asarray(x).shape for x in (A, B, C)]
    if min(map(len, shapes)) < 2 or shapes[0][-1] != shapes[0][-2] or shapes[1][-1] != shapes[1][-2] or \
            shapes[2][-2:] != (shapes[0][-1], shapes[1][-1]):
        raise ValueError("Incompatible shapes for Sylvester equation: A must be (..., m, m), B (..., n, n) and C "
                         f"(..., m, n), got {shapes[0]}, {shapes[1]} and {shapes[2]}.")
    if method not in _METHODS:
        raise ValueError(f"Unrecognized method {method}. The two valid methods are either \"schur\" or \"eigen\".")
    A, B, C = matrices("solve_sylvester", A, B, C)
    if not aval_of(C).size:
        batch = jnp.broadcast_shapes(*(aval_of(x).shape[:-2] for x in (A, B, C)))
        return jnp.zeros((*batch, *aval_of(C).shape[-2:]), aval_of(C).dtype)

    def solve(A, B, C):
        X, a, b = _METHODS[method](A, B, C)
        X = X if is_complex(A) else jnp.real(X)
        # The equation has one solution unless eigenvalues of A and -B meet, which rounding lets us see so sharply only.
        a, b = a[:, None], b[None, :]
        sizes = jnp.max(jnp.abs(a), initial=0) + jnp.max(jnp.abs(b), initial=0)
        blur = sizes * max(aval_of(X).shape) * float(np.finfo(aval_of(X).dtype).eps)
        return jnp.where(jnp.any(jnp.abs(a + b) < jnp.maximum(tol, blur)), jnp.nan, X)

    return jnp.vectorize(solve, signature="(m,m),(n,n),(m,n)->(m,n)")(A, B, C)
