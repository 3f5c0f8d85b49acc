"""Geometry and computer graphics: curves, meshes, points, rotations, rays, volumes."""

from __future__ import annotations

from benchmarks.written.kinds import KEY, integers, program


@program((3000, 3), (3,))
def ray_marching(jax, jnp, directions, origin):
    """Distances of a ball, a floor and a cube, shaded by their gradient."""
    directions = directions / jnp.linalg.norm(directions, axis=-1, keepdims=True)

    def distance(p):
        ball = jnp.linalg.norm(p - jnp.array([0, 0, 5.0])) - 1
        cube = jnp.linalg.norm(jnp.maximum(jnp.abs(p - jnp.array([2.0, 0, 6])) - 0.7, 0))
        return jnp.minimum(ball, jnp.minimum(p[1] + 1, cube))

    def march(d):
        t = jax.lax.fori_loop(0, 15, lambda i, t: t + distance(origin * 0.1 + t * d), 0.0)
        p = origin * 0.1 + t * d
        n = jax.grad(distance)(p)
        return jnp.maximum(0, n @ jnp.array([0.5, 0.7, -0.5]))

    return jax.vmap(march)(directions)


@program((64, 64, 3))
def positional_encoding(jax, jnp, x):
    f = 2.0 ** jnp.arange(6)
    y = x[..., None, :] * f[:, None]
    return jnp.concatenate([x, jnp.sin(y).reshape(64, 64, -1), jnp.cos(y).reshape(64, 64, -1)], -1)


@program((100, 32, 4))
def volume_rendering(jax, jnp, x):
    """The gradient of colours along rays, as for radiance fields."""

    def colour(x):
        density = jax.nn.relu(x[..., 3])
        c = jax.nn.sigmoid(x[..., :3])
        a = 1 - jnp.exp(-density * 0.1)
        t = jnp.cumprod(jnp.concatenate([jnp.ones((100, 1)), 1 - a[:, :-1] + 1e-10], 1), 1)
        return ((a * t)[..., None] * c).sum(1)

    return jax.grad(lambda x: (colour(x) ** 2).sum())(x)


@program((100, 3), (100, 4))
def gaussian_splatting(jax, jnp, means, colours):
    """Blobs in the order of their depth, on a small image; value and gradient."""
    line = jnp.linspace(-1, 1, 16)
    pixels = jnp.stack(jnp.meshgrid(line, jnp.linspace(-1, 1, 16)), -1).reshape(-1, 2)

    def image(m, c):
        order = jnp.argsort(m[:, 2])
        d = pixels[:, None] - m[order, :2]
        a = jax.nn.sigmoid(c[order, 3]) * jnp.exp(-(d**2).sum(-1) * 20)
        t = jnp.cumprod(jnp.pad(1 - a, ((0, 0), (1, 0)), constant_values=1.0)[:, :-1], 1)
        return ((a * t)[..., None] * jax.nn.sigmoid(c[order, :3])).sum(1)

    return jax.value_and_grad(lambda m, c: (image(m, c) ** 2).mean(), (0, 1))(means, colours)


@program((40, 3), integers(80, 3))
def mesh_normals(jax, jnp, vertices, faces):
    """The area of a mesh, and normals of its vertices."""
    faces = (faces * 7 + jnp.arange(80)[:, None]) % 40
    a, b, c = vertices[faces[:, 0]], vertices[faces[:, 1]], vertices[faces[:, 2]]
    n = jnp.cross(b - a, c - a)
    area = 0.5 * jnp.linalg.norm(n, axis=1)
    normals = jnp.zeros_like(vertices).at[faces].add(n[:, None])
    return area.sum(), normals / (jnp.linalg.norm(normals, axis=1, keepdims=True) + 1e-9)


@program((300, 3), (300, 3))
def chamfer_distance(jax, jnp, a, b):
    def distance(a):
        d = ((a[:, None] - b) ** 2).sum(-1)
        return d.min(1).mean() + d.min(0).mean()

    return jax.value_and_grad(distance)(a)


@program((100, 3), (100, 3))
def kabsch(jax, jnp, a, b):
    """The rotation that brings points nearest to others."""
    a = a - a.mean(0)
    b = b - b.mean(0)
    u, _, v = jnp.linalg.svd(a.T @ b)
    d = jnp.sign(jnp.linalg.det(u @ v))
    r = u @ jnp.diag(jnp.array([1, 1, 1.0]).at[2].set(d)) @ v
    return jnp.sqrt(((a @ r - b) ** 2).mean())


@program((20, 4))
def quaternion_chain(jax, jnp, q):
    q = q / jnp.linalg.norm(q, axis=1, keepdims=True)

    def times(a, b):
        w, x, y, z = a
        W, X, Y, Z = b
        return jnp.array([
            w * W - x * X - y * Y - z * Z,
            w * X + x * W + y * Z - z * Y,
            w * Y - x * Z + y * W + z * X,
            w * Z + x * Y - y * X + z * W,
        ])  # fmt: skip

    return jax.lax.scan(lambda s, q: (times(s, q), s), jnp.array([1.0, 0, 0, 0]), q)


