"""Sharding and layout constraints of programs: `with_sharding_constraint`, `reshard`, `shard_alike`, `with_layout_constraint`.

A constraint is an equation, the identity on values. Outside a trace it moves the array immediately.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from jaxlite.compilation import spread
from jaxlite.core.array import make_array, single_device_sharding
from jaxlite.core.aval import UnreducedKind, dual, has_states, layout_of, refuse_ref, says_something, with_layout
from jaxlite.core.config import no_collectives
from jaxlite.core.effects import DEBUG
from jaxlite.core.errors import ShardingTypeError
from jaxlite.core.filtering import boundary
from jaxlite.core.primitive import Primitive
from jaxlite.core.tracing import Tracer, is_eager
from jaxlite.core.tree import broadcast_prefix, flatten_axes, tree_flatten, tree_leaves
from jaxlite.core.values import aval_of
from jaxlite.devices import global_arrays, layouts
from jaxlite.devices import sharding as shardings
from jaxlite.devices.mesh import AbstractMesh, AxisType, context_mesh, empty_mesh, entered_context, get_abstract_mesh
from jaxlite.devices.placement import default_device
from jaxlite.traces.batching import bring, def_batching_of_one
from jaxlite.traces.eager import apply_primitive
from jaxlite.traces.jvp import Zero, def_linear
from lowering import xla

sharding_constraint_p = Primitive("sharding_constraint")
sharding_constraint_p.def_abstract_eval(lambda x, **params: x)


@sharding_constraint_p.def_eager
def _constrain_now(x, *, sharding, layout, **params) -> Any:
    aval = aval_of(x)
    if aval.is_high:
        return aval.raise_val(*[_placed(array, sharding, layout) for array in aval.lower_val(x)])
    return _placed(x, sharding, layout)


def _placed(x, sharding, layout) -> Any:
    placed = global_arrays.place(x, settled(concrete(sharding)))
    return placed if layout is None or layout.is_auto else layouts.relaid(placed, layout)


reshard_p = Primitive("reshard")


@reshard_p.def_abstract_eval
def _reshard_aval(x, *, dst_sharding, concrete_mesh):
    own, wanted = None if x.layout is None else x.layout.spec, dst_sharding.spec
    if wanted.unreduced and own is not None and own.unreduced and own.unreduced_kind is not wanted.unreduced_kind:
        raise ValueError("The unreduced_kind of input and output sharding passed to `jax.reshard` should be the same. Got "
                         f"input spec: {own} and output spec: {wanted}")
    if wanted.unreduced_kind not in (None, UnreducedKind.sum) and not (own is not None and wanted.unreduced <= own.unreduced):
        raise ValueError("out_sharding passed to `jax.reshard` cannot be more unreduced than the input. Got input pspec: "
                         f"{own or shardings.P(*[None] * x.ndim)}, out pspec: {wanted}")
    return with_layout(x, layout_of(dst_sharding, x.ndim))


@reshard_p.def_eager
def _reshard_now(x, *, dst_sharding, **params):
    if no_collectives.value:
        reshard_p.typed([aval_of(x)], {"dst_sharding": dst_sharding, **params})  # which raises
    wanted = concrete(dst_sharding)
    if isinstance(wanted.mesh, AbstractMesh):  # of a backward pass outside of the context of the mesh
        own = getattr(x, "sharding", None)
        if isinstance(own, shardings.NamedSharding) and own.mesh.abstract_mesh == wanted.mesh:
            wanted = shardings.NamedSharding(own.mesh, wanted.spec)
        elif own is None or isinstance(own, xla.SingleDeviceSharding):
            return x  # `shard_map` cuts it
    if AxisType.Auto in wanted.mesh.axis_types and getattr(getattr(x, "sharding", None), "mesh", None) == wanted.mesh:
        # Along axes that are not explicit it may stay as it is.
        return apply_primitive(reshard_p, x, dst_sharding=dst_sharding, **params)
    return global_arrays.place(x, wanted)


mesh_cast_p = Primitive("mesh_cast")


@mesh_cast_p.def_abstract_eval
def _mesh_cast_aval(x, *, dst_sharding):
    return with_layout(x, layout_of(dst_sharding, x.ndim))


shard_alike_p = Primitive("shard_alike", multiple_results=True)
shard_alike_p.def_abstract_eval(lambda x, y: [x, y])


@shard_alike_p.def_eager
def _alike_now(x, y) -> list[Any]:
    x = x if hasattr(x, "sharding") else make_array(x)
    return [x, global_arrays.place(y, x.sharding)]


layout_constraint_p = Primitive("layout_constraint")
layout_constraint_p.def_abstract_eval(lambda x, **params: x)
layout_constraint_p.def_eager(lambda x, *, layout: layouts.relaid(x if hasattr(x, "sharding") else make_array(x), layout))

inspect_sharding_p = Primitive("inspect_sharding", multiple_results=True, memoise=False)


@inspect_sharding_p.def_effectful_abstract_eval
def _inspect_aval(x, **params):
    return [], frozenset((DEBUG[False],))


@inspect_sharding_p.def_eager
def _inspect_now(x, *, callback) -> list[Any]:
    callback.callback(x.sharding)
    return []


class _Inspection:
    """XLA calls this with the sharding that it has chosen; it converts the sharding and calls a function with it."""

    def __init__(self, callback: Callable[[Any], None], ndim: int):
        self.callback, self.ndim = callback, ndim

    def __call__(self, found, mesh) -> None:
        if mesh is None:
            self.callback(single_device_sharding(default_device()))
            return
        # In a `shard_map` along all axes of the mesh, a part is whole.
        spec = shardings.P() if found.is_manual() else shardings.spec_of(found, mesh, self.ndim)
        self.callback(xla.GSPMDSharding(mesh._internal_device_list, found) if spec is None
                      else shardings.NamedSharding(mesh, spec))


# --- rules -------------------------------------------------------------------------------------------

def_linear(sharding_constraint_p, lambda ct, x, **params: [sharding_constraint_p.bind(ct, **params)])


def_linear(reshard_p, lambda ct, x, **params: [laid_out_as(ct, dual(x.aval))])
def_linear(mesh_cast_p, lambda ct, x, **params: [laid_out_as(ct, dual(x.aval))])


@def_batching_of_one(reshard_p)
def _reshard_batch(axis, x, dim, *, dst_sharding, concrete_mesh):
    return reshard_p.bind(x, dst_sharding=_with_batch(dst_sharding, axis, dim), concrete_mesh=concrete_mesh), dim


@def_batching_of_one(mesh_cast_p)
def _mesh_cast_batch(axis, x, dim, *, dst_sharding):
    return mesh_cast_p.bind(x, dst_sharding=_with_batch(dst_sharding, axis, dim)), dim


def _with_batch(sharding, axis, dim: int):
    """The sharding of a batch, with that of the batch axis as given to `vmap`."""
    cut = None if axis.cut is None else axis.cut.spec[0]
    if cut is not None and not set(shardings.axes_of(cut)).isdisjoint(shardings.used_axes(sharding.spec)):
        raise ShardingTypeError(f"the axis that vmap maps is split along {cut!r}, and so is {sharding.spec} inside of it")
    entries = [*sharding.spec, *[None] * (dim - len(sharding.spec))]
    entries.insert(dim, cut)
    return sharding.update(spec=sharding.spec.update(partitions=entries))


def_linear(layout_constraint_p, lambda ct, x, **params: [layout_constraint_p.bind(ct, **params)])


@def_batching_of_one(layout_constraint_p)
def _layout_batch(axis, x, dim, *, layout):
    return layout_constraint_p.bind(x, layout=_batched_layout(layout, dim)), dim


def _batched_layout(layout, dim: int) -> Any:
    """The layout of a batch that has its axis at `dim`: JAX's, which puts the entries for the axes in another order."""
    if layout is None or layout.is_auto:
        return layout
    order = [0, *(place + 1 for place in layout.major_to_minor)]
    order.insert(dim, order.pop(0))
    return dataclasses.replace(layout, major_to_minor=tuple(order))


