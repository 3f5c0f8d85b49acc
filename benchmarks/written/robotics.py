"""Robots: kinematics, localization, planning, model predictive control."""

from __future__ import annotations

from benchmarks.written.kinds import KEY, definite, integers, program


def joint(jnp, angle, twist, offset, length):
    """The motion of one joint, by Denavit and Hartenberg's parameters."""
    c, s, ct, st = jnp.cos(angle), jnp.sin(angle), jnp.cos(twist), jnp.sin(twist)
    return jnp.array([
        [c, -s * ct, s * st, length * c],
        [s, c * ct, -c * st, length * s],
        [0.0, st, ct, offset],
        [0.0, 0.0, 0.0, 1.0],
    ])  # fmt: skip


@program((32, 7), (32, 3))
def inverse_kinematics(jax, jnp, angles, targets):
    """Damped least squares for an arm of seven joints, thirty-two targets at once."""
    twists = jnp.array([-1.57, 1.57, 1.57, -1.57, -1.57, 1.57, 0.0])
    offsets = jnp.array([0.3, 0.0, 0.4, 0.0, 0.4, 0.0, 0.1])

    def hand(q):
        pose = jnp.eye(4)
        for i in range(7):
            pose = pose @ joint(jnp, q[i], twists[i], offsets[i], 0.05)
        return pose[:3, 3]

    def solve(q, target):
        def step(q, _):
            e = target - hand(q)
            j = jax.jacfwd(hand)(q)
            return q + j.T @ jnp.linalg.solve(j @ j.T + 0.01 * jnp.eye(3), e), jnp.linalg.norm(e)

        return jax.lax.scan(step, q, None, length=10)

    return jax.vmap(solve)(angles, 0.4 * targets)


@program((40, 2), (4,))
def iterative_lqr(jax, jnp, controls, start):
    """A car parks: linearize, solve backwards, roll out; four times."""

    def dynamics(x, u):
        return x + 0.1 * jnp.array([x[3] * jnp.cos(x[2]), x[3] * jnp.sin(x[2]), x[3] * jnp.tanh(u[0]), u[1]])

    def cost(x, u):
        return 0.1 * (x**2).sum() + 0.01 * (u**2).sum()

    def rollout(us):
        return jax.lax.scan(lambda x, u: (dynamics(x, u), x), start, us)

    def improve(us, _):
        last, xs = rollout(us)
        a, b = jax.vmap(jax.jacfwd(dynamics, (0, 1)))(xs, us)
        lx, lu = jax.vmap(jax.grad(cost, (0, 1)))(xs, us)
        (lxx, lxu), (_, luu) = jax.vmap(jax.hessian(cost, (0, 1)))(xs, us)

        def backward(state, t):
            vx, vxx = state
            a, b, lx, lu, lxx, lxu, luu = t
            qx, qu = lx + a.T @ vx, lu + b.T @ vx
            qxx, quu, qux = lxx + a.T @ vxx @ a, luu + b.T @ vxx @ b, lxu.T + b.T @ vxx @ a
            quu = quu + 1e-2 * jnp.eye(2)
            k, gain = -jnp.linalg.solve(quu, qu), -jnp.linalg.solve(quu, qux)
            return (qx + qux.T @ k, qxx + qux.T @ gain), (k, gain)

        _, (ks, gains) = jax.lax.scan(backward, (2 * last, 2 * jnp.eye(4)), (a, b, lx, lu, lxx, lxu, luu), reverse=True)

        def forward(x, t):
            old, u, k, gain = t
            u = u + 0.5 * k + gain @ (x - old)
            return dynamics(x, u), (u, cost(x, u))

        _, (us, costs) = jax.lax.scan(forward, start, (xs, us, ks, gains))
        return us, costs.sum()

    return jax.lax.scan(improve, 0.1 * controls, None, length=4)


@program((30, 2), KEY)
def path_integral_control(jax, jnp, plan, key):
    """Model predictive control by 256 random plans of thirty steps, weighted by their costs."""

    def dynamics(x, u):
        return jnp.array([x[0] + 0.1 * x[2], x[1] + 0.1 * x[3], x[2] + 0.1 * u[0], x[3] + 0.1 * u[1]])

    def cost(us):
        def step(x, u):
            x = dynamics(x, u)
            obstacle = jnp.exp(-4 * ((x[:2] - jnp.array([1.0, 1.0])) ** 2).sum())
            return x, ((x[:2] - 2.0) ** 2).sum() + 10 * obstacle + 0.01 * (u**2).sum()

        return jax.lax.scan(step, jnp.zeros(4), us)[1].sum()

    def improve(plan, k):
        noise = jax.random.normal(k, (256, 30, 2))
        costs = jax.vmap(cost)(plan + noise)
        w = jax.nn.softmax(-0.1 * (costs - costs.min()))
        return plan + jnp.einsum("n,nti->ti", w, noise), costs.min()

    return jax.lax.scan(improve, 0.1 * plan, jax.random.split(key, 5))


