"""Signals on a line: differences, gradients, integrals, interpolation, convolution."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxlite import lax
from jaxlite.core import dtypes
from jaxlite.core.array import ArrayImpl
from jaxlite.core.axes import with_sizes
from jaxlite.core.errors import InconclusiveDimensionOperation
from jaxlite.core.filtering import boundary
from jaxlite.core.symbolic import is_constant_dim, largest, smallest
from jaxlite.core.values import aval_of
from jaxlite.lax import shaping
from jaxlite.numpy import arithmetic, joining, manipulation, reductions
from jaxlite.numpy.api import (
    api,
    as_array,
    as_arrays,
    check_arrays,
    is_complex,
    promote_dtypes_inexact,
    promote_numeric,
    scalar,
)
from jaxlite.numpy.arithmetic import not_equal, subtract, true_divide
from jaxlite.numpy.searching import searchsorted
from jaxlite.numpy.selection import where

# --- differences -------------------------------------------------------------------------------------


def _slice(x, start: int, stop: int | None, axis: int):
    return lax.slice_in_dim(x, start, stop, axis=axis)


@api
def diff(a, n: int = 1, axis: int = -1, prepend=None, append=None):
    """The n-th differences of neighbours along an axis; for booleans, whether they differ.

    `prepend` and `append` are joined to the axis first; a scalar is one element.
    """
    a = as_arrays("diff", a)
    n = operator.index(n)
    if n == 0:
        return a
    if n < 0:
        raise ValueError(f"order must be non-negative but got {n}")
    shape = a.shape
    if not shape:
        raise ValueError("diff requires input that is at least one dimensional; got " + repr(a))
    axis = shaping.canonical_axis(axis, len(shape))

    def edge(value):
        value = as_array(value)
        if value.shape:
            return value
        return shaping.broadcast_in_dim(value, with_sizes(shape, axis, 1), ())

    parts = [edge(part) if part is not a else part for part in (prepend, a, append) if part is not None]
    if len(parts) > 1:
        a = shaping.concatenate(joining.promoted(parts), axis)
    function = not_equal if a.dtype == dtypes.bool_ else subtract
    for _ in range(n):
        size = aval_of(a).shape[axis]
        if not size:
            return a
        a = function(_slice(a, 1, size, axis), _slice(a, 0, size - 1, axis))
    return a


@api
def ediff1d(ary, to_end=None, to_begin=None):
    """The differences of neighbours of all elements, flattened, with values before and after."""
    ary = as_arrays("ediff1d", ary)
    flat = ary.ravel()
    result = flat[1:] - flat[:-1]

    def extra(value):
        return shaping.convert(as_array(value), result.dtype, False).ravel()

    parts = [extra(to_begin)] if to_begin is not None else []
    parts += [result]
    parts += [extra(to_end)] if to_end is not None else []
    return shaping.concatenate(parts, 0)


def gradient(f, *varargs, axis: int | Sequence[int] | None = None, edge_order: int | None = None):
    """The derivative along axes by central differences, one-sided at the ends.

    Args:
      varargs: the distance of samples: one number for all axes, or for each axis a number or its coordinates.
      axis: one or several; all for None.
    Returns: an array for one axis, else a list.
    Raises: ValueError if an axis has fewer than two elements.
    """
    if type(f) is ArrayImpl and not varargs and axis is edge_order is None:
        return _gradients(f)
    if edge_order is not None:
        raise NotImplementedError("The 'edge_order' argument to jnp.gradient is not supported.")
    check_arrays("gradient", f)
    return _gradients(f, *[np.asarray(each) if isinstance(each, (list, tuple)) else each for each in varargs],
                      axis=tuple(axis) if isinstance(axis, (list, range)) else axis)


@api
def _gradients(f, *varargs, axis: int | Sequence[int] | None = None):
    rank = aval_of(f).ndim
    axes = range(rank) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    axes = tuple(shaping.canonical_axis(each, rank) for each in axes)
    spacings: Sequence[Any] = varargs or (1,)
    if len(spacings) == 1 and np.ndim(spacings[0]) == 0 if not hasattr(spacings[0], "aval") else not spacings[0].ndim:
        spacings = [spacings[0]] * len(axes) if len(spacings) == 1 else spacings
    if len(spacings) != len(axes):
        raise TypeError(f"Invalid number of spacing arguments {len(spacings)} for {axes=}")
    if min([aval_of(f).shape[each] for each in axes], default=2) < 2:
        raise ValueError("Shape of array too small to calculate a numerical gradient, at least 2 elements are "
                         "required.")
    results = [_gradient(f, spacing, each) for each, spacing in zip(axes, spacings, strict=True)]
    return results[0] if len(results) == 1 else results


def _gradient(f, spacing, axis: int):
    f, spacing = promote_dtypes_inexact(*promote_numeric("gradient", f), as_array(spacing))
    size, rank = f.shape[axis], f.ndim

    def part(start: int, stop: int):
        return _slice(f, start, stop, axis)

    if not spacing.shape:
        low = (part(1, 2) - part(0, 1)) / spacing
        high = (part(size - 1, size) - part(size - 2, size - 1)) / spacing
        inner = (part(2, size) - part(0, size - 2)) * 0.5 / spacing
    else:
        if spacing.shape != (size,):
            raise ValueError("Spacing arrays must be 1D and match the axis: got shape "
                             f"{spacing.shape} for axis {axis} of size {size}")
        steps = spacing[1:] - spacing[:-1]

        def along(values):
            shape = [aval_of(values).size if each == axis else 1 for each in range(rank)]
            return shaping.broadcast_in_dim(values, shape, (axis,))

        left, right = along(steps[:-1]), along(steps[1:])
        total = left * right * (left + right)
        inner = (left * left * part(2, size) - right * right * part(0, size - 2)
                 + (right * right - left * left) * part(1, size - 1)) / total
        low = (part(1, 2) - part(0, 1)) / along(steps[:1])
        high = (part(size - 1, size) - part(size - 2, size - 1)) / along(steps[-1:])
    return shaping.concatenate([low, inner, high], axis)


@api
def trapezoid(y, x=None, dx=1.0, axis: int = -1):
    """The integral along an axis by the trapezoidal rule, over samples at `x` or at distance `dx`."""
    y = as_arrays("trapezoid", y)
    axis = shaping.canonical_axis(axis, y.ndim)
    if x is not None:
        y, x = promote_dtypes_inexact(y, as_array(x))
    else:
        y, dx = promote_dtypes_inexact(*promote_dtypes_inexact(y), as_array(dx))  # a Python number has no say
    if x is not None and x.ndim == y.ndim:
        dx = diff(x, axis=axis)
    elif x is not None or aval_of(dx).ndim:  # the distances are aligned with the last axis
        y = manipulation.moveaxis(y, axis, -1)
        if x is not None:
            dx = diff(x if x.ndim == 1 else manipulation.moveaxis(x, axis, -1))
        axis = y.ndim - 1
    size = y.shape[axis]
    if not size:
        return reductions.sum(y, axis)
    part = lambda start, stop: _slice(y, start, stop, axis)
    if x is None and not aval_of(dx).ndim:
        # One sum of what is in memory; the pairs would be computed in a loop of their own.
        return dx * (y.sum(axis) - 0.5 * (part(0, 1) + part(size - 1, size)).squeeze(axis))
    return 0.5 * (dx * (part(1, size) + part(0, size - 1))).sum(axis)


@api
def unwrap(p, discont=None, axis: int = -1, period: Any = 2 * np.pi):
    """Remove jumps of more than half a period (or `discont`) between neighbours by adding periods.

    Args:
      p: an array of real numbers; integers stay integers if the period is one.
      discont: smaller jumps stay; default half a period.
      axis: the axis to go along.
      period: the size of the range in which values wrap around.
    Raises: ValueError for complex values and for the axis.
    """
    check_arrays("unwrap", p)
    is_whole = dtypes.kind(aval_of(p).dtype) in "iu" and isinstance(period, (int, np.integer))
    whole = int(period) if is_whole else None
    p = as_array(p)
    if is_complex(p) or is_complex(period):
        raise ValueError("jnp.unwrap does not support complex inputs.")
    axis = shaping.canonical_axis(axis, p.ndim)
    if whole is None:
        p = shaping.convert(p, dtypes.to_default_inexact_dtype(p.dtype), aval_of(p).weak_type)
        half = true_divide(period, 2)
    else:
        period, half = whole, whole // 2
    if not p.shape[axis]:
        return p
    steps = diff(p, axis=axis)
    wrapped = (steps + half) % period - half
    if whole is None or whole % 2 == 0:  # half a period up is half a period down: keep the direction
        wrapped = where((wrapped == arithmetic.negative(half)) & (steps > 0), half, wrapped)
    correction = wrapped - steps
    threshold = half if discont is None else discont
    correction = where(arithmetic.absolute(steps) < threshold, 0, correction)
    rank = p.ndim
    totals = shaping.convert(reductions.cumsum(correction, axis=axis), aval_of(p).dtype, False)
    shifted = shaping.pad(totals, shaping.convert(0, aval_of(p).dtype, False),
                          [(1 if each == axis else 0, 0, 0) for each in range(rank)])
    return p + shifted


# --- interpolation -----------------------------------------------------------------------------------


@boundary
def interp(x, xp, fp, left=None, right=None, period=None):
    """Piecewise linear interpolation.

    Args:
      x: where to evaluate; xp: the increasing coordinates of the samples `fp`.
      left, right: values below xp[0] and above xp[-1]; default the first and last sample, 'extrapolate' goes on
        linearly.
      period: treat the coordinates as periodic.
    """
    check_arrays("interp", x, xp, fp)
    if "c" in (dtypes.kind(aval_of(x).dtype), dtypes.kind(aval_of(xp).dtype)):
        raise ValueError("jnp.interp: complex x values not supported.")
    for name, value in (("left", left), ("right", right)):
        if isinstance(value, str) and value != "extrapolate":
            raise ValueError(f"the only valid string value of `{name}` is 'extrapolate', but got: {value!r}")
    if aval_of(xp).shape != aval_of(fp).shape or aval_of(xp).ndim != 1:
        raise ValueError("xp and fp must be one-dimensional arrays of equal size")
    extrapolate = isinstance(left, str), isinstance(right, str)
    if period is not None:
        if dtypes.kind(aval_of(period).dtype) == "c":
            raise ValueError(f"period must be real; got {period}")
        if not hasattr(period, "aval") and period == 0:
            raise ValueError(f"period must be a non-zero value; got {period}")
        if np.ndim(period) if not hasattr(period, "aval") else period.ndim:
            raise ValueError(f"period must be a scalar; got {period}")
        # A number stays one: as a constant of the program, a remainder by it may take less time.
        period = abs(period) if type(period) in (int, float) else arithmetic.absolute(as_array(period))
    left, right = (None if isinstance(value, str) else value for value in (left, right))
    return _interp(x, xp, fp, left, right, period, extrapolate=extrapolate)


@api
def _interp(x, xp, fp, left, right, period, extrapolate: tuple[bool, bool]):
    x, xp = promote_dtypes_inexact(as_array(x), as_array(xp))
    (fp,) = promote_dtypes_inexact(as_array(fp))
    if period is not None:
        period = shaping.convert(as_array(period), x.dtype, False)
        x, xp = x % period, xp % period
        xp, fp = lax.sort_key_val(xp, fp)
        xp = shaping.concatenate([xp[-1:] - period, xp, xp[:1] + period], 0)
        fp = shaping.concatenate([fp[-1:], fp, fp[:1]], 0)
    size = xp.size
    index = shaping.convert(searchsorted(xp, x, side="right"), dtypes.int32, False)
    index = lax.clamp(np.int32(1), index, scalar(largest(size - 1, 1), dtypes.int32))

    def at(values, offset: int):
        return values.at[index - offset].get(mode="clip", wrap_negative_indices=False)

    df, dx = at(fp, 0) - at(fp, 1), at(xp, 0) - at(xp, 1)
    delta = x - at(xp, 1)
    epsilon = np.spacing(dtypes.finfo(xp.dtype).eps)
    flat = arithmetic.absolute(dx) <= epsilon
    ratio = delta / where(flat, 1, dx)
    result = where(flat, at(fp, 1), at(fp, 1) + ratio * df)
    if not extrapolate[0] and period is None:
        result = where(x < xp[0], fp[0] if left is None else left, result)
    if not extrapolate[1] and period is None:
        result = where(x > xp[-1], fp[-1] if right is None else right, result)
    return result


# --- convolution -------------------------------------------------------------------------------------


def _is_enough(dtype: Any, left: Any, right: Any) -> bool:
    """Whether a float dtype is narrower than the default one, but no narrower than the integers that are convolved."""
    size = dtypes.canonicalize_dtype(dtype).itemsize
    return dtypes.kind(left.dtype) in "iub" and dtypes.kind(right.dtype) in "iub" and max(
        left.dtype.itemsize, right.dtype.itemsize) <= size < dtypes.default_dtype(float).itemsize


def _convolution(name: str, a, v, mode: str, precision, preferred, flip: bool):
    check_arrays(name, a, v)
    left, right = aval_of(a), aval_of(v)
    if left.ndim != 1 or right.ndim != 1:
        raise ValueError(f"{name}() only support 1-dimensional inputs.")
    if not left.size or not right.size:
        raise ValueError(f"{name}: inputs cannot be empty, got shapes {left.shape} and {right.shape}.")
    if mode not in ("full", "same", "valid"):
        raise ValueError(f"mode must be one of ['full', 'same', 'valid'], got {mode!r}")
    a, v = promote_dtypes_inexact(as_array(a), as_array(v))
    final = None
    if preferred is not None and (
            dtypes.kind(dtypes.canonicalize_dtype(preferred)) in "iub" or _is_enough(preferred, left, right)):
        final, preferred = dtypes.check_user_dtype_supported(preferred, name), None  # integers are summed as floats
    pads = None
    try:
        swapped = left.size < right.size
    except InconclusiveDimensionOperation:
        swapped, long, short = False, largest(left.size, right.size), smallest(left.size, right.size)
        # The middle of a correlation is that of the one by the longer vector, read backwards.
        backwards = 0 if flip else smallest(largest(right.size - left.size, 0), 1)
        start, length = {"valid": (short - 1, long - short + 1), "same": ((short - 1 + backwards) // 2, long),
                         "full": (0, left.size + right.size - 1)}[mode]  # the part of the full convolution
        pads = right.size - 1 - start, start + length - left.size
    if swapped:
        a, v = v, a
    if flip:
        v = shaping.rev(v, (0,))
    elif is_complex(v):
        a, v = (lax.conj(a), v) if swapped else (a, lax.conj(v))
    size = aval_of(v).size
    if pads is None:
        pads = {"valid": (0, 0), "same": (size // 2, (size - 1) // 2), "full": (size - 1, size - 1)}[mode]
    if not all(map(is_constant_dim, pads)):  # XLA takes no such paddings in a convolution
        a, pads = shaping.pad(a, scalar(0, aval_of(a).dtype), [(*pads, 0)]), (0, 0)
    result = lax.conv_general_dilated(shaping.expand_dims(a, (0, 1)), shaping.expand_dims(v, (0, 1)), (1,), [pads],
                                      precision=precision, preferred_element_type=preferred)
    result = shaping.squeeze(result, (0, 1))
    if final is not None:
        result = shaping.convert(result, final, False)
    return shaping.rev(result, (0,)) if swapped and not flip else result


@api
def convolve(a, v, mode: str = "full", *, precision: Any = None, preferred_element_type: Any = None):
    """The convolution of two vectors: sums of a[i] * v[n - i].

    Args:
      mode: 'full' where they overlap at all, 'same' as long as the longer one, 'valid' where they overlap in full.
    """
    return _convolution("convolve", a, v, mode, precision, preferred_element_type, True)


@api
def correlate(a, v, mode: str = "valid", *, precision: Any = None, preferred_element_type: Any = None):
    """The cross-correlation of two vectors: sums of a[i + n] * conj(v[i]). Modes are as in `convolve`."""
    return _convolution("correlate", a, v, mode, precision, preferred_element_type, False)
