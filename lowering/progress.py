"""Progress lines: a line on the terminal during long compiles.

`Stage` surrounds each stage of a compile and costs next to nothing. When a stage begins, a watcher thread starts; it checks
again after two seconds, and ends when no stage is running. A stage that takes longer gets a line on stderr with its
function and the elapsed time, which is removed when the stage ends.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable

PATIENCE = 2.0  # seconds without a sign
_REDRAW = 0.25
_ERASE = "\r\x1b[K"  # go to the line's start and clear it

_wanted: Callable[[], bool | None] = lambda: None
# By thread. Weak: an interrupt may come before `__exit__` does its work, and then the stage must still be gone.
_active: weakref.WeakValueDictionary[int, Stage] = weakref.WeakValueDictionary()
_lock = threading.Lock()  # held to draw, to erase and to start or end the watcher
_watcher: threading.Thread | None = None
_line_stands = False


def configure(wanted: Callable[[], bool | None]) -> None:
    """Say where the wish comes from: `wanted` is True or False, or None for lines on a terminal alone."""
    global _wanted
    _wanted = wanted


class Stage:
    """A context manager around a stage of a compile: `what` ("tracing") of `name`, after `before` seconds of others.

    Inside another one of the same thread it does nothing.
    """

    __slots__ = ("name", "what", "start", "drawn", "__weakref__")

    def __init__(self, name: str, what: str, before: float = 0.0):
        self.name, self.what, self.start, self.drawn = name, what, time.monotonic() - before, False

    def __enter__(self) -> None:
        ident = threading.get_ident()
        if ident not in _active and _is_wanted():
            _active[ident] = self
            if _watcher is None or not _watcher.is_alive():
                _start_watcher()

    def __exit__(self, *error: object) -> None:
        ident = threading.get_ident()
        if _active.get(ident) is self:
            del _active[ident]
            if self.drawn:
                with _lock:
                    _erase()


def _is_wanted() -> bool:
    wanted = _wanted()
    if wanted is None:
        try:
            return sys.stderr.isatty()
        except (AttributeError, ValueError):  # there is none, or it is closed
            return False
    return wanted


def _start_watcher() -> None:
    global _watcher
    with _lock:
        if _watcher is None or not _watcher.is_alive():
            _watcher = threading.Thread(target=_watch, name="jaxlite-progress", daemon=True)
            with contextlib.suppress(RuntimeError):  # no more threads, or the interpreter ends: no line then
                _watcher.start()


def _watch() -> None:
    wait: float | None = PATIENCE
    while wait is not None:
        time.sleep(wait)
        with _lock:
            wait = _look()


def _look() -> float | None:
    """Draw the line of the oldest stage; gives the seconds until the next look, or None if nothing is under way."""
    global _watcher
    _watcher = None  # before the look: who begins a stage after it finds no watcher and starts one
    stages = [stage for reference in _active.valuerefs() if (stage := reference()) is not None]
    if not stages:
        _erase()  # the line of a stage that was interrupted
        return None
    _watcher = threading.current_thread()
    oldest = min(stages, key=lambda stage: stage.start)
    seconds = time.monotonic() - oldest.start
    if seconds < PATIENCE:
        return PATIENCE - seconds
    oldest.drawn = True  # before the look: who ends after it waits for the line and erases it
    if any(reference() is oldest for reference in _active.valuerefs()):
        others = f" (and {len(stages) - 1} more)" if len(stages) > 1 else ""
        _draw(f"jaxlite: {oldest.what} {oldest.name}, {seconds:.1f} s{others}")
    return _REDRAW


def _draw(line: str) -> None:
    global _line_stands
    _write(_ERASE + line[:_columns() - 1])
    _line_stands = True


def _erase() -> None:
    global _line_stands
    if _line_stands:  # else it would be the user's own line
        _write(_ERASE)
        _line_stands = False


def _write(text: str) -> None:
    with contextlib.suppress(OSError, ValueError, AttributeError):  # no terminal
        sys.stderr.write(text)
        sys.stderr.flush()


def _columns() -> int:
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except (OSError, ValueError, AttributeError):
        return 80


def _after_fork() -> None:
    """The child has no watcher, and a lock stays locked if the watcher held it."""
    global _lock, _watcher, _line_stands
    _lock, _watcher, _line_stands = threading.Lock(), None, False
    _active.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
