"""Programs over several devices: what XLA's partitioner gets.

A program can be compiled for a `Partitioning` instead of a device: an ordered list of devices, and a sharding for each
parameter and result, or None if XLA should choose. The module has this information in Shardy's form: a mesh as a symbol,
and shardings as attributes that name its axes. A module for one device has none of it, and Shardy is not loaded.

Only these attributes of a sharding are used: `mesh` (`axis_names`, `axis_sizes`, and optional `devices`) and `spec`, with
an entry per array axis: None, the name of a mesh axis, a tuple of names, or `spec.UNCONSTRAINED`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from lowering import xla
from lowering.buffers import physical


class Partitioning:
    """Several devices that run one program together; hashable, in place of a device.

    Attributes: `devices`, in the order of the partitions; for each constvar and invar of the program `arguments` (the last
    `num_arguments` are not constants), and for each
    result `results`: its sharding, or None; `mesh`, in whose terms those are told that XLA chooses.
    """

    __slots__ = ("devices", "arguments", "results", "mesh", "num_arguments", "platform", "client", "device_kind",
                 "_key", "_hash")

    def __init__(self, devices: tuple[Any, ...], arguments: tuple[Any, ...], results: tuple[Any, ...],
                 mesh: Any = None, num_arguments: int = 0):
        self.devices, self.arguments, self.results, self.mesh = devices, arguments, results, mesh
        self.num_arguments = num_arguments
        first = devices[0]
        self.platform, self.client, self.device_kind = first.platform, first.client, first.device_kind
        self._key = (devices, arguments, results, mesh)
        self._hash = hash(self._key)

    @property
    def has_devices(self) -> bool:
        """Whether the mesh has devices. If not, `devices` is only their number."""
        return self.mesh is None or self.mesh._internal_device_list is not None

    def __eq__(self, other: Any) -> bool:
        return type(other) is Partitioning and self._key == other._key

    def __hash__(self) -> int:
        return self._hash

    def __str__(self) -> str:
        return f"{len(self.devices)} devices, {self.devices[0]} ..."

    def text(self) -> str:
        """All that a module depends on: equal in two processes where the modules are."""
        meshes = {id(each.mesh): mesh_text(each.mesh, self.devices) for each in (*self.arguments, *self.results) if each}
        return repr([[None if each is None else (meshes[id(each.mesh)], sharding_text(each, len(each.spec), "mesh"))
                      for each in group] for group in (self.arguments, self.results)] + [len(self.devices)])


def devices_of(place: Any) -> tuple[Any, ...]:
    """The devices of a partitioning, or the one device instead of it."""
    return place.devices if type(place) is Partitioning else (place,)


def quoted(name: Any) -> str:
    import json  # 1 to 4 ms that a program on one device need not wait for

    return json.dumps(str(name), ensure_ascii=False)


def mesh_text(mesh: Any, devices: tuple[Any, ...] | None) -> str:
    """A mesh as Shardy's attribute. Devices in another order than that of the partitions are numbered by those."""
    axes = ", ".join(f"{quoted(name)}={size}" for name, size in zip(mesh.axis_names, mesh.axis_sizes, strict=True))
    order = ""
    own = None if mesh._internal_device_list is None else tuple(mesh.devices.flat)
    if devices is not None and own is not None and own != devices and set(own) == set(devices):
        order = f", device_ids={[devices.index(device) for device in own]}"
    return f"#sdy.mesh<[{axes}]{order}>"


def sharding_text(sharding: Any, ndim: int, mesh_name: str, is_open: bool = False, whole: Any = ()) -> str:
    """A sharding of an array with `ndim` axes, `<@mesh, [{"x"}, {}]>`; if `is_open`, XLA may cut what it leaves whole.

    Along those mesh axes that `whole` names, XLA cuts nothing more.
    """
    return spec_text(sharding.spec, ndim, mesh_name, is_open, whole)


