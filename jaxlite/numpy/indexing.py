"""NumPy's indexing: `x[index]`, the functions behind `x.at[index]`, `take` and `put`.

Under a trace, reads and writes are inlined (`jaxlite.numpy.index_plan`). Eagerly each is one compiled call: the index is
split into a hashable form and operands, and each form has its own jitted function. Ints and the starts of slices are
operands, so a loop over positions compiles once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from jaxlite.compilation.caches import clear_hooks
from jaxlite.core import array as arrays
from jaxlite.core import config, dtypes
from jaxlite.core.aval import AbstractRef, Ints
from jaxlite.core.axes import other_axes
from jaxlite.core.errors import ShardingTypeError
from jaxlite.core.filtering import hide_own_frames
from jaxlite.core.tracing import Tracer, ref_methods, state
from jaxlite.core.values import ArrayImpl, aval_of
from jaxlite.devices import placement
from jaxlite.lax import elementwise, gather_scatter, shaping
from jaxlite.lax.dot import Precision, dot_general
from jaxlite.lax.gather_scatter import GatherDimensionNumbers, GatherScatterMode
from jaxlite.numpy import arithmetic, creation
from jaxlite.numpy.api import api, check_arrays, refuse_out
from jaxlite.numpy.index_plan import (
    Span,
    array_dtype,
    as_element,
    as_positions,
    canonical_index,
    check_ints,
    check_nonempty,
    joined_dtype,
    read,
    span,
    without_elements,
    write,
)
from jaxlite.traces.eager import eager_trace
from jaxlite.traces.host import eager_jit

_INT32_LIMITS = np.iinfo(np.int32)

# --- eager calls -------------------------------------------------------------------------------------

_CACHE_LIMIT = 4096
_SMALL = 1024
_calls: dict[Any, Any] = {}
_small_ints: dict[int, Any] = {}  # on the device already: passing one saves the transfer
clear_hooks.append(_calls.clear)


def _operand(value: int):
    """An int as an operand of a compiled call; None if it is too large for one."""
    found = _small_ints.get(value)
    if found is None:
        if not -_SMALL <= value < _SMALL:
            return value if _INT32_LIMITS.min <= value <= _INT32_LIMITS.max else None
        found = _small_ints[value] = arrays.make_array(np.int32(value))
    return found


def _split_index(index, shape: Ints, canonical: bool = False) -> tuple[tuple[Any, ...], list[Any]]:
    """An index as a hashable form and the operands left out of it.

    In the form 'i' means an int or an index array, (0, n) for an int that fits no operand, (n,) for a slice of n
    elements whose start is an operand, (start, n, step) for another slice.
    """
    form: list[Any] = []
    operands: list[Any] = []
    axis, rank = 0, len(shape)
    items = index if isinstance(index, tuple) else (index,)
    for position, item in enumerate(items):
        kind = type(item)
        if kind is int:
            operand = _operand(item)
            if operand is None:
                form.append((0, item))
            else:
                form.append("i")
                operands.append(operand)
        elif kind is slice:
            if item.start is item.stop is item.step is None or axis >= rank:
                form.append(":")
            else:
                low, size, step = span(item, shape[axis])
                if step == 1 and size == shape[axis]:
                    form.append(":")
                elif step != 1 or size == 0 or low > _INT32_LIMITS.max:
                    form.append((low, size, step))
                else:
                    form.append((size,))
                    operands.append(_operand(low))
        elif item is None:
            form.append(None)
            continue
        elif kind is ArrayImpl and item.aval.dtype.kind in "iu":
            form.append("i")
            operands.append(item)
        elif item is Ellipsis:
            form.append(item)
            axis = max(rank - sum([each is not None for each in items[position + 1:]]), axis)
            continue
        elif not canonical:
            return _split_index(canonical_index(index, shape), shape, True)
        elif kind is bool:
            form.append("T" if item else "F")
            continue
        elif kind is Span:
            if item.step == 1:
                form.append((item.size,))
                operands.append(item.start)
            else:
                form.append(tuple(item))
        else:
            form.append("i")
            operands.append(item)
        axis += 1
    return tuple(form), operands


def _joined_index(form: tuple[Any, ...], operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """The index that `_split_index` took apart."""
    rest = iter(operands)
    items: list[Any] = []
    for part in form:
        if part is None or part is Ellipsis:
            items.append(part)
        elif part == "i":
            items.append(next(rest))
        elif part == ":":
            items.append(slice(None))
        elif part in ("T", "F"):
            items.append(part == "T")
        elif len(part) == 2:
            items.append(part[1])
        else:
            items.append(Span(next(rest), part[0], 1) if len(part) == 1 else Span(*part))
    return tuple(items)


def _remember(key, call: Callable[..., Any], name: str):
    call.__name__ = call.__qualname__ = name
    if len(_calls) >= _CACHE_LIMIT:
        _calls.clear()
    return _calls.setdefault(key, eager_jit(call))


def _getter(key, options: tuple[Any, ...]):
    """The compiled read for a form of index."""
    form = key[0] if options else key
    return _remember(key, lambda x, *operands: read(x, _joined_index(form, operands), *options), "getitem")


_checks_ints = config.check_static_indices.state


def _single_int(x, index):
    return read(x, (index,))


_single_int.__name__ = _single_int.__qualname__ = "getitem"
_get_int = eager_jit(_single_int)


def getitem(self, index):
    """The part of an array that an index selects, as in NumPy.

    Ints, slices, None, Ellipsis, integer arrays and concrete masks, alone or in a tuple; ints and integer arrays may be
    traced. An int out of bounds reads the nearest element. `x.at[index].get(...)` gives control over that.

    Raises: IndexError for too many indices, masks of another shape, traced masks and traced slice bounds; TypeError for
      floats, strings, and lists (make them arrays).
    """
    try:
        if _checks_ints.value:
            check_ints(index, self.shape)
        if state.trace is not eager_trace or type(self) is not ArrayImpl:
            if type(self.aval) is AbstractRef:
                return ref_methods.get(self, index)
            return read(self, index)
        if type(index) is int:
            operand = _operand(index)
            if operand is not None:
                return _get_int(self, operand)
        if index is Ellipsis or type(index) is tuple and not index:
            return self
        if type(index) in (ArrayImpl, np.ndarray) and index.dtype == bool:
            selected = _select_on_host(self, index)
            if selected is not None:
                return selected
        form, operands = _split_index(index, self.aval.shape)
        if not operands and form.count(":") + (Ellipsis in form) == len(form) <= len(self.aval.shape):
            return self
        call = _calls.get(form) or _getter(form, ())
        return call(self, *operands)
    except ShardingTypeError as error:
        if state.trace is eager_trace and str(error).startswith("dynamic_slice on sharded"):
            error.args = (_ambiguous_read(self, index),)
        hide_own_frames(error)
        raise
    except Exception as error:
        hide_own_frames(error)
        raise


def _ambiguous_read(x, index) -> str:
    """What is wrong with reading a part of an array that is sharded over explicit mesh axes, if no sharding is given for it."""
    count = len(_split_index(index, x.aval.shape)[1])
    return ("Use `.at[...].get(out_sharding=)` to provide output PartitionSpec for the gather indexing as out sharding could "
            f"not be resolved unambiguously (or would require collectives on inputs). Got operand={x.aval!r}, "
            f"indices=ShapedArray(int32[{count}])")


def _select_on_host(x, mask):
    """x[mask] for arrays in the host's memory: the size of the result is new each time, compiling for it costs more
    than the work. None for arrays that are elsewhere."""
    device = arrays.device_of(x)
    if not mask.ndim or device.platform != "cpu" or mask.shape != x.shape[:mask.ndim] or \
            not isinstance(x.dtype, np.dtype):
        return None
    where = arrays.host_value(mask) if type(mask) is ArrayImpl else mask
    value = arrays.host_value(x)[where]
    aval = x.aval.update(shape=value.shape)
    if arrays.is_spread(x):
        return placement.put(value, placement.replicated(x.sharding), aval=aval)
    return arrays.put_array(value, device, x._committed, aval=aval)


def gather_at(x, index, *, indices_are_sorted: bool = False, unique_indices: bool = False,
              mode: str | GatherScatterMode | None = None, fill_value=None, wrap_negative_indices: bool = True):
    """x[index] with a mode; the read of `x.at[index].get()`."""
    if fill_value is not None:
        fill_value = gather_scatter.static_scalar(fill_value)
    options = (mode, fill_value, indices_are_sorted, unique_indices, wrap_negative_indices)
    if state.trace is not eager_trace or type(x) is not ArrayImpl:
        return read(x, index, *options)
    form, operands = _split_index(index, x.aval.shape)
    key = (form, options)
    return (_calls.get(key) or _getter(key, options))(x, *operands)


_DEFAULTS = (None, False, False, True)


def scatter_at(x, index, value, op, *, indices_are_sorted: bool = False, unique_indices: bool = False,
               mode: str | GatherScatterMode | None = None, wrap_negative_indices: bool = True):
    """x with x[index] replaced or combined with a value; what `x.at[index].set(value)` and the like do.

    `op` is as for `write`.
    """
    options = (mode, indices_are_sorted, unique_indices, wrap_negative_indices)
    if state.trace is not eager_trace or type(x) is not ArrayImpl:
        return state.trace.run(write, (x, index, value, op, *options), {})
    if type(value) in (int, bool):
        value = as_element(value, x.aval.dtype)
    kind = type(value)
    if kind not in (ArrayImpl, int, float):
        value = _concrete(value)
    if isinstance(op, str) and (kind is not ArrayImpl or value.dtype != x.dtype):
        joined_dtype(x.aval, aval_of(value))  # warns at each call, and not when one is compiled
    if type(index) in (ArrayImpl, np.ndarray) and index.dtype == bool and not np.shape(value) and \
            isinstance(op, str) and index.ndim and index.shape == x.shape[:index.ndim]:
        call = _calls.get(("masked", op)) or _remember(
            ("masked", op), lambda x, mask, value: _write_masked(x, mask, value, op), f"at_{op}")
        return call(x, index, value)
    form, operands = _split_index(index, x.aval.shape)
    key = (op, form) if options == _DEFAULTS else (op, form, options)
    call = _calls.get(key)
    if call is None:
        name = f"at_{op}" if isinstance(op, str) else "at_apply"
        call = _remember(key, lambda x, value, *operands: write(
            x, _joined_index(form, operands), value, op, *options, warns=False), name)
    return call(x, value, *operands)


def _concrete(value):
    """A value as something that a compiled call takes: sequences become arrays."""
    return value if value is None or isinstance(value, (Tracer, np.ndarray, np.generic, bool, complex)) \
        else creation.asarray(value)


def _write_masked(x, mask, value, op: str):
    """x with its elements under a mask combined with a scalar: no positions, so one program for all masks."""
    aval = aval_of(x)
    updated = write(x, Ellipsis, value, op, warns=False)
    dtype = aval_of(updated).dtype
    mask = shaping.broadcast_in_dim(mask, aval.shape, range(mask.ndim))
    old = shaping.convert(x, dtype, aval_of(updated).weak_type)
    return elementwise.select_n(mask, old, updated)


# --- take and put ------------------------------------------------------------------------------------


def _integer_indices(name: str, indices, size: int, mode) -> tuple[Any, Any, bool]:
    """Indices as NumPy's `mode` wants them, the mode of the gather or scatter, and whether negative ones wrap."""
    kind = dtypes.kind(aval_of(indices).dtype)
    if kind == "b":
        indices = shaping.convert(indices, np.int32, False)
    elif kind not in "iu":
        error = ValueError if name == "take" else TypeError
        raise error(f"{name}: indices must have an integer type, got {aval_of(indices).dtype}")
    if mode == "raise":
        raise NotImplementedError(f"The 'raise' mode to jnp.{name} is not supported: an error cannot depend on data.")
    if mode == "wrap":
        return arithmetic.remainder(indices, size), GatherScatterMode.PROMISE_IN_BOUNDS, False
    if mode == "clip":
        return indices, GatherScatterMode.CLIP, False
    if mode is not None and mode != "fill":
        raise ValueError(f"Invalid mode {mode!r} for np.{name}; the modes are 'fill', 'clip' and 'wrap'")
    return indices, GatherScatterMode.FILL_OR_DROP, True


