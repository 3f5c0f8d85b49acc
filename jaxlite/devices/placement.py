"""Placement: on which device a call runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jaxlite.core import array as arrays
from jaxlite.core import config, shape_dtype
from jaxlite.core.aval import Ints, MemorySpace, ShapedArray
from jaxlite.core.aval import layouts as typed_layouts
from jaxlite.core.lazy import loader
from jaxlite.core.tracing import Tracer, is_eager
from lowering import platforms, xla

ArrayImpl = xla.ArrayImpl
# What only arrays over several devices need.
global_arrays = loader("jaxlite.devices.global_arrays")
shardings = loader("jaxlite.devices.sharding")
# The primitives that place values in programs. They stand higher: rooms below `lax` reach them here.
constraints = loader("jaxlite.lax.sharding")
transfers = loader("jaxlite.lax.device_put")


_SEVERAL = object()


class _Layouts:
    """Whether any array has a memory layout other than the default; checked before layouts are read."""

    exist = False


layouts = _Layouts()
layouts_module = loader("jaxlite.devices.layouts")


def target_device(args: Sequence[Any], asked: Any = None) -> tuple[Any, bool]:
    """The device of a call: the one asked for, else that of its committed arguments, else the default one.

    Returns: the device, and whether the results are committed to it; None for the device if arguments are on several.
    """
    if asked is not None:
        if any(_bound_to(arg) is _SEVERAL for arg in args):
            raise ValueError(f"the function is to run on {asked}, and an argument is on several devices; move it with "
                             "device_put")
        return as_device(asked), True
    found = None
    for arg in args:
        device = _bound_to(arg)
        if device is not None:
            if device is _SEVERAL or found is not None and device is not found and device != found:
                return None, True
            found = device
    if found is not None:
        return found, True
    return default_device(), False


def _bound_to(arg: Any) -> Any:
    """The device of a committed array, or of an object with one; else None."""
    if type(arg) is ArrayImpl:
        if type(arg._sharding) is not xla.SingleDeviceSharding:
            return _SEVERAL
        return arrays.device_of(arg) if arg._committed else None
    if isinstance(arg, Tracer):
        return None
    arg = getattr(arg, "_base_array", arg)  # of an extended dtype
    if type(arg) is ArrayImpl:
        return _bound_to(arg)
    sharding: Any = getattr(arg, "sharding", None)
    if type(sharding) is xla.NamedSharding:
        return None if sharding.mesh.empty else _SEVERAL  # that of a type is over no mesh
    return None if sharding is None else as_device(sharding)


def binds(arg: Any) -> bool:
    """Whether a call with an argument runs where that is."""
    return _bound_to(arg) is not None


def default_device() -> Any:
    """The device of uncommitted computations: the option `default_device`, else the platform's first."""
    chosen = config.default_device.value
    return platforms.default_device() if chosen is None else as_device(chosen)


def put_new(value: Any, aval: Any = None) -> Any:
    """A new Array of a host value: uncommitted on the default device or, under `set_mesh`, whole on each device of the mesh."""
    mesh = config.context_mesh.value
    if mesh is None:
        return arrays.put_array(value, default_device(), False, True, aval)
    return global_arrays().place(value, _everywhere(mesh), True, True, aval)


def on_context(x: Any) -> Any:
    """An array that is not bound to a place: under `set_mesh`, whole on each device of the mesh. Others as they are."""
    mesh = config.context_mesh.value
    if mesh is None or type(x) is not ArrayImpl or x._committed or arrays.is_spread(x) or not is_eager():
        return x
    return global_arrays().place(x, _everywhere(mesh))


def _everywhere(mesh: Any) -> Any:
    module = shardings()
    return module.NamedSharding(mesh, module.PartitionSpec())


def as_device(spec: Any) -> Any:
    """A device from a device, a platform's name, or a sharding on one device."""
    if isinstance(spec, str):
        return platforms.devices(spec)[0]
    if isinstance(spec, xla.Sharding):
        if type(spec) is xla.SingleDeviceSharding:
            return spec._device
        devices = shardings().devices_of(spec)
        if len(devices) != 1:
            raise ValueError(f"expected a singular device, {spec} is over {len(devices)}")
        return devices[0]
    return spec


