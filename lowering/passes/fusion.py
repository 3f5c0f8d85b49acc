"""Fusion barriers for XLA:CPU: the values of a program that are better written to memory than computed again.

XLA:CPU fuses an elementwise value into *every* kernel that reads it, together with all that it is made of. A chain of
values that are each read by two kernels doubles its code at every step, and so unrolled loops and gradients take XLA
seconds to hours. An `optimization_barrier` makes its value a kernel of its own: written once, read often.

The choice is made from the equations alone, in walks that are linear in their number:

1. `_values`: the program as a graph of values, calls seen through. Reshapes that move nothing are their operand.
2. `_place_kernels`, from the results back: in which kernels XLA would compute each value, and how often in each. What XLA
   writes of its own accord (what no loop computes, results, costly values with several readers) is a kernel. `_find_blocked`,
   forward, finds further ones. If all values together are computed hardly more than once, no barrier is needed. Otherwise
   the values that are computed several times are candidates, and the walk is made again as if all of them were written:
   that gives their readers.
3. `_choose`, forward: the cost of computing each value from what is in memory, with the barriers chosen so far. A candidate
   gets a barrier if the instructions that it saves outweigh another kernel, and the arithmetic that it saves outweighs
   the memory traffic. XLA compiles equal kernels once, so values of one kind share the cost of theirs: a barrier is cheap
   where every step of an unrolled loop gets it.
4. `_write_counters`, `_write_bits`: positions from which long integer arithmetic starts, as in a random generator, and the
   random bits that come out of it.
5. `_write_shared`, `_write_repeated`: costly values that several kernels, parts of a concatenation or slices read, where each
   would compute them, and those that are broadcast, which a loop would compute again for each row.
6. `_write_rounded`, `_write_searched`, `_write_moved`, `_write_solved`, `_write_inverses`: what libraries read, where XLA would
   write more than that for them.
7. `_cut_long_kernels`: what is left of kernels with hundreds of instructions is cut where it is narrow.

Bodies of loops and branches are programs of their own. docs/fusion.md has the measurements.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from operator import itemgetter
from types import MappingProxyType, SimpleNamespace
from typing import Any

from lowering.passes import products
from lowering.passes.operations import (
    COSTLY,
    ELEMENTWISE,
    FUSIBLE,
    IN_LIBRARY,
    LIBRARY_REDUCTION,
    LOOPS,
    MOVES,
    REDUCTIONS,
    RUN_COST,
    VIEWS,
    WEIGHT,
    bodies,
    call_body,
)

_COMPLEX = frozenset(
    "exp exp2 expm1 log log1p sin cos tan sinh cosh tanh logistic sqrt rsqrt pow asin acos asinh acosh".split())
_SEVERAL = _COMPLEX | {"sign"}  # of a complex operand they are several kernels
_JOINING = ("concatenate", "stack")
_SLICES = frozenset("slice split unstack dynamic_slice".split())
_GATHERING = REDUCTIONS | {"gather"}
_OTHER_PLACES = _SLICES | {"gather", "rev", "transpose"}  # they read elements in another order
_PARTS = _SLICES | {"concatenate", "pad", "real", "imag"}
_ALIASES = frozenset("reshape squeeze broadcast_in_dim copy stop_gradient convert_element_type name".split())
_STACKING = SimpleNamespace(primitive=SimpleNamespace(name="copy"))  # what puts a result of a turn into a stack
_first = itemgetter(0)

_BLOW_UP = 1.3  # emitted instructions for each one of the program that are nothing to worry about
_LITTLE = 150  # instructions too many that XLA compiles in less time than barriers cost
_KERNEL, _EQUAL_KERNEL = 16, 2  # what a further kernel costs, in instructions, and one that is like another
_SAVING, _SAVING_IF_WRITTEN = 8, 2  # instructions that a barrier must save
_FEW = 6  # instructions that are computed again as fast as they are read, where that is not from the nearest cache
_NEAR = 0.5  # traffic for an element in the nearest cache
_HUGE_SAVING = 300  # from here on memory traffic does not matter
_MOST_KERNELS = 16  # readers of a value that are told apart; with so many it gets a barrier anyway
_MOST_COPIES = 15  # XLA does not index one value in more ways than this in a kernel
_MANY_PARTS = 8  # operands from which on a concatenation is a kernel of its own
_WINDOW = 1024  # values whose dependents are known at a time; values further apart count as independent
_LONG_KERNEL = 400  # instructions from which on a kernel is looked at for places to cut it
_EQUAL_PART, _LONGEST_PART = 48, 512  # instructions from cut to cut, where the parts are alike and where they are not
_NARROW = 4  # values that a part of a kernel may pass to the next
_MANY_BITS = 512  # random numbers that are worth a kernel for what is made of their bits
_VECTOR = 16  # random numbers that LLVM makes in vectors, outside of loops over something else
_HASH = 100  # operations that make one of them
_HASHES, _HASHES_BY_ROW = 10_000, 1000  # that are worth a kernel, and where LLVM does not move them out of the inner loop
_REPEATED, _REPEATED_WORK = 1_000_000, 12  # operations for each row again that are worth a kernel, and for an element
_REPEATED_MOST = 1000  # operations for an element that is computed again, at most
_REPEATED_SCALAR = 4000  # operations that are worth a kernel for a scalar
_REPEATED_FACTOR = 16000  # for a factor of an outer product, and where other kernels read it anyway:
_REPEATED_IF_WRITTEN = 4000
_SEARCHED, _SEARCHED_EACH = 400, 5  # operations that are worth a kernel beside a search, and more than so many for an element,
SEARCHED_ROW, _SEARCHED_WORK = 12, 200  # and for a row of more than so many elements; LLVM unrolls shorter ones
_PADDED, PADDED_ROW = 4096, 64  # elements of an array, and of its row that LLVM unrolls as a whole and so without branches
_SHARED, _SHARED_EACH = 10_000, 13  # operations that parts do again, which are worth a kernel, and those of an exponential
_PART, _PART_EACH = 3000, 30  # the same for parts of a concatenation in a loop, and for an element in all
_CONE = 32  # values up to which it is looked for what one is made of
_LONG_COUNT = 64  # integer operations on positions, one after another, that LLVM had better not see through


class _Value:
    """A value of the program: the result of an equation, and what the walks find out about it."""

    __slots__ = ("var", "aliases", "eqn", "name", "shape", "size", "operands", "users", "is_result", "is_loop", "is_costly",
                 "is_shy", "is_blocked", "weight", "run", "kernels", "is_kernel", "readers", "part", "joined", "is_written",
                 "is_charged", "instructions", "work")

    def __init__(self, var: Any, eqn: Any, operands: list[_Value]):
        name = eqn.primitive.name
        self.var, self.eqn, self.name, self.operands = var, eqn, name, operands
        self.aliases = {var}  # all variables that are this value
        aval = var.aval
        shape = getattr(aval, "shape", ())
        self.size = math.prod(shape)
        self.shape = tuple(extent for extent in shape if extent != 1)
        self.users: list[_Value] = []
        self.is_result = self.is_written = self.is_charged = self.is_blocked = False
        # Is it computed in a loop over elements, into which others can be fused?
        self.is_loop = name in FUSIBLE or name == "random_bits" and self.size < _MANY_BITS
        if name in REDUCTIONS and eqn.invars[0].aval.size >= LIBRARY_REDUCTION or (
                name in _JOINING and len(operands) > _MANY_PARTS):
            self.is_loop = False
        is_scaling = name == "div" and hasattr(eqn.invars[1], "val")
        self.is_costly = name in COSTLY and not is_scaling and not _is_complex(aval)
        self.weight = WEIGHT.get(name, 1) if operands or name not in VIEWS else 0
        self.run = 1 if is_scaling else _HASH if name == "random_bits" else RUN_COST.get(name, 1)
        # XLA fuses what reads more than it writes into all readers or into none.
        rank = len(self.shape)
        large = [each for each in operands if len(each.shape) >= rank and each.name not in ("broadcast_in_dim", "iota")]
        self.is_shy = len(large) > 1 and sum(each.size for each in operands) > self.size
        self.is_kernel = not self.is_loop  # does XLA write it, or a barrier?
        self.kernels: Kernels = {}  # where it is computed
        self.readers: Kernels | None = None  # where a candidate would be computed if it is not written
        self.joined: list[_Value | None] = []  # the parts of a concatenation
        self.part = 1.0  # of its elements, which a copy computes: its readers may need a slice each
        self.instructions = self.work = 0.0


def _is_complex(aval: Any) -> bool:
    return getattr(getattr(aval, "dtype", None), "kind", "") == "c"


Kernels = dict[_Value, int]  # kernel -> how many times it computes a value, under different indices


def barriers(jaxpr: Any, shifted: Mapping[Any, Any] = MappingProxyType({})) -> dict[Any, str]:
    """The variables of a program, and of the programs in its equations, that get a barrier, and why.

    Args:
      jaxpr: a program without dead code.
      shifted: variables that are read from arrays with margins, and how (see `shifts.find`).
    Returns: variable -> a short reason for the reader of a dump.
    """
    found = {var: shift.why for var, shift in shifted.items()}
    _region(jaxpr, found, shifted, set(), False)
    return found


def _region(jaxpr: Any, found: dict[Any, str], shifted: Mapping[Any, Any], seen: set[int], in_loop: bool,
            carried: int | None = None) -> None:
    """Find the barriers of a program; of the body of a scan, only so many results are `carried`."""
    if id(jaxpr) in seen:
        return
    seen.add(id(jaxpr))
    values: list[_Value] = []
    env: dict[Any, _Value] = {}
    _values(jaxpr, env, values, found, shifted, seen, in_loop)
    for place, atom in enumerate(jaxpr.outvars):
        if atom in env:
            result = env[atom]
            if result.name == "dot_general" and not result.users and products.is_little(result.eqn):
                found.pop(result.var, None)
            if carried is not None and place >= carried:  # the stack is written, by a kernel that takes the result in
                stack = _Value(result.var, _STACKING, [result])
                stack.is_result = True
                result.users.append(stack)
                values.append(stack)
            else:
                result.is_result = True
    for value in reversed(values):
        if not value.users and not value.is_result:  # dead code of a call
            for operand in value.operands:
                operand.users.remove(value)
    values = [value for value in values if value.users or value.is_result]
    needed = sum(value.weight for value in values)
    worth = max(_BLOW_UP * needed, needed + _LITTLE)
    if _place_kernels(values) > worth:
        _find_blocked(values)
        if _place_kernels(values) > worth:
            _find_readers(values)
            _choose(values, found)
    _write_counters(values, found)
    _write_bits(values, found)
    _write_shared(values, found, in_loop)
    _write_repeated(values, found, in_loop)
    _write_complex(values, found)
    _write_rounded(values, found)
    _write_searched(values, found, in_loop)
    _write_moved(values, found)
    _write_solved(values, found)
    _write_inverses(values, found)
    if needed > _LONG_KERNEL:
        _cut_long_kernels(values, found)


def _values(jaxpr: Any, env: dict[Any, _Value], values: list[_Value], found: dict[Any, str], shifted: Mapping[Any, Any],
            seen: set[int], in_loop: bool) -> None:
    """Append the values of a program in order. `env` maps its variables to them; inputs have none."""
    for eqn in jaxpr.eqns:
        name = eqn.primitive.name
        inner = call_body(eqn)
        if inner is not None:
            scope: dict[Any, _Value] = {}
            _alias(inner.invars, eqn.invars, env, scope)
            _values(inner, scope, values, found, shifted, seen, in_loop)
            _alias(eqn.outvars, inner.outvars, scope, env)
            continue
        if name in _ALIASES and _moves_nothing(eqn.invars[0].aval, eqn.outvars[0].aval):
            _alias(eqn.outvars, eqn.invars[:1], env, env)
            continue
        cut = None
        if name == "slice" and eqn.invars[0] in env:  # XLA makes one of equal ones
            cut = env[eqn.invars[0]], *(eqn.params[each] for each in ("start_indices", "limit_indices", "strides"))
            if cut in env:
                _alias(eqn.outvars, [cut], env, env)
                continue
        for body in bodies(eqn):
            _region(body, found, shifted, seen, in_loop or name in LOOPS, eqn.params["num_carry"] if name == "scan" else None)
        if products.is_better_turned(eqn):
            found[eqn.outvars[0]] = f"a product that is faster in the other order ({eqn.outvars[0].aval.size} elements)"
        operands: list[_Value] = []
        shift = shifted.get(eqn.outvars[0]) if eqn.outvars else None
        for atom in eqn.invars if shift is None or shift.source is None else (shift.source,):
            value = env.get(atom)
            if value is not None and value not in operands:
                operands.append(value)
        for var in eqn.outvars:
            env[var] = value = _Value(var, eqn, operands)
            if name in _JOINING:
                value.joined = [env.get(atom) for atom in eqn.invars]
            if cut is not None:
                env[cut] = value
            if shift is not None:  # it is read from memory
                value.is_loop, value.is_kernel = False, True
            values.append(value)
            for operand in operands:
                operand.users.append(value)


def _alias(names: Sequence[Any], atoms: Sequence[Any], known: Mapping[Any, _Value], env: dict[Any, _Value]) -> None:
    """Give names to values that are known by others."""
    for var, atom in zip(names, atoms, strict=True):
        if atom in known:
            env[var] = value = known[atom]
            value.aliases.add(var)


def _moves_nothing(before: Any, after: Any) -> bool:
    if before.dtype != after.dtype or before.size != after.size:
        return False
    return [extent for extent in before.shape if extent != 1] == [extent for extent in after.shape if extent != 1]


def _place_kernels(values: list[_Value]) -> float:
    """Find the kernels of each value, without barriers; gives the number of instructions that XLA emits in all."""
    emitted = 0.0
    for value in reversed(values):
        value.is_kernel = not value.is_loop or value.is_blocked
        if not value.is_kernel:
            kernels, written = _kernels(value)
            if not kernels or written and (value.is_shy or value.is_costly) or value.is_costly and len(kernels) > 1:
                value.is_kernel = True
            else:
                value.kernels = kernels | {value: 1} if written else kernels
        if value.is_kernel:
            value.kernels = {value: 1}
        emitted += value.weight * _copies(value.kernels)
    return emitted


def _find_blocked(values: list[_Value]) -> None:
    """Find the shy values of which a reader also reads, by way of another kernel, what is computed from them.

    Such a reader cannot take them in: the other kernel, which comes first, needs them in memory. So it is with the state of a
    system where one step adds to it what it made of it. Sets are integers with a bit for each value that may turn out so.
    """
    bits: dict[_Value, int] = {}
    inside: dict[_Value, int] = {}  # value -> those that it is computed from
    beyond: dict[_Value, int] = {}  # value -> those that it is computed from by way of another kernel
    for value in values:
        if len(bits) == _WINDOW:  # keeps the walk linear
            for each in (bits, inside, beyond):
                each.clear()
        reached = cut = 0
        for operand in value.operands:
            behind = inside.get(operand, 0)
            reached |= behind
            cut |= beyond.get(operand, 0) | (behind if operand.is_kernel else 0)
        for operand in value.operands if cut else ():
            if cut & bits.get(operand, 0):
                operand.is_blocked = True
        if value.is_shy and not value.is_kernel and len(value.users) > 1:
            bits[value] = bit = 1 << len(bits)
            reached |= bit
        if reached:
            inside[value], beyond[value] = reached, cut


def _find_readers(values: list[_Value]) -> None:
    """Pick the candidates, and find the kernels that compute each of them if all others are written."""
    for value in reversed(values):
        if value.is_kernel and value.is_loop and value.is_costly and not value.is_blocked:
            kernels, written = _kernels(value)  # fewer than before, and perhaps one: then XLA does not write it any more
            value.is_kernel = not kernels or written or len(kernels) > 1
            value.kernels = {value: 1} if value.is_kernel else kernels
            continue
        if value.is_kernel:
            continue
        is_candidate = len(value.users) + value.is_result > 1 and _copies(value.kernels) > 1 and value.name not in VIEWS
        kernels, value.is_written = _kernels(value)
        value.part = _part(value)
        if is_candidate:
            value.readers, value.kernels = kernels, {value: 1}
        else:
            value.kernels = kernels | {value: 1} if value.is_written or not kernels else kernels


def _part(value: _Value) -> float:
    """How much of a value one of its copies computes, on average: all, unless its readers take slices of it."""
    copies = elements = 0.0
    for user in value.users:
        is_written = user.is_kernel or user.readers is not None
        times = 1 if is_written else _copies(user.kernels)
        size = min(user.size, value.size) if user.name in _SLICES else value.size
        copies += times
        elements += times * size * (1.0 if is_written else user.part)
    return elements / (copies * value.size) if elements else 1.0


def _kernels(value: _Value) -> tuple[Kernels, bool]:
    """The kernels of its users into which XLA fuses a value, and whether somebody reads it from memory as well."""
    users, written = value.users, value.is_result
    kernels: Kernels = {}
    for user in users:
        if not user.is_loop or (value.is_costly and user.size > value.size and user.name not in _GATHERING):
            written = True
        elif user.shape == value.shape or user.name == "transpose":
            if len(users) == 1:
                return user.kernels, written  # shared: it is not changed
            for kernel, times in user.kernels.items():
                kernels[kernel] = max(times, kernels.get(kernel, 0))
        else:
            for kernel, times in user.kernels.items():
                kernels[kernel] = times + kernels.get(kernel, 0)
        if len(kernels) > _MOST_KERNELS:
            break
    if value.name != "broadcast_in_dim" and any(times > _MOST_COPIES for times in kernels.values()):
        return {kernel: times for kernel, times in kernels.items() if times <= _MOST_COPIES}, True
    return kernels, written


def _copies(kernels: Kernels) -> int:
    return sum(kernels.values())


def _choose(values: list[_Value], found: dict[Any, str]) -> None:
    """Put barriers where they pay, from the arguments on."""
    kinds = Counter(_kind(value) for value in values if value.readers is not None)
    for value in values:
        if not value.is_loop:
            continue
        value.instructions, value.work = _cost(value)
        if value.readers is None or value.instructions < (_FEW if _traffic(value) > _NEAR else 2):
            continue
        copies = _copies(value.readers) + value.is_written
        kernel = _EQUAL_KERNEL + (_KERNEL - _EQUAL_KERNEL) / kinds[_kind(value)]
        saving = (copies - 1) * value.instructions - (0 if value.is_written else kernel)
        if saving < (_SAVING_IF_WRITTEN if value.is_written else _SAVING):
            continue
        traffic = _traffic(value) * (len(value.readers) + (not value.is_written))
        computed = _copies(value.readers) * value.part + value.is_written  # times each element, on average
        if (computed - 1) * value.work < traffic and saving < _HUGE_SAVING:
            continue
        found[value.var] = (f"{copies} times these {value.instructions:.4g} instructions "
                            f"({value.name} of {value.size} elements)")
        value.is_kernel = True


def _kind(value: _Value) -> tuple[Any, ...]:
    """Equal for the values that correspond to each other in the steps of an unrolled loop."""
    return (value.name, value.shape, tuple([(each.name, each.shape) for each in value.operands]),
            frozenset([(each.name, each.shape) for each in value.users]))


def _charged(value: _Value) -> bool:
    """Whether another user in the same kernel has paid for a value already."""
    if value.readers is None or value.is_written or _copies(value.readers) > 1:
        return False
    before, value.is_charged = value.is_charged, True
    return before


def _cost(value: _Value) -> tuple[float, float]:
    """The instructions that compute a value from what is in memory, and their work for each of its elements."""
    instructions, work = float(value.weight), float(value.run * value.size)
    for operand in value.operands:
        if not operand.is_kernel and not _charged(operand):
            instructions += operand.instructions
            work += operand.work * operand.size
    return instructions, work / max(1, value.size)


def _write_rounded(values: list[_Value], found: dict[Any, str]) -> None:
    """Choose what a sum of bfloat16 reads, which another kernel makes floats of first, and a product or the like reads too.

    XLA would compute all that both kernels need, each step in a kernel of its own.
    """
    for value in values:
        if value.name == "reduce_sum" and value.eqn.invars[0].aval.dtype == "bfloat16":
            for operand in value.operands:
                others = [user for user in operand.users if user is not value]
                if operand.is_loop and operand.operands and not all(user.is_loop for user in others):
                    found.setdefault(operand.var, f"summed up as floats, and read ({operand.size} elements)")


def _write_searched(values: list[_Value], found: dict[Any, str], in_loop: bool) -> None:
    """Choose what the position of an extreme is searched in, where a pass over it would compute it slowly.

    A search in two passes would compute and write it in each. One in pairs of number and position is not a loop of vectors,
    nor is what is computed in it, unless LLVM unrolls the row as a whole: a row of a few elements that cost little.
    """
    from lowering.rules.reductions import takes_two_passes  # loaded with the program's own rules

    for value in values:
        if value.name not in ("argmax", "argmin"):
            continue
        aval, (axis,) = value.eqn.invars[0].aval, value.eqn.params["axes"]
        in_two_passes = takes_two_passes(aval, axis, in_loop)
        for operand in value.operands:
            if operand.name not in ELEMENTWISE or not operand.operands:
                continue
            if in_two_passes:
                found.setdefault(operand.var, f"searched for its {value.name} in two passes ({operand.size} elements)")
            elif operand.is_loop and aval.dtype.kind == "f" and aval.shape[axis] > SEARCHED_ROW:
                work = _work_of(operand)
                if work > _SEARCHED_EACH and work * aval.shape[axis] > _SEARCHED_WORK and work * operand.size > _SEARCHED:
                    found.setdefault(operand.var, f"searched for its {value.name} ({operand.size} elements)")
                    operand.is_kernel = True


def _write_moved(values: list[_Value], found: dict[Any, str]) -> None:
    """Choose what the library sums up, if it is computed of parts of arrays, or of joined ones.

    The library computes elements itself, but of whole arrays in memory: XLA would write each part for it.
    """
    slices = Counter(_cut_of(value.eqn) for value in values if value.name == "slice")
    for value in values:
        if value.name in IN_LIBRARY and not value.is_loop and value.eqn.invars[0].aval.dtype == "float32":
            for operand in value.operands:
                while operand.name == "transpose" and operand.operands and len(operand.users) == 1:
                    (operand,) = operand.operands
                if operand.name in ELEMENTWISE and _is_of_parts(operand, slices):
                    found.setdefault(operand.var, f"computed of parts, and summed up by a library ({operand.size} elements)")


def _write_solved(values: list[_Value], found: dict[Any, str]) -> None:
    """Choose what triangles were solved for, if the library sums up what is computed of it, along the unknowns.

    The lowering of `triangular_solve` turns its result. XLA would move that behind the sum, which is then along rows of few
    elements, and write a copy of the result for it.
    """
    for value in values:
        if value.name in IN_LIBRARY and not value.is_loop:
            aval = value.eqn.invars[0].aval
            for operand in value.operands if value.eqn.params["axes"] == (aval.ndim - 2,) else ():
                while operand.name in ELEMENTWISE and len(operand.operands) == 1:
                    (operand,) = operand.operands
                if operand.name == "triangular_solve" and operand.var.aval.shape == aval.shape:
                    found.setdefault(operand.var, f"solved for, and summed up by a library ({operand.size} elements)")


def _write_inverses(values: list[_Value], found: dict[Any, str]) -> None:
    """Choose inverses of divisors, if the library sums up both what is divided and what is multiplied, along longer arrays.

    XLA multiplies by the inverse for a division, finds that equal, and writes for both sums what they stretch in common.
    """
    for value in values:
        if value.name == "integer_pow" and value.eqn.params["y"] == -1 and value.operands:
            divided = [user for user in value.operands[0].users if user.name == "div" and user.size > value.size]
            multiplied = [user for user in value.users if user.name == "mul" and user.size > value.size]
            if any(map(_is_summed_up, divided)) and any(map(_is_summed_up, multiplied)):
                found.setdefault(value.var, f"stretched for two sums by a library ({value.size} elements)")


def _is_summed_up(value: _Value) -> bool:
    """Whether it is only computed for a sum by a library."""
    while value.name in ELEMENTWISE and len(value.users) == 1 and not value.is_result:
        (value,) = value.users
    return value.name in IN_LIBRARY and not value.is_loop


def _is_of_parts(start: _Value, slices: Mapping[Any, int]) -> bool:
    """Whether elementwise operations make it of large parts of arrays, and nothing else reads these or what is between."""
    cone = [start]
    for value in cone:
        if len(value.users) > 1 or value.is_result:
            return False
        for operand in value.operands:
            if operand.name in ELEMENTWISE and operand not in cone and len(cone) < _CONE:
                cone.append(operand)
    parts = [operand for value in cone for operand in value.operands if operand.name in _PARTS]
    if any(part.name == "slice" and slices[_cut_of(part.eqn)] > 1 for part in parts):  # XLA makes one of equal ones
        return False
    return any(2 * part.size >= start.size for part in parts) and all(user in cone for part in parts for user in part.users)


def _cut_of(eqn: Any) -> tuple[Any, ...]:
    return eqn.invars[0], *(eqn.params[each] for each in ("start_indices", "limit_indices", "strides"))


def _write_counters(values: list[_Value], found: dict[Any, str]) -> None:
    """Put barriers behind the positions that long integer arithmetic starts from.

    LLVM's vectorizer asks of every operation on a loop's index who reads it, along all paths. In a hash of the index there
    are so many that compiling takes twice as long; of what is read from memory it does not ask.
    """
    counts: dict[_Value, tuple[int, _Value]] = {}  # value -> the integer operations since a position, and the position
    for value in values:
        if value.name == "iota":
            counts[value] = 0, value
        elif counts and value.is_loop and getattr(value.var.aval.dtype, "kind", "") in ("i", "u"):
            length, start = max((counts[each] for each in value.operands if each in counts), key=_first, default=(0, None))
            if start is None:
                continue
            counts[value] = length + 1, start
            if length == _LONG_COUNT:
                found[start.var] = f"more than {_LONG_COUNT} integer operations on positions ({start.size} elements)"


def _write_bits(values: list[_Value], found: dict[Any, str]) -> None:
    """Put barriers between random bits and what is made of them.

    The hash is some hundred integer operations on a few values and constants, which fill the processor's registers. Together
    with the polynomials of a logarithm or an inverse error function they do not fit: one kernel takes longer than two. And what
    is made of few bits, to be combined with a large array, would be computed again for each of its elements. Beside a small
    reduction, whose loop is inside that over elements, LLVM computes the hash one by one instead of in vectors.
    """
    reducing = {kernel for value in values if value.name in REDUCTIONS and value.is_loop for kernel in value.kernels}
    for value in values:
        if value.name != "random_bits":
            continue
        if value.size >= _VECTOR and not reducing.isdisjoint(value.kernels) and value not in value.kernels:
            found[value.var] = f"random bits beside a reduction ({value.size} elements)"
        elif value.size < _MANY_BITS:
            for each in _spread(value):
                found[each.var] = f"made of random bits, and spread ({each.size} elements)"
                each.is_kernel = True
        elif any(user.is_loop for user in value.users):
            found[value.var] = f"random bits ({value.size} elements)"


def _spread(start: _Value) -> list[_Value]:
    """What is computed from random bits, in the same kernel, and read by an array of many more elements."""
    pending, seen, found = [start], {start}, []
    while pending and len(seen) <= _CONE:
        value = pending.pop()
        if any(user.is_loop and user.size > max(value.size, _HASHES_BY_ROW if _repeats_rows(user, value) else _HASHES)
               for user in value.users):
            found.append(value)
            continue
        inside = [user for user in value.users if user.is_loop and user not in seen]
        seen.update(inside)
        pending += inside
    return found


def _write_repeated(values: list[_Value], found: dict[Any, str], in_loop: bool) -> None:
    """Put barriers behind values that are broadcast along an axis in front of their own, where that saves work.

    XLA fuses a sine into the loop over the larger array, which computes it again for each row. Along a later axis the compiler
    moves it out of the inner loop. So it does with a scalar, but not out of what only some elements need: a part of a
    concatenation.
    """
    for value in values:
        if value.name == "dot_general":
            _write_factor(value, found, in_loop)
        if not value.is_loop or value.is_kernel:
            continue
        if value.size == 1:
            spread = max([user.size for user in value.users if user.is_loop and user.name not in MOVES], default=0)
            if spread > 1 and value.weight and spread * _work_of(value) > _REPEATED_SCALAR and _is_joined(value):
                found.setdefault(value.var, f"computed again for each element of a part ({value.name})")
                value.is_kernel = True
            continue
        repeated = sum([user.size for user in value.users if user.size > value.size and _repeats_rows(user, value)])
        if repeated * _REPEATED_MOST < _REPEATED:
            continue
        work = _work_of(value)
        if work >= _REPEATED_WORK and (repeated - value.size) * (work - _traffic(value)) > _REPEATED:
            found.setdefault(value.var, f"computed again for each row ({value.name} of {value.size} elements)")
            value.is_kernel = True


def _write_shared(values: list[_Value], found: dict[Any, str], in_loop: bool) -> None:
    """Put barriers behind costly functions that are computed several times for an element.

    Each part of a concatenation that reads one is a branch that computes it, and each pad. So does each slice or other view, a
    gather for each element that it gives, and, of sines and a few others, each kernel. In a loop, where LLVM does not vectorize
    branches for whole rows, the same holds for what takes much in all.
    """
    places: dict[_Value, dict[int, float]] = {}  # where a value is computed, and how many times for an element, on average
    numbers: dict[Any, int] = {}  # of these places
    number = lambda *place: numbers.setdefault(place, len(numbers))
    branches: set[int] = set()  # those that are whole rows of a concatenation
    equal: dict[Any, list[_Value]] = {}  # the same function of the same value, of which XLA makes one
    keys: dict[_Value, Any] = {}
    for value in values:
        if value.run >= _SHARED_EACH and value.is_loop:
            atoms = value.eqn.invars
            keys[value] = key = (value.name, *value.operands, *atoms[len(value.operands):]) if len(atoms) == 1 else value
            equal.setdefault(key, []).append(value)
    for value in reversed(values):
        within = places[value] = {} if value.users and not value.is_kernel else {number(value): 1.0}
        for user in value.users if not value.is_kernel else ():
            if not user.is_loop or user.name in REDUCTIONS or len(within) > _MOST_KERNELS:
                continue
            if user.joined:
                parts = [number(user, index) for index, part in enumerate(user.joined) if part is value]
                branches.update(parts if value.var.aval.shape[-1:] == user.var.aval.shape[-1:] else ())
                within.update(dict.fromkeys(parts, 1.0))
            elif user.name == "pad" and user.size > _PADDED and user.var.aval.shape[-1] > PADDED_ROW:
                within[number(user)] = 1.0
            elif user.name in _OTHER_PLACES:
                part = user.size / max(1, value.size) / (2 if user.name == "gather" else 1)  # which takes longer anyway
                within.update([(number(user, place), times * part) for place, times in places[user].items()])
            else:
                for place, times in places[user].items():
                    within[place] = max(times, within.get(place, 0.0))
        is_shared = len(value.users) > 1 and len(branches & within.keys()) > 1
        if in_loop and is_shared and value.name in ELEMENTWISE and value.is_loop and not value.is_kernel:
            work = _work_of(value)
            if work > _PART_EACH and (len(within) - 1) * work * value.size > _PART:
                found.setdefault(value.var, f"computed in {len(within)} parts ({value.name} of {value.size} elements)")
                value.is_kernel, places[value] = True, {number(value): 1.0}
        if value not in keys or value is not (same := equal[keys[value]])[0]:
            continue
        everywhere = {place: times for each in same for place, times in places[each].items()}
        times = sum(everywhere.values())
        again = (times - 1) * value.run
        if again * value.size > _SHARED and again > _traffic(value):
            for each in same if len(same) > 1 else (_only_reader(value),):
                found.setdefault(each.var, f"computed {times:.3g} times ({value.name} of {value.size} elements)")
                each.is_kernel, places[each] = True, {number(each): 1.0}


def _only_reader(value: _Value) -> _Value:
    """A value, or what is computed of it alone, and of numbers, before several read that."""
    while len(value.users) == 1 and not value.is_result:
        (user,) = value.users
        if user.name not in ELEMENTWISE or user.size != value.size or user.is_kernel or len(user.operands) > 1:
            break
        value = user
    return value


def _write_complex(values: list[_Value], found: dict[Any, str]) -> None:
    """Put barriers behind complex functions that several kernels read: XLA makes them of sines and exponentials in each."""
    for value in values:
        if value.name in _COMPLEX and value.is_loop and _is_complex(value.var.aval) and value.size >= _VECTOR:
            if len(value.kernels) > 1 or any(user.name in _SEVERAL for user in value.users):
                found.setdefault(value.var, f"a complex function with several readers ({value.name} of {value.size} elements)")
                value.is_kernel = True


def _write_factor(product: _Value, found: dict[Any, str], in_loop: bool) -> None:
    """Put barriers behind the factors of a product that is a loop into which XLA fuses both.

    Such are outer products, where the second factor is computed again for each element of the first, and small ones in loops.
    """
    eqn = product.eqn
    count, repeated = product.size, eqn.invars[1:]
    if any(map(any, eqn.params["dimension_numbers"])):
        if not in_loop or not _is_summed(eqn):
            return
        count, repeated = products.count(eqn), eqn.invars
    for value in product.operands:
        if value.var in repeated and value.is_loop and not value.is_result and value.weight:
            saved = (count - value.size) * (_work_of(value) - _traffic(value))
            if saved > (_REPEATED_FACTOR if len(value.users) == 1 else _REPEATED_IF_WRITTEN):
                found.setdefault(value.var, f"computed again for each row of a product ({value.name} of {value.size} elements)")


def _is_summed(eqn: Any) -> bool:
    """Whether a product of two matrices in a loop is a sum in its kernel."""
    from lowering.small_products import is_summed  # loaded with the program's own rules

    left, right, out = (atom.aval for atom in (*eqn.invars, *eqn.outvars))
    dtypes = left.dtype, out.dtype
    return left.dtype == right.dtype and is_summed(left.shape, right.shape, eqn.params["dimension_numbers"], dtypes, True)


def _is_joined(start: _Value) -> bool:
    """Whether a value becomes part of a concatenation in the same kernel."""
    pending, seen = [start], {start}
    while pending and len(seen) <= _CONE:
        for user in pending.pop().users:
            if user.name in ("concatenate", "stack", "pad") and user.is_loop:
                return True
            if user.is_loop and not user.is_kernel and user not in seen:
                seen.add(user)
                pending.append(user)
    return False


def _repeats_rows(user: _Value, value: _Value) -> bool:
    """Whether a user repeats a value along an axis that comes before one of the value's."""
    name, out = user.name, user.var.aval.shape
    if name not in FUSIBLE or name in MOVES:
        return False
    if not user.is_result and all(each.name in REDUCTIONS and not each.is_loop for each in user.users):
        return False  # the library takes it in
    orders = list(range(len(out))), _written_order(user)
    for atom in user.eqn.invars:
        shape = atom.aval.shape
        if atom in value.aliases and (name == "broadcast_in_dim" or len(shape) == len(out)):
            places = user.eqn.params["broadcast_dimensions"] if name == "broadcast_in_dim" else range(len(shape))
            own = [place for place, extent in zip(places, shape, strict=True) if extent > 1]
            before = [order[:max(map(order.index, own), default=0)] for order in orders]
            if all(any(out[axis] > 1 and axis not in own for axis in axes) for axes in before):
                return True
    return False


