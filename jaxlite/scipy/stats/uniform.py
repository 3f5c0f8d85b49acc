"""Uniform distributions on [loc, loc + scale]."""

from __future__ import annotations

from jaxlite import numpy as jnp
from jaxlite.numpy.api import float_api
from jaxlite.scipy.arguments import floats
from jaxlite.scipy.stats.arguments import standardized
from lowering.xla import VERSION

__all__ = ["cdf", "logpdf", "pdf", "ppf"]
__dir__ = lambda: __all__


@float_api
def logpdf(x, loc=0, scale=1):
    """The logarithm of the density."""
    z, scale = standardized("uniform.logpdf", x, loc, scale, complex=True)
    return jnp.where(((z < 0) | (z > 1)) & (scale >= 0), -jnp.inf, jnp.where(jnp.isnan(z), jnp.nan, -jnp.log(scale)))


@float_api
def pdf(x, loc=0, scale=1):
    """The density."""
    return jnp.exp(logpdf(x, loc, scale))


@float_api
def cdf(x, loc=0, scale=1):
    """The distribution function."""
    z, _ = standardized("uniform.cdf", x, loc, scale)
    return jnp.clip(z, 0, jnp.ones((), z.dtype) if VERSION < (0, 12) else 1)  # as JAX of the same jaxlib


@float_api
def ppf(q, loc=0, scale=1):
    """The quantile function: the inverse of `cdf`."""
    q, loc, scale = floats("uniform.ppf", q, loc, scale, complex=True)
    return jnp.where((q < 0) | (q > 1), jnp.nan, loc + scale * q)
