"""The jaxpr: a typed program, as plain data.

`Jaxpr` has variables and equations, `ClosedJaxpr` adds the arrays of its constvars. This module also has functions that
only need this data: iteration over sub-jaxprs, evaluation, and the checker. `jaxlite.core.printer` prints jaxprs.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, final

import numpy as np

from jaxlite.core import config, dtypes, source
from jaxlite.core.aval import AbstractValue, ShapedArray, high_types, layouts, typematch
from jaxlite.core.config import chooses_layouts
from jaxlite.core.errors import JaxprTypeError
from lowering import xla

Found = TypeVar("Found")
More = ParamSpec("More")

# Gives `jaxlite.core.printer`, which reads this module's classes. `jaxlite.core` sets one that loads it on first use.
printer: Callable[[], Any] = lambda: sys.modules["jaxlite.core.printer"]


class Var:
    """A variable of a jaxpr. It has a type and an identity; a name it gets when it is printed."""

    __slots__ = ("aval",)

    def __init__(self, aval: AbstractValue):
        self.aval = aval

    def __repr__(self) -> str:
        return f"Var(id={id(self)}):{self.aval.str_short()}"


class DropVar(Var):
    """An unused result; printed as `_`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "_"


@final
class Literal:
    """A scalar constant that stands in an equation itself. `val` is a Python or NumPy scalar."""

    __slots__ = ("val", "aval")

    def __init__(self, val: Any, aval: ShapedArray):
        self.val, self.aval = val, aval

    def __repr__(self) -> str:
        return f"Literal({self.val}:{self.aval.str_short(short_dtypes=True)})"


Atom = Var | Literal
Effects = frozenset[Any]
no_effects: Effects = frozenset()


class JaxprEqnContext:
    """The options in force where an equation is made. Equations here have those that matter among their params."""

    def __init__(self) -> None:
        self.threefry_partitionable = config.threefry_partitionable.value
        self.cur_abstract_mesh, self.xla_metadata = config.context_abstract_mesh.value, config.xla_words.value
        self.manager = nullcontext()  # what is entered to run the equation


class JaxprEqn:
    """One line of a jaxpr: `outvars = primitive[params] invars`."""

    __slots__ = ("primitive", "invars", "outvars", "params", "effects", "traceback")

    def __init__(self, invars: list[Atom], outvars: list[Var], primitive: Any, params: dict[str, Any],
                 effs: Effects = no_effects, source_info: Any = None, ctx: Any = None):  # `ctx` as in JAX; here params have it
        self.primitive = primitive
        self.invars = invars
        self.outvars = outvars
        self.params = params
        self.effects = effs
        self.traceback = source_info.handle() if type(source_info) is source.SourceInfo else source_info

    def replace(self, **changes: Any) -> JaxprEqn:
        """A copy with some fields replaced."""
        names = ("invars", "outvars", "primitive", "params", "effects")
        fields = {name: getattr(self, name) for name in names} | {"source_info": self.traceback} | changes
        return JaxprEqn(effs=fields.pop("effects"), **fields)

    @property
    def ctx(self) -> JaxprEqnContext:
        return JaxprEqnContext()

    @property
    def source_info(self) -> source.SourceInfo:
        """Where this equation comes from, for `jaxlite.extend.source_info_util`: `traceback` and `name_stack`."""
        return source.SourceInfo.of(self.traceback)

    @property
    def source_line(self) -> str:
        """The user's line that made this equation."""
        return source.summarize_place(self.traceback)

    def __repr__(self) -> str:
        return printer().eqn_to_text(self)


