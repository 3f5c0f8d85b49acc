"""Operations block by block: which blocks of its operands a block of a result needs, and how it is computed from them.

A rule, `rule(op, out) -> (ins, compute)`, gives for each operand a block, or None for a scalar, and
`compute(here, *operands)` the value of the block `out`. An operation without a rule is computed whole, and the block cut out.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from jaxlite.core.aval import Ints
from jaxlite.core.jaxpr import Atom, JaxprEqn, Literal
from jaxlite.core.primitive import load_rules
from jaxlite.experimental.pallas.specs import Blocked, BoundedSlice, Element, MemorySpace, Squeezed
from jaxlite.lax.dot import dot_general
from jaxlite.lax.elementwise import clamp, select_n
from jaxlite.lax.shaping import broadcast_in_dim, concatenate, iota, reshape, transpose
from jaxlite.numpy.indexing import take
from jaxlite.random import fold_in
from jaxlite.random.prng import draw_bits
from jaxlite.state.indexing import Slice
from jaxlite.traces.batching import elementwise
from lowering.rules import registers_in


def _nowhere(*places: Any) -> None:
    return None


@dataclasses.dataclass
class BlockIndexTransform:
    """A block of a value, relative to the blocks of a function's results.

    `block_index_transform(*places)` gives its place from those of the results' blocks; `block_shape` None is the whole value.
    """

    block_shape: Sequence[Any] | None
    block_index_transform: Callable[..., Any] = _nowhere
    memory_space: Any = dataclasses.field(kw_only=True, default=None)
    pipeline_mode: Any = dataclasses.field(kw_only=True, default=None)

    def replace(self, **changes: Any) -> BlockIndexTransform:
        """A copy with some fields replaced."""
        return dataclasses.replace(self, **changes)

    def moved(self, shape: Sequence[Any], place: Callable[[tuple[Any, ...]], Sequence[Any]]) -> BlockIndexTransform:
        """A block of another shape, whose place is a function of this one's."""
        own: Callable[..., Any] = self.block_index_transform
        return self.replace(block_shape=tuple(shape), block_index_transform=lambda *places: tuple(place(tuple(own(*places)))))


Block = BlockIndexTransform
WHOLE = Block(None)
_KEY = Block(None, memory_space=MemorySpace.KEY)


class Here:
    """Where a kernel is: the places of the blocks of the function's results."""

    def __init__(self, places: Callable[[], tuple[Any, ...]]):
        self._places = places
        self._known: tuple[Any, ...] | None = None

    def place(self, block: Block) -> tuple[Any, ...]:
        """Where a block is now."""
        if self._known is None:
            self._known = self._places()
        return tuple(block.block_index_transform(*self._known))


@dataclasses.dataclass
class Operation:
    """An equation, the index of the result in question, and `scalars`, which computes where slices start."""

    eqn: JaxprEqn
    index: int
    scalars: Callable[[Sequence[Atom]], list[Any]]

    @property
    def shapes(self) -> list[Ints]:
        return [shape_of(atom) for atom in self.eqn.invars]

    @property
    def shape(self) -> Ints:
        return shape_of(self.eqn.outvars[self.index])

    @property
    def params(self) -> dict[str, Any]:
        return self.eqn.params

    def bind(self, *operands: Any, **changes: Any) -> Any:
        """The result of the operation on these operands."""
        out = self.eqn.primitive.bind(*operands, **(self.params | changes))
        return out[self.index] if self.eqn.primitive.multiple_results else out


Compute = Callable[..., Any]
Rule = Callable[[Operation, Block], "tuple[list[Block | None], Compute] | None"]
_rules: dict[str, Rule] = {}
pulls = registers_in(_rules)  # the rule of some primitives; None for blocks that are only to be had from the whole result


def pull(op: Operation, out: Block | None) -> tuple[list[Block | None], Compute]:
    """The blocks of an operation's operands for one of its results, and how that is computed from them."""
    load_rules()
    name = op.eqn.primitive.name
    rule = _rules.get(name, _elementwise if op.eqn.primitive in elementwise else None)
    if out is not None and out.block_shape is not None:
        found = rule(op, out) if rule is not None else None
        if found is not None:
            return found
    ins = [_whole(atom) for atom in op.eqn.invars]
    if out is None or out.block_shape is None:
        return ins, lambda here, *operands: op.bind(*operands)
    return ins, lambda here, *operands: cut(op.bind(*operands), out, here)


