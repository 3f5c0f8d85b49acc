"""Solvers, factorizations, optimization and control."""

from __future__ import annotations

from benchmarks.written.kinds import KEY, definite, program


@program((100, 50), (100,))
def fista(jax, jnp, a, b):
    """Accelerated proximal gradients for a sparse solution."""
    lipschitz = jnp.linalg.norm(a, 2) ** 2

    def step(state, _):
        x, z, t = state
        g = z - a.T @ (a @ z - b) / lipschitz
        n = jnp.sign(g) * jnp.maximum(jnp.abs(g) - 0.1 / lipschitz, 0)
        t1 = (1 + jnp.sqrt(1 + 4 * t * t)) / 2
        return (n, n + (t - 1) / t1 * (n - x), t1), None

    return jax.lax.scan(step, (jnp.zeros(50), jnp.zeros(50), 1.0), None, length=30)[0][0]


@program((64, 64))
def sinkhorn(jax, jnp, cost):
    """Optimal transport with entropy, by logarithms."""
    cost = jnp.abs(cost)

    def step(state, _):
        f, g = state
        f = -0.1 * jax.nn.logsumexp((g[None] - cost) / 0.1 - jnp.log(64.0), 1)
        g = -0.1 * jax.nn.logsumexp((f[:, None] - cost) / 0.1 - jnp.log(64.0), 0)
        return (f, g), None

    (f, g), _ = jax.lax.scan(step, (jnp.zeros(64), jnp.zeros(64)), None, length=20)
    return jnp.sum(jnp.exp((f[:, None] + g - cost) / 0.1) * cost)


@program(KEY, (20,))
def covariance_adaptation(jax, jnp, key, m):
    """An evolution strategy on Rosenbrock's function."""
    w = jnp.log(6.0) - jnp.log(jnp.arange(1, 6.0))
    w = w / w.sum()
    rosenbrock = lambda x: jnp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)

    def step(state, k):
        m, c = state
        root = jnp.linalg.cholesky(c + 1e-6 * jnp.eye(20))
        z = jax.random.normal(k, (12, 20))
        x = m + 0.3 * z @ root.T
        f = jax.vmap(rosenbrock)(x)
        best = x[jnp.argsort(f)[:5]]
        d = best - m
        return (w @ best, 0.8 * c + 0.2 * (d.T * w) @ d / 0.09), f.min()

    return jax.lax.scan(step, (m, jnp.eye(20)), jax.random.split(key, 20))


@program(KEY, (30, 10))
def particle_swarm(jax, jnp, key, x):
    rastrigin = lambda x: jnp.sum(x**2 - 10 * jnp.cos(2 * jnp.pi * x) + 10, -1)

    def step(state, k):
        x, v, own, own_values = state
        best = own[own_values.argmin()]
        r = jax.random.uniform(k, (2, 30, 10))
        v = 0.7 * v + 1.5 * r[0] * (own - x) + 1.5 * r[1] * (best - x)
        x = x + v
        values = rastrigin(x)
        better = values < own_values
        own = jnp.where(better[:, None], x, own)
        new = jnp.where(better, values, own_values)
        return (x, v, own, new), own_values.min()

    return jax.lax.scan(step, (x, x * 0, x, rastrigin(x)), jax.random.split(key, 30))[1]


@program(KEY, (40,))
def simulated_annealing(jax, jnp, key, x):
    """A tour of forty places: two are swapped at a time."""
    d = jnp.abs(x[:, None] - x)

    def length(p):
        return d[p, jnp.roll(p, 1)].sum()

    def step(state, a):
        p, c = state
        k, t = a
        k1, k2 = jax.random.split(k)
        i, j = jax.random.randint(k1, (2,), 0, 40)
        q = p.at[i].set(p[j]).at[j].set(p[i])
        new = length(q)
        accepted = jax.random.uniform(k2) < jnp.exp((c - new) / t)
        return (jnp.where(accepted, q, p), jnp.where(accepted, new, c)), c

    p = jnp.arange(40)
    return jax.lax.scan(step, (p, length(p)), (jax.random.split(key, 200), jnp.geomspace(1, 0.01, 200)))[1]


@program((20, 20), (20,), (20,))
def newton_steps(jax, jnp, a, b, x):
    f = lambda x: jnp.log(jnp.exp(a @ x).sum()) + 0.5 * x @ x - b @ x
    return jax.lax.fori_loop(0, 5, lambda i, x: x - jnp.linalg.solve(jax.hessian(f)(x), jax.grad(f)(x)), x * 0.1)


@program((20,), (20, 20))
def gradient_descent(jax, jnp, x, a):
    step = lambda i, s: (s[0] - 0.01 * jax.grad(lambda x: ((a @ x - 1) ** 4).sum())(s[0]), s[1] + 1)
    return jax.lax.fori_loop(0, 10, step, (x * 0.1, 0))[0]


