"""`pad`, with NumPy's modes. Axes are padded in sequence, including earlier padding."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from jaxlite import lax
from jaxlite.core import dtypes
from jaxlite.core.axes import with_sizes
from jaxlite.core.filtering import boundary
from jaxlite.core.symbolic import is_symbolic
from jaxlite.core.tracing import known_value
from jaxlite.core.tree import tree_leaves
from jaxlite.core.values import aval_of
from jaxlite.lax import shaping
from jaxlite.numpy import functional, grids, reductions, statistics, ufuncs
from jaxlite.numpy.api import api, as_array, check_arrays
from jaxlite.numpy.creation import asarray
from jaxlite.numpy.manipulation import broadcast_to

_STATISTICS: dict[str, Callable[..., Any]] = {
    "maximum": reductions.max, "minimum": reductions.min, "mean": reductions.mean,
    "median": statistics.median,
}  # fmt: skip
_OPTIONS = {
    "constant": "constant_values", "linear_ramp": "end_values", "reflect": "reflect_type", "symmetric": "reflect_type",
    **dict.fromkeys(_STATISTICS, "stat_length"), "edge": "", "wrap": "", "empty": "",
}  # fmt: skip


def _as_pairs(name: str, value, rank: int):
    """A (before, after) pair for each axis, from one number, one pair, or a pair for each axis."""
    shape = value.shape
    if shape not in ((), (1,), (2,), (1, 2), (rank, 2)):
        raise ValueError(f"jnp.pad: {name} with nd={rank} has unsupported shape {shape}. Valid shapes are "
                         f"({rank}, 2), (1, 2), (2,), (1,), or ().")
    return np.broadcast_to(value, (rank, 2)) if isinstance(value, np.ndarray) else broadcast_to(value, (rank, 2))


def _static_pairs(name: str, value, rank: int) -> tuple[tuple[int, int], ...]:
    if type(value) in (int, tuple):
        try:
            return _remembered_pairs(name, value, rank)
        except TypeError as error:  # a tuple that holds arrays or lists cannot be remembered
            if "unhashable" not in str(error):
                raise
    return _make_pairs(name, value, rank)


def _make_pairs(name: str, value, rank: int) -> tuple[tuple[int, int], ...]:
    for leaf in tree_leaves(value):
        known_value(leaf, "the argument {!r} of jnp.pad decides the shape of its result, so it must be concrete; mark it "
                          "static", name)
    try:
        found = np.asarray(value)
    except ValueError:  # a ragged list
        raise ValueError(f"jnp.pad: {name} must be a number, a pair, or a pair for each axis, got {value}") from None
    if found.dtype == object and all(isinstance(each, int) or is_symbolic(each) for each in found.flat):
        if any(each < 0 for each in found.flat):
            raise ValueError(f"jnp.pad: {name} can't contain negative values, got {value}")
        return tuple((low, high) for low, high in _as_pairs(name, found, rank))
    if found.dtype.kind not in "iu" and found.size:
        raise TypeError(f"jnp.pad: `{name}` must be of integral type, got {value!r}.")
    if (found < 0).any():
        raise ValueError(f"jnp.pad: {name} can't contain negative values, got {value}")
    return tuple((int(low), int(high)) for low, high in _as_pairs(name, found, rank))


_remembered_pairs = functools.lru_cache(1024)(_make_pairs)


@boundary
def pad(array, pad_width, mode: str | Callable[..., Any] = "constant", **kwargs):
    """An array with values added before and after along each axis.

    Args:
      pad_width: how many: a number, a (before, after) pair, or such a pair for each axis. Static.
      mode: where the values come from.
        'constant': `constant_values`, 0 by default; in the forms of pad_width, may be traced.
        'edge': the value at the edge. 'wrap': the values from the other end.
        'reflect', 'symmetric': mirrored at the edge, without and with the value at the edge itself; with
        `reflect_type='odd'` mirrored through the value at the edge.
        'linear_ramp': from the value at the edge evenly to `end_values`, 0 by default.
        'maximum', 'minimum', 'mean', 'median': that of the axis, or of the `stat_length` values next to the edge.
        'empty': anything (zeros).
        A function: called as function(vector, (before, after), axis, kwargs) for each vector along each axis of the
        array padded with zeros; gives the vector that takes its place.
    Raises: NotImplementedError for other modes; ValueError for options that a mode does not have, negative widths,
      and modes that have nothing to take from an empty axis.

    >>> from jaxlite import numpy as jnp
    >>> jnp.pad(jnp.array([1, 2, 3]), (1, 2), mode='reflect')
    Array([2, 1, 2, 3, 2, 1], dtype=int32)
    """
    check_arrays("pad", array)
    aval = aval_of(array)
    widths = _static_pairs("pad_width", pad_width, aval.ndim)
    if callable(mode):
        return _pad_with_function(array, widths, mode, kwargs)
    if mode not in _OPTIONS:
        raise NotImplementedError(f"Unimplemented padding mode {mode!r} for jnp.pad.")
    unknown = set(kwargs) - {_OPTIONS[mode]}
    if unknown:
        raise ValueError(f"unsupported keyword arguments for mode {mode!r}: {unknown}")
    if mode not in ("constant", "mean", "median", "empty"):
        for axis, (low, high) in enumerate(widths):
            if low + high and not aval.shape[axis]:
                raise ValueError(f"Cannot apply {mode!r} padding to empty axis {axis} of shape {aval.shape}")
    if mode in ("constant", "linear_ramp"):
        value = kwargs.get(_OPTIONS[mode], 0)
        value = value if np.isscalar(value) else asarray(value)
        return (_pad_constant if mode == "constant" else _pad_ramp)(array, value, widths=widths)
    if mode in _STATISTICS:
        lengths = kwargs.get("stat_length")
        if lengths is not None:
            lengths = _static_pairs("stat_length", lengths, aval.ndim)
            if any(0 in pair for pair in lengths):
                raise ValueError("stat_length of 0 yields no value for padding")
        return _pad_statistic(array, widths=widths, mode=mode, lengths=lengths)
    kind = kwargs.get("reflect_type", "even")
    if kind not in ("even", "odd"):
        raise ValueError(f"jnp.pad: reflect_type must be 'even' or 'odd', got {kind!r}")
    return _pad_from_array(array, widths=widths, mode=mode, odd=kind == "odd")


@api
def _pad_constant(x, values, widths: tuple[tuple[int, int], ...]):
    x = as_array(x)
    aval = aval_of(x)
    values = shaping.of_user(values, aval.dtype, aval.weak_type)
    if not values.shape:
        return shaping.pad(x, values, [(low, high, 0) for low, high in widths])
    values = _as_pairs("constant_values", values, aval.ndim)
    for axis, pair in enumerate(widths):
        for side, width in enumerate(pair):
            if width:
                config = [(0, 0, 0)] * aval.ndim
                config[axis] = (0, width, 0) if side else (width, 0, 0)
                x = shaping.pad(x, _element(values, axis, side), config)
    return x


def _element(values, row: int, column: int):
    return shaping.squeeze(lax.slice(values, (row, column), (row + 1, column + 1)), (0, 1))


@api
def _pad_ramp(x, ends, widths: tuple[tuple[int, int], ...]):
    x = as_array(x)
    aval = aval_of(x)
    ends = shaping.of_user(ends, aval.dtype, aval.weak_type)
    ends = _as_pairs("end_values", ends, aval.ndim) if ends.shape else ends
    for axis, pair in enumerate(widths):
        parts = [x]
        for side, width in enumerate(pair):
            if width:
                edge = lax.index_in_dim(x, -1 if side else 0, axis, keepdims=False)
                end = _element(ends, axis, side) if aval_of(ends).shape else ends
                ramp = grids.linspace(end, edge, width, endpoint=False, dtype=aval.dtype, axis=axis)
                ramp = shaping.convert(shaping.rev(ramp, (axis,)) if side else ramp, weak_type=aval.weak_type)
                parts.insert(len(parts) if side else 0, ramp)
        x = shaping.concatenate(parts, axis)
    return x


@api
def _pad_from_array(x, widths: tuple[tuple[int, int], ...], mode: str, odd: bool):
    """The modes that take elements of the array."""
    x = as_array(x)
    for axis, (low, high) in enumerate(widths):
        size = x.shape[axis]
        if not low + high:
            continue
        if mode == "empty":
            zero = np.zeros((), x.dtype)[()]
            x = shaping.pad(x, shaping.convert(zero, weak_type=x.weak_type), [
                (low, high, 0) if each == axis else (0, 0, 0) for each in range(x.ndim)])
        elif mode == "wrap":
            parts = [x] * (low // size + 1 + high // size)
            if low % size:
                parts.insert(0, lax.slice_in_dim(x, size - low % size, size, axis=axis))
            if high % size:
                parts.append(lax.slice_in_dim(x, 0, high % size, axis=axis))
            x = shaping.concatenate(parts, axis)
        elif mode == "edge" or size == 1:
            x = shaping.concatenate([part for part in (
                low and _repeated(lax.slice_in_dim(x, 0, 1, axis=axis), low, axis), x,
                high and _repeated(lax.slice_in_dim(x, size - 1, size, axis=axis), high, axis),
            ) if not isinstance(part, int)], axis)
        else:
            # each side by itself: a mirror about the far side's new edge would not be one about the array's
            left = _mirrored(x, axis, low, False, mode == "reflect", odd)
            right = _mirrored(x, axis, high, True, mode == "reflect", odd)
            x = shaping.concatenate([left, lax.slice_in_dim(right, size, size + high, axis=axis)], axis)
    return x


def _repeated(x, count: int, axis: int):
    return broadcast_to(x, with_sizes(x.shape, axis, count))


def _mirrored(x, axis: int, width: int, after: bool, skip_edge: bool, odd: bool):
    """Mirrored values on one side. The result is symmetric about its new edge too, so wide ones grow by doubling."""
    while width:
        size = x.shape[axis]
        count = min(width, size - skip_edge)
        start = size - skip_edge - count if after else int(skip_edge)
        edge = lax.slice_in_dim(x, size - 1 if after else 0, size if after else 1, axis=axis)
        part = shaping.rev(lax.slice_in_dim(x, start, start + count, axis=axis), (axis,))
        if odd:
            part = 2 * edge - part
        x = shaping.concatenate([x, part] if after else [part, x], axis)
        width -= count
    return x


@api
def _pad_statistic(x, widths: tuple[tuple[int, int], ...], mode: str, lengths: Any):
    x = as_array(x)
    aval = aval_of(x)
    statistic = _STATISTICS[mode]
    for axis, pair in enumerate(widths):
        if not sum(pair):
            continue
        size = aval.shape[axis]
        parts = [x]
        for side, width in enumerate(pair):
            near = x
            if lengths is not None and lengths[axis][side] < size:
                length = lengths[axis][side]
                near = lax.slice_in_dim(x, size - length if side else 0, size if side else length, axis=axis)
            value = statistic(near, axis=axis, keepdims=True)
            if dtypes.kind(aval.dtype) in "iu":
                value = ufuncs.round(value)
            value = shaping.convert(value, aval.dtype, aval.weak_type)
            parts.insert(len(parts) if side else 0, _repeated(value, width, axis))
        x = shaping.concatenate(parts, axis)
    return x


def _pad_with_function(array, widths: tuple[tuple[int, int], ...], function: Callable[..., Any],
                       kwargs: dict[str, Any]):
    x = _pad_constant(array, 0, widths=widths)
    for axis, width in enumerate(widths):
        x = functional.apply_along_axis(function, axis, x, width, axis, kwargs)
    return x
