"""JAX's table of dead-code rules, `partial_eval.dce_rules[p]`, as a view of the table that recomputation uses.

A rule is told which results of an equation are used: `rule(used_outputs, eqn)` returns `(used_inputs, eqn or None)`, the
operands that are still needed and the reduced equation. From JAX 0.12 on it is `rule(used_outputs, live_inputs, eqn)`, where
the flags say which operands are not dead; those of the programs here all live. A library's rule is also asked about an equation
of which nothing is used, and may keep it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping, Sequence

from jaxlite.core import source
from jaxlite.core.jaxpr import ClosedJaxpr, Jaxpr, JaxprEqn, forget_derived, pick
from jaxlite.core.primitive import Primitive, load_rules
from jaxlite.extend.rule_tables import RuleError
from jaxlite.traces.partial import dce_jaxpr
from jaxlite.traces.saving import deciding, narrowing
from lowering import xla

DceRule = Callable[..., tuple[list[bool], JaxprEqn | None]]
TAKES_LIVE_INPUTS = xla.VERSION >= (0, 12)  # as JAX of the same jaxlib


class _UserRule:
    """A rule as it was registered, called as the table of ours is."""

    __slots__ = ("rule",)

    def __init__(self, rule: DceRule):
        self.rule = rule

    def __call__(self, eqn: JaxprEqn, used: list[bool]) -> JaxprEqn | None:
        live = ([True] * len(eqn.invars),) if TAKES_LIVE_INPUTS else ()
        found = self.rule(used, *live, eqn)
        if not isinstance(found, (tuple, list)) or len(found) != 2 or not isinstance(found[1], (JaxprEqn, type(None))):
            raise RuleError(f"the rule for dead code of {eqn.primitive.name!r}, {source.function_location(self.rule)}, must "
                            f"return a list of flags and an equation or None, but returned {found!r}")
        return found[1]


class _DceRules(MutableMapping):
    """The table `primitive -> rule`."""

    def __setitem__(self, primitive: Primitive, rule: DceRule) -> None:
        if not isinstance(primitive, Primitive) or not callable(rule):
            where = source.function_location(rule) if callable(rule) else repr(rule)
            raise TypeError(f"dce_rules takes a function for a primitive, got {where} for {primitive!r} of type "
                            f"{type(primitive)}")
        load_rules()  # ours, which would otherwise come later and replace it
        narrowing[primitive] = _UserRule(rule)
        deciding.add(primitive)
        forget_derived()  # programs remember what others removed

    def __getitem__(self, primitive: Primitive) -> DceRule:
        load_rules()
        rule = narrowing[primitive]
        return rule.rule if isinstance(rule, _UserRule) else _given(rule)

    def __delitem__(self, primitive: Primitive) -> None:
        del narrowing[primitive]
        deciding.discard(primitive)
        forget_derived()

    def __iter__(self) -> Iterator[Primitive]:
        load_rules()
        return iter(list(narrowing))

    def __len__(self) -> int:
        load_rules()
        return len(narrowing)


def _given(rule: Callable[[JaxprEqn, list[bool]], JaxprEqn | None]) -> DceRule:
    """One of our rules in JAX's calling convention."""

    def narrow(used_outputs: list[bool], eqn: JaxprEqn) -> tuple[list[bool], JaxprEqn | None]:
        if not any(used_outputs) and not eqn.effects:
            return [False] * len(eqn.invars), None
        narrower = eqn if all(used_outputs) else rule(eqn, list(used_outputs))
        read = set() if narrower is None else set(narrower.invars)
        return [atom in read for atom in eqn.invars], narrower

    return _as_called(narrow)


def _as_called(rule: Callable[[list[bool], JaxprEqn], tuple[list[bool], JaxprEqn | None]]) -> DceRule:
    """A rule with the signature that JAX of this version gives it."""
    if not TAKES_LIVE_INPUTS:
        return rule

    def call(used_outputs: list[bool], live_ins: list[bool], eqn: JaxprEqn) -> tuple[list[bool], JaxprEqn | None]:
        return rule(used_outputs, eqn)

    call.__doc__, call.__name__ = rule.__doc__, rule.__name__
    return call


dce_rules = _DceRules()


@_as_called
def default_rule(used_outputs: list[bool], eqn: JaxprEqn) -> tuple[list[bool], JaxprEqn | None]:
    """The rule of primitives without one: the equation as it is, or nothing if it has no effect and no result is used."""
    needed = any(used_outputs) or bool(eqn.effects)
    return [needed] * len(eqn.invars), eqn if needed else None


@_as_called
def dce_jaxpr_call_rule(used_outputs: list[bool], eqn: JaxprEqn) -> tuple[list[bool], JaxprEqn | None]:
    """The rule of a primitive that calls the program in its param `call_jaxpr`, a `Jaxpr`."""
    return _narrow_call(used_outputs, eqn, eqn.params["call_jaxpr"], lambda jaxpr: jaxpr)


@_as_called
def dce_jaxpr_closed_call_rule(used_outputs: list[bool], eqn: JaxprEqn) -> tuple[list[bool], JaxprEqn | None]:
    """The rule of a primitive that calls the program in its param `call_jaxpr`, a `ClosedJaxpr`."""
    closed = eqn.params["call_jaxpr"]
    return _narrow_call(used_outputs, eqn, closed.jaxpr, lambda jaxpr: ClosedJaxpr(jaxpr, closed.consts))


def _narrow_call(used_outputs: list[bool], eqn: JaxprEqn, jaxpr: Jaxpr, close: Callable[[Jaxpr], Jaxpr | ClosedJaxpr],
                 ) -> tuple[list[bool], JaxprEqn | None]:
    if not any(used_outputs) and not eqn.effects:
        return [False] * len(eqn.invars), None
    narrower, used_inputs = dce_jaxpr(jaxpr, used_outputs)
    return used_inputs, eqn.replace(invars=pick(eqn.invars, used_inputs), outvars=pick(eqn.outvars, used_outputs),
                                    params={**eqn.params, "call_jaxpr": close(narrower)})


def dce_jaxpr_consts(jaxpr: Jaxpr, used_outputs: Sequence[bool], instantiate: bool | Sequence[bool] = False,
                     ) -> tuple[Jaxpr, list[bool], list[bool]]:
    """The program for some of its outputs, also without the constvars that they do not need.

    Returns: the program, and for each constvar and for each input whether it still has it.
    """
    count = len(jaxpr.constvars)
    hoisted = jaxpr.replace(constvars=[], invars=[*jaxpr.constvars, *jaxpr.invars])
    keep = [instantiate] * len(jaxpr.invars) if isinstance(instantiate, bool) else list(instantiate)
    narrower, used = dce_jaxpr(hoisted, used_outputs, [False] * count + keep)
    kept = sum(used[:count])
    return narrower.replace(constvars=narrower.invars[:kept], invars=narrower.invars[kept:]), used[:count], used[count:]
