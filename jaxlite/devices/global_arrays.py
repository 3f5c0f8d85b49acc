"""Arrays over several devices: put together from shards, taken apart, moved from one sharding to another.

`place` brings any value to any sharding. A host value is cut into shards; so is an array on one device; an array that has a
sharding already is taken apart and put together again on the host, or by a program if its devices have memories of their own or
belong to several processes. jaxlib moves shards from device to device without asking
whether they are the shards that the new sharding wants, so no array is ever only relabelled here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxlite.core import array as arrays
from jaxlite.core import dtypes
from jaxlite.core.array import deleted_error, device_of
from jaxlite.core.aval import Ints, MemorySpace, ShapedArray, in_space, layout_of, layouts, space_of_kind, with_layout
from jaxlite.core.tree import broadcast_prefix, tree_flatten
from jaxlite.core.values import aval_of
from jaxlite.devices import placement
from jaxlite.devices import sharding as shardings
from lowering import xla

ArrayImpl = xla.ArrayImpl


def _type_on(aval: ShapedArray, sharding: Any) -> ShapedArray:
    """The type of an array with a sharding: its memory, and how it is on the explicit axes of a mesh."""
    aval = in_space(aval, space_of_kind(sharding.memory_kind))
    if layouts.exist or type(sharding) is xla.NamedSharding:
        aval = with_layout(aval, layout_of(sharding, len(aval.shape)))
    return aval


def place(value: Any, sharding: Any, committed: bool = True, copy: bool = False, aval: Any = None,
          what: str = "One of device_put args") -> Any:
    """An Array with a sharding from a host value or from an Array with any other; the same object if it has it already.

    Args: `what` names the value for the message.
    Raises: ValueError if the sharding cannot be that of an array of this shape.
    """
    if aval is None:
        aval = aval_of(value)
    if aval.dtype == dtypes.float0:  # which holds nothing, and which XLA does not know
        value, aval = np.zeros(aval.shape, bool), ShapedArray(aval.shape, np.dtype(bool))
    aval = _type_on(aval, sharding)
    if hasattr(value, "_base_array"):
        shardings.check_shape(sharding, aval.shape, what)
        made = place(value._base_array, sharding, committed, copy)
        if made.aval.memory_space is not MemorySpace.Device:  # programs take keys to the device
            made = xla.rewrap(made, in_space(made.aval, MemorySpace.Device), made.sharding)
        return aval.dtype.wrap(made)
    if type(sharding) is xla.SingleDeviceSharding:
        if sharding.memory_kind != arrays.single_device_sharding(sharding._device).memory_kind:
            return xla.put_shards([arrays.put_array(value, sharding._device, committed, copy=True)], aval, sharding,
                                  [sharding._device], committed)
        return arrays.put_array(value, sharding._device, committed, copy, aval)
    if shardings.UNCONSTRAINED in sharding.spec:
        raise ValueError(f"the sharding of an array must be specified along each axis; {sharding} leaves one unconstrained")
    shardings.check_shape(sharding, aval.shape, what)
    if sharding.spec.unreduced or type(value) is ArrayImpl and arrays.is_unreduced(value):
        return _summed_or_split(value, sharding, committed)
    devices = shardings.devices_of(sharding)
    if type(value) is not ArrayImpl:
        host = arrays.as_host_value(value, aval)
        is_own = host is not value and (type(value) in (int, float, bool, complex) or isinstance(value, np.ndarray)
                                        and not np.may_share_memory(host, value))
        if sharding.is_fully_replicated:
            local = shardings.local_devices(sharding)
            if not is_own:  # one copy, which all devices read
                host = _aligned_copy(host)
            return xla.put_shards([host] * len(local), aval, sharding, local, committed)
        return _put_parts(host, aval, sharding, committed, is_own)
    if value.is_deleted():
        raise arrays.deleted_error(value)
    if value.sharding == sharding and value.aval is aval and not copy:
        return value
    if shardings.is_equivalent(value.sharding, sharding, len(aval.shape)):
        shards = [arrays._copy_of(shard) for shard in value._arrays] if copy else value._arrays
        return xla.assemble(aval, sharding, shards, committed)
    if type(value.sharding) is xla.SingleDeviceSharding and sharding.is_fully_replicated:
        local = shardings.local_devices(sharding)
        return xla.put_shards([arrays.put_array(value, device, True, copy=copy) for device in local], aval, sharding, local,
                              committed)
    if _by_program(value, devices):
        return placement.reshard(value, sharding)
    return _put_parts(arrays.host_value(value), aval, sharding, committed, True)


def _summed_or_split(value: Any, sharding: Any, committed: bool) -> Any:
    """An array as the sum of parts on several devices, or from such parts: by a program."""
    if type(value) is not ArrayImpl or sharding.spec.unreduced and getattr(value.sharding, "mesh", None) != sharding.mesh:
        # A program over two meshes ends the process where something is left to be summed.
        spec = sharding.spec
        value = place(value, sharding.update(spec=spec.update(unreduced=frozenset(), reduced=frozenset())), committed)
    return value if value.sharding == sharding else placement.reshard(value, sharding)


def _aligned_copy(host: np.ndarray) -> np.ndarray:
    """A copy with a layout that XLA can use without another copy."""
    memory = np.empty(host.nbytes + 63, np.uint8)
    start = -memory.ctypes.data % 64
    copy = memory[start:start + host.nbytes].view(host.dtype).reshape(host.shape)
    copy[...] = host
    return copy


def _by_program(value: Any, devices: tuple[Any, ...]) -> bool:
    """Whether to let the devices exchange their parts: a program has to be compiled for it, so not within one processor."""
    return (shardings.devices_of(value.sharding) == devices
            and (devices[0].platform != "cpu" or not value.is_fully_addressable))


@functools.lru_cache(1024)
def _plan(sharding: Any, shape: Ints) -> tuple[list[Any], list[int], list[Any]]:
    """The parts that an array of this shape is cut into, which of them each device of this process takes, and these devices."""
    distinct: dict[Any, int] = {}
    parts: list[Any] = []
    taken, local = [], []
    for index, device in zip(shardings.slices(sharding, shape), shardings.devices_of(sharding), strict=True):
        if shardings.is_local(device):
            key = tuple((each.start, each.stop) for each in index)
            if key not in distinct:
                distinct[key] = len(parts)
                parts.append(index)
            taken.append(distinct[key])
            local.append(device)
    return parts, taken, local


def _put_parts(host: np.ndarray, aval: Any, sharding: Any, committed: bool, is_own: bool) -> Any:
    """Cut a host value, and put each part of this process on its device; nobody writes to the value if it `is_own`."""
    parts, taken, local = _plan(sharding, aval.shape)
    made = [host[index] for index in parts]
    made = [part if part.flags.c_contiguous else np.ascontiguousarray(part).reshape(part.shape) for part in made]
    are_distinct = len(parts) == len(taken)
    if not is_own and not are_distinct:
        made = [np.array(part) for part in made]
    return xla.put_shards([made[index] for index in taken], aval, sharding, local, committed, not is_own and are_distinct)


# --- taken apart -------------------------------------------------------------------------------------


class Shard:
    """One shard of an array: the part that one device holds.

    Attributes: `device`; `index`, which part it is; `replica_id`, how many devices before hold the same part; `data`, an Array
    on this device alone, None if another process has it.
    """

    __slots__ = ("device", "index", "replica_id", "data")

    def __init__(self, device: Any, index: tuple[slice, ...], replica_id: int, data: Any):
        self.device, self.index, self.replica_id, self.data = device, index, replica_id, data

    def __repr__(self) -> str:
        return (f"Shard(device={self.device!r}, index={self.index}, replica_id={self.replica_id}"
                + (")" if self.data is None else f", data={self.data})"))


@functools.lru_cache(1024)
def _replicas(sharding: Any, shape: Ints) -> tuple[tuple[Any, tuple[slice, ...], int], ...]:
    """For each device its part, and how many devices before it hold the same one."""
    seen: dict[Any, int] = {}
    found = []
    for device, part in zip(shardings.devices_of(sharding), shardings.slices(sharding, shape), strict=True):
        key = tuple((each.start, each.stop) for each in part)
        found.append((device, part, seen.get(key, 0)))
        seen[key] = seen.get(key, 0) + 1
    return tuple(found)


def addressable_shards(array: Any) -> list[Shard]:
    """The shards that this process holds."""
    return [shard for shard in global_shards(array) if shard.data is not None]


def global_shards(array: Any) -> list[Shard]:
    """All shards; those of other processes have no data."""
    if array.is_deleted():
        raise arrays.deleted_error(array)
    if hasattr(array, "_base_array"):
        return [Shard(each.device, each.index[:array.ndim], each.replica_id,
                      None if each.data is None else array.dtype.wrap(each.data)) for each in global_shards(array._base_array)]
    if array.sharding.num_devices == 1:
        here = array if array.is_fully_addressable else None
        return [Shard(array.device, (slice(None),) * array.ndim, 0, here)]
    data = {arrays.device_of(each): each for each in array._arrays}
    return [Shard(device, part, replica, data.get(device)) for device, part, replica in _replicas(array.sharding, array.shape)]


def addressable_data(array: Any, index: int) -> Any:
    """What one of this process' devices holds, as an Array on it alone."""
    if array.is_deleted():
        raise arrays.deleted_error(array)
    if hasattr(array, "_base_array"):
        return array.dtype.wrap(addressable_data(array._base_array, index))
    return array if array.sharding.num_devices == 1 else array._arrays[index]


