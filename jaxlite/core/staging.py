"""Staging: run a Python function on tracers that write down what it does, and get a jaxpr.

The hot path is `StagingTrace.process`: for each operation it makes a tracer, a variable and an equation.
Nothing in it depends on the size of the program so far.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from jaxlite.core import config, errors, source
from jaxlite.core.aval import ShapedArray, high_types, varying
from jaxlite.core.jaxpr import (
    ClosedJaxpr,
    DebugInfo,
    DropVar,
    Jaxpr,
    JaxprEqn,
    Literal,
    Var,
    check_jaxpr,
    derived,
    eval_jaxpr,
    no_effects,
)
from jaxlite.core.lazy import loader
from jaxlite.core.primitive import MixedVarying, Primitive, TooVarying
from jaxlite.core.tracing import Trace, Tracer, set_trace, state
from jaxlite.core.values import AVAL_OF, SCALARS, ArrayImpl, aval_of
from lowering.xla import trace_context

_new = object.__new__
high = loader("jaxlite.core.high")  # values that are made of arrays, in programs

pvary_p = Primitive("pvary")  # marks a value as one that differs from device to device along axes of the mesh
pvary_p.knows_vma = True
pvary_p.def_abstract_eval(lambda x, *, axes: varying(x, x.vma.union(axes)))


@pvary_p.def_stage
def _stage_pvary(trace: StagingTrace, args: Sequence[Any], params: dict[str, Any]) -> Any:
    """A program that is traced again may vary more than it did: what it casts may vary already."""
    value = trace.lift(args[0])
    missing = tuple(name for name in params["axes"] if name not in value.aval.vma)
    return trace.record(pvary_p, [value], {"axes": missing}) if missing else value


class StagedTracer(Tracer):
    """A value of the program being traced, with its variable."""

    __slots__ = ("atom",)
    atom: Var | Literal

    def made_at(self) -> str:
        for eqn in self._trace.eqns:
            if self.atom in eqn.outvars:
                return source.summarize(eqn.traceback)
        return ""

    def history(self) -> Iterator[str]:
        trace = self._trace
        debug = trace.debug_info
        if debug is None:
            return
        yield f"The error occurred while tracing the function {debug}."
        arguments, eqns = trace.origins(self.atom)
        if arguments:
            names = ", ".join(debug.arg_name(index) for index in arguments)
            plural = "s" if len(arguments) > 1 else ""
            yield f"This concrete value was not available in Python because it depends on the value{plural} " \
                  f"of the argument{plural} {names}."
        elif eqns:
            yield "This value became a tracer due to JAX operations on these lines:"
            for eqn in eqns[-5:]:
                yield f"  operation {eqn.primitive.name}: {eqn.outvars[0].aval.str_short(short_dtypes=True)} " \
                      f"from line {source.summarize(eqn.traceback)}"


_BEGINNING = 16  # elements by which arrays are told apart before all are compared


class StagingTrace(Trace):
    """Records equations. `constvars` are the variables of concrete values and outer tracers that it met."""

    __slots__ = ("eqns", "invars", "_constants", "_arrays", "effects", "pinned")

    def __init__(self, debug_info: DebugInfo | None = None):
        super().__init__(debug_info)
        self.eqns: list[JaxprEqn] = []
        self.invars: list[Var] = []
        self._constants: dict[int, tuple[Any, Var]] = {}  # no tracers here: their cycle would keep the values
        self._arrays: dict[Any, list[tuple[np.ndarray, Var]]] = {}  # NumPy's arrays among them, by how they begin
        self.effects = no_effects
        self.pinned: Any = None  # the traceback of the next equations, instead of their own

    def pin(self, traceback: Any) -> None:
        self.pinned = traceback

    def pin_here(self) -> bool:
        if self.pinned is not None:
            return False
        self.pinned = source.here()
        return True

    def new_arg(self, aval: Any, source_info: Any = None) -> StagedTracer:
        """A tracer for an input of the program; `source_info` is for libraries, and says nothing."""
        var = high().new_var(aval) if aval.is_high else Var(aval)
        self.invars.append(var)
        return self._tracer(var)

    def _tracer(self, var: Var | Literal) -> StagedTracer:
        tracer = _new(StagedTracer)
        tracer._trace, tracer.aval, tracer.atom = self, var.aval, var
        if var.aval.is_high:
            if var.aval.has_qdd:
                tracer.aval = var.aval.aval  # type: ignore[attr-defined]
            high().make_high(tracer)
        return tracer

    def atom(self, value: Any) -> Var | Literal:
        """The operand for a value in an equation: its variable, a literal, or the variable of a constant."""
        kind = type(value)
        if kind is StagedTracer and value._trace is self:
            return value.atom
        type_of = AVAL_OF.get(kind)
        if type_of is not None:
            aval = type_of(value)
            if kind in SCALARS:
                return Literal(value, aval)
        elif isinstance(value, Tracer):
            if value._trace is self:
                return value.atom  # type: ignore[attr-defined]  # of a high type
            if not value._trace.alive:
                raise errors.UnexpectedTracerError(value)
            return self._constant(value, value.aval)
        elif hasattr(value, "__jax_array__"):
            return self.atom(value.__jax_array__())
        else:
            aval = aval_of(value)
        if kind is not ArrayImpl and type(aval) is ShapedArray and not aval.shape and isinstance(aval.dtype, np.dtype):
            return Literal(value[()] if kind is np.ndarray and aval.dtype.names is None else value, aval)  # float0 stays
        return self._constant(value, aval)

    def _constant(self, value: Any, aval: Any) -> Var:
        found = self._constants.get(id(value))
        if found is None:
            if type(value) is np.ndarray:
                var = self._array(value, aval)
            else:
                var = high().new_var(aval, value) if aval.is_high else Var(aval)
            self._constants[id(value)] = found = value, var
        return found[1]

    def _array(self, value: np.ndarray, aval: Any) -> Var:
        """The variable of a NumPy array, which is that of an equal one, if there is one.

        Each use of an array that the user's function closes over makes another (a copy, positions of its elements as indices):
        as many parameters, which XLA cannot know to be equal.
        """
        alike = self._arrays.setdefault((aval, value.flat[:_BEGINNING].tobytes()), [])
        for other, var in alike:
            if value.tobytes() == other.tobytes():
                return var
        alike.append((value, Var(aval)))
        return alike[-1][1]

    def constants(self) -> list[tuple[Any, Var]]:
        """The values that it met from outside, and the variables for them."""
        return [(value, var) for var, value in self._values().items()]

    def _values(self) -> dict[Var, Any]:
        return {var: value for value, var in self._constants.values()}

    def lift(self, value: Any) -> StagedTracer:
        """A tracer of this trace for any value; scalars stay literals of the equations that use them."""
        if type(value) is StagedTracer and value._trace is self:
            return value
        return self._tracer(self.atom(value))

    def process(self, primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> Any:
        if primitive.stage is not None:
            return primitive.stage(self, args, params)
        return self.record(primitive, args, params)

    apply = process  # recording an equation does not depend on what is current

    def record(self, primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> Any:
        """Append one equation; gives tracers for its results."""
        invars: list[Any] = []
        avals: list[Any] = []
        for arg in args:
            atom = arg.atom if type(arg) is StagedTracer and arg._trace is self else self.atom(arg)
            invars.append(atom)
            avals.append(atom.aval)
        if not self.alive:
            raise errors.UnexpectedTracerError("An operation was recorded in a trace that has ended.")
        try:
            out, effects = primitive.typed(avals, params)
        except MixedVarying as mixed:
            return self.record(primitive, self.cast(args, mixed.missing), params)
        except TooVarying:
            return self.record(primitive, args, primitive.widen(params, avals))
        if primitive.multiple_results:
            outvars = [Var(aval) if not aval.is_high else high().new_var(aval) for aval in out]
            self.eqns.append(JaxprEqn(invars, outvars, primitive, params, effects, self.pinned or source.here()))
            if effects:
                self.effects |= effects
                if high_types.exist:
                    high().follow(self.eqns[-1])
            return [self._tracer(var) for var in outvars]
        # Most equations are made here: without the calls of three constructors.
        var, eqn, tracer = _new(Var), _new(JaxprEqn), _new(StagedTracer)
        var.aval = tracer.aval = out
        eqn.primitive, eqn.params, eqn.effects, eqn.traceback = primitive, params, effects, self.pinned or source.here()
        eqn.invars, eqn.outvars = invars, [var]
        tracer._trace, tracer.atom = self, var
        self.eqns.append(eqn)
        if effects:
            self.effects |= effects
        return tracer

    def cast(self, values: Sequence[Any], missing: Sequence[frozenset[Any]]) -> list[Any]:
        """Values that vary along more manual axes than they did."""
        return [self.record(pvary_p, [value], {"axes": tuple(sorted(axes, key=str))}) if axes else value
                for value, axes in zip(values, missing, strict=True)]

    def origins(self, var: Var) -> tuple[list[int], list[JaxprEqn]]:
        """For messages: the indices of the arguments that a variable depends on, and the equations between."""
        needed, used = {var}, []
        for eqn in reversed(self.eqns):
            if not needed.isdisjoint(eqn.outvars):
                used.append(eqn)
                needed.update(atom for atom in eqn.invars if type(atom) is Var)
        return [index for index, each in enumerate(self.invars) if each in needed], used[::-1]

    def finish(self, outs: Sequence[Any]) -> tuple[Jaxpr, list[Any]]:
        """The program with these outputs, and the values of its constvars."""
        outvars = [self.atom(out) for out in outs]
        read = set(outvars).union(*[eqn.invars for eqn in self.eqns])
        for eqn in self.eqns:
            for var in eqn.outvars:
                if var not in read:
                    eqn.outvars = [var if var in read else DropVar(var.aval) for var in eqn.outvars]
                    break
        constants = [(var, value) for var, value in self._values().items() if var in read]
        self.alive = False
        jaxpr = Jaxpr([var for var, _ in constants], self.invars, outvars, self.eqns, self.effects, self.debug_info)
        if config.enable_checks.value:
            check_jaxpr(jaxpr)
        return jaxpr, [value for _, value in constants]


class _Marks:
    """Whether any operation has frontend attributes (`core/scopes.py: Words`): what runs programs again asks this first."""

    exist = False


marks = _Marks()


def pin_marked() -> Callable[[JaxprEqn], None] | None:
    """For `eval_jaxpr`: what the current trace makes of marked equations is marked, too."""
    if not marks.exist:
        return None
    trace = state.trace
    return lambda eqn: trace.pin(eqn.traceback if getattr(eqn.traceback, "words", None) else None)


def trace_to_jaxpr(fun: Callable[..., Sequence[Any]], in_avals: Sequence[Any],
                   debug_info: DebugInfo | None = None) -> tuple[Jaxpr, list[Any]]:
    """Trace a function of flat arguments that returns flat results.

    Returns: the jaxpr and the values of its constvars: closed-over arrays, and tracers of outer traces.
    """
    trace = StagingTrace(debug_info)
    try:
        with set_trace(trace):
            jaxpr, consts = trace.finish(fun(*[trace.new_arg(aval) for aval in in_avals]))
    finally:
        trace.alive = False
    check_leaks(trace)
    return jaxpr, consts


def check_leaks(trace: Trace) -> None:
    """Raises, if the option says to look for them, for tracers of a trace that are still referenced after it."""
    if not config.check_tracer_leaks.value:
        return
    gc.collect()
    leaked = [each for each in gc.get_referrers(trace) if isinstance(each, Tracer)]
    if leaked:
        raise errors.LeakChecked(f"Leaked tracer {leaked[0]}, made at {leaked[0].made_at() or 'the arguments'}, "
                                 f"while tracing {trace.debug_info}")


def varying_inputs(closed: ClosedJaxpr, avals: Sequence[Any]) -> ClosedJaxpr:
    """A program without consts for inputs that vary along the axes along which these do, which it may not be traced for."""
    vmas = tuple([own.aval.vma | aval.vma for own, aval in zip(closed.jaxpr.invars, avals, strict=True)])
    if all([own.aval.vma == vma for own, vma in zip(closed.jaxpr.invars, vmas, strict=True)]):
        return closed

    def make() -> ClosedJaxpr:
        wanted = [varying(own, vma) for own, vma in zip(closed.in_avals, vmas, strict=True)]
        return ClosedJaxpr(*trace_to_jaxpr(lambda *args: eval_jaxpr(closed.jaxpr, [], *args), wanted, closed.jaxpr.debug_info))

    return derived(closed, ("varying", vmas, trace_context()), make)


def has_program(primitive: Primitive, param: str) -> None:
    """Say that a param is a program that takes the operands as they are."""
    primitive.program_inputs = lambda params: params[param].in_avals
    primitive.widen = lambda params, avals: {**params, param: varying_inputs(params[param], avals)}


def runs_program(primitive: Primitive, param: str) -> None:
    """Say that a primitive is a call of the program in a param: its types, its effects, and what an eager call does."""
    has_program(primitive, param)

    @primitive.def_effectful_abstract_eval
    def types(*avals: Any, **params: Any) -> Any:
        return params[param].out_avals, params[param].effects

    @primitive.def_eager
    def run(*args: Any, **params: Any) -> list[Any]:
        return eval_jaxpr(params[param].jaxpr, [], *args)


def varying_outputs(jaxpr: Jaxpr, wanted: Sequence[frozenset[Any]]) -> Jaxpr:
    """The same program with outputs that vary along these manual axes too."""
    eqns, outvars = list(jaxpr.eqns), list(jaxpr.outvars)
    for index, (atom, vma) in enumerate(zip(outvars, wanted, strict=True)):
        missing = tuple(sorted(vma - atom.aval.vma, key=str))
        if missing:
            outvars[index] = var = Var(varying(atom.aval, atom.aval.vma | vma))
            eqns.append(JaxprEqn([atom], [var], pvary_p, {"axes": missing}, no_effects, source.here()))
    return jaxpr.replace(eqns=eqns, outvars=outvars)


def hoist_consts(jaxpr: Jaxpr) -> ClosedJaxpr:
    """The same program with its constvars as leading invars, so that it closes over nothing."""
    if not jaxpr.constvars:
        return ClosedJaxpr(jaxpr, [])
    return ClosedJaxpr(jaxpr.replace(constvars=[], invars=[*jaxpr.constvars, *jaxpr.invars]), [])
