"""Modules of `experimental` of a few names: generators with a state, LSTM layers, the cache's folder, pjit,
fusions, kernels' times."""

import os
import subprocess
import sys
import types

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite.experimental import ode, rnn, transfer
from jaxlite.experimental.compilation_cache import compilation_cache
from jaxlite.experimental.mosaic.gpu import profiler
from jaxlite.experimental.overlap import program_order
from jaxlite.experimental.pallas import fuser
from jaxlite.experimental.pjit import pjit
from jaxlite.experimental.random import stateful_rng
from jaxlite.sharding import SingleDeviceSharding

# --- generators with a state ---------------------------------------------------------------------


def test_draws_are_those_of_the_keys_that_the_counter_gives():
    rng, key = stateful_rng(3), jax.random.key(3)
    key_of = [jax.random.fold_in(key, n) for n in range(5)]
    np.testing.assert_array_equal(rng.random(2), jax.random.uniform(key_of[0], (2,)))
    np.testing.assert_array_equal(rng.uniform(-1, np.array([1.0, 2.0])),
                                  jax.random.uniform(key_of[1], (2,), minval=-1, maxval=np.array([1.0, 2.0])))
    np.testing.assert_array_equal(rng.normal(1, 2, size=3), 1 + 2 * jax.random.normal(key_of[2], (3,)))
    np.testing.assert_array_equal(rng.integers(5, size=(2, 2)), jax.random.randint(key_of[3], (2, 2), 0, 5))
    assert rng.key() == key_of[4]
    assert len({float(child.random()) for child in [rng, *rng.spawn(2)]}) == 3


def test_a_jitted_function_advances_a_generator():
    rng, twin = stateful_rng(0), stateful_rng(0)
    draw = jax.jit(lambda rng: rng.normal(size=2))
    for _ in range(3):
        np.testing.assert_array_equal(draw(rng), twin.normal(size=2))
    parts = rng.split(3)
    assert len(set(jax.vmap(lambda rng: rng.random())(parts).tolist())) == 3
    with pytest.raises(ValueError, match=r"for vmap: .*shape \(3,\)"):
        parts.random()
    with pytest.raises(TypeError, match="scalar seed"):
        stateful_rng(jax.random.key(0))
    with pytest.raises(TypeError, match="requires an explicit seed"):
        jax.jit(lambda: stateful_rng().random())()


# --- LSTM ----------------------------------------------------------------------------------------


def reference(x, h, c, weights):
    """One direction over one sequence, by the formulas."""
    w_x, w_h, b_x, b_h = (np.asarray(part, np.float64) for part in weights)
    sigmoid = lambda z: 1 / (1 + np.exp(-z))
    outputs = []
    for each in x:
        i, f, g, o = np.split(w_x @ each + b_x + w_h @ h + b_h, 4)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        outputs.append(h)
    return np.array(outputs), h, c


def test_lstm_of_two_layers_and_directions_follows_the_formulas():
    sizes = 3, 4, 2, True
    w = rnn.init_lstm_weight(jax.random.key(0), *sizes)
    assert w.shape == (rnn.get_num_params_in_lstm(*sizes),) and float(abs(w).max()) <= 0.5
    x, h0 = (np.asarray(jax.random.normal(jax.random.key(n), shape)) for n, shape in ((1, (2, 5, 3)), (2, (4, 2, 4))))
    lengths = [5, 3]
    y, h, c = jax.jit(lambda w: rnn.lstm(x, h0, h0 / 2, w, jnp.array(lengths), *sizes[:3], 0.0, True))(w)
    parts = rnn.unpack_lstm_weights(w, *sizes)
    for b, length in enumerate(lengths):
        inner = x[b, :length]
        for layer in range(2):
            outputs = []
            for direction in range(2):
                at = 2 * layer + direction
                turn = slice(None, None, -1 if direction else 1)
                out, last_h, last_c = reference(inner[turn], h0[at, b], h0[at, b] / 2, [part[at] for part in parts])
                np.testing.assert_allclose(h[at, b], last_h, rtol=1e-4, atol=1e-5)
                np.testing.assert_allclose(c[at, b], last_c, rtol=1e-4, atol=1e-5)
                outputs.append(out[turn])
            inner = np.concatenate(outputs, -1)
        np.testing.assert_allclose(y[b, :length], inner, rtol=1e-4, atol=1e-5)
        assert not np.any(y[b, length:])


