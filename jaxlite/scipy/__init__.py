"""jaxlite.scipy: SciPy's functions on arrays and tracers, under SciPy's names. Parts are loaded on first use.

>>> import jaxlite
>>> print(jaxlite.scipy.linalg.toeplitz(jaxlite.numpy.arange(3)))
[[0 1 2]
 [1 0 1]
 [2 1 0]]
"""

from importlib import import_module as _import_module
from typing import Any as _Any

_MODULES = ("linalg", "optimize", "sparse", "special", "stats")


def __getattr__(name: str) -> _Any:
    if name in _MODULES:
        return _import_module(f"jaxlite.scipy.{name}")
    raise AttributeError(f"module 'jaxlite.scipy' has no attribute {name!r}")
