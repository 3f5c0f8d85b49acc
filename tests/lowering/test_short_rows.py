"""Sums and extremes of short rows, which XLA:CPU computes in a loop of its own instead of by a library."""

import re

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite import lax
from lowering import xla
from lowering.passes import short_rows

pytestmark = pytest.mark.usefixtures("uncached")


def values(*shape):
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def count(fun, *shapes, dtype=np.float32):
    """How many reductions of a program are found."""
    return len(short_rows.find(jax.make_jaxpr(fun)(*[jax.ShapeDtypeStruct(shape, dtype) for shape in shapes]).jaxpr))


def distances(x):
    return ((x[:, None] - x) ** 2).sum(-1)


@pytest.mark.parametrize("fun, shape, is_found", [
    (distances, (200, 3), True),
    (distances, (200, 8), True),
    (distances, (200, 9), False),
    (distances, (100, 3), False),  # too little to pay
    (lambda x: jnp.exp(x).sum(-1), (40_000, 6), True),
    (lambda x: jnp.exp(x).sum(-1), (40_000, 7), False),
    (lambda x: x.sum((1, 2)), (40_000, 2, 4), True),  # a row of eight
    (lambda x: x.sum((1, 2)), (40_000, 3, 4), False),
    (lambda x: x.max(-1), (40_000, 3), False),
    (lambda x: x.max(-1), (140_000, 3), True),
    (lambda x: (x.max(-1), x.argmax(-1)), (140_000, 3), False),  # one search for both
    (lambda x: (x.sum(-1), x.argmax(-1)), (140_000, 3), True),
    (lambda x: x.sum(1), (5000, 20, 7), True),  # rows that are kept apart
    (lambda x: x.sum(1), (1000, 200, 7), False),  # of many, only the shortest
    (lambda x: x.sum(1), (1000, 200, 4), True),
    (lambda x: x.max(1), (1000, 200, 4), False),
    (lambda x: x.sum(), (40_000, 3), False),
    (lambda x: x.sum(-1), (40_000, 1), False),
    (lambda x: x.sum(-1), (0, 3), False),
])
def test_which_are_found(fun, shape, is_found):
    assert count(fun, shape) == is_found


def test_iterations_count():
    steps = lambda length: lambda x: lax.scan(lambda x, _: (x + distances(x).mean(), None), x, length=length)[0]
    assert count(steps(30), (50, 3)) == 1
    assert count(steps(2), (50, 3)) == 0
    assert count(steps(3000), (20, 3)) == 0  # so small an array is not the library's


@pytest.mark.parametrize("fun, fewest, most", [
    (lambda f, x: f(2 * distances(x)), 0, 1),
    (lambda f, x: (lambda d: d * f(d))(distances(x)), 1, 1),  # it is written
    (lambda f, x: f(distances(x)).sum(), 1, 1),  # another reduction takes the function in
    (lambda f, x: f(x[:, None] - x).sum(-1), 0, 1),
    (lambda f, x: jax.jit(lambda x: 2 * f(x))(x[:, None] - x).sum(-1), 0, 1),
    (lambda f, x: (lambda y: (y.sum(-1), (y * y).sum(-1)))(f(x[:, None] - x)), 2, 2),
])
def test_reductions_stay_with_the_library_that_computes_a_function_in_vectors(fun, fewest, most):
    found = lambda f, dtype: count(lambda x: fun(f, x), (200, 3), dtype=dtype)
    assert found(jnp.sin, np.float32) == (most if xla.BARRIER_DROPPER else fewest)
    assert found(jnp.log, np.float32) == most
    with jax.enable_x64(True):
        assert found(jnp.log, np.float64) == fewest


def test_dtypes():
    total = lambda x: lax.reduce_sum(x, axes=(1,))
    assert count(total, (40_000, 3), dtype=np.int32) == 0
    with jax.enable_x64(True):
        assert count(total, (40_000, 3), dtype=np.float64) == 1


def test_a_program_does_without_the_library():
    x = values(200, 3)
    lowered = jax.jit(distances).lower(x)
    before = lowered.as_text()
    compiled = lowered.compile()
    np.testing.assert_allclose(compiled(x), ((x[:, None] - x) ** 2).sum(-1), rtol=1e-5)
    assert "kCustom" not in compiled.as_text() and "subtract(" in compiled.as_text()
    assert lowered.as_text() == before
    plain = lowered.compile({"jaxlite_cpu_fusion_barriers": False})
    assert "kCustom" in plain.as_text()
    np.testing.assert_allclose(plain(x), compiled(x), rtol=1e-5)


def test_in_loops_and_calls():
    @jax.jit
    def forces(x):
        d = x[:, None] - x
        return (d / ((d**2).sum(-1, keepdims=True) + 1) ** 1.5).sum(1)

    x = values(70, 3)
    f = jax.jit(lambda x: lax.fori_loop(0, 30, lambda _, x: x - 0.01 * forces(forces(x)), x))
    text = f.lower(x).compile().as_text()
    assert "f32[70,70]" not in "".join(re.findall(r".*kCustom", text)) and re.search(r"f32\[70,70\]\S* fusion", text)

    def expected(x):
        d = x[:, None] - x
        return (d / ((d**2).sum(-1, keepdims=True) + 1) ** 1.5).sum(1)

    y = x.astype(np.float64)
    for _ in range(30):
        y = y - 0.01 * expected(expected(y))
    np.testing.assert_allclose(f(x), y, rtol=1e-3, atol=1e-3)


def test_gradients_and_special_numbers():
    x = values(140_000, 3)
    x[5, 1], x[6], x[7, 2], x[8, 0], x[9] = np.nan, -np.inf, np.inf, -np.inf, -0.0
    total, largest, least = jax.jit(lambda x: (x.sum(-1), x.max(-1), x.min(-1)))(x)
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(total, x.sum(-1), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(largest, x.max(-1))
    np.testing.assert_array_equal(least, x.min(-1))
    grad = jax.jit(jax.grad(lambda x: jnp.sqrt((x**2).sum(-1)).sum()))(x[10:])
    np.testing.assert_allclose(grad, x[10:] / np.linalg.norm(x[10:], axis=-1, keepdims=True), rtol=1e-5)
