"""The persistent cache: executables that outlive the process, one file each.

**Where.** `<folder>/executables`, created with mode 0700; the folder is an option (`configure`). Loading an executable
is running code: a folder or an entry that is not this user's own, or that others can write, is never read. Beside it are
the shortcuts (`lowering.cache.shortcuts`), entries of the same form.

**The key** of an entry: `lowering.cache.keys`.

**An entry** is a file named by its key:

    8 bytes    format, `keys.FORMAT`
    32         SHA-256 of everything from here to the end of the executable
    32         the key
    8 + 8      sizes of the facts and of the executable, little endian
    ...        the facts for `python -m jaxlite.cache`, as JSON
    ...        the executable, as jaxlib serializes it
    ...        one byte for each time it was loaded

**What holds.** jaxlib trusts what it loads, so nothing reaches it that has another format, key, length or checksum than
expected: that is a miss, and the next store takes the entry's place. A file is written under another name and renamed,
so any number of processes may read and write, and end at any point. A load appends its byte, which is atomic, and so
sets the modification time: the least recently used entries go when the folder outgrows its limit. Trouble with the disk
costs one warning; compiling goes on without the cache.

**What it costs.** A miss hashes the module and fails to open a file; storing serializes and writes one. That is a
millisecond beside the 5 to 30 that XLA needs for a single operation, so nearly every compile is stored: only one shorter
than the threshold is not. Looking at all files, to see if there are too many bytes, is what grows with the folder, so few
stores do it (`_looks`).
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import stat
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from lowering import report, xla
from lowering.cache import keys
from lowering.cache.keys import FORMAT, settings
from lowering.partitioning import devices_of

KINDS = ("executables", "shortcuts", "starts")  # of entries; each has a folder

_HEADER = struct.Struct("<8s32s32sQQ")
_CHECKED = 8 + 32  # the checksum covers what stands behind itself
_TEMPORARY = ".tmp"
_ABANDONED = 3600  # seconds after which a temporary file is removed
_KEPT_BY_EVICTION = 0.9  # of the limit
_UNSEEN = 1 / 256  # of the limit: what a process stores before it looks how large the folder is
_OPEN = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)

# --- entries -----------------------------------------------------------------------------------------


_MOST_HITS = 1 << 24  # a byte each, after the entry


class Damaged(Exception):
    """An entry that must not be loaded; the message has the reason."""


class Entry(NamedTuple):
    """What a file of the cache holds."""

    key: bytes
    facts: bytes  # JSON
    executable: bytes
    hits: int


def read_entry(path: str, use: bool = False) -> Entry:
    """Read and check one file; with `use`, count it as a hit.

    Raises: Damaged if anything about it is not as it was written, OSError if it cannot be read.
    """
    with _opened(path) as file:
        length = os.fstat(file.fileno()).st_size
        head = file.read(_HEADER.size)
        if len(head) < _HEADER.size:
            raise Damaged("truncated")
        form, checksum, key, facts_size, size = _HEADER.unpack_from(head)
        if form != FORMAT:
            raise Damaged("of another format")
        middle = _HEADER.size + facts_size
        end = middle + size
        if length < end:
            raise Damaged("truncated")
        if length > end + _MOST_HITS:
            raise Damaged("larger than it says")
        content = head + file.read(end - _HEADER.size)
        if keys.checksum(memoryview(content)[_CHECKED:end]) != checksum:
            raise Damaged("checksum differs")
        if key.hex() != os.path.basename(path):
            raise Damaged("holds another program")
        if use and file.writable():
            with contextlib.suppress(OSError):  # a full disk
                file.write(b"+")
        return Entry(key, content[_HEADER.size:middle], content[middle:end], length - end)


@contextlib.contextmanager
def _opened(path: str) -> Iterator[Any]:
    """The file at `path`, to read and where possible to append to, if it is this user's own."""
    try:
        mode, descriptor = "ab+", os.open(path, os.O_RDWR | os.O_APPEND | _OPEN)
    except FileNotFoundError:
        raise
    except OSError:  # on a read-only disk; what is wrong otherwise is wrong here too
        mode, descriptor = "rb", os.open(path, os.O_RDONLY | _OPEN)
    status = os.fstat(descriptor)
    if not (stat.S_ISREG(status.st_mode) and _is_own(status)):
        os.close(descriptor)
        raise Damaged("not this user's own file, or others can write to it")
    with open(descriptor, mode, buffering=0) as file:
        file.seek(0)
        yield file


def _is_own(status: os.stat_result) -> bool:
    """Whether only this user can have written what `status` is of."""
    return not hasattr(os, "geteuid") or (status.st_uid == os.geteuid() and not status.st_mode & 0o022)


# --- the folder --------------------------------------------------------------------------------------


