"""`visualize_sharding`: a table of the devices that hold each part of an array.

A terminal shows it in colours; elsewhere it is plain text.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from jaxlite.core.aval import Ints
from jaxlite.devices import placement
from jaxlite.devices import sharding as shardings

_LINES = 10  # of a picture with scale 1
_COLORS = (41, 42, 43, 44, 45, 46, 101, 102, 103, 104, 105, 106)  # backgrounds of ANSI terminals


def visualize_sharding(shape: Sequence[int], sharding: Any, *, use_color: bool = True, scale: float = 1.0, min_width: int = 9,
                       max_width: int = 80, color_map: Any = None) -> None:
    """Print which devices hold which part of an array.

    Args:
      shape: of the array; one or two axes.
      sharding: its sharding.
      use_color: whether parts are coloured, where the output is a terminal.
      scale: of the table, 10 lines high if it is 1.
      min_width, max_width: of a cell and of the table, in characters.
    Raises: ValueError for an array of another number of axes.

    >>> import jaxlite as jax
    >>> mesh = jax.make_mesh((1,), ("x",))
    >>> jax.debug.visualize_sharding((8, 8), jax.NamedSharding(mesh, jax.P("x")))
    ┌───────────────────────┐
    │                       │
    │                       │
    │                       │
    │                       │
    │         CPU 0         │
    │                       │
    │                       │
    │                       │
    │                       │
    └───────────────────────┘
    """
    shape = tuple(shape)
    if len(shape) not in (1, 2):
        raise ValueError(f"`visualize_sharding` only works for shapes with 1 and 2 dimensions, got {shape}")
    print(picture(shape, sharding, use_color and sys.stdout.isatty(), scale, min_width, max_width))


def visualize_array_sharding(arr: Any, **kwargs: Any) -> None:
    """Print which devices hold which part of an array; inside a traced function, when it is compiled.

    Args: `arr` an array with one or two axes; the rest as for `visualize_sharding`.
    """
    placement.constraints().inspect_array_sharding(arr, callback=lambda found: visualize_sharding(arr.shape, found, **kwargs))


def picture(shape: tuple[int, ...], sharding: Any, use_color: bool = False, scale: float = 1.0, min_width: int = 9,
            max_width: int = 80) -> str:
    """The table as text."""
    parts: dict[tuple[int, int], list[Any]] = {}
    for device, index in zip(shardings.devices_of(sharding), shardings.slices(sharding, shape), strict=True):
        corner = [each.indices(size)[0] for each, size in zip(index, shape, strict=True)]
        row, column = corner if len(shape) == 2 else (0, corner[0])
        parts.setdefault((row, column), []).append(device)
    rows, columns = (sorted({corner[axis] for corner in parts}) for axis in (0, 1))
    labels = {corner: f"{devices[0].platform.upper()} {','.join(str(device.id) for device in devices)}"
              for corner, devices in parts.items()}
    height, width = _cell_size(shape, len(rows), len(columns), scale, min_width, max_width)
    widths = [max(width, *(len(labels[row, column]) for row in rows)) for column in columns]

    def rule(left: str, middle: str, right: str) -> str:
        return left + middle.join(["─" * width for width in widths]) + right

    def cell(text: str, width: int, number: int) -> str:
        spare = width - len(text)
        text = " " * (spare // 2) + text + " " * (spare - spare // 2)
        return f"\033[30;{_COLORS[number % len(_COLORS)]}m{text}\033[0m" if use_color else text

    lines = [rule("┌", "┬", "┐")]
    for number, row in enumerate(rows):
        for line in range(height):
            is_middle = line == (height - 1) // 2
            texts = [labels[row, column] if is_middle else "" for column in columns]
            lines.append("│" + "│".join(cell(text, width, number * len(columns) + place)
                                        for place, (text, width) in enumerate(zip(texts, widths, strict=True))) + "│")
        lines.append(rule("├", "┼", "┤") if number + 1 < len(rows) else rule("└", "┴", "┘"))
    return "\n".join(lines)


def _cell_size(shape: tuple[int, ...], rows: int, columns: int, scale: float, min_width: int, max_width: int) -> Ints:
    """The lines and characters of a cell, so that the table has the proportions of the array: a line is 2.5 characters high.

    A vector has one line. The borders are part of `min_width` and `max_width`.
    """
    if len(shape) == 1:
        return 1, max(min_width - 2, 0)
    height = int(_LINES * scale)
    width = int(height * shape[1] / (shape[0] or 1) * 2.5) // columns
    return max(height // rows - 1, 1), max(min(width, max_width // columns), min_width) - 2
