"""unzip splits a function into init and apply; harvest reads and replaces what it sows."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite import lax, random
from jaxlite.experimental.unzip import call_and_reap, harvest, nest, plant, reap, sow, unzip

KEY, X = random.key(0), np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
param = functools.partial(sow, tag="param")


def net(key, x):
    first, second = random.split(key)
    weights = param(random.uniform(first, (3,)), name="weights")
    scale = nest(lambda k: param({"s": random.uniform(k)}, name="scale")["s"], scope="inner")(second)
    bias = param(jnp.zeros(()), name="bias", key=key)
    return jnp.tanh(x @ weights) * scale + bias


def close(got, expected):
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-6), got, expected)


def test_apply_of_init_is_the_function(count_traces):
    counted = count_traces(net)
    init, apply = unzip(counted, tag="param")(jax.ShapeDtypeStruct(KEY.shape, KEY.dtype), X)
    params = init(KEY)
    assert counted.count == 1
    assert jax.tree.map(jnp.shape, params) == {"weights": (3,), "inner": {"scale": {"s": ()}}, "bias": ()}
    expected = net(KEY, X)
    close(apply(params, X), expected)
    close(jax.jit(apply)(jax.jit(init)(KEY), X), expected)
    close(reap(net, tag="param")(KEY, X), params)
    close(plant(net, tag="param")(params, random.key(7), X), expected)
    assert "random" not in str(jax.make_jaxpr(apply)(params, X))
    assert "tanh" not in str(jax.make_jaxpr(init)(KEY))


def test_both_are_functions_to_transform():
    init, apply = unzip(net, tag="param")(KEY, X)
    params = init(KEY)
    gradient = jax.grad(lambda params: apply(params, X).sum())(params)
    close(gradient["bias"], 2.0)
    params["more"] = 3  # ignored
    many = jax.vmap(apply, (None, 0))(params, np.stack([X, 2 * X]))
    close(many[1], apply(params, 2 * X))
    again = unzip(init, tag="param")(KEY)[0](KEY)
    close(again, init(KEY))
    del params["weights"]
    with pytest.raises(KeyError, match="weights"):
        apply(params, X)


def test_a_batch_of_networks_has_a_batch_of_parameters():
    init, apply = unzip(jax.vmap(net, (0, None)), tag="param")(random.split(KEY, 4), X)
    params = init(random.split(KEY, 4))
    assert jax.tree.map(jnp.shape, params) == {"weights": (4, 3), "inner": {"scale": {"s": (4,)}}, "bias": (4,)}
    close(apply(params, X), jax.vmap(net, (0, None))(random.split(KEY, 4), X))
    gradient = unzip(jax.grad(lambda key, x: net(key, x).sum(), argnums=1), tag="param")(KEY, X)
    params = gradient[0](KEY)
    assert sorted(params) == ["inner", "weights"]  # the gradient does not need the bias
    close(gradient[1](params, X), jax.grad(lambda x: net(KEY, x).sum())(X))


def test_a_jit_is_split():
    @jax.jit
    def layer(key, x):
        weights = param(random.uniform(key, (3,)), name="weights")
        return x @ weights, random.split(key)[0]  # a key comes out too

    def two(key, x):
        out, key = layer(key, x)
        return out * param(random.uniform(key), name="scale")

    init, apply = unzip(two, tag="param")(KEY, X)
    close(apply(init(KEY), X), two(KEY, X))
    assert "name=layer_init" in str(jax.make_jaxpr(init)(KEY))
    assert "name=layer_apply" in str(jax.make_jaxpr(apply)(init(KEY), X))
    with pytest.raises(ValueError, match="Cannot use duplicate variable name: weights"):
        unzip(lambda key, x: layer(key, x)[0] + layer(key, x)[0], tag="param")(KEY, X)
    with pytest.raises(ValueError, match="Cannot use duplicate variable name: twice"):
        unzip(lambda key, x: sum(nest(layer, scope="twice")(key, x)[0] for _ in range(2)), tag="param")(KEY, X)


def test_late_keys_other_tags_chains_and_constants():
    def f(early, late, x):
        a = param(random.uniform(early), name="a")
        b = param(a * 2, name="b")
        c = param(random.uniform(late), name="c")
        state = sow(x + 1, tag="state", name="x")
        return b * c * state + param(jnp.ones(()), name="constant")

    init, apply = unzip(f, tag="param")(KEY, KEY, 2.0)
    params = init(KEY)
    assert sorted(params) == ["a", "b", "constant"]
    rest_init, rest_apply = unzip(functools.partial(apply, params), tag="param")(KEY, 2.0)
    assert list(rest_init(KEY)) == ["c"]
    close(rest_apply(rest_init(KEY), 2.0), f(KEY, KEY, 2.0))
    close(reap(apply, tag="state")(params, KEY, 2.0), {"x": 3.0})
    none_init, none_apply = unzip(lambda x: x + param(1.5, name="a"), tag="param", key_args=None)(2.0)
    close(none_apply({"a": 10.0}, 2.0), 12.0)
    close(none_init(), {"a": 1.5})
    both, _ = unzip(f, tag="param", key_args=(0, 1))(KEY, KEY, 2.0)
    assert sorted(both(KEY, KEY)) == ["a", "b", "c", "constant"]


def test_errors_name_what_is_wrong():
    with pytest.raises(ValueError, match="Must provide sow tag"):
        unzip(net, tag=None)
    with pytest.raises(ValueError, match="Must provide name for variable"):
        unzip(lambda key: param(random.uniform(key), name=None), tag="param")(KEY)

    def uncut(key, x):
        return {"out": x * random.uniform(key)}

    with pytest.raises(ValueError, match="Variables do not cut dependence graph.") as error:
        unzip(uncut, tag="param")(KEY, 2.0)
    assert all(part in str(error.value) for part in ("uncut", "argument key", "result['out']", "test_unzip.py:"))

    def looped(key, x):
        return lax.fori_loop(0, 2, lambda i, c: c + param(random.uniform(key), name="inside"), x)

    with pytest.raises(ValueError, match="'inside' is sown inside a scan"):
        unzip(looped, tag="param")(KEY, 2.0)
    with pytest.raises(ZeroDivisionError):
        unzip(lambda key: 1 // 0, tag="param")(KEY)
    with pytest.raises(ValueError, match="mode must be"):
        sow(1.0, tag="param", name="x", mode="often")
    with pytest.raises(TypeError, match="apply takes arguments of the tree"):
        unzip(net, tag="param")(KEY, X)[1]({})


def test_custom_rules_and_names_do_not_reach_the_compiled_program():
    @jax.custom_vjp
    def odd(x):
        return x

    odd.defvjp(lambda x: (x, None), lambda _, ct: (ct * 7,))
    init, apply = unzip(lambda key, x: odd(param(random.uniform(key), name="a") * x), tag="param")(KEY, 2.0)
    close(jax.grad(apply)(init(KEY), 2.0), {"a": 14.0})

    def text(name):
        return jax.jit(lambda x: nest(lambda x: sow(x, tag=name, name=name), scope=name)(x) * 2).lower(1.0).as_text()

    assert text("first") == text("second")
    close(jax.jvp(lambda x: sow(x * 2, tag="t", name="n"), (1.0,), (1.0,)), (2.0, 2.0))


def test_harvest_in_loops_and_branches():
    def f(x):
        def step(carry, x):
            carry = sow(carry + x, tag="m", name="sums", mode="append")
            return carry, sow(x, tag="m", name="last", mode="clobber")

        total = lax.scan(step, 0.0, x)[0]
        chosen = functools.partial(sow, tag="m", name="chosen")
        total = lax.cond(total > 0, lambda t: chosen(t * 2), lambda t: chosen(-t), total)
        return jax.jit(lambda t: sow(t + 1, tag="m", name="sums", mode="append"))(total)

    x = np.arange(1, 4, dtype=np.float32)
    result, reaps = call_and_reap(f, tag="m")(x)
    close((result, reaps), (13.0, {"sums": [1.0, 3.0, 6.0, 13.0], "last": 3.0, "chosen": 12.0}))
    result, reaps = jax.jit(harvest(f, tag="m", exclusive=True))({"sums": jnp.full(4, 50.0), "last": -1.0}, x)
    close((result, reaps), (50.0, {"chosen": 100.0}))
    assert list(reap(f, tag="m", blocklist=["sums"])(x)) == ["last", "chosen"]
    double = lambda c: sow(c * 2, tag="m", name="c", mode="clobber")
    close(reap(lambda x: lax.while_loop(lambda c: c < 10, double, x), tag="m")(1.0), {"c": 16.0})
    twice = lambda x: sow(x, tag="m", name="y") + sow(x, tag="m", name="y")
    with pytest.raises(ValueError, match="already been reaped: 'y'"):
        reap(twice, tag="m")(1.0)
    with pytest.raises(ValueError, match="mode 'strict' inside a scan loop"):
        reap(lambda x: lax.map(lambda a: sow(a, tag="m", name="y"), x), tag="m")(x)
    with pytest.raises(ValueError, match="do not sow the same names"):
        reap(lambda x: lax.cond(x > 0, lambda x: sow(x, tag="m", name="y"), lambda x: x, x), tag="m")(1.0)
