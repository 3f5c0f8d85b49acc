"""Kinds of memory, as `jax.memory` names them.

>>> import jaxlite as jax
>>> jax.device_put(jax.numpy.ones(2), Space.Host).sharding.memory_kind
'pinned_host'
"""

from jaxlite.devices.sharding import MemorySpace as Space

__all__ = ["Space"]
