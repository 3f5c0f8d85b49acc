"""Graphs, strings, sequences and integers: what computer science teaches, on arrays."""

from __future__ import annotations

from benchmarks.written.kinds import integers, program


@program((50, 50), differentiable=False)
def page_rank(jax, jnp, a):
    a = (a > 1).astype(float) + jnp.eye(50)
    m = a / a.sum(0)
    return jax.lax.fori_loop(0, 50, lambda i, r: 0.85 * m @ r + 0.15 / 50, jnp.ones(50) / 50)


@program((60, 60))
def shortest_paths(jax, jnp, d):
    """Floyd and Warshall's."""
    return jax.lax.fori_loop(0, 60, lambda k, d: jnp.minimum(d, d[:, k, None] + d[None, k]), jnp.abs(d))


@program(integers(2, 300), differentiable=False)
def breadth_first_search(jax, jnp, e):
    e = (e * 31 + jnp.arange(300)) % 60
    d = jnp.full(60, 999).at[0].set(0)

    def body(state):
        d, _ = state
        n = d.at[e[1]].min(d[e[0]] + 1)
        return n, (n != d).any()

    return jax.lax.while_loop(lambda state: state[1], body, (d, True))[0]


@program(integers(2, 300), differentiable=False)
def label_propagation(jax, jnp, e):
    e = (e * 31 + jnp.arange(300)) % 60
    a = jnp.zeros((60, 60)).at[e[0], e[1]].set(1.0)
    a = jnp.maximum(a, a.T) + jnp.eye(60)
    a = a / a.sum(1, keepdims=True)
    y = jax.nn.one_hot(jnp.arange(60) % 3, 3)
    return jax.lax.fori_loop(0, 20, lambda i, f: 0.9 * a @ f + 0.1 * y, y).argmax(1)


@program(integers(60), integers(60), differentiable=False)
def edit_distance(jax, jnp, a, b):
    def row(before, c):
        m = jnp.minimum(before[:-1] + (b != c), before[1:] + 1)

        def cell(left, x):
            n = jnp.minimum(left + 1, x)
            return n, n

        _, r = jax.lax.scan(cell, before[0] + 1, m)
        return jnp.concatenate([before[:1] + 1, r]), None

    return jax.lax.scan(row, jnp.arange(61), a)[0][-1]


@program((50,), (50,))
def time_warping(jax, jnp, a, b):
    d = (a[:, None] - b) ** 2

    def row(before, costs):
        m = jnp.minimum(before[1:], before[:-1])

        def cell(left, x):
            n = jnp.minimum(left, x[1]) + x[0]
            return n, n

        _, r = jax.lax.scan(cell, jnp.inf, (costs, m))
        return jnp.concatenate([jnp.array([jnp.inf]), r]), None

    return jax.lax.scan(row, jnp.full(51, jnp.inf).at[0].set(0.0), d)[0][-1]


@program(integers(50), integers(50), differentiable=False)
def common_subsequence(jax, jnp, a, b):
    def row(p, c):
        d = jnp.where(b == c, p[:-1] + 1, 0)
        return jnp.concatenate([p[:1], jax.lax.cummax(jnp.maximum(d, p[1:]))]), None

    return jax.lax.scan(row, jnp.zeros(51, int), a)[0][-1]


@program((50,))
def knapsack(jax, jnp, values):
    values = jnp.abs(values)
    weights = (jnp.arange(50) % 7) + 1

    def item(d, x):
        v, w = x
        i = jnp.arange(101)
        return jnp.where(i >= w, jnp.maximum(d, d[jnp.maximum(i - w, 0)] + v), d), None

    return jax.lax.scan(item, jnp.zeros(101), (values, weights))[0][-1]


@program(integers(1000), differentiable=False)
def run_lengths(jax, jnp, x):
    starts = jnp.concatenate([jnp.array([True]), x[1:] != x[:-1]])
    i = jnp.cumsum(starts) - 1
    return jnp.zeros(1000, int).at[i].add(1), jnp.zeros(1000, x.dtype).at[i].set(x)


@program(integers(200), differentiable=False)
def prime_sieve(jax, jnp, x):
    numbers = jnp.arange(1000)
    step = lambda i, s: s & ~((numbers % i == 0) & (numbers > i))
    return jax.lax.fori_loop(2, 32, step, numbers > 1).sum()


@program(integers(8, 8), differentiable=False)
def queens(jax, jnp, q):
    """How often queens on a board threaten one another."""
    p = jnp.argsort(q, -1)
    i = jnp.arange(8)
    d1 = jnp.sort(p + i, -1)
    d2 = jnp.sort(p - i, -1)
    return (d1[:, 1:] == d1[:, :-1]).sum(-1) + (d2[:, 1:] == d2[:, :-1]).sum(-1)


@program((12, 12))
def sudoku_loss(jax, jnp, x):
    """The gradient of how much the rows and columns of soft choices miss one of each."""

    def loss(x):
        return sum(((jax.nn.softmax(x.reshape(4, 9, 4)).sum(a) - 1) ** 2).sum() for a in (0, 1, 2))

    return jax.grad(loss)(x)


@program(integers(1000), differentiable=False)
def fnv_hash(jax, jnp, x):
    x = x.astype(jnp.uint32)
    step = lambda h, b: ((h ^ b) * jnp.uint32(16777619), None)
    return jax.lax.scan(step, jnp.uint32(2166136261), x)[0]


@program(integers(4096), differentiable=False)
def xorshift(jax, jnp, x):
    x = x.astype(jnp.uint32) + 1

    def step(i, x):
        x = x ^ (x << 13)
        x = x ^ (x >> 17)
        return x ^ (x << 5)

    return jax.lax.fori_loop(0, 20, step, x).astype(jnp.float32) / 2.0**32
