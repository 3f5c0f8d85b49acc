"""Collectives: operations across a named axis: the examples of a `vmap(..., axis_name=...)`, or the devices of a `shard_map`.

A name refers to its innermost binding. Several names are one axis, whose index varies fastest along the last name.

Over mesh axes (`_over_mesh`), one equation takes several names. Types have the axes along which a value varies, if
`shard_map` checks that: an operand that does not vary along an axis of the collective is cast first (`MixedVarying`).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxlite.core import config, dtypes
from jaxlite.core.aval import Ints, ShapedArray, shaped_array, varying
from jaxlite.core.filtering import boundary
from jaxlite.core.lazy import loader
from jaxlite.core.primitive import MixedVarying, Primitive
from jaxlite.core.staging import pvary_p
from jaxlite.core.tracing import Tracer, state, unmapped_axis
from jaxlite.core.tree import tree_map
from jaxlite.core.tree_nodes import register_pytree_node_class
from jaxlite.core.values import aval_of
from jaxlite.lax import elementwise, gather_scatter, reductions, shaping, slicing

Names = tuple[Any, ...]


def _collective(name: str) -> Primitive:
    primitive = Primitive(name, memoise=False)  # types depend on the axes in scope
    primitive.is_collective = primitive.knows_vma = True  # type: ignore[attr-defined]
    return primitive


psum_p, pmax_p, pmin_p = _collective("psum"), _collective("pmax"), _collective("pmin")
psum_invariant_p = _collective("psum_invariant")  # over a mesh, of types that say that the sum does not vary
all_gather_invariant_p = _collective("all_gather_invariant")
all_gather_p = _collective("all_gather")
all_to_all_p = _collective("all_to_all")
ppermute_p = _collective("ppermute")
pbroadcast_p = _collective("pbroadcast")
reduce_scatter_p = _collective("reduce_scatter")
axis_index_p = _collective("axis_index")


def _names(axis_name, who: str = "") -> Names:
    names = tuple(axis_name) if isinstance(axis_name, (tuple, list)) else (axis_name,)
    for name in names:
        if name not in state.axis_sizes:
            raise unmapped_axis(name, who)
    if len(set(names)) != len(names):
        raise ValueError(f"an axis is named twice in {names}")
    return names


def mesh_axes() -> tuple[Any, ...]:
    """The axes of the mesh along which the program is written for one device: inside `shard_map`."""
    mesh = config.context_abstract_mesh.value
    return () if mesh is None else mesh.manual_axes


def _over_mesh(names: Names) -> bool:
    return bool(names) and set(names) <= set(mesh_axes())


def axis_states(aval, names: Sequence[Any]) -> set[str]:
    """How values of a type are along some axes of the mesh: "varying", "unreduced", "reduced" or "invarying"."""
    layout = aval.layout
    unreduced, reduced = ((), ()) if layout is None else (layout.spec.unreduced, layout.spec.reduced)
    return {"varying" if name in aval.vma else "unreduced" if name in unreduced else "reduced" if name in reduced
            else "invarying" for name in names}


def _state_of(what: str, aval, names: Sequence[Any]) -> str:
    """The one state that a value has along all of these axes."""
    states = axis_states(aval, names)
    if len(states) > 1:
        shown = "{" + ", ".join(map(repr, sorted(states))) + "}"
        raise ValueError(
            f"jax.lax.{what} can only accept axis_name which corresponds to one of varying, unreduced, reduced or invarying "
            f"state of the input. Got input type: {aval.str_short()}, axes: {tuple(names)} and input state: "
            f"{shown}")
    return states.pop()


_unreduced = loader("jaxlite.lax.unreduced")


def _runs(names: Names) -> list[Names]:
    """Names that one equation can take together: neighbours that are axes of the mesh."""
    manual, runs = mesh_axes(), list[Names]()
    for name in names:
        if runs and name in manual and runs[-1][-1] in manual:
            runs[-1] = (*runs[-1], name)
        else:
            runs.append((name,))
    return runs


def _typed(x, names: Names, shape: Ints, invariant: bool = False) -> ShapedArray:
    """The type of a collective's result: it varies as the operand does; if `invariant`, not along the names.

    Raises: MixedVarying if the operand does not vary along all of them.
    """
    out = shaped_array(shape, x.dtype, x.weak_type)
    if not config.check_vma.value:
        return varying(out, x.vma) if x.vma else out
    names = frozenset(names).intersection(mesh_axes())  # type: ignore[assignment]
    if not names <= x.vma:  # type: ignore[operator]
        raise MixedVarying([names - x.vma])  # type: ignore[operator]
    return varying(out, x.vma.difference(names) if invariant else x.vma)


def _size(names: Names) -> int:
    return math.prod(state.axis_sizes[name] for name in _names(names))


def _groups(groups, size: int, alike: bool = True) -> tuple[Ints, ...] | None:
    if groups is None:
        return None
    groups = tuple(tuple(map(operator.index, group)) for group in groups)
    if sorted(index for group in groups for index in group) != list(range(size)):
        raise ValueError(f"axis_index_groups must cover all indices of an axis of size {size} exactly once, got {groups}")
    if alike and len({len(group) for group in groups}) > 1:
        raise ValueError(f"axis_index_groups must all be of one size, got {groups}")
    return groups


def _group_size(names: Names, groups) -> int:
    return len(groups[0]) if groups is not None else _size(names)


def _count(names: Names, groups):
    """How many examples are summed: a number, or this example's own if groups are not of one size."""
    groups = _groups(groups, _size(names), alike=False)
    if groups is None or len({len(group) for group in groups}) == 1:
        return _group_size(names, groups)
    counts = np.empty(_size(names), np.int32)
    for group in groups:
        counts[list(group)] = len(group)
    return slicing.dynamic_index_in_dim(counts, axis_index(names), keepdims=False)


