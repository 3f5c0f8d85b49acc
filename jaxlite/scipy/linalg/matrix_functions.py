"""Functions of matrices: exponential, square root, any function by its values at eigenvalues, polar factors."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from jaxlite import lax
from jaxlite import numpy as jnp
from jaxlite.core import dtypes
from jaxlite.core.filtering import boundary
from jaxlite.core.values import aval_of
from jaxlite.lax import linalg as lax_linalg
from jaxlite.numpy.api import api, promote_dtypes_inexact
from jaxlite.scipy.linalg.factorizations import adjoint, as_complex, matrices, rsf2csf
from jaxlite.scipy.linalg.solvers import solve_shifted, solve_triangular
from jaxlite.transforms.derivatives import jvp
from jaxlite.transforms.vmap import vmap


def _product(x, y):
    return jnp.matmul(x, y, precision=lax.Precision.HIGHEST)


def _square_matrices(name: str, a):
    a = matrices(name, a)
    shape = aval_of(a).shape
    if shape[-1] != shape[-2]:
        raise ValueError(f"{name}: expected a square matrix, got shape {shape}")
    return a


# --- exponential -------------------------------------------------------------------------------------

# The Pade approximant of this degree is exact to rounding for matrices of 1-norm up to the bound: N. Higham, The scaling
# and squaring method for the matrix exponential revisited, SIAM J. Matrix Anal. Appl. 26 (2005), table 2.3 (and, for
# single precision, as computed there).
_PADE = {np.dtype(np.float32): (7, 3.925724783138660), np.dtype(np.float64): (13, 5.371920351148152)}


def _pade_parts(a, degree: int) -> tuple[Any, Any]:
    """U odd and V even in a, with exp(a) = (V - U)^-1 (V + U)."""
    weights = [math.comb(degree, k) * math.factorial(2 * degree - k) / math.factorial(degree) for k in range(degree + 1)]
    eye = jnp.eye(a.shape[-1], dtype=a.dtype)
    square = _product(a, a)
    fourth = _product(square, square)
    powers = [eye, square, fourth, _product(fourth, square)]

    def total(coefficients: list[float]):
        return sum(coefficient * power for coefficient, power in zip(coefficients, powers, strict=False))

    odd, even = weights[1::2], weights[0::2]
    if degree == 13:  # a^8 to a^12 are a^6 times what is there
        odd_total = _product(powers[3], total([0.0, *odd[4:]])) + total(odd[:4])
        even_total = _product(powers[3], total([0.0, *even[4:]])) + total(even[:4])
    else:
        odd_total, even_total = total(odd), total(even)
    return _product(a, odd_total), even_total


@api
def expm(A, *, upper_triangular: bool = False, max_squarings: int = 16):
    """The exponential of matrices, by scaling and squaring of a Pade approximant.

    Args:
      A: (..., n, n).
      upper_triangular: A is upper triangular: a faster way is taken.
      max_squarings: a matrix that needs more of them (its 1-norm exceeds about 4 * 2^max_squarings) gives NaN.

    >>> import jaxlite.numpy as jnp, jaxlite.scipy.linalg
    >>> print(jaxlite.scipy.linalg.expm(jnp.array([[0.0, 1.0], [0.0, 0.0]])))
    [[1. 1.]
     [0. 1.]]
    """
    a = _square_matrices("expm", A)
    dtype = aval_of(a).dtype
    real = dtypes.real_dtype(dtype)
    if real not in _PADE:
        raise TypeError(f"expm needs float32, float64 or their complex counterparts, got {dtype}")
    degree, bound = _PADE[real]
    norm = jnp.max(jnp.sum(jnp.abs(a), axis=-2), axis=-1, initial=0)
    # How often to halve is not a function to differentiate: the result does not depend on it.
    count = jnp.ceil(jnp.log2(lax.stop_gradient(norm) / bound))
    count = jnp.maximum(count, 0)
    odd, even = _pade_parts(a * jnp.exp2(-count)[..., None, None].astype(dtype), degree)
    upper, lower = even + odd, even - odd
    result = solve_triangular(lower, upper) if upper_triangular else jnp.linalg.solve(lower, upper)
    squarings = count[..., None, None]

    def square(step, result):
        goes_on = step < squarings
        return lax.cond(jnp.any(goes_on), lambda: jnp.where(goes_on, _product(result, result), result), lambda: result)

    result = lax.fori_loop(0, max_squarings, square, result)
    return jnp.where(squarings > max_squarings, jnp.nan, result)


@boundary
def expm_frechet(A, E, *, method: str | None = None, compute_expm: bool = True):
    """The derivative of `expm` at A in the direction E.

    Args:
      A, E: (..., n, n).
      method: of no meaning. compute_expm: give (expm(A), derivative).
    """
    A, E = promote_dtypes_inexact(jnp.asarray(A), jnp.asarray(E))
    A = _square_matrices("expm_frechet", A)
    if aval_of(A).shape != E.shape:
        raise ValueError(f"expected A and E to be the same shape, got A.shape={aval_of(A).shape} E.shape={E.shape}")
    outs = jvp(expm, (A,), (E,))
    return outs if compute_expm else outs[1]


# --- by the Schur form -------------------------------------------------------------------------------


@api
def sqrtm(A, blocksize: int = 1):
    """The principal square root of a matrix: R @ R = A. On the CPU alone.

    Args:
      A: (n, n).
      blocksize: 1.
    Returns: (n, n), complex; NaN where there is no root.
    Raises: NotImplementedError for another blocksize.
    """
    if blocksize > 1:
        raise NotImplementedError("Blocked version is not implemented yet.")
    a = _one_matrix("sqrtm", A)
    if not aval_of(a).size:
        return as_complex(a)
    form, vectors = lax_linalg.schur(as_complex(a))
    roots = jnp.sqrt(jnp.diagonal(form))

    # A. Bjorck and S. Hammarling, A Schur method for the square root of a matrix (1983): R R = T. XLA compiles loops over
    # elements as one function.
    def entry(matrix, i, j):
        return lax.dynamic_slice(matrix, (i, j), (1, 1), allow_negative_indices=False)[0, 0]

    def row(j, step, root):  # from the diagonal upwards
        i = j - 1 - step
        add = lambda k, total: total + entry(root, i, k) * entry(root, k, j)
        known = lax.fori_loop(i + 1, j, add, jnp.zeros_like(root[0, 0]))
        rest, divisor = entry(form, i, j) - known, _at(roots, i) + _at(roots, j)
        # Coupled eigenvalues of zero: there is no root, and the products are NaN.
        value = jnp.where(divisor == 0, jnp.where(rest == 0, rest, jnp.nan), rest / divisor)
        return lax.dynamic_update_slice(root, value[None, None], (i, j), allow_negative_indices=False)

    root = lax.fori_loop(1, len(roots), lambda j, root: lax.fori_loop(0, j, functools.partial(row, j), root), jnp.diag(roots))
    return _product(_product(vectors, root), adjoint(vectors))


def _at(x, index, axis: int = 0):
    return lax.dynamic_index_in_dim(x, index, axis, False, allow_negative_indices=False)


def _by_columns(column: Callable[..., Any], diagonal, form):
    """An upper triangular matrix with this diagonal: `column(j, matrix, diagonal[j], form[:, j])` has column j above it.

    Columns from the j-th on are zero in what the function gets.
    """
    size = aval_of(form).shape[0]

    def step(j, matrix):
        own = _at(diagonal, j)
        filled = jnp.where(jnp.arange(size) == j, own, column(j, matrix, own, _at(form, j, 1)))
        return lax.dynamic_update_index_in_dim(matrix, filled, j, 1, allow_negative_indices=False)

    return lax.fori_loop(0, size, step, jnp.zeros_like(form))


def _one_matrix(name: str, a):
    a = jnp.asarray(a)
    shape = a.shape
    if len(shape) != 2 or shape[0] != shape[1]:
        raise ValueError(f"{name}: expected a square matrix (n, n), got shape {shape}; use vmap for more than one")
    return promote_dtypes_inexact(a)[0]


@boundary
def funm(A, func: Callable[[Any], Any], disp: bool = True):
    """A function of a matrix: that which has the same eigenvectors, and `func` of the eigenvalues. On the CPU alone.

    Args:
      A: (n, n). Close eigenvalues cost accuracy; equal ones that are coupled give a wrong result.
      func: an analytic function of one complex number, made of traceable operations.
      disp: if False, give (result, error estimate): 1 means that nothing is known to be right.
    Returns: (n, n), complex.
    """
    result, error = _parlett(_one_matrix("funm", A), func)
    return result if disp else (result, error)


def _parlett(a, func: Callable[[Any], Any]) -> tuple[Any, Any]:
    """B. Parlett's recurrence for functions of triangular matrices (1976): F T = T F, column by column."""
    size = aval_of(a).shape[0]
    if not size:
        return as_complex(a), jnp.real(jnp.zeros((), aval_of(a).dtype))
    form, vectors = lax_linalg.schur(a)
    if not jnp.iscomplexobj(a):  # the real form and rotations that make it complex take a third of the time
        form, vectors = rsf2csf(form, vectors)
    values = jnp.diagonal(form)
    results = as_complex(vmap(func)(values))

    def column(j, f, own, side):
        known = _product(f, side) - own * side
        return solve_shifted(form, values, -_at(values, j), known, j)

    f = _by_columns(column, results, form)
    result = _product(_product(vectors, f), adjoint(vectors))
    pairs = np.triu(np.ones((size, size), bool), 1)
    gap = jnp.min(jnp.abs(values[:, None] - values[None, :]), where=pairs, initial=np.inf)
    epsilon = float(np.finfo(aval_of(a).dtype).eps)
    coupling = jnp.max(jnp.sum(jnp.abs(jnp.triu(form, 1)), axis=0), initial=0)
    error = jnp.clip(epsilon / jnp.where(gap == 0, epsilon, gap) * coupling, epsilon, 1)
    return result, jnp.where(jnp.all(jnp.isfinite(result)), error, jnp.inf)


