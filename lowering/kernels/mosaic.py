"""From a kernel's jaxpr to a Mosaic module, as text. libtpu compiles it, with the copies of blocks, for TPUs.

A Ref is a window into memory near the core. A read gives a vector, or a scalar from scalar memory. Control flow and many
elementwise operations use the same MLIR dialects as Triton.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lowering import xla
from lowering.kernels import triton_math, triton_rules
from lowering.kernels.triton import RULES as TRITON_RULES
from lowering.kernels.triton import Axis, Kernel, Ref, Value, part_of, ref_rules, scalar_text, start_of
from lowering.module import LoweringError
from lowering.rules import registers_in

_FUNCTIONS = {"exp": "math.exp", "exp2": "math.exp2", "log": "math.log", "log1p": "math.log1p", "sin": "math.sin",
              "cos": "math.cos", "sqrt": "math.sqrt", "rsqrt": "math.rsqrt", "floor": "math.floor", "ceil": "math.ceil",
              "abs": "math.absf", "tanh": "math.tanh", "tan": "math.tan", "erf": "math.erf"}
_SHARED = ("program_id", "multiple_of", "copy", "stop_gradient", "name", "optimization_barrier", "reduce_precision",
           "squeeze", "reshape", "expand_dims", "convert_element_type", "select_n", "clamp", "not", "square",
           "one_minus_square", "reciprocal", "integer_pow", "polynomial", "log2", "logistic", "sign", "is_finite",
           "broadcast_in_dim", "jit", "remat2", "custom_jvp_call", "custom_vjp_call", "cond", "scan", "while")
RULES: dict[str, Callable[..., Any]] = {name: TRITON_RULES[name] for name in _SHARED}


lowers = registers_in(RULES)


@dataclass(frozen=True)
class Window(Ref):
    """A Ref by its memory: its shape there, the text of its elements' type, and the word for the memory."""

    shape: tuple[int, ...] = ()
    element: str = ""
    space: str = "vmem"
    words: int = 0  # of each random key, if its elements are such: a last axis of the memory

    @property
    def type(self) -> str:
        return self.type_with(self.shape)

    def type_with(self, shape: Sequence[int]) -> str:
        """The type of a part of that shape."""
        return f"memref<{''.join(f'{size}x' for size in shape)}{self.element}, #tpu.memory_space<{self.space}>>"


@dataclass(frozen=True)
class Key:
    """A random key, as the scalars that are its words."""

    words: tuple[Value, ...]


class MosaicKernel(Kernel):
    """The text of one kernel."""

    backend = "Mosaic TPU"
    compares_unordered = False
    rules = RULES
    functions = _FUNCTIONS
    library: dict[str, str] = {}
    axes: Sequence[int] = ()  # of the grid, as the kernel counts them
    mesh_axes: Mapping[Any, tuple[int, int]] = {}  # by name: the distance of neighbours along it, and its size
    communicates = False  # with other devices
    colors: Sequence[Any] = ()  # of results, the memory that XLA is to put them in

    def __init__(self) -> None:
        super().__init__()
        self.barriers: set[int | None] = set()  # the tags of the barrier semaphores that the kernel uses

    @staticmethod
    def check(shape: Sequence[int]) -> None:
        """Vectors have any size."""

    @staticmethod
    def type_of(shape: Sequence[int], element: str) -> str:
        return f"vector<{'x'.join(map(str, shape))}x{element}>" if shape else element

    def broadcast(self, x: Value, shape: Sequence[int]) -> Value:
        shape = tuple(shape)
        if x.shape == shape:
            return x
        if x.shape and math.prod(x.shape) == 1:
            x = self.scalar(x)
            if not shape:
                return x
        target = self.type_of(shape, scalar_text(x.dtype))
        return self.op(f"vector.broadcast {x.name} : {self.type(x)} to {target}", shape, x.dtype)

    def scalar(self, x: Value) -> Value:
        if not x.shape:
            return x
        places = ", ".join("0" * len(x.shape))
        return self.op(f"vector.extract {x.name}[{places}] : {self.type_of((), scalar_text(x.dtype))} from {self.type(x)}", (),
                       x.dtype)

    def reshaped(self, x: Value, shape: tuple[int, ...]) -> Value:
        target = self.type_of(shape, scalar_text(x.dtype))
        return self.op(f"vector.shape_cast {x.name} : {self.type(x)} to {target}", shape, x.dtype)

    def along(self, x: Value, axes: Sequence[int], shape: Sequence[int]) -> Value:
        if x.shape:
            sizes = dict(zip(axes, x.shape, strict=True))
            x = self.reshape(x, [sizes.get(axis, 1) for axis in range(len(shape))])
        return self.broadcast(x, shape)

    def range(self, size: int) -> Value:
        return self.iota((size,), 0)

    def iota(self, shape: Sequence[int], axis: int) -> Value:
        if len(shape) == 1:  # Mosaic has them with two axes or more
            return self.reshape(self.iota((1, *shape), 1), shape)
        return self.op(f"tpu.iota {{dimensions = array<i32: {axis}>}} : {self.type_of(shape, 'i32')}", shape, np.int32)

    def index(self, value: Any) -> str:
        """The name of an int or a value as an index of memory."""
        name = self.fresh()
        if isinstance(value, int):
            self.line(f"{name} = arith.constant {value} : index")
        else:
            self.line(f"{name} = arith.index_cast {value.name} : {self.type(value)} to index")
        return name


