"""Windowed reductions: over sliding windows, cumulative ones, and scatters to the selected element of a window.

Window arguments are those of XLA: sizes, strides, padding (before, after) and two dilations, each over all dimensions of
the operand. Averages and convolutions are elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jaxlite.core import dtypes
from jaxlite.core.aval import Ints, ShapedArray, shaped_array
from jaxlite.core.filtering import boundary
from jaxlite.core.jaxpr import ClosedJaxpr
from jaxlite.core.primitive import Primitive
from jaxlite.core.symbolic import as_size, largest
from jaxlite.core.tree import tree_flatten, tree_structure, tree_unflatten
from jaxlite.core.values import aval_of
from jaxlite.lax.elementwise import INEXACT, NUMBERS, ge_p, le_p, require_kind
from jaxlite.lax.reductions import initial_values, monoid_of, reduced_operands, static_ints, trace_computation
from jaxlite.lax.shaping import require_equal_dtypes

# --- the geometry of windows -------------------------------------------------------------------------


def dilated(size: int, dilation: int) -> int:
    """The extent of `size` elements with `dilation - 1` holes between each two."""
    return 0 if size == 0 else 1 + dilation * (size - 1)


@boundary
def padtype_to_pads(in_shape: Sequence[int], window_shape: Sequence[int], window_strides: Sequence[int],
                    padding) -> list[tuple[int, int]]:
    """The (before, after) padding of each dimension for a padding mode.

    Args:
      in_shape, window_shape, window_strides: sizes, one for each dimension.
      padding: 'VALID' for none; 'SAME' for outputs of ceil(size / stride), with the odd element after; 'SAME_LOWER'
        with it before. Case does not matter.
    Raises: RuntimeError for an unknown mode, TypeError if it is not a string, ValueError for lengths that differ.
    """
    if not isinstance(padding, str):
        raise TypeError(f"Unknown padding type: {padding}.")
    mode = padding.upper()
    if mode not in ("VALID", "SAME", "SAME_LOWER"):
        raise RuntimeError(f"Unrecognized padding type: expected 'VALID', 'SAME', or 'SAME_LOWER', got {padding}.")
    if not len(in_shape) == len(window_shape) == len(window_strides):
        raise ValueError(f"padding {padding!r} needs sizes of equal length, got shape {tuple(in_shape)}, window "
                         f"{tuple(window_shape)}, strides {tuple(window_strides)}")
    if mode == "VALID":
        return [(0, 0)] * len(in_shape)
    pads = []
    for size, window, stride in zip(in_shape, window_shape, window_strides, strict=True):
        if stride < 1:
            raise ValueError(f"window strides must be positive, got {tuple(window_strides)}")
        total = largest(0, (-(-size // stride) - 1) * stride + window - size)
        low, high = total // 2, total - total // 2
        pads.append((low, high) if mode == "SAME" else (high, low))
    return pads


@boundary
def reduce_window_shape_tuple(operand_shape: Sequence[int], window_dimensions: Sequence[int],
                              window_strides: Sequence[int], padding: Sequence[tuple[int, int]],
                              base_dilation: Sequence[int] | None = None,
                              window_dilation: Sequence[int] | None = None) -> Ints:
    """The shape of a windowed reduction: how many windows fit in each dimension."""
    rank = len(operand_shape)
    base = base_dilation or (1,) * rank
    spread = window_dilation or (1,) * rank
    shape = []
    for size, window, stride, (low, high), dilation, window_dilated in zip(
            operand_shape, window_dimensions, window_strides, padding, base, spread, strict=True):
        room = dilated(size, dilation) + low + high - dilated(window, window_dilated)
        shape.append(largest(room // stride + 1, 0))
    return tuple(shape)


_SIZE_LIMIT = 1 << 30  # sums and products of two fit an int64


def _check_window(name: str, shape: Ints, window_dimensions, window_strides, padding, base_dilation,
                  window_dilation) -> None:
    """Raises TypeError or ValueError unless the window's arguments go together."""
    if len(window_dimensions) != len(shape):
        raise TypeError(f"{name} got the wrong number of window_dimensions for operand: got operand shape {shape} "
                        f"with window_dimensions {window_dimensions}.")
    for what, values in (("window_strides", window_strides), ("base_dilation", base_dilation),
                         ("window_dilation", window_dilation)):
        if len(values) != len(shape):
            raise TypeError(f"{name} got inconsistent {what} and window_dimensions: got {what} {values} and "
                            f"window_dimensions {window_dimensions}.")
    for what, values in (("window_dimensions", window_dimensions), ("window_strides", window_strides),
                         ("base_dilation", base_dilation), ("window_dilation", window_dilation)):
        if any(value < 1 for value in values):
            raise TypeError(f"{name} {what} must have every element be strictly positive, got {values}.")
        if any(value > _SIZE_LIMIT for value in values):
            raise ValueError(f"{name} {what} are too large to compute with: {values}.")
    if len(padding) != len(shape):
        raise ValueError(f"{name}: padding must have one (low, high) pair for each of the {len(shape)} dimensions, "
                         f"got {padding}")


