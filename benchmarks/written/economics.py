"""Economics: growth, savings, choices, linear models of the whole economy."""

from __future__ import annotations

from benchmarks.written.kinds import program, uniform


@program(uniform(2))
def optimal_growth(jax, jnp, p):
    """Value function iteration: 120 levels of capital, five of productivity, every choice compared."""
    alpha, beta = 0.2 + 0.3 * p[0], 0.9 + 0.05 * p[1]
    k = jnp.linspace(0.1, 6, 120)
    z = jnp.exp(jnp.linspace(-0.1, 0.1, 5))
    moves = jax.nn.softmax(-4 * jnp.abs(jnp.arange(5.0)[:, None] - jnp.arange(5.0)), 1)
    c = z[:, None, None] * k[:, None] ** alpha + 0.9 * k[:, None] - k
    utility = jnp.where(c > 0, jnp.log(jnp.maximum(c, 1e-6)), -1e6)

    def step(v, _):
        total = utility + beta * (moves @ v)[:, None]
        return total.max(2), None

    v, _ = jax.lax.scan(step, jnp.zeros((5, 120)), None, length=60)
    policy = k[(utility + beta * (moves @ v)[:, None]).argmax(2)]
    return v, policy


@program(uniform(2))
def incomplete_markets(jax, jnp, p):
    """Households save against bad luck: endogenous grid points, then the distribution of wealth, and who holds what."""
    beta, r = 0.9 + 0.06 * p[0], 0.01 + 0.02 * p[1]
    a = jnp.linspace(0, 20, 150)
    income = jnp.array([0.4, 1.0, 1.6])
    moves = jnp.array([[0.8, 0.15, 0.05], [0.1, 0.8, 0.1], [0.05, 0.15, 0.8]])

    def euler(c, _):
        expected = beta * (1 + r) * moves @ (1 / c)
        today = 1 / expected
        before = (today + a - income[:, None]) / (1 + r)
        cash = (1 + r) * a + income[:, None]
        new = jax.vmap(lambda b, t: jnp.interp(a, b, t))(before, today)
        return jnp.where(a < before[:, :1], cash, new), None

    c, _ = jax.lax.scan(euler, 0.5 + 0.05 * a + 0 * income[:, None], None, length=40)
    saved = jnp.clip((1 + r) * a + income[:, None] - c, 0, 20)
    i = jnp.clip(jnp.searchsorted(a, saved), 1, 149)
    high = (saved - a[i - 1]) / (a[i] - a[i - 1])
    rows = jnp.arange(3)[:, None]

    def forward(d, _):
        moved = jnp.zeros((3, 150)).at[rows, i - 1].add(d * (1 - high)).at[rows, i].add(d * high)
        return moves.T @ moved, None

    d, _ = jax.lax.scan(forward, jnp.full((3, 150), 1 / 450), None, length=60)
    return (d * a).sum(), c, d


@program((5, 5), (5, 5), (5, 5), (80, 2))
def rational_expectations(jax, jnp, a, b, c, data):
    """A linear model is solved by iteration, and its likelihood is found by the Kalman filter."""
    a, b, c = 0.1 * a, jnp.eye(5) + 0.1 * b, 0.2 * c

    def loss(a, b, c):
        step = lambda x, _: (-jnp.linalg.solve(b + a @ x, c), None)
        x, _ = jax.lax.scan(step, jnp.zeros((5, 5)), None, length=25)
        shock = -jnp.linalg.inv(b + a @ x)
        q = shock @ shock.T
        h = jnp.eye(5)[:2]

        def filtered(state, y):
            m, p = state
            m, p = x @ m, x @ p @ x.T + q
            s = h @ p @ h.T + 0.1 * jnp.eye(2)
            e = y - h @ m
            gain = jnp.linalg.solve(s, h @ p).T
            return (m + gain @ e, p - gain @ h @ p), -0.5 * (e @ jnp.linalg.solve(s, e) + jnp.linalg.slogdet(s)[1])

        return jax.lax.scan(filtered, (jnp.zeros(5), jnp.eye(5)), data)[1].sum()

    return jax.value_and_grad(loss, (0, 1, 2))(a, b, c)


@program((30, 8, 4), uniform(30, 9), (50, 4))
def demand_for_products(jax, jnp, features, shares, draws):
    """Thirty markets of eight products: mean utilities that give the observed shares of fifty kinds of buyers."""
    shares = shares[:, :8] / shares.sum(1, keepdims=True)
    taste = jnp.einsum("mjk,nk->mnj", features, 0.3 * draws)

    def predicted(delta):
        u = delta[:, None] + taste
        top = jnp.maximum(u.max(-1, keepdims=True), 0)
        e = jnp.exp(u - top)
        return (e / (jnp.exp(-top) + e.sum(-1, keepdims=True))).mean(1)

    step = lambda delta, _: (delta + jnp.log(shares) - jnp.log(predicted(delta)), None)
    delta, _ = jax.lax.scan(step, jnp.zeros((30, 8)), None, length=25)
    flat, y = features.reshape(240, 4), delta.reshape(240)
    beta = jnp.linalg.lstsq(flat, y)[0]
    return beta, y - flat @ beta


@program(uniform(3), (60,))
def search_for_work(jax, jnp, p, offers):
    """Reservation wages, found by value iteration for twenty levels of benefits."""
    wages = jnp.exp(0.3 * jnp.sort(offers))

    def reservation(benefit):
        def step(state, _):
            unemployed, employed = state
            new = benefit + 0.95 * jnp.maximum(employed, unemployed).mean()
            return (new, wages + 0.95 * ((1 - 0.1 * p[0]) * employed + 0.1 * p[0] * unemployed)), None

        (unemployed, employed), _ = jax.lax.scan(step, (0.0, jnp.zeros(60)), None, length=100)
        return jnp.interp(0.0, employed - unemployed, wages)

    return jax.vmap(reservation)(jnp.linspace(0.2, 0.8, 20) * p[1])