def spec_text(spec: Any, ndim: int, mesh_name: str, is_open: bool = False, whole: Any = ()) -> str:
    """`sharding_text` of a spec."""
    entries = []
    for axis in range(ndim):
        names = spec[axis] if axis < len(spec) else None
        if names is spec.UNCONSTRAINED:
            entries.append("{?}")
            continue
        names = () if names is None else names if isinstance(names, tuple) else (names,)
        entries.append("{" + ", ".join([*map(quoted, names), *["?"] * is_open]) + "}")
    used = {name for entry in spec for name in (entry if isinstance(entry, tuple) else (entry,))}
    replicated = ", ".join(quoted(name) for name in whole if name not in used) if is_open else ""
    unreduced = ", ".join(map(quoted, sorted(spec.unreduced, key=str)))
    kind = "" if spec.unreduced_kind is None or spec.unreduced_kind.name == "sum" else spec.unreduced_kind.name
    rest = "".join(f", {what}{{{names}}}" for what, names in (
        ("replicated=", replicated), (f"unreduced={kind}", unreduced)) if names)
    return f"<@{mesh_name}, [{', '.join(entries)}]{rest}>"


def factor_names() -> Iterator[str]:
    """The names that Shardy has for the factors of axes, in order."""
    return itertools.chain("ijklmnopqrstuvwxyz", (f"z_{index}" for index in itertools.count(1)))


def batch_attributes(ctx: Any, batch: int, operands: Sequence[tuple[int, ...]], results: Sequence[tuple[int, ...]],
                     ) -> dict[str, Any]:
    """What says of a custom call that its operands and results begin with axes of a batch, which may be split.

    The partitioner takes it for calls that are registered as such. Args: the number of these axes, the shapes.
    """
    names = factor_names()
    sizes: dict[str, int] = {}

    def named(shape: tuple[int, ...], shared: list[str]) -> str:
        own = [*shared, *itertools.islice(names, len(shape) - len(shared))]
        sizes.update(zip(own, shape, strict=True))
        return f"[{', '.join(own)}]"

    leading = list(itertools.islice(names, batch))
    sides = ["(" + ", ".join(named(shape, leading) for shape in shapes) + ")" for shapes in (operands, results)]
    listed = ", ".join(f"{name}={size}" for name, size in sizes.items())
    return {"mhlo.frontend_attributes": ctx.attribute(f'{{num_batch_dims = "{batch}"}}'),
            "sdy.sharding_rule": ctx.attribute(f"#sdy.op_sharding_rule<{'->'.join(sides)} {{{listed}}}, custom>")}


