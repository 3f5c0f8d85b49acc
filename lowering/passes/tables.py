"""Constants instead of values that depend on nothing, for which XLA:CPU would compile a kernel.

Every kernel costs XLA ten milliseconds or more. Two kinds of values need none if the program has their numbers as a
constant: positions that are written to memory (chosen by `fusion`), and the initial values of a scan's stacked results. XLA
replaces constants whose elements are equal, and one-dimensional constants that count, by computations, so the constants
must not have these forms.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from lowering import xla

_LONGEST = 1 << 17  # bytes of a table: the program is kept in memory and in the cache


def positions(value: Any, location: Any) -> list[Any]:
    """The operations that give the positions which a `stablehlo.iota` computes, or none: they may be other values, or many."""
    ir, owner = xla.ir, value.owner
    if owner.name != "stablehlo.iota":
        return []
    kind = ir.RankedTensorType(value.type)
    element = kind.element_type
    if not isinstance(element, ir.IntegerType) or math.prod(kind.shape) * element.width > 8 * _LONGEST:
        return []
    axis = ir.IntegerAttr(owner.attributes["iota_dimension"]).value
    numbers = np.indices(kind.shape, np.dtype(f"{'u' * element.is_unsigned}int{element.width}"))[axis]
    with location, ir.InsertionPoint(owner):
        table = ir.DenseElementsAttr.get(np.ascontiguousarray(numbers), shape=[1, *kind.shape], type=element)
        constant = ir.Operation.create("stablehlo.constant", [table.type], [], {"value": table})
        barrier = ir.Operation.create("stablehlo.optimization_barrier", [table.type], constant.results)
        reshape = ir.Operation.create("stablehlo.reshape", [value.type], barrier.results)
    return [constant, barrier, reshape]


@contextlib.contextmanager
def filled(buffers: Sequence[tuple[Any, int, Any, tuple[int, ...], Any]]) -> Iterator[None]:
    """Within the context, loops start from tables where they overwrite all of an array.

    Args:
      buffers: the loop, the number of its operand, the function that emitted it, shape and dtype of the array.
    """
    placed = []
    for loop, index, emitter, shape, dtype in buffers:
        if dtype.names or not 1 < math.prod(shape) <= _LONGEST // dtype.itemsize:
            continue
        numbers = np.zeros(shape, dtype)
        numbers.flat[0] = 1
        ir, before = xla.ir, loop.operands[index]
        with loop.location, ir.InsertionPoint(loop):
            table = ir.Operation.create("stablehlo.constant", [before.type], [], {"value": emitter.dense(numbers)})
        loop.operands[index] = table.result
        placed.append((loop, index, before, table))
    try:
        yield
    finally:
        for loop, index, before, table in placed:
            loop.operands[index] = before
            table.erase()