def _checked(primitive: Primitive, x, **params):
    try:
        primitive.typed([aval_of(x)], params)  # raises; batching rules take for granted that types fit
    except MixedVarying:
        pass
    return primitive.bind(x, **params)


@boundary
def axis_size(axis_name) -> int:
    """The number of examples along a named axis (or several). Raises: NameError if nothing binds the name.

    >>> import jaxlite, jaxlite.numpy as jnp
    >>> jaxlite.vmap(lambda x: x * jaxlite.lax.axis_size("i"), axis_name="i")(jnp.arange(3))
    Array([0, 3, 6], dtype=int32)
    """
    return _size(_names(axis_name))


# --- reductions --------------------------------------------------------------------------------------


def _reduction_aval(x, *, axes: Names, axis_index_groups=None) -> ShapedArray:
    names = _names(axes)
    result = _typed(x, names, x.shape, invariant=True)
    if not config.check_vma.value:
        result = result.strip_weak_type()  # as in JAX, like all_to_all
    return result if axis_index_groups is None else varying(result, x.vma)  # each group has a result of its own


for _p in (psum_p, pmax_p, pmin_p, psum_invariant_p):
    _p.def_abstract_eval(_reduction_aval)


def _reduce(primitive: Primitive, x, axis_name, groups):
    names = _names(axis_name, primitive.name)
    groups = _groups(groups, _size(names), alike=False)
    if groups is not None and len(names) > 1:
        raise ValueError(f"axis_index_groups only works with a single axis name, got {names}")

    manual = mesh_axes()
    inside, across = tuple(n for n in names if n not in manual), tuple(n for n in names if n in manual)
    checked = bool(across) and config.check_vma.value
    if checked and groups is not None and len(groups) == 1:
        groups = None
    if checked and groups is not None and primitive is psum_p:
        raise NotImplementedError("psum with axis_index_groups in a shard_map that checks replication has no derivative. Pass "
                                  "check_vma=False to shard_map")

    def one(leaf):
        elementwise.require_kind(primitive.name, aval_of(leaf), "biufc")
        if not names:  # of no axes: itself, as an array
            aval = aval_of(leaf)
            return shaping.convert_element_type_p.bind(leaf, new_dtype=aval.dtype, weak_type=aval.weak_type)
        if inside:
            leaf = primitive.bind(leaf, axes=inside, axis_index_groups=groups)
        if not across:
            return leaf
        if primitive is not psum_p and checked and axis_states(aval_of(leaf), across) == {"unreduced"}:
            return (_unreduced().unreduced_pmax_p if primitive is pmax_p else _unreduced().unreduced_pmin_p).bind(
                leaf, axes=across)
        if primitive is not psum_p or not checked:
            return primitive.bind(leaf, axes=across, axis_index_groups=groups)
        if _state_of("psum", aval_of(leaf), across) == "unreduced":
            return _unreduced().unreduced_psum_p.bind(leaf, axes=across)
        return psum_invariant_p.bind(leaf, axes=across)

    return tree_map(one, x)


