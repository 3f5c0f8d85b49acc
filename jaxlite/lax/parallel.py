"""Collectives: operations across the examples of a named axis, as bound by `vmap(..., axis_name=...)`.

A name stands for its innermost binding. Several names make one axis whose index runs over the last name fastest.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxlite.core import dtypes
from jaxlite.core.aval import ShapedArray, shaped_array
from jaxlite.core.primitive import Primitive
from jaxlite.core.tracing import state, unmapped_axis
from jaxlite.core.tree import tree_map
from jaxlite.core.values import aval_of
from jaxlite.lax import elementwise, shaping, slicing

Names = tuple[Any, ...]


def _collective(name: str) -> Primitive:
    primitive = Primitive(name, memoise=False)  # types depend on the axes in scope
    primitive.is_collective = True  # type: ignore[attr-defined]
    return primitive


psum_p, pmax_p, pmin_p = _collective("psum"), _collective("pmax"), _collective("pmin")
all_gather_p = _collective("all_gather")
all_to_all_p = _collective("all_to_all")
ppermute_p = _collective("ppermute")
pbroadcast_p = _collective("pbroadcast")
reduce_scatter_p = _collective("reduce_scatter")
axis_index_p = _collective("axis_index")


def _names(axis_name: Any) -> Names:
    names = tuple(axis_name) if isinstance(axis_name, (tuple, list)) else (axis_name,)
    for name in names:
        if name not in state.axis_sizes:
            raise unmapped_axis(name)
    if len(set(names)) != len(names):
        raise ValueError(f"an axis is named twice in {names}")
    return names


def _size(names: Names) -> int:
    return math.prod(state.axis_sizes[name] for name in _names(names))


def _groups(groups: Any, size: int) -> tuple[tuple[int, ...], ...] | None:
    if groups is None:
        return None
    groups = tuple(tuple(map(operator.index, group)) for group in groups)
    if sorted(index for group in groups for index in group) != list(range(size)):
        raise ValueError(f"axis_index_groups must cover all indices of an axis of size {size} exactly once, got {groups}")
    if len({len(group) for group in groups}) > 1:
        raise ValueError(f"axis_index_groups must all be of one size, got {groups}")
    return groups


def _group_size(names: Names, groups: Any) -> int:
    return len(groups[0]) if groups is not None else _size(names)


def _checked(primitive: Primitive, x: Any, **params: Any) -> Any:
    primitive.abstract_eval([aval_of(x)], params)  # raises; batching rules take for granted that types fit
    return primitive.bind(x, **params)


def axis_size(axis_name: Any) -> int:
    """The number of examples along a named axis (or several). Raises: NameError if nothing binds the name.

    >>> import jaxlite, jaxlite.numpy as jnp
    >>> jaxlite.vmap(lambda x: x * jaxlite.lax.axis_size("i"), axis_name="i")(jnp.arange(3))
    Array([0, 3, 6], dtype=int32)
    """
    return _size(_names(axis_name))


# --- reductions --------------------------------------------------------------------------------------


def _reduction_aval(x: Any, *, axes: Names, axis_index_groups: Any) -> ShapedArray:
    _names(axes)
    return shaped_array(x.shape, x.dtype, x.weak_type)


for _p in (psum_p, pmax_p, pmin_p):
    _p.def_abstract_eval(_reduction_aval)


def _reduce(primitive: Primitive, x: Any, axis_name: Any, groups: Any) -> Any:
    names = _names(axis_name)
    groups = _groups(groups, _size(names))
    if groups is not None and len(names) > 1:
        raise ValueError(f"axis_index_groups only works with a single axis name, got {names}")

    def one(leaf: Any) -> Any:
        return primitive.bind(leaf, axes=names, axis_index_groups=groups) if names else leaf

    return tree_map(one, x)


def psum(x: Any, axis_name: Any, *, axis_index_groups: Any = None) -> Any:
    """The sum over the examples of a named axis: the same for each.

    Args:
      x: a pytree of arrays. Booleans are counted. A Python number gives that times the size of the axis.
      axis_name: a name, or a tuple of several.
      axis_index_groups: lists of indices, of one length, that are summed apart from each other.

    >>> import jaxlite, jaxlite.numpy as jnp
    >>> jaxlite.vmap(lambda x: x / jaxlite.lax.psum(x, "i"), axis_name="i")(jnp.array([1.0, 3.0]))
    Array([0.25, 0.75], dtype=float32)
    """
    names = _names(axis_name)
    if not names:
        return x  # of no axes: nothing is counted
    size = _group_size(names, _groups(axis_index_groups, _size(names)))

    def countable(leaf: Any) -> Any:
        return shaping.convert(leaf, np.dtype("int32"), False) if aval_of(leaf).dtype == dtypes.bool_ else leaf

    def one(leaf: Any) -> Any:
        if isinstance(leaf, (int, float, complex)):
            return leaf * size
        return _reduce(psum_p, countable(leaf), names, axis_index_groups)

    return tree_map(one, x)


def pmean(x: Any, axis_name: Any, *, axis_index_groups: Any = None) -> Any:
    """The mean over the examples of a named axis. Arguments are as in `psum`."""
    names = _names(axis_name)
    size = _group_size(names, _groups(axis_index_groups, _size(names)))

    def one(leaf: Any) -> Any:
        if isinstance(leaf, (int, float, complex)):
            return leaf
        if dtypes.kind(aval_of(leaf).dtype) in "biu":
            leaf = shaping.convert(leaf, dtypes.canonicalize_dtype(np.dtype("float64")), False)
        total = _reduce(psum_p, leaf, names, axis_index_groups)
        return elementwise.div(total, np.asarray(size).astype(aval_of(total).dtype)[()])

    return tree_map(one, x)


def pmax(x: Any, axis_name: Any, *, axis_index_groups: Any = None) -> Any:
    """The greatest over the examples of a named axis, element by element. Arguments are as in `psum`."""
    return _reduce(pmax_p, x, axis_name, axis_index_groups)


def pmin(x: Any, axis_name: Any, *, axis_index_groups: Any = None) -> Any:
    """The least over the examples of a named axis, element by element. Arguments are as in `psum`."""
    return _reduce(pmin_p, x, axis_name, axis_index_groups)


# --- gathering and scattering ------------------------------------------------------------------------


@all_gather_p.def_abstract_eval
def _all_gather_aval(x: Any, *, all_gather_dimension: int, axis_index_groups: Any, axis_name: Names, axis_size: int,
                     tiled: bool) -> ShapedArray:
    _names(axis_name)
    shape = list(x.shape)
    if tiled:
        shape[all_gather_dimension] *= axis_size
    else:
        shape.insert(all_gather_dimension, axis_size)
    return shaped_array(tuple(shape), x.dtype, x.weak_type)


def all_gather(x: Any, axis_name: Any, *, axis_index_groups: Any = None, axis: int = 0, tiled: bool = False,
               to: str = "varying") -> Any:
    """The values of all examples of a named axis, for each example.

    Args:
      axis: where the examples are stacked or, if `tiled`, the axis along which they are joined.
      axis_index_groups: lists of indices, of one length, that are gathered apart from each other.
      to: 'varying', or 'reduced' and 'invariant', which mean the same here.
    """
    names = _names(axis_name)
    groups = _groups(axis_index_groups, _size(names))

    def one(leaf: Any) -> Any:
        rank = aval_of(leaf).ndim
        where = shaping.canonical_axis(axis, rank if tiled else rank + 1)
        for position, name in enumerate(reversed(names)):  # the last runs fastest
            leaf = all_gather_p.bind(leaf, all_gather_dimension=where, axis_index_groups=groups, axis_name=(name,),
                                     axis_size=_group_size((name,), groups), tiled=tiled or position > 0)
        return leaf

    return tree_map(one, x)


@reduce_scatter_p.def_abstract_eval
def _reduce_scatter_aval(x: Any, *, axis_index_groups: Any, axis_name: Names, axis_size: int, scatter_dimension: int,
                         tiled: bool) -> ShapedArray:
    _names(axis_name)
    shape, size = list(x.shape), x.shape[scatter_dimension]
    if tiled:
        if size % axis_size:
            raise ValueError(f"psum_scatter: the size {size} of axis {scatter_dimension} must be a multiple of the axis size "
                             f"{axis_size}")
        shape[scatter_dimension] //= axis_size
    else:
        if size != axis_size:
            raise ValueError(f"psum_scatter: the size {size} of axis {scatter_dimension} must be the axis size {axis_size}")
        del shape[scatter_dimension]
    return shaped_array(tuple(shape), x.dtype, x.weak_type)


def psum_scatter(x: Any, axis_name: Any, *, scatter_dimension: int = 0, axis_index_groups: Any = None,
                 tiled: bool = False) -> Any:
    """Each example's share of the sum over a named axis: `psum` followed by taking the own index along an axis.

    Args:
      scatter_dimension: the axis that is shared out. Its size is that of the named axis, and it vanishes; or, if `tiled`,
        a multiple of that, and a block of it stays.
    """
    names = _names(axis_name)
    groups = _groups(axis_index_groups, _size(names))

    def one(leaf: Any) -> Any:
        where = shaping.canonical_axis(scatter_dimension, aval_of(leaf).ndim)
        if len(names) == 1:
            return _checked(reduce_scatter_p, leaf, axis_index_groups=groups, axis_name=names,
                            axis_size=_group_size(names, groups), scatter_dimension=where, tiled=tiled)
        return _own_share(psum(leaf, names), names, where, tiled)

    return tree_map(one, x)


def _own_share(x: Any, names: Names, axis: int, tiled: bool) -> Any:
    size, total = _size(names), aval_of(x).shape[axis]
    if total % size or not tiled and total != size:
        raise ValueError(f"the size {total} of axis {axis} must be {'a multiple of ' if tiled else ''}the axis size {size}")
    block = total // size
    start = elementwise.mul(axis_index(names), np.int32(block))
    share = slicing.dynamic_slice_in_dim(x, start, block, axis)
    return share if tiled else shaping.squeeze(share, (axis,))


@all_to_all_p.def_abstract_eval
def _all_to_all_aval(x: Any, *, axis_index_groups: Any, axis_name: Any, concat_axis: int, split_axis: int,
                     tiled: bool) -> ShapedArray:
    size = _group_size(_names(axis_name), axis_index_groups)
    shape, length = list(x.shape), x.shape[split_axis]
    if tiled:
        if length % size:
            raise ValueError(f"all_to_all: the size {length} of split_axis {split_axis} must be a multiple of the axis size "
                             f"{size}")
        shape[split_axis] //= size
        shape[concat_axis] *= size
    else:
        if length != size:
            raise ValueError("all_to_all requires the size of the mapped axis axis_name to equal x.shape[split_axis], but "
                             f"they are {size} and {length} respectively.")
        del shape[split_axis]
        shape.insert(concat_axis, size)
    return shaped_array(tuple(shape), x.dtype, x.weak_type)


def all_to_all(x: Any, axis_name: Any, split_axis: int, concat_axis: int, *, axis_index_groups: Any = None,
               tiled: bool = False) -> Any:
    """Exchange a named axis with an axis of the arrays: example i gets, from each example, its part i.

    Args:
      split_axis: the axis that is cut into parts, one for each example. It vanishes or, if `tiled`, gets shorter.
      concat_axis: where the parts that come in are stacked or, if `tiled`, the axis along which they are joined.
    """
    names = _names(axis_name)
    groups = _groups(axis_index_groups, _size(names))

    def one(leaf: Any) -> Any:
        rank = aval_of(leaf).ndim
        split, concat = shaping.canonical_axis(split_axis, rank), shaping.canonical_axis(concat_axis, rank)
        if len(names) == 1:
            return _checked(all_to_all_p, leaf, axis_index_groups=groups, axis_name=names[0], concat_axis=concat,
                            split_axis=split, tiled=tiled)
        share = _own_share(all_gather(leaf, names), names, split + 1, tiled)  # (sender, ...)
        order = list(range(1, aval_of(share).ndim))
        order.insert(concat, 0)
        stacked = shaping.transpose(share, order)
        if not tiled:
            return stacked
        shape = aval_of(share).shape[1:]
        return shaping.reshape(stacked, (*shape[:concat], shape[concat] * _size(names), *shape[concat + 1:]))

    return tree_map(one, x)


def pswapaxes(x: Any, axis_name: Any, axis: int, *, axis_index_groups: Any = None) -> Any:
    """Exchange a named axis with an axis of the arrays, of the same size, which stays in its place."""
    return all_to_all(x, axis_name, axis, axis, axis_index_groups=axis_index_groups)


# --- permutations ------------------------------------------------------------------------------------


@ppermute_p.def_abstract_eval
def _ppermute_aval(x: Any, *, axis_name: Names, perm: tuple[tuple[int, int], ...]) -> ShapedArray:
    _names(axis_name)
    return shaped_array(x.shape, x.dtype, x.weak_type)


def ppermute(x: Any, axis_name: Any, perm: Sequence[tuple[int, int]]) -> Any:
    """Send values from example to example of a named axis.

    Args:
      perm: pairs (source, destination), each example at most once in either place. What nobody sends to gets zeros.
    """
    names = _names(axis_name)
    size = _size(names)
    pairs = tuple((operator.index(source), operator.index(target)) for source, target in perm)
    for role in zip(*pairs, strict=True):
        if len(set(role)) < len(role) or not all(0 <= index < size for index in role):
            raise ValueError(f"ppermute: sources and destinations must be distinct and in [0, {size}), got {perm}")

    def one(leaf: Any) -> Any:
        if len(names) == 1:
            return ppermute_p.bind(leaf, axis_name=names, perm=pairs)
        table, sent = np.zeros(size, np.int32), np.zeros(size, bool)
        for source, target in pairs:
            table[target], sent[target] = source, True
        own = axis_index(names)
        came = slicing.dynamic_index_in_dim(
            all_gather(leaf, names), slicing.dynamic_index_in_dim(table, own, 0, keepdims=False), 0, keepdims=False)
        keep = slicing.dynamic_index_in_dim(sent, own, 0, keepdims=False)
        return elementwise.select_n(keep, shaping.full_like(came, 0), came)

    return tree_map(one, x)


def pshuffle(x: Any, axis_name: Any, perm: Sequence[int]) -> Any:
    """Reorder the examples of a named axis: example i gets the value of example `perm[i]`."""
    names = _names(axis_name)
    if sorted(perm) != list(range(_size(names))):
        raise ValueError(f"`perm` does not represent a permutation of an axis of size {_size(names)}: {perm}")
    return ppermute(x, names, list(zip(perm, range(len(perm)), strict=True)))


@pbroadcast_p.def_abstract_eval
def _pbroadcast_aval(x: Any, *, axis_name: Names, source: int) -> ShapedArray:
    _names(axis_name)
    return shaped_array(x.shape, x.dtype, x.weak_type)


def pbroadcast(x: Any, axis_name: Any, source: int) -> Any:
    """The value of one example of a named axis, for all of them."""
    names, source = _names(axis_name), operator.index(source)
    if not 0 <= source < _size(names):
        raise ValueError(f"pbroadcast: source must be in [0, {_size(names)}), got {source}")

    def one(leaf: Any) -> Any:
        rest = source
        for name in reversed(names):
            rest, own = divmod(rest, state.axis_sizes[name])
            leaf = pbroadcast_p.bind(leaf, axis_name=(name,), source=own)
        return leaf

    return tree_map(one, x)


# --- the own index -----------------------------------------------------------------------------------


@axis_index_p.def_abstract_eval
def _axis_index_aval(*, axis_name: Any) -> ShapedArray:
    _names(axis_name)
    return shaped_array((), np.dtype("int32"), False)


def axis_index(axis_name: Any) -> Any:
    """The index of the example along a named axis, int32.

    >>> import jaxlite, jaxlite.numpy as jnp
    >>> jaxlite.vmap(lambda x: jaxlite.lax.axis_index("i"), axis_name="i")(jnp.zeros(3))
    Array([0, 1, 2], dtype=int32)
    """
    names = _names(axis_name)
    index: Any = None
    for name in names:
        own = axis_index_p.bind(axis_name=name)
        index = own if index is None else elementwise.add(elementwise.mul(index, np.int32(state.axis_sizes[name])), own)
    return np.int32(0) if index is None else index
