"""Sorting: whole axes, positions, several keys, partitions.

NaN comes last, -0.0 and 0.0 are equal, complex numbers are ordered by real, then imaginary part.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from jaxlite import lax
from jaxlite.core import dtypes
from jaxlite.core.axes import with_sizes
from jaxlite.core.filtering import boundary
from jaxlite.core.tracing import Tracer
from jaxlite.core.values import ArrayImpl, aval_of
from jaxlite.lax import elementwise, shaping
from jaxlite.numpy import indexing, selection
from jaxlite.numpy.api import api, as_array, as_arrays, check_arrays
from jaxlite.transforms.custom_derivatives import custom_jvp


def _refuse(name: str, kind, order) -> None:
    if kind is not None:
        raise TypeError(f"'kind' argument to {name} is not supported. Use stable=True or stable=False to specify sort "
                        "stability.")
    if order is not None:
        raise TypeError(f"'order' argument to {name} is not supported.")


def _line(name: str, a, axis) -> tuple[Any, int]:
    """The array and the axis to sort: the flattened array and 0 for None."""
    a = as_arrays(name, a)
    if axis is None:
        return a.ravel(), 0
    return a, shaping.canonical_axis(operator.index(axis), a.ndim)


@api
def sort(a, axis: int | None = -1, *, kind: None = None, order: None = None, stable: bool = True,
         descending: bool = False):
    """The elements of each line along an axis in ascending order.

    Args:
      axis: int; None sorts the flattened array.
      stable: whether equal elements (0.0 and -0.0) keep their order.
      descending: the other way round, NaN first.
    Raises: ValueError for an axis out of range.

    >>> import jaxlite.numpy as jnp
    >>> jnp.sort(jnp.array([[3, 1, 2], [9, 7, 8]]))
    Array([[1, 2, 3],
           [7, 8, 9]], dtype=int32)
    """
    _refuse("sort", kind, order)
    a, axis = _line("sort", a, axis)
    result = lax.sort(a, dimension=axis, is_stable=bool(stable))
    return shaping.rev(result, (axis,)) if descending else result


@api
def argsort(a, axis: int | None = -1, *, kind: None = None, order: None = None, stable: bool = True,
            descending: bool = False, dtype: Any = None):
    """The positions that sort an axis: `take_along_axis(a, argsort(a), -1)` is `sort(a)`.

    Args: as in `sort`; with `stable`, equal elements keep their order in both directions.
      dtype: of the positions; the default integer without.

    >>> import jaxlite.numpy as jnp
    >>> jnp.argsort(jnp.array([30, 10, 20]))
    Array([1, 2, 0], dtype=int32)
    """
    _refuse("argsort", kind, order)
    a, axis = _line("argsort", a, axis)
    dtype = dtypes.requested_dtype(dtype, "argsort", int)
    positions = shaping.broadcasted_iota(dtype, aval_of(a).shape, axis)
    backwards = stable and descending  # then reversing at the end restores the order of equals
    if backwards:
        a, positions = shaping.rev(a, (axis,)), shaping.rev(positions, (axis,))
    _, result = lax.sort((a, positions), dimension=axis, is_stable=bool(stable), num_keys=1)
    return shaping.rev(result, (axis,)) if descending else result


@api
def lexsort(keys, axis: int = -1, *, batch_size: int = 16):
    """The positions that sort an axis by several keys, the last of them first in importance.

    Args:
      keys: a sequence of arrays of one shape, or an array whose rows are the keys.
      batch_size: how many rows of an array are compared at once; the order is the same.
    Raises: TypeError for no keys, ValueError for shapes that differ.

    >>> import jaxlite.numpy as jnp
    >>> jnp.lexsort((jnp.array([5, 4, 3]), jnp.array([1, 2, 1])))
    Array([2, 0, 1], dtype=int32)
    """
    if isinstance(keys, (np.ndarray, ArrayImpl, Tracer)):
        if not aval_of(keys).shape:
            raise TypeError("iteration over a 0-d array")
        if aval_of(keys).shape[0] > batch_size and aval_of(keys).ndim > 1:
            return _lexsort_by_loop(keys, shaping.canonical_axis(axis, aval_of(keys).ndim - 1), batch_size)
        keys = shaping.unstack(keys) if aval_of(keys).shape[0] else ()
    if not isinstance(keys, Sequence) or not keys:
        raise TypeError("need sequence of keys with len > 0 in lexsort")
    check_arrays("lexsort", *keys)
    arrays = [as_array(key) for key in keys]
    shape = aval_of(arrays[0]).shape
    if any(aval_of(key).shape != shape for key in arrays):
        raise ValueError("all keys need to be the same shape, got "
                         + ", ".join(str(aval_of(key).shape) for key in arrays))
    dtype = dtypes.default_dtype(int)
    if not shape:
        return shaping.full((), 0, dtype)
    axis = shaping.canonical_axis(axis, len(shape))
    positions = shaping.broadcasted_iota(dtype, shape, axis)
    return lax.sort((*arrays[::-1], positions), dimension=axis, num_keys=len(arrays))[-1]


def _lexsort_by_loop(keys, axis: int, most: int):
    """`lexsort` by the rows of an array, some at a time, from the least important ones on: each row read by itself is a kernel,
    and takes 10 ms to compile."""
    aval = aval_of(keys)
    count = -(-aval.shape[0] // -(-aval.shape[0] // most))
    missing = -aval.shape[0] % count  # rows in front that are all equal change nothing
    keys = shaping.pad(keys, shaping.full((), 0, aval.dtype), [(missing, 0, 0)] + [(0, 0, 0)] * (aval.ndim - 1))
    keys = shaping.reshape(keys, (keys.shape[0] // count, count, *aval.shape[1:]))

    def step(positions, some):
        moved = indexing.take_along_axis(some, positions[None], axis + 1, mode="promise_in_bounds")
        return lax.sort((*shaping.unstack(moved)[::-1], positions), dimension=axis, num_keys=count)[-1], None

    start = shaping.broadcasted_iota(dtypes.default_dtype(int), aval.shape[1:], axis)
    return lax.scan(step, start, keys)[0]


# --- partitions --------------------------------------------------------------------------------------
# By sorting; XLA:CPU has a sort of its own for integers alone, which is faster than its top_k.

_INTEGERS = {np.dtype(name): np.dtype(f"int{bits}") for name, bits in (
    ("float16", 16), (dtypes.bfloat16, 16), ("float32", 32), ("float64", 64))}


def _as_integers(a):
    """Floats as integers of their order, in which -0.0 comes before 0.0, and all NaN are one and last. Others as they are."""
    dtype = _INTEGERS.get(a.dtype)
    if dtype is None:
        return a
    greatest = np.iinfo(dtype).max
    bits = lax.bitcast_convert_type(a, dtype)
    bits = selection.where(bits < 0, bits ^ greatest, bits)  # those of negative floats grow with their size
    return selection.where(elementwise.ne(a, a), greatest, bits)


def _as_floats(order, dtype):
    """The floats of integers that `_as_integers` made, in a dtype."""
    if order.dtype == dtype:
        return order
    greatest = np.iinfo(order.dtype).max
    return lax.bitcast_convert_type(selection.where(order < 0, order ^ greatest, order), dtype)


# Elements of a line of float32 of which top_k finds the positions of the largest faster than sorting, and the part of longer
# ones; positions with all of which each of the others is compared.
_SELECTED, _FEW, _COUNTED = 8192, 8, 16


def _negative(a):
    """What is the larger the earlier an element comes in ascending order: NaN of either sign is last, so it is the least."""
    return elementwise.select(elementwise.ne(a, a), elementwise.neg(elementwise.abs(a)), elementwise.neg(a))


def _partition_line(name: str, a, kth, axis) -> tuple[Any, int, int]:
    """The array, its axis and kth, both counted from the front."""
    a = as_arrays(name, a)
    axis = shaping.canonical_axis(axis, a.ndim)
    size = a.shape[axis]
    kth = operator.index(kth)
    if not -size <= kth < size:
        raise ValueError(f"{name}: kth {kth} is out of bounds for the size {size} of axis {axis} of shape "
                         f"{a.shape}")
    return a, axis, kth % size


@api
def partition(a, kth: int, axis: int = -1):
    """Each line with the element that sorting would put at `kth` there, none greater before, none less after.

    Raises: ValueError for `kth` or `axis` out of range.

    >>> import jaxlite.numpy as jnp
    >>> jnp.partition(jnp.array([5, 1, 4, 2, 3]), 2)
    Array([1, 2, 3, 5, 4], dtype=int32)
    """
    a, axis, kth = _partition_line("partition", a, kth, axis)
    return _partition(a, kth, axis)


@partial(custom_jvp, nondiff_argnums=(1, 2))
def _partition(a, kth: int, axis: int):
    ordered = _turned(lax.sort(_as_integers(a), dimension=axis), kth, axis)
    return shaping.convert(_as_floats(ordered, a.dtype), None, aval_of(a).weak_type)


@_partition.defjvp
def _partition_jvp(kth: int, axis: int, primals, tangents):
    (a,), (tangent,) = primals, tangents
    _, order = lax.sort((a, shaping.broadcasted_iota(dtypes.int32, aval_of(a).shape, axis)), dimension=axis, num_keys=1)
    order = _turned(order, kth, axis)
    return tuple([indexing.take_along_axis(x, order, axis, mode="promise_in_bounds") for x in (a, tangent)])


def _turned(ordered, kth: int, axis: int):
    """Sorted lines with what comes behind an element the other way round, as JAX has it."""
    least = lax.slice_in_dim(ordered, 0, kth + 1, axis=axis)
    rest = lax.slice_in_dim(ordered, kth + 1, aval_of(ordered).shape[axis], axis=axis)
    return shaping.concatenate([least, shaping.rev(rest, (axis,))], axis)


@boundary
def top_k(a, k: int, /, *, axis: int = -1, mode: str = "largest", sorted: bool = True) -> tuple[Any, Any]:
    """The k largest or smallest elements along an axis, in order, and their positions (int32); of equal ones the first.

    Args:
      mode: "largest" or "smallest".
      sorted: False lets the order be any; it is the same here.

    Raises: ValueError for `k`, `axis` or `mode` out of range.

    >>> import jaxlite.numpy as jnp
    >>> jnp.top_k(jnp.array([5, 1, 4]), 2, mode="smallest")
    (Array([1, 4], dtype=int32), Array([1, 2], dtype=int32))
    """
    if mode not in ("largest", "smallest"):
        raise ValueError(f"mode must be 'largest' or 'smallest', got {mode!r}")
    a = as_arrays("top_k", a)
    return _top_k(a, k=operator.index(k), axis=shaping.canonical_axis(axis, a.ndim), largest=mode == "largest")


@api
def _top_k(a, k: int, axis: int, largest: bool) -> tuple[Any, Any]:
    if largest:
        values, positions = lax.top_k(a, k, axis=axis)
        return values, positions
    turn = elementwise.bitwise_not if dtypes.kind(a.dtype) in "iub" else elementwise.neg
    values, positions = lax.top_k(turn(a), k, axis=axis)  # the larger, the earlier in ascending order
    return turn(values), positions


@api
def argpartition(a, kth: int, axis: int = -1):
    """The positions that partition an axis, as `partition` does; those after `kth` in ascending order."""
    a, axis, kth = _partition_line("argpartition", a, kth, axis)
    shape = aval_of(a).shape
    if a.dtype == np.float32 and len(shape) <= 2 and (shape[axis] <= _SELECTED or kth < shape[axis] // _FEW):
        least = lax.top_k(_negative(a), kth + 1, axis=axis)[1]
    else:
        _, order = lax.sort((a, shaping.broadcasted_iota(dtypes.int32, shape, axis)), dimension=axis, num_keys=1)
        least = lax.slice_in_dim(order, 0, kth + 1, axis=axis)
    return shaping.concatenate([least, _other_positions(least, shape[axis], axis)], axis)


def _other_positions(some, size: int, axis: int):
    """The positions in lines of a size that are not among some, in ascending order."""
    shape = aval_of(some).shape
    iota = partial(shaping.broadcasted_iota, dtypes.int32)
    others = with_sizes(shape, axis, size - shape[axis])
    if shape[axis] > _COUNTED:
        left = indexing.put_along_axis(iota(with_sizes(shape, axis, size), axis), some, size, axis, inplace=False)
        return lax.slice_in_dim(lax.sort(left, dimension=axis), 0, others[axis], axis=axis)
    # The i-th of the others is i, and one more for each of the some that have at most i others before them.
    each, rest = shaping.expand_dims(some, (axis + 1,)), iota(others, axis)
    some_before = _count(elementwise.lt(shaping.expand_dims(some, (axis,)), each), axis + 1)
    others_before = shaping.expand_dims(elementwise.sub(some, some_before), (axis + 1,))
    return elementwise.add(rest, _count(elementwise.le(others_before, shaping.expand_dims(rest, (axis,))), axis))


def _count(mask, axis: int):
    return lax.reduce_sum(shaping.convert(mask, dtypes.int32, False), (axis,))


@api
def sort_complex(a):
    """The last axis sorted, as complex numbers."""
    a = as_arrays("sort_complex", a)
    return shaping.convert(lax.sort(a, dimension=shaping.canonical_axis(-1, a.ndim)),
                           dtypes.to_complex_dtype(a.dtype), False)
