"""Matrices made from vectors or from a size: Toeplitz, Hankel, Hilbert, Pascal, companions and others.

Functions of vectors are batched over leading axes. What depends on a size alone is computed by NumPy, in double
precision or with integers, when the function is called or traced.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from jaxlite import numpy as jnp
from jaxlite.core import dtypes
from jaxlite.core.filtering import boundary
from jaxlite.core.symbolic import is_symbolic, largest
from jaxlite.core.values import aval_of
from jaxlite.lax import shaping
from jaxlite.numpy.api import api, check_arrays, is_complex, promote_dtypes, promote_dtypes_inexact, strong_arrays, whole_size


def _vectors(name: str, *args) -> list[Any]:
    """The arguments as arrays of one dtype with at least one axis."""
    check_arrays(name, *args)
    return [jnp.atleast_1d(x) for x in promote_dtypes(*args)]


def _float_matrix(values: np.ndarray):
    return jnp.asarray(values, dtype=dtypes.canonicalize_dtype(np.float64))


# --- constant along diagonals ------------------------------------------------------------------------


def _lookup(sequence, index):
    """sequence[..., index] for a matrix of indices."""
    return jnp.take(sequence, index, axis=-1)


def _rows_and_columns(rows: Any, columns: Any) -> Any:
    """The numbers of rows and of columns, broadcast against each other; constants where the sizes are."""
    arange = jnp.arange if is_symbolic(rows) or is_symbolic(columns) else np.arange
    return arange(rows)[:, None], arange(columns)


def _joined(first, second):
    batch = jnp.broadcast_shapes(aval_of(first).shape[:-1], aval_of(second).shape[:-1])
    return jnp.concatenate([jnp.broadcast_to(x, (*batch, aval_of(x).shape[-1])) for x in (first, second)], axis=-1)


@api
def toeplitz(c, r=None):
    """The matrix that is constant along its diagonals, from its first column and row.

    Args:
      c: the first column (..., m).
      r: the first row (..., n), of which the first element is not read; by default conj(c).
    Returns: (..., m, n).

    >>> import jaxlite.numpy as jnp
    >>> from jaxlite.scipy.linalg import toeplitz
    >>> print(toeplitz(jnp.array([1, 2]), jnp.array([0, 5, 6])))
    [[1 5 6]
     [2 1 5]]
    """
    check_arrays("toeplitz", c)
    c, r = _vectors("toeplitz", c, jnp.conj(c) if r is None and is_complex(c) else c if r is None else r)
    c, r = (shaping.convert(x, None, False) for x in (c, r))
    rows, columns = c.shape[-1], r.shape[-1]
    # Diagonals from the upper right to the lower left corner.
    diagonals = _joined(jnp.flip(r[..., 1:], axis=-1), c)
    row, column = _rows_and_columns(rows, columns)
    return _lookup(diagonals, row - column + largest(columns - 1, 0))


@api
@strong_arrays
def hankel(c, r=None):
    """The matrix that is constant along its antidiagonals, from its first column and last row.

    Args:
      c: the first column (..., m).
      r: the last row (..., n), of which the first element is not read; by default zeros.
    Returns: (..., m, n).
    """
    check_arrays("hankel", c)
    c, r = _vectors("hankel", c, jnp.zeros_like(c) if r is None else r)
    rows, columns = aval_of(c).shape[-1], aval_of(r).shape[-1]
    row, column = _rows_and_columns(rows, columns)
    return _lookup(_joined(c, r[..., 1:]), row + column)


@api
def circulant(c):
    """The square matrix whose columns are the first one, c (..., n), rotated: element (i, j) is c[(i - j) % n]."""
    (c,) = _vectors("circulant", c)
    index = np.arange(aval_of(c).shape[-1])
    return _lookup(c, (index[:, None] - index) % max(len(index), 1))


@api
def convolution_matrix(a, n: int, mode: str = "full"):
    """The Toeplitz matrix M with M @ v = convolve(a, v, mode), for v of length n.

    Args:
      a: (..., m), m >= 1.
      n: how many columns. mode: 'full', 'same' or 'valid'.
    Returns: (..., k, n), k = m + n - 1, max(m, n), or max(m, n) - min(m, n) + 1.
    """
    if n <= 0:
        raise ValueError(f"n must be a positive integer; got {n}.")
    if mode not in ("full", "valid", "same"):
        raise ValueError(f"mode must be one of 'full', 'valid', 'same'; got {mode!r}.")
    (a,) = _vectors("convolution_matrix", a)
    size = aval_of(a).shape[-1]
    if size == 0:
        raise ValueError(f"len(a) must be at least 1; got shape {aval_of(a).shape}.")
    total, small, large = size + n - 1, min(size, n), max(size, n)
    count = {"full": total, "same": large, "valid": large - small + 1}[mode]
    first = {"full": 0, "same": (small - 1) // 2, "valid": small - 1}[mode]
    index = np.arange(first, first + count)[:, None] - np.arange(n)
    return jnp.where((index >= 0) & (index < size), _lookup(a, index.clip(0, size - 1)), jnp.zeros((), a.dtype))


# --- made of vectors or matrices ---------------------------------------------------------------------


@api
def block_diag(*arrs):
    """The matrix with the given ones along its diagonal, zeros elsewhere.

    Args:
      arrs: arrays of at most two axes; a vector is one row.

    >>> import jaxlite.numpy as jnp
    >>> from jaxlite.scipy.linalg import block_diag
    >>> print(block_diag(jnp.ones((1, 2)), 3.0))
    [[1. 1. 0.]
     [0. 0. 3.]]
    """
    if not arrs:
        return jnp.zeros((1, 0))
    check_arrays("block_diag", *arrs)
    for position, x in enumerate(arrs):
        if aval_of(x).ndim > 2:
            raise ValueError("Arguments to jax.scipy.linalg.block_diag must have at most 2 dimensions, got "
                             f"{aval_of(x)} at argument {position}.")
    blocks = [jnp.atleast_2d(shaping.convert(x, None, False)) for x in promote_dtypes(*arrs)]
    width = sum(aval_of(block).shape[1] for block in blocks)
    rows, done = [], 0
    for block in blocks:
        own = aval_of(block).shape[1]
        rows.append(jnp.pad(block, ((0, 0), (done, width - done - own))))
        done += own
    return jnp.concatenate(rows, axis=0)


def _with_subdiagonal(first_row, below):
    """A first row (..., n), and what stands below the diagonal (..., n - 1); zeros elsewhere."""
    size = aval_of(first_row).shape[-1]
    batch = jnp.broadcast_shapes(aval_of(first_row).shape[:-1], aval_of(below).shape[:-1])
    matrix = jnp.zeros((*batch, size, size), aval_of(first_row).dtype).at[..., 0, :].set(first_row)
    return matrix.at[..., np.arange(1, size), np.arange(size - 1)].set(below)


@api
def companion(a):
    """The companion matrix of polynomials: its eigenvalues are their roots.

    Args:
      a: coefficients (..., n), the highest first; n >= 2.
    Returns: (..., n - 1, n - 1).
    """
    (a,) = promote_dtypes_inexact(*_vectors("companion", a))
    if a.shape[-1] < 2:
        raise ValueError(f"The length of `a` along the last axis must be at least 2; got shape {a.shape}.")
    first_row = -a[..., 1:] / a[..., :1]
    return _with_subdiagonal(first_row, jnp.ones(a.shape[-1] - 2, a.dtype))


@api
def fiedler_companion(a):
    """The pentadiagonal companion matrix of polynomials [M. Fiedler, A note on companion matrices, 2003].

    Args:
      a: coefficients (..., n), the highest first.
    Returns: (..., n - 1, n - 1).
    """
    (a,) = promote_dtypes_inexact(*_vectors("fiedler_companion", a))
    if not a.shape[-1]:
        raise ValueError("fiedler_companion requires the last axis of 'a' to have nonzero length, but got an array of "
                         f"shape {a.shape}.")
    size = a.shape[-1] - 1
    if not size:
        return shaping.full_like(a, 0, shape=(*a.shape[:-1], 0, 0))
    matrix = jnp.zeros((*a.shape[:-1], size, size), a.dtype)
    coefficients = -a[..., 1:] / a[..., :1]
    index = np.arange(size)
    # Coefficients alternate between the diagonals beside the main one, from its first element on.
    matrix = matrix.at[..., 0, 0].set(coefficients[..., 0])
    odd, even = index[1::2], index[2::2]
    matrix = matrix.at[..., odd - 1, odd].set(coefficients[..., odd])
    matrix = matrix.at[..., even, even - 1].set(coefficients[..., even])
    # Ones two places away, and at the start of each chain.
    matrix = matrix.at[..., 1:2, 0:1].set(1)
    down, right = index[3::2], index[2::2]
    matrix = matrix.at[..., down, down - 2].set(1)
    return matrix.at[..., right - 2, right].set(1)


@api
def fiedler(a):
    """The matrix of distances |a[i] - a[j]|, for a of shape (..., n)."""
    (a,) = _vectors("fiedler", a)
    return jnp.abs(a[..., :, None] - a[..., None, :])


@api
def leslie(f, s):
    """The Leslie matrix of a population: fecundities f (..., n) in the first row, survival rates s (..., n - 1) below the
    diagonal."""
    f, s = _vectors("leslie", f, s)
    births, survivals = aval_of(f).shape, aval_of(s).shape
    if births[-1] < 2:
        raise ValueError(f"The length of f along the last axis must be at least 2; got shape {births}.")
    if survivals[-1] != births[-1] - 1:
        raise ValueError("Incorrect lengths for f and s. The length of s along the last axis must be one less than the "
                         f"length of f; got f shape {births} and s shape {survivals}.")
    return _with_subdiagonal(f, s)


# --- of a size ---------------------------------------------------------------------------------------


@boundary
def hilbert(n: int):
    """The Hilbert matrix (n, n), with elements 1 / (i + j + 1): symmetric, and famously ill-conditioned."""
    index = np.arange(n)
    return _float_matrix(1.0 / (index[:, None] + index + 1))


def _integer_matrix(n: int, element: Callable[[int, int], int]):
    """A matrix of exact integers, as floating numbers. Empty for a negative size."""
    n = max(n, 0)
    shaping.canonical_shape((n, n))  # refuses what no memory holds
    return _float_matrix(np.array([[float(element(i, j)) for j in range(n)] for i in range(n)]).reshape(n, n))


@boundary
def invhilbert(n: int):
    """The inverse of the Hilbert matrix (n, n); its elements are integers."""
    n = whole_size(n)

    def element(i: int, j: int) -> int:
        return (-1) ** (i + j) * (i + j + 1) * math.comb(n + i, n - j - 1) * math.comb(n + j, n - i - 1) \
            * math.comb(i + j, i) ** 2

    return _integer_matrix(n, element)


@boundary
def hadamard(n: int, dtype=int):
    """Sylvester's Hadamard matrix (n, n), of ones and minus ones with orthogonal columns; n is a power of two.

    Raises: ValueError for other sizes.
    """
    if n < 1 or n != int(n) or int(n) & (int(n) - 1):
        raise ValueError(f"n must be a positive power of 2; got {n}.")
    index = np.arange(int(n))
    common_bits = (index[:, None] & index).astype(np.uint64)
    return jnp.asarray(1 - 2 * (np.bitwise_count(common_bits) % 2).astype(np.int8)).astype(dtype)


_TRIANGLES = ("symmetric", "lower", "upper")


def _pascal(n: int, kind: str | None, symmetric: Callable[[int, int], int], lower: Callable[[int, int], int]):
    kind = kind or "symmetric"
    if kind not in _TRIANGLES:
        raise ValueError(f"Expected kind to be one of: {list(_TRIANGLES)}; got {kind}")
    n = whole_size(n)
    if kind == "upper":
        return _integer_matrix(n, lambda i, j: lower(j, i))
    return _integer_matrix(n, symmetric if kind == "symmetric" else lower)


@boundary
def pascal(n: int, kind: str | None = None):
    """Pascal's triangle as a matrix (n, n), float32.

    Args:
      kind: 'lower', its transpose 'upper', or 'symmetric', the default: the product of both.
    """
    return _pascal(n, kind, lambda i, j: math.comb(i + j, i), math.comb).astype(np.float32)


@boundary
def invpascal(n: int, kind: str | None = None):
    """The inverse of `pascal(n, kind)`; its elements are integers."""

    def lower(i: int, j: int) -> int:
        return (-1) ** (i - j) * math.comb(i, j) if i >= j else 0

    return _pascal(n, kind, lambda i, j: sum(lower(k, i) * lower(k, j) for k in range(n)), lower)


@boundary
def dft(n: int, scale: str | None = None, *, dtype=None):
    """The matrix of the discrete Fourier transform (n, n): element (i, j) is exp(-2 pi i j sqrt(-1) / n).

    Args:
      scale: None, 'sqrtn' to divide by sqrt(n), which makes it unitary, or 'n' to divide by n.
      dtype: a complex dtype; by default the default one.
    """
    if scale not in (None, "sqrtn", "n"):
        raise ValueError(f"scale must be None, 'sqrtn', or 'n'; got {scale!r}.")
    dtype = dtypes.canonicalize_dtype(np.complex128 if dtype is None else dtype)
    if dtypes.kind(dtype) != "c":
        raise ValueError(f"dtype must be a complex floating-point type; got {dtype}.")
    index = np.arange(n)
    matrix = np.exp(-2j * np.pi * (index[:, None] * index % max(n, 1)) / max(n, 1))
    factor = {None: 1.0, "sqrtn": math.sqrt(n), "n": float(n)}[scale]
    return jnp.asarray(matrix / max(factor, 1.0), dtype=dtype)


@boundary
def helmert(n: int, full: bool = False):
    """The Helmert matrix of orthonormal contrasts (n - 1, n): row k - 1 is k ones and -k, over sqrt(k (k + 1)).

    Args:
      full: put a row of 1 / sqrt(n) in front: an orthogonal (n, n).
    """
    if n < 1:
        raise ValueError(f"n must be a positive integer; got {n}.")
    order = np.arange(1, n)[:, None]
    place = np.arange(n)
    rows = np.where(place < order, 1.0, np.where(place == order, -1.0 * order, 0.0)) / np.sqrt(order * (order + 1.0))
    return _float_matrix(np.vstack([np.full((1, n), 1 / math.sqrt(n)), rows]) if full else rows)
