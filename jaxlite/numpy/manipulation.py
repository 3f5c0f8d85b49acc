"""Changing the shape and order of arrays: reshape, transpose, split, tile, roll, flip, diagonals.

Joining arrays is in `joining.py`, inserting and deleting in `inserting.py`, padding in `padding.py`, choosing slices in
`choosing.py`.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from jaxlite import lax
from jaxlite.core import dtypes, errors, source
from jaxlite.core.array import ArrayImpl
from jaxlite.core.aval import Ints, ShapedArray
from jaxlite.core.axes import other_axes, with_sizes
from jaxlite.core.filtering import boundary
from jaxlite.core.shape_dtype import ShapeDtypeStruct
from jaxlite.core.symbolic import are_ints, as_size, is_symbolic, largest, may_equal, smallest
from jaxlite.core.tracing import Tracer, known_value
from jaxlite.core.values import aval_of
from jaxlite.devices import placement
from jaxlite.lax import shaping
from jaxlite.numpy import creation
from jaxlite.numpy.api import (
    api,
    as_array,
    as_arrays,
    canonical_axes,
    check_arrays,
    each_axis,
    is_array_like,
    low,
    part_of_caller,
    scalar,
)
from jaxlite.numpy.creation import shape_of
from jaxlite.numpy.index_plan import write
from lowering.xla import VERSION


def concrete(name: str, argument: str, value) -> np.ndarray:
    """The host value of an argument that decides shapes. Raises: ConcretizationTypeError for a traced one."""
    return np.asarray(known_value(value, "the argument {!r} of jnp.{} decides the shape of its result, so it must be "
                                         "concrete; mark it static", argument, name))


def shape(a) -> Ints:
    """The sizes of an array's axes; also of NumPy arrays that jaxlite has no dtype for."""
    return a.aval.shape if type(a) is ArrayImpl else _shape_of("shape", a)


def ndim(a) -> int:
    """How many axes an array has; also of NumPy arrays that jaxlite has no dtype for."""
    return len(a.aval.shape if type(a) is ArrayImpl else _shape_of("ndim", a))


def _shape_of(name: str, a) -> Ints:
    """The shape of an argument; of what only describes an array, too, and, with a warning, of lists and None."""
    if a is None or isinstance(a, (list, tuple)):
        source.warn(f"jnp.{name}: got {type(a).__name__}; arguments other than arrays and scalars are deprecated. "
                    "Convert them with jnp.asarray first.", DeprecationWarning)
        if a is None:
            return ()
        if hasattr(a, "shape"):
            return tuple(a.shape)
        return np.shape(a) if any(leaf is None for leaf in _elements(a)) else creation.asarray(a).shape
    if isinstance(a, (np.ndarray, ShapeDtypeStruct, ShapedArray)):
        return a.shape
    return () if type(a) is int else aval_of(a).shape if is_array_like(a) else np.shape(a)  # anything else is one object


def _elements(a) -> Iterator[Any]:
    for each in a:
        yield from _elements(each) if isinstance(each, (list, tuple)) else (each,)


def size(a, axis: int | Sequence[int] | None = None) -> int:
    """How many elements an array has, in all or along axes."""
    if axis is None and type(a) is ArrayImpl:
        return math.prod(a.aval.shape)
    sizes = _shape_of("size", a)
    return math.prod(sizes[each] for each in canonical_axes(axis, len(sizes)))


def iterable(y) -> bool:
    """Whether `iter(y)` works."""
    try:
        iter(y)
    except TypeError:
        return False
    return True


# --- shape -------------------------------------------------------------------------------------------


