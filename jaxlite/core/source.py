"""Source lines: which line of the user's own code an equation or an error came from.

A C++ traceback handle is captured when an equation is made (about 0.1 us); the frames are decoded only
when something prints them.
"""

from __future__ import annotations

import functools
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NamedTuple

from lowering import xla

current_traceback = xla.Traceback.get_traceback
here: Callable[[], Any] = current_traceback  # where an equation comes from: with the names of scopes, where there are any

_OWN_FOLDERS = tuple(
    os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), package) + os.sep
    for package in ("jaxlite", "lowering")
)


class Frame(NamedTuple):
    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} ({self.function})"


def is_own_file(filename: str) -> bool:
    """Whether a frame of this file is ours, and so hidden from users."""
    return filename.startswith(_OWN_FOLDERS) or filename.startswith("<frozen")


excluded: list[str] = []


def register_exclusion(path: str) -> None:
    """Count the frames of a library's files, by the beginning of their path, among those that users do not want to see."""
    if path not in excluded:
        excluded.append(path)


def is_hidden_file(filename: str) -> bool:
    """Whether a frame of this file is hidden: ours, or of a library that asked for it."""
    return is_own_file(filename) or filename.startswith(tuple(excluded))


def include_frame(frame: FrameType) -> bool:
    """Whether a frame of the Python stack is one that users want to see."""
    return not is_hidden_file(frame.f_code.co_filename)


def user_frames(traceback: Any) -> Iterator[Frame]:
    """The frames of a traceback handle that are not jaxlite's own, innermost first."""
    if traceback is None:
        return
    for frame in traceback.frames:
        if not is_hidden_file(frame.file_name) and os.path.basename(frame.file_name) != "functools.py":
            yield Frame(frame.file_name, frame.line_num, frame.function_name)


def user_frame(traceback: Any) -> Frame | None:
    """The innermost frame of the user's code, or None."""
    return next(user_frames(traceback), None)


def summarize(traceback: Any) -> str:
    """`file:line (function)` of the user's innermost frame."""
    frame = user_frame(traceback)
    return "an unknown line" if frame is None else str(frame)


def summarize_place(traceback: Any) -> str:
    """`file:line:column (function)` of the user's innermost frame."""
    frame = user_frame(traceback)
    handle = getattr(traceback, "traceback", traceback)  # without the names of scopes
    if frame is not None and hasattr(handle, "raw_frames"):
        for code, address in zip(*handle.raw_frames()):
            if (code.co_filename, code.co_name) == (frame.file, frame.function.rpartition(".")[2]):
                line, column, *_ = handle.code_addr2location(code, address)
                if line == frame.line and column >= 0:
                    return f"{frame.file}:{line}:{column} ({frame.function})"
    return summarize(traceback)


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn of what the innermost frame outside jaxlite does."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and is_own_file(frame.f_code.co_filename):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def function_location(fun: Callable[..., Any]) -> str:
    """`name at file:line` of a Python function; `name` where the line is unknown or our own."""
    while hasattr(fun, "__wrapped__"):
        fun = fun.__wrapped__
    inner = getattr(fun, "func", fun)
    inner = getattr(inner, "__func__", inner)
    name = function_name(inner)
    code = getattr(inner, "__code__", None)
    if code is None or is_own_file(code.co_filename):
        return name
    return f"{name} at {code.co_filename}:{code.co_firstlineno}"


def wraps(fun: Callable[..., Any]) -> Callable[[Any], Any]:
    """`functools.wraps`, also for callables whose name is not a string (such names are left out), and for a wrapper that has a
    signature of its own, which `inspect` would prefer."""
    is_named = isinstance(getattr(fun, "__name__", ""), str) and isinstance(getattr(fun, "__qualname__", ""), str)
    names = functools.WRAPPER_ASSIGNMENTS if is_named else ("__module__", "__doc__")

    def decorate(wrapper: Any) -> Any:
        vars(wrapper).pop("__signature__", None)
        return functools.update_wrapper(wrapper, fun, names)

    return decorate


def function_name(fun: Callable[..., Any]) -> str:
    """A short name for a callable: `__name__`, through partial objects and instances."""
    name = getattr(fun, "__name__", None)
    if name is not None:
        return name if isinstance(name, str) else str(name)
    if hasattr(fun, "func"):
        return function_name(fun.func)
    return type(fun).__name__


class NameStack(tuple[str, ...]):
    """The names of the scopes around an equation, outermost first."""

    __slots__ = ()

    def extend(self, name: str) -> NameStack:
        """The stack with one more scope inside."""
        return NameStack((*self, name))

    def transform(self, name: str) -> NameStack:
        """The stack with the name of a transformation inside."""
        return self.extend(name)

    def __add__(self, other: Any) -> NameStack:
        return NameStack((*self, *other))

    def __str__(self) -> str:
        return "/".join(self)


class Scoped:
    """A traceback handle and the names of the scopes around it, outermost first."""

    __slots__ = ("traceback", "names")

    def __init__(self, traceback: Any, names: tuple[str, ...]):
        self.traceback, self.names = traceback, names

    @property
    def frames(self) -> Any:
        return self.traceback.frames

    @property
    def words(self) -> dict[str, str]:
        """The frontend attributes that stand among the names."""
        return {name: text for each in self.names if hasattr(each, "words") for name, text in each.words}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Scoped) and (self.traceback, self.names) == (other.traceback, other.names)

    def __hash__(self) -> int:
        return hash((self.traceback, self.names))


class SourceInfo(NamedTuple):
    """Where an equation comes from: a traceback handle, and the scopes around."""

    traceback: Any
    name_stack: NameStack

    @staticmethod
    def of(traceback: Any) -> SourceInfo:
        """Of an equation's `traceback`, in which the names of scopes may be."""
        names = getattr(traceback, "names", ())
        shown = NameStack(each for each in names if not hasattr(each, "words"))
        return SourceInfo(getattr(traceback, "traceback", traceback), shown)

    def handle(self) -> Any:
        """What `of` was given: the traceback, with the names if there are some."""
        return Scoped(self.traceback, tuple(self.name_stack)) if self.name_stack else self.traceback
