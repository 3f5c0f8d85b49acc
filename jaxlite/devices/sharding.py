"""Shardings: how the axes of an array are split over the axes of a mesh.

`PartitionSpec` (`P`) gives, for each axis of an array, the mesh axes that split it; `NamedSharding` is a mesh with a spec.
The class is jaxlib's (its C++ reads the mesh and the spec). This module adds Python methods, and the checks that XLA does
not make: an uneven split is an error, since XLA would silently not split the axis.

`spec_of` reads a sharding that XLA chose; `lowering.partitioning` writes Shardy's form.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import operator
from collections.abc import Iterator, Sequence
from types import NoneType
from typing import Any

import numpy as np

from jaxlite.core.aval import Ints, MemorySpace, UnreducedKind, kind_of_parts  # noqa: F401  a part of what is said of places
from jaxlite.devices.mesh import (
    AbstractMesh,
    AxisType,
    Mesh,
    abstract_context,
    context_mesh,
    entered_context,
    get_abstract_mesh,
)
from lowering import xla

Sharding = xla.Sharding
NamedSharding = xla.NamedSharding
NamedSharding.__doc__ = """How an array is split over a mesh of devices: `NamedSharding(mesh, PartitionSpec("x", None))`.

    Args:
      mesh: a `Mesh` or an `AbstractMesh`.
      spec: for each array axis the mesh axes along which it is cut: a name, a tuple of names, or None for whole.
      memory_kind: of the devices' memories; None for the default.
    """
SingleDeviceSharding = xla.SingleDeviceSharding


class DuplicateSpecError(Exception):
    """A mesh axis is assigned to two axes of an array."""


class IndivisibleError(ValueError):
    """An axis of an array cannot be cut into equal parts."""


class _Unconstrained:
    def __repr__(self) -> str:
        return "UNCONSTRAINED"

    def __reduce__(self) -> Any:
        return "UNCONSTRAINED"


UNCONSTRAINED = _Unconstrained()


class PartitionSpec:
    """The mesh axes that split each axis of an array. Also called `P`.

    Args:
      partitions: for each axis of the array a mesh axis, a tuple of them, None (not cut), or `P.UNCONSTRAINED` (XLA may
        choose). Axes beyond the last one given are not cut.
      unreduced: mesh axes over which the value is still to be summed.
      reduced: mesh axes over which its cotangent will be.
      unreduced_kind: an `UnreducedKind`, for maxima or minima in place of sums.
    Raises: TypeError for arguments of other types; ValueError for an axis that is named twice, or a kind without such axes.

    >>> from jaxlite import P
    >>> P(None, ("x", "y")), P(("x",)), len(P("x", None))
    (P(None, ('x', 'y')), P('x',), 2)
    """

    __slots__ = ("_partitions", "unreduced", "reduced", "unreduced_kind", "_hash")
    UNCONSTRAINED = UNCONSTRAINED
    _partitions: tuple[Any, ...]
    unreduced: frozenset[Any]
    reduced: frozenset[Any]
    unreduced_kind: UnreducedKind | None
    _hash: int

    def __new__(cls, *partitions: Any, unreduced: Any = frozenset(), reduced: Any = frozenset(),
                unreduced_kind: UnreducedKind | None = None) -> PartitionSpec:
        self = object.__new__(cls)
        self._partitions = tuple(map(_canonical, partitions))
        self.unreduced, self.reduced = frozenset(unreduced), frozenset(reduced)
        self.unreduced_kind = kind_of_parts(self.unreduced, unreduced_kind)
        self._hash = hash((self._partitions, self.unreduced, self.reduced))
        if not isinstance(unreduced, (set, frozenset)) or not isinstance(reduced, (set, frozenset)):
            raise TypeError(f"unreduced and reduced must be sets of names, got {unreduced!r} and {reduced!r}")
        if unreduced or reduced:
            for what, axes in (("unreduced", self.unreduced), ("reduced", self.reduced)):
                if not axes.isdisjoint(used_axes(self)):
                    raise ValueError(f"partitions cannot overlap with {what} axes passed to PartitionSpec. Got partitions: "
                                     f"{self._partitions} and {what} axes: {axes}")
            if self.unreduced & self.reduced:
                raise ValueError("unreduced and reduced axes passed to PartitionSpec cannot overlap. Got "
                                 f"{self.unreduced} and {self.reduced}")
        return self

    @property
    def partitions(self) -> tuple[Any, ...]:
        """The entry for each axis."""
        return self._partitions

    def __iter__(self) -> Iterator[Any]:
        return iter(self._partitions)

    def __len__(self) -> int:
        return len(self._partitions)

    def __getitem__(self, index: Any) -> Any:
        return self._partitions[index]

    def __eq__(self, other: Any) -> bool:
        return self is other or (type(other) is PartitionSpec and self._partitions == other._partitions
                                 and self.unreduced == other.unreduced and self.reduced == other.reduced
                                 and self.unreduced_kind is other.unreduced_kind)

    def __hash__(self) -> int:
        return self._hash

    def __add__(self, other: Any) -> PartitionSpec:
        if isinstance(other, PartitionSpec):
            kinds = {each.unreduced_kind for each in (self, other) if each.unreduced}
            if len(kinds) > 1:
                raise TypeError(f"the unreduced_kind of PartitionSpecs to be added differs: {self} and {other}")
            return PartitionSpec(*self, *other, unreduced=self.unreduced | other.unreduced,
                                 reduced=self.reduced | other.reduced, unreduced_kind=next(iter(kinds), None))
        if not isinstance(other, tuple):
            return NotImplemented
        return self.update(partitions=(*self, *other))

    def __radd__(self, other: Any) -> PartitionSpec:
        return self.update(partitions=(*other, *self)) if isinstance(other, tuple) else NotImplemented

    def index(self, value: Any) -> int:
        return self._partitions.index(_canonical(value))

    def count(self, value: Any) -> int:
        return self._partitions.count(_canonical(value))

    def update(self, partitions: Any = None, unreduced: Any = None, reduced: Any = None,
               **kind: UnreducedKind | None) -> PartitionSpec:
        """A spec with some of its parts replaced. `unreduced_kind` stays as long as there are unreduced axes."""
        unreduced = self.unreduced if unreduced is None else unreduced
        return PartitionSpec(*(self if partitions is None else partitions), unreduced=unreduced,
                             reduced=self.reduced if reduced is None else reduced,
                             **{"unreduced_kind": self.unreduced_kind if unreduced else None} | kind)

    def __repr__(self) -> str:
        comma = "," if len(self) == 1 and not (self.unreduced or self.reduced) else ""
        parts = [", ".join(map(repr, self._partitions)) + comma] if self._partitions else []
        parts += [f"{name}={{{', '.join(sorted(map(repr, axes)))}}}"
                  for name, axes in (("unreduced", self.unreduced), ("reduced", self.reduced)) if axes]
        if self.unreduced_kind is not None and xla.VERSION >= (0, 11):  # as JAX of the same jaxlib
            parts.append(f"unreduced_kind={self.unreduced_kind.name}")
        return f"P({', '.join(parts)})"

    def __reduce__(self) -> Any:
        return _restore_spec, (self._partitions, self.unreduced, self.reduced, self.unreduced_kind)


def _restore_spec(partitions: Any, unreduced: Any, reduced: Any, kind: UnreducedKind | None = None) -> PartitionSpec:
    return PartitionSpec(*partitions, unreduced=unreduced, reduced=reduced, unreduced_kind=kind)


P = PartitionSpec


def _canonical(partition: Any) -> Any:
    """One mesh axis by itself rather than in a tuple, none of them as None."""
    if isinstance(partition, (list, tuple)):
        if any(isinstance(name, (list, tuple)) for name in partition):
            raise ValueError(f"A tuple inside PartitionSpec cannot contain a nested tuple. Got partition: {partition}")
        return None if not partition else partition[0] if len(partition) == 1 else tuple(partition)
    return partition


def axes_of(partition: Any) -> tuple[Any, ...]:
    """The mesh axes that one entry of a spec names."""
    if partition is None or partition is UNCONSTRAINED:
        return ()
    return partition if isinstance(partition, tuple) else (partition,)


def used_axes(spec: PartitionSpec) -> list[Any]:
    """All mesh axes along which a spec cuts, in order."""
    return [name for partition in spec for name in axes_of(partition)]


def _check(mesh: Any, spec: Any) -> None:
    """Check a new `NamedSharding`; C++ calls this for each."""
    if type(spec) is PartitionSpec and isinstance(mesh, (Mesh, AbstractMesh)):
        _check_names(mesh, spec)
    elif mesh is not _NO_MESH:
        raise TypeError(f"NamedSharding takes a Mesh or an AbstractMesh, got {mesh!r}" if type(spec) is PartitionSpec else
                        f"NamedSharding takes a mesh and a PartitionSpec, got the spec {spec!r}: write P{spec!r}"
                        if isinstance(spec, tuple) else f"NamedSharding takes a mesh and a PartitionSpec, got {spec!r}")


@functools.lru_cache(4096)
def _check_names(mesh: Mesh | AbstractMesh, spec: PartitionSpec) -> None:
    seen, summed = set(), (*spec.unreduced, *spec.reduced)
    if PartitionSpec.UNCONSTRAINED in spec and AxisType.Auto not in mesh.axis_types:
        raise ValueError(f"{spec} cannot contain `P.UNCONSTRAINED` when no mesh axis_types are `Auto`. Got mesh axis_types: "
                         f"{mesh.axis_types}")
    for name in (*used_axes(spec), *summed):
        if name not in mesh.shape:
            raise ValueError(f"Resource axis: {name} of {spec} is not found in mesh: {mesh.axis_names}.")
        if name in seen:
            raise DuplicateSpecError("A single NamedSharding spec specification can map every mesh axis to at most one "
                                     f"positional dimension, but {spec} has duplicate entries for `{name}`")
        seen.add(name)
    for what, axes in (("Unreduced", spec.unreduced), ("Reduced", spec.reduced)) if summed else ():
        if any(mesh.axis_types[mesh.axis_names.index(name)] is AxisType.Auto for name in axes):
            raise ValueError(f"{what} axes can only refer to mesh axes that is of type `Explicit`. Got {what.lower()} axes: "
                             f"{axes} and mesh: {mesh}")


class _NoMesh:
    size, _internal_device_list = 1, None


_NO_MESH = _NoMesh()


# --- what a sharding does to a shape -----------------------------------------------------------------


def tiling(sharding: Any, ndim: int) -> Ints:
    """Into how many parts each axis of an array is cut."""
    sizes, spec = sharding.mesh.shape, sharding.spec
    cut = [math.prod(sizes[name] for name in axes_of(partition)) for partition in spec[:ndim]]
    return tuple(cut) + (1,) * (ndim - len(cut))


@functools.lru_cache(4096)
def _hlo_of(mesh: Any, spec: PartitionSpec, ndim: int) -> Any:
    used = [axes_of(partition) for partition in (*spec[:ndim], *[None] * (ndim - len(spec)))]
    dims = [math.prod(mesh.shape[name] for name in names) for names in used]
    if math.prod(dims) == 1:
        return xla.HloSharding.replicate()
    places = {name: index for index, name in enumerate(mesh.axis_names)}
    order = [places[name] for names in used for name in names]
    rest = [index for index in range(len(places)) if index not in order]
    return xla.tiled_sharding(dims, mesh.axis_sizes, order + rest, mesh.size // math.prod(dims))


def _to_hlo(sharding: Any, ndim: int) -> Any:
    return _hlo_of(sharding.mesh, sharding.spec, ndim)


xla.prime_named_sharding(_check, _to_hlo, _NO_MESH)


def check_no_manual(sharding: Any) -> None:
    """Raises ValueError if a NamedSharding names axes along which the program is written for one device."""
    manual = get_abstract_mesh().manual_axes
    for name in used_axes(sharding.spec) if manual else ():
        if name in manual:
            raise ValueError(f"Axis: {name} of {sharding.spec} is also found in manual_axes: {manual}. Inside shard_map a "
                             "value is the part that one device has along these axes")


def check_shape(sharding: Any, shape: Ints, what: str = "") -> None:
    """Raises if an array of this shape cannot have the sharding: too few axes, or one that is not cut evenly.

    Args: `what` names the array for the message.
    """
    if type(sharding) is not NamedSharding:
        return
    check_rank(sharding, shape, what)
    if not sharding.mesh.size and not sharding.mesh.empty:
        raise ValueError(f"{sharding} is over a mesh without devices")
    cut = tiling(sharding, len(shape))
    for axis, (size, parts) in enumerate(zip(shape, cut, strict=True)):
        if size % parts:
            named = xla.VERSION >= (0, 11)  # as JAX of the same jaxlib says it
            where = "Sharding " if not named else f"{what} was given the sharding " if what else ""
            raise IndivisibleError(f"{where}{sharding} implies that array axis {axis} is partitioned {parts} times, but the "
                                   f"dimension size is {size} (full shape: {shape}, per-dimension tiling factors: "
                                   f"{cut if named else list(cut)} should evenly divide the shape)")


def without_rest(sharding: Any, ndim: int) -> Any:
    """The sharding without what its spec says of more axes than an array has, if that cuts nothing."""
    if type(sharding) is not NamedSharding or len(sharding.spec) <= ndim or used_axes(sharding.spec[ndim:]):
        return sharding
    return sharding.update(spec=sharding.spec.update(partitions=sharding.spec.partitions[:ndim]))


def check_rank(sharding: Any, shape: Sequence[int], what: str = "") -> None:
    """Raises ValueError if a sharding names more axes than a shape has. Args: `what` names the array for the message."""
    if type(sharding) is NamedSharding and len(sharding.spec) > len(shape):
        where = f"{what} is incompatible with its sharding annotation {sharding}: " if what else ""
        scalar = "" if shape else " For scalars the PartitionSpec should be P()"
        raise ValueError(f"{where}Sharding {sharding} is only valid for values of rank at least {len(sharding.spec)}, but was "
                         f"applied to a value of rank {len(shape)}.{scalar}")


@functools.lru_cache(4096)
def _slices(mesh: Mesh, spec: PartitionSpec, shape: Ints) -> tuple[tuple[slice, ...], ...]:
    """For each device of the mesh in order, the part of an array of this shape that it holds."""
    sizes = dict(mesh.shape)
    whole = slice(None)
    found = []
    for place in np.ndindex(*mesh.axis_sizes):
        position = dict(zip(mesh.axis_names, place, strict=True))
        part = []
        for axis, size in enumerate(shape):
            names = axes_of(spec[axis]) if axis < len(spec) else ()
            parts = math.prod(sizes[name] for name in names)
            if parts == 1:
                part.append(whole)
                continue
            index = 0
            for name in names:
                index = index * sizes[name] + position[name]
            step = size // parts
            part.append(slice(index * step, (index + 1) * step))
        found.append(tuple(part))
    return tuple(found)


def slices(sharding: Any, shape: Ints) -> tuple[tuple[slice, ...], ...]:
    """For each device in order, the part of an array of this shape that it holds: an index of the array.

    Raises: as `check_shape`, but the spec may go on beyond the last axis with what cuts nothing.
    """
    if type(sharding) is not NamedSharding:
        return ((slice(None),) * len(shape),)
    check_shape(without_rest(sharding, len(shape)), shape)
    return _slices(sharding.mesh, sharding.spec, shape)


def _num_devices(sharding: Any) -> int:
    return 1 if type(sharding) is SingleDeviceSharding else sharding.mesh.size


def devices_of(sharding: Any) -> tuple[Any, ...]:
    """The devices of a sharding, in the order of its shards. Raises: ValueError for a mesh without devices."""
    if type(sharding) is SingleDeviceSharding:
        return (sharding._device,)
    if isinstance(sharding.mesh, AbstractMesh):
        raise ValueError(f"{sharding} is over a mesh without devices: arrays cannot be put there. Use a Mesh")
    return _flat(sharding.mesh)


def lacks_devices(sharding: Any) -> bool:
    """Whether a sharding is over a mesh without devices."""
    return type(sharding) is NamedSharding and isinstance(sharding.mesh, AbstractMesh)


def on_devices(sharding: Any, devices: Sequence[Any]) -> Any:
    """A sharding over a mesh without devices, over these in its place; others are what they are."""
    if not lacks_devices(sharding):
        return sharding
    mesh = sharding.mesh
    return sharding.update(mesh=Mesh(np.array(devices).reshape(mesh.axis_sizes), mesh.axis_names, axis_types=mesh.axis_types))


@functools.lru_cache(64)
def _flat(mesh: Mesh) -> tuple[Any, ...]:
    return tuple(mesh.devices.flat)


@functools.lru_cache(64)
def _local(mesh: Mesh) -> tuple[Any, ...]:
    return tuple(filter(is_local, _flat(mesh)))


def local_devices(sharding: Any) -> tuple[Any, ...]:
    """The devices of a sharding that this process owns, in order."""
    return tuple(filter(is_local, devices_of(sharding))) if type(sharding) is SingleDeviceSharding else _local(sharding.mesh)


@functools.lru_cache(4096)
def normalized(spec: PartitionSpec, mesh: Any) -> tuple[Any, ...]:
    """A spec's partitions without what cuts nothing: axes of size one, and None at the end."""
    kept = [_canonical([name for name in axes_of(partition) if mesh.shape[name] > 1]) for partition in spec]
    while kept and kept[-1] is None:
        kept.pop()
    return tuple(kept)


