"""Derivative and batching rules of factorizations and solvers.

The formulas are published ones, named at each rule; d is a differential, H the adjoint, o the elementwise product.
Factorizations that read one triangle are differentiated as functions of that triangle. Where a factorization is not
differentiable (equal eigenvalues or singular values, singular matrices), derivatives are infinite or NaN.

[Giles] M. Giles, An extended collection of matrix derivative results for forward and reverse mode automatic
  differentiation, 2008. [Murray] I. Murray, Differentiation of the Cholesky decomposition, arXiv:1602.07527.
[Walter] S. Walter and L. Lehmann, Algorithmic differentiation of linear algebra functions, arXiv:1001.1654.
[Townsend] J. Townsend, Differentiating the singular value decomposition, 2016. [Wan] Z. Wan and S. Zhang, Automatic
  differentiation for complex valued SVD, arXiv:1909.02659. [Boeddeker] C. Boeddeker et al., On the computation of
  complex-valued gradients with application to statistically optimum beamforming, arXiv:1701.00392.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Any

import numpy as np

from jaxlite.core import dtypes
from jaxlite.core.primitive import Primitive
from jaxlite.core.values import aval_of
from jaxlite.lax import elementwise as e
from jaxlite.lax import shaping, slicing
from jaxlite.lax.elementwise_rules import const, filled, moved
from jaxlite.lax.gather_scatter import GatherDimensionNumbers, gather
from jaxlite.lax.linalg.factors import (
    cholesky_p,
    cholesky_update_p,
    geqrf_p,
    hessenberg_p,
    householder_product_p,
    lu_p,
    lu_pivots_to_permutation_p,
    ormqr_p,
    qr_p,
    symmetric_product_p,
    tridiagonal_p,
)
from jaxlite.lax.linalg.solvers import (
    lu_solve,
    lu_solve_p,
    matrix_product,
    triangular_solve,
    triangular_solve_p,
    tridiagonal_solve_p,
)
from jaxlite.lax.linalg.spectra import eig_p, eigh_p, schur_p, svd_p
from jaxlite.lax.reductions import reduce_max, reduce_sum
from jaxlite.lax.triangles import masked, places
from jaxlite.traces.batching import Axis, bring, bring_to_front
from jaxlite.traces.decompose import rules_by_parts
from jaxlite.traces.jvp import Zero, add_tangents, def_jvp_of_one, def_zero, zero_for
from jaxlite.traces.transpose import is_linear

# --- batching ----------------------------------------------------------------------------------------


def _batch_in_front(primitive: Primitive) -> None:
    """All of them take leading axes: the batch becomes the first."""

    @primitive.def_batching
    def batch(axis: Axis, args: Sequence[Any], dims: Sequence[int | None], **params) -> tuple[Any, Any]:
        args = [bring_to_front(arg, dim, axis.size) for arg, dim in zip(args, dims, strict=True)]
        out = primitive.bind(*args, **params)
        return (out, [0] * len(out)) if primitive.multiple_results else (out, 0)


for _p in (cholesky_p, lu_p, lu_pivots_to_permutation_p, qr_p, geqrf_p, householder_product_p, ormqr_p, hessenberg_p,
           tridiagonal_p, eig_p, eigh_p, schur_p, svd_p):
    _batch_in_front(_p)


def _batch_right_sides(primitive: Primitive) -> None:
    """Solvers whose last operand is the right side. If only that is batched, the examples are more columns (or rows) of one
    right side, and the matrix is not repeated."""

    @primitive.def_batching
    def batch(axis: Axis, args: Sequence[Any], dims: Sequence[int | None], **params) -> tuple[Any, int]:
        if any(dim is not None for dim in dims[:-1]):
            return primitive.bind(*map(bring_to_front, args, dims, repeat(axis.size)), **params), 0
        where = aval_of(args[-1]).ndim - (2 if params.get("left_side", True) else 3)
        b = bring(args[-1], dims[-1], axis.size, where)
        shape = aval_of(b).shape
        merged = (*shape[:where], shape[where] * shape[where + 1], *shape[where + 2:])
        return shaping.reshape(primitive.bind(*args[:-1], shaping.reshape(b, merged), **params), shape), where


for _p in (triangular_solve_p, lu_solve_p, tridiagonal_solve_p):
    _batch_right_sides(_p)

for _p in (cholesky_update_p, symmetric_product_p):
    rules_by_parts(_p)
_batch_in_front(symmetric_product_p)

for _p in (geqrf_p, householder_product_p, ormqr_p, hessenberg_p, tridiagonal_p):
    _p.no_jvp("it is given by reflectors, which are a detail of the method; differentiate qr, eigh or a product instead")
schur_p.no_jvp("the form is not unique: differentiate eig, or a function that it is used for")
def_zero(lu_pivots_to_permutation_p)

# --- pieces ------------------------------------------------------------------------------------------


def _axes(x) -> tuple[int, tuple[int, ...]]:
    rank = aval_of(x).ndim
    return rank, tuple(range(rank - 2))


_mm = matrix_product


def _t(x):
    rank, batch = _axes(x)
    return shaping.transpose(x, (*batch, rank - 1, rank - 2))


def _is_complex(x) -> bool:
    return dtypes.kind(aval_of(x).dtype) == "c"


def _h(x):
    return e.conj(_t(x)) if _is_complex(x) else _t(x)


def _triangle(x, lower: bool, offset: int = 0):
    """One triangle with the diagonal; without it at offset 1."""
    return masked(x, e.ge, -offset) if lower else masked(x, e.le, offset)


def _add_identity(x):
    return e.add(x, _like(places(x, e.eq), x))


def _diagonal(x):
    return reduce_sum(masked(x, e.eq), (aval_of(x).ndim - 1,))


def _rows(x, vector):
    """A vector for each matrix as the rows of a matrix shaped like x: element j in column j."""
    rank, batch = _axes(x)
    return shaping.broadcast_in_dim(vector, aval_of(x).shape, (*batch, rank - 1))


def _columns(x, vector):
    """A vector for each matrix as the columns of a matrix shaped like x: element i in row i."""
    rank, batch = _axes(x)
    return shaping.broadcast_in_dim(vector, aval_of(x).shape, (*batch, rank - 2))


def _like(vector, x):
    return shaping.convert(vector, aval_of(x).dtype, False)


def _solve_triangular(a, b, **options):
    return triangular_solve(a, b, **options)


def _hermitian(x, lower: bool):
    """The Hermitian matrix that a factorization reads from one triangle of a tangent."""
    part = _triangle(x, lower, 1)
    real = _like(e.real(x), x) if _is_complex(x) else x
    diagonal = masked(real, e.eq)
    return e.add(e.add(part, _h(part)), diagonal)


def _permuted(x, permutation, axis: int):
    """Rows (axis -2) or columns (axis -1) of each matrix in the order of its permutation."""
    rank, batch = _axes(x)
    shape = list(aval_of(x).shape)
    where = rank + axis
    numbers = GatherDimensionNumbers(
        offset_dims=(rank - 1 if axis == -2 else rank - 2,), collapsed_slice_dims=(where,), start_index_map=(where,),
        operand_batching_dims=batch, start_indices_batching_dims=batch)
    sizes = [1] * rank
    sizes[-1 if axis == -2 else -2] = shape[-1 if axis == -2 else -2]
    return gather(x, shaping.expand_dims(permutation, (rank - 1,)), numbers, sizes, unique_indices=True)


def _solve(a, b):
    """a^-1 b for general square matrices."""
    factors, _, permutation = lu_p.bind(shaping.stop_gradient(a))
    return lu_solve(a, factors, permutation, b)


def _inverse_gaps(values, like):
    """F with F[i, j] = 1 / (values[j] - values[i]), 0 on the diagonal; infinite for equal values."""
    gaps = e.sub(_rows(like, values), _columns(like, values))
    return masked(e.div(filled(1, gaps), _add_identity(gaps)), e.ne)


# --- Cholesky and triangular systems -----------------------------------------------------------------


@cholesky_p.def_jvp
def _cholesky_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """dL = L phi(L^-1 dA L^-H), phi the lower triangle with half of the diagonal [Murray]."""
    (x,), (dx,) = primals, tangents
    factor = _triangle(cholesky_p.bind(x), lower=True)
    if type(dx) is Zero:
        return factor, zero_for(factor)
    inner = _solve_triangular(factor, _hermitian(dx, lower=True), left_side=True, lower=True)
    inner = _solve_triangular(factor, inner, lower=True, transpose_a=True, conjugate_a=True)
    half = e.select_n(places(inner, e.eq), inner, e.mul(inner, const(0.5, inner)))
    return factor, shaping.strong(_mm(factor, _triangle(half, lower=True)))  # as in JAX, whatever the factor is


@triangular_solve_p.def_jvp
def _triangular_solve_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, lower: bool, unit_diagonal: bool,
                          left_side: bool, transpose_a: bool, conjugate_a: bool) -> tuple[Any, Any]:
    """dX = A^-1 (dB - dA X) [Giles], of dA the triangle that is read."""
    (a, b), (da, db) = primals, tangents
    params = dict(lower=lower, unit_diagonal=unit_diagonal, left_side=left_side, transpose_a=transpose_a,
                  conjugate_a=conjugate_a)
    x = triangular_solve_p.bind(a, b, **params)
    total = db
    if type(da) is not Zero:
        da = _triangle(da, lower, int(unit_diagonal))
        total = add_tangents(matrix_product(e.neg(e.conj(da) if conjugate_a else da), x, left_side, transpose_a), db)
    return x, zero_for(x) if type(total) is Zero else triangular_solve_p.bind(a, total, **params)


@triangular_solve_p.def_transpose
def _triangular_solve_transpose(ct, a, b, *, transpose_a: bool, **params) -> list[Any]:
    assert is_linear(b) and not is_linear(a), "triangular_solve is linear in its second operand"
    return [None, triangular_solve_p.bind(a, ct, transpose_a=not transpose_a, **params)]


# --- tridiagonal systems -----------------------------------------------------------------------------


def _tridiagonal_product(diagonals: Sequence[Any], x):
    """A x for the tridiagonal A of some tangents of diagonals, which may be zero."""
    _, batch = _axes(x)
    total: Any = Zero(aval_of(x))
    for diagonal, rows in zip(diagonals, (1, 0, -1), strict=True):
        if type(diagonal) is not Zero:
            total = add_tangents(total, e.mul(_columns(x, diagonal), moved(x, rows, -2) if rows else x))
    return total


@tridiagonal_solve_p.def_jvp
def _tridiagonal_solve_jvp(primals: Sequence[Any], tangents: Sequence[Any], **params) -> tuple[Any, Any]:
    """dX = A^-1 (dB - dA X), as for every linear system."""
    *diagonals, _ = primals
    x = tridiagonal_solve_p.bind(*primals, **params)
    product = _tridiagonal_product(tangents[:3], x)
    total = tangents[3] if type(product) is Zero else add_tangents(e.neg(product), tangents[3])
    if type(total) is Zero:
        return x, zero_for(x)
    return x, tridiagonal_solve_p.bind(*diagonals, total, **params)


@tridiagonal_solve_p.def_transpose
def _tridiagonal_solve_transpose(ct, below, diagonal, above, b, **params) -> list[Any]:
    # The transposed matrix has below it what was above, one row further down.
    solved = tridiagonal_solve_p.bind(moved(above, 1, -1), diagonal, moved(below, -1, -1), ct, **params)
    return [None, None, None, solved]


# --- LU and QR ---------------------------------------------------------------------------------------


@def_jvp_of_one(lu_p)
def _lu_jvp(x, dx) -> tuple[Any, Any]:
    """With Z = L^-1 P dA U^-1: dL = L tril(Z, -1), dU = triu(Z) U, as follows from P dA = dL U + L dU.

    Factors that are not square are completed by the identity; Z does not depend on the completion where it is used.
    """
    packed, pivots, permutation = outs = lu_p.bind(x)
    rows, columns = aval_of(x).shape[-2:]
    rest = [(0, 0, 0)] * (aval_of(x).ndim - 2)
    left = right = packed
    if rows > columns:
        left = shaping.pad(packed, const(0, x), [*rest, (0, 0, 0), (0, rows - columns, 0)])
        right = slicing.slice_in_dim(packed, 0, columns, axis=-2)
    elif columns > rows:
        left = slicing.slice_in_dim(packed, 0, rows, axis=-1)
        right = shaping.pad(packed, const(0, x), [*rest, (0, columns - rows, 0), (0, 0, 0)])
    left = _add_identity(_triangle(left, lower=True, offset=1))
    right = _triangle(right, lower=False)
    if columns > rows:
        corner = np.diag((np.arange(columns) >= rows).astype(aval_of(x).dtype))
        rank = aval_of(x).ndim
        right = e.add(right, shaping.broadcast_in_dim(corner, aval_of(right).shape, (rank - 2, rank - 1)))
    z = _solve_triangular(left, _permuted(dx, permutation, -2), left_side=True, lower=True, unit_diagonal=True)
    z = _solve_triangular(right, z)
    tangent = e.add(_mm(left, _triangle(z, lower=True, offset=1)), _mm(_triangle(z, lower=False), right))
    return outs, [tangent, zero_for(pivots), zero_for(permutation)]


@lu_solve_p.def_jvp
def _lu_solve_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, transpose_a: bool) -> tuple[Any, Any]:
    """dX = A^-1 (dB - dA X), with the given factors: their own tangents follow from A's."""
    (a, factors, permutation, b), (da, _, _, db) = primals, tangents
    x = lu_solve(a, factors, permutation, b, transpose_a=transpose_a)
    if type(da) is not Zero:
        db = add_tangents(matrix_product(e.neg(da), x, transpose_a=transpose_a), db)
    return x, zero_for(x) if type(db) is Zero else lu_solve(a, factors, permutation, db, transpose_a=transpose_a)


