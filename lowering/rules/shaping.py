"""StableHLO rules of primitives that change dtype, shape or the order of elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from lowering.buffers import real_dtype
from lowering.rules import lowers


@lowers("convert_element_type")
def _convert_element_type(ctx: Any, x: Any, *, new_dtype: Any, weak_type: bool) -> Any:
    (aval,) = ctx.avals_in
    old, new = aval.dtype, new_dtype
    if old == new:
        return x
    if old.kind == "c" and new.kind != "c":
        if new == np.bool_:
            zero = ctx.constant(0, old, aval.shape)
            return ctx.compare(x, zero, "NE")
        part = real_dtype(old)
        x = ctx.value("stablehlo.real", [x], aval.shape, part)
        return x if part == new else ctx.emit1("stablehlo.convert", x)
    if new == np.bool_:
        return ctx.compare(x, ctx.constant(0, old, aval.shape), "NE")
    return ctx.emit1("stablehlo.convert", x)


@lowers("bitcast_convert_type")
def _bitcast_convert_type(ctx: Any, x: Any, *, new_dtype: Any) -> Any:
    return x if ctx.avals_in[0].dtype == new_dtype else ctx.emit1("stablehlo.bitcast_convert", x)


@lowers("reduce_precision")
def _reduce_precision(ctx: Any, x: Any, *, exponent_bits: int, mantissa_bits: int) -> Any:
    return ctx.emit1("stablehlo.reduce_precision", x, exponent_bits=ctx.i32(exponent_bits),
                     mantissa_bits=ctx.i32(mantissa_bits))


@lowers("broadcast_in_dim")
def _broadcast_in_dim(ctx: Any, x: Any, *, shape: Any, broadcast_dimensions: Any, sharding: Any = None) -> Any:
    return ctx.emit1("stablehlo.broadcast_in_dim", x, broadcast_dimensions=ctx.i64s(broadcast_dimensions))


@lowers("reshape")
def _reshape(ctx: Any, x: Any, *, new_sizes: Any, dimensions: Any, sharding: Any = None) -> Any:
    if dimensions is not None:
        (aval,) = ctx.avals_in
        x = ctx.transposed(x, aval.shape, dimensions, aval.dtype)
    return ctx.emit1("stablehlo.reshape", x)


@lowers("squeeze")
def _squeeze(ctx: Any, x: Any, *, dimensions: Any) -> Any:
    return ctx.emit1("stablehlo.reshape", x)


@lowers("transpose")
def _transpose(ctx: Any, x: Any, *, permutation: Any) -> Any:
    owner = x.owner
    if getattr(owner, "name", "") != "stablehlo.broadcast_in_dim":
        return ctx.emit1("stablehlo.transpose", x, permutation=ctx.i64s(permutation))
    # An array that is repeated is transposed before, where it is small.
    (source,) = owner.operands
    shape = ctx.ir.RankedTensorType(source.type).shape
    places = [permutation.index(axis) for axis in owner.attributes["broadcast_dimensions"]]
    order = sorted(range(len(places)), key=places.__getitem__)
    if order != sorted(order):
        source = ctx.transposed(source, shape, order, ctx.aval_out.dtype)
    return ctx.emit1("stablehlo.broadcast_in_dim", source, broadcast_dimensions=ctx.i64s(sorted(places)))


@lowers("rev")
def _rev(ctx: Any, x: Any, *, dimensions: Any) -> Any:
    return ctx.emit1("stablehlo.reverse", x, dimensions=ctx.i64s(dimensions))


@lowers("concatenate")
def _concatenate(ctx: Any, *operands: Any, dimension: int) -> Any:
    return _in_bytes(ctx, "stablehlo.concatenate", operands, dimension=ctx.i64(dimension))


_BYTES = {"int2": np.dtype(np.int8), "uint2": np.dtype(np.uint8)}


def _in_bytes(ctx: Any, operation: str, operands: Sequence[Any], **attributes: Any) -> Any:
    """An operation that moves elements, on bytes where they have two bits: with those XLA:CPU ends the process."""
    out = ctx.aval_out
    wide = _BYTES.get(out.dtype.name) if ctx.platform == "cpu" else None
    if wide is None:
        return ctx.emit1(operation, *operands, **attributes)
    parts = [ctx.convert(x, aval.shape, wide) for x, aval in zip(operands, ctx.avals_in, strict=True)]
    return ctx.convert(ctx.value(operation, parts, out.shape, wide, **attributes), out.shape, out.dtype)


@lowers("pad")
def _pad(ctx: Any, x: Any, value: Any, *, padding_config: Any) -> Any:
    low, high, inner = zip(*padding_config, strict=True) if padding_config else ((), (), ())
    row = _diagonal_row(ctx, padding_config)
    if row:
        return _diagonal(ctx, x, value, row, low[-1])
    return _in_bytes(ctx, "stablehlo.pad", [x, value], edge_padding_low=ctx.i64s(low), edge_padding_high=ctx.i64s(high),
                     interior_padding=ctx.i64s(inner))


def _diagonal_row(ctx: Any, padding_config: Any) -> int:
    """The length of the rows in which the elements of a padded last axis are a diagonal, one further in each row; or 0."""
    (out,), (aval, _) = ctx.eqn.outvars, ctx.avals_in
    if any(type(size) is not int for size in out.aval.shape) or not padding_config or any(map(any, padding_config[:-1])):
        return 0
    (low, high, row), elements, total = padding_config[-1], aval.shape[-1], out.aval.shape[-1]
    is_diagonal = row and min(low, high) >= 0 and total % row == 0 and 1 < elements <= row - low % row
    return row if is_diagonal and total < 1 << 31 and aval.dtype.kind in "biufc" else 0


def _diagonal(ctx: Any, x: Any, value: Any, row: int, start: int) -> Any:
    """`x` along a diagonal of flattened matrices whose rows have this length. Start is the place of the first element.

    XLA:CPU divides the place of each element of a padded array by the distance of elements, one at a time. The choice
    between the elements' rows and the value is made for several at once, and fused into the consumer.
    """
    (out,), (aval, _) = ctx.eqn.outvars, ctx.avals_in
    batch, dtype, integer = aval.shape[:-1], aval.dtype, np.dtype(np.int32)
    shape = (*batch, out.aval.shape[-1] // row, row)
    above = start // row
    below = shape[-2] - above - aval.shape[-1]
    none = [0] * len(batch)
    if above or below:
        x = ctx.value("stablehlo.pad", [x, value], shape[:-1], dtype, edge_padding_low=ctx.i64s((*none, above)),
                      edge_padding_high=ctx.i64s((*none, below)), interior_padding=ctx.i64s((*none, 0)))
    axes = range(len(shape))
    rows, columns = (ctx.value("stablehlo.iota", [], shape, integer, iota_dimension=ctx.i64(axis)) for axis in axes[-2:])
    offset = start % row - above
    if offset:
        rows = ctx.value("stablehlo.add", [rows, ctx.constant(offset, integer, shape)], shape, integer)
    wide = ctx.value("stablehlo.broadcast_in_dim", [x], shape, dtype, broadcast_dimensions=ctx.i64s(axes[:-1]))
    filled = ctx.broadcast(value, (), shape, dtype)
    return ctx.emit1("stablehlo.reshape", ctx.value(
        "stablehlo.select", [ctx.compare(rows, columns, "EQ"), wide, filled], shape, dtype))


def _static_slice(ctx: Any, x: Any, aval: Any, axis: int, start: int, size: int) -> Any:
    starts, limits = [0] * len(aval.shape), list(aval.shape)
    starts[axis], limits[axis] = start, start + size
    shape = [high - low for low, high in zip(starts, limits, strict=True)]
    return ctx.value("stablehlo.slice", [x], shape, aval.dtype, start_indices=ctx.i64s(starts),
                     limit_indices=ctx.i64s(limits), strides=ctx.i64s([1] * len(shape)))


@lowers("split")
def _split(ctx: Any, x: Any, *, sizes: Any, axis: int) -> list[Any]:
    (aval,) = ctx.avals_in
    results, start = [], 0
    for size in sizes:
        results.append(_static_slice(ctx, x, aval, axis, start, size))
        start += size
    return results


@lowers("unstack")
def _unstack(ctx: Any, x: Any, *, axis: int) -> list[Any]:
    (aval,) = ctx.avals_in
    shape = aval.shape[:axis] + aval.shape[axis + 1:]
    return [ctx.value("stablehlo.reshape", [_static_slice(ctx, x, aval, axis, index, 1)], shape, aval.dtype)
            for index in range(aval.shape[axis])]


@lowers("stack")
def _stack(ctx: Any, *operands: Any, axis: int) -> Any:
    aval = ctx.avals_in[0]
    shape = (*aval.shape[:axis], 1, *aval.shape[axis:])
    pieces = [ctx.value("stablehlo.reshape", [x], shape, aval.dtype) for x in operands]
    layout, meshes = ctx.aval_out.layout, ctx.builder.meshes
    if layout is not None and layout.spec.unreduced and meshes is not None:  # Shardy would forget it
        pieces = [meshes.pinned(ctx, piece, layout, len(shape)) for piece in pieces]
    return ctx.emit1("stablehlo.concatenate", *pieces, dimension=ctx.i64(axis))


@lowers("tile")
def _tile(ctx: Any, x: Any, *, reps: Any) -> Any:
    (aval,) = ctx.avals_in
    spread = [extent for size, rep in zip(aval.shape, reps, strict=True) for extent in (rep, size)]
    wide = ctx.value("stablehlo.broadcast_in_dim", [x], spread, aval.dtype,
                     broadcast_dimensions=ctx.i64s(range(1, 2 * len(reps), 2)))
    return ctx.emit1("stablehlo.reshape", wide)


_IOTA_LIMIT = 1 << 33  # XLA:CPU of jaxlib 0.12 divides by zero beyond 2**35 or so, and takes the process with it


@lowers("iota")
def _iota(ctx: Any, *, dtype: Any, shape: Any, dimension: int, sharding: Any = None) -> Any:
    total = math.prod(shape)
    if isinstance(total, int) and total > _IOTA_LIMIT:
        raise ValueError(f"iota of shape {shape}: more than {_IOTA_LIMIT} elements cannot be compiled")
    return ctx.emit1("stablehlo.iota", iota_dimension=ctx.i64(dimension))


@lowers("empty")
def _empty(ctx: Any, *, shape: Any, dtype: Any, out_sharding: Any = None) -> Any:
    return ctx.constant(0, dtype, shape)


@lowers("copy", "stop_gradient")
def _identity(ctx: Any, x: Any) -> Any:
    return x


@lowers("optimization_barrier")
def _optimization_barrier(ctx: Any, *operands: Any) -> list[Any]:
    types = [ctx.type_of(aval) for aval in ctx.avals_in]
    return list(ctx.op("stablehlo.optimization_barrier", operands, types).results)


@lowers("dim_as_value")
def _dim_as_value(ctx: Any, *, dim: Any) -> Any:
    if not hasattr(ctx, "size"):
        raise NotImplementedError(f"Evaluation rule for 'dim_as_value' is not implemented.\nThe symbolic dimension {dim} "
                                  "has no value here: programs that compute with it are exported, and then called with arrays.")
    value, dtype = ctx.size(dim).value, ctx.aval_out.dtype
    return value if dtype == np.int32 else ctx.convert(value, (), dtype)
