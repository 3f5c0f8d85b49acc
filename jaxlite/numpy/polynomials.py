"""Polynomials of the numpy API, as vectors of coefficients with the highest power first."""

from __future__ import annotations

import functools
import math
import operator
from typing import Any

import numpy as np

from jaxlite import lax
from jaxlite.core import dtypes
from jaxlite.core.filtering import boundary
from jaxlite.core.tracing import Tracer, known_value
from jaxlite.core.values import aval_of
from jaxlite.lax import shaping
from jaxlite.numpy import arithmetic, creation, differences, grids, linear, manipulation, reductions
from jaxlite.numpy.api import (
    api,
    broadcasts_inside,
    check_arrays,
    check_given,
    promote_dtypes,
    promote_dtypes_inexact,
    strong_arrays,
)
from jaxlite.numpy.selection import where
from jaxlite.transforms.custom_derivatives import SymbolicZero, custom_jvp
from lowering.xla import VERSION

_FEW_AT_ONCE = 8  # of one that is one operation
_FEW_COEFFICIENTS = 16  # of a polynomial whose values are computed without a loop


def _coefficients(name: str, *args) -> list[Any]:
    """The arguments as floating or complex arrays of one dtype, scalars as vectors of one element."""
    check_arrays(name, *args)
    return [manipulation.atleast_1d(arg) for arg in promote_dtypes_inexact(*args)]


def _linalg():
    """Loaded when a polynomial needs it: most programs do not."""
    from jaxlite.numpy import linalg

    return linalg


def _length(p) -> int:
    return aval_of(p).shape[0]


def _without_leading_zeros(name: str, argument: str, value, instead: str) -> tuple[Any, int]:
    """The vector from its first nonzero element on, and how many of its last elements are zero.

    Raises: ConcretizationTypeError where its values, which decide the result's shape, are not known.
    """
    known = known_value(value, "jnp.{} drops zeros of {!r}, so its result's shape depends on {}'s values; {} to use it on "
                               "traced arrays", name, argument, argument, instead)
    known = np.atleast_1d(np.asarray(known))
    if not isinstance(value, Tracer):
        value = known  # sliced by NumPy: another length would be another program
    elif not value.ndim:
        value = shaping.reshape(value, (1,))
    nonzero = np.flatnonzero(known)
    return (value[nonzero[0]:], len(known) - 1 - int(nonzero[-1])) if len(nonzero) else (value[:0], 0)


# --- arithmetic --------------------------------------------------------------------------------------


@api
def polyadd(a1, a2):
    """The sum of two polynomials; the shorter one gets leading zeros.

    >>> import jaxlite.numpy as jnp
    >>> jnp.polyadd(jnp.array([1, 2, 3]), jnp.array([4, 5]))
    Array([1, 6, 8], dtype=int32)
    """
    return arithmetic.add(*_aligned("polyadd", a1, a2))


@api
def polysub(a1, a2):
    """The difference of two polynomials; the shorter one gets leading zeros."""
    return arithmetic.subtract(*_aligned("polysub", a1, a2))


def _aligned(name: str, a1, a2) -> list[Any]:
    check_arrays(name, a1, a2)
    arrays = [manipulation.atleast_1d(each) for each in promote_dtypes(a1, a2)]
    longest = max(map(_length, arrays))

    def lengthened(p):
        aval = aval_of(p)
        missing = longest - aval.shape[0]
        if not missing:
            return p
        zeros = shaping.full_like(p, 0, shape=(missing, *aval.shape[1:]))
        return shaping.concatenate([zeros, p], 0)

    return list(map(lengthened, arrays))


@boundary
def polymul(a1, a2, *, trim_leading_zeros: bool = False):
    """The product of two polynomials, floating or complex.

    Args:
      trim_leading_zeros: drop leading zeros of both first; they must be concrete then.

    >>> import jaxlite.numpy as jnp
    >>> print(jnp.polymul(jnp.array([1, 2]), jnp.array([1, -2])))
    [ 1.  0. -4.]
    """
    check_arrays("polymul", a1, a2)
    if trim_leading_zeros:
        a1, a2 = (_without_leading_zeros("polymul", name, value, "leave trim_leading_zeros out")[0]
                  for name, value in (("a1", a1), ("a2", a2)))
    return _polymul(a1, a2)