def _whole(atom: Atom) -> Block | None:
    aval: Any = atom.aval
    if not isinstance(aval.dtype, np.dtype):  # keys
        return _KEY
    return WHOLE if aval.shape else None


def shape_of(atom: Any) -> Ints:
    """The shape of a variable or literal."""
    return atom.aval.shape


# --- shapes and places of blocks -----------------------------------------------------------------


def is_squeezed(dim: Any) -> bool:
    """Whether a kernel does not see this axis."""
    return dim is None or type(dim) is Squeezed


def size_of(dim: Any) -> int:
    """The elements of a block along an axis."""
    return 1 if is_squeezed(dim) else dim.block_size if hasattr(dim, "block_size") else int(dim)


def seen(shape: Sequence[Any]) -> Ints:
    """The shape that a kernel sees of a block."""
    return tuple(size_of(dim) for dim in shape if not is_squeezed(dim))


def canonical(shape: Sequence[Any]) -> tuple[Any, ...]:
    """The shape of a block with one form for each kind of axis."""
    return tuple(Squeezed() if dim is None else Blocked(int(dim)) if isinstance(dim, (int, np.integer)) else dim
                 for dim in shape)


def _axis(shape: Sequence[Any], axis: int) -> int:
    """The number of an axis among those that a kernel sees."""
    return sum(not is_squeezed(dim) for dim in shape[:axis])


def _start(dim: Any, place: Any) -> Any:
    """The first element of a block along an axis."""
    if type(dim) is BoundedSlice:
        return place.start
    return place if is_squeezed(dim) or type(dim) is Element else place * size_of(dim)


def _is_blocked(dim: Any) -> bool:
    return is_squeezed(dim) or type(dim) is Blocked or isinstance(dim, (int, np.integer))


def cut(value: Any, block: Block, here: Here) -> Any:
    """A block of a value that is there as a whole. What is outside of it repeats its edge."""
    if block.block_shape is None:
        return value
    starts = [_start(dim, place) for dim, place in zip(block.block_shape, here.place(block), strict=True)]
    axis = 0
    for dim, start, size in zip(block.block_shape, starts, value.shape, strict=True):
        if is_squeezed(dim):
            value = take(value, start, axis=axis, mode="clip")
            continue
        if size_of(dim) != size:
            value = take(value, start + iota(np.int32, size_of(dim)), axis=axis, mode="clip")
        axis += 1
    return value


# --- rules -------------------------------------------------------------------------------------------


def _elementwise(op: Operation, out: Block) -> Any:
    return [_stretched(out, shape, op.shape) for shape in op.shapes], lambda here, *operands: op.bind(*operands)


def _stretched(out: Block, shape: Ints, full: Ints) -> Block | None:
    """The block of an operand of this shape, which is stretched to another by axes of size 1."""
    if not shape:
        return None
    ones = [one == 1 and other != 1 for one, other in zip(shape, full, strict=True)]
    if not any(ones):
        return out
    return out.moved([_one(dim) if flag else dim for dim, flag in zip(_shape(out), ones, strict=True)],
                     lambda place: [0 if flag else each for each, flag in zip(place, ones, strict=True)])


def _shape(block: Block) -> Sequence[Any]:
    assert block.block_shape is not None, "rules are for blocks of a shape"
    return block.block_shape


def _one(dim: Any) -> Any:
    return dim if is_squeezed(dim) else Element(1) if type(dim) is Element else 1


for _name in ("convert_element_type", "copy", "copy_p", "reduce_precision"):
    _rules[_name] = _elementwise


@pulls("bitcast_convert_type")
def _bitcast(op: Operation, out: Block) -> Any:
    return _elementwise(op, out) if op.shapes[0] == op.shape else None


@pulls("select_n")
def _select(op: Operation, out: Block) -> Any:
    return [out if shape else None for shape in op.shapes], lambda here, *operands: select_n(*operands)


@pulls("clamp")
def _clamp(op: Operation, out: Block) -> Any:
    return [out if shape else None for shape in op.shapes], lambda here, *operands: clamp(*operands)