def test_gates_and_bad_weights_of_an_lstm():
    sizes = 3, 4, 1, False
    n = rnn.get_num_params_in_lstm(*sizes)
    swapped = rnn.swap_lstm_gates(jnp.arange(n), *sizes)
    assert swapped[24:48].tolist() == [*range(36, 48), *range(24, 36)]
    assert rnn.swap_lstm_gates(swapped, *sizes).tolist() == list(range(n))
    with pytest.raises(ValueError, match=rf"shape \({n},\), got \({n - 1},\)"):
        rnn.unpack_lstm_weights(jnp.zeros(n - 1), *sizes)
    state = jnp.zeros((1, 1, 4))
    with pytest.raises(NotImplementedError, match="dropout=0.5"):
        rnn.lstm(jnp.zeros((1, 1, 3)), state, state, jnp.zeros(n), jnp.ones(1), 3, 4, 1, 0.5, False)


# --- the rest ------------------------------------------------------------------------------------


def test_pjit_is_jit_and_the_cache_has_a_folder(tmp_path):
    assert pjit(lambda x, n: x * n, None, None, 1)(np.ones(2), 3).tolist() == [3, 3]
    before = jax.config.jax_compilation_cache_dir
    try:
        compilation_cache.set_cache_dir(tmp_path)
        assert jax.config.jax_compilation_cache_dir == str(tmp_path)
    finally:
        jax.config.update("jax_compilation_cache_dir", before)
    compilation_cache.reset_cache()


@pytest.mark.parametrize("strict", [False, True, (True, False)])
def test_program_order_holds_operands_beside_the_results_before(strict):
    def plain(x, *, y):
        z = jnp.sin(x["a"])
        w = jnp.cos(y)
        return [z + w, 2.0 * w]

    ordered = program_order(enforce=True, strict_in_out=strict)(plain)
    x, y = {"a": np.float32([1, 2])}, np.float32([3, 4])
    names = [eqn.primitive.name for eqn in jax.make_jaxpr(lambda x, y: ordered(x, y=y))(x, y).eqns]
    start, end = strict if isinstance(strict, tuple) else (strict, strict)
    barrier = ["optimization_barrier"]
    assert names == [*barrier * start, "sin", *barrier, "cos", *barrier, "add", *barrier, "mul", *barrier * end]
    for found, expected in zip(jax.jit(ordered)(x, y=y), plain(x, y=y), strict=True):
        np.testing.assert_array_equal(found, expected)
    total = lambda f: jax.grad(lambda y: sum(each.sum() for each in jax.vmap(lambda y: f(x, y=y))(y)))(np.stack([y, 2 * y]))
    np.testing.assert_allclose(total(ordered), total(plain), rtol=1e-6)


def test_program_order_takes_a_call_for_one_operation():
    inner = program_order(lambda x: jnp.sin(jnp.cos(x)), enforce=False)
    names = [eqn.primitive.name for eqn in jax.make_jaxpr(program_order(lambda x: -inner(-x), enforce=True))(1.0).eqns]
    assert names == ["neg", "optimization_barrier", "jit", "optimization_barrier", "neg"]
    late = program_order(lambda x, y: x * y, enforce=False, exclude_argnames="y")
    jaxpr = jax.make_jaxpr(program_order(lambda x: late(jnp.sin(x), y=jnp.cos(x)), enforce=True))(1.0)
    *_, cosine, barrier, call = jaxpr.eqns
    assert call.invars[1] is cosine.outvars[0] and call.invars[0] in barrier.outvars  # only the first is held back
    assert late(2.0, 3.0) == jax.jit(late)(2.0, 3.0) == 6 and jax.grad(jax.jit(late), 1)(2.0, 3.0) == 2
    for options in ({"enforce": True, "exclude_argnames": "x"}, {"enforce": False, "strict_in_out": True},
                    {"enforce": False, "exclude_argnames": ("y",)}):
        with pytest.raises(ValueError):
            program_order(lambda x: x, **options)


