"""Living things: neurons, epidemics, chemical kinetics in cells, automata."""

from __future__ import annotations

from benchmarks.written.kinds import KEY, integers, program, uniform


@program((20,), (20,))
def hodgkin_huxley(jax, jnp, voltage, current):
    am = lambda v: 0.1 * (v + 40) / (1 - jnp.exp(-(v + 40) / 10))
    bm = lambda v: 4 * jnp.exp(-(v + 65) / 18)
    ah = lambda v: 0.07 * jnp.exp(-(v + 65) / 20)
    bh = lambda v: 1 / (1 + jnp.exp(-(v + 35) / 10))
    an = lambda v: 0.01 * (v + 55) / (1 - jnp.exp(-(v + 55) / 10))
    bn = lambda v: 0.125 * jnp.exp(-(v + 65) / 80)

    def step(state, _):
        v, m, h, n = state
        new = v + 0.01 * (10 * current - 120 * m**3 * h * (v - 50) - 36 * n**4 * (v + 77) - 0.3 * (v + 54.4))
        m_new = m + 0.01 * (am(v) * (1 - m) - bm(v) * m)
        h_new = h + 0.01 * (ah(v) * (1 - h) - bh(v) * h)
        n_new = n + 0.01 * (an(v) * (1 - n) - bn(v) * n)
        return (new, m_new, h_new, n_new), new

    start = (voltage - 65, voltage * 0 + 0.05, voltage * 0 + 0.6, voltage * 0 + 0.3)
    return jax.lax.scan(step, start, None, length=100)[1]


@program((100, 100), (100,), differentiable=False)
def integrate_and_fire(jax, jnp, weights, current):
    """A network of leaky neurons with a refractory time; counts of spikes."""

    def step(state, _):
        v, resting = state
        spikes = (v > 1) & (resting <= 0)
        v = jnp.where(spikes, 0.0, v * 0.9 + current * 0.1 + 0.1 * weights @ spikes.astype(jnp.float32))
        return (v, jnp.where(spikes, 5, resting - 1)), spikes

    return jax.lax.scan(step, (current * 0, jnp.zeros(100, int)), None, length=50)[1].sum(0)


@program((20, 20), integers(20), differentiable=False)
def hopfield(jax, jnp, x, i):
    """A pattern is recalled from a mixture of two."""
    p = jnp.sign(x)
    weights = p.T @ p / 20 - jnp.eye(20)
    return jax.lax.fori_loop(0, 10, lambda k, s: jnp.sign(weights @ s + 1e-6), jnp.sign(x[0] + 0.5 * x[1]))


@program(KEY, differentiable=False)
def gillespie(jax, jnp, key):
    """One reaction after another, at random times."""
    changes = jnp.array([[1, 0], [-1, 0], [-1, 1], [0, -1]])

    def step(state, k):
        x, t = state
        rates = jnp.array([10.0, 0.1 * x[0], 0.05 * x[0] * x[1], 0.1 * x[1]])
        total = rates.sum()
        k1, k2 = jax.random.split(k)
        i = jax.random.categorical(k1, jnp.log(rates + 1e-9))
        x = x + changes[i]
        return (jnp.maximum(x, 0), t + jax.random.exponential(k2) / total), x

    return jax.lax.scan(step, (jnp.array([10, 5]), 0.0), jax.random.split(key, 200))


@program((500, 3), differentiable=False)
def epidemic_of_agents(jax, jnp, x):
    """Susceptible, infected, recovered: whoever is near the infected may fall ill."""

    def step(state, k):
        status, p = state
        near = ((p[:, None] - p) ** 2).sum(-1) < 0.05
        n = (near & (status == 1)[None]).sum(1)
        u = jnp.sin(p[:, 0] * 1e4 + k) % 1
        infected = (status == 0) & (u < 1 - 0.9**n)
        status = jnp.where(infected, 1, jnp.where((status == 1) & (u < 0.1), 2, status))
        return (status, p), jnp.bincount(status, length=3)

    start = (jnp.arange(500) < 5).astype(int)
    return jax.lax.scan(step, (start, x[:, :2]), jnp.arange(5.0))[1]


@program((200,))
def epidemic_fit(jax, jnp, y):
    """The gradient of a fit of the SEIR model to counts."""

    def simulated(p):
        infection, recovery, onset = jax.nn.sigmoid(p)

        def step(state, _):
            s, e, i, r = state
            new = infection * s * i
            return (s - new, e + new - onset * e, i + onset * e - recovery * i, r + recovery * i), i

        return jax.lax.scan(step, (0.99, 0.0, 0.01, 0.0), None, length=200)[1]

    return jax.value_and_grad(lambda p: ((simulated(p) - jnp.abs(y) * 0.01) ** 2).mean())(jnp.zeros(3))


