"""Mosaic rules of TPU operations other than elementwise ones: copies and semaphores, scoped memory, iota, bits, slices of
vectors, reductions of integers and booleans.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from lowering.kernels import triton_math, triton_rules
from lowering.kernels.mosaic import Key, MosaicKernel, Window, lowers, part, reduction, window
from lowering.kernels.triton import Value, scalar_text
from lowering.module import LoweringError
from lowering.rules import decomposed

_INT32 = np.dtype(np.int32)

# --- memory ------------------------------------------------------------------------------------------


@lowers("run_scoped")
def _run_scoped(k: MosaicKernel, eqn: Any, *values: Any, jaxpr: Any, **params: Any) -> Any:
    outs = [Value(k.fresh(), tuple(var.aval.shape), np.dtype(var.aval.dtype)) for var in eqn.outvars]
    head = f"{', '.join(out.name for out in outs)} = " if outs else ""
    k.line(f'{head}"tpu.region"() ({{')
    refs = []
    for var in jaxpr.jaxpr.invars[len(values):]:
        ref = window(k.fresh(), var.aval.shape, [True] * len(var.aval.shape), np.dtype(var.aval.dtype), var.aval.memory_space)
        k.line(f"{ref.name} = {'tpu.sem_alloc' if ref.space == 'semaphore_mem' else 'memref.alloca()'} : {ref.type}")
        refs.append(ref)
    found = k.program(jaxpr, [*values, *refs])
    k.line("tpu.yield" + (f" {', '.join(each.name for each in found)} : {', '.join(map(k.type, found))}" if found else ""))
    k.line(f"}}) : () -> ({', '.join(map(k.type, outs))})")
    return outs


# --- semaphores and copies ---------------------------------------------------------------------------


def _number(k: MosaicKernel, value: Any) -> Value:
    return k.constant(value, _INT32) if isinstance(value, (int, np.integer)) else value


@lowers("semaphore_signal")
def _signal(k: MosaicKernel, eqn: Any, ref: Window, *leaves: Any, args_tree: Any) -> Any:
    transforms, inc, device, core = args_tree.unflatten(leaves)
    ref = part(k, ref, transforms)
    where = "" if device is None else f" device_id {_number(k, device).name}"
    k.communicates |= device is not None
    where += "" if core is None else f" core_id {_number(k, core).name}"
    k.line(f"tpu.sem_signal {ref.name}, {_number(k, inc).name}{where} : {ref.type}")
    return []


@lowers("semaphore_wait")
def _wait(k: MosaicKernel, eqn: Any, ref: Window, *leaves: Any, args_tree: Any, decrement: bool) -> Any:
    transforms, value = args_tree.unflatten(leaves)
    ref = part(k, ref, transforms)
    amount = _number(k, value).name
    if not decrement and "dma" in ref.element:
        raise LoweringError("semaphore_wait with decrement=False, on a semaphore of copies, is not supported in the Pallas "
                            "Mosaic TPU lowering")
    k.line(f"tpu.sem_wait {ref.name}, {amount} : {ref.type}")
    if not decrement:  # a core waits for its own semaphores alone, so that none sees the lower value
        k.line(f"tpu.sem_signal {ref.name}, {amount} : {ref.type}")
    return []


@lowers("semaphore_read")
def _read(k: MosaicKernel, eqn: Any, ref: Window, *leaves: Any, args_tree: Any) -> Any:
    ref = part(k, ref, args_tree.unflatten(leaves)[0])
    return k.op(f"tpu.sem_read {ref.name} : {ref.type} -> i32", (), _INT32)


@lowers("get_barrier_semaphore")
def _barrier_semaphore(k: MosaicKernel, eqn: Any, *, tag: int | None) -> Any:
    k.barriers.add(tag)
    ref = window(k.fresh(), (), [], _INT32, eqn.outvars[0].aval.memory_space)
    k.line(f"{ref.name} = tpu.sem_barrier : {ref.type}")
    return ref


def _named(parts: Sequence[Window], words: Sequence[str]) -> str:
    return " ".join(f"{word}({each.name} : {each.type})" for word, each in zip(words, parts, strict=True))


@lowers("dma_start")
def _start(k: MosaicKernel, eqn: Any, *operands: Any, args_tree: Any, count: int, priority: int, add: bool) -> Any:
    if add:
        raise LoweringError("copies that add are not supported in the Pallas Mosaic TPU lowering")
    transforms, device = args_tree.unflatten(operands[count:])
    source, target, *semaphores = [part(k, ref, each) for ref, each in zip(operands[:count], transforms, strict=True)]
    text = _named([source, target], ("source", "target"))
    if len(semaphores) == 2:
        text += " " + _named([semaphores[1]], ("source_semaphore",))
    text += " " + _named([semaphores[0]], ("target_semaphore",))
    text += "" if device is None else f" device_id({_number(k, device).name})"
    k.communicates |= device is not None
    k.line(f"tpu.enqueue_dma {text}" + (f" {{priority = {priority} : i32}}" if priority else ""))
    return []


@lowers("dma_wait")
def _dma_wait(k: MosaicKernel, eqn: Any, *operands: Any, args_tree: Any, count: int) -> Any:
    transforms, _ = args_tree.unflatten(operands[count:])
    source, target, semaphore = [part(k, ref, each) for ref, each in zip(operands[:count], transforms, strict=True)]
    k.line(f"tpu.wait_dma2 {_named([semaphore, source, target], ('semaphore', 'src', 'dst'))}")
    return []


@lowers("axis_index")
def _axis_index(k: MosaicKernel, eqn: Any, *, axis_name: Any) -> Any:
    if axis_name not in k.mesh_axes:
        raise LoweringError(f"the kernel asks for its place along the axis {axis_name!r}: in the Pallas Mosaic TPU lowering it "
                            "is inside a shard_map over all axes of the mesh, whose devices are in the order of the program's")
    stride, size = k.mesh_axes[axis_name]
    number = k.op("tpu.device_id : i32", (), _INT32)
    return k.binary("arith.remui", k.binary("arith.divui", number, k.constant(stride, _INT32)), k.constant(size, _INT32))


@lowers("delay")
def _delay(k: MosaicKernel, eqn: Any, nanos: Any) -> Any:
    k.line(f"tpu.delay {_number(k, nanos).name}")
    return []


@lowers("debug_print")
def _print(k: MosaicKernel, eqn: Any, *values: Value, fmt: str, **params: Any) -> Any:
    if any(value.shape for value in values):
        raise LoweringError("debug_print in the Pallas Mosaic TPU lowering prints scalars; got shapes "
                            f"{[value.shape for value in values]}")
    pieces = fmt.split("{}")
    if len(pieces) != len(values) + 1:
        raise LoweringError("the format of a debug_print has one {} for each value in the Pallas Mosaic TPU lowering, got "
                            f"{fmt!r}")
    text = "".join(f"{piece}${place}" for place, piece in enumerate(pieces[:-1])) + pieces[-1]
    text = text.replace("\\", "\\\\").replace('"', '\\"')
    given = f" : [{', '.join(each.name for each in values)}] : {', '.join(map(k.type, values))}" if values else ""
    k.line(f'tpu.log "{text}"{" {formatted = true}" if values else ""}{given}')
    return []


# --- bits and random numbers -------------------------------------------------------------------------


@lowers("random_bits", "random_fold_in", "random_unwrap")
def _of_a_key(k: MosaicKernel, eqn: Any, key: Any, *values: Any, **params: Any) -> Any:
    """A seed from a key of the TPU's generator; other generators are programs of vectors."""
    name, dtype = eqn.primitive.name, eqn.invars[0].aval.dtype
    if dtype.impl.name == "pallas_tpu" and name != "random_unwrap":
        words = key.words if isinstance(key, Key) else [_element(k, key, place) for place in range(2)]
        if name == "random_fold_in":
            second = k.binary("arith.addi", words[1], _number(k, values[0]))
            first = k.binary("arith.addi", words[0], second)
            parts = [k.binary(f"arith.{word}", second, k.constant(count, _INT32))
                     for word, count in (("shli", 13), ("shrui", 19))]
            return Key((first, k.binary("arith.xori", first, k.binary("arith.ori", *parts))))
        if params["bit_width"] != 32:
            raise LoweringError("a TPU's generator gives 32 bits at a time in the Pallas Mosaic TPU lowering, not "
                                f"{params['bit_width']}")
        _seed(k, eqn, *words)
        return k.op(f'"tpu.prng_random_bits"() : () -> {k.type_of(params["shape"], "i32")}', params["shape"], np.uint32)
    if isinstance(key, Key):
        first, *rest = (k.broadcast(word, (len(key.words),)) for word in key.words)
        for place, word in enumerate(rest, 1):
            is_before = triton_math.compare(k, "slt", k.range(len(key.words)), k.constant(place, _INT32, word.shape))
            first = triton_rules.select(k, is_before, first, word)
        key = first
    return k.program(decomposed(eqn), [key, *values])


