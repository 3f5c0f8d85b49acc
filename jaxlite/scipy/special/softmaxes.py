"""softmax and its logarithm with SciPy's default, over all axes; logsumexp, which has it anyway."""

from __future__ import annotations

from typing import Any

from jaxlite.core.values import aval_of
from jaxlite.nn import normalization
from jaxlite.nn.normalization import logsumexp
from jaxlite.scipy.arguments import floats

__all__ = ["log_softmax", "logsumexp", "softmax"]


def softmax(x, /, *, axis: int | tuple[int, ...] | None = None):
    """exp(x) over its sum along axes; along all of them by default."""
    return normalization.softmax(*_over("softmax", x, axis))


def log_softmax(x, /, *, axis: int | tuple[int, ...] | None = None):
    """The logarithm of `softmax`."""
    return normalization.log_softmax(*_over("log_softmax", x, axis))


def _over(name: str, x, axis) -> tuple[Any, Any]:
    x = floats(name, x, complex=True)
    return x, tuple(range(aval_of(x).ndim)) if axis is None else axis
