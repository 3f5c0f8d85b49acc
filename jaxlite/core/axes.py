"""Shapes and axes as tuples of ints: what is left beside some axes."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from jaxlite.core.aval import Ints


def other_axes(rank: int, axes: Collection[int]) -> list[int]:
    """The axes of an array of `rank` dimensions that are not among `axes`, in their order."""
    return [axis for axis in range(rank) if axis not in axes]


def with_sizes(shape: Ints, axis: int, *sizes: Any) -> Ints:
    """The shape with these sizes in the place of its size along `axis`."""
    return *shape[:axis], *sizes, *shape[axis + 1:]


def with_ones(shape: Ints, axes: Collection[int]) -> Ints:
    """The shape with 1 in the place of its sizes along `axes`."""
    return tuple([1 if axis in axes else size for axis, size in enumerate(shape)])
