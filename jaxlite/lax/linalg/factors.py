"""Triangular and orthogonal factors: Cholesky, LU, QR, Householder reflectors, Hessenberg and tridiagonal forms; and the
products of a matrix with its transpose."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxlite.core import dtypes
from jaxlite.core.aval import ShapedArray
from jaxlite.core.filtering import boundary
from jaxlite.core.primitive import Primitive
from jaxlite.core.symbolic import smallest
from jaxlite.core.values import aval_of
from jaxlite.lax import elementwise, reductions, shaping, slicing
from jaxlite.lax.control_flow import fori_loop, scan
from jaxlite.lax.dot import Precision, dot_general
from jaxlite.lax.linalg.pieces import (
    at_once,
    check,
    check_matrices,
    check_square,
    front,
    strong,
    symmetrized,
    transposed,
    typed,
)
from jaxlite.lax.triangles import masked
from jaxlite.traces.decompose import decomposes

_i32 = np.dtype(np.int32)

# --- Cholesky ----------------------------------------------------------------------------------------

cholesky_p = Primitive("cholesky")
cholesky_update_p = Primitive("cholesky_update")


@typed(cholesky_p)
def _cholesky_aval(x) -> ShapedArray:
    check("cholesky", (x,), (2,))
    check_square("cholesky", x.shape)
    return strong(x.shape, x.dtype)


@boundary
@at_once("symmetrize_input")
def cholesky(x, *, symmetrize_input: bool = True):
    """The lower triangular L with L @ L^H = x.

    Args:
      x: (..., n, n), Hermitian and positive definite.
      symmetrize_input: take (x + x^H) / 2; if False only the lower triangle is read.
    Returns: (..., n, n). NaN where a matrix is not positive definite.
    """
    if symmetrize_input:
        x = symmetrized("cholesky", x)
    else:
        check_matrices("cholesky", aval_of(x).shape)
    return masked(cholesky_p.bind(x), elementwise.ge)


@typed(cholesky_update_p)
def _cholesky_update_aval(r, w) -> ShapedArray:
    check("cholesky_update", (r, w), (2, 1), "f")
    for position, (aval, rank) in enumerate(((r, 2), (w, 1))):
        if aval.ndim != rank:
            raise TypeError(f"Input {position} to cholesky_update must have a rank of exactly {rank}, "
                            f"but got shape={aval.shape}")
    if r.shape != (w.shape[0], w.shape[0]):
        raise ValueError("Rank-1 update to Cholesky decomposition takes a square matrix and a vector of the same size "
                         f"as input. Got shapes {r.shape} and {w.shape} instead")
    return strong(r.shape, r.dtype)


@boundary
def cholesky_update(r_matrix, w_vector):
    """The upper triangular factor of R^T @ R + w w^T, from R in O(n^2).

    Args:
      r_matrix: (n, n), upper triangular, real. w_vector: (n,).
    """
    return cholesky_update_p.bind(r_matrix, w_vector)


@decomposes(cholesky_update_p)
def _cholesky_update(r, w):
    (size,) = aval_of(w).shape
    if not size:
        return r
    index = shaping.iota(_i32, size)

    # A rotation of row k and w clears w's element k.
    def rotate(k, carry):
        r, w = carry
        row = slicing.dynamic_index_in_dim(r, k, 0, keepdims=False)
        x, y = (slicing.dynamic_index_in_dim(each, k, 0, keepdims=False) for each in (row, w))
        length = elementwise.sqrt(elementwise.add(elementwise.mul(x, x), elementwise.mul(y, y)))
        is_zero = elementwise.eq(length, shaping.full_like(length, 0))
        safe = elementwise.select(is_zero, shaping.full_like(length, 1), length)
        cosine = elementwise.select(is_zero, shaping.full_like(length, 1), elementwise.div(x, safe))
        sine = elementwise.div(y, safe)
        turned = elementwise.add(elementwise.mul(cosine, row), elementwise.mul(sine, w))
        rest = elementwise.sub(elementwise.mul(cosine, w), elementwise.mul(sine, row))
        rest = elementwise.select(elementwise.gt(index, shaping.convert(k, _i32)), rest, shaping.full_like(rest, 0))
        return slicing.dynamic_update_index_in_dim(r, turned, k, 0), rest

    return fori_loop(np.int32(0), np.int32(size), rotate, (r, w))[0]


# --- products ----------------------------------------------------------------------------------------

symmetric_product_p = Primitive("symmetric_product")


@typed(symmetric_product_p)
def _symmetric_product_aval(a, c, *, alpha: float, beta: float) -> ShapedArray:
    batch = check("symmetric_product", (a, c), (2, 2))
    size = a.shape[-2]
    if c.shape[-2:] != (size, size):
        raise ValueError("symmetric_product expects a rectangular matrix of shape (m, n) and a square matrix of shape "
                         f"(m, m). Got shapes {a.shape} and {c.shape}.")
    return strong((*batch, size, size), a.dtype)


@boundary
@at_once("alpha", "beta", "symmetrize_output")
def symmetric_product(a_matrix, c_matrix, *, alpha: float = 1.0, beta: float = 0.0, symmetrize_output: bool = False):
    """alpha * a @ a^T + beta * c, for symmetric c.

    Args:
      a_matrix: (..., m, n). c_matrix: (..., m, m).
      symmetrize_output: make the upper triangle the mirror image of the lower one. Else only the lower triangle
        is promised on every platform.
    """
    result = symmetric_product_p.bind(a_matrix, c_matrix, alpha=float(alpha), beta=float(beta))
    if not symmetrize_output:
        return result
    below = masked(result, elementwise.gt)
    return elementwise.add(masked(result, elementwise.ge), transposed(below))


@decomposes(symmetric_product_p)
def _symmetric_product(a, c, *, alpha: float, beta: float):
    rank, dtype = aval_of(a).ndim, aval_of(a).dtype
    batch = tuple(range(rank - 2))
    product = dot_general(a, a, (((rank - 1,), (rank - 1,)), (batch, batch)), Precision.HIGHEST)
    return elementwise.add(elementwise.mul(dtype.type(alpha), product), elementwise.mul(dtype.type(beta), c))


# --- LU ----------------------------------------------------------------------------------------------

lu_p = Primitive("lu", multiple_results=True)
lu_pivots_to_permutation_p = Primitive("lu_pivots_to_permutation")


@typed(lu_p)
def _lu_avals(x) -> list[ShapedArray]:
    batch = check("lu", (x,), (2,))
    rows, columns = x.shape[-2:]
    return [strong(x.shape, x.dtype), strong((*batch, smallest(rows, columns)), _i32), strong((*batch, rows), _i32)]


@boundary
def lu(x) -> list[Any]:
    """Factors x[permutation] = L @ U by Gaussian elimination with partial pivoting.

    Args:
      x: (..., m, n).
    Returns:
      - L below the diagonal (ones on it are implied) and U on and above it: (..., m, n).
      - int32 pivots (..., min(m, n)): row i was swapped with row pivots[i], in order.
      - the int32 permutation of rows (..., m) that these swaps make.
    """
    return lu_p.bind(x)


@typed(lu_pivots_to_permutation_p)
def _lu_pivots_to_permutation_aval(pivots, *, permutation_size: int) -> ShapedArray:
    if pivots.dtype != _i32:
        raise TypeError(f"lu_pivots_to_permutation does not accept dtype {pivots.dtype} at position 0. "
                        "Accepted dtypes at position 0 are subtypes of int32.")
    if not pivots.ndim:
        raise TypeError(f"Input 0 to lu_pivots_to_permutation must have rank at least 1, but got shape={pivots.shape}")
    if permutation_size < pivots.shape[-1]:
        raise ValueError(f"Output permutation size {permutation_size} has to exceed the trailing dimension of the "
                         f"pivots. Got pivots size {pivots.shape[-1]}")
    return strong((*pivots.shape[:-1], permutation_size), _i32)


@boundary
def lu_pivots_to_permutation(pivots, permutation_size: int):
    """The permutation of `permutation_size` rows that swapping row i with row pivots[i], in order, makes.

    Args:
      pivots: int32 (..., k), zero-based, as `lu` gives them.
    Returns: int32 (..., permutation_size).
    """
    return lu_pivots_to_permutation_p.bind(pivots, permutation_size=int(permutation_size))


# --- QR and Householder reflectors -------------------------------------------------------------------

qr_p = Primitive("qr", multiple_results=True)
geqrf_p = Primitive("geqrf", multiple_results=True)
householder_product_p = Primitive("householder_product")
ormqr_p = Primitive("ormqr")
hessenberg_p = Primitive("hessenberg", multiple_results=True)
tridiagonal_p = Primitive("tridiagonal", multiple_results=True)


@typed(qr_p)
def _qr_avals(x, *, pivoting: bool, full_matrices: bool, use_magma: bool | None = None) -> list[ShapedArray]:
    batch = check("qr", (x,), (2,))
    rows, columns = x.shape[-2:]
    inner = rows if full_matrices else smallest(rows, columns)
    order = [strong((*batch, columns), _i32)] if pivoting else []
    return [strong((*batch, rows, inner), x.dtype), strong((*batch, inner, columns), x.dtype), *order]


@boundary
def qr(x, *, pivoting: bool = False, full_matrices: bool = True, use_magma: bool | None = None):
    """Factors x = Q @ R, Q with orthonormal columns and R upper triangular.

    Args:
      x: (..., m, n).
      pivoting: factor x with its columns reordered, so that R's diagonal decreases in size.
      full_matrices: Q (..., m, m) and R (..., m, n), else (..., m, k) and (..., k, n) with k = min(m, n).
      use_magma: which GPU library to use; of no meaning on the CPU.
    Returns: (Q, R), or (Q, R, P) with `pivoting`: x[:, P] = Q @ R, P int32 (..., n).
    """
    return tuple(qr_p.bind(x, pivoting=bool(pivoting), full_matrices=bool(full_matrices), use_magma=use_magma))


@typed(geqrf_p)
def _geqrf_avals(x) -> list[ShapedArray]:
    batch = check("geqrf", (x,), (2,))
    return [strong(x.shape, x.dtype), strong((*batch, smallest(*x.shape[-2:])), x.dtype)]


def geqrf(x) -> list[Any]:
    """The reflectors of a QR factorization, as LAPACK leaves them.

    Args:
      x: (..., m, n).
    Returns: R on and above the diagonal with the reflectors below it, (..., m, n), and their scales (..., min(m, n)):
      what `householder_product` and `ormqr` take.
    """
    return geqrf_p.bind(x)


@typed(householder_product_p)
def _householder_product_aval(a, taus) -> ShapedArray:
    check("householder_product", (a, taus), (2, 1))
    if a.shape[-2] < a.shape[-1]:
        raise ValueError("The first argument to householder_product must have at least as many rows as columns, "
                         f"got shape {a.shape}")
    if taus.shape[-1] > a.shape[-1]:
        raise ValueError("The second argument to householder_product must not be longer than the first has columns, "
                         f"got shapes {a.shape} and {taus.shape}")
    return strong(a.shape, a.dtype)


@boundary
def householder_product(a, taus):
    """The first n columns of the product of reflectors 1 - tau v v^H.

    Args:
      a: (..., m, n), m >= n: v_i is column i below the diagonal, with a one on it and zeros above.
      taus: (..., k), k <= n.
    Returns: (..., m, n), with orthonormal columns.
    """
    return householder_product_p.bind(a, taus)


@typed(ormqr_p)
def _ormqr_aval(a, taus, c, *, left: bool, transpose: bool) -> ShapedArray:
    check("ormqr", (a, taus, c), (2, 1, 2))
    if taus.shape[-1] > min(a.shape[-2:]):
        raise ValueError("ormqr: there are more taus than reflectors, "
                         f"got a shape {a.shape} and taus shape {taus.shape}.")
    axis, word = (-2, "rows") if left else (-1, "columns")
    if c.shape[axis] != a.shape[-2]:
        raise ValueError(f"ormqr with left={left} expects c to have as many {word} as the Householder matrix a has "
                         f"rows. Got a shape {a.shape} and c shape {c.shape}.")
    return strong(c.shape, c.dtype)


@boundary
def ormqr(a, taus, c, *, left: bool = True, transpose: bool = False):
    """Q @ c, or c @ Q if not `left`, for the full Q that `householder_product` has the first columns of.

    Args:
      a: (..., m, n), taus: (..., k): reflectors. c: (..., m, p), or (..., p, m) if not `left`.
      transpose: multiply by Q^H.
    """
    return ormqr_p.bind(a, taus, c, left=bool(left), transpose=bool(transpose))


@decomposes(ormqr_p)
def _ormqr_by_reflectors(a, taus, c, *, left: bool, transpose: bool):
    """One reflector 1 - tau v v^H after the other, where a platform has no routine for their product."""
    *batch, rows, _ = aval_of(a).shape
    count, shape, axis = aval_of(taus).shape[-1], aval_of(c).shape, len(batch)
    place = shaping.iota(_i32, rows)
    columns = front(slicing.slice_in_dim(a, 0, count, axis=axis + 1), axis + 1)

    def step(c, now):
        index, column, tau = now
        spread = lambda flags: shaping.broadcast_in_dim(flags, (*batch, rows), (axis,))
        index = shaping.broadcast_in_dim(index, (rows,), ())
        v = elementwise.select(spread(elementwise.gt(place, index)), column,
                               shaping.convert(spread(elementwise.eq(place, index)), column.dtype))
        tau = elementwise.conj(tau) if transpose and dtypes.kind(tau.dtype) == "c" else tau
        along = axis if left else axis + 1
        own = [*range(axis), along]
        weights = shaping.broadcast_in_dim(elementwise.conj(v) if left and dtypes.kind(v.dtype) == "c" else v, shape, own)
        inner = reductions.reduce_sum(elementwise.mul(c, weights), (along,))
        inner = elementwise.mul(inner, shaping.broadcast_in_dim(tau, aval_of(inner).shape, range(axis)))
        inner = shaping.broadcast_in_dim(inner, shape, [*range(axis), axis + 1 if left else axis])
        other = v if left or dtypes.kind(v.dtype) != "c" else elementwise.conj(v)
        return elementwise.sub(c, elementwise.mul(inner, shaping.broadcast_in_dim(other, shape, own))), None

    return scan(step, c, (shaping.iota(_i32, count), columns, front(taus, -1)), reverse=left != transpose)[0]


@typed(hessenberg_p)
def _hessenberg_avals(a) -> list[ShapedArray]:
    batch = check("hessenberg", (a,), (2,))
    if a.shape[-1] != a.shape[-2]:
        raise ValueError(f"Argument to Hessenberg reduction must have shape [..., n, n], got shape {a.shape}")
    return [strong(a.shape, a.dtype), strong((*batch, max(a.shape[-1] - 1, 0)), a.dtype)]


@boundary
def hessenberg(a) -> list[Any]:
    """Reduces a to the form H = Q^H @ a @ Q with zeros below the first subdiagonal.

    Args:
      a: (..., n, n).
    Returns: H, with the reflectors of Q below its first subdiagonal, and their scales (..., n - 1).
    """
    return hessenberg_p.bind(a)


@typed(tridiagonal_p)
def _tridiagonal_avals(a, *, lower: bool) -> list[ShapedArray]:
    batch = check("tridiagonal", (a,), (2,))
    check_square("tridiagonal", a.shape)
    size, real = a.shape[-1], dtypes.real_dtype(a.dtype)
    beside = (*batch, max(size - 1, 0))
    return [strong(a.shape, a.dtype), strong((*batch, size), real), strong(beside, real), strong(beside, a.dtype)]


@boundary
def tridiagonal(a, *, lower: bool = True) -> list[Any]:
    """Reduces a Hermitian a to the real tridiagonal form Q^H @ a @ Q.

    Args:
      a: (..., n, n). lower: which triangle to read.
    Returns: the form with the reflectors of Q outside it, its diagonal (..., n) and what stands beside it
      (..., n - 1), both real, and the scales of the reflectors (..., n - 1).
    """
    return tridiagonal_p.bind(a, lower=bool(lower))
