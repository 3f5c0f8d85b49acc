"""Source lines and name scopes of equations, for libraries that write transformations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from jaxlite.core import source
from jaxlite.core.scopes import named_scope
from jaxlite.core.source import NameStack, SourceInfo
from jaxlite.core.source import register_exclusion as register_exclusion
from jaxlite.core.tracing import state

__all__ = [
    "NameStack", "SourceInfo", "current", "current_name_stack", "extend_name_stack", "new_name_stack", "new_source_info",
    "register_exclusion", "reset_name_stack", "set_name_stack", "summarize", "transform_name_stack", "user_context",
]
__dir__ = lambda: __all__


def new_source_info() -> SourceInfo:
    """A source without a place."""
    return SourceInfo(None, NameStack())


def new_name_stack(name: str = "") -> NameStack:
    """A stack of one name, or of none."""
    return NameStack((name,) if name else ())


def current() -> SourceInfo:
    """The source of the code that is running."""
    return SourceInfo(source.current_traceback(), current_name_stack())


def current_name_stack() -> NameStack:
    """The scopes around the place that is running."""
    return NameStack(state.scopes)


def summarize(source_info: Any) -> str:
    """`file:line (function)` of the user's innermost frame."""
    return source.summarize_place(getattr(source_info, "traceback", source_info))


@contextmanager
def extend_name_stack(name: str) -> Iterator[NameStack]:
    """One more scope for a `with` block."""
    with named_scope(name):
        yield current_name_stack()


transform_name_stack = extend_name_stack


@contextmanager
def set_name_stack(name_stack: Any) -> Iterator[None]:
    """Other scopes for a `with` block."""
    before = state.scopes
    with named_scope(""):  # equations ask for names where there are scopes
        state.scopes = tuple(name_stack)
        try:
            yield
        finally:
            state.scopes = (*before, "")


def reset_name_stack() -> Any:
    """No scopes for a `with` block."""
    return set_name_stack(NameStack())


@contextmanager
def user_context(traceback: Any, *, name_stack: Any = None) -> Iterator[None]:
    """Equations of a `with` block are said to come from the place of a traceback handle; None: from where they are."""
    trace = state.trace
    if traceback is None:
        yield
        return
    trace.pin(traceback)
    try:
        yield
    finally:
        trace.pin(None)
