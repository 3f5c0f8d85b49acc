"""Matrix products: `dot_general`, of which all others are cases, and the precisions they may ask for."""

from __future__ import annotations

import enum

import operator
from collections.abc import Sequence
from typing import Any, NamedTuple



from jaxlite.core import config, dtypes
from jaxlite.core.aval import ShapedArray, shaped_array
from jaxlite.core.primitive import Primitive
from jaxlite.core.values import aval_of
from jaxlite.lax import elementwise, shaping

DotDimensionNumbers = tuple[tuple[Sequence[int], Sequence[int]], tuple[Sequence[int], Sequence[int]]]


class Precision(enum.Enum):
    """How exactly accelerators multiply float32 matrices; the CPU is always exact."""

    DEFAULT = 0
    HIGH = 1
    HIGHEST = 2

    def __repr__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    __str__ = __repr__


class DotAlgorithm(NamedTuple):
    """An algorithm for a matrix product, in detail: the types of its parts and how it accumulates."""

    lhs_precision_type: Any
    rhs_precision_type: Any
    accumulation_type: Any
    lhs_component_count: int = 1
    rhs_component_count: int = 1
    num_primitive_operations: int = 1
    allow_imprecise_accumulation: bool = False


_TF32 = "tf32"


class DotAlgorithmPreset(enum.Enum):
    """Named algorithms for matrix products: `<lhs>_<rhs>_<accumulator>`."""

    DEFAULT = enum.auto()
    ANY_F8_ANY_F8_F32 = enum.auto()
    ANY_F8_ANY_F8_F32_FAST_ACCUM = enum.auto()
    ANY_F8_ANY_F8_ANY = enum.auto()
    ANY_F8_ANY_F8_ANY_FAST_ACCUM = enum.auto()
    F16_F16_F16 = enum.auto()
    F16_F16_F32 = enum.auto()
    BF16_BF16_BF16 = enum.auto()
    BF16_BF16_F32 = enum.auto()
    BF16_BF16_F32_X3 = enum.auto()
    BF16_BF16_F32_X6 = enum.auto()
    BF16_BF16_F32_X9 = enum.auto()
    TF32_TF32_F32 = enum.auto()
    TF32_TF32_F32_X3 = enum.auto()
    F32_F32_F32 = enum.auto()
    F64_F64_F64 = enum.auto()

    def __repr__(self) -> str:
        return f"DotAlgorithmPreset.{self.name}"

    __str__ = __repr__

    def algorithm(self, lhs_dtype: Any, rhs_dtype: Any) -> DotAlgorithm | None:
        """The algorithm in detail for operands of these dtypes; None for the default."""
        if self is DotAlgorithmPreset.DEFAULT:
            return None
        name = self.name
        if name.startswith("ANY_F8"):
            result = dtypes.float32
            return DotAlgorithm(lhs_dtype, rhs_dtype, result, allow_imprecise_accumulation=name.endswith("FAST_ACCUM"))
        parts = name.split("_")
        passes = int(parts[3][1:]) if len(parts) == 4 else 1
        names = {"F16": dtypes.float16, "BF16": dtypes.bfloat16, "TF32": _TF32, "F32": dtypes.float32,
                 "F64": dtypes.float64}
        components = {1: 1, 3: 1 if parts[0] == "TF32" else 2, 6: 3, 9: 3}[passes]
        return DotAlgorithm(names[parts[0]], names[parts[1]], names[parts[2]], components, components, passes)


_PRECISION_NAMES = {
    "default": Precision.DEFAULT, "fastest": Precision.DEFAULT, "bfloat16": Precision.DEFAULT,
    "high": Precision.HIGH, "bfloat16_3x": Precision.HIGH, "tensorfloat32": Precision.HIGH,
    "highest": Precision.HIGHEST, "float32": Precision.HIGHEST,
    None: Precision.DEFAULT,
}  # fmt: skip
PrecisionLike = None | str | Precision | tuple[str, str] | tuple[Precision, Precision] | DotAlgorithm | DotAlgorithmPreset


