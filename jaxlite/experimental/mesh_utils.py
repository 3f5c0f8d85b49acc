"""Grids of devices for meshes: `create_device_mesh`, and one that knows of a faster and a slower network.

Devices stand in the order in which their platform lists them, those of a process side by side; the coordinates of TPU chips
are not looked at.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxlite.devices import api

__all__ = ["create_device_mesh", "create_hybrid_device_mesh"]
__dir__ = lambda: __all__


def create_device_mesh(mesh_shape: Sequence[int], devices: Sequence[Any] | None = None, *, contiguous_submeshes: bool = False,
                       allow_split_physical_axes: bool = False) -> np.ndarray:
    """Devices in a grid, for `Mesh`.

    Args:
      mesh_shape: of the grid; the last axes are those along which devices are nearest to each other.
      devices: by default all.
      contiguous_submeshes: whether to insist that the devices of each process are a block of the grid.
      allow_split_physical_axes: for platforms with coordinates; without effect.
    Returns: a NumPy array of devices.
    Raises: ValueError if there are more or fewer devices than places, or a process' devices are not a block.

    >>> from jaxlite.experimental import mesh_utils
    >>> mesh_utils.create_device_mesh((1, 1), mesh_utils.api.devices()[:1]).shape
    (1, 1)
    """
    found = list(api.devices() if devices is None else devices)
    shape = tuple(int(size) for size in mesh_shape)
    if math.prod(shape) != len(found):
        raise ValueError(f"Number of devices {len(found)} must equal the product of mesh_shape {shape}")
    grid = _grid(found, shape)
    if contiguous_submeshes:
        owners = np.array([device.process_index for device in found]).reshape(shape)
        for owner in set(owners.flat):
            where = np.nonzero(owners == owner)
            block = math.prod(int(axis.max() - axis.min()) + 1 for axis in where)
            if block != where[0].size:
                raise ValueError(f"the devices of process {owner} are not a block of a grid of the shape {shape}")
    return grid


def _grid(devices: Sequence[Any], shape: tuple[int, ...]) -> np.ndarray:
    grid = np.empty(len(devices), dtype=object)
    grid[:] = devices
    return grid.reshape(shape)


def create_hybrid_device_mesh(mesh_shape: Sequence[int], dcn_mesh_shape: Sequence[int], devices: Sequence[Any] | None = None, *,
                              process_is_granule: bool = False, should_sort_granules_by_key: bool = True,
                              allow_split_physical_axes: bool = False) -> np.ndarray:
    """Devices in a grid whose axes each have an outer part, over a slow network, and an inner one, over a fast network.

    Args:
      mesh_shape: the inner sizes: of the grid of one group of devices that are near each other.
      dcn_mesh_shape: the outer sizes: how the groups themselves are arranged.
      devices: by default all.
      process_is_granule: whether the devices of one process are a group; otherwise those of one slice (`slice_index`).
      should_sort_granules_by_key: whether groups stand in the order of their numbers rather than of their devices.
      allow_split_physical_axes: without effect.
    Returns: a NumPy array of devices; its shape is the product of both.
    Raises: ValueError if the groups, or the devices of one, are not as many as the shapes say.
    """
    found = list(api.devices() if devices is None else devices)
    attribute = "process_index" if process_is_granule else "slice_index"
    if not all(hasattr(device, attribute) for device in found):
        raise ValueError(f"{found[0]} has no slice_index: pass process_is_granule=True")
    groups: dict[int, list[Any]] = {}
    for device in found:
        groups.setdefault(getattr(device, attribute), []).append(device)
    if math.prod(dcn_mesh_shape) != len(groups):
        raise ValueError(f"Number of slices {len(groups)} must equal the product of dcn_mesh_shape {tuple(dcn_mesh_shape)}")
    keys = sorted(groups) if should_sort_granules_by_key else list(groups)
    inner = np.stack([create_device_mesh(mesh_shape, groups[key]) for key in keys])
    outer, sizes = tuple(dcn_mesh_shape), tuple(mesh_shape)
    if len(outer) != len(sizes):
        raise ValueError(f"mesh_shape {sizes} and dcn_mesh_shape {outer} must have the same number of axes")
    grid = inner.reshape(*outer, *sizes)
    order = [axis for pair in zip(range(len(outer)), range(len(outer), 2 * len(outer)), strict=True) for axis in pair]
    return grid.transpose(order).reshape([big * small for big, small in zip(outer, sizes, strict=True)])
