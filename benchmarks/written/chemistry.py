"""Molecules and materials: force fields, integrals, kinetics, crystals."""

from __future__ import annotations

from benchmarks.written.kinds import KEY, program, uniform


@program((60, 3), (60,))
def ewald_sum(jax, jnp, x, charges):
    """The energy of charges in a periodic box, by near pairs and waves; and the forces."""
    side = 6.0
    charges = charges - charges.mean()
    n = jnp.stack(jnp.meshgrid(*[jnp.arange(-3.0, 4)] * 3, indexing="ij"), -1).reshape(-1, 3)
    k = 2 * jnp.pi / side * n
    k2 = (k**2).sum(1)
    weights = jnp.where(k2 > 0, jnp.exp(-k2 / 4) / jnp.where(k2 > 0, k2, 1.0), 0.0)

    def energy(x):
        d = x[:, None] - x
        d = d - side * jnp.round(d / side)
        r = jnp.sqrt(jnp.where(jnp.eye(60, dtype=bool), 1.0, (d**2).sum(-1)))
        near = jnp.where(jnp.eye(60, dtype=bool), 0.0, jax.scipy.special.erfc(r) / r)
        phase = x @ k.T
        waves = (charges @ jnp.cos(phase)) ** 2 + (charges @ jnp.sin(phase)) ** 2
        return 0.5 * charges @ near @ charges + 2 * jnp.pi / side**3 * (weights * waves).sum()

    value, g = jax.value_and_grad(energy)(x * side)
    return value, -g


@program((100, 3))
def force_field(jax, jnp, noise):
    """A chain of a hundred atoms: bonds, angles, dihedrals, pairs; energy and forces."""
    i = jnp.arange(100)
    helix = jnp.stack([jnp.cos(i * 1.7), jnp.sin(i * 1.7), 0.5 * i], 1)
    far = jnp.abs(i[:, None] - i) > 3

    def energy(x):
        b = jnp.diff(x, axis=0)
        length = jnp.linalg.norm(b, axis=1)
        bonds = ((length - 1.5) ** 2).sum()
        cosine = -(b[1:] * b[:-1]).sum(1) / (length[1:] * length[:-1])
        angles = ((jnp.arccos(jnp.clip(cosine, -0.999, 0.999)) - 1.9) ** 2).sum()
        normal = jnp.cross(b[:-1], b[1:])
        u, v = normal[:-1], normal[1:]
        dihedral = jnp.arctan2((jnp.cross(u, v) * b[1:-1]).sum(1) / length[1:-1], (u * v).sum(1))
        torsions = (1 + jnp.cos(3 * dihedral - 0.5)).sum()
        d2 = ((x[:, None] - x) ** 2).sum(-1)
        s6 = jnp.where(far, 1 / jnp.where(far, d2, 1.0) ** 3, 0.0)
        return 100 * bonds + 20 * angles + torsions + 0.5 * (4 * (s6**2 - s6)).sum()

    value, g = jax.value_and_grad(energy)(helix + 0.1 * noise)
    return value, -g


@program((64, 3), KEY)
def langevin_dynamics(jax, jnp, x, key):
    """Twenty steps of argon at constant temperature in a periodic box."""
    side = 5.0

    def energy(x):
        d = x[:, None] - x
        d = d - side * jnp.round(d / side)
        r2 = (d**2).sum(-1) + jnp.eye(64) * 100
        s6 = 1 / (r2 + 0.3) ** 3
        return 0.5 * jnp.where(r2 < 6.25, 4 * (s6**2 - s6), 0.0).sum()

    force = lambda x: -jax.grad(energy)(x)

    def step(state, k):
        x, v = state
        v = v + 0.001 * force(x)
        x = x + 0.001 * v
        v = 0.95 * v + jnp.sqrt(1 - 0.95**2) * jax.random.normal(k, v.shape)
        x = (x + 0.001 * v) % side
        v = v + 0.001 * force(x)
        return (x, v), 0.5 * (v**2).sum()

    start = side * jnp.stack(jnp.meshgrid(*[jnp.arange(4.0) / 4] * 3), -1).reshape(-1, 3) + 0.05 * x
    return jax.lax.scan(step, (start, jnp.zeros((64, 3))), jax.random.split(key, 20))


