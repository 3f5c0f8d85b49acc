"""Factorizations with SciPy's names and conventions, batched over leading axes. LAPACK does the work on the CPU.

Arguments of integers are taken as floating; lists are taken as arrays. SciPy's `overwrite_*`, `check_finite`, `lwork`
and `turbo` have no meaning here: arrays are immutable, and a matrix that cannot be handled gives NaN.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from jaxlite import lax
from jaxlite import numpy as jnp
from jaxlite.core import dtypes
from jaxlite.core.filtering import boundary
from jaxlite.core.values import aval_of
from jaxlite.lax import linalg as lax_linalg
from jaxlite.lax import shaping
from jaxlite.numpy.api import api, is_complex, promote_dtypes_inexact, promotes_inside


def matrices(name: str, *args):
    """The arguments as arrays of one floating or complex dtype: one array for one argument, else a list.

    Raises: ValueError for arguments with fewer than two axes.
    """
    arrays = promote_dtypes_inexact(*map(jnp.asarray, args))
    for x in arrays:
        if aval_of(x).ndim < 2:
            raise ValueError(f"{name}: arguments must be matrices (..., m, n), got shape {aval_of(x).shape}")
    return arrays[0] if len(arrays) == 1 else arrays


def adjoint(x):
    """Matrices transposed and conjugated."""
    x = jnp.matrix_transpose(x)
    return jnp.conj(x) if is_complex(x) else x


def as_complex(x):
    """An array in the complex dtype of its precision."""
    return lax.convert_element_type(x, np.result_type(aval_of(x).dtype, np.complex64))


# --- Cholesky ----------------------------------------------------------------------------------------


@api
def cholesky(a, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True):
    """The triangular factor of Hermitian positive definite matrices.

    Args:
      a: (..., n, n); one triangle is read: the upper one, or with `lower` the lower one.
      lower: give L with a = L @ L^H instead of U with a = U^H @ U.
    Returns: (..., n, n), zeros in the other triangle. NaN where a matrix is not positive definite.

    >>> import jaxlite.numpy as jnp, jaxlite.scipy.linalg
    >>> print(jaxlite.scipy.linalg.cholesky(jnp.array([[4.0, 2.0], [2.0, 5.0]])))
    [[2. 1.]
     [0. 2.]]
    """
    a = matrices("cholesky", a)
    factor = lax_linalg.cholesky(a if lower else adjoint(a), symmetrize_input=False)
    return factor if lower else adjoint(factor)


@boundary
def cho_factor(a, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> tuple[Any, bool]:
    """The factor that `cho_solve` takes: (`cholesky(a, lower)`, lower)."""
    return cholesky(a, lower), lower


# --- LU ----------------------------------------------------------------------------------------------


@api
def lu_factor(a, overwrite_a: bool = False, check_finite: bool = True) -> tuple[Any, Any]:
    """The factors that `lu_solve` takes.

    Args:
      a: (..., m, n).
    Returns: L below the diagonal and U on and above it (..., m, n), and int32 pivots (..., min(m, n)): row i was swapped
      with row pivots[i], in order.
    """
    factors, pivots, _ = lax_linalg.lu(matrices("lu_factor", a))
    return factors, pivots


@api
def lu(a, permute_l: bool = False, overwrite_a: bool = False, check_finite: bool = True):
    """Gaussian elimination with partial pivoting: a = P @ L @ U.

    Args:
      a: (..., m, n); k is min(m, n).
      permute_l: give (P @ L, U).
    Returns: (P, L, U): a permutation matrix (..., m, m), a lower triangular one with ones on the diagonal (..., m, k), and
      an upper triangular one (..., k, n).

    >>> import jaxlite.numpy as jnp, jaxlite.scipy.linalg
    >>> p, l, u = jaxlite.scipy.linalg.lu(jnp.array([[1.0, 2.0], [2.0, 2.0]]))
    >>> print(l, u, sep="\\n")
    [[1.  0. ]
     [0.5 1. ]]
    [[2. 2.]
     [0. 1.]]
    """
    a = matrices("lu", a)
    factors, _, permutation = lax_linalg.lu(a)
    rows, columns = aval_of(a).shape[-2:]
    inner = min(rows, columns)
    real = dtypes.real_dtype(aval_of(a).dtype)
    lower = jnp.tril(factors[..., :, :inner], -1) + jnp.eye(rows, inner, dtype=aval_of(a).dtype)
    upper = jnp.triu(factors[..., :inner, :])
    # Row i of a[permutation] is row permutation[i] of a.
    permuting = (jnp.arange(rows)[:, None] == permutation[..., None, :]).astype(real)
    if permute_l:
        return jnp.matmul(permuting.astype(aval_of(a).dtype), lower, precision=lax.Precision.HIGHEST), upper
    return permuting, lower, upper


# --- QR ----------------------------------------------------------------------------------------------


@api
def qr(a, overwrite_a: bool = False, lwork=None, mode: str = "full", pivoting: bool = False,
       check_finite: bool = True) -> tuple[Any, ...]:
    """Factors a = Q @ R, Q with orthonormal columns and R upper triangular.

    Args:
      a: (..., m, n); k is min(m, n).
      mode: 'full': Q (..., m, m) and R (..., m, n). 'economic': Q (..., m, k) and R (..., k, n). 'r': R of 'full' alone.
      pivoting: reorder columns so that R's diagonal decreases in size: a[:, P] = Q @ R.
    Returns: (Q, R), (Q, R, P), (R,) or (R, P), P int32 (..., n).
    Raises: ValueError for another mode.
    """
    if mode not in ("full", "r", "economic"):
        raise ValueError(f"Unsupported QR decomposition mode '{mode}'; there are 'full', 'r' and 'economic'.")
    q, r, *order = lax_linalg.qr(matrices("qr", a), pivoting=pivoting, full_matrices=mode != "economic")
    return (r, *order) if mode == "r" else (q, r, *order)


@api
def qr_multiply(a, c, mode: str = "right", pivoting: bool = False, conjugate: bool = False, overwrite_a: bool = False,
                overwrite_c: bool = False) -> tuple[Any, ...]:
    """The product of a matrix with the orthonormal factor of another: (c @ Q, R) for a = Q @ R.

    Args:
      a: (..., m, n); k is min(m, n).
      c: (..., p, m), or a vector (m,). With mode 'left': (..., k, p), or a vector (k,).
      mode: 'right' for c @ Q, 'left' for Q @ c, with the first k columns of Q.
      pivoting: reorder columns of a; the order is a third result.
      conjugate: use the complex conjugate of Q.
    Raises: ValueError for another mode, or a c that does not fit.
    """
    if mode not in ("right", "left"):
        raise ValueError(f"mode must be 'right' or 'left', got {mode!r}")
    a, c = promote_dtypes_inexact(jnp.asarray(a), jnp.asarray(c))
    a = matrices("qr_multiply", a)
    rows, columns = aval_of(a).shape[-2:]
    inner = min(rows, columns)
    is_vector = c.ndim == 1
    if is_vector:
        c = c[:, None] if mode == "left" else c[None, :]
    given, wanted = (c.shape[-2], inner) if mode == "left" else (c.shape[-1], rows)
    if given != wanted:
        product, what = ("Q @ c", "rows") if mode == "left" else ("c @ Q", "columns")
        raise ValueError(f"Array shapes are not compatible for {product}: a has shape {aval_of(a).shape}, so c must have "
                         f"{wanted} {what}, but it has {given}.")
    q, r, *order = lax_linalg.qr(a, pivoting=pivoting, full_matrices=False)
    if conjugate:
        q = jnp.conj(q)
    left, right = (q, c) if mode == "left" else (c, q)
    result = jnp.matmul(left, right, precision=lax.Precision.HIGHEST)
    if is_vector:
        result = jnp.squeeze(result, -1 if mode == "left" else -2)
    return (result, r, *order)


# --- eigenvalues and singular values -----------------------------------------------------------------


@api
def svd(a, full_matrices: bool = True, compute_uv: bool = True, overwrite_a: bool = False, check_finite: bool = True,
        lapack_driver: str = "gesdd"):
    """The singular value decomposition a = (U * s) @ Vh.

    Args:
      a: (..., m, n); k is min(m, n).
      full_matrices: U (..., m, m) and Vh (..., n, n), else (..., m, k) and (..., k, n).
      compute_uv: if False, s alone.
      lapack_driver: of no meaning: `lax.linalg.svd` lets choose the algorithm.
    Returns: (U, s, Vh), or s: real, descending, (..., k).
    """
    return lax_linalg.svd(matrices("svd", a), full_matrices=full_matrices, compute_uv=compute_uv)


@boundary
def det(a, overwrite_a: bool = False, check_finite: bool = True):
    """Determinants of matrices (..., n, n)."""
    return jnp.linalg.det(jnp.asarray(a))


@boundary
def inv(a, overwrite_a: bool = False, check_finite: bool = True):
    """Inverses of matrices (..., n, n); not finite where a matrix is singular."""
    return jnp.linalg.inv(jnp.asarray(a))


@api
def _generalized_eigh(a, b, lower: bool, eigvals_only: bool, type: int):
    """With b = L L^H: of L^-1 a L^-H for type 1, of L^H a L else; its vectors are L^H v, for type 3 L^-1 v."""
    a, b = promote_dtypes_inexact(matrices("eigh", a), matrices("eigh", b))
    shape = jnp.broadcast_shapes(a.shape, b.shape)
    a, b = jnp.broadcast_to(a, shape), jnp.broadcast_to(b, shape)
    a = (a + jnp.conj(a.mT)) / 2
    factor = lax_linalg.cholesky(b)
    solve = functools.partial(lax_linalg.triangular_solve, factor, left_side=True, lower=True)
    if type == 1:
        inner = jnp.conj(solve(jnp.conj(solve(a).mT)).mT)
    else:
        inner = jnp.conj(factor.mT) @ a @ factor
    vectors, values = lax_linalg.eigh(inner, lower=lower)
    if eigvals_only:
        return values
    return values, factor @ vectors if type == 3 else solve(vectors, transpose_a=True, conjugate_a=True)


@api
def eigh(a, b=None, lower: bool = True, eigvals_only: bool = False, overwrite_a: bool = False,
         overwrite_b: bool = False, turbo: bool = True, eigvals: None = None, type: int = 1, check_finite: bool = True):
    """Eigenvalues and eigenvectors of Hermitian matrices: a @ v = v * w.

    Args:
      a: (..., n, n). Both triangles are read: (a + a^H) / 2 is taken.
      b: positive definite matrices (..., n, n), read alike, for the generalized problem.
      eigvals_only: give w alone.
      type: with b, 1 for a @ v = b @ v * w, 2 for a @ b @ v = v * w, 3 for b @ a @ v = v * w.
    Returns: (w, v): real and ascending (..., n); columns (..., n, n) that are orthonormal: v^H v = 1, with b v^H b v = 1,
      and v^H b^-1 v = 1 for type 3. NaN where b is not positive definite.
    Raises: NotImplementedError for subsets (`eigvals`); ValueError for other types.
    """
    if eigvals is not None:
        raise NotImplementedError("Only the eigvals=None case of eigh is implemented")
    if type not in (1, 2, 3):
        raise ValueError(f"eigh: type must be 1, 2 or 3, got {type}")
    if b is not None:
        return _generalized_eigh(a, b, lower, eigvals_only, type)
    vectors, values = lax_linalg.eigh(matrices("eigh", a), lower=lower)
    return values if eigvals_only else (values, vectors)


@api
def _tridiagonal_values(d, e, first: int, last: int, tol: float | None):
    """Eigenvalues `first` to `last` by bisection: the number of negative pivots of A - x counts those below x."""
    size, dtype = d.shape[0], d.dtype
    info = np.finfo(dtype)
    squares = jnp.concatenate([jnp.zeros(1, dtype), e * e])
    beside = jnp.concatenate([jnp.zeros(1, dtype), jnp.abs(e), jnp.zeros(1, dtype)])
    radius = beside[:-1] + beside[1:]
    low, high = jnp.min(d - radius), jnp.max(d + radius)  # Gershgorin's circles hold all of them
    size_of_all = jnp.maximum(jnp.abs(low), jnp.abs(high))
    margin = 2 * size * info.eps * size_of_all + info.tiny
    tiny = jnp.maximum(jnp.max(squares), 1) * info.tiny

    def count_below(x):
        def step(carry, row):
            pivot, count = carry
            diagonal, square = row
            pivot = diagonal - x - square / pivot
            pivot = jnp.where(jnp.abs(pivot) < tiny, -tiny, pivot)
            return (pivot, count + (pivot < 0)), None

        start = (jnp.ones_like(x), jnp.zeros(x.shape, np.int32))
        return lax.scan(step, start, (d, squares))[0][1]

    wanted = jnp.arange(first, last + 1, dtype=np.int32)
    bounds = jnp.full(wanted.shape, low - margin), jnp.full(wanted.shape, high + margin)
    width = jnp.maximum(2 * info.eps * size_of_all, 0.0 if tol is None else tol)
    # Each step halves an interval: this many reach neighbouring numbers.
    limit = info.nmant + 4 + int(np.ceil(np.log2(size + 1)))

    def unfinished(carry):
        step, below, above = carry
        return (step < limit) & jnp.any(above - below > width)

    def halve(carry):
        step, below, above = carry
        middle = (below + above) / 2
        is_above = count_below(middle) > wanted
        return step + 1, jnp.where(is_above, below, middle), jnp.where(is_above, middle, above)

    _, below, above = lax.while_loop(unfinished, halve, (0, *bounds))
    return (below + above) / 2


@api
def _tridiagonal_vectors(d, e, first: int, last: int):
    matrix = jnp.diag(d.astype(e.dtype)) + jnp.diag(e, -1)
    vectors, values = lax_linalg.eigh(matrix, lower=True, symmetrize_input=False)
    return values[first:last + 1], vectors[:, first:last + 1]


@boundary
def eigh_tridiagonal(d, e, *, eigvals_only: bool = False, select: str = "a",
                     select_range: tuple[float, float] | None = None, tol: float | None = None, key=None):
    """Eigenvalues, and eigenvectors, of a Hermitian tridiagonal matrix.

    Args:
      d: the real diagonal (n,), of float32, float64 or their complex counterparts.
      e: what stands below it (n - 1,); above it stands its conjugate.
      eigvals_only: give the values alone: by bisection, in O(n) memory. With vectors the whole matrix is made.
      select: 'a' for all, 'i' for those with indices select_range[0] to select_range[1], both included.
      tol: the width of the interval that a value is narrowed down to.
      key: of no meaning: no random numbers are used.
    Returns: values, ascending, (k,); with vectors a pair (values, orthonormal columns (n, k)).
    Raises: NotImplementedError for select='v'; TypeError for other dtypes and for shapes that do not fit.
    """
    d, e = jnp.asarray(d), jnp.asarray(e)
    kinds = [dtypes.kind(aval_of(x).dtype) for x in (d, e)]
    if not set(kinds) <= {"f", "c"} or any(aval_of(x).dtype.itemsize < 4 for x in (d, e)):
        raise TypeError("Only float32 and float64 inputs are supported as inputs to eigh_tridiagonal, got "
                        f"{aval_of(d).dtype} and {aval_of(e).dtype}")
    size = d.shape[0] if d.ndim == 1 else -1
    if e.shape != (size - 1,):
        raise TypeError(f"eigh_tridiagonal: d must be a vector and e one that is shorter by one, got shapes "
                        f"{aval_of(d).shape} and {aval_of(e).shape}")
    first, last = 0, size - 1
    if select == "v":
        raise NotImplementedError("eigh_tridiagonal(..., select='v') is not implemented")
    if select == "i":
        if select_range is None or not 0 <= select_range[0] <= select_range[1] < size:
            raise ValueError(f"eigh_tridiagonal: select_range must be a pair of indices in [0, {size}), got {select_range}")
        first, last = int(select_range[0]), int(select_range[1])
    elif select != "a":
        raise ValueError(f"select must have a value in {{'a', 'i', 'v'}}, got {select!r}")
    d = jnp.real(d)
    if eigvals_only:
        d, e = promote_dtypes_inexact(d, jnp.abs(e))
        return _tridiagonal_values(d, e, first, last, None if tol is None else float(tol))
    real = jnp.promote_types(d.dtype, jnp.real(e).dtype)
    d, e = d.astype(real), e.astype(jnp.promote_types(real, e.dtype))
    return _tridiagonal_vectors(d, e, first, last)


# --- Schur and Hessenberg forms ----------------------------------------------------------------------


@api
def schur(a, output: str = "real") -> tuple[Any, Any]:
    """The Schur form a = Z @ T @ Z^H, Z unitary. On the CPU alone.

    Args:
      a: (..., n, n).
      output: 'real': for real a, T is real, with 2x2 blocks on its diagonal for pairs of complex eigenvalues. 'complex': T
        is complex and upper triangular.
    Returns: (T, Z).
    """
    if output not in ("real", "complex"):
        raise ValueError(f"Expected 'output' to be either 'real' or 'complex', got {output=}.")
    a = matrices("schur", a)
    form, vectors = lax_linalg.schur(as_complex(a) if output == "complex" else a)
    return form, vectors


def _triangularize(form, vectors) -> tuple[Any, Any]:
    size = aval_of(form).shape[0]
    if size < 2:
        return form, vectors

    def turn(step, carry):
        form, vectors = carry
        row = size - 1 - step  # a rotation of rows row - 1 and row clears what stands left of the diagonal
        block = lax.dynamic_slice(form, (row - 1, row - 1), (2, 2))
        below = block[1, 0]
        # Of the block's eigenvalues minus its last element, the one with positive imaginary part.
        half = (block[0, 0] - block[1, 1]) / 2
        shift = half + jnp.sqrt(half * half + block[0, 1] * below)
        length = jnp.sqrt(jnp.abs(shift) ** 2 + jnp.abs(below) ** 2)
        is_clear = below == 0
        safe = jnp.where(is_clear, 1, length)
        c, s = jnp.where(is_clear, 1, shift / safe), jnp.where(is_clear, 0, below / safe)
        rotation = jnp.stack([jnp.stack([jnp.conj(c), s]), jnp.stack([-s, c])])
        inverse = adjoint(rotation)
        rows = lax.dynamic_slice(form, (row - 1, 0), (2, size))
        form = lax.dynamic_update_slice(form, _product(rotation, rows), (row - 1, 0))
        columns = lax.dynamic_slice(form, (0, row - 1), (size, 2))
        form = lax.dynamic_update_slice(form, _product(columns, inverse), (0, row - 1))
        columns = lax.dynamic_slice(vectors, (0, row - 1), (size, 2))
        vectors = lax.dynamic_update_slice(vectors, _product(columns, inverse), (0, row - 1))
        return form, vectors

    form, vectors = lax.fori_loop(0, size - 1, turn, (form, vectors))
    return jnp.triu(form), vectors


def _product(x, y):
    return jnp.matmul(x, y, precision=lax.Precision.HIGHEST)


@api
@promotes_inside
def rsf2csf(T, Z, check_finite: bool = True) -> tuple[Any, Any]:
    """A real Schur form made complex: T upper triangular, with Z @ T @ Z^H as before.

    Args:
      T: the form (..., n, n), as `schur` gives it. Z: its vectors (..., n, n).
    Returns: (T, Z), complex.
    """
    T, Z = matrices("rsf2csf", T, Z)
    weak = aval_of(T).weak_type and aval_of(Z).weak_type
    T, Z = as_complex(T), as_complex(Z)
    for name, x in (("T", T), ("Z", Z)):
        if aval_of(x).shape[-1] != aval_of(x).shape[-2]:
            raise ValueError(f"Input '{name}' must be square, got shape {aval_of(x).shape}.")
    if aval_of(T).shape[-1] != aval_of(Z).shape[-1]:
        raise ValueError(f"Input array shapes must match: Z: {aval_of(Z).shape} vs. T: {aval_of(T).shape}")
    form, vectors = jnp.vectorize(_triangularize, signature="(n,n),(n,n)->(n,n),(n,n)")(T, Z)
    return shaping.convert(form, None, weak), shaping.convert(vectors, None, weak)


@api
def hessenberg(a, *, calc_q: bool = False, overwrite_a: bool = False, check_finite: bool = True):
    """The Hessenberg form a = Q @ H @ Q^H: H has zeros below its first subdiagonal. On the CPU alone.

    Args:
      a: (..., n, n).
      calc_q: give the unitary Q too.
    Returns: H, or (H, Q).
    """
    a = matrices("hessenberg", a)
    reduced, taus = lax_linalg.hessenberg(a)
    form = jnp.triu(reduced, -1)
    if not calc_q:
        return form
    size, batch = aval_of(a).shape[-1], aval_of(a).shape[:-2]
    if size < 2:
        return form, jnp.broadcast_to(jnp.eye(size, dtype=aval_of(a).dtype), aval_of(a).shape)
    # The reflectors leave the first row and column alone.
    turned = lax_linalg.householder_product(reduced[..., 1:, :-1], taus)
    first = jnp.broadcast_to(jnp.eye(1, size, dtype=aval_of(a).dtype), (*batch, 1, size))
    return form, jnp.concatenate([first, jnp.pad(turned, [*[(0, 0)] * (len(batch) + 1), (1, 0)])], axis=-2)
