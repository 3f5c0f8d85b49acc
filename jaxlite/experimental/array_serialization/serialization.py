"""Checkpoints of arrays in files, written while the program goes on.

The base class needs nothing. The rest needs the package `tensorstore`, which is imported with the first name of it.
"""

from __future__ import annotations

import abc
import importlib
from collections.abc import Callable, Sequence
from typing import Any

_MANAGER = ("AsyncManager", "BarrierTimeoutError", "GlobalAsyncCheckpointManager", "get_tensorstore_spec", "is_remote_storage")
_STORES = {"TS_CONTEXT": "_TS_CONTEXT", "async_deserialize": "async_deserialize", "async_serialize": "async_serialize",
           "run_deserialization": "_run_deserialization", "run_serialization": "_run_serialization",
           "_LimitInFlightBytes": "_LimitInFlightBytes", "_DEFAULT_DRIVER": "_DEFAULT_BASE_DRIVER"}

__all__ = ["GlobalAsyncCheckpointManagerBase", *_MANAGER, *(name for name in _STORES if not name.startswith("_"))]
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


def __getattr__(name: str) -> Any:
    if name in _MANAGER:
        return getattr(importlib.import_module(f"{__package__}.manager"), name)
    if name in _STORES:
        return getattr(importlib.import_module(f"{__package__}.tensorstore_impl"), _STORES[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
