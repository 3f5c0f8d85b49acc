"""Policies of recomputation: saves the inner values that a policy names, also inside loops, branches and calls.

A program is split in two: one returns the saved values with its results, the other takes them as operands. A primitive with
sub-jaxprs has two rules here. `keeping[primitive](eqn, policy)` splits an equation in the same way, or returns None if the
policy saves nothing inside. `narrowing[primitive](eqn, used)` removes what only unused results need, and gives the equation
itself if that is nothing. It makes the same of the same programs, which remember it: programs that call one another twice, and
loops in loops that ask again and again what they carry, are few programs, but 2^depth equations.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from jaxlite.compilation.dispatch import jit_p, said_of, said_shardings
from jaxlite.core.aval import in_space, space_of_kind
from jaxlite.core.jaxpr import ClosedJaxpr, DropVar, Jaxpr, JaxprEqn, Literal, Var, derived, no_effects, pick
from jaxlite.core.primitive import Primitive
from jaxlite.devices import placement
from jaxlite.traces.batching import def_in_place
from jaxlite.traces.jvp import Zero


class RecomputeType:
    """The type of `Recompute`."""

    def __repr__(self) -> str:
        return "Recompute"


class SaveableType:
    """The type of `Saveable`."""

    def __repr__(self) -> str:
        return "Saveable"


Recompute, Saveable = RecomputeType(), SaveableType()


class Offloadable(NamedTuple):
    """A policy's answer that a value is kept in another kind of memory: moved from `src` to `dst`, and back for its use."""

    src: str
    dst: str


def decision(policy: Callable[..., Any], eqn: JaxprEqn) -> RecomputeType | SaveableType | Offloadable:
    """What a policy says of the results of an equation.

    Raises: TypeError for an answer that is none.
    """
    answer = policy(eqn.primitive, *[atom.aval for atom in eqn.invars], **eqn.params)
    if isinstance(answer, bool):
        return Saveable if answer else Recompute
    if not isinstance(answer, (RecomputeType, SaveableType, Offloadable)):
        raise TypeError("Value returned by a remat policy should be a bool or `ad_checkpoint.Recompute`, "
                        f"`ad_checkpoint.Saveable` or `ad_checkpoint.Offloadable(...)`. Got {answer} of type {type(answer)}.")
    return answer


offload_p = Primitive("offload")
offload_p.knows_spaces = True
offload_p.def_abstract_eval(lambda x, *, src, dst: in_space(x, space_of_kind(dst)))
offload_p.def_eager(lambda x, *, src, dst: placement.put(x, placement.of_kind(x.sharding, dst)))
def_in_place(offload_p)
offload_p.def_jvp(lambda primals, tangents, **params: (offload_p.bind(*primals, **params), _moved(tangents[0], **params)))
offload_p.def_transpose(lambda ct, x, *, src, dst: [_moved(ct, dst, src)])


def _moved(x: Any, src: str, dst: str) -> Any:
    return x if type(x) is Zero else offload_p.bind(x, src=src, dst=dst)


class Split(NamedTuple):
    """`forward` are equations that compute all, `saved` variables of theirs to keep; `again` compute the rest from those."""

    forward: list[JaxprEqn]
    saved: list[Var]
    again: list[JaxprEqn]


Keeping = Callable[[JaxprEqn, Callable[..., Any]], Split | None]
keeping: dict[Primitive, Keeping] = {}
narrowing: dict[Primitive, Callable[[JaxprEqn, list[bool]], JaxprEqn | None]] = {}
deciding: set[Primitive] = set()  # whose rule of `narrowing` is asked about every equation, and may keep one without use