@api
def take(a, indices, axis: int | None = None, out: None = None, mode: str | None = None, unique_indices: bool = False,
         indices_are_sorted: bool = False, fill_value: Any = None):
    """The elements at given positions of an axis: `a[..., indices, ...]`.

    Args:
      indices: integers, of any shape; it takes the place of the axis.
      axis: int; None works on the flattened array.
      mode: out of bounds 'fill' (the default) reads `fill_value`, 'clip' the nearest element (0 for negative ones),
        'wrap' counts modulo the size. Without a mode, and with 'fill', negative positions count from the end.
      fill_value: scalar; by default NaN, the least signed integer, the greatest unsigned integer, True.
      unique_indices, indices_are_sorted: promises that let the compiler do less.

    >>> import jaxlite.numpy as jnp
    >>> jnp.take(jnp.array([4.0, 5.0, 6.0]), jnp.array([2, 0, 7]))
    Array([ 6.,  4., nan], dtype=float32)
    """
    refuse_out("take", out)
    check_arrays("take", a, indices)
    a = creation.asarray(a)
    if axis is None:
        a, axis = a.ravel(), 0
    axis = shaping.canonical_axis(axis, a.ndim)
    if a.shape[axis] == 0 and aval_of(indices).size:
        raise IndexError("Cannot do a non-empty jnp.take() from an empty axis.")
    indices, parsed, wrap = _integer_indices("take", indices, a.shape[axis], mode)
    index = (slice(None),) * axis + (indices,)
    return read(a, index, parsed, fill_value, indices_are_sorted, unique_indices, wrap)


