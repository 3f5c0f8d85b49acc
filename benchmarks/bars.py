"""What must hold: the groups with their bars, the verdict on a row, and the figures that are made of several rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import geometric_mean

from benchmarks import fresh
from benchmarks.programs import CURVE, EAGER_SHORT, curve_row
from benchmarks.sharded import STEP
from benchmarks.sides import Measured, aligned, same, seconds

Pair = tuple[Measured, Measured]  # jaxlite's side and JAX's

# Group -> what its rows measure, and the ratio jaxlite/JAX that must hold; None: its rows only serve a figure.
GROUPS: dict[str, tuple[str, float | None]] = {
    "import": ("import in a fresh process", 1.05),
    "warm start": ("first result of a fresh process, compiled by an earlier one", 0.3),
    "session": ("operations outside `jit`, each once, in a fresh process", 0.15),
    "trace": ("`jit(f).trace(*args)`, per equation", 0.2),
    "lower": ("`.lower()`, per equation", 0.3),
    "curve": ("CPU time of the same two, per equation, up to 100,000 equations, with the garbage collector on", None),
    "compile": ("`.compile()`", 1.05),
    "concurrent compile": ("`.compile()` in as many threads as cores; hashing, to see if they were free", None),
    "run": ("run time of the compiled code", 1.05),
    "first call": ("first call of a jitted function: trace, lower, compile, run", 1.05),
    "warm call": ("warm call of a jitted function", 1.05),
    "eager": ("eager operations on small arrays", 1.1),
    "sharded": ("programs over eight CPU devices", 1.05),
    "processes": ("several processes, each with a device", 1.05),
    "operation compile": ("`.compile()` of single operations", 1.05),
    "operation run": ("run time of single operations", 1.05),
}
ON_DEMAND = ("session", "operation compile", "operation run")
PLAIN_CALLS = (
    "1 array", "2 arrays", "10 arrays", "100 arrays", "10 arrays in, 10 out",
    "pytree of 36 leaves, in and out", "pytree of 36 leaves in, 1 array out",
)  # fmt: skip
ROW_BARS: dict[tuple[str, str], float | None] = {
    ("import", "import numpy API"): 0.3,
    ("import", "first small jit call"): 0.4,
    ("warm start", "first small jit call"): 0.4,
    ("warm start", "5 eager operations"): 1.05,
    ("session", "x[:n] for 1,000 n"): 0.02,
    ("session", "100 calls on data"): 0.3,
    ("session", "100 calls on numbers"): 0.8,
    ("session", "20 gradients of a new loop"): 0.2,
    **{("import", name): None for name in fresh.WHOLE_PROCESS},
    ("trace", "training step, 12 layers"): 0.12,
    ("lower", "training step, 12 layers"): 0.2,
    ("sharded", f"trace, {STEP}"): 0.2,
    ("sharded", f"lower, {STEP}"): 0.3,
    **{("sharded", name): 1.0 for name in ("call, 1 array", "call, 10 arrays", "call, 100 arrays")},
    **{("warm call", name): 1.0 for name in PLAIN_CALLS},
    **{("eager", name): 0.5 for name in EAGER_SHORT},
}
NOISE = 0.02
EXPLAINED = (
    "Times are the best of all rounds. Ratios are jaxlite/JAX: below 1, jaxlite is faster. The bar is the ratio that must "
    f"hold;\na bar of 1 allows {NOISE:.0%} of noise. How it is measured: `benchmarks/run.py`.\n"
)


def within(value: float, bar: float) -> bool:
    """Whether `value` holds `bar`: exactly, but a bar of 1 says "not slower", and equal sides would miss it half the time."""
    return value <= (bar * (1 + NOISE) if bar == 1 else bar)


def may_be_noise(value: float, bar: float) -> bool:
    """Whether noise may have decided; it can double a time, where threads or memory fell badly."""
    return 0.96 * bar < value < 2 * bar


@dataclass(frozen=True)
class Verdict:
    """One row of the tables; without a bar it is shown and not judged."""

    group: str
    name: str
    pair: Pair
    bar: float | None

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
        return not self.error and (self.bar is None or within(self.ratio, self.bar))

    @property
    def close(self) -> bool:
        return self.bar is not None and not self.error and may_be_noise(self.ratio, self.bar)

    @property
    def rows(self) -> tuple[str, ...]:
        """What to measure again where it is close."""
        return (self.name,)

    @property
    def told(self) -> str:
        return f"{self.group}: {self.name}: " + (self.error or f"{self.ratio:.2f}, bar {self.bar:g}")

    def cells(self) -> list[str]:
        name, bar = self.name.replace("|", r"\|"), "-" if self.bar is None else f"{self.bar:g}"
        ours, theirs = self.pair
        times = [seconds(m.best) if m.times else "-" for m in self.pair]
        if self.error:
            return [name, *times, "-", "-", bar, "**FAILS**", self.error.replace("|", r"\|")]
        if not theirs.times:
            return [name, *times, "-", "-", bar, "-", f"{ours.eqns} equations" if ours.eqns else ""]
        note = ""
        if ours.eqns:
            note = f"{ours.eqns} and {theirs.eqns} equations; in all {min(ours.times) / min(theirs.times):.2f}"
        holds = "-" if self.bar is None else "yes" if self.holds else "**NO**"
        return [name, *times, f"{self.ratio:.2f}", f"{ours.typical / theirs.typical:.2f}", bar, holds, note]


@dataclass(frozen=True)
class Figure:
    """A number made of several rows, with a bar for jaxlite's `value`, in the unit of the bar."""

    group: str
    name: str
    ours: str
    theirs: str
    value: float
    bar: float
    unit: str = ""
    rows: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        return within(self.value, self.bar)

    @property
    def close(self) -> bool:
        return may_be_noise(self.value, self.bar)

    @property
    def told(self) -> str:
        return f"{self.group}: {self.name}: {self.value:.3g}{self.unit}, bar {self.bar:g}{self.unit}"

    def cells(self) -> list[str]:
        return [self.group, self.name, self.ours, self.theirs, f"{self.bar:g}{self.unit}", "yes" if self.holds else "**NO**"]


