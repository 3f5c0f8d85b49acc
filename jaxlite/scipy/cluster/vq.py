"""jaxlite.scipy.cluster.vq: vector quantization."""

from __future__ import annotations

from typing import Any

from jaxlite import numpy as jnp
from jaxlite.core.values import aval_of
from jaxlite.numpy.api import api, broadcasts_inside
from jaxlite.scipy.arguments import floats

__all__ = ["vq"]
__dir__ = lambda: __all__


@api
@broadcasts_inside
def vq(obs, code_book, check_finite: bool = True) -> tuple[Any, Any]:
    """The nearest code of each observation.

    Args:
      obs: (n, features), or (n,) for one feature.
      code_book: (codes, features), or (codes,).
      check_finite: has no effect.
    Returns: the positions of the codes, int32 (n,), and how far they are, (n,).
    """
    obs, codes = floats("vq", obs, code_book, complex=True)
    shapes = aval_of(obs).shape, aval_of(codes).shape
    if len(shapes[0]) != len(shapes[1]):
        raise ValueError(f"Observation and code_book should have the same rank. Got shapes {shapes[0]} and {shapes[1]}")
    if len(shapes[0]) not in (1, 2):
        raise ValueError(f"vq: arrays must have one or two dimensions, got shapes {shapes[0]} and {shapes[1]}")
    if len(shapes[0]) == 1:
        obs, codes = obs[:, None], codes[:, None]
    elif shapes[0][1] != shapes[1][1]:
        raise ValueError(f"vq: observations of {shapes[0][1]} features and codes of {shapes[1][1]}")
    distances = jnp.linalg.norm(obs[:, None] - codes, axis=-1)
    return jnp.argmin(distances, axis=-1), distances.min(-1)
