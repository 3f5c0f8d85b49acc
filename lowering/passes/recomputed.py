"""Values that are better written to memory, as each kernel, part, row or element that reads them would compute them again.

The choice of `fusion` weighs the code that XLA emits and the work of whole kernels. These are the cases in which XLA or LLVM
do more than that. Each section is a case, with the limits that were measured for it, in operations (`operations.RUN_COST`) or
elements. docs/fusion.md has the measurements.
"""

from __future__ import annotations

from itertools import pairwise
from operator import itemgetter
from typing import Any

from lowering.passes import products
from lowering.passes.operations import ELEMENTWISE, FUSIBLE, MOVES, REDUCTIONS
from lowering.passes.values import CONE, MANY_BITS, MOST_KERNELS, SLICES, Value, cone_of, is_complex, traffic, work_of

PADDED_ROW = 64  # elements of a row that LLVM unrolls as a whole, and so without branches
_VECTOR = 16  # elements that LLVM makes vectors of
_SHARED = 10_000  # operations done again that are worth a kernel


def write(values: list[Value], found: dict[Any, str], in_loop: bool) -> None:
    """Add the barriers of a program to those that are `found`; `in_loop`, it is the body of a loop, or in one."""
    _write_counters(values, found)
    _write_bits(values, found)
    _write_padded(values, found, in_loop)
    _write_shared(values, found, in_loop)
    _write_repeated(values, found, in_loop)
    _write_complex(values, found)
    _read_reshaped(values, found)


# --- positions ---------------------------------------------------------------------------------------

_LONG_COUNT = 64  # integer operations on positions, one after another, of which LLVM should not see the start
_first = itemgetter(0)


def _write_counters(values: list[Value], found: dict[Any, str]) -> None:
    """Put barriers behind the positions that long integer arithmetic starts from.

    LLVM's vectorizer asks of every operation on a loop's index who reads it, along all paths. In a hash of the index there
    are so many that compiling takes twice as long; of what is read from memory it does not ask.
    """
    counts: dict[Value, tuple[int, Value]] = {}  # value -> the integer operations since a position, and the position
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


# --- random bits -------------------------------------------------------------------------------------

_HASHES = 10_000  # random numbers made again that are worth a kernel,
_HASHES_BY_ROW = 1000  # and where LLVM does not move them out of the inner loop


def _write_bits(values: list[Value], found: dict[Any, str]) -> None:
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
        elif value.size < MANY_BITS:
            for each in _spread(value):
                found[each.var] = f"made of random bits, and spread ({each.size} elements)"
                each.is_kernel = True
        elif any(user.is_loop for user in value.users):
            found[value.var] = f"random bits ({value.size} elements)"


def _spread(start: Value) -> list[Value]:
    """What is computed from random bits, in the same kernel, and read by an array of many more elements."""
    pending, seen, found = [start], {start}, []
    while pending and len(seen) <= CONE:
        value = pending.pop()
        if any(user.is_loop and user.size > max(value.size, _HASHES_BY_ROW if _repeats_rows(user, value) else _HASHES)
               for user in value.users):
            found.append(value)
            continue
        inside = [user for user in value.users if user.is_loop and user not in seen]
        seen.update(inside)
        pending += inside
    return found


# --- what several pads read --------------------------------------------------------------------------

_PADDED_EACH, _PADDED = (6, 3), (_SHARED, 1500)  # operations for an element, and in all, outside of loops and in them,
_TRAFFIC = 5, 3  # in units of the traffic of a kernel
_UNROLLED = 32  # operations for an element of a row that LLVM unrolls as a whole, with all that is computed of it
_PEELED, _CHEAP = (13, 25), 2  # cheap operations for an element, beside whose two pads at the ends of rows LLVM makes vectors