def sum_over(x, names: Names, groups=None):
    """`psum` of one array, for rules."""
    return _reduce(psum_p, x, names, groups)


def vary(x, names: Sequence[Any]):
    """An array as one that varies along these axes of the mesh, for rules: where types say so, and it does not yet."""
    if not config.check_vma.value:
        return x
    vma = aval_of(x).vma
    missing = tuple(name for name in names if name not in vma)
    return pvary_p.bind(x, axes=missing) if missing else x


def _positional(axis_name, x, reduce: Callable[[Any, tuple[int, ...]], Any]) -> tuple[Any, Any]:
    """A pytree reduced along the axes that are numbers, and the names that are left. A number is a position, if no name."""
    axes = tuple(axis_name) if isinstance(axis_name, (tuple, list)) else (axis_name,)
    numbers = [axis for axis in axes if isinstance(axis, int) and axis not in state.axis_sizes]
    if not numbers:
        return x, axis_name

    def one(leaf):
        return reduce(leaf, tuple([shaping.canonical_axis(axis, aval_of(leaf).ndim) for axis in numbers]))

    return tree_map(one, x), tuple([axis for axis in axes if axis not in numbers])


def _countable(leaf):
    return shaping.convert(leaf, np.dtype("int32"), False) if aval_of(leaf).dtype == dtypes.bool_ else leaf


def _mean(leaf, axes: tuple[int, ...]):
    leaf = _inexact(leaf)
    count = math.prod(aval_of(leaf).shape[axis] for axis in axes)
    return elementwise.div(reductions.reduce_sum(leaf, axes), np.asarray(count).astype(aval_of(leaf).dtype)[()])


def _inexact(leaf):
    if dtypes.kind(aval_of(leaf).dtype) in "biu":
        return shaping.convert(leaf, dtypes.canonicalize_dtype(np.dtype("float64")), aval_of(leaf).weak_type)
    return leaf


@boundary
def psum(x, axis_name, *, axis_index_groups=None):
    """The sum over the examples of a named axis: the same for each.

    Args:
      x: a pytree of arrays. Booleans are counted. A Python number gives that times the size of the axis.
      axis_name: a name, or a tuple of several. Numbers are axes of the arrays themselves, and vanish.
      axis_index_groups: lists of indices that are summed apart from each other.

    >>> import jaxlite, jaxlite.numpy as jnp
    >>> jaxlite.vmap(lambda x: x / jaxlite.lax.psum(x, "i"), axis_name="i")(jnp.array([1.0, 3.0]))
    Array([0.25, 0.75], dtype=float32)
    """
    x, axis_name = _positional(axis_name, x, lambda leaf, axes: reductions.reduce_sum(_countable(leaf), axes))
    names = _names(axis_name, "psum")
    if not names:
        return x  # of no axes: nothing is counted
    size = _count(names, axis_index_groups)

    def one(leaf):
        if isinstance(leaf, (int, float, complex)):
            return leaf * size
        return _summed(_countable(leaf), names, axis_index_groups, size)

    return tree_map(one, x)


