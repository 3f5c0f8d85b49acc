"""Shortcuts: from a jaxpr to its executable in the persistent cache, without lowering.

The key of an executable is a hash of the module, so a process would have to lower each program just to find its executable.
A shortcut is a small entry under a hash of the jaxpr's identity (`lowering.cache.identity`) and of everything else that
lowering and compiling depend on, including jaxlite's source files. It has the key of the executable, and what the caller
needs to know about the module: which inputs are its parameters, and which of them it may overwrite.

A shortcut is written after an ordinary compile. If it does not lead to a loaded executable, the program is lowered as
usual. There are no shortcuts for programs with custom calls, because lowering registers their libraries, nor for programs
for which lowering gives a warning.
"""

from __future__ import annotations

import functools
import marshal
import os
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import lowering
from lowering import xla
from lowering.cache import ahead, entries, keys
from lowering.cache.identity import PLAIN_MARSHAL, identity
from lowering.executable import compile_options

_settings: dict[str, Callable[[], Any]] = {"folders": lambda: ()}


def configure(folders: Callable[[], tuple[str, ...]]) -> None:
    """Say which folders hold sources that decide how a jaxpr is lowered, beside those of this package."""
    _settings["folders"] = folders


class Found(NamedTuple):
    """An executable at the end of a shortcut, with the attributes of a `Lowered` that its caller needs."""

    loaded: Any
    load_seconds: float
    name: str
    kept: list[bool]
    donated: list[int]
    key: bytes = b""  # of the executable in the cache
    seconds: float = 0.0  # spent on lowering
    host_functions: tuple[()] = ()
    ordered: bool = False
    sets_layouts: bool = False


class Shortcut:
    """The place of one program's shortcut, whether there is one or not.

    Args: its key; the program's name; the device and the compile options by name.
    """

    __slots__ = ("_key", "_name", "_device", "_overrides")

    def __init__(self, key: bytes, name: str, device: Any, overrides: dict[str, Any] | None):
        self._key, self._name, self._device, self._overrides = key, name, device, overrides

    def follow(self) -> Found | None:
        """The executable that it leads to, loaded, if not here then ahead."""
        start, listed = time.perf_counter(), self._list()
        found = None
        if listed is not None:
            listed.note(self._key)
            found = listed.take(self._key)
        if found is None:
            found = self.load()
        if found is not None and listed is not None:
            listed.note(self._key, found.key)
        return found and found._replace(load_seconds=time.perf_counter() - start, name=self._name)

    def _list(self) -> ahead.List | None:
        """The list of what is loaded ahead, if this can be on it."""
        listed = ahead.list_of_process()
        return None if listed is None or self._device is not listed.device or self._overrides else listed

    def load(self) -> Found | None:
        """The executable, loaded now."""
        content = entries.folder("shortcuts").load(self._key)
        if content is None:
            return None
        key, kept, donated, has_barriers, flags = marshal.loads(content)
        options = compile_options(self._device, self._overrides, has_barriers, flags)
        loaded = entries.load(key, self._device, options)
        return None if loaded is None else Found(loaded, 0.0, self._name, kept, donated, key)

    def lay(self, key: keys.Key, lowered: Any) -> None:
        """Lead to the executable with this key, which was compiled from a `Lowered`."""
        if not lowered.unusable and not key.has_custom_calls:
            content = marshal.dumps((key.digest, lowered.kept, lowered.donated, bool(lowered.barriers), lowered.flags))
            entries.folder("shortcuts").store(self._key, content, {"function": self._name}, entries.limit() // 16)
            listed = self._list()
            if listed is not None:
                listed.note(self._key, key.digest)


def load_ahead(client: Any) -> None:
    """Begin to load what an earlier process with the same command used on the first device of a client."""
    listed = ahead.list_of_process()
    if listed is None or listed.device is not None or client.device_count() > client.local_device_count():
        return
    device = client.local_devices()[0]
    surroundings = keys.surroundings_of(device, compile_options(device, None), {})
    if surroundings is not None:
        listed.start(device, keys.digest(*surroundings), lambda key: Shortcut(key, "", device, None).load())


def shortcut(jaxpr: Any, name: str, device: Any, overrides: dict[str, Any] | None, *wishes: Any) -> Shortcut | None:
    """The shortcut of a program past `lower` and `compile_lowered`; None if it can have none, or the cache is off.

    Args: `overrides` compile options by name; `wishes` what else the module depends on, with a complete `repr`:
    the arguments of `lower` and `Lowered.tuned`, and the state of options.
    """
    if type(device) is xla.Device:
        load_ahead(device.client)
    surroundings = keys.surroundings_of(device, compile_options(device, overrides), overrides or {})
    sources = None if surroundings is None else _sources(_settings["folders"]())
    program = None if sources is None else identity(jaxpr)
    if surroundings is None or sources is None or program is None:
        return None
    return Shortcut(keys.digest(program, repr((name, wishes)).encode(), sources, *surroundings), name, device, overrides)


def know_sources() -> None:
    """Look at the source files now. This process does so once."""
    _sources(_settings["folders"]())


@functools.cache
def _sources(folders: tuple[str, ...]) -> bytes | None:
    """A hash of the source files; None if they are not files, or not those that this process has imported.

    To read them all takes longer than most programs take to lower, so the hash is kept in the cache, under what the file system
    says of each. The time of its last change is part of that: unlike the time of modification, nobody sets it.
    """
    try:
        files = [each for folder in (os.path.dirname(os.path.dirname(__file__)), *folders) for each in _files(folder)]
        if any(changed > lowering.IMPORTED - _CLOCK for *_, changed in files):
            return None
        kept = entries.folder("shortcuts")
        key = keys.digest(b"sources", marshal.dumps(files, PLAIN_MARSHAL))
        found = kept.load(key)
        if found is None:
            found = keys.digest(*[part for path, *_ in files for part in (os.path.basename(path).encode(), _content(path))])
            kept.store(key, found, {"function": "the sources of jaxlite"}, entries.limit() // 16)
        return found
    except OSError:
        return None


_CLOCK = 20_000_000  # nanoseconds that the file system's clock may be behind


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _files(folder: str) -> Iterator[tuple[str, int, int, int, int]]:
    with os.scandir(folder) as found:
        for entry in sorted(found, key=lambda each: each.name):
            if entry.name.endswith(".py"):
                status = entry.stat()
                yield entry.path, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
            elif "." not in entry.name and entry.name != "__pycache__" and entry.is_dir():
                yield from _files(entry.path)
