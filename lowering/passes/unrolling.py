"""Chooses which loops of a program LLVM unrolls on the CPU: none, the shortest, or all that XLA asks for.

XLA asks LLVM to unroll every loop with few iterations, which takes a fifth of a compile. Most of it gains nothing. It pays
where a short loop is inside the loop over all rows, which LLVM vectorizes only once the inner loop is gone. So a program gets
one of four settings:

- SHORT_LOOPS, the usual one: a lower limit for the size of unrolled code. LLVM also vectorizes rows of eight elements, which it
  otherwise leaves alone if it has to check first whether arrays overlap.
- NO_LOOPS for programs without short loops: they only compute arrays with long rows, join and sum them, and multiply matrices.
  They also do without LLVM's reduction of addresses, which pays for moves of short rows.
- SHIFTED_LOOPS, a limit in between, where rows are read shifted (`shifted_rows`).
- XLA's own, where much of the work is in loops that have to be unrolled and exceed the limit for short loops: costly functions
  of short rows, reductions (`unrolled_reductions`), rows that are gathered or joined, and others that are named in `_WORK`.

docs/fusion.md has the measurements.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lowering.passes import products
from lowering.passes import unrolled_reductions as reductions
from lowering.passes.loops import JOINING, REPEATED_ROW, STRETCHING, Step, Values, equations, last_axis, row_of
from lowering.passes.operations import ELEMENTWISE, IN_LIBRARY, bodies, call_body
from lowering.passes.shifted_rows import shifts, shifts_in_chain, shifts_much_work, starts_rows

SHORT_LOOPS = ("--unroll-threshold=75", "--vectorizer-min-trip-count=8")
SHIFTED_LOOPS = ("--unroll-threshold=150", "--vectorizer-min-trip-count=8")
NO_LOOPS = ("xla_cpu_disable_loop_unrolling", "--disable-lsr")
_ALL_LOOPS: tuple[str, ...] = ()  # XLA's own flags

# Parts of a program's work from which on a kind of it decides, and the least operations.
_SHORT_ROWS, _EQUAL_ROWS, _TO_UNROLL, _LITTLE = 1 / 4, 1 / 8, 1 / 32, 1 / 50
_LEAST = 5000
_PRODUCTS = 8  # of two elements, which a library computes in the time of an operation


def options(jaxpr: Any) -> tuple[str, ...]:
    """The flags for XLA and LLVM: one of the settings above, for a program and those in its equations."""
    program = list(equations(jaxpr))
    if any(_updates_one_position(eqn) or iterations <= 1 and reductions.reduces_across_rows(eqn, in_loop=False)
           for eqn, iterations in program):
        return _ALL_LOOPS
    work, values = dict.fromkeys(_WORK, 0.0), Values(jaxpr, program)
    for eqn, iterations in program:
        if eqn.outvars and call_body(eqn) is None and not bodies(eqn):
            step = Step(eqn, iterations, values)
            for kind, of_step in _WORK.items():
                work[kind] += of_step(step)
    total = work["all"] + work["products"]
    # LLVM would unroll rows as a whole where a loop keeps a result of each iteration.
    few_vectors = 0.0 if any(_keeps_iterations(eqn) for eqn, _ in program) else work["few vectors"]
    if (work["short rows"] + few_vectors > max(_LEAST, _SHORT_ROWS * work["all"])
            or work["equal rows"] > max(_LEAST, _EQUAL_ROWS * total)
            or work["to unroll"] > _TO_UNROLL * total or work["starts of rows"] > _TO_UNROLL * total):
        return _ALL_LOOPS
    if work["shifted"] > _LITTLE * total:
        exceeds_limit = (work["extremes"] > _LITTLE * total
                         or work["shifted functions"] > max(_LEAST, _LITTLE * total)
                         or shifts_in_chain(jaxpr))
        return _ALL_LOOPS if exceeds_limit else SHIFTED_LOOPS
    return NO_LOOPS if work["not in long loops"] <= _LITTLE * total else SHORT_LOOPS


# --- short rows ---------------------------------------------------------------------------------------

_SHORT = (*range(2, 8), 11, 14, 15)  # elements of a row; in 9, 10, 12 and 13, costly functions need no unrolling
_SHORTEST = 3  # elements of a row that even cheap functions count in
_TWO_WAYS = ("log1p", "sinh", "asinh")  # selected from two computations, which few vectors take turns in
_TWO_WAY_ROW = range(9, 16)
_FEW_VECTORS = range(17, 101)  # elements of a row, for `log1p` in a loop


def _in_short_rows(step: Step) -> float:
    """The work of costly functions in short rows, and of all functions in the shortest."""
    is_two_ways = step.name in _TWO_WAYS and step.row in _TWO_WAY_ROW
    is_short = step.name in ELEMENTWISE and step.row in _SHORT and (step.is_costly or step.row <= _SHORTEST)
    return step.work if is_two_ways or is_short else reductions.work_in_ragged_rows(step)


def _in_few_vectors(step: Step) -> float:
    return step.work if step.name == "log1p" and step.in_loop and step.row in _FEW_VECTORS else 0.0


def _keeps_iterations(eqn: Any) -> bool:
    """Whether it is a loop with a result of each iteration."""
    return eqn.primitive.name == "scan" and len(eqn.outvars) > eqn.params["num_carry"]


# --- the same row for each of many --------------------------------------------------------------------

_EQUAL_ROW = range(100, 513)  # elements of rows that are near in memory in a loop, which LLVM unrolls as a whole
_REPEATED_WORK = 32  # operations for an element of a row that is repeated: a sine


def _in_equal_rows(step: Step) -> float:
    """The work with one row for each of many: the elements of cheap functions in a loop, and all of costly ones."""
    count = step.out.size if step.in_loop and step.row in _EQUAL_ROW and _repeats_rows(step.eqn) else 0
    return step.iterations * (count + _repeated_work(step))


def _repeats_rows(eqn: Any) -> bool:
    """Whether it computes each row with the same row of an operand."""
    out = eqn.outvars[0].aval
    if not row_of(out):
        return False
    if eqn.primitive.name == "dot_general":
        return not eqn.params["dimension_numbers"][0][0]
    return eqn.primitive.name in STRETCHING and any(
        0 < atom.aval.ndim and 1 < atom.aval.shape[-1] == out.shape[-1] and atom.aval.size < out.size for atom in eqn.invars)


def _repeated_work(step: Step) -> float:
    """The operations with which XLA computes a costly row again for each of many. LLVM does it once if it unrolls the row."""
    out, row_work = step.out, step.values.row_work
    if step.name not in STRETCHING or not out.shape or out.size == out.shape[-1] in REPEATED_ROW:
        return 0.0
    works = [row_work.get(atom, 0.0) for atom in step.eqn.invars
             if not hasattr(atom, "val") and atom.aval.size == out.shape[-1]]
    most = max(works, default=0.0)
    return out.size * most if most >= _REPEATED_WORK else 0.0


# --- rows to unroll whatever they hold ----------------------------------------------------------------

_CONVOLVED_BY_LIBRARY = ("float32", "float16", "bfloat16")
_JOINED_ROW = range(4, 8)  # elements of a row that is joined of a few arrays in a loop: each is a branch
_JOINED_WORK = 32  # operations for an element of it, at least, which LLVM does not vectorize otherwise
_GATHERS = 4  # gathered elements that an element of a short row is computed of, which LLVM gathers once if it unrolls the row
_COLLECTED_ROW = range(17, 65)  # elements of a row that are far from each other where they are read: LLVM makes vectors of them
_TILED_ROW = range(17, 32)  # elements of a row that is written several times
_FACTORED_ROW = range(24, 64)  # elements of a row of matrices whose transposition takes time beside LAPACK's factorization


def _to_unroll(step: Step) -> float:
    """The work in rows that are slow to reduce or to move unless LLVM unrolls them."""
    eqn, name, row = step.eqn, step.name, step.row
    if name == "conv_general_dilated" and step.out.dtype.name not in _CONVOLVED_BY_LIBRARY:
        kernel = eqn.invars[1].aval
        return step.iterations * step.out.size * kernel.size / max(
            1, kernel.shape[eqn.params["dimension_numbers"].rhs_spec[0]])
    if name in JOINING:
        joins_rows = step.out.shape[eqn.params[JOINING[name]]] == row > 0
        is_slow = step.in_loop and row in _JOINED_ROW or (
            row <= _SHORTEST and step.values.gathers.get(eqn.outvars[0], 0) >= _GATHERS)
        return _JOINED_WORK * step.iterations * step.out.size if joins_rows and is_slow else 0.0
    if (_collects(eqn) or name == "tile" and row_of(eqn.invars[0].aval) in _TILED_ROW
            or name == "cholesky" and row in _FACTORED_ROW):
        return step.iterations * eqn.invars[0].aval.size
    return reductions.work_to_unroll(step)


def _collects(eqn: Any) -> bool:
    """Whether it transposes to rows of elements that are far from each other in memory."""
    if eqn.primitive.name != "transpose" or row_of(eqn.outvars[0].aval) not in _COLLECTED_ROW:
        return False
    return bool(eqn.params["permutation"][last_axis(eqn.outvars[0].aval.shape)] != last_axis(eqn.invars[0].aval.shape))


# --- updates of one position --------------------------------------------------------------------------

_COMBINING = ("scatter-add", "scatter-sub", "scatter-mul", "scatter-min", "scatter-max")
_UPDATED, _WRITTEN = 2048, 65536  # elements of an array that is updated at a position, and of what is written at one


def _updates_one_position(eqn: Any) -> bool:
    """Whether it combines a value with one position of an array, or writes much at one.

    XLA's loop stores each element where it was. Once it is unrolled, LLVM sees that there is nothing to do.
    """
    name = eqn.primitive.name
    if name == "dynamic_update_slice":
        return eqn.invars[1].aval.size >= _WRITTEN
    if name != "scatter" and name not in _COMBINING:
        return False
    operand, position, updates = (atom.aval for atom in eqn.invars)
    if position.size != position.shape[-1]:
        return False
    is_combined = name != "scatter" or eqn.params["update_jaxpr"] is not None
    return operand.size >= _UPDATED if is_combined else updates.size >= _WRITTEN


# --- long loops ---------------------------------------------------------------------------------------

_LONG = 16  # elements of a row that LLVM makes a vector loop of
_SUMS_ROWS = frozenset((*IN_LIBRARY, "dot_general"))
_IN_LONG_LOOPS = ELEMENTWISE | _SUMS_ROWS | frozenset(
    "broadcast_in_dim reshape squeeze slice dynamic_slice concatenate stack iota empty copy bitcast_convert_type stop_gradient "
    "name".split())
_REPEATING = 1 / 4  # operations that it takes to repeat an element


def _not_in_long_loops(step: Step) -> float:
    """The work that is slow without unrolling or without reduction of addresses."""
    eqn = step.eqn
    found = _REPEATING * step.out.size if step.in_loop and _repeats_rows(eqn) else 0.0
    if _joins_repeated(step):
        found += step.out.size
    if not _is_long(eqn, step.in_loop):
        found += step.cost * max([getattr(atom.aval, "size", 1) for atom in (*eqn.invars, *eqn.outvars)])
    return found * step.iterations


def _is_long(eqn: Any, in_loop: bool) -> bool:
    """Whether its loops run over long rows of all operands and results, and LLVM vectorizes them."""
    name, avals = eqn.primitive.name, [atom.aval for atom in (*eqn.invars, *eqn.outvars)]
    if name not in _IN_LONG_LOOPS or not all(  # keys have no kind
            getattr(aval.dtype, "kind", "V") in "fiub" and not 0 < _line_of(aval, in_loop) < _LONG for aval in avals):
        return False
    if name == "dot_general":
        return bool(eqn.params["dimension_numbers"][0][0]) and not (in_loop and reductions.sums_products(eqn))
    if name in JOINING:
        return bool(eqn.params[JOINING[name]] < last_axis(avals[-1].shape))
    return name not in _SUMS_ROWS or avals[0].dtype.kind == "f" and not in_loop


def _line_of(aval: Any, in_loop: bool) -> int:
    """The elements of a row, and in a loop those of a lone one, unless a register has room for two."""
    return row_of(aval) or (aval.size if in_loop and aval.size > 2 else 0)


def _joins_repeated(step: Step) -> bool:
    """Whether it makes longer rows of an array that repeats a smaller one.

    The loop over a longer row divides to find the place of each element in the smaller array, unless LLVM reduces addresses.
    """
    return step.name == "reshape" and any(
        not hasattr(atom, "val") and atom in step.values.repeating and atom.aval.shape[-1:] < step.out.shape[-1:]
        for atom in step.eqn.invars)


# The kinds of work that are added up, and how much of each an equation does.
_WORK: dict[str, Callable[[Step], float]] = {
    "all": lambda step: step.work,
    "products": lambda step: (
        step.iterations * products.count(step.eqn) / _PRODUCTS if step.name == "dot_general" else 0.0),
    "short rows": _in_short_rows,
    "few vectors": _in_few_vectors,
    "equal rows": _in_equal_rows,
    "to unroll": _to_unroll,
    "shifted": lambda step: step.work if shifts(step.eqn) else 0.0,
    "shifted functions": lambda step: step.work if shifts_much_work(step) else 0.0,
    "starts of rows": lambda step: step.work if starts_rows(step.eqn) else 0.0,
    "extremes": lambda step: (
        step.iterations * step.eqn.invars[0].aval.size
        if step.in_loop and reductions.takes_extremes_in_windows(step.eqn) else 0.0),
    "not in long loops": _not_in_long_loops,
}
