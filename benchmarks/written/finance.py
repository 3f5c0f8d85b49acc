"""Prices, risks and time series."""

from __future__ import annotations

from benchmarks.written.kinds import KEY, program


@program(KEY, (3,))
def asian_option(jax, jnp, key, t):
    """By simulation, with its sensitivities."""

    def price(t):
        strike, v, r = jax.nn.sigmoid(t)
        z = jax.random.normal(key, (500, 50))
        paths = 100 * jnp.exp(jnp.cumsum((r * 0.1 - 0.5 * v**2) / 50 + v * jnp.sqrt(1 / 50) * z, 1))
        return jnp.mean(jnp.maximum(paths.mean(1) - 100 * strike, 0))

    return jax.value_and_grad(price)(t)


@program(KEY, differentiable=False)
def heston(jax, jnp, key):
    """A call option under stochastic volatility, by simulation."""

    def step(state, k):
        s, v = state
        z1, z2 = jax.random.normal(k, (2, 1000))
        vp = jnp.maximum(v, 0)
        s = s * jnp.exp(-0.5 * vp * 0.01 + jnp.sqrt(vp * 0.01) * z1)
        v = v + 2 * (0.04 - vp) * 0.01 + 0.3 * jnp.sqrt(vp * 0.01) * (-0.7 * z1 + jnp.sqrt(1 - 0.49) * z2)
        return (s, v), None

    (s, _), _ = jax.lax.scan(step, (jnp.full(1000, 100.0), jnp.full(1000, 0.04)), jax.random.split(key, 50))
    return jnp.maximum(s - 100, 0).mean()


@program((1,))
def binomial_tree(jax, jnp, x):
    """An American put."""
    n = 200
    u = jnp.exp(0.2 * jnp.sqrt(1 / n) + 0 * x[0])
    p = (jnp.exp(0.05 / n) - 1 / u) / (u - 1 / u)
    s = 100 * u ** (2 * jnp.arange(n + 1.0) - n)
    v = jnp.maximum(100 - s, 0)

    def step(i, v):
        c = jnp.exp(-0.05 / n) * (p * jnp.roll(v, -1) + (1 - p) * v)
        return jnp.maximum(c, 100 - s * u**i)

    return jax.lax.fori_loop(0, n, step, v)[0]


@program((5, 50))
def black_scholes_greeks(jax, jnp, x):
    s, k, t, r, v = jnp.exp(x * 0.1)

    def price(s, k, t, r, v):
        d1 = (jnp.log(s / k) + (r + v * v / 2) * t) / (v * jnp.sqrt(t))
        cdf = jax.scipy.stats.norm.cdf
        return s * cdf(d1) - k * jnp.exp(-r * t) * cdf(d1 - v * jnp.sqrt(t))

    first = jax.vmap(jax.grad(price, (0, 1, 2, 3, 4)))(s, k, t, r, v)
    return first, jax.vmap(jax.grad(jax.grad(price)))(s, k, t, r, v)


@program((5, 500))
def implied_volatility(jax, jnp, x):
    """Ten Newton steps, the derivative by jvp."""
    s, k, t, r, c = jnp.exp(x * 0.1)

    def price(v):
        d1 = (jnp.log(s / k) + (r + v * v / 2) * t) / (v * jnp.sqrt(t))
        cdf = jax.scipy.special.ndtr
        return s * cdf(d1) - k * jnp.exp(-r * t) * cdf(d1 - v * jnp.sqrt(t))

    def newton(i, v):
        p, g = jax.jvp(price, (v,), (jnp.ones(500),))
        return jnp.clip(v - (p - c) / jnp.maximum(g, 1e-4), 0.01, 5)

    return jax.lax.fori_loop(0, 10, newton, jnp.full(500, 0.5))


@program((250, 8))
def portfolio(jax, jnp, returns):
    """Of least variance, and by exponentiated gradients."""
    covariance = jnp.cov(returns.T)
    m = returns.mean(0)
    ones = jnp.ones(8)
    w = jnp.linalg.solve(covariance, ones)
    w = w / w.sum()

    def step(w, _):
        g = m - 5 * covariance @ w
        w = w * jnp.exp(0.1 * g)
        return w / w.sum(), None

    return w, jax.lax.scan(step, ones / 8, None, length=50)[0]


@program((200,))
def garch(jax, jnp, r):
    def loss(t):
        w, a, b = jax.nn.sigmoid(t) * jnp.array([0.1, 0.3, 0.9])

        def step(s, r):
            s = w + a * r**2 + b * s
            return s, jnp.log(s) + r**2 / s

        return jax.lax.scan(step, 1.0, r)[1].sum()

    return jax.value_and_grad(loss)(jnp.zeros(3))


@program((500,))
def weighted_volatility(jax, jnp, p):
    """Exponentially weighted, by an associative scan."""
    r = jnp.diff(jnp.cumsum(p * 0.01))
    combine = lambda a, b: (a[0] * b[0], b[0] * a[1] + b[1])
    v = jax.lax.associative_scan(combine, (jnp.full(499, 0.94), 0.06 * r * r))[1]
    return jnp.sqrt(v * 252)


@program((1000,))
def autocorrelation(jax, jnp, x):
    x = x - x.mean()
    f = jnp.fft.rfft(x, 2048)
    r = jnp.fft.irfft(f * f.conj())[:50]
    return r / r[0]


@program((120,))
def rolling_windows(jax, jnp, x):
    i = jnp.arange(111)[:, None] + jnp.arange(10)
    w = x[i]
    return w.mean(1), w.std(1), w.max(1), jnp.median(w, 1)


@program((100,))
def bollinger_bands(jax, jnp, p):
    m = jnp.convolve(p, jnp.ones(20) / 20, "valid")
    s = jnp.sqrt(jnp.maximum(jnp.convolve(p * p, jnp.ones(20) / 20, "valid") - m * m, 0))
    return m - 2 * s, m, m + 2 * s
