"""jaxlite.scipy.interpolate: values between the points of a grid."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxlite import numpy as jnp
from jaxlite.core import dtypes
from jaxlite.core.tracing import Tracer
from jaxlite.core.values import aval_of
from jaxlite.numpy.api import api, as_array, check_arrays, promote_dtypes_inexact

__all__ = ["RegularGridInterpolator"]
__dir__ = lambda: __all__


class RegularGridInterpolator:
    """Interpolation in a grid whose lines need not be evenly spaced.

    Args:
      points: for each dimension the coordinates of its grid lines, ascending.
      values: (m1, ..., mn, ...): the values at the grid's points; trailing axes are interpolated together.
      method: 'linear' or 'nearest'.
      bounds_error: must be False: a compiled program cannot raise.
      fill_value: the value outside the grid; None extrapolates.
    Raises: ValueError for points and values that make no grid; NotImplementedError for `bounds_error`.

    >>> import jaxlite.numpy as jnp
    >>> from jaxlite.scipy.interpolate import RegularGridInterpolator
    >>> between = RegularGridInterpolator((jnp.array([0.0, 1.0, 3.0]),), jnp.array([0.0, 10.0, 20.0]))
    >>> print(between(jnp.array([[0.5], [2.0], [4.0]])))
    [ 5. 15. nan]
    """

    def __init__(self, points: Sequence[Any], values, method: str = "linear", bounds_error: bool = False,
                 fill_value=np.nan):
        self.method = _checked_method(method)
        if bounds_error:
            raise NotImplementedError("RegularGridInterpolator: bounds_error cannot be True: a compiled program cannot raise")
        check_arrays("RegularGridInterpolator", values, *points)
        (self.values,) = promote_dtypes_inexact(as_array(values))
        self.grid = tuple(as_array(line) for line in points)
        shape = aval_of(self.values).shape
        if len(self.grid) > len(shape):
            raise ValueError(f"there are {len(self.grid)} point arrays, but values has {len(shape)} dimensions")
        for axis, line in enumerate(self.grid):
            if aval_of(line).ndim != 1:
                raise ValueError(f"the points in dimension {axis} must be 1-dimensional")
            if aval_of(line).size != shape[axis]:
                raise ValueError(f"there are {aval_of(line).size} points and {shape[axis]} values in dimension {axis}")
            if aval_of(line).size < 2:
                raise ValueError(f"dimension {axis} has {aval_of(line).size} points; interpolation needs two")
            if not isinstance(line, Tracer) and not np.all(np.diff(np.asarray(line)) > 0):
                raise ValueError(f"the points in dimension {axis} must be strictly ascending")
        self.bounds_error = False
        self.fill_value = fill_value
        if fill_value is not None:
            check_arrays("RegularGridInterpolator", fill_value)
            if dtypes.kind(aval_of(as_array(fill_value)).dtype) == "c" and dtypes.kind(aval_of(self.values).dtype) != "c":
                raise ValueError("fill_value must be either None or of a type compatible with values")

    def __call__(self, xi, method: str | None = None):
        """The values at points (..., n), or at the coordinates of a tuple of n arrays, which are broadcast. A vector holds
        points one after the other, as in SciPy.

        Args:
          method: another one than the object's.
        Returns: (..., trailing axes of values).
        """
        method = self.method if method is None else _checked_method(method)
        rank = len(self.grid)
        are_points = not isinstance(xi, tuple)
        if not are_points:
            xi = jnp.stack(jnp.broadcast_arrays(*xi), axis=-1)
        check_arrays("RegularGridInterpolator", xi)
        (xi,) = promote_dtypes_inexact(as_array(xi))
        if rank == 1 and xi.ndim <= 1:
            xi = xi[..., None]
        elif are_points and xi.ndim == 1 and xi.size % rank == 0:
            xi = xi.reshape(-1, rank)
        if not xi.ndim or xi.shape[-1] != rank:
            raise ValueError(f"the requested sample points xi have dimension {(xi.shape or (0,))[-1]} but this "
                             f"RegularGridInterpolator has dimension {rank}")
        return _interpolated(self.grid, self.values, xi, self.fill_value, method=method)


@api
def _interpolated(grid, values, xi, fill_value, method: str):
    cells, parts, outside = [], [], jnp.zeros(aval_of(xi).shape[:-1], bool)
    for axis, line in enumerate(grid):
        x = xi[..., axis]
        cell = jnp.clip(jnp.searchsorted(line, x) - 1, 0, aval_of(line).size - 2)
        cells.append(cell)
        parts.append((x - line[cell]) / (line[cell + 1] - line[cell]))
        outside |= (x < line[0]) | (x > line[-1])
    trailing = aval_of(values).ndim - len(grid)

    def spread(x):
        return x.reshape(aval_of(x).shape + (1,) * trailing)

    if method == "nearest":
        result = values[tuple(jnp.where(part <= 0.5, cell, cell + 1) for cell, part in zip(cells, parts, strict=True))]
    else:
        result = jnp.zeros((), aval_of(values).dtype)
        for corner in itertools.product((0, 1), repeat=len(grid)):
            weight = jnp.ones((), aval_of(xi).dtype)
            for side, part in zip(corner, parts, strict=True):
                weight = weight * (part if side else 1 - part)
            corner_values = values[tuple(cell + side for cell, side in zip(cells, corner, strict=True))]
            result = result + spread(weight) * corner_values
    if fill_value is None:
        return result
    return jnp.where(spread(outside), jnp.asarray(fill_value, aval_of(result).dtype), result)


def _checked_method(method: str) -> str:
    if method not in ("linear", "nearest"):
        raise ValueError(f"method {method!r} is not defined; there are 'linear' and 'nearest'")
    return method
