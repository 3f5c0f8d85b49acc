"""Discharge of calls, branches and loops: the values of the Refs that they write become results and carries."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from jaxlite.compilation.dispatch import free, jit_p
from jaxlite.compilation.jit import jit
from jaxlite.compilation.references import run_on_values
from jaxlite.core.aval import AbstractRef
from jaxlite.core.discharge import discharge_jaxpr, discharges, pure_equation
from jaxlite.core.jaxpr import ClosedJaxpr, JaxprEqn, eval_jaxpr
from jaxlite.core.refs import Ref
from jaxlite.core.sharing import derived_once
from jaxlite.core.values import aval_of
from jaxlite.lax.control_flow.cond import cond_p
from jaxlite.lax.control_flow.scan import scan_p
from jaxlite.lax.control_flow.while_loop import while_p
from jaxlite.state.primitives import freeze_p, new_ref_p
from jaxlite.traces.custom_rules import custom_jvp_call_p, custom_vjp_call_p
from jaxlite.traces.eager import eager_trace
from jaxlite.traces.remat_rules import checkpoint_p


@discharges(jit_p, checkpoint_p)
def _call(eqn: JaxprEqn, values: list[Any]) -> Any:
    found = discharge_jaxpr(eqn.params["jaxpr"])
    params = {**eqn.params, "jaxpr": found.closed}
    for name in ("out_shardings", "out_layouts"):
        if name in params:
            params[name] = (*params[name], *free(len(found.written)))
    outs = eqn.primitive.bind(*values, **params)
    count = len(eqn.outvars)
    return outs[:count], dict(zip(found.written, outs[count:], strict=True))


@discharges(cond_p)
def _cond(eqn: JaxprEqn, values: list[Any]) -> Any:
    params = eqn.params
    branches = [discharge_jaxpr(branch) for branch in params["branches"]]
    written = sorted({index for found in branches for index in found.written})
    count = len(eqn.outvars)
    programs = []
    for found in branches:
        jaxpr = found.closed.jaxpr
        last = dict(zip(found.written, jaxpr.outvars[count:], strict=True))
        outs = [*jaxpr.outvars[:count], *(last.get(index, jaxpr.invars[index]) for index in written)]
        programs.append(ClosedJaxpr(jaxpr.replace(outvars=outs), []))
    outs = cond_p.bind(*values, **{**params, "branches": tuple(programs)})
    return outs[:count], {index + 1: value for index, value in zip(written, outs[count:], strict=True)}


@discharges(scan_p)
def _scan(eqn: JaxprEqn, values: list[Any]) -> Any:
    params = eqn.params
    num_consts, num_carry = params["num_consts"], params["num_carry"]
    found = discharge_jaxpr(params["jaxpr"])
    jaxpr, written = found.closed.jaxpr, found.written
    order = [*(index for index in range(num_consts) if index not in written), *written,
             *range(num_consts, len(jaxpr.invars))]
    count = len(eqn.outvars)
    program = jaxpr.replace(invars=[jaxpr.invars[index] for index in order],
                            outvars=[*jaxpr.outvars[count:], *jaxpr.outvars[:count]])
    outs = scan_p.bind(*[values[index] for index in order], **{
        **params, "jaxpr": ClosedJaxpr(program, []), "num_consts": num_consts - len(written),
        "num_carry": num_carry + len(written)})
    return outs[len(written):], dict(zip(written, outs[:len(written)], strict=True))


@discharges(while_p)
def _while(eqn: JaxprEqn, values: list[Any]) -> Any:
    """The Refs that the body writes become carries, of the condition too; the condition reads only."""
    params = eqn.params
    num_cond, num_body = params["cond_nconsts"], params["body_nconsts"]
    condition, body = discharge_jaxpr(params["cond_jaxpr"]), discharge_jaxpr(params["body_jaxpr"])
    if condition.written:
        raise ValueError("the condition of a while_loop writes to a mutable array; only its body may")
    own, count = body.closed.jaxpr, len(eqn.outvars)
    atoms = eqn.invars[num_cond:num_cond + num_body]
    carried = list(body.written)  # positions among the constants of the body
    kept = [index for index in range(num_body) if index not in carried]
    shared = {index: carried_at for index, atom in enumerate(eqn.invars[:num_cond])
              for carried_at, position in enumerate(carried) if atoms[position] is atom}
    body_program = own.replace(
        invars=[own.invars[index] for index in (*kept, *carried, *range(num_body, len(own.invars)))],
        outvars=[*own.outvars[count:], *own.outvars[:count]])
    test = condition.closed.jaxpr
    cond_kept = [index for index in range(num_cond) if index not in shared]
    extra = [own.invars[position] for position in carried]
    for index, carried_at in shared.items():
        extra[carried_at] = test.invars[index]
    cond_program = test.replace(invars=[*(test.invars[index] for index in cond_kept), *extra, *test.invars[num_cond:]])
    outs = while_p.bind(
        *[values[index] for index in cond_kept], *[values[num_cond + index] for index in (*kept, *carried)],
        *values[num_cond + num_body:], cond_jaxpr=ClosedJaxpr(cond_program, []), body_jaxpr=ClosedJaxpr(body_program, []),
        cond_nconsts=len(cond_kept), body_nconsts=len(kept))
    changed = {num_cond + position: value for position, value in zip(carried, outs, strict=False)}
    return outs[len(carried):], changed


# --- eager calls, with Refs that bodies close over ---------------------------------------------------


def _run(primitive: Any, *args: Any, **params: Any) -> Any:
    if not any(type(arg) is Ref for arg in args):
        return eager_trace.run_compiled(primitive, args, params)
    found = pure_equation(primitive, args, [aval_of(arg) for arg in args], params)

    def compiled(closed: ClosedJaxpr) -> Any:
        def run(*values: Any) -> list[Any]:
            return eval_jaxpr(closed.jaxpr, [], *values)

        run.__name__ = run.__qualname__ = primitive.name
        return jit(run, donate_argnums=found.written)

    call = derived_once(found.closed, ("call", primitive, found.written), compiled)
    return run_on_values(found, call, args)


for _p in (cond_p, scan_p, while_p):
    _p.def_eager(partial(_run, _p))


# --- functions with derivatives of their own ---------------------------------------------------------


def _on_values(avals: Sequence[Any], values: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Operands with new Refs for values of Refs; and those Refs, or None."""
    refs = [new_ref_p.bind(value, memory_space=aval.memory_space, kind=aval.kind) if type(aval) is AbstractRef else None
            for aval, value in zip(avals, values, strict=True)]
    return [value if ref is None else ref for value, ref in zip(values, refs, strict=True)], refs


