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


def test_wide_types_in_a_block_under_derivatives():
    def loss(x):
        with jax.enable_x64(True):
            return (jnp.sin(x) * jnp.arange(3.0)).sum()

    np.testing.assert_allclose([jax.grad(loss)(1.0), jax.jit(jax.grad(loss))(1.0)], [3 * np.cos(1)] * 2, rtol=1e-6)


def test_a_scan_is_transposed_beside_a_carry_that_is_known():
    def linear(x):  # a counter, and a value that follows it
        def step(carry, w):
            i, scale, y = carry
            return (i + 1, scale * 2, y * scale + i * x), y * w

        (_, _, y), ys = lax.scan(step, (0, 1.0, x), jnp.array([1.0, 2.0, 3.0]))
        return y + ys.sum()

    assert jax.linear_transpose(linear, 1.0)(1.0)[0] == linear(1.0)
    assert jax.linear_transpose(lambda x: lax.fori_loop(0, 3, lambda i, c: c * (i + 1), x), 1.0)(1.0)[0] == 6


def test_windows_are_differentiated_in_their_order():
    run = lambda x: lax.reduce_window(x, 0.0, lambda a, b: a + 2 * b, (2,), (1,), "VALID")
    value, tangent = jax.jvp(run, (jnp.array([1.0, 2.0, 3.0]),), (jnp.array([1.0, 10.0, 100.0]),))
    assert value.tolist() == [6, 10] and tangent.tolist() == [22, 220]
    last = lambda x: lax.reduce_window(x, 0.0, lambda a, b: b + 0 * a, (20,), (1,), "VALID")  # more than are unrolled
    assert jax.jvp(last, (jnp.arange(20.0),), (jnp.arange(20.0),))[1].tolist() == [19]


def test_custom_vmap_of_keywords_defaults_and_directions():
    seen = []

    @jax.custom_batching.custom_vmap
    def f(x, y=2.0):
        return jnp.sin(x) * y

    @f.def_vmap
    def _(size, batched, x, y):
        seen.append(batched)
        return jnp.cos(x) * y, batched[0]

    assert f(y=3.0, x=0.0) == 0 and jax.vmap(f)(jnp.zeros(2)).tolist() == [2, 2]
    assert seen == [[True, False]]
    np.testing.assert_allclose(jax.jacfwd(f)(jnp.array([0.0, 0.5])), np.diag(-2 * np.sin([0, 0.5])), atol=1e-6)
    with pytest.raises(ValueError, match="Linearization failed"):
        jax.grad(f)(1.0)


def test_unravelling_keeps_a_single_dtype_polymorphic():
    tree = {"a": jnp.ones(2), "b": jnp.ones((2, 1))}
    (x, unravel), (_, again) = jax.flatten_util.ravel_pytree(tree), jax.flatten_util.ravel_pytree(tree)
    assert unravel == again and hash(unravel) == hash(again)
    assert unravel(x.astype(jnp.bfloat16))["b"].dtype == jnp.bfloat16
    mixed = jax.flatten_util.ravel_pytree({"a": jnp.ones(2, int), "b": jnp.ones(1)})[1]
    with pytest.raises(TypeError, match="dtype int32"):
        mixed(jnp.ones(3, int))


def test_an_empty_batch_of_convolutions():
    images, kernel = jnp.ones((0, 2, 1, 4, 4)), jnp.ones((1, 1, 2, 2))
    assert jax.vmap(lambda x: lax.conv(x, kernel, (1, 1), "VALID"))(images).shape == (0, 2, 1, 3, 3)
