"""Fields on grids: flows, waves, diffusion, reactions, and solvers of Poisson's equation."""

from __future__ import annotations

from benchmarks.written.kinds import program


@program((9, 64, 64))
def lattice_boltzmann(jax, jnp, f):
    """D2Q9 with one relaxation time, on a torus."""
    xs = [0, 1, 0, -1, 0, 1, -1, -1, 1]
    ys = [0, 0, 1, 0, -1, 1, 1, -1, -1]
    cx, cy = jnp.array(xs), jnp.array(ys)
    w = jnp.array([4 / 9] + [1 / 9] * 4 + [1 / 36] * 4)
    f = jnp.abs(f) + 1

    def step(f, _):
        rho = f.sum(0)
        ux = (f * cx[:, None, None]).sum(0) / rho
        uy = (f * cy[:, None, None]).sum(0) / rho
        cu = 3 * (cx[:, None, None] * ux + cy[:, None, None] * uy)
        equilibrium = rho * w[:, None, None] * (1 + cu + 0.5 * cu**2 - 1.5 * (ux**2 + uy**2))
        f = f + 0.6 * (equilibrium - f)
        f = jnp.stack([jnp.roll(f[i], (x, y), (0, 1)) for i, (x, y) in enumerate(zip(xs, ys))])
        return f, rho.mean()

    return jax.lax.scan(step, f, None, length=20)


@program((64, 64))
def navier_stokes_spectral(jax, jnp, w):
    """Vorticity of a plane flow, by Fourier transforms, with the midpoint rule."""
    k = jnp.fft.fftfreq(64) * 64
    kx, ky = jnp.meshgrid(k, k[:33], indexing="ij")
    k2 = kx**2 + ky**2
    inverse = jnp.where(k2 == 0, 0, 1 / jnp.where(k2 == 0, 1, k2))
    kept = (jnp.abs(kx) < 21) & (jnp.abs(ky) < 21)

    def rate(wh):
        psi = wh * inverse
        u = jnp.fft.irfft2(1j * ky * psi, s=(64, 64))
        v = jnp.fft.irfft2(-1j * kx * psi, s=(64, 64))
        wx = jnp.fft.irfft2(1j * kx * wh, s=(64, 64))
        wy = jnp.fft.irfft2(1j * ky * wh, s=(64, 64))
        return -jnp.fft.rfft2(u * wx + v * wy) * kept - 1e-3 * k2 * wh

    def step(wh, _):
        first = rate(wh)
        second = rate(wh + 0.5e-2 * first)
        return wh + 1e-2 * second, jnp.abs(wh).sum()

    return jax.lax.scan(step, jnp.fft.rfft2(w), None, length=5)


@program((200, 200))
def wave(jax, jnp, u):
    def step(state, _):
        u, before = state
        laplacian = (
            jnp.pad(u, 1)[2:, 1:-1] + jnp.pad(u, 1)[:-2, 1:-1] + jnp.pad(u, 1)[1:-1, 2:] + jnp.pad(u, 1)[1:-1, :-2] - 4 * u
        )
        after = 2 * u - before + 0.1 * laplacian
        return (after, u), after[100, 100]

    return jax.lax.scan(step, (u, u), None, length=10)


@program((100, 100))
def gray_scott(jax, jnp, u):
    """Two substances that react and diffuse."""
    u = jnp.abs(u) % 1
    v = 1 - u

    def laplacian(x):
        return jnp.roll(x, 1, 0) + jnp.roll(x, -1, 0) + jnp.roll(x, 1, 1) + jnp.roll(x, -1, 1) - 4 * x

    def step(i, state):
        u, v = state
        r = u * v * v
        return u + 0.16 * laplacian(u) - r + 0.035 * (1 - u), v + 0.08 * laplacian(v) + r - 0.1 * v

    return jax.lax.fori_loop(0, 20, step, (u, v))


