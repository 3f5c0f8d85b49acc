"""The pictures of the results in benchmarks/RESULTS.md: a bar for each line of the summaries, and the waits of a user.

`python -m benchmarks.run --chart` draws them again; it measures nothing. It needs matplotlib, as the examples do.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.bars import SUMMARY_HEAD

GOOD, MISSED, BAR, INK, FAINT = "#2a7f9e", "#e08a2e", "#c2185b", "#222222", "#767676"
WIDTH = 11.7


# What a user waits for: the text of the picture, the heading and the row of the results.
WAITS = {
    "import, and the first result of a jitted function": ("import", "import and first jit result"),
    "import, and five operations outside of jit": ("import", "import and 5 eager operations"),
    "a training step of 12 layers, compiled by an earlier process": ("warm start", "training step, 12 layers"),
    "compiling a training step of 12 layers (jaxlib 0.12)": ("fusion", "transformer step, 12 layers"),
}


class Line(NamedTuple):
    """One line of a summary: rows of a group that have the same bar."""

    group: str
    bar: float
    rows: int
    hold: int
    mean: float
    worst: float
    worst_name: str

    @property
    def label(self) -> str:
        return f"{self.group} ({self.rows} rows)" if self.rows > 1 else f"{self.group}: {self.worst_name}"


class Chapter(NamedTuple):
    facts: dict[str, str]
    lines: list[Line]


def read(text: str) -> list[Chapter]:
    """The chapters of the results, with what their headings and summaries say; a line without a ratio is left out."""
    chapters = []
    for chapter in re.split(r"^# ", text, flags=re.M)[1:]:
        lines = []
        for table in re.findall(r"(?:^\|.*\n)+", chapter, flags=re.M):
            head, _, *rows = ([cell.strip() for cell in row.strip("|").split("|")] for row in table.splitlines())
            if head[: len(SUMMARY_HEAD)] == SUMMARY_HEAD:
                for group, bar, count, hold, mean, worst, *_ in rows:
                    if found := re.fullmatch(r"([\d.]+) \((.*)\)", worst):
                        numbers = float(bar), int(count), int(hold), float(mean), float(found[1])
                        lines.append(Line(group, *numbers, found[2]))
        if lines:
            chapters.append(Chapter(dict(re.findall(r"^- (\w+): (.*)$", chapter, flags=re.M)), lines))
    return chapters


def waits(text: str) -> dict[str, tuple[str, str, float]]:
    """For each line of `WAITS` that the results have: jaxlite's time and JAX's as texts, and their ratio."""
    found = {}
    for label, (group, name) in WAITS.items():
        for row in re.findall(rf"^\| {re.escape(name)} +\|(.*)$", text, flags=re.M):
            cells = [cell.strip() for cell in row.split("|")]
            time, jax, ratio = (cells[1], "", cells[2]) if group == "fusion" else cells[:3]
            if re.fullmatch(r"[\d.]+ m?s", time) and re.fullmatch(r"[\d.]+", ratio):
                found.setdefault(label, (time, jax or _scaled(time, float(ratio)), float(ratio)))
    return found


def draw_waits(results: Path, to: Path) -> str:
    """Draw what a user waits for to a PNG; returns why it was not drawn, or nothing."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return "this environment has no matplotlib"
    found = waits(results.read_text())
    if not found:
        return "the results have no rows of fresh processes"
    height = 0.7 + 0.66 * len(found)
    figure = Figure(figsize=(8.6, height), dpi=130, facecolor="white")
    axes = figure.add_axes((0.02, 0.0, 0.96, 1 - 0.55 / height))
    for index, (label, (time, jax, ratio)) in enumerate(found.items()):
        y = 1.25 * index
        axes.text(0, y - 0.5, label, va="center", fontsize=11, color=INK)
        for at, length, color, ink, name in ((y - 0.05, ratio, GOOD, INK, f"jaxlite {time}"),
                                             (y + 0.27, 1.0, "#c9c9c9", FAINT, f"JAX {jax}")):
            axes.barh(at, length, height=0.28, color=color)
            axes.text(length + 0.012, at, name, va="center", fontsize=10, color=ink)
    axes.set(xlim=(0, 1.16), ylim=(1.25 * len(found) - 0.7, -0.8), xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    title = {"fontsize": 14, "weight": "bold", "color": INK}
    figure.text(0.02, 1 - 0.3 / height, "What a user waits for, with jaxlite and with JAX", **title)
    to.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(to)
    return ""


def _scaled(time: str, ratio: float) -> str:
    """The other side's time, from ours and the ratio."""
    number, unit = time.split()
    other = float(number) / ratio
    if unit == "ms" and other >= 1000:
        other, unit = other / 1000, "s"
    return f"{other:.3g} {unit}"


def draw(results: Path, to: Path) -> str:
    """Draw the results to a PNG; returns why it was not drawn, or nothing."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return "this environment has no matplotlib; in one that has, `python -m benchmarks.run --chart` draws it"
    chapters = read(results.read_text())
    if not chapters:
        return "the results have no summary"
    count = sum(len(chapter.lines) for chapter in chapters)
    height = 2.1 + 0.36 * (count + 1.5 * len(chapters))  # inches, as all that follows
    figure = Figure(figsize=(WIDTH, height), dpi=130, facecolor="white")
    axes = figure.add_axes((3.8 / WIDTH, 0.9 / height, 6.2 / WIDTH, (height - 1.85) / height))
    end = min(1.6, max(1.2, 1.05 * max(line.worst for chapter in chapters for line in chapter.lines)))
    y = 0.0
    for chapter in chapters:
        _text(axes, 0, y, f"jaxlib {_version(chapter, 'jaxlib')}", end, weight="bold")
        for line in chapter.lines:
            y += 1
            _bar(axes, line, y, end)
        y += 1.5
    axes.set(xlim=(0, end), ylim=(y - 0.7, -0.6), yticks=[])
    axes.axvline(1, color=INK, linewidth=1.2, zorder=3)
    axes.grid(axis="x", color="#e6e6e6")
    axes.set_axisbelow(True)
    axes.spines[["top", "left", "right"]].set_visible(False)
    axes.tick_params(axis="x", labelsize=10, colors=INK)
    axes.set_xlabel("jaxlite / JAX   (1: as fast as JAX; shorter is better)", fontsize=10.5, color=INK)
    _headings(figure, axes, chapters, height)
    _legend(figure)
    to.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(to)
    return ""


def _bar(axes: Any, line: Line, y: float, end: float) -> None:
    axes.barh(y, min(line.mean, end), height=0.62, color=GOOD if line.hold == line.rows else MISSED, zorder=2)
    axes.plot([line.bar] * 2, [y - 0.42, y + 0.42], color=BAR, linewidth=2.4, zorder=4, solid_capstyle="butt")
    beyond = line.worst > end
    if line.rows > 1 or beyond:
        style = {"markersize": 6, "markerfacecolor": "white", "markeredgecolor": INK, "clip_on": False, "zorder": 5}
        axes.plot(min(line.worst, end), y, marker=">" if beyond else "D", **style)
    if beyond:
        axes.text(0.985 * end, y, f"{line.worst:.2f}", ha="right", va="center", fontsize=9.5, color=INK, zorder=5)
    _text(axes, 0, y, line.label, end)
    _text(axes, 1, y, f"{line.mean:.2f}", end)
    _text(axes, 2, y, f"{line.hold} of {line.rows}", end, color=INK if line.hold == line.rows else "#b35f00")


def _text(axes: Any, column: int, y: float, text: str, end: float, **style: Any) -> None:
    """Left of the bars, or in one of the two columns on their right."""
    x = (-0.012, 1.09, 1.215)[column]
    axes.text(x * end, y, text, ha="right", va="center", fontsize=10.5, **{"color": INK, **style})


def _headings(figure: Any, axes: Any, chapters: list[Chapter], height: float) -> None:
    facts = chapters[0].facts
    title = {"fontsize": 16, "weight": "bold", "color": INK}
    figure.text(0.3 / WIDTH, 1 - 0.38 / height, "jaxlite beside JAX, on the same programs", va="center", **title)
    versions = "; ".join(f"JAX {_version(chapter, 'jax')} on jaxlib {_version(chapter, 'jaxlib')}" for chapter in chapters)
    subtitle = f"{versions}  ·  {facts['Machine']}, CPU  ·  {facts['Date']}"
    figure.text(0.3 / WIDTH, 1 - 0.72 / height, subtitle, va="center", fontsize=10.5, color=FAINT)
    end = axes.get_xlim()[1]
    _text(axes, 1, 0, "mean", end, color=FAINT)
    _text(axes, 2, 0, "hold", end, color=FAINT)


def _legend(figure: Any) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    diamond = Line2D([], [], marker="D", linestyle="", markersize=6, markerfacecolor="white", markeredgecolor=INK)
    tick = Line2D([], [], marker="|", linestyle="", markersize=13, markeredgewidth=2.4, color=BAR)
    handles = [Patch(color=GOOD), Patch(color=MISSED), tick, diamond]
    labels = ["geometric mean, every row holds", "geometric mean, some rows miss", "the bar: what must hold", "the worst row"]
    figure.legend(handles, labels, loc="lower center", ncols=4, frameon=False, fontsize=10, labelcolor=INK)


def _version(chapter: Chapter, package: str) -> str:
    found = re.search(rf"\b{package} ([\d.]+)", chapter.facts["JAX"])
    return found.group(1) if found else "?"
