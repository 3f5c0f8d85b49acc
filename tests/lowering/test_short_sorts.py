"""Sorts along short axes, which are done by the ranks of the elements instead of by comparing them one after another."""

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite import lax
from lowering import xla
from lowering.passes import short_sorts

pytestmark = pytest.mark.usefixtures("uncached")
SPECIAL = [np.nan, -np.nan, 0.0, -0.0, np.inf, -np.inf, 1.0, 1.0, -1.0, 2.0]


def count(fun, shape, dtype=np.float32):
    """How many sorts of a program are found."""
    return len(short_sorts.find(jax.make_jaxpr(fun)(jax.ShapeDtypeStruct(shape, dtype)).jaxpr))


@pytest.mark.parametrize("fun, shape, is_found", [
    (lambda x: jnp.sort(x), (6000, 3), True),
    (lambda x: jnp.sort(x), (600, 32), True),
    (lambda x: jnp.sort(x), (600, 33), False),
    (lambda x: jnp.sort(x), (5000, 3), False),  # too little to pay
    (lambda x: jnp.sort(x), (19000, 1), False),
    (lambda x: jnp.sort(x), (0, 3), False),
    (lambda x: jnp.sort(x, 0), (20, 900), True),
    (lambda x: jnp.sort(x, 0), (21, 900), False),
    (lambda x: jnp.sort(x, 0), (32, 900, 1), False),
    (lambda x: jnp.sort(x, 0), (32, 1, 1), False),
    (lambda x: jnp.argsort(x, 1), (60, 9, 40), True),
    (lambda x: jnp.median(x, 0), (9, 50, 40), True),
    (lambda x: lax.top_k(x, 2), (9000, 8), True),
    (lambda x: lax.top_k(x, 2), (7000, 9), False),
    (lambda x: lax.top_k(x, 2), (8000, 8), False),
    (lambda x: jnp.sort(x + 1j), (6000, 3), False),
    (jax.vmap(jnp.sort), (6000, 3), True),
    (lambda x: lax.fori_loop(0, 60, lambda _, x: jnp.sort(x) * 0.5, x), (100, 3), True),
    (lambda x: lax.fori_loop(0, 50, lambda _, x: jnp.sort(x) * 0.5, x), (100, 3), False),
])
def test_which_are_found(fun, shape, is_found):
    assert count(fun, shape) == is_found


@pytest.fixture
def any_size(monkeypatch):
    for limit in ("_LEAST", "_LEAST_TOP"):
        monkeypatch.setattr(short_sorts, limit, 1)


def both(fun, *operands):
    """The results by ranks, and those of XLA's own sort, which is what `fun` is without barriers."""
    lowered = jax.jit(fun).lower(*operands)
    by_rank, own = (lowered.compile(options) for options in ({}, {"jaxlite_cpu_fusion_barriers": False}))
    assert not set(calls(by_rank)) and set(calls(own))
    return [[np.asarray(leaf) for leaf in jax.tree.leaves(compiled(*operands))] for compiled in (by_rank, own)]


def calls(compiled):
    return [line for line in compiled.as_text().splitlines() if " sort(" in line or " topk(" in line or "TopK" in line]


DTYPES = "float32 float64 float16 bfloat16 int8 uint8 int32 uint32 int64 bool".split()


@pytest.mark.parametrize("dtype, shape, axis", [
    *((dtype, (7, 3), 1) for dtype in DTYPES),
    *((dtype, *each) for dtype in ("bfloat16", "int32") for each in (((3, 7), 0), ((2, 5, 3), 1), ((16,), 0))),
])
def test_results_are_those_of_the_sort(any_size, rng, dtype, shape, axis, x64):
    drawn = rng.choice(SPECIAL, shape) if "float" in dtype else rng.integers(-2 if dtype[0] == "i" else 0, 3, shape)
    x = jnp.asarray(drawn).astype(dtype)
    y = jnp.asarray(rng.integers(0, 2, shape).astype(np.int16))

    def sorts(x, y):
        return jnp.sort(x, axis), jnp.argsort(x, axis, descending=True), lax.sort((y, x, x), dimension=axis, num_keys=2)

    for ours, theirs in zip(*both(sorts, x, y), strict=True):
        assert ours.dtype == theirs.dtype and ours.tobytes() == theirs.tobytes()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int16", "uint32"])
@pytest.mark.parametrize("k", [1, 2, 5])
def test_the_largest_are_those_of_top_k(any_size, rng, dtype, k):
    drawn = rng.choice(SPECIAL, (9, 5)) if "float" in dtype else rng.integers(-2 if dtype[0] == "i" else 0, 3, (9, 5))
    for ours, theirs in zip(*both(lambda x: lax.top_k(x, k), jnp.asarray(drawn).astype(dtype)), strict=True):
        assert ours.dtype == theirs.dtype and ours.tobytes() == theirs.tobytes()


def test_what_is_made_of_them(any_size, rng):
    x = rng.standard_normal((9, 4, 5)).astype(np.float32)

    def filtered(x):
        middle = jnp.median(jnp.sin(x), 0)
        return middle - jnp.sort(x.T, 2).T, jnp.take_along_axis(x, jnp.argsort(x, 1), 1)

    ours, theirs = both(filtered, x)
    np.testing.assert_allclose(ours[0], np.median(np.sin(x), 0) - np.sort(x, 0), rtol=1e-6)
    assert np.array_equal(ours[1], np.sort(x, 1)) and np.array_equal(ours[1], theirs[1])
    slopes = jax.jit(jax.grad(lambda x: (jnp.sort(x, 0) * np.arange(9.0)[:, None, None]).sum()))(x)
    assert np.array_equal(slopes, np.argsort(np.argsort(x, 0), 0))


def test_loops_have_barriers_where_xla_compiles_them(any_size, rng):
    x = rng.standard_normal((6, 3)).astype(np.float32)
    compiled = jax.jit(lambda x: lax.fori_loop(0, 3, lambda i, x: jnp.sort(x) * (i + 1), x)).lower(x).compile()
    assert bool(calls(compiled)) == bool(xla.BARRIER_DROPPER)
    np.testing.assert_allclose(compiled(x), np.sort(x) * 6, rtol=1e-6)


def test_the_module_is_as_it_was_after_a_compile(any_size):
    lowered = jax.jit(lambda x: (jnp.sort(x), jnp.exp(x))).lower(jax.ShapeDtypeStruct((9000, 7), np.float32))
    before = lowered.as_text()
    lowered.compile()
    assert lowered.as_text() == before and "stablehlo.sort" in before
