"""Parts of matrices by the place of an element: triangles and diagonals, for the factorizations and their rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxlite.core.values import aval_of
from jaxlite.lax import elementwise, shaping


def places(x, relation: Callable[[Any, Any], Any], offset: int = 0):
    """Where the number of the row plus `offset` is in a relation to that of the column.

    Positions are compared where the mask is read: kernels fuse them, a constant of this size would come from memory.
    """
    shape = aval_of(x).shape
    row, column = shaping.indices(shape[-2:])
    mask = relation(elementwise.add(row, shaping.full_like(row, offset)) if offset else row, column)
    return shaping.broadcast_in_dim(mask, shape, (len(shape) - 2, len(shape) - 1))


def masked(x, relation: Callable[[Any, Any], Any], offset: int = 0):
    """The elements at these places, zeros elsewhere."""
    return elementwise.select(places(x, relation, offset), x, shaping.full_like(x, 0))
