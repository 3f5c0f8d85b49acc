"""Memory layouts of arrays, under the names of `jax.experimental.layout`: a view."""

from jaxlite.core.lazy import Lazy as _Lazy
from jaxlite.devices.sharding import Format as Format
from jaxlite.devices.sharding import Layout as Layout

_lazy = _Lazy(__name__, root="jaxlite", **{"lax.sharding": "with_layout_constraint"})
__dir__ = _lazy.names
__getattr__ = _lazy.load
