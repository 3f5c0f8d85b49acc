"""Products of a matrix with each of many, of which the result is wanted in their order, as one product of a batch.

`w @ x` for matrices `x` in a batch is one product of two matrices, and a transposition of what it gives. XLA:CPU transposes all
of `x` for it as well. With `w` repeated for each matrix nothing is transposed: its library multiplies each matrix where it is,
to where it is wanted. Kernels that compute `x`, or something of the product, transpose at little cost: there all is as it was.
docs/fusion.md has the measurements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from lowering import xla
from lowering.passes import products
from lowering.passes.emitted import Emitted, element_of, shape_of
from lowering.passes.loops import equations
from lowering.small_products import operations
from lowering.vector_products import source

_ROW = 16  # elements behind the contracted axis, at least: those that the library goes along
_WORK = 2048  # products of two elements for each matrix that are worth a call
_FLOATS = ({"f32"}, {"f64"})
_MOST_OPERATIONS = 8  # that compute an element of the matrix, for each time that it is repeated


def find(jaxpr: Any) -> set[Any]:
    """The variables that are transposes of products, outside of loops, whose calls keep them from being one function."""
    made, found = set(), set()
    for eqn, iterations in equations(jaxpr):
        if iterations == 1 and eqn.primitive.name == "dot_general" and not eqn.params["dimension_numbers"][1][0]:
            made.add(eqn.outvars[0])
        elif eqn.primitive.name == "transpose" and eqn.invars[0] in made:
            found.add(eqn.outvars[0])
    return found


def emit(scopes: Sequence[dict[Any, Any]], found: set[Any], emitted: Emitted) -> None:
    """Let those of these variables that gain by it be products of batches.

    Args: `scopes`, for each function and region of a module, its variables and their values.
    """
    for scope in scopes if found else ():
        for value in [scope[var] for var in found if var in scope]:
            product, _, order = source(value, shape_of(value))
            owner = product.owner
            if getattr(owner, "name", "") == "stablehlo.dot_general" and _is_result(value):
                with owner.location, xla.ir.InsertionPoint(owner):
                    _replace(owner, value, order, emitted)


def _is_result(value: Any) -> bool:
    """Whether a function returns a value, which is the transpose of one that nothing else reads."""
    if not all(use.owner.name == "func.return" for use in value.uses):
        return False
    while value.owner.name == "stablehlo.transpose":
        value = value.owner.operands[0]
        if len(list(value.uses)) > 1:
            return False
    return True


def _replace(owner: Any, value: Any, order: Sequence[int], emitted: Emitted) -> None:
    """Let what reads the transpose of a product read that of a batch, if it gains.

    Args: `order`, where its axes are in the product.
    """
    (contract, batch), shapes = products.numbers_of(owner), [shape_of(operand) for operand in owner.operands]
    kinds = {str(element_of(each)) for each in (value, *owner.operands)}
    if batch[0] or [len(axes) for axes in contract] != [1, 1] or "algorithm" in owner.attributes or kinds not in _FLOATS:
        return
    for side in 0, 1:
        matrix, columns = owner.operands[1 - side], shapes[1 - side]
        array, shape, places = source(owner.operands[side], shapes[side])
        axis, summed = places[contract[side][0]], contract[1 - side][0]
        free: list[list[Any]] = [[place for each, place in enumerate(places) if each not in contract[side]], ["columns"]]
        axes = [*free[side], *free[1 - side]]  # of the product, by the places of the array's
        wanted = [*range(axis), "columns", *range(axis + 1, len(shape))]
        if len(columns) != 2 or [axes[each] for each in order] != wanted or not _gains(array, axis, matrix):
            continue
        ahead = list(range(axis))
        factor = emitted.broadcast(matrix, [*shape[:axis], columns[1 - summed], shape[axis]],
                                   [axis, axis + 1] if summed == 1 else [axis + 1, axis])
        numbers = xla.ir.Attribute.parse(
            f"#stablehlo.dot<lhs_batching_dimensions = {ahead}, rhs_batching_dimensions = {ahead}, "
            f"lhs_contracting_dimensions = [{axis + 1}], rhs_contracting_dimensions = [{axis}]>")
        emitted.replace(value, emitted.make(
            "dot_general", shape_of(value), element_of(value), factor, array,
            dot_dimension_numbers=numbers, precision_config=owner.attributes["precision_config"]))
        return


def _gains(array: Any, axis: int, matrix: Any) -> bool:
    """Whether the matrices of an array, which begin with an axis, are in memory, and large enough beside the other one."""
    shape, size = shape_of(array), math.prod(shape_of(matrix))
    columns, row = size // shape[axis], math.prod(shape[axis + 1:])
    return (axis > 0 and row >= max(_ROW, columns) and size * row >= _WORK
            and not operations(array) and operations(matrix) <= _MOST_OPERATIONS)
