"""Meshes: grids of devices with named axes.

A `Mesh` is a grid of devices, an `AbstractMesh` a grid without devices. Both are interned, because jaxlib's C++ call path
compares meshes by identity: equal meshes are one object, and its hash is that of an address.

Each axis has a type. `Auto`: XLA chooses the sharding along it. `Explicit`: the sharding is part of a value's type.
`Manual`: the program is written per device, inside `shard_map`.

This module also has the context meshes, thread-local states that are part of each call's key. A bare `PartitionSpec` refers
to them. `concrete_context` is the mesh of `set_mesh`, on which programs run. `abstract_context` is the mesh of a trace if
it differs (`use_abstract_mesh`, and `shard_map`, which makes axes manual). `entered_context` is the mesh of `with mesh:`,
which is older and only used by constraints.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import enum
import math
import threading
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from jaxlite.core import config, source
from jaxlite.core.aval import Ints, layouts
from jaxlite.core.filtering import boundary
from lowering import platforms, xla


class AxisType(enum.Enum):
    """What determines shardings along a mesh axis: XLA (Auto), types (Explicit), or per-device code (Manual)."""

    Auto = enum.auto()
    Explicit = enum.auto()
    Manual = enum.auto()

    def __repr__(self) -> str:
        return self.name


@dataclasses.dataclass(frozen=True, slots=True)
class AbstractDevice:
    """The kind of devices of an abstract mesh."""

    device_kind: str
    num_cores: int | None
    platform: str

    def __repr__(self) -> str:
        return f"AbstractDevice({', '.join(self._parts())})"

    def _parts(self) -> list[str]:
        return [f"{name}={value}" for name, value in dataclasses.asdict(self).items()]


_lock = threading.Lock()
_entered = threading.local()  # per thread, what was set before each mesh that a `with` statement has entered
_interned: weakref.WeakValueDictionary[Any, Any] = weakref.WeakValueDictionary()


class _Grid:
    """What both kinds of meshes answer from the names, sizes and types of their axes alone."""

    __slots__ = ("axis_sizes", "axis_names", "axis_types", "shape", "size", "__weakref__")
    axis_sizes: Ints
    axis_names: tuple[Any, ...]
    axis_types: tuple[AxisType, ...]
    shape: collections.OrderedDict[Any, int]
    size: int

    def _fill(self, sizes: tuple[int, ...], names: tuple[Any, ...], types: tuple[AxisType, ...], **more: Any) -> None:
        more.update(axis_sizes=sizes, axis_names=names, axis_types=types, size=math.prod(sizes) if names else 0,
                    shape=collections.OrderedDict(zip(names, sizes, strict=True)))
        for name, value in more.items():
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"cannot assign to field {name!r}")  # of all that share this mesh

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"cannot delete field {name!r}")

    @property
    def shape_tuple(self) -> tuple[tuple[Any, int], ...]:
        """Pairs of each axis' name and size."""
        return tuple(self.shape.items())

    @property
    def empty(self) -> bool:
        """Whether there are no axes."""
        return not self.axis_names

    def _of_type(self, kind: AxisType) -> tuple[Any, ...]:
        return tuple(name for name, each in zip(self.axis_names, self.axis_types, strict=True) if each is kind)

    @property
    def auto_axes(self) -> tuple[Any, ...]:
        return self._of_type(AxisType.Auto)

    @property
    def explicit_axes(self) -> tuple[Any, ...]:
        return self._of_type(AxisType.Explicit)

    @property
    def manual_axes(self) -> tuple[Any, ...]:
        return self._of_type(AxisType.Manual)

    _any_axis_explicit = property(lambda self: bool(self.explicit_axes))  # libraries ask for these by name
    _any_axis_manual = property(lambda self: bool(self.manual_axes))
    _any_axis_auto = property(lambda self: bool(self.auto_axes))

    @property
    def are_all_axes_auto(self) -> bool:
        return all(each is AxisType.Auto for each in self.axis_types)

    @property
    def are_all_axes_explicit(self) -> bool:
        return bool(self.axis_types) and all(each is AxisType.Explicit for each in self.axis_types)

    @property
    def are_all_axes_manual(self) -> bool:
        return bool(self.axis_types) and all(each is AxisType.Manual for each in self.axis_types)

    def _axes_text(self) -> str:
        return ", ".join(f"{name!r}: {size}" for name, size in self.shape.items()) or "()"

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, memo: Any) -> Any:
        return self


