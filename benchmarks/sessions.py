"""What a notebook does: operations outside `jit`, each once, on shapes that nobody compiled before.

A session is text, one operation a line, and is run by an interpreter that has imported the numpy API as `jnp` and nothing
else. Each result is waited for, as a notebook that shows it would.
"""

from __future__ import annotations

from typing import Any

SLICES = tuple(f"x[:{n}]" for n in range(1, 1001))

# Of the data itself: what moves elements, counts, compares, and computes with integers.
DATA = """
jnp.arange(24)
jnp.zeros((3, 4))
jnp.ones((2, 5))
jnp.full((3, 3), 7)
jnp.eye(4)
jnp.linspace(0.0, 1.0, 11)
jnp.array([3, 1, 2])
jnp.array([[1.5, 2.5], [3.5, 4.5]])
jnp.zeros_like(a)
jnp.ones_like(f)
a[3]
a[2:9]
a[::-1]
a[-5:]
m[1]
m[:, 2]
m[1:, ::2]
m[..., None]
m[jnp.array([0, 2, 2])]
m[m > 5]
m.reshape(4, 6)
m.reshape(-1)
m.ravel()
m.T
jnp.transpose(c, (2, 0, 1))
jnp.swapaxes(c, 0, 1)
jnp.moveaxis(c, 0, -1)
jnp.expand_dims(a, 1)
jnp.squeeze(a[None, :, None])
jnp.concatenate([a, a])
jnp.stack([a, a + 1])
jnp.vstack([m, m])
jnp.hstack([m, m])
jnp.column_stack([a, a])
jnp.split(a, 4)
jnp.tile(a, 2)
jnp.repeat(a[:5], 3)
jnp.flip(m)
jnp.fliplr(m)
jnp.roll(m, 1, axis=0)
jnp.rot90(m)
jnp.pad(m, 1)
jnp.pad(a, (2, 3), constant_values=9)
jnp.broadcast_to(a[:3], (2, 3))
jnp.where(m > 3, m, 0)
jnp.where(f > 0, f, 0.0)
jnp.take(a, jnp.array([1, 5, 3]))
jnp.take_along_axis(m, jnp.argsort(m, axis=1), axis=1)
jnp.diag(m[:, :3])
jnp.triu(m)
jnp.tril(m)
jnp.meshgrid(a[:3], a[:4])
jnp.atleast_2d(a)
a + 1
a * 2
a - a[::-1]
a // 3
a % 5
a ** 2
-a
abs(a - 12)
a == 3
a != 3
a > 7
(a > 3) & (a < 9)
~(a > 3)
a << 2
a >> 1
a & 6
a | 1
a ^ 5
jnp.sum(a)
jnp.sum(m, axis=0)
jnp.prod(a[1:6])
jnp.max(a)
jnp.min(m, axis=1)
jnp.argmax(m, axis=1)
jnp.argmin(a)
jnp.any(m > 5)
jnp.all(m >= 0, axis=0)
jnp.cumsum(a)
jnp.sort(m, axis=0)
jnp.sort(f)
jnp.argsort(f)
jnp.unique(a % 4)
jnp.searchsorted(a, 5)
jnp.count_nonzero(a % 2)
jnp.nonzero(a % 3)
jnp.bincount(a % 5)
jnp.diff(a)
jnp.clip(a, 3, 9)
jnp.maximum(a, 7)
jnp.minimum(f, 0.5)
a.astype(jnp.float32)
f.astype(jnp.int32)
a.at[3].set(0)
a.at[2:5].add(10)
m.at[:, 1].set(5)
jnp.isnan(f)
jnp.array_equal(a, a)
""".strip().splitlines()

