"""Memory layouts of arrays, under the names of `jax.experimental.layout`: a view."""

from jaxlite.devices.sharding import Format, Layout
from jaxlite.lax.sharding import with_layout_constraint

__all__ = ["Format", "Layout", "with_layout_constraint"]
