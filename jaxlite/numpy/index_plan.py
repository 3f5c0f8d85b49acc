"""The semantics of an index: reading and writing `x[index]` with lax operations, for concrete arrays and tracers.

An index is first converted to a canonical form (`canonical_index`): a tuple of ints, slices, None, Ellipsis, integer arrays
and bools, in which masks are replaced by the positions that they select. Ints and slices become slices; everything else
becomes one gather or scatter, planned by `_plan_boxes`. `jaxlite.numpy.indexing` compiles eager calls.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from jaxlite.core import array as arrays
from jaxlite.core import config, dtypes, errors, source
from jaxlite.core.aval import Ints, layouts
from jaxlite.core.axes import with_sizes
from jaxlite.core.symbolic import Dim, slice_bounds, smallest
from jaxlite.core.tracing import Tracer
from jaxlite.core.values import ArrayImpl, aval_of, fitted
from jaxlite.devices import placement
from jaxlite.lax import elementwise, gather_scatter, shaping, slicing
from jaxlite.lax.gather_scatter import GatherDimensionNumbers, GatherScatterMode, ScatterDimensionNumbers
from jaxlite.numpy import arithmetic, creation

_CLIP, _FILL, _PROMISE = GatherScatterMode.CLIP, GatherScatterMode.FILL_OR_DROP, GatherScatterMode.PROMISE_IN_BOUNDS
_INT32 = np.dtype(np.int32)
_INT64 = np.dtype(np.int64)
_MAX_INT32 = 2**31 - 1
_WHOLE = slice(None)

# --- the canonical form ------------------------------------------------------------------------------


class Span(NamedTuple):
    """`size` elements of an axis from `start` on, `step` apart. Only with step 1 may the start be traced."""

    start: Any
    size: int
    step: int


def canonical_index(index, shape: Ints) -> tuple[Any, ...]:
    """An index as a tuple of ints, slices, spans, None, Ellipsis, integer arrays and bools.

    Raises: TypeError and IndexError for what is not an index of an array of this shape.
    """
    if type(index) is int and shape:
        return (index,)
    if isinstance(index, tuple):
        given = index
    elif isinstance(index, (list, range)):
        raise TypeError("Using a non-tuple sequence for multidimensional indexing is not allowed; use `arr[array(seq)]`"
                        " instead of `arr[seq]`.")
    else:
        given = (index,)
    items: list[Any] = []
    for position, each in enumerate(given):
        items.append(_canonical_item(each, position))
    ellipses = sum([item is Ellipsis for item in items])
    if ellipses > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    used = sum(map(_axes_used, items))
    if used > len(shape):
        raise IndexError(f"Too many indices: array is {len(shape)}-dimensional, but {used} were indexed")
    result: list[Any] = []
    axis = 0
    for position, item in enumerate(items):
        if hasattr(item, "is_dynamic_start"):
            result.append(_span_of_slice(item, axis, shape))
        elif type(item) is np.ndarray and item.dtype == bool:
            expected = shape[axis:axis + item.ndim]
            if item.shape != expected and 0 not in item.shape:  # a mask without elements selects nothing
                raise IndexError(f"boolean index did not match shape of indexed array in index {position}: got "
                                 f"{item.shape}, expected {list(expected)}")
            result.extend(where.astype(np.int32) for where in np.nonzero(item))
        else:
            result.append(item)
        axis += len(shape) - used if item is Ellipsis else _axes_used(item)
    return tuple(result)


def _span_of_slice(item, axis: int, shape: Ints) -> Span:
    """What `jax.ds` makes, a start that may be traced with a size: it is moved to where the elements are, like an int index."""
    if item.stride != 1 and item.is_dynamic_start:
        raise TypeError(f"a slice whose start is an array has stride 1, got {item}; use x[start:stop:step] where they are ints")
    if item.stride != 1:
        start = item.start + shape[axis] if item.start < 0 else item.start
        return span(slice(start, start + item.size * item.stride, item.stride), shape[axis])
    if item.size > shape[axis]:
        sizes = with_sizes(shape, axis, item.size)
        raise TypeError("slice slice_sizes must be less than or equal to operand shape, "
                        f"got slice_sizes {sizes} for operand shape {shape}.")
    start = creation.asarray(item.start)
    if dtypes.kind(start.dtype) not in "iu" or start.shape:
        raise TypeError(f"index arguments to dynamic_slice must be integers of the same type, got: {aval_of(start)}")
    return Span(as_positions(start, shape[axis], True, index_dtype([start], shape)), item.size, 1)


def _axes_used(item) -> int:
    if item is None or item is Ellipsis or type(item) is bool:
        return 0
    return item.ndim if type(item) is np.ndarray and item.dtype == bool else 1


def _canonical_item(item, position: int):
    kind = type(item)
    if item is None or item is Ellipsis or kind in (int, bool, Span) or hasattr(item, "is_dynamic_start"):
        return item
    if kind is slice:
        for bound in (item.start, item.stop, item.step):
            if isinstance(bound, Tracer):
                raise IndexError(f"Slice entries must be static integers. Got {item} at position {position}. To take a "
                                 "slice of static size at a traced position, use lax.dynamic_slice; for sizes that "
                                 "depend on data, mask with jnp.where.")
        return item
    if isinstance(item, (str, bytes)):
        raise TypeError(f"JAX does not support string indexing; got idx={item!r}")
    if isinstance(item, (list, tuple, range)):
        item = np.zeros(0, np.int32) if len(item) == 0 else creation.array(item) if _holds_arrays(item) \
            else np.asarray(item)
    elif hasattr(item, "__jax_array__"):
        item = item.__jax_array__()
    if isinstance(item, (Tracer, ArrayImpl, np.ndarray, np.generic)):
        return _canonical_array(item)
    if isinstance(item, (float, complex)):
        raise TypeError(f"Indexer must have integer or boolean type, got indexer with type {np.asarray(item).dtype}")
    try:
        return operator.index(item)
    except TypeError:
        raise IndexError("only integers, slices (`:`), ellipsis (`...`), newaxis (`None`) and integer or boolean "
                         f"arrays are valid indices. Got {item}") from None


def _holds_arrays(item) -> bool:
    return isinstance(item, (Tracer, ArrayImpl)) or isinstance(item, (list, tuple)) and any(map(_holds_arrays, item))


def _canonical_array(item):
    kind = dtypes.kind(item.dtype)
    if kind == "b":
        if isinstance(item, Tracer):
            raise errors.NonConcreteBooleanIndexError(item)
        mask = arrays.host_value(item) if type(item) is ArrayImpl else np.asarray(item)
        return mask if mask.ndim else bool(mask)
    if kind not in ("i", "u"):
        raise TypeError(f"Indexer must have integer or boolean type, got indexer with type {item.dtype}")
    if isinstance(item, np.generic) or type(item) is np.ndarray and not item.ndim:
        return int(item)
    if isinstance(item, np.ndarray) and item.dtype.kind == "V":  # int4 and the like, which NumPy does not compare
        return item.astype(np.int32)
    return item


def span(item, size: int) -> Span:
    """A slice of an axis as a span."""
    if type(item) is Span:
        return item
    if type(size) is Dim or type(item.start) is Dim or type(item.stop) is Dim:
        return Span(*slice_bounds(item, size))
    start, stop, step = item.indices(size)
    count = len(range(start, stop, step))
    return Span(start, count, step) if count or step > 0 else Span(0, 0, 1)


# --- reading boxes -----------------------------------------------------------------------------------


def _is_box(items: tuple[Any, ...]) -> bool:
    return all([item is None or item is Ellipsis or type(item) in (int, slice, Span) or
                type(item) is not bool and not item.shape for item in items])


def _with_axes(items: tuple[Any, ...], rank: int) -> list[tuple[int, Any]]:
    """(axis, item) for each item, an ellipsis and the missing end spelled out. None and bools have the next axis."""
    missing = rank - sum(map(_axes_used, items))
    if Ellipsis not in [item for item in items if item is Ellipsis]:
        items = (*items, Ellipsis)
    result: list[tuple[int, Any]] = []
    axis = 0
    for item in items:
        if item is Ellipsis:
            result += [(axis + k, _WHOLE) for k in range(missing)]
            axis += missing
        else:
            result.append((axis, item))
            axis += _axes_used(item)
    return result


def check_ints(index, shape: Ints) -> None:
    """Raises IndexError for a Python int that is out of bounds; other indices may be."""
    for axis, item in _with_axes(canonical_index(index, shape), len(shape)):
        if type(item) is int and not -shape[axis] <= item < shape[axis]:
            raise IndexError(f"index {item} out of bounds for axis {axis} with size {shape[axis]}")


def _check_width(items: tuple[Any, ...], shape: Ints) -> None:
    """Raises OverflowError for a Python int that no index of an array is: it stands for another mistake."""
    if index_dtype([], shape) is _INT32:
        for item in items:
            if type(item) is int:
                aval_of(item)


def check_nonempty(size: int, axis: int) -> None:
    if size == 0:
        raise IndexError(f"index is out of bounds for axis {axis} with size 0")


def _new_axes(index, rank: int) -> Ints:
    """Where an index such as `x[:, None]` inserts axes, if it does nothing else; else ()."""
    if index is None:
        return (0,)
    if type(index) is not tuple:
        return ()
    new: list[int] = []
    position = used = 0
    behind = None  # which of the new axes are behind an ellipsis
    for item in index:
        if item is None:
            new.append(position)
        elif type(item) is slice and item.start is None and item.stop is None and item.step is None:
            used += 1
        elif item is Ellipsis and behind is None:
            behind = len(new)
            continue
        else:
            return ()
        position += 1
    if used > rank:
        return ()
    return tuple(new) if behind is None else (*new[:behind], *[each + rank - used for each in new[behind:]])


def _read_box(x, items: tuple[Any, ...], mode, fill_value, wrap: bool):
    """x at ints (of which some may be traced) and slices: slice, reverse, squeeze, expand, as far as needed."""
    shape = aval_of(x).shape
    starts: list[Any] = [0] * len(shape)
    sizes, steps = list(shape), [1] * len(shape)
    reversed_axes, dropped, new, traced = [], [], [], []
    strided = outside = False
    position = 0
    for axis, item in _with_axes(items, len(shape)):
        if item is None:
            new.append(position)
            position += 1
            continue
        size = shape[axis]
        if type(item) is int:
            check_nonempty(size, axis)
            index = item + size if wrap and item < 0 else item
            if not 0 <= index < size:
                outside = True
                if mode is _CLIP:
                    index = min(max(index, 0), size - 1)
                else:  # a start that is clamped at run time, where `checkify` sees it
                    traced.append(axis)
            starts[axis], sizes[axis] = index, 1
            dropped.append(axis)
        elif type(item) in (slice, Span):
            position += 1
            if item == _WHOLE:
                continue
            start, count, step = span(item, size)
            if step < 0:
                reversed_axes.append(axis)
                start, step = start + (count - 1) * step, -step
            if type(start) is not int and type(start) is not Dim:
                traced.append(axis)
            strided |= step > 1
            starts[axis], sizes[axis], steps[axis] = start, count, step
        else:
            check_nonempty(size, axis)
            starts[axis], sizes[axis] = item, 1
            traced.append(axis)
            dropped.append(axis)
    if traced:  # axes with strides are taken whole here
        dtype = _own_dtype([starts[axis] for axis in traced], shape) or index_dtype([starts[axis] for axis in traced], shape)
        positions = [as_positions(0 if step > 1 else start, size, False, dtype) if type(start) is int else
                     as_positions(start, size, wrap and axis in dropped, dtype)
                     for axis, (start, step, size) in enumerate(zip(starts, steps, shape))]
        shape = tuple([full if step > 1 else size for full, step, size in zip(shape, steps, sizes)])
        x = slicing.dynamic_slice_p.bind(x, *positions, slice_sizes=shape)
        starts = [start if step > 1 else 0 for start, step in zip(starts, steps)]
    limits = tuple([smallest(start + size * step, full) if type(full) is Dim else min(start + size * step, full)
                    for start, size, step, full in zip(starts, sizes, steps, shape)])
    if limits != shape or strided or any([type(start) is not int or start for start in starts]):
        x = slicing.slice_p.bind(x, start_indices=tuple(starts), limit_indices=limits,
                                 strides=tuple(steps) if strided else None)
    if reversed_axes:
        x = shaping.rev_p.bind(x, dimensions=tuple(reversed_axes))
    if dropped:
        x = shaping.squeeze_p.bind(x, dimensions=tuple(dropped))
    if new:
        x = shaping.expand_dims(x, new)
    if outside and mode is _FILL:
        return filled(aval_of(x), fill_value)
    return x


def filled(aval, fill_value):
    value = gather_scatter.default_fill_value(aval.dtype) if fill_value is None else fill_value
    shaping.require_real("fill_value", value, aval.dtype)
    return shaping.broadcast_in_dim(shaping.convert(value, aval.dtype, False), aval.shape, ())


def without_elements(aval):
    """An array of a type that has no elements."""
    result = shaping.full(aval.shape, 0, aval.dtype)
    return shaping.convert(result, None, True) if aval.weak_type else result


# --- positions ---------------------------------------------------------------------------------------


def index_dtype(indices: list[Any], shape: Ints):
    """The integer type in which to count: 32 bits wide unless the index arrays or the sizes are wider."""
    wide = not any([type(size) is Dim for size in shape]) and max(shape, default=0) > _MAX_INT32
    wide |= any([type(each) is not int and aval_of(each).dtype.itemsize == 8 for each in indices])
    return _INT64 if wide else _INT32


def array_dtype(indices: list[Any], shape: Ints):
    """The same for arrays of positions, which are 32 bits wide where the sizes are: a gather reads them from memory."""
    return index_dtype(indices if any([type(size) is Dim for size in shape]) else [], shape)


def _own_dtype(indices: list[Any], shape: Ints):
    """The unsigned type that all of the indices have, if it can hold every position; else None."""
    if type(indices[0]) is int:
        return None
    dtype = aval_of(indices[0]).dtype
    if dtypes.kind(dtype) != "u" or any([type(each) is int or aval_of(each).dtype != dtype for each in indices]):
        return None
    greatest = slicing.integer_limits(dtype)[1]
    return dtype if all([type(size) is int and size <= greatest for size in shape]) else None


def as_positions(index, size: int, wrap: bool, dtype):
    """An index of an axis in the given type, counted from the start; what is out of bounds stays so."""
    if type(size) is Dim and wrap and isinstance(index, (int, np.ndarray)):
        if not isinstance(index, int):
            index = creation.asarray(index)
        elif index < 0:
            return shaping.convert((index + size).__jax_array__(), dtype, False)
    if type(index) is int:
        low, high = slicing.integer_limits(dtype)
        return dtype.type(min(max(index + size if wrap and index < 0 else index, low), high))
    if type(index) is np.ndarray:
        low, high = slicing.integer_limits(dtype)
        # the greatest unsigned values do not fit a signed type
        values = (np.minimum(index, np.uint64(high)) if index.dtype == np.uint64 else index).astype(np.int64)
        return np.clip(np.where(values < 0, values + size, values) if wrap else values, low, high).astype(dtype)
    aval = aval_of(index)
    kind = dtypes.kind(aval.dtype)
    if kind == "u" and aval.dtype == dtype:
        return index
    if kind == "u" and aval.dtype.itemsize >= dtype.itemsize:
        extent = shaping.convert(size.__jax_array__(), aval.dtype, False) if type(size) is Dim else aval.dtype.type(size)
        index = elementwise.min(index, extent)
    if kind == "i" and aval.dtype.itemsize > dtype.itemsize:  # wrapped first, and then not beyond what the dtype holds
        index = slicing.wrap_negative(index, size) if wrap else index
        # by `min` and `max`, which libraries that read jaxprs compute for known positions: JAX's have no `clamp` here
        index = elementwise.max(elementwise.min(index, aval.dtype.type(size)), aval.dtype.type(-1))
        return shaping.convert(index, dtype, False)
    if aval.dtype != dtype:
        index = shaping.convert(index, dtype, False)
    return slicing.wrap_negative(index, size) if wrap and kind == "i" else index


# --- from an index to the numbers of a gather or scatter ---------------------------------------------


class Boxes(NamedTuple):
    """What an index means for gather and scatter, in the axes of the operand and of the gathered result."""

    indices: Any  # integer array, positions along its last axis; None if the one box is the whole operand
    sizes: Ints  # the box, on the operand's axes
    offset_dims: Ints
    collapsed: Ints
    index_map: Ints
    shape: Ints  # what the gather gives
    reversed_axes: Ints  # axes of that to be reversed after a gather, before a scatter
    new_axes: Ints  # then the axes to add, counted in the final result
    unique: bool  # no position occurs twice, whatever the values
    ordered: bool  # positions grow


_OFFSET, _BATCH, _NEW = "offset", "batch", "new"


def _plan_boxes(shape: Ints, items: tuple[Any, ...], wrap: bool) -> Boxes:
    """Plan for a canonical index without bools."""
    placed = _with_axes(items, len(shape))
    chosen = [(axis, item) for axis, item in placed if item is not None and type(item) not in (slice, Span)]
    dtype = array_dtype([item for _, item in chosen], shape)
    common = shaping.broadcast_shapes(*(() if type(item) is int else item.shape for _, item in chosen))
    where = [position for position, item in enumerate(items)
             if item is not None and item is not Ellipsis and type(item) not in (slice, Span)]
    together = bool(where) and where[-1] - where[0] == len(where) - 1
    layout: list[tuple[str, int]] = []  # the axes of the final result
    sizes = list(shape)
    strided: list[tuple[int, Any, int]] = []  # (operand axis, (start, size, step), place in the layout)
    begun: list[tuple[int, Any]] = []  # (operand axis, start) of boxes that begin inside
    reversed_at: list[int] = []
    chosen_at = -1 if together else 0
    if not together:
        layout += [(_BATCH, size) for size in common]
    ordered = True
    for axis, item in placed:
        if item is None:
            layout.append((_NEW, 1))
        elif type(item) in (slice, Span):
            start, size, step = span(item, shape[axis])
            if abs(step) == 1 or size <= 1:
                if step < 0 and size > 1:
                    reversed_at.append(len(layout))
                    start -= size - 1
                layout.append((_OFFSET, size))
                sizes[axis] = size
                if size != shape[axis]:
                    begun.append((axis, start))
            else:
                strided.append((axis, (start, size, step), len(layout)))
                layout.append((_BATCH, size))
                sizes[axis] = 1
                ordered &= step > 0
        else:
            sizes[axis] = 1
            if type(shape[axis]) is not Dim:
                if not common:
                    check_nonempty(shape[axis], axis)
                sizes[axis] = min(1, shape[axis])
            if chosen_at < 0:
                chosen_at = len(layout)
                layout += [(_BATCH, size) for size in common]
    old = [place for place, (role, _) in enumerate(layout) if role != _NEW]
    batch = [place for place, (role, _) in enumerate(layout) if role == _BATCH]
    batch_shape = tuple([layout[place][1] for place in batch])
    components: list[tuple[int, Any]] = []
    for axis, positions in [(axis, as_positions(item, shape[axis], wrap, dtype)) for axis, item in chosen]:
        rank = aval_of(positions).ndim
        dims = [batch.index(chosen_at) + len(common) - rank + k for k in range(rank)] if rank else []
        components.append((axis, _spread(positions, dims, batch_shape)))
    for axis, (start, size, step), place in strided:
        steps = dtype.type(step) * shaping.iota(dtype, size)
        positions = _start(start, dtype) + steps
        components.append((axis, _spread(positions, [batch.index(place)], batch_shape)))
    for axis, start in begun:
        components.append((axis, _spread(_start(start, dtype), [], batch_shape)))
    indices = shaping.concatenate([column for _, column in components], len(batch_shape)) if components else None
    collapsed = sorted([axis for axis, _ in chosen] + [axis for axis, _, _ in strided])
    return Boxes(
        indices, tuple(sizes), tuple([old.index(place) for place in old if layout[place][0] == _OFFSET]),
        tuple(collapsed), tuple([axis for axis, _ in components]), tuple([layout[place][1] for place in old]),
        tuple([old.index(place) for place in reversed_at]),
        tuple([place for place, (role, _) in enumerate(layout) if role == _NEW]), not common, not common and ordered)


def _start(start, dtype):
    return dtype.type(start) if type(start) is int else shaping.convert(start, dtype, False)


def _spread(positions, dims: list[int], batch_shape: Ints):
    """One component of all positions: a column of the index array."""
    return shaping.broadcast_in_dim(positions, (*batch_shape, 1), dims)


def _bools_as_arrays(items: tuple[Any, ...], rank: int) -> tuple[tuple[Any, ...], list[int]]:
    """Bools as index arrays of one or no position on a new axis of the operand; also gives those axes."""
    if not any([type(item) is bool for item in items]):
        return items, []
    axes = [axis for axis, item in _with_axes(items, rank) if type(item) is bool]
    return (tuple([np.zeros(int(item), np.int32) if type(item) is bool else item for item in items]),
            [axis + count for count, axis in enumerate(axes)])


# --- reading and writing, in place of a trace or under jit -------------------------------------------


def read(x, index, mode: str | GatherScatterMode | None = None, fill_value=None, indices_are_sorted: bool = False,
         unique_indices: bool = False, wrap: bool = True):
    """x[index]. Out of bounds: the nearest element, or with mode 'fill' the fill value."""
    parsed = _PROMISE if mode is None else GatherScatterMode.from_any(mode)
    if parsed is GatherScatterMode.ONE_HOT:
        parsed, fill_value = _FILL, 0
    shape = aval_of(x).shape
    new = _new_axes(index, len(shape))
    if new:
        return shaping.expand_dims(x, new)
    items = canonical_index(index, shape)
    if mode is None and not all([type(item) is not int or abs(item) <= _MAX_INT32 for item in items]):
        _check_width(items, shape)
    if _is_box(items) and (
            parsed is not _FILL or all([not isinstance(item, (Tracer, ArrayImpl)) for item in items])):
        try:
            return _read_box(x, items, parsed, fill_value, wrap)
        except errors.InconclusiveDimensionOperation:  # whether an int is inside of a symbolic axis, `gather` sees when it runs
            pass
    items, expanded = _bools_as_arrays(items, len(shape))
    if expanded:
        x = shaping.expand_dims(x, expanded)
    boxes = _plan_boxes(aval_of(x).shape, items, wrap)
    if 0 in boxes.shape:
        result = without_elements(aval_of(x).update(shape=boxes.shape))
    else:
        for axis in boxes.collapsed:
            check_nonempty(aval_of(x).shape[axis], axis)
        numbers = GatherDimensionNumbers(boxes.offset_dims, boxes.collapsed, boxes.index_map)
        result = gather_scatter.gather(
            x, boxes.indices, numbers, boxes.sizes, unique_indices=unique_indices or boxes.unique,
            indices_are_sorted=indices_are_sorted or boxes.ordered, mode=parsed, fill_value=fill_value)
    if boxes.reversed_axes:
        result = shaping.rev(result, boxes.reversed_axes)
    return shaping.expand_dims(result, boxes.new_axes) if boxes.new_axes else result


_SCATTERS: dict[str, Callable[..., Any]] = {
    "set": gather_scatter.scatter, "add": gather_scatter.scatter_add, "subtract": gather_scatter.scatter_sub,
    "multiply": gather_scatter.scatter_mul, "min": gather_scatter.scatter_min, "max": gather_scatter.scatter_max,
}
_ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "set": lambda x, value: value, "add": elementwise.add, "subtract": elementwise.sub, "multiply": elementwise.mul,
    "min": elementwise.min, "max": elementwise.max,
}
_THROUGH_PRODUCTS: dict[str, Callable[..., Any]] = {"divide": arithmetic.true_divide, "power": arithmetic.power}


def write(x, index, value, op, mode: str | GatherScatterMode | None = None, indices_are_sorted: bool = False,
          unique_indices: bool = False, wrap: bool = True, warns: bool = True):
    """x with x[index] replaced by its combination with a value.

    Args:
      value: array of x[index]'s shape, or one that broadcasts to it. The operation is done in the dtype that both promote
        to, the result has that of x.
      op: 'set', 'add', 'subtract', 'multiply', 'divide', 'power', 'min', 'max', or a function of one scalar, which
        is applied to each element; then `value` is not used.
      warns: warn of a value whose dtype x cannot hold safely.
    """
    if op in _THROUGH_PRODUCTS:
        factors = write(shaping.full_like(x, 1), index, value, "multiply", mode, indices_are_sorted, unique_indices,
                        wrap, warns)
        return _THROUGH_PRODUCTS[op](x, factors)
    aval = aval_of(x)
    items, expanded = _bools_as_arrays(canonical_index(index, aval.shape), aval.ndim)
    target = shaping.expand_dims(x, expanded) if expanded else x
    boxes = _plan_boxes(aval_of(target).shape, items, wrap)
    if not callable(op):
        value, dtype = _converted(value, aval, op, warns)  # which warns, whether there are elements or not
    if 0 in aval.shape:
        return x
    numbers = ScatterDimensionNumbers(boxes.offset_dims, boxes.collapsed, boxes.index_map)
    options: dict[str, Any] = {
        "mode": mode, "indices_are_sorted": indices_are_sorted or boxes.ordered,
        "unique_indices": unique_indices or boxes.unique}
    indices = np.zeros(0, np.int32) if boxes.indices is None else boxes.indices
    GatherScatterMode.from_any(mode)
    if 0 in boxes.shape:
        return x
    if callable(op):
        result = gather_scatter.scatter_apply(target, indices, op, numbers, update_shape=boxes.shape, **options)
        return shaping.squeeze(result, expanded) if expanded else result
    value = _as_update(value, boxes)
    if dtype != aval.dtype:
        x, target = shaping.convert(x, dtype, False), shaping.convert(target, dtype, False)
    if boxes.indices is None:
        result = shaping.convert(_ELEMENTWISE[op](x, value), aval.dtype, aval.weak_type)
        return placement.laid_out_as(result, x) if layouts.exist else result
    result = _SCATTERS[op](target, indices, value, numbers, **options)
    if dtype != aval.dtype:
        result = shaping.convert(result, aval.dtype, aval.weak_type)
    return shaping.squeeze(result, expanded) if expanded else result


def _as_update(value, boxes: Boxes):
    """A value in the shape of the updates."""
    full = list(boxes.shape)
    for axis in boxes.new_axes:
        full.insert(axis, 1)
    value = shaping.broadcast_to(value, tuple(full))
    if boxes.new_axes:
        value = shaping.squeeze(value, boxes.new_axes)
    return shaping.rev(value, boxes.reversed_axes) if boxes.reversed_axes else value


def _converted(value, aval, op: str, warns: bool) -> tuple[Any, Any]:
    """A value in the dtype that it and the array promote to, in which the operation is done; one that takes an element's
    place, in that of the array."""
    if not isinstance(value, (Tracer, ArrayImpl, bool, int, float, complex, np.ndarray, np.generic)):
        value = creation.asarray(value)
    value = as_element(value, aval.dtype)
    joined = joined_dtype(aval, aval_of(value), warns)
    dtype = aval.dtype if op == "set" else joined
    return shaping.convert(value, dtype, False), dtype


def as_element(value, dtype):
    """A Python number as one that an array of a dtype can hold; booleans are integers."""
    return fitted(int(value) if type(value) is bool and dtypes.kind(dtype) in "iu" else value, dtype)


def joined_dtype(aval, given, warns: bool = True):
    """The dtype that an array and what is written to it promote to; `warns` where the array's cannot hold it."""
    joined, _ = dtypes.lattice_result(aval.dtype, aval.weak_type, given.dtype, given.weak_type)
    if warns and joined != aval.dtype:
        source.warn(
            f"scatter inputs have incompatible types: cannot safely cast value from dtype={given.dtype} to dtype="
            f"{aval.dtype} with jax_numpy_dtype_promotion={config.numpy_dtype_promotion.value}. In future JAX releases "
            "this will result in an error.", FutureWarning)
        shaping.warn_of_lost_parts(given.dtype, aval.dtype)
    return joined
