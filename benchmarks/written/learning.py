"""Learning without deep networks: clusters, components, neighbours, trees, kernels."""

from __future__ import annotations

from benchmarks.written.kinds import KEY, integers, program


@program((500, 2), (5, 2))
def gaussian_mixture_em(jax, jnp, x, mu):
    def step(state, _):
        mu, covariance, share = state
        c = jnp.linalg.cholesky(covariance)
        d = x[:, None] - mu
        z = jax.vmap(lambda c, d: jax.scipy.linalg.solve_triangular(c, d.T, lower=True), (0, 1))(c, d)
        log_det = jnp.log(jnp.diagonal(c, axis1=1, axis2=2)).sum(1)
        log_density = -0.5 * (z**2).sum(1).T - log_det + jnp.log(share)
        likelihood = jax.nn.logsumexp(log_density, 1)
        r = jnp.exp(log_density - likelihood[:, None])
        n = r.sum(0)
        mu = (r.T @ x) / n[:, None]
        d = x[:, None] - mu
        covariance = jnp.einsum("nk,nki,nkj->kij", r, d, d) / n[:, None, None] + 1e-3 * jnp.eye(2)
        return (mu, covariance, n / n.sum()), likelihood.mean()

    return jax.lax.scan(step, (mu, jnp.tile(jnp.eye(2), (5, 1, 1)), jnp.ones(5) / 5), None, length=10)


@program((1000, 3), (8, 3))
def kmeans(jax, jnp, x, centres):
    def step(c, _):
        d = ((x[:, None] - c) ** 2).sum(-1)
        nearest = d.argmin(1)
        o = jax.nn.one_hot(nearest, 8)
        return (o.T @ x) / jnp.maximum(o.sum(0), 1)[:, None], d.min(1).sum()

    return jax.lax.scan(step, centres, None, length=10)


@program((1000, 3), (8, 3))
def kmeans_by_segments(jax, jnp, x, centres):
    def step(c, _):
        d = jnp.linalg.norm(x[:, None] - c, axis=-1)
        nearest = jnp.argmin(d, 1)
        s = jax.ops.segment_sum(x, nearest, 8)
        n = jax.ops.segment_sum(jnp.ones(1000), nearest, 8)
        return s / jnp.maximum(n, 1)[:, None], d.min(1).sum()

    return jax.lax.scan(step, centres, None, length=10)


@program((500, 20))
def principal_components(jax, jnp, x):
    x = x - x.mean(0)
    _, s, v = jnp.linalg.svd(x, full_matrices=False)
    return x @ v[:3].T, s**2 / (s**2).sum()


@program((80, 6))
def independent_components(jax, jnp, x):
    x = x - x.mean(0)
    u, _, _ = jnp.linalg.svd(x, full_matrices=False)
    z = u * jnp.sqrt(80.0)

    def step(w, _):
        y = z @ w.T
        g = jnp.tanh(y)
        w = g.T @ z / 80 - jnp.diag((1 - g**2).mean(0)) @ w
        u, _, v = jnp.linalg.svd(w)
        return u @ v, None

    return jax.lax.scan(step, jnp.eye(6), None, length=10)[0]


@program((40, 30))
def nonnegative_factors(jax, jnp, v):
    """Multiplicative updates of V = W H."""
    v = jnp.abs(v)

    def step(state, _):
        w, h = state
        h = h * (w.T @ v) / (w.T @ w @ h + 1e-9)
        w = w * (v @ h.T) / (w @ h @ h.T + 1e-9)
        return (w, h), ((v - w @ h) ** 2).sum()

    return jax.lax.scan(step, (v[:, :5] + 0.1, v[:5] + 0.1), None, length=30)


@program((60, 5), (60, 2))
def tsne(jax, jnp, x, y):
    """Ten steps with momentum."""
    d = ((x[:, None] - x) ** 2).sum(-1)
    p = jnp.exp(-d / 2) * (1 - jnp.eye(60))
    p = p / p.sum(1, keepdims=True)
    p = (p + p.T) / 120

    def divergence(y):
        q = 1 / (1 + ((y[:, None] - y) ** 2).sum(-1)) * (1 - jnp.eye(60))
        q = q / q.sum()
        return jnp.sum(p * jnp.log((p + 1e-9) / (q + 1e-9)))

    def step(state, _):
        y, v = state
        v = 0.8 * v - 10 * jax.grad(divergence)(y)
        return (y + v, v), None

    return jax.lax.scan(step, (y, y * 0), None, length=10)[0]


