"""jaxlite.scipy: SciPy's functions on arrays and tracers, under SciPy's names. Parts are loaded on first use.

>>> import jaxlite
>>> print(jaxlite.scipy.linalg.toeplitz(jaxlite.numpy.arange(3)))
[[0 1 2]
 [1 0 1]
 [2 1 0]]
"""

from typing import Any as _Any

from jaxlite.core.lazy import Lazy as _Lazy

_lazy = _Lazy(
    __name__,
    ["cluster", "fft", "integrate", "interpolate", "linalg", "ndimage", "optimize", "signal", "sparse", "spatial", "special",
     "stats"],
)


def __getattr__(name: str) -> _Any:
    return _lazy.load(name)


def __dir__() -> list[str]:
    return _lazy.names()
