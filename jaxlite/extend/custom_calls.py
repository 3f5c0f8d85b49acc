"""Calls with custom derivatives as traces of libraries get and make them: function and rules are a `WrappedFun` each.

A trace that has `process_custom_jvp_call(primitive, fun, jvp, tracers, *, symbolic_zeros)`, or `process_custom_vjp_call(
primitive, fun, fwd, bwd, tracers, *, out_trees, symbolic_zeros)`, transforms them, and hands them to the trace outside with
`primitive.bind_with_trace`. Tangents that vanish are a `SymbolicZero` there, and a `Zero` here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jaxlite.core.jaxpr import DebugInfo
from jaxlite.core.tree import tree_structure
from jaxlite.core.values import aval_of
from jaxlite.extend.linear_util import WrappedFun, wrap_init
from jaxlite.traces.backward_logs import collecting
from jaxlite.traces.custom_rules import custom_jvp_call_p, custom_vjp_call_p
from jaxlite.traces.jvp import Zero, instantiate, tangent_aval
from jaxlite.transforms.custom_derivatives import SymbolicZero


def _as_symbolic(value: Any) -> Any:
    return SymbolicZero(value.aval) if type(value) is Zero else value


def _as_zero(value: Any) -> Any:
    return Zero(value.aval) if type(value) is SymbolicZero else value


def jvp_handed_over(process: Callable[..., Any], args: Sequence[Any], params: dict[str, Any]) -> Any:
    """Call a library's `process_custom_jvp_call` with the operands and params of a call."""
    num_consts, rule = params["num_consts"], params["jvp"]
    function = custom_jvp_call_p.function_of_call(params)  # type: ignore[misc]

    def jvp(*values: Any) -> list[Any]:
        half = len(values) // 2
        outs = rule(*values[num_consts:half], *map(_as_zero, values[half + num_consts:]))
        primals, tangents = outs[:len(outs) // 2], outs[len(outs) // 2:]
        return [*primals, *[SymbolicZero(tangent_aval(aval_of(primal))) if tangent is None else _as_symbolic(tangent)
                            for primal, tangent in zip(primals, tangents, strict=True)]]

    debug = _debug("custom_jvp", params)
    return process(custom_jvp_call_p, wrap_init(function, debug_info=debug), wrap_init(jvp, debug_info=debug), args,
                   symbolic_zeros=params["symbolic_zeros"])


def vjp_handed_over(process: Callable[..., Any], args: Sequence[Any], params: dict[str, Any]) -> Any:
    """Call a library's `process_custom_vjp_call` with the operands and params of a call.

    `fwd` takes each operand with a flag, whether it is differentiated, and gives residuals and then results. `bwd` takes
    residuals and cotangents. `out_trees` tells what of `fwd`'s values is what, once it has run.
    """
    num_consts = params["num_consts"]
    trees: list[Any] = []

    def fwd(*flagged: Any) -> list[Any]:
        outs, residuals = params["fwd"](flagged[2 * num_consts::2], flagged[2 * num_consts + 1::2])
        trees[:] = [tree_structure([0] * len(outs)), tree_structure([0] * len(residuals)), [None] * len(residuals)]
        return [*residuals, *outs]

    def bwd(*values: Any) -> list[Any]:
        count = trees[1].num_leaves
        wanted = [None] * (len(args) - num_consts)
        with collecting():  # what is logged are values of the library's trace, which has no place for them
            found = params["bwd"](values[:count], list(map(_as_zero, values[count:])), wanted)
        return [None] * num_consts + [_as_symbolic(each) for each in found]

    debug = _debug("custom_vjp", params)
    function = custom_vjp_call_p.function_of_call(params)  # type: ignore[misc]
    return process(custom_vjp_call_p, *(wrap_init(each, debug_info=debug) for each in (function, fwd, bwd)), args,
                   out_trees=lambda: tuple(trees), symbolic_zeros=params["symbolic_zeros"])


def _debug(kind: str, params: dict[str, Any]) -> DebugInfo:
    return getattr(params["call_jaxpr"], "debug", None) or DebugInfo(kind, params["name"])


def _taken(args: Sequence[Any], params: dict[str, Any], count: int) -> tuple[Sequence[Any], list[Any], dict[str, Any]]:
    """Operands, functions and params: the functions are the param `subfuns`, or the first operands. None for an equation's."""
    params = dict(params)
    if "subfuns" in params:
        return args, list(params.pop("subfuns")), params
    if len(args) >= count and all(type(arg) is WrappedFun for arg in args[:count]):
        return args[count:], list(args[:count]), params
    return args, [], params


def _as_call(fun: WrappedFun, kind: str) -> Callable[..., Any]:
    def call(*values: Any) -> Any:
        return _once_more(fun).call_wrapped(*values)

    call.debug = fun.debug_info or DebugInfo(kind, fun.__name__)  # type: ignore[attr-defined]
    return call


def vjp_taken_back(args: Sequence[Any], params: dict[str, Any]) -> tuple[Sequence[Any], dict[str, Any]]:
    """Operands and params of a `custom_vjp` call, from what a library gives to `bind_with_trace`."""
    args, subfuns, params = _taken(args, params, 3)
    if not subfuns:
        return args, params
    fun, forward, backward = subfuns
    out_trees = params.pop("out_trees")

    def fwd(primals: Sequence[Any], perturbed: Sequence[bool]) -> tuple[list[Any], list[Any]]:
        flagged = [each for pair in zip(primals, perturbed, strict=True) for each in pair]
        values = iter(_once_more(forward).call_wrapped(*flagged))
        forwarded = out_trees()[2]  # for residuals that are operands, which
        residuals = [next(values) if source is None else primals[source] for source in forwarded]
        return list(values), residuals

    def bwd(residuals: Sequence[Any], cotangents: Sequence[Any], targets: Sequence[Any]) -> list[Any]:
        given = cotangents if params["symbolic_zeros"] else list(map(instantiate, cotangents))
        return [_as_zero(each) for each in _once_more(backward).call_wrapped(*residuals, *map(_as_symbolic, given))]

    return args, {"name": fun.__name__, "num_consts": 0, "call_jaxpr": _as_call(fun, "custom_vjp"), "fwd": fwd, "bwd": bwd,
                  **params}


def jvp_taken_back(args: Sequence[Any], params: dict[str, Any]) -> tuple[Sequence[Any], dict[str, Any]]:
    """Operands and params of a `custom_jvp` call, from what a library gives to `bind_with_trace`."""
    args, subfuns, params = _taken(args, params, 2)
    if not subfuns:
        return args, params
    fun, jvp = subfuns

    def rule(*values: Any) -> list[Any]:
        return [_as_zero(out) for out in _once_more(jvp).call_wrapped(*map(_as_symbolic, values))]

    return args, {"name": fun.__name__, "num_consts": 0, "call_jaxpr": _as_call(fun, "custom_jvp"), "jvp": rule, **params}


def _once_more(fun: WrappedFun) -> WrappedFun:
    """The function, with its stores emptied: a trace may call it more than once."""
    for store in fun.stores:
        if store is not None:
            store.reset()
    return fun
