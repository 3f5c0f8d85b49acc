"""The forward function of a custom_vjp function with `optimize_remat`: an equation that can drop its residuals.

If the residuals are unused, as in the forward pass of a checkpoint, the equation is replaced by a call of the primal
function. Dead-code elimination could not do this if the forward function calls a kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jaxlite.core.jaxpr import ClosedJaxpr, Jaxpr, JaxprEqn, Var, derived, pick
from jaxlite.core.primitive import Primitive
from jaxlite.core.staging import runs_program, trace_to_jaxpr
from jaxlite.core.values import aval_of
from jaxlite.traces.batching import Axis, batch_jaxpr
from jaxlite.traces.decompose import rules_by_parts
from jaxlite.traces.saving import for_results, narrowing, read_inputs, with_inputs

remat_opt_p = Primitive("remat_opt", multiple_results=True, memoise="fwd_jaxpr")
runs_program(remat_opt_p, "fwd_jaxpr")
rules_by_parts(remat_opt_p, "fwd_jaxpr")


def forward(fwd: Callable[..., Sequence[Any]], fun: Callable[..., Sequence[Any]], args: Sequence[Any], count: Callable[[], int],
            ) -> list[Any]:
    """Bind the equation.

    Args: `fwd` gives residuals and results, `fun` the results, of flat values; `count` how many residuals, once `fwd` has run.
    Returns: what `fwd` returns.
    """
    avals = [aval_of(arg) for arg in args]
    programs = [trace_to_jaxpr(each, avals) for each in (fwd, fun)]
    consts = [const for _, own in programs for const in own]
    return remat_opt_p.bind(*consts, *args, num_consts=len(consts), num_res=count(),
                            **dict(zip(("fwd_jaxpr", "fun_jaxpr"), _alike([jaxpr for jaxpr, _ in programs]), strict=True)))


def _alike(jaxprs: Sequence[Jaxpr]) -> list[ClosedJaxpr]:
    """Programs of the same inputs, in front of which each takes the constvars of all."""
    closed = []
    for jaxpr in jaxprs:
        front = [var if each is jaxpr else Var(var.aval) for each in jaxprs for var in each.constvars]
        closed.append(ClosedJaxpr(jaxpr.replace(constvars=[], invars=[*front, *jaxpr.invars]), []))
    return closed


@remat_opt_p.def_batching
def _batch(axis: Axis, args: Sequence[Any], dims: Sequence[int | None], *, fwd_jaxpr: ClosedJaxpr, fun_jaxpr: ClosedJaxpr,
           num_consts: int, num_res: int) -> Any:
    batched = [batch_jaxpr(each, axis, dims, True) for each in (fwd_jaxpr, fun_jaxpr)]
    consts = [const for _, own, _ in batched for const in own]
    jaxprs = [program.jaxpr.replace(constvars=program.jaxpr.invars[:len(own)], invars=program.jaxpr.invars[len(own):])
              for program, own, _ in batched]
    fwd, fun = _alike(jaxprs)
    outs = remat_opt_p.bind(*consts, *args, fwd_jaxpr=fwd, fun_jaxpr=fun, num_consts=len(consts) + num_consts, num_res=num_res)
    return outs, [0] * len(outs)


def _narrow(eqn: JaxprEqn, used: list[bool]) -> JaxprEqn:
    params = eqn.params
    fwd, fun, count = params["fwd_jaxpr"], params["fun_jaxpr"], params["num_res"]

    def make() -> tuple[ClosedJaxpr | None, ClosedJaxpr | None, list[bool]]:
        later = for_results(fun.jaxpr, used[count:])
        first = for_results(fwd.jaxpr, used) if any(used[:count]) else later
        read = [one or other for one, other in zip(read_inputs(first), read_inputs(later), strict=True)]
        return with_inputs(fwd, first, read), with_inputs(fun, later, read), read

    first, later, read = derived(fwd, ("narrow", fun, count, *used), make)
    if first is later is None:
        return eqn
    return eqn.replace(invars=pick(eqn.invars, read), outvars=pick(eqn.outvars, used), params={
        "fwd_jaxpr": first or fwd, "fun_jaxpr": later or fun, "num_res": sum(used[:count]),
        "num_consts": sum(read[:params["num_consts"]])})


narrowing[remat_opt_p] = _narrow
