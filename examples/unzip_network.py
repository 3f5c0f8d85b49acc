"""A network written as one function, split into init and apply, and trained on two spirals.

    python examples/unzip_network.py [--steps 300]

The network draws its parameters where it uses them and names them with `sow`; `nest` gives each layer a scope of its own.
`unzip` makes two functions of it: `init(key)`, a dictionary of parameters, and `apply(params, x)`, the network without
randomness, which is differentiated and compiled like any other function.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import jaxlite
import jaxlite.numpy as jnp
from jaxlite import random
from jaxlite.experimental.unzip import nest, sow, unzip


def dense(key: Any, x: Any, width: int) -> Any:
    size = x.shape[-1]
    weights = sow(random.normal(key, (size, width)) / np.sqrt(size), tag="param", name="weights")
    bias = sow(jnp.zeros(width), tag="param", name="bias", key=key)
    return x @ weights + bias


def network(key: Any, x: Any) -> Any:
    """The logits of points, [n, 2] -> [n]."""
    keys = random.split(key, 3)
    for number in range(2):
        x = jnp.sin(nest(dense, scope=f"layer {number}")(keys[number], x, 32))
    return nest(dense, scope="logits")(keys[2], x, 1)[:, 0]


def spirals(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Points on two arms that turn around each other, and which arm each is on."""
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 2, count)
    distance = rng.uniform(0.2, 1.0, count)
    angle = 5 * distance + np.pi * label
    points = distance[:, None] * np.stack([np.cos(angle), np.sin(angle)], 1) + rng.normal(0, 0.02, (count, 2))
    return points.astype(np.float32), label.astype(np.float32)


def train(steps: int, seed: int = 0) -> tuple[Any, float]:
    """The trained parameters and their accuracy on points that were not trained on."""
    x, y = spirals(400)
    init, apply = unzip(network, tag="param")(random.key(0), x)

    def loss(params: Any) -> Any:
        logits = apply(params, x)
        return jnp.mean(jnp.logaddexp(0, logits) - y * logits)

    @jaxlite.jit
    def update(params: Any, velocity: Any) -> tuple[Any, Any, Any]:
        value, gradient = jaxlite.value_and_grad(loss)(params)
        velocity = jaxlite.tree.map(lambda v, g: 0.9 * v + g, velocity, gradient)
        return jaxlite.tree.map(lambda p, v: p - 0.1 * v, params, velocity), velocity, value

    params = jaxlite.jit(init)(random.key(seed))
    velocity = jaxlite.tree.map(jnp.zeros_like, params)
    for scope, variables in params.items():
        print(f"  {scope}: " + ", ".join(f"{name} {value.shape}" for name, value in variables.items()))
    for number in range(steps):
        params, velocity, value = update(params, velocity)
        if number % max(1, steps // 5) == 0 or number == steps - 1:
            print(f"  step {number:4d}  loss {float(value):.4f}", flush=True)
    new_x, new_y = spirals(400, seed=1)
    return params, float(jnp.mean((apply_to(network, params, new_x) > 0) == (new_y > 0.5)))


def apply_to(net: Any, params: Any, x: Any) -> Any:
    """The network at other points: it is split again for their number."""
    return unzip(net, tag="param")(random.key(0), x)[1](params, x)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=300)
    _, accuracy = train(parser.parse_args().steps)
    print(f"\n  accuracy on new points: {100 * accuracy:.1f}%")


if __name__ == "__main__":
    main()
