"""Particles, oscillators, spins and quantum states."""

from __future__ import annotations

from benchmarks.written.kinds import KEY, definite, program, runge_kutta


@program((256, 2), (256, 2))
def smoothed_particles(jax, jnp, x, v):
    """A fluid of particles that feel the density around them."""

    def step(i, state):
        x, v = state
        d = x[:, None] - x[None]
        r2 = (d**2).sum(-1)
        q = jnp.maximum(0, 1 - r2)
        rho = (q**3).sum(1)
        p = rho - 2.0
        m = (p[:, None] / rho[:, None] ** 2 + p[None] / rho[None] ** 2) * q**2
        a = (m[..., None] * d).sum(1) - 0.1 * v
        v = v + 0.01 * a
        return x + 0.01 * v, v

    return jax.lax.fori_loop(0, 5, step, (x, v))


@program((128, 128), KEY)
def ising(jax, jnp, s, key):
    """Metropolis sweeps over the two colours of a chessboard."""
    s = jnp.sign(s)
    colour_of = jnp.indices((128, 128)).sum(0) % 2

    def sweep(s, k):
        for colour in (0, 1):
            k, a = jax.random.split(k)
            around = jnp.roll(s, 1, 0) + jnp.roll(s, -1, 0) + jnp.roll(s, 1, 1) + jnp.roll(s, -1, 1)
            accepted = jax.random.uniform(a, s.shape) < jnp.exp(-2 * 0.44 * s * around)
            s = jnp.where(accepted & (colour_of == colour), -s, s)
        return s, s.mean()

    return jax.lax.scan(sweep, s, jax.random.split(key, 10))


@program((30, 3), (30, 3))
def gravity_leapfrog(jax, jnp, x, v):
    def acceleration(x):
        d = x[None] - x[:, None]
        r = (d**2).sum(-1) + 0.01
        return (d / r[..., None] ** 1.5).sum(1)

    def step(state, _):
        x, v = state
        v = v + 0.005 * acceleration(x)
        x = x + 0.01 * v
        v = v + 0.005 * acceleration(x)
        return (x, v), 0.5 * (v**2).sum()

    return jax.lax.scan(step, (x, v), None, length=50)


@program((40, 3))
def lennard_jones_forces(jax, jnp, x):
    def energy(x):
        d = x[:, None] - x[None]
        r2 = jnp.where(jnp.eye(40, dtype=bool), 1.0, (d**2).sum(-1))
        i6 = 1 / r2**3
        return 0.5 * jnp.where(jnp.eye(40, dtype=bool), 0.0, 4 * (i6**2 - i6)).sum()

    return jax.value_and_grad(energy)(x * 3)


@program((100, 3))
def coulomb_forces(jax, jnp, x):
    return -jax.grad(lambda x: (1 / jnp.sqrt(((x[:, None] - x[None]) ** 2).sum(-1) + 1.0)).sum())(x)


@program((2,))
def double_pendulum(jax, jnp, q):
    """Lagrange's equations by derivatives of the Lagrangian, and Runge-Kutta steps."""

    def lagrangian(q, velocity):
        t1, t2 = q
        w1, w2 = velocity
        kinetic = 0.5 * (2 * w1**2 + w2**2 + 2 * w1 * w2 * jnp.cos(t1 - t2))
        return kinetic + 9.8 * (2 * jnp.cos(t1) + jnp.cos(t2))

    def f(state):
        q, velocity = state[:2], state[2:]
        mass = jax.hessian(lagrangian, 1)(q, velocity)
        force = jax.grad(lagrangian, 0)(q, velocity) - jax.jacfwd(jax.grad(lagrangian, 1), 0)(q, velocity) @ velocity
        return jnp.concatenate([velocity, jnp.linalg.solve(mass, force)])

    def step(s, _):
        s = runge_kutta(f, s, 0.01)
        return s, s

    return jax.lax.scan(step, jnp.concatenate([q, q * 0]), None, length=50)[1]


@program((100, 2), (100, 2))
def boids(jax, jnp, x, v):
    """A flock: cohesion, alignment, separation."""

    def step(state, _):
        x, v = state
        d = x[None] - x[:, None]
        r = jnp.sqrt((d**2).sum(-1) + 1e-6)
        near = (r < 0.5)[..., None]
        count = near.sum(1)
        cohesion = jnp.where(near, d, 0).sum(1) / count
        alignment = jnp.where(near, v[None], 0).sum(1) / count - v
        separation = -jnp.where((r < 0.1)[..., None], d, 0).sum(1)
        v = v + 0.01 * cohesion + 0.1 * alignment + 0.05 * separation
        v = v / jnp.linalg.norm(v, axis=1, keepdims=True)
        return ((x + 0.01 * v) % 1, v), None

    return jax.lax.scan(step, (x, v), None, length=10)[0]


@program((64,))
def kuramoto(jax, jnp, w):
    """Coupled oscillators that may synchronize."""

    def f(t):
        return w + 0.5 * jnp.sin(t[None] - t[:, None]).mean(1)

    def step(t, _):
        t = runge_kutta(f, t, 0.1)
        return t, jnp.abs(jnp.exp(1j * t).mean())

    return jax.lax.scan(step, w, None, length=20)


