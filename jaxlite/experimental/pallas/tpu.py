"""Kernels for TPUs: their memory spaces, grids with operands known beforehand, hints, copies between memories."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxlite.core.aval import AbstractRef, ShapedArray
from jaxlite.experimental.pallas import specs as _specs
from jaxlite.experimental.pallas.primitives import load as _load
from jaxlite.experimental.pallas.primitives import store as store
from jaxlite.experimental.pallas.specs import TpuMemorySpace as MemorySpace
from jaxlite.lax.shaping import bitcast_convert_type as _bitcast
from jaxlite.numpy.manipulation import roll as _roll
from jaxlite.state.api import get as _get
from jaxlite.state.api import set as _set

__all__ = ["ARBITRARY", "CMEM", "CORE_PARALLEL", "CompilerParams", "GridDimensionSemantics", "HBM", "MemorySpace", "PARALLEL",
           "PrefetchScalarGridSpec", "SEMAPHORE", "SMEM", "SUBCORE_PARALLEL", "SemaphoreType", "SideEffectType", "VMEM",
           "VMEM_SHARED", "async_copy", "bitcast", "load", "make_async_copy", "roll", "store", "sync_copy"]
__dir__ = lambda: __all__

VMEM, VMEM_SHARED, SMEM = MemorySpace.VMEM, MemorySpace.VMEM_SHARED, MemorySpace.SMEM
CMEM, SEMAPHORE, HBM = MemorySpace.CMEM, MemorySpace.SEMAPHORE, MemorySpace.HBM


class GridDimensionSemantics(enum.Enum):
    """Whether the steps along an axis of the grid may run in any order, or on several cores."""

    PARALLEL = "parallel"
    CORE_PARALLEL = "core_parallel"
    SUBCORE_PARALLEL = "subcore_parallel"
    ARBITRARY = "arbitrary"


PARALLEL, CORE_PARALLEL = GridDimensionSemantics.PARALLEL, GridDimensionSemantics.CORE_PARALLEL
SUBCORE_PARALLEL, ARBITRARY = GridDimensionSemantics.SUBCORE_PARALLEL, GridDimensionSemantics.ARBITRARY


class SideEffectType(enum.Enum):
    """Whether a kernel does more than to write its outputs."""

    PURE = "pure"
    DATAFLOW_SIDE_EFFECTING = "dataflow_side_effecting"
    SIDE_EFFECTING = "side_effecting"


@dataclass(frozen=True)
class _Semaphores:
    """A type of semaphores to allocate; in interpret mode they are counters that nobody waits for."""

    kind: SemaphoreType
    shape: tuple[int, ...] = ()

    def get_ref_aval(self) -> AbstractRef:
        return AbstractRef(ShapedArray(self.shape, np.dtype(np.int32)), SEMAPHORE)


class SemaphoreType(enum.Enum):
    """Kinds of semaphores; called with a shape it gives an array of them."""

    REGULAR = "regular"
    DMA = "dma"
    BARRIER = "barrier"

    def __call__(self, shape: Sequence[int] = ()) -> _Semaphores:
        return _Semaphores(self, tuple(shape))

    def get_ref_aval(self) -> AbstractRef:
        """The type of a Ref of one."""
        return self().get_ref_aval()


class PrefetchScalarGridSpec(_specs.GridSpec):
    """A `GridSpec` for a kernel whose first arguments are known before its blocks are fetched.

    Args: `num_scalar_prefetch` how many; index maps get Refs of them behind the indices of the grid, kernels get them whole.
    """

    def __init__(self, num_scalar_prefetch: int, grid: Any = (), in_specs: Any = _specs.no_block_spec,
                 out_specs: Any = _specs.no_block_spec, scratch_shapes: Any = ()):
        super().__init__(grid, in_specs, out_specs, scratch_shapes)
        self.num_scalar_prefetch = num_scalar_prefetch


@dataclass(frozen=True)
class CompilerParams(_specs.CompilerParams):
    """Hints for Mosaic. `dimension_semantics` says for each axis of the grid how its steps may run."""

    dimension_semantics: Sequence[Any] | None = None
    allow_input_fusion: Sequence[bool] | None = None
    vmem_limit_bytes: int | None = None
    collective_id: int | None = None
    has_side_effects: bool | SideEffectType = False
    flags: Mapping[str, Any] | None = None
    internal_scratch_in_bytes: int | None = None
    serialization_format: int = 1
    disable_bounds_checks: bool = False
    disable_semaphore_checks: bool = False
    skip_device_barrier: bool = False
    allow_collective_id_without_custom_barrier: bool = False
    shape_invariant_numerics: bool = True
    use_tc_tiling_on_sc: bool | None = None
    needs_layout_passes: bool = True
    fuse_transposed_lhs_in_matmul: bool = False

    def __post_init__(self) -> None:
        for name in ("dimension_semantics", "allow_input_fusion"):
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else tuple(value))
        object.__setattr__(self, "flags", _specs.frozen(self.flags))


def load(ref: Any, *, mask: Any = None) -> Any:
    """The value of a Ref, or of a part of one, where a mask holds."""
    return _load(ref, mask=mask)


class _Copy:
    """A copy from a Ref to another that was described; `start` and `wait` run it."""

    def __init__(self, source: Any, target: Any):
        self._source, self._target = source, target

    def start(self) -> None:
        """Begin the copy. Here it is also done."""
        _set(self._target, ..., _get(self._source))

    def wait(self) -> None:
        """Wait for the end of the copy."""

    wait_send = wait_recv = wait


def make_async_copy(src_ref: Any, dst_ref: Any, sem: Any) -> _Copy:
    """The description of a copy: `start()` begins it, `wait()` waits for its end. In interpret mode."""
    return _Copy(src_ref, dst_ref)


def async_copy(src_ref: Any, dst_ref: Any, sem: Any, *, priority: int = 0) -> _Copy:
    """Begin a copy from a Ref to another; `wait()` of the result waits for its end."""
    made = make_async_copy(src_ref, dst_ref, sem)
    made.start()
    return made


def sync_copy(src_ref: Any, dst_ref: Any) -> None:
    """Copy from a Ref to another."""
    _set(dst_ref, ..., _get(src_ref))


def roll(x: Any, shift: Any, axis: int) -> Any:
    """The elements shifted along an axis, what falls off at the end comes in at the start."""
    return _roll(x, shift, axis)


def bitcast(x: Any, ty: Any) -> Any:
    """The bits of an array as another dtype of the same width."""
    return _bitcast(x, ty)


