"""Linearization: splits a function at a point into its value and the linear map of its tangents.

Primals are computed in the enclosing trace. Operations on tangents are staged into a separate program, which closes over
the primal values that it needs (the residuals). Both use the JVP rules. Primitives with sub-jaxprs have a `linearize` rule
that splits the sub-jaxpr in the same way: `linearize(primals, tangents, **params)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from jaxlite.compilation.dispatch import jit_p, opened
from jaxlite.core import errors
from jaxlite.core.discharge import without_local_refs
from jaxlite.core.effects import REF
from jaxlite.core.jaxpr import (
    ClosedJaxpr,
    DebugInfo,
    Jaxpr,
    JaxprEqn,
    Remembering,
    Var,
    derived,
    eval_jaxpr,
    once_for_each,
    one_each,
    pick,
    subjaxprs,
)
from jaxlite.core.staging import StagedTracer, StagingTrace, check_leaks, hoist_consts
from jaxlite.core.tracing import Trace, Tracer, set_trace, state
from jaxlite.core.values import aval_of
from jaxlite.traces.jvp import JVPTrace, JVPTracer, Zero, instantiate, jvp_rule, nonzero_flags, tangent_aval, zero_for
from lowering.passes.dce import live_parts


class _SplitTrace(Trace):
    """Current while a JVP rule runs: what meets a tangent is staged, the rest is computed."""

    __slots__ = ("parent", "tangents")

    def __init__(self, parent: Trace, tangents: StagingTrace):
        super().__init__()
        self.parent, self.tangents = parent, tangents

    @property
    def pinned(self) -> Any:
        return self.tangents.pinned

    def pin(self, traceback: Any) -> None:
        self.parent.pin(traceback)
        self.tangents.pin(traceback)

    def pin_to(self, eqn: JaxprEqn) -> None:
        """Pin to where an equation comes from, unless a rule of a user's is to run for it: that has lines of its own."""
        self.pin(None if _has_user_rule(eqn) else eqn.traceback)

    def pin_here(self) -> bool:
        if not self.tangents.pin_here():
            return False
        self.parent.pin(self.tangents.pinned)
        return True

    def process(self, primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> Any:
        tangents = self.tangents
        for arg in args:
            if isinstance(arg, StagedTracer) and arg._trace is tangents:
                if primitive.function_of_call is not None:  # it is linear in the tangents: its rule has nothing to add
                    return primitive.function_of_call(params)(*args)
                return tangents.process(primitive, args, params)
        return self.parent.apply(primitive, args, params)


def _has_user_rule(eqn: JaxprEqn) -> bool:
    return eqn.primitive.function_of_call is not None or eqn.primitive.has_foreign_jvp


@once_for_each
def _runs_user_rules(jaxpr: Jaxpr) -> bool:
    return any(map(_has_user_rule, jaxpr.eqns)) or any(map(_runs_user_rules, subjaxprs(jaxpr)))


class _UserRuleTrace(_SplitTrace):
    """Current while a user's JVP rule runs, which may apply calls and loops to primals and tangents together.

    What comes out of such an operation is either primal, or linear in the tangents: so it is its value where they are
    zero, or its derivative there along them. Its own rule splits it into these two. A call in which rules of users' would run
    for that is taken apart instead: such a rule may make the same call, of its function with tangents for primals.
    """

    __slots__ = ()

    def process(self, primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> Any:
        linear = [isinstance(arg, StagedTracer) and arg._trace is self.tangents for arg in args]
        if primitive.linearize is None or primitive.function_of_call is not None or primitive.has_foreign_jvp or all(linear) \
                or not any(linear):
            return super().process(primitive, args, params)
        if primitive is jit_p and _runs_user_rules(params["jaxpr"].jaxpr):
            return opened(partial(eval_jaxpr, params["jaxpr"].jaxpr, params["jaxpr"].consts), params)(*args)
        zeros = [Zero(tangent_aval(aval_of(arg))) for arg in args]
        with set_trace(_SplitTrace(self.parent, self.tangents)):
            primals = [instantiate(zero) if flag else arg for arg, zero, flag in zip(args, zeros, linear, strict=True)]
            outs, dots = primitive.linearize(
                primals, [arg if flag else zero for arg, zero, flag in zip(args, zeros, linear, strict=True)], **params)
        return [out if type(dot) is Zero else dot for out, dot in zip(outs, dots, strict=True)]


def with_user_rule(rule: Callable[..., Any]) -> Callable[..., Any]:
    """A `linearize` rule that runs a JVP rule of a user's."""

    def linearize(*args: Any, **params: Any) -> Any:
        assert isinstance(state.trace, _SplitTrace)
        with set_trace(_UserRuleTrace(state.trace.parent, state.trace.tangents)):
            return rule(*args, **params)

    return linearize


class LinearizeTracer(JVPTracer):
    """A primal with its tangent in a linear program. Libraries tell by the class whether a derivative is taken in reverse."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"GradTracer(primal={self.primal!s}, typeof(tangent)={aval_of(self.tangent).str_short(short_dtypes=True)})"


class LinearizeTrace(JVPTrace):
    """Applies primitives to primals under the trace around it, and stages what happens to tangents."""

    __slots__ = ("tangents",)
    tracer = LinearizeTracer
    arguments = Trace.arguments  # the tangents of a linear program have the types that it gives them

    def __init__(self, parent: Trace, debug_info: DebugInfo | None = None):
        super().__init__(parent, debug_info)
        self.tangents = StagingTrace(debug_info)
        self.inner = _SplitTrace(parent, self.tangents)

    def rule(self, primitive: Any) -> Callable[..., Any]:
        return primitive.linearize or jvp_rule(primitive)


@contextmanager
def pushing_forward() -> Iterator[None]:
    """Inside a `with` block, linear programs are made to be applied to tangents, not to be transposed."""
    previous, state.pushes_forward = state.pushes_forward, True
    try:
        yield
    finally:
        state.pushes_forward = previous


class LinearProgram:
    """The linear map of a function at a point.

    Attributes: `jaxpr`, a program of tangents of the inputs that have one; `residuals`, the values of its
    constvars; `nonzero`, for each output whether the program gives its tangent; `out_avals`.
    """

    __slots__ = ("jaxpr", "residuals", "nonzero", "out_avals")

    def __init__(self, jaxpr: Jaxpr, residuals: list[Any], nonzero: list[bool], out_avals: list[Any]):
        self.jaxpr, self.residuals, self.nonzero, self.out_avals = jaxpr, residuals, nonzero, out_avals


def prune(jaxpr: Jaxpr, consts: Sequence[Any]) -> tuple[Jaxpr, list[Any]]:
    """Without dead equations and unused constvars."""
    eqns, live = live_parts(jaxpr)
    kept = [(var, const) for var, const, keep in zip(jaxpr.constvars, consts, live, strict=False) if keep]
    return jaxpr.replace(eqns=eqns, constvars=[var for var, _ in kept]), [const for _, const in kept]


def linearize_flat(fun: Callable[..., Sequence[Any]], primals: Sequence[Any], nonzero: Sequence[bool],
                   debug_info: DebugInfo | None = None) -> tuple[list[Any], LinearProgram]:
    """Split a function of flat values at a point.

    Args:
      nonzero: for each input whether it has a tangent.
    Returns: the outputs, and the linear program.
    """
    trace = LinearizeTrace(state.trace, debug_info)
    inputs = [trace.join(primal, trace.tangents.new_arg(tangent_aval(aval_of(primal)))) if flag else primal
              for primal, flag in zip(primals, nonzero, strict=True)]
    try:
        with set_trace(trace):
            outs = fun(*inputs)
        pairs = [trace.split(out) for out in outs]
        tangents = [tangent for _, tangent in pairs]
        jaxpr, consts = trace.tangents.finish([each for each in tangents if type(each) is not Zero])
    finally:
        trace.alive = trace.tangents.alive = False
    del inputs, outs
    check_leaks(trace)
    jaxpr, consts = prune(jaxpr, consts)
    if REF in jaxpr.effects:
        jaxpr, consts = prune(*without_local_refs(jaxpr, consts))
    flags = nonzero_flags(tangents)
    return [primal for primal, _ in pairs], LinearProgram(jaxpr, consts, flags, [each.aval for each in tangents])


class SplitJaxpr(Remembering):
    """A program split for linearisation.

    `primal` maps `consts` + inputs to outputs + residuals; `tangent` maps residuals + nonzero tangents to nonzero tangents of
    the outputs. `forwarded` gives for each residual the index of the input that it is, or None if it is computed
    (only those are outputs of `primal`).
    """

    __slots__ = ("primal", "consts", "tangent", "nonzero_out", "num_outs", "forwarded", "source")

    def __init__(self, primal: ClosedJaxpr, consts: list[Any], tangent: ClosedJaxpr, nonzero_out: list[bool],
                 num_outs: int, forwarded: list[int | None], source: ClosedJaxpr):
        self.primal, self.consts, self.tangent, self.nonzero_out = primal, consts, tangent, nonzero_out
        self.num_outs, self.forwarded, self.source = num_outs, forwarded, source

    def residuals(self, outs: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
        """What `tangent` takes before the tangents: of the results of `primal`, and of its inputs behind `consts`."""
        computed = iter(outs[self.num_outs:])
        return [next(computed) if index is None else inputs[index] for index in self.forwarded]


def linearize_jaxpr(closed: ClosedJaxpr, nonzero: Sequence[bool], instantiate_out: Sequence[bool] | bool = False) -> SplitJaxpr:
    """Split a program that closes over nothing; remembered for each program and pattern of nonzero tangents."""
    wanted = one_each(instantiate_out, len(closed.out_avals))
    return derived(closed, ("linearize", *nonzero, *wanted, state.pushes_forward), lambda: _linearized(closed, nonzero, wanted))


def apply_split(closed: ClosedJaxpr, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """The results of a program and their tangents, with what does not depend on tangents computed before what does."""
    nonzero = nonzero_flags(tangents)
    split = linearize_jaxpr(closed, nonzero)
    outs = eval_jaxpr(split.primal.jaxpr, split.primal.consts, *split.consts, *primals)
    moving = iter(eval_jaxpr(split.tangent.jaxpr, split.tangent.consts, *split.residuals(outs, primals),
                             *pick(tangents, nonzero)))
    outs = outs[:split.num_outs]
    return outs, [next(moving) if flag else zero_for(out) for out, flag in zip(outs, split.nonzero_out, strict=True)]


def _linearized(closed: ClosedJaxpr, nonzero: Sequence[bool], wanted: list[bool]) -> SplitJaxpr:
    primals = StagingTrace(closed.jaxpr.debug_info)
    inputs = [primals.new_arg(aval) for aval in closed.in_avals]
    with set_trace(primals):
        trace = LinearizeTrace(primals, closed.jaxpr.debug_info)
        boxed = [trace.join(tracer, trace.tangents.new_arg(tangent_aval(tracer.aval))) if flag else tracer
                 for tracer, flag in zip(inputs, nonzero, strict=True)]
        inner = trace.inner
        assert isinstance(inner, _SplitTrace)
        with set_trace(trace):
            outs = eval_jaxpr(closed.jaxpr, closed.consts, *boxed, before=inner.pin_to)
        inner.pin(None)
        pairs = [trace.split(out) for out in outs]
        with set_trace(trace.tangents):
            tangents = [instantiate(tangent) if flag else tangent
                        for (_, tangent), flag in zip(pairs, wanted, strict=True)]
        flags = nonzero_flags(tangents)
        jaxpr, residuals = trace.tangents.finish([each for each in tangents if type(each) is not Zero])
        trace.alive = False
        jaxpr, residuals = prune(jaxpr, residuals)
        positions = {tracer.atom: index for index, tracer in enumerate(inputs)}
        forwarded = [positions.get(each.atom) if isinstance(each, StagedTracer) and each._trace is primals
                     and type(each.atom) is Var else None for each in residuals]
        computed = [each for each, position in zip(residuals, forwarded, strict=True) if position is None]
        primal_jaxpr, consts = primals.finish([primal for primal, _ in pairs] + computed)
        if any(isinstance(const, Tracer) for const in consts):  # a program closes over nothing: a rule of a user's did
            raise errors.UnexpectedTracerError(
                f"The derivative rule of a function inside {closed.jaxpr.debug_info} closes over a value that is traced "
                "outside of it. Pass that value as an argument of the custom_jvp or custom_vjp function")
    primal_jaxpr, consts = prune(primal_jaxpr, consts)
    return SplitJaxpr(hoist_consts(primal_jaxpr), consts, hoist_consts(jaxpr), flags, len(pairs), forwarded, closed)
