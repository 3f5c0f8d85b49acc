"""Grids: evenly spaced values, triangles, index grids, window functions.

Also here: the indexing objects `mgrid`, `ogrid`, `r_`, `c_`, `s_`, and conversions between multi-dimensional and flat
indices (`ravel_multi_index`, `unravel_index`).
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxlite import lax
from jaxlite.core import dtypes
from jaxlite.core.array import ArrayImpl
from jaxlite.core.aval import Ints
from jaxlite.core.filtering import boundary
from jaxlite.core.symbolic import as_size, is_symbolic, largest
from jaxlite.core.tracing import Tracer, known_value
from jaxlite.core.tree import tree_map
from jaxlite.core.values import aval_of
from jaxlite.lax import shaping
from jaxlite.numpy import arithmetic, indexing, searching, selection, ufuncs
from jaxlite.numpy.api import api, as_array, as_arrays, check_arrays, is_array_like, promote_dtypes, promotes_inside, scalar
from jaxlite.numpy.creation import arange, asarray, device_put, ones, shape_of
from jaxlite.numpy.joining import concatenate
from jaxlite.numpy.manipulation import broadcast_to, concrete, moveaxis
from lowering.xla import VERSION

# --- evenly spaced values ----------------------------------------------------------------------------


def _count(name: str, argument: str, value):
    return as_size(known_value(value, "the argument {!r} of jnp.{} decides the shape of its result, so it must be "
                                      "concrete; mark it static", argument, name))


def _spaced(name: str, start, stop, num, dtype) -> tuple[int, Any]:
    """The checked `num` and dtype of a function of this family."""
    count = _count(name, "num", num)
    if count < 0:
        raise ValueError(f"Number of samples, {count}, must be non-negative.")
    check_arrays(name, start, stop)
    return count, dtypes.requested_dtype(dtype, name)


def _spacing_dtype(start, stop, dtype):
    return dtypes.to_inexact_dtype(dtypes.result_type(start, stop) if dtype is None else dtype)


def _linear(start, stop, num: int, endpoint: bool, dtype, axis: int) -> tuple[Any, Any]:
    """Evenly spaced values, and their distance, in an inexact dtype."""
    start, stop = (shaping.of_user(bound, dtype) for bound in (start, stop))
    shape = shaping.broadcast_shapes(start.shape, stop.shape)
    axis = shaping.canonical_axis(axis, len(shape) + 1)
    low, high = broadcast_to(start, shape), broadcast_to(stop, shape)
    column = (*shape[:axis], 1, *shape[axis:])
    if num == 0:
        return shaping.full((*shape[:axis], 0, *shape[axis:]), 0, dtype), np.full((), np.nan, dtype)[()]
    if num == 1:
        distance = np.full((), np.nan, dtype)[()] if endpoint else arithmetic.subtract(stop, start)
        return shaping.reshape(low, column), distance
    real = dtypes.to_floating_dtype(dtype)
    count = num - 1 if endpoint else num
    distance = lax.div(arithmetic.subtract(stop, start), scalar(count, dtype))
    ramp = shaping.iota(real, count)
    if shape:
        ramp = shaping.reshape(ramp, [count if each == axis else 1 for each in range(len(column))])
    part = shaping.convert(lax.div(ramp, scalar(count, real)), dtype, False)
    result = lax.mul(shaping.reshape(low, column), lax.sub(np.asarray(1, dtype)[()], part))
    each = lax.div(shaping.reshape(high, column), scalar(count, dtype))  # so that whole distances give whole numbers
    result = lax.add(result, lax.mul(each, shaping.convert(ramp, dtype, False)))
    if endpoint:  # the last value is exact, whatever the rounding
        if is_symbolic(num):  # a single value is the first
            high = selection.where(lax.eq(scalar(num, dtypes.int32), np.int32(1)), low, high)
        result = shaping.concatenate([result, shaping.expand_dims(high, (axis,))], axis)
    return result, distance


@functools.lru_cache(4096)
def _linspace(num: int, endpoint: bool, dtype, axis: int, retstep: bool) -> Callable[[Any, Any], Any]:
    """`linspace` of two bounds. One function for each choice of static arguments: no keywords on the way in."""

    @api
    def linspace(start, stop, /):
        computed = _spacing_dtype(start, stop, dtype)
        result, distance = _linear(start, stop, num, endpoint, computed, axis)
        if dtype is not None and dtypes.kind(dtype) in "iu":
            result = lax.floor(result)
        result = shaping.convert(result, computed if dtype is None else dtype, False)
        return (result, as_array(distance)) if retstep else result

    return linspace


@boundary
def linspace(start, stop, num: int = 50, endpoint: bool = True, retstep: bool = False, dtype=None, axis: int = 0, *,
             device=None):
    """Evenly spaced values from `start` to `stop`.

    Args:
      start, stop: scalars or arrays; arrays are broadcast, and give one row of values for each pair.
      num: how many values. Static.
      endpoint: whether `stop` is the last one, or the first left out.
      retstep: return (values, distance).
      dtype: default: the floating dtype of the bounds. For integers, values are rounded down.
      axis: where the new axis goes, if the bounds are arrays.
    Raises: ValueError for a negative `num`.

    >>> from jaxlite import numpy as jnp
    >>> jnp.linspace(0, 1, 5)
    Array([0.  , 0.25, 0.5 , 0.75, 1.  ], dtype=float32)
    """
    num, dtype = _spaced("linspace", start, stop, num, dtype)
    result = _linspace(num, bool(endpoint), dtype, operator.index(axis), bool(retstep))(start, stop)
    return result if device is None else tree_map(lambda each: device_put(each, device), result)


@api
def logspace(start, stop, num: int = 50, endpoint: bool = True, base=10.0, dtype: Any = None, axis: int = 0):
    """Powers of `base` with evenly spaced exponents, from `base ** start` to `base ** stop`; else like `linspace`."""
    num, dtype = _spaced("logspace", start, stop, num, dtype)
    computed = _spacing_dtype(start, stop, dtype)
    result = arithmetic.power(base, _linear(start, stop, num, endpoint, computed, axis)[0])
    return shaping.convert(result, computed if dtype is None else dtype, False)


@api
def geomspace(start, stop, num: int = 50, endpoint: bool = True, dtype: Any = None, axis: int = 0):
    """Values from `start` to `stop` with one ratio between neighbours; else like `linspace`."""
    num, dtype = _spaced("geomspace", start, stop, num, dtype)
    computed = _spacing_dtype(start, stop, dtype)
    start, stop = (shaping.of_user(bound, computed) for bound in (start, stop))
    # The sign, or the direction in the complex plane, is taken out, so that logarithms exist.
    sign = lax.sign(start)
    exponents = [ufuncs.log10(arithmetic.divide(bound, sign)) for bound in (start, stop)]
    exponents = _linear(exponents[0], exponents[1], num, endpoint, computed, 0)[0]
    result = sign * arithmetic.power(10.0, exponents)
    if axis:
        result = moveaxis(result, 0, axis)
    return shaping.convert(result, computed if dtype is None else dtype, False)


# --- ones on diagonals, triangles --------------------------------------------------------------------


@api
def _eye(k, rows: int, columns: int, dtype: Any):
    row, column = shaping.indices((rows, columns))
    return shaping.convert(row + shaping.convert(k, dtypes.int32, False) == column, dtype, False)


@api
def _eye_static(k: int, rows: int, columns: int, dtype: Any):
    return _eye(k, rows, columns, dtype)


@boundary
def eye(N, M=None, k=0, dtype=None, *, device=None):
    """A matrix with ones on its k-th diagonal and zeros elsewhere.

    Args:
      N, M: how many rows and columns; as many columns as rows by default. Static.
      k: 0 for the main diagonal, positive above it, negative below. May be traced.
      dtype: floating by default.

    >>> from jaxlite import numpy as jnp
    >>> jnp.eye(2, 3, k=1, dtype=int)
    Array([[0, 1, 0],
           [0, 0, 1]], dtype=int32)
    """
    if (isinstance(N, int) and N < 0) or (isinstance(M, int) and M < 0):
        raise ValueError(f"jnp.eye: negative dimensions are not allowed, got {N} and {M}")
    rows, columns = shape_of((N, N if M is None else M))
    dtype = dtypes.requested_dtype(dtype, "eye", float)
    if isinstance(k, int):
        result = _eye_static(_clipped(k, rows, columns), rows, columns, dtype)
    else:
        aval = aval_of(k)
        if aval.shape or dtypes.kind(aval.dtype) not in "iu":
            raise ValueError(f"k must be a scalar integer; got {k}")
        result = _eye(k, rows, columns, dtype)
    return result if device is None else device_put(result, device)


@boundary
def identity(n, dtype=None):
    """The square matrix with ones on its diagonal."""
    return eye(n, dtype=dtype)


def _clipped(k, rows: int, columns: int):
    """A diagonal's number, where those that miss the matrix are all one: int32 holds it."""
    if isinstance(k, Tracer):
        return lax.clamp(np.int32(-rows), shaping.convert(k, np.int32, False), np.int32(columns))
    if is_symbolic(rows) or is_symbolic(columns):
        rows = columns = 1 << 30
    return np.int32(max(-rows, min(k, columns)))


