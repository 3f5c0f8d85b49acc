"""Two small libraries in JAX's style: neural networks as pairs of functions (`stax`), and optimizers as triples."""

from jaxlite.core.lazy import Lazy as _Lazy

_lazy = _Lazy(__name__, modules=["optimizers", "stax"])
__getattr__ = _lazy.load
__dir__ = _lazy.names
