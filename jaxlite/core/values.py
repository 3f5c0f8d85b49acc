"""Values: which Python objects count as arrays, and the abstract value of each.

`aval_of` is on the hot path of tracing: one dictionary lookup by type for arrays and scalars.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxlite.core import config, dtypes
from jaxlite.core.aval import ShapedArray, shaped_array
from jaxlite.core.tracing import Tracer
from lowering import xla

ArrayImpl = xla.ArrayImpl
_x64 = config.enable_x64.state

_bool_aval = ShapedArray((), np.dtype(bool), False)  # no weak bool: nothing is below it
_scalar_avals = {
    (kind, x64): ShapedArray((), np.dtype(name), True)
    for x64, names in ((False, ("int32", "float32", "complex64")), (True, ("int64", "float64", "complex128")))
    for kind, name in zip((int, float, complex), names, strict=True)
}
_INT_LIMITS = {False: (-(1 << 31), (1 << 31) - 1), True: (-(1 << 63), (1 << 63) - 1)}


def _of_int(value: int) -> ShapedArray:
    x64 = _x64.value
    low, high = _INT_LIMITS[x64]
    if not low <= value <= high:
        raise OverflowError(f"Python int {value} too large to convert to int{64 if x64 else 32}"
                            + ("" if x64 else "; enable_x64 makes Python ints 64 bits wide"))
    return _scalar_avals[int, x64]


def fitted(value: Any, dtype: Any, wrap: bool = False) -> Any:
    """A Python int that the default integer type cannot hold, as a scalar of a dtype; any other value as it is.

    With `wrap`, integer dtypes take the bits that they have room for; else what they cannot hold stays as it is.

    >>> fitted(2**31, np.dtype("uint32"))
    np.uint32(2147483648)
    """
    if type(value) is not int or -(1 << 31) <= value < 1 << 31 or not isinstance(dtype, np.dtype):
        return value
    if dtypes.kind(dtype) in "iu":
        bits = dtypes.itemsize_bits(dtype)
        limits = dtypes.iinfo(dtype)
        if not wrap and not limits.min <= value <= limits.max:
            return value
        value &= (1 << bits) - 1
        if dtypes.kind(dtype) == "i" and value >> (bits - 1):
            value -= 1 << bits
        return np.asarray(value).astype(dtype)[()]
    return np.asarray(value != 0 if dtypes.kind(dtype) == "b" else float(value)).astype(dtype)[()]


def _of_numpy(value: Any) -> ShapedArray:
    dtype = dtypes.canonicalize_dtype(value.dtype)
    return shaped_array(value.shape, dtype, False)


def _of_scalar_type(dtype: Any) -> Callable[[Any], Any]:
    """`aval_of` for the NumPy scalars of a dtype: it does not look at the value."""
    wide, narrow = (ShapedArray((), each, False) for each in (dtype, dtypes._NARROW.get(dtype, dtype)))
    return (lambda value: narrow) if wide is narrow else (lambda value: wide if _x64.value else narrow)


def _of_masked(value: Any) -> ShapedArray:
    raise ValueError("numpy masked arrays are not supported as direct inputs to JAX functions. Use arr.filled() to convert the "
                     "value to a standard numpy array.")


AVAL_OF: dict[type, Callable[[Any], Any]] = {
    ArrayImpl: lambda value: value.aval,
    bool: lambda value: _bool_aval,
    int: _of_int,
    float: lambda value: _scalar_avals[float, _x64.value],
    complex: lambda value: _scalar_avals[complex, _x64.value],
    np.ndarray: _of_numpy,
    **{dtype.type: _of_scalar_type(dtype) for dtype in dtypes._KIND},
}
SCALARS = frozenset(AVAL_OF) - {ArrayImpl, np.ndarray}  # the types of Python's and NumPy's scalars
for _kind in (np.longlong, np.ulonglong):  # types of their own where they are as wide as others
    AVAL_OF.setdefault(_kind, _of_numpy)


pytype_aval_mappings = AVAL_OF  # as `jax.core` names it


def aval_of(value: Any) -> Any:
    """The abstract value of an array, tracer, NumPy array or Python scalar.

    Raises: TypeError if the object is none of these; OverflowError for a Python int that does not fit.
    """
    if isinstance(value, Tracer):
        return value.aval
    handler = AVAL_OF.get(type(value)) or _inherited(type(value))
    if handler is not None:
        return handler(value)
    if hasattr(value, "__jax_array__"):
        return aval_of(value.__jax_array__())
    raise TypeError(f"{_shown(value)} is not a valid JAX type: expected an array or a scalar")


def _inherited(kind: type) -> Callable[[Any], Any] | None:
    for base in kind.__mro__:
        if base.__name__ == "MaskedArray" and base.__module__.startswith("numpy.ma"):  # known by name: numpy.ma loads slowly
            return _of_masked
        if base in AVAL_OF:
            return AVAL_OF[base]
    return None


def with_arrays(args: Sequence[Any]) -> list[Any] | None:
    """Operands with arrays in place of objects that convert to one (`__jax_array__`), which may be tracers; None if none does.

    A trace asks before it takes an operand for a value from outside it.
    """
    if all(type(arg) in AVAL_OF or isinstance(arg, Tracer) or not hasattr(arg, "__jax_array__") for arg in args):
        return None
    return [arg if type(arg) in AVAL_OF or isinstance(arg, Tracer) or not hasattr(arg, "__jax_array__")
            else arg.__jax_array__() for arg in args]


def is_array_like(value: Any) -> bool:
    """Whether `aval_of` knows what to do with the value's type."""
    kind = type(value)
    return kind in AVAL_OF or isinstance(value, Tracer) or _inherited(kind) is not None


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except Exception as error:  # a broken object is still no array
        text = f"whose repr() raises {type(error).__name__}"
    return f"Argument {text if len(text) <= 80 else text[:77] + '...'} of type {type(value)}"
