"""From a kernel's jaxpr to a module in Triton's dialect, as text. XLA parses and compiles it for NVIDIA GPUs.

A step of the grid is a program on whole blocks. A Ref is a pointer to an array with the offset of the block; a read or a
write uses a block of pointers, with a mask if the block extends beyond the array. `triton_math.py` has the elementwise
operations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lowering.kernels import triton_math
from lowering.module import LoweringError, element_type_text
from lowering.rules import DECOMPOSITIONS, decomposed, find_rule, registers_in

RULES: dict[str, Callable[..., Any]] = {}


# A rule of this backend is `rule(kernel, eqn, *values, **params)`; it gives a value or a list of values.
lowers = registers_in(RULES)


def ref_rules(rules: dict[str, Callable[..., Any]], load: Callable[..., Any], store: Callable[..., Any]) -> None:
    """The rules of `get`, `swap` and `addupdate`, from how a backend loads and stores the part that transforms select."""

    def get(k: Kernel, eqn: Any, ref: Any, *leaves: Any, tree: Any) -> Any:
        return load(k, ref, tree.unflatten(leaves))

    def swap(k: Kernel, eqn: Any, ref: Any, value: Value, *leaves: Any, tree: Any) -> Any:
        transforms = tree.unflatten(leaves)
        old = value if type(eqn.outvars[0]).__name__ == "DropVar" else load(k, ref, transforms)
        store(k, ref, transforms, value)
        return old

    def addupdate(k: Kernel, eqn: Any, ref: Any, value: Value, *leaves: Any, tree: Any) -> Any:
        transforms = tree.unflatten(leaves)
        store(k, ref, transforms, triton_math.elementwise(k, "add", [load(k, ref, transforms), value], value.dtype))
        return []

    rules.update(get=get, swap=swap, addupdate=addupdate)


@dataclass(frozen=True)
class Value:
    """A scalar or a block: its name in the text, shape and dtype."""

    name: str
    shape: tuple[int, ...]
    dtype: Any


@dataclass(frozen=True)
class Axis:
    """One axis of a Ref's array: where the visible part starts, its size (None: one index) and step, and the axis's end."""

    start: Any  # a `Value`, or an int
    size: int | None
    step: int
    stride: int
    extent: int | None  # where reads have to stop; None if they cannot reach that far


@dataclass(frozen=True)
class Ref:
    """A pointer to an array, and the part of it that is visible."""

    name: str
    dtype: Any
    axes: tuple[Axis, ...]
    wide: bool  # whether offsets need 64 bits


def scalar_text(dtype: Any) -> str:
    """The type of an element; integers have no sign there."""
    return element_type_text(dtype).replace("ui", "i")


def type_text(shape: Sequence[int], element: str) -> str:
    return f"tensor<{'x'.join(map(str, shape))}x{element}>" if shape else element


class Kernel:
    """The text of one kernel, written line by line."""

    backend = "Triton"
    compares_unordered = True  # `arith.cmpf une`
    rules = RULES
    functions = triton_math.FUNCTIONS
    library = triton_math.LIBDEVICE

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._count = 0
        self.ids: list[Value] = []
        self.sizes: list[int] = []

    # --- writing

    def fresh(self) -> str:
        self._count += 1
        return f"%{self._count}"

    def line(self, text: str) -> None:
        self.lines.append(text)

    def op(self, text: str, shape: Sequence[int], dtype: Any) -> Value:
        """An operation with one result."""
        shape = tuple(shape)
        self.check(shape)
        name = self.fresh()
        self.line(f"{name} = {text}")
        return Value(name, shape, np.dtype(dtype))

    @staticmethod
    def check(shape: Sequence[int]) -> None:
        size = math.prod(shape)
        if size & (size - 1) or not size:
            raise ValueError("The Pallas Triton lowering currently requires that all operations have array arguments and "
                             f"results whose size is a power of 2. Encountered an array of shape {tuple(shape)}")

    def type(self, value: Value) -> str:
        return self.type_of(value.shape, scalar_text(value.dtype))

    @staticmethod
    def type_of(shape: Sequence[int], element: str) -> str:
        return type_text(shape, element)

    def constant(self, number: Any, dtype: Any, shape: Sequence[int] = ()) -> Value:
        """A number, or a block of it."""
        dtype = np.dtype(dtype)
        text = _number_text(number, dtype)
        element = scalar_text(dtype)
        if shape:
            text = f"dense<{text}>"
        elif dtype.kind == "b":
            return self.op(f"arith.constant {text}", shape, dtype)
        return self.op(f"arith.constant {text} : {self.type_of(shape, element)}", shape, dtype)

    def binary(self, operation: str, x: Value, y: Value, dtype: Any = None) -> Value:
        return self.op(f"{operation} {x.name}, {y.name} : {self.type(x)}", x.shape, x.dtype if dtype is None else dtype)

    def unary(self, operation: str, x: Value) -> Value:
        return self.op(f"{operation} {x.name} : {self.type(x)}", x.shape, x.dtype)

    def broadcast(self, x: Value, shape: Sequence[int]) -> Value:
        """To a shape of the same rank, or a scalar to any."""
        shape = tuple(shape)
        if x.shape == shape:
            return x
        target = type_text(shape, scalar_text(x.dtype))
        if math.prod(x.shape) == 1 and x.shape:
            x = self.scalar(x)
        return self.op(f"tt.{'broadcast' if x.shape else 'splat'} {x.name} : {self.type(x)} -> {target}", shape, x.dtype)

    def scalar(self, x: Value) -> Value:
        """The only element of a block."""
        while len(x.shape) > 1:
            x = self.reshape(x, (1,))
        return self.reduce([x], 0, lambda k, a, b: [a[0]])[0] if x.shape else x

    def reshape(self, x: Value, shape: Sequence[int]) -> Value:
        shape = tuple(shape)
        if x.shape == shape:
            return x
        if not x.shape:
            return self.broadcast(x, shape)
        if not shape:
            return self.scalar(x)
        return self.reshaped(x, shape)

    def reshaped(self, x: Value, shape: tuple[int, ...]) -> Value:
        """A block in another shape; neither is a scalar."""
        return self.op(f"tt.reshape {x.name} : {self.type(x)} -> {type_text(shape, scalar_text(x.dtype))}", shape, x.dtype)

    def expand(self, x: Value, axis: int) -> Value:
        shape = (*x.shape[:axis], 1, *x.shape[axis:])
        if not x.shape:
            return self.broadcast(x, (1,))
        return self.op(f"tt.expand_dims {x.name} {{axis = {axis} : i32}} : {self.type(x)} -> "
                       f"{type_text(shape, scalar_text(x.dtype))}", shape, x.dtype)

    def along(self, x: Value, axes: Sequence[int], shape: Sequence[int]) -> Value:
        """A block whose axes become those of a larger one."""
        if x.shape:
            for axis in range(len(shape)):
                if axis not in axes:
                    x = self.expand(x, axis)
        return self.broadcast(x, shape)

    def range(self, size: int) -> Value:
        if size == 1:
            return self.constant(0, np.int32, (1,))
        return self.op(f"tt.make_range {{end = {size} : i32, start = 0 : i32}} : tensor<{size}xi32>", (size,), np.int32)

    def reduce(self, xs: Sequence[Value], axis: int, combine: Callable[..., Sequence[Value]], operation: str = "tt.reduce",
               extra: str = "") -> list[Value]:
        """A reduction over an axis: `combine(kernel, lefts, rights)` of scalars."""
        scan = operation == "tt.scan"
        shapes = [x.shape if scan else (*x.shape[:axis], *x.shape[axis + 1:]) for x in xs]
        left = [Value(self.fresh(), (), x.dtype) for x in xs]
        right = [Value(self.fresh(), (), x.dtype) for x in xs]
        outs = [Value(self.fresh(), shape, x.dtype) for x, shape in zip(xs, shapes, strict=True)]
        names = ", ".join(out.name for out in outs)
        self.line(f"{names} = \"{operation}\"({', '.join(x.name for x in xs)}) <{{axis = {axis} : i32{extra}}}> ({{")
        self.line(f"^bb0({', '.join(f'{each.name}: {self.type(each)}' for each in (*left, *right))}):")
        found = combine(self, left, right)
        types = ", ".join(map(self.type, found))
        self.line(f"{operation}.return {', '.join(each.name for each in found)} : {types}")
        self.line(f"}}) : ({', '.join(map(self.type, xs))}) -> ({', '.join(map(self.type, outs))})")
        return outs

    @contextmanager
    def block(self, opening: str, closing: str = "}") -> Iterator[None]:
        self.line(opening)
        yield
        self.line(closing)

    # --- programs

    def program(self, jaxpr: Any, args: Sequence[Any]) -> list[Any]:
        """All equations of a jaxpr; its outputs."""
        jaxpr = getattr(jaxpr, "jaxpr", jaxpr)
        env: dict[Any, Any] = dict(zip((*jaxpr.constvars, *jaxpr.invars), args, strict=True))

        def read(atom: Any) -> Any:
            try:
                return env[atom]
            except KeyError:
                return self.constant(np.asarray(atom.val).item(), atom.aval.dtype)

        for eqn in jaxpr.eqns:
            outs = self.equation(eqn, [read(atom) for atom in eqn.invars])
            env.update(zip(eqn.outvars, outs, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def equation(self, eqn: Any, values: list[Any]) -> Sequence[Any]:
        name = eqn.primitive.name
        rule = self.rules.get(name)
        if rule is not None:
            outs = rule(self, eqn, *values, **eqn.params)
            return outs if isinstance(outs, list) else [outs]
        if name in triton_math.ARITHMETIC or name in self.functions or name in self.library:
            shape = eqn.outvars[0].aval.shape
            values = [self.broadcast(value, shape) for value in values]
            return [triton_math.elementwise(self, name, values, eqn.outvars[0].aval.dtype)]
        find_rule(name, eqn.primitive.made_in)
        if name in DECOMPOSITIONS:
            return self.program(decomposed(eqn), values)
        raise LoweringError(f"Unimplemented primitive in Pallas {self.backend} lowering: {name}. The kernel runs with "
                            "interpret=True.")


def _number_text(number: Any, dtype: Any) -> str:
    if dtype.kind == "b":
        return "true" if number else "false"
    if dtype.kind in "iu":
        bits = 8 * dtype.itemsize
        number = int(number) & ((1 << bits) - 1)
        return str(number - (1 << bits) if number >> (bits - 1) else number)
    if not math.isfinite(number):
        return f"0x{int.from_bytes(np.array(number, dtype).tobytes(), 'little'):0{2 * dtype.itemsize}X}"
    return f"{float(number):.17e}"


# --- Refs --------------------------------------------------------------------------------------------


def _index_type(ref: Ref) -> Any:
    return np.dtype(np.int64 if ref.wide else np.int32)


def part_of(ref: Ref, transforms: Sequence[Any]) -> tuple[Ref, list[Value | None] | None, int, tuple[int, ...]]:
    """A Ref's part: with integer arrays (a value for each axis that has one), where they stand, and their common shape."""
    arrays: dict[int, Value] = {}
    front, common = 0, ()
    for each in transforms:
        if arrays:
            raise LoweringError("a part of a Ref that integer arrays select has no parts in the Pallas Triton lowering")
        axes = list(ref.axes)
        visible = [place for place, axis in enumerate(axes) if axis.size is not None]
        ints = [index for index, one in enumerate(each.indices) if not hasattr(one, "stride")]
        front = ints[0] if ints and ints[-1] - ints[0] + 1 == len(ints) else 0
        front = sum(1 for one in each.indices[:front] if hasattr(one, "stride")) if ints else 0
        common = tuple(each.int_indexer_shape)
        for place, index in zip(visible, each.indices, strict=True):
            axis = axes[place]
            if hasattr(index, "stride"):
                axes[place] = replace(axis, start=(axis.start, index.start, axis.step), size=index.size,
                                      step=axis.step * index.stride, extent=axis.extent)
            elif getattr(index, "shape", ()):
                arrays[place] = index
                axes[place] = replace(axis, size=None)
            else:
                axes[place] = replace(axis, start=(axis.start, index, axis.step), size=None)
        ref = replace(ref, axes=tuple(axes))
    return ref, [arrays.get(place) for place in range(len(ref.axes))] if arrays else None, front, common


