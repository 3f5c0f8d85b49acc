"""Removes what no result of a program needs before it is lowered, inside loops, branches and calls too.

XLA does that as well, but not for values that only loops within loops pass on to each other: the gradient of an adaptive solver
carries and saves all of its counters. A loop carries what its condition and its used results need.
"""

from __future__ import annotations

from typing import Any

from jaxlite.core.jaxpr import ClosedJaxpr, Jaxpr, JaxprEqn, jaxprs_in_params, once_for_each
from jaxlite.core.lazy import loader
from jaxlite.core.primitive import load_rules

_LOOPS = frozenset({"scan", "while"})
_CALLS = frozenset({"custom_jvp_call", "custom_vjp_call", "remat2", "nest"})  # of whose results none is removed
_WITH_RULES = _LOOPS | {"cond"}  # that have to be loaded
_WITH_PROGRAMS = _WITH_RULES | _CALLS | {"jit"}
load_saving = loader("jaxlite.traces.saving")


def pruned(jaxpr: Jaxpr) -> Jaxpr:
    """A program with the same inputs and results without what does not matter, if there is any that XLA should not see."""
    if not _wastes(jaxpr, False, False):
        return jaxpr
    if not _WITH_RULES.isdisjoint(_kinds(jaxpr)):
        load_rules()
    return _Pruning().program(jaxpr)


@once_for_each
def _wastes(jaxpr: Jaxpr, is_inner: bool, in_loop: bool) -> bool:
    """Whether a program computes anything in vain, but for equations of its own and what a single loop or branch gives."""
    live: set[Any] = set(jaxpr.outvars)
    for eqn in reversed(jaxpr.eqns):
        name = eqn.primitive.name
        if not eqn.effects and live.isdisjoint(eqn.outvars):
            if is_inner:
                return True
            continue
        if name in _WITH_PROGRAMS:
            is_nested = name not in _WITH_RULES or in_loop
            repeats = in_loop or name in _LOOPS
            for inner in jaxprs_in_params(eqn.params):
                is_nested = is_nested or not _LOOPS.isdisjoint(_kinds(inner))
                if _wastes(inner, True, repeats):
                    return True
            if is_nested and not eqn.effects and name not in _CALLS and not live.issuperset(eqn.outvars):
                return True
        live.update(eqn.invars)
    return False


@once_for_each
def _kinds(jaxpr: Jaxpr) -> frozenset[str]:
    """The names of the loops, branches and calls in a program and in those that it calls."""
    found = [eqn for eqn in jaxpr.eqns if eqn.primitive.name in _WITH_PROGRAMS]
    inner = [_kinds(each) for eqn in found for each in jaxprs_in_params(eqn.params)]
    return frozenset([eqn.primitive.name for eqn in found]).union(*inner)


class _Pruning:
    """What became of each program, so that what was one stays one."""

    def __init__(self) -> None:
        self._rules, self._deciding = load_saving().narrowing, load_saving().deciding
        self._programs: dict[Jaxpr, Jaxpr] = {}

    def program(self, jaxpr: Jaxpr) -> Jaxpr:
        found = self._programs.get(jaxpr)
        if found is None:
            eqns = self._equations(jaxpr)
            is_same = len(eqns) == len(jaxpr.eqns) and all(map(lambda one, other: one is other, eqns, jaxpr.eqns))
            found = self._programs[jaxpr] = jaxpr if is_same else jaxpr.replace(eqns=eqns)
        return found

    def _equations(self, jaxpr: Jaxpr) -> list[JaxprEqn]:
        live: set[Any] = set(jaxpr.outvars)
        kept = []
        for eqn in reversed(jaxpr.eqns):
            primitive = eqn.primitive
            if primitive in self._deciding:
                narrower = self._rules[primitive](eqn, [var in live for var in eqn.outvars])
                if narrower is None:
                    continue
                eqn = narrower
            elif not eqn.effects:
                if live.isdisjoint(eqn.outvars):
                    continue
                if primitive in self._rules:
                    used = [var in live for var in eqn.outvars]
                    eqn = self._inside(eqn if all(used) else self._rules[primitive](eqn, used))
                elif primitive.name in _CALLS:
                    eqn = self._inside(eqn)
            live.update(eqn.invars)
            kept.append(eqn)
        return kept[::-1]

    def _inside(self, eqn: JaxprEqn) -> JaxprEqn:
        """An equation with pruned programs; itself if they are what they were."""
        params = {name: self._value(value) for name, value in eqn.params.items()}
        is_same = all(value is eqn.params[name] for name, value in params.items())
        return eqn if is_same else eqn.replace(params=params)

    def _value(self, value: Any) -> Any:
        if type(value) is tuple and value and type(value[0]) is ClosedJaxpr:
            parts = tuple(map(self._value, value))
            return value if all(map(lambda one, other: one is other, parts, value)) else parts
        if type(value) is not ClosedJaxpr:
            return value
        program = self.program(value.jaxpr)
        return value if program is value.jaxpr else ClosedJaxpr(program, value.consts)
