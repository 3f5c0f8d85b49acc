"""Exponential, sine and cosine integrals, and the dilogarithm.

Formulas are those of the NIST Digital Library of Mathematical Functions (DLMF), named where they are used. Series and
fractions have a fixed length, enough for double precision where they are used.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from jaxlite import lax
from jaxlite import numpy as jnp
from jaxlite.core import dtypes
from jaxlite.core.values import aval_of
from jaxlite.lax import shaping
from jaxlite.numpy.api import float_api, promotes_inside
from jaxlite.scipy.arguments import in_working_precision, of_lists, polynomial
from jaxlite.scipy.special.gammas import digamma
from jaxlite.transforms.custom_derivatives import custom_jvp

_TOGETHER = 8  # terms that are computed in one pass over an array


def total(count: int, term: Callable[[Any, Any], tuple[Any, Any]], first):
    """The sum of `count` terms: `term(k, carry)` gives (term, next carry), for k = 1, 2, ..."""

    def step(k, state):
        carry, result = state
        value, carry = term((k + 1).astype(jnp.real(result).dtype), carry)
        return carry, result + value

    return lax.fori_loop(0, count, step, (first, jnp.zeros_like(first)), unroll=_TOGETHER)[1]


# --- exponential integrals ---------------------------------------------------------------------------


def _fraction(n, x):
    """exp(x) E_n(x) for x > 1, by the even part of its continued fraction (DLMF 8.19.17), from the end."""
    count = 88 if x.dtype.itemsize > 4 else 32

    def step(k, value):
        j = (count - k).astype(x.dtype)
        return x + n + 2 * (j - 1) - j * (n + j - 1) / value

    return 1 / lax.fori_loop(0, count, step, x + n + 2.0 * count, unroll=_TOGETHER)


@custom_jvp
def _exp1(x):
    is_small, is_infinite = x <= 1, jnp.isinf(x)
    small, large = jnp.where(is_small, x, 1), jnp.where(is_small | is_infinite, 2, x)
    # DLMF 6.6.2.
    terms = [0.0, *[(-1) ** (k + 1) / (k * math.factorial(k)) for k in range(1, 20)]]
    series = polynomial(terms, small) - np.euler_gamma - jnp.log(small)
    value = jnp.where(is_small, series, jnp.exp(-large) * _fraction(1.0, large))
    return jnp.where(x < 0, jnp.nan, jnp.where(is_infinite, 0, value))


_exp1.defjvps(lambda t, out, x: -t * jnp.exp(-x) / x)


@float_api
@in_working_precision
def exp1(x):
    """The exponential integral E_1: that of exp(-t) / t from x to infinity; NaN for negative x."""
    return _exp1(x)


@custom_jvp
def _expi(x):
    is_positive = x > 0
    is_large = x > 40
    middle = jnp.where(is_positive & ~is_large, x, 1)
    # DLMF 6.6.1; all terms are positive.
    series = np.euler_gamma + jnp.log(middle) + total(
        120, lambda k, power: (power * middle / (k * k), power * middle / k), jnp.ones_like(middle))
    large = jnp.where(is_large & ~jnp.isinf(x), x, 50)
    # DLMF 6.12.2: these terms decrease up to the 40th.
    far = jnp.exp(large) / large * (1 + total(40, lambda k, term: (term * k / large,) * 2, jnp.ones_like(large)))
    far = jnp.where(jnp.isinf(x), jnp.inf, far)
    negative = jnp.where(is_positive | jnp.isnan(x), 1, -x)
    value = jnp.where(is_positive, jnp.where(is_large, far, series), -_exp1(negative))
    return jnp.where(jnp.isnan(x), jnp.nan, value)


_expi.defjvps(lambda t, out, x: t * jnp.exp(x) / x)


@float_api
@in_working_precision
def expi(x):
    """The exponential integral Ei: that of exp(t) / t from minus infinity to x, as a principal value."""
    return _expi(x)


@custom_jvp
def _expn(n, x):
    is_small, is_infinite = x <= 1, jnp.isinf(x)
    is_zero = x == 0
    order = jnp.maximum(n, 1)
    small, large = jnp.where(is_small & (x > 0), x, 1), jnp.where(is_small | is_infinite, 2, x)

    # DLMF 8.19.8: all but one term of a series are powers, that one has a logarithm. Its factor (-x)^(n - 1) / (n - 1)!
    # is met on the way.
    def term(k, carry):
        power = carry  # (-x)^(k - 1) / (k - 1)!
        gap = k - order
        is_special = gap == 0
        plain = -power / jnp.where(is_special, 1, gap)
        special = power * (digamma(order) - jnp.log(small))
        return jnp.where(is_special, special, plain), -power * small / k

    series = total(24, term, jnp.ones_like(small))
    # Of high orders the special term is too small to matter where it is out of reach.
    value = jnp.where(is_small, series, jnp.exp(-large) * _fraction(order, large))
    value = jnp.where(n == 0, jnp.exp(-x) / x, value)
    value = jnp.where(is_zero, jnp.where(n > 1, 1 / jnp.where(n > 1, n - 1, 1), jnp.inf), value)
    value = jnp.where(is_infinite, 0, value)
    return jnp.where((x < 0) | (n < 0) | (n != jnp.floor(n)) | jnp.isnan(x) | jnp.isnan(n), jnp.nan, value)


@_expn.defjvp
def _expn_jvp(primals, tangents):
    (n, x), (_, t) = primals, tangents
    down = jnp.where(n >= 1, _expn(jnp.maximum(n - 1, 0), x), jnp.exp(-x) * (1 + 1 / x) / x)
    return _expn(n, x), -t * down


@float_api
@of_lists
@in_working_precision
def expn(n, x):
    """The exponential integral E_n: that of exp(-x t) / t^n from 1 to infinity.

    Args:
      n: whole numbers, not negative. x: not negative. Others give NaN.
    """
    return _expn(*jnp.broadcast_arrays(n, x))


# --- sine and cosine integrals -----------------------------------------------------------------------


# x f(x) and x^2 g(x) for x >= 4, f and g the auxiliary functions of DLMF 6.2.17 and 6.2.18: quotients of polynomials of
# (4 / x)^2, fitted to values of 60 digits.
_AUXILIARY_32 = (
    ([0.999999997, 7.65623663, 13.6843611, 5.73094098, 0.275250073],
     [1, 7.78123552, 14.5633433, 6.99532005, 0.580375996]),
    ([0.999999985, 9.13311519, 19.3758069, 9.25534537, 0.379001882],
     [1, 9.50810792, 22.4731679, 14.4371354, 1.8276667]))
_AUXILIARY_64 = (
    ([0.9999999999999997, 45.86610302092113, 738.4501953456712, 5381.19555153859, 19115.12391343753, 33248.17034943227,
      26989.249079968627, 9090.827613349727, 976.2922606032897, 14.732223338444019],
     [1.0, 45.99110302092009, 744.1053332238502, 5470.072833411268, 19736.592296295235, 35308.38908368862, 30186.905068498076,
      11241.640503685723, 1500.9918757137343, 44.42459770097043]),
    ([0.9999999999999999, 64.76907616317551, 1523.733685209671, 16895.42081073742, 95982.46846777965, 284790.0772670299,
      431620.9394680419, 312780.6022625187, 94576.2983664755, 8812.863048197698, 79.50774407917085],
     [1.0, 65.14407616317486, 1547.6939637713722, 17446.50023004054, 101874.04517624302, 316396.5410435708, 517522.76933140797,
      426884.26034143165, 162438.59696581503, 23930.55596506978, 902.0294336318493]))


@custom_jvp
def _sici(x) -> tuple[Any, Any]:
    is_double = aval_of(x).dtype.itemsize > 4
    size = jnp.abs(x)
    is_small, is_infinite = size <= 4, jnp.isinf(x)
    small, large = jnp.where(is_small, size, 1), jnp.where(is_small | is_infinite, 5, size)
    # DLMF 6.6.5 and 6.6.6.
    terms = [(-1) ** (k // 2) / (max(k, 1) * math.factorial(k)) for k in range(40 if is_double else 24)]
    square = small * small
    sine = small * polynomial(terms[1::2], square)
    cosine = np.euler_gamma + jnp.log(small) + square * polynomial(terms[2::2], square)
    # DLMF 6.2.19 and 6.2.20.
    inverse = 1 / large
    first, second = _AUXILIARY_64 if is_double else _AUXILIARY_32
    at = 16 * inverse * inverse
    f, g = (polynomial(above, at) / polynomial(below, at) for above, below in (first, second))
    f, g = f * inverse, g * inverse * inverse
    turn, slope = jnp.sin(large), jnp.cos(large)
    far_sine = jnp.where(is_infinite, math.pi / 2, math.pi / 2 - f * slope - g * turn)
    far_cosine = jnp.where(is_infinite, jnp.where(x > 0, 0, jnp.nan), f * turn - g * slope)
    return jnp.sign(x) * jnp.where(is_small, sine, far_sine), jnp.where(is_small, cosine, far_cosine)


@_sici.defjvp
def _sici_jvp(primals, tangents):
    (x,), (t,) = primals, tangents
    return _sici(x), (t * jnp.sinc(x / math.pi), t * jnp.cos(x) / x)


@float_api
@promotes_inside
@in_working_precision
def sici(x) -> tuple[Any, Any]:
    """The sine and cosine integrals (Si, Ci): that of sin(t) / t from 0 to x, and of cos(t) / t from infinity to |x|."""
    return _sici(shaping.convert(x, None, False))


# --- dilogarithm -------------------------------------------------------------------------------------

# B_2k / (2k + 1)!, of which the dilogarithm near 0 is made: K. Koelbig, BIT 10 (1970).
_DEBYE = [1 / 36, -1 / 3600, 1 / 211680, -1 / 10886400, 1 / 526901760, -691 / 16999766784000, 1 / 1120863744000,
          -3617 / 181400588328960000, 43867 / 97072790126247936000]


def _spence_near(x):
    """For x in [1/2, 2]."""
    u = -jnp.log(x)
    square = u * u
    return u * (1 - u / 4 + square * polynomial(_DEBYE, square))


@custom_jvp
def _spence(x):
    is_large, is_zero, is_infinite = x > 2, x == 0, jnp.isinf(x)
    safe = jnp.where((x > 0) & ~is_infinite, x, 1)
    inside = jnp.where(is_large, 1 / safe, safe)  # in (0, 2]
    is_low = inside < 0.5
    near = jnp.where(is_low, 1 - inside, inside)
    value = _spence_near(near)
    value = jnp.where(is_low, math.pi**2 / 6 - jnp.log(inside) * jnp.log(near) - value, value)
    value = jnp.where(is_large, -jnp.log(safe) ** 2 / 2 - value, value)
    value = jnp.where(is_zero, math.pi**2 / 6, jnp.where(is_infinite, -jnp.inf, value))
    return jnp.where((x < 0) | jnp.isnan(x), jnp.nan, value)


@_spence.defjvp
def _spence_jvp(primals, tangents):
    (x,), (t,) = primals, tangents
    is_one = x == 1
    return _spence(x), t * jnp.where(is_one, -1, jnp.log(x) / jnp.where(is_one, 1, 1 - x))


@float_api
def spence(x):
    """Spence's function, the dilogarithm of 1 - x: the integral of log(t) / (1 - t) from 1 to x.

    Raises: TypeError for other dtypes than float32 and float64.
    """
    x = jnp.asarray(x)
    dtype = aval_of(x).dtype
    if dtype not in (dtypes.float32, dtypes.float64):
        raise TypeError(f"x.dtype={dtype} is not supported; spence takes float32 and float64.")
    return _spence(shaping.convert(x, dtype, False))