@lu_solve_p.def_transpose
def _lu_solve_transpose(ct, a, factors, permutation, b, *, transpose_a: bool) -> list[Any]:
    assert is_linear(b) and not is_linear(a), "lu_solve is linear in its last operand"
    return [None, None, None, lu_solve(a, factors, permutation, ct, transpose_a=not transpose_a)]


@def_jvp_of_one(qr_p)
def _qr_jvp(x, dx, *, pivoting: bool, full_matrices: bool, use_magma) -> tuple[Any, Any]:
    """dQ = Q (K - M) + C, dR = Q^H dA - K R, with C = dA R^-1, M = Q^H C, and K = Q^H dQ skew [Walter].

    Of a wide matrix the leading square part fixes Q. R's diagonal is real, so K's is imaginary. The columns that complete
    the Q of a tall matrix are arbitrary: they move with the others as little as they can, not among each other.
    """
    q, r, *order = outs = qr_p.bind(x, pivoting=pivoting, full_matrices=full_matrices, use_magma=use_magma)
    rows, columns = aval_of(x).shape[-2:]
    if order:
        dx = _permuted(dx, order[0], -1)
    r_square, dx_square = (slicing.slice_in_dim(each, 0, rows, axis=-1) if columns > rows else each for each in (r, dx))
    is_completed = full_matrices and rows > columns
    if is_completed:
        r_square = slicing.slice_in_dim(r, 0, columns, axis=-2)
    c = _solve_triangular(r_square, dx_square)
    if is_completed:
        c = shaping.pad(c, const(0, c), [(0, 0, 0)] * (aval_of(x).ndim - 1) + [(0, rows - columns, 0)])
    m = _mm(_h(q), c)
    below = _triangle(m, lower=True, offset=1)
    k = e.sub(below, _h(below))
    if _is_complex(x):
        diagonal = masked(m, e.eq)
        k = e.add(k, e.sub(diagonal, _like(e.real(diagonal), m)))
    dq = e.add(_mm(q, e.sub(k, m)), c)
    # Q^H dA is M R, unless A is wide.
    dr = e.sub(_mm(_h(q), dx), _mm(k, r)) if columns > rows else _mm(e.sub(m, k), r)
    return outs, [shaping.strong(dq), shaping.strong(_triangle(dr, lower=False)), *[zero_for(each) for each in order]]