@shard_alike_p.def_jvp
def _alike_jvp(primals, tangents) -> tuple[list[Any], list[Any]]:
    outs = shard_alike_p.bind(*primals)
    if Zero in map(type, tangents):
        return outs, list(tangents)
    return outs, shard_alike_p.bind(*tangents)


@shard_alike_p.def_transpose
def _alike_transpose(cotangents, x, y) -> list[Any]:
    return list(cotangents) if Zero in map(type, cotangents) else shard_alike_p.bind(*cotangents)


@shard_alike_p.def_batching
def _alike_batch(axis, args, dims) -> tuple[list[Any], list[int]]:
    found = next(dim for dim in dims if dim is not None)
    moved = [bring(x, dim, axis.size, found) for x, dim in zip(args, dims, strict=True)]
    return shard_alike_p.bind(*moved), [found, found]


@sharding_constraint_p.def_batching
def _constraint_batch(axis, args, dims, *, sharding, layout, unconstrained_dims,
                      **params) -> Any:
    (x,), (dim,) = args, dims
    if aval_of(x).is_high:
        return x, dim  # only its type has the positions of the batched axis in its arrays
    params["layout"] = _batched_layout(layout, dim)
    if not hasattr(sharding, "spec"):  # of one device
        return sharding_constraint_p.bind(x, sharding=sharding, unconstrained_dims=unconstrained_dims, **params), dim
    spec = sharding.spec
    names = shardings.axes_of(axis.spmd_name)
    entries = [*spec, *[None] * ((dim if names else aval_of(x).ndim - 1) - len(spec))]
    if set(names) & set(shardings.used_axes(spec)):
        raise ValueError(f"vmap spmd_axis_name {tuple(names)} cannot appear in with_sharding_constraint spec, but got spec "
                         f"{spec}")
    entries.insert(dim, axis.spmd_name if names else shardings.UNCONSTRAINED)
    batched = sharding.update(spec=spec.update(partitions=entries))
    open_axes = frozenset(index for index, each in enumerate(entries) if each is shardings.UNCONSTRAINED)
    return sharding_constraint_p.bind(x, sharding=batched, unconstrained_dims=open_axes, **params), dim


