"""Bits, uniform numbers and what is one formula away from them: integers, normals, logarithms of uniforms.

Functions with a leading underscore take a typed key and settled arguments; the samplers check and call them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxlite import lax
from jaxlite import numpy as jnp
from jaxlite.core import config, dtypes
from jaxlite.core.aval import Ints
from jaxlite.core.values import aval_of
from jaxlite.random.keys import sampler
from jaxlite.random.prng import draw_bits, split_keys

_ONE = np.float32(1.0)

# --- checks ------------------------------------------------------------------------------------------


def check_method(name: str, method: Any) -> None:
    """Raises ValueError for an argument `method` that JAX does not have."""
    if method not in ("exact", "approximate"):
        raise ValueError(f"method argument to `{name}` must be one of {{'exact', 'approximate'}}, got {method!r}")


def float_dtype(name: str, dtype, accepted: str = "f"):
    """The dtype that a sampler was requested; the default float if None.

    Raises: ValueError for other kinds, TypeError for floats of less than 8 bits.
    """
    found = dtypes.requested_dtype(dtype, name, float)
    if dtypes.kind(found) not in accepted:
        kinds = "float or complex" if "c" in accepted else "float"
        raise ValueError(f"dtype argument to `{name}` must be a {kinds} dtype, got {found}")
    if dtypes.itemsize_bits(found) < 8:
        raise TypeError(f"{name} only accepts 8-, 16-, 32-, or 64-bit dtypes, got {found}")
    return found


def int_dtype(name: str, dtype):
    """The dtype that a sampler of integers was requested; the default int if None."""
    return dtypes.requested_dtype(dtype, name, int)


def full_shape(shape, *params, error: type[Exception] = ValueError) -> Ints:
    """The shape that parameters and result broadcast to: `shape` itself if it is given.

    Raises: `error` if the parameters do not broadcast to it, ValueError if they are complex.
    """
    avals = [aval_of(param) for param in params]
    for aval in avals:
        if dtypes.kind(aval.dtype) == "c":
            raise dtypes.TypePromotionError(f"parameters of random numbers are real; got one of dtype {aval.dtype}, which does "
                                            "not become real without a loss")
    return shape_over(shape, [aval.shape for aval in avals], error)


def shape_over(shape, shapes: Sequence[Any], error: type[Exception] = ValueError) -> Ints:
    """`full_shape` of parameters of these shapes."""
    if shape is None:
        return lax.broadcast_shapes(*shapes)
    try:
        found: Ints | None = lax.broadcast_shapes(shape, *shapes)
    except ValueError:
        found = None
    if found is None or found != shape:
        raise error(f"Incompatible shapes for broadcasting: shapes={[shape, *shapes]}; the parameters must broadcast to the "
                    f"shape of the result, {shape}")
    return found  # of Python ints, whatever `shape` is made of


def split_key(key, count: int = 2) -> list[Any]:
    """Independent keys from a typed key."""
    keys = split_keys(key, (count,))
    return [lax.index_in_dim(keys, index, 0, False) for index in range(count)]


# --- bits and uniform numbers ------------------------------------------------------------------------


@sampler("shape", "dtype")
def bits(key, shape: Sequence[int] = (), dtype=None, *, out_sharding=None):
    """Uniform random bits as unsigned integers.

    Args:
      key: a PRNG key.
      shape: the shape of the result.
      dtype: an unsigned integer dtype; uint32, with x64 uint64, if None. Those of less than 8 bits are the low bits of uint8.
    Raises: ValueError for other dtypes.
    """
    if dtype is None:
        dtype = np.dtype(f"uint{8 * dtypes.default_dtype(int).itemsize}")
    dtype = dtypes.check_user_dtype_supported(dtype, "bits")
    if dtypes.kind(dtype) != "u":
        raise ValueError(f"dtype argument to `bits` must be an unsigned int dtype, got {dtype}")
    drawn = draw_bits(key, 8 * dtype.itemsize, shape)
    return lax.convert_element_type(drawn, dtype) if dtypes.itemsize_bits(dtype) < 8 else drawn


def _ranked(x, rank: int):
    """Leading axes of size 1 up to a rank."""
    shape = x.shape
    missing = rank - len(shape)
    return x if missing <= 0 else lax.broadcast_in_dim(x, (1,) * missing + shape, range(missing, rank))


def _uniform(key, shape: Sequence[int], dtype, minval=0.0, maxval=1.0):
    """Bits make a mantissa: a number in [1, 2), then scaled. Several keys give results along leading axes."""
    rank = len(aval_of(key).shape) + len(shape)
    minval, maxval = (_ranked(lax.convert_element_type(x, dtype), rank) for x in (minval, maxval))
    info = dtypes.finfo(dtype)
    mantissa, width = info.nmant, info.bits
    drawn = 8 if mantissa < 8 else width
    numbers = draw_bits(key, drawn, shape)
    unsigned = np.dtype(f"uint{width}")
    if drawn != width:
        numbers = lax.convert_element_type(numbers, unsigned)
    one = np.ones((), dtype).view(unsigned)[()]
    numbers = lax.shift_right_logical(numbers, unsigned.type(drawn - mantissa)) | one
    floats = lax.bitcast_convert_type(numbers, dtype) - 1
    scaled = floats * lax.sub(maxval, minval) + minval
    return lax.max(minval, scaled)


@sampler("shape", "dtype")
def uniform(key, shape: Sequence[int] = (), dtype=None, minval=0.0, maxval=1.0, *, out_sharding=None):
    """Uniform numbers in [minval, maxval).

    Args:
      key: a PRNG key.
      shape: the shape of the result.
      dtype: a floating-point dtype; the default float if None.
      minval, maxval: arrays or scalars that broadcast to `shape`.
    Raises: ValueError for other dtypes, TypeError for bounds that do not broadcast.

    >>> from jaxlite import random
    >>> random.uniform(random.key(0), (3,))
    Array([0.947667  , 0.9785799 , 0.33229148], dtype=float32)
    """
    dtype = float_dtype("uniform", dtype)
    if shape or aval_of(minval).size != 1 or aval_of(maxval).size != 1:  # a scalar takes the axes of bounds of one number
        full_shape(shape, minval, maxval, error=TypeError)
    return _uniform(key, shape, dtype, minval, maxval)


# --- integers ----------------------------------------------------------------------------------------


def _clip_to(x, dtype):
    """Integers to a dtype; those that do not fit become its nearest value."""
    found = aval_of(x).dtype
    if dtypes.kind(found) not in ("i", "u"):
        return lax.convert_element_type(x, dtype)
    low, high = (found.type(max(dtypes.iinfo(found).min, dtypes.iinfo(dtype).min)),
                 found.type(min(dtypes.iinfo(found).max, dtypes.iinfo(dtype).max)))
    return lax.convert_element_type(jnp.minimum(jnp.maximum(low, x), high), dtype)


@sampler("shape", "dtype")
def randint(key, shape: Sequence[int], minval, maxval, dtype=None, *, out_sharding=None):
    """Uniform integers in [minval, maxval).

    Args:
      key: a PRNG key.
      shape: the shape of the result.
      minval, maxval: integers that broadcast to `shape`; where maxval <= minval the result is minval.
      dtype: an integer dtype; the default int if None.
    Raises: TypeError for other dtypes, ValueError for limits that do not broadcast.

    >>> from jaxlite import random
    >>> random.randint(random.key(0), (4,), 0, 10)
    Array([9, 0, 2, 3], dtype=int32)
    """
    dtype = int_dtype("randint", dtype)
    if dtypes.kind(dtype) not in ("i", "u"):
        raise TypeError(f"randint only accepts integer dtypes, got {dtype}")
    full_shape(shape, minval, maxval)
    return _randint(key, shape, minval, maxval, dtype)


def _randint(key, shape: Sequence[int], minval, maxval, dtype):
    info = dtypes.iinfo(dtype)
    if info.bits < 32:  # so that maxval, one beyond the largest value, has a place
        wide = [lax.convert_element_type(x, np.int32) for x in (minval, maxval)]
        low, high = (jnp.clip(x, np.int32(info.min), np.int32(info.max + more))
                     for x, more in zip(wide, (0, 1), strict=True))
        return lax.convert_element_type(_randint(key, shape, low, high, np.dtype(np.int32)), dtype)
    minval, maxval = (x if dtypes.kind(aval_of(x).dtype) in ("i", "u") else lax.convert_element_type(x, dtype)
                      for x in (minval, maxval))
    kind = aval_of(maxval).dtype
    largest = kind.type(min(info.max, dtypes.iinfo(kind).max))
    beyond = jnp.greater(maxval, largest)
    low, high = (_ranked(_clip_to(x, dtype), len(shape)) for x in (minval, maxval))
    width = info.bits
    unsigned = np.dtype(f"uint{width}")
    # A loop over the two keys: the hash is compiled once, and apart from the divisions, which XLA cannot vectorise.
    both = lax.map(lambda key: draw_bits(key, width, shape), split_keys(key, (2,)))
    upper, lower = (lax.index_in_dim(both, index, 0, False) for index in (0, 1))
    span = lax.convert_element_type(jnp.subtract(high, low), unsigned)
    span = jnp.where(jnp.less_equal(high, low), unsigned.type(1), span)
    span = jnp.where(jnp.logical_and(beyond, jnp.greater(high, low)), span + 1, span)
    # (upper * 2**width + lower) mod span, in `width` bits.
    factor = (1 << width // 2) % span
    factor = lax.rem(factor * factor, span)
    offset = _rem(upper, span) * factor + _rem(lower, span)
    return low + lax.convert_element_type(_rem(offset, span), dtype)


def _rem(x, y):
    """lax.rem of an array and one that is broadcast against it."""
    return lax.rem(x, lax.broadcast_in_dim(y, aval_of(x).shape, range(len(y.shape))))


# --- normal numbers ----------------------------------------------------------------------------------


def _normal(key, shape: Sequence[int], dtype):
    if dtypes.kind(dtype) == "c":
        real = dtypes.to_floating_dtype(dtype)
        first, second = (lax.convert_element_type(_normal(each, shape, real), dtype) for each in split_key(key))
        return lax.div(first + lax.mul(dtype.type(1j), second), dtype.type(np.sqrt(2)))
    low = np.nextafter(np.array(-1.0, dtype), np.array(0.0, dtype), dtype=dtype)[()]
    return lax.mul(_sqrt2(dtype), lax.erf_inv(_uniform(key, shape, dtype, low, dtype.type(1))))


def _sqrt2(dtype):
    return np.array(np.sqrt(2), dtype)[()]


@sampler("shape", "dtype")
def normal(key, shape: Sequence[int] = (), dtype=None, *, out_sharding=None):
    """Standard normal numbers; complex ones have independent parts of variance 1/2.

    Args:
      key: a PRNG key.
      shape: the shape of the result.
      dtype: a floating-point or complex dtype; the default float if None.
    Raises: ValueError for other dtypes.

    >>> from jaxlite import random
    >>> random.normal(random.key(0), (3,))
    Array([ 1.6226422 ,  2.0252647 , -0.43359444], dtype=float32)
    """
    return _normal(key, shape, float_dtype("normal", dtype, "fc"))


@sampler("shape", "dtype")
def truncated_normal(key, lower, upper, shape=None, dtype=None, *, out_sharding=None):
    """Standard normal numbers truncated to (lower, upper).

    Args:
      lower, upper: arrays or scalars.
      shape: the shape of the result; that of the limits if None.
      dtype: a floating-point dtype; the default float if None.
    """
    dtype = float_dtype("truncated_normal", dtype)
    shape = full_shape(shape, lower, upper)
    lower, upper = (lax.convert_element_type(x, dtype) for x in (lower, upper))
    root = _sqrt2(dtype)
    limits = (lax.erf(lax.div(x, root)) for x in (lower, upper))
    out = lax.erf_inv(_uniform(key, shape, dtype, *limits)) * root
    # Rounding may reach the limits themselves.
    return jnp.clip(out, lax.nextafter(lax.stop_gradient(lower), dtype.type(np.inf)),
                    lax.nextafter(lax.stop_gradient(upper), dtype.type(-np.inf)))


@sampler("shape", "dtype")
def lognormal(key, sigma=_ONE, shape=None, dtype=None, *, out_sharding=None):
    """Exponentials of normal numbers with mean 0 and standard deviation `sigma`, real or complex."""
    dtype = float_dtype("lognormal", dtype, "fc")
    shape = full_shape(shape, sigma)
    return lax.exp(_normal(key, shape, dtype) * lax.convert_element_type(sigma, dtype))


# --- trials and signs --------------------------------------------------------------------------------


def _check_mode(mode: str | None) -> bool:
    if mode is None:
        return config.high_dynamic_range_gumbel.value
    if mode not in ("high", "low"):
        raise ValueError(f"got {mode=}, expected 'high' or 'low'")
    return mode == "high"


def _two_uniforms(key, shape: Sequence[int], dtype, *limits) -> tuple[Any, Any]:
    """Numbers whose second one refines the first, for precision beyond one mantissa."""
    both = _uniform(key, (2, *shape), dtype, *limits)
    return lax.index_in_dim(both, 0, 0, False), lax.index_in_dim(both, 1, 0, False)


def _bernoulli(key, p, shape: Sequence[int], high: bool = False):
    dtype = aval_of(p).dtype
    if not high:
        return jnp.less(_uniform(key, shape, dtype), p)
    first, second = _two_uniforms(key, shape, dtype)
    fine = lax.mul(second, np.array(2.0**-dtypes.finfo(dtype).nmant, dtype)[()])
    return fine < jnp.subtract(p, first)


@sampler("shape", "mode")
def bernoulli(key, p=0.5, shape=None, mode: str = "low", *, out_sharding=None):
    """Booleans that are True with probability `p`.

    Args:
      p: probabilities, floating-point.
      shape: the shape of the result; that of `p` if None.
      mode: 'high' draws twice as many bits, for probabilities near 0.
    Raises: TypeError for a `p` of another dtype, ValueError for other modes.
    """
    high = _check_mode(mode)
    dtype = aval_of(p).dtype
    if dtypes.kind(dtype) != "f":
        raise TypeError(f"bernoulli probability `p` must have a floating dtype, got {dtype}.")
    return _bernoulli(key, lax.convert_element_type(p, dtype), full_shape(shape, p), high)


def _rademacher(key, shape: Sequence[int], dtype):
    signs = _bernoulli(key, dtypes.default_dtype(float).type(0.5), shape).astype(dtype)
    return (2 * signs - 1).astype(dtype)  # also bool, in which all are True


@sampler("shape", "dtype")
def rademacher(key, shape: Sequence[int] = (), dtype=None, *, out_sharding=None):
    """1 and -1 with equal probability, in an integer dtype or any other of numbers."""
    return _rademacher(key, shape, int_dtype("rademacher", dtype))


# --- one formula from uniform numbers ------------------------------------------------------------------


def _exponential(key, shape: Sequence[int], dtype):
    return -lax.log1p(lax.neg(_uniform(key, shape, dtype)))


@sampler("shape", "dtype")
def exponential(key, shape: Sequence[int] = (), dtype=None, *, out_sharding=None):
    """Exponential numbers: density exp(-x) for x >= 0."""
    return _exponential(key, shape, float_dtype("exponential", dtype))


def _gumbel(key, shape: Sequence[int], dtype, high: bool = False):
    tiny = dtypes.finfo(dtype).tiny
    if not high:
        return -lax.log(-lax.log(_uniform(key, shape, dtype, tiny, 1.0)))
    first, second = _two_uniforms(key, shape, dtype, 0.0, 1.0)
    fine = lax.mul(np.array(2.0**-dtypes.finfo(dtype).nmant, dtype)[()], second)
    x = jnp.where(lax.ge(first, dtype.type(0.5)), first, first + fine + dtype.type(tiny))
    return -lax.log(-lax.log1p(-x))


@sampler("shape", "dtype", "mode")
def gumbel(key, shape: Sequence[int] = (), dtype=None, mode: str | None = None, *, out_sharding=None):
    """Standard Gumbel numbers: density exp(-(x + exp(-x))).

    Args:
      mode: 'low' (the default) or 'high', which draws twice as many bits for a better tail.
    """
    return _gumbel(key, shape, float_dtype("gumbel", dtype), _check_mode(mode))


@sampler("shape", "dtype")
def laplace(key, shape: Sequence[int] = (), dtype=None, *, out_sharding=None):
    """Laplace numbers: density exp(-|x|) / 2."""
    dtype = float_dtype("laplace", dtype)
    u = _uniform(key, shape, dtype, dtype.type(-1 + dtypes.finfo(dtype).epsneg), 1.0)
    return lax.sign(u) * lax.log1p(-lax.abs(u))


@sampler("shape", "dtype")
def logistic(key, shape: Sequence[int] = (), dtype=None, *, out_sharding=None):
    """Logistic numbers: the distribution function is 1 / (1 + exp(-x))."""
    dtype = float_dtype("logistic", dtype)
    u = _uniform(key, shape, dtype, dtypes.finfo(dtype).tiny, 1.0)
    return lax.log(u) - lax.log1p(lax.neg(u))


@sampler("shape", "dtype")
def cauchy(key, shape: Sequence[int] = (), dtype=None, *, out_sharding=None):
    """Cauchy numbers: density 1 / (pi (1 + x**2))."""
    dtype = float_dtype("cauchy", dtype)
    u = _uniform(key, shape, dtype, dtypes.finfo(dtype).eps, 1.0)
    return lax.tan(np.pi * lax.sub(u, dtype.type(0.5)))


@sampler("shape", "dtype")
def pareto(key, b, shape=None, dtype=None, *, out_sharding=None):
    """Pareto numbers: density b / x**(b + 1) for x >= 1."""
    dtype = float_dtype("pareto", dtype)
    shape = full_shape(shape, b)
    return lax.exp(jnp.divide(_exponential(key, shape, dtype), lax.convert_element_type(b, dtype)))


@sampler("shape", "dtype")
def rayleigh(key, scale, shape=None, dtype=None, *, out_sharding=None):
    """Rayleigh numbers: density x / scale**2 exp(-x**2 / (2 scale**2)) for x >= 0."""
    dtype = float_dtype("rayleigh", dtype)
    shape = full_shape(shape, scale)
    scale = jnp.broadcast_to(lax.convert_element_type(scale, dtype), shape)
    return scale * lax.sqrt(lax.log(_uniform(key, shape, dtype)) * -2)


@sampler("shape", "dtype")
def weibull_min(key, scale, concentration, shape: Sequence[int] = (), dtype=None):
    """Weibull numbers: the distribution function is 1 - exp(-(x / scale)**concentration)."""
    dtype = float_dtype("weibull_min", dtype)
    power = lax.convert_element_type(jnp.divide(1.0, concentration), dtype)
    return _exponential(key, shape, dtype) ** power * lax.convert_element_type(scale, dtype)


@sampler("shape", "dtype")
def triangular(key, left, mode, right, shape=None, dtype=None, *, out_sharding=None):
    """Numbers with a triangular density over [left, right] that is highest at `mode`."""
    dtype = float_dtype("triangular", dtype)
    shape = full_shape(shape, left, mode, right)
    left, mode, right = (jnp.broadcast_to(lax.convert_element_type(x, dtype), shape) for x in (left, mode, right))
    at_mode = (mode - left) / (right - left)
    u = _uniform(key, shape, dtype)
    rising = left + lax.sqrt(u * (right - left) * (mode - left))
    falling = right - lax.sqrt((1 - u) * (right - left) * (right - mode))
    return jnp.where(u < at_mode, rising, falling)


@sampler("shape", "dtype")
def wald(key, mean, shape=None, dtype=None, *, out_sharding=None):
    """Wald (inverse Gaussian) numbers with scale 1 and this mean."""
    dtype = float_dtype("wald", dtype)
    shape = full_shape(shape, mean)
    first, second = split_key(key)
    mean = jnp.broadcast_to(lax.convert_element_type(mean, dtype), shape)
    z, u = _normal(first, shape, dtype), _uniform(second, shape, dtype)
    z2 = lax.integer_pow(z, 2)
    mean2 = lax.integer_pow(mean, 2)
    root = lax.sqrt(4 * mean * z2 + mean2 * lax.integer_pow(z2, 2))
    x = mean + mean2 * z2 / 2 - mean / 2 * root
    return jnp.where(u <= mean / (mean + x), x, mean2 / x)


@sampler("shape", "dtype")
def geometric(key, p, shape=None, dtype=None, *, out_sharding=None):
    """How many trials of probability `p` it takes to the first success: integers from 1."""
    dtype = int_dtype("geometric", dtype)
    if dtypes.kind(dtype) not in ("i", "u"):
        raise ValueError(f"dtype argument to `geometric` must be an int dtype, got {dtype}")
    shape = full_shape(shape, p)
    float_type = dtypes.to_inexact_dtype(aval_of(p).dtype)
    u = _uniform(key, shape, float_type)
    u = jnp.where(lax.eq(u, float_type.type(0)), float_type.type(1), u)
    log_failure = jnp.broadcast_to(lax.log1p(-lax.convert_element_type(p, float_type)), shape)
    return lax.convert_element_type(lax.floor(lax.div(lax.log(u), log_failure)) + 1, dtype)


def _maxwell(key, shape: Sequence[int], dtype):
    points = _normal(key, (*shape, 3), dtype)
    return lax.sqrt(jnp.sum(lax.mul(points, points), axis=-1))


@sampler("shape", "dtype")
def maxwell(key, shape: Sequence[int] = (), dtype=None, *, out_sharding=None):
    """Maxwell numbers: the lengths of normal vectors in three dimensions."""
    return _maxwell(key, shape, float_dtype("maxwell", dtype))


@sampler("shape", "dtype")
def double_sided_maxwell(key, loc, scale, shape: Sequence[int] = (), dtype=None):
    """Maxwell numbers times a random sign and `scale`, plus `loc`.

    `shape` stands before the axes of the parameters; without it, those are there twice, as in JAX.
    """
    dtype = float_dtype("double_sided_maxwell", dtype)
    each = full_shape(None, loc, scale)
    shape = (*(shape or each), *each)
    first, second = split_key(key)
    sizes, signs = _maxwell(first, shape, dtype), _rademacher(second, shape, dtype)
    return signs * sizes * lax.convert_element_type(scale, dtype) + lax.convert_element_type(loc, dtype)