@pulls("squeeze")
def _squeeze(op: Operation, out: Block) -> Any:
    rank = len(op.shapes[0])
    gone = {axis % rank for axis in op.params["dimensions"]}

    def widened(items: Sequence[Any], filling: Any) -> list[Any]:
        rest = iter(items)
        return [filling if axis in gone else next(rest) for axis in range(rank)]

    return [out.moved(widened(_shape(out), None), lambda place: widened(place, 0))], lambda here, x: x


@pulls("broadcast_in_dim")
def _broadcast(op: Operation, out: Block) -> Any:
    shape, axes = op.shapes[0], op.params["broadcast_dimensions"]
    dims = _shape(out)

    def compute(here: Here, x: Any, *sizes: Any) -> Any:
        kept = [_axis(dims, axis) for axis in axes if not is_squeezed(dims[axis])]
        return broadcast_in_dim(x, seen(dims), kept)

    if not shape:
        return [None] * len(op.shapes), compute
    ones = [size == 1 and op.shape[axis] != 1 for size, axis in zip(shape, axes, strict=True)]
    block = out.moved([_one(dims[axis]) if one else dims[axis] for axis, one in zip(axes, ones, strict=True)],
                      lambda place: [0 if one else place[axis] for axis, one in zip(axes, ones, strict=True)])
    return [block, *[None] * (len(op.shapes) - 1)], compute


@pulls("transpose")
def _transpose(op: Operation, out: Block) -> Any:
    order = op.params["permutation"]
    back = [order.index(axis) for axis in range(len(order))]
    dims = [_shape(out)[axis] for axis in back]
    seen_order = [_axis(dims, axis) for axis in order if not is_squeezed(dims[axis])]
    return [out.moved(dims, lambda place: [place[axis] for axis in back])], lambda here, x: transpose(x, seen_order)


@pulls("reshape")
def _reshape(op: Operation, out: Block) -> Any:
    if op.params["dimensions"] is not None or len(op.shapes) > 1:
        return None
    found = regrouped(op.shape, op.shapes[0], _shape(out))
    if found is None:
        return None
    dims, place = found
    return [out.moved(dims, place)], lambda here, x: reshape(x, seen(_shape(out)))


