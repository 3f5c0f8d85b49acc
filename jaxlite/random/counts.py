"""Counts: Poisson, binomial and multinomial numbers.

Small means are summed up draw by draw (Knuth's method for Poisson, geometric waiting times for binomial), larger ones
go through Hörmann's transformed rejection (1993).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxlite import lax
from jaxlite import numpy as jnp
from jaxlite.core import dtypes
from jaxlite.numpy.api import promote_dtypes_inexact
from jaxlite.random.keys import sampler
from jaxlite.random.prng import random_clone_p, split_keys
from jaxlite.random.uniforms import _uniform, check_method, float_dtype, full_shape, int_dtype, split_key
from lowering.xla import VERSION

_i32 = np.dtype(np.int32)


def _two_uniforms(key, shape: Sequence[int], dtype) -> tuple[Any, Any, Any]:
    """The next key, and uniform numbers by two more.

    The loop keeps the hash, which XLA vectorises, in a kernel of its own, apart from logarithms and divisions.
    """
    keys = split_keys(key, (3,))
    both = lax.map(lambda key: _uniform(key, shape, dtype), lax.slice_in_dim(keys, 1, 3))
    first, second, third = (lax.index_in_dim(x, index, 0, False) for x, index in ((keys, 0), (both, 0), (both, 1)))
    return first, second, third


# --- Poisson -----------------------------------------------------------------------------------------


def _poisson_by_sums(key, rate, dtype, limit):
    """Knuth: count uniform numbers until their product is below exp(-rate)."""
    shape, float_type = rate.shape, rate.dtype

    def going(log_product):
        return log_product > -rate

    def test(state):
        rounds, _, _, log_product = state
        return jnp.logical_and(jnp.any(going(log_product)), rounds < limit)

    def step(state):
        rounds, count, key, log_product = state
        key, drawn = split_key(key)
        count = jnp.where(going(log_product), count + dtype.type(1), count)
        u = _uniform(drawn, shape, float_type)
        return rounds + _i32.type(1), count, key, log_product + lax.log(u)

    start = (_i32.type(0), lax.full(shape, dtype.type(0)), key, lax.full(shape, float_type.type(0)))
    return lax.while_loop(test, step, start)[1] - dtype.type(1)


def _poisson_by_rejection(key, rate, dtype, limit):
    """Hörmann's PTRS, for rates of 10 and more."""
    shape, float_type = rate.shape, rate.dtype
    log_rate = lax.log(rate)
    b = 0.931 + 2.53 * lax.sqrt(rate)
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    v_r = 0.9277 - 3.6224 / (b - 2.0)

    def test(state):
        rounds, _, accepted, _ = state
        return jnp.logical_and(jnp.any(jnp.logical_not(accepted)), rounds < limit)

    def step(state):
        rounds, out, accepted, key = state
        key, u, v = _two_uniforms(key, shape, float_type)
        u = u - 0.5
        edge = 0.5 - lax.abs(u)
        k = lax.floor((2.0 * a / edge + b) * u + rate + 0.43)
        log_v = lax.log(v * inverse_alpha / (a / (edge * edge) + b))
        bound = -rate + k * log_rate - lax.lgamma(k + 1.0)
        quick = jnp.logical_and(edge >= 0.07, v <= v_r)
        reject = jnp.logical_or(k < 0.0, jnp.logical_and(edge < 0.013, v > edge))
        accept = jnp.logical_or(quick, jnp.logical_and(jnp.logical_not(reject), log_v <= bound))
        return rounds + _i32.type(1), jnp.where(accept, k, out), jnp.logical_or(accepted, accept), key

    start = (_i32.type(0), lax.full(shape, float_type.type(-1)), lax.full(shape, np.bool_(False)), key)
    return lax.convert_element_type(lax.while_loop(test, step, start)[1], dtype)


