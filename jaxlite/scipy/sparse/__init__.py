"""jaxlite.scipy.sparse: `linalg`, solvers of linear systems given by their products."""


from jaxlite.core.lazy import Lazy as _Lazy

_lazy = _Lazy(__name__, ["linalg"])


__getattr__ = _lazy.load


def __dir__() -> list[str]:
    return _lazy.names()