def _window_params(name: str, shape: Ints, window_dimensions, window_strides, padding, base_dilation,
                   window_dilation) -> dict[str, Any]:
    """A window's arguments, normalised and checked: the params of all windowed primitives."""
    ones = (1,) * len(shape)
    sizes = static_ints(name, "window_dimensions", window_dimensions)
    strides = static_ints(name, "window_strides", window_strides or ones)
    base = static_ints(name, "base_dilation", base_dilation or ones)
    spread = static_ints(name, "window_dilation", window_dilation or ones)
    named = isinstance(padding, str)
    _check_window(name, shape, sizes, strides, ones if named else padding, base, spread)
    if named:
        padding = padtype_to_pads([dilated(*each) for each in zip(shape, base, strict=True)],
                                  [dilated(*each) for each in zip(sizes, spread, strict=True)], strides, padding)
    try:
        pads = tuple((as_size(low), as_size(high)) for low, high in padding)
    except (TypeError, ValueError):
        raise TypeError(f"{name}: padding must be 'VALID', 'SAME', 'SAME_LOWER' or a sequence of (low, high) pairs "
                        f"of integers, got {padding!r}") from None
    return {"window_dimensions": sizes, "window_strides": strides, "padding": pads, "base_dilation": base,
            "window_dilation": spread}


def _window_shape(name: str, aval, window: dict[str, Any]) -> Ints:
    _check_window(name, aval.shape, **window)
    return reduce_window_shape_tuple(aval.shape, **window)


# --- reductions of windows ---------------------------------------------------------------------------


def _window_reduction(name: str) -> Primitive:
    primitive = Primitive(name)

    @primitive.def_abstract_eval
    def rule(x, **window) -> ShapedArray:
        require_kind(name, x, NUMBERS)
        return shaped_array(_window_shape(name, x, window), x.dtype, x.weak_type)

    return primitive


reduce_window_sum_p = _window_reduction("reduce_window_sum")
reduce_window_max_p = _window_reduction("reduce_window_max")
reduce_window_min_p = _window_reduction("reduce_window_min")
reduce_window_p = Primitive("reduce_window", multiple_results=True)
_BY_MONOID = {"sum": reduce_window_sum_p, "max": reduce_window_max_p, "min": reduce_window_min_p}


@reduce_window_p.def_abstract_eval
def _reduce_window_avals(*avals, jaxpr: ClosedJaxpr, **window) -> list[ShapedArray]:
    operands, _ = reduced_operands("reduce_window", avals, jaxpr)
    shape = _window_shape("reduce_window", avals[0], window)
    return [shaped_array(shape, operand.dtype, False) for operand in operands]


