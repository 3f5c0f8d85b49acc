"""Looking at values inside traced functions, `debug.print`, `debug.callback`, and at how arrays are spread over devices."""

from typing import Any as _Any

from jaxlite.core.lazy import loader as _loader
from jaxlite.core.missing import missing as _missing
from jaxlite.lax.callbacks import debug_callback as callback
from jaxlite.lax.callbacks import debug_print as print

_homes = {
    "inspect_array_sharding": _loader("jaxlite.lax.sharding"),
    "visualize_array_sharding": _loader("jaxlite.devices.pictures"),
    "visualize_sharding": _loader("jaxlite.devices.pictures"),
}
__all__ = ["callback", "print", *_homes]


def __getattr__(name: str) -> _Any:
    if name not in _homes:
        raise _missing("jaxlite.debug", name)
    return getattr(_homes[name](), name)


def __dir__() -> list[str]:
    return sorted(__all__)