def regrouped(shape: Ints, other: Ints, dims: Sequence[Any]) -> Any:
    """The block of an array reshaped to another shape that has the elements of a block; and its place from that one's.

    None if there is none: a block has to be, of each group of axes that become others, elements one after the other.
    """
    if not math.prod(shape):
        return None
    groups = _groups(shape, other)
    found: list[Any] = []
    for axes, others in groups:
        if len(axes) == len(others) == 1:
            found.append(dims[axes[0]])
            continue
        sizes = [size_of(dims[axis]) for axis in axes]
        if not all(_is_blocked(dims[axis]) and shape[axis] % size == 0 for axis, size in zip(axes, sizes, strict=True)):
            return None
        partial = [at for at, axis in enumerate(axes) if sizes[at] != shape[axis]]
        # Before the last partial axis blocks of one row, so that the elements are a run.
        if partial and any(size != 1 for size in sizes[:partial[-1]]):
            return None
        run = math.prod(sizes)
        blocks = []
        for axis in reversed(others):
            size = math.gcd(run, other[axis]) if run % other[axis] else other[axis]
            if run % size or size != other[axis] and run != size:
                return None
            blocks.append(size)
            run //= size
        if run != 1:
            return None
        found.extend(reversed(blocks))

    def place(at: tuple[Any, ...]) -> list[Any]:
        result: list[Any] = []
        for axes, others in groups:
            if len(axes) == len(others) == 1:
                result.append(at[axes[0]])
                continue
            flat: Any = 0
            for axis in axes:
                flat = flat * (shape[axis] // size_of(dims[axis])) + at[axis]
            counts = [other[axis] // size_of(found[axis]) for axis in others]
            parts: list[Any] = []
            for count in reversed(counts[1:]):
                parts.append(0 if count == 1 else flat % count)
                flat = flat if count == 1 else flat // count
            result.extend([flat, *reversed(parts)] if counts else [])
        return result

    return found, place


def _groups(shape: Ints, other: Ints) -> list[tuple[list[int], list[int]]]:
    """Axes of one shape, and those of the other that have the same elements."""
    groups: list[tuple[list[int], list[int]]] = []
    one = two = 0
    while one < len(shape) or two < len(other):
        if one < len(shape) and two < len(other):
            axes, others = [one], [two]
            one, two = one + 1, two + 1
            while (a := math.prod(shape[i] for i in axes)) != (b := math.prod(other[i] for i in others)):
                if a == 1 and len(axes) == 1:  # an axis of size 1 alone: it is added or dropped
                    others, two = [], two - 1
                    break
                if b == 1 and len(others) == 1:
                    axes, one = [], one - 1
                    break
                if a < b:
                    axes, one = [*axes, one], one + 1
                else:
                    others, two = [*others, two], two + 1
            groups.append((axes, others))
        elif one < len(shape):
            groups.append(([one], []))
            one += 1
        else:
            groups.append(([], [two]))
            two += 1
    return groups


@pulls("slice")
def _slice(op: Operation, out: Block) -> Any:
    starts = op.params["start_indices"]
    if any(stride != 1 for stride in op.params["strides"] or ()):
        return None
    if any(type(dim) is not Element and start % size_of(dim) for dim, start in zip(_shape(out), starts, strict=True)):
        return None
    if any(_crosses(dim, size, whole) for dim, size, whole in zip(_shape(out), op.shape, op.shapes[0], strict=True)):
        return None
    return [out.moved(_shape(out), lambda place: _shifted(out, place, starts))], lambda here, x: x


def _crosses(dim: Any, size: int, whole: int) -> bool:
    """Whether the last block of a slice has elements of the array behind the slice, which are not the slice's."""
    return size % size_of(dim) != 0 and size != whole


def _shifted(block: Block, place: Sequence[Any], starts: Sequence[Any]) -> list[Any]:
    result = []
    for dim, at, start in zip(_shape(block), place, starts, strict=True):
        if isinstance(start, int) and start == 0:
            result.append(at)
        elif type(dim) is BoundedSlice:
            result.append(Slice(at.start + start, at.size))
        else:
            result.append(at + (start if is_squeezed(dim) or type(dim) is Element else start // size_of(dim)))
    return result


@pulls("dynamic_slice")
def _dynamic_slice(op: Operation, out: Block) -> Any:
    operand, *atoms = op.eqn.invars
    sizes = op.params["slice_sizes"]
    rooms = [whole - size for whole, size in zip(shape_of(operand), sizes, strict=True)]
    for dim, size, atom, whole in zip(_shape(out), sizes, atoms, shape_of(operand), strict=True):
        if _crosses(dim, size, whole) or isinstance(atom, Literal) and type(dim) is not Element and (
                min(max(int(atom.val), 0), whole - size) % size_of(dim)):
            raise ValueError(f"dynamic_slice of {sizes} from {operand.aval} has no blocks {tuple(_shape(out))}: starts and "
                             "sizes have to be multiples of those of a block")

    def place(at: Sequence[Any]) -> Sequence[Any]:
        found = op.scalars(atoms)
        starts = [min(max(int(start), 0), room) if isinstance(atom, Literal) else clamp(np.int32(0), start, np.int32(room))
                  for start, room, atom in zip(found, rooms, atoms, strict=True)]
        return _shifted(out, at, [0 if room == 0 else start for start, room in zip(starts, rooms, strict=True)])

    return [out.moved(_shape(out), place), *[None] * len(atoms)], lambda here, x, *starts: x


@pulls("iota")
def _iota(op: Operation, out: Block) -> Any:
    dims, axis, dtype = _shape(out), op.params["dimension"], op.params["dtype"]

    def compute(here: Here, *sizes: Any) -> Any:
        first = np.int32(0) + _start(dims[axis], here.place(out)[axis])
        if is_squeezed(dims[axis]):
            return broadcast_in_dim(first, seen(dims), ()).astype(dtype)
        counted = op.eqn.primitive.bind(dtype=np.dtype(np.int32), shape=seen(dims), dimension=_axis(dims, axis), sharding=None)
        return (counted + first).astype(dtype)

    return [None] * len(op.shapes), compute


@pulls("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or", "argmax", "argmin")
def _reduce(op: Operation, out: Block) -> Any:
    axes, shape = op.params["axes"], op.shapes[0]

    def widened(items: Sequence[Any], filling: Callable[[int], Any]) -> list[Any]:
        rest = iter(items)
        return [filling(axis) if axis in axes else next(rest) for axis in range(len(shape))]

    dims = widened(_shape(out), lambda axis: shape[axis])
    block = out.moved(dims, lambda place: widened(place, lambda axis: 0))
    return [block], lambda here, x: op.bind(x, axes=tuple(_axis(dims, axis) for axis in axes))


@pulls("concatenate")
def _concatenate(op: Operation, out: Block) -> Any:
    axis, dims = op.params["dimension"], _shape(out)
    lengths = [shape[axis] for shape in op.shapes]
    size = size_of(dims[axis])
    if not is_squeezed(dims[axis]) and size == sum(lengths):
        ins = [out.moved([*dims[:axis], length, *dims[axis + 1:]], lambda place: place) for length in lengths]
        return ins, lambda here, *operands: concatenate(operands, _axis(dims, axis))
    if not _is_blocked(dims[axis]) or any(length % size for length in lengths):
        return None
    ends = np.cumsum([length // size for length in lengths])

    def part(index: int) -> Block:
        first, last = int(ends[index - 1]) if index else 0, int(ends[index]) - 1
        return out.moved(dims, lambda place: [*place[:axis], clamp(np.int32(first), np.int32(0) + place[axis], np.int32(last)) -
                                              np.int32(first), *place[axis + 1:]])

    def compute(here: Here, *operands: Any) -> Any:
        at, result = here.place(out)[axis], operands[-1]
        for operand, end in zip(operands[-2::-1], ends[-2::-1], strict=True):
            result = select_n(np.int32(0) + at < int(end), result, operand)
        return result

    return [part(index) for index in range(len(lengths))], compute


@pulls("split")
def _split(op: Operation, out: Block) -> Any:
    axis, sizes, dims = op.params["axis"], op.params["sizes"], _shape(out)
    start = sum(sizes[:op.index])
    if type(dims[axis]) is not Element and (start % size_of(dims[axis]) or _crosses(dims[axis], sizes[op.index], sum(sizes))):
        return None
    starts = [start if each == axis else 0 for each in range(len(dims))]
    return [out.moved(dims, lambda place: _shifted(out, place, starts))], lambda here, x: x


@pulls("dot_general")
def _dot_general(op: Operation, out: Block) -> Any:
    (lhs_contracting, rhs_contracting), (lhs_batch, rhs_batch) = op.params["dimension_numbers"]
    dims = _shape(out)
    if any(map(is_squeezed, dims)):
        return None
    count, lhs_free = len(lhs_batch), len(op.shapes[0]) - len(lhs_batch) - len(lhs_contracting)
    blocks = []
    for shape, contracting, batch, first in ((op.shapes[0], lhs_contracting, lhs_batch, count),
                                             (op.shapes[1], rhs_contracting, rhs_batch, count + lhs_free)):
        free = [axis for axis in range(len(shape)) if axis not in contracting and axis not in batch]
        source: dict[int, int] = {axis: number for number, axis in enumerate(batch)} | {
            axis: first + number for number, axis in enumerate(free)}

        def arranged(items: Sequence[Any], filling: Callable[[int], Any], shape: Ints = shape,
                     source: dict[int, int] = source) -> list[Any]:
            return [items[source[axis]] if axis in source else filling(axis) for axis in range(len(shape))]

        blocks.append(out.moved(arranged(dims, shape.__getitem__), partial(arranged, filling=lambda axis: 0)))
    kept = {name: op.params[name] for name in ("dimension_numbers", "precision", "preferred_element_type")}
    return blocks, lambda here, x, y: dot_general(x, y, **kept)


@pulls("random_bits")
def _random_bits(op: Operation, out: Block) -> Any:
    """Other bits than those of the whole: each block has a key of its own, from its place."""

    def compute(here: Here, key: Any) -> Any:
        for place in here.place(out):
            key = fold_in(key, place)
        return draw_bits(key, op.params["bit_width"], seen(_shape(out)))

    return [_KEY], compute
