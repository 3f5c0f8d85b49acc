"""The gamma function and its relatives: beta, digamma, zeta, incomplete functions, factorials, binomials."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from jaxlite import lax
from jaxlite import numpy as jnp
from jaxlite.core import dtypes
from jaxlite.core.filtering import boundary
from jaxlite.core.values import aval_of
from jaxlite.lax import shaping
from jaxlite.numpy.api import as_array, broadcasts_inside, check_arrays, float_api, is_complex
from jaxlite.scipy.arguments import floats, in_working_precision, polynomial
from jaxlite.transforms.custom_derivatives import SymbolicZero, custom_jvp
from jaxlite.transforms.derivatives import jvp


@float_api
def gammaln(x):
    """The logarithm of the absolute value of the gamma function."""
    return lax.lgamma(floats("gammaln", x))


@float_api
def loggamma(x):
    """The logarithm of the gamma function, of complex numbers too; NaN for negative real ones, where it is complex.

    It is continuous but for a cut along the negative real axis, so that its imaginary part is not that of a logarithm.

    >>> from jaxlite.scipy.special import loggamma
    >>> print(f"{complex(loggamma(3 + 4j)):.3f}")
    -1.757+4.743j
    """
    check_arrays("loggamma", x)
    if is_complex(x):
        return _complex_loggamma(as_array(x))
    x = floats("loggamma", x)
    return jnp.where(x < 0, jnp.nan, lax.lgamma(x))


@float_api
def gammasgn(x):
    """The sign of the gamma function: 1 or -1; NaN at its poles other than zero, which has a sign."""
    if is_complex(as_array(x)):
        raise ValueError("gammasgn does not support complex-valued inputs.")
    x = floats("gammasgn", x)
    below = jnp.floor(x)
    sign = jnp.where(jnp.mod(below, 2) == 0, 1, -1).astype(x.dtype)
    sign = jnp.where(x > 0, 1, jnp.where(x == 0, jnp.copysign(1, x), jnp.where(x == below, jnp.nan, sign)))
    return jnp.where(jnp.isnan(x) | (x == -jnp.inf), jnp.nan, sign).astype(x.dtype)


@float_api
def gamma(x):
    """The gamma function, of real and of complex numbers; NaN at its poles, 0, -1, -2, ... (infinite at a real 0).

    >>> from jaxlite.scipy.special import gamma
    >>> print(gamma(5.0))
    24.0
    """
    check_arrays("gamma", x)
    if dtypes.kind(aval_of(x).dtype) == "c":
        return jnp.exp(_complex_loggamma(as_array(x)))
    return _real_gamma(floats("gamma", x))


@custom_jvp
def _real_gamma(x):
    # Products of few factors are exact; the exponential of a logarithm is not. They are constants, without a derivative.
    small = _small_factorial(x)
    value = gammasgn(x) * jnp.exp(lax.lgamma(x))
    return jnp.where(jnp.isnan(small), value, small)


@_real_gamma.defjvp
def _real_gamma_jvp(primals, tangents):
    value = _real_gamma(*primals)
    return value, tangents[0] * value * lax.digamma(*primals)


def _complex_loggamma(z):
    """Stirling's series some steps to the right, unless it is far, and the logarithm of the product of those steps.

    On the left it is reflected: log(gamma(z)) + log(gamma(1 - z)) = log(pi) - log(sin(pi z)), where in the upper half plane
    sin(pi z) = exp(-i pi (z - 1/2)) (1 - exp(2 i pi z)) / 2 has a logarithm without cuts. The lower half is its mirror image.
    """
    real, imaginary = jnp.real(z), jnp.imag(z)
    is_low, is_left, height = jnp.signbit(imaginary), real < 0.5, jnp.abs(imaginary)
    z, right = lax.complex(real, height), lax.complex(jnp.where(is_left, 1 - real, real), height)
    count, limit = _STIRLING_STEPS[aval_of(z).dtype.name]
    is_near = jnp.maximum(jnp.real(right), height) < limit
    product, turns = jnp.where(is_near, right, 1), jnp.zeros_like(real)
    for place in range(1, count):
        before, product = product, product * jnp.where(is_near, right + place, 1)
        turns = turns + ((jnp.imag(product) < 0) & (jnp.imag(before) >= 0))  # by less than half of one at a time
    steps = jnp.log(product) + lax.complex(jnp.zeros_like(real), 2 * math.pi * turns)
    far = jnp.where(is_near, right + count, right)
    value = (far - 0.5) * jnp.log(far) - far + math.log(2 * math.pi) / 2 + _stirling_rest(far) - steps
    inside = jnp.where(is_left, z, 0.25 + 0.25j)
    turn = 2j * math.pi * (inside - jnp.round(jnp.real(inside)))
    sine = jnp.log(-jnp.expm1(turn)) - 1j * math.pi * (inside - 0.5) - math.log(2)
    value = jnp.where(is_left, math.log(math.pi) - sine - jnp.conj(value), value)
    is_pole = (imaginary == 0) & (real <= 0) & (real == jnp.round(real))
    value = jnp.where(is_pole, complex(math.nan, math.nan), value)
    return jnp.where(is_low, jnp.conj(value), value).astype(z.dtype)


def _small_factorial(x):
    """The gamma function at whole numbers from 1 to 20, NaN elsewhere."""
    with np.errstate(over="ignore"):  # of half floats
        table = np.array([math.factorial(n) for n in range(20)], np.float64).astype(x.dtype)
    is_small = (x >= 1) & (x <= len(table)) & (x == jnp.floor(x))
    index = jnp.where(is_small, x - 1, 0).astype(np.int32)
    return jnp.where(is_small, jnp.take(table, index), jnp.nan)


# --- beta --------------------------------------------------------------------------------------------

# The coefficients of z^-1, z^-3, ... in log(gamma(z)) - (z - 1/2) log(z) + z - log(2 pi)/2, DLMF 5.11.1.
_STIRLING = [1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156, -3617 / 122400]
# Steps from 1/2, after which the rest is below the rounding, and how far it is so without them.
_STIRLING_STEPS = {"complex64": (3, 4), "complex128": (8, 12)}


def _stirling_rest(z):
    value = polynomial(_STIRLING, 1 / (z * z)) / z
    return shaping.convert(value, value.dtype, aval_of(z).weak_type)


@float_api
@in_working_precision
def betaln(a, b):
    """The logarithm of the absolute value of the beta function, gamma(a) gamma(b) / gamma(a + b)."""
    is_first = a < b
    a, b = jnp.where(is_first, a, b), jnp.where(is_first, b, a)
    of_a = lax.lgamma(a)
    plain = of_a + (lax.lgamma(b) - lax.lgamma(a + b))
    # Logarithms of large gamma functions cancel: their leading terms are combined before they are computed.
    one_large, both_large = (a > 0) & (b >= 10), (a >= 10) & (b >= 10)
    safe_a, safe_b = jnp.where(one_large, a, 1), jnp.where(one_large, b, 10)
    total = safe_a + safe_b
    rest = _stirling_rest(safe_b) - _stirling_rest(total) - (safe_b - 0.5) * jnp.log1p(safe_a / safe_b)
    large = of_a + safe_a - safe_a * jnp.log(total) + rest
    large_a = jnp.where(both_large, a, 10)
    both = (rest - safe_a * jnp.log1p(safe_b / large_a) - 0.5 * jnp.log(large_a) + _stirling_rest(large_a)
            + math.log(2 * math.pi) / 2)
    return jnp.where(both_large, both, jnp.where(one_large, large, plain))


@float_api
def beta(a, b):
    """The beta function, gamma(a) gamma(b) / gamma(a + b)."""
    a, b = floats("beta", a, b)
    return gammasgn(a) * gammasgn(b) * gammasgn(a + b) * jnp.exp(betaln(a, b))


@float_api
def betainc(a, b, x):
    """The regularized incomplete beta function, from 0 at x = 0 to 1 at x = 1."""
    return lax.betainc(*jnp.broadcast_arrays(*floats("betainc", a, b, x)))


# --- incomplete --------------------------------------------------------------------------------------


@float_api
def gammainc(a, x):
    """The regularized lower incomplete gamma function, from 0 at x = 0 to 1 at infinity."""
    return lax.igamma(*jnp.broadcast_arrays(*floats("gammainc", a, x)))


@float_api
def gammaincc(a, x):
    """The regularized upper incomplete gamma function: 1 - gammainc(a, x), accurate where it is small."""
    return lax.igammac(*jnp.broadcast_arrays(*floats("gammaincc", a, x)))


# --- derivatives of the logarithm --------------------------------------------------------------------


@float_api
def digamma(x):
    """The derivative of the logarithm of the gamma function."""
    return lax.digamma(floats("digamma", x))


@float_api
def polygamma(n, x):
    """The derivative of order n of `digamma`; n is an integer, or an array of integers.

    Raises: ValueError for n of another kind.
    """
    check_arrays("polygamma", n, x)
    if dtypes.kind(aval_of(n).dtype) not in "iu":
        raise ValueError(f"Argument `n` to polygamma must be of integer type. Got dtype {aval_of(n).dtype}.")
    return lax.polygamma(*jnp.broadcast_arrays(*floats("polygamma", n, x)))


# B_2j / (2j)!
_BERNOULLI = [1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000, 1 / 74724249600]


def _zeta_sum(x, q):
    """By the first terms and Euler and Maclaurin's formula for the others (DLMF 2.10.1): to differentiate."""
    count = 10
    end = q + count
    value = sum((q + k) ** -x for k in range(count)) + end**-x * (end / (x - 1) + 0.5)
    rising, power = x, end ** (-x - 1)
    for j, factor in enumerate(_BERNOULLI):
        value = value + factor * rising * power
        rising, power = rising * (x + 2 * j + 1) * (x + 2 * j + 2), power / (end * end)
    return value


