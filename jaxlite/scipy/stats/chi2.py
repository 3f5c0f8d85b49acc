"""Chi-squared distributions with df degrees of freedom: gamma distributions of shape df / 2, doubled."""

from __future__ import annotations

from jaxlite import numpy as jnp
from jaxlite.numpy.api import float_api, strong_arrays, strong_formula
from jaxlite.scipy.special import gammainc, gammaincc, gammaln, xlogy
from jaxlite.scipy.stats.arguments import incomplete, log_of, standardized

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "sf"]
__dir__ = lambda: __all__


@float_api
@strong_formula
def logpdf(x, df, loc=0, scale=1):
    """The logarithm of the density."""
    z, scale, df = standardized("chi2.logpdf", x, loc, scale, df)
    z, scale = z / 2, 2 * scale
    is_inside = z >= 0
    z = jnp.where(is_inside, z, 1)
    return jnp.where(is_inside, xlogy(df / 2 - 1, z) - z - gammaln(df / 2) - jnp.log(scale), -jnp.inf)


@float_api
@strong_formula
def pdf(x, df, loc=0, scale=1):
    """The density."""
    return jnp.exp(logpdf(x, df, loc, scale))


@float_api
@strong_arrays
def cdf(x, df, loc=0, scale=1):
    """The distribution function."""
    z, _, df = standardized("chi2.cdf", x, loc, scale, df)
    return incomplete(gammainc, df / 2, z / 2, 0, 1)


@float_api
@strong_arrays
def sf(x, df, loc=0, scale=1):
    """The probability of more than x: 1 - cdf."""
    z, _, df = standardized("chi2.sf", x, loc, scale, df)
    return incomplete(gammaincc, df / 2, z / 2, 1, 0)


@float_api
@strong_arrays
def logcdf(x, df, loc=0, scale=1):
    """The logarithm of the distribution function."""
    return log_of(cdf(x, df, loc, scale))


@float_api
@strong_arrays
def logsf(x, df, loc=0, scale=1):
    """The logarithm of `sf`."""
    return log_of(sf(x, df, loc, scale))
