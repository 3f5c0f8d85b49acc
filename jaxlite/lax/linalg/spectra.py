"""Eigenvalues, singular values, Schur forms and polar decompositions."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

import numpy as np

from jaxlite.core import dtypes
from jaxlite.core.aval import ShapedArray
from jaxlite.core.filtering import boundary
from jaxlite.core.primitive import Primitive
from jaxlite.core.symbolic import smallest
from jaxlite.core.values import aval_of
from jaxlite.lax import elementwise, reductions, shaping, slicing
from jaxlite.lax.control_flow import while_loop
from jaxlite.lax.dot import Precision, dot_general
from jaxlite.lax.linalg.factors import cholesky, qr
from jaxlite.lax.linalg.pieces import (
    adjoint,
    at_once,
    check,
    check_choice,
    check_dtype,
    check_matrices,
    check_square,
    complex_dtype,
    pair,
    strong,
    subset,
    symmetrized,
    typed,
)
from jaxlite.lax.linalg.solvers import triangular_solve
from jaxlite.traces.decompose import decomposes

_i32 = np.dtype(np.int32)


class EigImplementation(enum.Enum):
    """The implementation for eigenvalues of general matrices."""

    CUSOLVER = "cusolver"
    MAGMA = "magma"
    LAPACK = "lapack"


class EighImplementation(enum.Enum):
    """The implementation for eigenvalues of Hermitian matrices. The CPU has QR."""

    QR = "qr"
    JACOBI = "jacobi"
    QDWH = "qdwh"


class SvdAlgorithm(enum.Enum):
    """The algorithm for singular values. The CPU has DIVIDE_AND_CONQUER, its default, and QR."""

    DEFAULT = "default"
    QR = "QR"
    JACOBI = "Jacobi"
    POLAR = "polar"
    DIVIDE_AND_CONQUER = "divide_and_conquer"


# --- eigenvalues -------------------------------------------------------------------------------------

eig_p = Primitive("eig", multiple_results=True)
eigh_p = Primitive("eigh", multiple_results=True)
schur_p = Primitive("schur", multiple_results=True)


@typed(eig_p)
def _eig_avals(x, *, compute_left_eigenvectors: bool, compute_right_eigenvectors: bool, enable_eigvec_derivs: bool,
               implementation) -> list[ShapedArray]:
    check("eig", (x,), (2,))
    check_square("eig", x.shape)
    dtype = complex_dtype(x.dtype)
    vectors = [strong(x.shape, dtype)] * (bool(compute_left_eigenvectors) + bool(compute_right_eigenvectors))
    return [strong(x.shape[:-1], dtype), *vectors]


@boundary
def eig(x, *, compute_left_eigenvectors: bool = True, compute_right_eigenvectors: bool = True,
        enable_eigvec_derivs: bool = False, implementation: EigImplementation | None = None,
        use_magma: bool | None = None) -> list[Any]:
    """Eigenvalues and eigenvectors of general square matrices, all complex. On the CPU alone.

    Args:
      x: (..., n, n).
      compute_left_eigenvectors, compute_right_eigenvectors: which vectors to give.
      enable_eigvec_derivs: allow derivatives of the vectors, which their free phase leaves ambiguous.
      implementation: LAPACK on the CPU. use_magma: of no meaning on the CPU.
    Returns: [values (..., n), left vectors (..., n, n), right vectors (..., n, n)], those asked for; vectors are
      columns of length one.
    """
    check_choice("eig", "implementation", implementation, EigImplementation)
    return eig_p.bind(x, compute_left_eigenvectors=bool(compute_left_eigenvectors),
                      compute_right_eigenvectors=bool(compute_right_eigenvectors),
                      enable_eigvec_derivs=bool(enable_eigvec_derivs), implementation=implementation)


@typed(eigh_p)
def _eigh_avals(x, *, lower: bool, sort_eigenvalues: bool, subset_by_index, algorithm) -> list[ShapedArray]:
    batch = check("eigh", (x,), (2,))
    check_square("eigh", x.shape)
    size = x.shape[-1]
    count = subset("eigh", subset_by_index, size)
    return [strong((*batch, size, count), x.dtype), strong((*batch, count), dtypes.real_dtype(x.dtype))]


@boundary
@at_once("lower", "symmetrize_input", "sort_eigenvalues", "subset_by_index", "implementation")
def eigh(x, *, lower: bool = True, symmetrize_input: bool = True, sort_eigenvalues: bool = True,
         subset_by_index: tuple[int, int] | None = None,
         implementation: EighImplementation | None = None) -> tuple[Any, Any]:
    """Eigenvectors and eigenvalues of Hermitian matrices: x @ v = v * w.

    Args:
      x: (..., n, n).
      lower: which triangle to read. symmetrize_input: take (x + x^H) / 2 instead.
      sort_eigenvalues: ascending order is promised if True; on the CPU it always is.
      subset_by_index: not supported on the CPU. implementation: QR on the CPU.
    Returns: (v, w): orthonormal columns (..., n, n), real values (..., n).
    """
    check_choice("eigh", "implementation", implementation, EighImplementation)
    if symmetrize_input:
        x = symmetrized("eigh", x)
    else:
        check_matrices("eigh", aval_of(x).shape)
    vectors, values = eigh_p.bind(x, lower=bool(lower), sort_eigenvalues=bool(sort_eigenvalues),
                                  subset_by_index=pair("eigh", subset_by_index), algorithm=implementation)
    return vectors, values


@typed(schur_p)
def _schur_avals(x, *, compute_schur_vectors: bool, sort_eig_vals: bool, select_callable) -> list[ShapedArray]:
    check("schur", (x,), (2,))
    check_square("schur", x.shape)
    return [strong(x.shape, x.dtype)] * (2 if compute_schur_vectors else 1)


@boundary
def schur(x, *, compute_schur_vectors: bool = True, sort_eig_vals: bool = False,
          select_callable: Callable[..., Any] | None = None):
    """The Schur form x = Z @ T @ Z^H. On the CPU alone.

    Args:
      x: (..., n, n).
      compute_schur_vectors: give Z too.
      sort_eig_vals, select_callable: not supported.
    Returns: [T, Z] or [T]. T is upper triangular if x is complex; if real, pairs of complex eigenvalues stand as
      2x2 blocks on its diagonal.
    Raises: NotImplementedError if asked to sort.
    """
    return schur_p.bind(x, compute_schur_vectors=bool(compute_schur_vectors), sort_eig_vals=bool(sort_eig_vals),
                        select_callable=select_callable)


# --- singular values ---------------------------------------------------------------------------------

svd_p = Primitive("svd", multiple_results=True)


@typed(svd_p)
def _svd_avals(x, *, full_matrices: bool, compute_uv: bool, subset_by_index=None, algorithm=None) -> list[ShapedArray]:
    batch = check("svd", (x,), (2,))
    rows, columns = x.shape[-2:]
    if subset_by_index is not None and full_matrices and compute_uv:
        raise ValueError("full_matrices and subset_by_index cannot both be set")
    inner = subset("svd", subset_by_index, smallest(rows, columns))
    values = strong((*batch, inner), dtypes.real_dtype(x.dtype))
    if not compute_uv:
        return [values]
    return [values, strong((*batch, rows, rows if full_matrices else inner), x.dtype),
            strong((*batch, columns if full_matrices else inner, columns), x.dtype)]


@boundary
def svd(x, *, full_matrices: bool = True, compute_uv: bool = True, subset_by_index: tuple[int, int] | None = None,
        algorithm: SvdAlgorithm | None = None):
    """The singular value decomposition x = (u * s) @ vh.

    Args:
      x: (..., m, n).
      full_matrices: u (..., m, m) and vh (..., n, n), else (..., m, k) and (..., k, n) with k = min(m, n).
      compute_uv: give u and vh too.
      subset_by_index: not supported on the CPU. algorithm: DEFAULT, DIVIDE_AND_CONQUER or QR on the CPU.
    Returns: (u, s, vh), or s alone: real, descending, (..., k).
    """
    check_choice("svd", "algorithm", algorithm, SvdAlgorithm)
    values, *vectors = svd_p.bind(x, full_matrices=bool(full_matrices and compute_uv), compute_uv=bool(compute_uv),
                                  subset_by_index=pair("svd", subset_by_index), algorithm=algorithm)
    return (vectors[0], values, vectors[1]) if compute_uv else values


# --- polar decomposition -----------------------------------------------------------------------------


@boundary
def qdwh(x, *, is_hermitian: bool = False, max_iterations: int | None = None, eps: float | None = None,
         dynamic_shape: tuple[int, int] | None = None) -> tuple[Any, Any, Any, Any]:
    """The polar decomposition x = u @ h, by the dynamically weighted Halley iteration.

    Args:
      x: (m, n), m >= n.
      is_hermitian: x is Hermitian: then so is u.
      max_iterations: 10 by default.
      eps: the precision aimed at, by default that of the dtype.
      dynamic_shape: the part of x that counts: what is outside it is taken as zero.
    Returns: u (m, n) with orthonormal columns, h (n, n) Hermitian and positive semidefinite, how many iterations
      were made (int32), and whether they converged (bool).
    Raises: ValueError unless x is a matrix with at least as many rows as columns, or max_iterations is below 1.
    """
    aval = aval_of(x)
    check_dtype("qdwh", aval)
    if aval.ndim != 2 or aval.shape[0] < aval.shape[1]:
        raise ValueError(f"qdwh needs a matrix with at least as many rows as columns, got shape {aval.shape}")
    limit = 10 if max_iterations is None else int(max_iterations)
    if limit < 1:
        raise ValueError(f"qdwh: max_iterations must be at least 1, got {max_iterations}")
    precision = float(np.finfo(aval.dtype).eps) if eps is None else float(eps)
    if dynamic_shape is not None:
        for axis, size in enumerate(dynamic_shape):
            index = shaping.broadcasted_iota(_i32, aval.shape, axis)
            inside = elementwise.lt(index, shaping.convert(size, _i32, False))
            x = elementwise.select(inside, x, shaping.full_like(x, 0))
    return _qdwh(x, is_hermitian=bool(is_hermitian), limit=limit, eps=precision)


_BY_QR = 100  # weights from which on a step takes a QR decomposition


@at_once("is_hermitian", "limit", "eps")
def _qdwh(x, is_hermitian: bool, limit: int, eps: float) -> tuple[Any, Any, Any, Any]:
    aval = aval_of(x)
    columns, dtype = aval.shape[1], aval.dtype
    real = dtypes.real_dtype(dtype)
    add, sub, mul, div, sqrt = elementwise.add, elementwise.sub, elementwise.mul, elementwise.div, elementwise.sqrt
    number = real.type

    def scaled(factor, matrix):
        return mul(shaping.convert(factor, dtype), matrix)

    def product(a, b):
        return dot_general(a, b, (((1,), (0,)), ((), ())), Precision.HIGHEST)

    def size(matrix):
        return sqrt(reductions.reduce_sum(elementwise.square(elementwise.abs(matrix)), (0, 1)))

    def weights(lower):
        # For singular values in [lower, 1]: Nakatsukasa, Bai and Gygi, SIAM J. Matrix Anal. Appl. 31 (2010).
        square = elementwise.square(lower)
        gap = elementwise.max(sub(number(1), square), number(0))
        d = elementwise.cbrt(div(mul(number(4), gap), elementwise.square(square)))
        root = sqrt(add(number(1), d))
        inner = add(sub(number(8), mul(number(4), d)), div(mul(number(8), sub(number(2), square)), mul(square, root)))
        a = add(root, mul(number(0.5), sqrt(inner)))
        b = div(elementwise.square(sub(a, number(1))), number(4))
        return a, b, sub(add(a, b), number(1))

    def by_qr(u, c):
        q, _ = qr(shaping.concatenate([scaled(sqrt(c), u), _identity(columns, dtype)], 0), full_matrices=False)
        top, bottom = shaping.split(q, (aval.shape[0], columns))
        return scaled(div(number(1), sqrt(c)), product(top, adjoint(bottom)))

    def by_cholesky(u, c):
        factor = cholesky(add(scaled(c, product(adjoint(u), u)), _identity(columns, dtype)), symmetrize_input=False)
        half = triangular_solve(factor, u, lower=True, transpose_a=True, conjugate_a=True)
        return triangular_solve(factor, half, lower=True)

    def step(turned: Callable[[Any, Any], Any]):
        """One that has u (1 + c u^H u)^-1 by a factorization."""

        def iterate(carry):
            u, lower, count, _ = carry
            a, b, c = weights(lower)
            kept, square = div(b, c), elementwise.square(lower)
            new = add(scaled(kept, u), scaled(sub(a, kept), turned(u, c)))
            lower = div(mul(lower, add(a, mul(b, square))), add(number(1), mul(c, square)))
            return new, elementwise.min(lower, number(1)), add(count, np.int32(1)), size(sub(new, u))

        return iterate

    tolerance = number((4 * eps) ** (1 / 3))

    def converged(lower, change):
        # The bound counts as well: the first steps may change little.
        return elementwise.bitwise_and(elementwise.le(change, tolerance),
                                       elementwise.le(sub(number(1), lower), number(5 * eps)))

    def unfinished(carry):
        _, lower, count, change = carry
        return elementwise.bitwise_and(elementwise.bitwise_not(converged(lower, change)),
                                       elementwise.lt(count, np.int32(limit)))

    bound = size(x)
    bound = elementwise.select(elementwise.eq(bound, number(0)), shaping.full_like(bound, 1), bound)
    start = div(x, shaping.convert(bound, dtype))
    first = start, shaping.full((), eps, real), np.int32(0), shaping.full((), np.inf, real)
    # A Cholesky factorization costs a third, and is as exact once the matrix that it factors is not too ill-conditioned.
    early = lambda carry: elementwise.bitwise_and(unfinished(carry), elementwise.gt(weights(carry[1])[2], number(_BY_QR)))
    u, lower, count, change = while_loop(unfinished, step(by_cholesky), while_loop(early, step(by_qr), first))
    if is_hermitian:
        u = symmetrized("qdwh", u)
    h = symmetrized("qdwh", product(adjoint(u), x))
    return u, h, shaping.convert(count, None, True), converged(lower, change)  # weak, as in JAX


# --- singular values where a platform has eigenvalues alone ------------------------------------------


@decomposes(svd_p)
def _svd_by_eigh(x, *, full_matrices: bool, compute_uv: bool, subset_by_index=None, algorithm=None) -> list[Any]:
    """The singular value decomposition on platforms whose libraries have QR and `eigh`.

    With A = Q R, the eigenvalues of [[0, R], [R^H, 0]] are the singular values and their negatives, and the halves of its
    eigenvectors are the singular vectors, up to a factor (G. Golub and W. Kahan, 1965). A QR decomposition of each half makes
    them orthonormal where singular values are zero or equal.
    """
    *batch, rows, columns = aval_of(x).shape
    if rows < columns:
        out = _svd_by_eigh(adjoint(x), full_matrices=full_matrices, compute_uv=compute_uv, subset_by_index=None,
                           algorithm=algorithm)
        return [out[0], adjoint(out[2]), adjoint(out[1])] if compute_uv else out
    dtype, axis = aval_of(x).dtype, len(batch)
    q, r = qr(x, full_matrices=full_matrices)
    r = slicing.slice_in_dim(r, 0, columns, axis=axis)
    none = shaping.full(aval_of(r).shape, 0, dtype)
    both = shaping.concatenate([shaping.concatenate([none, r], axis + 1),
                                shaping.concatenate([adjoint(r), none], axis + 1)], axis)
    vectors, values = eigh(both, symmetrize_input=False)
    values = shaping.rev(slicing.slice_in_dim(values, columns, 2 * columns, axis=axis), (axis,))
    values = elementwise.max(values, shaping.full_like(values, 0))
    if not compute_uv:
        return [values]
    vectors = shaping.rev(slicing.slice_in_dim(vectors, columns, 2 * columns, axis=axis + 1), (axis + 1,))

    def orthonormal(half):
        basis, scales = qr(half, full_matrices=False)
        spread = shaping.broadcast_in_dim(_identity(columns, dtype), aval_of(scales).shape, (axis, axis + 1))
        diagonal = reductions.reduce_sum(elementwise.mul(scales, spread), (axis,))
        size = elementwise.abs(diagonal)
        phase = elementwise.select(elementwise.eq(size, shaping.full_like(size, 0)), shaping.full_like(diagonal, 1),
                                   elementwise.sign(diagonal))
        return elementwise.mul(basis, shaping.broadcast_in_dim(phase, aval_of(basis).shape, (*range(axis), axis + 1)))

    left = orthonormal(slicing.slice_in_dim(vectors, 0, columns, axis=axis))
    right = orthonormal(slicing.slice_in_dim(vectors, columns, 2 * columns, axis=axis))
    batched = (tuple(range(axis)), tuple(range(axis)))

    def product(a, b):
        return dot_general(a, b, (((axis + 1,), (axis,)), batched), precision=Precision.HIGHEST)

    u = product(slicing.slice_in_dim(q, 0, columns, axis=axis + 1), left)
    if full_matrices and rows > columns:
        u = shaping.concatenate([u, slicing.slice_in_dim(q, columns, rows, axis=axis + 1)], axis + 1)
    return [values, u, adjoint(right)]


def _identity(size: int, dtype):
    row, column = shaping.indices((size, size))
    return shaping.convert(elementwise.eq(row, column), dtype)
