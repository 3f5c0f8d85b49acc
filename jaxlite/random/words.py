"""How operations on arrays of keys, or of a library's dtype, run: as the same operations on what is behind them.

Behind keys are words, on one more axis; behind an element of a library's dtype there may be any number of axes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jaxlite import lax
from jaxlite.core.aval import Ints
from jaxlite.core.dtypes import ExtendedDType, issubdtype, prng_key
from jaxlite.core.primitive import PRIMITIVES
from jaxlite.core.values import aval_of
from jaxlite.random.prng import lowers_on_words
from lowering.rules import register_extended, registers_in

_EXTENDED: dict[str, Callable[..., Any]] = {}
_on_words = registers_in(_EXTENDED)


def _element(avals: Sequence[Any]) -> Ints:
    """The sizes of the axes of what is behind one element."""
    return next(tuple(aval.dtype.physical_element().shape) for aval in avals if isinstance(aval.dtype, ExtendedDType))


@_on_words("concatenate", "rev", "squeeze", "copy", "copy_p", "stop_gradient", "expand_dims", "stack")
def _same(name: str, avals: Sequence[Any], *words, **params):
    return PRIMITIVES[name].bind(*words, **params)


@_on_words("optimization_barrier", "split", "unstack")
def _same_several(name: str, avals: Sequence[Any], *words, **params):
    return list(PRIMITIVES[name].bind(*words, **params))


@_on_words("slice")
def _slice(name: str, avals: Sequence[Any], x, *, start_indices: Ints, limit_indices: Ints, strides: Ints | None):
    element = _element(avals)
    ones = (1,) * len(element)
    return lax.slice(x, (*start_indices, *[0] * len(element)), (*limit_indices, *element), strides and (*strides, *ones))


@_on_words("dynamic_slice")
def _dynamic_slice(name: str, avals: Sequence[Any], x, *starts, slice_sizes: Ints):
    element = _element(avals)
    return lax.dynamic_slice(x, (*starts, *[_zero_like(starts)] * len(element)), (*slice_sizes, *element))


@_on_words("dynamic_update_slice")
def _dynamic_update_slice(name: str, avals: Sequence[Any], x, update, *starts):
    return lax.dynamic_update_slice(x, update, (*starts, *[_zero_like(starts)] * len(_element(avals))))


def _zero_like(starts: Sequence[Any]):
    return aval_of(starts[0]).dtype.type(0)


@_on_words("reshape")
def _reshape(name: str, avals: Sequence[Any], x, *, new_sizes: Ints, dimensions, **params):
    if dimensions is not None:
        x = _transpose(name, avals, x, permutation=dimensions)
    return lax.reshape(x, (*new_sizes, *_element(avals)))


@_on_words("broadcast_in_dim")
def _broadcast_in_dim(name: str, avals: Sequence[Any], x, *, shape: Ints, broadcast_dimensions: Ints, **params):
    element = _element(avals)
    return lax.broadcast_in_dim(x, (*shape, *element), (*broadcast_dimensions, *_behind(len(shape), element)))


def _behind(rank: int, element: Ints) -> range:
    """The axes of elements behind those of an array."""
    return range(rank, rank + len(element))


@_on_words("tile")
def _tile(name: str, avals: Sequence[Any], x, *, reps: Ints):
    return lax.tile(x, (*reps, *[1] * len(_element(avals))))


@_on_words("transpose")
def _transpose(name: str, avals: Sequence[Any], x, *, permutation: Ints):
    return lax.transpose(x, (*permutation, *_behind(len(permutation), _element(avals))))


@_on_words("select_n")
def _select_n(name: str, avals: Sequence[Any], which, *cases):
    shape = aval_of(which).shape
    if shape:
        which = lax.broadcast_in_dim(which, (*shape, *_element(avals)), range(len(shape)))
    return lax.select_n(which, *cases)


@_on_words("gather")
def _gather(name: str, avals: Sequence[Any], x, indices, *, dimension_numbers, slice_sizes: Ints, **params):
    rank, element = len(dimension_numbers.offset_dims) + len(avals[1].shape) - 1, _element(avals)
    numbers = dimension_numbers._replace(offset_dims=(*dimension_numbers.offset_dims, *_behind(rank, element)))
    if issubdtype(avals[0].dtype, prng_key):
        params["fill_value"] = 0xFFFFFFFF  # the words of keys that are not there
    return PRIMITIVES[name].bind(x, indices, dimension_numbers=numbers, slice_sizes=(*slice_sizes, *element), **params)


@_on_words("scatter")
def _scatter(name: str, avals: Sequence[Any], x, indices, updates, *, dimension_numbers, update_jaxpr=None, **params):
    behind = _behind(len(avals[2].shape), _element(avals))
    numbers = dimension_numbers._replace(update_window_dims=(*dimension_numbers.update_window_dims, *behind))
    return lax.scatter(x, indices, updates, numbers, **{key: value for key, value in params.items() if key in (
        "indices_are_sorted", "unique_indices", "mode")})


@_on_words("eq")
def _eq(name: str, avals: Sequence[Any], x, y):
    shape, element = lax.broadcast_shapes(*(aval.shape for aval in avals)), _element(avals)
    rank, behind = len(shape), tuple(_behind(len(shape), element))
    x, y = (value if aval.shape == shape else lax.broadcast_in_dim(
                value, (*shape, *element), (*range(rank - len(aval.shape), rank), *behind))
            for value, aval in zip((x, y), avals, strict=True))
    return lax.reduce_and(lax.eq(x, y), behind)


@_on_words("ne")
def _ne(name: str, avals: Sequence[Any], x, y):
    return lax.bitwise_not(_eq(name, avals, x, y))


for _name, _rule in _EXTENDED.items():
    lowers_on_words(register_extended, _name, lambda *args, _name=_name, _rule=_rule, **params: _rule(
        _name, *args, **params))
