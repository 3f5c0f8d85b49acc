"""Primitives of libraries that call a program, their param `call_jaxpr`, with all rules: `create_call_primitive`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jaxlite.core.jaxpr import ClosedJaxpr, eval_jaxpr
from jaxlite.core.lazy import loader
from jaxlite.core.primitive import Primitive
from jaxlite.core.staging import has_program, hoist_consts
from lowering.rules import register_foreign

_call_rules = loader("jaxlite.traces.call_rules")  # with derivatives, which who only reads programs does not need
_saving = loader("jaxlite.traces.saving")
_transposes = loader("jaxlite.traces.transpose")
_accumulators = loader("jaxlite.extend.hi_primitives")
_PROGRAM = "call_jaxpr"


def create_call_primitive(name: str, inline_jax_late: bool = True) -> Primitive:
    """A primitive that calls a program: `bind(*values, call_jaxpr=program, **params)`. Transformations keep the call.

    Args:
      inline_jax_late: whether the program is compiled in place; otherwise it is a function of the module.

    >>> import jaxlite
    >>> named = create_call_primitive("named")
    >>> square = jaxlite.make_jaxpr(lambda x: (x * x,))(1.0)
    >>> print(jaxlite.grad(lambda x: named.bind(x, call_jaxpr=square)[0])(3.0))
    6.0
    """
    primitive = Primitive(name, multiple_results=True, is_own=False)
    register_call_primitive_rules(primitive, name, inline_jax_late=inline_jax_late)
    return primitive


def register_call_primitive_rules(prim: Primitive, name: str | None = None, transpose_rule: Callable[..., Any] | None = None,
                                  inline_jax_late: bool = True) -> None:
    """Give a primitive the rules of a call of its param `call_jaxpr`.

    Args:
      name: the name of the function that it compiles to; None leaves out the rule of lowering.
      transpose_rule: `transpose_rule(cotangents, *operands, **params)`, where operands that the program is linear in are
        accumulators (`experimental.hijax.GradAccum`) to which it adds their cotangents; by default `eval_jaxpr_transpose`.
      inline_jax_late: as for `create_call_primitive`.
    """
    prim.multiple_results = True
    has_program(prim, _PROGRAM)
    prim.def_effectful_abstract_eval(lambda *avals, call_jaxpr, **params: (list(call_jaxpr.out_avals), call_jaxpr.effects))
    prim.def_eager(lambda *args, call_jaxpr, **params: eval_jaxpr(call_jaxpr.jaxpr, call_jaxpr.consts, *args))
    plain = prim.bind

    def bind(*args: Any, call_jaxpr: Any, **params: Any) -> Any:
        program = call_jaxpr if isinstance(call_jaxpr, ClosedJaxpr) else ClosedJaxpr(call_jaxpr, [])
        if len(args) != len(program.in_avals):
            raise ValueError(f"{prim} calls a program of {len(program.in_avals)} values, it got {len(args)}")
        if program.consts:  # the rules are those of programs that close over nothing
            args, program = (*program.consts, *args), hoist_consts(program.jaxpr)
        return plain(*args, call_jaxpr=program, **params)

    prim.def_custom_bind(bind)
    _call_rules().give_call_rules(prim, param=_PROGRAM)
    _saving().split_as_call(prim, _PROGRAM)
    if transpose_rule is not None:
        prim.def_transpose(_by_accumulators(prim, transpose_rule))
    if name is not None:
        register_foreign(prim, _lowering(name, inline_jax_late))


def eval_jaxpr_transpose(prim: Primitive, ct: Sequence[Any], *args: Any, call_jaxpr: ClosedJaxpr, **params: Any) -> None:
    """The transpose of a call, as a call of the same primitive; for use in a `transpose_rule`.

    Args:
      ct: the cotangents of the results.
      args: the operands, with accumulators for those that the program is linear in, which get their cotangents.
    """
    kind = _accumulators().GradAccum
    operands = [_transposes().Linear(arg.aval) if isinstance(arg, kind) else arg for arg in args]
    rules = _call_rules()
    found = rules.call_rule(rules.transpose_call, prim, _PROGRAM)(ct, *operands, call_jaxpr=call_jaxpr, **params)
    for arg, cotangent in zip(args, found, strict=True):
        if isinstance(arg, kind):
            arg.accum(cotangent)


def _by_accumulators(prim: Primitive, rule: Callable[..., Any]) -> Callable[..., Any]:
    def transpose(cotangents: Sequence[Any], *operands: Any, **params: Any) -> list[Any]:
        def checked(*given: Any) -> None:
            answer = rule(list(cotangents), *given, **params)
            if answer is not None:
                raise TypeError(f"the transpose rule of {prim.name!r} adds to accumulators and must return None, but it "
                                f"returned a {type(answer).__name__}")

        return _accumulators().accumulated(checked, operands)

    return transpose


def _lowering(name: str, inline: bool) -> Callable[..., Any]:
    def lower(ctx: Any, *operands: Any, call_jaxpr: ClosedJaxpr, **params: Any) -> Any:
        program = call_jaxpr.jaxpr
        return ctx.inline(program, operands) if inline else ctx.call(program, name, operands)

    return lower