@program((10, 3), (10, 4))
def arm_jacobian(jax, jnp, offsets, q):
    """Where the end of a chain of joints is, and how it moves with them."""
    q = q / jnp.linalg.norm(q, axis=1, keepdims=True)

    def rotation(q):
        w, x, y, z = q
        return jnp.array([
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ])  # fmt: skip

    def end(q):
        step = lambda s, a: ((s[0] @ rotation(a[0]), s[1] + s[0] @ a[1]), s[1])
        return jax.lax.scan(step, (jnp.eye(3), jnp.zeros(3)), (q, offsets))[0][1]

    return end(q), jax.jacrev(end)(q)


@program((6,), (20, 3))
def camera_pose(jax, jnp, p, x):
    """Gauss-Newton steps for the reprojection error."""

    def skew(w):
        return jnp.array([[0, -w[2], w[1]], [w[2], 0, -w[0]], [-w[1], w[0], 0]])

    def residual(p):
        r = jax.scipy.linalg.expm(skew(p[:3]))
        y = x @ r.T + p[3:]
        return (y[:, :2] / (y[:, 2:] + 5)).ravel()

    def step(p, _):
        j = jax.jacfwd(residual)(p)
        return p - jnp.linalg.solve(j.T @ j + 1e-3 * jnp.eye(6), j.T @ residual(p)), None

    return jax.lax.scan(step, p * 0.1, None, length=3)[0]


@program((100, 4), (4,), differentiable=False)
def box_suppression(jax, jnp, boxes, unused):
    """Overlaps of boxes, and which of them stay."""
    a = jnp.abs(boxes)
    low, high = a[:, :2], a[:, :2] + a[:, 2:]
    w = jnp.clip(jnp.minimum(high[:, None], high) - jnp.maximum(low[:, None], low), 0)
    both = w.prod(-1)
    area = a[:, 2] * a[:, 3]
    overlap = both / (area[:, None] + area - both)

    def step(i, kept):
        return jnp.where(kept[i] & (jnp.arange(100) > i) & (overlap[i] > 0.5), False, kept)

    return jax.lax.fori_loop(0, 100, step, jnp.ones(100, bool))


@program((100, 2))
def polygon_area(jax, jnp, p):
    """Of points sorted by two keys, and values between them."""
    order = jnp.lexsort((p[:, 1], p[:, 0]))
    x, y = p[order].T
    area = 0.5 * jnp.abs(x @ jnp.roll(y, 1) - y @ jnp.roll(x, 1))
    return area, jnp.interp(jnp.linspace(-1, 1, 50), jnp.sort(x), y)


