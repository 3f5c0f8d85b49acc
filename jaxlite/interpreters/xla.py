"""What is left of `jax.interpreters.xla`: a view."""

from jaxlite.core.values import AVAL_OF as canonicalize_dtype_handlers
from jaxlite.traces.eager import apply_primitive
from lowering.xla import Client as Backend

__all__ = ["Backend", "apply_primitive", "canonicalize_dtype_handlers"]