def _summed(leaf, names: Names, groups, size):
    """The sum of an array: what is known now, which is the same everywhere, times the number of examples."""
    if isinstance(leaf, Tracer) or not isinstance(size, int):
        return _reduce(psum_p, leaf, names, groups)
    elementwise.require_kind("psum", aval_of(leaf), "biufc")
    return times(size, leaf)


def times(size: int, x):
    """The sum of so many equal arrays, which is weakly typed only as a scalar is."""
    aval = aval_of(x)
    return elementwise.mul(x, shaping.convert(size, aval.dtype, aval.weak_type and not aval.shape))


@boundary
def pmean(x, axis_name, *, axis_index_groups=None):
    """The mean over the examples of a named axis. Arguments are as in `psum`."""
    x, axis_name = _positional(axis_name, x, _mean)
    names = _names(axis_name, "psum")
    size = _count(names, axis_index_groups)

    def one(leaf):
        if isinstance(leaf, (int, float, complex)):
            return leaf * size / size  # a bool or an int gives a float
        if not names:
            return _inexact(leaf)
        total = _inexact(_summed(_countable(leaf), names, axis_index_groups, size))
        aval = aval_of(total)
        count = shaping.convert(size, aval.dtype, aval.weak_type)
        return elementwise.div(total, count if isinstance(size, int) else shaping.broadcast(count, aval.shape))

    return tree_map(one, x)


@boundary
def pmax(x, axis_name, *, axis_index_groups=None):
    """The greatest over the examples of a named axis, element by element. Arguments are as in `psum`."""
    return _reduce(pmax_p, *_positional(axis_name, x, reductions.reduce_max), axis_index_groups)


@boundary
def pmin(x, axis_name, *, axis_index_groups=None):
    """The least over the examples of a named axis, element by element. Arguments are as in `psum`."""
    return _reduce(pmin_p, *_positional(axis_name, x, reductions.reduce_min), axis_index_groups)


# --- gathering and scattering ------------------------------------------------------------------------


@all_gather_p.def_abstract_eval
def _all_gather_aval(x, *, all_gather_dimension: int, axis_index_groups, axis_name: Names, axis_size: int,
                     tiled: bool) -> ShapedArray:
    return _typed(x, _names(axis_name), gathered_shape(x, all_gather_dimension, axis_size, tiled))


@all_gather_invariant_p.def_abstract_eval
def _all_gather_invariant_aval(x, *, all_gather_dimension: int, axis_name: Names, axis_size: int,
                               tiled: bool) -> ShapedArray:
    return _typed(x, _names(axis_name), gathered_shape(x, all_gather_dimension, axis_size, tiled), invariant=True)


def gathered_shape(x, dimension: int, size: int, tiled: bool) -> Ints:
    """The shape of what `all_gather` gives."""
    shape = list(x.shape)
    if tiled:
        shape[dimension] *= size
    else:
        shape.insert(dimension, size)
    return tuple(shape)


@boundary
def all_gather(x, axis_name, *, axis_index_groups=None, axis: int = 0, tiled: bool = False, to: str = "varying"):
    """The values of all examples of a named axis, for each example.

    Args:
      axis: where the examples are stacked or, if `tiled`, the axis along which they are joined.
      axis_index_groups: lists of indices, of one length, that are gathered apart from each other.
      to: 'varying'; or 'invarying', inside a `shard_map`: the type says that all devices have the same; or 'reduced', there
        too: the same, and cotangents are still to be summed.
    """
    if to not in ("varying", "reduced", "invarying"):
        raise ValueError("Got unexpected `to` value for `jax.lax.all_gather`. Allowed `to` values are: {'varying', 'reduced', "
                         f"'invarying'}}, got {to!r}")
    names = _names(axis_name)
    groups = _groups(axis_index_groups, _size(names))
    checked = to != "varying" and config.check_vma.value and _over_mesh(names)
    if checked and groups is not None:
        raise NotImplementedError(f"all_gather({to=}) takes no axis_index_groups")

    def one(leaf):
        rank = aval_of(leaf).ndim
        where = shaping.canonical_axis(axis, rank if tiled else rank + 1)
        if checked:
            primitive = all_gather_invariant_p if to == "invarying" else _unreduced().all_gather_reduced_p
            return primitive.bind(leaf, all_gather_dimension=where, axis_name=names, axis_size=_size(names), tiled=tiled)
        for position, run in enumerate(reversed(_runs(names))):  # the last runs fastest
            leaf = all_gather_p.bind(leaf, all_gather_dimension=where, axis_index_groups=groups, axis_name=run,
                                     axis_size=_group_size(run, groups), tiled=tiled or position > 0)
        return leaf

    return tree_map(one, x)