def split_by_policy(jaxpr: Jaxpr, policy: Callable[..., Any]) -> Split:
    """Split the equations of a program by what a policy keeps."""
    split = Split([], [], [])
    for eqn in jaxpr.eqns:
        rule = keeping.get(eqn.primitive)
        own = rule(eqn, policy) if rule is not None else _split_eqn(eqn, policy)
        if own is None:
            split.forward.append(eqn)
            split.again.append(eqn)
        else:
            split.forward.extend(own.forward)
            split.saved.extend(own.saved)
            for each in own.again:
                narrow = narrowing.get(each.primitive)
                fewer = each if narrow is None else narrow(each, [True] * len(each.outvars))
                split.again.extend([] if fewer is None else [fewer])
    return split


def _split_eqn(eqn: JaxprEqn, policy: Callable[..., Any]) -> Split | None:
    answer = decision(policy, eqn)
    if isinstance(answer, RecomputeType):
        return None
    kept = [var for var in eqn.outvars if not isinstance(var, DropVar)]
    if isinstance(answer, SaveableType):
        return Split([eqn], kept, [])
    away = [Var(in_space(var.aval, space_of_kind(answer.dst))) for var in kept]
    move = lambda var, to, src, dst: eqn.replace(invars=[var], outvars=[to], primitive=offload_p, effects=no_effects,
                                                 params={"src": src, "dst": dst})
    return Split([eqn, *[move(var, to, *answer) for var, to in zip(kept, away, strict=True)]], away,
                 [move(to, var, answer.dst, answer.src) for var, to in zip(kept, away, strict=True)])


def narrowed(jaxpr: Jaxpr) -> Jaxpr:
    """Without what its outputs do not need, inside loops, branches and calls too; itself if that is nothing."""
    live: set[Any] = {var for var in jaxpr.outvars if type(var) is not Literal}
    kept = []
    for eqn in reversed(jaxpr.eqns):
        used = [var in live for var in eqn.outvars]
        decides = eqn.primitive in deciding
        if not any(used) and not eqn.effects and not decides:
            continue
        if decides or not all(used) and not eqn.effects and eqn.primitive in narrowing:
            narrower = narrowing[eqn.primitive](eqn, used)
            if narrower is None:
                continue
            eqn = narrower
        live.update(atom for atom in eqn.invars if type(atom) is not Literal)
        kept.append(eqn)
    is_same = len(kept) == len(jaxpr.eqns) and all(map(operator.is_, reversed(kept), jaxpr.eqns))
    return jaxpr if is_same else jaxpr.replace(eqns=kept[::-1])


def read_inputs(jaxpr: Jaxpr) -> list[bool]:
    """For each input whether the program reads it."""
    read = {atom for eqn in jaxpr.eqns for atom in eqn.invars} | set(jaxpr.outvars)
    return [var in read for var in jaxpr.invars]


def whole_or_inside(eqn: JaxprEqn, inner: Split, outvars: Sequence[Any]) -> Split | None:
    """Where nothing is left to compute inside, the results of the equation itself are saved; otherwise None."""
    if narrowed(Jaxpr([], [], list(outvars), inner.again, no_effects)).eqns:
        return None
    return Split([eqn], [var for var in eqn.outvars if not isinstance(var, DropVar)], [])


def call_operands(eqn: JaxprEqn, operands: Sequence[Any], ins: Callable[[Sequence[Any]], Sequence[Any]],
                   outs: Callable[[Sequence[Any]], Sequence[Any]]) -> dict[str, Any]:
    """The params of a call with other operands and results: `ins` and `outs` make what is said of them from what was said."""
    if "donated_invars" not in eqn.params:
        return eqn.params
    given, made = said_of(eqn.params, len(eqn.invars), len(eqn.outvars))
    return {**eqn.params, "donated_invars": (False,) * len(operands), **said_shardings(ins(given), outs(made))}


