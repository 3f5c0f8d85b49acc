"""Loops with a known number of steps: `scan` over leading axes, and `map`.

The primitive `scan` has the params `jaxpr`, `length`, `reverse`, `unroll`, `num_consts` and `num_carry`; its operands
are constants of the loop, the initial carry, and arrays with a leading axis to scan over.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxlite.core import source
from jaxlite.core.aval import AbstractRef, Ints, with_axis, without_axis
from jaxlite.core.filtering import boundary
from jaxlite.core.flat_tree import ScanParams, scan_counts, scan_groups
from jaxlite.core.jaxpr import ClosedJaxpr
from jaxlite.core.primitive import Primitive
from jaxlite.core.refs import Ref
from jaxlite.core.tracing import Tracer, is_eager, known_value, state
from jaxlite.core.tree import keystr, tree_flatten, tree_flatten_with_path, tree_map, tree_unflatten
from jaxlite.core.values import aval_of
from jaxlite.lax.control_flow.bodies import (
    Body,
    Carry,
    as_result,
    check_operands,
    flatten_values,
    runs_in_python,
    trace_body,
    varying_carry,
    without_numpy,
)
from jaxlite.lax.shaping import broadcast_in_dim, concatenate, reshape
from jaxlite.lax.slicing import dynamic_index_in_dim, index_in_dim, slice_in_dim
from jaxlite.traces.batching import over_leading_axis
from lowering.xla import VERSION


class _Scan(Primitive):
    """A primitive that also takes the params that it has in JAX from 0.11 on, and gives them to traces of libraries."""

    def bind(self, *args: Any, **params: Any) -> Any:
        return state.trace.process(self, args, ScanParams(scan_counts(params) if "ft_in" in params else params))

    def bind_with_trace(self, trace: Any, args: Sequence[Any], *avals_and_params: Any) -> Any:
        params = avals_and_params[-1]
        return super().bind_with_trace(trace, args, scan_counts(params) if "ft_in" in params else params)


def _with_groups(params: dict[str, Any]) -> dict[str, Any]:
    rest = {name: value for name, value in params.items() if name not in ("num_consts", "num_carry")}
    return {**rest, **scan_groups(params)}


scan_p = _Scan("scan", multiple_results=True, memoise=False)
if VERSION >= (0, 11):  # as JAX of the same jaxlib
    scan_p.params_for_libraries = _with_groups
scan_p.program_inputs = lambda params: params["jaxpr"].in_avals


def _widen(params: dict[str, Any], avals: list[Any]) -> dict[str, Any]:
    return {**params, "jaxpr": varying_carry(params["jaxpr"], avals, params["num_consts"], params["num_carry"])}


scan_p.widen = _widen


@scan_p.def_effectful_abstract_eval
def _scan_aval(*avals, jaxpr: ClosedJaxpr, length: int, num_carry: int, num_consts: int, **params):
    fixed = num_consts + num_carry
    elements = [without_axis(aval, 0, length) for aval in avals[fixed:]]
    check_operands("scan", (*avals[:fixed], *elements), jaxpr.in_avals)
    carry, ys = jaxpr.out_avals[:num_carry], jaxpr.out_avals[num_carry:]
    return [*carry, *(with_axis(aval, 0, length) for aval in ys)], jaxpr.effects


def _leading_size(aval):
    """The size of the leading axis; of a high type, that of the arrays that its values are made of."""
    shapes = [aval.shape] if not aval.is_high else [each.shape for each in aval.lo_ty()]
    return shapes[0][0] if shapes and shapes[0] else None


@boundary
def scan(f: Callable, init, xs=None, length: int | None = None, reverse: bool = False, unroll: int | bool = 1,
         _split_transpose: bool = False) -> tuple[Any, Any]:
    """Run a function over the leading axis of arrays, with a carry from step to step.

    What it computes, in Python::

        carry, ys = init, []
        for x in xs:
            carry, y = f(carry, x)
            ys.append(y)
        return carry, stack(ys)

    Args:
      f: from (carry, x) to a pair (carry, y). The carry keeps its tree, shapes and dtypes.
      init: the first carry, a pytree of arrays and scalars. Python scalars take the dtype that `f` gives.
      xs: a pytree of arrays with leading axes of one size, scanned together; or None.
      length: the number of steps; needed where `xs` has no leaves.
      reverse: run from the last element to the first; `ys` keeps the order of `xs`.
      unroll: how many steps are written out in one round of the loop; True for all of them.

    Returns: the last carry, and the ys stacked along a new leading axis.
    Raises: ValueError that names the leaves of `xs` whose leading sizes disagree; TypeError that names the leaf of
      the carry whose type changes.

    >>> from jaxlite import lax
    >>> import numpy as np
    >>> total, before = lax.scan(lambda total, x: (lax.add(total, x), total), 0.0, np.arange(4, dtype=np.float32))
    >>> total, before
    (Array(6., dtype=float32), Array([0., 0., 1., 3.], dtype=float32, weak_type=True))
    """
    if not callable(f):
        raise TypeError("lax.scan: f argument should be a callable.")
    xs_leaves, xs_tree, xs_avals = flatten_values("xs of scan", xs)
    steps = _length("scan", xs, xs_avals, length)
    count = checked_unroll(unroll, steps)
    if any(type(aval) is AbstractRef for aval in xs_avals):
        f, xs = _parts_of_refs(f, xs_leaves, xs_tree, steps)
        xs_leaves = tree_flatten(xs)[0]
    if runs_in_python():
        return _python_scan(lambda carry, x: _pair(f, carry, x), init, xs, steps, reverse)
    return scan_steps("scan", f, _pair, (init, xs), init, 0, xs_leaves, steps, bool(reverse), count)


def _parts_of_refs(f: Callable, leaves: Sequence[Any], tree, steps: int) -> tuple[Callable, Any]:
    """The body and the xs of a scan over mutable arrays: each step has their part at its index, to read and to write."""

    def body(carry, x):
        index, elements = x
        parts = [ref.at[index] if isinstance(ref, Ref) else element for ref, element in zip(leaves, elements, strict=True)]
        return f(carry, tree_unflatten(tree, parts))

    return body, (np.arange(steps, dtype=np.int32), [None if isinstance(leaf, Ref) else leaf for leaf in leaves])


def _pair(f: Callable, carry, x) -> Any:
    result = f(carry, x)
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        raise TypeError(f"scan body output must be a pair, got {result!r} from {source.function_location(f)}.")
    return result


def checked_unroll(unroll, length: int) -> int:
    """The param `unroll` from what the user asked for. Raises: ValueError if it is negative, TypeError for no int."""
    if isinstance(unroll, bool):
        return max(length, 1) if unroll else 1
    try:
        count = operator.index(unroll)
    except TypeError:
        raise TypeError(f"`unroll` must be a `bool` or a non-negative `int`, got {unroll!r}.") from None
    if count < 0:
        raise ValueError(f"`unroll` must be a `bool` or a non-negative `int`, got {unroll}.")
    return count


def _length(what: str, xs, avals: list[Any], length) -> int:
    sizes: dict[int, int] = {}
    for index, aval in enumerate(avals):
        size = _leading_size(aval)
        if size is None:
            raise ValueError(f"{what} got value with no leading axis to scan over: {_leaf_name(xs, index)} is {aval}.")
        sizes.setdefault(size, index)
    if len(sizes) > 1:
        found = ", ".join(f"{_leaf_name(xs, index)} is {aval}" for index, aval in enumerate(avals))
        raise ValueError(f"{what} got values with different leading axis sizes: "
                         f"{', '.join(str(size) for size in sizes)}. ({found})")
    if length is not None:
        length = int(known_value(length, "the `length` argument of `{}` is a concrete `int`; for a length that is known "
                                         "only at run time use `while_loop` or `fori_loop`", what))
        if length < 0:
            raise ValueError(f"{what} got a negative `length`: {length}.")
        if sizes and length not in sizes:
            raise ValueError(f"{what} got `length` argument of {length} which disagrees with leading axis sizes "
                             f"{list(sizes)}.")
        return length
    if not sizes:
        raise ValueError(f"{what} got no values to scan over and `length` not provided.")
    return next(iter(sizes))


def _leaf_name(xs, index: int) -> str:
    return "xs" + keystr(tree_flatten_with_path(xs)[0][index][0])


def scan_steps(what: str, fun: Callable, call: Callable, args: tuple, init, place: int | Ints, xs_leaves: Sequence[Any],
               length: int, reverse: bool, unroll: int) -> tuple[Any, Any]:
    """Trace a body and bind `scan`.

    Args:
      call: `call(fun, *args)` gives the pair (carry, y).
      args: what `fun` takes: the carry `init` and the elements of `xs`, in this order.
      place: where the carry is among them, as for `Carry`.
      xs_leaves: the arrays to scan over.
    """
    leaves, tree, avals = flatten_values(f"the initial carry of {what}", init)
    _, in_tree = tree_flatten((args, {}))
    elements = []
    for leaf in xs_leaves:
        aval = aval_of(leaf)
        if getattr(aval, "layout", None) is not None and aval.layout.spec[0] is not None:
            raise ValueError(f"0th dimension of all xs should be replicated. Got {aval.layout.spec}. Use jax.sharding.reshard")
        elements.append(without_axis(aval, 0, length))
    carry = Carry(what, fun, place, len(args), tree, avals)
    body = carry.settle(lambda: trace_body(fun, in_tree, (*carry.avals, *elements), what, call),
                        lambda out_tree: out_tree.children()[0])
    carry_leaves, ys = _bind(body, carry.convert(leaves), xs_leaves, length, reverse, unroll)
    return tree_unflatten(body.out_tree, [*carry_leaves, *ys])


def _bind(body: Body, init: list[Any], xs: Sequence[Any], length: int, reverse: bool,
          unroll: int) -> tuple[list[Any], list[Any]]:
    """Make the equation; gives the leaves of the last carry and of the ys.

    Leaves of the carry that never change go in as constants and come out as they went in; so do ys that are xs.
    """
    closed, moved, forwarded = body.derive(_loop_jaxpr, len(init))
    kept = [leaf for index, leaf in enumerate(init) if index not in moved]
    consts = [*(init[index] for index in moved), *body.consts]
    if closed.jaxpr.outvars or closed.effects or not is_eager():
        outs = iter(scan_p.bind(*consts, *kept, *xs, jaxpr=closed, length=length, num_carry=len(kept),
                                num_consts=len(consts), reverse=reverse, unroll=unroll))
    else:
        outs = iter(())
    carry = [as_result(leaf) if index in moved else next(outs) for index, leaf in enumerate(init)]
    ys = [next(outs) if source is None else as_result(xs[source]) for source in forwarded]
    return carry, ys


def _loop_jaxpr(body: Body, num_carry: int) -> tuple[ClosedJaxpr, Ints, tuple[int | None, ...]]:
    """The param `jaxpr`; which leaves of the carry never change; and for each y the x that it is, or None."""
    jaxpr = body.jaxpr
    carry, xs = jaxpr.invars[:num_carry], jaxpr.invars[num_carry:]
    carry_out, ys = jaxpr.outvars[:num_carry], jaxpr.outvars[num_carry:]
    moved = tuple(index for index, var in enumerate(carry) if carry_out[index] is var)
    position = {var: index for index, var in enumerate(xs)}
    forwarded = tuple(position.get(atom) if not hasattr(atom, "val") else None for atom in ys)
    closed = ClosedJaxpr(jaxpr.replace(
        constvars=[],
        invars=[*(carry[index] for index in moved), *jaxpr.constvars,
                *(var for index, var in enumerate(carry) if index not in moved), *xs],
        outvars=[*(atom for index, atom in enumerate(carry_out) if index not in moved),
                 *(atom for atom, source in zip(ys, forwarded, strict=True) if source is None)]), [])
    return closed, moved, forwarded


def _python_scan(step: Callable, carry, xs, length: int, reverse: bool) -> tuple[Any, Any]:
    """The same in Python, for `disable_jit`."""
    if not length:
        raise ValueError("zero-length scan is not supported in disable_jit() mode because the output type is unknown.")
    carry, xs = without_numpy(carry), tree_map(as_result, xs)
    steps: list[Any] = [None] * length
    for index in reversed(range(length)) if reverse else range(length):
        carry, steps[index] = step(carry, tree_map(lambda x, at=index: _element_at(x, at), xs))
    return carry, tree_map(lambda *ys: _stack(ys), *steps)


def _element_at(x, index: int):
    # Eagerly, one compiled operation for all indices.
    return (index_in_dim if isinstance(x, Tracer) else dynamic_index_in_dim)(x, index, 0, keepdims=False)


def _stack(values: Sequence[Any]):
    rows = []
    for value in values:
        shape = aval_of(value).shape
        rows.append(broadcast_in_dim(value, (1, *shape), range(1, len(shape) + 1)))
    return concatenate(rows, 0)


# --- map ---------------------------------------------------------------------------------------------


@boundary
def map(f: Callable, xs, *, batch_size: int | None = None):
    """Apply a function to each element along the leading axis, one after the other, and stack the results.

    Args:
      f: from an element of `xs` to a pytree of arrays.
      xs: a pytree of arrays with leading axes of one size.
      batch_size: how many elements are computed at a time, vectorised; default one.

    Returns: what `f` gives, each leaf with a new leading axis.

    >>> from jaxlite import lax
    >>> import numpy as np
    >>> lax.map(lambda x: lax.mul(x, x), np.arange(4))
    Array([0, 1, 4, 9], dtype=int32)
    """
    if not callable(f):
        raise TypeError("lax.map: f argument should be a callable.")
    if batch_size is not None and operator.index(batch_size) < 0:
        raise ValueError(f"lax.map: batch_size must not be negative, got {batch_size}.")
    xs_leaves, _, xs_avals = flatten_values("xs of map", xs)
    length = _length("map", xs, xs_avals, None)
    if batch_size:
        return _map_in_batches(f, xs, length, operator.index(batch_size))
    if runs_in_python():
        return _python_scan(lambda carry, x: (carry, f(x)), (), xs, length, False)[1]
    return scan_steps("map", f, _element, (xs,), (), 0, xs_leaves, length, False, 1)[1]


def _map_in_batches(f: Callable, xs, length: int, size: int):
    """`map` over batches of `size` elements, and over what is left at the end at once."""
    count, rest = divmod(length, size)
    parts = []
    if count:
        batches = tree_map(lambda x: reshape(slice_in_dim(x, 0, count * size), (count, size, *aval_of(x).shape[1:])), xs)
        stacked = map(lambda batch: over_leading_axis(f, batch), batches)
        parts.append(tree_map(lambda y: reshape(y, (count * size, *aval_of(y).shape[2:])), stacked))
    if rest or not count:
        parts.append(over_leading_axis(f, tree_map(lambda x: slice_in_dim(x, count * size, length), xs)))
    return parts[0] if len(parts) == 1 else tree_map(lambda *ys: concatenate(ys, 0), *parts)


def _element(f: Callable, x) -> tuple[Any, Any]:
    return (), f(x)