def _axis_types(given: Any, names: tuple[Any, ...], what: str, default: AxisType = AxisType.Auto) -> tuple[AxisType, ...]:
    if given is None:
        return (default,) * len(names)
    types = tuple(given) if isinstance(given, (tuple, list)) else (given,) * (len(names) if isinstance(given, AxisType) else 1)
    if not all(isinstance(each, AxisType) for each in types):
        raise TypeError(f"axis_types passed to {what} must be of type `jax.sharding.AxisType`. Got {types} of type "
                        f"{tuple(map(type, types))}")
    if len(types) != len(names):
        raise ValueError(f"Number of axis names should match the number of axis_types. Got axis_names={names} and "
                         f"axis_types={types}")
    return types


class Mesh(_Grid, contextlib.ContextDecorator):
    """Devices in a grid whose axes have names; immutable, and one object for equal arguments.

    Args:
      devices: an array (or nested list) of devices.
      axis_names: a name for each axis of the grid; strings, or anything hashable.
      axis_types: an `AxisType` for each axis; by default all are `Auto`.

    Used in a `with` statement it is the mesh that a bare `PartitionSpec` of `with_sharding_constraint` refers to; `set_mesh`
    sets it for everything.
    Raises: ValueError if the grid has another number of axes than there are names, or a name twice.

    >>> import jaxlite as jax
    >>> mesh = jax.sharding.Mesh(jax.devices()[:1], ("data",))
    >>> mesh
    Mesh(axis_sizes=(1,), axis_names=('data',), axis_types=(Auto,))
    >>> mesh is jax.sharding.Mesh(jax.devices()[:1], ("data",))
    True
    """

    __slots__ = ("devices", "_internal_device_list", "_abstract")
    devices: np.ndarray
    _internal_device_list: Any
    _abstract: AbstractMesh | None

    def __new__(cls, devices: Any, axis_names: Any, axis_types: Any = None) -> Mesh:
        grid = devices if isinstance(devices, np.ndarray) else _grid_of(devices)
        if isinstance(axis_names, str):
            axis_names = (axis_names,)
        names = tuple(axis_names)
        if any(name is None for name in names):
            raise ValueError(f"Mesh axis names cannot be None. Got: {names}")
        if grid.ndim != len(names):
            raise ValueError("Mesh requires the ndim of its first argument (`devices`) to equal the length of its second "
                             f"argument (`axis_names`), but got devices.ndim == {grid.ndim} and len(axis_names) == "
                             f"{len(names)}.")
        if len(set(names)) != len(names):
            raise ValueError(f"the names of a mesh's axes must differ, got {names}")
        types = _axis_types(axis_types, names, "Mesh")
        if not names and grid.item() is None:
            return empty_mesh()
        flat = tuple(grid.flat)
        for device in flat:
            if not isinstance(device, xla.Device):
                raise TypeError(f"a mesh consists of devices (jax.devices()), got {device!r}")
        if len(set(flat)) != len(flat):
            raise ValueError(f"a device can be in a mesh only once, got {list(flat)}")
        key = (Mesh, flat, grid.shape, names, types)
        with _lock:
            found = _interned.get(key)
            if found is None:
                found = object.__new__(cls)
                held = grid.copy()
                held.flags.writeable = False
                found._fill(grid.shape, names, types, devices=held, _internal_device_list=xla.DeviceList(flat), _abstract=None)
                _interned[key] = found
        return found

    @property
    def device_ids(self) -> np.ndarray:
        """The ids of the devices, in the form of the grid."""
        return np.array([device.id for device in self.devices.flat]).reshape(self.devices.shape)

    @property
    def is_multi_process(self) -> bool:
        """Whether devices of other processes are part of it."""
        return len({device.process_index for device in self.devices.flat}) > 1

    @property
    def local_devices(self) -> list[Any]:
        """The devices that this process owns."""
        return [device for device in self.devices.flat if device.process_index == device.client.process_index()]

    @property
    def local_mesh(self) -> Mesh:
        """The part that this process owns.

        Raises: ValueError if its devices are not a block of the grid.
        """
        local = np.vectorize(lambda device: device.process_index == device.client.process_index(), otypes=[bool])(self.devices)
        if local.all():
            return self
        where = np.nonzero(local)
        block = tuple(slice(int(axis.min()), int(axis.max()) + 1) for axis in where)
        if not where[0].size or not local[block].all():
            raise ValueError("the devices of this process are not a contiguous block of the mesh")
        return Mesh(self.devices[block], self.axis_names, self.axis_types)

    @property
    def abstract_mesh(self) -> AbstractMesh:
        """The same grid without its devices."""
        if self._abstract is None:
            device = None
            if self.size:
                first = self.devices.flat[0]
                device = AbstractDevice(first.device_kind, getattr(first, "num_cores", None), first.platform)
            object.__setattr__(self, "_abstract", AbstractMesh(self.axis_sizes, self.axis_names, self.axis_types,
                                                               abstract_device=device))
        assert self._abstract is not None
        return self._abstract

    def update(self, devices: Any = None, axis_names: Any = None, axis_types: Any = None) -> Mesh:
        """A mesh with some of its parts replaced."""
        return Mesh(self.devices if devices is None else devices, self.axis_names if axis_names is None else axis_names,
                    self.axis_types if axis_types is None else axis_types)

    def __enter__(self) -> Mesh:
        if config.disallow_mesh_context_manager.value:
            raise RuntimeError("Mesh context manager is disabled. Use jax.set_mesh")
        source.warn("`with mesh:` is deprecated. Use `with jax.set_mesh(mesh):`.", DeprecationWarning)
        _entered.__dict__.setdefault("previous", []).append(entered_context.swap_local(self))
        return self

    def __exit__(self, *exc: Any) -> None:
        entered_context.set_local(_entered.previous.pop())

    def __repr__(self) -> str:
        if self.empty:
            return "Mesh(axis_sizes=(), axis_names=())"
        return f"Mesh(axis_sizes={self.axis_sizes}, axis_names={self.axis_names}, axis_types={self.axis_types})"

    def __str__(self) -> str:
        return f"Mesh({self._axes_text()}, axis_types={self.axis_types})" if self.axis_names else "Mesh()"

    def __reduce__(self) -> Any:
        return _restore, (tuple((device.platform, device.id) for device in self.devices.flat), self.devices.shape,
                          self.axis_names, self.axis_types)


