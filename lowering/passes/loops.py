"""The equations of a program as loops: how often each runs, over which rows, and what an element costs.

A row is what XLA's innermost loop runs over: the last axis with more than one element, if there are several rows. Work is
counted in operations, of which a cheap vector operation is one (`operations.RUN_COST`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np

from lowering.passes.dce import live_parts
from lowering.passes.operations import COSTLY, ELEMENTWISE, FUSIBLE, LOOPS, RUN_COST, bodies, call_body

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
JOINING = {"concatenate": "dimension", "stack": "axis"}  # and the parameter that names the axis
STRETCHING = ELEMENTWISE | {"broadcast_in_dim"}  # their results may have more elements than an operand
REPEATED_ROW = range(16, 65)  # elements of a row that LLVM computes once for many rows, if it unrolls the row as a whole

_PARTS = ("slice", "split")
_IN_ORDER_OF_RESULT = ELEMENTWISE | {"slice"}  # computed in the order of the array that is written,
_MOSTLY = 2  # if that is not much less
_ITERATIONS = 16  # of a loop whose length is unknown
_COSTLY_WORK = 6  # operations for an element from which on a function is costly
_MOST_WORK = 64  # work for an element that is told apart from more
_MODULUS = 20  # operations for the absolute value of a complex number
_ROUNDING = 6  # operations that round a result to bfloat16


def equations(jaxpr: Any, iterations: int = 1, seen: set[tuple[int, int]] | None = None) -> Iterator[tuple[Any, int]]:
    """The equations whose results are used, also those of inner programs, and how often each runs.

    The equations of a program that is called several times are given once.
    """
    seen = set() if seen is None else seen
    if (id(jaxpr), iterations) in seen:
        return
    seen.add((id(jaxpr), iterations))
    for eqn in live_parts(jaxpr)[0]:
        yield eqn, iterations
        inner = call_body(eqn)
        if inner is not None:
            yield from equations(inner, iterations, seen)
        times = eqn.params.get("length", _ITERATIONS) if eqn.primitive.name in LOOPS else 1
        for body in bodies(eqn):
            yield from equations(body, iterations * times, seen)


class Values:
    """What is known of the values of a program when an equation reads them. Work is for one element."""

    __slots__ = ("uses", "rows", "work", "costly_work", "row_work", "gathers", "repeating")

    def __init__(self, jaxpr: Any, program: list[tuple[Any, int]]):
        self.uses = Counter([atom for eqn, _ in program for atom in eqn.invars if not hasattr(atom, "val")])
        self.rows = _transposed_rows(jaxpr, {})
        self.work: dict[Any, float] = {}  # of the elementwise operations that compute a value, up to _MOST_WORK
        self.costly_work: dict[Any, float] = {}  # that of costly functions in it, but of those that are written for several
        self.row_work: dict[Any, float] = {}  # of what computes a single row of REPEATED_ROW elements
        self.gathers: dict[Any, int] = {}  # how many gathered elements one is computed of
        self.repeating: set[Any] = set()  # values that repeat a smaller array, or are computed of one that does

    def add(self, step: Step) -> None:
        """Note what the results of an equation are; those that compute its operands come before."""
        eqn, name, cost = step.eqn, step.name, step.cost
        outvars, arrays = eqn.outvars, [atom for atom in eqn.invars if not hasattr(atom, "val")]
        if name in ELEMENTWISE:
            self.work[outvars[0]] = min(cost + sum([self.work.get(atom, 0.0) for atom in arrays]), _MOST_WORK)
            if not step.is_costly or self.uses[outvars[0]] == 1:
                before = sum([self.costly_work.get(atom, 0.0) for atom in arrays])
                self.costly_work[outvars[0]] = min(before + (cost if step.is_costly else 0.0), _MOST_WORK)
        elif name in _PARTS and (work := self.work.get(eqn.invars[0])):
            self.work.update((out, work) for out in outvars)
        if name in STRETCHING:
            out = step.out
            if out.shape and out.size == out.shape[-1] in REPEATED_ROW and name not in COSTLY:
                self.row_work[outvars[0]] = cost + max([self.row_work.get(atom, 0.0) for atom in arrays], default=0.0)
            if any(atom in self.repeating or atom.aval.ndim and 1 < atom.aval.size < out.size for atom in arrays):
                self.repeating.update(outvars)
        gathers = [self.gathers.get(atom, 0) for atom in arrays]
        if name == "gather":
            self.gathers[outvars[0]] = 1
        elif any(gathers) and name in JOINING:
            self.gathers.update((out, max(gathers)) for out in outvars)
        elif any(gathers) and name in FUSIBLE:
            self.gathers.update((out, sum(gathers)) for out in outvars)


class Step:
    """An equation without inner programs, with its first result, the row of that, and its work in all iterations."""

    __slots__ = ("eqn", "name", "out", "row", "cost", "iterations", "in_loop", "work", "is_costly", "values")

    def __init__(self, eqn: Any, iterations: int, values: Values):
        self.eqn, self.name, self.out, self.values = eqn, eqn.primitive.name, eqn.outvars[0].aval, values
        self.row, self.cost = values.rows.get(eqn.outvars[0], row_of(self.out)), _cost(eqn)
        self.iterations, self.in_loop = iterations, iterations > 1
        self.work = self.cost * getattr(self.out, "size", 1) * iterations
        self.is_costly = self.name in ELEMENTWISE and self.cost >= _COSTLY_WORK
        values.add(self)

    def most_of_operands(self, known: dict[Any, float]) -> float:
        """The largest number that is known of an operand, 0 for one of which nothing is known."""
        return max([known.get(atom, 0.0) for atom in self.eqn.invars if not hasattr(atom, "val")], default=0.0)


def row_of(aval: Any) -> int:
    """The number of elements in a row, or 0 if there is only one row."""
    shape = [extent for extent in getattr(aval, "shape", ()) if extent != 1]
    return shape[-1] if len(shape) > 1 else 0


def last_axis(shape: tuple[int, ...]) -> int:
    """The last axis with more than one element."""
    return max((axis for axis, extent in enumerate(shape) if extent > 1), default=0)


def _cost(eqn: Any) -> float:
    """The operations for an element of the result."""
    name = eqn.primitive.name
    if name == "abs" and getattr(eqn.invars[0].aval.dtype, "kind", "") == "c":
        return _MODULUS
    if name == "gather" and _gathers_rows(eqn):  # one index for a row
        return 1 + RUN_COST[name] / max(1, eqn.outvars[0].aval.shape[-1])
    is_rounded = name in ELEMENTWISE and eqn.outvars[0].aval.dtype == BFLOAT16
    return RUN_COST.get(name, 1) + (_ROUNDING if is_rounded else 0)


def _gathers_rows(eqn: Any) -> bool:
    operand = eqn.invars[0].aval
    return operand.ndim > 1 and eqn.params["slice_sizes"][-1] == operand.shape[-1] == eqn.outvars[0].aval.shape[-1]


def _transposed_rows(jaxpr: Any, rows: dict[Any, int], seen: set[int] | None = None) -> dict[Any, int]:
    """The rows of values of which only a transpose, or a vector in rows, is written: XLA computes them in its order."""
    seen = set() if seen is None else seen
    if id(jaxpr) in seen:  # a program that is called several times
        return rows
    seen.add(id(jaxpr))
    for eqn in reversed(jaxpr.eqns):
        out: Any = eqn.outvars[0] if eqn.outvars else None
        if eqn.primitive.name == "transpose" or eqn.primitive.name == "reshape" and eqn.invars[0].aval.ndim == 1:
            row = rows.get(out, row_of(out.aval))
        elif eqn.primitive.name in _IN_ORDER_OF_RESULT and out in rows:
            row = rows[out]
        else:
            inner = call_body(eqn)
            if inner is not None:
                rows.update((atom, rows[var]) for var, atom in zip(eqn.outvars, inner.outvars, strict=True) if var in rows)
            for body in (inner, *bodies(eqn)):
                if body is not None:
                    _transposed_rows(body, rows, seen)
            continue
        rows.update((atom, row) for atom in eqn.invars
                    if not hasattr(atom, "val") and out.aval.size <= atom.aval.size <= _MOSTLY * out.aval.size)
    return rows
