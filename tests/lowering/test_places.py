"""Slices at places that XLA does not know, so that the steps of an unrolled loop have equal kernels."""

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite import lax
from lowering import xla
from lowering.passes import fusion

pytestmark = [pytest.mark.usefixtures("uncached"),
              pytest.mark.skipif(bool(xla.BARRIER_DROPPER), reason="older XLA compiles equal kernels again")]
W = np.random.default_rng(0).standard_normal((24, 24)).astype("float32") / 5
STEPS = np.random.default_rng(1).standard_normal((6, 24, 24)).astype("float32")


def moved(f, *args):
    found = set()
    fusion.barriers(jax.make_jaxpr(f)(*args).jaxpr, moved=found)
    return len(found)


def steps(rows, x, w):
    for row in rows:
        x = jnp.tanh(x @ w + row)
    return x


def of_rows(xs, x, w):
    return steps([xs[t] for t in range(6)], x, w)


@pytest.mark.parametrize("f, axis, count", [
    (of_rows, 0, 6),
    (steps, 0, 6),
    (lambda xs, x, w: steps([xs[:, t] for t in range(5, -1, -1)], x, w), 1, 6),
    (lambda xs, x, w: steps([row[0] for row in jnp.split(xs, 6)], x, w), 0, 6),
    (lambda xs, x, w: steps([xs[t, :, t:t + 1] for t in range(6)], x, w), 0, 6),
    (jax.grad(lambda xs, x, w: of_rows(xs, x, w).sum()), 0, 6),
    (lambda xs, x, w: lax.fori_loop(0, 2, lambda _, x: of_rows(xs, x, w), x), 0, 6),
    (lambda xs, x, w: steps(xs[:2], x, w), 0, 0),
    (lambda xs, x, w: sum(xs[t] for t in range(6)), 0, 0),
    (lambda xs, x, w: [lax.fori_loop(0, 3, lambda _, x, t=t: x * xs[t], x) for t in range(6)][-1], 0, 0),
    (lambda xs, x, w: steps([xs[t, 0, t] for t in range(6)], x, w), 0, 0),
], ids=["index", "iteration", "column", "split", "two_axes", "gradient", "loop", "few", "one_kernel", "of_a_loop", "numbers"])
def test_equal_kernels_read_at_places_behind_barriers_and_give_the_same(f, axis, count):
    xs = np.moveaxis(STEPS, 0, axis).copy()
    assert moved(f, xs, W, W) == count
    with jax.disable_jit():
        expected = f(*map(jnp.asarray, (xs, W, W)))
    np.testing.assert_allclose(jax.jit(f)(xs, W, W), expected, rtol=2e-5, atol=2e-6)


def test_the_compiled_kernels_begin_at_what_the_program_has():
    text = jax.jit(of_rows).lower(STEPS, W, W).compile().as_text()
    assert text.count(" dynamic-slice(") == 6 and " slice(" not in text


def test_the_module_is_as_it_was_after_the_compile():
    lowered = jax.jit(of_rows).lower(STEPS, W, W)
    before = lowered.as_text()
    lowered.compile()
    assert "dynamic_slice" not in before and lowered.as_text() == before