@boundary
def reduce_window(operand, init_value, computation: Callable, window_dimensions: Sequence[int],
                  window_strides: Sequence[int] | None = None, padding: str | Sequence[tuple[int, int]] = "VALID",
                  base_dilation: Sequence[int] | None = None, window_dilation: Sequence[int] | None = None):
    """Combine the elements of each position of a sliding window.

    Args:
      operand: a pytree of arrays of one shape.
      init_value: scalars in the same tree, of the arrays' dtypes: identity elements of the computation. Padding and
        the holes of `base_dilation` have this value.
      computation: function of two trees of scalars that gives one; associative and commutative.
      window_dimensions: the window's size in each dimension of the operand.
      window_strides: steps between positions; default 1.
      padding: 'VALID', 'SAME', 'SAME_LOWER', or a (before, after) pair for each dimension; negative ones crop.
      base_dilation, window_dilation: distances between neighbours of the operand, of the window; default 1.
    Returns: the tree of arrays, one element for each position.
    Raises: TypeError or ValueError for arguments that do not go together.

    >>> import numpy as np
    >>> from jaxlite import lax
    >>> reduce_window(np.array([1., 3., 2., 5.]), -np.inf, lax.max, (2,)).tolist()
    [3.0, 3.0, 5.0]
    """
    flat, tree = tree_flatten(operand)
    inits, init_tree = tree_flatten(init_value)
    if tree != init_tree:
        raise ValueError(f"Operands must have the same tree structure as init_values: {tree} vs. {init_tree}")
    if not flat:
        raise ValueError("reduce_window must have at least one operand.")
    shapes = [aval_of(init).shape for init in inits]
    if any(shapes):
        raise TypeError(f"reduce_window expected init_values to be scalars but init_values have shapes {shapes}.")
    avals = [aval_of(each) for each in flat]
    window = _window_params("reduce_window", avals[0].shape, window_dimensions, window_strides, padding,
                            base_dilation, window_dilation)
    if len(flat) == 1:
        primitive = _BY_MONOID.get(monoid_of(computation, inits[0], avals[0]) or "")
        if primitive is not None and avals[0].dtype != bool:
            return tree_unflatten(tree, [primitive.bind(flat[0], **window)])
    inits = initial_values("reduce_window", flat, inits)
    scalars = [shaped_array((), aval.dtype, False) for aval in avals]
    jaxpr = trace_computation("reduce_window", computation, [tree, tree], scalars * 2, scalars)
    return tree_unflatten(tree, reduce_window_p.bind(*flat, *inits, jaxpr=jaxpr, **window))


# --- a window's pick ---------------------------------------------------------------------------------

select_and_scatter_p = Primitive("select_and_scatter")
select_and_scatter_add_p = Primitive("select_and_scatter_add")
select_and_gather_add_p = Primitive("select_and_gather_add")


def _undilated(rank: int) -> dict[str, Any]:
    return {"base_dilation": (1,) * rank, "window_dilation": (1,) * rank}


def _check_source(name: str, source, operand, window: dict[str, Any]) -> ShapedArray:
    """The type of a scatter: the operand's; the source has one element for each window."""
    require_equal_dtypes(name, (source, operand))
    expected = _window_shape(name, operand, window | _undilated(len(operand.shape)))
    if source.shape != expected:
        raise TypeError(f"{name}: source must have one element for each window, shape {expected}, got {source.shape}")
    return shaped_array(operand.shape, operand.dtype, False)


def _check_select(name: str, select_prim) -> None:
    if select_prim not in (ge_p, le_p):
        raise ValueError(f"{name}: select_prim must be ge_p or le_p, got {select_prim}")


@select_and_scatter_p.def_abstract_eval
def _select_and_scatter_aval(operand, source, init, *, select_jaxpr: ClosedJaxpr, scatter_jaxpr: ClosedJaxpr,
                             **window) -> ShapedArray:
    require_equal_dtypes("select_and_scatter", (operand, init))
    if init.shape:
        raise TypeError(f"select_and_scatter: init_value must be a scalar, got {init}")
    return _check_source("select_and_scatter", source, operand, window)


