"""Products of one or a few rows and an array that XLA:CPU would copy first.

A call of XLA's library takes a matrix, or a batch of them, as it lies in memory. A part of a larger array, one of another
dtype, one that is computed, and one whose batch is not in front are written for it first; that takes longer than to multiply
one row. So the row is multiplied in a loop of XLA's own, which reads the array wherever it is: eight parts of the contracted
axis are multiplied and added up, which are eight streams through memory, and what is left of the axis is summed behind a
barrier. docs/fusion.md has the measurements.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

from lowering import xla
from lowering.passes import products
from lowering.passes.emitted import Emitted, element_of, shape_of
from lowering.passes.loops import equations
from lowering.small_products import operations
from lowering.vector_products import source

_LEAST, _LEAST_APART = 1 << 13, 1 << 16  # elements of an array from which on it pays, and of one that is no batch of matrices
_LEAST_WRITTEN = 1 << 20  # in all iterations, where two kernels more have to be compiled: several rows, and in a loop
_PARTS = 8  # of the contracted axis: XLA writes what is read in twice as many
_LANES, _HALF_LANES = 4, 8  # elements of a part, at least, where they lie side by side; those of half floats are converted
_IN_PAIRS = 16  # such elements up to which they are summed in pairs
_ROWS, _ROWS_APART, _ROWS_HALF = 4, 8, 2  # up to which it pays: of a part, of no batch of matrices, and of half floats
_MOST_OPERATIONS = 8  # that compute an element of the array: each is compiled for every part
_ROW = "row"  # an axis
_HALF = ("bf16", "f16")
_FLOATS = ("f32", "f64", *_HALF)
_MOVED = frozenset(f"stablehlo.{name}" for name in ("reshape", "transpose"))
_COMPUTED = frozenset(f"stablehlo.{name}" for name in ("convert", "multiply", "add", "subtract", "negate"))
_READ = {"stablehlo.slice": "part", "stablehlo.dynamic_slice": "row of a loop", **dict.fromkeys(_MOVED, "moved"),
         **dict.fromkeys(_COMPUTED, "computed")}


def find(jaxpr: Any, scopes: Sequence[dict[Any, Any]]) -> list[Any]:
    """The operations of a module, with what they are, that are such products.

    Args: `scopes`, for each function and region of the module, its variables and their values.
    """
    if xla.BARRIER_DROPPER:
        return []
    often: dict[Any, int] = {}
    for eqn, iterations in equations(jaxpr):
        if eqn.primitive.name == "dot_general" and _may_be(eqn):
            often[eqn.outvars[0]] = min(iterations, often.get(eqn.outvars[0], iterations))
    found = []
    for scope in scopes if often else ():
        for var in [var for var in often if var in scope]:
            owner = scope[var].owner
            while getattr(owner, "name", "") in ("stablehlo.convert", *_MOVED):
                owner = owner.operands[0].owner
            if getattr(owner, "name", "") == "stablehlo.dot_general" and "algorithm" not in owner.attributes:
                found += [each for each in (_Product(owner, 0), _Product(owner, 1)) if each.is_thin(often[var])][:1]
    return found


def _may_be(eqn: Any) -> bool:
    sizes = [atom.aval.size for atom in (*eqn.invars, *eqn.outvars)]
    return all(type(size) is int for size in sizes) and max(sizes[:2]) >= _LEAST and sizes[2] < max(sizes[:2])


def emit(found: Sequence[Any], emitted: Emitted) -> list[str]:
    """Let these products be sums of parts; returns the reasons of the barriers in them."""
    for product in found:
        with product.owner.location, xla.ir.InsertionPoint(product.owner):
            emitted.replace(product.owner.result, product.result(emitted))
    return [f"product of {each.rows} row{'s' * (each.rows > 1)} and an array of {math.prod(each.shape)}" for each in found]


class _Product:
    """A product whose operand of a number is an array, and the other one is rows. Axes are those of the array in memory."""

    def __init__(self, owner: Any, side: int):
        self.owner, self.side = owner, side
        contract, batch = products.numbers_of(owner)
        array, self.vector = (owner.operands[each] for each in (side, 1 - side))
        self.array, self.shape, order = source(array, shape_of(array))
        extents = shape_of(self.vector)
        self.axes = [*batch[1 - side], *contract[1 - side]]  # of the other operand, that are in both
        self.rows_axes = [axis for axis in range(len(extents)) if axis not in self.axes]
        self.rows = math.prod(extents[axis] for axis in self.rows_axes)
        self.places = [*(order[axis] for axis in batch[side]), *(order[axis] for axis in contract[side])]
        self.free = [place for axis, place in enumerate(order) if axis not in (*batch[side], *contract[side])]
        self.batch = len(batch[0])

    def is_thin(self, iterations: int) -> bool:
        """Whether XLA would copy the array, and does better without."""
        size, element = math.prod(self.shape), str(element_of(self.array))
        if len(self.places) != self.batch + 1 or element not in _FLOATS:
            return False
        least = _LEAST_APART if self.is_apart else _LEAST
        if size < least or (self.rows > 1 or iterations > 1) and size * iterations < _LEAST_WRITTEN:
            return False
        extent, is_half = self.shape[self.places[-1]], element in _HALF
        if extent % _PARTS or extent < _PARTS * (_HALF_LANES if is_half and self.is_along_rows else _LANES):
            return False
        if operations(self.array) > _MOST_OPERATIONS:
            return False
        how = _read(self.array)
        if "computed" not in how and (self.is_apart or "part" in how and "row of a loop" not in how):
            most = _ROWS_HALF - self.is_along_rows if is_half else _ROWS_APART if self.is_apart else _ROWS
            return self.rows <= most
        # What is the same in all iterations XLA converts once, and a row of another array it copies where a cache has it.
        return (is_half or "computed" in how) and "row of a loop" not in how and iterations == self.rows == 1

    @property
    def is_along_rows(self) -> bool:
        """Whether the last axis is contracted."""
        return self.places[-1] == len(self.shape) - 1

    @property
    def is_apart(self) -> bool:
        """Whether the array is no batch of matrices."""
        *batch, axis = self.places
        return sorted(batch) != [*range(self.batch)] or not (axis == self.batch or self.is_along_rows)

    def result(self, emitted: Emitted) -> Any:
        """What it gives. The axes of a term are those of the array, and before the last one the rows."""
        make, wide = emitted.make, xla.ir.F32Type.get() if str(element_of(self.array)) in _HALF else element_of(self.array)
        summed = self.places[-1]
        axes: list[Any] = [*range(len(self.shape))]
        if self.rows > 1:
            axes.insert(len(axes) - 1, _ROW)
        extents = dict(enumerate(self.shape)) | {_ROW: self.rows}
        part = extents[summed] // _PARTS

        def converted(value: Any) -> Any:
            return value if element_of(value) == wide else make("convert", shape_of(value), wide, value)

        def factor(value: Any, own: list[Any], start: int) -> Any:
            of_part = emitted.sliced(value, [start if axis == summed else 0 for axis in own], [shape[axis] for axis in own])
            return emitted.broadcast(converted(of_part), [shape[axis] for axis in axes], [axes.index(axis) for axis in own])

        vector = emitted.written(converted(self.laid_out(emitted, axes, extents)))
        factors = [(self.array, [axis for axis in axes if axis != _ROW]),
                   (vector, [axis for axis in axes if axis not in self.free])]
        shape = extents | {summed: part}
        terms = [[factor(*each, start) for each in factors] for start in range(0, extents[summed], part)]
        value = functools.reduce(lambda *pair: emitted.both("add", *pair), [emitted.both("multiply", *term) for term in terms])
        value = _summed(emitted, emitted.written(value), axes.index(summed))
        axes.remove(summed)
        result = self.owner.result
        value = value if wide == element_of(result) else make("convert", shape_of(value), element_of(result), value)
        free: list[list[Any]] = [self.free, [_ROW] * (self.rows > 1)]
        order = [axes.index(axis) for axis in (*self.places[:-1], *free[self.side], *free[1 - self.side])]
        return emitted.reshaped(emitted.transposed(value, order), shape_of(result))

    def laid_out(self, emitted: Emitted, axes: list[Any], extents: dict[Any, int]) -> Any:
        """The rows in the order of a term's axes."""
        names = dict(zip(self.axes, self.places, strict=True))
        order = sorted(range(len(shape_of(self.vector))), key=lambda axis: (
            axes.index(names[axis]) if axis in names else axes.index(_ROW) if self.rows > 1 else 0))
        shape = [extents[axis] for axis in axes if axis not in self.free]
        return emitted.reshaped(emitted.transposed(self.vector, order), shape)


def _read(value: Any) -> set[str]:
    """How an array that nothing else reads is made: "part" of another, "row of a loop", "computed", "moved"."""
    owner, how = value.owner, set()
    while getattr(owner, "name", "") in _READ and len(list(value.uses)) == 1:
        how.add(_READ[owner.name])
        value = max(owner.operands, key=lambda each: math.prod(shape_of(each)))
        owner = value.owner
    return how


def _summed(emitted: Emitted, value: Any, axis: int) -> Any:
    """The sum along an axis. A few elements side by side are summed in pairs: one after the other takes longer."""
    *rows, extent = shape_of(value)
    while axis == len(rows) and extent % 2 == 0 and extent <= _IN_PAIRS:
        extent //= 2
        halves = [emitted.sliced(value, [*[0] * len(rows), start], [*rows, extent]) for start in (0, extent)]
        value = emitted.both("add", *halves)
    if shape_of(value)[axis] == 1:
        return emitted.reshaped(value, rows)
    return emitted.reduced("add", value, axis)
