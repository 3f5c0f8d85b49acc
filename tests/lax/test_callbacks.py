"""Host callbacks: what they are given and what they may give, how often and in which order they are called, and what
transformations make of them. The expected calls are those of JAX 0.10.2."""

from __future__ import annotations

import functools
import gc
import threading
import traceback
import weakref

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite import lax
from jaxlite.compilation.execution import Executable
from jaxlite.compilation.stages import Lowered
from jaxlite.experimental import io_callback
from lowering.cache import keys

X = np.arange(3, dtype=np.float32)
SCALAR = jax.ShapeDtypeStruct((), np.float32)
ROW = jax.ShapeDtypeStruct((3,), np.float32)
EAGER_AND_JIT = pytest.mark.parametrize("how", [lambda f: f, jax.jit], ids=["eager", "jit"])
ORDERED = pytest.mark.parametrize("ordered", [False, True], ids=["unordered", "ordered"])


class Recorder:
    """A callback that writes down what it is called with."""

    def __init__(self):
        self.calls = []

    def __call__(self, *args):
        self.calls.append(tuple(np.asarray(arg).tolist() for arg in args))

    def of(self, fun, *args):
        """The calls so far, after `fun(*args)` and all of its effects."""
        jax.block_until_ready(fun(*args))
        jax.effects_barrier()
        return self.calls


@pytest.fixture
def seen():
    return Recorder()


# --- values ------------------------------------------------------------------------------------------


@EAGER_AND_JIT
@pytest.mark.parametrize("callback", [
    lambda f, shapes, *args, **kwargs: jax.pure_callback(f, shapes, *args, **kwargs),
    lambda f, shapes, *args, **kwargs: io_callback(f, shapes, *args, **kwargs),
    lambda f, shapes, *args, **kwargs: io_callback(f, shapes, *args, ordered=True, **kwargs),
], ids=["pure", "io", "ordered io"])
def test_pytrees_of_arrays_go_in_and_come_out(how, callback):
    def host(tree, *, shift):
        assert all(type(leaf) is type(jnp.ones(1)) for leaf in (*tree.values(), shift))
        return [np.linalg.inv(tree["m"]), (tree["v"] + shift).astype(jnp.int16)]

    shapes = {"inverse": jax.ShapeDtypeStruct((2, 2), np.float32), "sum": jax.ShapeDtypeStruct((3,), np.int16)}
    m = np.array([[1, 2], [3, 5]], np.float32)
    out = how(lambda m, v: callback(host, shapes, {"m": m.T, "v": v}, shift=2))(m, X)
    np.testing.assert_allclose(out["inverse"], np.linalg.inv(m.T), rtol=1e-5)
    assert out["sum"].tolist() == [2, 3, 4] and out["sum"].dtype == np.int16


@pytest.mark.parametrize("dtype", ["bool", "int4", "uint8", "bfloat16", "float16", "complex64"])
def test_every_dtype_arrives(dtype):
    f = jax.jit(lambda x: jax.pure_callback(lambda x: np.asarray(x)[::-1], jax.ShapeDtypeStruct((3,), dtype), x))
    out = f(jnp.array([0, 1, 1]).astype(dtype))
    assert out.dtype == jnp.dtype(dtype) and out.astype(np.float32).tolist() == [1, 1, 0]


def test_doubles_arrive_where_they_are_on():
    with jax.enable_x64(True):
        f = jax.jit(lambda x: jax.pure_callback(lambda x: np.asarray(x) * 2, jax.ShapeDtypeStruct((), np.float64), x))
        assert float(f(np.float64(1e200))) == 2e200
    with pytest.raises(ValueError, match="64-bit"):
        jax.pure_callback(np.sin, jax.ShapeDtypeStruct((), np.float64), 1.0)


WRONG = {
    "shape": lambda x: np.ones(2, np.float32), "dtype": lambda x: np.ones(3, np.int32), "number": lambda x: (x, x),
    "nothing": lambda x: None, "list": lambda x: [0.0, 1.0, 2.0], "text": lambda x: "text",
}


@EAGER_AND_JIT
@pytest.mark.parametrize("wrong", WRONG)
def test_what_was_not_promised_is_an_error(how, wrong):
    with pytest.raises(jax.errors.JaxRuntimeError, match="result_shape_dtypes promises"):
        jax.block_until_ready(how(lambda x: jax.pure_callback(WRONG[wrong], ROW, x))(X))


