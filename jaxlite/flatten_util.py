"""Pytrees of arrays as one flat vector, and back."""

from jaxlite.transforms.ravel import (
    ravel_pytree,
)

__all__ = [
    "ravel_pytree",
]
