"""Guards: their context managers, and their options in C++.

`transfer_guard` and its three directions restrict copies between host and devices; `thread_guard` restricts programs of
several processes to one thread. `dispatch` checks `no_tracing` and `no_execution` at the start of traces and calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from jaxlite.core import config
from lowering import xla

_DIRECTIONS = ("host_to_device", "device_to_device", "device_to_host")


def _levels(names: tuple[str, ...], level: Any) -> dict[str, Any]:
    return dict.fromkeys(names, xla.transfer_guard_level(level))


@contextmanager
def _guarded(names: tuple[str, ...], level: str | None) -> Iterator[None]:
    if level is not None and level not in config.GUARD_LEVELS:
        raise ValueError(f"new enum value must be None or in {list(config.GUARD_LEVELS)}, got {level} of type {type(level)}.")
    before = xla.set_transfer_guards(_levels(names, level))
    try:
        yield
    finally:
        xla.set_transfer_guards(before)


def transfer_guard(new_val: str | None) -> Any:
    """Set inside a `with` block, in this thread, what copies between host and devices, and between devices, do.

    Args:
      new_val: "allow"; "log" or "disallow" for those that were not asked for; "log_explicit" or "disallow_explicit" for
        those of `device_put` and `device_get` as well. None: as for the whole process.

    On a CPU, reading an array copies nothing, so it is allowed.

    >>> import jaxlite, jaxlite.numpy as jnp, numpy as np
    >>> double = jaxlite.jit(lambda x: 2 * x)
    >>> x = jaxlite.device_put(np.arange(3))
    >>> with jaxlite.transfer_guard("disallow"):
    ...     y = double(jaxlite.device_put(np.arange(3)))
    ...     double(np.arange(3))
    Traceback (most recent call last):
    ...
    jaxlib._jax.JaxRuntimeError: INVALID_ARGUMENT: Disallowed host-to-device transfer: ...
    """
    return _guarded(_DIRECTIONS, new_val)


def transfer_guard_host_to_device(new_val: str | None) -> Any:
    """`transfer_guard` for copies from the host to a device."""
    return _guarded(_DIRECTIONS[:1], new_val)


def transfer_guard_device_to_device(new_val: str | None) -> Any:
    """`transfer_guard` for copies between devices."""
    return _guarded(_DIRECTIONS[1:2], new_val)


def transfer_guard_device_to_host(new_val: str | None) -> Any:
    """`transfer_guard` for copies from a device to the host."""
    return _guarded(_DIRECTIONS[2:], new_val)


def array_garbage_collection_guard(new_val: str) -> Any:
    """Say inside a `with` block, in this thread, what happens when an array is freed by the search for cycles: "allow", "log"
    (where it was made), or "fatal" (which ends the process)."""
    if new_val not in ("allow", "log", "fatal"):
        raise ValueError(f"new enum value must be None or in ['allow', 'log', 'fatal'], got {new_val} of type {type(new_val)}.")
    return _collected(new_val)


@contextmanager
def _collected(level: str) -> Iterator[None]:
    before = xla.set_collection_guard(level)
    try:
        yield
    finally:
        xla.set_collection_guard(before)


@contextmanager
def thread_guard(new_val: bool = True) -> Iterator[None]:
    """Inside a `with` block, only this thread may run programs of several processes; in another thread they raise an error."""
    xla.set_thread_guard(bool(new_val))
    try:
        yield
    finally:
        xla.set_thread_guard(False)
