"""The end of a program as a function of its own: which programs have such an end, and that they compute the same with it."""

from __future__ import annotations

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite import lax
from lowering import xla
from lowering.passes import tails, trees

SIZES = (20, 40, 30, 24, 3)


def parameters():
    rng = np.random.default_rng(0)
    return [(rng.normal(size=(a, b)).astype("f") / 4, np.zeros(b, "f")) for a, b in zip(SIZES, SIZES[1:], strict=False)]


X = np.random.default_rng(1).normal(size=(50, 20)).astype("f")
Y = np.arange(50) % 3
STATE = [parameters(), *[[(w * 0 + 0.01, b + 0.02) for w, b in parameters()]] * 2, np.float32(3)]


def loss(params, x):
    for w, b in params[:-1]:
        x = jnp.tanh(x @ w + b)
    return -jax.nn.log_softmax(x @ params[-1][0] + params[-1][1])[jnp.arange(50), Y].mean()


@jax.jit
def corrected(moments, decay, count):
    return jax.tree.map(lambda each: each / (1 - decay**count), moments)


def adam(params, first, second, count, x):
    """One step, with the correction in a function that is called twice."""
    value, grads = jax.value_and_grad(loss)(params, x)
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, grads)
    second = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, second, grads)
    params = jax.tree.map(lambda p, m, v: p - 0.01 * m / (jnp.sqrt(v) + 1e-8), params, corrected(first, 0.9, count + 1),
                          corrected(second, 0.99, count + 1))
    return params, first, second, count + 1, value


scaled = jax.jit(lambda each: each * 0.5)


def adam_of_functions(params, first, second, count, x):
    """With a function that is called for each parameter, and stays one."""
    params, first, second, *rest = adam(params, first, second, count, x)
    return jax.tree.map(lambda m: scaled(scaled(m)), params), jax.tree.map(scaled, first), second, *rest


def called(*args):
    return jax.jit(adam)(*args)


def momentum(params, first, second, count, x):
    """Results that are equal, constant, an argument, and read by others; a gradient of another dtype, an empty array."""
    grads = jax.grad(loss)(params, x)
    first = jax.tree.map(lambda m, g: 0.9 * m + g, first, grads)
    wide = jax.tree.map(lambda g: g.astype(jnp.bfloat16).astype(jnp.float32) * 3, grads)
    return (jax.tree.map(lambda p, m: jnp.where(m > 0, p - m, p * 1.5), params, first), first, first, wide, count, 7,
            jnp.zeros((0, 4)) + count, lax.cond(count > 2, lambda x: x * 2, lambda x: x, first[0][0][:3]), jnp.full(3, 2.0))


def end_of(f, *args):
    return tails.find(trees.opened(jax.make_jaxpr(f)(*args).jaxpr), {})


@pytest.mark.parametrize("f", [adam, adam_of_functions, called, momentum])
def test_the_update_of_a_training_step_is_a_function(f):
    assert bool(end_of(f, *STATE, X)) is xla.HAS_SMALL_FUNCTIONS


def test_the_function_has_the_new_parameters_and_no_products():
    jaxpr = trees.opened(jax.make_jaxpr(adam)(*STATE, X).jaxpr)
    found = tails.find(jaxpr, {})
    if xla.HAS_SMALL_FUNCTIONS:
        assert all(found.get(var) for var in jaxpr.outvars if var.aval.ndim)  # the count and the loss may stay outside
        assert not any(eqn.outvars[0] in found for eqn in jaxpr.eqns if eqn.primitive.name in ("dot_general", "tanh"))