@discharges(custom_jvp_call_p)
def _custom_jvp(eqn: JaxprEqn, values: list[Any]) -> Any:
    params, avals = eqn.params, [atom.aval for atom in eqn.invars[eqn.params["num_consts"]:]]
    found = discharge_jaxpr(params["call_jaxpr"])
    written = [index - params["num_consts"] for index in found.written]
    rule = params["jvp"]

    def jvp(*operands: Any) -> list[Any]:
        half = len(operands) // 2
        primals, refs = _on_values(avals, operands[:half])
        dots, dot_refs = _on_values(avals, operands[half:])
        outs = rule(*primals, *dots)
        split = len(outs) // 2
        return [*outs[:split], *_last(refs, written), *outs[split:], *_last(dot_refs, written)]

    return _custom(eqn, values, found, {**params, "jvp": jvp})


@discharges(custom_vjp_call_p)
def _custom_vjp(eqn: JaxprEqn, values: list[Any]) -> Any:
    params, avals = eqn.params, [atom.aval for atom in eqn.invars[eqn.params["num_consts"]:]]
    found = discharge_jaxpr(params["call_jaxpr"])
    written = [index - params["num_consts"] for index in found.written]
    forward, backward, count = params["fwd"], params["bwd"], len(eqn.outvars)

    def fwd(primals: Sequence[Any], perturbed: Sequence[bool]) -> tuple[list[Any], list[Any]]:
        primals, refs = _on_values(avals, primals)
        outs, residuals = forward(primals, perturbed)
        return [*outs, *_last(refs, written)], residuals

    def bwd(residuals: Sequence[Any], cotangents: Sequence[Any], targets: Sequence[Any]) -> list[Any]:
        return backward(residuals, cotangents[:count], targets)

    return _custom(eqn, values, found, {**params, "fwd": fwd, "bwd": bwd})


def _last(refs: Sequence[Any], written: Sequence[int]) -> list[Any]:
    return [freeze_p.bind(refs[index]) for index in written]


def _custom(eqn: JaxprEqn, values: list[Any], found: Any, params: dict[str, Any]) -> Any:
    outs = eqn.primitive.bind(*values, **{**params, "call_jaxpr": found.closed})
    count = len(eqn.outvars)
    return outs[:count], dict(zip(found.written, outs[count:], strict=True))