@program((5, 30, 2))
def bezier_curves(jax, jnp, p):
    t = jnp.linspace(0, 1, 50)[:, None]
    basis = jnp.concatenate([(1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3], 1)
    return jnp.einsum("ti,bid->btd", basis, p[:, :4])


@program((40, 3, 3), (40, 3))
def rasterizer(jax, jnp, triangles, colours):
    """Forty triangles on 64 by 64 pixels, the nearest one wins."""
    y, x = jnp.meshgrid(jnp.linspace(-1, 1, 64), jnp.linspace(-1, 1, 64), indexing="ij")
    edge = lambda a, b: (b[0] - a[0]) * (y - a[1]) - (b[1] - a[1]) * (x - a[0])

    def depth(t):
        w = jnp.stack([edge(t[1], t[2]), edge(t[2], t[0]), edge(t[0], t[1])])
        inside = (w >= 0).all(0) | (w <= 0).all(0)
        z = jnp.einsum("kij,k->ij", w, t[:, 2]) / (w.sum(0) + 1e-9)
        return jnp.where(inside, z, jnp.inf)

    z = jax.vmap(depth)(triangles)
    return jnp.where(jnp.isfinite(z.min(0))[..., None], colours[z.argmin(0)], 0.0)


@program((800, 3), (8, 4), KEY)
def path_tracing(jax, jnp, directions, balls, key):
    """Light that is scattered three times by eight balls."""
    unit = lambda v: v / jnp.linalg.norm(v, axis=-1, keepdims=True)
    centres, radii = 2 * balls[:, :3] + jnp.array([0, 0, 6.0]), 0.5 + 0.3 * jnp.abs(balls[:, 3])
    albedo = jax.nn.sigmoid(balls[:, :3])

    def bounce(state, k):
        origin, d, weight, light = state
        to = origin[:, None] - centres
        b = (to * d[:, None]).sum(-1)
        root = b**2 - (to**2).sum(-1) + radii**2
        t = jnp.where(root > 0, -b - jnp.sqrt(jnp.maximum(root, 1e-6)), jnp.inf)
        t = jnp.where(t > 1e-3, t, jnp.inf)
        which, t = t.argmin(1), t.min(1)
        hit = jnp.isfinite(t)[:, None]
        sky = 0.5 * (d[:, 1:2] + 1) * jnp.array([0.5, 0.7, 1.0])
        light = light + jnp.where(hit, 0.0, weight * sky)
        place = origin + jnp.where(hit, t[:, None], 0.0) * d
        normal = (place - centres[which]) / radii[which][:, None]
        d = jnp.where(hit, unit(normal + unit(jax.random.normal(k, d.shape))), d)
        return (place, d, jnp.where(hit, weight * albedo[which], 0.0), light), None

    d = unit(directions + jnp.array([0, 0, 3.0]))
    start = (jnp.zeros((800, 3)), d, jnp.ones((800, 3)), jnp.zeros((800, 3)))
    return jax.lax.scan(bounce, start, jax.random.split(key, 3))[0][3]


@program((2000, 3), (16, 3))
def spherical_harmonics(jax, jnp, directions, coefficients):
    """Light from 2000 directions by harmonics up to the third degree, and the coefficients that fit it."""
    x, y, z = (directions / jnp.linalg.norm(directions, axis=1, keepdims=True)).T
    basis = jnp.stack([
        0.282 * jnp.ones_like(x), 0.489 * y, 0.489 * z, 0.489 * x,
        1.093 * x * y, 1.093 * y * z, 0.315 * (3 * z**2 - 1), 1.093 * x * z, 0.546 * (x**2 - y**2),
        0.590 * y * (3 * x**2 - y**2), 2.891 * x * y * z, 0.457 * y * (5 * z**2 - 1), 0.373 * z * (5 * z**2 - 3),
        0.457 * x * (5 * z**2 - 1), 1.445 * z * (x**2 - y**2), 0.590 * x * (x**2 - 3 * y**2),
    ], 1)  # fmt: skip
    light = jnp.maximum(basis @ coefficients, 0)
    return light, jnp.linalg.solve(basis.T @ basis, basis.T @ light)


@program((400, 3), integers(2, 1200, high=400))
def mesh_smoothing(jax, jnp, vertices, edges):
    """Twenty steps to the mean of the neighbours, in and out so that the volume stays."""
    degree = jnp.zeros(400).at[edges.ravel()].add(1.0) + 1e-9

    def step(v, weight):
        total = jnp.zeros_like(v).at[edges[0]].add(v[edges[1]]).at[edges[1]].add(v[edges[0]])
        return v + weight * (total / degree[:, None] - v), None

    return jax.lax.scan(step, vertices, jnp.tile(jnp.array([0.5, -0.53]), 10))[0]


@program((20, 20, 3))
def cloth(jax, jnp, noise):
    """Masses and springs that hang from two corners."""
    y, x = jnp.meshgrid(jnp.arange(20.0), jnp.arange(20.0), indexing="ij")
    start = jnp.stack([x, y, 0 * x], -1) + 0.05 * noise
    fixed = jnp.zeros((20, 20, 1)).at[0, 0].set(1.0).at[0, 19].set(1.0)

    def spring(d, rest):
        length = jnp.linalg.norm(d, axis=-1, keepdims=True)
        return 50 * (length - rest) * d / length

    def force(x):
        f = jnp.zeros_like(x).at[..., 1].add(1.0)
        right, down = spring(x[:, 1:] - x[:, :-1], 1.0), spring(x[1:] - x[:-1], 1.0)
        across = spring(x[1:, 1:] - x[:-1, :-1], 2**0.5)
        f = f.at[:, :-1].add(right).at[:, 1:].add(-right)
        f = f.at[:-1].add(down).at[1:].add(-down)
        return f.at[:-1, :-1].add(across).at[1:, 1:].add(-across)

    def step(state, _):
        x, v = state
        v = (0.99 * v + 0.01 * force(x)) * (1 - fixed)
        return (x + 0.01 * v, v), None

    return jax.lax.scan(step, (start, 0 * start), None, length=40)[0][0]


@program((64, 3), (64, 3), (27, 48), (48, 48), (48, 4), KEY)
def radiance_field(jax, jnp, origins, colours, w1, w2, w3, key):
    """The loss of a network of densities and colours along 64 rays, and its gradient."""
    directions = origins / jnp.linalg.norm(origins, axis=1, keepdims=True)
    t = (jnp.arange(24) + jax.random.uniform(key, (64, 24))) / 12
    steps = jnp.diff(t, axis=1, append=2.1)
    frequencies = 2.0 ** jnp.arange(4)

    def loss(params):
        w1, w2, w3 = params
        p = 0.1 * origins[:, None] + t[..., None] * directions[:, None]
        phase = (p[..., None, :] * frequencies[:, None]).reshape(64, 24, 12)
        h = jax.nn.relu(jnp.concatenate([p, jnp.sin(phase), jnp.cos(phase)], -1) @ w1 * 0.2)
        out = jax.nn.relu(h @ w2 * 0.15) @ w3 * 0.15
        a = 1 - jnp.exp(-jax.nn.softplus(out[..., 3]) * steps)
        left = jnp.cumprod(1 - a + 1e-10, axis=1)
        weights = a * jnp.concatenate([jnp.ones((64, 1)), left[:, :-1]], 1)
        colour = jnp.einsum("nt,ntc->nc", weights, jax.nn.sigmoid(out[..., :3]))
        return ((colour - jax.nn.sigmoid(colours)) ** 2).mean()

    return jax.value_and_grad(loss)((w1, w2, w3))