@program((100, 100), differentiable=False)
def game_of_life(jax, jnp, x):
    x = (x > 0).astype(jnp.int8)

    def step(x, _):
        n = sum(jnp.roll(x, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1) if (i, j) != (0, 0))
        x = ((n == 3) | ((x == 1) & (n == 2))).astype(jnp.int8)
        return x, x.sum()

    return jax.lax.scan(step, x, None, length=20)


@program((300, 300), (300,), KEY)
def izhikevich(jax, jnp, weights, kind, key):
    """Spiking neurons with two variables each, driven by noise."""
    r = jax.nn.sigmoid(kind)
    a, b, c, d = 0.02 + 0.08 * r, 0.25 - 0.05 * r, -65 + 15 * r**2, 8 - 6 * r**2

    def step(state, k):
        v, u = state
        fired = v >= 30
        v, u = jnp.where(fired, c, v), jnp.where(fired, u + d, u)
        current = 5 * jax.random.normal(k, (300,)) + 0.5 * weights @ fired.astype(float)
        for _ in range(2):
            v = v + 0.5 * (0.04 * v**2 + 5 * v + 140 - u + current)
        u = u + a * (b * v - u)
        return (v, u), fired.sum()

    return jax.lax.scan(step, (jnp.full(300, -65.0), b * -65), jax.random.split(key, 100))


@program((80, 60), KEY)
def spike_timing(jax, jnp, weights, key):
    """Synapses grow if a spike follows another, and shrink if it precedes it."""
    weights = jax.nn.sigmoid(weights)

    def step(state, k):
        w, v, before, after = state
        spikes = jax.random.bernoulli(k, 0.1, (60,)).astype(float)
        v = 0.9 * v + 0.1 * w @ spikes
        fired = (v > 0.3).astype(float)
        v = v * (1 - fired)
        before, after = 0.95 * before + spikes, 0.95 * after + fired
        w = w + 0.01 * jnp.outer(fired, before) - 0.012 * jnp.outer(after, spikes)
        return (jnp.clip(w, 0, 1), v, before, after), fired.mean()

    start = (weights, jnp.zeros(80), jnp.zeros(60), jnp.zeros(80))
    return jax.lax.scan(step, start, jax.random.split(key, 100))


@program(integers(120, high=4), integers(100, high=4), differentiable=False)
def needleman_wunsch(jax, jnp, a, b):
    """The score of a global alignment, by diagonals."""
    n, m = 120, 100
    i = jnp.arange(n + 1)

    def diagonal(state, k):
        last, before = state
        j = k - i
        match = jnp.where(a[jnp.maximum(i - 1, 0)] == b[jnp.clip(j - 1, 0, m - 1)], 1, -1)
        up, left = jnp.roll(last, 1) - 2, last - 2
        best = jnp.maximum(jnp.roll(before, 1) + match, jnp.maximum(up, left))
        best = jnp.where((i == 0) | (j == 0), -2 * k, best)
        best = jnp.where((j < 0) | (j > m), -10000, best)
        return (best, last), None

    first = jnp.where(i == 0, 0, -10000)
    (last, _), _ = jax.lax.scan(diagonal, (first, jnp.full(n + 1, -10000)), jnp.arange(1, n + m + 1))
    return last[n]


@program((4, 60, 50))
def smith_waterman(jax, jnp, scores):
    """A smooth local alignment with affine gaps of four pairs; its gradient is the alignment."""

    def loss(scores):
        def row(state, s):
            best, down = state
            down = jnp.logaddexp(best - 3, down - 1)
            start = jax.nn.logsumexp(jnp.stack([jnp.pad(best, (1, 0))[:-1] + s, down, s]), 0)

            def cell(right, h):
                right = jnp.logaddexp(h - 3, right - 1)
                return right, right

            _, right = jax.lax.scan(cell, -1e4, start)
            best = jnp.logaddexp(start, jnp.pad(right, (1, 0), constant_values=-1e4)[:-1])
            return (best, down), jax.nn.logsumexp(best)

        start = (jnp.full(50, -1e4), jnp.full(50, -1e4))
        return jax.nn.logsumexp(jax.lax.scan(row, start, scores)[1])

    return jax.vmap(jax.value_and_grad(loss))(scores)