@select_and_scatter_add_p.def_abstract_eval
def _select_and_scatter_add_aval(source, operand, *, select_prim, **window) -> ShapedArray:
    require_kind("select_and_scatter_add", operand, "iuf")
    _check_select("select_and_scatter_add", select_prim)
    return _check_source("select_and_scatter_add", source, operand, window)


@select_and_gather_add_p.def_abstract_eval
def _select_and_gather_add_aval(tangents, operand, *, select_prim, **window) -> ShapedArray:
    require_kind("select_and_gather_add", operand, "iuf")
    _check_select("select_and_gather_add", select_prim)
    require_equal_dtypes("select_and_gather_add", (tangents, operand))
    if tangents.shape != operand.shape:
        raise TypeError("select_and_gather_add: tangents and operand must have equal shapes, got "
                        f"{tangents.shape} and {operand.shape}")
    return shaped_array(_window_shape("select_and_gather_add", operand, window), operand.dtype, False)


def _scatter_window(name: str, operand, window_dimensions, window_strides, padding) -> dict[str, Any]:
    window = _window_params(name, aval_of(operand).shape, window_dimensions, window_strides, padding, None, None)
    return {key: window[key] for key in ("window_dimensions", "window_strides", "padding")}


def select_and_scatter(operand, select: Callable, window_dimensions: Sequence[int], window_strides: Sequence[int],
                       padding, source, init_value, scatter: Callable):
    """From each window of `operand` select one element, and there combine an element of `source` into the result.

    Args:
      operand: an array.
      select: function of two scalars; True keeps the first.
      window_dimensions, window_strides, padding: as for `reduce_window`. Padding is never selected before `init_value`.
      source: an array with one element for each window.
      init_value: a scalar, what the result holds where nothing is selected.
      scatter: function of two scalars that combines what falls on one element.
    Returns: an array of the operand's shape.
    """
    scalar = shaped_array((), aval_of(operand).dtype, False)
    boolean = shaped_array((), dtypes.bool_, False)
    leaf = tree_structure(0)
    (init,) = initial_values("select_and_scatter", [operand], [init_value])
    return select_and_scatter_p.bind(
        operand, source, init,
        select_jaxpr=trace_computation("select_and_scatter", select, [leaf, leaf], [scalar] * 2, [boolean]),
        scatter_jaxpr=trace_computation("select_and_scatter", scatter, [leaf, leaf], [scalar] * 2, [scalar]),
        **_scatter_window("select_and_scatter", operand, window_dimensions, window_strides, padding))


def select_and_scatter_add(source, operand, select_prim, window_dimensions: Sequence[int],
                           window_strides: Sequence[int], padding):
    """Add each element of `source` where its window of `operand` has its extreme: the gradient of pooling.

    Args:
      source: an array with one element for each window.
      operand: an array of real numbers.
      select_prim: `ge_p` for the maximum, `le_p` for the minimum; the first of equal elements.
      window_dimensions, window_strides, padding: as for `reduce_window`.
    Returns: an array of the operand's shape, 0 where nothing is added.
    """
    return select_and_scatter_add_p.bind(
        source, operand, select_prim=select_prim,
        **_scatter_window("select_and_scatter_add", operand, window_dimensions, window_strides, padding))


def select_and_gather_add(tangents, operand, select_prim, window_dimensions: Sequence[int],
                          window_strides: Sequence[int], padding, base_dilation: Sequence[int],
                          window_dilation: Sequence[int]):
    """The elements of `tangents` where the windows of `operand` have their extremes: the derivative of pooling.

    `tangents` has the operand's shape and dtype; the other arguments are those of `select_and_scatter_add`.
    """
    return select_and_gather_add_p.bind(
        tangents, operand, select_prim=select_prim,
        **_window_params("select_and_gather_add", aval_of(operand).shape, window_dimensions, window_strides, padding,
                         base_dilation, window_dilation))