def _element(k: MosaicKernel, x: Value, place: int) -> Value:
    return k.op(f"vector.extract {x.name}[{place}] : i32 from {k.type(x)}", (), x.dtype)


@lowers("prng_seed")
def _seed(k: MosaicKernel, eqn: Any, *seeds: Any) -> Any:
    seeds = tuple(_number(k, seed) for seed in seeds)
    k.line(f'"tpu.prng_set_seed_32"({", ".join(each.name for each in seeds)}) : ({", ".join("i32" for _ in seeds)}) -> ()')
    return []


@lowers("prng_random_bits")
def _random_bits(k: MosaicKernel, eqn: Any, *, shape: Sequence[int]) -> Any:
    return k.op(f'"tpu.prng_random_bits"() : () -> {k.type_of(shape, "i32")}', shape, _INT32)


def _to(k: MosaicKernel, text: str, x: Value, shape: Sequence[int], dtype: Any, extra: str = "") -> Value:
    return k.op(f"{text} : {k.type(x)}{extra} -> {k.type_of(shape, scalar_text(np.dtype(dtype)))}", shape, dtype)


@lowers("bitcast", "bitcast_convert_type")
def _bitcast(k: MosaicKernel, eqn: Any, x: Value, **params: Any) -> Any:
    aval = eqn.outvars[0].aval
    if not x.shape:
        target = scalar_text(np.dtype(aval.dtype))
        if scalar_text(x.dtype) == target:
            return Value(x.name, (), np.dtype(aval.dtype))
        return k.op(f"arith.bitcast {x.name} : {k.type(x)} to {target}", (), aval.dtype)
    if scalar_text(x.dtype) == scalar_text(np.dtype(aval.dtype)):
        return Value(x.name, x.shape, np.dtype(aval.dtype))
    return _to(k, f"tpu.bitcast {x.name}", x, aval.shape, aval.dtype)


