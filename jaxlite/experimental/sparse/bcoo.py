"""BCOO: a batch of arrays, each as a list of elements with their coordinates.

`data` has the shape (*batch, nse, *dense), `indices` (*batch, nse, n_sparse): the axes of the array are batch axes, then sparse
ones, then dense ones. An element whose coordinates are out of bounds does not count: so arrays of a batch, and of a compiled
program, have one `nse`. Places may occur several times; their elements are summed.

The functions are written with ordinary indexing, so derivatives and batching follow from its rules. A long
file: the class and the functions need each other.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxlite import lax
from jaxlite import numpy as jnp
from jaxlite.core import dtypes, source
from jaxlite.core.errors import ConcretizationTypeError
from jaxlite.core.tracing import Tracer
from jaxlite.core.tree import register_pytree_node_class
from jaxlite.experimental.sparse.base import JAXSparse, SparseEfficiencyError, SparseEfficiencyWarning, SparseInfo, is_dense
from jaxlite.experimental.sparse.batches import _columns, _common, _ends, _full, _is_set, _over_batch, _parts, _shared_as
from jaxlite.experimental.sparse.convolutions import bcoo_conv_general_dilated
from jaxlite.experimental.sparse.primitives import shape_of, sparse_primitive
from jaxlite.experimental.sparse.products import (
    bcoo_dot_general_sampled,
    bcoo_dot_general_sampled_p,
    meeting_pairs,
    product_params,
    product_shape,
)
from jaxlite.lax.shaping import convert
from jaxlite.numpy.api import canonical_axes
from jaxlite.numpy.index_plan import canonical_index
from jaxlite.transforms.vmap import vmap

__all__ = [
    "BCOO", "bcoo_broadcast_in_dim", "bcoo_concatenate", "bcoo_conv_general_dilated", "bcoo_dot_general",
    "bcoo_dot_general_p", "bcoo_dot_general_sampled", "bcoo_dot_general_sampled_p", "bcoo_dynamic_slice",
    "bcoo_eliminate_zeros", "bcoo_extract", "bcoo_extract_p", "bcoo_fromdense", "bcoo_fromdense_p", "bcoo_gather",
    "bcoo_multiply_dense", "bcoo_multiply_sparse", "bcoo_reduce_sum", "bcoo_reshape", "bcoo_rev", "bcoo_slice",
    "bcoo_sort_indices", "bcoo_sort_indices_p", "bcoo_spdot_general_p", "bcoo_squeeze", "bcoo_sum_duplicates",
    "bcoo_sum_duplicates_p", "bcoo_todense", "bcoo_todense_p", "bcoo_transpose", "bcoo_transpose_p", "bcoo_update_layout",
]
__dir__ = lambda: __all__


@register_pytree_node_class
class BCOO(JAXSparse):
    """A sparse array in batched coordinate format.

    Args:
      args: (data, indices).
      shape: of the whole array.
      indices_sorted, unique_indices: promises about each list of coordinates.

    >>> import jaxlite.numpy as jnp
    >>> from jaxlite.experimental.sparse import BCOO
    >>> m = BCOO.fromdense(jnp.array([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0]]))
    >>> m
    BCOO(float32[2, 3], nse=3)
    >>> print(m @ jnp.ones(3))
    [3. 3.]
    """

    def __init__(self, args: tuple[Any, Any], *, shape: Sequence[int], indices_sorted: bool = False,
                 unique_indices: bool = False):
        self.data, self.indices = map(jnp.asarray, args)
        self.indices_sorted, self.unique_indices = indices_sorted, unique_indices
        super().__init__(args, shape=shape)
        _check(self)

    n_batch = property(lambda self: self.indices.ndim - 2)
    n_sparse = property(lambda self: self.indices.shape[-1])
    n_dense = property(lambda self: self.data.ndim - 1 - self.n_batch)
    _info = property(lambda self: SparseInfo(self.shape, self.indices_sorted, self.unique_indices))
    nse = property(lambda self: self.indices.shape[-2])

    @classmethod
    def fromdense(cls, mat, *, nse: int | None = None, index_dtype=np.int32, n_dense: int = 0, n_batch: int = 0) -> BCOO:
        """The elements of a dense array that are not zero; see `bcoo_fromdense`."""
        return bcoo_fromdense(mat, nse=nse, index_dtype=index_dtype, n_dense=n_dense, n_batch=n_batch)

    @classmethod
    def from_scipy_sparse(cls, mat, *, index_dtype=None, n_dense: int = 0, n_batch: int = 0) -> BCOO:
        """From a matrix of scipy.sparse."""
        if n_dense or n_batch:
            raise ValueError("BCOO.from_scipy_sparse with nonzero n_dense/n_batch is not supported")
        mat = mat.tocoo()
        indices = jnp.column_stack((mat.row, mat.col)).astype(index_dtype or np.int32)
        return cls((jnp.asarray(mat.data), indices), shape=mat.shape)

    @classmethod
    def _empty(cls, shape: Sequence[int], *, dtype=None, index_dtype=np.int32, n_dense: int = 0, n_batch: int = 0,
               nse: int = 0) -> BCOO:
        shape = tuple(shape)
        n_sparse = len(shape) - n_dense - n_batch
        if n_sparse < 0 or n_dense < 0 or n_batch < 0 or nse < 0:
            raise ValueError(f"Invalid inputs: shape={shape}, n_dense={n_dense}, n_batch={n_batch}, nse={nse}")
        batch, sparse, dense = shape[:n_batch], shape[n_batch:n_batch + n_sparse], shape[n_batch + n_sparse:]
        indices = jnp.broadcast_to(jnp.array(sparse, index_dtype), (*batch, nse, n_sparse))
        return cls((jnp.zeros((*batch, nse, *dense), dtype), indices), shape=shape, indices_sorted=True, unique_indices=True)

    @classmethod
    def _eye(cls, N: int, M: int, k: int, *, dtype=None, index_dtype=np.int32, n_batch: int = 0, n_dense: int = 0) -> BCOO:
        size = max(0, min(N, N + k, M, M - k))  # of the diagonal
        if n_batch or n_dense:  # room for one in each row, or for one block; the array is dense along an axis anyway
            nse = size if (n_batch, n_dense) == (0, 1) else min(size, 1)
            return cls.fromdense(jnp.eye(N, M, k, dtype=dtype), nse=nse, n_batch=n_batch, n_dense=n_dense,
                                 index_dtype=index_dtype)
        place = jnp.arange(size, dtype=index_dtype)
        indices = jnp.stack([place + max(-k, 0), place + max(k, 0)], -1)
        return cls((jnp.ones(size, dtype), indices), shape=(N, M), indices_sorted=True, unique_indices=True)

    # --- as a pytree: transformations that add or take a leading axis of the leaves do so with the shape

    def tree_flatten(self) -> tuple[tuple[Any, Any], Any]:
        return (self.data, self.indices), (self.shape, self.indices_sorted, self.unique_indices)

    @classmethod
    def tree_unflatten(cls, aux_data, children) -> BCOO:
        new = object.__new__(cls)
        new.data, new.indices = children
        shape, new.indices_sorted, new.unique_indices = aux_data
        if all(hasattr(child, "shape") for child in children) and len(new.indices.shape) >= 2:
            extra = len(new.data.shape) - 1 + new.indices.shape[-1] - len(shape)
            shape = shape[-extra:] if extra < 0 else (*new.data.shape[:extra], *shape)
        new.shape = shape
        return new

    # --- methods

    def _with_data(self, data) -> BCOO:
        return BCOO((data, self.indices), shape=self.shape, indices_sorted=self.indices_sorted,
                    unique_indices=self.unique_indices)

    def todense(self):
        """The dense array."""
        return bcoo_todense(self)

    def transpose(self, axes: Sequence[int] | None = None) -> BCOO:
        """Axes in another order; see `bcoo_transpose`."""
        if axes is None:
            axes = [*reversed(range(self.ndim))]
        return bcoo_transpose(self, permutation=[operator.index(axis) for axis in axes])

    def sum_duplicates(self, nse: int | None = None, remove_zeros: bool = True) -> BCOO:
        """Each place once, in order; see `bcoo_sum_duplicates`."""
        return bcoo_eliminate_zeros(self, nse) if remove_zeros else bcoo_sum_duplicates(self, nse)

    def sort_indices(self) -> BCOO:
        """The elements in the order of their places."""
        return bcoo_sort_indices(self)

    def update_layout(self, *, n_batch: int | None = None, n_dense: int | None = None, on_inefficient: str | None = "error",
                      ) -> BCOO:
        """The same array with other numbers of batch and dense axes; see `bcoo_update_layout`."""
        return bcoo_update_layout(self, n_batch=n_batch, n_dense=n_dense, on_inefficient=on_inefficient)

    def sum(self, axis=None, dtype=None, out: None = None, keepdims: bool = False):
        """Sums along axes, all of them by default: then it is an array that is not sparse."""
        axes = canonical_axes(axis, self.ndim)
        result: Any = bcoo_reduce_sum(self, axes=axes)
        if not result.ndim:
            result = jnp.reshape(result.todense(), (1,) * self.ndim if keepdims else ())
        elif keepdims:
            kept = [index for index in range(self.ndim) if index not in axes]
            result = bcoo_broadcast_in_dim(result, shape=[self.shape[index] if index in kept else 1
                                                          for index in range(self.ndim)], broadcast_dimensions=kept)
        return result if dtype is None else result.astype(dtype)

    def reshape(self, *shape) -> BCOO:
        """Another shape for the same elements."""
        new = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        missing = [index for index, size in enumerate(new) if size == -1]
        if missing:
            known = math.prod(size for size in new if size != -1)
            new = [self.size // known if size == -1 else size for size in new]
        return bcoo_reshape(self, new_sizes=tuple(new))

    def __getitem__(self, index):
        return _indexed(self, index)

    def __iter__(self):
        return (self[row] for row in range(self.shape[0]))

    def __matmul__(self, other):
        return _matmul(self, other)

    def __rmatmul__(self, other):
        return _matmul(other, self)

    def __mul__(self, other):
        if isinstance(other, BCOO):
            shape = np.broadcast_shapes(self.shape, other.shape)
            return bcoo_multiply_sparse(_broadcast(self, shape), _broadcast(other, shape))
        if is_dense(other):
            other = jnp.asarray(other)
            return self._with_data(self.data * other) if other.ndim == 0 else self._with_data(bcoo_multiply_dense(self, other))
        return NotImplemented

    __rmul__ = __mul__

    def __add__(self, other):
        if isinstance(other, BCOO):
            return _add(self, other)
        if not is_dense(other):
            return NotImplemented
        return self.todense() + other if np.ndim(other) else self._refuse("addition")

    __radd__ = __add__

    def __sub__(self, other):
        return self + (-other)

    def __rsub__(self, other):
        return (-self) + other

    def __pow__(self, exponent):
        if not isinstance(exponent, (int, np.integer)) or exponent <= 0:
            raise NotImplementedError("the exponent of a sparse array is a positive integer: for others use todense()")
        distinct = self.distinct()
        return distinct._with_data(distinct.data**exponent)

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = JAXSparse._compare  # type: ignore[assignment]


def _check(mat: BCOO) -> None:
    data, indices, shape = mat.data, mat.indices, mat.shape
    if indices.ndim < 2 or data.ndim < indices.ndim - 1:
        raise ValueError(f"BCOO: indices need the axes (*batch, nse, n_sparse), got shape {indices.shape} for data of shape "
                         f"{data.shape}")
    n_batch = indices.ndim - 2
    if not dtypes.issubdtype(indices.dtype, np.integer):
        raise ValueError(f"BCOO: indices must be integers, got {indices.dtype}")
    if data.shape[n_batch] not in (1, indices.shape[-2]):
        raise ValueError(f"BCOO: data of shape {data.shape} and indices of shape {indices.shape} differ in nse")
    if len(shape) != n_batch + indices.shape[-1] + data.ndim - n_batch - 1:
        raise ValueError(f"BCOO: shape {shape} has {len(shape)} axes; data of shape {data.shape} and indices of shape "
                         f"{indices.shape} make {indices.shape[-1] + data.ndim - 1}")
    dense = data.shape[n_batch + 1:]
    if dense and shape[len(shape) - len(dense):] != dense:
        raise ValueError(f"BCOO: the dense axes of data of shape {data.shape} do not fit the shape {shape}")
    for have in (data.shape[:n_batch], indices.shape[:n_batch]):
        if any(size not in (1, want) for size, want in zip(have, shape, strict=False)):
            raise ValueError(f"BCOO: batch axes {have} do not fit the shape {shape}")


def _bcoo(data, indices, info: SparseInfo) -> BCOO:
    return BCOO((data, indices), shape=info.shape, indices_sorted=info.indices_sorted, unique_indices=info.unique_indices)


# --- to and from dense arrays ------------------------------------------------------------------------


def bcoo_todense(mat: BCOO):
    """The dense array of a sparse one; elements at one place are summed."""
    return bcoo_todense_p.bind(mat.data, mat.indices, spinfo=mat._info)


@sparse_primitive("bcoo_todense")
def bcoo_todense_p(data, indices, *, spinfo: SparseInfo):
    mat = _bcoo(data, indices, spinfo)
    batch, sparse, dense = _parts(mat)
    data, indices = _full(mat)

    def one(data, indices):
        if not sparse:
            return data.sum(0, dtype=data.dtype)
        if 0 in sparse:
            return jnp.zeros((*sparse, *dense), data.dtype)
        return jnp.zeros((*sparse, *dense), data.dtype).at[_columns(indices)].add(
            data, mode="drop", indices_are_sorted=mat.indices_sorted, unique_indices=mat.unique_indices)

    return _over_batch(one, len(batch))(data, indices)


def bcoo_fromdense(mat, *, nse: int | None = None, n_batch: int = 0, n_dense: int = 0, index_dtype=np.int32) -> BCOO:
    """A sparse array of the elements of a dense one that are not zero.

    Args:
      mat: the array; booleans become integers.
      nse: how many elements each array of the batch has room for; needed under jit. Too few: the last ones are left out.
      n_batch, n_dense, index_dtype: how many of the first axes are batch axes, of the last ones dense; of the coordinates.
    Raises: ValueError if the axes are more than there are, ConcretizationTypeError if `mat` is traced and `nse` is not given.
    """
    mat = jnp.asarray(mat)
    if mat.dtype == bool:  # elements are summed
        mat = convert(mat, int, True)
    n_sparse = mat.ndim - n_batch - n_dense
    if n_sparse < 0 or n_batch < 0 or n_dense < 0:
        raise ValueError(f"bcoo_fromdense: n_batch={n_batch} and n_dense={n_dense} are too many for shape {mat.shape}")
    if nse is None:
        counts = _is_set(mat, n_dense).sum(tuple(range(n_batch, mat.ndim - n_dense)))
        if counts.size and isinstance(counts, Tracer):
            raise ConcretizationTypeError(mat, "bcoo_fromdense needs the argument nse inside of a traced function: the number "
                                               "of elements is not known there")
        nse = int(counts.max()) if counts.size else 0
    index_dtype = dtypes.check_user_dtype_supported(index_dtype, "bcoo_fromdense")
    data, indices = bcoo_fromdense_p.bind(mat, nse=nse, n_batch=n_batch, n_dense=n_dense, index_dtype=index_dtype)
    return BCOO((convert(data, None, mat.weak_type), indices), shape=mat.shape, indices_sorted=True, unique_indices=True)


@sparse_primitive("bcoo_fromdense", multiple_results=True)
def bcoo_fromdense_p(mat, *, nse: int, n_batch: int, n_dense: int, index_dtype) -> list[Any]:
    sparse = mat.shape[n_batch:mat.ndim - n_dense]

    def one(array, mask) -> tuple[Any, Any]:
        if not sparse:
            return array[None][:nse], jnp.zeros((min(1, nse), 0), index_dtype)
        places = jnp.nonzero(mask, size=nse, fill_value=sparse)
        return array.at[places].get(mode="fill", fill_value=0), jnp.stack(places, -1).astype(index_dtype)

    return list(_over_batch(one, n_batch)(mat, _is_set(mat, n_dense)))


def bcoo_extract(sparr: BCOO, arr, *, assume_unique: bool | None = None) -> BCOO:
    """The elements of a dense array at the places of a sparse one. Of a place that occurs again, the first has all."""
    unique = sparr.unique_indices if assume_unique is None else assume_unique
    if sparr.shape != arr.shape:
        raise ValueError(f"bcoo_extract: the shapes differ, {sparr.shape} and {arr.shape}")
    if not unique:
        sparr = bcoo_sum_duplicates(sparr, nse=sparr.nse)
    return sparr._with_data(_taken(sparr, arr))


def _taken(mat: BCOO, dense):
    """The elements of a dense array of the same shape at the places of `mat`; 0 for places out of bounds."""
    _, indices = _full(mat)
    return bcoo_extract_p.bind(indices, jnp.asarray(dense), assume_unique=mat.unique_indices)


@sparse_primitive("bcoo_extract")
def bcoo_extract_p(indices, dense, *, assume_unique: bool):
    n_batch = indices.ndim - 2
    sparse = dense.shape[n_batch:n_batch + indices.shape[-1]]

    def one(array, indices):
        if not sparse:
            return jnp.broadcast_to(array, (indices.shape[0], *array.shape))
        if 0 in sparse:
            return jnp.zeros((indices.shape[0], *array.shape[len(sparse):]), array.dtype)
        return array.at[_columns(indices)].get(mode="fill", fill_value=0)

    return _over_batch(one, n_batch)(dense, indices)


# --- the list of elements ----------------------------------------------------------------------------


def bcoo_sort_indices(mat: BCOO) -> BCOO:
    """The elements in the order of their places."""
    data, indices = bcoo_sort_indices_p.bind(mat.data, mat.indices, spinfo=mat._info)
    return BCOO((data, indices), shape=mat.shape, indices_sorted=True, unique_indices=mat.unique_indices)


@sparse_primitive("bcoo_sort_indices", multiple_results=True)
def bcoo_sort_indices_p(data, indices, *, spinfo: SparseInfo) -> list[Any]:
    mat = _bcoo(data, indices, spinfo)
    data, indices = _common(mat)

    def one(data, indices) -> tuple[Any, Any]:
        order = jnp.lexsort(_columns(indices)[::-1]) if indices.shape[-1] else jnp.arange(indices.shape[0])
        return data[order], indices[order]

    data, indices = _over_batch(one, mat.n_batch)(data, indices)
    return [data, _shared_as(mat, indices)]


def bcoo_sum_duplicates(mat: BCOO, nse: int | None = None) -> BCOO:
    """Each place once, in order, with the sum of its elements, which may be zero.

    Args: `nse` room for so many; without it as many as there are, or under jit as many as before.
    """
    data, indices, info = mat.data, mat.indices, mat._info
    traced = isinstance(data, Tracer) or isinstance(indices, Tracer)
    if nse is None and not traced:
        data, indices = bcoo_sum_duplicates_p.bind(data, indices, spinfo=info, nse=mat.nse)
        sparse = _parts(mat)[1]
        counts = (indices < _ends(sparse, indices.dtype)).all(-1).sum(-1)
        nse = int(counts.max()) if counts.size else 0
    data, indices = bcoo_sum_duplicates_p.bind(data, indices, spinfo=info, nse=mat.nse if nse is None else nse)
    return BCOO((data, indices), shape=mat.shape, indices_sorted=True, unique_indices=True)


@sparse_primitive("bcoo_sum_duplicates", multiple_results=True)
def bcoo_sum_duplicates_p(data, indices, *, spinfo: SparseInfo, nse: int) -> list[Any]:
    mat = _bcoo(data, indices, spinfo)
    data, indices = _common(mat)
    sparse = _parts(mat)[1]
    ends = _ends(sparse, indices.dtype)

    def distinct(data, indices) -> tuple[Any, Any]:
        """Sums at the first occurrence of each place, and the places; the rest of the lists is empty."""
        if not sparse:
            only = jnp.zeros_like(data).at[:1].set(data.sum(0, keepdims=True)[:len(data)])
            return only, indices
        indices = jnp.where((indices >= ends).any(-1, keepdims=True), ends, indices)
        order = jnp.lexsort(_columns(indices)[::-1])
        data, indices = data[order], indices[order]
        first = jnp.concatenate([jnp.ones((min(1, len(indices)),), bool), (indices[1:] != indices[:-1]).any(-1)])
        group = jnp.cumsum(first) - 1
        places = _ends(sparse, indices.dtype, (len(indices),)).at[group].set(indices)
        inside = (places < ends).all(-1)
        sums = jnp.zeros_like(data).at[group].add(data)
        return jnp.where(inside.reshape(-1, *[1] * (sums.ndim - 1)), sums, 0), places

    data, indices = _over_batch(distinct, mat.n_batch)(data, indices)
    indices, axis = _shared_as(mat, indices), mat.n_batch
    grow = nse - data.shape[axis]
    if grow > 0:
        data = jnp.concatenate([data, jnp.zeros((*data.shape[:axis], grow, *data.shape[axis + 1:]), data.dtype)], axis)
        return [data, jnp.concatenate([indices, _ends(sparse, indices.dtype, (*indices.shape[:axis], grow))], axis)]
    return [lax.slice_in_dim(data, 0, nse, axis=axis), lax.slice_in_dim(indices, 0, nse, axis=axis)]


def bcoo_eliminate_zeros(mat: BCOO, nse: int | None = None) -> BCOO:
    """Without the places whose elements are zero, each of the others once, in order; `nse` as for `bcoo_sum_duplicates`."""
    data, indices = _common(mat)
    zero = ~_is_set(data, mat.n_dense)
    shared = tuple(axis for axis, size in enumerate(mat.indices.shape[:mat.n_batch]) if size == 1)
    zero = zero.all(shared, keepdims=True) if shared else zero
    outside = jnp.array(_parts(mat)[1], indices.dtype)
    indices = jnp.where(zero[..., None], outside, _shared_as(mat, indices))
    return bcoo_sum_duplicates(BCOO((data, indices), shape=mat.shape), nse)


def bcoo_update_layout(mat: BCOO, *, n_batch: int | None = None, n_dense: int | None = None,
                       on_inefficient: str | None = "error") -> BCOO:
    """The same array with other numbers of batch and dense axes.

    Args: `on_inefficient`: what to do where the new layout holds more elements than the old one: 'error', 'warn' or None.
    Raises: SparseEfficiencyError; ValueError for numbers of axes that the array has not.
    """
    n_batch = mat.n_batch if n_batch is None else operator.index(n_batch)
    n_dense = mat.n_dense if n_dense is None else operator.index(n_dense)
    if n_batch < 0 or n_dense < 0 or n_batch + n_dense > mat.ndim:
        raise ValueError(f"bcoo_update_layout: n_batch={n_batch}, n_dense={n_dense} for an array with {mat.ndim} axes")
    if on_inefficient not in ("error", "warn", None):
        raise ValueError(f"on_inefficient={on_inefficient!r}; expected one of ['error', 'warn', None].")
    if n_dense > mat.n_dense or n_batch > mat.n_batch:
        message = (f"bcoo_update_layout: from n_batch={mat.n_batch}, n_dense={mat.n_dense} to n_batch={n_batch}, "
                   f"n_dense={n_dense} stores zeros.")
        if on_inefficient == "error":
            raise SparseEfficiencyError(message)
        if on_inefficient == "warn":
            source.warn(message, SparseEfficiencyWarning)
    while mat.n_dense > n_dense:
        mat = _dense_axis_to_sparse(mat)
    while mat.n_batch > n_batch:
        mat = _batch_axis_to_sparse(mat)
    if mat.n_dense < n_dense:
        mat = _sparse_axes_to_dense(mat, n_dense - mat.n_dense)
    if mat.n_batch < n_batch:
        mat = _sparse_axes_to_batch(mat, n_batch - mat.n_batch)
    return mat


def _dense_axis_to_sparse(mat: BCOO) -> BCOO:
    """The first dense axis becomes the last sparse one."""
    data, indices = _full(mat)
    size, axis = data.shape[mat.n_batch + 1], mat.n_batch
    position = jnp.broadcast_to(jnp.arange(size, dtype=indices.dtype)[:, None], (*indices.shape[:-1], size, 1))
    spread = jnp.broadcast_to(indices[..., None, :], (*indices.shape[:-1], size, mat.n_sparse))
    joined = jnp.concatenate([spread, position], -1)
    # A place out of bounds stays so.
    shape = (*data.shape[:axis], mat.nse * size, *data.shape[axis + 2:])
    return BCOO((data.reshape(shape), joined.reshape(*indices.shape[:-2], mat.nse * size, mat.n_sparse + 1)), shape=mat.shape,
                indices_sorted=mat.indices_sorted, unique_indices=mat.unique_indices)


def _batch_axis_to_sparse(mat: BCOO) -> BCOO:
    """The last batch axis becomes the first sparse one."""
    data, indices = _full(mat)
    axis = mat.n_batch - 1
    size = mat.shape[axis]
    position = jnp.broadcast_to(jnp.arange(size, dtype=indices.dtype)[:, None, None], (*indices.shape[:-1], 1))
    joined = jnp.concatenate([position, indices], -1)
    return BCOO((data.reshape(*data.shape[:axis], size * mat.nse, *data.shape[axis + 2:]),
                 joined.reshape(*indices.shape[:axis], size * mat.nse, mat.n_sparse + 1)), shape=mat.shape,
                unique_indices=mat.unique_indices)


def _sparse_axes_to_dense(mat: BCOO, count: int) -> BCOO:
    """The last sparse axes become dense ones."""
    data, indices = _full(mat)
    sizes = _parts(mat)[1][mat.n_sparse - count:]

    def one(element, place):
        return jnp.zeros((*sizes, *element.shape), element.dtype).at[tuple(place)].set(element, mode="drop")

    rows = _over_batch(one, mat.n_batch + 1)(data, indices[..., mat.n_sparse - count:])
    return BCOO((rows, indices[..., :mat.n_sparse - count]), shape=mat.shape)


def _sparse_axes_to_batch(mat: BCOO, count: int) -> BCOO:
    """The first sparse axes become batch ones: each array of the new batch has room for all elements."""
    data, indices = _full(mat)
    sizes, outside = _parts(mat)[1][:count], jnp.array(_parts(mat)[1][count:], indices.dtype)

    def one(data, indices) -> tuple[Any, Any]:
        where = jnp.moveaxis(jnp.indices(sizes, indices.dtype), 0, -1)  # (*sizes, count)
        mine = (indices[..., :count] == where[..., None, :]).all(-1)  # (*sizes, nse)
        elements = jnp.where(mine.reshape(*mine.shape, *[1] * (data.ndim - 1)), data, 0)
        return elements, jnp.where(mine[..., None], indices[..., count:], outside)

    data, indices = _over_batch(one, mat.n_batch)(data, indices)
    return BCOO((data, indices), shape=mat.shape)


def _flat(mat: BCOO) -> BCOO:
    """With sparse axes alone."""
    return bcoo_update_layout(mat, n_batch=0, n_dense=0)


# --- shapes ------------------------------------------------------------------------------------------


def bcoo_transpose(mat: BCOO, *, permutation: Sequence[int]) -> BCOO:
    """Axes in another order: batch axes among themselves, and so the sparse and the dense ones.

    Raises: TypeError for a permutation that is none, NotImplementedError for one between the kinds.
    """
    order = tuple(permutation)
    shape_of(lambda dense: lax.transpose(dense, order), mat)
    first, last = mat.n_batch, mat.n_batch + mat.n_sparse
    batch, dense = order[:first], order[last:]
    if sorted(batch) != [*range(first)] or sorted(dense) != [*range(last, mat.ndim)]:
        raise NotImplementedError(f"bcoo_transpose: {order} mixes batch, sparse and dense axes; update_layout(n_batch=0, "
                                  "n_dense=0) makes all of them sparse")
    data, indices = bcoo_transpose_p.bind(mat.data, mat.indices, permutation=order, spinfo=mat._info)
    return BCOO((data, indices), shape=[mat.shape[axis] for axis in order], unique_indices=mat.unique_indices)


@sparse_primitive("bcoo_transpose", multiple_results=True)
def bcoo_transpose_p(data, indices, *, permutation: tuple[int, ...], spinfo: SparseInfo) -> list[Any]:
    mat = _bcoo(data, indices, spinfo)
    first, last = mat.n_batch, mat.n_batch + mat.n_sparse
    batch, sparse, dense = permutation[:first], permutation[first:last], permutation[last:]
    data, indices = _full(mat)
    columns = [indices[..., axis - first] for axis in sparse]
    indices = jnp.stack(columns, -1) if columns else indices
    return [data.transpose(*batch, first, *(axis - mat.n_sparse + 1 for axis in dense)),
            indices.transpose(*batch, first, first + 1)]


def bcoo_reshape(mat: BCOO, *, new_sizes: Sequence[int], dimensions: Sequence[int] | None = None, sharding=None) -> BCOO:
    """Another shape for the same elements, in row-major order. Batch and dense axes become sparse if they change."""
    shape = tuple(new_sizes)
    if math.prod(shape) != mat.size:
        raise TypeError(f"cannot reshape a sparse array of shape {mat.shape} into {shape}")
    if dimensions is not None:
        mat = bcoo_transpose(mat, permutation=dimensions)
    batch, _, dense = _parts(mat)
    if shape[:len(batch)] != batch or (dense and shape[len(shape) - len(dense):] != dense):
        mat = _flat(mat)
        batch, dense = (), ()
    sparse = _parts(mat)[1]
    new = shape[len(batch):len(shape) - len(dense)]
    data, indices = _full(mat)
    inside = (indices < jnp.array(sparse, indices.dtype)).all(-1)
    strides = [math.prod(sparse[axis + 1:]) for axis in range(len(sparse))]
    linear = sum((indices[..., axis] * stride for axis, stride in enumerate(strides)), jnp.zeros(inside.shape, indices.dtype))
    columns = []
    for axis, size in enumerate(new):
        column = linear // math.prod(new[axis + 1:]) % max(size, 1)
        columns.append(jnp.where(inside, column, size))
    joined = jnp.stack(columns, -1) if columns else jnp.zeros((*inside.shape, 0), indices.dtype)
    return BCOO((data, joined), shape=shape, indices_sorted=mat.indices_sorted, unique_indices=mat.unique_indices)


def bcoo_squeeze(arr: BCOO, *, dimensions: Sequence[int]) -> BCOO:
    """Without some axes of size 1."""
    gone = canonical_axes(tuple(dimensions), arr.ndim)
    if any(arr.shape[axis] != 1 for axis in gone):
        raise ValueError(f"cannot select an axis to squeeze out which has size not equal to one, got shape={arr.shape} and "
                         f"dimensions={tuple(dimensions)}")
    return bcoo_reduce_sum(arr, axes=sorted(gone))


def bcoo_broadcast_in_dim(mat: BCOO, *, shape: Sequence[int], broadcast_dimensions: Sequence[int],
                          sharding=None) -> BCOO:
    """In a larger shape: axis i goes to `broadcast_dimensions[i]`, the others repeat the array.

    New axes before the sparse ones are batch axes, those behind the first dense one are dense. Where a sparse axis repeats
    the array, all axes become sparse.
    """
    shape, places = tuple(shape), tuple(broadcast_dimensions)
    shape_of(lambda dense: lax.broadcast_in_dim(dense, shape, places), mat)
    count, behind = mat.n_batch, mat.n_batch + mat.n_sparse
    n_batch = places[count] if count < mat.ndim else len(shape)
    first_dense = places[behind] if behind < mat.ndim else len(shape)
    if all(mat.shape[places.index(axis)] == shape[axis] if axis in places else shape[axis] == 1
           for axis in range(n_batch, first_dense)):
        batch, dense = shape[:n_batch], shape[first_dense:]
        moved = (*places[:count], n_batch)
        data = lax.broadcast_in_dim(mat.data, (*batch, mat.nse, *dense), (
            *moved, *(place - first_dense + n_batch + 1 for place in places[behind:])))
        indices = lax.broadcast_in_dim(mat.indices, (*batch, mat.nse, mat.n_sparse), (*moved, n_batch + 1))
        none = jnp.zeros_like(indices, shape=(*batch, mat.nse))
        columns = [indices[..., places.index(axis) - count] if axis in places else none for axis in range(n_batch, first_dense)]
        indices = jnp.stack(columns, -1) if columns else indices
        return BCOO((data, indices), shape=shape, unique_indices=mat.unique_indices)
    mat = _flat(mat)
    data, indices = mat.data, mat.indices
    repeated = [axis for axis, size in enumerate(shape) if axis not in places or mat.shape[places.index(axis)] != size]
    counts = [shape[axis] for axis in repeated]
    total = math.prod(counts)
    copies = jnp.stack(jnp.unravel_index(jnp.arange(total), counts), -1) if counts else jnp.zeros((1, 0), indices.dtype)
    outside = (indices >= jnp.array(mat.shape, indices.dtype)).any(-1)
    columns = []
    for axis, size in enumerate(shape):
        column = (copies[:, repeated.index(axis)][:, None] if axis in repeated
                  else indices[:, places.index(axis)][None]).astype(indices.dtype)
        columns.append(jnp.where(outside[None], size, jnp.broadcast_to(column, (len(copies), mat.nse))))
    joined = jnp.stack(columns, -1) if columns else jnp.zeros((len(copies), mat.nse, 0), indices.dtype)
    data = jnp.broadcast_to(data, (len(copies), *data.shape))
    return BCOO((data.reshape(-1), joined.reshape(-1, len(shape))), shape=shape, unique_indices=mat.unique_indices)


def _broadcast(mat: BCOO, shape: tuple[int, ...]) -> BCOO:
    places = tuple(range(len(shape) - mat.ndim, len(shape)))
    return mat if mat.shape == shape else bcoo_broadcast_in_dim(mat, shape=shape, broadcast_dimensions=places)


def bcoo_concatenate(operands: Sequence[BCOO], *, dimension: int) -> BCOO:
    """Sparse arrays one after the other along an axis; all have the same layout."""
    if not operands:
        raise ValueError("bcoo_concatenate: operands must not be empty")
    first = operands[0]
    if len({(each.n_batch, each.n_sparse, each.n_dense) for each in operands}) > 1:
        raise ValueError("bcoo_concatenate: the operands have different layouts")
    shape_of(lambda *dense: lax.concatenate(dense * 2, dimension), *operands)  # of one alone it checks nothing
    shape = list(first.shape)
    shape[dimension] = sum(each.shape[dimension] for each in operands)
    pairs = [_full(each) for each in operands]
    if first.n_batch <= dimension < first.n_batch + first.n_sparse:
        axis, offset, moved = dimension - first.n_batch, 0, []
        for each, (_, indices) in zip(operands, pairs, strict=True):
            outside = (indices >= jnp.array(_parts(each)[1], indices.dtype)).any(-1)
            column = jnp.where(outside, shape[dimension], indices[..., axis] + offset)
            moved.append(indices.at[..., axis].set(column))
            offset += each.shape[dimension]
        return BCOO((jnp.concatenate([data for data, _ in pairs], first.n_batch),
                     jnp.concatenate(moved, first.n_batch)), shape=shape)
    if dimension >= first.n_batch:
        raise NotImplementedError("bcoo_concatenate along a dense axis: make it sparse with update_layout")
    most = max(each.nse for each in operands)
    padded = [bcoo_sum_duplicates(each, nse=most) for each in operands]
    pairs = [_full(each) for each in padded]
    return BCOO((jnp.concatenate([data for data, _ in pairs], dimension),
                 jnp.concatenate([indices for _, indices in pairs], dimension)), shape=shape)


def bcoo_slice(mat: BCOO, *, start_indices: Sequence[int], limit_indices: Sequence[int],
               strides: Sequence[int] | None = None) -> BCOO:
    """Every `strides`-th element of a range of each axis."""
    steps = tuple(strides) if strides is not None else (1,) * mat.ndim
    if any(step <= 0 for step in steps):
        raise ValueError(f"strides must be a sequence of positive integers; got {[*steps]}")
    if not all(0 <= start <= limit <= size
               for start, limit, size in zip(start_indices, limit_indices, mat.shape, strict=True)):
        raise ValueError(f"bcoo_slice: invalid indices. Got start_indices={[*start_indices]}, limit_indices={[*limit_indices]} "
                         f"and shape={mat.shape}")
    ranges = [range(start, limit, step) for start, limit, step in zip(start_indices, limit_indices, steps, strict=True)]
    data, indices = _full(mat)
    shape = tuple(map(len, ranges))
    first = mat.n_batch
    for axis in range(first):
        data, indices = (lax.slice_in_dim(x, ranges[axis].start, ranges[axis].stop, ranges[axis].step, axis)
                         for x in (data, indices))
    for axis in range(first + mat.n_sparse, mat.ndim):
        place = axis - mat.n_sparse + 1
        data = lax.slice_in_dim(data, ranges[axis].start, ranges[axis].stop, ranges[axis].step, place)
    columns, inside = [], jnp.ones(indices.shape[:-1], bool)
    for axis in range(mat.n_sparse):
        each = ranges[first + axis]
        column = indices[..., axis] - each.start
        inside &= (column >= 0) & (indices[..., axis] < each.stop) & (column % each.step == 0)
        inside &= indices[..., axis] < mat.shape[first + axis]
        columns.append(column // each.step)
    joined = [jnp.where(inside, column, shape[first + axis]) for axis, column in enumerate(columns)]
    indices = jnp.stack(joined, -1) if joined else indices
    data = jnp.where(inside.reshape(*inside.shape, *[1] * mat.n_dense), data, 0)
    part = BCOO((data, indices), shape=shape, unique_indices=mat.unique_indices)
    room = math.prod(shape[first:first + mat.n_sparse])
    return part if part.nse <= room else bcoo_sum_duplicates(part, nse=room)


def bcoo_dynamic_slice(mat: BCOO, start_indices: Sequence[Any], slice_sizes: Sequence[int]) -> BCOO:
    """A block of a static size at a place that may be traced, moved inside where it would reach out."""
    mat = _flat(mat)
    shape_of(lambda dense: lax.dynamic_slice(dense, (0,) * len(start_indices), slice_sizes), mat)
    starts = [jnp.clip(jnp.asarray(start), 0, size - width).astype(mat.indices.dtype)
              for start, size, width in zip(start_indices, mat.shape, slice_sizes, strict=True)]
    moved, ends = mat.indices - jnp.stack(starts), jnp.array(tuple(slice_sizes), mat.indices.dtype)
    inside = ((moved >= 0) & (moved < ends) & (mat.indices < jnp.array(mat.shape, moved.dtype))).all(-1)
    indices = jnp.where(inside[:, None], moved, ends)
    return BCOO((jnp.where(inside, mat.data, 0), indices), shape=tuple(slice_sizes), unique_indices=mat.unique_indices)


def bcoo_rev(operand: BCOO, dimensions: Sequence[int]) -> BCOO:
    """With the order of the elements along some axes turned round."""
    shape_of(lambda dense: lax.rev(dense, dimensions), operand)
    data, indices = _full(operand)
    first, sparse = operand.n_batch, _parts(operand)[1]
    outside = (indices >= jnp.array(sparse, indices.dtype)).any(-1)
    for axis in (operator.index(each) % operand.ndim for each in dimensions):
        if axis < first:
            data, indices = lax.rev(data, (axis,)), lax.rev(indices, (axis,))
            outside = lax.rev(outside, (axis,))
        elif axis < first + operand.n_sparse:
            column = indices[..., axis - first]
            indices = indices.at[..., axis - first].set(jnp.where(outside, column, operand.shape[axis] - 1 - column))
        else:
            data = lax.rev(data, (axis - operand.n_sparse + 1,))
    return BCOO((data, indices), shape=operand.shape, unique_indices=operand.unique_indices)


def _indexed(mat: BCOO, index):
    """`mat[index]` with what NumPy takes as an index."""
    keys = list(canonical_index(index, mat.shape))
    basic = [key for key in keys if key is None or key is Ellipsis or isinstance(key, slice)]
    if len(basic) == len(keys) - 1:  # the other is a new axis, if it is a mask of a single True
        keys = [None if key is True else key for key in keys]
    rest = [slice(None)] * (mat.ndim - sum(key is not None and key is not Ellipsis for key in keys))
    place = next((position for position, key in enumerate(keys) if key is Ellipsis), len(keys))
    keys[place:place + 1] = rest
    if any(isinstance(key, Tracer) or np.ndim(key) for key in keys if not isinstance(key, slice)):
        return _gathered(mat, keys)
    ranges: list[range] = []
    gone, turned, layout = [], [], []
    for key in keys:
        axis = len(ranges)
        if key is None:
            layout.append(True)
            continue
        size = mat.shape[axis]
        if isinstance(key, slice):
            chosen = range(*key.indices(size))
            if chosen.step < 0:
                turned.append(axis)
                chosen = chosen[::-1]
            layout.append(False)
        else:
            if type(key) is bool or not hasattr(key, "__index__"):
                raise NotImplementedError(f"indexing of a BCOO with {key}; it takes integers, slices, arrays, None and "
                                          "Ellipsis")
            start = operator.index(key)
            if not -size <= start < size:
                raise IndexError(f"index {start} is out of bounds for axis {axis} with size {size}")
            chosen = range(start % size, start % size + 1)
            gone.append(axis)
        ranges.append(chosen)
    result = bcoo_slice(mat, start_indices=[each.start for each in ranges], strides=[each.step for each in ranges],
                        limit_indices=[each[-1] + 1 if each else each.start for each in ranges])
    if turned:
        result = bcoo_rev(result, turned)
    if gone:
        result = bcoo_reduce_sum(result, axes=gone)
    if any(layout):
        sizes, kept = iter(result.shape), [place for place, is_new in enumerate(layout) if not is_new]
        result = bcoo_broadcast_in_dim(result, shape=[1 if is_new else next(sizes) for is_new in layout],
                                       broadcast_dimensions=kept)
    return result


def _gathered(mat: BCOO, keys: Sequence[Any]) -> BCOO:
    """Indexing with arrays of integers among the keys, one for each axis or None for a new one: a slice for each of their
    places, as a batch. Numbers beside arrays are arrays, too."""
    positions = [position for position, key in enumerate(keys) if key is not None and not isinstance(key, slice)]
    axes = [position - sum(key is None for key in keys[:position]) for position in positions]
    mat = _flat(_indexed(mat, tuple(key if isinstance(key, slice) else slice(None) for key in keys if key is not None)))
    places = jnp.broadcast_arrays(*[jnp.asarray(keys[position]) for position in positions])
    batch = places[0].shape
    sizes = [1 if axis in axes else size for axis, size in enumerate(mat.shape)]
    nse = min(mat.nse, math.prod(sizes))

    def piece(*indices):
        starts: list[Any] = [0] * mat.ndim
        for axis, index in zip(axes, indices, strict=True):
            starts[axis] = jnp.where(index < 0, index + mat.shape[axis], index)
        found = bcoo_squeeze(bcoo_dynamic_slice(mat, starts, sizes), dimensions=axes)
        found = found if nse == found.nse else bcoo_sum_duplicates(found, nse=nse)
        return found.data, found.indices

    data, indices = vmap(piece)(*[place.ravel() for place in places])
    rest = [size for axis, size in enumerate(mat.shape) if axis not in axes]
    result = BCOO((data.reshape(*batch, nse), indices.reshape(*batch, nse, len(rest))), shape=(*batch, *rest))
    is_joined = positions[-1] - positions[0] == len(positions) - 1
    before = axes[0] if is_joined else 0  # axes that come before those of the arrays, as in NumPy
    if before:
        order = [*range(len(batch), len(batch) + before), *range(len(batch)), *range(len(batch) + before, result.ndim)]
        result = bcoo_transpose(bcoo_update_layout(result, n_batch=0), permutation=order)
    if any(key is None for key in keys):
        first = positions[0] if is_joined else 0
        shown = [key is None for key in keys[:first]] + [False] * len(batch)
        shown += [key is None for position, key in enumerate(keys) if position >= first and position not in positions]
        extents = iter(result.shape)
        result = bcoo_reshape(bcoo_update_layout(result, n_batch=0), new_sizes=[1 if new else next(extents) for new in shown])
    return result


# --- arithmetic --------------------------------------------------------------------------------------


def bcoo_reduce_sum(mat: BCOO, *, axes: Sequence[int]) -> BCOO:
    """Sums along axes."""
    gone = canonical_axes(tuple(axes), mat.ndim)
    first, last = mat.n_batch, mat.n_batch + mat.n_sparse
    data, indices = _full(mat)
    outside = (indices >= jnp.array(_parts(mat)[1], indices.dtype)).any(-1)
    data = jnp.where(outside.reshape(*outside.shape, *[1] * mat.n_dense), 0, data)  # its coordinates may go
    dense = tuple(axis - mat.n_sparse + 1 for axis in gone if axis >= last)
    data = data.sum(dense) if dense else data
    kept = [axis - first for axis in range(first, last) if axis not in gone]
    indices = indices[..., kept]
    batch = [axis for axis in range(first) if axis in gone]
    if batch:
        # The arrays of the batch become one with all their elements.
        rest = [axis for axis in range(first) if axis not in gone]
        data = data.transpose(*rest, *batch, *range(first, data.ndim))
        indices = indices.transpose(*rest, *batch, first, first + 1)
        sizes = [mat.shape[axis] for axis in rest]
        count = math.prod(mat.shape[axis] for axis in batch) * mat.nse
        data = data.reshape(*sizes, count, *data.shape[first + 1:])
        indices = indices.reshape(*sizes, count, len(kept))
    return BCOO((data, indices), shape=[size for axis, size in enumerate(mat.shape) if axis not in gone])


def _add(a: BCOO, b: BCOO) -> BCOO:
    if a.shape != b.shape:
        raise ValueError(f"addition of sparse arrays needs equal shapes, got {a.shape} and {b.shape}")
    if (a.n_batch, a.n_dense) != (b.n_batch, b.n_dense):
        a, b = _flat(a), _flat(b)
    (data_a, indices_a), (data_b, indices_b) = _full(a), _full(b)
    dtype = jnp.promote_types(data_a.dtype, data_b.dtype)
    return BCOO((jnp.concatenate([data_a.astype(dtype), data_b.astype(dtype)], a.n_batch),
                 jnp.concatenate([indices_a, indices_b.astype(indices_a.dtype)], a.n_batch)), shape=a.shape)


def bcoo_multiply_dense(sp_mat: BCOO, v):
    """The data of the product, element by element, with a dense array that is broadcast to the sparse one."""
    v = jnp.asarray(v)
    fits = all(size in (1, full) for size, full in zip(v.shape[::-1], sp_mat.shape[::-1], strict=False))
    if v.ndim > sp_mat.ndim or not fits:
        raise ValueError(f"bcoo_multiply_dense: {v.shape} is not broadcast to {sp_mat.shape}")
    return _full(sp_mat)[0] * _taken(sp_mat, jnp.broadcast_to(v, sp_mat.shape))


def bcoo_multiply_sparse(lhs: BCOO, rhs: BCOO) -> BCOO:
    """The product of two sparse arrays, element by element: at the places of the first one. Axes of size 1 are repeated."""
    if lhs.ndim != rhs.ndim:
        raise TypeError(f"bcoo_multiply_sparse: arrays must have the same number of axes, got {lhs.shape}, {rhs.shape}")
    lhs, rhs = (_broadcast(mat, np.broadcast_shapes(lhs.shape, rhs.shape)) for mat in (lhs, rhs))
    if lhs.n_batch or rhs.n_batch or lhs.n_dense != rhs.n_dense:
        lhs, rhs = _flat(lhs), _flat(rhs)
    inside = rhs.indices < jnp.array(_parts(rhs)[1], rhs.indices.dtype)
    same = (lhs.indices[:, None] == rhs.indices[None]).all(-1) & inside.all(-1)[None]
    same = same.reshape(*same.shape, *[1] * lhs.n_dense)
    dtype = jnp.promote_types(lhs.dtype, rhs.dtype)
    factor = jnp.where(same, rhs.data.astype(dtype)[None], 0).sum(1)
    return BCOO((lhs.data.astype(dtype) * factor, lhs.indices), shape=lhs.shape, indices_sorted=lhs.indices_sorted,
                unique_indices=lhs.unique_indices)


def _matmul(a, b):
    """`a @ b` with at least one sparse operand, by NumPy's rules."""
    if not all(isinstance(each, BCOO) or is_dense(each) for each in (a, b)):
        return NotImplemented
    a, b = (each if isinstance(each, BCOO) else jnp.asarray(each) for each in (a, b))
    if a.ndim == 0 or b.ndim == 0:
        raise ValueError("matmul inputs must be at least one-dimensional.")
    batch = tuple(range(a.ndim - 2)) if a.ndim == b.ndim > 2 else ()
    if a.ndim > 2 and b.ndim > 2 and a.ndim != b.ndim:
        raise NotImplementedError(f"matmul of shapes {a.shape} and {b.shape}: use bcoo_dot_general")
    product = bcoo_dot_general(a, b, dimension_numbers=(((a.ndim - 1,), (max(b.ndim - 2, 0),)), (batch, batch)))
    if a.ndim == 2 and b.ndim > 2:  # the rows of `a` belong before the last axis
        order = (*range(1, product.ndim - 1), 0, product.ndim - 1)
        product = product.transpose(order)
    return product


