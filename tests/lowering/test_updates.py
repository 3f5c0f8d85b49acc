"""Barriers behind what parts of arrays are updated with."""

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite import lax
from lowering.passes import fusion

pytestmark = pytest.mark.usefixtures("uncached")


def count(fun, *shapes):
    """How many updates of a program are written before they are put into their array."""
    jaxpr = jax.make_jaxpr(fun)(*[jax.ShapeDtypeStruct(shape, np.float32) for shape in shapes]).jaxpr
    return sum("updated with" in reason for reason in fusion.barriers(jaxpr).values())


def diffused(x):
    return x.at[1:-1, 1:-1].add(0.1 * (x[2:, 1:-1] + x[:-2, 1:-1] + x[1:-1, 2:] + x[1:-1, :-2] - 4 * x[1:-1, 1:-1]))


def steps(step, length=5):
    return lambda x: lax.fori_loop(0, length, lambda i, x: step(x), x)


def row(function):
    return lambda x: lax.fori_loop(0, 5, lambda i, x: x.at[i].set(function(x[i + 1])), x)


@pytest.mark.parametrize("fun, shape, found", [
    (diffused, (12, 12), 1),
    (steps(diffused), (12, 12), 1),
    (steps(diffused), (9, 9), 0),  # an array of a few elements
    (jax.vmap(steps(diffused)), (3, 12, 12), 1),
    (lambda x: x.at[1:-1].set(x[2:] - x[:-2]), (100,), 1),
    (lambda x: lax.dynamic_update_slice(x, x[2:] - x[:-2], (1,)), (100,), 1),
    (lambda x: x.at[1:-1].set(jax.jit(lambda x: x[2:] - x[:-2])(x)), (100,), 1),
    (lambda x: (y := 2 * x).at[1:-1].set(y[2:] - y[:-2]), (100,), 1),
    (lambda x: x.at[1:-1].set(x[1:-1] * 0.5), (100,), 0),  # in place
    (lambda x: x.at[1:].set(x[:-1] + 1), (100,), 0),  # one part
    (lambda x: x.at[:50].set(x[:50] + x[50:]), (100,), 0),  # parts that do not overlap
    (lambda x: x.at[:40].set(x[1:41] - x[:40]), (100,), 0),  # less than half of the array
    (lambda x: x.at[::2].set(x[:50] - x[1:51]), (100,), 0),  # many parts are updated
    (row(jnp.tanh), (9, 16), 1),
    (row(lambda x: jax.nn.softplus(x) * 2), (9, 16), 1),
    (row(jnp.tanh), (9, 15), 0),
    (row(jnp.exp), (9, 16), 0),  # vectors in any case
    (lambda x: x.at[0].set(jnp.tanh(x[1])), (9, 16), 0),  # once
])
def test_which_are_found(fun, shape, found):
    assert count(fun, shape) == found


def test_what_another_array_is_computed_of_is_fused():
    assert count(lambda x, y: x.at[1:-1].set(y[2:] - y[:-2]), (100,), (100,)) == 0


@pytest.mark.parametrize("shape", [(12, 12), (20, 9)])
def test_results_match_numpy(rng, shape):
    x = rng.standard_normal(shape).astype(np.float32)
    expected = x.astype(np.float64)
    for _ in range(5):
        expected = expected.copy()
        inside = expected[1:-1, 1:-1]
        inside += 0.1 * (expected[2:, 1:-1] + expected[:-2, 1:-1] + expected[1:-1, 2:] + expected[1:-1, :-2] - 4 * inside)
    np.testing.assert_allclose(jax.jit(steps(diffused))(x), expected, rtol=1e-5, atol=1e-5)


def test_results_of_rows_match_numpy(rng):
    x = rng.standard_normal((9, 20)).astype(np.float32)
    expected = x.copy()
    for i in range(5):
        expected[i] = np.tanh(expected[i + 1])
    np.testing.assert_allclose(jax.jit(row(jnp.tanh))(x), expected, rtol=1e-5)
    donated = jax.jit(row(jnp.tanh), donate_argnums=0)(jnp.asarray(x))
    np.testing.assert_allclose(donated, expected, rtol=1e-5)
