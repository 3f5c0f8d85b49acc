"""Calls of `custom_jvp` functions as traces of libraries get and make them: function and rule are a `WrappedFun` each.

A trace that has `process_custom_jvp_call(primitive, fun, jvp, tracers, *, symbolic_zeros)` transforms both, and hands them to
the trace outside with `primitive.bind_with_trace`. Tangents that vanish are a `SymbolicZero` there, and a `Zero` here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jaxlite.core.jaxpr import DebugInfo
from jaxlite.core.values import aval_of
from jaxlite.extend.linear_util import WrappedFun, wrap_init
from jaxlite.traces.custom_rules import custom_jvp_call_p
from jaxlite.traces.jvp import Zero, tangent_aval
from jaxlite.transforms.custom_derivatives import SymbolicZero


def _as_symbolic(value: Any) -> Any:
    return SymbolicZero(value.aval) if type(value) is Zero else value


def _as_zero(value: Any) -> Any:
    return Zero(value.aval) if type(value) is SymbolicZero else value


def handed_over(process: Callable[..., Any], args: Sequence[Any], params: dict[str, Any]) -> Any:
    """Call a library's `process_custom_jvp_call` with the operands and params of a call."""
    num_consts, rule = params["num_consts"], params["jvp"]
    function = custom_jvp_call_p.function_of_call(params)  # type: ignore[misc]

    def jvp(*values: Any) -> list[Any]:
        half = len(values) // 2
        outs = rule(*values[num_consts:half], *map(_as_zero, values[half + num_consts:]))
        primals, tangents = outs[:len(outs) // 2], outs[len(outs) // 2:]
        return [*primals, *[SymbolicZero(tangent_aval(aval_of(primal))) if tangent is None else _as_symbolic(tangent)
                            for primal, tangent in zip(primals, tangents, strict=True)]]

    debug = getattr(params["call_jaxpr"], "debug", None) or DebugInfo("custom_jvp", params["name"])
    return process(custom_jvp_call_p, wrap_init(function, debug_info=debug), wrap_init(jvp, debug_info=debug), args,
                   symbolic_zeros=params["symbolic_zeros"])


def taken_back(args: Sequence[Any], params: dict[str, Any]) -> tuple[Sequence[Any], dict[str, Any]]:
    """Operands and params of a call, from what a library gives to `bind_with_trace`.

    Function and rule are the param `subfuns`, or the first two operands.
    """
    params = dict(params)
    if "subfuns" in params:
        fun, jvp = params.pop("subfuns")
    elif len(args) > 1 and type(args[0]) is WrappedFun is type(args[1]):
        fun, jvp, *args = args
    else:
        return args, params  # as an equation has them

    def call(*values: Any) -> Any:
        return _once_more(fun).call_wrapped(*values)

    def rule(*values: Any) -> list[Any]:
        return [_as_zero(out) for out in _once_more(jvp).call_wrapped(*map(_as_symbolic, values))]

    name = fun.__name__
    call.debug = fun.debug_info or DebugInfo("custom_jvp", name)  # type: ignore[attr-defined]
    return args, {"name": name, "num_consts": 0, "call_jaxpr": call, "jvp": rule, **params}


def _once_more(fun: WrappedFun) -> WrappedFun:
    """The function, with its stores emptied: a trace may call it more than once."""
    for store in fun.stores:
        if store is not None:
            store.reset()
    return fun
