"""Monoids: for each named reduction the operation that combines two values, and its identity element."""

from __future__ import annotations

import functools
from typing import Any

import ml_dtypes
import numpy as np

# Name of the reduction -> the StableHLO operation that combines two values.
COMBINERS = {"sum": "add", "prod": "multiply", "max": "maximum", "min": "minimum", "and": "and", "or": "or",
             "xor": "xor"}  # fmt: skip
RUNNING = ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp")  # the primitives of running totals
# Elements along an axis up to which running totals are windows for the CPU: where a step is cheap, rounded, an exponential.
_LONGEST, _LONGEST_ROUNDED, _LONGEST_COSTLY = 7, 4, 2


def slides(name: str, aval: Any, axis: int) -> bool:
    """Whether the running totals of a primitive along an axis, of known sizes, are windows for the CPU, and not a loop.

    A window of a few elements is one plain loop nest. Longer ones add up much again; elements are then taken one by one.
    """
    longest = _LONGEST_ROUNDED if aval.dtype == ml_dtypes.bfloat16 else _LONGEST
    longest = _LONGEST_COSTLY if name == "cumlogsumexp" else longest
    return aval.shape[axis] <= longest and aval.size > aval.shape[axis]


@functools.cache
def has_nan(dtype: Any) -> bool:
    """Whether a dtype is one of real floats with NaN."""
    return "float" in dtype.name and not dtype.name.startswith(("float4", "float6"))


def identity(monoid: str, dtype: Any) -> Any:
    """The NumPy scalar of `dtype` that leaves every value as it is: 0 for a sum, the lowest value for a max."""
    dtype = np.dtype(dtype)
    if monoid in ("sum", "or", "xor"):
        return dtype.type(0)
    if monoid == "prod":
        return dtype.type(1)
    if monoid == "and":
        return dtype.type(True) if dtype.kind == "b" else np.invert(dtype.type(0))
    return _extreme(dtype, lowest=monoid == "max")


def _extreme(dtype: Any, lowest: bool) -> Any:
    """The lowest or highest value of a dtype: an infinity where it has them."""
    if dtype.kind == "b":
        return dtype.type(not lowest)
    info: Any
    if "int" in dtype.name:
        info = ml_dtypes.iinfo(dtype)
        return dtype.type(info.min if lowest else info.max)
    if dtype.kind == "c":
        return dtype.type(complex(-np.inf if lowest else np.inf, 0))
    infinity = np.array(-np.inf if lowest else np.inf).astype(dtype)
    if np.isinf(infinity.astype(np.float32)) and (infinity < 0) == lowest:
        return infinity[()]
    info = ml_dtypes.finfo(dtype)
    return dtype.type(info.min if lowest else info.max)
