"""Reading and updating many windows of an array, at positions given by an array.

`gather` reads a window of static size at each position; the scatter family combines windows of updates with an operand.
Positions are vectors along the last axis of the index array; the dimension numbers say along which operand axis component k
counts.
"""

from __future__ import annotations

import enum
import functools
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxlite.core import dtypes
from jaxlite.core.array import host_value
from jaxlite.core.aval import Ints, ShapedArray, shaped_array
from jaxlite.core.axes import other_axes
from jaxlite.core.filtering import boundary
from jaxlite.core.jaxpr import ClosedJaxpr
from jaxlite.core.primitive import Primitive
from jaxlite.core.staging import hoist_consts, trace_to_jaxpr
from jaxlite.core.symbolic import as_size
from jaxlite.core.tracing import Tracer
from jaxlite.core.values import ArrayImpl, aval_of
from jaxlite.lax import elementwise, shaping

# --- what the axes mean, and what happens out of bounds ----------------------------------------------


class GatherDimensionNumbers(NamedTuple):
    """Which axes play which part in a gather.

    Fields, all tuples of axes:
      offset_dims: axes of the output that run inside a box; the others run over the positions. Sorted.
      collapsed_slice_dims: operand axes, of box size 1, that the output leaves out. Sorted.
      start_index_map: for each component of a position, the operand axis it counts along.
      operand_batching_dims, start_indices_batching_dims: axes that operand and indices have in common, pair by
        pair: entry b of the indices picks from entry b of the operand. Box size 1, left out like collapsed ones.
    """

    offset_dims: Ints
    collapsed_slice_dims: Ints
    start_index_map: Ints
    operand_batching_dims: Ints = ()
    start_indices_batching_dims: Ints = ()


class ScatterDimensionNumbers(NamedTuple):
    """Which axes play which part in a scatter: those of `GatherDimensionNumbers`, for the opposite direction.

    Fields, all tuples of axes:
      update_window_dims: axes of the updates that run inside a box; the others run over the positions. Sorted.
      inserted_window_dims: operand axes, of box size 1, that the updates lack. Sorted.
      scatter_dims_to_operand_dims: for each component of a position, the operand axis it counts along.
      operand_batching_dims, scatter_indices_batching_dims: axes that operand and indices have in common.
    """

    update_window_dims: Sequence[int]
    inserted_window_dims: Sequence[int]
    scatter_dims_to_operand_dims: Sequence[int]
    operand_batching_dims: Sequence[int] = ()
    scatter_indices_batching_dims: Sequence[int] = ()


class GatherScatterMode(enum.Enum):
    """How to treat a box that is not wholly inside the operand.

    CLIP moves it inside. FILL_OR_DROP reads a fill value, and writes nothing. PROMISE_IN_BOUNDS means that there is
    none: if there is one, a gather reads something and a scatter may write anywhere in the operand, or not at all. ONE_HOT
    reads 0, and writes nothing: `jnp.take_along_axis` has a product with zeros and ones in the place of a gather then.
    """

    CLIP = 1
    FILL_OR_DROP = 2
    PROMISE_IN_BOUNDS = 3
    ONE_HOT = 4

    @staticmethod
    def from_any(s: str | GatherScatterMode | None) -> GatherScatterMode:
        """The mode of a name: 'clip', 'fill', 'drop', 'promise_in_bounds' or 'one_hot'; FILL_OR_DROP for None.

        Raises: ValueError for another name.
        """
        if isinstance(s, GatherScatterMode):
            return s
        try:
            return _MODES[s]
        except (KeyError, TypeError):
            raise ValueError(f'Unknown gather mode "{s}"; the modes are '
                             f"{', '.join(repr(name) for name in _MODES if name)}") from None


_MODES: dict[str | None, GatherScatterMode] = {
    "clip": GatherScatterMode.CLIP, "fill": GatherScatterMode.FILL_OR_DROP, "drop": GatherScatterMode.FILL_OR_DROP,
    "promise_in_bounds": GatherScatterMode.PROMISE_IN_BOUNDS, "one_hot": GatherScatterMode.ONE_HOT,
    None: GatherScatterMode.FILL_OR_DROP,
}  # fmt: skip


