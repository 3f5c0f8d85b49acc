"""MLIR's dialects with their operation classes; each is a module of jaxlib that loads on first use."""

from typing import Any as _Any

from jaxlite.core.missing import missing as _missing
from lowering import xla as _xla

_NAMES = {"hlo": "stablehlo"} | {name: name for name in (
    "arith", "builtin", "chlo", "func", "gpu", "llvm", "math", "memref", "mhlo", "mpmd", "nvgpu", "nvvm", "scf", "sdy",
    "sparse_tensor", "stablehlo", "vector")}


def __getattr__(name: str) -> _Any:
    if name not in _NAMES:
        raise _missing(__name__, name)
    return _xla.mlir_module(f"dialects.{_NAMES[name]}")


def __dir__() -> list[str]:
    return sorted(_NAMES)
