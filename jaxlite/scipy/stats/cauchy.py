"""Cauchy distributions with median loc and half width scale."""

from __future__ import annotations

import math

from jaxlite import numpy as jnp
from jaxlite.numpy.api import float_api, strong_formula
from jaxlite.scipy.arguments import floats
from jaxlite.scipy.stats.arguments import standardized

__all__ = ["cdf", "isf", "logcdf", "logpdf", "logsf", "pdf", "ppf", "sf"]
__dir__ = lambda: __all__


@float_api
@strong_formula
def logpdf(x, loc=0, scale=1):
    """The logarithm of the density."""
    z, scale = standardized("cauchy.logpdf", x, loc, scale, complex=True)
    return -math.log(math.pi) - jnp.log(scale) - jnp.log1p(z * z)


@float_api
@strong_formula
def pdf(x, loc=0, scale=1):
    """The density."""
    return jnp.exp(logpdf(x, loc, scale))


@float_api
@strong_formula
def cdf(x, loc=0, scale=1):
    """The distribution function."""
    z, _ = standardized("cauchy.cdf", x, loc, scale, complex=True)
    return _below(z)


def _below(z):
    """The standard distribution below z, exact where it is small: XLA has vectors for atan, not for atan2(1, -z)."""
    is_far = z < -1
    angle = jnp.arctan(jnp.where(is_far, -1 / jnp.where(is_far, z, -1), z))
    return jnp.where(is_far, 0, 0.5) + angle / math.pi


@float_api
@strong_formula
def logcdf(x, loc=0, scale=1):
    """The logarithm of the distribution function."""
    return jnp.log(cdf(x, loc, scale))


@float_api
@strong_formula
def sf(x, loc=0, scale=1):
    """The probability of more than x: 1 - cdf."""
    z, _ = standardized("cauchy.sf", x, loc, scale, complex=True)
    return _below(-z)


@float_api
@strong_formula
def logsf(x, loc=0, scale=1):
    """The logarithm of `sf`."""
    return jnp.log(sf(x, loc, scale))


def _cotangent(q):
    """cot(pi q), infinite at 0 and 1; NaN outside them."""
    is_low = q <= 0.5
    value = 1 / jnp.tan(math.pi * jnp.where(is_low, q, 1 - q))
    return jnp.where((q < 0) | (q > 1), jnp.nan, jnp.where(is_low, value, -value))


@float_api
@strong_formula
def ppf(q, loc=0, scale=1):
    """The quantile function: the inverse of `cdf`."""
    q, loc, scale = floats("cauchy.ppf", q, loc, scale)
    return loc - scale * _cotangent(q)


@float_api
@strong_formula
def isf(q, loc=0, scale=1):
    """The inverse of `sf`."""
    q, loc, scale = floats("cauchy.isf", q, loc, scale)
    return loc + scale * _cotangent(q)
