"""Normal distributions with mean loc and standard deviation scale."""

from __future__ import annotations

import math

from jaxlite import numpy as jnp
from jaxlite.numpy.api import float_api, strong_formula
from jaxlite.scipy.arguments import floats
from jaxlite.scipy.special import log_ndtr, ndtr, ndtri
from jaxlite.scipy.stats.arguments import standardized

__all__ = ["cdf", "isf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]
__dir__ = lambda: __all__


@float_api
@strong_formula
def logpdf(x, loc=0, scale=1):
    """The logarithm of the density."""
    z, scale = standardized("norm.logpdf", x, loc, scale, complex=True)
    return z * z * -0.5 - (jnp.log(scale) + 0.5 * math.log(2 * math.pi))


@float_api
@strong_formula
def pdf(x, loc=0, scale=1):
    """The density."""
    return jnp.exp(logpdf(x, loc, scale))


@float_api
def cdf(x, loc=0, scale=1):
    """The distribution function."""
    return ndtr(standardized("norm.cdf", x, loc, scale)[0])


@float_api
def logcdf(x, loc=0, scale=1):
    """The logarithm of the distribution function."""
    return log_ndtr(standardized("norm.logcdf", x, loc, scale)[0])


@float_api
def sf(x, loc=0, scale=1):
    """The probability of more than x: 1 - cdf."""
    return ndtr(-standardized("norm.sf", x, loc, scale)[0])


@float_api
def logsf(x, loc=0, scale=1):
    """The logarithm of `sf`."""
    return log_ndtr(-standardized("norm.logsf", x, loc, scale)[0])


@float_api
def ppf(q, loc=0, scale=1):
    """The quantile function: the inverse of `cdf`."""
    q, loc, scale = floats("norm.ppf", q, loc, scale)
    return loc + scale * ndtri(q)


@float_api
def isf(q, loc=0, scale=1):
    """The inverse of `sf`."""
    q, loc, scale = floats("norm.isf", q, loc, scale)
    return loc - scale * ndtri(q)
