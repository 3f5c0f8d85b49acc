"""Choices among given things: permutations, samples with and without replacement, categories; random matrices."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence

import numpy as np

from jaxlite import lax
from jaxlite import numpy as jnp
from jaxlite.core import dtypes
from jaxlite.core.filtering import boundary
from jaxlite.core.symbolic import is_symbolic, largest
from jaxlite.core.values import aval_of
from jaxlite.devices import placement
from jaxlite.numpy.api import check_arrays, check_given
from jaxlite.random.keys import check_key, sampler
from jaxlite.random.prng import draw_bits
from jaxlite.random.uniforms import (
    _check_mode,
    _gumbel,
    _normal,
    _randint,
    _uniform,
    float_dtype,
    full_shape,
    shape_over,
    split_key,
)  # fmt: skip

# --- permutations ------------------------------------------------------------------------------------


# The greatest sizes for which 0, 1, 2 sorts are enough, 3 log(size) / log(2**32 - 1); a size that is not an int32 needs more.
_MANY = (1, 1625, 2642245)


def _shuffle(key, x, axis: int):
    """Sort by random numbers, as often as it takes to make equal ones irrelevant."""
    shape = x.shape
    size = math.prod(shape)

    def once(_, carry):
        key, drawn = split_key(carry[0])
        return key, lax.sort((draw_bits(drawn, 32, shape), carry[1]), dimension=axis, num_keys=1)[1]

    if is_symbolic(size):
        return lax.fori_loop(0, jnp.sum(jnp.asarray(size) > np.array(_MANY)), once, (key, x))[1]
    for number in range(sum(size > many for many in _MANY)):
        key, x = once(number, (key, x))
    return x


def _permuted_range(key, size: int):
    return _shuffle(key, lax.iota(dtypes.default_dtype(int), size), 0)


def _count(x) -> int | None:
    """The number n if x means range(n): a Python or NumPy integer, a concrete scalar array of one, a symbolic dimension."""
    if is_symbolic(x):
        return x
    if isinstance(x, (bool, np.bool_)):
        return None
    try:
        return operator.index(x)
    except TypeError:
        return None


@sampler("size")
def _permutation_of_range(key, size: int):
    return _permuted_range(key, size)


@sampler("axis", "independent")
def _permutation_of_array(key, x, axis: int, independent: bool):
    shape = aval_of(x).shape
    if independent or len(shape) == 1:
        return _shuffle(key, jnp.asarray(x), axis)
    return jnp.take(x, _permuted_range(key, shape[axis]), axis, unique_indices=True)


@boundary
def permutation(key, x, axis: int = 0, independent: bool = False, *, out_sharding=None):
    """The elements of an array, or the numbers 0 ... x - 1, in random order.

    Args:
      key: a PRNG key.
      x: an array, or an integer.
      axis: the axis along which slices are reordered.
      independent: reorder each vector along the axis for itself, not whole slices.
      out_sharding: the sharding of the result over explicit mesh axes.
    Raises: TypeError for a scalar that is not an integer.

    >>> from jaxlite import random
    >>> random.permutation(random.key(0), 5).shape
    (5,)
    """
    check_arrays("permutation", x)
    if not getattr(x, "shape", ()):
        size = _count(x)
        if size is None:
            raise TypeError("x must be an integer or at least 1-dimensional")
        _axis(axis, 1)
        return placement.laid_out(_renamed("permutation", _permutation_of_range, key, largest(size, 0)), out_sharding)
    axis = _axis(axis, len(x.shape))
    return placement.laid_out(_renamed("permutation", _permutation_of_array, key, x, axis, bool(independent)), out_sharding)


def _axis(axis: int, rank: int) -> int:
    axis = operator.index(axis)
    if not -rank <= axis < rank:
        raise ValueError(f"axis {axis} is out of bounds for array of dimension {rank}")
    return axis % rank


# --- samples -----------------------------------------------------------------------------------------


@sampler("size", "shape", "replace", "mode", "take_axis")
def _choice(key, a, p, size: int, shape: Sequence[int], replace: bool, mode: str | None, take_axis: int):
    draws = math.prod(shape)
    if p is None and replace or not draws:
        index = _randint(key, shape, 0, size, dtypes.default_dtype(int))
    elif p is None:
        index = jnp.reshape(lax.slice_in_dim(_permuted_range(key, size), 0, draws), shape)
    else:
        p = lax.convert_element_type(p, dtypes.to_inexact_dtype(aval_of(p).dtype))
        dtype = p.dtype
        if replace:
            sums = jnp.cumsum(p)
            at = sums[-1] * lax.sub(dtype.type(1), _uniform(key, shape, dtype))
            index = lax.convert_element_type(jnp.searchsorted(sums, at), dtypes.default_dtype(int))
        else:
            noisy = _gumbel(key, (size,), dtype, _check_mode(mode)) + lax.log(p)
            index = jnp.reshape(lax.top_k(noisy, draws, axis=0)[1], shape)
    return index if a is None else jnp.take(a, index, take_axis)


@boundary
def choice(key, a, shape: Sequence[int] = (), replace: bool = True, p=None, axis: int = 0, mode: str | None = None):
    """Random elements of an array, or random integers below a number.

    Args:
      key: a PRNG key.
      a: an array, or an integer for the numbers 0 ... a - 1.
      shape: the shape of the sample.
      replace: whether an element may be drawn more than once.
      p: the probabilities of the elements along the axis; all equal if None. They should sum to 1.
      axis: the axis along which slices are drawn.
      mode: for `p` without replacement, as for `gumbel`.
    Returns: an array of shape a.shape[:axis] + shape + a.shape[axis + 1:].
    Raises: ValueError if there are not enough elements, or `p` does not fit them.
    """
    check_given("choice", a, p)
    if not isinstance(shape, (Sequence, np.ndarray)):
        raise TypeError(f"shape argument of jax.random.choice must be a sequence, got {shape}")
    shape = lax.broadcast_shapes(tuple(shape))
    draws = math.prod(shape)
    values = None
    rank = len(getattr(a, "shape", ()))
    if not rank:
        size = _count(a)
        size = int(a) if size is None else size
        if size <= 0 and draws:
            raise ValueError("a must be greater than 0 unless no samples are taken")
        axis = 0
    else:
        axis = _axis(axis, rank)
        values, size = a, a.shape[axis]
        if size == 0 and draws:
            raise ValueError("a must be non-empty unless no samples are taken")
    if not replace and draws > size:
        raise ValueError(f"Cannot take a larger sample (size {draws}) than population (size {size}) when "
                         "'replace=False'")
    if p is not None and aval_of(p).shape != (size,):
        raise ValueError("p must be None or a 1D vector with the same size as a.shape[axis]. "
                         f"p has shape {aval_of(p).shape} and a.shape[axis] is {size}.")
    return _renamed("choice", _choice, key, values, p, largest(size, 0), shape, bool(replace), mode, axis)


def _renamed(name: str, function, key, *args):
    """Call a helper that checks its key, under the name that the user knows."""
    check_key(name, key)
    return function(key, *args)


@sampler("axis", "shape", "replace", "mode")
def categorical(key, logits, axis: int = -1, shape=None, replace: bool = True, mode: str | None = None, *,
                out_sharding=None):
    """Random categories, with probabilities softmax(logits).

    Args:
      key: a PRNG key.
      logits: unnormalised log probabilities along `axis`; the other axes are a batch.
      axis: the axis of the categories.
      shape: the shape of the result, which must end with the shape of the batch (or one it broadcasts to); that of
        the batch if None. Its leading axes are further samples.
      replace: whether further samples may be of the same category.
      mode: as for `gumbel`.
    Returns: integers below the number of categories.
    Raises: ValueError for other shapes, or more samples without replacement than categories.
    """
    check_arrays("categorical", logits)
    logits = jnp.asarray(logits)
    logits_shape = logits.shape
    rank = len(logits_shape)
    if not hasattr(axis, "__index__"):
        raise TypeError(f"categorical: axis must be an integer, got {axis!r}")
    if not -rank <= axis < rank:
        raise IndexError(f"categorical: axis {axis} is out of bounds for logits of shape {logits_shape}")
    axis = axis - rank if axis >= 0 else axis
    batch = logits_shape[:axis] + (logits_shape[axis + 1:] if axis != -1 else ())
    shape = shape_over(shape, [batch])
    prefix = shape[:len(shape) - len(batch)]
    high = _check_mode(mode)
    dtype = float_dtype("categorical", logits.dtype)
    if replace:
        inner = list(shape[len(prefix):])
        inner.insert(axis % rank, logits_shape[axis])
        noise = _gumbel(key, (*prefix, *inner), dtype, high)
        return jnp.argmax(noise + jnp.expand_dims(logits, tuple(range(len(prefix)))), axis=axis)
    draws = math.prod(prefix)
    if draws > logits_shape[axis]:
        raise ValueError(f"Number of samples without replacement ({draws}) cannot exceed number of categories "
                         f"({logits_shape[axis]}).")
    noisy = logits + _gumbel(key, logits_shape, dtype, high)
    index = lax.top_k(noisy, draws, axis=axis % rank)[1]
    return jnp.reshape(jnp.moveaxis(index, axis, 0), shape)


# --- vectors and matrices ----------------------------------------------------------------------------


@sampler("shape", "dtype", "method")
def multivariate_normal(key, mean, cov, shape=None, dtype=None, method: str = "cholesky", *, out_sharding=None):
    """Normal vectors with this mean and covariance, along the last axis.

    Args:
      mean: [..., n].
      cov: [..., n, n], positive definite ('cholesky') or semi-definite ('eigh', 'svd').
      shape: the shape of the result without its last axis; that of the batches of `mean` and `cov` if None.
      dtype: the floating-point dtype that is drawn in, that of the parameters if None; the result's is wide enough for both.
      method: how the covariance is factored: 'cholesky', 'eigh' or 'svd'.
    Raises: ValueError for other methods and for shapes that do not fit.
    """
    of_parameters = dtypes.to_inexact_dtype(jnp.result_type(mean, cov))
    dtype = float_dtype("multivariate_normal", of_parameters if dtype is None else dtype)
    mean, cov = (lax.convert_element_type(x, of_parameters) for x in (mean, cov))
    if method not in ("svd", "eigh", "cholesky"):
        raise ValueError("method must be one of {'svd', 'eigh', 'cholesky'}")
    if mean.ndim < 1:
        raise ValueError(f"multivariate_normal requires mean.ndim >= 1, got mean.ndim == {mean.ndim}")
    if cov.ndim < 2:
        raise ValueError(f"multivariate_normal requires cov.ndim >= 2, got cov.ndim == {cov.ndim}")
    size = mean.shape[-1]
    if cov.shape[-2:] != (size, size):
        raise ValueError(f"multivariate_normal requires cov.shape == (..., n, n) for n={size}, but got "
                         f"cov.shape == {cov.shape}.")
    shape = full_shape(shape, np.empty(mean.shape[:-1], bool), np.empty(cov.shape[:-2], bool))
    if method == "cholesky":
        factor = jnp.linalg.cholesky(cov)
    elif method == "eigh":
        values, vectors = jnp.linalg.eigh(cov)
        factor = vectors * lax.sqrt(jnp.expand_dims(values, -2))
    else:
        vectors, values, _ = jnp.linalg.svd(cov)
        factor = vectors * lax.sqrt(jnp.expand_dims(values, -2))
    drawn = jnp.einsum("...ij,...j->...i", factor, _normal(key, (*shape, size), dtype))
    return jnp.broadcast_to(mean, drawn.shape) + drawn


@sampler("n", "shape", "dtype", "m")
def orthogonal(key, n: int, shape: Sequence[int] = (), dtype=None, m: int | None = None, *, out_sharding=None):
    """Orthogonal (for complex dtypes unitary) matrices [n, m], uniformly distributed.

    Args:
      n, m: rows and columns; `m` is `n` if None.
      shape: the shape in front of the matrices.
      dtype: a floating-point or complex dtype; the default float if None.
    """
    dtype = float_dtype("orthogonal", dtype, "fc")
    n = operator.index(n)
    m = n if m is None else operator.index(m)
    if min(n, m) < 0:
        raise ValueError(f"orthogonal: negative dimensions are not allowed, got {n} and {m}")
    q, r = jnp.linalg.qr(_normal(key, (*shape, max(n, m), min(n, m)), dtype))
    signs = lax.sign(jnp.diagonal(r, axis1=-2, axis2=-1))
    q = q * jnp.expand_dims(signs, -2)
    return q if n >= m else jnp.matrix_transpose(q)