@api
def _polymul(a1, a2):
    factors = _coefficients("polymul", a1, a2)
    # No coefficients at all are the polynomial zero.
    return differences.convolve(*(p if _length(p) else shaping.full_like(p, 0, shape=(1,)) for p in factors),
                                precision="highest")


@boundary
def polydiv(u, v, *, trim_leading_zeros: bool = False) -> tuple[Any, Any]:
    """Quotient and remainder of two polynomials, floating or complex: u = q * v + r.

    Args:
      u, v: vectors; v[0] must not be zero.
      trim_leading_zeros: drop the leading zeros of the remainder; u and v must be concrete then.
    Returns: q of max(len(u) - len(v) + 1, 1) elements, r as long as u unless trimmed.

    >>> import jaxlite.numpy as jnp
    >>> quotient, rest = jnp.polydiv(jnp.array([1.0, 3.0, 5.0]), jnp.array([1.0, 1.0]))
    >>> print(quotient, rest)
    [1. 2.] [0. 0. 3.]
    """
    quotient, rest = _polydiv(u, v)
    if trim_leading_zeros:
        rest = creation.asarray(_without_leading_zeros("polydiv", "u", rest, "leave trim_leading_zeros out")[0])
    return quotient, rest


@api
def _polydiv(u, v) -> tuple[Any, Any]:
    u, v = _coefficients("polydiv", u, v)
    if aval_of(u).ndim != 1 or aval_of(v).ndim != 1 or not _length(v):
        raise ValueError(f"polydiv: u and v must be vectors, v not empty; got shapes {aval_of(u).shape} and "
                         f"{aval_of(v).shape}")
    steps, width = _length(u) - _length(v) + 1, _length(v)
    if steps < 1:
        return shaping.full_like(u, 0, shape=(1,)), u
    scale = lax.div(shaping.full_like(v, 1, shape=()), v[0])

    def subtract_once(k, carry):
        quotient, rest = carry
        factor = scale * lax.dynamic_index_in_dim(rest, k, 0, keepdims=False)
        here = lax.dynamic_slice_in_dim(rest, k, width, 0) - factor * v
        return (lax.dynamic_update_index_in_dim(quotient, factor, k, 0),
                lax.dynamic_update_slice_in_dim(rest, here, k, 0))

    strong = shaping.convert(u, None, False)
    return lax.fori_loop(0, steps, subtract_once, (shaping.full_like(strong, 0, shape=(steps,)), strong))


# --- calculus ----------------------------------------------------------------------------------------


@api
@strong_arrays
def polyder(p, m: int = 1):
    """The m-th derivative of a polynomial, floating or complex. Raises: ValueError for m < 0.

    >>> import jaxlite.numpy as jnp
    >>> print(jnp.polyder(jnp.array([1.0, 2.0, 3.0])))
    [2. 2.]
    """
    m = operator.index(m)
    if m < 0:
        raise ValueError("Order of derivative must be positive")
    (p,) = _coefficients("polyder", p)
    if m == 0:
        return p
    powers = np.arange(_length(p) - 1, m - 1, -1)
    return _times_rows(p[:len(powers)], _falling(powers, m))


def _falling(powers: np.ndarray, m: int) -> np.ndarray:
    """power * (power - 1) * ... of m factors, for each of them."""
    return np.prod(powers[:, None] - np.arange(m, dtype=np.float64), axis=1)


def _times_rows(p, factors: np.ndarray):
    aval = aval_of(p)
    with np.errstate(over="ignore"):  # a factor may be too great for the dtype: then so is the product
        column = factors.astype(aval.dtype).reshape(-1, *[1] * (aval.ndim - 1))
    return p * shaping.convert(np.broadcast_to(column, aval.shape), aval.dtype, aval.weak_type)


