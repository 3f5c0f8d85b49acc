"""Adds fusion barriers to a module for a compile, and removes them afterwards: the next compile may have other options.

XLA:CPU of jaxlib 0.10 removes barriers before it fuses. An option keeps all barriers of a module. But small loops and
reductions are compiled by an emitter that does not support barriers. Therefore no barrier is placed in what a loop
computes, and none at all if a loop has barriers already.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

from lowering import xla
from lowering.passes import products, shifts, tables


@contextlib.contextmanager
def placed(module: Any, scopes: list[dict[Any, Any]], reasons: dict[Any, str],
           shifted: dict[Any, shifts.Shift]) -> Iterator[list[str]]:
    """Within the context, the values of the variables in `reasons` are behind barriers; gives the reasons of those placed.

    Args:
      module: the MLIR module.
      scopes: for each function and region, its variables and their values.
      reasons: variable -> why it gets a barrier, for the reader of a dump.
      shifted: those of them that are read from arrays with margins, and how.
    """
    found = [(scope[var], why, shifted.get(var)) for scope in scopes for var, why in reasons.items()
             if var in scope and not isinstance(scope[var].owner, xla.ir.Block)]  # an argument is in memory
    if found and xla.BARRIER_DROPPER:
        functions, have_barriers = _in_loops(module)
        found = [] if have_barriers else [each for each in found if not _is_in_loop(each[0].owner, functions)]
    operations = [(value, _behind(value, why, shift)) for value, why, shift in found]
    try:
        yield [why for _, why, _ in found]
    finally:
        for value, chain in reversed(operations):
            chain[-1].result.replace_all_uses_with(value)
            for operation in reversed(chain):
                operation.erase()


def are_kept(module: Any) -> bool:
    """Whether XLA may be told to keep the barriers of a module: none is in what a loop computes."""
    return not xla.BARRIER_DROPPER or not _in_loops(module)[1]


def outside_of_loops(module: Any, operations: Iterable[Any]) -> list[Any]:
    """Those of some operations of a module that no loop runs."""
    functions, _ = _in_loops(module)
    return [operation for operation in operations if not _is_in_loop(operation, functions)]


def _behind(value: Any, why: str, shift: shifts.Shift | None) -> list[Any]:
    """The operations, the last of which all users of a value read from memory."""
    ir, owner = xla.ir, value.owner
    location = ir.Location.name(f"fusion barrier: {why}", childLoc=owner.location, context=owner.context)
    operations = (shifts.read(value, shift, location) or tables.positions(value, location)
                  or products.transposed(value, location))
    if operations:
        value.replace_all_uses_with(operations[-1].result)
    else:
        operations = _written(value, location)
        value.replace_all_uses_except(operations[-1].result, operations[0])
    return operations


def _written(value: Any, location: Any) -> list[Any]:
    """A barrier without axes of one element, which XLA would keep behind it, where its library computes such arrays slowly."""
    ir, kind = xla.ir, xla.ir.RankedTensorType(value.type)
    steps = [("optimization_barrier", kind)]
    if 1 in kind.shape:
        lean = ir.RankedTensorType.get([extent for extent in kind.shape if extent != 1], kind.element_type, loc=location)
        steps = [("reshape", lean), ("optimization_barrier", lean), ("reshape", kind)]
    operations: list[Any] = []
    for name, result in steps:
        operations.append(ir.Operation.create(f"stablehlo.{name}", [result], [value], None, None, 0, location,
                                              ir.InsertionPoint.after(value.owner)))
        value = operations[-1].result
    return operations


def _in_loops(module: Any) -> tuple[set[str], bool]:
    """The functions that loops call, directly or not, and whether there is a barrier in a loop or in one of these."""
    found: dict[str, list[Any]] = {"func.call": [], "stablehlo.optimization_barrier": []}

    def visit(operation: Any) -> Any:
        if operation.name in found:
            found[operation.name].append(operation)
        return xla.ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    calls, barriers = found.values()
    looped: set[str] = set()
    while len(looped) < len(reached := {_callee(call) for call in calls if _is_in_loop(call, looped)}):
        looped = reached
    return looped, any(_is_in_loop(barrier, looped) for barrier in barriers)


def _is_in_loop(operation: Any, functions: set[str]) -> bool:
    """Whether an operation stands in a loop, in what reduces or sorts, or in one of `functions`."""
    parent = operation.parent
    while parent.operation.name != "func.func":
        if parent.operation.name != "stablehlo.case":
            return True
        parent = parent.operation.parent
    return xla.ir.StringAttr(parent.attributes["sym_name"]).value in functions


def _callee(call: Any) -> str:
    return xla.ir.FlatSymbolRefAttr(call.attributes["callee"]).value
