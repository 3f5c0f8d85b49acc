"""Gumbel distributions of smallest values, with mode loc."""

from __future__ import annotations

from jaxlite import numpy as jnp
from jaxlite.numpy.api import float_api
from jaxlite.scipy.arguments import floats
from jaxlite.scipy.stats.arguments import gumbel_log_density, standardized

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]
__dir__ = lambda: __all__


@float_api
def logpdf(x, loc=0, scale=1):
    """The logarithm of the density."""
    z, scale = standardized("gumbel_l.logpdf", x, loc, scale)
    return gumbel_log_density(z, scale)


@float_api
def pdf(x, loc=0, scale=1):
    """The density."""
    return jnp.exp(logpdf(x, loc, scale))


@float_api
def logsf(x, loc=0, scale=1):
    """The logarithm of `sf`."""
    return -jnp.exp(standardized("gumbel_l.logsf", x, loc, scale)[0])


@float_api
def sf(x, loc=0, scale=1):
    """The probability of more than x: 1 - cdf."""
    return jnp.exp(logsf(x, loc, scale))


@float_api
def cdf(x, loc=0, scale=1):
    """The distribution function."""
    return -jnp.expm1(logsf(x, loc, scale))


@float_api
def logcdf(x, loc=0, scale=1):
    """The logarithm of the distribution function."""
    return jnp.log(cdf(x, loc, scale))


@float_api
def ppf(p, loc=0, scale=1):
    """The quantile function: the inverse of `cdf`."""
    p, loc, scale = floats("gumbel_l.ppf", p, loc, scale)
    return loc + scale * jnp.log(-jnp.log1p(-p))