@api
@strong_arrays
def polyint(p, m: int = 1, k=None):
    """The m-th integral of a polynomial, floating or complex.

    Args:
      k: constants of integration, one for all or m of them, that of the first integration first; None for zeros.
    Raises: ValueError for m < 0, or another number of constants.

    >>> import jaxlite.numpy as jnp
    >>> print(jnp.polyint(jnp.array([2.0, 2.0]), k=5))
    [1. 2. 5.]
    """
    m = operator.index(m)
    if m < 0:
        raise ValueError("Order of integral must be positive (see polyder)")
    p, k = _coefficients("polyint", p, 0 if k is None else k)
    if m == 0:
        return p
    shape = aval_of(k).shape
    if shape not in ((1,), (m,)):
        raise ValueError(f"k must be a scalar or a rank-1 array of length 1 or m; got shape {shape} with m={m}")
    k = manipulation.broadcast_to(k, (m,))
    powers = np.arange(_length(p) + m - 1, m - 1, -1)
    below = np.array([math.factorial(power) for power in range(m - 1, -1, -1)], np.float64)
    return shaping.concatenate([_times_rows(p, 1 / _falling(powers, m)), _times_rows(k, 1 / below)], 0)


# --- values and zeros --------------------------------------------------------------------------------


@functools.partial(custom_jvp, nondiff_argnums=(2,))
def horner(p, x, unroll):
    """The values at x, of the result's shape, in a loop that writes out `unroll` steps: of None, few steps are no loop."""
    if unroll is None and 1 < len(p) <= _FEW_COEFFICIENTS:
        y = p[0]
        for coefficient in p[1:]:
            y = y * x + coefficient
        return manipulation.broadcast_to(y, x.shape)
    step = lambda y, coefficient: (y * x + manipulation.broadcast_to(coefficient, x.shape), None)
    return lax.scan(step, shaping.full_like(x, 0), p, unroll=_FEW_COEFFICIENTS if unroll is None else unroll)[0]


def _slope(p, x, unroll):
    """The derivative: its coefficients are few numbers, where that of Horner's rule would be a second rule for all of x."""
    if len(p) <= 1:
        return shaping.full_like(x, 0)
    powers = np.arange(len(p) - 1, 0, -1).reshape(-1, *[1] * (p.ndim - 1))
    return horner(p[:-1] * powers.astype(p.dtype), x, unroll)


def _horner_jvp(unroll, primals, tangents):
    p, x = primals
    of_p, of_x = (None if isinstance(tangent, SymbolicZero) else tangent for tangent in tangents)
    shares = [] if of_p is None else [horner(of_p, x, unroll)]
    shares += [] if of_x is None else [_slope(p, x, unroll) * of_x]
    return horner(p, x, unroll), functools.reduce(operator.add, shares) if shares else shaping.full_like(x, 0)


horner.defjvp(_horner_jvp, symbolic_zeros=True)


@api
def polyval(p, x, *, unroll: int | None = None):
    """A polynomial's values at x, by Horner's rule.

    Args:
      p: (n,) or (n, ...): polynomials along the first axis, broadcast with x.
      unroll: how many steps of the loop to write out; 16 by default.

    >>> import jaxlite.numpy as jnp
    >>> print(jnp.polyval(jnp.array([1.0, 2.0, 3.0]), 2.0))
    11.0
    """
    check_arrays("polyval", p, x)
    p, x = promote_dtypes(p, x)
    p = manipulation.atleast_1d(p)
    shape = shaping.broadcast_shapes(p.shape[1:], x.shape)
    x = shaping.convert(manipulation.broadcast_to(x, shape), None, False)
    p = shaping.convert(p, None, False)
    if VERSION >= (0, 12) and len(p) <= (_FEW_AT_ONCE if unroll is None else unroll):  # as JAX of the same jaxlib
        terms = [p[k] for k in range(len(p) - 1, -1, -1)]
        if p.ndim - 1 not in (0, x.ndim):
            terms = [manipulation.broadcast_to(term, shape) for term in terms]
        return lax.polynomial(x, terms, unroll=unroll)
    return horner(p, x, unroll)


