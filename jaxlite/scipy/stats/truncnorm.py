"""Normal distributions truncated to loc + scale [a, b]."""

from __future__ import annotations

import math

from jaxlite import numpy as jnp
from jaxlite.numpy.api import float_api
from jaxlite.scipy.special import log_ndtr, ndtr
from jaxlite.scipy.stats.arguments import standardized

__all__ = ["cdf", "logcdf", "logpdf", "logsf", "pdf", "sf"]
__dir__ = lambda: __all__


def _log_mass(a, b):
    """The logarithm of the probability of [a, b], by the tail that holds it."""
    flips = a > 0
    low, high = jnp.where(flips, -b, a), jnp.where(flips, -a, b)
    is_tail = high <= 0
    is_empty = low >= high
    top = log_ndtr(jnp.where(is_tail, high, 0))
    gap = jnp.where(is_tail & ~is_empty, log_ndtr(jnp.where(is_tail, low, -1)) - top, -1)
    tail = top + jnp.log(-jnp.expm1(gap))
    centre = jnp.log1p(-ndtr(jnp.where(is_tail, -1, low)) - ndtr(jnp.where(is_tail, -1, -high)))
    return jnp.where(is_empty, -jnp.inf, jnp.where(is_tail, tail, centre))


def _checked(value, a, b, scale):
    """The value, NaN where there is no such distribution."""
    return jnp.where((a < b) & (scale > 0), value, jnp.nan)


@float_api
def logpdf(x, a, b, loc=0, scale=1):
    """The logarithm of the density."""
    z, scale, a, b = standardized("truncnorm.logpdf", x, loc, scale, a, b)
    value = -(z * z + math.log(2 * math.pi)) / 2 - jnp.log(scale) - _log_mass(a, b)
    return _checked(jnp.where((z < a) | (z > b), -jnp.inf, value), a, b, scale)


@float_api
def pdf(x, a, b, loc=0, scale=1):
    """The density."""
    return jnp.exp(logpdf(x, a, b, loc, scale))


@float_api
def logcdf(x, a, b, loc=0, scale=1):
    """The logarithm of the distribution function."""
    z, scale, a, b = standardized("truncnorm.logcdf", x, loc, scale, a, b)
    return _checked(jnp.where(z >= b, 0, _log_mass(a, jnp.clip(z, a, b)) - _log_mass(a, b)), a, b, scale)


@float_api
def cdf(x, a, b, loc=0, scale=1):
    """The distribution function."""
    return jnp.exp(logcdf(x, a, b, loc, scale))


@float_api
def logsf(x, a, b, loc=0, scale=1):
    """The logarithm of `sf`."""
    z, scale, a, b = standardized("truncnorm.logsf", x, loc, scale, a, b)
    return _checked(jnp.where(z <= a, 0, _log_mass(jnp.clip(z, a, b), b) - _log_mass(a, b)), a, b, scale)


@float_api
def sf(x, a, b, loc=0, scale=1):
    """The probability of more than x: 1 - cdf."""
    return jnp.exp(logsf(x, a, b, loc, scale))
