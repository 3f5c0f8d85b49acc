"""`emit_pipeline`: a loop within a kernel that copies blocks between slow and fast memory while it computes on others.

Each array has two buffers. While the function works on a block, the next one is on its way into the other buffer, and the
last result on its way out of its. A block that stays the same from step to step is copied once.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from jaxlite.core.filtering import boundary
from jaxlite.core.tracing import state
from jaxlite.core.tree import tree_flatten
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


class _Array(NamedTuple):
    """An array in slow memory: its blocks, and the two buffers and semaphores that they go through."""

    ref: Any
    dims: tuple[Any, ...]
    index_map: Callable[..., Any] | None
    buffer: Any
    semaphores: Any

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
      in_specs, out_specs: trees of `BlockSpec` for the Refs.
      core_axis_name: the axis of cores that share the steps along `core_axis`, or along the first axis that
        `dimension_semantics` calls parallel.
      tiling, trace_scopes, no_pipelining, output_wait_read_only: accepted.
    Returns: a function of Refs to whole arrays, inputs first, and of `scratches` that the body gets last.
    """
    grid = tuple(grid) if isinstance(grid, (tuple, list)) else (grid,)
    is_spec = lambda each: isinstance(each, specs.BlockSpec)
    ins, outs = (tree_flatten(each, is_leaf=is_spec)[0] for each in (in_specs, out_specs))

    @boundary
    def pipeline(*refs: Any, scratches: Sequence[Any] = ()) -> None:
        if len(refs) != len(ins) + len(outs):
            raise ValueError(f"the pipeline has specs for {len(ins)} inputs and {len(outs)} outputs, got {len(refs)} Refs")
        dims = [block_dims(spec, ref.shape, f"refs[{place}]")
                for place, (spec, ref) in enumerate(zip((*ins, *outs), refs, strict=True))]
        shapes = [tuple(dim.block_size for dim in each if type(dim) is not specs.Squeezed) for each in dims]
        buffers = [specs.TpuMemorySpace.VMEM((2, *shape), ref.dtype) for shape, ref in zip(shapes, refs, strict=True)]
        semaphores = [SemaphoreType.DMA((2,)) for _ in refs]

        def scoped(buffers: Sequence[Any], semaphores: Sequence[Any]) -> None:
            arrays = [_Array(*each) for each in zip(
                refs, dims, [spec.index_map for spec in (*ins, *outs)], buffers, semaphores, strict=True)]
            _run(body, *_shared(grid, core_axis, core_axis_name, dimension_semantics), arrays[:len(ins)], arrays[len(ins):],
                 scratches)

        run_scoped(scoped, buffers, semaphores)

    return pipeline


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


def _run(body: Callable[..., None], grid: Sequence[Any], first: Sequence[Any], ins: Sequence[_Array], outs: Sequence[_Array],
         scratches: Sequence[Any]) -> None:
    steps: Any = np.int32(1)
    for size in grid:
        steps = steps * _word(size) if isinstance(size, (int, np.integer)) and isinstance(steps, np.generic) else ew.mul(
            steps, _word(size))

    def ids_of(step: Any) -> list[Any]:
        ids: list[Any] = []
        for axis in reversed(range(len(grid))):
            ids.append(step if axis == 0 else ew.rem(step, _word(grid[axis])))
            step = step if axis == 0 else ew.div(step, _word(grid[axis]))
        return [ew.add(each, _word(start)) for each, start in zip(ids[::-1], first, strict=True)]

    extents = tuple(int(size) if isinstance(size, (int, np.integer)) else _word(size) for size in grid)

    @when(ew.gt(steps, np.int32(0)))
    def _() -> None:
        for each in ins:
            each.copies(each.place(ids_of(np.int32(0))), np.int32(0), _start, False)

    def step(index: Any, carry: Any) -> Any:
        index = _word(index)
        counts, gone = carry
        is_first, is_last = ew.eq(index, np.int32(0)), ew.eq(index, ew.sub(steps, np.int32(1)))
        before, after = ew.max(ew.sub(index, np.int32(1)), np.int32(0)), ew.min(ew.add(index, np.int32(1)), ew.sub(
            steps, np.int32(1)))
        now, then, previous = ids_of(index), ids_of(after), ids_of(before)
        slots = [ew.rem(count, np.int32(2)) for count in counts]
        for each, slot in zip(ins, slots, strict=False):
            place, following = each.place(now), each.place(then)
            goes_on = ew.bitwise_and(ew.bitwise_not(is_last), _differ(place, following))
            starts = ew.bitwise_or(is_first, _differ(place, each.place(previous)))
            _when(goes_on, each, following, ew.sub(np.int32(1), slot), _start, False)
            _when(starts, each, place, slot, _wait, False)
        with grid_scope(extents, ids=now):
            body(*(RefIndexer(each.buffer)[slot] for each, slot in zip((*ins, *outs), slots, strict=True)), *scratches)
        last = []
        for number, each in enumerate(outs):
            place, slot, count = each.place(now), slots[len(ins) + number], counts[len(ins) + number]
            ends = ew.bitwise_or(is_last, _differ(place, each.place(then)))
            # What went out last has to be there before the next goes: then the other buffer is free.
            _when(ew.bitwise_and(ends, ew.gt(count, np.int32(0))), each, gone[number], ew.sub(np.int32(1), slot), _wait, True)
            _when(ends, each, place, slot, _start, True)
            last.append([ew.select(ends, new, old) for new, old in zip(place, gone[number], strict=True)])
        moves = [ew.bitwise_and(ew.bitwise_not(is_last), _differ(each.place(now), each.place(then))) for each in (*ins, *outs)]
        return [ew.add(count, convert(moved, _i32, False)) for count, moved in zip(counts, moves, strict=True)], last

    start = [np.int32(0)] * (len(ins) + len(outs)), [[np.int32(0)] * len(each.dims) for each in outs]
    counts, gone = fori_loop(0, steps, step, start)

    @when(ew.gt(steps, np.int32(0)))
    def _() -> None:
        for each, place, count in zip(outs, gone, counts[len(ins):], strict=True):
            each.copies(place, ew.rem(count, np.int32(2)), _wait, True)


def _start(copy: Any) -> None:
    copy.start()


def _wait(copy: Any) -> None:
    copy.wait()


def _when(condition: Any, array: _Array, place: Sequence[Any], slot: Any, do: Callable[[Any], None], out: bool) -> None:
    when(condition)(lambda: array.copies(place, slot, do, out))
