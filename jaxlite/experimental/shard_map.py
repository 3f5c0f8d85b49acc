"""`shard_map` under its earlier name and with its earlier arguments; new code uses `jaxlite.shard_map`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxlite.transforms.shard_map import shard_map as _shard_map

__all__ = ["shard_map"]
__dir__ = lambda: __all__


def shard_map(f: Callable, mesh: Any, in_specs: Any, out_specs: Any, check_rep: bool = True,
              auto: frozenset[Any] = frozenset()) -> Callable:
    """Map a function over the parts that the devices of a mesh have of its arguments: see `jaxlite.shard_map`.

    Args:
      check_rep: its `check_vma`.
      auto: the axes of the mesh that are not among its `axis_names`.

    >>> import jaxlite as jax
    >>> mesh = jax.make_mesh((1,), ("i",))
    >>> shard_map(lambda x: jax.lax.psum(x, "i"), mesh, jax.P("i"), jax.P())(jax.numpy.ones(2))
    Array([1., 1.], dtype=float32)
    """
    return _shard_map(f, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=check_rep,
                      axis_names=frozenset(mesh.axis_names) - frozenset(auto))