@inspect_sharding_p.def_jvp
def _inspect_jvp(primals, tangents, **params) -> tuple[list[Any], list[Any]]:
    return inspect_sharding_p.bind(*primals, **params), []


@inspect_sharding_p.def_batching
def _inspect_batch(axis, args, dims, *, callback: _Inspection) -> tuple[list[Any], list[Any]]:
    (x,) = args
    return inspect_sharding_p.bind(x, callback=_Inspection(callback.callback, aval_of(x).ndim)), []


# --- what users call ---------------------------------------------------------------------------------


def settled(sharding):
    """A sharding that leaves nothing open: what may be cut in any way is not cut."""
    if type(sharding) is not shardings.NamedSharding or shardings.UNCONSTRAINED not in sharding.spec:
        return sharding
    return sharding.update(spec=sharding.spec.update(
        partitions=[None if each is shardings.UNCONSTRAINED else each for each in sharding.spec]))


def constrain(x, sharding, layout=None) -> Any:
    """One array with a sharding, and a layout in memory; what is on one device stays there inside a program."""
    aval = aval_of(x)
    at_once = is_eager() and not isinstance(x, Tracer)
    check = shardings.check_shape if at_once or shardings.is_explicit(sharding) else shardings.check_rank  # XLA cuts as it can
    for each in aval.lo_ty() if aval.is_high else [aval]:
        check(sharding, each.shape, "One of with_sharding_constraint arguments")
        if layout is not None and not layout.is_auto:
            layout.check_rank(each.shape, "One of with_sharding_constraint arguments")
    if shardings.is_explicit(sharding) and not aval.is_high:
        if layout is None and get_abstract_mesh().are_all_axes_explicit:
            _check_layout(aval, sharding)
            return x
        _check_automatic(sharding)
    if at_once:
        return _placed(x, sharding, layout)
    if type(sharding) is shardings.SingleDeviceSharding:
        return x if layout is None else sharding_constraint_p.bind(
            x, sharding=sharding, layout=layout, context_mesh=_mesh_around(), unconstrained_dims=frozenset())
    shardings.check_no_manual(sharding)
    open_axes = frozenset(axis for axis, each in enumerate(sharding.spec) if each is shardings.UNCONSTRAINED)
    return sharding_constraint_p.bind(x, sharding=sharding, layout=layout, context_mesh=_mesh_around(),
                                      unconstrained_dims=open_axes)


