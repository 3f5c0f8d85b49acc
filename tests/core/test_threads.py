"""Threads: one function called by many at once, many functions at once, options and traces per thread."""

from __future__ import annotations

import subprocess
import sys
import threading

import numpy as np

import jaxlite
from jaxlite import jit, lax

F32 = np.float32
THREADS = 8


def together(action, count=THREADS):
    """Runs `action(index)` in so many threads at the same moment; gives the results in order."""
    barrier, results, failures = threading.Barrier(count), [None] * count, []

    def run(index):
        barrier.wait()
        try:
            results[index] = action(index)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    if failures:
        raise failures[0]
    return results


def compiles(caplog):
    return [record.message.split(" in ")[0] for record in caplog.records if record.message.startswith("compiled")]


def test_many_threads_and_one_function(count_traces, caplog):
    body = count_traces(lambda x: lax.mul(x, x))
    f = jit(body)
    jaxlite.config.update("jax_log_compiles", True)
    try:
        out = together(lambda index: [f(np.full(3, index + call, F32)).tolist() for call in range(20)])
    finally:
        jaxlite.config.update("jax_log_compiles", False)
    assert out == [[[float(index + call) ** 2] * 3 for call in range(20)] for index in range(THREADS)]
    assert body.count == 1 and len(compiles(caplog)) == 1


def test_many_threads_and_stages_of_one_function(caplog):
    f = jit(lambda x: lax.mul(x, x))
    lowered = f.lower(F32(1))
    jaxlite.config.update("jax_log_compiles", True)
    try:
        out = together(lambda index: lowered.compile()(F32(index)).tolist())
    finally:
        jaxlite.config.update("jax_log_compiles", False)
    assert out == [float(index) ** 2 for index in range(THREADS)]
    assert len(compiles(caplog)) == 1


def test_many_functions_and_signatures_at_once():
    shared = jit(lambda x: lax.add(x, x))

    def work(index):
        own = jit(lambda x: lax.mul(shared(x), lax.full_like(x, index)))
        x = np.arange(index, dtype=F32)
        return [own(x).tolist() for _ in range(3)][-1], shared(x).tolist(), jit(own)(x).tolist()

    for index, (own, twice, nested) in enumerate(together(work)):
        assert own == nested == [2.0 * index * k for k in range(index)] and twice == [2.0 * k for k in range(index)]


def test_eager_operations_at_once():
    out = together(lambda index: [lax.add(F32(index), F32(k)).tolist() for k in range(20)])
    assert out == [[float(index + k) for k in range(20)] for index in range(THREADS)]


def test_a_trace_in_one_thread_is_no_matter_of_another():
    entered, leave = threading.Event(), threading.Event()

    @jit
    def slow(x):
        entered.set()
        assert leave.wait(30)
        return lax.add(x, x)

    thread = threading.Thread(target=slow, args=(F32(1),))
    thread.start()
    assert entered.wait(30)
    try:
        assert lax.add(F32(1), F32(2)).tolist() == 3
        assert jit(lambda x: lax.mul(x, x))(F32(3)).tolist() == 9
    finally:
        leave.set()
        thread.join()
    assert slow(F32(2)).tolist() == 4


def test_options_set_by_a_context_belong_to_the_thread():
    f = jit(lambda x: x)

    def work(index):
        with jaxlite.enable_x64(index % 2 == 0):
            return [f(1.0).dtype.name for _ in range(5)]

    assert together(work) == [["float64" if index % 2 == 0 else "float32"] * 5 for index in range(THREADS)]


def test_one_thread_fails_and_the_others_do_not():
    failed = []

    @jit
    def f(x):
        if not failed:
            failed.append(True)
            raise KeyError("first")
        return lax.add(x, x)

    def work(index):
        try:
            return f(F32(index)).tolist()
        except KeyError:
            return "failed"

    out = together(work)
    assert "failed" in out
    assert all(value in ("failed", 2.0 * index) for index, value in enumerate(out))
    assert f(F32(5)).tolist() == 10


def test_caches_cleared_while_others_call():
    f = jit(lambda x: lax.add(x, x))

    def work(index):
        if index == 0:
            for _ in range(3):
                jaxlite.clear_caches()
            return [10.0]
        return [f(F32(5)).tolist() for _ in range(30)]

    assert {value for values in together(work, 4) for value in values} == {10.0}


FIRST_USE = """
import sys, threading, jaxlite as jax, jaxlite.numpy as jnp
sys.setswitchinterval(2e-5)
barrier, failures = threading.Barrier(6), []
shared = jax.jit(lambda x: jnp.sin(x) * 2)
calls = [lambda k: jax.jit(lambda x: x * k)(2.0), lambda k: jnp.arange(6.0)[k] + 1, lambda k: jax.grad(jnp.sin)(1.0),
         lambda k: jax.vmap(lambda x: x + 1)(jnp.ones(2)), lambda k: jnp.array([1, 2]).at[0].set(k),
         lambda k: shared(jnp.ones(k))]
def work(index):
    barrier.wait()
    try:
        for k in range(5):
            calls[(index + k) % 6](k + 1)
            jax.clear_caches()
    except Exception as error:
        failures.append(repr(error))
threads = [threading.Thread(target=work, args=(index,)) for index in range(6)]
[thread.start() for thread in threads], [thread.join() for thread in threads]
print(failures)
"""


def test_first_use_by_several_threads():
    done = subprocess.run([sys.executable, "-c", FIRST_USE], capture_output=True, text=True, timeout=120)
    assert done.stdout == "[]\n", done.stdout + done.stderr[-2000:]
