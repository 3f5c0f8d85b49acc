"""Matrices in the older formats: COO (rows, columns), CSR and CSC (one of them compressed), and BCSR, batches of CSR.

Each is a BCOO in other clothes: what computes goes there.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxlite import numpy as jnp
from jaxlite.core import dtypes
from jaxlite.core.tree_nodes import register_pytree_node_class
from jaxlite.experimental.sparse import bcoo
from jaxlite.experimental.sparse.base import JAXSparse, Shape, SparseInfo, is_dense
from jaxlite.experimental.sparse.batches import full_batch
from jaxlite.experimental.sparse.bcoo import BCOO
from jaxlite.experimental.sparse.bcoo_base import taken
from jaxlite.experimental.sparse.primitives import sparse_primitive
from jaxlite.experimental.sparse.products import product_params
from jaxlite.lax.shaping import convert
from jaxlite.numpy.index_plan import canonical_index
from jaxlite.transforms.vmap import vmap


class _Converted(JAXSparse):
    """The methods that follow from `to_bcoo`."""

    def to_bcoo(self) -> BCOO:
        """The same matrix as BCOO, with the same elements in the same order."""
        raise TypeError(f"{type(self).__name__} has no to_bcoo")

    def todense(self):
        """The dense array."""
        return self.to_bcoo().todense()

    def _times(self, other):
        """The product with a dense array."""
        return self.to_bcoo() @ other

    def __matmul__(self, other):
        if is_dense(other) and np.ndim(other) in (1, 2) and self.shape[-1] == np.shape(other)[0]:
            return self._times(jnp.asarray(other))
        other = other.to_bcoo() if isinstance(other, _Converted) else other
        result = self.to_bcoo() @ other
        return type(self).fromdense(result.todense()) if isinstance(result, BCOO) else result  # type: ignore[attr-defined]

    def __rmatmul__(self, other):
        return other @ self.to_bcoo() if is_dense(other) else NotImplemented

    def __mul__(self, other):
        if is_dense(other) and np.ndim(other) == 0:
            return self._with_data(self.data * other)
        if is_dense(other):
            return self._with_data(bcoo.bcoo_multiply_dense(self.to_bcoo(), other))
        return NotImplemented

    __rmul__ = __mul__


class COOInfo(NamedTuple):
    """What is known of a COO matrix beside its elements and places."""

    shape: Shape
    rows_sorted: bool = False
    cols_sorted: bool = False


@register_pytree_node_class
class COO(_Converted):
    """A matrix as elements with their rows and columns: `COO((data, row, col), shape=)`.

    >>> import jaxlite.numpy as jnp
    >>> from jaxlite.experimental.sparse import COO
    >>> print(COO.fromdense(jnp.array([[0.0, 2.0], [3.0, 0.0]])) @ jnp.ones(2))
    [2. 3.]
    """

    def __init__(self, args: tuple[Any, Any, Any], *, shape: Sequence[int], rows_sorted: bool = False,
                 cols_sorted: bool = False):
        self.data, self.row, self.col = map(jnp.asarray, args)
        self._rows_sorted, self._cols_sorted = rows_sorted, cols_sorted
        super().__init__(args, shape=shape)

    _info = property(lambda self: COOInfo(self.shape, self._rows_sorted, self._cols_sorted))

    @classmethod
    def fromdense(cls, mat, *, nse: int | None = None, index_dtype=np.int32) -> COO:
        """The elements of a dense matrix that are not zero."""
        return coo_fromdense(mat, nse=nse, index_dtype=index_dtype)

    @classmethod
    def _empty(cls, shape: Sequence[int], *, dtype=None, index_dtype=np.int32) -> COO:
        _check_matrix(cls, shape)
        none = jnp.zeros(0, index_dtype)
        return cls((jnp.zeros(0, dtype), none, none), shape=shape, rows_sorted=True, cols_sorted=True)

    @classmethod
    def _eye(cls, N: int, M: int, k: int, *, dtype=None, index_dtype=np.int32) -> COO:
        entries = BCOO._eye(N, M, k, dtype=dtype, index_dtype=index_dtype)
        row, col = entries.indices[:, 0], entries.indices[:, 1]
        return cls((entries.data, row, col), shape=(N, M), rows_sorted=True, cols_sorted=True)

    def to_bcoo(self) -> BCOO:
        return _coo(self.data, self.row, self.col, self._info)

    def todense(self):
        return coo_todense(self)

    def _times(self, other):
        return (coo_matvec if other.ndim == 1 else coo_matmat)(self, other)

    def transpose(self, axes=None) -> COO:
        """The transposed matrix."""
        if axes is not None:
            raise NotImplementedError("axes argument to transpose()")
        return COO((self.data, self.col, self.row), shape=self.shape[::-1], rows_sorted=self._cols_sorted,
                   cols_sorted=self._rows_sorted)

    def _with_data(self, data) -> COO:
        return COO((data, self.row, self.col), shape=self.shape, rows_sorted=self._rows_sorted, cols_sorted=self._cols_sorted)

    def tree_flatten(self):
        return (self.data, self.row, self.col), (self.shape, self._rows_sorted, self._cols_sorted)

    @classmethod
    def tree_unflatten(cls, aux_data, children) -> COO:
        new = object.__new__(cls)
        new.data, new.row, new.col = children
        new.shape, new._rows_sorted, new._cols_sorted = aux_data
        return new


def _check_matrix(kind: type, shape: Sequence[int]) -> None:
    if len(shape) != 2:
        raise ValueError(f"{kind.__name__} must have ndim=2; got {shape=}")


def _starts(rows, count: int):
    """Where each row begins among sorted rows, and where the last one ends."""
    return jnp.searchsorted(rows, jnp.arange(count + 1, dtype=rows.dtype)).astype(rows.dtype)


def _rows(starts, nse: int):
    """The row of each element; the number of rows for those past the end."""
    ends = jnp.zeros(nse, starts.dtype).at[starts[1:]].add(1, mode="drop", indices_are_sorted=True)
    return jnp.cumsum(ends)  # how many rows end there or before


@register_pytree_node_class
class CSR(_Converted):
    """A matrix in compressed rows: `CSR((data, indices, indptr), shape=)`, columns and the start of each row."""

    _compressed = 0  # the axis that has starts in place of indices

    def __init__(self, args: tuple[Any, Any, Any], *, shape: Sequence[int]):
        self.data, self.indices, self.indptr = map(jnp.asarray, args)
        super().__init__(args, shape=shape)

    @classmethod
    def fromdense(cls, mat, *, nse: int | None = None, index_dtype=np.int32) -> CSR:
        """The elements of a dense matrix that are not zero."""
        return csr_fromdense(mat, nse=nse, index_dtype=index_dtype)

    @classmethod
    def _empty(cls, shape: Sequence[int], *, dtype=None, index_dtype=np.int32):
        _check_matrix(cls, shape)
        starts = jnp.zeros(shape[cls._compressed] + 1, index_dtype)
        return cls((jnp.zeros(0, dtype), jnp.zeros(0, index_dtype), starts), shape=shape)

    @classmethod
    def _eye(cls, N: int, M: int, k: int, *, dtype=None, index_dtype=np.int32):
        entries = BCOO._eye(N, M, k, dtype=dtype, index_dtype=index_dtype)
        axis = cls._compressed
        before = max(k if axis else -k, 0)  # so many rows, or columns, are empty before the first element
        starts = jnp.clip(jnp.arange((N, M)[axis] + 1, dtype=index_dtype) - before, 0, entries.nse)
        return cls((entries.data, entries.indices[:, 1 - axis], starts), shape=(N, M))

    def to_bcoo(self) -> BCOO:
        return _csr(self.data, self.indices, self.indptr, self.shape)

    def todense(self):
        return csr_todense(self)

    def _times(self, other):
        return (csr_matvec if other.ndim == 1 else csr_matmat)(self, other)

    def transpose(self, axes=None) -> CSC:
        """The transposed matrix, in compressed columns."""
        if axes is not None:
            raise NotImplementedError("axes argument to transpose()")
        return CSC((self.data, self.indices, self.indptr), shape=self.shape[::-1])

    def _with_data(self, data):
        return type(self)((data, self.indices, self.indptr), shape=self.shape)

    def tree_flatten(self):
        return (self.data, self.indices, self.indptr), (self.shape,)

    @classmethod
    def tree_unflatten(cls, aux_data, children):
        new = object.__new__(cls)
        new.data, new.indices, new.indptr = children
        (new.shape,) = aux_data
        return new


@register_pytree_node_class
class CSC(CSR):
    """A matrix in compressed columns: `CSC((data, indices, indptr), shape=)`, rows and the start of each column."""

    _compressed = 1

    @classmethod
    def fromdense(cls, mat, *, nse: int | None = None, index_dtype=np.int32) -> CSC:
        """The elements of a dense matrix that are not zero."""
        turned = CSR.fromdense(jnp.asarray(mat).T, nse=nse, index_dtype=index_dtype)
        return cls((turned.data, turned.indices, turned.indptr), shape=turned.shape[::-1])

    def to_bcoo(self) -> BCOO:
        return BCOO((self.data, jnp.stack([self.indices, _rows(self.indptr, self.nse)], -1)), shape=self.shape)

    def todense(self):
        return csr_todense(self.transpose()).T

    def _times(self, other):
        return (csr_matvec if other.ndim == 1 else csr_matmat)(self.transpose(), other, transpose=True)

    def transpose(self, axes=None) -> CSR:  # type: ignore[override]
        """The transposed matrix, in compressed rows."""
        if axes is not None:
            raise NotImplementedError("axes argument to transpose()")
        return CSR((self.data, self.indices, self.indptr), shape=self.shape[::-1])


@register_pytree_node_class
class BCSR(_Converted):
    """A batch of arrays in compressed rows.

    Args:
      args: data (*batch, nse, *dense), indices (*batch, nse), indptr (*batch, rows + 1).
      shape: of the whole: batch axes, rows and columns, dense axes.

    >>> import jaxlite.numpy as jnp
    >>> from jaxlite.experimental.sparse import BCSR
    >>> print(BCSR.fromdense(jnp.array([[0.0, 2.0], [3.0, 0.0]])).indptr)
    [0 1 2]
    """

    def __init__(self, args: tuple[Any, Any, Any], *, shape: Sequence[int], indices_sorted: bool = False,
                 unique_indices: bool = False):
        self.data, self.indices, self.indptr = map(jnp.asarray, args)
        self.indices_sorted, self.unique_indices = indices_sorted, unique_indices
        super().__init__(args, shape=shape)
        dense = self.data.shape[self.indices.ndim:]
        if (self.indptr.shape[-1] != self.shape[self.n_batch] + 1 or self.indices.ndim != self.indptr.ndim
                or self.shape[self.n_batch + 2:] != dense):
            raise ValueError(f"BCSR: data of shape {self.data.shape}, indices of shape {self.indices.shape} and indptr of "
                             f"shape {self.indptr.shape} do not make an array of shape {self.shape}")

    n_batch = property(lambda self: self.indices.ndim - 1)
    n_sparse = 2
    n_dense = property(lambda self: self.data.ndim - self.indices.ndim)
    _info = property(lambda self: SparseInfo(self.shape, self.indices_sorted, self.unique_indices))
    nse = property(lambda self: self.indices.shape[-1])

    @classmethod
    def fromdense(cls, mat, *, nse: int | None = None, index_dtype=np.int32, n_dense: int = 0,
                  n_batch: int = 0) -> BCSR:
        """The elements of a dense array that are not zero."""
        return bcsr_fromdense(mat, nse=nse, index_dtype=index_dtype, n_dense=n_dense, n_batch=n_batch)

    @classmethod
    def _empty(cls, shape: Sequence[int], *, dtype=None, index_dtype=np.int32, n_dense: int = 0, n_batch: int = 0,
               nse: int = 0) -> BCSR:
        if len(shape) - n_batch - n_dense != 2:
            raise ValueError(f"BCSR: must have 2 sparse dimensions, got shape {tuple(shape)} with {n_batch=} and {n_dense=}")
        entries = BCOO._empty(shape, dtype=dtype, index_dtype=index_dtype, n_dense=n_dense, n_batch=n_batch, nse=nse)
        starts = jnp.zeros((*shape[:n_batch], shape[n_batch] + 1), index_dtype)
        return cls((entries.data, entries.indices[..., 1], starts), shape=shape)

    @classmethod
    def _eye(cls, N: int, M: int, k: int, *, dtype=None, index_dtype=np.int32) -> BCSR:
        return cls.from_bcoo(BCOO._eye(N, M, k, dtype=dtype, index_dtype=index_dtype))

    @classmethod
    def from_scipy_sparse(cls, mat, *, index_dtype=None, n_dense: int = 0, n_batch: int = 0) -> BCSR:
        """From a matrix of scipy.sparse."""
        if n_dense or n_batch:
            raise ValueError("BCSR from_scipy_sparse with nonzero n_dense/n_batch is not supported.")
        mat = mat.tocsr()
        kind = index_dtype or np.int32
        return cls((jnp.asarray(mat.data), jnp.asarray(mat.indices, kind), jnp.asarray(mat.indptr, kind)), shape=mat.shape)

    @classmethod
    def from_bcoo(cls, arr: BCOO) -> BCSR:
        """From a BCOO with two sparse axes."""
        if arr.n_sparse != 2:
            raise NotImplementedError(f"BCSR.from_bcoo requires n_sparse=2; got {arr.n_sparse}")
        if not arr.indices_sorted:
            arr = arr.sort_indices()
        data, indices = full_batch(arr)
        starts = lambda rows: _starts(rows, arr.shape[arr.n_batch])
        for _ in range(arr.n_batch):
            starts = vmap(starts)
        return cls((data, indices[..., 1], starts(indices[..., 0])), shape=arr.shape, indices_sorted=True,
                   unique_indices=arr.unique_indices)

    def to_bcoo(self) -> BCOO:
        rows = lambda starts: _rows(starts, self.nse)
        for _ in range(self.n_batch):
            rows = vmap(rows)
        return BCOO((self.data, jnp.stack([rows(self.indptr), self.indices], -1)), shape=self.shape,
                    unique_indices=self.unique_indices)

    def todense(self):
        return bcsr_todense(self)

    def _times(self, other):
        if self.ndim == 2 and other.ndim <= 2:
            return bcsr_dot_general(self, other, dimension_numbers=(((1,), (0,)), ((), ())))
        return self.to_bcoo() @ other

    def sum_duplicates(self, nse: int | None = None, remove_zeros: bool = True) -> BCSR:
        """Each place once, in order."""
        return BCSR.from_bcoo(self.to_bcoo().sum_duplicates(nse, remove_zeros))

    def __getitem__(self, index):
        keys = canonical_index(index, self.shape)
        mat = self.to_bcoo()[index]
        stays = all(key in (None, Ellipsis, slice(None)) for key in keys if np.ndim(key) == 0)
        return BCSR.from_bcoo(mat) if stays and mat.n_sparse == 2 else mat

    def _with_data(self, data) -> BCSR:
        return BCSR((data, self.indices, self.indptr), shape=self.shape, indices_sorted=self.indices_sorted,
                    unique_indices=self.unique_indices)

    def tree_flatten(self):
        return (self.data, self.indices, self.indptr), (self.shape, self.indices_sorted, self.unique_indices)

    @classmethod
    def tree_unflatten(cls, aux_data, children) -> BCSR:
        new = object.__new__(cls)
        new.data, new.indices, new.indptr = children
        shape, new.indices_sorted, new.unique_indices = aux_data
        if all(hasattr(child, "shape") for child in children):  # vmap and scan take the first axis of a batch, or add one
            extra = len(new.data.shape) + 1 - len(shape)
            shape = shape[-extra:] if extra < 0 else (*new.data.shape[:extra], *shape)
        new.shape = shape
        return new


# --- as functions ------------------------------------------------------------------------------------


def _count(mat) -> int:
    return int((mat != 0).sum())


def coo_fromdense(mat, *, nse: int | None = None, index_dtype=np.int32) -> COO:
    """A COO matrix of the elements that are not zero."""
    mat = jnp.asarray(mat)
    index_dtype = dtypes.check_user_dtype_supported(index_dtype, "coo_fromdense")
    parts = coo_fromdense_p.bind(mat, nse=_count(mat) if nse is None else nse, index_dtype=index_dtype)
    return COO(parts, shape=mat.shape, rows_sorted=True)


@sparse_primitive("coo_fromdense", multiple_results=True)
def coo_fromdense_p(mat, *, nse: int, index_dtype) -> list[Any]:
    found = bcoo.bcoo_fromdense(mat, nse=nse, index_dtype=index_dtype)
    return [found.data.astype(mat.dtype), found.indices[:, 0], found.indices[:, 1]]


def _coo(data, row, col, info: COOInfo) -> BCOO:
    return BCOO((data, jnp.stack([row, col], -1)), shape=info.shape, indices_sorted=info.rows_sorted)


def coo_todense(mat: COO):
    """The dense matrix."""
    return coo_todense_p.bind(mat.data, mat.row, mat.col, spinfo=mat._info)


@sparse_primitive("coo_todense")
def coo_todense_p(data, row, col, *, spinfo: COOInfo):
    return _coo(data, row, col, spinfo).todense()


def _product(mat: BCOO, other, transpose: bool):
    return (mat.T if transpose else mat) @ other


def coo_matvec(mat: COO, v, transpose: bool = False):
    """mat @ v, or mat.T @ v."""
    return coo_matvec_p.bind(mat.data, mat.row, mat.col, jnp.asarray(v), spinfo=mat._info, transpose=transpose)


@sparse_primitive("coo_matvec")
def coo_matvec_p(data, row, col, v, *, spinfo: COOInfo, transpose: bool):
    return _product(_coo(data, row, col, spinfo), v, transpose)


def coo_matmat(mat: COO, B, *, transpose: bool = False):
    """mat @ B, or mat.T @ B."""
    return coo_matmat_p.bind(mat.data, mat.row, mat.col, jnp.asarray(B), spinfo=mat._info, transpose=transpose)


@sparse_primitive("coo_matmat")
def coo_matmat_p(data, row, col, B, *, spinfo: COOInfo, transpose: bool):
    return _product(_coo(data, row, col, spinfo), B, transpose)


def csr_fromdense(mat, *, nse: int | None = None, index_dtype=np.int32) -> CSR:
    """A CSR matrix of the elements that are not zero."""
    mat = jnp.asarray(mat)
    index_dtype = dtypes.check_user_dtype_supported(index_dtype, "csr_fromdense")
    parts = csr_fromdense_p.bind(mat, nse=_count(mat) if nse is None else nse, index_dtype=index_dtype)
    return CSR(parts, shape=mat.shape)


@sparse_primitive("csr_fromdense", multiple_results=True)
def csr_fromdense_p(mat, *, nse: int, index_dtype) -> list[Any]:
    found = bcoo.bcoo_fromdense(mat, nse=nse, index_dtype=index_dtype)
    return [found.data.astype(mat.dtype), found.indices[:, 1], _starts(found.indices[:, 0], found.shape[0])]


def _csr(data, indices, indptr, shape: Shape) -> BCOO:
    return BCOO((data, jnp.stack([_rows(indptr, len(indices)), indices], -1)), shape=shape)


def csr_todense(mat: CSR):
    """The dense matrix."""
    return csr_todense_p.bind(mat.data, mat.indices, mat.indptr, shape=mat.shape)


@sparse_primitive("csr_todense")
def csr_todense_p(data, indices, indptr, *, shape: Shape):
    return _csr(data, indices, indptr, shape).todense()


def csr_matvec(mat: CSR, v, transpose: bool = False):
    """mat @ v, or mat.T @ v."""
    return csr_matvec_p.bind(mat.data, mat.indices, mat.indptr, jnp.asarray(v), shape=mat.shape, transpose=transpose)


@sparse_primitive("csr_matvec")
def csr_matvec_p(data, indices, indptr, v, *, shape: Shape, transpose: bool):
    return _product(_csr(data, indices, indptr, shape), v, transpose)


def csr_matmat(mat: CSR, B, *, transpose: bool = False):
    """mat @ B, or mat.T @ B."""
    return csr_matmat_p.bind(mat.data, mat.indices, mat.indptr, jnp.asarray(B), shape=mat.shape, transpose=transpose)


@sparse_primitive("csr_matmat")
def csr_matmat_p(data, indices, indptr, B, *, shape: Shape, transpose: bool):
    return _product(_csr(data, indices, indptr, shape), B, transpose)


def bcsr_fromdense(mat, *, nse: int | None = None, n_batch: int = 0, n_dense: int = 0, index_dtype=np.int32) -> BCSR:
    """A BCSR array of the elements that are not zero; booleans become integers.

    Raises: ValueError unless two axes are sparse.
    """
    mat = jnp.asarray(mat)
    if mat.ndim - n_batch - n_dense != 2:
        raise ValueError(f"bcsr_fromdense: must have 2 sparse dimensions, got shape {mat.shape} with {n_batch=} and {n_dense=}")
    if mat.dtype == bool:  # elements are summed
        mat = convert(mat, int, True)
    if nse is None:  # as many as there are, which the other format counts
        return BCSR.from_bcoo(bcoo.bcoo_fromdense(mat, n_batch=n_batch, n_dense=n_dense, index_dtype=index_dtype))
    index_dtype = dtypes.check_user_dtype_supported(index_dtype, "bcsr_fromdense")
    parts = bcsr_fromdense_p.bind(mat, nse=nse, n_batch=n_batch, n_dense=n_dense, index_dtype=index_dtype)
    return BCSR(parts, shape=mat.shape, indices_sorted=True, unique_indices=True)


@sparse_primitive("bcsr_fromdense", multiple_results=True)
def bcsr_fromdense_p(mat, *, nse: int, n_batch: int, n_dense: int, index_dtype) -> list[Any]:
    found = BCSR.from_bcoo(bcoo.bcoo_fromdense(mat, nse=nse, n_batch=n_batch, n_dense=n_dense, index_dtype=index_dtype))
    return [found.data, found.indices, found.indptr]


def _bcsr(data, indices, indptr, info: SparseInfo) -> BCOO:
    return BCSR((data, indices, indptr), shape=info.shape, indices_sorted=info.indices_sorted,
                unique_indices=info.unique_indices).to_bcoo()


def bcsr_todense(mat: BCSR):
    """The dense array."""
    return bcsr_todense_p.bind(mat.data, mat.indices, mat.indptr, spinfo=mat._info)


@sparse_primitive("bcsr_todense")
def bcsr_todense_p(data, indices, indptr, *, spinfo: SparseInfo):
    return _bcsr(data, indices, indptr, spinfo).todense()


def bcsr_extract(indices, indptr, mat):
    """The elements of a dense array at the places that a BCSR array's `indices` and `indptr` give: its `data`."""
    return bcsr_extract_p.bind(*map(jnp.asarray, (indices, indptr, mat)))


