"""What is left of `jax.interpreters.pxla`: a view."""

from lowering.executable import compile_options as create_compile_options

__all__ = ["create_compile_options"]
