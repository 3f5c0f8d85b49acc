"""A matrix times each of many, as a product of a batch."""

import re

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite import lax

pytestmark = pytest.mark.usefixtures("uncached")

X = np.random.default_rng(0).integers(-9, 9, (4, 12, 20)).astype(np.float32)
IMAGES, W = X.reshape(2, 2, 12, 4, 5), np.arange(192, dtype=np.float32).reshape(16, 12)


def transposes(f, *args):
    """How many kernels move elements of an array."""
    return len(re.findall(r"= \S+ (?:transpose|copy)\(|transpose\S* = .*fusion\(", jax.jit(f).lower(*args).compile().as_text()))


@pytest.mark.parametrize("f, x, expected", [
    (lambda x, w: w @ x, X, "bct,dc->bdt"),
    (lambda x, w: jnp.einsum("bct,dc->bdt", x, w), X, "bct,dc->bdt"),
    (lambda x, w: jnp.einsum("cd,bct->bdt", w.T, x), X, "bct,dc->bdt"),
    (lambda x, w: jax.vmap(lambda x: w @ x)(x), X, "bct,dc->bdt"),
    (lambda x, w: jnp.swapaxes(jnp.swapaxes(x, 1, 2) @ w.T, 1, 2), X, "bct,dc->bdt"),
    (lambda x, w: jnp.einsum("abchw,oc->abohw", x, w), IMAGES, "abchw,oc->abohw"),
], ids=["matmul", "einsum", "transposed", "vmap", "swapped", "images"])  # fmt: skip
def test_the_matrices_are_multiplied_where_they_are(f, x, expected):
    np.testing.assert_array_equal(jax.jit(f)(x, W), np.einsum(expected, x, W))
    assert not transposes(f, x, W)


@pytest.mark.parametrize("f", [
    lambda x, w: jnp.einsum("bct,dc->btd", x, w),
    lambda x, w: w[:, :4] @ jnp.swapaxes(x, 0, 1),
    lambda x, w: (jnp.moveaxis(jnp.tensordot(w, x, (1, 1)), 0, 1), jnp.tensordot(w, x, (1, 1))),
    lambda x, w: jnp.tanh(w @ x) + x[:, :1],
    lambda x, w: lax.fori_loop(0, 2, lambda _, x: (w @ x)[:, :12], x),
], ids=["other order", "transposed matrices", "read twice", "computed of", "loop"])  # fmt: skip
def test_other_products_are_what_they_were(f):
    with jax.disable_jit():
        expected = f(X.astype("float64"), W.astype("float64"))
    for result, value in zip(jax.tree.leaves(jax.jit(f)(X, W)), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(result, value, rtol=1e-5)


def test_float64_and_a_later_compile_of_the_same_module():
    with jax.enable_x64(True):
        x, w = X.astype("float64"), W.astype("float64")
        lowered = jax.jit(jnp.matmul).lower(w, x)
        text = lowered.as_text()
        np.testing.assert_array_equal(lowered.compile()(w, x), w @ x)
        assert lowered.as_text() == text
