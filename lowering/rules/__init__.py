"""StableHLO rules, one per primitive, found by the primitive's name.

A primitive that is one operation on elements is named so with `lowers_to`. Any other has a rule: a function
`rule(ctx, *operands, **params)` that emits operations through `ctx` (a `lowering.module.RuleContext`) and returns one
value, a list of values if the primitive has several results, or NotImplemented if the platform has only a decomposition. The
files of this folder carry the names of the files
in `jaxlite/lax` that define the primitives. They load when a program has a primitive that is not known yet.

A primitive that is easiest said in terms of others has no rule here but a decomposition, registered from
outside: `decomposition(avals_in, params)` gives the jaxpr that is lowered in its place.
"""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable
from typing import Any, TypeVar

Rule = TypeVar("Rule", bound=Callable[..., Any])

RULES: dict[str, Callable[..., Any]] = {}
ELEMENTWISE: dict[str, str] = {}
DECOMPOSITIONS: dict[str, Callable[..., Any]] = {}
EXTENDED: dict[str, Callable[..., Any]] = {}
HOST_FUNCTIONS: dict[str, Callable[..., Any]] = {}
FOREIGN: dict[Any, Callable[..., Any] | None] = {}  # by the primitive itself, whose name may be taken; None: it has no rule

# Where a primitive's module does not name the file, these are loaded one by one, the last first, and then all others.
_waiting = ["parallel", "sharding", "rng", "custom_rules", "jit", "dot", "reductions", "shaping", "special", "elementwise"]
_others_wait = True
_asked: set[str] = set()  # modules that make primitives, of which the files of rules are loaded
_loading = threading.Lock()
_fresh: dict[str, Callable[..., Any]] | None = None  # rules of the file that is loading: published when it has loaded


def registers_in(table: dict[Any, Rule]) -> Callable[..., Callable[[Rule], Rule]]:
    """A decorator that enters a function in a table, under each of the keys that it is given."""

    def decorator(*keys: Any) -> Callable[[Rule], Rule]:
        def register(rule: Rule) -> Rule:
            table.update(dict.fromkeys(keys, rule))
            return rule

        return register

    return decorator


def lowers(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: register a function as the rule of the primitives with these names."""

    def register(rule: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            _check_new(name)
            (RULES if _fresh is None else _fresh)[name] = rule
        return rule

    return register


def lowers_to(primitive: str, operation: str) -> None:
    """Say that a primitive is one operation, of operands that are broadcast to the result's shape.

    Most equations are of this kind, so `RuleContext.emit` makes the operation itself, without calling a rule.
    """
    _check_new(primitive)
    ELEMENTWISE[primitive] = operation if "." in operation else f"stablehlo.{operation}"


def _check_new(name: str) -> None:
    assert not any(name in known for known in (RULES, _fresh or {}, ELEMENTWISE)), f"two rules for {name}"


def register_decomposition(name: str, decomposition: Callable[[list[Any], dict[str, Any]], Any]) -> None:
    """Lower a primitive through the jaxpr that `decomposition(avals_in, params)` gives."""
    DECOMPOSITIONS[name] = decomposition


def decomposed(eqn: Any) -> Any:
    """The jaxpr that is lowered in the place of an equation whose primitive has a decomposition."""
    return DECOMPOSITIONS[eqn.primitive.name]([atom.aval for atom in eqn.invars], eqn.params)


def register_extended(name: str, decomposition: Callable[[list[Any], dict[str, Any]], Any]) -> None:
    """Lower a primitive through a jaxpr on the buffers of its operands where one has an extended dtype."""
    EXTENDED[name] = decomposition


def register_host_function(name: str, maker: Callable[[list[Any], dict[str, Any]], Callable[..., Any]]) -> None:
    """Lower a primitive to a call of a Python function: `maker(avals_in, params)` gives one of NumPy arrays that
    returns a tuple of NumPy arrays, of the types of the results: nothing else checks them."""
    HOST_FUNCTIONS[name] = maker


def register_foreign(primitive: Any, rule: Callable[..., Any] | None) -> None:
    """Set the rule of a primitive that others define or change. It has priority over the rule under its name."""
    FOREIGN[primitive] = rule


def find_rule(name: str, made_in: str = "") -> None:
    """Load files until the primitive is known: has a rule, is an operation on elements, or is to be decomposed.

    `made_in` is the module that made the primitive: the rules for `jaxlite.lax.control_flow.loops` are in `control_flow`.
    """
    global _others_wait
    with _loading:
        # Also where there is a decomposition: the rule, if there is one, goes first.
        for word in () if made_in in _asked else made_in.split("."):
            if name not in RULES and name not in ELEMENTWISE and importlib.util.find_spec(f"{__name__}.{word}"):
                _load(word)
        _asked.add(made_in)
        while not _is_known(name):
            if not _waiting and _others_wait:
                import pkgutil  # who needs everyday files alone does not pay for it

                _waiting.extend(sorted((module.name for module in pkgutil.iter_modules(__path__)), reverse=True))
                _others_wait = False
            if not _waiting:
                return
            _load(_waiting[-1])
            _waiting.pop()


def _is_known(name: str) -> bool:
    return name in RULES or name in ELEMENTWISE or name in DECOMPOSITIONS


def _load(file: str) -> None:
    global _fresh
    _fresh = {}
    try:
        importlib.import_module(f"{__name__}.{file}")
        RULES.update(_fresh)
    finally:
        _fresh = None
