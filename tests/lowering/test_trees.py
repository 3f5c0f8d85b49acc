"""Calls whose results are of several leaves become part of their program."""

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite.sharding import Mesh, NamedSharding, PartitionSpec

LEAVES = [np.arange(3, dtype="f"), np.ones((2, 2), "f"), np.float32(4)]


@jax.jit
def halved(tree, by):
    return jax.tree.map(lambda leaf: jnp.where(leaf > 1, leaf / by, jax.jit(jnp.sin)(leaf)), tree)


def test_each_call_is_opened_and_computes_the_same():
    def step(tree):
        once = halved(tree, 2.0)
        return halved(once, 4.0), once[0], halved(tree, 2.0)[2]

    lowered = jax.jit(step).lower(LEAVES)
    assert lowered.as_text().count("call @halved") == 1  # of the last, only one result is left
    half = lambda x, by: np.where(x > 1, x / by, np.sin(x))
    once = [half(leaf, 2) for leaf in LEAVES]
    for one, other in zip(jax.tree.leaves(lowered.compile()(LEAVES)), [*[half(x, 4) for x in once], once[0], once[2]],
                          strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_results_that_nothing_reads_are_not_computed():
    text = jax.jit(lambda tree: halved(tree, 2.0)[0]).lower(LEAVES).as_text()
    assert text.count("stablehlo.divide") == 1


def test_results_may_be_operands_constants_and_the_same_twice():
    @jax.jit
    def parts(x, y):
        doubled = x * 2
        return x, doubled, doubled, 3.0, y + 1

    x, y = jnp.arange(4.0), jnp.ones(2)
    found = jax.jit(lambda x, y: [each * 1 for each in parts(x, y)] + [*parts(x, y)])(x, y)
    for one, other in zip(found, [x, x * 2, x * 2, 3, y + 1] * 2, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("f", [
    lambda tree: [leaf * 2 for leaf in tree][:2],  # few results
    lambda tree: [jnp.sort(leaf.ravel()) for leaf in tree],  # no elementwise operations
    lambda tree: [jnp.sum(leaf) for leaf in tree],
])
def test_other_calls_stay_calls(f):
    def inner(tree):
        return f(tree)

    assert "call @inner" in jax.jit(jax.jit(inner)).lower(LEAVES).as_text()


def test_a_call_that_says_where_its_results_are_stays_one():
    place = NamedSharding(Mesh(np.array(jax.devices()[:1]), ("x",)), PartitionSpec())

    def inner(tree):
        return [leaf * 2 for leaf in tree]

    assert "call @inner" in jax.jit(jax.jit(inner, out_shardings=place)).lower(LEAVES).as_text()


def test_functions_that_call_one_another_twice_are_looked_at_once():
    f = lambda x: (x, x * 2, jnp.sin(x))
    for _ in range(40):
        f = jax.jit(lambda x, f=f: tuple(one + other for one, other in zip(f(x), f(x), strict=True)))
    assert jax.jit(f).lower(1.0).as_text().count("stablehlo.sine") == 2  # of the innermost
