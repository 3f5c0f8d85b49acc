"""Meshes and shardings: where the parts of arrays live, and how programs say so.

>>> import jaxlite as jax
>>> from jaxlite.sharding import Mesh, NamedSharding, PartitionSpec as P
>>> mesh = Mesh(jax.devices()[:1], ("data",))
>>> jax.device_put(jax.numpy.ones(2), NamedSharding(mesh, P("data"))).sharding.spec
P('data',)
"""

from typing import Any as _Any

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


_constraints = _loader("jaxlite.lax.sharding")  # with what compiles: not for who only makes meshes

__all__ = [
    "AbstractDevice", "AbstractMesh", "AxisType", "Mesh", "NamedSharding", "PartitionSpec", "Sharding", "SingleDeviceSharding",
    "get_abstract_mesh", "get_mesh", "make_single_device_sharding", "reshard", "set_mesh", "use_abstract_mesh", "use_mesh",
]
