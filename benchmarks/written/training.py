"""Steps of training, and whole trainings of small models."""

from __future__ import annotations

from benchmarks.written.kinds import KEY, integers, program, runge_kutta


@program((16, 28, 28, 1), (3, 3, 1, 8), (3, 3, 8, 16), (784, 10), integers(16))
def convolutional_step(jax, jnp, x, a, b, c, y):
    def loss(p):
        a, b, c = p
        h = x
        for w in (a, b):
            h = jax.lax.conv_general_dilated(h, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
            h = jax.nn.relu(h)
            h = jax.lax.reduce_window(h, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        return -jnp.take_along_axis(jax.nn.log_softmax(h.reshape(16, -1) @ c), (y % 10)[:, None], 1).mean()

    value, g = jax.value_and_grad(loss)((a * 0.1, b * 0.1, c * 0.1))
    return value, jax.tree.map(lambda p, g: p - 0.1 * g, (a, b, c), g)


@program((64, 20), (20, 64), (64, 8), (8, 64), (64, 20), KEY)
def variational_autoencoder(jax, jnp, x, a, b, c, d, key):
    def loss(p):
        a, b, c, d = p
        h = jnp.tanh(x @ a) @ b
        mu, log_var = h[:, :4], h[:, 4:]
        z = mu + jnp.exp(0.5 * log_var) * jax.random.normal(key, mu.shape)
        r = jax.nn.relu(z @ c[:4]) @ d
        return ((x - r) ** 2).sum(1).mean() - 0.5 * (1 + log_var - mu**2 - jnp.exp(log_var)).sum(1).mean()

    return jax.value_and_grad(loss)((a, b, c, d))


@program((64, 20), KEY, (20, 64), (64, 1), (8, 64), (64, 20))
def adversarial_step(jax, jnp, x, key, a, b, c, d):
    generated = lambda p, z: jnp.tanh(jax.nn.leaky_relu(z @ p[0]) @ p[1])
    judged = lambda p, x: (jax.nn.leaky_relu(x @ p[0], 0.2) @ p[1])[:, 0]
    z = jax.random.normal(key, (64, 8))
    cross_entropy = lambda l, t: jnp.mean(jnp.maximum(l, 0) - l * t + jnp.log1p(jnp.exp(-jnp.abs(l))))

    def judge_loss(p):
        return cross_entropy(judged(p, x), 1.0) + cross_entropy(judged(p, generated((c, d), z)), 0.0)

    def generator_loss(p):
        return cross_entropy(judged((a, b), generated(p, z)), 1.0)

    judge_value, judge_gradient = jax.value_and_grad(judge_loss)((a, b))
    value, gradient = jax.value_and_grad(generator_loss)((c, d))
    return judge_value, value, judge_gradient, gradient


@program((64, 8), KEY, (9, 64), (64, 64), (64, 8))
def diffusion_step(jax, jnp, x, key, a, b, c):
    """The noise that was added is predicted."""

    def loss(p):
        k1, k2 = jax.random.split(key)
        t = jax.random.randint(k1, (64,), 0, 100)
        noise = jax.random.normal(k2, x.shape)
        kept = jnp.cumprod(1 - jnp.linspace(1e-4, 0.02, 100))[t][:, None]
        noisy = jnp.sqrt(kept) * x + jnp.sqrt(1 - kept) * noise
        h = jnp.concatenate([noisy, t[:, None] / 100], 1)
        h = jax.nn.silu(h @ p[0])
        h = jax.nn.silu(h @ p[1])
        return ((h @ p[2] - noise) ** 2).mean()

    return jax.value_and_grad(loss)((a, b, c))


@program((200, 2), (4, 1, 16), (4, 16, 2))
def coupling_flow(jax, jnp, x, a, b):
    """The likelihood under a normalizing flow of four coupling layers."""

    def loss(params):
        w1, w2 = params
        z = x
        log_det = 0.0
        for i in range(4):
            kept, changed = (z[:, :1], z[:, 1:]) if i % 2 == 0 else (z[:, 1:], z[:, :1])
            st = jnp.tanh(kept @ w1[i]) @ w2[i]
            s, t = jnp.tanh(st[:, :1]), st[:, 1:]
            changed = changed * jnp.exp(s) + t
            log_det = log_det + s[:, 0]
            z = jnp.concatenate([kept, changed] if i % 2 == 0 else [changed, kept], 1)
        return -(jax.scipy.stats.norm.logpdf(z).sum(1) + log_det).mean()

    return jax.value_and_grad(loss)((a, b))


@program(integers(4, 32), (20, 64), (64, 192), (64, 64), (64, 256), (256, 64))
def language_model(jax, jnp, tokens, embedding, w, o, up, down):
    """Two layers of a transformer that share their weights: loss and gradients."""

    def norm(x):
        return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)

    def loss(p):
        embedding, w, o, up, down = p
        x = embedding[tokens]
        for _ in range(2):
            q, k, v = jnp.split(norm(x) @ w, 3, -1)
            heads = lambda z: z.reshape(4, 32, 4, 16).transpose(0, 2, 1, 3)
            a = heads(q) @ heads(k).swapaxes(-1, -2) / 4
            a = jax.nn.softmax(jnp.where(jnp.tri(32) == 0, -1e9, a))
            x = x + (a @ heads(v)).transpose(0, 2, 1, 3).reshape(4, 32, 64) @ o
            x = x + jax.nn.gelu(norm(x) @ up) @ down
        log_p = jax.nn.log_softmax(norm(x) @ embedding.T)
        return -jnp.take_along_axis(log_p[:, :-1], tokens[:, 1:, None], -1).mean()

    return jax.value_and_grad(loss)(tuple(0.1 * p for p in (embedding, w, o, up, down)))


@program((32, 100), (100, 50), (50, 50), (50, 10), integers(32))
def adamw_step(jax, jnp, x, a, b, c, y):
    """A classifier with clipped gradients and decay of weights."""

    def loss(p):
        h = jax.nn.relu(x @ p[0])
        h = jax.nn.relu(h @ p[1])
        return -jnp.mean(jax.nn.log_softmax(h @ p[2])[jnp.arange(32), y % 10])

    p = (a, b, c)
    m = jax.tree.map(jnp.zeros_like, p)
    v = jax.tree.map(jnp.zeros_like, p)
    value, g = jax.value_and_grad(loss)(p)
    norm = jnp.sqrt(sum(jnp.sum(x * x) for x in g))
    g = jax.tree.map(lambda x: x * jnp.minimum(1, 1 / norm), g)
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
    v = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, v, g)
    return jax.tree.map(lambda p, m, v: p - 1e-3 * (m / (jnp.sqrt(v) + 1e-8) + 0.01 * p), p, m, v), value