# --- eigenvalues -------------------------------------------------------------------------------------


@def_jvp_of_one(eigh_p)
def _eigh_jvp(x, dx, *, lower: bool, **params) -> tuple[Any, Any]:
    """dw = diag(V^H dA V), dV = V (F o (V^H dA V)), F[i, j] = 1 / (w[j] - w[i]) [Giles]."""
    vectors, values = outs = eigh_p.bind(x, lower=lower, **params)
    if aval_of(vectors).shape != aval_of(x).shape:
        raise NotImplementedError("eigh: a subset of the eigenvectors has no derivative in terms of the subset alone; take "
                                  "all and slice")
    inner = _mm(_mm(_h(vectors), _hermitian(dx, lower)), vectors)
    change = _mm(vectors, e.mul(inner, _inverse_gaps(_like(values, x), x)))
    diagonal = _diagonal(inner)
    return outs, [change, e.real(diagonal) if _is_complex(x) else diagonal]


def _eigenvector_tangent(vectors, inner, values):
    """dV = V (F o (V^-1 dA V)), of which each column then gets a multiple of its vector, so that it keeps its length
    and the phase that LAPACK gives it: its largest element is real [Boeddeker, for the length]."""
    change = _mm(vectors, e.mul(inner, _inverse_gaps(values, vectors)))
    axis = aval_of(vectors).ndim - 2
    overlap = e.mul(e.conj(vectors), change)
    size = e.abs(vectors)
    is_largest = e.eq(size, shaping.broadcast_in_dim(
        reduce_max(size, (axis,)), aval_of(size).shape, (*range(axis), axis + 1)))
    zero = filled(0, size)
    turn = e.div(reduce_sum(e.select_n(is_largest, zero, e.imag(overlap)), (axis,)),
                 reduce_sum(e.select_n(is_largest, zero, e.square(size)), (axis,)))
    shift = e.complex(reduce_sum(e.real(overlap), (axis,)), turn)
    return e.sub(change, e.mul(vectors, _rows(vectors, shift)))


