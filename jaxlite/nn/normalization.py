"""Softmax and its relatives, standardisation, one-hot codes."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from jaxlite import lax
from jaxlite import numpy as jnp
from jaxlite.core import dtypes, source
from jaxlite.core.filtering import boundary
from jaxlite.core.symbolic import as_size
from jaxlite.core.tracing import known_value
from jaxlite.core.values import aval_of
from jaxlite.devices import placement
from jaxlite.lax import shaping
from jaxlite.numpy import reductions  # not through jax.numpy, whose names exporters such as jax2onnx replace
from jaxlite.numpy.api import api, as_array, check_arrays, float_api, promote_inexact
from jaxlite.numpy.reductions import is_name, split_axes


def _with_axes_of(where, x):
    """x with leading axes of size 1 for those that a mask has in addition."""
    missing = 0 if where is None else aval_of(where).ndim - aval_of(x).ndim
    return shaping.expand_dims(x, range(missing)) if missing > 0 else x


@float_api
def logsumexp(a, axis: Any = None, b=None, keepdims: bool = False, return_sign: bool = False, where=None):
    """log(sum(b * exp(a))) over axes, without overflow.

    Args:
      axis: axes of the array, and names of axes that `vmap` binds; None for all of the array.
      b: factors, broadcast to `a`; default 1.
      where: which elements take part. With more axes than `a`, the array is broadcast to it, and `axis` counts its axes.
      return_sign: give (log of the absolute value, sign) instead; else a negative sum gives NaN.
    """
    check_arrays("logsumexp", a)
    if b is not None:
        a, b = promote_inexact("logsumexp", a, b)
        b = as_array(b)
        a = jnp.where(b != 0, a, -jnp.inf)
    else:
        (a,) = promote_inexact("logsumexp", a)
    a = _with_axes_of(where, as_array(a))
    own, names = split_axes(axis, a.ndim)
    axes = own + names
    real = a.real if dtypes.kind(a.dtype) == "c" else a
    peak = reductions.max(real, axis=axes, keepdims=keepdims, initial=-np.inf, where=where)
    peak = lax.stop_gradient(jnp.where(jnp.isfinite(peak), peak, shaping.full_like(peak, 0)))
    beside = peak if keepdims else shaping.expand_dims(peak, own)
    if where is not None:  # what takes no part must not overflow either: its derivative would not be zero
        a = jnp.where(where, a, beside)
    scaled = jnp.exp(a - beside if dtypes.kind(a.dtype) == "c" else lax.sub(a, beside))  # the gradient is strong, as in JAX
    if b is not None:
        scaled = scaled * b
    total = jnp.sum(scaled, axis=axes, keepdims=keepdims, where=where)
    sign = jnp.sign(total)
    if return_sign:
        magnitude = jnp.log(jnp.abs(total)) + peak
        return magnitude, sign
    if b is not None and dtypes.kind(total.dtype) != "c":
        return jnp.where(sign < 0, jnp.nan, jnp.log(jnp.abs(total)) + peak)
    return jnp.log(jnp.abs(total) if dtypes.kind(total.dtype) != "c" else total) + peak


@api
def logmeanexp(x, axis: Any = None, where=None, keepdims: bool = False):
    """log(mean(exp(x))) over axes, without overflow."""
    check_arrays("logmeanexp", x)
    total = logsumexp(x, axis=axis, where=where, keepdims=keepdims)
    shape = aval_of(x).shape
    if where is None:
        own, names = split_axes(axis, len(shape))
        count: Any = float(lax.axis_size(names) * np.prod([shape[each] for each in own]))
    else:
        count = jnp.sum(jnp.broadcast_to(where, shape), axis=axis, keepdims=keepdims, dtype=aval_of(total).dtype)
    return total - jnp.log(count)


@api
def softmax(x, axis: Any = -1, where=None):
    """exp(x) / sum(exp(x)) over axes. Elements left out by `where` give 0."""
    (x,) = promote_inexact("softmax", x)
    x = _with_axes_of(where, as_array(x))
    peak = reductions.max(x, axis=axis, keepdims=True, initial=-np.inf, where=where)
    if where is None:
        unnormalized = jnp.exp(x - lax.stop_gradient(peak))
        return unnormalized / jnp.sum(unnormalized, axis=axis, keepdims=True)
    peak = lax.stop_gradient(jnp.where(jnp.isfinite(peak), peak, 0))
    unnormalized = jnp.exp(jnp.where(where, x, peak) - peak)
    total = jnp.sum(unnormalized, axis=axis, keepdims=True, where=where)
    return jnp.where(where, unnormalized / jnp.where(total == 0, 1, total), 0.0)  # zeros beside NaN too


@api
def log_softmax(x, axis: Any = -1, where=None):
    """The logarithm of softmax, accurate where softmax is small. Elements left out by `where` give -inf."""
    (x,) = promote_inexact("log_softmax", x)
    x = _with_axes_of(where, as_array(x))
    peak = reductions.max(x, axis=axis, keepdims=True, initial=-np.inf, where=where)
    if where is not None:
        x = jnp.where(where, x, lax.stop_gradient(jnp.where(jnp.isfinite(peak), peak, 0)))
    shifted = x - lax.stop_gradient(peak)
    result = shifted - jnp.log(jnp.sum(jnp.exp(shifted), axis=axis, keepdims=True, where=where))
    return result if where is None else jnp.where(where, result, -jnp.inf)


@api
def standardize(x, axis: Any = -1, mean=None, variance=None, epsilon=1e-5, where=None, *, algorithm: str = "fast"):
    """(x - mean) / sqrt(variance + epsilon) over axes.

    Args:
      mean, variance: used instead of those of x, if given.
      algorithm: 'fast' takes the variance from the mean of squares, 'stable' from the squared deviations.
    """
    if algorithm not in ("fast", "stable"):
        raise ValueError(f"Invalid algorithm: {algorithm}. Expected 'fast' or 'stable'.")
    (x,) = promote_inexact("standardize", x)
    x = as_array(x)
    if mean is None:
        mean = jnp.mean(x, axis, keepdims=True, where=where)
    if variance is None:
        if algorithm == "fast":
            variance = jnp.mean(jnp.square(x), axis, keepdims=True, where=where) - jnp.square(mean)
        else:
            variance = jnp.var(x, axis, keepdims=True, where=where, mean=mean)
    return (x - as_array(mean)) * lax.rsqrt(variance + epsilon)


@boundary
def one_hot(x, num_classes: int, *, dtype: Any = None, axis: int | Hashable = -1, out_sharding: Any = None):
    """Vectors that are 1 at the class that `x` names, and 0 elsewhere (everywhere, for classes out of range).

    Args:
      axis: where the classes are in the result; or the name of an axis that `vmap` binds, which has one class at each place.
    Warns: DeprecationWarning for classes that are not integers.
    """
    x = jnp.asarray(x)
    if dtypes.kind(x.dtype) in "fc":
        source.warn(f"one_hot: x should have an integer dtype, but has {x.dtype}; use x.astype(int)", DeprecationWarning)
    return _one_hot(x, num_classes, dtype, axis, out_sharding)


@api
def _one_hot(x, num_classes: int, dtype: Any, axis: int | Hashable, out_sharding: Any):
    dtype = dtypes.requested_dtype(dtype, "one_hot", float)
    num_classes = known_value(num_classes, "The number of classes of one_hot is part of a shape.")
    if is_name(axis):
        size = lax.axis_size(axis)
        if size != num_classes:
            raise ValueError(f"Expected num_classes to match the size of axis {axis}, but {num_classes} != {size}")
        return placement.laid_out((x == lax.axis_index(axis)).astype(dtype), out_sharding)
    rank = x.ndim
    axis = shaping.canonical_axis(axis, rank + 1)
    classes = shaping.broadcasted_iota(x.dtype, [as_size(num_classes) if each == axis else 1 for each in range(rank + 1)], axis)
    return placement.laid_out((shaping.expand_dims(x, (axis,)) == classes).astype(dtype), out_sharding)
