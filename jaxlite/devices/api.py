"""Devices: which there are, and moving values between them and the host."""

from __future__ import annotations

import functools
from collections import Counter
from typing import Any

import numpy as np

from jaxlite.compilation import effects
from jaxlite.compilation.jit import jit
from jaxlite.core import array as arrays
from jaxlite.core import config, dtypes
from jaxlite.core.aval import MemorySpace, refuse_ref
from jaxlite.core.filtering import boundary
from jaxlite.core.tracing import Tracer, is_eager
from jaxlite.core.tree import broadcast_prefix, flatten_axes, tree_flatten, tree_leaves, tree_map
from jaxlite.core.values import ArrayImpl, aval_of
from jaxlite.devices import placement
from jaxlite.numpy.api import as_array
from lowering import platforms, xla

platforms.configure(platforms=lambda: config.platforms.value, num_cpu_devices=lambda: config.num_cpu_devices.value,
                    visible_devices=lambda kind: config.config.values.get(f"jax_{kind}_visible_devices"))



def _reshard(array: Any, place: Any) -> Any:
    return _identity(place)(array)


@functools.lru_cache(256)
def _identity(place: Any) -> Any:
    sharding = place.sharding if isinstance(place, placement.shardings().Format) else place

    def reshard(x: Any) -> Any:
        return placement.constraints().moved(x, sharding) if placement.shardings().is_explicit(sharding) else x

    return jit(reshard, out_shardings=place)


placement.reshard = _reshard


def _check_not_started(value: Any) -> None:
    if platforms.is_started("cpu") and value != config.num_cpu_devices.value:
        raise RuntimeError("jax_num_cpu_devices config should be updated before backends are initialized i.e. before any JAX "
                           "operation is executed. You should initialize this config immediately after `import jax`.")


config.num_cpu_devices.checks.append(_check_not_started)


@boundary
def devices(backend: str | None = None) -> list[Any]:
    """All devices of a platform ('cpu', 'gpu', 'tpu'), of all processes; by default of the platform in use."""
    return platforms.client(backend).devices()


def local_devices(process_index: int | None = None, backend: str | None = None, host_id: int | None = None) -> list[Any]:
    """The devices that this process owns, or another one. Raises: ValueError if there is no process of this number."""
    if process_index is None:
        process_index = host_id
    if process_index is None:
        return platforms.devices(backend)
    found = [device for device in platforms.all_devices(backend) if device.process_index == process_index]
    if not found:
        raise ValueError(f"Unknown process_index {process_index}")
    return found


def device_count(backend: str | None = None) -> int:
    """The number of devices of a platform."""
    return platforms.client(backend).device_count()


def local_device_count(backend: str | None = None) -> int:
    """The number of a platform's devices that this process owns."""
    return platforms.client(backend).local_device_count()


def default_backend() -> str:
    """The name of the platform in use: 'cpu', 'gpu' or 'tpu'."""
    return platforms.canonical_name(platforms.client().platform)


def process_index(backend: str | None = None) -> int:
    """The index of this process: 0 without `distributed.initialize`."""
    return platforms.client(backend).process_index()


def process_indices(backend: str | None = None) -> list[int]:
    """The indices of all processes."""
    return list(range(process_count(backend)))


def process_count(backend: str | None = None) -> int:
    """The number of processes of the program: 1 without `distributed.initialize`."""
    return max((device.process_index for device in devices(backend)), default=0) + 1


