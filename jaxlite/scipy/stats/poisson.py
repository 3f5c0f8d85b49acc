"""Poisson distributions of mean mu."""

from __future__ import annotations

import math

from jaxlite import numpy as jnp
from jaxlite.numpy.api import float_api, strong_arrays
from jaxlite.scipy.arguments import floats
from jaxlite.scipy.special import gammaincc, gammaln, xlogy
from jaxlite.scipy.stats.arguments import counted, typed_by_count

__all__ = ["cdf", "entropy", "logpmf", "pmf"]
__dir__ = lambda: __all__


@float_api
def logpmf(k, mu, loc=0):
    """The logarithm of the probability of k."""
    k, is_count, mu = counted("poisson.logpmf", k, loc, mu)
    return jnp.where(is_count, xlogy(k, mu) - gammaln(k + 1) - mu, -jnp.inf)


@float_api
def pmf(k, mu, loc=0):
    """The probability of k."""
    return jnp.exp(logpmf(k, mu, loc))


@float_api
@typed_by_count
@strong_arrays
def cdf(k, mu, loc=0):
    """The probability of at most k."""
    k, loc, mu = floats("poisson.cdf", k, loc, mu)
    whole = jnp.floor(k - loc)
    return jnp.where(whole < 0, 0, gammaincc(jnp.maximum(whole, 0) + 1, mu))


@float_api
def entropy(mu, loc=0):
    """The entropy: the mean of -log(pmf). It does not depend on where the distribution begins, but has that shape."""
    mu, _ = jnp.broadcast_arrays(*floats("poisson.entropy", mu, loc))
    # Up to 60 all terms are summed that count; beyond, an asymptotic series is exact: R. Evans and J. Boersma, 1988.
    is_small = mu < 60
    small, large = jnp.where(is_small & (mu != 0), mu, 1)[..., None], jnp.where(is_small, 60, mu)
    log = logpmf(jnp.arange(160, dtype=mu.dtype), small)
    inverse = 1 / large
    rest = inverse * (1 / 12 + inverse * (1 / 24 + inverse * (19 / 360 + inverse * (9 / 80 + inverse * (863 / 2520)))))
    far = 0.5 * jnp.log(2 * math.pi * math.e * large) - rest
    return jnp.where(mu < 0, jnp.nan, jnp.where(mu == 0, 0, jnp.where(is_small, -jnp.sum(jnp.exp(log) * log, axis=-1), far)))
