"""A function of scalars, or of arrays of fixed rank, over the leading axes of arrays that broadcast together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jaxlite.core.aval import Ints, is_cut, layouts
from jaxlite.core.tree import tree_map
from jaxlite.core.values import aval_of
from jaxlite.lax import shaping
from jaxlite.traces.batching import over_leading_axis


def map_broadcast(function: Callable[..., Any], arrays: Sequence[Any], ranks: Sequence[int]) -> Any:
    """A function's pytree of results for each index of the leading axes, which come first in its results.

    What the function computes of one argument alone is computed once for each of its elements, not for each index.

    Args:
      arrays: its arguments, whose leading axes broadcast.
      ranks: how many axes of each the function takes.
    Raises: ValueError if the leading axes do not broadcast.
    """
    leading = [aval_of(array).shape[:aval_of(array).ndim - rank] for array, rank in zip(arrays, ranks, strict=True)]
    batch = shaping.broadcast_shapes(*leading)
    if not batch:
        return function(*arrays)
    if layouts.exist and any(is_cut(aval_of(array)) for array in arrays):  # of which a reshape may lose the axes
        return _map_each_axis(function, arrays, ranks, batch)
    present = [(*(False,) * (len(batch) - len(shape)), *(extent != 1 for extent in shape)) for shape in leading]
    # Each axis by itself: of neighbours merged into one, XLA would compute the places of elements with divisions.
    axes = [tuple(each[axis] for each in present) for axis, extent in enumerate(batch) if extent != 1]

    def along(level: int, values: Sequence[Any]) -> Any:
        if level == len(axes):
            return function(*values)
        which = axes[level]

        def each(*mapped: Any) -> Any:
            parts = iter(mapped)
            return along(level + 1, [next(parts) if has else value for has, value in zip(which, values, strict=True)])

        return over_leading_axis(each, *[value for has, value in zip(which, values, strict=True) if has])

    squeezed = [shaping.reshape(array, (*(extent for extent in shape if extent != 1), *aval_of(array).shape[len(shape):]))
                for array, shape in zip(arrays, leading, strict=True)]
    results = along(0, squeezed)
    return tree_map(lambda leaf: shaping.reshape(leaf, (*batch, *aval_of(leaf).shape[len(axes):])), results)


def _map_each_axis(function: Callable[..., Any], arrays: Sequence[Any], ranks: Sequence[int], batch: Ints) -> Any:
    from jaxlite.transforms.vmap import vmap  # which imports this package

    spread = [shaping.broadcast_in_dim(array, batch + shape[len(shape) - rank:],
                                       range(len(batch) + rank - len(shape), len(batch) + rank))
              for array, rank in zip(arrays, ranks, strict=True) for shape in (aval_of(array).shape,)]
    for _ in batch:
        function = vmap(function)
    return function(*spread)
