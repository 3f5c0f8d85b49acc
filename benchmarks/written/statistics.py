"""Inference: filters, samplers, Gaussian processes, regressions, resampling."""

from __future__ import annotations

from benchmarks.written.kinds import KEY, definite, integers, program, uniform


@program((200, 4), (4, 4), definite(4), definite(4))
def kalman_filter(jax, jnp, y, a, q, r):
    a = a * 0.3

    def step(state, y):
        m, p = state
        m = a @ m
        p = a @ p @ a.T + q
        s = p + r
        gain = jnp.linalg.solve(s, p).T
        m = m + gain @ (y - m)
        p = p - gain @ p
        return (m, p), (m, -0.5 * ((y - m) @ jnp.linalg.solve(s, y - m) + jnp.linalg.slogdet(s)[1]))

    return jax.lax.scan(step, (jnp.zeros(4), jnp.eye(4)), y)


@program((100,), KEY)
def particle_filter(jax, jnp, y, key):
    """Systematic resampling of 500 particles."""

    def step(state, y):
        x, k = state
        k, a, b = jax.random.split(k, 3)
        x = 0.9 * x + jax.random.normal(a, x.shape)
        log_weights = -0.5 * (y - x) ** 2
        w = jax.nn.softmax(log_weights)
        i = jnp.searchsorted(jnp.cumsum(w), (jnp.arange(500) + jax.random.uniform(b)) / 500)
        return (x[jnp.clip(i, 0, 499)], k), jax.nn.logsumexp(log_weights)

    return jax.lax.scan(step, (jnp.zeros(500), key), y)[1]


@program((30, 40), (10,))
def ensemble_kalman(jax, jnp, ensemble, y):
    h = jnp.eye(40)[::4]
    m = ensemble.mean(0)
    a = ensemble - m
    p = a.T @ a / 29
    gain = p @ h.T @ jnp.linalg.inv(h @ p @ h.T + jnp.eye(10))
    return ensemble + (y - ensemble @ h.T) @ gain.T


@program((100, 8), (8, 8))
def forward_backward(jax, jnp, likelihoods, transitions):
    """Of a hidden Markov model, with logarithms."""
    transitions = jax.nn.log_softmax(transitions)

    def forward(a, ll):
        a = jax.nn.logsumexp(a[:, None] + transitions, 0) + ll
        return a, a

    def backward(a, ll):
        n = jax.nn.logsumexp(transitions + (ll + a)[None], 1)
        return n, a

    a = jax.lax.scan(forward, jnp.zeros(8), likelihoods)[1]
    b = jax.lax.scan(backward, jnp.zeros(8), likelihoods, reverse=True)[1]
    return jax.nn.softmax(a + b, -1)


@program((100, 8), (8, 8), differentiable=False)
def viterbi(jax, jnp, likelihoods, transitions):
    def forward(a, ll):
        s = a[:, None] + transitions
        return s.max(0) + ll, s.argmax(0)

    def backward(s, best):
        return best[s], s

    a, pointers = jax.lax.scan(forward, jnp.zeros(8), likelihoods)
    return jax.lax.scan(backward, a.argmax(), pointers, reverse=True)[1]


@program((150, 2), (150,), (3,))
def gaussian_process_likelihood(jax, jnp, x, y, t):
    """With its gradient with respect to length, scale and noise."""

    def loss(t):
        length, scale, noise = jnp.exp(t * 0.1)
        d2 = ((x[:, None] - x) ** 2).sum(-1)
        k = scale * jnp.exp(-0.5 * d2 / length**2) + (noise + 0.1) * jnp.eye(150)
        c = jnp.linalg.cholesky(k)
        a = jax.scipy.linalg.cho_solve((c, True), y)
        return 0.5 * y @ a + jnp.log(jnp.diag(c)).sum()

    return jax.value_and_grad(loss)(t)


@program((100, 1), (100,), (50, 1), (3,))
def gaussian_process_prediction(jax, jnp, x, y, at, t):
    """The kernel is a function of two points, mapped twice."""

    def kernel(a, b):
        return jnp.exp(-0.5 * jnp.sum((a - b) ** 2))

    k = jax.vmap(lambda a: jax.vmap(lambda b: kernel(a, b))(x))(x) + 0.1 * jnp.eye(100)
    ks = jax.vmap(lambda a: jax.vmap(lambda b: kernel(a, b))(x))(at)
    c = jax.scipy.linalg.cho_factor(k)
    return ks @ jax.scipy.linalg.cho_solve(c, y), 1 - jnp.sum(ks * jax.scipy.linalg.cho_solve(c, ks.T).T, 1)