# --- kernels' values and times -------------------------------------------------------------------


def test_fusions_are_functions_in_the_place_of_arrays():
    seen = []

    @fuser.fusible
    def add(x, y, results):
        seen.append((x.shape, x.dtype, x.in_shape, results))
        return x() + y()

    np.testing.assert_array_equal(jax.jit(add)(jnp.ones(3), jnp.arange(3)), [1, 2, 3])
    assert seen == [((3,), np.float32, ((), {}), None)]
    fusion = fuser.Fusion(lambda n: (n, n), ((jax.ShapeDtypeStruct((2,), int),), {}), (jax.ShapeDtypeStruct((2,), float),) * 2)
    assert fusion(3) == (3, 3) and fusion.shape == ((2,), (2,)) and fusion.in_shape == (((2,),), {})
    assert fuser.fusible(lambda x, parts: len(parts), output_fusion_prefix=(True, True))(1) == 2


def test_kernels_of_a_profile():
    event = lambda name, start, ns: types.SimpleNamespace(name=name, start_ns=start, duration_ns=ns)
    line = lambda name, *events: types.SimpleNamespace(name=name, events=events)
    plane = lambda name, *lines: types.SimpleNamespace(name=name, lines=lines)
    profile = types.SimpleNamespace(planes=[
        plane("/host:CPU", line("Stream of words", event("call", 0, 1))),
        plane("/device:GPU:0", line("Stream #1(Compute)", event("add", 5, 2e6), event("MemcpyH2D", 1, 9)),
              line("Stream #2(Compute)", event("dot", 3, 1e6)), line("XLA Modules", event("jit_f", 0, 9e6)))])
    assert profiler.kernels(profile) == [("dot", 1.0), ("add", 2.0)]
    with pytest.raises(ValueError, match="positive"):
        profiler.measure(jnp.sin, iterations=0)
    if jax.default_backend() == "cpu":
        with pytest.raises(RuntimeError, match="not supported"):
            profiler.Cupti().measure(jnp.sin)(1.0)


def test_the_first_argument_as_a_vector():
    tree = {"a": jnp.ones((2, 2)), "b": 3.0}
    vector, unravel = jax.flatten_util.ravel_pytree(tree)
    double = ode.ravel_first_arg(lambda y, t: jax.tree.map(lambda leaf: leaf * t, y), unravel)
    np.testing.assert_array_equal(double(vector, 2.0), 2 * vector)


OFFERS = """
import jaxlite as jax, jaxlite.numpy as jnp
from jaxlite.experimental.transfer import start_transfer_server
server = start_transfer_server(jax.devices()[0].client, "127.0.0.1:0", ["127.0.0.1:0"])
server.await_pull(7, {"x": jnp.arange(4.0), "y": (jnp.ones((2, 3), jnp.bfloat16),)})
print(server.address(), flush=True)
input()
"""


def test_arrays_of_another_process():
    path = os.pathsep.join(sys.path)
    with subprocess.Popen([sys.executable, "-c", OFFERS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                          env={**os.environ, "PYTHONPATH": path}) as other:
        device = jax.devices()[0]
        server = transfer.start_transfer_server(device.client, "127.0.0.1:0", ["127.0.0.1:0"])
        connection = server.connect(other.stdout.readline().strip())
        typed = lambda shape, dtype: jax.ShapeDtypeStruct(shape, dtype, sharding=SingleDeviceSharding(device))
        found = connection.pull(7, {"x": typed((4,), np.float32), "y": (typed((2, 3), jnp.bfloat16),)})
        np.testing.assert_array_equal(found["x"] + 1, np.arange(4) + 1)
        assert found["y"][0].dtype == jnp.bfloat16 and found["x"].sharding == SingleDeviceSharding(device)
        other.communicate("\n")
    assert connection.pull(8, []) == []
    with pytest.raises(ValueError, match="has no sharding"):
        connection.pull(9, jax.ShapeDtypeStruct((4,), np.float32))
    with pytest.raises(jax.errors.JaxRuntimeError, match="no such luck"):
        np.asarray(transfer.make_error_array(typed((4,), np.float32), "no such luck"))
