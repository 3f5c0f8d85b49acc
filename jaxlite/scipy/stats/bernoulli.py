"""Bernoulli distributions: 1 with probability p, else 0."""

from __future__ import annotations

from jaxlite import numpy as jnp
from jaxlite.numpy.api import float_api, strong_arrays
from jaxlite.scipy.arguments import floats
from jaxlite.scipy.special import xlog1py, xlogy
from jaxlite.scipy.stats.arguments import counted, typed_by_count

__all__ = ["cdf", "logpmf", "pmf", "ppf"]
__dir__ = lambda: __all__


@float_api
@typed_by_count
@strong_arrays
def logpmf(k, p, loc=0):
    """The logarithm of the probability of k."""
    k, is_count, p = counted("bernoulli.logpmf", k, loc, p)
    return jnp.where(is_count & (k <= 1), xlogy(k, p) + xlog1py(1 - k, -p), -jnp.inf)


@float_api
@strong_arrays
def pmf(k, p, loc=0):
    """The probability of k."""
    return jnp.exp(logpmf(k, p, loc))


@float_api
@typed_by_count
@strong_arrays
def cdf(k, p):
    """The probability of at most k."""
    k, p = floats("bernoulli.cdf", k, p)
    value = jnp.where(k < 0, 0, jnp.where(k < 1, 1 - p, 1))
    return jnp.where((p >= 0) & (p <= 1), jnp.where(jnp.isnan(k), k, value), jnp.nan)


@float_api
@strong_arrays
def ppf(q, p):
    """The least k whose `cdf` is at least q."""
    q, p = floats("bernoulli.ppf", q, p)
    value = jnp.where(q <= 1 - p, jnp.zeros_like(q), 1)
    return jnp.where((q >= 0) & (q <= 1) & (p >= 0) & (p <= 1), value, jnp.nan)
