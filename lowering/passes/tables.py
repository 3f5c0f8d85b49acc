"""Constants instead of values that depend on nothing, for which XLA:CPU would compile a kernel.

Every kernel costs XLA ten milliseconds or more. Two kinds of values need none if the program has their numbers as a
constant: positions that are written to memory (chosen by `fusion`), and the initial values of a scan's stacked results. XLA
replaces constants whose elements are equal, and one-dimensional constants that count, by computations, so the constants
must not have these forms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from lowering import xla
from lowering.passes.emitted import Emitted, element_of, shape_of

_LONGEST = 1 << 17  # bytes of a table: the program is kept in memory and in the cache


def positions(value: Any, emitted: Emitted) -> Any:
    """The positions that a `stablehlo.iota` computes, read from a table; None for other values, or many."""
    ir, owner = xla.ir, value.owner
    if owner.name != "stablehlo.iota":
        return None
    shape, element = shape_of(value), element_of(value)
    if not isinstance(element, ir.IntegerType) or math.prod(shape) * element.width > 8 * _LONGEST:
        return None
    axis = ir.IntegerAttr(owner.attributes["iota_dimension"]).value
    numbers = np.indices(shape, np.dtype(f"{'u' * element.is_unsigned}int{element.width}"))[axis]
    table = ir.DenseElementsAttr.get(np.ascontiguousarray(numbers), shape=[1, *shape], type=element)
    constant = emitted.make("constant", [1, *shape], element, value=table)
    return emitted.reshaped(emitted.make("optimization_barrier", [1, *shape], element, constant), shape)


def emit(buffers: Sequence[tuple[Any, int, Any, tuple[int, ...], Any]], emitted: Emitted) -> None:
    """Let loops start from tables where they overwrite all of an array.

    Args:
      buffers: the loop, the number of its operand, the function that emitted it, shape and dtype of the array.
    """
    for loop, index, emitter, shape, dtype in buffers:
        if dtype.names or not 1 < math.prod(shape) <= _LONGEST // dtype.itemsize:
            continue
        numbers = np.zeros(shape, dtype)
        numbers.flat[0] = 1
        before = loop.operands[index]
        with loop.location, xla.ir.InsertionPoint(loop):
            table = emitted.make("constant", shape_of(before), element_of(before), value=emitter.dense(numbers))
        emitted.set_operand(loop, index, table)
