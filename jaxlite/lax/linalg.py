"""Factorizations of matrices, and solvers that use them, under the names of `jax.lax.linalg`.

Operands have shape (..., m, n), with leading batch axes. All functions are strict: one of float32, float64, complex64,
complex128, without promotion. On the CPU they call LAPACK; if it fails for a matrix, the result is NaN.

The file is long because `jax.lax.linalg` is one module: each section is a primitive with its type and its function,
independent of the others.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from jaxlite.compilation.jit import jit
from jaxlite.core import dtypes
from jaxlite.core.aval import Ints, ShapedArray, shaped_array
from jaxlite.core.filtering import boundary
from jaxlite.core.primitive import Primitive, register_rule_modules
from jaxlite.core.symbolic import smallest
from jaxlite.core.tracing import state
from jaxlite.core.values import aval_of
from jaxlite.lax import elementwise, reductions, shaping, slicing, sorting
from jaxlite.lax.control_flow import custom_linear_solve, fori_loop, scan, while_loop
from jaxlite.lax.dot import Precision, dot_general
from jaxlite.lax.elementwise import INEXACT, require_kind
from jaxlite.lax.gather_scatter import GatherDimensionNumbers, gather
from jaxlite.lax.triangles import masked
from jaxlite.traces.decompose import decomposes
from jaxlite.traces.eager import eager_trace

__all__ = [
    "EigImplementation", "EighImplementation", "SvdAlgorithm", "cholesky", "cholesky_p", "cholesky_update",
    "cholesky_update_p", "eig", "eig_p", "eigh", "eigh_p", "geqrf", "hessenberg", "hessenberg_p", "householder_product",
    "householder_product_p", "lu", "lu_p", "lu_pivots_to_permutation", "lu_pivots_to_permutation_p", "lu_solve", "lu_solve_p",
    "ormqr", "ormqr_p", "qdwh", "qr", "qr_p", "schur", "schur_p", "svd", "svd_p", "symmetric_product", "symmetric_product_p",
    "triangular_solve", "triangular_solve_p", "tridiagonal", "tridiagonal_p", "tridiagonal_solve", "tridiagonal_solve_p",
]
__dir__ = lambda: __all__

_i32 = np.dtype(np.int32)


class EigImplementation(enum.Enum):
    """What computes eigenvalues of general matrices."""

    CUSOLVER = "cusolver"
    MAGMA = "magma"
    LAPACK = "lapack"


class EighImplementation(enum.Enum):
    """What computes eigenvalues of Hermitian matrices. The CPU has QR."""

    QR = "qr"
    JACOBI = "jacobi"
    QDWH = "qdwh"


class SvdAlgorithm(enum.Enum):
    """What computes singular values. The CPU has DIVIDE_AND_CONQUER, its default, and QR."""

    DEFAULT = "default"
    QR = "QR"
    JACOBI = "Jacobi"
    POLAR = "polar"
    DIVIDE_AND_CONQUER = "divide_and_conquer"


# --- typing ------------------------------------------------------------------------------------------


def _check(name: str, avals: tuple[Any, ...], ranks: Ints, accepted: str = INEXACT) -> Ints:
    """Check kinds, dtypes, and that operand i has ranks[i] axes after leading axes common to all; gives those."""
    for position, (aval, rank) in enumerate(zip(avals, ranks, strict=True)):
        require_kind(name, aval, accepted, position)
        if aval.ndim < rank:
            raise TypeError(f"Input {position} to {name} must have rank at least {rank}, but got shape={aval.shape}")
    if any(aval.dtype != avals[0].dtype for aval in avals):
        raise TypeError(f"lax.linalg.{name} requires arguments to have the same dtypes, got "
                        f"{', '.join(str(aval.dtype) for aval in avals)}. Convert them with lax.convert_element_type.")
    batches = [aval.shape[:aval.ndim - rank] for aval, rank in zip(avals, ranks, strict=True)]
    if any(len(batch) != len(batches[0]) for batch in batches):
        raise TypeError(f"All inputs to {name} must have the same number of batch dimensions, but got "
                        f"{[len(batch) for batch in batches]} batch dimensions for the inputs.")
    if any(batch != batches[0] for batch in batches):
        raise TypeError(f"All inputs to {name} must have the same batch dimensions, but got {batches}.")
    return batches[0]


def _check_square(name: str, shape: Ints, which: str = "input") -> None:
    if shape[-1] != shape[-2]:
        raise ValueError(f"The {which} to {name} must be a square matrix. Got shape {shape}.")


def _real_dtype(dtype):
    return np.dtype(dtype.type(0).real.dtype)


def _complex_dtype(dtype):
    return np.result_type(dtype, np.complex64)


def _typed(primitive: Primitive) -> Callable[[Callable], Callable]:
    """Decorator: set the typing rule; results are weak where all operands are."""

    def register(rule: Callable[..., Any]) -> Callable[..., Any]:
        def typing_rule(*avals, **params):
            out = rule(*avals, **params)
            if not all(aval.weak_type for aval in avals):
                return out
            weak = [shaped_array(each.shape, each.dtype, True) for each in (out if type(out) is list else [out])]
            return weak if type(out) is list else weak[0]

        primitive.def_abstract_eval(typing_rule)
        return rule

    return register


def _strong(shape, dtype) -> ShapedArray:
    return shaped_array(tuple(shape), dtype, False)


def _subset(name: str, subset_by_index, count: int) -> int:
    """How many of `count` values are requested."""
    if subset_by_index is None:
        return count
    start, stop = subset_by_index
    if not 0 <= start < stop <= count:
        raise ValueError(f"{name}: subset_by_index must be a pair with 0 <= start < stop <= {count}, "
                         f"got {subset_by_index}")
    return stop - start


def _pair(name: str, subset_by_index) -> tuple[int, int] | None:
    if subset_by_index is None:
        return None
    pair = tuple(map(int, subset_by_index))
    if len(pair) != 2:
        raise ValueError(f"{name}: subset_by_index must be a pair (start, stop), got {subset_by_index}")
    return pair  # type: ignore[return-value]


def _check_choice(name: str, argument: str, value, choices: type[enum.Enum]) -> None:
    if value is not None and not isinstance(value, choices):
        raise TypeError(f"{name}: {argument} must be one of {', '.join(map(str, choices))} or None, got {value!r}")


# --- pieces ------------------------------------------------------------------------------------------


def _at_once(*static: str) -> Callable[[Callable], Callable]:
    """Decorator: an eager call compiles one program, not one for each of the operations around the factorization."""

    def decorate(fun: Callable[..., Any]) -> Callable[..., Any]:
        compiled = functools.cache(lambda: jit(fun, static_argnames=static))

        @functools.wraps(fun)
        def wrapper(*args, **kwargs):
            return (compiled() if state.trace is eager_trace else fun)(*args, **kwargs)

        return wrapper

    return decorate


def _transposed(x):
    rank = aval_of(x).ndim
    return shaping.transpose(x, (*range(rank - 2), rank - 1, rank - 2))


def _adjoint(x):
    x = _transposed(x)
    return elementwise.conj(x) if dtypes.kind(aval_of(x).dtype) == "c" else x


def _symmetrized(name: str, x):
    """(x + x^H) / 2, so that rounding in one triangle does not show."""
    aval = aval_of(x)
    if aval.ndim < 2:
        raise TypeError(f"Input 0 to {name} must have rank at least 2, but got shape={aval.shape}")
    _check_square(name, aval.shape)
    x = shaping.convert(x, dtypes.to_inexact_dtype(aval.dtype), aval.weak_type)
    total = elementwise.add(x, _adjoint(x))
    return elementwise.div(total, shaping.full_like(total, 2, shape=()))


# --- Cholesky ----------------------------------------------------------------------------------------

cholesky_p = Primitive("cholesky")
cholesky_update_p = Primitive("cholesky_update")


@_typed(cholesky_p)
def _cholesky_aval(x) -> ShapedArray:
    _check("cholesky", (x,), (2,))
    _check_square("cholesky", x.shape)
    return _strong(x.shape, x.dtype)


@boundary
@_at_once("symmetrize_input")
def cholesky(x, *, symmetrize_input: bool = True):
    """The lower triangular L with L @ L^H = x.

    Args:
      x: (..., n, n), Hermitian and positive definite.
      symmetrize_input: take (x + x^H) / 2; if False only the lower triangle is read.
    Returns: (..., n, n). NaN where a matrix is not positive definite.
    """
    if symmetrize_input:
        x = _symmetrized("cholesky", x)
    return masked(cholesky_p.bind(x), elementwise.ge)


@_typed(cholesky_update_p)
def _cholesky_update_aval(r, w) -> ShapedArray:
    _check("cholesky_update", (r, w), (2, 1), "f")
    for position, (aval, rank) in enumerate(((r, 2), (w, 1))):
        if aval.ndim != rank:
            raise TypeError(f"Input {position} to cholesky_update must have a rank of exactly {rank}, "
                            f"but got shape={aval.shape}")
    if r.shape != (w.shape[0], w.shape[0]):
        raise ValueError("Rank-1 update to Cholesky decomposition takes a square matrix and a vector of the same size "
                         f"as input. Got shapes {r.shape} and {w.shape} instead")
    return _strong(r.shape, r.dtype)


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


@_typed(symmetric_product_p)
def _symmetric_product_aval(a, c, *, alpha: float, beta: float) -> ShapedArray:
    batch = _check("symmetric_product", (a, c), (2, 2))
    size = a.shape[-2]
    if c.shape[-2:] != (size, size):
        raise ValueError("symmetric_product expects a rectangular matrix of shape (m, n) and a square matrix of shape "
                         f"(m, m). Got shapes {a.shape} and {c.shape}.")
    return _strong((*batch, size, size), a.dtype)


@boundary
@_at_once("alpha", "beta", "symmetrize_output")
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
    return elementwise.add(masked(result, elementwise.ge), _transposed(below))


@decomposes(symmetric_product_p)
def _symmetric_product(a, c, *, alpha: float, beta: float):
    rank, dtype = aval_of(a).ndim, aval_of(a).dtype
    batch = tuple(range(rank - 2))
    product = dot_general(a, a, (((rank - 1,), (rank - 1,)), (batch, batch)), Precision.HIGHEST)
    return elementwise.add(elementwise.mul(dtype.type(alpha), product), elementwise.mul(dtype.type(beta), c))


# --- triangular systems ------------------------------------------------------------------------------

triangular_solve_p = Primitive("triangular_solve")


@_typed(triangular_solve_p)
def _triangular_solve_aval(a, b, *, left_side: bool, lower: bool, transpose_a: bool, conjugate_a: bool,
                           unit_diagonal: bool) -> ShapedArray:
    _check("triangular_solve", (a, b), (2, 2))
    _check_square("triangular_solve", a.shape, "first input")
    if b.shape[-2 if left_side else -1] != a.shape[-1]:
        raise ValueError(f"Incompatible shapes for arguments to triangular_solve: {a.shape} and {b.shape}.")
    return _strong(b.shape, b.dtype)


@boundary
def triangular_solve(a, b, *, left_side: bool = False, lower: bool = False, transpose_a: bool = False,
                     conjugate_a: bool = False, unit_diagonal: bool = False):
    """The x with op(a) @ x = b, or x @ op(a) = b, for triangular a.

    Args:
      a: (..., n, n); only one triangle is read.
      b: (..., n, k) if `left_side`, else (..., k, n); or a vector for each matrix: (..., n).
      left_side: whether op(a) stands to the left of x.
      lower: which triangle of a to read.
      transpose_a, conjugate_a: what op does.
      unit_diagonal: take the diagonal as ones.
    Returns: x, shaped as b. Infinite or NaN where a is singular.
    """
    a_aval, b_aval = aval_of(a), aval_of(b)
    is_vector = b_aval.ndim == a_aval.ndim - 1
    axis = a_aval.ndim - (1 if left_side else 2)
    x = triangular_solve_p.bind(
        a, shaping.expand_dims(b, (axis,)) if is_vector else b, left_side=bool(left_side), lower=bool(lower),
        transpose_a=bool(transpose_a), conjugate_a=bool(conjugate_a) and dtypes.kind(a_aval.dtype) == "c",
        unit_diagonal=bool(unit_diagonal))
    return shaping.squeeze(x, (axis,)) if is_vector else x


# --- LU ----------------------------------------------------------------------------------------------

lu_p = Primitive("lu", multiple_results=True)
lu_pivots_to_permutation_p = Primitive("lu_pivots_to_permutation")


@_typed(lu_p)
def _lu_avals(x) -> list[ShapedArray]:
    batch = _check("lu", (x,), (2,))
    rows, columns = x.shape[-2:]
    return [_strong(x.shape, x.dtype), _strong((*batch, smallest(rows, columns)), _i32), _strong((*batch, rows), _i32)]


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


@_typed(lu_pivots_to_permutation_p)
def _lu_pivots_to_permutation_aval(pivots, *, permutation_size: int) -> ShapedArray:
    if pivots.dtype != _i32:
        raise TypeError(f"lu_pivots_to_permutation does not accept dtype {pivots.dtype} at position 0. "
                        "Accepted dtypes at position 0 are subtypes of int32.")
    if not pivots.ndim:
        raise TypeError(f"Input 0 to lu_pivots_to_permutation must have rank at least 1, but got shape={pivots.shape}")
    if permutation_size < pivots.shape[-1]:
        raise ValueError(f"Output permutation size {permutation_size} has to exceed the trailing dimension of the "
                         f"pivots. Got pivots size {pivots.shape[-1]}")
    return _strong((*pivots.shape[:-1], permutation_size), _i32)


@boundary
def lu_pivots_to_permutation(pivots, permutation_size: int):
    """The permutation of `permutation_size` rows that swapping row i with row pivots[i], in order, makes.

    Args:
      pivots: int32 (..., k), zero-based, as `lu` gives them.
    Returns: int32 (..., permutation_size).
    """
    return lu_pivots_to_permutation_p.bind(pivots, permutation_size=int(permutation_size))


# --- LU systems --------------------------------------------------------------------------------------

lu_solve_p = Primitive("lu_solve")


@_typed(lu_solve_p)
def _lu_solve_aval(a, factors, permutation, b, *, transpose_a: bool) -> ShapedArray:
    batch = _check("lu_solve", (a, factors, b), (2, 2, 2))
    _check_square("lu_solve", a.shape, "first input")
    if factors.shape != a.shape or permutation.shape != (*batch, a.shape[-1]) or b.shape[-2] != a.shape[-1]:
        raise ValueError("Incompatible shapes for arguments to lu_solve: "
                         f"{a.shape}, {factors.shape}, {permutation.shape} and {b.shape}.")
    return _strong(b.shape, b.dtype)


@boundary
def lu_solve(a, factors, permutation, b, *, transpose_a: bool = False):
    """The x with a @ x = b, or a^T @ x = b, given the factors and the permutation that `lu(a)` returned.

    The factorization is a means: x is a function of a and b, and its derivatives are solves with the same factors.

    Args:
      a: (..., n, n). Its values are not read, its tangents are.
      factors: (..., n, n).
      permutation: int32 (..., n).
      b: (..., n, k).
      transpose_a: whether to solve with a^T.
    Returns: x, shaped as b. Infinite or NaN where a is singular.
    """
    return lu_solve_p.bind(a, factors, permutation, b, transpose_a=bool(transpose_a))


@decomposes(lu_solve_p)
def _lu_solve(a, factors, permutation, b, *, transpose_a: bool):
    upper = functools.partial(triangular_solve, left_side=True, transpose_a=transpose_a)
    lower = functools.partial(upper, lower=True, unit_diagonal=True)
    if not transpose_a:
        return upper(factors, lower(factors, _rows_in_order(b, permutation)))
    shape, last = aval_of(permutation).shape, aval_of(permutation).ndim - 1
    rows = shaping.broadcasted_iota(_i32, shape, last)
    _, inverse = sorting.sort_key_val(permutation, rows)
    return _rows_in_order(lower(factors, upper(factors, b)), inverse)


def _as_linear_solve(a, factors, permutation, b, *, transpose_a: bool):
    """In JAX's words, for traces of libraries."""
    def product(x):
        batch = tuple(range(aval_of(x).ndim - 2))
        axis = aval_of(x).ndim - (2 if transpose_a else 1)
        return dot_general(a, x, (((axis,), (aval_of(x).ndim - 2,)), (batch, batch)), Precision.HIGHEST)

    def solve(transpose: bool):
        return lambda _, given: _lu_solve(a, factors, permutation, given, transpose_a=transpose)

    return custom_linear_solve(product, b, solve(transpose_a), solve(not transpose_a))