@reduce_scatter_p.def_abstract_eval
def _reduce_scatter_aval(x, *, axis_index_groups, axis_name: Names, axis_size: int, scatter_dimension: int,
                         tiled: bool) -> ShapedArray:
    return _typed(x, _names(axis_name), scattered_shape(x, scatter_dimension, axis_size, tiled))


def scattered_shape(x, scatter_dimension: int, axis_size: int, tiled: bool) -> tuple[int, ...]:
    """The shape of what `psum_scatter` gives."""
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
    return tuple(shape)


@boundary
def psum_scatter(x, axis_name, *, scatter_dimension: int = 0, axis_index_groups=None, tiled: bool = False):
    """Each example's share of the sum over a named axis: `psum` followed by taking the own index along an axis.

    Args:
      scatter_dimension: the axis that is shared out. Its size is that of the named axis, and it vanishes; or, if `tiled`,
        a multiple of that, and a block of it stays.
    """
    names = _names(axis_name)
    groups = _groups(axis_index_groups, _size(names))

    def one(leaf):
        elementwise.require_kind("psum_scatter", aval_of(leaf), "iufc")
        where = shaping.canonical_axis(scatter_dimension, aval_of(leaf).ndim)
        if _over_mesh(names) and _state_of("psum_scatter", aval_of(leaf), names) == "unreduced":
            if groups is not None:
                raise NotImplementedError("psum_scatter of what is unreduced takes no axis_index_groups")
            return _unreduced().unreduced_reduce_scatter_p.bind(leaf, axis_name=names, axis_size=_size(names),
                                                                scatter_dimension=where, tiled=tiled)
        if len(names) == 1 or _over_mesh(names):
            return _checked(reduce_scatter_p, leaf, axis_index_groups=groups, axis_name=names,
                            axis_size=_group_size(names, groups), scatter_dimension=where, tiled=tiled)
        return own_share(psum(leaf, names), names, where, tiled)

    return tree_map(one, x)


@register_pytree_node_class
class Future:
    """A value that a collective has begun to compute: `done()` gives it. A pytree with this value as its leaf."""

    __slots__ = ("_value",)

    def __init__(self, value):
        self._value = value

    def done(self):
        """The value."""
        return self._value

    def tree_flatten(self) -> tuple[tuple[Any], None]:
        return (self._value,), None

    @classmethod
    def tree_unflatten(cls, aux_data: None, children) -> Future:
        return cls(*children)


def psum_scatter_start(x, axis_name, *, scatter_dimension: int = 0, axis_index_groups=None, tiled: bool = False):
    """`psum_scatter` in two steps: `psum_scatter_start(x, "i").done()`. What is written between them need not wait.

    XLA chooses when it starts and ends, as it does without the steps. Arguments are as in `psum_scatter`. Returns: a `Future`.
    """
    return Future(psum_scatter(x, axis_name, scatter_dimension=scatter_dimension, axis_index_groups=axis_index_groups,
                               tiled=tiled))