@sampler("shape", "dtype", "method")
def poisson(key, lam, shape=None, dtype=None, *, method: str = "exact", out_sharding=None):
    """Poisson numbers with mean `lam`.

    Args:
      key: a PRNG key of threefry.
      lam: the mean.
      shape: the shape of the result; that of `lam` if None.
      dtype: an integer dtype; the default int if None.
      method: 'exact', or 'approximate' where a bias would do; the numbers are exact here with either.
    Raises: NotImplementedError for keys of other generators.
    """
    check_method("poisson", method)
    if key.dtype.impl.name != "threefry2x32":
        raise NotImplementedError(f"`poisson` is only implemented for the threefry2x32 RNG, not {key.dtype.impl.name}")
    dtype = int_dtype("poisson", dtype)
    if dtypes.kind(dtype) not in ("i", "u"):
        raise ValueError(f"dtype argument to `poisson` must be an int dtype, got {dtype}")
    shape = full_shape(shape, lam)
    lam = lax.convert_element_type(jnp.broadcast_to(lam, shape), np.float32)
    by_sums = jnp.logical_or(jnp.isnan(lam), lam < 10)
    limit = _i32.type(min(dtypes.iinfo(dtype).max, dtypes.iinfo(_i32).max))
    small = _poisson_by_sums(key, jnp.where(by_sums, lam, 0.0), dtype, limit)
    large = _poisson_by_rejection(random_clone_p.bind(key), jnp.where(by_sums, 1e5, lam), dtype, limit)
    return jnp.where(lam == 0, dtype.type(0), jnp.where(by_sums, small, large))


# --- binomial ----------------------------------------------------------------------------------------

# log(k!) less Stirling's formula, for k = 0 ... 9.
_STIRLING_ERRORS = (
    0.0810614667953272, 0.0413406959554092, 0.0276779256849983, 0.02079067210376509, 0.0166446911898211,
    0.0138761288230707, 0.0118967099458917, 0.0104112652619720, 0.00925546218271273, 0.00833056343336287,
)  # fmt: skip


def _stirling_error(k, dtype):
    small = k <= 9
    k = lax.clamp(dtype.type(0), k, dtype.type(9))
    square = (k + 1) * (k + 1)
    series = (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / square) / square) / (k + 1)
    exact = jnp.asarray(np.array(_STIRLING_ERRORS, dtype))[lax.floor(k).astype(_i32)]
    return jnp.where(small, exact, series)


def _binomial_by_sums(key, count, log_failure):
    """Add up geometric waiting times until they exceed the number of trials."""
    shape, dtype = count.shape, count.dtype

    def test(state):
        return jnp.any(state[1] <= count)

    def step(state):
        successes, waited, key = state
        drawn, key = split_key(key)
        successes = jnp.where(waited <= count, successes + 1, successes)
        wait = lax.ceil(lax.log(_uniform(drawn, shape, dtype)) / log_failure)
        return successes, waited + wait, key

    zero = lax.full(shape, dtype.type(0))
    return lax.while_loop(test, step, (zero, zero, key))[0] - 1


def _binomial_by_rejection(key, n, p):
    """Hörmann's BTRS, for n p of 10 and more."""
    shape, dtype = n.shape, n.dtype
    deviation = lax.sqrt(n * p * (1 - p))
    b = 1.15 + 2.53 * deviation
    a = -0.0873 + 0.0248 * b + 0.01 * p
    c = n * p + 0.5
    v_r = 0.92 - 4.2 / b
    odds = p / (1 - p)
    alpha = (2.83 + 5.1 / b) * deviation
    mode = lax.floor((n + 1) * p)

    def test(state):
        return jnp.any(jnp.logical_not(state[1]))

    def step(state):
        out, accepted, key = state
        key, u, v = _two_uniforms(key, shape, dtype)
        u = u - 0.5
        edge = 0.5 - lax.abs(u)
        quick = jnp.logical_and(edge >= 0.07, v <= v_r)
        k = lax.floor((2 * a / edge + b) * u + c)
        reject = jnp.logical_or(k < 0, k > n)
        log_v = lax.log(v * alpha / (a / (edge * edge) + b))
        bound = ((mode + 0.5) * lax.log((mode + 1) / (odds * (n - mode + 1)))
                 + (n + 1) * lax.log((n - mode + 1) / (n - k + 1))
                 + (k + 0.5) * lax.log(odds * (n - k + 1) / (k + 1))
                 + _stirling_error(mode, dtype) + _stirling_error(n - mode, dtype)
                 - _stirling_error(k, dtype) - _stirling_error(n - k, dtype))
        accept = jnp.logical_or(quick, jnp.logical_and(jnp.logical_not(reject), log_v <= bound))
        return jnp.where(accept, k, out), jnp.logical_or(accepted, accept), key

    start = (lax.full(shape, dtype.type(-1)), lax.full(shape, np.bool_(False)), key)
    return lax.while_loop(test, step, start)[0]


