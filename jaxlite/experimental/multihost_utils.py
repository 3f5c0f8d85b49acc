"""Exchange of values between the processes of a program, and arrays of one process as parts of global arrays.

All processes must call these functions in the same order. Values are transferred as bytes, so they arrive unchanged. They
also work with a single process.
"""

from __future__ import annotations

import contextlib
import functools
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from jaxlite.compilation.jit import jit
from jaxlite.core import array as arrays
from jaxlite.core.filtering import boundary
from jaxlite.core.tracing import Tracer
from jaxlite.core.tree import broadcast_prefix, tree_flatten, tree_map
from jaxlite.core.values import ArrayImpl, aval_of
from jaxlite.devices import processes
from jaxlite.devices.api import device_put, process_count, process_index
from jaxlite.devices.global_arrays import make_array_from_process_local_data, make_array_from_single_device_arrays
from jaxlite.devices.mesh import AxisType, Mesh
from jaxlite.devices.sharding import NamedSharding, PartitionSpec, tiling
from jaxlite.numpy.reductions import sum as add_up
from lowering import platforms

__all__ = ["ProcessFailureError", "assert_equal", "broadcast_one_to_all", "global_array_to_host_local_array",
           "host_local_array_to_global_array", "live_devices", "process_allgather", "reached_preemption_sync_point",
           "sync_global_devices"]
__dir__ = lambda: __all__

_WAIT = 1800  # seconds that processes wait for each other
_AXIS = "processes"
_tell = processes.Exchange(_WAIT)


@functools.cache
def _mesh() -> Mesh:
    """One device of each process."""
    first = {device.process_index: device for device in reversed(platforms.all_devices())}
    return Mesh(np.array([first[number] for number in sorted(first)], dtype=object), (_AXIS,))


@functools.cache
def _program(work: Callable[[Any], Any]) -> Any:
    return jit(work, out_shardings=NamedSharding(_mesh(), PartitionSpec()))


def _gather(rows: Any) -> Any:
    return rows


def _merge(rows: Any) -> Any:
    """The one row that is not zero."""
    return add_up(rows, 0, dtype=rows.dtype)


def _spread(work: Callable[[Any], Any], payload: np.ndarray) -> np.ndarray:
    """The result of a function of the bytes of all processes, one row each."""
    rows = make_array_from_process_local_data(NamedSharding(_mesh(), PartitionSpec(_AXIS)), payload[None])
    return np.asarray(_program(work)(rows))


def _leaves(in_tree: Any) -> tuple[list[np.ndarray], Any]:
    """The leaves as host values of the types that they would have as arrays, and their tree."""
    leaves, tree = tree_flatten(in_tree)
    for leaf in leaves:
        if isinstance(leaf, Tracer):
            raise TypeError(f"processes exchange values, not tracers; got {leaf}. Call it outside of jit")
    return [arrays.host_value(leaf) if type(leaf) is ArrayImpl else np.asarray(arrays.as_host_value(leaf, aval_of(leaf)))
            for leaf in leaves], tree


def _check_alike(what: str, leaves: Sequence[np.ndarray], tree: Any) -> None:
    """Raises: ValueError if the trees, shapes or dtypes of the processes differ: their programs would not fit together."""
    text = f"{tree} of {', '.join(f'{leaf.dtype}{list(leaf.shape)}' for leaf in leaves)}"
    said = _tell(f"{what} {zlib.crc32(text.encode())} {text[:500]}")
    if len({each.split(" ", 2)[1] for each in said.values()}) > 1:
        shown = "\n".join(f"  process {number}: {each.split(' ', 2)[2]}" for number, each in said.items())
        raise ValueError(f"{what}: the processes have values of different types\n{shown}")


def _pack(leaves: Sequence[np.ndarray]) -> np.ndarray:
    return np.frombuffer(b"".join(leaf.tobytes() for leaf in leaves), np.uint8)


