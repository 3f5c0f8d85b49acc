"""Sorting: several arrays at once by some of them, and the largest elements, exactly or approximately."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from jaxlite.core import dtypes
from jaxlite.core.aval import ShapedArray, shaped_array
from jaxlite.core.axes import with_sizes
from jaxlite.core.filtering import boundary
from jaxlite.core.primitive import Primitive
from jaxlite.core.symbolic import as_size
from jaxlite.core.values import aval_of
from jaxlite.lax.elementwise import require_kind
from lowering import xla

sort_p = Primitive("sort", multiple_results=True)
top_k_p = Primitive("top_k", multiple_results=True)
approx_top_k_p = Primitive("approx_top_k", multiple_results=True)
if xla.VERSION >= (0, 12):  # as JAX of the same jaxlib
    top_k_p.leaves_out(is_stable=True)


def _axis_of(name: str, axis, rank: int) -> int:
    """An axis counted from the front. Raises: ValueError if there is none such, TypeError for no integer."""
    axis = operator.index(axis)
    if not -rank <= axis < rank:
        raise ValueError(f"{name}: axis {axis} is out of bounds for array of dimension {rank}")
    return axis % rank


@sort_p.def_abstract_eval
def _sort_avals(*avals, dimension: int, is_stable: bool, num_keys: int) -> list[ShapedArray]:
    if not 1 <= num_keys <= len(avals):
        raise ValueError(f"sort: num_keys={num_keys} must be between 1 and len(operand)={len(avals)}")
    if any(aval.shape != avals[0].shape for aval in avals):
        raise TypeError(f"Arguments to sort must have equal shapes, got: {' '.join(str(aval.shape) for aval in avals)}")
    if not 0 <= dimension < len(avals[0].shape):
        raise ValueError(f"sort: dimension {dimension} is out of bounds for shape {avals[0].shape}")
    for position, aval in enumerate(avals[:num_keys]):
        require_kind("sort", aval, "biufc", position)
    return list(avals)


@boundary
def sort(operand, dimension: int = -1, is_stable: bool = True, num_keys: int = 1):
    """Sort along a dimension, ascending.

    NaN comes last, -0.0 and 0.0 are equal, complex numbers are ordered by real, then imaginary part.

    Args:
      operand: an array, or a sequence of arrays of one shape that are permuted alike.
      dimension: in [-rank, rank).
      is_stable: whether equal elements keep their order.
      num_keys: how many of the arrays decide the order, the first one most.
    Returns: the sorted array, or a tuple of arrays for a sequence.
    Raises: TypeError for shapes that differ, ValueError for the dimension or `num_keys`.

    >>> import numpy as np
    >>> keys, values = sort((np.array([3, 1, 2]), np.array([30., 10., 20.])))
    >>> values.tolist()
    [10.0, 20.0, 30.0]
    """
    several = isinstance(operand, Sequence)
    operands = tuple(operand) if several else (operand,)
    if not operands:
        raise TypeError("Sort requires at least one operand")
    num_keys = operator.index(num_keys)
    if not 1 <= num_keys <= len(operands):
        raise ValueError(f"num_keys={num_keys} must be between 1 and len(operand)={len(operands)}")
    dimension = _axis_of("sort", dimension, len(aval_of(operands[0]).shape))
    results = sort_p.bind(*operands, dimension=dimension, is_stable=bool(is_stable), num_keys=num_keys)
    return tuple(results) if several else results[0]


@boundary
def sort_key_val(keys, values, dimension: int = -1, is_stable: bool = True) -> tuple[Any, Any]:
    """Sort `keys` along a dimension and permute `values`, of the same shape, alike. As `sort`."""
    keys, values = sort((keys, values), dimension=dimension, is_stable=is_stable, num_keys=1)
    return keys, values


@top_k_p.def_abstract_eval
def _top_k_avals(x, *, k: int, axis: int, is_stable: bool = True) -> list[ShapedArray]:
    if dtypes.kind(x.dtype) == "c":
        raise ValueError("top_k is not compatible with complex inputs.")
    require_kind("top_k", x, "biuf")
    if k < 0:
        raise ValueError(f"k argument to top_k must be nonnegative, got {k}")
    if not 0 <= axis < len(x.shape):
        raise ValueError(f"top_k: axis {axis} is out of bounds for shape {x.shape}")
    if k > x.shape[axis]:
        raise ValueError(f"k argument to top_k must be no larger than size along axis; got {k=} with "
                         f"shape={list(x.shape)} and {axis=}")
    shape = with_sizes(x.shape, axis, k)
    return [shaped_array(shape, x.dtype, x.weak_type), shaped_array(shape, dtypes.int32, x.weak_type)]


@boundary
def top_k(operand, k: int, *, axis: int = -1, is_stable: bool = True) -> list[Any]:
    """The k largest elements along an axis, in descending order, and where they are.

    Elements are in total order: NaN before infinity, 0.0 before -0.0. Of equal ones the first comes first.

    Args:
      operand: an array of real numbers or booleans.
      k: how many; at most the size of `axis`.
      axis: in [-rank, rank).
      is_stable: equal elements keep their order here in any case.
    Returns: [values, indices]; indices are int32.
    Raises: ValueError for `k`, `axis` or complex numbers.

    >>> import numpy as np
    >>> values, indices = top_k(np.array([3., 9., 4.]), 2)
    >>> values.tolist(), indices.tolist()
    ([9.0, 4.0], [1, 2])
    """
    return top_k_p.bind(operand, k=as_size(k), axis=_axis_of("top_k", axis, len(aval_of(operand).shape)))


@approx_top_k_p.def_abstract_eval
def _approx_top_k_avals(x, *, k: int, reduction_dimension: int, recall_target: float, is_max_k: bool,
                        reduction_input_size_override: int, aggregate_to_topk: bool) -> list[ShapedArray]:
    if dtypes.kind(x.dtype) != "f":
        raise ValueError(f"operand must be a floating type, got {x.dtype}")
    if not x.shape:
        raise TypeError("approx_top_k operand must have >= 1 dimension, got ()")
    axis = _axis_of("approx_top_k", reduction_dimension, len(x.shape))
    size = x.shape[axis]
    if k <= 0:
        raise ValueError(f"k must be positive, got {k}")
    if k > size:
        raise ValueError(f"k must be smaller than the size of reduction_dim {size}, got {k}")
    if not 0 < recall_target <= 1:
        raise ValueError(f"recall_target must be in (0, 1], got {recall_target}")
    if -1 < reduction_input_size_override < size:
        raise ValueError(f"reduction_input_size_override must be at least the size of reduction_dim {size}, got "
                         f"{reduction_input_size_override}")
    count = k if aggregate_to_topk else min(size, xla.approx_top_k_output_size(
        size, len(x.shape), k, recall_target, False, reduction_input_size_override)[0])
    shape = with_sizes(x.shape, axis, count)
    return [shaped_array(shape, x.dtype, x.weak_type), shaped_array(shape, dtypes.int32, x.weak_type)]


@boundary
def approx_max_k(operand, k: int, reduction_dimension: int = -1, recall_target: float = 0.95,
                 reduction_input_size_override: int = -1, aggregate_to_topk: bool = True) -> list[Any]:
    """k large elements along a dimension, in descending order, and where they are.

    At least a share of `recall_target` of them are among the k largest; here all are, as only other hardware
    gains by less.

    Args:
      operand: a floating array.
      k: how many, positive.
      reduction_dimension: in [-rank, rank).
      recall_target: in (0, 1].
      reduction_input_size_override: the size of the dimension that the recall is for, where the operand is a part
        of something larger; -1 for its own.
      aggregate_to_topk: whether to give k elements, or the longer list of candidates from which they come.
    Returns: [values, indices]; indices are int32.
    Raises: ValueError for arguments out of range.

    >>> import numpy as np
    >>> values, indices = approx_max_k(np.array([3., 9., 4.]), 2)
    >>> values.tolist(), indices.tolist()
    ([9.0, 4.0], [1, 2])
    """
    return _approx_top_k(operand, k, reduction_dimension, recall_target, True, reduction_input_size_override,
                         aggregate_to_topk)


@boundary
def approx_min_k(operand, k: int, reduction_dimension: int = -1, recall_target: float = 0.95,
                 reduction_input_size_override: int = -1, aggregate_to_topk: bool = True) -> list[Any]:
    """k small elements along a dimension, in ascending order, and where they are. As `approx_max_k`."""
    return _approx_top_k(operand, k, reduction_dimension, recall_target, False, reduction_input_size_override,
                         aggregate_to_topk)


def _approx_top_k(operand, k: int, dimension: int, recall_target: float, is_max_k: bool, override: int,
                  aggregate_to_topk: bool) -> list[Any]:
    return approx_top_k_p.bind(
        operand, k=operator.index(k), reduction_dimension=operator.index(dimension),
        recall_target=float(recall_target), is_max_k=is_max_k,
        reduction_input_size_override=operator.index(override), aggregate_to_topk=bool(aggregate_to_topk))
