"""What libraries that write transformations use, beyond what programs use."""


from jaxlite.core.lazy import Lazy as _Lazy

_lazy = _Lazy(__name__, modules=("backend", "core", "linear_util", "random", "sharding", "source_info_util"))


__getattr__ = _lazy.load


def __dir__() -> list[str]:
    return _lazy.names()