def figures(group: str, table: dict[str, Pair]) -> list[Figure]:
    """The figures of a group; one whose rows were not all measured on our side is left out."""
    made: list[Figure] = []

    def add(
        name: str, rows: tuple[str, ...], value: Callable[..., float], bar: float, unit: str = "", show: str = ".2f"
    ) -> None:
        sides = [[table[row][which] for row in rows] for which in (0, 1)] if all(row in table for row in rows) else []
        told = [value(*side) if all(m.times and not m.error for m in side) else None for side in sides]
        if told and told[0] is not None:
            ours, theirs = ("-" if number is None else f"{number:{show}}{unit}" for number in told)
            made.append(Figure(group, name, ours, theirs, told[0], bar, unit, rows))

    if group == "import":
        above = lambda whole, base: 1e3 * (whole.best - base.best)
        add("above NumPy, ml_dtypes and jaxlib's extension", tuple(fresh.WHOLE_PROCESS), above, 40, " ms", ".0f")
    if group == "curve":
        for name in CURVE:
            for stage in ("trace", "lower"):
                rows = curve_row(name, 3_000, stage), curve_row(name, 100_000, stage)
                growth = lambda small, large: large.best / small.best
                add(f"{stage} growth, {name}, 3,000 to 100,000", rows, growth, 1.25)
    if group == "concurrent compile":
        rows = "compile, one after another", "compile, each in a thread"
        add("time in threads over time one after another", rows, lambda serial, threads: threads.best / serial.best, 0.7)
    if group == "eager" and len(table) > 100:  # of a choice of rows it would be another figure
        good = {name: pair for name, pair in table.items() if not Verdict(group, name, pair, None).error}
        ours, theirs = (geometric_mean(pair[which].best for pair in good.values()) for which in (0, 1))
        ratio = f"{ours / theirs:.2f} ({seconds(ours)})"
        name = f"geometric mean of {len(good)} rows"
        made.append(Figure(group, name, ratio, f"1 ({seconds(theirs)})", ours / theirs, 0.5, rows=tuple(good)))
    return made


def bar_of(group: str, row: str) -> float | None:
    return ROW_BARS.get((group, row), GROUPS[group][1])


def report(group: str, verdicts: list[Verdict], labels: tuple[str, str]) -> str:
    head = ["row", *labels, "ratio", "of medians", "bar", "holds", "remarks"]
    table = aligned([head, *(verdict.cells() for verdict in verdicts)])
    return f"### {group}: {GROUPS[group][0]}\n\n{table}\n"


SUMMARY_HEAD = ["group", "bar", "rows", "hold", "geometric mean", "worst"]


def summary_row(group: str, bar: float, ratios: dict[str, float], rows: int) -> list[str]:
    """Of the rows with one bar: how many there are, how many hold it, and their ratios in short."""
    mean, worst = ("-", "-")
    if ratios:
        name = max(ratios, key=ratios.__getitem__)
        mean, worst = f"{geometric_mean(ratios.values()):.2f}", f"{ratios[name]:.2f} ({name})"
    return [group, f"{bar:g}", str(rows), str(sum(within(ratio, bar) for ratio in ratios.values())), mean, worst]


def summary(verdicts: list[Verdict], made: list[Figure]) -> str:
    """Each group and bar in a line, the figures, and the list of what does not hold."""
    rows = [SUMMARY_HEAD]
    for group, bar in dict.fromkeys((v.group, v.bar) for v in verdicts):
        if bar is not None:
            chosen = [v for v in verdicts if (v.group, v.bar) == (group, bar)]
            rows.append(summary_row(group, bar, {v.name: v.ratio for v in chosen if not v.error}, len(chosen)))
    parts = ["### Summary", *([aligned(rows)] if rows[1:] else [])]
    if made:
        parts.append(figure_table(made))
    parts.append(failing([*verdicts, *made]))
    return "\n\n".join(parts) + "\n"


def figure_table(made: list[Figure]) -> str:
    table = aligned([["group", "figure", "jaxlite", "JAX", "bar", "holds"], *(each.cells() for each in made)])
    return (
        "Figures of several rows. The bar is for jaxlite's figure, where it is not a ratio. Growth is the time per equation\n"
        f"(per step, per layer) of the larger program over that of the smaller.\n\n{table}"
    )


def failing(judged: Iterable[Verdict | Figure]) -> str:
    told = [f"- {each.told}" for each in judged if not each.holds]
    return "\n".join([f"Rows that do not hold: {len(told)}", "", *told]) if told else "Every row holds."