def _new_shape(shape, total: int, old: Ints) -> Ints:
    """A shape with its one -1 filled in."""
    if not are_ints(shape):
        try:
            is_size = not hasattr(shape, "__iter__") or isinstance(shape, (ArrayImpl, np.ndarray)) and not shape.ndim
            shape = (as_size(shape),) if is_size else tuple(map(as_size, shape))
        except errors.TracerIntegerConversionError:
            raise
        except TypeError:
            shape_of(shape)  # the same complaint as everywhere
            raise
    if -1 not in shape:
        for each in shape:
            if each < 0:
                raise TypeError(f"cannot reshape array of shape {old} (size {total}) into shape {shape} (size "
                                f"{math.prod(shape)}): a size is negative")
        return shape
    if shape.count(-1) > 1:
        raise TypeError(f"cannot reshape array of shape {old} into shape {shape}: only one size may be -1")
    known = math.prod(each for each in shape if each != -1)
    try:
        divides = known != 0 and not total % known
    except errors.InconclusiveDimensionOperation:
        raise errors.InconclusiveDimensionOperation(
            f"Cannot divide evenly the sizes of shapes {old} and {shape}. The remainder {total % known} should be 0. Give a "
            "dimension that it divides to symbolic_shape, such as 2*b") from None
    if not divides:
        raise TypeError(f"cannot reshape array of shape {old} (size {total}) into shape {shape}")
    return tuple([total // known if each == -1 else each for each in shape])


@api
def _reshape(a, new_sizes: Ints, order: str):
    if order == "C":
        return shaping.reshape(as_array(a), new_sizes)
    backwards = shaping.transpose(as_array(a), range(aval_of(a).ndim)[::-1])
    return shaping.transpose(shaping.reshape(backwards, new_sizes[::-1]), range(len(new_sizes))[::-1])


@boundary
def reshape(a, shape, order: str = "C", *, copy: bool | None = None, out_sharding=None):
    """The same elements under another shape; one size may be -1.

    Args:
      order: 'C' reads and writes row by row, 'F' column by column.
      copy: whether the result has its own memory if `a` has this shape already; otherwise it always has.
    Raises: TypeError if the sizes do not match.
    """
    check_arrays("reshape", a)
    a = low(a)
    old = aval_of(a).shape
    total = math.prod(old)
    new = _new_shape(shape, total, old)
    if not may_equal(math.prod(new), total):
        raise TypeError(f"cannot reshape array of shape {old} (size {total}) into shape {new} (size {math.prod(new)})")
    if order == "A":
        raise NotImplementedError("np.reshape order=A is not implemented.")
    if order not in ("C", "F"):
        raise ValueError(f"Unexpected value for 'order' argument: {order}.")
    if order == "C" and out_sharding is None:  # the same as _reshape
        if new == old and (isinstance(a, Tracer) or type(a) is ArrayImpl and not copy):
            return a
        if isinstance(a, Tracer):
            return shaping.reshape_p.bind(a, new_sizes=new, dimensions=None, sharding=None)
    return placement.laid_out_by(out_sharding, _reshape, a, new_sizes=new, order=order)


def ravel(a, order: str = "C", *, out_sharding=None):
    """All elements in one axis."""
    if order == "C":
        return _ravel(a) if out_sharding is None else placement.laid_out_by(out_sharding, _ravel, a)
    if order == "K":
        raise NotImplementedError("Ravel not implemented for order='K'.")
    check_arrays("ravel", a)
    return reshape(a, (math.prod(aval_of(a).shape),), order, out_sharding=out_sharding)


@api
def _ravel(a, /):
    a = as_arrays("ravel", a)
    return shaping.reshape(a, (a.size,))


def _static_axes(axis):
    """An axis argument that can be a key: None, an int, or a tuple of ints."""
    if axis is None or type(axis) is int:
        return axis
    axis = known_value(axis, "an axis must be concrete; mark it static")
    each = each_axis(axis)
    return tuple(map(operator.index, each)) if len(each) != 1 or each[0] is not axis else operator.index(axis)


@api
def squeeze(a, axis: int | Sequence[int] | None = None):
    """Without axes of size 1: all of them, or the given ones. Raises: ValueError for axes of other sizes."""
    a = as_arrays("squeeze", a)
    if axis is None:
        return shaping.squeeze(a, [each for each, size in enumerate(a.shape) if size == 1])
    return shaping.squeeze(a, canonical_axes(_static_axes(axis), a.ndim))


@api
@part_of_caller
def expand_dims(a, axis: int | Sequence[int]):
    """With new axes of size 1 at these positions of the result."""
    a, axis = as_arrays("expand_dims", a), _static_axes(axis)
    return shaping.expand_dims(a, axis if isinstance(axis, tuple) else (axis,))


@api
@part_of_caller
def _broadcast_to(array, shape: Ints, out_sharding: Any = None):
    return shaping.broadcast_to(as_arrays("broadcast_to", array), shape)


def broadcast_to(array, shape, *, out_sharding=None):
    """An array stretched to a shape by NumPy's rules.

    Raises: ValueError if it does not fit.
    """
    try:
        sizes = shape_of(shape)
    except TypeError:
        _check_negative_sizes(array, shape)
        raise
    if type(array) is ArrayImpl and array.aval.shape == sizes and out_sharding is None:
        return array
    return placement.laid_out(_broadcast_to(array, shape=sizes), out_sharding)


def _check_negative_sizes(array, shape) -> None:
    """ValueError if an array, whose own sizes are not negative, does not fit the negative ones of a shape."""
    with contextlib.suppress(TypeError):
        shape = tuple(map(operator.index, shape if hasattr(shape, "__iter__") else (shape,)))
        old = np.shape(array)
        if builtins.any(y < 0 and x != 1 for x, y in zip(old[::-1], shape[::-1], strict=False)):
            raise ValueError(f"Incompatible types for broadcasting: an array of shape {old} does not fit {shape}")


def broadcast_shapes(*shapes) -> Ints:
    """The shape that operands of these shapes are broadcast to. Raises: ValueError if they do not fit."""
    return shaping.broadcast_shapes(*[each if hasattr(each, "__iter__") else (each,) for each in shapes])


@api
def broadcast_arrays(*args) -> list[Any] | tuple[Any, ...]:
    """All arrays stretched to their common shape."""
    check_arrays("broadcast_arrays", *args)
    target = shaping.broadcast_shapes(*[aval_of(each).shape for each in args])
    results = [_broadcast_to(as_array(each), shape=target) for each in args]
    return tuple(results) if VERSION >= (0, 11) else results  # as JAX of the same jaxlib


# By the least rank, the axes that are added to arrays of rank 0, 1 and so on.
AXES_ADDED: dict[int, Sequence[Ints]] = {1: ((0,),), 2: ((0, 1), (0,)), 3: ((0, 1, 2), (0, 2), (2,))}


def with_axes(x, added: Sequence[Ints], rows: bool = False):
    """The array with the axes that are added to its rank, or, if so told, to that of its rows."""
    rank = aval_of(x).ndim - rows
    return shaping.expand_dims(x, [rows + axis for axis in added[rank]]) if rank < len(added) else x


def _atleast(name: str, rank: int) -> Callable:
    @api
    def raise_rank(a, /):
        return with_axes(as_array(a), AXES_ADDED[rank])

    def function(*arys):
        if len(arys) == 1 and type(arys[0]) is ArrayImpl:
            return raise_rank(arys[0])
        check_arrays(name, *arys)
        results = [raise_rank(each) for each in arys]
        return results[0] if len(results) == 1 else tuple(results) if VERSION >= (0, 12) else results

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"The arrays with at least {rank} axes; new ones have size 1. A list or tuple for several arrays."
    return function


atleast_1d, atleast_2d, atleast_3d = _atleast("atleast_1d", 1), _atleast("atleast_2d", 2), _atleast("atleast_3d", 3)


@api
def resize(a, new_shape: Any):
    """The elements, repeated as often as it takes or cut off, under a new shape."""
    new_shape = new_shape if hasattr(new_shape, "__iter__") else (new_shape,)
    if builtins.any(each < 0 for each in new_shape):
        raise ValueError("all elements of `new_shape` must be non-negative")
    new_shape = shape_of(new_shape)
    flat = as_arrays("resize", a)
    total = math.prod(flat.shape)
    flat = shaping.reshape(flat, (total,))
    wanted = math.prod(new_shape)
    if total == 0:
        return shaping.full(new_shape, 0, flat.dtype)
    repeats = -(-wanted // total) if wanted else 1
    return shaping.reshape(lax.slice_in_dim(shaping.tile(flat, (repeats,)), 0, wanted), new_shape)


# --- order of axes -----------------------------------------------------------------------------------


@api
@part_of_caller
def transpose(a, axes: Sequence[int] | None = None):
    """With axes in another order; reversed for None. Raises: TypeError if `axes` does not name each axis once."""
    a = as_arrays("transpose", a)
    rank = a.ndim
    if axes is None:
        return shaping.transpose(a, tuple(range(rank)[::-1]))
    order = _order(axes if are_ints(axes) else _static_axes(tuple(axes)), rank)
    if order is None:
        raise TypeError("transpose permutation isn't a permutation of operand dimensions, got permutation "
                        f"{tuple(axes)} for operand shape {a.shape}.")
    return shaping.transpose(a, order)


@functools.lru_cache(1024)
def _order(axes: Ints, rank: int) -> Ints | None:
    """Axes in [0, rank) from those of a permutation; None if it is none."""
    order = tuple([shaping.canonical_axis(axis, rank) for axis in axes])
    return order if sorted(order) == list(range(rank)) else None


def permute_dims(a, /, axes: Ints):
    """With axes in another order."""
    return transpose(a, tuple(axes))


@api
@part_of_caller
def matrix_transpose(x, /):
    """With the last two axes exchanged."""
    x = as_arrays("matrix_transpose", x)
    rank = x.ndim
    if rank < 2:
        raise ValueError(f"x must be at least two-dimensional for matrix_transpose; got ndim={rank}")
    return shaping.transpose(x, [*range(rank - 2), rank - 1, rank - 2])


@api
def swapaxes(a, axis1: int, axis2: int):
    """With two axes exchanged."""
    a = as_arrays("swapaxes", a)
    order = list(range(a.ndim))
    i, j = (shaping.canonical_axis(axis, len(order)) for axis in (axis1, axis2))
    order[i], order[j] = order[j], order[i]
    return shaping.transpose(a, order)


@api
def moveaxis(a, source: int | Sequence[int], destination: int | Sequence[int]):
    """With axes moved to other positions; the rest keep their order."""
    a = as_arrays("moveaxis", a)
    rank = a.ndim
    sources, targets = canonical_axes(source, rank), canonical_axes(destination, rank)
    if len(sources) != len(targets):
        raise ValueError(f"Inconsistent number of elements: {len(sources)} vs {len(targets)}")
    order = other_axes(rank, sources)
    for target, origin in sorted(zip(targets, sources, strict=True)):
        order.insert(target, origin)
    return shaping.transpose(a, order)


@api
def rollaxis(a, axis: int, start: int = 0):
    """With one axis moved in front of the one at `start`."""
    a = as_arrays("rollaxis", a)
    rank = a.ndim
    axis, start = operator.index(axis), operator.index(start)
    if not -rank <= start <= rank:
        raise ValueError(f"start={start} must satisfy {-rank}<=start<={rank}")
    start = start + rank if start < 0 else start
    axis = shaping.canonical_axis(axis, rank)
    order = other_axes(rank, (axis,))
    order.insert(start - (start > axis), axis)
    return shaping.transpose(a, order)


# --- splitting ---------------------------------------------------------------------------------------


def _cut(name: str, ary, indices_or_sections, axis: int, even: bool) -> list[Any]:
    check_arrays(name, ary)
    extent = aval_of(ary).shape[shaping.canonical_axis(axis, aval_of(ary).ndim)]
    if type(indices_or_sections) is int or not isinstance(indices_or_sections, (list, tuple)) and not np.ndim(
            indices_or_sections):
        parts = int(indices_or_sections if type(indices_or_sections) is int else
                    concrete(name, "indices_or_sections", indices_or_sections))
        if parts <= 0:
            raise ValueError("number sections must be larger than 0")
        if even and extent % parts != 0:  # a symbolic rest is not known to be 0
            raise ValueError(f"array split does not result in an equal division: axis {axis} has size {extent}, not a "
                             f"multiple of {parts}")
        each, extra = divmod(extent, parts)
        bounds = [each * index + builtins.min(index, extra) for index in range(parts + 1)]
    else:
        points = [operator.index(point if isinstance(point, int) else concrete(name, "indices_or_sections", point))
                  for point in indices_or_sections]
        points = [largest(0, point + extent) if point < 0 else smallest(point, extent) for point in points]
        bounds = [0, *points, extent]
    return list(_slices(ary, bounds=tuple(bounds), axis=operator.index(axis)))


@api
def _slices(a, bounds: Ints, axis: int) -> list[Any]:
    a = as_array(a)
    axis = shaping.canonical_axis(axis, a.ndim)
    sizes = [high - low for low, high in zip(bounds, bounds[1:], strict=False)]
    if not any(map(is_symbolic, sizes)) and builtins.min(sizes, default=0) >= 0 and (
            builtins.sum(sizes) == a.shape[axis]):
        return list(shaping.split(a, sizes, axis))
    return [lax.slice_in_dim(a, low, largest(low, high), axis=axis)
            for low, high in zip(bounds, bounds[1:], strict=False)]


@boundary
def split(ary, indices_or_sections, axis: int = 0) -> list[Any]:
    """Pieces along an axis: so many equal ones, or cut at these indices.

    Raises: ValueError if the axis cannot be divided evenly.
    """
    return _cut("split", ary, indices_or_sections, axis, True)


def array_split(ary, indices_or_sections, axis: int = 0) -> list[Any]:
    """Like `split`; the first pieces are one longer if it does not come out even."""
    return _cut("array_split", ary, indices_or_sections, axis, False)


def vsplit(ary, indices_or_sections) -> list[Any]:
    """`split` along axis 0."""
    return split(ary, indices_or_sections, 0)


def hsplit(ary, indices_or_sections) -> list[Any]:
    """`split` along axis 1, or 0 for a one-dimensional array."""
    check_arrays("hsplit", ary)
    return split(ary, indices_or_sections, 1 if aval_of(ary).ndim > 1 else 0)


def dsplit(ary, indices_or_sections) -> list[Any]:
    """`split` along axis 2."""
    return split(ary, indices_or_sections, 2)


@api
def unstack(x, /, *, axis: int = 0) -> tuple[Any, ...]:
    """The slices of an array along an axis, without that axis."""
    x = as_arrays("unstack", x)
    if not x.ndim:
        raise ValueError("Unstack requires arrays with rank > 0, however a scalar array was passed.")
    return shaping.unstack(x, operator.index(axis))


# --- repeating and moving ----------------------------------------------------------------------------


@api
@part_of_caller
def tile(A, reps: Any):
    """Copies of an array side by side, `reps[i]` times along each axis."""
    A = as_arrays("tile", A)
    reps = shape_of(reps if hasattr(reps, "__iter__") else (reps,), "reps")
    rank = builtins.max(A.ndim, len(reps))
    A = shaping.broadcast_to_rank(A, rank)
    return shaping.tile(A, (1,) * (rank - len(reps)) + reps)


def repeat(a, repeats, axis: int | None = None, *, total_repeat_length: int | None = None, out_sharding=None):
    """Each element of an axis several times in a row.

    Args:
      repeats: how often: one number, or one for each element. Traced ones need `total_repeat_length`.
      axis: over all elements, flattened, for None.
      total_repeat_length: the size of the axis afterwards; the last element fills up what is missing.
    """
    check_arrays("repeat", a, repeats)
    if axis is None:
        a, axis = ravel(a), 0
    elif not aval_of(a).ndim:
        a = reshape(a, (1,))
    axis = shaping.canonical_axis(axis, aval_of(a).ndim)
    extent = aval_of(a).shape[axis]
    if total_repeat_length is None:
        counts = concrete("repeat", "repeats", repeats).reshape(-1)
        if dtypes.kind(counts.dtype) not in "iub":
            raise TypeError(f"repeat requires integer repeats, got dtype {counts.dtype}")
        if (counts < 0).any():
            raise TypeError(f"repeats must have every element be nonnegative, got {counts.tolist()}")
        if counts.size == 1:
            result = _repeat_evenly(a, count=int(counts[0]), axis=axis)
        elif counts.size != extent:
            raise ValueError(f"repeat: axis {axis} has size {extent}, got {counts.size} repeats")
        else:
            result = take_slices(a, np.repeat(np.arange(extent, dtype=np.int32), counts), axis=axis)
    else:
        result = _repeat_traced(a, repeats, axis=axis, total=as_size(total_repeat_length))
    return placement.laid_out(result, out_sharding)


@api
def _repeat_evenly(a, count: int, axis: int):
    a = as_array(a)
    sizes = a.shape
    spread = with_sizes(sizes, axis, sizes[axis], count)
    wide = shaping.broadcast_in_dim(a, spread, [each + (each > axis) for each in range(len(sizes))])
    return shaping.reshape(wide, with_sizes(sizes, axis, sizes[axis] * count))


@api
def take_slices(a, positions, axis: int):
    """The slices at some positions of an axis; those out of range are the nearest."""
    size = aval_of(positions).size
    if not is_symbolic(size) and not size:
        return lax.slice_in_dim(as_array(a), 0, 0, axis=axis)
    if not isinstance(positions, np.ndarray):  # here, since checkify takes what a gather moves inside for an error
        last = scalar(aval_of(a).shape[axis] - 1, aval_of(positions).dtype)
        positions = lax.clamp(scalar(0, aval_of(positions).dtype), positions, last)
    return lax.gather(as_array(a), shaping.expand_dims(positions, (1,)), _take_numbers(aval_of(a).ndim, axis),
                      with_sizes(aval_of(a).shape, axis, 1),
                      mode="clip")


def _take_numbers(rank: int, axis: int):
    return lax.GatherDimensionNumbers(offset_dims=tuple(other_axes(rank, (axis,))),
                                      collapsed_slice_dims=(axis,), start_index_map=(axis,))


def counts_of(positions, total: int):
    """How often each of 0, ..., total - 1 is among the positions."""
    places = lax.min(positions, shaping.full_like(positions, total))  # what lies beyond is counted in one more place
    counts = write(shaping.full((total + 1,), 0, dtypes.int32), places, np.int32(1), "add", mode="drop", wrap=False)
    return lax.slice_in_dim(counts, 0, total)


_FEW = 16  # so many comparisons for each place take less time than a running total


def passed_by(positions, total: int):
    """How many of some positions are not after each of 0, ..., total - 1."""
    count = aval_of(positions).size
    if count > _FEW:
        return lax.cumsum(counts_of(positions, total))
    row, column = (shaping.broadcasted_iota(dtypes.int32, (count, total), 1),
                   shaping.broadcast_in_dim(positions, (count, total), (0,)))
    return lax.reduce_sum(shaping.convert(lax.le(column, row), dtypes.int32, False), (0,))


@api
def _repeat_traced(a, repeats, axis: int, total: int):
    a = as_array(a)
    extent = a.shape[axis]
    if not extent or not total:
        return lax.slice_in_dim(a, 0, 0, axis=axis)
    counts = shaping.convert(repeats, dtypes.int32, False)
    counts = _broadcast_to(shaping.reshape(counts, (counts.size,)), shape=(extent,))
    # An element begins where all before it end, so each place belongs to the element whose number is that of the
    # ends up to there.
    return take_slices(a, passed_by(lax.cumsum(counts), total), axis=axis)


def roll(a, shift, axis: int | Sequence[int] | None = None):
    """Elements moved along axes; what leaves at one end comes back at the other.

    Args:
      shift: how far, for each axis; may be traced.
      axis: over all elements, flattened, for None.
    """
    several = shift if isinstance(shift, (tuple, list)) else (shift,)
    if type(shift) is int or builtins.all([isinstance(each, (int, np.integer)) for each in several]):
        return _roll_static(a, shift, axis)
    return _roll(a, shift, axis)


@api
def _roll_static(a, shift: Any, axis: Any):
    return _rolled(a, shift, axis)


@api
def _roll(a, shift, axis: Any):
    return _rolled(a, shift, axis)


def _rolled(a, shift, axis):
    a = as_arrays("roll", a)
    shape = a.shape
    if axis is None:
        a, axis = shaping.reshape(a, (a.size,)), 0
    if getattr(shift, "ndim", 0) > 1:
        raise ValueError("'shift' and 'axis' arguments to roll must be scalars or 1D arrays, got a shift of shape "
                         f"{shift.shape}")
    shifts = list(shift) if isinstance(shift, (tuple, list)) or getattr(shift, "ndim", False) else [shift]
    axes = [axis] if type(axis) is int else list(each_axis(axis))
    if len(shifts) == 1:
        shifts *= len(axes)
    elif len(axes) == 1:
        axes *= len(shifts)
    if len(shifts) != len(axes):
        raise ValueError(f"roll: shift and axis must have equal lengths, got {len(shifts)} and {len(axes)}")
    for each, amount in zip(axes, shifts, strict=True):
        each = shaping.canonical_axis(each, a.ndim)
        extent = a.shape[each]
        if not extent:
            continue
        if isinstance(amount, (int, np.integer)) and not is_symbolic(extent):
            amount = -int(amount) % extent
            if amount:
                first, second = shaping.split(a, (amount, extent - amount), each)
                a = shaping.concatenate([second, first], each)
        else:
            amount = shaping.convert(amount, dtypes.int32, False)
            start = -amount % extent
            a = lax.dynamic_slice_in_dim(shaping.concatenate([a, a], each), start, extent, each)
    return a if a.shape == shape else shaping.reshape(a, shape)


@api
def rot90(m, k: int = 1, axes: tuple[int, int] = (0, 1)):
    """Turned by k quarter turns in the plane of two axes, from the first towards the second."""
    m = as_arrays("rot90", m)
    first, second = (shaping.canonical_axis(axis, m.ndim) for axis in axes)
    if first == second:
        raise ValueError("Axes must be different")
    k %= 4
    if k == 0:
        return m
    if k == 2:
        return shaping.rev(m, (first, second))
    order = list(range(m.ndim))
    order[first], order[second] = order[second], order[first]
    if k == 1:
        return shaping.transpose(shaping.rev(m, (second,)), order)
    return shaping.rev(shaping.transpose(m, order), (second,))


@api
def flip(m, axis: int | Sequence[int] | None = None):
    """With the order of elements reversed along axes; all for None."""
    m = as_arrays("flip", m)
    return shaping.rev(m, canonical_axes(_static_axes(axis), m.ndim))


def flipud(m):
    """Reversed along axis 0."""
    return flip(m, 0)


def fliplr(m):
    """Reversed along axis 1."""
    return flip(m, 1)


# --- diagonals ---------------------------------------------------------------------------------------


@api
def diagonal(a, offset: int = 0, axis1: int = 0, axis2: int = 1):
    """The diagonal of two axes, as the last axis."""
    a = as_arrays("diagonal", a)
    rank = a.ndim
    if rank < 2:
        raise ValueError("diagonal requires an array of at least two dimensions.")
    a = shaping.axes_last(a, canonical_axes((axis1, axis2), rank))
    rows, columns = a.shape[-2:]
    length = largest(0, smallest(rows + builtins.min(offset, 0), columns - builtins.max(offset, 0)))
    batch = a.shape[:-2]
    if not are_ints((rows, columns)):
        places = shaping.iota(dtypes.int32, length)
        return a[..., places + np.int32(builtins.max(-offset, 0)), places + np.int32(builtins.max(offset, 0))]
    is_square = rank == 2 and rows == columns and not offset  # JAX sums these up with a mask, which is strongly typed
    weak = aval_of(a).weak_type and not is_square
    if not length or not math.prod(batch):
        return shaping.convert(shaping.full((*batch, length), 0, a.dtype), None, weak)
    # In the flattened matrix, the elements of the diagonal have a fixed stride.
    start = -offset * columns if offset < 0 else offset
    flat = shaping.reshape(a, (*batch, rows * columns))
    stop = start + (length - 1) * (columns + 1) + 1
    return shaping.convert(lax.slice_in_dim(flat, start, stop, columns + 1, axis=rank - 2), None, weak)


@api
def diag(v, k: int = 0):
    """A matrix with a vector on its k-th diagonal, or the k-th diagonal of a matrix."""
    v = as_arrays("diag", v)
    aval = aval_of(v)
    if aval.ndim == 2:
        return diagonal(v, k)
    if aval.ndim != 1:
        raise ValueError("diag input must be 1d or 2d")
    n = aval.shape[0] + builtins.abs(k)
    low = builtins.max(-k, 0)
    high = n - aval.shape[0] - low
    if isinstance(aval.dtype, dtypes.ExtendedDType):  # no element of theirs is a value to pad with
        padded = shaping.concatenate([shaping.full_like(v, 0, shape=(low,)), v, shaping.full_like(v, 0, shape=(high,))], 0)
    else:
        padded = shaping.pad(v, shaping.convert(0, aval.dtype, aval.weak_type), ((low, high, 0),))
    row, column = shaping.indices((n, n))
    mask = row + k == column
    wide = shaping.broadcast_in_dim(padded, (n, n), (0,))
    return lax.select(mask, wide, shaping.full_like(wide, 0))


def diagflat(v, k: int = 0):
    """A matrix with all elements of an array on its k-th diagonal."""
    return diag(shaping.convert(ravel(v), weak_type=False), k)