def _write_padded(values: list[Value], found: dict[Any, str], in_loop: bool) -> None:
    """Put barriers behind values that several pads read, such as differences of fluxes, and derivatives of differences.

    Each pad is a branch that computes its operand. LLVM makes no vectors of two of them, or it computes both for all elements.
    """
    pads: dict[Value, set[Value]] = {}
    least_each, least = _PADDED_EACH[in_loop], _PADDED[in_loop]
    for value in reversed(values):
        readers = pads[value] = set()
        for user in value.users:
            if user.name == "pad" and user.is_loop:
                readers.add(user)
            elif user.name in ELEMENTWISE and user.size == value.size and not user.is_kernel:
                readers |= pads[user]
        times = sum([1 + len(pad.copies) for pad in readers])  # equal ones seldom are in one kernel
        if times < 2 or value.name not in ELEMENTWISE or not value.is_loop or value.is_kernel or not value.size:
            continue
        steps = [each for each in cone_of(value) if each.name in ELEMENTWISE]
        work = sum(each.run * min(each.size, value.size) for each in steps) / value.size
        again = (times - 1) * work
        if times == len(readers) and (work <= _UNROLLED and _make_short_rows(readers) or (
                _PEELED[0] <= work < _PEELED[1] and max(each.run for each in steps) <= _CHEAP and _are_at_ends(readers))):
            pads[value] = set()  # it is fast as it is, and with it all that it is computed of
        elif work >= least_each and again > _TRAFFIC[in_loop] * traffic(value) and again * value.size > least:
            found.setdefault(value.var, f"padded {times} times ({value.name} of {value.size} elements)")
            value.is_kernel, pads[value] = True, set()


def _make_short_rows(pads: set[Value]) -> bool:
    """Whether each of them is another part of short rows, which LLVM unrolls as a whole."""
    shape = next(iter(pads)).var.aval.shape
    starts = sorted({pad.eqn.params["padding_config"][-1] for pad in pads})
    return shape[-1] <= PADDED_ROW and len(starts) == len(pads) and all(
        low + (shape[-1] - low - high) <= after for (low, high, _), (after, _, _) in pairwise(starts))


def _are_at_ends(pads: set[Value]) -> bool:
    """Whether they are two that add an element to rows, one of them at the start and the other at the end."""
    *others, lasts = zip(*[pad.eqn.params["padding_config"] for pad in pads], strict=True)
    return sorted(lasts) == [(0, 1, 0), (1, 0, 0)] and not any(any(config) for axis in others for config in axis)


# --- costly functions that are computed several times for an element ---------------------------------

_SHARED_EACH = 13  # operations for an element: an exponential
_LARGE = 4096  # elements of an array whose pads are branches
_PART_EACH, _PART = 30, 3000  # operations for an element, and in all, that parts of a concatenation in a loop do again
_TAKEN_IN = 16384  # bytes of a matrix, from which on XLA writes it before it multiplies it by a vector
_FEW_GATHERED = 4  # elements in a row that is gathered, for which LLVM computes their index once
_OTHER_PLACES = SLICES | {"gather", "rev", "transpose"}  # they read elements in another order