class DebugInfo:
    """Names for messages: the traced function, its arguments by pytree path, what traced it.

    `func_src_info` is the function's name, and its place if it is known: `f at file.py:3`. `arg_names` and `result_paths` may
    be given as a function, which is called when a message needs them. Names that are None are not known.
    """

    __slots__ = ("traced_for", "func_src_info", "_arg_names", "_result_paths")

    def __init__(self, traced_for: str, func_src_info: str, arg_names: Any = None, result_paths: Any = None):
        self.traced_for, self.func_src_info, self._arg_names = traced_for, func_src_info, arg_names
        self._result_paths = result_paths

    @property
    def arg_names(self) -> tuple[str, ...] | None:
        if callable(self._arg_names):
            self._arg_names = self._arg_names()
        return None if self._arg_names is None else tuple(self._arg_names)

    @property
    def result_paths(self) -> tuple[str, ...] | None:
        if callable(self._result_paths):
            self._result_paths = self._result_paths()
        return None if self._result_paths is None else tuple(self._result_paths)

    @result_paths.setter
    def result_paths(self, paths: Any) -> None:
        self._result_paths = paths

    def safe_arg_names(self, expected_count: int) -> tuple[str, ...]:
        """The names of so many arguments, or empty ones if they are not known."""
        return _counted(self.arg_names, expected_count)

    def safe_result_paths(self, expected_count: int) -> tuple[str, ...]:
        """The paths of so many results, or empty ones if they are not known."""
        return _counted(self.result_paths, expected_count)

    def _replace(self, **changes: Any) -> DebugInfo:
        fields = {"traced_for": self.traced_for, "func_src_info": self.func_src_info, "arg_names": self._arg_names,
                  "result_paths": self._result_paths}
        return DebugInfo(**(fields | changes))

    def with_unknown_names(self) -> DebugInfo:
        """For a program with other arguments and results."""
        return self._replace(arg_names=None, result_paths=None)

    @property
    def func_name(self) -> str:
        return self.func_src_info.partition(" at ")[0]

    @property
    def func_filename(self) -> str | None:
        return self._place()[0] or None

    @property
    def func_lineno(self) -> int | None:
        line = self._place()[2]
        return int(line) if line.isdecimal() else None

    def _place(self) -> tuple[str, str, str]:
        return self.func_src_info.partition(" at ")[2].rpartition(":")

    def arg_name(self, index: int) -> str:
        """The name of an argument, or its number, to stand behind the word."""
        names = self.arg_names or ()
        return names[index] if index < len(names) else str(index)

    def _fields(self) -> tuple[Any, ...]:
        return self.traced_for, self.func_src_info, self.arg_names, self.result_paths

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DebugInfo) and self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash((self.traced_for, self.func_src_info))

    def __reduce__(self) -> Any:
        return DebugInfo, self._fields()

    def __repr__(self) -> str:
        return (f"DebugInfo(traced_for={self.traced_for!r}, func_src_info={self.func_src_info!r}, "
                f"arg_names={self.arg_names!r}, result_paths={self.result_paths!r})")

    def __str__(self) -> str:
        return f"{self.func_src_info} for {self.traced_for}"


def _counted(names: Sequence[str] | None, count: int) -> tuple[str, ...]:
    if names is None:
        return ("",) * count
    assert len(names) == count, f"{len(names)} names for {count} values: {names}"
    return tuple(names)


