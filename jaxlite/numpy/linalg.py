"""jaxlite.numpy.linalg: NumPy's linear algebra, batched over leading axes.

Integer arguments become floating. This module has determinants, systems of equations, ranks and powers; `norms.py` has
norms, `decompositions.py` factorizations, which use `jaxlite.lax.linalg`. Functions that NumPy has in both namespaces
(`matmul`, `outer`, `tensordot`, ...) are in `jaxlite.numpy.linear`.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from jaxlite import lax
from jaxlite.core import dtypes
from jaxlite.core.aval import Ints
from jaxlite.core.filtering import boundary
from jaxlite.core.values import aval_of
from jaxlite.lax import linalg as lax_linalg
from jaxlite.lax import shaping
from jaxlite.numpy import arithmetic, linear, manipulation, norms, reductions, selection, ufuncs
from jaxlite.numpy import matrix_parts as parts
from jaxlite.numpy.api import (
    api,
    as_arrays,
    canonical_axes,
    check_arrays,
    is_complex,
    promote_dtypes,
    promote_dtypes_inexact,
)
from jaxlite.numpy.decompositions import EighResult as EighResult
from jaxlite.numpy.decompositions import EigResult as EigResult
from jaxlite.numpy.decompositions import QRResult as QRResult
from jaxlite.numpy.decompositions import SlogdetResult as SlogdetResult
from jaxlite.numpy.decompositions import SVDResult as SVDResult
from jaxlite.numpy.decompositions import cholesky as cholesky
from jaxlite.numpy.decompositions import eig as eig
from jaxlite.numpy.decompositions import eigh as eigh
from jaxlite.numpy.decompositions import eigvals as eigvals
from jaxlite.numpy.decompositions import eigvalsh as eigvalsh
from jaxlite.numpy.decompositions import qr as qr
from jaxlite.numpy.decompositions import svd as svd
from jaxlite.numpy.decompositions import svdvals as svdvals
from jaxlite.numpy.norms import Ord
from jaxlite.numpy.norms import matrix_norm as matrix_norm
from jaxlite.numpy.norms import norm as norm
from jaxlite.numpy.norms import vector_norm as vector_norm
from jaxlite.transforms.custom_derivatives import custom_jvp

__all__ = [
    "cholesky", "cond", "cross", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh", "inv", "lstsq", "matmul",
    "matrix_norm", "matrix_power", "matrix_rank", "matrix_transpose", "multi_dot", "norm", "outer", "pinv", "qr",
    "slogdet", "solve", "svd", "svdvals", "tensordot", "tensorinv", "tensorsolve", "trace", "vecdot", "vector_norm",
]
__dir__ = lambda: __all__

# --- determinants ------------------------------------------------------------------------------------


def _swaps_sign(pivots, like):
    """-1 for an odd number of row swaps, else 1; in the type of a matrix."""
    rows = shaping.broadcasted_iota(dtypes.int32, pivots.shape, pivots.ndim - 1)
    swaps = reductions.sum(shaping.convert(pivots != rows, dtypes.int32), axis=-1)
    sign = 1 - 2 * (swaps % 2)
    return shaping.convert(sign, aval_of(like).dtype, aval_of(like).weak_type)


@api
def det(a):
    """Determinants of matrices: (...) for a of shape (..., n, n).

    >>> import jaxlite.numpy as jnp
    >>> print(jnp.linalg.det(jnp.array([[1.0, 2.0], [3.0, 4.0]])))
    -2.0
    """
    a = parts.square("det", a)
    size = a.shape[-1]

    def entry(i: int, j: int):
        return parts.element(a, i, j)

    def minor(first: int, second: int):
        """The determinant of these columns of the last two rows."""
        top, bottom = size - 2, size - 1
        return entry(top, first) * entry(bottom, second) - entry(top, second) * entry(bottom, first)

    if size == 0:
        return shaping.full(a.shape[:-2], 1, a.dtype)
    if size == 1:
        return entry(0, 0)
    if size == 2:
        return minor(0, 1)
    if size == 3:
        first, second, third = (entry(0, k) * minor(*[j for j in range(3) if j != k]) for k in range(3))
        return lax.sub(first, second) + third
    return _det_by_lu(a)


def _lu_and_det(a) -> tuple[Any, Any, Any]:
    """The factors and the permutation of `lu(a)`, and the determinant."""
    factors, pivots, permutation = lax_linalg.lu(a)
    return factors, permutation, reductions.prod(parts.diagonal_of(factors), axis=-1) * _swaps_sign(pivots, a)


@custom_jvp
def _det_by_lu(a):
    return _lu_and_det(a)[-1]


@_det_by_lu.defjvp
def _det_jvp(primals: tuple[Any], tangents: tuple[Any]) -> tuple[Any, Any]:
    """The derivative along g is sum(cofactors * g), also where a is singular."""
    (a,), (g,) = primals, tangents
    factors, permutation, determinant = _lu_and_det(a)
    singular = (parts.diagonal_of(factors) == 0).any()
    operands = a, shaping.stop_gradient(factors), permutation, determinant
    cofactors = lax.cond(singular, _cofactors_of_singular, _cofactors, *operands)
    return determinant, reductions.sum(lax.mul(cofactors, g), axis=(-2, -1))


def _cofactors(a, factors, permutation, determinant):
    inverse = lax_linalg.lu_solve(a, factors, permutation, _identities(a))
    return parts.expand(determinant, -2, -1) * manipulation.matrix_transpose(inverse)


def _cofactors_of_singular(a, factors, permutation, determinant):
    """From a = u s v: the adjugate of a product is that of its factors in reverse, and for a unitary matrix it is its
    determinant times its adjoint. That of s has on its diagonal the products of the other singular values."""
    u, values, v = lax_linalg.svd(a)
    size = values.shape[-1]
    others = reductions.prod(selection.where(parts.eye(size, dtypes.bool_), 1, parts.expand(values, -2)), axis=-1)
    scale = parts.expand(lax.mul(_det_by_lu(u), _det_by_lu(v)), -1) * others
    return parts.columns_scaled(ufuncs.conj(u), scale) @ ufuncs.conj(v)


@api
def slogdet(a, *, method: str | None = None) -> SlogdetResult:
    """Sign and logarithm of the absolute value of determinants: det(a) = sign * exp(logabsdet).

    From three rows on without overflow.

    Args:
      a: (..., n, n).
      method: 'lu', the default, or 'qr' (real matrices alone).
    Returns: SlogdetResult(sign, logabsdet): sign in a's dtype, of size one or zero; logabsdet real, -inf where a is
      singular.
    """
    a = parts.square("slogdet", a)
    if method not in (None, "lu", "qr"):
        raise ValueError(f"Unknown slogdet method '{method}'. Supported methods are 'lu' (`None`), and 'qr'.")
    if method == "qr":
        if is_complex(a):
            raise NotImplementedError("slogdet method='qr' not implemented for complex inputs")
        return SlogdetResult(*_slogdet_by_qr(a))
    is_half = dtypes.itemsize_bits(a.dtype) < 32
    if a.shape[-1] in (1, 2) or is_half and a.shape[-1] <= 3:  # a factorization takes longer, and there is none of half floats
        value = det(shaping.convert(a, dtypes.float32, False) if is_half else a)
        return SlogdetResult(*(shaping.convert(x, a.dtype, False) if is_half else x for x in _parts(value)))
    found = _slogdet_by_lu(a, *lax_linalg.lu(shaping.stop_gradient(a)))
    return SlogdetResult(*(shaping.convert(x, None, False) for x in found))


@custom_jvp
def _parts(x) -> tuple[Any, Any]:
    """Sign and logarithm of the size of numbers."""
    return lax.sign(x), lax.log(lax.abs(x))


@_parts.defjvp
def _parts_jvp(primals: tuple[Any], tangents: tuple[Any]) -> tuple[Any, Any]:
    outs = _parts(*primals)
    return outs, _parts_moved(*outs, lax.div(*tangents, *primals))


def _parts_moved(sign, log, change) -> tuple[Any, Any]:
    """The tangents of both, as the number's logarithm changes: its real part is that of the size, the rest turns the sign."""
    if not is_complex(sign):
        return shaping.full_like(sign, 0), change
    turn = lax.complex(shaping.full_like(log, 0), lax.imag(change))
    return sign * turn, lax.real(change)


