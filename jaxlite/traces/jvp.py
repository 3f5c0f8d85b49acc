"""Forward-mode derivatives: each value is a primal with a tangent.

A primitive's rule is `jvp(primals, tangents, **params) -> (primals_out, tangents_out)`. A tangent may be `Zero`, a symbolic
zero without an array, which rules propagate. The functions at the end of the file define most rules in one line.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxlite.core import dtypes
from jaxlite.core.aval import AbstractRef, AbstractToken, ShapedArray, dual
from jaxlite.core.jaxpr import ClosedJaxpr, DebugInfo, derived, eval_jaxpr, one_each
from jaxlite.core.primitive import NoRule, Primitive, load_rules
from jaxlite.core.staging import check_leaks, high, hoist_consts, pin_marked, trace_to_jaxpr
from jaxlite.core.tracing import Trace, Tracer, set_trace, state
from jaxlite.core.tree_nodes import register_pytree_node
from jaxlite.core.values import AVAL_OF, aval_of, with_arrays

# --- tangents ----------------------------------------------------------------------------------------


class Zero:
    """A tangent or cotangent that is known to vanish."""

    __slots__ = ("aval",)

    def __init__(self, aval: Any):
        self.aval = aval

    shape = property(lambda self: self.aval.shape, doc="The shape of the zeros.")
    dtype = property(lambda self: self.aval.dtype, doc="The dtype of the zeros.")
    ndim = property(lambda self: self.aval.ndim, doc="The number of axes of the zeros.")

    @staticmethod
    def from_primal_value(val: Any) -> Zero:
        """The vanishing tangent of a value."""
        return zero_for(val)

    def instantiate(self) -> Any:
        """An array of zeros."""
        return zeros_of(self.aval)

    def __repr__(self) -> str:
        return f"Zero({self.aval})"


def tangent_aval(aval: Any) -> Any:
    """The type of a value's tangents: its own for inexact dtypes, float0 for the rest."""
    if type(aval) is ShapedArray:
        return aval.to_tangent_aval()
    if isinstance(aval, AbstractToken):
        return aval
    if type(aval) is AbstractRef:
        return aval.update(inner_aval=tangent_aval(aval.inner_aval))
    return aval.to_tangent_aval()


def cotangent_aval(aval: Any) -> Any:
    """The type of a value's cotangents: that of its tangents but over mesh axes where these are reduced or unreduced."""
    return dual(tangent_aval(aval))


def has_no_tangents(aval: Any) -> bool:
    """Whether a type of tangents is that of values which do not vary."""
    return not aval.is_high and aval.dtype == dtypes.float0


# Rules of libraries return it in trees, also from functions under `vmap`.
register_pytree_node(Zero, lambda zero: ((), zero.aval), lambda aval, _: Zero(aval))


def zero_for(value: Any) -> Zero:
    """The vanishing tangent of a value."""
    return Zero(tangent_aval(aval_of(value)))


def nonzero_flags(tangents: Sequence[Any]) -> list[bool]:
    """For each tangent or cotangent whether it is not known to vanish."""
    return [type(tangent) is not Zero for tangent in tangents]


def zeros_of(aval: Any) -> Any:
    """An array of zeros; of dtype float0 a NumPy array, since no device holds it."""
    if aval.is_high:
        return aval.vspace_zero()
    if aval.dtype == dtypes.float0:
        return np.zeros(aval.shape, dtypes.float0)
    return make_zeros(aval)


def _load_then_make_zeros(aval: Any) -> Any:
    load_rules()
    return make_zeros(aval)


# Set by the rules of jaxlite.lax, which knows how to make arrays.
make_zeros: Callable[[Any], Any] = _load_then_make_zeros


