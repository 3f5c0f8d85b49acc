"""Sums and products of two BCOO arrays, or of one with a dense array."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from jaxlite import lax
from jaxlite import numpy as jnp
from jaxlite.core.axes import other_axes
from jaxlite.experimental.sparse.base import SparseInfo, is_dense
from jaxlite.experimental.sparse.batches import columns_of, full_batch, over_batch, past_ends, shape_parts
from jaxlite.experimental.sparse.bcoo_base import BCOO, BCOOBase, bcoo_of, bcoo_sum_duplicates, flat, taken
from jaxlite.experimental.sparse.bcoo_shapes import broadcast
from jaxlite.experimental.sparse.primitives import sparse_primitive
from jaxlite.experimental.sparse.products import meeting_pairs, product_params, product_shape
from jaxlite.transforms.vmap import vmap


def add(a: BCOO, b: BCOO) -> BCOO:
    if a.shape != b.shape:
        raise ValueError(f"addition of sparse arrays needs equal shapes, got {a.shape} and {b.shape}")
    if (a.n_batch, a.n_dense) != (b.n_batch, b.n_dense):
        a, b = flat(a), flat(b)
    (data_a, indices_a), (data_b, indices_b) = full_batch(a), full_batch(b)
    dtype = jnp.promote_types(data_a.dtype, data_b.dtype)
    return a._kind((jnp.concatenate([data_a.astype(dtype), data_b.astype(dtype)], a.n_batch),
                    jnp.concatenate([indices_a, indices_b.astype(indices_a.dtype)], a.n_batch)), shape=a.shape)


def bcoo_multiply_dense(sp_mat: BCOO, v):
    """The data of the product, element by element, with a dense array that is broadcast to the sparse one."""
    v = jnp.asarray(v)
    fits = all(size in (1, full) for size, full in zip(v.shape[::-1], sp_mat.shape[::-1], strict=False))
    if v.ndim > sp_mat.ndim or not fits:
        raise ValueError(f"bcoo_multiply_dense: {v.shape} is not broadcast to {sp_mat.shape}")
    return full_batch(sp_mat)[0] * taken(sp_mat, jnp.broadcast_to(v, sp_mat.shape))


def bcoo_multiply_sparse(lhs: BCOO, rhs: BCOO) -> BCOO:
    """The product of two sparse arrays, element by element: at the places of the first one. Axes of size 1 are repeated."""
    if lhs.ndim != rhs.ndim:
        raise TypeError(f"bcoo_multiply_sparse: arrays must have the same number of axes, got {lhs.shape}, {rhs.shape}")
    lhs, rhs = (broadcast(mat, np.broadcast_shapes(lhs.shape, rhs.shape)) for mat in (lhs, rhs))
    if lhs.n_batch or rhs.n_batch or lhs.n_dense != rhs.n_dense:
        lhs, rhs = flat(lhs), flat(rhs)
    inside = rhs.indices < jnp.array(shape_parts(rhs)[1], rhs.indices.dtype)
    same = (lhs.indices[:, None] == rhs.indices[None]).all(-1) & inside.all(-1)[None]
    same = same.reshape(*same.shape, *[1] * lhs.n_dense)
    dtype = jnp.promote_types(lhs.dtype, rhs.dtype)
    factor = jnp.where(same, rhs.data.astype(dtype)[None], 0).sum(1)
    return lhs._kind((lhs.data.astype(dtype) * factor, lhs.indices), shape=lhs.shape, indices_sorted=lhs.indices_sorted,
                     unique_indices=lhs.unique_indices)


def matmul(a, b):
    """`a @ b` with at least one sparse operand, by NumPy's rules."""
    if not all(isinstance(each, BCOOBase) or is_dense(each) for each in (a, b)):
        return NotImplemented
    a, b = (each if isinstance(each, BCOOBase) else jnp.asarray(each) for each in (a, b))
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
    if not (isinstance(lhs, BCOOBase) or isinstance(rhs, BCOOBase)):
        return lax.dot_general(lhs, rhs, dimension_numbers, precision, preferred_element_type, out_sharding=out_sharding)
    lhs, rhs = (each if isinstance(each, BCOOBase) else jnp.asarray(each) for each in (lhs, rhs))
    numbers, dtype = product_params(lhs, rhs, dimension_numbers, preferred_element_type)
    (left_contract, right_contract), (left_batch, right_batch) = numbers
    if isinstance(lhs, BCOOBase) and isinstance(rhs, BCOOBase):
        return _sparse_times_sparse(lhs, rhs, numbers, dtype)

    def times(mat: BCOO, dense, numbers):
        return bcoo_dot_general_p.bind(mat.data, mat.indices, dense, dimension_numbers=numbers,
                                       preferred_element_type=dtype, lhs_spinfo=mat._info)

    if isinstance(lhs, BCOOBase):
        return times(lhs, rhs, numbers)
    swapped = times(rhs, lhs, ((right_contract, left_contract), (right_batch, left_batch)))
    count, free = len(left_batch), rhs.ndim - len(right_contract) - len(right_batch)
    order = (*range(count), *range(count + free, swapped.ndim), *range(count, count + free))
    return swapped.transpose(order)


