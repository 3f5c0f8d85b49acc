"""What a kernel is told about its operands: memory spaces, blocks of arrays and their positions in the grid.

`GridMapping` is what is left of it in an equation: a grid, and for each array a block shape and a program that gives the
block's place from the indices of the grid. Transformations and lowerings read that.
"""

from __future__ import annotations

import enum
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replace
from typing import Any

import numpy as np

from jaxlite.core import dtypes
from jaxlite.core.aval import MEMORY_SPACES, AbstractRef, Ints, ShapedArray


class MemorySpace(enum.Enum):
    """Where a Ref lives, for all backends. Called with a shape and a dtype it gives a `MemoryRef`."""

    ANY = "any"
    DEFAULT = "default"
    ERROR = "error"
    INDEX = "index"
    KEY = "key"
    HOST = "host"

    def __str__(self) -> str:
        return self.value

    def __call__(self, shape: Sequence[int], dtype: Any) -> MemoryRef:
        return memory_ref(shape, dtype, self)


class TpuMemorySpace(enum.Enum):
    """Where a Ref lives on a TPU; as `pallas.tpu.MemorySpace`."""

    VMEM = "vmem"
    VMEM_SHARED = "vmem_shared"
    SMEM = "smem"
    CMEM = "cmem"
    SEMAPHORE = "semaphore_mem"
    HBM = "hbm"

    def __str__(self) -> str:
        return self.value

    def __repr__(self) -> str:
        return self.name

    def __call__(self, shape: Sequence[int], dtype: Any) -> MemoryRef:
        return memory_ref(shape, dtype, self)


MEMORY_SPACES.update({str(space): space for space in (*TpuMemorySpace, *MemorySpace)})


@dataclass(frozen=True)
class SemaphoreSpace:
    """The memory of semaphores of a kind."""

    kind: str = "regular"

    def __str__(self) -> str:
        return "semaphore_mem"


class SemaphoreDType(dtypes.ExtendedDType):
    """The dtype of semaphores of a kind, as kernels pass them on to others; behind one is an int32, the count."""

    def __init__(self, kind: str, scalar: type):
        self.kind, self.type = kind, scalar
        self.name = {"regular": "sem", "dma": "dma_sem", "barrier": "barrier_sem"}[kind]

    class _rules:
        allow_conversion = True

    def physical_element(self) -> ShapedArray:
        """The type of the count."""
        return ShapedArray((), np.dtype(np.int32))


@dataclass(frozen=True)
class MemoryRef:
    """The type of a Ref to allocate: `inner_aval`, the type of its value, and its `memory_space`."""

    inner_aval: Any
    memory_space: Any

    shape = property(lambda self: self.inner_aval.shape, doc="The shape of the value.")
    dtype = property(lambda self: self.inner_aval.dtype, doc="The dtype of the value.")

    def get_ref_aval(self) -> AbstractRef:
        """The type of the Ref."""
        return AbstractRef(self.inner_aval, self.memory_space)


def memory_ref(shape: Sequence[int], dtype: Any, space: Any) -> MemoryRef:
    """A `MemoryRef` from a shape and a dtype."""
    return MemoryRef(ShapedArray(tuple(shape), np.dtype(dtype)), space)


# --- dimensions of blocks ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Blocked:
    """A dimension that is cut into blocks of a size; its index counts blocks."""

    block_size: int


@dataclass(frozen=True)
class Squeezed:
    """A dimension of which a kernel sees one index, and no axis."""


@dataclass(frozen=True)
class Element:
    """A dimension whose index counts elements, so that blocks may overlap.

    `padding` is the number of elements without a value before and after the array.
    """

    block_size: int
    padding: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class BoundedSlice:
    """A dimension whose index is a `ds(start, size)` of at most `block_size` elements."""

    block_size: int


@dataclass(frozen=True)
class Indirect:
    """A dimension whose index is an array of `block_size` positions."""

    block_size: int


squeezed = Squeezed()
BlockDim = (Blocked, Squeezed, Element, BoundedSlice, Indirect)


class _Unsaid:
    def __repr__(self) -> str:
        return "UNSAID"


UNSAID = _Unsaid()  # the memory space of a Ref that was made without one, and keeps its type


class RevisitMode(enum.Enum):
    """Whether a block of an output may be visited again later than in the next step of the grid."""

    IMMEDIATE = "immediate"
    ANY = "any"