def own_share(x, names: Names, axis: int, tiled: bool):
    size, total = _size(names), aval_of(x).shape[axis]
    if total % size or not tiled and total != size:
        raise ValueError(f"the size {total} of axis {axis} must be {'a multiple of ' if tiled else ''}the axis size {size}")
    block = total // size
    start = elementwise.mul(axis_index(names), np.int32(block))
    share = slicing.dynamic_slice_in_dim(x, start, block, axis)
    return share if tiled else shaping.squeeze(share, (axis,))


@all_to_all_p.def_abstract_eval
def _all_to_all_aval(x, *, axis_index_groups, axis_name, concat_axis: int, split_axis: int, tiled: bool) -> ShapedArray:
    names = _names(axis_name)
    size = _group_size(names, axis_index_groups)
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
    return _typed(x, names, tuple(shape)).strip_weak_type()


@boundary
def all_to_all(x, axis_name, split_axis: int, concat_axis: int, *, axis_index_groups=None, tiled: bool = False):
    """Exchange a named axis with an axis of the arrays: example i gets, from each example, its part i.

    Args:
      split_axis: the axis that is cut into parts, one for each example. It vanishes or, if `tiled`, gets shorter.
      concat_axis: where the parts that come in are stacked or, if `tiled`, the axis along which they are joined.
    """
    names = _names(axis_name)
    groups = _groups(axis_index_groups, _size(names))

    def one(leaf):
        rank = aval_of(leaf).ndim
        split, concat = shaping.canonical_axis(split_axis, rank), shaping.canonical_axis(concat_axis, rank)
        if len(names) == 1 or _over_mesh(names):
            name = names[0] if len(names) == 1 else names
            return _checked(all_to_all_p, leaf, axis_index_groups=groups, axis_name=name, concat_axis=concat,
                            split_axis=split, tiled=tiled)
        share = own_share(all_gather(leaf, names), names, split + 1, tiled)  # (sender, ...)
        order = list(range(1, aval_of(share).ndim))
        order.insert(concat, 0)
        stacked = shaping.transpose(share, order)
        if not tiled:
            return stacked
        shape = aval_of(share).shape[1:]
        return shaping.reshape(stacked, (*shape[:concat], shape[concat] * _size(names), *shape[concat + 1:]))

    return tree_map(one, x)


@boundary
def pswapaxes(x, axis_name, axis: int, *, axis_index_groups=None):
    """Exchange a named axis with an axis of the arrays, of the same size, which stays in its place."""
    return all_to_all(x, axis_name, axis, axis, axis_index_groups=axis_index_groups)


# --- permutations ------------------------------------------------------------------------------------


@ppermute_p.def_abstract_eval
def _ppermute_aval(x, *, axis_name: Names, perm: tuple[tuple[int, int], ...]) -> ShapedArray:
    return _typed(x, _names(axis_name), x.shape)


@boundary
def ppermute(x, axis_name, perm: Sequence[tuple[int, int]]):
    """Send values from example to example of a named axis.

    Args:
      perm: pairs (source, destination), each example at most once in either place. What nobody sends to gets zeros.
    """
    names = _names(axis_name, "ppermute")
    size = _size(names)
    if not isinstance(perm, (list, tuple)):
        raise TypeError(f"`perm` passed to `jax.lax.ppermute` must be a list or a tuple. Got perm of type {type(perm)}")
    pairs = tuple((operator.index(source), operator.index(target)) for source, target in perm)
    for role in zip(*pairs, strict=True):
        if len(set(role)) < len(role) or not all(0 <= index < size for index in role):
            raise ValueError(f"ppermute: sources and destinations must be distinct and in [0, {size}), got {perm}")

    def one(leaf):
        if len(names) == 1 or _over_mesh(names):
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


@boundary
def pshuffle(x, axis_name, perm: Sequence[int]):
    """Reorder the examples of a named axis: example i gets the value of example `perm[i]`."""
    names = _names(axis_name, "pshuffle")
    if sorted(perm) != list(range(_size(names))):
        raise ValueError(f"`perm` does not represent a permutation of an axis of size {_size(names)}: {perm}")
    return ppermute(x, names, list(zip(perm, range(len(perm)), strict=True)))


