"""`emit_pipeline`: a loop within a kernel that copies blocks between slow and fast memory while it computes on others.

Each array has buffers, two by default. While the function works on a block, the next ones are on their way into the others, and
the last result on its way out of its. A block that stays the same from step to step is copied once. With one buffer, steps wait
for copies.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from jaxlite.core.filtering import boundary
from jaxlite.core.tracing import state
from jaxlite.core.tree import tree_flatten
from jaxlite.core.tree_nodes import register_dataclass
from jaxlite.experimental.pallas import specs
from jaxlite.experimental.pallas.call import block_dims
from jaxlite.experimental.pallas.dma import SemaphoreType, make_async_copy
from jaxlite.experimental.pallas.helpers import cdiv, run_scoped, when
from jaxlite.experimental.pallas.primitives import grid_scope
from jaxlite.lax import elementwise as ew
from jaxlite.lax.control_flow.while_loop import fori_loop
from jaxlite.lax.parallel import axis_index
from jaxlite.lax.shaping import convert
from jaxlite.state.api import RefIndexer
from jaxlite.state.indexing import Slice

_i32 = np.dtype(np.int32)


def _word(value: Any) -> Any:
    return np.int32(value) if isinstance(value, (int, np.integer)) else convert(value, _i32, False)


class BufferType(enum.Enum):
    """Which way the blocks of an array go; INPUT_OUTPUT ones are read, changed and written back."""

    INPUT = 1
    OUTPUT = 2
    INPUT_OUTPUT = 3


@dataclass(frozen=True)
class BufferedRef:
    """The buffers of an array's blocks in a pipeline, to allocate with `pallas.run_scoped` or among `scratch_shapes`.

    Attributes: `spec`, the `BlockSpec`; `buffer_type`; `buffer_count`; `window_ref` and `semaphores`, the memory, types until
    it is allocated.
    """

    spec: specs.BlockSpec
    buffer_type: BufferType
    buffer_count: int
    window_ref: Any
    semaphores: Any

    @classmethod
    def create(cls, spec: specs.BlockSpec, dtype_or_type: Any, buffer_type: BufferType, buffer_count: int,
               grid_rank: Any = None, use_lookahead: bool = False, source_memory_space: Any = None,
               tiling: Any = None) -> BufferedRef:
        """Buffers to allocate.

        Args: `spec` with a block shape; `dtype_or_type` a dtype, or what has one; `buffer_count` at least 1. The others are
        accepted. Raises: ValueError for a spec without a block shape, or another count.
        """
        if spec.block_shape is None:
            raise ValueError("BufferedRef: the spec needs a block_shape")
        if buffer_count < 1:
            raise ValueError(f"BufferedRef: buffer_count is at least 1, got {buffer_count}")
        shape = [size if isinstance(size, int) else size.block_size for size in spec.block_shape
                 if size is not None and type(size) is not specs.Squeezed]
        memory = specs.TpuMemorySpace.VMEM((buffer_count, *shape), getattr(dtype_or_type, "dtype", dtype_or_type))
        return cls(spec, buffer_type, buffer_count, memory, SemaphoreType.DMA((buffer_count,)))

    @classmethod
    def input(cls, spec: specs.BlockSpec, dtype_or_type: Any, buffer_count: int = 2, **kwargs: Any) -> BufferedRef:
        """Buffers of an input."""
        return cls.create(spec, dtype_or_type, BufferType.INPUT, buffer_count, **kwargs)

    @classmethod
    def output(cls, spec: specs.BlockSpec, dtype_or_type: Any, buffer_count: int = 2, **kwargs: Any) -> BufferedRef:
        """Buffers of an output."""
        return cls.create(spec, dtype_or_type, BufferType.OUTPUT, buffer_count, **kwargs)

    @classmethod
    def input_output(cls, spec: specs.BlockSpec, dtype_or_type: Any, buffer_count: Any = 2, **kwargs: Any) -> BufferedRef:
        """Buffers of an output whose blocks are read before: the function adds to them, for example."""
        count = max(buffer_count) if isinstance(buffer_count, tuple) else buffer_count
        return cls.create(spec, dtype_or_type, BufferType.INPUT_OUTPUT, count, **kwargs)

    is_input = property(lambda self: self.buffer_type is not BufferType.OUTPUT, doc="Whether blocks are read.")
    is_output = property(lambda self: self.buffer_type is not BufferType.INPUT, doc="Whether blocks are written.")
    is_input_output = property(lambda self: self.buffer_type is BufferType.INPUT_OUTPUT, doc="Whether both.")
    block_shape = property(lambda self: self.spec.block_shape, doc="The shape of a block.")


register_dataclass(BufferedRef, ["window_ref", "semaphores"], ["spec", "buffer_type", "buffer_count"])


class _Array(NamedTuple):
    """An array in slow memory: its blocks, the buffers and semaphores that they go through, and whether results add to it."""

    ref: Any
    dims: tuple[Any, ...]
    index_map: Callable[..., Any] | None
    buffer: Any
    semaphores: Any
    depth: int
    is_read: bool

    def slot(self, number: Any) -> Any:
        """The buffer of the block of a number."""
        return ew.rem(number, np.int32(self.depth))

    def place(self, ids: Sequence[Any]) -> list[Any]:
        """The place of the block of a step, in blocks or elements."""
        found = [np.int32(0)] * len(self.dims) if self.index_map is None else self.index_map(*ids)
        return [_word(each) for each in (found if isinstance(found, (tuple, list)) else (found,))]

    def copies(self, place: Sequence[Any], slot: Any, do: Callable[[Any], None], out: bool) -> None:
        """Do something with the copy of a block; blocks at the end of an axis that they do not divide are shorter."""
        starts, sizes = [], []
        for index, dim, extent in zip(place, self.dims, self.ref.shape, strict=True):
            squeezed, size = type(dim) is specs.Squeezed, 1 if type(dim) is specs.Squeezed else dim.block_size
            counted = type(dim) is specs.Element or size == 1
            starts.append(index if counted else ew.mul(index, np.int32(size)))
            rest = extent % size if not squeezed and type(dim) is not specs.Element else 0
            sizes.append((None,) if squeezed else (size, rest) if rest else (size,))

        def one(extents: Sequence[int | None]) -> None:
            part = RefIndexer(self.ref)[tuple(start if extent is None else Slice(start, extent)
                                              for start, extent in zip(starts, extents, strict=True))]
            seen = tuple(Slice(0, extent) for extent in extents if extent is not None)
            near = RefIndexer(self.buffer)[(slot, *seen)]
            semaphore = RefIndexer(self.semaphores)[slot]
            do(make_async_copy(near, part, semaphore) if out else make_async_copy(part, near, semaphore))

        for extents in itertools.product(*sizes):
            fits: Any = None
            for start, extent, choices, length in zip(starts, extents, sizes, self.ref.shape, strict=True):
                if len(choices) == 2:
                    whole = ew.le(start, np.int32(length - choices[0]))
                    here = whole if extent == choices[0] else ew.bitwise_not(whole)
                    fits = here if fits is None else ew.bitwise_and(fits, here)
            if fits is None:
                one(extents)
            else:
                when(fits)(partial(one, extents))


def _differ(one: Sequence[Any], other: Sequence[Any]) -> Any:
    out: Any = np.False_
    for a, b in zip(one, other, strict=True):
        if not (isinstance(a, np.generic) and isinstance(b, np.generic)):
            out = ew.bitwise_or(out, ew.ne(a, b))
        elif a != b:
            out = np.True_
    return out


@boundary
def emit_pipeline(body: Callable[..., None], *, grid: Sequence[Any], in_specs: Any = (), out_specs: Any = (),
                  tiling: Any = None, core_axis: Any = None, core_axis_name: str | None = None,
                  dimension_semantics: Sequence[Any] | None = None, trace_scopes: bool = True,
                  no_pipelining: bool = False, output_wait_read_only: bool = False) -> Callable[..., None]:
    """A function of Refs that runs `body` for each step of a grid, on blocks in fast memory.

    Args:
      body: takes a Ref to a block of each input, then of each output; `program_id` is its place in this grid.
      grid: how many steps there are along each axis, ints or int32 scalars.
      in_specs, out_specs: trees of `BlockSpec` for the Refs. Of `pipeline_mode=Buffered(n)`, n buffers hold an input's next
        blocks; an output has one or two.
      core_axis_name: the axis of cores that share the steps along `core_axis`, or along the first axis that
        `dimension_semantics` calls parallel.
      no_pipelining: one buffer for each array.
      tiling, trace_scopes, output_wait_read_only: accepted.
    Returns: a function of Refs to whole arrays, inputs first, and of `scratches` that the body gets last; `allocations`, a
      `BufferedRef` for each array, which `emit_pipeline_with_allocations` makes; `body_prologue`, called before the body.
    """
    grid = tuple(grid) if isinstance(grid, (tuple, list)) else (grid,)
    ins, outs = _flat(in_specs), _flat(out_specs)

    @boundary
    def pipeline(*refs: Any, scratches: Sequence[Any] | None = None, allocations: Any = None,
                 body_prologue: Callable[[], None] | None = None) -> None:
        if len(refs) != len(ins) + len(outs):
            raise ValueError(f"the pipeline has specs for {len(ins)} inputs and {len(outs)} outputs, got {len(refs)} Refs")
        if allocations is None:
            made = _allocations(refs, ins, outs, no_pipelining)
            run_scoped(lambda allocated: pipeline(*refs, scratches=scratches, allocations=allocated,
                                                  body_prologue=body_prologue), made)
            return
        found = tree_flatten(allocations, is_leaf=lambda each: isinstance(each, BufferedRef))[0]
        if [getattr(each, "is_output", None) for each in found] != [False] * len(ins) + [True] * len(outs):
            raise ValueError(f"allocations: a BufferedRef for each of {len(ins)} inputs and {len(outs)} outputs, got {found}")
        arrays = [_Array(ref, block_dims(spec, ref.shape, f"refs[{place}]"), spec.index_map, each.window_ref, each.semaphores,
                         each.buffer_count, each.is_input)
                  for place, (spec, ref, each) in enumerate(zip((*ins, *outs), refs, found, strict=True))]
        loop = _Loop(*_shared(grid, core_axis, core_axis_name, dimension_semantics), arrays[:len(ins)], arrays[len(ins):])
        loop.run(body, body_prologue, scratches or ())

    return pipeline


@boundary
def emit_pipeline_with_allocations(body: Callable[..., None], *, grid: Sequence[Any], in_specs: Any = (), out_specs: Any = (),
                                   ) -> tuple[Callable[..., None], Callable[..., tuple[BufferedRef, ...]]]:
    """`emit_pipeline`, and a function of the same Refs that gives the buffers to allocate: several pipelines may share them.

    An output whose buffers are made by `BufferedRef.input_output` instead is read before it is written.

    >>> import jaxlite, jaxlite.numpy as jnp
    >>> from jaxlite.experimental import pallas as pl
    >>> from jaxlite.experimental.pallas import tpu as pltpu
    >>> def kernel(x_ref, o_ref):
    ...     def double(x_ref, o_ref):
    ...         o_ref[...] = 2 * x_ref[...]
    ...     rows = pl.BlockSpec((1, 4), lambda i: (i, 0))
    ...     run, make = pltpu.emit_pipeline_with_allocations(double, grid=(2,), in_specs=[rows], out_specs=[rows])
    ...     def with_buffers(buffers):
    ...         run(x_ref, o_ref, allocations=buffers)
    ...         run(o_ref, o_ref, allocations=buffers)
    ...     pl.run_scoped(with_buffers, make(x_ref, o_ref))
    >>> whole = pl.BlockSpec(memory_space=pl.ANY)
    >>> pl.pallas_call(kernel, jaxlite.ShapeDtypeStruct((2, 4), jnp.float32), in_specs=[whole], out_specs=whole,
    ...                interpret=True)(jnp.ones((2, 4)))[0]
    Array([4., 4., 4., 4.], dtype=float32)
    """
    ins, outs = _flat(in_specs), _flat(out_specs)

    def make(*refs: Any) -> tuple[BufferedRef, ...]:
        return _allocations(refs, ins, outs, False)

    return emit_pipeline(body, grid=grid, in_specs=in_specs, out_specs=out_specs), make


def _flat(tree: Any) -> list[specs.BlockSpec]:
    return tree_flatten(tree, is_leaf=lambda each: isinstance(each, specs.BlockSpec))[0]


def _allocations(refs: Sequence[Any], ins: Sequence[Any], outs: Sequence[Any], is_single: bool) -> tuple[BufferedRef, ...]:
    made = []
    for place, (spec, ref) in enumerate(zip((*ins, *outs), refs, strict=True)):
        spec = spec.replace(block_shape=block_dims(spec, ref.shape, f"refs[{place}]"))
        count = 1 if is_single else getattr(spec.pipeline_mode, "buffer_count", 2)
        made.append(BufferedRef.input(spec, ref.dtype, count) if place < len(ins) else BufferedRef.output(
            spec, ref.dtype, min(count, 2)))
    return tuple(made)


def _shared(grid: tuple[Any, ...], axis: Any, name: str | None, semantics: Sequence[Any] | None) -> tuple[Any, list[Any]]:
    """The steps of this core, and its first step along each axis."""
    first: list[Any] = [np.int32(0)] * len(grid)
    if name is None:
        return grid, first
    if axis is None:
        words = [getattr(each, "value", each) for each in semantics or ()]
        axis = words.index("parallel") if "parallel" in words else 0
    share = cdiv(grid[axis], state.axis_sizes[name])
    first[axis] = ew.mul(axis_index(name), _word(share))
    left = ew.max(ew.min(_word(share), ew.sub(_word(grid[axis]), first[axis])), np.int32(0))
    return (*grid[:axis], left, *grid[axis + 1:]), first


class _Loop:
    """The loop over a grid: reads of the blocks of steps ahead begin early, and writes go on beside the next steps."""

    def __init__(self, grid: Sequence[Any], first: Sequence[Any], ins: Sequence[_Array], outs: Sequence[_Array]):
        self.grid, self.first, self.ins, self.outs = grid, first, ins, outs
        self.steps: Any = np.int32(1)
        for size in grid:
            self.steps = self.steps * _word(size) if isinstance(size, (int, np.integer)) and isinstance(
                self.steps, np.generic) else ew.mul(self.steps, _word(size))

    def run(self, body: Callable[..., None], prologue: Callable[[], None] | None, scratches: Sequence[Any]) -> None:
        """Call `body` in each step with the parts of the buffers that have its blocks, and the scratch memory."""
        ins, outs = self.ins, self.outs
        arrays = (*ins, *outs)
        extents = tuple(int(size) if isinstance(size, (int, np.integer)) else _word(size) for size in self.grid)
        fetched = self._first_fetches()

        def step(index: Any, carry: Any) -> Any:
            index = _word(index)
            counts, gone, fetched = carry
            is_first, is_last = ew.eq(index, np.int32(0)), ew.eq(index, self._before(self.steps))
            earlier, later = ew.max(self._before(index), np.int32(0)), ew.min(ew.add(index, np.int32(1)), self._before(
                self.steps))
            now, then, previous = self._ids(index), self._ids(later), self._ids(earlier)
            slots = [each.slot(count) for each, count in zip(arrays, counts, strict=True)]
            fetched = [self._fetch(each, ew.add(index, np.int32(each.depth - 1)), number) if each.depth > 1 else number
                       for each, number in zip(ins, fetched, strict=True)]
            self._read(slots, now, previous, is_first)
            with grid_scope(extents, ids=now):
                if prologue is not None:
                    prologue()
                body(*(RefIndexer(each.buffer)[slot] for each, slot in zip(arrays, slots, strict=True)), *scratches)
            last = self._write(slots[len(ins):], counts[len(ins):], gone, now, then, is_last)
            moves = [ew.bitwise_and(ew.bitwise_not(is_last), _differ(each.place(now), each.place(then))) for each in arrays]
            counts = [ew.add(count, convert(moved, _i32, False)) for count, moved in zip(counts, moves, strict=True)]
            return counts, last, fetched

        start = [np.int32(0)] * len(arrays), [[np.int32(0)] * len(each.dims) for each in outs], fetched
        counts, gone, _ = fori_loop(0, self.steps, step, start)

        for each, place, count in zip(outs, gone, counts[len(ins):], strict=True):
            if each.depth > 1:
                _when(ew.gt(self.steps, np.int32(0)), each, place, each.slot(count), _wait, True)

    @staticmethod
    def _before(number: Any) -> Any:
        return ew.sub(number, np.int32(1))

    def _ids(self, step: Any) -> list[Any]:
        """The position in the grid of a step."""
        ids: list[Any] = []
        for axis in reversed(range(len(self.grid))):
            ids.append(step if axis == 0 else ew.rem(step, _word(self.grid[axis])))
            step = step if axis == 0 else ew.div(step, _word(self.grid[axis]))
        return [ew.add(each, _word(start)) for each, start in zip(ids[::-1], self.first, strict=True)]

    def _fetch(self, each: _Array, ahead: Any, number: Any) -> Any:
        """Begin to read the block of a step ahead, unless it is that of the step before. Gives the number of the next one."""
        last = ew.min(ahead, self._before(self.steps))
        place = each.place(self._ids(last))
        is_new = ew.bitwise_and(ew.lt(ahead, self.steps), _differ(each.place(self._ids(self._before(last))), place))
        _when(is_new, each, place, each.slot(number), _start, False)
        return ew.add(number, convert(is_new, _i32, False))

    def _first_fetches(self) -> list[Any]:
        """Begin to read the blocks of the first steps. Gives the number of the next one for each input."""
        fetched: list[Any] = []
        for each in self.ins:
            if each.depth > 1:
                _when(ew.gt(self.steps, np.int32(0)), each, each.place(self._ids(np.int32(0))), np.int32(0), _start, False)
            number: Any = np.int32(1)
            for ahead in range(1, each.depth - 1):
                number = self._fetch(each, np.int32(ahead), number)
            fetched.append(number)
        return fetched

    def _read(self, slots: Sequence[Any], now: Sequence[Any], previous: Sequence[Any], is_first: Any) -> None:
        """Wait for blocks that are on their way, and read those of other arrays that are read."""
        for number, (each, slot) in enumerate(zip((*self.ins, *self.outs), slots, strict=True)):
            if each.is_read:
                place = each.place(now)
                starts = ew.bitwise_or(is_first, _differ(place, each.place(previous)))
                is_on_its_way = number < len(self.ins) and each.depth > 1
                _when(starts, each, place, slot, _wait if is_on_its_way else _start_and_wait, False)

    def _write(self, slots: Sequence[Any], counts: Sequence[Any], gone: Sequence[Any], now: Sequence[Any], then: Sequence[Any],
               is_last: Any) -> list[Any]:
        """Write the blocks that the next step does not have. Gives the places of the last ones that were written."""
        last = []
        for number, each in enumerate(self.outs):
            place, slot, count = each.place(now), slots[number], counts[number]
            ends = ew.bitwise_or(is_last, _differ(place, each.place(then)))
            if each.depth > 1:
                # What went out last has to be there before the next goes: then the other buffer is free.
                before = each.slot(self._before(count))
                _when(ew.bitwise_and(ends, ew.gt(count, np.int32(0))), each, gone[number], before, _wait, True)
            _when(ends, each, place, slot, _start if each.depth > 1 else _start_and_wait, True)
            last.append([ew.select(ends, new, old) for new, old in zip(place, gone[number], strict=True)])
        return last


def _start(copy: Any) -> None:
    copy.start()


def _wait(copy: Any) -> None:
    copy.wait()


def _start_and_wait(copy: Any) -> None:
    copy.start()
    copy.wait()


def _when(condition: Any, array: _Array, place: Sequence[Any], slot: Any, do: Callable[[Any], None], out: bool) -> None:
    when(condition)(lambda: array.copies(place, slot, do, out))