lu_solve_p.known_to_libraries_as = _as_linear_solve


def _rows_in_order(x, permutation):
    """The rows of each matrix in the order of its permutation."""
    rank = aval_of(x).ndim
    if not aval_of(x).size:
        return x
    batch = tuple(range(rank - 2))
    numbers = GatherDimensionNumbers(
        offset_dims=(rank - 1,), collapsed_slice_dims=(rank - 2,), start_index_map=(rank - 2,),
        operand_batching_dims=batch, start_indices_batching_dims=batch)
    sizes = (*[1] * (rank - 1), aval_of(x).shape[-1])
    return gather(x, shaping.expand_dims(permutation, (rank - 1,)), numbers, sizes, unique_indices=True,
                  mode="promise_in_bounds")


# --- QR and Householder reflectors -------------------------------------------------------------------

qr_p = Primitive("qr", multiple_results=True)
geqrf_p = Primitive("geqrf", multiple_results=True)
householder_product_p = Primitive("householder_product")
ormqr_p = Primitive("ormqr")
hessenberg_p = Primitive("hessenberg", multiple_results=True)
tridiagonal_p = Primitive("tridiagonal", multiple_results=True)


@_typed(qr_p)
def _qr_avals(x, *, pivoting: bool, full_matrices: bool, use_magma: bool | None = None) -> list[ShapedArray]:
    batch = _check("qr", (x,), (2,))
    rows, columns = x.shape[-2:]
    inner = rows if full_matrices else smallest(rows, columns)
    order = [_strong((*batch, columns), _i32)] if pivoting else []
    return [_strong((*batch, rows, inner), x.dtype), _strong((*batch, inner, columns), x.dtype), *order]


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


