"""Adds fusion barriers to a module for a compile.

XLA:CPU of jaxlib 0.10 removes barriers before it fuses. An option keeps all barriers of a module. But small loops and
reductions are compiled by an emitter that does not support barriers. Therefore no barrier is placed in what a loop
computes, and none at all if a loop has barriers already.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lowering import xla
from lowering.passes import products, shifts, tables
from lowering.passes.emitted import Emitted


def emit(module: Any, scopes: list[dict[Any, Any]], reasons: dict[Any, str], shifted: dict[Any, shifts.Shift],
         emitted: Emitted) -> list[str]:
    """Put the values of the variables in `reasons` behind barriers; returns the reasons of those placed.

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
    for value, why, shift in found:
        location = xla.ir.Location.name(f"fusion barrier: {why}", childLoc=value.owner.location, context=value.owner.context)
        with location, xla.ir.InsertionPoint.after(value.owner):
            _write(value, shift, emitted)
    return [why for _, why, _ in found]


def are_kept(module: Any) -> bool:
    """Whether XLA may be told to keep the barriers of a module: none is in what a loop computes."""
    return not xla.BARRIER_DROPPER or not _in_loops(module)[1]


def outside_of_loops(module: Any, operations: Iterable[Any]) -> list[Any]:
    """Those of some operations of a module that no loop runs."""
    functions, _ = _in_loops(module)
    return [operation for operation in operations if not _is_in_loop(operation, functions)]


def _write(value: Any, shift: shifts.Shift | None, emitted: Emitted) -> None:
    """Let all that read a value read it from memory."""
    count = len(emitted.made)
    other = shifts.read(value, shift, emitted) or tables.positions(value, emitted) or products.transposed(value, emitted)
    if other is not None:
        emitted.replace(value, other)
    else:
        emitted.replace(value, emitted.written(value), emitted.made[count])


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
