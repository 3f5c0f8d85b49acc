"""Functions with batching rules of their own."""

from jaxlite.transforms.custom_batching import (
    custom_vmap,
    sequential_vmap,
)

__all__ = [
    "custom_vmap",
    "sequential_vmap",
]