def bcoo_dot_general(lhs, rhs, *, dimension_numbers, precision=None, preferred_element_type=None, out_sharding=None):
    """The products of `lax.dot_general`, with one or two sparse operands.

    Args: `dimension_numbers` ((lhs_contract, rhs_contract), (lhs_batch, rhs_batch)).
    Returns: a dense array; of two sparse operands, a sparse one.
    Raises: TypeError if sizes do not fit.
    """
    if not (isinstance(lhs, BCOO) or isinstance(rhs, BCOO)):
        return lax.dot_general(lhs, rhs, dimension_numbers, precision, preferred_element_type, out_sharding=out_sharding)
    lhs, rhs = (each if isinstance(each, BCOO) else jnp.asarray(each) for each in (lhs, rhs))
    numbers, dtype = product_params(lhs, rhs, dimension_numbers, preferred_element_type)
    (left_contract, right_contract), (left_batch, right_batch) = numbers
    if isinstance(lhs, BCOO) and isinstance(rhs, BCOO):
        return _sparse_times_sparse(lhs, rhs, numbers, dtype)

    def times(mat: BCOO, dense, numbers):
        return bcoo_dot_general_p.bind(mat.data, mat.indices, dense, dimension_numbers=numbers,
                                       preferred_element_type=dtype, lhs_spinfo=mat._info)

    if isinstance(lhs, BCOO):
        return times(lhs, rhs, numbers)
    swapped = times(rhs, lhs, ((right_contract, left_contract), (right_batch, left_batch)))
    count, free = len(left_batch), rhs.ndim - len(right_contract) - len(right_batch)
    order = (*range(count), *range(count + free, swapped.ndim), *range(count, count + free))
    return swapped.transpose(order)