def _grid_of(devices: Any) -> np.ndarray:
    return np.array(list(devices) if isinstance(devices, Sequence) else devices, dtype=object)


def _restore(ids: tuple[tuple[str, int], ...], shape: Ints, names: tuple[Any, ...], types: Any) -> Mesh:
    """For pickle: the mesh of the devices with these ids in this process."""
    here = {(device.platform, device.id): device for platform in {platform for platform, _ in ids}
            for device in platforms.client(platforms.canonical_name(platform)).devices()}
    missing = [each for each in ids if each not in here]
    if missing:
        raise ValueError(f"the mesh was made with devices that are not here: {missing}")
    return Mesh(np.array([here[each] for each in ids], dtype=object).reshape(shape), names, types)


_ABSTRACT_TYPE = AxisType.Explicit if xla.VERSION >= (0, 11) else AxisType.Auto


class AbstractMesh(_Grid):
    """A mesh without devices: the names, sizes and types of its axes; one object for equal arguments.

    Args:
      axis_sizes, axis_names: for each axis.
      axis_types: an `AxisType` for each axis, or one for all; by default, as in JAX of the same jaxlib, `Auto` with 0.10 and
        `Explicit` since 0.11.
      abstract_device: the kind of its devices, if that matters.

    >>> import jaxlite as jax
    >>> jax.sharding.AbstractMesh((2, 4), ("x", "y"), (jax.sharding.AxisType.Auto,) * 2)
    AbstractMesh('x': 2, 'y': 4, axis_types=(Auto, Auto))
    """

    __slots__ = ("abstract_device", "_internal_device_list")
    abstract_device: AbstractDevice | None
    _internal_device_list: None

    def __new__(cls, axis_sizes: Any, axis_names: Any, axis_types: Any = None, *,
                abstract_device: AbstractDevice | None = None) -> AbstractMesh:
        if isinstance(axis_names, str):
            axis_names = (axis_names,)
        sizes, names = tuple(int(size) for size in axis_sizes), tuple(axis_names)
        if len(sizes) != len(names):
            raise ValueError("Number of axis sizes should match the number of axis_names. Got "
                             f"axis_sizes={sizes} and axis_names={names}")
        if len(set(names)) != len(names):
            raise ValueError(f"the names of a mesh's axes must differ, got {names}")
        types = _axis_types(axis_types, names, "AbstractMesh", _ABSTRACT_TYPE)
        key = (AbstractMesh, sizes, names, types, abstract_device)
        with _lock:
            found = _interned.get(key)
            if found is None:
                found = object.__new__(cls)
                # What C++ takes for "no devices" is a list that is None.
                found._fill(sizes, names, types, abstract_device=abstract_device, _internal_device_list=None)
                _interned[key] = found
        return found

    @property
    def abstract_mesh(self) -> AbstractMesh:
        return self

    def _without_devices(what: str) -> Any:  # type: ignore[misc]
        def refuse(self: AbstractMesh) -> Any:
            raise ValueError(f"AbstractMesh does not implement {what}: it has no devices. Use a Mesh")

        return refuse

    devices = property(_without_devices("devices"))
    device_ids = property(_without_devices("device_ids"))
    local_devices = property(_without_devices("local_devices"))
    local_mesh = property(_without_devices("local_mesh"))
    is_multi_process = property(_without_devices("is_multi_process"))
    __enter__ = _without_devices("__enter__")
    del _without_devices

    def __exit__(self, *exc: Any) -> None:
        pass

    def update(self, axis_sizes: Any = None, axis_names: Any = None, axis_types: Any = None, *,
               abstract_device: AbstractDevice | None = None) -> AbstractMesh:
        """A mesh with some of its parts replaced."""
        return AbstractMesh(self.axis_sizes if axis_sizes is None else axis_sizes,
                            self.axis_names if axis_names is None else axis_names,
                            self.axis_types if axis_types is None else axis_types,
                            abstract_device=abstract_device or self.abstract_device)

    def update_axis_types(self, name_to_type: dict[Any, AxisType]) -> AbstractMesh:
        """A mesh in which some axes have other types."""
        return self.update(axis_types=tuple(name_to_type.get(name, kind)
                                            for name, kind in zip(self.axis_names, self.axis_types, strict=True)))

    def __repr__(self) -> str:
        device = self.abstract_device
        kind = "" if device is None else "".join(f", {part}" for part in device._parts())
        return f"AbstractMesh({self._axes_text()}, axis_types={self.axis_types}{kind})"

    def __reduce__(self) -> Any:
        return _restore_abstract, (self.axis_sizes, self.axis_names, self.axis_types, self.abstract_device)


