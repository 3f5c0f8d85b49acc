"""The primitive: a name, and slots for its rules.

The module that reads a slot defines the contents: abstract evaluation here, derivative rules in `jaxlite.traces.jvp`, and
so on. StableHLO rules have no slot: `lowering.rules` finds them by name. If a primitive has no rule on purpose,
`no_jvp("why")` and similar methods say so, which distinguishes it from a forgotten rule.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jaxlite.core import source
from jaxlite.core.aval import (
    AbstractRef,
    AbstractValue,
    MemorySpace,
    ShapedArray,
    in_space,
    layouts,
    mesh_of_types,
    refuse_ref,
    spaces,
    varying,
)
from jaxlite.core.config import chooses_layouts, no_collectives
from jaxlite.core.jaxpr import Effects, derived, exact_key, jaxprs_in_params, no_effects
from jaxlite.core.lazy import loader
from jaxlite.core.tracing import set_trace, state
from lowering.rules import register_foreign

PRIMITIVES: dict[str, Primitive] = {}
_nowhere: frozenset[Any] = frozenset()


class MixedVarying(Exception):
    """Operands have to be cast: `missing` gives for each the manual axes along which it is to vary too."""

    def __init__(self, missing: list[frozenset[Any]]):
        super().__init__("the operands vary along different axes of the mesh")
        self.missing = missing


class TooVarying(Exception):
    """Operands vary along more manual axes than the program that takes them was traced for."""


def _check_vma(avals: Sequence[Any], wanted: Sequence[frozenset[Any]]) -> None:
    if any([not wish <= aval.vma for aval, wish in zip(avals, wanted, strict=True) if wish]):
        raise MixedVarying([wish - aval.vma for aval, wish in zip(avals, wanted, strict=True)])


_MEMO_LIMIT = 4096
_explicit = loader("jaxlite.lax.explicit")  # what stands higher: the layouts of results over explicit axes
_no_collectives = loader("jaxlite.lax.no_collectives")


_INDEXED = ("gather", "scatter")  # whose indices, and values made of a scalar, may be in any memory


class NoRule:
    """Stands in a rule's slot where there is none by nature, and says why."""

    __slots__ = ("reason", "of")

    def __init__(self, reason: str, of: str = ""):
        self.reason, self.of = reason, of