def put(value: Any, target: Any, copy: bool = False, aval: Any = None) -> Any:
    """An Array, committed to a device or a sharding, from a host value or another Array."""
    if isinstance(target, xla.Device):
        return arrays.put_array(value, target, True, copy, aval)
    target = as_target(target)
    if isinstance(target, xla.Sharding):
        return global_arrays().place(value, target, True, copy, aval)
    return arrays.put_array(value, target, True, copy, aval)


def put_filled(value: Any, target: Any) -> Any:
    """`put` of what was just made: the spec of a sharding may tell of more axes than there are, if that cuts nothing."""
    target = as_target(target)
    cuts = type(target) is xla.NamedSharding
    fitting = shardings().without_rest(target, value.ndim) if cuts else target
    if not is_eager() or isinstance(value, Tracer):
        return laid_out(value, fitting) if cuts else value
    if fitting is target or shardings().is_explicit(target):
        return put(value, target)
    placed = put(value, fitting)
    return xla.rewrap(placed, placed.aval, target) if type(placed) is ArrayImpl else placed


def as_target(spec: Any, what: str = "device_put") -> Any:
    """A device or a sharding from what users name as the place of an array.

    Raises: ValueError for a `PartitionSpec` without a mesh; TypeError for an invalid device or sharding.
    """
    if isinstance(spec, (xla.Device, xla.Sharding)):
        return spec
    module = shardings()
    if isinstance(spec, module.MemorySpace):
        return spec
    if isinstance(spec, module.PartitionSpec):
        return module.named_sharding(spec, f"Please set a mesh via `jax.set_mesh` if a PartitionSpec is passed to {what}",
                                     ValueError)
    raise ValueError(f"`jaxlite.{what}` only accepts `None`, a device, a sharding, a PartitionSpec, a memory space, "
                     f"or a pytree of these; got {spec!r}")


def _described_place(place: Any, shape: Ints) -> tuple[Any, Any]:
    """Sharding and layout from what a `ShapeDtypeStruct` was given as its place."""
    module, layout = shardings(), None
    if isinstance(place, module.Format):
        if place.layout is module.AutoLayout.AUTO:
            raise TypeError("`Layout.AUTO` cannot be used in place of a device-local layout in a `ShapeDtypeStruct`. Got "
                            f"{place}")
        place, layout = place.sharding, place.layout
    if isinstance(place, module.PartitionSpec):
        place = module.named_sharding(place, "When specifying PartitionSpec to `ShapeDtypeStruct`, the context mesh cannot be "
                                      "empty. Please use `jax.set_mesh` to set the mesh context.", TypeError)
    if place is not None and not isinstance(place, xla.Sharding):
        raise ValueError("sharding should be an instance of `jax.sharding.Sharding`, `jax.sharding.PartitionSpec` or "
                         f"`jax.experimental.layout.Format`. Got {place} of type {type(place)}.")
    if isinstance(place, xla.NamedSharding) and len(place.spec) > len(shape):
        raise ValueError(f"Sharding {place} is only valid for values of rank at least {len(place.spec)}, but was applied to a "
                         f"value of rank {len(shape)}.")
    return place, layout


def in_memory(value: Any, space: Any) -> Any:
    """The sharding of a value, or of one on the default device, in another kind of memory."""
    own = getattr(value, "sharding", None) or arrays.single_device_sharding(default_device())
    kinds = {"Device": of_kind(own, None).memory_kind, "Host": "pinned_host"}
    return of_kind(own, kinds.get(space.name, own.memory_kind))


def of_kind(sharding: Any, memory_kind: str | None) -> Any:
    """The same sharding in another kind of memory; None means the default one."""
    shardings()  # shardings get their methods there
    return sharding.with_memory_kind(memory_kind)


def memory_kind(aval: Any, sharding: Any) -> str | None:
    """The kind of memory of a value with a type, and a sharding if that was given; None for the usual one."""
    if sharding is None:
        return "pinned_host" if getattr(aval, "memory_space", None) is MemorySpace.Host else None  # tokens are nowhere
    found = sharding.memory_kind
    if found is None or found == shardings().devices_of(sharding)[0].default_memory().kind:
        return None
    return found