def start_of(k: Kernel, start: Any, dtype: Any) -> Any:
    """A start as an int, or as a value of a dtype."""
    if isinstance(start, tuple):
        base, more, step = start
        base, more = start_of(k, base, dtype), start_of(k, more, dtype)
        if isinstance(more, int):
            more = more * step
        elif step != 1:
            more = k.binary("arith.muli", more, k.constant(step, dtype))
        return _plus(k, base, more, dtype)
    return start if isinstance(start, int) else int(start) if isinstance(start, np.integer) else triton_math.convert(
        k, start, dtype)


def _plus(k: Kernel, x: Any, y: Any, dtype: Any) -> Any:
    if isinstance(x, int) and isinstance(y, int):
        return x + y
    if x == 0 or y == 0:
        return y if x == 0 else x
    x, y = (k.constant(each, dtype) if isinstance(each, int) else each for each in (x, y))
    shape = x.shape or y.shape
    return k.binary("arith.addi", k.broadcast(x, shape), k.broadcast(y, shape))


@dataclass(frozen=True)
class _Places:
    """An index of a Ref that has the places along each axis."""

    indices: tuple[Any, ...]
    int_indexer_shape: tuple[int, ...]


def viewed(k: Kernel, ref: Ref, transforms: Sequence[Any]) -> tuple[Ref, Sequence[Any]]:
    """The same part of a Ref by indices alone. The place of an element in another shape gives its place in the Ref's own."""
    last = max((place for place, each in enumerate(transforms) if not hasattr(each, "indices")), default=None)
    if last is None:
        return ref, transforms
    before, view, after = list(transforms[:last]), transforms[last], transforms[last + 1:]
    if hasattr(view, "dtype"):
        dtype = np.dtype(view.dtype)
        if dtype.itemsize != ref.dtype.itemsize or "b" in (dtype.kind, ref.dtype.kind):
            raise LoweringError(f"a Ref of {ref.dtype} is not seen as {dtype} in the Pallas Triton lowering: their widths are "
                                "the same there, and neither is boolean")
        ref, bits = viewed(k, ref, before)
        name = k.fresh()
        k.line(f"{name} = tt.bitcast {ref.name} : !tt.ptr<{_stored(ref.dtype)}> -> !tt.ptr<{_stored(dtype)}>")
        return viewed(k, replace(ref, name=name, dtype=dtype), [*bits, *after])
    own = before[-1].get_indexer_shape() if before else tuple(axis.size for axis in ref.axes if axis.size is not None)
    dense = tuple(Axis(0, size, 1, math.prod(view.shape[axis + 1:]), None) for axis, size in enumerate(view.shape))
    rest, shape, _ = _offset(k, Ref("", ref.dtype, dense, ref.wide), after)
    places: list[Any] = []
    for size in own[::-1]:
        if isinstance(rest, int):
            places.append(rest % size)
            rest //= size
        else:
            extent = k.constant(size, rest.dtype, rest.shape)
            places.append(k.broadcast(k.binary("arith.remui", rest, extent), shape))
            rest = k.binary("arith.divui", rest, extent)
    return viewed(k, ref, [*before, _Places(tuple(places[::-1]), shape)])