# --- polar decomposition -----------------------------------------------------------------------------


@api
def _polar(a, side: str, method: str, eps: float | None, max_iterations: int | None) -> tuple[Any, Any]:
    rows, columns = aval_of(a).shape[-2:]
    if method == "svd":
        u, values, vh = lax_linalg.svd(a, full_matrices=False)
        scaled = values.astype(aval_of(a).dtype)
        unitary = _product(u, vh)
        if side == "right":
            return unitary, _product(adjoint(vh) * scaled[..., None, :], vh)
        return unitary, _product(u * scaled[..., None, :], adjoint(u))
    if (rows < columns) if side == "right" else (rows > columns):
        raise NotImplementedError(f"polar: method='qdwh' needs m >= n with side='right' and m <= n with side='left', got "
                                  f"shape {(rows, columns)} with side='{side}'; use method='svd'")

    def factor(a) -> tuple[Any, Any]:
        unitary, definite, *_ = lax_linalg.qdwh(a, is_hermitian=False, max_iterations=max_iterations, eps=eps)
        return unitary, definite

    for _ in range(aval_of(a).ndim - 2):
        factor = vmap(factor)
    unitary, definite = factor(adjoint(a) if side == "left" else a)
    return (adjoint(unitary) if side == "left" else unitary), definite


@boundary
def polar(a, side: str = "right", *, method: str = "qdwh", eps: float | None = None,
          max_iterations: int | None = None) -> tuple[Any, Any]:
    """The polar decomposition a = u @ p, or a = p @ u: u with orthonormal columns or rows, p positive semidefinite.

    Args:
      a: (..., m, n).
      side: 'right' for a = u @ p, p (..., n, n); 'left' for a = p @ u, p (..., m, m).
      method: 'qdwh', an iteration that needs m >= n with side 'right' and m <= n with 'left', or 'svd'.
      eps, max_iterations: precision and limit of that iteration.
    Returns: (u, p).
    Raises: ValueError for another side or method, NotImplementedError for shapes that 'qdwh' does not do.
    """
    if side not in ("right", "left"):
        raise ValueError("The argument `side` must be either 'right' or 'left'.")
    if method not in ("qdwh", "svd"):
        raise ValueError(f"Unknown polar decomposition method {method}.")
    return _polar(matrices("polar", a), side, method, eps, max_iterations)
