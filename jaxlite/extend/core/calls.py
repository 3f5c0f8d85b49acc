"""Primitives with a function as operand, which they call in the current trace."""

from __future__ import annotations

from typing import Any

from jaxlite.core.jaxpr import ClosedJaxpr, eval_jaxpr
from jaxlite.core.primitive import Primitive


def call_impl(f: Any, *args: Any, **params: Any) -> Any:
    """Call a `linear_util.WrappedFun`."""
    return f.call_wrapped(*args)


class CallPrimitive(Primitive):
    """A primitive that calls a function: `bind(wrapped_fun, *args, **params)`. No jaxpr has an equation of it."""

    __slots__ = ()
    call_primitive = True

    def __init__(self, name: str):
        super().__init__(name, multiple_results=True)
        self.eager = call_impl

    def bind(self, *args: Any, **params: Any) -> Any:
        return self.impl(*args, **params)


class _ClosedCall(CallPrimitive):
    """The same for a program, `bind(*args, call_jaxpr=closed)`."""

    __slots__ = ()

    def bind(self, *args: Any, call_jaxpr: ClosedJaxpr, **params: Any) -> Any:
        return eval_jaxpr(call_jaxpr.jaxpr, call_jaxpr.consts, *args)


call_p = CallPrimitive("call")
call = call_p.bind
closed_call_p = _ClosedCall("closed_call")
