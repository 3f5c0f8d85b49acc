"""vmap: turns a function of single examples into a function of batches."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from jaxlite.compilation.options import argument_names, check_callable
from jaxlite.compilation.program import flatten_outputs
from jaxlite.core import dtypes, source
from jaxlite.core.aval import high_types, layouts, spec_of
from jaxlite.core.filtering import boundary
from jaxlite.core.jaxpr import DebugInfo
from jaxlite.core.shape_dtype import ShapeDtypeStruct, typeof
from jaxlite.core.staging import high
from jaxlite.core.tracing import state
from jaxlite.core.tree import (
    example,
    flatten_axes,
    keystr,
    tree_flatten,
    tree_flatten_with_path,
    tree_leaves,
    tree_unflatten,
)
from jaxlite.core.values import aval_of
from jaxlite.lax.reductions import reduce_sum
from jaxlite.numpy.api import as_array
from jaxlite.traces.batching import Axis, batch_flat, bring, move, spreading

# Types of libraries that vmap takes apart and puts together by their functions: `(spec_type, to_elt, from_elt)`.
_vmappables: dict[type, tuple[type, Callable, Callable]] = {}


def register_vmappable(data_type: type, spec_type: type, axis_size_type: type, to_elt: Callable, from_elt: Callable,
                       make_iota: Callable | None) -> None:
    """Have `vmap` map over values of a type by functions of its own.

    Args:
      data_type: a type; its values count as one argument or result, also if they are pytrees.
      spec_type: the type of the entry for such a value in `in_axes` and `out_axes`.
      axis_size_type: of sizes; the size of the mapped axis comes from other arguments or `axis_size`.
      to_elt: `to_elt(cont, index, value, spec) -> element`, where `cont(part, axis)` gives the element of a part.
      from_elt: `from_elt(cont, axis_size, element, spec) -> value`, where `cont(axis_size, part, axis)` gives the batch.
      make_iota: not used; an axis is always as long as an int says.
    """
    _vmappables[data_type] = spec_type, to_elt, from_elt


def unregister_vmappable(data_type: type) -> None:
    """Take back `register_vmappable`."""
    _vmappables.pop(data_type, None)


def is_vmappable(value: Any) -> bool:
    """Whether a value is of a type that was registered."""
    return type(value) in _vmappables


def _is_axis(leaf: Any) -> bool:
    """Whether an entry of `in_axes` is an int, or says where the axes of a value of a library's are."""
    return (isinstance(leaf, int) or any(isinstance(leaf, spec_type) for spec_type, _, _ in _vmappables.values())
            or high_types.exist and isinstance(leaf, high().MappingSpec))


def _as_tuples(axes: Any) -> Any:
    return tuple(map(_as_tuples, axes)) if isinstance(axes, list) else axes