@lowers("pack_elementwise")
def _pack(k: MosaicKernel, eqn: Any, *xs: Value, packed_dtype: Any) -> Any:
    names, types = ", ".join(x.name for x in xs), ", ".join(map(k.type, xs))
    aval = eqn.outvars[0].aval
    return k.op(f"tpu.pack_elementwise {names} {{target_type = {scalar_text(np.dtype(packed_dtype))}}} : {types} -> "
                f"{k.type_of(aval.shape, scalar_text(np.dtype(aval.dtype)))}", aval.shape, aval.dtype)


@lowers("unpack_elementwise")
def _unpack(k: MosaicKernel, eqn: Any, x: Value, *, index: int, packed_dtype: Any, unpacked_dtype: Any) -> Any:
    narrow = scalar_text(np.dtype(packed_dtype))
    return _to(k, f"tpu.unpack_elementwise {x.name}, {index} {{source_type = {narrow}}}", x, x.shape, unpacked_dtype)


@lowers("stochastic_round")
def _stochastic(k: MosaicKernel, eqn: Any, x: Value, bits: Value, *, target_dtype: Any) -> Any:
    return _to(k, f"tpu.stochastic_convert {x.name}, {bits.name}", x, x.shape, target_dtype, f", {k.type(bits)}")


@lowers("population_count", "clz")
def _count_bits(k: MosaicKernel, eqn: Any, x: Value) -> Any:
    return k.unary("math.ctpop" if eqn.primitive.name == "population_count" else "math.ctlz", x)


@lowers("pow", "atan2")
def _two_floats(k: MosaicKernel, eqn: Any, x: Value, y: Value) -> Any:
    operation = "math.powf" if eqn.primitive.name == "pow" else "math.atan2"
    shape = eqn.outvars[0].aval.shape
    wide = lambda values: k.binary(operation, values[0], values[1])
    return triton_math.as_float32(k, wide, [k.broadcast(triton_math.convert(k, each, x.dtype), shape) for each in (x, y)])


# The inverse of the error function in float32, as x times a polynomial of w = -log(1 - x**2), or of its root (M. Giles, 2010).
_NEAR_0 = (2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503, -0.00417768164,
           0.246640727, 1.50140941)
_NEAR_1 = (-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047,
           1.00167406, 2.83297682)


@lowers("erf_inv")
def _erf_inv(k: MosaicKernel, eqn: Any, x: Value) -> Any:
    def compute(values: list[Value]) -> Value:
        (x,) = values
        number = lambda value: k.constant(value, x.dtype, x.shape)
        square = k.binary("arith.mulf", x, x)
        w = k.binary("arith.subf", number(0), k.unary("math.log1p", k.binary("arith.subf", number(0), square)))
        is_near = triton_math.compare(k, "olt", w, number(5))
        w = triton_rules.select(k, is_near, k.binary("arith.subf", w, number(2.5)),
                                k.binary("arith.subf", k.unary("math.sqrt", w), number(3)))
        terms = [triton_rules.select(k, is_near, number(near), number(far)) for near, far in zip(_NEAR_0, _NEAR_1, strict=True)]
        total = terms[0]
        for term in terms[1:]:
            total = k.binary("arith.addf", k.binary("arith.mulf", total, w), term)
        at_end = triton_math.compare(k, "oeq", square, number(1))
        return k.binary("arith.mulf", x, triton_rules.select(k, at_end, number(math.inf), total))

    return triton_math.as_float32(k, compute, [x])


