"""A density from samples: one Gaussian around each of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from jaxlite import numpy as jnp
from jaxlite import random
from jaxlite.core.values import aval_of
from jaxlite.lax import stop_gradient
from jaxlite.numpy.api import float_api
from jaxlite.scipy.arguments import floats
from jaxlite.scipy.linalg import solve_triangular
from jaxlite.scipy.special import logsumexp, ndtr
from jaxlite.tree_util import register_pytree_node_class


@register_pytree_node_class
class gaussian_kde:
    """The mean of Gaussians around samples; all have one covariance, that of the samples times `factor` squared.

    Args:
      dataset: samples as columns, (d, n), or (n,) of one number each; n > 1.
      bw_method: the factor: a number, a function that makes it of this object, 'silverman', or 'scott' (also None). The
        rules are those of D. W. Scott, "Multivariate Density Estimation", 1992, with the effective number of samples
        `neff` and dimension d: neff^(-1 / (d + 4)), or for Silverman's (neff (d + 2) / 4)^(-1 / (d + 4)).
      weights: (n,), how much each sample counts.
    It is a pytree of arrays, so that functions under `jit` take and return it.

    >>> import jaxlite.numpy as jnp
    >>> from jaxlite.scipy.stats import gaussian_kde
    >>> print(f"{gaussian_kde(jnp.array([-1.0, 1.0])).evaluate(0.0)[0]:.3f}")
    0.233
    """

    dataset: Any
    weights: Any
    neff: Any
    covariance: Any
    inv_cov: Any

    def __init__(self, dataset, bw_method: str | float | Callable[[gaussian_kde], Any] | None = None, weights=None):
        self.dataset = jnp.atleast_2d(floats("gaussian_kde", dataset))
        if self.n < 2:
            raise ValueError("gaussian_kde: dataset must have more than one sample")
        if weights is None:
            self.weights = jnp.full(self.n, 1 / self.n, self.dataset.dtype)
        else:
            weights = floats("gaussian_kde", weights).astype(self.dataset.dtype)
            if aval_of(weights).shape != (self.n,):
                raise ValueError(f"gaussian_kde: weights must have shape ({self.n},), one for each sample, got "
                                 f"{aval_of(weights).shape}")
            self.weights = weights / weights.sum()
        self.neff = 1 / (self.weights**2).sum()
        covariance = jnp.atleast_2d(jnp.cov(self.dataset, aweights=self.weights))
        self.covariance = covariance * self._factor(bw_method) ** 2
        self.inv_cov = jnp.linalg.inv(self.covariance)

    def _factor(self, bw_method):
        if bw_method is None or bw_method == "scott":
            return self.neff ** (-1 / (self.d + 4))
        if bw_method == "silverman":
            return (self.neff * (self.d + 2) / 4) ** (-1 / (self.d + 4))
        if callable(bw_method):
            return bw_method(self)
        if isinstance(bw_method, str):
            raise ValueError("`bw_method` should be 'scott', 'silverman', a scalar, or a callable.")
        return bw_method

    def tree_flatten(self) -> tuple[tuple[Any, ...], None]:
        return (self.neff, self.dataset, self.weights, self.covariance, self.inv_cov), None

    @classmethod
    def tree_unflatten(cls, aux_data: None, children: tuple[Any, ...]) -> gaussian_kde:
        made = object.__new__(cls)
        made.__setstate__(children)
        return made

    def __getstate__(self) -> tuple[Any, ...]:
        return self.tree_flatten()[0]

    def __setstate__(self, state: Sequence[Any]) -> None:  # JAX's pickles have a list of the same
        self.neff, self.dataset, self.weights, self.covariance, self.inv_cov = state

    def __repr__(self) -> str:
        names = "neff", "dataset", "weights", "covariance", "inv_cov"
        return f"gaussian_kde({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    @property
    def d(self) -> int:
        """How many numbers a sample has."""
        return self.dataset.shape[0]

    @property
    def n(self) -> int:
        """How many samples there are."""
        return self.dataset.shape[1]

    def _points(self, points):
        points = jnp.atleast_2d(floats("gaussian_kde", points)).astype(self.dataset.dtype)
        rows, columns = aval_of(points).shape
        if rows == 1 and columns == self.d != 1:
            return points.T
        if rows != self.d:
            raise ValueError(f"gaussian_kde: points have dimension {rows}, the dataset has dimension {self.d}")
        return points

    def evaluate(self, points):
        """The density at points (d, m), or (m,) of one number each, or one point (d,). Returns: (m,)."""
        return (jnp.exp(_log_overlaps(self._points(points), self.dataset, self.covariance)) * self.weights).sum(1)

    __call__ = evaluate

    def pdf(self, x):
        """`evaluate`."""
        return self.evaluate(x)

    def logpdf(self, x):
        """The logarithm of `evaluate`."""
        return logsumexp(_log_overlaps(self._points(x), self.dataset, self.covariance), axis=1, b=self.weights)

    def integrate_gaussian(self, mean, cov):
        """The integral of the density times that of a normal distribution."""
        mean = jnp.atleast_1d(jnp.squeeze(jnp.asarray(mean, self.dataset.dtype)))
        cov = jnp.atleast_2d(jnp.asarray(cov, self.dataset.dtype))
        if mean.shape != (self.d,):
            raise ValueError(f"mean does not have dimension {self.d}")
        if cov.shape != (self.d, self.d):
            raise ValueError(f"covariance does not have dimension {self.d}")
        return jnp.exp(_log_overlaps(mean[:, None], self.dataset, self.covariance + cov))[0] @ self.weights

    def integrate_box_1d(self, low, high):
        """The probability of an interval, for samples of one number."""
        if self.d != 1:
            raise ValueError("integrate_box_1d() only handles 1D pdfs")
        if jnp.ndim(low) or jnp.ndim(high):
            raise ValueError("the limits of integration in integrate_box_1d must be scalars")
        sigma = jnp.sqrt(self.covariance[0, 0])
        return (self.weights * (ndtr((high - self.dataset[0]) / sigma) - ndtr((low - self.dataset[0]) / sigma))).sum()

    def integrate_kde(self, other: gaussian_kde):
        """The integral of this density times another one."""
        if other.d != self.d:
            raise ValueError("KDEs are not the same dimensionality")
        overlaps = _log_overlaps(self.dataset, other.dataset, self.covariance + other.covariance)
        return self.weights @ jnp.exp(overlaps) @ other.weights

    def resample(self, key, shape: tuple[int, ...] = ()):
        """Draws from the density. Returns: (d, *shape)."""
        chosen_key, around_key = random.split(key)
        chosen = random.choice(chosen_key, self.n, shape, p=self.weights)
        around = random.multivariate_normal(around_key, jnp.zeros(self.d, self.dataset.dtype), self.covariance, shape,
                                            self.dataset.dtype)
        return (self.dataset.T[chosen] + around).T

    def integrate_box(self, low_bounds, high_bounds, maxpts=None):
        """Not there: the distribution function of a normal distribution in several dimensions has no closed form."""
        raise NotImplementedError("only 1D box integrations are supported; use `integrate_box_1d`")

    def set_bandwidth(self, bw_method=None):
        """Not there: objects do not change."""
        raise NotImplementedError("dynamically changing the bandwidth method is not supported; make a new gaussian_kde")


@float_api
def _log_overlaps(points, centers, covariance):
    """The logarithm of the normal density of each point (d, m) around each center (d, n). Returns: (m, n)."""
    factor = jnp.linalg.cholesky(covariance)
    middle = stop_gradient(centers.mean(1, keepdims=True))  # far from zero, points that are multiplied lose their offsets
    white_points, white_centers = (solve_triangular(factor, each - middle, lower=True) for each in (points, centers))
    distances = ((white_points[:, :, None] - white_centers[:, None, :]) ** 2).sum(0)
    at_center = -len(factor) * math.log(2 * math.pi) / 2 - jnp.log(jnp.diagonal(factor)).sum()
    return at_center - distances / 2
