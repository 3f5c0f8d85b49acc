"""Functions of the numpy API in a program: played back where they are known (`traces/replay.py`), else run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxlite.core.source import warnings_as_errors
from jaxlite.core.staging import StagingTrace
from jaxlite.core.tracing import Recording, Tracer, set_trace, state
from jaxlite.traces.replay import RECORD, Recordings, add_operand, add_static, transcript
from lowering.xla import trace_context

_recordings = Recordings(after=2)  # to record a call takes another run of it


def run(fun: Callable, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`fun(*args, **kwargs)` in the current trace, or what it would write there."""
    if not _recordings.is_idle() and _is_staged(state.trace) and not state.axis_sizes:
        tracers: list[Any] = []
        key = _signature(fun, args, kwargs, tracers)
        recording = None if key is None else _recordings.find(key)
        if recording is RECORD:
            recording = _record(fun, args, kwargs)
            _recordings.put(key, recording)
        if recording is not None:
            return state.trace.replay(recording, tracers)
    return fun(*args, **kwargs)


def _is_staged(trace: Any) -> bool:
    """Whether all values of a trace are abstract in the end; where not, a function may look at them."""
    while type(trace) is not StagingTrace:
        trace = getattr(trace, "parent", None)
        if trace is None:
            return False
    return True


def _signature(fun: Callable, args: tuple[Any, ...], kwargs: dict[str, Any], tracers: list[Any]) -> Any:
    """What decides what a call writes, or None where that is not known. Adds the tracers among the arguments to `tracers`."""
    key: list[Any] = [fun, trace_context(), *kwargs]
    for arg in (*args, *kwargs.values()) if kwargs else args:
        if isinstance(arg, Tracer):
            tracers.append(arg)
            known = add_operand(key, arg)
        else:
            known = add_static(key, arg)
        if not known:
            return None
    return tuple(key)


def _record(fun: Callable, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Recording | None:
    """What a call writes for arguments like these, if that is all there is to it."""
    trace = StagingTrace()
    trace.pin_here()

    def abstract(arg: Any) -> Any:
        return trace.new_arg(arg.aval) if isinstance(arg, Tracer) else arg

    try:
        with set_trace(trace), warnings_as_errors():
            boxed = [abstract(arg) for arg in args]  # before the keywords, as in the key
            out = fun(*boxed, **{name: abstract(arg) for name, arg in kwargs.items()})
    except Exception:  # it will be raised again where it belongs; or a warning
        return None
    finally:
        trace.alive = False
    outs: Any = [out] if isinstance(out, Tracer) else out
    if type(outs) not in (list, tuple):
        return None
    return transcript(trace, 0, trace.invars, outs, None if outs is not out else type(out))