def _below(rows: int, columns: int, k):
    """Which elements are on or below the k-th diagonal."""
    row = shaping.broadcasted_iota(dtypes.int32, (rows, columns), 0)
    row = row + _clipped(k, rows, columns)
    return row >= shaping.broadcasted_iota(dtypes.int32, (rows, columns), 1)


@api
def _tri(rows: int, columns: int, k: int, dtype: Any):
    return shaping.convert(_below(rows, columns, k), dtype, False)


@boundary
def tri(N: int, M: int | None = None, k: int = 0, dtype=None):
    """A matrix with ones on and below its k-th diagonal and zeros above; floating by default."""
    rows, columns = shape_of((N, N if M is None else M))
    dtype = dtypes.requested_dtype(dtype, "tri", float)
    if isinstance(k, Tracer):
        return shaping.convert(_below(rows, columns, k), dtype, False)
    return _tri(rows=rows, columns=columns, k=operator.index(k), dtype=dtype)


def _triangle(m, k: int, upper: bool):
    name = "triu" if upper else "tril"
    check_arrays(name, m)
    m, k = as_array(m), operator.index(k)
    shape = m.shape
    rank = len(shape)
    if rank < 2:
        raise ValueError(f"Argument to jax.numpy.{name} must be at least 2D")
    below = shaping.broadcast_in_dim(_below(shape[-2], shape[-1], k - upper), shape, (rank - 2, rank - 1))
    zeros = lax.full_like(m, 0)  # weakly typed where m is
    return lax.select(below, zeros, m) if upper else lax.select(below, m, zeros)


