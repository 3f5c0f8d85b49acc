"""Derivative and batching rules of `cond`: each branch is transformed, and all branches return the same types."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxlite.core import dtypes
from jaxlite.core.array import make_array
from jaxlite.core.effects import check_harmless
from jaxlite.core.jaxpr import ClosedJaxpr, Jaxpr, JaxprEqn, Var, derived, drop, eval_jaxpr, once_for_each, pick, subjaxprs
from jaxlite.core.staging import trace_to_jaxpr
from jaxlite.core.tree import tree_unflatten
from jaxlite.core.values import aval_of
from jaxlite.lax import shaping
from jaxlite.lax.control_flow.cond import cond, cond_p, platform_index_p
from jaxlite.lax.elementwise import clamp, eq, select_n
from jaxlite.lax.reductions import reduce_and
from jaxlite.traces.backward_logs import CondSum, log
from jaxlite.traces.batching import Axis, batch_jaxpr, bring_to_front
from jaxlite.traces.call_rules import spread_cotangents, spread_tangents
from jaxlite.traces.jvp import Zero, jvp_jaxpr, nonzero_flags, tangent_aval, zeros_of
from jaxlite.traces.linearize import linearize_jaxpr
from jaxlite.traces.saving import (
    Split,
    for_results,
    keeping,
    narrowing,
    read_inputs,
    split_by_policy,
    whole_or_inside,
    with_inputs,
)
from jaxlite.traces.transpose import backward_jaxpr, is_linear


def _join(programs: Sequence[ClosedJaxpr], consts: Sequence[Sequence[Any]]) -> tuple[tuple[ClosedJaxpr, ...], list[Any]]:
    """Branches that all take the consts of all, before their common operands."""

    def make() -> tuple[ClosedJaxpr, ...]:
        joined = []
        for which, program in enumerate(programs):
            own, rest = program.jaxpr.invars[:len(consts[which])], program.jaxpr.invars[len(consts[which]):]
            inputs = []
            for other, values in enumerate(consts):
                inputs += own if other == which else [Var(aval_of(value)) for value in values]
            joined.append(ClosedJaxpr(program.jaxpr.replace(invars=[*inputs, *rest]), []))
        return tuple(joined)

    return derived(programs[0], ("join", *programs[1:]), make), [value for values in consts for value in values]


def _union(flags: Sequence[Sequence[bool]]) -> list[bool]:
    return [any(column) for column in zip(*flags, strict=True)]


@cond_p.def_jvp
def _cond_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, branches: tuple[ClosedJaxpr, ...], **params):
    index, *operands = primals
    nonzero = nonzero_flags(tangents[1:])
    flags = _union([jvp_jaxpr(branch, nonzero, False)[2] for branch in branches])
    found = [jvp_jaxpr(branch, nonzero, flags) for branch in branches]
    programs, consts = _join([program for program, _, _ in found], [values for _, values, _ in found])
    outs = cond_p.bind(index, *consts, *operands, *pick(tangents[1:], nonzero), branches=programs, **params)
    count = len(branches[0].out_avals)
    return outs[:count], spread_tangents(outs[count:], flags, branches[0].out_avals)


def _cond_linearize(primals: Sequence[Any], tangents: Sequence[Any], *, branches: tuple[ClosedJaxpr, ...], **params):
    index, *operands = primals
    nonzero = nonzero_flags(tangents[1:])
    flags = _union([linearize_jaxpr(branch, nonzero).nonzero_out for branch in branches])
    splits = [linearize_jaxpr(branch, nonzero, flags) for branch in branches]
    primal_programs, tangent_programs, num_slots, used = derived(
        splits[0], ("cond", *splits[1:]), lambda: _share_residuals(splits, len(operands)))
    programs, consts = _join(primal_programs, [split.consts for split in splits])
    outs = cond_p.bind(index, *consts, *operands, branches=programs, **params)
    count = splits[0].num_outs
    results, residuals = outs[:count], outs[count:]
    assert len(residuals) == num_slots
    if not any(flags):
        return results, [Zero(tangent_aval(aval)) for aval in branches[0].out_avals]
    dots = cond_p.bind(index, *[operands[position] for position in used], *residuals, *pick(tangents[1:], nonzero),
                       branches=tangent_programs, **params)
    return results, spread_tangents(dots, flags, branches[0].out_avals)


def _slots(wanted: Sequence[Sequence[Any]]) -> tuple[list[Any], list[list[int]]]:
    """Common slots for the values that each branch gives: the types of the slots, and for each branch those of its values."""
    slots: list[Any] = []
    chosen: list[list[int]] = []
    for avals in wanted:
        free = list(range(len(slots)))
        own = []
        for aval in avals:
            match = next((slot for slot in free if slots[slot] is aval), None)
            if match is None:
                slots.append(aval)
                match = len(slots) - 1
            else:
                free.remove(match)
            own.append(match)
        chosen.append(own)
    return slots, chosen


def _filled(branch: ClosedJaxpr, num_outs: int, slots: Sequence[Any], own: Sequence[int]) -> ClosedJaxpr:
    """A branch whose outputs after the first go into their slots, with zeros in the others."""

    def fill(*values) -> list[Any]:
        outs = eval_jaxpr(branch.jaxpr, [], *values)
        filled = dict(zip(own, outs[num_outs:], strict=True))
        return outs[:num_outs] + [filled[slot] if slot in filled else zeros_of(aval) for slot, aval in enumerate(slots)]

    jaxpr, consts = trace_to_jaxpr(fill, branch.in_avals, branch.jaxpr.debug_info)
    assert not consts
    return ClosedJaxpr(jaxpr, [])


def _share_residuals(splits: Sequence[Any], num_operands: int,
                     ) -> tuple[list[ClosedJaxpr], tuple[ClosedJaxpr, ...], int, list[int]]:
    """Primal branches that give residuals in common slots, one for each type and count, and tangent branches that read them.

    A residual that is an operand needs no slot; `used` are those operands.
    """
    used = sorted({position for split in splits for position in split.forwarded if position is not None})
    slots, chosen = _slots([[atom.aval for atom in split.primal.jaxpr.outvars[split.num_outs:]] for split in splits])
    primal_programs, tangent_programs = [], []
    for split, own in zip(splits, chosen, strict=True):
        primal_programs.append(_filled(split.primal, split.num_outs, slots, own))
        tangent = split.tangent.jaxpr
        computed = iter(own)
        operand_vars = [Var(split.primal.in_avals[len(split.consts) + position]) for position in used]
        slot_vars = [Var(aval) for aval in slots]
        inputs: list[Any] = [*operand_vars, *slot_vars]
        for var, position in zip(tangent.invars, split.forwarded, strict=False):
            place = len(used) + next(computed) if position is None else used.index(position)
            if inputs[place] in tangent.invars:  # one operand read as two residuals
                tangent = tangent.replace(eqns=[_renamed(eqn, var, inputs[place]) for eqn in tangent.eqns],
                                          outvars=[inputs[place] if atom is var else atom for atom in tangent.outvars])
            else:
                inputs[place] = var
        rest = tangent.invars[len(split.forwarded):]
        tangent_programs.append(ClosedJaxpr(tangent.replace(invars=[*inputs, *rest]), []))
    return primal_programs, tuple(tangent_programs), len(slots), used


def _renamed(eqn, old, new):
    return eqn.replace(invars=[new if atom is old else atom for atom in eqn.invars])


cond_p.linearize = _cond_linearize


def _keep_in_cond(eqn: JaxprEqn, policy: Callable[..., Any]) -> Split | None:
    jaxprs = [branch.jaxpr for branch in eqn.params["branches"]]
    inner = [split_by_policy(jaxpr, policy) for jaxpr in jaxprs]
    if not any(split.saved for split in inner):
        return None
    wholes = [whole_or_inside(eqn, split, jaxpr.outvars) for split, jaxpr in zip(inner, jaxprs, strict=True)]
    if all(wholes):
        return wholes[0]
    slots, chosen = _slots([[var.aval for var in split.saved] for split in inner])
    forward, again = [], []
    for jaxpr, split, own in zip(jaxprs, inner, chosen, strict=True):
        forward.append(_filled(ClosedJaxpr(jaxpr.replace(eqns=split.forward, outvars=[*jaxpr.outvars, *split.saved]), []),
                               len(jaxpr.outvars), slots, own))
        taken = dict(zip(own, split.saved, strict=True))
        inputs = [taken[slot] if slot in taken else Var(aval) for slot, aval in enumerate(slots)]
        again.append(ClosedJaxpr(jaxpr.replace(eqns=split.again, invars=[*jaxpr.invars, *inputs]), []))
    saved = [Var(aval) for aval in slots]
    return Split([eqn.replace(outvars=[*eqn.outvars, *saved], params={**eqn.params, "branches": tuple(forward)})], saved,
                 [eqn.replace(invars=[*eqn.invars, *saved], params={**eqn.params, "branches": tuple(again)})])


def _narrow_cond(eqn: JaxprEqn, used: list[bool]) -> JaxprEqn:
    branches: tuple[ClosedJaxpr, ...] = eqn.params["branches"]

    def make() -> tuple[tuple[ClosedJaxpr | None, ...], list[bool]]:
        jaxprs = [for_results(branch.jaxpr, used) for branch in branches]
        read = _union([read_inputs(jaxpr) for jaxpr in jaxprs])
        return tuple(with_inputs(branch, jaxpr, read) for branch, jaxpr in zip(branches, jaxprs, strict=True)), read

    found, read = derived(branches[0], ("narrow", *branches[1:], *used), make)
    if all(branch is None for branch in found):
        return eqn
    fewer = tuple(new or branch for new, branch in zip(found, branches, strict=True))
    return eqn.replace(invars=[eqn.invars[0], *pick(eqn.invars[1:], read)], outvars=pick(eqn.outvars, used),
                       params={**eqn.params, "branches": fewer})


keeping[cond_p], narrowing[cond_p] = _keep_in_cond, _narrow_cond


def _with_all_logs(programs: Sequence[ClosedJaxpr], trees: Sequence[Any]) -> Sequence[ClosedJaxpr]:
    """Transposed branches that all give what each of them logs, zeros for what others do."""
    starts = list(itertools.accumulate((tree.num_leaves for tree in trees), initial=0))
    if not starts[-1]:
        return programs

    def make() -> list[ClosedJaxpr]:
        slots: list[Any] = []
        for program, tree in zip(programs, trees, strict=True):
            slots += program.out_avals[len(program.out_avals) - tree.num_leaves:]
        return [_filled(program, len(program.out_avals) - tree.num_leaves, slots, range(start, start + tree.num_leaves))
                for program, tree, start in zip(programs, trees, starts, strict=False)]

    return derived(programs[0], ("logs", *programs[1:]), make)


@cond_p.def_transpose
def _cond_transpose(cotangents: Sequence[Any], index, *operands, branches: tuple[ClosedJaxpr, ...], **params):
    linear = [is_linear(operand) for operand in operands]
    nonzero = nonzero_flags(cotangents)
    reached = _union([backward_jaxpr(branch, linear, nonzero)[2] for branch in branches])
    found = [backward_jaxpr(branch, linear, nonzero, reached) for branch in branches]
    trees = [tree for *_, tree in found]
    programs, consts = _join(_with_all_logs([program for program, *_ in found], trees), [values for _, values, *_ in found])
    outs = iter(cond_p.bind(index, *consts, *drop(operands, linear), *pick(cotangents, nonzero), branches=programs, **params))
    cotangents = [next(outs) for flag in reached if flag]
    which = make_array(index) if isinstance(index, np.generic) else index
    logs = [tree_unflatten(tree, [next(outs) for _ in range(tree.num_leaves)]) for tree in trees]
    log({name: CondSum(which, [own.get(name) for own in logs]) for name in dict.fromkeys(itertools.chain(*logs))}, cond_p)
    return [None, *spread_cotangents(cotangents, reached, operands, linear)]


@cond_p.def_batching
def _cond_batch(axis: Axis, args: Sequence[Any], dims: Sequence[int | None], *, branches: tuple[ClosedJaxpr, ...],
                **params) -> tuple[list[Any], list[int | None]]:
    index, *operands = args
    index_dim, *operand_dims = dims
    if index_dim is None:
        flags = _union([batch_jaxpr(branch, axis, operand_dims)[2] for branch in branches])
        found = [batch_jaxpr(branch, axis, operand_dims, flags) for branch in branches]
        programs, consts = _join([program for program, _, _ in found], [values for _, values, _ in found])
        outs = cond_p.bind(index, *consts, *operands, branches=programs, **params)
        return outs, [0 if flag else None for flag in flags]
    # Each example takes its own branch: compute all of them and choose.
    high = next((aval for branch in branches for aval in (*branch.in_avals, *branch.out_avals) if aval.is_high), None)
    if high is not None:
        raise NotImplementedError("vmap of a cond whose predicate differs from example to example chooses between arrays, and "
                                  f"not between values of the type {high}")
    which = bring_to_front(index, index_dim, axis.size)
    which = clamp(shaping.full((), 0, which.dtype), which, shaping.full((), len(branches) - 1, which.dtype))
    operands = [operand if _is_discrete(operand) else bring_to_front(operand, dim, axis.size)
                for operand, dim in zip(operands, operand_dims, strict=True)]
    operand_dims = [dim if _is_discrete(operand) else 0 for operand, dim in zip(operands, operand_dims, strict=True)]
    for branch in branches:
        check_harmless(branch.effects, "vmap of a cond with a batched predicate")

    def results(number: int, which, *operands) -> list[Any]:
        taken = eq(which, shaping.full((), number, which.dtype))
        program, consts, _ = batch_jaxpr(branches[number], axis, operand_dims, True)
        return eval_jaxpr(program.jaxpr, [], *consts, *[
            operand if _is_discrete(operand) else _held(taken, operand) for operand in operands])

    def choose(which, *operands) -> list[Any]:
        cases = [results(number, which, *operands) for number in range(len(branches))]
        return [select_n(shaping.broadcast_in_dim(which, aval_of(case[0]).shape, (0,)), *case)
                for case in zip(*cases, strict=True)]

    light = [number for number, branch in enumerate(branches) if not _factors(branch.jaxpr)]
    if len(light) != 1 or len(branches) == 1:
        outs = choose(which, *operands)
    else:  # a factorization for every example, where no example may need it, is what takes long
        (usual,) = light
        is_usual = reduce_and(eq(which, shaping.full((), usual, which.dtype)), (0,))
        outs = cond(is_usual, functools.partial(results, usual), choose, which, *operands)
    return outs, [0] * len(outs)


_FACTORIZATIONS = frozenset(("eig", "eigh", "geqrf", "hessenberg", "qr", "schur", "svd"))


@once_for_each
def _factors(jaxpr: Jaxpr) -> bool:
    """Whether it contains a factorization that takes much longer than a solve."""
    return any(eqn.primitive.name in _FACTORIZATIONS for eqn in jaxpr.eqns) or any(map(_factors, subjaxprs(jaxpr)))


def _is_discrete(operand) -> bool:
    return dtypes.kind(aval_of(operand).dtype) not in "fc"


def _held(taken, operand):
    """A branch's operand: where another branch is taken, one that has the same value and no derivative.

    There the branch's derivative may be infinite, and no zero cotangent would stay zero if it were multiplied by that. Without
    a derivative under way, both cases are one value, and XLA drops the choice.
    """
    return select_n(shaping.broadcast_in_dim(taken, aval_of(operand).shape, (0,)), shaping.stop_gradient(operand),
                    operand)


platform_index_p.no_jvp("it is an integer that does not depend on anything")