@program((300, 10), integers(300), (10,), KEY)
def hamiltonian_monte_carlo(jax, jnp, x, y, w, key):
    """Logistic regression, ten leapfrog steps a sample."""
    y = y % 2

    def log_density(w):
        z = x @ w
        return jnp.sum(y * jax.nn.log_sigmoid(z) + (1 - y) * jax.nn.log_sigmoid(-z)) - 0.5 * w @ w

    gradient = jax.grad(log_density)

    def leap(i, state):
        q, p = state
        q = q + 0.01 * p
        return q, p + 0.01 * gradient(q)

    def step(w, k):
        a, b = jax.random.split(k)
        p = jax.random.normal(a, w.shape)
        p0 = p
        q = w
        p = p + 0.005 * gradient(q)
        q, p = jax.lax.fori_loop(0, 9, leap, (q, p))
        q = q + 0.01 * p
        p = p + 0.005 * gradient(q)
        accepted = jnp.log(jax.random.uniform(b)) < log_density(q) - 0.5 * p @ p - log_density(w) + 0.5 * p0 @ p0
        return jnp.where(accepted, q, w), accepted

    return jax.lax.scan(step, w, jax.random.split(key, 20))


@program((200, 5), (200,), KEY)
def metropolis(jax, jnp, x, y, key):
    def log_density(w):
        return -0.5 * ((y - x @ w) ** 2).sum() - 0.5 * (w**2).sum()

    def step(state, k):
        w, old = state
        a, b = jax.random.split(k)
        proposal = w + 0.1 * jax.random.normal(a, (5,))
        new = log_density(proposal)
        accepted = jnp.log(jax.random.uniform(b)) < new - old
        return (jnp.where(accepted, proposal, w), jnp.where(accepted, new, old)), w

    start = (jnp.zeros(5), log_density(jnp.zeros(5)))
    return jax.lax.scan(step, start, jax.random.split(key, 200))[1].mean(0)


@program((100, 2))
def stein_gradient_descent(jax, jnp, x):
    log_density = lambda x: -0.5 * jnp.sum(x**2) + jnp.log(jnp.cosh(x[0]))

    def step(x, _):
        d = x[:, None] - x
        d2 = (d**2).sum(-1)
        h = jnp.median(d2) / jnp.log(100.0)
        k = jnp.exp(-d2 / h)
        return x + 0.1 * (k @ jax.vmap(jax.grad(log_density))(x) + 2 / h * (k[..., None] * d).sum(1)) / 100, None

    return jax.lax.scan(step, x, None, length=5)[0]


@program((1000,), (1000,))
def bootstrap(jax, jnp, x, y):
    """An interval of the mean, and the deviation of a correlation."""
    key = jax.random.key(0)
    chosen = jax.random.randint(key, (200, 1000), 0, 1000)
    interval = jnp.percentile(x[chosen].mean(1), jnp.array([2.5, 97.5]))
    return interval, jax.vmap(lambda i: jnp.corrcoef(x[i], y[i])[0, 1])(chosen).std()


@program(KEY, (20,))
def bootstrap_median(jax, jnp, key, x):
    return jnp.median(jax.random.choice(key, x, (500, 20)), 1).std()


@program((400, 8), (400,))
def ridge_cross_validation(jax, jnp, x, y):
    """Leaving one out, for ten penalties."""
    penalties = jnp.logspace(-3, 3, 10)

    def leave_one_out(penalty):
        h = x @ jnp.linalg.solve(x.T @ x + penalty * jnp.eye(8), x.T)
        r = y - h @ y
        return jnp.mean((r / (1 - jnp.diag(h))) ** 2)

    return jax.vmap(leave_one_out)(penalties)


@program((200, 10), (200,))
def lasso_coordinate_descent(jax, jnp, x, y):
    squares = (x**2).sum(0)

    def one(j, w):
        r = y - x @ w + x[:, j] * w[j]
        z = x[:, j] @ r
        return w.at[j].set(jnp.sign(z) * jnp.maximum(jnp.abs(z) - 5, 0) / squares[j])

    def sweep(w, _):
        return jax.lax.fori_loop(0, 10, one, w), None

    return jax.lax.scan(sweep, jnp.zeros(10), None, length=5)[0]


@program((64, 10), (64,), integers(64))
def cox_regression(jax, jnp, x, t, e):
    """Partial likelihood of survival times: value, gradient and Hessian."""
    order = jnp.argsort(-t)
    x = x[order]
    e = (e % 2)[order]

    def loss(b):
        r = x @ b
        return -jnp.sum(e * (r - jax.lax.cumlogsumexp(r)))

    return jax.value_and_grad(loss)(jnp.zeros(10)), jax.hessian(loss)(jnp.zeros(10))