def _mesh_around():
    """The mesh of the context as JAX's programs show it: without devices, or else the one that `with mesh:` has entered."""
    found = get_abstract_mesh()
    return entered_context.value or empty_mesh() if found.empty else found


def _check_layout(aval, sharding) -> None:
    """Within a mesh of explicit axes, a constraint only checks the type."""
    wanted = layout_of(sharding, aval.ndim)
    if wanted != aval.layout and (aval.layout is not None or says_something(wanted.spec)):
        raise AssertionError(
            "`with_sharding_constraint` acts as an assert when all axes of mesh are of type `Explicit`. The array "
            f"sharding: {_spec_text(aval.layout, aval.ndim)} did not match the sharding provided: {sharding.spec}. Please "
            "use `jax.sharding.reshard` to shard your input to the sharding you want.")


def _check_automatic(sharding) -> None:
    """Elsewhere, it is about axes along which the compiler may cut."""
    kinds = dict(zip(sharding.mesh.axis_names, sharding.mesh.axis_types, strict=True))
    if any(kinds[name] is not AxisType.Auto for name in shardings.used_axes(sharding.spec)):
        raise ValueError("The spec of NamedSharding passed to with_sharding_constraint can only refer to Auto axes of the mesh."
                         f" Got spec={sharding.spec} and mesh={sharding.mesh}. You probably meant to use `reshard`.")


def _spec_text(layout, ndim: int):
    return shardings.P(*[None] * ndim) if layout is None else layout.spec


def laid_out(x, out_sharding):
    """One array with what a function got as its argument `out_sharding`."""
    return resharded(x, asked_sharding(out_sharding))


def resharded(x, sharding):
    """One array with a sharding, if that says anything: not where there is no mesh, as in the type of an array that is on none,
    nor by a spec without entries over axes along which XLA chooses.
    """
    if type(sharding) is shardings.NamedSharding and (
            sharding.mesh.empty or not shardings.is_explicit(sharding) and not says_something(sharding.spec)):
        return x
    return moved(x, sharding)


def asked_sharding(out_sharding):
    """The sharding that a function got as its argument `out_sharding`."""
    if isinstance(out_sharding, shardings.PartitionSpec):
        out_sharding = shardings.named_sharding(out_sharding, _NO_CONTEXT.format(out_sharding), ValueError)
    if not isinstance(out_sharding, shardings.Sharding):
        raise TypeError("`out_sharding` argument only supports instances of `NamedSharding` or `PartitionSpec`. Got "
                        f"{out_sharding} of type: {type(out_sharding)}")
    return spread.as_sharding(out_sharding, "out_sharding", "the function")