# --- put together ------------------------------------------------------------------------------------


def _aval(shape: Any, dtype: Any) -> ShapedArray:
    return ShapedArray(tuple(int(size) for size in shape), dtypes.canonicalize_dtype(dtype), False)


def make_array_from_callback(shape: Sequence[int], sharding: Any, data_callback: Callable[[Any], Any],
                             dtype: Any = None) -> Any:
    """An array whose shards a function computes; it is called for the shards of this process only.

    Args:
      shape: of the whole array.
      sharding: how it is to be cut.
      data_callback: gets the index of a shard (a tuple of slices) and gives its value, an array or scalar.
      dtype: of the array; by default that of the first shard. Needed where this process holds none.
    Returns: the Array.
    Raises: ValueError for a shard of another shape or dtype; as `device_put` for a sharding that does not fit.

    >>> import jaxlite as jax, numpy as np
    >>> sharding = jax.NamedSharding(jax.make_mesh((1,), ("x",)), jax.P("x"))
    >>> jax.make_array_from_callback((4,), sharding, lambda index: np.arange(4.0)[index])
    Array([0., 1., 2., 3.], dtype=float32)
    """
    shape = tuple(int(size) for size in shape)
    if isinstance(sharding, shardings.Format):
        whole = make_array_from_callback(shape, sharding.sharding, data_callback, dtype)
        return whole if sharding.layout is None else placement.layouts_module().relaid(whole, sharding.layout)
    _check_sharding(sharding)
    parts, taken, devices = _plan(sharding, shape)
    expected = sharding.shard_shape(shape)
    made = [data_callback(part) for part in parts]
    for value, part in zip(made, parts):
        if np.shape(value) != expected:
            raise ValueError(f"Expected shard shape {expected} doesn't match the single device array shape {np.shape(value)}. "
                             f"That is what data_callback gave for the shard {part} of an array of shape {shape}")
    if not made and dtype is None:
        raise ValueError("this process holds no shard of the array, so its dtype must be given: pass dtype")
    wanted = None if dtype is None else dtype if isinstance(dtype, dtypes.ExtendedDType) else dtypes.canonicalize_dtype(dtype)
    one_of_each = {(type(value), getattr(value, "dtype", None)): value for value in made}
    for given in dict.fromkeys(aval_of(value).dtype for value in one_of_each.values()):
        if wanted not in (None, given):
            raise ValueError("Input buffers to `Array` must have matching dtypes. Got "
                             f"{given}, expected {wanted}" if dtype is None else "If `dtype` is provided to `jax."
                             "make_array_from_callback`, it must match the dtype of the addressable shards. Got "
                             f"dtype={wanted} and shard dtype={given}.")
        wanted = given
    dtype = wanted
    if isinstance(dtype, dtypes.ExtendedDType):
        base = xla_shape(shape, dtype)
        return dtype.wrap(make_array_from_single_device_arrays(
            base, sharding, [arrays.put_array(made[number]._base_array, device, True) for number, device in
                             zip(taken, devices, strict=True)]))
    aval = _aval(shape, dtype)
    local = aval.update(shape=expected)
    values = [value if type(value) is ArrayImpl and value.dtype == aval.dtype else
              np.array(arrays.as_host_value(arrays.host_value(value) if type(value) is ArrayImpl else value, local))
              for value in made]
    if type(sharding) is xla.SingleDeviceSharding:
        return place(values[0], sharding, True, True, aval)
    return xla.put_shards([values[number] for number in taken], _type_on(aval, sharding), sharding, devices)