@EAGER_AND_JIT
@pytest.mark.parametrize(("name", "call"), [
    ("pure_callback", lambda f, x: jax.pure_callback(f, SCALAR, x)),
    ("io_callback", lambda f, x: io_callback(f, SCALAR, x, ordered=True)),
    ("debug.callback", lambda f, x: jax.debug.callback(f, x)),
])
def test_the_traceback_of_the_callback_is_logged(how, name, call, caplog):
    def fail(x):
        raise KeyError("my own error")

    with pytest.raises((jax.errors.JaxRuntimeError, KeyError)):
        jax.block_until_ready(how(lambda x: (call(fail, x), x))(1.0))
        jax.effects_barrier()
    (record,) = [each for each in caplog.records if each.name == "jaxlite.callbacks"]
    assert record.getMessage() == f"jax.{name} failed"
    assert [frame.name for frame in traceback.extract_tb(record.exc_info[2])] == ["fail"]


@EAGER_AND_JIT
def test_an_exception_of_the_callback_comes_out_each_time(how):
    def fail(x):
        raise KeyError("my own error")

    f = how(lambda x: io_callback(fail, SCALAR, x))
    for _ in range(3):
        with pytest.raises(jax.errors.JaxRuntimeError, match="my own error"):
            jax.block_until_ready(f(1.0))
    with pytest.raises(jax.errors.JaxRuntimeError if how is jax.jit else KeyError, match="my own error"):
        jax.block_until_ready(how(lambda x: (jax.debug.callback(fail, x), x)[1])(1.0))


def test_pure_callbacks_run_on_the_fast_path_others_do_not(monkeypatch):
    def compiled(callback):
        f = jax.jit(lambda x: lax.cond(x[0] > 5, lambda x: callback(np.negative, x), lambda x: x, x))
        assert f(X).tolist() == [0, 1, 2]
        return f

    pure = compiled(lambda f, x: jax.pure_callback(f, ROW, x))
    with_effects = compiled(lambda f, x: io_callback(f, ROW, x))

    def fail(*args):
        raise AssertionError("back in Python")

    monkeypatch.setattr(Executable, "__call__", fail)
    assert pure(X).tolist() == [0, 1, 2]
    assert pure(X + 6).tolist() == [-6, -7, -8]
    with pytest.raises(AssertionError, match="back in Python"):
        with_effects(X)


def test_a_pure_callback_may_fail_after_calls_that_succeed():
    def positive(x):
        if x < 0:
            raise KeyError("my own error")
        return x

    f = jax.jit(lambda x: jax.pure_callback(positive, SCALAR, x))
    for _ in range(2):
        assert f(np.float32(4)) == 4
        with pytest.raises((jax.errors.JaxRuntimeError, ValueError), match="my own error"):
            jax.block_until_ready(f(np.float32(-4)))


@pytest.mark.parametrize(("call", "error", "says"), [
    (lambda: jax.pure_callback(np.sin, SCALAR, "text"), TypeError, "neither an array nor a scalar"),
    (lambda: jax.pure_callback(np.sin, SCALAR, 1.0, vmap_method="other"), ValueError, "vmap_method"),
    (lambda: jax.pure_callback(np.sin, SCALAR, 1.0, sharding=jax.P()), NotImplementedError, "SingleDeviceSharding"),
    (lambda: jax.pure_callback(np.sin, 3, 1.0), AttributeError, "dtype"),
    (lambda: jax.debug.callback(3, 1.0), TypeError, "must be callable"),
    (lambda: jax.debug.print(3, 1.0), TypeError, "format string"),
    (lambda: jax.debug.print("{}", 1, 2), ValueError, "Unused positional arguments"),
    (lambda: jax.debug.log(3, 1.0), TypeError, "format string"),
    (lambda: jax.debug.log("{}", 1, 2), ValueError, "Unused positional arguments"),
    (lambda: jax.debug.print("{}", 1, b=2), ValueError, r"Unused keyword arguments .*\['b'\]"),
    (lambda: jax.debug.print("{} {}", 1), IndexError, "out of range"),
    (lambda: jax.debug.print("{b}", 1), KeyError, "b"),
    (lambda: jax.jit(lambda: jax.debug.print("{}", lax.create_token()))(), TypeError, "takes arrays"),
])
def test_wrong_arguments(call, error, says):
    for how in (lambda f: f, jax.jit):
        with pytest.raises(error, match=says):
            how(call)()