def _restore_abstract(sizes: Any, names: Any, types: Any, device: Any) -> AbstractMesh:
    return AbstractMesh(sizes, names, types, abstract_device=device)


@boundary
def make_mesh(axis_sizes: Sequence[int] = (), axis_names: Sequence[Any] = (), axis_types: Any = None, *,
              devices: Sequence[Any] | None = None, axis_shapes: Sequence[int] | None = None) -> Mesh:
    """A mesh of the first available devices.

    Args:
      axis_sizes: the size of each axis.
      axis_names: a name for each axis.
      axis_types: an `AxisType` for each axis; by default all are `Explicit`.
      devices: which devices; by default those of the default platform.
      axis_shapes: the name of `axis_sizes` in JAX before 0.12.
    Raises: ValueError if there are too few devices.

    >>> import jaxlite as jax
    >>> print(jax.make_mesh((1, 1), ("data", "model")))
    Mesh('data': 1, 'model': 1, axis_types=(Explicit, Explicit))
    """
    axis_sizes = axis_sizes if axis_shapes is None else axis_shapes
    shape = (axis_sizes,) if isinstance(axis_sizes, int) else tuple(int(size) for size in axis_sizes)
    names = (axis_names,) if isinstance(axis_names, str) else tuple(axis_names)
    available = list(platforms.client().devices() if devices is None else devices)
    wanted = math.prod(shape)
    if devices is not None and len(available) != wanted or wanted > len(available):
        raise ValueError(f"Number of devices {len(available)} must be {'equal to' if devices is not None else '>='} the "
                         f"product of mesh_shape {shape}")
    grid = np.array(available[:wanted], dtype=object).reshape(shape)
    types = _axis_types(axis_types, names, "make_mesh", AxisType.Explicit) if len(shape) == len(names) else None
    return Mesh(grid, names, types)


