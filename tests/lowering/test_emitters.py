"""XLA:CPU's older code generator on jaxlib 0.10: which programs use it, and that their results are the same."""

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite import lax
from lowering import xla
from lowering.passes import emitters

pytestmark = pytest.mark.usefixtures("uncached")

X = np.linspace(-2, 2, 600, dtype=np.float32).reshape(20, 30)


def normalized(x):
    x = (x - x.mean(1, keepdims=True)) / jnp.sqrt(x.var(1, keepdims=True) + 1e-5)
    selected = jnp.where(x > 1, jnp.exp(x), x).T[:3, :12].repeat(3, 1)[:, :32]
    return jnp.concatenate([jnp.pad(x[::2, ::-1], 1) * 2, selected]), x.argmax(0)


@pytest.mark.parametrize("f, x, has", [
    (lambda x: jnp.sin(x) * x[::-1], X, True),
    (lambda x: jax.jit(lambda x: x.sum(0))(x + 1), X, True),
    (lambda x: jnp.sin(x), np.ones(2000, np.float32), False),
    (lambda x: x[:, None] * x, np.ones(100, np.float32), False),
    (lambda x: x * (1 + 1j), X, False),
    (lambda x: jnp.cbrt(x), X.astype(np.float16), False),
    (lambda x: x * 3 // 7 > 2, X.astype(np.int8), True),
    (lambda x: x @ x.T, X, False),
    (lambda x: x[jnp.array([3, 1])], X, False),
    (lambda x: lax.fori_loop(0, 3, lambda i, x: x * 2, x), X, False),
    (lambda x: lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x), X, False),
])
def test_programs_that_prefer_it(f, x, has):
    assert emitters.prefers_older(jax.make_jaxpr(f)(x).jaxpr) is (has and xla.HAS_OLDER_EMITTER)


def test_results_are_the_same(monkeypatch):
    odd = X.copy()
    odd[0, :6] = np.nan, np.inf, -np.inf, -0.0, 1e-40, 3e38
    for x in (X, odd):
        tuned = jax.jit(normalized).lower(x).compile()
        monkeypatch.setattr(emitters, "prefers_older", lambda jaxpr: False)
        plain = jax.jit(lambda x: normalized(x)).lower(x).compile()
        monkeypatch.undo()
        for one, other in zip(tuned(x), plain(x), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5)
