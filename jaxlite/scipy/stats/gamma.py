"""Gamma distributions of shape a."""

from __future__ import annotations

from jaxlite import numpy as jnp
from jaxlite.numpy.api import float_api, strong_arrays
from jaxlite.scipy.special import gammainc, gammaincc, gammaln, xlogy
from jaxlite.scipy.stats.arguments import incomplete, log_of, standardized

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "sf"]
__dir__ = lambda: __all__


@float_api
@strong_arrays
def logpdf(x, a, loc=0, scale=1):
    """The logarithm of the density."""
    z, scale, a = standardized("gamma.logpdf", x, loc, scale, a)
    is_inside = z >= 0
    z = jnp.where(is_inside, z, 1)
    return jnp.where(is_inside | (scale < 0), xlogy(a - 1, z) - z - gammaln(a) - jnp.log(scale), -jnp.inf)


@float_api
@strong_arrays
def pdf(x, a, loc=0, scale=1):
    """The density."""
    return jnp.exp(logpdf(x, a, loc, scale))


@float_api
@strong_arrays
def cdf(x, a, loc=0, scale=1):
    """The distribution function."""
    z, _, a = standardized("gamma.cdf", x, loc, scale, a)
    return incomplete(gammainc, a, z, 0, 1)


@float_api
def sf(x, a, loc=0, scale=1):
    """The probability of more than x: 1 - cdf."""
    z, _, a = standardized("gamma.sf", x, loc, scale, a)
    return incomplete(gammaincc, a, z, 1, 0)


@float_api
@strong_arrays
def logcdf(x, a, loc=0, scale=1):
    """The logarithm of the distribution function."""
    return log_of(cdf(x, a, loc, scale))


@float_api
def logsf(x, a, loc=0, scale=1):
    """The logarithm of `sf`."""
    return log_of(sf(x, a, loc, scale))