def xla_shape(shape: Ints, dtype: Any) -> Ints:
    """The shape of the array behind one of an extended dtype."""
    return (*shape, *dtype.physical_element().shape)


def make_array_from_single_device_arrays(shape: Sequence[int], sharding: Any, arrays: Sequence[Any], *,
                                         dtype: Any = None) -> Any:
    """An array from its shards, which are already on their devices; nothing is copied.

    Args:
      shape: of the whole array.
      sharding: how it is cut.
      arrays: an Array on each device of this process, in any order.
      dtype: of the array; needed where this process holds none.
    Returns: the Array, committed.
    Raises: ValueError if devices, shapes or dtypes of the shards are not those that the sharding wants.
    """
    if not isinstance(arrays, (list, tuple)):
        raise TypeError("jaxlite.make_array_from_single_device_arrays `arrays` argument must be a list or tuple, but got "
                        f"{type(arrays)}.")
    shape = tuple(int(size) for size in shape)
    _check_sharding(sharding)
    if any(hasattr(each, "_base_array") for each in arrays):
        kinds = dict.fromkeys(each.dtype for each in arrays if hasattr(each, "dtype"))
        if len(kinds) > 1 or not all(hasattr(each, "_base_array") for each in arrays):
            raise ValueError(f"the shards of an array have one dtype; got {' and '.join(map(str, kinds))}")
        (kind,) = kinds
        return kind.wrap(make_array_from_single_device_arrays(
            xla_shape(shape, kind), sharding, [each._base_array for each in arrays]))
    for each in arrays:
        if type(each) is not ArrayImpl:
            raise TypeError("When creating an array from single-device arrays, each of them must be an Array; got a "
                            f"{type(each)}")
        if each.is_deleted():
            raise deleted_error(each)
        if len(each._arrays) != 1 and type(each.sharding) is not xla.SingleDeviceSharding:
            raise ValueError("When making an array from single-device arrays the input arrays must have one shard each. An "
                             f"argument array had {len(each._arrays)} shard(s).")
    if not arrays and dtype is None:
        raise ValueError("dtype must be given if this process holds no shard of the array")
    kind = arrays[0].dtype if dtype is None else dtypes.canonicalize_dtype(dtype)
    local, wanted = sharding.shard_shape(shape), _plan(sharding, shape)[2]
    for each in arrays:
        if each.shape != local:
            raise ValueError(f"Expected shard shape {local} doesn't match the single device array shape {each.shape}. The "
                             f"array has the shape {shape}, the shard is on {device_of(each)}")
        if each.dtype != kind:
            raise ValueError(f"the shards of an array have one dtype; got {kind} and {each.dtype}")
    by_device = {device_of(each): each for each in arrays}
    if len(arrays) != len(wanted) or by_device.keys() != set(wanted):
        raise ValueError(f"the sharding has one shard on each of the devices {wanted}; got arrays on "
                         f"{[device_of(each) for each in arrays]}")
    aval = _aval(shape, kind)
    if type(sharding) is xla.SingleDeviceSharding:
        return place(arrays[0], sharding)
    return xla.assemble(_type_on(aval, sharding), sharding, [by_device[device] for device in wanted])


