"""Sound: filters, synthesis, spectra."""

from __future__ import annotations

from benchmarks.written.kinds import program, uniform


def frames_of(jnp, x, size, hop):
    """Overlapping windows of a signal."""
    starts = jnp.arange(0, x.shape[-1] - size + 1, hop)
    return x[starts[:, None] + jnp.arange(size)]


@program((2, 2000), uniform(4, 2))
def biquad_filters(jax, jnp, x, p):
    """Four resonant filters one after another, both channels of a stereo signal."""
    frequency, width = 2.5 * p[:, 0], 0.2 * p[:, 1]
    r = 1 - width
    a1, a2, b0 = -2 * r * jnp.cos(frequency), r**2, 1 - r

    def sample(state, x):
        y, new = x, []
        for i in range(4):
            y1, y2 = state[i]
            y = b0[i] * y - a1[i] * y1 - a2[i] * y2
            new.append((y, y1))
        return new, y

    zeros = [(jnp.zeros(2), jnp.zeros(2))] * 4
    return jax.lax.scan(sample, zeros, x.T)[1]


@program((4096,))
def phase_vocoder(jax, jnp, x):
    """A sound is made a half longer, its pitch stays: spectra are turned on and laid over one another."""
    window = jnp.hanning(512)
    spectra = jnp.fft.rfft(frames_of(jnp, x, 512, 128) * window)
    size, angle = jnp.abs(spectra), jnp.angle(spectra)
    expected = 2 * jnp.pi * 128 / 512 * jnp.arange(257)
    turn = jnp.diff(angle, axis=0) - expected
    turn = expected + (turn + jnp.pi) % (2 * jnp.pi) - jnp.pi
    at = jnp.arange(0, 27, 2 / 3)
    i = at.astype(int)
    part = (at - i)[:, None]
    mixed = (1 - part) * size[i] + part * size[i + 1]
    phase = angle[0] + jnp.cumsum(turn[i], axis=0)
    frames = jnp.fft.irfft(mixed * jnp.exp(1j * phase)) * window
    places = jnp.arange(at.size)[:, None] * 128 + jnp.arange(512)
    return jnp.zeros(at.size * 128 + 512).at[places].add(frames)


@program((64,))
def plucked_string(jax, jnp, noise):
    """Karplus and Strong's: a ring of samples that is smoothed as it is read, 4000 samples."""

    def sample(ring, i):
        at = i % 64
        value = 0.498 * (ring[at] + ring[(at + 1) % 64])
        return ring.at[at].set(value), value

    return jax.lax.scan(sample, noise, jnp.arange(4000))[1]


@program((16000,), (4000,))
def reverberation(jax, jnp, x, room):
    """A signal in a room, by Fourier transforms."""
    room = room * jnp.exp(-jnp.arange(4000.0) / 800)
    spectrum = jnp.fft.rfft(x, 20480) * jnp.fft.rfft(room, 20480)
    return jnp.fft.irfft(spectrum)[:20000]


@program((4000,))
def pitch(jax, jnp, x):
    """The period of each frame, where the normalized difference to itself is least."""
    frames = frames_of(jnp, jnp.sin(jnp.cumsum(0.1 + 0.01 * x)), 512, 128)
    lags = jnp.arange(20, 200)

    def one(frame):
        d = jax.vmap(lambda lag: ((frame[:312] - jax.lax.dynamic_slice(frame, (lag,), (312,))) ** 2).sum())(lags)
        normal = d * jnp.arange(1, 181) / (jnp.cumsum(d) + 1e-6)
        return lags[normal.argmin()], normal.min()

    return jax.vmap(one)(frames)


@program((4000,), (4000,))
def spectral_loss(jax, jnp, x, y):
    """The difference of spectra of three resolutions, and its gradient."""

    def loss(x):
        total = 0.0
        for size in (128, 256, 512):
            a, b = (jnp.abs(jnp.fft.rfft(frames_of(jnp, s, size, size // 4) * jnp.hanning(size))) + 1e-4 for s in (x, y))
            total = total + jnp.abs(a - b).mean() + jnp.abs(jnp.log(a) - jnp.log(b)).mean()
        return total

    return jax.value_and_grad(loss)(x)


@program((20, 32), uniform(20))
def harmonic_synthesis(jax, jnp, loudness, pitch):
    """Thirty-two harmonics with slowly changing loudness and pitch."""
    stretch = lambda v: jax.image.resize(v, (2000, *v.shape[1:]), "linear")
    base = stretch(0.02 + 0.1 * pitch)
    phases = jnp.cumsum(base)[:, None] * jnp.arange(1, 33)
    audible = base[:, None] * jnp.arange(1, 33) < jnp.pi
    weights = stretch(jax.nn.softmax(loudness)) * audible
    return (weights * jnp.sin(phases)).sum(1)


@program((3000,), (40,))
def adaptive_filter(jax, jnp, x, start):
    """Normalized least mean squares: an echo is learned and removed."""

    def sample(state, x):
        w, line = state
        line = jnp.concatenate([x[None], line[:-1]])
        echo = 0.5 * line[7] - 0.2 * line[20]
        error = echo - w @ line
        return (w + 0.5 * error * line / (line @ line + 1e-3), line), error

    return jax.lax.scan(sample, (0.1 * start, jnp.zeros(40)), x)
