"""Arguments of functions of numbers: as arrays of one floating dtype."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from jaxlite import lax
from jaxlite.core import dtypes
from jaxlite.core.values import aval_of
from jaxlite.numpy.api import as_array, check_arrays, promote_dtypes_inexact
from jaxlite.numpy.creation import asarray


def floats(name: str, *args, complex: bool = False):
    """The arguments promoted to one floating dtype: one array for one argument, else a list.

    Raises: TypeError for arguments that are not arrays or scalars, and for complex ones unless `complex` allows them.
    """
    check_arrays(name, *args)
    given = [aval_of(x).dtype for x in args]
    if any([isinstance(dtype, dtypes.ExtendedDType) for dtype in given]):
        raise TypeError(f"{name} does not accept dtypes {', '.join(map(str, given))}.")
    arrays = [as_array(x) for x in promote_dtypes_inexact(*args)]
    if not complex and dtypes.kind(aval_of(arrays[0]).dtype) != "f":
        raise TypeError(f"{name} does not accept dtype {aval_of(arrays[0]).dtype}. Accepted dtypes are subtypes of floating.")
    return arrays[0] if len(arrays) == 1 else arrays


def of_lists(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: lists of numbers are arguments too."""

    @functools.wraps(function)
    def wrapped(*args, **kwargs):
        return function(*map(asarray, args), **{name: asarray(x) for name, x in kwargs.items()})

    return wrapped


def in_working_precision(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorator: promote the arguments by `floats`, and compute what is narrower than float32 in float32.

    The function takes arrays of float32 or float64, and gives one of them or a tuple.
    """

    @functools.wraps(function)
    def wrapped(*args, **kwargs):
        if not args and not kwargs:
            function()  # says what is missing
        arrays = floats(function.__name__, *args, *kwargs.values())
        arrays = arrays if isinstance(arrays, list) else [arrays]
        dtype = aval_of(arrays[0]).dtype
        is_narrow = dtype.itemsize < 4
        if is_narrow:
            arrays = [x.astype(dtypes.float32) for x in arrays]
        outs = function(*arrays[:len(args)], **dict(zip(kwargs, arrays[len(args):], strict=True)))
        if not is_narrow:
            return outs
        return tuple(out.astype(dtype) for out in outs) if isinstance(outs, tuple) else outs.astype(dtype)

    return wrapped


def polynomial(coefficients, x):
    """c0 + c1 x + c2 x^2 + ..., by Horner's rule. Its derivative is a polynomial too."""
    return lax.polynomial(x, coefficients, unroll=len(coefficients))