def is_equivalent(a: Any, b: Any, ndim: int) -> bool:
    """Whether two shardings put the same parts of an array on the same devices."""
    if a is b or a == b:
        return True
    if type(a) is SingleDeviceSharding or type(b) is SingleDeviceSharding:
        one, other = (a, b) if type(a) is SingleDeviceSharding else (b, a)
        return (other.memory_kind == one.memory_kind and other.num_devices == 1
                and devices_of(other)[0] == one._device)
    if (a.spec.unreduced, a.spec.unreduced_kind) != (b.spec.unreduced, b.spec.unreduced_kind):
        return False
    if a.mesh is b.mesh and a.memory_kind == b.memory_kind and normalized(a.spec, a.mesh) == normalized(b.spec, b.mesh):
        return True
    return (a.memory_kind == b.memory_kind and a._internal_device_list == b._internal_device_list
            and a._to_xla_hlo_sharding(ndim) == b._to_xla_hlo_sharding(ndim))


def spec_of(found: Any, mesh: Mesh, ndim: int) -> PartitionSpec | None:
    """The spec over a mesh that says the same as an `HloSharding`; None if there is none."""
    if found.is_replicated() or not ndim:
        return PartitionSpec()
    if not found.is_tiled():
        return None
    dims = found.tile_assignment_dimensions()[:ndim]
    return _search(tuple(found.tile_assignment_devices()), tuple(dims), mesh)


