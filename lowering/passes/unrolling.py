"""Which loops of a program LLVM shall unroll on the CPU: none, the short ones, or all that XLA has it unroll.

XLA has LLVM unroll every loop of few turns, and a fifth of a compile goes into that. What pays are the shortest ones: a
reduction over a few elements, a row of three, a turn that differs from the others. They are a loop in the loop over all rows,
which LLVM vectorizes only once the inner one is gone. So LLVM gets a lower limit for what an unrolled loop may cost, and it
vectorizes rows of eight elements, which it leaves alone otherwise if it has to ask first whether arrays overlap.

Programs that only compute arrays with long rows, join and sum them up and multiply matrices have no such loops: LLVM unrolls
none of theirs, and does without its reduction of addresses, which pays for moves of short rows, and where rows that repeat
smaller arrays are joined to longer ones.

A row that is read with its elements shifted by a few, padded or rotated, is a loop whose first and last turns differ. LLVM
vectorizes it if it may unroll twice its code (it peels off these turns), which takes a higher limit: SHIFTED_LOOPS. Where a
line is shifted, and what is computed of it again, in one kernel, or more than an exponential is computed of what is padded,
this code is long, and XLA's limit is needed.

SHORT_LOOPS does not do for costly functions in rows of 2 to 7 elements, and in some longer ones, which are too much code for
this limit, for a sine of a short row that is computed again for each of many rows (LLVM sees that if it unrolls the row as a
whole), for cheap ones that compute each row of a few hundred elements with the same row, in a loop, where memory is near, for
reductions across rows that the library does not do, for those of bools and integers along rows that are not a whole number
of XLA's windows of 32, and of a single row of floats in a loop, for rows of 2 or 3 that are joined of what is gathered,
for those of pairs (`argmax`) along rows of 9 to 31, and of 4 to 8 if they also compute these rows, for those of bfloat16 along
rows of 6 to 16, for convolutions of dtypes that no library takes, for what costly functions give in rows of 9 to 31 elements
that XLA's loops reduce (in loops, and for few rows), but 16 and 24: the part of a vector at the end of a row is computed one by
one, and for an update of a single position: XLA's loop stores each element where it was, and only when it is unrolled does LLVM
see that it has nothing to do. docs/fusion.md has the measurements.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np

from lowering.passes import products
from lowering.passes.dce import live_parts
from lowering.passes.library_reads import SEARCHED_ROW
from lowering.passes.operations import (
    COSTLY,
    ELEMENTWISE,
    FUSIBLE,
    IN_LIBRARY,
    LIBRARY_REDUCTION,
    LOOPS,
    REDUCTIONS,
    RUN_COST,
    bodies,
    call_body,
)
from lowering.passes.recomputed import PADDED_ROW

SHORT_LOOPS = ("--unroll-threshold=75", "--vectorizer-min-trip-count=8")
SHIFTED_LOOPS = ("--unroll-threshold=150", "--vectorizer-min-trip-count=8")
NO_LOOPS = ("xla_cpu_disable_loop_unrolling", "--disable-lsr")

_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
_SUMS_ROWS = frozenset((*IN_LIBRARY, "dot_general"))
_IN_LONG_LOOPS = ELEMENTWISE | _SUMS_ROWS | frozenset(
    "broadcast_in_dim reshape squeeze slice dynamic_slice concatenate stack iota empty copy bitcast_convert_type stop_gradient "
    "name".split())
_JOINING = {"concatenate": "dimension", "stack": "axis"}  # and the parameter that says where
_PARTS = ("slice", "split")
_IN_PLACE = ELEMENTWISE | {"slice"}  # which are computed where their result is, in its order
_REPEATING_ROWS = ELEMENTWISE | {"broadcast_in_dim"}
_REDUCED_AT_ONCE = REDUCTIONS - {"argmax", "argmin"}
_OF_PAIRS = ("argmax", "argmin", "reduce")
_PADDED = {"reduce_and": "b", "reduce_or": "b", "reduce_sum": "iu", "reduce_prod": "iufV"}  # kinds that no library takes
_COMBINING = ("scatter-add", "scatter-sub", "scatter-mul", "scatter-min", "scatter-max")
_FEW, _FEW_IN_LOOP = 1024, 256  # elements that are reduced in no time
_UPDATED, _LARGE = 2048, 65536  # elements that are not updated, and not written, in no time
_ROW = 16  # elements that LLVM makes a vector loop of
_SHORT_ROWS = (*range(2, 8), 11, 14, 15)  # elements; of 9, 10, 12 and 13, short loops are as fast, and compile in half the time
_SHORTEST_ROW, _COSTLY = 3, 6  # elements up to which cheap operations count, and operations for an element that are many
_MODULUS, _ROUNDING = 20, 6  # what the absolute value of a complex number costs, and to make a bfloat16 of a float
_TWO_WAYS = ("log1p", "sinh", "asinh")  # selected from two computations, which take turns in few vectors of a row
_TWO_WAY_ROWS = range(9, 16)  # elements of a row, for these functions
_FEW_VECTORS = range(17, 101)  # elements of a row, for `log1p` in a loop
_MANY_VECTORS = range(100, 513)  # elements of rows that are unrolled as a whole, if longer loops are
_WHOLE_ROW, _REPEATED_WORK = range(16, 65), 32  # elements of a row that is unrolled as a whole, and what one costs: a sine
_COLLECTED_ROW = range(17, 65)  # elements of a row, far from each other where they are read, that LLVM collects in vectors
_EQUAL_SHARE, _ACROSS_SHARE = 1 / 8, 1 / 32  # of all operations, from which on repeated rows count, and sums across rows
_REPEATING = 1 / 4  # operations that it takes to repeat an element
_SHARE, _LEAST = 1 / 4, 5_000  # of all operations, from which on those in short rows count
_PAIRED_ROW = range(9, 32)  # elements of a row that is reduced by more than one operation for each,
_PAIR_WORK = 8  # which takes so many times as long as a sum across rows
_ACROSS_WORK = 2.5  # the same for an element that XLA reduces across few rows, outside of loops
_PADDED_WORK = 2.5  # what an element of a row of floats takes that is no whole number of windows
_VECTOR, _SEARCHED_ROW = 8, range(4, SEARCHED_ROW + 1)  # elements of a row that is searched for its extreme, and computed
_DERIVED, _DERIVED_MOST = 3, 64  # by so many operations for each; more are not counted
_JOINED_ROW = range(4, 8)  # elements of a row that is joined of a few arrays in a loop,
_JOIN_WORK = 32  # and what computing one of them takes, at least, where LLVM does not make vectors of it
_GATHERS = 4  # for an element of a row that is joined, from which on LLVM does not unroll the row by itself
_CONVOLVED_BY_LIBRARY = ("float32", "float16", "bfloat16")
_HALF_VECTORS = (*range(20, 24), *range(28, 32))  # elements of a row that leave half a vector over, or more
_RAGGED_ROWS = (9, 10, 12, 13, 18, 19, 26, 27, *_HALF_VECTORS)  # or some; 11, 14 and 15 are short rows
_ROUNDED_ROW = range(6, 17)  # elements of a row of bfloat16 that is summed up or multiplied
_FACTORED_ROW = range(24, 64)  # elements of a row of matrices that a library factors, where turning them takes time beside that
_WINDOWS_OF_ROW = (64, 96)  # elements of a row that XLA reduces in two or three windows
_TILED_ROW = range(17, 32)  # elements of a row that is written several times
_LITTLE = 1 / 50  # of all operations, which may be slow
_SHIFTED_ROW, _MARGIN = 32, 1 / 8  # elements of one of several rows that is a long loop, and the part that a shift adds
_LONG_ROW, _TAKEN_OUT = 64, 7  # elements of a row, and turns at its start that LLVM takes out of the loop
_SHIFTED_MOST = 15  # operations for an element that is shifted, of which LLVM makes a vector loop without all unrolling,
_LEAST_SHIFTED = 5000  # for all that is shifted so, from which on it counts,
_SHIFTED_FEW = 640  # if there are several rows with no more than so many, which are shifted by joining parts
_SHIFTED_AGAIN = 2  # shifts of a line, each of what the one before it gives
_REDUCED = 32  # elements of a window by which XLA reduces long rows
_PRODUCTS = 8  # that the library computes in the time of an operation
_TURNS = 16  # of a loop, where it is not known


def options(jaxpr: Any) -> tuple[str, ...]:
    """Flags of XLA and LLVM for a program, and for the programs in its equations: none, or one of the three lists above."""
    program = list(equations(jaxpr))
    if any(_updates_one_position(eqn) or turns <= 1 and _reduces_across_rows(eqn, False) for eqn, turns in program):
        return ()
    sums, values = dict.fromkeys(_SUMS, 0.0), _Values(jaxpr, program)
    for eqn, turns in program:
        if eqn.outvars and call_body(eqn) is None and not bodies(eqn):
            step = _Step(eqn, turns, values)
            for name, part in _SUMS.items():
                sums[name] += part(step)
    every = sums["operations"] + sums["in products"]
    # What is kept of each turn is computed in loops that LLVM would unroll as a whole.
    few_vectors = 0.0 if any(_keeps_turns(eqn) for eqn, _ in program) else sums["in few vectors"]
    if (sums["in short rows"] + few_vectors > max(_LEAST, _SHARE * sums["operations"])
            or sums["in equal rows"] > max(_LEAST, _EQUAL_SHARE * every)
            or sums["in rows to unroll"] > _ACROSS_SHARE * every or sums["starting rows"] > _ACROSS_SHARE * every):
        return ()
    if sums["shifting"] > _LITTLE * every:
        needs_all = (sums["in windows"] > _LITTLE * every
                     or sums["shifting what is derived"] > max(_LEAST_SHIFTED, _LITTLE * every)
                     or _times_shifted(jaxpr, (0,) * len(jaxpr.invars), {})[0] >= _SHIFTED_AGAIN)
        return () if needs_all else SHIFTED_LOOPS
    return NO_LOOPS if sums["not in long loops"] <= _LITTLE * every else SHORT_LOOPS


class _Values:
    """What is known of the values of a program, for the equations that read them."""

    __slots__ = ("uses", "rows", "work", "repeated", "derived", "costly", "gathers")

    def __init__(self, jaxpr: Any, program: list[tuple[Any, int]]):
        self.uses = Counter([atom for eqn, _ in program for atom in eqn.invars if not hasattr(atom, "val")])
        self.rows = _turned_rows(jaxpr, {})
        self.work: dict[Any, float] = {}  # operations for an element of a row that may be computed again
        self.repeated: set[Any] = set()  # computed by repeating a smaller array
        self.derived: dict[Any, float] = {}  # operations for an element, from those on that others are, some at most
        self.costly: dict[Any, float] = {}  # those of costly functions among them, where only one equation reads them
        self.gathers: dict[Any, int] = {}  # how often one element of a value gathers, if it does


class _Step:
    """An equation without programs in it, and what the sums ask of it: the first result, its rows, what an element costs."""

    __slots__ = ("eqn", "name", "out", "row", "cost", "turns", "in_loop", "done", "is_costly", "values")

    def __init__(self, eqn: Any, turns: int, values: _Values):
        self.eqn, self.name, self.out = eqn, eqn.primitive.name, eqn.outvars[0].aval
        self.row, self.cost = values.rows.get(eqn.outvars[0], _row(self.out)), _cost(eqn)
        self.turns, self.in_loop, self.values = turns, turns > 1, values
        self.done = self.cost * getattr(self.out, "size", 1) * turns  # operations
        self.is_costly = self.name in ELEMENTWISE and self.cost >= _COSTLY
        if self.name in ELEMENTWISE:
            (out,), operands = eqn.outvars, [atom for atom in eqn.invars if not hasattr(atom, "val")]
            values.derived[out] = min(self.cost + sum([values.derived.get(atom, 0.0) for atom in operands]), _DERIVED_MOST)
            if not self.is_costly or values.uses[out] == 1:  # XLA writes a costly one that several read
                before = sum([values.costly.get(atom, 0.0) for atom in operands])
                values.costly[out] = min(before + (self.cost if self.is_costly else 0.0), _DERIVED_MOST)
        elif self.name in _PARTS and (work := values.derived.get(eqn.invars[0])):
            values.derived.update((out, work) for out in eqn.outvars)


def _is_in_short_rows(step: _Step) -> bool:
    """Whether it computes short rows by costly functions, or the shortest by any."""
    if step.name in _TWO_WAYS and step.row in _TWO_WAY_ROWS:
        return True
    return step.row in _SHORT_ROWS and step.name in ELEMENTWISE and (step.is_costly or step.row <= _SHORTEST_ROW)


def _in_rows_to_unroll(step: _Step) -> float:
    """The elements of rows that are slow to move or reduce unless LLVM unrolls them, whatever it costs to compute them."""
    eqn, count = step.eqn, step.turns * step.eqn.invars[0].aval.size if step.eqn.invars else 0
    is_gathered = _joins_gathered(eqn, step.row, step.values.gathers)  # of every value, as later ones ask for it
    if _searches_derived(eqn, step.values.derived):
        return (_PAIR_WORK + step.values.derived[eqn.invars[0]]) * count
    if _reduces_pairs(eqn, step.in_loop):
        return _PAIR_WORK * count
    if step.name == "conv_general_dilated" and step.out.dtype.name not in _CONVOLVED_BY_LIBRARY:
        kernel = eqn.invars[1].aval
        return step.turns * step.out.size * kernel.size / max(1, kernel.shape[eqn.params["dimension_numbers"].rhs_spec[0]])
    if is_gathered or step.in_loop and _joins_short_rows(eqn, step.row):
        return _JOIN_WORK * step.turns * step.out.size
    if _pads_windows(eqn, step.in_loop):
        return count * (_PADDED_WORK if eqn.invars[0].aval.dtype.kind == "f" else 1)
    if _reduces_few_rows(step):
        return count * (_ACROSS_WORK + step.values.costly.get(eqn.invars[0], 0.0))
    is_slow = (_reduces_across_rows(eqn, step.in_loop) or _rounds_steps(eqn) or _reads_columns(eqn)
               or step.name == "tile" and _row(eqn.invars[0].aval) in _TILED_ROW
               or step.name == "cholesky" and step.row in _FACTORED_ROW)
    return count if is_slow else 0.0


def _in_equal_rows(step: _Step) -> float:
    repeats = step.in_loop and step.row in _MANY_VECTORS and _repeats_rows(step.eqn)
    return step.turns * ((step.out.size if repeats else 0) + _repeated_work(step.eqn, step.cost, step.values.work))


def _not_in_long_loops(step: _Step) -> float:
    found = _REPEATING * step.out.size if step.in_loop and _repeats_rows(step.eqn) else 0.0
    if _joins_rows(step.eqn, step.values.repeated):
        found += step.out.size
    if not _is_long(step.eqn, step.in_loop):
        found += step.cost * max([getattr(atom.aval, "size", 1) for atom in (*step.eqn.invars, *step.eqn.outvars)])
    return found * step.turns


# The operations of a program that are added up, and how many of them an equation has.
_SUMS: dict[str, Callable[[_Step], float]] = {
    "operations": lambda step: step.done,
    "in products": lambda step: step.turns * products.count(step.eqn) / _PRODUCTS if step.name == "dot_general" else 0.0,
    "in short rows": lambda step: step.done if _is_in_short_rows(step) else _work_in_ragged_rows(step),
    "in few vectors": lambda step: step.done if step.name == "log1p" and step.in_loop and step.row in _FEW_VECTORS else 0.0,
    "in equal rows": _in_equal_rows,
    "in rows to unroll": _in_rows_to_unroll,
    "shifting": lambda step: step.done if _shifts(step.eqn) else 0.0,
    "shifting what is derived": lambda step: step.done if _shifts_derived(step) else 0.0,
    "in windows": lambda step: step.turns * step.eqn.invars[0].aval.size if step.in_loop and _in_windows(step.eqn) else 0.0,
    "starting rows": lambda step: step.done if _starts_rows(step.eqn) else 0.0,
    "not in long loops": _not_in_long_loops,
}


def _joins_short_rows(eqn: Any, row: int) -> bool:
    """Whether it joins arrays to rows of a few elements, as they are written: each is computed by a branch of its own."""
    name = eqn.primitive.name
    return name in _JOINING and row in _JOINED_ROW and eqn.outvars[0].aval.shape[eqn.params[_JOINING[name]]] == row


def _joins_gathered(eqn: Any, row: int, gathers: dict[Any, int]) -> bool:
    """Whether it joins arrays to the shortest rows, and gathers the same elements for several parts of a row.

    `gathers` has how often an element of each earlier value gathers, and gets this one's.
    """
    name, found = eqn.primitive.name, [gathers.get(atom, 0) for atom in eqn.invars if not hasattr(atom, "val")]
    if name == "gather":
        gathers[eqn.outvars[0]] = 1
    elif name in _JOINING:
        most = max(found, default=0)
        gathers.update((var, most) for var in eqn.outvars)
        return 0 < row <= _SHORTEST_ROW and eqn.outvars[0].aval.shape[eqn.params[_JOINING[name]]] == row and most >= _GATHERS
    elif name in FUSIBLE and any(found):
        gathers.update((var, sum(found)) for var in eqn.outvars)
    return False


def _keeps_turns(eqn: Any) -> bool:
    """Whether it is a loop that keeps what each turn gives."""
    return eqn.primitive.name == "scan" and len(eqn.outvars) > eqn.params["num_carry"]


def _is_long(eqn: Any, in_loop: bool) -> bool:
    """Whether its loops are long: over rows of all operands and results, whose elements are vectorized."""
    name, avals = eqn.primitive.name, [atom.aval for atom in (*eqn.invars, *eqn.outvars)]
    if name not in _IN_LONG_LOOPS or not all(
            getattr(aval.dtype, "kind", "V") in "fiub" and not 0 < _row(aval) < _ROW for aval in avals):  # keys have no kind
        return False
    if name == "dot_general":
        return bool(eqn.params["dimension_numbers"][0][0]) and not (in_loop and _sums_products(eqn))
    if name in _JOINING:
        return bool(eqn.params[_JOINING[name]] < _last_axis(avals[-1].shape))
    return name not in _SUMS_ROWS or avals[0].dtype.kind == "f" and not in_loop


def _joins_rows(eqn: Any, repeated: set[Any]) -> bool:
    """Whether it makes longer rows of an array that is computed by repeating a smaller one.

    The loop over a longer row divides to find each element's place in the smaller array, unless LLVM reduces addresses.
    `repeated` has the arrays of earlier equations that are computed so, and gets this one.
    """
    out = eqn.outvars[0].aval
    arrays = [atom for atom in eqn.invars if not hasattr(atom, "val")]
    if eqn.primitive.name in _REPEATING_ROWS and any(
            atom in repeated or atom.aval.ndim and 1 < atom.aval.size < out.size for atom in arrays):
        repeated.update(eqn.outvars)
    return eqn.primitive.name == "reshape" and any(
        atom in repeated and atom.aval.shape[-1:] < out.shape[-1:] for atom in arrays)


def _shifts(eqn: Any) -> bool:
    """Whether it makes long rows of shorter ones: padding (of a line, by a few elements), or joining with a small part."""
    name, out = eqn.primitive.name, eqn.outvars[0].aval
    if name not in ("pad", "concatenate") or not out.shape:
        return False
    row, largest = out.shape[-1], max([atom.aval.shape[-1] for atom in eqn.invars if atom.aval.ndim == out.ndim], default=0)
    most = 1 if name == "pad" and _row(out) else _MARGIN
    return row >= (_SHIFTED_ROW if _row(out) else _ROW) and 0 < row - largest <= most * row


def _shifts_derived(step: _Step) -> bool:
    """Whether it shifts what more than an exponential is computed for: twice its code is above the limit for shifted rows.

    In longer rows XLA writes what several pads read. Pads between elements are twice the code as well.
    """
    eqn, derived = step.eqn, step.values.derived
    if not _shifts(eqn):
        return False
    if step.name == "concatenate":
        is_small = not step.row or step.out.size <= _SHIFTED_FEW
        return is_small and max([derived.get(atom, 0.0) for atom in eqn.invars if not hasattr(atom, "val")]) > _SHIFTED_MOST
    known = derived if step.row <= PADDED_ROW else step.values.costly
    return eqn.params["padding_config"][-1][2] > 0 or known.get(eqn.invars[0], 0.0) > _SHIFTED_MOST


def _starts_rows(eqn: Any) -> bool:
    """Whether it puts a few elements into long rows, as many as LLVM takes out of the loop over a row."""
    if eqn.primitive.name != "pad" or not eqn.outvars[0].aval.shape:
        return False
    return eqn.outvars[0].aval.shape[-1] >= _LONG_ROW and 1 < eqn.invars[0].aval.shape[-1] <= _TAKEN_OUT


def _times_shifted(jaxpr: Any, inputs: tuple[int, ...], known: dict[Any, tuple[int, list[int]]]) -> tuple[int, list[int]]:
    """How many shifts of a line follow each other between two values in memory, at most, and before each result.

    `inputs` has those before each argument. None is counted beyond _SHIFTED_AGAIN; `known` has what was asked before.
    """
    key = id(jaxpr), inputs
    if key in known:
        return known[key]
    most, before = 0, dict(zip(jaxpr.invars, inputs, strict=True))
    counts = lambda atoms: tuple([0 if hasattr(atom, "val") else before.get(atom, 0) for atom in atoms])
    for eqn in jaxpr.eqns:
        inner = call_body(eqn)
        if inner is not None:
            inside, results = _times_shifted(inner, counts(eqn.invars), known)
            most = max(most, inside)
            before.update(zip(eqn.outvars, results, strict=True))
        elif eqn.primitive.name in FUSIBLE:
            after = max(counts(eqn.invars), default=0) + (_shifts(eqn) and not _row(eqn.outvars[0].aval))
            most = max(most, after)
            before.update((var, min(after, _SHIFTED_AGAIN)) for var in eqn.outvars)
        for body in bodies(eqn):
            most = max(most, _times_shifted(body, (0,) * len(body.invars), known)[0])
    known[key] = most, list(counts(jaxpr.outvars))
    return known[key]


def _repeats_rows(eqn: Any) -> bool:
    """Whether it computes each row with one and the same row of an operand."""
    out = eqn.outvars[0].aval
    if not _row(out):
        return False
    if eqn.primitive.name == "dot_general":
        return not eqn.params["dimension_numbers"][0][0]
    return eqn.primitive.name in _REPEATING_ROWS and any(
        0 < atom.aval.ndim and 1 < atom.aval.shape[-1] == out.shape[-1] and atom.aval.size < out.size for atom in eqn.invars)


def _repeated_work(eqn: Any, cost: float, work: dict[Any, float]) -> float:
    """The operations for a costly row that an equation repeats for each of many; `work` has those for an element of each row.

    LLVM does them once if it unrolls the row as a whole.
    """
    out = eqn.outvars[0].aval
    if eqn.primitive.name not in _REPEATING_ROWS or not out.shape:
        return 0.0
    before = [0.0 if hasattr(atom, "val") else work.get(atom, 0.0) for atom in eqn.invars]
    if out.size == out.shape[-1] in _WHOLE_ROW:
        if eqn.primitive.name not in COSTLY:
            work[eqn.outvars[0]] = cost + max(before, default=0.0)
        return 0.0
    return out.size * max([each for each, atom in zip(before, eqn.invars, strict=True)
                           if each >= _REPEATED_WORK and atom.aval.size == out.shape[-1]], default=0.0)


def _reads_columns(eqn: Any) -> bool:
    """Whether it writes rows of elements that are far from each other in memory."""
    if eqn.primitive.name != "transpose" or _row(eqn.outvars[0].aval) not in _COLLECTED_ROW:
        return False
    return bool(eqn.params["permutation"][_last_axis(eqn.outvars[0].aval.shape)] != _last_axis(eqn.invars[0].aval.shape))


def _turned_rows(jaxpr: Any, rows: dict[Any, int], seen: set[int] | None = None) -> dict[Any, int]:
    """The lengths of rows of values that are computed in the order of their transpose, which alone is written."""
    seen = set() if seen is None else seen
    if id(jaxpr) in seen:  # a program that is called several times
        return rows
    seen.add(id(jaxpr))
    for eqn in reversed(jaxpr.eqns):
        out: Any = eqn.outvars[0] if eqn.outvars else None
        if eqn.primitive.name == "transpose":
            row = rows.get(out, _row(out.aval))
        elif eqn.primitive.name in _IN_PLACE and out in rows:
            row = rows[out]
        else:
            for body in (call_body(eqn), *bodies(eqn)):
                if body is not None:
                    _turned_rows(body, rows, seen)
            continue
        rows.update((atom, row) for atom in eqn.invars if not hasattr(atom, "val") and atom.aval.size >= out.aval.size)
    return rows


def equations(jaxpr: Any, turns: int = 1, seen: set[tuple[int, int]] | None = None) -> Iterator[tuple[Any, int]]:
    """What a program computes that is used, and how often; equations of a program that is called several times once."""
    seen = set() if seen is None else seen
    if (id(jaxpr), turns) in seen:
        return
    seen.add((id(jaxpr), turns))
    for eqn in live_parts(jaxpr)[0]:
        yield eqn, turns
        inner = call_body(eqn)
        if inner is not None:
            yield from equations(inner, turns, seen)
        for body in bodies(eqn):
            yield from equations(body, turns * (eqn.params.get("length", _TURNS) if eqn.primitive.name in LOOPS else 1), seen)


def _cost(eqn: Any) -> float:
    """The operations for an element of its result."""
    name = eqn.primitive.name
    if name == "abs" and getattr(eqn.invars[0].aval.dtype, "kind", "") == "c":
        return _MODULUS
    if name == "gather" and _gathers_rows(eqn):  # one index for a row
        return 1 + RUN_COST[name] / max(1, eqn.outvars[0].aval.shape[-1])
    is_rounded = name in ELEMENTWISE and eqn.outvars[0].aval.dtype == _BFLOAT16
    return RUN_COST.get(name, 1) + (_ROUNDING if is_rounded else 0)


def _gathers_rows(eqn: Any) -> bool:
    operand = eqn.invars[0].aval
    return operand.ndim > 1 and eqn.params["slice_sizes"][-1] == operand.shape[-1] == eqn.outvars[0].aval.shape[-1]


def _row(aval: Any) -> int:
    """The elements of a row, if there are several rows."""
    shape = [extent for extent in getattr(aval, "shape", ()) if extent != 1]
    return shape[-1] if len(shape) > 1 else 0


def _reduces_across_rows(eqn: Any, in_loop: bool) -> bool:
    """Whether it reduces along other axes than the last, and the library of sums does not."""
    name = eqn.primitive.name
    if name not in REDUCTIONS and name != "reduce":
        return False
    aval = eqn.invars[0].aval
    if not _is_by_xla(eqn, in_loop) or aval.size <= _FEW and not in_loop:
        return False
    shape, axes = aval.shape, _reduced_axes(eqn)
    return _last_axis(shape) not in axes and any(shape[axis] > 1 for axis in axes)


def _reduces_few_rows(step: _Step) -> bool:
    """Whether it reduces across rows what is too little for the library, and no whole number of XLA's windows of rows.

    LLVM makes vectors of columns once the loop over the rows is gone.
    """
    if step.in_loop or step.name not in IN_LIBRARY:
        return False
    (operand,) = step.eqn.invars
    aval, axes = operand.aval, step.eqn.params["axes"]
    few = _FEW_IN_LOOP if step.values.costly.get(operand) else _FEW
    if not few < aval.size < LIBRARY_REDUCTION or _last_axis(aval.shape) in axes:
        return False
    return any(aval.shape[axis] % _REDUCED for axis in axes if aval.shape[axis] > 1)


def _is_by_xla(eqn: Any, in_loop: bool) -> bool:
    """Whether a reduction is a loop of XLA's, into which it fuses what is reduced, and none of a library."""
    name, aval = eqn.primitive.name, eqn.invars[0].aval
    if _is_two_reductions(eqn, in_loop):
        return in_loop and aval.size < LIBRARY_REDUCTION
    in_library = name in IN_LIBRARY and aval.dtype.kind in "fV" and not (name == "reduce_sum" and aval.dtype == np.float16)
    return not in_library or in_loop and aval.size < LIBRARY_REDUCTION


