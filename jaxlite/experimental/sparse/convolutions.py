"""Convolutions of BCOO arrays: of rows pair by pair, of others as dense arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxlite import lax
from jaxlite import numpy as jnp
from jaxlite.experimental.sparse.base import JAXSparse, is_sparse


def bcoo_conv_general_dilated(lhs, rhs, *, window_strides, padding, lhs_dilation=None, rhs_dilation=None,
                              dimension_numbers=None, feature_group_count: int = 1, batch_group_count: int = 1,
                              precision=None, preferred_element_type=None, out_sharding=None):
    """A convolution of which one array at least is sparse.

    Of one row with another, shapes (1, 1, n), by steps of 1, it has the products of all pairs of elements. Any other is that
    of dense arrays, made sparse again.
    Raises: NotImplementedError for an `out_sharding`; what `lax.conv_general_dilated` raises.
    """
    if out_sharding is not None:
        raise NotImplementedError("bcoo_conv_general_dilated: out_sharding is not supported")
    numbers = lax.conv_dimension_numbers(lhs.shape, rhs.shape, dimension_numbers)
    by_steps = all(step == 1 for steps in (window_strides, lhs_dilation or (), rhs_dilation or ()) for step in steps)
    if by_steps and lhs.shape[:-1] == rhs.shape[:-1] == (1, 1) and all(spec == (0, 1, 2) for spec in numbers):
        if isinstance(padding, str):
            padding = lax.padtype_to_pads(lhs.shape[2:], rhs.shape[2:], window_strides, padding)
        return _of_rows(lhs, rhs, padding[0], preferred_element_type)
    mat = lhs if is_sparse(lhs) else rhs
    image, kernel = (each.todense() if isinstance(each, JAXSparse) else each for each in (lhs, rhs))
    dense = lax.conv_general_dilated(
        image, kernel, window_strides, padding, lhs_dilation, rhs_dilation, dimension_numbers, feature_group_count,
        batch_group_count, precision, preferred_element_type)
    return type(mat).fromdense(dense, nse=min(mat.nse * (kernel if mat is lhs else image).size, dense.size))


def _of_rows(lhs, rhs, padding: Sequence[int], preferred_element_type):
    """The convolution of arrays (1, 1, n): an element for each pair of theirs, past the end where it is cut off."""
    if lhs.dtype != rhs.dtype:
        raise TypeError(f"lax.conv_general_dilated requires arguments to have the same dtypes, got {lhs.dtype}, {rhs.dtype}.")
    (x, places), (kernel, taps) = _elements(lhs), _elements(rhs)
    size = max(lhs.shape[2] + sum(padding) - rhs.shape[2] + 1, 0)
    at = (places[:, None] - taps + padding[0]).ravel()
    # What is past the end of an operand is in no pair.
    is_inside = (at >= 0) & (at < size) & ((places < lhs.shape[2])[:, None] & (taps < rhs.shape[2])).ravel()
    products = jnp.where(is_inside, (x[:, None] * kernel).ravel(), 0)
    if preferred_element_type is not None:
        products = products.astype(preferred_element_type)
    indices = jnp.where(is_inside, at, size)[:, None].astype(places.dtype)
    kind = type(lhs if is_sparse(lhs) else rhs)
    return kind((products[None, None], indices[None, None]), shape=(1, 1, size))


def _elements(mat) -> tuple[Any, Any]:
    """The elements of an array (1, 1, n) and their places; of a dense one all."""
    if not is_sparse(mat):
        return mat[0, 0], jnp.arange(mat.shape[2], dtype=np.int32)
    mat = mat.update_layout(n_batch=0)
    return mat.data, mat.indices[..., -1]
