"""Meshes, specs, shardings; arrays over eight devices: putting, taking apart, converting, refusing."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from tests.devices.eight import own_process

if (test_on_eight_devices := own_process(__file__)) is None:
    del test_on_eight_devices
    import jaxlite as jax
    import jaxlite.numpy as jnp
    from jaxlite.devices import sharding as shardings
    from jaxlite.sharding import AbstractMesh, AxisType, Mesh, NamedSharding
    from jaxlite.sharding import PartitionSpec as P
    from lowering.xla import VERSION

    MESH = Mesh(np.array(jax.devices()).reshape(2, 4), ("x", "y"))
    X = np.arange(64.0, dtype=np.float32).reshape(8, 8)
    SPECS = [P(), P("x"), P("y"), P("x", "y"), P("y", "x"), P(("x", "y")), P(("y", "x")), P(None, "x"), P(None, ("y", "x"))]

    def on(*spec):
        return NamedSharding(MESH, P(*spec))

    def test_equal_meshes_are_one_object():
        again = jax.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
        assert again is MESH and pickle.loads(pickle.dumps(MESH)) is MESH and copy.deepcopy(MESH) is MESH
        assert MESH.shape == {"x": 2, "y": 4} and MESH.size == 8 and MESH.axis_sizes == (2, 4)
        assert str(MESH) == "Mesh('x': 2, 'y': 4, axis_types=(Auto, Auto))"
        assert repr(MESH) == "Mesh(axis_sizes=(2, 4), axis_names=('x', 'y'), axis_types=(Auto, Auto))"
        assert MESH.abstract_mesh is MESH.abstract_mesh and MESH.abstract_mesh.shape == MESH.shape
        assert jax.make_mesh((8,), ("x",)).axis_types == (AxisType.Explicit,)
        assert AbstractMesh((2,), "x").axis_types == (AxisType.Explicit if VERSION >= (0, 11) else AxisType.Auto,)
        device = MESH.abstract_mesh.abstract_device  # no tuple, and it cannot be changed
        assert device.platform == "cpu" and device == copy.copy(device) and not isinstance(device, tuple)
        with pytest.raises(AttributeError, match="platform"):
            device.platform = "tpu"
        manual = AbstractMesh((2, 4), ("x", "y"), (AxisType.Auto,) * 2).update_axis_types({"x": AxisType.Manual})
        assert manual.manual_axes == ("x",) and manual.auto_axes == ("y",)

    def test_what_no_mesh_is():
        devices = np.array(jax.devices())
        for arguments in ((devices, ("x", "y")), (devices.reshape(2, 4), ("x", "x")), (devices[[0, 0]], ("x",))):
            with pytest.raises(ValueError):
                Mesh(*arguments)
        with pytest.raises(ValueError, match="Number of devices 8"):
            jax.make_mesh((3, 5), ("x", "y"))
        with pytest.raises(TypeError, match="AxisType"):
            Mesh(devices, ("x",), axis_types=(1,))

    def test_specs_are_values():
        assert P("x") == P(("x",)) and P("x") != P("x", None) and P([]) == P(None)
        assert hash(P("x")) == hash(P(("x",))) and P("x") + P("y") == P("x", "y")
        assert [*P("x", ("y", "z"))] == ["x", ("y", "z")] and P("x")[0:1] == ("x",)
        assert repr(P(P.UNCONSTRAINED, None)) == "P(UNCONSTRAINED, None)"
        assert pickle.loads(pickle.dumps(P(P.UNCONSTRAINED, "x"))) == P(P.UNCONSTRAINED, "x")
        with pytest.raises(ValueError, match="cannot overlap"):
            P("x", unreduced={"x"})

    def test_memory_that_another_device_has():
        first, second = jax.devices()[:2]
        x = jax.device_put(jnp.arange(4.0), first)
        assert jnp.from_dlpack(x, device=second).devices() == {second}
        assert jnp.from_dlpack(x, device=first, copy=False).unsafe_buffer_pointer() == x.unsafe_buffer_pointer()
        for source in (x, np.zeros(4, np.float32)):
            with pytest.raises(ValueError, match="requires a copy"):
                jnp.from_dlpack(source, device=second, copy=False)
        with pytest.raises(ValueError, match="singular device"):
            jnp.from_dlpack(x, device=on())

    def test_copies_of_results_on_a_mesh_of_one_device():
        """Such a result is its own shard, which once made copying endless."""
        mesh = Mesh(np.array(jax.devices()[:1]), ("x",))
        keys = jax.random.split(jax.random.key(0), 4)
        for value in (X, keys):
            put = jax.device_put(value, NamedSharding(mesh, P()))
            result = jax.jit(lambda x: x[1:])(put)
            for copied in (result.copy(), copy.copy(result), copy.deepcopy(result), jnp.array(result, copy=True)):
                assert copied.sharding == result.sharding and copied.committed and jnp.all(copied == value[1:])
                assert copied.unsafe_buffer_pointer() != result.unsafe_buffer_pointer()

    def test_results_on_a_mesh_of_one_device_have_the_sharding_of_an_argument():
        mesh = Mesh(np.array(jax.devices()[:1]), ("x",))
        rows, columns = (jax.device_put(X, NamedSharding(mesh, spec)) for spec in (P("x"), P(None, "x")))
        for result, spec in ((rows + 1, P("x")), (rows.at[0].set(1), P("x")), (rows.T, P("x")),
                             (jax.jit(lambda x, y: x + y)(columns, rows), P(None, "x")),
                             (jax.jit(lambda x, y: y * 2)(columns, rows), P("x")), (rows.sum(0), P())):
            assert result.sharding == NamedSharding(mesh, spec)

    def test_results_that_lie_as_the_first_argument_have_its_words():
        """So that a step's state keeps its signature."""
        narrow = Mesh(np.array(jax.devices()).reshape(1, 8), ("x", "y"))
        for mesh, spec, both in ((MESH, P("x", None), P(("x", "y"))), (MESH, P(None, None), P(("x", "y"))),
                                 (narrow, P("x", "y"), P("y"))):
            first, other = (jax.device_put(X, NamedSharding(mesh, each)) for each in (spec, P(("x", "y"), None)))
            step = jax.jit(lambda x, y: (x + 1, y * 2))
            results = step(first, other)
            assert [out.sharding.spec for out in results] == [spec, both]
            step(results[0], other)
            assert step._cache_size() == 1
        keys = jax.device_put(jax.random.split(jax.random.key(0), 8), on(None))
        assert jax.jit(jax.vmap(jax.random.bits))(keys).sharding.spec == P(None)

    def test_what_no_sharding_is():
        with pytest.raises(ValueError, match="z of P.*not found in mesh"):
            NamedSharding(MESH, P("z"))
        with pytest.raises(shardings.DuplicateSpecError):
            NamedSharding(MESH, P("x", "x"))
        with pytest.raises(TypeError):
            NamedSharding(MESH, ("x",))
        with pytest.raises(ValueError, match="memory"):
            NamedSharding(MESH, P(), memory_kind="nowhere")

    @pytest.mark.parametrize("spec", SPECS, ids=str)
    def test_there_and_back(spec):
        sharding = NamedSharding(MESH, spec)
        x = jax.device_put(X, sharding)
        np.testing.assert_array_equal(x, X)
        assert x.sharding == sharding and x.committed and x.is_fully_addressable
        assert x.is_fully_replicated == (spec == P())
        seen = {}
        for shard in x.addressable_shards:
            np.testing.assert_array_equal(shard.data, X[shard.index])
            assert shard.data.devices() == {shard.device} and shard.data.shape == sharding.shard_shape((8, 8))
            assert shard.replica_id == seen.setdefault(str(shard.index), 0)
            seen[str(shard.index)] += 1
        hlo = sharding._to_xla_hlo_sharding(2)
        assert shardings.spec_of(hlo, MESH, 2) == P(*shardings.normalized(spec, MESH))
        assert pickle.loads(pickle.dumps(sharding)) == sharding
        for other in (on("y", "x"), on(), jax.devices()[3]):  # to any other sharding, and to one device
            moved = jax.device_put(x, other)
            np.testing.assert_array_equal(moved, X)
            np.testing.assert_array_equal(jax.device_put(moved, sharding), X)

    def test_arrays_over_devices_are_arrays():
        x = jax.device_put(X, on("x", "y"))
        assert repr(x) == repr(jnp.asarray(X)) and float(x[1, 2]) == 10.0
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(x)), X)
        np.testing.assert_array_equal(copy.copy(x), X)
        assert [float(row.sum()) for row in x] == X.sum(1).tolist()
        assert isinstance(x.device, NamedSharding) and x.devices() == set(jax.devices())
        assert x.format.sharding == x.sharding and x.is_ready() in (True, False)
        with pytest.raises(BufferError):
            np.from_dlpack(x)
        x.delete()
        alone = jax.device_put(X, NamedSharding(jax.make_mesh((1,), ("x",), devices=jax.devices()[3:4]), P("x")))
        part = alone.addressable_shards[0].data
        assert alone.device == part.device == jax.devices()[3] and part.sharding == alone.sharding
        for use in (lambda: x.addressable_shards, lambda: jax.device_put(x, on()), lambda: np.asarray(x), lambda: x + 1):
            with pytest.raises(RuntimeError, match="deleted"):
                use()

    def test_the_source_of_device_put_may_change_afterwards():
        for spec in (P("x", "y"), P("x"), P()):
            source = X.copy()
            x = jax.device_put(source, NamedSharding(MESH, spec))
            source[:] = -1
            np.testing.assert_array_equal(x, X)

    @pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
    def test_programs_run_on_the_mesh_that_is_set(kind):
        mesh, one = Mesh(MESH.devices, ("x", "y"), (kind,) * 2), jnp.ones((8, 8))
        double = jax.jit(lambda a: a * 2)
        with jax.set_mesh(mesh):
            whole = (double(one), double(X), one * 2, jnp.zeros((2, 3)), jnp.array(3.0), jnp.asarray([1, 2]), jnp.arange(8),
                     jax.random.key(0), jax.random.normal(jax.random.key(0), (4,)), jnp.where(one > 0, one, 1), jnp.array(one))
            for x in whole:
                assert x.sharding.mesh is mesh and x.is_fully_replicated and x.committed
            np.testing.assert_array_equal(whole[0], 2 * np.ones((8, 8)))
            for x in (jax.device_put(X), jax.device_put(one), jnp.asarray(one)):
                assert x.sharding == one.sharding
            assert double.lower(one).compile().output_shardings.mesh is mesh
            for device in jax.devices()[:2]:
                with pytest.raises(ValueError, match=r"argument x of (mul|multiply) .* ids \[[01]\] .* jit's context mesh"):
                    jax.device_put(X, device) * 2
            with pytest.raises(ValueError, match="when backend or device is also specified"):
                jax.jit(lambda a: a, device=jax.devices()[1])(one)
        assert double(one).sharding == one.sharding

    def test_results_of_one_device_lie_where_jit_says():
        one = jnp.ones(4)
        host = shardings.SingleDeviceSharding(jax.devices()[0], memory_kind="pinned_host")
        double = jax.jit(lambda a: (a * 2, a), out_shardings=(host, None))
        for _ in range(2):
            x, y = double(one)
            assert x.sharding == host and y.sharding == one.sharding and x.sum() == 8
        assert double.lower(one).compile().output_shardings[0] == host
        assert double.lower(one).compile()(one)[0].sharding == host

    def test_with_mesh_is_for_constraints():
        with MESH:
            assert jax.sharding.get_mesh().empty and jax.sharding.get_abstract_mesh().empty
            assert (jnp.ones(8) * 2).sharding == jnp.ones(8).sharding
            assert jax.jit(lambda a: jax.lax.with_sharding_constraint(a, P("x")))(X).sharding == on("x")
            with pytest.raises(RuntimeError, match="jit requires a non-empty mesh in context"):
                jax.jit(lambda a: a, out_shardings=P("x"))(X)

    def test_descriptions_say_where_values_lie():
        explicit = Mesh(MESH.devices, ("x", "y"), (AxisType.Explicit,) * 2)
        with pytest.raises(TypeError, match="the context mesh cannot be empty"):
            jax.ShapeDtypeStruct((8,), np.float32, sharding=P("x"))
        with pytest.raises(ValueError, match="sharding should be an instance of"):
            jax.ShapeDtypeStruct((8,), np.float32, sharding=3)
        with pytest.raises(ValueError, match="rank at least 2"):
            jax.ShapeDtypeStruct((8,), np.float32, sharding=on("x", "y"))
        with jax.set_mesh(explicit):
            described = jax.ShapeDtypeStruct((8, 8), np.float32, sharding=P("x"))
            assert described.sharding == NamedSharding(explicit, P("x"))
            abstract = NamedSharding(explicit.abstract_mesh, P("x", None))
            assert jax.eval_shape(lambda a: a * 2, described).sharding == abstract
            assert jax.jit(lambda a: a * 2).trace(described).out_info.sharding == abstract
            lowered = jax.jit(lambda a: a * 2).lower(described)
            assert lowered.out_info.sharding == lowered.compile().output_shardings == NamedSharding(explicit, P("x", None))
        assert jax.jit(lambda a: a, out_shardings=on("x")).eval_shape(X).sharding == on("x")
        assert jax.eval_shape(lambda a: a, jax.device_put(X, on("x"))).sharding is None
        turned, auto = shardings.Format(shardings.Layout((1, 0)), on("x")), shardings.Format(shardings.AutoLayout.AUTO)
        described = jax.ShapeDtypeStruct((8, 8), np.float32, sharding=turned)
        assert described.format == turned and described.sharding == on("x") and "format=Layout(major" in repr(described)
        assert pickle.loads(pickle.dumps(described)) == described != described.update(sharding=on("x"))
        compiled = jax.jit(lambda a: a + 1, in_shardings=auto, out_shardings=auto).lower(X).compile()
        assert compiled.output_formats.layout.major_to_minor == (0, 1) and compiled.input_formats[0][0].sharding is not None
        assert jax.jit(lambda a: a, out_shardings=turned)(X).format.layout.major_to_minor == (1, 0)

    def test_trees_donation_and_the_mesh_of_the_context():
        tree = {"w": X, "b": np.ones(4)}
        put = jax.device_put(tree, {"w": on("x"), "b": on()})
        assert put["w"].sharding == on("x") and put["b"].sharding == on()
        with jax.set_mesh(MESH):
            assert jax.sharding.get_mesh() is MESH and jax.device_put(X, P("y")).sharding == on("y")
            assert jax.sharding.get_abstract_mesh() is MESH.abstract_mesh
        assert jax.sharding.get_mesh().empty
        with pytest.raises(ValueError, match="set a mesh"):
            jax.device_put(X, P("x"))
        single = jax.device_put(X, jax.devices()[5])
        jax.device_put(single, on("x"), donate=True)
        np.testing.assert_array_equal(jax.device_put(put["w"], on("x"), donate=True), X)

    def test_what_is_made_in_place_may_have_a_spec_that_goes_on_and_cuts_nothing():
        longer, row = on("x", None), np.arange(8.0, dtype=np.float32)
        made = [jax.make_array_from_callback((8,), longer, lambda index: row[index]),
                jnp.zeros(8, device=longer), jnp.full_like(row, 2, device=longer), jax.lax.full((8,), 1.0, sharding=longer)]
        made += [jnp.zeros_like(made[0]), jax.make_array_from_single_device_arrays(
            (8,), longer, [shard.data for shard in made[0].addressable_shards])]
        for array in made:
            assert array.sharding == longer and {shard.data.shape for shard in array.addressable_shards} == {(4,)}
        np.testing.assert_array_equal(jax.jit(lambda a: a * 2 + made[2])(made[0]), row * 2 + 2)
        assert longer.shard_shape((8,)) == (4,) and jax.jit(lambda: jnp.ones(8, device=longer))().shape == (8,)
        explicit = NamedSharding(Mesh(MESH.devices, ("x", "y"), (AxisType.Explicit,) * 2), P("x", None))
        for refused in (lambda: jax.device_put(row, longer), lambda: jnp.asarray(row, device=longer),
                        lambda: jnp.zeros(8, device=on(None, "x")), lambda: jnp.zeros(8, device=explicit),
                        lambda: jax.jit(lambda a: a, out_shardings=longer)(row)):
            with pytest.raises(ValueError, match="rank at least 2"):
                refused()

    def test_what_does_not_fit_is_refused():
        with pytest.raises(shardings.IndivisibleError, match="axis 0 is partitioned 2 times, but the dimension size is 3"):
            jax.device_put(np.zeros((3, 4)), on("x"))
        with pytest.raises(ValueError, match="rank at least 1"):
            jax.device_put(1.0, on("x"))
        with pytest.raises(ValueError, match="without devices"):
            jax.device_put(X, NamedSharding(MESH.abstract_mesh, P("x")))
        with pytest.raises(RuntimeError, match="before backends are initialized"):
            jax.config.update("jax_num_cpu_devices", 4)

    def test_arrays_from_their_parts():
        sharding, calls = on("x", "y"), []
        made = jax.make_array_from_callback((8, 8), sharding, lambda index: (calls.append(index), X[index])[1])
        np.testing.assert_array_equal(made, X)
        assert len(calls) == 8 and made.sharding == sharding
        calls.clear()
        jax.make_array_from_callback((8, 8), on("x"), lambda index: (calls.append(index), X[index])[1])
        assert len(calls) == 2  # what several devices hold is made once
        shards = [shard.data for shard in made.addressable_shards]
        np.testing.assert_array_equal(jax.make_array_from_single_device_arrays((8, 8), sharding, shards[::-1]), X)
        np.testing.assert_array_equal(jax.make_array_from_process_local_data(sharding, X), X)
        typed = NamedSharding(Mesh(MESH.devices, ("x", "y"), (AxisType.Explicit,) * 2), P("x", "y"))
        for each in (jax.make_array_from_callback((8, 8), typed, lambda index: X[index]),
                     jax.make_array_from_single_device_arrays((8, 8), typed, shards)):
            assert jax.typeof(each) == jax.typeof(jax.device_put(X, typed)) and "8@x" in str(jax.typeof(each))
        for wrong in (shards[:3], [shards[0]] * 8, [jax.device_put(np.zeros((4, 4), np.float32), d) for d in jax.devices()],
                      [jax.device_put(np.zeros((4, 2), np.int32), jax.devices()[0]), *shards[1:]]):
            with pytest.raises(ValueError):
                jax.make_array_from_single_device_arrays((8, 8), sharding, wrong)
        with pytest.raises(ValueError, match="shape"):
            jax.make_array_from_callback((8, 8), sharding, lambda index: X)

    def test_keys_are_spread_too():
        keys = jax.random.split(jax.random.key(0), 8)
        spread = jax.device_put(keys, on("x"))
        assert spread.sharding.spec == P("x")
        np.testing.assert_array_equal(jax.vmap(jax.random.normal)(spread), jax.vmap(jax.random.normal)(keys))

    def test_a_mesh_that_all_share_cannot_be_changed():
        for mesh in (MESH, MESH.abstract_mesh):
            with pytest.raises(AttributeError, match="cannot assign to field 'axis_names'"):
                mesh.axis_names = ("a", "b")
        assert NamedSharding(MESH, P("x")).spec == P("x")
        assert Mesh(np.empty((), object), ()).empty
        with jax.set_mesh(Mesh(np.empty((), object), ())):
            assert jax.sharding.get_mesh().empty
        with pytest.raises(TypeError, match="axis_types"):
            Mesh(np.array(jax.devices()), ("x",), axis_types={AxisType.Auto: "x"})
        for name in ("devices", "device_ids", "local_devices", "local_mesh", "is_multi_process"):
            with pytest.raises(ValueError, match=f"AbstractMesh does not implement {name}"):
                getattr(MESH.abstract_mesh, name)

    def test_shardings_of_one_device_are_equal_by_value():
        one = jax.sharding.SingleDeviceSharding
        assert jax.device_put(1.0, jax.devices()[2]).sharding == one(jax.devices()[2]) != one(jax.devices()[3])
        assert len({one(jax.devices()[2]), one(jax.devices()[2], memory_kind="device")}) == 1

    def test_shards_of_keys():
        keys = jax.random.split(jax.random.key(0), 8)
        spread = jax.device_put(keys, on("x"))
        assert not spread.is_fully_replicated and spread.is_fully_addressable
        for number, shard in enumerate(spread.addressable_shards):
            assert shard.index == (slice(0, 4) if number < 4 else slice(4, 8),) and shard.data.shape == (4,)
            assert (jax.random.key_data(shard.data) == jax.random.key_data(keys[shard.index])).all()
        assert spread.addressable_data(7).dtype == keys.dtype and keys.addressable_shards[0].data.shape == (8,)

    def test_parts_of_an_array_have_its_dtype():
        make = jax.make_array_from_callback
        with pytest.raises(ValueError, match="dtype=int32 and shard dtype=float32"):
            make((8, 8), on("x"), lambda index: X[index], dtype=np.int32)
        with pytest.raises(ValueError, match="Got int32, expected float32"):
            make((8, 8), on("x"), lambda index: X[index].astype(np.int32 if index[0].start else np.float32))
        assert make((8, 8), on("x"), lambda index: X[index].astype(np.float64), dtype=np.float32).dtype == np.float32

    def test_process_local_data_may_be_a_tree():
        found = jax.make_array_from_process_local_data(on("x"), {"a": X, "b": (X[:, 0],)})
        assert found["a"].sharding == found["b"][0].sharding == on("x") and (found["b"][0] == X[:, 0]).all()
        sized = jax.make_array_from_process_local_data(on("x"), [X, X[0]], [(8, 8), None])
        assert [each.shape for each in sized] == [(8, 8), (8,)]
        assert jax.make_array_from_process_local_data(None, None) is None  # a tree without leaves
        with pytest.raises(ValueError, match="prefix"):
            jax.make_array_from_process_local_data(None, X)

    def test_what_a_format_is_made_of():
        from jaxlite.experimental.layout import Format, Layout

        assert Format(Layout((0, 1)), on("x")) == Format(Layout((0, 1)), on("x")) and str(Format()) == (
            "Format(layout=None, sharding=None)")
        with pytest.raises(TypeError, match="layout argument"):
            Format(3, on("x"))
        with pytest.raises(ValueError, match="Sharding has to be concrete"):
            Format(Layout((0, 1)))
        assert [a.sharding for a in jax.device_put([X, X], [Format(None, on("x")), on("y")])] == [on("x"), on("y")]

    def test_where_device_put_cannot_put():
        with pytest.raises(ValueError, match="device_put device specification must be a tree prefix"):
            jax.device_put({"a": X, "b": X}, {"a": on("x")})
        with pytest.raises(ValueError, match="unconstrained"):
            jax.device_put(X, on(P.UNCONSTRAINED))
        ref = jax.new_ref(X)
        for put in (jax.device_put, jax.lax.with_sharding_constraint, jax.sharding.reshard):
            with pytest.raises(TypeError, match=rf"{put.__name__} got a Ref of type .* Did you forget to read"):
                put(ref, on("x"))
        key = jax.random.split(jax.random.key(0), 1)
        shards = [jax.device_put(each, device) for each, device in zip([key, *[np.zeros(1, np.float32)] * 7], jax.devices())]
        for mixed in (shards, shards[::-1]):
            with pytest.raises(ValueError, match="the shards of an array have one dtype; got .*key<fry>"):
                jax.make_array_from_single_device_arrays((8,), on(("x", "y")), mixed)

    def test_filled_in_parts_is_strong():
        for made in (jnp.full(8, 2.0, device=on("x")), jax.lax.full((8,), 2.0, sharding=on("x"))):
            assert not made.weak_type and made.sharding == on("x")
        assert jax.jit(lambda: jnp.full(8, 2.0, device=on("x")))().weak_type

    def test_one_process_alone_sends_its_values_as_they_are():
        from jaxlite.experimental import multihost_utils

        tree = {"a": 1, "b": np.arange(2), "c": jnp.ones(2)}
        told = jax.tree.leaves(multihost_utils.broadcast_one_to_all(tree))
        assert [each.dtype for each in told] == ["int64", "int64", "float32"]
        assert multihost_utils.process_allgather(np.arange(2)).dtype == "int64"
        assert multihost_utils.reached_preemption_sync_point(1) is False

    def test_what_is_given_away_lives_on_where_it_was():
        for source in (on(), on("x"), jax.devices()[3]):
            for target in (jax.devices()[3], on(), on("x")):
                x = jax.device_put(X, source)
                np.testing.assert_array_equal(jax.device_put(x, target, donate=True), X)
                x = jax.device_put(X, source)
                for put in jax.device_put([x, x], target, donate=True):
                    np.testing.assert_array_equal(put, X)

    def test_arguments_are_cut_as_said():
        for given in (on(P.UNCONSTRAINED), P(P.UNCONSTRAINED)):  # a choice of XLA that the argument does not know: a crash
            with pytest.raises(ValueError, match="Unconstrained dims are not allowed when passed to in_shardings"):
                jax.jit(lambda x: x, in_shardings=given)
            with pytest.raises(ValueError, match="not allowed when passed to out_shardings: .*with_sharding_constraint"):
                jax.jit(lambda x: x, out_shardings=given)