class Jaxpr:
    """A program: `constvars` and `invars` in, `eqns`, `outvars` out."""

    __slots__ = ("constvars", "invars", "outvars", "eqns", "effects", "debug_info", "__weakref__")

    def __init__(self, constvars: Sequence[Var], invars: Sequence[Var], outvars: Sequence[Atom],
                 eqns: Sequence[JaxprEqn], effects: Effects = no_effects, debug_info: DebugInfo | None = None,
                 is_high: bool = False):  # `is_high` as in JAX; here the types tell
        self.constvars = list(constvars)
        self.invars = list(invars)
        self.outvars = list(outvars)
        self.eqns = list(eqns)
        self.effects = effects
        self.debug_info = debug_info

    def replace(self, **changes: Any) -> Jaxpr:
        """A copy with some fields replaced."""
        names = ("constvars", "invars", "outvars", "eqns", "effects", "debug_info")
        fields = {name: getattr(self, name) for name in names}
        return Jaxpr(**(fields | changes))

    @property
    def in_avals(self) -> list[Any]:
        return [var.aval for var in self.invars]

    @property
    def out_avals(self) -> list[Any]:
        return [var.aval for var in self.outvars]

    if xla.VERSION >= (0, 12):  # as JAX of the same jaxlib, where a program is a closed one without constants
        @property
        def jaxpr(self) -> Jaxpr:
            return self

        @property
        def consts(self) -> list[Any]:
            return []

        literals = consts

        def map_jaxpr(self, f: Callable[[Jaxpr], Jaxpr]) -> Jaxpr:
            return f(self)

        def with_consts(self, consts: Sequence[Any]) -> ClosedJaxpr:
            return ClosedJaxpr(self, consts)

        @property
        def num_consts(self) -> int:
            return len(self.constvars)

        @property
        def all_invars(self) -> list[Var]:
            """The variables of constants, and those of inputs."""
            return self.constvars + self.invars

    @property
    def is_high(self) -> bool:
        """Whether it has values of high types (`core/high.py`)."""
        return has_high_types(self)

    def __str__(self) -> str:
        return self.pretty_print()

    __repr__ = __str__

    def pretty_print(self, **options: Any) -> str:
        """The program as text; see `jaxlite.core.printer.jaxpr_to_text` for the options."""
        return printer().jaxpr_to_text(self, **options)

    def _repr_pretty_(self, page: Any, cycle: bool) -> None:
        """What IPython and notebooks show: the text with colours."""
        page.text(self.pretty_print(use_color=True))


class Remembering:
    """Has what was derived from it (see `derived`)."""

    __slots__ = ("_derived",)

    _derived: tuple[Any, dict[Any, Any]]


def derived(source: Remembering, key: Any, make: Callable[[], Found]) -> Found:
    """What `make()` derives from a program, or from what it was split in, once for each key; kept as long as its source."""
    generation, results = getattr(source, "_derived", _NOTHING)
    if generation is not _generations[-1]:
        generation, results = source._derived = _generations[-1], {}
    found = results.get(key)
    if found is None:
        found = make()
        if len(results) >= _DERIVED_LIMIT:  # a lasting program may be used with functions made anew
            results.clear()
        results[key] = found
    return found


def exact_key(value: Any) -> Any:
    """A key for a param that tells equal values apart: 1, 1.0 and True, 0.0 and -0.0, in tuples too."""
    kind = type(value)
    if kind is tuple:
        return tuple(map(exact_key, value))
    return kind, value.hex() if kind is float else value


def forget_derived() -> None:
    """From now on all is derived anew."""
    _generations[-1] = object()


_DERIVED_LIMIT = 256
_NOTHING: tuple[Any, dict[Any, Any]] = (None, {})
_generations = [object()]


def _closed(jaxpr: Jaxpr, consts: Sequence[Any]) -> ClosedJaxpr:
    return ClosedJaxpr(jaxpr, consts)


