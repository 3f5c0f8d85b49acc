"""The primitive of `shard_map`, a per-device program over a mesh, and its rules.

Its params: `jaxpr`, the program of one device; `mesh`; `newly_manual_axes`, the mesh axes that are manual (along the others
XLA splits the program, or an outer `shard_map` has split it already); `in_specs` and `out_specs`, how operands and results
are split along the manual axes; `check_vma`, whether types record the axes along which values vary.

The rules transform the inner program and compute the specs of new operands and results. Residuals of a derivative leave the
program split along the axes along which they vary, stacked along axis 0. An operand that is the same on all devices enters
the program unsplit, and its cotangent is the sum over the devices: with `check_vma`, the transposes of the casts are this
sum; without it, transposition sums over all axes that a spec does not name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from jaxlite.compilation.jit import jit
from jaxlite.core import config
from jaxlite.core.aval import AbstractRef, ShapedArray, dual_spec, has_states, is_cut, layout_of, plain, varying, with_layout
from jaxlite.core.discharge import discharge_jaxpr, discharges
from jaxlite.core.effects import REF
from jaxlite.core.errors import JaxprTypeError
from jaxlite.core.jaxpr import ClosedJaxpr, JaxprEqn, derived, drop, eval_jaxpr, pick
from jaxlite.core.lazy import loader
from jaxlite.core.primitive import MixedVarying, Primitive
from jaxlite.core.sharing import derived_once
from jaxlite.core.staging import hoist_consts, trace_to_jaxpr
from jaxlite.core.tracing import state
from jaxlite.core.values import aval_of
from jaxlite.devices.mesh import AxisType, Mesh, abstract_context, context_mesh
from jaxlite.devices.sharding import NamedSharding, P, axes_of, used_axes
from jaxlite.lax import elementwise, parallel, shaping
from jaxlite.traces.backward_logs import log_outputs, with_log
from jaxlite.traces.batching import Axis, batch_flat, bring_to_front
from jaxlite.traces.call_rules import spread_cotangents, spread_tangents
from jaxlite.traces.jvp import Zero, cotangent_aval, jvp_jaxpr, nonzero_flags, zero_for
from jaxlite.traces.linearize import linearize_jaxpr
from jaxlite.traces.transpose import Linear, backward, is_linear

shard_map_p = Primitive("shard_map", multiple_results=True, memoise="jaxpr")
shard_map_p.knows_vma = True
Specs = tuple[Any, ...]


def _mesh_inside(mesh, axes: frozenset[Any]):
    return mesh.abstract_mesh.update_axis_types(dict.fromkeys(axes, AxisType.Manual))


@contextmanager
def inside(mesh, axes: frozenset[Any], check_vma: bool) -> Iterator[None]:
    """Trace what runs on one device of a mesh: collectives can use its axes, types have the varying axes."""
    mesh_before, check_before = abstract_context.swap_local(_mesh_inside(mesh, axes)), config.check_vma.swap_local(check_vma)
    sizes, state.axis_sizes = state.axis_sizes, {**state.axis_sizes, **{name: mesh.shape[name] for name in axes}}
    try:
        yield
    finally:
        state.axis_sizes = sizes
        config.check_vma.set_local(check_before)
        abstract_context.set_local(mesh_before)


shard_map_p.scope = lambda params: inside(params["mesh"], params["newly_manual_axes"], params["check_vma"])
_texts = loader("jaxlite.devices.texts")
_rules_of_refs = loader("jaxlite.state.rules")  # what stands higher: it reads and writes
shard_map_p.param_readers = {
    "mesh": lambda text: _texts().read_mesh(text),
    "in_specs": lambda text: _texts().read_specs(text),
    "out_specs": lambda text: _texts().read_specs(text),
}


def part_aval(aval, spec, mesh, check_vma: bool, axes: frozenset[Any]):
    """The type of the part that one device has. It stays cut along the explicit axes that do not become manual."""
    if type(aval) is AbstractRef:
        return aval.update(inner_aval=part_aval(aval.inner_aval, spec, mesh, check_vma, axes))
    if type(aval) is not ShapedArray:
        return aval
    shape = tuple(size // math.prod(mesh.shape[name] for name in axes_of(entry))
                  for size, entry in zip(aval.shape, _entries(spec, aval.ndim), strict=True))
    part = plain(aval).update(shape=shape)
    if is_cut(aval):
        cut = [axes_of(entry) for entry in aval.layout.spec]
        wanted, own = layout_of(NamedSharding(mesh, spec), aval.ndim), aval.layout.spec
        if [tuple(name for name in names if name in axes) for names in cut] != (
                [axes_of(entry) for entry in wanted.spec] if wanted else [()] * aval.ndim) or (
                spec != own.update(partitions=spec.partitions)):
            raise ValueError(f"in_specs passed to shard_map: {_full(spec, aval.ndim)} does not match the specs of the "
                             f"input: {aval.layout.spec} for arg: {aval.str_short()}. Give in_specs that "
                             "do, or use jax.sharding.reshard on the argument")
        rest = P(*(tuple(name for name in names if name not in axes) or None for names in cut))
        part = with_layout(part, layout_of(NamedSharding(_mesh_inside(mesh, axes), rest), aval.ndim))
    elif spec.unreduced or spec.reduced:
        raise ValueError(f"in_specs passed to shard_map: {_full(spec, aval.ndim)} does not match the specs of the input: "
                         f"{_full(P(), aval.ndim)} for arg: {aval.str_short()}. Use jax.sharding.reshard on "
                         "the argument")
    elif aval.layout is not None:
        part = with_layout(part, layout_of(NamedSharding(_mesh_inside(mesh, axes), P()), aval.ndim))
    if check_vma and (spec.unreduced or spec.reduced):  # all axes are manual, so it is not cut along others
        states = spec.update(partitions=[None] * aval.ndim)
        part = with_layout(part, NamedSharding(_mesh_inside(mesh, axes), states))
    return varying(part, part.vma.union(used_axes(spec))) if check_vma else part


def whole_aval(aval, spec, mesh, axes: frozenset[Any]):
    """The type of the array whose parts are on all devices."""
    if type(aval) is not ShapedArray:
        return aval
    entries = _entries(spec, aval.ndim)
    shape = tuple(size * math.prod(mesh.shape[name] for name in axes_of(entry))
                  for size, entry in zip(aval.shape, entries, strict=True))
    if aval.layout is not None:
        entries = [(*axes_of(entry), *axes_of(inner)) or None for entry, inner in zip(entries, aval.layout.spec, strict=True)]
    whole = plain(aval).update(shape=shape, vma=aval.vma - axes)
    return with_layout(whole, layout_of(NamedSharding(mesh, spec.update(partitions=entries)), aval.ndim))


def _with_states(spec, aval):
    """A spec of the unreduced and reduced axes of a type."""
    own = aval.layout.spec if has_states(aval) else P()
    return own.update(partitions=spec.partitions)


def _full(spec, ndim: int):
    return spec.update(partitions=_entries(spec, ndim))


def _entries(spec, ndim: int) -> list[Any]:
    return [*spec, *[None] * (ndim - len(spec))]


@shard_map_p.def_effectful_abstract_eval
def _shard_map_aval(*avals, jaxpr: ClosedJaxpr, mesh, in_specs: Specs, out_specs: Specs,
                    newly_manual_axes: frozenset[Any], check_vma: bool):
    if REF in jaxpr.effects:
        _rules_of_refs().go_by_values(shard_map_p)
    missing = [var.aval.vma - newly_manual_axes - aval.vma for aval, var in zip(avals, jaxpr.jaxpr.invars, strict=True)]
    if any(missing):
        raise MixedVarying(missing)
    for aval, spec, wanted in zip(avals, in_specs, jaxpr.in_avals, strict=True):
        part = part_aval(aval, spec, mesh, check_vma, newly_manual_axes)
        if part.shape != wanted.shape or part.dtype != wanted.dtype or not part.vma <= wanted.vma:
            raise JaxprTypeError(f"shard_map: an operand is {aval} with the spec {spec}, so each device has {part}; the "
                                 f"jaxpr takes {wanted}")
    return [whole_aval(aval, spec, mesh, newly_manual_axes)
            for aval, spec in zip(jaxpr.out_avals, out_specs, strict=True)], jaxpr.effects


# --- at once -----------------------------------------------------------------------------------------


@shard_map_p.def_eager
def _run(*args, jaxpr: ClosedJaxpr, **params):
    mesh = params["mesh"] if isinstance(params["mesh"], Mesh) else context_mesh()

    def compiled(closed: ClosedJaxpr) -> Callable:
        def shard_map(*args):
            return shard_map_p.bind(*args, jaxpr=closed, **params)

        if params["newly_manual_axes"] == frozenset(mesh.axis_names):
            return jit(shard_map, out_shardings=[NamedSharding(mesh, spec) for spec in params["out_specs"]])
        return jit(shard_map)

    call = derived_once(jaxpr, ("call", mesh, *params.items()), compiled)
    previous = config.disable_jit.state.swap_local(False)
    try:
        return call(*args)
    finally:
        config.disable_jit.state.set_local(previous)


@discharges(shard_map_p)
def _with_values(eqn: JaxprEqn, values: list[Any]):
    """The operand for a Ref is its parts, which are joined again if the program writes them."""
    params = eqn.params
    mesh, axes, in_specs = params["mesh"], params["newly_manual_axes"], params["in_specs"]
    with inside(mesh, axes, params["check_vma"]):
        found = discharge_jaxpr(params["jaxpr"])
    count = len(eqn.outvars)
    for index, aval in zip(found.written, found.closed.out_avals[count:], strict=True):
        varies = aval.vma.intersection(axes).difference(used_axes(in_specs[index]))
        if varies:
            raise ValueError(f"shard_map writes a value that varies along the mesh axes {set(varies)} to a Ref whose in_specs, "
                             f"{in_specs[index]}, say that it is the same along them")
    outs = shard_map_p.bind(*values, **{**params, "jaxpr": found.closed, "out_specs": (
        *params["out_specs"], *(in_specs[index] for index in found.written))})
    return outs[:count], dict(zip(found.written, outs[count:], strict=True))


# --- remembered programs -----------------------------------------------------------------------------

def _remembered(make: Callable[..., Any], jaxpr: ClosedJaxpr, *args):
    """`make(jaxpr, *args)`: one program gives one equation."""
    return derived(jaxpr, (make, *args), lambda: make(jaxpr, *args))


def _traced(fun: Callable, avals: Sequence[Any], debug) -> tuple[ClosedJaxpr, list[Any]]:
    jaxpr, consts = trace_to_jaxpr(fun, avals, debug)
    return hoist_consts(jaxpr), consts


def _whole(count: int) -> Specs:
    return (P(),) * count


# --- derivatives -------------------------------------------------------------------------------------


@shard_map_p.def_jvp
def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, jaxpr: ClosedJaxpr, mesh, in_specs: Specs,
         out_specs: Specs, newly_manual_axes: frozenset[Any], check_vma: bool):
    nonzero = nonzero_flags(tangents)
    with inside(mesh, newly_manual_axes, check_vma):
        program, consts, out_nonzero = jvp_jaxpr(jaxpr, nonzero, False)
    outs = shard_map_p.bind(
        *consts, *primals, *pick(tangents, nonzero), jaxpr=program, mesh=mesh,
        in_specs=(*_whole(len(consts)), *in_specs, *pick(in_specs, nonzero)),
        out_specs=(*out_specs, *pick(out_specs, out_nonzero)), newly_manual_axes=newly_manual_axes, check_vma=check_vma)
    count = len(jaxpr.out_avals)
    primals_out = outs[:count]
    return primals_out, spread_tangents(outs[count:], out_nonzero, [aval_of(out) for out in primals_out])


class _Split:
    """A program split for linearisation, with residuals that can leave it and enter it again."""

    def __init__(self, jaxpr: ClosedJaxpr, nonzero: tuple[bool, ...], mesh, in_specs: Specs, axes: frozenset[Any],
                 check_vma: bool):
        with inside(mesh, axes, check_vma):
            split = self.split = linearize_jaxpr(jaxpr, nonzero)
            count = len(jaxpr.out_avals)
            leaving = split.primal.out_avals[split.num_outs:]
            order = [name for name in mesh.axis_names if name in axes]
            stacked = [tuple(name for name in order if not check_vma or name in aval.vma) for aval in leaving]
            specs = [_with_states(P(names) if names else P(), aval) for names, aval in zip(stacked, leaving, strict=True)]
            scalar = [bool(names) and not aval.shape for names, aval in zip(stacked, leaving, strict=True)]
            self.residual_specs = tuple(specs)

            def primal(*args) -> list[Any]:
                outs = eval_jaxpr(split.primal.jaxpr, [], *args)
                return [*outs[:count], *(shaping.reshape(out, (1,)) if flag else out
                                         for out, flag in zip(outs[count:], scalar, strict=True))]

            computed = iter(zip(specs, scalar, strict=True))
            pairs = [(in_specs[index], False) if index is not None else next(computed) for index in split.forwarded]
            self.entering_specs = tuple(spec for spec, _ in pairs)
            flags = [flag for _, flag in pairs]

            def tangent(*args) -> list[Any]:
                residuals = [shaping.reshape(each, ()) if flag else each
                             for each, flag in zip(args, flags, strict=False)]
                return eval_jaxpr(split.tangent.jaxpr, [], *residuals, *args[len(flags):])

            avals = [aval.update(shape=(1,)) if flag else aval
                     for aval, flag in zip(split.tangent.in_avals, flags, strict=False)]
            debug = jaxpr.jaxpr.debug_info
            self.primal, self.tangent = split.primal, split.tangent
            if any(scalar):
                self.primal, none = _traced(primal, split.primal.in_avals, debug)
                self.tangent, nothing = _traced(tangent, [*avals, *split.tangent.in_avals[len(flags):]], debug)
                assert not none and not nothing


def _linearize(primals: Sequence[Any], tangents: Sequence[Any], *, jaxpr: ClosedJaxpr, mesh, in_specs: Specs,
               out_specs: Specs, newly_manual_axes: frozenset[Any], check_vma: bool):
    nonzero = tuple(type(tangent) is not Zero for tangent in tangents)
    made = _remembered(_Split, jaxpr, nonzero, mesh, in_specs, newly_manual_axes, check_vma)
    split = made.split
    common = {"mesh": mesh, "newly_manual_axes": newly_manual_axes, "check_vma": check_vma}
    outs = shard_map_p.bind(*split.consts, *primals, jaxpr=made.primal, in_specs=(*_whole(len(split.consts)), *in_specs),
                            out_specs=(*out_specs, *made.residual_specs), **common)
    primals_out = outs[:split.num_outs]
    if not any(split.nonzero_out):
        return primals_out, [zero_for(out) for out in primals_out]
    tangents_out = shard_map_p.bind(
        *split.residuals(outs, primals), *pick(tangents, nonzero), jaxpr=made.tangent,
        in_specs=(*made.entering_specs, *pick(in_specs, nonzero)), out_specs=tuple(pick(out_specs, split.nonzero_out)),
        **common)
    return primals_out, spread_tangents(tangents_out, split.nonzero_out, [aval_of(out) for out in primals_out])


shard_map_p.linearize = _linearize


def _unnamed(spec, mesh, axes: frozenset[Any]) -> tuple[Any, ...]:
    """The manual axes along which all devices have the same."""
    used = used_axes(spec)
    return tuple(name for name in mesh.axis_names if name in axes and name not in used)


def _backward(jaxpr: ClosedJaxpr, linear: tuple[bool, ...], nonzero: tuple[bool, ...], mesh, in_specs: Specs,
              out_specs: Specs, axes: frozenset[Any], check_vma: bool,
              ) -> tuple[ClosedJaxpr, list[Any], list[bool], Any, list[Any]]:
    """The transposed program, of consts, operands that are not linear, and cotangents; which cotangents it gives; the tree
    of what was logged, and its specs: the parts of all devices that may differ are joined along the first axis."""
    variables = jaxpr.jaxpr.invars
    known = [var.aval for var, flag in zip(variables, linear, strict=True) if not flag]
    incoming = [varying(cotangent_aval(aval), aval.vma.union(used_axes(spec)) if check_vma else aval.vma)
                for aval, spec, flag in zip(jaxpr.out_avals, out_specs, nonzero, strict=True) if flag]
    arrives: list[bool] = []
    logged: Any = None
    log_specs: list[Any] = []

    def fun(*values) -> list[Any]:
        nonlocal logged
        rest, given = iter(values[:len(known)]), iter(values[len(known):])
        args = [Linear(var.aval) if flag else next(rest) for var, flag in zip(variables, linear, strict=True)]
        cotangents: list[Any] = []
        for aval, flag in zip(jaxpr.out_avals, nonzero, strict=True):
            if not flag:
                cotangents.append(Zero(cotangent_aval(aval)))
                continue
            cotangent = next(given)
            more = cotangent.aval.vma - aval.vma  # a result that does not vary, but is joined
            names = tuple(name for name in mesh.axis_names if name in more)
            cotangents.append(parallel.sum_over(cotangent, names) if names else cotangent)
        found, extra, logged = with_log(backward, jaxpr.jaxpr, [], args, cotangents)
        outs = []
        for out, spec, flag in zip(found, in_specs, linear, strict=True):
            if flag:
                names = () if check_vma or type(out) is Zero else _unnamed(spec, mesh, axes)
                outs.append(parallel.sum_over(out, names) if names else out)
        arrives.extend(type(out) is not Zero for out in outs)
        extra = [value if aval_of(value).shape else shaping.expand_dims(value, (0,)) for value in extra]
        for value in extra:
            varies = aval_of(value).vma if check_vma else axes
            log_specs.append(P(tuple(name for name in mesh.axis_names if name in varies) or None))
        return [*[out for out in outs if type(out) is not Zero], *extra]

    with inside(mesh, axes, check_vma):
        program, consts = _traced(fun, [*known, *incoming], jaxpr.jaxpr.debug_info)
    return program, consts, arrives, logged, log_specs


@shard_map_p.def_transpose
def _transpose(cotangents: Sequence[Any], *operands, jaxpr: ClosedJaxpr, mesh, in_specs: Specs, out_specs: Specs,
               newly_manual_axes: frozenset[Any], check_vma: bool) -> list[Any]:
    linear = tuple(map(is_linear, operands))
    nonzero = tuple(type(cotangent) is not Zero for cotangent in cotangents)
    program, consts, arrives, logged, log_specs = _remembered(_backward, jaxpr, linear, nonzero, mesh, in_specs, out_specs,
                                                              newly_manual_axes, check_vma)
    known = drop(operands, linear)
    given = []
    for cotangent, spec, flag in zip(cotangents, out_specs, nonzero, strict=True):
        if flag:
            copies = 1 if check_vma else math.prod(mesh.shape[name] for name in _unnamed(spec, mesh, newly_manual_axes))
            given.append(cotangent if copies == 1 else
                         elementwise.div(cotangent, np.asarray(copies).astype(aval_of(cotangent).dtype)[()]))
    known_specs = drop(in_specs, linear)
    linear_specs = list(map(dual_spec, pick(in_specs, linear)))
    given_specs = map(dual_spec, pick(out_specs, nonzero))
    outs = log_outputs(shard_map_p.bind(
        *consts, *known, *given, jaxpr=program, mesh=mesh, check_vma=check_vma, newly_manual_axes=newly_manual_axes,
        in_specs=(*_whole(len(consts)), *known_specs, *given_specs),
        out_specs=(*pick(linear_specs, arrives), *log_specs)), logged, shard_map_p)
    return spread_cotangents(outs, arrives, operands, linear)


# --- batching ----------------------------------------------------------------------------------------


def _with_entry(spec, dim: int, entry):
    return spec.update(partitions=[*_entries(spec, max(dim, len(spec)))[:dim], entry, *spec[dim:]])


def _batched(jaxpr: ClosedJaxpr, size: int, name, spmd: tuple[Any, ...], dims: tuple[int | None, ...], mesh,
             axes: frozenset[Any], check_vma: bool) -> tuple[ClosedJaxpr, list[Any], list[bool]]:
    """The program on batches, its consts, and which results are batched: in front."""
    axis = Axis(size, name, spmd[0] if len(spmd) == 1 else spmd or None, frozenset(spmd) if check_vma else frozenset())
    flags: list[bool] = []

    def fun(*args) -> list[Any]:
        outs, out_dims = batch_flat(lambda *xs: eval_jaxpr(jaxpr.jaxpr, jaxpr.consts, *xs), args, dims, axis)
        flags.extend(dim is not None for dim in out_dims)
        return [out if dim is None else bring_to_front(out, dim, size) for out, dim in zip(outs, out_dims, strict=True)]

    with inside(mesh, axes, check_vma):
        program, consts = _traced(fun, [aval if dim is None else axis.batched(aval, dim)
                                        for aval, dim in zip(jaxpr.in_avals, dims, strict=True)], jaxpr.jaxpr.debug_info)
    return program, consts, flags


@shard_map_p.def_batching
def _batch(axis: Axis, args: Sequence[Any], dims: Sequence[int | None], *, jaxpr: ClosedJaxpr, mesh, in_specs: Specs,
           out_specs: Specs, newly_manual_axes: frozenset[Any], check_vma: bool):
    for name in axes_of(axis.spmd_name):
        if name not in mesh.shape:
            raise ValueError(f"vmap spmd_axis_name {name!r} is no axis of the mesh of shard_map, {tuple(mesh.axis_names)}")
    spmd = tuple(name for name in axes_of(axis.spmd_name) if name in newly_manual_axes)
    for spec in (*in_specs, *out_specs):
        if not set(spmd).isdisjoint(used_axes(spec)):
            raise ValueError("vmap spmd_axis_name cannot appear in shard_map in_specs or out_specs, got "
                             f"{axis.spmd_name!r} and {spec}")
    parts = math.prod(mesh.shape[name] for name in spmd)
    if axis.size % parts:
        raise ValueError(f"the size {axis.size} of the axis that vmap maps is not a multiple of {parts}, the size of its "
                         f"spmd_axis_name {axis.spmd_name!r}")
    entry = None if not spmd else spmd[0] if len(spmd) == 1 else spmd
    program, consts, flags = _remembered(_batched, jaxpr, axis.size // parts, axis.name, spmd, tuple(dims), mesh,
                                         newly_manual_axes, check_vma) if not state.axis_sizes else _batched(
        jaxpr, axis.size // parts, axis.name, spmd, tuple(dims), mesh, newly_manual_axes, check_vma)
    outs = shard_map_p.bind(
        *consts, *args, jaxpr=program, mesh=mesh, newly_manual_axes=newly_manual_axes, check_vma=check_vma,
        in_specs=(*_whole(len(consts)), *(spec if dim is None else _with_entry(spec, dim, entry)
                                          for spec, dim in zip(in_specs, dims, strict=True))),
        out_specs=tuple(_with_entry(spec, 0, entry) if flag else spec for spec, flag in zip(out_specs, flags, strict=True)))
    return outs, [0 if flag else None for flag in flags]
