"""Rules of calls with custom derivatives, for each transformation.

`custom_jvp_call` has the function and the user's JVP rule, `custom_vjp_call` the user's forward and backward functions. In
a program, the function is a sub-jaxpr, `call_jaxpr`. When a call is bound, `call_jaxpr` is a Python function of flat
values: it is traced if a program is staged, and not called if a derivative calls the rule instead. `custom_linear` is the
equation of a `custom_vjp_call` in a linear program; it can only be transposed. The rules are functions of flat values, made
by `jaxlite.transforms.custom_derivatives`: `fwd(primals, perturbed)` gives (outputs, residuals), `bwd(residuals, cotangents,
targets)` cotangents, and logs; a target is as in `transpose.Linear`, and False also where no cotangent is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from jaxlite.core.aval import AbstractRef, with_axis, without_axis
from jaxlite.core.errors import UnexpectedTracerError
from jaxlite.core.jaxpr import ClosedJaxpr, eval_jaxpr
from jaxlite.core.lazy import loader
from jaxlite.core.primitive import Primitive
from jaxlite.core.staging import has_program, hoist_consts, trace_to_jaxpr
from jaxlite.core.tracing import state
from jaxlite.core.values import aval_of
from jaxlite.traces.backward_logs import log_outputs, with_log
from jaxlite.traces.batching import Axis, BatchTrace, batch_flat, batch_jaxpr, bring, bring_to_front, run_batched
from jaxlite.traces.jvp import Zero, instantiate, nonzero_flags, tangent_aval, zero_for
from jaxlite.traces.linearize import with_user_rule
from jaxlite.traces.transpose import backward, is_linear

_libraries = loader("jaxlite.extend.custom_calls")


class _CustomCall(Primitive):
    """A primitive that traces of libraries know by its function and rules; `kind` is jvp or vjp."""

    def __init__(self, kind: str):
        super().__init__(f"custom_{kind}_call", multiple_results=True, memoise="call_jaxpr")
        self.kind = kind

    def hand_over(self, process: Callable[..., Any], args: Sequence[Any], params: dict[str, Any]) -> Any:  # type: ignore[override]
        return getattr(_libraries(), f"{self.kind}_handed_over")(process, args, params)

    def bind_with_trace(self, trace: Any, args: Sequence[Any], *avals_and_params: Any) -> Any:
        return super().bind_with_trace(trace, *getattr(_libraries(), f"{self.kind}_taken_back")(args, avals_and_params[-1]))


custom_jvp_call_p, custom_vjp_call_p = _CustomCall("jvp"), _CustomCall("vjp")
custom_linear_p = Primitive("custom_linear", multiple_results=True, memoise=False)
custom_linear_p.takes_refs = True
custom_linear_p.knows_vma = True
custom_linear_p.has_own_backward = True


def _no_sum(value: Any, axis: int) -> Any:
    raise RuntimeError("jaxlite.lax has not been imported")


sum_over: Callable[[Any, int], Any] = _no_sum
for_the_first: Callable[[Any, Any], Any] = _no_sum


def set_summation(over: Callable[[Any, int], Any], first: Callable[[Any, Any], Any]) -> None:
    """Say how to sum over an axis, and how to make a batch of so many zeros but for the first example; done by
    jaxlite.custom_derivatives, which may use lax."""
    global sum_over, for_the_first
    sum_over, for_the_first = over, first


def _function(params: dict[str, Any]) -> Callable[..., Sequence[Any]]:
    """The function of a call, on flat values."""
    call = params["call_jaxpr"]
    return partial(eval_jaxpr, call.jaxpr, []) if type(call) is ClosedJaxpr else call


def _stage(primitive: Primitive, trace: Any, args: Sequence[Any], params: dict[str, Any]) -> Any:
    call = params["call_jaxpr"]
    if type(call) is not ClosedJaxpr:
        jaxpr, consts = trace_to_jaxpr(call, [aval_of(arg) for arg in args], call.debug)
        params = {**params, "call_jaxpr": hoist_consts(jaxpr), "num_consts": len(consts)}
        args = [*consts, *args]
    return trace.record(primitive, args, params)


for _p in (custom_jvp_call_p, custom_vjp_call_p):
    _p.function_of_call = _function
    has_program(_p, "call_jaxpr")
    _p.def_stage(partial(_stage, _p))

    @_p.def_effectful_abstract_eval
    def _call_aval(*avals: Any, call_jaxpr: ClosedJaxpr, **params: Any) -> Any:
        return call_jaxpr.out_avals, call_jaxpr.effects

    @_p.def_eager
    def _call_eager(*args: Any, **params: Any) -> Sequence[Any]:
        return _function(params)(*args)


class _OutDims:
    """Which results of a batched call have the batched axis, in front: what runs first, the function or its rule, says it."""

    def __init__(self, axis: Axis, name: str, flags: Sequence[bool] | None = None):
        self.axis, self.name, self.flags = axis, name, flags

    def place(self, outs: Sequence[Any], dims: Sequence[int | None], flags: Sequence[bool] | None = None) -> list[Any]:
        """The results, with their axes in front. Args: `flags` which of them have one if nothing has said it yet."""
        if self.flags is None:
            self.flags = [dim is not None for dim in dims] if flags is None else list(flags)
        return [self._placed(*each) for each in zip(outs, dims, self.flags, strict=True)]

    def _placed(self, out: Any, dim: int | None, flag: bool) -> Any:
        if not flag:
            if dim is not None:
                raise ValueError(f"the derivative rule of {self.name} gives a result that depends on the examples of a vmap, "
                                 "where the function gives one that is the same for all of them")
            return out
        if type(out) is Zero:
            return Zero(with_axis(out.aval, 0, self.axis.size))
        return bring_to_front(out, dim, self.axis.size)

    def dims(self) -> list[int | None]:
        assert self.flags is not None
        return [0 if flag else None for flag in self.flags]


def _batched_call(params: dict[str, Any], axis: Axis, dims: Sequence[int | None], trace: BatchTrace | None,
                  ) -> tuple[Any, Sequence[Any], _OutDims]:
    """The function of a call on batches: a program, or a Python function if it is one; its consts; where the axes are."""
    call = params["call_jaxpr"]
    if type(call) is ClosedJaxpr:
        program, consts, flags = batch_jaxpr(call, axis, dims)
        return program, consts, _OutDims(axis, params["name"], flags)
    assert trace is not None
    places = _OutDims(axis, params["name"])

    def batched(*values: Any) -> list[Any]:
        return places.place(*run_batched(trace, call, values, dims))

    batched.debug = call.debug  # type: ignore[attr-defined]
    return batched, (), places


def _in_batch(trace: BatchTrace | None, axis: Axis, fun: Callable[..., Sequence[Any]], args: Sequence[Any],
              dims: Sequence[int | None]) -> tuple[list[Any], list[int | None]]:
    """Run a rule on batches: as part of the `vmap` that is under way, or as one of its own."""
    if trace is not None and trace.alive:
        return run_batched(trace, fun, args, dims)
    return batch_flat(fun, args, dims, axis)


def _transpose(cotangents: Sequence[Any], *operands: Any, call_jaxpr: ClosedJaxpr, **params: Any) -> list[Any]:
    return backward(call_jaxpr.jaxpr, [], operands, cotangents)


# --- custom_jvp --------------------------------------------------------------------------------------


def _own(values: Sequence[Any], tangents: Sequence[Any], num_consts: int, kind: str) -> tuple[Sequence[Any], Sequence[Any]]:
    """The arguments and tangents without those of what the function closes over."""
    if any(type(tangent) is not Zero for tangent in tangents[:num_consts]):
        raise UnexpectedTracerError(f"Detected differentiation of a {kind} function with respect to a closed-over value. Its "
                                    "rule only says how to differentiate with respect to its arguments: pass the closed-over "
                                    "value as an argument")
    return values[num_consts:], tangents[num_consts:]


@custom_jvp_call_p.def_jvp
def _custom_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, call_jaxpr: Any, jvp: Callable[..., Any], num_consts: int,
                symbolic_zeros: bool, **params: Any) -> tuple[list[Any], list[Any]]:
    arguments, given = _own(primals, tangents, num_consts, "custom_jvp")
    if not symbolic_zeros:
        given = [instantiate(tangent) for tangent in given]
    outs = jvp(*arguments, *given)
    half = len(outs) // 2
    tangents_out = [zero_for(primal) if tangent is None else tangent
                    for primal, tangent in zip(outs[:half], outs[half:], strict=True)]
    return list(outs[:half]), tangents_out


custom_jvp_call_p.linearize = with_user_rule(_custom_jvp)
custom_jvp_call_p.def_transpose(_transpose)


def _without_axis(zero: Zero, dim: int | None) -> Zero:
    return zero if dim is None else Zero(without_axis(zero.aval, dim))


def _custom_jvp_batch(axis: Axis, args: Sequence[Any], dims: Sequence[int | None], *, jvp: Callable[..., Any], num_consts: int,
                      trace: BatchTrace | None = None, **params: Any) -> tuple[list[Any], list[int | None]]:
    program, consts, places = _batched_call(params, axis, dims, trace)
    own = tuple(dims[num_consts:])

    def batched(*values: Any) -> list[Any]:
        half = len(values) // 2
        pairs = [(_without_axis(tangent, dim), None) if type(tangent) is Zero else (tangent, dim)
                 for tangent, dim in zip(values[half:], own, strict=True)]
        outs, out_dims = _in_batch(trace, axis, jvp, (*values[:half], *[each for each, _ in pairs]),
                                   own + tuple(dim for _, dim in pairs))
        middle = len(outs) // 2
        flags = [one is not None or other is not None
                 for one, other in zip(out_dims[:middle], out_dims[middle:], strict=True)]
        return [*places.place(outs[:middle], out_dims[:middle], flags), *places.place(outs[middle:], out_dims[middle:])]

    outs = custom_jvp_call_p.bind(*consts, *args, jvp=batched, num_consts=len(consts) + num_consts,
                                  **{**params, "call_jaxpr": program})
    return outs, places.dims()


custom_jvp_call_p.def_batching(_custom_jvp_batch)


# --- custom_vjp --------------------------------------------------------------------------------------


@custom_vjp_call_p.def_jvp
def _custom_vjp_tangents(primals: Sequence[Any], tangents: Sequence[Any], *, call_jaxpr: Any, fwd: Callable[..., Any],
                          bwd: Callable[..., Any], num_consts: int, symbolic_zeros: bool, **params: Any) -> Any:
    arguments, given = _own(primals, tangents, num_consts, "custom_vjp")
    outs, residuals = fwd(arguments, nonzero_flags(given))
    out_avals = tuple(tangent_aval(aval_of(out)) for out in outs)
    own = [0.0 if type(tangent) is Zero and tangent.aval.has_qdd else
           instantiate(Zero(tangent.aval.inner_aval) if type(getattr(tangent, "aval", None)) is AbstractRef else tangent)
           for tangent in given]  # what changes is passed on, not differentiated
    tangents_out = custom_linear_p.bind(*residuals, *own, num_residuals=len(residuals), bwd=bwd, out_avals=out_avals)
    return outs, tangents_out


custom_vjp_call_p.linearize = _custom_vjp_tangents
custom_vjp_call_p.def_transpose(_transpose)


def _custom_vjp_batch(axis: Axis, args: Sequence[Any], dims: Sequence[int | None], *, fwd: Callable[..., Any],
                      bwd: Callable[..., Any], num_consts: int, trace: BatchTrace | None = None,
                      **params: Any) -> tuple[list[Any], list[int | None]]:
    program, consts, places = _batched_call(params, axis, dims, trace)
    own = tuple(dims[num_consts:])
    residual_dims: list[int | None] = []

    def batched_fwd(primals: Sequence[Any], perturbed: Sequence[bool]) -> tuple[list[Any], list[Any]]:
        split = 0

        def flat(*values: Any) -> list[Any]:
            nonlocal split
            outs, residuals = fwd(values, perturbed)
            split = len(outs)
            return [*outs, *residuals]

        outs, out_dims = _in_batch(trace, axis, flat, primals, own)
        residual_dims[:] = out_dims[split:]
        return places.place(outs[:split], out_dims[:split]), outs[split:]

    def batched_bwd(residuals: Sequence[Any], cotangents: Sequence[Any], targets: Sequence[Any]) -> list[Any]:
        logged: Any = None

        def flat(*values: Any) -> list[Any]:
            nonlocal logged
            wanted = [None if target is not False else False for target in targets]  # a Ref does not hold one example
            outs, extra, logged = with_log(bwd, values[:len(residuals)], values[len(residuals):], wanted)
            return [*outs, *extra]

        pairs = [(_without_axis(cotangent, dim), None) if type(cotangent) is Zero else (cotangent, dim)
                 for cotangent, dim in zip(cotangents, places.dims(), strict=True)]
        if None in own and any(dim is not None for dim in (*residual_dims, *[dim for _, dim in pairs])):
            # What all examples share has one cotangent: summed over the examples, it counts once.
            pairs = [(each, dim) if dim is not None or type(each) is Zero or aval_of(each).is_high else
                     (for_the_first(each, axis.size), 0) for each, dim in pairs]
        outs, out_dims = _in_batch(trace, axis, flat, (*residuals, *[each for each, _ in pairs]),
                                   (*residual_dims, *[dim for _, dim in pairs]))
        count = len(own)
        log_outputs([bring_to_front(out, dim, axis.size) for out, dim in zip(outs[count:], out_dims[count:], strict=True)],
                    logged, custom_linear_p)
        results = []
        for out, dim, own_dim in zip(outs[:count], out_dims[:count], own, strict=True):
            if own_dim is None:
                results.append(out if dim is None else sum_over(out, dim))
            elif type(out) is Zero or out is None:
                results.append(None)
            else:
                results.append(bring(out, dim, axis.size, own_dim))
        return results

    outs = custom_vjp_call_p.bind(*consts, *args, fwd=batched_fwd, bwd=batched_bwd, num_consts=len(consts) + num_consts,
                                  **{**params, "call_jaxpr": program})
    return outs, places.dims()


custom_vjp_call_p.def_batching(_custom_vjp_batch)


@custom_linear_p.def_eager
def _custom_linear(*operands: Any, **params: Any) -> Any:
    """There is no forward mode, but `jvp` may be inside of a program that is transposed, or its tangents may be unused."""
    raise TypeError("can't apply forward-mode autodiff (jvp) to a custom_vjp function.")


@custom_linear_p.def_abstract_eval
def _custom_linear_aval(*avals: Any, num_residuals: int, bwd: Callable[..., Any], out_avals: tuple[Any, ...]) -> list[Any]:
    return list(out_avals)


@custom_linear_p.def_transpose
def _custom_linear_transpose(cotangents: Sequence[Any], *operands: Any, num_residuals: int, bwd: Callable[..., Any],
                             out_avals: tuple[Any, ...]) -> list[Any]:
    residuals, linear = operands[:num_residuals], operands[num_residuals:]
    state.trace.pin(None)  # the function's lines are the user's
    outs = bwd(residuals, cotangents, [operand.target if is_linear(operand) else False for operand in linear])
    return [None] * num_residuals + [out if is_linear(operand) else None for out, operand in zip(outs, linear, strict=True)]


@custom_linear_p.def_batching
def _custom_linear_batch(axis: Axis, args: Sequence[Any], dims: Sequence[int | None], **params: Any) -> Any:
    return _custom_linear()  # of forward mode as well; a `vmap` around a derivative batches the call


custom_linear_p.no_jvp("the backward function of a custom_vjp function is differentiated instead")
