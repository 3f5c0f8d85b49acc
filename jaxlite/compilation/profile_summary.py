"""Where the time of a block was spent, as a table: imports, traces, compiles, transfers, operations with their lines.

Compiles come from the compile report, everything else from an XLA profile of the block. Stages of a compile and imports are
times of the Python thread; they can be nested, and the innermost one counts. Operations run on XLA's threads in parallel.
"""

from __future__ import annotations

import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from jaxlite.compilation import compile_report, program
from jaxlite.core import source
from lowering import hlo_text, platforms, xla

_TRANSFERS = ("DevicePut", "H2D Dispatch", "D2H Dispatch", "CopyToDevice", "ToLiteral", "BufferFromHost", "TransferTo",
              "TransferFrom", "CopyRawToHost")


class Row(NamedTuple):
    """One line: what, how often, how many seconds, and the user's line that it comes from."""

    what: str
    times: int
    seconds: float
    where: str = ""


class Summary:
    """The time of a block, by stage, function and operation.

    Attributes, there when the block has ended: `wall_seconds`; `stages`, rows for import, trace, lower, compile, transfers,
    execution; `functions`, a row for each function that was compiled; `operations`, a row for each operation of XLA's, the
    longest first. Printed, it is the table.
    """

    def __init__(self, top: int):
        self.top = top
        self.wall_seconds = 0.0
        self.stages: list[Row] = []
        self.functions: list[Row] = []
        self.operations: list[Row] = []

    def __str__(self) -> str:
        wall = self.wall_seconds or 1e-9
        lines = [f"{self.wall_seconds:9.3f} s  all of the block"]
        lines += [f"{row.seconds:9.3f} s  {100 * row.seconds / wall:5.1f}%  {row.what:<10} {_times(row.times)}{row.where}"
                  for row in self.stages]
        if self.functions:
            lines.append("functions traced, lowered, compiled:")
            lines += [f"{row.seconds:9.3f} s  {row.what}  {row.where}" for row in self.functions[:self.top]]
        if self.operations:
            lines.append("operations, on XLA's threads:")
            lines += [f"{row.seconds:9.3f} s  {_times(row.times)}{row.what}  {row.where}" for row in self.operations[:self.top]]
            if len(self.operations) > self.top:
                rest = self.operations[self.top:]
                lines.append(f"{sum(row.seconds for row in rest):9.3f} s  {len(rest)} others")
        return "\n".join(lines)

    __repr__ = __str__


def _times(count: int) -> str:
    return f"{count:>6} x  " if count else " " * 10


@contextmanager
def summary(*, top: int = 10, file: Any = None) -> Iterator[Summary]:
    """Print after a `with` block where its time was spent.

    Args:
      top: how many functions and operations are listed.
      file: where to print, stdout by default.

    Gives a `Summary`, whose rows can be read after the block. The operations are those that XLA records: on the CPU all that
    take more than a microsecond or so. Without a profile, because another one is running, they are left out.

    >>> import jaxlite, jaxlite.numpy as jnp
    >>> with jaxlite.profiler.summary() as found:
    ...     _ = jaxlite.jit(lambda x: jnp.sin(x @ x))(jnp.ones((300, 300))).block_until_ready()
    0... s  all of the block
    ...
    >>> [row.what for row in found.stages]
    ['import', 'trace', 'lower', 'compile', 'transfers', 'execution', 'rest']
    """
    found = Summary(top)
    profiling = xla.load_profiler()
    platforms.devices()
    options = profiling.ProfileOptions()
    options.python_tracer_level = 0
    session = profiling.ProfilerSession(options)
    first = len(compile_report.compile_report()) and compile_report.compile_report()[-1].number
    imports = _ImportTimer()
    kept: list[tuple[Any, float]] = []  # what was compiled and when: its lines are looked up when the function may be gone
    watch = lambda made: kept.append((made, time.perf_counter()))
    program.compile_watchers.append(watch)
    start = time.perf_counter()
    try:
        with imports:
            yield found
    finally:
        found.wall_seconds = time.perf_counter() - start
        program.compile_watchers.remove(watch)
        raw = session.stop()
        compiles = [each for each in compile_report.compile_report() if each.number > first]
        _fill(found, raw, compiles, imports, _own_seconds(start, compiles, [end for _, end in kept], imports))
        print(found, file=file or sys.stdout)


def _own_seconds(begin: float, compiles: list[Any], ends: list[float], imports: _ImportTimer) -> dict[Any, float]:
    """The seconds of each stage of each compile, by (its place, the stage's), and of "import", without what is inside."""
    spans: list[tuple[float, float, Any]] = [(start, end, "import") for start, end in imports.spans]
    for number, (each, end) in enumerate(zip(compiles, ends, strict=False)):
        for stage in (2, 1, 0):
            start = max(end - each.stages[stage], begin)
            spans.append((start, max(end, begin), (number, stage)))
            end = start
    own: dict[Any, float] = defaultdict(float)
    under_way: list[tuple[float, Any]] = []
    now = begin

    def go_on(until: float) -> None:
        nonlocal now
        while under_way and now < until:
            end, what = under_way[-1]
            own[what] += max(min(end, until) - now, 0.0)
            now = max(min(end, until), now)
            if end <= until:
                under_way.pop()
        now = max(until, now)

    for start, end, what in sorted(spans, key=lambda span: (span[0], -span[1])):
        go_on(start)
        under_way.append((end, what))
    go_on(max((end for _, end, _ in spans), default=begin))
    return own


