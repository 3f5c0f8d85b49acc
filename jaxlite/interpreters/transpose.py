"""Transposition: run a linear program backwards, from cotangents of its outputs to cotangents of its inputs.

A primitive's rule is `transpose(cotangent, *operands, **params)`; operands in which the equation is linear are
`Linear` placeholders that have only a type. It returns a cotangent (or None, or `Zero`) for each operand. With
several results it gets the list of their cotangents.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jaxlite.core.jaxpr import ClosedJaxpr, DropVar, Jaxpr, Literal, Var
from jaxlite.core.primitive import NoRule, Primitive
from jaxlite.core.values import aval_of
from jaxlite.interpreters.jvp import Zero, add_any_p, add_tangents, instantiate, tangent_aval
from jaxlite.interpreters.staging import hoist_consts, trace_to_jaxpr


class Linear:
    """Stands for an operand that an equation is linear in."""

    __slots__ = ("aval",)

    def __init__(self, aval: Any):
        self.aval = aval


def is_linear(operand: Any) -> bool:
    return type(operand) is Linear


def transpose_rule(primitive: Any) -> Callable:
    """A primitive's rule. Raises: NotImplementedError if it is not written, ValueError if there is none by nature."""
    rule = primitive.transpose
    if rule is None:
        raise NotImplementedError(f"Transpose rule (for reverse-mode differentiation) for '{primitive}' not implemented")
    if type(rule) is NoRule:
        raise ValueError(f"Reverse-mode differentiation does not work for '{primitive}': {rule.reason}")
    return rule


def backward(jaxpr: Jaxpr, consts: Sequence[Any], args: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
    """Pull cotangents back through a program.

    Args:
      consts, args: values for the constvars and invars; those that the program is linear in are `Linear`.
      cotangents: for the outputs; may be `Zero`.
    Returns: for each invar its cotangent, `Zero` where none arrives and for the non-linear ones.
    """
    values: dict[Var, Any] = {}
    linear: set[Any] = set()
    for var, value in zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *args), strict=True):
        if type(value) is Linear:
            linear.add(var)
        else:
            values[var] = value

    def read(atom: Any) -> Any:
        if type(atom) is Literal:
            return atom.val
        return Linear(atom.aval) if atom in linear else values[atom]

    pending = []
    for eqn in jaxpr.eqns:  # what does not depend on linear inputs is computed forwards
        if linear.isdisjoint(eqn.invars):
            outs = eqn.primitive.bind(*map(read, eqn.invars), **eqn.params)
            values.update(zip(eqn.outvars, outs if eqn.primitive.multiple_results else [outs], strict=True))
        else:
            linear.update(var for var in eqn.outvars if not isinstance(var, DropVar))
            pending.append(eqn)

    found: dict[Var, Any] = {}

    def add(atom: Any, cotangent: Any) -> None:
        if cotangent is None or type(cotangent) is Zero or type(atom) is Literal or atom not in linear:
            return
        found[atom] = add_tangents(found[atom], cotangent) if atom in found else cotangent

    for atom, cotangent in zip(jaxpr.outvars, cotangents, strict=True):
        add(atom, cotangent)
    for eqn in reversed(pending):
        incoming = [found.pop(var, None) for var in eqn.outvars]
        if all(each is None for each in incoming):
            continue
        incoming = [Zero(tangent_aval(var.aval)) if each is None else each
                    for var, each in zip(eqn.outvars, incoming, strict=True)]
        operands = [read(atom) for atom in eqn.invars]
        rule = transpose_rule(eqn.primitive)
        outgoing = rule(incoming if eqn.primitive.multiple_results else incoming[0], *operands, **eqn.params)
        for atom, cotangent in zip(eqn.invars, outgoing, strict=True):
            add(atom, cotangent)
    return [found.get(var, Zero(tangent_aval(var.aval))) for var in jaxpr.invars]


