"""Gamma variates and what is made of them, after Marsaglia and Tsang (2000)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxlite import lax
from jaxlite import numpy as jnp
from jaxlite.core.aval import ShapedArray, is_cut, shaped_array
from jaxlite.core.primitive import Primitive
from jaxlite.core.symbolic import is_symbolic
from jaxlite.core.values import aval_of
from jaxlite.random.keys import sampler
from jaxlite.random.prng import split_keys
from jaxlite.random.uniforms import (
    _exponential,
    _normal,
    _rademacher,
    _uniform,
    check_method,
    float_dtype,
    full_shape,
    split_key,
)  # fmt: skip
from jaxlite.traces.decompose import decomposes
from jaxlite.traces.jvp import Zero

# --- the primitive -----------------------------------------------------------------------------------

random_gamma_p = Primitive("random_gamma")
_BLOCK = 128  # samples that a CPU draws together


@random_gamma_p.def_abstract_eval
def _random_gamma_aval(keys, alpha, *, log_space: bool) -> ShapedArray:
    if alpha.shape[:len(keys.shape)] != keys.shape:
        raise TypeError(f"random_gamma: alpha must have the shape of the keys in front, got {keys} and {alpha}")
    return shaped_array(alpha.shape, alpha.dtype, False)


def _split_each(keys, count: int) -> list[Any]:
    """`split_key` of each of an array of keys."""
    axis = len(aval_of(keys).shape)
    split = split_keys(keys, (count,))
    return [lax.index_in_dim(split, index, axis, False) for index in range(count)]


@decomposes(random_gamma_p)
def _random_gamma(keys, alpha, *, log_space: bool):
    """One key for each element. Those of threefry are drawn together, which gives what each gives alone; other keys do not."""
    shape = alpha.shape
    rest = math.prod(shape[len(keys.shape):])
    keys = lax.reshape(split_keys(keys, (rest,)), shape)
    size = math.prod(shape)
    if aval_of(keys).dtype.impl.name != "threefry2x32":
        pairs = lax.reshape(keys, (size,)), lax.reshape(alpha, (size,))
        return lax.reshape(lax.map(lambda pair: _by_rejection(pair[0], pair[1], log_space), pairs), shape)
    if is_symbolic(size) or size <= _BLOCK or is_cut(aval_of(alpha)) or is_cut(aval_of(keys)):
        return _by_rejection(keys, alpha, log_space)
    return lax.platform_dependent(keys, alpha, default=lambda keys, alpha: _by_rejection(keys, alpha, log_space),
                                  one_cpu=lambda keys, alpha: _in_blocks(keys, alpha, log_space))


def _in_blocks(keys, alpha, log_space: bool):
    """As few are rejected many times, a block is done after fewer rounds than all, and near in memory meanwhile.

    In programs for one device: blocks that are drawn in turn are no parts for several. The last block is filled up: `lax.map`
    with a batch size would compile the loop once more for the rest.
    """
    shape, size = alpha.shape, math.prod(alpha.shape)
    rest = -size % _BLOCK
    flat = [lax.reshape(each, (size,)) for each in (keys, alpha)]
    blocks = [lax.reshape(lax.concatenate([each, each[:rest]], 0), ((size + rest) // _BLOCK, _BLOCK)) for each in flat]
    samples = lax.map(lambda pair: _by_rejection(pair[0], pair[1], log_space), tuple(blocks))
    return lax.reshape(lax.reshape(samples, (size + rest,))[:size], shape)


def _by_rejection(keys, alpha, log_space: bool):
    """A number for each key: each runs its own rejection loop, until all are done."""
    shape, dtype = alpha.shape, alpha.dtype

    def constant(value: float):
        return lax.full(shape, np.array(value, dtype)[()])

    one = constant(1)
    large = alpha >= one  # smaller ones are drawn for alpha + 1, then scaled
    raised = lax.select(large, alpha, alpha + one)
    d = raised - 1 / 3
    c = lax.div(constant(1 / 3), lax.sqrt(d))
    keys, boost_keys = _split_each(keys, 2)

    def rejected(x2, v, u):
        quick = u >= one - 0.0331 * lax.mul(x2, x2)
        bound = x2 * constant(0.5) + d * (one - v + lax.log(v))
        return quick & (lax.log(u) >= bound)

    def not_positive(v):
        return v <= constant(0)

    def draw_normal(state):
        keys, x, v = state
        active = not_positive(v)
        next_keys, drawn = _split_each(keys, 2)
        x_new = _normal(drawn, (), dtype)
        v_new = one + x_new * c
        return tuple(lax.select(active, *pair) for pair in ((next_keys, keys), (x_new, x), (v_new, v)))

    def step(state):
        keys, x2, v, u = state
        active = rejected(x2, v, u)
        next_keys, normal_keys, uniform_keys = _split_each(keys, 3)
        _, x, cube_root = lax.while_loop(lambda state: jnp.any(not_positive(state[2])), draw_normal,
                                         (normal_keys, constant(0), constant(-1)))
        cube = lax.mul(cube_root, cube_root) * cube_root
        u_new = _uniform(uniform_keys, (), dtype)
        return tuple(lax.select(active, *pair) for pair in (
            (next_keys, keys), (lax.mul(x, x), x2), (cube, v), (u_new, u)))

    _, _, v, _ = lax.while_loop(lambda state: jnp.any(rejected(*state[1:])), step,
                                (keys, constant(0), one, constant(2)))
    if log_space:
        log_samples = lax.neg(_exponential(boost_keys, (), dtype))
        none = large | (log_samples == 0)
        boost = lax.select(none, constant(0), log_samples * lax.div(one, alpha))
        return lax.log(d) + lax.log(v) + boost
    samples = one - _uniform(boost_keys, (), dtype)
    boost = lax.select(large, one, lax.pow(samples, lax.div(one, alpha)))
    return d * v * boost


@random_gamma_p.def_jvp
def _random_gamma_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, log_space: bool) -> tuple[Any, Any]:
    """The derivative of the sample in alpha at a fixed quantile."""
    keys, alpha = primals
    out = random_gamma_p.bind(keys, alpha, log_space=log_space)
    if type(tangents[1]) is Zero:
        return out, Zero(aval_of(out))
    if not log_space:
        return out, lax.random_gamma_grad(alpha, out) * tangents[1]
    samples = lax.exp(out)
    return out, lax.div(lax.random_gamma_grad(alpha, samples), samples) * tangents[1]


random_gamma_p.no_transpose("samples are not linear in alpha")


@random_gamma_p.def_batching
def _random_gamma_batch(axis, args: Sequence[Any], dims: Sequence[int | None], *, log_space: bool):
    keys, alpha = args
    key_dim, alpha_dim = dims
    if key_dim is None:
        shape = aval_of(keys).shape
        keys = lax.broadcast_in_dim(keys, (axis.size, *shape), range(1, len(shape) + 1))
    else:
        keys = jnp.moveaxis(keys, key_dim, 0)
    if alpha_dim is None:
        shape = aval_of(alpha).shape
        alpha = lax.broadcast_in_dim(alpha, (axis.size, *shape), range(1, len(shape) + 1))
    else:
        alpha = jnp.moveaxis(alpha, alpha_dim, 0)
    return random_gamma_p.bind(keys, alpha, log_space=log_space), 0


# --- samplers ----------------------------------------------------------------------------------------


def _gamma(key, alpha, shape: Sequence[int], dtype, log_space: bool = False):
    alpha = jnp.broadcast_to(lax.convert_element_type(alpha, dtype), shape)
    return random_gamma_p.bind(key, alpha, log_space=log_space)


@sampler("shape", "dtype", "method")
def gamma(key, a, shape=None, dtype=None, *, method: str = "exact", out_sharding=None):
    """Gamma numbers: density x**(a - 1) exp(-x) / Gamma(a) for x >= 0.

    Args:
      key: a PRNG key.
      a: the shape parameter, positive. The result is differentiable in it.
      shape: the shape of the result; that of `a` if None.
      dtype: a floating-point dtype; the default float if None.
      method: 'exact', or 'approximate' where a bias would do; the numbers are exact here with either.
    """
    check_method("gamma", method)
    dtype = float_dtype("gamma", dtype)
    return _gamma(key, a, full_shape(shape, a), dtype)


@sampler("shape", "dtype", "method")
def loggamma(key, a, shape=None, dtype=None, *, method: str = "exact", out_sharding=None):
    """Logarithms of gamma numbers, exact where these would be too small to represent."""
    check_method("loggamma", method)
    dtype = float_dtype("loggamma", dtype)
    return _gamma(key, a, full_shape(shape, a), dtype, True)


@sampler("shape", "dtype", "method")
def beta(key, a, b, shape=None, dtype=None, *, method: str = "exact", out_sharding=None):
    """Beta numbers: density proportional to x**(a - 1) (1 - x)**(b - 1) on [0, 1]."""
    check_method("beta", method)
    dtype = float_dtype("beta", dtype)
    shape = full_shape(shape, a, b)
    logs = [_gamma(each, alpha, shape, dtype, True) for each, alpha in zip(split_key(key), (a, b), strict=True)]
    largest = lax.max(*logs)
    first, second = (lax.exp(each - largest) for each in logs)
    return lax.div(first, lax.add(first, second))


@sampler("shape", "dtype")
def dirichlet(key, alpha, shape=None, dtype=None, *, out_sharding=None):
    """Dirichlet vectors: non-negative numbers that sum to 1 along a last axis, as long as that of `alpha`.

    Args:
      alpha: positive concentrations, of one dimension at least.
      shape: the shape of the result without its last axis; that of `alpha` without its last if None.
    """
    dtype = float_dtype("dirichlet", dtype)
    rank = len(aval_of(alpha).shape)
    if rank < 1:
        raise ValueError(f"dirichlet requires alpha.ndim >= 1, got alpha.ndim == {rank}")
    *batch, size = aval_of(alpha).shape
    shape = full_shape(shape, np.empty(batch, bool))
    logs = _gamma(key, alpha, (*shape, size), dtype, True)
    largest = jnp.max(logs, axis=-1, keepdims=True, initial=-np.inf)
    unscaled = lax.exp(jnp.subtract(logs, lax.stop_gradient(largest)))
    return jnp.divide(unscaled, jnp.sum(unscaled, axis=-1, keepdims=True))


def _chisquare(key, df, shape: Sequence[int], dtype):
    two = dtype.type(2)
    return lax.exp(_gamma(key, lax.div(df, two), shape, dtype, True)) * two


@sampler("shape", "dtype", "method")
def chisquare(key, df, shape=None, dtype=None, *, method: str = "exact", out_sharding=None):
    """Chi-square numbers with `df` degrees of freedom."""
    check_method("chisquare", method)
    dtype = float_dtype("chisquare", dtype)
    return _chisquare(key, lax.convert_element_type(df, dtype), full_shape(shape, df), dtype)


@sampler("shape", "dtype")
def f(key, dfnum, dfden, shape=None, dtype=None, *, out_sharding=None):
    """F numbers: the ratio of two chi-square numbers, each over its degrees of freedom."""
    dtype = float_dtype("f", dtype)
    shape = full_shape(shape, dfnum, dfden)
    dfnum, dfden = (lax.convert_element_type(x, dtype) for x in (dfnum, dfden))
    second, first = split_key(key)
    above, below = (jnp.divide(_chisquare(each, df, shape, dtype), df)
                    for each, df in ((first, dfnum), (second, dfden)))
    return lax.div(above, below)


@sampler("shape", "dtype")
def t(key, df, shape=None, dtype=None, *, out_sharding=None):
    """Student's t numbers with `df` degrees of freedom."""
    dtype = float_dtype("t", dtype)
    shape = full_shape(shape, df)
    first, second = split_key(key)
    half = lax.div(lax.convert_element_type(df, dtype), dtype.type(2))
    normals = _normal(first, shape, dtype)
    return normals * lax.sqrt(jnp.divide(half, _gamma(second, half, shape, dtype)))