@sparse_primitive("bcoo_dot_general")
def bcoo_dot_general_p(data, indices, dense, *, dimension_numbers, preferred_element_type, lhs_spinfo: SparseInfo):
    (contract, dense_contract), (batch, dense_batch) = dimension_numbers
    return _sparse_times_dense(bcoo_of(data, indices, lhs_spinfo), dense, contract, dense_contract, batch, dense_batch,
                               preferred_element_type)


def _sparse_times_dense(mat: BCOO, dense, contract: tuple[int, ...], dense_contract: tuple[int, ...],
                        batch: tuple[int, ...], dense_batch: tuple[int, ...], dtype):
    """Each element meets the row of the dense operand at its coordinates; rows are added up where they belong."""
    aligned = batch == tuple(range(len(batch))) and mat.n_batch == len(batch) and mat.n_dense == 0
    dense_free = [axis for axis in range(jnp.ndim(dense)) if axis not in dense_contract + dense_batch]
    dense = jnp.asarray(dense).transpose(*dense_batch, *dense_contract, *dense_free)
    if aligned and batch:
        def one(data, indices, dense):
            part = mat._kind((data, indices), shape=mat.shape[mat.n_batch:])
            own = tuple(axis - mat.n_batch for axis in contract)
            return _sparse_times_dense(part, dense, own, tuple(range(len(own))), (), (), dtype)

        return over_batch(one, mat.n_batch)(*full_batch(mat), dense)
    mat = flat(mat)
    free = other_axes(mat.ndim, contract + batch)
    columns = columns_of(mat.indices)
    place = tuple(columns[axis] for axis in (*batch, *contract))
    rows = dense.at[place].get(mode="fill", fill_value=0) if place else jnp.broadcast_to(dense, (mat.nse, *dense.shape))
    rows = mat.data.astype(dtype).reshape(-1, *[1] * len(dense_free)) * rows.astype(dtype)
    target = tuple(columns[axis] for axis in (*batch, *free))
    shape = [mat.shape[axis] for axis in (*batch, *free)]
    outside = (mat.indices >= past_ends(mat.shape, mat.indices.dtype)).any(-1)
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
    lhs, rhs = flat(lhs), flat(rhs)
    data, indices = bcoo_spdot_general_p.bind(lhs.data, lhs.indices, rhs.data, rhs.indices, lhs_spinfo=lhs._info,
                                              rhs_spinfo=rhs._info, dimension_numbers=numbers, preferred_element_type=dtype)
    shape = product_shape(lhs.shape, rhs.shape, numbers)
    most = min(len(data), math.prod(shape)) if shape else 1
    return bcoo_sum_duplicates(lhs._kind((data, indices), shape=shape), nse=most)


def _for_each(lhs: BCOO, left: int, rhs: BCOO, right: int | None, numbers, dtype) -> BCOO:
    """The products for each element of an axis of the batch of `lhs`, and of one of `rhs` where it has that axis too."""
    within = lambda axes, gone: tuple(axis - (gone is not None and axis > gone) for axis in axes)
    numbers = tuple((within(lefts, left), within(rights, right)) for lefts, rights in numbers)
    without = lambda mat, gone: tuple(size for axis, size in enumerate(mat.shape) if axis != gone)
    left_shape, right_shape = without(lhs, left), without(rhs, right)

    def one(left_parts, right_parts):
        a, b = lhs._kind(left_parts, shape=left_shape), rhs._kind(right_parts, shape=right_shape)
        product = _sparse_times_sparse(a, b, numbers, dtype)
        return product.data, product.indices

    parts = vmap(one, (left, right))(full_batch(lhs), full_batch(rhs))
    shape = (lhs.shape[left], *product_shape(left_shape, right_shape, numbers))
    return lhs._kind(parts, shape=shape, indices_sorted=True, unique_indices=True)


@sparse_primitive("bcoo_spdot_general", multiple_results=True)
def bcoo_spdot_general_p(lhs_data, lhs_indices, rhs_data, rhs_indices, *, lhs_spinfo: SparseInfo,
                         rhs_spinfo: SparseInfo, dimension_numbers, preferred_element_type) -> list[Any]:
    lhs, rhs = flat(bcoo_of(lhs_data, lhs_indices, lhs_spinfo)), flat(bcoo_of(rhs_data, rhs_indices, rhs_spinfo))
    data = [mat.data.astype(preferred_element_type) for mat in (lhs, rhs)]
    return meeting_pairs(data, (lhs.indices, rhs.indices), (lhs.shape, rhs.shape), dimension_numbers)
