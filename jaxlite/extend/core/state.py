"""Queries about the current traces, and setting the current trace, for libraries."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

from jaxlite.core.staging import StagingTrace
from jaxlite.core.tracing import eager_execution, is_eager, set_trace, state
from jaxlite.traces.batching import BatchTrace


class TraceTag:
    """Tells the traces of one transformation from those of another: each tag is equal to itself alone."""

    __slots__ = ()


class OpaqueTraceState:
    """Which trace was current: equal to another taken under the same one."""

    __slots__ = ("_trace", "_axes")

    def __init__(self) -> None:
        self._trace, self._axes = weakref.ref(state.trace), tuple(state.axis_sizes.items())

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, OpaqueTraceState) and self._trace() is other._trace() and self._axes == other._axes

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"OpaqueTraceState({type(self._trace()).__name__})"


def get_opaque_trace_state(convention: Any = None) -> OpaqueTraceState:
    """The state of tracing, to be compared with that at another time."""
    return OpaqueTraceState()


def find_top_trace(_: Any) -> Any:
    """The trace that operations on any values are handed to: the current one."""
    return state.trace


# Classes, not generators: a block that is abandoned, in a generator that is dropped, then changes nothing when it is collected.


def set_current_trace(trace: Any, check_leaks: bool = False) -> set_trace:
    """Make a trace current inside a `with` block; None: the one that runs operations at once."""
    return eager_execution() if trace is None else set_trace(trace)


class take_current_trace:
    """The current trace; inside the `with` block, operations are run at once until another is made current."""

    __slots__ = ("_eager",)

    def __enter__(self) -> Any:
        taken = state.trace
        self._eager = eager_execution()
        self._eager.__enter__()
        return taken

    def __exit__(self, *error: Any) -> None:
        self._eager.__exit__(*error)


def eval_context() -> set_trace:
    """A context in which operations are run at once."""
    return eager_execution()


class _AxisEnvironment:
    """The named axes that are bound where it was made."""

    __slots__ = ("axis_sizes",)

    def __init__(self) -> None:
        self.axis_sizes = dict(state.axis_sizes)

    def axis_names(self) -> tuple[Any, ...]:
        """Their names."""
        return tuple(self.axis_sizes)

    def axis_exists(self, axis_name: Any) -> bool:
        """Whether there is one of a name."""
        return axis_name in self.axis_sizes

    def axis_size(self, axis_name: Any) -> int:
        """The size of one. Raises: NameError if there is none of that name."""
        if axis_name not in self.axis_sizes:
            raise NameError(f"unbound axis name: {axis_name}")
        return self.axis_sizes[axis_name]


class _TraceContext:
    """What is current in this thread: the trace, and the named axes."""

    trace = property(lambda self: state.trace, doc="The current trace.")
    axis_env = property(lambda self: _AxisEnvironment(), doc="The named axes that are bound.")
    set_trace = staticmethod(set_current_trace)

    def is_top_level(self) -> bool:
        """Whether operations are run at once."""
        return is_eager()


trace_ctx = _TraceContext()


def trace_state_clean() -> bool:
    """Whether nothing is being traced in this thread."""
    trace = state.trace
    with eager_execution():
        return trace is state.trace and not state.axis_sizes


def _around(trace: Any) -> Iterator[Any]:
    while trace is not None:
        yield trace
        trace = getattr(trace, "parent", None) or getattr(trace, "parent_trace", None)


def unsafe_am_i_under_a_jit_DO_NOT_USE() -> bool:
    """Whether a program is being staged."""
    return any(isinstance(trace, StagingTrace) for trace in _around(state.trace))


def unsafe_am_i_under_a_vmap_DO_NOT_USE() -> bool:
    """Whether a function is being batched."""
    return any(isinstance(trace, BatchTrace) for trace in _around(state.trace))


def unsafe_get_axis_names_DO_NOT_USE() -> list[Any]:
    """The names of the axes that are bound."""
    return list(state.axis_sizes)


def nonempty_axis_env_DO_NOT_USE() -> bool:
    """Whether a named axis is bound."""
    return bool(state.axis_sizes)
