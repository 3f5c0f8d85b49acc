"""Realistic programs whose compile time, run time and memory say whether XLA was given a program that it compiles well.

Each is a maker `make(ns)` as in `benchmarks.programs`. The first part has many values with several readers (unrolled
loops, gradients), where XLA:CPU's loop fusion emits the same code many times; the second has large arrays or little
sharing, where the best that a compiler pass can do is nothing. Sizes are such that JAX compiles most in a few seconds.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.programs import Frontend, Made, Program, _normal, _sized, training_step


def _weights(*shape: int, seed: int) -> np.ndarray:
    """Normal weights that keep the size of activations; the last axis but one is summed over."""
    return _normal(*shape, seed=seed) / np.float32(np.sqrt(shape[-2]))


def _uniform(*shape: int, low: float = 0.0, high: float = 1.0, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(low, high, shape).astype(np.float32)


# --- training steps ---------------------------------------------------------------------------------------------------


def mlp_step(ns: Frontend, batch: int, widths: tuple[int, ...]) -> Made:
    """Classifier with GELU, gradient, momentum."""
    jax, jnp = ns.jax, ns.jnp

    def loss(params, x, labels):
        for weights, shift in params[:-1]:
            x = jax.nn.gelu(x @ weights + shift)
        scores = jax.nn.log_softmax(x @ params[-1][0] + params[-1][1])
        return -jnp.mean(jnp.sum(jax.nn.one_hot(labels, widths[-1]) * scores, axis=-1))

    def f(params, momentum, x, labels):
        value, gradients = jax.value_and_grad(loss)(params, x, labels)
        momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, gradients)
        return value, jax.tree.map(lambda p, m: p - 0.1 * m, params, momentum), momentum

    pairs = enumerate(zip(widths[:-1], widths[1:], strict=True))
    params = [(_weights(n, m, seed=i), np.zeros(m, np.float32)) for i, (n, m) in pairs]
    momentum = [(np.zeros_like(w), np.zeros_like(b)) for w, b in params]
    return f, (params, momentum, _normal(batch, widths[0], seed=9), np.arange(batch, dtype=np.int32) % widths[-1])


def cnn_step(ns: Frontend, batch: int, channels: tuple[int, ...]) -> Made:
    """Residual convolutions with batch norm, running averages, gradient, plain descent."""
    jax, jnp, lax = ns.jax, ns.jnp, ns.lax

    def convolve(x, kernel, stride=1):
        return lax.conv_general_dilated(x, kernel, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def normalise(p, running, x):
        mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
        running = {"mean": 0.9 * running["mean"] + 0.1 * mean, "variance": 0.9 * running["variance"] + 0.1 * variance}
        return (x - mean) / jnp.sqrt(variance + 1e-5) * p["scale"] + p["shift"], running

    def loss(params, running, x, labels):
        renewed = []
        for p, old in zip(params["blocks"], running, strict=True):
            h, new = normalise(p, old, convolve(x, p["first"], 2))
            x = convolve(x, p["skip"], 2) + convolve(jax.nn.relu(h), p["second"])
            x = jax.nn.swish(x)
            renewed.append(new)
        scores = jax.nn.log_softmax(x.mean((1, 2)) @ params["out"])
        return -jnp.mean(jnp.take_along_axis(scores, labels[:, None], axis=-1)), renewed

    def f(params, running, x, labels):
        (value, running), gradients = jax.value_and_grad(loss, has_aux=True)(params, running, x, labels)
        return value, jax.tree.map(lambda p, g: p - 0.01 * g, params, gradients), running

    blocks, running = [], []
    for i, (n, m) in enumerate(zip((3, *channels[:-1]), channels, strict=True)):
        kernels = {"first": _normal(3, 3, n, m, seed=i), "second": _normal(3, 3, m, m, seed=i + 10)}
        kernels = {name: kernel / np.float32(3 * np.sqrt(kernel.shape[2])) for name, kernel in kernels.items()}
        skip = {"skip": _weights(1, 1, n, m, seed=i + 20)}
        blocks.append(kernels | skip | {"scale": np.ones(m, np.float32), "shift": np.zeros(m, np.float32)})
        running.append({"mean": np.zeros(m, np.float32), "variance": np.ones(m, np.float32)})
    params = {"blocks": blocks, "out": _weights(channels[-1], 10, seed=30)}
    return f, (params, running, _normal(batch, 32, 32, 3), np.arange(batch, dtype=np.int32) % 10)


def per_example_gradients(ns: Frontend, batch: int) -> Made:
    """Clipped gradients of every example by themselves, as in private learning: vmap of grad."""
    jax, jnp = ns.jax, ns.jnp

    def loss(params, x, y):
        h = jnp.tanh(x @ params["w1"] + params["b1"])
        h = jnp.tanh(h @ params["w2"] + params["b2"]) + h
        return (h @ params["w3"] - y) ** 2

    def f(params, xs, ys):
        gradients = jax.vmap(jax.grad(loss), in_axes=(None, 0, 0))(params, xs, ys)
        square = sum(jnp.sum(g.reshape(batch, -1) ** 2, axis=1) for g in jax.tree.leaves(gradients))
        clip = jnp.minimum(1.0, 1.0 / jnp.sqrt(square))
        return jax.tree.map(lambda g: jnp.tensordot(clip, g, 1) / batch, gradients)

    params = {"w1": _weights(16, 32, seed=1), "b1": _normal(32), "w2": _weights(32, 32, seed=2), "b2": _normal(32, seed=3)}
    return f, (params | {"w3": _normal(32, seed=4)}, _normal(batch, 16, seed=5), _normal(batch, seed=6))


def recurrent(ns: Frontend, cell: str, steps: int, unrolled: bool, batch: int = 8, width: int = 32) -> Made:
    """Gradient of a recurrent network over a sequence, in a scan or unrolled."""
    jax, jnp, lax = ns.jax, ns.jnp, ns.lax

    def lstm(p, state, x):
        h, c = state
        i, f, g, o = jnp.split(x @ p["x"] + h @ p["h"] + p["b"], 4, axis=-1)
        c = jax.nn.sigmoid(f + 1.0) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        return (jax.nn.sigmoid(o) * jnp.tanh(c), c), None

    def gru(p, state, x):
        h, c = state
        from_x, from_h = x @ p["x"] + p["b"], h @ p["h"]
        xr, xz, xn = jnp.split(from_x[:, : 3 * width], 3, axis=-1)
        hr, hz, hn = jnp.split(from_h[:, : 3 * width], 3, axis=-1)
        r, z = jax.nn.sigmoid(xr + hr), jax.nn.sigmoid(xz + hz)
        n = jnp.tanh(xn + r * hn)
        return ((1 - z) * n + z * h, c), None

    one = {"lstm": lstm, "gru": gru}[cell]

    def loss(p, xs, target):
        state = jnp.zeros((batch, width)), jnp.zeros((batch, width))
        if unrolled:
            for i in range(steps):
                state, _ = one(p, state, xs[i])
        else:
            state, _ = lax.scan(lambda state, x: one(p, state, x), state, xs)
        return jnp.mean((state[0] @ p["out"] - target) ** 2)

    params = {"x": _weights(16, 4 * width, seed=1), "h": _weights(width, 4 * width, seed=2), "b": _normal(4 * width)}
    params["out"] = _weights(width, 1, seed=3)
    return jax.value_and_grad(loss), (params, _normal(steps, batch, 16), _normal(batch, 1))


# --- differential equations and physics -------------------------------------------------------------------------------


def _rk4(field: Any, y: Any, h: float) -> Any:
    k1 = field(y)
    k2 = field(y + 0.5 * h * k1)
    k3 = field(y + 0.5 * h * k2)
    k4 = field(y + h * k3)
    return y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def pendulum_gradient(ns: Frontend, steps: int, size: int) -> Made:
    """Fit the damping and stiffness of many pendulums: gradient through unrolled RK4."""
    jax, jnp = ns.jax, ns.jnp

    def loss(p, y, target):
        for _ in range(steps):
            y = _rk4(lambda y: jnp.stack([y[1], -p[0] * jnp.sin(y[0]) - p[1] * y[1]]), y, 0.1)
        return jnp.mean((y - target) ** 2)

    return jax.value_and_grad(loss), (np.array([2.0, 0.1], np.float32), _normal(2, size), _normal(2, size, seed=1))


def springs_gradient(ns: Frontend, steps: int, size: int) -> Made:
    """Gradient of unrolled symplectic steps of a chain of springs with cubic force."""
    jax, jnp = ns.jax, ns.jnp

    def force(x, stiffness):
        stretch = jnp.diff(jnp.pad(x, 1))
        pull = stiffness * (stretch + 0.1 * stretch**3)
        return pull[1:] - pull[:-1]

    def loss(stiffness, x, v):
        for _ in range(steps):
            v = v + 0.05 * force(x, stiffness)
            x = x + 0.05 * v
        return jnp.sum(x**2) + jnp.sum(v**2)

    return jax.value_and_grad(loss), (np.float32(1.5), _normal(size), _normal(size, seed=1))


def lotka_volterra(ns: Frontend, steps: int, size: int) -> Made:
    """Unrolled RK4 without a gradient."""
    jnp = ns.jnp

    def f(a, b):
        def field(y):
            prey, hunters = y
            return jnp.stack([1.1 * prey - 0.4 * prey * hunters, 0.1 * prey * hunters - 0.4 * hunters])

        y = jnp.stack([a, b])
        for _ in range(steps):
            y = _rk4(field, y, 0.05)
        return y

    return f, (_uniform(size, low=5, high=10), _uniform(size, low=2, high=5, seed=1))


def lorenz_scan(ns: Frontend, steps: int, size: int) -> Made:
    """RK4 of the Lorenz system in the body of a scan."""
    jnp, lax = ns.jnp, ns.lax

    def field(s):
        x, y, z = s
        return jnp.stack([10.0 * (y - x), x * (28.0 - z) - y, x * y - 8.0 / 3.0 * z])

    return lambda s: lax.scan(lambda s, _: (_rk4(field, s, 0.002), s[0].mean()), s, None, steps), (_normal(3, size),)


def neural_ode(ns: Frontend, steps: int) -> Made:
    """Gradient through RK4 of a small network, in a scan."""
    jax, jnp, lax = ns.jax, ns.jnp, ns.lax

    def loss(p, y, target):
        def step(y, _):
            return _rk4(lambda y: jnp.tanh(y @ p["w1"] + p["b1"]) @ p["w2"] - 0.1 * y, y, 0.1), None

        y, _ = lax.scan(step, y, None, steps)
        return jnp.mean((y - target) ** 2)

    params = {"w1": _weights(4, 64, seed=1), "b1": _normal(64), "w2": _weights(64, 4, seed=2)}
    return jax.value_and_grad(loss), (params, _normal(64, 4), _normal(64, 4, seed=3))


def n_body(ns: Frontend, bodies: int, steps: int) -> Made:
    """Leapfrog with forces between all pairs, in a loop."""
    jnp, lax = ns.jnp, ns.lax

    def acceleration(x, mass):
        apart = x[None] - x[:, None]
        square = jnp.sum(apart**2, axis=-1) + 0.1
        return jnp.sum(apart * (mass * square**-1.5)[..., None], axis=1)

    def f(x, v, mass):
        def step(_, state):
            x, v = state
            v = v + 0.005 * acceleration(x, mass)
            x = x + 0.01 * v
            return x, v + 0.005 * acceleration(x, mass)

        return lax.fori_loop(0, steps, step, (x, v))

    return f, (_normal(bodies, 3), _normal(bodies, 3, seed=1) * 0.1, _uniform(bodies, high=0.1))


def n_body_gradient(ns: Frontend, bodies: int, steps: int) -> Made:
    """Gradient of the final energy with respect to the initial state, steps unrolled."""
    jax, jnp = ns.jax, ns.jnp
    off = 1.0 - np.eye(bodies, dtype=np.float32)

    def potential(x):
        apart = x[None] - x[:, None]
        return -0.05 * jnp.sum(off / jnp.sqrt(jnp.sum(apart**2, axis=-1) + 0.1))

    def energy(x, v):
        for _ in range(steps):
            v = v - 0.01 * jax.grad(potential)(x)
            x = x + 0.01 * v
        return potential(x) + 0.5 * jnp.sum(v**2)

    return jax.value_and_grad(energy, argnums=(0, 1)), (_normal(bodies, 3), _normal(bodies, 3, seed=1))


def heat_gradient(ns: Frontend, steps: int, size: int) -> Made:
    """Find the conductivity of a plate: gradient through the steps of an explicit stencil, unrolled."""
    jax, jnp = ns.jax, ns.jnp

    def loss(conductivity, u, target):
        for _ in range(steps):
            p = jnp.pad(u, 1, mode="edge")
            around = p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - 4 * u
            u = u + 0.2 * conductivity * around
        return jnp.mean((u - target) ** 2)

    arguments = _uniform(size, size, low=0.5), _normal(size, size), _normal(size, size, seed=1)
    return jax.value_and_grad(loss), arguments


def wave(ns: Frontend, steps: int, size: int) -> Made:
    """Wave equation with a sponge at the rim; periodic differences by rolling; a loop."""
    jnp, lax = ns.jnp, ns.lax

    def f(u, speed):
        rim = jnp.minimum(jnp.arange(size), size - 1 - jnp.arange(size)) / 16.0
        damping = jnp.minimum(1.0, jnp.minimum(rim[:, None], rim[None]))

        def step(_, state):
            u, before = state
            around = jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) + jnp.roll(u, 1, 1) + jnp.roll(u, -1, 1) - 4 * u
            after = (2 * u - before + 0.1 * speed**2 * around) * (0.9 + 0.1 * damping)
            return after, u

        return lax.fori_loop(0, steps, step, (u, u))

    return f, (_normal(size, size), _uniform(size, size, low=0.5))


def shallow_water(ns: Frontend, steps: int, size: int) -> Made:
    """Lax-Friedrichs steps of the shallow water equations, unrolled."""
    jnp = ns.jnp

    def f(h, u, v):
        def shifted(q, axis):
            return jnp.roll(q, -1, axis), jnp.roll(q, 1, axis)

        def advance(q, flow_x, flow_y):
            (right, left), (up, down) = shifted(q, 0), shifted(q, 1)
            (fr, fl), (fu, fd) = shifted(flow_x, 0), shifted(flow_y, 1)
            return 0.25 * (right + left + up + down) - 0.01 * (fr - fl + fu - fd)

        for _ in range(steps):
            pressure = 0.5 * 9.8 * h * h
            hu, hv = h * u, h * v
            h, hu, hv = (advance(h, hu, hv), advance(hu, hu * u + pressure, hu * v),
                         advance(hv, hv * u, hv * v + pressure))  # fmt: skip
            u, v = hu / h, hv / h
        return h, u, v

    return f, (1 + _uniform(size, size, high=0.1), _normal(size, size, seed=1) * 0.1, _normal(size, size, seed=2) * 0.1)


def cart_pole(ns: Frontend, steps: int) -> Made:
    """Scalar code in a scan: RK4 of a cart with a pole under a linear policy."""
    jnp, lax = ns.jnp, ns.lax

    def f(state, gains):
        def field(s):
            _, speed, angle, spin = s
            push = 10.0 * jnp.tanh(jnp.dot(gains, jnp.stack(s)))
            sin, cos = jnp.sin(angle), jnp.cos(angle)
            common = (push + 0.05 * spin**2 * sin) / 1.1
            turn = (9.8 * sin - cos * common) / (0.5 * (4.0 / 3.0 - 0.1 * cos**2 / 1.1))
            return speed, common - 0.05 * turn * cos / 1.1, spin, turn

        def step(s, _):
            moved = lambda k, h: tuple(a + h * b for a, b in zip(s, k, strict=True))
            k1 = field(s)
            k2 = field(moved(k1, 0.01))
            k3 = field(moved(k2, 0.01))
            k4 = field(moved(k3, 0.02))
            s = tuple(x + 0.02 / 6 * (a + 2 * b + 2 * c + d) for x, a, b, c, d in zip(s, k1, k2, k3, k4, strict=True))
            return s, s[2] ** 2 + 0.1 * s[0] ** 2

        end, costs = lax.scan(step, tuple(state), None, steps)
        return end, costs.sum()

    return f, (np.array([0.0, 0.0, 0.1, 0.0], np.float32), np.array([0.5, 0.8, 5.0, 1.0], np.float32))


# --- linear algebra, estimation, finance ------------------------------------------------------------------------------


def gauss_elimination(ns: Frontend, size: int) -> Made:
    """Solve by elimination, unrolled over the rows of many small systems."""

    def f(a, b):
        for i in range(size):
            row, value = a[:, i] / a[:, i, i, None], b[:, i] / a[:, i, i]
            factor = a[:, :, i].at[:, i].set(0.0)
            a = (a - factor[..., None] * row[:, None]).at[:, i].set(row)
            b = (b - factor * value[:, None]).at[:, i].set(value)
        return b

    return f, (_normal(64, size, size) + 4 * np.eye(size, dtype=np.float32), _normal(64, size))


def gaussian_process(ns: Frontend, points: int) -> Made:
    """Gradient of a log likelihood through a Cholesky factorisation."""
    jax, jnp, lax = ns.jax, ns.jnp, ns.lax

    def negative_likelihood(p, x, y):
        square = jnp.sum((x[:, None] - x[None]) ** 2 / jnp.exp(2 * p["scales"]), axis=-1)
        smooth = jnp.exp(p["gain"] - 0.5 * square)
        rough = (1.0 + jnp.sqrt(3.0 * square + 1e-6)) * jnp.exp(-jnp.sqrt(3.0 * square + 1e-6))
        factor = jnp.linalg.cholesky(smooth + rough + (jnp.exp(p["noise"]) + 1e-4) * jnp.eye(points))
        whitened = lax.linalg.triangular_solve(factor, y[:, None], left_side=True, lower=True)
        return 0.5 * jnp.sum(whitened**2) + jnp.sum(jnp.log(jnp.diag(factor)))

    params = {"scales": np.zeros(3, np.float32), "gain": np.float32(0.1), "noise": np.float32(-1.0)}
    return jax.value_and_grad(negative_likelihood), (params, _normal(points, 3), _normal(points, seed=1))


def kalman_filter(ns: Frontend, steps: int) -> Made:
    """Filter and log likelihood of a linear system with two sensors, in a scan; the small inverse is written out."""
    jnp, lax = ns.jnp, ns.lax

    def f(dynamics, sensors, observations):
        def step(state, y):
            mean, cov = state
            mean, cov = dynamics @ mean, dynamics @ cov @ dynamics.T + 0.01 * jnp.eye(4)
            surprise, spread = y - sensors @ mean, sensors @ cov @ sensors.T + 0.1 * jnp.eye(2)
            (a, b), (c, d) = spread
            determinant = a * d - b * c
            inverse = jnp.stack([jnp.stack([d, -b]), jnp.stack([-c, a])]) / determinant
            gain = cov @ sensors.T @ inverse
            likelihood = -0.5 * (surprise @ inverse @ surprise + jnp.log(determinant))
            return (mean + gain @ surprise, cov - gain @ sensors @ cov), likelihood

        state, likelihoods = lax.scan(step, (jnp.zeros(4), jnp.eye(4)), observations)
        return state, likelihoods.sum()

    dynamics = np.eye(4, dtype=np.float32) + np.float32(0.1) * np.eye(4, k=2, dtype=np.float32)
    return f, (0.99 * dynamics, np.eye(2, 4, dtype=np.float32), _normal(steps, 2))


def black_scholes(ns: Frontend, size: int) -> Made:
    """Prices of options and their sensitivities to all inputs."""
    jax, jnp, lax = ns.jax, ns.jnp, ns.lax

    def price(spot, strike, time, rate, volatility):
        spread = volatility * jnp.sqrt(time)
        d1 = (jnp.log(spot / strike) + (rate + 0.5 * volatility**2) * time) / spread
        cumulative = lambda x: 0.5 * (1.0 + lax.erf(x / np.float32(np.sqrt(2))))
        return spot * cumulative(d1) - strike * jnp.exp(-rate * time) * cumulative(d1 - spread)

    def f(*inputs):
        value, pull = jax.vjp(price, *inputs)
        return value, pull(jnp.ones_like(value))

    ranges = [(80, 120), (80, 120), (0.1, 2), (0.01, 0.05), (0.1, 0.5)]
    return f, tuple(_uniform(size, low=low, high=high, seed=i) for i, (low, high) in enumerate(ranges))


def monte_carlo(ns: Frontend, paths: int, steps: int) -> Made:
    """Price of an Asian option with a barrier, and its slope: random paths, a scan, a gradient."""
    jax, jnp, lax = ns.jax, ns.jnp, ns.lax

    def price(spot, volatility, seed):
        noise = jax.random.normal(jax.random.PRNGKey(seed), (steps, paths))
        drift = (0.02 - 0.5 * volatility**2) / steps

        def step(state, z):
            value, total, alive = state
            value = value * jnp.exp(drift + volatility * jnp.sqrt(1.0 / steps) * z)
            return (value, total + value, jnp.where(value < 150.0, alive, 0.0)), None

        start = jnp.full(paths, spot), jnp.zeros(paths), jnp.ones(paths)
        (_, total, alive), _ = lax.scan(step, start, noise)
        return jnp.mean(alive * jnp.maximum(total / steps - 100.0, 0.0))

    return jax.value_and_grad(price, argnums=(0, 1)), (np.float32(100.0), np.float32(0.2), np.int32(0))


def k_means(ns: Frontend, points: int, clusters: int) -> Made:
    """Lloyd's steps: distances of all pairs, argmin, averages by one-hot product."""
    jax, jnp, lax = ns.jax, ns.jnp, ns.lax

    def f(x, centres):
        def step(_, centres):
            square = jnp.sum((x[:, None] - centres[None]) ** 2, axis=-1)
            member = jax.nn.one_hot(jnp.argmin(square, axis=1), clusters)
            return (member.T @ x) / jnp.maximum(member.sum(0), 1.0)[:, None]

        return lax.fori_loop(0, 5, step, centres)

    return f, (_normal(points, 8), _normal(clusters, 8, seed=1))