@api
def poly(seq_of_zeros):
    """The polynomial with given zeros and leading coefficient one, floating or complex.

    Args:
      seq_of_zeros: the zeros (n,), or a matrix (n, n) whose characteristic polynomial is wanted: its coefficients
        are complex then.
    Returns: (n + 1,); 1.0 for no zeros at all.
    Raises: ValueError for other shapes.

    >>> import jaxlite.numpy as jnp
    >>> print(jnp.poly(jnp.array([1.0, 2.0])))
    [ 1. -3.  2.]
    """
    (zeros,) = _coefficients("poly", seq_of_zeros)
    shape = aval_of(zeros).shape
    if len(shape) == 2 and shape[0] == shape[1] and shape[0]:
        zeros = _linalg().eigvals(zeros)
    elif len(shape) != 1:
        raise ValueError(f"input must be 1d or non-empty square 2d array, got shape {shape}.")
    count = shape[0]
    if not count:
        return shaping.full((), 1, aval_of(zeros).dtype)
    zeros = shaping.convert(zeros, None, False)
    index = shaping.iota(dtypes.int32, count + 1)
    start = shaping.convert(index == 0, zeros.dtype)
    none = shaping.full_like(zeros, 0, shape=(1,))

    def times_factor(k, p):
        shifted = shaping.concatenate([none, lax.slice_in_dim(p, 0, count)], 0)
        zero = lax.dynamic_index_in_dim(zeros, k, 0, keepdims=False)
        # Elements that are not there yet stay out of it: 0 * inf would be NaN.
        there = arithmetic.logical_and(index > 0, index <= arithmetic.add(k, 1))
        return where(there, p - zero * shifted, p)

    return lax.fori_loop(0, count, times_factor, start)


@boundary
def roots(p, *, strip_zeros: bool = True):
    """The zeros of a polynomial, as the eigenvalues of its companion matrix. On the CPU alone.

    Args:
      p: (n,).
      strip_zeros: drop leading zeros first; p must be concrete then. If False there are n - 1 roots whatever the
        values, of which as many are NaN as there are leading zeros.
    Returns: complex, in no particular order; zeros of the polynomial at 0 come last if stripped.
    Raises: ValueError if p is not a vector, ConcretizationTypeError for a traced p with `strip_zeros`.

    >>> import jaxlite.numpy as jnp
    >>> print(jnp.sort(jnp.roots(jnp.array([1.0, -3.0, 2.0])).real))
    [1. 2.]
    """
    check_arrays("roots", p)
    if aval_of(p).ndim > 1:
        raise ValueError(f"Input must be a rank-1 array, got shape {aval_of(p).shape}.")
    if not strip_zeros:
        return _padded_roots(p)
    value, at_zero = _without_leading_zeros("roots", "p", p, "pass strip_zeros=False")
    return _roots(value[:len(value) - at_zero], at_zero=at_zero)


@api
def _roots(p, at_zero: int):
    (p,) = _coefficients("roots", p)
    found = _companion_eigenvalues(p)
    return shaping.concatenate([found, shaping.full_like(found, 0, shape=(at_zero,))], 0)


def _companion_eigenvalues(p):
    count = max(_length(p) - 1, 0)
    dtype = aval_of(p).dtype
    if not count:
        return shaping.full((0,), 0, np.result_type(dtype, np.complex64))
    first = -lax.div(lax.slice_in_dim(p, 1, count + 1),
                            shaping.broadcast_in_dim(lax.slice_in_dim(p, 0, 1), (count,), (0,)))
    below = np.eye(count - 1, count, dtype=dtype)
    return _linalg().eigvals(shaping.concatenate([shaping.expand_dims(first, (0,)), below], 0))


@api
def _padded_roots(p):
    (p,) = _coefficients("roots", p)
    size = _length(p)
    if size < 2:
        return _companion_eigenvalues(p)
    # With leading zeros moved to its end the polynomial has them as roots: those of least size, to be taken out.
    leading = reductions.sum(lax.cumprod(shaping.convert(arithmetic.equal(p, 0), dtypes.int32)))
    twice = shaping.concatenate([p, shaping.full_like(p, 0)], 0)
    found = _companion_eigenvalues(lax.dynamic_slice_in_dim(twice, leading, size, 0))
    order = shaping.iota(dtypes.int32, size - 1)
    _, by_size = lax.sort((-lax.abs(found), order), num_keys=1)
    found = found[where(leading == 0, order, by_size)]
    return where(order < size - 1 - leading, found, complex(np.nan, np.nan))


