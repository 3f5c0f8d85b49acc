"""LLVM's loop strength reduction on the CPU: which programs keep it, and that threads do not wait for each other's options."""

import threading

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite import lax
from lowering import executable, xla
from lowering.passes import addresses

pytestmark = pytest.mark.usefixtures("uncached")

X = np.linspace(-1, 1, 4096, dtype=np.float32)
LSR = "--disable-lsr"


def spread(x):
    return lax.cond(x[0] > 0, lambda x: jnp.abs(jnp.fft.fft(x)), lambda x: x, x)


@pytest.mark.parametrize("f, x, has", [
    (lambda x: jnp.sin(x) * x[::-1], X, False),
    (lambda x: jnp.tanh(x.reshape(64, 64) @ x.reshape(64, 64)), X, False),
    (lambda z: z.real, X + 1j, True),
    (lambda x: jax.jit(lambda x: (x + 1j).imag)(x), X, True),
    (lambda x: lax.scan(lambda c, x: (c + spread(c), None), x, None, length=2)[0], X, True),
])
def test_complex_programs_keep_it(f, x, has):
    assert addresses.gains(jax.make_jaxpr(f)(x).jaxpr) is has


@pytest.fixture
def compiled(monkeypatch):
    """Whether each compile of the test went without it."""
    seen = []
    compile_module = xla.compile_module

    def spy(module, devices, options, *more):
        seen.append(LSR in str(options.executable_build_options.debug_options))
        return compile_module(module, devices, options, *more)

    monkeypatch.setattr(xla, "compile_module", spy)
    return seen


def program(x):
    return jnp.sin(x) * 3 + x


def test_only_rolled_programs_without_other_threads_go_without(compiled, monkeypatch):
    monkeypatch.setattr(executable, "_is_alone", lambda: True)
    results = [np.asarray(jax.jit(lambda x: program(x))(X))]
    jax.jit(lambda x: jnp.prod(x.reshape(1024, 4), axis=1)).lower(X).compile()  # it is compiled with unrolling
    jax.jit(lambda z: z * z).lower(X + 1j).compile()
    jax.jit(program).lower(X).compile({"jaxlite_cpu_fusion_barriers": False})
    monkeypatch.setattr(executable, "_is_alone", lambda: False)
    results.append(np.asarray(jax.jit(lambda x: program(x))(X)))
    assert compiled == [True, False, False, False, False]
    np.testing.assert_array_equal(*results)


def test_threads_of_others_count_and_own_ones_do_not():
    others = [each for each in threading.enumerate() if each is not threading.current_thread()]
    end = threading.Event()

    def with_thread(name):
        thread = threading.Thread(target=end.wait, name=name)
        thread.start()
        try:
            return executable._is_alone()
        finally:
            end.set()
            thread.join()
            end.clear()

    assert executable._is_alone() or others  # of the test runner
    assert not with_thread("a user's")
    assert with_thread("jaxlite-progress") is executable._is_alone()
