"""What BCOO arrays hold: lists of elements with their coordinates, in layouts with batch, sparse and dense axes.

`data` has the shape (*batch, nse, *dense), `indices` (*batch, nse, n_sparse): the axes of the array are batch axes, then sparse
ones, then dense ones. An element whose coordinates are out of bounds does not count: so arrays of a batch, and of a compiled
program, have one `nse`. Places may occur several times; their elements are summed.

The functions are written with ordinary indexing, so derivatives and batching follow from its rules. Those that give arrays make
them of the kind of their operand, which is `bcoo.BCOO`, the class with constructors and operators.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np

from jaxlite import lax
from jaxlite import numpy as jnp
from jaxlite.core import dtypes, source
from jaxlite.core.axes import with_sizes
from jaxlite.core.tracing import Tracer
from jaxlite.experimental.sparse.base import JAXSparse, SparseEfficiencyError, SparseEfficiencyWarning, SparseInfo
from jaxlite.experimental.sparse.batches import (
    columns_of,
    common_batch,
    full_batch,
    is_set,
    over_batch,
    past_ends,
    shape_parts,
    shared_as,
)
from jaxlite.experimental.sparse.primitives import sparse_primitive


class BCOOBase(JAXSparse):
    """A sparse array in batched coordinate format, without constructors and operators.

    Args:
      args: (data, indices).
      shape: of the whole array.
      indices_sorted, unique_indices: promises about each list of coordinates.
    """

    _kind: ClassVar[Any]  # the class of the arrays that are made of one

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

    def _with_data(self, data):
        return self._kind((data, self.indices), shape=self.shape, indices_sorted=self.indices_sorted,
                          unique_indices=self.unique_indices)


BCOOBase._kind = BCOOBase
BCOO = TypeVar("BCOO", bound=BCOOBase)  # the class of an operand and of the results: `bcoo.BCOO`


def _check(mat: BCOOBase) -> None:
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


def bcoo_of(data, indices, info: SparseInfo) -> BCOOBase:
    return BCOOBase((data, indices), shape=info.shape, indices_sorted=info.indices_sorted, unique_indices=info.unique_indices)


# --- to and from dense arrays ------------------------------------------------------------------------


def bcoo_todense(mat: BCOO):
    """The dense array of a sparse one; elements at one place are summed."""
    return bcoo_todense_p.bind(mat.data, mat.indices, spinfo=mat._info)


@sparse_primitive("bcoo_todense")
def bcoo_todense_p(data, indices, *, spinfo: SparseInfo):
    mat = bcoo_of(data, indices, spinfo)
    batch, sparse, dense = shape_parts(mat)
    data, indices = full_batch(mat)

    def one(data, indices):
        if not sparse:
            return data.sum(0, dtype=data.dtype)
        if 0 in sparse:
            return jnp.zeros((*sparse, *dense), data.dtype)
        return jnp.zeros((*sparse, *dense), data.dtype).at[columns_of(indices)].add(
            data, mode="drop", indices_are_sorted=mat.indices_sorted, unique_indices=mat.unique_indices)

    return over_batch(one, len(batch))(data, indices)


@sparse_primitive("bcoo_fromdense", multiple_results=True)
def bcoo_fromdense_p(mat, *, nse: int, n_batch: int, n_dense: int, index_dtype) -> list[Any]:
    sparse = mat.shape[n_batch:mat.ndim - n_dense]

    def one(array, mask) -> tuple[Any, Any]:
        if not sparse:
            return array[None][:nse], jnp.zeros((min(1, nse), 0), index_dtype)
        places = jnp.nonzero(mask, size=nse, fill_value=sparse)
        return array.at[places].get(mode="fill", fill_value=0), jnp.stack(places, -1).astype(index_dtype)

    return list(over_batch(one, n_batch)(mat, is_set(mat, n_dense)))


def bcoo_extract(sparr: BCOO, arr, *, assume_unique: bool | None = None) -> BCOO:
    """The elements of a dense array at the places of a sparse one. Of a place that occurs again, the first has all."""
    unique = sparr.unique_indices if assume_unique is None else assume_unique
    if sparr.shape != arr.shape:
        raise ValueError(f"bcoo_extract: the shapes differ, {sparr.shape} and {arr.shape}")
    if not unique:
        sparr = bcoo_sum_duplicates(sparr, nse=sparr.nse)
    return sparr._with_data(taken(sparr, arr))


def taken(mat: BCOO, dense):
    """The elements of a dense array of the same shape at the places of `mat`; 0 for places out of bounds."""
    _, indices = full_batch(mat)
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
        return array.at[columns_of(indices)].get(mode="fill", fill_value=0)

    return over_batch(one, n_batch)(dense, indices)


# --- the list of elements ----------------------------------------------------------------------------


def bcoo_sort_indices(mat: BCOO) -> BCOO:
    """The elements in the order of their places."""
    data, indices = bcoo_sort_indices_p.bind(mat.data, mat.indices, spinfo=mat._info)
    return mat._kind((data, indices), shape=mat.shape, indices_sorted=True, unique_indices=mat.unique_indices)


@sparse_primitive("bcoo_sort_indices", multiple_results=True)
def bcoo_sort_indices_p(data, indices, *, spinfo: SparseInfo) -> list[Any]:
    mat = bcoo_of(data, indices, spinfo)
    data, indices = common_batch(mat)

    def one(data, indices) -> tuple[Any, Any]:
        order = jnp.lexsort(columns_of(indices)[::-1]) if indices.shape[-1] else jnp.arange(indices.shape[0])
        return data[order], indices[order]

    data, indices = over_batch(one, mat.n_batch)(data, indices)
    return [data, shared_as(mat, indices)]


def bcoo_sum_duplicates(mat: BCOO, nse: int | None = None) -> BCOO:
    """Each place once, in order, with the sum of its elements, which may be zero.

    Args: `nse` room for so many; without it as many as there are, or under jit as many as before.
    """
    data, indices, info = mat.data, mat.indices, mat._info
    traced = isinstance(data, Tracer) or isinstance(indices, Tracer)
    if nse is None and not traced:
        data, indices = bcoo_sum_duplicates_p.bind(data, indices, spinfo=info, nse=mat.nse)
        sparse = shape_parts(mat)[1]
        counts = (indices < past_ends(sparse, indices.dtype)).all(-1).sum(-1)
        nse = int(counts.max()) if counts.size else 0
    data, indices = bcoo_sum_duplicates_p.bind(data, indices, spinfo=info, nse=mat.nse if nse is None else nse)
    return mat._kind((data, indices), shape=mat.shape, indices_sorted=True, unique_indices=True)


@sparse_primitive("bcoo_sum_duplicates", multiple_results=True)
def bcoo_sum_duplicates_p(data, indices, *, spinfo: SparseInfo, nse: int) -> list[Any]:
    mat = bcoo_of(data, indices, spinfo)
    data, indices = common_batch(mat)
    sparse = shape_parts(mat)[1]
    ends = past_ends(sparse, indices.dtype)

    def distinct(data, indices) -> tuple[Any, Any]:
        """Sums at the first occurrence of each place, and the places; the rest of the lists is empty."""
        if not sparse:
            only = jnp.zeros_like(data).at[:1].set(data.sum(0, keepdims=True)[:len(data)])
            return only, indices
        indices = jnp.where((indices >= ends).any(-1, keepdims=True), ends, indices)
        order = jnp.lexsort(columns_of(indices)[::-1])
        data, indices = data[order], indices[order]
        first = jnp.concatenate([jnp.ones((min(1, len(indices)),), bool), (indices[1:] != indices[:-1]).any(-1)])
        group = jnp.cumsum(first) - 1
        places = past_ends(sparse, indices.dtype, (len(indices),)).at[group].set(indices)
        inside = (places < ends).all(-1)
        sums = jnp.zeros_like(data).at[group].add(data)
        return jnp.where(inside.reshape(-1, *[1] * (sums.ndim - 1)), sums, 0), places

    data, indices = over_batch(distinct, mat.n_batch)(data, indices)
    indices, axis = shared_as(mat, indices), mat.n_batch
    grow = nse - data.shape[axis]
    if grow > 0:
        data = jnp.concatenate([data, jnp.zeros(with_sizes(data.shape, axis, grow), data.dtype)], axis)
        return [data, jnp.concatenate([indices, past_ends(sparse, indices.dtype, (*indices.shape[:axis], grow))], axis)]
    return [lax.slice_in_dim(data, 0, nse, axis=axis), lax.slice_in_dim(indices, 0, nse, axis=axis)]


def bcoo_eliminate_zeros(mat: BCOO, nse: int | None = None) -> BCOO:
    """Without the places whose elements are zero, each of the others once, in order; `nse` as for `bcoo_sum_duplicates`."""
    data, indices = common_batch(mat)
    zero = ~is_set(data, mat.n_dense)
    shared = tuple(axis for axis, size in enumerate(mat.indices.shape[:mat.n_batch]) if size == 1)
    zero = zero.all(shared, keepdims=True) if shared else zero
    outside = jnp.array(shape_parts(mat)[1], indices.dtype)
    indices = jnp.where(zero[..., None], outside, shared_as(mat, indices))
    return bcoo_sum_duplicates(mat._kind((data, indices), shape=mat.shape), nse)


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
    data, indices = full_batch(mat)
    size, axis = data.shape[mat.n_batch + 1], mat.n_batch
    position = jnp.broadcast_to(jnp.arange(size, dtype=indices.dtype)[:, None], (*indices.shape[:-1], size, 1))
    spread = jnp.broadcast_to(indices[..., None, :], (*indices.shape[:-1], size, mat.n_sparse))
    joined = jnp.concatenate([spread, position], -1)
    # A place out of bounds stays so.
    shape = (*data.shape[:axis], mat.nse * size, *data.shape[axis + 2:])
    places = joined.reshape(*indices.shape[:-2], mat.nse * size, mat.n_sparse + 1)
    return mat._kind((data.reshape(shape), places), shape=mat.shape, indices_sorted=mat.indices_sorted,
                     unique_indices=mat.unique_indices)


def _batch_axis_to_sparse(mat: BCOO) -> BCOO:
    """The last batch axis becomes the first sparse one."""
    data, indices = full_batch(mat)
    axis = mat.n_batch - 1
    size = mat.shape[axis]
    position = jnp.broadcast_to(jnp.arange(size, dtype=indices.dtype)[:, None, None], (*indices.shape[:-1], 1))
    joined = jnp.concatenate([position, indices], -1)
    return mat._kind((data.reshape(*data.shape[:axis], size * mat.nse, *data.shape[axis + 2:]),
                      joined.reshape(*indices.shape[:axis], size * mat.nse, mat.n_sparse + 1)), shape=mat.shape,
                     unique_indices=mat.unique_indices)


def _sparse_axes_to_dense(mat: BCOO, count: int) -> BCOO:
    """The last sparse axes become dense ones."""
    data, indices = full_batch(mat)
    sizes = shape_parts(mat)[1][mat.n_sparse - count:]

    def one(element, place):
        return jnp.zeros((*sizes, *element.shape), element.dtype).at[tuple(place)].set(element, mode="drop")

    rows = over_batch(one, mat.n_batch + 1)(data, indices[..., mat.n_sparse - count:])
    return mat._kind((rows, indices[..., :mat.n_sparse - count]), shape=mat.shape)


def _sparse_axes_to_batch(mat: BCOO, count: int) -> BCOO:
    """The first sparse axes become batch ones: each array of the new batch has room for all elements."""
    data, indices = full_batch(mat)
    sizes, outside = shape_parts(mat)[1][:count], jnp.array(shape_parts(mat)[1][count:], indices.dtype)

    def one(data, indices) -> tuple[Any, Any]:
        where = jnp.moveaxis(jnp.indices(sizes, indices.dtype), 0, -1)  # (*sizes, count)
        mine = (indices[..., :count] == where[..., None, :]).all(-1)  # (*sizes, nse)
        elements = jnp.where(mine.reshape(*mine.shape, *[1] * (data.ndim - 1)), data, 0)
        return elements, jnp.where(mine[..., None], indices[..., count:], outside)

    data, indices = over_batch(one, mat.n_batch)(data, indices)
    return mat._kind((data, indices), shape=mat.shape)


def flat(mat: BCOO) -> BCOO:
    """With sparse axes alone."""
    return bcoo_update_layout(mat, n_batch=0, n_dense=0)
