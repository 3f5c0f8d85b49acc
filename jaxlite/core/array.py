"""The array: jaxlib's C++ type, with the attributes that need nothing but the value itself.

`Array` is what users name (tracers are instances of it too), `ArrayImpl` the C++ class of concrete arrays.
Operators and NumPy's methods are added by `jaxlite.numpy`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxlite.core import dtypes
from jaxlite.core.aval import MemorySpace, ShapedArray, in_space, plain, spaces
from jaxlite.core.filtering import boundary, hide_own_frames
from jaxlite.core.lazy import loader
from jaxlite.core.values import aval_of
from lowering import platforms, xla

Array = xla.Array
ArrayImpl = xla.ArrayImpl
_shardings: dict[Any, Any] = {}
_of_shardings = loader("jaxlite.devices.sharding")  # what stands higher: most programs never ask what it gives shardings


def single_device_sharding(device: Any) -> Any:
    """The sharding of arrays that live on one device; one object per device, so that it compares fast."""
    try:
        return _shardings[device]
    except KeyError:
        return _shardings.setdefault(device, xla.SingleDeviceSharding(device))


def device_of(array: Any) -> Any:
    """The device of a concrete array; of one over several devices, the first."""
    sharding = array._sharding
    return sharding._device if type(sharding) is xla.SingleDeviceSharding else sharding._device_assignment[0]


def is_spread(array: Any) -> bool:
    """Whether a concrete array has another sharding than that of one device."""
    return type(array._sharding) is not xla.SingleDeviceSharding


def put_array(value: Any, device: Any, committed: bool, copy: bool = False, aval: Any = None) -> Any:
    """An Array on a device from a host value (NumPy array or scalar) or from an Array on another device."""
    if aval is None:
        aval = aval_of(value)
    sharding = single_device_sharding(device)
    if spaces.exist:
        aval = in_space(aval, MemorySpace.Device)
    if type(value) is ArrayImpl:
        if value.is_deleted():
            raise deleted_error(value)
        if type(value._sharding) is not xla.SingleDeviceSharding:
            if not value.is_fully_addressable and not value.is_fully_replicated:
                raise ValueError(f"an array of shape {value.shape}, with parts on devices of other processes, cannot be put on "
                                 "one device; multihost_utils.process_allgather(x, tiled=True) gathers it")
            value, aval = _on_one_device(value, device), plain(aval)
        return xla.device_put(value, aval, sharding, device, committed, copy)
    if isinstance(aval.dtype, np.dtype):
        if aval.dtype.names:  # float0 holds nothing
            value, aval = np.zeros(aval.shape, bool), ShapedArray(aval.shape, np.dtype(bool))
        return xla.device_put(as_host_value(value, aval), aval, sharding, device, committed, copy)
    return aval.dtype.wrap(put_buffer(value, device, committed, copy))


def as_host_value(value: Any, aval: Any) -> np.ndarray:
    """A host value as the contiguous NumPy array of an aval."""
    array = np.asarray(value)
    if array.dtype != aval.dtype or not array.dtype.isnative:
        with np.errstate(over="ignore"):  # what is too large becomes infinite, as it does in XLA
            array = array.astype(aval.dtype)
    return np.ascontiguousarray(array).reshape(array.shape)


def put_buffer(value: Any, device: Any, committed: bool, copy: bool = False, aval: Any = None) -> Any:
    """`put_array` for executables: of an array of an extended dtype, what is behind it."""
    if isinstance(value, Array) and hasattr(value, "_base_array"):
        return put_array(value._base_array, device, committed, copy)
    return put_array(value, device, committed, copy, aval)


def result_wrappers(avals: Sequence[Any]) -> list[tuple[int, Callable[[Any], Any]]]:
    """For results that are not plain arrays, the index and a function from the buffer to the value."""
    return [(index, _no_data if aval.dtype == dtypes.float0 else aval.dtype.wrap) for index, aval in enumerate(avals)
            if isinstance(aval.dtype, dtypes.ExtendedDType) or aval.dtype == dtypes.float0]


def _no_data(buffer: Any) -> np.ndarray:
    return np.zeros(buffer.shape, dtypes.float0)


def deleted_error(array: Any) -> RuntimeError:
    """The error for the use of an array whose buffer is gone."""
    return RuntimeError(f"Array has been deleted with shape={array.aval.str_short()}. It was donated to a "
                        "compiled function, or delete() was called; use the function's result instead, or do not donate it.")


def host_value(array: Any) -> np.ndarray:
    """The value as a read-only NumPy array; waits until it is computed.

    It is kept with the array where it is a copy, as that of few bytes is. A view of the array's memory is not: it keeps the
    array, and no collector of cycles looks at an array's attributes.
    """
    if array.is_deleted():
        raise deleted_error(array)
    value = array._npy_value
    if value is None:
        try:
            value = _gather(array) if is_spread(array) else xla.to_numpy(array)
        except xla.XlaRuntimeError:
            if array.is_fully_addressable:
                raise
            raise _elsewhere_error() from None
        is_view = isinstance(value.base, memoryview)
        if is_view and value.nbytes <= _FEW_BYTES:
            value, is_view = value.copy(), False
        value.flags.writeable = False
        if not is_view:
            array._npy_value = value
    return value


_FEW_BYTES = 128


def _elsewhere_error() -> RuntimeError:
    return RuntimeError("Fetching value for `jax.Array` that spans non-addressable (non process local) devices is not "
                        "possible. You can use `jax.experimental.multihost_utils.process_allgather` to print the global "
                        "array or use `.addressable_shards` method of jax.Array to inspect the addressable (process "
                        "local) shards.")


def _gather(array: Any) -> np.ndarray:
    """The value of an array over several devices, put together from its shards."""
    sharding = array._sharding
    if sharding.is_fully_replicated:
        return xla.to_numpy(array._arrays[0])
    if sharding.spec.unreduced:
        raise NotImplementedError(f"an array that is unreduced over the mesh axes {set(sharding.spec.unreduced)} has "
                                  "no single value. Sum it with jax.sharding.reshard; x.addressable_shards holds the parts")
    if not sharding.is_fully_addressable:
        raise _elsewhere_error()
    parts: dict[Any, tuple[Any, Any]] = {}  # of several replicas the first, should they differ
    for index, shard in zip(sharding.devices_indices_map(array.shape).values(), array._arrays, strict=True):
        if parts.setdefault(tuple((each.start, each.stop) for each in index), (index, shard))[1] is shard:
            shard._copy_single_device_array_to_host_async()
    whole = np.empty(array.shape, array.dtype)
    for index, shard in parts.values():
        whole[index] = xla.to_numpy(shard)
    return whole


def _on_one_device(array: Any, device: Any) -> Any:
    """What one device can have of an array over several: a shard if each is the whole, else the value on the host."""
    if array._sharding.is_fully_replicated:
        here = [shard for shard in array._arrays if device_of(shard) == device]
        return (here or array._arrays)[0]
    return host_value(array)


def make_array(value: Any) -> Any:
    """A fresh uncommitted Array on the default device that shares no memory with `value`."""
    return put_array(value, platforms.default_device(), False, copy=True)


# --- attributes of concrete arrays -------------------------------------------------------------------


@boundary
def _scalar_value(array: Any, kind: type) -> Any:
    if array.aval.shape:
        raise TypeError(f"Only scalar arrays can be converted to Python scalars; got arr.ndim={array.ndim}. Use .item() for "
                        "an array of one element.")
    return kind(host_value(array).item())


@boundary
def _bool(array: Any) -> bool:
    size = array.aval.size
    if size == 0:
        raise ValueError("The truth value of an empty array is ambiguous. Use `array.size > 0` to check that it "
                         "is not empty.")
    if size > 1:
        raise ValueError("The truth value of an array with more than one element is ambiguous. "
                         "Use a.any() or a.all()")
    return bool(host_value(array).reshape(()))


@boundary
def _index(array: Any) -> int:
    if array.aval.shape or not dtypes.issubdtype(array.aval.dtype, np.integer):
        raise TypeError("Only integer scalar arrays can be converted to a scalar index.")
    return int(host_value(array))


def _len(array: Any) -> int:
    try:  # not `boundary`: a call more would be most of the time
        shape = array.aval.shape
        if not shape:
            raise TypeError("len() of unsized object")
        return shape[0]
    except TypeError as error:
        hide_own_frames(error)
        raise


def _dunder_array(array: Any, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
    value = host_value(array)
    if dtype is not None and value.dtype != dtype:
        if copy is False:
            raise ValueError("Unable to avoid copy while creating an array as requested.")
        return value.astype(dtype)
    return value.copy() if copy else value


def _is_elsewhere(array: Any) -> bool:
    """Whether other processes hold parts of the value that this one lacks."""
    return not array.is_fully_addressable and not (is_spread(array) and array.is_fully_replicated)


def is_unreduced(array: Any) -> bool:
    """Whether the value is still to be summed over mesh axes."""
    return is_spread(array) and bool(array.sharding.spec.unreduced)


def _repr(array: Any) -> str:
    if array.is_deleted():
        raise deleted_error(array)
    weak = ", weak_type=True" if array.aval.weak_type else ""
    suffix = f"dtype={array.dtype.name}{weak})"
    if _is_elsewhere(array):
        return f"Array(shape={array.shape}, {suffix}"
    if is_unreduced(array):
        return f"Array(shape={array.shape}, dtype={array.dtype.name}{weak}, sharding={array.sharding!r})"
    value = host_value(array)
    if value.size == 0:
        return f"Array([], shape={array.shape}, {suffix}"
    body = np.array2string(value, prefix="Array(", suffix=",", separator=", ")
    last_line = len(body) - (body.rfind("\n") + 1)
    fits = last_line + len(suffix) + 2 < np.get_printoptions()["linewidth"]
    return f"Array({body},{' ' if fits else '      '}{suffix}"


@boundary
def _format(array: Any, spec: str) -> str:
    if not spec and _is_elsewhere(array):
        return _repr(array)
    return format(host_value(array)[()] if not array.shape else host_value(array), spec)


def _iter(array: Any) -> Any:
    if not array.shape:
        raise TypeError("iteration over a 0-d array")
    return (array[index] for index in range(array.shape[0]))


@boundary
def _immutable(array: Any, index: Any, value: Any) -> None:
    raise TypeError("JAX arrays are immutable and do not support in-place item assignment. Instead of x[idx] = y, "
                    "use x = x.at[idx].set(y) or another .at[] method: each gives an updated copy.")


def rebuild(value: np.ndarray, weak_type: bool) -> Any:
    """The array of a pickle."""
    array = make_array(value)
    if weak_type:
        array = put_array(array, device_of(array), False, aval=array.aval.update(weak_type=True))
    return array


_rebuild = rebuild  # as older pickles name it


def _reduce(array: Any) -> Any:
    return rebuild, (np.array(host_value(array)), array.aval.weak_type)


def _copy_of(array: Any) -> Any:
    if array.is_deleted():
        raise deleted_error(array)
    if is_spread(array) and len(array._arrays) > 1:
        shards = [_copy_of(shard) for shard in array._arrays]
        sharding, layout = array._sharding, array.aval.layout
        if layout is not None and len(sharding.spec) < array.ndim:  # said of each axis, as in the type
            whole = [None] * (array.ndim - len(sharding.spec))
            sharding = sharding.update(spec=sharding.spec.update(partitions=[*sharding.spec, *whole]))
        return xla.assemble(array.aval, sharding, shards, array._committed)
    # The one shard of a program's result on a mesh of one device is the result itself, with its sharding.
    if is_spread(array) or array._sharding.memory_kind != single_device_sharding(device_of(array)).memory_kind:
        return xla.put_shards(array._arrays, array.aval, array._sharding, [device_of(array)], array._committed, copy=True)
    return put_array(array, device_of(array), array._committed, copy=True)


def _dlpack(array: Any, *, stream: Any = None, max_version: Any = None, dl_device: Any = None,
            copy: bool | None = None) -> Any:
    if array.is_deleted():
        raise deleted_error(array)
    if is_spread(array) and len(array._arrays) > 1:
        raise BufferError("__dlpack__ is for arrays on one device; take one shard, x.addressable_data(0), or device_put the "
                          "array to one device first")
    # By another array of the same memory: what is handed out keeps it, also where this one is deleted.
    given = _copy_of(array) if copy else xla.assemble(array.aval, array._sharding, [array], array._committed)
    return xla.to_dlpack(given, stream=stream)


class DLDeviceType(enum.IntEnum):
    """Kinds of devices, as DLPack numbers them (`dlpack.h`)."""

    kDLCPU = 1
    kDLCUDA = 2


def _dlpack_device(array: Any) -> tuple[DLDeviceType, int]:
    device = device_of(array)
    kind = DLDeviceType.kDLCUDA if platforms.platform_of(device) == "gpu" else DLDeviceType.kDLCPU
    return kind, device.local_hardware_id or 0


def _copy_to_host_async(array: Any) -> None:
    if array.is_deleted():
        raise deleted_error(array)
    for shard in array._arrays if is_spread(array) else (array,):
        shard._copy_single_device_array_to_host_async()


_DOC = """An array: values of one dtype, with a shape, on one device or several.

    Arrays come from functions (`jnp.array`, `jnp.zeros`); they do not change. Tracers, the values of arrays while a function
    is traced, are instances, too: `isinstance(x, jax.Array)`.
    """


def _install() -> None:
    Array.__doc__ = _DOC  # jaxlib's class has none
    cls: Any = ArrayImpl
    cls.shape = property(lambda self: self.aval.shape, doc="Tuple of sizes.")
    cls.dtype = property(lambda self: self.aval.dtype, doc="Element type.")
    cls.ndim = property(lambda self: len(self.aval.shape), doc="Number of axes.")
    cls.size = property(lambda self: self.aval.size, doc="Number of elements.")
    cls.weak_type = property(lambda self: self.aval.weak_type, doc="Whether the dtype yields in promotion.")
    cls.itemsize = property(lambda self: self.aval.dtype.itemsize, doc="Bytes per element.")
    cls.nbytes = property(lambda self: self.aval.size * self.aval.dtype.itemsize, doc="Bytes of all elements.")
    cls.sharding = property(lambda self: self._sharding, doc="Where the data lives.")
    cls.device = property(lambda self: device_of(self) if not is_spread(self) else self._sharding if
                          self._sharding.num_devices > 1 else next(iter(self._sharding.device_set)),
                          doc="The device that holds the array; of one over several devices, its sharding.")
    cls.committed = property(lambda self: self._committed, doc="Whether the array is bound to its device.")
    cls.is_fully_addressable = property(lambda self: self._sharding.is_fully_addressable,
                                        doc="Whether this process holds all of the data.")
    cls.is_fully_replicated = property(lambda self: self._sharding.is_fully_replicated,
                                       doc="Whether each device holds all of the data.")
    cls.devices = lambda self: set(self._sharding.device_set) if is_spread(self) else {self._sharding._device}
    cls._value = property(host_value)
    cls.__bool__ = _bool
    cls.__index__ = _index
    cls.__len__ = _len
    cls.__int__ = boundary(lambda self: _scalar_value(self, int))
    cls.__float__ = boundary(lambda self: _scalar_value(self, float))
    cls.__complex__ = boundary(lambda self: _scalar_value(self, complex))
    cls.__array__ = _dunder_array
    cls.__array_priority__ = 100
    cls.__repr__ = _repr
    cls.__str__ = lambda self: _repr(self) if _is_elsewhere(self) or is_unreduced(self) else str(host_value(self))
    cls.__format__ = _format
    cls.__iter__ = _iter
    cls.__setitem__ = _immutable
    cls.__hash__ = None  # arrays compare element by element
    cls.__reduce__ = _reduce
    cls.__copy__ = _copy_of
    cls.__deepcopy__ = lambda self, memo: _copy_of(self)
    cls.__dlpack__ = _dlpack
    cls.__dlpack_device__ = _dlpack_device
    cls.item = _item
    cls.tolist = lambda self: host_value(self).tolist()
    cls.tobytes = lambda self, order="C": host_value(self).tobytes(order)
    cls.copy_to_host_async = _copy_to_host_async
    sharding: Any = xla.SingleDeviceSharding
    sharding.device_set = property(lambda self: {self._device})
    sharding.__repr__ = lambda self: f"SingleDeviceSharding(device={self._device!r}, memory_kind={self._memory_kind})"
    sharding.is_fully_replicated = True
    sharding.is_fully_addressable = property(lambda self: self._device.process_index == self._device.client.process_index())
    sharding.__eq__ = _same_place
    sharding.__hash__ = lambda self: hash((self._device, self._memory_kind))
    sharding.__getattr__ = _rest_of_sharding
    sharding.__dir__ = _names_of_sharding


def _rest_of_sharding(sharding: Any, name: str) -> Any:
    """An attribute of an array's sharding that loads with the room of devices, asked for before that is there."""
    _complete()
    return getattr(sharding, name)


def _names_of_sharding(sharding: Any) -> list[str]:
    _complete()
    return dir(sharding)


def _complete() -> None:
    _of_shardings()
    for name in ("__getattr__", "__dir__"):
        if name in vars(xla.SingleDeviceSharding):  # no other thread was quicker
            delattr(xla.SingleDeviceSharding, name)


def _same_place(sharding: Any, other: Any) -> bool:
    """Whether two shardings say one device and kind of memory; C++ compares them so by itself."""
    return sharding is other or (type(other) is xla.SingleDeviceSharding and sharding._device == other._device
                                 and sharding._memory_kind == other._memory_kind)


@boundary
def _item(array: Any, *args: Any) -> Any:
    """The one element, or the element at an index, as a Python scalar."""
    return host_value(array).item(*args)


_install()
platforms.configure(aval_class=ShapedArray)
