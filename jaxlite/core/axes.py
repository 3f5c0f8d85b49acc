"""Shapes and axes: as checked arguments, and what is left beside some axes."""

from __future__ import annotations

import functools
import operator
from collections.abc import Collection
from typing import Any

import numpy as np

from jaxlite.core import errors
from jaxlite.core.aval import Ints
from jaxlite.core.symbolic import as_sizes, exceeds
from jaxlite.core.tracing import Tracer


def canonical_shape(shape: Any, name: str = "shape") -> Ints:
    """A shape as a tuple of ints.

    Raises: TypeError for sizes that are not integers, not concrete or negative.
    """
    if not isinstance(shape, (tuple, list)):
        shape = tuple(shape) if hasattr(shape, "__iter__") else (shape,)
    try:
        sizes = as_sizes(shape)
    except TypeError:
        for size in shape:
            if isinstance(size, Tracer):
                raise TypeError(errors.tracer_message(
                    f"Shapes must be 1D sequences of concrete values of integer type, got {shape}", size,
                    "compute sizes with Python or NumPy, from .shape, not with jaxlite.numpy; if the size is an "
                    "argument, mark it static (static_argnums, static_argnames)")) from None
        raise TypeError(f"Shapes must be 1D sequences of concrete values of integer type, got {shape}.") from None
    _check_sizes(sizes, name)
    return sizes


_SIZE_LIMIT = 1 << 58  # elements; their bytes are to fit an int64 in any dtype


@functools.lru_cache(4096)
def _check_sizes(sizes: Ints, name: str) -> None:
    for size in sizes:
        if size < 0:
            raise TypeError(f"{name} must have every element be nonnegative, got {sizes}.")
    check_size(sizes)


def check_size(shape: Ints) -> None:
    """Raises ValueError for a shape of more elements than any machine has."""
    if exceeds(shape, _SIZE_LIMIT):
        raise ValueError(f"an array of shape {shape} has too many elements to address")


def canonical_axis(axis: Any, rank: int, name: str = "axis") -> int:
    """An axis in [0, rank) from one in [-rank, rank). Raises: NumPy's AxisError, a ValueError, out of that range."""
    if type(axis) is not int and isinstance(axis, Tracer):
        raise errors.ConcretizationTypeError(axis, f"{name} has to be known while tracing; mark the argument static "
                                                   "(static_argnums, static_argnames)")
    index = axis if type(axis) is int else operator.index(axis)
    if not -rank <= index < rank:
        raise np.exceptions.AxisError(f"{name} {index} is out of bounds for array of dimension {rank}")
    return index + rank if index < 0 else index


def other_axes(rank: int, axes: Collection[int]) -> list[int]:
    """The axes of an array of `rank` dimensions that are not among `axes`, in their order."""
    return [axis for axis in range(rank) if axis not in axes]


def with_sizes(shape: Ints, axis: int, *sizes: Any) -> Ints:
    """The shape with these sizes in the place of its size along `axis`."""
    return *shape[:axis], *sizes, *shape[axis + 1:]


def with_ones(shape: Ints, axes: Collection[int]) -> Ints:
    """The shape with 1 in the place of its sizes along `axes`."""
    return tuple([1 if axis in axes else size for axis, size in enumerate(shape)])
