"""Frontend attributes of operations, for passes of XLA."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

_NAME = "mhlo.frontend_attributes"
_WITHOUT = frozenset(("stablehlo.constant", "stablehlo.broadcast_in_dim", "stablehlo.return", "func.return"))


def mark(ir: Any, context: Any, operation: Any, words: dict[str, str]) -> None:
    """Give an operation words beside those that it has."""
    attributes = operation.attributes
    if _NAME in attributes:
        words = {each.name: ir.StringAttr(each.attr).value for each in ir.DictAttr(attributes[_NAME])} | words
    attributes[_NAME] = ir.DictAttr.get({name: ir.StringAttr.get(text, context) for name, text in words.items()}, context)


def mark_all(ir: Any, context: Any, operations: Iterable[Any], words: dict[str, str]) -> None:
    """Give words to operations that compute something. Those that an operation has go before."""
    for each in operations:
        if each.operation.name not in _WITHOUT:
            own = each.operation.attributes
            mark(ir, context, each.operation, words if _NAME not in own else {
                name: text for name, text in words.items() if name not in {pair.name for pair in ir.DictAttr(own[_NAME])}})
