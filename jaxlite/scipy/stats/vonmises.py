"""Von Mises distributions on the circle, of concentration kappa around zero."""

from __future__ import annotations

import math

from jaxlite import lax
from jaxlite import numpy as jnp
from jaxlite.numpy.api import float_api
from jaxlite.scipy.arguments import floats

__all__ = ["logpdf", "pdf"]
__dir__ = lambda: __all__


@float_api
def logpdf(x, kappa):
    """The logarithm of the density."""
    x, kappa = floats("vonmises.logpdf", x, kappa)
    # At 0 the sign is 0, as the derivative of i0e(kappa) = exp(-|kappa|) i0(kappa) has it there.
    value = kappa * (jnp.cos(x) - jnp.sign(kappa)) - jnp.log(2 * math.pi * lax.bessel_i0e(kappa))
    return jnp.where(kappa >= 0, value, jnp.nan)


@float_api
def pdf(x, kappa):
    """The density."""
    return jnp.exp(logpdf(x, kappa))