def _written_order(value: _Value) -> list[int]:
    """The axes of a value as the loop goes that computes it: those of its transpose, if only that is written."""
    last = value
    while len(last.users) == 1 and last.users[0].name in ELEMENTWISE and last.users[0].size == value.size:
        last = last.users[0]
    axes = list(range(value.var.aval.ndim))
    if len(last.users) == 1 and last.users[0].name == "transpose":
        order = list(last.users[0].eqn.params["permutation"])
        return order if sorted(order) == axes else axes  # equal views count as one value, also of other shapes
    return axes


def _work_of(value: _Value) -> float:
    """The work for each element of a value, from what is in memory."""
    pending, seen, work = [value], {value}, 0.0
    while pending and len(seen) <= _CONE:
        each = pending.pop()
        work += each.run * each.size
        for operand in each.operands:
            if not operand.is_kernel and operand not in seen:
                seen.add(operand)
                pending.append(operand)
    return work / value.size


def _cut_long_kernels(values: list[_Value], found: dict[Any, str]) -> None:
    """Put barriers where a long kernel is narrow: where everything before goes through one value, or few.

    XLA and LLVM take more than linear time over a kernel. One that sums up what the steps of an unrolled loop contribute has
    a part for each step, and all parts are equal: if the running sum is written at each of them, they are compiled once.
    """
    for value in values:
        value.is_blocked |= value.var in found
    if _place_kernels(values) <= _LONG_KERNEL:
        return
    lengths: Counter[_Value] = Counter()
    for value in values:
        for kernel in value.kernels:
            lengths[kernel] += value.weight
    members: dict[_Value, list[_Value]] = {kernel: [] for kernel, length in lengths.items() if length > _LONG_KERNEL}
    for value in values if members else ():
        for kernel in value.kernels.keys() & members.keys():
            members[kernel].append(value)
    for kernel, inside in members.items():
        _cut(kernel, inside, found)


