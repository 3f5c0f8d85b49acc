"""Differences from JAX that are meant: pattern of the program (of the name, for a docstring), kinds, reason."""

KNOWN: list[tuple[str, str, str]] = [
]