def _work_in_ragged_rows(step: _Step) -> float:
    """The operations of costly functions in rows that XLA's loops reduce, and that leave a part of a vector over.

    LLVM computes that part one by one, and all at once in vectors of rows if it unrolls the loop over a row.
    """
    eqn, name, rows = step.eqn, step.name, _RAGGED_ROWS
    if name == "dot_general":
        if not (step.in_loop and _sums_products(eqn)):
            return 0.0
        axes = eqn.params["dimension_numbers"][0][0]
    elif name in _REDUCED_AT_ONCE and _is_by_xla(eqn, True):  # which small ones are outside of loops, too
        axes = _reduced_axes(eqn)
        rows = rows if step.in_loop or _is_by_xla(eqn, False) else _HALF_VECTORS
    else:
        return 0.0
    aval = eqn.invars[0].aval
    work = max([step.values.costly.get(atom, 0.0) for atom in eqn.invars if not hasattr(atom, "val")], default=0.0)
    is_slow = work >= _COSTLY and _row(aval) in rows and _last_axis(aval.shape) in axes
    return step.turns * aval.size * work if is_slow and (step.in_loop or aval.size > _FEW) else 0.0


def _sums_products(eqn: Any) -> bool:
    """Whether a product is one of vectors, for each of several: a sum, which XLA computes in a loop of its own."""
    (contracted, _), (batched, _) = eqn.params["dimension_numbers"]
    return all(len(contracted) + len(batched) == atom.aval.ndim for atom in eqn.invars)