@program((4, 4), (4, 2))
def riccati(jax, jnp, a, b):
    """The gains of a linear quadratic regulator."""
    a = a * 0.5

    def step(p, _):
        gain = jnp.linalg.solve(jnp.eye(2) + b.T @ p @ b, b.T @ p @ a)
        return jnp.eye(4) + a.T @ p @ (a - b @ gain), gain

    return jax.lax.scan(step, jnp.eye(4), None, length=50)


@program((30, 1), (2,))
def shooting(jax, jnp, u, start):
    """Ten gradient steps for the controls of a pendulum."""

    def dynamics(x, u):
        return jnp.array([x[0] + 0.1 * x[1], x[1] + 0.1 * (jnp.sin(x[0]) + u[0])])

    def cost(u):
        def step(x, u):
            return dynamics(x, u), x @ x + 0.1 * u @ u

        x, c = jax.lax.scan(step, start, u)
        return c.sum() + 10 * x @ x

    def descent(u, _):
        g = jax.grad(cost)(u)
        return u - 0.01 * g, None

    return jax.lax.scan(descent, u, None, length=10)[0]


@program((30,), (30,))
def optimal_control(jax, jnp, u, v):
    """A Newton step: conjugate gradients with products of the Hessian."""

    def f(u):
        x = jax.lax.scan(lambda x, u: (x + 0.1 * jnp.array([x[1], u - x[0]]), x), jnp.array([1.0, 0]), u)[1]
        return (x**2).sum() + 0.1 * (u**2).sum()

    g = jax.grad(f)
    product = lambda v: jax.jvp(g, (u,), (v,))[1]
    return jax.scipy.sparse.linalg.cg(product, -g(u), maxiter=10)[0]


@program((100,), (100,))
def tridiagonal_solve(jax, jnp, b, d):
    """Thomas's algorithm: a scan forwards, and one backwards."""
    b = jnp.abs(b) + 3

    def forward(state, x):
        c, before = state
        b, d = x
        m = 1 / (b - c)
        return (m, (d - before) * m), (m, (d - before) * m)

    def backward(x, state):
        c, d = state
        x = d - c * x
        return x, x

    _, (c, d) = jax.lax.scan(forward, (0.0, 0.0), (b, d))
    return jax.lax.scan(backward, 0.0, (c, d), reverse=True)[1]


@program(definite(60))
def lanczos(jax, jnp, a):
    def step(state, _):
        v, p, b = state
        w = a @ v - b * p
        alpha = w @ v
        w = w - alpha * v
        b = jnp.linalg.norm(w)
        return (w / b, v, b), (alpha, b)

    _, (alpha, b) = jax.lax.scan(step, (jnp.ones(60) / 60**0.5, jnp.zeros(60), 0.0), None, length=15)
    return jnp.linalg.eigvalsh(jnp.diag(alpha) + jnp.diag(b[:-1], 1) + jnp.diag(b[:-1], -1))


@program(definite(40))
def qr_iteration(jax, jnp, a):
    def step(a, _):
        q, r = jnp.linalg.qr(a)
        return r @ q, None

    return jnp.diag(jax.lax.scan(step, a, None, length=10)[0])


@program((30, 30))
def newton_schulz(jax, jnp, g):
    """A matrix is made orthogonal, as in the optimizer Muon."""
    x = g / jnp.linalg.norm(g)
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.775 * a + 2.0315 * a @ a) @ x
    return x


@program((50, 50))
def matrix_square_root(jax, jnp, a):
    a = a @ a.T / 50 + jnp.eye(50)
    n = jnp.linalg.norm(a)
    y, z = a / n, jnp.eye(50)
    for _ in range(8):
        t = 0.5 * (3 * jnp.eye(50) - z @ y)
        y, z = y @ t, t @ z
    return y * jnp.sqrt(n)


@program((21, 21))
def finite_elements(jax, jnp, source):
    """Poisson's equation on triangles: matrices of all elements, assembled and solved."""
    i, j = jnp.meshgrid(jnp.arange(20), jnp.arange(20), indexing="ij")
    corner = (i * 21 + j).ravel()
    lower = jnp.stack([corner, corner + 21, corner + 1], 1)
    upper = jnp.stack([corner + 22, corner + 1, corner + 21], 1)
    elements = jnp.concatenate([lower, upper])
    points = jnp.stack(jnp.meshgrid(jnp.linspace(0, 1, 21), jnp.linspace(0, 1, 21), indexing="ij"), -1).reshape(-1, 2)

    def element(nodes):
        p = points[nodes]
        edges = jnp.stack([p[1] - p[0], p[2] - p[0]], 1)
        gradients = jnp.array([[-1.0, -1.0], [1.0, 0.0], [0.0, 1.0]]) @ jnp.linalg.inv(edges)
        area = 0.5 * jnp.abs(jnp.linalg.det(edges))
        return area * gradients @ gradients.T, area / 3 * source.ravel()[nodes]

    stiffness, load = jax.vmap(element)(elements)
    k = jnp.zeros((441, 441)).at[elements[:, :, None], elements[:, None, :]].add(stiffness)
    f = jnp.zeros(441).at[elements].add(load)
    edge = ((points == 0) | (points == 1)).any(1)
    k = jnp.where(edge[:, None] | edge, jnp.eye(441), k)
    return jnp.linalg.solve(k, jnp.where(edge, 0.0, f))