@api
def tril(m, k: int = 0):
    """Matrices with zeros above their k-th diagonal. Raises: ValueError for fewer than two axes."""
    return _triangle(m, k, False)


@api
def triu(m, k: int = 0):
    """Matrices with zeros below their k-th diagonal. Raises: ValueError for fewer than two axes."""
    return _triangle(m, k, True)


# --- indices of triangles and diagonals --------------------------------------------------------------


def _count_below(rows: Any, columns: Any, k: int) -> Any:
    """How many elements are on or below the k-th diagonal, of matrices whose sizes may be symbolic."""

    def triangle(size: Any) -> Any:
        return largest(size, 0) * (largest(size, 0) + 1) // 2

    return largest(triangle(rows + k) - triangle(k) - triangle(rows + k - columns) + triangle(k - columns), 0)


def _triangle_indices(n, k, m, upper: bool) -> tuple[Any, Any]:
    rows, columns = shape_of((n, n if m is None else m))
    k = operator.index(k)
    if is_symbolic(rows) or is_symbolic(columns):
        inside = _below(rows, columns, k - upper)
        count = _count_below(columns, rows, -k) if upper else _count_below(rows, columns, k)
        return searching.nonzero(~inside if upper else inside, size=count)
    below = np.tri(rows, columns, _clipped(k - upper, rows, columns), bool)
    row, column = np.nonzero(~below if upper else below)
    return asarray(row), asarray(column)


@boundary
def tril_indices(n, k=0, m=None) -> tuple[Any, Any]:
    """The row and column indices of the elements on and below the k-th diagonal of an n by m matrix."""
    return _triangle_indices(n, k, m, False)


@boundary
def triu_indices(n, k=0, m=None) -> tuple[Any, Any]:
    """The row and column indices of the elements on and above the k-th diagonal of an n by m matrix."""
    return _triangle_indices(n, k, m, True)


def _matrix_sizes(arr) -> tuple[int, int]:
    shape = arr.shape if hasattr(arr, "shape") else aval_of(arr).shape
    if len(shape) != 2:
        raise ValueError(f"Only 2-D inputs are accepted, got shape {tuple(shape)}")
    return shape