# --- cumulative reductions ---------------------------------------------------------------------------


def _cumulative(name: str, accepted: str) -> Primitive:
    primitive = Primitive(name)

    @primitive.def_abstract_eval
    def rule(x, *, axis: int, reverse: bool) -> ShapedArray:
        require_kind(name, x, accepted)
        if axis < 0:
            raise ValueError(f"{name}: axis {axis} is negative; lax counts axes from 0 (jaxlite.numpy takes "
                             "negative ones)")
        if axis >= len(x.shape):
            raise ValueError(f"{name}: axis {axis} is out of bounds for array of shape {x.shape}")
        return x

    return primitive


cumsum_p = _cumulative("cumsum", NUMBERS)
cumprod_p = _cumulative("cumprod", NUMBERS)
cummax_p = _cumulative("cummax", NUMBERS)
cummin_p = _cumulative("cummin", NUMBERS)
cumlogsumexp_p = _cumulative("cumlogsumexp", INEXACT)
linear_recurrence_p = Primitive("linear_recurrence")


@linear_recurrence_p.def_abstract_eval
def _linear_recurrence_aval(factors, terms, *, axis: int, reverse: bool) -> ShapedArray:
    require_kind("linear_recurrence", terms, INEXACT)
    if factors.shape != terms.shape or factors.dtype != terms.dtype:
        raise TypeError(f"linear_recurrence requires factors and terms of one type, got {factors} and {terms}")
    return terms


@boundary
def cumsum(operand, axis: int = 0, reverse: bool = False):
    """Running sums along an axis; element i is the sum of elements 0..i, or i.. if `reverse`.

    Args:
      operand: an array of numbers.
      axis: in [0, rank).
      reverse: run from the end.
    Raises: ValueError for the axis, TypeError for the dtype.

    >>> import numpy as np
    >>> cumsum(np.array([1, 2, 3])).tolist(), cumsum(np.array([1, 2, 3]), reverse=True).tolist()
    ([1, 3, 6], [6, 5, 3])
    """
    return cumsum_p.bind(operand, axis=int(axis), reverse=bool(reverse))


@boundary
def cumprod(operand, axis: int = 0, reverse: bool = False):
    """Running products along an axis; as `cumsum`."""
    return cumprod_p.bind(operand, axis=int(axis), reverse=bool(reverse))


@boundary
def cummax(operand, axis: int = 0, reverse: bool = False):
    """Running maxima along an axis, NaN from the first one on; as `cumsum`."""
    return cummax_p.bind(operand, axis=int(axis), reverse=bool(reverse))


@boundary
def cummin(operand, axis: int = 0, reverse: bool = False):
    """Running minima along an axis, NaN from the first one on; as `cumsum`."""
    return cummin_p.bind(operand, axis=int(axis), reverse=bool(reverse))


@boundary
def cumlogsumexp(operand, axis: int = 0, reverse: bool = False):
    """Running log(sum(exp(...))) along an axis without overflow, for floating and complex arrays; as `cumsum`."""
    return cumlogsumexp_p.bind(operand, axis=int(axis), reverse=bool(reverse))


def linear_recurrence(factors, terms, axis: int, reverse: bool = False):
    """y with y[i] = factors[i] y[i - 1] + terms[i] along an axis, and 0 before the first; as `cumsum`.

    Args:
      factors: an array of the type of `terms`. The first one, or the last one if `reverse`, counts for nothing.

    >>> import numpy as np
    >>> linear_recurrence(np.array([9.0, 2.0, 3.0]), np.array([1.0, 1.0, 1.0]), 0).tolist()
    [1.0, 3.0, 10.0]
    """
    return linear_recurrence_p.bind(factors, terms, axis=axis, reverse=reverse)
