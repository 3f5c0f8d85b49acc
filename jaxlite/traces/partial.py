"""Partial evaluation: runs a function with some known arguments, and stages the operations that depend on the others.

Operations on known values are computed in the enclosing trace. Operations on unknown values are staged into a program,
which closes over the known values that it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from jaxlite.compilation.dispatch import opened
from jaxlite.core.jaxpr import ClosedJaxpr, DebugInfo, Jaxpr, eval_jaxpr, one_each, pick
from jaxlite.core.primitive import load_rules
from jaxlite.core.staging import StagedTracer, StagingTrace
from jaxlite.core.tracing import Trace, set_trace, state
from jaxlite.core.values import aval_of, with_arrays
from jaxlite.traces.saving import narrowed, read_inputs


class PartialVal(tuple[Any, ...]):
    """A value that is known, `(None, value)`, or of which only the type is, `(aval, None)`."""

    __slots__ = ()

    def __new__(cls, pair: tuple[Any, Any]) -> PartialVal:
        aval, value = pair
        if (aval is None) == (value is None):
            raise ValueError(f"PartialVal takes (None, value) or (aval, None), got {pair}")
        return tuple.__new__(cls, pair)

    @classmethod
    def known(cls, value: Any) -> PartialVal:
        """A known value."""
        return tuple.__new__(cls, (None, value))

    @classmethod
    def unknown(cls, aval: Any) -> PartialVal:
        """An unknown value of a type."""
        return tuple.__new__(cls, (aval, None))

    def is_known(self) -> bool:
        return self[0] is None

    def get_known(self) -> Any:
        """The value, or None if it is unknown."""
        return self[1] if self[0] is None else None

    def get_aval(self) -> Any:
        """The type."""
        return aval_of(self[1]) if self[0] is None else self[0]


class _PartialTrace(Trace):
    """Stages operations on tracers of `unknown`; hands the others to the trace around."""

    __slots__ = ("parent", "unknown")

    def __init__(self, parent: Trace, unknown: StagingTrace):
        super().__init__(unknown.debug_info)
        self.parent, self.unknown = parent, unknown

    def _is_unknown(self, value: Any) -> bool:
        return isinstance(value, StagedTracer) and value._trace is self.unknown

    def process(self, primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> Any:
        args = with_arrays(args) or args
        flags = list(map(self._is_unknown, args))
        if not any(flags):
            return self.parent.apply(primitive, args, params)
        program = params.get("jaxpr") if primitive.name == "jit" and primitive.is_own else None
        if program is not None and _some_result_is_known(program.jaxpr, flags):
            return opened(partial(eval_jaxpr, program.jaxpr, program.consts), params)(*args)  # equation by equation
        return self.unknown.process(primitive, args, params)


def _some_result_is_known(jaxpr: Jaxpr, unknown: Sequence[bool]) -> bool:
    reached = {var for var, flag in zip(jaxpr.invars, unknown, strict=True) if flag}
    for eqn in jaxpr.eqns:
        if not reached.isdisjoint(eqn.invars):
            reached.update(eqn.outvars)
    return any(var not in reached for var in jaxpr.outvars)


def partial_evaluate(fun: Callable[..., Sequence[Any]], values: Sequence[PartialVal],
                     instantiate: bool | Sequence[bool] = False, debug_info: DebugInfo | None = None,
                     ) -> tuple[Jaxpr, list[PartialVal], list[Any]]:
    """Run a function of flat values, of which some are known.

    Args:
      instantiate: whether results that turn out to be known are outputs of the program all the same: for all, or for each.
    Returns: the program of the unknown values that gives the unknown results; the results; the values of its constvars.
    """
    load_rules()
    unknown = StagingTrace(debug_info)
    args = [value.get_known() if value.is_known() else unknown.new_arg(value.get_aval()) for value in values]
    trace = _PartialTrace(state.trace, unknown)
    try:
        with set_trace(trace):
            outs = list(fun(*args))
        wanted = one_each(instantiate, len(outs))
        flags = [flag or trace._is_unknown(out) for out, flag in zip(outs, wanted, strict=True)]
        jaxpr, consts = unknown.finish(pick(outs, flags))
    finally:
        trace.alive = unknown.alive = False
    results = [PartialVal.unknown(aval_of(out)) if flag else PartialVal.known(out)
               for out, flag in zip(outs, flags, strict=True)]
    return jaxpr, results, consts


def dce_jaxpr(jaxpr: Jaxpr, used_outputs: bool | Sequence[bool], instantiate: bool | Sequence[bool] = False,
              live_inputs: bool | Sequence[bool] = True) -> tuple[Jaxpr, list[bool]]:
    """The program for some of its outputs, without what they do not need, inside loops, branches and calls too.

    Args: `used_outputs` which outputs to keep; `instantiate` which inputs to keep in any case; `live_inputs` which inputs are
    not dead, as JAX 0.12 takes it: nothing is removed for it.
    Returns: the program, and for each input whether it still has it.
    """
    used = [used_outputs] * len(jaxpr.outvars) if isinstance(used_outputs, bool) else list(used_outputs)
    kept = [instantiate] * len(jaxpr.invars) if isinstance(instantiate, bool) else list(instantiate)
    fewer = narrowed(jaxpr.replace(outvars=pick(jaxpr.outvars, used)))
    flags = [alive or keep for alive, keep in zip(read_inputs(fewer), kept, strict=True)]
    return fewer.replace(invars=pick(jaxpr.invars, flags)), flags


def trace_to_jaxpr_nounits(fun: Any, pvals: Sequence[PartialVal], instantiate: bool | Sequence[bool] = False,
                           ) -> tuple[Jaxpr, list[PartialVal], list[Any]]:
    """`partial_evaluate` of a `linear_util.WrappedFun`."""
    return partial_evaluate(fun.call_wrapped, pvals, instantiate, fun.debug_info)


def trace_to_jaxpr_dynamic(fun: Any, in_avals: Sequence[Any], **_: Any) -> tuple[Jaxpr, list[Any], list[Any]]:
    """Trace a `linear_util.WrappedFun` of flat values; gives the program, the types of its outputs, its consts."""
    trace = StagingTrace(fun.debug_info)
    try:
        with set_trace(trace):
            jaxpr, consts = trace.finish(fun.call_wrapped(*[trace.new_arg(aval) for aval in in_avals]))
    finally:
        trace.alive = False
    return jaxpr, ClosedJaxpr(jaxpr, consts).out_avals, consts
