"""Astronomy and climate: orbits, light curves, lenses; oceans, radiation, transport on the sphere."""

from __future__ import annotations

from benchmarks.written.kinds import program, uniform


def eccentric_anomaly(jax, jnp, mean, eccentricity):
    """Kepler's equation, by ten Newton steps."""

    def newton(_, e):
        return e - (e - eccentricity * jnp.sin(e) - mean) / (1 - eccentricity * jnp.cos(e))

    return jax.lax.fori_loop(0, 10, newton, mean + eccentricity * jnp.sin(mean))


@program(uniform(300), (50,))
def kepler_orbits(jax, jnp, eccentricity, t):
    """Positions of 300 planets at 50 times."""

    def orbit(e):
        anomaly = eccentric_anomaly(jax, jnp, t, 0.9 * e)
        return jnp.cos(anomaly) - e, jnp.sqrt(1 - e**2) * jnp.sin(anomaly)

    return jax.vmap(orbit)(eccentricity)


@program((100,), (100,), uniform(3, 5))
def radial_velocity_fit(jax, jnp, times, measured, planets):
    """The misfit of three planets' pull on a star, and its gradient."""
    times = jnp.sort(times) * 100

    def velocity(planet):
        period, amplitude, e, angle, phase = planet
        period = 20 * period
        anomaly = eccentric_anomaly(jax, jnp, 2 * jnp.pi * (times / period + phase), 0.5 * e)
        true = 2 * jnp.arctan2(jnp.sqrt(1 + 0.5 * e) * jnp.sin(anomaly / 2), jnp.sqrt(1 - 0.5 * e) * jnp.cos(anomaly / 2))
        return amplitude * (jnp.cos(true + 6 * angle) + 0.5 * e * jnp.cos(6 * angle))

    loss = lambda planets: ((jax.vmap(velocity)(planets).sum(0) - measured) ** 2).mean()
    return jax.value_and_grad(loss)(planets)


@program((400,), uniform(4))
def transit_light_curve(jax, jnp, times, p):
    """A planet before a star with a darkened limb: the star as sixty rings."""
    radius, impact, u1, u2 = 0.1 + 0.1 * p[0], p[1], p[2], 0.3 * p[3]
    z = jnp.sqrt(jnp.sort(times) ** 2 + impact**2)
    r = (jnp.arange(60) + 0.5) / 60
    mu = jnp.sqrt(1 - r**2)
    intensity = (1 - u1 * (1 - mu) - u2 * (1 - mu) ** 2) * r
    cosine = (r**2 + z[:, None] ** 2 - radius**2) / (2 * r * z[:, None] + 1e-6)
    hidden = jnp.arccos(jnp.clip(cosine, -1 + 1e-6, 1 - 1e-6)) / jnp.pi
    return 1 - (hidden * intensity).sum(1) / intensity.sum()


@program((80, 80), uniform(5))
def gravitational_lens(jax, jnp, image, p):
    """The misfit of a source seen through an elliptical lens, and its gradient."""
    y, x = jnp.meshgrid(jnp.linspace(-2, 2, 80), jnp.linspace(-2, 2, 80), indexing="ij")

    def loss(p):
        strength, q, angle, sx, sy = p
        c, s = jnp.cos(3 * angle), jnp.sin(3 * angle)
        u, v = c * x + s * y, c * y - s * x
        r = jnp.sqrt(q * u**2 + v**2 / q + 1e-3)
        f = jnp.sqrt(1 / q - q)
        au = strength / f * jnp.arctan(f * u / r)
        av = strength / f * jnp.arctanh(jnp.clip(f * v / (r + 1), -0.99, 0.99))
        bx, by = x - (c * au - s * av), y - (s * au + c * av)
        source = jnp.exp(-8 * ((bx - sx + 0.5) ** 2 + (by - sy + 0.5) ** 2))
        return ((source - 0.1 * image) ** 2).sum()

    return jax.value_and_grad(loss)(p)


@program((500,), (500,), uniform(100))
def periodogram(jax, jnp, times, values, frequencies):
    """Lomb and Scargle's, of times without a rhythm."""

    def power(f):
        w = 2 * jnp.pi * 3 * f
        tau = jnp.arctan2(jnp.sin(2 * w * times).sum(), jnp.cos(2 * w * times).sum()) / (2 * w)
        c, s = jnp.cos(w * (times - tau)), jnp.sin(w * (times - tau))
        return 0.5 * ((values @ c) ** 2 / (c @ c) + (values @ s) ** 2 / (s @ s))

    return jax.vmap(power)(frequencies)