@sparse_primitive("bcsr_extract")
def bcsr_extract_p(indices, indptr, mat):
    zeros = jnp.zeros((*indices.shape, *mat.shape[indices.ndim + 1:]), mat.dtype)
    return taken(BCSR((zeros, indices, indptr), shape=mat.shape).to_bcoo(), mat)


def bcsr_sum_duplicates(mat: BCSR, nse: int | None = None) -> BCSR:
    """Each place once, in order."""
    return mat.sum_duplicates(nse, remove_zeros=False)


def bcsr_eliminate_zeros(mat: BCSR, nse: int | None = None) -> BCSR:
    """Without the places whose elements are zero, each of the others once, in order; `nse` as for `bcsr_sum_duplicates`."""
    return BCSR.from_bcoo(bcoo.bcoo_eliminate_zeros(mat.to_bcoo(), nse))


def bcsr_dot_general(lhs, rhs, *, dimension_numbers, precision=None, preferred_element_type=None, out_sharding=None):
    """The products of `lax.dot_general` with a BCSR operand."""
    if isinstance(lhs, BCSR) and is_dense(rhs):
        rhs = jnp.asarray(rhs)
        numbers, dtype = product_params(lhs, rhs, dimension_numbers, preferred_element_type)
        return bcsr_dot_general_p.bind(lhs.data, lhs.indices, lhs.indptr, rhs, dimension_numbers=numbers,
                                       preferred_element_type=dtype, lhs_spinfo=lhs._info)
    plain = (each.to_bcoo() if isinstance(each, BCSR) else each for each in (lhs, rhs))
    return bcoo.bcoo_dot_general(*plain, dimension_numbers=dimension_numbers, precision=precision,
                                 preferred_element_type=preferred_element_type)


@sparse_primitive("bcsr_dot_general")
def bcsr_dot_general_p(data, indices, indptr, dense, *, dimension_numbers, preferred_element_type,
                       lhs_spinfo: SparseInfo):
    return bcoo.bcoo_dot_general(_bcsr(data, indices, indptr, lhs_spinfo), dense, dimension_numbers=dimension_numbers,
                                 preferred_element_type=preferred_element_type)


def bcsr_concatenate(operands: Sequence[BCSR], *, dimension: int) -> BCSR:
    """One after the other along an axis."""
    return BCSR.from_bcoo(bcoo.bcoo_concatenate([each.to_bcoo() for each in operands], dimension=operator.index(dimension)))


def bcsr_broadcast_in_dim(mat: BCSR, *, shape: Sequence[int], broadcast_dimensions: Sequence[int],
                          sharding=None) -> BCSR:
    """In a larger shape; the result must have two sparse axes."""
    wide = bcoo.bcoo_broadcast_in_dim(mat.to_bcoo(), shape=shape, broadcast_dimensions=broadcast_dimensions)
    extra = wide.n_sparse - 2
    return BCSR.from_bcoo(wide.update_layout(n_batch=extra, on_inefficient=None) if extra else wide)
