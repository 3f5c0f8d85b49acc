"""Values that are laid out over a mesh in the same way, as `jax.experimental.shard_alike` names it: a view."""

from jaxlite.lax.sharding import shard_alike

__all__ = ["shard_alike"]