def left_extreme(name: str, operand, axes, out_sharding):
    """The sharding of a maximum or minimum over `axes` that is left to be taken along mesh axes.

    Raises: ShardingTypeError unless it is of the reduction's kind, and the operand is cut or left so along these axes;
      ValueError for reduced axes.
    """
    asked = asked_sharding(out_sharding)
    asked, spec, aval = shardings.NamedSharding(asked.mesh.abstract_mesh, asked.spec), asked.spec, aval_of(operand)
    kind = UnreducedKind[name.removeprefix("reduce_")]
    if spec.unreduced_kind is not kind:
        raise ShardingTypeError(f"{name} requires `out_sharding`'s unreduced_kind to be {kind} but got {spec}")
    if spec.reduced:
        raise ValueError(f"out_sharding passed to {name} cannot be reduced. Got out_sharding={asked}")
    own = () if aval.layout is None else aval.layout.spec
    cut = {each for axis in axes for entry in own[axis:axis + 1] for each in shardings.axes_of(entry)}
    if not spec.unreduced <= cut.union(own.unreduced if own else ()):
        raise ShardingTypeError(f"out_sharding's unreduced axes should be in operand's specs that were {name} over. Got "
                                f"operand={aval!r}, axes={frozenset(axes)}, unreduced_spec={spec.unreduced}")
    return asked


_NO_CONTEXT = ("Using PartitionSpec when you are not under a mesh context is not allowed. Please pass a NamedSharding instance "
               "or enter into a mesh context via `jax.set_mesh`. Got {}")


def moved(x, sharding):
    """One array with a sharding; over explicit axes, it is part of the type."""
    aval = aval_of(x)
    if aval.is_high or not shardings.is_explicit(sharding):
        return constrain(x, sharding)
    shardings.check_shape(sharding, aval.shape, "One of reshard arguments")
    sharding = sharding.update(spec=sharding.spec.update(
        partitions=[*sharding.spec, *[None] * (aval.ndim - len(sharding.spec))]))
    if is_eager() and not isinstance(x, Tracer):
        return _reshard_now(x, dst_sharding=settled(sharding), concrete_mesh=None)
    _check_axis_types(sharding)
    if aval.layout is not None and layout_of(sharding, aval.ndim) == aval.layout:
        return x
    return reshard_p.bind(x, dst_sharding=sharding, concrete_mesh=None)


def _check_axis_types(sharding) -> None:
    used = shardings.used_axes(sharding.spec)
    if any(kind is not AxisType.Explicit and name in used
           for name, kind in zip(sharding.mesh.axis_names, sharding.mesh.axis_types, strict=True)):
        raise ValueError("PartitionSpec passed to reshard cannot contain axis names that are of type Auto or Manual. Got "
                         f"{sharding.spec} over {sharding.mesh}")


def laid_out_as(x, aval):
    """One array with the sharding of a type over explicit axes."""
    own = aval_of(x).layout
    if own == aval.layout or aval.layout is None and not has_states(aval_of(x)):
        return x
    wanted = aval.layout or own.update(spec=shardings.P(*[None] * aval.ndim))
    if wanted.mesh.manual_axes and (has_states(aval) or has_states(aval_of(x))):
        return _among_parts(x, wanted)
    return reshard_p.bind(x, dst_sharding=wanted, concrete_mesh=None)


def _among_parts(x, wanted):
    """A value that is the same on all devices, inside `shard_map`, as one that is still to be summed, or whose cotangent is."""
    from jaxlite.lax import elementwise, parallel, shaping, unreduced

    aval = aval_of(x)
    manual, spec = wanted.mesh.manual_axes, wanted.spec
    own = () if aval.layout is None else (*aval.layout.spec.unreduced, *aval.layout.spec.reduced)
    if own or any(shardings.axes_of(entry) for entry in spec) or not (spec.unreduced | spec.reduced).issubset(manual):
        raise NotImplementedError(f"resharding {aval.str_short()} to {spec} inside of shard_map: use jax.lax.pcast, psum "
                                  "and psum_scatter, and jax.sharding.reshard outside")
    names = tuple(name for name in manual if name in spec.unreduced)
    if names:
        is_first = elementwise.eq(parallel.axis_index(names), 0)
        x = elementwise.select_n(is_first, shaping.full_like(x, 0), x)
        x = unreduced.vary_unreduced_cast_p.bind(parallel.vary(x, names), axes=names)
    names = tuple(name for name in manual if name in spec.reduced)
    return unreduced.preduced_p.bind(x, axes=names) if names else x


