"""Products of vectors and matrices: dot, matmul and their relatives, outer and Kronecker products, traces.

`einsum` is in `einstein.py`, factorizations in `jaxlite.numpy.linalg`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxlite import lax
from jaxlite.core import dtypes
from jaxlite.core.aval import Ints
from jaxlite.core.tracing import Tracer
from jaxlite.core.values import aval_of
from jaxlite.devices import placement
from jaxlite.lax import shaping
from jaxlite.lax.dot import canonicalize_precision, dot_general_p
from jaxlite.numpy import reductions
from jaxlite.numpy.api import (
    api,
    as_arrays,
    canonical_axes,
    check_arrays,
    common_type,
    is_complex,
    promote_dtypes,
    refuse_out,
    strong_arrays,
)
from jaxlite.numpy.manipulation import moveaxis


def _operands(name: str, a, b, preferred) -> tuple[Any, Any, Any]:
    """Both operands, and the dtype to accumulate in. Operands of two dtypes stay so: `dot_general` multiplies them."""
    if preferred is None and isinstance(a, Tracer) and isinstance(b, Tracer):
        left, right = a.aval, b.aval
        if left.dtype is right.dtype and left.weak_type is right.weak_type:
            return a, b, left.dtype
    a, b = as_arrays(name, a, b)
    if preferred is not None:
        a, b = (shaping.convert(each, None, False) for each in (a, b))  # as is what is asked for
        return a, b, dtypes.check_user_dtype_supported(preferred, name)
    return a, b, common_type(a, b)[0]


def _product(a, b, contract, batch, precision, dtype):
    weak = (aval_of(a).weak_type or aval_of(b).weak_type) and common_type(a, b)[1]
    out = dot_general_p.bind(a, b, dimension_numbers=(contract, batch), precision=canonicalize_precision(precision),
                             preferred_element_type=dtype, out_sharding=placement.product_sharding())
    return shaping.convert(out, None, True) if weak else out


@api
def dot(a, b, *, precision: Any = None, preferred_element_type: Any = None, out_sharding: Any = None):
    """The product of two arrays: the last axis of `a` with the last but one of `b` (its only one for a vector).

    A scalar operand multiplies. `precision` and `preferred_element_type` are as in `lax.dot_general`.
    Raises: TypeError if the contracted sizes differ.
    """
    a, b, dtype = _operands("dot", a, b, preferred_element_type)
    left, right = aval_of(a).shape, aval_of(b).shape
    if not left or not right:
        return placement.laid_out_by(out_sharding, _product, a, b, ((), ()), ((), ()), precision, dtype)
    axis = max(len(right) - 2, 0)
    if left[-1] != right[axis]:
        raise TypeError(f"dot_general requires contracting dimensions to have the same shape, got ({left[-1]},) and "
                        f"({right[axis]},). The operands of dot have the shapes {left} and {right}.")
    return placement.laid_out_by(out_sharding, _product, a, b, ((len(left) - 1,), (axis,)), ((), ()), precision, dtype)


@api
def matmul(a, b, *, precision: Any = None, preferred_element_type: Any = None, out_sharding: Any = None):
    """Matrix products over broadcast leading axes; vectors count as a row on the left, a column on the right.

    Args:
      a: (..., m, k) or (k,); b: (..., k, n) or (k,).
      precision, preferred_element_type: as in `lax.dot_general`.
    Returns: (..., m, n), without the axes that vectors lack.
    Raises: TypeError if the sizes do not match, ValueError for scalars.

    >>> import jaxlite.numpy as jnp
    >>> jnp.matmul(jnp.array([[1, 2], [3, 4]]), jnp.array([1, 1]))
    Array([3, 7], dtype=int32)
    """
    check_arrays("matmul", a, b)
    left, right = len(aval_of(a).shape), len(aval_of(b).shape)
    if not left or not right:
        raise ValueError(f"matmul input operand {int(left > 0)} must have ndim at least 1, but it has ndim 0")
    operands = "matmul", a, b, min(left, 2), min(right, 2), precision, preferred_element_type, TypeError
    return _core_product(*operands) if out_sharding is None else placement.laid_out_by(out_sharding, _core_product, *operands)


def _core_product(name: str, a, b, left_core: int, right_core: int, precision=None, preferred=None,
                  error: type[Exception] = ValueError):
    """The product of the last one or two axes of each operand, its core, over broadcast leading axes.

    Contracted are the last axis of `a` and the first core axis of `b`.
    """
    a, b, dtype = _operands(name, a, b, preferred)
    left, right = aval_of(a).shape, aval_of(b).shape
    left_drop, right_drop, (contract, batch), order = _core_plan(name, left, right, left_core, right_core, error)  # type: ignore[arg-type]
    if left_drop or right_drop:
        a, b = shaping.squeeze(a, left_drop), shaping.squeeze(b, right_drop)
    out = _product(a, b, contract, batch, precision, dtype)
    return out if order is None else shaping.transpose(out, order)


@functools.lru_cache(4096)
def _core_plan(name: str, left: Ints, right: Ints, left_core: int, right_core: int,
               error: type[Exception]) -> tuple[Any, Any, Any, Any]:
    """Which axes of size 1 to drop, the dimension numbers, and the order of the product's axes (None if it is right)."""
    if len(left) < left_core or len(right) < right_core:
        raise error(f"{name} takes operands of at least {left_core} and {right_core} axes, got shapes {left} and {right}")
    left_axis, right_axis = len(left) - 1, len(right) - right_core
    # Leading axes, aligned at the right. One of equal size in both is a batch axis; one that an operand lacks, or
    # has with size 1, belongs to the other operand alone.
    left_rank, right_rank = len(left) - left_core, len(right) - right_core
    rank = max(left_rank, right_rank)
    left_skip, right_skip = rank - left_rank, rank - right_rank
    shared, left_only, right_only = [], [], []
    left_drop, right_drop = [], []
    for axis in range(rank):
        x, y = axis - left_skip, axis - right_skip
        if x >= 0 and y >= 0 and left[x] == right[y]:
            shared.append(axis)
        elif y < 0 or (x >= 0 and right[y] == 1):
            left_only.append(axis)
            right_drop += [y] if y >= 0 else []
        elif x < 0 or left[x] == 1:
            right_only.append(axis)
            left_drop += [x] if x >= 0 else []
        else:
            raise ValueError(f"Incompatible shapes for {name}: {left} and {right}; leading axes must be equal or 1")
    if left[left_axis] != right[right_axis]:
        first = "dot_general requires contracting dimensions to have the same shape, got " \
            f"({left[left_axis]},) and ({right[right_axis]},). " if error is TypeError else ""
        raise error(f"{first}{name}: contracting dimensions must have equal sizes, got shapes {left} and {right}: "
                    f"{left[left_axis]} != {right[right_axis]}")

    def place(axis: int, dropped: list[int]) -> int:
        return axis - sum(each < axis for each in dropped)

    batch = (tuple(place(axis - left_skip, left_drop) for axis in shared),
             tuple(place(axis - right_skip, right_drop) for axis in shared))
    contract = ((place(left_axis, left_drop),), (place(right_axis, right_drop),))
    # dot_general gives the shared axes, then those of a, then those of b: bring them into the order of the operands.
    row, column = [rank] if left_core == 2 else [], [rank + 1] if right_core == 2 else []
    given = [*shared, *left_only, *row, *right_only, *column]
    order = tuple(given.index(axis) for axis in (*range(rank), *row, *column))
    return tuple(left_drop), tuple(right_drop), (contract, batch), None if order == tuple(range(len(order))) else order


