"""Functions that partition themselves, values laid out alike, layouts and kinds of memory, over eight devices."""

from __future__ import annotations

import numpy as np
import pytest

from tests.devices.eight import own_process

if (test_on_eight_devices := own_process(__file__)) is None:
    del test_on_eight_devices
    import jaxlite as jax
    import jaxlite.numpy as jnp
    from jaxlite.devices.factors import parse_rule
    from jaxlite.experimental.compute_on import compute_on, compute_on2
    from jaxlite.experimental.custom_partitioning import (
        BATCHING,
        ArrayMapping,
        CompoundFactor,
        SdyShardingRule,
        custom_partitioning,
    )
    from jaxlite.experimental.layout import Layout, with_layout_constraint
    from jaxlite.experimental.shard_alike import shard_alike
    from jaxlite.sharding import Mesh, NamedSharding
    from jaxlite.sharding import PartitionSpec as P

    MESH = Mesh(np.array(jax.devices()).reshape(4, 2), ("x", "y"))
    X = np.random.default_rng(0).normal(size=(8, 6)).astype(np.float32)

    def on(*spec):
        return NamedSharding(MESH, P(*spec))

    def rows_alone(sharding):
        return NamedSharding(sharding.mesh, P(sharding.spec[0]))

    def make_softmax(rule, seen):
        @custom_partitioning
        def softmax(x):
            return jax.nn.softmax(x, axis=-1)

        def partition(mesh, args, result):
            seen.append((args[0].shape, args[0].sharding.spec, result.sharding.spec))
            rows = rows_alone(args[0].sharding)
            return mesh, lambda x: seen.append(x.shape) or jax.nn.softmax(x, axis=-1), rows, (rows,)

        softmax.def_partition(partition, sharding_rule=rule)
        return softmax

    @pytest.mark.parametrize("rule", ["... k -> ... k", SdyShardingRule(((BATCHING, "k"),), ((BATCHING, "k"),)),
                                      lambda mesh, args, result: "i k -> i k"])
    def test_partition_is_asked_for_the_program_of_one_part(rule):
        seen: list = []
        softmax = make_softmax(rule, seen)
        np.testing.assert_allclose(softmax(X), jax.nn.softmax(X), rtol=1e-6)  # on one device it is what it is
        assert not seen
        jitted = jax.jit(lambda x: softmax(x) * 2)
        out = jitted(jax.device_put(X, on("x", "y")))
        np.testing.assert_allclose(out, 2 * jax.nn.softmax(X), rtol=1e-6)
        assert seen == [((8, 6), P("x", "y"), P("x", "y")), (2, 6)]
        jitted(jax.device_put(X + 1, on("x", "y")))
        assert len(seen) == 2

    def test_static_arguments_and_several_results():
        def both(x, n):
            return x + n, {"sum": x.sum(1)}

        f = custom_partitioning(both, static_argnums=(1,))

        def partition(n, mesh, args, result):
            rows = rows_alone(args[0].sharding)
            return mesh, lambda x: both(x, n), (rows, {"sum": rows}), (rows,)

        f.def_partition(partition, sharding_rule="i k -> i k, i")
        for n in (2, 3):
            out, rest = jax.jit(lambda x, n=n: f(x, n))(jax.device_put(X, on("x")))
            np.testing.assert_allclose(out, X + n)
            np.testing.assert_allclose(rest["sum"], X.sum(1), rtol=1e-5)
            assert rest["sum"].sharding.spec == P("x")

    def test_parts_exchange_data():
        product = custom_partitioning(lambda a, b: a @ b)

        def partition(mesh, args, result):
            left, right = (arg.sharding for arg in args)
            axes = left.spec[1]
            return mesh, lambda a, b: jax.lax.psum(a @ b, axes) if axes else a @ b, rows_alone(left), (left, right)

        product.def_partition(partition, sharding_rule="i k, k j -> i j", reduction_factors=("k",))
        a, b = X @ X.T, X
        out = jax.jit(product)(jax.device_put(a, on("x", "y")), jax.device_put(b, on("y")))
        np.testing.assert_allclose(out, a @ b, rtol=1e-5, atol=1e-5)
        assert out.sharding.spec == P("x")

    def test_what_partition_gives_is_checked():
        f = custom_partitioning(lambda x: x)
        with pytest.raises(AttributeError, match="No partition function defined"):
            f(X)
        f.def_partition(lambda mesh, args, result: (mesh, lambda x: x[:1], on("x"), (on("x"),)), sharding_rule="i k -> i k")
        with pytest.raises(jax.errors.JaxRuntimeError, match="Mismatch in result shapes"):
            jax.jit(f)(jax.device_put(X, on("x")))
        with pytest.raises(NotImplementedError, match="Differentiation rule for 'custom_partitioning'"):
            jax.grad(lambda x: f(x).sum())(X)

    @pytest.mark.parametrize("text, options, message", [
        ("i j", {}, "There is no -> in rule"), ("(i) -> i", {}, "at least two factors"),
        ("(i j) -> i", {}, "must specify its size"),
        ("i j -> i j", {"i": 3}, "represents a whole dimension"), ("i ... -> i", {}, "at the beginning"),
        ("1 -> 1", {}, "start with a letter"), ("i j -> i", {"reduction_factors": ("z",)}, "is not used in the rule"),
    ])  # fmt: skip
    def test_rules_that_make_no_sense(text, options, message):
        with pytest.raises(ValueError, match=message):
            custom_partitioning(lambda x: x).def_partition(print, sharding_rule=text, **options)

    def test_rules_print_and_compare():
        rule = SdyShardingRule((ArrayMapping(CompoundFactor("i", "j"), "k"),), (("i", "j"),), reduction_factors=("k",))
        same = parse_rule("(i j) k -> i j", reduction_factors=("k",))
        assert rule == same and hash(rule) == hash(same)
        assert repr(rule) == "SdyShardingRule(((('i', 'j'), 'k'),), (('i', 'j'),), {}, reduction_factors=('k',))"
        f = custom_partitioning(lambda x: x)
        f.def_partition(print, sharding_rule="i -> i")
        with pytest.raises(ValueError, match="0th operand has rank 1, but the operation 0th operand has rank 2"):
            jax.jit(f).lower(jax.device_put(X, on("x")))

    def test_shard_alike():
        spread = jax.device_put(X, on("x", "y"))
        a, b = jax.jit(lambda x, y: shard_alike(x * 2, y * 3))(spread, X)
        assert a.sharding.spec == b.sharding.spec == P("x", "y")
        np.testing.assert_allclose(b, X * 3)
        _, eager = shard_alike(spread, X)
        assert eager.sharding == spread.sharding
        gradient = jax.grad(lambda x, y: jnp.sum(jnp.prod(jnp.stack(shard_alike(x, y)), 0)), (0, 1))(X, X + 1)
        np.testing.assert_allclose(gradient[0], X + 1)
        np.testing.assert_allclose(jax.vmap(shard_alike, (0, None))(X, X[0])[1], np.tile(X[0], (8, 1)))
        with pytest.raises(ValueError, match="leaves shapes of `x` and `y` should match"):
            shard_alike(X, X[0])

    def test_layout_constraint():
        def f(x):
            return with_layout_constraint(x * 2, Layout((0, 1))).sum(0)

        np.testing.assert_allclose(jax.jit(f)(X), 2 * X.sum(0), rtol=1e-5)
        np.testing.assert_allclose(jax.jit(jax.vmap(jax.grad(lambda x: f(x)[0])))(np.stack([X, X]))[1, :, 0], 2.0)
        assert "LayoutConstraint" in jax.jit(f).lower(X).as_text()
        with pytest.raises(ValueError, match="Length of major_to_minor and the rank"):
            with_layout_constraint(X, Layout((0,)))
        with pytest.raises(ValueError, match="must be of type `Layout`"):
            with_layout_constraint(X, "C")

    def test_kinds_of_memory():
        host = jax.device_put(X, jax.memory.Space.Host)
        assert host.sharding.memory_kind == "pinned_host"
        assert jax.device_put(host, jax.memory.Space.Device).sharding.memory_kind == "device"
        pinned = on("x").with_memory_kind("pinned_host")
        out = jax.jit(lambda x: x * 2, out_shardings=pinned)(jax.device_put(X, on("x")))
        assert out.sharding == pinned
        assert {shard.data.sharding.memory_kind for shard in out.addressable_shards} == {"pinned_host"}
        np.testing.assert_allclose(out + 1, 2 * X + 1)
        assert jax.jit(lambda x: jax.device_put(x, pinned))(X).sharding == pinned
        with compute_on("device_host"):
            np.testing.assert_allclose(jax.jit(compute_on(jnp.sin, compute_type="device"))(X), np.sin(X), rtol=1e-5)
        space = jax.memory.Space.Host
        placed = compute_on(lambda x: x * 2, compute_type="device_host", out_memory_spaces=space, compiler_options={"a": 1})
        assert jax.make_jaxpr(placed)(X).out_avals[0].memory_space is space
        both = compute_on2(lambda x: (x, x + 1), compute_type="device_host", out_memory_spaces=(
            jax.memory.Space.Host, jax.memory.Space.Device))
        kept = jax.jit(both)(X)
        assert [out.sharding.memory_kind for out in kept] == ["pinned_host", "device"]
        np.testing.assert_allclose(jax.jit(jax.grad(lambda x: both(x)[1].sum()))(X), np.ones_like(X))
        with pytest.raises(ValueError, match="Invalid compute type foo"):
            compute_on("foo")