@lowers("round")
def _round(k: MosaicKernel, eqn: Any, x: Value, *, rounding_method: Any) -> Any:
    operation = "math.roundeven" if "EVEN" in rounding_method.name else "math.round"
    return triton_math.as_float32(k, lambda wide: k.unary(operation, wide[0]), [x])


# --- pieces of vectors -------------------------------------------------------------------------------


@lowers("roll")
def _roll(k: MosaicKernel, eqn: Any, x: Value, shift: Any, *, axis: int, stride: int | None, stride_axis: int | None) -> Any:
    more = "" if stride is None else f" {{stride = {stride} : i32, stride_dimension = {stride_axis} : i32}}"
    return rotated(k, x, _number(k, shift), axis, more)


def rotated(k: MosaicKernel, x: Value, shift: Value, axis: int, more: str = "") -> Value:
    """The elements moved along an axis."""
    return k.op(f"tpu.dynamic_rotate {x.name} by {shift.name} dim {axis}{more} : {k.type(x)}, i32 -> {k.type(x)}", x.shape,
                x.dtype)


def joined(k: MosaicKernel, xs: Sequence[Value], axis: int) -> Value:
    """Vectors one after the other along an axis."""
    if len(xs) == 1:
        return xs[0]
    shape = list(xs[0].shape)
    shape[axis] = sum(x.shape[axis] for x in xs)
    target = k.type_of(shape, scalar_text(xs[0].dtype))
    return k.op(f"tpu.concatenate {', '.join(x.name for x in xs)} in {axis} : {', '.join(map(k.type, xs))} -> {target}", shape,
                xs[0].dtype)


@lowers("concatenate")
def _concatenate(k: MosaicKernel, eqn: Any, *xs: Value, dimension: int) -> Any:
    return joined(k, xs, dimension)


@lowers("stack")
def _stack(k: MosaicKernel, eqn: Any, *xs: Value, axis: int, **params: Any) -> Any:
    return joined(k, [k.reshape(x, (*x.shape[:axis], 1, *x.shape[axis:])) for x in xs], axis)


@lowers("unstack")
def _unstack(k: MosaicKernel, eqn: Any, x: Value, *, axis: int, **params: Any) -> Any:
    parts = _split(k, eqn, x, sizes=[1] * x.shape[axis], axis=axis)
    return [k.reshape(part, var.aval.shape) for part, var in zip(parts, eqn.outvars, strict=True)]


@lowers("tile")
def _tile(k: MosaicKernel, eqn: Any, x: Value, *, reps: Sequence[int], **params: Any) -> Any:
    for axis, count in enumerate(reps):
        x = joined(k, [x] * count, axis)
    return x


def _cut(k: MosaicKernel, x: Value, starts: Sequence[int], sizes: Sequence[int]) -> Value:
    offsets, extents, ones = (", ".join(map(str, each)) for each in (starts, sizes, [1] * len(sizes)))
    places = f"<{{offsets = [{offsets}], sizes = [{extents}], strides = [{ones}]}}>"
    return k.op(f'"vector.extract_strided_slice"({x.name}) {places} : ({k.type(x)}) -> '
                f"{k.type_of(sizes, scalar_text(x.dtype))}", sizes, x.dtype)


@lowers("slice")
def _slice(k: MosaicKernel, eqn: Any, x: Value, *, start_indices: Sequence[int], limit_indices: Sequence[int],
           strides: Sequence[int] | None) -> Any:
    if any(step != 1 for step in strides or ()):
        raise LoweringError("slice with strides is not supported in the Pallas Mosaic TPU lowering: read the Ref with a step")
    return _cut(k, x, start_indices, [stop - start for start, stop in zip(start_indices, limit_indices, strict=True)])


@lowers("split")
def _split(k: MosaicKernel, eqn: Any, x: Value, *, sizes: Sequence[int], axis: int) -> Any:
    outs, start = [], 0
    for size in sizes:
        starts = [start if each == axis else 0 for each in range(len(x.shape))]
        outs.append(_cut(k, x, starts, [size if each == axis else extent for each, extent in enumerate(x.shape)]))
        start += size
    return outs