def _sign_and_log(sign, triangles) -> tuple[Any, Any]:
    """Sign and logarithm of the determinants of triangular matrices, times another sign."""
    diagonal = parts.diagonal_of(triangles)
    sign = sign * reductions.prod(lax.sign(diagonal), axis=-1)
    return sign, reductions.sum(lax.log(lax.abs(diagonal)), axis=-1)


@custom_jvp
def _slogdet_by_qr(a) -> tuple[Any, Any]:
    factors, taus = lax_linalg.geqrf(a)
    # A reflector has determinant -1, one with tau = 0 is the identity.
    signs = selection.where(arithmetic.not_equal(taus, 0), -1, 1)
    sign = shaping.convert(reductions.prod(signs, axis=-1), a.dtype, aval_of(a).weak_type)
    return _sign_and_log(sign, factors)


@_slogdet_by_qr.defjvp
def _slogdet_by_qr_jvp(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, Any]:
    (a,), (g,) = primals, tangents
    sign, _ = outs = _slogdet_by_qr(a)
    return outs, (shaping.full_like(sign, 0), reductions.sum(parts.diagonal_of(_solve(a, g)), axis=-1))


@custom_jvp
def _slogdet_by_lu(a, factors, pivots, permutation) -> tuple[Any, Any]:
    """Given what `lu(a)` is: a function of a alone to derivatives, which use the factors again."""
    return _sign_and_log(_swaps_sign(pivots, a), factors)


