"""Geometric distributions: the number of trials until the first success, of probability p."""

from __future__ import annotations

from jaxlite import numpy as jnp
from jaxlite.numpy.api import float_api, strong_arrays
from jaxlite.scipy.special import xlog1py
from jaxlite.scipy.stats.arguments import counted, typed_by_count

__all__ = ["logpmf", "pmf"]
__dir__ = lambda: __all__


@float_api
@typed_by_count
@strong_arrays
def logpmf(k, p, loc=0):
    """The logarithm of the probability of k."""
    k, is_count, p = counted("geom.logpmf", k, loc, p)
    return jnp.where(is_count & (k >= 1), xlog1py(k - 1, -p) + jnp.log(p), -jnp.inf)


@float_api
@strong_arrays
def pmf(k, p, loc=0):
    """The probability of k."""
    return jnp.exp(logpmf(k, p, loc))
