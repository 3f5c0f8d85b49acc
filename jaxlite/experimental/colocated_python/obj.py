"""Objects whose methods are colocated functions."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable
from typing import Any

from jaxlite.experimental.colocated_python.func import Specialization, make_callable

__all__ = ["wrap_class"]
__dir__ = lambda: __all__


def wrap_class(cls: type) -> type:
    """A class of the same methods; its objects make the real one when it is first needed."""

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        self._lock, self._found = threading.Lock(), None
        self._make = functools.partial(cls, *args, **kwargs)

    def found(self: Any) -> Any:
        with self._lock:
            if self._found is None:
                self._found = self._make()
        return self._found

    methods: dict[str, Any] = {"__init__": __init__, "__doc__": cls.__doc__, "__module__": cls.__module__}
    for name, function in inspect.getmembers(cls, inspect.isfunction):
        if name != "__init__":
            methods[name] = _method(name, function, found)
    return type(cls.__name__, (), methods)


def _method(name: str, function: Callable[..., Any], found: Callable[[Any], Any]) -> Any:
    def get(self: Any) -> Any:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            return getattr(found(self), name)(*args, **kwargs)

        del call.__wrapped__  # its signature has `self`
        return make_callable(call, Specialization())

    return property(get, doc=function.__doc__)
