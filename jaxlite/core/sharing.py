"""Programs that say the same: eager calls treat a new one as the first of them, so that it is not compiled again.

A lambda that is written inside of a function is another one each time, and so are its program and what is derived from it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from jaxlite.core.jaxpr import ClosedJaxpr, Found, Jaxpr, Literal, derived, exact_key

_LIMIT = 256
_firsts: dict[Any, ClosedJaxpr] = {}
forget = _firsts.clear


def first_like(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The first program that says the same, itself if there was none, or if it contains arrays."""
    if closed.consts:
        return closed
    try:
        key = _structure(closed.jaxpr)
        if len(_firsts) >= _LIMIT:
            _firsts.clear()
        return _firsts.setdefault(key, closed)
    except TypeError:  # a param that cannot be hashed
        return closed


def derived_once(closed: ClosedJaxpr, key: Any, make: Callable[[ClosedJaxpr], Found]) -> Found:
    """What `make` derives from the first program that says the same (see `derived`)."""

    def of_first() -> Found:
        first = first_like(closed)
        return make(closed) if first is closed else derived(first, key, lambda: make(first))

    return derived(closed, key, of_first)


def _structure(jaxpr: Jaxpr) -> Any:
    """A key that two jaxprs have in common exactly when they say the same."""
    numbers: dict[Any, int] = {}

    def bind(var: Any) -> Any:
        numbers[var] = len(numbers)
        return var.aval

    def read(atom: Any) -> Any:
        if type(atom) is Literal:
            value = np.asarray(atom.val)
            return value.tobytes(), value.dtype, atom.aval
        return numbers[atom]

    inputs = tuple(map(bind, (*jaxpr.constvars, *jaxpr.invars)))
    eqns = tuple(
        (eqn.primitive, tuple(map(read, eqn.invars)), *map(_param_key, eqn.params.items()),
         tuple(map(bind, eqn.outvars)))
        for eqn in jaxpr.eqns)
    return inputs, eqns, tuple(map(read, jaxpr.outvars))


def _param_key(value: Any) -> Any:
    kind = type(value)
    if kind is tuple:
        return tuple(map(_param_key, value))
    if kind is Jaxpr or (kind is ClosedJaxpr and not value.consts):
        return kind, _structure(value if kind is Jaxpr else value.jaxpr)
    return exact_key(value)
