"""Meshes and shardings: where the parts of arrays live, and how programs say so.

>>> import jaxlite as jax
>>> from jaxlite.sharding import Mesh, NamedSharding, PartitionSpec as P
>>> mesh = Mesh(jax.devices()[:1], ("data",))
>>> jax.device_put(jax.numpy.ones(2), NamedSharding(mesh, P("data"))).sharding.spec
P('data',)
"""

from typing import Any as _Any

from jaxlite.core.aval import ManualAxisType
from jaxlite.core.lazy import loader as _loader
from jaxlite.devices.mesh import (
    AbstractDevice,
    AbstractMesh,
    AxisType,
    Mesh,
    get_abstract_mesh,
    get_mesh,
    set_mesh,
    use_abstract_mesh,
    use_mesh,
)
from jaxlite.devices.sharding import (
    NamedSharding,
    PartitionSpec,
    Sharding,
    SingleDeviceSharding,
    make_single_device_sharding,
)


def reshard(xs: _Any, out_shardings: _Any) -> _Any:
    """Values as they are, with other shardings: `jaxlite.reshard`."""
    return _constraints().reshard(xs, out_shardings)


def auto_axes(f: _Any = None, /, *, axes: _Any = None, out_sharding: _Any = None) -> _Any:
    """A function inside of which XLA decides how values lie along mesh axes.

    Args:
      f: a function of pytrees of arrays. Without it, a decorator.
      axes: the names of the axes, or one name; by default all of the mesh.
      out_sharding: how the results lie, a `PartitionSpec` or a pytree prefix of them; may be given to each call instead.
    """
    return _axis_types().auto_axes(f, axes=axes, out_sharding=out_sharding)


def explicit_axes(f: _Any = None, /, *, axes: _Any = None, in_sharding: _Any = None) -> _Any:
    """A function inside of which types say how values lie along mesh axes.

    Args:
      f: a function of pytrees of arrays. Without it, a decorator.
      axes: the names of the axes, or one name; by default all of the mesh.
      in_sharding: how the arguments lie inside, a `PartitionSpec` or a pytree prefix of them; may be given to each call
        instead.
    """
    return _axis_types().explicit_axes(f, axes=axes, in_sharding=in_sharding)


_axis_types = _loader("jaxlite.lax.axis_types")
_constraints = _loader("jaxlite.lax.sharding")  # with what compiles: not for who only makes meshes

__all__ = [
    "auto_axes",
    "explicit_axes",
    "AbstractDevice", "AbstractMesh", "AxisType", "ManualAxisType", "Mesh", "NamedSharding", "PartitionSpec", "Sharding",
    "SingleDeviceSharding", "get_abstract_mesh", "get_mesh", "make_single_device_sharding", "reshard", "set_mesh",
    "use_abstract_mesh", "use_mesh",
]
