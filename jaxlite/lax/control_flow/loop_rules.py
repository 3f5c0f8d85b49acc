"""Derivative and batching rules of `scan` and `while`.

A fixed-point iteration finds the leaves of the carry that have a tangent (or a batch axis): a leaf has one if its initial
value does, or if another leaf passes it on in the body.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from jaxlite.core import dtypes
from jaxlite.core.aval import ShapedArray
from jaxlite.core.effects import check_harmless
from jaxlite.core.jaxpr import ClosedJaxpr, Jaxpr, JaxprEqn, Var, derived, eval_jaxpr, no_effects, pick
from jaxlite.core.primitive import PRIMITIVES
from jaxlite.core.staging import hoist_consts, trace_to_jaxpr
from jaxlite.core.values import aval_of
from jaxlite.lax import shaping
from jaxlite.lax.control_flow.recomputed import cheaper
from jaxlite.lax.control_flow.scan import scan_p
from jaxlite.lax.control_flow.while_loop import while_p
from jaxlite.lax.elementwise import select_n
from jaxlite.lax.reductions import reduce_or
from jaxlite.traces.backward_logs import log_outputs, with_log
from jaxlite.traces.batching import Axis, batch_jaxpr, bring, bring_to_front
from jaxlite.traces.call_rules import spread_tangents
from jaxlite.traces.jvp import Zero, add_tangents, cotangent_aval, instantiate, jvp_jaxpr, nonzero_flags, tangent_aval
from jaxlite.traces.linearize import SplitJaxpr, linearize_jaxpr
from jaxlite.traces.partial import dce_jaxpr
from jaxlite.traces.saving import Split, for_results, keep_inside, keeping, narrowing, read_inputs, with_inputs
from jaxlite.traces.transpose import Linear, backward, is_linear
from lowering.passes.dce import live_parts
from lowering.rules import register_decomposition

# Elements that a loop transposes in all its steps, and their part of all that it computes, from which on it pays to transpose
# the arrays that it starts from.
_TRANSPOSED, _TRANSPOSED_SHARE = 500_000, 1 / 6


def _rearranged(closed: ClosedJaxpr, inputs: Sequence[int], outputs: Sequence[int]) -> ClosedJaxpr:
    """The same program with its inputs and outputs in another order."""
    jaxpr = closed.jaxpr
    return ClosedJaxpr(jaxpr.replace(invars=[jaxpr.invars[index] for index in inputs],
                                     outvars=[jaxpr.outvars[index] for index in outputs]), [])


def _fixpoint(start: Sequence[bool], step: Callable[[list[bool]], tuple[Any, Sequence[bool]]]) -> tuple[Any, list[bool]]:
    """Go round until the flags of the carry do not change; gives the last result and the flags."""
    carry = list(start)
    while True:
        result, out = step(carry)
        merged = [before or after for before, after in zip(carry, out, strict=True)]
        if merged == carry:
            return result, carry
        carry = merged


# --- scan: derivatives -------------------------------------------------------------------------------


@scan_p.def_jvp
def _scan_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, jaxpr: ClosedJaxpr, num_consts: int, num_carry: int,
              **params) -> tuple[list[Any], list[Any]]:
    split = num_consts + num_carry
    nonzero = nonzero_flags(tangents)
    const_flags, xs_flags = nonzero[:num_consts], nonzero[split:]
    num_ys = len(jaxpr.out_avals) - num_carry

    def step(carry: list[bool]):
        result = jvp_jaxpr(jaxpr, [*const_flags, *carry, *xs_flags], [*carry, *[False] * num_ys])
        return result, result[2][:num_carry]

    (program, consts, out_nonzero), carry_flags = _fixpoint(nonzero[num_consts:split], step)
    # The program takes consts, primals, tangents: bring each kind together.
    extra, count = len(consts), len(primals)
    flags = [*const_flags, *carry_flags, *xs_flags]
    places = iter(range(extra + count, extra + count + sum(flags)))
    dots = [next(places) if flag else None for flag in flags]

    def group(low: int, high: int) -> list[int]:
        own = [dot for dot in dots[low:high] if dot is not None]
        return [*range(extra + low, extra + high), *own]

    order = [*range(extra), *group(0, num_consts), *group(num_consts, split), *group(split, count)]
    outs_dots = iter(range(len(jaxpr.out_avals), len(jaxpr.out_avals) + sum(out_nonzero)))
    out_dots = [next(outs_dots) if flag else None for flag in out_nonzero]
    carry_out = [*range(num_carry), *[out_dots[index] for index in range(num_carry) if out_nonzero[index]]]
    ys_out = [*range(num_carry, num_carry + num_ys),
              *[out_dots[index] for index in range(num_carry, num_carry + num_ys) if out_nonzero[index]]]
    body = derived(program, "scan_jvp", lambda: _rearranged(program, order, [*carry_out, *ys_out]))
    carry_tangents = [instantiate(tangent) for tangent, flag in zip(tangents[num_consts:split], carry_flags, strict=True)
                      if flag]
    outs = scan_p.bind(
        *consts, *primals[:num_consts], *pick(tangents[:num_consts], const_flags), *primals[num_consts:split], *carry_tangents,
        *primals[split:], *pick(tangents[split:], xs_flags), jaxpr=body, num_consts=extra + num_consts + sum(const_flags),
        num_carry=num_carry + sum(carry_flags), **params)
    wide = num_carry + sum(carry_flags)
    results = [*outs[:num_carry], *outs[wide:wide + num_ys]]
    dotted = [*outs[num_carry:wide], *outs[wide + num_ys:]]
    return results, spread_tangents(dotted, out_nonzero, [aval_of(out) for out in results])


class _LinearScan:
    """How a scan is split: what its primal loop also gives, and the loop of tangents."""

    __slots__ = ("primal", "tangent", "hoisted", "sources", "nonzero_out", "num_saved", "split")

    primal: ClosedJaxpr
    tangent: ClosedJaxpr
    hoisted: ClosedJaxpr
    sources: list[tuple[str, int]]
    nonzero_out: list[bool]
    num_saved: int
    split: SplitJaxpr


def _invariant(jaxpr: Jaxpr, inputs: Sequence[Var]) -> set[Any]:
    """The variables that depend on these inputs alone."""
    known: set[Any] = set(inputs)
    for eqn in jaxpr.eqns:
        if not eqn.effects and all(type(atom) is not Var or atom in known for atom in eqn.invars):
            known.update(eqn.outvars)
    return known


def _split_scan(split: SplitJaxpr, num_consts: int, num_carry: int, num_ys: int, flags: Sequence[bool]) -> _LinearScan:
    """Say of each residual where the loop of tangents finds it: it does not change (computed once, outside), it is an
    element of an input or of a result, the primal loop saves it in each step, or it is computed again of such."""
    primal = split.primal.jaxpr
    extra = len(split.consts)
    fixed = primal.invars[:extra + num_consts]
    invariant = _invariant(primal, fixed)
    ys = primal.outvars[num_carry:num_carry + num_ys]
    inputs = {var: index - extra for index, var in enumerate(primal.invars)}
    residuals = split.residuals(primal.outvars, primal.invars[extra:])
    xs = primal.invars[extra + num_consts + num_carry:]
    free = {*invariant, *xs, *[atom for atom in ys if type(atom) is Var]}
    atoms, tangent = cheaper(primal, split.tangent.jaxpr, residuals, free)
    hoisted: list[Any] = []
    saved: list[Any] = []
    sources: list[tuple[str, int]] = []
    for atom in atoms:
        index = inputs.get(atom, -1)
        if 0 <= index < num_consts:
            sources.append(("const", index))
        elif index >= num_consts + num_carry:
            sources.append(("xs", index - num_consts - num_carry))
        elif type(atom) is not Var or atom in invariant:
            sources.append(("hoisted", len(hoisted)))
            hoisted.append(atom)
        elif atom in ys:
            sources.append(("ys", ys.index(atom)))
        else:
            sources.append(("saved", len(saved)))
            saved.append(atom)
    result = _LinearScan()
    loop = primal.replace(outvars=[*primal.outvars[:split.num_outs], *saved])
    result.primal = ClosedJaxpr(loop.replace(eqns=live_parts(loop)[0]), [])
    pure = [eqn for eqn in primal.eqns if not eqn.effects]  # effects stay in the loop
    outside = primal.replace(invars=fixed, outvars=hoisted, eqns=pure, effects=no_effects)
    result.hoisted = ClosedJaxpr(outside.replace(eqns=live_parts(outside)[0]), [])
    result.sources, result.num_saved, result.split = sources, len(saved), split
    result.nonzero_out = split.nonzero_out
    # The tangent program takes residuals, then tangents of consts, carry, xs: residuals that do not change become consts,
    # the others xs.
    steady = [index for index in range(len(sources)) if sources[index][0] in ("const", "hoisted")]
    moving = [index for index in range(len(sources)) if index not in steady]
    places = iter(range(len(sources), len(sources) + sum(flags)))
    dots = [next(places) if flag else None for flag in flags]
    split_at = num_consts + num_carry
    order = [*steady, *[dot for dot in dots[:num_consts] if dot is not None],
             *[dot for dot in dots[num_consts:split_at] if dot is not None],
             *moving, *[dot for dot in dots[split_at:] if dot is not None]]
    result.tangent = _rearranged(tangent, order, range(len(tangent.jaxpr.outvars)))
    return result


def _scan_linearize(primals: Sequence[Any], tangents: Sequence[Any], *, jaxpr: ClosedJaxpr, num_consts: int,
                    num_carry: int, **params) -> tuple[list[Any], list[Any]]:
    at = num_consts + num_carry
    nonzero = nonzero_flags(tangents)
    const_flags, xs_flags = nonzero[:num_consts], nonzero[at:]
    num_ys = len(jaxpr.out_avals) - num_carry

    def step(carry: list[bool]):
        result = linearize_jaxpr(jaxpr, [*const_flags, *carry, *xs_flags], [*carry, *[False] * num_ys])
        return result, result.nonzero_out[:num_carry]

    split, carry_flags = _fixpoint(nonzero[num_consts:at], step)
    flags = [*const_flags, *carry_flags, *xs_flags]
    program: _LinearScan = derived(split, "scan_linearize",
                                   lambda: _split_scan(split, num_consts, num_carry, num_ys, flags))
    consts, carry, xs = primals[:num_consts], primals[num_consts:at], primals[at:]
    outs = scan_p.bind(*split.consts, *consts, *carry, *xs, jaxpr=program.primal,
                       num_consts=len(split.consts) + num_consts, num_carry=num_carry, **params)
    results, saved = outs[:num_carry + num_ys], outs[num_carry + num_ys:]
    hoisted = eval_jaxpr(program.hoisted.jaxpr, [], *split.consts, *consts)
    values = {"const": consts, "hoisted": hoisted, "xs": xs, "ys": results[num_carry:], "saved": saved}
    steady = [values[kind][index] for kind, index in program.sources if kind in ("const", "hoisted")]
    moving = [values[kind][index] for kind, index in program.sources if kind not in ("const", "hoisted")]
    const_dots = pick(tangents[:num_consts], const_flags)
    carry_dots = [instantiate(tangent) for tangent, flag in zip(tangents[num_consts:at], carry_flags, strict=True) if flag]
    if not any(program.nonzero_out):
        return results, [Zero(tangent_aval(aval_of(out))) for out in results]
    dots = scan_p.bind(*steady, *const_dots, *carry_dots, *moving, *pick(tangents[at:], xs_flags), jaxpr=program.tangent,
                       num_consts=len(steady) + len(const_dots), num_carry=len(carry_dots), **params)
    return results, spread_tangents(dots, program.nonzero_out, [aval_of(out) for out in results])


scan_p.linearize = _scan_linearize


# --- scan: what a recomputation keeps ----------------------------------------------------------------


def _keep_in_scan(eqn: JaxprEqn, policy: Callable[..., Any]) -> Split | None:
    """The loop also stacks the kept values of each step; the loop that computes the rest reads them as inputs of its steps."""
    length = eqn.params["length"]
    return keep_inside(eqn, policy, lambda aval: aval.update(shape=(length, *aval.shape)))


def _needed_in_scan(closed: ClosedJaxpr, num_consts: int, num_carry: int, used: Sequence[bool],
                    ) -> tuple[ClosedJaxpr | None, list[bool], list[bool]]:
    """The body without what the results that are used do not need, None if that is nothing; which of its inputs it still has,
    and which of the carry."""
    at = num_consts + num_carry

    def step(carry: list[bool]):
        body = for_results(closed.jaxpr, [*carry, *used[num_carry:]])
        return body, read_inputs(body)[num_consts:at]

    def make() -> tuple[ClosedJaxpr | None, list[bool], list[bool]]:
        body, carry = _fixpoint(used[:num_carry], step)
        read = read_inputs(body)
        flags = [*read[:num_consts], *carry, *read[at:]]
        return with_inputs(closed, body, flags), flags, carry

    return derived(closed, ("scan_needed", num_consts, num_carry, *used), make)


def _narrow_scan(eqn: JaxprEqn, used: list[bool]) -> JaxprEqn:
    params = eqn.params
    num_consts, num_carry = params["num_consts"], params["num_carry"]
    body, flags, carry = _needed_in_scan(params["jaxpr"], num_consts, num_carry, used)
    if body is None:
        return eqn
    return eqn.replace(
        invars=pick(eqn.invars, flags), outvars=pick(eqn.outvars, [*carry, *used[num_carry:]]),
        params={**params, "jaxpr": body, "num_consts": sum(flags[:num_consts]), "num_carry": sum(carry)})


keeping[scan_p], narrowing[scan_p] = _keep_in_scan, _narrow_scan


@scan_p.def_transpose
def _scan_transpose(cotangents: Sequence[Any], *operands, jaxpr: ClosedJaxpr, num_consts: int, num_carry: int,
                    reverse: bool, **params) -> list[Any]:
    at = num_consts + num_carry
    used = nonzero_flags(cotangents)
    if not all(used[:num_carry]):
        body, flags, kept = _needed_in_scan(jaxpr, num_consts, num_carry, used)
        if body is not None and not all(kept):  # what no cotangent comes back to
            fewer = iter(_scan_transpose(
                [*pick(cotangents[:num_carry], kept), *pick(cotangents[num_carry:], used[num_carry:])], *pick(operands, flags),
                jaxpr=body, num_consts=sum(flags[:num_consts]), num_carry=sum(kept), reverse=reverse, **params))
            return [next(fewer) if flag else None for flag in flags]
    linear = [is_linear(operand) for operand in operands]
    carried = linear[num_consts:at]
    moving = carried if all(carried) else _linear_carry(jaxpr.jaxpr, linear, num_consts, num_carry)
    if not all(moving):
        return _transpose_beside_known(cotangents, operands, jaxpr, num_consts, moving, reverse=reverse, **params)
    # The body is linear in all of the carry then, also in leaves that start from zeros made outside.
    linear[num_consts:at] = [True] * num_carry
    nonzero_ys = nonzero_flags(cotangents[num_carry:])
    avals = jaxpr.in_avals
    known_consts = [index for index in range(num_consts) if not linear[index]]
    linear_consts = [index for index in range(num_consts) if linear[index]]
    known_xs = [index for index in range(at, len(operands)) if not linear[index]]
    linear_xs = [index for index in range(at, len(operands)) if linear[index]]

    def make() -> tuple[ClosedJaxpr, list[Any], Any]:
        logged: Any = None

        def body(*values) -> list[Any]:
            nonlocal logged
            rest = iter(values)
            take = lambda indices: {index: next(rest) for index in indices}
            fixed = take(known_consts)
            totals = [next(rest) for _ in linear_consts]
            carry = [next(rest) for _ in range(num_carry)]
            elements = take(known_xs)
            ys = [next(rest) if flag else Zero(cotangent_aval(aval))
                  for flag, aval in zip(nonzero_ys, jaxpr.out_avals[num_carry:], strict=True)]
            known = {**fixed, **elements}
            args = [known[index] if index in known else Linear(aval) for index, aval in enumerate(avals)]
            outs, extra, logged = with_log(backward, jaxpr.jaxpr, [], args, [*carry, *ys])
            totals = [add_tangents(total, outs[index]) for total, index in zip(totals, linear_consts, strict=True)]
            return [*totals, *map(instantiate, outs[num_consts:at]), *[instantiate(outs[index]) for index in linear_xs], *extra]

        in_avals = [*[avals[index] for index in known_consts], *[cotangent_aval(avals[index]) for index in linear_consts],
                    *[cotangent_aval(aval) for aval in jaxpr.out_avals[:num_carry]], *[avals[index] for index in known_xs],
                    *[cotangent_aval(aval) for aval, flag in zip(jaxpr.out_avals[num_carry:], nonzero_ys, strict=True) if flag]]
        traced, consts = trace_to_jaxpr(body, in_avals, jaxpr.jaxpr.debug_info)
        return hoist_consts(traced), consts, logged

    program, consts, logged = derived(jaxpr, ("scan_transpose", *linear, None, *nonzero_ys), make)
    totals = [instantiate(Zero(cotangent_aval(avals[index]))) for index in linear_consts]
    outs = scan_p.bind(
        *consts, *[operands[index] for index in known_consts], *totals, *map(instantiate, cotangents[:num_carry]),
        *[operands[index] for index in known_xs], *pick(cotangents[num_carry:], nonzero_ys), jaxpr=program,
        num_consts=len(consts) + len(known_consts), num_carry=len(linear_consts) + num_carry, reverse=not reverse, **params)
    outs = log_outputs(outs, logged, scan_p)
    results: list[Any] = [None] * len(operands)
    for index, out in zip([*linear_consts, *range(num_consts, at), *linear_xs], outs, strict=True):
        if not num_consts <= index < at or carried[index - num_consts]:
            results[index] = out
    return results


def _linear_carry(jaxpr: Jaxpr, linear: Sequence[bool], num_consts: int, num_carry: int) -> list[bool]:
    """For each leaf of the carry whether it depends on linear operands; others are a counter, say, known beforehand."""

    def step(carry: list[bool]):
        flags = [*linear[:num_consts], *carry, *linear[num_consts + num_carry:]]
        reached = {var for var, flag in zip(jaxpr.invars, flags, strict=True) if flag}
        for eqn in jaxpr.eqns:
            if not reached.isdisjoint(eqn.invars):
                reached.update(eqn.outvars)
        return None, [type(var) is Var and var in reached for var in jaxpr.outvars[:num_carry]]

    return _fixpoint(linear[num_consts:num_consts + num_carry], step)[1]


def _transpose_beside_known(cotangents: Sequence[Any], operands: Sequence[Any], jaxpr: ClosedJaxpr, num_consts: int,
                            moving: Sequence[bool], **params) -> list[Any]:
    """The transposition where some leaves of the carry are known: a scan of these alone gives what each step reads of them,
    and the rest is a scan over that."""
    at = num_consts + len(moving)
    known = [index for index, flag in enumerate(moving) if not flag]
    rest = [index for index, flag in enumerate(moving) if flag]
    places = [num_consts + index for index in known]
    elements = range(at, len(operands))

    def make() -> tuple[ClosedJaxpr, list[bool], ClosedJaxpr]:
        body = jaxpr.jaxpr
        advance, read = dce_jaxpr(body.replace(outvars=[body.outvars[index] for index in known]), True,
                                  [index in places for index in range(len(operands))])
        advance = advance.replace(outvars=[*advance.outvars, *[body.invars[index] for index in places]])
        order = [*range(num_consts), *[num_consts + index for index in rest], *elements, *places]
        return ClosedJaxpr(advance, []), read, _rearranged(jaxpr, order, [*rest, *range(len(moving), len(body.outvars))])

    advance, read, remaining = derived(jaxpr, ("scan_known", *moving), make)
    consts = [operand for operand, flag in zip(operands[:num_consts], read, strict=False) if flag]
    saved = scan_p.bind(*consts, *[operands[index] for index in places],
                        *[operands[index] for index in elements if read[index]],
                        jaxpr=advance, num_consts=len(consts), num_carry=len(known), **params)[len(known):]
    fewer = [*operands[:num_consts], *[operands[num_consts + index] for index in rest], *operands[at:], *saved]
    found = _scan_transpose([*[cotangents[index] for index in rest], *cotangents[len(moving):]], *fewer, jaxpr=remaining,
                            num_consts=num_consts, num_carry=len(rest), **params)
    results: list[Any] = [None] * len(operands)
    for index, out in zip([*range(num_consts), *[num_consts + index for index in rest], *elements], found, strict=False):
        results[index] = out
    return results


# --- scan: batching ----------------------------------------------------------------------------------


@scan_p.def_batching
def _scan_batch(axis: Axis, args: Sequence[Any], dims: Sequence[int | None], *, jaxpr: ClosedJaxpr, num_consts: int,
                num_carry: int, **params) -> tuple[list[Any], list[int | None]]:
    at = num_consts + num_carry
    num_ys = len(jaxpr.out_avals) - num_carry
    element_dims = [None if dim is None else 0 for dim in dims[at:]]

    def step(carry: list[bool]):
        carry_dims = [0 if flag else None for flag in carry]
        result = batch_jaxpr(jaxpr, axis, [*dims[:num_consts], *carry_dims, *element_dims], [*carry, *[False] * num_ys])
        return result, result[2][:num_carry]

    (program, consts, batched), carry_flags = _fixpoint([dim is not None for dim in dims[num_consts:at]], step)
    flags = [*[dim is not None for dim in dims[:num_consts]], *carry_flags, *[dim is not None for dim in dims[at:]]]
    in_places, out_places = [*[dim or 0 for dim in dims[:num_consts]], *[0] * (len(args) - num_consts)], [0] * len(batched)
    transposed = params["length"] * _transposed(program)
    if type(transposed) is int and transposed >= _TRANSPOSED and not axis.is_short and _gains_from_columns(program):
        # Instead of transposing vectors in each step, it may have them with the batch last, if its other arrays allow it.
        columns, results = _columns(jaxpr.in_avals, in_places), _columns(jaxpr.out_avals, out_places)
        other = batch_jaxpr(jaxpr, axis, [place if flag else None for place, flag in zip(columns, flags, strict=True)],
                            [*carry_flags, *[False] * num_ys], results)
        saved = transposed - params["length"] * _transposed(other[0])
        if not any(results[num_carry:]) and saved >= _TRANSPOSED and other[2] == batched:
            (program, consts, _), in_places, out_places = other, columns, results
    inputs = [bring(arg, dim, axis.size, place + (index >= at)) if flag else arg
              for index, (arg, dim, flag, place) in enumerate(zip(args, dims, flags, in_places, strict=True))]
    outs = scan_p.bind(*consts, *inputs, jaxpr=program, num_consts=len(consts) + num_consts, num_carry=num_carry, **params)
    return outs, [place + (index >= num_carry) if flag else None
                  for index, (flag, place) in enumerate(zip(batched, out_places, strict=True))]


def _transposed(closed: ClosedJaxpr) -> int:
    """The number of elements that a program transposes."""
    return _elements([eqn.outvars[0] for eqn in closed.jaxpr.eqns if eqn.primitive is shaping.transpose_p])


def _elements(variables: Sequence[Var]) -> int:
    avals: list[Any] = [var.aval for var in variables]
    return sum(math.prod(getattr(aval, "shape", ())) for aval in avals)


def _gains_from_columns(closed: ClosedJaxpr) -> bool:
    """Whether transposing takes its time, or costly functions gain, which are vectors along the batch.

    XLA compiles other bodies in two thirds of the time if nothing is transposed before and behind the loop.
    """
    from lowering.passes.operations import COSTLY  # loaded where something is compiled

    if any(eqn.primitive.name in COSTLY for eqn in closed.jaxpr.eqns):
        return True
    return _transposed(closed) >= _TRANSPOSED_SHARE * _elements([var for eqn in closed.jaxpr.eqns for var in eqn.outvars])


def _columns(avals: Sequence[Any], places: Sequence[int]) -> list[int]:
    """Where vectors have the batch if it is last; other arrays, and Refs, have it at `places`."""
    return [1 if type(aval) is ShapedArray and aval.ndim == 1 else place for aval, place in zip(avals, places, strict=True)]


# --- while -------------------------------------------------------------------------------------------


def _with_unread(closed: ClosedJaxpr, position: int, avals: Sequence[Any]) -> ClosedJaxpr:
    """A program that takes more inputs, from a position on, and does not read them."""
    jaxpr = closed.jaxpr
    return ClosedJaxpr(jaxpr.replace(invars=[*jaxpr.invars[:position], *map(Var, avals), *jaxpr.invars[position:]]), [])


def _while_with_tangents(primals: Sequence[Any], tangents: Sequence[Any], cond_jaxpr: ClosedJaxpr, body_jaxpr: ClosedJaxpr,
                         cond_nconsts: int, body_nconsts: int) -> tuple[list[Any], list[Any]]:
    at = cond_nconsts + body_nconsts
    nonzero = nonzero_flags(tangents)
    const_flags = nonzero[cond_nconsts:at]

    def step(carry: list[bool]):
        result = jvp_jaxpr(body_jaxpr, [*const_flags, *carry], carry)
        return result, result[2]

    (program, consts, _), carry_flags = _fixpoint(nonzero[at:], step)
    extra, count, num_carry = len(consts), body_nconsts + len(carry_flags), len(carry_flags)
    first_dot = extra + count
    order = [*range(extra + body_nconsts), *range(first_dot, first_dot + sum(const_flags)),
             *range(extra + body_nconsts, extra + count),
             *range(first_dot + sum(const_flags), first_dot + sum(const_flags) + sum(carry_flags))]
    body = derived(program, "while_jvp",
                   lambda: _rearranged(program, order, range(len(program.jaxpr.outvars))))
    dot_avals = [tangent_aval(aval) for aval, flag in zip(body_jaxpr.out_avals, carry_flags, strict=True) if flag]
    condition = derived(cond_jaxpr, ("while_cond", *carry_flags),
                        lambda: _with_unread(cond_jaxpr, cond_nconsts + num_carry, dot_avals))
    dots = [instantiate(tangent) for tangent, flag in zip(tangents[at:], carry_flags, strict=True) if flag]
    outs = while_p.bind(
        *primals[:cond_nconsts], *consts, *primals[cond_nconsts:at], *pick(tangents[cond_nconsts:at], const_flags),
        *primals[at:], *dots, cond_jaxpr=condition, body_jaxpr=body, cond_nconsts=cond_nconsts,
        body_nconsts=extra + body_nconsts + sum(const_flags))
    return outs[:num_carry], spread_tangents(outs[num_carry:], carry_flags, body_jaxpr.out_avals)


@while_p.def_jvp
def _while_jvp(primals: Sequence[Any], tangents: Sequence[Any], **params) -> tuple[list[Any], list[Any]]:
    return _while_with_tangents(primals, tangents, **params)


def _while_linearize(primals: Sequence[Any], tangents: Sequence[Any], **params) -> tuple[list[Any], list[Any]]:
    # The number of steps is not known, so no residuals can be saved: the loop of tangents computes the primals again,
    # with their callbacks.
    outs = while_p.bind(*primals, **params)
    return outs, _while_with_tangents(primals, tangents, **params)[1]


while_p.linearize = _while_linearize
while_p.no_transpose("the number of steps is not known beforehand. Try using lax.scan, or using fori_loop with static "
                     "start/stop", of="lax.while_loop or lax.fori_loop with dynamic start/stop values")


def _narrow_while(eqn: JaxprEqn, used: list[bool]) -> JaxprEqn:
    """The loop carries what its condition and the results that are used need."""
    params = eqn.params
    condition, body = params["cond_jaxpr"], params["body_jaxpr"]
    num_cond, num_body = params["cond_nconsts"], params["body_nconsts"]
    tested = read_inputs(condition.jaxpr)

    def step(carry: list[bool]):
        fewer = for_results(body.jaxpr, carry)
        return fewer, read_inputs(fewer)[num_body:]

    def make() -> tuple[ClosedJaxpr | None, ClosedJaxpr | None, list[bool], list[bool]]:
        fewer, carry = _fixpoint([result or test for result, test in zip(used, tested[num_cond:], strict=True)], step)
        read = read_inputs(fewer)[:num_body]
        return (with_inputs(condition, condition.jaxpr, [*tested[:num_cond], *carry]),
                with_inputs(body, fewer, [*read, *carry]), read, carry)

    first, second, read, carry = derived(body, ("narrow", condition, num_cond, num_body, *used), make)
    if first is second is None:
        return eqn
    return eqn.replace(
        invars=pick(eqn.invars, [*tested[:num_cond], *read, *carry]), outvars=pick(eqn.outvars, carry),
        params={**params, "cond_nconsts": sum(tested[:num_cond]), "body_nconsts": sum(read),
                "cond_jaxpr": first or condition, "body_jaxpr": second or body})


narrowing[while_p] = _narrow_while


@while_p.def_batching
def _while_batch(axis: Axis, args: Sequence[Any], dims: Sequence[int | None], *, cond_jaxpr: ClosedJaxpr,
                 body_jaxpr: ClosedJaxpr, cond_nconsts: int, body_nconsts: int) -> tuple[list[Any], list[int | None]]:
    if cond_jaxpr.out_avals[0].ndim:  # of a batch
        args, dims = [*args[:cond_nconsts], *args], [*dims[:cond_nconsts], *dims]
        cond_jaxpr, body_jaxpr = _masked(cond_jaxpr, body_jaxpr, cond_nconsts, body_nconsts)
        body_nconsts += cond_nconsts
    at = cond_nconsts + body_nconsts
    cond_dims, const_dims = list(dims[:cond_nconsts]), list(dims[cond_nconsts:at])
    num_carry = len(args) - at

    def step(carry: list[bool]):
        carry_dims = [0 if flag else None for flag in carry]
        batched_condition = batch_jaxpr(cond_jaxpr, axis, [*cond_dims, *carry_dims])
        if batched_condition[2][0]:  # examples stop at different times: all of the carry is batched
            carry, carry_dims = [True] * num_carry, [0] * num_carry
            batched_condition = batch_jaxpr(cond_jaxpr, axis, [*cond_dims, *carry_dims])
        body = batch_jaxpr(body_jaxpr, axis, [*const_dims, *carry_dims], carry)
        return (batched_condition, body), [one or other for one, other in zip(carry, body[2], strict=True)]

    ((condition, cond_consts, cond_batched), (body, body_consts, _)), carry_flags = _fixpoint(
        [dim is not None for dim in dims[at:]], step)
    if cond_batched[0]:
        check_harmless(body.effects | condition.effects, "vmap of a while_loop with a batched predicate")
    carry = [bring_to_front(arg, dim, axis.size) if flag else arg
             for arg, dim, flag in zip(args[at:], dims[at:], carry_flags, strict=True)]
    outs = while_p.bind(*cond_consts, *args[:cond_nconsts], *body_consts, *args[cond_nconsts:at], *carry,
                        cond_jaxpr=condition, body_jaxpr=body, cond_nconsts=len(cond_consts) + cond_nconsts,
                        body_nconsts=len(body_consts) + body_nconsts)
    return outs, [0 if flag else None for flag in carry_flags]


# --- while: examples that stop at different times -----------------------------------------------------
# In jaxprs, as in JAX's, the condition of such a loop gives a boolean for each example, along the first axis of all leaves of
# the carry. What runs, and what is batched again, is another loop.


def until_all_stop(eqn: JaxprEqn) -> JaxprEqn:
    """A loop whose examples stop at different times as one that goes on until all have, and no longer changes those that
    have; other equations as they are."""
    if eqn.primitive is not while_p or not eqn.params["cond_jaxpr"].out_avals[0].ndim:
        return eqn
    count, params = eqn.params["cond_nconsts"], eqn.params
    condition, body = _masked(params["cond_jaxpr"], params["body_jaxpr"], count, params["body_nconsts"])
    return eqn.replace(invars=[*eqn.invars[:count], *eqn.invars], params={
        **params, "cond_jaxpr": condition, "body_jaxpr": body, "body_nconsts": count + params["body_nconsts"]})


def _masked(condition: ClosedJaxpr, body: ClosedJaxpr, num_cond: int, num_body: int) -> tuple[ClosedJaxpr, ClosedJaxpr]:
    """The programs of the loop that goes on until all have stopped; its body gets the condition's constants first."""
    def any_goes_on(*values) -> list[Any]:
        (going,) = eval_jaxpr(condition.jaxpr, [], *values)
        return [reduce_or(going, (0,))]

    def masked(*values) -> list[Any]:
        cond_values, rest = values[:num_cond], values[num_cond:]
        (going,) = eval_jaxpr(condition.jaxpr, [], *cond_values, *rest[num_body:])
        new = eval_jaxpr(body.jaxpr, [], *rest)
        return [select_n(shaping.broadcast_in_dim(going, aval_of(after).shape, (0,)), _kept_back(before), after)
                for before, after in zip(rest[num_body:], new, strict=True)]

    def make() -> tuple[ClosedJaxpr, ClosedJaxpr]:
        stops, stop_consts = trace_to_jaxpr(any_goes_on, condition.in_avals)
        steps, step_consts = trace_to_jaxpr(masked, [*condition.in_avals[:num_cond], *body.in_avals])
        assert not stop_consts and not step_consts
        return ClosedJaxpr(stops, []), ClosedJaxpr(steps, [])

    return derived(body, ("while_batch", condition), make)


def _kept_back(value):
    """The carry of an example that has stopped. A key counts as unused by the step, whose results are dropped for it."""
    is_key = dtypes.issubdtype(aval_of(value).dtype, dtypes.prng_key)
    return PRIMITIVES["random_clone"].bind(value) if is_key else value


def _as_one_loop(avals: Sequence[Any], params: dict[str, Any]) -> ClosedJaxpr:
    """The program that is lowered in the place of a loop whose examples stop at different times. Other loops have a rule."""
    if not params["cond_jaxpr"].out_avals[0].shape:
        raise NotImplementedError("a while loop of one condition is lowered by its rule")
    inputs, outs = list(map(Var, avals)), list(map(Var, params["body_jaxpr"].out_avals))
    effects = params["cond_jaxpr"].effects | params["body_jaxpr"].effects
    eqn = until_all_stop(JaxprEqn([*inputs], outs, while_p, params, effects))
    return ClosedJaxpr(Jaxpr([], inputs, outs, [eqn], effects), [])


register_decomposition("while", _as_one_loop)
