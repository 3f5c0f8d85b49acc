"""Rows that are read shifted by a few elements: padded, rotated, or joined with a small part.

The first and last iterations of a loop over such a row differ from the others. LLVM peels them off and vectorizes the rest, if
it may emit the loop twice. docs/fusion.md has the measurements.
"""

from __future__ import annotations

from typing import Any

from lowering.passes.loops import Step, row_of
from lowering.passes.operations import FUSIBLE, bodies, call_body
from lowering.passes.recomputed import PADDED_ROW

_LINE, _ROW = 16, 32  # elements from which on the loop over a single row is long, or that over one of several
_MARGIN = 1 / 8  # of a row, which a shift adds at most
_MOST_WORK = 15  # operations for an element, an exponential, of which two copies are within the limit for shifted rows
_FEW = 640  # elements of several rows, up to which shifting by joining parts is a matter of that limit
_CHAIN = 2  # shifts of a line, each of what the last one gives, that exceed the limit


def shifts(eqn: Any) -> bool:
    """Whether it makes long rows of shorter ones: by padding (a line only by a few elements) or joining with a small part."""
    name, out = eqn.primitive.name, eqn.outvars[0].aval
    if name not in ("pad", "concatenate") or not out.shape:
        return False
    row, largest = out.shape[-1], max([atom.aval.shape[-1] for atom in eqn.invars if atom.aval.ndim == out.ndim], default=0)
    has_rows = row_of(out) > 0
    most = 1 if name == "pad" and has_rows else _MARGIN
    return row >= (_ROW if has_rows else _LINE) and 0 < row - largest <= most * row


def shifts_much_work(step: Step) -> bool:
    """Whether it shifts what takes more than an exponential to compute: two copies of that exceed the limit for shifted rows.

    In longer rows XLA writes what several pads read. A pad between elements makes two copies of its own.
    """
    eqn, values = step.eqn, step.values
    if not shifts(eqn):
        return False
    if step.name == "concatenate":
        return (not step.row or step.out.size <= _FEW) and step.most_of_operands(values.work) > _MOST_WORK
    work = values.work if step.row <= PADDED_ROW else values.costly_work
    interior = eqn.params["padding_config"][-1][2]
    return interior > 0 or work.get(eqn.invars[0], 0.0) > _MOST_WORK


def starts_rows(eqn: Any) -> bool:
    """Whether it pads a few elements to rows of 64 or more, all of which LLVM peels off."""
    if eqn.primitive.name != "pad" or not eqn.outvars[0].aval.shape:
        return False
    return eqn.outvars[0].aval.shape[-1] >= 64 and 1 < eqn.invars[0].aval.shape[-1] <= 7


def shifts_in_chain(jaxpr: Any) -> bool:
    """Whether a program shifts a line, and again what it computes of that, without writing it in between."""
    return _chains(jaxpr, (0,) * len(jaxpr.invars), {})[0] >= _CHAIN


def _chains(jaxpr: Any, inputs: tuple[int, ...], known: dict[Any, tuple[int, list[int]]]) -> tuple[int, list[int]]:
    """The most shifts of a line that follow each other, and the number of those that lead to each result, up to _CHAIN.

    Args: `inputs` has this number for each argument, `known` what was found for the same programs and inputs.
    """
    key = id(jaxpr), inputs
    if key in known:
        return known[key]
    most, before = 0, dict(zip(jaxpr.invars, inputs, strict=True))
    counts = lambda atoms: tuple([0 if hasattr(atom, "val") else before.get(atom, 0) for atom in atoms])
    for eqn in jaxpr.eqns:
        inner = call_body(eqn)
        if inner is not None:
            inside, results = _chains(inner, counts(eqn.invars), known)
            most = max(most, inside)
            before.update(zip(eqn.outvars, results, strict=True))
        elif eqn.primitive.name in FUSIBLE:
            after = max(counts(eqn.invars), default=0) + (shifts(eqn) and not row_of(eqn.outvars[0].aval))
            most = max(most, after)
            before.update((var, min(after, _CHAIN)) for var in eqn.outvars)
        for body in bodies(eqn):
            most = max(most, _chains(body, (0,) * len(body.invars), known)[0])
    known[key] = most, list(counts(jaxpr.outvars))
    return known[key]