class ClosedJaxpr(Remembering):
    """A jaxpr with the values of its constvars."""

    __slots__ = ("jaxpr", "consts", "__weakref__")

    def __init__(self, jaxpr: Jaxpr, consts: Sequence[Any]):
        assert len(consts) == len(jaxpr.constvars), "one const for each constvar"
        self.jaxpr, self.consts = jaxpr, list(consts)

    def __reduce__(self) -> Any:  # the class may have another name than this module knows it by
        return _closed, (self.jaxpr, self.consts)

    @property
    def eqns(self) -> list[JaxprEqn]:
        return self.jaxpr.eqns

    @property
    def effects(self) -> Effects:
        return self.jaxpr.effects

    @property
    def in_avals(self) -> list[Any]:
        return [var.aval for var in self.jaxpr.invars]

    @property
    def out_avals(self) -> list[Any]:
        return [var.aval for var in self.jaxpr.outvars]

    @property
    def literals(self) -> list[Any]:
        return self.consts

    @property
    def constvars(self) -> list[Var]:
        return self.jaxpr.constvars

    @property
    def invars(self) -> list[Var]:
        return self.jaxpr.invars

    @property
    def outvars(self) -> list[Atom]:
        return self.jaxpr.outvars

    @property
    def debug_info(self) -> DebugInfo | None:
        return self.jaxpr.debug_info

    @property
    def is_high(self) -> bool:
        return self.jaxpr.is_high

    def replace(self, *, jaxpr: Jaxpr | None = None, consts: Sequence[Any] | None = None, **changes: Any) -> ClosedJaxpr:
        """A copy with some fields replaced; `changes` are those of its `jaxpr`."""
        jaxpr = self.jaxpr if jaxpr is None else jaxpr
        return ClosedJaxpr(jaxpr.replace(**changes) if changes else jaxpr, self.consts if consts is None else consts)

    with_consts = lambda self, consts: self.replace(consts=consts)

    if xla.VERSION >= (0, 12):
        @property
        def num_consts(self) -> int:
            return len(self.consts)

        @property
        def all_invars(self) -> list[Var]:
            return self.jaxpr.all_invars

    def map_jaxpr(self, f: Callable[[Jaxpr], Jaxpr]) -> ClosedJaxpr:
        """The program that f makes of this one, with the same constants."""
        return ClosedJaxpr(f(self.jaxpr), self.consts)

    def __str__(self) -> str:
        return self.jaxpr.pretty_print()

    __repr__ = __str__

    def pretty_print(self, **options: Any) -> str:
        """The program as text; see `jaxlite.core.printer.jaxpr_to_text` for the options."""
        return self.jaxpr.pretty_print(**options)

    def _repr_pretty_(self, page: Any, cycle: bool) -> None:
        """What IPython and notebooks show: the text with colours."""
        page.text(self.pretty_print(use_color=True))


if xla.VERSION >= (0, 12):
    ClosedJaxpr.__name__ = ClosedJaxpr.__qualname__ = "Jaxpr"  # as JAX of the same jaxlib; `jaxlite.extend.core` has one class

def once_for_each(of: Callable[Concatenate[Jaxpr, More], Found]) -> Callable[Concatenate[Jaxpr, More], Found]:
    """A function of programs, and of what else it takes, that is computed once for each of them, for as long as it lives.

    A walk into calls needs it: functions that call one another twice are few programs, but 2^depth calls.
    """
    known: weakref.WeakKeyDictionary[Jaxpr, dict[Any, Found]] = weakref.WeakKeyDictionary()

    @wraps(of)
    def remembering(jaxpr: Jaxpr, /, *args: More.args, **kwargs: More.kwargs) -> Found:
        found = known.setdefault(jaxpr, {})
        key = (*args, *kwargs.items())
        if key not in found:
            found[key] = of(jaxpr, *args, **kwargs)
        return found[key]

    return remembering


def has_high_types(jaxpr: Jaxpr) -> bool:
    """Whether a program has values of high types, or operations that are written for them."""
    return high_types.exist and _has_high_types(jaxpr)


@once_for_each
def _has_high_types(jaxpr: Jaxpr) -> bool:
    return (any([var.aval.is_high for var in (*jaxpr.constvars, *jaxpr.invars)])
            or any([eqn.primitive.to_lojax is not None or any(map(_has_high_types, jaxprs_in_params(eqn.params)))
                    for eqn in jaxpr.eqns]))


def jaxprs_in_params(params: dict[str, Any]) -> Iterator[Jaxpr]:
    """The sub-jaxprs of an equation, also those inside tuples."""
    for value in params.values():
        for item in value if type(value) in (tuple, list) else (value,):
            if type(item) is ClosedJaxpr:
                yield item.jaxpr
            elif type(item) is Jaxpr:
                yield item