@program((40,))
def lorenz_96(jax, jnp, x):
    f = lambda x: (jnp.roll(x, -1) - jnp.roll(x, 2)) * jnp.roll(x, 1) - x + 8

    def step(x, _):
        x = runge_kutta(f, x, 0.05)
        return x, x

    return jax.lax.scan(step, x, None, length=100)


@program((20, 40))
def lorenz_96_ensemble(jax, jnp, x):
    f = lambda x: (jnp.roll(x, -1, -1) - jnp.roll(x, 2, -1)) * jnp.roll(x, 1, -1) - x + 8

    def step(x, _):
        return runge_kutta(f, x, 0.05), x.mean(0)

    return jax.lax.scan(step, x, None, length=20)


@program((3,))
def lyapunov_exponents(jax, jnp, x):
    """Of the Lorenz system, by QR factorizations along an orbit."""
    f = lambda x: jnp.array([10 * (x[1] - x[0]), x[0] * (28 - x[2]) - x[1], x[0] * x[1] - 8 / 3 * x[2]])

    def step(state, _):
        x, q = state
        jacobian = jax.jacfwd(f)(x)
        x = x + 0.01 * f(x)
        q, r = jnp.linalg.qr(q + 0.01 * jacobian @ q)
        return (x, q), jnp.log(jnp.abs(jnp.diag(r)))

    return jax.lax.scan(step, (x, jnp.eye(3)), None, length=100)[1].mean(0) / 0.01


@program((2000,))
def logistic_map(jax, jnp, x):
    """Orbits and their Lyapunov exponents."""
    x = jax.nn.sigmoid(x)

    def step(state, _):
        x, total = state
        return (3.9 * x * (1 - x), total + jnp.log(jnp.abs(3.9 * (1 - 2 * x)))), None

    return jax.lax.scan(step, (x, x * 0), None, length=50)[0]


@program((16, 16))
def wilson_action(jax, jnp, t):
    """Lattice gauge theory: the action of U(1) phases on links, and its gradient."""

    def action(angles):
        u = jnp.exp(1j * angles)
        plaquette = u[0] * jnp.roll(u[1], -1, 0) * jnp.roll(u[0], -1, 1).conj() * u[1].conj()
        return (1 - plaquette.real).sum()

    return jax.value_and_grad(action)(jnp.stack([t, t.T]))


@program((6, 2, 2), (64,))
def quantum_circuit(jax, jnp, a, p):
    """The gradient of an energy: rotations of six qubits and controlled phases, twice."""
    start = jnp.zeros((2,) * 6, jnp.complex64).at[(0,) * 6].set(1)

    def energy(p):
        s = start
        for layer in range(2):
            for q in range(6):
                t = p[layer * 6 + q]
                u = jnp.array([[jnp.cos(t / 2), -1j * jnp.sin(t / 2)], [-1j * jnp.sin(t / 2), jnp.cos(t / 2)]])
                s = jnp.moveaxis(jnp.tensordot(u, s, (1, q)), 0, q)
            for q in range(5):
                s = s * jnp.array([1, 1, 1, -1.0]).reshape((1,) * q + (2, 2) + (1,) * (4 - q))
        signs = [jnp.array([1.0, -1]).reshape((1,) * q + (2,) + (1,) * (5 - q)) for q in range(6)]
        return sum(jnp.sum(jnp.abs(s) ** 2 * sign) for sign in signs)

    return jax.value_and_grad(energy)(p)


@program((8, 8, 8, 8), definite(8))
def self_consistent_field(jax, jnp, repulsion, h):
    """Hartree-Fock iterations with given integrals."""

    def step(density, _):
        coulomb = jnp.einsum("pqrs,rs->pq", repulsion, density)
        exchange = jnp.einsum("prqs,rs->pq", repulsion, density)
        fock = h + 0.01 * (2 * coulomb - exchange)
        fock = (fock + fock.T) / 2
        _, orbitals = jnp.linalg.eigh(fock)
        density = orbitals[:, :3] @ orbitals[:, :3].T
        return density, jnp.sum(density * (h + fock))

    return jax.lax.scan(step, jnp.eye(8), None, length=10)[1]


@program((8,), (8,))
def matrix_product_state(jax, jnp, a, b):
    """Time evolution by block decimation: a gate on each pair of neighbours, then a singular value decomposition."""
    z = jnp.array([[1.0, 0], [0, -1]])
    x = jnp.array([[0, 1.0], [1, 0]])
    hamiltonian = jnp.kron(z, z) + 0.5 * jnp.kron(x, jnp.eye(2))
    gate = jax.scipy.linalg.expm(-0.1 * hamiltonian).reshape(2, 2, 2, 2)
    sites = [jnp.outer(jnp.stack([a[i], b[i]]), jnp.ones(1)).reshape(1, 2, 1) for i in range(4)]
    for i in range(3):
        pair = jnp.einsum("aib,bjc,ijkl->aklc", sites[i], sites[i + 1], gate)
        shape = pair.shape
        u, s, v = jnp.linalg.svd(pair.reshape(shape[0] * 2, -1), full_matrices=False)
        sites[i] = u.reshape(shape[0], 2, -1)
        sites[i + 1] = (s[:, None] * v).reshape(-1, 2, shape[3])
    return sites[-1]