def _as_axes(numbers):
    return type(numbers)(*[tuple(map(operator.index, axes)) for axes in numbers])


# --- checks that gather and scatter share ------------------------------------------------------------


def _check_axes(op: str, name: str, axes: Sequence[int], rank: int, ordered: bool = True) -> None:
    if len(set(axes)) != len(axes):
        raise TypeError(f"{name} in {op} op must not repeat; got: {axes}.")
    if ordered and list(axes) != sorted(axes):
        raise TypeError(f"{name} in {op} op must be sorted; got {axes}")
    for axis in axes:
        if not 0 <= axis < rank:
            raise TypeError(f"Invalid {name} set in {op} op; valid range is [0, {rank}); got: {axis}.")


def _check_positions(op: str, indices, mapped: Sequence[int], mapped_name: str, dropped: Sequence[int],
                     dropped_name: str, operand_batching: Sequence[int], indices_batching: Sequence[int],
                     operand_shape: Ints) -> None:
    """The index array, the map of its components, the dropped and the batching axes."""
    rank, title = len(operand_shape), op.capitalize()
    if dtypes.kind(indices.dtype) not in "iu":
        raise ValueError(f"indices must have an integer type, got {indices.dtype}")
    if not indices.shape:
        raise TypeError(f"{title} indices have one position along their last axis; got a scalar. Give it shape (1,).")
    _check_axes(op, dropped_name, dropped, rank)
    _check_axes(op, "operand_batching_dims", operand_batching, rank)
    _check_axes(op, "indices batching dims", indices_batching, len(indices.shape) - 1, ordered=False)
    if len(mapped) != indices.shape[-1]:
        raise TypeError(f"{title} op has {len(mapped)} elements in {mapped_name} and the bound of dimension "
                        f"index_vector_dim={len(indices.shape) - 1} of indices is {indices.shape[-1]}. These two "
                        f"numbers must be equal.")
    for component, axis in enumerate(mapped):
        if not 0 <= axis < rank:
            raise TypeError(f"Invalid {mapped_name}; domain is [0, {rank}), got: {component}->{axis}.")
    if len(set(mapped)) != len(mapped):
        raise TypeError(f"{mapped_name} in {op} op must not repeat; got: {mapped}.")
    for name, axes in ((dropped_name, dropped), (mapped_name, mapped)):
        if set(axes) & set(operand_batching):
            raise TypeError(f"{name} and operand_batching_dims in {op} op must be disjoint; got: {axes} and "
                            f"{operand_batching}.")
    pairs = list(zip(operand_batching, indices_batching))
    if len(operand_batching) != len(indices_batching) or any(
            [operand_shape[a] != indices.shape[b] for a, b in pairs]):
        raise TypeError(f"{op} op requires equal numbers of operand and indices batching dimensions, of equal sizes; "
                        f"got {operand_batching} of operand shape {operand_shape} and {indices_batching} of indices "
                        f"shape {indices.shape}.")


# --- gather ------------------------------------------------------------------------------------------

gather_p = Primitive("gather")