@pbroadcast_p.def_abstract_eval
def _pbroadcast_aval(x, *, axis_name, source: int) -> ShapedArray:
    return _typed(x, _names(axis_name), x.shape)


@boundary
def pbroadcast(x, axis_name, source: int):
    """The value of one example of a named axis, for all of them."""
    names, source = _names(axis_name, "pbroadcast"), operator.index(source)
    if not 0 <= source < _size(names):
        raise ValueError(f"pbroadcast: source must be in [0, {_size(names)}), got {source}")

    def one(leaf):
        if _over_mesh(names):
            return pbroadcast_p.bind(leaf, axis_name=names[0] if len(names) == 1 else names, source=source)
        rest = source
        for name in reversed(names):
            rest, own = divmod(rest, state.axis_sizes[name])
            leaf = pbroadcast_p.bind(leaf, axis_name=(name,), source=own)
        return leaf

    return tree_map(one, x)


# --- the own index -----------------------------------------------------------------------------------


@axis_index_p.def_abstract_eval
def _axis_index_aval(*, axis_name) -> ShapedArray:
    names = _names(axis_name)
    index = shaped_array((), np.dtype("int32"), False)
    return varying(index, frozenset(names)) if config.check_vma.value and _over_mesh(names) else index


@boundary
def axis_index(axis_name):
    """The index of the example along a named axis, int32.

    >>> import jaxlite, jaxlite.numpy as jnp
    >>> jaxlite.vmap(lambda x: jaxlite.lax.axis_index("i"), axis_name="i")(jnp.zeros(3))
    Array([0, 1, 2], dtype=int32)
    """
    names = _names(axis_name, "axis_index")
    index: Any = None
    for name in names:
        given = state.axis_indices.get(name)
        own = axis_index_p.bind(axis_name=name) if given is None else given()
        index = own if index is None else elementwise.add(elementwise.mul(index, np.int32(state.axis_sizes[name])), own)
    return np.int32(0) if index is None else index


# --- what varies along axes of a mesh ----------------------------------------------------------------


@boundary
def pcast(x, axis_name, *, to: str):
    """Values as they are, with types that say something else of them along axes of the mesh.

    Inside `shard_map` a type has the axes along which a value varies. They must be equal for carries of loops and for branches.
    Operations cast by themselves. The derivative of the cast to 'varying' is a sum over the axes.

    Args:
      x: a pytree of arrays.
      axis_name: the name of an axis, or a tuple of several.
      to: 'varying': the values may differ from device to device; of what is the same on all, or is 'reduced'.
        'unreduced': they are parts of a sum over the devices, of values that vary; `psum` and `psum_scatter` take the sum.
        'reduced': they are the same, as before, and their cotangents are such parts of sums.

    >>> import jaxlite as jax
    >>> mesh = jax.make_mesh((1,), ("i",))
    >>> f = jax.shard_map(lambda x: jax.lax.pcast(x, "i", to="varying"), mesh=mesh, in_specs=jax.P(), out_specs=jax.P("i"))
    >>> jax.make_jaxpr(f)(jax.numpy.ones(2)).eqns[0].params["jaxpr"]
    { lambda ; a:f32[2]. let b:f32[2]{V:i} = pvary[axes=('i',)] a in (b,) }
    """
    names = _names(axis_name, "pcast")
    if not names:  # anywhere
        return x
    if to not in ("varying", "unreduced", "reduced"):
        raise ValueError("Got unexpected `to` value. Allowed `to` values are: {'varying', 'unreduced', 'reduced'}, got "
                         f"{to!r}")
    if not _over_mesh(names):
        raise ValueError(f"pcast takes axes of the mesh of a shard_map, got {names}; those are {mesh_axes()}")
    if not config.check_vma.value:
        return x

    def one(leaf):
        own = _state_of("pcast", aval_of(leaf), names)
        if (own, to) == ("invarying", "varying"):
            return vary(leaf, names)
        cast = _unreduced().CASTS.get((own, to))
        if cast is None:
            raise ValueError(f"Unsupported pcast from={own}, {to=}: the value has the type {aval_of(leaf).str_short()}, the "
                             f"axes are {names}")
        return cast.bind(leaf, axes=names)

    return tree_map(one, x)


