"""jaxlite beside JAX: `python -m benchmarks.run` from the repository root, with the interpreter that has jaxlite.

Every row is the same program text on both sides. The sides take turns in fresh processes, several rounds, so that drift
of the machine meets both; a row's ratio is the best time of jaxlite over the best time of JAX, over all rounds. A row
that misses its bar, or nearly does, is measured as many rounds again, on both sides. Both sides must have the same
jaxlib, or the comparison would be of two XLAs.

    python -m benchmarks.run                            everything, about ten minutes
    python -m benchmarks.run --quick                    everything, coarsely, below two minutes
    python -m benchmarks.run --only eager --rows 'at'   the eager rows whose name has "at"
    python -m benchmarks.run --write                    also writes benchmarks/RESULTS.md
    python -m benchmarks.run --jax-twice                JAX against itself: ratios near 1, or the machine is too noisy
    python -m benchmarks.run --only fusion --rows RK4 --reasons --jax-python .venv-jax-latest/bin/python

The last one measures the fusion barriers, on demand alone: it needs jaxlib >= 0.11 on both sides.
"""

from __future__ import annotations

import argparse
import atexit
import datetime
import functools
import os
import platform
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from benchmarks import fusion
from benchmarks.programs import EAGER_SHORT, FRESH_PROCESS, WARM_START
from benchmarks.sides import ROOT, Measured, Side, aligned, last_line, same, seconds

RESULTS = ROOT / "benchmarks" / "RESULTS.md"
ROUNDS = {"quick": 2, "full": 5}
TITLE, FUSION_TITLE = "# jaxlite beside JAX", "# Fusion barriers, with the newest jaxlib"  # the chapters of the results
EXPLAINED = (
    "Times are the best of all rounds. Ratios are jaxlite/JAX: below 1, jaxlite is faster. The bar is the ratio that must "
    "hold.\nHow it is measured: `benchmarks/run.py`.\n"
)

# Group -> what its rows measure, and the ratio jaxlite/JAX that must hold.
GROUPS: dict[str, tuple[str, float]] = {
    "import": ("import in a fresh process", 0.4),
    "warm start": ("first result of a fresh process, compiled by an earlier one", 0.3),
    "trace": ("`jit(f).trace(*args)`, per equation", 0.2),
    "lower": ("`.lower()`, per equation", 0.3),
    "compile": ("`.compile()`", 1.05),
    "run": ("run time of the compiled code", 1.05),
    "first call": ("first call of a jitted function: trace, lower, compile, run", 1.05),
    "warm call": ("warm call of a jitted function", 1.05),
    "eager": ("eager operations on small arrays", 1.1),
}
ROW_BARS: dict[tuple[str, str], float] = {
    ("trace", "training step, 12 layers"): 0.15,
    **{("import", name): 1.05 for name in list(FRESH_PROCESS)[1:]},  # these compile too, and XLA's time is the same
    **{("eager", name): 0.5 for name in EAGER_SHORT},
}


Pair = tuple[Measured, Measured]


@dataclass(frozen=True)
class Verdict:
    """One row of the table."""

    group: str
    name: str
    pair: Pair
    bar: float

    @property
    def error(self) -> str:
        ours, theirs = self.pair
        if ours.error or theirs.error:
            return "; ".join(f"{which}: {m.error}" for which, m in (("jaxlite", ours), ("JAX", theirs)) if m.error)
        return "" if same(ours.check, theirs.check) else f"results differ: {ours.check} and {theirs.check}"

    @property
    def ratio(self) -> float:
        return self.pair[0].best / self.pair[1].best

    @property
    def holds(self) -> bool:
        return not self.error and self.ratio <= self.bar

    @property
    def close(self) -> bool:
        """Whether noise may have decided; it can double a time, where threads or memory fell badly."""
        return not self.error and self.ratio > 0.96 * self.bar

    def cells(self) -> list[str]:
        name = self.name.replace("|", r"\|")
        times = [seconds(m.best) if m.times else "-" for m in self.pair]
        if self.error:
            return [name, *times, "-", "-", f"{self.bar:g}", "**FAILS**", self.error.replace("|", r"\|")]
        ours, theirs = self.pair
        note = ""
        if ours.eqns:
            note = f"{ours.eqns} and {theirs.eqns} equations; in all {min(ours.times) / min(theirs.times):.2f}"
        typical = f"{ours.typical / theirs.typical:.2f}"
        return [name, *times, f"{self.ratio:.2f}", typical, f"{self.bar:g}", "yes" if self.holds else "**NO**", note]


def note(text: str) -> None:
    """Say what is being measured, where somebody watches."""
    if sys.stderr.isatty():
        print(f"\r{text:79}", end="\r", file=sys.stderr)


