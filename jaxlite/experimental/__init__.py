"""JAX's experimental modules."""

from jaxlite.core.lazy import Lazy as _Lazy
from jaxlite.lax.callbacks import io_callback as io_callback

_lazy = _Lazy(__name__, ["compilation_cache"], hijax="cur_qdd")
__dir__ = _lazy.names
__getattr__ = _lazy.load
