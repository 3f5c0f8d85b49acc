"""Recordings: what a call wrote into a program, to be written again on other operands without running the call.

A rule of differentiation, or a function of the numpy API, writes the same equations whenever it meets the same types,
parameters and options; programs call it with the same again and again, in each layer, each step. So a call that comes the
second time is recorded, and played back from then on: two to three times as fast. What runs into constants, other programs,
warnings or errors is not recorded and runs each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxlite.compilation.caches import clear_hooks
from jaxlite.core.jaxpr import ClosedJaxpr, Jaxpr, Literal, Var
from jaxlite.core.staging import StagedTracer, StagingTrace
from jaxlite.core.tracing import Recording

_LIMIT = 1 << 13
RECORD = object()  # instead of a recording: it is time to make it


class Recordings:
    """Recordings by key, made for what comes `after` so many other times; forgotten when there are too many.

    `idle` is how many calls are to come before it is worth looking at one: a process that traces one small program is done
    by then, and keys have their price.
    """

    __slots__ = ("made", "idle", "_after", "_seen")

    def __init__(self, after: int = 1, idle: int = 100) -> None:
        self.made: dict[Any, Any] = {}
        self.idle = idle
        self._after = after
        self._seen: dict[Any, int] = {}
        clear_hooks.append(self.clear)

    def is_idle(self) -> bool:
        """Whether it is too early to look at calls; asked once for each of them."""
        if self.idle > 0:
            self.idle -= 1
            return True
        return False

    def find(self, key: Any) -> Any:
        """The recording under a key; None for what runs, `RECORD` for what shall be recorded and put here."""
        try:
            return self.made[key]
        except KeyError:
            count = self._seen.get(key, 0)
        except TypeError:  # an unhashable parameter
            return None
        if count >= self._after:
            return RECORD
        if len(self._seen) >= _LIMIT:
            self._seen.clear()
        self._seen[key] = count + 1
        return None

    def put(self, key: Any, recording: Any) -> None:
        """Keep a recording, or None for what cannot be recorded."""
        if len(self.made) >= _LIMIT:
            self.made.clear()
        self.made[key] = recording

    def clear(self) -> None:
        self.made.clear()
        self._seen.clear()


_EXACT = frozenset((int, bool, str, type(None)))  # equal values of one of these types are the same


def add_static(key: list[Any], value: Any) -> bool:
    """Append what tells a value from all others that are not tracers; False if it is not known how."""
    kind = type(value)
    if kind in _EXACT or isinstance(value, (np.dtype, type)):
        key += kind, value
    elif kind is float or isinstance(value, (np.bool_, np.integer, np.floating)):
        if value != value:
            return False
        key += kind, value or str(value)  # zeros have a sign
    elif kind is tuple and all(type(each) is int for each in value):
        key.append(value)
    else:
        return False
    return True


def add_operand(key: list[Any], tracer: Any) -> bool:
    """Append what decides what a tracer does; False for one that stands for a known scalar."""
    key.append(tracer.aval)
    return bool(tracer.aval.shape) or type(getattr(tracer, "atom", None)) is not Literal


def are_of(trace: StagingTrace, values: Sequence[Any]) -> bool:
    """Whether all values are tracers of this trace."""
    return all(type(value) is StagedTracer and value._trace is trace for value in values)


def distinct_atoms(trace: StagingTrace, operands: Sequence[Any]) -> list[Any] | None:
    """The atoms of a call's operands; None if some are not of this trace, or if equations could not tell two apart."""
    atoms = [operand.atom for operand in operands]
    return atoms if are_of(trace, operands) and len(set(atoms)) == len(atoms) else None


def transcript(trace: StagingTrace, first: int, operands: Sequence[Any], outputs: Sequence[Any],
               container: type | None = list) -> Recording | None:
    """The recording of a trace's equations from the `first` on; None if there is more to them.

    Args: `operands` are the atoms that stand for what the call got, `outputs` the tracers that it gave.
    """
    if not are_of(trace, outputs):
        return None
    eqns = trace.eqns[first:]
    literals = list(dict.fromkeys(atom for eqn in eqns for atom in eqn.invars if type(atom) is Literal))
    places: dict[Any, int] = {atom: place for place, atom in enumerate([*operands, *literals])}
    steps = []
    for eqn in eqns:
        if eqn.effects or any(isinstance(value, (Jaxpr, ClosedJaxpr)) or callable(value) for value in eqn.params.values()):
            return None
        if not all(atom in places for atom in eqn.invars):  # a constant
            return None
        steps.append((eqn.primitive, eqn.params, [places[atom] for atom in eqn.invars], [var.aval for var in eqn.outvars]))
        for var in eqn.outvars:
            places[var] = len(places)
    if not all(type(out.atom) is Var and out.atom in places for out in outputs):
        return None
    read = dict.fromkeys(place for _, _, operand_places, _ in steps for place in operand_places if place < len(operands))
    return Recording(list(read), literals, steps, [places[out.atom] for out in outputs], container)
