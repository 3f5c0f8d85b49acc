"""Kernels for TPUs: their memory spaces, grids with operands known beforehand, hints, interpret mode."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jaxlite.experimental.pallas import chips as _chips
from jaxlite.experimental.pallas import cores as _cores
from jaxlite.experimental.pallas import dma as _dma
from jaxlite.experimental.pallas import pipeline as _pipeline
from jaxlite.experimental.pallas import specs as _specs
from jaxlite.experimental.pallas import tpu_functions as _functions
from jaxlite.experimental.pallas import tpu_keys as _keys
from jaxlite.experimental.pallas.helpers import reciprocal as reciprocal
from jaxlite.experimental.pallas.primitives import load as _load
from jaxlite.experimental.pallas.primitives import store as store
from jaxlite.experimental.pallas.specs import InterpretParams as InterpretParams
from jaxlite.experimental.pallas.specs import TpuMemorySpace as MemorySpace
from jaxlite.experimental.pallas.specs import forced_interpret as _forced
from lowering.module import LoweringError as _LoweringError

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


class CoreType(enum.Enum):
    """Kinds of cores of a chip."""

    TC = "tc"
    SC_SCALAR_SUBCORE = "sc_scalar_subcore"
    SC_VECTOR_SUBCORE = "sc_vector_subcore"


class Tiling(enum.Enum):
    """Memory layouts of arrays, for `emit_pipeline`."""

    COMPACT = 1
    SPARSE_CORE = 2


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
    """Hints for Mosaic. `dimension_semantics` has for each axis of the grid how its steps may run."""

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
    opt_level: Any = None

    def __post_init__(self) -> None:
        for name in ("dimension_semantics", "allow_input_fusion"):
            value = getattr(self, name)
            object.__setattr__(self, name, None if value is None else tuple(value))
        object.__setattr__(self, "flags", _specs.frozen(self.flags))


def load(ref: Any, *, mask: Any = None) -> Any:
    """The value of a Ref, or of a part of one, where a mask holds."""
    return _load(ref, mask=mask)


def touch(ref: Any) -> None:
    """Say that a Ref is read and written here. Nothing needs to be done for that."""


def trace_value(label: str, value: Any) -> None:
    """Note a scalar in a profile; kernels here leave none."""


def with_memory_space_constraint(x: Any, memory_space: Any) -> Any:
    """The same array; the memory of a kernel's operand is given by its BlockSpec."""
    return x


# --- interpret mode ----------------------------------------------------------------------------------


@contextlib.contextmanager
def force_tpu_interpret_mode(params: InterpretParams | None = None) -> Iterator[None]:
    """A context in which every `pallas_call` is interpreted. What is compiled already stays as it is."""
    saved = _forced.params
    _forced.params = params or InterpretParams()
    try:
        yield
    finally:
        _forced.params = saved


def set_tpu_interpret_mode(params: InterpretParams | None = None) -> None:
    """Interpret every `pallas_call` from now on, in this thread."""
    _forced.params = params or InterpretParams()


def reset_tpu_interpret_mode_state() -> None:
    """Forget what failed kernels left behind. Interpreted kernels are programs of their own here, and leave nothing."""


# --- functions from elsewhere ------------------------------------------------------------------------

LoweringException = _LoweringError
SemaphoreType, dma_semaphore = _dma.SemaphoreType, _dma.dma_semaphore
async_copy, async_remote_copy, sync_copy = _dma.async_copy, _dma.async_remote_copy, _dma.sync_copy
make_async_copy, make_async_remote_copy = _dma.make_async_copy, _dma.make_async_remote_copy
get_barrier_semaphore = _dma.get_barrier_semaphore
ChipVersion, TpuInfo = _chips.ChipVersion, _chips.TpuInfo
get_tpu_info, get_tpu_info_for_chip, is_tpu_device = _chips.get_tpu_info, _chips.get_tpu_info_for_chip, _chips.is_tpu_device
TensorCoreMesh, create_tensorcore_mesh, core_barrier = _cores.TensorCoreMesh, _cores.create_tensorcore_mesh, _cores.core_barrier
run_on_first_core = _cores.run_on_first_core
BufferedRef, BufferType, emit_pipeline = _pipeline.BufferedRef, _pipeline.BufferType, _pipeline.emit_pipeline
emit_pipeline_with_allocations = _pipeline.emit_pipeline_with_allocations
sample_block, to_pallas_key = _keys.sample_block, _keys.to_pallas_key
bitcast, einshape, roll = _functions.bitcast, _functions.einshape, _functions.roll
pack_elementwise, unpack_elementwise = _functions.pack_elementwise, _functions.unpack_elementwise
prng_random_bits, prng_seed = _functions.prng_random_bits, _functions.prng_seed
stateful_bernoulli, stateful_bits = _functions.stateful_bernoulli, _functions.stateful_bits
stateful_normal, stateful_uniform = _functions.stateful_normal, _functions.stateful_uniform
stochastic_round = _functions.stochastic_round

__all__ = sorted(name for name in globals() if not name.startswith("_") and name not in (
    "Any", "Iterator", "Mapping", "Sequence", "annotations", "contextlib", "dataclass", "enum"))
__dir__ = lambda: __all__