def canonicalize_precision(precision: Any) -> Any:
    """A pair of Precisions, an algorithm, or None, from what users may write. Raises: ValueError otherwise."""
    if precision is None:
        precision = config.default_matmul_precision.value
        if precision is None:
            return None
    if isinstance(precision, (DotAlgorithm, DotAlgorithmPreset)):
        return precision
    if isinstance(precision, str) and precision.upper() in DotAlgorithmPreset.__members__ and \
            precision not in _PRECISION_NAMES:
        return DotAlgorithmPreset[precision.upper()]
    pair = tuple(precision) if isinstance(precision, (tuple, list)) else (precision, precision)
    if len(pair) == 2 and all(isinstance(each, Precision) or each in _PRECISION_NAMES for each in pair):
        return tuple(each if isinstance(each, Precision) else _PRECISION_NAMES[each] for each in pair)
    raise ValueError(f"Precision argument must be None, a string in {[name for name in _PRECISION_NAMES if name]}, a "
                     f"lax.Precision value, a pair of those, or a lax.DotAlgorithmPreset; got {precision}")


dot_general_p = Primitive("dot_general")


@dot_general_p.def_abstract_eval
def _dot_general_aval(lhs: Any, rhs: Any, *, dimension_numbers: Any, precision: Any, preferred_element_type: Any,
                      out_sharding: Any = None) -> ShapedArray:
    (lhs_contract, rhs_contract), (lhs_batch, rhs_batch) = dimension_numbers
    for name, aval, contract, batch in (("lhs", lhs, lhs_contract, lhs_batch), ("rhs", rhs, rhs_contract, rhs_batch)):
        for axis in (*contract, *batch):
            if not 0 <= axis < len(aval.shape):
                raise TypeError(f"dot_general requires dimension numbers to be nonnegative and less than the number of "
                                f"axes of the {name} value, got axis {axis} for {name} of shape {aval.shape}.")
        if len({*contract, *batch}) != len(contract) + len(batch):
            raise TypeError(f"dot_general requires {name} batch and contracting dimensions to be distinct, got "
                            f"batch {batch} and contracting {contract}.")
    if len(lhs_batch) != len(rhs_batch) or len(lhs_contract) != len(rhs_contract):
        raise TypeError(f"dot_general requires equal numbers of lhs and rhs dimensions, got batch {lhs_batch} and "
                        f"{rhs_batch}, contracting {lhs_contract} and {rhs_contract}.")
    for what, left, right in (("batch", lhs_batch, rhs_batch), ("contracting", lhs_contract, rhs_contract)):
        left_sizes = tuple(lhs.shape[axis] for axis in left)
        right_sizes = tuple(rhs.shape[axis] for axis in right)
        if left_sizes != right_sizes:
            raise TypeError(f"dot_general requires {what} dimensions to have the same shape, got {left_sizes} and "
                            f"{right_sizes}.")
    batch = tuple(lhs.shape[axis] for axis in lhs_batch)
    lhs_rest = tuple(size for axis, size in enumerate(lhs.shape) if axis not in (*lhs_contract, *lhs_batch))
    rhs_rest = tuple(size for axis, size in enumerate(rhs.shape) if axis not in (*rhs_contract, *rhs_batch))
    if preferred_element_type is not None:
        dtype = preferred_element_type
        if dtypes.kind(lhs.dtype) == "c" and dtypes.kind(dtype) != "c":
            raise TypeError(f"dot_general: preferred_element_type {dtype} must be complex for complex operands")
    elif lhs.dtype == rhs.dtype:
        dtype = lhs.dtype
    else:
        dtype = dtypes.lattice_result(lhs.dtype, False, rhs.dtype, False)[0]
    weak = lhs.weak_type and rhs.weak_type and preferred_element_type is None
    return shaped_array(batch + lhs_rest + rhs_rest, dtype, weak)


def dot_general(lhs: Any, rhs: Any, dimension_numbers: DotDimensionNumbers, precision: Any = None,
                preferred_element_type: Any = None, *, out_sharding: Any = None) -> Any:
    """The general product: multiply along contracted axes and add up, for each index of the batch axes.

    Args:
      dimension_numbers: `((lhs_contracting, rhs_contracting), (lhs_batch, rhs_batch))`, sequences of axes; paired axes
        have equal sizes.
      precision: None, 'default', 'high', 'highest', a pair of those, or an algorithm.
      preferred_element_type: the dtype to accumulate in and return.
    Returns: an array of the batch axes, then the other axes of lhs, then those of rhs.
    Raises: TypeError for axes out of range, or sizes that do not match.
    """
    (lhs_contract, rhs_contract), (lhs_batch, rhs_batch) = dimension_numbers
    lhs_rank, rhs_rank = aval_of(lhs).ndim, aval_of(rhs).ndim
    numbers = ((_axes(lhs_contract, lhs_rank), _axes(rhs_contract, rhs_rank)),
               (_axes(lhs_batch, lhs_rank), _axes(rhs_batch, rhs_rank)))
    if preferred_element_type is not None:
        preferred_element_type = dtypes.check_user_dtype_supported(preferred_element_type, "dot_general")
    return dot_general_p.bind(lhs, rhs, dimension_numbers=numbers, precision=canonicalize_precision(precision),
                              preferred_element_type=preferred_element_type, out_sharding=None)


