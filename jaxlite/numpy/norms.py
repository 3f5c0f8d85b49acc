"""Norms of vectors and matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from jaxlite import lax
from jaxlite.core import dtypes
from jaxlite.core.aval import Ints
from jaxlite.lax import shaping
from jaxlite.numpy import decompositions, manipulation, reductions
from jaxlite.numpy import matrix_parts as parts
from jaxlite.numpy.api import api, as_array, canonical_axes, check_arrays, is_complex

Ord = None | int | float | str


def squared_size(x):
    """|x|^2, element by element."""
    if is_complex(x):
        return lax.real(x * lax.conj(x))  # one kernel on the CPU: sums of squares of two parts would be two and more
    return lax.square(x)


def _vector_norm(x, axes: Ints, keepdims: bool, ord: Ord):
    if ord is None or ord == 2:
        return lax.sqrt(reductions.sum(squared_size(x), axis=axes, keepdims=keepdims))
    if isinstance(ord, str):
        raise ValueError(f"Invalid order '{ord}' for vector norm.")
    if ord == 0:
        sizes = lax.abs(x)
        nonzero = shaping.convert(x != 0, sizes.dtype)
        return reductions.sum(nonzero, axis=axes, keepdims=keepdims)
    sizes = lax.abs(x)
    if ord == np.inf:
        return reductions.max(sizes, axis=axes, keepdims=keepdims, initial=0)
    if ord == -np.inf:
        return reductions.min(sizes, axis=axes, keepdims=keepdims)
    if isinstance(ord, complex):
        raise TypeError(f"the order of a norm is a real number, got {ord}")
    if ord == 1:
        return reductions.sum(sizes, axis=axes, keepdims=keepdims)
    total = reductions.sum(sizes ** ord, axis=axes, keepdims=keepdims)
    return total ** (1 / ord)


def _matrix_norm(x, axes: tuple[int, int], keepdims: bool, ord: Ord):
    if ord is None or ord == "fro":
        return _vector_norm(x, axes, keepdims, 2)
    picks: dict[Any, tuple[Callable, int]] = {
        1: (reductions.max, 0), -1: (reductions.min, 0), np.inf: (reductions.max, 1), -np.inf: (reductions.min, 1)}
    if ord in picks:
        pick, summed = picks[ord]
        sums = reductions.sum(lax.abs(x), axis=axes[summed], keepdims=True)
        # A norm is of no sums at least zero.
        result = pick(sums, axis=axes, keepdims=True, **({"initial": 0} if pick is reductions.max else {}))
    elif ord in (2, -2, "nuc"):
        matrices = manipulation.moveaxis(x, axes, (-2, -1))
        values = decompositions.svd(matrices, compute_uv=False)
        reducers: dict[Any, Callable] = {2: reductions.max, -2: reductions.min, "nuc": reductions.sum}
        reducer = reducers[ord]
        result = reducer(values, axis=-1, **({"initial": 0} if ord == 2 else {}))
        result = manipulation.expand_dims(result, axes)
    else:
        raise ValueError(f"Invalid order '{ord}' for matrix norm.")
    return result if keepdims else manipulation.squeeze(result, axes)


@api
def norm(x, ord: Ord = None, axis: None | Ints | int = None, keepdims: bool = False):
    """The norm of a matrix or a vector.

    Args:
      ord: which norm. Vectors: 2 (also None), 1, inf and -inf (greatest and least size), 0 (how many are not zero),
        any other number p: (sum |x|^p)^(1/p). Matrices: 'fro' (also None), 'nuc', 1 and -1 (greatest and least column
        sum), inf and -inf (of rows), 2 and -2 (greatest and least singular value).
      axis: the axis of vectors or the two axes of matrices. None takes all of x: with no `ord` as one long vector.
      keepdims: keep these axes, with size 1.
    Returns: real.
    Raises: ValueError for an order that is none, or a number of axes other than one and two.

    >>> import jaxlite.numpy as jnp
    >>> print(jnp.linalg.norm(jnp.array([3.0, 4.0])))
    5.0
    """
    x = shaping.strong(parts.inexact("norm", x))
    rank = x.ndim
    axes = canonical_axes(axis, rank)
    if axis is None and ord is None:
        return _vector_norm(x, axes, keepdims, 2)
    if len(axes) == 1:
        return _vector_norm(x, axes, keepdims, ord)
    if len(axes) == 2:
        return _matrix_norm(x, axes, keepdims, ord)  # type: ignore[arg-type]
    raise ValueError(f"Improper number of axes for norm: axis={axes}. Pass one axis to compute a vector-norm, or two "
                     "axes to compute a matrix-norm.")


@api
def matrix_norm(x, /, *, keepdims: bool = False, ord: Ord = "fro"):
    """The norms of matrices (..., m, n); orders as in `norm`."""
    x = shaping.strong(parts.inexact("matrix_norm", x))
    return _matrix_norm(x, canonical_axes((-2, -1), x.ndim), keepdims, ord)  # type: ignore[arg-type]


@api
def vector_norm(x, /, *, axis: int | Ints | None = None, keepdims: bool = False, ord: Ord = 2):
    """The norms of vectors that are along one or several axes (None for all); orders as in `norm`."""
    check_arrays("jnp.linalg.vector_norm", x)
    x = as_array(x)
    x = shaping.convert(x, dtypes.to_default_inexact_dtype(x.dtype), False)
    return _vector_norm(x, canonical_axes(axis, x.ndim), keepdims, ord)
