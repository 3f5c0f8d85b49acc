"""Whether LLVM shall unroll the loops of a program on the CPU.

XLA asks it to, and it does so to every loop of few turns: a fifth of what a compile takes, a third where arrays are
small. The code gains from it where a short loop is in another. A reduction over few elements is a loop in the loop over its
results, and only once it is unrolled is the outer one vectorized; so it is with a reduction across rows, of any length, and
with what the body of a loop reads and writes in short rows, the positions in space of some particles. Along
rows of sixteen elements and more it is the inner loop that is vectorized, unless it is unrolled. Library reductions have no
such loops, and the small ones that the library leaves to XLA count where they are a part of the program. Transposes gain
where short rows are turned, those before and after a convolution too, and so does what does little but read or write many
bytes, or elements in another order. An update of one position of a large array is a loop that stores each element where it
was: LLVM drops that loop where it may unroll. Other code runs as fast without, or faster: what XLA compiles in one piece, such
as a small scan, outgrows the processor's caches when it is unrolled. Costly functions in rows of fewer than sixteen elements
gain, and all functions in rows of two or three: LLVM does not vectorize so short a loop if it has to ask first whether arrays
overlap, but what it becomes when it is unrolled. And so does padding of rows, and what puts one element before others: a turn
of the loop has nothing to decide once the first or the last is taken out.
docs/fusion.md has the measurements.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from lowering.monoids import LONGEST_WINDOW
from lowering.passes.fusion import ELEMENTWISE, LIBRARY_REDUCTION, RUN_COST, bodies, call_body

_IN_LIBRARY = ("reduce_sum", "reduce_max", "reduce_min")
_OTHERS = frozenset("reduce_prod reduce_and reduce_or reduce_xor argmax argmin reduce".split())
_PICKS = ("argmax", "argmin", "reduce")  # of several values at a time, which LLVM does not vectorize
_WINDOWS = frozenset("reduce_window select_and_scatter select_and_gather_add".split())
_RUNNING = frozenset("cumsum cumprod cummax cummin cumlogsumexp".split())  # windows along short axes, loops along longer ones
_WINDOW_FAMILIES = ("reduce_window_", "select_and_scatter_")
_COMBINING = ("scatter-add", "scatter-sub", "scatter-mul", "scatter-min", "scatter-max")
_LOOPS = ("while", "scan")
_SHORT = 64  # turns of a loop that LLVM unrolls
_SHORT_ROW, _SHORT_PICK = 8, 32  # elements of a row, as long as which reducing it is faster unrolled
_WINDOW = 32  # elements that XLA reduces at a time, in a loop of their own, where a row has more
_FEW = 1024  # elements that are reduced in no time either way, if it happens once
_UPDATED, _TURNED = 2048, 8192  # elements that are not updated in no time; not turned, in a loop
_SHARE, _ACROSS_SHARE = 1 / 64, 1 / 8  # of what a program computes, from which on reductions of small arrays count
_LOOP_SHARE = 1 / 4  # of what is computed in loops, from which on short rows count
_COSTLY, _COSTLY_ROW = 6, 16  # operations for an element that are many, and the elements of a row that a vector loop may have
_MODULUS = 20  # what that of a complex number costs
_ROUNDING = 6  # what it costs to make a bfloat16 of a float
_SHORTEST_ROW = 3  # elements up to which cheap operations count as well
_EVEN_ROW = 8  # elements that fill a vector register, unless they are read from the midst of longer rows
_NO_SLOWER = ("gather", "dot_general")  # in short rows
_TWO_WAYS = ("log1p", "sinh", "asinh")  # selected from two computations, which take turns in few vectors of a row
_FEW_VECTORS = range(24, 101)  # elements of a row that are few vectors
_CUTS = frozenset("slice split dynamic_slice".split())
_COSTLY_SHARE = 1 / 4  # of all operations, from which on those in short rows count
_COSTLY_WORK, _COSTLY_LOOPS = 25_000, 50_000  # operations from which on they count, and in a program with loops
_COSTLY_ALONE, _MOVED_ALONE = 20_000, 4000  # the same in a program of few equations, and where most of it are moves
_MOVES = frozenset("pad concatenate stack rev slice broadcast_in_dim tile".split())  # elements, to other places
_SPREADING = frozenset("add add_any sub mul div max min pow select_n eq ne lt le gt ge and or".split())
_MOVE, _TURN = 8, 4  # operations in the time that it takes to move an element of a short row, and to turn one
_TURNS = 16  # of a loop, where it is not known
_PRODUCTS = 8  # multiplications of a matrix product in the time of one element elsewhere
_PADDED, _PADDED_IN_LOOP = 16384, 1024  # elements of rows that are padded, from which on it counts
_FIRST, _FIRST_IN_LOOP = 16384, 64  # elements behind a first one that is something else, from which on it counts
_SMALL_LOOP = 512  # elements of arrays in loops that XLA compiles in one piece
_LARGE = 65536  # elements that take a while to be moved
_LARGE_REVERSED = 16384  # the same, where rows are reversed
_FEW_EQUATIONS = 8  # of a program that may be a single kernel


def gains(jaxpr: Any, shifted: Mapping[Any, Any] = MappingProxyType({})) -> bool:
    """Whether a program, or a program in its equations, runs faster if LLVM unrolls loops.

    Args:
      jaxpr: the program.
      shifted: variables that are read from arrays with margins, and how (see `shifts.find`).
    """
    is_small = len(jaxpr.eqns) <= _FEW_EQUATIONS
    if is_small:
        is_of_bytes = any(map(_is_of_bytes, [*jaxpr.invars, *jaxpr.outvars]))
        if is_of_bytes or any(_rearranges(eqn, jaxpr.invars) for eqn in jaxpr.eqns):
            return True
    in_short_rows = across_rows = work = in_loops = short_in_loops = operations = in_cut_rows = in_odd_rows = 0.0
    least_alone = _COSTLY_ALONE
    are_cut = False  # rows of a few elements, out of longer ones
    for eqn, in_loop in equations(jaxpr):
        if any(gains_in(eqn, in_loop) for gains_in in (_is_short_reduction, _is_slow_convolution, _turns_short_rows,
                                                            _updates_one_position, _pads_rows)):
            return True
        if _has_another_first(eqn, in_loop) and getattr(shifted.get(eqn.outvars[0]), "source", None) is None:
            return True
        done = _work(eqn)
        times = _TURNS if in_loop else 1
        work += done * times
        cost = _cost(eqn)
        operations += done * cost * times
        if not in_loop and (moved := _moved(eqn)):
            operations += moved
            in_cut_rows += moved
            in_odd_rows += moved
            least_alone = _MOVED_ALONE
            continue
        row = _row(eqn.outvars[0].aval) if eqn.outvars else 0
        if in_loop and eqn.primitive.name in _TWO_WAYS and row in _FEW_VECTORS:
            in_odd_rows += done * cost * times
            in_cut_rows += done * cost * times
        if 1 < row < _COSTLY_ROW:
            are_cut = are_cut or eqn.primitive.name in _CUTS
            is_slow = (cost >= _COSTLY or row <= _SHORTEST_ROW) and eqn.primitive.name not in _NO_SLOWER
            in_cut_rows += done * cost * times if is_slow else 0
            in_odd_rows += done * cost * times if is_slow and row != _EVEN_ROW else 0
        if in_loop and call_body(eqn) is None and eqn.primitive.name not in (*_LOOPS, "cond"):
            if eqn.primitive.name == "dynamic_update_slice":  # in place
                done = eqn.invars[1].aval.size
            is_turned = _turns_short_rows_of(eqn, 1) and _row(eqn.outvars[0].aval) < _SHORT_ROW
            done *= _TURN if is_turned else 1
            in_loops += done
            short_in_loops += done if is_turned or _is_of_short_rows(eqn) else 0
        # A reduction that is too small for the library takes little time; a program can be made of such.
        if not in_loop and eqn.primitive.name in _IN_LIBRARY and eqn.invars[0].aval.size < LIBRARY_REDUCTION:
            in_short_rows += eqn.invars[0].aval.size if _has_short_rows(eqn) else 0
            across_rows += eqn.invars[0].aval.size if _is_across_rows(eqn) else 0
    least = _COSTLY_LOOPS if in_loops else least_alone if is_small else _COSTLY_WORK
    return (in_short_rows > max(_FEW, _SHARE * work) or across_rows > max(_FEW, _ACROSS_SHARE * work)
            or short_in_loops > _LOOP_SHARE * in_loops
            or (in_cut_rows if are_cut else in_odd_rows) > max(least, _COSTLY_SHARE * operations))


def _cost(eqn: Any) -> float:
    """What an element of its result costs."""
    name = eqn.primitive.name
    if name == "abs" and getattr(eqn.invars[0].aval.dtype, "kind", "") == "c":
        return _MODULUS
    if name == "gather" and _gathers_rows(eqn):  # one index for a row
        return 1 + RUN_COST[name] / max(1, eqn.outvars[0].aval.shape[-1])
    is_rounded = name in ELEMENTWISE and getattr(eqn.outvars[0].aval.dtype, "name", "") == "bfloat16"
    return RUN_COST.get(name, 1) + (_ROUNDING if is_rounded else 0)


def _work(eqn: Any) -> float:
    """About how much there is to do, in elements that are computed."""
    size = sum(getattr(var.aval, "size", 1) for var in eqn.outvars)
    if eqn.primitive.name != "dot_general":
        return size
    (contracted, _), _ = eqn.params["dimension_numbers"]
    return size * math.prod([eqn.invars[0].aval.shape[axis] for axis in contracted]) / _PRODUCTS


def equations(jaxpr: Any, in_loop: bool = False, seen: set[tuple[int, bool]] | None = None) -> Iterator[tuple[Any, bool]]:
    """All equations, and whether they are in a loop; those of a program that is called several times once."""
    seen = set() if seen is None else seen
    if (id(jaxpr), in_loop) in seen:
        return
    seen.add((id(jaxpr), in_loop))
    for eqn in jaxpr.eqns:
        yield eqn, in_loop
        inner = call_body(eqn)
        if inner is not None:
            yield from equations(inner, in_loop, seen)
        for body in bodies(eqn):
            yield from equations(body, in_loop or eqn.primitive.name in _LOOPS, seen)


def _is_short_reduction(eqn: Any, in_loop: bool) -> bool:
    name = eqn.primitive.name
    is_window = name in _WINDOWS or name.startswith(_WINDOW_FAMILIES) or (
        name in _RUNNING and 1 < eqn.invars[0].aval.shape[eqn.params["axis"]] <= LONGEST_WINDOW)
    if not (is_window or name in _IN_LIBRARY or name in _OTHERS):
        return False
    aval = eqn.invars[0].aval
    if name in _IN_LIBRARY and aval.dtype.kind in "fV" and (not in_loop or aval.size >= LIBRARY_REDUCTION):
        return False
    if not in_loop and aval.size <= _FEW:
        return False
    if is_window:
        return True
    last = _last(aval)
    if last not in _reduced(eqn):
        return _is_across_rows(eqn)
    if (in_loop or aval.dtype.kind == "c") and name in _IN_LIBRARY and aval.shape[last] > _WINDOW:
        return True
    return 1 < aval.shape[last] <= (_SHORT_PICK if name in _PICKS else _SHORT_ROW)


def _is_across_rows(eqn: Any) -> bool:
    """Whether it reduces along other axes than the last."""
    aval, axes = eqn.invars[0].aval, _reduced(eqn)
    return _last(aval) not in axes and any(aval.shape[axis] > 1 for axis in axes)


def _last(aval: Any) -> int:
    """The last axis of more than one element."""
    return max((axis for axis, extent in enumerate(aval.shape) if extent > 1), default=0)


def _is_of_short_rows(eqn: Any) -> bool:
    """Whether it computes rows of two to 15 elements, or a single one, that do not fill vector registers."""
    if not eqn.outvars:  # it has effects alone
        return False
    shape = [extent for extent in getattr(eqn.outvars[0].aval, "shape", ()) if extent != 1]
    if not shape or eqn.primitive.name == "dot_general":
        return False
    return shape[-1] < _COSTLY_ROW and shape[-1] not in (4, 8) and (len(shape) > 1 or 2 < shape[-1] < _SHORT_ROW)


def _row(aval: Any) -> int:
    """The elements of a row, if there are several rows."""
    shape = [extent for extent in getattr(aval, "shape", ()) if extent != 1]
    return shape[-1] if len(shape) > 1 else 0


def _pads_rows(eqn: Any, in_loop: bool) -> bool:
    """Whether it makes longer rows of short ones; in a loop, of single elements, as the gradient of a column does."""
    if eqn.primitive.name != "pad" or not eqn.outvars[0].aval.shape:
        return False
    low, high, _ = eqn.params["padding_config"][-1]
    row, out = eqn.invars[0].aval.shape[-1], eqn.outvars[0].aval
    if out.size < (_PADDED_IN_LOOP if in_loop else _PADDED) or out.size == out.shape[-1]:
        return False
    return row == 1 < out.shape[-1] if in_loop else low > 0 or high > 0


def _has_another_first(eqn: Any, in_loop: bool) -> bool:
    """Whether it puts a single element before others: without a first turn of its own, the loop decides for each element."""
    name = eqn.primitive.name
    if name not in ("pad", "concatenate"):
        return False
    out, first = eqn.outvars[0].aval, eqn.invars[0].aval
    if not out.shape or out.size < (_FIRST_IN_LOOP if in_loop else _FIRST):
        return False
    if name == "pad":
        low, _, interior = eqn.params["padding_config"][-1]
        is_long = out.shape[-1] >= _FIRST_IN_LOOP if in_loop else out.shape[-1] > 2
        return low == 1 and not interior and is_long
    is_alone = eqn.params["dimension"] == out.ndim - 1 and first.shape[-1] == 1 < out.shape[-1]
    # In larger loops, and outside of them, the rows of an array are joined in memory.
    return is_alone and (out.size == out.shape[-1] or in_loop and out.size <= _SMALL_LOOP)


def _is_slow_convolution(eqn: Any, in_loop: bool) -> bool:
    """Whether it is one that the library does not know, or one that is turned before and after, as the library takes the
    features last: a large one, or one in a loop, which XLA compiles into the loop."""
    if eqn.primitive.name != "conv_general_dilated":
        return False
    operand, numbers = eqn.invars[0].aval, eqn.params["dimension_numbers"]
    is_turned = not numbers.lhs_spec[1] == numbers.out_spec[1] == operand.ndim - 1
    return operand.dtype != "float32" or max(eqn.params["lhs_dilation"], default=1) > 1 or (
        is_turned and (in_loop or operand.size >= _LARGE))


def _updates_one_position(eqn: Any, in_loop: bool) -> bool:
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


def _turns_short_rows(eqn: Any, in_loop: bool) -> bool:
    """Whether it turns the rows of an array, and one of the two axes is short."""
    return _turns_short_rows_of(eqn, _TURNED if in_loop else _LARGE)


def _turns_short_rows_of(eqn: Any, least: int) -> bool:
    if not _turns_rows(eqn, least):
        return False
    shape = eqn.invars[0].aval.shape
    return min(shape[-1], shape[eqn.params["permutation"][-1]]) <= _SHORT


def _moved(eqn: Any) -> float:
    """The operations that it is worth to move elements of short rows to other places, or to where rows are short."""
    name = eqn.primitive.name
    if name == "triangular_solve":  # the library takes the matrices by columns
        return _TURN * eqn.invars[0].aval.size if eqn.invars[0].aval.shape[-1] <= _SHORT else 0
    if not eqn.outvars or not 1 < _row(eqn.outvars[0].aval) < _COSTLY_ROW and name != "transpose":
        return 0
    out = eqn.outvars[0].aval
    if name == "gather":
        return 0 if _gathers_rows(eqn) and out.shape[-1] <= _SHORT_ROW else RUN_COST[name] * out.size
    if name in _SPREADING and out.shape[-1] not in (4, 8):
        return _MOVE * out.size if any(_is_row_of(atom.aval, out) for atom in eqn.invars) else 0
    if name == "transpose":
        return _TURN * out.size if out.size < _LARGE and _turns_rows(eqn, 1) or _turns_short_rows_of(eqn, 1) else 0
    if name not in _MOVES:
        return 0
    is_whole = name == "slice" and set(eqn.params["strides"] or ()) <= {1} or (
        name == "broadcast_in_dim" and eqn.invars[0].aval.size in (1, eqn.outvars[0].aval.size))
    return 0 if is_whole else _MOVE * out.size


def _gathers_rows(eqn: Any) -> bool:
    """Whether a gather takes whole rows."""
    operand = eqn.invars[0].aval
    return operand.ndim > 1 and eqn.params["slice_sizes"][-1] == operand.shape[-1] == eqn.outvars[0].aval.shape[-1]


def _is_row_of(aval: Any, out: Any) -> bool:
    """Whether an operand is a row that is spread over all rows of a result."""
    return aval.size < out.size and len(aval.shape) == len(out.shape) and aval.shape[-1] == out.shape[-1]


def _turns_rows(eqn: Any, least: int) -> bool:
    """Whether it moves another axis to where the last one was, in an array of at least so many elements."""
    if eqn.primitive.name != "transpose":
        return False
    aval = eqn.invars[0].aval
    return aval.size >= least and eqn.params["permutation"][-1] != aval.ndim - 1


def _has_short_rows(eqn: Any) -> bool:
    """Whether it reduces along an axis of two to seven elements."""
    return any(1 < eqn.invars[0].aval.shape[axis] < _SHORT_ROW for axis in _reduced(eqn))


def _reduced(eqn: Any) -> Any:
    """The axes along which it reduces."""
    return eqn.params.get("axes", eqn.params.get("dimensions"))


def _rearranges(eqn: Any, given: list[Any]) -> bool:
    """Whether it gives a large array in rows of another length, or of another axis, and not one of the `given` unchanged."""
    name = eqn.primitive.name
    if name == "rev":
        return eqn.outvars[0].aval.size >= _LARGE_REVERSED and eqn.outvars[0].aval.ndim - 1 in eqn.params["dimensions"]
    if name not in ("reshape", "tile"):
        return _turns_rows(eqn, _LARGE)
    operand, out = eqn.invars[0], eqn.outvars[0].aval
    if out.size < _LARGE or operand.aval.shape[-1:] == out.shape[-1:]:
        return False
    return name == "tile" or operand not in given


def _is_of_bytes(atom: Any) -> bool:
    """Whether a program's parameter or result is a large array of elements of a byte."""
    dtype = getattr(atom.aval, "dtype", None)
    return getattr(dtype, "itemsize", 0) == 1 and atom.aval.size >= _LARGE
