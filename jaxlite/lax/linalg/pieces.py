"""What the primitives of a kind share: checks of their operands' types, transposes, and programs of an eager call."""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from jaxlite.compilation.jit import jit
from jaxlite.core import dtypes
from jaxlite.core.aval import Ints, ShapedArray, shaped_array
from jaxlite.core.primitive import Primitive
from jaxlite.core.tracing import state
from jaxlite.core.values import aval_of
from jaxlite.lax import elementwise, shaping
from jaxlite.lax.elementwise import INEXACT, require_kind
from jaxlite.traces.eager import eager_trace
from lowering.xla import VERSION

_WIDE = {"f": "float32, float64", "c": "complex64, complex128"}


def check_dtype(name: str, aval, accepted: str = INEXACT, position: int = 0, narrow: bool = False) -> None:
    """Refuse dtypes of other kinds than accepted, and floats of 16 bits and less unless `narrow` ones have a routine."""
    require_kind(name, aval, accepted, position)
    if aval.dtype.itemsize < 4 and not narrow and VERSION >= (0, 12):  # as JAX of the same jaxlib: before, lowering says so
        raise TypeError(f"{name} does not accept dtype {aval.dtype} at position {position}. Accepted dtypes at position "
                        f"{position} are subtypes of {', '.join(map(_WIDE.__getitem__, accepted))}. Convert the operand first.")


def check(name: str, avals: tuple[Any, ...], ranks: Ints, accepted: str = INEXACT, narrow: bool = False) -> Ints:
    """Check dtypes, and that operand i has ranks[i] axes after leading axes common to all; gives those."""
    for position, (aval, rank) in enumerate(zip(avals, ranks, strict=True)):
        check_dtype(name, aval, accepted, position, narrow)
        if aval.ndim < rank:
            raise TypeError(f"Input {position} to {name} must have rank at least {rank}, but got shape={aval.shape}")
    if any(aval.dtype != avals[0].dtype for aval in avals):
        raise TypeError(f"lax.linalg.{name} requires arguments to have the same dtypes, got "
                        f"{', '.join(str(aval.dtype) for aval in avals)}. Convert them with lax.convert_element_type.")
    batches = [aval.shape[:aval.ndim - rank] for aval, rank in zip(avals, ranks, strict=True)]
    if any(len(batch) != len(batches[0]) for batch in batches):
        raise TypeError(f"All inputs to {name} must have the same number of batch dimensions, but got "
                        f"{[len(batch) for batch in batches]} batch dimensions for the inputs.")
    if any(batch != batches[0] for batch in batches):
        raise TypeError(f"All inputs to {name} must have the same batch dimensions, but got {batches}.")
    return batches[0]


def check_matrices(name: str, shape: Ints) -> None:
    """Refuse what has fewer than two axes, and matrices that are not square."""
    if len(shape) < 2:
        raise ValueError(f"The input to linalg.{name} must have shape [..., n, n], got shape {shape}")
    check_square(name, shape)


def check_square(name: str, shape: Ints, which: str = "input") -> None:
    """Refuse matrices that are not square."""
    if shape[-1] != shape[-2]:
        raise ValueError(f"The {which} to {name} must be a square matrix. Got shape {shape}.")


def complex_dtype(dtype):
    """The complex dtype with parts of a dtype."""
    return np.result_type(dtype, np.complex64)


def typed(primitive: Primitive) -> Callable[[Callable], Callable]:
    """Decorator: set the typing rule; results are weak where all operands are."""

    def register(rule: Callable[..., Any]) -> Callable[..., Any]:
        def typing_rule(*avals, **params):
            out = rule(*avals, **params)
            if not all(aval.weak_type for aval in avals):
                return out
            weak = [shaped_array(each.shape, each.dtype, True) for each in (out if type(out) is list else [out])]
            return weak if type(out) is list else weak[0]

        primitive.def_abstract_eval(typing_rule)
        return rule

    return register


def strong(shape, dtype) -> ShapedArray:
    """The type of a result, not weak."""
    return shaped_array(tuple(shape), dtype, False)


def subset(name: str, subset_by_index, count: int) -> int:
    """How many of `count` values are requested."""
    if subset_by_index is None:
        return count
    start, stop = subset_by_index
    if not 0 <= start < stop <= count:
        raise ValueError(f"{name}: subset_by_index must be a pair with 0 <= start < stop <= {count}, "
                         f"got {subset_by_index}")
    return stop - start


def pair(name: str, subset_by_index) -> tuple[int, int] | None:
    """`subset_by_index` as a param."""
    if subset_by_index is None:
        return None
    found = tuple(map(int, subset_by_index))
    if len(found) != 2:
        raise ValueError(f"{name}: subset_by_index must be a pair (start, stop), got {subset_by_index}")
    return found  # type: ignore[return-value]


def check_choice(name: str, argument: str, value, choices: type[enum.Enum]) -> None:
    """Refuse what is not one of the choices, or None."""
    if value is not None and not isinstance(value, choices):
        raise TypeError(f"{name}: {argument} must be one of {', '.join(map(str, choices))} or None, got {value!r}")


def at_once(*static: str) -> Callable[[Callable], Callable]:
    """Decorator: an eager call compiles one program, not one for each of the operations around the factorization."""

    def decorate(fun: Callable[..., Any]) -> Callable[..., Any]:
        compiled = functools.cache(lambda: jit(fun, static_argnames=static))

        @functools.wraps(fun)
        def wrapper(*args, **kwargs):
            return (compiled() if state.trace is eager_trace else fun)(*args, **kwargs)

        return wrapper

    return decorate


# --- values ------------------------------------------------------------------------------------------


def transposed(x):
    """Matrices with rows as columns."""
    rank = aval_of(x).ndim
    return shaping.transpose(x, (*range(rank - 2), rank - 1, rank - 2))


def adjoint(x):
    """The conjugates of transposed matrices."""
    x = transposed(x)
    return elementwise.conj(x) if dtypes.kind(aval_of(x).dtype) == "c" else x


def symmetrized(name: str, x):
    """(x + x^H) / 2, so that rounding in one triangle does not show."""
    aval = aval_of(x)
    check_matrices(name, aval.shape)
    x = shaping.convert(x, dtypes.to_inexact_dtype(aval.dtype), aval.weak_type)
    total = elementwise.add(x, adjoint(x))
    return elementwise.div(total, shaping.full_like(total, 2, shape=()))


def front(x, axis: int):
    """The same array with one axis before all others."""
    axis %= aval_of(x).ndim
    return shaping.transpose(x, (axis, *(each for each in range(aval_of(x).ndim) if each != axis)))
