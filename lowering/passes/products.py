"""Matrix products that XLA:CPU computes faster in the other order of their operands.

The gradient of a layer's weights is a product of two arrays along their first axes, the batch. XLA:CPU hands it to a library
that multiplies small blocks, and takes up to eight times as long for a tall result, many inputs and few outputs, as for a wide
one. So the wide one is computed, written, and read as its transpose. The barrier between the two keeps XLA from making one of
them again. The same goes for many such products at once, as the gradients of the values of attention are.

A first operand that is contracted along its first axes is also one that the fast library of jaxlib 0.12 does not take. If the
second has to be copied anyway, since it is contracted along an axis in the middle with a few elements behind it (cotangents of
a batch, in a Jacobian), it may come first. And XLA copies a first operand that has several other axes, as the weights of a
mixture of experts have: where that is large, the second comes first.
"""

from __future__ import annotations

import math
import re
from typing import Any

from lowering import xla
from lowering.passes.emitted import Emitted, element_of, shape_of

_MANY, _TALL = 128, 2  # elements that are summed up, and rows of the result for each column, from which on turning pays
_FEWER, _TALLER = 64, 4  # or these
_SHORTEST, _LONGER = 8, 16  # elements behind an axis in the middle that are few, and how much longer the axis is
_WIDEST = 128  # columns of a result up to which blocks are small
_FEW = 32  # columns up to which nearly nothing is copied, rows up to which the copy of the second operand is what takes long
_LARGE = 8192  # elements of a result that are worth another order where nothing else is won
_COPIED = 131072  # elements of an operand that are worth another order, so that they are not copied
_WORK = 1 << 17  # products of two elements that are worth two more kernels, where nothing takes the transpose in
_WORK_TRANSPOSED = 1 << 15  # those that are worth one, where the program itself transposes the first operand
_NUMBERS = "dot_dimension_numbers"


def is_better_transposed(eqn: Any, transposed: Any = None) -> bool:
    """Whether an equation is such a product, which its rule does not transpose.

    Args: `transposed` the equation whose result is the first operand, if that is a transposition: XLA takes it in.
    """
    if eqn.primitive.name != "dot_general":
        return False
    from lowering.rules.dot import gains_by_swapping  # loaded with the program's own rules

    (contract, of_other), (batch, of_others) = eqn.params["dimension_numbers"]
    x, y, out = (atom.aval for atom in (*eqn.invars, *eqn.outvars))
    if transposed is not None and not batch and transposed.outvars[0].aval.shape == x.shape:  # not a view of it
        x, contract = transposed.invars[0].aval, tuple(transposed.params["permutation"][axis] for axis in contract)
        if type(out.size) is not int or count(eqn) < _WORK_TRANSPOSED:
            return False
    if out.dtype not in ("float32", "float64") or not x.dtype == y.dtype == out.dtype or not _is_leading((*batch, *contract)):
        return False
    precision = eqn.params.get("precision")
    if not contract or not (precision is None or isinstance(precision, tuple) and precision[0] == precision[1]):
        return False
    if not all(type(extent) is int for extent in (*x.shape, *y.shape)):
        return False
    first = len(batch)
    summed = math.prod(x.shape[first:first + len(contract)])
    rows, columns = (math.prod(each.shape[first:]) // max(1, summed) for each in (x, y))
    if not _is_leading((*of_others, *of_other)):
        if batch:
            return False
        behind = math.prod(y.shape[max(of_other) + 1:])
        is_few = 1 < rows <= _FEW and 1 < behind <= _SHORTEST and summed >= _LONGER * behind
        is_few = is_few and not gains_by_swapping(x, y, eqn.params["dimension_numbers"], precision)
        return not xla.BARRIER_DROPPER and is_few and out.size >= _LARGE
    if not batch and x.ndim > len(contract) + 1 and summed > columns > _FEW:
        return y.ndim == len(of_other) + 1 and x.size >= _COPIED
    if columns * columns > _FEW * summed:  # what is won is less than what reading the transpose costs
        return False
    return 1 < columns <= _WIDEST and (
        summed >= _MANY and rows >= _TALL * columns or summed >= _FEWER and rows >= _TALLER * columns)


def of_arrays(eqn: Any) -> tuple[Any, Any, Any, tuple[Any, Any]]:
    """What a `dot_general` multiplies, as `small_products` asks for it."""
    left, right, out = (atom.aval for atom in (*eqn.invars, *eqn.outvars))
    dtypes = left.dtype if left.dtype == right.dtype else out.dtype, out.dtype  # as the rule converts them
    return left.shape, right.shape, eqn.params["dimension_numbers"], dtypes


def are_many(eqn: Any) -> bool:
    """Whether an equation, outside of loops, multiplies many small matrices, which a loop of XLA's own does."""
    from lowering import small_products  # loaded with the program's own rules

    return small_products.are_many(*of_arrays(eqn))


def is_little(eqn: Any) -> bool:
    """Whether such a product is not worth it where the result is to be in memory: a kernel transposes it, another copies it."""
    return count(eqn) < max(_MANY * eqn.outvars[0].aval.size, _WORK)


def count(eqn: Any) -> int:
    """The products of two elements that it adds up."""
    operand, axes = eqn.invars[0].aval, eqn.params["dimension_numbers"][0][0]
    return eqn.outvars[0].aval.size * math.prod(operand.shape[axis] for axis in axes)


def _is_leading(axes: Any) -> bool:
    return tuple(axes) == tuple(range(len(axes)))


def numbers_of(owner: Any) -> list[list[list[int]]]:
    """The dimension numbers of a `stablehlo.dot_general`: the contracted axes of both operands, and those of the batch."""
    text = str(owner.attributes[_NUMBERS])
    return [[[int(axis) for axis in re.findall(r"\d+", text.partition(f"{side}_{name}_dimensions")[2].partition("]")[0])]
             for side in ("lhs", "rhs")] for name in ("contracting", "batching")]


def transposed(value: Any, emitted: Emitted) -> Any:
    """The product of a `stablehlo.dot_general` by way of the other order; None for another operation."""
    owner = value.owner
    if owner.name != "stablehlo.dot_general":
        return None
    x, y = owner.operands
    shape = shape_of(value)
    numbers = str(owner.attributes[_NUMBERS])
    contracted, batch = (len(pair[0]) for pair in numbers_of(owner))
    start = len(shape_of(x)) - contracted  # of the columns in the result
    permutation = [*range(batch), *range(start, len(shape)), *range(batch, start)]
    swapped = numbers.replace("lhs", "own").replace("rhs", "lhs").replace("own", "rhs")
    product = emitted.make("dot_general", [shape[axis] for axis in permutation], element_of(value), y, x,
                           dot_dimension_numbers=xla.ir.Attribute.parse(swapped),
                           precision_config=owner.attributes["precision_config"])
    return emitted.transposed(emitted.written(product), [permutation.index(axis) for axis in range(len(shape))])
