"""Executables that are loaded before a program asks for them.

XLA loads an executable without any Python, which may take longer than the trace. Which executables a process needs is known
only when it has traced its programs. But the same command mostly needs the same ones again, so a process leaves a list of what
it used (`List`, an entry of its own kind in the cache), and the next one loads what is on the list, the largest first, in a
thread beside its traces.

A program gets what it would have got without the list, which has keys of `lowering.cache.shortcuts`: a program's own key leads
to what was loaded for it. The first program whose key is not on the list ends it, for the command does something else this
time, and what was loaded in vain is dropped.

There is no list for a command that says nothing, such as an interactive session, and none where a thread could only take turns.
"""

from __future__ import annotations

import atexit
import marshal
import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

from lowering.cache import entries, keys

_MOST = 64  # keys on a list
_SMALL = 10_000  # bytes of an executable that loads as fast as threads change
_LARGE = 100_000  # of one for which the list is written at once: long programs may be killed


class List:
    """What this process used, and what an earlier one with the same command did.

    Attributes: `device`, for which executables are loaded, once it is known.
    """

    def __init__(self, key: bytes):
        self.device: Any = None
        self._key = key
        self._folder, self._executables = entries.folder("starts"), entries.folder()
        content = self._folder.load(key)
        # A hash of what executables depend on beside their programs, and for each key the size of its executable, or 0.
        self._earlier: tuple[bytes, dict[bytes, int]] = (b"", {}) if content is None else marshal.loads(content)
        self._surroundings = b""
        self._used: dict[bytes, bytes] = {}  # for each key that of its executable, or nothing
        self._change = threading.Condition()
        self._waiting: set[bytes] = set()
        self._loading: bytes | None = None
        self._loaded: dict[bytes, Any] = {}

    @property
    def has_work(self) -> bool:
        """Whether there is something to load."""
        return any(size >= _SMALL for size in self._earlier[1].values())

    def start(self, device: Any, surroundings: bytes, load: Callable[[bytes], Any]) -> None:
        """Begin to load for a device, if all that executables depend on is as it was."""
        self.device, self._surroundings = device, surroundings
        if self.has_work and self._earlier[0] == surroundings:
            order = [key for key, size in self._earlier[1].items() if size >= _SMALL]
            self._waiting = set(order)
            # No daemon: Python would end it inside XLA, which aborts the process.
            threading.Thread(target=self._load_all, args=(order, load), name="jaxlite-ahead", daemon=False).start()

    def _load_all(self, order: Sequence[bytes], load: Callable[[bytes], Any]) -> None:
        main = threading.main_thread()
        for key in order:
            with self._change:
                if key not in self._waiting or not main.is_alive():  # at the end of the process
                    continue
                self._waiting.remove(key)
                self._loading = key
            found = None
            try:
                found = load(key)
            finally:
                with self._change:
                    if self._loading == key:
                        self._loaded[key] = found
                    self._loading = None
                    self._change.notify_all()

    def take(self, key: bytes) -> Any | None:
        """What was loaded for a program with this key; None if the caller has to load it."""
        known = self._earlier[1]
        with self._change:
            if key in self._waiting:
                self._waiting.remove(key)
                return None
            while self._loading == key:
                self._change.wait()
            if key not in known and len(known) < _MOST:
                self._waiting.clear()
                self._loaded.clear()
                self._loading = None
            return self._loaded.pop(key, None)

    def note(self, key: bytes, executable: bytes = b"") -> None:
        """A program asked for a key, and it leads to that of an executable, or to nothing."""
        if key in self._used or len(self._used) < _MOST:
            self._used[key] = executable
            if executable and key not in self._earlier[1] and self._executables.size_of(executable) >= _LARGE:
                self.write()

    def write(self) -> None:
        """Leave the list for the next process, if it differs from that of the last."""
        used = self._used.copy()
        surroundings, earlier = self._earlier
        if self.device is not None and used and (surroundings != self._surroundings or earlier.keys() != used.keys()):
            sizes = {key: self._executables.size_of(executable) if executable else 0 for key, executable in used.items()}
            found = self._surroundings, dict(sorted(sizes.items(), key=lambda item: -item[1]))
            self._folder.store(self._key, marshal.dumps(found), {"function": "what a command used"}, entries.limit() // 64)


_list: List | None = None
_is_known = False


def list_of_process() -> List | None:
    """The list of this process, which is read when it is first asked for; None if it has none."""
    global _list, _is_known
    if not _is_known:
        _is_known = True
        key = _command()
        if key is not None:
            _list = List(key)
            atexit.register(_list.write)
    return _list


def _command() -> bytes | None:
    """A hash of the command, its folder, and its settings of JAX and XLA; None if there is to be no list."""
    words = sys.orig_argv
    says_nothing = len(words) < 2 or sys.flags.interactive or "--multiprocessing-fork" in words
    if says_nothing or keys.processors() == 1 or not keys.settings["folder"]():
        return None
    settings = [item for item in sorted(os.environ.items()) if item[0].startswith(("JAX", "XLA"))]
    return keys.digest(b"start", repr((words, os.getcwd(), settings)).encode())


def _after_fork() -> None:
    """The thread stayed in the parent."""
    global _list
    if _list is not None:
        atexit.unregister(_list.write)
    _list = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