@program((100, 13), (13, 20), (20,), (20, 1), (100,))
def regression_step(jax, jnp, x, a, b, c, y):
    def loss(p):
        h = jnp.tanh(x @ p[0] + p[1])
        return jnp.mean((y - (h @ p[2])[:, 0]) ** 2)

    value, g = jax.value_and_grad(loss)((a, b, c))
    return jax.tree.map(lambda p, g: p - 0.01 * g, (a, b, c), g)


@program((100, 13), (13, 20), (20,), (20, 1), (100,))
def regression_epochs(jax, jnp, x, a, b, c, y):
    def loss(p):
        h = jnp.tanh(x @ p[0] + p[1])
        return jnp.mean((y - (h @ p[2])[:, 0]) ** 2)

    step = lambda i, p: jax.tree.map(lambda p, g: p - 0.01 * g, p, jax.grad(loss)(p))
    return jax.lax.fori_loop(0, 50, step, (a, b, c))


@program((50, 10), (10, 30), (30,), (30, 3), (3,), integers(50))
def classifier_gradient(jax, jnp, x, a, b, c, d, y):
    def loss(p):
        a, b, c, d = p
        h = jax.nn.sigmoid(x @ a + b)
        z = h @ c + d
        return jnp.mean(jax.nn.logsumexp(z, 1) - jnp.take_along_axis(z, (y % 3)[:, None], 1)[:, 0])

    return jax.value_and_grad(loss)((a, b, c, d))


@program((6, 100))
def adam_fit(jax, jnp, d):
    """A hundred steps for four parameters of a curve."""
    x, y = d[0], d[1]

    def loss(p):
        return ((p[0] * jnp.exp(-p[1] * x**2) + p[2] * jnp.sin(p[3] * x) - y) ** 2).mean()

    def step(state, i):
        p, m, v = state
        g = jax.grad(loss)(p)
        m = 0.9 * m + 0.1 * g
        v = 0.999 * v + 0.001 * g * g
        p = p - 0.01 * (m / (1 - 0.9 ** (i + 1))) / (jnp.sqrt(v / (1 - 0.999 ** (i + 1))) + 1e-8)
        return (p, m, v), loss(state[0])

    return jax.lax.scan(step, (jnp.ones(4), jnp.zeros(4), jnp.zeros(4)), jnp.arange(100))[1]


@program((2,), (2, 16), (16, 2))
def neural_ode(jax, jnp, x, a, b):
    def loss(p):
        f = lambda x: jnp.tanh(x @ p[0]) @ p[1]

        def step(x, _):
            x = runge_kutta(f, x, 0.1)
            return x, x

        return (jax.lax.scan(step, x, None, length=20)[1] ** 2).mean()

    return jax.value_and_grad(loss)((a, b))


@program(integers(2, 2000), (400, 16), (16, 16))
def graph_convolution(jax, jnp, edges, x, w):
    e = (edges * 401 + jnp.arange(2000)) % 400
    degree = jnp.zeros(400).at[e[1]].add(1.0) + 1

    def layer(h, w):
        h = h @ w
        sent = h[e[0]] / jnp.sqrt(degree[e[0]])[:, None]
        n = jax.ops.segment_sum(sent, e[1], 400) / jnp.sqrt(degree)[:, None]
        return jax.nn.relu(n + h / degree[:, None])

    return jax.value_and_grad(lambda w: (layer(layer(x, w), w) ** 2).mean())(w)


