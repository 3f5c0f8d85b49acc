"""Targets of gradients, for `vjp(...)[1].with_refs`."""

from jaxlite.transforms.gradient_targets import DidntWant, DontWant, GradRef, GradValue

__all__ = ["DidntWant", "DontWant", "GradRef", "GradValue"]