@_typed(geqrf_p)
def _geqrf_avals(x) -> list[ShapedArray]:
    batch = _check("geqrf", (x,), (2,))
    return [_strong(x.shape, x.dtype), _strong((*batch, smallest(*x.shape[-2:])), x.dtype)]


def geqrf(x) -> list[Any]:
    """The reflectors of a QR factorization, as LAPACK leaves them.

    Args:
      x: (..., m, n).
    Returns: R on and above the diagonal with the reflectors below it, (..., m, n), and their scales (..., min(m, n)):
      what `householder_product` and `ormqr` take.
    """
    return geqrf_p.bind(x)


@_typed(householder_product_p)
def _householder_product_aval(a, taus) -> ShapedArray:
    _check("householder_product", (a, taus), (2, 1))
    if a.shape[-2] < a.shape[-1]:
        raise ValueError("The first argument to householder_product must have at least as many rows as columns, "
                         f"got shape {a.shape}")
    if taus.shape[-1] > a.shape[-1]:
        raise ValueError("The second argument to householder_product must not be longer than the first has columns, "
                         f"got shapes {a.shape} and {taus.shape}")
    return _strong(a.shape, a.dtype)


@boundary
def householder_product(a, taus):
    """The first n columns of the product of reflectors 1 - tau v v^H.

    Args:
      a: (..., m, n), m >= n: v_i is column i below the diagonal, with a one on it and zeros above.
      taus: (..., k), k <= n.
    Returns: (..., m, n), with orthonormal columns.
    """
    return householder_product_p.bind(a, taus)