@api
def vdot(a, b, *, precision: Any = None, preferred_element_type: Any = None):
    """The sum of conj(a) * b over all elements of both, flattened."""
    a, b = as_arrays("vdot", a, b)
    if is_complex(a):
        a = lax.conj(a)
    flat = [shaping.reshape(x, (math.prod(aval_of(x).shape),)) for x in (a, b)]
    return dot(*flat, precision=precision, preferred_element_type=preferred_element_type)


@api
def vecdot(x1, x2, /, *, axis: int = -1, precision: Any = None, preferred_element_type: Any = None):
    """The sum of conj(x1) * x2 along an axis; the other axes are broadcast."""
    x1, x2 = as_arrays("vecdot", x1, x2)
    left, right = aval_of(x1), aval_of(x2)
    (left_axis,), (right_axis,) = canonical_axes(axis, left.ndim), canonical_axes(axis, right.ndim)
    if left.shape[left_axis] != right.shape[right_axis]:
        raise ValueError(f"axes must match; got shapes {left.shape} and {right.shape} with axis={axis} of vecdot")
    x1 = lax.conj(x1) if is_complex(x1) else x1
    return _core_product("vecdot", shaping.axes_last(x1, (left_axis,)), shaping.axes_last(x2, (right_axis,)), 1, 1, precision,
                         preferred_element_type)


