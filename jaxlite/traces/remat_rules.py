"""Recomputation (`checkpoint`): the backward pass computes inner values again instead of saving them.

Linearization saves the inputs of the call, and the inner values that the policy names. The tangents go through a
`checkpoint` equation that recomputes the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from jaxlite.core.effects import check_harmless
from jaxlite.core.jaxpr import ClosedJaxpr, Jaxpr, Literal, derived, eval_jaxpr, pick
from jaxlite.core.primitive import Primitive
from jaxlite.core.staging import runs_program
from jaxlite.core.tracing import state
from jaxlite.traces.batching import def_in_place
from jaxlite.traces.call_rules import give_call_rules, spread_tangents
from jaxlite.traces.jvp import Zero, nonzero_flags, tangent_aval
from jaxlite.traces.linearize import SplitJaxpr, linearize_jaxpr
from jaxlite.traces.own_residuals import rules as own_residuals
from jaxlite.traces.saving import Split, narrowed, read_inputs, split_by_policy

checkpoint_p = Primitive("remat2", multiple_results=True, memoise="jaxpr")
runs_program(checkpoint_p, "jaxpr")
name_p = Primitive("name")

name_p.def_abstract_eval(lambda x, *, name: x)
name_p.def_jvp(lambda primals, tangents, *, name: (name_p.bind(*primals, name=name), tangents[0]))
name_p.def_transpose(lambda ct, x, *, name: [ct])
def_in_place(name_p)


class _Halves(NamedTuple):
    """A checkpoint under linearisation: a program of results and kept values, and one of tangents that computes the rest again.

    The inputs of `linear` are those of the primal program where `read` holds, the kept values, the tangents.
    """

    forward: ClosedJaxpr
    linear: ClosedJaxpr
    read: list[bool]


def _halves(split: SplitJaxpr, policy: Callable[..., Any] | None) -> _Halves:
    primal, tangent = split.primal.jaxpr, split.tangent.jaxpr
    if policy is None and not own_residuals.exist:
        kept = Split(primal.eqns, [], primal.eqns)
    else:
        kept = split_by_policy(primal, policy or (lambda *avals, **params: False))
    residuals = split.residuals(primal.outvars, primal.invars[len(split.consts):])
    slots = tangent.invars[:len(residuals)]
    rename = dict(zip(slots, residuals, strict=True))

    def renamed(atom: Any) -> Any:
        return atom if type(atom) is Literal else rename.get(atom, atom)

    linear = [eqn.replace(invars=[renamed(atom) for atom in eqn.invars]) for eqn in tangent.eqns]
    dots = tangent.invars[len(residuals):]
    joined = narrowed(Jaxpr([], [*primal.invars, *kept.saved, *dots], [renamed(atom) for atom in tangent.outvars],
                            [*kept.again, *linear], primal.effects | tangent.effects, primal.debug_info))
    flags = read_inputs(joined)
    count = len(primal.invars)
    read, wanted = flags[:count], pick(kept.saved, flags[count:count + len(kept.saved)])
    joined = joined.replace(invars=[*pick(primal.invars, read), *wanted, *dots])
    forward = narrowed(primal.replace(eqns=kept.forward, outvars=[*primal.outvars[:split.num_outs], *wanted]))
    return _Halves(ClosedJaxpr(forward, []), ClosedJaxpr(joined, []), read)


def _in_place(program: ClosedJaxpr, inputs: Sequence[Any]) -> list[Any]:
    """Run a program; its equations keep their lines."""
    trace = state.trace
    before = trace.pinned
    try:
        return eval_jaxpr(program.jaxpr, [], *inputs, before=lambda eqn: trace.pin(eqn.traceback))
    finally:
        trace.pin(before)


def _checkpoint_linearize(primals: Sequence[Any], tangents: Sequence[Any], *, jaxpr: ClosedJaxpr,
                          policy: Callable[..., Any] | None, **params: Any) -> Any:
    check_harmless(jaxpr.effects, "differentiation of a checkpoint")
    nonzero = nonzero_flags(tangents)
    split = linearize_jaxpr(jaxpr, nonzero)
    halves = derived(split, ("checkpoint", policy), lambda: _halves(split, policy))
    inputs = [*split.consts, *primals]
    outs = _in_place(halves.forward, inputs)
    results, saved_values = outs[:split.num_outs], outs[split.num_outs:]
    if not any(split.nonzero_out):
        return results, [Zero(tangent_aval(aval)) for aval in jaxpr.out_avals]
    tangents_out = checkpoint_p.bind(*pick(inputs, halves.read), *saved_values, *pick(tangents, nonzero), jaxpr=halves.linear,
                                     policy=policy, **{**params, "differentiated": True})
    return results, spread_tangents(tangents_out, split.nonzero_out, jaxpr.out_avals)


give_call_rules(checkpoint_p)
checkpoint_p.linearize = _checkpoint_linearize

