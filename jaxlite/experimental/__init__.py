"""JAX's experimental modules."""

from jaxlite.core.lazy import Lazy as _Lazy

_lazy = _Lazy(__name__, ["compilation_cache"], "jaxlite", **{
    "experimental.hijax": "cur_qdd", "lax.callbacks": "io_callback", "devices.extended": "EArray",
    "extend.derived_dtypes": "primal_tangent_dtype"})
__dir__ = _lazy.names
__getattr__ = _lazy.load