def _check_along(name: str, arr, indices) -> None:
    if dtypes.kind(aval_of(indices).dtype) not in "iu":
        raise TypeError(f"{name} indices must be of integer type, got {aval_of(indices).dtype}")
    if aval_of(indices).ndim != arr.ndim:
        rank = aval_of(indices).ndim
        raise ValueError(f"{name} arguments 'arr' and 'indices' must have same ndim. Got arr.ndim={arr.ndim} and "
                         f"indices.ndim={rank}." if name == "put_along_axis" else
                         f"indices and arr must have the same number of dimensions; {rank} vs. {arr.ndim}")


def _flat(x):
    return shaping.reshape(x, (aval_of(x).size,))


@api
def take_along_axis(arr, indices, axis: int | None = -1, mode: str | GatherScatterMode | None = None, fill_value: Any = None,
                    *, wrap_negative_indices: bool = True):
    """Elements picked along an axis, by one index array for all lines: what `argsort` gives is what this takes.

    Args:
      indices: integers; of arr's rank, and on the other axes of its sizes or 1 (either stretches).
      axis: int; None works on flattened arrays.
      mode: out of bounds 'fill' (the default) reads `fill_value`, 'clip' the nearest element. 'one_hot' picks by a
        product with zeros and ones, which some devices do faster than a gather; out of bounds it gives 0.
      fill_value: scalar; by default NaN, the least signed integer, the greatest unsigned integer, True.
      wrap_negative_indices: whether negative positions count from the end.

    >>> import jaxlite.numpy as jnp
    >>> x = jnp.array([[3, 1, 2], [7, 9, 8]])
    >>> jnp.take_along_axis(x, jnp.array([[1, 2], [0, 2]]), axis=1)
    Array([[1, 2],
           [7, 8]], dtype=int32)
    """
    check_arrays("take_along_axis", arr, indices)
    arr = creation.asarray(arr)
    if axis is None:
        if aval_of(indices).ndim != 1:
            raise ValueError(f"take_along_axis indices must be 1D if axis=None, got shape {aval_of(indices).shape}")
        arr, axis = _flat(arr), 0
    _check_along("take_along_axis", arr, indices)
    if mode in ("one_hot", GatherScatterMode.ONE_HOT):
        return _take_by_product(arr, indices, shaping.canonical_axis(axis, arr.ndim))
    axis = shaping.canonical_axis(axis, arr.ndim)
    picks = aval_of(indices).shape
    others = other_axes(arr.ndim, (axis,))
    if any([picks[k] != arr.shape[k] and 1 not in (picks[k], arr.shape[k]) for k in others]):
        raise ValueError(f"Incompatible shapes for broadcasting: indices have shape {picks}, arr has shape "
                         f"{arr.shape}; off axis {axis} sizes must be equal or 1")
    shape = tuple([picks[k] if k == axis or arr.shape[k] == 1 else arr.shape[k] for k in range(arr.ndim)])
    if 0 in shape:
        return without_elements(arr.aval.update(shape=shape))
    check_nonempty(arr.shape[axis], axis)
    positions = as_positions(indices, arr.shape[axis], wrap_negative_indices,
                             array_dtype([indices], arr.shape))
    # Each other axis is shared by both (a batching axis), or whole in each pick (offset), or of size 1 in arr.
    shared = [k for k in others if picks[k] == arr.shape[k]]
    offset = [k for k in others if picks[k] == 1 != arr.shape[k]]
    absent = [k for k in others if arr.shape[k] == 1 != picks[k]]
    kept = other_axes(arr.ndim, absent)
    index_axes = other_axes(arr.ndim, offset)
    numbers = GatherDimensionNumbers(
        tuple(offset), (kept.index(axis),), (kept.index(axis),), tuple([kept.index(k) for k in shared]),
        tuple([index_axes.index(k) for k in shared]))
    return gather_scatter.gather(
        shaping.squeeze(arr, absent), shaping.reshape(positions, (*[picks[k] for k in index_axes], 1)), numbers,
        [arr.shape[k] if k in offset else 1 for k in kept], mode=GatherScatterMode.from_any(mode),
        fill_value=fill_value)