def _binomial(key, n, p):
    """Arrays of one shape and floating dtype."""
    rare = p < 0.5
    q = jnp.where(rare, p, 1 - p)  # the rarer outcome is counted
    bad_n = jnp.logical_or(jnp.isnan(n), n < 0)
    endless = jnp.isinf(n)
    q_nan, q_negative = jnp.isnan(q), q < 0
    q = jnp.where(jnp.logical_or(q_nan, q_negative), 0.01, q)
    by_sums = jnp.logical_or(bad_n, n * q <= 10)
    count = lax.floor(n)
    small = _binomial_by_sums(key, jnp.where(by_sums, count, 0.0), lax.log1p(-q))
    large = _binomial_by_rejection(random_clone_p.bind(key), jnp.where(by_sums, 1e4, count), jnp.where(by_sums, 0.5, q))
    invalid = jnp.logical_or(jnp.logical_or(q_negative, q_nan), bad_n)
    result = jnp.where(invalid, np.nan, jnp.where(by_sums, small, large))
    result = jnp.where(jnp.logical_and(endless, jnp.logical_not(invalid)), np.inf, result)
    as_is = jnp.logical_or(jnp.logical_or(rare, bad_n), jnp.logical_or(q_nan, endless))
    return jnp.where(as_is, result, count - result)


@sampler("shape", "dtype")
def binomial(key, n, p, shape=None, dtype=None):
    """Binomial numbers: the successes in `n` trials of probability `p`, in a floating dtype.

    Args:
      key: a PRNG key.
      n, p: arrays or scalars; NaN where they make no sense.
      shape: the shape of the result; that of the parameters if None.
      dtype: a floating-point dtype; the default float if None.
    """
    dtype = float_dtype("binomial", dtype)
    shape = full_shape(shape, n, p)
    (p,) = promote_dtypes_inexact(p)  # whose precision decides what is drawn
    counts = _binomial(key, *(jnp.broadcast_to(lax.convert_element_type(x, p.dtype), shape) for x in (n, p)))
    return lax.convert_element_type(counts, dtype)


@sampler("shape", "dtype", "unroll")
def multinomial(key, n, p, *, shape=None, dtype=None, unroll: int | bool = 1):
    """Multinomial counts: how `n` draws fall into categories with probabilities `p`, along the last axis.

    Args:
      n: the number of draws, of the shape of `p` without its last axis or one that broadcasts with it.
      p: probabilities; they sum to 1 along the last axis.
      shape: the shape of the result, on jaxlib 0.12 and later without its last axis; that of `n` and `p` if None.
      dtype: of the result; the default float if None.
      unroll: how many categories are done in one round of the loop.
    """
    dtype = dtypes.requested_dtype(dtype, "multinomial", float)
    n, p = promote_dtypes_inexact(n, p)  # whose precision decides what is drawn
    batch = lax.broadcast_shapes(n.shape, p.shape[:-1])
    size = p.shape[-1]
    if shape is not None and VERSION >= (0, 12):  # as JAX of the same jaxlib
        shape = (*shape, size)
    if shape is not None and full_shape(shape[:-1], np.empty(batch, bool)) + (size,) != shape:
        raise ValueError(f"Incompatible shapes for broadcasting: shape={shape}, categories in p: {size}")
    batch = batch if shape is None else shape[:-1]
    n, p = jnp.broadcast_to(n, batch), jnp.broadcast_to(p, (*batch, size))
    remaining = lax.cumsum(p, axis=len(batch), reverse=True)
    ratios = lax.div(p, jnp.where(remaining == 0, 1, remaining))
    keys = jnp.stack(split_key(key, size)) if size else None

    def step(left, x) -> tuple[Any, Any]:
        ratio, key = x
        count = _binomial(key, left, jnp.clip(ratio, 0, 1))
        return left - count, count

    if keys is None:
        return lax.full((*batch, 0), dtype.type(0))
    _, counts = lax.scan(step, n, (jnp.moveaxis(ratios, -1, 0), keys), unroll=unroll)
    return lax.convert_element_type(jnp.moveaxis(counts, 0, -1), dtype)
