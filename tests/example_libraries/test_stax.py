"""stax and optimizers. Expected figures are JAX's, for the same key."""

from __future__ import annotations

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite.example_libraries import optimizers, stax


def test_a_network_of_every_layer():
    key = jax.random.PRNGKey(0)
    init, apply = stax.serial(
        stax.Conv(4, (3, 3), padding="SAME"), stax.Relu, stax.BatchNorm(), stax.MaxPool((2, 2), (2, 2)), stax.AvgPool((2, 2)),
        stax.ConvTranspose(3, (3, 3), (2, 2)), stax.FanOut(2), stax.parallel(stax.Gelu, stax.Identity), stax.FanInSum,
        stax.Flatten, stax.Dropout(0.5), stax.Dense(5), stax.LogSoftmax)
    shape, params = init(key, (2, 8, 8, 3))
    assert shape == (2, 5)
    np.testing.assert_allclose(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(params)), 20.758262, rtol=1e-5)
    out = jax.jit(lambda params, x, key: apply(params, x, rng=key))(params, jnp.ones((2, 8, 8, 3)), key)
    np.testing.assert_allclose(jnp.exp(out).sum(1), 1, rtol=1e-5)
    with pytest.raises(ValueError, match="Dropout layer requires apply_fun to be called with a PRNG key"):
        apply(params, jnp.ones((2, 8, 8, 3)))


def test_layers_that_join():
    init, apply = stax.serial(stax.FanOut(2), stax.parallel(stax.Dense(3), stax.Identity), stax.FanInConcat(),
                              stax.shape_dependent(lambda shape: stax.Dense(shape[-1] * 2)))
    shape, params = init(jax.random.key(1), (-1, 2))
    assert shape == (-1, 10) and apply(params, jnp.ones((4, 2))).shape == (4, 10)
    assert type(params[1]) is tuple  # as in JAX: parameters that are stored have this structure


MADE = {
    "sgd": optimizers.sgd(0.1), "momentum": optimizers.momentum(0.1, 0.9), "nesterov": optimizers.nesterov(0.1, 0.9),
    "adagrad": optimizers.adagrad(0.1), "rmsprop": optimizers.rmsprop(0.1),
    "rmsprop_momentum": optimizers.rmsprop_momentum(0.1),
    "adam": optimizers.adam(optimizers.exponential_decay(0.1, 10, 0.5)),
    "adamax": optimizers.adamax(optimizers.polynomial_decay(0.1, 10, 0.01)),
    "sm3": optimizers.sm3(optimizers.inverse_time_decay(0.1, 3, 0.5, True)),
    "piecewise": optimizers.sgd(optimizers.piecewise_constant([2], [0.1, 0.2])),
}


@pytest.mark.parametrize("name", MADE)
def test_optimizers_go_downhill(name):
    init, update, get_params = MADE[name]

    @jax.jit
    def run():
        loss = lambda params: jnp.sum(params["w"] ** 2) + jnp.sum((params["b"] - 1) ** 2)
        state = init({"w": jnp.ones((2, 3)), "b": jnp.zeros(2)})
        for step in range(4):
            state = update(step, optimizers.clip_grads(jax.grad(loss)(get_params(state)), 1.5), state)
        return state, loss(get_params(state))

    state, after = run()
    assert float(after) < 8 * 0.9
    again = optimizers.pack_optimizer_state(optimizers.unpack_optimizer_state(state))
    assert jax.tree.structure(again) == jax.tree.structure(state)


def test_what_an_optimizer_refuses():
    init, update, _ = optimizers.sgd(0.1)
    with pytest.raises(TypeError, match="passed a gradient tree that did not match"):
        update(0, {"a": 1.0}, init({"b": 1.0}))
    with pytest.raises(ValueError, match="boundaries length must be one shorter"):
        optimizers.piecewise_constant([1], [1.0])
