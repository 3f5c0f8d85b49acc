"""Convolution: `conv_general_dilated`, which includes all others as special cases, with its shapes and paddings."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

from jaxlite.core import dtypes
from jaxlite.core.aval import Ints, ShapedArray, shaped_array
from jaxlite.core.filtering import boundary
from jaxlite.core.primitive import Primitive, register_rule_modules
from jaxlite.core.symbolic import largest
from jaxlite.core.values import aval_of
from jaxlite.devices.placement import laid_out_by
from jaxlite.lax import elementwise, shaping
from jaxlite.lax.dot import canonicalize_precision, dot_general


class ConvDimensionNumbers(NamedTuple):
    """For each array of a convolution the positions of its axes.

    lhs_spec and out_spec: batch, feature, then the spatial axes. rhs_spec: output feature, input feature, spatial.
    """

    lhs_spec: Sequence[int]
    rhs_spec: Sequence[int]
    out_spec: Sequence[int]


ConvGeneralDilatedDimensionNumbers = None | ConvDimensionNumbers | tuple[str, str, str]


@boundary
def conv_dimension_numbers(lhs_shape, rhs_shape, dimension_numbers) -> ConvDimensionNumbers:
    """Positions from what users write: None for `('NCHW', 'OIHW', 'NCHW')` of the given rank, or three strings.

    Raises: TypeError or ValueError for specs that do not fit the arrays.
    """
    if isinstance(dimension_numbers, ConvDimensionNumbers):
        return dimension_numbers
    if len(lhs_shape) != len(rhs_shape):
        raise TypeError(f"convolution requires lhs and rhs ndim to be equal, got {len(lhs_shape)} and "
                        f"{len(rhs_shape)}.")
    rank = len(lhs_shape)
    if dimension_numbers is None:
        order = tuple(range(rank))
        return ConvDimensionNumbers(order, order, order)
    if not isinstance(dimension_numbers, (list, tuple)) or len(dimension_numbers) != 3:
        raise TypeError("convolution dimension_numbers must be None, or a tuple or list of length 3, got "
                        f"{dimension_numbers}.")
    for index, spec in enumerate(dimension_numbers):
        if not isinstance(spec, str):
            raise TypeError(f"convolution dimension_numbers elements must be strings, got {type(spec)} at position {index}.")
        if len(spec) != rank:
            raise TypeError(f"convolution dimension_numbers[{index}] must have len equal to the ndim of lhs and rhs, {rank}: "
                            f"one letter for each axis. Got {spec!r}.")
    return ConvDimensionNumbers(*conv_general_permutations(dimension_numbers))


@boundary
def conv_general_permutations(dimension_numbers) -> tuple[Ints, Ints, Ints]:
    """The positions of the axes in three specs such as `('NHWC', 'HWIO', 'NHWC')`."""
    lhs_spec, rhs_spec, out_spec = dimension_numbers
    for index, (spec, first, second) in enumerate(zip(dimension_numbers, "NON", "CIC", strict=True)):
        if spec.count(first) != 1 or spec.count(second) != 1:
            raise TypeError(f"convolution dimension_numbers[{index}] must contain the characters {first!r} and {second!r} "
                            f"exactly once, got {spec}.")
        if len(set(spec)) != len(spec):
            raise TypeError(f"convolution dimension_numbers elements must have all unique characters, got {spec!r}")
    spatial = [letter for letter in rhs_spec if letter not in "OI"]
    for spec in (lhs_spec, out_spec):
        if {letter for letter in spec if letter not in "NC"} != set(spatial):
            raise TypeError(f"convolution dimension_numbers must name the same spatial axes, got {dimension_numbers}")

    def positions(spec: str, leading: str) -> Ints:
        return tuple(spec.index(letter) for letter in (*leading, *spatial))

    return positions(lhs_spec, "NC"), positions(rhs_spec, "OI"), positions(out_spec, "NC")


def _dilate(size: int, dilation: int) -> int:
    return 0 if size == 0 else 1 + dilation * (size - 1)


def _pads_for(padding: str, sizes: Sequence[int], window: Sequence[int], strides: Sequence[int],
              ) -> list[tuple[int, int]]:
    kind = padding.upper() if isinstance(padding, str) else padding
    if kind == "VALID":
        return [(0, 0)] * len(sizes)
    if kind not in ("SAME", "SAME_LOWER"):
        raise RuntimeError(f"Unrecognized padding type: expected 'VALID', 'SAME', or 'SAME_LOWER', got {padding}.")
    pads = []
    for size, extent, stride in zip(sizes, window, strides, strict=True):
        total = largest(0, (-(-size // stride) - 1) * stride + extent - size)
        low = total // 2 if kind == "SAME" else total - total // 2
        pads.append((low, total - low))
    return pads


def _out_sizes(lhs: Sequence[int], rhs: Sequence[int], strides: Sequence[int], pads: Sequence[tuple[int, int]],
               ) -> list[int]:
    return [largest((size + low + high - extent) // stride + 1, 0)
            for size, extent, stride, (low, high) in zip(lhs, rhs, strides, pads, strict=True)]


@boundary
def conv_shape_tuple(lhs_shape, rhs_shape, strides, pads, batch_group_count: int = 1) -> Ints:
    """The result shape of a convolution in NCHW / OIHW order."""
    if isinstance(pads, str):
        pads = _pads_for(pads, lhs_shape[2:], rhs_shape[2:], strides)
    if len(pads) != len(lhs_shape) - 2:
        raise TypeError(f"Wrong number of explicit pads for convolution: expected {len(lhs_shape) - 2}, got "
                        f"{len(pads)}.")
    return (lhs_shape[0] // batch_group_count, rhs_shape[0],
            *_out_sizes(lhs_shape[2:], rhs_shape[2:], strides, pads))


def _permute(shape, spec: Sequence[int]) -> Ints:
    return tuple(shape[axis] for axis in spec)


def _unpermute(shape, spec: Sequence[int]) -> Ints:
    result = [0] * len(spec)
    for axis, size in zip(spec, shape, strict=True):
        result[axis] = size
    return tuple(result)


@boundary
def conv_general_shape_tuple(lhs_shape, rhs_shape, window_strides, padding, dimension_numbers) -> Ints:
    """The result shape of a convolution in any order of axes."""
    lhs_spec, rhs_spec, out_spec = conv_dimension_numbers(lhs_shape, rhs_shape, dimension_numbers)
    out = conv_shape_tuple(_permute(lhs_shape, lhs_spec), _permute(rhs_shape, rhs_spec), window_strides, padding)
    return _unpermute(out, out_spec)


@boundary
def conv_transpose_shape_tuple(lhs_shape, rhs_shape, window_strides, padding, dimension_numbers) -> Ints:
    """The result shape of a transposed convolution in any order of axes."""
    lhs_spec, rhs_spec, out_spec = conv_dimension_numbers(lhs_shape, rhs_shape, dimension_numbers)
    lhs, rhs = _permute(lhs_shape, lhs_spec), _permute(rhs_shape, rhs_spec)
    if isinstance(padding, str):
        padding = [_transpose_padding(extent, stride, padding)
                   for extent, stride in zip(rhs[2:], window_strides, strict=True)]
    spread = [_dilate(size, stride) for size, stride in zip(lhs[2:], window_strides, strict=True)]
    out = (lhs[0], rhs[0], *_out_sizes(spread, rhs[2:], [1] * len(spread), padding))
    return _unpermute(out, out_spec)


conv_general_dilated_p = Primitive("conv_general_dilated")


@conv_general_dilated_p.def_abstract_eval
def _conv_aval(lhs, rhs, *, window_strides, padding, lhs_dilation, rhs_dilation, dimension_numbers,
               feature_group_count: int, batch_group_count: int, precision, preferred_element_type,
               out_sharding=None) -> ShapedArray:
    name = "conv_general_dilated"
    elementwise.require_equal_dtypes(name, (lhs, rhs))
    elementwise.require_kind(name, lhs, "iufcb")
    if len(lhs.shape) != len(rhs.shape):
        raise TypeError(f"convolution requires lhs and rhs ndim to be equal, got {len(lhs.shape)} and "
                        f"{len(rhs.shape)}.")
    rank = len(lhs.shape) - 2
    if rank < 0:
        raise TypeError(f"{name} takes arrays of at least 2 axes, got {lhs.shape}")
    for what, values in (("window_strides", window_strides), ("lhs_dilation", lhs_dilation),
                         ("rhs_dilation", rhs_dilation)):
        if len(values) != rank:
            raise ValueError(f"{name} window and {what} must have the same number of dimensions, but got {rank} and "
                             f"{len(values)}")
        if any(value < 1 for value in values):
            raise (TypeError if what == "rhs_dilation" else ValueError)(
                f"All elements of {what} must be positive, got {values}.")
    if len(padding) != rank:
        raise TypeError(f"Wrong number of explicit pads for convolution: expected {rank}, got {len(padding)}.")
    left, right = _permute(lhs.shape, dimension_numbers.lhs_spec), _permute(rhs.shape, dimension_numbers.rhs_spec)
    if feature_group_count < 1 or batch_group_count < 1:
        raise ValueError(f"{name} feature_group_count and batch_group_count must be positive, got "
                         f"{feature_group_count} and {batch_group_count}.")
    if feature_group_count > 1 and batch_group_count > 1:
        raise ValueError(f"At most one of batch_group_count and feature_group_count may be > 1, got "
                         f"{batch_group_count} and {feature_group_count}")
    if left[1] % feature_group_count:
        raise ValueError(f"{name} feature_group_count must divide lhs feature dimension size, but "
                         f"{feature_group_count} does not divide {left[1]}.")
    if left[1] // feature_group_count != right[1]:
        raise ValueError(f"{name} lhs feature dimension size divided by feature_group_count must equal the rhs input "
                         f"feature dimension size, but {left[1]} // {feature_group_count} != {right[1]}.")
    if right[0] % feature_group_count or right[0] % batch_group_count:
        raise ValueError(f"{name} rhs output feature dimension size must be a multiple of the group counts, but got "
                         f"{right[0]}, {feature_group_count} and {batch_group_count}.")
    if left[0] % batch_group_count:
        raise ValueError(f"{name} batch_group_count must divide lhs batch dimension size, but {batch_group_count} does "
                         f"not divide {left[0]}.")
    if 0 in right[2:]:
        raise ValueError(f"{name}: the window must not be empty, got rhs of shape {rhs.shape}")
    sizes = [_dilate(size, step) for size, step in zip(left[2:], lhs_dilation, strict=True)]
    window = [_dilate(size, step) for size, step in zip(right[2:], rhs_dilation, strict=True)]
    out = (left[0] // batch_group_count, right[0], *_out_sizes(sizes, window, window_strides, padding))
    dtype = _result_dtype(name, lhs.dtype, preferred_element_type)
    return shaped_array(_unpermute(out, dimension_numbers.out_spec), dtype, lhs.weak_type and rhs.weak_type)


def _result_dtype(name: str, dtype, preferred):
    if preferred is None or preferred == dtype:
        return dtype
    given, wanted = dtypes.kind(dtype), dtypes.kind(preferred)
    if wanted not in {"b": "biuf", "i": "iuf", "u": "iuf", "f": "f", "c": "c"}[given]:
        raise TypeError(f"{name}: Input type is incompatible with `preferred_element_type`: {preferred} for {dtype}. Integers "
                        "can give integers or floats, floats give floats, complex numbers complex numbers")
    if dtypes.itemsize_bits(preferred) < dtypes.itemsize_bits(dtype):
        raise TypeError(f"{name}: preferred_element_type must not be narrower than the operands, got {preferred} "
                        f"for {dtype}")
    return preferred


def _ints(values) -> Ints:
    return tuple(map(operator.index, values))


@boundary
def conv_general_dilated(lhs, rhs, window_strides: Sequence[int], padding: str | Sequence[tuple[int, int]],
                         lhs_dilation: Sequence[int] | None = None, rhs_dilation: Sequence[int] | None = None,
                         dimension_numbers=None, feature_group_count: int = 1, batch_group_count: int = 1,
                         precision=None, preferred_element_type=None, out_sharding=None):
    """Convolve (cross-correlate) over n spatial axes, with strides, dilations and groups.

    Args:
      lhs: the input: batch, features and n spatial axes, in the order that `dimension_numbers` says.
      rhs: the kernel: output features, input features and n spatial axes.
      window_strides: n steps of the window.
      padding: 'SAME', 'SAME_LOWER', 'VALID', or n pairs (before, after); negative pads crop.
      lhs_dilation, rhs_dilation: n factors by which elements are spread; default 1.
      dimension_numbers: None for `('NCHW', 'OIHW', 'NCHW')`, three such strings, or `ConvDimensionNumbers`.
      feature_group_count, batch_group_count: independent groups of features, or of the batch.
      preferred_element_type: the dtype to accumulate in and return.
      out_sharding: how the result is on a mesh; over explicit axes it is needed where features or the kernel are cut.
    Returns: an array of batch, output features and the spatial axes, in the order of the third spec.
    Raises: TypeError or ValueError that name the sizes that do not fit.
    """
    lhs_aval, rhs_aval = aval_of(lhs), aval_of(rhs)
    numbers = conv_dimension_numbers(lhs_aval.shape, rhs_aval.shape, dimension_numbers)
    rank = lhs_aval.ndim - 2
    strides = _ints(window_strides)
    lhs_steps = _ints(lhs_dilation) if lhs_dilation is not None else (1,) * rank
    rhs_steps = _ints(rhs_dilation) if rhs_dilation is not None else (1,) * rank
    if isinstance(padding, str):
        if any(step != 1 for step in lhs_steps):
            raise ValueError("String padding is not implemented for transposed convolution using this op. Give the pads, or "
                             "use conv_transpose, which has its own meaning of 'SAME' and 'VALID'.")
        if len(strides) != rank or len(lhs_steps) != rank or len(rhs_steps) != rank:
            pads: Any = [(0, 0)] * rank  # the typing rule names the length that is off
        else:
            sizes = _permute(lhs_aval.shape, numbers.lhs_spec)[2:]
            window = [_dilate(size, step) for size, step
                      in zip(_permute(rhs_aval.shape, numbers.rhs_spec)[2:], rhs_steps, strict=True)]
            spread = [_dilate(size, step) for size, step in zip(sizes, lhs_steps, strict=True)]
            if any(stride < 1 for stride in strides):
                raise ValueError(f"All elements of window_strides must be positive, got {strides}.")
            pads = _pads_for(padding, spread, window, strides)
    else:
        try:
            pads = [(operator.index(low), operator.index(high)) for low, high in padding]
        except (TypeError, ValueError):
            raise ValueError("padding argument to conv_general_dilated should be a string or a sequence of (low, high) "
                             f"pairs, got {padding}") from None
    preferred_element_type = dtypes.requested_dtype(preferred_element_type, "conv_general_dilated")
    numbers = ConvDimensionNumbers(*(tuple(map(operator.index, spec)) for spec in numbers))
    return laid_out_by(
        out_sharding, conv_general_dilated_p.bind,
        lhs, rhs, window_strides=strides, padding=tuple(map(tuple, pads)), lhs_dilation=lhs_steps,
        rhs_dilation=rhs_steps, dimension_numbers=numbers, feature_group_count=operator.index(feature_group_count),
        batch_group_count=operator.index(batch_group_count), precision=canonicalize_precision(precision),
        preferred_element_type=preferred_element_type, out_sharding=None)


@boundary
def conv(lhs, rhs, window_strides: Sequence[int], padding: str, precision=None, preferred_element_type=None):
    """`conv_general_dilated` in NCHW / OIHW order without dilation."""
    return conv_general_dilated(lhs, rhs, window_strides, padding, precision=precision,
                                preferred_element_type=preferred_element_type)


@boundary
def conv_with_general_padding(lhs, rhs, window_strides: Sequence[int], padding, lhs_dilation, rhs_dilation,
                              precision=None, preferred_element_type=None):
    """`conv_general_dilated` in NCHW / OIHW order."""
    return conv_general_dilated(lhs, rhs, window_strides, padding, lhs_dilation, rhs_dilation, precision=precision,
                                preferred_element_type=preferred_element_type)


def _transpose_padding(extent: int, stride: int, padding: str) -> tuple[int, int]:
    """Pads that make a transposed convolution undo the shape of a strided one with that padding."""
    kind = padding.upper()
    if kind == "SAME":
        total = extent + stride - 2
        low = extent - 1 if stride > extent - 1 else -(-total // 2)
    elif kind == "VALID":
        total = extent + stride - 2 + max(extent - stride, 0)
        low = extent - 1
    else:
        raise ValueError(f"Padding mode must be `SAME` or `VALID`, got {padding}.")
    return low, total - low


@boundary
def conv_transpose(lhs, rhs, strides: Sequence[int], padding, rhs_dilation: Sequence[int] | None = None,
                   dimension_numbers=None, transpose_kernel: bool = False, precision=None, preferred_element_type=None,
                   use_consistent_padding: bool = False):
    """A convolution over an input spread by `strides`: what the gradient of a strided convolution does.

    Args:
      padding: 'SAME' gives sizes `input * stride`, 'VALID' those of which a strided convolution makes the input;
        or explicit pairs: of this convolution, or with `use_consistent_padding` of the strided one.
      dimension_numbers: default `('NHWC', 'HWIO', 'NHWC')` of the given rank.
      transpose_kernel: flip the kernel's spatial axes and exchange its features, as the gradient does.
    """
    lhs_aval, rhs_aval = aval_of(lhs), aval_of(rhs)
    if lhs_aval.ndim != rhs_aval.ndim or lhs_aval.ndim < 2:
        raise TypeError(f"conv_transpose requires lhs and rhs of equal ndim >= 2, got {lhs_aval.ndim} and "
                        f"{rhs_aval.ndim}.")
    rank = lhs_aval.ndim - 2
    if len(strides) != rank or (rhs_dilation is not None and len(rhs_dilation) != rank):
        raise TypeError(f"conv_transpose takes {rank} strides and dilations, one for each spatial axis, got {strides} "
                        f"and {rhs_dilation}")
    if dimension_numbers is None:
        if rank > 3:
            raise ValueError("No 4+ dimensional dimension_number defaults.")
        letters = ("", "H", "HW", "DHW")[rank]
        dimension_numbers = (f"N{letters}C", f"{letters}IO", f"N{letters}C")
    numbers = conv_dimension_numbers(lhs_aval.shape, rhs_aval.shape, dimension_numbers)
    window = _permute(rhs_aval.shape, numbers.rhs_spec)[2:]
    steps = rhs_dilation or (1,) * rank
    extents = [_dilate(size, step) for size, step in zip(window, steps, strict=True)]
    if isinstance(padding, str):
        pads = [_transpose_padding(extent, stride, padding) for extent, stride in zip(extents, strides, strict=True)]
    elif use_consistent_padding:
        pads = [(extent - 1 - low, extent - 1 - high) for extent, (low, high) in zip(extents, padding, strict=True)]
    else:
        pads = padding
    if transpose_kernel:
        rhs = shaping.rev(rhs, numbers.rhs_spec[2:])
        out_feature, in_feature, *spatial = numbers.rhs_spec
        numbers = numbers._replace(rhs_spec=(in_feature, out_feature, *spatial))
    return conv_general_dilated(lhs, rhs, (1,) * rank, pads, strides, rhs_dilation, numbers, precision=precision,
                                preferred_element_type=preferred_element_type)


@boundary
def conv_general_dilated_patches(lhs, filter_shape: Sequence[int], window_strides: Sequence[int], padding,
                                 lhs_dilation=None, rhs_dilation=None, dimension_numbers=None, precision=None,
                                 preferred_element_type=None):
    """The input patches that a convolution's window sees, flattened into the feature axis (features first)."""
    lhs_aval = aval_of(lhs)
    filter_shape = _ints(filter_shape)
    dummy_shape = (1, 1, *filter_shape)
    if dimension_numbers is not None and not isinstance(dimension_numbers, ConvDimensionNumbers):
        spec = conv_general_permutations(dimension_numbers)[1]
        dummy_shape = _unpermute(dummy_shape, spec)
    numbers = conv_dimension_numbers(lhs_aval.shape, dummy_shape, dimension_numbers)
    features = lhs_aval.shape[numbers.lhs_spec[1]]
    count = 1
    for size in filter_shape:
        count *= size
    row, column = shaping.indices((count, count))
    kernel = shaping.convert(elementwise.eq(row, column), lhs_aval.dtype, False)
    kernel = shaping.broadcast_in_dim(kernel, (features, count, count), (1, 2))
    kernel = shaping.reshape(kernel, (features * count, 1, *filter_shape))
    order = _unpermute(range(kernel.ndim), numbers.rhs_spec)
    kernel = shaping.transpose(kernel, order)
    return conv_general_dilated(lhs, kernel, window_strides, padding, lhs_dilation, rhs_dilation, numbers,
                                feature_group_count=features, precision=precision,
                                preferred_element_type=preferred_element_type)


