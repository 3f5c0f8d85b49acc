"""Rules of calls: `jit` and similar equations keep their structure under derivatives and batching.

A call has the params `jaxpr` and `name`; its other params do not change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from jaxlite.compilation.dispatch import free, jit_p, said_of, said_shardings, says_nothing, says_shardings
from jaxlite.core.jaxpr import ClosedJaxpr, drop, pick
from jaxlite.core.primitive import Primitive
from jaxlite.traces.backward_logs import log_outputs
from jaxlite.traces.batching import Axis, batch_jaxpr, place_of
from jaxlite.traces.jvp import Zero, cotangent_aval, jvp_jaxpr, nonzero_flags, tangent_aval, typed_as, zero_for
from jaxlite.traces.linearize import linearize_jaxpr
from jaxlite.traces.transpose import backward_jaxpr, is_linear

Said = tuple[Sequence[Any], Sequence[Any]]


def _call(primitive: Primitive, jaxpr: ClosedJaxpr, operands: Sequence[Any], params: dict[str, Any],
          said: Callable[[], Said] | None = None) -> list[Any]:
    """Bind a call of another program. If the params give shardings of operands and results, `said` gives that of the last new
    operands and of the first new results; the others are free."""
    if "donated_invars" in params:
        num_ins, num_outs = len(operands), len(jaxpr.jaxpr.outvars)
        if said is None or not says_shardings(params):
            told = says_nothing(num_ins, num_outs)
        else:
            ins, outs = said()
            told = said_shardings((*free(num_ins - len(ins)), *ins), (*outs, *free(num_outs - len(outs))))
        params = {**params, "donated_invars": (False,) * num_ins, **told}
    return primitive.bind(*operands, jaxpr=jaxpr, **params)


def spread_tangents(values: Sequence[Any], flags: Sequence[bool], avals: Sequence[Any]) -> list[Any]:
    """The values where flags hold, `Zero` elsewhere."""
    rest = iter(values)
    return [next(rest) if flag else Zero(tangent_aval(aval)) for flag, aval in zip(flags, avals, strict=True)]


def spread_cotangents(outs: Iterable[Any], arrives: Iterable[bool], operands: Sequence[Any], linear: Sequence[bool],
                      ) -> list[Any]:
    """For linear operands the cotangents, `Zero` where none arrives; None for the others."""
    outs, arrives = iter(outs), iter(arrives)
    return [None if not flag else (next(outs) if next(arrives) else Zero(cotangent_aval(operand.aval)))
            for operand, flag in zip(operands, linear, strict=True)]


def _jvp(primitive: Primitive, primals: Sequence[Any], tangents: Sequence[Any], *, jaxpr: ClosedJaxpr, **params: Any) -> Any:
    nonzero = nonzero_flags(tangents)
    program, consts, out_nonzero = jvp_jaxpr(jaxpr, nonzero, False)
    active = [typed_as(primal, tangent) for primal, tangent in zip(primals, tangents, strict=True) if type(tangent) is not Zero]

    def said() -> Said:
        ins, outs = said_of(params, len(nonzero), len(out_nonzero))
        return [*ins, *pick(ins, nonzero)], [*outs, *pick(outs, out_nonzero)]

    outs = _call(primitive, program, [*consts, *primals, *active], params, said)
    count = len(jaxpr.out_avals)
    return outs[:count], spread_tangents(outs[count:], out_nonzero, jaxpr.out_avals)


def _linearize(primitive: Primitive, of_tangents: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], *,
               jaxpr: ClosedJaxpr, **params: Any) -> Any:
    nonzero = nonzero_flags(tangents)
    split = linearize_jaxpr(jaxpr, nonzero)
    told = said_of(params, len(nonzero), split.num_outs)
    outs = _call(primitive, split.primal, [*split.consts, *primals], params, lambda: told)
    if not any(split.nonzero_out):
        return outs[:split.num_outs], [zero_for(out) for out in outs[:split.num_outs]]
    tangents_out = _call(primitive, split.tangent, [*split.residuals(outs, primals), *pick(tangents, nonzero)],
                         of_tangents(params),
                         lambda: (pick(told[0], nonzero), pick(told[1], split.nonzero_out)))
    return outs[:split.num_outs], spread_tangents(tangents_out, split.nonzero_out, jaxpr.out_avals)


def transpose_call(primitive: Primitive, cotangents: Sequence[Any], *operands: Any, jaxpr: ClosedJaxpr,
                   **params: Any) -> list[Any]:
    linear = [is_linear(operand) for operand in operands]
    nonzero = nonzero_flags(cotangents)
    program, consts, arrives, logged = backward_jaxpr(jaxpr, linear, nonzero)

    def said() -> Said:
        ins, outs = said_of(params, len(linear), len(nonzero))
        return [*drop(ins, linear), *pick(outs, nonzero)], pick(pick(ins, linear), arrives)

    outs = _call(primitive, program, [*consts, *drop(operands, linear), *pick(cotangents, nonzero)], params, said)
    return spread_cotangents(log_outputs(outs, logged, primitive), arrives, operands, linear)


def _batch(primitive: Primitive, axis: Axis, args: Sequence[Any], dims: Sequence[int | None], *, jaxpr: ClosedJaxpr,
           **params: Any) -> tuple[list[Any], list[int | None]]:
    program, consts, batched = batch_jaxpr(jaxpr, axis, dims)

    def said() -> Said:
        ins, outs = said_of(params, len(args), len(batched))
        return ([_batched(sharding, axis, dim) for sharding, dim in zip(ins, dims, strict=True)],
                [_batched(sharding, axis, place_of(flag)) for sharding, flag in zip(outs, batched, strict=True)])

    outs = _call(primitive, program, [*consts, *args], params, said)
    return outs, [place_of(flag) for flag in batched]


def _batched(sharding: Any, axis: Axis, dim: int | None) -> Any:
    """The sharding of a batch, which is cut along `spmd_axis_name` if `vmap` was given that."""
    if sharding is None or dim is None:
        return sharding
    entries = [*sharding.spec, *[None] * (dim - len(sharding.spec))]
    entries.insert(dim, axis.spmd_name or None)
    return sharding.update(spec=sharding.spec.update(partitions=entries))


class _Renamed:
    """A primitive that has its program in another param, as the rules bind it."""

    __slots__ = ("primitive", "param")

    def __init__(self, primitive: Primitive, param: str):
        self.primitive, self.param = primitive, param

    def bind(self, *operands: Any, jaxpr: ClosedJaxpr, **params: Any) -> Any:
        return self.primitive.bind(*operands, **{self.param: jaxpr}, **params)


def call_rule(rule: Callable[..., Any], primitive: Primitive, param: str, *options: Any) -> Callable[..., Any]:
    """One of the rules above for a primitive that has its program in `param`."""
    if param == "jaxpr":
        return partial(rule, primitive, *options)
    renamed: Any = _Renamed(primitive, param)
    return lambda *args, **params: rule(renamed, *options, *args, jaxpr=params.pop(param), **params)


def give_call_rules(primitive: Primitive, of_tangents: Callable[..., Any] = lambda params: params,
                    param: str = "jaxpr") -> None:
    """Give the rules of calls to a primitive. `of_tangents` makes the params of the call that gives tangents."""
    primitive.jvp = call_rule(_jvp, primitive, param)
    primitive.linearize = call_rule(_linearize, primitive, param, of_tangents)
    primitive.transpose, primitive.batching = call_rule(transpose_call, primitive, param), call_rule(_batch, primitive, param)


give_call_rules(jit_p, lambda params: {**params, "compiler_options_kvs": ()} if params.get("compiler_options_kvs") else params)