def _write_shared(values: list[Value], found: dict[Any, str], in_loop: bool) -> None:
    """Put barriers behind costly functions that are computed several times for an element.

    Each part of a concatenation that reads one is a branch that computes it, and each pad. So does each slice or other view, a
    gather for each element that it gives, and, of sines and a few others, each kernel. In a loop, where LLVM does not vectorize
    branches for whole rows, the same holds for what takes much in all.
    """
    places: dict[Value, dict[int, float]] = {}  # where a value is computed, and how many times for an element, on average
    numbers: dict[Any, int] = {}  # of these places
    number = lambda *place: numbers.setdefault(place, len(numbers))
    branches: set[int] = set()  # those that are whole rows of a concatenation
    for value in reversed(values):
        is_transposed = _is_transposed_for_products(value)
        is_inside = value.users and not value.is_kernel or is_transposed
        within = places[value] = {} if is_inside else {number(value): 1.0}
        for user in value.users if is_inside else ():
            if user.name == "dot_general":
                read = value.operands[0] if is_transposed else value
                within[number(user if _takes_in(user, value) else read)] = 1.0
            if not user.is_loop or user.name in REDUCTIONS or len(within) > MOST_KERNELS:
                continue
            if user.joined:
                parts = [number(user, index) for index, part in enumerate(user.joined) if part is value]
                branches.update(parts if value.var.aval.shape[-1:] == user.var.aval.shape[-1:] else ())
                within.update(dict.fromkeys(parts, 1.0))
            elif user.name == "pad" and user.size > _LARGE and user.var.aval.shape[-1] > PADDED_ROW:
                within[number(user)] = 1.0
            elif user.name in _OTHER_PLACES and not _is_transposed_for_products(user):
                part = _times_read(user, value)
                within.update([(number(user, place), times * part) for place, times in places[user].items()])
            else:
                for place, times in places[user].items():
                    within[place] = max(times, within.get(place, 0.0))
        is_shared = len(value.users) > 1 and len(branches & within.keys()) > 1
        if in_loop and is_shared and value.name in ELEMENTWISE and value.is_loop and not value.is_kernel:
            work = work_of(value)
            if work > _PART_EACH and (len(within) - 1) * work * value.size > _PART:
                found.setdefault(value.var, f"computed in {len(within)} parts ({value.name} of {value.size} elements)")
                value.is_kernel, places[value] = True, {number(value): 1.0}
        times = sum(places[value].values())
        again = (times - 1) * value.run
        if value.run >= _SHARED_EACH and value.is_loop and again * value.size > _SHARED and again > traffic(value):
            written = _only_reader(value)
            found.setdefault(written.var, f"computed {times:.3g} times ({value.name} of {value.size} elements)")
            written.is_kernel, places[written] = True, {number(written): 1.0}


def _times_read(user: Value, value: Value) -> float:
    """How many times for an element of a value a view reads it. A gather counts half, as it takes longer anyway."""
    times = user.size / max(1, value.size)
    if user.name != "gather":
        return times
    is_index = value.size == user.eqn.invars[1].aval.size
    return min(times / 2, 1.0) if is_index and times <= _FEW_GATHERED else times / 2


def _is_transposed_for_products(value: Value) -> bool:
    """Whether it is a transposition that products alone read: they read its operand."""
    if value.name != "transpose" or not value.operands or value.is_result:
        return False
    return all(user.name == "dot_general" for user in value.users)


def _takes_in(product: Value, factor: Value) -> bool:
    """Whether XLA computes a small matrix in the loop that multiplies it by a vector, and does not write it for a library."""
    is_vector = product.var.aval.ndim <= 1 and factor.var.aval.ndim == 2
    return is_vector and factor.size * factor.var.aval.dtype.itemsize < _TAKEN_IN


def _only_reader(value: Value) -> Value:
    """A value, or what is computed of it alone, and of numbers, before several read that."""
    while len(value.users) == 1 and not value.is_result:
        (user,) = value.users
        if user.name not in ELEMENTWISE or user.size != value.size or user.is_kernel or len(user.operands) > 1:
            break
        value = user
    return value


# --- values that are repeated for each row -----------------------------------------------------------

_REPEATED, _REPEATED_WORK = 1_000_000, 12  # operations done again that are worth a kernel, and those for an element
_REPEATED_MOST = 1000  # operations for an element, at most
_REPEATED_SCALAR = 4000  # operations done again that are worth a kernel for a scalar,
_REPEATED_FACTOR, _REPEATED_IF_WRITTEN = 16000, 4000  # for a factor of a product, and for one that is written anyway


def _write_repeated(values: list[Value], found: dict[Any, str], in_loop: bool) -> None:
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
            if spread > 1 and value.weight and spread * work_of(value) > _REPEATED_SCALAR and _is_joined(value):
                found.setdefault(value.var, f"computed again for each element of a part ({value.name})")
                value.is_kernel = True
            continue
        repeated = sum([user.size for user in value.users if user.size > value.size and _repeats_rows(user, value)])
        if repeated * _REPEATED_MOST < _REPEATED:
            continue
        work = work_of(value)
        if work >= _REPEATED_WORK and (repeated - value.size) * (work - traffic(value)) > _REPEATED:
            found.setdefault(value.var, f"computed again for each row ({value.name} of {value.size} elements)")
            value.is_kernel = True


