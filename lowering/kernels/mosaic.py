"""From a kernel's jaxpr to a Mosaic module, as text. libtpu compiles it, with the copies of blocks, for TPUs.

A Ref is a window into memory near the core. A read gives a vector, or a scalar from scalar memory. Control flow and many
elementwise operations use the same MLIR dialects as Triton.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lowering import xla
from lowering.kernels import triton_math, triton_rules
from lowering.kernels.triton import RULES as TRITON_RULES
from lowering.kernels.triton import Axis, Kernel, Ref, Value, part_of, ref_rules, registers_in, scalar_text, start_of
from lowering.module import LoweringError

_FUNCTIONS = {"exp": "math.exp", "exp2": "math.exp2", "log": "math.log", "log1p": "math.log1p", "sin": "math.sin",
              "cos": "math.cos", "sqrt": "math.sqrt", "rsqrt": "math.rsqrt", "floor": "math.floor", "ceil": "math.ceil",
              "abs": "math.absf", "tanh": "math.tanh", "tan": "math.tan", "erf": "math.erf"}
_SHARED = ("program_id", "multiple_of", "copy", "stop_gradient", "name", "squeeze", "reshape", "expand_dims",
           "convert_element_type", "select_n", "clamp", "not", "square", "one_minus_square", "reciprocal", "integer_pow",
           "polynomial", "log2", "logistic", "sign", "is_finite", "broadcast_in_dim", "jit", "remat2", "custom_jvp_call",
           "custom_vjp_call", "cond", "scan", "while")
RULES: dict[str, Callable[..., Any]] = {name: TRITON_RULES[name] for name in _SHARED}


lowers = registers_in(RULES)


@dataclass(frozen=True)
class Window(Ref):
    """A Ref by its memory: its shape there, the text of its elements' type, and the word for the memory."""

    shape: tuple[int, ...] = ()
    element: str = ""
    space: str = "vmem"

    @property
    def type(self) -> str:
        return self.type_with(self.shape)

    def type_with(self, shape: Sequence[int]) -> str:
        """The type of a part of that shape."""
        return f"memref<{''.join(f'{size}x' for size in shape)}{self.element}, #tpu.memory_space<{self.space}>>"


class MosaicKernel(Kernel):
    """The text of one kernel."""

    backend = "Mosaic TPU"
    compares_unordered = False
    rules = RULES
    functions = _FUNCTIONS
    library: dict[str, str] = {}
    axes: Sequence[int] = ()  # of the grid, as the kernel counts them

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

    def reshape(self, x: Value, shape: Sequence[int]) -> Value:
        shape = tuple(shape)
        if x.shape == shape:
            return x
        if not x.shape:
            return self.broadcast(x, shape)
        if not shape:
            return self.scalar(x)
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


def _access(k: MosaicKernel, ref: Window, transforms: Sequence[Any]) -> tuple[str, tuple[int, ...], tuple[int, ...], str]:
    """The indices of a part's start, its extent along all axes, the shape without those that have one index, and the steps
    along all axes, '' if they are one."""
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
    return ", ".join(places), whole, tuple(axis.size for axis in found.axes if axis.size is not None), strides


def _load(k: MosaicKernel, ref: Window, transforms: Sequence[Any]) -> Value:
    places, whole, shape, strides = _access(k, ref, transforms)
    if ref.space == "smem":
        if shape:
            raise LoweringError("the memory of scalars (SMEM) is read one element at a time in the Pallas Mosaic TPU lowering")
        return k.op(f"memref.load {ref.name}[{places}] : {ref.type}", (), ref.dtype)
    target = k.type_of(whole, scalar_text(ref.dtype))
    operation = "tpu.strided_load" if strides else "vector.load"
    return k.reshape(k.op(f"{operation} {ref.name}[{places}]{strides} : {ref.type}, {target}", whole, ref.dtype), shape)


