"""Multinomial distributions: how often of n times each of several results comes."""

from __future__ import annotations

from jaxlite import numpy as jnp
from jaxlite.numpy.api import float_api, promotes_inside
from jaxlite.scipy.arguments import floats
from jaxlite.scipy.special import gammaln, xlogy

__all__ = ["logpmf", "pmf"]
__dir__ = lambda: __all__


@float_api
@promotes_inside
def logpmf(x, n, p):
    """The logarithm of the probability of counts x (..., k), of results with probabilities p (..., k)."""
    x, n, p = floats("multinomial.logpmf", x, n, p)
    value = gammaln(n + 1) + jnp.sum(xlogy(x, p) - gammaln(x + 1), axis=-1)
    return jnp.where(jnp.sum(x, axis=-1) == n, value, -jnp.inf)


@float_api
@promotes_inside
def pmf(x, n, p):
    """The probability of counts."""
    return jnp.exp(logpmf(x, n, p))
