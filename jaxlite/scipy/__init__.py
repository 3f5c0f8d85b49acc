"""jaxlite.scipy: SciPy's functions on arrays and tracers, under SciPy's names. Parts are loaded on first use.

>>> import jaxlite
>>> print(jaxlite.scipy.linalg.toeplitz(jaxlite.numpy.arange(3)))
[[0 1 2]
 [1 0 1]
 [2 1 0]]
"""


from jaxlite.core.lazy import Lazy as _Lazy

_lazy = _Lazy(
    __name__,
    ["cluster", "fft", "integrate", "interpolate", "linalg", "ndimage", "optimize", "signal", "sparse", "spatial", "special",
     "stats"],
)


__getattr__ = _lazy.load


def __dir__() -> list[str]:
    return _lazy.names()
