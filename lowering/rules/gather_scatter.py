"""StableHLO rules of gather and the scatter family.

StableHLO's gather clamps indices, and its scatter drops windows that are out of bounds. The rules add the other modes:
reads that fill, and writes that clamp.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lowering.monoids import has_nan
from lowering.rules import lowers


def _wide_enough(ctx: Any, indices: Any, aval: Any, limits: Sequence[int]) -> tuple[Any, Any]:
    """Indices in a type that holds all limits, and that type."""
    limits = [limit for limit in limits if type(limit) is int]  # 32 bits hold those that are symbolic
    if all(limit <= np.iinfo(aval.dtype).max for limit in limits):
        return indices, aval.dtype
    dtype = np.dtype(np.int32 if max(limits) <= np.iinfo(np.int32).max else np.int64)
    return ctx.convert(indices, aval.shape, dtype), dtype


def _per_component(ctx: Any, values: Sequence[int], shape: tuple[int, ...], dtype: Any) -> Any:
    """One value for each component of a position, in the indices' shape."""
    if any(type(value) is not int for value in values):  # where sizes are symbolic
        row = ctx.convert(ctx.vector(values), (len(values),), dtype)
    elif len(set(values)) == 1:
        return ctx.constant(values[0], dtype, shape)
    else:
        row = ctx.constant(np.array(values, dtype), dtype, (len(values),))
    return ctx.value("stablehlo.broadcast_in_dim", [row], shape, dtype,
                     broadcast_dimensions=ctx.i64s([len(shape) - 1]))


def _in_bounds(ctx: Any, indices: Any, shape: tuple[int, ...], dtype: Any, limits: Sequence[int]) -> Any:
    """Whether each position is in [0, limit] in all components; shape without the last axis."""
    bool_, batch = np.dtype(bool), shape[:-1]
    if not limits:
        return ctx.constant(True, bool_, batch)
    inside = ctx.compare(indices, _per_component(ctx, limits, shape, dtype), "LE")
    if dtype.kind == "i":
        not_negative = ctx.compare(indices, ctx.constant(0, dtype, shape), "GE")
        inside = ctx.value("stablehlo.and", [inside, not_negative], shape, bool_)
    if len(limits) == 1:
        return ctx.value("stablehlo.reshape", [inside], batch, bool_)
    operation = ctx.op("stablehlo.reduce", [inside, ctx.constant(True, bool_)], [ctx.tensor_type(batch, bool_)],
                       {"dimensions": ctx.i64s([len(batch)])}, regions=1)
    scalar = ctx.tensor_type((), bool_)
    body = ctx.region(operation, 0, [scalar, scalar])
    x, y = body.arguments
    body.op("stablehlo.return", [body.value("stablehlo.and", [x, y], (), bool_)], [])
    return operation.result


def _axes(values: Sequence[int]) -> str:
    return f"[{', '.join(map(str, values))}]"


@lowers("gather")
def _gather(ctx: Any, operand: Any, indices: Any, *, dimension_numbers: Any, slice_sizes: Any, unique_indices: bool,
            indices_are_sorted: bool, mode: Any, fill_value: Any) -> Any:
    numbers, (operand_aval, indices_aval), out = dimension_numbers, ctx.avals_in, ctx.aval_out
    if 0 in out.shape:
        return ctx.constant(0, out.dtype, out.shape)
    limits = [operand_aval.shape[axis] - slice_sizes[axis] for axis in numbers.start_index_map]
    indices, dtype = _wide_enough(ctx, indices, indices_aval, limits)
    attribute = ctx.attribute(
        f"#stablehlo.gather<offset_dims = {_axes(numbers.offset_dims)}, "
        f"collapsed_slice_dims = {_axes(numbers.collapsed_slice_dims)}, "
        f"operand_batching_dims = {_axes(numbers.operand_batching_dims)}, "
        f"start_indices_batching_dims = {_axes(numbers.start_indices_batching_dims)}, "
        f"start_index_map = {_axes(numbers.start_index_map)}, index_vector_dim = {len(indices_aval.shape) - 1}>")
    result = ctx.emit1("stablehlo.gather", operand, indices, dimension_numbers=attribute,
                       slice_sizes=ctx.i64s(slice_sizes), indices_are_sorted=ctx.flag(indices_are_sorted))
    if mode.name != "FILL_OR_DROP" or not limits:
        return result
    inside = _in_bounds(ctx, indices, indices_aval.shape, dtype, limits)
    positions = [axis for axis in range(len(out.shape)) if axis not in numbers.offset_dims]
    inside = ctx.value("stablehlo.broadcast_in_dim", [inside], out.shape, np.dtype(bool),
                       broadcast_dimensions=ctx.i64s(positions))
    return ctx.emit1("stablehlo.select", inside, result, ctx.constant(fill_value, out.dtype, out.shape))



_COMBINED = {"scatter-add": "add", "scatter-sub": "subtract", "scatter-mul": "multiply", "scatter-min": "minimum",
             "scatter-max": "maximum"}


def updates_one_box(eqn: Any) -> bool:
    """Whether a scatter has one position, and becomes a dynamic_update_slice."""
    operand, indices = (atom.aval for atom in eqn.invars[:2])
    return (math.prod(indices.shape[:-1]) == 1 and not eqn.params["dimension_numbers"].operand_batching_dims
            and (eqn.params["update_jaxpr"] is None or eqn.primitive.name in _COMBINED and operand.dtype.kind != "c"))