@boundary
def vmap(fun: Callable, in_axes: Any = 0, out_axes: Any = 0, axis_name: Any = None, axis_size: int | None = None,
         spmd_axis_name: Any = None, sum_match: bool = False) -> Callable:
    """A function that maps `fun` over axes of its arguments, without a loop.

    Args:
      fun: a function of pytrees of arrays, written for one example.
      in_axes: which axis of each positional argument is mapped: an int, None for arguments that all examples share, or
        a tuple with an entry (an int, None, or a pytree prefix of them) for each. Keyword arguments are mapped over
        their axis 0.
      out_axes: where the mapped axis goes in the results; None for results that do not vary.
      axis_name: a name for the axis, for collectives such as `lax.psum`.
      axis_size: the number of examples, if no argument tells it.
      sum_match: results that vary, and have None in `out_axes`, are summed up.
    Raises: ValueError for axes that do not exist or sizes that differ, naming the arguments.

    >>> import jaxlite, jaxlite.numpy as jnp
    >>> jaxlite.vmap(jnp.dot, in_axes=(0, None))(jnp.ones((2, 3)), jnp.arange(3.0))
    Array([3., 3.], dtype=float32)
    """
    check_callable(fun)
    in_axes, out_axes = _as_tuples(in_axes), _as_tuples(out_axes)
    if not (in_axes is None or isinstance(in_axes, tuple) or _is_axis(in_axes) and not isinstance(in_axes, bool)):
        raise TypeError("vmap in_axes must be an int, None, or a tuple of entries corresponding to the positional arguments "
                        f"passed to the function, but got {in_axes}.")
    for leaf in tree_leaves(in_axes):
        if not _is_axis(leaf) or isinstance(leaf, bool):
            raise TypeError(f"vmap in_axes must be an int, None, or (nested) container with those types as leaves, but got "
                            f"{in_axes}.")
    for leaf in tree_leaves(out_axes):
        if not _is_axis(leaf) or isinstance(leaf, bool):
            raise TypeError(f"vmap out_axes must be an int, None, or (nested) container with those types as leaves, but got "
                            f"{out_axes}.")

    @source.wraps(fun)
    @boundary
    def vmap_f(*args: Any, **kwargs: Any) -> Any:
        if isinstance(in_axes, tuple) and len(in_axes) != len(args):
            raise ValueError("vmap in_axes must be an int, None, or a tuple of entries corresponding to the positional "
                             f"arguments passed to the function, but got {len(in_axes)=}, {len(args)=}")
        is_leaf = is_vmappable if _vmappables else None
        leaves, tree = tree_flatten((args, kwargs), is_leaf)
        specs = flat_axes = flatten_axes("vmap in_axes", tree, (in_axes, 0))
        if is_leaf is not None:  # they enter batching whole
            flat_axes = [None if is_leaf(leaf) else axis for leaf, axis in zip(leaves, specs, strict=True)]
        # What is not mapped passes as it is, so it need not be an array.
        avals = [None if axis is None else typeof(leaf) for leaf, axis in zip(leaves, flat_axes, strict=True)]
        size = _mapped_size(fun, tree, (args, kwargs), avals, flat_axes, axis_size)
        dims = [None if aval is None else axis if aval.is_high else axis % aval.ndim
                for axis, aval in zip(flat_axes, avals, strict=True)]
        debug = DebugInfo("vmap", source.function_location(fun))
        out_tree: Any = None
        trace: Any = None

        def flat(*values: Any) -> list[Any]:
            nonlocal out_tree, trace
            if is_leaf is not None:
                trace = state.trace
                values = tuple(_element(trace, value, spec) if is_leaf(value) else value
                               for value, spec in zip(values, specs, strict=True))
            inner_args, inner_kwargs = tree_unflatten(tree, values)
            outs, out_tree = flatten_outputs(fun(*inner_args, **inner_kwargs), debug, is_leaf)
            return outs

        cut = _mapped_layout(avals, dims) if layouts.exist else None
        outs, out_dims = batch_flat(flat, leaves, dims, Axis(size, axis_name, spmd_axis_name, cut=cut), debug)
        targets = flatten_axes("vmap out_axes", out_tree, out_axes)

        def results() -> list[Any]:
            return [_batch(trace, size, out, target) if is_leaf is not None and is_leaf(out)
                    else _place(out, dim, target, size, sum_match, (out_tree, index))
                    for index, (out, dim, target) in enumerate(zip(outs, out_dims, targets, strict=True))]

        if cut is None:
            return tree_unflatten(out_tree, results())
        with spreading(cut):  # unbatched values are repeated with the sharding of that axis
            return tree_unflatten(out_tree, results())

    return vmap_f


def _element(trace: Any, value: Any, spec: Any) -> Any:
    """What the mapped function sees of an argument, or of a part of one."""
    if type(value) not in _vmappables:
        return trace.join(value, None if spec is None else spec % aval_of(value).ndim)
    return _vmappables[type(value)][1](lambda part, axis: _element(trace, part, axis), None, value, spec)


def _batch(trace: Any, size: int, value: Any, spec: Any) -> Any:
    """What the caller sees of a result, or of a part of one."""
    if type(value) not in _vmappables:
        batch, dim = trace.split(value)
        return _place(batch, dim, spec, size)
    return _vmappables[type(value)][2](lambda size, part, axis: _batch(trace, size, part, axis), size, value, spec)


