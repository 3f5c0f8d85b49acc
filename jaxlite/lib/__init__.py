"""JAX's place for what it passes on of jaxlib: its version."""

from lowering.xla import VERSION_TEXT as __version__  # of jaxlib