@_slogdet_by_lu.defjvp
def _slogdet_jvp(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, Any]:
    """The logarithm of the determinant moves by trace(a^-1 g)."""
    (a, factors, _, permutation), g = primals, tangents[0]
    outs = _slogdet_by_lu(*primals)
    inverse = lax_linalg.lu_solve(a, factors, permutation, _identities(a))
    change = reductions.sum(manipulation.matrix_transpose(inverse) * g, axis=(-2, -1))
    return outs, _parts_moved(*outs, change)


def _identities(a):
    shape, dtype = aval_of(a).shape, aval_of(a).dtype
    return manipulation.broadcast_to(parts.eye(shape[-1], dtype), shape)


# --- systems of equations ----------------------------------------------------------------------------


@api
def solve(a, b):
    """The x with a @ x = b.

    Args:
      a: (..., n, n).
      b: a vector (n,), or matrices (..., n, k). Leading axes of a and b are broadcast.
    Returns: (..., n) for a vector, else (..., n, k). Not finite where a is singular.
    Raises: ValueError for shapes that do not fit.

    >>> import jaxlite.numpy as jnp
    >>> print(jnp.linalg.solve(jnp.array([[2.0, 0.0], [0.0, 4.0]]), jnp.array([2.0, 2.0])))
    [1.  0.5]
    """
    a, b = parts.inexact("solve", a, b)
    left, right = a.shape, b.shape
    if len(left) < 2:
        raise ValueError(f"solve: left hand array must be at least two dimensional; got a.shape={left}")
    if left[-1] != left[-2]:
        raise ValueError(f"solve: a must hold square matrices; got a.shape={left}")
    if not right:
        raise ValueError(f"solve: b must have at least one dimension; got b.shape={right}")
    is_vector = len(right) == 1
    if right[-1 if is_vector else -2] != left[-1]:
        hint = " For a vector for each matrix use solve(a, b[..., None])[..., 0]." if right == left[:-1] else ""
        raise ValueError(f"solve: b must have as many rows as a has columns; got shapes {left} and {right}.{hint}")
    x = _solve(a, parts.expand(b, -1) if is_vector else b)
    return manipulation.squeeze(x, -1) if is_vector else x


def _solve(a, b):
    """The same for matrices that fit."""
    factors, _, permutation = lax_linalg.lu(shaping.stop_gradient(a))
    left, right = aval_of(a).shape, aval_of(b).shape
    if len(left) == 2 and len(right) > 2:
        return parts.solve_for_columns(lambda columns: lax_linalg.lu_solve(a, factors, permutation, columns), b)
    batch = shaping.broadcast_shapes(left[:-2], right[:-2])
    a, factors = (manipulation.broadcast_to(each, (*batch, *left[-2:])) for each in (a, factors))
    permutation = manipulation.broadcast_to(permutation, (*batch, left[-1]))
    return lax_linalg.lu_solve(a, factors, permutation, manipulation.broadcast_to(b, (*batch, *right[-2:])))