@program(integers(2, 2000), (400, 16), (16, 16), (32,))
def graph_attention(jax, jnp, edges, x, w, a):
    e = (edges * 401 + jnp.arange(2000)) % 400

    def loss(w):
        h = x @ w
        s = jax.nn.leaky_relu(jnp.concatenate([h[e[0]], h[e[1]]], 1) @ a, 0.2)
        m = jax.ops.segment_max(s, e[1], 400)
        p = jnp.exp(s - m[e[1]])
        z = jax.ops.segment_sum(p, e[1], 400)
        return (jax.ops.segment_sum((p / z[e[1]])[:, None] * h[e[0]], e[1], 400) ** 2).mean()

    return jax.value_and_grad(loss)(w)


@program((32, 2), (2, 32), (32, 32), (32, 2), KEY)
def continuous_flow(jax, jnp, x, w1, w2, w3, key):
    """The likelihood under a flow in continuous time: the trace of the Jacobian by random signs, Euler steps, gradients."""
    signs = jax.random.rademacher(key, x.shape, jnp.float32)

    def loss(p):
        field = lambda z: jnp.tanh(jnp.tanh(z @ p[0]) @ p[1] * 0.2) @ p[2] * 0.2

        def step(state, _):
            z, log_det = state
            dz, product = jax.jvp(field, (z,), (signs,))
            return (z + 0.1 * dz, log_det + 0.1 * (product * signs).sum(1)), None

        (z, log_det), _ = jax.lax.scan(step, (x, jnp.zeros(32)), None, length=10)
        return (0.5 * (z**2).sum(1) - log_det).mean()

    return jax.value_and_grad(loss)((w1, w2, w3))


@program((200,), (8, 10), (8, 10), (8, 9))
def spline_flow(jax, jnp, x, widths, heights, slopes):
    """Eight layers of monotone rational splines of ten pieces, and their log determinants."""

    def layer(state, t):
        x, log_det = state
        widths, heights, slopes = t
        w, h = 0.05 + 0.5 * jax.nn.softmax(widths), 0.05 + 0.5 * jax.nn.softmax(heights)
        xs, ys = jnp.pad(jnp.cumsum(w), (1, 0)), jnp.pad(jnp.cumsum(h), (1, 0))
        d = jnp.pad(0.1 + jax.nn.softplus(slopes), 1, constant_values=1.0)
        i = jnp.clip(jnp.searchsorted(xs, x) - 1, 0, 9)
        s = (h / w)[i]
        t = jnp.clip((x - xs[i]) / w[i], 0, 1)
        below = s + (d[i + 1] + d[i] - 2 * s) * t * (1 - t)
        y = ys[i] + h[i] * (s * t**2 + d[i] * t * (1 - t)) / below
        slope = s**2 * (d[i + 1] * t**2 + 2 * s * t * (1 - t) + d[i] * (1 - t) ** 2) / below**2
        return (y, log_det + jnp.log(slope)), None

    return jax.lax.scan(layer, (jax.nn.sigmoid(x), jnp.zeros(200)), (widths, heights, slopes))[0]


@program((16, 8), (9, 64), (64, 64), (64, 8))
def diffusion_sampling(jax, jnp, x, w1, w2, w3):
    """Twenty-five deterministic steps from noise, guided by two predictions."""
    kept = jnp.cumprod(1 - jnp.linspace(1e-4, 0.04, 100))
    times = jnp.arange(99, 2, -4)

    def predicted(x, t):
        h = jnp.concatenate([x, jnp.full((16, 1), t / 100)], 1)
        return jax.nn.silu(jax.nn.silu(h @ w1 * 0.3) @ w2 * 0.1) @ w3 * 0.1

    def step(x, t):
        noise = 2.0 * predicted(x, t) - 1.0 * predicted(0.9 * x, t)
        a, b = kept[t], kept[jnp.maximum(t - 4, 0)]
        clean = jnp.clip((x - jnp.sqrt(1 - a) * noise) / jnp.sqrt(a), -3, 3)
        return jnp.sqrt(b) * clean + jnp.sqrt(1 - b) * noise, None

    return jax.lax.scan(step, x, times)[0]


@program(integers(2, 1500, high=300), (300, 16), (1500, 8), (40, 32), (32, 16), (32, 16))
def message_passing(jax, jnp, edges, x, features, w1, w2, w3):
    """Two rounds on a graph with features on edges, means, and a norm of layers; loss and gradients."""
    count = jax.ops.segment_sum(jnp.ones(1500), edges[1], 300)[:, None] + 1

    def loss(p):
        w1, w2, w3 = p
        h = x
        for _ in range(2):
            m = jnp.concatenate([h[edges[0]], h[edges[1]], features], 1)
            m = jax.nn.relu(m @ w1 * 0.2) @ w2 * 0.2
            gathered = jax.ops.segment_sum(m, edges[1], 300) / count
            h = h + jnp.tanh(jnp.concatenate([h, gathered], 1) @ w3 * 0.2)
            h = (h - h.mean(1, keepdims=True)) / jnp.sqrt(h.var(1, keepdims=True) + 1e-5)
        return (h.mean(0) ** 2).sum()

    return jax.value_and_grad(loss)((w1, w2, w3))
