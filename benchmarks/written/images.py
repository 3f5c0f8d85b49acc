"""Images and sound: filters, features, registration, reconstruction."""

from __future__ import annotations

from benchmarks.written.kinds import KEY, program


@program((120, 120), differentiable=False)
def canny(jax, jnp, image):
    """Edges: blurred, Sobel's gradients, only their maxima across the edge."""
    g = jnp.exp(-(jnp.arange(-2, 3) ** 2) / 2.0)
    g = g / g.sum()
    image = jax.scipy.signal.convolve2d(image, jnp.outer(g, g), mode="same")
    sobel = jnp.array([[1.0, 0, -1], [2, 0, -2], [1, 0, -1]])
    gx = jax.scipy.signal.convolve2d(image, sobel, mode="same")
    gy = jax.scipy.signal.convolve2d(image, sobel.T, mode="same")
    m = jnp.hypot(gx, gy)
    direction = (jnp.round(jnp.arctan2(gy, gx) / (jnp.pi / 4)).astype(int)) % 4
    p = jnp.pad(m, 1)
    ahead = jnp.stack([p[1:-1, 2:], p[2:, 2:], p[2:, 1:-1], p[2:, :-2]])
    behind = jnp.stack([p[1:-1, :-2], p[:-2, :-2], p[:-2, 1:-1], p[:-2, 2:]])
    a = jnp.take_along_axis(ahead, direction[None], 0)[0]
    b = jnp.take_along_axis(behind, direction[None], 0)[0]
    return jnp.where((m >= a) & (m >= b), m, 0) > 0.5


@program((64, 64))
def bilateral_filter(jax, jnp, image):
    """An unrolled window of five by five."""
    out = 0.0
    total = 0.0
    p = jnp.pad(image, 2, mode="edge")
    for i in range(5):
        for j in range(5):
            s = p[i : i + 64, j : j + 64]
            k = jnp.exp(-((i - 2) ** 2 + (j - 2) ** 2) / 8 - (s - image) ** 2 * 4)
            out = out + k * s
            total = total + k
    return out / total


@program((80, 80))
def median_filter(jax, jnp, image):
    p = jnp.pad(image, 1, mode="reflect")
    return jnp.median(jnp.stack([p[i : i + 80, j : j + 80] for i in range(3) for j in range(3)]), 0)


@program((100, 100, 3))
def rgb_to_hsv(jax, jnp, x):
    x = jax.nn.sigmoid(x)
    r, g, b = x[..., 0], x[..., 1], x[..., 2]
    most = x.max(-1)
    d = most - x.min(-1) + 1e-6
    h = jnp.where(most == r, (g - b) / d % 6, jnp.where(most == g, (b - r) / d + 2, (r - g) / d + 4)) / 6
    return jnp.stack([h, d / most, most], -1)


@program((4000,))
def mel_cepstrum(jax, jnp, x):
    """Coefficients of sound, as for recognition of speech."""
    frames = jnp.stack([x[i : i + 256] for i in range(0, 3744, 128)]) * jnp.hanning(256)
    power = jnp.abs(jnp.fft.rfft(frames)) ** 2
    filters = jnp.abs(jnp.sin(jnp.outer(jnp.arange(129.0), jnp.arange(1, 21.0)) / 40))
    return jax.scipy.fft.dct(jnp.log(power @ filters + 1e-6), norm="ortho")[:, :13]


@program((64, 64), (2, 3))
def affine_registration(jax, jnp, image, a):
    """The gradient of a difference with respect to the map."""
    a = a * 0.1 + jnp.array([[1.0, 0, 0], [0, 1, 0]])
    y, x = jnp.meshgrid(jnp.arange(64.0), jnp.arange(64.0), indexing="ij")
    c = jnp.stack([y, x, jnp.ones_like(x)]).reshape(3, -1)

    def loss(a):
        moved = jax.scipy.ndimage.map_coordinates(image, list(a @ c), 1, mode="nearest").reshape(64, 64)
        return (moved - image).var()

    return jax.value_and_grad(loss)(a)


@program((100, 100), differentiable=False)
def histogram_equalization(jax, jnp, image):
    q = jnp.clip((image * 40 + 128), 0, 255).astype(jnp.uint8)
    h = jnp.bincount(q.ravel(), length=256)
    c = jnp.cumsum(h)
    return (c[q] * 255 / c[-1]).astype(jnp.uint8)


