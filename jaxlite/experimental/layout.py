"""How arrays are laid out in memory, as `jax.experimental.layout` names it: a view; arrays are kept row-major."""

from jaxlite.devices.sharding import Format, Layout
from jaxlite.lax.sharding import with_layout_constraint

__all__ = ["Format", "Layout", "with_layout_constraint"]