@_typed(ormqr_p)
def _ormqr_aval(a, taus, c, *, left: bool, transpose: bool) -> ShapedArray:
    _check("ormqr", (a, taus, c), (2, 1, 2))
    if taus.shape[-1] > min(a.shape[-2:]):
        raise ValueError("ormqr: there are more taus than reflectors, "
                         f"got a shape {a.shape} and taus shape {taus.shape}.")
    axis, word = (-2, "rows") if left else (-1, "columns")
    if c.shape[axis] != a.shape[-2]:
        raise ValueError(f"ormqr with left={left} expects c to have as many {word} as the Householder matrix a has "
                         f"rows. Got a shape {a.shape} and c shape {c.shape}.")
    return _strong(c.shape, c.dtype)


@boundary
def ormqr(a, taus, c, *, left: bool = True, transpose: bool = False):
    """Q @ c, or c @ Q if not `left`, for the full Q that `householder_product` has the first columns of.

    Args:
      a: (..., m, n), taus: (..., k): reflectors. c: (..., m, p), or (..., p, m) if not `left`.
      transpose: multiply by Q^H.
    """
    return ormqr_p.bind(a, taus, c, left=bool(left), transpose=bool(transpose))


def _front(x, axis: int):
    """The same array with one axis before all others."""
    axis %= aval_of(x).ndim
    return shaping.transpose(x, (axis, *(each for each in range(aval_of(x).ndim) if each != axis)))