def keep_inside(eqn: JaxprEqn, policy: Callable[..., Any], outside: Callable[[Any], Any] = lambda aval: aval) -> Split | None:
    """Split an equation with one program, `jaxpr`, by what the policy keeps in it.

    Args: `outside` the type that a kept value of the program has as a result of the equation.
    """
    closed: ClosedJaxpr = eqn.params["jaxpr"]
    jaxpr = closed.jaxpr
    inner = split_by_policy(jaxpr, policy)
    if not inner.saved:
        return None
    whole = whole_or_inside(eqn, inner, jaxpr.outvars)
    if whole is not None:
        return whole
    forward = jaxpr.replace(eqns=inner.forward, outvars=[*jaxpr.outvars, *inner.saved])
    again = jaxpr.replace(eqns=inner.again, invars=[*jaxpr.invars, *inner.saved])
    saved = [Var(outside(var.aval)) for var in inner.saved]
    operands = [*eqn.invars, *saved]
    more = [None] * len(saved)
    first = call_operands(eqn, eqn.invars, list, lambda outs: [*outs, *more]) | {
        "jaxpr": ClosedJaxpr(forward, closed.consts)}
    if "donated_invars" in eqn.params:
        first["donated_invars"] = eqn.params["donated_invars"]
    second = call_operands(eqn, operands, lambda ins: [*ins, *more], list) | {"jaxpr": ClosedJaxpr(again, closed.consts)}
    return Split([eqn.replace(outvars=[*eqn.outvars, *saved], params=first)], saved,
                 [eqn.replace(invars=operands, params=second)])


def for_results(jaxpr: Jaxpr, used: Sequence[bool]) -> Jaxpr:
    """The program for some of its results, without what they do not need; itself if that is all of it."""
    return narrowed(jaxpr if all(used) else jaxpr.replace(outvars=pick(jaxpr.outvars, used)))


def with_inputs(closed: ClosedJaxpr, jaxpr: Jaxpr, flags: Sequence[bool]) -> ClosedJaxpr | None:
    """What became of a program, with some of its inputs; None if it stayed what it was."""
    if all(flags):
        return None if jaxpr is closed.jaxpr else ClosedJaxpr(jaxpr, closed.consts)
    return ClosedJaxpr(jaxpr.replace(invars=pick(jaxpr.invars, flags)), closed.consts)


def _narrow_call(eqn: JaxprEqn, used: list[bool]) -> JaxprEqn:
    closed: ClosedJaxpr = eqn.params["jaxpr"]

    def make() -> tuple[ClosedJaxpr | None, list[bool]]:
        jaxpr = for_results(closed.jaxpr, used)
        read = read_inputs(jaxpr)
        return with_inputs(closed, jaxpr, read), read

    fewer, read = derived(closed, ("narrow", *used), make)
    if fewer is None:
        return eqn
    operands = pick(eqn.invars, read)
    return eqn.replace(invars=operands, outvars=pick(eqn.outvars, used), params={
        **call_operands(eqn, operands, lambda ins: pick(ins, read), lambda outs: pick(outs, used)), "jaxpr": fewer})


keeping[jit_p], narrowing[jit_p] = keep_inside, _narrow_call


def split_as_call(primitive: Primitive, param: str) -> None:
    """Let calls of a primitive, of the program in `param`, be split and narrowed as those of `jit` are."""

    def renamed(eqn: JaxprEqn, old: str, new: str) -> JaxprEqn:
        if eqn.primitive is not primitive:
            return eqn
        return eqn.replace(params={new if name == old else name: value for name, value in eqn.params.items()})

    def keep(eqn: JaxprEqn, policy: Callable[..., Any]) -> Split | None:
        split = keep_inside(renamed(eqn, param, "jaxpr"), policy)
        if split is None:
            return None
        forward, again = ([renamed(each, "jaxpr", param) for each in eqns] for eqns in (split.forward, split.again))
        return Split(forward, split.saved, again)

    def narrow(eqn: JaxprEqn, used: list[bool]) -> JaxprEqn:
        call = renamed(eqn, param, "jaxpr")
        fewer = _narrow_call(call, used)
        return eqn if fewer is call else renamed(fewer, "jaxpr", param)

    keeping[primitive], narrowing[primitive] = keep, narrow