def pvary(x, axis_name):
    """`pcast(x, axis_name, to="varying")`, of values that may vary along some of the axes already."""
    names = _names(axis_name)
    return tree_map(lambda leaf: vary(leaf, names) if _over_mesh(names) else leaf, x)


# --- ragged exchange ---------------------------------------------------------------------------------


@boundary
def ragged_all_to_all(operand, output, input_offsets, send_sizes, output_offsets, recv_sizes, *, axis_name,
                      axis_index_groups=None):
    """Exchange slices of different sizes along axis 0: each device sends one to each other, at an offset that it chooses.

    Args:
      operand: what is sent, [n, ...].
      output: what the slices are written into, [m, ...]; the rest of it stays.
      input_offsets, send_sizes: for each receiver, where its slice begins in `operand`, and its length.
      output_offsets: for each receiver, where the slice goes in its `output`.
      recv_sizes: for each sender, how much comes from it; it follows from the others' `send_sizes`.
      axis_name: the named axis (or several); `axis_index_groups`: as in `psum`.
    Returns: `output` with what came.
    """
    names = _names(axis_name)
    arrays = [aval_of(each) for each in (input_offsets, send_sizes, output_offsets, recv_sizes)]
    size = _group_size(names, _groups(axis_index_groups, _size(names)))
    for what, aval in zip(("input_offsets", "send_sizes", "output_offsets", "recv_sizes"), arrays, strict=True):
        if dtypes.kind(aval.dtype) not in "iu":
            raise ValueError(f"ragged_all_to_all {what} must be integer type.")
        if aval.shape != (size,):
            raise ValueError(f"ragged_all_to_all {what} must be rank 1 with one entry for each of {size} devices, got shape "
                             f"{aval.shape}")
    source, target = aval_of(operand), aval_of(output)
    if source.dtype != target.dtype or source.shape[1:] != target.shape[1:] or not source.shape:
        raise ValueError(f"ragged_all_to_all input and output must have the same type and the same shape but for axis 0, got "
                         f"{source.str_short()} and {target.str_short()}")

    def received(x):  # [senders, 1]: the entry of each sender for this receiver
        swapped = all_to_all(x, names, 0, 0, axis_index_groups=axis_index_groups)
        return shaping.reshape(shaping.convert(swapped, np.dtype("int32"), False), (size, 1))

    rows = all_gather(operand, names, axis_index_groups=axis_index_groups, tiled=True)
    starts, sizes, places = received(input_offsets), received(send_sizes), received(output_offsets)
    whole = (size, source.shape[0])
    row = shaping.broadcast_in_dim(np.arange(source.shape[0], dtype=np.int32), whole, (1,))
    within = elementwise.sub(row, shaping.broadcast_in_dim(starts, whole, (0, 1)))
    chosen = elementwise.bitwise_and(elementwise.ge(within, np.int32(0)),
                                     elementwise.lt(within, shaping.broadcast_in_dim(sizes, whole, (0, 1))))
    goal = elementwise.add(within, shaping.broadcast_in_dim(places, whole, (0, 1)))
    nowhere = shaping.full_like(goal, target.shape[0])
    index = shaping.reshape(elementwise.select_n(chosen, nowhere, goal), (size * source.shape[0], 1))
    numbers = gather_scatter.ScatterDimensionNumbers(tuple(range(1, len(target.shape))), (0,), (0,))
    return gather_scatter.scatter(output, index, rows, numbers, mode=gather_scatter.GatherScatterMode.FILL_OR_DROP)