# Of numbers: floats through functions, products and sums.
NUMBERS = """
jnp.linspace(-2.0, 2.0, 50)
f + 1.0
f * 2.5
f - f[::-1]
f / 3.0
f / (f + 10.0)
f ** 2
f ** 3
-f
abs(f)
jnp.exp(f)
jnp.log(abs(f) + 1.0)
jnp.sqrt(abs(f))
jnp.sin(f)
jnp.cos(f)
jnp.tan(f)
jnp.tanh(f)
jnp.arctan(f)
jnp.arctan2(f, f + 1.0)
jnp.sinh(f)
jnp.log1p(abs(f))
jnp.expm1(f)
jnp.log2(abs(f) + 1.0)
jnp.power(abs(f), 1.5)
jnp.square(f)
jnp.hypot(f, f)
jnp.floor(f)
jnp.round(f, 1)
jnp.sign(f)
jnp.isfinite(f)
f > 0.0
jnp.where(f > 0.0, f, 0.1 * f)
jnp.maximum(f, 0.0)
jnp.clip(f, -1.0, 1.0)
jnp.sum(f)
jnp.mean(f)
jnp.std(f)
jnp.var(f)
jnp.max(f)
jnp.min(f)
jnp.argmax(f)
jnp.prod(f)
jnp.cumsum(f)
jnp.median(f)
jnp.percentile(f, 30.0)
jnp.sort(f)
jnp.sum(g, axis=0)
jnp.mean(g, axis=1)
jnp.std(g, axis=0)
jnp.max(g, axis=1)
g - jnp.mean(g, axis=0)
(g - g.mean(0)) / g.std(0)
g.T
g @ g.T
g.T @ g
g @ h
jnp.dot(h, h)
jnp.vdot(f, f)
jnp.outer(h, h)
jnp.einsum("ij,kj->ik", g, g)
jnp.tensordot(g, g, axes=((0,), (0,)))
jnp.trace(g.T @ g)
jnp.linalg.norm(g)
jnp.linalg.norm(g, axis=1)
jnp.exp(g) / jnp.sum(jnp.exp(g), axis=1, keepdims=True)
jnp.log(jnp.sum(jnp.exp(g), axis=1))
1.0 / (1.0 + jnp.exp(-f))
jnp.logaddexp(f, f)
jnp.cross(g[0, :3], g[1, :3])
jnp.diff(f)
jnp.interp(0.5, jnp.arange(5.0), jnp.arange(5.0) ** 2)
jnp.convolve(f, jnp.ones(3))
jnp.corrcoef(g)
jnp.cov(g)
jnp.histogram(f, bins=5)
jnp.polyval(jnp.array([1.0, 2.0, 3.0]), f)
jnp.concatenate([f, f])
jnp.stack([f, f])
g.reshape(-1)
f[10:20]
g[:, 1]
g[g > 0.0]
f.at[3].set(1.0)
f.at[2:6].add(1.0)
f.at[2].multiply(2.0)
jnp.allclose(f, f)
jnp.isnan(f).any()
jnp.nan_to_num(f)
jnp.real(f + 1j)
jnp.abs(f + 1j)
jnp.deg2rad(f)
jnp.ptp(f)
jnp.average(f, weights=abs(f))
jnp.nanmean(f)
jnp.fmod(f, 1.0)
f % 1.0
f // 0.5
jnp.reciprocal(f + 10.0)
f.astype(jnp.int32)
jnp.inner(g, g)
""".strip().splitlines()

# A loop whose function is a new one each time.
LOOPS = ("jax.grad(lambda x: jax.lax.scan(lambda c, v: (c * v + 1.0, c), x[0], x)[0])(f)",) * 20

SESSIONS = {"x[:n] for 1,000 n": SLICES, "100 calls on data": DATA, "100 calls on numbers": NUMBERS,
            "20 gradients of a new loop": LOOPS}

# What the operations are about; made from NumPy arrays, so that no side compiles for it.
ARRAYS = """
import numpy as np
x = jnp.asarray(np.arange(1200, dtype=np.float32))
a = jnp.asarray(np.arange(24, dtype=np.int32))
m = jnp.asarray(np.arange(24, dtype=np.int32).reshape(3, 8) % 11)
c = jnp.asarray(np.arange(24, dtype=np.int32).reshape(2, 3, 4))
f = jnp.asarray(np.linspace(-3, 3, 40, dtype=np.float32))
g = jnp.asarray(np.random.default_rng(0).normal(size=(6, 5)).astype(np.float32))
h = jnp.asarray(np.arange(5, dtype=np.float32))
"""


def run(jax: Any, jnp: Any, session: str) -> None:
    """Do a session, and wait for each result."""
    names = {"jax": jax, "jnp": jnp}
    exec(ARRAYS, names)
    for line in SESSIONS[session]:
        jax.block_until_ready(eval(line, names))