@program((50, 3), uniform(50))
def poisson_regression(jax, jnp, x, y):
    """By Newton's method."""
    y = jnp.round(y * 5)

    def step(b, _):
        mu = jnp.exp(x @ b)
        return b + jnp.linalg.solve(x.T @ (mu[:, None] * x) + 0.1 * jnp.eye(3), x.T @ (y - mu)), None

    b = jax.lax.scan(step, jnp.zeros(3), None, length=8)[0]
    return b, jax.scipy.stats.poisson.logpmf(y, jnp.exp(x @ b)).sum()


@program((100, 4), (4,), (4,), (100,))
def variational_bound(jax, jnp, x, m, s, y):
    """Of a Bayesian linear regression, by reparametrization."""
    noise = jnp.sin(jnp.arange(40.0)).reshape(10, 4)

    def bound(m, s):
        w = m + jnp.exp(s) * noise
        likelihood = jax.scipy.stats.norm.logpdf(y, w @ x.T, 0.5).sum(1).mean()
        return likelihood - 0.5 * (jnp.exp(2 * s) + m**2 - 1 - 2 * s).sum()

    return jax.value_and_grad(bound, (0, 1))(m, s)


@program((200,), (200,), (8,))
def hierarchical_model(jax, jnp, x, y, t):
    """The log density of a model with five groups: value, gradient and Hessian."""
    group = jnp.arange(200) % 5
    norm, cauchy = jax.scipy.stats.norm, jax.scipy.stats.cauchy

    def log_density(t):
        mu, log_scale = t[0], t[1]
        a = t[2:7]
        data = norm.logpdf(y, a[group] + t[7] * x, 1.0).sum()
        return data + norm.logpdf(a, mu, jnp.exp(log_scale)).sum() + cauchy.logpdf(jnp.exp(log_scale))

    return jax.value_and_grad(log_density)(t), jax.hessian(log_density)(t)


@program((300,), (3,), (3,), (3,))
def mixture_likelihood(jax, jnp, x, m, s, w):
    def loss(m, s, w):
        densities = jax.nn.log_softmax(w) + jax.scipy.stats.norm.logpdf(x[:, None], m, jnp.exp(s))
        return -jax.nn.logsumexp(densities, 1).sum()

    return jax.value_and_grad(loss, (0, 1, 2))(m, s, w)


@program((300, 2))
def kernel_density(jax, jnp, x):
    g = jnp.linspace(-3, 3, 20)
    grid = jnp.stack(jnp.meshgrid(g, g), -1).reshape(-1, 2)
    return jnp.exp(-0.5 * ((grid[:, None] - x) ** 2).sum(-1) / 0.09).mean(1).reshape(20, 20)


@program(KEY, differentiable=False)
def monte_carlo_pi(jax, jnp, key):
    return 4 * ((jax.random.uniform(key, (100000, 2)) ** 2).sum(-1) <= 1).mean()


@program((100, 4), (4, 4), definite(4), definite(4))
def kalman_smoother(jax, jnp, y, a, q, r):
    """Forwards with the filter, backwards with Rauch, Tung and Striebel."""
    a = 0.3 * a

    def forward(state, y):
        m, p = state
        m, p = a @ m, a @ p @ a.T + q
        gain = jax.scipy.linalg.solve(p + r, p, assume_a="pos").T
        new = (m + gain @ (y - m), p - gain @ p)
        return new, (m, p, *new)

    def backward(state, t):
        ms, ps = state
        after, p_after, m, p = t
        g = jnp.linalg.solve(p_after, a @ p).T
        new = (m + g @ (ms - after), p + g @ (ps - p_after) @ g.T)
        return new, new

    _, (after, p_after, m, p) = jax.lax.scan(forward, (jnp.zeros(4), jnp.eye(4)), y)
    last = (m[-1], p[-1])
    return jax.lax.scan(backward, last, (after[1:], p_after[1:], m[:-1], p[:-1]), reverse=True)[1]


@program((120,), uniform(3), (12,))
def exponential_smoothing(jax, jnp, y, p, season):
    """Holt and Winters' level, trend and season: the error of forecasts, its gradient, and a forecast."""

    def run(p, season):
        a, b, c = p

        def step(state, y):
            level, trend, season = state
            e = y - (level + trend + season[0])
            new = level + trend + a * e
            season = jnp.concatenate([season[1:], season[:1] + c * e])
            return (new, trend + a * b * e, season), e

        return jax.lax.scan(step, (y[0], 0.0, season), y)

    loss = lambda p, season: (run(p, season)[1] ** 2).mean()
    (level, trend, season_end), _ = run(p, season)
    return jax.value_and_grad(loss, (0, 1))(p, season), level + trend * jnp.arange(1, 13) + season_end


