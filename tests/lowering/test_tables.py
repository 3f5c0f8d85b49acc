"""Numbers in place of kernels on the CPU: positions and the buffers of scans are tables, and no result changes by it."""

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite import lax
from lowering.passes import tables

pytestmark = pytest.mark.usefixtures("uncached")

OFF = {"jaxlite_cpu_fusion_barriers": False}
X = np.linspace(-1, 1, 35, dtype=np.float32).reshape(7, 5)


def kernels_of_nothing(compiled):
    """The lines of a compiled program that fill an array from a number alone, or with positions."""
    return [line for line in compiled.as_text().splitlines() if "constant(" not in line and (
        " iota(" in line or " broadcast(" in line and "dimensions={}" in line and "ROOT" in line)]


def both(f, *args):
    """A function's results with tables and without, and the compiled program with them."""
    lowered = jax.jit(f).lower(*args)
    text = lowered.as_text()
    compiled = lowered.compile()
    assert lowered.as_text() == text
    for got, expected in zip(*(jax.tree.leaves(each(*args)) for each in (compiled, lowered.compile(OFF))), strict=True):
        assert got.dtype == expected.dtype
        np.testing.assert_array_equal(np.asarray(got), np.asarray(expected))
    return compiled


@pytest.mark.parametrize("shape", [(40,), (2,), (3, 50)])
def test_positions_are_no_kernel(shape):
    compiled = both(lambda key: jax.random.uniform(key, shape), jax.random.key(3))
    assert not kernels_of_nothing(compiled)


def test_many_positions_are_computed(monkeypatch):
    monkeypatch.setattr(tables, "_LONGEST", 64)
    assert kernels_of_nothing(both(lambda key: jax.random.uniform(key, (40,)), jax.random.key(3)))


@pytest.mark.parametrize("dtype", [np.float32, bool, np.int8, np.complex64, jnp.bfloat16, jnp.int4])
def test_what_a_scan_overwrites_starts_as_a_table(dtype):
    compiled = both(lambda x: lax.scan(lambda c, row: (c + row, (c * row).astype(dtype)), X[0], x), X)
    assert not kernels_of_nothing(compiled)


@pytest.mark.parametrize("options", [{"unroll": 3}, {"reverse": True}, {"reverse": True, "unroll": 2}])
def test_a_scan_overwrites_all_of_it(options):
    both(lambda x: lax.scan(lambda c, row: (c + row, c * row), X[0], x, **options), X)


def test_nested_scans_and_derivatives():
    def f(x):
        inner = lambda c, row: (jnp.sin(c) + row, c * row)
        outer = lambda c, _: lax.scan(inner, c, x)
        return jnp.sum(lax.scan(outer, x[0], length=2)[1])

    both(jax.grad(f), X)
    both(lambda x: lax.scan(lambda c, y: (c, y + 1), 0.0, x), X[:1, 0])  # one element
    both(lambda x: lax.scan(lambda c, y: (c, y + 1), 0.0, x), X[:0])  # none