def program_in(params: dict[str, Any]) -> ClosedJaxpr | None:
    """The first closed jaxpr among an equation's params, or in a tuple of them."""
    for param in params.values():
        if type(param) is tuple and param:
            param = param[0]
        if type(param) is ClosedJaxpr:
            return param
    return None


def subjaxprs(jaxpr: Jaxpr) -> Iterator[Jaxpr]:
    """The sub-jaxprs of all equations of a program, one level down."""
    for eqn in jaxpr.eqns:
        yield from jaxprs_in_params(eqn.params)


def count_eqns(jaxpr: Jaxpr | ClosedJaxpr) -> int:
    """Number of equations, those of sub-jaxprs included."""
    return _count_eqns(jaxpr.jaxpr if isinstance(jaxpr, ClosedJaxpr) else jaxpr)


@once_for_each
def _count_eqns(jaxpr: Jaxpr) -> int:
    return len(jaxpr.eqns) + sum(map(_count_eqns, subjaxprs(jaxpr)))


def one_each(flags: bool | Sequence[bool], count: int) -> list[bool]:
    """One flag for each of so many values, where one may have been given for all."""
    return [flags] * count if isinstance(flags, bool) else list(flags)


def pick(values: Sequence[Any], flags: Sequence[Any]) -> list[Any]:
    """The values where flags hold: of the operands or the results of an equation, of its specs, ..."""
    return [value for value, flag in zip(values, flags, strict=True) if flag]


def drop(values: Sequence[Any], flags: Sequence[Any]) -> list[Any]:
    """The values where flags do not hold."""
    return [value for value, flag in zip(values, flags, strict=True) if not flag]


def eval_jaxpr(jaxpr: Jaxpr, consts: Sequence[Any], *args: Any, before: Callable[[JaxprEqn], None] | None = None,
               propagate_source_info: bool = True) -> list[Any]:
    """Run a program equation by equation, under whatever trace is current.

    Args:
      consts, args: what the constvars and invars are, in order.
      before: called with each equation before it runs.
      propagate_source_info: JAX's; equations have the line of the caller either way.
    Returns: the flat list of outputs.
    """
    if len(args) != len(jaxpr.invars) or len(consts) != len(jaxpr.constvars):
        if xla.VERSION >= (0, 12) and len(args) + len(consts) == len(jaxpr.invars) + len(jaxpr.constvars):
            return eval_jaxpr(with_constvars(jaxpr, len(consts)), consts, *args, before=before)
        raise TypeError(
            f"eval_jaxpr: the program takes {len(jaxpr.constvars)} consts and {len(jaxpr.invars)} arguments, "
            f"got {len(consts)} and {len(args)}"
        )
    if layouts.exist and not chooses_layouts.value:  # it was typed when it was traced: what its operations chose then, they may
        previous = chooses_layouts.swap_local(True)
        try:
            return eval_jaxpr(jaxpr, consts, *args, before=before)
        finally:
            chooses_layouts.set_local(previous)
    env: dict[Var, Any] = {}

    def read(atom: Atom) -> Any:
        return atom.val if type(atom) is Literal else env[atom]

    env.update(zip(jaxpr.constvars, consts, strict=True))
    env.update(zip(jaxpr.invars, args, strict=True))
    for eqn in jaxpr.eqns:
        primitive = eqn.primitive
        if before is not None:
            before(eqn)
        outs = primitive.bind(*[read(atom) for atom in eqn.invars], **eqn.params)
        if primitive.multiple_results:
            env.update(zip(eqn.outvars, outs, strict=True))
        else:
            env[eqn.outvars[0]] = outs
    return [read(atom) for atom in jaxpr.outvars]


def with_constvars(jaxpr: Jaxpr, count: int) -> Jaxpr:
    """The same program, whose first `count` inputs, constvars before invars, are its constvars."""
    if count == len(jaxpr.constvars):
        return jaxpr
    inputs = jaxpr.constvars + jaxpr.invars
    return jaxpr.replace(constvars=inputs[:count], invars=inputs[count:])