@functools.lru_cache(4096)
def _search(assigned: Ints, dims: Ints, mesh: Mesh) -> PartitionSpec | None:
    names = [name for name, size in mesh.shape.items() if size > 1]
    ndim = len(dims)

    def candidates(parts: int, left: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
        if parts == 1:
            yield ()
            return
        for count in range(1, len(left) + 1):
            for chosen in itertools.permutations(left, count):
                if math.prod(mesh.shape[name] for name in chosen) == parts:
                    yield chosen

    def extend(axis: int, spec: list[Any], left: tuple[Any, ...]) -> PartitionSpec | None:
        if axis == ndim:
            made = PartitionSpec(*spec)
            hlo = _hlo_of(mesh, made, ndim)
            same = not hlo.is_replicated() and _same_parts(hlo, assigned, dims)
            return PartitionSpec(*normalized(made, mesh)) if same else None
        for chosen in candidates(dims[axis], left):
            result = extend(axis + 1, [*spec, chosen], tuple(name for name in left if name not in chosen))
            if result is not None:
                return result
        return None

    return extend(0, [], tuple(names))


def _same_parts(hlo: Any, assigned: Ints, dims: Ints) -> bool:
    """Whether each device holds the same part; those that hold one part may be listed in any order."""
    if tuple(hlo.tile_assignment_dimensions()[:len(dims)]) != dims:
        return False
    parts = math.prod(dims)
    here, there = (np.sort(np.array(ids).reshape(parts, -1), axis=1) for ids in (hlo.tile_assignment_devices(), assigned))
    return here.shape == there.shape and bool((here == there).all())


# --- what users see of a sharding --------------------------------------------------------------------


def named_sharding(spec: Any, complaint: str, error: type[Exception] = RuntimeError, *, or_entered: bool = False) -> Any:
    """A sharding from a sharding or, with the mesh of the context, from a spec. Raises `error` if there is no mesh.

    Args: `or_entered` whether a mesh that `with mesh:` has entered will do.
    """
    if isinstance(spec, PartitionSpec):
        mesh = abstract_context.value or context_mesh()
        if mesh.empty and or_entered:
            mesh = entered_context.value or mesh
        if mesh.empty:
            raise error(complaint)
        return NamedSharding(mesh, spec)
    return spec


def _shard_shape(sharding: Any, global_shape: Any) -> Ints:
    shape = tuple([int(size) if isinstance(size, np.integer) else size for size in global_shape])  # a key, equal to one of ints
    return shape if type(sharding) is SingleDeviceSharding else _part_shape(sharding, shape)


@functools.lru_cache(4096)
def _part_shape(sharding: Any, shape: Ints) -> Ints:
    check_shape(without_rest(sharding, len(shape)), shape)
    return tuple(size // parts for size, parts in zip(shape, tiling(sharding, len(shape)), strict=True))


def _indices_map(sharding: Any, global_shape: Any) -> dict[Any, tuple[slice, ...]]:
    return dict(zip(devices_of(sharding), slices(sharding, tuple(global_shape)), strict=True))


def is_local(device: Any) -> bool:
    """Whether this process owns a device."""
    return device.process_index == device.client.process_index()


def _addressable_indices_map(sharding: Any, global_shape: Any) -> dict[Any, tuple[slice, ...]]:
    return {device: index for device, index in _indices_map(sharding, global_shape).items() if is_local(device)}


def _update(sharding: Any, **kwargs: Any) -> Any:
    return NamedSharding(kwargs.pop("mesh", sharding.mesh), kwargs.pop("spec", sharding.spec),
                         memory_kind=kwargs.pop("memory_kind", sharding.memory_kind), **kwargs)


def _is_replicated(sharding: Any) -> bool:
    return _cuts_nothing(sharding.mesh, sharding.spec)


@functools.lru_cache(4096)
def _cuts_nothing(mesh: Any, spec: PartitionSpec) -> bool:
    return not spec.unreduced and all(mesh.shape[name] == 1 for name in used_axes(spec))


def _is_addressable(sharding: Any) -> bool:
    return len(_local(sharding.mesh)) == sharding.mesh.size if type(sharding.mesh) is Mesh else all(
        map(is_local, devices_of(sharding)))


def _restore_sharding(mesh: Any, spec: Any, memory_kind: Any) -> Any:
    return NamedSharding(mesh, spec, memory_kind=memory_kind)


def _install() -> None:
    for cls in (NamedSharding, SingleDeviceSharding):
        each: Any = cls
        each.device_set = property(lambda self: set(devices_of(self)), doc="The devices that hold parts of an array.")
        each.num_devices = property(_num_devices, doc="How many devices there are.")
        each.addressable_devices = property(lambda self: {device for device in devices_of(self) if is_local(device)},
                                            doc="Those devices that this process owns.")
        each._device_assignment = property(devices_of)
        each._addressable_device_assignment = property(lambda self: tuple(filter(is_local, devices_of(self))))
        each.shard_shape = _shard_shape
        each.devices_indices_map = _indices_map
        each.addressable_devices_indices_map = _addressable_indices_map
        each.is_equivalent_to = lambda self, other, ndim: is_equivalent(self, other, ndim)
        each.check_compatible_aval = lambda self, aval_shape: check_rank(self, aval_shape)
        each.has_addressable_devices = property(lambda self: any(map(is_local, devices_of(self))),
                                                doc="Whether this process owns one of the devices.")
        each.__copy__ = lambda self: self
        each.__deepcopy__ = lambda self, memo: self
    named: Any = NamedSharding
    named.is_fully_replicated = property(_is_replicated, doc="Whether each device holds all of an array.")
    named.is_fully_addressable = property(_is_addressable, doc="Whether this process owns all of the devices.")
    named.replicated_axes = property(lambda self: frozenset(
        name for name in self.mesh.axis_names if name not in used_axes(self.spec)))
    named.with_memory_kind = lambda self, kind: NamedSharding(self.mesh, self.spec, memory_kind=kind)
    named.with_spec = lambda self, spec: _update(self, spec=spec if isinstance(spec, PartitionSpec) else PartitionSpec(*spec))
    named.update = _update
    named.__repr__ = lambda self: (f"NamedSharding(mesh={self.mesh}, spec={self.spec}"
                                   f"{'' if self.memory_kind is None else f', memory_kind={self.memory_kind}'})")
    named.__reduce__ = lambda self: (_restore_sharding, (self.mesh, self.spec, self.memory_kind))
    single: Any = SingleDeviceSharding
    single.with_memory_kind = lambda self, kind: SingleDeviceSharding(self._device, memory_kind=kind)


_install()


def make_single_device_sharding(device: Any, memory_kind: str | None = None) -> Any:
    """The sharding of arrays that live on one device."""
    return SingleDeviceSharding(device, memory_kind=memory_kind)


def is_explicit(sharding: Any) -> bool:
    """Whether a sharding is over a mesh with axes whose layout is part of the types."""
    return type(sharding) is NamedSharding and AxisType.Explicit in sharding.mesh.axis_types


class AutoLayout:
    """`Layout.AUTO`, the one object of this class: the compiler may choose."""

    AUTO: AutoLayout
    is_auto = True

    def __repr__(self) -> str:
        return "AUTO" if xla.VERSION < (0, 11) else "AutoLayout"

    def __reduce__(self) -> Any:
        return getattr, (AutoLayout, "AUTO")

    def mode(self, rank: int) -> str:
        """The text of this layout in a module."""
        return "auto"


@dataclasses.dataclass(frozen=True)
class Layout:
    """How the elements of an array follow each other in memory: `major_to_minor` lists its axes, the slowest first.

    `tiling` and bits are what accelerators have beside that; None for the usual one.
    """

    major_to_minor: Ints
    tiling: tuple[Ints, ...] | None = None
    sub_byte_element_size_in_bits: int = 0
    is_auto = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "major_to_minor", tuple(map(operator.index, self.major_to_minor)))

    def minor_to_major(self, rank: int) -> Ints:
        """The axes, the fastest first, and before them those of elements that are arrays themselves."""
        own = len(self.major_to_minor)
        return (*range(own, rank)[::-1], *self.major_to_minor[::-1])

    def mode(self, rank: int) -> str:
        """The text of this layout in a module, for an array of this rank."""
        return xla.memory_layout(self.minor_to_major(rank), self.tiling, self.sub_byte_element_size_in_bits).to_string()

    def _to_xla_layout(self, dtype: Any) -> Any:  # C++ asks
        return xla.memory_layout(self.major_to_minor[::-1], self.tiling, self.sub_byte_element_size_in_bits)

    def check_rank(self, shape: Ints, what: str) -> None:
        """Raises ValueError for an array of this shape with another number of axes."""
        if len(self.major_to_minor) != len(shape):
            raise ValueError(f"{what} is incompatible with its layout annotation {self}: Length of major_to_minor and the rank "
                             f"of the value should match. Got major_to_minor={self.major_to_minor} and shape={shape}")


AutoLayout.AUTO = AutoLayout()
Layout.AUTO = AutoLayout.AUTO  # type: ignore[attr-defined]


@dataclasses.dataclass(frozen=True)
class Format:
    """A layout and a sharding: all that there is to say of where the elements of an array are.

    Raises: TypeError for what is not a layout or sharding; ValueError for a layout without a sharding.
    """

    layout: Layout | AutoLayout | None = None
    sharding: Any = None

    def __post_init__(self) -> None:
        if not isinstance(self.layout, (Layout, AutoLayout, NoneType)):
            raise TypeError("Invalid value received for the layout argument. Expected values are `None`, `Layout.AUTO` or an "
                            f"instance of `Layout`. Got {self.layout} of type {type(self.layout)}")
        if not isinstance(self.sharding, (Sharding, NoneType)):
            raise TypeError("Invalid value received for the sharding argument. Expected values are `None` or an instance of "
                            f"`jax.Sharding`. Got {self.sharding} of type {type(self.sharding)}")
        if isinstance(self.layout, Layout) and self.sharding is None:
            raise ValueError(f"Sharding has to be concrete when layout is of type {type(self.layout)}. Please pass a "
                             "`jax.sharding.NamedSharding` or `jax.sharding.SingleDeviceSharding` to the sharding argument. "
                             f"Got sharding {self.sharding}")

    def __setstate__(self, state: Any) -> None:
        """Fill what a pickle makes; in one of JAX the fields are slots."""
        vars(self).update(state[1] if isinstance(state, tuple) else state)