@program((16, 16, 16))
def heat_3d(jax, jnp, u):
    def step(u, _):
        p = jnp.pad(u, 1, mode="edge")
        laplacian = (
            p[2:, 1:-1, 1:-1] + p[:-2, 1:-1, 1:-1] + p[1:-1, 2:, 1:-1] + p[1:-1, :-2, 1:-1]
            + p[1:-1, 1:-1, 2:] + p[1:-1, 1:-1, :-2] - 6 * u
        )  # fmt: skip
        return u + 0.1 * laplacian, None

    return jax.lax.scan(step, u, None, length=20)[0]


@program((128,))
def schrodinger(jax, jnp, x):
    """A wave packet in a harmonic trap, by the split-step method."""
    psi = jnp.exp(-(jnp.linspace(-5, 5, 128) ** 2) + 1j * x)
    potential = jnp.linspace(-5, 5, 128) ** 2 / 2
    k = jnp.fft.fftfreq(128, 10 / 128) * 2 * jnp.pi

    def step(p, _):
        p = jnp.exp(-0.005j * potential) * p
        p = jnp.fft.ifft(jnp.exp(-0.005j * k**2) * jnp.fft.fft(p))
        p = jnp.exp(-0.005j * potential) * p
        return p, (jnp.abs(p) ** 2).sum()

    return jax.lax.scan(step, psi, None, length=30)[1]


@program((50, 50), differentiable=False)
def laplace_jacobi(jax, jnp, u):
    """Relaxation until nothing changes any more."""

    def going_on(state):
        return (state[1] > 1e-3) & (state[2] < 100)

    def body(state):
        u, _, i = state
        n = u.at[1:-1, 1:-1].set(0.25 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]))
        return n, jnp.abs(n - u).max(), i + 1

    return jax.lax.while_loop(going_on, body, (u, jnp.inf, 0))


@program((200, 200))
def heated_plate(jax, jnp, u):
    """Heat in a plate, stepped in place, with two fixed edges and two that lose nothing."""

    def step(_, u):
        flow = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1]
        u = u.at[1:-1, 1:-1].add(0.1 * flow)
        return u.at[:, 0].set(u[:, 1]).at[:, -1].set(u[:, -2])

    return jax.lax.fori_loop(0, 20, step, u)


@program((64, 64))
def poisson_fft(jax, jnp, f):
    k = jnp.fft.fftfreq(64) * 2 * jnp.pi * 64
    k2 = k[:, None] ** 2 + k**2
    return jnp.fft.ifft2(jnp.where(k2 == 0, 0, -jnp.fft.fft2(f) / jnp.where(k2 == 0, 1, k2))).real


@program((34, 34))
def multigrid(jax, jnp, f):
    """Two levels: smooth, correct on the coarse grid, smooth."""

    def smooth(u, f, count):
        for _ in range(count):
            u = u.at[1:-1, 1:-1].set(0.25 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] + f[1:-1, 1:-1]))
        return u

    u = smooth(f * 0, f, 2)
    residual = f[1:-1, 1:-1] - 4 * u[1:-1, 1:-1] + u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]
    coarse = jnp.pad(residual, 1)[1:-1:2, 1:-1:2]
    e = smooth(jnp.pad(coarse * 0, 1), jnp.pad(coarse, 1), 5)[1:-1, 1:-1]
    return smooth(u + jnp.pad(jnp.repeat(jnp.repeat(e, 2, 0), 2, 1), 1), f, 2)


@program((200,))
def burgers(jax, jnp, u):
    """Finite volumes with Lax and Friedrichs' flux."""

    def step(u, _):
        f = 0.5 * u * u
        a = jnp.abs(u).max()
        flux = 0.5 * (f + jnp.roll(f, -1)) - 0.5 * a * (jnp.roll(u, -1) - u)
        return u - 0.1 * (flux - jnp.roll(flux, 1)), a

    return jax.lax.scan(step, u, None, length=50)


