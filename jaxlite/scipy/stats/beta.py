"""Beta distributions of shapes a and b, on [loc, loc + scale]."""

from __future__ import annotations

from jaxlite import numpy as jnp
from jaxlite.numpy.api import float_api, strong_arrays
from jaxlite.scipy.special import betainc, betaln, xlog1py, xlogy
from jaxlite.scipy.stats.arguments import log_of, standardized

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "sf"]
__dir__ = lambda: __all__


@float_api
@strong_arrays
def logpdf(x, a, b, loc=0, scale=1):
    """The logarithm of the density."""
    z, scale, a, b = standardized("beta.logpdf", x, loc, scale, a, b)
    is_inside = (z >= 0) & (z <= 1)
    z = jnp.where(is_inside, z, 0.5)
    value = xlogy(a - 1, z) + xlog1py(b - 1, -z) - betaln(a, b) - jnp.log(scale)
    return jnp.where((a <= 0) | (b <= 0) | (scale <= 0), jnp.nan, jnp.where(is_inside, value, -jnp.inf))


@float_api
@strong_arrays
def pdf(x, a, b, loc=0, scale=1):
    """The density."""
    return jnp.exp(logpdf(x, a, b, loc, scale))


def _share(a, b, z):
    """betainc at z; where z is outside [0, 1], the value at the end, which has no slope."""
    below, above = z < 0, z > 1
    inside = betainc(a, b, jnp.where(below | above, 0.5, z))
    return jnp.where(jnp.isnan(inside), inside, jnp.where(below, 0, jnp.where(above, 1, inside)))


@float_api
@strong_arrays
def cdf(x, a, b, loc=0, scale=1):
    """The distribution function."""
    z, _, a, b = standardized("beta.cdf", x, loc, scale, a, b)
    return _share(a, b, z)


@float_api
@strong_arrays
def sf(x, a, b, loc=0, scale=1):
    """The probability of more than x: 1 - cdf."""
    z, _, a, b = standardized("beta.sf", x, loc, scale, a, b)
    return _share(b, a, 1 - z)


@float_api
@strong_arrays
def logcdf(x, a, b, loc=0, scale=1):
    """The logarithm of the distribution function."""
    return log_of(cdf(x, a, b, loc, scale))


@float_api
@strong_arrays
def logsf(x, a, b, loc=0, scale=1):
    """The logarithm of `sf`."""
    return log_of(sf(x, a, b, loc, scale))