@dataclass(frozen=True)
class Buffered:
    """How many buffers a pipeline holds for a block; a hint."""

    buffer_count: int
    use_lookahead: bool = False
    revisit: RevisitMode | None = None
    prefetched_count: int = 0


class _NoBlockSpec:
    def __repr__(self) -> str:
        return "NoBlockSpec"

    def __reduce__(self) -> str:
        return "no_block_spec"


no_block_spec = _NoBlockSpec()


@dataclass
class BlockSpec:
    """How an array is cut for the steps of a grid.

    Args:
      block_shape: for each axis the size of a block, `None` for an axis that kernels do not see, or a `BlockDim`; None for
        the whole array.
      index_map: from the indices of the grid to the place of the block, counted in blocks; None for the first one.
      pipeline_mode: a `Buffered`.
      memory_space: the memory that the block is in while the kernel runs.

    >>> from jaxlite.experimental import pallas as pl
    >>> rows = pl.BlockSpec((None, 128), lambda i: (i, 0))
    >>> rows.block_shape
    (None, 128)
    """

    block_shape: Sequence[Any] | None = None
    index_map: Callable[..., Any] | None = None
    # The first in the order of fields, which is what repr shows; given by its name alone.
    memory_space: Any = field(default=None, kw_only=True)
    pipeline_mode: Buffered | None = None

    def replace(self, **fields: Any) -> BlockSpec:
        """The same with other values of some fields."""
        return replace(self, **fields)


@dataclass(init=False, repr=False, eq=False)
class GridSpec:
    """The grid, the blocks and the scratch memory of a kernel, as one argument of `pallas_call`.

    Args: `grid` the number of steps along each axis, or (name, number): `jax.lax.axis_index` knows the name;
    `in_specs` and `out_specs` trees of `BlockSpec`; `scratch_shapes` a tree of `MemoryRef`.
    """

    grid: tuple[Any, ...]
    grid_names: tuple[Any, ...]
    in_specs: Any
    out_specs: Any
    scratch_shapes: Any
    num_scalar_prefetch = 0

    def __init__(self, grid: Any = (), in_specs: Any = no_block_spec, out_specs: Any = no_block_spec, scratch_shapes: Any = ()):
        axes = tuple(grid) if isinstance(grid, (tuple, list)) else (grid,)
        named = [each if isinstance(each, tuple) and len(each) == 2 else (None, each) for each in axes]
        self.grid, self.grid_names = tuple(size for _, size in named), tuple(name for name, _ in named)
        for size in self.grid:
            if not isinstance(size, (int, np.integer)) and dtypes.kind(getattr(size, "dtype", np.dtype(float))) != "i":
                raise ValueError(f"Grid must be a tuple of integers or jax.Array, got {self.grid}")
        if in_specs is not no_block_spec and not isinstance(in_specs, (tuple, list)):
            raise ValueError(f"`in_specs` must be a tuple or a list. Found: {in_specs}")
        self.in_specs, self.out_specs, self.scratch_shapes = (
            tuple(each) if isinstance(each, list) else each for each in (in_specs, out_specs, scratch_shapes))

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]  # as blocks have none

    def __repr__(self) -> str:
        names = self.grid_names if any(name is not None for name in self.grid_names) else None
        fields = ", ".join(f"{name}={value}" for name, value in {**vars(self), "grid_names": names}.items())
        return f"{type(self).__name__}({fields})"


@dataclass(frozen=True, kw_only=True)
class InterpretParams:
    """How a kernel for a TPU is interpreted: `pallas_call(..., interpret=InterpretParams())`.

    `uninitialized_memory` is the initial contents of memory, "nan" or "zero". Steps, cores and copies run one after
    the other here, so there are no races to look for: the others are accepted.
    """

    detect_races: bool = False
    on_race: str = "raise"
    out_of_bounds_reads: str = "raise"
    skip_floating_point_ops: bool = False
    uninitialized_memory: str = "nan"
    num_cores_or_threads: int = 1
    vector_clock_size: int | None = None
    logging_mode: Any = None
    dma_execution_mode: str = "on_wait"
    random_seed: int | None = None
    grid_point_recorder: Callable[..., Any] | None = None
    allow_hbm_allocation_in_run_scoped: bool = False
    buffer_bounds: str = "logical"


class _Forced(threading.local):
    params: InterpretParams | None = None


forced_interpret = _Forced()  # set, every kernel that is traced in this thread is interpreted so


