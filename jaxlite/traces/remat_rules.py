"""Recomputation: a call whose inner values are computed again for the backward pass instead of being kept.

Linearising it keeps its inputs, and those inner values that its policy names. The tangents go through a `checkpoint`
equation that computes the rest again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jaxlite.core.effects import check_harmless
from jaxlite.core.jaxpr import ClosedJaxpr, DropVar, Jaxpr, Literal, Var, eval_jaxpr
from jaxlite.core.primitive import Primitive
from jaxlite.core.staging import has_program
from jaxlite.traces.batching import Axis, batch_jaxpr
from jaxlite.traces.jvp import Zero, jvp_jaxpr, tangent_aval
from jaxlite.traces.linearize import SplitJaxpr, linearize_jaxpr
from jaxlite.traces.transpose import backward_jaxpr, is_linear
from lowering.passes.dce import live_parts

checkpoint_p = Primitive("checkpoint", multiple_results=True)
has_program(checkpoint_p, "jaxpr")
name_p = Primitive("name")

name_p.def_abstract_eval(lambda x, *, name: x)
name_p.def_jvp(lambda primals, tangents, *, name: (name_p.bind(*primals, name=name), tangents[0]))
name_p.def_transpose(lambda ct, x, *, name: [ct])
name_p.def_batching(lambda axis, args, dims, *, name: (name_p.bind(*args, name=name), dims[0]))


@checkpoint_p.def_effectful_abstract_eval
def _checkpoint_aval(*avals: Any, jaxpr: ClosedJaxpr, **params: Any) -> Any:
    return jaxpr.out_avals, jaxpr.effects


@checkpoint_p.def_eager
def _checkpoint_eager(*args: Any, jaxpr: ClosedJaxpr, **params: Any) -> list[Any]:
    return eval_jaxpr(jaxpr.jaxpr, [], *args)


def _spread(values: Sequence[Any], flags: Sequence[bool], avals: Sequence[Any]) -> list[Any]:
    rest = iter(values)
    return [next(rest) if flag else Zero(tangent_aval(aval)) for flag, aval in zip(flags, avals, strict=True)]


@checkpoint_p.def_jvp
def _checkpoint_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, jaxpr: ClosedJaxpr, **params: Any) -> Any:
    nonzero = [type(tangent) is not Zero for tangent in tangents]
    program, consts, out_nonzero = jvp_jaxpr(jaxpr, nonzero, False)
    active = [tangent for tangent in tangents if type(tangent) is not Zero]
    outs = checkpoint_p.bind(*consts, *primals, *active, jaxpr=program, **params)
    count = len(jaxpr.out_avals)
    return outs[:count], _spread(outs[count:], out_nonzero, jaxpr.out_avals)


def _saved(split: SplitJaxpr, policy: Callable[..., Any] | None) -> list[Var]:
    """The inner values of the primal program that the policy keeps."""
    if policy is None:
        return []
    return [var for eqn in split.primal.jaxpr.eqns
            if policy(eqn.primitive, *[atom.aval for atom in eqn.invars], **eqn.params)
            for var in eqn.outvars if not isinstance(var, DropVar)]


def _recomputing(split: SplitJaxpr, saved: list[Var]) -> ClosedJaxpr:
    """The linear program with its residuals computed from the inputs and the saved values.

    Its inputs are those of the primal program, the saved values and the tangents.
    """
    primal, tangent = split.primal.jaxpr, split.tangent.jaxpr
    computed = iter(primal.outvars[split.num_outs:])
    offset = len(split.consts)
    residuals = [next(computed) if index is None else primal.invars[offset + index] for index in split.forwarded]
    kept = set(saved)
    eqns = [eqn for eqn in primal.eqns if kept.isdisjoint(eqn.outvars)]
    inputs = [*primal.invars, *saved]
    slots = tangent.invars[:len(residuals)]
    rename = dict(zip(slots, residuals, strict=True))

    def renamed(atom: Any) -> Any:
        return atom if type(atom) is Literal else rename.get(atom, atom)

    linear = [eqn.replace(invars=[renamed(atom) for atom in eqn.invars]) for eqn in tangent.eqns]
    joined = Jaxpr([], [*inputs, *tangent.invars[len(residuals):]], [renamed(atom) for atom in tangent.outvars],
                   [*eqns, *linear], primal.effects | tangent.effects, primal.debug_info)
    return ClosedJaxpr(joined.replace(eqns=live_parts(joined)[0]), [])


_recomputed: dict[Any, tuple[Any, Any, ClosedJaxpr, ClosedJaxpr]] = {}
_LIMIT = 1024


def _checkpoint_linearize(primals: Sequence[Any], tangents: Sequence[Any], *, jaxpr: ClosedJaxpr,
                          policy: Callable[..., Any] | None, **params: Any) -> Any:
    check_harmless(jaxpr.effects, "differentiation of a checkpoint")
    nonzero = [type(tangent) is not Zero for tangent in tangents]
    split = linearize_jaxpr(jaxpr, nonzero)
    key = (id(split), policy)
    found = _recomputed.get(key)
    if found is None:
        saved = _saved(split, policy)
        forward = split.primal.jaxpr.replace(outvars=[*split.primal.jaxpr.outvars[:split.num_outs], *saved])
        forward = forward.replace(eqns=live_parts(forward)[0])
        if len(_recomputed) >= _LIMIT:
            _recomputed.clear()
        found = _recomputed[key] = (split, policy, ClosedJaxpr(forward, []), _recomputing(split, saved))
    _, _, forward_program, linear_program = found
    outs = eval_jaxpr(forward_program.jaxpr, [], *split.consts, *primals)
    active = [tangent for tangent in tangents if type(tangent) is not Zero]
    results, saved_values = outs[:split.num_outs], outs[split.num_outs:]
    if not any(split.nonzero_out):
        return results, [Zero(tangent_aval(aval)) for aval in jaxpr.out_avals]
    tangents_out = checkpoint_p.bind(*split.consts, *primals, *saved_values, *active, jaxpr=linear_program, policy=policy,
                                     **{**params, "differentiated": True})
    return results, _spread(tangents_out, split.nonzero_out, jaxpr.out_avals)


checkpoint_p.linearize = _checkpoint_linearize


@checkpoint_p.def_transpose
def _checkpoint_transpose(cotangents: Sequence[Any], *operands: Any, jaxpr: ClosedJaxpr, **params: Any) -> list[Any]:
    linear = [is_linear(operand) for operand in operands]
    nonzero = [type(cotangent) is not Zero for cotangent in cotangents]
    program, consts, arrives = backward_jaxpr(jaxpr, linear, nonzero)
    known = [operand for operand, flag in zip(operands, linear, strict=True) if not flag]
    given = [cotangent for cotangent, flag in zip(cotangents, nonzero, strict=True) if flag]
    outs = iter(checkpoint_p.bind(*consts, *known, *given, jaxpr=program, **params))
    reached = iter(arrives)
    return [None if not flag else (next(outs) if next(reached) else Zero(tangent_aval(operand.aval)))
            for operand, flag in zip(operands, linear, strict=True)]


@checkpoint_p.def_batching
def _checkpoint_batch(axis: Axis, args: Sequence[Any], dims: Sequence[int | None], *, jaxpr: ClosedJaxpr, **params: Any) -> Any:
    program, consts, batched = batch_jaxpr(jaxpr, axis, dims)
    outs = checkpoint_p.bind(*consts, *args, jaxpr=program, **params)
    return outs, [0 if flag else None for flag in batched]
