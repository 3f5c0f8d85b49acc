"""What else can be made of a program: gradients, tangents, batches, other precisions. Each is a name behind the program's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.programs import Frontend, Made

_BATCH = 5  # a small odd number: a row of it fills no vector
_WIDE = {"float32": "float64", "int32": "int64", "complex64": "complex128"}


def gradient(ns: Frontend, made: Made) -> Made:
    """Of a loss that weighs all numbers of the float outputs differently, by all float arguments."""
    jax, jnp = ns.jax, ns.jnp
    function, arguments = made

    def loss(*values: Any) -> Any:
        total = 0.0
        for out in jax.tree.leaves(function(*values)):
            if jnp.issubdtype(out.dtype, jnp.floating):
                total = total + (out * out * 0.5 + out).sum()
            elif jnp.issubdtype(out.dtype, jnp.complexfloating):
                total = total + (jnp.abs(out) ** 2).sum()
        return total

    return jax.grad(loss, _floats(jnp, arguments)), arguments


def tangents(ns: Frontend, made: Made) -> Made:
    """Forward mode, along all float arguments at once."""
    jax, jnp = ns.jax, ns.jnp
    function, arguments = made
    places = _floats(jnp, arguments)

    def pushed(*values: Any) -> Any:
        def of_floats(*floats: Any) -> Any:
            given = list(values)
            for i, each in zip(places, floats, strict=True):
                given[i] = each
            return function(*given)

        primals = tuple(values[i] for i in places)
        out = jax.jvp(of_floats, primals, tuple(map(jnp.cos, primals)))
        return [each for each in jax.tree.leaves(out) if each.dtype != jax.dtypes.float0]

    return pushed, arguments


def batch(ns: Frontend, made: Made) -> Made:
    """A few of everything, which differ in their floats and keys."""
    jax, jnp = ns.jax, ns.jnp
    function, arguments = made

    def batched(value: Any) -> Any:
        if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
            return jax.random.split(value, _BATCH)
        rows = jnp.stack([value] * _BATCH)
        if not jnp.issubdtype(value.dtype, jnp.floating):
            return rows
        return rows * (1 + 0.01 * jnp.arange(_BATCH, dtype=value.dtype)).reshape((_BATCH,) + (1,) * value.ndim)

    return jax.vmap(function), tuple(map(batched, arguments))


def double(ns: Frontend, made: Made) -> Made:
    """With 64 bits throughout."""
    jax, jnp = ns.jax, ns.jnp
    function, arguments = made
    jax.config.update("jax_enable_x64", True)

    def wide(value: Any) -> Any:
        if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
            return value
        return jnp.asarray(np.asarray(value).astype(_WIDE.get(value.dtype.name, value.dtype.name)))

    return function, tuple(map(wide, arguments))


def half(ns: Frontend, made: Made) -> Made:
    """With floats of 16 bits, as networks are trained."""
    jnp = ns.jnp
    function, arguments = made
    return function, tuple(each.astype(jnp.bfloat16) if each.dtype == np.float32 else each for each in arguments)


def _floats(jnp: Any, arguments: tuple[Any, ...]) -> tuple[int, ...]:
    return tuple(i for i, each in enumerate(arguments) if jnp.issubdtype(each.dtype, jnp.floating))


VARIANTS: dict[str, Callable[[Frontend, Made], Made]] = {
    "grad": gradient, "jvp": tangents, "vmap": batch, "x64": double, "bf16": half,
}  # fmt: skip
DIFFERENTIATED = {"grad", "jvp"}