# --- printing ----------------------------------------------------------------------------------------


PRINTS = [
    (lambda x: jax.debug.print("x = {}", x), "x = [0. 1. 2.]"),
    (lambda x: jax.debug.print("{y:.2f} {} {y!r:.5}", "text", y=x[1] / 3), "0.33 text Array"),
    (lambda x: jax.debug.print("{x[2]} {x.shape} {0:>{w}}", 1, x=x, w=3), "2.0 (3,)   1"),
    (lambda x: jax.debug.print(ordered=True)("{ordered}{{}}", ordered={"a": x, "b": None}),
     "{'a': Array([0., 1., 2.], dtype=float32), 'b': None}{}"),
    (lambda x: jax.debug.print("no fields"), "no fields"),
    (lambda x: jax.debug.print("no fields: {{}}, }}"), "no fields: {{}}, }}"),
    (lambda x: jax.debug.print("values {{", 1, "a", skip_format_check=True), "values {{ 1 a"),
]


@EAGER_AND_JIT
@pytest.mark.parametrize(("show", "text"), PRINTS)
def test_print(how, show, text, capsys):
    f = how(lambda x: show(x))
    for _ in range(3):  # also where the call path has seen the signature
        f(jnp.asarray(X))
    jax.effects_barrier()
    assert capsys.readouterr().out == (text + "\n") * 3


def test_print_follows_numpys_options_of_the_time_it_was_traced(capsys):
    with np.printoptions(precision=2):
        f = jax.jit(lambda x: jax.debug.print("{}", x))
        f(X / 3)
    f(X / 3)
    jax.effects_barrier()
    assert capsys.readouterr().out == "[0.   0.33 0.67]\n" * 2


# --- how often, in which order -----------------------------------------------------------------------


def test_unread_results(seen):
    @jax.jit
    def f(x):
        jax.pure_callback(lambda x: seen("pure", x), SCALAR, x)
        assert jax.pure_callback(3, (), x) == ()
        io_callback(lambda x: seen("io", x) or x, SCALAR, x)
        jax.debug.callback(functools.partial(seen, "debug"), x)
        return x

    assert sorted(seen.of(f, 1.0)) == [("debug", 1.0), ("io", 1.0)]
    assert len(seen.of(f, 2.0)) == 4


LOOPS = {
    "scan": (lambda see: lax.scan(lambda c, x: (see(c) or c + x, see(c)), 0.0, X), [0, 0, 0, 0, 1, 1]),
    "reverse unrolled scan": (
        lambda see: lax.scan(lambda c, x: (see(x) or c + x, None), 0.0, X, reverse=True, unroll=2), [2, 1, 0]),
    "long body": (lambda see: lax.scan(lambda c, x: (functools.reduce(lambda c, _: see(c) or c + x, range(5), c), c),
                                       0.0, X[1:], unroll=2), [0, 1, 2, 3, 4, 5, 7, 9, 11, 13]),
    "fori_loop": (lambda see: lax.fori_loop(0, 3, lambda i, c: see(i) or c, 0), [0, 1, 2]),
    "while body": (lambda see: lax.while_loop(lambda c: c < 2, lambda c: see(c) or c + 1, 0), [0, 1]),
    "while condition": (
        lambda see: lax.while_loop(lambda c: [see(c), c < 2][1], lambda c: see(-c) or c + 1, 0), [0, 0, 1, -1, 2]),
    "branches": (lambda see: [lax.switch(i, [lambda i: see(i), lambda i: None, lambda i: [see(5), see(6)] and None], i)
                              for i in (0, 1, 2)], [0, 5, 6]),
    "nested calls": (lambda see: [jax.jit(lambda i: jax.jit(see)(i) or see(i + 1))(i) for i in (1, 3)], [1, 2, 3, 4]),
}