@program((3, 100))
def euler_1d(jax, jnp, state):
    """Gas in a tube: density, momentum, energy."""
    state = jnp.abs(state) + jnp.array([1.0, 0, 3.0])[:, None]

    def flux(state):
        density, momentum, energy = state
        u = momentum / density
        p = 0.4 * (energy - 0.5 * momentum * u)
        speed = jnp.abs(u) + jnp.sqrt(1.4 * jnp.abs(p) / density)
        return jnp.stack([momentum, momentum * u + p, (energy + p) * u]), speed

    def step(state, _):
        f, a = flux(state)
        right = jnp.roll(state, -1, 1)
        fr, ar = flux(right)
        h = 0.5 * (f + fr) - 0.5 * jnp.maximum(a, ar) * (right - state)
        return state - 0.01 * (h - jnp.roll(h, 1, 1)), None

    return jax.lax.scan(step, state, None, length=30)[0]


@program((32, 32))
def shallow_water(jax, jnp, h):
    h = 1 + 0.01 * h
    u = v = h * 0
    dx = lambda f: (jnp.roll(f, -1, 0) - jnp.roll(f, 1, 0)) / 2
    dy = lambda f: (jnp.roll(f, -1, 1) - jnp.roll(f, 1, 1)) / 2

    def step(state, _):
        h, u, v = state
        new = (
            h - 0.1 * (dx(h * u) + dy(h * v)),
            u - 0.1 * (u * dx(u) + v * dy(u) + dx(h)),
            v - 0.1 * (u * dx(v) + v * dy(v) + dy(h)),
        )
        return new, None

    return jax.lax.scan(step, (h, u, v), None, length=20)[0]


@program((50, 50))
def maxwell_fdtd(jax, jnp, e):
    """Yee's scheme in two dimensions, with a source and a probe."""

    def step(state, t):
        ez, hx, hy = state
        hx = hx.at[:, :-1].add(-0.5 * (ez[:, 1:] - ez[:, :-1]))
        hy = hy.at[:-1].add(0.5 * (ez[1:] - ez[:-1]))
        ez = ez.at[1:, 1:].add(0.5 * (hy[1:, 1:] - hy[:-1, 1:] - hx[1:, 1:] + hx[1:, :-1]))
        ez = ez.at[25, 25].add(jnp.sin(t * 0.1))
        return (ez, hx, hy), ez[30, 30]

    return jax.lax.scan(step, (e, e * 0, e * 0), jnp.arange(30.0))


@program((40, 40))
def cahn_hilliard(jax, jnp, u):
    """Two phases that separate."""
    laplacian = lambda u: jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) + jnp.roll(u, 1, 1) + jnp.roll(u, -1, 1) - 4 * u
    step = lambda i, u: u + 0.01 * laplacian(u**3 - u - 0.5 * laplacian(u))
    return jax.lax.fori_loop(0, 20, step, u * 0.1)


@program((20, 3))
def pinn(jax, jnp, weights):
    """A network that solves u'' = -sin(pi x), trained on the residual."""

    def loss(params):
        a, b, c = params
        u = lambda x: jnp.tanh(x * a + b) @ c
        xs = jnp.linspace(0, 1, 100)
        residual = jax.vmap(jax.grad(jax.grad(u)))(xs) + jnp.sin(jnp.pi * xs)
        return (residual**2).mean() + u(0.0) ** 2 + u(1.0) ** 2

    a, b, c = weights[:, 0], weights[:, 1], weights[:, 2]
    return jax.value_and_grad(loss)((a, b, c))


@program((50, 2), (2, 32), (32, 32), (32, 1))
def pinn_2d(jax, jnp, x, a, b, c):
    """The Laplacian of a network, as the trace of its Hessian."""

    def loss(p):
        u = lambda x: (jnp.tanh(jnp.tanh(x @ p[0]) @ p[1]) @ p[2])[0]
        laplacian = lambda x: jnp.trace(jax.hessian(u)(x))
        return (jax.vmap(laplacian)(x) ** 2).mean()

    return jax.value_and_grad(loss)((a, b, c))
