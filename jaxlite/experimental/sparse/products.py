"""What products of lists of elements are made of: their shape, the pairs of elements whose places meet, and elements of a dense
product at some places.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from jaxlite import lax
from jaxlite import numpy as jnp
from jaxlite.core import dtypes
from jaxlite.experimental.sparse.batches import columns_of, past_ends
from jaxlite.experimental.sparse.primitives import sparse_primitive
from jaxlite.lax.dot import canonical_dimension_numbers, dot_general_shape


def product_shape(lhs: Sequence[int], rhs: Sequence[int], numbers) -> list[int]:
    """The shape of the product of two arrays of these shapes."""
    (left_contract, right_contract), (left_batch, right_batch) = numbers
    left = [size for axis, size in enumerate(lhs) if axis not in left_contract + left_batch]
    right = [size for axis, size in enumerate(rhs) if axis not in right_contract + right_batch]
    return [lhs[axis] for axis in left_batch] + left + right


def product_params(lhs, rhs, dimension_numbers, preferred) -> tuple[Any, Any]:
    """The dimension numbers of a product, and its dtype: the one asked for, or that of both operands.

    Raises: TypeError if sizes do not fit.
    """
    numbers = canonical_dimension_numbers(dimension_numbers)
    dot_general_shape(lhs, rhs, numbers)
    return numbers, (jnp.promote_types(lhs.dtype, rhs.dtype) if preferred is None
                     else dtypes.check_user_dtype_supported(preferred))


def meeting_pairs(data: Sequence[Any], indices: Sequence[Any], shapes: Sequence[Sequence[int]], numbers) -> list[Any]:
    """The products of all pairs of elements of two lists, and their places: past the end where they do not meet."""
    (left_contract, right_contract), (left_batch, right_batch) = numbers
    left, right = [column[:, None] for column in columns_of(indices[0])], [column[None] for column in columns_of(indices[1])]
    pairs, kind = (len(data[0]), len(data[1])), indices[0].dtype
    meet = jnp.ones(pairs, bool)
    for a, b in zip((*left_batch, *left_contract), (*right_batch, *right_contract), strict=True):
        meet &= left[a] == right[b]
    for places, shape, axis in zip(indices, shapes, (1, 0), strict=True):
        meet &= jnp.expand_dims((places < past_ends(shape, places.dtype)).all(-1), axis)
    columns = [left[axis] for axis in left_batch]
    columns += [column for axis, column in enumerate(left) if axis not in left_batch + left_contract]
    columns += [column for axis, column in enumerate(right) if axis not in right_batch + right_contract]
    wide = [jnp.where(meet, column.astype(kind), jnp.full((), size, kind)).reshape(-1)
            for column, size in zip(columns, product_shape(shapes[0], shapes[1], numbers), strict=True)]
    places = jnp.stack(wide, -1) if wide else jnp.zeros((math.prod(pairs), 0), kind)
    return [jnp.where(meet, data[0][:, None] * data[1][None], 0).reshape(-1), places]


def bcoo_dot_general_sampled(A, B, indices, *, dimension_numbers):
    """The elements of a dense product at some places alone: `indices` (nse, rank of the product)."""
    numbers = tuple(tuple(map(tuple, pair)) for pair in dimension_numbers)
    return bcoo_dot_general_sampled_p.bind(A, B, indices, dimension_numbers=numbers)


@sparse_primitive("bcoo_dot_general_sampled")
def bcoo_dot_general_sampled_p(A, B, indices, *, dimension_numbers):
    product = lax.dot_general(A, B, dimension_numbers)
    return product.at[columns_of(indices)].get(mode="fill", fill_value=0)