def _take_by_product(arr, indices, axis: int):
    """`take_along_axis` as a product with a matrix of zeros and ones for each line."""
    last = arr.ndim - 1
    lines, picks = (shaping.axes_last(each, (axis,)) for each in (arr, indices))
    picks = as_positions(picks, lines.shape[-1], True, np.dtype(np.int32))
    lead = np.broadcast_shapes(lines.shape[:-1], aval_of(picks).shape[:-1])
    lines = shaping.broadcast_in_dim(lines, (*lead, lines.shape[-1]), range(last + 1))
    picks = shaping.broadcast_in_dim(picks, (*lead, aval_of(picks).shape[-1]), range(last + 1))
    shape = (*picks.shape, lines.shape[-1])
    classes = shaping.broadcasted_iota(picks.dtype, shape, last + 1)
    is_it = shaping.broadcast_in_dim(picks, shape, range(last + 1)) == classes
    batch = tuple(range(last))
    result = dot_general(shaping.convert(is_it, arr.dtype, False), lines, (((last + 1,), (last,)), (batch, batch)),
                         precision=Precision.HIGHEST)
    return shaping.transpose(result, [*range(axis), last, *range(axis, last)])


def _refuse_in_place(name: str, inplace: bool) -> None:
    if inplace:
        raise ValueError(f"jax.numpy.{name} cannot modify arrays in-place, because JAX arrays are immutable. Pass "
                         "inplace=False to instead return an updated array.")


