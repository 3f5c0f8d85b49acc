"""How a sparse operation becomes one primitive: programs name it; it is lowered, differentiated and batched by its parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxlite.core.primitive import Primitive
from jaxlite.traces.decompose import decomposes, rules_by_parts, types_by_parts


def sparse_primitive(name: str, multiple_results: bool = False) -> Callable[[Callable[..., Any]], Primitive]:
    """Decorator: the primitive that does what a function of arrays, and of params as keywords, does.

    The function closes over no arrays.
    """

    def make(fun: Callable[..., Any]) -> Primitive:
        primitive = Primitive(name, multiple_results)
        decomposes(primitive)(fun)
        types_by_parts(primitive)
        rules_by_parts(primitive)
        return primitive

    return make
