"""Events that libraries record, and listeners for them. Without a listener, recording does nothing.

After each compile, listeners get the times of its three stages, and whether the persistent cache had it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from lowering import report

_events: list[Callable[..., None]] = []
_durations: list[Callable[..., None]] = []
_time_spans: list[Callable[..., None]] = []
_scalars: list[Callable[..., None]] = []


_STAGES = {
    "trace": ("/jax/core/compile/jaxpr_trace_duration", "{}"),
    "lower": ("/jax/core/compile/jaxpr_to_mlir_module_duration", "jit({})"),
    "compile": ("/jax/core/compile/backend_compile_duration", "jit({})"),
}
_CACHE = {"hit": "/jax/compilation_cache/cache_hits", "miss": "/jax/compilation_cache/cache_misses"}


def _tell_of_compile(name: str, seconds: dict[str, float], cache: str) -> None:
    start = time.time() - sum(seconds.values())
    for stage, (event, form) in _STAGES.items():
        end = start + seconds[stage]
        if stage == "compile" and cache in _CACHE:
            record_event("/jax/compilation_cache/compile_requests_use_cache")
            record_event(_CACHE[cache])
        record_scalar(event, start, fun_name=form.format(name))
        record_event_duration_secs(event, seconds[stage], fun_name=form.format(name))
        record_event_time_span(event, start, end, fun_name=form.format(name))
        start = end


def _register(listeners: list[Callable[..., None]], callback: Callable[..., None]) -> None:
    listeners.append(callback)
    if _tell_of_compile not in report.listeners:
        report.listeners.append(_tell_of_compile)


def record_event(event: str, **kwargs: str | int) -> None:
    """Tell the listeners that something happened: `listener(event, **kwargs)`.

    >>> heard = []
    >>> register_event_listener(lambda event, **kwargs: heard.append((event, kwargs)))
    >>> record_event("/library/saved", step=3)
    >>> heard
    [('/library/saved', {'step': 3})]
    >>> clear_event_listeners()
    """
    for listener in _events:
        listener(event, **kwargs)


def record_event_duration_secs(event: str, duration: float, **kwargs: str | int) -> None:
    """Tell how long something took: `listener(event, duration, **kwargs)`."""
    for listener in _durations:
        listener(event, duration, **kwargs)


def record_event_time_span(event: str, start_time: float, end_time: float, **kwargs: str | int) -> None:
    """Tell from when to when something took place: `listener(event, start_time, end_time, **kwargs)`."""
    for listener in _time_spans:
        listener(event, start_time, end_time, **kwargs)


def record_scalar(event: str, value: float, **kwargs: str | int) -> None:
    """Tell a number: `listener(event, value, **kwargs)`."""
    for listener in _scalars:
        listener(event, value, **kwargs)


def register_event_listener(callback: Callable[..., None]) -> None:
    """Call a function for each event."""
    _register(_events, callback)


def register_event_duration_secs_listener(callback: Callable[..., None]) -> None:
    """Call a function for each duration."""
    _register(_durations, callback)


def register_event_time_span_listener(callback: Callable[..., None]) -> None:
    """Call a function for each time span."""
    _register(_time_spans, callback)


def register_scalar_listener(callback: Callable[..., None]) -> None:
    """Call a function for each number."""
    _register(_scalars, callback)


def unregister_event_listener(callback: Callable[..., None]) -> None:
    """Take back a listener for events. Raises: ValueError if it is none."""
    _events.remove(callback)


def unregister_event_duration_listener(callback: Callable[..., None]) -> None:
    """Take back a listener for durations. Raises: ValueError if it is none."""
    _durations.remove(callback)


def unregister_event_time_span_listener(callback: Callable[..., None]) -> None:
    """Take back a listener for time spans. Raises: ValueError if it is none."""
    _time_spans.remove(callback)


def unregister_scalar_listener(callback: Callable[..., None]) -> None:
    """Take back a listener for numbers. Raises: ValueError if it is none."""
    _scalars.remove(callback)


def clear_event_listeners() -> None:
    """Take back all listeners, of all kinds."""
    for listeners in (_events, _durations, _time_spans, _scalars):
        listeners.clear()
    if _tell_of_compile in report.listeners:
        report.listeners.remove(_tell_of_compile)
