"""How arrays lie in memory, as `jax.experimental.layout` names it: a view; arrays are kept row-major."""

from jaxlite.devices.sharding import Format, Layout

__all__ = ["Format", "Layout"]
