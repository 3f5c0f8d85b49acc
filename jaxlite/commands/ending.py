"""The end of a program's process without the interpreter's last searches for garbage.

Python searches all objects for cycles several times while it ends, which takes a fifth of a short program that has loaded a
large library. What it would find is memory, which the process gives back in any case, unless an object has something to do at
its end, such as a file that writes its buffer. Where there is no such object, these searches are skipped.
"""

from __future__ import annotations

import atexit
import gc
import opcode
import sys
import types
from collections import Counter
from typing import Any

_QUIET = ("jaxlib.", "jaxlite.")  # the finalizers of arrays give memory back
_HANDLER = opcode.opmap.get("PUSH_EXC_INFO")  # code with `try` or `with` has it


def end_without_collections() -> None:
    """Skip the searches at the end of this process, if nothing then needs one."""
    atexit.register(_at_exit)


def _at_exit() -> None:
    if len(sys._current_frames()) > 1 or _has_last_duties(gc.get_objects()):
        return  # other threads may use what is cleared
    # Python clears the variables of the modules that are still there, and leaves those of the others to a search.
    modules: list[Any] = list(sys.modules.values())
    modules.append(modules)
    gc.freeze()


def _has_last_duties(objects: list[Any]) -> bool:
    """Whether one of these objects may do something when it goes, apart from giving memory back."""
    own = Counter(type(each) for each in _standard_streams())
    # To count types in C is quicker by far than to look at the objects.
    busy = {cls for cls, number in Counter(map(type, objects)).items() if number > own[cls] and _finalizes(cls)}
    if busy == {types.GeneratorType}:
        return any(type(each) is types.GeneratorType and _is_guarded(each) for each in objects)
    return bool(busy)


def _finalizes(cls: type) -> bool:
    return any("__del__" in vars(base) for base in cls.__mro__) and not cls.__module__.startswith(_QUIET)


def _standard_streams() -> list[Any]:
    """The standard streams with the buffers and files inside, which Python flushes by itself."""
    found: dict[int, Any] = {}
    for stream in (sys.stdin, sys.stdout, sys.stderr, sys.__stdin__, sys.__stdout__, sys.__stderr__):
        each: Any = stream
        for inner in ("buffer", "raw", ""):
            found[id(each)] = each
            each = getattr(each, inner, None)
    return list(found.values())


def _is_guarded(generator: types.GeneratorType[Any, Any, Any]) -> bool:
    """Whether a generator may be inside a `try` or `with` of its code."""
    return generator.gi_frame is not None and (_HANDLER is None or _HANDLER in generator.gi_code.co_code[::2])
