"""BCOO: sparse arrays in batched coordinate format, with constructors, methods and operators.

`bcoo_base.py` has the format and what each function starts from, `bcoo_shapes.py` and `bcoo_arithmetic.py` the operations.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxlite import lax
from jaxlite import numpy as jnp
from jaxlite.core import dtypes
from jaxlite.core.errors import ConcretizationTypeError
from jaxlite.core.tracing import Tracer
from jaxlite.core.tree_nodes import register_pytree_node_class
from jaxlite.experimental.sparse.base import JAXSparse, is_dense
from jaxlite.experimental.sparse.batches import is_set
from jaxlite.experimental.sparse.bcoo_arithmetic import (
    add,
    bcoo_dot_general,
    bcoo_dot_general_p,
    bcoo_multiply_dense,
    bcoo_multiply_sparse,
    bcoo_spdot_general_p,
    matmul,
)
from jaxlite.experimental.sparse.bcoo_base import (
    BCOOBase,
    bcoo_eliminate_zeros,
    bcoo_extract,
    bcoo_extract_p,
    bcoo_fromdense_p,
    bcoo_sort_indices,
    bcoo_sort_indices_p,
    bcoo_sum_duplicates,
    bcoo_sum_duplicates_p,
    bcoo_todense,
    bcoo_todense_p,
    bcoo_update_layout,
)
from jaxlite.experimental.sparse.bcoo_shapes import (
    bcoo_broadcast_in_dim,
    bcoo_concatenate,
    bcoo_dynamic_slice,
    bcoo_reduce_sum,
    bcoo_reshape,
    bcoo_rev,
    bcoo_slice,
    bcoo_squeeze,
    bcoo_transpose,
    bcoo_transpose_p,
    broadcast,
    indexed,
)
from jaxlite.experimental.sparse.convolutions import bcoo_conv_general_dilated
from jaxlite.experimental.sparse.products import bcoo_dot_general_sampled, bcoo_dot_general_sampled_p
from jaxlite.lax.shaping import convert
from jaxlite.numpy.api import canonical_axes

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
class BCOO(BCOOBase):
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
        return indexed(self, index)

    def __iter__(self):
        return (self[row] for row in range(self.shape[0]))

    def __matmul__(self, other):
        return matmul(self, other)

    def __rmatmul__(self, other):
        return matmul(other, self)

    def __mul__(self, other):
        if isinstance(other, BCOO):
            shape = np.broadcast_shapes(self.shape, other.shape)
            return bcoo_multiply_sparse(broadcast(self, shape), broadcast(other, shape))
        if is_dense(other):
            other = jnp.asarray(other)
            return self._with_data(self.data * other) if other.ndim == 0 else self._with_data(bcoo_multiply_dense(self, other))
        return NotImplemented

    __rmul__ = __mul__

    def __add__(self, other):
        if isinstance(other, BCOO):
            return add(self, other)
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


BCOO._kind = BCOO


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
        counts = is_set(mat, n_dense).sum(tuple(range(n_batch, mat.ndim - n_dense)))
        if counts.size and isinstance(counts, Tracer):
            raise ConcretizationTypeError(mat, "bcoo_fromdense needs the argument nse inside of a traced function: the number "
                                               "of elements is not known there")
        nse = int(counts.max()) if counts.size else 0
    index_dtype = dtypes.check_user_dtype_supported(index_dtype, "bcoo_fromdense")
    data, indices = bcoo_fromdense_p.bind(mat, nse=nse, n_batch=n_batch, n_dense=n_dense, index_dtype=index_dtype)
    return BCOO((convert(data, None, mat.weak_type), indices), shape=mat.shape, indices_sorted=True, unique_indices=True)


def bcoo_gather(operand: BCOO, start_indices, dimension_numbers, slice_sizes: Sequence[int], **options) -> BCOO:
    """`lax.gather` of a sparse array; the result has the layout of its dense counterpart, made sparse again."""
    dense = lax.gather(bcoo_todense(operand), start_indices, dimension_numbers, slice_sizes, **options)
    return bcoo_fromdense(dense, nse=min(operand.nse * max(1, math.prod(np.shape(start_indices)[:-1])), dense.size))
