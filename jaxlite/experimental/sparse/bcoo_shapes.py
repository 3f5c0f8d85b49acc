"""BCOO arrays in other shapes: transposed, reshaped, summed along axes, repeated, joined, cut, indexed."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxlite import lax
from jaxlite import numpy as jnp
from jaxlite.core.axes import with_ones
from jaxlite.core.tracing import Tracer
from jaxlite.experimental.sparse.base import SparseInfo
from jaxlite.experimental.sparse.batches import full_batch, shape_parts
from jaxlite.experimental.sparse.bcoo_base import BCOO, bcoo_of, bcoo_sum_duplicates, bcoo_update_layout, flat
from jaxlite.experimental.sparse.primitives import shape_of, sparse_primitive
from jaxlite.numpy.api import canonical_axes
from jaxlite.numpy.index_plan import canonical_index
from jaxlite.transforms.vmap import vmap


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
    return mat._kind((data, indices), shape=[mat.shape[axis] for axis in order], unique_indices=mat.unique_indices)


@sparse_primitive("bcoo_transpose", multiple_results=True)
def bcoo_transpose_p(data, indices, *, permutation: tuple[int, ...], spinfo: SparseInfo) -> list[Any]:
    mat = bcoo_of(data, indices, spinfo)
    first, last = mat.n_batch, mat.n_batch + mat.n_sparse
    batch, sparse, dense = permutation[:first], permutation[first:last], permutation[last:]
    data, indices = full_batch(mat)
    columns = [indices[..., axis - first] for axis in sparse]
    indices = jnp.stack(columns, -1) if columns else indices
    return [data.transpose(*batch, first, *(axis - mat.n_sparse + 1 for axis in dense)),
            indices.transpose(*batch, first, first + 1)]


def bcoo_reshape(mat: BCOO, *, new_sizes: Sequence[int], dimensions: Sequence[int] | None = None,
                 sharding=None) -> BCOO:
    """Another shape for the same elements, in row-major order. Batch and dense axes become sparse if they change."""
    shape = tuple(new_sizes)
    if math.prod(shape) != mat.size:
        raise TypeError(f"cannot reshape a sparse array of shape {mat.shape} into {shape}")
    if dimensions is not None:
        mat = bcoo_transpose(mat, permutation=dimensions)
    batch, _, dense = shape_parts(mat)
    if shape[:len(batch)] != batch or (dense and shape[len(shape) - len(dense):] != dense):
        mat = flat(mat)
        batch, dense = (), ()
    sparse = shape_parts(mat)[1]
    new = shape[len(batch):len(shape) - len(dense)]
    data, indices = full_batch(mat)
    inside = (indices < jnp.array(sparse, indices.dtype)).all(-1)
    strides = [math.prod(sparse[axis + 1:]) for axis in range(len(sparse))]
    linear = sum((indices[..., axis] * stride for axis, stride in enumerate(strides)), jnp.zeros(inside.shape, indices.dtype))
    columns = []
    for axis, size in enumerate(new):
        column = linear // math.prod(new[axis + 1:]) % max(size, 1)
        columns.append(jnp.where(inside, column, size))
    joined = jnp.stack(columns, -1) if columns else jnp.zeros((*inside.shape, 0), indices.dtype)
    return mat._kind((data, joined), shape=shape, indices_sorted=mat.indices_sorted, unique_indices=mat.unique_indices)


def bcoo_reduce_sum(mat: BCOO, *, axes: Sequence[int]) -> BCOO:
    """Sums along axes."""
    gone = canonical_axes(tuple(axes), mat.ndim)
    first, last = mat.n_batch, mat.n_batch + mat.n_sparse
    data, indices = full_batch(mat)
    outside = (indices >= jnp.array(shape_parts(mat)[1], indices.dtype)).any(-1)
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
    return mat._kind((data, indices), shape=[size for axis, size in enumerate(mat.shape) if axis not in gone])


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
        return mat._kind((data, indices), shape=shape, unique_indices=mat.unique_indices)
    mat = flat(mat)
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
    return mat._kind((data.reshape(-1), joined.reshape(-1, len(shape))), shape=shape, unique_indices=mat.unique_indices)


def broadcast(mat: BCOO, shape: tuple[int, ...]) -> BCOO:
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
    pairs = [full_batch(each) for each in operands]
    if first.n_batch <= dimension < first.n_batch + first.n_sparse:
        axis, offset, moved = dimension - first.n_batch, 0, []
        for each, (_, indices) in zip(operands, pairs, strict=True):
            outside = (indices >= jnp.array(shape_parts(each)[1], indices.dtype)).any(-1)
            column = jnp.where(outside, shape[dimension], indices[..., axis] + offset)
            moved.append(indices.at[..., axis].set(column))
            offset += each.shape[dimension]
        return first._kind((jnp.concatenate([data for data, _ in pairs], first.n_batch),
                            jnp.concatenate(moved, first.n_batch)), shape=shape)
    if dimension >= first.n_batch:
        raise NotImplementedError("bcoo_concatenate along a dense axis: make it sparse with update_layout")
    most = max(each.nse for each in operands)
    padded = [bcoo_sum_duplicates(each, nse=most) for each in operands]
    pairs = [full_batch(each) for each in padded]
    return first._kind((jnp.concatenate([data for data, _ in pairs], dimension),
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
    data, indices = full_batch(mat)
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
    part = mat._kind((data, indices), shape=shape, unique_indices=mat.unique_indices)
    room = math.prod(shape[first:first + mat.n_sparse])
    return part if part.nse <= room else bcoo_sum_duplicates(part, nse=room)


def bcoo_dynamic_slice(mat: BCOO, start_indices: Sequence[Any], slice_sizes: Sequence[int]) -> BCOO:
    """A block of a static size at a place that may be traced, moved inside where it would reach out."""
    mat = flat(mat)
    shape_of(lambda dense: lax.dynamic_slice(dense, (0,) * len(start_indices), slice_sizes), mat)
    starts = [jnp.clip(jnp.asarray(start), 0, size - width).astype(mat.indices.dtype)
              for start, size, width in zip(start_indices, mat.shape, slice_sizes, strict=True)]
    moved, ends = mat.indices - jnp.stack(starts), jnp.array(tuple(slice_sizes), mat.indices.dtype)
    inside = ((moved >= 0) & (moved < ends) & (mat.indices < jnp.array(mat.shape, moved.dtype))).all(-1)
    indices = jnp.where(inside[:, None], moved, ends)
    return mat._kind((jnp.where(inside, mat.data, 0), indices), shape=tuple(slice_sizes), unique_indices=mat.unique_indices)


def bcoo_rev(operand: BCOO, dimensions: Sequence[int]) -> BCOO:
    """With the order of the elements along some axes turned round."""
    shape_of(lambda dense: lax.rev(dense, dimensions), operand)
    data, indices = full_batch(operand)
    first, sparse = operand.n_batch, shape_parts(operand)[1]
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
    return operand._kind((data, indices), shape=operand.shape, unique_indices=operand.unique_indices)


def indexed(mat: BCOO, index):
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
    mat = flat(indexed(mat, tuple(key if isinstance(key, slice) else slice(None) for key in keys if key is not None)))
    places = jnp.broadcast_arrays(*[jnp.asarray(keys[position]) for position in positions])
    batch = places[0].shape
    sizes = with_ones(mat.shape, axes)
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
    result = mat._kind((data.reshape(*batch, nse), indices.reshape(*batch, nse, len(rest))), shape=(*batch, *rest))
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
