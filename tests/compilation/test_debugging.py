"""What helps to find out where a program goes wrong: NaNs named, guards, the debugger, the warning of many compiles."""

from __future__ import annotations

import io
import logging
import os
import subprocess
import sys

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite import lax
from jaxlite.compilation.recompilation import RecompilationWarning
from jaxlite.core import config

ONES = np.ones(3, np.float32)


@pytest.mark.parametrize(("f", "x", "parts"), [
    (lambda x: jnp.log(x) + 1, -1.0, ["(nan) encountered in log at", "test_debugging.py", "are f32[] -1.0"]),
    (lambda x: jax.jit(lambda y: 0 / y)(x) + 1, 0.0, ["encountered in div", "f32[] 0.0, f32[] 0.0"]),
    (lambda x: x * 2, np.float32([1, np.nan]), ["encountered in mul", "the argument x had it already", "f32[2] with nan"]),
    (lambda x: lax.fori_loop(0, 5, lambda i, c: jnp.log(c), x), 2.0, ["encountered in log", "in step 2 of the loop"]),
    (lambda x: lax.while_loop(lambda c: c > 0, lambda c: jnp.sqrt(c - 8), x), 20.0, ["encountered in sqrt", "in step 1"]),
    (lambda x: lax.cond(x > 0, jnp.sin, jnp.sqrt, x), -4.0, ["encountered in sqrt", "f32[] -4.0"]),
])  # fmt: skip
def test_a_nan_is_traced_back(f, x, parts):
    with jax.debug_nans(True), pytest.raises(FloatingPointError) as error:
        jax.jit(f)(x)
    assert all(part in str(error.value) for part in parts), error.value


def test_an_infinity_is_traced_back():
    with jax.debug_infs(True), pytest.raises(FloatingPointError, match=r"invalid value \(inf\) encountered in div"):
        jax.jit(lambda x: 1 / x - 1)(0.0)


@pytest.mark.parametrize("value", [np.nan, [1.0, np.nan], np.array([np.nan]), complex(0, np.nan), np.inf, [np.inf, 1]])
def test_data_for_a_new_array_are_looked_at(value):
    kind = "nan" if np.isnan(value).any() else "inf"
    for make in (jnp.array, jnp.asarray, jnp.complex64, lambda x: jnp.array(x, jnp.complex64)):
        with getattr(jax, f"debug_{kind}s")(True):
            with pytest.raises(FloatingPointError, match=rf"invalid value \({kind}\) encountered"):
                make(value)
            assert jnp.array([1.0, 2]).tolist() == [1, 2] and jax.device_put(value) is not None
        make(value)


def test_values_inside_of_a_function_are_not_looked_at_whatever_transforms_it():
    with jax.debug_nans(True), jax.debug_infs(True):
        zeros = jnp.zeros((2, 3, 3))  # its norm's logarithm is -inf
        np.testing.assert_array_equal(jax.vmap(jax.scipy.linalg.expm)(zeros), np.broadcast_to(np.eye(3), (2, 3, 3)))
        assert np.isfinite(jax.grad(lambda x: jax.scipy.linalg.expm(x).sum())(zeros[0])).all()
        with pytest.raises(FloatingPointError, match=r"encountered in sqrt .*(?s:.)*f32\[\] -1.0"):
            jax.grad(jnp.sqrt)(-1.0)


def test_compiled_objects_are_looked_at_too():
    log = jax.jit(jnp.log).lower(1.0).compile()
    assert np.isnan(log(-1.0)) and np.isnan(log(-1.0))
    with jax.debug_nans(True):
        assert log(1.0) == log(1.0) == 0
        with pytest.raises(FloatingPointError, match=r"invalid value \(nan\) encountered in log"):
            log(-1.0)


@pytest.mark.parametrize("transform", [
    jax.jit, jax.grad, lambda f: lambda x: jax.jvp(f, (x,), (x,)), lambda f: lambda x: jax.vmap(f)(np.ones(2) * x)],
    ids=["jit", "grad", "jvp", "vmap"])
def test_tracers_that_outlive_their_trace_are_found(transform):
    kept = []
    with jax.checking_leaks():
        transform(jax.nn.silu)(1.0)
        with pytest.raises(jax.errors.LeakChecked, match="Leaked tracer .*while tracing"):
            transform(lambda x: kept.append(x) or x)(1.0)