def kernel_distances(ns: Frontend, points: int) -> Made:
    """Several kernels of one matrix of distances, as in kernel methods and two-sample tests."""
    jnp = ns.jnp

    def f(x, y):
        square = jnp.sum(x**2, 1)[:, None] + jnp.sum(y**2, 1)[None] - 2 * x @ y.T
        square = jnp.maximum(square, 0.0)
        kernels = [jnp.exp(-square / (2 * s * s)) for s in (0.5, 1.0, 2.0, 4.0)]
        mixed = sum(kernels) / 4 + 1.0 / (1.0 + square)
        return mixed.mean(), jnp.sqrt(square).min(axis=1), mixed / mixed.sum(axis=1, keepdims=True)

    return f, (_normal(points, 16), _normal(points, 16, seed=1))


def small_hessian(ns: Frontend, size: int) -> Made:
    """Hessian of a Rosenbrock function with a logistic term, and a damped Newton step."""
    jax, jnp = ns.jax, ns.jnp

    def valley(x):
        return jnp.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2) + jnp.sum(jnp.log1p(jnp.exp(x)))

    return lambda x: (jax.grad(valley)(x), jax.hessian(valley)(x)), (_normal(size) * 0.5,)


def newton_loops(ns: Frontend, size: int) -> Made:
    """Kepler's equation and implied roots: while loops that stop on convergence."""
    jnp, lax = ns.jnp, ns.lax

    def solve(residual, slope, x):
        def step(state):
            count, x, _ = state
            change = residual(x) / slope(x)
            return count + 1, x - change, jnp.max(jnp.abs(change))

        return lax.while_loop(lambda s: (s[0] < 50) & (s[2] > 1e-5), step, (0, x, jnp.float32(1.0)))[1]

    def f(anomaly, eccentricity):
        angle = solve(lambda e: e - eccentricity * jnp.sin(e) - anomaly, lambda e: 1 - eccentricity * jnp.cos(e), anomaly)
        root = solve(lambda x: x**3 + x - angle, lambda x: 3 * x**2 + 1, angle)
        return angle, root, solve(lambda x: jnp.exp(x) + x - root, lambda x: jnp.exp(x) + 1, root)

    return f, (_uniform(size, high=3.0), _uniform(size, high=0.8, seed=1))