def concrete(sharding):
    """A sharding over devices: one over an abstract mesh means the mesh of the context."""
    if isinstance(getattr(sharding, "mesh", None), AbstractMesh):
        found = context_mesh()
        if not found.empty and found.axis_sizes == sharding.mesh.axis_sizes:
            return sharding.update(mesh=found)
    return sharding


@boundary
def with_sharding_constraint(x, shardings):
    """Values as they are, laid out over a mesh as said.

    Args:
      x: a pytree of arrays.
      shardings: a sharding, a `PartitionSpec` over the mesh of the context, or a pytree prefix of these; None leaves a part as
        it is. `P.UNCONSTRAINED` for an axis lets XLA choose.
    Returns: the same tree. Derivatives are laid out alike.
    Over explicit axes, whose layout is part of types, nothing is moved: that is what `reshard` is for.
    Raises: RuntimeError for a spec without a mesh; ValueError for an axis that is not cut evenly, outside of programs;
      AssertionError for a value whose type has another sharding over explicit axes.

    >>> import jaxlite as jax
    >>> mesh = jax.make_mesh((1,), ("x",), (jax.sharding.AxisType.Auto,))
    >>> sharding = jax.NamedSharding(mesh, jax.P("x"))
    >>> jax.jit(lambda x: jax.lax.with_sharding_constraint(x * 2, sharding))(jax.numpy.ones(2)).sharding.mesh
    Mesh(axis_sizes=(1,), axis_names=('x',), axis_types=(Auto,))
    """
    return _on_tree(x, shardings, "shardings", "with_sharding_constraint", or_entered=True)


@boundary
def reshard(xs, out_shardings):
    """The same values with other shardings; arguments as in `with_sharding_constraint`.

    Over explicit mesh axes, the types of the results have the shardings. Raises: ValueError if an array gets the sharding None,
    or for axes of another type, for which there is `with_sharding_constraint`.
    """
    return _on_tree(xs, out_shardings, "out_shardings", "reshard", _named)


def _named(x, sharding):
    if type(sharding) is not shardings.NamedSharding:
        raise TypeError(f"`out_sharding` argument of reshard only supports instances of `NamedSharding` or `PartitionSpec`. "
                        f"Got {sharding} of type: {type(sharding)}")
    _check_axis_types(sharding)
    return resharded(x, sharding)


@boundary
def shard_alike(x, y) -> tuple[Any, Any]:
    """Two values as they are, laid out over the mesh in the same way: XLA chooses for both what is best for both.

    Args: `x`, `y` pytrees of the same structure, whose arrays have the same shapes.
    Returns: both. Outside a trace, `y` is laid out as `x` is.
    Raises: ValueError if structures or shapes differ.

    >>> import jaxlite as jax, jaxlite.numpy as jnp
    >>> jax.jit(shard_alike)(jnp.ones(2), jnp.zeros(2))
    (Array([1., 1.], dtype=float32), Array([0., 0.], dtype=float32))
    """
    xs, tree = tree_flatten(x)
    ys, other = tree_flatten(y)
    if tree != other:
        raise ValueError(f"Trees should match. Got {tree} for x and {other} for y")
    pairs = []
    for a, b in zip(xs, ys, strict=True):
        if aval_of(a).shape != aval_of(b).shape:
            raise ValueError(f"The leaves shapes of `x` and `y` should match. Got `x` leaf shape: {aval_of(a).shape} and `y` "
                             f"leaf shape: {aval_of(b).shape}.")
        pairs.append(shard_alike_p.bind(a, b))
    return tree.unflatten([a for a, _ in pairs]), tree.unflatten([b for _, b in pairs])


