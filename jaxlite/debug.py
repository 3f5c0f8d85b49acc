"""Looking at values inside traced functions: `debug.print`, `debug.log`, `debug.callback`, `debug.breakpoint`; at how arrays
are spread over devices; and `debug.expect_recompilations`, for functions that are compiled often on purpose.
"""


from jaxlite.compilation.recompilation import expect_recompilations
from jaxlite.core.effects import DebugEffect, OrderedDebugEffect
from jaxlite.core.lazy import Lazy as _Lazy
from jaxlite.lax.callbacks import debug_callback as callback
from jaxlite.lax.callbacks import debug_log as log
from jaxlite.lax.callbacks import debug_print as print

_lazy = _Lazy(__name__, root="jaxlite", **{
    "transforms.debugger": "breakpoint",
    "lax.sharding": "inspect_array_sharding",
    "devices.pictures": "visualize_array_sharding visualize_sharding",
})
__all__ = [  # noqa: F822  some load on first use
    "DebugEffect", "OrderedDebugEffect", "breakpoint", "callback", "expect_recompilations", "inspect_array_sharding", "log",
    "print", "visualize_array_sharding", "visualize_sharding",
]


__getattr__ = _lazy.load


def __dir__() -> list[str]:
    return _lazy.names()
