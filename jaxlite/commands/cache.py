"""The persistent compile cache from the command line.

    python -m jaxlite.cache            list the entries: function, size, age, time since the last use, hits
    python -m jaxlite.cache verify     read and check every entry; the exit status is 1 if one is damaged
    python -m jaxlite.cache clear      remove every entry

`--dir FOLDER` looks into another folder than the option `compilation_cache_dir`. What the cache is and promises:
`lowering.cache.entries`. The shortcuts to entries (`lowering.cache.shortcuts`) and the lists of what commands used
(`lowering.cache.ahead`) are verified and cleared with them, and not listed.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from jaxlite.commands.programs import bytes_text, table_text
from jaxlite.core.config import compilation_cache_dir
from lowering.cache import entries as store


def entries(folder: store.Folder) -> list[dict[str, Any]]:
    """What is known of each entry, the most recently used first; of a damaged one, `damage` says why it is.

    >>> import tempfile
    >>> entries(store.Folder(tempfile.mkdtemp()))
    []
    """
    found = []
    for name, status in reversed(folder.entries().items()):
        facts: dict[str, Any] = {"name": name, "size": status.st_size, "used": status.st_mtime, "damage": ""}
        try:
            entry = store.read_entry(os.path.join(folder.path, name))
            facts |= json.loads(entry.facts) | {"hits": entry.hits}
        except (store.Damaged, OSError) as error:
            facts["damage"] = str(error)
        found.append(facts)
    return found


def _list(folder: store.Folder, *others: store.Folder) -> int:
    found = entries(folder)
    rows = [("function", "size", "compile", "age", "last use", "hits", "jaxlib", "platform")]
    now = time.time()
    for entry in found:
        if entry["damage"]:
            rows.append((f"({entry['damage']})", bytes_text(entry["size"]), "", "", _ago(now - entry["used"]), "", "", ""))
        else:
            name = "".join(char if char.isprintable() else "?" for char in entry["function"])
            rows.append((name, bytes_text(entry["size"]), f"{entry['seconds']:.2f} s", _ago(now - entry["created"]),
                         _ago(now - entry["used"]), str(entry["hits"]), entry["jaxlib"], entry["platform"]))
    if found:
        print(table_text(rows))
    print(f"{len(found)} entries, {bytes_text(sum(entry['size'] for entry in found))} in {folder.path}")
    return 0


def _verify(*folders: store.Folder) -> int:
    found = [entry for folder in folders for entry in entries(folder)]
    damaged = [entry for entry in found if entry["damage"]]
    for entry in damaged:
        print(f"{entry['name']}: {entry['damage']}")
    print(f"{len(found)} entries, shortcuts and lists, {len(damaged)} damaged, in {os.path.dirname(folders[0].path)}")
    return 1 if damaged else 0


def _clear(folder: store.Folder, *others: store.Folder) -> int:
    for other in others:
        other.clear()
    print(f"{folder.clear()} entries removed from {folder.path}")
    return 0


def _ago(seconds: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


COMMANDS: dict[str, Callable[..., int]] = {"list": _list, "verify": _verify, "clear": _clear}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; gives the exit status."""
    parser = argparse.ArgumentParser(prog="python -m jaxlite.cache", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", nargs="?", choices=COMMANDS, default="list")
    parser.add_argument("--dir", default=compilation_cache_dir.value, help="the cache's folder")
    options = parser.parse_args(arguments)
    if not options.dir:
        print("the persistent compile cache is off: it has no folder")
        return 0
    folders = [store.Folder(options.dir, kind) for kind in store.KINDS]
    if any(folder.refused for folder in folders):
        return 1
    return COMMANDS[options.command](*folders)
