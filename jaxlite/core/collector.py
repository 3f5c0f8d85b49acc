"""Fewer garbage collections while many long-lived objects are made: in an import, a trace, a lowering.

Python's collector runs after a number of allocations, and from time to time visits all objects. Nearly all objects that
tracing makes stay alive, so these collections find nothing, and their cost grows with the program: tracing would not be
linear.
"""

from __future__ import annotations

import gc
import threading
from typing import Any

_SELDOM = (100_000, 50, 1_000)  # new objects, and collections of the young per one of the middle-aged and of all
_FEW = 1_000  # Python freezes some objects of its own
_lock = threading.Lock()


class _SeldomCollecting:
    """A context manager. Inside, and in all threads, collections are rare. What was made then counts as old."""

    def __init__(self, many: int) -> None:
        self._many = many  # new objects that a search is worth avoiding for
        self._users = 0
        self._before = gc.get_threshold()

    def __enter__(self) -> None:
        with _lock:
            self._users += 1
            if self._users == 1:
                self._before = gc.get_threshold()
                if self._before[0]:  # else the user has switched collections off in this way
                    gc.set_threshold(*_SELDOM)

    def __exit__(self, *error: Any) -> None:
        with _lock:
            self._users -= 1
            if not self._users:
                if gc.get_threshold() == _SELDOM:
                    gc.set_threshold(*self._before)
                if gc.get_count()[0] > self._many:
                    count_as_old()


def count_as_old() -> None:
    """Move all objects to the oldest generation, which takes no time."""
    if gc.isenabled() and gc.get_freeze_count() < _FEW:  # else it would thaw what the user has frozen
        gc.freeze()
        gc.unfreeze()


seldom_collecting = _SeldomCollecting(20_000)
importing = _SeldomCollecting(1_000)  # modules are not dropped again
