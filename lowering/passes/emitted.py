"""Operations that a pass adds to a finished module for a compile, and takes back: the next compile may have other options."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lowering import xla


class Emitted:
    """Emits operations where the insertion point of MLIR is, and undoes all of it."""

    def __init__(self) -> None:
        self.made: list[Any] = []
        self.replaced: list[tuple[Any, Any]] = []  # the values whose readers read others, and these

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
        """A value behind a fusion barrier."""
        return self.make("optimization_barrier", shape_of(value), element_of(value), value)

    def both(self, name: str, one: Any, other: Any) -> Any:
        """What an elementwise operation gives for two values of a type."""
        return self.make(name, shape_of(one), element_of(one), one, other)

    def sliced(self, value: Any, start: Sequence[int], shape: Sequence[int]) -> Any:
        """The part of a value of some shape, from a place on."""
        stop = [first + extent for first, extent in zip(start, shape, strict=True)]
        return self.make("slice", shape, element_of(value), value, start_indices=list(start), limit_indices=stop,
                         strides=[1] * len(stop))

    def transposed(self, value: Any, order: Sequence[int]) -> Any:
        if list(order) == sorted(order):
            return value
        shape = shape_of(value)
        return self.make("transpose", [shape[axis] for axis in order], element_of(value), value, permutation=list(order))

    def zero(self, element: Any) -> Any:
        ir = xla.ir
        number = ir.IntegerAttr.get(element, 0) if isinstance(element, ir.IntegerType) else ir.FloatAttr.get(element, 0.0)
        kind = ir.RankedTensorType.get([], element)
        return self.make("constant", [], element, value=ir.DenseElementsAttr.get_splat(kind, number))

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

    def replace(self, value: Any, other: Any) -> None:
        """Let what reads a value read the other one."""
        value.replace_all_uses_with(other)
        self.replaced.append((value, other))

    def undo(self) -> None:
        for value, other in self.replaced:
            other.replace_all_uses_with(value)
        for operation in reversed(self.made):
            operation.erase()


def shape_of(value: Any) -> list[int]:
    return xla.ir.RankedTensorType(value.type).shape


def element_of(value: Any) -> Any:
    return xla.ir.RankedTensorType(value.type).element_type
