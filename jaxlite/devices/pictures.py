"""`visualize_sharding`: a table of the devices that hold each part of an array.

A terminal shows it in colours; elsewhere it is plain text.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from jaxlite.devices import placement
from jaxlite.devices import sharding as shardings

_COLORS = (41, 42, 43, 44, 45, 46, 101, 102, 103, 104, 105, 106)  # backgrounds of ANSI terminals


def visualize_sharding(shape: Sequence[int], sharding: Any, *, use_color: bool = True, scale: float = 1.0, min_width: int = 9,
                       max_width: int = 80, color_map: Any = None) -> None:
    """Print which devices hold which part of an array.

    Args:
      shape: of the array; one or two axes.
      sharding: its sharding.
      use_color: whether parts are coloured, where the output is a terminal.
      scale, min_width, max_width: of the table and its cells, in characters.
    Raises: ValueError for an array of another number of axes.

    >>> import jaxlite as jax
    >>> mesh = jax.make_mesh((1,), ("x",))
    >>> jax.debug.visualize_sharding((8, 8), jax.NamedSharding(mesh, jax.P("x")))
    ┌───────────┐
    │   CPU 0   │
    └───────────┘
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
    longest = max(map(len, labels.values()))
    width = max(longest, min_width, min(longest, int(scale * max_width) // len(columns))) + 2

    def rule(left: str, middle: str, right: str) -> str:
        return left + middle.join(["─" * width] * len(columns)) + right

    def cell(corner: tuple[int, int], number: int) -> str:
        text = labels[corner].center(width)
        return f"\033[30;{_COLORS[number % len(_COLORS)]}m{text}\033[0m" if use_color else text

    lines = [rule("┌", "┬", "┐")]
    for number, row in enumerate(rows):
        lines.append("│" + "│".join(cell((row, column), number * len(columns) + place)
                                    for place, column in enumerate(columns)) + "│")
        lines.append(rule("├", "┼", "┤") if number + 1 < len(rows) else rule("└", "┴", "┘"))
    return "\n".join(lines)