@lowers("pad")
def _pad(k: MosaicKernel, eqn: Any, x: Value, fill: Value, *, padding_config: Any) -> Any:
    for axis, (low, high, inner) in enumerate(padding_config):
        if inner or low < 0 or high < 0:
            raise LoweringError("pad that cuts, or goes between elements, is not supported in the Pallas Mosaic TPU lowering")
        ends = [k.broadcast(fill, [size if each == axis else extent for each, extent in enumerate(x.shape)]) if size else None
                for size in (low, high)]
        x = joined(k, [each for each in (ends[0], x, ends[1]) if each is not None], axis)
    return x


@lowers("gather")
def _gather(k: MosaicKernel, eqn: Any, x: Value, indices: Value, *, dimension_numbers: Any, slice_sizes: Sequence[int],
            **params: Any) -> Any:
    """`take_along_axis`, of an array by indices of its shape."""
    numbers, rank = dimension_numbers, len(x.shape)
    others = tuple(axis for axis in range(rank) if axis not in numbers.start_index_map)
    if (len(numbers.start_index_map) != 1 or numbers.offset_dims or tuple(numbers.operand_batching_dims) != others
            or indices.shape != (*x.shape, 1) or any(size != 1 for size in slice_sizes)):
        raise LoweringError("gather in the Pallas Mosaic TPU lowering is take_along_axis with indices of the array's shape")
    (axis,) = numbers.start_index_map
    indices = triton_math.convert(k, k.reshape(indices, x.shape), _INT32)
    return k.op(f"tpu.dynamic_gather {x.name}[{indices.name}] in [{axis}] : {k.type(x)}, {k.type(indices)} -> {k.type(x)}",
                x.shape, x.dtype)


# --- reductions --------------------------------------------------------------------------------------


@lowers("reduce_or", "reduce_and")
def _of_booleans(k: MosaicKernel, eqn: Any, x: Value, *, axes: Sequence[int], **params: Any) -> Any:
    if x.dtype.kind != "b":
        raise LoweringError(f"{eqn.primitive.name} of {x.dtype} is not supported in the Pallas Mosaic TPU lowering")
    numbers = triton_rules.select(k, x, k.constant(1, np.float32, x.shape), k.constant(0, np.float32, x.shape))
    kind, start = ("maximumf", -math.inf) if eqn.primitive.name == "reduce_or" else ("minimumf", math.inf)
    found = reduction(k, numbers, axes, kind, start, eqn.outvars[0].aval.shape)
    return triton_math.compare(k, "ogt", found, k.constant(0, np.float32, found.shape))


@lowers("argmax", "argmin")
def _arg(k: MosaicKernel, eqn: Any, x: Value, *, axes: Sequence[int], index_dtype: Any) -> Any:
    (axis,) = axes
    kind = "arg_max" if eqn.primitive.name == "argmax" else "arg_min"
    shape = eqn.outvars[0].aval.shape
    if not shape:
        x, axis, shape = k.reshape(x, (1, *x.shape)), axis + 1, (1,)
    found = _to(k, f"tpu.reduce_index {x.name} {{axis = {axis} : i32, kind = #tpu.reduction_kind<{kind}>}}", x, shape, _INT32)
    found = triton_math.convert(k, found, np.dtype(index_dtype))
    return found if eqn.outvars[0].aval.shape else k.scalar(found)


_CUMULATIVE = {"cumsum": ("add", 0.0), "cumprod": ("mul", 1.0), "cummax": ("max", -math.inf), "cummin": ("min", math.inf)}


@lowers(*_CUMULATIVE)
def _cumulative(k: MosaicKernel, eqn: Any, x: Value, *, axis: int, reverse: bool) -> Any:
    """By doubling: adds the elements 1, 2, 4, ... positions before."""
    name, start = _CUMULATIVE[eqn.primitive.name]
    if not triton_math.is_float(x.dtype) and name in ("max", "min"):
        limits = np.iinfo(x.dtype)
        start = limits.min if name == "max" else limits.max
    size, distance = x.shape[axis], 1
    place = k.iota(x.shape, axis)
    while distance < size:
        moved = rotated(k, x, k.constant(size - distance if reverse else distance, _INT32), axis)
        how, limit = ("slt", size - distance) if reverse else ("sge", distance)
        inside = triton_math.compare(k, how, place, k.constant(limit, _INT32, x.shape))
        moved = triton_rules.select(k, inside, moved, k.constant(start, x.dtype, x.shape))
        x = triton_math.elementwise(k, name, [x, moved], x.dtype)
        distance *= 2
    return x
