"""Programs cut and arranged otherwise: by what is known, by outputs and inputs, with constants as inputs.

A program may be open or closed, a `Jaxpr` or a `ClosedJaxpr`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakValueDictionary

from jaxlite.compilation.dispatch import jit_p
from jaxlite.core.jaxpr import ClosedJaxpr, DebugInfo, DropVar, Jaxpr, JaxprEqn, Var, drop, no_effects, one_each, pick
from jaxlite.core.primitive import load_rules
from jaxlite.core.staging import StagingTrace
from jaxlite.core.tracing import set_trace
from jaxlite.traces import jvp, transpose
from jaxlite.traces.backward_logs import collecting
from jaxlite.traces.saving import call_operands, narrowing

Program = Jaxpr | ClosedJaxpr
_closed: WeakValueDictionary[int, ClosedJaxpr] = WeakValueDictionary()  # by the id of an open program, which they keep alive


def close_jaxpr(jaxpr: Program) -> ClosedJaxpr:
    """A program as a closed one. Raises: ValueError for an open one with constants, whose values are not known."""
    if isinstance(jaxpr, ClosedJaxpr):
        return jaxpr
    if jaxpr.constvars:
        raise ValueError(f"close_jaxpr takes a program without constants, this one has {len(jaxpr.constvars)}: "
                         "convert_constvars_jaxpr makes them inputs")
    found = _closed.get(id(jaxpr))
    if found is None:  # the same again for the same program: transformations remember programs
        found = _closed[id(jaxpr)] = ClosedJaxpr(jaxpr, [])
    return found


def convert_constvars_jaxpr(jaxpr: Program) -> Program:
    """The program with its constants as leading inputs."""
    if isinstance(jaxpr, ClosedJaxpr):
        return ClosedJaxpr(_as_inputs(jaxpr.jaxpr), [])
    return _as_inputs(jaxpr)


def _as_inputs(jaxpr: Jaxpr) -> Jaxpr:
    return jaxpr.replace(constvars=[], invars=[*jaxpr.constvars, *jaxpr.invars]) if jaxpr.constvars else jaxpr


def _rearranged(program: Program, **parts: Any) -> ClosedJaxpr:
    closed = close_jaxpr(program)
    return ClosedJaxpr(closed.jaxpr.replace(**parts), closed.consts)


def prune_closed_jaxpr_outputs(jaxpr: Program, used_outputs: Sequence[bool]) -> ClosedJaxpr:
    """The program with some of its outputs; all of its equations stay."""
    return _rearranged(jaxpr, outvars=pick(close_jaxpr(jaxpr).jaxpr.outvars, used_outputs))


def move_binders_to_back(closed_jaxpr: Program, to_move: Sequence[bool]) -> ClosedJaxpr:
    """The program that takes these inputs after the others."""
    invars = close_jaxpr(closed_jaxpr).jaxpr.invars
    return _rearranged(closed_jaxpr, invars=[*drop(invars, to_move), *pick(invars, to_move)])


def abstract_eval_fun(fun: Callable[..., Any], *avals: Any, debug_info: DebugInfo, **params: Any) -> list[Any]:
    """The types of what a function of flat values gives for values of these types."""
    trace = StagingTrace(debug_info)
    try:
        with set_trace(trace):
            jaxpr, _ = trace.finish(fun(*[trace.new_arg(aval) for aval in avals], **params))
    finally:
        trace.alive = False
    return [atom.aval for atom in jaxpr.outvars]


def partial_eval_jaxpr_nounits(jaxpr: Program, unknowns: Sequence[bool], instantiate: bool | Sequence[bool],
                               ) -> tuple[ClosedJaxpr, ClosedJaxpr, list[bool], list[Any]]:
    """Split a program in what its known inputs suffice for, and the rest. Calls, loops and branches are split too; of
    loops and branches the rest computes again what it needs.

    Args:
      unknowns: for each input whether it is unknown.
      instantiate: whether outputs that are known belong to the rest all the same: for all, or for each.
    Returns: the program from known inputs to known outputs + residuals; that from residuals + unknown inputs to the other
      outputs; for each output whether it is of the latter; the types of the residuals.
    """
    load_rules()
    program = close_jaxpr(jaxpr)
    whole = program.jaxpr
    unknown: set[Any] = set(pick(whole.invars, unknowns))
    first: list[JaxprEqn] = []
    rest: list[JaxprEqn] = []
    for eqn in whole.eqns:
        early, late = (eqn, None) if unknown.isdisjoint(eqn.invars) else _split(eqn, unknown)
        if early is not None:
            first.append(early)
        if late is not None:
            rest.append(late)
            unknown.update(late.outvars)
    wanted = one_each(instantiate, len(whole.outvars))
    out_unknowns = [atom in unknown or flag for atom, flag in zip(whole.outvars, wanted, strict=True)]
    outs = pick(whole.outvars, out_unknowns)
    read = dict.fromkeys(atom for eqn in rest for atom in eqn.invars) | dict.fromkeys(outs)
    made = [*whole.invars, *whole.constvars, *[var for eqn in first for var in eqn.outvars]]
    residuals = [var for var in made if var in read and var not in unknown]
    known = [not flag for flag in unknowns]
    early_part = whole.replace(invars=pick(whole.invars, known), eqns=first, effects=_effects(first), outvars=[
        *drop(whole.outvars, out_unknowns), *residuals])
    late_part = whole.replace(constvars=[], invars=[*residuals, *pick(whole.invars, unknowns)], eqns=rest,
                              effects=_effects(rest), outvars=outs)
    return ClosedJaxpr(early_part, program.consts), ClosedJaxpr(late_part, []), out_unknowns, [var.aval for var in residuals]


def _effects(eqns: Sequence[JaxprEqn]) -> Any:
    return no_effects.union(*[eqn.effects for eqn in eqns])


def _split(eqn: JaxprEqn, unknown: set[Any]) -> tuple[JaxprEqn | None, JaxprEqn | None]:
    """The part of an equation with unknown operands that gives known results, if there is one, and the rest."""
    if eqn.effects or eqn.primitive not in narrowing:
        return None, eqn
    if eqn.primitive is jit_p:
        return _split_call(eqn, unknown)
    flags = [not isinstance(var, DropVar) and (alone := _narrow(eqn, {var})) is not None and unknown.isdisjoint(alone.invars)
             for var in eqn.outvars]
    if not any(flags):
        return None, eqn
    return _narrow(eqn, set(pick(eqn.outvars, flags))), _narrow(eqn, set(drop(eqn.outvars, flags)))


def _narrow(eqn: JaxprEqn, wanted: set[Any]) -> JaxprEqn | None:
    """The equation with what gives these results. Loops keep more of them, which then have no name."""
    found = narrowing[eqn.primitive](eqn, [var in wanted for var in eqn.outvars]) if wanted else None
    if found is None:
        return None
    return found.replace(outvars=[var if var in wanted else DropVar(var.aval) for var in found.outvars])


def _split_call(eqn: JaxprEqn, unknown: set[Any]) -> tuple[JaxprEqn | None, JaxprEqn | None]:
    flags = [atom in unknown for atom in eqn.invars]
    early, late, out_unknowns, avals = partial_eval_jaxpr_nounits(eqn.params["jaxpr"], flags, False)
    if not early.jaxpr.eqns:
        return None, eqn
    known, out_known = ([not flag for flag in each] for each in (flags, out_unknowns))
    residuals: list[Any] = [Var(aval) for aval in avals]
    free = [None] * len(residuals)
    operands = pick(eqn.invars, known)
    first = eqn.replace(invars=operands, outvars=[*pick(eqn.outvars, out_known), *residuals], params=call_operands(
        eqn, operands, lambda ins: pick(ins, known), lambda outs: [*pick(outs, out_known), *free]) | {"jaxpr": early})
    operands = [*residuals, *pick(eqn.invars, flags)]
    rest = eqn.replace(invars=operands, outvars=pick(eqn.outvars, out_unknowns), params=call_operands(
        eqn, operands, lambda ins: [*free, *pick(ins, flags)], lambda outs: pick(outs, out_unknowns)) | {"jaxpr": late})
    return first, rest if rest.outvars else None


def jvp_jaxpr(jaxpr: Program, nonzeros: Sequence[bool], instantiate: bool | Sequence[bool]) -> tuple[ClosedJaxpr, list[bool]]:
    """The program from inputs + their tangents that are not zero to outputs + theirs, and for each output whether it has one.

    Args: `instantiate` whether outputs without a tangent get zeros: for all, or for each.
    """
    load_rules()
    program, consts, out_nonzero = jvp.jvp_jaxpr(close_jaxpr(jaxpr), nonzeros, instantiate)
    inputs, count = program.jaxpr.invars, len(consts)
    if not count:
        return program, out_nonzero
    return ClosedJaxpr(program.jaxpr.replace(constvars=inputs[:count], invars=inputs[count:]), consts), out_nonzero


def backward_pass(jaxpr: Jaxpr, transform_stack: bool, consts: Sequence[Any], primals_in: Sequence[Any], cts_in: Sequence[Any],
                  *, return_logs: bool = False) -> Any:
    """Pull cotangents of the outputs back through a program that is linear in those inputs that are an `UndefinedPrimal`.

    Args: `transform_stack` for compatibility; `return_logs` to give the log of the pass as well.
    Returns: for each input its cotangent, `Zero` where none arrives.
    """
    with collecting() as log:
        found = transpose.backward(jaxpr, consts, primals_in, cts_in)
    return (found, log) if return_logs else found