def _generalized_normal(key, p, shape: Sequence[int], dtype):
    first, second = split_key(key)
    inverse = jnp.divide(1, p)
    sizes = _gamma(first, inverse, shape, dtype)
    signs = _rademacher(second, shape, dtype)
    return signs * sizes ** lax.convert_element_type(inverse, dtype)


@sampler("shape", "dtype")
def generalized_normal(key, p, shape: Sequence[int] = (), dtype=None, *, out_sharding=None):
    """Numbers with density proportional to exp(-|x|**p)."""
    return _generalized_normal(key, p, shape, float_dtype("generalized_normal", dtype))


@sampler("d", "shape", "dtype", p=2)
def ball(key, d: int, p=2, shape: Sequence[int] = (), dtype=None, *, out_sharding=None):
    """Uniform points of the unit ball of the p-norm in `d` dimensions, along a new last axis."""
    dtype = float_dtype("ball", dtype)
    first, second = split_key(key)
    points = _generalized_normal(first, p, (*shape, d), dtype)
    extra = _exponential(second, shape, dtype)
    norm = jnp.sum(lax.abs(points) ** p, axis=-1) + extra
    root = norm ** lax.convert_element_type(jnp.divide(1, p), dtype)
    return jnp.divide(points, jnp.expand_dims(root, -1))

