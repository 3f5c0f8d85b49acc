"""JAX's place for what it passes on of jaxlib: nothing any more, but programs still import the package."""
