"""Monoids: for each named reduction the operation that combines two values, and its identity element."""

from __future__ import annotations

import functools
from typing import Any

import ml_dtypes
import numpy as np

from lowering import xla

# Name of the reduction -> the StableHLO operation that combines two values.
COMBINERS = {"sum": "add", "prod": "multiply", "max": "maximum", "min": "minimum", "and": "and", "or": "or",
             "xor": "xor"}  # fmt: skip
RUNNING = ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp")  # the primitives of running totals
LONG_RUN = 4096  # elements along an axis from which on running totals are added up in several parts
LONGEST_WINDOW = 16  # elements along an axis up to which running totals are windows for the CPU, and not a loop


def slides(name: str, aval: Any, axis: int, in_loop: bool) -> bool:
    """Whether running totals along an axis, of known sizes, are windows for the CPU, and not a loop over the elements.

    A window of a few elements is one plain loop nest, better yet over many rows. Of one row in a loop, each operation waits for
    the one before it, if they are not made side by side, and some again, as XLA rewrites longer windows. A loop alone keeps
    totals of narrow floats in wider ones.
    """
    size = aval.shape[axis]
    if aval.size > size:
        return size <= LONGEST_WINDOW
    return (in_loop and not xla.HAS_OLDER_EMITTER and size < LONG_RUN and name != "cumlogsumexp"
            and (aval.dtype.kind in "iub" or aval.dtype.itemsize >= 4))


@functools.cache
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
