"""Discharge: rewrites a program with mutable arrays to one that passes values.

`discharge_jaxpr` takes a closed jaxpr whose inputs may be Refs. In the result, these inputs are the values of the Refs, and
the final values of the Refs that it writes follow the outputs. Refs that the program makes disappear. The rule of a
primitive is `rule(eqn, values) -> (outs, changed)`: Refs are replaced by their values, and `changed` maps positions of Ref
operands to their new values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from jaxlite.core.aval import AbstractRef
from jaxlite.core.effects import REF
from jaxlite.core.jaxpr import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var, derived, jaxprs_in_params, program_in
from jaxlite.core.staging import StagedTracer, hoist_consts, trace_to_jaxpr
from jaxlite.core.tracing import state
from lowering.rules import registers_in

Rule = Callable[[JaxprEqn, list[Any]], tuple[Sequence[Any], dict[int, Any]]]
_rules: dict[Any, Rule] = {}
discharges = registers_in(_rules)  # decorator: the rule of some primitives
_LIMIT = 1024


class Discharged(NamedTuple):
    """`closed` is the program of values; `refs` and `written` are indices of inputs that are Refs, and of those it writes."""

    closed: ClosedJaxpr
    refs: tuple[int, ...]
    written: tuple[int, ...]


def touches_refs(params: dict[str, Any]) -> bool:
    """Whether a program in an equation's params makes, reads or writes Refs."""
    return any(REF in jaxpr.effects for jaxpr in jaxprs_in_params(params))


def discharge_jaxpr(closed: ClosedJaxpr) -> Discharged:
    """The program on values; remembered. It closes over the same arrays, `closed.consts`, none of which is a Ref."""
    return derived(closed, "discharge", lambda: _discharged(closed))


def _discharged(closed: ClosedJaxpr) -> Discharged:
    jaxpr = closed.jaxpr
    inputs = [*jaxpr.constvars, *jaxpr.invars]
    refs = tuple(index for index, var in enumerate(jaxpr.invars) if type(var.aval) is AbstractRef)
    written: list[int] = []

    def flat(*args: Any) -> list[Any]:
        outs, last = _run(jaxpr, inputs, args)
        for index in refs:
            value = last[jaxpr.invars[index]]
            if value is not args[len(jaxpr.constvars) + index]:
                written.append(index)
                outs.append(value)
        return outs

    result, consts = trace_to_jaxpr(flat, [_value_aval(var.aval) for var in inputs], jaxpr.debug_info)
    assert not consts, "a program that closes over nothing gave one that does"
    count = len(jaxpr.constvars)
    result = result.replace(constvars=result.invars[:count], invars=result.invars[count:])
    return Discharged(ClosedJaxpr(result, closed.consts), refs, tuple(written))


def without_local_refs(jaxpr: Jaxpr, consts: Sequence[Any]) -> tuple[Jaxpr, list[Any]]:
    """An open program without the Refs that it makes, if it has no others; with others, the program as it is."""
    if any(type(var.aval) is AbstractRef for var in (*jaxpr.constvars, *jaxpr.invars)):
        return jaxpr, list(consts)
    found = discharge_jaxpr(hoist_consts(jaxpr)).closed.jaxpr
    count = len(jaxpr.constvars)
    return found.replace(constvars=found.invars[:count], invars=found.invars[count:]), list(consts)


def _value_aval(aval: Any) -> Any:
    return aval.inner_aval if type(aval) is AbstractRef else aval


def _run(jaxpr: Jaxpr, inputs: Sequence[Var], args: Sequence[Any]) -> tuple[list[Any], dict[Var, Any]]:
    """Evaluate with values for Refs. Gives the outputs, and the final values of the variables."""
    env: dict[Var, Any] = dict(zip(inputs, args, strict=True))
    trace = state.trace
    try:
        for eqn in jaxpr.eqns:
            trace.pin(eqn.traceback)  # what comes of an equation has its line
            values = [atom.val if type(atom) is Literal else env[atom] for atom in eqn.invars]
            if REF in eqn.effects:
                outs, changed = _rule(eqn)(eqn, values)
                for index, value in changed.items():
                    env[eqn.invars[index]] = value  # type: ignore[index]
            else:
                outs = eqn.primitive.bind(*values, **eqn.params)
                outs = outs if eqn.primitive.multiple_results else [outs]
            env.update(zip(eqn.outvars, outs, strict=True))
    finally:
        trace.pin(None)
    return [atom.val if type(atom) is Literal else env[atom] for atom in jaxpr.outvars], env


def _rule(eqn: JaxprEqn) -> Rule:
    rule = _rules.get(eqn.primitive)
    if rule is None:
        raise NotImplementedError(f"'{eqn.primitive}' cannot read or write mutable arrays: it has no discharge rule")
    return rule


def pure_equation(primitive: Any, operands: Sequence[Any], avals: Sequence[Any], params: dict[str, Any]) -> Discharged:
    """One equation with Refs among its operands, as a program of values.

    Args: `operands` tell by their identity which of them are one Ref; `avals` are their types.
    """
    same = tuple(_identity(operands, index) if type(aval) is AbstractRef else index for index, aval in enumerate(avals))
    key = (primitive, tuple(avals), same, *params, *params.values())

    def make() -> Discharged:
        outs, effects = primitive.typed(list(avals), params)
        variables = [Var(aval) for aval in avals]  # of a Ref that comes twice, the second is not read
        outvars = [Var(aval) for aval in outs]
        eqn = JaxprEqn([variables[index] for index in same], outvars, primitive, params, effects)
        return discharge_jaxpr(ClosedJaxpr(Jaxpr([], variables, outvars, [eqn], effects), []))

    source = program_in(params)
    if source is not None:
        return derived(source, key, make)
    found = _equations.get(key)
    if found is None:
        if len(_equations) >= _LIMIT:
            _equations.clear()
        found = _equations[key] = make()
    return found


_equations: dict[Any, Discharged] = {}


def _identity(operands: Sequence[Any], index: int) -> int:
    own = _name(operands[index])
    return next(place for place, each in enumerate(operands) if _name(each) == own)


def _name(operand: Any) -> int:
    return id(operand.atom) if isinstance(operand, StagedTracer) else id(operand)


def forget() -> None:
    """Drop remembered programs."""
    _equations.clear()