# --- Refs --------------------------------------------------------------------------------------------


def part(k: MosaicKernel, ref: Window, transforms: Sequence[Any]) -> Window:
    """The part of a Ref that transforms select, as a Ref."""
    ref, transforms = _viewed(k, ref, transforms)
    found, arrays, _, _ = part_of(ref, transforms)
    if arrays or any(axis.step != 1 for axis in found.axes):
        raise LoweringError("parts that integer arrays or steps select are not copied, nor seen in another shape or dtype, in "
                            "the Pallas Mosaic TPU lowering")
    sizes = [1 if axis.size is None else axis.size for axis in found.axes]
    starts = [start_of(k, axis.start, np.dtype(np.int32)) for axis in found.axes]
    seen = [size for size, axis in zip(sizes, found.axes, strict=True) if axis.size is not None]
    if any(not isinstance(start, int) or start for start in starts) or list(ref.shape) != sizes:
        places = [k.constant(start, np.int32) if isinstance(start, int) else start for start in starts]
        ref = _made(k, f"tpu.memref_slice {ref.name}[{', '.join(each.name for each in places)}]", ref, sizes)
    return _made(k, f"tpu.memref_squeeze {ref.name}", ref, seen) if len(seen) < len(sizes) else ref


def _made(k: MosaicKernel, operation: str, ref: Window, shape: Sequence[int], dtype: Any = None) -> Window:
    """The Ref that an operation on a Ref gives."""
    dtype = ref.dtype if dtype is None else np.dtype(dtype)
    element = ref.element if dtype == ref.dtype else scalar_text(dtype)
    axes = tuple(Axis(0, size, 1, 1, None) for size in shape)
    made = replace(ref, name=k.fresh(), shape=tuple(shape), dtype=dtype, element=element, axes=axes)
    k.line(f"{made.name} = {operation} : {ref.type} -> {made.type}")
    return made


def _viewed(k: MosaicKernel, ref: Window, transforms: Sequence[Any]) -> tuple[Window, Sequence[Any]]:
    """The same part of a Ref by indices alone."""
    for place, each in enumerate(transforms):
        if not hasattr(each, "indices"):
            ref = part(k, ref, transforms[:place])
            operation = "memref_bitcast" if hasattr(each, "dtype") else "memref_reshape"
            ref = _made(k, f"tpu.{operation} {ref.name}", ref, each.shape, getattr(each, "dtype", None))
            return _viewed(k, ref, transforms[place + 1:])
    return ref, transforms


