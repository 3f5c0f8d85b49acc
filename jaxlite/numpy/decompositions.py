"""NumPy's factorizations of matrices, batched over leading axes: Cholesky, QR, singular values, eigenvalues."""

from __future__ import annotations

from typing import Any, NamedTuple

from jaxlite import lax
from jaxlite.core import dtypes
from jaxlite.lax import linalg as lax_linalg
from jaxlite.lax import shaping
from jaxlite.numpy import indexing, manipulation, selection
from jaxlite.numpy import matrix_parts as parts
from jaxlite.numpy.api import api


class EigResult(NamedTuple):
    """Eigenvalues (..., n) and eigenvectors (..., n, n), as columns."""

    eigenvalues: Any
    eigenvectors: Any


class EighResult(NamedTuple):
    """Real eigenvalues (..., n), ascending, and orthonormal eigenvectors (..., n, n), as columns."""

    eigenvalues: Any
    eigenvectors: Any


class QRResult(NamedTuple):
    """A factor with orthonormal columns and an upper triangular one."""

    Q: Any
    R: Any


class SlogdetResult(NamedTuple):
    """The sign of a determinant and the logarithm of its size."""

    sign: Any
    logabsdet: Any


class SVDResult(NamedTuple):
    """Singular vectors as columns, singular values, singular vectors as conjugated rows."""

    U: Any
    S: Any
    Vh: Any


@api
def cholesky(a, *, upper: bool = False, symmetrize_input: bool = True):
    """The lower triangular L with a = L @ L^H, or the upper triangular U with a = U^H @ U.

    Args:
      a: (..., n, n), Hermitian and positive definite.
      upper: give U.
      symmetrize_input: take (a + a^H) / 2; if False the lower triangle alone is read.
    Returns: (..., n, n). NaN where a matrix is not positive definite.

    >>> import jaxlite.numpy as jnp
    >>> print(jnp.linalg.cholesky(jnp.array([[4.0, 2.0], [2.0, 5.0]])))
    [[2. 0.]
     [1. 2.]]
    """
    a = parts.square("cholesky", a)
    factor = lax_linalg.cholesky(a, symmetrize_input=symmetrize_input)
    return parts.adjoint(factor) if upper else factor


@api
def qr(a, mode: str = "reduced"):
    """Factors a = Q @ R, Q with orthonormal columns and R upper triangular.

    Args:
      a: (..., m, n); k is min(m, n).
      mode: 'reduced' (or 'full'): Q (..., m, k) and R (..., k, n). 'complete': Q (..., m, m) and R (..., m, n).
        'r': R alone. 'raw': LAPACK's reflectors, transposed: (..., n, m), and their scales (..., k).
    Returns: QRResult(Q, R), or R.
    Raises: ValueError for another mode.
    """
    a = parts.inexact("qr", a)
    if mode == "raw":
        reflectors, taus = lax_linalg.geqrf(a)
        return QRResult(manipulation.matrix_transpose(reflectors), taus)
    if mode not in ("reduced", "full", "complete", "r"):
        raise ValueError(f"Unsupported QR decomposition mode '{mode}'; there are 'reduced', 'complete', 'r' and 'raw'.")
    q, r = lax_linalg.qr(a, full_matrices=mode == "complete")
    return r if mode == "r" else QRResult(q, r)  # XLA leaves out the computation of a Q that nobody uses


@api
def svd(a, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False,
        subset_by_index: tuple[int, int] | None = None):
    """The singular value decomposition a = (U * S) @ Vh.

    Args:
      a: (..., m, n); k is min(m, n).
      full_matrices: U (..., m, m) and Vh (..., n, n), else (..., m, k) and (..., k, n).
      compute_uv: if False, S alone.
      hermitian: a is Hermitian: a faster way is taken.
      subset_by_index: a range of singular values; not supported on the CPU.
    Returns: SVDResult(U, S, Vh), or S: real, descending, (..., k).

    >>> import jaxlite.numpy as jnp
    >>> print(jnp.linalg.svd(jnp.array([[3.0, 0.0], [0.0, -4.0]]), compute_uv=False))
    [4. 3.]
    """
    a = parts.inexact("svd", a)
    if not hermitian:
        out = lax_linalg.svd(a, full_matrices=full_matrices, compute_uv=compute_uv, subset_by_index=subset_by_index)
        return SVDResult(*out) if compute_uv else out
    vectors, values = lax_linalg.eigh(a, subset_by_index=subset_by_index)
    axis = values.ndim - 1
    sizes = lax.abs(values)
    if not compute_uv:
        return lax.rev(lax.sort(sizes, dimension=axis), (axis,))
    index = shaping.broadcasted_iota(dtypes.int32, values.shape, axis)
    # Keys are negated rather than the order reversed: equal values keep their order.
    smaller, order = lax.sort((-sizes, index), dimension=axis, num_keys=1)
    vectors = indexing.take_along_axis(vectors, parts.expand(order, -2), axis=-1, mode="promise_in_bounds")
    values = indexing.take_along_axis(values, order, axis=-1, mode="promise_in_bounds")
    signs = selection.where(values < 0, -1, 1)
    return SVDResult(vectors, lax.neg(smaller), shaping.strong(parts.adjoint(parts.columns_scaled(vectors, signs))))


@api
def svdvals(x, /):
    """The singular values of matrices, descending: (..., min(m, n))."""
    return svd(x, compute_uv=False)


@api
def eig(a) -> EigResult:
    """Eigenvalues and eigenvectors of general matrices: a @ v = v * w. On the CPU alone.

    Args:
      a: (..., n, n).
    Returns: EigResult(w, v), both complex: (..., n) and (..., n, n), eigenvectors as columns of length one.
    """
    values, vectors = lax_linalg.eig(parts.inexact("eig", a), compute_left_eigenvectors=False)
    return EigResult(values, vectors)


@api
def eigvals(a):
    """Eigenvalues of general matrices, complex: (..., n). On the CPU alone."""
    return lax_linalg.eig(parts.inexact("eigvals", a), compute_left_eigenvectors=False, compute_right_eigenvectors=False)[0]


def _is_lower(UPLO: str | None) -> bool:
    if UPLO not in (None, "L", "U"):
        raise ValueError(f"UPLO must be one of None, 'L', or 'U', got {UPLO}")
    return UPLO != "U"


@api
def eigh(a, UPLO: str | None = None, symmetrize_input: bool = True) -> EighResult:
    """Eigenvalues and eigenvectors of Hermitian matrices: a @ v = v * w.

    Args:
      a: (..., n, n).
      UPLO: which triangle to read, 'L' or 'U', without `symmetrize_input`.
      symmetrize_input: take (a + a^H) / 2.
    Returns: EighResult(w, v): w real and ascending, (..., n); v with orthonormal columns.

    >>> import jaxlite.numpy as jnp
    >>> print(jnp.linalg.eigh(jnp.array([[2.0, 0.0], [0.0, 1.0]])).eigenvalues)
    [1. 2.]
    """
    lower = _is_lower(UPLO)
    vectors, values = lax_linalg.eigh(parts.square("eigh", a), lower=lower, symmetrize_input=symmetrize_input)
    return EighResult(values, vectors)


@api
def eigvalsh(a, UPLO: str | None = "L", *, symmetrize_input: bool = True):
    """Eigenvalues of Hermitian matrices, real and ascending: (..., n). Arguments as in `eigh`."""
    return eigh(a, UPLO, symmetrize_input).eigenvalues
