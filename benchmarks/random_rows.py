"""The family `rows` of `benchmarks.random_programs`: many rows of few elements, as classes, coordinates and centers are.

Loops over such rows are what LLVM unrolls, or does not (`lowering/passes/unrolling.py`): the length of a row decides.
"""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np

from benchmarks.programs import Frontend, Made
from benchmarks.random_lines import numbers


def rows(ns: Frontend, random: Random) -> Made:
    """A function of each row, some of them in a loop, and perhaps the gradient."""
    jax, jnp, lax, nn = ns.jax, ns.jnp, ns.lax, ns.jax.nn
    size, count = random.randrange(2, 33), random.choice([100, 2000, 20_000])
    x, weights, centers = [numbers(random, rows, size) for rows in (count, size, random.randrange(2, 33))]
    picked = np.random.default_rng(random.getrandbits(32)).integers(0, size, count)

    def distances(x: Any) -> Any:
        return (x * x).sum(1)[:, None] - 2 * x @ centers.T + (centers * centers).sum(1)

    smooth = [
        nn.softplus, nn.gelu, nn.silu, jnp.sinh, jnp.arcsinh, lambda x: x * jnp.tanh(nn.softplus(x)),
        lambda x: jnp.exp(-x * x / 2), lambda x: x / (1 + x * x), lambda x: nn.softmax(x) ** 2, lambda x: nn.logsumexp(x, 1),
        lambda x: x / jnp.linalg.norm(x, axis=1, keepdims=True),
        lambda x: -jnp.take_along_axis(nn.log_softmax(x), picked[:, None], 1), lambda x: jnp.tanh(x @ weights) * x,
        lambda x: jnp.abs(lax.complex(x, x[:, ::-1])), lambda x: jnp.prod(1 + 0.1 * x, 1), lambda x: nn.softmax(-distances(x)),
        lambda x: jnp.cumsum(x, 1) * x, lambda x: jnp.einsum("ni,ij,nj->n", x, weights, x),
        lambda x: (x - x.mean(1, keepdims=True)) / (x.std(1, keepdims=True) + 1e-3),
        lambda x: (x.astype(jnp.bfloat16) * 2 + 1).astype(jnp.float32), lambda x: jnp.polyval(weights[0], x),
    ]
    other = [
        lambda x: x.argmax(1), lambda x: distances(x).argmin(1), lambda x: (x.max(1), jnp.argmax(x, 1)),
        lambda x: lax.top_k(x, 2), lambda x: jnp.sort(x, 1), lambda x: (x > 0).any(1), lambda x: jnp.tile(x, (1, 3)),
        lambda x: jnp.repeat(x, 2, 1), lambda x: jnp.median(x, 1), lambda x: nn.one_hot(x.argmax(1), size),
        lambda x: jnp.roll(x, 1, 1) - x,
    ]
    f = random.choice([*smooth, *other])
    if f in other:
        return f, (x,)
    total = lambda x: jnp.sum(f(x))
    loop = lambda x: lax.fori_loop(0, 10, lambda _, x: x - 0.01 * jax.grad(total)(x), x)
    return random.choice([f, jax.grad(total), loop]), (x,)