class Folder:
    """The entries of one kind below one folder. Nothing is created before something is stored."""

    def __init__(self, parent: str, kind: str = "executables"):
        self.path = os.path.join(parent, kind)
        self._subject = f"cache {parent}"  # of complaints: what is wrong with one folder mostly is with its neighbour
        self.refused = ""  # why nothing is read or written
        self._writable = True
        self._size: int | None = None  # of all entries, as far as this process knows; None before it has looked
        self._stored = 0  # by this process
        self._lock = threading.Lock()
        try:
            self._check()
        except FileNotFoundError:
            pass
        except OSError as error:
            self.refused = error.strerror or str(error)
            report.complain(self._subject, f"the persistent compile cache does not use {self.path}: {self.refused}. "
                                           "JAXLITE_COMPILATION_CACHE_DIR names another folder, or none.")

    def _check(self) -> None:
        status = os.lstat(self.path)
        if not stat.S_ISDIR(status.st_mode) or not _is_own(status):
            raise PermissionError(errno.EPERM, "it must belong to this user, and others must not be able to write to it")

    def _give_up(self, error: OSError) -> None:
        self._writable = False
        report.complain(self._subject, f"cannot write to the persistent compile cache in {self.path}: "
                                       f"{error.strerror or error}. This process stores nothing more there.")

    def load(self, key: bytes) -> bytes | None:
        """The serialized executable of a key, checked; None if there is none."""
        if self.refused:
            return None
        path = os.path.join(self.path, key.hex())
        try:
            return read_entry(path, use=True).executable
        except FileNotFoundError:
            return None
        except Damaged:
            self.drop(key)
        except OSError:  # too many open files, for one: unrelated to the entry
            pass
        return None

    def drop(self, key: bytes) -> None:
        """Remove an entry that is of no use; the next compile stores a new one."""
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(self.path, key.hex()))

    def store(self, key: bytes, executable: bytes, facts: dict[str, Any], limit: int) -> None:
        """Write an entry, then make room if the folder is above its limit."""
        if self.refused or not self._writable:
            return
        import json

        head = json.dumps(facts).encode()
        tail = _HEADER.pack(FORMAT, bytes(32), key, len(head), len(executable))[_CHECKED:] + head + executable
        size = _CHECKED + len(tail)
        if 0 <= limit < size:
            return
        path = os.path.join(self.path, key.hex())
        temporary = f"{path}.{os.urandom(8).hex()}{_TEMPORARY}"
        try:
            os.makedirs(os.path.dirname(self.path), exist_ok=True)
            with contextlib.suppress(FileExistsError):
                os.mkdir(self.path, 0o700)
            self._check()
            os.chmod(self.path, 0o700)
            try:
                with open(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | _OPEN, 0o600), "wb") as file:
                    file.write(FORMAT + keys.checksum(tail))
                    file.write(tail)
                os.replace(temporary, path)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
                raise
            with self._lock:
                self._stored += size
                self._size = None if self._size is None else self._size + size
                if self._looks(key, limit):
                    self._size = self._make_room(limit)
        except OSError as error:
            self._give_up(error)

    def _looks(self, key: bytes, limit: int) -> bool:
        """Whether a store looks at the whole folder: if this process knows it to be too large, or does not know and has
        stored much. Processes that store little share the work: it falls to one key in 256."""
        if self._size is not None:
            return 0 <= limit < self._size
        return key[0] == 0 or 0 <= limit * _UNSEEN < self._stored

    def _make_room(self, limit: int) -> int:
        """Remove what was used the longest ago, if there is more than `limit`, and files that a process left behind when
        it was killed. Gives the size of what stays."""
        found, total = [], 0
        for name, status in self._files():
            if name.endswith(_TEMPORARY):
                if time.time() - status.st_mtime > _ABANDONED:
                    self._unlink(name)
            else:
                found.append((status.st_mtime_ns, status.st_size, name))
                total += status.st_size
        if 0 <= limit < total:
            for _, size, name in sorted(found):
                if total <= _KEPT_BY_EVICTION * limit:
                    break
                self._unlink(name)
                total -= size
        return total

    def _files(self) -> Iterator[tuple[str, os.stat_result]]:
        try:
            with os.scandir(self.path) as files:
                for file in files:
                    with contextlib.suppress(FileNotFoundError):  # another process removed it
                        yield file.name, file.stat(follow_symlinks=False)
        except FileNotFoundError:
            return

    def _unlink(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self.path, name))

    def size_of(self, key: bytes) -> int:
        """The size of an entry in bytes, 0 if there is none."""
        try:
            return os.stat(os.path.join(self.path, key.hex())).st_size
        except OSError:
            return 0

    def entries(self) -> dict[str, os.stat_result]:
        """The names of the entries and their sizes and times, the least recently used first."""
        found = [(name, status) for name, status in self._files() if not name.endswith(_TEMPORARY)]
        return dict(sorted(found, key=lambda each: each[1].st_mtime_ns))

    def clear(self) -> int:
        """Remove every entry; gives how many there were."""
        count = 0
        for name, _ in list(self._files()):
            self._unlink(name)
            count += not name.endswith(_TEMPORARY)
        return count


_opened_folders = functools.cache(Folder)


def folder(kind: str = "executables") -> Folder:
    """The folder in use, for one kind of entries."""
    return _opened_folders(settings["folder"](), kind)


# --- the cache of a compile --------------------------------------------------------------------------


def load(key: bytes, device: Any, options: Any) -> Any | None:
    """The loaded executable of a key, or None."""
    kept = folder()
    serialized = kept.load(key)
    if serialized is None:
        return None
    try:
        return device.client.deserialize_executable(serialized, xla.DeviceList(devices_of(device)), options)
    except xla.XlaRuntimeError:
        kept.drop(key)
        return None


def store(key: bytes, executable: Any, name: str, platform: str, seconds: float) -> bool:
    """Store an executable if its compile took long enough; whether it did."""
    if seconds < settings["threshold"]():
        return False
    try:
        serialized = executable.serialize()
    except xla.XlaRuntimeError as error:
        if "Multiple temp buffer" in str(error):  # `passes/heaps.py` asked for several blocks, and XLA writes programs with one
            return False
        report.complain(f"cache of {platform}", f"the persistent compile cache does not work on {platform}: {error}")
        return False
    facts = {"function": name, "platform": platform, "seconds": seconds, "jaxlib": xla.VERSION_TEXT,
             "jaxlite": settings["version"](), "created": time.time()}
    folder().store(key, serialized, facts, limit())
    return True


def limit() -> int:
    """Bytes of all executables; negative for any number."""
    return settings["limit"]()
