"""Calls that carry derivatives of their own: what each transformation makes of them.

`custom_jvp_call` holds the traced function and the user's JVP rule, `custom_vjp_call` the user's forward and backward
functions. `custom_linear` stands in linear programs for the tangents of the latter: all it can do is to be transposed.
The rules are functions of flat values, made by `jaxlite.transforms.custom_derivatives`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jaxlite.core.aval import AbstractRef
from jaxlite.core.jaxpr import ClosedJaxpr, eval_jaxpr
from jaxlite.core.primitive import Primitive
from jaxlite.core.tracing import state
from jaxlite.core.values import aval_of
from jaxlite.traces.batching import Axis, batch_flat, batch_jaxpr, bring, bring_to_front
from jaxlite.traces.jvp import Zero, instantiate, tangent_aval, zero_for
from jaxlite.traces.linearize import with_user_rule
from jaxlite.traces.transpose import is_linear

custom_jvp_call_p = Primitive("custom_jvp_call", multiple_results=True)
custom_vjp_call_p = Primitive("custom_vjp_call", multiple_results=True)
custom_linear_p = Primitive("custom_linear", multiple_results=True)
custom_linear_p.takes_refs = True


def _no_sum(value: Any, axis: int) -> Any:
    raise RuntimeError("jaxlite.lax has not been imported")


sum_over: Callable[[Any, int], Any] = _no_sum


def set_summation(function: Callable[[Any, int], Any]) -> None:
    """Say how to sum over an axis; done by jaxlite.custom_derivatives, which may use lax."""
    global sum_over
    sum_over = function


for _p in (custom_jvp_call_p, custom_vjp_call_p):

    @_p.def_effectful_abstract_eval
    def _call_aval(*avals: Any, call_jaxpr: ClosedJaxpr, **params: Any) -> Any:
        return call_jaxpr.out_avals, call_jaxpr.effects

    @_p.def_eager
    def _call_eager(*args: Any, call_jaxpr: ClosedJaxpr, **params: Any) -> list[Any]:
        return eval_jaxpr(call_jaxpr.jaxpr, [], *args)


# --- custom_jvp --------------------------------------------------------------------------------------


@custom_jvp_call_p.def_jvp
def _custom_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, call_jaxpr: ClosedJaxpr, jvp: Callable, num_consts: int,
                symbolic_zeros: bool, **params: Any) -> tuple[list[Any], list[Any]]:
    for tangent in tangents[:num_consts]:
        if type(tangent) is not Zero:
            raise TypeError("a custom_jvp function closes over a value that is differentiated; pass it as an argument")
    arguments, given = primals[num_consts:], tangents[num_consts:]
    if not symbolic_zeros:
        given = [instantiate(tangent) for tangent in given]
    outs = jvp(*arguments, *given)
    half = len(outs) // 2
    tangents_out = [zero_for(primal) if tangent is None else tangent
                    for primal, tangent in zip(outs[:half], outs[half:], strict=True)]
    return list(outs[:half]), tangents_out


custom_jvp_call_p.linearize = with_user_rule(_custom_jvp)


@custom_jvp_call_p.def_batching
def _custom_jvp_batch(axis: Axis, args: Sequence[Any], dims: Sequence[int | None], *, call_jaxpr: ClosedJaxpr, jvp: Callable,
                      num_consts: int, **params: Any) -> tuple[list[Any], list[int]]:
    program, consts, _ = batch_jaxpr(call_jaxpr, axis, dims, True)
    own = tuple(dims[num_consts:])
    tangent_dims = tuple(0 if dim is None else dim for dim in own)

    def batched(*values: Any) -> list[Any]:
        half = len(values) // 2
        tangents = [bring_to_front(value, dim, axis.size) if dim is None else value
                    for value, dim in zip(values[half:], own, strict=True)]
        outs, out_dims = batch_flat(jvp, (*values[:half], *tangents), own + tangent_dims, axis)
        return [bring_to_front(out, dim, axis.size) for out, dim in zip(outs, out_dims, strict=True)]

    outs = custom_jvp_call_p.bind(*consts, *args, call_jaxpr=program, jvp=batched,
                                  num_consts=len(consts) + num_consts, **params)
    return outs, [0] * len(outs)


# --- custom_vjp --------------------------------------------------------------------------------------


@custom_vjp_call_p.def_jvp
def _custom_vjp_forward(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
    raise TypeError("can't apply forward-mode autodiff (jvp) to a custom_vjp function.")


def _custom_vjp_linearize(primals: Sequence[Any], tangents: Sequence[Any], *, call_jaxpr: ClosedJaxpr, fwd: Callable,
                          bwd: Callable, num_consts: int, symbolic_zeros: bool, **params: Any) -> Any:
    for tangent in tangents[:num_consts]:
        if type(tangent) is not Zero:
            raise TypeError("a custom_vjp function closes over a value that is differentiated; pass it as an argument")
    outs, residuals = fwd(primals[num_consts:], [type(tangent) is not Zero for tangent in tangents[num_consts:]])
    out_avals = tuple(tangent_aval(aval_of(out)) for out in outs)
    own = [instantiate(Zero(tangent.aval.inner_aval) if type(tangent.aval) is AbstractRef else tangent)
           for tangent in tangents[num_consts:]]  # Refs are passed on, not differentiated
    tangents_out = custom_linear_p.bind(*residuals, *own, num_residuals=len(residuals), bwd=bwd, out_avals=out_avals)
    return outs, tangents_out


custom_vjp_call_p.linearize = _custom_vjp_linearize


@custom_vjp_call_p.def_batching
def _custom_vjp_batch(axis: Axis, args: Sequence[Any], dims: Sequence[int | None], *, call_jaxpr: ClosedJaxpr, fwd: Callable,
                      bwd: Callable, num_consts: int, **params: Any) -> tuple[list[Any], list[int]]:
    program, consts, _ = batch_jaxpr(call_jaxpr, axis, dims, True)
    own = tuple(dims[num_consts:])
    residual_count = [0]

    def batched_fwd(primals: Sequence[Any], perturbed: Sequence[bool]) -> tuple[list[Any], list[Any]]:
        def flat(*values: Any) -> list[Any]:
            outs, residuals = fwd(values, perturbed)
            residual_count[0] = len(residuals)
            return [*outs, *residuals]

        outs, out_dims = batch_flat(flat, primals, own, axis)
        outs = [bring_to_front(out, dim, axis.size) for out, dim in zip(outs, out_dims, strict=True)]
        split = len(outs) - residual_count[0]
        return outs[:split], outs[split:]

    def batched_bwd(residuals: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
        def flat(*values: Any) -> list[Any]:
            return bwd(values[:len(residuals)], values[len(residuals):])

        cotangents = [instantiate(cotangent) for cotangent in cotangents]
        outs, out_dims = batch_flat(flat, (*residuals, *cotangents), (0,) * (len(residuals) + len(cotangents)), axis)
        results = []
        for out, dim, own_dim in zip(outs, out_dims, own, strict=True):
            if own_dim is None:
                results.append(out if dim is None else sum_over(out, dim))
            elif type(out) is Zero or out is None:
                results.append(None)
            else:
                results.append(bring(out, dim, axis.size, own_dim))
        return results

    outs = custom_vjp_call_p.bind(*consts, *args, call_jaxpr=program, fwd=batched_fwd, bwd=batched_bwd,
                                  num_consts=len(consts) + num_consts, **params)
    return outs, [0] * len(outs)


@custom_linear_p.def_abstract_eval
def _custom_linear_aval(*avals: Any, num_residuals: int, bwd: Callable, out_avals: tuple[Any, ...]) -> list[Any]:
    return list(out_avals)


@custom_linear_p.def_transpose
def _custom_linear_transpose(cotangents: Sequence[Any], *operands: Any, num_residuals: int, bwd: Callable,
                             out_avals: tuple[Any, ...]) -> list[Any]:
    residuals, linear = operands[:num_residuals], operands[num_residuals:]
    state.trace.pin(None)  # the function's lines are the user's
    outs = bwd(residuals, cotangents)
    return [None] * num_residuals + [out if is_linear(operand) else None for out, operand in zip(outs, linear, strict=True)]


custom_linear_p.no_batching("it only stands in a linear program until that is transposed")
custom_linear_p.no_jvp("the backward function of a custom_vjp function is differentiated instead")