@boundary
def device_put(x: Any, device: Any = None, *, src: Any = None, donate: Any = False, may_alias: Any = None) -> Any:
    """Put a pytree of arrays and scalars on a device, or shard its arrays over several.

    Args:
      device: a device, a sharding, a `PartitionSpec` over the mesh of the context, a `Format` (with a memory
        layout), or a pytree prefix of those; None leaves arrays where they are and puts the rest on the default device.
        With a device, the results are committed to it.
      donate: whether the memory of the sources may be reused (they are deleted after the copy, except those that stand in
        the tree more than once); or a prefix of flags.
      may_alias: whether a result may share memory with its source; or a prefix of flags.
    Returns: the same tree, of Arrays.
    Raises: ValueError for an invalid device or sharding, and for a sharding that does not cut an array evenly.
    """
    leaves, tree = tree_flatten(x)
    if device is None or isinstance(device, (xla.Device, xla.Sharding)):
        targets = [device] * len(leaves)
    else:
        targets = [target if target is None or isinstance(target, placement.shardings().Format) else placement.as_target(target)
                   for target in flatten_axes("device_put device", tree, device)]
    donates, aliases = ([flag] * len(leaves) if flag is None or isinstance(flag, bool) else
                        broadcast_prefix(flag, x, is_leaf=lambda leaf: leaf is None) for flag in (donate, may_alias))
    if not is_eager() or any(isinstance(leaf, Tracer) for leaf in leaves):
        return tree.unflatten(_put_in_program(leaves, targets, src, donates, aliases))
    guards = xla.guards()
    guards.explicit_device_put = True
    times = Counter(map(id, leaves)) if any(donates) else {}  # what stands there twice is needed after the first copy
    try:
        return tree.unflatten([_put(leaf, target, bool(gone and times[id(leaf)] == 1), alias) for leaf, target, gone, alias in
                               zip(leaves, targets, donates, aliases, strict=True)])
    finally:
        guards.explicit_device_put = False


def _put(leaf: Any, target: Any, donate: bool, may_alias: bool | None) -> Any:
    if donate and may_alias:
        raise ValueError("may_alias and donate cannot be True at the same time.")
    if target is not None and isinstance(target, placement.shardings().Format):
        return _put_as(leaf, target, donate, may_alias)
    refuse_ref("device_put", aval_of(leaf))
    if type(leaf) is np.ndarray and leaf.dtype == dtypes.float0:  # which is on no device
        return leaf
    if target is not None and not isinstance(target, (xla.Device, xla.Sharding)):  # a kind of memory
        target = placement.in_memory(leaf, target)
    if isinstance(target, xla.Sharding) and not (
            type(target) is xla.SingleDeviceSharding and target == arrays.single_device_sharding(target._device)
            and (type(leaf) is not ArrayImpl or leaf._sharding.memory_kind == target.memory_kind)):
        return _spread(leaf, target, donate, may_alias)
    if type(leaf) is ArrayImpl:
        if leaf.is_deleted():
            raise arrays.deleted_error(leaf)
        if arrays.is_spread(leaf):
            if target is None:
                return leaf
            device = placement.as_device(target)
            result = arrays.put_array(leaf, device, True, copy=may_alias is False)
            return _release(leaf, result, donate and device not in leaf.sharding.device_set)  # it may share memory
        where = arrays.device_of(leaf) if target is None else placement.as_device(target)
        committed = leaf._committed or target is not None
        moves = target is not None and leaf._sharding.memory_kind != arrays.single_device_sharding(where).memory_kind
        if where == arrays.device_of(leaf) and committed == leaf._committed and may_alias is not False and not moves:
            return leaf
        if target is None and leaf.aval.memory_space is not MemorySpace.Device:  # a copy
            return placement.put(leaf, leaf.sharding, copy=True)
        result = arrays.put_array(leaf, where, committed, copy=may_alias is False)
        return _release(leaf, result, donate and where != arrays.device_of(leaf))
    if target is None:
        return arrays.put_array(leaf, placement.default_device(), False, copy=may_alias is not True)
    return arrays.put_array(leaf, placement.as_device(target), True, copy=may_alias is not True)


