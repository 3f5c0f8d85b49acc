"""pmap: on the one device there is, and on eight in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite import lax

X = np.arange(3, dtype=np.float32)[None]

EIGHT = """
import numpy as np, jaxlite as jax, jaxlite.numpy as jnp
from jaxlite import lax
x = jnp.arange(24.).reshape(8, 3)
f = jax.pmap(lambda x: (x - lax.pmean(x, 'i'), lax.axis_index('i'), lax.all_gather(x, 'i').sum()), 'i')
centred, index, total = f(x)
assert np.allclose(centred, x - x.mean(0)) and index.tolist() == [*range(8)] and total.tolist() == [276] * 8
assert len(centred.sharding.device_set) == 8 and not centred.sharding.is_fully_replicated
assert jax.pmap(lambda x, y: x * y, in_axes=(1, None), out_axes=1)(x.T, 2.).shape == (3, 8)
for devices in (jax.devices()[:4], jax.devices()[2:]):
    some = jax.pmap(lambda x: x.sum(), devices=devices)(x[:4])
    assert some.tolist() == [3, 12, 21, 30] and [*some.sharding.mesh.devices] == devices[:4]
here = jax.pmap(lambda x: x)(x)
jax.pmap(lambda n, x, y: x * n + y, static_broadcasted_argnums=0, donate_argnums=(1, 5))(2, here, x)
assert here.is_deleted()
groups = [[0, 1, 2], [3, 7], [5], [6, 4]]
for over in (lambda f: jax.pmap(f, 'i'), lambda f: jax.vmap(f, axis_name='i')):
    sums, greatest, means, counts, slope = over(lambda x: (
        lax.psum(x, 'i', axis_index_groups=groups), lax.pmax(x, 'i', axis_index_groups=groups),
        lax.pmean(x, 'i', axis_index_groups=groups), lax.psum(1, 'i', axis_index_groups=groups),
        jax.grad(lambda x: (lax.psum(x, 'i', axis_index_groups=groups) ** 2).sum())(x)))(x)
    for group in groups:
        rows = np.array(group)
        part = np.asarray(x)[rows]
        assert (sums[rows] == part.sum(0)).all() and (greatest[rows] == part.max(0)).all()
        assert np.allclose(means[rows], part.mean(0))
        assert (counts[rows] == len(group)).all() and np.allclose(slope[rows], 2 * len(group) * part.sum(0))
shifted = jax.pmap(lambda x: lax.ppermute(x, 'i', [(i, (i + 1) % 8) for i in range(8)]), 'i')(jnp.arange(8))
assert shifted.tolist() == [7, 0, 1, 2, 3, 4, 5, 6]

# Calls again: C++ answers those with arrays that lie as they should, under whatever name, and with values of the host.
one, everywhere = jax.device_put(x, jax.devices()[3]), jax.device_put(x, jax.NamedSharding(centred.sharding.mesh, jax.P()))
flat = jax.make_mesh((8,), ("other",))
lying = jax.device_put(x, jax.NamedSharding(flat, jax.P("other")))
twice = jax.pmap(lambda x, n, *, k: x * n + k, 'i', static_broadcasted_argnums=1)
for _ in range(2):
    for given in (centred, x, lying, one, everywhere, np.asarray(x, np.float64)):
        for n in (2, 2., True):
            assert np.allclose(twice(given, n, k=np.arange(8)), np.asarray(given) * n + np.arange(8)[:, None])
            assert np.allclose(twice(given, n, k=given), np.asarray(given) * n + given)
from jaxlite.transforms import pmap as pmaps
def nothing(*args):
    raise AssertionError("a call came to Python")
pmaps.tree_flatten = nothing
for given in (centred, lying, np.asarray(x)):
    twice(given, 2, k=given)
