"""MLIR's pass manager from jaxlib; `jax.extend.mlir.passmanager`."""

from __future__ import annotations

from typing import Any

from lowering import xla as _xla

_found = _xla.mlir_module("passmanager")
__all__ = [_name for _name in dir(_found) if not _name.startswith("_")]


def __getattr__(name: str) -> Any:
    return getattr(_found, name)


def __dir__() -> list[str]:
    return __all__
