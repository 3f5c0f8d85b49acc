"""The interface of asynchronous checkpoint managers: a base class for libraries."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["GlobalAsyncCheckpointManagerBase"]
__dir__ = lambda: __all__


class GlobalAsyncCheckpointManagerBase(abc.ABC):
    """Writes arrays of several processes while the program goes on."""

    @abc.abstractmethod
    def check_for_errors(self) -> None:
        """Raise what writing in the background has raised since the last check."""

    @abc.abstractmethod
    def wait_until_finished(self) -> None:
        """Return when everything is written; raise what went wrong."""

    @abc.abstractmethod
    def serialize(self, arrays: Sequence[Any], tensorstore_specs: Sequence[dict[str, Any]], *,
                  on_commit_callback: Callable[[], None]) -> None:
        """Start to write arrays where the specs say, and call back when all of them are there."""

    @abc.abstractmethod
    def deserialize(self, shardings: Sequence[Any], tensorstore_specs: Sequence[dict[str, Any]],
                    global_shapes: Sequence[Any] | None = None, dtypes: Sequence[Any] | None = None) -> Sequence[Any]:
        """Read arrays, laid out as the shardings say, cut or filled up to the shapes, in these dtypes."""