@custom_jvp
def _hurwitz(x, q):
    return lax.zeta(x, q)


def _hurwitz_jvp(primals, tangents):
    (x, q), (dx, dq) = primals, tangents
    out = _hurwitz(x, q)
    change = jnp.zeros_like(out)
    if type(dx) is not SymbolicZero:
        slope = jvp(lambda x: _zeta_sum(x, q), (x,), (dx,))[1]
        change = change + slope * jnp.where(x < 1, jnp.nan, 1)  # where there is no sum
    if type(dq) is not SymbolicZero:
        change = change - dq * x * _hurwitz(x + 1, q)
    return out, shaping.strong(change)


_hurwitz.defjvp(_hurwitz_jvp, symbolic_zeros=True)


@float_api
def zeta(x, q=None):
    """The Hurwitz zeta function: the sum of 1 / (k + q)^x for k = 0, 1, ...

    Raises: NotImplementedError without q; `zeta(x, 1)` is Riemann's function for x > 1.
    """
    if q is None:
        raise NotImplementedError("Riemann zeta function not implemented; pass q != None to compute the Hurwitz Zeta "
                                  "function: for x > 1, q=1 gives Riemann's.")
    return _hurwitz(*jnp.broadcast_arrays(*floats("zeta", x, q)))


@float_api
@broadcasts_inside
def multigammaln(a, d: int):
    """The logarithm of the gamma function of dimension d, an integer.

    Its arguments a need to exceed (d - 1) / 2.
    """
    d = int(d)
    a = floats("multigammaln", a)
    steps = jnp.arange(d, dtype=a.dtype) / 2
    return jnp.sum(lax.lgamma(a[..., None] - steps), axis=-1) + d * (d - 1) / 4 * math.log(math.pi)


