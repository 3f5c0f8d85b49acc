"""The group "fusion": what jaxlite's fusion barriers do to compile time, run time and memory of realistic programs.

Three configurations take turns, each in a fresh process for every program: JAX, jaxlite without barriers, jaxlite with
them. A number is the least of all rounds. A program that misses a bar is measured as many rounds again. Where the pass
places no barrier, the last two are one, and share their samples. With `--reasons` the barriers are listed under the
table: which values have them, and why the pass put them there.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import geometric_mean
from typing import Any

from benchmarks.latency_programs import LATENCY
from benchmarks.sides import Side, aligned, same, seconds

# Measure -> the ratio of jaxlite with barriers to JAX that must hold.
BARS = {"compile": 1.05, "run": 1.05, "temporaries": 1.2}
OLDEST_JAXLIB = (0, 11)  # before, XLA drops barriers ahead of fusion, and there is nothing to measure
ROUNDS = {"quick": 1, "full": 3}
_PAGE = 4096  # added to both sides' temporaries: below it they are nothing, and a ratio to nothing says nothing


@dataclass
class Program:
    """One program in the three configurations: measure -> the least of each."""

    name: str
    best: tuple[dict[str, float], ...] = field(default_factory=lambda: ({}, {}, {}))  # JAX, off, on
    checks: list[Any] = field(default_factory=lambda: [None] * 3)
    errors: list[str] = field(default_factory=lambda: [""] * 3)
    barriers: list[str] = field(default_factory=list)

    def add(self, which: int, row: dict[str, Any]) -> None:
        self.errors[which] = row.get("error", "")
        if not self.errors[which]:
            for measure in BARS:
                self.best[which][measure] = min(row[measure], self.best[which].get(measure, math.inf))
            self.checks[which], self.barriers = row["check"], row["barriers"] or self.barriers
        if self.best[1] and self.best[2] and not self.barriers:  # the same module twice: what differs is noise
            least = {measure: min(self.best[1][measure], self.best[2][measure]) for measure in BARS}
            self.best = (self.best[0], least, least.copy())

    @property
    def error(self) -> str:
        told = [f"{label}: {error}" for label, error in zip(("JAX", "off", "on"), self.errors, strict=True) if error]
        if not told and not all(same(self.checks[2], other) for other in self.checks[:2]):
            told = [f"results differ: {self.checks}"]
        return "; ".join(told)

    def ratio(self, measure: str, base: int = 0) -> float:
        """With barriers to JAX (0) or to without (1)."""
        extra = _PAGE if measure == "temporaries" else 0
        return (self.best[2][measure] + extra) / (self.best[base][measure] + extra)

    @property
    def missed(self) -> list[str]:
        """The measures whose bar does not hold; "results" where there are none, or different ones."""
        return ["results"] if self.error else [each for each, bar in BARS.items() if self.ratio(each) > bar]

    def cells(self) -> list[str]:
        if self.error:
            return [self.name, *["-"] * 9, "**FAILS**", self.error.replace("|", r"\|")]
        best = self.best[2]
        cells = [self.name, str(len(self.barriers))]
        for measure in ("compile", "run"):
            cells += [seconds(best[measure]), f"{self.ratio(measure):.2f}", f"{self.ratio(measure, 1):.2f}"]
        cells += [size(best["temporaries"]), f"{self.ratio('temporaries'):.2f}"]
        return [*cells, f"**NO**: {', '.join(self.missed)}" if self.missed else "yes", ""]


def size(count: float) -> str:
    return f"{count:.0f} B" if count < 1e3 else f"{count / 1e3:.3g} kB" if count < 1e6 else f"{count / 1e6:.3g} MB"


def compare(jax: Side, ours: Side, effort: str, rows: str, note: Callable[[str], None]) -> list[Program]:
    """Measure the programs whose names `rows` finds; program by program, so that drift of the machine meets all sides."""
    off = Side("jaxlite without barriers", ours.python, ours.module, (("JAXLITE_CPU_FUSION_BARRIERS", "0"),))
    sides = (jax, off, ours)
    programs = [Program(name) for name in LATENCY if re.search(rows, name)]
    for program in programs:
        for turn in range(2 * ROUNDS[effort]):
            if turn == ROUNDS[effort] and (not program.missed or program.error):
                break
            for which in sorted(range(3), key=lambda which: (which + turn) % 3):
                note(f"{program.name}: round {turn + 1}, {sides[which].label}")
                lines, reason = sides[which].work("fusion", effort, f"^{re.escape(program.name)}$")
                program.add(which, lines[0] if lines else {"error": reason or "no such row"})
    return programs


def report(programs: list[Program], reasons: bool) -> str:
    """The table, the bars and, if `reasons`, the barriers."""
    head = ["program", "barriers", "compile", "on/JAX", "on/off", "run", "on/JAX", "on/off", "temporaries", "on/JAX",
            "holds", "remarks"]  # fmt: skip
    rows = [head, *(program.cells() for program in programs)]
    good = [program for program in programs if not program.error]
    parts = [
        "### fusion: barriers on (the default) beside JAX, and beside jaxlite with barriers off",
        "Compile is CPU time; run is the shortest call; temporaries are the buffer that XLA allocates for a call.",
    ]
    if good:
        summary = [["measure", "bar", "hold", "on/JAX, geometric mean", "worst", "on/off, geometric mean"]]
        for measure, bar in BARS.items():
            ratios = {program.ratio(measure): program.name for program in good}
            summary.append([
                measure, f"{bar:g}", f"{sum(each <= bar for each in map(_of(measure), good))} of {len(programs)}",
                f"{geometric_mean(map(_of(measure), good)):.2f}", f"{max(ratios):.2f} ({ratios[max(ratios)]})",
                f"{geometric_mean(program.ratio(measure, 1) for program in good):.2f}",
            ])  # fmt: skip
        parts.append(aligned(summary))
    parts.append(aligned(rows))
    for program in programs if reasons else ():
        counted = Counter(program.barriers).most_common()
        parts.append("\n".join([f"{program.name}:", "", *(f"- {count} x {why}" for why, count in counted)]))
    return "\n\n".join(parts) + "\n"


def _of(measure: str) -> Callable[[Program], float]:
    return lambda program: program.ratio(measure)
