"""What libraries that write transformations use, beyond what programs use."""

from typing import Any as _Any

from jaxlite.core.lazy import Lazy as _Lazy

_lazy = _Lazy(__name__, modules=("backend", "core", "linear_util", "random", "sharding", "source_info_util"))


def __getattr__(name: str) -> _Any:
    return _lazy.load(name)


def __dir__() -> list[str]:
    return _lazy.names()
