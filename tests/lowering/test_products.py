"""Matrix products in the other order: which are turned for a compile, and that values and module stay what they were."""

import re

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite import lax
from lowering import xla
from lowering.passes import products

pytestmark = pytest.mark.usefixtures("uncached")

FIRST = (((0,), (0,)), ((), ()))


def found(f, *args):
    return [eqn for eqn in jax.make_jaxpr(f)(*args).jaxpr.eqns if products.is_better_turned(eqn)]


def values(*shape):
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def layer_gradient(weights, x, y):
    return weights - jax.grad(lambda w: ((x @ w - y) ** 2).sum())(weights)


def test_a_tall_gradient_is_computed_wide():
    weights, x, y = values(300, 3), values(200, 300), values(200, 3)
    lowered = jax.jit(layer_gradient).lower(weights, x, y)
    before = lowered.as_text()
    compiled = lowered.compile()
    expected = weights - 2 * x.T @ (x @ weights - y)
    np.testing.assert_allclose(compiled(weights, x, y), expected, rtol=1e-4, atol=1e-3 * abs(expected).max())
    assert re.findall(r"f32\[(\d+,300|300,\d+)\]\S* dot\(", compiled.as_text()) == ["3,300"]
    assert lowered.as_text() == before


@pytest.mark.parametrize("count, dots", [(200, "f32[32,7]"), (1000, "f32[7,32]")])
def test_a_small_gradient_that_is_a_result_is_not_turned(count, dots):
    gradient = jax.jit(jax.grad(lambda w, x, y: ((x @ w - y) ** 2).sum()))
    text = gradient.lower(values(32, 7), values(count, 32), values(count, 7)).compile().as_text()
    assert set(re.findall(r"f32\[(?:32,7|7,32)\](?=\S* dot\()", text)) == {dots}


def test_in_a_loop_and_a_call():
    weights, x, y = 0.01 * values(300, 3), 0.01 * values(200, 300), values(200, 3)
    step = jax.jit(layer_gradient)
    turned = jax.jit(lambda w: lax.fori_loop(0, 3, lambda _, w: step(w, x, y), w))(weights)
    expected = weights
    for _ in range(3):
        expected = expected - 2 * x.T @ (x @ expected - y)
    np.testing.assert_allclose(turned, expected, rtol=1e-4, atol=1e-5)


def test_axes_of_both_operands_keep_their_order():
    x, y = values(8, 16, 20, 10), values(8, 16, 2, 3)
    product = lambda x, y: lax.dot_general(x, y, (((0, 1), (0, 1)), ((), ())))
    assert found(product, x, y)
    np.testing.assert_allclose(jax.jit(product)(x, y), np.einsum("abij,abkl->ijkl", x, y), rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(bool(xla.BARRIER_DROPPER), reason="the library that it is for came later")
def test_cotangents_of_a_batch_come_first():
    x, y = values(64, 10), values(32, 64, 32)
    product = lambda x, y: lax.dot_general(x, y, (((0,), (1,)), ((), ())))
    assert found(product, x, y) and not found(product, values(64, 50), y)
    np.testing.assert_allclose(jax.jit(product)(x, y), np.einsum("ka,bkc->abc", x, y), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shapes, numbers, equation, is_turned", [
    (((5, 4, 3), (5, 2, 4, 6)), (((1,), (2,)), ((0,), (0,))), "bij,bkim->bjkm", True),
    (((2, 5, 4, 3), (5, 3, 2, 4, 6)), (((2,), (3,)), ((0, 1), (2, 0))), "abij,bkaim->abjkm", True),
    (((4, 3), (5, 4, 2)), (((0,), (1,)), ((), ())), "ij,kim->jkm", True),
    (((5, 4, 3), (5, 4, 6)), (((1,), (1,)), ((0,), (0,))), "bij,bim->bjm", False),
    (((5, 40, 3), (5, 2, 40, 6)), (((1,), (2,)), ((0,), (0,))), "bij,bkim->bjkm", False)])
def test_cotangents_of_small_matrices_come_first(shapes, numbers, equation, is_turned):
    x, y = values(*shapes[0]), values(*shapes[1])
    product = jax.jit(lambda x, y: lax.dot_general(x, y, numbers))
    assert ("stablehlo.transpose" in product.lower(x, y).as_text()) == is_turned
    np.testing.assert_allclose(product(x, y), np.einsum(equation, x, y), rtol=1e-4, atol=1e-5)


def test_large_operands_of_several_axes_come_second_and_are_not_copied():
    x, y = values(128, 8, 160), values(128, 40)
    product = lambda x, y: lax.dot_general(x, y, FIRST)
    assert found(product, x, y) and not found(product, x[:, :, :100], y)
    np.testing.assert_allclose(jax.jit(product)(x, y), np.einsum("kab,kc->abc", x, y), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("x, y, numbers", [
    (values(200, 3), values(200, 300), FIRST),
    (values(200, 300), values(200, 200), FIRST),
    (values(8, 300), values(8, 3), FIRST),
    (values(200, 300), values(200), FIRST),
    (values(200, 300).astype(np.float16), values(200, 3).astype(np.float16), FIRST),
    (values(300, 200), values(200, 3), (((1,), (0,)), ((), ()))),
    (values(4, 200, 300), values(4, 200, 3), (((1,), (1,)), ((0,), (0,)))),
], ids=["wide", "square", "few summed", "one column", "half", "contracted last", "batch"])
def test_other_products_stay(x, y, numbers):
    assert not found(lambda x, y: lax.dot_general(x, y, numbers), jnp.asarray(x), jnp.asarray(y))