class Meshes:
    """The meshes of one module, each a symbol of it.

    Args: the module's builder, the devices of its partitions in order (None if they are not known), and their mesh.
    """

    __slots__ = ("_builder", "_names", "_groups", "_pins", "devices", "mesh", "manual_mesh", "manual_axes", "_channels",
                 "_grids", "_sums")

    def __init__(self, builder: Any, devices: tuple[Any, ...] | None, mesh: Any = None):
        xla.load_shardy(builder.context)
        self._builder, self._names, self.devices = builder, dict[str, str](), devices
        self.mesh = mesh  # of the `Partitioning`
        self._groups = 0
        self._pins: dict[Any, str] = {}
        self.manual_mesh: Any = None  # while what is emitted is written for one partition, with the types of its parts
        self.manual_axes: frozenset[Any] = frozenset()  # along these axes
        self._channels = 0
        self._grids: dict[Any, Any] = {}  # a mesh for each set of axes in the module
        self._sums = False  # whether a value is left to be summed

    # --- programs written for one partition

    @property
    def is_manual(self) -> bool:
        return bool(self.manual_axes)

    @contextmanager
    def manual(self, mesh: Any, axes: Iterable[Any]) -> Iterator[None]:
        """What is emitted here is written for one partition along more axes of a mesh."""
        before = self.manual_mesh, self.manual_axes
        if mesh._internal_device_list is None and self.mesh is not None and self.mesh.axis_names == mesh.axis_names:
            mesh = self.mesh  # it has devices
        self.manual_mesh, self.manual_axes = self.manual_mesh or mesh, self.manual_axes.union(axes)
        try:
            yield
        finally:
            self.manual_mesh, self.manual_axes = before

    def has_free_axes(self) -> bool:
        """Whether the given mesh has axes along which the program is not written for one partition."""
        return not self.manual_axes.issuperset(self.manual_mesh.axis_names)

    @property
    def are_split(self) -> bool:
        """Whether XLA splits the arrays of what is emitted here."""
        return not self.is_manual or self.has_free_axes()

    def next_channel(self) -> int:
        """A number for a collective that no other of the module has."""
        self._channels += 1
        return self._channels

    def _partitions(self) -> np.ndarray:
        """The numbers of the partitions in the form of the mesh."""
        mesh = self.manual_mesh
        numbers = np.arange(mesh.size)
        if self.devices is not None and mesh._internal_device_list is not None:
            numbers = np.array([self.devices.index(device) for device in mesh.devices.flat])
        return numbers.reshape(mesh.axis_sizes)

    def groups(self, names: tuple[Any, ...], index_groups: Any = None) -> np.ndarray:
        """The partitions that differ in their places along these axes alone, a row each, in the order of the places."""
        partitions, axes = self._partitions(), self.manual_mesh.axis_names
        order = [index for index, name in enumerate(axes) if name not in names] + [axes.index(name) for name in names]
        rows = partitions.transpose(order).reshape(-1, math.prod(self.manual_mesh.shape[name] for name in names))
        if index_groups is not None:
            widest = max(map(len, index_groups))  # shorter rows end in -1, which is no device
            rows = np.concatenate([np.pad(rows[:, list(group)], ((0, 0), (0, widest - len(group))), constant_values=-1)
                                   for group in index_groups])
        return np.ascontiguousarray(rows)

    def indices(self, name: Any) -> np.ndarray:
        """For each partition its place along an axis."""
        partitions, axis = self._partitions(), self.manual_mesh.axis_names.index(name)
        found = np.empty(partitions.size, np.int32)
        found[partitions.ravel()] = np.indices(partitions.shape)[axis].ravel()
        return found

    def strides(self) -> dict[Any, tuple[int, int]]:
        """For each axis how far the numbers of neighbouring partitions are apart, and its size; nothing unless the program is
        written for one partition along all axes, in their order."""
        if not self.is_manual or self.has_free_axes() or np.any(np.diff(self._partitions().ravel()) != 1):
            return {}
        sizes = self.manual_mesh.axis_sizes
        return {name: (math.prod(sizes[axis + 1:]), sizes[axis]) for axis, name in enumerate(self.manual_mesh.axis_names)}

    def on_each(self, ctx: Any, operands: Sequence[Any], types: list[Any],
                emit: Callable[[Any, Sequence[Any]], list[Any]]) -> list[Any]:
        """What XLA can do only where all axes are manual: for as long as it takes, they are. All along the free axes get the
        same operands and give the same results."""
        if not self.has_free_axes():
            return emit(ctx, operands)
        mesh, ir = self.manual_mesh, ctx.ir
        free = [name for name in mesh.axis_names if name not in self.manual_axes]
        with self.manual(mesh, free):

            def whole(values: Sequence[Any]) -> Any:
                texts = [f"<@{self.name(mesh)}, [{', '.join(['{}'] * len(each.shape))}]>" for each in values]
                return ctx.attribute(f"#sdy.sharding_per_value<[{', '.join(texts)}]>")

            index = ir.RankedTensorType.get((), self._builder.i32, loc=ctx.loc)  # XLA wants a result
            operation = ctx.op("sdy.manual_computation", operands, types or [index], {
                "in_shardings": whole([operand.type for operand in operands]), "out_shardings": whole(types or [index]),
                "manual_axes": ir.Attribute.parse(
                    "#sdy<manual_axes{" + ", ".join(map(quoted, free)) + "}>", self._builder.context)}, 1)
            inside = ctx.region(operation, 0, [operand.type for operand in operands])
            results = emit(inside, inside.arguments)
            inside.op("sdy.return", results or [inside.constant(0, np.dtype(np.int32))], [])
        return list(operation.results) if results else []

    # --- symbols and attributes


    def name(self, mesh: Any) -> str:
        """The symbol of a mesh. One without devices gets the symbol of the partitioning's mesh, if it has the same axes."""
        own = self.mesh
        if mesh._internal_device_list is None and own is not None and own.axis_names == mesh.axis_names and (
                own.axis_sizes == mesh.axis_sizes):
            mesh = own
        self._grids.setdefault((mesh.axis_names, mesh.axis_sizes), mesh)
        return self._symbol(mesh_text(mesh, self.devices), "mesh")

    def _named(self, sharding: Any) -> str:
        """The symbol of the mesh of a sharding.

        Raises: ValueError where sums are left along parts of another mesh's axes: XLA would end the process.
        """
        name = self.name(sharding.mesh)
        self._sums = self._sums or bool(sharding.spec.unreduced)
        if self._sums and len(self._grids) > 1:
            raise ValueError("A program with unreduced values can be over one mesh only. Got " + " and ".join(
                map(str, self._grids.values())) + ". Put its arguments on one mesh with device_put")
        return name

    def alike(self, ctx: Any, *values: Any) -> None:
        """XLA splits these values in the same way."""
        group = {"group_id": ctx.i64(self._groups)}
        self._groups += 1
        for value in values:
            ctx.op("sdy.sharding_group", [value], [], group)

    def whole_along(self, ctx: Any, value: Any, *axes: int) -> Any:
        """A value that XLA does not split along these axes; of the others it decides."""
        mesh = self.manual_mesh or self.mesh or next(iter(self._grids.values()))
        entries = ", ".join("{}" if axis in axes else "{?}" for axis in range(value.type.rank))
        return ctx.op("sdy.sharding_constraint", [value], [value.type], {
            "sharding": ctx.attribute(f"#sdy.sharding<@{self.name(mesh)}, [{entries}]>")}).result

    def split_like(self, ctx: Any, model: Any, value: Any, axis: int) -> Any:
        """A value that is computed in whole along an axis, and then split as the model is."""
        value = self.whole_along(ctx, self.whole_along(ctx, value, axis))
        self.alike(ctx, model, value)
        return value

    def adopt(self, mesh: Any) -> str:
        """The symbol of a mesh of another module, from its attribute."""
        return self._symbol(str(mesh), "mesh", in_front=True)

    def maximal(self) -> str:
        """The symbol of the mesh that is the first partition alone."""
        return self._symbol("#sdy.mesh<[], device_ids=[0]>", "maximal_mesh_0")

    def _symbol(self, text: str, base: str, in_front: bool = False) -> str:
        found = self._names.get(text)
        if found is None:
            builder, ir = self._builder, self._builder.ir
            found = base if base not in self._names.values() else f"{base}_{len(self._names) - 1}"
            self._names[text] = found
            # Of several meshes, Shardy tells all in terms of the first: that of our programs, as in JAX, but where a file has
            # collectives, whose axes it does not translate.
            rest = next((each for each in builder.module.body.operations
                         if in_front or each.operation.name != "sdy.mesh"), None)
            place = ir.InsertionPoint(builder.module.body) if rest is None else ir.InsertionPoint(rest)
            with builder.context:
                ir.Operation.create("sdy.mesh", [], [], {
                    "sym_name": ir.StringAttr.get(found), "mesh": ir.Attribute.parse(text, builder.context),
                }, None, 0, builder.unknown_location, place)
        return found

    def attribute(self, sharding: Any, ndim: int, is_open: bool = False) -> Any:
        """A sharding as the attribute of a value with `ndim` axes."""
        text = f"#sdy.sharding{sharding_text(sharding, ndim, self._named(sharding), is_open)}"
        return self._builder.ir.Attribute.parse(text, self._builder.context)

    def pin(self, ctx: Any, outvars: list[Any], env: dict[Any, Any]) -> None:
        """Hold the results of an equation to the layouts that their types have."""
        for var in outvars:
            layout = getattr(var.aval, "layout", None)
            if layout is not None and not ctx.in_computation and not self.is_manual:
                env[var] = self.pinned(ctx, env[var], layout, len(physical(var.aval)[0]))

    def pinned(self, ctx: Any, value: Any, sharding: Any, ndim: int) -> Any:
        """A value with an operation after it that holds it to a sharding over explicit axes. Others stay open."""
        text = self._pins.get((sharding.spec, sharding.mesh, ndim))
        if text is None:
            mesh = sharding.mesh
            explicit = [name for name, kind in zip(mesh.axis_names, mesh.axis_types, strict=True) if kind.name == "Explicit"]
            # What is still to be summed is closed: Shardy would sum it where an axis is open, and keep the word.
            is_open = len(explicit) < len(mesh.axis_names) and not sharding.spec.unreduced
            text = sharding_text(sharding, ndim, self._named(sharding), is_open, explicit)
            text = self._pins[sharding.spec, mesh, ndim] = f"#sdy.sharding{text}"
        attribute, operation = ctx.attribute(text), value.owner
        if getattr(operation, "name", "") == "sdy.sharding_constraint" and operation.attributes["sharding"] == attribute:
            return value  # by the rule of `reshard`, before its result is pinned as every result
        return ctx.op("sdy.sharding_constraint", [value], [value.type], {"sharding": attribute}).result

    def held(self, ctx: Any, value: Any, sharding: Any, aval: Any) -> Any:
        """A value with a sharding constraint; one for a single device adds nothing."""
        if not hasattr(sharding, "spec"):
            return value
        attribute = self.attribute(sharding, len(physical(aval)[0]))
        return ctx.op("sdy.sharding_constraint", [value], [value.type], {"sharding": attribute}).result

    def on_one_device(self, results: int) -> Any:
        """The attribute of an operation that runs on the first partition alone."""
        each = f"<@{self.maximal()}, []>"
        text = f"#sdy.sharding_per_value<[{', '.join([each] * max(results, 1))}]>"
        return self._builder.ir.Attribute.parse(text, self._builder.context)


