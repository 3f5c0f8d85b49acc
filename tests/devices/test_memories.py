"""Kinds of memory: types that say them, where results are, `device_put` inside of programs, what refuses to mix them."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from tests.devices.eight import own_process

if (test_on_eight_devices := own_process(__file__)) is None:
    del test_on_eight_devices
    import jaxlite as jax
    import jaxlite.numpy as jnp
    from jaxlite import lax
    from jaxlite.core import parse_jaxpr
    from jaxlite.memory import Space
    from jaxlite.sharding import AxisType, NamedSharding, SingleDeviceSharding
    from jaxlite.sharding import PartitionSpec as P

    X = np.arange(32, dtype=np.float32).reshape(8, 4)
    MESH = jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
    DEVICE, MANY = SingleDeviceSharding(jax.devices()[0]), NamedSharding(MESH, P("x", "y"))
    PLACES = {"one": DEVICE, "many": MANY}

    def on_host(sharding):
        return sharding.with_memory_kind("pinned_host")

    def kind(array):
        """The kind of memory of an array, once all that knows of it agrees: its sharding, its type and XLA's buffer."""
        found = array.sharding.memory_kind
        parts = [each.data for each in array.addressable_shards]
        assert {part.sharding.memory_kind for part in parts} == {found}
        assert ("<host>" in str(jax.typeof(array))) == (found == "pinned_host")
        return found

    @pytest.mark.parametrize("where", PLACES)
    def test_results_are_where_the_arguments_are(where):
        sharding = PLACES[where]
        x, h = jax.device_put(X, sharding), jax.device_put(X, on_host(sharding))
        assert str(jax.typeof(h)) == "float32<host>[8,4]" and jax.typeof(h).memory_space is Space.Host
        assert jax.typeof(x).memory_space is Space.Device and (np.asarray(h) == X).all()

        def several(a):
            return (a, a @ a.T, a.mean(), a[1:], a.at[0].set(1.), lax.scan(lambda c, b: (c + 1, b * 2), 0, a)[1],
                    jax.nn.silu(a), jax.checkpoint(lambda a: a * 2)(a), jax.vmap(jnp.sin)(a), jax.jit(lambda b: b + 1)(a),
                    lax.cond(a[0, 0] > 0, lambda a: a, lambda a: -a, a))

        jitted = jax.jit(several)
        for _ in range(2):
            assert set(map(kind, jitted(h))) == {"pinned_host"} and set(map(kind, jitted(x))) == {"device"}
        for one, other in zip(jitted(h), jitted(x), strict=True):
            assert np.allclose(one, other, rtol=1e-6)
        assert kind(h * 2) == kind(h[1:]) == "pinned_host" and np.array_equal(h * 2, X * 2)
        assert kind(jax.jit(lambda a: h * a)(2.)) == kind(jax.grad(lambda a: (a**2).sum())(h)) == "pinned_host"
        assert kind(jax.jit(lambda a: jnp.zeros(3))(h)) == "device"
        compiled = jax.jit(lambda a: a * 2).lower(h).compile()
        assert kind(compiled(h)) == "pinned_host" and compiled.output_shardings.memory_kind == "pinned_host"
        with pytest.raises(ValueError, match="disagree with the shardings"):
            compiled(x)
        for mixed in (lambda: h + x, lambda: jax.jit(jnp.add)(x, h), lambda: jnp.where(h > 1, h, x)):
            with pytest.raises(ValueError, match="memory_space of all inputs passed to"):
                mixed()

    @pytest.mark.parametrize("where", PLACES)
    def test_what_jit_is_told(where):
        sharding = PLACES[where]
        x, h = jax.device_put(X, sharding), jax.device_put(X, on_host(sharding))

        def f(a):
            return a * 2

        out, back = jax.jit(f, out_shardings=on_host(sharding)), jax.jit(f, out_shardings=sharding)
        for _ in range(2):
            assert kind(out(x)) == kind(out(h)) == "pinned_host" and kind(back(h)) == "device" and (back(h) == X * 2).all()
        assert 'mhlo.memory_kind = "pinned_host"' in out.lower(x).as_text().partition("->")[2]
        for told, given in ((on_host(sharding), x), (sharding, h)):
            with pytest.raises(ValueError, match="does not match"):
                jax.jit(f, in_shardings=told)(given)
        assert (jax.jit(f, in_shardings=on_host(sharding))(X) == X * 2).all()

    @pytest.mark.parametrize("where", PLACES)
    @pytest.mark.parametrize("memory", ["pinned_host", "unpinned_host"])
    @pytest.mark.filterwarnings("ignore:Some donated buffers")
    def test_donated_memory_goes_to_results_in_the_same(where, memory):
        # XLA ends the process where a result takes memory of another kind.
        for out in (None, PLACES[where], PLACES[where].with_memory_kind(memory)):
            f = jax.jit(lambda a: a * 2, donate_argnums=0, out_shardings=out)
            for _ in range(3):
                assert (np.asarray(f(jax.device_put(X, PLACES[where].with_memory_kind(memory)))) == X * 2).all()
                assert (np.asarray(f(jax.device_put(X, PLACES[where]))) == X * 2).all()

    def test_moving_arrays():
        x, h = jnp.asarray(X), jax.device_put(X, on_host(DEVICE))
        many = jax.device_put(X, on_host(MANY))
        assert [kind(jax.device_put(*each)) for each in (
            (x, Space.Host), (h, Space.Device), (many, Space.Device), (many, Space.Host), (h, None), (h, jax.devices()[0]),
            (h, jax.devices()[1]), (h, on_host(MANY)), (many, MANY))] == [
            "pinned_host", "device", "device", "pinned_host", "pinned_host", "device", "device", "pinned_host", "device"]
        for same in (copy.copy(h), copy.deepcopy(h), jnp.array(h), h.copy(), many.copy()):
            assert kind(same) == "pinned_host" and (np.asarray(same) == X).all()
        parts = [each.data for each in many.addressable_shards]
        assert kind(jax.make_array_from_single_device_arrays((8, 4), on_host(MANY), parts)) == "pinned_host"
        for place in (on_host(MANY), on_host(DEVICE)):
            assert kind(jax.make_array_from_callback((8, 4), place, lambda index: X[index])) == "pinned_host"
        assert jax.random.normal(jax.device_put(jax.random.key(0), on_host(DEVICE)), (3,)).sharding.memory_kind == "device"

    def test_device_put_inside_of_a_program():
        def there_and_back(a):
            return jax.device_put(jax.device_put(a, Space.Host) * 2, Space.Device) + 1

        jaxpr = jax.make_jaxpr(there_and_back)(X)
        assert [line.strip() for line in str(jaxpr).splitlines()[1:6]] == [
            "b:f32<host>[8,4] = device_put[", "copy_semantics=(ArrayCopySemantics.REUSE_INPUT,)", "devices=(MemorySpace.Host,)",
            "srcs=(None,)", "] a"]
        assert str(parse_jaxpr(str(jaxpr))) == str(jaxpr)
        assert kind(jax.jit(there_and_back)(X)) == "device" and (jax.jit(there_and_back)(X) == X * 2 + 1).all()
        for place in (Space.Host, on_host(DEVICE), on_host(MANY)):
            made = jax.jit(lambda a, place=place: jax.device_put(a, place) * 2)(X)
            assert kind(made) == "pinned_host" and (np.asarray(made) == X * 2).all()
        placed = jax.jit(lambda a: jax.device_put({"a": a, "b": a + 1}, {"a": MANY, "b": None}))(X)
        assert placed["a"].sharding == MANY and (placed["b"] == X + 1).all()

        def offloaded(a):
            return (jax.device_put(jax.device_put(a * 3, Space.Host), Space.Device) ** 2).sum()

        for grad in (jax.grad(offloaded), jax.jit(jax.grad(offloaded)), jax.grad(lambda a: (jax.device_put(
                a * 3, Space.Host) ** 2).sum())):
            assert np.allclose(grad(jnp.asarray(X)), 18 * X)
        batched = jax.vmap(lambda a: jax.device_put(a, NamedSharding(MESH, P("y"))))(X)
        assert batched.sharding.spec == P(None, "y") and (batched == X).all()
        value, tangent = jax.jvp(there_and_back, (X,), (X,))
        assert (value == X * 2 + 1).all() and (tangent == X * 2).all()
        with pytest.raises(TypeError, match=r"float32<host>\[8,4\]"):
            jax.jit(lambda a: lax.cond(a[0, 0] > 0, lambda a: jax.device_put(a, Space.Host), lambda a: a, a))(X)

    def test_tokens_are_in_no_memory():
        assert kind(jax.device_put(X, on_host(DEVICE))) == "pinned_host"  # from now on programs are asked
        token = lax.create_token(X)
        assert lax.after_all(token, token) is not None
