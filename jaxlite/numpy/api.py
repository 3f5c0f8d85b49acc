"""What every function of the numpy API stands on: one compiled call when eager, argument checks, promotion.

`@api(...)` marks a public function. Called with concrete arrays it is one cached compiled call; called while
something is being traced its body runs in place, so that jaxprs stay flat.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from jaxlite.core import config, dtypes
from jaxlite.core.tracing import Tracer, state
from jaxlite.core.values import AVAL_OF, ArrayImpl, aval_of
from jaxlite.interpreters.eager import eager_trace
from jaxlite.interpreters.jit import jit
from jaxlite.lax import shaping

F = TypeVar("F", bound=Callable[..., Any])


def api(*static: str) -> Callable[[F], F]:
    """Decorator: an eager call of the function is one compiled call.

    Args:
      static: the names of parameters that are Python values (axes, shapes, dtypes, flags): each new value is a
        new compile. All others are arrays, scalars or None.
    """

    def decorate(fun: Any) -> Any:
        def compile_first(*args: Any, **kwargs: Any) -> Any:
            nonlocal call
            call = jit(fun, static_argnames=static) if static else jit(fun)
            return call(*args, **kwargs)

        call = compile_first

        @functools.wraps(fun)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if state.trace is eager_trace:
                return call(*args, **kwargs)
            return fun(*args, **kwargs)

        return wrapper

    return decorate


# --- checking and promoting arguments ----------------------------------------------------------------


def is_array_like(x: Any) -> bool:
    """Whether functions of this API take the object as an array: arrays, tracers, scalars, `__jax_array__`."""
    kind = type(x)
    if kind in AVAL_OF or isinstance(x, Tracer):
        return True
    return isinstance(x, (np.ndarray, np.generic, bool, int, float, complex)) or hasattr(x, "__jax_array__")


def check_arrays(name: str, *args: Any) -> None:
    """Raises TypeError, naming the function and the position, for arguments that are no arrays or scalars."""
    for position, arg in enumerate(args):
        if type(arg) not in AVAL_OF and not is_array_like(arg):
            raise TypeError(f"{name} requires ndarray or scalar arguments, got {type(arg)} at position {position}. "
                            "Convert lists and tuples with jnp.array first.")


def as_arrays(name: str, *args: Any) -> Any:
    """The arguments as arrays or tracers: one value for one argument, else a list. No promotion."""
    check_arrays(name, *args)
    arrays = [as_array(arg) for arg in args]
    return arrays[0] if len(arrays) == 1 else arrays


def as_array(x: Any) -> Any:
    """An array or tracer for an array-like; scalars keep their weak type."""
    if isinstance(x, (ArrayImpl, Tracer)):
        return x
    if hasattr(x, "__jax_array__"):
        return x.__jax_array__()
    aval = aval_of(x)
    return shaping.convert_element_type_p.bind(x, new_dtype=aval.dtype, weak_type=aval.weak_type)


def promote_dtypes(*args: Any) -> list[Any]:
    """The arguments converted to the one dtype that promotion gives them."""
    avals = [aval_of(arg) for arg in args]
    first = avals[0]
    if all(aval.dtype == first.dtype and aval.weak_type == first.weak_type for aval in avals):
        return list(args)
    dtype, weak = dtypes.lattice_join(tuple([(aval.dtype, aval.weak_type) for aval in avals]))
    return [shaping.convert(arg, dtype, weak) for arg in args]


def promote_dtypes_inexact(*args: Any) -> list[Any]:
    """Like `promote_dtypes`, but integers and booleans become floating."""
    avals = [aval_of(arg) for arg in args]
    dtype, weak = dtypes.lattice_join(tuple([(aval.dtype, aval.weak_type) for aval in avals]))
    inexact = dtypes.to_inexact_dtype(dtype)
    return [shaping.convert(arg, inexact, weak) for arg in args]


def promote_ranks(name: str, *args: Any) -> list[Any]:
    """Leading axes of size 1 for arguments of lower rank; scalars stay as they are, lax stretches them."""
    shapes = [np.shape(arg) if type(arg) in _SCALARS else aval_of(arg).shape for arg in args]
    ranks = {len(shape) for shape in shapes if shape}
    if len(ranks) < 2:
        return list(args)
    mode = config.numpy_rank_promotion.value
    if mode != "allow":
        _report_rank_promotion(name, shapes, mode)
    rank = max(ranks)
    return [shaping.broadcast_in_dim(arg, (1,) * (rank - len(shape)) + shape, range(rank - len(shape), rank))
            if shape else arg for arg, shape in zip(args, shapes, strict=True)]


_SCALARS = (bool, int, float, complex)


def _report_rank_promotion(name: str, shapes: list[tuple[int, ...]], mode: str) -> None:
    text = (f"Following NumPy automatic rank promotion for {name} on shapes {' '.join(map(str, shapes))}. Set the "
            "numpy_rank_promotion config option to 'allow' to silence this; reshape the operands to equal ranks.")
    if mode == "raise":
        raise ValueError(f"Operands could not be broadcast together for {name} on shapes "
                         f"{' '.join(map(str, shapes))} and with the config option "
                         "numpy_rank_promotion='raise'. Reshape the operands to equal ranks.")
    import warnings

    warnings.warn(text, stacklevel=4)


def promote(name: str, *args: Any) -> list[Any]:
    """Checked, promoted to one dtype, brought to one rank: ready for an elementwise operation of lax."""
    first = aval = None
    for arg in args:  # operands of one type need nothing
        if type(arg) is not ArrayImpl and not isinstance(arg, Tracer):
            break
        aval = arg.aval
        if first is None:
            first = aval
        elif aval is not first:
            break
    else:
        return list(args)
    check_arrays(name, *args)
    return promote_ranks(name, *promote_dtypes(*_unwrap(args)))


def promote_inexact(name: str, *args: Any) -> list[Any]:
    """Like `promote`, but integers and booleans become floating."""
    check_arrays(name, *args)
    return promote_ranks(name, *promote_dtypes_inexact(*_unwrap(args)))


def promote_numeric(name: str, *args: Any) -> list[Any]:
    """Like `promote`, but booleans become integers."""
    check_arrays(name, *args)
    args = tuple(_unwrap(args))
    avals = [aval_of(arg) for arg in args]
    dtype, weak = dtypes.lattice_join(tuple([(aval.dtype, aval.weak_type) for aval in avals]))
    numeric = dtypes.to_numeric_dtype(dtype)
    return promote_ranks(name, *[shaping.convert(arg, numeric, weak and numeric == dtype) for arg in args])


def _unwrap(args: Any) -> list[Any]:
    return [arg.__jax_array__() if type(arg) not in AVAL_OF and hasattr(arg, "__jax_array__") else arg for arg in args]


def canonical_axes(axis: Any, rank: int) -> tuple[int, ...]:
    """An axis argument (None for all, an int, or a tuple of ints) as a tuple of axes in [0, rank).

    Raises: ValueError for axes out of range or named twice.
    """
    if axis is None:
        return tuple(range(rank))
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    result = tuple(shaping.canonical_axis(each, rank) for each in axes)
    if len(set(result)) != len(result):
        raise ValueError(f"duplicate value in 'axis': {axis}")
    return result


def unsupported(name: str, **arguments: Any) -> None:
    """Refuse arguments that NumPy has and this API has no use for, such as `out`."""
    for argument, value in arguments.items():
        if value is not None:
            raise NotImplementedError(f"The {argument!r} argument of jnp.{name} is not supported: arrays are immutable. "
                                      "Use the function's result.")
