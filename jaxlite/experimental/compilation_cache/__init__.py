"""The persistent compile cache, as `jax.experimental.compilation_cache` names it."""

from jaxlite.core.lazy import Lazy as _Lazy

_lazy = _Lazy(__name__, ["compilation_cache"])
__getattr__, __dir__ = _lazy.load, _lazy.names