@program((40, 40), (39, 39))
def elements_without_matrix(jax, jnp, source, conductivity):
    """Forty steps of conjugate gradients; the product gathers and scatters elements of four nodes."""
    i, j = jnp.meshgrid(jnp.arange(39), jnp.arange(39), indexing="ij")
    corner = (i * 40 + j).ravel()
    nodes = jnp.stack([corner, corner + 1, corner + 40, corner + 41], 1)
    local = jnp.array([[4.0, -1, -1, -2], [-1, 4, -2, -1], [-1, -2, 4, -1], [-2, -1, -1, 4]]) / 6
    weights = jnp.exp(0.5 * conductivity).ravel()
    inner = jnp.zeros((40, 40)).at[1:-1, 1:-1].set(1.0).ravel()

    def product(u):
        return jnp.zeros(1600).at[nodes].add(weights[:, None] * (u * inner)[nodes] @ local) * inner + (1 - inner) * u

    u, _ = jax.scipy.sparse.linalg.cg(product, source.ravel() * inner, maxiter=40)
    return u.reshape(40, 40)


@program((30, 2))
def truss(jax, jnp, noise):
    """The compliance of a bridge of bars, and its gradient by the places of the joints."""
    k = jnp.arange(30)
    places = jnp.stack([k // 2, k % 2], 1) * 1.0
    bars = [(a, b) for a in range(30) for b in (a + 1, a + 2, a + 3) if b < 30 and not (a % 2 == 1 and b == a + 1)]
    start, end = jnp.array(bars).T

    def compliance(p):
        d = p[end] - p[start]
        length = jnp.linalg.norm(d, axis=1, keepdims=True)
        u = d / length
        block = u[:, :, None] * u[:, None, :] / length[..., None]
        at = lambda a, b: (2 * a[:, None, None] + jnp.arange(2)[:, None], 2 * b[:, None, None] + jnp.arange(2))
        s = jnp.zeros((60, 60))
        s = s.at[at(start, start)].add(block).at[at(end, end)].add(block)
        s = s.at[at(start, end)].add(-block).at[at(end, start)].add(-block)
        load = jnp.zeros(60).at[29].set(-1.0)
        fixed = jnp.zeros(60, bool).at[jnp.array([0, 1, 2, 3, 56, 57, 58, 59])].set(True)
        s = jnp.where(fixed[:, None] | fixed, jnp.eye(60), s)
        return load @ jnp.linalg.solve(s, load)

    return jax.value_and_grad(compliance)(places + 0.05 * noise)


@program((3, 48), (48, 48))
def wasserstein_barycenter(jax, jnp, histograms, noise):
    """Of three histograms, by iterated projections."""
    x = jnp.linspace(0, 1, 48)
    kernel = jnp.exp(-((x[:, None] - x) ** 2) / 0.01)
    h = jax.nn.softmax(histograms, axis=1)

    def step(v, _):
        u = h / (v @ kernel)
        spread = u @ kernel
        mean = jnp.exp(jnp.log(spread).mean(0))
        return mean / spread, mean

    return jax.lax.scan(step, jnp.ones((3, 48)), None, length=40)[1][-1]


@program((400, 200), (400,))
def normal_equations(jax, jnp, a, b):
    """Least squares by conjugate gradients, without a matrix of products."""

    def step(_, state):
        x, r, p, rr = state
        q = a.T @ (a @ p) + 0.1 * p
        alpha = rr / (p @ q)
        r1 = r - alpha * q
        new = r1 @ r1
        return x + alpha * p, r1, r1 + new / rr * p, new

    r = a.T @ b
    return jax.lax.fori_loop(0, 25, step, (jnp.zeros(200), r, r, r @ r))[0]


@program((40, 50, 60), (50,), (60,))
def rank_one_tensor(jax, jnp, t, v, w):
    """The best product of three vectors for a tensor, one vector after the other."""
    unit = lambda x: x / jnp.linalg.norm(x)

    def step(state, _):
        v, w = state
        u = unit(jnp.einsum("ijk,j,k->i", t, v, w))
        v = unit(jnp.einsum("ijk,i,k->j", t, u, w))
        w = jnp.einsum("ijk,i,j->k", t, u, v)
        return (v, unit(w)), jnp.linalg.norm(w)

    return jax.lax.scan(step, (unit(v), unit(w)), None, length=10)[1]
