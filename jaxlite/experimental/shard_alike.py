"""`shard_alike`: gives two values the same sharding; a view."""

from jaxlite.lax.sharding import shard_alike

__all__ = ["shard_alike"]
