"""Pareto distributions of exponent b: densities b / x^(b + 1) from loc + scale on."""

from __future__ import annotations

from jaxlite import numpy as jnp
from jaxlite.numpy.api import float_api, strong_formula
from jaxlite.scipy.arguments import floats
from jaxlite.scipy.stats.arguments import log_of, standardized

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]
__dir__ = lambda: __all__


@float_api
@strong_formula
def logpdf(x, b, loc=0, scale=1):
    """The logarithm of the density."""
    z, scale, b = standardized("pareto.logpdf", x, loc, scale, b)
    is_inside = z >= 1
    value = jnp.log(b) - (b + 1) * jnp.log(jnp.where(is_inside, z, 1)) - jnp.log(scale)
    return jnp.where(is_inside | (scale < 0), value, -jnp.inf)


@float_api
@strong_formula
def pdf(x, b, loc=0, scale=1):
    """The density."""
    return jnp.exp(logpdf(x, b, loc, scale))


@float_api
@strong_formula
def logsf(x, b, loc=0, scale=1):
    """The logarithm of `sf`."""
    return _logsf(x, b, loc, scale)


def _logsf(x, b, loc, scale):
    z, _, b = standardized("pareto.logsf", x, loc, scale, b)
    return -b * jnp.log(jnp.maximum(z, 1))


@float_api
@strong_formula
def sf(x, b, loc=0, scale=1):
    """The probability of more than x: 1 - cdf."""
    return jnp.exp(logsf(x, b, loc, scale))


@float_api
@strong_formula
def cdf(x, b, loc=0, scale=1):
    """The distribution function."""
    return -jnp.expm1(logsf(x, b, loc, scale))


@float_api
def logcdf(x, b, loc=0, scale=1):
    """The logarithm of the distribution function."""
    return log_of(-jnp.expm1(_logsf(x, b, loc, scale)))


@float_api
@strong_formula
def ppf(q, b, loc=0, scale=1):
    """The quantile function: the inverse of `cdf`."""
    q, b, loc, scale = floats("pareto.ppf", q, b, loc, scale, complex=True)
    return jnp.where((q < 0) | (q > 1), jnp.nan, loc + scale * jnp.exp(-jnp.log1p(-q) / b))
