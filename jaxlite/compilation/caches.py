"""Caches that belong to a function and end with it, and the one way to empty all caches of a process."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from jaxlite.core import sharing
from jaxlite.core.jaxpr import forget_derived
from lowering import xla

Made = TypeVar("Made")


class PerFunction(Generic[Made]):
    """A dict for each function, which dies with the function."""

    __slots__ = ("_dicts",)

    def __init__(self) -> None:
        self._dicts: weakref.WeakKeyDictionary[Any, dict[Any, Made]] = weakref.WeakKeyDictionary()

    def of(self, fun: Callable[..., Any]) -> dict[Any, Made]:
        """The dict of a function; a temporary one if the function is unhashable, or cannot be referenced weakly."""
        try:
            found = self._dicts.get(fun)
            return self._dicts.setdefault(fun, {}) if found is None else found
        except TypeError:
            return {}

    def clear(self) -> None:
        """Empty every dict, also for those who hold one."""
        for reference in self._dicts.keyrefs():  # a list made at once: other threads may be adding theirs
            fun = reference()
            if fun is not None:
                self.of(fun).clear()


def clear_caches() -> None:
    """Clear all caches of traced and compiled programs; the next calls trace and compile again."""
    xla.PjitFunctionCache.clear_all()
    for hook in clear_hooks:
        hook()


clear_hooks: list[Callable[[], None]] = [forget_derived, sharing.forget]