def make_array_from_process_local_data(sharding: Any, local_data: Any, global_shape: Sequence[int] | None = None) -> Any:
    """An array over several processes, from the part that each process has.

    Args:
      sharding: how the array is cut.
      local_data: this process' part, an array or a pytree of them.
      global_shape: the shape of the whole; None inside it, or None: along each axis what the processes hold is joined. For a
        pytree a prefix of it.
    Returns: the Array, or the same tree of them.
    Raises: ValueError if the data is neither the whole nor this process' part of it.
    """
    leaves, tree = tree_flatten(local_data)
    is_shape = lambda node: node is None or isinstance(node, (tuple, list)) and all(
        each is None or isinstance(each, (int, np.integer)) for each in node)
    places = [sharding] * len(leaves) if isinstance(sharding, xla.Sharding) else broadcast_prefix(sharding, local_data)
    return tree.unflatten(map(_from_local_data, places, leaves, broadcast_prefix(global_shape, local_data, is_leaf=is_shape)))


def _from_local_data(sharding: Any, local_data: Any, global_shape: Sequence[int] | None) -> Any:
    shardings.check_rank(sharding, np.shape(local_data))
    local = np.asarray(local_data) if type(local_data) is not ArrayImpl else arrays.host_value(local_data)
    spans = _local_spans(sharding, local.shape, global_shape)
    shape = tuple(total for total, _, _ in spans)

    def part(index: tuple[slice, ...]) -> Any:
        inside = []
        for each, (total, start, size) in zip(index, spans, strict=True):
            first, last, _ = each.indices(total)
            if first < start or last > start + size:
                raise ValueError(f"the shard {index} of an array of shape {shape} is not part of this process' data of shape "
                                 f"{local.shape}")
            inside.append(slice(first - start, last - start))
        return local[tuple(inside)]

    return make_array_from_callback(shape, sharding, part, local.dtype)