def _access(k: MosaicKernel, ref: Window, transforms: Sequence[Any],
            ) -> tuple[Window, str, tuple[int, ...], tuple[int, ...], str]:
    """The Ref, the indices of a part's start, its extent along all axes, the shape without those that have one index, and the
    steps along all axes, '' if they are one."""
    ref, transforms = _viewed(k, ref, transforms)
    if ref.space not in ("vmem", "smem"):
        raise LoweringError(f"a Ref in the memory space {ref.space!r} is not read and written: copy it to VMEM, with "
                            "pallas.tpu.async_copy or emit_pipeline")
    found, arrays, _, _ = part_of(ref, transforms)
    if arrays:
        raise LoweringError("integer arrays as indices of Refs are not supported in the Pallas Mosaic TPU lowering")
    steps = [axis.step if axis.size is not None else 1 for axis in found.axes]
    strides = f" {{strides = array<i32: {', '.join(map(str, steps))}>}}" if any(step != 1 for step in steps) else ""
    places = [k.index(start_of(k, axis.start, np.dtype(np.int32))) for axis in found.axes]
    whole = tuple(1 if axis.size is None else axis.size for axis in found.axes)
    return ref, ", ".join(places), whole, tuple(axis.size for axis in found.axes if axis.size is not None), strides


def _load(k: MosaicKernel, ref: Window, transforms: Sequence[Any]) -> Any:
    ref, places, whole, shape, strides = _access(k, ref, transforms)
    if ref.space == "smem":
        if shape:
            raise LoweringError("the memory of scalars (SMEM) is read one element at a time in the Pallas Mosaic TPU lowering")
        if ref.words:
            return Key(tuple(k.op(f"memref.load {ref.name}[{', '.join([*filter(None, [places]), k.index(word)])}] : {ref.type}",
                                  (), ref.dtype) for word in range(ref.words)))
        return k.op(f"memref.load {ref.name}[{places}] : {ref.type}", (), ref.dtype)
    target = k.type_of(whole, scalar_text(ref.dtype))
    operation = "tpu.strided_load" if strides else "vector.load"
    return k.reshape(k.op(f"{operation} {ref.name}[{places}]{strides} : {ref.type}, {target}", whole, ref.dtype), shape)


def _store(k: MosaicKernel, ref: Window, transforms: Sequence[Any], value: Value, mask: Value | None = None) -> None:
    if ref.words:
        raise LoweringError("Refs of random keys are not written in the Pallas Mosaic TPU lowering")
    if mask is not None:
        value = triton_rules.select(k, mask, value, _load(k, ref, transforms))
    ref, places, whole, shape, strides = _access(k, ref, transforms)
    if ref.space == "smem":
        if shape:
            raise LoweringError("the memory of scalars (SMEM) takes one element at a time in the Pallas Mosaic TPU lowering")
        k.line(f"memref.store {value.name}, {ref.name}[{places}] : {ref.type}")
        return
    value = k.reshape(k.broadcast(value, shape), whole)
    if strides:
        k.line(f"tpu.strided_store {ref.name}[{places}], {value.name}{strides} : {ref.type}, {k.type(value)}")
    else:
        k.line(f"vector.store {value.name}, {ref.name}[{places}] : {ref.type}, {k.type(value)}")


ref_rules(RULES, _load, _store)


@lowers("masked_load")
def _masked_load(k: MosaicKernel, eqn: Any, ref: Window, *leaves: Any, args_tree: Any, **hints: Any) -> Any:
    transforms, mask, other = args_tree.unflatten(leaves)
    found = _load(k, ref, transforms)
    return found if other is None else triton_rules.select(k, mask, found, other)


@lowers("masked_swap")
def _masked_swap(k: MosaicKernel, eqn: Any, ref: Window, value: Value, *leaves: Any, args_tree: Any, **hints: Any) -> Any:
    transforms, mask = args_tree.unflatten(leaves)
    old = value if type(eqn.outvars[0]).__name__ == "DropVar" else _load(k, ref, transforms)
    _store(k, ref, transforms, value, mask)
    return old


# --- vectors -----------------------------------------------------------------------------------------


