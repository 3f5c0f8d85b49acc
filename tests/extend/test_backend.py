"""Clients of platforms: other ones in the place of those that have started, and platforms of a library's own."""

import subprocess
import sys

import pytest

from jaxlite.extend import backend

START = """
import jaxlite as jax, jaxlite.numpy as jnp, numpy as np
from jaxlite.extend import backend
from lowering import xla
"""


def run(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", START + program], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_new_clients_start_by_the_options_of_then():
    assert run("""
f = jax.jit(lambda x: x * 2)
old, device = f(jnp.arange(4.)), jax.devices()[0]
try:
    jax.config.update("jax_num_cpu_devices", 4)
except RuntimeError as error:
    print("before backends are initialized" in str(error))
backend.clear_backends()
jax.config.update("jax_num_cpu_devices", 4)
devices = jax.devices()
assert len(devices) == 4 and device not in devices and f(np.ones(2)).devices() == {devices[0]}
mesh = jax.make_mesh((4,), ("x",))
spread = jax.device_put(np.arange(8.), jax.NamedSharding(mesh, jax.P("x")))
assert len(f(spread).devices()) == 4 and f(spread).tolist() == list(range(0, 16, 2))
print(f(old).tolist(), (old + 1).tolist())
print(jax.device_put(old, devices[1]).devices() == {devices[1]}, jnp.arange(3)[1:].tolist())
""") == "True\n[0.0, 4.0, 8.0, 12.0] [1.0, 3.0, 5.0, 7.0]\nTrue [1, 2]\n"


def test_a_platform_of_a_library():
    assert run("""
made = []
def make():
    made.append(1)
    return xla.make_cpu_client(3)
backend.register_backend_factory("ours", make)
print(jax.default_backend(), len(jax.devices()), len(made), len(jax.devices("ours")), len(made))
x = jax.device_put(np.arange(3.), jax.devices("ours")[2])
print((jax.jit(jnp.sin)(x) * 0).tolist(), x.device.id)
try:
    backend.register_backend_factory("ours", make)
except RuntimeError as error:
    print(error)
backend.clear_backends()
backend.register_backend_factory("ours", make, priority=10)
print(len(jax.devices()), len(jax.devices("cpu")))
""") == ("cpu 1 0 3 1\n[0.0, 0.0, 0.0] 2\nBackend ours already initialized\n3 1\n")


def test_a_platform_that_does_not_start():
    assert run("""
def fail():
    raise ValueError("no such chip")
backend.register_backend_factory("ours", fail, priority=1)
print(jax.default_backend())
backend.clear_backends()
backend.register_backend_factory("ours", fail, priority=1, fail_quietly=False)
try:
    jax.devices()
except RuntimeError as error:
    print(error)
""").startswith("cpu\nUnable to initialize backend 'ours': no such chip")


def test_the_proxy_of_ifrt_is_jaxlibs():
    options = backend.ifrt_proxy.ClientConnectionOptions()
    options.connection_timeout_in_seconds = 3
    assert options.connection_timeout_in_seconds == 3 and callable(backend.ifrt_proxy.get_client)
    with pytest.raises(AttributeError, match="no attribute 'foo'"):
        backend.foo()
