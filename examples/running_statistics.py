"""Mutable arrays in a training loop: the running statistics of a normalization layer, and gradients that are looked at.

    python examples/running_statistics.py [--steps 200]

The layer's mean and variance live in two Refs, which the jitted step writes in place: they are neither arguments nor results.
A third Ref is written on the way back: the gradient at the layer, of the last step.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import jaxlite
import jaxlite.numpy as jnp


@jaxlite.custom_vjp
def watch(seen: Any, x: Any) -> Any:
    """`x`; its gradient is written into the Ref `seen`."""
    return x


def _watch_backward(seen: Any, gradient: Any) -> tuple[None, Any]:
    seen[...] = gradient
    return None, gradient


watch.defvjp(lambda seen, x: (x, seen), _watch_backward)


class Normalization:
    """Features with mean 0 and variance 1 in each batch; keeps the means over batches."""

    def __init__(self, features: int, memory: float = 0.9):
        self.mean, self.variance = jaxlite.new_ref(jnp.zeros(features)), jaxlite.new_ref(jnp.ones(features))
        self.memory = memory

    def __call__(self, x: Any) -> Any:
        mean, variance = x.mean(0), x.var(0)
        for ref, value in ((self.mean, mean), (self.variance, variance)):
            ref[...] = self.memory * ref[...] + (1 - self.memory) * jaxlite.lax.stop_gradient(value)
        return (x - mean) / jnp.sqrt(variance + 1e-5)


def train(steps: int, seed: int = 0) -> tuple[Normalization, Any, float]:
    """The layer, the Ref with the gradient of the last step, and the last loss."""
    rng = np.random.default_rng(seed)
    layer = Normalization(3)
    seen = jaxlite.new_ref(jnp.zeros((32, 3)))
    truth = np.array([1.0, -2.0, 0.5], np.float32)

    @jaxlite.jit
    def step(weights: Any, x: Any, y: Any) -> tuple[Any, Any]:
        def loss(weights: Any) -> Any:
            return jnp.mean((watch(seen, layer(x) * weights).sum(1) - y) ** 2)

        value, gradient = jaxlite.value_and_grad(loss)(weights)
        return weights - 0.1 * gradient, value

    weights, value = jnp.zeros(3), jnp.inf
    for _ in range(steps):
        x = rng.normal([3.0, -1.0, 0.0], [2.0, 0.5, 1.0], (32, 3)).astype(np.float32)
        weights, value = step(weights, x, ((x - [3, -1, 0]) / [2, 0.5, 1]).astype(np.float32) @ truth)
    return layer, seen, float(value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    layer, seen, loss = train(parser.parse_args().steps)
    print("running mean", np.round(np.asarray(layer.mean[...]), 2), "  of data with mean [3, -1, 0]")
    print("running variance", np.round(np.asarray(layer.variance[...]), 2), "  of data with variance [4, 0.25, 1]")
    print(f"loss {loss:.4f}, largest gradient seen at the layer {float(abs(seen[...]).max()):.5f}")


if __name__ == "__main__":
    main()
