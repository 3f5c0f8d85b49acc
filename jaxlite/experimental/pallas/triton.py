"""Kernels for NVIDIA GPUs through Triton: reads and writes with masks, atomic updates, hints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from jaxlite.core.aval import ShapedArray
from jaxlite.core.dtypes import canonicalize_dtype
from jaxlite.experimental.pallas import primitives as _p
from jaxlite.experimental.pallas import specs as _specs
from jaxlite.experimental.pallas.gpus import GpuInfo as GpuInfo
from jaxlite.experimental.pallas.gpus import GpuVersion as GpuVersion
from jaxlite.experimental.pallas.gpus import get_gpu_info as get_gpu_info
from jaxlite.experimental.pallas.gpus import get_gpu_info_from_version as get_gpu_info_from_version
from jaxlite.experimental.pallas.gpus import is_gpu_device as is_gpu_device
from jaxlite.experimental.pallas.primitives import AtomicOpType as _Kind
from jaxlite.experimental.pallas.primitives import atomic_cas as atomic_cas
from jaxlite.experimental.pallas.primitives import load as load
from jaxlite.experimental.pallas.primitives import store as store
from jaxlite.lax.dot import dot as _dot

__all__ = ["CompilerParams", "GpuInfo", "GpuVersion", "approx_tanh", "atomic_add", "atomic_and", "atomic_cas", "atomic_max",
           "atomic_min", "atomic_or", "atomic_xchg", "atomic_xor", "debug_barrier", "dot", "elementwise_inline_asm",
           "get_gpu_info", "get_gpu_info_from_version", "is_gpu_device", "load", "max_contiguous", "store"]
__dir__ = lambda: __all__


@dataclass(frozen=True)
class CompilerParams(_specs.CompilerParams):
    """Hints for Triton: how many warps run a step of the grid, and how many stages loops are pipelined in."""

    num_warps: int | None = None
    num_stages: int | None = None


def _atomic(kind: _Kind, does: str) -> Callable[..., Any]:
    def update(x_ref_or_view: Any, idx: Any, val: Any, *, mask: Any = None) -> Any:
        return _p.atomic_rmw(kind, x_ref_or_view, idx, val, mask)

    update.__name__ = update.__qualname__ = f"atomic_{kind.value}"
    update.__doc__ = f"""{does}, at once for each element, whichever steps of the grid do it too.

    Args: `x_ref_or_view` a Ref or `ref.at[index]`; `idx` an index; `val` an array of the part's shape; `mask` booleans of that
    shape: where it is False nothing happens.
    Returns: the values before.
    """
    return update


atomic_xchg = _atomic(_Kind.XCHG, "Write values to a part of a Ref")
atomic_add = _atomic(_Kind.ADD, "Add values to a part of a Ref")
atomic_max = _atomic(_Kind.MAX, "Raise a part of a Ref to values")
atomic_min = _atomic(_Kind.MIN, "Lower a part of a Ref to values")
atomic_and = _atomic(_Kind.AND, "Combine a part of a Ref with values by bitwise and")
atomic_or = _atomic(_Kind.OR, "Combine a part of a Ref with values by bitwise or")
atomic_xor = _atomic(_Kind.XOR, "Combine a part of a Ref with values by bitwise exclusive or")


def dot(a: Any, b: Any, trans_a: bool = False, trans_b: bool = False, allow_tf32: bool | None = None,
        precision: Any = None) -> Any:
    """The product of two matrices, in float32 for narrower floats.

    Args: `trans_a` and `trans_b` transpose an operand first; `allow_tf32` or `precision`, not both, say how precise.
    """
    if a.ndim != 2 or b.ndim != 2:
        raise ValueError("`a` and `b` must be 2D arrays.")
    if allow_tf32 is not None and precision is not None:
        raise ValueError("Only one of allow_tf32 and precision can be specified")
    if allow_tf32 is not None:
        precision = "default" if allow_tf32 else "highest"
    wide = "float32" if a.dtype.kind in "fV" and a.dtype.itemsize <= 4 else a.dtype
    return _dot(a.T if trans_a else a, b.T if trans_b else b, precision=precision,
                preferred_element_type="int32" if a.dtype.name == "int8" else wide)


def approx_tanh(x: Any) -> Any:
    """The hyperbolic tangent by the GPU's instruction; elsewhere the exact one."""
    return _p.approx_tanh_p.bind(x)


def debug_barrier() -> None:
    """Wait until all threads of this step of the grid are here."""
    _p.barrier_p.bind()


def max_contiguous(x: Any, values: Sequence[int] | int) -> Any:
    """The same integers, with the guarantee that groups of so many are consecutive."""
    return _p.max_contiguous_p.bind(x, values=(values,) if isinstance(values, int) else tuple(values))


def elementwise_inline_asm(asm: str, *, args: Sequence[Any], constraints: str, pack: int,
                           result_shape_dtypes: Sequence[Any]) -> Any:
    """Assembly code for each element. On a GPU alone.

    Args: `asm` the code; `args` arrays; `constraints` of its registers, as LLVM has them; `pack` elements for one execution;
    `result_shape_dtypes` what it gives.
    """
    avals = tuple(ShapedArray(tuple(each.shape), canonicalize_dtype(each.dtype)) for each in result_shape_dtypes)
    return _p.inline_asm_p.bind(*args, asm=asm, constraints=constraints, pack=pack, result_avals=avals)