@pytest.mark.parametrize("f, x", [
    (lambda x: [x @ x, x * 2], X[:20]),  # few kernels are saved
    (lambda x: [x + k for k in range(9)], X),  # all of the program: it may be one function as a whole
    (lambda x: [(x @ x[:20] @ x.T).sum(k) * 2 for k in (0, 1)] + [jnp.sin(x) * k for k in range(9)], X[:20]),  # equal kernels
    (lambda x: [jnp.sort(x)[:, k:] * 2 for k in range(9)], np.zeros((200, 2000), "f")),  # large
    (lambda x: [jnp.sort(x)[k:].T * 2 for k in range(9)], X[:20]),  # transposes
    (lambda x: [(jnp.sort(x)[:, k:] * 2).astype(jnp.bfloat16) for k in range(9)], X),  # of a type that only one generator knows
])
def test_other_ends_are_not(f, x):
    assert not end_of(f, x)


@pytest.mark.parametrize("f", [adam, adam_of_functions, called, momentum])
@pytest.mark.parametrize("donated", [(), (0, 1, 2)])
def test_results_are_the_same(f, donated, monkeypatch):
    odd = X.copy()
    odd[0, :6] = np.nan, np.inf, -np.inf, -0.0, 1e-40, 3e38
    lowered = jax.jit(lambda *args: f(*args), donate_argnums=donated).lower(*STATE, X)
    text = lowered.as_text()
    tuned = lowered.compile()
    assert ("jaxlite_small" in tuned.as_text()) is xla.HAS_SMALL_FUNCTIONS
    assert lowered.as_text() == text
    monkeypatch.setattr(tails, "find", lambda jaxpr, barriers: {})
    plain = jax.jit(lambda *args: f(*args)).lower(*STATE, X).compile()
    assert "jaxlite_small" not in plain.as_text()
    for x in (X, odd):
        state = jax.tree.map(jnp.array, STATE)
        for one, other in zip(jax.tree.leaves(tuned(*state, x)), jax.tree.leaves(plain(*STATE, x)), strict=True):
            np.testing.assert_allclose(one, other, rtol=2e-5, atol=1e-7)


def test_donated_parameters_are_updated_in_place():
    state = jax.tree.map(jnp.array, STATE)
    addresses = [each.unsafe_buffer_pointer() for each in jax.tree.leaves(state[:3])]
    result = jax.jit(adam, donate_argnums=(0, 1, 2))(*state, X)
    assert [each.unsafe_buffer_pointer() for each in jax.tree.leaves(result[:3])] == addresses


# The end reads arguments that it does not need, arguments of the end alone, and what the part before returns.
@pytest.mark.parametrize("f", [
    lambda x, y: (jnp.sort(x), *[y[k:] * 0 for k in range(8)]),
    lambda x, y: (jnp.sort(x), *[y[k:] + x[k:] for k in range(8)], x, y),
    lambda x, y: [jnp.sort(x)[k:] * y[k:] for k in range(8)],
    lambda x, y: [jnp.sort(x)[k:] * y[k:].astype(int) for k in range(8)] * 2,
    lambda x, y: [jnp.cumsum(jnp.sort(x))[k:] + 1 for k in range(8)] + [y[:0] * 3],
    lambda x, y: [jnp.where(jnp.ones(9 - k, bool), jnp.sort(x)[k:], y[k:]) for k in range(8)],
    lambda x, y: [jnp.arange(9 - k) * 3 for k in range(8)] + [jnp.sort(x)],
    lambda x, y: jax.jit(lambda x: [jnp.sort(x)[k:] * 2 for k in range(8)])(x),
    lambda x, y: jax.jit(lambda c: [jnp.sort(c)[k:] * c[k:] for k in range(8)])(jnp.arange(9.0)),
    lambda x, y: jax.vjp(lambda x, y: jnp.put_along_axis(x.reshape(3, 3), np.array([[2], [0], [1]]), y.reshape(3, 3)[:, :1], 1,
                                                         inplace=False), x, y)[1](jnp.eye(3)),  # reads constants
])
def test_ends_of_every_form(f, monkeypatch):
    monkeypatch.setattr(tails, "_LEAST", -100)
    x, y = np.array([3, 1, 4, 1, 5, 9, 2, 6, 5], "f"), np.linspace(-1, 1, 9).astype("f")
    for one, other in zip(jax.tree.leaves(jax.jit(f, keep_unused=True)(x, y)), jax.tree.leaves(f(x, y)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
