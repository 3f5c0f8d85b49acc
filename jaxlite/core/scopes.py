"""Named scopes: names that operations carry, beside their source line, into the compiled program.

What runs in a scope is recorded as ever; only where an equation came from (`source.here`) says the names as well. They
come out in the locations of the StableHLO and, from there, in XLA's profiles and dumps as the beginning of `op_name`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from jaxlite.core import source
from jaxlite.core.source import Scoped
from jaxlite.core.tracing import state


class Words(str):
    """Frontend attributes of the operations in a scope. They stand among its names, and are not shown as one."""

    words: tuple[tuple[str, str], ...]

    @staticmethod
    def of(words: tuple[tuple[str, str], ...]) -> Words:
        made = Words(repr(words))
        made.words = words
        return made


def words_alone(names: tuple[str, ...]) -> tuple[str, ...]:
    """The frontend attributes among the names of scopes, without the names."""
    return tuple(each for each in names if type(each) is Words)


_lock = threading.Lock()
_open = 0  # scopes, of all threads


def _scoped_traceback() -> Any:
    traceback = source.current_traceback()
    return Scoped(traceback, state.scopes) if state.scopes and traceback is not None else traceback


def _count(change: int) -> None:
    """Equations ask for names only while somebody has scopes: most programs have none."""
    global _open
    with _lock:
        _open += change
        source.here = _scoped_traceback if _open else source.current_traceback


class named_scope:
    """A name for the operations of a `with` block or, as a decorator, of a function.

    It shows in lowered programs, in dumps and in profiles, and changes nothing else. Scopes nest: the names are joined by
    slashes. Gradients are named as what they are the gradients of; a function under `jit` keeps its own names alone,
    whoever calls it.

    Args:
      name: a string.

    >>> import jaxlite, jaxlite.numpy as jnp
    >>> def f(x):
    ...     with jaxlite.named_scope("angle"):
    ...         return jnp.sin(x)
    >>> "angle/sin" in jaxlite.jit(f).lower(1.0).as_text(debug_info=True)
    True
    """

    name: str

    def __init__(self, name: str):
        if not isinstance(name, str):
            raise TypeError(f"named_scope: name must be a string, got {name!r}")
        self.name = name

    def __enter__(self) -> named_scope:
        state.scopes += (self.name,)
        _count(1)
        return self

    def __exit__(self, *exc: Any) -> None:
        _count(-1)
        state.scopes = state.scopes[:-1]

    def __call__(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        @source.wraps(fun)
        def named(*args: Any, **kwargs: Any) -> Any:
            with self:
                return fun(*args, **kwargs)

        return named


def named_call(fun: Callable[..., Any], *, name: str | None = None) -> Callable[..., Any]:
    """A function whose operations are in a `named_scope`, by default of the function's name."""
    return named_scope(source.function_name(fun) if name is None else name)(fun)
