"""Meshes with explicit axes: types say how values lie, results lie as their types say, and what is ambiguous is an error."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from tests.devices.eight import own_process, short

if (test_on_eight_devices := own_process(__file__)) is None:
    del test_on_eight_devices
    import jaxlite as jax
    import jaxlite.numpy as jnp
    from jaxlite import lax
    from jaxlite.core.errors import ForbiddenCollectiveError
    from jaxlite.errors import ShardingTypeError
    from jaxlite.sharding import AxisType, NamedSharding, auto_axes, explicit_axes, reshard, use_abstract_mesh
    from jaxlite.sharding import PartitionSpec as P

    MESH = jax.make_mesh((4, 2), ("x", "y"))
    jax.set_mesh(MESH)

    def put(shape, *spec, dtype=np.float32):
        values = np.random.default_rng(len(spec)).permutation(int(np.prod(shape))).reshape(shape) / 7
        return jax.device_put(values.astype(dtype), NamedSharding(MESH, P(*spec)))

    XY, X, Y, R = put((8, 16), "x", "y"), put((8, 16), "x"), put((8, 16), None, "y"), put((8, 16))
    BOTH, V, B = put((8, 16), ("x", "y")), put((16,), "y"), put((16, 4), "y")
    INDEX = jax.device_put(np.array([3, 0, 2], np.int32))

    def type_of(fun, *args):
        return ", ".join(map(short, jax.make_jaxpr(fun)(*args).out_avals))

    def check(fun, args, expected):
        """The types of results, where they are, and their values."""
        assert type_of(fun, *args) == expected
        plain = fun(*[jnp.asarray(np.asarray(arg)) for arg in args])
        for out, wanted in zip(jax.tree.leaves(jax.jit(fun)(*args)), jax.tree.leaves(plain), strict=True):
            np.testing.assert_allclose(out, wanted, rtol=2e-5, atol=1e-5)
            assert jax.typeof(out).layout is None or jax.typeof(out).layout.spec == out.sharding.spec
            assert jax.typeof(out).layout is not None or out.sharding.is_fully_replicated

    ELEMENTWISE = [
        (lambda a: jnp.sin(a) + 1, (XY,), "f32[8@x,16@y]"), (lambda a, b: a * b, (X, Y), "f32[8@x,16@y]"),
        (lambda a, b: a + b, (R, XY), "f32[8@x,16@y]"), (lambda a, b: a + b, (XY, V), "f32[8@x,16@y]"),
        (lambda a: a + np.ones((8, 16), np.float32), (X,), "f32[8@x,16]"), (lambda a: a.astype(int), (X,), "i32[8@x,16]"),
        (lambda a, b: jnp.where(a > 0, a, b), (XY, XY), "f32[8@x,16@y]"),
        (lambda a: jnp.where(a > 0, a, 0), (X,), "f32[8@x,16]"),
        (lambda a: jnp.clip(a, 0, 1), (XY,), "f32[8@x,16@y]"), (jnp.zeros_like, (XY,), "f32[8@x,16@y]"),
        (lambda a: jax.nn.softmax(a), (XY,), "f32[8@x,16@y]"),
        (lambda a: jax.nn.softmax(a, where=a > 0), (XY,), "f32[8@x,16@y]"),
        (lambda a: jnp.vectorize(jnp.sin)(a), (XY,), "f32[8@x,16@y]"),
        (lambda a: jax.random.gamma(jax.random.key(0), jnp.abs(a) + 1), (X,), "f32[8@x,16]"),
    ]
    REDUCTIONS = [
        (lambda a: a.sum(0), (XY,), "f32[16@y]"), (lambda a: a.sum(), (XY,), "f32[]"),
        (lambda a: a.argmax(1), (XY,), "i32[8@x]"),
        (lambda a: a.mean(1, keepdims=True), (XY,), "f32[8@x,1]"), (lambda a: jnp.cumsum(a, 0), (Y,), "f32[8,16@y]"),
        (lambda a: jnp.sort(a, 1), (X,), "f32[8@x,16]"), (lambda a: lax.top_k(a, 2)[0], (X,), "f32[8@x,2]"),
        (lambda a: lax.approx_max_k(a, 2)[0], (X,), "f32[8@x,2]"), (lambda a: a[3, -1], (XY,), "f32[]"),
    ]
    PRODUCTS = [
        (lambda a, b: a @ b, (X, B), "f32[8@x,4]"),
        (lambda a, b: jnp.matmul(a, b, out_sharding=P("x")), (XY, B), "f32[8@x,4]"),
        (lambda a, b: jnp.einsum("ij,jk->ik", a, b, out_sharding=P("x", "y")), (XY, B), "f32[8@x,4@y]"),
        (lambda a, b: lax.dot(a, b, out_sharding=P("x")), (XY, B), "f32[8@x,4]"),
    ]  # fmt: skip
    SHAPES = [
        (lambda a: a.T, (XY,), "f32[16@y,8@x]"), (lambda a: a[:, None], (XY,), "f32[8@x,1,16@y]"),
        (lambda a: a.reshape(4, 2, 16), (XY,), "f32[4@x,2,16@y]"), (lambda a: a.reshape(128), (XY,), "f32[128@(x,y)]"),
        (lambda a: a.reshape(4, 2, 16), (BOTH,), "f32[4@x,2@y,16]"), (lambda a: jnp.fft.fft2(a), (XY,), "c64[8@x,16@y]"),
        (lambda a: jnp.fft.rfft2(a), (X,), "c64[8@x,9]"),
        (lambda a: a.ravel(), (X,), "f32[128@x]"), (lambda a: a.reshape(2, 64, out_sharding=P("y")), (XY,), "f32[2@y,64]"),
        (lambda a: jnp.broadcast_to(a, (3, 8, 16)), (XY,), "f32[3,8@x,16@y]"), (lambda a: a[:4], (XY,), "f32[4@x,16@y]"),
        (lambda a: a[:, 0], (X,), "f32[8@x]"), (lambda a: a[:, ::-1], (X,), "f32[8@x,16]"),
        (lambda a, i: a[i], (Y, INDEX), "f32[3,16@y]"), (lambda a, i: a.at[i].get(out_sharding=P()), (XY, INDEX), "f32[3,16]"),
        (lambda a: lax.dynamic_slice(a, (0, 3), (8, 2)), (X,), "f32[8@x,2]"),
        (lambda a, b: jnp.concatenate([a, b]), (XY, XY), "f32[16@x,16@y]"),
        (lambda a, b: jnp.stack([a, b]), (X, X), "f32[2,8@x,16]"),
        (lambda a: jnp.pad(a, ((0, 0), (1, 1))), (X,), "f32[8@x,18]"), (lambda a: jnp.split(a, 2, 1)[1], (X,), "f32[8@x,8]"),
        # One element is cut nowhere.
        (lambda v, i: (v[3], v[i[0]], v[-1:], lax.index_in_dim(v, 2)), (V, INDEX), "f32[], f32[], f32[1], f32[1]"),
        (lambda a, v: (a[1:2, 2:3], lax.reduce_window(v, 0.0, lax.add, (16,), (1,), "valid")), (XY, V), "f32[1,1], f32[1]"),
        (lambda v: jnp.split(v, 16)[5], (V,), "f32[1]"),
        (jax.grad(lambda v: v[3] * v[2:3].sum() + lax.dynamic_slice(v, (9,), (1,))[0]), (V,), "f32[16@y]"),
    ]  # fmt: skip

    def by_ref(a):
        ref = jax.new_ref(a)
        ref[...] = ref[...] * 2
        ref[:, 1:3] += a[:, 1:3]
        return jax.freeze(ref)

    RAGGED = lax.RaggedDotDimensionNumbers((([1], [1]), ([], [])), [0], [0])
    PLACED = [
        (lambda a: lax.conv(a.reshape(8, 1, 4, 4), jnp.ones((2, 1, 3, 3)), (1, 1), "same"), (X,), "f32[8@x,2,4,4]"),
        (lambda a, b: lax.conv_general_dilated(a.reshape(8, 1, 4, 4), b[:, None, None, :2], (1, 1), "valid",
                                               out_sharding=P("x", "y")), (X, B), "f32[8@x,16@y,4,3]"),
        (lambda a: lax.reduce_window(a, 0.0, lax.add, (2, 1), (1, 1), "same"), (XY,), "f32[8@x,16@y]"),
        (jax.grad(lambda a: (lax.reduce_window(a, -jnp.inf, lax.max, (1, 2), (1, 2), "same") ** 2).sum()), (XY,),
         "f32[8@x,16@y]"),
        (lambda a, b: lax.ragged_dot_general(a, jnp.stack([b, 2 * b]), np.array([3, 5], np.int32), RAGGED,
                                             out_sharding=P("x")), (X, B), "f32[8@x,4]"),
        (by_ref, (X,), "f32[8@x,16]"),
        (lambda a: jax.pure_callback(lambda v: np.sin(v)[:3], jax.ShapeDtypeStruct((3, 16), np.float32), a), (XY,),
         "f32[3,16]"),
    ]  # fmt: skip

    def test_mutable_arrays_are_sliced_along_whole_axes():
        for index, error, message in ((0, TypeError, "only be indexed by slices"), (slice(4), ValueError, "on axis 0, w")):
            with pytest.raises(error, match=message):
                jax.jit(lambda a, index=index: jax.new_ref(a)[index])(X)
        with pytest.raises(NotImplementedError, match="inference for ragged_dot_general .*specify out_sharding"):
            lax.ragged_dot(X, jnp.ones((1, 16, 2)), jnp.array([8]))

    @pytest.mark.parametrize("cases", [ELEMENTWISE, REDUCTIONS, SHAPES, PRODUCTS, PLACED])
    def test_types_and_values(cases):
        for fun, args, expected in cases:
            check(fun, args, expected)

    LOOPS = [
        (lambda a: lax.scan(lambda c, x: (c + x, c.sum()), jnp.zeros_like(a[0]), jnp.asarray(a))[0], (Y,), "f32[16@y]"),
        (lambda a: lax.fori_loop(0, 3, lambda i, c: c * 2, a), (XY,), "f32[8@x,16@y]"),
        (lambda a: lax.while_loop(lambda c: c.sum() < 3, lambda c: c + 1, a), (XY,), "f32[8@x,16@y]"),
        (jax.vmap(lambda a: lax.while_loop(lambda c: c.sum() < 3, lambda c: c + 1, a)), (XY,), "f32[8@x,16@y]"),
        (lambda a: lax.cond(a.sum() > 0, lambda a: a * 2, lambda a: a + 1, a), (XY,), "f32[8@x,16@y]"),
        (lambda a: jax.jit(lambda b: b * 2)(a).T, (XY,), "f32[16@y,8@x]"),
        (jax.checkpoint(lambda a: jnp.sin(a)), (XY,), "f32[8@x,16@y]"),
        (lambda a: jnp.linalg.norm(a, axis=1), (X,), "f32[8@x]"),
    ]

    def test_control_flow_carries_layouts():
        for case in LOOPS:
            check(*case)

    def loss(a, b):
        return jnp.sum(jnp.tanh(jnp.dot(a, b, out_sharding=P("x"))) ** 2)

    def test_cotangents_lie_as_their_primals():
        check(jax.grad(loss, (0, 1)), (XY, B), "f32[8@x,16@y], f32[16@y,4]")
        check(jax.jit(jax.grad(loss, (0, 1))), (XY, B), "f32[8@x,16@y], f32[16@y,4]")
        check(jax.grad(jax.checkpoint(loss), (0, 1)), (XY, B), "f32[8@x,16@y], f32[16@y,4]")
        for fun in (lambda a: (a.T.reshape(16, 4, 2) ** 2).sum(), lambda a: a.sum(1).max(), lambda a: (a[:4] ** 2)[:, :8].sum(),
                    lambda a: reshard(a, P(None, "y"))[0].sum() * 3, lambda a: jnp.concatenate([a, 2 * a]).var()):
            check(jax.grad(fun), (X,), "f32[8@x,16]")
        step = jax.grad(lambda a: lax.scan(lambda c, x: (jnp.sin(c) * x, c.sum()), jnp.ones_like(a[0]), a)[0].sum())
        assert type_of(step, Y) == "f32[8,16@y]" and jax.jit(step)(Y).sharding.spec == P(None, "y")
        primal, tangent = jax.jvp(lambda a: a @ a.T if a.ndim < 2 else a.sum(1), (XY,), (XY,))
        assert primal.sharding.spec == tangent.sharding.spec == P("x")

    def test_rules_of_users_and_described_arguments():
        double = jax.custom_vjp(lambda a: jnp.sin(a))
        double.defvjp(lambda a: (jnp.sin(a), a), lambda a, ct: (ct * jnp.cos(a),))
        check(jax.grad(lambda a: double(a).sum()), (XY,), "f32[8@x,16@y]")
        described = jax.ShapeDtypeStruct(XY.shape, XY.dtype, sharding=XY.sharding)
        assert jax.jit(lambda a: a.sum(0)).lower(described).compile()(XY).sharding.spec == P("y")

    def test_vmap_keeps_the_layout_of_the_mapped_axis():
        check(jax.vmap(jnp.sin), (XY,), "f32[8@x,16@y]")
        check(jax.vmap(lambda a: a.sum(), in_axes=1), (XY,), "f32[16@y]")
        check(jax.vmap(lambda a: a * 2, out_axes=1), (XY,), "f32[16@y,8@x]")
        check(jax.vmap(lambda a, b: jnp.dot(a, b, out_sharding=P("y")), (0, None)), (XY, B), "f32[8@x,4@y]")
        check(jax.vmap(jax.jit(lambda a: jnp.cumsum(a) + jnp.arange(16.0))), (X,), "f32[8@x,16]")
        check(jax.vmap(lambda a: lax.fori_loop(0, 2, lambda i, c: c + a, jnp.zeros(16))), (X,), "f32[8@x,16]")
        check(jax.vmap(jax.grad(lambda a: (a**2).sum())), (X,), "f32[8@x,16]")
        seen = []
        jax.vmap(lambda a: seen.append(short(jax.typeof(a))) or a)(XY)
        assert seen == ["f32[16@y]"]
        with pytest.raises(ValueError, match="should be sharded the same. Got inconsistent axis specs: x vs y"):
            jax.vmap(lambda a, b: a + b)(X, put((8, 16), "y"))

    @pytest.mark.parametrize("fun, args, message", [
        (lambda a, b: a + b, (X, BOTH), "add got incompatible shardings for broadcasting"),
        (lambda a, b: a @ b, (XY, B), "Contracting dimensions are sharded and it is ambiguous"),
        (lambda a, b: a @ b.T, (X, X), "produces an illegally sharded result: float32\\[8@x,8@x\\]"),
        (lambda a: a.reshape(2, 4, 16), (X,), "This reshape is not supported"),
        (lambda a: a.reshape(128), (Y,), "reshape is not"),
        (lambda a: a[:3], (X,), "slic.* on sharded dims where out dim \\(3\\) is not divisible by mesh axes \\(4\\)"),
        (lambda a: a[0], (X,), "slic.* on sharded dims"),
        (lambda a, i: a[i], (X, INDEX), "Use `.at\\[...\\].get\\(out_sharding="),
        (lambda a: jnp.cumsum(a, 0), (X,), "Input should be unsharded over the axis being reduced"),
        (lambda a: jnp.sort(a, 0), (X,), "must be unsharded over the sorting dimension"),
        (lambda a, b: jnp.concatenate([a, b], 1), (X, R), "All operands should have the same sharding"),
        (lambda a, b: lax.select(a > 0, a, b), (XY, X), "select cases must have the same shardings"),
        (lambda a, i: a.at[i].set(0.0), (X, INDEX), "Use `.at\\[...\\].set/add/mul/"),
        (lambda a: lax.reduce_window(a, 0.0, lax.add, (3, 1), (3, 1), "valid"), (X,), "reduce_window on sharded dims wh"),
        (lambda a: lax.approx_max_k(a, 2), (Y,), "unsharded over the axis along which to compute the top_k"),
        (lambda a: lax.conv(a[:, None, None], a[:, :1, None, None], (1, 1), "same"), (X,), "specify the output sharding via"),
    ])  # fmt: skip
    def test_ambiguous_layouts_are_errors(fun, args, message):
        for run in (jax.make_jaxpr(fun), jax.jit(fun)):
            with pytest.raises(ShardingTypeError, match=message):
                run(*args)

    def test_reading_a_part_names_the_line_that_does_it():
        with pytest.raises(ShardingTypeError, match="out_sharding=") as raised:
            X[3]
        assert str(raised.traceback[-1].path) == __file__

    def test_other_errors_name_the_layouts():
        with pytest.raises(AssertionError, match="acts as an assert .* The array sharding: P\\('x', None\\) did not match"):
            jax.jit(lambda a: lax.with_sharding_constraint(a, P(None, "y")))(X)
        with pytest.raises(ValueError, match="axis 0 is partitioned 4 times, but the dimension size is 9"):
            jax.jit(lambda a: a * 2, in_shardings=NamedSharding(MESH, P("x")))(np.zeros(9))
        with pytest.raises(TypeError, match="float32\\[16\\] but .* has type float32\\[16@y"):
            jax.jit(lambda a: lax.scan(lambda c, x: (c + x, None), jnp.zeros(16), a))(Y)
        with pytest.raises(ValueError, match="0th dimension of all xs should be replicated. Got P\\('x', None\\)"):
            lax.scan(lambda c, x: (c, x), 0.0, X)
        with pytest.raises(TypeError, match="float32\\[8@x,16\\]"):
            jax.jit(lambda a, b: lax.cond(True, lambda a, b: a * 2, lambda a, b: b + 1, a, b))(X, R)

    def test_constraints_name_automatic_axes_elsewhere():
        mixed = jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Explicit, AxisType.Auto))
        for other in (jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2), mixed):
            with jax.set_mesh(other):  # a type is only checked where all axes around are explicit
                constrained = lambda a: lax.with_sharding_constraint(a, NamedSharding(mixed, P("x", "y")))
                for run in (constrained, jax.jit(constrained)):
                    with pytest.raises(ValueError, match="can only refer to Auto axes .* `reshard`"):
                        run(np.ones((8, 16)))
        with jax.set_mesh(mixed):
            for run in (lambda a: jax.reshard(a, P("y")), jax.jit(lambda a: jax.reshard(a, P("y")))):
                with pytest.raises(ValueError, match="cannot contain axis names that are of type Auto"):
                    run(np.ones((8, 16)))
            out = jax.jit(lambda a: lax.with_sharding_constraint(a, P(None, "y")))(np.ones((8, 16)))
            assert "y" in out.sharding.spec

    def test_reshard_and_creation():
        check(lambda a: reshard(a, P(None, "y")), (X,), "f32[8,16@y]")
        check(lambda a: lax.with_sharding_constraint(a, jax.typeof(a).sharding.spec) + 1, (X,), "f32[8@x,16]")
        assert type_of(lambda: jnp.ones((8, 4), out_sharding=P("x", "y"))) == "f32[8@x,4@y]"
        assert jnp.ones((8, 4), out_sharding=P("x", "y")).sharding.spec == P("x", "y")
        assert type_of(lambda: jax.random.normal(jax.random.key(0), (8, 4), out_sharding=P("x"))) == "f32[8@x,4]"
        keys = reshard(jax.random.split(jax.random.key(1), 8), P("x"))
        assert short(jax.typeof(keys)) == "key<fry>[8@x]"
        bits = jax.jit(jax.vmap(lambda key: jax.random.bits(key, (4,))))(keys)
        assert bits.sharding.spec == P("x", None) and short(jax.typeof(bits)) == "u32[8@x,4]"
        assert jax.eval_shape(jnp.sin, XY).sharding.spec == P("x", "y")
        given = jax.jit(lambda a: a * 2, in_shardings=NamedSharding(MESH, P("y")), out_shardings=P("x"))(np.ones((8, 2)))
        assert str(jax.typeof(given)) == "float32[8@x,2]" and f"{jax.typeof(given)}" == "float32[8@x,2]"
        assert short(jax.typeof(jax.device_put(given, jax.devices()[0]))) == "f32[8,2]"
        assert jax.jit(lambda a: reshard(a, P("y", None))).lower(XY).as_text().count("sharding_constraint") == 1

    def test_positions_in_a_cut_array():
        for fun in (jnp.nonzero, jnp.flatnonzero, jnp.argwhere, jnp.where):
            with pytest.raises((ValueError, ShardingTypeError), match="nonzero: the argument is cut .*16@y"):
                jax.jit(lambda a, fun=fun: fun(a, size=3))(V)
        np.testing.assert_array_equal(jnp.nonzero(V)[0], np.nonzero(np.asarray(V))[0])

    def test_out_shardings_inside_a_program_leave_the_type():
        def double(*spec):
            return jax.jit(lambda a: a * 2, out_shardings=P(*spec))

        assert type_of(double(None), X) == "f32[8@x,16]" and type_of(lambda a: double("y")(a) + a, R) == "f32[8,16]"
        assert "out_shardings=(NamedSharding" in str(jax.make_jaxpr(double(None))(X))
        check(lambda a: jax.grad(lambda a: double(None, "y")(a).sum())(a), (X,), "f32[8@x,16]")
        primal, tangent = jax.jvp(double(None), (X,), (X,))  # outside it is the last operation that decides
        assert short(jax.typeof(double(None)(X))) == short(jax.typeof(primal)) == short(jax.typeof(tangent)) == "f32[8,16]"

    def test_types_are_interned_and_pickled():
        aval = jax.typeof(XY)
        assert pickle.loads(pickle.dumps(aval)) is aval and jax.typeof(XY + 1) is aval
        assert aval.sharding.spec == P("x", "y") and aval.update(dtype=np.dtype("int32")).str_short(True) == "i32[8@x,16@y]"
        assert jax.eval_shape(lambda a: a.T, XY).shape == (16, 8)

    def test_auto_and_explicit_axes():
        seen = []

        def product(a, b):
            seen.append(short(jax.typeof(a)))
            return a @ b

        check(auto_axes(product, out_sharding=P("x", "y")), (XY, B), "f32[8@x,4@y]")
        np.testing.assert_allclose(auto_axes(product)(XY, B, out_sharding=P("x")), np.asarray(XY) @ np.asarray(B), rtol=1e-5)
        assert set(seen) == {"f32[8,16]"}
        check(auto_axes(lambda a: jnp.cumsum(a, 1), axes="y", out_sharding=P("x")), (XY,), "f32[8@x,16]")
        check(jax.grad(lambda a, b: auto_axes(product, out_sharding=P("x"))(a, b).sum()), (XY, B), "f32[8@x,16@y]")
        inner = explicit_axes(lambda a: seen.append(short(jax.typeof(a))) or a * 2, in_sharding=P("y"))
        check(auto_axes(inner, out_sharding=P("x")), (XY,), "f32[8@x,16]")
        assert seen[-1].startswith("f32[8@y,16]") or "f32[8@y,16]" in seen
        with pytest.raises(TypeError, match="Missing required keyword argument: 'out_sharding'"):
            auto_axes(product)(XY, B)
        made = explicit_axes(lambda scale=1: jnp.ones(8, out_sharding=P("x")) * scale)
        both = lambda a: made(in_sharding=None) + made(scale=a[0, 0], in_sharding=None)
        check(auto_axes(both, out_sharding=P()), (XY,), "f32[8]")
        for call in (lambda: auto_axes(lambda a: a)(XY, out_sharding=None), lambda: jax.sharding.reshard(XY, None)):
            with pytest.raises(ValueError, match="non-None"):
                call()

    def test_shard_map_has_parts_and_gives_layouts():
        double = jax.shard_map(lambda a: a * 2, in_specs=P("x", "y"), out_specs=P("x", "y"))
        assert type_of(double, XY) == "f32[8@x,16@y]"
        assert jax.jit(double)(XY).sharding.spec == P("x", "y")
        total = jax.grad(lambda a: (double(a) ** 2).sum())
        np.testing.assert_allclose(jax.jit(total)(XY), 8 * np.asarray(XY), rtol=1e-5)
        inferred = jax.shard_map(lambda a: a * 2, out_specs=P("x", "y"))
        assert str(jax.make_jaxpr(inferred)(XY)) == str(jax.make_jaxpr(double)(XY))
        along_x = jax.shard_map(lambda a: lax.psum(a.sum(), "x"), out_specs=P(), axis_names={"x"})
        assert short(jax.typeof(jax.grad(along_x)(XY))) == short(jax.typeof(XY))  # still cut along y inside
        with pytest.raises(ValueError, match="in_specs passed to shard_map: P\\(None, None\\) does not match the specs of the"):
            jax.shard_map(lambda a: a, in_specs=P(), out_specs=P())(XY)

    def test_what_is_the_same_for_a_batch_lies_as_the_batch():
        for fun in (lambda row: lax.psum(row, "v"), lambda row: jnp.zeros(3)):
            out = jax.vmap(fun, axis_name="v")(XY)
            assert short(jax.typeof(out)) in ("f32[8@x,16@y]", "f32[8@x,3]")
            assert (np.asarray(out) == np.asarray(out)[:1]).all()

    def test_some_axes_are_explicit():
        mesh = jax.make_mesh((4, 2), ("x", "y"), (AxisType.Explicit, AxisType.Auto))
        with jax.set_mesh(mesh):
            a = jax.device_put(np.asarray(XY), NamedSharding(mesh, P("x", "y")))
            assert short(jax.typeof(a)) == "f32[8@x,16]"
            b = jax.jit(lambda a: jnp.sin(a) @ np.ones((16, 4), np.float32))(a)
            assert short(jax.typeof(b)) == "f32[8@x,4]" and b.sharding.spec[0] == "x"
            np.testing.assert_allclose(b, np.sin(np.asarray(XY)) @ np.ones((16, 4)), rtol=1e-4, atol=1e-5)
            # XLA may cut results further than their types say, along an axis that they name too.
            assert jax.eval_shape(jnp.sin, a).sharding is None
            both = jax.device_put(np.asarray(XY), NamedSharding(mesh, P(("x", "y"))))
            outs = jax.jit(lambda a, both: (both + 1, a[..., None], a.sum(1, keepdims=True), jnp.zeros((8, 2))))(a, both)
            assert [out.sharding.spec for out in outs] == [P(("x", "y")), P("x", "y"), P("x", None), P(None, None)]
            assert [reshard(each, P("x")).sharding.spec for each in (a, both)] == [P("x", "y"), P(("x", "y"))]

    def test_derivatives_of_rows_are_added_up_where_the_table_is():
        table, rows = reshard(XY, P(None, "y")), np.array([1, 3, 1])

        def total(table, rows):
            taken = table[rows] * table.at[rows].get(out_sharding=P(None, "y"))
            return jnp.sum(taken + lax.dynamic_slice(table, (rows[0], 0), (3, table.shape[1])))

        compiled = jax.jit(jax.grad(total)).lower(table, rows).compile()
        assert "all-gather" not in compiled.as_text()
        np.testing.assert_allclose(compiled(table, rows), jax.grad(total)(jnp.asarray(np.asarray(XY)), rows), rtol=1e-6)

    def test_random_numbers_of_split_keys_are_made_where_these_are():
        keys = jax.random.split(jax.random.key(0), 8)
        split = jax.device_put(keys, NamedSharding(MESH, P("x")))

        def fun(keys):
            return jax.vmap(lambda key: jax.random.bits(jax.random.fold_in(jax.random.split(key)[1], 3), (3,)))(keys)

        compiled = jax.jit(fun).lower(split).compile()
        assert "all-gather" not in compiled.as_text()
        np.testing.assert_array_equal(compiled(split), fun(keys))

        def noisy(a):
            return a + jax.random.bits(jax.random.fold_in(jax.random.key(0), lax.axis_index("y")), a.shape)

        ones = jax.device_put(np.ones((4, 2), np.uint32), NamedSharding(MESH, P("x")))
        out = jax.jit(jax.shard_map(noisy, in_specs=P(), out_specs=P("y"), axis_names={"y"}))(ones)
        key = jax.random.fold_in(jax.random.key(0), 1)
        np.testing.assert_array_equal(np.asarray(out)[4:], 1 + jax.random.bits(key, (4, 2)))

    def test_what_is_on_no_mesh_goes_with_what_is_on_one():
        whole = NamedSharding(MESH.abstract_mesh, P(None, None))
        with jax.set_mesh(None):
            new = jnp.arange(128.0).reshape(8, 16)
            assert jax.typeof(new).sharding.mesh.empty and jax.typeof(R).sharding == jax.typeof(R.T + 1).sharding == whole
            for fun, expected in (
                    (lambda a, b: jnp.concatenate([a, b]), "f32[16@x,16]"), (lambda a, b: jnp.stack([a, b]), "f32[2,8@x,16]"),
                    (lambda a, b: lax.fori_loop(0, 2, lambda i, c: c + b, a), "f32[8@x,16]"),
                    (lambda a, b: lax.while_loop(lambda c: c.sum() < 3, lambda c: c + a, b), "f32[8@x,16]"),
                    (lambda a, b: lax.scan(lambda c, _: (b, c), a, None, length=2)[0], "f32[8@x,16]"),
                    (lambda a, b: lax.cond(True, lambda: a, lambda: b), "f32[8@x,16]"),
                    (lambda a, b: b.at[...].set(a), "f32[8@x,16]"),
                    (lambda a, b: jax.grad(lambda a: (a * b).sum())(a), "f32[8@x,16]")):
                assert type_of(fun, new, X) == expected
                out = jax.jit(fun)(new, X)
                assert short(jax.typeof(out)) == expected
                np.testing.assert_allclose(out, fun(new, jnp.asarray(np.asarray(X))), rtol=1e-5)
            with pytest.raises(ShardingTypeError, match="same sharding"):
                jnp.concatenate([R, X])
            assert jax.jit(lambda a, b: lax.cond(True, lambda: a, lambda: b))(X, new).sharding == X.sharding
        values = np.ones((8, 8), np.float32)
        for size, make in (
                (8, lambda a: jnp.zeros((2, 2))), (8, lambda a: lax.rng_bit_generator(jnp.zeros(4, "uint32"), (8,))),
                (8, lambda a: a * 2), (8, lambda a: a[None]), (8, lambda a: jnp.where(a > 0, a, a)),
                (8, lambda a: a.at[0].set(1)),
                (0, lambda a: jax.random.key(0)), (0, jnp.sin), (0, jnp.sum), (0, lambda a: a @ a.T), (0, lambda a: a[1:3])):
            assert {aval.sharding.mesh.size for aval in jax.make_jaxpr(make)(values).out_avals} == {size}
        assert jax.typeof(jnp.zeros((2, 2))).sharding == whole and jax.eval_shape(jnp.sin, R).sharding == whole
        with pytest.raises(ShardingTypeError, match="same sharding"):
            jnp.concatenate([jnp.zeros((8, 16)), X])
        assert jnp.concatenate([new, X]).sharding.spec == P("x", None)

    def test_right_sides_of_triangular_systems_may_be_split():
        matrix = jnp.eye(16) * 2
        check(lambda b: lax.linalg.triangular_solve(matrix, b), (X,), "f32[8@x,16]")
        with pytest.raises(ShardingTypeError, match="unsharded on the contracting axis"):
            lax.linalg.triangular_solve(matrix, Y)
        check(lambda b: jnp.linalg.solve(matrix, b), (put((16, 8), None, "x"),), "f32[16,8@x]")
        check(jax.grad(lambda b: jnp.linalg.solve(matrix, b).sum()), (put((16, 8), None, "x"),), "f32[16,8@x]")

    def test_in_shardings_are_no_types():
        values = np.arange(64, dtype=np.float32).reshape(8, 8)
        rows = NamedSharding(MESH, P("x"))
        for fun, expected in ((lambda a: a.T @ a, P()), (jnp.sin, P("x")), (lambda a: a.T, P(None, "x"))):
            out = jax.jit(fun, in_shardings=rows)(values)
            np.testing.assert_allclose(out, fun(values), rtol=1e-6)
            assert out.sharding.is_equivalent_to(NamedSharding(MESH, expected), 2)
        assert type_of(jax.jit(lambda a: jax.jit(lambda b: b * 2, in_shardings=P("y"))(a + 1)), X) == "f32[8@x,16]"

    def test_parts_of_arrays():
        keys = reshard(jax.random.split(jax.random.key(1), 8), P("x"))
        for array in (XY, Y, R):
            np.testing.assert_array_equal(list(array), np.asarray(array))
        words = np.stack([jax.random.key_data(key) for key in keys])
        np.testing.assert_array_equal(words, jax.random.key_data(keys))
        copied = jnp.copy(jax.device_put(X, NamedSharding(MESH, P("x"))))
        assert copied.sharding.spec == P("x", None) and jax.random.clone(keys).sharding.spec == keys.sharding.spec
        assert jax.typeof(jax.new_ref(X)).sharding.spec == P("x", None)
        check(lambda a, b: jnp.searchsorted(a, b), (jnp.arange(16.0), V), "i32[16@y]")
        check(jnp.diag, (V,), "f32[16@y,16]")

    def test_tangents_lie_as_their_primals():
        for tangent in (R, Y, jnp.asarray(np.asarray(R))):
            out = jax.jvp(jnp.sin, (X,), (tangent,))
            assert [short(jax.typeof(each)) for each in out] == ["f32[8@x,16]"] * 2
            np.testing.assert_allclose(out[1], np.cos(X) * np.asarray(tangent), rtol=1e-5)

    def test_made_with_a_sharding_of_the_result():
        assert jnp.full((8,), 2.0, out_sharding=P("x")).weak_type
        assert not jnp.full((8,), 2.0, device=MESH.devices[0, 0]).weak_type

    def test_programs_without_explicit_axes_have_no_trace_of_them():
        auto = jax.make_mesh((4, 2), ("x", "y"), (AxisType.Auto,) * 2)
        with jax.set_mesh(auto):
            a = jax.device_put(np.asarray(XY), NamedSharding(auto, P("x", "y")))
            assert short(jax.typeof(a)) == "f32[8,16]" and jax.typeof(a).layout is None
            split = jnp.reshape(a, (8, 4, 4), out_sharding=P(None, None, None)), jax.reshard(a, P(None)), a.T + 1
            assert [each.sharding.spec for each in split] == [P("x", "y"), P("x", "y"), P("y", "x")]  # None is no wish there
            text = jax.jit(lambda a: jnp.sin(a).reshape(2, 64)).lower(a).as_text()
            assert "sharding_constraint" not in text
        with use_abstract_mesh(MESH.abstract_mesh):
            assert jax.typeof(np.ones((8, 16), np.float32)).layout is None

    def test_no_collectives_forbids_what_communicates():
        mesh = jax.make_mesh((2, 2), ("x", "y"), (AxisType.Explicit,) * 2, devices=jax.devices()[:4])
        none, reshard = jax.sharding.no_collectives, jax.sharding.reshard
        with jax.set_mesh(mesh):
            a = jax.device_put(jnp.arange(64.0).reshape(8, 8), P("x"))
            b, v = a.T, jax.device_put(jnp.arange(8.0), P(("x", "y")))
            pending = jnp.dot(b, a, out_sharding=P(unreduced={"x"}))

            def parts(fun, out):
                return jax.shard_map(fun, in_specs=P("x"), out_specs=out)(a)

            bad = [(lambda: a.sum(0), "`reduce_sum` loses sharding axis 'x'"),
                   (lambda: jnp.dot(b, a, out_sharding=P()), "`dot_general` contracts over axis 'x'"),
                   (lambda: jnp.dot(a, b, out_sharding=P("x")), "`dot_general` changes the sharded dimension of axis 'x'"),
                   (lambda: reshard(v, P("y")), "`reshard` loses sharding axis 'x'"),
                   (lambda: reshard(a, P(None, "x")), "`reshard` changes the sharded dimension of axis 'x'"),
                   (lambda: reshard(pending, P()), "`reshard` consumes unreduced axis 'x' without keeping"),
                   (lambda: jax.grad(lambda c: jnp.sum(a * c[:, None]))(jax.device_put(jnp.ones(8), P())), "axis 'x'"),
                   (lambda: parts(lambda x: lax.psum(x, "x"), P()), "`psum` acts on axis 'x'"),
                   (lambda: parts(lambda x: lax.all_gather(x, "x"), P("x")), "`all_gather` acts on axis 'x'")]
            good = [lambda: a + 1, lambda: a.sum(1), lambda: reshard(a, P("x", "y")), lambda: reshard(v, P(("y", "x"))),
                    lambda: jax.device_put(a, P()),
                    lambda: a.reshape(16, 4, out_sharding=P("x")), lambda: reshard(v, P("x")),
                    lambda: parts(lambda x: x + lax.axis_index("x"), P("x"))]
            for fun, _ in bad:
                fun()  # what is known of types from outside the block does not count inside
            for fun, message in bad:
                for call in (fun, jax.jit(fun)):
                    with pytest.raises(ForbiddenCollectiveError, match=message), none({"x"}):
                        call()
                    with none({"x"}), none({"y"}):  # the inner block is in force
                        call() if message.startswith("`psum`") else None
            with none({"x"}):
                jnp.dot(b, a, out_sharding=P(unreduced={"x"}))
                for fun in good:
                    np.testing.assert_array_equal(fun(), jax.jit(fun)())
            np.testing.assert_array_equal(a.reshape(16, 4, out_sharding=P("x")), np.arange(64).reshape(16, 4))
            with pytest.raises(TypeError, match="Expected axis name\\(s\\) as set or frozenset, got x of type"):
                none("x")

    @pytest.mark.parametrize("x", [16, np.arange(16.0), np.arange(32.0).reshape(16, 2)], ids=["int", "vector", "matrix"])
    def test_a_permutation_has_the_sharding_that_is_asked_for(x):
        key = jax.random.key(0)
        found = jax.random.permutation(key, x, out_sharding=P("x"))
        assert found.sharding.spec[0] == "x" and jax.typeof(found).sharding.spec[0] == "x"
        np.testing.assert_array_equal(found, jax.random.permutation(key, x))

    def test_a_choice_lies_as_its_condition_where_both_values_are_whole():
        assert short(jax.typeof(jnp.where(V > 1, R, 0.0))) == short(jax.typeof(Y))
        assert short(jax.typeof(jnp.where(V > 1, X, 0.0))) == short(jax.typeof(X))

    def test_what_is_no_sharding_over_a_mesh():
        with pytest.raises(ValueError, match="cannot contain `P.UNCONSTRAINED` when no mesh axis_types are `Auto`"):
            NamedSharding(MESH, P(P.UNCONSTRAINED))
        with pytest.raises(TypeError, match="reshard only supports instances of `NamedSharding`"):
            reshard(R, jax.sharding.SingleDeviceSharding(jax.devices()[0]))
