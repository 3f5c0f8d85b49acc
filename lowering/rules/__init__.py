"""StableHLO rules, one per primitive, found by the primitive's name.

A primitive that is one operation on elements is named so with `lowers_to`. Any other has a rule: a function
`rule(ctx, *operands, **params)` that emits operations through `ctx` (a `lowering.module.RuleContext`) and returns one
value, or a list of values if the primitive has several results. The files of this folder carry the names of the files
in `jaxlite/lax` that define the primitives. They load when a program has a primitive that is not known yet.

A primitive that is easiest said in terms of others has no rule here but a decomposition, registered from
outside: `decomposition(avals_in, params)` gives the jaxpr that is lowered in its place.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable
from typing import Any

RULES: dict[str, Callable] = {}
ELEMENTWISE: dict[str, str] = {}
DECOMPOSITIONS: dict[str, Callable] = {}
EXTENDED: dict[str, Callable] = {}
HOST_FUNCTIONS: dict[str, Callable] = {}

# The files not loaded yet, last the next one: what everyday programs need comes first.
_EVERYDAY = ["jit", "dot", "reductions", "shaping", "elementwise"]
_waiting: list[str] | None = None
_loading = threading.Lock()


def lowers(*names: str) -> Callable[[Callable], Callable]:
    """Decorator: register a function as the rule of the primitives with these names."""

    def register(rule: Callable) -> Callable:
        for name in names:
            assert name not in RULES and name not in ELEMENTWISE, f"two rules for {name}"
            RULES[name] = rule
        return rule

    return register


def lowers_to(primitive: str, operation: str) -> None:
    """Say that a primitive is one operation, of operands that are broadcast to the result's shape.

    Most equations are of this kind, so `RuleContext.emit` makes the operation itself, without calling a rule.
    """
    assert primitive not in RULES and primitive not in ELEMENTWISE, f"two rules for {primitive}"
    ELEMENTWISE[primitive] = operation if "." in operation else f"stablehlo.{operation}"


def register_decomposition(name: str, decomposition: Callable[[list[Any], dict[str, Any]], Any]) -> None:
    """Lower a primitive through the jaxpr that `decomposition(avals_in, params)` gives."""
    DECOMPOSITIONS[name] = decomposition


def register_extended(name: str, decomposition: Callable[[list[Any], dict[str, Any]], Any]) -> None:
    """Lower a primitive through a jaxpr on the buffers of its operands where one has an extended dtype."""
    EXTENDED[name] = decomposition


def register_host_function(name: str, maker: Callable[[list[Any], dict[str, Any]], Callable]) -> None:
    """Lower a primitive to a call of a Python function: `maker(avals_in, params)` gives one of NumPy arrays that
    returns a tuple of NumPy arrays, of the types of the results: nothing else checks them."""
    HOST_FUNCTIONS[name] = maker


def find_rule(name: str) -> None:
    """Load files until the primitive is known: has a rule, is an operation on elements, or is to be decomposed."""
    global _waiting
    with _loading:
        if _waiting is None:
            import pkgutil  # only who compiles pays for it

            others = {module.name for module in pkgutil.iter_modules(__path__)}.difference(_EVERYDAY)
            _waiting = [*sorted(others, reverse=True), *_EVERYDAY]
        while _waiting and not (name in RULES or name in ELEMENTWISE or name in DECOMPOSITIONS):
            importlib.import_module(f"{__name__}.{_waiting[-1]}")
            _waiting.pop()
