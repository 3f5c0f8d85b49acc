"""Elementwise computations of arrays with axes of one element, as if they had none."""

import re

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite import lax

pytestmark = pytest.mark.usefixtures("uncached")

X, Y = np.random.default_rng(0).standard_normal((2, 1100, 10)).astype(np.float32)


def loss(x):
    return (jax.nn.standardize(x) * Y).sum()


def flipped(x):
    bits = lax.bitcast_convert_type(x.max(1, keepdims=True), jnp.uint8)
    return x * lax.bitcast_convert_type(bits ^ jnp.uint8(1), jnp.float32)


@pytest.mark.parametrize("fun", [
    jax.grad(loss),
    lambda x: lax.scan(lambda x, _: (x - jax.grad(loss)(x), None), x, None, length=3)[0],
    lambda x: lax.cond(x[0, 0] > 0, loss, lambda x: (x / (1 + x.sum(1, keepdims=True) ** 2)).sum(), -x),
    lambda x: x * jnp.where(x.sum() > 0, jnp.clip(x.sum(1, keepdims=True), -1, x[0, 0]), x.max(1, keepdims=True)),
    flipped,
], ids=["gradient", "loop", "branches", "numbers", "other bits"])
def test_what_keeps_a_reduced_axis_is_computed_without_it(fun):
    lowered = jax.jit(fun).lower(X)
    before = lowered.as_text()
    assert "tensor<1100x1xf32>" in before
    compiled = lowered.compile()
    assert not re.search(r"\[1100,1\]\S* (?!bitcast|broadcast|parameter)", compiled.as_text())
    assert lowered.as_text() == before
    plain = jax.jit(fun, compiler_options={"jaxlite_cpu_fusion_barriers": False})
    np.testing.assert_allclose(compiled(X), plain(X), rtol=1e-4, atol=1e-4)
