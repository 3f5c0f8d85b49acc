"""Binomial distributions: how often of n times happens what has the probability p."""

from __future__ import annotations

from jaxlite import numpy as jnp
from jaxlite.numpy.api import float_api
from jaxlite.scipy.special import betaln, xlog1py, xlogy
from jaxlite.scipy.stats.arguments import counted

__all__ = ["logpmf", "pmf"]
__dir__ = lambda: __all__


@float_api
def logpmf(k, n, p, loc=0):
    """The logarithm of the probability of k."""
    k, is_count, n, p = counted("binom.logpmf", k, loc, n, p)
    is_inside = is_count & (k <= n)
    k = jnp.where(is_inside, k, 0)
    log_ways = -jnp.log1p(n) - betaln(n - k + 1, k + 1)
    return jnp.where(is_inside, log_ways + xlogy(k, p) + xlog1py(n - k, -p), -jnp.inf)


@float_api
def pmf(k, n, p, loc=0):
    """The probability of k."""
    return jnp.exp(logpmf(k, n, p, loc))
