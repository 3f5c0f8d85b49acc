"""Realistic programs from a seed: `make(seed)(ns)` gives a function and its arguments, as in `benchmarks.programs`.

No list of programs is long enough to hold a promise such as "never slower". So these are put together at random, from what
people write: a family, its parts, what is done with it (a gradient, a batch, a loop), the sizes. The same seed gives the same
program on both sides, on every machine. Calls take between ten microseconds and a hundred milliseconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import numpy as np

from benchmarks import random_lines, random_rows
from benchmarks.programs import Frontend, Made, Program

Maker = Callable[[Frontend, Random], Made]


def make(seed: int | str) -> Program:
    """The program of a seed."""

    def program(ns: Frontend) -> Made:
        random = Random(int(seed))
        return _families(seed)[family(seed)](ns, random)

    return program


def family(seed: int | str) -> str:
    """The kind of program that a seed gives."""
    return Random(f"family {int(seed)}").choice(sorted(_families(seed)))


def _families(seed: int | str) -> dict[str, Maker]:
    return FAMILIES | {maker.__name__: maker for first, maker in _ADDED if int(seed) >= first}


def _array(random: Random, *shape: int, scale: float = 1.0) -> np.ndarray:
    values = np.random.default_rng(random.getrandbits(32)).standard_normal(shape)
    return (scale * values).astype(np.float32)


def _weights(random: Random, *shape: int) -> np.ndarray:
    return _array(random, *shape, scale=1 / math.sqrt(math.prod(shape[:-1])))


def _integers(random: Random, high: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(random.getrandbits(32)).integers(0, high, shape).astype(np.int32)


# --- networks: each gives (parameters, x -> features, input, number of features) --------------------------------------


def _activation(ns: Frontend, random: Random) -> Callable[[Any], Any]:
    nn, jnp = ns.jax.nn, ns.jnp
    return random.choice([nn.relu, nn.gelu, nn.silu, jnp.tanh, nn.softplus, nn.elu, nn.sigmoid,
                          lambda x: nn.leaky_relu(x, 0.1), lambda x: x * jnp.tanh(nn.softplus(x))])


def _norm(ns: Frontend, random: Random) -> Callable[[Any], Any]:
    jnp = ns.jnp

    def layer(x: Any) -> Any:
        return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)

    def rms(x: Any) -> Any:
        return x * ns.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)

    def batch(x: Any) -> Any:
        return (x - x.mean(0)) * ns.lax.rsqrt(x.var(0) + 1e-5)

    return random.choice([layer, rms, batch, lambda x: x])


def _mlp(ns: Frontend, random: Random) -> Any:
    width, depth, batch = random.choice([16, 64, 256, 512]), random.randint(1, 5), random.choice([8, 64, 256])
    inputs = random.choice([3, 32, 200])
    act, norm, residual = _activation(ns, random), _norm(ns, random), random.random() < 0.4
    sizes = [inputs] + [width] * depth
    params = [(_weights(random, n, m), np.zeros(m, np.float32)) for n, m in zip(sizes[:-1], sizes[1:], strict=True)]

    def apply(params: Any, x: Any) -> Any:
        for weights, bias in params:
            y = act(norm(x @ weights + bias))
            x = x + y if residual and x.shape == y.shape else y
        return x

    return params, apply, _array(random, batch, inputs), width


def _cnn(ns: Frontend, random: Random) -> Any:
    side, channels, batch = random.choice([8, 16, 28]), random.choice([4, 8, 16]), random.choice([2, 8, 16])
    act, depth, pool = _activation(ns, random), random.randint(1, 3), random.choice(["mean", "max", "stride"])
    norm = _norm(ns, random)
    counts = [random.choice([1, 3])] + [channels] * depth
    params = [_weights(random, 3, 3, n, m) for n, m in zip(counts[:-1], counts[1:], strict=True)]
    stride = 2 if pool == "stride" else 1

    def apply(params: Any, x: Any) -> Any:
        for kernel in params:
            x = ns.lax.conv_general_dilated(x, kernel, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
            x = act(norm(x))
            if pool == "max":
                x = ns.lax.reduce_window(x, -np.inf, ns.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "SAME")
        return x.mean((1, 2))

    return params, apply, _array(random, batch, side, side, counts[0]), channels


def _attention(ns: Frontend, random: Random) -> Any:
    jax, jnp = ns.jax, ns.jnp
    batch, length, width = random.choice([1, 4, 8]), random.choice([16, 48, 128]), random.choice([32, 64, 128])
    heads, depth, causal = random.choice([1, 2, 4]), random.randint(1, 4), random.random() < 0.5
    act, norm, rotary = _activation(ns, random), _norm(ns, random), random.random() < 0.3
    params = [{"qkv": _weights(random, width, 3 * width), "out": _weights(random, width, width),
               "up": _weights(random, width, 4 * width), "down": _weights(random, 4 * width, width)} for _ in range(depth)]

    def turn(x: Any) -> Any:
        half = x.shape[-1] // 2
        angles = jnp.arange(length)[:, None] * 0.01 ** (jnp.arange(half) / half)
        a, b = x[..., :half], x[..., half:]
        return jnp.concatenate([a * jnp.cos(angles) - b * jnp.sin(angles), a * jnp.sin(angles) + b * jnp.cos(angles)], -1)

    def attend(p: Any, x: Any) -> Any:
        qkv = (x @ p["qkv"]).reshape(*x.shape[:-1], 3, heads, width // heads)
        q, k, v = (jnp.moveaxis(qkv[..., i, :, :], -2, -3) for i in range(3))
        if rotary:
            q, k = turn(q), turn(k)
        scores = jnp.einsum("...hqd,...hkd->...hqk", q, k) / math.sqrt(width // heads)
        if causal:
            scores = jnp.where(jnp.tril(jnp.ones((length, length), bool)), scores, -1e9)
        mixed = jnp.einsum("...hqk,...hkd->...qhd", jax.nn.softmax(scores), v)
        return mixed.reshape(*x.shape) @ p["out"]

    def apply(params: Any, x: Any) -> Any:
        for p in params:
            x = x + attend(p, norm(x))
            x = x + act(norm(x) @ p["up"]) @ p["down"]
        return x.mean(1)

    return params, apply, _array(random, batch, length, width), width


def _recurrent(ns: Frontend, random: Random) -> Any:
    jnp, lax, nn = ns.jnp, ns.lax, ns.jax.nn
    batch, length, inputs = random.choice([1, 8, 32]), random.choice([10, 50, 200]), random.choice([4, 16])
    width, kind = random.choice([8, 32, 128]), random.choice(["plain", "gru", "lstm"])
    gates = {"plain": 1, "gru": 3, "lstm": 4}[kind]
    params = {"x": _weights(random, inputs, gates * width), "h": _weights(random, width, gates * width),
              "b": np.zeros(gates * width, np.float32)}

    def cell(p: Any, state: Any, x: Any) -> Any:
        h, c = state
        a = x @ p["x"] + p["b"]
        if kind == "plain":
            h = jnp.tanh(a + h @ p["h"])
        elif kind == "gru":
            b = h @ p["h"]
            z, r = nn.sigmoid(a[:, :width] + b[:, :width]), nn.sigmoid(a[:, width:-width] + b[:, width:-width])
            h = (1 - z) * h + z * jnp.tanh(a[:, -width:] + r * b[:, -width:])
        else:
            i, f, g, o = jnp.split(a + h @ p["h"], 4, axis=-1)
            c = nn.sigmoid(f + 1) * c + nn.sigmoid(i) * jnp.tanh(g)
            h = nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    def apply(params: Any, x: Any) -> Any:
        zero = jnp.zeros((x.shape[0], width))
        return lax.scan(lambda s, x: cell(params, s, x), (zero, zero), jnp.moveaxis(x, 1, 0))[1].mean(0)

    return params, apply, _array(random, batch, length, inputs), width


def _dropped(ns: Frontend, random: Random) -> Any:
    """A perceptron with dropout; the key is part of what it closes over."""
    params, apply, x, width = _mlp(ns, random)
    rate, jax, jnp = random.choice([0.1, 0.5]), ns.jax, ns.jnp
    seed = random.getrandbits(16)

    def dropped(params: Any, x: Any) -> Any:
        first, second = jax.random.split(jax.random.key(seed))
        x = jnp.where(jax.random.bernoulli(first, 1 - rate, x.shape), x / (1 - rate), 0)
        y = apply(params, x)
        return jnp.where(jax.random.bernoulli(second, 1 - rate, y.shape), y / (1 - rate), 0)

    return params, dropped, x, width


def _network(ns: Frontend, random: Random) -> Any:
    return random.choice([_mlp, _mlp, _cnn, _attention, _recurrent, _dropped])(ns, random)


def _loss(ns: Frontend, random: Random, outputs: int, batch: int) -> tuple[Callable[[Any, Any], Any], np.ndarray]:
    jnp, nn = ns.jnp, ns.jax.nn
    classes = _integers(random, outputs, batch)
    targets = _array(random, batch, outputs)

    def huber(y: Any, t: Any) -> Any:
        d = jnp.abs(y - t)
        return jnp.mean(jnp.where(d < 1, 0.5 * d * d, d - 0.5))

    def contrastive(y: Any, t: Any) -> Any:
        y, t = (v / jnp.sqrt((v * v).sum(-1, keepdims=True) + 1e-6) for v in (y, t))
        return -jnp.diag(nn.log_softmax(y @ t.T * 5)).mean()

    return random.choice([
        (lambda y, t: jnp.mean((y - t) ** 2), targets), (huber, targets), (contrastive, targets),
        (lambda y, t: -jnp.take_along_axis(nn.log_softmax(y), t[:, None], 1).mean(), classes),
        (lambda y, t: -(nn.one_hot(t, outputs) * nn.log_softmax(y)).sum(-1).mean(), classes),
        (lambda y, t: (nn.softplus(y) - y * (t > 0)).mean(), targets),
        (lambda y, t: jnp.maximum(0, 1 - y * jnp.sign(t)).sum(-1).mean(), targets),
        (lambda y, t: (jnp.log(jnp.cosh(y - t))).mean() + 1e-3 * jnp.abs(y).sum(), targets),
    ])


def _optimizer(ns: Frontend, random: Random) -> Callable[[Any, Any, Any, Any], tuple[Any, Any, Any]]:
    """(parameters, gradient, first, second moment) -> the first, third and fourth of them after a step."""
    jax, jnp = ns.jax, ns.jnp
    tree_map, rate = jax.tree_util.tree_map, 1e-3
    kind = random.choice(["sgd", "momentum", "adam", "adamw", "rmsprop", "lion", "clipped"])

    def step(params: Any, grads: Any, m: Any, v: Any) -> Any:
        if kind == "clipped":
            norm = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree_util.tree_leaves(grads)))
            grads = tree_map(lambda g: g * jnp.minimum(1, 1 / norm), grads)
        if kind in ("sgd", "clipped"):
            return tree_map(lambda p, g: p - rate * g, params, grads), m, v
        if kind == "momentum":
            m = tree_map(lambda m, g: 0.9 * m + g, m, grads)
            return tree_map(lambda p, m: p - rate * m, params, m), m, v
        if kind == "lion":
            new = tree_map(lambda p, m, g: p - rate * (jnp.sign(0.9 * m + 0.1 * g) + 0.01 * p), params, m, grads)
            return new, tree_map(lambda m, g: 0.99 * m + 0.01 * g, m, grads), v
        v = tree_map(lambda v, g: 0.99 * v + 0.01 * g * g, v, grads)
        if kind == "rmsprop":
            return tree_map(lambda p, g, v: p - rate * g / (jnp.sqrt(v) + 1e-8), params, grads, v), m, v
        m = tree_map(lambda m, g: 0.9 * m + 0.1 * g, m, grads)
        decay = 0.01 if kind == "adamw" else 0.0
        return tree_map(lambda p, m, v: p - rate * (m / (jnp.sqrt(v) + 1e-8) + decay * p), params, m, v), m, v

    return step


def training(ns: Frontend, random: Random) -> Made:
    """One step of an optimizer, or several in a loop."""
    jax, lax = ns.jax, ns.lax
    params, apply, x, width = _network(ns, random)
    outputs = random.choice([1, 5, 10, 40])
    loss_of, targets = _loss(ns, random, outputs, x.shape[0])
    optimize, way = _optimizer(ns, random), random.choice(["plain", "plain", "remat", "accumulated", "loop"])
    params = (params, _weights(random, width, outputs))
    penalty = random.choice([0.0, 1e-4])

    def loss(params: Any, x: Any, targets: Any) -> Any:
        run = jax.checkpoint(apply) if way == "remat" else apply
        total = loss_of(run(params[0], x) @ params[1], targets)
        return total + penalty * sum((p * p).sum() for p in jax.tree_util.tree_leaves(params)) if penalty else total

    def step(params: Any, m: Any, v: Any, x: Any, targets: Any) -> Any:
        if way == "accumulated" and x.shape[0] % 2 == 0:
            def add(total: Any, part: Any) -> Any:
                value, grads = jax.value_and_grad(loss)(params, *part)
                return jax.tree_util.tree_map(lambda a, b: a + b, total, grads), value
            zeros = jax.tree_util.tree_map(ns.jnp.zeros_like, params)
            grads, values = lax.scan(add, zeros, (x.reshape(2, -1, *x.shape[1:]), targets.reshape(2, -1, *targets.shape[1:])))
            value = values.mean()
        else:
            value, grads = jax.value_and_grad(loss)(params, x, targets)
        return (value, *optimize(params, grads, m, v))

    def loop(params: Any, m: Any, v: Any, x: Any, targets: Any) -> Any:
        def turn(state: Any, _: Any) -> Any:
            value, *state = step(*state, x, targets)
            return tuple(state), value
        return lax.scan(turn, (params, m, v), None, length=5)

    zeros = jax.tree_util.tree_map(np.zeros_like, params)
    return loop if way == "loop" else step, (params, zeros, zeros, x, targets)


def inference(ns: Frontend, random: Random) -> Made:
    """A network forward, and what is made of its outputs."""
    jax, jnp = ns.jax, ns.jnp
    params, apply, x, width = _network(ns, random)
    head = _weights(random, width, 10)
    after = random.choice([jax.nn.softmax, lambda y: jax.lax.top_k(y, 3), lambda y: jnp.argmax(y, -1), lambda y: y,
                           lambda y: jax.nn.logsumexp(y, -1)])
    return lambda params, head, x: after(apply(params, x) @ head), (params, head, x)


def derivatives(ns: Frontend, random: Random) -> Made:
    """Derivatives that are not one gradient: of each example, second ones, Jacobians, products with Hessians."""
    jax, jnp = ns.jax, ns.jnp
    kind = random.choice(["each", "clipped", "hessian", "jacobian", "hvp", "laplacian", "gauss-newton", "meta"])
    inputs, width = random.choice([4, 10, 32]), random.choice([8, 32, 64])
    batch = random.choice([4, 32, 128])
    act = _activation(ns, random)
    params = [_weights(random, inputs, width), np.zeros(width, np.float32), _weights(random, width, width),
              _weights(random, width, 1)]
    x, y = _array(random, batch, inputs), _array(random, batch, 1)

    def net(p: Any, x: Any) -> Any:
        return (act(act(x @ p[0] + p[1]) @ p[2]) @ p[3])[..., 0]

    def loss(p: Any, x: Any, y: Any) -> Any:
        return jnp.mean((net(p, x) - y[..., 0]) ** 2)

    each = jax.vmap(jax.grad(loss), (None, 0, 0))

    def clipped(p: Any, x: Any, y: Any) -> Any:
        grads = each(p, x, y)
        norms = jnp.sqrt(sum((g.reshape(batch, -1) ** 2).sum(-1) for g in grads))
        return [jnp.einsum("b,b...->...", jnp.minimum(1, 1 / norms), g) / batch for g in grads]

    def hvp(p: Any, x: Any, y: Any) -> Any:
        return jax.jvp(lambda p: jax.grad(loss)(p, x, y), (p,), (p,))[1]

    def newton(p: Any, x: Any, y: Any) -> Any:
        jacobian = jax.jacrev(net)(p, x)[0].reshape(batch, -1)
        return jacobian.T @ jacobian

    def meta(p: Any, x: Any, y: Any) -> Any:
        def adapted(p: Any) -> Any:
            new = jax.tree_util.tree_map(lambda p, g: p - 0.1 * g, p, jax.grad(loss)(p, x, y))
            return loss(new, x[::-1], y)
        return jax.grad(adapted)(p)

    few = x[: min(batch, 32)]
    f, args = {
        "each": (each, (params, x, y)), "clipped": (clipped, (params, x, y)), "hvp": (hvp, (params, x, y)),
        "gauss-newton": (newton, (params, x, y)), "meta": (meta, (params, x, y)),
        "hessian": (lambda p, x: jax.vmap(jax.hessian(lambda x: net(p, x)))(x), (params, few)),
        "jacobian": (lambda p, x: jax.vmap(jax.jacfwd(lambda x: act(act(x @ p[0] + p[1]) @ p[2])))(x), (params, few)),
        "laplacian": (lambda p, x: jax.vmap(lambda x: jnp.trace(jax.hessian(lambda x: net(p, x))(x)))(x), (params, few)),
    }[kind]
    return f, args


# --- sampling ---------------------------------------------------------------------------------------------------------


def sampling(ns: Frontend, random: Random) -> Made:
    """Markov chains: random walk, Langevin, Hamiltonian; over several densities, many chains at a time."""
    jax, jnp, lax = ns.jax, ns.jnp, ns.lax
    chains, size, steps = random.choice([1, 16, 200]), random.choice([2, 8, 32]), random.choice([10, 50])
    centres, data = _array(random, 4, size), _array(random, random.choice([20, 200]), size)
    labels = (data[:, 0] > 0).astype(np.float32)

    def mixture(x: Any) -> Any:
        return jax.nn.logsumexp(-0.5 * ((x - centres) ** 2).sum(-1))

    def banana(x: Any) -> Any:
        return -((x[1:] - x[:-1] ** 2) ** 2).sum() - 0.05 * (x * x).sum()

    def logistic(x: Any) -> Any:
        scores = data @ x
        return (labels * scores - jnp.logaddexp(0, scores)).sum() - 0.5 * (x * x).sum()

    density = random.choice([mixture, banana, logistic])
    kind = random.choice(["walk", "langevin", "hamiltonian"])
    slope = jax.grad(density)

    def propose(key: Any, x: Any) -> Any:
        noise = jax.random.normal(key, x.shape)
        if kind == "walk":
            return x + 0.1 * noise, density(x + 0.1 * noise) - density(x)
        if kind == "langevin":
            return x + 0.01 * slope(x) + 0.14 * noise, jnp.zeros(())
        y, momentum = x, noise
        for _ in range(3):
            momentum = momentum + 0.02 * slope(y)
            y = y + 0.04 * momentum
            momentum = momentum + 0.02 * slope(y)
        return y, density(y) - density(x) + 0.5 * ((noise * noise).sum() - (momentum * momentum).sum())

    def chain(key: Any, x: Any) -> Any:
        def step(x: Any, key: Any) -> Any:
            first, second = jax.random.split(key)
            y, gain = propose(first, x)
            x = jnp.where(jnp.log(jax.random.uniform(second)) < gain, y, x)
            return x, x
        return lax.scan(step, x, jax.random.split(key, steps))[1].mean(0)

    seed = random.getrandbits(20)

    def run(x: Any) -> Any:
        return jax.vmap(chain)(jax.random.split(jax.random.key(seed), chains), x)

    return run, (_array(random, chains, size),)


def draws(ns: Frontend, random: Random) -> Made:
    """Many random numbers, and statistics of them or gradients through them."""
    jax, jnp = ns.jax, ns.jnp
    count, seed = random.choice([1000, 20_000, 300_000]), random.getrandbits(20)
    r = jax.random
    draw = random.choice([
        lambda k: r.normal(k, (count,)), lambda k: r.uniform(k, (count,)), lambda k: r.gumbel(k, (count,)),
        lambda k: r.exponential(k, (count,)), lambda k: r.laplace(k, (count,)), lambda k: r.bernoulli(k, 0.3, (count,)) * 1.0,
        lambda k: r.randint(k, (count,), 0, 100) / 100, lambda k: r.truncated_normal(k, -1, 2, (count,)),
        lambda k: r.categorical(k, jnp.arange(10.0), shape=(count,)) * 0.1, lambda k: r.cauchy(k, (count,)),
        lambda k: r.rademacher(k, (count,)) * 0.5,
    ])

    def payoff(theta: Any) -> Any:
        z = draw(r.key(seed))
        return jnp.maximum(jnp.exp(theta[0] * z - 0.5 * theta[1]) - theta[2], 0).mean()

    def paths(theta: Any) -> Any:
        keys = r.split(r.key(seed), 10)
        step = lambda x, k: (x * jnp.exp(theta[1] * 0.1 * jnp.clip(draw(k), -5, 5)), None)
        return jnp.maximum(ns.lax.scan(step, jnp.ones(count), keys)[0] - theta[2], 0).mean()

    f = random.choice([payoff, jax.grad(payoff), jax.value_and_grad(paths), paths, lambda t: draw(r.key(seed)) * t[0],
                       lambda t: jnp.sort(draw(r.key(seed)) + t[1])[:: count // 100]])
    return f, (np.array([0.3, 0.2, 0.9], np.float32),)


# --- solvers ----------------------------------------------------------------------------------------------------------


def solvers(ns: Frontend, random: Random) -> Made:
    """Differential equations, roots, linear systems by iteration, filters."""
    jax, jnp, lax = ns.jax, ns.jnp, ns.lax
    kind = random.choice(["runge-kutta", "newton", "conjugate gradients", "jacobi", "kalman", "hidden markov", "sinkhorn",
                          "edit distance", "bisection", "descent", "shooting", "power iteration"])
    size = random.choice([3, 20, 100])
    batch = random.choice([1, 32, 1000])
    if kind in ("runge-kutta", "shooting"):
        steps, h = random.choice([5, 30]), 0.01
        field = random.choice([
            lambda x: jnp.stack([10 * (x[1] - x[0]), x[0] * (28 - x[2]) - x[1], x[0] * x[1] - 8 / 3 * x[2]]),
            lambda x: jnp.stack([x[1], -jnp.sin(x[0]) - 0.1 * x[1], 0.1 * x[0] * x[2]]),
            lambda x: jnp.roll(x, 1, 0) * (jnp.roll(x, -1, 0) - jnp.roll(x, 2, 0)) - x + 8,
        ])

        def advance(x: Any) -> Any:
            a = field(x)
            b = field(x + h / 2 * a)
            c = field(x + h / 2 * b)
            return x + h / 6 * (a + 2 * b + 2 * c + field(x + h * c))

        def unrolled(x: Any) -> Any:
            for _ in range(steps):
                x = advance(x)
            return x

        rolled = lambda x: lax.scan(lambda x, _: (advance(x), x), x, None, length=10 * steps)[0]
        solve = unrolled if random.random() < 0.3 else rolled
        x = _array(random, 3, batch)
        return (solve if kind == "runge-kutta" else jax.grad(lambda x: (solve(x) ** 2).sum())), (x,)
    matrix = _array(random, size, size, scale=0.5 / math.sqrt(size)) + 2 * np.eye(size, dtype=np.float32)
    b = _array(random, size)
    if kind == "newton":
        def residual(x: Any) -> Any:
            return matrix @ x + 0.1 * jnp.tanh(x) - b

        def newton(x: Any) -> Any:
            return lax.fori_loop(0, 5, lambda _, x: x - jnp.linalg.solve(jax.jacfwd(residual)(x), residual(x)), x)

        return newton, (b,)
    if kind == "conjugate gradients":
        spd = matrix @ matrix.T
        return lambda a, b: jax.scipy.sparse.linalg.cg(lambda x: a @ x, b, maxiter=20)[0], (spd, b)
    if kind == "jacobi":
        def jacobi(a: Any, b: Any) -> Any:
            d = jnp.diag(a)
            return lax.fori_loop(0, 50, lambda _, x: x + 0.5 * (b - a @ x) / d, jnp.zeros_like(b))
        return jacobi, (matrix, b)
    if kind == "kalman":
        n, length = random.choice([2, 4, 8]), random.choice([20, 100])
        f, h = np.eye(n, dtype=np.float32) * 0.95, _array(random, n // 2, n)

        def kalman(ys: Any) -> Any:
            def step(state: Any, y: Any) -> Any:
                m, p = state
                m, p = f @ m, f @ p @ f.T + 0.1 * jnp.eye(n)
                s = h @ p @ h.T + 0.5 * jnp.eye(n // 2)
                gain = jnp.linalg.solve(s, h @ p).T
                r = y - h @ m
                score = -0.5 * (r @ jnp.linalg.solve(s, r) + jnp.linalg.slogdet(s)[1])
                return (m + gain @ r, p - gain @ h @ p), score
            return lax.scan(step, (jnp.zeros(n), jnp.eye(n)), ys)[1].sum()

        return random.choice([kalman, jax.grad(kalman)]), (_array(random, length, n // 2),)
    if kind == "hidden markov":
        states, length = random.choice([4, 32]), random.choice([50, 300])

        def forward(moves: Any, seen: Any) -> Any:
            moves = jax.nn.log_softmax(moves)
            step = lambda a, e: (jax.nn.logsumexp(a[:, None] + moves, 0) + e, None)
            return jax.nn.logsumexp(lax.scan(step, seen[0], seen[1:])[0])

        args = _array(random, states, states), _array(random, length, states)
        return random.choice([forward, jax.grad(forward), jax.value_and_grad(forward, 1)]), args
    if kind == "sinkhorn":
        n = random.choice([20, 100, 300])

        def sinkhorn(x: Any, y: Any) -> Any:
            cost = ((x[:, None] - y[None]) ** 2).sum(-1) / 0.5

            def turn(_: Any, fg: Any) -> Any:
                f = -jax.nn.logsumexp(fg[1][None] - cost, 1)
                return f, -jax.nn.logsumexp(f[:, None] - cost, 0)
            f, g = lax.fori_loop(0, 10, turn, (jnp.zeros(n), jnp.zeros(n)))
            return (jnp.exp(f[:, None] + g[None] - cost) * cost).sum()

        return random.choice([sinkhorn, jax.grad(sinkhorn)]), (_array(random, n, 2), _array(random, n, 2))
    if kind == "edit distance":
        n = random.choice([30, 100])

        def distance(a: Any, b: Any) -> Any:
            def row(last: Any, x: Any) -> Any:
                c = jnp.minimum(last[1:] + 1, last[:-1] + (b != x))
                cell = lambda left, v: (jnp.minimum(left + 1, v), jnp.minimum(left + 1, v))
                first = last[0] + 1
                return jnp.concatenate([first[None], lax.scan(cell, first, c)[1]]), None
            return lax.scan(row, jnp.arange(n + 1), a)[0][-1]

        return distance, (_integers(random, 4, n), _integers(random, 4, n))
    if kind == "bisection":
        def bisect(c: Any) -> Any:
            def turn(state: Any) -> Any:
                i, low, high = state
                mid = (low + high) / 2
                up = mid + jnp.sin(mid) * 0.5 < c
                return i + 1, jnp.where(up, mid, low), jnp.where(up, high, mid)
            return lax.while_loop(lambda s: s[0] < 30, turn, (0, c - 2, c + 2))[1]
        return bisect, (_array(random, batch),)
    if kind == "power iteration":
        return lambda a, v: lax.fori_loop(0, 30, lambda _, v: (lambda w: w / jnp.sqrt(w @ w))(a @ v), v), (matrix, b)
    rate = 0.01
    objective = lambda x: ((matrix @ x - b) ** 2).sum() + jnp.abs(x).sum() + jnp.cos(x).sum()
    return lambda x: lax.fori_loop(0, 30, lambda _, x: x - rate * jax.grad(objective)(x), x), (b,)


# --- simulations ------------------------------------------------------------------------------------------------------


def simulation(ns: Frontend, random: Random) -> Made:
    """Grids and particles in steps; sometimes the gradient through time."""
    jax, jnp, lax = ns.jax, ns.jnp, ns.lax
    kind = random.choice(["heat", "wave", "life", "bodies", "boltzmann", "ising", "boids", "marching", "reaction", "water"])
    side, steps = random.choice([16, 64, 256]), random.choice([5, 20])
    grid = _array(random, side, side)
    shift = random.choice([
        lambda u, i, j: jnp.roll(u, (i, j), (0, 1)),
        lambda u, i, j: jnp.pad(u, 1, mode="edge")[1 - i: u.shape[0] + 1 - i, 1 - j: u.shape[1] + 1 - j],
        lambda u, i, j: jnp.pad(u, 1)[1 - i: u.shape[0] + 1 - i, 1 - j: u.shape[1] + 1 - j],
    ])
    around = lambda u: shift(u, 0, 1) + shift(u, 0, -1) + shift(u, 1, 0) + shift(u, -1, 0)
    repeat = random.choice([
        lambda f, x: lax.fori_loop(0, steps, lambda _, x: f(x), x),
        lambda f, x: lax.scan(lambda x, _: (f(x), None), x, None, length=steps)[0],
    ])
    if kind == "heat":
        run = lambda u: repeat(lambda u: u + 0.2 * (around(u) - 4 * u), u)
        return random.choice([run, jax.grad(lambda u: (run(u) ** 2).sum())]), (grid,)
    if kind == "wave":
        run = lambda u: repeat(lambda s: (2 * s[0] - s[1] + 0.1 * (around(s[0]) - 4 * s[0]), s[0]), (u, u))[0]
        return random.choice([run, jax.grad(lambda u: (run(u) ** 2).sum())]), (grid,)
    if kind == "reaction":
        def react(s: Any) -> Any:
            u, v = s
            r = u * v * v
            return (u + 0.16 * (around(u) - 4 * u) - r + 0.035 * (1 - u), v + 0.08 * (around(v) - 4 * v) + r - 0.1 * v)
        return lambda u: repeat(react, (jnp.ones_like(u), 0.1 * jnp.tanh(u)))[1], (grid,)
    if kind == "life":
        def live(u: Any) -> Any:
            count = around(u) + shift(u, 1, 1) + shift(u, 1, -1) + shift(u, -1, 1) + shift(u, -1, -1)
            return jnp.where((count == 3) | ((u == 1) & (count == 2)), 1, 0)
        return lambda u: repeat(live, u), ((grid > 0).astype(np.int32),)
    if kind == "water":
        def flow(s: Any) -> Any:
            h, u, v = s
            u = u - 0.1 * (shift(h, -1, 0) - h)
            v = v - 0.1 * (shift(h, 0, -1) - h)
            return h - 0.1 * (u - shift(u, 1, 0) + v - shift(v, 0, 1)), 0.99 * u, 0.99 * v
        return lambda h: repeat(flow, (h, jnp.zeros_like(h), jnp.zeros_like(h)))[0], (grid,)
    if kind == "boltzmann":
        moves = [(0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 1), (-1, -1), (1, -1)]
        c, w = np.array(moves, np.float32), np.array([4 / 9] + [1 / 9] * 4 + [1 / 36] * 4, np.float32)

        def collide(f: Any) -> Any:
            rho = f.sum(0)
            ux, uy = jnp.tensordot(c[:, 0], f, 1) / rho, jnp.tensordot(c[:, 1], f, 1) / rho
            cu = 3 * (c[:, 0, None, None] * ux + c[:, 1, None, None] * uy)
            f = f + 0.6 * (w[:, None, None] * rho * (1 + cu + 0.5 * cu * cu - 1.5 * (ux * ux + uy * uy)) - f)
            return jnp.stack([jnp.roll(f[k], move, (0, 1)) for k, move in enumerate(moves)])
        return lambda f: repeat(collide, f), ((w[:, None, None] * (1 + 0.01 * grid)).astype(np.float32),)
    if kind == "ising":
        seed = random.getrandbits(20)
        mask = np.indices((side, side)).sum(0) % 2 == 0

        def sweep(s: Any, key: Any) -> Any:
            for part in (mask, ~mask):
                key, own = jax.random.split(key)
                flip = jax.random.uniform(own, s.shape) < jnp.exp(-0.8 * s * around(s))
                s = jnp.where(part & flip, -s, s)
            return s, s.mean()
        return lambda s: lax.scan(sweep, s, jax.random.split(jax.random.key(seed), steps))[1], (np.sign(grid),)
    if kind == "marching":
        centres, radii = _array(random, 5, 3) + np.float32([0, 0, 5]), np.abs(_array(random, 5)) * 0.3 + 0.2

        def scene(p: Any) -> Any:
            spheres = jnp.sqrt(((p[..., None, :] - jnp.array(centres.tolist())) ** 2).sum(-1)) - jnp.array(radii.tolist())
            return jnp.minimum(spheres.min(-1), p[..., 1] + 1)

        def render(xy: Any) -> Any:
            d = jnp.concatenate([xy, jnp.ones_like(xy[..., :1])], -1)
            d = d / jnp.sqrt((d * d).sum(-1, keepdims=True))
            far = repeat(lambda t: t + scene(t[..., None] * d), jnp.zeros(xy.shape[:-1]))
            p, e = far[..., None] * d, 1e-3
            n = jnp.stack([scene(p + e * jnp.array(a)) - scene(p) for a in np.eye(3).tolist()], -1)
            return jnp.clip((n * jnp.array([0.5, 0.7, -0.5])).sum(-1) / e, 0, 1)
        xy = np.stack(np.meshgrid(*[np.linspace(-1, 1, min(side, 128), dtype=np.float32)] * 2), -1)
        return render, (xy,)
    count = random.choice([20, 100, 300])
    x, v = 3 * _array(random, count, 3), _array(random, count, 3)
    if kind == "boids":
        def fly(s: Any) -> Any:
            x, v = s
            d = x[None] - x[:, None]
            r = jnp.sqrt((d * d).sum(-1) + 1e-3)
            near = (r < 2)[..., None]
            force = jnp.where(near, -d / r[..., None] ** 2, 0.01 * d).sum(1)
            force = force + 0.1 * jnp.where(near, v[None] - v[:, None], 0).mean(1)
            v = v + 0.01 * force
            return x + 0.01 * v, v
        return lambda x, v: repeat(fly, (x, v)), (x, v)

    def energy(x: Any) -> Any:
        d = x[:, None] - x[None]
        r2 = (d * d).sum(-1) + jnp.eye(count)
        s = 1 / r2 ** 3
        return 0.5 * ((s * s - s) * (1 - jnp.eye(count))).sum()

    def direct(x: Any) -> Any:
        d = x[None] - x[:, None]
        return (d / (((d * d).sum(-1) + 0.01) ** 1.5)[..., None]).sum(1)

    force = random.choice([direct, lambda x: -jax.grad(energy)(x)])

    def move(s: Any) -> Any:
        x, v = s
        v = v + 1e-4 * force(x)
        return x + 1e-4 * v, v
    return lambda x, v: repeat(move, (x, v)), (x, v)


# --- linear algebra, graphs, tables -----------------------------------------------------------------------------------


def linear_algebra(ns: Frontend, random: Random) -> Made:
    """Factorizations and what statistics makes of them."""
    jax, jnp = ns.jax, ns.jnp
    kind = random.choice(["gaussian process", "least squares", "principal components", "kernel", "batched", "exponential",
                          "whitening", "determinant", "chain", "low rank"])
    n, d = random.choice([10, 60, 200]), random.choice([3, 16])
    x, y = _array(random, n, d), _array(random, n)
    wrap = random.choice([lambda f: f, lambda f: jax.grad(lambda *a: sum(l.sum() for l in jax.tree_util.tree_leaves(f(*a))))])

    def gram(x: Any, scale: Any) -> Any:
        return jnp.exp(-0.5 * ((x[:, None] - x[None]) ** 2).sum(-1) / scale)

    if kind == "gaussian process":
        def likelihood(scale: Any, x: Any, y: Any) -> Any:
            factor = jnp.linalg.cholesky(gram(x, scale) + 0.1 * jnp.eye(n))
            z = jax.scipy.linalg.solve_triangular(factor, y, lower=True)
            return 0.5 * z @ z + jnp.log(jnp.diag(factor)).sum()
        return wrap(likelihood), (np.float32(2), x, y)
    if kind == "least squares":
        return wrap(lambda x, y: jnp.linalg.solve(x.T @ x + 0.1 * jnp.eye(d), x.T @ y)), (x, y)
    if kind == "principal components":
        def components(x: Any) -> Any:
            x = x - x.mean(0)
            values, vectors = jnp.linalg.eigh(x.T @ x / n)
            return x @ vectors[:, -2:], values
        return components, (x,)
    if kind == "kernel":
        return wrap(lambda x, y: gram(x, 2.0) @ y), (x, y)
    if kind == "batched":
        many = _array(random, random.choice([50, 500]), 4, 4) + 3 * np.eye(4, dtype=np.float32)
        return wrap(random.choice([jnp.linalg.inv, jnp.linalg.det, lambda a: a @ a @ a.swapaxes(1, 2)])), (many,)
    if kind == "exponential":
        return wrap(jax.scipy.linalg.expm), (_array(random, d, d, scale=0.1),)
    if kind == "whitening":
        def whiten(x: Any) -> Any:
            x = x - x.mean(0)
            return jax.scipy.linalg.solve_triangular(jnp.linalg.cholesky(x.T @ x / n + 0.01 * jnp.eye(d)), x.T, lower=True)
        return wrap(whiten), (x,)
    if kind == "determinant":
        return wrap(lambda x: jnp.linalg.slogdet(gram(x, 2.0) + jnp.eye(n))[1]), (x,)
    if kind == "chain":
        a, b = _weights(random, n, n), _weights(random, n, n)
        return wrap(lambda a, b, x: jnp.tanh(a @ b @ a.T @ x) + jnp.einsum("ij,jk->ik", b, x)), (a, b, x)
    return wrap(lambda x: (lambda q: q @ (q.T @ x))(jnp.linalg.qr(x @ jnp.ones((d, 2)) + x[:, :2])[0])), (x,)


def graphs(ns: Frontend, random: Random) -> Made:
    """Messages along edges, ranks, distances."""
    jax, jnp, lax = ns.jax, ns.jnp, ns.lax
    nodes = random.choice([30, 300, 3000])
    edges, width = nodes * random.choice([3, 8]), random.choice([4, 32])
    sources, ends = _integers(random, nodes, edges), _integers(random, nodes, edges)
    act = _activation(ns, random)
    kind = random.choice(["messages", "training", "attention", "rank", "distances", "components"])
    features, weights = _array(random, nodes, width), [_weights(random, width, width) for _ in range(4)]

    def messages(w: Any, h: Any, sources: Any, ends: Any) -> Any:
        for a, b in (w[:2], w[2:]):
            h = act(h @ a + jax.ops.segment_sum((h @ b)[sources], ends, nodes))
        return h

    if kind == "messages":
        return messages, (weights, features, sources, ends)
    if kind == "training":
        return jax.grad(lambda w, *a: (messages(w, *a) ** 2).mean()), (weights, features, sources, ends)
    if kind == "attention":
        def attend(w: Any, h: Any, sources: Any, ends: Any) -> Any:
            scores = ((h @ w[0])[sources] * (h @ w[1])[ends]).sum(-1)
            scores = jnp.exp(scores - jax.ops.segment_max(scores, ends, nodes)[ends])
            share = scores / jax.ops.segment_sum(scores, ends, nodes)[ends]
            return jax.ops.segment_sum(share[:, None] * (h @ w[2])[sources], ends, nodes)
        return attend, (weights, features, sources, ends)
    if kind == "rank":
        def rank(sources: Any, ends: Any) -> Any:
            degree = jnp.maximum(jax.ops.segment_sum(jnp.ones(edges), sources, nodes), 1)
            turn = lambda _, r: 0.15 / nodes + 0.85 * jax.ops.segment_sum((r / degree)[sources], ends, nodes)
            return lax.fori_loop(0, 10, turn, jnp.full(nodes, 1 / nodes))
        return rank, (sources, ends)
    if kind == "distances":
        n = min(nodes, 100)
        shorten = lambda _, d: jnp.minimum(d, (d[:, :, None] + d[None]).min(1))
        return lambda d: lax.fori_loop(0, 3, shorten, d), (np.abs(_array(random, n, n)),)
    turn = lambda _, c: c.at[ends].min(c[sources]).at[sources].min(c[ends])
    return lambda c: lax.fori_loop(0, 10, turn, c), (np.arange(nodes, dtype=np.int32),)


def updates(ns: Frontend, random: Random) -> Made:
    """Arrays that loops write into, a part at a time."""
    jnp, lax = ns.jnp, ns.lax
    size = random.choice([50, 500, 5000])
    kind = random.choice(["element", "row", "slice", "scatter", "histogram", "sieve", "buffer", "swap"])
    turns = random.choice([20, 200])
    x, table = _array(random, size), _array(random, size, random.choice([3, 30]))
    i, j = _integers(random, size, turns), _integers(random, size, size)
    loop = lambda f, x: lax.fori_loop(0, turns, f, x)
    return {
        "element": (lambda x, i: loop(lambda t, x: x.at[i[t]].add(0.5 * x[0]), x), (x, i)),
        "row": (lambda x, i: loop(lambda t, x: x.at[i[t]].set(jnp.tanh(x[t % size])), x), (table, i)),
        "slice": (lambda x: loop(lambda t, x: lax.dynamic_update_slice(x, x[:5] * 1.01, (t % size,)), x), (x,)),
        "scatter": (lambda x, j: loop(lambda t, x: x.at[j].add(x) * 0.5, x), (x, j)),
        "histogram": (lambda j: loop(lambda t, h: h.at[j].add(1), jnp.zeros(size, jnp.int32)), (j,)),
        "sieve": (lambda x: loop(lambda t, s: jnp.where((jnp.arange(size) % (t + 2) == 0) & (jnp.arange(size) > t + 2),
                                                        False, s), x > -9), (x,)),
        "buffer": (lambda x: lax.scan(lambda s, t: ((s[0].at[s[1] % size].set(s[0].mean() + t), s[1] + 1), s[0][t]),
                                      (x, 0), jnp.arange(turns) % size), (x,)),
        "swap": (lambda x, i: loop(lambda t, x: x.at[jnp.array([0, 1])].set(x[jnp.array([1, 0])] + x[i[t]]), x), (x, i)),
    }[kind]


def tables(ns: Frontend, random: Random) -> Made:
    """Sorting, counting, filtering, signals, images."""
    jax, jnp = ns.jax, ns.jnp
    count = random.choice([200, 10_000, 300_000])
    x, y = _array(random, count), _array(random, count)
    k, image = _integers(random, 50, count), _array(random, *[random.choice([32, 128, 400])] * 2)
    window = np.hanning(9).astype(np.float32)
    return random.choice([
        (lambda x, y: x[jnp.argsort(y)], (x, y)),
        (lambda x, k: jax.ops.segment_sum(x, k, 50) / jnp.maximum(jnp.bincount(k, length=50), 1), (x, k)),
        (lambda x: jnp.histogram(x, 20)[0], (x,)),
        (lambda x: jnp.quantile(x, jnp.array([0.1, 0.5, 0.9])), (x,)),
        (lambda x: (x - jnp.cumsum(x) / (1 + jnp.arange(count))) / jnp.sqrt(jnp.cumsum(x * x) + 1), (x,)),
        (lambda x: jnp.convolve(x, window, mode="same"), (x,)),
        (lambda x: jnp.fft.irfft(jnp.fft.rfft(x) * (jnp.arange(count // 2 + 1) < 20), count), (x,)),
        (lambda x, y: jnp.corrcoef(x, y), (x, y)),
        (lambda x, y: jnp.interp(y, jnp.linspace(-3, 3, 50), jnp.sin(jnp.linspace(-3, 3, 50))), (x, y)),
        (lambda x: jnp.where(x > 0, x, 0)[::-1].cumsum()[::7], (x,)),
        (lambda x: jnp.unique(x.round(1), size=30), (x[:10_000],)),
        (lambda x, k: (x[:, None] * jax.nn.one_hot(k, 50)).sum(0), (x, k)),
        (lambda i: jax.scipy.signal.convolve2d(i, np.outer(window, window), mode="same"), (image,)),
        (lambda i: jax.image.resize(i, (i.shape[0] // 2, i.shape[1] // 2), "bilinear"), (image,)),
        (lambda i: jnp.hypot(i[1:, :-1] - i[:-1, :-1], i[:-1, 1:] - i[:-1, :-1]) > i.std(), (image,)),
        (lambda i: (i - i.min()) / (i.max() - i.min()) * 255, (image,)),
        (lambda i: jnp.rot90(jnp.flip(i, 0)) + i.T - i[::-1], (image,)),
        (lambda i: jnp.median(jnp.stack([jnp.roll(i, s) for s in range(-2, 3)]), 0), (image,)),
        (lambda x: jax.lax.top_k(x, 10), (x,)),
        (lambda x, y: jnp.searchsorted(jnp.sort(x[:5000]), y), (x, y)),
    ])


def expressions(ns: Frontend, random: Random) -> Made:
    """Random expressions over arrays of a few shapes, or the gradient of one."""
    jax, jnp = ns.jax, ns.jnp
    rows, columns = random.choice([4, 32, 400]), random.choice([3, 64, 1000])
    inputs = [_array(random, rows, columns), _array(random, rows, columns), _array(random, columns), _array(random, rows, 1)]
    unary: Sequence[Callable[[Any], Any]] = [
        jnp.sin, jnp.tanh, lambda x: jnp.exp(-x * x), lambda x: jnp.sqrt(jnp.abs(x) + 1e-3), lambda x: jnp.log1p(jnp.abs(x)),
        jax.nn.sigmoid, jnp.abs, lambda x: x * 0.5 + 1, lambda x: jnp.maximum(x, 0.1), lambda x: x ** 3 / 3,
        lambda x: x - x.mean(0, keepdims=True), lambda x: x / (1 + jnp.abs(x).max(-1, keepdims=True)),
        lambda x: jnp.cumsum(x, -1) / x.shape[-1], jax.nn.softmax, lambda x: x[::-1], lambda x: jnp.roll(x, 1, -1),
        lambda x: jnp.where(x > 0, x, 0.01 * x), lambda x: jnp.clip(x, -1, 1), lambda x: jnp.arctan2(x, 2.0),
        lambda x: jnp.pad(x[:, 1:], ((0, 0), (0, 1))), lambda x: jnp.concatenate([x[:, 1:], x[:, :1]], 1),
    ]
    binary: Sequence[Callable[[Any, Any], Any]] = [
        lambda a, b: a + b, lambda a, b: a * b, lambda a, b: a - b, lambda a, b: a / (1 + b * b), jnp.maximum, jnp.hypot,
        lambda a, b: jnp.where(a > b, a, -b), jnp.logaddexp, lambda a, b: a * b.sum(-1, keepdims=True) / b.size,
    ]
    steps = [(random.random() < 0.5, random.randrange(1000), random.randrange(1000), random.randrange(1000))
             for _ in range(random.choice([5, 15, 40]))]

    def f(*values: Any) -> Any:
        known = list(values)
        for is_unary, which, first, second in steps:
            a = jnp.broadcast_to(known[-1 - first % min(4, len(known))], (rows, columns))
            known.append(unary[which % len(unary)](a) if is_unary else
                         binary[which % len(binary)](a, known[second % len(known)]))
        return known[-1] + known[-2] * 0.1

    wrap = random.choice([lambda f: f, lambda f: jax.grad(lambda *v: f(*v).sum()), lambda f: lambda *v: f(*v).mean(0)])
    return wrap(f), tuple(inputs)


FAMILIES: dict[str, Maker] = {
    maker.__name__: maker for maker in (training, inference, derivatives, sampling, draws, solvers, simulation,
                                        linear_algebra, graphs, updates, tables, expressions)
}
# Families of later, and their first seeds: smaller ones give what they always did.
_ADDED: Sequence[tuple[int, Maker]] = [(40_000, random_lines.lines), (40_000, random_lines.fits), (50_000, random_rows.rows)]
