"""Student's t distributions with df degrees of freedom."""

from __future__ import annotations

from jaxlite import numpy as jnp
from jaxlite.numpy.api import float_api, strong_formula
from jaxlite.scipy.special import betaln
from jaxlite.scipy.stats.arguments import standardized

__all__ = ["logpdf", "pdf"]
__dir__ = lambda: __all__


@float_api
@strong_formula
def logpdf(x, df, loc=0, scale=1):
    """The logarithm of the density."""
    z, scale, df = standardized("t.logpdf", x, loc, scale, df)
    return -jnp.log(scale) - jnp.log(df) / 2 - betaln(df / 2, 0.5) - (df + 1) / 2 * jnp.log1p(z * z / df)


@float_api
@strong_formula
def pdf(x, df, loc=0, scale=1):
    """The density."""
    return jnp.exp(logpdf(x, df, loc, scale))