def _in_windows(eqn: Any) -> bool:
    """Whether it is an extreme along rows that XLA takes in windows, which are slow with the limit for shifted rows."""
    if eqn.primitive.name not in ("reduce_max", "reduce_min"):
        return False
    aval = eqn.invars[0].aval
    return aval.size < LIBRARY_REDUCTION and _row(aval) in _WINDOWS_OF_ROW and _last_axis(aval.shape) in _reduced_axes(eqn)


def _pads_windows(eqn: Any, in_loop: bool) -> bool:
    """Whether it combines rows of bools or integers, multiplies rows, or sums up a single one in a loop, that are no whole
    number of XLA's windows.

    Each turn in a window asks whether its element is in the row, unless LLVM unrolls all of them.
    """
    kinds = _PADDED.get(eqn.primitive.name)
    if kinds is None:
        return False
    aval = eqn.invars[0].aval
    if in_loop and aval.ndim == 1 and aval.size < LIBRARY_REDUCTION:
        kinds += "f"
    if aval.dtype.kind not in kinds or aval.size <= (_FEW_IN_LOOP if in_loop else _FEW):
        return False
    last, reduced = _last_axis(aval.shape), [axis for axis in eqn.params["axes"] if aval.shape[axis] > 1]
    is_wanted = last in reduced and (len(reduced) == 1 or aval.dtype.kind == "b")
    return is_wanted and aval.shape[last] > _REDUCED and aval.shape[last] % _REDUCED > 0


