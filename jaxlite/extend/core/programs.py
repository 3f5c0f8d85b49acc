"""JAX's single class of open and closed jaxprs, for newer jaxlibs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxlite.core.jaxpr import ClosedJaxpr
from jaxlite.core.jaxpr import Jaxpr as OpenJaxpr


class _Either(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, (OpenJaxpr, ClosedJaxpr))

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, (OpenJaxpr, ClosedJaxpr))


class Jaxpr(metaclass=_Either):
    """A program: `Jaxpr(constvars, invars, outvars, eqns, ...)`, or `Jaxpr(program, consts)` for one with its constants."""

    def __new__(cls, constvars: Any, invars: Any = None, outvars: Any = None, eqns: Any = None, effects: Any = frozenset(),
                debug_info: Any = None, is_high: bool = False, consts: Sequence[Any] | None = None) -> Any:
        if isinstance(constvars, Jaxpr):
            return ClosedJaxpr(constvars.jaxpr, (invars if consts is None else consts) or ())  # type: ignore[attr-defined]
        jaxpr = OpenJaxpr(constvars, invars, outvars, eqns, effects, debug_info)
        return jaxpr if consts is None else ClosedJaxpr(jaxpr, consts)
