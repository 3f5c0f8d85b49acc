"""Values of a user's that the programs of a call may depend on: `make_user_context`."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lowering import xla

_numbers = itertools.count()


class UserContext:
    """A value in force in a thread, which is part of the signature of every call: `with context(value): ...`."""

    __slots__ = ("_state",)

    def __init__(self, default_value: Any):
        self._state = xla.Config(f"user_context_{next(_numbers)}", default_value, include_in_jit_key=True,
                                 include_in_trace_context=True)

    @property
    def value(self) -> Any:
        """The value in force in this thread."""
        return self._state.value

    @contextmanager
    def __call__(self, value: Any) -> Iterator[None]:
        """Have another value inside a `with` block. Raises: TypeError if it is not hashable."""
        hash(value)
        previous = self._state.swap_local(value)
        try:
            yield
        finally:
            self._state.set_local(previous)


def make_user_context(default_value: Any = None) -> UserContext:
    """A context value that jitted functions may read at tracing: calls with another value are traced again.

    Args: `default_value` the value outside all blocks; hashable, as the others.

    >>> import jaxlite
    >>> scale = make_user_context(1.0)
    >>> f = jaxlite.jit(lambda x: x * scale.value)
    >>> with scale(3.0):
    ...     inside = f(2.0)
    >>> print(f(2.0), inside)
    2.0 6.0
    """
    hash(default_value)
    return UserContext(default_value)