@gather_p.def_abstract_eval
def _gather_aval(operand, indices, *, dimension_numbers: GatherDimensionNumbers, slice_sizes: Ints,
                 unique_indices: bool, indices_are_sorted: bool, mode, fill_value) -> ShapedArray:
    offset, collapsed, index_map, batching, indices_batching = dimension_numbers
    shape = operand.shape
    _check_positions("gather", indices, index_map, "start_index_map", collapsed, "collapsed_slice_dims", batching,
                     indices_batching, shape)
    if len(slice_sizes) != len(shape):
        raise TypeError(f"Gather op must have one slice size for every input dimension; got: "
                        f"len(slice_sizes)={len(slice_sizes)}, input_shape.rank={len(shape)}")
    is_read = all(indices.shape)  # else no box is cut, whatever its size
    for axis, (part, size) in enumerate(zip(slice_sizes, shape)):
        if part < 0 or part > size and is_read:
            raise TypeError(f"Slice size at index {axis} in gather op is out of range, must be within "
                            f"[0, {size} + 1), got {part}.")
    for axes, what in ((collapsed, "collapse slice"), (batching, "have operand batching")):
        for axis in axes:
            if slice_sizes[axis] > 1:
                raise TypeError(f"Gather op can only {what} dims with bound 1, but bound is {slice_sizes[axis]} for "
                                f"index {axis}.")
    box = [part for axis, part in enumerate(slice_sizes) if axis not in collapsed and axis not in batching]
    if len(box) != len(offset):
        raise TypeError(f"All components of the offset index in a gather op must either be a offset dimension or "
                        f"explicitly collapsed/batching; got len(slice_sizes)={len(slice_sizes)}, "
                        f"offset_dims={offset}, collapsed_slice_dims={collapsed}, operand_batching_dims={batching}.")
    rank = len(box) + len(indices.shape) - 1
    _check_axes("gather", "offset_dims", offset, rank)
    sizes, positions = iter(box), iter(indices.shape)
    return shaped_array(tuple([next(sizes if axis in offset else positions) for axis in range(rank)]), operand.dtype,
                        operand.weak_type)


def default_fill_value(dtype):
    """The result of a read out of bounds: NaN, the least signed integer, the greatest unsigned one, True."""
    kind = dtypes.kind(dtype)
    if kind in "fc":
        return np.nan  # one object: NaN is equal to itself only as that
    if kind == "b":
        return True
    if kind == "x":
        return None  # decided by the dtype's implementation
    limits = dtypes.iinfo(dtype)
    return int(limits.min if kind == "i" else limits.max)


def static_scalar(value):
    """A fill value as a Python or NumPy scalar."""
    if isinstance(value, Tracer):
        raise TypeError("fill_value must be a concrete scalar, known while tracing; select with a mask instead")
    if isinstance(value, ArrayImpl):
        value = host_value(value)
    if isinstance(value, (np.ndarray, list, tuple)):
        if np.shape(value):
            raise ValueError(f"fill_value must be a scalar, got an array of shape {np.shape(value)}")
        value = np.asarray(value).item()
    elif not isinstance(value, (bool, int, float, complex, np.generic)):
        aval_of(value)  # says that it is no array
    return np.nan if isinstance(value, (float, np.floating)) and value != value else value


@boundary
def gather(operand, start_indices, dimension_numbers: GatherDimensionNumbers, slice_sizes, *,
           unique_indices: bool = False, indices_are_sorted: bool = False, mode: str | GatherScatterMode | None = None,
           fill_value=None):
    """Cut a box at each of many positions.

    Args:
      start_indices: integer array; its last axis holds the components of a position.
      dimension_numbers: which axes play which part, see `GatherDimensionNumbers`.
      slice_sizes: the box: one int for each operand axis.
      unique_indices, indices_are_sorted: promises that let the compiler do less; results are undefined if broken.
      mode: what to do out of bounds, see `GatherScatterMode`; by default it is promised that nothing is.
      fill_value: scalar read out of bounds in mode 'fill'; by default NaN, the least signed integer, the greatest
        unsigned integer, True.
    Returns: array of the operand's dtype; positions run over the axes that are not in `offset_dims`.
    Raises: TypeError for sizes and dimension numbers that do not fit, ValueError for indices that are not integers.

    >>> import jaxlite.numpy as jnp
    >>> from jaxlite import lax
    >>> rows = lax.GatherDimensionNumbers(offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,))
    >>> lax.gather(jnp.arange(6).reshape(3, 2), jnp.array([[2], [0]]), rows, slice_sizes=(1, 2))
    Array([[4, 5],
           [0, 1]], dtype=int32)
    """
    parsed = GatherScatterMode.PROMISE_IN_BOUNDS if mode is None else GatherScatterMode.from_any(mode)
    if parsed is GatherScatterMode.ONE_HOT:
        parsed, fill_value = GatherScatterMode.FILL_OR_DROP, 0
    if parsed is not GatherScatterMode.FILL_OR_DROP:
        fill_value = None
    else:
        dtype = aval_of(operand).dtype
        fill_value = default_fill_value(dtype) if fill_value is None else static_scalar(fill_value)
        shaping.require_real("gather", fill_value, dtype)
    return gather_p.bind(operand, start_indices, dimension_numbers=_as_axes(dimension_numbers),
                         slice_sizes=tuple(map(as_size, slice_sizes)), unique_indices=bool(unique_indices),
                         indices_are_sorted=bool(indices_are_sorted), mode=parsed, fill_value=fill_value)


