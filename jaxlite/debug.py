"""Looking at values inside traced functions: `debug.print`, `debug.callback`."""

from jaxlite.lax.callbacks import debug_callback as callback
from jaxlite.lax.callbacks import debug_print as print

__all__ = ["callback", "print"]