def pointers(k: Kernel, ref: Ref, transforms: Sequence[Any]) -> tuple[str, tuple[int, ...], Value | None]:
    """The pointers to a part of a Ref, the part's shape, and a mask of those inside the array where some may not be."""
    offset, shape, mask = _offset(k, ref, transforms)
    pointer = f"!tt.ptr<{_stored(ref.dtype)}>"
    offset = k.constant(offset, _index_type(ref), shape) if isinstance(offset, int) else k.broadcast(offset, shape)
    name = ref.name
    if shape:
        splat = k.fresh()
        k.line(f"{splat} = tt.splat {name} : {pointer} -> {type_text(shape, pointer)}")
        name = splat
    result = k.fresh()
    k.line(f"{result} = tt.addptr {name}, {offset.name} : {type_text(shape, pointer)}, {k.type(offset)}")
    return result, shape, mask


def _offset(k: Kernel, ref: Ref, transforms: Sequence[Any]) -> tuple[Any, tuple[int, ...], Value | None]:
    """How far elements of a part are from the start of the array, the part's shape, and a mask."""
    ref, arrays, front, common = part_of(ref, transforms)
    dtype = _index_type(ref)
    sizes = [axis.size for axis in ref.axes if axis.size is not None]
    shape = (*sizes[:front], *common, *sizes[front:])
    k.check(shape)
    offset: Any = 0
    mask: Value | None = None
    seen = 0
    for place, axis in enumerate(ref.axes):
        index = start_of(k, axis.start, dtype)
        given = arrays[place] if arrays else None
        if given is not None:
            steps = triton_math.convert(k, given, dtype)
            if axis.step != 1:
                steps = k.binary("arith.muli", steps, k.constant(axis.step, dtype, steps.shape))
            own = tuple(range(front + len(common) - len(steps.shape), front + len(common)))
            index = _plus(k, index, k.along(steps, own, shape), dtype)
        elif axis.size is not None:
            steps = triton_math.convert(k, k.range(axis.size), dtype)
            if axis.step != 1:
                steps = k.binary("arith.muli", steps, k.constant(axis.step, dtype, steps.shape))
            own = (seen if seen < front else seen + len(common),)
            seen += 1
            index = _plus(k, index, k.along(steps, own, shape), dtype)
        if axis.extent is not None:
            value = k.constant(index, dtype) if isinstance(index, int) else index
            inside = triton_math.compare(k, "slt", value, k.constant(axis.extent, dtype, value.shape))
            lower = triton_math.compare(k, "sge", value, k.constant(0, dtype, value.shape))
            inside = k.broadcast(k.binary("arith.andi", inside, lower), shape)
            mask = inside if mask is None else k.binary("arith.andi", mask, inside)
        if isinstance(index, int):
            scaled: Any = index * axis.stride
        elif axis.stride == 1:
            scaled = index
        else:
            scaled = k.binary("arith.muli", index, k.constant(axis.stride, dtype, index.shape))
        offset = _plus(k, offset, scaled, dtype)
    return offset, shape, mask


