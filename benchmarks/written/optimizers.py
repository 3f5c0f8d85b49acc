"""Rules of training: optimizers, private and federated learning, learning to learn, weights with distributions."""

from __future__ import annotations

from benchmarks.written.kinds import KEY, integers, program, uniform


def network_loss(jax, jnp, p, x, y):
    """Of a classifier with one hidden layer."""
    h = jnp.tanh(x @ p["w1"] * 0.2 + p["b1"])
    log_p = jax.nn.log_softmax(h @ p["w2"] * 0.2)
    return -jnp.take_along_axis(log_p, y[:, None], 1).mean()


@program((64, 32), (32, 48), (48,), (48, 10), integers(64, high=10))
def lion(jax, jnp, x, w1, b1, w2, y):
    """Ten steps of signs of momentum, with decay."""

    def step(state, _):
        p, m = state
        value, g = jax.value_and_grad(lambda p: network_loss(jax, jnp, p, x, y))(p)
        p = jax.tree.map(lambda p, m, g: p - 1e-3 * (jnp.sign(0.9 * m + 0.1 * g) + 0.01 * p), p, m, g)
        return (p, jax.tree.map(lambda m, g: 0.99 * m + 0.01 * g, m, g)), value

    p = {"w1": w1, "b1": b1, "w2": w2}
    return jax.lax.scan(step, (p, jax.tree.map(jnp.zeros_like, p)), None, length=10)


@program((64, 32), (32, 48), (48,), (48, 10), integers(64, high=10))
def adafactor(jax, jnp, x, w1, b1, w2, y):
    """Second moments of matrices as products of rows and columns; updates are clipped."""
    p = {"w1": w1, "b1": b1, "w2": w2}
    value, g = jax.value_and_grad(lambda p: network_loss(jax, jnp, p, x, y))(p)

    def update(p, g):
        s = g**2 + 1e-30
        if p.ndim == 2:
            rows, columns = s.mean(1), s.mean(0)
            s = rows[:, None] * columns / rows.mean()
        u = g * jax.lax.rsqrt(s)
        u = u / jnp.maximum(1.0, jnp.sqrt((u**2).mean()))
        return p - 1e-2 * jnp.maximum(1e-3, jnp.sqrt((p**2).mean())) * u

    return value, jax.tree.map(update, p, g)


@program((64, 32), (32, 24), (24,), (24, 10), integers(64, high=10))
def shampoo(jax, jnp, x, w1, b1, w2, y):
    """Each matrix of gradients between inverse fourth roots of its statistics."""
    p = {"w1": w1, "b1": b1, "w2": w2}
    value, g = jax.value_and_grad(lambda p: network_loss(jax, jnp, p, x, y))(p)

    def root(m):
        e, v = jnp.linalg.eigh(m + 1e-4 * jnp.eye(m.shape[0]))
        return v * e**-0.25 @ v.T

    def update(p, g):
        return p - 0.01 * (root(g @ g.T) @ g @ root(g.T @ g) if p.ndim == 2 else g)

    return value, jax.tree.map(update, p, g)


@program((64, 32), (32, 48), (48,), (48, 10), integers(64, high=10))
def muon(jax, jnp, x, w1, b1, w2, y):
    """The momentum of each matrix is made orthogonal."""

    def orthogonal(g):
        wide = g.T if g.shape[0] > g.shape[1] else g
        z = wide / (jnp.linalg.norm(wide) + 1e-7)
        for _ in range(5):
            a = z @ z.T
            z = 3.4445 * z + (-4.775 * a + 2.0315 * a @ a) @ z
        return z.T if g.shape[0] > g.shape[1] else z

    def step(state, _):
        p, m = state
        value, g = jax.value_and_grad(lambda p: network_loss(jax, jnp, p, x, y))(p)
        m = jax.tree.map(lambda m, g: 0.95 * m + g, m, g)
        p = jax.tree.map(lambda p, m, g: p - 0.02 * (orthogonal(0.95 * m + g) if p.ndim == 2 else m), p, m, g)
        return (p, m), value

    p = {"w1": w1, "b1": b1, "w2": w2}
    return jax.lax.scan(step, (p, jax.tree.map(jnp.zeros_like, p)), None, length=3)