def _put_as(leaf: Any, target: Any, donate: bool, may_alias: bool | None) -> Any:
    """`_put` for a sharding and a layout."""
    if target.layout is placement.shardings().AutoLayout.AUTO:
        raise ValueError(f"sharding and layout in `Layout` instance should be concrete. Got layout: {target} for input "
                         f"{aval_of(leaf).str_short()}")
    placed = _put(leaf, target.sharding, donate, may_alias)
    if not hasattr(placed, "sharding"):  # float0 holds nothing
        return placed
    result = placement.layouts_module().relaid(placed, target.layout)
    return _release(leaf, result, donate and type(leaf) is ArrayImpl and result is not placed and not leaf.is_deleted())


def _put_in_program(leaves: list[Any], targets: list[Any], src: Any, donates: list[Any], aliases: list[Any]) -> list[Any]:
    """Values of a trace in places: an equation for all of them, and `reshard` for those over explicit mesh axes."""
    semantics = xla.ArrayCopySemantics
    outs, moving = list(map(as_array, leaves)), []
    for index, (leaf, target) in enumerate(zip(leaves, targets, strict=True)):
        if type(target) is xla.NamedSharding and placement.shardings().is_explicit(target):
            with config.no_collectives(frozenset()):  # a transfer, for which no block says anything
                outs[index] = placement.constraints().moved(outs[index], target)
        elif isinstance(leaf, Tracer) or target is not None and not isinstance(target, xla.Device):
            moving.append(index)
    if moving:
        how = [semantics.DONATE_INPUT if donates[index] else semantics.ALWAYS_COPY if aliases[index] is False else
               semantics.REUSE_INPUT for index in moving]
        found = placement.transfers().put_all([outs[index] for index in moving], [targets[index] for index in moving],
                                    [src] * len(moving), how)
        for index, out in zip(moving, found, strict=True):
            outs[index] = out
    return outs


def _spread(leaf: Any, sharding: Any, donate: bool, may_alias: bool | None) -> Any:
    """`_put` for a sharding."""
    result = placement.put(leaf, sharding, copy=may_alias is False)
    shares = result is leaf or (type(leaf) is ArrayImpl and leaf.sharding.device_set & sharding.device_set)
    return _release(leaf, result, donate and not shares and type(leaf) is ArrayImpl)


def _release(source: Any, result: Any, donate: bool) -> Any:
    if donate:
        result.block_until_ready()
        source.delete()
    return result


def device_get(x: Any) -> Any:
    """Copy a pytree of arrays to the host: the same tree, of NumPy arrays. Scalars, keys, traced values and other objects
    are unchanged.
    """

    def get(leaf: Any) -> Any:
        if isinstance(leaf, (np.generic, Tracer)) or not hasattr(leaf, "__array__") \
                or hasattr(leaf, "_base_array"):  # NumPy has no keys
            return leaf
        return np.asarray(leaf)

    guards = xla.guards()
    guards.explicit_device_get = True
    try:
        for leaf in tree_leaves(x):
            if type(leaf) is ArrayImpl and not leaf.is_deleted():
                leaf.copy_to_host_async()
        return tree_map(get, x)
    finally:
        guards.explicit_device_get = False


def block_until_ready(x: Any) -> Any:
    """Wait until every array of a pytree is computed; returns the tree. Raises the errors of the computation."""
    pending = [x] if type(x) is ArrayImpl else [leaf for leaf in tree_leaves(x) if type(leaf) is ArrayImpl]
    for leaf in pending:
        if leaf.is_deleted():
            raise arrays.deleted_error(leaf)
    if len(pending) == 1:
        pending[0].block_until_ready()
    elif pending:
        xla.block_until_ready(pending)
    return x


def copy_to_host_async(x: Any) -> Any:
    """Start copying every array of a pytree to the host; returns the tree at once."""
    for leaf in tree_leaves(x):
        if hasattr(leaf, "copy_to_host_async"):
            leaf.copy_to_host_async()
    return x


def live_arrays(platform: str | None = None) -> list[Any]:
    """All arrays of a platform that are alive."""
    return platforms.client(platform).live_arrays()


def effects_barrier() -> None:
    """Wait until all side effects of running computations are done: callbacks, prints.

    Raises: JaxRuntimeError if one of them failed.
    """
    effects.barrier()