def _fill(found: Summary, raw: bytes, compiles: list[Any], imports: _ImportTimer, own: dict[Any, float]) -> None:
    by_stage = [sum(own[number, stage] for number in range(len(compiles))) for stage in range(3)]
    imported = own["import"]
    transfers, operations, busy = _events(raw)
    hits = sum(each.cache == "hit" for each in compiles)
    found.stages = [
        Row("import", imports.count, imported),
        *(Row(what, len(compiles), seconds, f"({hits} from the persistent cache)" if what == "compile" and hits else "")
          for what, seconds in zip(("trace", "lower", "compile"), by_stage, strict=True)),
        Row("transfers", *transfers),
        Row("execution", sum(count for count, _ in operations.values()), busy, "(on XLA's threads, beside the rest)"),
    ]
    known = imported + sum(by_stage) + transfers[1]
    found.stages.append(Row("rest", 0, max(found.wall_seconds - known, 0.0), "(Python, calls, waiting for results)"))
    totals: dict[tuple[str, str], list[float]] = {}
    for number, each in enumerate(compiles):
        total = totals.setdefault((each.function, each.location), [0, 0.0, 0.0, 0.0])
        total[0] += 1
        for stage in range(3):
            total[stage + 1] += own[number, stage]
    found.functions = sorted((
        Row(f"{name}: {int(count)} compile{'s' if count > 1 else ''}, trace {trace:.3f}, lower {lower:.3f}, "
            f"compile {compile_:.3f}",
            int(count), trace + lower + compile_, location)
        for (name, location), (count, trace, lower, compile_) in totals.items()), key=lambda row: -row.seconds)
    lines = _lines_of({module for module, _ in operations})
    found.operations = sorted((
        Row(f"{operation} ({module.removeprefix('jit_')})", count, seconds, lines.get((module, operation), ""))
        for (module, operation), (count, seconds) in operations.items()), key=lambda row: -row.seconds)


def _events(raw: bytes) -> tuple[tuple[int, float], dict[tuple[str, str], tuple[int, float]], float]:
    """Count and seconds of transfers, and of each (module, operation); and how long some operation was running."""
    data = xla.load_profile_data().ProfileData.from_serialized_xspace(raw)
    transfers, operations = [0, 0.0], dict[tuple[str, str], tuple[int, float]]()
    spans: list[tuple[float, float]] = []
    for plane in data.planes:
        for line in plane.lines:
            until = 0.0  # of the transfer that is under way: those inside it are part of it
            for event in line.events:
                name = event.name
                if name.startswith(_TRANSFERS):
                    if event.start_ns >= until:
                        until = event.start_ns + event.duration_ns
                        transfers[0] += 1
                        transfers[1] += event.duration_ns / 1e9
                    continue
                if name.startswith("end: "):
                    continue
                stats = dict(event.stats)
                if "hlo_op" in stats:
                    key = str(stats.get("hlo_module", "")), str(stats["hlo_op"])
                    count, seconds = operations.get(key, (0, 0.0))
                    operations[key] = count + 1, seconds + event.duration_ns / 1e9
                    spans.append((event.start_ns, event.start_ns + event.duration_ns))
    busy, end = 0.0, 0.0
    for begin, stop in sorted(spans):
        busy += max(stop - max(begin, end), 0.0)
        end = max(end, stop)
    return (int(transfers[0]), transfers[1]), operations, busy / 1e9


def _lines_of(modules: set[str]) -> dict[tuple[str, str], str]:
    """The user's line of each operation of the loaded programs with these names."""
    found: dict[tuple[str, str], str] = {}
    for executable in platforms.devices()[0].client.live_executables() if modules else []:
        for module in executable.hlo_modules():
            if module.name in modules:
                for each in hlo_text.parse(module.to_string()).instructions:
                    frame = next((frame for frame in each.frames if not source.is_own_file(frame[0])), None)
                    if frame is not None:
                        found[module.name, each.name] = f"{os.path.basename(frame[0])}:{frame[1]} {each.op_name}".rstrip()
    return found


class _ImportTimer:
    """Measures the time that imports take inside a `with` block: a finder in front that times what the others load."""

    def __init__(self) -> None:
        self.spans, self.count, self.depth = list[tuple[float, float]](), 0, 0

    def __enter__(self) -> _ImportTimer:
        sys.meta_path.insert(0, self)  # type: ignore[arg-type]
        return self

    def __exit__(self, *exc: Any) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)  # type: ignore[arg-type]

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        for finder in sys.meta_path:
            if finder is not self and hasattr(finder, "find_spec"):
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    if hasattr(spec.loader, "exec_module"):
                        spec.loader = _Timed(spec.loader, self)  # type: ignore[assignment]
                    return spec
        return None


class _Timed:
    """A loader whose time counts. Everything else is the loader's own."""

    def __init__(self, loader: Any, timer: _ImportTimer):
        self._loader, self._timer = loader, timer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: Any) -> Any:
        return self._loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        timer = self._timer
        module.__loader__ = module.__spec__.loader = self._loader
        timer.depth += 1
        start = time.perf_counter()
        try:
            self._loader.exec_module(module)
        finally:
            timer.depth -= 1
            timer.count += 1
            if timer.depth == 0:  # what it imported itself is part of it
                timer.spans.append((start, time.perf_counter()))