@program(integers(80, high=20), (40, 20), (40, 3))
def profile_hmm(jax, jnp, sequence, emissions, transitions):
    """The likelihood of a protein under a profile of matches, insertions and deletions."""
    emissions = jax.nn.log_softmax(emissions)
    to_match, to_insert, to_delete = jax.nn.log_softmax(transitions).T
    before = lambda x: jnp.pad(x, (1, 0), constant_values=-1e4)[:-1]

    def letter(state, c):
        m, i, d = state
        m, i = (
            emissions[:, c] + jax.nn.logsumexp(jnp.stack([before(m + to_match), before(i - 1.0), before(d - 0.5)]), 0),
            jnp.logaddexp(m + to_insert, i - 0.7) - 3.0,
        )
        steps = jnp.cumsum(jnp.full(40, -1.2))
        d = steps + jax.lax.cumlogsumexp(before(m + to_delete) - steps)
        return (m, i, d), None

    start = (jnp.full(40, -1e4).at[0].set(0.0), jnp.full(40, -1e4), jnp.full(40, -1e4))
    (m, i, d), _ = jax.lax.scan(letter, start, sequence)
    return jax.nn.logsumexp(jnp.stack([m[-1], i[-1], d[-1]]))


@program(integers(16, 300, high=4), uniform(30), (6,), (4,))
def phylogenetic_likelihood(jax, jnp, leaves, lengths, rates, frequencies):
    """Felsenstein's pruning: sixteen species, 300 sites, a general reversible model; with the gradient by branches."""
    upper = jnp.triu_indices(4, 1)

    def loss(lengths, rates, frequencies):
        pi = jax.nn.softmax(frequencies)
        r = jnp.zeros((4, 4)).at[upper].set(jax.nn.softplus(rates))
        q = (r + r.T) * pi
        q = q - jnp.diag(q.sum(1))
        q = q / -(jnp.diag(q) @ pi)
        moves = jax.vmap(jax.scipy.linalg.expm)(q * lengths[:, None, None])
        level = jax.nn.one_hot(leaves, 4)
        total, branch = 0.0, 0
        while level.shape[0] > 1:
            n = level.shape[0]
            come = jnp.einsum("nij,nsj->nsi", moves[branch : branch + n], level)
            branch += n
            level = come[0::2] * come[1::2]
            scale = level.max(-1, keepdims=True)
            level = level / scale
            total = total + jnp.log(scale).sum()
        return -(total + jnp.log(level[0] @ pi).sum())

    return jax.value_and_grad(loss, (0, 1, 2))(lengths, rates, frequencies)


@program(uniform(8, 8), uniform(30, 3))
def epidemic_by_age(jax, jnp, contacts, draws):
    """Eight age groups over 150 days, for thirty draws of the parameters."""

    def run(p):
        infection, onset, recovery = 0.3 * p[0], 0.5 * p[1], 0.3 * p[2]

        def day(state, _):
            s, e, i, r = state
            new = infection * s * (contacts @ i)
            ill, well = onset * e, recovery * i
            return (s - new, e + new - ill, i + ill - well, r + well), new.sum()

        start = (jnp.full(8, 0.99), jnp.zeros(8), jnp.full(8, 0.01), jnp.zeros(8))
        (_, _, _, r), new = jax.lax.scan(day, start, None, length=150)
        return r, new

    return jax.vmap(run)(draws)


@program(uniform(200, 3), KEY)
def tau_leaping(jax, jnp, rates, key):
    """200 cells of molecules that are made, pair up and decay: numbers of reactions are Poisson."""

    def step(x, k):
        a = jnp.stack([20 * rates[:, 0], 0.01 * rates[:, 1] * x[:, 0] * (x[:, 0] - 1), rates[:, 2] * x[:, 1]], 1)
        n = jax.random.poisson(k, jnp.maximum(0.1 * a, 0))
        change = jnp.stack([n[:, 0] - 2 * n[:, 1], n[:, 1] - n[:, 2]], 1)
        return jnp.maximum(x + change, 0), x.mean(0)

    return jax.lax.scan(step, jnp.zeros((200, 2)), jax.random.split(key, 30))


@program(uniform(500), KEY)
def genetic_drift(jax, jnp, share, key):
    """500 genes under selection in a small population: the normal approximation of Wright and Fisher's model."""

    def generation(p, k):
        p = 1.02 * p / (1 + 0.02 * p)
        p = jnp.clip(p + jnp.sqrt(p * (1 - p) / 200) * jax.random.normal(k, p.shape), 0, 1)
        return p, (2 * p * (1 - p)).mean()

    return jax.lax.scan(generation, share, jax.random.split(key, 100))