@program((4, 3))
def hartree_fock(jax, jnp, noise):
    """Four hydrogen atoms: integrals of Gaussians, eight iterations to self-consistency, and the forces on the nuclei."""
    exponents = jnp.array([3.4253, 0.6239, 0.1689])
    weights = jnp.array([0.1543, 0.5353, 0.4446]) * (2 * exponents / jnp.pi) ** 0.75

    def boys(t):
        t = jnp.maximum(t, 1e-5)
        return 0.5 * jnp.sqrt(jnp.pi / t) * jax.lax.erf(jnp.sqrt(t))

    def energy(x):
        distance2 = lambda a, b: ((a - b) ** 2).sum(-1)
        a = exponents[:, None]
        p = a + exponents
        reduced = a * exponents / p
        c = weights[:, None] * weights
        d2 = distance2(x[:, None], x)[:, :, None, None]
        gauss = jnp.exp(-reduced * d2) * c
        overlap = (gauss * (jnp.pi / p) ** 1.5).sum((2, 3))
        kinetic = (gauss * (jnp.pi / p) ** 1.5 * reduced * (3 - 2 * reduced * d2)).sum((2, 3))
        u, v = x[:, None, None, None, :], x[None, :, None, None, :]
        centre = (a[..., None] * u + exponents[:, None] * v) / p[..., None]
        nuclei = boys(p[..., None] * distance2(centre[..., None, :], x))
        attraction = -(gauss * 2 * jnp.pi / p * nuclei.sum(-1)).sum((2, 3))
        g, q, centres = gauss.reshape(16, 9), jnp.tile(p.reshape(9), 16), centre.reshape(144, 3)
        both = q[:, None] + q
        repulsion = 2 * jnp.pi**2.5 / (q[:, None] * q * jnp.sqrt(both))
        repulsion = repulsion * boys(q[:, None] * q / both * distance2(centres[:, None], centres))
        eri = jnp.einsum("ap,apbq,bq->ab", g, repulsion.reshape(16, 9, 16, 9), g).reshape(4, 4, 4, 4)
        core = kinetic + attraction
        s, vectors = jnp.linalg.eigh(overlap)
        root = vectors / jnp.sqrt(s) @ vectors.T

        def iteration(density, _):
            fock = core + jnp.einsum("ijkl,kl->ij", 2 * eri - eri.swapaxes(1, 2), density)
            _, c = jnp.linalg.eigh(root @ fock @ root)
            c = (root @ c)[:, :2]
            return 0.5 * density + 0.5 * c @ c.T, ((core + fock) * density).sum()

        density, _ = jax.lax.scan(iteration, jnp.zeros((4, 4)), None, length=8)
        _, electrons = iteration(density, None)
        r = jnp.sqrt(jnp.where(jnp.eye(4, dtype=bool), 1.0, distance2(x[:, None], x)))
        return electrons + (jnp.triu(1 / r, 1)).sum()

    places = jnp.array([[0.0, 0, 0], [1.5, 0, 0], [0.2, 1.8, 0], [1.6, 1.7, 0.5]])
    return jax.value_and_grad(energy)(places + 0.05 * noise)


@program(uniform(50, 3))
def stiff_kinetics(jax, jnp, rates):
    """Robertson's reactions for fifty sets of rates: implicit steps, each by four Newton steps, the Jacobian by jacfwd."""

    def run(rate):
        def f(y):
            a = 0.08 * rate[0] * y[0]
            b = 2e4 * rate[1] * y[1] * y[2]
            c = 6e7 * rate[2] * y[1] ** 2
            return jnp.array([b - a, a - b - c, c])

        def step(y, h):
            def newton(_, z):
                j = jnp.eye(3) - h * jax.jacfwd(f)(z)
                return z - jnp.linalg.solve(j, z - y - h * f(z))

            y = jax.lax.fori_loop(0, 4, newton, y)
            return y, y

        return jax.lax.scan(step, jnp.array([1.0, 0, 0]), jnp.geomspace(1e-4, 1.0, 20))[1]

    return jax.vmap(run)(rates)


