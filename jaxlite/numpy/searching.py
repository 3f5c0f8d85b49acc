"""Searching: argmax and similar, nonzero, binary search."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from jaxlite import lax
from jaxlite.core import array as arrays
from jaxlite.core import dtypes
from jaxlite.core.axes import with_sizes
from jaxlite.core.errors import ShardingTypeError
from jaxlite.core.filtering import boundary
from jaxlite.core.symbolic import as_size, exceeds, is_symbolic
from jaxlite.core.tracing import Tracer, known_value
from jaxlite.core.values import ArrayImpl, aval_of
from jaxlite.devices import placement
from jaxlite.lax import shaping
from jaxlite.numpy import indexing, manipulation, selection
from jaxlite.numpy.api import api, as_array, as_arrays, check_arrays, check_given, promote_dtypes, refuse_out, scalar
from lowering import xla

# --- positions of extremes ---------------------------------------------------------------------------


def _position(name: str, a, axis, out, keepdims, search: Callable):
    refuse_out(name, out)
    a = as_arrays(name, a)
    shape = a.shape
    line = a
    if axis is None:
        line, axis = a.ravel(), 0
        kept = (1,) * len(shape)
    else:
        axis = shaping.canonical_axis(axis, len(shape))
        kept = with_sizes(shape, axis, 1)
    if not line.shape[axis]:
        raise ValueError(f"attempt to get {name.removeprefix('nan')} of an empty sequence: the shape is {shape}")
    result = search(line, axis, dtypes.default_dtype(int))
    if not keepdims:
        return result
    rest = [each for each in range(len(shape)) if each != axis] if result.shape else []
    return shaping.broadcast_in_dim(result, kept, rest)


@api
def argmax(a, axis: int | None = None, out: None = None, keepdims: bool | None = None):
    """The position of the greatest element along an axis (the first of equals; NaN counts as greatest).

    Args:
      axis: int; None searches the flattened array.
      keepdims: whether the axis stays, with size 1.
    Raises: ValueError for nothing to search.

    >>> import jaxlite.numpy as jnp
    >>> jnp.argmax(jnp.array([[1, 9, 2], [8, 3, 4]]), axis=1)
    Array([1, 0], dtype=int32)
    """
    return _position("argmax", a, axis, out, keepdims, lax.argmax)


@api
def argmin(a, axis: int | None = None, out: None = None, keepdims: bool | None = None):
    """The position of the least element along an axis (the first of equals; NaN counts as least). As `argmax`."""
    return _position("argmin", a, axis, out, keepdims, lax.argmin)


def _position_without_nan(name: str, a, axis, out, keepdims, search: Callable, fill: float):
    a = as_arrays(name, a)
    if dtypes.kind(a.dtype) not in "fc":
        return _position(name, a, axis, out, keepdims, search)
    nan = a != a

    def search_numbers(line, axis: int, dtype):
        gone = shaping.reshape(nan, line.shape)
        position = search(lax.select(gone, shaping.full_like(line, fill), line), axis, dtype)
        return lax.select(lax.reduce_and(gone, (axis,)), shaping.full_like(position, -1), position)

    return _position(name, a, axis, out, keepdims, search_numbers)


@api
def nanargmax(a, axis: int | None = None, out: None = None, keepdims: bool | None = None):
    """The position of the greatest element that is not NaN; -1 where all are. As `argmax`."""
    return _position_without_nan("nanargmax", a, axis, out, keepdims, lax.argmax, -np.inf)


@api
def nanargmin(a, axis: int | None = None, out: None = None, keepdims: bool | None = None):
    """The position of the least element that is not NaN; -1 where all are. As `argmax`."""
    return _position_without_nan("nanargmin", a, axis, out, keepdims, lax.argmin, np.inf)


# --- positions of nonzero elements -------------------------------------------------------------------


def host_value(name: str, a) -> np.ndarray:
    """The host's value of an array whose elements decide the size of a result.

    Raises: ConcretizationTypeError for a traced one.
    """
    if not isinstance(a, Tracer) and hasattr(a, "__jax_array__"):
        a = a.__jax_array__()
    a = known_value(
        a, "pass the size argument to jnp.{}: the size of its result depends on data, unless it is given", name)
    return arrays.host_value(a) if type(a) is ArrayImpl else np.asarray(a)


def put_beside(value: np.ndarray, like, weak_type: bool = False):
    """A host value as an array on the device of another."""
    if type(like) is not ArrayImpl:
        made = arrays.make_array(value)
        return shaping.convert(made, None, True) if weak_type else made
    aval = aval_of(value)
    aval = aval.update(weak_type=True) if weak_type else aval
    if arrays.is_spread(like):
        return placement.put(value, placement.replicated(like.sharding), copy=True, aval=aval)
    return arrays.put_array(value, arrays.device_of(like), like._committed, copy=True, aval=aval)


@boundary
def nonzero(a, *, size: int | None = None, fill_value=None) -> tuple[Any, ...]:
    """The positions of the elements that are not zero: for each axis an array of indices.

    Args:
      a: an array of at least one axis; concrete, unless `size` is given.
      size: how many positions to give, so that the result has a static shape: more are cut off, fewer filled up.
      fill_value: what to fill up with: a scalar, or one for each axis; 0 by default.
    Raises: ValueError for an array without axes or a fill_value that does not fit.

    >>> import jaxlite.numpy as jnp
    >>> jnp.nonzero(jnp.array([0, 5, 0, 7]), size=3, fill_value=-1)
    (Array([ 1,  3, -1], dtype=int32),)
    """
    check_arrays("nonzero", a)
    aval = aval_of(a)
    rank = aval.ndim
    if not rank:
        raise ValueError("Calling nonzero on 0d arrays is not allowed. Use jnp.atleast_1d(scalar).nonzero() instead.")
    if size is None:
        is_true = host_value("nonzero", a) != 0
        if fill_value is None:
            dtype = dtypes.default_dtype(int)
            return tuple(put_beside(each.astype(dtype), a) for each in np.nonzero(is_true))
        size = int(np.count_nonzero(is_true))  # nothing is filled up, but the dtype is that of both
    size = as_size(size)
    if size < 0:
        raise ValueError(f"nonzero: size must not be negative, got {size}")
    if aval.layout is not None and any(aval.layout.spec):
        kind = ValueError if xla.VERSION >= (0, 12) else ShardingTypeError  # as JAX of the same jaxlib
        raise kind(f"nonzero: the argument is cut along explicit mesh axes: {aval.str_short()}. Bring it together with "
                   "jax.sharding.reshard first")
    if fill_value is not None:
        fills = fill_value if isinstance(fill_value, tuple) else (fill_value,) * rank
        check_arrays("nonzero", *fills)
        if len(fills) != rank or any(aval_of(fill).shape for fill in fills):
            raise ValueError(f"fill_value must be a scalar or a tuple of length {rank}; got {fill_value}")
        fill_value = fills
    return _nonzero(a, fill_value, size=size)


@api
def _nonzero(a, fill_value, size: int) -> tuple[Any, ...]:
    shape = aval_of(a).shape
    flat, found = true_positions(shaping.convert(shaping.reshape(a, (aval_of(a).size,)), bool, False), size)
    result = []
    for axis in reversed(range(len(shape))):
        extent = scalar(max(shape[axis], 1), aval_of(flat).dtype)
        result.append(lax.rem(flat, extent) if axis else flat)
        flat = lax.div(flat, extent) if axis else flat
    result.reverse()
    if fill_value is not None:
        missing = shaping.iota(aval_of(found).dtype, size) >= found
        dtype = aval_of(promote_dtypes(*result, *fill_value)[0]).dtype
        result = [selection.where(missing, *[shaping.convert(x, dtype, False) for x in (fill, each)])
                  for fill, each in zip(fill_value, result, strict=True)]
    return tuple(result)


def true_positions(mask, size: int, fill: int = 0) -> tuple[Any, Any]:
    """The positions of the first `size` true elements of a flat mask, filled up, and how many are true in all."""
    count = aval_of(mask).size
    dtype = dtypes.default_dtype(int)
    if not count:
        return shaping.full((size,), fill, dtype), shaping.full((), 0, dtype)
    rank = lax.cumsum(shaping.convert(mask, dtype, False), 0)
    found = rank[-1]
    if type(size) is int and not size:
        return shaping.full((0,), fill, dtype), found
    # Each true element writes its position at its rank; the others, and those that are too many, write to one more place.
    rest = shaping.full_like(rank, size)
    target = lax.select(mask, lax.min(rank - 1, rest), rest)
    written = indexing.scatter_at(shaping.full((size + 1,), fill, dtype), target, shaping.iota(dtype, count), "set",
                                  mode="promise_in_bounds", wrap_negative_indices=False)
    return lax.slice_in_dim(written, 0, size), found


@boundary
def flatnonzero(a, *, size: int | None = None, fill_value=None):
    """The positions of the elements of the flattened array that are not zero. Arguments are as in `nonzero`."""
    check_arrays("flatnonzero", a)
    return nonzero(manipulation.ravel(a), size=size, fill_value=fill_value)[0]


@boundary
def argwhere(a, *, size: int | None = None, fill_value=None):
    """The positions of the elements that are not zero, a row each: (count, rank). Arguments are as in `nonzero`."""
    check_arrays("argwhere", a)
    if not aval_of(a).ndim:
        count = int(bool(host_value("argwhere", a))) if size is None else operator.index(size)
        return shaping.full((count, 0), 0, dtypes.default_dtype(int))
    if size is None:
        return put_beside(np.argwhere(host_value("argwhere", a) != 0).astype(dtypes.default_dtype(int)), a)
    return _columns(*nonzero(a, size=size, fill_value=fill_value))


@api
def _columns(*parts):
    return shaping.stack(promote_dtypes(*parts), 1)


@api
def place(arr, mask, vals, *, inplace: bool = True):
    """A copy of the array whose elements under the mask are taken, one after the other, from `vals`, repeated.

    Args:
      mask: of as many elements as `arr`.
      inplace: must be False: arrays are immutable.
    Raises: ValueError for sizes that differ, no values, or `inplace`.
    """
    check_arrays("place", arr, mask, vals)
    if inplace:
        raise ValueError("jax.numpy.place cannot modify arrays in-place, because JAX arrays are immutable. "
                         "Pass inplace=False to instead return an updated array.")
    if aval_of(arr).size != aval_of(mask).size:
        raise ValueError(f"place: arr and mask must be the same size, got shapes {aval_of(arr).shape} and "
                         f"{aval_of(mask).shape}")
    if not aval_of(vals).size:
        raise ValueError("Cannot place values from an empty array")
    arr = as_array(arr)
    aval = aval_of(arr)
    if not aval.size:
        return arr
    mask = shaping.convert(shaping.reshape(mask, (aval.size,)), bool, False)
    shaping.warn_of_lost_parts(aval_of(vals).dtype, aval.dtype)
    vals = shaping.convert(shaping.reshape(vals, (aval_of(vals).size,)), aval.dtype, aval.weak_type)
    if vals.size == 1:
        new = shaping.broadcast_in_dim(vals, (aval.size,), (0,))
    else:
        rank = lax.cumsum(shaping.convert(mask, dtypes.int32, False), 0) - 1
        rank = lax.rem(lax.max(rank, np.int32(0)), np.int32(vals.size))
        new = indexing.take(vals, rank, 0, mode="clip")
    return lax.select(shaping.reshape(mask, aval.shape), shaping.reshape(new, aval.shape), arr)


# --- binary search -----------------------------------------------------------------------------------


def _before(x, y, or_equal: bool):
    """Whether x comes before y in the order of `sort`: NaN after all, and equal to itself."""
    kind = dtypes.kind(aval_of(x).dtype)
    if kind == "c":
        first, second = (lax.real(x), lax.real(y)), (lax.imag(x), lax.imag(y))
        level = _before(*first, True) & _before(*first[::-1], True)
        return _before(*first, False) | level & _before(*second, or_equal)
    if kind != "f":
        return lax.le(x, y) if or_equal else lax.lt(x, y)
    if or_equal:
        return lax.le(x, y) | lax.ne(y, y)
    return lax.eq(x, x) & ~lax.le(y, x)


_MOST_BITS = 31  # of a size that is not known yet


def _search_halving(a, v, side: str, unroll: bool):
    size = aval_of(a).size
    steps = _MOST_BITS if is_symbolic(size) else size.bit_length()
    dtype = np.dtype(np.uint64 if exceeds((size,), 2**32 - 1) else np.uint32)

    # To the right of everything is where NaN belongs: that can be said once, behind the loop.
    is_nan = lax.ne(v, v) if side == "right" and dtypes.kind(aval_of(v).dtype) == "f" else None

    def halve(bounds: tuple[Any, Any], _: None):
        low, high = bounds
        middle = low + lax.div(lax.sub(high, low), np.asarray(2, dtype)[()])
        with placement.choosing():  # what is found lies as what is looked for
            found = indexing.gather_at(a, middle, mode="clip", wrap_negative_indices=False)
        later = lax.le(found, v) if is_nan is not None else _before(found, v, side == "right")
        return (lax.select(later, middle, low), lax.select(later, high, middle)), None

    start, end = (shaping.full_like(v, scalar(each, dtype), dtype) for each in (0, size))
    result = lax.scan(halve, (start, end), None, length=steps, unroll=steps if unroll else 1)[0][1]
    return result if is_nan is None else lax.select(is_nan, end, result)


def sorted_back(order, values):
    """The array that has each of the values at its place in `order`, a permutation: what a sort by `order` has moved."""
    return indexing.scatter_at(shaping.full_like(values, 0), order, values, "set", mode="promise_in_bounds",
                               unique_indices=True, wrap_negative_indices=False)


def _ranks(x):
    """Where each element goes when the array is sorted, equals in order."""
    positions = shaping.iota(dtypes.int32, x.size)
    order = lax.sort((x, positions), num_keys=1)[1]
    return sorted_back(order, positions)


def _search_sorting(a, v, side: str):
    flat = shaping.reshape(v, (aval_of(v).size,))
    count = flat.size
    both = [flat, a] if side == "left" else [a, flat]  # equals stay in this order
    ranks = _ranks(shaping.concatenate(both, 0))
    start = 0 if side == "left" else aval_of(a).size
    result = lax.slice_in_dim(ranks, start, start + count) - _ranks(flat)
    return shaping.reshape(result, aval_of(v).shape)


def _search_comparing(a, v, side: str):
    rank = aval_of(v).ndim
    shape = (aval_of(a).size, *aval_of(v).shape)
    later = _before(shaping.broadcast_in_dim(a, shape, (0,)), shaping.broadcast_in_dim(v, shape, range(1, rank + 1)),
                    side == "right")
    return lax.reduce_sum(shaping.convert(later, dtypes.int32, False), (0,))


_METHODS: dict[str, Callable] = {
    "compare_all": _search_comparing,
    "scan": lambda a, v, side: _search_halving(a, v, side, False),
    "scan_unrolled": lambda a, v, side: _search_halving(a, v, side, True),
    "sort": _search_sorting,
}


@api
def searchsorted(a, v, side: str = "left", sorter=None, *, method: str = "scan"):
    """Where elements would have to be inserted to keep an array sorted.

    Args:
      a: one axis, sorted in ascending order, or by `sorter`.
      v: what to insert; any shape.
      side: 'left' of equal elements or 'right' of them.
      sorter: the positions that sort `a`, as `argsort` gives them.
      method: 'scan' halves in a loop, 'scan_unrolled' without a loop (a longer program, faster on some devices),
        'sort' sorts both together (for many `v`), 'compare_all' compares each with each (for short `a`).
    Returns: integers of v's shape.
    Raises: ValueError for other sides and methods, or an array `a` without exactly one axis.

    >>> import jaxlite.numpy as jnp
    >>> jnp.searchsorted(jnp.array([1, 2, 2, 3]), jnp.array([0, 2, 9]))
    Array([0, 1, 4], dtype=int32)
    """
    check_given("searchsorted", a, v, sorter)
    if side not in ("left", "right"):
        raise ValueError(f"invalid argument side={side!r}, expected 'left' or 'right'")
    if method not in _METHODS:
        raise ValueError(f"invalid argument method={method!r}, expected one of {sorted(_METHODS)}")
    if aval_of(a).ndim != 1:
        raise ValueError(f"a should be 1-dimensional, got shape {aval_of(a).shape}")
    a, v = promote_dtypes(a, v)
    if sorter is not None:
        a = indexing.take(a, sorter, 0, mode="clip") if a.size else a
    dtype = dtypes.int32 if not exceeds(a.shape, 2**31 - 1) else dtypes.canonicalize_dtype(np.int64)
    if not a.size:
        return shaping.full(v.shape, 0, dtype)
    return shaping.convert(_METHODS[method](a, v, side), dtype, False)


@api
def digitize(x, bins, right: bool = False, *, method: str | None = None):
    """The bin that each element is in: how many edges are not above it.

    Args:
      bins: the edges, in ascending or in descending order.
      right: whether an element on an edge belongs to the bin that ends there, not to that which begins there.
      method: as in `searchsorted`.
    Raises: ValueError for edges of other than one axis.
    """
    x, bins = as_arrays("digitize", x, bins)
    if bins.ndim != 1:
        raise ValueError(f"digitize: bins must be a 1-dimensional array; got shape {bins.shape}")
    count = bins.size
    if not count:
        return shaping.full(x.shape, 0, dtypes.int32)
    side, method = "left" if right else "right", method or "scan"
    first, last = bins[0], bins[-1]
    above = searchsorted(bins, x, side=side, method=method)
    below = count - searchsorted(shaping.rev(bins, (0,)), x, side=side, method=method)
    return lax.select_n(last >= first, below, above)