@lowers("iota")
def _iota(k: MosaicKernel, eqn: Any, *, dtype: Any, shape: Sequence[int], dimension: int, **params: Any) -> Any:
    return triton_math.convert(k, k.iota(shape, dimension), np.dtype(dtype))


@lowers("transpose")
def _transpose(k: MosaicKernel, eqn: Any, x: Value, *, permutation: Sequence[int]) -> Any:
    shape = tuple(x.shape[axis] for axis in permutation)
    return k.op(f"tpu.transpose {x.name}, [{', '.join(map(str, permutation))}] : {k.type(x)} -> "
                f"{k.type_of(shape, scalar_text(x.dtype))}", shape, x.dtype)


@lowers("dot_general")
def _dot(k: MosaicKernel, eqn: Any, a: Value, b: Value, *, dimension_numbers: Any, precision: Any, **params: Any) -> Any:
    ((contract_a, contract_b), batch) = dimension_numbers
    if len(contract_a) != 1 or len(batch[0]) > 1 or any(len(x.shape) > 2 + len(batch[0]) for x in (a, b)):
        raise LoweringError("dot_general in the Pallas Mosaic TPU lowering multiplies two matrices, or batches of them along "
                            f"one axis; got shapes {a.shape} and {b.shape}")
    a, contract_a, batch_a, rest_a = _as_matrix(k, a, contract_a[0], batch[0])
    b, contract_b, batch_b, rest_b = _as_matrix(k, b, contract_b[0], batch[1])
    out = np.dtype(eqn.outvars[0].aval.dtype)
    inner = np.dtype(np.float32) if triton_math.is_float(out) else np.dtype(np.int32)
    zero = k.constant(0, inner, [*(a.shape[axis] for axis in batch_a), a.shape[rest_a], b.shape[rest_b]])
    order = [*(x for axis in batch_a for x in (0, axis)), 0, rest_a, 1, rest_b]
    parts = ([contract_a], [contract_b], [rest_a], [rest_b], order, batch_a, batch_b)
    numbers = f"#tpu.dot_dimension_numbers<{', '.join(map(str, parts))}>"
    exact = ", precision = #tpu.contract_precision<fp32>" if "HIGH" in str(precision).upper() else ""
    hints = f"transpose_lhs = false, transpose_lhs_hint = false, transpose_rhs = false{exact}"
    found = k.op(f"tpu.matmul {a.name}, {b.name}, {zero.name} {{dimension_numbers = {numbers}, {hints}}} : "
                 f"{k.type(a)}, {k.type(b)}, {k.type(zero)} -> {k.type(zero)}", zero.shape, inner)
    return k.reshape(triton_math.convert(k, found, out), eqn.outvars[0].aval.shape)


def _as_matrix(k: MosaicKernel, x: Value, contracted: int, batch: Sequence[int]) -> tuple[Value, int, list[int], int]:
    """A factor, its axis to contract, axes of batches and the other axis; a vector becomes a row."""
    rest = [axis for axis in range(len(x.shape)) if axis != contracted and axis not in batch]
    if rest:
        return x, contracted, list(batch), rest[0]
    x = k.reshape(x, (*x.shape[:contracted], 1, *x.shape[contracted:]))
    return x, contracted + 1, [axis + (axis >= contracted) for axis in batch], contracted


_KINDS = {"reduce_sum": ("add", 0), "reduce_max": ("maximumf", -math.inf), "reduce_min": ("minimumf", math.inf)}
_OF_INTS = {"reduce_sum": ("add", 0), "reduce_max": ("maxsi", -1 << 31), "reduce_min": ("minsi", (1 << 31) - 1)}


@lowers(*_KINDS)
def _reduce(k: MosaicKernel, eqn: Any, x: Value, *, axes: Sequence[int], **params: Any) -> Any:
    kind, start = (_OF_INTS if x.dtype == np.int32 else _KINDS)[eqn.primitive.name]
    if x.dtype not in (np.float32, np.int32):
        if not triton_math.is_float(x.dtype):
            raise LoweringError(f"{eqn.primitive.name} of {x.dtype} is not supported in the Pallas Mosaic TPU lowering")
        return triton_math.as_float32(k, lambda wide: _reduce(k, eqn, wide[0], axes=axes), [x])
    return reduction(k, x, axes, kind, start, eqn.outvars[0].aval.shape)


