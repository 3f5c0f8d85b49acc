"""JAX's names for those who extend it: views without logic, on `jaxlite.traces`, `jaxlite.extend` and `lowering`."""


from jaxlite.core.lazy import Lazy as _Lazy

_lazy = _Lazy(__name__, modules=("ad", "batching", "mlir", "partial_eval", "pxla", "xla"))


__getattr__ = _lazy.load


def __dir__() -> list[str]:
    return _lazy.names()
