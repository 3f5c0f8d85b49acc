"""Calls that compute something of each leaf of a tree become part of the program that calls them.

The passes that look for fusion barriers and for the end of a program take a call as one equation. Optimizers correct all of
their moments in one call, but each of its results belongs to another parameter, and may be read by what a barrier is for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lowering.passes.operations import ELEMENTWISE, call_body

_FEW = 2  # results of a call that stays one
_FIT = ELEMENTWISE | {"broadcast_in_dim", "reshape", "squeeze"}


def opened(jaxpr: Any) -> Any:
    """A program with the equations of its jitted functions that have more than a few results and are elementwise."""
    known: dict[Any, bool] = {}
    opens = [_is_of_tree(eqn, known) for eqn in jaxpr.eqns]
    if not any(opens):
        return jaxpr
    values: dict[Any, Any] = {}  # results of these calls, and what they are now
    eqns: list[Any] = []
    for eqn, is_opened in zip(jaxpr.eqns, opens, strict=True):
        eqn = eqn.replace(invars=_renamed(eqn.invars, values)) if values else eqn
        eqns += _body(eqn, values) if is_opened else [eqn]
    return jaxpr.replace(eqns=eqns, outvars=_renamed(jaxpr.outvars, values))


def _is_of_tree(eqn: Any, known: dict[Any, bool]) -> bool:
    if len(eqn.outvars) <= _FEW or eqn.primitive.name != "jit":
        return False
    shardings = (each for name in ("in_shardings", "out_shardings") for each in eqn.params.get(name) or ())
    return all(each is None for each in shardings) and _is_elementwise(call_body(eqn), known)


def _is_elementwise(jaxpr: Any, known: dict[Any, bool]) -> bool:
    """Whether a program is elementwise, with those that it calls: each of these is looked at once, and `known` then."""
    if jaxpr not in known:
        bodies = [(eqn.primitive.name, call_body(eqn)) for eqn in jaxpr.eqns]
        known[jaxpr] = all(name in _FIT if body is None else _is_elementwise(body, known) for name, body in bodies)
    return known[jaxpr]


def _body(call: Any, values: dict[Any, Any]) -> Iterator[Any]:
    """The equations of a call with variables of their own; `values` says what its results become."""
    body = call_body(call)
    own = dict(zip((*body.constvars, *body.invars), call.invars, strict=True))
    for eqn in body.eqns:
        invars = _renamed(eqn.invars, own)
        own |= {var: type(var)(var.aval) for var in eqn.outvars}
        yield eqn.replace(invars=invars, outvars=_renamed(eqn.outvars, own))
    values.update(zip(call.outvars, _renamed(body.outvars, own), strict=True))


def _renamed(atoms: Any, names: dict[Any, Any]) -> list[Any]:
    return [atom if hasattr(atom, "val") else names.get(atom, atom) for atom in atoms]