"""


def test_arguments_and_results():
    assert jax.pmap(lambda x: lax.psum(x, "i"), "i")(X).tolist() == [[0, 1, 2]]
    assert jax.pmap(lambda x, n, *, k: x * n * k, static_broadcasted_argnums=1)(X, 2, k=np.ones(1)).tolist() == [[0, 2, 4]]
    told = jax.pmap(lambda x, n: x + (n is True), static_broadcasted_argnums=1)
    assert told(X, 1).tolist() == [[0, 1, 2]] and told(X, True).tolist() == [[1, 2, 3]] and told(X[..., 0], 1).tolist() == [0]
    first = jax.pmap(lambda d, y: (d["a"] * y, y), in_axes=({"a": 1}, None), out_axes=(None, 0))({"a": X.T}, 2.0)
    assert first[0].tolist() == [0, 2, 4] and first[1].tolist() == [2]
    assert jax.grad(lambda x: jax.pmap(lambda x: x ** 2)(x).sum())(X).tolist() == [[0, 2, 4]]
    assert "sine" in jax.pmap(jnp.sin).lower(X).as_text()
    seen = []
    jax.pmap(lambda x: [jax.debug.callback(seen.append, x[place], ordered=True) for place in (1, 2)])(X)
    jax.effects_barrier()
    assert seen == [1, 2]
    scaled = jax.pmap(lambda x, y: {"a": x * y}, in_axes=(0, None), out_axes=-1)
    compiled = scaled.lower(jax.ShapeDtypeStruct(X.shape, X.dtype), jax.typeof(2.0)).compile()
    np.testing.assert_allclose(compiled(X, 2.0)["a"], 2 * np.moveaxis(X, 0, -1))
    info = scaled.lower(X, 2.0).out_info["a"]
    assert info.sharding.spec[-1] == info.sharding.mesh.axis_names[0] and len(info.sharding.spec) == len(info.shape)
    with pytest.raises(ValueError, match="not so many"):
        scaled.lower(jax.ShapeDtypeStruct((), "float32"), 2.0)
    with pytest.raises(TypeError, match="valid JAX type"):
        scaled(jax.ShapeDtypeStruct(X.shape, X.dtype), 2.0)


@pytest.mark.parametrize("call, message", [
    (lambda: jax.pmap(jnp.sin)(np.ones((2, 3))), "requires 2 logical devices, but only 1 XLA devices are available"),
    (lambda: jax.pmap(jnp.add)(X, np.ones((2, 3))), r"inconsistent sizes for array axes .*: 1 in float32\[1,3\], 2 in"),
    (lambda: jax.pmap(jnp.sin, in_axes=None)(1.0), "requires at least one argument with a mapped axis"),
    (lambda: jax.jit(jax.pmap(jnp.add, static_broadcasted_argnums=1))(X, 2.0), "Non-hashable static arguments"),
    (lambda: jax.pmap(jnp.sin)(1.0), "map the axis 0 of an argument of type"),
    (lambda: jax.pmap(jnp.sin, in_axes=(0, 0))(X), "an entry for each of 1 positional arguments"),
    (lambda: jax.pmap(jnp.sin, axis_size=2)(X), "axis_size is 2, but the mapped axes have the size 1"),
    (lambda: jax.pmap(jnp.sin)(X[:0]), "there must be an example"),
    (lambda: jax.pmap(jnp.sin, in_axes=3)(X), "map the axis 3 of an argument of type"),
    (lambda: jax.pmap(jnp.sin, out_axes=3)(X), "out_axes 3 is out of bounds for a result of 2 axes"),
    (lambda: jax.pmap(lambda x: (x, x), out_axes=(0, 0, 0))(X), "prefix"),
    (lambda: jax.pmap(lambda d: d["a"], in_axes=({"b": 0},))({"a": X}), "prefix"),
    (lambda: jax.pmap(jnp.add, static_broadcasted_argnums=(4,))(X, 3), r"argnums=\(4,\) but was called with only 2"),
    (lambda: jax.pmap(jnp.add, static_broadcasted_argnums=1)(X, [3]), "Non-hashable static arguments"),
    (lambda: jax.pmap(jnp.add, static_broadcasted_argnums=1, donate_argnums=1), "cannot intersect"),
    (lambda: jax.pmap(jnp.sin, devices=[]), "must be non-empty, or None"),
])
def test_what_does_not_fit(call, message):
    if jax.device_count() > 1:
        pytest.skip("for one device")
    with pytest.raises(ValueError, match=message):
        call()


def test_axes_are_ints():
    for options in ({"in_axes": "a"}, {"in_axes": 1.0}, {"out_axes": "a"}, {"in_axes": ({"b": 1.5},)}):
        with pytest.raises(TypeError, match="must be an int, None, or"):
            jax.pmap(jnp.sin, **options)


def test_eight_devices():
    counts = {"JAX_NUM_CPU_DEVICES": "8", "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}  # the option is stronger
    done = subprocess.run([sys.executable, "-c", EIGHT], env=os.environ | counts, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_where_jit_is_disabled():
    factors = []
    double = jax.pmap(lambda x, factor: factors.append(factor) or x * factor, static_broadcasted_argnums=1)
    x = np.ones((1, 2), np.float32)
    double(x, 2)
    with jax.disable_jit():  # the Python of the function runs in each call
        for _ in range(2):
            np.testing.assert_array_equal(double(x, 2), [[2, 2]])
    double(x, 2)
    assert factors == [2, 2, 2]