def _store(k: MosaicKernel, ref: Window, transforms: Sequence[Any], value: Value, mask: Value | None = None) -> None:
    places, whole, shape, strides = _access(k, ref, transforms)
    if ref.space == "smem":
        if shape:
            raise LoweringError("the memory of scalars (SMEM) takes one element at a time in the Pallas Mosaic TPU lowering")
        k.line(f"memref.store {value.name}, {ref.name}[{places}] : {ref.type}")
        return
    if mask is not None:
        value = triton_rules.select(k, mask, value, _load(k, ref, transforms))
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
    rest_a, rest_b = ([axis for axis in range(len(x.shape)) if axis not in (*contracted, *batched)]
                      for x, contracted, batched in ((a, contract_a, batch[0]), (b, contract_b, batch[1])))
    if len(contract_a) != 1 or len(rest_a) != 1 or len(rest_b) != 1 or len(batch[0]) > 1:
        raise LoweringError("dot_general in the Pallas Mosaic TPU lowering multiplies two matrices, or batches of them along "
                            f"one axis; got shapes {a.shape} and {b.shape}")
    out = np.dtype(eqn.outvars[0].aval.dtype)
    inner = np.dtype(np.float32) if triton_math.is_float(out) else np.dtype(np.int32)
    zero = k.constant(0, inner, eqn.outvars[0].aval.shape)
    order = [*(x for axis in batch[0] for x in (0, axis)), 0, rest_a[0], 1, rest_b[0]]
    parts = (list(contract_a), list(contract_b), rest_a, rest_b, order, list(batch[0]), list(batch[1]))
    numbers = f"#tpu.dot_dimension_numbers<{', '.join(map(str, parts))}>"
    exact = ", precision = #tpu.contract_precision<fp32>" if "HIGH" in str(precision).upper() else ""
    hints = f"transpose_lhs = false, transpose_lhs_hint = false, transpose_rhs = false{exact}"
    found = k.op(f"tpu.matmul {a.name}, {b.name}, {zero.name} {{dimension_numbers = {numbers}, {hints}}} : "
                 f"{k.type(a)}, {k.type(b)}, {k.type(zero)} -> {k.type(zero)}", zero.shape, inner)
    return triton_math.convert(k, found, out)


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


_TRACED = -1 << 63  # the number of steps along an axis is an operand


def _space(aval_space: Any) -> str:
    word = str(aval_space)
    return {"default": "vmem", "None": "any", "hbm": "any"}.get(word, word)


def window(name: str, shape: Sequence[int], seen: Sequence[bool], dtype: Any, memory_space: Any) -> Window:
    """A Ref of a name. Raises: LoweringError for dtypes and memory spaces that it cannot have."""
    space = _space(memory_space)
    if dtype.kind == "b":
        raise LoweringError("Refs of booleans are not supported in the Pallas Mosaic TPU lowering: store integers")
    if space not in ("vmem", "smem", "any", "semaphore_mem"):
        raise LoweringError(f"Refs in the memory space {space!r} are not supported in the Pallas Mosaic TPU lowering")
    if not shape and space == "vmem":
        raise LoweringError("on a TPU a Ref without axes must be in SMEM: give it BlockSpec(memory_space=pallas.tpu.SMEM)")
    axes = tuple(Axis(0, size if visible else None, 1, 1, None) for size, visible in zip(shape, seen, strict=True))
    element = scalar_text(dtype)
    if space == "semaphore_mem":
        element = "!tpu.dma_semaphore" if memory_space.kind == "dma" else "!tpu.semaphore"
    return Window(name, dtype, axes, False, tuple(shape), element, space)