@decomposes(ormqr_p)
def _ormqr_by_reflectors(a, taus, c, *, left: bool, transpose: bool):
    """One reflector 1 - tau v v^H after the other, where a platform has no routine for their product."""
    *batch, rows, _ = aval_of(a).shape
    count, shape, axis = aval_of(taus).shape[-1], aval_of(c).shape, len(batch)
    place = shaping.iota(_i32, rows)
    columns = _front(slicing.slice_in_dim(a, 0, count, axis=axis + 1), axis + 1)

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

    return scan(step, c, (shaping.iota(_i32, count), columns, _front(taus, -1)), reverse=left != transpose)[0]


@_typed(hessenberg_p)
def _hessenberg_avals(a) -> list[ShapedArray]:
    batch = _check("hessenberg", (a,), (2,))
    if a.shape[-1] != a.shape[-2]:
        raise ValueError(f"Argument to Hessenberg reduction must have shape [..., n, n], got shape {a.shape}")
    return [_strong(a.shape, a.dtype), _strong((*batch, max(a.shape[-1] - 1, 0)), a.dtype)]


@boundary
def hessenberg(a) -> list[Any]:
    """Reduces a to the form H = Q^H @ a @ Q with zeros below the first subdiagonal.

    Args:
      a: (..., n, n).
    Returns: H, with the reflectors of Q below its first subdiagonal, and their scales (..., n - 1).
    """
    return hessenberg_p.bind(a)


