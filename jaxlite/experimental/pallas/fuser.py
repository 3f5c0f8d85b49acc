"""Values that a kernel computes where it needs them: `Fusion`, and `fusible` for functions that take such values."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar

from jaxlite.core.filtering import boundary
from jaxlite.core.tree import tree_leaves, tree_map, tree_structure
from jaxlite.core.values import aval_of

__all__ = ["Fusion", "fusible"]
__dir__ = lambda: __all__

P = ParamSpec("P")
R = TypeVar("R")


@dataclasses.dataclass
class Fusion(Generic[P, R]):
    """A function in the place of a value, with the types of its arguments (args, kwargs) and of its result."""

    func: Callable[P, R]
    in_type: tuple[tuple[Any, ...], dict[str, Any]]
    out_type: Any
    strict_mode: bool = True

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.func(*args, **kwargs)

    @property
    def type(self) -> Any:
        return self.out_type

    @property
    def shape(self) -> Any:
        return tree_map(lambda x: x.shape, self.out_type)

    @property
    def dtype(self) -> Any:
        return tree_map(lambda x: x.dtype, self.out_type)

    @property
    def in_shape(self) -> Any:
        return tree_map(lambda x: x.shape, self.in_type)

    @property
    def in_dtype(self) -> Any:
        return tree_map(lambda x: x.dtype, self.in_type)


@boundary
def fusible(f: Callable | None = None, *, output_fusion_prefix: Any = True) -> Callable:
    """A function of arrays from one of Fusions, whose last argument is what is to be done with its results: nothing, None.

    Args:
      output_fusion_prefix: a tree whose leaves stand for parts of the results; the last argument has its structure.

    Around a kernel XLA fuses what it can. The kernel itself computes none of its operands.
    """
    def decorate(f: Callable) -> Callable:
        nothing = tree_structure(output_fusion_prefix).unflatten([None] * len(tree_leaves(output_fusion_prefix)))

        @functools.wraps(f)
        def wrapped(*args: Any) -> Any:
            return f(*tree_map(lambda x: Fusion(lambda: x, ((), {}), aval_of(x)), args), nothing)

        return wrapped

    return decorate if f is None else decorate(f)