# --- scatter -----------------------------------------------------------------------------------------

scatter_p = Primitive("scatter")
scatter_add_p = Primitive("scatter-add")
scatter_sub_p = Primitive("scatter-sub")
scatter_mul_p = Primitive("scatter-mul")
scatter_min_p = Primitive("scatter-min")
scatter_max_p = Primitive("scatter-max")


def _scatter_aval(operand, indices, updates, *, dimension_numbers: ScatterDimensionNumbers, indices_are_sorted: bool,
                  unique_indices: bool, mode, update_jaxpr, update_consts: tuple[Any, ...]) -> ShapedArray:
    window, inserted, index_map, batching, indices_batching = dimension_numbers
    shape, updates_shape = operand.shape, updates.shape
    elementwise.require_equal_dtypes("scatter", (operand, updates))
    _check_positions("scatter", indices, index_map, "scatter_dims_to_operand_dims", inserted, "inserted_window_dims",
                     batching, indices_batching, shape)
    rank = len(indices.shape) - 1 + len(window)
    if len(updates_shape) != rank:
        raise TypeError(f"Updates tensor must be of rank {rank}; got {len(updates_shape)}.")
    _check_axes("scatter", "update_window_dims", window, rank)
    if len(window) + len(inserted) + len(batching) != len(shape):
        raise TypeError(f"Scatter op has window of size {len(window) + len(inserted) + len(batching)}; doesn't match "
                        f"operand of rank {len(shape)}.")
    boxed = [axis for axis in range(len(shape)) if axis not in inserted and axis not in batching]
    for axis, operand_axis in zip(window, boxed):
        if updates_shape[axis] > shape[operand_axis]:
            raise TypeError(f"Bounds of the window dimensions of updates must not exceed the bounds of the "
                            f"corresponding dimensions of operand. For dimension {axis}, updates bound is "
                            f"{updates_shape[axis]}, operand bound is {shape[operand_axis]}.")
    positions = other_axes(rank, window)
    for axis, bound in zip(positions, indices.shape):
        if updates_shape[axis] != bound:
            raise TypeError(f"Bounds of the scatter dimensions of updates must be the same as the bounds of the "
                            f"corresponding dimensions of scatter indices. For scatter dimension {axis}, updates "
                            f"bound is {updates_shape[axis]}, indices bound is {bound}.")
    return operand


for _primitive in (scatter_p, scatter_add_p, scatter_sub_p, scatter_mul_p, scatter_min_p, scatter_max_p):
    _primitive.def_abstract_eval(_scatter_aval)


@functools.cache
def _combiner(function: Callable, dtype) -> ClosedJaxpr:
    """The program of two scalars that combines an element and its update."""
    scalar = shaped_array((), dtype, False)
    jaxpr, _ = trace_to_jaxpr(lambda x, y: [function(x, y)], [scalar, scalar])
    return ClosedJaxpr(jaxpr, [])


def _scatter(primitive: Primitive, operand, indices, updates, numbers, indices_are_sorted: bool, unique_indices: bool,
             mode, update_jaxpr, update_consts: tuple[Any, ...] = ()):
    parsed = GatherScatterMode.from_any(mode)
    if parsed is GatherScatterMode.ONE_HOT:
        parsed = GatherScatterMode.FILL_OR_DROP
    return primitive.bind(
        operand, indices, updates, dimension_numbers=_as_axes(numbers), indices_are_sorted=bool(indices_are_sorted),
        unique_indices=bool(unique_indices), mode=parsed, update_jaxpr=update_jaxpr,
        update_consts=update_consts)


