"""Reductions of the numpy API: sums, products, extremes, logic, moments; those that skip NaN; cumulative ones.

All take `axis` (None for all, an int, or a tuple), `keepdims` and, as in NumPy, `where` and `initial`. Sums, means,
variances and extremes also accept names of axes that `vmap` binds. `statistics.py` has order statistics and histograms.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from jaxlite import lax
from jaxlite.core import dtypes
from jaxlite.core.aval import Ints
from jaxlite.core.axes import other_axes, with_ones
from jaxlite.core.tracing import state
from jaxlite.core.values import aval_of
from jaxlite.lax import shaping
from jaxlite.numpy import arithmetic
from jaxlite.numpy.api import (
    api,
    are_plain_axes,
    as_array,
    as_arrays,
    canonical_axes,
    check_arrays,
    each_axis,
    is_complex,
    plain_axes,
    refuse_out,
)

Axis = Any  # None, an int, the name of an axis that vmap binds, or a tuple of those
_COLLECTIVES = {lax.reduce_sum: "psum", lax.reduce_max: "pmax", lax.reduce_min: "pmin"}


def _keep(result, shape: Ints, axes: Ints, keepdims: bool):
    """Put reduced axes back with size 1."""
    if not keepdims or not axes:
        return result
    kept, dimensions = _kept(shape, axes)
    return shaping.broadcast_in_dim_p.bind(result, shape=kept, broadcast_dimensions=dimensions, sharding=None)


@functools.lru_cache(1024)
def _kept(shape: Ints, axes: Ints) -> tuple[Ints, Ints]:
    return with_ones(shape, axes), tuple(other_axes(len(shape), axes))


def _lowest(dtype):
    kind = dtypes.kind(dtype)
    if kind == "b":
        return False
    if kind in "iu":
        return int(dtypes.iinfo(dtype).min)
    return -np.inf


def _highest(dtype):
    kind = dtypes.kind(dtype)
    if kind == "b":
        return True
    if kind in "iu":
        return int(dtypes.iinfo(dtype).max)
    return np.inf


def _mask_shape(name: str, x, where) -> Ints:
    """The shape of an array and its mask, broadcast together, after checking them."""
    mask, own = aval_of(where), aval_of(x).shape
    if mask.dtype != dtypes.bool_:
        raise ValueError(f"jnp.{name}: where must be None or a boolean array; got where.dtype={mask.dtype}.")
    if mask.ndim > len(own):
        raise ValueError(f"jnp.{name}: where must not have more axes than the array; got where.shape={mask.shape} for "
                         f"an array of shape {own}.")
    try:
        return lax.broadcast_shapes(own, mask.shape)
    except (TypeError, ValueError):
        raise ValueError(f"jnp.{name}: Incompatible shapes for broadcasting: where.shape={mask.shape} for an array of "
                         f"shape {own}.") from None


def _masked(name: str, x, where, fill):
    """x where the mask holds, else a constant."""
    if where is None:
        return x
    shape = _mask_shape(name, x, where)
    x = shaping.broadcast_to(x, shape)
    return lax.select(shaping.broadcast_to(where, shape), x, shaping.full_like(x, fill))


def is_name(axis) -> bool:
    """Whether an axis is the name of one that vmap binds."""
    return type(axis) is str or (not hasattr(axis, "__index__") and isinstance(axis, Hashable) and axis in state.axis_sizes)


def split_axes(axis, rank: int) -> tuple[Ints, tuple[Any, ...]]:
    """The axes of the array and the named axes in an axis argument."""
    if are_plain_axes(axis):
        return plain_axes(axis, rank), ()
    each = each_axis(axis)
    names = tuple(one for one in each if is_name(one))
    return canonical_axes([one for one in each if one not in names] if names else each, rank), names


def _reduce(name: str, a, axis, keepdims: bool, reducer: Callable, identity, where=None, initial=None,
            combine: Callable | None = None):
    """Mask, reduce, combine with `initial`, restore axes. `identity` maps a dtype to what masked elements become."""
    if where is not None:
        a = _masked(name, a, where, identity(a.dtype) if callable(identity) else identity)
    shape = a.shape
    axes, names = split_axes(axis, len(shape))
    result = reducer(a, axes)
    if names:
        if reducer not in _COLLECTIVES:
            raise NotImplementedError(f"Named reductions not implemented for jnp.{name}(): axis={axis!r}")
        result = getattr(lax, _COLLECTIVES[reducer])(result, names)
    if combine is not None and initial is not None:
        result = combine(shaping.of_user(initial, result.dtype), result)
    return _keep(result, shape, axes, keepdims)


def _accumulator_dtype(aval, dtype, promote_integers: bool, name: str):
    """The result dtype of a sum or product."""
    if dtype is not None:
        return dtypes.check_user_dtype_supported(dtype, name)
    kind = dtypes.kind(aval.dtype)
    if not promote_integers or kind not in "biu":
        return dtypes.to_numeric_dtype(aval.dtype)
    if kind == "b":
        return dtypes.default_dtype(int)
    least = dtypes.canonicalize_dtype(np.uint64 if kind == "u" else np.int64)
    return least if dtypes.itemsize_bits(aval.dtype) < dtypes.itemsize_bits(least) else aval.dtype


def _check_initial(initial) -> None:
    if initial is not None and aval_of(initial).shape:
        raise ValueError(f"initial value must be a scalar. Got array of shape {aval_of(initial).shape}")


def _total(name: str, a, axis, dtype, keepdims: bool, initial, where, promote_integers: bool, reducer: Callable,
           combine: Callable, identity: int):
    a = as_arrays(name, a)
    _check_initial(initial)
    aval = aval_of(a)
    dtype = _accumulator_dtype(aval, dtype, promote_integers, name)
    shaping.warn_of_lost_parts(aval.dtype, dtype)
    if dtype == dtypes.bool_:  # whether some, or all, are nonzero
        reducer, combine = (lax.reduce_and, arithmetic.logical_and) if identity else (lax.reduce_or, arithmetic.logical_or)
    a = shaping.convert(a, dtypes.sum_dtype(dtype), False)
    return shaping.convert(_reduce(name, a, axis, keepdims, reducer, identity, where, initial, combine), dtype, False)


@api
def sum(a, axis: Axis = None, dtype: Any = None, out: None = None, keepdims: bool = False, initial=None, where=None,
        promote_integers: bool = True):
    """The sum over axes; 0 for none. Integers narrower than the default are widened to it; half floats are added up
    in 32 bits.

    >>> import jaxlite.numpy as jnp
    >>> jnp.sum(jnp.array([[1, 2], [3, 4]]), axis=0)
    Array([4, 6], dtype=int32)
    """
    refuse_out("sum", out)
    return _sum(a, axis, dtype, keepdims, initial, where, promote_integers)


def _sum(a, axis, dtype, keepdims: bool, initial, where, promote_integers: bool):
    return _total("sum", a, axis, dtype, keepdims, initial, where, promote_integers, lax.reduce_sum, arithmetic.add, 0)


@api
def prod(a, axis: Axis = None, dtype: Any = None, out: None = None, keepdims: bool = False, initial=None, where=None,
         promote_integers: bool = True):
    """The product over axes; 1 for none. Dtypes are as in `sum`."""
    refuse_out("prod", out)
    return _total("prod", a, axis, dtype, keepdims, initial, where, promote_integers, lax.reduce_prod,
                  arithmetic.multiply, 1)


def _extreme(name: str, a, axis, keepdims: bool, initial, where, reducer: Callable, combine: Callable,
             identity: Callable):
    check_arrays(name, a)
    _check_initial(initial)
    a = shaping.convert(as_array(a), None, False)
    aval = aval_of(a)
    axes, names = split_axes(axis, aval.ndim)
    if initial is None:
        if 0 in [aval.shape[each] for each in axes]:
            raise ValueError(f"zero-size array to reduction operation {name} which has no identity")
        if where is not None:
            raise ValueError(f"reduction operation {name} does not have an identity, so to use a where mask one has to "
                             "specify 'initial'")
    if dtypes.kind(aval.dtype) != "c":
        return _reduce(name, a, axis, keepdims, reducer, identity, where, initial, combine)
    result = _complex_extreme(name, a, axes, names, keepdims, where, reducer, identity)
    return result if initial is None else combine(shaping.of_user(initial, aval.dtype), result)


def _complex_extreme(name: str, a, axes: Ints, names: tuple[Any, ...], keepdims: bool, where, reducer: Callable,
                     identity: Callable):
    """Lexicographic, as `reducer` compares; NaN if there is one, which it may pass over."""
    fill = identity(dtypes.float32)
    a = _masked(name, a, where, complex(fill, fill))
    any_nan = lax.reduce_or(lax.ne(a, a), axes)
    result = reducer(a, axes)
    if names:
        any_nan, result = lax.pmax(any_nan, names), getattr(lax, _COLLECTIVES[reducer])(result, names)
    result = lax.select(any_nan, shaping.full_like(result, complex(np.nan, np.nan)), result)
    return _keep(result, a.shape, axes, keepdims)


@api
def max(a, axis: Axis = None, out: None = None, keepdims: bool = False, initial=None, where=None):
    """The greatest element over axes; NaN if there is one. An empty reduction needs `initial`."""
    refuse_out("max", out)
    return _extreme("max", a, axis, keepdims, initial, where, lax.reduce_max, arithmetic.maximum, _lowest)


@api
def min(a, axis: Axis = None, out: None = None, keepdims: bool = False, initial=None, where=None):
    """The least element over axes; NaN if there is one. An empty reduction needs `initial`."""
    refuse_out("min", out)
    return _extreme("min", a, axis, keepdims, initial, where, lax.reduce_min, arithmetic.minimum, _highest)


@api
def minmax(a, axis: Axis = None, out: None = None, keepdims: bool = False, initial=None, where=None) -> tuple[Any, Any]:
    """The least and the greatest element over axes.

    Args:
      initial: one bound for both, or a pair of them; see `min` and `max`.
    """
    refuse_out("minmax", out)
    low, high = initial if isinstance(initial, tuple) else (initial, initial)
    return (min(a, axis=axis, keepdims=keepdims, initial=low, where=where),
            max(a, axis=axis, keepdims=keepdims, initial=high, where=where))


def amax(a, axis: Axis = None, out: None = None, keepdims: bool = False, initial=None, where=None):
    """Another name of `max`."""
    return max(a, axis=axis, out=out, keepdims=keepdims, initial=initial, where=where)


def amin(a, axis: Axis = None, out: None = None, keepdims: bool = False, initial=None, where=None):
    """Another name of `min`."""
    return min(a, axis=axis, out=out, keepdims=keepdims, initial=initial, where=where)


@api
def all(a, axis: Axis = None, out: None = None, keepdims: bool = False, *, where=None):
    """Whether every element over axes is nonzero; True for none."""
    refuse_out("all", out)
    check_arrays("all", a)
    return _reduce("all", shaping.convert(as_array(a), bool), axis, keepdims, lax.reduce_and, True, where)


@api
def any(a, axis: Axis = None, out: None = None, keepdims: bool = False, *, where=None):
    """Whether some element over axes is nonzero; False for none."""
    refuse_out("any", out)
    check_arrays("any", a)
    return _reduce("any", shaping.convert(as_array(a), bool), axis, keepdims, lax.reduce_or, False, where)


@api
def ptp(a, axis: Axis = None, out: None = None, keepdims: bool = False):
    """The range over axes: the greatest element less the least."""
    refuse_out("ptp", out)
    return max(a, axis=axis, keepdims=keepdims) - min(a, axis=axis, keepdims=keepdims)


@api
def count_nonzero(a, axis: Axis = None, keepdims: bool = False):
    """How many elements over axes are nonzero."""
    a = as_arrays("count_nonzero", a)
    is_nonzero = a if aval_of(a).dtype == bool else a != 0
    return sum(is_nonzero, axis=axis, dtype=dtypes.default_dtype(int), keepdims=keepdims)


# --- moments -----------------------------------------------------------------------------------------


def _count(a, axes: tuple[Any, ...], where, keepdims: bool, dtype):
    """How many elements are averaged: a Python number, or an array if a mask decides. Named axes count, too."""
    shape = a.shape
    if where is None:
        own, names = split_axes(axes, len(shape))
        return math.prod(shape[axis] for axis in own) * (lax.axis_size(names) if names else 1)
    return sum(shaping.broadcast_to(where, _mask_shape("mean", a, where)), axis=axes, dtype=dtype, keepdims=keepdims)


def _mean_dtypes(name: str, a, dtype) -> tuple[Any, Any]:
    """The dtype to compute in and that of the result."""
    if dtype is not None:
        result = dtypes.check_user_dtype_supported(dtype, name)
        return result, result
    result = dtypes.to_inexact_dtype(a.dtype)
    return dtypes.sum_dtype(result), result


@functools.lru_cache(1024)
def _number(count: int, dtype):
    """A count as a scalar of a dtype."""
    return np.asarray(count).astype(dtypes.real_dtype(dtype)).astype(dtype)[()]


def _divide(total, count):
    if isinstance(count, int):
        return lax.div(total, _number(count, total.dtype))
    return total / shaping.convert(count, total.dtype)


@api
def mean(a, axis: Axis = None, dtype: Any = None, out: None = None, keepdims: bool = False, *, where=None):
    """The arithmetic mean over axes, in floating point; NaN for none.

    Half floats are averaged in 32 bits unless `dtype` is given.
    """
    refuse_out("mean", out)
    return _mean(a, axis, dtype, keepdims, where)


def _mean(a, axis, dtype, keepdims: bool, where, name: str = "mean"):
    a = as_arrays(name, a)
    computation, result_dtype = _mean_dtypes(name, a, dtype)
    shaping.warn_of_lost_parts(a.dtype, computation)
    own, names = split_axes(axis, a.ndim)
    axes = own + names
    total = _sum(shaping.convert(a, computation, False), axes, None, keepdims, None, where, True)
    if where is None and not names:
        shape = a.shape
        count: Any = math.prod([shape[axis] for axis in own])
    else:
        count = _count(a, axes, where, keepdims, computation)
    result = _divide(total, count)
    return shaping.convert(result, result_dtype, False)


@api
def _variance(a, ddof, mean, where, axis: Any, dtype: Any, keepdims: bool, out=None):
    a = as_arrays("var", a)
    computation, result_dtype = _variance_dtypes(a, dtype)
    own, names = split_axes(axis, a.ndim)
    axes = own + names
    a = shaping.convert(a, computation, False)
    center = _mean(a, axes, computation, True, where) if mean is None else mean
    deviations = a - center
    if is_complex(deviations):
        squares = lax.real(deviations * lax.conj(deviations))
    else:
        squares = lax.square(deviations)
    total = _sum(squares, axes, None, keepdims, None, where, True)
    dtype = total.dtype
    count = _count(a, axes, where, keepdims, dtype)
    freedom = shaping.convert(count, dtype, False) - shaping.convert(ddof, dtype, False) \
        if isinstance(count, int) else count - shaping.convert(ddof, dtype, False)
    result = total / freedom
    positive = freedom > 0
    result = _where(positive, result, np.nan)
    return shaping.convert(result, result_dtype, False)


def _where(condition, x, fill: float):
    """x where the condition (a scalar, or of x's shape) holds, else a constant."""
    return lax.select_n(condition, shaping.full_like(x, fill), x)


def _variance_dtypes(a, dtype) -> tuple[Any, Any]:
    source = a.dtype
    if dtype is not None:
        result = dtypes.check_user_dtype_supported(dtype, "var")
        if dtypes.kind(source) == "c" and dtypes.kind(result) != "c":
            raise ValueError(f"jnp.var: dtype must be complex for the variance of a complex array; got {result}.")
        result = dtypes.to_inexact_dtype(result)
        # Integers, and floats of 8 bits and less, which nothing is promoted with, have no say.
        computation = result if dtypes.kind(source) in "biu" or dtypes.itemsize_bits(source) < 16 \
            else dtypes.lattice_result(source, False, result, False)[0]
    else:
        computation = dtypes.to_inexact_dtype(source)
        result = dtypes.real_dtype(computation)
    return dtypes.sum_dtype(dtypes.to_inexact_dtype(computation)), result


def var(a, axis: Axis = None, dtype=None, out: None = None, ddof: int = 0, keepdims: bool = False, *, where=None,
        mean=None, correction: int | float | None = None):
    """The variance over axes: the mean squared distance from the mean.

    Args:
      ddof, correction: taken off the number of elements to divide by (two names for one thing).
      mean: the mean, if it is known, with the reduced axes kept.
    """
    refuse_out("var", out)
    return _variance(a, _taken_off(ddof, correction), mean, where, axis=axis, dtype=dtype, keepdims=keepdims)


def _taken_off(ddof, correction):
    """The value of `ddof` and `correction`, two names for one thing."""
    if correction is not None and ddof:
        raise ValueError("ddof and correction can't be provided simultaneously.")
    return ddof if correction is None else correction


def std(a, axis: Axis = None, dtype=None, out: None = None, ddof: int = 0, keepdims: bool = False, *, where=None,
        mean=None, correction: int | float | None = None):
    """The standard deviation over axes: the square root of `var`, with its arguments."""
    refuse_out("std", out)
    if dtype is not None and dtypes.kind(dtypes.canonicalize_dtype(dtype)) in "biu":
        raise ValueError(f"dtype argument to jnp.std must be inexact; got {dtype}")
    return _deviation(a, _taken_off(ddof, correction), mean, where, axis=axis, dtype=dtype, keepdims=keepdims)


@api
def _deviation(a, ddof, mean, where, axis: Any, dtype: Any, keepdims: bool):
    return lax.sqrt(_variance(a, ddof, mean, where, axis=axis, dtype=dtype, keepdims=keepdims))


# --- skipping NaN ------------------------------------------------------------------------------------


def _is_nan(a):
    return a != a


def _has_nan(a) -> bool:
    return dtypes.kind(a.dtype) in "fc"


def _without_nan(a, fill):
    return lax.select(_is_nan(a), shaping.full_like(a, fill), a) if _has_nan(a) else a


def _nan_extreme(name: str, a, axis, keepdims: bool, initial, where, function: Callable, identity: Callable):
    a = as_arrays(name, a)
    if not _has_nan(a):
        return function(a, axis=axis, keepdims=keepdims, initial=initial, where=where)
    fill = identity(a.dtype)
    result = function(_without_nan(a, fill), axis=axis, keepdims=keepdims, initial=initial, where=where)
    if initial is not None:
        return result
    nothing = all(_is_nan(a), axis=axis, keepdims=keepdims, where=where)
    return lax.select(nothing, shaping.full_like(result, np.nan), result)


@api
def nanmax(a, axis: Axis = None, out: None = None, keepdims: bool = False, initial=None, where=None):
    """The greatest element that is not NaN; NaN if all are."""
    refuse_out("nanmax", out)
    return _nan_extreme("nanmax", a, axis, keepdims, initial, where, max, _lowest)


@api
def nanmin(a, axis: Axis = None, out: None = None, keepdims: bool = False, initial=None, where=None):
    """The least element that is not NaN; NaN if all are."""
    refuse_out("nanmin", out)
    return _nan_extreme("nanmin", a, axis, keepdims, initial, where, min, _highest)


@api
def nansum(a, axis: Axis = None, dtype: Any = None, out: None = None, keepdims: bool = False, initial=None, where=None):
    """The sum of the elements that are not NaN."""
    refuse_out("nansum", out)
    check_arrays("nansum", a)
    return sum(_without_nan(as_array(a), 0), axis=axis, dtype=dtype, keepdims=keepdims, initial=initial, where=where)


@api
def nanprod(a, axis: Axis = None, dtype: Any = None, out: None = None, keepdims: bool = False, initial=None, where=None):
    """The product of the elements that are not NaN."""
    refuse_out("nanprod", out)
    check_arrays("nanprod", a)
    return prod(_without_nan(as_array(a), 1), axis=axis, dtype=dtype, keepdims=keepdims, initial=initial, where=where)


@api
def nanmean(a, axis: Axis = None, dtype: Any = None, out: None = None, keepdims: bool = False, where=None):
    """The mean of the elements that are not NaN."""
    refuse_out("nanmean", out)
    a = as_arrays("nanmean", a)
    if not _has_nan(a):
        return mean(a, axis=axis, dtype=dtype, keepdims=keepdims, where=where)
    # Counted in floats, which a library sums up on the CPU; up to 2**24 they are exact.
    dtype_of_count = dtypes.float32 if a.size <= 1 << 24 else dtypes.int32
    count = sum(~_is_nan(a), axis=axis, dtype=dtype_of_count, keepdims=keepdims, where=where)
    total = nansum(a, axis=axis, dtype=dtype, keepdims=keepdims, where=where)
    return lax.div(total, shaping.convert(count, total.dtype, False))


@api
def nanvar(a, axis: Axis = None, dtype: Any = None, out: None = None, ddof: int = 0, keepdims: bool = False, where=None,
           mean=None):
    """The variance of the elements that are not NaN; NaN where fewer than `ddof` + 1 are left."""
    refuse_out("nanvar", out)
    a = as_arrays("nanvar", a)
    if not _has_nan(a):
        result = var(a, axis=axis, dtype=dtype, ddof=ddof, keepdims=keepdims, where=where, mean=mean)
        return result if dtype is None else shaping.convert(result, dtypes.check_user_dtype_supported(dtype, "nanvar"), False)
    valid = ~_is_nan(a)
    if where is not None:
        _mask_shape("nanvar", a, where)
        valid = valid & where
    if mean is None:  # by the sum that `nanmean` takes: beside it in a program, both are rounded alike
        mean = nanmean(shaping.convert(a, _variance_dtypes(a, dtype)[0], False), axis=axis, keepdims=True, where=where)
    return _variance(_without_nan(a, 0), ddof, mean, valid, axis=axis, dtype=dtype, keepdims=keepdims)


@api
def nanstd(a, axis: Axis = None, dtype: Any = None, out: None = None, ddof: int = 0, keepdims: bool = False, where=None,
           mean=None):
    """The standard deviation of the elements that are not NaN."""
    refuse_out("nanstd", out)
    return lax.sqrt(nanvar(a, axis=axis, dtype=dtype, ddof=ddof, keepdims=keepdims, where=where, mean=mean))


# --- running totals ----------------------------------------------------------------------------------


def _running(name: str, a, axis, dtype, operation: Callable, fill_nan=None):
    a = as_arrays(name, a)
    if fill_nan is not None:
        a = _without_nan(a, fill_nan)
    if axis is None:
        a, axis = shaping.reshape(a, (math.prod(a.shape),)), 0
    elif not a.shape:
        a = shaping.reshape(a, (1,))
    axis = shaping.canonical_axis(axis, a.ndim)
    if dtype is None:
        aval = aval_of(a)
        dtype = dtypes.default_dtype(int) if dtypes.kind(aval.dtype) == "b" else aval.dtype
    else:
        dtype = dtypes.check_user_dtype_supported(dtype, name)
        shaping.warn_of_lost_parts(a.dtype, dtype)
    if dtype == dtypes.bool_:
        # Whether a running sum of ones and zeros is nonzero, or a running product of them.
        ones = shaping.convert(shaping.convert(a, dtypes.bool_, False), dtypes.int32, False)
        return shaping.convert(operation(ones, axis), bool)
    return operation(shaping.convert(a, dtype, False), axis)


@api
def cumsum(a, axis: int | None = None, dtype: Any = None, out: None = None):
    """Running sums along an axis; over all elements, flattened, for None."""
    refuse_out("cumsum", out)
    return _running("cumsum", a, axis, dtype, lax.cumsum)


@api
def cumprod(a, axis: int | None = None, dtype: Any = None, out: None = None):
    """Running products along an axis; over all elements, flattened, for None."""
    refuse_out("cumprod", out)
    return _running("cumprod", a, axis, dtype, lax.cumprod)


@api
def nancumsum(a, axis: int | None = None, dtype: Any = None, out: None = None):
    """Running sums with NaN as 0."""
    refuse_out("nancumsum", out)
    return _running("nancumsum", a, axis, dtype, lax.cumsum, 0)


@api
def nancumprod(a, axis: int | None = None, dtype: Any = None, out: None = None):
    """Running products with NaN as 1."""
    refuse_out("nancumprod", out)
    return _running("nancumprod", a, axis, dtype, lax.cumprod, 1)


def _cumulative(name: str, x, axis, dtype, include_initial: bool, function: Callable, first: int):
    x = as_arrays(name, x)
    rank = x.ndim
    if rank == 0:
        raise ValueError(f"The input must be non-scalar to take a {name.replace('_', ' ')}, however a scalar value or "
                         "scalar array was given.")
    if axis is None:
        if rank > 1:
            raise ValueError(f"The input array has rank {rank}, however axis was not set to an explicit value. The "
                             "axis argument is only optional for one-dimensional arrays.")
        axis = 0
    axis = shaping.canonical_axis(axis, rank)
    kind = dtypes.kind(x.dtype)
    if dtype is None and kind in "iub":
        dtype = _accumulator_dtype(aval_of(x), None, name == "cumulative_sum", name)
    result = function(x, axis=axis, dtype=dtype)
    if include_initial:
        shape = list(result.shape)
        shape[axis] = 1
        result = shaping.concatenate([shaping.full(shape, first, result.dtype), result], axis)
    return result


@api
def cumulative_sum(x, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False):
    """Running sums along an axis, led by 0 if `include_initial`."""
    return _cumulative("cumulative_sum", x, axis, dtype, include_initial, cumsum, 0)


@api
def cumulative_prod(x, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False):
    """Running products along an axis, led by 1 if `include_initial`."""
    return _cumulative("cumulative_prod", x, axis, dtype, include_initial, cumprod, 1)
