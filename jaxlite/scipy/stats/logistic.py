"""Logistic distributions with mean loc; the distribution function is expit."""

from __future__ import annotations

from typing import Any

from jaxlite import numpy as jnp
from jaxlite.numpy.api import api
from jaxlite.scipy.arguments import floats
from jaxlite.scipy.special import expit, logit
from jaxlite.scipy.stats.arguments import standardized

__all__ = ["cdf", "isf", "logpdf", "pdf", "ppf", "sf"]
__dir__ = lambda: __all__


@api()
def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The logarithm of the density."""
    z, scale = standardized("logistic.logpdf", x, loc, scale, complex=True)
    size = jnp.abs(z)
    return -size - 2 * jnp.log1p(jnp.exp(-size)) - jnp.log(scale)


@api()
def pdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The density."""
    return jnp.exp(logpdf(x, loc, scale))


@api()
def cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The distribution function."""
    return expit(standardized("logistic.cdf", x, loc, scale, complex=True)[0])


@api()
def sf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The probability of more than x: 1 - cdf."""
    return expit(-standardized("logistic.sf", x, loc, scale, complex=True)[0])


@api()
def ppf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The quantile function: the inverse of `cdf`."""
    x, loc, scale = floats("logistic.ppf", x, loc, scale, complex=True)
    return loc + scale * logit(x)


@api()
def isf(x: Any, loc: Any = 0, scale: Any = 1) -> Any:
    """The inverse of `sf`."""
    x, loc, scale = floats("logistic.isf", x, loc, scale, complex=True)
    return loc - scale * logit(x)
