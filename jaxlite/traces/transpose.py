"""Transposition: runs a linear program backwards, from cotangents of its outputs to cotangents of its inputs.

A primitive's rule is `transpose(cotangent, *operands, **params)`. Operands in which the equation is linear are `Linear`
placeholders, which only have a type. It returns a cotangent (or None, or `Zero`) for each operand. For several results,
`cotangent` is a list.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxlite.core.aval import MemorySpace, dual, layouts, spaces
from jaxlite.core.config import chooses_layouts, enable_x64
from jaxlite.core.jaxpr import ClosedJaxpr, Jaxpr, Literal, derived, pick
from jaxlite.core.primitive import NoRule, Primitive, load_rules
from jaxlite.core.staging import hoist_consts, trace_to_jaxpr
from jaxlite.core.tracing import state
from jaxlite.core.tree_nodes import register_pytree_node
from jaxlite.core.values import AVAL_OF, aval_of
from jaxlite.devices import placement
from jaxlite.traces.backward_logs import with_log
from jaxlite.traces.jvp import (
    Zero,
    add_any_p,
    add_tangents,
    cotangent_aval,
    has_no_tangents,
    instantiate,
    sum_of,
    tangent_aval,
)

_WIDE = frozenset(map(np.dtype, ("float64", "complex128", "int64", "uint64")))


class Linear:
    """Stands for an operand that an equation is linear in.

    Its `target` is where the caller of the backward pass wants the cotangent of an input to go: None to have it as a value,
    False for nowhere, or a Ref.
    """

    __slots__ = ("aval", "target")

    def __init__(self, aval: Any, target: Any = None):
        self.aval, self.target = aval, target


# Rules of libraries take it in trees, as JAX's: it has no leaves.
register_pytree_node(Linear, lambda linear: ((), (linear.aval, linear.target)), lambda fields, _: Linear(*fields))


class _NeedsValue(AssertionError):
    """An operation was given an operand that has only a type."""


def _no_value(operand: Linear) -> Any:
    raise _NeedsValue


AVAL_OF[Linear] = _no_value


def is_linear(x: Any) -> bool:
    return type(x) is Linear


def transpose_rule(primitive: Any) -> Callable[..., Any]:
    """A primitive's rule. Raises: NotImplementedError if it is not written, ValueError if there is none by nature."""
    rule = primitive.transpose
    if rule is None:
        raise NotImplementedError(f"Transpose rule (for reverse-mode differentiation) for '{primitive}' not implemented")
    if type(rule) is NoRule:
        raise ValueError(f"Reverse-mode differentiation does not work for {rule.of or repr(str(primitive))}: {rule.reason}")
    return rule


def has_wide_types(jaxpr: Jaxpr) -> bool:
    """Whether a program computes with 64-bit types; if they are off, a block of its function had them on, and its constants
    and zeros have to keep them."""
    return any([getattr(var.aval, "dtype", None) in _WIDE for eqn in jaxpr.eqns for var in eqn.outvars])


