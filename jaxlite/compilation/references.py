"""Calls of programs with Refs: the program runs on their values, and the Refs get the new values.

The memory of a Ref that the program writes to is donated, so the update is in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxlite.core.aval import AbstractRef
from jaxlite.core.discharge import Discharged, discharge_jaxpr
from jaxlite.core.jaxpr import eval_jaxpr


class RefCall:
    """The compiled form of a program with Refs: a jitted function of values."""

    __slots__ = ("found", "call", "consts")

    def __init__(self, program: Any, make_call: Any):
        closed, self.consts = program.as_operand()
        self.found: Discharged = discharge_jaxpr(closed)
        pure = self.found.closed.jaxpr
        donated = {len(self.consts) + index for index, flag in enumerate(program.donated) if flag} - set(self.found.refs)

        def run(*values: Any) -> list[Any]:
            return eval_jaxpr(pure, [], *values)

        run.__name__ = run.__qualname__ = program.name
        consts, written = [None] * len(self.consts), [None] * len(self.found.written)
        self.call = make_call(run, program.options, tuple(sorted({*donated, *self.found.written})),
                              None if program.in_shardings is None else (*consts, *program.in_shardings),
                              None if program.out_shardings is None else [*program.out_shardings, *written])

    def __call__(self, leaves: Sequence[Any]) -> list[Any]:
        return run_on_values(self.found, self.call, [*self.consts, *leaves])


def run_on_values(found: Discharged, call: Any, operands: Sequence[Any]) -> list[Any]:
    """Run a discharged program on what Refs hold, and put the new values back; `call` donates what it writes."""
    values = list(operands)
    for index in found.refs:
        cell = operands[index]
        values[index] = cell.give() if index in found.written else cell.peek()
    outs = call(*values)
    count = len(outs) - len(found.written)
    for index, value in zip(found.written, outs[count:], strict=True):
        operands[index].put(value)
    return outs[:count]


def check_distinct(leaves: Sequence[Any], avals: Sequence[Any], consts: Sequence[Any], function: str, name: Any) -> None:
    """Raises: ValueError if one Ref is passed twice, or passed and closed over. `name(index)` names an argument."""
    seen: dict[int, int] = {}
    closed_over = {_identity(const) for const in consts}
    for index, (leaf, aval) in enumerate(zip(leaves, avals, strict=True)):
        if type(aval) is not AbstractRef:
            continue
        own = _identity(leaf)
        if own in seen:
            raise ValueError("only one reference to a mutable array may be passed as an argument to a function, but when "
                             f"tracing {function} for jit the mutable array reference of type {aval!r} appeared at both "
                             f"{name(seen[own])} and {name(index)}.")
        if own in closed_over:
            raise ValueError(f"when tracing {function} for jit, a mutable array reference of type {aval!r} was both closed "
                             f"over and passed as the argument {name(index)}")
        seen[own] = index


def _identity(value: Any) -> int:
    return id(getattr(value, "atom", value))
