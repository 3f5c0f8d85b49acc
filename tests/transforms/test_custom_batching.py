"""custom_vmap and sequential_vmap."""

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite.custom_batching import custom_vmap, sequential_vmap


def make():
    seen = []

    @custom_vmap
    def fun(x, y):
        return x * y

    @fun.def_vmap
    def _(axis_size, in_batched, x, y):
        seen.append((axis_size, in_batched))
        return 10 * x * y, True

    return fun, seen


def test_the_rule_is_used_by_vmap_alone():
    fun, seen = make()
    assert float(fun(2.0, 3.0)) == float(jax.jit(fun)(2.0, 3.0)) == 6.0 and not seen
    np.testing.assert_allclose(jax.vmap(fun, (0, None))(jnp.ones(2), 3.0), [30, 30])
    assert seen == [(2, [True, False])]
    np.testing.assert_allclose(jax.jit(jax.vmap(fun, (None, 0)))(3.0, jnp.ones(2)), [30, 30])


def test_forward_derivatives_keep_the_rule():
    fun, _ = make()
    assert [float(each) for each in jax.jvp(fun, (2.0, 3.0), (1.0, 1.0))] == [6.0, 5.0]
    out, tangent = jax.vmap(lambda x: jax.jvp(fun, (x, 2.0), (1.0, 1.0)))(jnp.ones(2))
    np.testing.assert_allclose(out, [20, 20])
    np.testing.assert_allclose(tangent, [30, 30])


def test_sequential_vmap():
    @sequential_vmap
    def fun(x, y):
        return {"s": jnp.sum(x) + y}

    np.testing.assert_allclose(jax.vmap(fun, (0, None))(jnp.ones((3, 2)), 1.0)["s"], [3, 3, 3])
    assert "scan" in str(jax.make_jaxpr(jax.vmap(fun))(jnp.ones((3, 2)), jnp.ones(3)))


@pytest.mark.parametrize("transform", [lambda f: f, jax.vmap, lambda f: jax.jit(jax.vmap(f)), lambda f: jax.vmap(jax.vmap(f))])
def test_a_function_is_traced_once_for_its_types(transform):
    """As in JAX, also where it runs for one example after the other and where it closes over a traced value."""
    for decorate in (sequential_vmap, custom_vmap):
        traced = []
        fun = decorate(lambda x, y: {"s": traced.append(1) or jnp.sin(x) * y})  # noqa: B023
        if decorate is custom_vmap:
            fun.def_vmap(lambda axis_size, in_batched, x, y: ({"s": jnp.sin(x) * y}, {"s": True}))
        x = np.arange(6.0, dtype=np.float32).reshape(3, 2)
        for _ in range(2):
            np.testing.assert_allclose(transform(fun)(x, 2 * x)["s"], np.sin(x) * 2 * x, rtol=1e-6)
        assert len(traced) == 1

        outer = jax.jit(lambda z: transform(lambda x: decorated(x, z))(x))  # noqa: B023
        for scale in (2.0, 3.0):
            decorated = decorate(lambda x, z: x * z)
            if decorate is custom_vmap:
                decorated.def_vmap(lambda axis_size, in_batched, x, z: (x * z, True))
            np.testing.assert_allclose(outer(scale), x * scale, rtol=1e-6)


def test_errors():
    with pytest.raises(AttributeError, match="No batching rule defined for custom_vmap function"):
        jax.vmap(custom_vmap(lambda x: x))(jnp.ones(2))
    fun = custom_vmap(lambda x: x)
    fun.def_vmap(lambda axis_size, in_batched, x: ((x, x), (True, True)))
    with pytest.raises(ValueError, match="structure of output"):
        jax.vmap(fun)(jnp.ones(2))
    for reverse in (jax.grad(fun), lambda x: jax.linearize(fun, x)):
        with pytest.raises(ValueError, match="Linearization failed to produce known values for all output primals"):
            reverse(1.0)
