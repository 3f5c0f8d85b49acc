"""Devices that are not here, as their plugin describes them: programs compile for them and are looked at, not run.

A TPU's topology is named as its cloud names it, 'v5e:2x2'. A GPU is named by its model, 'h100', 'a100:8' for eight of them (the
table: `lowering.targets`); the CUDA plugin's wheel is all that this needs (`pip install jaxlite[cuda13]`). AMD's plugin needs
ROCm's libraries beside it.

    topology = get_topology_desc("h100")
    where = jax.sharding.SingleDeviceSharding(topology.devices[0])
    compiled = jax.jit(step).lower(jax.ShapeDtypeStruct((1024, 1024), "float32", sharding=where)).compile()
    compiled.memory_analysis(), compiled.cost_analysis(), compiled.as_text()
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lowering import platforms, targets
from lowering.xla import Device

__all__ = ["Device", "TopologyDescription", "get_attached_topology", "get_topology_desc", "make_mesh"]
__dir__ = lambda: __all__


class TopologyDescription:
    """The devices of a machine. Attribute: `devices`, a list."""

    def __init__(self, devices: list[Any]):
        self.devices = devices

    def __repr__(self) -> str:
        return f"TopologyDescription({len(self.devices)} x {self.devices[0].device_kind})"


def get_attached_topology(platform: str | None = None) -> TopologyDescription:
    """The devices of this machine, of a platform or of the default one."""
    return TopologyDescription(platforms.devices(platform))


def get_topology_desc(topology_name: str = "", platform: str | None = None, **kwargs: Any) -> TopologyDescription:
    """The devices of a named topology.

    Args:
      topology_name: 'v5e:2x2', 'h100', 'h100:8'. Empty: what is attached.
      platform: 'tpu', 'cuda' or 'rocm'; without it the name decides.
      kwargs: further options for the plugin.
    Returns: a `TopologyDescription`.
    Raises: RuntimeError if the platform's plugin is not installed; ValueError for a GPU that is not in the table.
    """
    if not topology_name:
        return get_attached_topology(platform)
    if platform is None:
        platform = targets.platform_of(topology_name)
    plugin = platforms.plugin_of(platform)
    if plugin is None:
        raise RuntimeError(f"the topology {topology_name!r} needs the plugin of the platform {platform!r}: "
                           f"{platforms.wheel_for(platform)}")
    if plugin.make_topology is not None:
        return TopologyDescription(plugin.make_topology(topology_name, **kwargs)._make_compile_only_devices())
    return TopologyDescription(targets.devices(topology_name, platforms.canonical_name(platform), plugin, kwargs))


def make_mesh(topo: TopologyDescription, mesh_shape: Sequence[int], axis_names: Sequence[str], *,
              contiguous_submeshes: bool = False) -> Any:
    """A mesh of a topology's devices, in the order in which they are listed.

    Args: `mesh_shape` with the size of each axis, `axis_names` with their names; `contiguous_submeshes` is accepted.
    Raises: ValueError if the sizes' product is not the number of devices.
    """
    from jaxlite.devices.mesh import Mesh

    if int(np.prod(mesh_shape)) != len(topo.devices):
        raise ValueError(f"a mesh of shape {tuple(mesh_shape)} needs {int(np.prod(mesh_shape))} devices, the topology has "
                         f"{len(topo.devices)}")
    return Mesh(np.array(topo.devices, object).reshape(tuple(mesh_shape)), tuple(axis_names))
