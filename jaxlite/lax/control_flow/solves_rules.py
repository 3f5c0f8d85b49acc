"""Derivative and batching rules of `custom_linear_solve` and `custom_root`: by the implicit function theorem."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from jaxlite.core.jaxpr import ClosedJaxpr, eval_jaxpr
from jaxlite.core.primitive import Primitive
from jaxlite.lax.control_flow.solves import linear_solve_p, parts, root_p
from jaxlite.lax.elementwise import neg
from jaxlite.traces.batching import Axis, batch_jaxpr, bring_to_front
from jaxlite.traces.jvp import Zero, add_tangents, instantiate, jvp_flat, tangent_aval, zero_for
from jaxlite.traces.linearize import apply_split
from jaxlite.traces.transpose import is_linear

# --- the slope of a traced function, forwards and for linearisation ----------------------------------


def _pushed(jaxpr: ClosedJaxpr, primals: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
    return jvp_flat(partial(eval_jaxpr, jaxpr.jaxpr, []), primals, tangents)[1]


def _split(jaxpr: ClosedJaxpr, primals: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
    """The same, with what does not depend on tangents kept apart from what does."""
    return apply_split(jaxpr, primals, tangents)[1]


def _all_zero(tangents: Sequence[Any]) -> bool:
    return all(type(tangent) is Zero for tangent in tangents)


def _at(function: ClosedJaxpr, consts: Sequence[Any], dconsts: Sequence[Any], x: Sequence[Any], slope: Callable) -> list[Any]:
    """How a function's value at a fixed x moves with what it closes over."""
    if _all_zero(dconsts):
        return [Zero(tangent_aval(aval)) for aval in function.out_avals]
    return slope(function, [*consts, *x], [*dconsts, *map(zero_for, x)])


# --- linear systems ----------------------------------------------------------------------------------


def _linear_solve_tangents(slope: Callable, primals: Sequence[Any], tangents: Sequence[Any], *, jaxprs,
                           const_lengths) -> tuple[list[Any], list[Any]]:
    """A x = b: A dx = db - dA x."""
    outs = linear_solve_p.bind(*primals, jaxprs=jaxprs, const_lengths=const_lengths)
    *consts, b = parts(primals, const_lengths)
    dconsts, db = parts(tangents, const_lengths)[0], tangents[len(tangents) - len(b):]
    moved = _at(jaxprs[0], consts[0], dconsts, outs[:len(b)], slope)
    side = [add_tangents(dot if type(dot) is Zero else neg(dot), each) for dot, each in zip(moved, db, strict=True)]
    if _all_zero(side):
        return outs, [zero_for(out) for out in outs]
    dots = linear_solve_p.bind(*[const for each in consts for const in each], *map(instantiate, side), jaxprs=jaxprs,
                               const_lengths=const_lengths)
    return outs, [*dots[:len(b)], *[zero_for(out) for out in outs[len(b):]]]


linear_solve_p.def_jvp(partial(_linear_solve_tangents, _pushed))
linear_solve_p.linearize = partial(_linear_solve_tangents, _split)


@linear_solve_p.def_transpose
def _linear_solve_transpose(cotangents: Sequence[Any], *operands, jaxprs, const_lengths) -> list[Any]:
    if len(jaxprs) < 4:
        raise TypeError("transpose_solve required for backwards mode automatic differentiation of custom_linear_solve")
    *consts, b = parts(operands, const_lengths)
    assert not any(is_linear(const) for each in consts for const in each), "a linear solve is linear in its right side"
    swapped = [2, 3, 0, 1]
    given = [instantiate(cotangent) for cotangent in cotangents[:len(b)]]
    outs = linear_solve_p.bind(*[const for which in swapped for const in consts[which]], *given,
                               jaxprs=tuple(jaxprs[which] for which in swapped),
                               const_lengths=tuple(const_lengths[which] for which in swapped))
    # Known leaves of the right side are zeros in place of tangents that vanish.
    return [None] * sum(const_lengths) + [out if is_linear(each) else None for out, each in zip(outs, b, strict=False)]


# --- roots -------------------------------------------------------------------------------------------


def _root_tangents(slope: Callable, primals: Sequence[Any], tangents: Sequence[Any], *, jaxprs,
                   const_lengths) -> tuple[list[Any], list[Any]]:
    """f(x, p) = 0: (df/dx) dx = -(df/dp) dp. The guess does not matter."""
    outs = root_p.bind(*primals, jaxprs=jaxprs, const_lengths=const_lengths)
    *consts, guess = parts(primals, const_lengths)
    x = outs[:len(guess)]
    moved = _at(jaxprs[0], consts[0], parts(tangents, const_lengths)[0], x, slope)
    if _all_zero(moved):
        return outs, [zero_for(out) for out in outs]
    solve_tangent = jaxprs[2]
    dots = eval_jaxpr(solve_tangent.jaxpr, [], *consts[2], *x, *[neg(instantiate(dot)) for dot in moved])
    return outs, [*dots, *[zero_for(out) for out in outs[len(guess):]]]


root_p.def_jvp(partial(_root_tangents, _pushed))
root_p.linearize = partial(_root_tangents, _split)
root_p.no_transpose("it is differentiated by the function that it is a root of")


# --- batching ----------------------------------------------------------------------------------------


def _batch_whole(primitive: Primitive) -> None:
    """All examples are solved together: what is solved for is a batch, and so are all results."""

    @primitive.def_batching
    def batch(axis: Axis, args: Sequence[Any], dims: Sequence[int | None], *, jaxprs,
              const_lengths) -> tuple[list[Any], list[int]]:
        *consts, given = parts(args, const_lengths)
        const_dims = parts(dims, const_lengths)
        given_dims = const_dims.pop()
        programs: list[ClosedJaxpr] = []
        values: list[Any] = []
        lengths: list[int] = []
        for jaxpr, own, own_dims in zip(jaxprs, consts, const_dims, strict=True):
            count = len(jaxpr.in_avals) - len(own)
            program, more, _ = batch_jaxpr(jaxpr, axis, [*own_dims, *[0] * count], True)
            programs.append(program)
            values += [*more, *own]
            lengths.append(len(more) + len(own))
        whole = [bring_to_front(each, dim, axis.size) for each, dim in zip(given, given_dims, strict=True)]
        outs = primitive.bind(*values, *whole, jaxprs=tuple(programs), const_lengths=tuple(lengths))
        return outs, [0] * len(outs)


for _p in (linear_solve_p, root_p):
    _batch_whole(_p)
