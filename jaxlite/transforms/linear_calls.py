"""`linear_call`: a linear function that comes with its transpose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jaxlite.core.filtering import boundary
from jaxlite.core.jaxpr import ClosedJaxpr, no_effects
from jaxlite.core.primitive import Primitive
from jaxlite.core.staging import hoist_consts
from jaxlite.core.tree import tree_flatten, tree_unflatten
from jaxlite.lax.control_flow.bodies import flatten_values, trace_body
from jaxlite.lax.control_flow.solves import parts
from jaxlite.traces.batching import Axis, batch_jaxpr, bring_to_front
from jaxlite.traces.jvp import Zero, instantiate, tangent_aval, zero_for
from jaxlite.traces.transpose import is_linear

# Operands: what the transpose closes over, what the function closes over, the residuals, the linear arguments.
linear_call_p = Primitive("linear_call", multiple_results=True, memoise=False)


@boundary
def linear_call(fun: Callable[..., Any], fun_transpose: Callable[..., Any], residual_args: Any, linear_args: Any) -> Any:
    """Call a linear function whose transpose is given, and not derived.

    Args:
      fun: `fun(residuals, x)`, linear in x.
      fun_transpose: `fun_transpose(residuals, ct)` gives for a cotangent of the result that of x, a tree like it.
      residual_args: a pytree of arrays that both get and that are not differentiated.
      linear_args: x, a pytree of arrays.
    Returns: fun(residual_args, linear_args).
    Raises: TypeError for a transpose whose result is not of x's types, or a derivative with respect to residuals.

    >>> import jaxlite
    >>> def third(x):
    ...     return linear_call(lambda r, x: x / r, lambda r, ct: ct / r, 3.0, x)
    >>> print(third(6.0), jaxlite.grad(third)(6.0))
    2.0 0.33333334
    """
    residuals, residual_tree, residual_avals = flatten_values("residual_args", residual_args)
    leaves, tree, avals = flatten_values("linear_args", linear_args)

    def traced(name: str, function: Callable[..., Any], tree: Any, avals: Sequence[Any]) -> Any:
        _, in_tree = tree_flatten(((tree_unflatten(residual_tree, residual_avals), tree_unflatten(tree, avals)), {}))
        body = trace_body(function, in_tree, [*residual_avals, *avals], name)
        return hoist_consts(body.jaxpr), body.consts, body.out_tree

    forward, consts, out_tree = traced("fun", fun, tree, avals)
    tangents = [tangent_aval(aval) for aval in forward.out_avals]
    backward, more, back_tree = traced("fun_transpose", fun_transpose, out_tree, tangents)
    wanted, given = [tangent_aval(aval) for aval in avals], backward.out_avals
    if back_tree != tree or [(a.shape, a.dtype) for a in given] != [(a.shape, a.dtype) for a in wanted]:
        shown = [", ".join(aval.str_short(short_dtypes=True) for aval in each) for each in (given, wanted)]
        raise TypeError("fun_transpose of linear_call must give cotangents of the types of linear_args: it gives "
                        f"{back_tree} of ({shown[0]}), expected {tree} of ({shown[1]})")
    outs = linear_call_p.bind(*more, *consts, *residuals, *leaves, jaxprs=(backward, forward),
                              const_lengths=(len(more), len(consts)), num_res=len(residuals))
    return tree_unflatten(out_tree, outs)


@linear_call_p.def_effectful_abstract_eval
def _avals(*_: Any, jaxprs: tuple[ClosedJaxpr, ...], const_lengths: Any, num_res: int) -> Any:
    return jaxprs[1].out_avals, frozenset().union(no_effects, *(jaxpr.effects for jaxpr in jaxprs))


@linear_call_p.def_jvp
def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, const_lengths: tuple[int, int], num_res: int,
         **params: Any) -> tuple[list[Any], list[Any]]:
    known = sum(const_lengths) + num_res
    if any(type(tangent) is not Zero for tangent in tangents[:known]):
        raise TypeError("linear_call is differentiated with respect to its residual_args, or to what its functions close over; "
                        "it is linear in linear_args alone")
    params |= {"const_lengths": const_lengths, "num_res": num_res}
    outs = linear_call_p.bind(*primals, **params)
    if all(type(tangent) is Zero for tangent in tangents):
        return outs, [zero_for(out) for out in outs]
    return outs, linear_call_p.bind(*primals[:known], *map(instantiate, tangents[known:]), **params)


@linear_call_p.def_transpose
def _transpose(cotangents: Sequence[Any], *operands: Any, jaxprs: Any, const_lengths: Any, num_res: int) -> list[Any]:
    of_transpose, of_function, rest = parts(operands, const_lengths)
    outs = linear_call_p.bind(*of_function, *of_transpose, *rest[:num_res], *map(instantiate, cotangents), jaxprs=jaxprs[::-1],
                              const_lengths=const_lengths[::-1], num_res=num_res)
    arrived = [out if is_linear(each) else None for out, each in zip(outs, rest[num_res:], strict=True)]
    return [*[None] * (len(operands) - len(arrived)), *arrived]


@linear_call_p.def_batching
def _batch(axis: Axis, args: Sequence[Any], dims: Sequence[int | None], *, jaxprs: Any, const_lengths: Any,
           num_res: int) -> tuple[list[Any], list[int]]:
    """All linear arguments and results are batches, so that the function and its transpose stay each other's."""
    *consts, rest = parts(args, const_lengths)
    *const_dims, rest_dims = parts(dims, const_lengths)
    programs, values = [], []
    for jaxpr, own, own_dims in zip(jaxprs, consts, const_dims, strict=True):
        count = len(jaxpr.in_avals) - len(own) - num_res
        program, more, _ = batch_jaxpr(jaxpr, axis, [*own_dims, *rest_dims[:num_res], *[0] * count], True)
        programs.append(program)
        values.append([*more, *own])
    whole = [bring_to_front(each, dim, axis.size) for each, dim in zip(rest[num_res:], rest_dims[num_res:], strict=True)]
    outs = linear_call_p.bind(*values[0], *values[1], *rest[:num_res], *whole, jaxprs=tuple(programs),
                              const_lengths=tuple(map(len, values)), num_res=num_res)
    return outs, [0] * len(outs)
