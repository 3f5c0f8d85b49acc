"""Logistic distributions with mean loc; the distribution function is expit."""

from __future__ import annotations

from jaxlite import numpy as jnp
from jaxlite.numpy.api import float_api, strong_formula
from jaxlite.scipy.arguments import floats
from jaxlite.scipy.special import expit, logit
from jaxlite.scipy.stats.arguments import standardized
from jaxlite.transforms.custom_derivatives import custom_jvp

__all__ = ["cdf", "isf", "logpdf", "pdf", "ppf", "sf"]
__dir__ = lambda: __all__


@float_api
@strong_formula
def logpdf(x, loc=0, scale=1):
    """The logarithm of the density."""
    z, scale = standardized("logistic.logpdf", x, loc, scale, complex=True)
    return _standard(z) - jnp.log(scale)


@custom_jvp
def _standard(z):
    size = _size(z)
    return -size - 2 * jnp.log1p(jnp.exp(-size))


def _size(z):
    return jnp.where(jnp.real(z) < 0, -z, z)  # the density is even: no exponential overflows


def _slope(z):
    """-tanh(z / 2), from the exponential that the density needs, too."""
    small = jnp.exp(-_size(z))
    slope = (1 - small) / (1 + small)
    return jnp.where(jnp.real(z) < 0, slope, -slope)


_standard.defjvps(lambda t, out, z: t * _slope(z))


@float_api
@strong_formula
def pdf(x, loc=0, scale=1):
    """The density."""
    return jnp.exp(logpdf(x, loc, scale))


@float_api
def cdf(x, loc=0, scale=1):
    """The distribution function."""
    return expit(standardized("logistic.cdf", x, loc, scale, complex=True)[0])


@float_api
def sf(x, loc=0, scale=1):
    """The probability of more than x: 1 - cdf."""
    return expit(-standardized("logistic.sf", x, loc, scale, complex=True)[0])


@float_api
@strong_formula
def ppf(x, loc=0, scale=1):
    """The quantile function: the inverse of `cdf`."""
    x, loc, scale = floats("logistic.ppf", x, loc, scale, complex=True)
    return loc + scale * logit(x)


@float_api
@strong_formula
def isf(x, loc=0, scale=1):
    """The inverse of `sf`."""
    x, loc, scale = floats("logistic.isf", x, loc, scale, complex=True)
    return loc - scale * logit(x)