@boundary
def conv_general_dilated_local(lhs, rhs, window_strides: Sequence[int], padding, filter_shape: Sequence[int],
                               lhs_dilation=None, rhs_dilation=None, dimension_numbers=None, precision=None):
    """A convolution with a kernel of its own at each output position.

    Args:
      rhs: output features, (input features * window size), output spatial axes, in the order that the second
        spec gives to O, I and the spatial axes.
    """
    numbers = conv_dimension_numbers(aval_of(lhs).shape, aval_of(rhs).shape, dimension_numbers)
    if len(filter_shape) != aval_of(lhs).ndim - 2:
        raise TypeError("convolution requires lhs and rhs ndim to be equal, got "
                        f"{aval_of(lhs).ndim} and {len(filter_shape) + 2}: filter_shape has a size for each spatial axis")
    patches = conv_general_dilated_patches(lhs, filter_shape, window_strides, padding, lhs_dilation, rhs_dilation,
                                           numbers, precision)
    lhs_spec, rhs_spec, out_spec = numbers
    dot_numbers = (((rhs_spec[1],), (out_spec[1],)), (tuple(rhs_spec[2:]), tuple(out_spec[2:])))
    out = dot_general(rhs, patches, dot_numbers, precision)
    rank = out.ndim  # spatial axes, then output features, then batch
    order = [0] * rank
    order[out_spec[0]], order[out_spec[1]] = rank - 1, rank - 2
    for position, axis in enumerate(out_spec[2:]):
        order[axis] = position
    return shaping.transpose(out, order)


register_rule_modules("jaxlite.lax.convolution_rules")