@_typed(tridiagonal_p)
def _tridiagonal_avals(a, *, lower: bool) -> list[ShapedArray]:
    batch = _check("tridiagonal", (a,), (2,))
    _check_square("tridiagonal", a.shape)
    size, real = a.shape[-1], _real_dtype(a.dtype)
    beside = (*batch, max(size - 1, 0))
    return [_strong(a.shape, a.dtype), _strong((*batch, size), real), _strong(beside, real), _strong(beside, a.dtype)]


@boundary
def tridiagonal(a, *, lower: bool = True) -> list[Any]:
    """Reduces a Hermitian a to the real tridiagonal form Q^H @ a @ Q.

    Args:
      a: (..., n, n). lower: which triangle to read.
    Returns: the form with the reflectors of Q outside it, its diagonal (..., n) and what stands beside it
      (..., n - 1), both real, and the scales of the reflectors (..., n - 1).
    """
    return tridiagonal_p.bind(a, lower=bool(lower))


# --- tridiagonal systems -----------------------------------------------------------------------------

tridiagonal_solve_p = Primitive("tridiagonal_solve")


@_typed(tridiagonal_solve_p)
def _tridiagonal_solve_aval(dl, d, du, b, *, perturb_singular: bool) -> ShapedArray:
    _check("tridiagonal_solve", (dl, d, du, b), (1, 1, 1, 2))
    if not dl.shape == d.shape == du.shape:
        raise TypeError("tridiagonal_solve requires that all diagonal arguments have the same shape, got "
                        f"{dl.shape}, {d.shape} and {du.shape}.")
    if b.shape[-2] != d.shape[-1]:
        raise TypeError(f"tridiagonal_solve requires b to have as many rows as the diagonals are long, got shapes "
                        f"{d.shape} and {b.shape}.")
    return _strong(b.shape, b.dtype)


@boundary
def tridiagonal_solve(dl, d, du, b, *, perturb_singular: bool = False):
    """The x with A @ x = b, for a tridiagonal A.

    Args:
      dl, d, du: (..., n): row i of A has dl[i], d[i], du[i] in columns i - 1, i, i + 1; dl[0] and du[n - 1] are
        not used.
      b: (..., n, k).
      perturb_singular: replace pivots that are too small, instead of failing.
    Returns: (..., n, k); NaN where A is singular.
    """
    return tridiagonal_solve_p.bind(dl, d, du, b, perturb_singular=bool(perturb_singular))


