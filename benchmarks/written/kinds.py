"""How a program is written down: `@program` with the arguments that it takes, which are the same on both sides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from benchmarks.programs import Frontend, Made

Kind = Callable[[Frontend, np.random.Generator], Any]
KEY: Kind = lambda ns, random: ns.jax.random.key(0)


class Written(NamedTuple):
    """A function of `(jax, jnp, *arguments)`, the kinds of its arguments, and whether its gradient is of interest."""

    function: Callable[..., Any]
    arguments: tuple[Kind, ...]
    differentiable: bool

    @property
    def field(self) -> str:
        return self.function.__module__.rpartition(".")[2]

    def made(self, ns: Frontend) -> Made:
        """As `benchmarks.programs` has them."""
        random = np.random.default_rng(0)
        arguments = tuple(kind(ns, random) for kind in self.arguments)
        return lambda *values: self.function(ns.jax, ns.jnp, *values), arguments


PROGRAMS: dict[str, Written] = {}


def program(*arguments: Kind | tuple[int, ...], differentiable: bool = True) -> Callable[[Callable[..., Any]], Any]:
    """Registers a function. A shape means normal numbers; what has no gradient but zero is not differentiable either."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        name = function.__name__
        assert name not in PROGRAMS, name
        kinds = tuple(normal(*each) if isinstance(each, tuple) else each for each in arguments)
        PROGRAMS[name] = Written(function, kinds, differentiable)
        return function

    return register


def normal(*shape: int) -> Kind:
    return lambda ns, random: ns.jnp.asarray(random.standard_normal(shape).astype(np.float32))


def uniform(*shape: int) -> Kind:
    """Between 0.1 and 0.9."""
    return lambda ns, random: ns.jnp.asarray(random.uniform(0.1, 0.9, shape).astype(np.float32))


def integers(*shape: int, high: int = 20) -> Kind:
    """From 0 on."""
    return lambda ns, random: ns.jnp.asarray(random.integers(0, high, shape).astype(np.int32))


def definite(size: int) -> Kind:
    """A symmetric matrix with positive eigenvalues."""

    def kind(ns: Frontend, random: np.random.Generator) -> Any:
        values = random.standard_normal((size, size)).astype(np.float32)
        return ns.jnp.asarray(values @ values.T + 3 * size * np.eye(size, dtype=np.float32))

    return kind


def runge_kutta(f: Callable[[Any], Any], x: Any, h: float) -> Any:
    """A classical step of the fourth order, as programs of several fields take it."""
    k1 = f(x)
    k2 = f(x + h / 2 * k1)
    k3 = f(x + h / 2 * k2)
    k4 = f(x + h * k3)
    return x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
