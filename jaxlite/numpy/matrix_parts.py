"""Helpers of `jaxlite.numpy.linalg`: argument checks, and small pieces of matrices."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from jaxlite import lax
from jaxlite.core import dtypes
from jaxlite.core.values import aval_of
from jaxlite.lax import shaping
from jaxlite.numpy import manipulation, ufuncs
from jaxlite.numpy.api import check_arrays, is_complex, promote_dtypes_inexact


def inexact(name: str, *args):
    """The arguments as arrays of one floating or complex dtype."""
    check_arrays(f"jnp.linalg.{name}", *args)
    arrays = promote_dtypes_inexact(*args)
    return arrays[0] if len(arrays) == 1 else arrays


def matrices(name: str, a):
    """An argument of at least two axes, floating or complex."""
    a = inexact(name, a)
    shape = aval_of(a).shape
    if len(shape) < 2:
        raise ValueError(f"jnp.linalg.{name}: input array must be at least 2D; got shape {shape}.")
    return a


def square(name: str, a):
    """An argument (..., n, n), floating or complex."""
    a = inexact(name, a)
    shape = aval_of(a).shape
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise ValueError(f"Argument to {name} must have shape [..., n, n], got {shape}.")
    return a


def eye(size: int, dtype):
    """The identity matrix."""
    row, column = shaping.indices((size, size))
    return shaping.convert(lax.eq(row, column), dtype)


def adjoint(x):
    """Each matrix transposed and conjugated."""
    x = manipulation.matrix_transpose(x)
    return ufuncs.conj(x) if is_complex(x) else x


def expand(x, *axes: int):
    """Axes of size 1 put in."""
    return manipulation.expand_dims(x, axes)


def columns_scaled(x, factors):
    """Column i of each matrix times factors[..., i]."""
    return x * expand(factors, -2)


def epsilon(x) -> float:
    """The machine epsilon of an array's dtype."""
    return float(dtypes.finfo(aval_of(x).dtype).eps)


def element(x, i: int, j: int):
    """Entry (i, j) of each matrix."""
    return x[..., i, j]


def diagonal_of(x):
    """The diagonal of each matrix, (..., n)."""
    return manipulation.diagonal(x, 0, -2, -1)


def solve_for_columns(solve: Callable[[Any], Any], b):
    """`solve(b)` for one matrix and right sides (..., n, k): all of them are columns of one."""
    shape, rank = aval_of(b).shape, aval_of(b).ndim
    rows_first = shaping.transpose(b, (rank - 2, *range(rank - 2), rank - 1))
    columns = shaping.reshape(rows_first, (shape[-2], math.prod(shape[:-2]) * shape[-1]))
    x = shaping.reshape(solve(columns), rows_first.shape)
    return shaping.transpose(x, (*range(1, rank - 1), 0, rank - 1))
