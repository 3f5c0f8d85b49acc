"""Pallas: kernels that read and write blocks of arrays, step by step over a grid.

`pallas_call(kernel, out_shape, grid=..., in_specs=..., out_specs=...)` is a function of arrays. With `interpret=True` it runs
anywhere; for an NVIDIA GPU a kernel is lowered to Triton, for a TPU to Mosaic.
"""

from __future__ import annotations

import sys as _sys
from typing import Any

from jaxlite.core.lazy import Lazy as _Lazy
from jaxlite.experimental.pallas import interpret as _interpret
from jaxlite.experimental.pallas.call import pallas_call as pallas_call
from jaxlite.experimental.pallas.call import pallas_call_p as pallas_call_p
from jaxlite.experimental.pallas.cores import core_map as core_map
from jaxlite.experimental.pallas.cores import kernel as kernel
from jaxlite.experimental.pallas.cores import pallas_export_experimental as pallas_export_experimental
from jaxlite.experimental.pallas.dma import DeviceIdType as DeviceIdType
from jaxlite.experimental.pallas.dma import semaphore as semaphore
from jaxlite.experimental.pallas.dma import semaphore_read as semaphore_read
from jaxlite.experimental.pallas.dma import semaphore_signal as semaphore_signal
from jaxlite.experimental.pallas.dma import semaphore_wait as semaphore_wait
from jaxlite.experimental.pallas.helpers import align_to as align_to
from jaxlite.experimental.pallas.helpers import cdiv as cdiv
from jaxlite.experimental.pallas.helpers import debug_check as debug_check
from jaxlite.experimental.pallas.helpers import debug_checks_enabled as debug_checks_enabled
from jaxlite.experimental.pallas.helpers import debug_print as debug_print
from jaxlite.experimental.pallas.helpers import delay as delay
from jaxlite.experimental.pallas.helpers import empty_like as empty_like
from jaxlite.experimental.pallas.helpers import empty_ref_like as empty_ref_like
from jaxlite.experimental.pallas.helpers import enable_debug_checks as enable_debug_checks
from jaxlite.experimental.pallas.helpers import enable_poison_buffers as enable_poison_buffers
from jaxlite.experimental.pallas.helpers import estimate_cost as estimate_cost
from jaxlite.experimental.pallas.helpers import loop as loop
from jaxlite.experimental.pallas.helpers import lower_as_mlir as lower_as_mlir
from jaxlite.experimental.pallas.helpers import multiple_of as multiple_of
from jaxlite.experimental.pallas.helpers import next_power_of_2 as next_power_of_2
from jaxlite.experimental.pallas.helpers import reciprocal as reciprocal
from jaxlite.experimental.pallas.helpers import run_scoped as run_scoped
from jaxlite.experimental.pallas.helpers import run_state as run_state
from jaxlite.experimental.pallas.helpers import select_ref as select_ref
from jaxlite.experimental.pallas.helpers import strides_from_shape as strides_from_shape
from jaxlite.experimental.pallas.helpers import when as when
from jaxlite.experimental.pallas.helpers import with_scoped as with_scoped
from jaxlite.experimental.pallas.primitives import num_programs as num_programs
from jaxlite.experimental.pallas.primitives import program_id as program_id
from jaxlite.experimental.pallas.specs import BlockDim as BlockDim
from jaxlite.experimental.pallas.specs import Blocked as Blocked
from jaxlite.experimental.pallas.specs import BlockSpec as BlockSpec
from jaxlite.experimental.pallas.specs import BoundedSlice as BoundedSlice
from jaxlite.experimental.pallas.specs import Buffered as Buffered
from jaxlite.experimental.pallas.specs import CompilerParams as CompilerParams
from jaxlite.experimental.pallas.specs import CostEstimate as CostEstimate
from jaxlite.experimental.pallas.specs import Element as Element
from jaxlite.experimental.pallas.specs import GridSpec as GridSpec
from jaxlite.experimental.pallas.specs import Indirect as Indirect
from jaxlite.experimental.pallas.specs import MemoryRef as MemoryRef
from jaxlite.experimental.pallas.specs import MemorySpace as MemorySpace
from jaxlite.experimental.pallas.specs import RevisitMode as RevisitMode
from jaxlite.experimental.pallas.specs import Squeezed as Squeezed
from jaxlite.experimental.pallas.specs import no_block_spec as no_block_spec
from jaxlite.experimental.pallas.specs import squeezed as squeezed
from jaxlite.numpy.creation import empty as empty
from jaxlite.numpy.manipulation import broadcast_to as broadcast_to
from jaxlite.state.indexing import Slice as Slice
from jaxlite.state.indexing import ds as ds
from jaxlite.state.indexing import dslice as dslice

ANY, HOST = MemorySpace.ANY, MemorySpace.HOST
_lazy = _Lazy(__name__, ["triton", "tpu"], triton="dot")


__getattr__ = _lazy.load


__all__ = sorted(name for name in vars(_sys.modules[__name__]) if not name.startswith("_") and name not in (
    "Any", "annotations", "call", "cores", "discharge", "dma", "helpers", "interpret", "primitives", "specs"))
__dir__ = lambda: sorted([*__all__, "dot", "triton", "tpu"])
