"""Initializers: functions `init(key, shape, dtype)` that draw initial weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxlite import numpy as jnp
from jaxlite import random
from jaxlite.core import dtypes
from jaxlite.core.filtering import boundary
from jaxlite.devices import placement
from jaxlite.lax.shaping import canonical_shape

__all__ = [
    "Initializer", "constant", "delta_orthogonal", "glorot_normal", "glorot_uniform", "he_normal", "he_uniform",
    "kaiming_normal", "kaiming_uniform", "lecun_normal", "lecun_uniform", "normal", "ones", "orthogonal",
    "truncated_normal", "uniform", "variance_scaling", "xavier_normal", "xavier_uniform", "zeros",
]
__dir__ = lambda: __all__

Initializer = Callable[..., Any]


def _initializer(draw: Callable[..., Any], default) -> Initializer:
    """The initializer that draws weights by `draw(key, shape, dtype)`, and lays them out as asked."""

    def init(key, shape, dtype=default, out_sharding=None):
        dtype = dtypes.check_user_dtype_supported(float if dtype is None else dtype)
        return placement.laid_out(draw(key, shape, dtype), out_sharding)

    return init


@boundary
def zeros(key, shape, dtype=None, out_sharding=None):
    """All zeros; the key is not used."""
    return constant(0)(key, shape, dtype, out_sharding)


@boundary
def ones(key, shape, dtype=None, out_sharding=None):
    """All ones; the key is not used."""
    return constant(1)(key, shape, dtype, out_sharding)


@boundary
def constant(value, dtype=None) -> Initializer:
    """One value for all weights."""
    return _initializer(lambda key, shape, dtype: jnp.full(shape, value, dtype=dtype), dtype)


@boundary
def uniform(scale: float = 1e-2, dtype=None) -> Initializer:
    """Uniform in [0, scale)."""
    return _initializer(lambda key, shape, dtype: random.uniform(key, shape, dtype) * jnp.array(scale, dtype), dtype)


@boundary
def normal(stddev: float = 1e-2, dtype=None) -> Initializer:
    """Normal with mean 0."""
    return _initializer(lambda key, shape, dtype: random.normal(key, shape, dtype) * jnp.array(stddev, dtype), dtype)


@boundary
def truncated_normal(stddev: float = 1e-2, dtype=None, lower: float = -2.0, upper: float = 2.0) -> Initializer:
    """Normal with mean 0, cut at `lower` and `upper` standard deviations."""
    return _initializer(
        lambda key, shape, dtype: random.truncated_normal(key, lower, upper, shape, dtype) * jnp.array(stddev, dtype), dtype)


def _fans(shape: Sequence[int], in_axis, out_axis, batch_axis) -> tuple[float, float]:
    """How many inputs and outputs each unit has: sizes of the axes, times the receptive field that the rest spans."""
    shape = canonical_shape(shape)
    if len(shape) < 2 and in_axis == -2:
        raise ValueError(f"Can't compute input and output sizes of a {len(shape)}-dimensional weights tensor with default "
                         "in_axis. Must be at least 2D, or specify in_axis explicitly.")

    def size(axes) -> int:
        return math.prod(shape[axis] for axis in (axes if isinstance(axes, (tuple, list)) else (axes,)))

    inputs, outputs, batch = size(in_axis), size(out_axis), size(batch_axis)
    field = math.prod(shape) / inputs / outputs / batch
    return inputs * field, outputs * field


@boundary
def variance_scaling(scale: float, mode: str, distribution: str, in_axis=-2, out_axis=-1, batch_axis=(),
                     dtype=None) -> Initializer:
    """Draws with variance scale / n, where n is the number of inputs, outputs, or their mean.

    Args:
      mode: 'fan_in', 'fan_out', 'fan_avg' or 'fan_geo_avg'.
      distribution: 'truncated_normal', 'normal' or 'uniform'.
      in_axis, out_axis, batch_axis: which axes of the shape are inputs, outputs, and independent copies.
    """

    def draw(key, shape, dtype):
        fan_in, fan_out = _fans(shape, in_axis, out_axis, batch_axis)
        sizes = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2,
                 "fan_geo_avg": (fan_in * fan_out) ** 0.5}
        if mode not in sizes:
            raise ValueError(f"invalid mode for variance scaling initializer: {mode}")
        variance = jnp.array(scale / sizes[mode], dtype=dtype)
        if distribution == "truncated_normal":
            if dtypes.kind(dtype) == "f":
                # The standard deviation of a standard normal cut at two standard deviations.
                stddev = jnp.sqrt(variance) / jnp.array(0.87962566103423978, dtype)
                return random.truncated_normal(key, -2, 2, shape, dtype) * stddev
            # A complex number cut in modulus: of the Rayleigh distribution, up to two standard deviations of its parts.
            stddev = jnp.sqrt(variance) / jnp.array(0.95311164380491208, dtype)
            return _complex_truncated_normal(key, 2, shape, dtype) * stddev
        if distribution == "normal":
            return random.normal(key, shape, dtype) * jnp.sqrt(variance)
        if distribution == "uniform":
            if dtypes.kind(dtype) == "c":
                return _complex_uniform(key, shape, dtype) * jnp.sqrt(variance)
            return random.uniform(key, shape, dtype, -1) * jnp.sqrt(3 * variance)
        raise ValueError(f"invalid distribution for variance scaling initializer: {distribution}")

    return _initializer(draw, dtype)


def _complex_truncated_normal(key, upper: float, shape, dtype):
    """Standard complex normal numbers of a modulus below a bound, from a uniform square of the modulus and an angle."""
    moduli, angles = random.split(key)
    real = jnp.array(0, dtype).real.dtype
    area = (1 - jnp.exp(jnp.array(-upper ** 2, real))) * random.uniform(moduli, shape, real).astype(real)
    return _of_modulus(angles, jnp.sqrt(-jnp.log(1 - area)))


def _complex_uniform(key, shape, dtype):
    """Complex numbers that are uniform in a disk, of unit variance."""
    moduli, angles = random.split(key)
    return _of_modulus(angles, jnp.sqrt(2 * random.uniform(moduli, shape, jnp.array(0, dtype).real.dtype)))


def _of_modulus(key, modulus):
    """Complex numbers of these moduli and of random angles."""
    return modulus * jnp.exp(1j * (2 * jnp.pi * random.uniform(key, modulus.shape, modulus.dtype)))


def _family(name: str, scale: float, mode: str, distribution: str, doc: str):
    def make(in_axis=-2, out_axis=-1, batch_axis=(), dtype=None) -> Initializer:
        return variance_scaling(scale, mode, distribution, in_axis, out_axis, batch_axis, dtype)

    make.__name__ = make.__qualname__ = name
    make.__doc__ = doc
    return make


glorot_uniform = xavier_uniform = _family("glorot_uniform", 1.0, "fan_avg", "uniform",
                                          "Uniform, variance 2 / (inputs + outputs) (Glorot & Bengio 2010).")
glorot_normal = xavier_normal = _family("glorot_normal", 1.0, "fan_avg", "truncated_normal",
                                        "Truncated normal, variance 2 / (inputs + outputs) (Glorot & Bengio 2010).")
lecun_uniform = _family("lecun_uniform", 1.0, "fan_in", "uniform", "Uniform, variance 1 / inputs (LeCun et al. 1998).")
lecun_normal = _family("lecun_normal", 1.0, "fan_in", "truncated_normal",
                       "Truncated normal, variance 1 / inputs (LeCun et al. 1998).")
he_uniform = kaiming_uniform = _family("he_uniform", 2.0, "fan_in", "uniform",
                                       "Uniform, variance 2 / inputs (He et al. 2015).")
he_normal = kaiming_normal = _family("he_normal", 2.0, "fan_in", "truncated_normal",
                                     "Truncated normal, variance 2 / inputs (He et al. 2015).")


@boundary
def orthogonal(scale: float = 1.0, column_axis: int = -1, dtype=None) -> Initializer:
    """A random orthogonal matrix over `column_axis` and all other axes (Saxe et al. 2013)."""

    def draw(key, shape, dtype):
        if len(shape) < 2:
            raise ValueError("orthogonal initializer requires at least a 2D shape")
        columns = shape[column_axis]
        rows = math.prod(shape) // columns
        matrix = random.normal(key, (max(rows, columns), min(rows, columns)), dtype)
        q, r = jnp.linalg.qr(matrix)
        diagonal = jnp.diagonal(r)
        q = q * jnp.expand_dims(diagonal / jnp.abs(diagonal), 0)
        q = q.T if rows < columns else q
        rest = tuple(np.delete(shape, column_axis).tolist())
        return jnp.array(scale, dtype) * jnp.moveaxis(jnp.reshape(q, (*rest, columns)), -1, column_axis)

    return _initializer(draw, dtype)


@boundary
def delta_orthogonal(scale: float = 1.0, column_axis: int = -1, dtype=None) -> Initializer:
    """A convolution kernel that is an orthogonal matrix at its center and 0 elsewhere (Xiao et al. 2018)."""

    def draw(key, shape, dtype):
        if len(shape) not in (3, 4, 5):
            raise ValueError("Delta orthogonal initializer requires a 3D, 4D or 5D shape.")
        if shape[-1] < shape[-2]:
            raise ValueError("`fan_in` must be less or equal than `fan_out`.")
        kernel = jnp.zeros(shape, dtype)
        center = tuple((size - 1) // 2 for size in shape[:-2])
        return kernel.at[center].set(orthogonal(scale, column_axis, dtype)(key, shape[-2:], dtype))

    return _initializer(draw, dtype)