def set_zeros_maker(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Say how to make an array of zeros of a type; a decorator."""
    global make_zeros
    make_zeros = function
    return function


make_weak: Callable[[Any], Any]  # set likewise: the same values, weakly typed


def set_weak_maker(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Say how an array becomes weakly typed; a decorator."""
    global make_weak
    make_weak = function
    return function


def typed_as(primal: Any, tangent: Any) -> Any:
    """A tangent, weakly typed where its primal is: a strong one may come with a weak primal."""
    return make_weak(tangent) if aval_of(primal).weak_type and not aval_of(tangent).weak_type else tangent


def instantiate(tangent: Any) -> Any:
    """An array for a tangent that may be symbolic."""
    return zeros_of(tangent.aval) if type(tangent) is Zero else tangent


add_any_p = Primitive("add_any")


@add_any_p.def_abstract_eval
def _add_any_aval(x: Any, y: Any) -> Any:
    return x  # also where one of them is weakly typed, as in JAX


def add_tangents(x: Any, y: Any) -> Any:
    """The sum of two tangents or cotangents, either of which may be `Zero`."""
    if type(x) is Zero:
        return y
    if type(y) is Zero:
        return x
    return sum_of(x, y)


def sum_of(x: Any, y: Any) -> Any:
    """The sum of two tangents or cotangents of one type."""
    aval = aval_of(x)
    if aval.is_high:
        return aval.vspace_add(x, y)
    rules = dtypes.rules_of(aval.dtype)
    return add_any_p.bind(x, y) if rules is None else rules.add(aval.dtype, x, y)


# --- the trace ---------------------------------------------------------------------------------------


class JVPTracer(Tracer):
    """A primal with its tangent."""

    __slots__ = ("primal", "tangent")

    def __init__(self, trace: JVPTrace, primal: Any, tangent: Any):
        self._trace, self.primal, self.tangent = trace, primal, tangent
        self.aval = aval_of(primal)
        if self.aval.is_high:
            high().make_high(self)

    def history(self) -> Any:
        if isinstance(self.primal, Tracer):
            yield from self.primal.history()

    def made_at(self) -> str:
        return self.primal.made_at() if isinstance(self.primal, Tracer) else ""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(primal={self.primal!s}, tangent={self.tangent!s})"

    # What the primal knows, this knows: control flow on concrete values works under differentiation. As in JAX, it does not
    # become a float or a complex number: `math.sin(x)` would have no derivative, and nothing would say so.

    def known(self) -> Any:
        return self.primal.known() if isinstance(self.primal, Tracer) else self.primal

    def __bool__(self) -> bool:
        return bool(self.primal)

    def __int__(self) -> int:
        return int(self.primal)

    def __index__(self) -> int:
        return operator.index(self.primal)

    def item(self, *args: Any) -> Any:
        return (self.primal if hasattr(self.primal, "item") else np.asarray(self.primal)).item(*args)


_SCALARS = frozenset((int, float, complex))


class JVPTrace(Trace):
    """Applies primitives to primals and tangents. `inner` is the trace that rules run under: the one around it."""

    __slots__ = ("parent", "inner")
    tracer = JVPTracer

    def __init__(self, parent: Trace, debug_info: DebugInfo | None = None):
        super().__init__(debug_info)
        load_rules()
        self.parent = self.inner = parent

    def pin(self, traceback: Any) -> None:
        self.inner.pin(traceback)

    def pin_here(self) -> bool:
        return self.inner.pin_here()

    def rule(self, primitive: Any) -> Callable[..., Any]:
        """The function from primals and tangents of a primitive's operands to those of its results."""
        return jvp_rule(primitive)

    def split(self, value: Any) -> tuple[Any, Any]:
        """The primal and the tangent of any value."""
        if isinstance(value, JVPTracer) and value._trace is self:
            return value.primal, value.tangent
        return value, zero_for(value)

    def join(self, primal: Any, tangent: Any) -> Any:
        """A tracer of both; the primal alone where the tangent vanishes, as that of an integer always does."""
        if type(tangent) is Zero or has_no_tangents(aval_of(tangent)):
            return primal
        return self.tracer(self, primal, tangent)

    def arguments(self, args: Any) -> Any:
        """Tangents are typed as their primals."""
        if type(args) in (tuple, list):
            return type(args)(map(self.arguments, args))
        if not isinstance(args, JVPTracer) or args._trace is not self or args.aval.is_high:
            return args
        primal, tangent = self.parent.arguments((args.primal, args.tangent))
        with set_trace(self.parent):
            tangent = typed_as(primal, tangent)
        return args if primal is args.primal and tangent is args.tangent else self.tracer(self, primal, tangent)

    def process(self, primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> Any:
        primals: list[Any] = []
        tangents: list[Any] = []
        passive: list[int] = []
        for arg in args:
            if isinstance(arg, JVPTracer) and arg._trace is self:
                primal = arg.primal
                if type(primal) in _SCALARS and aval_of(primal) is not arg.aval:  # enable_x64 has changed since
                    primal = np.asarray(primal).astype(arg.aval.dtype)[()]
                primals.append(primal)
                tangents.append(arg.tangent)
            else:
                if type(arg) not in AVAL_OF and not isinstance(arg, Tracer):
                    arrays = with_arrays(args)
                    if arrays is not None:
                        return self.process(primitive, arrays, params)
                passive.append(len(primals))
                primals.append(arg)
                tangents.append(None)
        if len(passive) == len(primals) and not primitive.differentiates_always:
            return self.parent.apply(primitive, args, params)
        for index in passive:
            tangents[index] = zero_for(primals[index])
        rule, inner = self.rule(primitive), self.inner
        pinned = primitive.linearize is None and inner.pin_here()  # else code of the user's may run in the rule
        try:
            with set_trace(inner):
                primal_out, tangent_out = rule(primals, tangents, **params)
        finally:
            if pinned:
                inner.pin(None)
        if primitive.multiple_results:
            return [self.join(primal, tangent) for primal, tangent in zip(primal_out, tangent_out, strict=True)]
        return primal_out if type(tangent_out) is Zero else self.tracer(self, primal_out, tangent_out)


def jvp_rule(primitive: Any) -> Callable[..., Any]:
    """A primitive's rule. Raises: NotImplementedError that says whether there is none by nature."""
    rule = primitive.jvp
    if rule is None:
        raise NotImplementedError(f"Differentiation rule for '{primitive}' not implemented")
    if type(rule) is NoRule:
        raise NotImplementedError(f"Differentiation rule for '{primitive}' not implemented: {rule.reason}")
    return rule


def jvp_flat(fun: Callable[..., Sequence[Any]], primals: Sequence[Any], tangents: Sequence[Any],
             debug_info: DebugInfo | None = None) -> tuple[list[Any], list[Any]]:
    """Push tangents through a function of flat values that returns flat values."""
    trace = JVPTrace(state.trace, debug_info)
    inputs = [trace.join(primal, tangent) for primal, tangent in zip(primals, tangents, strict=True)]
    try:
        with set_trace(trace):
            outs = fun(*inputs)
        pairs = [trace.split(out) for out in outs]
    finally:
        trace.alive = False
    del inputs, outs
    check_leaks(trace)
    return [primal for primal, _ in pairs], [tangent for _, tangent in pairs]


def jvp_jaxpr(closed: ClosedJaxpr, nonzero: Sequence[bool], instantiate_out: bool | Sequence[bool],
              ) -> tuple[ClosedJaxpr, list[Any], list[bool]]:
    """The program that computes a program's outputs and their tangents.

    Args:
      nonzero: for each input whether it has a tangent; those tangents follow the inputs.
      instantiate_out: whether outputs without tangents get zeros: for all, or for each.
    Returns: a program of consts + inputs + nonzero tangents that gives outputs + tangents, those consts, and for
      each output whether it has a tangent.
    """
    wanted = one_each(instantiate_out, len(closed.out_avals))
    return derived(closed, ("jvp", *nonzero, *wanted), lambda: _jvp_jaxpr(closed, nonzero, wanted))


def _jvp_jaxpr(closed: ClosedJaxpr, nonzero: Sequence[bool], wanted: list[bool]) -> tuple[ClosedJaxpr, list[Any], list[bool]]:
    in_avals = closed.in_avals
    tangent_avals = [tangent_aval(aval) for aval, flag in zip(in_avals, nonzero, strict=True) if flag]
    out_nonzero: list[bool] = []

    def fun(*args: Any) -> list[Any]:
        primals, rest = list(args[:len(in_avals)]), iter(args[len(in_avals):])
        tangents = [next(rest) if flag else zero_for(primal) for primal, flag in zip(primals, nonzero, strict=True)]
        pin = pin_marked()
        primals_out, tangents_out = jvp_flat(
            lambda *xs: eval_jaxpr(closed.jaxpr, closed.consts, *xs, before=pin), primals, tangents)
        tangents_out = [instantiate(tangent) if flag else tangent for tangent, flag in zip(tangents_out, wanted, strict=True)]
        out_nonzero.extend(type(tangent) is not Zero for tangent in tangents_out)
        return primals_out + [tangent for tangent in tangents_out if type(tangent) is not Zero]

    jaxpr, consts = trace_to_jaxpr(fun, [*in_avals, *tangent_avals], closed.jaxpr.debug_info)
    return hoist_consts(jaxpr), consts, out_nonzero


# --- makers of rules ---------------------------------------------------------------------------------


def def_jvp(primitive: Primitive, *rules: Callable[..., Any] | None) -> None:
    """Set a rule from one per operand: `rule(tangent, out, *primals, **params)` gives that operand's share.

    None for an operand whose tangent does not matter (it is an integer, or the output does not vary).
    """

    def jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
        out = primitive.bind(*primals, **params)
        total: Any = None
        for rule, tangent in zip(rules, tangents, strict=True):
            if rule is not None and type(tangent) is not Zero:
                share = rule(tangent, out, *primals, **params)
                total = share if total is None else add_tangents(total, share)
        return out, zero_for(out) if total is None else total

    primitive.def_jvp(jvp)


def def_linear(primitive: Primitive, transpose: Callable[..., Any] | None = None) -> None:
    """Set the rule of a primitive that is linear in all of its operands together: apply it to the tangents."""

    def jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
        out = primitive.bind(*primals, **params)
        if all(type(tangent) is Zero for tangent in tangents):
            return out, Zero(tangent_aval(aval_of(out)))
        return out, primitive.bind(*map(instantiate, tangents), **params)

    primitive.def_jvp(jvp)
    if transpose is not None:
        primitive.def_transpose(transpose)


def def_jvp_of_one(primitive: Primitive) -> Callable[..., Any]:
    """Decorator: the rule of a primitive of one operand, `rule(x, tangent, **params)`, for a tangent that may not vanish."""

    def register(rule: Callable[..., Any]) -> Callable[..., Any]:
        def jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
            if type(tangents[0]) is Zero:
                return _without_tangent(primitive, primals, params)
            return rule(*primals, *tangents, **params)

        primitive.def_jvp(jvp)
        return rule

    return register


def def_zero(primitive: Primitive) -> None:
    """Set the rule of a primitive whose output does not vary: integers, comparisons, steps."""
    primitive.def_jvp(lambda primals, tangents, **params: _without_tangent(primitive, primals, params))


def _without_tangent(primitive: Primitive, primals: Sequence[Any], params: dict[str, Any]) -> tuple[Any, Any]:
    out = primitive.bind(*primals, **params)
    return out, [zero_for(each) for each in out] if primitive.multiple_results else zero_for(out)


add_any_p.def_jvp(lambda primals, tangents: (add_any_p.bind(*primals), add_tangents(*tangents)))
