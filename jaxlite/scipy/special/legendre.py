"""Associated Legendre functions of the first kind, all degrees and orders at once."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from jaxlite import lax
from jaxlite import numpy as jnp
from jaxlite.core.values import aval_of


def _check(m: int, n: int, z, name: str) -> None:
    aval = aval_of(z)
    if aval.dtype not in (np.float32, np.float64):
        raise TypeError(f"{name} takes float32 or float64, got z of type {aval}")
    if len(aval.shape) != 1:
        raise ValueError(f"z must be a 1D array; got z of shape {aval.shape}")
    if m != n:
        raise NotImplementedError(f"Computations for m!=n are not yet supported; got m={m}, n={n}")


def _table(count: int, z, normalized: bool):
    """(order, degree, point) -> the value without the factor (1 - z^2)^(order / 2): a polynomial."""
    orders = np.arange(count)
    column = np.zeros((count, 1))
    rows = [jnp.zeros((count, *z.shape), z.dtype)] * 2  # of the two degrees before
    start = math.sqrt(1 / (4 * math.pi)) if normalized else 1.0
    for degree in range(count):
        below, square = degree - 1, degree * degree - orders**2
        with np.errstate(invalid="ignore", divide="ignore"):
            if normalized:
                first = np.sqrt((4 * degree**2 - 1) / square)
                second = first * np.sqrt((below**2 - orders**2) / (4 * below**2 - 1.0))
            else:
                first, second = (2 * degree - 1) / (degree - orders), (degree + orders - 1) / (degree - orders)
        if degree:
            start *= -math.sqrt((2 * degree + 1) / (2 * degree)) if normalized else -(2 * degree - 1)
        column[:, 0] = np.where(orders == degree, start, 0)
        first, second = (np.where(orders < limit, each, 0).astype(z.dtype)[:, None]
                         for each, limit in ((first, degree), (second, below)))
        rows.append(first * z[None] * rows[-1] - second * rows[-2] + column.astype(z.dtype))
    return jnp.stack(rows[2:], axis=1)


def _powers(count: int, z):
    """(order, 1, point) -> (1 - z^2)^(order / 2)."""
    return jnp.stack([lax.integer_pow(jnp.sqrt(1 - z * z), order) for order in range(count)])[:, None]


def lpmn_values(m: int, n: int, z, is_normalized: bool):
    """Associated Legendre functions with the phase of Condon and Shortley.

    Args:
      m, n: the highest order and degree, the same number.
      z: (k,), float32 or float64, between -1 and 1.
      is_normalized: with the factors that make spherical harmonics orthonormal.
    Returns: (m + 1, n + 1, k), by order and degree.
    Raises: TypeError or ValueError for another z, NotImplementedError unless m is n.

    >>> import jaxlite.numpy as jnp
    >>> print(lpmn_values(1, 1, jnp.array([0.5]), False)[..., 0])
    [[ 1.         0.5      ]
     [ 0.        -0.8660254]]
    """
    _check(m, n, z, "lpmn_values")
    z = jnp.asarray(z)
    return _table(n + 1, z, is_normalized) * _powers(n + 1, z)


def lpmn(m: int, n: int, z) -> tuple[Any, Any]:
    """Associated Legendre functions and their derivatives by z; arguments and shapes as of `lpmn_values`."""
    _check(m, n, z, "lpmn")
    z = jnp.asarray(z)
    count = n + 1
    whole = _table(count + 1, z, False)
    powers, orders = _powers(count, z), np.arange(count, dtype=z.dtype)[:, None, None]
    table, higher = whole[:count, :count], whole[1:, :count]  # the derivative of the one is the other, but for its sign
    root = jnp.concatenate([jnp.ones_like(powers[:1]), 1 / powers[1:2], powers[:-2]])[:count]  # power by 1 - z^2
    return table * powers, -higher * powers - orders * z[None, None] * root * table