@ORDERED
@pytest.mark.parametrize("case", LOOPS)
def test_calls_and_control_flow(case, ordered, seen):
    run, expected = LOOPS[case]

    def see(x):
        jax.debug.callback(seen, x, ordered=ordered)

    jitted = jax.jit(lambda: run(see))
    found = [x for (x,) in seen.of(jitted)]
    assert (found if ordered else sorted(found)) == (expected if ordered else sorted(expected))
    assert jitted.lower().as_text().count("stablehlo.after_all") == ordered  # one chain of tokens, from one start
    with jax.disable_jit():
        seen.calls.clear()
        assert [x for (x,) in seen.of(jax.jit(lambda: run(see)))] == expected


def test_order_holds_between_kinds_and_programs(seen):
    slow = jax.jit(lambda x: lax.fori_loop(0, 40, lambda i, x: x @ x * 1e-3, x))

    @jax.jit
    def f(x, i):
        i = i + 0 * x[0, 0]
        jax.debug.callback(seen, i, ordered=True)
        io_callback(seen, None, i + 0.5, ordered=True)
        return x

    def run():
        f(slow(jnp.ones((400, 400))), 0)  # has to wait for what it is given
        f(jnp.ones((2, 2)), 1)
        io_callback(seen, None, 2.0, ordered=True)

    assert seen.of(run) == [(0.0,), (0.5,), (1.0,), (1.5,), (2.0,)]


