"""Elements and slices chosen by conditions, or by numbers: select, piecewise, choose, compress, extract.

`where` is in `selection.py`, since other functions are made of it.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxlite import lax
from jaxlite.core import dtypes
from jaxlite.core.filtering import boundary
from jaxlite.core.tracing import Tracer
from jaxlite.core.values import aval_of
from jaxlite.lax import shaping
from jaxlite.numpy import arithmetic, joining, manipulation, selection
from jaxlite.numpy.api import api, as_array, check_arrays, promote_dtypes, refuse_out
from jaxlite.numpy.creation import asarray

# --- by conditions -----------------------------------------------------------------------------------


@api
def select(condlist, choicelist, default=0):
    """Each element from the first choice whose condition holds there, else the default.

    Args:
      condlist: conditions, choicelist: as many arrays; all are broadcast together, choices promoted.
    Raises: ValueError for no conditions or other counts.

    >>> import jaxlite.numpy as jnp
    >>> x = jnp.arange(5)
    >>> jnp.select([x < 2, x > 3], [x, x * 10], default=-1)
    Array([ 0,  1, -1, -1, 40], dtype=int32)
    """
    conditions, choices = list(condlist), list(choicelist)
    if len(conditions) != len(choices):
        raise ValueError(f"condlist must have length equal to choicelist ({len(conditions)} vs {len(choices)})")
    if not conditions:
        raise ValueError("condlist must be non-empty")
    check_arrays("select", *conditions, *choices, default)
    *choices, result = promote_dtypes(*choices, default)
    for condition, choice in zip(conditions[::-1], choices[::-1], strict=True):
        result = selection.where(condition, choice, result)
    return result


@boundary
def piecewise(x, condlist, funclist: Sequence[Any], *args, **kw):
    """A function given by pieces: where several conditions hold, the last one decides.

    Args:
      condlist: conditions that broadcast against x.
      funclist: for each condition, and perhaps one more for where none holds (0 without), a scalar or an
        elementwise function `f(x, *args, **kw)`. Each function gets all of x; what it gives off its piece is dropped.
    Returns: an array of x's dtype and of the shape of x and the conditions, broadcast.
    Raises: ValueError for counts that do not match; TypeError for results of other shapes.

    >>> import jaxlite.numpy as jnp
    >>> x = jnp.array([-2.0, 0.0, 3.0])
    >>> jnp.piecewise(x, [x < 0, x > 0], [-1, lambda x: x * x])
    Array([-1.,  0.,  9.], dtype=float32)
    """
    check_arrays("piecewise", x)
    conditions = [asarray(each) if isinstance(each, (list, tuple)) else each for each in condlist]
    functions = list(funclist)
    if not conditions:
        raise ValueError("condlist must be non-empty")
    check_arrays("piecewise", *conditions)
    if len(functions) == len(conditions):
        functions.append(0)
    if len(functions) != len(conditions) + 1:
        raise ValueError(f"with {len(conditions)} condition(s), either {len(conditions)} or {len(conditions) + 1} "
                         f"functions are expected; got {len(functions)}")
    x = as_array(x)
    shape = manipulation.broadcast_shapes(x.shape, *(aval_of(each).shape for each in conditions))
    x = manipulation.broadcast_to(x, shape) if shape != x.shape else x
    seen = [x] * len(functions)
    if isinstance(x, Tracer):  # off its piece a function sees a constant: no derivative of its own, perhaps infinite, gets out
        seen = [selection.where(active, x, shaping.stop_gradient(x)) for active in _active(conditions)]
    values = [each(part, *args, **kw) if callable(each) else each for each, part in zip(functions, seen, strict=True)]
    for value in values:
        if aval_of(value).shape not in ((), x.shape):
            raise TypeError(f"piecewise: a function gave shape {aval_of(value).shape} for x of shape "
                            f"{x.shape}; functions must be elementwise")
    return _pieces(x, conditions, values)


def _active(conditions: list[Any]) -> list[Any]:
    """Where each piece, and the default after them, decides: where its condition holds and none after it does."""
    later: Any = False
    found = []
    for condition in reversed(conditions):
        condition = arithmetic.logical_not(arithmetic.logical_not(condition))
        found.append(arithmetic.logical_and(condition, arithmetic.logical_not(later)))
        later = arithmetic.logical_or(later, condition)
    return [*found[::-1], arithmetic.logical_not(later)]


@api
def _pieces(x, conditions, values):
    shape, dtype = x.shape, x.dtype
    *pieces, result = (shaping.of_user(value, dtype) for value in values)
    for condition, piece in zip(conditions, pieces, strict=True):
        result = selection.where(condition, piece, result)
    if result.shape == shape:
        return result
    return manipulation.broadcast_to(result, shape)


# --- by numbers --------------------------------------------------------------------------------------


def choose(a, choices, out: None = None, mode: str = "raise"):
    """Each element from the array of `choices` that `a` names there.

    Args:
      a: integers; choices: a sequence of arrays, or an array of them along axis 0; all are broadcast.
      mode: 'wrap' or 'clip' indices out of range; 'raise' needs a concrete `a`.
    """
    refuse_out("choose", out)
    check_arrays("choose", a)
    options = [choices[index] for index in range(len(choices))]
    if not options:
        raise ValueError("choices must be a non-empty sequence of arrays")
    if dtypes.kind(aval_of(a).dtype) not in "iu":
        raise ValueError("`a` array must be integer typed")
    if mode == "raise":
        found = manipulation.concrete("choose", "a", a)
        if found.size and (found.min() < 0 or found.max() >= len(options)):
            raise ValueError("invalid entry in choice array")
    elif mode not in ("wrap", "clip"):
        raise ValueError(f"mode={mode!r} not understood. Must be 'raise', 'wrap', or 'clip'")
    return _choose(a, *options, mode=mode)


@api
def _choose(a, *options, mode: str):
    a = shaping.convert(as_array(a), dtypes.int32, False)
    count = len(options)
    a = a % count if mode == "wrap" else lax.clamp(np.int32(0), a, np.int32(count - 1))
    parts = [shaping.convert(each, weak_type=False) for each in joining.promoted(options)]
    return lax.select_n(*manipulation.broadcast_arrays(a, *parts))


# --- slices ------------------------------------------------------------------------------------------


def compress(condition, a, axis: int | None = None, *, size: int | None = None, fill_value=0, out: None = None):
    """The slices of an axis at which a condition holds; of all elements, flattened, for None.

    `size` fixes how many, at most all of them, filling up with `fill_value`; without it the condition must be concrete.
    """
    refuse_out("compress", out)
    check_arrays("compress", condition, a)
    if axis is None:
        a, axis = manipulation.ravel(a), 0
    a = as_array(a)
    axis = shaping.canonical_axis(axis, a.ndim)
    if aval_of(condition).ndim != 1:
        raise ValueError("condition must be a 1D array")
    extent = a.shape[axis]
    if size is None:
        mask = manipulation.concrete("compress", "condition", condition).astype(bool)
        if mask[extent:].any():
            raise ValueError("condition contains entries that are out of bounds")
        return manipulation.take_slices(a, np.flatnonzero(mask[:extent]).astype(np.int32), axis=axis)
    size = operator.index(size)
    extent = min(extent, aval_of(condition).shape[0])
    if not 0 <= size <= extent:
        raise ValueError("size must be positive and not greater than the size of the array axis; got "
                         f"size={size} for a.shape[axis]={extent}")
    return _compress(condition, a, fill_value, axis=axis, size=size)


@api
def _compress(condition, a, fill_value, axis: int, size: int):
    extent = min(a.shape[axis], aval_of(condition).shape[0])
    mask = shaping.convert(lax.slice_in_dim(condition, 0, extent), bool, False)
    # XLA:CPU sorts integers faster than it does pairs. What is not to be taken comes last, all with one number.
    positions = shaping.iota(dtypes.int32, extent)
    order = lax.sort(lax.select(mask, positions, shaping.full_like(positions, extent)))
    order = lax.slice_in_dim(order, 0, size)
    result = manipulation.take_slices(a, order, axis=axis)
    valid = lax.lt(order, shaping.full_like(order, extent))
    mask = shaping.broadcast_in_dim(valid, result.shape, (axis,))
    fill = shaping.full_like(result, shaping.of_user(fill_value, result.dtype))
    return shaping.convert(lax.select(mask, result, fill), None, False)


@boundary
def extract(condition, arr, *, size: int | None = None, fill_value=0):
    """The elements at which a condition holds, flattened.

    `size` fixes how many, filling up with `fill_value`; without it the condition must be concrete.
    """
    check_arrays("extract", condition, arr)
    return compress(manipulation.ravel(condition), manipulation.ravel(arr), size=size,
                                 fill_value=fill_value)