@api
def inv(a):
    """Inverses of matrices (..., n, n). Not finite where a matrix is singular.

    >>> import jaxlite.numpy as jnp
    >>> print(jnp.linalg.inv(jnp.array([[2.0, 0.0], [0.0, 4.0]])))
    [[0.5  0.  ]
     [0.   0.25]]
    """
    a = parts.square("inv", a)
    return _solve(a, _identities(a))


@api
def _least_squares(a, b, rcond) -> tuple[Any, Any, Any, Any]:
    a, b = promote_dtypes_inexact(a, b)
    is_weak = aval_of(a).weak_type
    a, b = map(shaping.strong, (a, b))
    is_vector = b.ndim == 1
    if is_vector:
        b = parts.expand(b, 1)
    rows, columns = a.shape
    u, s, vh = svd(a, full_matrices=False)
    epsilon = parts.epsilon(s)
    if rcond is None:
        rcond = epsilon * max(rows, columns)
    else:
        rcond = selection.where(arithmetic.less(rcond, 0), epsilon, rcond)
    if min(rows, columns):
        cutoff = shaping.convert(rcond, aval_of(s).dtype) * s[0]
        kept = arithmetic.logical_and(arithmetic.greater(s, 0), s >= cutoff)
    else:
        kept = shaping.full(s.shape, False, np.dtype(bool))
    rank = reductions.sum(shaping.convert(kept, dtypes.int32))
    inverse = selection.where(kept, arithmetic.divide(1, selection.where(kept, s, 1)), 0)
    inner = linear.matmul(parts.adjoint(u), b, precision="highest")
    x = linear.matmul(parts.adjoint(vh), parts.expand(inverse, 1) * inner, precision="highest")
    rest = b - linear.matmul(a, x, precision="highest")
    residuals = reductions.sum(norms.squared_size(rest), axis=0)
    return manipulation.squeeze(x, 1) if is_vector else x, residuals, rank, shaping.convert(s, None, is_weak)


@boundary
def lstsq(a, b, rcond: float | None = None, *, numpy_resid: bool = False) -> tuple[Any, Any, Any, Any]:
    """The shortest x that makes |a @ x - b| least.

    Args:
      a: (m, n). b: (m,) or (m, k).
      rcond: singular values below rcond times the greatest count as zero; None means machine epsilon times
        max(m, n), a negative number for machine epsilon.
      numpy_resid: give no residuals where the rank is below n or m <= n, as NumPy does. That needs concrete arrays.
    Returns: x (n,) or (n, k); sums of squared residuals, (1,) or (k,); the rank of a, int32; a's singular values.
    Raises: ValueError if the rows of a and b differ in number, TypeError for other ranks of arrays.
    """
    check_arrays("jnp.linalg.lstsq", a, b)
    left, right = aval_of(a).shape, aval_of(b).shape
    if not left or not right or left[0] != right[0]:
        raise ValueError(f"lstsq: a and b must have equal leading dimensions, got shapes {left} and {right}")
    if len(left) != 2:
        raise TypeError(f"{len(left)}-dimensional array given. Array must be two-dimensional. It is the argument a of lstsq")
    if len(right) > 2:
        raise TypeError(f"lstsq: b must be one- or two-dimensional, got shape {right}")
    x, residuals, rank, s = _least_squares(a, b, rcond)
    if numpy_resid and (left[0] <= left[1] or int(rank) < left[1]):
        residuals = shaping.full((0,), 0, aval_of(residuals).dtype)
    return x, residuals, rank, s


