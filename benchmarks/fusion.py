"""The group "fusion": what jaxlite's fusion barriers do to compile time, run time and memory of realistic programs.

Three configurations take turns, each in a fresh process for every program: JAX, jaxlite without barriers (and with loops
unrolled, as XLA has it), jaxlite as it is. A number is the least of all rounds. A program that misses a bar is measured as
many rounds again. Where there are no barriers and loops are unrolled, the last two are one, and share their samples.
Programs that only barriers make compilable are measured with them alone, to see how compile time grows. With `--reasons` the
barriers are listed under the table: which values have them, and why the pass put them there. A quick run has fewer programs
(`latency_programs.QUICK`), one round, and leaves jaxlite without barriers out.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import geometric_mean
from typing import Any

from benchmarks.bars import SUMMARY_HEAD, Figure, figure_table, summary_row, within
from benchmarks.latency_programs import LATENCY, OURS_ALONE, QUICK
from benchmarks.sides import Side, aligned, same, seconds

# Measure -> the ratio of jaxlite with barriers to JAX that must hold.
BARS = {"compile": 1.05, "run": 1.05, "temporaries": 1.2}
PROGRAM_BARS = {
    ("transformer step, 12 layers", "compile"): 0.25,
    ("transformer step, 12 layers", "run"): 0.8,
    ("RK4 gradient, 5 steps", "compile"): 0.1,
}
# Two programs, one of them larger -> how much larger. Compile time must not grow more than by that and `GROWTH_BAR`.
GROWTH = {
    ("RK4 gradient, 20 steps", "RK4 gradient, 100 steps"): 100 / 20,
    ("transformer step, 6 layers", "transformer step, 48 layers"): 48 / 6,
}
GROWTH_BAR = 1.5
SECONDS_BARS = {"RK4 gradient, 100 steps": 10.0}  # of CPU time to compile
ROUNDS = {"quick": 1, "full": 3}
CONFIGURATIONS = ("JAX", "off", "on")
_PAGE = 4096  # added to both sides' temporaries: below it they are nothing, and a ratio to nothing says nothing


@dataclass
class Program:
    """One program in some of the configurations: measure -> the least of each."""

    name: str
    chosen: tuple[int, ...] = (0, 1, 2)
    best: tuple[dict[str, float], ...] = field(default_factory=lambda: ({}, {}, {}))
    checks: list[Any] = field(default_factory=lambda: [None] * 3)
    errors: list[str] = field(default_factory=lambda: [""] * 3)
    barriers: list[str] = field(default_factory=list)
    is_rolled: bool = False

    def add(self, which: int, row: dict[str, Any]) -> None:
        self.errors[which] = row.get("error", "")
        if not self.errors[which]:
            for measure in BARS:
                self.best[which][measure] = min(row[measure], self.best[which].get(measure, math.inf))
            self.checks[which], self.barriers = row["check"], row["barriers"] or self.barriers
            self.is_rolled |= row["rolled"]
        if self.best[1] and self.best[2] and not self.barriers and not self.is_rolled:
            # The same program twice: what differs is noise.
            least = {measure: min(self.best[1][measure], self.best[2][measure]) for measure in BARS}
            self.best = (self.best[0], least, least.copy())

    @property
    def error(self) -> str:
        told = [f"{label}: {error}" for label, error in zip(CONFIGURATIONS, self.errors, strict=True) if error]
        checks = [self.checks[which] for which in self.chosen]
        if not told and not all(same(check, checks[-1]) for check in checks):
            told = [f"results differ: {checks}"]
        return "; ".join(told)

    @property
    def compared(self) -> bool:
        """Whether there is a ratio to JAX."""
        return 0 in self.chosen and not self.error

    def ratio(self, measure: str, base: int = 0) -> float:
        """With barriers to JAX (0) or to without (1)."""
        extra = _PAGE if measure == "temporaries" else 0
        return (self.best[2][measure] + extra) / (self.best[base][measure] + extra)

    def bar(self, measure: str) -> float:
        return PROGRAM_BARS.get((self.name, measure), BARS[measure])

    @property
    def missed(self) -> list[str]:
        """The measures whose bar does not hold; "results" where there are none, or different ones."""
        if self.error:
            return ["results"]
        return [each for each in BARS if not within(self.ratio(each), self.bar(each))] if self.compared else []

    def cells(self) -> list[str]:
        if self.error:
            return [self.name, *["-"] * 9, "**FAILS**", self.error.replace("|", r"\|")]
        ratios = lambda measure, base: f"{self.ratio(measure, base):.2f}" if base in self.chosen else "-"
        best = self.best[2]
        cells = [self.name, str(len(self.barriers))]
        for measure in ("compile", "run"):
            cells += [seconds(best[measure]), ratios(measure, 0), ratios(measure, 1)]
        cells += [size(best["temporaries"]), ratios("temporaries", 0)]
        own = [f"{measure} {bar:g}" for (name, measure), bar in PROGRAM_BARS.items() if name == self.name]
        holds = f"**NO**: {', '.join(self.missed)}" if self.missed else "yes" if self.compared else "-"
        return [*cells, holds, f"own bars: {', '.join(own)}" if own else ""]


def size(count: float) -> str:
    return f"{count:.0f} B" if count < 1e3 else f"{count / 1e3:.3g} kB" if count < 1e6 else f"{count / 1e6:.3g} MB"


def compare(jax: Side, ours: Side, effort: str, rows: str, note: Callable[[str], None]) -> list[Program]:
    """Measure the programs whose names `rows` finds; program by program, so that drift of the machine meets all sides."""
    off = Side("jaxlite without barriers", ours.python, ours.module, (("JAXLITE_CPU_FUSION_BARRIERS", "0"),))
    sides = (jax, off, ours)
    both = (0, 2) if effort == "quick" else (0, 1, 2)
    names = QUICK if effort == "quick" and not rows else (*LATENCY, *OURS_ALONE)
    programs = [Program(name, both if name in LATENCY else (2,)) for name in names if re.search(rows, name)]
    for program in programs:
        rounds = ROUNDS[effort]
        for turn in range(rounds if effort == "quick" else 2 * rounds):
            if turn == rounds and (not program.missed or program.error):
                break
            for which in sorted(program.chosen, key=lambda which: (which + turn) % 3):
                note(f"{program.name}: round {turn + 1}, {sides[which].label}")
                lines, reason = sides[which].work("fusion", effort, f"^{re.escape(program.name)}$")
                program.add(which, lines[0] if lines else {"error": reason or "no such row"})
    return programs


def report(programs: list[Program], reasons: bool) -> str:
    """The summary, the table and, if `reasons`, the barriers."""
    head = ["program", "barriers", "compile", "on/JAX", "on/off", "run", "on/JAX", "on/off", "temporaries", "on/JAX",
            "holds", "remarks"]  # fmt: skip
    parts = [
        "### fusion: barriers on (the default) beside JAX, and beside jaxlite with barriers off",
        "Compile is CPU time; run is the shortest call; temporaries are the buffer that XLA allocates for a call.",
    ]
    if summary := _summary(programs):
        parts.append(summary)
    if made := figures(programs):
        parts.append(figure_table(made))
    parts.append(aligned([head, *(program.cells() for program in programs)]))
    for program in programs if reasons else ():
        counted = Counter(program.barriers).most_common()
        parts.append("\n".join([f"{program.name}:", "", *(f"- {count} x {why}" for why, count in counted)]))
    return "\n\n".join(parts) + "\n"


def _summary(programs: list[Program]) -> str:
    """A line for each measure and bar; what barriers alone do, where both ways were measured."""
    rows = [[*SUMMARY_HEAD, "on/off, geometric mean"]]
    for measure in BARS:
        for bar in sorted({program.bar(measure) for program in programs if 0 in program.chosen}, reverse=True):
            of_bar = [program for program in programs if 0 in program.chosen and program.bar(measure) == bar]
            ratios = {program.name: program.ratio(measure) for program in of_bar if program.compared}
            both = [program.ratio(measure, 1) for program in of_bar if program.compared and 1 in program.chosen]
            row = summary_row(f"fusion, {measure}", bar, ratios, len(of_bar))
            rows.append([*row, f"{geometric_mean(both):.2f}" if both else ""])
    return aligned(rows) if rows[1:] else ""


def figures(programs: list[Program]) -> list[Figure]:
    """How compile time grows with the program, and the times that must stay within seconds."""
    named = {program.name: program for program in programs if not program.error}
    made = []
    for (small, large), factor in GROWTH.items():
        if small in named and large in named:
            grown = [_compile_time(named[large], side) / _compile_time(named[small], side) / factor for side in (2, 0)]
            name = f"compile growth, {small.rpartition(' ')[0]} to {large.rpartition(', ')[2]}"
            made.append(_figure(name, grown, GROWTH_BAR))
    for name, bar in SECONDS_BARS.items():
        if name in named:
            made.append(_figure(f"compile, {name}", [_compile_time(named[name], side) for side in (2, 0)], bar, " s"))
    return made


def _compile_time(program: Program, which: int) -> float:
    return program.best[which]["compile"] if which in program.chosen else math.nan


def _figure(name: str, sides: list[float], bar: float, unit: str = "") -> Figure:
    ours, theirs = ("-" if math.isnan(value) else f"{value:.2f}{unit}" for value in sides)
    return Figure("fusion", name, ours, theirs, sides[0], bar, unit)