def _stored(dtype: Any) -> str:
    """The type of an element in memory, where a boolean is a byte."""
    return "i8" if dtype.kind == "b" else scalar_text(dtype)


def load(k: Kernel, ref: Ref, transforms: Sequence[Any], mask: Value | None = None, other: Value | None = None,
         hints: str = "") -> Value:
    """The value of a part of a Ref."""
    ref, transforms = viewed(k, ref, transforms)
    pointer, shape, inside = pointers(k, ref, transforms)
    stored = np.dtype(np.int8) if ref.dtype.kind == "b" else ref.dtype
    if inside is not None:
        mask = inside if mask is None else k.binary("arith.andi", mask, inside)
    operands = pointer
    if mask is not None:
        operands += f", {mask.name}"
        if other is None:
            kind = ref.dtype.kind
            least: Any = np.iinfo(stored).min if kind in "iu" else 0 if kind == "b" else math.nan
            other = k.constant(least, stored, shape)
        else:
            other = triton_math.convert(k, other, stored)
        operands += f", {other.name}"
    out = k.op(f"tt.load {operands}{hints} : {type_text(shape, f'!tt.ptr<{_stored(ref.dtype)}>')}", shape, stored)
    return triton_math.convert(k, out, ref.dtype)


def store(k: Kernel, ref: Ref, transforms: Sequence[Any], value: Value, mask: Value | None = None, hints: str = "") -> None:
    """Write a value to a part of a Ref."""
    ref, transforms = viewed(k, ref, transforms)
    pointer, shape, inside = pointers(k, ref, transforms)
    if inside is not None:
        mask = inside if mask is None else k.binary("arith.andi", mask, inside)
    stored = np.dtype(np.int8) if ref.dtype.kind == "b" else ref.dtype
    value = k.broadcast(triton_math.convert(k, value, stored), shape)
    operands = f"{pointer}, {value.name}" + ("" if mask is None else f", {mask.name}")
    k.line(f"tt.store {operands}{hints} : {type_text(shape, f'!tt.ptr<{_stored(ref.dtype)}>')}")