def _reduces_pairs(eqn: Any, in_loop: bool) -> bool:
    """Whether it reduces short rows by several operations for each element: values with their indices, complex products."""
    name = eqn.primitive.name
    if name not in _OF_PAIRS and name != "reduce_prod":
        return False
    aval = eqn.invars[0].aval
    if name == "reduce_prod" and aval.dtype.kind != "c" or _is_two_reductions(eqn, in_loop):
        return False
    return _row(aval) in _PAIRED_ROW and _last_axis(aval.shape) in _reduced_axes(eqn)


def _searches_derived(eqn: Any, derived: dict[Any, float]) -> bool:
    """Whether it searches short rows for their extremes, and computes these rows: element by element, if in a loop."""
    if eqn.primitive.name not in ("argmax", "argmin") or eqn.invars[0] not in derived:
        return False
    aval = eqn.invars[0].aval
    is_slow = _row(aval) == _VECTOR or _row(aval) in _SEARCHED_ROW and derived[eqn.invars[0]] >= _DERIVED
    return is_slow and _last_axis(aval.shape) in _reduced_axes(eqn)


def _rounds_steps(eqn: Any) -> bool:
    """Whether it sums up or multiplies short rows and rounds each step, which takes several instructions."""
    if eqn.primitive.name not in ("reduce_sum", "reduce_prod") or eqn.invars[0].aval.dtype != _BFLOAT16:
        return False
    return _row(eqn.invars[0].aval) in _ROUNDED_ROW and _last_axis(eqn.invars[0].aval.shape) in eqn.params["axes"]