@program((30, 30), integers(30))
def spectral_embedding(jax, jnp, x, labels):
    a = jnp.exp(-((x[:, None, :2] - x[None, :, :2]) ** 2).sum(-1))
    d = a.sum(1)
    laplacian = jnp.eye(30) - a / jnp.sqrt(d[:, None] * d)
    _, v = jnp.linalg.eigh(laplacian)
    return v[:, :4] / jnp.linalg.norm(v[:, :4], axis=1, keepdims=True)


@program((300, 6), integers(300))
def naive_bayes(jax, jnp, x, y):
    o = jax.nn.one_hot(y % 3, 3)
    n = o.sum(0)
    mu = o.T @ x / n[:, None]
    variance = o.T @ (x**2) / n[:, None] - mu**2
    scores = jax.scipy.stats.norm.logpdf(x[:, None], mu, jnp.sqrt(variance)).sum(-1) + jnp.log(n / n.sum())
    return scores.argmax(1), jax.nn.softmax(scores)


@program((500, 4), (30, 4))
def nearest_neighbours(jax, jnp, x, queries):
    d = ((queries[:, None] - x) ** 2).sum(-1)
    _, i = jax.lax.top_k(-d, 5)
    return x[i].mean(1), i


@program((200, 5), integers(200))
def best_split(jax, jnp, x, y):
    """Of each feature, by Gini's impurity."""
    y = (y % 2).astype(float)
    order = jnp.argsort(x, 0)
    c = jnp.cumsum(y[order], 0)
    n = jnp.arange(1, 201.0)[:, None]
    gini = lambda p: 2 * p * (1 - p)
    impurity = n * gini(c / n) + (200 - n) * gini((c[-1] - c) / jnp.maximum(200 - n, 1))
    return impurity.min(0), impurity.argmin(0)


@program((100, 10), (100,))
def boosted_stumps(jax, jnp, x, y):
    y = jnp.sign(y)
    threshold = jnp.median(x, 0)

    def step(w, _):
        p = jnp.where(x > threshold, 1.0, -1.0)
        e = (w[:, None] * (p != y[:, None])).sum(0)
        j = e.argmin()
        a = 0.5 * jnp.log((1 - e[j]) / (e[j] + 1e-6) + 1e-6)
        w = w * jnp.exp(-a * y * p[:, j])
        return w / w.sum(), (a, j)

    return jax.lax.scan(step, jnp.ones(100) / 100, None, length=10)[1]


@program((60, 4), integers(60), (60,))
def support_vectors(jax, jnp, x, y, a):
    """Projected gradient ascent of the dual."""
    y = jnp.where(y % 2 == 0, 1.0, -1.0)
    k = jnp.exp(-((x[:, None] - x) ** 2).sum(-1)) * jnp.outer(y, y)
    return jax.lax.fori_loop(0, 30, lambda i, a: jnp.clip(a + 0.01 * (1 - k @ a), 0, 1), jnp.abs(a) * 0.1)


@program((60, 4), (4, 30))
def random_features(jax, jnp, x, w):
    z = jnp.sqrt(2 / 30) * jnp.cos(x @ w * 2 + jnp.arange(30.0))
    return jnp.linalg.solve(z.T @ z + 0.1 * jnp.eye(30), z.T @ x[:, 0])


@program((100, 16))
def self_organizing_map(jax, jnp, x):
    grid = jnp.stack(jnp.meshgrid(jnp.arange(6.0), jnp.arange(6.0)), -1).reshape(-1, 2)

    def step(w, x):
        best = ((w - x) ** 2).sum(1).argmin()
        h = jnp.exp(-((grid - grid[best]) ** 2).sum(1) / 2)
        return w + 0.1 * h[:, None] * (x - w), best

    return jax.lax.scan(step, x[:36], x)


