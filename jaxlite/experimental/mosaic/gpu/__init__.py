"""Tools for kernels on NVIDIA GPUs."""

from jaxlite.core.lazy import Lazy as _Lazy

_lazy = _Lazy(__name__, ["profiler"])
__dir__ = _lazy.names
__getattr__ = _lazy.load
