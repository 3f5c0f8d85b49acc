"""Generalized normal distributions: densities that fall off as exp(-|x|^beta)."""

from __future__ import annotations

from jaxlite import numpy as jnp
from jaxlite.numpy.api import float_api
from jaxlite.scipy.arguments import floats
from jaxlite.scipy.special import gammainc, gammaln

__all__ = ["cdf", "logpdf", "pdf"]
__dir__ = lambda: __all__


@float_api
def logpdf(x, beta):
    """The logarithm of the density."""
    x, beta = floats("gennorm.logpdf", x, beta)
    return jnp.log(beta / 2) - gammaln(1 / beta) - jnp.abs(x) ** beta


@float_api
def pdf(x, beta):
    """The density."""
    return jnp.exp(logpdf(x, beta))


@float_api
def cdf(x, beta):
    """The distribution function."""
    x, beta = floats("gennorm.cdf", x, beta)
    return (1 + jnp.sign(x) * gammainc(1 / beta, jnp.abs(x) ** beta)) / 2
