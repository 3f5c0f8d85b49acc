"""jaxlite beside JAX: `python -m benchmarks.run` from the repository root, with the interpreter that has jaxlite.

Every row is the same program text on both sides. The sides take turns in fresh processes, several rounds, so that drift
of the machine meets both; a row's ratio is the best time of jaxlite over the best time of JAX, over all rounds. A row
that misses its bar by what noise may do, or nearly does, is measured as many rounds again, on both sides. Both sides must
have the same jaxlib, or the comparison would be of two XLAs. The bars stand in `benchmarks/bars.py`, those of the fusion
barriers in `benchmarks/fusion.py`. Some are for a figure that is made of several rows: how time per equation grows, what
importing costs above what it stands on, what threads gain.

    python -m benchmarks.run                            all but what is on demand, about twenty minutes
    python -m benchmarks.run --quick                    the same, coarsely, below two minutes
    python -m benchmarks.run --only eager --rows 'at'   the eager rows whose name has "at"
    python -m benchmarks.run --write                    also writes benchmarks/RESULTS.md and draws docs/benchmarks.png
    python -m benchmarks.run --chart                    draws that picture again from the results, measures nothing
    python -m benchmarks.run --jax-twice                JAX against itself: ratios near 1, or the machine is too noisy
    python -m benchmarks.run --only 'operation run'     hundreds of single operations, on demand alone
    python -m benchmarks.run --only session             notebooks: each operation once, on demand alone
    python -m benchmarks.run --only fusion --rows RK4 --reasons --jax-python .venv-jax-latest/bin/python

The last one measures the fusion barriers, on demand alone: `make bench` does so with the newest jaxlib.

A quick run has all rows of all groups, but one round of short samples, and measures nothing again: a row that misses its
bar by little may be noise. The curve has 3,000 and 100,000 equations alone, JAX's 3,000; of the fusion programs there are
those of `latency_programs.QUICK`.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import re
import shlex
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks import chart, fresh, fusion
from benchmarks.bars import EXPLAINED, GROUPS, ON_DEMAND, Figure, Pair, Verdict, bar_of, figures, report, summary
from benchmarks.sides import ROOT, Measured, Side

RESULTS = ROOT / "benchmarks" / "RESULTS.md"
CHART = ROOT / "docs" / "benchmarks.png"
WAITS = ROOT / "docs" / "waits.png"
ROUNDS = {"quick": 1, "full": 5}
OTHER_ROUNDS = {
    ("quick", "import"): 2,
    **{("full", group): 10 for group in ("import", "warm start", "run", "processes")},  # few samples, or noise of fresh ones
    **{("full", group): 2 for group in ("curve", *ON_DEMAND)},  # half a minute or more each
}
TITLE, FUSION_TITLE = "# jaxlite beside JAX", "# Fusion barriers, with the newest jaxlib"  # the chapters of the results
JAX_TWICE_BAR = 1.05


def note(text: str) -> None:
    """Say what is being measured, where somebody watches."""
    if sys.stderr.isatty():
        print(f"\r{text:79}", end="\r", file=sys.stderr)


def measure(side: Side, group: str, effort: str, rows: str) -> tuple[list[dict[str, Any]], str]:
    """One group on one side, once: its rows, and why rows may be missing."""
    if group in fresh.GROUPS:
        return list(fresh.GROUPS[group](side, rows)), ""
    return side.work(group, effort, rows)


def compare(sides: tuple[Side, Side], group: str, effort: str, rows: str) -> tuple[list[Verdict], list[Figure]]:
    """One group, the sides taking turns; who goes first alternates. What is close to its bar gets as many rounds more."""
    table: dict[str, Pair] = {}
    missing = ["", ""]
    rounds = OTHER_ROUNDS.get((effort, group), ROUNDS[effort])
    noise_only = sides[0].module == sides[1].module  # JAX and itself: what the noise may make of 1

    def judged() -> tuple[list[Verdict], list[Figure]]:
        bars = {name: JAX_TWICE_BAR if noise_only else bar_of(group, name) for name in table}
        verdicts = [Verdict(group, name, pair, bars[name]) for name, pair in table.items()]
        return verdicts, [] if noise_only else figures(group, table)

    for turn in range(rounds if effort == "quick" else 2 * rounds):
        if turn == rounds:
            verdicts, made = judged()
            close = {row for each in [*verdicts, *made] if each.close for row in each.rows}
            if not close:
                break
            rows = f"^({'|'.join(map(re.escape, sorted(close)))})$"
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
            for name, pair in table.items():
                for measured, reason in zip(pair, missing, strict=True):
                    if not measured.times and not measured.error and (reason or bar_of(group, name)):
                        measured.error = reason or "this side has no such row"
    return judged()


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
    parser.add_argument("--chart", action="store_true", help="draw docs/benchmarks.png from the results, and measure nothing")
    parser.add_argument("--jax-twice", action="store_true", help="JAX on both sides, to see the noise")
    options = parser.parse_args()
    if options.chart:
        draw_chart()
        return

    jax = jax_side(options.jax_python)
    ours = Side("JAX too", jax.python, "jax") if options.jax_twice else Side("jaxlite", sys.executable, "jaxlite")
    sides = (ours, jax)
    effort = "quick" if options.quick else "full"
    told = heading(sides)
    print(told)
    for side in sides:
        side.start("-c", f"import {side.module}.numpy")  # bytecode files and the disk cache are there from here on
    groups = options.only or [group for group in GROUPS if group not in ON_DEMAND]
    verdicts: list[Verdict] = []
    made: list[Figure] = []
    tables = []
    for group in groups:
        if group == "fusion":
            measure_fusion(sides, effort, options, told)
            continue
        of_group, made_of_it = compare(sides, group, effort, options.rows)
        if of_group:
            verdicts += of_group
            made += made_of_it
            tables.append(report(group, of_group, (ours.label, jax.label)))
            print(tables[-1])
    if groups != ["fusion"]:
        print(summed := summary(verdicts, made))
        if options.write:
            write(TITLE, [EXPLAINED, told, summed, *tables])


def measure_fusion(sides: tuple[Side, Side], effort: str, options: argparse.Namespace, told: str) -> None:
    ours, jax = sides
    programs = fusion.compare(jax, ours, effort, options.rows, note)
    print(table := fusion.report(programs, options.reasons))
    if options.write:
        write(FUSION_TITLE, [told, table])


def write(title: str, parts: list[str]) -> None:
    """Replace one of the two chapters of the results, and draw them both."""
    before = RESULTS.read_text() if RESULTS.exists() else ""
    first, _, second = before.partition(FUSION_TITLE)
    chapters = {TITLE: first.removeprefix(TITLE).strip("\n"), FUSION_TITLE: second.strip("\n")}
    chapters[title] = "\n".join(parts).strip("\n")
    RESULTS.write_text("\n\n".join(f"{name}\n\n{text}" for name, text in chapters.items() if text) + "\n")
    print(f"written: {RESULTS.relative_to(ROOT)}")
    draw_chart()


def draw_chart() -> None:
    for draw, to in ((chart.draw, CHART), (chart.draw_waits, WAITS)):
        reason = draw(RESULTS, to)
        print(f"no chart: {reason}" if reason else f"written: {to.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
