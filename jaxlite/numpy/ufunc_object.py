"""The class `ufunc`: an elementwise function with the methods reduce, accumulate, at, reduceat and outer.

Each method uses only the function, in a loop over the elements in order. If XLA has an operation for it (sums, products,
extrema, logic), `Folds` names that instead. Eagerly, each method is one compiled call.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from jaxlite import lax
from jaxlite.core import dtypes
from jaxlite.core.axes import other_axes
from jaxlite.core.filtering import hide_own_frames
from jaxlite.core.staging import trace_to_jaxpr
from jaxlite.core.tracing import Tracer
from jaxlite.core.values import aval_of
from jaxlite.lax import shaping
from jaxlite.numpy.api import api, as_array, broadcasts_inside, canonical_axes, check_arrays, refuse_out
from jaxlite.numpy.mapping import map_broadcast

_bool = np.dtype(bool)


class Folds(NamedTuple):
    """How the folds of a ufunc are computed by XLA.

    reduce: (array, axes) -> array; accumulate: (array, axis) -> array; scatter: a method of `x.at[i]`.
    widen: sums and products of booleans and narrow integers are in 32 bits. logical: operands are booleans; inexact: floats.
    strong: a reduction is never weakly typed.
    """

    reduce: Callable | None = None
    accumulate: Callable | None = None
    scatter: str | None = None
    widen: bool = False
    logical: bool = False
    strong: bool = False
    inexact: bool = False


class ufunc:
    """A function applied element by element to broadcast arrays.

    Args:
      func: a function of `nin` scalars that gives `nout` scalars.
      name: the name in messages; `func.__name__` by default.
      nargs: how many arguments `func` takes; `nin` by default.
      identity: the value that an empty reduction has; None for none.
      call: the function for arrays, where there is a better one than `func` element by element.
      reduce, accumulate, at, reduceat: functions to use for the methods of these names.

    >>> import jaxlite.numpy as jnp
    >>> jnp.add.reduce(jnp.arange(5))
    Array(10, dtype=int32)
    """

    def __init__(self, func: Callable[..., Any], /, nin: int, nout: int, *, name: str | None = None,
                 nargs: int | None = None, identity=None, call: Callable[..., Any] | None = None,
                 reduce: Callable[..., Any] | None = None, accumulate: Callable[..., Any] | None = None,
                 at: Callable[..., Any] | None = None, reduceat: Callable[..., Any] | None = None):
        self.__name__ = name or func.__name__
        self.__doc__ = func.__doc__
        self.func = func
        self.call = call or self._elementwise
        self._nin, self._nout, self._identity = nin, nout, identity
        self._nargs = nin if nargs is None else nargs
        self._reduce, self._accumulate, self._at, self._reduceat = reduce, accumulate, at, reduceat
        self.folds = Folds()

    nin = property(lambda self: self._nin, doc="How many arrays the function takes.")
    nout = property(lambda self: self._nout, doc="How many arrays the function gives.")
    nargs = property(lambda self: self._nargs, doc="How many arguments the function takes.")
    identity = property(lambda self: self._identity, doc="The value of an empty reduction, or None.")

    @property
    def __signature__(self) -> inspect.Signature:
        """For `help` and editors: the arguments by name, where `func` has names for them."""
        own = inspect.signature(ufunc.__call__).parameters
        args = [each.replace(kind=each.POSITIONAL_ONLY) for each in inspect.signature(self.func).parameters.values()
                if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
        return inspect.Signature([*(args if len(args) == self._nin else [own["args"]]), own["out"], own["where"]])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ufunc) and (self is other or self._signature() == other._signature())

    def __hash__(self) -> int:
        return hash((self.func, self._nin, self._nout))

    def _signature(self) -> tuple[Any, ...]:
        return (self.func, self.__name__, self._nin, self._nout, self._nargs, self._identity, self._reduce,
                self._accumulate, self._at, self._reduceat)

    def __repr__(self) -> str:
        return f"<jnp.ufunc '{self.__name__}'>"

    def __call__(self, *args, out: None = None, where: None = None):
        if out is not None or where is not None:
            refuse_out(self.__name__, out)
            refuse_out(self.__name__, where, "where")
        try:
            return self.call(*args)
        except Exception as error:
            hide_own_frames(error)
            raise

    def _elementwise(self, *args):
        check_arrays(self.__name__, *args)
        return _apply_to_elements(*args, op=self)

    def _check_binary(self, method: str, out=None) -> None:
        if self._nin != 2 or self._nout != 1:
            raise ValueError(f"{method} only supported for binary ufuncs")
        refuse_out(f"{self.__name__}.{method}", out)

    def reduce(self, a, axis=0, dtype=None, out: None = None, keepdims: bool = False, initial=None, where=None):
        """Combine the elements along an axis, first to last.

        Args:
          axis: an axis, a tuple of axes, or None for all.
          dtype: of the result; by default the array's, or 32 bits for sums and products of narrower integers.
          keepdims: keep the axis, with size 1.
          initial: a value to start from; needed for empty arrays if the function has no identity.
          where: booleans: which elements take part.
        Raises: ValueError for functions not of two arguments, and where `initial` is needed.
        """
        self._check_binary("reduce", out)
        check_arrays(f"{self.__name__}.reduce", a)
        if self._identity is None and initial is None and where is not None:
            raise ValueError(f"reduction operation {self.__name__!r} does not have an identity, so to use a where mask "
                             "one has to specify 'initial'.")
        axis = tuple(axis) if isinstance(axis, list) else axis
        call = self._reduce or _reduce
        return call(a, initial, where, op=self, axis=axis, dtype=dtype, keepdims=keepdims)

    def accumulate(self, a, axis: int = 0, dtype=None, out: None = None):
        """The results of combining the elements along an axis up to each; None takes all elements in order."""
        self._check_binary("accumulate", out)
        check_arrays(f"{self.__name__}.accumulate", a)
        return (self._accumulate or _accumulate)(a, op=self, axis=axis, dtype=dtype)

    def at(self, a, indices, b=None, /, *, inplace: bool = True):
        """`a` with the function applied at some indices, as often as an index is there.

        Args:
          indices: an integer, an array of them, or a tuple of those.
          b: the second operands, for functions of two; broadcast to the indexed elements.
          inplace: has to be False: arrays are immutable, so that the result is what counts.
        """
        if inplace:
            raise NotImplementedError(
                f"jnp.{self.__name__}.at cannot change its argument: arrays are immutable. Pass inplace=False and use "
                f"the result: x = jnp.{self.__name__}.at(x, indices, values, inplace=False)")
        check_arrays(f"{self.__name__}.at", a)
        if (b is None) != (self._nin == 1):
            raise TypeError(f"{self.__name__}.at takes {self._nin} operand{'s' * (self._nin > 1)}, "
                            f"got {1 if b is None else 2}")
        return (self._at or _at)(a, indices, b, op=self)

    def reduceat(self, a, indices, axis: int = 0, dtype=None, out: None = None):
        """For each i combine a[indices[i]:indices[i + 1]] along an axis; a[indices[i]] where that is empty."""
        self._check_binary("reduceat", out)
        check_arrays(f"{self.__name__}.reduceat", a, indices)
        if not isinstance(axis, (int, np.integer)):
            raise ValueError(f"reduceat requires a single integer axis, got {axis!r}")
        if self._reduceat:
            return self._reduceat(a, indices, op=self, axis=axis, dtype=dtype)
        return _reduceat(a, indices, op=self, axis=axis, dtype=dtype, longest=_longest(a, indices, axis))

    @broadcasts_inside
    def outer(self, A, B, /):
        """The function of all pairs of an element of A and one of B; shape A.shape + B.shape."""
        self._check_binary("outer")
        check_arrays(f"{self.__name__}.outer", A, B)
        return _outer(A, B, op=self)


def frompyfunc(func: Callable[..., Any], /, nin: int, nout: int, *, identity=None) -> ufunc:
    """A ufunc from a function of `nin` scalars that gives `nout` scalars.

    >>> import jaxlite.numpy as jnp
    >>> clamped_sum = jnp.frompyfunc(lambda x, y: jnp.minimum(x + y, 10), 2, 1)
    >>> clamped_sum.reduce(jnp.array([3, 9, 4]))
    Array(10, dtype=int32)
    """
    return ufunc(func, nin, nout, identity=identity)


@api
def _apply_to_elements(*args, op: ufunc):
    arrays = [as_array(arg) for arg in args]
    return map_broadcast(op.func, arrays, [0] * len(arrays))


def _operand(op: ufunc, a, dtype):
    """The array in the dtype that folding it by the function gives."""
    a = as_array(a)
    if dtype is not None and not op.folds.logical:
        return shaping.of_user(a, dtypes.canonicalize_dtype(dtype))
    if op.folds.logical:
        return a if a.dtype == _bool else a != lax.full_like(a, 0)
    if op.folds.reduce is None or op.folds.inexact:
        element = aval_of(a).update(shape=())
        jaxpr, _ = trace_to_jaxpr(lambda x, y: [op.func(x, y)], [element, element])
        result: Any = jaxpr.outvars[0].aval
        return lax.convert_element_type(a, result.dtype)
    return a


def _widened(dtype):
    """The dtype of a sum: at least 32 bits for integers."""
    kind, default = dtypes.kind(dtype), dtypes.canonicalize_dtype(int)
    if kind == "b":
        return default
    if kind in "iu" and dtypes.itemsize_bits(dtype) < dtypes.itemsize_bits(default):
        return default if kind == "i" else np.dtype(f"uint{dtypes.itemsize_bits(default)}")
    return dtype


def _to_front(a, axis):
    """The axes merged into one, in front."""
    axes = canonical_axes(axis, a.ndim)
    a = lax.transpose(a, [*axes, *other_axes(a.ndim, axes)])
    return lax.reshape(a, (math.prod(a.shape[:len(axes)]), *a.shape[len(axes):]))


@api
def _reduce(a, initial, where, *, op: ufunc, axis: Any, dtype: Any, keepdims: bool):
    a = as_array(a)
    if dtype is None and op.folds.widen:
        dtype = _widened(a.dtype)
    a = _operand(op, a, dtype)
    axes = canonical_axes(axis, a.ndim)
    start = initial if initial is not None else op.identity
    if start is None and any(not a.shape[each] for each in axes):
        raise ValueError(f"zero-size array to reduction operation {op.__name__} which has no identity")
    if start is not None:
        start = lax.convert_element_type(as_array(start), a.dtype)
    if where is not None:
        where = as_array(where)
        where = shaping.broadcast_to(where if where.dtype == _bool else where != 0, a.shape)
    fold = op.folds.reduce
    if op.folds.widen and a.dtype == _bool:  # asked for: whether some, or all, are nonzero
        fold = lax.reduce_and if op.identity else lax.reduce_or
    if fold is not None:
        if where is not None:
            neutral = start if op.identity is None else lax.full_like(start, op.identity)
            a = lax.select(where, a, lax.broadcast_in_dim(neutral, a.shape, ()))
        result = fold(a, axes)
        if op.folds.strong:
            result = lax.convert_element_type(result, result.dtype)
        if initial is not None:
            result = op.call(start, result)
    else:
        result = _fold(op, _to_front(a, axes), start if initial is not None else None, start,
                       None if where is None else _to_front(where, axes))
    if dtype is not None and op.folds.logical:
        result = lax.convert_element_type(result, dtype)
    return lax.expand_dims(result, axes) if keepdims else result


def _fold(op: ufunc, items, initial, identity, where):
    """Combine the items along axis 0 in order."""
    shape = items.shape[1:]

    def step(state, item):
        item, take = item
        new = lax.convert_element_type(op.call(state, item), items.dtype)
        return (new if take is None else lax.select(take, new, state)), None

    if identity is None:
        state, items, take = items[0], items[1:], None
    else:
        state, take = lax.broadcast_in_dim(identity, shape, ()), where
    return lax.scan(step, state, (items, take))[0]


@api
def _accumulate(a, *, op: ufunc, axis: Any, dtype: Any):
    a = as_array(a)
    if axis is None:
        a, axis = lax.reshape(a, (a.size,)), 0
    if dtype is None and op.folds.widen and a.dtype == _bool:
        dtype = _widened(a.dtype)
    a = _operand(op, a, dtype)
    (axis,) = canonical_axes(axis, a.ndim)
    if op.folds.accumulate is not None and a.dtype != _bool:
        return op.folds.accumulate(lax.convert_element_type(a, a.dtype), axis)  # strongly typed, as in JAX
    if not a.size:
        return a
    items = _to_front(a, axis)

    def step(state, item):
        item, is_first = item
        new = lax.select(is_first, item, lax.convert_element_type(op.call(state, item), items.dtype))
        return new, new

    result = lax.scan(step, items[0], (items, np.arange(len(items)) == 0))[1]
    order = [*range(1, axis + 1), 0, *range(axis + 1, a.ndim)]
    return lax.transpose(result, order)


@api
def _at(a, indices, b, *, op: ufunc):
    a = as_array(a)
    if b is not None and op.__name__ not in ("add", "subtract", "multiply"):  # these keep the dtype of a
        one, other = (lax.full_like(as_array(x), 0, shape=()) for x in (a, b))
        result = aval_of(op.call(one, other))
        a = a if op.folds.logical else lax.convert_element_type(a, result.dtype)
    if op.folds.scatter:
        return getattr(a.at[indices], op.folds.scatter)(b)
    if op.folds.logical:
        a = _operand(op, a, None)
    parts = [as_array(part) for part in (indices if isinstance(indices, tuple) else (indices,))]
    shape = lax.broadcast_shapes(*(part.shape for part in parts))
    count = math.prod(shape)
    places = tuple(lax.reshape(shaping.broadcast_to(part, shape), (count,)) for part in parts)
    if b is not None:
        rest = a.shape[len(parts):]
        b = as_array(b)
        b = lax.reshape(shaping.broadcast_to(b, (*shape, *rest)), (count, *rest))

    def step(state, item):
        place, operand = item
        old = state[place]
        new = op.call(old) if operand is None else op.call(old, operand)
        return state.at[place].set(lax.convert_element_type(new, state.dtype)), None

    return lax.scan(step, a, (places, b))[0]


def _longest(a, indices, axis: int) -> int | None:
    """At least as many elements as any slice between the indices has, if those are known: a power of two, since each
    other number would be another program."""
    (axis,) = canonical_axes(axis, aval_of(a).ndim)
    if isinstance(indices, Tracer) or np.ndim(indices) != 1 or not np.size(indices):
        return None
    lengths = np.diff(np.asarray(indices), append=aval_of(a).shape[axis])
    return 1 << max(int(lengths.max()) - 1, 0).bit_length()


@api
def _reduceat(a, indices, *, op: ufunc, axis: int, dtype: Any, longest: int | None):
    a = as_array(a) if dtype is None else as_array(a).astype(dtype)  # a slice of one element is that element, as in JAX
    starts, weak = as_array(indices), aval_of(a).weak_type
    if starts.ndim != 1 or dtypes.kind(starts.dtype) not in "iu":
        raise ValueError(f"reduceat indices must be an array of integers with one axis, got {aval_of(starts)}")
    (axis,) = canonical_axes(axis, a.ndim)
    items = _to_front(a, axis)
    size = items.shape[0]
    steps = size if longest is None else min(longest, size)
    last = lax.full((1,), size, starts.dtype)
    ends = lax.concatenate([starts[1:], last], 0)
    column = (len(starts), *[1] * (items.ndim - 1))

    def combine(result, offset):
        place = starts + offset
        new = op.call(result, items[lax.min(place, lax.full_like(place, size - 1))])
        take = shaping.broadcast_to(lax.reshape(place < ends, column), result.shape)
        return lax.select(take, shaping.convert(new, result.dtype, weak), result)

    def step(result, offset):
        if longest is not None:
            return combine(result, offset), None
        # As many steps as the longest slice could have, so that there is a reverse; those beyond it cost nothing.
        more = lax.reduce_or(starts + offset < ends, (0,))
        return lax.cond(more, combine, lambda result, _: result, result, offset), None

    result = lax.scan(step, items[starts], lax.iota(starts.dtype, steps)[1:])[0]
    return lax.transpose(result, [*range(1, axis + 1), 0, *range(axis + 1, a.ndim)])


@api
def _outer(a, b, *, op: ufunc):
    a, b = as_array(a), as_array(b)
    if a.dtype == b.dtype and not a.ndim and not b.ndim:
        return op.call(a, b)
    return op.call(lax.reshape(a, (*a.shape, *[1] * b.ndim)), b)