@decomposes(tridiagonal_solve_p)
def _tridiagonal_solve_by_elimination(dl, d, du, b, *, perturb_singular: bool):
    """Elimination row by row, without pivots, and substitution (L. H. Thomas, 1949), where a platform has no routine."""
    dl, d, du = (_front(each, -1) for each in (dl, d, du))
    b = _front(b, -2)
    spread = lambda x: shaping.broadcast_in_dim(x, aval_of(b).shape[1:], range(aval_of(b).ndim - 2))

    def down(above, row):
        upper, right = above
        low, middle, high, value = row
        pivot = elementwise.sub(middle, elementwise.mul(low, upper))
        now = elementwise.div(high, pivot), elementwise.div(
            elementwise.sub(value, elementwise.mul(spread(low), right)), spread(pivot))
        return now, now

    def up(below, row):
        upper, right = row
        x = elementwise.sub(right, elementwise.mul(spread(upper), below))
        return x, x

    zero = shaping.full(aval_of(b).shape[1:], 0, b.dtype)
    _, rows = scan(down, (shaping.full(aval_of(d).shape[1:], 0, d.dtype), zero), (dl, d, du, b))
    out = scan(up, zero, rows, reverse=True)[1]
    rank = aval_of(out).ndim
    return shaping.transpose(out, (*range(1, rank - 1), 0, rank - 1))


# --- eigenvalues -------------------------------------------------------------------------------------

eig_p = Primitive("eig", multiple_results=True)
eigh_p = Primitive("eigh", multiple_results=True)
schur_p = Primitive("schur", multiple_results=True)


@_typed(eig_p)
def _eig_avals(x, *, compute_left_eigenvectors: bool, compute_right_eigenvectors: bool, enable_eigvec_derivs: bool,
               implementation) -> list[ShapedArray]:
    _check("eig", (x,), (2,))
    _check_square("eig", x.shape)
    dtype = _complex_dtype(x.dtype)
    vectors = [_strong(x.shape, dtype)] * (bool(compute_left_eigenvectors) + bool(compute_right_eigenvectors))
    return [_strong(x.shape[:-1], dtype), *vectors]


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
    _check_choice("eig", "implementation", implementation, EigImplementation)
    return eig_p.bind(x, compute_left_eigenvectors=bool(compute_left_eigenvectors),
                      compute_right_eigenvectors=bool(compute_right_eigenvectors),
                      enable_eigvec_derivs=bool(enable_eigvec_derivs), implementation=implementation)


@_typed(eigh_p)
def _eigh_avals(x, *, lower: bool, sort_eigenvalues: bool, subset_by_index, algorithm) -> list[ShapedArray]:
    batch = _check("eigh", (x,), (2,))
    _check_square("eigh", x.shape)
    size = x.shape[-1]
    count = _subset("eigh", subset_by_index, size)
    return [_strong((*batch, size, count), x.dtype), _strong((*batch, count), _real_dtype(x.dtype))]


@boundary
@_at_once("lower", "symmetrize_input", "sort_eigenvalues", "subset_by_index", "implementation")
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
    _check_choice("eigh", "implementation", implementation, EighImplementation)
    if symmetrize_input:
        x = _symmetrized("eigh", x)
    vectors, values = eigh_p.bind(x, lower=bool(lower), sort_eigenvalues=bool(sort_eigenvalues),
                                  subset_by_index=_pair("eigh", subset_by_index), algorithm=implementation)
    return vectors, values


@_typed(schur_p)
def _schur_avals(x, *, compute_schur_vectors: bool, sort_eig_vals: bool, select_callable) -> list[ShapedArray]:
    _check("schur", (x,), (2,))
    _check_square("schur", x.shape)
    return [_strong(x.shape, x.dtype)] * (2 if compute_schur_vectors else 1)


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