@boundary
def with_layout_constraint(x, layouts):
    """Values as they are, whose elements follow each other in memory as said, inside a program.

    Args:
      x: a pytree of arrays.
      layouts: a `Layout`, or a pytree of them like `x`.
    Returns: the same tree. Results of programs have the default layout nevertheless, unless `jit` is given a `Format`.
    Raises: ValueError for what is no `Layout`, or is for another number of axes.

    >>> import jaxlite as jax, jaxlite.numpy as jnp
    >>> from jaxlite.experimental.layout import Layout
    >>> jax.jit(lambda x: with_layout_constraint(x, Layout((1, 0))) + 1)(jnp.zeros((1, 2)))
    Array([[1., 1.]], dtype=float32)
    """
    leaves, tree = tree_flatten(x)

    def is_layout(leaf) -> bool:
        return isinstance(leaf, shardings.Layout)

    flat = [layouts] * len(leaves) if is_layout(layouts) else broadcast_prefix(layouts, x, is_leaf=is_layout)
    if not all(map(is_layout, flat)):
        raise ValueError("layouts passed to `with_layout_constraint` must be of type `Layout`. Got "
                         f"{[type(each) for each in flat]}")
    for leaf, layout in zip(leaves, flat, strict=True):
        layout.check_rank(aval_of(leaf).shape, "One of with_layout_constraint arguments")
        if sorted(layout.major_to_minor) != list(range(aval_of(leaf).ndim)):
            raise ValueError(f"{layout} does not list each of the axes of an array of shape {aval_of(leaf).shape} once")
    return tree.unflatten([layout_constraint_p.bind(leaf, layout=layout) for leaf, layout in zip(leaves, flat, strict=True)])


def inspect_array_sharding(value, *, callback: Callable[[Any], None]) -> None:
    """Call a function with the sharding of an array: at once, or, of a traced one, when the program is compiled.

    Args:
      value: an array, or a pytree of arrays, one after the other.
      callback: takes a sharding. Inside a traced function it runs once for each compile, not for each call.

    >>> import jaxlite as jax, jaxlite.numpy as jnp
    >>> jax.debug.inspect_array_sharding(jnp.ones(3), callback=lambda found: print(type(found).__name__))
    SingleDeviceSharding
    """
    for each in tree_leaves(value):
        aval = aval_of(each)
        if isinstance(each, Tracer):
            inspect_sharding_p.bind(each, callback=_Inspection(callback, aval.ndim))
        else:
            callback(each.sharding)


def _on_tree(x, given, what: str, who: str, each_one: Callable[[Any, Any], Any] = constrain, or_entered: bool = False):
    leaves, tree = tree_flatten(x)
    flat = [given] * len(leaves) if spread.is_place(given) else flatten_axes(f"{who} {what}", tree, given)
    if each_one is _named and None in flat:
        raise ValueError("Reshard should only be used with out_shardings which are non-None")
    if each_one is constrain and None in flat:
        raise ValueError(f"One of {who} arguments got sharding None which is not allowed. Pass a Sharding; P.UNCONSTRAINED for "
                         "each axis leaves it to the compiler")

    def one(leaf, place) -> Any:
        refuse_ref(who, aval_of(leaf))
        if each_one is not constrain:
            return each_one(leaf, asked_sharding(place))
        sharding = spread.as_sharding(place, what, who, or_entered)
        return constrain(leaf, sharding, place.layout if isinstance(place, shardings.Format) else None)

    return tree.unflatten([leaf if each is None else one(leaf, each) for leaf, each in zip(leaves, flat, strict=True)])
