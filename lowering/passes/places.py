"""Slices whose places XLA only knows when the program runs, so that the kernels that read them are equal.

The steps of an unrolled loop read one row of an array after the other, or the weights of one layer in a stack. Their kernels
differ in nothing but the place, and XLA compiles every one. If the place is a number behind a barrier, they are equal, and XLA
of jaxlib 0.12 compiles one of them. docs/fusion.md has the measurements.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence, Set
from typing import Any

from lowering import xla
from lowering.passes.emitted import Emitted, element_of, shape_of
from lowering.passes.operations import LOOPS
from lowering.passes.values import Value, is_constant, source_of

_PARTS = ("slice", "split", "unstack")
_LEAST = 16  # elements of a slice: XLA computes single numbers where they are read, also in loops
_SAVED = 2  # kernels, from which on it pays
_MOST = 4  # slices of an array that a kernel reads: LLVM should know where a table of them is


def candidates(values: Sequence[Value], known: Mapping[Any, Any]) -> list[list[Value]]:
    """The slices of a program in groups, each of parts of an array with one shape."""
    groups: dict[Any, list[Value]] = defaultdict(list)
    for value in values:
        atom = value.eqn.invars[0] if value.name in _PARTS and not xla.BARRIER_DROPPER else None
        if atom is None or not value.operands and is_constant(atom, {}, known):
            continue
        if not _LEAST <= value.size <= atom.aval.size // 2 or set(value.eqn.params.get("strides") or ()) > {1}:
            continue
        groups[value.operands[0] if value.operands else source_of(atom, known), value.shape, atom.aval.shape].append(value)
    return [group for group in groups.values() if len(group) > _SAVED]


def choose(groups: Sequence[Sequence[Value]], values: Sequence[Value]) -> set[Any]:
    """The variables of those groups whose places shall be numbers behind barriers.

    Args: `values` of the program, of which it is known in what `kernels` they are computed.
    """
    groups = [group for group in groups if all(operand.is_kernel for operand in group[0].operands)
              and not any(user.name in LOOPS for value in group for user in value.users)]  # XLA cuts inside of the loop
    members: dict[Value, list[Value]] = {kernel: [] for group in groups for value in group for kernel in value.kernels}
    for value in values if members else ():
        for kernel in value.kernels.keys() & members.keys():
            members[kernel].append(value)
    moved = {value for group in groups for value in group}
    kinds = {kernel: _kind(inside, moved) for kernel, inside in members.items()}
    chosen: set[Any] = set()
    for group in groups:
        kernels = Counter(kernel for value in group for kernel in value.kernels)
        saved = len(kernels) - len({kinds[kernel] for kernel in kernels})
        if saved >= _SAVED and max(kernels.values()) <= _MOST:
            chosen.update(var for value in group for var in (value.var, *value.copies))
    return chosen


def _kind(inside: Sequence[Value], moved: Set[Value]) -> tuple[Any, ...]:
    """Equal for kernels that compute the same of other arrays, but for the places of slices that are `moved`."""
    numbers: dict[Value, int] = {}  # of what is computed and read, in order
    described: list[Any] = []
    for value in inside:
        operands = [numbers.setdefault(operand, len(numbers)) for operand in value.operands]
        atoms = [repr(atom.val) if hasattr(atom, "val") else (atom.aval.dtype, atom.aval.shape) for atom in value.eqn.invars]
        part = value.eqn.outvars.index(value.var) if value.name in _PARTS else 0
        place = () if value in moved else (part, repr(value.eqn.params))
        described.append((value.name, value.var.aval.dtype, value.var.aval.shape, *place, *operands, *atoms))
        numbers.setdefault(value, len(numbers))
    return tuple(described)


def emit(scopes: Sequence[dict[Any, Any]], chosen: Set[Any], emitted: Emitted) -> None:
    """Let the slices that give these variables begin at numbers behind barriers.

    Args: `scopes`, for each function and region of a module, its variables and their values.
    """
    numbers: dict[Any, Any] = {}  # block and number -> that behind a barrier
    for scope in scopes if chosen else ():
        for var in chosen & scope.keys():
            owner = scope[var].owner
            while getattr(owner, "name", "") == "stablehlo.reshape":
                owner = owner.operands[0].owner
            if getattr(owner, "name", "") == "stablehlo.slice":
                _emit(owner, emitted, numbers)


def _emit(owner: Any, emitted: Emitted, numbers: dict[Any, Any]) -> None:
    ir, array, shape = xla.ir, owner.operands[0], shape_of(owner.result)
    index, block = ir.IntegerType.get_signless(64, owner.context), ir.InsertionPoint(owner).block

    def number(start: int, is_whole: bool) -> Any:
        key = block, start, is_whole
        if key not in numbers:
            with owner.location, ir.InsertionPoint.at_block_begin(block):
                constant = emitted.number(start, index)
                numbers[key] = constant if is_whole else emitted.written(constant)
        return numbers[key]

    starts = [number(start, extent == part) for start, extent, part in zip(
        ir.DenseI64ArrayAttr(owner.attributes["start_indices"]), shape_of(array), shape, strict=True)]
    with owner.location, ir.InsertionPoint(owner):
        part = emitted.make("dynamic_slice", shape, element_of(array), array, *starts, slice_sizes=shape)
        emitted.replace(owner.result, part)
