"""StableHLO rules of sort and top-k."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lowering.buffers import real_dtype
from lowering.rules import lowers
from lowering.rules.reductions import iota

_boolean = np.dtype(bool)


def _canonical_float(ctx: Any, x: Any, dtype: Any, shape: tuple[int, ...] = ()) -> Any:
    """Floats such that their total order is the order of sorting: one zero, one NaN, and that is last."""
    zero = ctx.constant(0, dtype, shape)
    is_zero, is_nan = ctx.compare(x, zero, "EQ"), ctx.compare(x, x, "NE")  # both of x: neither waits for the other
    return _with_one_nan(ctx, ctx.value("stablehlo.select", [is_zero, zero, x], shape, dtype), is_nan, dtype, shape)


def _with_one_nan(ctx: Any, x: Any, is_nan: Any, dtype: Any, shape: tuple[int, ...]) -> Any:
    return ctx.value("stablehlo.select", [is_nan, ctx.constant(np.nan, dtype, shape), x], shape, dtype)


def _sort_keys(ctx: Any, x: Any, dtype: Any) -> list[tuple[Any, Any]]:
    """What to compare of one scalar, most important first: values and their dtypes."""
    if dtype.kind == "c":
        part = real_dtype(dtype)
        return [(ctx.value(f"stablehlo.{name}", [x], (), part), part) for name in ("real", "imag")]
    return [(x, dtype)]


def _comes(ctx: Any, x: Any, y: Any, dtype: Any, tied: bool) -> Any:
    """Whether x comes before y, or as well if they are `tied`: zeros are, and NaN, which comes last."""
    if dtype.kind == "b" or "int" in dtype.name:
        return ctx.compare(x, y, "LE" if tied else "LT")
    if ctx.platform == "gpu":  # XLA calls CUB's radix sort where it finds this form
        x, y = (_canonical_float(ctx, each, dtype) for each in (x, y))
        return ctx.compare(x, y, "LE" if tied else "LT", "TOTALORDER")
    if tied:
        return ctx.value("stablehlo.or", [ctx.compare(x, y, "LE"), ctx.compare(y, y, "NE")], (), _boolean)
    not_after = ctx.value("stablehlo.not", [ctx.compare(x, y, "GE")], (), _boolean)  # as it is if one is NaN
    return ctx.value("stablehlo.and", [not_after, ctx.compare(x, x, "EQ")], (), _boolean)


def _is_before(ctx: Any, pairs: list[tuple[Any, Any, Any]]) -> Any:
    """Whether the first of two rows sorts before the second, lexicographically over `(x, y, dtype)`."""
    keys = [(x, y, kind) for left, right, dtype in pairs
            for (x, kind), (y, _) in zip(_sort_keys(ctx, left, dtype), _sort_keys(ctx, right, dtype), strict=True)]
    result = None
    for x, y, dtype in reversed(keys):
        less = _comes(ctx, x, y, dtype, False)
        if result is not None:
            tied = ctx.value("stablehlo.and", [_comes(ctx, x, y, dtype, True), result], (), _boolean)
            less = ctx.value("stablehlo.or", [less, tied], (), _boolean)
        result = less
    return result


_WIDER = {"int2": np.dtype(np.int8), "uint2": np.dtype(np.uint8)}  # XLA:CPU confuses the order of two bits


@lowers("sort")
def _sort(ctx: Any, *operands: Any, dimension: int, is_stable: bool, num_keys: int) -> list[Any]:
    avals = ctx.avals_in
    key = avals[0]
    is_alone = len(operands) == 1
    native = is_alone and "int" in key.dtype.name
    if ctx.platform == "cpu" and num_keys == 1 and not native and _pays_packed(ctx, key, dimension):
        if is_alone and not is_stable and key.dtype.kind != "b":
            return [_sort_bits(ctx, operands[0], dimension)]
        return _sort_packed(ctx, operands, dimension)
    if ctx.platform == "cpu" and not native:  # of which XLA:CPU sorts a few faster in any order
        is_stable = is_stable or type(key.size) is not int or key.shape[dimension] > _FEW
    own = [aval.dtype for aval in avals]
    wide = [_WIDER.get(dtype.name, dtype) for dtype in own]
    types = [ctx.tensor_type((), dtype) for dtype in wide for _ in range(2)]

    def converted(values: Sequence[Any], before: list[Any], after: list[Any]) -> list[Any]:
        return [x if one == other else ctx.convert(x, aval.shape, other)
                for x, aval, one, other in zip(values, avals, before, after, strict=True)]

    def is_before(body: Any, arguments: Any) -> Any:
        pairs = [(arguments[2 * i], arguments[2 * i + 1], wide[i]) for i in range(num_keys)]
        return _is_before(body, pairs)

    given = converted(operands, own, wide)
    outs = _sort_operation(ctx, given, [x.type for x in given], dimension, is_stable, types, is_before)
    return converted(outs, wide, own)


def _sort_operation(ctx: Any, operands: Sequence[Any], out_types: list[Any], dimension: int, is_stable: bool,
                    scalar_types: list[Any], is_before: Callable[[Any, Any], Any]) -> list[Any]:
    operation = ctx.op("stablehlo.sort", operands, out_types,
                       {"dimension": ctx.i64(dimension), "is_stable": ctx.flag(is_stable)}, regions=1)
    body = ctx.region(operation, 0, scalar_types)
    body.op("stablehlo.return", [is_before(body, body.arguments)], [])
    return list(operation.results)


# XLA:CPU calls the comparator through a pointer for each pair, but sorts plain integers with a sort of its own, four
# times as fast. So on the CPU larger arrays are sorted as words of key and position, and gathered: two kernels more. They
# take 25 ms to compile, which the first three calls save (from 200,000 elements on the first one), or the calls in a loop.
# Floats that may be in any order of zeros, with any NaN, need no position: their bits are sorted.
_FEW = 16  # elements that a sort without order of equal ones takes less time for
_PACKED_SIZE, _PACKED_WORK = 4096, 1 << 20  # elements in a loop; elements, each times the number of bits of its position
_KEY_BITS = {"bool": 8, "float16": 16, "bfloat16": 16, "float32": 32,
             **{f"{sign}int{bits}": bits for sign in ("", "u") for bits in (8, 16, 32)}}
_BITS: dict[int, tuple[Any, Any]] = {
    8: (np.dtype(np.int8), np.dtype(np.uint8)), 16: (np.dtype(np.int16), np.dtype(np.uint16)),
    32: (np.dtype(np.int32), np.dtype(np.uint32))}


def _pays_packed(ctx: Any, key: Any, dimension: int) -> bool:
    if type(key.size) is not int or key.dtype.name not in _KEY_BITS or key.shape[dimension] < 64:
        return False
    enough = key.size >= _PACKED_SIZE if ctx.in_loop else key.size * _position_bits(key, dimension) >= _PACKED_WORK
    return enough and key.size <= np.iinfo(np.int32).max


def _position_bits(key: Any, dimension: int) -> int:
    return (key.shape[dimension] - 1).bit_length()


def _ordered_bits(ctx: Any, x: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """Unsigned integers in the order of the values; of floats without a negative NaN."""
    signed, unsigned = _BITS[_KEY_BITS[dtype.name]]
    if dtype.kind == "b":
        return ctx.convert(x, shape, unsigned)
    if dtype == unsigned:
        return x
    lowest = ctx.constant(np.iinfo(signed).min, signed, shape)
    if "int" not in dtype.name:
        x = _flipped(ctx, ctx.value("stablehlo.bitcast_convert", [x], shape, signed), shape, signed)
    x = ctx.value("stablehlo.xor", [x, lowest], shape, signed)
    return ctx.value("stablehlo.bitcast_convert", [x], shape, unsigned)


def _flipped(ctx: Any, x: Any, shape: tuple[int, ...], signed: Any) -> Any:
    """The bits of floats as integers in their order, and back: those of negative ones grow with their magnitude."""
    flipped = ctx.value("stablehlo.xor", [x, ctx.constant(np.iinfo(signed).max, signed, shape)], shape, signed)
    return ctx.value("stablehlo.select", [ctx.compare(x, ctx.constant(0, signed, shape), "LT"), flipped, x], shape, signed)


def _sort_bits(ctx: Any, x: Any, dimension: int) -> Any:
    """Floats sorted by their bits: -0.0 before 0.0, and every NaN becomes the same one."""
    (aval,) = ctx.avals_in
    shape, dtype = aval.shape, aval.dtype
    signed, _ = _BITS[_KEY_BITS[dtype.name]]
    x = _with_one_nan(ctx, x, ctx.compare(x, x, "NE"), dtype, shape)
    x = _flipped(ctx, ctx.value("stablehlo.bitcast_convert", [x], shape, signed), shape, signed)
    (x,) = _sort_operation(ctx, [x], [ctx.tensor_type(shape, signed)], dimension, False, [ctx.tensor_type((), signed)] * 2,
                           lambda body, pair: body.compare(*pair, "LT"))
    return ctx.value("stablehlo.bitcast_convert", [_flipped(ctx, x, shape, signed)], shape, dtype)


def _sort_packed(ctx: Any, operands: Sequence[Any], dimension: int) -> list[Any]:
    """Sort by the first operand: sort words whose high bits are the key and whose low bits are the position."""
    avals = ctx.avals_in
    shape, dtype = avals[0].shape, avals[0].dtype
    position_bits = _position_bits(avals[0], dimension)
    word = np.dtype(np.uint32 if _KEY_BITS[dtype.name] + position_bits <= 32 else np.uint64)
    keys = operands[0] if dtype.kind == "b" or "int" in dtype.name else _canonical_float(ctx, operands[0], dtype, shape)
    keys = ctx.convert(_ordered_bits(ctx, keys, shape, dtype), shape, word)
    keys = ctx.value("stablehlo.shift_left", [keys, ctx.constant(position_bits, word, shape)], shape, word)
    words = ctx.value("stablehlo.or", [keys, iota(ctx, shape, dimension, word)], shape, word)
    (words,) = _sort_operation(ctx, [words], [ctx.tensor_type(shape, word)], dimension, False,
                               [ctx.tensor_type((), word)] * 2, lambda body, pair: body.compare(*pair, "LT"))
    mask = ctx.constant((1 << position_bits) - 1, word, shape)
    i32 = np.dtype(np.int32)
    positions = ctx.convert(ctx.value("stablehlo.and", [words, mask], shape, word), shape, i32)
    flat = None if ctx.builder.is_split else _flat_positions(ctx, positions, shape, dimension)

    def in_order(operand: Any, dtype: Any) -> Any:
        if flat is None:
            return _gather_along(ctx, operand, positions, shape, dtype, dimension)
        return _gather_flat(ctx, operand, flat, shape, dtype)

    return [positions if _is_iota(operand, dimension) and aval.dtype == i32 else in_order(operand, aval.dtype)
            for operand, aval in zip(operands, avals, strict=True)]


def _is_iota(value: Any, dimension: int) -> bool:
    """Whether a value counts positions along a dimension, as an argsort's second operand does."""
    owner = value.owner
    return getattr(owner, "name", "") == "stablehlo.iota" and owner.attributes["iota_dimension"].value == dimension


