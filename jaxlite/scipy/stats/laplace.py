"""Laplace distributions with mean loc and mean deviation scale."""

from __future__ import annotations

from jaxlite import numpy as jnp
from jaxlite.numpy.api import float_api, strong_formula
from jaxlite.scipy.stats.arguments import standardized

__all__ = ["cdf", "logpdf", "pdf"]
__dir__ = lambda: __all__


@float_api
@strong_formula
def logpdf(x, loc=0, scale=1):
    """The logarithm of the density."""
    z, scale = standardized("laplace.logpdf", x, loc, scale)
    return -jnp.abs(z) - jnp.log(2 * scale)


@float_api
@strong_formula
def pdf(x, loc=0, scale=1):
    """The density."""
    return jnp.exp(logpdf(x, loc, scale))


@float_api
@strong_formula
def cdf(x, loc=0, scale=1):
    """The distribution function."""
    z, _ = standardized("laplace.cdf", x, loc, scale)
    tail = jnp.exp(-jnp.abs(z)) / 2
    return jnp.where(z < 0, tail, 1 - tail)