def _is_two_reductions(eqn: Any, in_loop: bool) -> bool:
    """Whether it is `argmax` or `argmin` of floats that is two reductions, which the library does if they are large."""
    if eqn.primitive.name not in ("argmax", "argmin") or eqn.invars[0].aval.dtype.kind not in "fV":
        return False
    from lowering.rules.reductions import takes_two_passes  # loaded with the program's own rules

    return takes_two_passes(eqn.invars[0].aval, eqn.params["axes"][0], in_loop)


def _reduced_axes(eqn: Any) -> tuple[int, ...]:
    return eqn.params["dimensions" if eqn.primitive.name == "reduce" else "axes"]


def _last_axis(shape: tuple[int, ...]) -> int:
    """The last one that is longer than one element."""
    return max((axis for axis, extent in enumerate(shape) if extent > 1), default=0)


def _updates_one_position(eqn: Any) -> bool:
    """Whether it combines a value with one position of an array, or writes much at one."""
    name = eqn.primitive.name
    if name == "dynamic_update_slice":
        return eqn.invars[1].aval.size >= _LARGE
    if name not in _COMBINING and name != "scatter":
        return False
    operand, position, updates = (atom.aval for atom in eqn.invars)
    if position.size != position.shape[-1]:
        return False
    is_combined = name != "scatter" or eqn.params["update_jaxpr"] is not None
    return operand.size >= _UPDATED if is_combined else updates.size >= _LARGE