@sparse_primitive("bcoo_dot_general")
def bcoo_dot_general_p(data, indices, dense, *, dimension_numbers, preferred_element_type, lhs_spinfo: SparseInfo):
    (contract, dense_contract), (batch, dense_batch) = dimension_numbers
    return _sparse_times_dense(_bcoo(data, indices, lhs_spinfo), dense, contract, dense_contract, batch, dense_batch,
                               preferred_element_type)


def _sparse_times_dense(mat: BCOO, dense, contract: tuple[int, ...], dense_contract: tuple[int, ...],
                        batch: tuple[int, ...], dense_batch: tuple[int, ...], dtype):
    """Each element meets the row of the dense operand at its coordinates; rows are added up where they belong."""
    aligned = batch == tuple(range(len(batch))) and mat.n_batch == len(batch) and mat.n_dense == 0
    dense_free = [axis for axis in range(jnp.ndim(dense)) if axis not in dense_contract + dense_batch]
    dense = jnp.asarray(dense).transpose(*dense_batch, *dense_contract, *dense_free)
    if aligned and batch:
        def one(data, indices, dense):
            part = BCOO((data, indices), shape=mat.shape[mat.n_batch:])
            own = tuple(axis - mat.n_batch for axis in contract)
            return _sparse_times_dense(part, dense, own, tuple(range(len(own))), (), (), dtype)

        return _over_batch(one, mat.n_batch)(*_full(mat), dense)
    mat = _flat(mat)
    free = [axis for axis in range(mat.ndim) if axis not in contract + batch]
    columns = _columns(mat.indices)
    place = tuple(columns[axis] for axis in (*batch, *contract))
    rows = dense.at[place].get(mode="fill", fill_value=0) if place else jnp.broadcast_to(dense, (mat.nse, *dense.shape))
    rows = mat.data.astype(dtype).reshape(-1, *[1] * len(dense_free)) * rows.astype(dtype)
    target = tuple(columns[axis] for axis in (*batch, *free))
    shape = [mat.shape[axis] for axis in (*batch, *free)]
    outside = (mat.indices >= _ends(mat.shape, mat.indices.dtype)).any(-1)
    rows = jnp.where(outside.reshape(-1, *[1] * len(dense_free)), 0, rows)
    if not target:
        return rows.sum(0)
    return jnp.zeros((*shape, *rows.shape[1:]), dtype).at[target].add(rows, mode="drop")