def _axes(axes: Any, rank: int) -> tuple[int, ...]:
    return tuple(axis + rank if -rank <= axis < 0 else axis for axis in map(operator.index, axes))


def dot(lhs: Any, rhs: Any, *args: Any, dimension_numbers: DotDimensionNumbers | None = None, precision: Any = None,
        preferred_element_type: Any = None, out_sharding: Any = None) -> Any:
    """The product of vectors and matrices: the last axis of lhs with the first of rhs; or `dot_general`, if
    dimension numbers are given."""
    if args:
        precision = args[0]
        preferred_element_type = args[1] if len(args) > 1 else preferred_element_type
    if dimension_numbers is None:
        left, right = aval_of(lhs).shape, aval_of(rhs).shape
        if not (1 <= len(left) <= 2 and 1 <= len(right) <= 2 and left[-1] == right[0]):
            raise TypeError(f"Incompatible shapes for dot: got {left} and {right}.")
        dimension_numbers = (((len(left) - 1,), (0,)), ((), ()))
    return dot_general(lhs, rhs, dimension_numbers, precision, preferred_element_type)


def batch_matmul(lhs: Any, rhs: Any, precision: Any = None) -> Any:
    """Matrix products over equal leading axes."""
    left, right = aval_of(lhs), aval_of(rhs)
    if left.ndim < 2 or right.ndim < 2:
        raise ValueError(f"Arguments to batch_matmul must be at least 2D, got {left.ndim}, {right.ndim}")
    if left.ndim != right.ndim:
        raise ValueError(f"Arguments to batch_matmul must have same ndim, got {left.ndim}, {right.ndim}")
    batch = tuple(range(left.ndim - 2))
    return dot_general(lhs, rhs, (((left.ndim - 1,), (left.ndim - 2,)), (batch, batch)), precision)


def ragged_dot(lhs: Any, rhs: Any, group_sizes: Any, precision: Any = None, preferred_element_type: Any = None,
               group_offset: Any = None, out_sharding: Any = None) -> Any:
    """A product whose rows are in groups, each with a matrix of its own.

    Args:
      lhs: (m, k); rhs: (g, k, n); group_sizes: (g,), integers; the first `group_sizes[0]` rows of lhs meet rhs[0], and
        so on. Rows beyond all groups give zeros.
    """
    left, right, sizes = aval_of(lhs), aval_of(rhs), aval_of(group_sizes)
    if left.ndim != 2 or right.ndim != 3 or sizes.ndim != 1:
        raise TypeError(f"ragged_dot takes lhs (m, k), rhs (g, k, n), group_sizes (g,); got {left}, {right}, {sizes}")
    if left.shape[1] != right.shape[1] or right.shape[0] != sizes.shape[0]:
        raise TypeError(f"ragged_dot: sizes do not match: lhs {left.shape}, rhs {right.shape}, group_sizes {sizes.shape}")
    if group_offset is not None:
        raise NotImplementedError("ragged_dot: group_offset is not supported")
    rows, groups = left.shape[0], right.shape[0]
    from_type = dtypes.int32
    ends = shaping.convert(group_sizes, from_type, False)
    triangle = shaping.convert(elementwise.ge(shaping.broadcasted_iota(from_type, (groups, groups), 0),
                                              shaping.broadcasted_iota(from_type, (groups, groups), 1)), from_type, False)
    ends = dot_general(triangle, ends, (((1,), (0,)), ((), ())))
    starts = elementwise.sub(ends, shaping.convert(group_sizes, from_type, False))
    row = shaping.broadcasted_iota(from_type, (groups, rows), 1)
    inside = elementwise.bitwise_and(
        elementwise.ge(row, shaping.broadcast_in_dim(starts, (groups, rows), (0,))),
        elementwise.lt(row, shaping.broadcast_in_dim(ends, (groups, rows), (0,))))
    shape = (groups, rows, left.shape[1])
    spread = shaping.broadcast_in_dim(lhs, shape, (1, 2))
    masked = elementwise.select_n(shaping.broadcast_in_dim(inside, shape, (0, 1)), shaping.full_like(spread, 0), spread)
    return dot_general(masked, rhs, (((0, 2), (0, 1)), ((), ())), precision, preferred_element_type)


