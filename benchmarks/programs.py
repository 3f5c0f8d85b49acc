"""What is measured: programs, calls and expressions, each one text that both sides run.

A program is a maker `make(ns)` that returns a *fresh* function and its NumPy arguments: fresh, so that no cache keyed
on the function can answer for it. `ns` is the side's `jax`, `jnp` and `lax`. Calls and eager expressions are source
text, evaluated in the environment that `call_environment` or `eager_environment` builds. How they are timed is
`benchmarks.worker`'s business.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Frontend(NamedTuple):
    """The three names that a JAX program imports."""

    jax: Any
    jnp: Any
    lax: Any


Made = tuple[Callable[..., Any], tuple[Any, ...]]
Program = Callable[[Frontend], Made]


def _normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


# --- programs to trace and to lower: many equations, small arrays -----------------------------------------------------


def jnp_chain(ns: Frontend, steps: int) -> Made:
    """Unrolled mix of what users write in jnp: operators, ufuncs, reductions, where, reshapes, indexing."""
    jnp = ns.jnp

    def f(x, y):
        for i in range(steps):
            x = jnp.sin(x) * y + 0.5
            y = jnp.maximum(x, y) - x.mean(axis=0, keepdims=True)
            x = jnp.where(x > 0, x, jnp.exp(y))
            x = x.reshape(4, 16).T.reshape(8, 8) / (1 + jnp.abs(y))
            y = y + jnp.sum(x, axis=1)[:, None] - x[i % 8]
        return x + y

    return f, (_normal(8, 8), _normal(8, 8, seed=1))


def lax_chain(ns: Frontend, steps: int) -> Made:
    """The same idea in lax alone: one primitive a call, so this is the bare cost of an equation."""
    lax = ns.lax

    def f(x, y):
        for _ in range(steps):
            x = lax.add(lax.sin(x), y)
            y = lax.mul(lax.max(x, y), lax.tanh(x))
            x = lax.select(lax.gt(x, y), lax.neg(x), y)
            x = lax.reshape(lax.transpose(lax.reshape(x, (4, 16)), (1, 0)), (8, 8))
        return lax.sub(x, y)

    return f, (_normal(8, 8), _normal(8, 8, seed=1))


def transformer(ns: Frontend, layers: int, length: int = 16, width: int = 32) -> Made:
    """Forward pass of a small GPT, its layers unrolled."""
    jnp, lax = ns.jnp, ns.lax
    heads, vocabulary = 4, 64

    def norm(x, scale, shift):
        mean = jnp.mean(x, axis=-1, keepdims=True)
        variance = jnp.mean((x - mean) ** 2, axis=-1, keepdims=True)
        return (x - mean) * lax.rsqrt(variance + 1e-5) * scale + shift

    def softmax(x):
        e = jnp.exp(x - jnp.max(x, axis=-1, keepdims=True))
        return e / jnp.sum(e, axis=-1, keepdims=True)

    def gelu(x):
        return 0.5 * x * (1.0 + jnp.tanh(0.79788456 * (x + 0.044715 * x**3)))

    def attention(p, x):
        q, k, v = jnp.split(x @ p["qkv"], 3, axis=-1)
        q, k, v = (t.reshape(length, heads, width // heads).transpose(1, 0, 2) for t in (q, k, v))
        scores = q @ k.transpose(0, 2, 1) / (width // heads) ** 0.5
        mask = jnp.tril(jnp.ones((length, length), bool))
        weights = softmax(jnp.where(mask, scores, -1e9))
        return (weights @ v).transpose(1, 0, 2).reshape(length, width) @ p["out"]

    def f(params, tokens):
        x = params["embed"][tokens] + params["position"]
        for p in params["layers"]:
            x = x + attention(p, norm(x, p["s1"], p["b1"]))
            h = gelu(norm(x, p["s2"], p["b2"]) @ p["up"] + p["bias"])
            x = x + h @ p["down"]
        return x @ params["embed"].T

    def layer(seed):
        return {
            "qkv": _normal(width, 3 * width, seed=seed) * 0.1,
            "out": _normal(width, width, seed=seed) * 0.1,
            "up": _normal(width, 4 * width, seed=seed) * 0.1,
            "bias": _normal(4 * width, seed=seed),
            "down": _normal(4 * width, width, seed=seed) * 0.1,
            **{name: _normal(width, seed=seed) for name in ("s1", "b1", "s2", "b2")},
        }

    params = {
        "embed": _normal(vocabulary, width),
        "position": _normal(length, width, seed=1),
        "layers": [layer(i) for i in range(layers)],
    }
    return f, (params, np.arange(length, dtype=np.int32) % vocabulary)


def training_step(ns: Frontend, layers: int, length: int = 16, width: int = 32) -> Made:
    """Loss and gradient of the small GPT, and one step of Adam: what a training loop compiles."""
    jax, jnp = ns.jax, ns.jnp
    forward, (params, tokens) = transformer(ns, layers, length, width)

    def loss(params, tokens, targets):
        scores = jax.nn.log_softmax(forward(params, tokens))
        return -jnp.mean(jnp.take_along_axis(scores, targets[:, None], axis=-1))

    def f(params, first, second, count, tokens, targets):
        value, gradients = jax.value_and_grad(loss)(params, tokens, targets)
        count = count + 1
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradients)
        second = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, second, gradients)
        grow1, grow2 = 1 / (1 - 0.9**count), 1 / (1 - 0.99**count)
        step = lambda p, m, v: p - 1e-3 * m * grow1 / (jnp.sqrt(v * grow2) + 1e-8)
        return value, jax.tree.map(step, params, first, second), first, second, count

    zeros = jax.tree.map(np.zeros_like, params)
    return f, (params, zeros, zeros, np.float32(0), tokens, np.roll(tokens, -1))


def nested_jit(ns: Frontend, functions: int) -> Made:
    """Many jitted functions inside a jitted one; each is called twice, so its body is traced once and used twice."""
    jax, jnp = ns.jax, ns.jnp

    def block(i):
        @jax.jit
        def inner(x, y):
            x = jnp.tanh(x * y + i)
            y = jnp.exp(-jnp.abs(y)) - jnp.cos(x)
            x = x / (1.0 + x * x) + jnp.sqrt(jnp.abs(y))
            return x, y

        return inner

    blocks = [block(float(i)) for i in range(functions)]

    def f(x, y):
        for inner in blocks:
            x, y = inner(*inner(x, y))
        return x + y

    return f, (_normal(8, 8), _normal(8, 8, seed=1))


def control_flow(ns: Frontend, blocks: int) -> Made:
    """Loops and branches whose bodies are short, as in solvers."""
    jnp, lax = ns.jnp, ns.lax

    def f(x, y):
        for i in range(blocks):

            def step(carry, row, gain=1.0 + i):
                carry = jnp.tanh(carry * gain + row)
                return carry, jnp.sin(carry) - row

            def halve(state):
                n, v = state
                return n + 1, 0.5 * v - jnp.sin(v)

            carry, rows = lax.scan(step, x[0], y)
            _, x = lax.while_loop(lambda state: state[0] < 3, halve, (0, x + rows))
            y = lax.cond(jnp.sum(carry) > 0, lambda a, b: a * b + 1.0, lambda a, b: jnp.exp(-a) - b, x, y)
            x = lax.fori_loop(0, 4, lambda k, v: v * 0.9 + jnp.cos(v) / (k + 1.0), x)
        return x + y

    return f, (_normal(8, 8), _normal(8, 8, seed=1))


def _sized(make: Callable[..., Any], **sizes: int) -> Program:
    return functools.partial(make, **sizes)


# The numbers in the names are the equations JAX makes of the program, roughly.
STAGED: dict[str, Program] = {
    "jnp chain, 300": _sized(jnp_chain, steps=12),
    "jnp chain, 1000": _sized(jnp_chain, steps=41),
    "jnp chain, 3000": _sized(jnp_chain, steps=125),
    "lax chain, 300": _sized(lax_chain, steps=27),
    "lax chain, 1000": _sized(lax_chain, steps=91),
    "lax chain, 3000": _sized(lax_chain, steps=273),
    "transformer, 300": _sized(transformer, layers=4),
    "transformer, 1000": _sized(transformer, layers=14),
    "transformer, 3000": _sized(transformer, layers=42),
    "training step, 12 layers": _sized(training_step, layers=12),
    "nested jit, 300": _sized(nested_jit, functions=19),
    "nested jit, 1000": _sized(nested_jit, functions=62),
    "control flow, 300": _sized(control_flow, blocks=9),
}

# Straight-line programs of about so many equations; they are measured at the sizes that `benchmarks.worker` chooses.
CURVE: dict[str, Callable[[int], Program]] = {
    "jnp chain": lambda equations: _sized(jnp_chain, steps=equations // 24),
    "lax chain": lambda equations: _sized(lax_chain, steps=equations // 11),
    "training step": lambda equations: _sized(training_step, layers=equations // 343),
}


def curve_row(name: str, equations: int, stage: str) -> str:
    return f"{stage}, {name}, {equations:,}"


# --- programs to compile and to run: few equations, arrays of 4 MB or a loop ------------------------------------------


def matmul(ns: Frontend) -> Made:
    return lambda a, b: a @ b, (_normal(512, 512), _normal(512, 512, seed=1))


def elementwise(ns: Frontend) -> Made:
    jnp = ns.jnp
    arguments = _normal(1024, 1024), _normal(1024, 1024, seed=1)
    return lambda x, y: jnp.tanh(x) * y + jnp.where(x > 0, x, 0.1 * y), arguments


def softmax(ns: Frontend) -> Made:
    jnp = ns.jnp

    def f(x):
        e = jnp.exp(x - x.max(axis=-1, keepdims=True))
        return e / e.sum(axis=-1, keepdims=True)

    return f, (_normal(1024, 1024),)


def reductions(ns: Frontend) -> Made:
    jnp = ns.jnp
    return lambda x: (x.sum(), x.mean(axis=0), x.max(axis=1), jnp.argmin(x, axis=1), jnp.std(x)), (_normal(1024, 1024),)


def scan_loop(ns: Frontend) -> Made:
    jnp, lax = ns.jnp, ns.lax

    def step(h, x):
        h = jnp.tanh(h @ jnp.eye(32) * 0.9 + x)
        return h, h.sum()

    return lambda h, xs: lax.scan(step, h, xs), (_normal(32), _normal(1000, 32, seed=1))


def while_loop(ns: Frontend) -> Made:
    jnp, lax = ns.jnp, ns.lax

    def f(x):
        return lax.while_loop(lambda s: s[0] < 2000, lambda s: (s[0] + 1, 0.5 * s[1] + jnp.cos(s[1])), (0, x))

    return f, (_normal(64),)


def convolution(ns: Frontend) -> Made:
    lax = ns.lax
    return lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "SAME"), (_normal(4, 16, 64, 64), _normal(32, 16, 3, 3))


def sort(ns: Frontend) -> Made:
    jnp = ns.jnp
    return lambda x: (jnp.sort(x), jnp.argsort(x, axis=0)), (_normal(256, 256),)


def gather(ns: Frontend) -> Made:
    index = np.random.default_rng(0).integers(0, 4096, 8192).astype(np.int32)
    return lambda x, i: x[i] + x.at[i[:4096]].add(1.0)[:1], (_normal(4096, 64), index)


def heat(ns: Frontend) -> Made:
    """Explicit 2-D heat equation: slices, padding and a loop."""
    jnp, lax = ns.jnp, ns.lax

    def step(_, u):
        p = jnp.pad(u, 1, mode="edge")
        return u + 0.2 * (p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - 4 * u)

    return lambda u: lax.fori_loop(0, 50, step, u), (_normal(128, 128),)


COMPILED: dict[str, Program] = {
    "matmul 512": matmul,
    "elementwise 4 MB": elementwise,
    "softmax 4 MB": softmax,
    "reductions 4 MB": reductions,
    "scan, 1000 steps": scan_loop,
    "while, 2000 steps": while_loop,
    "convolution": convolution,
    "sort": sort,
    "gather and scatter": gather,
    "heat equation": heat,
    "transformer, 2 layers": _sized(transformer, layers=2, length=128, width=128),
}

# Compiled once a round, and timed only when it runs: a compile takes seconds.
LONG_COMPILES: dict[str, Program] = {"training step, 12 layers": _sized(training_step, layers=12)}


def one_kernel(ns: Frontend, number: int) -> Made:
    """Elementwise steps that XLA makes one kernel of, so that it compiles them on one thread; each number, another program."""
    jnp = ns.jnp

    def f(x):
        for i in range(30):
            x = jnp.sin(x) * (number + 1.5) + jnp.exp(-x) * i
        return x

    return f, (_normal(64),)


FIRST_CALLS: dict[str, Program] = {
    "x + 1": lambda ns: (lambda x: x + 1, (_normal(4),)),
    "softmax 4 MB": softmax,
    "heat equation": heat,
    "control flow, 100": _sized(control_flow, blocks=3),
    "transformer, 2 layers": _sized(transformer, layers=2),
}


# --- warm calls of a jitted function ----------------------------------------------------------------------------------


def call_environment(ns: Frontend) -> dict[str, Any]:
    """The names that `CALLS` uses; arrays are tiny, so a call costs its dispatch."""
    jnp = ns.jnp

    def arrays(count: int) -> list[Any]:
        return [jnp.asarray(_normal(4, seed=seed)) for seed in range(count)]

    x, y = arrays(2)
    tree = {"layers": [dict(zip(("w", "b", "scale"), arrays(3), strict=True)) for _ in range(12)]}
    return {**ns._asdict(), "x": x, "y": y, "nx": _normal(4), "ny": _normal(4), "arrays": arrays, "tree": tree}


# A name, what is done once, and the call that is timed.
CALLS: list[tuple[str, str, str]] = [
    ("1 array", "f = jax.jit(lambda a: a + 1.0)", "f(x)"),
    ("2 arrays", "f = jax.jit(lambda a, b: a + b)", "f(x, y)"),
    ("10 arrays", "f = jax.jit(lambda *xs: sum(xs[1:], xs[0])); xs = arrays(10)", "f(*xs)"),
    ("100 arrays", "f = jax.jit(lambda *xs: sum(xs[1:], xs[0])); xs = arrays(100)", "f(*xs)"),
    ("10 arrays in, 10 out", "f = jax.jit(lambda *xs: [a + 1.0 for a in xs]); xs = arrays(10)", "f(*xs)"),
    (
        "pytree of 36 leaves, in and out",
        "f = jax.jit(lambda t: {'layers': [{k: v * 0.9 for k, v in p.items()} for p in t['layers']]})",
        "f(tree)",
    ),
    ("pytree of 36 leaves in, 1 array out", "f = jax.jit(lambda t, a: t['layers'][0]['w'] + a)", "f(tree, x)"),
    ("2 NumPy arrays", "f = jax.jit(lambda a, b: a + b)", "f(nx, ny)"),
    ("array and Python float", "f = jax.jit(lambda a, b: a + b)", "f(x, 2.0)"),
    ("2 Python scalars", "f = jax.jit(lambda a, b: a + b)", "f(3, 2.0)"),
    ("keyword arguments", "f = jax.jit(lambda a, b: a + b)", "f(a=x, b=y)"),
    ("default argument", "f = jax.jit(lambda a, b=1.0: a + b)", "f(x)"),
    ("static argument", "f = jax.jit(lambda a, n: a * n, static_argnums=1)", "f(x, 3)"),
    ("static keyword", "f = jax.jit(lambda a, mode: a + len(mode), static_argnames='mode')", "f(x, mode='up')"),
    ("compiled object", "f = jax.jit(lambda a, b: a + b).lower(x, y).compile()", "f(x, y)"),
]


# --- eager operations -------------------------------------------------------------------------------------------------


def eager_environment(ns: Frontend) -> dict[str, Any]:
    """The names that `EAGER` uses."""
    jnp = ns.jnp
    positive = np.abs(_normal(8, 8)) + 0.5
    return {
        **ns._asdict(),
        "np": np,
        "v": jnp.asarray(_normal(8)),
        "x": jnp.asarray(positive),
        "y": jnp.asarray(_normal(8, 8, seed=1)),
        "n": positive,
        "i": jnp.asarray(np.array([3, 1, 2], np.int32)),
        "k": 3,
        "mask": jnp.asarray(_normal(8, 8) > 0),
        "s": jnp.asarray(np.float32(1.5)),
        "rows": [1.0, 2.0, 3.0, 4.0],
    }


# Indexing, reshaping, where and .at: where JAX goes through Python the most.
EAGER_SHORT: list[str] = [
    "x[1]",
    "x[-1]",
    "x[k]",
    "x[1, 2]",
    "x[None]",
    "x[1:3]",
    "x[::2]",
    "x[:, 0]",
    "x[..., 0]",
    "x[:, None, 1:]",
    "x[i]",
    "x[i, i]",
    "x[:, i]",
    "x.reshape(4, 16)",
    "x.reshape(-1)",
    "jnp.reshape(x, (2, 32))",
    "x.ravel()",
    "jnp.where(mask, x, y)",
    "jnp.where(mask, x, 0.0)",
    "jnp.where(x > 1, x, y)",
    "x.at[1].set(0.0)",
    "x.at[1, 2].set(s)",
    "x.at[:, 0].add(v)",
    "x.at[i].add(1.0)",
    "x.at[i].set(0.0)",
    "x.at[1:3].multiply(2.0)",
]

EAGER_OTHER: list[str] = [
    "x + y",
    "x * 2.0",
    "2.0 * x",
    "x - y",
    "x / y",
    "x // 2",
    "x ** 2",
    "-x",
    "abs(x)",
    "x > y",
    "x == 0.0",
    "~mask",
    "mask & mask",
    "x.T",
    "jnp.sin(x)",
    "jnp.exp(x)",
    "jnp.sqrt(x)",
    "jnp.power(x, y)",
    "jnp.maximum(x, y)",
    "jnp.add(x, y)",
    "jnp.isnan(x)",
    "jnp.logical_and(mask, mask)",
    "jnp.sum(x)",
    "x.sum(axis=0)",
    "jnp.mean(x)",
    "jnp.max(x, axis=1)",
    "jnp.argmax(x)",
    "jnp.std(x)",
    "jnp.all(mask)",
    "jnp.cumsum(x, axis=0)",
    "jnp.dot(v, v)",
    "x @ y",
    "jnp.einsum('ij,jk->ik', x, y)",
    "jnp.tensordot(x, y, 1)",
    "jnp.outer(v, v)",
    "jnp.concatenate([x, y])",
    "jnp.stack([x, y])",
    "jnp.split(x, 2)",
    "jnp.zeros((8, 8))",
    "jnp.ones(8)",
    "jnp.full((8, 8), 2.0)",
    "jnp.zeros_like(x)",
    "jnp.arange(8)",
    "jnp.arange(0.0, 1.0, 0.125)",
    "jnp.linspace(0.0, 1.0, 9)",
    "jnp.eye(8)",
    "jnp.array(rows)",
    "jnp.array(2.0)",
    "jnp.asarray(n)",
    "jnp.asarray(x)",
    "x.astype(jnp.int32)",
    "x.astype(jnp.float32)",
    "jnp.clip(x, 0.0, 1.0)",
    "jnp.round(x, 2)",
    "jnp.sort(v)",
    "jnp.argsort(v)",
    "jnp.broadcast_to(v, (8, 8))",
    "jnp.transpose(x)",
    "jnp.swapaxes(x, 0, 1)",
    "jnp.squeeze(x[None])",
    "jnp.expand_dims(x, 0)",
    "jnp.tile(v, 2)",
    "jnp.flip(x)",
    "jnp.roll(x, 1)",
    "jnp.pad(x, 1)",
    "jnp.take(x, i, axis=0)",
    "jnp.tril(x)",
    "jnp.diag(v)",
    "jnp.searchsorted(v, s)",
    "lax.add(x, y)",
    "lax.sin(x)",
    "lax.reshape(x, (4, 16))",
    "lax.dynamic_slice(x, (1, 1), (2, 2))",
    "lax.dynamic_update_slice(x, y[:2], (1, 0))",
    "list(v)",
    "[a + 1 for a in x]",
    "float(s)",
    "bool(mask[0, 0])",
    "s.item()",
    "v.tolist()",
    "np.asarray(x)",
    "np.sin(x)",
    "len(x)",
    "x.shape, x.dtype, x.ndim",
    "jax.device_put(n)",
    "jax.block_until_ready(x)",
]