def _cut(kernel: _Value, inside: list[_Value], found: dict[Any, str]) -> None:
    """Cut a kernel, which computes the values `inside`, in equal parts if it has some, in very long ones otherwise."""
    inside = _longest_path_first(kernel, inside)
    last = {operand: value for value in inside for operand in value.operands}  # value -> its last reader in this kernel
    needed: set[_Value] = set()  # by later values
    closing: dict[_Value, list[_Value]] = {}
    places = []  # the values that all before goes through, with as many others
    for value in inside:
        needed.difference_update(closing.pop(value, ()))
        reader = last.get(value)
        if reader is not None:
            needed.add(value)
            closing.setdefault(reader, []).append(value)
        places.append(needed.copy() if len(needed) <= _NARROW else None)
    narrow = [value for value, place in zip(inside, places, strict=True) if place == {value}]
    kinds = Counter(map(_kind, narrow))
    common, times = kinds.most_common(1)[0] if kinds else (None, 0)
    length = 0.0
    for value, place in zip(inside, places, strict=True):
        length += value.weight
        if place and value is not kernel and (
                length > _LONGEST_PART or length > _EQUAL_PART and times > 2 and place == {value} and _kind(value) == common
                and _traffic(value) == _NEAR):
            for each in place:
                found.setdefault(each.var, f"{length:.0f} instructions of a long kernel ({each.name} of {each.size} elements)")
            length = 0.0


def _longest_path_first(kernel: _Value, inside: list[_Value]) -> list[_Value]:
    """The values of a kernel, each behind its operands, and what a value adds to a long chain right before it."""
    depth: dict[_Value, int] = {}
    for value in inside:
        depth[value] = 1 + max([depth.get(operand, 0) for operand in value.operands], default=0)
    ordered, pending, seen = [], [kernel], set()
    while pending:
        value = pending.pop()
        if value in seen:
            if depth.pop(value, 0):
                ordered.append(value)
            continue
        seen.add(value)
        operands = [operand for operand in value.operands if operand in depth and operand not in seen]
        pending += [value, *sorted(operands, key=depth.__getitem__)]
    return ordered


def _traffic(value: _Value) -> float:
    """What writing or reading one element costs: caches are fast, memory is slow."""
    bytes_ = value.size * getattr(value.var.aval.dtype, "itemsize", 4)
    return _NEAR if bytes_ < 32e3 else 1.5 if bytes_ < 512e3 else 4.0 if bytes_ < 8e6 else 16.0
