"""Fusion barriers for XLA:CPU: the values of a program that are better written to memory than computed again.

XLA:CPU fuses an elementwise value into *every* kernel that reads it, together with all that it is made of. A chain of
values that are each read by two kernels doubles its code at every step, and so unrolled loops and gradients take XLA
seconds to hours. An `optimization_barrier` makes its value a kernel of its own: written once, read often.

The choice is made from the equations alone, in walks that are linear in their number:

1. `values.collect`: the program as a graph of values, calls seen through. Reshapes that move nothing are their operand.
2. `_place_kernels`, from the results back: in which kernels XLA would compute each value, and how often in each. What XLA
   writes of its own accord (what no loop computes, results, costly values with several readers) is a kernel. `_find_blocked`,
   forward, finds further ones. If all values together are computed hardly more than once, no barrier is needed. Otherwise
   the values that are computed several times are candidates, and the walk is made again as if all of them were written:
   that gives their readers.
3. `_choose`, forward: the cost of computing each value from what is in memory, with the barriers chosen so far. A candidate
   gets a barrier if the instructions that it saves outweigh another kernel, and the arithmetic that it saves outweighs
   the memory traffic. XLA compiles equal kernels once, so values of one kind share the cost of theirs: a barrier is cheap
   where every step of an unrolled loop gets it.
4. `recomputed.write`: values that kernels, parts, rows or elements would compute again, at a higher cost than this model knows.
5. `library_reads.write`: what libraries and searches read, where XLA would write more than that for them.
6. `_cut_long_kernels`: what is left of kernels with hundreds of instructions is cut where it is narrow.

Bodies of loops and branches are programs of their own. docs/fusion.md has the measurements.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping
from types import MappingProxyType, SimpleNamespace
from typing import Any

from lowering.passes import library_reads, places, products, recomputed, updates
from lowering.passes.operations import LOOPS, REDUCTIONS, VIEWS, bodies
from lowering.passes.values import MOST_KERNELS, NEAR, SLICES, Kernels, Value, collect, count_copies, kind_of, traffic

_NOT_STRETCHING = REDUCTIONS | {"gather", "pad"}  # XLA fuses costly values into these, even if they are larger
# What puts a result of an iteration into a stack.
_STACKING = SimpleNamespace(primitive=SimpleNamespace(name="copy"), invars=(), params={})

_BLOW_UP = 1.3  # emitted instructions for each one of the program that are nothing to worry about
_LITTLE = 150  # instructions too many that XLA compiles in less time than barriers cost
_KERNEL, _EQUAL_KERNEL = 16, 2  # what a further kernel costs, in instructions, and one that is like another
_SAVING, _SAVING_IF_WRITTEN = 8, 2  # instructions that a barrier must save
_FEW = 6  # instructions that are computed again as fast as they are read, where that is not from the nearest cache
_HUGE_SAVING = 300  # from here on memory traffic does not matter
_MOST_COPIES = 15  # XLA does not index one value in more ways than this in a kernel
_WINDOW = 1024  # values whose dependents are known at a time; values further apart count as independent
_LONG_KERNEL = 400  # instructions from which on a kernel is looked at for places to cut it
_EQUAL_PART, _LONGEST_PART = 48, 512  # instructions from cut to cut, where the parts are alike and where they are not
_NARROW = 4  # values that a part of a kernel may pass to the next


def barriers(jaxpr: Any, shifted: Mapping[Any, Any] = MappingProxyType({}),
             own_loops: Container[Any] = (), moved: set[Any] | None = None) -> dict[Any, str]:
    """The variables of a program, and of the programs in its equations, that get a barrier, and why.

    Args:
      jaxpr: a program without dead code.
      shifted: variables that are read from arrays with margins, and how (see `shifts.find`).
      own_loops: large reductions that are not the library's (see `short_rows.find`).
      moved: gets the variables of slices at places that XLA shall not know (see `places`).
    Returns: variable -> a short reason for the reader of a dump.
    """
    found = {var: shift.why for var, shift in shifted.items()}
    _region(jaxpr, found, shifted, own_loops, set() if moved is None else moved, set(), False)
    return found


def _region(jaxpr: Any, found: dict[Any, str], shifted: Mapping[Any, Any], own_loops: Container[Any], moved: set[Any],
            seen: set[int], in_loop: bool, carried: int | None = None) -> None:
    """Find the barriers and moved slices of a program; of the body of a scan, only so many results are `carried`."""
    if id(jaxpr) in seen:
        return
    seen.add(id(jaxpr))
    values: list[Value] = []
    env: dict[Any, Value] = {}

    def visit(eqn: Any, known: Mapping[Any, Value]) -> None:
        for body in bodies(eqn):
            _region(body, found, shifted, own_loops, moved, seen, in_loop or eqn.primitive.name in LOOPS,
                    eqn.params["num_carry"] if eqn.primitive.name == "scan" else None)
        if eqn.primitive.name == "dot_general":
            left = known.get(eqn.invars[0])
            if products.is_better_transposed(eqn, left.eqn if left is not None and left.name == "transpose" else None):
                found[eqn.outvars[0]] = f"a product that is faster in the other order ({eqn.outvars[0].aval.size} elements)"
            elif not in_loop and products.are_many(eqn):
                found[eqn.outvars[0]] = f"small products, many of them ({eqn.outvars[0].aval.size} elements)"

    known = collect(jaxpr, env, values, shifted, visit, own_loops=own_loops)
    for place, atom in enumerate(jaxpr.outvars):
        if atom in env:
            result = env[atom]
            if result.name == "dot_general" and not result.users and products.is_little(result.eqn):
                for var in (result.var, *result.copies):
                    found.pop(var, None)
            if carried is not None and place >= carried:  # the stack is written, by a kernel that takes the result in
                stack = Value(result.var, _STACKING, [result])
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
    updates.write(values, found, in_loop, known)
    recomputed.write(values, found, in_loop)
    library_reads.write(values, found, in_loop)
    if needed > _LONG_KERNEL:
        _cut_long_kernels(values, found)
    groups = places.candidates(values, known)
    if groups:
        for value in values:
            value.is_blocked |= value.var in found
        _place_kernels(values)
        moved |= places.choose(groups, values)
    for value in values:
        if value.copies and value.var in found:  # or XLA would not see that they are equal
            found.update(dict.fromkeys(value.copies, found[value.var]))


def _place_kernels(values: list[Value]) -> float:
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
        emitted += value.weight * count_copies(value.kernels)
    return emitted


def _find_blocked(values: list[Value]) -> None:
    """Find the shy values of which a reader also reads, by way of another kernel, what is computed from them.

    Such a reader cannot take them in: the other kernel, which comes first, needs them in memory. So it is with the state of a
    system where one step adds to it what it made of it. Sets are integers with a bit for each value that may be found so.
    """
    bits: dict[Value, int] = {}
    inside: dict[Value, int] = {}  # value -> those that it is computed from
    beyond: dict[Value, int] = {}  # value -> those that it is computed from by way of another kernel
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


def _find_readers(values: list[Value]) -> None:
    """Pick the candidates, and find the kernels that compute each of them if all others are written."""
    for value in reversed(values):
        if value.is_kernel and value.is_loop and value.is_costly and not value.is_blocked:
            kernels, written = _kernels(value)  # fewer than before, and perhaps one: then XLA does not write it any more
            value.is_kernel = not kernels or written or len(kernels) > 1
            value.kernels = {value: 1} if value.is_kernel else kernels
            continue
        if value.is_kernel:
            continue
        is_candidate = len(value.users) + value.is_result > 1 and count_copies(value.kernels) > 1 and value.name not in VIEWS
        kernels, value.is_written = _kernels(value)
        value.part = _part(value)
        if is_candidate:
            value.readers, value.kernels = kernels, {value: 1}
        else:
            value.kernels = kernels | {value: 1} if value.is_written or not kernels else kernels


def _part(value: Value) -> float:
    """How much of a value one of its copies computes, on average: all, unless its readers take slices of it."""
    copies = elements = 0.0
    for user in value.users:
        is_written = user.is_kernel or user.readers is not None
        times = 1 if is_written else count_copies(user.kernels)
        size = min(user.size, value.size) if user.name in SLICES else value.size
        copies += times
        elements += times * size * (1.0 if is_written else user.part)
    return elements / (copies * value.size) if elements else 1.0


def _kernels(value: Value) -> tuple[Kernels, bool]:
    """The kernels of its users into which XLA fuses a value, and whether somebody reads it from memory as well."""
    users, written = value.users, value.is_result
    kernels: Kernels = {}
    for user in users:
        if not user.is_loop or (value.is_costly and user.size > value.size and user.name not in _NOT_STRETCHING):
            written = True
        elif user.shape == value.shape or user.name == "transpose":
            if len(users) == 1:
                return user.kernels, written  # shared: it is not changed
            for kernel, times in user.kernels.items():
                kernels[kernel] = max(times, kernels.get(kernel, 0))
        else:
            for kernel, times in user.kernels.items():
                kernels[kernel] = times + kernels.get(kernel, 0)
        if len(kernels) > MOST_KERNELS:
            break
    if value.name != "broadcast_in_dim" and any(times > _MOST_COPIES for times in kernels.values()):
        return {kernel: times for kernel, times in kernels.items() if times <= _MOST_COPIES}, True
    return kernels, written


def _choose(values: list[Value], found: dict[Any, str]) -> None:
    """Put barriers where they pay, from the arguments on."""
    kinds = Counter(kind_of(value) for value in values if value.readers is not None)
    for value in values:
        if not value.is_loop:
            continue
        value.instructions, value.work = _cost(value)
        if value.readers is None or value.instructions < (_FEW if traffic(value) > NEAR else 2):
            continue
        copies = count_copies(value.readers) + value.is_written
        kernel = _EQUAL_KERNEL + (_KERNEL - _EQUAL_KERNEL) / kinds[kind_of(value)]
        saving = (copies - 1) * value.instructions - (0 if value.is_written else kernel)
        if saving < (_SAVING_IF_WRITTEN if value.is_written else _SAVING):
            continue
        moved = traffic(value) * (len(value.readers) + (not value.is_written))
        computed = count_copies(value.readers) * value.part + value.is_written  # times each element, on average
        if (computed - 1) * value.work < moved and saving < _HUGE_SAVING:
            continue
        found[value.var] = (f"{copies} times these {value.instructions:.4g} instructions "
                            f"({value.name} of {value.size} elements)")
        value.is_kernel = True


def _charged(value: Value) -> bool:
    """Whether another user in the same kernel has paid for a value already."""
    if value.readers is None or value.is_written or count_copies(value.readers) > 1:
        return False
    before, value.is_charged = value.is_charged, True
    return before


def _cost(value: Value) -> tuple[float, float]:
    """The instructions that compute a value from what is in memory, and their work for each of its elements."""
    instructions, work = float(value.weight), float(value.run * value.size)
    for operand in value.operands:
        if not operand.is_kernel and not _charged(operand):
            instructions += operand.instructions
            work += operand.work * operand.size
    return instructions, work / max(1, value.size)


def _cut_long_kernels(values: list[Value], found: dict[Any, str]) -> None:
    """Put barriers where a long kernel is narrow: where everything before goes through one value, or few.

    XLA and LLVM take more than linear time over a kernel. One that sums up what the steps of an unrolled loop contribute has
    a part for each step, and all parts are equal: if the running sum is written at each of them, they are compiled once.
    """
    for value in values:
        value.is_blocked |= value.var in found
    if _place_kernels(values) <= _LONG_KERNEL:
        return
    lengths: Counter[Value] = Counter()
    for value in values:
        for kernel in value.kernels:
            lengths[kernel] += value.weight
    members: dict[Value, list[Value]] = {kernel: [] for kernel, length in lengths.items() if length > _LONG_KERNEL}
    for value in values if members else ():
        for kernel in value.kernels.keys() & members.keys():
            members[kernel].append(value)
    for kernel, inside in members.items():
        _cut(kernel, inside, found)


def _cut(kernel: Value, inside: list[Value], found: dict[Any, str]) -> None:
    """Cut a kernel, which computes the values `inside`, in equal parts if it has some, in very long ones otherwise."""
    inside = _longest_path_first(kernel, inside)
    last = {operand: value for value in inside for operand in value.operands}  # value -> its last reader in this kernel
    needed: set[Value] = set()  # by later values
    closing: dict[Value, list[Value]] = {}
    places = []  # the values that all before goes through, with as many others
    for value in inside:
        needed.difference_update(closing.pop(value, ()))
        reader = last.get(value)
        if reader is not None:
            needed.add(value)
            closing.setdefault(reader, []).append(value)
        places.append(needed.copy() if len(needed) <= _NARROW else None)
    narrow = [value for value, place in zip(inside, places, strict=True) if place == {value}]
    kinds = Counter(map(kind_of, narrow))
    common, times = kinds.most_common(1)[0] if kinds else (None, 0)
    length = 0.0
    for value, place in zip(inside, places, strict=True):
        length += value.weight
        if place and value is not kernel and (
                length > _LONGEST_PART or length > _EQUAL_PART and times > 2 and place == {value} and kind_of(value) == common
                and traffic(value) == NEAR):
            for each in place:
                found.setdefault(each.var, f"{length:.0f} instructions of a long kernel ({each.name} of {each.size} elements)")
            length = 0.0


def _longest_path_first(kernel: Value, inside: list[Value]) -> list[Value]:
    """The values of a kernel, each behind its operands, and what a value adds to a long chain right before it."""
    depth: dict[Value, int] = {}
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