def _sparse_times_sparse(lhs: BCOO, rhs: BCOO, numbers, dtype) -> BCOO:
    """The sums of the products of all pairs of elements whose coordinates meet.

    Axes of the batch stay axes of the batch where they come first in the product: a batch of small products has far fewer pairs
    than one product of all its elements.
    """
    (left_contract, right_contract), (left_batch, right_batch) = numbers
    if left_batch and left_batch[0] < lhs.n_batch and right_batch[0] < rhs.n_batch:
        rest = (left_contract, right_contract), (left_batch[1:], right_batch[1:])
        return _for_each(lhs, left_batch[0], rhs, right_batch[0], rest, dtype)
    free = next((axis for axis in range(lhs.n_batch) if axis not in left_contract), None)
    if not left_batch and free is not None:
        return _for_each(lhs, free, rhs, None, numbers, dtype)
    lhs, rhs = _flat(lhs), _flat(rhs)
    data, indices = bcoo_spdot_general_p.bind(lhs.data, lhs.indices, rhs.data, rhs.indices, lhs_spinfo=lhs._info,
                                              rhs_spinfo=rhs._info, dimension_numbers=numbers, preferred_element_type=dtype)
    shape = product_shape(lhs.shape, rhs.shape, numbers)
    most = min(len(data), math.prod(shape)) if shape else 1
    return bcoo_sum_duplicates(BCOO((data, indices), shape=shape), nse=most)