def test_threads_keep_their_order(seen):
    f = jax.jit(lambda x, i: (io_callback(seen, None, i, ordered=True), x @ x)[1])
    f(jnp.ones((50, 50)), -1)

    def work(k):
        for i in range(5):
            f(jnp.ones((50, 50)), 10 * k + i)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    calls = [i for (i,) in seen.of(lambda: None)][1:]
    assert len(calls) == 15 and all([i for i in calls if i // 10 == k] == [10 * k + i for i in range(5)] for k in range(3))


def test_a_callback_may_compute_with_jaxlite(seen):
    inner = jax.jit(lambda x: (io_callback(seen, None, x[0, 0], ordered=True), jnp.sin(x) @ x)[1])

    def host(x):
        y = inner(x)
        io_callback(seen, None, -1.0, ordered=True)
        jax.effects_barrier()
        return y + 1

    f = jax.jit(lambda x: io_callback(host, x, x, ordered=True).sum())
    x = np.full((200, 200), 0.5, np.float32)
    np.testing.assert_allclose(f(x), (np.sin(x) @ x + 1).sum(), rtol=1e-4)
    assert seen.calls == [(0.5,), (-1.0,)]
    compiled = jax.jit(lambda x: jax.pure_callback(lambda x: jnp.cos(x), SCALAR, x)).lower(1.0).compile()
    traced = jax.make_jaxpr(lambda x: x + compiled(0.0))(1.0)  # runs while something else is traced
    assert "cos" not in [eqn.primitive.name for eqn in traced.eqns]


# --- transformations ---------------------------------------------------------------------------------


def _add(shapes, x, y):
    shapes.append((x.shape, y.shape))
    return np.asarray(x) + np.asarray(y)


@pytest.mark.parametrize(("method", "shapes"), [
    ("sequential", [((3,), (3,))] * 2), ("sequential_unrolled", [((3,), (3,))] * 2), ("expand_dims", [((2, 3), (1, 3))]),
    ("broadcast_all", [((2, 3), (2, 3))]), ("legacy_vectorized", [((2, 3), (3,))]),
])
def test_vmap_of_pure_callback(method, shapes):
    found = []
    f = jax.vmap(lambda x, y: jax.pure_callback(functools.partial(_add, found), ROW, x, y, vmap_method=method), (1, None))
    batch = np.arange(6, dtype=np.float32).reshape(3, 2)
    np.testing.assert_array_equal(f(batch, X), batch.T + X)
    assert found == shapes
    found.clear()
    np.testing.assert_array_equal(jax.jit(f)(batch, X), batch.T + X)
    assert found == shapes
    with pytest.raises(NotImplementedError, match="vmap_method"):
        jax.vmap(lambda x: jax.pure_callback(np.sin, SCALAR, x))(X)


@EAGER_AND_JIT
def test_vmap_of_callbacks_with_effects(how, seen):
    np.testing.assert_array_equal(how(jax.vmap(lambda x: io_callback(lambda x: seen(x) or x * 2, SCALAR, x)))(X), X * 2)
    assert sorted(seen.calls) == [(0.0,), (1.0,), (2.0,)]
    seen.calls.clear()
    see = lambda x, y: jax.debug.callback(seen, x, y, 7, ordered=True)
    assert seen.of(how(jax.vmap(see, (0, None))), X, 5.0) == [(x, 5.0, 7) for x in X]
    seen.calls.clear()
    assert seen.of(how(jax.vmap(lambda x: jax.debug.callback(seen, 1) or x)), X) == [(1,)]
    with pytest.raises(ValueError, match="ordered IO"):
        how(jax.vmap(lambda x: io_callback(seen, None, x, ordered=True)))(X)


def test_vmap_of_control_flow(seen):
    stop = jnp.array([1, 2])
    loop = lambda act: jax.vmap(lambda n: lax.while_loop(lambda c: c < n, lambda c: act(c) or c + 1, 0))
    branch = lambda act: jax.vmap(lambda n: lax.cond(n > 1, lambda n: act(n) or n, lambda n: n, n))
    assert seen.of(loop(lambda c: jax.debug.callback(seen, c, ordered=True)), stop) == [(0,), (0,), (1,), (1,)]
    seen.calls.clear()
    assert seen.of(branch(lambda c: jax.debug.callback(seen, c, ordered=True)), stop) == [(1,), (2,)]
    for form in (loop, branch):
        with pytest.raises(NotImplementedError, match="IO effects"):
            form(lambda c: io_callback(seen, None, c))(stop)


def _looks(see):
    def f(x):
        see(x)
        return jnp.sin(x) * x
    return f


GRADS = {
    "plain": (lambda see: _looks(see), [2.0]),
    "jit": (lambda see: jax.jit(_looks(see)), [2.0]),
    "checkpoint": (lambda see: jax.checkpoint(_looks(see)), [2.0, 2.0]),
    "cond": (lambda see: lambda x: lax.cond(x > 0, _looks(see), lambda x: x, x), [2.0]),
    "scan": (lambda see: lambda x: lax.scan(lambda c, _: (_looks(see)(c), None), x, None, length=1)[0], [2.0]),
    "beside": (lambda see: lambda x: _looks(lambda _: see(lax.stop_gradient(x) + 1))(x), [3.0]),
}


@ORDERED
@pytest.mark.parametrize("case", GRADS)
def test_grad_looks_on(case, ordered, seen):
    make, expected = GRADS[case]
    f = make(lambda x: jax.debug.callback(seen, x, ordered=ordered))
    for form in (jax.grad(f), jax.jit(jax.grad(f)), jax.jit(lambda x: jax.linearize(f, x)[1](1.0))):
        seen.calls.clear()
        assert [x for (x,) in seen.of(form, 2.0)] == expected
        np.testing.assert_allclose(form(2.0), np.sin(2) + 2 * np.cos(2), rtol=1e-5)


def test_callbacks_that_give_values_have_no_derivative(seen):
    pure = lambda x: jax.pure_callback(np.sin, SCALAR, x)
    io = lambda x: io_callback(np.sin, SCALAR, x)
    for f, says in ((pure, "Pure callbacks do not support JVP"), (io, "IO callbacks do not support JVP")):
        for form in (jax.grad(f), lambda x, f=f: jax.jvp(f, (x,), (x,)), jax.grad(jax.jit(f))):
            with pytest.raises(ValueError, match=says):
                form(1.0)
        np.testing.assert_allclose(jax.grad(lambda x, f=f: f(lax.stop_gradient(x)) * x)(1.0), np.sin(1), rtol=1e-6)
    with pytest.raises(NotImplementedError, match="IO effects"):
        jax.grad(jax.checkpoint(lambda x: io(lax.stop_gradient(x)) * x))(1.0)

    sine = jax.custom_jvp(pure)
    sine.defjvp(lambda primals, tangents: (sine(*primals), tangents[0] * jnp.cos(primals[0])))
    np.testing.assert_allclose(jax.jit(jax.grad(sine))(1.0), np.cos(1), rtol=1e-6)


def test_no_callback_where_xla_cannot_run_one():
    add = lambda x, y: jax.pure_callback(lambda x, y: np.asarray(x) + np.asarray(y), SCALAR, x, y)
    for call in (lambda: lax.reduce(X, np.float32(0), add, (0,)),
                 lambda: lax.reduce_window(X, np.float32(0), jax.jit(add), (2,), (1,), "VALID")):
        with pytest.raises(NotImplementedError, match="inside the function of a reduction"):
            call()


# --- programs ----------------------------------------------------------------------------------------


def test_jaxprs_say_what_is_called():
    def f(x):
        jax.debug.print("{} {y}", x, y="text", ordered=True)
        jax.debug.callback(np.sin, x)
        return jax.pure_callback(np.sin, ROW, x, vmap_method="sequential"), io_callback(np.sin, ROW, x)

    closed = jax.make_jaxpr(jax.jit(f))(X)
    eqns = closed.eqns[0].params["jaxpr"].eqns
    assert [eqn.primitive.name for eqn in eqns] == ["debug_print", "debug_callback", "pure_callback", "io_callback"]
    assert [sorted(map(str, eqn.effects)) for eqn in eqns] == [["OrderedDebug"], ["Debug"], [], ["IO"]]
    assert sorted(map(str, closed.effects)) == ["Debug", "IO", "OrderedDebug"]
    shown, looks, pure, io = [eqn.params for eqn in eqns]
    assert set(shown) == {"fmt", "has_placeholders", "in_tree", "logging_record", "np_printoptions", "ordered", "partitioned",
                          "static_args"}
    assert shown["fmt"] == "{} {y}" and shown["static_args"] == ((1, "text"),) and shown["has_placeholders"]
    assert set(looks) == {"callback", "effect", "partitioned"} and str(looks["effect"]) == "Debug"
    assert set(pure) == {"callback", "result_avals", "sharding", "vmap_method"}
    assert set(io) == {"callback", "ordered", "result_avals", "sharding"}
    jax.extend.core.check_jaxpr(closed)
    assert "callback=_FlatCallback(callback_func=<ufunc 'sin'>, in_tree=PyTreeDef(((*,), {})))" in str(closed)
    assert f"result_avals=(ShapedArray(float32[{ROW.shape[0]}]),)" in str(closed)


def test_values_outside_of_jit_keep_their_types(seen):
    types = []
    jax.debug.callback(lambda *args: types.extend(map(jax.typeof, args)), 1.0, np.float32(1), 2)
    assert [(str(aval.dtype), aval.weak_type) for aval in types] == [("float32", True), ("float32", False), ("int32", True)]


def test_stages_and_the_persistent_cache(seen, tmp_path, monkeypatch, caplog):
    lowered = jax.jit(lambda x: (jax.debug.callback(seen, x), x + 1)[1]).lower(1.0)
    assert isinstance(lowered, Lowered) and "has_side_effect = true" in lowered.as_text()
    monkeypatch.setitem(keys.settings, "folder", lambda: str(tmp_path))
    monkeypatch.setitem(keys.settings, "threshold", lambda: 0.0)
    with jax.log_compiles(True):
        compiled = lowered.compile()
    assert "(cache" not in caplog.text and not list(tmp_path.iterdir())
    assert seen.of(compiled, 1.0) == [(1.0,)] and seen.of(compiled, 2.0) == [(1.0,), (2.0,)]


def test_callbacks_die_with_the_program():
    def make():
        host = lambda x: np.asarray(x)
        f = jax.jit(lambda x: jax.pure_callback(host, SCALAR, x))
        f(1.0)
        return f, weakref.ref(host)

    f, host = make()
    gc.collect()
    assert float(f(2.0)) == 2 and host() is not None
    del f
    gc.collect()
    jax.jit(lambda x: x - 1)(1.0)  # jaxlib drops references at its next call
    gc.collect()
    assert host() is None


@ORDERED
def test_a_loop_with_callbacks_is_linearized(seen, ordered):
    def until_four(x):
        def step(x):
            io_callback(seen, None, lax.stop_gradient(x), ordered=ordered)
            return x * 2
        return lax.while_loop(lambda x: x < 4, step, x)

    out, push = jax.linearize(until_four, 1.0)
    jax.effects_barrier()
    assert (out, push(3.0)) == (4, 12) and seen.calls[:2] == [(1,), (2,)]
