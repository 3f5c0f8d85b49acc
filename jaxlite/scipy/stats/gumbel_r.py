"""Gumbel distributions of largest values, with mode loc."""

from __future__ import annotations

from jaxlite import numpy as jnp
from jaxlite.numpy.api import float_api, strong_arrays
from jaxlite.scipy.arguments import floats
from jaxlite.scipy.stats.arguments import gumbel_log_density, standardized

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]
__dir__ = lambda: __all__


@float_api
def logpdf(x, loc=0, scale=1):
    """The logarithm of the density."""
    z, scale = standardized("gumbel_r.logpdf", x, loc, scale)
    return gumbel_log_density(-z, scale)  # the mirror image of smallest values


@float_api
def pdf(x, loc=0, scale=1):
    """The density."""
    return jnp.exp(logpdf(x, loc, scale))


@float_api
def logcdf(x, loc=0, scale=1):
    """The logarithm of the distribution function."""
    return -jnp.exp(-standardized("gumbel_r.logcdf", x, loc, scale)[0])


@float_api
def cdf(x, loc=0, scale=1):
    """The distribution function."""
    return jnp.exp(logcdf(x, loc, scale))


@float_api
@strong_arrays
def sf(x, loc=0, scale=1):
    """The probability of more than x: 1 - cdf."""
    return -jnp.expm1(logcdf(x, loc, scale))


@float_api
def logsf(x, loc=0, scale=1):
    """The logarithm of `sf`."""
    return jnp.log(-jnp.expm1(logcdf(x, loc, scale)))


@float_api
def ppf(p, loc=0, scale=1):
    """The quantile function: the inverse of `cdf`."""
    p, loc, scale = floats("gumbel_r.ppf", p, loc, scale)
    return loc - scale * jnp.log(-jnp.log(p))