# --- a whole kernel ----------------------------------------------------------------------------------


def module_text(name: str, jaxpr: Any, mapping: Any) -> tuple[str, tuple[int, int, int]]:
    """The module of a kernel, and the grid in the three numbers that a launch takes.

    Raises: LoweringError for what has no counterpart, ValueError for sizes that Triton does not take.
    """
    if mapping.scratch_avals:
        raise LoweringError("scratch memory (scratch_shapes) is not supported in the Pallas Triton lowering")
    if mapping.index_avals or mapping.num_dynamic:
        raise LoweringError("scalar prefetch and grids of traced sizes are not supported in the Pallas Triton lowering")
    k = Kernel()
    grid = [int(size) for size in mapping.grid]
    launch, ids = _program_ids(k, grid)
    k.ids = [ids[axis] for axis in mapping.kernel_axes]
    k.sizes = [grid[axis] for axis in mapping.kernel_axes]
    refs = [_block_ref(k, f"%arg{index}", block, ids) for index, block in enumerate(mapping.block_mappings)]
    k.program(jaxpr, refs)
    arguments = ", ".join(f"%arg{index}: !tt.ptr<{_stored(np.dtype(block.array_aval.dtype))}> {{tt.divisibility = 16 : i32}}"
                          for index, block in enumerate(mapping.block_mappings))
    lines = "\n".join(f"    {line}" for line in k.lines)
    return f"module {{\n  tt.func public @{name}({arguments}) {{\n{lines}\n    tt.return\n  }}\n}}\n", launch


