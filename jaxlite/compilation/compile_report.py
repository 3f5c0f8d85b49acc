"""Records of all compiles in this process, and the table that `jaxlite.compile_report()` shows.

A record has types, texts and times, but no user objects, and the number of records is bounded.
"""

from __future__ import annotations

import reprlib
from collections import deque
from enum import Enum
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from jaxlite.compilation.explain import show_type

LIMIT = 10_000  # records, the latest


class CompileRecord(NamedTuple):
    """One compile. The seconds are 0 for a stage that an earlier compile of the same signature went through."""

    number: int  # 1 is the first of the process
    function: str
    location: str  # file:line, or "" for functions of jaxlite itself
    avals: tuple[Any, ...]
    static: str
    device: str
    trace_seconds: float
    lower_seconds: float
    compile_seconds: float
    cache: str  # what the persistent cache said: "hit", "miss" or "off"
    reason: str  # "" if the option `explain_cache_misses` was off

    @property
    def signature(self) -> str:
        """The types of the arguments, and the static ones: `f32[32,10], weak f32[], n=3`."""
        return ", ".join([*map(show_type, self.avals), *([self.static] if self.static else [])])

    @property
    def stages(self) -> tuple[float, float, float]:
        """The seconds of trace, lower, compile."""
        return self.trace_seconds, self.lower_seconds, self.compile_seconds


class CompileReport(list[CompileRecord]):
    """A list of records that prints as a table."""

    def __repr__(self) -> str:
        rows: list[tuple[str, ...]] = [("ms:", "trace", "lower", "compile", "cache", "function", "signature", "defined at")]
        for each in self:
            rows.append((str(each.number), *(f"{seconds * 1e3:.1f}" for seconds in each.stages),
                         each.cache, _clip(each.function, 30), _clip(each.signature, 60), each.location))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = []
        for row in rows:
            cells = [cell.rjust(width) if column < 4 else cell.ljust(width)
                     for column, (cell, width) in enumerate(zip(row, widths, strict=True))]
            lines.append("  ".join(cells).rstrip())
        trace, lower, compile_ = (sum(each.stages[stage] for each in self) for stage in range(3))
        lines.append(f"{len(self)} compile{'' if len(self) == 1 else 's'}, {trace + lower + compile_:.3f} s: "
                     f"trace {trace:.3f} s, lower {lower:.3f} s, compile {compile_:.3f} s")
        if self and self[0].number > 1:
            lines.append(f"{self[0].number - 1} earlier ones are not kept")
        return "\n".join(lines)

    __str__ = __repr__


_records: deque[CompileRecord] = deque(maxlen=LIMIT)
_numbers = count(1)


def record(function: str, location: str, avals: Any, static: str, device: Any, seconds: dict[str, float],
           cache: str, reason: str) -> None:
    """Note one compile; `location` is `name at file:line`."""
    _records.append(CompileRecord(next(_numbers), function, location.partition(" at ")[2], tuple(avals), static, str(device),
                                  seconds["trace"], seconds["lower"], seconds["compile"], cache, reason))


def compile_report() -> CompileReport:
    """All compiles of this process, including those of single operations; prints as a table.

    A list of `CompileRecord`s, oldest first, each with `function`, `location`, `signature`, `device`, the seconds of
    its stages (`trace_seconds`, `lower_seconds`, `compile_seconds`), what the persistent `cache` said and, where the
    option `explain_cache_misses` was on, the `reason`. The latest 10,000 are kept. Calls are not counted: warm ones run
    no Python.

    >>> import jaxlite, jaxlite.numpy as jnp
    >>> @jaxlite.jit
    ... def half_life(x):
    ...     return 0.5 ** x
    >>> _ = half_life(jnp.zeros(3)), half_life(jnp.zeros(4)), half_life(jnp.ones(3))
    >>> [each.signature for each in jaxlite.compile_report() if each.function == "half_life"]
    ['f32[3]', 'f32[4]']
    """
    return CompileReport(_records)


class _Brief(reprlib.Repr):
    """Short texts for static values; of objects of users only the class, for their repr may be long in coming."""

    def repr_instance(self, x: Any, level: int) -> str:
        if isinstance(x, (bool, float, complex, type(None), Enum)):
            return repr(x)
        name = x.name if isinstance(x, np.dtype) else getattr(x, "__name__", None)
        return name if isinstance(name, str) else f"<{type(x).__name__}>"


_brief = _Brief()


def brief(value: Any) -> str:
    """A short text for a static value."""
    try:
        return _brief.repr(value)
    except Exception:  # of the user's class
        return f"<{type(value).__name__}>"


def _clip(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[:limit - 3] + "..."