def reduction(k: MosaicKernel, x: Value, axes: Sequence[int], kind: str, start: Any, shape: Sequence[int]) -> Value:
    """A vector reduced along axes; `kind` as `vector.multi_reduction` has it."""
    if not shape:
        x, axes = k.reshape(x, (1, *x.shape)), [axis + 1 for axis in axes]
    first = k.constant(start, x.dtype, shape or (1,))
    found = k.op(f"vector.multi_reduction <{kind}>, {x.name}, {first.name} [{', '.join(map(str, axes))}] : {k.type(x)} to "
                 f"{k.type(first)}", first.shape, x.dtype)
    return found if shape else k.scalar(found)


@lowers("num_programs")
def _num_programs(k: MosaicKernel, eqn: Any, *, axis: int) -> Any:
    return k.op(f"tpu.iteration_bound {k.axes[axis]} : i32", (), np.int32)


# --- a whole kernel ----------------------------------------------------------------------------------


def words_of(dtype: Any) -> int:
    """How many words a random key of a dtype has; 0 for other dtypes."""
    return dtype.physical_element().shape[0] if hasattr(dtype, "impl") else 0


_TRACED = -1 << 63  # the number of steps along an axis is an operand


def _space(aval_space: Any) -> str:
    word = str(aval_space)
    return {"default": "vmem", "None": "any"}.get(word, word)


def window(name: str, shape: Sequence[int], seen: Sequence[bool], dtype: Any, memory_space: Any) -> Window:
    """A Ref of a name. Raises: LoweringError for dtypes and memory spaces that it cannot have."""
    space, words = _space(memory_space), words_of(dtype)
    axes = tuple(Axis(0, size if visible else None, 1, 1, None) for size, visible in zip(shape, seen, strict=True))
    if words:
        if space != "smem":
            raise LoweringError("random keys are in SMEM in the Pallas Mosaic TPU lowering: give them "
                                "BlockSpec(memory_space=pallas.tpu.SMEM)")
        return Window(name, np.dtype(np.uint32), axes, False, (*shape, words), "i32", space, words)
    if dtype.kind == "b":
        raise LoweringError("Refs of booleans are not supported in the Pallas Mosaic TPU lowering: store integers")
    if space not in ("vmem", "smem", "any", "hbm", "semaphore_mem"):
        raise LoweringError(f"Refs in the memory space {space!r} are not supported in the Pallas Mosaic TPU lowering")
    if not shape and space == "vmem":
        raise LoweringError("on a TPU a Ref without axes must be in SMEM: give it BlockSpec(memory_space=pallas.tpu.SMEM)")
    element = scalar_text(dtype)
    if space == "semaphore_mem":
        element = "!tpu.dma_semaphore" if memory_space.kind == "dma" else "!tpu.semaphore"
    return Window(name, dtype, axes, False, tuple(shape), element, space)