def jaxpr_as_fun(closed_jaxpr: ClosedJaxpr) -> Any:
    """A Python function of flat arguments that runs the program."""
    return lambda *args: eval_jaxpr(closed_jaxpr.jaxpr, closed_jaxpr.consts, *args)


def check_jaxpr(jaxpr: Jaxpr | ClosedJaxpr, checked: set[Jaxpr] | None = None) -> None:
    """Check that a program is well formed and well typed, sub-jaxprs included; those in `checked` were.

    Raises: `JaxprTypeError` that names the equation: a variable read before it is bound or bound twice,
    a literal of another type than it says, or an equation whose outputs are not what its primitive says.
    """
    if isinstance(jaxpr, ClosedJaxpr):
        jaxpr = jaxpr.jaxpr
    checked = set() if checked is None else checked
    bound: set[Var] = set()

    def bind(var: Var, where: str) -> None:
        if not isinstance(var, Var):
            raise JaxprTypeError(f"{where}: {var!r} is not a variable")
        if var in bound and not isinstance(var, DropVar):
            raise JaxprTypeError(f"{where}: variable {var!r} is bound twice")
        bound.add(var)

    def read(atom: Any, where: str) -> None:
        if isinstance(atom, Literal):
            if not _fits(atom.val, atom.aval):
                raise JaxprTypeError(f"{where}: literal {atom.val!r} does not have the type {atom.aval}")
        elif not isinstance(atom, Var) or atom not in bound:
            raise JaxprTypeError(f"{where}: {atom!r} is read but nothing bound it")

    for var in (*jaxpr.constvars, *jaxpr.invars):
        bind(var, "the parameters")
    for index, eqn in enumerate(jaxpr.eqns):
        where = f"equation {index} ({eqn.primitive.name})"
        for atom in eqn.invars:
            read(atom, where)
        scope = eqn.primitive.scope
        with nullcontext() if scope is None else scope(eqn.params):
            for sub in jaxprs_in_params(eqn.params):
                if sub.constvars:
                    raise JaxprTypeError(f"{where}: a jaxpr in its params closes over {len(sub.constvars)} values; they "
                                         "should be operands")
                if scope is not None:
                    check_jaxpr(sub)
                elif sub not in checked:
                    checked.add(sub)
                    check_jaxpr(sub, checked)
        try:
            out_avals, _ = eqn.primitive.typed([atom.aval for atom in eqn.invars], eqn.params)
        except JaxprTypeError:
            raise
        except Exception as error:
            raise JaxprTypeError(f"{where} is ill-typed: {error}\n  {eqn}") from error
        if not eqn.primitive.multiple_results:
            out_avals = [out_avals]
        if len(out_avals) != len(eqn.outvars):
            raise JaxprTypeError(f"{where} has {len(eqn.outvars)} outputs, its primitive gives {len(out_avals)}")
        for var, aval in zip(eqn.outvars, out_avals, strict=True):
            if not typematch(var.aval, aval):
                raise JaxprTypeError(f"{where}: output is {var.aval}, its primitive gives {aval}\n  {eqn}")
            bind(var, where)
    for atom in jaxpr.outvars:
        read(atom, "the outputs")


_KINDS = "iufc"  # each holds the values of those before it, as far as a literal's kind is concerned


def _fits(value: Any, aval: ShapedArray) -> bool:
    """Whether a value can stand in a literal of a type: a scalar, and of no wider kind."""
    if getattr(value, "shape", ()) or aval.shape:
        return False
    kind = dtypes.kind(np.asarray(value).dtype)
    wanted = dtypes.kind(aval.dtype)
    return kind == wanted if "b" in (kind, wanted) else _KINDS.index(kind) <= max(_KINDS.index(wanted), 1)
