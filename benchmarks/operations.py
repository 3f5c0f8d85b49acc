"""The groups "operation compile" and "operation run": hundreds of single operations on arrays of 65,536 elements.

They are measured on demand alone, to find what is slower than it need be: nothing that a user may call is to be slower than
in JAX. An operation is source text, which makes a function of the arrays of `data` that it names.

    python -m benchmarks.run --only 'operation run'                       a few minutes
    python -m benchmarks.run --only 'operation compile' --rows 'sort'
"""

from __future__ import annotations

import functools
import importlib
import re
from typing import Any

import numpy as np

from benchmarks.programs import Frontend, Made, _normal


@functools.cache
def data() -> dict[str, np.ndarray]:
    """The arrays that expressions name."""
    random = np.random.default_rng(0)
    x, y, m = _normal(256, 256), _normal(256, 256, seed=1), _normal(64, 64)
    i = random.integers(-100, 100, (256, 256)).astype(np.int32)
    return {
        "x": x, "y": y,
        "p": np.abs(x) + np.float32(0.1), "q": np.abs(y) + np.float32(0.1),  # positive
        "u": random.random((256, 256)).astype(np.float32) * np.float32(0.9) + np.float32(0.01),  # between 0 and 1
        "z": x + 1j * y, "w": y - 1j * x + np.float32(0.3),
        "h": x.astype(np.float16), "i": i, "j": np.abs(i) % 8 + 1, "b": x > 0,
        "at": random.integers(0, 256, 500).astype(np.int32),
        "s": m @ m.T / 64 + 3 * np.eye(64, dtype=np.float32),  # symmetric, positive
        "image": _normal(2, 32, 32, 8), "kernel": _normal(3, 3, 8, 8), "seed": np.int32(3),
    }  # fmt: skip


def _each(names: str, arguments: str, module: str = "jnp") -> list[str]:
    return [f"{module}.{name}({arguments})" for name in names.split()]


