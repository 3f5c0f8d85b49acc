"""MLIR's Python bindings from jaxlib, and modules as portable artifacts; `jax.extend.mlir`."""

from __future__ import annotations

from typing import Any

from jaxlite.core.lazy import Lazy as _Lazy
from lowering import xla as _xla

__all__ = ["deserialize_portable_artifact", "hlo_to_stablehlo", "lower_with_sharding_in_types", "refine_polymorphic_shapes",
           "serialize_portable_artifact"]

deserialize_portable_artifact = _xla.mlir_functions.deserialize_portable_artifact
hlo_to_stablehlo = _xla.mlir_functions.hlo_to_stablehlo
refine_polymorphic_shapes = _xla.mlir_functions.refine_polymorphic_shapes
serialize_portable_artifact = _xla.mlir_functions.serialize_portable_artifact

_lazy = _Lazy(__name__, modules=["dialects", "ir", "passmanager"])


def lower_with_sharding_in_types(ctx: Any, op: Any, aval: Any) -> Any:
    """The value of an operation, laid out as its type says. Types without a layout say nothing: then it is the value itself."""
    value, meshes = getattr(op, "result", op), ctx._inner.builder.meshes
    if meshes is None or getattr(aval, "layout", None) is None:
        return value
    return meshes.pinned(ctx._inner, value, aval.layout, aval.ndim)


__getattr__ = _lazy.load


def __dir__() -> list[str]:
    return sorted([*__all__, "dialects", "ir", "passmanager"])
