"""Primitives written as classes, and types of values that are no arrays, as `jax.experimental.hijax` names them.

Such primitives work on arrays as any other do. Values of a type that a library registers have a `jax.typeof`; they are not
arguments of traced functions: these say that they are no JAX types.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jaxlite.core.aval import AbstractValue, ShapedArray
from jaxlite.core.effects import EffectTypeSet
from jaxlite.core.jaxpr import no_effects
from jaxlite.core.primitive import Primitive
from jaxlite.core.values import TYPE_OF
from jaxlite.extend.lowering_rules import lower_fun, register_lowering
from jaxlite.extend.rule_tables import fancy_primitive_batchers, primitive_jvps, primitive_transposes
from jaxlite.traces.jvp import Zero
from jaxlite.traces.jvp import instantiate as instantiate_zeros
from jaxlite.traces.transpose import is_linear as is_undefined_primal

__all__ = [
    "AbstractValue", "AvalMutableQDD", "AvalQDD", "HiPrimitive", "HiType", "MutableHiType", "ShapedArray", "Zero",
    "aval_method",
    "aval_property", "control_flow_allowed_effects", "instantiate_zeros", "is_undefined_primal", "register_hitype",
]

# A method of a subclass -> where it goes: what it is called there stands for something else in `Primitive`.
_RULES: dict[str, Callable[[Any, Callable], None]] = {
    "impl": lambda primitive, rule: primitive.def_impl(rule),
    "abstract_eval": lambda primitive, rule: primitive.def_effectful_abstract_eval(_with_effects(rule)),
    "to_lojax": lambda primitive, rule: register_lowering(primitive, lower_fun(rule, primitive.multiple_results)),
    "jvp": lambda primitive, rule: primitive_jvps.__setitem__(primitive, rule),
    "transpose": lambda primitive, rule: primitive_transposes.__setitem__(primitive, rule),
    "batch": lambda primitive, rule: fancy_primitive_batchers.__setitem__(primitive, rule),
}


def _with_effects(rule: Callable) -> Callable:
    def abstract_eval(*avals: Any, **params: Any) -> Any:
        out, effects = rule(*avals, **params)
        return out, frozenset(effects) or no_effects

    return abstract_eval


class HiPrimitive(Primitive):
    """A primitive whose rules are methods of a subclass.

    `abstract_eval(self, *avals, **params)` gives the types of the results and the effects, `to_lojax(self, *args, **params)`
    computes it with other operations, `impl` what an eager call does; `jvp(self, primals, tangents, **params)`,
    `transpose(self, cotangent, *args, **params)` and `batch(self, axis, args, dims, **params)` are as in the tables of
    rules. `multiple_results` is an attribute of the class.

    >>> import jaxlite
    >>> class Double(HiPrimitive):
    ...     def abstract_eval(self, x):
    ...         return x, set()
    ...     def to_lojax(self, x):
    ...         return x + x
    ...     def jvp(self, primals, tangents):
    ...         return double_p.bind(*primals), double_p.bind(*tangents)
    ...     def transpose(self, cotangent, x):
    ...         return (double_p.bind(cotangent),)
    >>> double_p = Double("double")
    >>> jaxlite.jit(jaxlite.grad(lambda x: double_p.bind(x) ** 2))(3.0)
    Array(24., dtype=float32, weak_type=True)
    """

    __slots__ = ()
    _methods: dict[str, Callable] = {}
    _has_many = False

    def __init_subclass__(cls, **options: Any):
        super().__init_subclass__(**options)
        cls._methods = dict(cls._methods)
        if "multiple_results" in vars(cls):
            cls._has_many = vars(cls)["multiple_results"]
            delattr(cls, "multiple_results")
        for name in _RULES:
            if name in vars(cls):
                cls._methods[name] = vars(cls)[name]
                delattr(cls, name)

    def __init__(self, name: str):
        super().__init__(name, self._has_many, is_own=False)
        for method, rule in self._methods.items():
            _RULES[method](self, rule.__get__(self))


class HiType(AbstractValue):
    """Base of the types of values that are made of arrays."""

    __slots__ = ()


class MutableHiType(HiType):
    """Base of those whose values change."""

    __slots__ = ()


def register_hitype(value_class: type, type_of: Callable[[Any], HiType]) -> None:
    """Say what `jax.typeof` gives for the values of a class."""
    TYPE_OF[value_class] = type_of


class aval_method:
    """A method of a type that traced values of the type have."""

    def __init__(self, fun: Callable):
        self.fun = fun


class aval_property:
    """A property of a type that traced values of the type have."""

    def __init__(self, fget: Callable):
        self.fget = fget


@dataclass(frozen=True)
class AvalQDD:
    """A type, with what depends on the value of the moment."""

    aval: Any
    qdd: Any


@dataclass(frozen=True)
class AvalMutableQDD:
    """A type, with a place for what depends on the value of the moment."""

    aval: Any
    mutable_qdd: Any


control_flow_allowed_effects = EffectTypeSet()
