"""Derivatives checked against finite differences."""

from jaxlite.transforms.gradient_checks import (
    check_grads,
    check_jvp,
    check_vjp,
)

__all__ = [
    "check_grads",
    "check_jvp",
    "check_vjp",
]
