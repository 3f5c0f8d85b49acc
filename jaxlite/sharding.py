"""Meshes and shardings: where the parts of arrays live, and how programs say so.

>>> import jaxlite as jax
>>> from jaxlite.sharding import Mesh, NamedSharding, PartitionSpec as P
>>> mesh = Mesh(jax.devices()[:1], ("data",))
>>> jax.device_put(jax.numpy.ones(2), NamedSharding(mesh, P("data"))).sharding.spec
P('data',)
"""


from jaxlite.core.aval import ManualAxisType
from jaxlite.core.aval import UnreducedKind as _UnreducedKind
from jaxlite.core.lazy import Lazy as _Lazy
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
from lowering import xla as _xla

# With what compiles programs: it loads when one of these is used, not for meshes and shardings alone.
_lazy = _Lazy(__name__, root="jaxlite", **{"lax.sharding": "reshard", "lax.axis_types": "auto_axes explicit_axes",
                                                  "lax.no_collectives": "no_collectives"})

__all__ = [  # noqa: F822  some load on first use
    "AbstractDevice", "AbstractMesh", "AxisType", "ManualAxisType", "Mesh", "NamedSharding", "PartitionSpec", "Sharding",
    "SingleDeviceSharding", "auto_axes", "explicit_axes", "get_abstract_mesh", "get_mesh", "make_single_device_sharding",
    "no_collectives", "reshard", "set_mesh", "use_abstract_mesh", "use_mesh",
]

if _xla.VERSION >= (0, 12):  # as JAX of the same jaxlib; Shardy of an earlier one knows sums alone
    UnreducedKind = _UnreducedKind
    __all__ += ["UnreducedKind"]


__getattr__ = _lazy.load


def __dir__() -> list[str]:
    return _lazy.names()