def without_axes(sharding: Any, ndim: int) -> Any:
    """The sharding of an array of keys from that of their words, which have an axis more."""
    if type(sharding) is not xla.NamedSharding or len(sharding.spec) <= ndim:
        return sharding
    return sharding.update(spec=sharding.spec.update(partitions=sharding.spec.partitions[:ndim]))


def replicated(sharding: Any) -> Any:
    """The sharding with which each device of another has all of an array."""
    return sharding if type(sharding) is xla.SingleDeviceSharding else sharding.update(spec=shardings().PartitionSpec())


def _no_reshard(array: Any, sharding: Any) -> Any:
    raise RuntimeError("jaxlite.devices.api has not been imported")


reshard: Callable[[Any, Any], Any] = _no_reshard  # by a program; `jaxlite.devices.api` has one


def laid_out(x: Any, out_sharding: Any) -> Any:
    """A result with the sharding that it was asked to have, if it was."""
    return x if out_sharding is None else constraints().laid_out(x, out_sharding)


def laid_out_by(wanted: Any, fun: Callable, /, *args: Any, **kwargs: Any) -> Any:
    """The result of a function with the sharding that was asked for, if any.

    With one, the function may contract or join axes that are cut along explicit mesh axes.
    """
    if wanted is None:
        return fun(*args, **kwargs)
    asked: Any = True
    if getattr(getattr(wanted, "spec", wanted), "unreduced", None):
        asked = constraints().asked_sharding(wanted)
        asked = asked.update(mesh=asked.mesh.abstract_mesh)
    with choosing(asked):
        return laid_out(fun(*args, **kwargs), wanted)


def product_sharding() -> Any:
    """The `out_sharding` that `dot_general` gets where the result is to be left unreduced; else None."""
    asked = config.chooses_layouts.value
    return None if asked is True or asked is False else asked


def laid_out_as(x: Any, like: Any) -> Any:
    """A value that is on explicit mesh axes as another value or type does."""
    aval = getattr(like, "aval", like)
    if getattr(aval, "layout", None) is None:
        return x
    if type(like) is ArrayImpl and is_eager() and not config.no_collectives.value:
        return global_arrays().place(x, like.sharding)
    return constraints().laid_out_as(x, aval)


def placed_as(x: Any, like: Any) -> Any:
    """A new value that, if it has the shape of another, has that one's placement or the sharding of its type."""
    if x.shape != getattr(like, "shape", ()):
        return x
    if type(x) is ArrayImpl and not isinstance(like, Tracer):
        where = getattr(like, "sharding", None)
        if isinstance(where, xla.Sharding) and getattr(like, "_committed", True) and where != x.sharding and is_eager():
            return put_filled(x, where)
    return laid_out_as(x, like) if typed_layouts.exist else x


class choosing:
    """Where operations over explicit axes would be ambiguous inside a `with` block, they leave axes whole; or products
    unreduced along axes, if a sharding says so.
    """

    __slots__ = ("_asked", "_previous")

    def __init__(self, asked: Any = True):
        self._asked = asked

    def __enter__(self) -> None:
        self._previous = config.chooses_layouts.swap_local(self._asked)

    def __exit__(self, *exc: Any) -> None:
        config.chooses_layouts.set_local(self._previous)


def _sharding_of_type(aval: Any) -> Any:
    if aval.layout is not None:
        return aval.layout
    module = shardings()
    return module.NamedSharding(module.AbstractMesh((), ()), module.PartitionSpec(*[None] * aval.ndim))


def _install() -> None:
    shape_dtype.resolve_place = _described_place
    shape_dtype.make_format = lambda layout, sharding: shardings().Format(layout, sharding)
    types: Any = ShapedArray
    types.sharding = property(_sharding_of_type, doc="The array's sharding over a mesh's explicit axes.")
    cls: Any = ArrayImpl
    cls.addressable_shards = property(lambda self: global_arrays().addressable_shards(self),
                                      doc="The shards that this process holds, each with its data, index and device.")
    cls.global_shards = property(lambda self: global_arrays().global_shards(self),
                                 doc="All shards; those of other processes have no data.")
    cls.addressable_data = lambda self, index: global_arrays().addressable_data(self, index)
    cls.format = property(lambda self: layouts_module().format_of(self), doc="Layout and sharding.")


_install()