@dataclass(frozen=True)
class CompilerParams:
    """Hints for the compiler of a backend; `pallas.triton` and `pallas.tpu` have theirs."""

    def replace(self, **fields: Any) -> Any:
        """The same with other values of some fields."""
        return replace(self, **fields)


@dataclass(frozen=True)
class CostEstimate:
    """What a kernel costs as a whole: operations, transcendental functions, bytes."""

    flops: int
    transcendentals: int
    bytes_accessed: int
    remote_bytes_transferred: int = 0


# --- in equations ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class BlockMapping:
    """The blocks of one array.

    Attributes: `block_shape`, a `BlockDim` for each axis; `index_map`, a jaxpr from the indices of the grid, and the operands
    known beforehand, to the block's place; `array_aval`, the type of the array; `memory_space`; `origin`, for messages.
    """

    block_shape: tuple[Any, ...]
    index_map: Any
    array_aval: Any
    memory_space: Any
    origin: str
    pipeline_mode: Any = None
    array_space: Any = None  # the memory that the whole array is in, if that is asked for

    @property
    def sizes(self) -> Ints:
        """The block's extent along each axis of the array."""
        return tuple(1 if type(dim) is Squeezed else dim.block_size for dim in self.block_shape)

    @property
    def ref_shape(self) -> Ints:
        """The shape that a kernel sees."""
        return tuple(dim.block_size for dim in self.block_shape if type(dim) is not Squeezed)

    @property
    def ref_aval(self) -> AbstractRef:
        """The type of the Ref that a kernel gets."""
        dtype = np.dtype(np.int32) if isinstance(self.memory_space, SemaphoreSpace) else self.array_aval.dtype
        return AbstractRef(ShapedArray(self.ref_shape, dtype), self.memory_space)

    @property
    def array_ref(self) -> AbstractRef:
        """The type of a Ref to the whole array, as kernels see it."""
        return AbstractRef(self.array_aval.update(dtype=self.ref_aval.dtype), self.memory_space)

    @property
    def padding(self) -> tuple[tuple[int, int], ...]:
        """How much has to be added to the array so that blocks divide it."""
        return tuple(dim.padding if type(dim) is Element else (0, size * -(-extent // size) - extent if size else 0)
                     for dim, size, extent in zip(self.block_shape, self.sizes, self.array_aval.shape, strict=True))

    @property
    def counts_elements(self) -> tuple[bool, ...]:
        """For each axis, whether the index map gives an element instead of a block."""
        return tuple(type(dim) in (Element, BoundedSlice) for dim in self.block_shape)

    def __repr__(self) -> str:
        return f"BlockMapping(block_shape={self.block_shape})"


@dataclass(frozen=True, eq=False, repr=False)
class GridMapping:
    """The grid of a kernel, and the blocks of its inputs and outputs.

    Attributes: `grid`, with None for sizes that are operands; `block_mappings`, inputs first; `num_inputs`; `index_avals`,
    types of the leading operands that index maps and kernels get whole; `scratch_avals`, types of the Refs that kernels get
    last; `vmapped_dims`, the axes of the grid that `vmap` added, which kernels do not see.
    """

    grid: tuple[int | None, ...]
    block_mappings: tuple[BlockMapping, ...]
    num_inputs: int
    index_avals: tuple[Any, ...]
    scratch_avals: tuple[AbstractRef, ...]
    vmapped_dims: Ints = ()

    @property
    def num_dynamic(self) -> int:
        """The number of sizes of the grid that are operands; they come first."""
        return sum(size is None for size in self.grid)

    @property
    def num_outputs(self) -> int:
        return len(self.block_mappings) - self.num_inputs

    @property
    def kernel_axes(self) -> Ints:
        """The axes of the grid that a kernel counts."""
        return tuple(axis for axis in range(len(self.grid)) if axis not in self.vmapped_dims)

    @property
    def steps(self) -> int:
        """The number of steps of a grid whose sizes are known."""
        return math.prod(max(size or 0, 0) for size in self.grid)

    def __repr__(self) -> str:
        return f"GridMapping(grid={self.grid}, block_mappings={self.block_mappings})"


class FrozenDict(dict):
    """A dict that can be a param of an equation."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __repr__(self) -> str:
        return f"FrozenDict({dict(self)!r})"


def frozen(value: Any) -> Any:
    """A param as something that can be hashed: a dict by its items."""
    return FrozenDict(value) if type(value) is dict else value
