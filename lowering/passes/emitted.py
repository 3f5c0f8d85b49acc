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