def module_text(name: str, jaxpr: Any, mapping: Any, compiler_params: Any,
                mesh_axes: Mapping[Any, tuple[int, int]]) -> tuple[str, MosaicKernel]:
    """The module of a kernel. Raises: LoweringError for what has no counterpart.

    Args: `mesh_axes` along which the program is written for one device: of each the distance of neighbours, and its size.
    """
    grid = [_TRACED if size is None else int(size) for size in mapping.grid] or [1]
    names = [f"%i{axis}" for axis in range(len(grid))]
    k = MosaicKernel()
    k.mesh_axes = mesh_axes
    ids = [Value(each, (), np.dtype(np.int32)) for each in names]
    k.axes = list(mapping.kernel_axes)
    k.ids = [ids[axis] for axis in mapping.kernel_axes]
    k.sizes = [grid[axis] for axis in mapping.kernel_axes]
    scalars = [window(f"%s{place}", aval.shape, [True] * len(aval.shape), aval.dtype, "smem")
               for place, aval in enumerate(mapping.index_avals)]
    blocks, windows, functions = [], [], []
    for place, block in enumerate(mapping.block_mappings):
        if any(type(dim).__name__ not in ("Blocked", "Squeezed", "Element") for dim in block.block_shape):
            raise LoweringError(f"the block of {block.origin} has a dimension that the Pallas Mosaic TPU lowering does not "
                                f"support: {block.block_shape}")
        seen = [type(dim).__name__ != "Squeezed" for dim in block.block_shape]
        whole = _space(block.memory_space) in ("any", "hbm", "semaphore_mem")  # the kernel gets the whole array in its memory
        sizes = block.array_aval.shape if whole else block.sizes
        blocks.append(window(f"%b{place}", sizes, seen, block.ref_aval.dtype, block.memory_space))
        _check_block(block, blocks[-1])
        bounds = f"array<i64: {', '.join(map(str, blocks[-1].shape))}>"
        windows.append("{}" if whole else f"{{transform_indices = @transform_{place}, window_bounds = {bounds}{_kind(block)}"
                       f"{_buffers(block)}}}")
        functions.append(_place(place, block, names, ids[:len(mapping.grid)], scalars))
    scratch = [window(f"%m{place}", aval.shape, [True] * len(aval.shape), aval.dtype, aval.memory_space)
               for place, aval in enumerate(mapping.scratch_avals)]
    outs = mapping.block_mappings[mapping.num_inputs:]
    k.colors = [{"color": _COLORS[str(block.array_space)], **({"shape_index": [place]} if len(outs) > 1 else {})}
                for place, block in enumerate(outs) if block.array_space is not None]
    k.program(jaxpr, [*scalars, *blocks, *scratch])
    arguments = ", ".join([*(f"{each}: i32" for each in names), *(f"{each.name}: {each.type}" for each in (
        *scalars, *blocks, *scratch))])
    batch = len(mapping.vmapped_dims)  # they come first
    given = getattr(compiler_params, "dimension_semantics", None) or ["arbitrary"] * (len(grid) - batch)
    words = [getattr(each, "value", each) for each in given]
    words = ["parallel"] * batch + ["arbitrary"] * (len(grid) - batch - len(words)) + words
    semantics = ", ".join(f"#tpu.dimension_semantics<{word}>" for word in words)
    lines = "\n".join(f"    {line}" for line in k.lines)
    text = (f"module @{name} {{\n  func.func @{name}({arguments}) attributes "
            f"{{dimension_semantics = [{semantics}], iteration_bounds = array<i64: {', '.join(map(str, grid))}>, "
            f"scalar_prefetch = {len(scalars)} : i64, scratch_operands = {len(scratch)} : i64, "
            f"tpu.core_type = #tpu.core_type<tc>, window_params = [{', '.join(windows)}]}} {{\n"
            f"{lines}\n    return\n  }}\n"
            + "".join(functions) + "}\n")
    return text, k


def _kind(block: Any) -> str:
    """The kind of a window whose place is counted in elements, with the elements without a value around the array."""
    if not any(type(dim).__name__ == "Element" for dim in block.block_shape):
        return ""
    if any(type(dim).__name__ != "Element" for dim in block.block_shape):
        raise LoweringError(f"all dimensions of the block of {block.origin} are Element, or none, in the Pallas Mosaic TPU "
                            f"lowering; got {block.block_shape}")
    low, high = ([dim.padding[side] for dim in block.block_shape] for side in (0, 1))
    return f", window_kind = #tpu.element_window<{low}, {high}>"