@program((128, 128), differentiable=False)
def mandelbrot(jax, jnp, x):
    c = jnp.linspace(-2, 1, 128)[None] + 1j * jnp.linspace(-1.5, 1.5, 128)[:, None]

    def step(i, state):
        z, n = state
        z = jnp.where(jnp.abs(z) < 2, z * z + c, z)
        return z, n + (jnp.abs(z) < 2)

    return jax.lax.fori_loop(0, 20, step, (c * 0, jnp.zeros((128, 128), int)))[1]


@program((64, 64), (64, 64), differentiable=False)
def phase_correlation(jax, jnp, a, b):
    """By how much one image is shifted against the other."""
    fa, fb = jnp.fft.fft2(a), jnp.fft.fft2(b)
    r = fa * fb.conj()
    r = jnp.fft.ifft2(r / (jnp.abs(r) + 1e-9)).real
    return jnp.unravel_index(r.argmax(), r.shape)


@program((64, 64))
def harris_corners(jax, jnp, image):
    gy, gx = jnp.gradient(image)
    k = jnp.ones((3, 3))
    window = lambda x: jax.scipy.signal.convolve2d(x, k, mode="same")
    a, b, d = window(gx * gx), window(gx * gy), window(gy * gy)
    return a * d - b * b - 0.04 * (a + d) ** 2


@program((48, 48))
def total_variation(jax, jnp, y):
    """Noise is removed, edges stay: twenty gradient steps."""

    def loss(x):
        rows = jnp.sqrt(jnp.diff(x, axis=0) ** 2 + 1e-3).sum()
        return 0.5 * ((x - y) ** 2).sum() + 0.1 * (rows + jnp.sqrt(jnp.diff(x, axis=1) ** 2 + 1e-3).sum())

    return jax.lax.fori_loop(0, 20, lambda i, x: x - 0.2 * jax.grad(loss)(x), y)


@program((32, 32), (2, 32, 32))
def optical_flow(jax, jnp, image, flow):
    """The gradient for a smooth field of shifts."""
    y, x = jnp.meshgrid(jnp.arange(32.0), jnp.arange(32.0), indexing="ij")

    def loss(w):
        moved = jax.scipy.ndimage.map_coordinates(image, [y + w[0], x + w[1]], 1, mode="nearest")
        return ((moved - image.T) ** 2).mean() + 0.1 * ((w[:, 1:] - w[:, :-1]) ** 2).mean()

    return jax.grad(loss)(flow)


@program((2, 12, 12, 3), (2, 12, 12, 3))
def structural_similarity(jax, jnp, a, b):
    k = jnp.ones((3, 3, 1, 1)) / 9

    def mean(x):
        x = x.transpose(0, 3, 1, 2).reshape(6, 12, 12, 1)
        return jax.lax.conv_general_dilated(x, k, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    ma, mb = mean(a), mean(b)
    va = mean(a * a) - ma**2
    vb = mean(b * b) - mb**2
    c = mean(a * b) - ma * mb
    return ((2 * ma * mb + 0.01) * (2 * c + 0.03) / ((ma**2 + mb**2 + 0.01) * (va + vb + 0.03))).mean()


@program((64, 64))
def radon_transform(jax, jnp, image):
    def projection(t):
        y, x = jnp.meshgrid(jnp.arange(64.0) - 32, jnp.arange(64.0) - 32, indexing="ij")
        c, s = jnp.cos(t), jnp.sin(t)
        return jax.scipy.ndimage.map_coordinates(image, [c * y - s * x + 32, s * y + c * x + 32], order=1).sum(0)

    return jax.vmap(projection)(jnp.linspace(0, 3.1, 12))


@program((500,))
def savitzky_golay(jax, jnp, x):
    a = jnp.vander(jnp.arange(-5, 6.0), 3)
    y = jnp.convolve(x, jnp.linalg.pinv(a)[2], mode="same")
    return y, jnp.gradient(y), jnp.cumsum(y)


@program((300,))
def peaks(jax, jnp, x):
    """At most forty of them."""
    p = (x[1:-1] > x[:-2]) & (x[1:-1] > x[2:]) & (x[1:-1] > 0.5)
    i = jnp.nonzero(p, size=40, fill_value=-1)[0]
    return i, x[i]


@program(KEY, (784,))
def augmentation(jax, jnp, key, x):
    """Random crops and reflections of one image."""
    image = x.reshape(28, 28)

    def one(k):
        a, b = jax.random.split(k)
        corner = jax.random.randint(a, (2,), 0, 5)
        y = jax.lax.dynamic_slice(jnp.pad(image, 2), corner, (28, 28))
        return jnp.where(jax.random.bernoulli(b), y[:, ::-1], y)

    return jax.vmap(one)(jax.random.split(key, 16))
