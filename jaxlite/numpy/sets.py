"""Sets: unique elements, unions, intersections, differences, membership.

The sizes of such results depend on values. With `size` they are static, and the functions work under a trace; without it,
one compiled call returns a result of the largest possible size, and the host slices it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from jaxlite import lax
from jaxlite.core import dtypes
from jaxlite.core.errors import ConcretizationTypeError
from jaxlite.core.filtering import boundary
from jaxlite.core.tracing import Tracer, set_trace, state
from jaxlite.core.values import aval_of
from jaxlite.lax import shaping
from jaxlite.numpy import indexing, manipulation, searching, selection, sorting
from jaxlite.numpy.api import (
    api,
    as_array,
    as_arrays,
    broadcasts_inside,
    check_arrays,
    check_given,
    promote_dtypes,
    scalar,
    unwrapped,
)
from jaxlite.traces.eager import eager_trace


def _sized(name: str, size, longest: int, call: Callable[[int], tuple[Any, ...]], *arrays,
           whole: tuple[int, ...] = ()) -> list[Any]:
    """The results of `call(size)`, which gives the number of elements found and then arrays of `size` elements.

    Without a size, call it with the longest possible, and cut all but the arrays numbered in `whole`.
    """
    if size is not None:
        size = operator.index(size)
        if size < 0:
            raise ValueError(f"{name}: size must not be negative, got {size}")
        return list(call(size)[1:])
    traced = [array for array in unwrapped(arrays) if isinstance(array, Tracer)]
    for array in traced:
        if isinstance(array.known(), Tracer):
            raise ConcretizationTypeError(array, f"pass the size argument to jnp.{name}: the size of its result "
                                                 "depends on data, unless it is given")
    with set_trace(state.trace if traced else eager_trace):
        found, *results = call(longest)
        count = int(found)
        return [each if number in whole else _cut(each, count) for number, each in enumerate(results)]


def _needed(size, fill_value):
    """A fill value, or None where nothing is filled up."""
    return None if size is None else fill_value


def _cut(x, count: int):
    """The first elements, by the host: another size would be another program."""
    aval = aval_of(x)
    if count == aval.shape[0]:
        return x
    if isinstance(x, Tracer):  # of a derivative
        traced: Any = x
        return lax.slice_in_dim(traced, 0, count)
    return searching.put_beside(searching.host_value("unique", x)[:count], x, aval.weak_type)


def _flat(x):
    """Flattened. Complex numbers are strongly typed, as in JAX, which sorts their parts."""
    flat = shaping.reshape(x, (aval_of(x).size,))
    return shaping.convert(flat, None, False) if dtypes.kind(aval_of(x).dtype) == "c" else flat


def _is_nan(x):
    return lax.ne(x, x)


def _has_nan(x) -> bool:
    return dtypes.kind(aval_of(x).dtype) in "fc"


def _neighbours(x) -> tuple[Any, Any]:
    """All but the first, and all but the last elements."""
    return x[1:], x[:-1]


def _with_first(rest):
    """True, and the rest."""
    return shaping.concatenate([shaping.full((1,), True, dtypes.bool_), rest], 0)


# --- distinct elements -------------------------------------------------------------------------------


@boundary
def unique(ar, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False,
           axis: int | None = None, *, equal_nan: bool = True, size: int | None = None, fill_value=None,
           sorted: bool = True):
    """The distinct elements of an array, or slices along an axis, in ascending order.

    Args:
      return_index: also give where each is first; return_inverse: also give which one each element of `ar` is;
      return_counts: also give how often each occurs (0 for those that fill up).
      axis: int; None compares the elements of the flattened array.
      equal_nan: whether all NaN are one.
      size: how many to give, so that the result has a static shape: more are cut off, fewer filled up.
      fill_value: what to fill up with; the least element by default.
      sorted: without effect, the result is always sorted.
    Returns: the array, or a tuple of it and what else is requested, in the order above. Without `size`, `ar` must
      be concrete.
    Raises: ConcretizationTypeError for a traced array without `size`; ValueError for nothing to fill up with.

    >>> import jaxlite.numpy as jnp
    >>> jnp.unique(jnp.array([3, 1, 3, 2]), return_counts=True)
    (Array([1, 2, 3], dtype=int32), Array([1, 1, 2], dtype=int32))
    """
    return _distinct("unique", ar, size, fill_value, bool(return_index), bool(return_inverse), bool(return_counts), axis,
                     bool(equal_nan))


def _distinct(name: str, ar, size, fill_value, index: bool = False, inverse: bool = False, counts: bool = False, axis=None,
              equal_nan: bool = False):
    check_arrays(name, ar)
    fill_value = _needed(size, fill_value)
    check_given(name, fill_value)
    aval = aval_of(ar)
    if axis is None:
        count = aval.size
    else:
        axis = shaping.canonical_axis(operator.index(axis), aval.ndim)
        count = aval.shape[axis]
    if not count and size and fill_value is None:
        raise ValueError(f"jnp.{name}: for zero-sized input with nonzero size argument, fill_value must be specified")
    results = _sized(name, size, count, lambda size: _unique(
        ar, fill_value, axis=axis, equal_nan=equal_nan, size=size, index=index, inverse=inverse, counts=counts), ar,
        whole=(1 + index,) if inverse else ())
    if axis:
        results[0] = manipulation.moveaxis(results[0], 0, axis)
    return tuple(results) if index or inverse or counts else results[0]


@api
def _unique(ar, fill_value, axis: int | None, equal_nan: bool, size: int, index: bool, inverse: bool,
            counts: bool) -> tuple[Any, ...]:
    """How many are distinct, and the results of `unique`; the axis comes first."""
    ar = as_array(ar)
    shape = ar.shape
    ar = _flat(ar) if axis is None else manipulation.moveaxis(ar, axis, 0)
    if dtypes.kind(ar.dtype) == "c":  # sorted by the real part, NaN in the other would be anywhere
        ar = shaping.convert(lax.select(_is_nan(ar), shaping.full_like(ar, np.nan), ar), None, False)
    count, *rest = ar.shape
    dtype = dtypes.default_dtype(int)
    if not count:
        empty = shaping.full((0,), 0, dtype)
        filled = shaping.full((size, *rest), 0, ar.dtype)
        if size:
            filled = shaping.of_user(manipulation.broadcast_to(fill_value, (size, *rest)), ar.dtype)
        zeros = shaping.full((size,), 0, dtype)
        return (shaping.full((), 0, dtype), filled, *[zeros] * index,
                *[empty if axis is not None else shaping.reshape(empty, shape)] * inverse, *[zeros] * counts)
    order = None
    if rest:
        rows = shaping.reshape(ar, (count, int(np.prod(rest))))
        keys = shaping.transpose(shaping.rev(rows, (1,)), (1, 0))  # the last one counts first
        order = sorting.lexsort(keys) if rows.shape[1] else shaping.iota(dtype, count)
        ordered = indexing.take(ar, order, 0, mode="clip")
    elif index or inverse:
        ordered, order = lax.sort((ar, shaping.iota(dtype, count)), num_keys=1)
    else:
        ordered = lax.sort(ar)
    new = lax.ne(*_neighbours(ordered))
    if equal_nan and _has_nan(ar):
        new = new & ~lax.bitwise_and(*map(_is_nan, _neighbours(ordered)))
    if rest:
        new = lax.reduce_or(new, range(1, len(rest) + 1))
    new = _with_first(new)
    starts, found = searching.true_positions(new, size + 1, count)  # one more, for the end of the last one
    begins = lax.slice_in_dim(starts, 0, size)
    missing = shaping.iota(dtype, size) >= found
    picked = lax.select(missing, shaping.full_like(begins, 0), begins)
    values = indexing.take(ordered, picked, 0, mode="clip")
    if fill_value is not None:
        fill = shaping.of_user(manipulation.broadcast_to(fill_value, (size, *rest)), ar.dtype)
        values = lax.select(shaping.broadcast_in_dim(missing, (size, *rest), (0,)), fill, values)
    values = shaping.convert(values, None, ar.weak_type and fill_value is None)
    results = [found, values]
    if index:
        results.append(indexing.take(order, picked, 0, mode="clip"))
    if inverse:
        rank = lax.cumsum(shaping.convert(new, dtype, False), 0) - 1
        back = searching.sorted_back(order, rank)
        results.append(shaping.reshape(back, shape) if axis is None else back)
    if counts:
        results.append(lax.slice_in_dim(starts, 1, size + 1) - begins)
    return tuple(results)


class _UniqueAllResult(NamedTuple):
    values: Any
    indices: Any
    inverse_indices: Any
    counts: Any


class _UniqueCountsResult(NamedTuple):
    values: Any
    counts: Any


class _UniqueInverseResult(NamedTuple):
    values: Any
    inverse_indices: Any


@boundary
def unique_all(x, /, *, size: int | None = None, fill_value=None) -> _UniqueAllResult:
    """The distinct elements, where each is first, which one each element is, and counts. Each NaN is its own."""
    return _UniqueAllResult(*_distinct("unique_all", x, size, fill_value, index=True, inverse=True, counts=True))


@boundary
def unique_counts(x, /, *, size: int | None = None, fill_value=None) -> _UniqueCountsResult:
    """The distinct elements, and how often each occurs. Each NaN is its own."""
    return _UniqueCountsResult(*_distinct("unique_counts", x, size, fill_value, counts=True))


@boundary
def unique_inverse(x, /, *, size: int | None = None, fill_value=None) -> _UniqueInverseResult:
    """The distinct elements, and which one each element is. Each NaN is its own."""
    return _UniqueInverseResult(*_distinct("unique_inverse", x, size, fill_value, inverse=True))


@boundary
def unique_values(x, /, *, size: int | None = None, fill_value=None):
    """The distinct elements. Each NaN is its own."""
    return _distinct("unique_values", x, size, fill_value)


# --- two sets ----------------------------------------------------------------------------------------


def _pair(name: str, ar1, ar2) -> tuple[int, int]:
    """The sizes of the two arrays, checked."""
    check_arrays(name, ar1, ar2)
    return aval_of(ar1).size, aval_of(ar2).size


@boundary
def union1d(ar1, ar2, *, size: int | None = None, fill_value=None):
    """The elements of one array or the other, distinct and sorted. `size` and `fill_value` are as in `unique`."""
    _pair("union1d", ar1, ar2)
    if isinstance(ar1, Tracer) or isinstance(ar2, Tracer):
        both = _both(ar1, ar2)
    else:
        with set_trace(eager_trace):
            both = _both(ar1, ar2)
    return _distinct("union1d", both, size, fill_value, equal_nan=True)


@api
def _both(ar1, ar2):
    return shaping.concatenate([_flat(each) for each in promote_dtypes(ar1, ar2)], 0)


def _sorted_together(ar1, ar2) -> tuple[Any, Any]:
    """The elements of two flat arrays in one order, equals from the first before those from the second; and the
    position of each in their concatenation."""
    both = shaping.concatenate([ar1, ar2], 0)
    return lax.sort((both, shaping.iota(dtypes.default_dtype(int), both.size)), num_keys=1)


def _first_of_equals(new):
    """For each element of a sorted array where its run of equals starts, from a mask of those that start one."""
    dtype = dtypes.default_dtype(int)
    positions = shaping.iota(dtype, new.size)
    return lax.cummax(lax.select(new, positions, shaping.full_like(positions, 0)), 0)


def _filled(values, found, fill_value):
    """Values with what is beyond the found ones replaced: by the first one if there is one, else by 0. A fill value is
    promoted together with them."""
    size = values.shape[0]
    if not size:
        return values
    missing = shaping.iota(dtypes.default_dtype(int), size) >= found
    if fill_value is None:
        first = values[:1]
        fill = lax.select(missing[:1], shaping.full_like(first, 0), first)
        fill = shaping.broadcast_in_dim(fill, (size,), (0,))
        return lax.select(missing, fill, values)
    return selection.where(missing, manipulation.broadcast_to(fill_value, (size,)), values)


@boundary
def intersect1d(ar1, ar2, assume_unique: bool = False, return_indices: bool = False, *, size: int | None = None,
                fill_value=None):
    """The elements of both arrays, distinct and sorted.

    Args:
      assume_unique: a promise that neither array repeats elements; the result is the same.
      return_indices: also give where each is first in `ar1`, and where in `ar2`.
      size, fill_value: as in `unique`; what fills up the indices is the size of the array.
    """
    first, second = _pair("intersect1d", ar1, ar2)
    fill_value = _needed(size, fill_value)
    results = _sized("intersect1d", size, min(first, second), lambda size: _intersection(
        ar1, ar2, fill_value, size=size, indices=bool(return_indices), unique=bool(assume_unique)), ar1, ar2)
    return tuple(results) if return_indices else results[0]


@api
def _intersection(ar1, ar2, fill_value, size: int, indices: bool, unique: bool) -> tuple[Any, ...]:
    ar1, ar2 = map(_flat, promote_dtypes(ar1, ar2))
    count = aval_of(ar1).size
    dtype = dtypes.default_dtype(int)
    if not count or not aval_of(ar2).size:
        found = shaping.full((), 0, dtype)
        ordered = order = begins = crossing = None
        values = shaping.full((size,), 0, aval_of(ar1).dtype)
    else:
        ordered, order = _sorted_together(ar1, ar2)
        later, earlier = _neighbours(ordered)
        equal = lax.eq(later, earlier)
        # A common element is where a run of equals crosses from the first array to the second.
        after, before = _neighbours(lax.ge(order, scalar(count, dtype)))
        crossings = equal & after & ~before
        crossing, found = searching.true_positions(crossings, size)
        begins = indexing.take(_first_of_equals(_with_first(~equal)), crossing, 0, mode="clip")
        values = indexing.take(ordered, begins, 0, mode="clip")
    values = _filled(values, found, fill_value)
    if not indices:
        return found, values
    missing = shaping.iota(dtype, size) >= found
    ends = shaping.full((size,), count, dtype), shaping.full((size,), aval_of(ar2).size, dtype)
    if ordered is None or order is None or crossing is None:
        return found, values, *ends
    places = (indexing.take(order, begins, 0, mode="clip"),
              indexing.take(order, lax.add(crossing, scalar(1, dtype)), 0, mode="clip") - count)
    return found, values, *[lax.select(missing, end, each) for end, each in zip(ends, places, strict=True)]


@boundary
@broadcasts_inside
def setdiff1d(ar1, ar2, assume_unique: bool = False, *, size: int | None = None, fill_value=None):
    """The elements of `ar1` that are not in `ar2`, distinct and sorted; as they come if `assume_unique`.

    `size` is as in `unique`; `fill_value` is 0 by default.
    """
    first, _ = _pair("setdiff1d", ar1, ar2)
    fill_value = _needed(size, fill_value)
    shaping.require_real("setdiff1d", fill_value, aval_of(ar1).dtype)
    return _sized("setdiff1d", size, first, lambda size: _difference(
        ar1, ar2, 0 if fill_value is None else fill_value, size=size, unique=bool(assume_unique)), ar1, ar2)[0]


@api
def _difference(ar1, ar2, fill_value, size: int, unique: bool) -> tuple[Any, ...]:
    ar1, ar2 = map(_flat, as_arrays("setdiff1d", ar1, ar2))
    fill_value = shaping.of_user(fill_value, ar1.dtype)
    count = aval_of(ar1).size
    weak = aval_of(ar1).weak_type
    dtype = dtypes.default_dtype(int)
    if not count:
        values, found = shaping.full((size,), 0, aval_of(ar1).dtype), shaping.full((), 0, dtype)
    else:
        valid = None
        if not unique:
            distinct, ar1 = _unique(ar1, None, axis=None, equal_nan=True, size=count, index=False, inverse=False,
                                    counts=False)
            valid = shaping.iota(dtype, count) < distinct
        kept = isin(ar1, ar2, invert=True)
        if valid is not None:
            kept = kept & valid
        places, found = searching.true_positions(kept, size)
        values = indexing.take(ar1, places, 0, mode="clip")
    return found, shaping.convert(_filled(values, found, fill_value), None, weak)


@boundary
def setxor1d(ar1, ar2, assume_unique: bool = False, *, size: int | None = None, fill_value=None):
    """The elements of one array but not the other, distinct and sorted. `size` and `fill_value` are as in `unique`.

    NaN of the two arrays are not equal.
    """
    first, second = _pair("setxor1d", ar1, ar2)
    fill_value = _needed(size, fill_value)
    return _sized("setxor1d", size, first + second, lambda size: _exclusive(
        ar1, ar2, fill_value, size=size), ar1, ar2)[0]


@api
def _exclusive(ar1, ar2, fill_value, size: int) -> tuple[Any, ...]:
    ar1, ar2 = map(_flat, promote_dtypes(ar1, ar2))
    dtype = dtypes.default_dtype(int)
    if not aval_of(ar1).size + aval_of(ar2).size:
        found, values = shaping.full((), 0, dtype), shaping.full((size,), 0, aval_of(ar1).dtype)
    else:
        ordered, order = _sorted_together(ar1, ar2)
        from_second = lax.ge(order, scalar(aval_of(ar1).size, dtype))
        same = lax.eq(*_neighbours(ordered))
        if _has_nan(ordered):  # NaN of one array are equal
            both_nan = lax.bitwise_and(*map(_is_nan, _neighbours(ordered)))
            same = same | both_nan & lax.eq(*_neighbours(from_second))
        starts = _with_first(~same)
        ends = shaping.concatenate([~same, shaping.full((1,), True, dtypes.bool_)], 0)
        # In a run of equals those of the first array come first: one that starts in the second array, or ends in
        # the first, is in one array only.
        alone = lax.select(from_second, starts, ends)
        places, found = searching.true_positions(alone, size)
        values = indexing.take(ordered, places, 0, mode="clip")
    return found, _filled(values, found, fill_value)


# --- membership --------------------------------------------------------------------------------------

_COMPARED = 1 << 20  # comparisons that XLA:CPU does faster than it sorts and searches


@api
@broadcasts_inside
def isin(element, test_elements, assume_unique: bool = False, invert: bool = False, *, method: str = "auto"):
    """Whether each element is in another array. NaN is not.

    Args:
      assume_unique: a promise that neither array repeats elements; the result is the same.
      invert: ask whether it is not.
      method: 'compare_all' compares each with each, 'binary_search' sorts the other array and searches it, 'sort'
        sorts both together, 'auto' takes one of the first two by size.
    Returns: booleans of element's shape.
    Raises: ValueError for another method.

    >>> import jaxlite.numpy as jnp
    >>> jnp.isin(jnp.array([1, 2, 3]), jnp.array([3, 1]))
    Array([ True, False,  True], dtype=bool)
    """
    check_arrays("isin", element, test_elements)
    if method not in ("auto", "binary_search", "compare_all", "sort"):
        raise ValueError(f"{method=} is not implemented; options are 'compare_all', 'binary_search', 'sort', and "
                         "'auto'")
    element, other = promote_dtypes(element, test_elements)
    other = _flat(other)
    shape, count = element.shape, other.size
    if not count or 0 in shape:
        return shaping.full(shape, bool(invert), dtypes.bool_)
    if method == "auto":
        is_small = type(count) is int and (count <= 32 or type(element.size) is int and element.size * count <= _COMPARED)
        method = "compare_all" if is_small else "binary_search"
    if method == "compare_all":
        each = shaping.expand_dims(element, (len(shape),))
        result = lax.reduce_or(each == other, (len(shape),))
    elif method == "binary_search":
        other = lax.sort(other)
        place = searching.searchsorted(other, element)
        # One past the end is clipped to the last, which is not equal then.
        result = element == indexing.take(other, place, 0, mode="clip")
    else:
        result = shaping.reshape(_member_by_sorting(_flat(element), other), shape)
    return ~result if invert else result


def _member_by_sorting(element, other):
    dtype = dtypes.default_dtype(int)
    count = scalar(other.size, dtype)
    ordered, order = _sorted_together(other, element)
    begins = _first_of_equals(_with_first(lax.ne(*_neighbours(ordered))))
    found = indexing.take(order, begins, 0, mode="clip") < count
    return lax.slice_in_dim(searching.sorted_back(order, found), other.size, aval_of(ordered).size)