def _for_each(lhs: BCOO, left: int, rhs: BCOO, right: int | None, numbers, dtype) -> BCOO:
    """The products for each element of an axis of the batch of `lhs`, and of one of `rhs` where it has that axis too."""
    within = lambda axes, gone: tuple(axis - (gone is not None and axis > gone) for axis in axes)
    numbers = tuple((within(lefts, left), within(rights, right)) for lefts, rights in numbers)
    without = lambda mat, gone: tuple(size for axis, size in enumerate(mat.shape) if axis != gone)
    left_shape, right_shape = without(lhs, left), without(rhs, right)

    def one(left_parts, right_parts):
        product = _sparse_times_sparse(BCOO(left_parts, shape=left_shape), BCOO(right_parts, shape=right_shape), numbers, dtype)
        return product.data, product.indices

    parts = vmap(one, (left, right))(_full(lhs), _full(rhs))
    shape = (lhs.shape[left], *product_shape(left_shape, right_shape, numbers))
    return BCOO(parts, shape=shape, indices_sorted=True, unique_indices=True)


@sparse_primitive("bcoo_spdot_general", multiple_results=True)
def bcoo_spdot_general_p(lhs_data, lhs_indices, rhs_data, rhs_indices, *, lhs_spinfo: SparseInfo,
                         rhs_spinfo: SparseInfo, dimension_numbers, preferred_element_type) -> list[Any]:
    lhs, rhs = _flat(_bcoo(lhs_data, lhs_indices, lhs_spinfo)), _flat(_bcoo(rhs_data, rhs_indices, rhs_spinfo))
    data = [mat.data.astype(preferred_element_type) for mat in (lhs, rhs)]
    return meeting_pairs(data, (lhs.indices, rhs.indices), (lhs.shape, rhs.shape), dimension_numbers)


def bcoo_gather(operand: BCOO, start_indices, dimension_numbers, slice_sizes: Sequence[int], **options) -> BCOO:
    """`lax.gather` of a sparse array; the result has the layout of its dense counterpart, made sparse again."""
    dense = lax.gather(bcoo_todense(operand), start_indices, dimension_numbers, slice_sizes, **options)
    return bcoo_fromdense(dense, nse=min(operand.nse * max(1, math.prod(np.shape(start_indices)[:-1])), dense.size))