def _one_box(ctx: Any, operand: Any, indices: Any, updates: Any, index_map: Sequence[int], box: list[int],
             limits: Sequence[int], dtype: Any, may_drop: bool) -> Any:
    """A scatter at one position as a dynamic_update_slice: XLA compiles it in less time, to the same code."""
    aval, count = ctx.avals_in[0], len(index_map)
    flat = ctx.value("stablehlo.reshape", [indices], (count,), dtype)
    starts = [ctx.constant(0, dtype)] * len(box)
    for component, axis in enumerate(index_map):
        one = ctx.value("stablehlo.slice", [flat], (1,), dtype, start_indices=ctx.i64s([component]),
                        limit_indices=ctx.i64s([component + 1]), strides=ctx.i64s([1]))
        starts[axis] = ctx.value("stablehlo.reshape", [one], (), dtype)
    updates = ctx.value("stablehlo.reshape", [updates], box, aval.dtype)
    combined = _COMBINED.get(ctx.eqn.primitive.name)
    if combined or may_drop:
        old = ctx.value("stablehlo.dynamic_slice", [operand, *starts], box, aval.dtype, slice_sizes=ctx.i64s(box))
        if combined:
            updates = ctx.value(f"stablehlo.{combined}", [old, updates], box, aval.dtype)
        if may_drop:
            inside = _in_bounds(ctx, flat, (count,), dtype, limits)
            updates = ctx.value("stablehlo.select", [inside, updates, old], box, aval.dtype)
    return ctx.emit1("stablehlo.dynamic_update_slice", operand, updates, *starts)


@lowers("scatter", "scatter-add", "scatter-sub", "scatter-mul", "scatter-min", "scatter-max")
def _scatter(ctx: Any, operand: Any, indices: Any, updates: Any, *, dimension_numbers: Any, indices_are_sorted: bool,
             unique_indices: bool, mode: Any, update_jaxpr: Any, update_consts: Any) -> Any:
    numbers, (operand_aval, indices_aval, updates_aval) = dimension_numbers, ctx.avals_in
    dropped = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
    box = [1] * len(operand_aval.shape)
    for axis, window in zip([axis for axis in range(len(box)) if axis not in dropped], numbers.update_window_dims):
        box[axis] = updates_aval.shape[window]
    limits = [operand_aval.shape[axis] - box[axis] for axis in numbers.scatter_dims_to_operand_dims]
    indices, dtype = _wide_enough(ctx, indices, indices_aval, limits)
    if mode.name == "CLIP" and limits:
        shape = indices_aval.shape
        indices = ctx.value("stablehlo.clamp", [ctx.constant(0, dtype, shape), indices,
                                                _per_component(ctx, limits, shape, dtype)], shape, dtype)
    if updates_one_box(ctx.eqn):
        return _one_box(ctx, operand, indices, updates, numbers.scatter_dims_to_operand_dims, box, limits, dtype,
                        mode.name == "FILL_OR_DROP")
    attribute = ctx.attribute(
        f"#stablehlo.scatter<update_window_dims = {_axes(numbers.update_window_dims)}, "
        f"inserted_window_dims = {_axes(numbers.inserted_window_dims)}, "
        f"input_batching_dims = {_axes(numbers.operand_batching_dims)}, "
        f"scatter_indices_batching_dims = {_axes(numbers.scatter_indices_batching_dims)}, "
        f"scatter_dims_to_operand_dims = {_axes(numbers.scatter_dims_to_operand_dims)}, "
        f"index_vector_dim = {len(indices_aval.shape) - 1}>")

    def scattered(operand: Any, updates: Any, dtype: Any, combined: Callable[[Any, Any, Any], Any]) -> Any:
        operation = ctx.op("stablehlo.scatter", [operand, indices, updates], [ctx.tensor_type(operand_aval.shape, dtype)],
                           {"scatter_dimension_numbers": attribute, "indices_are_sorted": ctx.flag(indices_are_sorted),
                            "unique_indices": ctx.flag(unique_indices)}, regions=1)
        scalar = ctx.tensor_type((), dtype)
        body = ctx.region(operation, 0, [scalar, scalar])
        body.op("stablehlo.return", [combined(body, *body.arguments)], [])
        return operation.result

    def update(body: Any, x: Any, y: Any) -> Any:
        if update_jaxpr is None:
            return y
        consts = [body.constant(const, const.dtype) for const in update_consts]
        (result,) = body.inline(update_jaxpr.jaxpr, [*consts, x, y])
        return result

    result = scattered(operand, updates, operand_aval.dtype, update)
    if ctx.eqn.primitive.name not in ("scatter-max", "scatter-min") or not has_nan(operand_aval.dtype) or not (
            ctx.builder.is_split and ctx.platform == "cpu"):  # there XLA may reduce over devices, where it passes over NaN
        return result
    boolean = np.dtype(bool)
    found = scattered(ctx.compare(operand, operand, "NE"), ctx.compare(updates, updates, "NE"), boolean,
                      lambda body, x, y: body.value("stablehlo.or", [x, y], (), boolean))
    return ctx.emit1("stablehlo.select", found, ctx.constant(math.nan, operand_aval.dtype, operand_aval.shape), result)
