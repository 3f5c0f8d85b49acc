"""Exponential distributions from loc on, with mean loc + scale."""

from __future__ import annotations

from jaxlite import numpy as jnp
from jaxlite.numpy.api import float_api
from jaxlite.scipy.arguments import floats
from jaxlite.scipy.stats.arguments import standardized

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]
__dir__ = lambda: __all__


@float_api
def logpdf(x, loc=0, scale=1):
    """The logarithm of the density."""
    z, scale = standardized("expon.logpdf", x, loc, scale)
    return jnp.where((z < 0) & (scale >= 0), -jnp.inf, -z - jnp.log(scale))


@float_api
def pdf(x, loc=0, scale=1):
    """The density."""
    return jnp.exp(logpdf(x, loc, scale))


@float_api
def cdf(x, loc=0, scale=1):
    """The distribution function."""
    return -jnp.expm1(logsf(x, loc, scale))


@float_api
def logcdf(x, loc=0, scale=1):
    """The logarithm of the distribution function."""
    z, _ = standardized("expon.logcdf", x, loc, scale)
    safe = jnp.where(z > 0, z, 1)
    return jnp.where(z > 0, jnp.log(-jnp.expm1(-safe)), jnp.where(jnp.isnan(z), jnp.nan, -jnp.inf))


@float_api
def sf(x, loc=0, scale=1):
    """The probability of more than x: 1 - cdf."""
    return jnp.exp(logsf(x, loc, scale))


@float_api
def logsf(x, loc=0, scale=1):
    """The logarithm of `sf`."""
    z, _ = standardized("expon.logsf", x, loc, scale)
    return jnp.where(z < 0, 0, -z)


@float_api
def ppf(q, loc=0, scale=1):
    """The quantile function: the inverse of `cdf`."""
    q, loc, scale = floats("expon.ppf", q, loc, scale, complex=True)
    return jnp.where((q < 0) | (q > 1), jnp.nan, loc - scale * jnp.log1p(-q))
