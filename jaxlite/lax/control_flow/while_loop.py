"""Loops with a condition: `while_loop`, and `fori_loop` which is a while loop or a scan.

The primitive `while` has the params `cond_jaxpr`, `body_jaxpr`, `cond_nconsts` and `body_nconsts`; its operands are
the values that the condition closes over, those that the body closes over, and the initial carry.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from jaxlite.core import dtypes, source
from jaxlite.core.aval import Ints, varying
from jaxlite.core.filtering import boundary
from jaxlite.core.jaxpr import ClosedJaxpr, Var
from jaxlite.core.primitive import Primitive
from jaxlite.core.staging import varying_inputs, varying_outputs
from jaxlite.core.symbolic import Dim
from jaxlite.core.tracing import Tracer
from jaxlite.core.tree import tree_flatten, tree_map, tree_unflatten
from jaxlite.core.values import aval_of
from jaxlite.lax.control_flow.bodies import (
    Body,
    Carry,
    as_result,
    check_operands,
    check_same_way,
    flatten_values,
    runs_in_python,
    trace_body,
    type_text,
    varying_carry,
    without_numpy,
)
from jaxlite.lax.control_flow.scan import checked_unroll, scan_steps
from jaxlite.lax.elementwise import add, lt
from jaxlite.lax.shaping import convert_element_type

while_p = Primitive("while", multiple_results=True, memoise=False)
while_p.program_inputs = lambda params: [
    *params["cond_jaxpr"].in_avals[:params["cond_nconsts"]], *params["body_jaxpr"].in_avals]


def _widen(params: dict[str, Any], avals: list[Any]) -> dict[str, Any]:
    conds, bodies = params["cond_nconsts"], params["body_nconsts"]
    carry = len(avals) - conds - bodies
    body, condition, before = params["body_jaxpr"], params["cond_jaxpr"], None
    body = varying_carry(body, avals[conds:], bodies, carry)
    while body is not before:
        before = body
        inputs = body.in_avals
        condition = varying_inputs(condition, [*avals[:conds], *inputs[bodies:]])
        (chosen,) = condition.out_avals  # where devices stop at different steps, carries differ
        body = varying_carry(body, [*inputs[:bodies], *[varying(aval, aval.vma | chosen.vma) for aval in inputs[bodies:]]],
                             bodies, carry)
    return {**params, "cond_jaxpr": condition, "body_jaxpr": body}


while_p.widen = _widen


@while_p.def_effectful_abstract_eval
def _while_aval(*avals, cond_jaxpr: ClosedJaxpr, body_jaxpr: ClosedJaxpr, cond_nconsts: int, body_nconsts: int):
    check_operands("while", avals[cond_nconsts:], body_jaxpr.in_avals)
    carry = avals[cond_nconsts + body_nconsts:]
    check_operands("while", (*avals[:cond_nconsts], *carry), cond_jaxpr.in_avals)
    return body_jaxpr.out_avals, cond_jaxpr.effects | body_jaxpr.effects


@boundary
def while_loop(cond_fun: Callable, body_fun: Callable, init_val):
    """Repeat `body_fun` while `cond_fun` holds: `val = init_val; while cond_fun(val): val = body_fun(val)`.

    Args:
      cond_fun: from a carry to a scalar bool.
      body_fun: from a carry to a carry of the same tree, shapes and dtypes.
      init_val: the first carry, a pytree of arrays and scalars. Python scalars take the dtype that `body_fun` gives.

    Returns: the last carry.
    Raises: TypeError that names the leaf of the carry whose type changes, or if the condition is not a scalar bool.

    >>> from jaxlite import lax
    >>> lax.while_loop(lambda n: lax.lt(n, 100), lambda n: lax.mul(n, 2), 1)
    Array(128, dtype=int32, weak_type=True)
    """
    if not (callable(cond_fun) and callable(body_fun)):
        raise TypeError("lax.while_loop: body_fun and cond_fun arguments should be callable.")
    if runs_in_python():
        init_val = tree_map(as_result, init_val)
        outcome = cond_fun(init_val)
        if not isinstance(outcome, Tracer):
            while outcome:
                init_val = tree_map(as_result, body_fun(init_val))
                outcome = cond_fun(init_val)
            return init_val
    leaves, tree, avals = flatten_values("the initial carry of while_loop", init_val)
    _, in_tree = tree_flatten(((init_val,), {}))
    carry = Carry("while_loop", body_fun, 0, 1, tree, avals)
    condition: Any = None

    def trace() -> Body:
        nonlocal condition
        condition = trace_body(cond_fun, in_tree, carry.avals, "while_loop's condition")
        _check_condition(cond_fun, condition)
        vma = condition.out_avals[0].vma
        if not vma:
            return trace_body(body_fun, in_tree, carry.avals, "while_loop")
        if any(not vma <= aval.vma for aval in carry.avals):  # where devices stop at different steps, carries differ
            carry.avals = [varying(aval, aval.vma | vma) for aval in carry.avals]
            return trace()
        body = trace_body(body_fun, in_tree, carry.avals, "while_loop").derive(_varying_body, vma)
        check_same_way("while_loop", vma, [condition.jaxpr, body.jaxpr])
        return body

    body = carry.settle(trace, lambda out_tree: out_tree)
    return tree_unflatten(tree, _bind(condition, body, carry.convert(leaves)))


def _varying_body(body: Body, vma: frozenset[Any]) -> Body:
    return Body(varying_outputs(body.jaxpr, [vma] * len(body.out_avals)), body.consts, body.out_tree)


def _bind(condition: Body, body: Body, leaves: list[Any]) -> list[Any]:
    """Make the equation; gives the leaves of the last carry."""
    cond_jaxpr, body_jaxpr, moved = body.derive(_loop_jaxprs, condition)
    kept = [leaf for index, leaf in enumerate(leaves) if index not in moved]
    body_consts = [*(leaves[index] for index in moved), *body.consts]
    outs = iter(while_p.bind(*condition.consts, *body_consts, *kept, cond_jaxpr=cond_jaxpr, body_jaxpr=body_jaxpr,
                             cond_nconsts=len(condition.consts), body_nconsts=len(body_consts)))
    return [as_result(leaf) if index in moved else next(outs) for index, leaf in enumerate(leaves)]


def _check_condition(cond_fun: Callable, condition: Body) -> None:
    if condition.out_tree != _LEAF:
        raise TypeError(f"cond_fun must return a boolean scalar, but got pytree {condition.out_tree} from "
                        f"{source.function_location(cond_fun)}.")
    (aval,) = condition.out_avals
    if aval.shape or aval.dtype != np.dtype(bool):
        raise TypeError(f"cond_fun must return a boolean scalar, but got output type(s) [{aval!r}] from "
                        f"{source.function_location(cond_fun)}.")


_LEAF = tree_flatten(0)[1]


def _loop_jaxprs(body: Body, condition: Body) -> tuple[ClosedJaxpr, ClosedJaxpr, Ints]:
    """Both jaxprs closed over nothing, and the leaves that never change: constants of the body if only it reads
    them."""
    read = {atom for eqn in condition.jaxpr.eqns for atom in eqn.invars if not hasattr(atom, "val")}
    read.update(atom for atom in condition.jaxpr.outvars if not hasattr(atom, "val"))
    invars, outvars = body.jaxpr.invars, body.jaxpr.outvars
    moved = tuple(index for index, var in enumerate(invars)
                  if outvars[index] is var and condition.jaxpr.invars[index] not in read)

    def kept(items: list[Any]) -> list[Any]:
        return [item for index, item in enumerate(items) if index not in moved]

    cond_jaxpr = condition.jaxpr.replace(
        constvars=[], invars=[*condition.jaxpr.constvars, *kept(condition.jaxpr.invars)])
    body_jaxpr = body.jaxpr.replace(
        constvars=[], invars=[*(invars[index] for index in moved), *body.jaxpr.constvars, *kept(invars)],
        outvars=kept(outvars))
    return ClosedJaxpr(cond_jaxpr, []), ClosedJaxpr(body_jaxpr, []), moved


# --- counted loops -----------------------------------------------------------------------------------


@boundary
def fori_loop(lower, upper, body_fun: Callable, init_val, *, unroll: int | bool | None = None):
    """Repeat `body_fun` for each integer in a range: `for i in range(lower, upper): val = body_fun(i, val)`.

    With bounds that are known while tracing it becomes a `scan`, which can be differentiated in reverse; with traced
    bounds a `while`.

    Args:
      lower, upper: scalar integers of one dtype (or floats, counted up by 1); Python ints take the dtype of the other bound.
      body_fun: from (i, carry) to a carry of the same tree, shapes and dtypes.
      init_val: the first carry, a pytree of arrays and scalars.
      unroll: how many steps are written out in one round of the loop, True for all; for known bounds alone.

    Returns: the last carry; `init_val` where the range is empty.
    Raises: TypeError for bounds of different dtypes, and for a carry whose type changes.

    >>> from jaxlite import lax
    >>> lax.fori_loop(0, 10, lambda i, total: lax.add(total, i), 0)
    Array(45, dtype=int32, weak_type=True)
    """
    if not callable(body_fun):
        raise TypeError("lax.fori_loop: body_fun argument should be callable.")
    lower, upper = (bound.__jax_array__() if type(bound) is Dim else bound for bound in (lower, upper))
    bounds = [lower, upper]
    if type(lower) is not int or type(upper) is not int:
        bounds = _common_bounds(bounds)
    is_known = not any(isinstance(bound, Tracer) for bound in bounds)
    if is_known and all(type(bound) is int or dtypes.kind(aval_of(bound).dtype) in "iufb" for bound in bounds):
        start, stop = int(lower), int(upper)
        length = max(stop - start, 0)
        if length:
            aval_of(stop - 1)  # raises for a last index that the index's dtype does not hold
        if runs_in_python():
            init_val = without_numpy(init_val)
            for index in range(start, stop):
                init_val = body_fun(index, init_val)
            return init_val
        count = 1 if unroll is None else checked_unroll(unroll, length)
        carry = (start, init_val)
        last, _ = scan_steps("fori_loop", body_fun, _count_and_step, carry, carry, (0, 1), [], length, False, count)
        return last[1]
    if unroll not in (None, False, 1):
        raise ValueError("Can only use `unroll` in `fori_loop` if the loop bounds are statically known.")
    return _fori_while(bounds[0], bounds[1], body_fun, init_val)


def _common_bounds(bounds: list[Any]) -> list[Any]:
    """Bounds of one dtype: that of the one which is not weakly typed.

    Raises: TypeError for anything but integers, and floats of one dtype.
    """
    avals = [aval_of(bound) for bound in bounds]
    integers = all(dtypes.kind(aval.dtype) in "iu" and not aval.shape for aval in avals)
    if avals[0].dtype == avals[1].dtype:
        kind = dtypes.kind(avals[0].dtype)
        known = not any(isinstance(bound, Tracer) for bound in bounds)  # they are converted to integers
        if avals[0].shape or avals[1].shape or not integers and kind != "f" and not (known and kind == "b"):
            raise TypeError("lower and upper arguments to fori_loop must be scalar integers, got "
                            f"{type_text(avals[0])} and {type_text(avals[1])}")
        return bounds
    weak = [index for index in (0, 1) if avals[index].weak_type]
    if not integers or len(weak) != 1:
        raise TypeError(f"lower and upper arguments to fori_loop must have equal types, got {avals[0].dtype} and "
                        f"{avals[1].dtype}")
    (index,) = weak
    bound, dtype = bounds[index], avals[1 - index].dtype
    bounds[index] = np.array(bound, dtype) if isinstance(bound, int) else convert_element_type(bound, dtype)
    return bounds


def _count_and_step(body_fun: Callable, index, value):
    return (add(index, index.dtype.type(1)), body_fun(index, value)), None


def _below(index, upper, value):
    return lt(index, upper)


def _fori_while(lower, upper, body_fun: Callable, init_val):
    leaves, tree, avals = flatten_values("the initial carry of fori_loop", (lower, init_val))
    _, in_tree = tree_flatten(((lower, init_val), {}))
    carry = Carry("fori_loop", body_fun, (0, 1), 2, tree, avals)
    step = carry.settle(lambda: trace_body(body_fun, in_tree, carry.avals, "fori_loop", _count_and_step),
                        lambda out_tree: out_tree.children()[0])
    _, tree_with_upper = tree_flatten(((lower, upper, init_val), {}))
    condition, body = step.derive(_with_upper_bound, aval_of(upper), tree_with_upper)
    first, *rest = carry.convert(leaves)
    _, _, *results = _bind(condition, body, [first, upper, *rest])
    return tree_unflatten(tree.children()[1], results)


def _with_upper_bound(step: Body, upper, in_tree) -> tuple[Body, Body]:
    """Condition and body of the loop, in which the upper bound goes along beside the index."""
    bound, jaxpr = Var(upper), step.jaxpr
    index, *rest = jaxpr.invars
    condition = trace_body(_below, in_tree, [index.aval, upper, *(var.aval for var in rest)], "fori_loop")
    jaxpr = jaxpr.replace(invars=[index, bound, *rest], outvars=[jaxpr.outvars[0], bound, *jaxpr.outvars[1:]])
    return condition, Body(jaxpr, step.consts, step.out_tree)