def _local_spans(sharding: Any, local: Ints, shape: Any) -> list[tuple[int, int, int]]:
    """For each axis: the size of the whole, where this process' part begins, and its size."""
    wanted = (None,) * len(local) if shape is None else tuple(shape)
    if len(wanted) != len(local):
        raise ValueError(f"global_shape {shape} and the local data of shape {local} must have the same number of axes")
    cut = shardings.tiling(sharding, len(local)) if type(sharding) is xla.NamedSharding else (1,) * len(local)
    units = sharding.addressable_devices_indices_map(cut)  # of an array with one element for each part
    spans = []
    for axis, (size, total, parts) in enumerate(zip(local, wanted, cut, strict=True)):
        own = sorted({part[axis].indices(parts)[0] if parts > 1 else 0 for part in units.values()})
        if parts > 1 and own != list(range(own[0], own[-1] + 1)):
            raise ValueError(f"this process' parts along axis {axis} do not follow each other")
        count = len(own)
        if total is None:
            total = size * parts // count
        if size == total:
            spans.append((total, 0, size))
        elif size * parts == total * count:
            spans.append((total, own[0] * total // parts, size))
        else:
            raise ValueError(f"the local data has {size} elements along axis {axis}, the whole {total}, of which this process "
                             f"has {count} parts of {parts}")
    return spans


def _check_sharding(sharding: Any) -> None:
    if not isinstance(sharding, xla.Sharding):
        raise TypeError(f"expected a sharding, got {sharding!r}")