# --- the mesh of the context -------------------------------------------------------------------------

concrete_context = config.context_mesh
abstract_context = config.context_abstract_mesh
entered_context = config.entered_mesh


def empty_mesh() -> Mesh:
    """The mesh without axes and devices."""
    global _empty
    if _empty is None:
        _empty = object.__new__(Mesh)
        _empty._fill((), (), (), devices=np.empty((), dtype=object), _internal_device_list=None, _abstract=AbstractMesh((), ()))
    return _empty


_empty: Any = None


def get_mesh() -> Mesh:
    """The mesh of `set_mesh`; the empty mesh if none is set.

    Raises: ValueError while a function is traced: a program knows `get_abstract_mesh()` alone.
    """
    if config.tracing.state.value:
        raise ValueError("get_mesh() can be used outside of jit only; use get_abstract_mesh() inside")
    return context_mesh()


def context_mesh() -> Mesh:
    """The concrete mesh of the context, also inside a trace; the empty one if there is none."""
    found = concrete_context.value
    return empty_mesh() if found is None else found


def get_abstract_mesh() -> AbstractMesh:
    """The current mesh of tracing, without devices; the empty mesh if none is set."""
    found = abstract_context.value
    if found is not None:
        return found
    concrete = concrete_context.value
    return AbstractMesh((), ()) if concrete is None else concrete.abstract_mesh


class set_mesh:
    """Set the mesh for `PartitionSpec`s without a mesh: permanently, or inside a `with` block.

    Args: `mesh` a Mesh; None takes the mesh of this thread away.

    >>> import jaxlite as jax
    >>> with jax.set_mesh(jax.make_mesh((1,), ("x",))):
    ...     print(jax.sharding.get_mesh())
    Mesh('x': 1, axis_types=(Explicit,))
    """

    __slots__ = ("_previous",)

    def __init__(self, mesh: Mesh | None):
        if mesh is not None and not isinstance(mesh, Mesh):
            raise ValueError(f"Expected mesh of type `jax.sharding.Mesh`. Got type {type(mesh)}")
        if config.tracing.state.value:
            raise ValueError("set_mesh can be used outside of jit only; use use_abstract_mesh inside")
        layouts.exist = layouts.exist or mesh is not None and bool(mesh.explicit_axes)
        self._previous = concrete_context.swap_local(None if mesh is None or mesh.empty else mesh)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: Any) -> None:
        concrete_context.set_local(self._previous)


use_mesh = set_mesh


@contextlib.contextmanager
def use_abstract_mesh(mesh: AbstractMesh) -> Iterator[None]:
    """Trace under an abstract mesh inside a `with` block."""
    if not isinstance(mesh, AbstractMesh):
        raise ValueError(f"Expected mesh of type `jax.sharding.AbstractMesh`. Got type {type(mesh)}")
    layouts.exist = layouts.exist or bool(mesh.explicit_axes)
    previous = abstract_context.swap_local(mesh)
    try:
        yield
    finally:
        abstract_context.set_local(previous)