def annotate(builder: Any, partitioning: Partitioning, parameters: list[Any], results: list[Any],
             kept: list[bool], arg_attributes: list[dict[str, Any]], result_attributes: list[dict[str, Any]]) -> None:
    """Say in a module how many partitions there are, and how parameters and results are cut."""
    meshes = builder.meshes = Meshes(builder, partitioning.devices, partitioning.mesh)
    builder.module.operation.attributes["mhlo.num_partitions"] = builder.ir.IntegerAttr.get(
        builder.i32, len(partitioning.devices))
    if any(kind.name == "Explicit" for mesh in (partitioning.mesh, *(
            each.mesh for each in (*partitioning.arguments, *partitioning.results) if each is not None))
           for kind in getattr(mesh, "axis_types", None) or ()):
        builder.pin = meshes.pin
    arguments = [sharding for sharding, keep in zip(partitioning.arguments, kept, strict=True) if keep]
    for atoms, shardings, attributes in ((parameters, arguments, arg_attributes),
                                         (results, partitioning.results, result_attributes)):
        for atom, sharding, entry in zip(atoms, shardings, attributes, strict=True):
            if sharding is not None and hasattr(atom.aval, "shape"):
                entry["sdy.sharding"] = meshes.attribute(sharding, len(physical(atom.aval)[0]))