@api
def pinv(a, rtol=None, hermitian: bool = False, *, rcond=None):
    """Moore-Penrose inverses of matrices.

    Args:
      a: (..., m, n).
      rtol: (...): singular values up to rtol times the greatest count as zero; by default ten times machine epsilon
        times max(m, n).
      hermitian: a is Hermitian: a faster way is taken.
      rcond: another name of rtol.
    Returns: (..., n, m).
    """
    if rtol is not None and rcond is not None:
        raise ValueError("pinv: only one of rtol and rcond may be specified.")
    rtol = rcond if rtol is None else rtol
    a = parts.matrices("pinv", a)
    *batch, rows, columns = a.shape
    dtype = aval_of(a).dtype
    if not min(rows, columns):
        return shaping.full((*batch, columns, rows), 0, dtype)
    return shaping.strong(_pinv(a, 10.0 * max(rows, columns) * parts.epsilon(a) if rtol is None else rtol, hermitian))


@partial(custom_jvp, nondiff_argnums=(2,))
def _pinv(a, rtol, hermitian: bool):
    u, s, vh = svd(a, full_matrices=False, hermitian=hermitian)
    kept = s > parts.expand(rtol * reductions.max(s, axis=-1), -1)
    # A singular value of NaN is kept.
    divisors = selection.where(arithmetic.logical_or(kept, ufuncs.isnan(s)), s, math.inf)
    return linear.matmul(parts.adjoint(vh), parts.adjoint(u) / parts.expand(divisors, -1), precision="highest")


@_pinv.defjvp
def _pinv_jvp(hermitian: bool, primals: Sequence[Any], tangents: Sequence[Any]):
    """For matrices that keep their rank: Golub and Pereyra (1973). It needs no derivative of singular vectors, which do not
    have one where singular values are equal. Products are in the order that keeps them small."""
    (a, rtol), (da, _) = primals, tangents
    times: Callable[..., Any] = lambda *factors: functools.reduce(partial(linear.matmul, precision="highest"), factors)
    p = _pinv(a, rtol, hermitian)
    ph, dah = parts.adjoint(p), parts.adjoint(da)
    if aval_of(a).shape[-2] >= aval_of(a).shape[-1]:
        rows, columns = times(times(p, ph), dah), times(times(dah, ph), p)
        return p, rows - times(times(rows, a), p) + columns - times(times(p, a), columns) - times(times(p, da), p)
    rows, columns = times(p, times(ph, dah)), times(dah, times(ph, p))
    return p, rows - times(rows, times(a, p)) + columns - times(p, times(a, columns)) - times(p, times(da, p))


@api
def tensorinv(a, ind: int = 2):
    """The inverse of `a` under `tensordot` over its first `ind` axes: tensordot(tensorinv(a, ind), a, ind) is one.

    Args:
      a: its first `ind` axes must hold as many elements as the others.
    Returns: an array of shape a.shape[ind:] + a.shape[:ind].
    """
    a = parts.inexact("tensorinv", a)
    ind = operator.index(ind)
    if ind <= 0:
        raise ValueError(f"ind must be a positive integer; got ind={ind}")
    shape = a.shape
    rows, columns = shape[:ind], shape[ind:]
    if math.prod(rows) != math.prod(columns):
        raise ValueError("tensorinv is only possible when the product of the first `ind` dimensions equals that of the "
                         f"remaining dimensions. Got shape {shape} with ind={ind}.")
    return shaping.reshape(inv(shaping.reshape(a, (math.prod(rows), math.prod(columns)))), (*columns, *rows))


@api
def tensorsolve(a, b, axes: Ints | None = None):
    """The x with tensordot(a, x, x.ndim) = b.

    Args:
      a: shape b.shape + x.shape. axes: axes of `a` to move to its end first.
    """
    a, b = parts.inexact("tensorsolve", a, b)
    if axes is not None:
        a = shaping.axes_last(a, canonical_axes(axes, a.ndim))
    shape, right = a.shape, b.shape
    if shape[:len(right)] != right:
        raise ValueError("tensorsolve: after moving axes to the end, the leading shape of a must match the shape of b. "
                         f"Got shapes {shape} and {right}")
    rows, columns = math.prod(right), math.prod(shape[len(right):])
    if rows != columns:
        raise ValueError(f"tensorsolve: a of shape {shape} is not a square matrix over b of shape {right}")
    x = solve(shaping.reshape(a, (rows, columns)), shaping.reshape(b, (rows,)))
    return shaping.reshape(x, shape[len(right):])


# --- rank and condition ------------------------------------------------------------------------------


