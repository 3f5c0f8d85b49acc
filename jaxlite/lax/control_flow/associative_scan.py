"""`associative_scan`: all prefixes of a sequence under an associative function, in logarithmic depth."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from jaxlite.core.aval import is_cut
from jaxlite.core.axes import other_axes, with_sizes
from jaxlite.core.dtypes import kind
from jaxlite.core.filtering import boundary
from jaxlite.core.staging import trace_to_jaxpr
from jaxlite.core.symbolic import is_symbolic
from jaxlite.core.tree import keystr, tree_flatten, tree_flatten_with_path, tree_unflatten
from jaxlite.core.values import aval_of
from jaxlite.lax.control_flow.bodies import as_result, flatten_values
from jaxlite.lax.control_flow.scan import scan
from jaxlite.lax.elementwise import add, bitwise_or
from jaxlite.lax.shaping import broadcast_in_dim, canonical_axis, concatenate, expand_dims, pad, rev, squeeze, transpose
from jaxlite.lax.slicing import slice_in_dim
from jaxlite.lax.windows import cummax, cummin, cumprod, cumsum, linear_recurrence

_LONG = 16  # elements from which on a running total is a loop
_RUNNING = {"add": cumsum, "mul": cumprod, "max": cummax, "min": cummin}


@boundary
def associative_scan(fn: Callable, elems, reverse: bool = False, axis: int = 0):
    """All partial results of combining elements with an associative function: x0, x0∘x1, x0∘x1∘x2, ...

    About 2 n applications of `fn`, in 2 log2(n) calls on whole slices.

    Args:
      fn: from two trees like `elems`, whose leaves are slices along `axis`, to such a tree; it combines them
        element by element and must be associative.
      elems: a pytree of arrays, all of one size along `axis`.
      reverse: combine from the end: element i is the combination of all elements from the last to i.
      axis: the axis of the sequence.

    Returns: a tree of the shape of `elems`.
    Raises: ValueError if the sizes differ, or an array lacks the axis.

    >>> from jaxlite import lax
    >>> import numpy as np
    >>> lax.associative_scan(lax.add, np.arange(5))
    Array([ 0,  1,  3,  6, 10], dtype=int32)
    """
    if not callable(fn):
        raise TypeError("lax.associative_scan: fn argument should be callable.")
    leaves, tree, avals = flatten_values("elems of associative_scan", elems)
    if not leaves:
        return elems
    axis = canonical_axis(operator.index(axis), len(avals[0].shape))
    if any(len(aval.shape) <= axis or aval.shape[axis] != avals[0].shape[axis] for aval in avals):
        paths = tree_flatten_with_path(elems)[0]
        found = ", ".join(f"elems{keystr(path)} is {aval}" for (path, _), aval in zip(paths, avals, strict=True))
        raise ValueError("Array inputs to associative_scan must have the same first dimension"
                         f"{f', axis {axis}' if axis else ''}. {found}")
    leaves = [as_result(leaf) for leaf in leaves]

    def combine(a: list[Any], b: list[Any]) -> list[Any]:
        result, result_tree = tree_flatten(fn(tree_unflatten(tree, a), tree_unflatten(tree, b)))
        if len(result) != len(leaves):  # the same leaves may come in other containers
            raise ValueError(f"the function of associative_scan returned the tree {result_tree}, its elements are {tree}")
        return result

    known = _by_loops(combine, leaves, axis, reverse)
    if known is not None:
        return tree_unflatten(tree, known)
    return tree_unflatten(tree, in_parallel(combine, leaves, axis, reverse))


def in_parallel(combine: Callable, leaves: list[Any], axis: int, reverse: bool) -> list[Any]:
    """The results by halves of the sequence, whatever `combine` says."""
    if reverse:
        leaves = [rev(leaf, (axis,)) for leaf in leaves]
    leaves = _scan(combine, leaves, axis)
    return [rev(leaf, (axis,)) for leaf in leaves] if reverse else leaves


def _by_loops(combine: Callable, leaves: list[Any], axis: int, reverse: bool) -> list[Any] | None:
    """The results of functions that say a running total of each leaf, or a linear recurrence: one loop each on the CPU.

    State-space layers and filters are written as recurrences, (a, b) ∘ (c, d) = (a c, b c + d).
    """
    avals = [aval_of(leaf) for leaf in leaves]
    if is_symbolic(avals[0].shape[axis]) or avals[0].shape[axis] < _LONG or any(
            is_cut(aval) or 0 in aval.shape or kind(aval.dtype) not in "iufc" for aval in avals):
        return None
    elements = [aval.update(shape=with_sizes(aval.shape, axis, 2)) for aval in avals]
    try:
        jaxpr, _ = trace_to_jaxpr(lambda *both: combine([*both[:len(leaves)]], [*both[len(leaves):]]), elements * 2)
    except Exception:  # it says what is wrong where it is called for all elements
        return None
    if jaxpr.effects:
        return None
    before, after = jaxpr.invars[:len(leaves)], jaxpr.invars[len(leaves):]
    makers: dict[Any, Any] = {eqn.outvars[0]: eqn for eqn in jaxpr.eqns if len(eqn.outvars) == 1}
    found: list[Any] = [makers.get(out) for out in jaxpr.outvars]
    names = [eqn.primitive.name if eqn else "" for eqn in found]
    if all(name in _RUNNING and _is(eqn, name, *pair) for eqn, name, *pair in zip(found, names, before, after, strict=True)):
        return [_RUNNING[name](leaf, axis, reverse) for name, leaf in zip(names, leaves, strict=True)]
    for step in (1, -1) if len(leaves) == 2 else ():  # the factors may come first or last
        (old, term), (factor, added), (product, total) = before[::step], after[::step], found[::step]
        factors, terms = leaves[::step]
        scaled = [makers.get(atom) for atom in total.invars if atom is not added] if names[::step][1] == "add" else []
        if (_is(product, "mul", old, factor) and len(scaled) == 1 and _is(scaled[0], "mul", term, factor)
                and _stretches(factors, terms)):
            spread = broadcast_in_dim(factors, terms.shape, range(terms.ndim))
            return [cumprod(factors, axis, reverse), linear_recurrence(spread, terms, axis, reverse)][::step]
    return None


def _is(eqn: Any, name: str, one: Any, other: Any) -> bool:
    """Whether an equation is an operation on these two, in either order."""
    return eqn is not None and eqn.primitive.name == name and (
        eqn.invars[0] is one and eqn.invars[1] is other or eqn.invars[0] is other and eqn.invars[1] is one)


def _stretches(factors: Any, terms: Any) -> bool:
    """Whether floats are broadcast to terms of their dtype."""
    if factors.dtype != terms.dtype or kind(terms.dtype) not in "fc" or factors.ndim != terms.ndim:
        return False
    return all(extent in (1, of_term) for extent, of_term in zip(factors.shape, terms.shape, strict=True))


def _scan(combine: Callable, elems: list[Any], axis: int) -> list[Any]:
    """Combine neighbours, scan the half as long sequence that this gives, and fill in what is between."""
    size = elems[0].shape[axis]

    def part(values: list[Any], start: int, stop: int, step: int) -> list[Any]:
        return [slice_in_dim(value, start, stop, step, axis) for value in values]

    if is_symbolic(size):
        return _scan_in_order(combine, part(elems, 0, 1, 1), part(elems, 1, size, 1), axis)
    if size < 2:
        return elems

    pairs = combine(part(elems, 0, size - 1, 2), part(elems, 1, size, 2))
    odd = _scan(combine, pairs, axis)
    before = part(odd, 0, odd[0].shape[axis] - 1, 1) if size % 2 == 0 else odd
    even = combine(before, part(elems, 2, size, 2))
    first = part(elems, 0, 1, 1)
    even = [concatenate([one, rest], axis) for one, rest in zip(first, even, strict=True)]
    return [_interleave(a, b, axis) for a, b in zip(even, odd, strict=True)]


def _scan_in_order(combine: Callable, first: list[Any], rest: list[Any], axis: int) -> list[Any]:
    """One after the other: how many halvings there are is not known of a symbolic size."""
    def step(total: list[Any], element: list[Any]) -> tuple[list[Any], list[Any]]:
        total = combine(total, [expand_dims(value, (axis,)) for value in element])
        return total, [squeeze(value, (axis,)) for value in total]

    def order(value) -> list[int]:
        return [axis, *other_axes(value.ndim, (axis,))]

    results = scan(step, first, [transpose(value, order(value)) for value in rest])[1]
    return [concatenate([one, transpose(value, [order(value).index(each) for each in range(value.ndim)])], axis)
            for one, value in zip(first, results, strict=True)]


def _interleave(a, b, axis: int):
    """a0, b0, a1, b1, ...; `a` is as long as `b` or longer by one."""
    a_size, b_size = a.shape[axis], b.shape[axis]
    rank, dtype = len(a.shape), aval_of(a).dtype
    zero = np.zeros((), dtype)[()]

    def spread(value, low: int, high: int):
        return pad(value, zero, [(low, high, 1) if at == axis else (0, 0, 0) for at in range(rank)])

    join = bitwise_or if dtype == np.dtype(bool) else add
    return join(spread(a, 0, int(a_size == b_size)), spread(b, 1, int(a_size != b_size)))