def memory_kinds(partitioning: Partitioning) -> tuple[list[str | None], list[str | None]]:
    """The kinds of memory of arguments and results that their shardings say; None for the usual one."""
    first = partitioning.devices[0]
    described = xla.is_compile_only(first) and first.platform == "gpu"  # as it is, it knows no memories
    usual = (None, "device" if described else first.default_memory().kind)

    def each(shardings: Sequence[Any]) -> list[str | None]:
        kinds = [getattr(sharding, "memory_kind", None) for sharding in shardings]
        return [None if kind in usual else kind for kind in kinds]

    return each(partitioning.arguments), each(partitioning.results)


def annotate_kinds(builder: Any, *groups: tuple[Sequence[str | None], list[dict[str, Any]]]) -> None:
    """Say in a module in which kinds of memory parameters or results are, by their attributes."""
    for kinds, attributes in groups:
        for kind, entry in zip(kinds, attributes, strict=True):
            if kind is not None:
                entry["mhlo.memory_kind"] = builder.ir.StringAttr.get(kind, builder.context)


def annotate_layouts(builder: Any, *groups: tuple[Sequence[Any], Sequence[Any], list[dict[str, Any]]]) -> None:
    """Annotate a module with the memory layouts of parameters or results.

    Args: groups of variables, their layouts (None for the usual one, otherwise with a method `mode(rank)` that gives XLA's
    text), and the attributes to which these are added.
    """
    for atoms, layouts, attributes in groups:
        for atom, layout, entry in zip(atoms, layouts, attributes, strict=True):
            if layout is not None:
                entry["mhlo.layout_mode"] = builder.ir.StringAttr.get(
                    layout.mode(len(physical(atom.aval)[0])), builder.context)
