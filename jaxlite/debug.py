"""Looking at values inside traced functions: `debug.print`, `debug.log`, `debug.callback`, `debug.breakpoint`; at how arrays
are spread over devices; and `debug.expect_recompilations`, for functions that are compiled often on purpose.
"""

import logging as _logging
from typing import Any as _Any

from jaxlite.compilation.recompilation import expect_recompilations
from jaxlite.core.effects import DebugEffect, OrderedDebugEffect
from jaxlite.core.lazy import loader as _loader
from jaxlite.core.missing import missing as _missing
from jaxlite.lax.callbacks import debug_callback as callback
from jaxlite.lax.callbacks import debug_print as print

_homes = {
    "breakpoint": _loader("jaxlite.transforms.debugger"),
    "inspect_array_sharding": _loader("jaxlite.lax.sharding"),
    "visualize_array_sharding": _loader("jaxlite.devices.pictures"),
    "visualize_sharding": _loader("jaxlite.devices.pictures"),
}
__all__ = ["DebugEffect", "OrderedDebugEffect", "callback", "expect_recompilations", "log", "print", *_homes]


def log(fmt: str, *args: _Any, ordered: bool = False, partitioned: bool = False, **kwargs: _Any) -> None:
    """Log values inside a traced function: as `debug.print`, but to Python's logger "jaxlite.debug", with the level INFO."""
    callback(lambda *args, **kwargs: _logging.getLogger("jaxlite.debug").info(fmt.format(*args, **kwargs)), *args,
             ordered=ordered, partitioned=partitioned, **kwargs)


def __getattr__(name: str) -> _Any:
    if name not in _homes:
        raise _missing("jaxlite.debug", name)
    return getattr(_homes[name](), name)


def __dir__() -> list[str]:
    return sorted(__all__)