def module_text(jaxpr: Any, mapping: Any, compiler_params: Any) -> str:
    """The module of a kernel. Raises: LoweringError for what has no counterpart."""
    grid = [_TRACED if size is None else int(size) for size in mapping.grid] or [1]
    names = [f"%i{axis}" for axis in range(len(grid))]
    k = MosaicKernel()
    ids = [Value(name, (), np.dtype(np.int32)) for name in names]
    k.axes = list(mapping.kernel_axes)
    k.ids = [ids[axis] for axis in mapping.kernel_axes]
    k.sizes = [grid[axis] for axis in mapping.kernel_axes]
    scalars = [window(f"%s{place}", aval.shape, [True] * len(aval.shape), np.dtype(aval.dtype), "smem")
               for place, aval in enumerate(mapping.index_avals)]
    blocks, windows, functions = [], [], []
    for place, block in enumerate(mapping.block_mappings):
        if any(type(dim).__name__ not in ("Blocked", "Squeezed", "Element") for dim in block.block_shape):
            raise LoweringError(f"the block of {block.origin} has a dimension that the Pallas Mosaic TPU lowering does not "
                                f"support: {block.block_shape}")
        seen = [type(dim).__name__ != "Squeezed" for dim in block.block_shape]
        whole = _space(block.memory_space) == "any"  # the kernel gets the whole array in its memory
        sizes = block.array_aval.shape if whole else block.sizes
        blocks.append(window(f"%b{place}", sizes, seen, np.dtype(block.array_aval.dtype), block.memory_space))
        bounds = f"array<i64: {', '.join(map(str, sizes))}>"
        windows.append("{}" if whole else f"{{transform_indices = @transform_{place}, window_bounds = {bounds}{_kind(block)}}}")
        functions.append(_place(place, block, names, ids[:len(mapping.grid)], scalars))
    scratch = [window(f"%m{place}", aval.shape, [True] * len(aval.shape), np.dtype(aval.dtype), aval.memory_space)
               for place, aval in enumerate(mapping.scratch_avals)]
    k.program(jaxpr, [*scalars, *blocks, *scratch])
    arguments = ", ".join([*(f"{name}: i32" for name in names), *(f"{each.name}: {each.type}" for each in (
        *scalars, *blocks, *scratch))])
    given = getattr(compiler_params, "dimension_semantics", None) or ["arbitrary"] * len(grid)
    words = [getattr(each, "value", each) for each in given]
    semantics = ", ".join(f"#tpu.dimension_semantics<{word}>" for word in ["arbitrary"] * (len(grid) - len(words)) + words)
    lines = "\n".join(f"    {line}" for line in k.lines)
    return (f"module {{\n  func.func @main({arguments}) attributes {{dimension_semantics = [{semantics}], iteration_bounds = "
            f"array<i64: {', '.join(map(str, grid))}>, scalar_prefetch = {len(scalars)} : i64, scratch_operands = "
            f"{len(scratch)} : i64, tpu.core_type = #tpu.core_type<tc>, window_params = [{', '.join(windows)}]}} {{\n"
            f"{lines}\n    return\n  }}\n"
            + "".join(functions) + "}\n")


def _kind(block: Any) -> str:
    """Of a window whose place is counted in elements, the elements without a value around the array."""
    if not any(type(dim).__name__ == "Element" for dim in block.block_shape):
        return ""
    if any(type(dim).__name__ != "Element" for dim in block.block_shape):
        raise LoweringError(f"all dimensions of the block of {block.origin} are Element, or none, in the Pallas Mosaic TPU "
                            f"lowering; got {block.block_shape}")
    low, high = ([dim.padding[side] for dim in block.block_shape] for side in (0, 1))
    return f", window_kind = #tpu.element_window<{low}, {high}>"


def _place(number: int, block: Any, names: Sequence[str], ids: Sequence[Value], scalars: Sequence[Window]) -> str:
    """The function that gives the place of a block."""
    k = MosaicKernel()
    outs = k.program(block.index_map, [*ids, *scalars])
    arguments = ", ".join([*(f"{name}: i32" for name in names), *(f"{each.name}: {each.type}" for each in scalars)])
    types = ", ".join(["i32"] * len(outs))
    lines = "".join(f"    {line}\n" for line in k.lines)
    returns = f"{', '.join(out.name for out in outs)} : {types}" if outs else ""
    return f"  func.func @transform_{number}({arguments}) -> ({types}) {{\n{lines}    return {returns}\n  }}\n"


def call_config(text: str, compiler_params: Any) -> str:
    """What the custom call carries: the module, serialized, and hints."""
    config: dict[str, Any] = {"body": base64.b64encode(xla.mosaic_bytes(text)).decode(), "needs_layout_passes": True,
                              "serialization_format": 1}
    limit = getattr(compiler_params, "vmem_limit_bytes", None)
    if limit is not None:
        config["scoped_memory_configs"] = [{"memory_space": 1, "offset": 0, "size": limit}]
    return json.dumps({"custom_call_config": config})
