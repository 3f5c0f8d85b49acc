"""Flatten functions of user-defined containers that raise exceptions.

jaxlib counts its depth in a tree with Python's recursion counter, and does not decrement it if a flatten function raises:
after a few hundred failures, everything raises RecursionError. Therefore these functions never raise inside jaxlib. Their
exception is stored, jaxlib gets a node without children, and the caller of jaxlib raises the exception afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import Any

pending: dict[int, _Failure] = {}  # by thread: failures that have not been raised yet


class _Failure:
    """The metadata of a node that could not be flattened: equal to nothing else, so no cached call is for it."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException):
        self.error = error


def guarded(flatten: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A flatten function that does not raise."""

    def call(x: Any) -> Any:
        try:
            found = flatten(x)
            if type(found) is tuple and len(found) == 2 and type(found[0]) in (tuple, list):
                return found
            expected = "The to_iterable function for a custom PyTree node should return a (children, aux_data) tuple"
            if not isinstance(found, (tuple, list)) or len(found) != 2:
                raise ValueError(f"{expected}, got {found!r}")
            children, metadata = found
            try:
                children = iter(children)
            except TypeError:
                raise ValueError(f"{expected} where 'children' is iterable, got {found!r}") from None
            return tuple(children), metadata
        except BaseException as error:
            failure = pending[get_ident()] = _Failure(error)
            return (), failure

    return call


def check(treedef: Any = None) -> None:
    """Raise what a flatten function raised in this thread, where `treedef` (if given) has a node of it.

    An interrupt is raised in any case: it is not of the container, which C++ may have flattened once before.
    Ask only if there is something `pending`.
    """
    failure = pending.pop(get_ident(), None)
    if failure is not None and (treedef is None or not isinstance(failure.error, Exception) or _holds(treedef, failure)):
        error = failure.error
        failure.error = RuntimeError("this container could not be flattened")  # no cycle through its traceback
        raise error


def _holds(treedef: Any, failure: _Failure) -> bool:
    data = treedef.node_data()
    return (data is not None and data[1] is failure) or any(_holds(child, failure) for child in treedef.children())
