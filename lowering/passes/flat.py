"""Elementwise computations of arrays with short rows, as if the arrays were vectors.

XLA:CPU emits a loop for each axis of a kernel, and LLVM makes vectors of the innermost: of a row of seven or ten elements, half
a vector or none. Where a kernel only computes elements from those in the same place, or one number of all of them, it may read
and write vectors instead. Reshapes of what is in memory cost nothing, if barriers keep XLA from taking them in. docs/fusion.md
has the measurements.
"""

from __future__ import annotations

import math
from typing import Any

from lowering import xla
from lowering.passes import barriers
from lowering.passes.emitted import Emitted, element_of, shape_of
from lowering.passes.loops import equations
from lowering.passes.operations import RUN_COST
from lowering.passes.small_functions import main_of

_LEAST, _SHORT, _FEW = 8192, 64, 8  # elements of an array, of rows that are short, and of such a power of two
_COSTLY = 13  # operations for an element that vectors matter for
_COSTLY_ONES = frozenset(f"stablehlo.{name}" for name in (
    "atan2 cbrt cosine exponential exponential_minus_one log log_plus_one logistic power sine tan tanh").split()) | frozenset(
    f"chlo.{name}" for name in (
        "acos acosh asin asinh atan atanh cosh digamma erf erf_inv erfc lgamma polygamma sinh square tan zeta").split())
_CALLED_IN_64 = frozenset(f"stablehlo.{name}" for name in "cosine log_plus_one sine tan".split())
ELEMENTWISE = _COSTLY_ONES | frozenset(f"stablehlo.{name}" for name in (
    "abs add and bitcast_convert ceil clamp compare convert count_leading_zeros divide floor is_finite maximum minimum "
    "multiply negate not or popcnt reduce_precision remainder round_nearest_afz round_nearest_even rsqrt select shift_left "
    "shift_right_arithmetic shift_right_logical sign sqrt subtract xor").split())
_IN_MEMORY = frozenset(f"stablehlo.{name}" for name in (
    "optimization_barrier dot_general convolution while case sort fft custom_call return").split()) | {"func.return"}


def gains(jaxpr: Any) -> bool:
    """Whether a program has costly functions of large arrays with short rows."""
    return any(RUN_COST.get(eqn.primitive.name, 1) >= _COSTLY and _is_fit(getattr(eqn.outvars[0].aval, "shape", ()))
               for eqn, _ in equations(jaxpr) if eqn.outvars)


def _is_fit(shape: Any) -> bool:
    """Whether an array is large, has several rows, and these are short and fill no vectors."""
    extents = [extent for extent in shape if extent != 1]
    if len(extents) < 2 or not all(type(extent) is int for extent in extents):
        return False
    row = extents[-1]
    return row < _SHORT and (row <= _FEW or row & (row - 1) > 0) and math.prod(extents) >= _LEAST


def emit(module: Any, emitted: Emitted) -> list[str]:
    """Let the main program of a module compute such arrays as vectors, where a kernel does nothing else.

    Returns: the reasons of the barriers that keep vectors apart.
    """
    groups = _groups(main_of(module).regions[0].blocks[0]) if barriers.are_kept(module) else []
    for group in groups:
        _flatten(group, emitted)
    return [f"computed as a vector ({math.prod(shape_of(group[0].result))} elements)" for group in groups]


def _groups(block: Any) -> list[list[Any]]:
    """The operations of each kernel that only computes elements from those in the same place, costly functions among them."""
    group_of: dict[Any, list[Any]] = {}  # result -> the operations that read one another
    unfit: set[Any] = set()  # results of operations that read something else of their shape, or that something else reads
    for op in block.operations:
        operation = op.operation
        if operation.name not in ELEMENTWISE or not _is_fit(shape := shape_of(operation.result)):
            continue
        group = group_of[operation.result] = [operation]
        for operand in operation.operands:
            other = group_of.get(operand)
            if shape_of(operand) not in ([], shape):  # of other bits
                unfit |= {operand, operation.result}
            elif other is None:
                if _source(operand) is None:
                    unfit.add(operation.result)
            elif other is not group:
                fewer, group = sorted((group, other), key=len)
                group += fewer
                group_of.update((each.result, group) for each in fewer)
        if not all(use.owner.name in _IN_MEMORY or use.owner.name in ELEMENTWISE or _is_total(use.owner)
                   for use in operation.result.uses):
            unfit.add(operation.result)
    found: dict[int, list[Any]] = {}
    for value, group in group_of.items():  # in the order of the block
        found.setdefault(id(group), []).append(value.owner)
    return [group for group in found.values() if unfit.isdisjoint(each.result for each in group)
            and any(map(_is_in_vectors, group))]


def _is_in_vectors(operation: Any) -> bool:
    """Whether it is a costly function that XLA computes for several elements at a time."""
    is_called = operation.name in _CALLED_IN_64 and str(element_of(operation.result)) == "f64"
    return operation.name in _COSTLY_ONES and not is_called


def _is_total(operation: Any) -> bool:
    """Whether it reduces an array to a number."""
    return operation.name == "stablehlo.reduce" and len(operation.results) == 1 and not shape_of(operation.result)


def _source(value: Any) -> Any:
    """What an operand of a group is read from: an array in memory or a number; None for what a kernel would have to compute."""
    owner = value.owner
    if isinstance(owner, xla.ir.Block) or not shape_of(value) or owner.name in _IN_MEMORY:
        return value
    if owner.name == "stablehlo.broadcast_in_dim" and math.prod(shape_of(owner.operands[0])) == 1:
        return owner.operands[0]
    return _source(owner.operands[0]) if owner.name == "stablehlo.reshape" else None


def _flatten(group: list[Any], emitted: Emitted) -> None:
    """Put the operations of a group for vectors in front of those for arrays, and let what follows read their results."""
    size = math.prod(shape_of(group[0].result))
    vectors: dict[Any, Any] = {}

    def vector(value: Any) -> Any:
        if not shape_of(value):
            return value
        source = _source(value)
        if math.prod(shape_of(source)) == size:
            return emitted.written(emitted.reshaped(source, [size]))
        return emitted.broadcast(emitted.reshaped(source, []), [size], [])

    for operation in group:
        with operation.location, xla.ir.InsertionPoint(operation):
            for operand in operation.operands:
                if operand not in vectors:
                    vectors[operand] = vector(operand)
            result = operation.result
            vectors[result] = emitted.copied(operation, [size], [vectors[operand] for operand in operation.operands])
            for total in [use.owner for use in result.uses if _is_total(use.owner)]:
                emitted.replace(total.result, _of_vector(total, vectors[result], emitted))
            if any(use.owner.name in _IN_MEMORY for use in result.uses):
                emitted.replace(result, emitted.reshaped(emitted.written(vectors[result]), shape_of(result)))


def _of_vector(total: Any, vector: Any, emitted: Emitted) -> Any:
    """What reduces a vector as another operation does an array."""
    copy = total.clone(xla.ir.InsertionPoint(total))
    copy.operands[0] = vector
    copy.attributes["dimensions"] = xla.ir.DenseI64ArrayAttr.get([0], total.context)
    emitted.made.append(copy)
    return copy.results[0]