@boundary
def tril_indices_from(arr, k: int = 0) -> tuple[Any, Any]:
    """`tril_indices` for a matrix."""
    rows, columns = _matrix_sizes(arr)
    return tril_indices(rows, k, columns)


@boundary
def triu_indices_from(arr, k: int = 0) -> tuple[Any, Any]:
    """`triu_indices` for a matrix."""
    rows, columns = _matrix_sizes(arr)
    return triu_indices(rows, k, columns)


@boundary
def diag_indices(n: int, ndim: int = 2) -> tuple[Any, ...]:
    """The indices of the diagonal of an array with `ndim` axes of size n: one array for each axis."""
    n, ndim = operator.index(n), operator.index(ndim)
    for name, value in (("n", n), ("ndim", ndim)):
        if value < 0:
            raise ValueError(f"{name} argument to diag_indices must be nonnegative, got {value}")
    return (arange(n),) * ndim


def _check_equal_sizes(name: str, shape: Ints) -> None:
    if len(set(shape)) > 1:
        raise ValueError(f"jnp.{name}: All dimensions of input must be of equal length, got shape {shape}")


@boundary
def diag_indices_from(arr) -> tuple[Any, ...]:
    """`diag_indices` for an array, which has at least two axes, all of one size."""
    check_arrays("diag_indices_from", arr)
    shape = aval_of(arr).shape
    if len(shape) < 2:
        raise ValueError(f"jnp.diag_indices_from: input array must be at least 2-d, got shape {shape}")
    _check_equal_sizes("diag_indices_from", shape)
    return diag_indices(shape[0], len(shape))


@boundary
def mask_indices(n: int, mask_func: Callable[[Any, int], Any], k: int = 0, *, size: int | None = None,
                 ) -> tuple[Any, Any]:
    """The indices at which `mask_func(ones((n, n)), k)` is not zero, for functions such as `tril`.

    `size` fixes how many there are: more are cut off, missing ones are 0.
    """
    rows, columns = searching.nonzero(mask_func(ones((n, n)), k), size=size)
    return rows, columns


