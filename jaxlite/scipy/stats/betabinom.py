"""Beta-binomial distributions: binomial ones of n, of a probability drawn from a beta distribution."""

from __future__ import annotations

from jaxlite import numpy as jnp
from jaxlite.numpy.api import float_api, strong_arrays
from jaxlite.scipy.arguments import floats
from jaxlite.scipy.special import betaln
from jaxlite.scipy.stats.arguments import counted, typed_by_count

__all__ = ["logpmf", "pmf"]
__dir__ = lambda: __all__


@float_api
@typed_by_count
@strong_arrays
def logpmf(k, n, a, b, loc=0):
    """The logarithm of the probability of k."""
    k, n, a, b = floats("betabinom.logpmf", k, n, a, b)
    k, is_count, n, a, b = counted("betabinom.logpmf", jnp.where(k == jnp.floor(k), jnp.floor(k), k), loc, n, a, b)
    is_inside = is_count & (k <= n)
    k = jnp.where(is_inside, k, 0)
    value = -jnp.log1p(n) - betaln(n - k + 1, k + 1) + betaln(k + a, n - k + b) - betaln(a, b)
    return jnp.where((n < 0) | (a <= 0) | (b <= 0), jnp.nan, jnp.where(is_inside, value, -jnp.inf))


@float_api
@strong_arrays
def pmf(k, n, a, b, loc=0):
    """The probability of k."""
    return jnp.exp(logpmf(k, n, a, b, loc))
