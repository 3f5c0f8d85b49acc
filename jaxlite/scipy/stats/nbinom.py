"""Negative binomial distributions: the number of failures before n successes, of probability p."""

from __future__ import annotations

from jaxlite import numpy as jnp
from jaxlite.numpy.api import float_api, strong_arrays
from jaxlite.scipy.special import gammaln, xlog1py, xlogy
from jaxlite.scipy.stats.arguments import counted, typed_by_count

__all__ = ["logpmf", "pmf"]
__dir__ = lambda: __all__


@float_api
@typed_by_count
@strong_arrays
def logpmf(k, n, p, loc=0):
    """The logarithm of the probability of k."""
    k, is_count, n, p = counted("nbinom.logpmf", k, loc, n, p)
    k = jnp.where(is_count, k, 0)
    log_ways = gammaln(k + n) - gammaln(n) - gammaln(k + 1)
    return jnp.where(is_count, log_ways + xlogy(n, p) + xlog1py(k, -p), -jnp.inf)


@float_api
@strong_arrays
def pmf(k, n, p, loc=0):
    """The probability of k."""
    return jnp.exp(logpmf(k, n, p, loc))
