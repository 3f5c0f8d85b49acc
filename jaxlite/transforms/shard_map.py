"""shard_map: per-device functions over a mesh; the public interface.

`jaxlite.lax.shard_map` has the primitive, its tracing and its rules.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from jaxlite.compilation.caches import PerFunction, clear_hooks
from jaxlite.compilation.options import argument_names
from jaxlite.compilation.program import flatten_outputs
from jaxlite.core import config, source
from jaxlite.core.aval import AbstractRef, ShapedArray, UnreducedKind, has_states
from jaxlite.core.discharge import without_local_refs
from jaxlite.core.effects import REF
from jaxlite.core.filtering import boundary
from jaxlite.core.jaxpr import DebugInfo
from jaxlite.core.staging import hoist_consts, trace_to_jaxpr
from jaxlite.core.tracing import Tracer, state
from jaxlite.core.tree import broadcast_prefix, keystr, tree_flatten, tree_flatten_with_path
from jaxlite.core.values import aval_of
from jaxlite.devices.mesh import AbstractMesh, AxisType, Mesh, get_abstract_mesh
from jaxlite.devices.sharding import P, PartitionSpec, axes_of, used_axes
from jaxlite.lax import parallel
from jaxlite.lax.shard_map import inside, part_aval, shard_map_p
from lowering import xla

_INFER: Any = type("Infer", (), {"__repr__": lambda self: "Infer"})()
_UNSET: Any = type("Unspecified", (), {"__repr__": lambda self: "Unspecified"})()


def shard_map(f: Callable = _UNSET, /, *, out_specs: Any, in_specs: Any = _INFER, mesh: Any = None,
              axis_names: Any = frozenset(), check_vma: bool = True) -> Callable:
    """Map a function over the shards of its arguments on the devices of a mesh.

    Each device runs `f` on its own part; what the parts have to do with each other, `f` says with collectives such as
    `lax.psum` over the axes of the mesh. Works at once, under `jit` and under every transformation, and inside itself.

    Args:
      f: a function of pytrees of arrays, written for the parts. Without it, a decorator is made.
      out_specs: a pytree prefix of the result, of `PartitionSpec`s: how the parts are put together. Axes of the mesh that a
        spec does not name have the same value everywhere.
      in_specs: a pytree prefix of the arguments' tuple: how they are cut. None goes with an argument that is None. Left out
        where all `axis_names` are explicit: arguments are cut as their types say.
      mesh: a Mesh or an AbstractMesh; by default that of the context (`jax.set_mesh`).
      axis_names: the axes of the mesh along which `f` is written for one device; by default all. Along the others, XLA cuts as
        it does elsewhere.
      check_vma: have types say along which axes values vary, to check `out_specs` and to differentiate with fewer collectives.
    Returns: a function of whole arrays.
    Raises: ValueError if there is no mesh, a spec names an unknown axis or is too long, an axis is not cut evenly, or if a
      result varies along an axis that its spec does not name; TypeError for a spec that is none.

    >>> import jaxlite as jax, jaxlite.numpy as jnp
    >>> mesh = jax.make_mesh((1,), ("i",))
    >>> total = jax.shard_map(lambda x: jax.lax.psum(x.sum(), "i"), mesh=mesh, in_specs=jax.P("i"), out_specs=jax.P())
    >>> total(jnp.arange(4.0))
    Array(6., dtype=float32)
    """
    if f is _UNSET:
        return lambda g: shard_map(g, out_specs=out_specs, in_specs=in_specs, mesh=mesh, axis_names=axis_names,
                                   check_vma=check_vma)
    if not callable(f):
        raise TypeError(f"shard_map takes a function, got {f!r}")
    if in_specs is not _INFER:
        _check_are_specs("in_specs", in_specs)
    _check_are_specs("out_specs", out_specs)
    if not isinstance(axis_names, (set, frozenset)):
        raise TypeError("`axis_names` argument of shard_map should be of type `frozenset` or `set`. Got type: "
                        f"{type(axis_names)}")

    @source.wraps(f)
    @boundary
    def mapped(*args: Any) -> Any:
        _check_context(mesh)
        return _Call(f, mesh, in_specs, out_specs, frozenset(axis_names), bool(check_vma))(args)

    return mapped


def smap(f: Callable = _UNSET, /, *, in_axes: Any = _INFER, out_axes: Any, axis_name: Any) -> Callable:
    """`shard_map` over one axis of the mesh of the context, with the positions of the axes that are split.

    Args:
      in_axes: an int, None for an argument that is not cut, or a tuple with an entry for each argument; negative ones count
        from the end. Left out where the axis is explicit: arguments are cut as their types say.
      out_axes: a pytree prefix of the result, of the same: where the parts are put together.
      axis_name: the axis of the mesh.

    >>> import jaxlite as jax, jaxlite.numpy as jnp
    >>> with jax.set_mesh(jax.make_mesh((1,), ("i",))):
    ...     jax.smap(lambda x: x / jax.lax.psum(x, "i"), in_axes=0, out_axes=0, axis_name="i")(jnp.ones(2))
    Array([1., 1.], dtype=float32)
    """
    if f is _UNSET:
        return lambda g: smap(g, in_axes=in_axes, out_axes=out_axes, axis_name=axis_name)
    if isinstance(axis_name, (tuple, list, set, frozenset)):
        raise TypeError(f"smap axis_name must be one name of an axis, got {axis_name!r}")
    if not (in_axes is None or in_axes is _INFER or isinstance(in_axes, (int, tuple, list))):
        raise TypeError(f"smap in_axes must be an int, None or a tuple with an entry for each argument, got {in_axes!r}")

    def spec_of(axis: Any, ndim: int) -> PartitionSpec:
        if axis is None:
            return P()
        if not -ndim <= axis < ndim:
            raise ValueError(f"smap: the axis {axis} is out of bounds for a value of {ndim} axes")
        return P(*[None] * (axis % ndim), axis_name)

    @source.wraps(f)
    @boundary
    def mapped(*args: Any) -> Any:
        if isinstance(in_axes, (tuple, list)) and len(in_axes) != len(args):
            raise ValueError(f"smap in_axes has {len(in_axes)} entries for {len(args)} arguments")
        specs = _INFER
        if in_axes is not _INFER:
            leaves, tree = tree_flatten(args)
            each = broadcast_prefix(tuple(in_axes) if isinstance(in_axes, list) else in_axes, args, is_leaf=_is_none)
            specs = tree.unflatten([spec_of(axis, aval_of(leaf).ndim) for axis, leaf in zip(each, leaves, strict=True)])

        def out_specs(result: Any) -> Any:
            outs, out_tree = tree_flatten(result)
            axes = broadcast_prefix(out_axes, result, is_leaf=_is_none)
            return out_tree.unflatten([spec_of(axis, aval_of(out).ndim) for axis, out in zip(axes, outs, strict=True)])

        return _Call(f, None, specs, _PerResult(out_specs, out_axes), frozenset((axis_name,)), True)(args)

    return mapped


def shard_map_call(fun: Callable, mesh: Any, in_specs: list[Any], out_specs: Callable[[Any], Any], args: Sequence[Any]) -> Any:
    """`fun` of flat parts, over a mesh with all axes manual; `out_specs` gives the specs of its result. Nothing is checked."""
    return _Call(fun, mesh, tuple(in_specs), _PerResult(out_specs, None), frozenset(), False)(tuple(args))


class _PerResult:
    """Specs that depend on the ranks of results; equal if what they were made from is."""

    def __init__(self, specs: Callable[[Any], Any], key: Any):
        leaves, tree = tree_flatten(key, is_leaf=_is_none)
        self.specs, self.key = specs, (tuple(leaves), tree)


def _is_none(leaf: Any) -> bool:
    return leaf is None


def _is_spec(leaf: Any) -> bool:
    return leaf is None or isinstance(leaf, PartitionSpec)


def _check_are_specs(what: str, specs: Any) -> None:
    wrong = [(path, leaf) for path, leaf in tree_flatten_with_path(specs, is_leaf=_is_spec)[0] if not _is_spec(leaf)]
    if wrong:
        listing = "\n".join(f"  {what}{keystr(path)} is {leaf!r} of type {type(leaf).__name__}, " for path, leaf in wrong)
        raise TypeError(f"shard_map {what} argument must be a pytree of `jax.sharding.PartitionSpec` instances, but:\n\n"
                        f"{listing}\n\nCheck the {what} values passed to shard_map.")


class _Traced:
    """A function traced for parts of given types."""

    def __init__(self, jaxpr: Any, consts: list[Any], out_tree: Any, out_specs: tuple[Any, ...]):
        self.jaxpr, self.consts, self.out_tree, self.out_specs = jaxpr, consts, out_tree, out_specs

    def is_stale(self) -> bool:
        return any(isinstance(const, Tracer) and not const._trace.alive for const in self.consts)


_traced: PerFunction[_Traced] = PerFunction()
clear_hooks.append(_traced.clear)


class _Call:
    """One call: the mesh, the axes and the specs that it comes to, and all complaints about them."""

    def __init__(self, fun: Callable, mesh: Any, in_specs: Any, out_specs: Any, axis_names: frozenset[Any], check_vma: bool):
        self.fun, self.in_specs, self.out_specs, self.check_vma = fun, in_specs, out_specs, check_vma
        self.name = source.function_name(fun)
        self.mesh = _settled_mesh(mesh)
        known = frozenset(self.mesh.axis_names)
        if not axis_names <= known:
            raise ValueError(f"jax.shard_map requires axis_names={axis_names} to be a subset of mesh.axis_names={known}")
        self.axes = (axis_names or known) - frozenset(self.mesh.manual_axes)

    def __call__(self, args: tuple[Any, ...]) -> Any:
        leaves, tree = tree_flatten(args)
        avals = [aval_of(leaf) for leaf in leaves]
        specs = self._inferred(avals) if self.in_specs is _INFER else self._flat_specs("in_specs", self.in_specs, args)
        self._check_axes("in_specs", specs)
        debug = DebugInfo("shard_map", source.function_location(self.fun),
                          argument_names(self.fun, tree_flatten((args, {}))[1], None))
        for index, (aval, spec) in enumerate(zip(avals, specs, strict=True)):
            self._check_argument(index, aval, spec, args, debug)
        traced = self._find(tree, avals, specs, debug)
        outs = shard_map_p.bind(
            *traced.consts, *leaves, jaxpr=traced.jaxpr, mesh=self.mesh, newly_manual_axes=self.axes, check_vma=self.check_vma,
            in_specs=(*(P(),) * len(traced.consts), *specs), out_specs=traced.out_specs)
        return traced.out_tree.unflatten(outs)

    def _inferred(self, avals: Sequence[Any]) -> tuple[Any, ...]:
        kinds = dict(zip(self.mesh.axis_names, self.mesh.axis_types, strict=True))
        if any(kinds[name] is not AxisType.Explicit for name in self.axes):
            raise TypeError(
                "shard_map in_specs argument must be a pytree of `jax.sharding.PartitionSpec` instances, but it was left out, "
                f"and the axes {tuple(n for n in kinds if n in self.axes)} are not all of type AxisType.Explicit: only along "
                "these do types say how arguments are cut")
        layouts = [getattr(aval, "layout", None) for aval in avals]
        return tuple(P() if layout is None else layout.spec.update(partitions=[
            tuple(name for name in axes_of(entry) if name in self.axes) or None for entry in layout.spec])
            for layout in layouts)

    def _flat_specs(self, what: str, specs: Any, full: Any) -> tuple[Any, ...]:
        try:
            flat = broadcast_prefix(specs, full, is_leaf=_is_spec) if not _is_spec(specs) else [specs] * len(
                tree_flatten(full)[0])
        except ValueError as error:
            whole = "arguments" if what == "in_specs" else "result"
            raise ValueError(f"pytree structure error: shard_map {what} is not a prefix of the {whole}: {error}") from None
        return tuple(P() if spec is None else spec for spec in flat)

    def _check_axes(self, what: str, specs: Sequence[Any]) -> None:
        unknown = [name for spec in specs for name in used_axes(spec) if name not in self.axes]
        if unknown:
            raise ValueError(f"shard_map {what} argument must refer to an axis marked as manual ({self.axes}), but:\n\n"
                             + "\n".join(f"  {what} refers to {name!r}" for name in dict.fromkeys(unknown))
                             + f"\n\nCheck the {what} values passed to shard_map.")
        for spec in specs:
            used = used_axes(spec)
            if (spec.unreduced or spec.reduced) and self.axes != frozenset(self.mesh.axis_names):
                raise NotImplementedError(
                    f"unreduced/reduced can only be passed to {what} when shard_map is in full manual mode. Got mesh axis "
                    f"names {self.mesh.axis_names}, manual_axes: {self.axes}, specs: {spec}.")
            if len(set(used)) < len(used) or PartitionSpec.UNCONSTRAINED in spec:
                raise ValueError(f"shard_map {what} must name each axis of the mesh once at most, and leave nothing "
                                 f"unconstrained, got {spec}")

    def _argument(self, index: int, args: Any, debug: Any) -> str:
        path = keystr(tree_flatten_with_path(args)[0][index][0])
        return f"args{path}, where args{path} is bound to {self.name}'s parameter '{debug.arg_name(index)}'"

    def _mesh_text(self) -> str:
        return (f"The mesh given has shape {tuple(self.mesh.axis_sizes)} with corresponding axis names "
                f"{tuple(self.mesh.axis_names)}.")

    def _check_argument(self, index: int, aval: Any, spec: Any, args: Any, debug: Any) -> None:
        if not isinstance(aval, (ShapedArray, AbstractRef)):
            raise TypeError(f"shard_map takes arrays, got a value of type {aval} for {self._argument(index, args, debug)}")
        shown = aval.str_short()
        if len(spec) > aval.ndim:
            raise ValueError(
                f"shard_map applied to the function '{self.name}' was given an in_specs entry which is too long to be "
                f"compatible with the corresponding input value from the function:\n\nin_specs is {spec} which has length "
                f"{len(spec)}, but the passed {self._argument(index, args, debug)}, has shape {shown}, which has rank "
                f"{aval.ndim} (and {aval.ndim} < {len(spec)})\n\nEntries in in_specs must be of length no greater than the "
                "number of axes in the corresponding input value.")
        for axis, entry in enumerate(spec):
            parts = math.prod(self.mesh.shape[name] for name in axes_of(entry))
            if aval.shape[axis] % parts:
                raise ValueError(
                    f"shard_map applied to the function '{self.name}' was given argument arrays with axis sizes that are not "
                    f"evenly divisible by the corresponding mesh axis sizes:\n\n{self._mesh_text()}\n\nthe passed "
                    f"{self._argument(index, args, debug)} has shape {shown} and corresponds to in_specs of value {spec}, "
                    f"which maps array axis {axis} (of size {aval.shape[axis]}) to mesh axis {entry!r} (of size {parts}), but "
                    f"{parts} does not evenly divide {aval.shape[axis]}")

    # --- tracing

    def _find(self, tree: Any, avals: Sequence[Any], specs: tuple[Any, ...], debug: Any) -> _Traced:
        wanted = self.out_specs
        if isinstance(wanted, _PerResult):
            out_key: Any = wanted.key
        else:
            flat, out_tree = tree_flatten(wanted, is_leaf=_is_spec)
            out_key = tuple(flat), out_tree
        key = (tree, tuple(avals), specs, out_key, self.mesh, self.axes, self.check_vma, xla.trace_context(),
               tuple(state.axis_sizes.items()))
        found = _traced.of(self.fun)
        traced = found.get(key)
        if traced is None or traced.is_stale():
            traced = found[key] = self._trace(tree, avals, specs, debug)
        return traced

    def _trace(self, tree: Any, avals: Sequence[Any], specs: tuple[Any, ...], debug: Any) -> _Traced:
        out_tree: Any = None
        out_specs: tuple[Any, ...] = ()
        if not isinstance(self.out_specs, _PerResult):  # before an error of the function itself, which may follow from it
            given = tree_flatten(self.out_specs, is_leaf=_is_spec)[0]
            self._check_axes("out_specs", [spec for spec in given if spec is not None])

        def flat(*parts: Any) -> list[Any]:
            nonlocal out_tree, out_specs
            outs, out_tree = flatten_outputs(self.fun(*tree.unflatten(parts)), debug)
            result = out_tree.unflatten(outs)
            wanted = self.out_specs
            each = isinstance(wanted, _PerResult)
            out_specs = self._flat_specs("out_specs", wanted.specs(result) if each else wanted, result)
            if each:
                self._check_axes("out_specs", out_specs)
            for out, spec in zip(outs, out_specs, strict=True):
                self._check_result(aval_of(out), spec)
            return [_as_out(out, spec) for out, spec in zip(outs, out_specs, strict=True)]

        with inside(self.mesh, self.axes, self.check_vma):
            parts = [part_aval(aval, spec, self.mesh, self.check_vma, self.axes)
                     for aval, spec in zip(avals, specs, strict=True)]
            jaxpr, consts = trace_to_jaxpr(flat, parts, debug)
            if REF in jaxpr.effects:
                jaxpr, consts = without_local_refs(jaxpr, consts)
        return _Traced(hoist_consts(jaxpr), consts, out_tree, out_specs)

    def _check_result(self, aval: Any, spec: Any) -> None:
        if len(spec) > aval.ndim:
            raise ValueError(
                f"shard_map applied to the function '{self.name}' was given an out_specs entry which is too long to be "
                f"compatible with the corresponding output value from the function:\n\nout_specs is {spec} which has length "
                f"{len(spec)}, but {self.name}(*args) has shape {aval.str_short()}, which has rank "
                f"{aval.ndim} (and {aval.ndim} < {len(spec)})\n\nEntries in out_specs must be of length no greater than the "
                "number of axes in the corresponding output value.\n\nA scalar that is not the same on all devices needs an "
                "axis along which its values can be put together: return x[None].")
        own = aval.layout.spec if has_states(aval) else P()
        varies = (aval.vma & self.axes).difference(used_axes(spec), spec.unreduced) if self.check_vma else frozenset()
        if not spec.unreduced and not spec.reduced:
            varies |= own.unreduced.difference(used_axes(spec))
        elif self.check_vma and (own.unreduced | _parts(aval, spec), own.reduced) != (spec.unreduced, spec.reduced):
            raise ValueError("out_specs passed to shard_map should be equal to the unreduced present on the out_aval. Got "
                             f"out_specs={spec} and out_aval={aval.str_short(short_dtypes=True)}")
        if own.unreduced and spec.unreduced and own.unreduced_kind is not spec.unreduced_kind:
            raise ValueError("out_specs passed to shard_map should be equal to the unreduced_kind present on the out_aval. Got "
                             f"out_specs={spec} and out_aval={aval.str_short(short_dtypes=True)}")
        if own.reduced.difference(spec.reduced):
            raise ValueError("out_specs passed to shard_map should be equal to the reduced present on the out_aval. Got "
                             f"out_specs={spec} and out_aval={aval.str_short(short_dtypes=True)}")
        if varies:
            order = [name for name in self.mesh.axis_names if name in self.axes]
            shown = ["{" + ", ".join(map(str, names)) + "}" for names in (
                [n for n in order if n in used_axes(spec)], [n for n in order if n in varies],
                [n for n in order if n in aval.vma | own.unreduced])]
            raise ValueError(
                f"shard_map applied to the function '{self.name}' was given out_specs which require replication which can't be "
                f"statically inferred given the mesh:\n\n{self._mesh_text()}\n\nout_specs is {spec} which implies that the "
                f"corresponding output value is only varying across mesh axes {shown[0]} and not {shown[1]}, but it was "
                f"inferred to be possibly varying over {shown[2]}\n\nCheck if these output values are meant to be replicated "
                "over those mesh axes. If not, consider revising the corresponding out_specs entries. If so, consider "
                "disabling the check by passing the check_vma=False argument to `jax.shard_map`.")


def _parts(aval: Any, spec: Any) -> frozenset[Any]:
    """The axes along which what varies becomes parts of a sum."""
    return spec.unreduced & aval.vma if spec.unreduced_kind is UnreducedKind.sum else frozenset()


def _as_out(out: Any, spec: Any) -> Any:
    """A result that varies along the axes that its spec names, and is to be summed over those that it says."""
    out = parallel.vary(out, used_axes(spec))
    parts = _parts(aval_of(out), spec)
    return parallel.pcast(out, tuple(sorted(parts, key=str)), to="unreduced") if parts and config.check_vma.value else out


def _settled_mesh(mesh: Any) -> Any:
    """The mesh of a call: what was given, or that of the context."""
    context = get_abstract_mesh()
    if mesh is None:
        if context.empty:
            raise ValueError("The context mesh cannot be empty. Use `jax.set_mesh(mesh)` to enter into a mesh context")
        return context
    if not isinstance(mesh, (Mesh, AbstractMesh)):
        raise TypeError(f"shard_map requires a `jax.sharding.Mesh` or a `jax.sharding.AbstractMesh` instance for its second "
                        f"argument, but got {mesh} of type {type(mesh)}.")
    return context if context.manual_axes else mesh


def _check_context(mesh: Any) -> None:
    context = get_abstract_mesh()
    if isinstance(mesh, (Mesh, AbstractMesh)) and not context.empty and any(
            getattr(mesh, what) != getattr(context, what) for what in ("axis_names", "axis_sizes", "axis_types")):
        raise ValueError(f"The context mesh {context!r} should match the mesh passed to shard_map {mesh}")
