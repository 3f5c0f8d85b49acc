"""Dirichlet distributions on the simplex."""

from __future__ import annotations

from jaxlite import numpy as jnp
from jaxlite.numpy.api import float_api
from jaxlite.scipy.arguments import floats
from jaxlite.scipy.special import gammaln, xlogy

__all__ = ["logpdf", "pdf"]
__dir__ = lambda: __all__


@float_api
def logpdf(x, alpha):
    """The logarithm of the density.

    Args:
      x: (k, ...), nonnegative and of sum 1 along its first axis; or (k - 1, ...), without the last one.
      alpha: (k,), positive.
    Raises: ValueError for shapes that do not fit.
    """
    x, alpha = floats("dirichlet.logpdf", x, alpha)
    if alpha.ndim != 1:
        raise ValueError(f"`alpha` must be one-dimensional; got alpha.shape={alpha.shape}")
    size = alpha.shape[0]
    if x.shape[:1] not in ((size,), (size - 1,)):
        raise ValueError("`x` must have either the same number of entries as `alpha` or one entry fewer; "
                         f"got x.shape={x.shape}, alpha.shape={alpha.shape}")
    if x.shape[0] == size - 1:
        x = jnp.concatenate([x, 1 - jnp.sum(x, axis=0, keepdims=True)])
    is_inside = jnp.all(x >= 0, axis=0) & (jnp.abs(jnp.sum(x, axis=0) - 1) < 1e-6)
    x = jnp.where(is_inside, x, 1 / max(size, 1))
    exponents = jnp.reshape(alpha, (size, *[1] * (x.ndim - 1))) - 1
    log_scale = gammaln(jnp.sum(alpha)) - jnp.sum(gammaln(alpha))
    return jnp.where(is_inside, log_scale + jnp.sum(xlogy(exponents, x), axis=0), -jnp.inf)


@float_api
def pdf(x, alpha):
    """The density."""
    return jnp.exp(logpdf(x, alpha))
