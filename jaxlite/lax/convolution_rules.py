"""Derivative and batching rules of convolutions.

The cotangent of either operand is again a convolution: for the input, of the output's cotangent spread by the strides
with the flipped kernel; for the kernel, of the input with that cotangent, the batch being what is summed over. A
batched axis is folded into the batch or into the features, with more groups where both operands have it. Letters: ct a
cotangent, D the extent of the dilated window.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from jaxlite.core.axes import with_sizes
from jaxlite.core.values import aval_of
from jaxlite.lax import shaping
from jaxlite.lax.convolution import ConvDimensionNumbers, conv_general_dilated_p
from jaxlite.lax.windows import dilated
from jaxlite.traces.batching import Axis, move
from jaxlite.traces.transpose import def_bilinear

# --- folding axes ------------------------------------------------------------------------------------


def _fold(x, source: int, target: int, groups: int = 1):
    """Merge an axis into another one, which is `target` without it: outermost, but inside `groups` parts."""
    if groups > 1:
        x = _cut(x, target + (source <= target), groups)
        source += source > target
        target += 1
    x = move(x, source, target)
    shape = aval_of(x).shape
    if groups == 1:
        return shaping.reshape(x, (*shape[:target], shape[target] * shape[target + 1], *shape[target + 2:]))
    return shaping.reshape(x, (*shape[:target - 1], math.prod(shape[target - 1:target + 2]), *shape[target + 2:]))


def _cut(x, axis: int, size: int):
    """Cut an axis into two, of which the outer one has a size."""
    shape = aval_of(x).shape
    return shaping.reshape(x, with_sizes(shape, axis, size, shape[axis] // size))


def _unfold(x, axis: int, size: int, groups: int = 1) -> tuple[Any, int]:
    """Undo `_fold`: the array with an axis of a size, and where that is."""
    if groups == 1:
        return _cut(x, axis, size), axis
    shape = aval_of(x).shape
    inner = shape[axis] // (groups * size)
    x = move(shaping.reshape(x, with_sizes(shape, axis, groups, size, inner)), axis + 1, axis)
    shape = aval_of(x).shape
    return shaping.reshape(x, (*shape[:axis + 1], groups * inner, *shape[axis + 3:])), axis


# --- derivatives -------------------------------------------------------------------------------------


def _swapped(spec: Sequence[int]) -> tuple[int, ...]:
    first, second, *spatial = spec
    return (second, first, *spatial)


def _spatial(aval, spec: Sequence[int]) -> list[int]:
    return [aval.shape[axis] for axis in spec[2:]]


def _product(x, y, aval, params: dict[str, Any]):
    """A convolution of operands whose dtypes may differ, in the dtype of `aval`."""
    x_dtype, y_dtype = aval_of(x).dtype, aval_of(y).dtype
    if x_dtype != y_dtype:  # the output, and so its cotangent, had a wider dtype than the operands
        wide = max(x_dtype, y_dtype, key=lambda dtype: dtype.itemsize)
        x, y = shaping.convert(x, wide, False), shaping.convert(y, wide, False)
    out = conv_general_dilated_p.bind(x, y, **params)
    return out if aval_of(out).dtype == aval.dtype else shaping.convert(out, aval.dtype, False)


def _lhs_cotangent(ct, aval, rhs, *, window_strides, padding, lhs_dilation, rhs_dilation, dimension_numbers,
                   feature_group_count: int, batch_group_count: int, **params):
    ct_aval, rhs_aval = aval_of(ct), aval_of(rhs)
    if not ct_aval.size or not rhs_aval.size:
        return shaping.full(aval.shape, 0, aval.dtype)
    lhs_spec, rhs_spec, out_spec = dimension_numbers
    pads = []
    for size, extent, window, (low, _), stride, step, spread in zip(
            _spatial(aval, lhs_spec), _spatial(ct_aval, out_spec), _spatial(rhs_aval, rhs_spec), padding,
            window_strides, lhs_dilation, rhs_dilation, strict=True):
        reach = dilated(window, spread) - 1
        # Element a of the input is at a * step + low under the window; it is hit by output y with kernel element k
        # if that is y * stride + k * spread. The far side gets what makes the result as large as the input.
        pads.append((reach - low, (size - 1) * step + 1 + low - dilated(extent, stride)))
    rhs = shaping.rev(rhs, rhs_spec[2:]) if len(rhs_spec) > 2 else rhs
    groups = feature_group_count * batch_group_count
    if groups > 1:  # each group's features: from outer part of the outputs to outer part of the inputs
        rhs = _cut(rhs, rhs_spec[0], groups)
        rhs = _fold(rhs, rhs_spec[0], rhs_spec[1])
    out = _product(ct, rhs, aval, dict(
        params, window_strides=lhs_dilation, padding=tuple(pads), lhs_dilation=window_strides,
        rhs_dilation=rhs_dilation, dimension_numbers=ConvDimensionNumbers(out_spec, _swapped(rhs_spec), lhs_spec),
        feature_group_count=groups, batch_group_count=1))
    if batch_group_count > 1:
        out, axis = _unfold(out, lhs_spec[1], batch_group_count)
        out = _fold(out, axis, lhs_spec[0])
    return out


def _rhs_cotangent(ct, lhs, aval, *, window_strides, padding, lhs_dilation, rhs_dilation, dimension_numbers,
                   feature_group_count: int, batch_group_count: int, precision, **params):
    ct_aval, lhs_aval = aval_of(ct), aval_of(lhs)
    if not ct_aval.size or not lhs_aval.size:
        return shaping.full(aval.shape, 0, aval.dtype)
    lhs_spec, rhs_spec, out_spec = dimension_numbers
    pads = []
    for size, extent, window, (low, _), stride, step, spread in zip(
            _spatial(lhs_aval, lhs_spec), _spatial(ct_aval, out_spec), _spatial(aval, rhs_spec), padding,
            window_strides, lhs_dilation, rhs_dilation, strict=True):
        pads.append((low, dilated(window, spread) - 1 + dilated(extent, stride) - dilated(size, step) - low))
    return _product(lhs, ct, aval, dict(
        params, window_strides=rhs_dilation, padding=tuple(pads), lhs_dilation=lhs_dilation,
        rhs_dilation=window_strides, precision=precision,
        dimension_numbers=ConvDimensionNumbers(_swapped(lhs_spec), _swapped(out_spec), _swapped(rhs_spec)),
        feature_group_count=batch_group_count, batch_group_count=feature_group_count))


def_bilinear(conv_general_dilated_p, _lhs_cotangent, _rhs_cotangent)

# --- batching ----------------------------------------------------------------------------------------


@conv_general_dilated_p.def_batching
def _conv_batch(axis: Axis, args: Sequence[Any], dims: Sequence[int | None], *, dimension_numbers,
                feature_group_count: int, batch_group_count: int, **params) -> tuple[Any, int]:
    (lhs, rhs), (lhs_dim, rhs_dim) = args, dims
    lhs_spec, rhs_spec, out_spec = dimension_numbers
    if not axis.size:  # nothing to fold: the shape is that of one example
        one = [aval if dim is None else aval.update(shape=aval.shape[:dim] + aval.shape[dim + 1:])
               for aval, dim in zip(map(aval_of, args), dims, strict=True)]
        out = conv_general_dilated_p.typed(one, dict(
            params, dimension_numbers=dimension_numbers, batch_group_count=batch_group_count,
            feature_group_count=feature_group_count))[0]
        return shaping.full((0, *out.shape), 0, out.dtype), 0

    def convolve(x, y, features: int = feature_group_count, batches: int = batch_group_count):
        return conv_general_dilated_p.bind(x, y, dimension_numbers=dimension_numbers, feature_group_count=features,
                                           batch_group_count=batches, **params)

    if rhs_dim is None:
        assert lhs_dim is not None
        out = convolve(_fold(lhs, lhs_dim, lhs_spec[0], batch_group_count), rhs)
        return _unfold(out, out_spec[0], axis.size)
    groups = feature_group_count * batch_group_count
    if lhs_dim is None:
        out = convolve(lhs, _fold(rhs, rhs_dim, rhs_spec[0], groups))
        return _unfold(out, out_spec[1], axis.size, groups)
    rhs = _fold(rhs, rhs_dim, rhs_spec[0])
    if batch_group_count > 1:
        out = convolve(_fold(lhs, lhs_dim, lhs_spec[0]), rhs, batches=batch_group_count * axis.size)
    else:
        out = convolve(_fold(lhs, lhs_dim, lhs_spec[1]), rhs, features=feature_group_count * axis.size)
    return _unfold(out, out_spec[1], axis.size)
