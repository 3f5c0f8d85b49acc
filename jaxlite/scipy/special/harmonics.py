"""Bessel functions of whole orders, and spherical harmonics."""

from __future__ import annotations

import math

import numpy as np

from jaxlite import lax
from jaxlite import numpy as jnp
from jaxlite.core.filtering import boundary
from jaxlite.core.values import aval_of
from jaxlite.numpy.api import broadcasts_inside, float_api, promote_dtypes_inexact
from jaxlite.scipy.arguments import floats

# --- modified Bessel functions -----------------------------------------------------------------------


@float_api
def i0e(x):
    """exp(-|x|) times the modified Bessel function of the first kind of order 0."""
    return lax.bessel_i0e(floats("i0e", x))


@float_api
def i0(x):
    """The modified Bessel function of the first kind of order 0."""
    return jnp.i0(floats("i0", x))


@float_api
def i1e(x):
    """exp(-|x|) times the modified Bessel function of the first kind of order 1."""
    return lax.bessel_i1e(floats("i1e", x))


@float_api
def i1(x):
    """The modified Bessel function of the first kind of order 1."""
    x = floats("i1", x)
    return jnp.exp(jnp.abs(x)) * lax.bessel_i1e(x)


# --- Bessel functions --------------------------------------------------------------------------------


@float_api
@broadcasts_inside
def bessel_jn(z, *, v: int, n_iter: int = 50):
    """Bessel functions of the first kind of orders 0 to v.

    Args:
      z: where, real.
      v: the highest order.
      n_iter: the order from which to recur downwards: above v and |z|, by more the more digits are wanted.
    Returns: (v + 1, *z.shape).
    """
    n_iter = max(n_iter, v + 1)
    z = floats("bessel_jn", z)
    is_zero = z == 0
    double = 2 / jnp.where(is_zero, 1, z)
    big = 1e10

    # J. Miller's algorithm (DLMF 3.6): backwards from an order where it is as good as zero, the recurrence is stable.
    # What is known is scaled down as it grows; in the end J_0 + 2 J_2 + 2 J_4 + ... = 1.
    def step(index, state):
        upper, current, total, *found = state
        order = n_iter - index
        below = order.astype(z.dtype) * double * current - upper
        total = total + jnp.where(order == 1, 1, order % 2 * 2).astype(z.dtype) * below
        found = [jnp.where((jnp.arange(v + 1) == order - 1).reshape(-1, *[1] * z.ndim), below, each) for each in found]
        scale = jnp.where(jnp.abs(below) > big, 1 / big, 1).astype(z.dtype)
        return current * scale, below * scale, total * scale, *[each * scale for each in found]

    start, first_found = (jnp.zeros_like(z), jnp.full_like(z, 1e-10), jnp.zeros_like(z)), n_iter - v - 1
    above = lax.fori_loop(0, first_found, step, start)
    _, _, total, found = lax.fori_loop(first_found, n_iter, step, (*above, jnp.zeros((v + 1, *z.shape), z.dtype)))
    first = (jnp.arange(v + 1) == 0).astype(z.dtype).reshape(-1, *[1] * z.ndim)
    return jnp.where(is_zero, first, found / total)


# --- spherical harmonics -----------------------------------------------------------------------------


@float_api
def _sph_harm_y(n, m, theta, phi, n_max: int):
    theta, phi = promote_dtypes_inexact(theta, phi, np.float32(0))[:2]  # there are no narrower complex numbers
    n, m, theta, phi = jnp.broadcast_arrays(n, m, theta, phi)
    n = jnp.clip(n, 0, n_max)
    order = jnp.abs(m)
    cosine, sine = jnp.cos(theta), jnp.sin(theta)
    dtype = aval_of(theta).dtype

    # Normalized Legendre functions: the one of degree m first, then by the recurrence in degree (DLMF 14.10.3).
    def step(index, state):
        before, current = state
        degree = index + 1
        down, up = degree.astype(dtype), order.astype(dtype)
        diagonal = -jnp.sqrt((2 * down + 1) / (2 * down)) * sine * current
        above = jnp.where(degree > order, down, up + 1)
        square, previous = above * above - up * up, (above - 1) ** 2 - up * up
        factor = jnp.sqrt((4 * above * above - 1) / square)
        next_one = factor * (cosine * current - jnp.sqrt(jnp.maximum(previous, 0) / (4 * (above - 1) ** 2 - 1 + (above == 0.5)))
                             * before)
        new = jnp.where(degree <= order, diagonal, next_one)
        is_wanted = degree <= n
        kept = jnp.where(degree <= order, 0, current)
        return jnp.where(is_wanted, kept, before), jnp.where(is_wanted, new, current)

    start = jnp.zeros_like(theta), jnp.full_like(theta, math.sqrt(1 / (4 * math.pi)))
    _, value = lax.fori_loop(0, n_max, step, start)
    value = jnp.where(order > n, 0, value)
    sign = jnp.where((m < 0) & (order % 2 == 1), -1, 1)
    angle = m * phi
    return lax.complex(sign * value * jnp.cos(angle), sign * value * jnp.sin(angle))


@boundary
def sph_harm_y(n, m, theta, phi, diff_n: int | None = None, n_max: int | None = None):
    """Spherical harmonics, orthonormal, with the phase of Condon and Shortley.

    Args:
      n: degrees, integers that are not negative. m: orders, |m| <= n.
      theta: polar angles, from 0 to pi. phi: azimuths.
      diff_n: not supported.
      n_max: the highest degree: static, so under `jit` it must be given. Higher ones count as this one.
    Returns: complex, of the arguments' common shape.
    Raises: NotImplementedError if diff_n is given.
    """
    if diff_n is not None:
        raise NotImplementedError("The 'diff_n' argument to sph_harm_y is not supported.")
    if n_max is None:
        n_max = int(np.max(np.asarray(n), initial=0))
    return _sph_harm_y(n, m, theta, phi, int(n_max))