@program((24, 3), (16, 20), (20, 1))
def neural_potential(jax, jnp, x, w1, w2):
    """Energies of atoms from sixteen radial features of their surroundings, and forces."""
    widths = jnp.linspace(0.5, 4.0, 16)

    def energy(x):
        d2 = ((x[:, None] - x) ** 2).sum(-1) + 10 * jnp.eye(24)
        r = jnp.sqrt(d2)
        cut = jnp.where(r < 3.0, 0.5 * (1 + jnp.cos(jnp.pi * r / 3.0)), 0.0)
        features = (jnp.exp(-4 * (r[..., None] - widths) ** 2) * cut[..., None]).sum(1)
        return (jnp.tanh(features @ w1) @ w2).sum()

    return energy(x), -jax.grad(energy)(x)


@program((200, 3), (400, 3))
def structure_factor(jax, jnp, x, k):
    """How 200 atoms scatter waves."""
    phases = jnp.exp(1j * (k * 3) @ x.T)
    return jnp.abs(phases.sum(1)) ** 2 / 200


@program((6, 64, 64))
def grain_growth(jax, jnp, order):
    """Grains of six orientations in a metal: each has a field, and the fields compete."""
    order = jax.nn.sigmoid(order)
    laplacian = lambda u: sum(jnp.roll(u, s, a) for s in (1, -1) for a in (1, 2)) - 4 * u

    def step(u, _):
        others = (u**2).sum(0) - u**2
        return u - 0.05 * (-u + u**3 + 3 * u * others - 2 * laplacian(u)), (u**2).sum(0).mean()

    return jax.lax.scan(step, order, None, length=20)


@program((80, 80))
def dendrite(jax, jnp, noise):
    """A crystal grows into an undercooled melt, faster along six directions."""
    y, x = jnp.meshgrid(jnp.arange(80.0) - 40, jnp.arange(80.0) - 40, indexing="ij")
    phase = (x**2 + y**2 < 25).astype(float)
    dx = lambda f: (jnp.roll(f, -1, 1) - jnp.roll(f, 1, 1)) / 0.06
    dy = lambda f: (jnp.roll(f, -1, 0) - jnp.roll(f, 1, 0)) / 0.06
    around = lambda f: sum(jnp.roll(f, s, a) for s in (1, -1) for a in (0, 1)) - 4 * f

    def step(state, _):
        p, t = state
        px, py = dx(p), dy(p)
        angle = 6 * jnp.arctan2(py, px)
        e, de = 0.01 * (1 + 0.04 * jnp.cos(angle)), -0.01 * 0.04 * 6 * jnp.sin(angle)
        m = 0.9 / jnp.pi * jnp.arctan(10 * (1 - t))
        curved = dy(e * de * px) - dx(e * de * py) + e**2 * around(p) / 0.03**2
        new = p + 1e-4 / 3e-4 * (curved + p * (1 - p) * (p - 0.5 + m + 0.01 * noise))
        return (new, t + 1e-4 * around(t) / 0.03**2 + 1.6 * (new - p)), None

    return jax.lax.scan(step, (phase, 0 * phase), None, length=10)[0]


@program((150, 3, 3), (12, 3), (12, 3))
def crystal_plasticity(jax, jnp, grains, planes, directions):
    """Stress in 150 grains with twelve slip systems each, by Newton's method."""
    unit = lambda v: v / jnp.linalg.norm(v, axis=-1, keepdims=True)
    schmid = unit(directions)[:, :, None] * unit(planes)[:, None, :]
    schmid = 0.5 * (schmid + schmid.swapaxes(1, 2))

    def grain(g):
        q, _ = jnp.linalg.qr(g)
        systems = jnp.einsum("ij,sjk,lk->sil", q, schmid, q).reshape(12, 9)
        strain = jnp.diag(jnp.array([1.0, -0.5, -0.5])).reshape(9) * 0.01

        def residual(stress):
            tau = systems @ stress
            slip = 0.01 * tau * jnp.abs(tau) ** 2
            return stress * 0.01 + systems.T @ slip - strain

        newton = lambda _, s: s - jnp.linalg.solve(jax.jacfwd(residual)(s), residual(s))
        return jax.lax.fori_loop(0, 6, newton, strain * 50)

    return jax.vmap(grain)(grains)
