"""Programs over several devices in files, and over meshes without devices: shardings are kept, and files of JAX run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.devices.eight import own_process

if (test_on_eight_devices := own_process(__file__)) is None:
    del test_on_eight_devices
    import jaxlite as jax
    import jaxlite.numpy as jnp
    from jaxlite import export, lax
    from jaxlite.experimental.serialize_executable import deserialize_and_load, serialize
    from jaxlite.sharding import AbstractMesh, AxisType, Mesh, NamedSharding
    from jaxlite.sharding import PartitionSpec as P

    DATA = Path(__file__).resolve().parents[1] / "data" / "export"
    MESH = Mesh(np.array(jax.devices()[:4]), ("x",), axis_types=(AxisType.Auto,))
    OTHER = Mesh(np.array(jax.devices()[4:]), ("y",), axis_types=(AxisType.Auto,))
    ALL = Mesh(np.array(jax.devices()).reshape(2, 4), ("y", "x"), axis_types=(AxisType.Auto,) * 2)
    X = jnp.arange(8.0)

    def check(exported):
        """For sin(x) * 2 + y and x.sum(), exported with x cut over four devices, and with the derivative."""
        assert exported.nr_devices == 4
        x_sharding, cut = exported.in_shardings_jax(MESH)[0], NamedSharding(MESH, P("x"))
        assert x_sharding == cut == exported.out_shardings_jax(MESH)[0]
        for x in (jax.device_put(X, cut), jax.device_put(X, NamedSharding(OTHER, P("y")))):
            out, total = exported.call(x, 1.0)
            np.testing.assert_allclose(out, jnp.sin(X) * 2 + 1, rtol=1e-6)
            assert float(total) == 28 and out.sharding.device_set == x.sharding.device_set
            assert out.sharding.shard_shape(out.shape) == (2,)
        again = jax.jit(lambda x: exported.call(x * 2, 1.0)[0], in_shardings=cut)
        np.testing.assert_allclose(again(X), jnp.sin(2 * X) * 2 + 1, rtol=1e-5)
        np.testing.assert_allclose(jax.grad(lambda x: exported.call(x, 1.0)[0].sum())(jax.device_put(X, cut)), 2 * jnp.cos(X),
                                   rtol=1e-5)
        for x, count in ((X, 1), (jax.device_put(X, NamedSharding(ALL, P("x"))), 8)):
            with pytest.raises(ValueError, match=f"exported for 4 devices and is called in a context with {count} devices"):
                exported.call(x, 1.0)
        with pytest.raises(ValueError, match="NamedSharding new mesh .* does not match the mesh"):
            exported.in_shardings_jax(ALL)

    def test_shardings_are_kept():
        fun = jax.jit(lambda x, y: (jnp.sin(x) * 2 + y, x.sum()), in_shardings=(NamedSharding(MESH, P("x")), None),
                      out_shardings=(NamedSharding(MESH, P("x")), NamedSharding(MESH, P())))
        exported = export.export(fun)(X, jnp.float32(1))
        check(exported)
        check(export.deserialize(exported.serialize(vjp_order=1)))

    def test_a_file_of_jax():
        check(export.deserialize((DATA / "jax010_shardings.bin").read_bytes()))

    @pytest.mark.parametrize("kept", [False, True])
    def test_explicit_and_manual_axes_of_files_of_jax(kept):
        """The types over explicit axes are those of the exported function, wherever it is called; meshes keep their names."""
        explicit = export.deserialize((DATA / "jax012_explicit.bin").read_bytes())
        manual = export.deserialize((DATA / "jax012_manual.bin").read_bytes())
        if kept:
            explicit, manual = (export.deserialize(each.serialize(each.has_vjp())) for each in (explicit, manual))
        assert str(explicit.in_avals[0]) == str(explicit.out_avals[0]) == "float32[8@x]"
        assert str(explicit.in_shardings_hlo[0]) == "{devices=[4]<=[4]}"
        mesh = Mesh(MESH.devices, ("x",), axis_types=(AxisType.Explicit,))
        x = jax.device_put(X, NamedSharding(mesh, P("x")))
        with jax.set_mesh(mesh):
            out, slope = jax.jit(explicit.call)(x), jax.grad(lambda x: explicit.call(x).sum())(x)
        np.testing.assert_allclose(out, 2 * jnp.sin(X), rtol=1e-6)
        np.testing.assert_allclose(slope, 2 * jnp.cos(X), rtol=1e-6)
        assert jax.typeof(out) == jax.typeof(x) == jax.typeof(explicit.call(jax.device_put(X, NamedSharding(OTHER, P()))))
        assert manual.call(jax.device_put(X, NamedSharding(OTHER, P("y")))).tolist() == [12, 16]

    def test_meshes_inside_symbolic_sizes_platforms():
        def fun(x):
            return lax.with_sharding_constraint(x * 2, NamedSharding(MESH, P("x"))).sum(1)

        rows, = export.symbolic_shape("4*b")
        exported = export.export(jax.jit(fun), platforms=("cpu", "cuda"))(jax.ShapeDtypeStruct((rows, 3), jnp.float32))
        x = jax.device_put(jnp.arange(24.0).reshape(8, 3), NamedSharding(MESH, P("x")))
        for each in (exported, export.deserialize(exported.serialize())):
            assert each.nr_devices == 4
            np.testing.assert_allclose(each.call(x), fun(x))

    @pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
    def test_executables_over_several_devices_are_kept(kind):
        table = jnp.asarray(np.arange(80, dtype=np.float32))
        for _ in range(2):  # compiled, and found in the persistent cache
            mesh = Mesh(MESH.devices.reshape(2, 2), ("a", "b"), axis_types=(kind, kind))
            x = jax.device_put(jnp.arange(16.0).reshape(4, 4), NamedSharding(mesh, P("a", "b")))
            fun = jax.jit(lambda x, unused: {"rows": x.sum(1) + 1, "all": x * table[8:12] + table.sum()})
            first = fun.lower(x, x).compile()
            again = deserialize_and_load(*serialize(deserialize_and_load(*serialize(first))))
            one, two = again(x, x), first(x, x)
            for name, value in two.items():
                np.testing.assert_array_equal(one[name], value)
                assert one[name].sharding == value.sharding and jax.typeof(one[name]) == jax.typeof(value)
        with pytest.raises(ValueError, match="runs on 4 devices, got 2"):
            deserialize_and_load(*serialize(first), execution_devices=jax.devices()[:2])
        moved = deserialize_and_load(*serialize(first), execution_devices=jax.devices()[4:])
        assert moved.input_shardings[0][0].device_set == set(jax.devices()[4:])

    def test_a_program_for_one_device_runs_on_many():
        exported = export.export(jax.jit(lambda x: jnp.cumsum(x) * 2))(X)
        np.testing.assert_allclose(exported.call(jax.device_put(X, NamedSharding(ALL, P("x")))), jnp.cumsum(X) * 2)

    # --- over a mesh without devices

    GRID = AbstractMesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
    ROWS, BOTH = NamedSharding(GRID, P("x")), NamedSharding(GRID, P("x", "y"))
    TYPE = jax.ShapeDtypeStruct((8, 8), np.float32, sharding=BOTH)
    SQUARE = np.arange(64, dtype=np.float32).reshape(8, 8)
    product = jax.jit(lambda x: x @ x, out_shardings=ROWS)

    def test_lowered_for_a_platform_and_compiled_for_devices():
        traced = product.trace(TYPE)
        assert "dot_general" in str(traced.jaxpr)
        with pytest.raises(ValueError, match="AbstractMesh.*has no devices"):
            traced.lower()
        assert "num_partitions = 8" in traced.lower(lowering_platforms=("tpu",)).as_text()
        lowered = traced.lower(lowering_platforms=("cpu",))
        assert lowered.out_info.sharding == ROWS and '#sdy.sharding<@mesh, [{"x"}, {"y"}]>' in lowered.as_text()
        with pytest.raises(RuntimeError, match="device_assignment cannot be `None`"):
            lowered.compile()
        with pytest.raises(ValueError, match="must hold 8 devices, got 2"):
            lowered.compile(device_assignment=jax.devices()[:2])
        compiled = lowered.compile(device_assignment=tuple(jax.devices()[::-1]))
        (given,) = compiled.input_shardings[0]
        assert list(given.mesh.devices.flat) == jax.devices()[::-1]
        out = compiled(jax.device_put(SQUARE, given))
        np.testing.assert_array_equal(out, SQUARE @ SQUARE)
        assert out.sharding.spec == P("x") and list(out.sharding.mesh.devices.flat) == jax.devices()[::-1]

    def test_called_where_other_things_have_devices():
        mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
        for out in (product(jax.device_put(SQUARE, NamedSharding(mesh, P("x")))),
                    product(jax.device_put(SQUARE, NamedSharding(mesh, P("x"))))):  # the second by C++
            assert out.sharding == NamedSharding(mesh, P("x"))
        with jax.set_mesh(mesh):
            assert product(SQUARE).sharding == NamedSharding(mesh, P("x"))
        with pytest.raises(ValueError, match="AbstractMesh.*has no devices"):
            product(SQUARE)
        with pytest.raises(ValueError, match="AbstractMesh size: 8 does not match the device assignment size: 1"):
            product(jax.device_put(SQUARE, jax.devices()[1]))
        other = jax.ShapeDtypeStruct((8, 8), np.float32, sharding=NamedSharding(AbstractMesh((2,), ("z",)), P("z")))
        with pytest.raises(ValueError, match="should be of the same size across all shardings"):
            jax.jit(jnp.add).trace(TYPE, other)

    def test_exported_and_called_over_devices():
        mean = jax.shard_map(lambda x: lax.pmean(x, "x"), mesh=GRID, in_specs=P("x", "y"), out_specs=P(None, "y"))
        exported = export.export(jax.jit(lambda x: mean(x) * 2), platforms=("cpu",))(TYPE)
        assert exported.nr_devices == 8
        exported = export.deserialize(exported.serialize())
        mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
        x = jax.device_put(SQUARE, NamedSharding(mesh, P("x", "y")))
        np.testing.assert_array_equal(jax.jit(exported.call)(x), SQUARE.reshape(4, 2, 8).mean(0) * 2)

    def test_explicit_axes():
        mesh = AbstractMesh((4, 2), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
        given = jax.ShapeDtypeStruct((8, 8), np.float32, sharding=NamedSharding(mesh, P("x", "y")))
        traced = jax.jit(lambda x: jnp.sin(x).T).trace(given)
        assert str(traced.jaxpr.out_avals[0].str_short()) == "float32[8@y,8@x]"
        assert '[{"y"}, {"x"}]' in traced.lower(lowering_platforms=("cuda",)).as_text()
