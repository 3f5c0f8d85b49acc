"""Reductions of short rows, such as squared distances in space, that XLA:CPU computes in loops of its own.

XLA gives reductions of large arrays of floats to a library, which spends some nanoseconds on each row of an array, however
short. A loop takes a tenth of that for rows of a few elements: for sums along rows, and for sums of whole rows. XLA recognizes
what the library can do by the reducer, so that another one with the same result keeps a reduction in XLA's hands. Its kernel
has to be compiled, which takes longer than a call of the library: it has to pay. docs/fusion.md has the measurements.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence, Set
from typing import Any

from lowering import xla
from lowering.passes.emitted import Emitted, element_of, shape_of
from lowering.passes.loops import Step, Values, equations
from lowering.passes.operations import ELEMENTWISE, IN_LIBRARY, LIBRARY_REDUCTION, bodies, call_body

_ROW, _COSTLY_ROW = 8, 6  # elements of a row at most, and of one in which costly functions are computed and reduced
_ADDED_ROW, _FEW_ROWS = 4, 32  # elements of a row that is added to others, if these are more than so many
_ROWS, _ROWS_SAVING_LESS = 1 << 15, 1 << 17  # in all iterations, from which on a call saves a hundredth of a compile
# Functions that the library takes in, and computes in vectors as XLA does not: in 64 bits; on jaxlib 0.12.
_OF_LIBRARY_IN_64, _OF_LIBRARY = ("log", "log1p"), ("sin", "cos", "tan")
_TAKEN_IN = ELEMENTWISE | {"broadcast_in_dim", "reshape", *IN_LIBRARY}


def find(jaxpr: Any) -> set[Any]:
    """The results of such reductions, in a program and in those in its equations."""
    program = list(equations(jaxpr))
    if not any(_is_fit(eqn, iterations) for eqn, iterations in program):
        return set()
    found, values = set(), Values(jaxpr, program)
    searched = {eqn.invars[0] for eqn, _ in program if eqn.primitive.name in ("argmax", "argmin")}
    for eqn, iterations in program:
        if eqn.outvars and call_body(eqn) is None and not bodies(eqn):
            step = Step(eqn, iterations, values)
            is_fit = _is_fit(eqn, iterations, step.most_of_operands(values.costly_work) > 0)
            if is_fit and (step.name == "reduce_sum" or eqn.invars[0] not in searched):  # which gives the extreme as well
                found.add(eqn.outvars[0])
    return found - _beside_functions_of_library(program)


def _beside_functions_of_library(program: Sequence[tuple[Any, int]]) -> set[Any]:
    """The results of reductions of what is computed by such a function, element by element, and those that one is computed of.

    What several equations read is written on the way, and not taken in.
    """
    same: dict[Any, Any] = {}
    for eqn, _ in program:
        if (body := call_body(eqn)) is not None:
            same.update(zip((*eqn.outvars, *body.invars), (*body.outvars, *eqn.invars), strict=True))

    def followed(atom: Any) -> Any:
        while not hasattr(atom, "val") and atom in same:
            atom = same[atom]
        return atom

    steps = [(eqn, [*map(followed, eqn.invars)]) for eqn, _ in program if call_body(eqn) is None]
    uses = Counter([atom for _, atoms in steps for atom in atoms if not hasattr(atom, "val")])
    taken_in = [(eqn, {atom for atom in atoms if not hasattr(atom, "val") and uses[atom] == 1}) for eqn, atoms in steps
                if eqn.primitive.name in _TAKEN_IN]
    found, before, behind, reduced = (set[Any]() for _ in range(4))
    for eqn, operands in taken_in:
        if _is_of_library(eqn) or operands & behind:
            (found if eqn.primitive.name in IN_LIBRARY else behind).add(eqn.outvars[0])
    for eqn, operands in reversed(taken_in):
        if eqn.primitive.name in IN_LIBRARY or eqn.outvars[0] in reduced:  # taken in by another reduction
            reduced |= operands
        elif _is_of_library(eqn) or eqn.outvars[0] in before:
            before |= operands
    return found | before


def _is_of_library(eqn: Any) -> bool:
    name = eqn.primitive.name
    if name in _OF_LIBRARY:
        return not xla.BARRIER_DROPPER
    return name in _OF_LIBRARY_IN_64 and eqn.outvars[0].aval.dtype == "float64"


def _is_fit(eqn: Any, iterations: int, is_costly: bool = False) -> bool:
    name = eqn.primitive.name
    if name not in IN_LIBRARY:
        return False
    aval, axes, is_sum = eqn.invars[0].aval, eqn.params["axes"], name == "reduce_sum"
    if type(aval.size) is not int or aval.size < LIBRARY_REDUCTION or aval.dtype not in ("float32", "float64"):
        return False
    row, is_reduced = _row(aval.shape, axes)
    is_long = not is_reduced and aval.size // eqn.outvars[0].aval.size > _FEW_ROWS
    if row < 2 or aval.size // row * iterations < (_ROWS if is_sum and not is_long else _ROWS_SAVING_LESS):
        return False
    if is_reduced:
        return row <= (_COSTLY_ROW if is_costly else _ROW)
    return is_sum and not is_costly and row <= (_ADDED_ROW if is_long else _ROW)


def _row(shape: Sequence[int], axes: Sequence[int]) -> tuple[int, bool]:
    """The number of elements beside each other that are reduced to one, or that are not, and whether they are."""
    left = [axis for axis, extent in enumerate(shape) if extent != 1]
    row, is_reduced = 1, bool(left) and left[-1] in axes
    while left and (left[-1] in axes) == is_reduced:
        row *= shape[left.pop()]
    return row, is_reduced


def emit(scopes: Sequence[dict[Any, Any]], found: Set[Any], emitted: Emitted) -> None:
    """Let the reductions that give these variables be no longer such that XLA gives them to the library.

    Args: `scopes`, for each function and region of a module, its variables and their values.
    """
    for scope in scopes if found else ():
        for var in found & scope.keys():
            value = scope[var]
            if getattr(value.owner, "name", "") == "stablehlo.reduce":
                emitted.replace(value, _reduced(value.owner, emitted))


def _reduced(operation: Any, emitted: Emitted) -> Any:
    """What the same reduction gives, with a reducer that XLA does not recognize."""
    from lowering.rules.reductions import unrecognized_region  # loaded with the program's own rules

    result = operation.results[0]
    with operation.location, xla.ir.InsertionPoint.after(operation):
        own = emitted.make("reduce", shape_of(result), element_of(result), *operation.operands, regions=1,
                           dimensions=operation.attributes["dimensions"])
    unrecognized_region(own.owner, operation.regions[0].blocks[0].operations[0].operation.name)
    return own
