"""How a sparse operation becomes one primitive: programs name it; it is lowered, differentiated and batched by its parts. Its
arguments are checked as those of the dense operation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxlite.core.primitive import Primitive
from jaxlite.core.shape_dtype import ShapeDtypeStruct
from jaxlite.traces.decompose import decomposes, rules_by_parts, types_by_parts
from jaxlite.transforms.make_jaxpr import eval_shape


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


def shape_of(fun: Callable[..., Any], *mats: Any) -> tuple[int, ...]:
    """The shape that an operation gives of dense arrays with the shapes of these; it raises what the operation does."""
    return eval_shape(fun, *[ShapeDtypeStruct(mat.shape, mat.dtype) for mat in mats]).shape
