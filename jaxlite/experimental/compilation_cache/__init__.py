"""The persistent compile cache, as `jax.experimental.compilation_cache` names it."""