class Primitive:
    """An operation that traces know. `bind(*arrays, **static)` applies it under the current trace.

    Arrays are positional, static facts are keywords: hashable and normalised. `is_own` tells primitives of jaxlite, with
    the rules it gave them, from what others add or change; theirs may share a name, also with one of ours. `made_in` is the
    module that made it.
    """

    __slots__ = ("name", "multiple_results", "is_own", "made_in", "jvp", "linearize", "transpose", "batching", "eager",
                 "_abstract", "_memo", "_memoised", "stage", "__dict__")
    call_primitive = map_primitive = False  # whether its operand is a function
    has_foreign_jvp = False  # whether its JVP rule is not one of jaxlite's
    param_readers: Mapping[str, Callable[[str], Any]] = {}  # for params that print as one word: the value from the word
    # For accesses of Refs: leaves and tree from the type of the Ref and a parsed index.
    index_reader: Callable[..., Any] | None = None
    # For calls with rules of users: from params to what is called, of flat values.
    function_of_call: Callable[..., Any] | None = None
    # For calls that traces of libraries may process in a method of their own, such as `process_custom_jvp_call`.
    hand_over: Callable[[Callable[..., Any], Sequence[Any], dict[str, Any]], Any] | None = None
    # Where params are others in JAX: what traces of libraries get.
    params_for_libraries: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    # Of primitives that are not in JAX: what traces of libraries get in their place, a function of the operands and params.
    known_to_libraries_as: Callable[..., Any] | None = None
    typed_by: tuple[str, ...] | None = None  # the params that decide the types of its results, if not all do
    batches_always = False  # whether its batching rule is asked even where none of its operands is batched
    differentiates_always = False  # the same for derivatives
    # Of operations on programs: the types that operands have inside, by the params; and params for operands of given types
    # that vary along more manual axes of a mesh than the programs were traced for.
    program_inputs: Callable[[dict[str, Any]], list[Any]] | None = None
    widen: Callable[[dict[str, Any], list[Any]], dict[str, Any]] | None = None
    scope: Callable[[dict[str, Any]], Any] | None = None  # a context manager, under which the program in its params was traced
    knows_vma = False  # whether its typing rule says itself along which manual axes of a mesh its results vary
    knows_spaces = False  # whether its typing rule says itself in which memory its results are
    takes_refs = False  # whether operands may be mutable arrays; those with sub-programs pass them on in any case
    to_lojax: Any = None  # of operations on values of high types: what they are in others, applied before lowering
    # Adds the cotangent of the first operand to what there is of it: `transpose_onto(total, cotangent, *operands, **params)`.
    transpose_onto: Callable[..., Any] | None = None
    has_own_backward = False  # whether it is transposed even where no cotangent arrives: a function of the user's does it

    def __init__(self, name: str, multiple_results: bool = False, memoise: bool | str = True, is_own: bool | None = None):
        """Args: `memoise`, whether types are remembered, or the param with the program as long as which they are."""
        self.name = name
        self.multiple_results = multiple_results or getattr(type(self), "multiple_results") is True  # noqa: B009  a subclass may say
        self.made_in: str = sys._getframe(1).f_globals.get("__name__", "")
        self.is_own = self.made_in.startswith("jaxlite.") if is_own is None else is_own
        if name in PRIMITIVES:
            if self.is_own:
                raise ValueError(f"a primitive named {name!r} exists already")
            register_foreign(self, None)  # until it gets one, it has no rule: not that of its namesake
        self.jvp: Any = None
        self.linearize: Any = None
        self.transpose: Any = None
        self.batching: Any = None
        self.eager: Any = None
        self.stage: Any = None
        self._abstract: Callable[..., Any] = self._no_abstract_eval
        self._memo: dict[Any, Any] = {}
        self._memoised = memoise
        if type(self).abstract_eval is not Primitive.abstract_eval:
            self._abstract = self.abstract_eval
        if type(self).impl is not Primitive.impl:
            self.eager = self.impl
        PRIMITIVES.setdefault(name, self)

    def __repr__(self) -> str:
        return self.name

    def bind(self, *args: Any, **params: Any) -> Any:
        """Apply to values: one result, or a list of results if `multiple_results`."""
        return state.trace.process(self, args, params)

    def get_bind_params(self, params: dict[str, Any]) -> dict[str, Any]:
        """The params of an equation as JAX has them. `bind` takes them too."""
        return dict(params) if self.params_for_libraries is None else self.params_for_libraries(params)

    def leaves_out(self, **params: Any) -> None:
        """Set what traces of libraries get for params that JAX's primitive has, and this one where they have other values."""
        self.params_for_libraries = lambda given: {**params, **given}

    def bind_with_trace(self, trace: Any, args: Sequence[Any], *avals_and_params: Any) -> Any:
        """Apply to values under a trace that need not be the current one: `(trace, args, [avals,] params)`."""
        return trace.apply(self, args, avals_and_params[-1])

    # --- abstract evaluation

    def _no_abstract_eval(self, *avals: Any, **params: Any) -> Any:
        raise NotImplementedError(f"Abstract evaluation for '{self.name}' not implemented")

    def def_abstract_eval(self, abstract_eval: Callable[..., Any]) -> Callable[..., Any]:
        """Set the typing rule: `abstract_eval(*avals, **params)` gives the output aval (or avals)."""
        rule = abstract_eval
        if self.is_own:
            self._abstract = lambda *avals, **params: (rule(*avals, **params), no_effects)
        else:
            self._abstract = lambda *avals, **params: (self._checked_types(rule, rule(*avals, **params)), no_effects)
        return rule

    def def_effectful_abstract_eval(self, effectful_abstract_eval: Callable[..., Any]) -> Callable[..., Any]:
        """Set a typing rule that gives `(aval or avals, effects)`."""
        rule = effectful_abstract_eval
        self._abstract = rule if self.is_own else lambda *avals, **params: self._checked_effects(rule, rule(*avals, **params))
        return rule

    def _checked_types(self, rule: Callable[..., Any], found: Any) -> Any:
        """What the typing rule of a user's gave. Raises: TypeError that names the rule if it is not a type."""
        several = self.multiple_results
        outs = found if several and isinstance(found, (tuple, list)) else (found,)
        if several and outs is not found or not all(isinstance(out, (AbstractValue, AbstractRef)) for out in outs):
            wanted = "a sequence of abstract values (multiple_results is set)" if several else "an abstract value"
            raise TypeError(f"the abstract evaluation rule of {self.name!r}, {source.function_location(rule)}, must return "
                            f"{wanted}, but returned {found!r} of type {type(found)}")
        return list(outs) if several else found

    def _checked_effects(self, rule: Callable[..., Any], found: Any) -> Any:
        if not isinstance(found, (tuple, list)) or len(found) != 2:
            raise TypeError(f"the abstract evaluation rule of {self.name!r}, {source.function_location(rule)}, must return a "
                            f"pair of abstract values and effects, but returned {found!r}")
        return self._checked_types(rule, found[0]), frozenset(found[1]) or no_effects

    def abstract_eval(self, *avals: Any, **params: Any) -> tuple[Any, Effects]:
        """Output aval or avals, and effects. A subclass may define it, instead of giving a typing rule to its instances."""
        return self.typed(list(avals), params)

    def typed(self, avals: list[Any], params: dict[str, Any]) -> tuple[Any, Effects]:
        """Output avals and effects; remembered for each combination of avals and params."""
        if no_collectives.value:
            return _no_collectives().typed(self, avals, params)
        key: Any = None
        memo = self._memo
        mesh = mesh_of_types() if layouts.exist else None
        if self._memoised:
            if self._memoised is not True:
                memo = derived(params[self._memoised], self, dict)
            key = tuple(avals) if mesh is None else (mesh, *avals)
            if params:
                if not self.is_own:  # may have params of any kind
                    key = (key, *params, *map(exact_key, params.values()))
                elif self.typed_by is None:
                    key = (key, *params, *params.values())
                else:
                    key = (key, *map(params.get, self.typed_by))
            try:
                return memo[key]
            except KeyError:
                pass
            except TypeError:  # an unhashable param
                return self._abstract(*avals, **params) if not layouts.exist else _explicit().typed(self, avals, params, mesh)
        if not self.takes_refs and AbstractRef in map(type, avals):
            self._check_no_refs(avals, params)
        if mesh is not None or layouts.exist and any(getattr(aval, "layout", None) is not None for aval in avals):
            result = _explicit().typed(self, avals, params, mesh)
            if chooses_layouts.value:  # as it is not without
                return result
        else:
            result = self.eval_whole(avals, params)
        if self._memoised:
            if len(memo) >= _MEMO_LIMIT:
                memo.clear()
            memo[key] = result
        return result

    def eval_whole(self, avals: Sequence[Any], params: dict[str, Any]) -> tuple[Any, Effects]:
        """`typed` anew, without a look at layouts over explicit mesh axes."""
        if spaces.exist and self.program_inputs is None and not self.knows_spaces and any(
                [type(aval) is ShapedArray and aval.memory_space is not MemorySpace.Device for aval in avals]):
            return self._eval_elsewhere(avals, params)
        if self.program_inputs is not None or any([aval.vma for aval in avals]):
            return self._eval_varying(avals, params)
        return self._abstract(*avals, **params)

    def _eval_elsewhere(self, avals: Sequence[Any], params: dict[str, Any]) -> tuple[Any, Effects]:
        """`typed` of values in another memory: results are in the same. Raises: ValueError for arrays in several."""
        looked_at = avals[:1] if self.name.startswith(_INDEXED) else avals
        scalars = [aval for aval in looked_at if type(aval) is ShapedArray and aval.memory_space is not MemorySpace.Device]
        arrays = [aval for aval in looked_at if type(aval) is ShapedArray and aval.shape] or scalars[:1] or [
            in_space(avals[0], MemorySpace.Device)]
        for aval in arrays:
            if aval.memory_space is not arrays[0].memory_space:
                raise ValueError(f"memory_space of all inputs passed to `{self.name}` must be the same. Got one operand with "
                                 f"type: {arrays[0].str_short(short_dtypes=False)} and another operand with type: "
                                 f"{aval.str_short(short_dtypes=False)}")
        out, effects = self.eval_whole([in_space(aval, MemorySpace.Device) for aval in avals], params)
        space = arrays[0].memory_space
        return [in_space(aval, space) for aval in out] if self.multiple_results else in_space(out, space), effects

    def _eval_varying(self, avals: Sequence[Any], params: dict[str, Any]) -> tuple[Any, Effects]:
        """`typed` inside `shard_map`: operands vary along the same axes, results along theirs.

        Raises: MixedVarying if operands first have to be cast, TooVarying if programs have to be traced again.
        """
        if self.knows_vma:
            return self._abstract(*avals, **params)
        if self.program_inputs is not None:
            inputs = self.program_inputs(params)
            if len(inputs) == len(avals):  # else the rule complains
                _check_vma(avals, [aval.vma for aval in inputs])
                if self.widen is not None and any([not aval.vma <= inside.vma for aval, inside in zip(avals, inputs)]):
                    raise TooVarying
            return self._abstract(*avals, **params)
        vma = _nowhere.union(*[aval.vma for aval in avals])
        _check_vma(avals, [vma] * len(avals))
        out, effects = self._abstract(*[varying(aval, _nowhere) for aval in avals], **params)
        return [varying(aval, vma) for aval in out] if self.multiple_results else varying(out, vma), effects

    def _check_no_refs(self, avals: list[Any], params: dict[str, Any]) -> None:
        if next(jaxprs_in_params(params), None) is None:
            for place, aval in enumerate(avals):
                refuse_ref(self.name, aval, place)

    # --- rules of the other interpreters

    def def_jvp(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        self.jvp = rule
        return rule

    def def_transpose(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        self.transpose = rule
        return rule

    def def_batching(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        self.batching = rule
        return rule

    def def_eager(self, impl: Callable[..., Any]) -> Callable[..., Any]:
        """Set what an eager call does instead of compiling the one operation: `impl(*args, **params)`."""
        self.eager = impl
        return impl

    def_impl = def_eager
    impl = property(lambda self: self.eager, doc="What an eager call does, where it was given.")

    def def_custom_bind(self, bind: Callable[..., Any]) -> Callable[..., Any]:
        """Replace what `bind` does: `bind(*args, **params)`."""
        self.bind = bind  # type: ignore[method-assign]
        return bind

    def def_stage(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Set how a staging trace records it instead of one equation: `rule(trace, args, params)`."""
        self.stage = rule
        return rule

    def no_jvp(self, reason: str) -> None:
        self.jvp = NoRule(reason)

    def no_transpose(self, reason: str, of: str = "") -> None:
        """`of` is what messages call the operation."""
        self.transpose = NoRule(reason, of)

    def no_batching(self, reason: str) -> None:
        self.batching = NoRule(reason)


def _load_next(modules: list[str]) -> None:
    """Import the first of the modules and only then take it from the list: other threads wait for it until it is there."""
    for name in modules[:1]:
        importlib.import_module(name)
        with contextlib.suppress(ValueError):  # another thread took it
            modules.remove(name)


class OwnBind(Primitive):
    """A primitive whose `bind` takes parameters that are no params of equations, under any trace."""

    __slots__ = ()

    def bind_with_trace(self, trace: Any, args: Sequence[Any], *avals_and_params: Any) -> Any:
        with set_trace(trace):
            return self.bind(*args, **avals_and_params[-1])


# --- primitives of modules that load on first use ----------------------------------------------------

_primitive_modules: list[str] = []


def register_primitive_modules(*names: str) -> None:
    """Name modules that make primitives. They load when a primitive is asked for by a name that nothing has yet."""
    _primitive_modules.extend(names)


def find_primitive(name: str) -> Primitive | None:
    """The primitive with a name, if there is one."""
    while name not in PRIMITIVES and _primitive_modules:
        _load_next(_primitive_modules)
    return PRIMITIVES.get(name)


# --- rules that load on first use --------------------------------------------------------------------

_rule_modules: list[str] = []
_rules_are_needed = False  # from the first trace on that needs some


def register_rule_modules(*names: str) -> None:
    """Name modules that set derivative and batching rules. They load when the first such trace starts, or now if one has.

    A module that most programs do not load names that of its rules at its end.
    """
    if not _rules_are_needed:
        _rule_modules.extend(names)
        return
    for name in names:
        importlib.import_module(name)


def load_rules() -> None:
    """Import the modules that were registered."""
    global _rules_are_needed
    _rules_are_needed = True
    while _rule_modules:
        _load_next(_rule_modules)