@api
def cond(x, p: Ord = None):
    """Condition numbers of matrices: norm(x, p) * norm(inv(x), p).

    Args:
      x: (..., m, n); square unless p is None, 2 or -2.
      p: a matrix norm, as in `norm`. None and 2: the ratio of greatest to least singular value; -2: its inverse.
    Returns: (...); infinite where x is singular.
    """
    x = parts.matrices("cond", x)
    shape = x.shape
    if not math.prod(shape[-2:]):
        raise ValueError(f"jnp.linalg.cond: input array must not be empty; got shape {shape}")
    if p in (None, 2, -2):
        values = svd(x, compute_uv=False)
        most, least = values[..., 0], values[..., -1]
        result = least / most if p == -2 else most / least
    else:
        if shape[-1] != shape[-2]:
            raise ValueError(f"jnp.linalg.cond: for p={p}, array must be square; got shape {shape}")
        result = matrix_norm(x, ord=p) * matrix_norm(inv(x), ord=p)
    singular = ufuncs.isnan(result) & ~ufuncs.isnan(x).any((-2, -1))
    return selection.where(singular, np.inf, result)


@api
def matrix_rank(M, rtol=None, *, hermitian: bool = False, tol=None):
    """How many singular values of matrices are not negligible.

    Args:
      M: (..., m, n); a vector has rank one unless it is zero.
      rtol: (...): singular values up to rtol times the greatest do not count; by default machine epsilon times
        max(m, n).
      hermitian: M is Hermitian: a faster way is taken.
      tol: (...): a bound in place of the relative one.
    Returns: int32 (...).
    """
    if rtol is not None and tol is not None:
        raise ValueError("matrix_rank: only one of tol or rtol may be specified.")
    M = parts.inexact("matrix_rank", M)
    if M.ndim < 2:
        return shaping.convert(reductions.any(arithmetic.not_equal(M, 0)), dtypes.int32)
    *batch, rows, columns = M.shape
    if not min(rows, columns):
        return shaping.full(batch, 0, dtypes.int32)
    s = svd(M, compute_uv=False, hermitian=hermitian)
    if tol is None:
        relative = max(rows, columns) * parts.epsilon(s) if rtol is None else rtol
        tol = relative * reductions.max(s, axis=-1)
    above = s > parts.expand(tol, -1)
    return reductions.sum(shaping.convert(above, dtypes.int32), axis=-1)


# --- products ----------------------------------------------------------------------------------------


@api
def matrix_power(a, n: int):
    """Matrices (..., n, n) to a whole power, by repeated squaring; negative powers are those of the inverse.

    Raises: TypeError if n is not an int or the matrices are not square.
    """
    try:
        n = operator.index(n)
    except TypeError:
        raise TypeError(f"exponent must be an integer, got {n}") from None
    a = as_arrays("jnp.linalg.matrix_power", a)
    shape, dtype = a.shape, a.dtype
    if len(shape) < 2:
        raise TypeError(f"matrix_power: {len(shape)}-dimensional array given. Array must be at least two-dimensional")
    if shape[-1] != shape[-2]:
        raise TypeError(f"matrix_power: last 2 dimensions of the array must be square, got shape {shape}")
    if n == 0:
        return manipulation.broadcast_to(parts.eye(shape[-1], dtype), shape)
    if n < 0:
        a, n = inv(a), -n
    result = None
    while n:  # a is squared for each binary digit of n
        if n & 1:
            result = a if result is None else linear.matmul(result, a, precision="highest")
        n >>= 1
        if n:
            a = linear.matmul(a, a, precision="highest")
    return result


@boundary
def multi_dot(arrays: Sequence[Any], *, precision=None):
    """The product of several matrices, in the order of least work.

    Args:
      arrays: two or more; the first may be a vector (a row) and the last one too (a column).
      precision: as in `lax.dot_general`.
    Raises: ValueError for shapes that do not follow on each other.
    """
    arrays = list(arrays)
    check_arrays("jnp.linalg.multi_dot", *arrays)
    if len(arrays) < 2:
        raise ValueError(f"multi_dot requires at least two arrays, got {len(arrays)}")
    return _multi_dot(*arrays, precision=precision)