def _is_joined(start: Value) -> bool:
    """Whether a value becomes part of a concatenation in the same kernel."""
    pending, seen = [start], {start}
    while pending and len(seen) <= CONE:
        for user in pending.pop().users:
            if user.name in ("concatenate", "stack", "pad") and user.is_loop:
                return True
            if user.is_loop and not user.is_kernel and user not in seen:
                seen.add(user)
                pending.append(user)
    return False


def _repeats_rows(user: Value, value: Value) -> bool:
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


def _written_order(value: Value) -> list[int]:
    """The axes of a value as the loop goes that computes it: those of its transpose, if only that is written."""
    last = value
    while len(last.users) == 1 and last.users[0].name in ELEMENTWISE and last.users[0].size == value.size:
        last = last.users[0]
    axes = list(range(value.var.aval.ndim))
    if len(last.users) == 1 and last.users[0].name == "transpose":
        order = list(last.users[0].eqn.params["permutation"])
        return order if sorted(order) == axes else axes  # equal views count as one value, also of other shapes
    return axes


def _write_factor(product: Value, found: dict[Any, str], in_loop: bool) -> None:
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
            saved = (count - value.size) * (work_of(value) - traffic(value))
            if saved > (_REPEATED_FACTOR if len(value.users) == 1 else _REPEATED_IF_WRITTEN):
                found.setdefault(value.var, f"computed again for each row of a product ({value.name} of {value.size} elements)")


def _is_summed(eqn: Any) -> bool:
    """Whether a product of two matrices in a loop is a sum in its kernel."""
    from lowering.small_products import is_summed  # loaded with the program's own rules

    return is_summed(*products.of_arrays(eqn), True)


# --- complex functions -------------------------------------------------------------------------------

_COMPLEX = frozenset(
    "exp exp2 expm1 log log1p sin cos tan sinh cosh tanh logistic sqrt rsqrt pow asin acos asinh acosh".split())
_SEVERAL = _COMPLEX | {"sign"}  # of a complex operand they are several kernels


def _write_complex(values: list[Value], found: dict[Any, str]) -> None:
    """Put barriers behind complex functions that several kernels read: XLA makes them of sines and exponentials in each."""
    for value in values:
        if value.name in _COMPLEX and value.is_loop and is_complex(value.var.aval) and value.size >= _VECTOR:
            if len(value.kernels) > 1 or any(user.name in _SEVERAL for user in value.users):
                found.setdefault(value.var, f"a complex function with several readers ({value.name} of {value.size} elements)")
                value.is_kernel = True


# --- arrays in another shape -------------------------------------------------------------------------

_RESHAPED, _RESHAPED_ROW = 4096, 64  # elements of an array, and of its rows, below which they are short


def _read_reshaped(values: list[Value], found: dict[Any, str]) -> None:
    """Put barriers behind reshapes of what is in memory, which cost nothing by themselves.

    In a kernel, the position of an element in the other shape takes divisions by the length of a row. Unless that is a power
    of two, LLVM makes no vectors of what is computed of it.
    """
    for value in values:
        if value.name != "reshape" or not value.is_loop or value.size < _RESHAPED or not all(
                operand.is_kernel for operand in value.operands):
            continue
        row = next((extent for extent in reversed(value.eqn.invars[0].aval.shape) if extent > 1), 1)
        if value.shape[-1:] == (row,) or row >= _RESHAPED_ROW or row & (row - 1) == 0:
            continue
        if any(user.name in ELEMENTWISE for user in value.users):
            found.setdefault(value.var, f"read in another shape ({value.size} elements)")
            value.is_kernel = True
