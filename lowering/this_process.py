"""Changes to this process that jaxlib's import, its first calls and its CPU client want: modules that stand in for others, and
the size of XLA's pool of threads. docs/architecture.md lists them with their reasons; memory is in `host_memory.py`.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import threading
import types
from collections.abc import Iterator
from typing import Any

_THREADS, _PROGRAMS = "NPROC", 2  # XLA's variable for the size of its pools; programs on a device that may wait at a time

# --- modules that stand in for others ----------------------------------------------------------------


@contextlib.contextmanager
def loaded_on_use(*names: str, **attributes: Any) -> Iterator[None]:
    """Modules that what is imported meanwhile names but does not need: they load when something is asked of them.

    `attributes` are what they answer by themselves.
    """

    def stand_in(name: str) -> types.ModuleType:
        module = types.ModuleType(name)
        vars(module).update(attributes)

        def attribute(wanted: str) -> Any:
            withdraw(module)
            return getattr(importlib.import_module(name), wanted)

        module.__getattr__ = attribute  # type: ignore[method-assign]
        return module

    def withdraw(module: types.ModuleType) -> None:
        if sys.modules.get(module.__name__) is module:
            del sys.modules[module.__name__]

    made = [stand_in(name) for name in names if name not in sys.modules]
    sys.modules.update({module.__name__: module for module in made})
    try:
        yield
    finally:
        for module in made:
            withdraw(module)


class LateLogger:
    """A logger that loads the standard library's `logging` when it has a message, or a handler may exist."""

    def __init__(self, name: str):
        self._name = name

    def __getattr__(self, wanted: str) -> Any:
        if wanted == "debug" and "logging" not in sys.modules:
            return lambda *args, **kwargs: None
        return getattr(importlib.import_module("logging").getLogger(self._name), wanted)


@contextlib.contextmanager
def instead_of_jax(modules: dict[str, dict[str, Any]]) -> Iterator[None]:
    """For the time of a `with` block, this thread finds these modules, with these attributes, under jax's names.

    Another thread that imports jax meanwhile may get one of them. It waits for the end of the block when it first asks it for
    something, and gets that of the real module.
    """
    owner, done = threading.get_ident(), threading.Event()

    def stand_in(name: str, attributes: dict[str, Any]) -> types.ModuleType:
        module = types.ModuleType(name)

        def attribute(wanted: str) -> Any:
            if threading.get_ident() == owner and not done.is_set():
                try:
                    return attributes[wanted]
                except KeyError:
                    raise AttributeError(wanted) from None
            done.wait()
            return getattr(importlib.import_module(name), wanted)

        module.__getattr__ = attribute  # type: ignore[method-assign]
        return module

    saved = {name: sys.modules.get(name) for name in modules}
    sys.modules.update({name: stand_in(name, attributes) for name, attributes in modules.items()})
    try:
        yield
    finally:
        for name, module in saved.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module
        done.set()


# --- threads -----------------------------------------------------------------------------------------


def forced_devices() -> int:
    """The number of the CPU's devices by XLA's flags; 0 if they do not say."""
    _, found, rest = os.environ.get("XLA_FLAGS", "").rpartition("--xla_force_host_platform_device_count=")
    count = rest.split()[:1]
    return int(count[0]) if found and count and count[0].isdigit() else 0


@contextlib.contextmanager
def more_threads(devices: int) -> Iterator[None]:
    """Within the context, a client of several devices starts with threads for several programs on each, if the user does not
    say how many threads it has."""
    if devices < 2 or _THREADS in os.environ:
        yield
        return
    os.environ[_THREADS] = str(max(_PROGRAMS * devices, os.cpu_count() or 1))
    try:
        yield
    finally:
        del os.environ[_THREADS]
