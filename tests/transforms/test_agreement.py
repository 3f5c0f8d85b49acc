"""Programs of derivatives and batching that JAX runs, and that a simpler rule would get wrong or refuse."""

from __future__ import annotations

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite import lax


def test_batched_branches_are_differentiated_only_where_they_are_taken():
    safe = lambda x: lax.cond(x < 1e-3, lambda x: x * 1e-3, jnp.sqrt, x)
    three = lambda which, x: lax.switch(which, [lambda x: 2 * x, jnp.sqrt, jnp.log], x)
    x, which = jnp.array([0.0, 0.0, 4.0]), jnp.array([0, 0, 1])

    @jax.jit
    def run(x):
        loss = lambda x: jax.vmap(safe)(x).sum()
        switched = lambda x: jax.vmap(three)(which, x).sum()
        shared = lambda w: jax.vmap(lambda p: lax.cond(p, lambda: w, lambda: jnp.sqrt(w)))(jnp.array([True, True])).sum()
        return (jax.grad(loss)(x), jax.jvp(loss, (x,), (jnp.ones(3),))[1], jax.grad(lambda x: jax.jit(loss)(x))(x),
                jax.grad(switched)(x), jax.grad(shared)(0.0))

    by_grad, by_jvp, by_jit, switched, shared = run(x)
    np.testing.assert_allclose(by_grad, [1e-3, 1e-3, 0.25], rtol=1e-6)
    np.testing.assert_allclose(by_jit, by_grad)
    np.testing.assert_allclose(by_jvp, 0.252, rtol=1e-6)
    np.testing.assert_allclose(switched, [2, 2, 0.25], rtol=1e-6)
    assert shared == 2


def test_tangents_that_hold_nothing_come_out_of_jit():
    gradient = jax.jit(jax.grad(lambda p: (p["a"] * p["i"]).sum(), allow_int=True))({"a": jnp.ones(2), "i": jnp.arange(2)})
    assert gradient["a"].tolist() == [0, 1] and gradient["i"].dtype == jax.float0 and gradient["i"].shape == (2,)
    assert jax.jit(lambda t: t)(np.zeros(3, jax.float0)).dtype == jax.float0


def test_arguments_without_leaves_are_counted():
    assert jax.jit(lambda *a: a[0] + a[2])(1.0, None, 2.0) == 3
    assert jax.jit(lambda a, *rest: a + rest[2], static_argnums=-1)(1, (), [], 2) == 3
    assert jax.jit(lambda x: x)(np.longlong(7)) == 7


def test_what_vmap_does_not_map_need_not_be_an_array():
    scaled = jax.vmap(lambda x, mode: x * 2 if mode == "twice" else x, in_axes=(0, None))
    assert scaled(jnp.arange(2.0), "twice").tolist() == [0, 2]
    with pytest.raises(TypeError, match="vmap in_axes must be an int, None, or a tuple .* but got False"):
        jax.vmap(lambda x: x, in_axes=False)

    @jax.tree_util.register_pytree_node_class
    class Strict:
        def __init__(self, value):
            self.value = jnp.asarray(value)

        def tree_flatten(self):
            return (self.value,), None

        @classmethod
        def tree_unflatten(cls, _, children):
            return cls(*children)

    assert jax.vmap(lambda s, y: Strict(s.value + y), in_axes=(0, None))(Strict(jnp.arange(2.0)), 1.0).value.tolist() == [1, 2]


def test_auxiliary_data_may_be_anything():
    token = object()
    fun = lambda x: (x**2, {"token": token, "text": "s", "array": x})
    for _, aux in ((jax.grad(fun, has_aux=True)(3.0)), jax.value_and_grad(fun, has_aux=True)(3.0)[0],
                   jax.vjp(fun, 3.0, has_aux=True)[1:], jax.jvp(fun, (3.0,), (1.0,), has_aux=True)[1:],
                   jax.linearize(fun, 3.0, has_aux=True)[1:], jax.jacrev(fun, has_aux=True)(3.0)):
        assert aux["token"] is token and aux["text"] == "s" and aux["array"] == 3
