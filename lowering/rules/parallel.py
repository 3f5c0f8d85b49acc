"""StableHLO rules of collectives over mesh axes, and of `shard_map`, which contains them.

Groups are numbers of partitions: positions in the program's list of devices. Every collective has a channel, which tells
XLA that it is between partitions, not between replicas.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lowering.buffers import physical
from lowering.module import LoweringError, is_ordered
from lowering.monoids import COMBINERS
from lowering.partitioning import quoted, spec_text
from lowering.rules import lowers
from lowering.rules.reductions import over_devices

_I32, _U32 = np.dtype(np.int32), np.dtype(np.uint32)
_REDUCERS = {"psum": "sum", "psum_invariant": "sum", "unreduced_psum": "sum", "pmax": "max", "pmin": "min",
             "unreduced_pmax": "max", "unreduced_pmin": "min", "reduce_scatter": "sum", "unreduced_reduce_scatter": "sum"}


@lowers("pvary", "preduced", "reduced_vary_cast_p", "vary_unreduced_cast_p")
def _pvary(ctx: Any, x: Any, *, axes: Any) -> Any:
    return x


@lowers("shard_map")
def _shard_map(ctx: Any, *operands: Any, jaxpr: Any, mesh: Any, in_specs: Any, out_specs: Any, newly_manual_axes: Any,
               check_vma: bool) -> list[Any]:
    meshes = ctx.builder.meshes
    if meshes is None:
        raise LoweringError("shard_map over a mesh without devices: lower it where the mesh of the context has some "
                            "(jax.set_mesh), or give shard_map a Mesh")
    if ctx.in_computation:
        raise LoweringError("shard_map cannot run inside the function of a reduction, a scatter or the like")
    program = jaxpr.jaxpr
    if len(meshes.devices or ()) == 1:  # XLA does not partition for one
        with meshes.manual(mesh, newly_manual_axes):
            return ctx.inline(program, operands)
    tokens = [ctx.token] if is_ordered(program) else []  # each device has a chain of its own effects
    pending = not meshes.is_manual and any(spec.unreduced for spec in (*in_specs, *out_specs))
    if pending:  # Shardy wants a constraint between what is summed and what is not
        operands = tuple([_held(ctx, x, spec, mesh, aval) for x, spec, aval in zip(operands, in_specs, ctx.avals_in)])
    with meshes.manual(mesh, newly_manual_axes):
        name, is_open = meshes.name(meshes.manual_mesh), meshes.has_free_axes()
        ir = ctx.ir

        def shardings(specs: Sequence[Any], avals: Sequence[Any]) -> Any:
            texts = [spec_text(spec, len(physical(aval)[0]), name, is_open) for spec, aval in zip(specs, avals, strict=True)]
            texts += [f"<@{name}, []>"] * len(tokens)
            return ctx.attribute(f"#sdy.sharding_per_value<[{', '.join(texts)}]>")

        axes = ", ".join(quoted(each) for each in mesh.axis_names if each in newly_manual_axes)
        # XLA loses the sharding of side effects in a program without results: there is always one.
        types = [*map(ctx.type_of, ctx.avals_out), *[token.type for token in tokens]]
        laid_out = shardings(out_specs, ctx.avals_out)
        if not types:
            types, laid_out = [ctx.tensor_type((), _I32)], ctx.attribute(f"#sdy.sharding_per_value<[<@{name}, []>]>")
        operation = ctx.op("sdy.manual_computation", [*operands, *tokens], types, {
            "in_shardings": shardings(in_specs, ctx.avals_in), "out_shardings": laid_out,
            "manual_axes": ir.Attribute.parse(f"#sdy<manual_axes{{{axes}}}>", ctx.builder.context)}, 1)
        inside = ctx.region(operation, 0, [ctx.type_of(var.aval) for var in program.invars] + [token.type for token in tokens])
        arguments = list(inside.arguments)
        if tokens:
            inside.token = arguments.pop()
        results = list(inside.emit(program, arguments))
        results += [inside.token] if tokens else []
        inside.op("sdy.return", results or [inside.constant(0, _I32)], [])
    outs = list(operation.results)[:len(ctx.avals_out)]
    if tokens:
        ctx.token = operation.results[len(outs)]
    if pending:
        return [_held(ctx, x, spec, mesh, aval) for x, spec, aval in zip(outs, out_specs, ctx.avals_out)]
    return outs


def _held(ctx: Any, x: Any, spec: Any, mesh: Any, aval: Any) -> Any:
    meshes = ctx.builder.meshes
    text = spec_text(spec, len(physical(aval)[0]), meshes.name(mesh))
    return ctx.op("sdy.sharding_constraint", [x], [x.type], {"sharding": ctx.attribute(f"#sdy.sharding{text}")}).result


def _alone(ctx: Any) -> bool:
    """Whether there is only one partition."""
    return ctx.builder.meshes.manual_mesh.size == 1


def _channel(ctx: Any) -> dict[str, Any]:
    return {"channel_handle": ctx.attribute(
        f"#stablehlo.channel_handle<handle = {ctx.builder.meshes.next_channel()}, type = 1>")}


def _groups(ctx: Any, names: Any, index_groups: Any = None) -> np.ndarray:
    return ctx.builder.meshes.groups(names if isinstance(names, tuple) else (names,), index_groups)


def _reducer(ctx: Any, operation: Any, monoid: str, dtype: Any) -> None:
    scalar = ctx.tensor_type((), dtype)
    inside = ctx.region(operation, 0, [scalar, scalar])
    inside.op("stablehlo.return", [inside.op(f"stablehlo.{COMBINERS[monoid]}", inside.arguments, [scalar]).result], [])


@lowers("psum", "psum_invariant", "unreduced_psum", "unreduced_pmax", "unreduced_pmin", "pmax", "pmin")
def _all_reduce(ctx: Any, x: Any, *, axes: Any, axis_index_groups: Any = None) -> Any:
    if _alone(ctx):
        return x

    def reduced(monoid: str, x: Any, dtype: Any) -> Any:
        operation = ctx.op("stablehlo.all_reduce", [x], [x.type], {
            "replica_groups": ctx.dense_i64(_groups(ctx, axes, axis_index_groups)), **_channel(ctx),
            "use_global_device_ids": ctx.ir.UnitAttr.get(ctx.builder.context)}, 1)
        _reducer(ctx, operation, monoid, dtype)
        return operation.result

    shape, dtype = physical(ctx.aval_out)
    return over_devices(ctx, _REDUCERS[ctx.eqn.primitive.name], x, shape, shape, dtype, reduced)


@lowers("all_gather", "all_gather_invariant", "all_gather_reduced")
def _all_gather(ctx: Any, x: Any, *, all_gather_dimension: int, axis_name: Any, axis_size: int, tiled: bool,
                axis_index_groups: Any = None) -> Any:
    shape, dtype = physical(ctx.avals_in[0])
    if not tiled:
        shape = (*shape[:all_gather_dimension], 1, *shape[all_gather_dimension:])
        x = ctx.value("stablehlo.reshape", [x], shape, dtype)
    return _gathered(ctx, x, shape, dtype, all_gather_dimension, _groups(ctx, axis_name, axis_index_groups))


def _gathered(ctx: Any, x: Any, shape: Any, dtype: Any, dimension: int, groups: np.ndarray) -> Any:
    if _alone(ctx):
        return x
    shape = (*shape[:dimension], shape[dimension] * groups.shape[1], *shape[dimension + 1:])
    return ctx.op("stablehlo.all_gather", [x], [ctx.tensor_type(shape, dtype)], {
        "all_gather_dim": ctx.i64(dimension), "replica_groups": ctx.dense_i64(groups), **_channel(ctx),
        "use_global_device_ids": ctx.ir.UnitAttr.get(ctx.builder.context)}).result


@lowers("reduce_scatter", "unreduced_reduce_scatter")
def _reduce_scatter(ctx: Any, x: Any, *, axis_name: Any, axis_size: int, scatter_dimension: int, tiled: bool,
                    axis_index_groups: Any = None) -> Any:
    shape, dtype = physical(ctx.avals_in[0])
    if _alone(ctx):
        return x if tiled else ctx.value("stablehlo.reshape", [x], *physical(ctx.aval_out))
    part = (*shape[:scatter_dimension], shape[scatter_dimension] // axis_size, *shape[scatter_dimension + 1:])

    def reduced(monoid: str, x: Any, dtype: Any) -> Any:
        operation = ctx.op("stablehlo.reduce_scatter", [x], [ctx.tensor_type(part, dtype)], {
            "scatter_dimension": ctx.i64(scatter_dimension),
            "replica_groups": ctx.dense_i64(_groups(ctx, axis_name, axis_index_groups)), **_channel(ctx),
            "use_global_device_ids": ctx.ir.UnitAttr.get(ctx.builder.context)}, 1)
        _reducer(ctx, operation, monoid, dtype)
        return operation.result

    result = over_devices(ctx, "sum", x, shape, part, dtype, reduced)
    return result if tiled else ctx.value("stablehlo.reshape", [result], *physical(ctx.aval_out))


@lowers("all_to_all")
def _all_to_all(ctx: Any, x: Any, *, axis_index_groups: Any, axis_name: Any, concat_axis: int, split_axis: int,
                tiled: bool) -> Any:
    shape, dtype = physical(ctx.avals_in[0])
    groups = _groups(ctx, axis_name, axis_index_groups)
    count = groups.shape[1]
    sizes = list(shape)
    sizes[split_axis] //= count
    joined = concat_axis if tiled else split_axis
    sizes[joined] *= count
    out = x if _alone(ctx) else ctx.op("stablehlo.all_to_all", [x], [ctx.tensor_type(sizes, dtype)], {
        "split_dimension": ctx.i64(split_axis), "concat_dimension": ctx.i64(joined), "split_count": ctx.i64(count),
        "replica_groups": ctx.dense_i64(groups), **_channel(ctx)}).result
    if tiled or split_axis == concat_axis:
        return out
    order = [axis for axis in range(len(shape)) if axis != split_axis]
    order.insert(concat_axis, split_axis)
    return ctx.transposed(out, sizes, order, dtype)


@lowers("ppermute")
def _ppermute(ctx: Any, x: Any, *, axis_name: Any, perm: Any) -> Any:
    if not perm:  # no partition receives anything
        shape, dtype = physical(ctx.aval_out)
        return ctx.constant(0, dtype, shape)
    if _alone(ctx):
        return x
    pairs = [(row[source], row[target]) for row in _groups(ctx, axis_name) for source, target in perm]
    return ctx.op("stablehlo.collective_permute", [x], [x.type], {
        "source_target_pairs": ctx.dense_i64(pairs), **_channel(ctx)}).result


@lowers("pbroadcast")
def _pbroadcast(ctx: Any, x: Any, *, axis_name: Any, source: int) -> Any:
    # XLA's own operation for it does not run on the CPU. A sum of the value and zeros would lose the sign of -0.0.
    shape, dtype = physical(ctx.aval_out)
    every = _gathered(ctx, ctx.value("stablehlo.reshape", [x], (1, *shape), dtype), (1, *shape), dtype, 0,
                      _groups(ctx, axis_name))
    rest = len(shape)
    one = ctx.value("stablehlo.slice", [every], (1, *shape), dtype, start_indices=ctx.i64s((source, *[0] * rest)),
                    limit_indices=ctx.i64s((source + 1, *shape)), strides=ctx.i64s((1,) * (rest + 1)))
    return ctx.value("stablehlo.reshape", [one], shape, dtype)


@lowers("axis_index")
def _axis_index(ctx: Any, *, axis_name: Any) -> Any:
    types = [ctx.tensor_type((), _I32)]
    return ctx.builder.meshes.on_each(ctx, [], types, lambda inside, _: [_own_index(inside, axis_name)])[0]


def _own_index(ctx: Any, name: Any) -> Any:
    if _alone(ctx):
        return ctx.constant(0, _I32)
    table = ctx.builder.meshes.indices(name)
    own = ctx.op("stablehlo.partition_id", [], [ctx.tensor_type((), _U32)]).result
    entry = ctx.value("stablehlo.dynamic_slice", [ctx.dense_constant(table), own], (1,), _I32, slice_sizes=ctx.i64s((1,)))
    return ctx.value("stablehlo.reshape", [entry], (), _I32)