@program((200,), (3,), (2,))
def arma_likelihood(jax, jnp, y, ar, ma):
    """Conditional sums of squares: value, gradient and Hessian."""

    def loss(t):
        ar, ma = 0.3 * jnp.tanh(t[:3]), 0.3 * jnp.tanh(t[3:])

        def step(state, y):
            past, errors = state
            e = y - ar @ past - ma @ errors
            return (jnp.concatenate([y[None], past[:-1]]), jnp.concatenate([e[None], errors[:-1]])), e

        _, e = jax.lax.scan(step, (jnp.zeros(3), jnp.zeros(2)), y)
        return 0.5 * 200 * jnp.log((e**2).mean())

    t = jnp.concatenate([ar, ma])
    return jax.value_and_grad(loss)(t), jax.hessian(loss)(t)


@program((150,), (4,))
def structural_time_series(jax, jnp, y, scales):
    """Level, slope and a season of six: the likelihood by the Kalman filter, and its gradient by the variances."""
    f = jnp.zeros((7, 7)).at[0, 0].set(1.0).at[0, 1].set(1.0).at[1, 1].set(1.0)
    f = f.at[2, 2:].set(-1.0).at[jnp.arange(3, 7), jnp.arange(2, 6)].set(1.0)
    h = jnp.zeros(7).at[0].set(1.0).at[2].set(1.0)

    def loss(scales):
        v = jnp.exp(scales)
        q = jnp.zeros((7, 7)).at[jnp.arange(3), jnp.arange(3)].set(v[:3])

        def step(state, y):
            m, p = state
            m, p = f @ m, f @ p @ f.T + q
            ph = p @ h
            s, e = h @ ph + v[3], y - h @ m
            return (m + ph * e / s, p - jnp.outer(ph, ph) / s), 0.5 * (jnp.log(s) + e**2 / s)

        return jax.lax.scan(step, (jnp.zeros(7), 10 * jnp.eye(7)), y)[1].sum()

    return jax.value_and_grad(loss)(scales)


@program((400, 2), (400,), (20, 2), (20,), (20, 20), (3,))
def sparse_gaussian_process(jax, jnp, x, y, inducing, mean, root, t):
    """The variational bound with twenty inducing points, and its gradient by all of them."""

    def loss(inducing, mean, root, t):
        length, scale, noise = jnp.exp(0.3 * t)
        kernel = lambda a, b: scale * jnp.exp(-0.5 * ((a[:, None] - b) ** 2).sum(-1) / length**2)
        c = jnp.linalg.cholesky(kernel(inducing, inducing) + 1e-2 * jnp.eye(20))
        a = jax.scipy.linalg.solve_triangular(c, kernel(inducing, x), lower=True)
        s = jnp.tril(0.1 * root) + jnp.eye(20)
        f = a.T @ mean
        variance = scale - (a**2).sum(0) + ((s.T @ a) ** 2).sum(0)
        fit = -0.5 * (jnp.log(2 * jnp.pi * noise) + ((y - f) ** 2 + variance) / noise).sum()
        divergence = 0.5 * ((s**2).sum() + mean @ mean - 20) - jnp.log(jnp.abs(jnp.diag(s))).sum()
        return divergence - fit

    return jax.value_and_grad(loss, (0, 1, 2, 3))(inducing, mean, root, t)


@program((300, 2), KEY)
def tempered_samples(jax, jnp, x, key):
    """Sequential Monte Carlo to a density with two peaks: reweight, resample, move."""
    target = lambda x: jnp.logaddexp(-2 * ((x - 1.5) ** 2).sum(-1), -2 * ((x + 1.5) ** 2).sum(-1))
    prior = lambda x: -0.5 * (x**2).sum(-1)
    density = lambda x, t: t * target(x) + (1 - t) * prior(x)

    def step(x, a):
        t, k = a
        k1, k2, k3 = jax.random.split(k, 3)
        w = 0.1 * (target(x) - prior(x))
        x = x[jax.random.categorical(k1, w, shape=(300,))]
        new = x + 0.3 * jax.random.normal(k2, x.shape)
        accepted = jnp.log(jax.random.uniform(k3, (300,))) < density(new, t) - density(x, t)
        return jnp.where(accepted[:, None], new, x), jax.nn.logsumexp(w)

    return jax.lax.scan(step, x, (jnp.linspace(0.1, 1, 10), jax.random.split(key, 10)))
