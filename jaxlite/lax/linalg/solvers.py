"""Systems of equations with triangular and tridiagonal matrices, and with those whose LU factors are known."""

from __future__ import annotations

import functools

import numpy as np

from jaxlite.core import dtypes
from jaxlite.core.aval import ShapedArray
from jaxlite.core.filtering import boundary
from jaxlite.core.primitive import Primitive
from jaxlite.core.values import aval_of
from jaxlite.lax import elementwise, shaping, sorting
from jaxlite.lax.control_flow import custom_linear_solve, scan
from jaxlite.lax.dot import Precision, dot_general
from jaxlite.lax.gather_scatter import GatherDimensionNumbers, gather
from jaxlite.lax.linalg.pieces import check, check_square, front, strong, typed
from jaxlite.traces.decompose import decomposes

_i32 = np.dtype(np.int32)

# --- triangular systems ------------------------------------------------------------------------------

triangular_solve_p = Primitive("triangular_solve")


@typed(triangular_solve_p)
def _triangular_solve_aval(a, b, *, left_side: bool, lower: bool, transpose_a: bool, conjugate_a: bool,
                           unit_diagonal: bool) -> ShapedArray:
    check("triangular_solve", (a, b), (2, 2), narrow=True)
    check_square("triangular_solve", a.shape, "first input")
    if b.shape[-2 if left_side else -1] != a.shape[-1]:
        raise ValueError(f"Incompatible shapes for arguments to triangular_solve: {a.shape} and {b.shape}.")
    return strong(b.shape, b.dtype)


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


# --- LU systems --------------------------------------------------------------------------------------

lu_solve_p = Primitive("lu_solve")


@typed(lu_solve_p)
def _lu_solve_aval(a, factors, permutation, b, *, transpose_a: bool) -> ShapedArray:
    batch = check("lu_solve", (a, factors, b), (2, 2, 2))
    check_square("lu_solve", a.shape, "first input")
    if factors.shape != a.shape or permutation.shape != (*batch, a.shape[-1]) or b.shape[-2] != a.shape[-1]:
        raise ValueError("Incompatible shapes for arguments to lu_solve: "
                         f"{a.shape}, {factors.shape}, {permutation.shape} and {b.shape}.")
    return strong(b.shape, b.dtype)


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
        return upper(factors, lower(factors, rows_in_order(b, permutation)))
    return rows_in_order(lower(factors, upper(factors, b)), inverse_order(permutation))


def matrix_product(a, x, left_side: bool = True, transpose_a: bool = False):
    """a x or x a, with a or its transpose.

    XLA finds equal products of gradients if neither signs nor transposes are between: signs belong to a, a is not transposed.
    """
    rank = aval_of(x).ndim
    batch, axis = tuple(range(rank - 2)), rank - (1 if left_side != transpose_a else 2)
    if left_side:
        return dot_general(a, x, (((axis,), (rank - 2,)), (batch, batch)), Precision.HIGHEST)
    return dot_general(x, a, (((rank - 1,), (axis,)), (batch, batch)), Precision.HIGHEST)


def _as_linear_solve(a, factors, permutation, b, *, transpose_a: bool):
    """In JAX's words, for traces of libraries."""
    product = lambda x: matrix_product(a, x, transpose_a=transpose_a)

    def solve(transpose: bool):
        return lambda _, given: _lu_solve(a, factors, permutation, given, transpose_a=transpose)

    return custom_linear_solve(product, b, solve(transpose_a), solve(not transpose_a))


lu_solve_p.known_to_libraries_as = _as_linear_solve


def inverse_order(permutation):
    """The permutations (..., n) that undo others."""
    aval = aval_of(permutation)
    return sorting.sort_key_val(permutation, shaping.broadcasted_iota(_i32, aval.shape, aval.ndim - 1))[1]


def rows_in_order(x, permutation):
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


# --- tridiagonal systems -----------------------------------------------------------------------------

tridiagonal_solve_p = Primitive("tridiagonal_solve")


@typed(tridiagonal_solve_p)
def _tridiagonal_solve_aval(dl, d, du, b, *, perturb_singular: bool) -> ShapedArray:
    check("tridiagonal_solve", (dl, d, du, b), (1, 1, 1, 2))
    if not dl.shape == d.shape == du.shape:
        raise TypeError("tridiagonal_solve requires that all diagonal arguments have the same shape, got "
                        f"{dl.shape}, {d.shape} and {du.shape}.")
    if b.shape[-2] != d.shape[-1]:
        raise TypeError(f"tridiagonal_solve requires b to have as many rows as the diagonals are long, got shapes "
                        f"{d.shape} and {b.shape}.")
    return strong(b.shape, b.dtype)


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
    dl, d, du = (front(each, -1) for each in (dl, d, du))
    b = front(b, -2)
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
