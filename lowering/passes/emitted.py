"""Operations that passes add to a finished module for a compile, and take back: the next compile may have other options."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lowering import xla


class Emitted:
    """Emits operations where the insertion point of MLIR is; after the context the module is as it was."""

    def __init__(self) -> None:
        self.made: list[Any] = []
        self._undone: list[Callable[[], Any]] = []  # what undoes each change of what reads what

    def __enter__(self) -> Emitted:
        return self

    def __exit__(self, *_: object) -> None:
        for undo in reversed(self._undone):
            undo()
        for operation in reversed(self.made):
            operation.erase()

    def make(self, name: str, shape: Sequence[int], element: Any, *operands: Any, regions: int = 0, **attributes: Any) -> Any:
        """The result of an operation. Integers and lists of them are attributes as StableHLO has them."""
        ir = xla.ir
        given = {key: ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value) if isinstance(value, int) else
                 ir.DenseI64ArrayAttr.get(value) if isinstance(value, list) else value for key, value in attributes.items()}
        kind = ir.RankedTensorType.get(shape, element)
        self.made.append(ir.Operation.create(f"stablehlo.{name}", [kind], operands, given, regions=regions))
        return self.made[-1].result

    def copied(self, operation: Any, shape: Sequence[int], operands: Sequence[Any]) -> Any:
        """What an elementwise operation gives for operands of another shape."""
        ir = xla.ir
        attributes = {name: operation.attributes[name] for name in operation.attributes}
        kind = ir.RankedTensorType.get(shape, element_of(operation.result))
        self.made.append(ir.Operation.create(operation.name, [kind], operands, attributes))
        return self.made[-1].result

    def written(self, value: Any) -> Any:
        """A value behind a fusion barrier, without its axes of one element: XLA would keep them behind it, where its library
        computes such arrays slowly."""
        lean = lean_shape(value)
        written = self.make("optimization_barrier", lean, element_of(value), self.reshaped(value, lean))
        return self.reshaped(written, shape_of(value))

    def reshaped(self, value: Any, shape: Sequence[int]) -> Any:
        return value if shape_of(value) == list(shape) else self.make("reshape", shape, element_of(value), value)

    def both(self, name: str, one: Any, other: Any) -> Any:
        """What an elementwise operation gives for two values of a type."""
        return self.make(name, shape_of(one), element_of(one), one, other)

    def sliced(self, value: Any, start: Sequence[int], shape: Sequence[int]) -> Any:
        """The part of a value of some shape, from a place on."""
        stop = [first + extent for first, extent in zip(start, shape, strict=True)]
        return self.make("slice", shape, element_of(value), value, start_indices=list(start), limit_indices=stop,
                         strides=[1] * len(stop))

    def broadcast(self, value: Any, shape: Sequence[int], places: Sequence[int]) -> Any:
        """A value in each place of a larger array, of which its axes are these."""
        return self.make("broadcast_in_dim", shape, element_of(value), value, broadcast_dimensions=[*places])

    def transposed(self, value: Any, order: Sequence[int]) -> Any:
        if list(order) == sorted(order):
            return value
        shape = shape_of(value)
        return self.make("transpose", [shape[axis] for axis in order], element_of(value), value, permutation=list(order))

    def number(self, number: int, element: Any) -> Any:
        ir = xla.ir
        value = (ir.IntegerAttr if isinstance(element, ir.IntegerType) else ir.FloatAttr).get(element, number)
        kind = ir.RankedTensorType.get([], element)
        return self.make("constant", [], element, value=ir.DenseElementsAttr.get_splat(kind, value))

    def zero(self, element: Any) -> Any:
        return self.number(0, element)

    def reduced(self, combiner: str, value: Any, axis: int) -> Any:
        """A value combined along an axis, with zero first."""
        ir = xla.ir
        element, extents = element_of(value), shape_of(value)
        zero = self.zero(element)
        del extents[axis]
        result = self.make("reduce", extents, element, value, zero, regions=1, dimensions=[axis])
        block = result.owner.regions[0].blocks.append(zero.type, zero.type)
        with ir.InsertionPoint(block):
            both = ir.Operation.create(f"stablehlo.{combiner}", [zero.type], list(block.arguments))
            ir.Operation.create("stablehlo.return", [], [both.result])
        return result

    def replace(self, value: Any, other: Any, reader: Any = None) -> None:
        """Let what reads a value read the other one, but for one reader that makes that of it."""
        if reader is None:
            value.replace_all_uses_with(other)
        else:
            value.replace_all_uses_except(other, reader)
        self._undone.append(lambda: other.replace_all_uses_with(value))

    def set_operand(self, operation: Any, index: int, value: Any) -> None:
        before = operation.operands[index]
        operation.operands[index] = value
        self._undone.append(lambda: operation.operands.__setitem__(index, before))


def shape_of(value: Any) -> list[int]:
    return xla.ir.RankedTensorType(value.type).shape


def lean_shape(value: Any) -> list[int]:
    """The shape of a value without axes of one element."""
    return [extent for extent in shape_of(value) if extent != 1]


def element_of(value: Any) -> Any:
    return xla.ir.RankedTensorType(value.type).element_type
