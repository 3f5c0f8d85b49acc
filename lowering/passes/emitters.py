"""Which of two code generators XLA:CPU uses for a program: the one by way of MLIR, or the older one.

The older one emits LLVM's code directly. It takes two thirds of the time to compile, or less, and its code is as fast for small
arrays. jaxlib 0.10 has a flag that chooses it for all kernels of a program. jaxlib 0.12 has it for functions that are called
and marked as small, as XLA marks small loops: it emits all of one as one function, where the newer one makes a kernel, with
an MLIR context and an LLVM module of its own, for each result of an elementwise computation and each reduction.

Complex arithmetic of the older one is slower, its functions of 16-bit floats are less exact, it transposes slowly, and it does
not know the library of sums and products. In a function that is marked as small nothing is divided among threads.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Iterator
from typing import Any

from lowering import xla
from lowering.monoids import RUNNING, slides
from lowering.passes.operations import FUSIBLE, REDUCTIONS, RUN_COST, WEIGHT, bodies, call_body

_SMALL = 1024  # elements of a small array


# --- jaxlib 0.10: a flag for all kernels of a program ------------------------------------------------

_FIT = FUSIBLE - {"gather"}
_LONG, _LONGEST = 40, 300  # instructions of a long function, and of a program with some that the older one still vectorizes,
_FEW_LONG = 256  # or elements for which that does not matter


def prefers_older(jaxpr: Any) -> bool:
    """Whether a program only consists of elementwise operations, reductions and movement of small arrays, on jaxlib 0.10."""
    is_fit = xla.HAS_OLDER_EMITTER and all(map(_is_small, (*jaxpr.constvars, *jaxpr.invars))) and _is_fit(jaxpr)
    return is_fit and _is_short(jaxpr) and _is_varied(jaxpr, (), 0)


def _is_short(jaxpr: Any) -> bool:
    """Whether a program has no long functions, such as the logarithm of the gamma function, or little beside them or to do."""
    weights = list(_weights(jaxpr))
    is_long = max(weights, default=0) >= _LONG and sum(weights) > _LONGEST
    return not is_long or all(var.aval.size <= _FEW_LONG for var in (*jaxpr.constvars, *jaxpr.invars))


def _weights(jaxpr: Any) -> Iterator[int]:
    for eqn in jaxpr.eqns:
        inner = call_body(eqn)
        yield from (WEIGHT.get(eqn.primitive.name, 1),) if inner is None else _weights(inner)


def _is_fit(jaxpr: Any) -> bool:
    for eqn in jaxpr.eqns:
        inner = call_body(eqn)
        if inner is not None:
            if not _is_fit(inner):
                return False
        elif eqn.primitive.name not in _FIT or not all(map(_is_small, eqn.outvars)):
            return False
    return True


def _is_small(var: Any) -> bool:
    size = getattr(var.aval, "size", None)
    return type(size) is int and size <= _SMALL and is_plain(var)


# --- jaxlib 0.12: functions that are marked as small -------------------------------------------------

_LARGEST = 16384  # elements of an array in a small function
_LARGEST_JOINED = 4096  # elements of an array joined along its leading axis: the newer generator copies whole parts
_ROW = 16  # elements of the rows of a larger array, and of one that something costly is computed of, which LLVM vectorizes
_COSTLY, _TINY = 13, 64  # operations for an element that are many, elements that are few
_MOST_WORK = 1 << 20  # cheap operations, from which on threads may help
_FEW_EQUAL = 4  # kernels that are like others, which the newer generator does not compile again
_LOOPS = ("while", "scan", "cond")
_RANDOM = ("random_seed", "random_bits", "random_split", "random_fold_in", "random_wrap", "random_unwrap")
_BY_ONE = ("broadcast_in_dim", "mul")  # of nothing but ones, and by ones: the gradients of sums
_NO_KERNELS = ("reshape", "squeeze", "copy", "stop_gradient", "name", "concatenate", "optimization_barrier",
               "linear_recurrence")
_NO_KERNELS_ALL = ("broadcast_in_dim", "slice", "split")  # if the result is as large as the operand
_LONG_ALONE = (["log"], ["log1p"])  # programs


def is_one_function(jaxpr: Any, barriers: Container[Any] = ()) -> bool:
    """Whether to compile a program as one function, on jaxlib 0.12, if these variables get barriers."""
    parameters = (*jaxpr.constvars, *jaxpr.invars)
    if not xla.HAS_SMALL_FUNCTIONS or not all(is_plain(var) or _is_key(var) for var in parameters):
        return False
    if any(0 in var.aval.shape for var in parameters):  # which XLA drops
        return False
    if [eqn.primitive.name for eqn in jaxpr.eqns] in _LONG_ALONE:
        return False
    if not 0 < work_in(jaxpr, _LARGEST) <= _MOST_WORK:
        return False
    return _is_varied(jaxpr, barriers, _FEW_EQUAL)


def work_in(jaxpr: Any, largest: int) -> float:
    """The number of operations; infinite for a program that does not fit, 0 for one that has no kernels beside its loops."""
    work, ones = 0.0, set()
    for eqn in jaxpr.eqns:
        name, inner = eqn.primitive.name, call_body(eqn)
        are_ones = [getattr(atom, "val", None) == 1 or atom in ones for atom in eqn.invars] if name in _BY_ONE else [False]
        if all(are_ones) and eqn.outvars[0] not in jaxpr.outvars:
            ones.add(eqn.outvars[0])
        if inner is not None:
            work += work_in(inner, largest)
        elif not all((is_plain(var) or _is_key(var)) and _has_rows(var.aval, largest, name) for var in eqn.outvars):
            return math.inf
        elif name == "concatenate" and _is_joined(eqn) and eqn.outvars[0].aval.size > _LARGEST_JOINED:
            return math.inf
        elif name in _RANDOM:
            work += sum(work_in(body, largest) for body in bodies(eqn))
        elif name in _LOOPS:
            if math.inf in [work_in(body, _SMALL) for body in bodies(eqn)]:
                return math.inf
        elif (name in RUNNING and not slides(name, eqn.invars[0].aval, eqn.params["axis"]) or name in _NO_KERNELS
              or name in _BY_ONE and (name == "mul" and any(are_ones) or eqn.outvars[0] in ones)):
            continue
        elif name in _NO_KERNELS_ALL and eqn.invars[0].aval.size == eqn.outvars[0].aval.size:
            continue
        elif name in FUSIBLE and name != "atan" and not _is_hard(eqn, _SMALL if largest > _SMALL else _TINY):
            work += RUN_COST.get(name, 1) * (eqn.invars if name in REDUCTIONS else eqn.outvars)[0].aval.size
        else:
            return math.inf
    return work


def _has_rows(aval: Any, largest: int, name: str) -> bool:
    """Whether an array is small, and LLVM makes a loop over vectors of its rows where that matters."""
    if type(aval.size) is not int or aval.size > largest:
        return False
    row = next((extent for extent in reversed(aval.shape) if extent > 1), 1)
    return row >= _ROW or aval.size <= (_SMALL if RUN_COST.get(name, 1) < _COSTLY else _TINY)


def _is_hard(eqn: Any, reduced: int) -> bool:
    """Whether an equation transposes, which takes longer to compile and to run, or reduces more than so many elements."""
    if eqn.primitive.name == "transpose":
        shape = eqn.invars[0].aval.shape
        moved = [axis for axis in eqn.params["permutation"] if shape[axis] != 1]
        return moved != sorted(moved)
    if eqn.primitive.name == "gather":
        offsets, rank = eqn.params["dimension_numbers"].offset_dims, len(eqn.outvars[0].aval.shape)
        return tuple(offsets) != tuple(range(rank - len(offsets), rank))
    return eqn.primitive.name in REDUCTIONS and eqn.invars[0].aval.size > reduced


def _is_joined(eqn: Any) -> bool:
    """Whether a concatenation puts whole arrays one behind the other."""
    return math.prod(eqn.outvars[0].aval.shape[:eqn.params["dimension"]]) == 1


def _is_key(var: Any) -> bool:
    return str(getattr(var.aval, "dtype", "")).startswith("key<")


# --- what both ask -----------------------------------------------------------------------------------

_DEPTH = 2  # operands of operands by which kernels are told apart


def is_plain(var: Any) -> bool:
    """Whether a value has elements of a type that the older generator takes as well as the newer one."""
    dtype: Any = getattr(var.aval, "dtype", None)
    kind = getattr(dtype, "kind", None)
    return kind in ("b", "i", "u") or kind == "f" and dtype.itemsize in (4, 8)


def _is_varied(jaxpr: Any, barriers: Container[Any], few: int) -> bool:
    """Whether no more kernels of a program than these few, or half of them, are like others."""
    kernels = list(_kernels(jaxpr, barriers, jaxpr.outvars))
    return len(kernels) - len(set(kernels)) <= max(few, len(kernels) // 2)


def _kernels(jaxpr: Any, barriers: Container[Any], results: Iterable[Any]) -> Iterator[Any]:
    """A key for each kernel of a program that ends in a reduction, at a barrier or in a result: equal for equal kernels."""
    makers: dict[Any, Any] = {}
    ends = {var for var in results if not hasattr(var, "val")}
    for eqn in jaxpr.eqns:
        inner = call_body(eqn)
        if inner is not None:
            yield from _kernels(inner, barriers, [
                atom for var, atom in zip(eqn.outvars, inner.outvars, strict=True) if var in ends])
        elif eqn.primitive.name in REDUCTIONS or any(var in barriers or var in ends for var in eqn.outvars):
            yield kind(eqn, makers)
        makers.update((var, eqn) for var in eqn.outvars)


def kind(eqn: Any, makers: dict[Any, Any], depth: int = _DEPTH) -> tuple[Any, ...]:
    """A key for the kernel that ends in an equation."""
    operands = [makers.get(atom) for atom in eqn.invars if depth and not hasattr(atom, "val")]
    shape = getattr(eqn.outvars[0].aval, "shape", None)
    return (eqn.primitive.name, shape, *[each and kind(each, makers, depth - 1) for each in operands])
