"""Versions by which libraries tell what the installed jaxlib can do, under JAX's names."""

from lowering import xla

jaxlib_extension_version: int = xla.extension_version()
