"""Families of random programs that were added to `benchmarks.random_programs` later: what was slow where no family looked.

`lines` are schemes for equations on a line, which read it shifted; `fits` are estimates from data that a function closes over.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np

from benchmarks.programs import Frontend, Made


def lines(ns: Frontend, random: Random) -> Made:
    """Some steps of a scheme on a line, or on several: wrapped or not, and perhaps the gradient."""
    jax, jnp, lax = ns.jax, ns.jnp, ns.lax
    cells, count = random.choice([16, 100, 512, 4096]), random.choice([None, None, None, 4, 50])
    edges = random.choice(["wrap", "wrap", "edge", "constant"])

    def shifted(u: Any, by: int) -> Any:
        if edges == "wrap":
            return jnp.roll(u, by)
        padded = jnp.pad(u, 2, mode=edges)
        return padded[2 - by:cells + 2 - by]

    def limited(u: Any) -> Any:
        before = u - shifted(u, 1)
        after = shifted(before, -1)
        slope = jnp.where(before * after > 0, jnp.minimum(abs(before), abs(after)) * jnp.sign(before), 0.0)
        left, right = u + 0.5 * slope, shifted(u - 0.5 * slope, -1)
        flow = 0.25 * (left ** 2 + right ** 2) - 0.5 * jnp.maximum(abs(left), abs(right)) * (right - left)
        return u - 0.1 * (flow - shifted(flow, 1))

    step = random.choice([
        limited,
        lambda u: u - 0.1 * u * (u - shifted(u, 1)) + 0.05 * (shifted(u, 1) - 2 * u + shifted(u, -1)),
        lambda u: u - 0.01 * u * (shifted(u, -1) - shifted(u, 1)) - 0.001 * (
            shifted(u, -2) - 2 * shifted(u, -1) + 2 * shifted(u, 1) - shifted(u, 2)),
        lambda u: jnp.where(u > 0, u - 0.1 * (u ** 2 - shifted(u, 1) ** 2), u - 0.1 * (shifted(u, -1) ** 2 - u ** 2)),
    ])
    step = jax.vmap(step) if count else step
    steps = random.choice([1, 30, 30])
    run = lambda u: lax.scan(lambda u, _: (step(u), None), u, None, length=steps)[0] if steps > 1 else step(u)
    start = 1 + 0.1 * numbers(random, *([count] if count else []), cells)
    return random.choice([run, jax.grad(lambda u: (run(u) ** 2).sum())]), (start,)


def fits(ns: Frontend, random: Random) -> Made:
    """Newton's method, a gradient or the whole of a posterior for data that are no argument."""
    jax, jnp, nn = ns.jax, ns.jnp, ns.jax.nn
    count, size = random.choice([50, 1000]), random.choice([3, 10, 40])
    x, places = numbers(random, count, size), np.random.default_rng(random.getrandbits(32)).integers(0, 8, count)
    y = np.sign(numbers(random, count))
    loss: Callable[[Any], Any] = random.choice([
        lambda w: nn.softplus(-y * (x @ w)).sum() + 0.5 * (w ** 2).sum(),
        lambda w: (jnp.exp(0.1 * x @ w) - y * (x @ w)).sum() + (w ** 2).sum(),
        lambda w: (jax.ops.segment_sum(jnp.tanh(x @ w), places, 8)[places] * y).mean() + (w ** 2).sum(),
        lambda w: jnp.log1p((y - x @ w) ** 2).sum() + abs(w).sum(),
    ])

    def newton(w: Any) -> Any:
        for _ in range(3):
            w = w - jnp.linalg.solve(jax.hessian(loss)(w) + 0.1 * jnp.eye(size), jax.grad(loss)(w))
        return w, loss(w)

    f = random.choice([newton, jax.value_and_grad(loss), lambda w: jnp.linalg.slogdet(jax.hessian(loss)(w) + jnp.eye(size))[1]])
    return f, (0.1 * numbers(random, size),)


def numbers(random: Random, *shape: int) -> np.ndarray:
    """Normal float32 numbers."""
    return np.random.default_rng(random.getrandbits(32)).standard_normal(shape).astype(np.float32)
