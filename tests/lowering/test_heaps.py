"""Temporaries in several blocks of memory: which programs get them. That calls reuse them: tests/compilation/test_jit.py."""

import numpy as np

import jaxlite as jax
import jaxlite.numpy as jnp
from lowering.executable import compile_options
from lowering.passes import heaps

X = np.ones((60_000, 32), np.float32)  # 7.7 MB
W = [np.eye(32, dtype=np.float32)] * 6


def gradients(w, x):
    def loss(w):
        h = x
        for each in w:
            h = jnp.tanh(h @ each)
        return jnp.sum(h)

    return jax.grad(loss)(w)


def chosen(fun, *args):
    return heaps.options(jax.make_jaxpr(fun)(*args).jaxpr)


def test_programs_with_little_memory_or_large_arrays_have_one_block():
    assert chosen(gradients, W, X)
    assert not chosen(gradients, W, X[:1000])
    assert not chosen(gradients, W, np.tile(X, (2, 1)))
    assert not chosen(lambda x: jax.lax.scan(lambda c, _: (jnp.sin(c), c), x, None, length=9), X)  # stacked they are large


def test_functions_that_are_called_twice_on_each_of_many_levels():
    f = lambda x: jnp.sin(x) * 2
    for _ in range(40):
        f = jax.jit(lambda x, f=f: f(f(x)))
    assert chosen(f, X)


def test_what_a_user_sets_counts(monkeypatch):
    flag, device = heaps.options(jax.make_jaxpr(gradients)(W, X).jaxpr), jax.devices("cpu")[0]
    name, value = flag[0].split("=")
    assert (name, value) in compile_options(device, None, flags=flag).env_option_overrides
    assert (name, "7") in compile_options(device, {name: "7"}, flags=flag).env_option_overrides
    monkeypatch.setenv("XLA_FLAGS", f"--{name}=-1")
    assert not compile_options(device, None, flags=flag).env_option_overrides