@program((60, 3), integers(2, 120, high=60), (120, 3))
def pose_graph(jax, jnp, poses, edges, measured):
    """Two Gauss-Newton steps for sixty poses in the plane and 120 relative measurements."""

    def residuals(flat):
        p = flat.reshape(60, 3)
        a, b = p[edges[0]], p[edges[1]]
        c, s = jnp.cos(a[:, 2]), jnp.sin(a[:, 2])
        d = b[:, :2] - a[:, :2]
        turn = b[:, 2] - a[:, 2] - measured[:, 2]
        turn = (turn + jnp.pi) % (2 * jnp.pi) - jnp.pi
        moved = jnp.stack([c * d[:, 0] + s * d[:, 1], -s * d[:, 0] + c * d[:, 1]], 1) - measured[:, :2]
        return jnp.concatenate([moved.ravel(), turn, 0.1 * p[0]])

    flat = poses.ravel()
    for _ in range(2):
        j = jax.jacrev(residuals)(flat)
        flat = flat - jnp.linalg.solve(j.T @ j + 1e-2 * jnp.eye(180), j.T @ residuals(flat))
    return flat.reshape(60, 3), (residuals(flat) ** 2).sum()


@program((100, 2), (100, 5), (5, 2))
def extended_kalman_filter(jax, jnp, controls, ranges, landmarks):
    """A robot finds its place from distances to five landmarks."""

    def move(x, u):
        return x + 0.1 * jnp.array([u[0] * jnp.cos(x[2]), u[0] * jnp.sin(x[2]), u[1]])

    def see(x):
        return jnp.linalg.norm(landmarks * 5 - x[:2], axis=1)

    def step(state, t):
        m, p = state
        u, z = t
        f = jax.jacfwd(move)(m, u)
        m, p = move(m, u), f @ p @ f.T + 0.01 * jnp.eye(3)
        h = jax.jacfwd(see)(m)
        s = h @ p @ h.T + jnp.eye(5)
        gain = p @ h.T @ jnp.linalg.inv(s)
        m = m + gain @ (0.1 * z)
        p = (jnp.eye(3) - gain @ h) @ p
        return (m, p), (m, jnp.trace(p))

    return jax.lax.scan(step, (jnp.zeros(3), jnp.eye(3)), (controls, ranges))


@program(definite(40), (40,), (40,))
def box_quadratic_program(jax, jnp, h, g, x):
    """The plan of a predictive controller with bounds: sixty steps of the alternating direction method."""
    factor = jax.scipy.linalg.cho_factor(h / 40 + jnp.eye(40))

    def step(state, _):
        z, u = state
        x = jax.scipy.linalg.cho_solve(factor, z - u - g)
        z = jnp.clip(x + u, -0.3, 0.3)
        return (z, u + x - z), jnp.abs(x - z).max()

    return jax.lax.scan(step, (x * 0, x * 0), None, length=60)


@program((100, 4), (100, 3))
def tumbling_bodies(jax, jnp, q, w):
    """A hundred rigid bodies in space: quaternions and turning rates, by Runge and Kutta."""
    inertia = jnp.array([1.0, 2.0, 3.0])

    def rate(state):
        q, w = state
        a, b, c, d = q
        x, y, z = w
        dq = 0.5 * jnp.array([-b * x - c * y - d * z, a * x + c * z - d * y, a * y - b * z + d * x, a * z + b * y - c * x])
        return dq, -jnp.cross(w, inertia * w) / inertia

    def body(q, w):
        def step(s, _):
            add = lambda k, h: jax.tree.map(lambda x, d: x + h * d, s, k)
            k1 = rate(s)
            k2 = rate(add(k1, 0.01))
            k3 = rate(add(k2, 0.01))
            k4 = rate(add(k3, 0.02))
            q, w = jax.tree.map(lambda x, a, b, c, d: x + 0.02 / 6 * (a + 2 * b + 2 * c + d), s, k1, k2, k3, k4)
            return (q / jnp.linalg.norm(q), w), 0.5 * (inertia * w**2).sum()

        return jax.lax.scan(step, (q / jnp.linalg.norm(q), w), None, length=30)

    return jax.vmap(body)(q, w)


@program((3,), (72,))
def occupancy_grid(jax, jnp, pose, ranges):
    """The beams of a scanner mark cells of a map as free, and their ends as occupied."""
    x, y, heading = 0.1 * pose
    angles = heading + jnp.linspace(0, 2 * jnp.pi, 72, endpoint=False)
    r = 2 + jnp.abs(ranges)
    along = jnp.linspace(0, 0.95, 40)[:, None] * r
    cell = lambda p: jnp.clip((p * 8 + 40).astype(int), 0, 79)
    i, j = cell(y + along * jnp.sin(angles)), cell(x + along * jnp.cos(angles))
    grid = jnp.zeros((80, 80)).at[i, j].add(-0.4)
    grid = grid.at[cell(y + r * jnp.sin(angles)), cell(x + r * jnp.cos(angles))].add(0.9)
    return jax.nn.sigmoid(jnp.clip(grid, -5, 5))


@program((150, 3), (150, 3))
def iterative_closest_points(jax, jnp, a, b):
    """Scans are laid over one another: nearest points, then the best rotation; five times."""

    def step(a, _):
        d = ((a[:, None] - b) ** 2).sum(-1)
        nearest = b[d.argmin(1)]
        ma, mb = a.mean(0), nearest.mean(0)
        u, _, v = jnp.linalg.svd((a - ma).T @ (nearest - mb))
        turn = u @ jnp.diag(jnp.array([1.0, 1.0, 0.0]).at[2].set(jnp.linalg.det(u @ v))) @ v
        return (a - ma) @ turn + mb, d.min(1).mean()

    return jax.lax.scan(step, a, None, length=5)