@api
def matvec(x1, x2, /):
    """Matrices times vectors: (..., m, k) and (..., k) give (..., m), over broadcast leading axes.

    Raises: ValueError for shapes that do not fit.
    """
    return _core_product("matvec", x1, x2, 2, 1)


@api
def vecmat(x1, x2, /):
    """Conjugated vectors times matrices: (..., k) and (..., k, n) give (..., n), over broadcast leading axes.

    Raises: ValueError for shapes that do not fit.
    """
    x1 = as_arrays("vecmat", x1)
    return _core_product("vecmat", lax.conj(x1) if is_complex(x1) else x1, x2, 1, 2)


@api
def inner(a, b, *, precision: Any = None, preferred_element_type: Any = None):
    """The product over the last axes of both arrays."""
    a, b, dtype = _operands("inner", a, b, preferred_element_type)
    left, right = aval_of(a).shape, aval_of(b).shape
    if not left or not right:
        weak = preferred_element_type is None and common_type(a, b)[1]
        return shaping.convert(a, dtype, weak) * shaping.convert(b, dtype, weak)
    if left[-1] != right[-1]:
        raise TypeError(f"inner: the last axes must have equal sizes, got {left} and {right}")
    return _product(a, b, ((len(left) - 1,), (len(right) - 1,)), ((), ()), precision, dtype)


@api
def outer(a, b, out: None = None):
    """The products of every element of `a` with every element of `b`: (size of a, size of b)."""
    refuse_out("outer", out)
    a, b = as_arrays("outer", a, b)
    a, b = promote_dtypes(a, b)
    rows, columns = math.prod(a.shape), math.prod(b.shape)
    left = shaping.expand_dims(shaping.reshape(a, (rows,)), (1,))
    right = shaping.expand_dims(shaping.reshape(b, (columns,)), (0,))
    return left * right


@api
def _tensordot(a, b, axes: Any, precision: Any, preferred_element_type: Any, out_sharding: Any = None):
    a, b, dtype = _operands("tensordot", a, b, preferred_element_type)
    left, right = aval_of(a), aval_of(b)
    if isinstance(axes, int):
        if axes > min(left.ndim, right.ndim):
            raise TypeError(f"Number of tensordot axes (axes {axes}) exceeds input ranks ({left.shape} and "
                            f"{right.shape})")
        left_axes, right_axes = tuple(range(left.ndim - axes, left.ndim)), tuple(range(axes))
    else:
        left_axes, right_axes = (canonical_axes(axes[0], left.ndim), canonical_axes(axes[1], right.ndim))
        if len(left_axes) != len(right_axes):
            raise TypeError(f"tensordot requires axes lists to have equal length, got {axes[0]} and {axes[1]}.")
    for x, y in zip(left_axes, right_axes, strict=True):
        if left.shape[x] != right.shape[y]:
            raise TypeError("dot_general requires contracting dimensions to have the same shape. tensordot: contracted axes "
                            f"must have equal sizes, got shapes {left.shape} and {right.shape} "
                            f"with axes {left_axes} and {right_axes}")
    return placement.laid_out_by(out_sharding, _product, a, b, (left_axes, right_axes), ((), ()), precision, dtype)