def fresh_process(side: Side, statements: dict[str, str], rows: str, warm: bool = False) -> Iterator[dict[str, Any]]:
    """Rows of whole processes: a bare interpreter times the statement itself, so its own start is not counted.

    Where they are `warm`, an earlier process has run the statement and left what it compiled in the persistent cache.
    """
    for name, statement in statements.items():
        if re.search(rows, name):
            timed = f"start = perf_counter()\n{statement.format(module=side.module)}\nprint(perf_counter() - start)"
            code = f"from time import perf_counter\n{timed}"
            out, err, status = side.start("-c", code, cache=filled_cache(side, code) if warm else "")
            yield {"row": name, "error": last_line(err)} if status else {"row": name, "times": [float(out)]}


@functools.cache
def filled_cache(side: Side, code: str) -> str:
    """A folder that lives as long as this process, and holds what `code` compiles."""
    folder = tempfile.mkdtemp(prefix="warm-start-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    side.start("-c", code, cache=folder)
    return folder


def measure(side: Side, group: str, effort: str, rows: str) -> tuple[list[dict[str, Any]], str]:
    """One group on one side, once: its rows, and why rows may be missing."""
    if group == "import":
        return list(fresh_process(side, FRESH_PROCESS, rows)), ""
    if group == "warm start":
        return list(fresh_process(side, WARM_START, rows, warm=True)), ""
    return side.work(group, effort, rows)


def compare(sides: tuple[Side, Side], group: str, effort: str, rows: str) -> list[Verdict]:
    """One group, the sides taking turns; who goes first alternates. Rows close to their bar get as many rounds more."""
    table: dict[str, Pair] = {}
    missing = ["", ""]
    rounds = ROUNDS[effort] * (2 if group in ("import", "warm start", "run") else 1)  # few samples, or noise between processes

    def verdicts() -> list[Verdict]:
        return [Verdict(group, name, pair, bar_of(sides, group, name)) for name, pair in table.items()]

    for turn in range(2 * rounds):
        if turn == rounds:
            close = [verdict.name for verdict in verdicts() if verdict.close]
            if not close:
                break
            rows = f"^({'|'.join(map(re.escape, close))})$"
        for which in (0, 1) if turn % 2 == 0 else (1, 0):
            note(f"{group}: round {turn + 1}, {sides[which].label}")
            lines, missing[which] = measure(sides[which], group, effort, rows)
            for line in lines:
                measured = table.setdefault(line["row"], (Measured(), Measured()))[which]
                measured.times += line.get("times", [])
                measured.eqns = line.get("eqns", measured.eqns)
                measured.check = line.get("check", measured.check)
                measured.error = measured.error or line.get("error", "")
        if turn == rounds - 1:
            if not table and any(missing):
                table["every row"] = (Measured(), Measured())
            for pair in table.values():
                for measured, reason in zip(pair, missing, strict=True):
                    if not measured.times and not measured.error:
                        measured.error = reason or "this side has no such row"
    return verdicts()


def bar_of(sides: tuple[Side, Side], group: str, row: str) -> float:
    """The ratio that must hold; between JAX and itself, what the noise may make of 1."""
    return 1.05 if sides[0].module == sides[1].module else ROW_BARS.get((group, row), GROUPS[group][1])


def report(group: str, verdicts: list[Verdict], labels: tuple[str, str]) -> str:
    head = ["row", *labels, "ratio", "of medians", "bar", "holds", "remarks"]
    table = aligned([head, *(verdict.cells() for verdict in verdicts)])
    return f"### {group}: {GROUPS[group][0]}\n\n{table}\n"


def summary(verdicts: list[Verdict]) -> str:
    """Rows that hold and the geometric mean of the ratios, per group and bar."""
    rows = [["group", "bar", "rows", "hold", "geometric mean", "worst"]]
    for group, bar in dict.fromkeys((v.group, v.bar) for v in verdicts):
        chosen = [v for v in verdicts if (v.group, v.bar) == (group, bar)]
        ratios = {v.ratio: v.name for v in chosen if not v.error}
        mean, worst = ("-", "-")
        if ratios:
            mean, worst = f"{geometric_mean(ratios):.2f}", f"{max(ratios):.2f} ({ratios[max(ratios)]})"
        rows.append([group, f"{bar:g}", str(len(chosen)), str(sum(v.holds for v in chosen)), mean, worst])
    failing = [f"- {v.group}: {v.name}: {v.error or f'{v.ratio:.2f}, bar {v.bar:g}'}" for v in verdicts if not v.holds]
    listed = "\n".join([f"Rows that do not hold: {len(failing)}", "", *failing]) if failing else "Every row holds."
    return f"### Summary\n\n{aligned(rows)}\n\n{listed}\n"


def machine() -> str:
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        found = re.search(r"model name\s*: (.*)", cpuinfo.read_text())
        model = found.group(1) if found else model
    return f"{model}, {os.cpu_count()} cores, {platform.system()}"


def heading(sides: tuple[Side, Side]) -> str:
    """Where, when and with what; stops the run where the two sides have different jaxlibs."""
    versions = [side.versions() for side in sides]
    told = [f"{s.label}: " + ", ".join(map(" ".join, vs.items())) for s, vs in zip(sides, versions, strict=True)]
    if versions[0]["jaxlib"] != versions[1]["jaxlib"]:
        raise SystemExit("The two sides have different jaxlibs, so this would compare two XLAs.\n" + "\n".join(told))
    arguments = [os.path.relpath(a, ROOT) if os.path.isabs(a) else a for a in sys.argv[1:]]
    facts = [
        f"Command: `{shlex.join(['python', '-m', 'benchmarks.run', *arguments])}`",
        f"Date: {datetime.date.today()}",
        f"Machine: {machine()}",
        *told,
        f"Both sides use jaxlib {versions[0]['jaxlib']}, on the CPU.",
    ]
    return "\n".join(f"- {fact}" for fact in facts) + "\n"


def jax_side(python: str) -> Side:
    if not Path(python).exists():
        jaxlib, numpy = version("jaxlib"), version("numpy")
        raise SystemExit(
            f"There is no JAX at {python}. `make bench` prepares it, or, by hand:\n"
            f"    {sys.executable} -m venv .venv-jax\n"
            f"    .venv-jax/bin/python -m pip install jax=={jaxlib} jaxlib=={jaxlib} numpy=={numpy}\n"
            f"or name another interpreter that has JAX: --jax-python PATH"
        )
    return Side("JAX", str(Path(python).absolute()), "jax")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jax-python", default=str(ROOT / ".venv-jax/bin/python"), help="an interpreter that has JAX")
    parser.add_argument("--quick", action="store_true", help="fewer rounds and shorter samples")
    parser.add_argument("--only", action="append", choices=[*GROUPS, "fusion"], help="measure this group; may be repeated")
    parser.add_argument("--rows", default="", help="regular expression: only the rows whose name it finds")
    parser.add_argument("--write", action="store_true", help="write the tables to benchmarks/RESULTS.md")
    parser.add_argument("--reasons", action="store_true", help="list the fusion barriers under the table of that group")
    parser.add_argument("--jax-twice", action="store_true", help="JAX on both sides, to see the noise")
    options = parser.parse_args()

    jax = jax_side(options.jax_python)
    ours = Side("JAX too", jax.python, "jax") if options.jax_twice else Side("jaxlite", sys.executable, "jaxlite")
    sides = (ours, jax)
    effort = "quick" if options.quick else "full"
    told = heading(sides)
    print(told)
    for side in sides:
        side.start("-c", f"import {side.module}.numpy")  # bytecode files and the disk cache are there from here on
    groups = options.only or list(GROUPS)
    everything: list[Verdict] = []
    tables = []
    for group in groups:
        if group == "fusion":
            if tuple(map(int, ours.versions()["jaxlib"].split(".")[:2])) < fusion.OLDEST_JAXLIB:
                raise SystemExit("The group fusion needs jaxlib >= 0.11 on both sides: see `make bench`.")
            programs = fusion.compare(jax, ours, effort, options.rows, note)
            print(table := fusion.report(programs, options.reasons))
            if options.write:
                write(FUSION_TITLE, [told, table])
            continue
        verdicts = compare(sides, group, effort, options.rows)
        if verdicts:
            everything += verdicts
            tables.append(report(group, verdicts, (ours.label, jax.label)))
            print(tables[-1])
    if groups != ["fusion"]:
        print(summed := summary(everything))
        if options.write:
            write(TITLE, [EXPLAINED, told, summed, *tables])


def write(title: str, parts: list[str]) -> None:
    """Replace one of the two chapters of the results."""
    before = RESULTS.read_text() if RESULTS.exists() else ""
    first, _, second = before.partition(FUSION_TITLE)
    chapters = {TITLE: first.removeprefix(TITLE).strip("\n"), FUSION_TITLE: second.strip("\n")}
    chapters[title] = "\n".join(parts).strip("\n")
    RESULTS.write_text("\n\n".join(f"{name}\n\n{text}" for name, text in chapters.items() if text) + "\n")
    print(f"written: {RESULTS.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
