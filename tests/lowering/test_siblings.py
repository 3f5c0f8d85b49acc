"""Several results from one kernel on the CPU: which programs get it, and that they give the same bits in the same memory."""

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from lowering.passes import siblings

pytestmark = pytest.mark.usefixtures("uncached")

X = np.linspace(-2, 2, 20000, dtype=np.float32)
Y = X[::-1].copy()
W = X[:19968].reshape(156, 128)


def polar(x, y):
    return x * jnp.cos(y), x * jnp.sin(y)


def adam(p, g, m, v):
    m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
    return p - 0.001 * m / (jnp.sqrt(v) + 1e-8), m, v


def states(x, y):
    middle = x * y + 1
    return middle + x, middle - y, jnp.sin(middle)


@pytest.mark.parametrize("f, arguments, has", [
    (polar, (X, Y), True),
    (lambda x, y: jax.jit(polar)(y, x), (X, Y), True),
    (adam, (W, W, W, W), True),
    (lambda x, b: (x + b, x * b), (W, X[:128]), True),
    (polar, (X.reshape(100, 200), Y.reshape(100, 200)), False),  # rows of six parts and a rest, near in memory
    (polar, (np.ones((2000, 200), np.float32), np.ones((2000, 200), np.float32)), True),
    (polar, (X[:1000], Y[:1000]), False),  # small
    (lambda x, y: (x * 2, y + 1), (X, Y), False),  # nothing in common
    (lambda x, y: (x * y, jnp.sin(x)[:5]), (X, Y), False),
    (lambda x, y: (x * y, x + y.sum()), (X, Y), False),
    (states, (X, Y), False),  # a value with three readers would be written
    (lambda x, y: (jnp.sin(x) * y, jnp.sin(x) + y), (X, Y), False),  # the same, for XLA
    (lambda x, y: (x * y, (x + y).astype(np.int32)), (X, Y), False),
    (lambda x, y: (x * y, x > y), (X, Y), False),
    (lambda x, y: tuple(x * k + y for k in range(2, 40)), (X, Y), False),
    (lambda x, y: x * y, (X, Y), False),
    (lambda x, y: (x * y, x * y, x), (X, Y), False),
])
def test_programs_that_get_it(f, arguments, has):
    assert siblings.gains(jax.make_jaxpr(f)(*arguments).jaxpr) is has


@pytest.mark.parametrize("f, count", [(polar, 2), (adam, 4)])
def test_fewer_kernels_give_the_same_bits(f, count):
    odd = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, -1e-42, 3e38], np.float32)
    values = np.concatenate([X, *np.meshgrid(odd, odd)[0]])
    arguments = [np.roll(values, shift) for shift in range(count)]
    lowered = jax.jit(f).lower(*arguments)
    joint, plain = lowered.compile(), lowered.compile({"jaxlite_cpu_fusion_barriers": False})
    kernels = lambda compiled: compiled.as_text().count(" fusion(")
    assert kernels(joint) < kernels(plain)
    for one, other in zip(joint(*arguments), plain(*arguments), strict=True):
        np.testing.assert_array_equal(np.asarray(one).view(np.int32), np.asarray(other).view(np.int32))


def test_donated_arrays_are_updated_in_place():
    compiled = jax.jit(adam, donate_argnums=(0, 2, 3)).lower(W, W, W, W).compile()
    memory = compiled.memory_analysis()
    assert memory.temp_size_in_bytes < 1000 and memory.alias_size_in_bytes == 3 * W.nbytes
    arguments = [jnp.array(W) for _ in range(4)]
    for one, other in zip(compiled(*arguments), adam(W, W, W, W), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)
