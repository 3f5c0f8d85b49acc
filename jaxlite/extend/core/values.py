"""Types and values as libraries that write transformations ask for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxlite.core.aval import AbstractToken, AbstractValue, ShapedArray
from jaxlite.core.errors import ConcretizationTypeError
from jaxlite.core.jaxpr import JaxprEqn, Var, no_effects
from jaxlite.core.tracing import known_value
from jaxlite.core.values import AVAL_OF, aval_of
from jaxlite.traces.jvp import tangent_aval

# Names for annotations: a value of a program, the params of an equation, the types of its results.
Value = Any
ParamDict = dict[str, Any]
OutputType = tuple[AbstractValue, ...]

array_types: set[type] = {kind for kind in AVAL_OF if kind not in (int, float, complex, bool)}


class Token:
    """An array without elements: a token outside traced functions."""

    __slots__ = ("_buf",)

    def __init__(self, buf: Any):
        self._buf = buf

    def block_until_ready(self) -> None:
        """Wait for what the token waits for."""
        self._buf.block_until_ready()


def mapped_aval(size: int, axis: int | None, aval: AbstractValue) -> AbstractValue:
    """The type of one example of a batch of `size` along an axis; None: it is not a batch.

    >>> import jaxlite, numpy as np
    >>> mapped_aval(3, 1, jaxlite.core.ShapedArray((2, 3), np.dtype("float32")))
    ShapedArray(float32[2])
    """
    if axis is None or isinstance(aval, AbstractToken):
        return aval
    assert isinstance(aval, ShapedArray) and aval.shape[axis] == size, f"{aval} has no axis {axis} of size {size}"
    return aval.update(shape=tuple(np.delete(aval.shape, axis).tolist()))


def unmapped_aval(size: int, axis: int | None, aval: AbstractValue, explicit_mesh_axis: Any = None) -> AbstractValue:
    """The type of a batch of `size` examples along a new axis; None: the type of an example."""
    if axis is None or isinstance(aval, AbstractToken):
        return aval
    assert isinstance(aval, ShapedArray)
    shape = list(aval.shape)
    shape.insert(axis if axis >= 0 else axis + len(shape) + 1, size)
    return aval.update(shape=tuple(shape))


def concrete_or_error(force: Any, val: Any, context: str = "") -> Any:
    """A value that is not traced, converted by `force` if that is given. Raises: ConcretizationTypeError for tracers."""
    val = known_value(val, context)
    return val if force is None else force(val)


def concretization_function_error(fun: Any, suggest_astype: bool = False) -> Callable[[Any, Any], Any]:
    """A function that raises the error for a tracer that `fun` was called with; its arguments are anything, and the tracer.

    Args: `suggest_astype` adds what converts a dtype instead.
    """
    context = f"The problem arose with the `{fun.__name__}` function. "
    if suggest_astype:
        context += ("If trying to convert the data type of a value, try using "
                    f"`x.astype({fun.__name__})` or `jnp.array(x, {fun.__name__})` instead.")

    def error(_: Any, arg: Any) -> Any:
        raise ConcretizationTypeError(arg, context)

    return error


def valid_jaxtype(x: Any) -> bool:
    """Whether traced functions take a value: an array, a tracer, a number."""
    try:
        aval_of(x)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def primal_dtype_to_tangent_dtype(primal_dtype: Any) -> Any:
    """The dtype of the tangents of values of a dtype: float0 for those that do not vary."""
    return tangent_aval(ShapedArray((), primal_dtype)).dtype


def gensym(suffix: str = "") -> Callable[[AbstractValue], Var]:
    """A function that makes a fresh variable of a type."""
    return lambda aval: Var(aval)


def new_jaxpr_eqn(invars: Sequence[Any], outvars: Sequence[Any], primitive: Any, params: dict[str, Any],
                  effects: Any = no_effects, source_info: Any = None, ctx: Any = None) -> JaxprEqn:
    """An equation."""
    return JaxprEqn(list(invars), list(outvars), primitive, params, frozenset(effects), source_info, ctx)
