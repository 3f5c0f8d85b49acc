"""Reading and replacing windows of an array: static and dynamic slices.

A window that would extend beyond the end is clamped. `gather_scatter.py` has other modes, and many windows at once.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxlite.compilation.jit import jit
from jaxlite.core import dtypes
from jaxlite.core.aval import Ints, ShapedArray, shaped_array
from jaxlite.core.axes import other_axes, with_ones
from jaxlite.core.filtering import boundary
from jaxlite.core.primitive import Primitive
from jaxlite.core.symbolic import Dim, as_size
from jaxlite.core.tracing import Tracer, is_eager
from jaxlite.core.values import ArrayImpl, aval_of
from jaxlite.lax import elementwise, shaping
from jaxlite.lax.gather_scatter import GatherDimensionNumbers, GatherScatterMode, gather
from jaxlite.traces.host import eager_jit

# --- static positions --------------------------------------------------------------------------------

slice_p = Primitive("slice")


def _are_ints(name: str, what: str, values) -> Ints:
    try:
        return tuple(map(as_size, values))
    except TypeError:
        for value in values:
            if isinstance(value, Tracer):
                value.__index__()  # raises with the value's history
        kinds = ", ".join(str(type(value)) for value in values)
        raise TypeError(f"{name} {what} must have every element be an integer type, got ({kinds}).") from None


@slice_p.def_abstract_eval
def _slice_aval(x, *, start_indices: Ints, limit_indices: Ints, strides: Ints | None) -> ShapedArray:
    shape = x.shape
    if len(start_indices) != len(shape):
        raise TypeError(f"slice start_indices must have length equal to the number of dimensions of the operand, got "
                        f"indices {start_indices} for operand shape {shape}.")
    if len(limit_indices) != len(start_indices):
        raise TypeError(f"slice limit_indices must have the same length as start_indices, got start_indices "
                        f"{start_indices} and limit_indices {limit_indices}.")
    if any([limit > size for limit, size in zip(limit_indices, shape)]):
        raise TypeError(f"slice limit_indices must be less than or equal to operand shape, got limit_indices "
                        f"{limit_indices} for operand shape {shape}.")
    if any([start < 0 for start in start_indices]):
        raise TypeError(f"slice start_indices must have every element be nonnegative, got {start_indices}.")
    if any([limit < start for start, limit in zip(start_indices, limit_indices)]):
        raise TypeError(f"slice limit_indices must be greater than or equal to start_indices, got start_indices "
                        f"{start_indices} and limit_indices {limit_indices}.")
    sizes = [limit - start for start, limit in zip(start_indices, limit_indices)]
    if strides is not None:
        if len(strides) != len(shape):
            raise TypeError(f"slice strides must have length equal to the number of dimensions of the operand, got "
                            f"strides {strides} for operand shape {shape}.")
        if any([stride <= 0 for stride in strides]):
            raise TypeError(f"slice strides must have every element be positive, got {strides}.")
        sizes = [(size + stride - 1) // stride for size, stride in zip(sizes, strides)]
    return shaped_array(tuple(sizes), x.dtype, x.weak_type)


@boundary
def slice(operand, start_indices: Sequence[int], limit_indices: Sequence[int], strides: Sequence[int] | None = None):
    """The box between two corners: `operand[start:limit:stride]` on every axis.

    Args:
      start_indices, limit_indices: one int for each axis, 0 <= start <= limit <= size.
      strides: positive ints; all 1 if not given.
    Raises: TypeError for positions outside the operand or of the wrong number.

    >>> import jaxlite.numpy as jnp
    >>> from jaxlite import lax
    >>> lax.slice(jnp.arange(12).reshape(3, 4), (1, 0), (3, 4), (1, 3))
    Array([[ 4,  7],
           [ 8, 11]], dtype=int32)
    """
    starts = _are_ints("slice", "start_indices", start_indices)
    limits = _are_ints("slice", "limit_indices", limit_indices)
    steps = None if strides is None else _are_ints("slice", "strides", strides)
    return slice_p.bind(operand, start_indices=starts, limit_indices=limits, strides=steps)


def slice_in_dim(operand, start_index: int | None, limit_index: int | None, stride: int = 1, axis: int = 0):
    """`slice` along one axis, whole on the others. Negative positions count from the end; None is the end itself."""
    shape = aval_of(operand).shape
    axis = shaping.canonical_axis(axis, len(shape))
    size = shape[axis]
    bounds = [0, size]
    for which, given in enumerate((start_index, limit_index)):
        if given is not None:
            position = as_size(given)
            bounds[which] = position + size if position < 0 else position
    starts, limits, strides = [0] * len(shape), list(shape), [1] * len(shape)
    starts[axis], limits[axis], strides[axis] = bounds[0], bounds[1], operator.index(stride)
    return slice(operand, starts, limits, strides)


def index_in_dim(operand, index: int, axis: int = 0, keepdims: bool = True):
    """One position of an axis. The axis stays, with size 1, unless `keepdims` is False.

    Raises: IndexError out of range.
    """
    shape = aval_of(operand).shape
    axis = shaping.canonical_axis(axis, len(shape))
    index, size = as_size(index), shape[axis]
    if not -size <= index < size:
        raise IndexError(f"index {index} is out of bounds for axis {axis} with size {size}")
    index = index + size if index < 0 else index
    result = slice_in_dim(operand, index, index + 1, 1, axis)
    return result if keepdims else shaping.squeeze(result, (axis,))


# --- computed positions ------------------------------------------------------------------------------

dynamic_slice_p = Primitive("dynamic_slice")
dynamic_update_slice_p = Primitive("dynamic_update_slice")


def _check_indices(name: str, indices: Sequence[Any], rank: int) -> None:
    if len(indices) != rank:
        raise TypeError(f"{name} takes one start index for each of the operand's {rank} dimensions, got {len(indices)}")
    if any([index.shape for index in indices]):
        raise TypeError(f"start_indices arguments to {name} must be scalars, got indices "
                        f"({', '.join(str(index) for index in indices)})")
    kinds = {index.dtype for index in indices}
    if len(kinds) > 1 or any([dtypes.kind(kind) not in "iu" for kind in kinds]):
        raise TypeError(f"index arguments to {name} must be integers of the same type, got: "
                        f"{', '.join(str(index.dtype) for index in indices)}")


@dynamic_slice_p.def_abstract_eval
def _dynamic_slice_aval(x, *starts, slice_sizes: Ints) -> ShapedArray:
    shape = x.shape
    if len(slice_sizes) != len(shape):
        raise TypeError(f"slice slice_sizes must have length equal to the number of dimensions of the operand, got "
                        f"slice_sizes {slice_sizes} for operand shape {shape}.")
    if any([part > size for part, size in zip(slice_sizes, shape)]):
        raise TypeError(f"slice slice_sizes must be less than or equal to operand shape, got slice_sizes "
                        f"{slice_sizes} for operand shape {shape}.")
    if any([part < 0 for part in slice_sizes]):
        raise TypeError(f"slice slice_sizes must be greater than or equal to zero, got slice_sizes of {slice_sizes}.")
    _check_indices("dynamic_slice", starts, len(shape))
    return shaped_array(slice_sizes, x.dtype, x.weak_type)


@dynamic_update_slice_p.def_abstract_eval
def _dynamic_update_slice_aval(x, update, *starts) -> ShapedArray:
    elementwise.require_equal_dtypes("dynamic_update_slice", (x, update))
    if len(update.shape) != len(x.shape):
        raise TypeError(f"dynamic_update_slice update must have the same rank as operand, got update shape "
                        f"{update.shape} for operand shape {x.shape}.")
    if any([part > size for part, size in zip(update.shape, x.shape)]):
        raise TypeError(f"dynamic_update_slice update shape must be smaller than operand shape, got update shape "
                        f"{update.shape} for operand shape {x.shape}.")
    _check_indices("dynamic_update_slice", starts, len(x.shape))
    return shaped_array(x.shape, x.dtype, False)


_HOST = (int, np.integer, np.ndarray)


@functools.cache
def integer_limits(dtype) -> tuple[int, int]:
    """The least and the greatest value of an integer type."""
    limits = dtypes.iinfo(dtype)
    return int(limits.min), int(limits.max)


def wrap_negative(index, size: int):
    """An index array with the axis' size added where it is negative."""
    aval = aval_of(index)
    dtype = aval.dtype
    if dtypes.kind(dtype) != "i":
        return index
    negative = elementwise.lt(index, dtype.type(0))
    extent = shaping.convert(size.__jax_array__(), dtype, False) if type(size) is Dim else dtype.type(size)
    from_end = elementwise.add(shaping.convert(index, dtype, False), extent)
    return elementwise.select_n(negative, index, from_end)