@program(KEY, (20, 8), (8,), (20,))
def boltzmann_machine(jax, jnp, key, w, hidden_bias, bias):
    """Contrastive divergence with five Gibbs steps."""
    v = jax.random.bernoulli(key, 0.5, (10, 20)).astype(float)

    def gibbs(v, k):
        a, d = jax.random.split(k)
        h = jax.random.bernoulli(a, jax.nn.sigmoid(v @ w + hidden_bias)).astype(float)
        return jax.random.bernoulli(d, jax.nn.sigmoid(h @ w.T + bias)).astype(float), None

    sampled = jax.lax.scan(gibbs, v, jax.random.split(key, 5))[0]
    energy = lambda w, v: (-v @ bias - jax.nn.softplus(v @ w + hidden_bias).sum(1)).mean()
    return jax.grad(lambda w: energy(w, v) - energy(w, sampled))(w)


@program((80, 60), (80, 8), (60, 8))
def alternating_least_squares(jax, jnp, ratings, users, items):
    """Ratings of which most are missing: users and items in turns, each a small system."""
    seen = (jnp.abs(ratings) > 1).astype(float)

    def solve(seen, ratings, other):
        one = lambda s, r: jnp.linalg.solve((other.T * s) @ other + 0.1 * jnp.eye(8), other.T @ (s * r))
        return jax.vmap(one)(seen, ratings)

    def step(state, _):
        users, items = state
        users = solve(seen, ratings, items)
        items = solve(seen.T, ratings.T, users)
        return (users, items), (seen * (ratings - users @ items.T) ** 2).sum()

    return jax.lax.scan(step, (users, items), None, length=3)


@program((200, 16), (300, 16), integers(3, 512, high=200))
def personalized_ranking(jax, jnp, users, items, triples):
    """Bayesian personalized ranking: what was bought before what was not; ten steps."""
    u, bought, other = triples

    def loss(p):
        users, items = p
        difference = (users[u] * (items[bought] - items[other + 100])).sum(1)
        penalty = (users[u] ** 2).sum() + (items[bought] ** 2).sum()
        return -jax.nn.log_sigmoid(difference).mean() + 1e-4 * penalty

    step = lambda _, p: jax.tree.map(lambda p, g: p - 0.5 * g, p, jax.grad(loss)(p))
    return jax.lax.fori_loop(0, 10, step, (users, items))


@program(integers(300, 40, high=500), integers(5, 6, high=500), differentiable=False)
def text_retrieval(jax, jnp, documents, queries):
    """The best documents by words in common, weighted by how rare they are."""
    counts = jnp.zeros((300, 500)).at[jnp.arange(300)[:, None], documents].add(1.0)
    rare = jnp.log1p(300 / (1 + (counts > 0).sum(0)))
    length = counts.sum(1, keepdims=True)
    scores = rare * counts * 2.2 / (counts + 1.2 * (0.25 + 0.75 * length / length.mean()))
    return jax.lax.top_k(scores[:, queries].sum(-1).T, 10)


@program(integers(400, 30, high=200), (8, 200))
def topic_model(jax, jnp, documents, topics):
    """Words of 400 documents belong to eight topics: ten steps of expectation and maximization."""
    words = jax.nn.softmax(topics)

    def step(state, _):
        words, shares = state
        p = shares[:, None] * words.T[documents]
        total = p.sum(-1, keepdims=True)
        r = p / total
        new = jnp.zeros((200, 8)).at[documents].add(r).T + 0.01
        return (new / new.sum(1, keepdims=True), r.mean(1)), jnp.log(total).mean()

    return jax.lax.scan(step, (words, jnp.full((400, 8), 1 / 8)), None, length=10)


@program((2000, 6), (2000,))
def histogram_boosting(jax, jnp, x, y):
    """Five stumps on binned features, by sums of gradients in bins."""
    bins = jnp.clip((x * 8 + 16).astype(int), 0, 31)

    def step(prediction, _):
        g = prediction - y
        sums = jnp.zeros((6, 32)).at[jnp.arange(6), bins].add(g[:, None])
        counts = jnp.zeros((6, 32)).at[jnp.arange(6), bins].add(1.0)
        left, n = jnp.cumsum(sums, 1), jnp.cumsum(counts, 1)
        right, m = left[:, -1:] - left, n[:, -1:] - n
        gain = left**2 / (n + 1) + right**2 / (m + 1)
        f, b = jnp.unravel_index(gain.argmax(), gain.shape)
        value = jnp.where(bins[:, f] <= b, -left[f, b] / (n[f, b] + 1), -right[f, b] / (m[f, b] + 1))
        return prediction + 0.5 * value, (g**2).mean()

    return jax.lax.scan(step, jnp.zeros(2000), None, length=5)