# --- factorials and binomials ------------------------------------------------------------------------


@float_api
def factorial(n, exact: bool = False):
    """n!, as a floating number; 0 for negative numbers.

    Raises: NotImplementedError for exact=True: integers of arrays are too small for it.
    """
    if exact:
        raise NotImplementedError("factorial with exact=True")
    n = floats("factorial", n)
    return shaping.convert(jnp.where(n < 0, 0, gamma(n + 1)), None, aval_of(n).weak_type)


@float_api
def comb(N, k, *, repetition: bool = False):
    """How many ways there are to choose k of N things, as a floating number; 0 for k outside [0, N].

    Args:
      repetition: things may be chosen more than once.
    """
    N, k = floats("comb", N, k)
    is_possible = (k >= 0) & (N >= 0)
    if repetition:
        N = jnp.where(k == 0, N, N + k - 1)
    is_possible = is_possible & (k <= N)
    N, k = jnp.where(is_possible, N, 1), jnp.where(is_possible, k, 1)
    value = jnp.exp(-betaln(N - k + 1, k + 1)) / (N + 1)
    is_whole = (N == jnp.floor(N)) & (k == jnp.floor(k))
    is_exact = is_whole & (value < 1 / jnp.finfo(value.dtype).eps)
    rest = lax.stop_gradient(jnp.where(is_exact, jnp.round(value) - value, 0))  # rounding has no derivative
    return jnp.where(is_possible, value + rest, 0)


@float_api
@in_working_precision
def poch(z, m):
    """The rising factorial gamma(z + m) / gamma(z)."""
    z, m = jnp.broadcast_arrays(z, m)
    total = z + m
    from_pole, to_pole = ((x <= 0) & (x == jnp.floor(x)) for x in (z, total))
    # Between two poles their quotient stays: by reflection it is (-1)^m gamma(1 - z) / gamma(1 - z - m).
    both = from_pole & to_pole
    above, below = jnp.where(both, 1 - z, total), jnp.where(both, 1 - total, z)
    above, below = jnp.where(to_pole & ~both, 1, above), jnp.where(from_pole & ~both, 1, below)
    sign = jnp.where(both, jnp.where(jnp.mod(m, 2) == 0, 1, -1), gammasgn(above) * gammasgn(below))
    value = sign * jnp.exp(lax.lgamma(above) - lax.lgamma(below))
    value = jnp.where(from_pole & ~to_pole, 0, jnp.where(to_pole & ~from_pole, jnp.inf, value))
    return jnp.where((m == 0) & jnp.isnan(value), 1, value)


@boundary
def bernoulli(n: int):
    """The Bernoulli numbers B_0 to B_n, with B_1 = -1/2.

    >>> from jaxlite.scipy.special import bernoulli
    >>> print(bernoulli(2))
    [ 1.         -0.5         0.16666667]
    """
    n = operator.index(n)
    if n < 0:
        raise ValueError("n must be a non-negative integer.")
    return jnp.asarray(np.array([_to_float(x) for x in _bernoulli_numbers(n)]),
                       dtypes.canonicalize_dtype(np.float64))


def _bernoulli_numbers(n: int) -> Sequence[Fraction]:
    numbers = [Fraction(1)]
    for k in range(1, n + 1):
        if k > 1 and k % 2:
            numbers.append(Fraction(0))
        else:
            numbers.append(-sum((math.comb(k + 1, j) * numbers[j] for j in range(k)), Fraction(0)) / (k + 1))
    return numbers


def _to_float(x: Fraction) -> float:
    try:
        return float(x)
    except OverflowError:
        return math.inf if x > 0 else -math.inf