def _unpack(rows: np.ndarray, leaves: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The leaves in rows of bytes, stacked."""
    found, start = [], 0
    for leaf in leaves:
        part = np.ascontiguousarray(rows[:, start:start + leaf.nbytes])
        found.append(part.view(leaf.dtype).reshape(len(rows), *leaf.shape) if leaf.size else
                     np.zeros((len(rows), *leaf.shape), leaf.dtype))
        start += leaf.nbytes
    return found


@boundary
def broadcast_one_to_all(in_tree: Any, is_source: bool | None = None) -> Any:
    """Broadcast the values of one process to all processes.

    Args:
      in_tree: a pytree of arrays and scalars, of the same types in each process.
      is_source: whether it is this process that tells; exactly one is. By default process 0.
    Returns: the tree of the source, of NumPy arrays.
    Raises: ValueError if the types differ.

    >>> from jaxlite.experimental import multihost_utils
    >>> multihost_utils.broadcast_one_to_all({"seed": 7})
    {'seed': array(7)}
    """
    if process_count() == 1:  # nothing is sent, so that nothing is converted
        return tree_map(np.asarray, in_tree)
    leaves, tree = _leaves(in_tree)
    _check_alike("broadcast_one_to_all", leaves, tree)
    payload = _pack(leaves)
    tells = process_index() == 0 if is_source is None else is_source
    leaves = [leaf[0] for leaf in _unpack(_spread(_merge, payload if tells else np.zeros_like(payload))[None], leaves)]
    return tree.unflatten([np.asarray(leaf) for leaf in leaves])


@boundary
def process_allgather(in_tree: Any, tiled: bool = False) -> Any:
    """Gather the values of all processes in every process.

    Args:
      in_tree: a pytree of arrays and scalars, of the same types in each process; or of arrays over several processes, which are
        given whole.
      tiled: whether the values of the processes are joined along their first axis rather than stacked along a new one. Scalars
        are stacked.
    Returns: the same tree, of NumPy arrays.
    Raises: ValueError if the types differ, or for an array over several processes without `tiled`.

    >>> from jaxlite.experimental import multihost_utils
    >>> multihost_utils.process_allgather(3.0)
    array([3.])
    """
    leaves, tree = tree_flatten(in_tree)
    spans = [type(leaf) is ArrayImpl and not leaf.is_fully_addressable for leaf in leaves]
    if any(spans) and not tiled:
        raise ValueError("Gathering global non-fully-addressable arrays only supports tiled=True")
    found = [np.asarray(_replicate(leaf)) if span else None for leaf, span in zip(leaves, spans, strict=True)]
    own = [leaf for leaf, span in zip(leaves, spans, strict=True) if not span]
    if own and process_count() > 1:
        own, _ = _leaves(own)
        _check_alike("process_allgather", own, tree)
        gathered = iter(_unpack(_spread(_gather, _pack(own)), own))
    else:
        gathered = iter([np.asarray(leaf)[None] for leaf in own])
    return tree.unflatten([_joined(next(gathered), tiled) if each is None else each for each in found])


def _joined(stacked: np.ndarray, tiled: bool) -> np.ndarray:
    return stacked.reshape(-1, *stacked.shape[2:]) if tiled and stacked.ndim > 1 else stacked


def _replicate(array: Any) -> Any:
    return array if array.is_fully_replicated else device_put(array, array.sharding.with_spec(PartitionSpec()))


@boundary
def assert_equal(in_tree: Any, fail_message: str = "") -> None:
    """Check that all processes have the same values. Raises: AssertionError if not, in all of them.

    >>> from jaxlite.experimental import multihost_utils
    >>> multihost_utils.assert_equal({"batch": 32}, "different batches")
    """
    leaves, _ = _leaves(in_tree)
    for mine, all_of_them in zip(leaves, tree_flatten(process_allgather(leaves))[0], strict=True):
        if any(row.tobytes() != all_of_them[0].tobytes() for row in all_of_them):
            raise AssertionError(f"{fail_message}. Expected: {_joined(all_of_them, True)}; got: {mine}.")


@boundary
def sync_global_devices(name: str) -> None:
    """Wait until all processes call this, for half an hour at most.

    Args: `name` what they come to, the same in all.
    Raises: AssertionError if they come to different things; RuntimeError if one does not come.

    >>> from jaxlite.experimental import multihost_utils
    >>> multihost_utils.sync_global_devices("saved")
    """
    said = _tell(f"sync {name}")
    if len(set(said.values())) > 1:
        shown = {number: each.removeprefix("sync ") for number, each in said.items()}
        raise AssertionError(f"sync_global_devices name mismatch ('{name}'). The names of the processes: {shown}")



class ProcessFailureError(Exception):
    """Processes died while the block of a `live_devices` ran. `failed_devices` is the set of their devices."""

    def __init__(self, failed_devices: Iterable[Any]):
        self.failed_devices = set(failed_devices)
        super().__init__(f"Devices failed: {sorted(self.failed_devices, key=lambda device: device.id)}")


@contextlib.contextmanager
def live_devices(devices: Sequence[Any]) -> Iterator[list[Any]]:
    """Run a block on the devices of live processes, on which all of these agree.

    The processes that live wait for each other at the start of the block and at its end. Set the option
    `enable_recoverability` before `initialize`, without which XLA's runtime ends the processes that are left. That one has died
    is known `heartbeat_timeout_seconds` later. Without process 0 the others cannot go on: they meet there.

    Args: `devices` some devices, one of them of this process.
    Raises: RuntimeError without `distributed.initialize`, ValueError without devices of this process; at the end of the block
      ProcessFailureError, in all processes that are left, if one has died since its start.
    """
    if not devices:
        raise ValueError("No devices provided.")
    if all(device.process_index != process_index() for device in devices):
        raise ValueError("live_devices needs a device of this process among those it is given")
    numbers = [device.process_index for device in devices]
    before = processes.alive(numbers)
    failure: BaseException | None = None
    try:
        yield sorted((device for device in devices if device.process_index in before), key=lambda device: device.id)
    except Exception as error:
        failure = error
    after = processes.alive(numbers)
    lost = {number for number, life in before.items() if after.get(number) != life}
    if lost:
        raise ProcessFailureError(device for device in devices if device.process_index in lost) from failure
    if failure is not None:
        raise failure


@boundary
def host_local_array_to_global_array(local_inputs: Any, global_mesh: Mesh, pspecs: Any) -> Any:
    """Arrays over all devices of a mesh, from what each process has for its own devices.

    Args:
      local_inputs: a pytree of values; along axes that are cut over several processes, this process' part.
      global_mesh: a mesh in which the devices of each process are a block.
      pspecs: a pytree prefix of PartitionSpecs.
    Returns: the tree, of Arrays with the sharding `NamedSharding(global_mesh, pspec)`. What is not cut must be the same in all
      processes. Arrays over several processes stay as they are.
    Raises: ValueError if this process' devices are not a block of the mesh, or a part cannot be cut evenly.

    >>> import jaxlite as jax, numpy as np
    >>> from jaxlite.experimental import multihost_utils
    >>> mesh = jax.sharding.Mesh(jax.devices()[:1], ("x",))
    >>> multihost_utils.host_local_array_to_global_array(np.arange(3), mesh, jax.P("x"))
    Array([0, 1, 2], dtype=int32)
    """
    leaves, tree = tree_flatten(local_inputs)
    return tree.unflatten([_globalized(leaf, global_mesh, spec)
                           for leaf, spec in zip(leaves, broadcast_prefix(pspecs, local_inputs), strict=True)])


def _globalized(leaf: Any, mesh: Mesh, spec: Any) -> Any:
    if type(leaf) is ArrayImpl and not leaf.is_fully_addressable:
        return leaf
    local, everywhere = NamedSharding(mesh.local_mesh, spec), NamedSharding(mesh, spec)
    part = device_put(leaf, local)
    if mesh.local_mesh is mesh:
        return part
    shape = tuple(size * whole // own for size, whole, own in zip(part.shape, tiling(everywhere, part.ndim),
                                                                  tiling(local, part.ndim), strict=True))
    return make_array_from_single_device_arrays(shape, everywhere, [shard.data for shard in part.addressable_shards])


@boundary
def global_array_to_host_local_array(global_inputs: Any, global_mesh: Mesh, pspecs: Any) -> Any:
    """What this process' devices hold of arrays over several processes: the inverse of `host_local_array_to_global_array`.

    Args: as there.
    Returns: the tree, of Arrays over this process' part of the mesh. Arrays of this process alone stay as they are.
    """
    leaves, tree = tree_flatten(global_inputs)
    return tree.unflatten([_localized(leaf, global_mesh, spec)
                           for leaf, spec in zip(leaves, broadcast_prefix(pspecs, global_inputs), strict=True)])


def _localized(leaf: Any, mesh: Mesh, spec: Any) -> Any:
    if not (type(leaf) is ArrayImpl and not leaf.is_fully_addressable):
        return leaf
    local = NamedSharding(mesh.local_mesh.update(axis_types=(AxisType.Auto,) * len(mesh.axis_names)), spec)
    everywhere = NamedSharding(mesh, spec)
    whole = device_put(leaf, everywhere)
    shape = tuple(size * own // count for size, count, own in zip(whole.shape, tiling(everywhere, whole.ndim),
                                                                  tiling(local, whole.ndim), strict=True))
    return make_array_from_single_device_arrays(shape, local, [shard.data for shard in whole.addressable_shards])


def reached_preemption_sync_point(step_id: int) -> bool:
    """Whether all processes should save their state, because one of them received SIGTERM.

    Each process calls it in each step, with the step's number. Once one has had the signal, it is True in the same later step
    everywhere. From the first call on, SIGTERM does not end the process. Without `distributed.initialize` it is False.
    """
    return processes.is_initialized() and processes.preemption().reached_sync_point(step_id)