# --- fitting -----------------------------------------------------------------------------------------


@boundary
@broadcasts_inside
def polyfit(x, y, deg: int, rcond: float | None = None, full: bool = False, w=None, cov: bool = False):
    """The polynomial that fits points best, in the sense of least squares.

    Args:
      x: (m,). y: (m,), or (m, k) for k fits.
      deg: the degree.
      rcond: singular values below rcond times the greatest count as zero; by default m times machine epsilon.
      full: give what the least squares problem tells, too.
      w: (m,): weights of the points' distances.
      cov: give the covariance matrix of the coefficients, too, scaled by the residuals unless it is 'unscaled'.
    Returns: coefficients (deg + 1,) or (deg + 1, k).
      With `full`: (coefficients, sums of squared residuals, rank, singular values, rcond).
      With `cov`: (coefficients, (deg + 1, deg + 1) or (deg + 1, deg + 1, k)).
    Raises: ValueError for deg < 0, or a scaled covariance of too few points; TypeError for arrays of other shapes.

    >>> import jaxlite.numpy as jnp
    >>> x = jnp.array([0.0, 1.0, 2.0, 3.0])
    >>> print(jnp.round(jnp.polyfit(x, 2 * x + 1, 1), 3))
    [2. 1.]
    """
    check_given("polyfit", x, y, w)
    deg = int(deg)
    if deg < 0:
        raise ValueError("expected deg >= 0")
    points, values = aval_of(x).shape, aval_of(y).shape
    if len(points) != 1:
        raise TypeError(f"expected 1D vector for x, got shape {points}")
    if not points[0]:
        raise TypeError("expected non-empty vector for x")
    if len(values) not in (1, 2):
        raise TypeError(f"expected 1D or 2D array for y, got shape {values}")
    if points[0] != values[0]:
        raise TypeError(f"expected x and y to have same length, got shapes {points} and {values}")
    if w is not None:
        weights = aval_of(w).shape
        if len(weights) != 1:
            raise TypeError(f"expected a 1-d array for weights, got shape {weights}")
        if weights[0] != points[0]:
            raise TypeError(f"expected w and y to have the same length, got shapes {weights} and {values}")
    if cov and not full and cov != "unscaled" and points[0] <= deg + 1:
        raise ValueError("the number of data points must exceed order to scale the covariance matrix")
    return _polyfit(x, y, rcond, w, deg=deg, full=bool(full), cov=cov if cov == "unscaled" else bool(cov))


@api
def _polyfit(x, y, rcond, w, deg: int, full: bool, cov: Any):
    if w is None:
        x, y = promote_dtypes_inexact(x, y)
    else:
        x, y, w = promote_dtypes_inexact(x, y, w)
    count, many = x.shape[0], y.ndim == 2
    if rcond is None:
        rcond = count * float(dtypes.finfo(x.dtype).eps)
    powers = grids.vander(x, deg + 1)
    if w is not None:
        powers = powers * manipulation.expand_dims(w, 1)
        y = y * (manipulation.expand_dims(w, 1) if many else w)
    # Columns of length one make the problem better conditioned.
    linalg = _linalg()
    scale = linalg.norm(powers, axis=0)
    powers = arithmetic.divide(powers, scale)
    coefficients, residuals, rank, s = linalg.lstsq(powers, y, rcond)
    coefficients = arithmetic.divide(coefficients, manipulation.expand_dims(scale, 1) if many else scale)
    if full:
        return coefficients, residuals, rank, s, rcond
    if not cov:
        return coefficients
    base = linalg.inv(linear.matmul(manipulation.matrix_transpose(powers), powers, precision="highest"))
    base = arithmetic.divide(base, linear.outer(scale, scale))
    if many:
        base = manipulation.expand_dims(base, 2)
    if cov == "unscaled":
        return coefficients, base
    return coefficients, base * arithmetic.divide(residuals, count - deg - 1)
