"""How the examples show a result: points as text in the terminal, and a PNG where matplotlib is installed."""

from __future__ import annotations

import pathlib
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np


def text(series: dict[str, tuple[Any, Any]], width: int = 64, height: int = 16) -> str:
    """Points as text. `series` maps a character to the (x, y) it stands for; later series cover earlier ones."""
    points = {mark: (np.ravel(x).astype(float), np.ravel(y).astype(float)) for mark, (x, y) in series.items()}
    (left, low), (right, high) = (
        [end(np.concatenate([pair[axis] for pair in points.values()])) for axis in (0, 1)] for end in (np.min, np.max)
    )
    grid = np.full((height, width), " ")
    for mark, (x, y) in points.items():
        column = np.round((x - left) / max(right - left, 1e-12) * (width - 1)).astype(int)
        row = np.round((high - y) / max(high - low, 1e-12) * (height - 1)).astype(int)
        grid[row, column] = mark
    label = [f"{high:.4g}", *[""] * (height - 2), f"{low:.4g}"]
    lines = [f"{name:>9} |{''.join(row)}" for name, row in zip(label, grid, strict=True)]
    end = f"{right:.4g}"
    return "\n".join([*lines, " " * 10 + "+" + "-" * width, f"{'':11}{left:<{width - len(end)}.4g}{end}"])


def save(draw: Callable[[Any], None], path: str | None, name: str, size: tuple[float, float] = (8, 4.5)) -> None:
    """A PNG of what `draw(figure)` draws, at `path` or else in a new temporary folder. Says where, or why there is none."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print("\n(matplotlib is not installed, so there is no PNG)")
        return
    figure = Figure(figsize=size, layout="constrained")
    draw(figure)
    file = pathlib.Path(path or pathlib.Path(tempfile.mkdtemp(prefix="jaxlite-example-")) / f"{name}.png")
    figure.savefig(file, dpi=120, format="png")
    print(f"\nThe plot is in {file}")
