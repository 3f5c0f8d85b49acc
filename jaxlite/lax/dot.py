"""Matrix products: `dot_general`, which includes all others as special cases, and precisions."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

from jaxlite.core import config, dtypes
from jaxlite.core.aval import Ints, ShapedArray, shaped_array
from jaxlite.core.filtering import boundary
from jaxlite.core.precision import PRECISION_NAMES, DotAlgorithmPreset, Precision
from jaxlite.core.primitive import Primitive
from jaxlite.core.values import aval_of
from jaxlite.devices import placement

DotDimensionNumbers = tuple[tuple[Sequence[int], Sequence[int]], tuple[Sequence[int], Sequence[int]]]

# --- precision ---------------------------------------------------------------------------------------


class DotAlgorithm(NamedTuple):
    """How a matrix product is computed, in detail.

    The operands are taken apart into so many components of a type each, whose products are accumulated in a third
    type. `num_primitive_operations` counts the products of components that are added up.
    """

    lhs_precision_type: Any
    rhs_precision_type: Any
    accumulation_type: Any
    lhs_component_count: int = 1
    rhs_component_count: int = 1
    num_primitive_operations: int = 1
    allow_imprecise_accumulation: bool = False


PrecisionLike = (None | str | Precision | tuple[str, str] | tuple[Precision, Precision] | DotAlgorithm
                 | DotAlgorithmPreset)


def canonicalize_precision(precision):
    """A pair of Precisions, an algorithm, or None, from what users may write. Raises: ValueError otherwise."""
    if precision is None:
        precision = config.default_matmul_precision.value
        if precision is None:
            return None
    if isinstance(precision, (DotAlgorithm, DotAlgorithmPreset)):
        return precision
    if isinstance(precision, str) and precision in DotAlgorithmPreset.__members__:
        return DotAlgorithmPreset[precision]
    pair = tuple(precision) if isinstance(precision, (tuple, list)) else (precision, precision)
    if len(pair) == 2:
        found = [each if isinstance(each, Precision) else PRECISION_NAMES.get(each) if isinstance(each, str) else None
                 for each in pair]
        if None not in found:
            return tuple(found)
    raise ValueError(f"Precision argument must be None, a string in {list(PRECISION_NAMES)}, a lax.Precision value, a "
                     f"pair of those, or a lax.DotAlgorithmPreset or its name; got {precision}")


# --- dot_general -------------------------------------------------------------------------------------

dot_general_p = Primitive("dot_general")
_RANKS = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}


def _strength(dtype) -> tuple[int, float, bool]:
    kind = dtypes.kind(dtype)
    reach = float(dtypes.finfo(dtype).max) if kind == "f" else dtypes.itemsize_bits(dtype)
    return _RANKS[kind], reach, kind == "i"


def product_dtype(name: str, left, right, preferred):
    """The dtype of products of two dtypes: the preferred one, else the stronger of the two.

    That is not promotion: the stronger one is of the higher kind, among floats the one that holds larger numbers,
    among integers the wider, then the signed one.
    Raises: TypeError if neither is stronger, or if the preferred one is narrower than integer or complex operands.
    """
    natural = left
    if left != right:
        one, other = _strength(left), _strength(right)
        if one == other:
            raise TypeError(f"{name}: neither of {left} and {right} is stronger than the other; convert one first")
        natural = left if one > other else right
    if preferred is None:
        return natural
    if dtypes.kind(natural) in "iuc" and _component_bits(preferred) < _component_bits(natural):
        raise TypeError(f"{name}: preferred_element_type must not be narrower than the type of the product, got "
                        f"{preferred} for {natural}.")
    return preferred


def _component_bits(dtype) -> int:
    kind = dtypes.kind(dtype)
    return 1 if kind == "b" else dtypes.itemsize_bits(dtype) // (2 if kind == "c" else 1)


@dot_general_p.def_abstract_eval
def _dot_general_aval(lhs, rhs, *, dimension_numbers, precision, preferred_element_type,
                      out_sharding=None) -> ShapedArray:
    dtype = product_dtype("dot_general", lhs.dtype, rhs.dtype, preferred_element_type)
    return shaped_array(dot_general_shape(lhs, rhs, dimension_numbers), dtype, lhs.weak_type and rhs.weak_type)


def dot_general_shape(lhs, rhs, dimension_numbers) -> Ints:
    """The shape of a product. Raises: TypeError for dimension numbers that do not fit the operands."""
    (lhs_contract, rhs_contract), (lhs_batch, rhs_batch) = dimension_numbers
    for name, aval, contract, batch in (("lhs", lhs, lhs_contract, lhs_batch), ("rhs", rhs, rhs_contract, rhs_batch)):
        for axis in (*contract, *batch):
            if not 0 <= axis < len(aval.shape):
                raise TypeError(f"dot_general requires dimension numbers to be nonnegative and less than the number of "
                                f"axes of the {name} value, got axis {axis} for {name} of shape {aval.shape}.")
        if len({*contract, *batch}) != len(contract) + len(batch):
            raise TypeError(f"dot_general requires {name} batch dimensions to be disjoint from contracting dimensions, got "
                            f"{name}_batch {batch} and {name}_contracting {contract}.")
    for what, left, right in (("batch", lhs_batch, rhs_batch), ("contracting", lhs_contract, rhs_contract)):
        if len(left) != len(right):
            raise TypeError(f"dot_general requires equal numbers of lhs_{what} and rhs_{what} dimensions, got "
                            f"lhs_{what} {left} and rhs_{what} {right}.")
        left_sizes = tuple(lhs.shape[axis] for axis in left)
        right_sizes = tuple(rhs.shape[axis] for axis in right)
        if left_sizes != right_sizes:
            which = "contracting dimensions" if what == "contracting" else "lhs batch dimensions and rhs batch dimensions"
            raise TypeError(f"dot_general requires {which} to have the same shape, got {left_sizes} for axes "
                            f"{left} of lhs {lhs.shape} and {right_sizes} for axes {right} of rhs {rhs.shape}.")
    return (*(lhs.shape[axis] for axis in lhs_batch),
            *(size for axis, size in enumerate(lhs.shape) if axis not in (*lhs_contract, *lhs_batch)),
            *(size for axis, size in enumerate(rhs.shape) if axis not in (*rhs_contract, *rhs_batch)))


@boundary
def dot_general(lhs, rhs, dimension_numbers: DotDimensionNumbers, precision=None, preferred_element_type=None, *,
                out_sharding=None):
    """The general product: multiply along contracted axes and add up, for each index of the batch axes.

    Args:
      lhs, rhs: arrays of any dtypes; if they differ, both are converted to the result's.
      dimension_numbers: `((lhs_contracting, rhs_contracting), (lhs_batch, rhs_batch))`, sequences of axes >= 0; paired
        axes have equal sizes.
      precision: None, 'default', 'high', 'highest', a pair of those, or an algorithm: a `DotAlgorithmPreset`, its
        name, or a `DotAlgorithm`. On the CPU the first three are one.
      preferred_element_type: the dtype to accumulate in and return; default that of the operands.
      out_sharding: how the result is laid out over devices.
    Returns: an array of the batch axes, then the other axes of lhs, then those of rhs.
    Raises: TypeError for axes out of range, sizes that do not match, or a preferred dtype narrower than integer
      operands; ValueError for the precision.

    >>> import numpy as np
    >>> rows, columns = np.ones((4, 2, 3), np.int8), np.ones((4, 3, 5), np.int8)
    >>> dot_general(rows, columns, (([2], [1]), ([0], [0])), preferred_element_type=np.int32).shape
    (4, 2, 5)
    """
    preferred_element_type = dtypes.requested_dtype(preferred_element_type, "dot_general")
    return placement.laid_out_by(
        out_sharding, _product, lhs, rhs, dimension_numbers=canonical_dimension_numbers(dimension_numbers),
        precision=canonicalize_precision(precision), preferred_element_type=preferred_element_type)


def _product(lhs, rhs, **params):
    return dot_general_p.bind(lhs, rhs, **params, out_sharding=placement.product_sharding())


def canonical_dimension_numbers(dimension_numbers):
    """Dimension numbers of `dot_general` as tuples of ints. Raises: ValueError unless they are two pairs."""
    try:
        (lhs_contract, rhs_contract), (lhs_batch, rhs_batch) = dimension_numbers
        return ((_axes(lhs_contract), _axes(rhs_contract)), (_axes(lhs_batch), _axes(rhs_batch)))
    except (TypeError, ValueError):
        raise ValueError("dimension_numbers of dot_general must be ((lhs_contracting, rhs_contracting), (lhs_batch, "
                         f"rhs_batch)), each a sequence of ints; got {dimension_numbers}") from None


def _axes(axes) -> Ints:
    return tuple(map(operator.index, axes))


# --- its relatives -----------------------------------------------------------------------------------


@boundary
def dot(lhs, rhs, *, dimension_numbers: DotDimensionNumbers | None = None, precision=None, preferred_element_type=None,
        out_sharding=None):
    """The product of two vectors or matrices; or `dot_general`, if dimension numbers are given.

    Args: as of `dot_general`. Without dimension numbers the last axis of lhs is contracted with the first of rhs, and
      both have one or two axes.
    Raises: ValueError for other ranks or unequal sizes; TypeError for what `dot_general` refuses.
    """
    if dimension_numbers is None:
        left, right = aval_of(lhs).shape, aval_of(rhs).shape
        if not (1 <= len(left) <= 2 and 1 <= len(right) <= 2 and left[-1] == right[0]):
            raise ValueError("jax.lax.dot: dimension_numbers must be specified when not performing simple un-batched "
                             f"matrix-matrix, matrix-vector, or vector-vector products; got lhs_shape={left} rhs_shape={right}")
        dimension_numbers = (((len(left) - 1,), (0,)), ((), ()))
    return dot_general(lhs, rhs, dimension_numbers, precision, preferred_element_type, out_sharding=out_sharding)


def batch_matmul(lhs, rhs, precision=None):
    """Matrix products over equal leading axes.

    Args:
      lhs: (..., m, k); rhs: (..., k, n), of the same rank.
      precision: as of `dot_general`.
    Raises: ValueError for the ranks, TypeError for sizes that do not match.
    """
    left, right = aval_of(lhs), aval_of(rhs)
    if left.ndim < 2 or right.ndim < 2:
        raise ValueError(f"Arguments to batch_matmul must be at least 2D, got {left.ndim}, {right.ndim}")
    if left.ndim != right.ndim:
        raise ValueError(f"Arguments to batch_matmul must have same ndim, got {left.ndim}, {right.ndim}")
    batch = tuple(range(left.ndim - 2))
    return dot_general(lhs, rhs, (((left.ndim - 1,), (left.ndim - 2,)), (batch, batch)), precision)