def test_transfer_guards():
    f = jax.jit(lambda x: x + 1)
    x = jax.device_put(ONES)
    f(ONES)
    with jax.transfer_guard("disallow"):
        f(x), f(jax.device_put(ONES)), jax.device_get(x)
        with pytest.raises(jax.errors.JaxRuntimeError, match="Disallowed host-to-device transfer"):
            f(ONES)
        with jax.transfer_guard_host_to_device("allow"):
            f(ONES)
    with jax.transfer_guard_host_to_device("disallow_explicit"), pytest.raises(jax.errors.JaxRuntimeError, match="Disallowed"):
        jax.device_put(ONES)
    with jax.transfer_guard_device_to_device("disallow"), jax.transfer_guard_device_to_host("disallow"):
        f(ONES)
        jax.vmap(lambda x: jax.random.split(jax.random.key(0)), axis_size=2, in_axes=None)(1.0)
    with pytest.raises(ValueError, match="new enum value must be None or in"), jax.transfer_guard("never"):
        pass
    with jax.transfer_guard("disallow"), jax.transfer_guard(None):  # as for the process
        f(ONES)
    with jax.array_garbage_collection_guard("log"), jax.thread_guard(True):
        f(ONES)
    code = ("import numpy as np, jaxlite as jax\nf = jax.jit(lambda x: x + 1)\n"
            "try: f(np.ones(3))\nexcept jax.errors.JaxRuntimeError: pass\nelse: raise SystemExit('no guard')\n"
            "jax.config.update('jax_transfer_guard', 'allow'); f(np.ones(3))")
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "JAX_TRANSFER_GUARD": "disallow"})


def test_no_tracing_and_no_execution():
    f = jax.jit(lambda x: x + 1)
    f(ONES)
    with jax.no_tracing():
        f(ONES)
        with pytest.raises(RuntimeError, match="re-tracing function .*'no_tracing' is set"):
            f(np.ones(4))
    with jax.no_execution():
        jax.make_jaxpr(f)(ONES)
        with pytest.raises(RuntimeError, match="tried to execute function jit"):
            f(ONES)
    assert f(ONES)[0] == 2


def test_many_compiles_warn_once():
    @jax.jit
    def often(x):
        return x + 1

    with config.recompilation_limit(4):
        with pytest.warns(RecompilationWarning, match="often at .*compiled 4 times") as caught:
            for size in range(8):
                often(np.ones(size))
        assert len(caught) == 1
        assert "argument `x`: f32[3] was f32[2]" in str(caught[0].message)
        with pytest.warns(RecompilationWarning, match="a new function each time"):
            for _ in range(8):
                jax.jit(lambda x: x * 2)(1.0)

        @jax.jit
        @jax.debug.expect_recompilations
        def quiet(x):
            return x + 1

        for size in range(8):
            quiet(np.ones(size))


def test_the_debugger_stops_in_a_compiled_function():
    printed = io.StringIO()
    commands = "p inner\nu\nouter.sum(), options['scale']\nl\nbt\nd\nd\nnothing\na\npp word\nc\n"

    def callee(inner):
        word = "text"  # seen by the debugger
        jax.debug.breakpoint(stdin=io.StringIO(commands), stdout=printed, num_frames=2)
        return inner * len(word)

    @jax.jit
    def caller(x, options):
        outer = jnp.sin(x)
        return callee(outer * options["scale"])

    caller(ONES, {"scale": 2.0})
    jax.effects_barrier()
    text = printed.getvalue()
    for part in ("Array([1.68", "(Array(2.52", "Array(2., dtype=float32", "->      return callee(outer", "in caller",
                 "At bottommost frame", "NameError: name 'nothing'", "inner = Array(", "'text'"):
        assert part in text, (part, text)

    @jax.jit
    def quits(x):
        jax.debug.breakpoint(stdin=io.StringIO("q\n"), stdout=printed)
        return x

    with pytest.raises(jax.errors.JaxRuntimeError, match="ended from the debugger"):
        quits(1.0)
        jax.effects_barrier()


def test_log_and_environment(caplog, capsys):
    with caplog.at_level(logging.INFO, logger="jaxlite.debug"):
        jax.jit(lambda x: jax.debug.log("x is {x}", x=x))(2.0)
        jax.effects_barrier()
    assert "x is 2.0" in caplog.text
    code = "import jaxlite as jax\njax.jit(lambda x: jax.debug.log('x is {}', x))(2.0); jax.effects_barrier()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env={
        **os.environ, "JAX_LOGGING_LEVEL": "info", "JAX_DEBUG_LOG_MODULES": "jaxlite.compilation"})
    assert b"x is 2.0" in done.stderr and b"compiled <lambda> at <string>:2: trace" in done.stderr
    jax.print_environment_info()
    printed = capsys.readouterr().out
    assert printed == jax.print_environment_info(return_string=True) + "\n"
    assert "jaxlib:" in printed