@def_jvp_of_one(eig_p)
def _eig_jvp(x, dx, *, compute_left_eigenvectors: bool, compute_right_eigenvectors: bool, enable_eigvec_derivs: bool,
             implementation) -> tuple[Any, Any]:
    """dw = diag(V^-1 dA V) [Giles]. Left vectors are the right ones of A^H, with conjugate values."""
    if (compute_left_eigenvectors or compute_right_eigenvectors) and not enable_eigvec_derivs:
        raise NotImplementedError(
            "Derivatives of non-symmetric eigenvectors hold only where the eigenvalues differ, and for vectors of length "
            "one whose largest element is real. Pass enable_eigvec_derivs=True if that is so, or compute eigenvalues "
            "alone: compute_left_eigenvectors=False, compute_right_eigenvectors=False.")
    # Second derivatives of the values go through the vectors, and do not depend on their length and phase.
    values, *vectors = eig_p.bind(x, compute_left_eigenvectors=compute_left_eigenvectors, compute_right_eigenvectors=True,
                                     enable_eigvec_derivs=True, implementation=implementation)
    right = vectors[-1]
    dx = _like(dx, right)
    inner = _solve(right, _mm(dx, right))
    outs, tangents_out = [values], [_diagonal(inner)]
    if compute_left_eigenvectors:
        left = vectors[0]
        outs.append(left)
        tangents_out.append(_eigenvector_tangent(left, _solve(left, _mm(_h(dx), left)), e.conj(values)))
    if compute_right_eigenvectors:
        outs.append(right)
        tangents_out.append(_eigenvector_tangent(right, inner, values))
    return outs, tangents_out