@boundary
def scatter(operand, scatter_indices, updates, dimension_numbers: ScatterDimensionNumbers, *,
            indices_are_sorted: bool = False, unique_indices: bool = False,
            mode: str | GatherScatterMode | None = None):
    """The operand with boxes replaced at many positions. Where boxes overlap, one of them wins.

    Args:
      scatter_indices: integer array; its last axis holds the components of a position.
      updates: array of the operand's dtype: a box for each position.
      dimension_numbers: which axes play which part, see `ScatterDimensionNumbers`.
      indices_are_sorted, unique_indices: promises that let the compiler do less; results are undefined if broken.
      mode: what to do with boxes out of bounds, see `GatherScatterMode`; they are dropped by default.
    Returns: array of the operand's type.
    Raises: TypeError for shapes, dtypes and dimension numbers that do not fit.

    >>> import jaxlite.numpy as jnp
    >>> from jaxlite import lax
    >>> numbers = lax.ScatterDimensionNumbers((), (0,), (0,))
    >>> lax.scatter_add(jnp.zeros(4), jnp.array([[1], [3], [1]]), jnp.array([1., 2., 3.]), numbers)
    Array([0., 4., 0., 2.], dtype=float32)
    """
    return _scatter(scatter_p, operand, scatter_indices, updates, dimension_numbers, indices_are_sorted,
                    unique_indices, mode, None)


def _combining(name: str, primitive: Primitive, function: Callable, what: str) -> Callable[..., Any]:
    def combine(operand, scatter_indices, updates, dimension_numbers: ScatterDimensionNumbers, *,
                indices_are_sorted: bool = False, unique_indices: bool = False,
                mode: str | GatherScatterMode | None = None):
        update_jaxpr = _combiner(function, aval_of(operand).dtype)
        return _scatter(primitive, operand, scatter_indices, updates, dimension_numbers, indices_are_sorted,
                        unique_indices, mode, update_jaxpr)

    combine.__name__ = combine.__qualname__ = name
    combine.__doc__ = f"""{what} boxes of updates at many positions; overlapping ones all count.

    Arguments as for `scatter`.
    """
    return combine


scatter_add = _combining("scatter_add", scatter_add_p, elementwise.add, "Add")
scatter_sub = _combining("scatter_sub", scatter_sub_p, elementwise.sub, "Subtract")
scatter_mul = _combining("scatter_mul", scatter_mul_p, elementwise.mul, "Multiply by")
scatter_min = _combining("scatter_min", scatter_min_p, elementwise.min, "Take the minimum with")
scatter_max = _combining("scatter_max", scatter_max_p, elementwise.max, "Take the maximum with")


@boundary
def scatter_apply(operand, scatter_indices, func: Callable[[Any], Any], dimension_numbers: ScatterDimensionNumbers, *,
                  update_shape=(), indices_are_sorted: bool = False, unique_indices: bool = False,
                  mode: str | GatherScatterMode | None = None):
    """Apply a function of one scalar to the elements in boxes at many positions, once for each box they are in.

    Args:
      func: scalar to scalar of the same dtype. It may close over concrete scalars, not over traced values.
      update_shape: the shape that updates would have: positions and box.
      The rest as for `scatter`.
    """
    dtype = aval_of(operand).dtype
    if isinstance(dtype, dtypes.ExtendedDType):
        raise NotImplementedError(f"scatter_apply: an element of {dtype} is no scalar; gather, compute and scatter instead")
    scalar = shaped_array((), dtype, False)
    jaxpr, consts = trace_to_jaxpr(lambda x, y: [shaping.convert(func(x), dtype, False)], [scalar, scalar])
    if jaxpr.out_avals[0].shape:
        raise ValueError(f"scatter_apply: the function of one scalar gave {jaxpr.out_avals[0].str_short()}, which is no scalar")
    for const in consts:
        if isinstance(const, Tracer) or aval_of(const).shape:
            raise TypeError("scatter_apply: the function may close over concrete scalars only; it closes over "
                            f"{const}. Gather, compute and scatter instead.")
    updates = shaping.full(update_shape, 0, dtype)
    return _scatter(scatter_p, operand, scatter_indices, updates, dimension_numbers, indices_are_sorted,
                    unique_indices, mode, hoist_consts(jaxpr), tuple(host_value(const)[()] for const in consts))