@api
def fill_diagonal(a, val, wrap: bool = False, *, inplace: bool = True):
    """An array with a value, or the elements of an array one after the other, on its diagonal.

    Args:
      a: at least two axes; if more, all of one size.
      inplace: must be False, since arrays are immutable: the result is a new array.
    """
    if inplace:
        raise NotImplementedError("JAX arrays are immutable, must use inplace=False")
    if wrap:
        raise NotImplementedError("wrap=True is not implemented, must use wrap=False")
    a, val = as_arrays("fill_diagonal", a, val)
    shape = a.shape
    if len(shape) < 2:
        raise ValueError(f"jnp.fill_diagonal: array must be at least 2-d, got shape {shape}")
    if len(shape) > 2:
        _check_equal_sizes("fill_diagonal", shape)
    count = min(shape)
    if not count:
        return a
    if not val.size:
        raise ZeroDivisionError(f"jnp.fill_diagonal: val of shape {val.shape} has no elements")
    if val.shape:
        val = val.ravel()
        val = lax.slice_in_dim(shaping.tile(val, (-(-count // val.size),)), 0, count)
    return indexing.write(a, (np.arange(count, dtype=np.int32),) * len(shape), val, "set")


# --- index grids -------------------------------------------------------------------------------------


@api
def meshgrid(*xi, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> list[Any] | tuple[Any, ...]:
    """Coordinates of a grid, one array for each vector: element [i, j, ...] is that point's coordinate.

    Args:
      xi: one-dimensional arrays.
      sparse: keep size 1 on the other axes; broadcasting gives the rest.
      indexing: 'xy' has the first vector along axis 1 and the second along axis 0; 'ij' along their own axes.
    """
    check_arrays("meshgrid", *xi)
    if not copy:
        raise ValueError("jnp.meshgrid only supports copy=True: results never share memory")
    if indexing not in ("xy", "ij"):
        raise ValueError(f"Valid values for indexing are 'xy' and 'ij', got {indexing}")
    shapes = [aval_of(x).shape for x in xi]
    if any(len(shape) != 1 for shape in shapes):
        raise ValueError(f"Arguments to jaxlite.numpy.meshgrid must be 1D, got shapes {shapes}")
    swapped = indexing == "xy" and len(xi) > 1
    axes = [(1 - index if swapped and index < 2 else index) for index in range(len(xi))]
    full = [0] * len(xi)
    for x, axis in zip(xi, axes, strict=True):
        full[axis] = aval_of(x).shape[0]
    grids = [shaping.broadcast_in_dim(
        as_array(x), [size if not sparse or each == axis else 1 for each, size in enumerate(full)], (axis,))
        for x, axis in zip(xi, axes, strict=True)]
    return tuple(grids) if VERSION >= (0, 11) else grids  # as JAX of the same jaxlib


@api
def indices(dimensions: Sequence[int], dtype: Any = None, sparse: bool = False):
    """The index of each element of an array of this shape: stacked, one array for each axis.

    With `sparse`, a tuple of arrays that keep size 1 on the other axes. Integers by default.
    """
    sizes = shape_of(tuple(dimensions), "dimensions")
    dtype = dtypes.requested_dtype(dtype, "indices", int)
    grids = meshgrid(*(shaping.iota(dtype, size) for size in sizes), sparse=sparse, indexing="ij")
    if sparse:
        return tuple(grids)
    return shaping.stack(grids, 0) if grids else shaping.full((0,), 0, dtype)


@boundary
def ix_(*args) -> tuple[Any, ...]:
    """Vectors of indices, each on its own axis, so that indexing with them picks all combinations."""
    check_arrays("ix_", *args)
    for arg in args:
        aval = aval_of(arg)
        if aval.ndim != 1:
            raise ValueError(f"Arguments to jnp.ix_ must be 1-dimensional, got shape {aval.shape}")
        if aval.dtype == dtypes.bool_:
            raise NotImplementedError("Boolean arguments to jnp.ix_ are not implemented")
    args = tuple(arg if aval_of(arg).size else np.zeros(0, np.int32) for arg in args)
    return tuple(meshgrid(*args, sparse=True, indexing="ij"))


class _Grid:
    """The class of `mgrid` and `ogrid`: indexed by slices. An imaginary step is the number of values, the end included."""

    def __init__(self, name: str, sparse: bool):
        self._name, self._sparse = name, sparse

    def __repr__(self) -> str:
        return f"<jaxlite.numpy.{self._name}>"

    @promotes_inside
    def __getitem__(self, key):
        if isinstance(key, slice):
            return _range(key, self._name)
        ranges = promote_dtypes(*[_range(each, self._name) for each in key]) if len(key) else []
        grids = meshgrid(*ranges, indexing="ij", sparse=self._sparse)
        if self._sparse:
            return list(grids)
        return shaping.stack(grids, 0) if grids else arange(0)


def _range(key, name: str):
    """The values that a slice describes."""
    if not isinstance(key, slice):
        raise TypeError(f"jnp.{name} is indexed by slices, got {key!r}")
    start = 0 if key.start is None else key.start
    step = 1 if key.step is None else key.step
    if isinstance(step, complex):
        if key.stop is None:
            raise ValueError(f"jnp.{name}: a slice with a number of values as its step needs a stop, got {key}")
        return linspace(start, key.stop, int(abs(step)))
    return arange(0, start, step) if key.stop is None else arange(start, key.stop, step)


mgrid = _Grid("mgrid", sparse=False)
ogrid = _Grid("ogrid", sparse=True)


class _Joiner:
    """The class of `r_` and `c_`: indexed by arrays, scalars and slices, which they join along an axis.

    A string in front, 'axis,ndmin,trans1d', gives the axis to join along, the least number of axes of each part, and
    where the axes of parts that have fewer are put. 'r' and 'c' make a matrix of one row or one column.
    """

    _name: str
    _defaults: tuple[int, int, int]

    def __repr__(self) -> str:
        return f"<jaxlite.numpy.{self._name}>"

    def _directive(self, text: str) -> tuple[tuple[int, int, int], bool]:
        if text in ("r", "c"):
            return self._defaults, True
        try:
            given = tuple(map(int, text.split(",")))[:3]
        except ValueError:
            raise ValueError(f"jnp.{self._name}: could not understand directive {text!r}") from None
        return (*given, *self._defaults[len(given):]), False  # type: ignore[return-value]

    def __getitem__(self, key):
        parts = key if isinstance(key, tuple) else (key,)
        (axis, ndmin, trans1d), matrix = self._defaults, False
        if parts and isinstance(parts[0], str):
            (axis, ndmin, trans1d), matrix = self._directive(parts[0])
        values = []
        for part in parts[1:] if parts and isinstance(parts[0], str) else parts:
            if isinstance(part, str):
                raise ValueError(f"jnp.{self._name}: string directive must be placed at the beginning")
            value = _range(part, self._name) if isinstance(part, slice) else asarray(part)
            if value.ndim < ndmin:
                scalar = not value.ndim
                value = shaping.expand_dims(value, range(ndmin - value.ndim))
                if not scalar:  # the last axis goes to trans1d, the others follow in order
                    value = shaping.transpose(value, np.roll(range(ndmin), trans1d + 1).tolist())
            values.append(value)
        if not values:
            raise IndexError(f"jnp.{self._name}: need at least one array to join")
        result = concatenate(values, axis)
        if not matrix:
            return result
        return shaping.expand_dims(result, (0,) if parts[0] == "r" else (1,)) if result.ndim == 1 else result


class RClass(_Joiner):
    """The type of `r_`."""

    _name, _defaults = "r_", (0, 1, -1)


class CClass(_Joiner):
    """The type of `c_`."""

    _name, _defaults = "c_", (-1, 2, 0)


r_, c_ = RClass(), CClass()
s_ = np.s_
index_exp = np.index_exp

# --- flat positions ----------------------------------------------------------------------------------


@boundary
def ravel_multi_index(multi_index: Sequence[Any], dims: Sequence[int], mode: str = "raise", order: str = "C", *,
                      dtype=None):
    """The flat positions of elements with these indices in an array of shape `dims`.

    Args:
      multi_index: one integer array for each axis; they are broadcast.
      mode: indices out of range are an error ('raise', which needs concrete ones), 'wrap', 'clip', or ignored
        ('ignore').
      order: 'C' for row by row, 'F' for column by column.
      dtype: the result's; default: that of the indices.
    """
    sizes = shape_of(tuple(dims), "dims")
    parts = [multi_index[axis] for axis in range(len(multi_index))]
    check_arrays("ravel_multi_index", *parts)
    assert len(parts) == len(sizes), f"len(multi_index)={len(parts)} != len(dims)={len(sizes)}"
    target = dtypes.result_type(*parts) if dtype is None and parts else dtypes.canonicalize_dtype(dtype or int)
    for checked in [aval_of(part).dtype for part in parts] + [target]:
        if dtypes.kind(checked) not in "iu":
            raise ValueError(f"dtype={checked!r} is not an integer type. It is that of an argument of ravel_multi_index.")
    if math.prod(sizes) - 1 > dtypes.iinfo(target).max:
        raise ValueError(f"jnp.ravel_multi_index: dtype {target} is not large enough to hold a flattened index for "
                         f"dims={sizes}. Use the dtype argument to pass a suitable dtype")
    if mode not in ("raise", "wrap", "clip", "ignore"):
        raise ValueError(f"invalid mode={mode!r}. Expected 'raise', 'wrap', 'clip', or 'ignore'.")
    if order not in ("C", "F"):
        raise ValueError(f"invalid order={order!r}. Expected 'C' or 'F'")
    if mode == "raise":
        for part, size in zip(parts, sizes, strict=True):
            found = concrete("ravel_multi_index", "multi_index", part)
            if ((found < 0) | (found >= size)).any():
                raise ValueError(f"invalid entry in coordinates array: an index is out of bounds for shape {sizes}; "
                                 "use mode 'wrap' or 'clip'")
    return _ravel_multi_index(*parts, sizes=sizes, mode=mode, order=order, dtype=target)


@api
def _ravel_multi_index(*parts, sizes: Ints, mode: str, order: str, dtype: Any):
    strides = [math.prod(sizes[axis + 1:] if order == "C" else sizes[:axis]) for axis in range(len(sizes))]
    result: Any = np.zeros((), dtype)[()]
    for part, size, stride in zip(parts, sizes, strides, strict=True):
        if mode == "wrap":
            part = arithmetic.mod(part, size)
        elif mode == "clip":
            part = ufuncs.clip(part, 0, size - 1)
        result = result + shaping.convert(part, dtype, False) * stride
    return as_array(result)


@api
def unravel_index(indices, shape: Any) -> tuple[Any, ...]:
    """The indices, one array for each axis, of elements at these flat positions.

    Negative positions count from the end; those out of range give the first or last element.
    """
    check_arrays("unravel_index", indices)
    sizes: list[Any] = [
        size if isinstance(size, (Tracer, ArrayImpl, np.integer)) and size.shape == () and dtypes.kind(size.dtype) in "iu"
        else shape_of((size,))[0] for size in (shape if hasattr(shape, "__iter__") else (shape,))]
    rest = as_array(indices)
    found = []
    for size in reversed(sizes):
        rest, index = arithmetic.divmod(rest, size)
        found.append(index)
    # What is left is 0 for positions in range, -1 for those that count from the end.
    above = arithmetic.greater(rest, 0)
    if dtypes.kind(aval_of(rest).dtype) != "u":
        below = arithmetic.less(rest, -1)
        found = [selection.where(below, 0, index) for index in found]
    return tuple(selection.where(above, size - 1, index) for size, index in zip(sizes, reversed(found), strict=True))


# --- polynomials and windows -------------------------------------------------------------------------


@api
def vander(x, N: int | None = None, increasing: bool = False):
    """The Vandermonde matrix: the powers N - 1, ..., 0 of each element in a row, or 0, ..., N - 1 if `increasing`."""
    check_arrays("vander", x)
    aval = aval_of(x)
    if aval.ndim != 1:
        raise ValueError(f"jnp.vander: x must be a one-dimensional array, got shape {aval.shape}")
    count = aval.shape[0] if N is None else _count("vander", "N", N)
    if count < 0:
        raise ValueError(f"jnp.vander: N must be nonnegative, got {count}")
    x = as_array(x)
    dtype = x.dtype
    powers = shaping.iota(dtype, count)
    if not increasing:
        powers = count - 1 - powers
    return shaping.expand_dims(x, (1,)) ** shaping.expand_dims(powers, (0,))


def _window(name: str, M, formula: Callable[..., Any], *args):
    # Floats and booleans, in arrays too, count as the integers that they convert to.
    as_number = isinstance(M, (bool, float)) or is_array_like(M) and not isinstance(M, Tracer)
    size = _count(name, "M", int(M) if as_number else M)
    if size <= 1:
        return ones(size)
    return _windowed(*args, formula=formula, size=size)


@api
def _windowed(*args, formula: Callable[..., Any], size: int):
    return formula(shaping.iota(dtypes.default_dtype(float), size), size, *args)


def _cosine(n, size: int, factor: float):
    """cos(factor * pi * n / (size - 1))"""
    return ufuncs.cos(arithmetic.divide(arithmetic.multiply(factor * np.pi, n), size - 1))


@boundary
def bartlett(M: int):
    """The Bartlett window of M values: a triangle."""
    return _window("bartlett", M, _bartlett)


def _bartlett(n, size: int):
    centred = arithmetic.multiply(2, n) + 1 - size
    return 1 - arithmetic.divide(arithmetic.absolute(centred), size - 1)


@boundary
def blackman(M: int):
    """The Blackman window of M values: 0.42 - 0.5 cos + 0.08 cos of twice the angle."""
    return _window("blackman", M, _blackman)


def _blackman(n, size: int):
    first = 0.42 - 0.5 * _cosine(n, size, 2)
    return first + 0.08 * _cosine(n, size, 4)


@boundary
def hamming(M: int):
    """The Hamming window of M values: 0.54 - 0.46 cos."""
    return _window("hamming", M, _hamming)


def _hamming(n, size: int):
    return 0.54 - 0.46 * _cosine(n, size, 2)


@boundary
def hanning(M: int):
    """The Hann window of M values: 0.5 - 0.5 cos."""
    return _window("hanning", M, _hanning)


def _hanning(n, size: int):
    return 0.5 * (1 - _cosine(n, size, 2))


@boundary
def kaiser(M: int, beta):
    """The Kaiser window of M values, from the Bessel function i0; `beta`, which may be traced, sets its width."""
    check_arrays("kaiser", beta)
    return _window("kaiser", M, _kaiser, beta)


def _kaiser(n, size: int, beta):
    centre = 0.5 * (size - 1)
    ratio = arithmetic.divide(arithmetic.subtract(n, centre), centre)
    root = ufuncs.sqrt(1 - lax.integer_pow(ratio, 2))
    return arithmetic.divide(ufuncs.i0(beta * root), ufuncs.i0(beta))
