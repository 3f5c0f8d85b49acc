"""Tracebacks without jaxlite's own frames.

Boundaries are the functions through which errors leave jaxlite: calls of jitted functions, stages, `make_jaxpr`, control
flow, eager numpy functions. They cost nothing until an exception is raised. The option `traceback_filtering` has these
values: "off" keeps all frames, "tracebackhide" marks jaxlite's frames for pytest and IPython, which skip them, all others
remove them. "quiet_remove_frames" also adds a note, as JAX does by default; "remove_frames" keeps the whole traceback, in the
exception's cause.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from opcode import opmap
from types import FrameType, TracebackType
from typing import Any, TypeVar

from jaxlite.core import config, source

_NOTE = ("--------------------\nThe frames of jaxlite itself are left out of the traceback. Set "
         "JAXLITE_TRACEBACK_FILTERING=off to see them.")

F = TypeVar("F", bound=Callable[..., Any])


class UnfilteredStackTrace(Exception):
    """Has the traceback of the exception that it is the cause of, with all frames."""

    kept = 0  # how many frames of its traceback the exception has itself


# In our own code these are most likely our own bugs, unless a statement raises them: whoever reports one needs all frames.
_BUGS = (AssertionError, AttributeError, KeyError)
_RAISE = opmap["RAISE_VARARGS"]


def hide_own_frames(error: BaseException) -> None:
    """Take jaxlite's own frames out of the tracebacks of an exception that is being handled, and of those that led
    to it. A bare `raise` afterwards adds none."""
    if isinstance(error, (TypeError, ValueError)):
        name_argument(error, sys._getframe(1))
    mode = config.traceback_filtering.value
    if mode == "off" or not isinstance(error, Exception):
        return
    caller: FrameType | None = sys._getframe(1)
    while caller is not None and source.is_own_file(caller.f_code.co_filename):
        caller.f_locals["__tracebackhide__"] = True  # they join the traceback later; pytest and IPython skip them
        caller = caller.f_back
    if mode == "remove_frames" and not _is_bug(error):
        error.__cause__ = _unfiltered(error)
    seen: set[int] = set()
    each: BaseException | None = error
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        if not _is_bug(each) and type(each) is not UnfilteredStackTrace:
            if mode == "tracebackhide":
                _mark(each.__traceback__)
            else:
                each.__traceback__ = filtered(each.__traceback__)
        each = each.__cause__ or each.__context__
    if mode == "quiet_remove_frames" and _NOTE not in getattr(error, "__notes__", ()):
        error.add_note(_NOTE)


config.hide_own_frames = hide_own_frames


# Compiled when there is an error to look at, not when jaxlite starts.
_BLAMED = (r"'([\w.]+)' object (?:cannot be interpreted|is not iterable|has no len)|, not '(\w+)'$"
           r"|^Argument .* of type <class '([\w.]+)'> is not a valid JAX type: expected"
           r"|^Error interpreting argument to \w+ as an abstract array\. The problematic value is of type <class '([\w.]+)'>"
           r"|hash an object of type <class '([\w.]+)'>"
           r"|^(Only integer scalar arrays)")


def name_argument(error: Exception, frame: FrameType | None) -> None:
    """Tell which argument an error is about that Python raised and that knows its type alone.

    It is the one of that type among the arguments of the function that the user called, the outermost of our frames here.
    """
    first, newline, rest = str(error).partition("\n")
    found = re.search(_BLAMED, first)
    if found is None or "(argument " in first or len(error.args) != 1:
        return
    innermost = error.__traceback__
    while innermost is not None and innermost.tb_next is not None:
        innermost = innermost.tb_next
    if innermost is None or not _is_own(innermost) or frame is None:
        return
    while frame.f_back is not None and source.is_own_file(frame.f_back.f_code.co_filename):
        frame = frame.f_back
    called, module, arguments, annotations = _call(frame)
    kind = next(filter(None, found.groups())).rpartition(".")[2]
    if kind == "Only integer scalar arrays":
        blamed = [name for name, value in arguments.items()
                  if hasattr(value, "dtype") and re.search("int|Axis", str(annotations.get(name)))]
    else:
        blamed = [name for name, value in arguments.items()
                  if kind in {type(each).__name__ for each in (value, *(value if isinstance(value, (tuple, list)) else ()))}]
    if len(blamed) != 1 or not first.startswith("Error") and called in first and blamed[0] in first:
        return
    (name,) = blamed
    value, position = arguments[name], list(arguments).index(name)
    is_value = "valid JAX type" in first and type(value).__name__ == kind
    if is_value and module.startswith("jaxlite.lax.") and not module.startswith("jaxlite.lax.control_flow"):
        first = (f"Error interpreting argument to {called} as a JAX value. The problematic value is of type {type(value)} "
                 f"and was passed to {called} at position {position}, as {name!r}.")
    elif is_value and first.startswith("Argument") and module.startswith(_ARRAY_FUNCTIONS):
        first = f"{called} requires ndarray or scalar arguments, got {type(value)} at position {position}, as {name!r}."
    elif not first.startswith("Error"):
        first = f"{first} (argument {name!r} of {called})"
    error.args = (f"{first}{newline}{rest}",)


# Whose functions say that they take arrays and scalars.
_ARRAY_FUNCTIONS = tuple(f"jaxlite.{each}." for each in ("numpy", "nn", "scipy", "random", "ops", "image"))


def _call(frame: FrameType) -> tuple[str, str, dict[str, Any], dict[str, Any]]:
    """What function of which module a frame is a call of, perhaps through a decorator of ours, with which arguments; their
    annotations.
    """
    values, code = frame.f_locals, frame.f_code
    fun = values.get("_inside", values.get("fun"))
    if ("_inside" in values or "fun" in code.co_freevars) and callable(fun):
        try:
            given = values.get("args", tuple(values[name] for name in code.co_varnames[:code.co_argcount]))
            bound = inspect.signature(fun).bind(*given, **values.get("kwargs", {}))
            return (getattr(fun, "__name__", "it"), getattr(fun, "__module__", ""), bound.arguments,
                    getattr(fun, "__annotations__", {}))
        except (TypeError, ValueError):
            return "it", "", {}, {}
    names = code.co_varnames[:code.co_argcount + code.co_kwonlyargcount]
    return code.co_name, frame.f_globals["__name__"], {name: values[name] for name in names if name in values}, {}


def _is_bug(error: BaseException) -> bool:
    innermost = error.__traceback__
    while innermost is not None and innermost.tb_next is not None:
        innermost = innermost.tb_next
    if innermost is None or type(error) not in _BUGS or not _is_own(innermost):
        return False
    return type(error) is AssertionError or innermost.tb_frame.f_code.co_code[innermost.tb_lasti] != _RAISE


def _is_own(traceback: TracebackType) -> bool:
    return source.is_own_file(traceback.tb_frame.f_code.co_filename)


def filtered(traceback: TracebackType | None) -> TracebackType | None:
    """A traceback of the user's frames alone."""
    kept = []
    while traceback is not None:
        if not source.is_hidden_file(traceback.tb_frame.f_code.co_filename):
            kept.append(traceback)
        traceback = traceback.tb_next
    for each in reversed(kept):
        traceback = TracebackType(traceback, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return traceback


def _unfiltered(error: Exception) -> UnfilteredStackTrace:
    """The cause with all frames: of an earlier boundary, to which the frames since are added, or a new one."""
    new, cause = list(_walk(error.__traceback__)), error.__cause__
    if type(cause) is UnfilteredStackTrace:
        new = new[:len(new) - cause.kept]
    else:
        first = UnfilteredStackTrace(
            f"{type(error).__name__}: {error}\n\nThe stack trace below excludes frames of jaxlite.\n"
            "The preceding is the original exception that occurred, unmodified.\n\n--------------------")
        first.__cause__, first.__context__ = cause, error.__context__
        first.__suppress_context__ = error.__suppress_context__
        cause = first
    whole = cause.__traceback__
    for each in reversed(new):
        whole = TracebackType(whole, each.tb_frame, each.tb_lasti, each.tb_lineno)
    cause.kept = sum(1 for _ in _walk(filtered(error.__traceback__)))
    return cause.with_traceback(whole)


def _walk(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def _mark(traceback: TracebackType | None) -> None:
    while traceback is not None:
        if source.is_hidden_file(traceback.tb_frame.f_code.co_filename):
            traceback.tb_frame.f_locals["__tracebackhide__"] = True
        traceback = traceback.tb_next


class _Signature(inspect.Signature):
    """The signature of a function, read when something of it is first asked for: few of ours ever are."""

    __slots__ = ("_of",)

    def __getattr__(self, name: str) -> Any:  # of slots that nothing was put in yet
        if name not in inspect.Signature.__slots__:
            raise AttributeError(name)
        read = inspect.signature(self._of)
        for slot in inspect.Signature.__slots__:
            setattr(self, slot, getattr(read, slot))
        return getattr(self, name)


def signature_of(fun: Callable[..., Any]) -> inspect.Signature:
    """The attribute `__signature__` of what wraps a function: `inspect.getfullargspec` does not look at `__wrapped__`."""
    made = _Signature.__new__(_Signature)
    made._of = fun  # type: ignore[attr-defined]
    return made


def boundary(fun: F) -> F:
    """Decorator: errors leave the function without jaxlite's own frames.

    What it gives has no free variables, as the functions of JAX that libraries intercept (qwix): these replace the code of a
    function, so that it is intercepted under all its names, but only of one that is no closure.
    """

    @functools.wraps(fun)
    def call(*args: Any, _inside: Callable[..., Any] = fun, **kwargs: Any) -> Any:
        try:
            return _inside(*args, **kwargs)
        except Exception as error:
            hide_own_frames(error)
            raise

    call.is_boundary = True  # type: ignore[attr-defined]
    call.__signature__ = signature_of(fun)  # type: ignore[attr-defined]
    return call  # type: ignore[return-value]