def _mapped_layout(avals: list[Any], dims: list[Any]) -> Any:
    """How the mapped axis is on explicit mesh axes: the layout of a batch of scalars, or None."""
    found: dict[Any, Any] = {}
    for aval, dim in zip(avals, dims, strict=True):
        layout = None if aval is None else getattr(aval, "layout", None)
        if layout is not None:
            found[layout.spec[dim]] = layout
    entries = [entry for entry in found if entry is not None]
    if len(entries) > 1:
        raise ValueError("Mapped away dimension of inputs passed to vmap should be sharded the same. Got inconsistent axis "
                         f"specs: {' vs '.join(map(str, entries))}")
    if not entries:
        return None
    layout = found[entries[0]]
    return layout.update(spec=layout.spec.update(partitions=entries))


def _mapped_size(fun: Callable[..., Any], tree: Any, given: Any, avals: list[Any], axes: list[Any],
                 axis_size: int | None) -> int:
    sizes: dict[int, list[int]] = {}  # with the positions of the arguments that have them

    def name(index: int) -> str:
        return argument_names(fun, tree, None)()[index]

    for index, (aval, axis) in enumerate(zip(avals, axes, strict=True)):
        if axis is None or aval.is_high:
            if aval is not None and aval.has_qdd:
                raise TypeError(f"vmap does not map over values that change, as those of the type {aval}")
            continue
        if not -aval.ndim <= axis < aval.ndim:
            raise ValueError(f"vmap was requested to map its argument along axis {axis}, which implies that its rank should "
                             f"be at least {axis + 1 if axis >= 0 else -axis}, but is only {aval.ndim} (its shape is "
                             f"{aval.shape}): argument {name(index)}")
        sizes.setdefault(aval.shape[axis], []).append(index)
    if axis_size is not None:
        axis_size = operator.index(axis_size)
        if sizes and set(sizes) != {axis_size}:
            sizes.setdefault(axis_size, []).append(-1)
        else:
            return axis_size
    if not avals:
        raise ValueError("vmap wrapped function must be passed at least one argument containing an array or axis_size must be "
                         f"specified, got empty *args={given[0]} and **kwargs={given[1]}")
    if not sizes:
        raise ValueError("vmap must have at least one non-None value in in_axes or axis_size must be specified")
    if len(sizes) > 1:
        def described(index: int) -> str:
            return "axis_size" if index < 0 else (f"axis {axes[index]} of argument {name(index)} of type "
                                                  f"{avals[index].str_short(short_dtypes=True)}")

        lines = "\n".join(f"  * size {size}: {', '.join(map(described, found))}" for size, found in sizes.items())
        raise ValueError(f"vmap got inconsistent sizes for array axes to be mapped:\n{lines}")
    return next(iter(sizes))


def _place(out: Any, dim: int | None, target: int | None, size: int, sum_match: bool = False,
           place: tuple[Any, int] | None = None) -> Any:
    """A result with its batch axis where it is wanted; `place`, for errors, is the tree of results and the leaf's number."""
    if type(out) is ShapeDtypeStruct and dim == target:  # no data that would have to move
        return out
    if high_types.exist and aval_of(out).is_high:
        if dim != (target if target is None else spec_of(aval_of(out), target)):
            raise ValueError(f"at vmap out_axes, got {target} for a result of the type {aval_of(out)} whose axes are at {dim}")
        return out
    if target is None:
        if dim is not None and sum_match:
            return reduce_sum(out, (dim,))
        if dim is not None:
            path = "" if place is None else keystr(tree_flatten_with_path(example(place[0]))[0][place[1]][0])
            raise ValueError(f"at vmap out_axes{path}, got axis spec None but output was batched on axis {dim}\n"
                             "out_axes has to be the axis at which the results are stacked, where they differ")
        return out if aval_of(out).dtype == dtypes.float0 else as_array(out)
    rank = aval_of(out).ndim + (dim is None)
    if not -rank <= target < rank:
        raise ValueError(f"axis {target} is out of bounds for array of dimension {rank}\n"
                         f"vmap's out_axes is {target} for a result that has {rank} axes with the mapped one")
    target %= rank
    if aval_of(out).dtype == dtypes.float0:  # has no device arrays, and is the same for all
        shape = out.shape if dim is None else (*out.shape[:dim], *out.shape[dim + 1:])
        return np.zeros((*shape[:target], size, *shape[target:]), dtypes.float0)
    return bring(as_array(out), dim, size, target) if dim is None else move(out, dim, target)
