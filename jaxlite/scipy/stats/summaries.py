"""Summaries of samples along an axis: the most frequent value, ranks, the standard error of the mean."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from jaxlite import lax
from jaxlite import numpy as jnp
from jaxlite.core import dtypes
from jaxlite.core.values import aval_of
from jaxlite.lax import shaping
from jaxlite.numpy.api import broadcasts_inside, check_arrays, float_api
from jaxlite.scipy.arguments import floats


class ModeResult(NamedTuple):
    """The most frequent values and how often they occur."""

    mode: Any
    count: Any


def _check_nan_policy(name: str, nan_policy: str) -> None:
    if nan_policy not in ("propagate", "omit", "raise"):
        raise ValueError(f"{name}: nan_policy must be 'propagate', 'omit' or 'raise', got {nan_policy!r}")
    if nan_policy != "propagate":
        raise NotImplementedError(f"Logic for `nan_policy` of {nan_policy} is not implemented in {name}")


@float_api
@broadcasts_inside
def mode(a, axis: int | None = 0, nan_policy: str = "propagate", keepdims: bool = False) -> ModeResult:
    """The most frequent values along an axis, the least of them where several are; None means all axes.

    Returns: ModeResult(mode, count).
    """
    _check_nan_policy("mode", nan_policy)
    check_arrays("mode", a)
    a = jnp.asarray(a)
    a = a[None] if axis is not None and not a.ndim and keepdims else a
    rank = a.ndim
    if axis is None or not rank:
        ordered = jnp.sort(jnp.ravel(a))
    else:
        ordered = jnp.sort(jnp.moveaxis(a, axis, -1), axis=-1)
    size = aval_of(ordered).shape[-1]
    if not size:  # none, zero times, as in SciPy
        count = jnp.count_nonzero(a, axis=axis, keepdims=keepdims).astype(float)
        return ModeResult(jnp.full_like(count, jnp.nan), count)
    place = jnp.arange(size)
    # In sorted order, a run of equal values is as long as its last element is far from its first.
    differ = ordered[..., 1:] != ordered[..., :-1]
    if jnp.issubdtype(ordered.dtype, jnp.inexact):  # NaNs are one value
        differ &= ~(jnp.isnan(ordered[..., 1:]) & jnp.isnan(ordered[..., :-1]))
    is_first = jnp.concatenate([jnp.ones_like(ordered[..., :1], bool), differ], axis=-1)
    start = jnp.maximum.accumulate(jnp.where(is_first, place, 0), axis=-1)
    longest = jnp.argmax(place - start, axis=-1, keepdims=True)
    value = jnp.take_along_axis(ordered, longest, axis=-1, mode="promise_in_bounds")[..., 0]
    count = (jnp.take_along_axis(place - start, longest, axis=-1, mode="promise_in_bounds") + 1)[..., 0]
    if keepdims:
        expand = tuple(range(rank)) if axis is None else axis
        value, count = jnp.expand_dims(value, expand), jnp.expand_dims(count, expand)
    if jnp.iscomplexobj(value):  # strong, as in JAX
        value = shaping.convert(value, None, False)
    return ModeResult(value, count)


@float_api
def rankdata(a, method: str = "average", *, axis: int | None = None, nan_policy: str = "propagate"):
    """The ranks of values along an axis, from 1; None means all elements, flattened.

    Args:
      method: the rank of equal values: 'average', 'min', 'max', 'dense' (the next rank is one higher), or 'ordinal' (in
        the order in which they come).
    """
    _check_nan_policy("rankdata", nan_policy)
    check_arrays("rankdata", a)
    if method not in ("average", "min", "max", "dense", "ordinal"):
        raise ValueError(f"unknown method '{method}'")
    a = jnp.ravel(jnp.asarray(a)) if axis is None else jnp.moveaxis(jnp.asarray(a), axis, -1)
    size, places = a.shape[-1], shaping.broadcasted_iota(dtypes.int32, a.shape, a.ndim - 1)
    ordered, order = lax.sort((a, places), num_keys=1)
    if method == "ordinal":
        ranks = places + 1
    else:
        is_first = jnp.concatenate([jnp.ones_like(ordered[..., :1], bool), ordered[..., 1:] != ordered[..., :-1]], axis=-1)
        is_last = jnp.concatenate([is_first[..., 1:], jnp.ones_like(ordered[..., :1], bool)], axis=-1)
        lowest = jnp.maximum.accumulate(jnp.where(is_first, places, 0), axis=-1) + 1
        highest = jnp.flip(jnp.minimum.accumulate(jnp.flip(jnp.where(is_last, places, size), -1), axis=-1), -1) + 1
        ranks = {"min": lowest, "max": highest, "dense": jnp.cumsum(is_first, axis=-1),
                 "average": (lowest + highest) / 2}[method]
    ranks = jnp.put_along_axis(jnp.zeros_like(ranks), order, ranks, axis=-1, inplace=False)
    ranks = ranks.astype(dtypes.canonicalize_dtype(np.float64))
    if dtypes.kind(a.dtype) == "f":
        ranks = jnp.where(jnp.any(jnp.isnan(a), axis=-1, keepdims=True), jnp.nan, ranks)
    return ranks if axis is None else jnp.moveaxis(ranks, -1, axis)


@float_api
def sem(a, axis: int | None = 0, ddof: int = 1, nan_policy: str = "propagate", *, keepdims: bool = False):
    """The standard error of the mean along an axis: the standard deviation over sqrt(n); None means all axes.

    Args:
      ddof: n - ddof takes the place of n in the variance.
      nan_policy: 'omit' leaves NaNs out, of the values and of their number n.
    """
    if nan_policy not in ("omit", "propagate"):
        raise ValueError(f"sem: {nan_policy} is not supported; nan_policy must be 'propagate' or 'omit'")
    a = floats("sem", a, complex=True)
    if nan_policy == "omit":
        counts = jnp.sum(~jnp.isnan(a), axis=axis, keepdims=keepdims)
        return jnp.nanstd(a, axis=axis, ddof=ddof, keepdims=keepdims) / jnp.sqrt(counts.astype(a.dtype))
    count = a.size if axis is None else a.shape[axis]
    error = jnp.std(a, axis=axis, ddof=ddof, keepdims=keepdims) / np.sqrt(count).item()
    return error.astype(a.dtype) if dtypes.kind(a.dtype) == "c" else error
