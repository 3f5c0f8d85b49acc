"""Programs over several devices: the devices and shardings of a call, and its executable.

A call is over several devices if an argument is, if `jit` has shardings, or if the program names a mesh. `partitioning`
collects the shardings that are known before the compile: those of committed arguments, and the requested ones. XLA chooses
the rest. `SpreadExecutable` reads this choice back, because a result with another sharding than the executable's would have
wrong values. An Array cannot have an uneven sharding: then `Unsettled` requests a second compile in which this array is
replicated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from jaxlite.compilation.execution import Loaded, orders_for_c
from jaxlite.core import array as arrays
from jaxlite.core.aval import has_states, in_space, layout_of, space_of_kind, with_layout
from jaxlite.core.jaxpr import Jaxpr, JaxprEqn, jaxprs_in_params
from jaxlite.core.lazy import loader
from jaxlite.core.tracing import Tracer
from jaxlite.core.tree import broadcast_prefix, tree_flatten
from jaxlite.core.values import aval_of
from jaxlite.devices import global_arrays, placement
from jaxlite.devices import sharding as shardings
from jaxlite.devices.mesh import AbstractMesh, AxisType, Mesh, concrete_context, context_mesh, get_abstract_mesh
from lowering import xla
from lowering.buffers import physical
from lowering.partitioning import Partitioning

if TYPE_CHECKING:
    from jaxlite.compilation.program import Program

ArrayImpl = xla.ArrayImpl


_lowered_types = loader("jaxlite.compilation.lowered_types")


class Unsettled(Exception):
    """XLA chose a sharding that no Array can have; compile for `partitioning` instead."""

    def __init__(self, partitioning: Partitioning):
        super().__init__()
        self.partitioning = partitioning


# --- what jit was given ------------------------------------------------------------------------------


def flat_shardings(given: Any, tree: Any, what: str) -> tuple[Any, ...] | None:
    """A sharding, or None for "as it comes", for each leaf of a tree, from a prefix of it.

    Args: `given` the prefix, whose leaves are shardings, specs over the mesh of the context, and None; `what` its name.
    """
    flat = flat_places(given, tree, what)
    return None if flat is None else tuple(
        None if each is None or isinstance(each, shardings.Format) and each.sharding is None else as_sharding(each, what, "jit")
        for each in flat)


def flat_places(given: Any, tree: Any, what: str) -> list[Any] | None:
    """What `flat_shardings` gives, with the layouts that stand beside shardings."""
    if given is None:
        return None
    full = tree.unflatten(range(tree.num_leaves))
    if what == "in_shardings" and isinstance(given, (tuple, list)) and not is_place(given) and len(given) != len(full):
        raise ValueError(
            f"pjit {what} specification must be a tree prefix of the positional arguments tuple. In particular, pjit {what} "
            "must either be a Sharding, a PartitionSpec, or a tuple of length equal to the number of positional arguments. But "
            f"pjit {what} is the wrong length: got a tuple or list of length {len(given)} for an args tuple of length "
            f"{len(full)}.")
    if what == "in_shardings" and isinstance(given, list):
        given = tuple(given)
    return [given] * tree.num_leaves if is_place(given) else broadcast_prefix(given, full, is_leaf=is_place)


def flat_layouts(given: Any, tree: Any, what: str) -> tuple[Any, ...] | None:
    """The layouts that stand beside shardings; None if there are none."""
    found = [each.layout if isinstance(each, shardings.Format) else None for each in flat_places(given, tree, what) or ()]
    return tuple(found) if any(each is not None for each in found) else None


def is_place(leaf: Any) -> bool:
    """Whether a node of a tree of shardings is one of its leaves."""
    return leaf is None or isinstance(leaf, (shardings.Sharding, shardings.PartitionSpec, shardings.Format))


def as_sharding(given: Any, what: str, who: str, or_entered: bool = False) -> Any:
    """A sharding from a sharding, or from a spec over the mesh of the context.

    Args: `what` and `who` name the argument and the function; `or_entered` as for `named_sharding`.
    Raises: RuntimeError for a spec without a mesh; TypeError for an invalid device or sharding.
    """
    if isinstance(given, shardings.Format):
        given = given.sharding
    if isinstance(given, shardings.PartitionSpec):
        return shardings.named_sharding(
            given, f"{who} requires a non-empty mesh in context if you are passing `PartitionSpec`s to {what}. You can define "
            "a context mesh via `jax.set_mesh(mesh)`. Alternatively, provide `Sharding`s to "
            f"{what} and then the mesh context manager is not required.", or_entered=or_entered)
    if not isinstance(given, shardings.Sharding):
        raise TypeError(f"One of {what} leaf specifications got sharding {given!r}: expected a Sharding, a PartitionSpec or "
                        "None")
    return given


def checked(given: Any, what: str) -> tuple[Any, ...]:
    """A tree of shardings that `jit` was given, as a part of keys.

    Raises: TypeError for a leaf that is none, ValueError for one along whose axes XLA may choose how to cut.
    """
    leaves, tree = tree_flatten(given, is_place)
    for leaf in leaves:
        if not is_place(leaf):
            raise TypeError(f"{what} leaf specifications are expected to be PartitionSpec instances or None, but got "
                            f"{leaf!r} of type {type(leaf)}, which is no Sharding either")
        sharding = leaf.sharding if isinstance(leaf, shardings.Format) else leaf
        spec = getattr(sharding, "spec", sharding)
        if isinstance(spec, shardings.PartitionSpec) and shardings.UNCONSTRAINED in spec:
            hint = ("None leaves an argument as it comes" if what == "in_shardings" else
                    "None leaves a result to XLA, and with_sharding_constraint takes such a spec")
            raise ValueError(f"Unconstrained dims are not allowed when passed to {what}: {leaf}. {hint}")
    return (*leaves, tree)


def in_parts(outs: Sequence[Any], given: Any, out_tree: Any) -> Sequence[Any]:
    """The results of a traced function, where `jit` asks for arrays that are still to be summed as the parts of these sums, or
    for the sums of such parts.

    XLA takes each device's whole for its part, or refuses the program.
    """
    if not moves_sums(given, map(aval_of, outs)):
        return outs
    asked = flat_shardings(given, out_tree, "out_shardings") or ()
    return [out if each is None or _unreduced(each) == _unreduced(getattr(aval_of(out), "layout", None)) else
            placement.constraints().moved(out, each) for out, each in zip(outs, asked, strict=True)]


def moves_sums(given: Any, avals: Iterable[Any]) -> bool:
    """Whether results of these types are to become sums, or parts of sums, for the shardings that `jit` was given."""
    wanted = tree_flatten(given, is_leaf=is_place)[0]
    return any(map(_unreduced, wanted)) or any(each is not None for each in wanted) and any(map(has_states, avals))


def _unreduced(place: Any) -> tuple[Any, ...]:
    """The mesh axes along which a sharding, its spec or format, or None leaves sums to be made, and which kind of sum."""
    place = getattr(place, "sharding", place)
    spec = getattr(place, "spec", place)
    return (spec.unreduced, spec.unreduced_kind) if getattr(spec, "unreduced", None) else ()


# --- what a call comes to ----------------------------------------------------------------------------


def stay_with_call(program: Program) -> bool:
    """Whether the shardings that `jit` was given, inside a program, stay params of the call, as JAX shows them. Where they
    mean parts of what one device has, they are constraints around it. Checks the shapes."""
    if program.is_high or program.takes_refs or get_abstract_mesh().manual_axes:
        return False
    said = [(sharding, aval, f"One of pjit arguments with pytree key path {program.debug_info.arg_name(index)}")
            for index, (sharding, aval) in enumerate(zip(program.in_shardings or (), program.closed.in_avals)) if sharding]
    said += [(sharding, aval, f"One of pjit outputs with pytree key path {program.result_name(index)}")
             for index, (sharding, aval) in enumerate(zip(program.out_shardings or (), program.closed.out_avals)) if sharding]
    if any(type(sharding) is not xla.NamedSharding for sharding, *_ in said):
        return False
    for sharding, aval, what in said:
        shardings.check_shape(sharding, aval.shape, what)
    return True


def explicit(given: Sequence[Any]) -> list[Any] | None:
    """The shardings that are over explicit mesh axes, with None in place of others; None where all are."""
    kept = [each if shardings.is_explicit(each) else None for each in given]
    return kept if any(kept) else None


def _named_meshes(jaxpr: Jaxpr, seen: set[int]) -> Iterator[tuple[Any, JaxprEqn]]:
    """Meshes with the equations that name them; those of a program that is called several times once."""
    if id(jaxpr) in seen:
        return
    seen.add(id(jaxpr))
    for eqn in jaxpr.eqns:
        params = eqn.params
        if params:
            for sharding in (params.get("sharding") or params.get("dst_sharding"), *(params.get("devices") or ()),
                             *(params.get("in_shardings") or ()), *(params.get("out_shardings") or ())):
                sharding = getattr(sharding, "sharding", sharding)  # of a format
                if type(sharding) is xla.NamedSharding:
                    yield sharding.mesh, eqn
            mesh = params.get("mesh")
            if isinstance(mesh, (Mesh, AbstractMesh)):
                yield mesh, eqn
            for inner in jaxprs_in_params(params):
                yield from _named_meshes(inner, seen)


def concrete(program: Program) -> Mesh | None:
    """The first mesh with devices that a program names, else that of the context; None if there is neither.

    Raises: ValueError for meshes of different devices.
    """
    first: tuple[Mesh, JaxprEqn] | None = None
    for mesh, eqn in _named_meshes(program.closed.jaxpr, set()):
        if not isinstance(mesh, Mesh):
            found = context_mesh()
            if found.empty or found.axis_sizes != mesh.axis_sizes:
                continue
            mesh = found
        if first is None:
            first = mesh, eqn
        elif set(mesh.devices.flat) != set(first[0].devices.flat):
            raise ValueError(f"Received incompatible devices for jitted computation. Got {_naming(*first)} and "
                             f"{_naming(mesh, eqn)}\nUse one mesh in a program.")
    return concrete_context.value if first is None else first[0]


def _naming(mesh: Mesh, eqn: JaxprEqn) -> str:
    return f"{eqn.primitive.name} inside jit with {_ids(tuple(mesh.devices.flat))} at {eqn.source_line}"


def _ids(devices: tuple[Any, ...]) -> str:
    return f"device ids {[device.id for device in devices]} on platform {devices[0].platform.upper()}"


_CONTEXT = "jit's context mesh"


def partitioning(program: Program, leaves: Sequence[Any]) -> Partitioning | None:
    """The devices and shardings of a call; None if it runs on one device after all.

    Raises: ValueError if arguments and program are bound to different devices, or if an argument has another sharding than
      `jit` was given; IndivisibleError for an axis that is not cut evenly.
    """
    closed, leaves = program.closed, list(leaves)
    asked, results, names = program.in_shardings, program.out_shardings, program.debug_info.arg_name
    if program.is_high:
        closed, leaves, asked, results, names = _lowered_types().call_of_arrays(program, leaves)
    values = [*closed.consts, *leaves]
    num_consts = len(closed.consts)
    asked = (None,) * num_consts + (asked or (None,) * len(leaves))
    results = results or (None,) * len(closed.out_avals)
    own = [_sharding_of(value) for value in values]
    bound: list[tuple[Any, int | str]] = [(each, index) for index, each in enumerate(own) if each is not None]
    bound += [(each, f"the sharding in in_shardings of argument {names(index - num_consts)}")
              for index, each in enumerate(asked) if each is not None]
    bound += [(each, "explicit output sharding") for each in results if each is not None]
    devices = _bound_devices(program, bound, num_consts)
    grids = [each.mesh for each, _ in bound if shardings.lacks_devices(each)]
    if grids:
        is_abstract, devices = devices is None, _devices_for(program, grids, devices)
        if not is_abstract:
            asked, results = (tuple([shardings.on_devices(each, devices) for each in group]) for group in (asked, results))
            own = [shardings.on_devices(each, devices) for each in own]
            bound = [(shardings.on_devices(each, devices), index) for each, index in bound]
    named = next((each.mesh for each, _ in bound if type(each) is xla.NamedSharding), program.mesh)
    if named is None or devices is None:
        return None
    whole = xla.NamedSharding(named, shardings.P())
    arguments = [whole if each is None or type(each) is xla.SingleDeviceSharding else each for each in own[:num_consts]]
    for value, sharding in zip(closed.consts, arguments, strict=True):
        shardings.check_shape(sharding, value.shape, "")
    given = None if program.in_shardings is None else names
    for index, (aval, wanted, has) in enumerate(zip(closed.in_avals, asked[num_consts:], own[num_consts:], strict=True)):
        arguments.append(_argument(aval, wanted, has, whole, index, given))
    outs = [_result(program, place, wanted, aval, whole)
            for place, (wanted, aval) in enumerate(zip(results, closed.out_avals, strict=True))]
    return Partitioning(devices, tuple(arguments), tuple(outs), named, len(leaves))


def _bound_devices(program: Program, bound: Sequence[tuple[Any, int | str]], num_consts: int) -> tuple[Any, ...] | None:
    """The devices on which the context, the mesh of a program and the shardings of its call agree; None if none has any.

    Args: `bound` has each sharding, and whose it is: the index of a value or a description.
    Raises: ValueError for different devices, or for the same ones in another order.
    """
    devices: tuple[Any, ...] | None = None
    first: int | str | None = None
    if concrete_context.value is not None:
        if program.options.device is not None:
            raise ValueError("Mesh context manager should not be used with jit when backend or device is also specified as an "
                             "argument to jit.")
        devices, first = tuple(concrete_context.value.devices.flat), _CONTEXT
    for sharding, index in bound:
        if shardings.lacks_devices(sharding):
            continue
        found = shardings.devices_of(sharding)
        if devices is None:
            devices, first = found, index
        elif found != devices:  # also in another order: XLA would end the process
            if first is _CONTEXT:
                raise ValueError(_incompatible(program, found, index, devices, first, num_consts))
            raise ValueError(_incompatible(program, devices, first, found, index, num_consts))
    if program.mesh is not None:
        found = tuple(program.mesh.devices.flat)
        if devices is None:
            devices = found
        if set(found) != set(devices):
            raise ValueError(_incompatible(program, devices, first, found, None, num_consts))
    return devices


def _argument(aval: Any, wanted: Any, has: Any, whole: Any, index: int, names: Callable[[int], str] | None) -> Any:
    """The sharding of an argument of this type: the one `wanted` by `jit` or the one that it `has`; None if XLA chooses.

    Args: `whole` is the sharding of what every device has all of; `names` is for messages about what `jit` was given.
    """
    if wanted is None:
        wanted = has
    elif has is not None and not shardings.is_equivalent(has, wanted, len(aval.shape)):
        raise ValueError(f"Sharding passed to jit does not match the sharding on the respective arg. Got jit sharding: "
                         f"{wanted},\narg sharding: {has} for arg type: {aval.str_short()}")
    if type(wanted) is xla.SingleDeviceSharding:
        wanted = whole
    if wanted is not None:
        shardings.check_shape(wanted, aval.shape,
                              "" if names is None else f"One of pjit arguments with pytree key path {names(index)}")
    return wanted


def _result(program: Program, place: int, wanted: Any, aval: Any, whole: Any) -> Any:
    """The sharding of a result: the one `wanted`, or that of its type; None if XLA chooses."""
    if type(wanted) is xla.SingleDeviceSharding:
        wanted = whole
    if wanted is None and getattr(aval, "layout", None) is not None:
        wanted = _typed_result(whole, aval)
    if wanted is not None:
        _check_result(program, place, wanted, aval)
    return wanted


def _devices_for(program: Program, grids: Sequence[AbstractMesh], devices: tuple[Any, ...] | None) -> tuple[Any, ...]:
    """The devices of a program whose shardings are over meshes without any: those it is bound to otherwise, or as many
    times the default one, for which it can be lowered but not compiled.

    Raises: ValueError for meshes of different sizes, and for as many devices as do not fill them.
    """
    first = grids[0]
    for grid in grids:
        if grid.size != first.size:
            raise ValueError(f"AbstractMesh should be of the same size across all shardings. Got {first} and {grid}")
    if devices is None:
        return (placement.target_device((), program.options.device)[0],) * first.size
    if len(devices) != first.size:
        raise ValueError(f"AbstractMesh size: {first.size} does not match the device assignment size: {len(devices)}")
    return devices


def check_has_devices(place: Any) -> None:
    """Raises: ValueError for a program that is to run over a mesh without devices."""
    if type(place) is Partitioning and not place.has_devices:
        raise ValueError(f"the shardings of this program are over {place.mesh}, which has no devices. To run it, use a Mesh, "
                         "or set one with jax.set_mesh. To read or keep what is lowered, name platforms: "
                         "jit(f).trace(*args).lower(lowering_platforms=('tpu',)), or jax.export")


def on_devices(place: Partitioning, devices: Sequence[Any]) -> Partitioning:
    """A partitioning over a mesh without devices, over these. Raises: ValueError for another number of them."""
    if len(devices) != len(place.devices):
        raise ValueError(f"device_assignment must hold {len(place.devices)} devices, got {len(devices)}")
    devices = tuple(devices)
    arguments, results = (tuple(shardings.on_devices(each, devices) for each in group)
                          for group in (place.arguments, place.results))
    mesh = shardings.on_devices(xla.NamedSharding(place.mesh, shardings.P()), devices).mesh
    return Partitioning(devices, arguments, results, mesh, place.num_arguments)


def _check_result(program: Program, place: int, sharding: Any, aval: Any) -> None:
    try:
        shardings.check_shape(sharding, aval.shape)
    except ValueError:
        if program.out_shardings is None or program.is_high:
            raise
        shardings.check_shape(sharding, aval.shape, f"One of pjit outputs with pytree key path {program.result_name(place)}")


def _typed_result(whole: Any, aval: Any) -> Any:
    """The sharding of a result over explicit axes that its type says; None where XLA may cut it further along others."""
    layout = aval.layout
    if layout.mesh != whole.mesh.abstract_mesh and layout.mesh.size == whole.mesh.size:
        wanted = layout.mesh  # of an exported function, which has a mesh of its own
        mesh = Mesh(whole.mesh.devices.reshape(wanted.axis_sizes), wanted.axis_names, axis_types=wanted.axis_types)
        return xla.NamedSharding(mesh, layout.spec)
    # What is still to be summed is closed: Shardy would sum it where an axis is open, and keep the word.
    is_open = AxisType.Auto in whole.mesh.axis_types and not layout.spec.unreduced
    return None if is_open else whole.update(spec=layout.spec)


def _sharding_of(value: Any) -> Any:
    """The sharding that an argument is bound to, if it is."""
    if isinstance(value, Tracer):
        return None
    ndim = getattr(value, "ndim", 0)
    value = getattr(value, "_base_array", value)
    if type(value) is ArrayImpl:
        if not value._committed and not arrays.is_spread(value):
            return None
        sharding = placement.without_axes(value._sharding, ndim)
        # Programs take arrays from the memory of the device, or from pinned memory of the host.
        return sharding if sharding.memory_kind != "unpinned_host" else sharding.with_memory_kind(None)
    sharding = getattr(value, "sharding", None)  # of a ShapeDtypeStruct
    if not isinstance(sharding, xla.Sharding) or type(sharding) is xla.NamedSharding and sharding.mesh.empty:
        return None  # that of a type says nothing where it is over no mesh
    return sharding


def _incompatible(program: Program, devices: tuple[Any, ...], first: int | str | None, others: tuple[Any, ...],
                  second: int | str | None, num_consts: int) -> str:
    def what(index: int | str | None, where: tuple[Any, ...]) -> str:
        ids = _ids(where)
        if isinstance(index, str):
            return f"{index} with {ids}"
        if index is None:
            for mesh, eqn in _named_meshes(program.closed.jaxpr, set()):
                if isinstance(mesh, Mesh) and tuple(mesh.devices.flat) == where:
                    return _naming(mesh, eqn)
            return f"a mesh of {program.name}, with {ids}"
        if index < num_consts:
            return f"an array that {program.name} closes over, with {ids}"
        aval = program.closed.in_avals[index - num_consts]
        return (f"argument {program.debug_info.arg_name(index - num_consts)} of {program.name} with shape "
                f"{aval.str_short()} and with {ids}")

    return (f"Received incompatible devices for jitted computation. Got {what(first, devices)} and {what(second, others)}"
            "\nMove one with device_put.")


# --- the executable ----------------------------------------------------------------------------------


class SpreadExecutable(Loaded):
    """A compiled program over several devices.

    Attributes beside those: `in_shardings` of the arguments, None for those that are not read, and `out_shardings`.
    """

    __slots__ = ()

    def __init__(self, loaded: Any, lowered: Any, closed: Any, place: Partitioning, compile_seconds: float, cached: str,
                 layouts: Any = None, kinds: Any = None):
        super().__init__(loaded, lowered, closed, place, True, compile_seconds, cached, layouts)
        num_consts = len(closed.consts)
        all_avals = [*[const.aval if hasattr(const, "aval") else None for const in closed.consts], *closed.in_avals]
        inputs, outputs = _settle(loaded, place, self.kept, all_avals, self.out_avals, num_consts)
        if kinds is not None:  # of memory
            outputs = [sharding if kind is None else sharding.with_memory_kind(kind)
                       for sharding, kind in zip(outputs, kinds[1], strict=True)]
            self.out_avals = [in_space(aval, space_of_kind(sharding.memory_kind))
                              for aval, sharding in zip(self.out_avals, outputs, strict=True)]
        self.out_shardings = outputs
        self.in_shardings = inputs[num_consts:]
        self.out_avals = [with_layout(aval, layout_of(sharding, len(aval.shape)))
                          for aval, sharding in zip(self.out_avals, outputs, strict=True)]
        if xla.is_compile_only(place):
            return
        const_args = [_buffer(value, sharding) for value, sharding, keep in
                      zip(closed.consts, inputs, self.kept, strict=False) if keep]
        self._make_ready(const_args, num_consts, outputs)

    def __call__(self, args: Sequence[Any]) -> list[Any]:
        """Run on flat arguments: arrays or anything that `aval_of` knows. Gives flat results."""
        inputs = self._inputs()
        for index in self._kept_arguments:
            arg, sharding = args[index], self.in_shardings[index]
            if type(arg) is not ArrayImpl or arg._sharding is not sharding or arg.is_deleted():
                self._met_strays |= type(arg) is ArrayImpl and arg._sharding.memory_kind != sharding.memory_kind
                arg = _buffer(arg, sharding, self.in_avals[index])
            inputs.append(arg)
        inputs = self._relaid(inputs)
        if self.donated and len(set(map(id, inputs))) < len(inputs):
            _check_donated_once(inputs, self.donated)
        return self._run(inputs)

    def cost_analysis(self) -> dict[str, float]:
        """XLA's estimate of the cost of one partition of the optimised program."""
        found = self.loaded.cost_analysis()
        return found[0] if isinstance(found, list) else found

    def fast_path(self, out_tree: Any, result: Any) -> Any:
        """The description that lets C++ run later calls of this signature by itself, if it may; `result` has the structure."""
        if self._wrapped or self._has_effects or self._met_strays or xla.CRASHES_ON_LOST_SHARDS and self.donated:
            return None
        wanted = [self.in_shardings[index] for index in self._kept_arguments]
        consts = [const._sharding for const in self.const_args]
        return xla.FastPath(
            self.loaded, out_tree, [*consts, *wanted], self.out_shardings, self.out_avals, [True] * len(self.out_avals),
            self.kept, orders_for_c(self._orders, len(consts), [self.in_avals[index] for index in self._kept_arguments]),
            self.const_args)


