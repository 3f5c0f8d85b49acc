"""Functions that take functions, and functions that compare whole arrays."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxlite.core import dtypes
from jaxlite.core.filtering import boundary
from jaxlite.core.tree import tree_flatten, tree_map
from jaxlite.core.values import aval_of
from jaxlite.lax import shaping
from jaxlite.numpy import reductions
from jaxlite.numpy.api import api, as_array, as_arrays, check_arrays, is_array_like
from jaxlite.numpy.arithmetic import equal
from jaxlite.numpy.creation import asarray, shape_of
from jaxlite.numpy.mapping import map_broadcast
from jaxlite.numpy.ufuncs import isclose, isnan
from jaxlite.transforms.vmap import vmap

# --- comparing arrays --------------------------------------------------------------------------------


@api
def allclose(a, b, rtol=1e-05, atol=1e-08, equal_nan: bool = False):
    """Whether all elements are equal within `atol + rtol * |b|`."""
    check_arrays("allclose", a, b)
    return reductions.all(isclose(a, b, rtol=rtol, atol=atol, equal_nan=equal_nan))


@api
def _same_elements(a, b, equal_nan: bool):
    same = equal(a, b)
    if equal_nan:
        same = same | isnan(a) & isnan(b)
    return reductions.all(same)


@boundary
def array_equal(a1, a2, equal_nan: bool = False):
    """Whether two arrays have one shape and equal elements.

    Raises: TypeError for what is no array, like texts; ValueError for None.
    """
    a1, a2 = _compared("array_equal", a1, a2)
    if aval_of(a1).shape != aval_of(a2).shape:
        return shaping.full((), False)
    return _same_elements(a1, a2, equal_nan=equal_nan)


@boundary
def array_equiv(a1, a2):
    """Whether two arrays have equal elements after broadcasting. Raises: TypeError for what is no array, like texts."""
    a1, a2 = _compared("array_equiv", a1, a2)
    try:
        shaping.broadcast_shapes(aval_of(a1).shape, aval_of(a2).shape)
        return _same_elements(a1, a2, equal_nan=False)
    except (ValueError, dtypes.TypePromotionError):  # the latter of types of few bits, which nothing holds together
        return shaping.full((), False)


def _compared(name: str, *values) -> list[Any]:
    arrays = [value if is_array_like(value) else asarray(value) for value in values]
    check_arrays(name, *arrays)
    return [as_array(array) for array in arrays]


# --- functions of functions --------------------------------------------------------------------------


@boundary
def apply_along_axis(func1d: Callable, axis: int, arr, *args, **kwargs):
    """`func1d(slice, *args, **kwargs)` for each one-dimensional slice along an axis.

    The axes of its result take the place of that axis; it may give a pytree of arrays.
    """
    arr = as_arrays("apply_along_axis", arr)
    axis = shaping.canonical_axis(axis, arr.ndim)

    def apply(row):
        return func1d(row, *args, **kwargs)

    for behind in range(1, arr.ndim - axis):
        apply = vmap(apply, behind, -1)
    for _ in range(axis):
        apply = vmap(apply)
    return apply(arr)


@boundary
def apply_over_axes(func: Callable[[Any, int], Any], a, axes):
    """`func(array, axis)` for one axis after the other; an axis that it removes is put back with size 1."""
    check_arrays("apply_over_axes", a)
    result = as_array(a)
    rank = result.ndim
    for axis in axes if hasattr(axes, "__iter__") else (axes,):
        axis = shaping.canonical_axis(axis, rank)
        reduced = func(result, axis)
        if aval_of(reduced).ndim == rank - 1:
            reduced = shaping.expand_dims(reduced, (axis,))
        if aval_of(reduced).ndim != rank:
            raise ValueError("function is not returning an array of the correct shape")
        result = reduced
    return result


@boundary
def fromfunction(function: Callable[..., Any], shape, *, dtype=float, **kwargs):
    """The values of a function of indices at each element of an array of this shape.

    Args:
      function: of one scalar for each axis, vectorized by `vmap`; may return an array or a pytree.
      dtype: the dtype of the indices; None is the default of integers.
      kwargs: arrays for the function, of which each axis takes the leading one apart, as `vmap` does.

    >>> import jaxlite.numpy as jnp
    >>> jnp.fromfunction(lambda i, j: 10 * i + j, (2, 3), dtype=int)
    Array([[ 0,  1,  2],
           [10, 11, 12]], dtype=int32)
    """
    sizes = shape_of(shape)
    target = dtypes.requested_dtype(dtype, "fromfunction", int)
    for axis in reversed(range(len(sizes))):
        function = vmap(function, tuple(0 if each == axis else None for each in range(len(sizes))))
    return tree_map(asarray, function(*[shaping.iota(target, size) for size in sizes], **kwargs))


_DIMENSIONS = r"\(\s*(?:\w+\s*(?:,\s*\w+\s*)*,?)?\s*\)"
_SIGNATURE = re.compile(rf"^\s*{_DIMENSIONS}\s*(?:,\s*{_DIMENSIONS}\s*)*->\s*{_DIMENSIONS}\s*(?:,\s*{_DIMENSIONS}\s*)*$")


def parse_signature(signature: str) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """The core axes of arguments and of results that a signature like '(m,n),(n)->(m)' names."""
    if not _SIGNATURE.match(signature):
        raise ValueError(f"not a valid gufunc signature: {signature}")
    sides = signature.split("->")
    inputs, outputs = ([tuple(re.findall(r"\w+", group)) for group in re.findall(_DIMENSIONS, side)] for side in sides)
    return inputs, outputs


@boundary
def vectorize(pyfunc: Callable, *, excluded=frozenset(), signature: str | None = None) -> Callable:
    """A function of scalars, or of arrays of fixed rank, as one that broadcasts over leading axes.

    Args:
      pyfunc: a traceable function.
      excluded: positions and names of arguments to pass on as they are.
      signature: the core axes of arguments and results, like '(m,n),(n)->(m)'; none means scalars.
    """
    if not all(isinstance(each, (str, int)) for each in excluded):
        raise TypeError(f"jax.numpy.vectorize can only exclude integer or string arguments, but excluded={excluded!r}")
    if any(isinstance(each, int) and each < 0 for each in excluded):
        raise ValueError(f"excluded={excluded!r} contains negative numbers")
    inputs, outputs = parse_signature(signature) if signature is not None else (None, None)

    @functools.wraps(pyfunc)
    def wrapped(*args, **kwargs):
        passed = {name: value for name, value in kwargs.items() if name in excluded}
        if len(passed) != len(kwargs):
            bound = inspect.signature(pyfunc).bind(*args, **{k: v for k, v in kwargs.items() if k not in passed})
            if bound.kwargs:
                raise ValueError(f"vectorize: keyword-only arguments {sorted(bound.kwargs)} must be excluded")
            args = bound.args
        args = tuple(np.asarray(arg) if isinstance(arg, (list, tuple)) else arg for arg in args)
        dynamic = [index for index, arg in enumerate(args) if index not in excluded and arg is not None]
        if inputs is not None and len(inputs) != len(dynamic):
            raise TypeError(f"wrong number of positional arguments: expected {len(inputs)}, got {len(dynamic)}")
        check_arrays("vectorize", *[args[index] for index in dynamic])
        cores = inputs if inputs is not None else [()] * len(dynamic)
        arrays = [as_array(args[index]) for index in dynamic]
        shapes = [aval_of(array).shape for array in arrays]
        context = f"on vectorized function with excluded={frozenset(excluded)!r} and signature={signature!r}"
        sizes = core_sizes(shapes, cores, context)
        def call(*values):
            full = list(args)
            for index, value in zip(dynamic, values, strict=True):
                full[index] = value
            result = pyfunc(*full, **passed)
            check_outputs(result, outputs, sizes, context)
            return result

        return map_broadcast(call, arrays, [len(core) for core in cores])

    return wrapped


def core_sizes(shapes: Sequence[tuple[int, ...]], cores: Sequence[tuple[str, ...]], context: str) -> dict[str, int]:
    """The sizes of named core axes. Raises: ValueError if shapes lack one, or differ in it; `context` ends the message."""
    sizes: dict[str, int] = {}
    for shape, core in zip(shapes, cores, strict=True):
        if len(shape) < len(core):
            raise ValueError(f"input with shape {shape} does not have enough dimensions for all core dimensions {core} "
                             f"{context}")
        for name, extent in zip(core, shape[len(shape) - len(core):], strict=True):
            if sizes.setdefault(name, extent) != extent:  # a number is a name as well
                raise ValueError(f"inconsistent size for core dimension {name!r}: {extent} vs {sizes[name]} {context}")
    return sizes


def check_outputs(result, outputs, sizes: dict[str, int], context: str) -> None:
    """Compare the shapes of results with core axes; `sizes` learns those of axes that are not known yet."""
    if outputs is None:
        return
    if len(outputs) > 1 and not isinstance(result, tuple):
        raise TypeError(f"output must be a tuple when multiple outputs are expected, got: {result}")
    leaves = tree_flatten(result)[0]
    if len(leaves) != len(outputs):
        raise TypeError(f"wrong number of output arguments: expected {len(outputs)}, got {len(leaves)}")
    for leaf, core in zip(leaves, outputs, strict=True):
        shape = np.shape(leaf)
        if len(shape) != len(core):
            raise ValueError(f"output shape {shape} does not match core dimensions {core} {context}")
        for name, extent in zip(core, shape, strict=True):
            if sizes.setdefault(name, extent) != extent:
                raise ValueError(f"inconsistent size for core dimension {name!r}: {extent} vs {sizes[name]} {context}")