# --- singular values ---------------------------------------------------------------------------------


@def_jvp_of_one(svd_p)
def _svd_jvp(x, dx, *, full_matrices: bool, compute_uv: bool, **params) -> tuple[Any, Any]:
    """With P = U^H dA V: dS = diag(P), dU = U (F o (P S + S P^H)) + (1 - U U^H) dA V S^-1, dV alike, where
    F[i, j] = 1 / (s[j]^2 - s[i]^2) [Townsend]. Complex: the imaginary part of diag(P) turns U and V against each other
    [Wan]; phases of their columns are arbitrary, and U takes it all, as in JAX."""
    rows, columns = aval_of(x).shape[-2:]
    if compute_uv and full_matrices and rows != columns:
        raise NotImplementedError(
            f"Singular value decomposition: the full factors of matrices of shape {(rows, columns)} have no derivative, "
            "since the vectors that complete them are arbitrary. Use full_matrices=False.")
    values, u, vh = svd_p.bind(x, full_matrices=False, compute_uv=True, **params)
    if compute_uv and aval_of(values).shape[-1] != min(rows, columns):
        raise NotImplementedError("svd: a subset of the singular vectors has no derivative in terms of the subset alone; "
                                  "take all and slice")
    v = _h(vh)
    dxv = _mm(dx, v)
    p = _mm(_h(u), dxv)
    diagonal = _diagonal(p)
    change = e.real(diagonal) if _is_complex(x) else diagonal
    if not compute_uv:
        return [values], [change]
    s = _like(values, x)
    across, down = _rows(p, s), _columns(p, s)
    ph = _h(p)
    gaps = _inverse_gaps(e.square(s), p)
    turn_u = e.mul(gaps, e.add(e.mul(p, across), e.mul(down, ph)))
    turn_v = e.mul(gaps, e.add(e.mul(down, p), e.mul(ph, across)))
    if _is_complex(x):
        on_diagonal = masked(p, e.eq)
        turn_u = e.add(turn_u, e.div(e.sub(on_diagonal, _h(on_diagonal)), e.mul(const(2, p), across)))
    du, dv = _mm(u, turn_u), _mm(v, turn_v)
    if rows > columns:
        du = e.add(du, e.div(e.sub(dxv, _mm(u, p)), _rows(u, s)))
    elif columns > rows:
        dv = e.add(dv, e.div(e.sub(_mm(_h(dx), u), _mm(v, ph)), _rows(v, s)))
    return [values, u, vh], [change, du, _h(dv)]
