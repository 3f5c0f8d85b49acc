"""Statistics: order statistics, weighted means, covariances, histograms.

Moments without weights (mean, var, std) are in `reductions.py`.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxlite import lax
from jaxlite.core import dtypes
from jaxlite.core.aval import Ints
from jaxlite.core.axes import with_ones, with_sizes
from jaxlite.core.errors import ConcretizationTypeError
from jaxlite.core.filtering import boundary
from jaxlite.core.symbolic import as_size, is_symbolic
from jaxlite.core.tracing import Tracer, known_value, set_trace
from jaxlite.core.values import aval_of
from jaxlite.devices import placement
from jaxlite.lax import shaping
from jaxlite.numpy import arithmetic, grids, indexing, linear, manipulation, reductions, searching, selection, ufuncs
from jaxlite.numpy.api import (
    api,
    as_array,
    broadcasts_inside,
    canonical_axes,
    check_arrays,
    check_given,
    is_complex,
    multiplies_masks,
    promote_dtypes_inexact,
    scalar,
)
from jaxlite.traces.eager import eager_trace

Axis = None | int | Ints

# --- order statistics --------------------------------------------------------------------------------

_METHODS = ("linear", "lower", "higher", "midpoint", "nearest", "inverted_cdf")


def _check(name: str, a, q, weights, out, overwrite_input, method: str) -> None:
    check_given(name, a, q, weights)
    if out is not None or overwrite_input:
        raise ValueError(f"jax.numpy.{name} does not support overwrite_input=True or out != None")
    if method not in _METHODS:
        raise ValueError("method can only be 'linear', 'lower', 'higher', 'midpoint', 'nearest' or 'inverted_cdf', "
                         f"got {method!r}")
    if weights is not None and method != "inverted_cdf":
        raise NotImplementedError(f"{method} doesn't support weights. Only method 'inverted_cdf' supports weights.")
    if is_complex(a) or is_complex(q):
        raise ValueError(f"{name} does not support complex input, as the operation is poorly defined.")
    if aval_of(q).ndim > 1:
        raise ValueError(f"q must be have rank <= 1, got shape {aval_of(q).shape}")


@api
def quantile(a, q, axis: Axis = None, out: None = None, overwrite_input: bool = False, method: str = "linear",
             keepdims: bool = False, *, weights=None):
    """The values below which given fractions of the elements along axes are; NaN where an element is.

    Args:
      q: fractions in [0, 1], a scalar or one axis, which comes first in the result.
      axis: None for all, an int, or a tuple.
      method: between two elements, 'linear' interpolates, 'lower' and 'higher' take one, 'midpoint' their mean,
        'nearest' the nearer one; 'inverted_cdf' takes the first element up to which there is that fraction.
      weights: of a's shape, or the shape of the axes; only for 'inverted_cdf'.
    Returns: floating, of a's dtype if it is.
    Raises: ValueError for complex numbers, an unknown method, weights that do not fit; NotImplementedError for
      weights with another method.

    >>> import jaxlite.numpy as jnp
    >>> print(jnp.quantile(jnp.array([1.0, 2.0, 3.0, 4.0]), jnp.array([0.0, 0.5, 1.0])))
    [1.  2.5 4. ]
    """
    return _quantile("quantile", a, q, weights, out, overwrite_input, axis, method, keepdims)


@api
def nanquantile(a, q, axis: Axis = None, out: None = None, overwrite_input: bool = False, method: str = "linear",
                keepdims: bool = False, *, weights=None):
    """The quantiles of the elements that are not NaN; NaN for none. As `quantile`."""
    return _quantile("nanquantile", a, q, weights, out, overwrite_input, axis, method, keepdims)


@api
def percentile(a, q, axis: Axis = None, out: None = None, overwrite_input: bool = False, method: str = "linear",
               keepdims: bool = False, *, weights=None, out_sharding: Any = None):
    """The values below which given percentages, in [0, 100], of the elements are. As `quantile`."""
    result = _quantile("percentile", a, q, weights, out, overwrite_input, axis, method, keepdims)
    return placement.laid_out(result, out_sharding)


@api
def nanpercentile(a, q, axis: Axis = None, out: None = None, overwrite_input: bool = False, method: str = "linear",
                  keepdims: bool = False, *, weights=None):
    """The percentiles of the elements that are not NaN; NaN for none. As `percentile`."""
    return _quantile("nanpercentile", a, q, weights, out, overwrite_input, axis, method, keepdims)


@api
def median(a, axis: Axis = None, out: None = None, overwrite_input: bool = False, keepdims: bool = False):
    """The middle element along axes, the mean of the middle two for an even number; NaN where an element is.

    >>> import jaxlite.numpy as jnp
    >>> jnp.median(jnp.array([5.0, 1.0, 3.0, 2.0]))
    Array(2.5, dtype=float32)
    """
    _check("median", a, 0.5, None, out, overwrite_input, "midpoint")
    a = _inexact(as_array(a))
    axes = canonical_axes(axis, a.ndim)
    kept = with_ones(a.shape, axes) or [1]
    line, axis = _one_line(a, axes)
    shape = list(line.shape)
    size, shape[axis] = shape[axis], 1
    if not size:
        result = shaping.full(shape, np.nan, a.dtype)
    else:
        ordered = _ordered(line, axis)
        result = _ends(ordered, axis, size // 2)
        if is_symbolic(size) or size % 2 == 0:
            wide = dtypes.sum_dtype(a.dtype)
            low, high = (shaping.convert(each, wide, False) for each in (_ends(ordered, axis, (size - 1) // 2), result))
            result = shaping.convert(lax.add(low, high) * 0.5, a.dtype, False)
        result = _spread_nan(result, ordered, axis)
    return shaping.reshape(result, kept) if keepdims else shaping.squeeze(result, (axis,))


@api
def nanmedian(a, axis: Axis = None, out: None = None, overwrite_input: bool = False, keepdims: bool = False):
    """The median of the elements that are not NaN; NaN for none. As `median`."""
    return _quantile("nanmedian", a, 0.5, None, out, overwrite_input, axis, "midpoint", keepdims)


def _one_line(a, axes: Ints) -> tuple[Any, int]:
    """The array with several axes made one, and that axis."""
    if len(axes) == 1:
        return a, axes[0]
    rest = a.ndim - len(axes)
    a = shaping.axes_last(a, axes) if rest else a
    return shaping.reshape(a, (*a.shape[:rest], math.prod(a.shape[rest:]))), rest


def _ordered(line, axis: int):
    """Sorted, equal elements in any order; strongly typed after the sort, so gradients are, too."""
    return shaping.convert(lax.sort(line, dimension=axis, is_stable=False), None, False)


def _ends(ordered, axis: int, index: int):
    return lax.slice_in_dim(ordered, index, index + 1, axis=axis)


def _spread_nan(result, ordered, axis: int):
    """NaN where a line has one: it is sorted to the end."""
    last = _ends(ordered, axis, ordered.shape[axis] - 1)
    nan = shaping.broadcast_in_dim(last != last, result.shape, range(result.ndim))
    return lax.select(nan, shaping.full_like(result, np.nan), result)


def _inexact(a):
    return shaping.convert(a, dtypes.to_inexact_dtype(a.dtype))


def _quantile(name: str, a, q, weights, out, overwrite_input, axis: Axis, method: str, keepdims: bool):
    _check(name, a, q, weights, out, overwrite_input, method)
    skip_nan = name.startswith("nan")
    a = _inexact(as_array(a))
    dtype = a.dtype
    q = _inexact(as_array(q))
    own = [(each if dtypes.itemsize_bits(each) >= 16 else dtypes.float32, False)  # smaller floats promote with nothing
           for each in (dtype, q.dtype)]
    wide, _ = dtypes.lattice_join((*own, (dtypes.float32, False)), "standard")
    q = shaping.convert(q, wide, False)
    if name.endswith("percentile"):
        q = lax.div(q, scalar(100, wide))
    several = q.ndim == 1
    count = q.size
    shape = a.shape
    axes = canonical_axes(axis, len(shape))
    kept = with_ones(shape, axes) or [1]
    if weights is not None:
        weights = shaping.convert(_weights_like(a, weights, axis, axes), wide, False)
        weights, _ = _one_line(weights, axes)
    line, axis = _one_line(a, axes)
    rank = line.ndim
    # The fractions take the place of the axis until the end.
    q = shaping.reshape(q, with_sizes((1,) * rank, axis, count))
    size = line.shape[axis]
    if not size:
        result = shaping.full(with_sizes(line.shape, axis, count), np.nan, dtype)
    elif weights is not None:
        result = _weighted_quantile(line, q, weights, axis, skip_nan)
    else:
        ordered = _ordered(line, axis)
        size_of_line: Any = scalar(size, wide)
        if skip_nan:
            valid = shaping.convert(lax.eq(ordered, ordered), dtypes.int32, False)
            total = lax.reduce_sum(valid, (axis,))
            size_of_line = shaping.convert(shaping.expand_dims(total, (axis,)), wide, False)
        last = arithmetic.maximum(arithmetic.subtract(size_of_line, scalar(1, wide)), scalar(0, wide))
        result = _pick(ordered, q, size_of_line, last, axis, method, wide)
        result = shaping.convert(result, dtype, False)
        if not skip_nan:
            result = _spread_nan(result, ordered, axis)
    if not several:
        result = shaping.squeeze(result, (axis,))
        return shaping.reshape(result, kept) if keepdims else result
    result = manipulation.moveaxis(result, axis, 0)
    return shaping.reshape(result, [count, *kept]) if keepdims else result


def _pick(ordered, q, size, last, axis: int, method: str, wide):
    """Elements of sorted lines at fractions of their length, where `last` is the position of the last element."""

    def at(position):
        position = lax.clamp(scalar(0, wide), position, scalar(ordered.shape[axis] - 1, wide))
        position = shaping.convert(position, dtypes.int32, False)
        if position.size == position.shape[axis]:  # the same for all lines
            found = indexing.take(ordered, position.ravel(), axis, mode="clip")
        else:
            found = indexing.take_along_axis(ordered, position, axis, mode="clip")
        return shaping.convert(found, wide, False)

    if method == "inverted_cdf":
        return at(ufuncs.clip(lax.ceil(q * size) - 1, 0, last))
    position = q * last
    below = lax.floor(position)
    low = at(ufuncs.clip(below, 0, last))
    if method == "lower":
        return low
    high = at(ufuncs.clip(lax.ceil(position), 0, last))
    if method == "higher":
        return high
    if method == "midpoint":
        return (low + high) * 0.5
    above = position - below
    if method == "nearest":
        return selection.where(above <= 0.5, low, high)
    return low * (1 - above) + high * above


def _weights_like(a, weights, axis: Axis, axes: Ints):
    """Weights stretched to the shape of the array."""
    shape, own = a.shape, aval_of(weights).shape
    if own == shape:
        return weights
    if axis is None:
        raise ValueError(f"Weights shape must match 'a' shape when axis is None, got {own} and {shape}.")
    return _stretched(shape, weights, axis, axes)


def _stretched(shape: Ints, weights, axis, axes: Ints):
    """Weights for some axes, in the order in which these were given, stretched to a shape."""
    if aval_of(weights).shape != tuple(shape[each] for each in axes):
        raise ValueError(f"Shape of weights must be consistent with shape of a along specified axis: got weights "
                         f"{aval_of(weights).shape}, a {shape}, axis {axis}.")
    order = sorted(range(len(axes)), key=lambda each: axes[each])
    return shaping.broadcast_in_dim(shaping.transpose(weights, order), shape, sorted(axes))


def _weighted_quantile(line, q, weights, axis: int, skip_nan: bool):
    """For each fraction the first element up to which the weights add up to that fraction of all weights."""
    nan = lax.ne(line, line)
    bad = ~(weights >= shaping.full_like(weights, 0))  # negative or NaN
    if skip_nan:
        weights = lax.select(nan, shaping.full_like(weights, 0), weights)
        bad = bad & ~nan
    else:
        bad = bad | nan
    ordered, weights = lax.sort((line, weights), dimension=axis, num_keys=1)
    ordered = shaping.convert(ordered, None, False)
    size = line.shape[axis]
    sums = lax.cumsum(weights, axis)
    target = q * _ends(sums, axis, size - 1)
    # One comparison a fraction: (.., size, .., fractions at the end), then the count takes the place of the axis.
    rank = line.ndim
    targets = shaping.expand_dims(manipulation.moveaxis(target, axis, rank - 1), (axis,))
    before = shaping.expand_dims(sums, (rank,)) < targets
    position = reductions.sum(before, axis=axis, dtype=dtypes.int32)
    position = lax.min(manipulation.moveaxis(position, rank - 1, axis), scalar(size - 1, np.dtype(np.int32)))
    result = indexing.take_along_axis(ordered, position, axis, mode="clip")
    wrong = shaping.expand_dims(lax.reduce_or(bad, (axis,)), (axis,))
    wrong = shaping.broadcast_in_dim(wrong, result.shape, range(rank))
    return lax.select(wrong, shaping.full_like(result, np.nan), result)


# --- weighted means, covariances ---------------------------------------------------------------------


@api
@multiplies_masks
def average(a, axis: Axis = None, weights=None, returned: bool = False, keepdims: bool = False):
    """The weighted mean over axes; the plain mean without weights.

    Args:
      weights: of a's shape, or the shape of the axes.
      returned: also give the sum of the weights (the number of elements without them), of the result's shape.
    Raises: ValueError for weights that do not fit.

    >>> import jaxlite.numpy as jnp
    >>> jnp.average(jnp.array([1.0, 2.0]), weights=jnp.array([3.0, 1.0]))
    Array(1.25, dtype=float32)
    """
    check_given("average", a, weights)
    if weights is None:
        result = shaping.convert(reductions.mean(a, axis=axis, keepdims=keepdims), None, False)
        if not returned:
            return result
        shape = aval_of(a).shape
        count = math.prod(shape[each] for each in canonical_axes(axis, len(shape)))
        return result, shaping.full_like(result, count)
    a, weights = promote_dtypes_inexact(a, weights)
    shape = a.shape
    axes = canonical_axes(axis, len(shape))
    if weights.shape != shape:
        if axis is None:
            raise ValueError("Axis must be specified when shapes of a and weights differ, got "
                             f"{shape} and {weights.shape}.")
        weights = _stretched(shape, weights, axis, axes)
    total = reductions.sum(weights, axis=axes, keepdims=keepdims)
    result = reductions.sum(a * weights, axis=axes, keepdims=keepdims) / total
    return (result, total) if returned else result


def _sample_weights(name: str, weights, samples: int):
    if aval_of(weights).ndim != 1:
        raise RuntimeError(f"cannot handle multidimensional {name}, got shape {aval_of(weights).shape}")
    if aval_of(weights).size != samples:
        raise RuntimeError(f"incompatible numbers of samples and {name}: {samples} and {aval_of(weights).size}")
    return arithmetic.absolute(weights)


@api
@broadcasts_inside
def cov(m, y=None, rowvar: bool = True, bias: bool = False, ddof: int | None = None, fweights=None, aweights=None,
        dtype: Any = None):
    """The covariances of variables: (variables, variables), a scalar for one.

    Args:
      m: (variables, samples), the other way round unless `rowvar`, or one variable's samples.
      y: more variables, in the same form.
      bias: divide by the number of samples, not by one less; ddof: by that many less, whatever `bias` says.
      fweights: how often each sample counts, integers; aweights: how much.
      dtype: floating or complex, to compute in.
    Raises: ValueError for more than two axes or the dtype; TypeError, RuntimeError for weights.
    """
    if dtype is not None:
        dtype = dtypes.check_user_dtype_supported(dtype, "cov")
        if dtypes.kind(dtype) not in "fc":
            raise ValueError(f"cov: dtype must be a subclass of float or complex; got {dtype=}")
    check_given("cov", m, y)
    for name, each in (("m", m), ("y", y)):
        if each is not None and aval_of(each).ndim > 2:
            raise ValueError(f"{name} has more than 2 dimensions: shape {aval_of(each).shape}")
    parts = promote_dtypes_inexact(*([m] if y is None else [m, y]))
    if dtype is not None:
        parts = [shaping.of_user(part, dtype) for part in parts]
    x = _variables(parts[0], rowvar)
    if not x.shape[0]:
        return shaping.full((0, 0), 0, dtypes.default_dtype(float))
    if y is not None:
        other = _variables(parts[1], rowvar)
        if other.shape[1] != x.shape[1]:
            raise TypeError(f"cov: m and y must have as many samples, got shapes {aval_of(m).shape} and "
                            f"{aval_of(y).shape}")
        x = shaping.concatenate([x, other], 0)
    dtype = x.dtype
    samples = x.shape[1]
    if not samples:
        return shaping.squeeze(shaping.full((x.shape[0],) * 2, np.nan, dtype),
                               (0, 1) if x.shape[0] == 1 else ())
    ddof = (0 if bias else 1) if ddof is None else ddof
    w = None
    if fweights is not None:
        check_arrays("cov", fweights)
        w = _sample_weights("fweights", fweights, samples)
        if dtypes.kind(w.dtype) not in "iu":
            raise TypeError("fweights must be integer.")
        w = shaping.convert(w, dtype, False)
    if aweights is not None:
        check_arrays("cov", aweights)
        aweights = shaping.convert(_sample_weights("aweights", aweights, samples), dtype, False)
        w = aweights if w is None else w * aweights
    if w is None:
        center = reductions.mean(x, axis=1, keepdims=True)
        norm: Any = scalar(samples - ddof, dtype)
    else:
        total = reductions.sum(w)
        center = reductions.sum(arithmetic.multiply(x, w), axis=1, keepdims=True) / total
        if ddof == 0:
            norm = total
        elif aweights is None:
            norm = total - ddof
        else:
            effective = lax.div(reductions.sum(lax.mul(w, aweights)), total)
            norm = total - ddof * effective
    x = x - center
    other = x if w is None else x * w
    other = shaping.transpose(lax.conj(other) if is_complex(other) else other, (1, 0))
    result = linear.dot(x, other) / norm
    return shaping.squeeze(result, (0, 1)) if result.shape == (1, 1) else result


def _variables(x, rowvar: bool):
    """One variable a row."""
    rank = x.ndim
    if rank < 2:
        return shaping.reshape(x, (1, x.size))
    return x if rowvar else shaping.transpose(x, (1, 0))


@api
@broadcasts_inside
def corrcoef(x, y=None, rowvar: bool = True, dtype: Any = None):
    """The correlations of variables: covariances divided by both standard deviations. Arguments are as in `cov`."""
    check_given("corrcoef", x, y)
    c = cov(x, y, rowvar, dtype=dtype)
    if not c.shape:
        return c / c
    deviation = lax.sqrt(ufuncs.real(manipulation.diagonal(c)))
    deviation = shaping.convert(deviation, c.dtype, False)
    c = c / shaping.expand_dims(deviation, (1,)) / deviation
    if is_complex(c):
        return lax.complex(ufuncs.clip(lax.real(c), -1, 1), ufuncs.clip(lax.imag(c), -1, 1))
    return ufuncs.clip(c, -1, 1)


# --- histograms --------------------------------------------------------------------------------------


@boundary
def bincount(x, weights=None, minlength: int = 0, *, length: int | None = None, out_sharding=None):
    """How often each of 0, 1, 2, ... occurs; negative ones count as 0.

    Args:
      x: integers, one axis; concrete, unless `length` is given.
      weights: what each element counts, of x's shape.
      minlength: the least size of the result, which otherwise ends with the greatest element.
      length: the size of the result; what is beyond is not counted.
    Raises: TypeError for a dtype that is not integer; ValueError for shapes; ConcretizationTypeError for a traced x
      without `length`.

    >>> import jaxlite.numpy as jnp
    >>> jnp.bincount(jnp.array([1, 3, 1]))
    Array([0, 2, 0, 1], dtype=int32)
    """
    check_given("bincount", x, weights)
    aval = aval_of(x)
    if dtypes.kind(aval.dtype) not in "iub":
        raise TypeError(f"x argument to bincount must have an integer type; got {aval.dtype}")
    if aval.ndim != 1:
        raise ValueError(f"only 1-dimensional input supported, got shape {aval.shape}.")
    if weights is not None and aval_of(weights).shape != aval.shape:
        raise ValueError(f"bincount: weights must have x's shape {aval.shape}, got {aval_of(weights).shape}")
    if length is None:
        if isinstance(x, Tracer):
            raise ConcretizationTypeError(x, "pass the length argument to jnp.bincount: the size of its result depends "
                                             "on the argument x, unless it is given")
        length = operator.index(minlength)
        if aval.size:
            with set_trace(eager_trace):
                length = max(length, int(reductions.max(x)) + 1)
        length = max(length, 0)
    length = as_size(length)
    if length < 0:
        raise TypeError(f"bincount: length must not be negative, got {length}")
    return placement.laid_out(_bincount(x, weights, length=length), out_sharding)


@api
def _bincount(x, weights, length: int):
    x = as_array(x)
    dtype = x.dtype
    if dtypes.kind(dtype) == "b" or dtypes.itemsize_bits(dtype) < 32:
        x = shaping.convert(x, dtypes.int32, False)
    elif dtypes.kind(dtype) == "u":  # may be beyond the integers that count positions
        x = shaping.convert(lax.min(x, scalar(length, dtype)), dtypes.int32, False)
    x = lax.max(x, scalar(0, x.dtype))
    counted = dtypes.default_dtype(int) if weights is None else aval_of(weights).dtype
    if not length:
        return shaping.full((0,), 0, counted)
    each: Any = scalar(1, counted) if weights is None else weights
    return indexing.scatter_at(shaping.full((length,), 0, counted), x, each, "add", mode="drop",
                               wrap_negative_indices=False)


def _split_bins(name: str, bins) -> tuple[int | None, Any]:
    """A number of bins and None, or None and the edges."""
    if isinstance(bins, str):
        error = NotImplementedError if name == "histogram_bin_edges" else TypeError
        raise error(f"string values for `bins` not implemented, got {bins!r}")
    check_arrays(name, bins)
    if not aval_of(bins).ndim:
        return operator.index(known_value(bins, "the argument bins of jnp.{} decides the shape of its result; mark it "
                                                "static", name)), None
    if aval_of(bins).ndim != 1:
        raise TypeError(f"{name}: bins must be an integer or the edges along one axis, got shape {aval_of(bins).shape}")
    if name != "histogram_bin_edges" and not aval_of(bins).size:
        raise IndexError(f"{name}: bins must be an integer or at least one edge, got an empty array")
    return None, bins


def _range(name: str, range):
    """The ends of a range, checked: None, or a pair of scalars."""
    if range is None:
        return None
    if aval_of(range).shape != (2,) if hasattr(range, "shape") else len(range) != 2:
        raise ValueError(f"{name}: `range` must be either None or a sequence of scalars, got {range}")
    ends = (range[0], range[1])
    check_arrays(name, *ends)
    return ends


@boundary
def histogram_bin_edges(a, bins=10, range: Sequence[Any] | None = None, weights=None):
    """The edges of a histogram's bins: `bins` equal parts of the range, or `bins` itself if it is an array.

    Args:
      range: the ends; those of the data by default, moved apart by 1 if they are equal; 0 and 1 for no data.
      weights: without effect.
    Returns: floating, (number of bins + 1,).
    Raises: NotImplementedError for a string.
    """
    count, edges = _split_bins("histogram_bin_edges", bins)
    check_arrays("histogram_bin_edges", a)
    return _edges(a, edges, _range("histogram_bin_edges", range), count=count)


@api
def _edges(a, edges, range, count: int | None, dtype: Any = None):
    a = as_array(a)
    dtype = dtypes.to_inexact_dtype(a.dtype) if dtype is None else dtype
    if count is None:
        return shaping.convert(edges, dtype, False)
    if range is None:
        a = shaping.convert(a, dtype, False)  # on the CPU extremes of floats take fewer kernels than those of integers
        range = (reductions.min(a), reductions.max(a)) if a.size else (0, 1)
    low, high = range
    low, high = shaping.convert(low, dtype, False), shaping.convert(high, dtype, False)
    equal = low == high
    half = scalar(0.5, dtype)
    low, high = lax.select(equal, lax.sub(low, half), low), lax.select(equal, lax.add(high, half), high)
    inner = grids.linspace(low, high, count, endpoint=False, dtype=dtype)
    if not count:
        return shaping.reshape(low, (1,))
    return shaping.concatenate([inner, shaping.reshape(high, (1,))], 0)


def _bin(a, edges):
    """The bin of each element, counted from 1: 0 below the first edge, the number of edges above the last, which
    belongs to the last bin."""
    count = edges.size
    found = searching.searchsorted(edges, a, side="right", method="compare_all" if count <= 16 else "scan")
    return lax.select(a == edges[-1], shaping.full_like(found, count - 1), found)


@boundary
def histogram(a, bins=10, range: Sequence[Any] | None = None, weights=None,
              density: bool | None = None, out_sharding=None) -> tuple[Any, Any]:
    """How many elements are in each bin, and the edges of the bins.

    Args:
      bins: the number of bins, or their edges in ascending order; the last bin includes its end.
      range: the ends, as in `histogram_bin_edges`.
      weights: what each element counts, of a's shape.
      density: divide by the total and by the widths, so that the integral is 1.
      out_sharding: how the counts are laid out over devices.
    Returns: floating counts (bins,) and edges (bins + 1,).
    Raises: ValueError for weights of another shape, IndexError for edges without elements.

    >>> import jaxlite.numpy as jnp
    >>> counts, edges = jnp.histogram(jnp.array([1, 2, 1]), bins=jnp.array([0, 1, 2, 3]))
    >>> print(counts)
    [0. 2. 1.]
    """
    count, edges = _split_bins("histogram", bins)
    check_given("histogram", a, weights)
    if weights is not None and aval_of(weights).shape != aval_of(a).shape:
        raise ValueError(f"weights should have the same shape as a, got {aval_of(weights).shape} and "
                         f"{aval_of(a).shape}.")
    counts, edges = _histogram(a, edges, _range("histogram", range), weights, count=count, density=bool(density))
    return placement.laid_out(counts, out_sharding), edges


@api
def _histogram(a, edges, range, weights, count: int | None, density: bool) -> tuple[Any, Any]:
    a = as_array(a)
    avals = [aval_of(a)] if weights is None or is_complex(weights) else [aval_of(a), aval_of(weights)]
    dtype = dtypes.to_inexact_dtype(dtypes.lattice_join(tuple((aval.dtype, aval.weak_type) for aval in avals))[0])
    counted = dtype if weights is None or not is_complex(weights) else aval_of(weights).dtype
    a = shaping.convert(a.ravel(), dtype, False)
    edges = _edges(a, edges, range, count=count, dtype=dtype)
    # Half floats could not count beyond a few thousand.
    wide = dtypes.sum_dtype(counted)
    weights = shaping.full(a.shape, 1, wide) if weights is None else \
        shaping.convert(shaping.reshape(weights, a.shape), wide, False)
    size = edges.size
    counts = lax.slice_in_dim(_bincount(_bin(a, edges), weights, length=size), 1, size)
    if density:
        counts = counts / shaping.convert(_widths(edges), wide, False) / reductions.sum(counts)
    return shaping.convert(counts, counted, False), edges


def _widths(edges):
    return edges[1:] - edges[:-1]


@boundary
def histogram2d(x, y, bins=10, range=None, weights=None, density: bool | None = None) -> tuple[Any, Any, Any]:
    """How many points (x, y) are in each cell of a grid, and the edges along x and along y.

    Args:
      x, y: the coordinates, one axis each.
      bins: a number, or edges, for both; or a pair of such.
      range: None, or for each coordinate None or a pair of ends.
      weights, density: as in `histogram`.
    """
    check_arrays("histogram2d", x, y)
    for each in (x, y):
        if aval_of(each).ndim != 1:
            raise ValueError(f"histogram2d: x and y must have one axis, got shapes {aval_of(x).shape} and "
                             f"{aval_of(y).shape}")
    if aval_of(x).shape != aval_of(y).shape:
        raise TypeError(f"histogram2d: x and y must have equal shapes, got {aval_of(x).shape} and {aval_of(y).shape}")
    if getattr(bins, "ndim", None) == 1 and len(bins) > 2:
        bins = [bins, bins]
    counts, edges = histogramdd(_points(x, y), bins, range, weights, density)
    return counts, edges[0], edges[1]


@api
def _points(*coordinates):
    return shaping.stack(promote_dtypes_inexact(*coordinates), 1)


@boundary
def histogramdd(sample, bins=10, range=None, weights=None, density: bool | None = None) -> tuple[Any, list[Any]]:
    """How many points are in each cell of a grid of D dimensions, and the edges along each of them.

    Args:
      sample: (points, D).
      bins: a number for all dimensions, or for each a number or edges.
      range: None, or for each dimension None or a pair of ends.
      weights: what each point counts, (points,).
      density: divide by the total and by the volumes of the cells.
    Returns: counts, integers without weights and density; a list of edges.
    Raises: ValueError for arguments that do not fit, IndexError for edges without elements.
    """
    check_given("histogramdd", sample, weights)
    if aval_of(sample).ndim != 2:
        raise ValueError(f"histogramdd: sample must have shape (points, D), got {aval_of(sample).shape}")
    points, dimensions = aval_of(sample).shape
    if not dimensions:
        raise ValueError(f"histogramdd: sample must have at least one dimension, got {aval_of(sample).shape}")
    if weights is not None and aval_of(weights).shape != (points,):
        raise ValueError(f"should have one weight for each sample: {points}, got shape {aval_of(weights).shape}.")
    if isinstance(bins, (list, tuple)) or (hasattr(bins, "ndim") and bins.ndim):
        if len(bins) != dimensions:
            raise ValueError(f"should be a bin for each dimension: {dimensions}, got {len(bins)}.")
        bins = [each[()] if isinstance(each, np.ndarray) and not each.ndim else each for each in bins]
    else:
        bins = [bins] * dimensions
    if range is None:
        range = [None] * dimensions
    elif len(range) != dimensions or any(each is not None and np.shape(each) != (2,) for each in range):
        raise ValueError(f"For sample.shape={aval_of(sample).shape}, range must be a sequence of {dimensions} pairs or "
                         f"Nones; got {range=}")
    split = [_split_bins("histogramdd", each) for each in bins]
    return _histogramdd(sample, [edges for _, edges in split], [_range("histogramdd", each) for each in range], weights,
                        counts=tuple(count for count, _ in split), density=bool(density))


@api
def _histogramdd(sample, given, ranges, weights, counts: tuple[int | None, ...], density: bool) -> tuple[Any, list[Any]]:
    if weights is None:
        sample = _inexact(as_array(sample))
    else:
        sample, weights = promote_dtypes_inexact(sample, weights)
    all_edges, places, sizes = [], [], []
    for dimension, (edges, range, count) in enumerate(zip(given, ranges, counts, strict=True)):
        column = sample[:, dimension]
        edges = _edges(column, edges, range, count=count)
        all_edges.append(edges)
        places.append(_bin(column, edges))
        sizes.append(edges.size + 1)
    # Cells are numbered with one more on each side, for points outside.
    cell = functools.reduce(lambda cell, step: lax.mul(cell, scalar(step[1], cell.dtype)) + step[0],
                            zip(places[1:], sizes[1:], strict=True), places[0])
    result = shaping.reshape(_bincount(cell, weights, length=math.prod(sizes)), sizes)
    result = lax.slice(result, [1] * len(sizes), [size - 1 for size in sizes])
    if density:
        wide = dtypes.sum_dtype(sample.dtype)
        result = shaping.convert(result, wide, False)
        total = reductions.sum(result)
        for dimension, edges in enumerate(all_edges):
            widths = shaping.convert(_widths(edges), wide, False)
            result = result / shaping.broadcast_in_dim(widths, result.shape, (dimension,))
        result = shaping.convert(result / total, sample.dtype, False)
    return result, all_edges