@program((64, 32), (32, 48), (48,), (48, 10), integers(64, high=10))
def sharpness_aware(jax, jnp, x, w1, b1, w2, y):
    """The gradient at the worst point near by."""
    loss = lambda p: network_loss(jax, jnp, p, x, y)
    p = {"w1": w1, "b1": b1, "w2": w2}
    g = jax.grad(loss)(p)
    norm = jnp.sqrt(sum((each**2).sum() for each in jax.tree.leaves(g)))
    worst = jax.tree.map(lambda p, g: p + 0.05 * g / norm, p, g)
    return jax.tree.map(lambda p, g: p - 0.1 * g, p, jax.grad(loss)(worst))


@program((30,), (30, 30))
def limited_memory_bfgs(jax, jnp, x, a):
    """Twenty steps with six remembered differences, and a search along the line by halving."""
    f = lambda x: jnp.log(jnp.cosh(a @ x - 1)).sum() + 0.1 * (x**2).sum()

    def direction(g, s, y, rho):
        def first(q, t):
            s, y, rho = t
            alpha = rho * (s @ q)
            return q - alpha * y, alpha

        def second(r, t):
            s, y, rho, alpha = t
            return r + s * (alpha - rho * (y @ r)), None

        q, alpha = jax.lax.scan(first, g, (s, y, rho), reverse=True)
        scale = (s[-1] @ y[-1]) / (y[-1] @ y[-1] + 1e-9)
        return jax.lax.scan(second, jnp.where(scale > 0, scale, 0.1) * q, (s, y, rho, alpha))[0]

    def step(state, _):
        x, g, s, y, rho = state
        d = -direction(g, s, y, rho)
        sizes = 0.5 ** jnp.arange(6)
        values = jax.vmap(lambda t: f(x + t * d))(sizes)
        good = values <= f(x) + 1e-4 * sizes * (g @ d)
        new = x + sizes[jnp.where(good.any(), good.argmax(), 5)] * d
        g_new = jax.grad(f)(new)
        ds, dy = new - x, g_new - g
        shift = lambda old, last: jnp.concatenate([old[1:], last[None]])
        return (new, g_new, shift(s, ds), shift(y, dy), shift(rho, 1 / (ds @ dy + 1e-9))), f(new)

    start = (0.1 * x, jax.grad(f)(0.1 * x), jnp.zeros((6, 30)), jnp.zeros((6, 30)), jnp.zeros(6))
    return jax.lax.scan(step, start, None, length=20)[1]


@program((4, 32, 64), (64, 128), (128,), (128, 10), integers(4, 32, high=10))
def accumulated_gradients(jax, jnp, x, w1, b1, w2, y):
    """Four small batches in half precision, their gradients added in single precision, a scaled loss."""
    p = {"w1": w1, "b1": b1, "w2": w2}

    def loss(p, x, y):
        half = jax.tree.map(lambda each: each.astype(jnp.bfloat16), p)
        return network_loss(jax, jnp, half, x.astype(jnp.bfloat16), y).astype(jnp.float32) * 128

    def batch(total, t):
        value, g = jax.value_and_grad(loss)(p, *t)
        return jax.tree.map(lambda a, g: a + g / 128 / 4, total, g), value

    g, values = jax.lax.scan(batch, jax.tree.map(jnp.zeros_like, p), (x, y))
    return jax.tree.map(lambda p, g: p - 0.1 * g, p, g), values.mean()


