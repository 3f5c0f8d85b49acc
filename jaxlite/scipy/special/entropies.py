"""Logarithms that are safe at zero, entropies made of them, logistic functions and Box-Cox transformations."""

from __future__ import annotations

import numpy as np

from jaxlite import lax
from jaxlite import numpy as jnp
from jaxlite.lax import shaping
from jaxlite.numpy.api import check_arrays, float_api, promote_inexact, strong_arrays, strong_formula
from jaxlite.scipy.arguments import floats, polynomial
from jaxlite.transforms.custom_derivatives import custom_jvp


@custom_jvp
def _xlogy(x, y):
    return jnp.where((x == 0) & ~jnp.isnan(y), 0, x * jnp.log(y))


_xlogy.defjvps(lambda t, out, x, y: shaping.strong(t * jnp.log(y)), lambda t, out, x, y: shaping.strong(t * (x / y)))


@float_api
def xlogy(x, y):
    """x log(y), and 0 for x = 0.

    >>> from jaxlite.scipy.special import xlogy
    >>> print(xlogy(0.0, 0.0))
    0.0
    """
    check_arrays("xlogy", x, y)
    return _xlogy(*promote_inexact("xlogy", x, y))


@custom_jvp
def _xlog1py(x, y):
    return jnp.where((x == 0) & ~jnp.isnan(y), 0, x * jnp.log1p(y))


_xlog1py.defjvps(lambda t, out, x, y: shaping.strong(t * jnp.log1p(y)),
                 lambda t, out, x, y: shaping.strong(t * (x / (1 + y))))


@float_api
def xlog1py(x, y):
    """x log(1 + y), and 0 for x = 0."""
    check_arrays("xlog1py", x, y)
    return _xlog1py(*promote_inexact("xlog1py", x, y))


@custom_jvp
def _entr(x):
    return jnp.where(x == 0, 0, -x * jnp.log(x))  # the logarithm of the derivative


@_entr.defjvp
def _entr_jvp(primals, tangents):
    (x,), (dx,) = primals, tangents
    return _entr(x), dx * -(jnp.log(x) + 1)  # infinite at 0, as the function's slope is


@float_api
def entr(x):
    """-x log(x), 0 at 0 and -inf below."""
    x = floats("entr", x)
    is_negative = x < 0
    return jnp.where(is_negative, -jnp.inf, _entr(jnp.where(is_negative, 1, x)))


@float_api
@strong_formula
def rel_entr(p, q):
    """p log(p / q), 0 for p = 0 and q >= 0, and inf where it is not defined."""
    p, q = floats("rel_entr", p, q)
    is_positive = (p > 0) & (q > 0)
    safe_p, safe_q = jnp.where(is_positive, p, 1), jnp.where(is_positive, q, 1)
    other = jnp.where((p == 0) & (q >= 0), 0, jnp.where(jnp.isnan(p) | jnp.isnan(q), jnp.nan, jnp.inf))
    return jnp.where(is_positive, safe_p * (jnp.log(safe_p) - jnp.log(safe_q)), other)


@float_api
@strong_formula
def kl_div(p, q):
    """p log(p / q) - p + q, q for p = 0, and inf where it is not defined."""
    p, q = floats("kl_div", p, q)
    entropy = rel_entr(p, q)
    return jnp.where(jnp.isinf(entropy), entropy, entropy - p + q)


@float_api
def expit(x):
    """The logistic function, 1 / (1 + exp(-x))."""
    return lax.logistic(floats("expit", x, complex=True))


@custom_jvp
def _logit(x):
    # Near 1/2, where the quotient is near 1, its distance from there is exact: 2 atanh(2 (x - 1/2)), DLMF 4.38.5.
    far = x - 0.5
    terms = [4**(k + 1) / (2 * k + 1) for k in range(8 if x.dtype in (np.float64, np.complex128) else 4)]
    return jnp.where(jnp.abs(far) < 0.05, far * polynomial(terms, far * far), jnp.log(x / (1 - x)))


_logit.defjvps(lambda t, out, x: t / (x * (1 - x)))


@float_api
@strong_arrays
def logit(x):
    """The inverse of the logistic function, log(x / (1 - x)), for x in [0, 1]."""
    return _logit(floats("logit", x, complex=True))


def _power_transformed(log, power):
    is_zero = power == 0
    safe = jnp.where(is_zero, 1, power)
    slope = jnp.where(jnp.isfinite(log), log * log / 2, 0)  # along the power, at 0
    return jnp.where(is_zero, log + power * slope, jnp.expm1(safe * log) / safe)


@float_api
def boxcox(x, lmbda):
    """(x^lmbda - 1) / lmbda, and log(x) for lmbda = 0; x >= 0."""
    x, lmbda = floats("boxcox", x, lmbda, complex=True)
    return _power_transformed(jnp.log(x), lmbda)


@float_api
def boxcox1p(x, lmbda):
    """`boxcox(1 + x, lmbda)`, accurate for small x."""
    x, lmbda = floats("boxcox1p", x, lmbda, complex=True)
    return _power_transformed(jnp.log1p(x), lmbda)
