"""JAX's names for those who extend it; the work is done in `jaxlite.traces`, `jaxlite.compilation` and `lowering`."""