def _check_donated_once(inputs: Sequence[Any], donated: Sequence[int]) -> None:
    """Raises ValueError for an array that is donated and an input once more: XLA may end the process."""
    for index in donated:
        if sum(each is inputs[index] for each in inputs) > 1:
            raise ValueError(f"Attempt to use a buffer that was donated in the same call: flattened argument {index} is "
                             "another argument as well, as in `f(donate(a), a)`. Donate a copy")


def _buffer(value: Any, sharding: Any, aval: Any = None) -> Any:
    """The array behind a value, with a sharding."""
    if hasattr(value, "_base_array"):
        return global_arrays.place(value._base_array, sharding)
    return global_arrays.place(value, sharding, aval=None if type(value) is ArrayImpl else aval)


def _settle(loaded: Any, place: Partitioning, kept: list[bool], in_avals: list[Any], out_avals: list[Any],
            num_consts: int) -> tuple[list[Any], list[Any]]:
    """The shardings of all inputs and results, those that XLA has chosen among them.

    Raises: Unsettled
    """
    mesh = next((each.mesh for each in (*place.arguments, *place.results) if each is not None), None)
    if mesh is None or isinstance(mesh, AbstractMesh):  # what is inside alone names one
        mesh = place.mesh
    meshes = dict.fromkeys([mesh, *(each.mesh for each in (*place.arguments, *place.results) if each is not None
                                    and isinstance(each.mesh, Mesh))])
    everywhere = xla.NamedSharding(mesh, shardings.P())
    arguments, results = list(place.arguments), list(place.results)
    is_settled = True

    def choose(wanted: Any, found: Any, aval: Any, model: Any = None) -> Any:
        nonlocal is_settled
        if wanted is not None:
            return wanted
        # Unless XLA's choice can be told, it is what the type says.
        said = getattr(aval, "layout", None)
        fallback = everywhere if said is None else everywhere.update(spec=said.spec)
        if not hasattr(aval, "shape"):
            return fallback
        sharding = fallback if found is None else None
        for each in meshes if found is not None else ():
            spec = shardings.spec_of(xla.HloSharding.from_proto(found), each, len(physical(aval)[0]))
            if spec is not None:
                sharding = xla.NamedSharding(each, spec)
                break
        model = model if said is None else fallback
        try:
            if sharding is not None and len(sharding.spec) <= len(aval.shape):
                shardings.check_shape(sharding, aval.shape)
                return model if model is not None and model.mesh == sharding.mesh and shardings.is_equivalent(
                    sharding, model, len(aval.shape)) else sharding.update(spec=fallback.spec.update(partitions=sharding.spec))
        except ValueError:
            pass
        is_settled = False
        return fallback

    positions = [index for index, keep in enumerate(kept) if keep]
    found = loaded.get_parameter_shardings() or [None] * len(positions) if any(
        arguments[index] is None for index in positions) else [None] * len(positions)
    for index, proto in zip(positions, found, strict=True):
        arguments[index] = choose(arguments[index], proto, in_avals[index])
    if None in results:
        found = loaded.get_output_shardings() or [None] * len(results)
        # One that says the same in other words than the first argument's is that one, as in JAX.
        rank, first = next(((getattr(in_avals[index], "ndim", None), arguments[index]) for index in positions
                            if index >= num_consts), (None, None))
        results = [choose(wanted, proto, aval, first if rank == getattr(aval, "ndim", None) else None)
                   for wanted, proto, aval in zip(results, found, out_avals, strict=True)]
    if not is_settled:
        pinned = [given if keep else None for given, keep in zip(arguments, kept, strict=True)]
        raise Unsettled(Partitioning(place.devices, tuple(pinned), tuple(results), place.mesh,
                                     place.num_arguments))
    return arguments, results
