"""Elementwise computations of arrays with axes of one element, as if the arrays had none.

What is reduced with `keepdims` has such axes. XLA:CPU keeps them in what it computes of it, and what its library computes is
loops of one element then. docs/fusion.md has the measurements.
"""

from __future__ import annotations

import math
from typing import Any

from lowering import xla
from lowering.passes.emitted import Emitted, lean_shape, shape_of
from lowering.passes.flat import ELEMENTWISE
from lowering.passes.loops import equations

_LEAST = 1024  # elements of an array


def gains(jaxpr: Any) -> bool:
    """Whether a program computes large arrays with axes of one element."""
    return any(_is_fit(getattr(var.aval, "shape", ())) for eqn, _ in equations(jaxpr) for var in eqn.outvars)


def _is_fit(shape: Any) -> bool:
    return 1 in shape and all(type(extent) is int for extent in shape) and math.prod(shape) >= _LEAST


def emit(module: Any, emitted: Emitted) -> None:
    """Let elementwise operations of a module give such arrays without these axes."""
    found = []

    def visit(operation: Any) -> Any:
        if operation.name in ELEMENTWISE and _is_fit(shape_of(operation.results[0])):
            found.append(operation)
        return xla.ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    for operation in found:
        with operation.location, xla.ir.InsertionPoint(operation):
            _emit_lean(operation, emitted)


def _emit_lean(operation: Any, emitted: Emitted) -> None:
    value = operation.results[0]
    operands = [emitted.reshaped(operand, lean_shape(operand)) for operand in operation.operands]
    emitted.replace(value, emitted.reshaped(emitted.copied(operation, lean_shape(value), operands), shape_of(value)))