def backward_jaxpr(closed: ClosedJaxpr, linear: Sequence[bool], nonzero: Sequence[bool],
                   instantiate_out: Sequence[bool] | None = None) -> tuple[ClosedJaxpr, list[Any], list[bool]]:
    """The transposed program of a program without consts.

    Args:
      linear: for each input whether the program is linear in it; the others become inputs of the result.
      nonzero: for each output whether a cotangent arrives; those follow.
      instantiate_out: for each linear input whether it gets zeros if no cotangent reaches it.
    Returns: a program of consts + those inputs that gives the cotangents that are not zero, its consts, and for each
      linear input whether a cotangent reaches it.
    """
    jaxpr = closed.jaxpr
    key = (id(closed), tuple(linear), tuple(nonzero), None if instantiate_out is None else tuple(instantiate_out))
    remembered = _transposed.get(key)
    if remembered is not None:
        return remembered[1:]
    known = [var.aval for var, flag in zip(jaxpr.invars, linear, strict=True) if not flag]
    incoming = [tangent_aval(var.aval) for var, flag in zip(jaxpr.outvars, nonzero, strict=True) if flag]
    arrives: list[bool] = []

    def fun(*values: Any) -> list[Any]:
        rest = iter(values[:len(known)])
        args = [Linear(var.aval) if flag else next(rest) for var, flag in zip(jaxpr.invars, linear, strict=True)]
        given = iter(values[len(known):])
        cotangents = [next(given) if flag else Zero(tangent_aval(var.aval))
                      for var, flag in zip(jaxpr.outvars, nonzero, strict=True)]
        outs = backward(jaxpr, closed.consts, args, cotangents)
        outs = [out for out, flag in zip(outs, linear, strict=True) if flag]
        if instantiate_out is not None:
            outs = [instantiate(out) if flag else out for out, flag in zip(outs, instantiate_out, strict=True)]
        arrives.extend(type(out) is not Zero for out in outs)
        return [out for out in outs if type(out) is not Zero]

    traced, consts = trace_to_jaxpr(fun, [*known, *incoming], jaxpr.debug_info)
    result = hoist_consts(traced)
    if len(_transposed) >= _LIMIT:
        _transposed.clear()
    _transposed[key] = (closed, result, consts, arrives)  # holds the program, so its id stays taken
    return result, consts, arrives


_LIMIT = 4096
_transposed: dict[Any, tuple[ClosedJaxpr, ClosedJaxpr, list[Any], list[bool]]] = {}


def forget() -> None:
    """Drop remembered programs."""
    _transposed.clear()


# --- makers of rules ---------------------------------------------------------------------------------


def def_bilinear(primitive: Primitive, left: Callable, right: Callable) -> None:
    """Set the rules of a product: linear in each of two operands.

    Args:
      left: `left(cotangent, linear_aval, other, **params)` gives the cotangent of the first operand.
      right: `right(cotangent, other, linear_aval, **params)` that of the second.
    """

    def jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
        (x, y), (dx, dy) = primals, tangents
        out = primitive.bind(x, y, **params)
        total: Any = Zero(tangent_aval(aval_of(out)))
        if type(dx) is not Zero:
            total = primitive.bind(dx, y, **params)
        if type(dy) is not Zero:
            total = add_tangents(total, primitive.bind(x, dy, **params))
        return out, total

    def transpose(cotangent: Any, x: Any, y: Any, **params: Any) -> list[Any]:
        assert is_linear(x) != is_linear(y), f"{primitive} is linear in one operand at a time"
        if is_linear(x):
            return [left(cotangent, x.aval, y, **params), None]
        return [None, right(cotangent, x, y.aval, **params)]

    primitive.def_jvp(jvp)
    primitive.def_transpose(transpose)


add_any_p.def_transpose(lambda cotangent, x, y: [cotangent if is_linear(x) else None, cotangent if is_linear(y) else None])

