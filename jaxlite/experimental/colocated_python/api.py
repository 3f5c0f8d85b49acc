"""The CPU devices of other devices, and decorators for colocated functions and classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from jaxlite.devices.api import devices
from jaxlite.experimental.colocated_python.func import Specialization, make_callable
from jaxlite.experimental.colocated_python.obj import wrap_class
from jaxlite.sharding import Mesh

__all__ = ["colocated_cpu_devices", "colocated_python", "colocated_python_class"]
__dir__ = lambda: __all__


def colocated_cpu_devices(devices_or_mesh: Any) -> Any:
    """The CPU devices on the host of some devices, in their order; those that are CPU devices are their own.

    Args:
      devices_or_mesh: a sequence of devices, or a mesh.

    Returns: a tuple of devices, or a mesh of the same shape.

    Raises: ValueError if there are fewer CPU devices than devices that need one.

    >>> import jaxlite
    >>> colocated_cpu_devices(jaxlite.devices("cpu")[:1]) == tuple(jaxlite.devices("cpu")[:1])
    True
    """
    if isinstance(devices_or_mesh, Mesh):
        mesh = devices_or_mesh
        found = np.array(colocated_cpu_devices(mesh.devices.flat), dtype=object)
        return Mesh(found.reshape(mesh.devices.shape), mesh.axis_names, axis_types=mesh.axis_types)
    asked = tuple(devices_or_mesh)
    if all(device.platform == "cpu" for device in asked):
        return asked
    hosts = devices("cpu")
    position = {device: place for place, device in enumerate(devices())}
    if max(position[device] for device in asked if device.platform != "cpu") >= len(hosts):
        raise ValueError(f"there are {len(hosts)} CPU devices, fewer than devices that each need one of its own; set "
                         "the option num_cpu_devices at the start of the program")
    return tuple(device if device.platform == "cpu" else hosts[position[device]] for device in asked)


def colocated_python(fun: Callable[..., Any]) -> Callable[..., Any]:
    """A function that runs as Python where its arguments are: no tracing, no compilation.

    Args:
      fun: takes and returns pytrees of arrays, which are on CPU devices.

    Returns: a function of the same arguments. `specialize(in_specs, out_specs_fn, devices)` gives another one, which runs
    on those devices, and whose arguments and results are checked for these shapes and dtypes.

    >>> import jaxlite.numpy as jnp
    >>> @colocated_python
    ... def double(x):
    ...     return x * 2
    >>> double(jnp.arange(3))
    Array([0, 2, 4], dtype=int32)
    """
    return make_callable(fun, Specialization())


def colocated_python_class(cls: type) -> type:
    """A class whose objects live beside the devices of the arrays that their methods get.

    An object is made when its first method is called. The methods are like functions of `colocated_python`.
    """
    return wrap_class(cls)