@program((64, 64))
def ocean_basin(jax, jnp, h):
    """Shallow water in a closed basin on a staggered grid: Coriolis force, wind, friction."""
    h = 0.1 * h
    coriolis = 0.1 + 0.002 * jnp.arange(64.0)[:, None]
    wind = -1e-3 * jnp.cos(jnp.pi * jnp.arange(64.0) / 64)[:, None]
    u, v = jnp.zeros((64, 65)), jnp.zeros((65, 64))

    def step(state, _):
        h, u, v = state
        h = h - 0.1 * (u[:, 1:] - u[:, :-1] + v[1:] - v[:-1])
        v_at_u = 0.25 * (v[:-1, 1:] + v[:-1, :-1] + v[1:, 1:] + v[1:, :-1])
        u_at_v = 0.25 * (u[1:, 1:] + u[1:, :-1] + u[:-1, 1:] + u[:-1, :-1])
        du = coriolis * v_at_u - (h[:, 1:] - h[:, :-1]) + wind - 0.01 * u[:, 1:-1]
        dv = -coriolis[1:] * u_at_v - (h[1:] - h[:-1]) - 0.01 * v[1:-1]
        return (h, u.at[:, 1:-1].add(0.1 * du), v.at[1:-1].add(0.1 * dv)), (h**2).mean()

    return jax.lax.scan(step, (h, u, v), None, length=30)


@program((200, 40), uniform(40))
def radiation_columns(jax, jnp, temperature, absorber):
    """Grey radiation in two streams: down and up through forty layers of 200 columns, and the heating."""
    source = 5.67e-8 * (250 + 10 * temperature) ** 4
    passed = jnp.exp(-0.5 * absorber)

    def layer(flux, x):
        t, s = x
        flux = flux * t + s * (1 - t)
        return flux, flux

    layers = (passed, source.T)
    surface = 5.67e-8 * (260 + 10 * temperature[:, -1]) ** 4
    _, down = jax.lax.scan(layer, jnp.zeros(200), layers)
    _, up = jax.lax.scan(layer, surface, layers, reverse=True)
    net = jnp.concatenate([up - down, (surface - down[-1])[None]])
    return jnp.diff(net, axis=0).T * 8.4e-3, up[0]


@program((48, 96), (48, 96), (48, 96))
def sphere_advection(jax, jnp, tracer, u, v):
    """Each step looks where the air came from, on a grid of latitudes and longitudes."""
    latitude, longitude = jnp.meshgrid(jnp.arange(48.0), jnp.arange(96.0), indexing="ij")
    stretch = 1 / jnp.cos((latitude - 23.5) / 24 * 1.5)

    def step(q, _):
        i = jnp.clip(latitude - 0.5 * v, 0, 47)
        j = (longitude - 0.5 * u * stretch) % 96
        i0, j0 = jnp.floor(i).astype(int), jnp.floor(j).astype(int)
        a, b = i - i0, j - j0
        i1, j1 = jnp.minimum(i0 + 1, 47), (j0 + 1) % 96
        q = (1 - a) * ((1 - b) * q[i0, j0 % 96] + b * q[i0, j1]) + a * ((1 - b) * q[i1, j0 % 96] + b * q[i1, j1])
        return q, q.mean()

    return jax.lax.scan(step, tracer, None, length=10)


@program((90,))
def energy_balance(jax, jnp, temperature):
    """Heat diffuses between latitudes, ice reflects: implicit steps with a tridiagonal matrix."""
    x = jnp.linspace(-0.99, 0.99, 90)
    sun = 340 * (1 - 0.48 * 0.5 * (3 * x**2 - 1))
    d = 0.5 * (1 - (0.5 * (x[1:] + x[:-1])) ** 2)
    upper = jnp.append(-20 * d, 0.0)
    lower = jnp.append(jnp.zeros(1), -20 * d)
    diagonal = 1.1 - upper - lower

    def step(t, _):
        albedo = 0.3 + 0.3 * jax.nn.sigmoid(-(t + 10) / 2)
        heating = sun * (1 - albedo) - 203.3 - 2.09 * t
        t = jax.lax.linalg.tridiagonal_solve(lower, diagonal, upper, (t + 0.02 * heating)[:, None])[:, 0]
        return t, t.mean()

    return jax.lax.scan(step, 15 + 10 * temperature, None, length=50)


@program((30, 64), (30, 64))
def mixed_layer(jax, jnp, density, speed):
    """Columns of the sea mix where they are unstable: the mixing depends on Richardson's number."""
    density = jnp.sort(density, 1)

    def column(rho, u):
        def step(state, _):
            rho, u = state
            richardson = jnp.diff(rho) / (jnp.diff(u) ** 2 + 1e-2)
            k = 0.2 / (1 + 5 * jnp.maximum(richardson, 0)) ** 2
            flux = lambda q: jnp.pad(k * jnp.diff(q), 1)
            rho = rho + jnp.diff(flux(rho))
            u = u + jnp.diff(flux(u))
            return (rho, u.at[0].add(0.01)), None

        return jax.lax.scan(step, (rho, u), None, length=20)[0]

    return jax.vmap(column)(density, speed)