def backward(jaxpr: Jaxpr, consts: Sequence[Any], args: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
    """Pull cotangents back through a program.

    Args:
      consts, args: values for the constvars and invars; those that the program is linear in are `Linear`.
      cotangents: for the outputs; may be `Zero`.
    Returns: for each invar its cotangent, `Zero` where none arrives and for the non-linear ones.
    """
    load_rules()
    if layouts.exist and not chooses_layouts.value:  # it was typed at tracing, cotangents have the shardings of values
        previous = chooses_layouts.swap_local(True)
        try:
            return backward(jaxpr, consts, args, cotangents)
        finally:
            chooses_layouts.set_local(previous)
    if not enable_x64.value and has_wide_types(jaxpr):
        with enable_x64(True):
            return backward(jaxpr, consts, args, cotangents)
    values: dict[Any, Any] = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *args), strict=True))
    linear: set[Any] = {var for var, value in values.items() if type(value) is Linear}

    def read(atoms: list[Any]) -> list[Any]:
        return [atom.val if type(atom) is Literal else values[atom] for atom in atoms]

    pending = []
    for eqn in jaxpr.eqns:  # what does not depend on linear inputs is computed forwards
        if linear.isdisjoint(eqn.invars):
            outs = eqn.primitive.bind(*read(eqn.invars), **eqn.params)
            values.update(zip(eqn.outvars, outs if eqn.primitive.multiple_results else [outs], strict=True))
        else:
            for var in eqn.outvars:
                linear.add(var)
                values[var] = Linear(var.aval)
            pending.append(eqn)

    found: dict[Any, Any] = {}

    def add(atoms: Sequence[Any], cotangents: Sequence[Any]) -> None:
        for atom, cotangent in zip(atoms, cotangents, strict=True):
            if cotangent is not None and type(cotangent) is not Zero and atom in linear:
                found[atom] = sum_of(found[atom], cotangent) if atom in found else cotangent

    if spaces.exist:
        cotangents = [in_memory_of(cotangent, atom.aval) for cotangent, atom in zip(cotangents, jaxpr.outvars, strict=True)]
    if layouts.exist:
        cotangents = [_as_dual(cotangent, atom.aval) for cotangent, atom in zip(cotangents, jaxpr.outvars, strict=True)]
    add(jaxpr.outvars, cotangents)
    pulled = [atom for atom, cotangent in zip(jaxpr.outvars, cotangents, strict=True) if type(cotangent) is not Zero]
    trace = state.trace
    try:
        for eqn in reversed(pending):
            primitive, outvars = eqn.primitive, eqn.outvars
            if found.keys().isdisjoint(outvars) and not (primitive.has_own_backward and _is_used(eqn, pending, pulled)):
                continue
            incoming: Any = [found.pop(var) if var in found else Zero(cotangent_aval(var.aval)) for var in outvars]
            trace.pin(eqn.traceback)  # the user's line that is pulled back through
            cotangent, rule = incoming if primitive.multiple_results else incoming[0], transpose_rule(primitive)
            operands = read(eqn.invars)
            if layouts.exist or spaces.exist:
                add(eqn.invars, _laid_out_cotangents(rule, cotangent, operands, eqn.params))
            elif primitive.transpose_onto is not None and eqn.invars[0] in found:
                found[eqn.invars[0]] = primitive.transpose_onto(found[eqn.invars[0]], cotangent, *operands, **eqn.params)
            else:
                add(eqn.invars, rule(cotangent, *operands, **eqn.params))
    except _NeedsValue:
        raise AssertionError(f"{primitive} needs the value of an operand, so the function is not linear there, and cannot be "
                             "transposed. Differentiate it first: jvp, linearize and vjp give linear functions.") from None
    finally:
        trace.pin(None)
    return [found.get(var, Zero(cotangent_aval(var.aval))) for var in jaxpr.invars]


def _is_used(eqn: Any, pending: Sequence[Any], outvars: Sequence[Any]) -> bool:
    """Whether outputs depend on the results of an equation, in a program's linear part."""
    needed = {atom for atom in outvars if type(atom) is not Literal}
    for each in reversed(pending):
        used = not needed.isdisjoint(each.outvars)
        if each is eqn:
            return used
        if used:
            needed.update(atom for atom in each.invars if type(atom) is not Literal)
    return False


def _as_dual(cotangent: Any, aval: Any) -> Any:
    """What a caller gives as the cotangent of what is reduced or unreduced along mesh axes."""
    wanted = dual(aval)
    return cotangent if wanted is aval or cotangent is None or type(cotangent) is Zero else placement.constraints().laid_out_as(
        cotangent, wanted)


def in_memory_of(cotangent: Any, aval: Any) -> Any:
    """A cotangent, or zeros, in the memory that a type names: rules make them where the devices have theirs."""
    space = getattr(aval, "memory_space", None)
    if cotangent is None or type(cotangent) is Zero or type(space) is not MemorySpace or aval_of(
            cotangent).memory_space is space:
        return cotangent
    return placement.transfers().into(cotangent, space)


