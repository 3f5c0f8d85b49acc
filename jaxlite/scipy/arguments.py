"""Arguments of functions of numbers: as arrays of one floating dtype."""

from __future__ import annotations

from typing import Any

from jaxlite.core import dtypes
from jaxlite.core.values import aval_of
from jaxlite.numpy.api import as_array, check_arrays, promote_dtypes_inexact


def floats(name: str, *args: Any) -> Any:
    """The arguments promoted to one floating dtype: one array for one argument, else a list.

    Raises: TypeError for arguments that are no arrays or scalars, and for complex ones.
    """
    check_arrays(name, *args)
    arrays = [as_array(x) for x in promote_dtypes_inexact(*args)]
    if dtypes.kind(aval_of(arrays[0]).dtype) != "f":
        raise TypeError(f"{name} does not accept dtype {aval_of(arrays[0]).dtype}. Accepted dtypes are subtypes of floating.")
    return arrays[0] if len(arrays) == 1 else arrays


def polynomial(coefficients: Any, x: Any) -> Any:
    """c0 + c1 x + c2 x^2 + ..., by Horner's rule."""
    result = coefficients[-1]
    for coefficient in coefficients[-2::-1]:
        result = result * x + coefficient
    return result
