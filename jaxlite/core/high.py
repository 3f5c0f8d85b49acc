"""High types: types of values that consist of arrays. They exist in programs until these are lowered.

A library defines a type for the values of a class (`HiType`): the types of the arrays of a value, and conversions in both
directions. Values of a `MutableHiType` change. A program tracks a description of their current contents, the "quasi-dynamic
data" (QDD), from operation to operation. A variable of such a type is a `StateVar`.

This module loads with the first such type. It has the types, their tracers, and the tracking of states;
`jaxlite.compilation.lowered_types` lowers them.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from jaxlite.core.aval import AbstractValue, high_types
from jaxlite.core.jaxpr import Jaxpr, JaxprEqn, Var, jaxprs_in_params
from jaxlite.core.source import here
from jaxlite.core.staging import StagedTracer, StagingTrace
from jaxlite.core.tracing import Tracer, state
from jaxlite.core.values import AVAL_OF, aval_of

high_types.exist = True


def _missing(aval: Any, method: str) -> NotImplementedError:
    return NotImplementedError(f"{type(aval).__name__} does not define `{method}`")


class aval_method:
    """A method of a type that traced values of the type have."""

    def __init__(self, fun: Callable[..., Any]):
        self.fun = fun


class aval_property:
    """A property of a type that traced values of the type have."""

    def __init__(self, fget: Callable[..., Any]):
        self.fget = fget


class HiType(AbstractValue):
    """The type of values that are made of arrays. Subclasses are hashable and comparable, and define what is needed of this.

    `lo_ty()` gives the types of the arrays, `lower_val(value)` a value's arrays, `raise_val(*arrays)` the value of them.
    For derivatives, `to_tangent_aval()` is the type of tangents, and `to_ct_aval()` that of cotangents if it is another;
    `vspace_zero()` and `vspace_add(x, y)` make zeros and sums of values of this type, where it is one of tangents. For vmap and
    scan, `dec_rank(size, spec)` is the type of one example of a batch, and `inc_rank(size, spec)` that of a batch.
    """

    __slots__ = ()
    is_high = True
    weak_type = False
    layout = None

    def lo_ty(self) -> list[Any]:
        raise _missing(self, "lo_ty")

    def lower_val(self, hi_val: Any) -> list[Any]:
        raise _missing(self, "lower_val")

    def raise_val(self, *lo_vals: Any) -> Any:
        raise _missing(self, "raise_val")

    def to_tangent_aval(self) -> Any:
        raise _missing(self, "to_tangent_aval")

    def to_ct_aval(self) -> Any:
        return self.to_tangent_aval()

    at_least_vspace = to_tangent_aval

    def vspace_zero(self) -> Any:
        raise _missing(self, "vspace_zero")

    def vspace_add(self, x: Any, y: Any) -> Any:
        raise _missing(self, "vspace_add")

    def dec_rank(self, size: int | None, spec: Any) -> Any:
        raise _missing(self, "dec_rank")

    def inc_rank(self, size: int | None, spec: Any) -> Any:
        raise _missing(self, "inc_rank")

    def leading_axis_spec(self) -> Any:
        """Which axes a batch has in front: what `inc_rank` is given for the results of scan."""
        return 0

    def shard(self, mesh: Any, manual_axes: Any, check_vma: bool, spec: Any) -> Any:
        raise _missing(self, "shard")

    def unshard(self, mesh: Any, check_vma: bool, spec: Any) -> Any:
        raise _missing(self, "unshard")

    def nospec(self, mesh: Any, check_vma: bool, all_names: Any) -> Any:
        raise _missing(self, "nospec")

    def strip_weak_type(self) -> Any:
        return self

    normalize = strip_weak_type

    def update_weak_type(self, weak_type: bool) -> Any:
        return self

    def str_short(self, short_dtypes: bool = False, **options: Any) -> str:
        return repr(self)


class MutableHiType(HiType):
    """The type of values that change. What they hold is described by a state (QDD), which their `cur_qdd()` gives.

    `lo_ty_qdd(state)` gives the types of the arrays of a value in a state, `read_loval(state, value)` its arrays,
    `new_from_loval(state, *arrays)` a new value of them, `update_from_loval(state, value, *arrays)` puts them into one.
    """

    __slots__ = ()
    has_qdd = True

    def lo_ty_qdd(self, state: Any, /) -> list[Any]:
        raise _missing(self, "lo_ty_qdd")

    def new_from_loval(self, state: Any, /, *vals: Any) -> Any:
        raise _missing(self, "new_from_loval")

    def read_loval(self, state: Any, val: Any, /) -> list[Any]:
        raise _missing(self, "read_loval")

    def update_from_loval(self, state: Any, val: Any, /, *lo_vals: Any) -> None:
        raise _missing(self, "update_from_loval")

    type_state = aval_method(lambda value: cur_qdd(value))


class HiPspec:
    """Base of what says how values of a high type are cut over a mesh; `to_lo()` gives a `PartitionSpec` for each array."""

    __slots__ = ()

    def to_lo(self) -> tuple[Any, ...]:
        raise _missing(self, "to_lo")

    def to_tangent_spec(self) -> Any:
        raise _missing(self, "to_tangent_spec")

    def to_ct_spec(self) -> Any:
        raise _missing(self, "to_ct_spec")


class MappingSpec:
    """Base of what says where the batched axes of a value of a high type are: it stands in `in_axes` and `out_axes`."""


@dataclass(frozen=True)
class AvalQDD(AbstractValue):  # type: ignore[misc]
    """A type of values that change, with the state of one of them."""

    aval: Any
    qdd: Any
    is_high = has_qdd = True
    layout, weak_type = None, False

    def lo_ty(self) -> list[Any]:
        return self.aval.lo_ty_qdd(self.qdd)

    def lower_val(self, hi_val: Any) -> list[Any]:
        return self.aval.read_loval(self.qdd, hi_val)

    read_loval = lower_val

    def raise_val(self, *lo_vals: Any) -> Any:
        return self.aval.new_from_loval(self.qdd, *lo_vals)

    new_from_loval = raise_val

    def to_tangent_aval(self) -> Any:
        return AvalQDD(self.aval.to_tangent_aval(), self.qdd.to_tangent_qdd())

    def strip_weak_type(self) -> Any:
        return self

    def str_short(self, short_dtypes: bool = False, **options: Any) -> str:
        return self.aval.str_short(short_dtypes)

    def __str__(self) -> str:
        return str(self.aval)


class MutableQuasiDynamicData:
    """The state of a value while a typing rule looks at it, which may replace it."""

    __slots__ = ("init_val", "cur_val")

    def __init__(self, val: Any):
        self.init_val = self.cur_val = val

    def update(self, val: Any) -> None:
        """Set the state that the value has from now on."""
        self.cur_val = val


@dataclass(frozen=True)
class AvalMutableQDD:
    """What a typing rule gets for an operand that changes: its type, and its state, which it may set."""

    aval: Any
    mutable_qdd: MutableQuasiDynamicData


def raised(aval: Any, arrays: Iterator[Any]) -> Any:
    """The value of a type that the next arrays are."""
    return aval.raise_val(*islice(arrays, len(aval.lo_ty())))


def register_hitype(val_cls: type, typeof_fn: Callable[[Any], Any]) -> None:
    """Say that values of a class are values: what their type is.

    >>> import jaxlite
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class PairType(HiType):
    ...     of: object
    ...     def lo_ty(self): return [self.of, self.of]
    ...     def lower_val(self, pair): return [pair.x, pair.y]
    ...     def raise_val(self, x, y): return Pair(x, y)
    >>> @dataclass(frozen=True)
    ... class Pair:
    ...     x: object
    ...     y: object
    >>> register_hitype(Pair, lambda pair: PairType(jaxlite.typeof(pair.x)))
    >>> jaxlite.jit(lambda pair: pair)(Pair(1.0, 2.0)).y
    Array(2., dtype=float32, weak_type=True)
    """
    AVAL_OF[val_cls] = typeof_fn


# --- states ------------------------------------------------------------------------------------------


class StateVar(Var):
    """A variable of a type whose values change. `aval` has the state at the beginning, `last` is that at the end."""

    __slots__ = ("last",)
    aval: Any

    def __init__(self, aval: AvalQDD):
        self.aval, self.last = aval, aval.qdd


def new_var(aval: Any, value: Any = None) -> Var:
    """A variable of a high type; for a value from outside the program, in the state that it has there."""
    if aval.has_qdd and type(aval) is not AvalQDD:
        if value is None:
            raise TypeError(f"a value of the type {aval} has a state, which is not known here")
        aval = AvalQDD(aval, cur_qdd(value, value._trace) if isinstance(value, Tracer) else value.cur_qdd())
    return StateVar(aval) if type(aval) is AvalQDD else Var(aval)


def cur_qdd(x: Any, trace: Any = None) -> Any:
    """The state of a mutable value of a high type, at this point of the program.

    Args: `trace` to be asked instead of the current one.
    """
    trace = state.trace if trace is None else trace
    while isinstance(x, Tracer):
        if isinstance(trace, StagingTrace):
            if isinstance(x, StagedTracer) and x._trace is trace:
                return x.atom.last  # type: ignore[union-attr]
            found = trace._constants.get(id(x))
            if found is not None:
                return found[1].last  # type: ignore[attr-defined]
            trace = x._trace
        elif x._trace is trace:
            x, trace = getattr(x, "primal", None) or x.value, trace.parent  # type: ignore[attr-defined]
        else:
            trace = getattr(trace, "parent", x._trace)
    while isinstance(trace, StagingTrace) or hasattr(trace, "parent"):
        if isinstance(trace, StagingTrace):
            found = trace._constants.get(id(x))
            return x.cur_qdd() if found is None else found[1].last  # type: ignore[attr-defined]
        trace = trace.parent
    return x.cur_qdd()


def with_states(avals: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    """Types of values, with the states of those that have one."""
    return [AvalQDD(aval, cur_qdd(value)) if aval.has_qdd and type(aval) is not AvalQDD else aval
            for aval, value in zip(avals, values, strict=True)]


def have_changed(variables: Sequence[Var], values: Sequence[Any]) -> bool:
    """Whether values that a program closes over are in other states than when it was traced."""
    return any([type(var) is StateVar and cur_qdd(value) != var.aval.qdd
                for var, value in zip(variables, values, strict=True)])


def _programs(eqn: JaxprEqn) -> list[tuple[Jaxpr, int]]:
    """The programs of an equation, and the position of the operand that is their first input."""
    params, name = eqn.params, eqn.primitive.name
    if name == "cond":
        return [(branch.jaxpr, 1) for branch in params["branches"]]
    if name == "while":
        return [(params["body_jaxpr"].jaxpr, params["cond_nconsts"])]
    return [(jaxpr, 0) for jaxpr in jaxprs_in_params(params) if len(jaxpr.invars) == len(eqn.invars)]


def follow(eqn: JaxprEqn) -> None:
    """Bring the states of an equation's operands to what its programs leave behind.

    Raises: TypeError if that is not the same in all branches, or if a loop changes it.
    """
    name = eqn.primitive.name
    found: dict[StateVar, Any] = {}
    for jaxpr, start in _programs(eqn):
        for operand, inner in zip(eqn.invars[start:], jaxpr.invars, strict=False):
            if type(operand) is not StateVar or type(inner) is not StateVar:
                continue
            if name in ("scan", "while") and inner.last != inner.aval.qdd:
                raise TypeError(f"the body of a {name} changes the state of a value of the type {inner.aval}, which must be "
                                f"the same in each step: it is {inner.aval.qdd} before, and {inner.last} after a step")
            if found.setdefault(operand, inner.last) != inner.last:
                raise TypeError(f"the branches of a {name} leave a value of the type {inner.aval} in different states: "
                                f"{found[operand]} and {inner.last}")
    for operand, last in found.items():
        operand.last = last


def record(trace: StagingTrace, primitive: Any, args: Sequence[Any], params: dict[str, Any], source: Any = None) -> Any:
    """An equation of a primitive that is written for high types: its typing rule sees, and sets, states.

    Args: `source` where it stands, if that is not the current line.
    """
    atoms = [trace.atom(arg) for arg in args]
    avals: list[Any] = []
    for atom in atoms:
        avals.append(AvalMutableQDD(atom.aval.aval, MutableQuasiDynamicData(atom.last)) if type(atom) is StateVar
                     else atom.aval)
    out, effects = primitive.abstract_eval(*avals, **params)
    for atom, aval in zip(atoms, avals, strict=True):
        if type(atom) is StateVar:
            atom.last = aval.mutable_qdd.cur_val
    outs = list(out) if primitive.multiple_results else [out]
    outvars = [new_var(aval) if aval.is_high else Var(aval) for aval in outs]
    trace.eqns.append(JaxprEqn(atoms, outvars, primitive, params, frozenset(effects), source or trace.pinned or here()))
    if effects:
        trace.effects |= frozenset(effects)
    tracers = [trace._tracer(var) for var in outvars]
    return tracers if primitive.multiple_results else tracers[0]


# --- tracers -----------------------------------------------------------------------------------------


class _HighMethods:
    """What tracers of high types answer: what their type says, and nothing that arrays do."""

    __slots__ = ()

    def __getattribute__(self, name: str) -> Any:
        if name in _OWN or name[:2] == "__" and name != "__jax_array__":
            return object.__getattribute__(self, name)
        try:
            found = getattr(object.__getattribute__(self, "aval"), name)
        except AttributeError:
            if name in object.__getattribute__(self, "_parts"):
                return object.__getattribute__(self, name)
            raise AttributeError(f"{type(self).__name__} has no attribute {name}") from None
        if type(found) is aval_property:
            return found.fget(self)
        if type(found) is aval_method:
            return types.MethodType(found.fun, self)
        return found

    def _is_traced_array(self) -> bool:
        return False

    def __repr__(self) -> str:
        return f"JitTracer({object.__getattribute__(self, 'aval')})"

    def __format__(self, spec: str) -> str:
        return format(repr(self), spec)


_OWN = frozenset(("_trace", "aval", "atom", "primal", "tangent", "dim", "made_at", "history", "known", "full_lower",
                  "_is_traced_array", "_parts"))
_BINARY = ("add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "divmod", "pow", "lshift", "rshift", "and", "xor", "or")
_MIRRORED = {"radd", "rsub", "rmul", "rmatmul", "rtruediv", "rfloordiv", "rmod", "rdivmod", "rpow", "rlshift", "rrshift",
             "rand", "rxor", "ror"}
_OTHERS = ("neg", "pos", "abs", "invert", "complex", "int", "float", "index", "round", "trunc", "floor", "ceil", "len", "iter",
           "bool", "getitem", "setitem", "delitem", "call", "contains", "enter", "exit")


def _operator(name: str, binary: bool) -> Callable[..., Any]:
    def method(self: Any, *args: Any) -> Any:
        found = getattr(type(self.aval), "_" + name, None)
        if found is None:
            if binary:
                return NotImplemented
            if name == "bool":
                return True
            raise TypeError(f"values of the type {self.aval} do not have `__{name}__`")
        return getattr(self.aval, "_" + name)(self, *args)

    return method


for _name in (*_BINARY, *sorted(_MIRRORED), *_OTHERS):
    setattr(_HighMethods, f"__{_name}__", _operator(_name, _name in _BINARY or _name in _MIRRORED))
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(_HighMethods, f"__{_name}__", _operator(_name, True))
_HighMethods.__hash__ = object.__hash__  # type: ignore[method-assign]


def _copies(self: Any, *memo: Any) -> Any:
    return self


_HighMethods.__copy__ = _HighMethods.__deepcopy__ = _copies  # type: ignore[attr-defined]

_classes: dict[type, type] = {}


def make_high(tracer: Any) -> None:
    """Let a tracer of a high type answer as its type says."""
    kind = type(tracer)
    if kind in _classes.values():
        return
    found = _classes.get(kind)
    if found is None:
        parts = frozenset(slot for base in kind.__mro__ for slot in getattr(base, "__slots__", ()))
        found = _classes[kind] = type(kind.__name__, (_HighMethods, kind), {"__slots__": (), "_parts": parts})
    tracer.__class__ = found


def is_high_value(value: Any) -> bool:
    """Whether a value has a high type."""
    if isinstance(value, Tracer):
        return value.aval.is_high
    return type(value) in AVAL_OF and aval_of(value).is_high


def as_array(value: Any) -> Any:
    """The array that a value of a high type stands for where a function takes arrays: what its `__jax_array__` gives."""
    return value.__jax_array__() if hasattr(value, "__jax_array__") and is_high_value(value) else value