def _laid_out_cotangents(rule: Callable[..., Any], cotangent: Any, operands: Sequence[Any],
                         params: dict[str, Any]) -> list[Any]:
    """The cotangents of a rule, each with the layout over explicit mesh axes and in the memory of its operand."""
    found = rule(cotangent, *operands, **params)
    if spaces.exist:
        found = [in_memory_of(out, operand.aval) if type(operand) is Linear else out
                 for out, operand in zip(found, operands, strict=True)]
    return [out if type(operand) is not Linear or out is None or type(out) is Zero or not hasattr(aval_of(out), "layout")
            or not hasattr(operand.aval, "layout")
            else placement.constraints().laid_out_as(out, dual(operand.aval))
            for out, operand in zip(found, operands, strict=True)]


def backward_jaxpr(closed: ClosedJaxpr, linear: Sequence[bool], nonzero: Sequence[bool],
                   instantiate_out: Sequence[bool] | None = None) -> tuple[ClosedJaxpr, list[Any], list[bool], Any]:
    """The transposed program of a program without consts.

    Args:
      linear: for each input whether the program is linear in it; the others become inputs of the result.
      nonzero: for each output whether a cotangent arrives; those follow.
      instantiate_out: for each linear input whether it gets zeros if no cotangent reaches it.
    Returns: a program of consts + those inputs that gives the cotangents that are not zero and what was logged, its consts,
      for each linear input whether a cotangent reaches it, and the tree of what was logged.
    """
    key = ("backward", *linear, *nonzero, *(instantiate_out or ()))
    return derived(closed, key, lambda: _backward_jaxpr(closed, linear, nonzero, instantiate_out))


def _backward_jaxpr(closed: ClosedJaxpr, linear: Sequence[bool], nonzero: Sequence[bool],
                    instantiate_out: Sequence[bool] | None) -> tuple[ClosedJaxpr, list[Any], list[bool], Any]:
    jaxpr = closed.jaxpr
    known = [var.aval for var, flag in zip(jaxpr.invars, linear, strict=True) if not flag]
    incoming = [cotangent_aval(var.aval) for var, flag in zip(jaxpr.outvars, nonzero, strict=True) if flag]
    arrives: list[bool] = []
    logged: Any = None

    def fun(*values: Any) -> list[Any]:
        nonlocal logged
        rest = iter(values[:len(known)])
        args = [Linear(var.aval) if flag else next(rest) for var, flag in zip(jaxpr.invars, linear, strict=True)]
        given = iter(values[len(known):])
        cotangents = [next(given) if flag else Zero(cotangent_aval(var.aval))
                      for var, flag in zip(jaxpr.outvars, nonzero, strict=True)]
        outs, extra, logged = with_log(backward, jaxpr, closed.consts, args, cotangents)
        outs = pick(outs, linear)
        if instantiate_out is not None:
            outs = [instantiate(out) if flag else out for out, flag in zip(outs, instantiate_out, strict=True)]
        arrives.extend(type(out) is not Zero for out in outs)
        return [*[out for out in outs if type(out) is not Zero], *extra]

    traced, consts = trace_to_jaxpr(fun, [*known, *incoming], jaxpr.debug_info)
    return hoist_consts(traced), consts, arrives, logged


# --- makers of rules ---------------------------------------------------------------------------------


def def_bilinear(primitive: Primitive, left: Callable[..., Any], right: Callable[..., Any]) -> None:
    """Set the rules of a product: linear in each of two operands.

    Args:
      left: `left(cotangent, linear_aval, other, **params)` gives the cotangent of the first operand.
      right: `right(cotangent, other, linear_aval, **params)` that of the second.
    """

    def jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
        (x, y), (dx, dy) = primals, tangents
        out = primitive.bind(x, y, **params)
        total: Any = Zero(tangent_aval(aval_of(out)))
        if has_no_tangents(total.aval):  # floats, multiplied to integers
            return out, total
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

