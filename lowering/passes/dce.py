"""Dead code: drop the equations whose results nobody reads, and say which inputs are left."""

from __future__ import annotations

from typing import Any


def live_parts(jaxpr: Any) -> tuple[list[Any], list[bool]]:
    """The equations that matter for the outputs or have effects, and for each of constvars and invars
    whether it is read."""
    inputs = (*jaxpr.constvars, *jaxpr.invars)
    live = set(jaxpr.outvars).union(*[eqn.invars for eqn in jaxpr.eqns])
    if all(not live.isdisjoint(eqn.outvars) or eqn.effects for eqn in jaxpr.eqns):  # as in most programs
        return jaxpr.eqns, [var in live for var in inputs]
    live = set(jaxpr.outvars)
    kept = []
    for eqn in reversed(jaxpr.eqns):
        outvars = eqn.outvars
        if (outvars[0] in live if len(outvars) == 1 else not live.isdisjoint(outvars)) or eqn.effects:
            live.update(eqn.invars)
            kept.append(eqn)
    kept.reverse()
    return kept, [var in live for var in inputs]