def start_positions(name: str, shape: Ints, indices, allow_negative_indices: bool | Sequence[bool] = True) -> list[Any]:
    """Start indices as scalars of one integer type, with the size added to negative ones where that is allowed.

    Positions that are known now are computed now; they take the type of the others.
    Raises: ValueError for a wrong number of indices, TypeError for types other than one integer type.
    """
    rank = len(shape)
    if not isinstance(indices, (tuple, list)):
        aval = aval_of(indices)
        if len(aval.shape) != 1:
            raise TypeError(f"{name} start_indices must be a sequence of scalars or a 1-dimensional array, got {aval}")
        indices = list(indices) if isinstance(indices, np.ndarray) else [
            index_in_dim(indices, i, keepdims=False) for i in range(aval.shape[0])]
    if len(indices) != rank:
        raise ValueError(f"Length of slice indices must match number of operand dimensions ({len(indices)} vs {shape})")
    allowed = [allow_negative_indices] * rank if isinstance(allow_negative_indices, bool) \
        else list(allow_negative_indices)
    if len(allowed) != rank:
        raise ValueError(f"allow_negative_indices has {len(allowed)} entries for an operand of {rank} dimensions")
    typed = [aval_of(index) for index in indices if type(index) is not int]
    _check_indices(name, typed, len(typed))
    dtype = typed[0].dtype if typed else dtypes.canonicalize_dtype(int)
    if typed and any(type(size) is int and size > integer_limits(dtype)[1] for size in shape):
        dtype = dtypes.int32  # the type of the indices is too narrow to count from the end in
        indices = [index if type(index) is int else shaping.convert(index, dtype, False) for index in indices]
    return [_position(index, size, allow, dtype) for index, size, allow in zip(indices, shape, allowed)]


