"""Dead-code elimination: removes equations whose results are unused, and returns which inputs are still used."""

from __future__ import annotations

from typing import Any


def live_parts(jaxpr: Any) -> tuple[list[Any], list[bool]]:
    """The equations that matter for the outputs or have effects, and for each of constvars and invars
    whether it is read."""
    live = set(jaxpr.outvars)
    kept: list[Any] = []
    keep, read = kept.append, live.update
    for eqn in reversed(jaxpr.eqns):
        outvars = eqn.outvars
        if (outvars[0] in live if len(outvars) == 1 else not live.isdisjoint(outvars)) or eqn.effects:
            read(eqn.invars)
            keep(eqn)
    kept.reverse()
    return kept, [var in live for var in (*jaxpr.constvars, *jaxpr.invars)]
