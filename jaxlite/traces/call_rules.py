"""What transformations make of a call: `jit` equations keep their structure under derivatives and batching."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxlite.compilation.dispatch import jit_p
from jaxlite.core.jaxpr import ClosedJaxpr
from jaxlite.traces.batching import Axis, batch_jaxpr
from jaxlite.traces.jvp import Zero, jvp_jaxpr, tangent_aval, zero_for
from jaxlite.traces.linearize import linearize_jaxpr
from jaxlite.traces.transpose import backward_jaxpr, is_linear


def _call(name: str, jaxpr: ClosedJaxpr, operands: Sequence[Any], params: dict[str, Any]) -> list[Any]:
    options = {key: value for key, value in params.items() if key != "donated_invars"}
    return jit_p.bind(*operands, jaxpr=jaxpr, name=name, donated_invars=(False,) * len(operands), **options)


def _spread(values: Sequence[Any], flags: Sequence[bool], avals: Sequence[Any]) -> list[Any]:
    """The values where flags hold, `Zero` elsewhere."""
    rest = iter(values)
    return [next(rest) if flag else Zero(tangent_aval(aval)) for flag, aval in zip(flags, avals, strict=True)]


@jit_p.def_jvp
def _jit_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, jaxpr: ClosedJaxpr, name: str, **params: Any) -> Any:
    nonzero = [type(tangent) is not Zero for tangent in tangents]
    program, consts, out_nonzero = jvp_jaxpr(jaxpr, nonzero, False)
    active = [tangent for tangent in tangents if type(tangent) is not Zero]
    outs = _call(name, program, [*consts, *primals, *active], params)
    count = len(jaxpr.out_avals)
    return outs[:count], _spread(outs[count:], out_nonzero, jaxpr.out_avals)


def _jit_linearize(primals: Sequence[Any], tangents: Sequence[Any], *, jaxpr: ClosedJaxpr, name: str, **params: Any) -> Any:
    nonzero = [type(tangent) is not Zero for tangent in tangents]
    split = linearize_jaxpr(jaxpr, nonzero)
    outs = _call(name, split.primal, [*split.consts, *primals], params)
    computed = iter(outs[split.num_outs:])
    residuals = [next(computed) if index is None else primals[index] for index in split.forwarded]
    active = [tangent for tangent in tangents if type(tangent) is not Zero]
    if not any(split.nonzero_out):
        return outs[:split.num_outs], [zero_for(out) for out in outs[:split.num_outs]]
    tangents_out = _call(name, split.tangent, [*residuals, *active], params)
    return outs[:split.num_outs], _spread(tangents_out, split.nonzero_out, jaxpr.out_avals)


jit_p.linearize = _jit_linearize


@jit_p.def_transpose
def _jit_transpose(cotangents: Sequence[Any], *operands: Any, jaxpr: ClosedJaxpr, name: str, **params: Any) -> list[Any]:
    linear = [is_linear(operand) for operand in operands]
    nonzero = [type(cotangent) is not Zero for cotangent in cotangents]
    program, consts, arrives = backward_jaxpr(jaxpr, linear, nonzero)
    known = [operand for operand, flag in zip(operands, linear, strict=True) if not flag]
    given = [cotangent for cotangent, flag in zip(cotangents, nonzero, strict=True) if flag]
    outs = iter(_call(name, program, [*consts, *known, *given], params))
    reached = iter(arrives)
    return [None if not flag else (next(outs) if next(reached) else Zero(tangent_aval(operand.aval)))
            for operand, flag in zip(operands, linear, strict=True)]


@jit_p.def_batching
def _jit_batch(axis: Axis, args: Sequence[Any], dims: Sequence[int | None], *, jaxpr: ClosedJaxpr, name: str,
               **params: Any) -> tuple[list[Any], list[int | None]]:
    program, consts, batched = batch_jaxpr(jaxpr, axis, dims)
    outs = _call(name, program, [*consts, *args], params)
    return outs, [0 if flag else None for flag in batched]