def _position(index, size: int, allow_negative: bool, dtype):
    if not isinstance(index, _HOST):
        return wrap_negative(index, size) if allow_negative else index
    value = int(index)
    if value < 0:
        if not allow_negative:
            raise ValueError(f"Index {value} is out of bounds for dimension {size} if allow_negative_indices=False")
        value += size
    low, high = integer_limits(dtype)
    return dtype.type(max(low, min(value, high)))  # beyond these it is out of bounds in any case


def _is_deferred(indices) -> bool:
    """Whether positions are on a device: then counting from the end and slicing become one compiled call."""
    return is_eager() and (type(indices) is ArrayImpl or
                           isinstance(indices, (tuple, list)) and any([type(index) is ArrayImpl for index in indices]))


def _hashable(flags: bool | Sequence[bool]) -> bool | tuple[bool, ...]:
    return flags if isinstance(flags, bool) else tuple(flags)


def _dynamic_slice(operand, indices, sizes: Ints, allow_negative):
    starts = start_positions("dynamic_slice", aval_of(operand).shape, indices, allow_negative)
    return dynamic_slice_p.bind(operand, *starts, slice_sizes=sizes)


def _dynamic_update_slice(operand, update, indices, allow_negative):
    starts = start_positions("dynamic_update_slice", aval_of(operand).shape, indices, allow_negative)
    return dynamic_update_slice_p.bind(operand, update, *starts)


_compiled_slice = eager_jit(_dynamic_slice, static_argnums=(2, 3))
_compiled_update = eager_jit(_dynamic_update_slice, static_argnums=3)


@boundary
def dynamic_slice(operand, start_indices, slice_sizes, *, allow_negative_indices: bool | Sequence[bool] = True):
    """A box of static size at a computed position; one that would reach over the end is moved back inside.

    Args:
      start_indices: one integer scalar for each axis, or a 1-dimensional array of them; of one type.
      slice_sizes: ints, at most the operand's sizes.
      allow_negative_indices: whether negative positions count from the end, for all axes or axis by axis.
    Returns: array of shape `slice_sizes`.
    Raises: TypeError for sizes that do not fit and indices that are not integers of one type.

    >>> import jaxlite.numpy as jnp
    >>> from jaxlite import lax
    >>> lax.dynamic_slice(jnp.arange(6), (jnp.array(3),), (2,)), lax.dynamic_slice(jnp.arange(6), (5,), (2,))
    (Array([3, 4], dtype=int32), Array([4, 5], dtype=int32))
    """
    sizes = _are_ints("dynamic_slice", "slice_sizes", slice_sizes)
    function = _compiled_slice if _is_deferred(start_indices) else _dynamic_slice
    return function(operand, start_indices, sizes, _hashable(allow_negative_indices))


