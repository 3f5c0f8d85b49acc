"""What executables of their own for repeated parts would buy: the same networks compiled whole, and piece by piece.

    python -m benchmarks.repeats [--jax-python .venv-jax-latest/bin/python] [--repeats 2]

A network is a list of parts, many of them equal. Whole, its training step is one program. In pieces, a part's forward pass
is one executable and its backward pass with the update of its weights another, each compiled once for all equal parts and
called with flat lists of arrays, as a runtime would call them. So the pieces are cut by hand where a search could at best
have found them. `docs/repeats.md` has the table and what was concluded.
"""

from __future__ import annotations

import argparse
import importlib
import math
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.programs import Frontend
from benchmarks.sides import Side, last_line

CALLS = 30
TREES = 3  # weights, and Adam's two moments


class Network(NamedTuple):
    """Parts in order, each with its weights, from the input to the loss. Without weights there is nothing to train."""

    parts: list[tuple[Callable[[Any, Any], Any], Any]]
    inputs: Any


def _random(*shape: int, seed: int) -> np.ndarray:
    return (0.1 * np.random.default_rng(seed).standard_normal(shape)).astype(np.float32)


def gpt(ns: Frontend, layers: int, length: int, width: int) -> Network:
    """Layers of attention and of a perceptron."""
    jax, jnp = ns.jax, ns.jnp
    heads = 4

    def norm(x, scale):
        centred = x - jnp.mean(x, axis=-1, keepdims=True)
        return centred * ns.lax.rsqrt(jnp.mean(centred**2, axis=-1, keepdims=True) + 1e-5) * scale

    def layer(p, x):
        q, k, v = jnp.split(norm(x, p["s1"]) @ p["qkv"], 3, axis=-1)
        q, k, v = (t.reshape(length, heads, width // heads).transpose(1, 0, 2) for t in (q, k, v))
        scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), q @ k.transpose(0, 2, 1) / (width // heads) ** 0.5, -1e9)
        x = x + (jax.nn.softmax(scores) @ v).transpose(1, 0, 2).reshape(length, width) @ p["out"]
        return x + jax.nn.gelu(norm(x, p["s2"]) @ p["up"] + p["bias"]) @ p["down"]

    def loss(p, x):
        return -jnp.mean(jnp.diagonal(jax.nn.log_softmax(x @ p["head"])))

    def weights(seed):
        sizes = {"qkv": (width, 3 * width), "out": (width, width), "up": (width, 4 * width), "bias": (4 * width,),
                 "down": (4 * width, width), "s1": (width,), "s2": (width,)}  # fmt: skip
        return {name: _random(*shape, seed=seed) for name, shape in sizes.items()}

    parts: list[Any] = [(layer, weights(seed)) for seed in range(layers)]
    return Network([*parts, (loss, {"head": _random(width, length, seed=99)})], _random(length, width, seed=100))


def resnet(ns: Frontend, blocks: int) -> Network:
    """Three stages of residual blocks of two convolutions, on 8 pictures of 16 by 16."""
    jnp, lax = ns.jnp, ns.lax

    def conv(x, w, stride=1):
        return lax.conv_general_dilated(x, w, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def norm(x, scale):
        centred = x - jnp.mean(x, axis=(0, 1, 2))
        return centred * lax.rsqrt(jnp.mean(centred**2, axis=(0, 1, 2)) + 1e-5) * scale

    def block(p, x):
        h = jnp.maximum(norm(conv(x, p["first"]), p["s1"]), 0)
        return jnp.maximum(x + norm(conv(h, p["second"]), p["s2"]), 0)

    def down(p, x):
        return conv(x, p["w"], stride=2)

    def loss(p, x):
        return jnp.mean((jnp.mean(x, axis=(1, 2)) @ p["head"] - 1) ** 2)

    parts: list[Any] = []
    for stage, features in enumerate((16, 32, 64)):
        if stage:
            parts.append((down, {"w": _random(3, 3, features // 2, features, seed=stage)}))
        for seed in range(blocks):
            w = {name: _random(3, 3, features, features, seed=seed + i) for i, name in enumerate(("first", "second"))}
            parts.append((block, {**w, "s1": np.ones(features, np.float32), "s2": np.ones(features, np.float32)}))
    return Network([*parts, (loss, {"head": _random(64, 10, seed=7)})], _random(8, 16, 16, 16, seed=8))


def solver(ns: Frontend, steps: int) -> Network:
    """Unrolled Runge-Kutta steps for 64 coupled oscillators: no weights, and no gradient."""
    jnp = ns.jnp

    def slope(x):
        return jnp.stack([x[1], -jnp.sin(x[0]) + 0.3 * (jnp.roll(x[0], 1) - x[0]) * jnp.cos(x[1])])

    def step(_, x, h=0.01):
        k1 = slope(x)
        k2 = slope(x + h / 2 * k1)
        k3 = slope(x + h / 2 * k2)
        return x + h / 6 * (k1 + 2 * k2 + 2 * k3 + slope(x + h * k3))

    return Network([(step, {})] * steps, _random(2, 64, seed=1))


NETWORKS: dict[str, Callable[[Frontend], Network]] = {
    **{f"GPT, {n} layers, 16 x 32": lambda ns, n=n: gpt(ns, n, 16, 32) for n in (12, 24, 48)},
    **{f"GPT, {n} layers, 128 x 256": lambda ns, n=n: gpt(ns, n, 128, 256) for n in (12, 24)},
    "ResNet, 3 x 4 blocks": lambda ns: resnet(ns, 4),
    "ResNet, 3 x 8 blocks": lambda ns: resnet(ns, 8),
    "solver, 50 steps": lambda ns: solver(ns, 50),
}


def adam(ns: Frontend, p: Any, g: Any, m: Any, v: Any) -> tuple[Any, Any, Any]:
    tree = ns.jax.tree
    m = tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
    v = tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, v, g)
    return tree.map(lambda p, m, v: p - 1e-3 * m / (ns.jnp.sqrt(v) + 1e-8), p, m, v), m, v


def whole(ns: Frontend, network: Network) -> tuple[Callable[[Any], Any], Any]:
    """The step as one program: from the state to the loss and the next state."""
    jax = ns.jax
    functions = [function for function, _ in network.parts]

    def forward(weights, x):
        for function, p in zip(functions, weights, strict=True):
            x = function(p, x)
        return x

    def train(state):
        weights, m, v, x = state
        loss, gradients = jax.value_and_grad(forward)(weights, x)
        return loss, (*adam(ns, weights, gradients, m, v), x)

    def solve(state):
        return (result := forward(state[0], state[-1])), (*state[:-1], result)

    weights = [p for _, p in network.parts]
    zeros = jax.tree.map(np.zeros_like, weights)
    return jax.jit(train if jax.tree.leaves(weights) else solve), jax.device_put((weights, zeros, zeros, network.inputs))


def pieces(ns: Frontend, network: Network) -> tuple[Callable[[Any], Any], Any]:
    """The step as a list of executables, one for each kind of part and direction."""
    jax = ns.jax
    kinds: dict[Any, tuple[Any, Any]] = {}

    def compiled(function: Callable[[Any, Any], Any], p: Any, x: Any) -> tuple[Any, Any]:
        tree = jax.tree.structure(p)
        key = (function, tree, *((a.shape, str(a.dtype)) for a in (*jax.tree.leaves(p), x)))
        if key not in kinds:
            pullback: list[Any] = []

            def forward(*flat):
                y, vjp = jax.vjp(function, tree.unflatten(flat[:-1]), flat[-1])
                residuals, made = jax.tree.flatten(vjp)
                pullback[:] = [made]
                return y, *residuals

            def backward(residuals, cotangent, flat):
                gradients, cotangent = pullback[0].unflatten(residuals)(cotangent)
                trees = (tree.unflatten(flat[i :: TREES]) for i in range(TREES))
                p, m, v = trees
                new = (jax.tree.leaves(t) for t in adam(ns, p, gradients, m, v))
                return cotangent, [a for three in zip(*new, strict=True) for a in three]

            kinds[key] = (jax.jit(forward), jax.jit(backward)) if tree.num_leaves else (jax.jit(function), None)
        return kinds[key]

    def run(state):
        flats, x = state
        inputs, kept = x, []
        for (function, p), flat in zip(network.parts, flats, strict=True):
            forward, backward = compiled(function, p, x)
            if backward is None:
                x = forward(p, x)
            else:
                x, *residuals = forward(*flat[::TREES], x)
                kept.append((backward, residuals))
        if not kept:
            return x, (flats, x)
        loss, cotangent, new = x, ns.jnp.ones((), x.dtype), []
        for flat in reversed(flats):
            backward, residuals = kept.pop()
            cotangent, updated = backward(residuals, cotangent, flat)
            new.append(updated)
        return loss, (new[::-1], inputs)

    flats = []
    for _, p in network.parts:
        flats.append([a for leaf in jax.tree.leaves(p) for a in (leaf, np.zeros_like(leaf), np.zeros_like(leaf))])
    return run, jax.device_put((flats, network.inputs))


def measure(name: str, module: str, form: str) -> None:
    """In a fresh process: print the first result's time, its CPU time, the least time of a call, the memory, the loss."""
    jax = importlib.import_module(module)
    ns = Frontend(jax, importlib.import_module(f"{module}.numpy"), jax.lax)
    jax.block_until_ready(ns.jnp.sin(ns.jnp.ones(3)))
    step, state = (whole if form == "whole" else pieces)(ns, NETWORKS[name](ns))
    started, cpu = time.perf_counter(), time.process_time()
    loss, state = jax.block_until_ready(step(state))
    first, cpu = time.perf_counter() - started, time.process_time() - cpu
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    best = math.inf
    for _ in range(CALLS):
        started = time.perf_counter()
        _, state = jax.block_until_ready(step(state))
        best = min(best, time.perf_counter() - started)
    print(first, cpu, 1e3 * best, memory / 1024, float(ns.jnp.sum(loss)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jax-python", help="an interpreter that has JAX")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--only", help="networks whose name has this in it", default="")
    parser.add_argument("--measure", nargs=3, metavar=("NAME", "MODULE", "FORM"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        measure(*args.measure)
        return
    sides = [(Side("jaxlite", sys.executable, "jaxlite"), form) for form in ("whole", "pieces")]
    if args.jax_python:
        sides.append((Side("JAX", str(Path(args.jax_python).absolute()), "jax"), "whole"))
    print("| network | | first result, s | CPU, s | step, ms | peak memory, MB |\n|---|---|---|---|---|---|")
    for name in (each for each in NETWORKS if args.only in each):
        results: dict[str, list[list[float]]] = {}
        for _ in range(args.repeats):
            for side, form in sides:
                out, err, status = side.start("-m", "benchmarks.repeats", "--measure", name, side.module, form)
                if status:
                    sys.exit(f"{name}, {side.label} {form}: {last_line(err)}")
                results.setdefault(f"{side.label}, {form}", []).append([float(x) for x in out.split()])
        for label, rows in results.items():
            first, cpu, step, memory, _ = (min(column) for column in zip(*rows, strict=True))
            print(f"| {name} | {label} | {first:.2f} | {cpu:.2f} | {step:.2f} | {memory:.0f} |", flush=True)
        losses = [rows[0][-1] for rows in results.values()]
        if not np.allclose(losses, losses[0], rtol=1e-3):
            sys.exit(f"{name}: the results differ: {losses}")


if __name__ == "__main__":
    main()