@api
def _multi_dot(*arrays, precision: Any):
    arrays = tuple(promote_dtypes(*arrays))
    shapes = [aval_of(array).shape for array in arrays]
    ends = shapes[0], shapes[-1]
    if any(len(shape) != 2 for shape in shapes[1:-1]) or any(len(shape) not in (1, 2) for shape in ends):
        raise ValueError("multi_dot: input arrays must all be two-dimensional, except for the first and last array which "
                         f"may be 1 or 2 dimensional. Got array shapes {shapes}")
    if any(left[-1] != right[0] for left, right in zip(shapes, shapes[1:], strict=False)):
        raise ValueError("multi_dot: last dimension of each array must match first dimension of following array. "
                         f"Got array shapes {shapes}")
    sizes = [shapes[0][0] if len(shapes[0]) == 2 else 1, *(shape[0] for shape in shapes[1:]),
             shapes[-1][1] if len(shapes[-1]) == 2 else 1]
    # best[i, j]: the least number of multiplications for arrays i to j, and after which of them to cut.
    best: dict[tuple[int, int], tuple[int, int]] = {(i, i): (0, i) for i in range(len(arrays))}
    for length in range(2, len(arrays) + 1):
        for i in range(len(arrays) - length + 1):
            j = i + length - 1
            best[i, j] = min((best[i, cut][0] + best[cut + 1, j][0] + sizes[i] * sizes[cut + 1] * sizes[j + 1], cut)
                             for cut in range(i, j))

    def product(i: int, j: int):
        if i == j:
            return arrays[i]
        cut = best[i, j][1]
        return linear.dot(product(i, cut), product(cut + 1, j), precision=precision)

    return product(0, len(arrays) - 1)


@boundary
def matmul(x1, x2, /, *, precision=None, preferred_element_type=None):
    """Matrix products over broadcast leading axes, as `jaxlite.numpy.matmul`."""
    return linear.matmul(x1, x2, precision=precision, preferred_element_type=preferred_element_type)


@boundary
def vecdot(x1, x2, /, *, axis: int = -1, precision=None, preferred_element_type=None):
    """Products conj(x1) . x2 of vectors along an axis, as `jaxlite.numpy.vecdot`."""
    return linear.vecdot(x1, x2, axis=axis, precision=precision, preferred_element_type=preferred_element_type)


@boundary
def tensordot(x1, x2, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2, precision=None,
              preferred_element_type=None, out_sharding=None):
    """The product over several axes, as `jaxlite.numpy.tensordot`."""
    return linear.tensordot(x1, x2, axes, precision=precision, preferred_element_type=preferred_element_type,
                            out_sharding=out_sharding)


@boundary
def outer(x1, x2, /):
    """The products of every element of a vector with every element of another: (m, n).

    Raises: ValueError for arrays that are not vectors.
    """
    check_arrays("jnp.linalg.outer", x1, x2)
    left, right = aval_of(x1).shape, aval_of(x2).shape
    if len(left) != 1 or len(right) != 1:
        raise ValueError(f"Input arrays must be one-dimensional, but they have shapes {left} and {right}")
    return linear.outer(x1, x2)


@boundary
def cross(x1, x2, /, *, axis: int = -1):
    """The cross product of vectors of 3 components along an axis.

    Raises: ValueError for another number of components.
    """
    check_arrays("jnp.linalg.cross", x1, x2)
    sizes = [aval_of(x).shape[axis] for x in (x1, x2)]
    if sizes != [3, 3]:
        raise ValueError("Both input arrays must be (arrays of) 3-dimensional vectors, but they have "
                         f"x1.shape[axis]={sizes[0]} and x2.shape[axis]={sizes[1]}")
    return linear.cross(x1, x2, axis=axis)


@boundary
def diagonal(x, /, *, offset: int = 0):
    """The diagonals of matrices (..., m, n): the one `offset` places to the right."""
    return manipulation.diagonal(x, offset, -2, -1)


@boundary
def trace(x, /, *, offset: int = 0, dtype=None):
    """The sums of diagonals of matrices (..., m, n)."""
    return linear.trace(x, offset=offset, axis1=-2, axis2=-1, dtype=dtype)


@boundary
def matrix_transpose(x, /):
    """Matrices (..., m, n) transposed: (..., n, m)."""
    return manipulation.matrix_transpose(x)