@_typed(svd_p)
def _svd_avals(x, *, full_matrices: bool, compute_uv: bool, subset_by_index=None, algorithm=None) -> list[ShapedArray]:
    batch = _check("svd", (x,), (2,))
    rows, columns = x.shape[-2:]
    if subset_by_index is not None and full_matrices and compute_uv:
        raise ValueError("full_matrices and subset_by_index cannot both be set")
    inner = _subset("svd", subset_by_index, smallest(rows, columns))
    values = _strong((*batch, inner), _real_dtype(x.dtype))
    if not compute_uv:
        return [values]
    return [values, _strong((*batch, rows, rows if full_matrices else inner), x.dtype),
            _strong((*batch, columns if full_matrices else inner, columns), x.dtype)]


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
    _check_choice("svd", "algorithm", algorithm, SvdAlgorithm)
    values, *vectors = svd_p.bind(x, full_matrices=bool(full_matrices and compute_uv), compute_uv=bool(compute_uv),
                                  subset_by_index=_pair("svd", subset_by_index), algorithm=algorithm)
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
    require_kind("qdwh", aval, INEXACT)
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


@_at_once("is_hermitian", "limit", "eps")
def _qdwh(x, is_hermitian: bool, limit: int, eps: float) -> tuple[Any, Any, Any, Any]:
    aval = aval_of(x)
    columns, dtype = aval.shape[1], aval.dtype
    real = _real_dtype(dtype)
    add, sub, mul, div, sqrt = elementwise.add, elementwise.sub, elementwise.mul, elementwise.div, elementwise.sqrt
    number = real.type

    def scaled(factor, matrix):
        return mul(shaping.convert(factor, dtype), matrix)

    def product(a, b):
        return dot_general(a, b, (((1,), (0,)), ((), ())), Precision.HIGHEST)

    def size(matrix):
        return sqrt(reductions.reduce_sum(elementwise.square(elementwise.abs(matrix)), (0, 1)))

    def iterate(carry):
        u, lower, count, _ = carry
        # Weights for singular values in [lower, 1]: Nakatsukasa, Bai and Gygi, SIAM J. Matrix Anal. Appl. 31 (2010).
        square = elementwise.square(lower)
        gap = elementwise.max(sub(number(1), square), number(0))
        d = elementwise.cbrt(div(mul(number(4), gap), elementwise.square(square)))
        root = sqrt(add(number(1), d))
        inner = add(sub(number(8), mul(number(4), d)), div(mul(number(8), sub(number(2), square)), mul(square, root)))
        a = add(root, mul(number(0.5), sqrt(inner)))
        b = div(elementwise.square(sub(a, number(1))), number(4))
        c = sub(add(a, b), number(1))
        q, _ = qr(shaping.concatenate([scaled(sqrt(c), u), _identity(columns, dtype)], 0), full_matrices=False)
        top, bottom = shaping.split(q, (aval.shape[0], columns))
        turned = product(top, _adjoint(bottom))
        new = add(scaled(div(b, c), u), scaled(div(sub(a, div(b, c)), sqrt(c)), turned))
        lower = div(mul(lower, add(a, mul(b, square))), add(number(1), mul(c, square)))
        return new, elementwise.min(lower, number(1)), add(count, np.int32(1)), size(sub(new, u))

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
    u, lower, count, change = while_loop(unfinished, iterate, (
        start, shaping.full((), eps, real), np.int32(0), shaping.full((), np.inf, real)))
    if is_hermitian:
        u = _symmetrized("qdwh", u)
    h = _symmetrized("qdwh", product(_adjoint(u), x))
    return u, h, shaping.convert(count, None, True), converged(lower, change)  # weak, as in JAX


def _identity(size: int, dtype):
    row, column = (shaping.broadcasted_iota(_i32, (size, size), axis) for axis in (0, 1))
    return shaping.convert(elementwise.eq(row, column), dtype)


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
        out = _svd_by_eigh(_adjoint(x), full_matrices=full_matrices, compute_uv=compute_uv, subset_by_index=None,
                           algorithm=algorithm)
        return [out[0], _adjoint(out[2]), _adjoint(out[1])] if compute_uv else out
    dtype, axis = aval_of(x).dtype, len(batch)
    q, r = qr(x, full_matrices=full_matrices)
    r = slicing.slice_in_dim(r, 0, columns, axis=axis)
    none = shaping.full(aval_of(r).shape, 0, dtype)
    both = shaping.concatenate([shaping.concatenate([none, r], axis + 1),
                                shaping.concatenate([_adjoint(r), none], axis + 1)], axis)
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
    return [values, u, _adjoint(right)]


register_rule_modules("jaxlite.lax.linalg_rules")
