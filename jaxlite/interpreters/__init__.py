"""JAX's names for those who extend it: views without logic, on `jaxlite.traces`, `jaxlite.extend` and `lowering`."""

from typing import Any as _Any

from jaxlite.core.lazy import Lazy as _Lazy

_lazy = _Lazy(__name__, modules=("ad", "batching", "mlir", "partial_eval", "pxla", "xla"))


def __getattr__(name: str) -> _Any:
    return _lazy.load(name)


def __dir__() -> list[str]:
    return _lazy.names()
