"""Arrays that a program for the CPU reads shifted, such as the neighbours in a grid: written once, with margins.

A neighbour beyond the edge is another edge's element, the edge's own, or a number. XLA:CPU makes kernels of the parts of a
concatenation along rows, one for each part of each shift, and of padding a decision for each element, which LLVM often cannot
take out of the loop. Where an array is written once with margins, its shifts are slices: they are read as fast as
the array itself. So

- rotations of one array along its rows become slices of it between a copy of its end and one of its start,
- one array padded by several amounts becomes slices of one that is padded by the largest,
- what is longer than an array by the elements at its edges, and is only sliced, is written as it is.

XLA computes equal values once, so each of them can be spelled out where it is needed. docs/fusion.md has measurements.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lowering.passes.emitted import Emitted, element_of, shape_of
from lowering.passes.operations import bodies, call_body

_ROW, _SIZE = 64, 4096  # elements of a row, and of an array, from which on it pays
_MARGIN = 1 / 8  # of an extent: a wider margin costs more than it saves

Margins = tuple[tuple[int, int], ...]  # before and after, for each axis


class Shift:
    """How a value is read out of an array with margins.

    Attributes: `why`, for the reader of a dump; `source`, the variable of the array that gets margins, None if the value itself
    is written; `margins`, before and after, for each axis; `start`, where the value begins in what is written.
    """

    __slots__ = ("why", "source", "margins", "start")

    def __init__(self, why: str, source: Any = None, margins: Margins | None = None, start: tuple[int, ...] = ()):
        self.why, self.source, self.margins, self.start = why, source, margins, start


def find(jaxpr: Any, is_split: bool) -> dict[Any, Shift]:
    """The variables of a program, and of the programs in its equations, that are better read from an array with margins.

    Those are not touched whose arrays XLA splits between devices (the whole program if `is_split`, but for what is written
    for one of them): it knows a rotation, and sends what each device needs of its neighbours.
    """
    found: dict[Any, Shift] = {}
    for each in _programs(jaxpr, is_split, set()):
        _find(each, found)
    return found


def _programs(jaxpr: Any, is_split: bool, seen: set[int]) -> Iterator[Any]:
    if id(jaxpr) in seen:
        return
    seen.add(id(jaxpr))
    if not is_split:
        yield jaxpr
    for eqn in jaxpr.eqns:
        inner, params = call_body(eqn), eqn.params
        is_for_one = eqn.primitive.name == "shard_map" and params["newly_manual_axes"].issuperset(params["mesh"].axis_names)
        for body in bodies(eqn) if inner is None else (inner,):
            yield from _programs(body, is_split and not is_for_one, seen)


def _find(jaxpr: Any, found: dict[Any, Shift]) -> None:
    candidates = [eqn for eqn in jaxpr.eqns if eqn.primitive.name in ("concatenate", "pad") and _is_large(eqn.outvars[0].aval)]
    if not candidates:
        return
    rotated, padded, extended = _grouped(jaxpr, candidates)
    for columns in extended.values():
        if len(set().union(*columns.values())) > 1:
            found.update((var, Shift(f"an array with its edges ({var.aval.size} elements)")) for var in columns)
    for source, members in rotated.items():
        found.update(_with_common_margins(source, members, True))
    for (source, _), members in padded.items():
        found.update(_with_common_margins(source, members, False))


def _grouped(jaxpr: Any, candidates: Sequence[Any]) -> tuple[dict[Any, Any], dict[Any, Any], dict[Any, Any]]:
    """The arrays that are shifted, and the results of equations that shift each of them.

    Returns: by array, the variables that are rotations of it and their margins; by array and number, those that pad it with the
      number, and their margins; by what is made, those that are an array with its edges, and the columns that are read of each
      and are not that array's alone.
    """
    makers = {var: eqn for eqn in jaxpr.eqns for var in eqn.outvars}
    readers: defaultdict[Any, list[Any]] = defaultdict(list)
    for eqn in jaxpr.eqns:
        for atom in eqn.invars:
            if not hasattr(atom, "val"):
                readers[atom].append(eqn)
    results = set(jaxpr.outvars)
    numbers = _numbered(jaxpr)
    rotated: defaultdict[Any, dict[Any, Any]] = defaultdict(dict)
    padded: defaultdict[Any, dict[Any, Any]] = defaultdict(dict)
    extended: defaultdict[Any, dict[Any, Any]] = defaultdict(dict)
    for eqn in candidates:
        (var,) = eqn.outvars
        is_cut = var not in results and all(map(_cuts_rows, readers[var]))
        if eqn.primitive.name == "pad":
            operand, number = eqn.invars
            if is_cut and (margins := _padding(eqn)):
                padded[operand, repr(number.val) if hasattr(number, "val") else number][var] = margins
            continue
        source, shift = _rotation(eqn, makers)
        if shift:
            rotated[source][var] = ((0, 0),) * (len(var.aval.shape) - 1) + ((max(shift, 0), max(-shift, 0)),)
        elif is_cut and (inside := _extended(eqn)):
            extended[numbers[var]][var] = {
                start for start, stop in map(_columns, readers[var]) if start < inside[0] or stop > inside[1]}
    return rotated, padded, extended


def _with_common_margins(source: Any, members: Mapping[Any, Margins], is_rotated: bool) -> Iterator[tuple[Any, Shift]]:
    """How variables are read from one array with the widest of their margins; nothing if all shift it alike."""
    if len({margins[-1] for margins in members.values()}) == 1:
        return
    widest = tuple((max(low), max(high)) for low, high in (
        zip(*axis, strict=True) for axis in zip(*members.values(), strict=True)))
    for var, margins in members.items():
        start = tuple(most - low + (high if is_rotated else 0) for (most, _), (low, high) in zip(widest, margins, strict=True))
        why = f"{'rotations' if is_rotated else 'paddings'} of an array ({var.aval.size} elements)"
        yield var, Shift(why, source, widest, start)


def _numbered(jaxpr: Any) -> dict[Any, Any]:
    """For variables that are made by cutting and joining, a number that is the same where the same is made."""
    numbers: dict[Any, Any] = {}
    known: dict[Any, int] = {}
    for eqn in jaxpr.eqns:
        if eqn.primitive.name in ("concatenate", "slice"):
            key = (tuple([numbers.get(atom, atom) for atom in eqn.invars]),
                   *(eqn.params.get(name) for name in ("dimension", "start_indices", "limit_indices", "strides")))
            numbers[eqn.outvars[0]] = known.setdefault(key, len(known))
    return numbers


def _is_large(aval: Any) -> bool:
    shape: Any = getattr(aval, "shape", ())
    return len(shape) > 1 and all(type(extent) is int for extent in shape) and shape[-1] >= _ROW and (
        math.prod(shape) >= max(_SIZE, 2 * shape[-1]))


def _padding(eqn: Any) -> Margins:
    """The margins that an equation pads an array with, if they are narrow, or nothing."""
    config = eqn.params["padding_config"]
    are_narrow = all(not inner and 0 <= min(low, high) and max(low, high) <= _MARGIN * extent
                     for (low, high, inner), extent in zip(config, eqn.invars[0].aval.shape, strict=True))
    return tuple((low, high) for low, high, _ in config) if are_narrow else ()


def _rotation(eqn: Any, makers: dict[Any, Any]) -> tuple[Any, int]:
    """The array whose rows a concatenation rotates, and by how many elements; 0 if it is not a rotation."""
    shape = eqn.outvars[0].aval.shape
    if eqn.params["dimension"] != len(shape) - 1 or len(eqn.invars) != 2:
        return None, 0
    first = eqn.invars[0].aval.shape[-1]
    (source, end), (other, start) = (_cut(makers.get(var), var) for var in eqn.invars)
    if source is None or source is not other or source.aval.shape != shape or (end, start) != (shape[-1] - first, 0):
        return None, 0
    shift = first if 2 * first <= shape[-1] else first - shape[-1]
    return source, shift if abs(shift) <= _MARGIN * shape[-1] else 0


def _cut(eqn: Any, var: Any) -> tuple[Any, int]:
    """The array out of whose rows an equation cuts a variable, and where in them that begins; None for another equation."""
    if eqn is not None and eqn.primitive.name == "split" and eqn.params["axis"] == len(var.aval.shape) - 1:
        return eqn.invars[0], sum(eqn.params["sizes"][:eqn.outvars.index(var)])
    if eqn is not None and eqn.primitive.name == "slice" and not any(eqn.params["start_indices"][:-1]) and _is_dense(eqn):
        return eqn.invars[0], eqn.params["start_indices"][-1]
    return None, 0


def _is_dense(eqn: Any) -> bool:
    return set(eqn.params["strides"] or ()) <= {1}


def _extended(eqn: Any) -> tuple[int, int] | None:
    """The position of an array in the rows of a concatenation that adds a few elements to it, else None."""
    axis = len(eqn.outvars[0].aval.shape) - 1
    extents = [atom.aval.shape[axis] for atom in eqn.invars]
    longest, length = max(extents), sum(extents)
    if eqn.params["dimension"] != axis or not length > longest >= (1 - _MARGIN) * length:
        return None
    start = sum(extents[:extents.index(longest)])
    return start, start + longest


def _cuts_rows(eqn: Any) -> bool:
    """Whether it takes a part of each row of an array."""
    return eqn.primitive.name == "slice" and _is_dense(eqn) and (
        eqn.outvars[0].aval.shape[-1] < eqn.invars[0].aval.shape[-1])


def _columns(eqn: Any) -> tuple[int, int]:
    return eqn.params["start_indices"][-1], eqn.params["limit_indices"][-1]


def read(value: Any, shift: Shift | None, emitted: Emitted) -> Any:
    """A value out of an array with margins; None if that is the value itself."""
    if shift is None or shift.margins is None:
        return None
    owner, element = value.owner, element_of(value)
    *rows, length = shape = shape_of(value)
    before, after = zip(*shift.margins, strict=True)
    if owner.name == "stablehlo.pad":
        x, number = owner.operands
        wide = [sum(each) for each in zip(before, shape_of(x), after, strict=True)]
        written = emitted.make("pad", wide, element, x, number, edge_padding_low=[*before], edge_padding_high=[*after],
                               interior_padding=[0] * len(wide))
    else:
        x = owner.operands[0].owner.operands[0]  # that both operands are slices of
        zeros = [0] * len(rows)
        parts = [emitted.sliced(x, [*zeros, length - before[-1]], [*rows, before[-1]])] if before[-1] else []
        parts += [x, emitted.sliced(x, [*zeros, 0], [*rows, after[-1]])] if after[-1] else [x]
        wide = [*rows, before[-1] + length + after[-1]]
        written = emitted.make("concatenate", wide, element, *parts, dimension=len(rows))
    return emitted.sliced(emitted.written(written), shift.start, shape)