@api
def put(a, ind, v, mode: str | None = None, *, inplace: bool = True):
    """A copy of an array with elements replaced, at positions in its flattened form.

    Args:
      ind: integers, flattened. v: values, flattened and repeated as often as needed.
      mode: out of bounds values are left out by default; 'clip' takes the nearest position (0 for negative ones),
        'wrap' counts modulo the size.
      inplace: must be False.
    """
    _refuse_in_place("put", inplace)
    check_arrays("put", a, ind, v)
    a, ind, v = creation.asarray(a), creation.asarray(ind), creation.asarray(v)
    indices, parsed, wrap = _integer_indices("put", _flat(ind), a.size, mode)
    if not ind.size or not v.size:
        return a
    repeats = math.ceil(ind.size / v.size)
    values = read(_flat(shaping.broadcast(v, (repeats,))), slice(ind.size))
    return shaping.reshape(write(_flat(a), indices, values, "set", parsed, wrap=wrap), a.shape)


@api
def put_along_axis(arr, indices, values, axis: int | None, inplace: bool = True, *, mode: str | None = None):
    """A copy of an array with the elements that `take_along_axis` would pick replaced.

    Args:
      indices: integers; of arr's rank, and on the other axes of its sizes or 1.
      values: broadcast to the shape of the picks.
      axis: int; None works on the flattened array.
      inplace: must be False.
      mode: as for `.at`; what is out of bounds is left out by default.
    """
    check_arrays("put_along_axis", arr, indices, values)
    _refuse_in_place("put_along_axis", inplace)
    arr = creation.asarray(arr)
    shape = arr.shape
    if axis is None:
        arr, axis = _flat(arr), 0
    _check_along("put_along_axis", arr, indices)
    axis = shaping.canonical_axis(axis, arr.ndim)
    index = tuple([indices if k == axis else
                   shaping.broadcasted_iota(np.int32, [size if j == k else 1 for j in range(arr.ndim)], k)
                   for k, size in enumerate(arr.shape)])
    return shaping.reshape(write(arr, index, values, "set", mode), shape)
