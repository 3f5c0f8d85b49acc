"""Arguments of distributions: moved and scaled to standard ones."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from jaxlite import numpy as jnp
from jaxlite.core.values import aval_of
from jaxlite.lax import shaping
from jaxlite.scipy.arguments import floats


def standardized(name: str, x, loc, scale, *shapes, complex: bool = False) -> list[Any]:
    """(x - loc) / scale, the scale, and the parameters of shape, of one floating dtype, or complex if that is allowed."""
    x, loc, scale, *shapes = floats(name, x, loc, scale, *shapes, complex=complex)
    return [(x - loc) / scale, scale, *shapes]


def counted(name: str, k, loc, *shapes) -> list[Any]:
    """k - loc, whether that is a whole number that is not negative, and the parameters of shape."""
    k, loc, *shapes = floats(name, k, loc, *shapes)
    k = k - loc
    return [k, (k >= 0) & (k == jnp.floor(k)), *shapes]


def typed_by_count(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: the result is strongly typed where the first argument is, whatever the parameters are."""

    @functools.wraps(function)
    def typed(*args, **kwargs):
        result, k = function(*args, **kwargs), args[0] if args else kwargs["k"]
        return shaping.convert(result, None, None if aval_of(k).weak_type else False)

    return typed


def incomplete(function, a, z, at_zero: float, at_infinity: float):
    """`gammainc` or `gammaincc`, and what it is for z below 0 and at infinity, with slope 0 there."""
    is_low = z <= 0
    is_outside = is_low | (z == jnp.inf)
    value = function(a, jnp.where(is_outside, 1, z))
    outside = jnp.where(a > 0, jnp.where(is_low, at_zero, at_infinity), jnp.nan)
    return jnp.where(is_outside, outside, value)


def gumbel_log_density(z, scale):
    """The logarithm of the density at z of the smallest of many values, for a distribution that is then scaled."""
    is_far = z == jnp.inf  # where the exponential is as infinite
    z = jnp.where(is_far, 0, z)
    return jnp.where(is_far, -jnp.inf, z - jnp.exp(z) - jnp.log(scale))


def log_of(probability):
    """The logarithm of a probability, with slope 0 where that is 0: outside the support."""
    is_none = probability == 0
    return jnp.where(is_none, -jnp.inf, jnp.log(jnp.where(is_none, 1, probability)))