def _check_block(block: Any, ref: Window) -> None:
    """Raises: ValueError for a block that tiles of memory do not divide."""
    if ref.space != "vmem" or any(type(dim).__name__ == "Element" for dim in block.block_shape):
        return
    wanted = [128 * (4 // min(ref.dtype.itemsize, 4))] if len(ref.shape) == 1 else [8, 128]
    last = list(zip(ref.shape, block.array_aval.shape, strict=True))[-len(wanted):]
    if any(size % tile and size != extent for (size, extent), tile in zip(last, wanted, strict=True)):
        raise ValueError(f"the block of {block.origin}: on a TPU its last sizes are multiples of {wanted}, or those of the "
                         f"array; got {ref.shape} of {block.array_aval.shape}")


def _buffers(block: Any) -> str:
    """Whether a window has one buffer or two; Mosaic has no more."""
    word = {1: "synchronous", 2: "double_buffered"}.get(getattr(block.pipeline_mode, "buffer_count", 0))
    return f", pipeline_mode = #tpu.pipeline_mode<{word}>" if word else ""


def _place(number: int, block: Any, names: Sequence[str], ids: Sequence[Value], scalars: Sequence[Window]) -> str:
    """The function that gives the place of a block."""
    k = MosaicKernel()
    outs = k.program(block.index_map, [*ids, *scalars])
    outs += [k.constant(0, np.int32)] if words_of(block.array_aval.dtype) else []
    arguments = ", ".join([*(f"{name}: i32" for name in names), *(f"{each.name}: {each.type}" for each in scalars)])
    types = ", ".join(["i32"] * len(outs))
    lines = "".join(f"    {line}\n" for line in k.lines)
    returns = f"{', '.join(out.name for out in outs)} : {types}" if outs else ""
    return f"  func.func @transform_{number}({arguments}) -> ({types}) {{\n{lines}    return {returns}\n  }}\n"


_COLORS = {"hbm": 0, "vmem": 1, "semaphore_mem": 2, "smem": 4}  # of memories, in XLA
_PASSED_ON = ("allow_input_fusion", "internal_scratch_in_bytes")
_IF_NOT_DEFAULT = {"disable_bounds_checks": False, "disable_semaphore_checks": False, "skip_device_barrier": False,
                   "shape_invariant_numerics": True}


def call_config(text: str, kernel: MosaicKernel, params: Any, cost: Any) -> str:
    """The configuration of the custom call: the module, serialized, and hints.

    Raises: ValueError for a barrier without `collective_id`, the reverse, or a flag that is no number.
    """
    def of(name: str, default: Any = None) -> Any:
        return getattr(params, name, default)

    given = {each for each in (of("collective_id"), *kernel.barriers) if each is not None}
    if len(given) != bool(kernel.barriers) and not (
            len(given) == 1 and of("allow_collective_id_without_custom_barrier")):
        raise ValueError("CompilerParams.collective_id is given if the kernel uses get_barrier_semaphore, and only then, or "
                         f"as its tag; got {sorted(given)}")
    config: dict[str, Any] = {"body": base64.b64encode(xla.mosaic_bytes(text)).decode(), "needs_layout_passes": True,
                              "serialization_format": 1}
    config |= {name: of(name) for name in _PASSED_ON if of(name) is not None}
    if given:
        (config["collective_id"],) = given
    config |= {name: of(name) for name, default in _IF_NOT_DEFAULT.items() if of(name, default) != default}
    if kernel.communicates or kernel.barriers:
        config["has_communication"] = True
    if kernel.colors:
        config["output_memory_space_colors"] = kernel.colors
    if cost is not None:
        config["cost_estimate"] = {name: int(getattr(cost, name)) for name in (
            "flops", "transcendentals", "bytes_accessed", "remote_bytes_transferred")}
    whole: dict[str, Any] = {"custom_call_config": config}
    if of("vmem_limit_bytes") is not None:
        whole["scoped_memory_configs"] = [{"memory_space": 1, "offset": 0, "size": of("vmem_limit_bytes")}]
    if of("flags"):
        whole["flag_configs"] = [{"flag_type": name, "value": _flag(name, value)} for name, value in of("flags").items()]
    return json.dumps(whole)


def _flag(name: str, value: Any) -> dict[str, Any]:
    for kind, word in ((bool, "boolean_value"), (int, "integer_value"), (float, "double_value")):
        if isinstance(value, kind):
            return {word: value}
    raise ValueError(f"CompilerParams.flags: {name!r} is a bool, an int or a float, got {value!r}")