def _program_ids(k: Kernel, grid: list[int]) -> tuple[tuple[int, int, int], list[Value]]:
    """A launch has three axes, of which the first may be long: it has all but the last two axes of a grid with more."""
    first = max(len(grid) - 2, 1)
    launch = [math.prod(grid[:first]), *grid[first:]]
    launch += [1] * (3 - len(launch))
    along = [k.op(f"tt.get_program_id {word} : i32", (), np.int32) for word in "xyz"[:max(len(grid) - first + 1, 1)]]
    ids: list[Value] = []
    rest = along[0]
    for size in reversed(grid[:first]):
        if len(ids) == first - 1:
            ids.append(rest)
        else:
            extent = k.constant(size, np.int32)
            ids.append(k.binary("arith.remui", rest, extent))
            rest = k.binary("arith.divui", rest, extent)
    if any(size > 65535 for size in launch[1:]):
        raise ValueError(f"the last two axes of a grid have at most 65535 steps on a GPU, got the grid {tuple(grid)}")
    return (launch[0], launch[1], launch[2]), [*ids[::-1], *along[1:]]


def _block_ref(k: Kernel, name: str, block: Any, ids: list[Value]) -> Ref:
    shape = block.array_aval.shape
    if np.dtype(block.array_aval.dtype).kind == "c":
        raise LoweringError(f"complex numbers, as {block.origin} has, are not supported in the Pallas Triton lowering")
    wide = math.prod(shape) >= 1 << 31
    places = k.program(block.index_map, ids)
    axes = []
    for axis, (extent, size, place, counted) in enumerate(zip(shape, block.sizes, places, block.counts_elements, strict=True)):
        padding = getattr(block.block_shape[axis], "padding", (0, 0))
        if type(block.block_shape[axis]).__name__ == "Indirect":
            raise LoweringError(f"Indirect blocks, as {block.origin} has, are not supported in the Pallas Triton lowering")
        start: Any = triton_math.convert(k, place, np.dtype(np.int64 if wide else np.int32))
        if not counted and size != 1:
            start = k.binary("arith.muli", start, k.constant(size, start.dtype))
        if padding[0]:
            start = k.binary("arith.addi", start, k.constant(-padding[0], start.dtype))
        is_seen = type(block.block_shape[axis]).__name__ != "Squeezed"
        inside = size == extent and block.index_map.outvars and _is_zero(block.index_map.outvars[axis])
        divides = not counted and extent % size == 0
        axes.append(Axis(0 if inside else start, size if is_seen else None, 1, math.prod(shape[axis + 1:]),
                         None if inside or divides else extent))
    return Ref(name, np.dtype(block.array_aval.dtype), tuple(axes), wide)


def _is_zero(atom: Any) -> bool:
    return hasattr(atom, "val") and int(atom.val) == 0
