"""Meshes and shardings: where the parts of arrays live, and how programs say so.

>>> import jaxlite as jax
>>> from jaxlite.sharding import Mesh, NamedSharding, PartitionSpec as P
>>> mesh = Mesh(jax.devices()[:1], ("data",))
>>> jax.device_put([1.0, 2.0], NamedSharding(mesh, P("data"))).sharding.spec
P('data',)
"""

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

__all__ = [
    "AbstractDevice", "AbstractMesh", "AxisType", "Mesh", "NamedSharding", "PartitionSpec", "Sharding", "SingleDeviceSharding",
    "get_abstract_mesh", "get_mesh", "make_single_device_sharding", "set_mesh", "use_abstract_mesh", "use_mesh",
]