@program((64, 32), (32, 24), (24,), (24, 10), integers(64, high=10), KEY)
def private_step(jax, jnp, x, w1, b1, w2, y, key):
    """The gradient of every example is clipped, and noise is added to their sum."""
    p = {"w1": w1, "b1": b1, "w2": w2}
    one = lambda x, y: jax.grad(lambda p: network_loss(jax, jnp, p, x[None], y[None]))(p)
    g = jax.vmap(one)(x, y)
    norms = jnp.sqrt(sum((each**2).reshape(64, -1).sum(1) for each in jax.tree.leaves(g)))
    factor = jnp.minimum(1.0, 0.5 / norms)
    total = jax.tree.map(lambda g: jnp.tensordot(factor, g, 1), g)
    leaves, tree = jax.tree.flatten(total)
    keys = jax.random.split(key, len(leaves))
    noisy = [g + 0.5 * jax.random.normal(k, g.shape) for k, g in zip(keys, leaves)]
    return jax.tree.map(lambda p, g: p - 0.1 * g / 64, p, jax.tree.unflatten(tree, noisy)), norms


@program((8, 5, 16, 20), (20, 16), (16,), (16, 10), integers(8, 5, 16, high=10), uniform(8))
def federated_averaging(jax, jnp, x, w1, b1, w2, y, sizes):
    """Eight clients train for five batches each; the mean of their weights."""
    start = {"w1": w1, "b1": b1, "w2": w2}

    def client(x, y):
        def step(p, t):
            value, g = jax.value_and_grad(lambda p: network_loss(jax, jnp, p, *t))(p)
            return jax.tree.map(lambda p, g: p - 0.1 * g, p, g), value

        return jax.lax.scan(step, start, (x, y))

    trained, values = jax.vmap(client)(x, y)
    share = sizes / sizes.sum()
    return jax.tree.map(lambda p: jnp.tensordot(share, p, 1), trained), values[:, -1]


@program((1, 24), (24,), (24, 24), (24, 1), uniform(8, 3), KEY)
def learning_to_learn(jax, jnp, w1, b1, w2, w3, tasks, key):
    """Sine waves: one inner step for each of eight tasks, and the gradient through it."""
    x = jax.random.uniform(key, (2, 10, 1), minval=-3, maxval=3)

    def loss(p, x, task):
        y = task[0] * jnp.sin(x * (1 + task[2]) + 3 * task[1])
        h = jax.nn.relu(jax.nn.relu(x @ p[0] + p[1]) @ p[2] * 0.2)
        return ((h @ p[3] - y) ** 2).mean()

    def outer(p):
        def adapted(task):
            g = jax.grad(loss)(p, x[0], task)
            return loss(jax.tree.map(lambda p, g: p - 0.01 * g, p, g), x[1], task)

        return jax.vmap(adapted)(tasks).mean()

    return jax.value_and_grad(outer)((w1, b1, w2, w3))


@program((50, 8), (50,), (8, 16), (8, 16), (16, 1), (16, 1), KEY)
def bayes_by_backprop(jax, jnp, x, y, m1, s1, m2, s2, key):
    """Weights are drawn from normal distributions: the bound by four draws, and its gradient."""

    def loss(q):
        m1, s1, m2, s2 = q

        def draw(k):
            a, b = jax.random.split(k)
            w1 = m1 + jax.nn.softplus(s1 - 3) * jax.random.normal(a, m1.shape)
            w2 = m2 + jax.nn.softplus(s2 - 3) * jax.random.normal(b, m2.shape)
            return ((y - (jax.nn.relu(x @ w1) @ w2)[:, 0]) ** 2).sum()

        divergence = 0.0
        for m, s in ((m1, s1), (m2, s2)):
            s = jax.nn.softplus(s - 3)
            divergence = divergence + (0.5 * (s**2 + m**2 - 1) - jnp.log(s)).sum()
        return jax.vmap(draw)(jax.random.split(key, 4)).mean() + divergence

    return jax.value_and_grad(loss)((m1, s1, m2, s2))