EXPRESSIONS: tuple[str, ...] = (
    *_each("abs sign cbrt exp exp2 expm1 sin cos tan arctan sinh cosh tanh arcsinh floor ceil rint trunc square reciprocal "
           "negative isnan isinf isfinite signbit sinc i0 deg2rad nan_to_num fabs frexp modf", "x"),
    *_each("sqrt log log2 log10 log1p", "p"), *_each("arcsin arccos arctanh", "u"), "jnp.arccosh(p + 1)",
    *_each("abs sign sqrt exp log log1p expm1 sin cos tan sinh cosh tanh arcsin arccos arctan arcsinh arccosh arctanh square "
           "reciprocal angle conj real isnan isfinite", "z"),
    *_each("add subtract multiply divide power arctan2 hypot logaddexp logaddexp2 maximum minimum fmod remainder floor_divide "
           "copysign nextafter heaviside float_power divmod fmax fmin", "p, q"),
    *_each("add subtract multiply divide power", "z, w"),
    *_each("add multiply floor_divide remainder gcd lcm bitwise_and divide fmod divmod maximum", "i, j"),
    *_each("power left_shift right_shift", "j, j"), *_each("abs sign bitwise_count invert negative", "i"), "~b", "b & (x < 1)",
    "x > y", "x.astype(jnp.int8)", "x.astype(jnp.int32)", "x.astype(jnp.bfloat16)", "b.astype(jnp.float32)", "h * h + 1",
    *_each("relu gelu silu elu selu celu softplus sigmoid log_sigmoid soft_sign hard_tanh hard_sigmoid leaky_relu relu6 mish "
           "squareplus softmax log_softmax standardize glu", "x", "jax.nn"),
    *_each("erf erfc erfinv gammaln digamma i0e i1e i0 i1 expit log_ndtr ndtr ndtri entr logit exp1 expi spence gamma "
           "factorial fresnel", "u", "special"),
    *_each("betaln beta xlogy xlog1py gammainc gammaincc zeta kl_div rel_entr", "p, q + 1", "special"),
    *(f"jnp.{name}(x{axis})" for axis in ("", ", axis=0", ", axis=1") for name in (
        "sum mean max min prod var std argmax argmin any all nansum nanmean nanmax median nanmedian cumsum cumprod ptp "
        "count_nonzero nanargmax").split()),
    *(f"jnp.{name}({data}, axis={axis})" for data in "ih" for axis in (0, 1) for name in ("sum", "max", "prod", "cumsum")),
    *(f"special.logsumexp(x{axis})" for axis in ("", ", axis=0", ", axis=1")), "lax.cummax(x, 1)", "lax.cumlogsumexp(x, 1)",
    *(f"jnp.{name}(x.ravel())" for name in ("cumsum", "cumprod")),
    "jnp.sort(x)", "jnp.sort(x, axis=0)", "jnp.sort(x.ravel())", "jnp.sort(x[0])", "jnp.argsort(x)", "jnp.sort(i)",
    "jnp.lexsort((i[0], j[0]))", "lax.top_k(x, 5)", "jnp.unique(i, size=50)", "jnp.searchsorted(jnp.sort(x[0]), y)",
    "jnp.percentile(x, 30, axis=1)", "jnp.histogram(x, bins=20)", "jnp.bincount(j.ravel(), length=10)",
    "jnp.nonzero(b, size=100)", "jnp.digitize(x, jnp.linspace(-2, 2, 9))", "jnp.isin(i, jnp.arange(9))",
    *_each("fft ifft rfft", "x", "jnp.fft"), "jnp.fft.fft2(z)", "jnp.fft.irfft(z)", "jnp.fft.fftshift(z)",
    *_each("flip flipud rot90 tril triu transpose", "x"), "jnp.roll(x, 5, axis=1)", "jnp.tile(x, (2, 2))",
    "jnp.repeat(x, 3, axis=1)", "jnp.pad(x, 3, mode='reflect')", "jnp.concatenate([x, y], axis=1)", "jnp.split(x, 4, axis=1)",
    "jnp.stack([x, y], axis=-1)", "x[at]", "x[:, at]", "x[at, at]", "x[2:-2:3, 5:]", "x.at[at].set(1)", "x.at[at, at].add(1)",
    "x.at[:, at].max(0)", "jnp.take_along_axis(x, jnp.abs(i), axis=1)", "jax.ops.segment_sum(x, j[:, 0], num_segments=20)",
    "jax.nn.one_hot(j[0], 20)", "jnp.where(b, x, y)", "jnp.select([x > 1, x > 0], [x, y], 0)", "jnp.clip(x, -1, 1)",
    "jnp.interp(x, jnp.linspace(-3, 3, 50), jnp.linspace(0, 1, 50) ** 2)", "jnp.round(x, 2)", "jnp.packbits(b)",
    *_each("cholesky qr svd inv det eigh slogdet pinv eigvalsh cond norm matrix_rank", "s", "jnp.linalg"),
    "jnp.linalg.solve(s, x[:64])", "jnp.linalg.lstsq(s, x[:64, 0])[0]", "jnp.linalg.matrix_power(s, 7)",
    "x @ y", "x @ x[0]", "jnp.vdot(x, y)", "jnp.outer(x[0], y[0])", "jnp.kron(x[:16, :16], y[:16, :16])", "i @ j", "h @ h",
    "z @ w", "x.astype(jnp.bfloat16) @ y.astype(jnp.bfloat16)", "jnp.einsum('ij,jk,kl->il', x, y, x)",
    "jnp.einsum('bij,bjk->bik', x.reshape(16, 64, 64), y.reshape(16, 64, 64))",
    "x.reshape(4096, 4, 4) @ y.reshape(4096, 4, 4)", "x[:36].reshape(256, 6, 6) @ y[:36].reshape(256, 6, 6)",
    "lax.fori_loop(0, 20, lambda n, c: jnp.tanh(c @ x[:8, :8]), y[:8, :8])", "jnp.argmin(jnp.tanh(x) * y, axis=1)",
    "jnp.convolve(x[0], y[0, :50])",
    "lax.conv_general_dilated(image, kernel, (1, 1), 'SAME', dimension_numbers=('NHWC', 'HWIO', 'NHWC'))",
    "lax.reduce_window(image, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), 'VALID')",
    "lax.reduce_window(image, 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), 'VALID')",
    *(f"jax.random.{call}" for call in (
        "uniform(jax.random.key(seed), (256, 256))", "normal(jax.random.key(seed), (256, 256))",
        "bits(jax.random.key(seed), (256, 256))", "randint(jax.random.key(seed), (256, 256), 0, 50)",
        "bernoulli(jax.random.key(seed), 0.3, (256, 256))", "permutation(jax.random.key(seed), 5000)",
        "categorical(jax.random.key(seed), x)", "gamma(jax.random.key(seed), 2.0, (64, 64))",
        "poisson(jax.random.key(seed), 2.0, (64, 64))", "truncated_normal(jax.random.key(seed), -1.0, 1.0, (256, 256))",
        "choice(jax.random.key(seed), 1000, (50,), replace=False)")),
    "lax.scan(lambda c, row: (c * 0.9 + row, c), x[0], x)", "lax.associative_scan(jnp.add, x)", "lax.map(jnp.sum, x)",
    *(f"lax.scan(lambda c, row: (c * 0.5 + row, c), {a}[0], {a})" for a in ("h", "x.astype(jnp.bfloat16)")),
    "lax.fori_loop(0, 20, lambda n, c: c * 0.9 + 1, x)", "lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x)",
    "jax.vmap(jnp.dot)(x, y)", "jax.hessian(lambda a: jnp.sum(jnp.tanh(a) ** 3))(x[0, :32])",
    "jax.grad(lambda a: jnp.sum(jax.nn.softmax(a) * y))(x)", "jax.grad(lambda a: jnp.sum(jnp.sort(a) * y))(x)",
    "jax.jacfwd(lambda a: jnp.tanh(a) * a.sum())(x[0])", "jnp.polyval(jnp.arange(1.0, 5.0), x)", "jnp.cov(x)",
    "jnp.gradient(x)", "jnp.trapezoid(x, axis=1)", "jnp.diff(x, axis=1)", "jnp.cross(x[:, :3], y[:, :3])",
)  # fmt: skip


def program(ns: Frontend, expression: str) -> Made:
    """The function of an expression, and its arguments."""
    special = importlib.import_module(f"{ns.jax.__name__}.scipy.special")
    names = [name for name in dict.fromkeys(re.findall(r"\w+", expression)) if name in data()]
    scope: dict[str, Any] = {"jax": ns.jax, "jnp": ns.jnp, "lax": ns.lax, "special": special}
    return eval(f"lambda {', '.join(names)}: {expression}", scope), tuple(data()[name] for name in names)
