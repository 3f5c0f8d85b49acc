"""Elementwise computations of arrays with short rows, as if they were vectors."""

import re

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite import lax
from lowering.passes import flat

pytestmark = pytest.mark.usefixtures("uncached")


def values(*shape):
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


X = values(3000, 7)


def compiled(fun, *args):
    """The compiled program, which leaves the module as it was, and whether it computes a vector."""
    lowered = jax.jit(fun).lower(*args)
    before = lowered.as_text()
    program = lowered.compile()
    assert lowered.as_text() == before
    return program, bool(re.search(r"\[21000\]\S* fusion\(", program.as_text()))


@pytest.mark.parametrize("fun", [
    lambda x: jnp.exp(x) * 2 + x,
    lambda x: (jnp.tanh(x), x, jnp.sin(x) < x, x + 1),
    lambda x: (jnp.exp(x), jnp.exp(x) * x),
    lambda x: jnp.where(x > 0, jnp.log1p(abs(x)), -jnp.sqrt(abs(x))),
    lambda x: jnp.clip(jnp.cos(x), -0.5, 0.5).astype(jnp.int32),
    lambda x: lax.select(x.sum() > 0, jnp.exp(x), x),
    lambda x: lax.erf_inv(jnp.tanh(x)),
    lambda x: jnp.tanh(x.reshape(7, 3000)).reshape(3000, 7),
    lambda x: jnp.exp(x * x.max()),
    lambda x: jnp.logaddexp(x, 0.5),
    lambda x: jnp.atan2(x, jnp.exp(x)).reshape(10, 300, 1, 7),
    lambda x: lax.nextafter(jnp.exp(x), jnp.float32(0)),
    lambda x: lax.bitcast_convert_type(lax.bitcast_convert_type(jnp.exp(x), jnp.uint8) + 1, jnp.int32),
    lambda x: (jnp.exp(x).sum(), jnp.tanh(x).max(), jnp.all(jnp.sin(x) < 2), jnp.prod(jnp.cos(x) * 1.6)),
    lambda x: (y := jnp.tanh(x), y.sum(), y.argmax()),
    lambda x: lax.cond(x[0, 0] > 0, lambda y: y + jnp.exp(x), lambda y: y * x, jnp.tanh(x)),
], ids=["one", "several results", "a result that is read", "branches", "of several types", "chosen by a number", "of no loop",
        "reshaped", "with a number", "called", "other shapes", "no such operation", "of other bits", "totals",
        "a total and a position", "read in branches"])
def test_results_are_the_same(fun):
    program, _ = compiled(fun, X)
    plain = jax.jit(fun, compiler_options={"jaxlite_cpu_fusion_barriers": False})
    for found, expected in zip(jax.tree.leaves(program(X)), jax.tree.leaves(plain(X)), strict=True):
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("fun, is_vector", [
    (lambda x: jnp.exp(x) * 2 + x, True),
    (lambda x: jnp.tanh(x @ np.eye(7, dtype=np.float32)), True),
    (lambda x: jax.random.normal(jax.random.key(0), x.shape) * x, True),
    (lambda x: jnp.exp(lax.sort(x)) - x, True),
    (lambda x: x * 2 + 1, False),  # nothing costly
    (lambda x: jnp.exp(x + x[0]), False),  # rows that are computed
    (lambda x: jnp.exp(x).sum(1), False),
    (lambda x: jax.value_and_grad(lambda x: jnp.mean(jax.nn.softplus(x) - 0.5 * x))(x), True),
    (lambda x: jnp.exp(x)[:, 1:], False),
    (lambda x: jnp.exp(x.reshape(7, 3000)), False),  # long rows
    (lambda x: jnp.exp(x[:1000]), False),  # few
    (lambda x: jnp.exp(x.reshape(-1, 4)) + 1, True),  # half a vector
])
def test_which_are_vectors(fun, is_vector):
    assert compiled(fun, X)[1] == is_vector


def test_a_donated_argument_is_overwritten():
    fun = jax.jit(lambda x, y: (jnp.exp(x) + y, jnp.tanh(y)), donate_argnums=0)
    x, y = jnp.asarray(X), jnp.asarray(X[::-1])
    first, second = fun(x, y)
    np.testing.assert_allclose(first, np.exp(X) + X[::-1], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(second, np.tanh(X[::-1]), rtol=1e-5)


def test_half_precision_and_complex_numbers(x64):
    for dtype, tolerance in ((np.float64, 1e-13), (np.float16, 2e-3), (np.complex64, 1e-5)):
        x = X.astype(dtype)
        program = jax.jit(lambda x: jnp.exp(x) * x).lower(x).compile()
        wide = x.astype(np.complex128 if dtype == np.complex64 else np.float64)
        np.testing.assert_allclose(program(x), np.exp(wide) * wide, rtol=tolerance, atol=tolerance)


def test_programs_without_costly_functions_are_not_looked_at():
    assert not flat.gains(jax.make_jaxpr(lambda x: jnp.exp(x.sum(0)) + x)(X).jaxpr)
    assert flat.gains(jax.make_jaxpr(lambda x: jnp.exp(x.sum(0)) + jnp.sin(x))(X).jaxpr)
    assert not flat.gains(jax.make_jaxpr(jnp.exp)(values(700, 32)).jaxpr)  # whole vectors