def _starts_at(index, axis: int, rank: int) -> list[Any]:
    """A position: an index on one axis, and zeros of its dtype on the others."""
    dtype = aval_of(index).dtype
    zero = 0 if dtype == dtypes.default_dtype(int) else np.zeros((), dtype)[()]
    return [index if each == axis else zero for each in range(rank)]


def dynamic_slice_in_dim(operand, start_index, slice_size: int, axis: int = 0, *, allow_negative_indices: bool = True):
    """`dynamic_slice` along one axis, whole on the others."""
    shape = aval_of(operand).shape
    axis = shaping.canonical_axis(axis, len(shape))
    sizes = list(shape)
    sizes[axis], starts = as_size(slice_size), _starts_at(start_index, axis, len(shape))
    return dynamic_slice(operand, starts, sizes, allow_negative_indices=allow_negative_indices)


@functools.partial(jit, static_argnames=("axis", "keepdims", "allow_negative_indices"))
def dynamic_index_in_dim(operand, index, axis: int = 0, keepdims: bool = True, *, allow_negative_indices: bool = True):
    """One computed position of an axis. The axis stays, with size 1, unless `keepdims` is False."""
    result = dynamic_slice_in_dim(operand, index, 1, axis, allow_negative_indices=allow_negative_indices)
    return result if keepdims else shaping.squeeze(result, (axis,))


@boundary
def dynamic_update_slice(operand, update, start_indices, *, allow_negative_indices: bool | Sequence[bool] = True):
    """The operand with a box replaced, at a computed position; one that would reach over the end is moved inside.

    Args:
      update: array of the operand's dtype and rank, at most of its sizes.
      start_indices, allow_negative_indices: as for `dynamic_slice`.
    Raises: TypeError for shapes and dtypes that do not fit.
    """
    function = _compiled_update if _is_deferred(start_indices) else _dynamic_update_slice
    return function(operand, update, start_indices, _hashable(allow_negative_indices))


def dynamic_update_slice_in_dim(operand, update, start_index, axis: int, *, allow_negative_indices: bool = True):
    """`dynamic_update_slice` at a position of one axis, at 0 on the others."""
    rank = aval_of(operand).ndim
    starts = _starts_at(start_index, shaping.canonical_axis(axis, rank), rank)
    return dynamic_update_slice(operand, update, starts, allow_negative_indices=allow_negative_indices)


@functools.partial(jit, static_argnames=("axis", "allow_negative_indices"))
def dynamic_update_index_in_dim(operand, update, index, axis: int, *, allow_negative_indices: bool = True):
    """The operand with one position of an axis replaced. The update has size 1 on that axis, or lacks the axis.

    Raises: TypeError for an update of another rank.
    """
    rank, have = aval_of(operand).ndim, aval_of(update).ndim
    axis = shaping.canonical_axis(axis, rank)
    if have == rank - 1:
        update = shaping.expand_dims(update, (axis,))
    elif have != rank:
        raise TypeError(f"dynamic_update_index_in_dim update must have the operand's rank {rank} or one less, got "
                        f"rank {have}")
    return dynamic_update_slice_in_dim(operand, update, index, axis, allow_negative_indices=allow_negative_indices)


def index_take(src, idxs, axes: Sequence[int]):
    """The elements at pairs of positions: one index array for each of `axes`, all of one length.

    Positions are taken modulo the size of their axis.
    Returns: array whose first axis runs over the positions; the other axes of `src` follow.
    """
    shape = aval_of(src).shape
    axes = _are_ints("index_take", "axes", axes)
    if len(idxs) != len(axes) or len(set(axes)) < len(axes):
        raise TypeError("index_take takes an array of positions for each axis, and each axis once; got "
                        f"{len(idxs)} for the axes {axes}")
    columns = []
    for index, axis in zip(idxs, axes, strict=True):
        index = shaping.convert(index, dtypes.int32, False)
        size = np.int32(shape[axis])
        rest = elementwise.rem(index, size)
        index = elementwise.select_n(elementwise.lt(rest, np.int32(0)), rest, elementwise.add(rest, size))
        columns.append(shaping.expand_dims(index, (1,)))
    rest_dims = other_axes(len(shape), axes)
    numbers = GatherDimensionNumbers(offset_dims=tuple(range(1, len(rest_dims) + 1)), collapsed_slice_dims=tuple(
        sorted(axes)), start_index_map=axes)
    return gather(src, shaping.concatenate(columns, 1), numbers, with_ones(shape, axes),
                  mode=GatherScatterMode.PROMISE_IN_BOUNDS)