def tensordot(a, b, axes: int | Sequence[int] | Sequence[Sequence[int]] = 2, *, precision=None,
              preferred_element_type=None, out_sharding=None):
    """The product over several axes: the last n of `a` with the first n of `b`, or two lists of axes."""
    given: Any = axes
    if isinstance(given, (int, np.integer)):
        given = int(given)
        if given < 0:
            raise TypeError(f"tensordot axes must be nonnegative, got {axes}")
    elif isinstance(given, (tuple, list, np.ndarray)) and len(given) == 2:
        given = tuple([tuple(map(int, each)) if isinstance(each, (tuple, list, np.ndarray)) else (int(each),)
                       for each in given])
    else:
        raise TypeError(f"tensordot requires axes to be an int or a pair of ints or of sequences, got {axes}.")
    return _tensordot(a, b, axes=given, precision=precision, preferred_element_type=preferred_element_type,
                      out_sharding=out_sharding)


@api
def kron(a, b):
    """The Kronecker product: blocks of `b`, each scaled by an element of `a`."""
    a, b = promote_dtypes(*as_arrays("kron", a, b))
    left, right = a.shape, b.shape
    rank = max(len(left), len(right))
    left = (1,) * (rank - len(left)) + left
    right = (1,) * (rank - len(right)) + right
    a = shaping.expand_dims(shaping.reshape(a, left), range(1, 2 * rank, 2))
    b = shaping.expand_dims(shaping.reshape(b, right), range(0, 2 * rank, 2))
    return shaping.reshape(a * b, [x * y for x, y in zip(left, right, strict=True)])


@api
@strong_arrays
def cross(a, b, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None):
    """The cross product of vectors of 2 or 3 components; of two plane vectors, the component out of the plane."""
    if axis is not None:
        axisa = axisb = axisc = axis
    a, b = promote_dtypes(*as_arrays("cross", a, b))
    a = shaping.axes_last(a, (shaping.canonical_axis(axisa, a.ndim),))
    b = shaping.axes_last(b, (shaping.canonical_axis(axisb, b.ndim),))
    sizes = a.shape[-1], b.shape[-1]
    if not {2, 3}.issuperset(sizes):
        raise ValueError("cross: vectors must have 2 or 3 components, got shapes "
                         f"{a.shape} and {b.shape}")

    def components(x) -> list[Any]:
        parts = [x[..., index] for index in range(x.shape[-1])]
        return parts if len(parts) == max(sizes) else [*parts, shaping.full(x.shape[:-1], 0, x.dtype)]

    left, right = components(a), components(b)

    def minor(i: int, j: int):
        return left[i] * right[j] - left[j] * right[i]

    if sizes == (2, 2):
        return minor(0, 1)
    parts = [minor(1, 2), minor(2, 0), minor(0, 1)]
    # XLA:CPU joins in a loop over rows of three, with a branch for each element; joined in front, rows are long.
    return moveaxis(shaping.stack(parts, 0), 0, axisc)


@api
def trace(a, offset: int | Any = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: None = None):
    """The sum along a diagonal of two axes."""
    refuse_out("trace", out)
    a = as_arrays("trace", a)
    rank = a.ndim
    if rank < 2:
        raise ValueError(f"trace needs an array of at least 2 axes, got shape {a.shape}")
    a = shaping.axes_last(a, canonical_axes((axis1, axis2), rank))
    rows, columns = a.shape[-2:]
    row, column = shaping.indices((rows, columns))
    on_diagonal = row + offset == column
    mask = shaping.broadcast_in_dim(on_diagonal, a.shape, (rank - 2, rank - 1))
    kept = lax.select(mask, a, shaping.full_like(a, 0))
    return reductions.sum(kept, axis=(-2, -1), dtype=dtype)
