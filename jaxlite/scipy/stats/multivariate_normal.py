"""Normal distributions of vectors."""

from __future__ import annotations

import math

from jaxlite import numpy as jnp
from jaxlite.lax.linalg import cholesky
from jaxlite.numpy.api import float_api
from jaxlite.scipy.arguments import floats
from jaxlite.scipy.linalg import solve_triangular

__all__ = ["logpdf", "pdf"]
__dir__ = lambda: __all__


@float_api
def _logpdf(x, mean, cov):
    x, mean, cov = floats("multivariate_normal.logpdf", x, mean, cov, complex=True)
    if not mean.ndim:
        if cov.ndim:
            raise ValueError(f"multivariate_normal: a mean of shape () needs a cov of shape (), got {cov.shape}")
        return -((x - mean) ** 2 / cov + jnp.log(2 * math.pi * cov)) / 2
    size = mean.shape[-1]
    if not cov.ndim:
        cov = cov * jnp.eye(size, dtype=cov.dtype)  # one variance for all, as in SciPy
    if cov.ndim < 2 or cov.shape[-2:] != (size, size):
        raise ValueError("multivariate_normal: cov must have shape (..., n, n) for a mean of shape (..., n); got "
                         f"{cov.shape} and {mean.shape}")
    factor = cholesky(cov)  # of the symmetric part, so that the gradient is symmetric as well
    white = solve_triangular(factor, (x - mean)[..., None], lower=True)[..., 0]
    log_volume = jnp.sum(jnp.log(jnp.diagonal(factor, axis1=-2, axis2=-1)), axis=-1)
    return -(jnp.sum(white * white, axis=-1) + size * math.log(2 * math.pi)) / 2 - log_volume


def logpdf(x, mean, cov, allow_singular: None = None):
    """The logarithm of the density.

    Args:
      x, mean: (..., n). cov: (..., n, n), positive definite. Or scalars, for one number.
      allow_singular: not supported.

    >>> import jaxlite.numpy as jnp
    >>> from jaxlite.scipy.stats import multivariate_normal
    >>> print(multivariate_normal.pdf(jnp.zeros(2), jnp.zeros(2), jnp.eye(2)).round(4))
    0.1592
    """
    if allow_singular is not None:
        raise NotImplementedError("allow_singular argument of multivariate_normal.logpdf")
    return _logpdf(x, mean, cov)


def pdf(x, mean, cov):
    """The density; arguments as for `logpdf`."""
    return jnp.exp(logpdf(x, mean, cov))