def fft_polynomials(ns: Frontend, count: int, size: int) -> Made:
    """Products of many polynomials, by transforms, and their values and norms."""
    jnp = ns.jnp

    def f(a, b):
        transform = lambda p: jnp.fft.rfft(p, 2 * size)
        product = jnp.fft.irfft(transform(a) * transform(b) * transform(a + b), 2 * size)
        spectrum = jnp.abs(transform(a)) ** 2 + jnp.abs(transform(b)) ** 2
        return product / jnp.sqrt(jnp.sum(product**2, axis=-1, keepdims=True)), jnp.log(spectrum + 1e-3).mean(axis=-1)

    return f, (_normal(count, size), _normal(count, size, seed=1))


def random_sampling(ns: Frontend, size: int) -> Made:
    """Samples of several distributions from split keys."""
    jax, jnp = ns.jax, ns.jnp

    def f(seed, scores):
        keys = jax.random.split(jax.random.PRNGKey(seed), 5)
        chosen = jax.random.categorical(keys[0], scores, axis=-1)
        jitter = jax.random.normal(keys[1], (size,)) * jax.random.exponential(keys[2], (size,))
        flips = jax.random.bernoulli(keys[3], 0.3, (size,))
        return chosen, jnp.where(flips, jitter, jax.random.uniform(keys[4], (size,)))

    return f, (np.int32(3), _normal(size // 16, 32))


# --- large arrays -----------------------------------------------------------------------------------------------------


def chain(ns: Frontend, elements: int) -> Made:
    """A few elementwise steps over large arrays; values are used again."""
    jnp = ns.jnp

    def f(x, y):
        z = x * y + 0.5
        w = jnp.maximum(z, x) - 0.1 * z
        v = w * w + y
        return v * w - z

    return f, (_normal(elements), _normal(elements, seed=1))


def chain_with_functions(ns: Frontend, elements: int) -> Made:
    """The same with functions that cost something, and two results."""
    jnp = ns.jnp

    def f(x, y):
        z = jnp.tanh(x) * y
        w = jnp.exp(-z * z)
        v = jnp.where(x > 0, w * z, 0.1 * w)
        return v + jnp.sin(y) * z, jnp.sqrt(w + v * v)

    return f, (_normal(elements), _normal(elements, seed=1))


def chain_gradient(ns: Frontend, elements: int, steps: int) -> Made:
    """Gradient of a chain of elementwise steps over large arrays."""
    jax, jnp = ns.jax, ns.jnp

    def loss(x, y):
        for i in range(steps):
            x = jnp.tanh(x * y + 0.1 * i) + x
            y = y * jnp.cos(x)
        return jnp.mean(x * y)

    return jax.value_and_grad(loss, argnums=(0, 1)), (_normal(elements), _normal(elements, seed=1))


def layer_norms(ns: Frontend, rows: int, width: int, blocks: int) -> Made:
    """Layer norms and softmaxes one after another."""
    jax, jnp = ns.jax, ns.jnp

    def f(x, scale, shift):
        for _ in range(blocks):
            mean = x.mean(-1, keepdims=True)
            x = x + scale * (x - mean) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5) + shift
            x = x + jax.nn.softmax(x, axis=-1)
        return x

    return f, (_normal(rows, width), _normal(width), _normal(width, seed=1))


def attention_gradient(ns: Frontend, heads: int, length: int, width: int) -> Made:
    """Gradient of causal attention with a large matrix of scores."""
    jax, jnp = ns.jax, ns.jnp

    def loss(q, k, v):
        scores = jnp.einsum("hqd,hkd->hqk", q, k) / np.float32(np.sqrt(width))
        mask = jnp.arange(length)[:, None] >= jnp.arange(length)[None]
        weights = jax.nn.softmax(jnp.where(mask, scores, -1e9), axis=-1)
        return jnp.mean(jnp.einsum("hqk,hkd->hqd", weights, v) ** 2)

    return jax.value_and_grad(loss, argnums=(0, 1, 2)), tuple(_normal(heads, length, width, seed=i) for i in range(3))


def mixture(ns: Frontend, points: int, parts: int) -> Made:
    """One EM step of a mixture of Gaussians with diagonal covariances."""
    jax, jnp = ns.jax, ns.jnp

    def f(x, mean, log_scale, log_weight):
        z = (x[:, None] - mean) * jnp.exp(-log_scale)
        scores = jax.nn.log_softmax(log_weight) - 0.5 * jnp.sum(z**2, -1) - jnp.sum(log_scale, -1)
        total = jnp.log(jnp.sum(jnp.exp(scores - scores.max(-1, keepdims=True)), -1)) + scores.max(-1)
        share = jnp.exp(scores - total[:, None])
        count = share.sum(0)[:, None]
        mean = share.T @ x / count
        variance = share.T @ x**2 / count - mean**2
        return total.mean(), mean, 0.5 * jnp.log(variance + 1e-3), jnp.log(count[:, 0])

    return f, (_normal(points, 4), _normal(parts, 4, seed=1), np.zeros((parts, 4), np.float32), np.zeros(parts, np.float32))


def corner_detector(ns: Frontend, size: int) -> Made:
    """Harris corners: gradients of an image, blurs by shifted sums, a response, its local maxima."""
    jnp = ns.jnp

    def f(image):
        dx, dy = jnp.gradient(image)

        def blur(q):
            for axis in (0, 1):
                q = 0.5 * q + 0.25 * (jnp.roll(q, 1, axis) + jnp.roll(q, -1, axis))
            return q

        xx, yy, xy = blur(dx * dx), blur(dy * dy), blur(dx * dy)
        response = xx * yy - xy**2 - 0.05 * (xx + yy) ** 2
        peak = response
        for axis in (0, 1):
            peak = jnp.maximum(peak, jnp.maximum(jnp.roll(peak, 1, axis), jnp.roll(peak, -1, axis)))
        return jnp.where(response == peak, response, 0.0)

    return f, (_normal(size, size),)


def mandelbrot(ns: Frontend, size: int, steps: int) -> Made:
    """Escape times with the iteration unrolled: real arithmetic, each value used several times."""
    jnp = ns.jnp

    def f(a, b):
        x, y, count = a, b, jnp.zeros(a.shape)
        for _ in range(steps):
            x, y = x * x - y * y + a, 2.0 * x * y + b
            inside = x * x + y * y < 4.0
            x, y = jnp.where(inside, x, 2.0), jnp.where(inside, y, 2.0)
            count = count + inside
        return count

    return f, (_uniform(size, size, low=-2, high=1), _uniform(size, size, low=-1, seed=1))


LATENCY: dict[str, Program] = {
    "transformer step, 2 layers": _sized(training_step, layers=2),
    "transformer step, 6 layers": _sized(training_step, layers=6),
    "transformer step, 12 layers": _sized(training_step, layers=12),
    "transformer step, 24 layers": _sized(training_step, layers=24),
    "transformer step, medium": _sized(training_step, layers=4, length=128, width=256),
    "MLP step": _sized(mlp_step, batch=128, widths=(784, 256, 256, 10)),
    "CNN step, batch norm": _sized(cnn_step, batch=8, channels=(16, 32, 64)),
    "per-example gradients": _sized(per_example_gradients, batch=64),
    "LSTM gradient, scanned": _sized(recurrent, cell="lstm", steps=32, unrolled=False),
    "LSTM gradient, unrolled": _sized(recurrent, cell="lstm", steps=12, unrolled=True),
    "GRU gradient, scanned": _sized(recurrent, cell="gru", steps=32, unrolled=False),
    "GRU gradient, unrolled": _sized(recurrent, cell="gru", steps=12, unrolled=True),
    "RK4 gradient, 5 steps": _sized(pendulum_gradient, steps=5, size=16),
    "springs gradient, 20 steps": _sized(springs_gradient, steps=20, size=64),
    "RK4 forward, 20 steps": _sized(lotka_volterra, steps=20, size=1024),
    "RK4 in scan, Lorenz": _sized(lorenz_scan, steps=200, size=1024),
    "neural ODE gradient": _sized(neural_ode, steps=20),
    "n-body loop": _sized(n_body, bodies=128, steps=20),
    "n-body gradient, unrolled": _sized(n_body_gradient, bodies=32, steps=4),
    "heat gradient, unrolled": _sized(heat_gradient, steps=6, size=256),
    "wave loop": _sized(wave, steps=20, size=512),
    "shallow water, unrolled": _sized(shallow_water, steps=4, size=256),
    "cart-pole": _sized(cart_pole, steps=500),
    "Gauss elimination, unrolled": _sized(gauss_elimination, size=8),
    "Gaussian process gradient": _sized(gaussian_process, points=128),
    "Kalman filter": _sized(kalman_filter, steps=200),
    "Black-Scholes gradient": _sized(black_scholes, size=500_000),
    "Monte Carlo gradient": _sized(monte_carlo, paths=10_000, steps=32),
    "k-means": _sized(k_means, points=4096, clusters=16),
    "kernel distances": _sized(kernel_distances, points=1024),
    "hessian": _sized(small_hessian, size=16),
    "Newton loops": _sized(newton_loops, size=10_000),
    "FFT polynomials": _sized(fft_polynomials, count=64, size=512),
    "random sampling": _sized(random_sampling, size=65_536),
    "chain 8 MB": _sized(chain, elements=2_000_000),
    "chain of functions 16 MB": _sized(chain_with_functions, elements=4_000_000),
    "chain gradient 16 MB": _sized(chain_gradient, elements=4_000_000, steps=3),
    "layer norms and softmaxes": _sized(layer_norms, rows=512, width=512, blocks=4),
    "attention gradient": _sized(attention_gradient, heads=8, length=256, width=32),
    "mixture of Gaussians": _sized(mixture, points=16_384, parts=16),
    "corner detector": _sized(corner_detector, size=512),
    "Mandelbrot, unrolled": _sized(mandelbrot, size=256, steps=10),
}

# Compiled with barriers alone: without them, in JAX too, it takes a minute to more than anybody would wait.
OURS_ALONE: dict[str, Program] = {
    "transformer step, 48 layers": _sized(training_step, layers=48),
    **{f"RK4 gradient, {steps} steps": _sized(pendulum_gradient, steps=steps, size=16) for steps in (20, 50, 100)},
}

# What `--quick` measures, without the configuration that has no barriers.
QUICK = (
    "transformer step, 12 layers", "RK4 gradient, 5 steps", "RK4 gradient, 20 steps", "RK4 gradient, 100 steps",
    "springs gradient, 20 steps", "RK4 forward, 20 steps",
)  # fmt: skip