def _flat_positions(ctx: Any, positions: Any, shape: tuple[int, ...], dimension: int) -> Any:
    """Positions along one dimension as positions in the array of one dimension."""
    i32 = np.dtype(np.int32)
    result, stride = None, 1
    for axis in reversed(range(len(shape))):
        if shape[axis] > 1:
            along = positions if axis == dimension else iota(ctx, shape, axis, i32)
            if stride > 1:
                along = ctx.value("stablehlo.multiply", [along, ctx.constant(stride, i32, shape)], shape, i32)
            result = along if result is None else ctx.value("stablehlo.add", [result, along], shape, i32)
        stride *= shape[axis]
    return result


def _gather_flat(ctx: Any, x: Any, positions: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    size = int(np.prod(shape))
    x = ctx.value("stablehlo.reshape", [x], (size,), dtype)
    numbers = (f"#stablehlo.gather<collapsed_slice_dims = [0], start_index_map = [0], "
               f"index_vector_dim = {len(shape)}>")
    return ctx.value("stablehlo.gather", [x, positions], shape, dtype, dimension_numbers=ctx.attribute(numbers),
                     slice_sizes=ctx.i64s([1]), indices_are_sorted=ctx.flag(False))


def _gather_along(ctx: Any, x: Any, positions: Any, shape: tuple[int, ...], dtype: Any, dimension: int) -> Any:
    """A gather for arrays that XLA may split along the other axes: reading the elements of a line sends nothing."""
    others = [axis for axis in range(len(shape)) if axis != dimension]
    numbers = (f"#stablehlo.gather<collapsed_slice_dims = [{dimension}], operand_batching_dims = {others}, "
               f"start_indices_batching_dims = {others}, start_index_map = [{dimension}], index_vector_dim = {len(shape)}>")
    return ctx.value("stablehlo.gather", [x, positions], shape, dtype, dimension_numbers=ctx.attribute(numbers),
                     slice_sizes=ctx.i64s([1] * len(shape)), indices_are_sorted=ctx.flag(False))


_NARROW = {"int2": np.int8, "int4": np.int8, "uint2": np.uint8, "uint4": np.uint8, "float4_e2m1fn": np.float16}


def _largest(ctx: Any, x: Any, shape: tuple[int, ...], dtype: Any, k: int, axis: int) -> list[Any]:
    """The k largest elements along an axis, and their int32 indices."""
    if dtype.name in _NARROW:  # XLA's own rewriting gives the indices the width of the elements
        wide = np.dtype(_NARROW[dtype.name])
        values, indices = _largest(ctx, ctx.convert(x, shape, wide), shape, wide, k, axis)
        return [ctx.convert(values, (*shape[:axis], k, *shape[axis + 1:]), dtype), indices]
    order = [dimension for dimension in range(len(shape)) if dimension != axis] + [axis]
    moved = axis != len(shape) - 1
    if moved:
        x = ctx.transposed(x, shape, order, dtype)
    out_shape = [*(shape[dimension] for dimension in order[:-1]), k]
    dtypes = (dtype, np.dtype(np.int32))
    types = [ctx.tensor_type(out_shape, each) for each in dtypes]
    if type(k) is int:
        results = ctx.op("chlo.top_k", [x], types, {"k": ctx.i64(k)}).results
    else:
        results = ctx.op("stablehlo.custom_call", [x, ctx.count(k, dtypes[1])], types,
                         {"call_target_name": ctx.string("stablehlo.dynamic_top_k")}).results
    if not moved:
        return list(results)
    back = [order.index(dimension) for dimension in range(len(shape))]
    return [ctx.transposed(result, out_shape, back, each) for result, each in zip(results, dtypes, strict=True)]


@lowers("top_k")
def _top_k(ctx: Any, x: Any, *, k: int, axis: int, is_stable: bool = True) -> list[Any]:
    (aval,) = ctx.avals_in
    return _largest(ctx, x, aval.shape, aval.dtype, k, axis)


@lowers("approx_top_k")
def _approx_top_k(ctx: Any, x: Any, *, reduction_dimension: int, is_max_k: bool, **params: Any) -> list[Any]:
    (aval,) = ctx.avals_in
    axis = reduction_dimension % len(aval.shape)

    def negated(value: Any, shape: tuple[int, ...]) -> Any:
        return value if is_max_k else ctx.value("stablehlo.negate", [value], shape, aval.dtype)

    out = ctx.avals_out[0]
    values, indices = _largest(ctx, negated(x, aval.shape), aval.shape, aval.dtype, out.shape[axis], axis)
    return [negated(values, out.shape), indices]
