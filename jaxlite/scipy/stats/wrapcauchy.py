"""Wrapped Cauchy distributions on the circle, of concentration c around zero."""

from __future__ import annotations

import math

from jaxlite import numpy as jnp
from jaxlite.numpy.api import float_api
from jaxlite.scipy.arguments import floats

__all__ = ["logpdf", "pdf"]
__dir__ = lambda: __all__


@float_api
def logpdf(x, c):
    """The logarithm of the density."""
    x, c = floats("wrapcauchy.logpdf", x, c)
    value = jnp.log(1 - c * c) - math.log(2 * math.pi) - jnp.log(1 + c * c - 2 * c * jnp.cos(x))
    value = jnp.where((x >= 0) & (x <= 2 * math.pi), value, -jnp.inf)
    return jnp.where((c > 0) & (c < 1), value, jnp.nan)


@float_api
def pdf(x, c):
    """The density."""
    return jnp.exp(logpdf(x, c))
