"""JAX's single class of open and closed jaxprs, for newer jaxlibs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxlite.core.jaxpr import ClosedJaxpr, with_constvars
from jaxlite.core.jaxpr import Jaxpr as OpenJaxpr


class _Either(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, (OpenJaxpr, ClosedJaxpr))

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, (OpenJaxpr, ClosedJaxpr))


class Jaxpr(metaclass=_Either):
    """A program: `Jaxpr(constvars, invars, outvars, eqns, ...)`, or `Jaxpr(program, consts)` for one with its constants.

    Inputs without a constant are arguments, constvars too.
    """

    def __new__(cls, constvars: Any, invars: Any = None, outvars: Any = None, eqns: Any = None, effects: Any = frozenset(),
                debug_info: Any = None, is_high: bool = False, consts: Sequence[Any] | None = None) -> Any:
        if isinstance(constvars, Jaxpr):
            consts = (invars if consts is None else consts) or ()
            return ClosedJaxpr(with_constvars(constvars.jaxpr, len(consts)), consts)  # type: ignore[attr-defined]
        jaxpr = with_constvars(OpenJaxpr(constvars, invars, outvars, eqns, effects, debug_info), len(consts or ()))
        return jaxpr if consts is None else ClosedJaxpr(jaxpr, consts)
