"""Special functions that are XLA operations: error functions, log gamma and its derivatives, zeta, Bessel I1.

`special_series.py` has those that are written in terms of other primitives.
"""

from __future__ import annotations

from jaxlite.core.primitive import register_rule_modules
from jaxlite.lax.elementwise import FLOATS, nary, unary

erf_p = unary("erf", FLOATS)
erfc_p = unary("erfc", FLOATS)
erf_inv_p = unary("erf_inv", FLOATS)
lgamma_p = unary("lgamma", FLOATS)
digamma_p = unary("digamma", FLOATS)
polygamma_p = nary("polygamma", FLOATS)
zeta_p = nary("zeta", FLOATS)
bessel_i1e_p = unary("bessel_i1e", FLOATS)


def erf(x):
    """The error function: 2/sqrt(pi) times the integral of exp(-t^2) from 0 to x. x is floating."""
    return erf_p.bind(x)


def erfc(x, *, accuracy=None):
    """1 - erf(x), accurate for large x; `accuracy` is for compilers that have several ways to compute it."""
    return erfc_p.bind(x)


def erf_inv(x):
    """The y with erf(y) = x: infinite at x = -1 and 1, NaN beyond."""
    return erf_inv_p.bind(x)


def lgamma(x):
    """log |gamma(x)|: infinite at 0 and the negative integers."""
    return lgamma_p.bind(x)


def digamma(x):
    """The derivative of log gamma(x); NaN at the negative integers, at 0 NaN or infinite by the version of XLA."""
    return digamma_p.bind(x)


def polygamma(m, x):
    """The m-th derivative of digamma, at x. m is a floating array of whole numbers >= 0; others give NaN."""
    return polygamma_p.bind(m, x)


def zeta(x, q):
    """The Hurwitz zeta function: the sum of (q + k)^-x over k = 0, 1, 2, ..."""
    return zeta_p.bind(x, q)


def bessel_i1e(x):
    """exp(-|x|) times the modified Bessel function of the first kind of order 1."""
    return bessel_i1e_p.bind(x)


register_rule_modules("jaxlite.lax.special_rules")
