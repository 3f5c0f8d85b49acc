"""Eager execution: the trace that is current when no other is. Each operation is one compiled call.

Compiled operations are cached on the primitive and its params; jit's own cache adds the types.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxlite.compilation.caches import clear_hooks
from jaxlite.core import config
from jaxlite.core.errors import UnexpectedTracerError
from jaxlite.core.jaxpr import ClosedJaxpr, derived, exact_key, program_in
from jaxlite.core.sharing import first_like
from jaxlite.core.tracing import Trace, Tracer, set_eager_trace
from jaxlite.traces.host import eager_jit

_CACHE_LIMIT = 8192
_disable_jit = config.disable_jit.state


class EagerTrace(Trace):
    """Runs each operation at once."""

    __slots__ = ("_calls",)

    def __init__(self) -> None:
        super().__init__()
        self._calls: dict[Any, Any] = {}

    def process(self, primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> Any:
        if primitive.eager is not None:
            for arg in args:  # run_compiled leaves this to the call
                if isinstance(arg, Tracer):
                    raise UnexpectedTracerError(arg)
            return primitive.eager(*args, **params)
        return self.run_compiled(primitive, args, params)

    def run_compiled(self, primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> Any:
        """Compile the one operation, and run it."""
        call = self._compiled_call(primitive, params)
        disabled = _disable_jit.value
        previous = _disable_jit.swap_local(False) if disabled else None
        try:
            return call(*args)
        except Exception:  # params that are wrong may equal right ones, as 2.0 equals 2
            self._calls = {key: kept for key, kept in list(self._calls.items()) if kept is not call}
            raise
        finally:
            if disabled:
                _disable_jit.set_local(previous)

    def _compiled_call(self, primitive: Any, params: dict[str, Any]) -> Any:
        key = (primitive, *params, *(params.values() if primitive.is_own else map(exact_key, params.values())))
        try:
            call = self._calls.get(key)
        except TypeError as error:
            raise TypeError(f"{primitive.name}: parameters must be hashable: {error}") from None
        if call is None:
            source = program_in(params)
            if source is not None:
                return derived(source, key, lambda: _call_of_program(primitive, params))
            if len(self._calls) >= _CACHE_LIMIT:
                self._calls.clear()
            call = self._calls.setdefault(key, _call_of(primitive, params))
        return call

    def clear(self) -> None:
        """Forget all compiled operations."""
        self._calls.clear()


def _call_of(primitive: Any, params: dict[str, Any]) -> Any:
    def apply(*args: Any) -> Any:
        return primitive.bind(*args, **params)

    apply.__name__ = primitive.name
    return eager_jit(apply)


def _call_of_program(primitive: Any, params: dict[str, Any]) -> Any:
    """The call of the first equation that says the same; what is compiled for it ends with its program."""
    params = {name: tuple(map(_first, param)) if type(param) is tuple else _first(param) for name, param in params.items()}
    source = program_in(params)
    assert source is not None
    return derived(source, ("call", primitive, *params, *params.values()), lambda: _call_of(primitive, params))


def _first(param: Any) -> Any:
    return first_like(param) if type(param) is ClosedJaxpr else param


eager_trace = EagerTrace()
set_eager_trace(eager_trace)
clear_hooks.append(eager_trace.clear)


def apply_primitive(primitive: Any, *args: Any, **params: Any) -> Any:
    """Apply a primitive at once by compiling it: what `def_impl` gets for a primitive that is to be lowered."""
    return eager_trace.run_compiled(primitive, args, params)
