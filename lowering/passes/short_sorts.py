"""Sorting along short axes, by the rank of each element.

XLA:CPU sorts one row after another, and calls a comparator for each pair that it compares: some 50 nanoseconds an element.
Of a few elements, all pairs can be compared by vectors: how many come before an element is its rank, which is its place in what
is sorted. The elements are then picked by their bits. docs/fusion.md has the measurements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from typing import Any

from lowering import xla
from lowering.passes import barriers
from lowering.passes.emitted import Emitted, element_of, shape_of
from lowering.passes.loops import equations, last_axis

_LONGEST, _LONGEST_ABOVE, _LONGEST_TOP = 32, 20, 8  # elements that are sorted along the last axis, along others, for a top-k
_LEAST, _LEAST_TOP = 1 << 14, 1 << 16  # elements in all iterations, from which on a call saves some hundredths of the compile
_SORTED = ("sort", "top_k")
_DTYPES = frozenset("bool bfloat16 float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64".split())
_PICKED = "stablehlo.slice"  # what reads a few places, which need not be written


def find(jaxpr: Any) -> set[Any]:
    """The first results of such sorts, in a program and in those in its equations."""
    return {eqn.outvars[0] for eqn, iterations in equations(jaxpr)
            if eqn.primitive.name in _SORTED and _is_fit(eqn, iterations)}


def _is_fit(eqn: Any, iterations: int) -> bool:
    aval, is_top = eqn.invars[0].aval, eqn.primitive.name == "top_k"
    if not aval.shape or type(aval.size) is not int or is_top and type(eqn.params["k"]) is not int:
        return False
    axis = eqn.params["axis" if is_top else "dimension"]
    longest = _LONGEST_TOP if is_top else _LONGEST if axis == last_axis(aval.shape) else _LONGEST_ABOVE
    return (1 < aval.shape[axis] <= longest
            and aval.size * iterations >= (_LEAST_TOP if is_top else _LEAST)
            and all(str(atom.aval.dtype) in _DTYPES for atom in eqn.invars))


def emit(module: Any, scopes: Sequence[dict[Any, Any]], found: Set[Any], emitted: Emitted) -> list[str]:
    """Do the sorts that give these variables by ranks.

    Args: `scopes`, for each function and region of a module, its variables and their values.
    Returns: the reasons of the barriers that keep ranks apart from what is made of them.
    """
    sorts = _sorts(module, scopes, found)
    for owner in sorts:
        with owner.location, xla.ir.InsertionPoint(owner):
            results = _Sort(owner, emitted).results()
        for result, other in zip(owner.results, results, strict=True):
            emitted.replace(result, other)
    return [f"sorted by ranks ({math.prod(shape_of(owner.operands[0]))} elements)" for owner in sorts]


def _sorts(module: Any, scopes: Sequence[dict[Any, Any]], found: Set[Any]) -> list[Any]:
    """The operations that give these variables, where barriers are kept."""
    sorts = []
    for scope in scopes if found and barriers.are_kept(module) else ():
        for var in found & scope.keys():
            owner = scope[var].owner
            while getattr(owner, "name", "") in ("stablehlo.transpose", "stablehlo.convert"):
                owner = owner.operands[0].owner
            if getattr(owner, "name", "") in ("stablehlo.sort", "chlo.top_k"):
                sorts.append(owner)
    return barriers.outside_of_loops(module, sorts) if xla.BARRIER_DROPPER else sorts


class _Sort:
    """Emits what gives the results of a sort.

    The pairs of a row's elements are an array with one more axis behind the one that is sorted: along that, the elements or
    places for which something is found, and along the new one, the elements that they are compared with.
    """

    def __init__(self, owner: Any, emitted: Emitted):
        ir = xla.ir
        self.owner, self.emitted = owner, emitted
        self.make, self.copied, self.written = emitted.make, emitted.copied, emitted.written
        self.shape = shape_of(owner.operands[0])
        self.is_top = owner.name == "chlo.top_k"
        self.axis = len(self.shape) - 1 if self.is_top else ir.IntegerAttr(owner.attributes["dimension"]).value
        self.bit, self.position = map(ir.IntegerType.get_signless, (1, 8))  # positions in a row: there are few

    def results(self) -> list[Any]:
        operands = [operand if getattr(operand.owner, "name", "") == "stablehlo.iota" else self.written(operand)
                    for operand in self.owner.operands]
        rows = shape_of(self.owner.results[0])[self.axis]
        places = self.along(self.written(self.ranks(operands)), rows, 1)
        is_there = self.compared(places, self.positions(rows, 0), "EQ", "SIGNED")
        if self.is_top:
            operands.append(self.make("iota", self.shape, element_of(self.owner.results[1]), iota_dimension=self.axis))
        return [self.picked(operand, is_there, rows, result)
                for operand, result in zip(operands, self.owner.results, strict=True)]

    def ranks(self, operands: list[Any]) -> Any:
        """How many elements of its row come before each: those before it that it does not precede, and those behind it that
        precede it. So equal ones keep their order."""
        row = self.shape[self.axis]
        is_behind = self.compared(self.positions(row, 1), self.positions(row, 0), "LT", "SIGNED")
        pairs = []
        for operand in operands:
            element, other = self.along(operand, row, 0), self.along(operand, row, 1)
            pairs += [self.selected(is_behind, element, other), self.selected(is_behind, other, element)]
        precedes = self.make("xor", shape_of(is_behind), self.bit, self.precedes(pairs), is_behind)
        return self.emitted.reduced("add", self.make("convert", shape_of(precedes), self.position, precedes), self.axis + 1)

    def precedes(self, pairs: list[Any]) -> Any:
        """Whether the first of two elements has to come first: for arrays, what the comparator of the sort says of numbers."""
        if self.is_top:
            return self.compared(pairs[0], pairs[1], "GT", _comparison(element_of(pairs[0])))
        block, extents = self.owner.regions[0].blocks[0], shape_of(pairs[0])
        values = dict(zip(block.arguments, pairs, strict=True))
        *operations, last = block.operations
        for op in operations:
            operation = op.operation
            shape = extents if operation.operands else []
            value = self.copied(operation, shape, [values[operand] for operand in operation.operands])
            values[operation.result] = value if shape else self.along(value, extents[self.axis])
        return values[last.operation.operands[0]]

    def picked(self, operand: Any, is_there: Any, rows: int, result: Any) -> Any:
        """The elements of an operand at their places. Each is added to nothing by its bits: sums would change zeros."""
        ir = xla.ir
        element = element_of(operand)
        is_word = isinstance(element, ir.IntegerType) and element.is_signless
        word = element if is_word else ir.IntegerType.get_signless(element.width)
        words = operand if is_word else self.make("bitcast_convert", self.shape, word, operand)
        those = self.selected(is_there, self.along(words, rows, 1), self.along(self.emitted.zero(word), rows))
        found = self.emitted.reduced("or", those, self.axis + 1)
        found = found if is_word else self.make("bitcast_convert", shape_of(found), element, found)
        return found if all(use.owner.name == _PICKED for use in result.uses) else self.written(found)

    # --- operations

    def pairs(self, rows: int) -> list[int]:
        return [*self.shape[:self.axis], rows, *self.shape[self.axis:]]

    def positions(self, rows: int, which: int) -> Any:
        """The positions along one of the axes of pairs."""
        return self.make("iota", self.pairs(rows), self.position, iota_dimension=self.axis + which)

    def along(self, value: Any, rows: int, which: int = 0) -> Any:
        """A value for all pairs: a number, or an array whose sorted axis becomes one of the two."""
        places = [axis + (axis > self.axis or axis == self.axis and which) for axis in range(len(shape_of(value)))]
        return self.emitted.broadcast(value, self.pairs(rows), places)

    def selected(self, condition: Any, one: Any, other: Any) -> Any:
        return self.make("select", shape_of(one), element_of(one), condition, one, other)

    def compared(self, one: Any, other: Any, direction: str, kind: str) -> Any:
        parse = xla.ir.Attribute.parse
        return self.make("compare", shape_of(one), self.bit, one, other,
                         comparison_direction=parse(f"#stablehlo<comparison_direction {direction}>"),
                         compare_type=parse(f"#stablehlo<comparison_type {kind}>"))


def _comparison(element: Any) -> str:
    """How elements are compared for a top-k: floats in their total order."""
    ir = xla.ir
    if not isinstance(element, ir.IntegerType):
        return "TOTALORDER"
    return "UNSIGNED" if element.is_unsigned or element.width == 1 else "SIGNED"
