"""Values that are still to be summed over mesh axes, and those whose cotangents will be: their types, as JAX prints them, the
sums that come of them, and what refuses them.
"""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from tests.devices.eight import own_process, short

if (test_on_eight_devices := own_process(__file__)) is None:
    del test_on_eight_devices
    import jaxlite as jax
    import jaxlite.numpy as jnp
    from jaxlite import export, lax
    from jaxlite.core import parse_jaxpr
    from jaxlite.errors import ShardingTypeError
    from jaxlite.sharding import NamedSharding, reshard
    from jaxlite.sharding import PartitionSpec as P
    from lowering import xla

    NOT_LINEAR = ShardingTypeError if xla.VERSION >= (0, 12) else NotImplementedError
    MESH = jax.make_mesh((2, 4), ("x", "y"))
    jax.set_mesh(MESH)
    A, B = np.random.default_rng(0).normal(size=(2, 8, 8)).astype(np.float32)

    def typed(shape, *spec, **states):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(MESH, P(*spec, **states)))

    def product(a, b):
        return jnp.dot(a, b, out_sharding=P("x", None, unreduced={"y"}))

    LEFT, RIGHT = jax.device_put(A, P("x", "y")), jax.device_put(B, P("y", None))
    SUM = product(LEFT, RIGHT)  # is A @ B when it is summed
    REDUCED = jax.device_put(A, P("x", None, reduced={"y"}))
    u, r, n = typed((8, 4), "x", None, unreduced={"y"}), typed((8, 4), "x", None, reduced={"y"}), typed((8, 4), "x", None)
    s, w, scalar = typed((8, 4), "x", "y"), typed((4, 4), None, None), typed(())
    ux, ur = typed((8, 4), None, None, unreduced={"x"}), typed((8, 4), None, None, unreduced={"y"}, reduced={"x"})
    us, rs = typed((), unreduced={"y"}), typed((), reduced={"y"})
    rw, uw = typed((4, 4), None, None, reduced={"y"}), typed((4, 4), None, None, unreduced={"y"})

    def type_of(fun, *args):
        return ", ".join(map(short, jax.make_jaxpr(fun)(*args).out_avals))

    def summed(x):
        return np.asarray(reshard(x, P()))

    @pytest.mark.parametrize(("fun", "args", "expected"), [
        (lambda a: -a - a, (u,), "f32[8@x,4]{U:y}"), (lambda a, b: a / b, (u, r), "f32[8@x,4]{U:y}"),
        (lambda a: a.max(1) - a.min(1), (r,), "f32[8@x]{R:y}"), (lambda a: a[:, jnp.array([2, 1])], (r,), "f32[8@x,2]{R:y}"),
        (lambda a: a + a, (u,), "f32[8@x,4]{U:y}"), (lambda a: a + a, (ux,), "f32[8,4]{U:x}"),
        (lambda a, b: a * b, (u, r), "f32[8@x,4]{U:y}"), (lambda a, b: a * b, (rs, u), "f32[8@x,4]{U:y}"),
        (lambda a, b: a + b, (u, us), "f32[8@x,4]{U:y}"), (lambda a: a + a, (ur,), "f32[8,4]{U:y, R:x}"),
        (lambda a: jnp.sin(a) * 2 - 1, (r,), "f32[8@x,4]{R:y}"), (lambda a, b: a + b, (r, scalar), "f32[8@x,4]{R:y}"),
        (lambda a: a.sum(), (u,), "f32[]{U:y}"), (lambda a: a.T.reshape(2, 2, 8), (u,), "f32[2,2,8@x]{U:y}"),
        (lambda a: a[:, 0], (u,), "f32[8@x]{U:y}"), (lambda a: jnp.concatenate([a, a], 1), (u,), "f32[8@x,8]{U:y}"),
        (lambda a: jnp.broadcast_to(a, (2, 8, 4)), (r,), "f32[2,8@x,4]{R:y}"), (jnp.zeros_like, (u,), "f32[8@x,4]{U:y}"),
        (lambda a: a.astype(jnp.bfloat16), (u,), "bf16[8@x,4]{U:y}"), (lambda a: jnp.mean(a, 1), (r,), "f32[8@x]{R:y}"),
        (lambda a: lax.dynamic_slice(a, (0, 0), (8, 2)), (r,), "f32[8@x,2]{R:y}"),
        (lambda a: lax.dynamic_update_slice(a, a, (0, 0)), (u,), "f32[8@x,4]{U:y}"),
        (lambda a: lax.cond(True, lambda c: c + c, lambda c: c, a), (u,), "f32[8@x,4]{U:y}"),
        (lambda a: lax.scan(lambda c, _: (c + c, c), a, None, length=2), (u,), "f32[8@x,4]{U:y}, f32[2,8@x,4]{U:y}"),
        (jax.vmap(lambda a: a + a, 1), (u,), "f32[4,8@x]{U:y}"),
        (lambda a, b: a @ b, (n, rw), "f32[8@x,4]"), (lambda a, b: a @ b, (r, w), "f32[8@x,4]"),
        (lambda a: reshard(a, P("x", None, unreduced={"y"})), (s,), "f32[8@x,4]{U:y}"),
        (lambda a: reshard(a, P(None, None, unreduced={"x", "y"})), (n,), "f32[8,4]{U:(x,y)}"),
        (lambda a: reshard(a, P("x", None, reduced={"y"})), (s,), "f32[8@x,4]{R:y}"),
        (lambda a, b: jnp.einsum("ij,jk,il->kl", a, b, a, out_sharding=P(unreduced={"x"})), (n, w), "f32[4,4]{U:x}"),
        (jax.nn.relu, (r,), "f32[8@x,4]{R:y}"),
    ])
    def test_types_of_results(fun, args, expected):
        assert type_of(fun, *args) == expected

    @pytest.mark.parametrize(("fun", "args", "error", "words"), [
        (jnp.sin, (u,), NOT_LINEAR, "sin is not"),
        (lambda a: 1 / a, (u,), ValueError, "The denominator of `div` cannot be unreduced"),
        (lambda a, b: a - b, (u, n), ShardingTypeError, "lhs is unreduced while rhs is not"),
        (lambda a: a > 0, (u,), NOT_LINEAR, "gt is not"),
        (lambda a: jnp.flip(a, 1), (r,), NotImplementedError, "unreduced/reduced rule for rev is not implemented"),
        (lambda a: lax.dynamic_slice(a, (0, 0), (8, 2)), (u,), NotImplementedError, "unreduced rule for dynamic_slice"),
        (lambda a: a.astype(int), (u,), NotImplementedError, "unreduced rule for convert_element_type from float32 to int32"),
        (lambda a, b: a + b, (u, n), ShardingTypeError, "lhs is unreduced while rhs is not. `add` operation does not allow"),
        (lambda a: 1 + a, (u,), ShardingTypeError, "rhs is unreduced while lhs is not"),
        (lambda a, b: a + b, (u, ux), ShardingTypeError, "lhs and rhs to `add` must be unreduced along the same"),
        (lambda a: a * 2, (u,), ShardingTypeError, "RHS should be reduced along the same axes LHS is unreduced on."),
        (lambda a: a * a, (u,), ShardingTypeError, "lhs and rhs to `mul` cannot be unreduced since mul is bilinear"),
        (lambda a, b: a + b, (r, n), ShardingTypeError, "Inputs cannot be replicated on the same axes that another"),
        (lambda a, b: a + b, (r, s), ShardingTypeError, "Inputs cannot be sharded/varying on the same axes that"),
        (lambda a, b: a @ b, (n, uw), ShardingTypeError, "lhs or rhs passed to dot_general cannot be unreduced"),
        (product, (s, w), ShardingTypeError, "lhs and rhs contracting dims should be sharded identically when out_sharding"),
        (product, (n, w), ShardingTypeError, "out_sharding's unreduced axes should be equal to the contracting specs"),
        (lambda a, b: jnp.concatenate([a, b], 1), (u, n), ShardingTypeError, "All operands should have the same sharding"),
        (lambda a: lax.with_sharding_constraint(a, P("x")), (u,), AssertionError, "acts as an assert"),
    ])
    def test_what_refuses(fun, args, error, words):
        with pytest.raises(error, match=words.replace("(", r"\(")):
            jax.eval_shape(fun, *args)

    def test_a_product_is_left_unreduced_and_summed_later():
        fun = lambda a, b: reshard(product(a, b), P("x"))
        assert str(jax.make_jaxpr(fun)(LEFT, RIGHT)).splitlines()[1].strip() == "c:f32[8@x,8]{U:y} = dot_general["
        np.testing.assert_allclose(jax.jit(fun)(LEFT, RIGHT), A @ B, rtol=1e-4, atol=1e-5)
        text = jax.jit(fun).lower(LEFT, RIGHT).as_text()
        assert 'sdy.sharding_constraint %0 <@mesh, [{"x"}, {}], unreduced={"y"}>' in text

    def test_an_unreduced_array():
        assert str(jax.typeof(SUM)) == "float32[8@x,8]{U:y}" and SUM.sharding.spec == P("x", None, unreduced={"y"})
        assert not SUM.is_fully_replicated and repr(SUM).startswith("Array(shape=(8, 8), dtype=float32, sharding=Named")
        parts = [np.asarray(shard.data) for shard in SUM.addressable_shards]
        np.testing.assert_allclose(sum(parts[:4]), (A @ B)[:4], rtol=1e-4, atol=1e-5)
        with pytest.raises(NotImplementedError, match="unreduced over the mesh axes {'y'}"):
            np.asarray(SUM)
        for place in (P(), P("x", "y"), P(("x", "y")), P(None, "x"), P("x", reduced={"y"})):
            np.testing.assert_allclose(reshard(SUM, place), A @ B, rtol=1e-4, atol=1e-5)
        assert jax.typeof(pickle.loads(pickle.dumps(REDUCED))).shape == (8, 8)

    @pytest.mark.parametrize("place", [P("x", None, unreduced={"y"}), P(unreduced={"x", "y"}), P("y", reduced={"x"})])
    def test_putting_at_once_and_inside_of_a_program(place):
        def moved(a):
            return reshard(a * 1, place)

        inside = jax.jit(lambda: moved(jnp.asarray(A)))
        for made in (jax.device_put(A, place), reshard(LEFT, place), jax.jit(moved)(LEFT), inside()):
            assert (made.sharding.spec.unreduced, made.sharding.spec.reduced) == (place.unreduced, place.reduced)
            np.testing.assert_array_equal(summed(made), A)
        np.testing.assert_allclose(summed(jax.device_put(SUM, place)), A @ B, rtol=1e-4, atol=1e-5)

    def test_linear_operations_of_the_parts():
        factor = jax.device_put(B, P("x", None, reduced={"y"}))

        def fun(a, f):
            return (a + a, a * f, a.sum(0), a.T, jnp.pad(a, ((0, 0), (1, 1)), constant_values=2.0), jnp.ones_like(a) + a,
                    lax.dynamic_update_slice(a, a[:, :2], (0, 1)), lax.fori_loop(0, 3, lambda i, c: c + c, a))

        c = A @ B
        wanted = (2 * c, c * B, c.sum(0), c.T, np.pad(c, ((0, 0), (1, 1)), constant_values=2), c + 1,
                  np.concatenate([c[:, :1], c[:, :2], c[:, 3:]], 1), 8 * c)
        for out, value in zip(jax.jit(fun)(SUM, factor), wanted, strict=True):
            assert out.sharding.spec.unreduced == {"y"}
            np.testing.assert_allclose(summed(out), value, rtol=1e-4, atol=1e-4)

    def test_cotangents_are_dual():
        """Of what is reduced they are unreduced, and the other way round; the sums are those of one device."""
        data = jax.device_put(A, P("x"))

        def loss(weights, data):
            return jnp.sin(data @ reshard(weights, P(None, None, reduced={"x"}))).sum()

        text = str(jax.make_jaxpr(jax.grad(loss))(B, data))
        assert "f32[8,8]{U:x} = dot_general[" in text
        np.testing.assert_allclose(jax.jit(jax.grad(loss))(B, data), A.T @ np.cos(A @ B), rtol=1e-4, atol=1e-4)

        cases = [(lambda v: reshard(jnp.sin(v).sum(), P()), np.cos(A)), (lambda v: (v * v).sum(), 2 * A),
                 (lambda v: reshard(jax.nn.relu(v) * 3, P()).sum(), 3.0 * (A > 0)),
                 (lambda v: jnp.exp(v)[:, 1:].sum(), np.where(np.arange(8) > 0, np.exp(A), 0)),
                 (lambda v: lax.scan(lambda c, _: (c * v, c), v, None, length=2)[0].sum(), 3 * A**2)]
        for fun, wanted in cases:
            out = jax.jit(jax.grad(fun))(REDUCED)
            assert short(jax.typeof(out)) == "f32[8@x,8]{U:y}"
            np.testing.assert_allclose(summed(out), wanted, rtol=1e-4, atol=1e-4)
        back = jax.jit(jax.grad(lambda v: reshard((v + v) * REDUCED, P()).sum()))(SUM)
        assert short(jax.typeof(back)) == "f32[8@x,8]{R:y}"
        np.testing.assert_allclose(back, 2 * A, rtol=1e-5)
        a, b = jax.jit(jax.grad(lambda a, b: reshard(product(a, b), P("x")).sum(), (0, 1)))(LEFT, RIGHT)
        assert (short(jax.typeof(a)), short(jax.typeof(b))) == ("f32[8@x,8@y]", "f32[8@y,8]")
        np.testing.assert_allclose(a, np.ones((8, 8)) @ B.T, rtol=1e-4, atol=1e-5)

    def test_out_shardings_in_shardings_and_caches():
        place = NamedSharding(MESH, P("x", None, unreduced={"y"}))
        out = jax.jit(lambda a: a * 2, out_shardings=place)(LEFT)
        assert short(jax.typeof(out)) == "f32[8@x,8]{U:y}"
        np.testing.assert_allclose(summed(out), 2 * A)
        double = lambda a: a * 2  # of which one trace has sums, and one parts of them
        for sharding, wanted in ((place, "f32[8@x,8]{U:y}"), (None, "f32[8@x,8@y]"), (place, "f32[8@x,8]{U:y}")):
            assert short(jax.typeof(jax.jit(double, out_shardings=sharding)(LEFT))) == wanted
        whole = {"a": NamedSharding(MESH, P(unreduced={"x", "y"})), "b": None}
        out = jax.jit(lambda a: {"a": a + 1, "b": a}, out_shardings=whole)(A)  # what is the same on each device
        assert short(jax.typeof(out["a"])) == "f32[8,8]{U:(x,y)}" and short(jax.typeof(out["b"])) == "f32[8,8]"
        np.testing.assert_allclose(summed(out["a"]), A + 1)
        np.testing.assert_allclose(summed(jax.jit(lambda a: a + a, in_shardings=place)(SUM)), 2 * A @ B, rtol=1e-4, atol=1e-4)
        with pytest.raises(ValueError, match="Sharding passed to jit does not match the sharding on the respective arg"):
            jax.jit(lambda a: a + a, in_shardings=place)(REDUCED)
        double = jax.jit(lambda a: a + a)
        kinds = [SUM, REDUCED, reshard(REDUCED, P("x")), SUM, REDUCED]
        assert [short(jax.typeof(double(a))) for a in kinds] == [short(jax.typeof(a)) for a in kinds]

    INSIDE = {
        "psum": (lambda a: lax.psum(lax.pcast(a, "x", to="unreduced"), "x"), P("x"), P(), "f32[8]",
                 "vary_unreduced_cast_p unreduced_psum", "preduced reduced_vary_cast_p"),
        "scatter": (lambda a: lax.psum_scatter(lax.pcast(a, "x", to="unreduced"), "x", tiled=True), P("x"), P("x"), "f32[8@x]",
                    "vary_unreduced_cast_p unreduced_reduce_scatter", "all_gather_reduced reduced_vary_cast_p"),
        "gather": (lambda a: lax.psum(lax.pcast(lax.all_gather(a, "x", tiled=True, to="reduced") * 3, "x", to="varying"), "x"),
                   P("x"), P(), "f32[16]", "all_gather_reduced mul reduced_vary_cast_p psum_invariant",
                   "pvary vary_unreduced_cast_p mul unreduced_reduce_scatter"),
        "out": (lambda a: a + a, P("x"), P(unreduced={"x"}), "f32[8]{U:x}", "add vary_unreduced_cast_p",
                "reduced_vary_cast_p add_any"),
        "in": (lambda a: lax.psum(a + a, "x"), P(unreduced={"x"}), P(), "f32[16]", "add unreduced_psum", "preduced add_any"),
        "reduced": (lambda a: a * a, P(reduced={"x"}), P(reduced={"x"}), "f32[16]{R:x}", "mul", "mul mul add_any"),
        "beside": (lambda a: lax.psum(a, "y"), P(unreduced={"x"}), P(unreduced={"x"}), "f32[16]{U:x}", "pvary psum_invariant",
                   "pvary psum_invariant"),
    }

    @pytest.mark.parametrize("name", INSIDE)
    def test_inside_of_shard_map(name):
        fun, in_spec, out_spec, expected, forward, backward = INSIDE[name]
        values = np.arange(16, dtype=np.float32) - 3
        arg = jax.device_put(values, in_spec)
        mapped = jax.shard_map(fun, in_specs=in_spec, out_specs=out_spec)
        jaxpr = jax.make_jaxpr(mapped)(arg)
        assert short(jaxpr.out_avals[0]) == expected
        assert " ".join(eqn.primitive.name for eqn in jaxpr.eqns[0].params["jaxpr"].jaxpr.eqns) == forward
        parts = values.reshape(2, 8)
        wanted = {"psum": parts.sum(0), "scatter": parts.sum(0), "gather": 6 * values, "out": 2 * parts.sum(0),
                  "in": 2 * values, "reduced": values**2, "beside": 4 * values}[name]
        np.testing.assert_allclose(summed(jax.jit(mapped)(arg)), wanted)
        if name == "psum":
            np.testing.assert_allclose(mapped(arg), wanted)  # at once
        total = jax.grad(lambda a: reshard((mapped(a) * 1 if not out_spec.unreduced else mapped(a)).sum(), P()))
        program = jax.make_jaxpr(total)(arg)
        inner = [eqn.params["jaxpr"].jaxpr.eqns for eqn in program.eqns if eqn.primitive.name == "shard_map"][-1]
        assert " ".join(eqn.primitive.name for eqn in inner) == backward
        slope = {"psum": 1, "scatter": 1, "gather": 6, "out": 2, "in": 2, "reduced": 2 * values, "beside": 4}[name]
        np.testing.assert_allclose(summed(jax.jit(total)(arg)), np.broadcast_to(slope, (16,)))
        text = str(program)
        assert str(parse_jaxpr(text)) == text

    def test_refused_inside_of_shard_map():
        unreduced, varied, same = (jax.device_put(np.ones(8, np.float32), spec) for spec in (P(unreduced={"x"}), P("x"), P()))

        def refused(words, fun, in_spec, out_spec, arg, **options):
            with pytest.raises((ValueError, NotImplementedError, ShardingTypeError), match=words):
                jax.eval_shape(jax.shard_map(fun, in_specs=in_spec, out_specs=out_spec, **options), arg)

        u_spec = P(unreduced={"x"})
        refused("Unsupported pcast from=invarying, to='unreduced'", lambda a: lax.pcast(a, "x", to="unreduced"), P(), u_spec,
                same)
        refused("Unsupported pcast from=unreduced, to='varying'", lambda a: lax.pcast(a, "x", to="varying"), u_spec, P("x"),
                unreduced)
        refused("all_gather_reduced only accepts inputs that are varying", lambda a: lax.all_gather(a, "x", to="reduced"),
                P(), P(), same)
        refused("unreduced_pmax cannot accept args with unreduced_kind=UnreducedKind.sum", lambda a: lax.pmax(a, "x"),
                u_spec, P(), unreduced)
        refused("jax.lax.psum can only accept axis_name which corresponds to one of", lambda a: lax.psum(a, ("x", "y")),
                u_spec, P(), unreduced)
        refused("sin is not", jnp.sin, u_spec, u_spec, unreduced)
        refused("require replication which can't be statically inferred", lambda a: a, u_spec, P(), unreduced)
        refused("should be equal to the unreduced present on the out_aval", lambda a: a, P(), u_spec, same)
        refused("does not match the specs of the input", lambda a: a, P(), P(), unreduced)
        refused("does not match the specs of the input", lambda a: a, u_spec, u_spec, same)
        refused("when shard_map is in full manual mode", lambda a: a, u_spec, u_spec, unreduced, axis_names={"x"})

    def test_export_keeps_the_types():
        exported = export.export(jax.jit(lambda a, b, f: product(a, b) * f))(LEFT, RIGHT, REDUCED)
        loaded = export.deserialize(exported.serialize())
        assert [short(aval) for aval in (*loaded.in_avals, *loaded.out_avals)] == [
            "f32[8@x,8@y]", "f32[8@y,8]", "f32[8@x,8]{R:y}", "f32[8@x,8]{U:y}"]
        out = loaded.call(LEFT, RIGHT, REDUCED)
        assert short(jax.typeof(out)) == "f32[8@x,8]{U:y}"
        np.testing.assert_allclose(summed(out), A @ B * A, rtol=1e-4, atol=1e-5)

    def test_arange_lies_as_asked():
        assert jnp.arange(4.0, out_sharding=P("y")).sharding.spec == P("y") and type_of(
            lambda: jnp.arange(2, 6, out_sharding=P("y"))) == "i32[4@y]"

    def test_choices_from_what_is_reduced():
        for fun in (lambda a: a.max(0).sum(), lambda a: a[:, jnp.array([0, 1, 1])].sum(), lambda a: (a - 2 * -a).min()):
            pulled = jax.grad(fun)(REDUCED)
            assert short(jax.typeof(pulled)) == "f32[8@x,8]{U:y}"
            np.testing.assert_allclose(summed(pulled), jax.grad(fun)(jnp.asarray(A)), rtol=1e-6)
        both = jax.jit(lambda a, b: -product(a, b) - product(a, b))(LEFT, RIGHT)
        np.testing.assert_allclose(summed(both), -2 * A @ B, rtol=1e-4)

    @pytest.mark.parametrize("dtype", [np.float32, np.complex64])
    @pytest.mark.parametrize("second", [jax.sharding.AxisType.Explicit, jax.sharding.AxisType.Auto])
    def test_parts_of_complex_numbers_and_beside_automatic_axes(dtype, second):  # the process ended, sums counted twice
        mesh = jax.make_mesh((2, 4), ("x", "y"), axis_types=(jax.sharding.AxisType.Explicit, second))
        a, b = A.astype(dtype), B.astype(dtype)
        with jax.set_mesh(mesh):
            left, right = jax.device_put(a, P(None, "x")), jax.device_put(b, P("x"))
            part = jax.jit(lambda a, b: jnp.dot(a, b, out_sharding=P(unreduced={"x"})))(left, right)
            assert jax.typeof(part).sharding.spec.unreduced == {"x"}
            np.testing.assert_allclose(summed(part), a @ b, rtol=1e-4, atol=1e-5)
            put = jax.device_put(a, NamedSharding(mesh, P(unreduced={"x"})))
            np.testing.assert_array_equal(summed(put), a)
            back = jax.jit(lambda x: reshard(-reshard(x, P(unreduced={"x"})), P("x")))(a)
            np.testing.assert_array_equal(back, -a)

    def test_over_two_meshes():  # XLA ended the process
        other = jax.device_put(A, NamedSharding(jax.make_mesh((4, 2), ("x", "y")), P("x")))
        target = NamedSharding(MESH, P(unreduced={"x"}))
        np.testing.assert_array_equal(summed(jax.device_put(other, target)), A)
        with pytest.raises(ValueError, match=r"can be over one mesh only. Got Mesh\('x': 4.* and Mesh\('x': 2"):
            jax.jit(lambda x: reshard(x, target))(other)

    def test_out_shardings_sum():  # XLA refused the program
        np.testing.assert_allclose(jax.jit(lambda a: a, out_shardings=NamedSharding(MESH, P("x")))(SUM), A @ B, rtol=1e-5)

    @pytest.mark.skipif(xla.VERSION < (0, 12), reason="Shardy knows sums alone")
    @pytest.mark.parametrize("name", ["max", "min"])
    def test_extremes_that_are_left_to_be_taken(name):
        from jaxlite.sharding import UnreducedKind

        kind, take = UnreducedKind[name], getattr(lax, f"reduce_{name}")
        spec = P("x", unreduced={"y"}, unreduced_kind=kind)
        assert pickle.loads(pickle.dumps(spec)) == spec != P("x", unreduced={"y"}) and f"unreduced_kind={name}" in repr(spec)
        left = lambda a: take(a, (1,), out_sharding=spec)
        made = jax.jit(left)(LEFT)
        assert short(jax.typeof(made)) == f"f32[8@x]{{U_{name}:y}}" and made.sharding.spec == spec
        expected = getattr(A, name)(1)
        for fun, wanted in (
                (lambda a: a, expected), (lambda a: a.reshape(2, 4).T[:2], expected.reshape(2, 4).T[:2]),
                (lambda a: jnp.stack([a, a]), np.stack([expected] * 2)), (lambda a: take(a, (0,)), getattr(A, name)()),
                (jax.shard_map(lambda v: getattr(lax, f"p{name}")(v, "y"), in_specs=spec, out_specs=P("x")), expected)):
            np.testing.assert_array_equal(jax.jit(lambda a, fun=fun: reshard(fun(left(a)), P()))(LEFT), wanted)
            np.testing.assert_array_equal(summed(jax.jit(fun)(made)), wanted)
        text = jax.jit(left).lower(LEFT).as_text()
        assert f'unreduced={name}{{"y"}}' in text and "all_reduce" not in text
        assert parse_jaxpr(str(jax.make_jaxpr(left)(LEFT))).out_avals[0].layout.spec == spec
        several = jax.jit(jax.vmap(lambda a: take(a, (1,), out_sharding=spec), in_axes=2, out_axes=1))(
            jax.device_put(np.stack([A, 2 * A], 2), P("x", "y", None)))
        np.testing.assert_array_equal(summed(several), np.stack([expected, 2 * expected], 1))
        for refused in (lambda a: -left(a), lambda a: jnp.exp(left(a)), lambda a: left(a) + left(a), lambda a: left(a)[None],
                        lambda a: lax.reduce_sum(left(a), (0,)), lambda a: reshard(left(a), P("x", unreduced={"y"})),
                        lambda a: reshard(a, P(None, None, unreduced={"y"}, unreduced_kind=kind)),
                        jax.grad(lambda a: reshard(left(a), P()).sum()),
                        lambda a: jax.shard_map(lambda v: lax.psum(v, "y"), in_specs=spec, out_specs=P("x"))(left(a)),
                        lambda a: jax.shard_map(lambda v: v.sum(1), in_specs=P("x", "y"), out_specs=spec)(a)):
            with pytest.raises(ValueError, match="nreduced"):
                jax.make_jaxpr(refused)(LEFT)
        for wrong in (P("x", unreduced={"y"}), P(None, unreduced={"x"}, unreduced_kind=kind)):
            with pytest.raises(ShardingTypeError):
                take(LEFT, (1,), out_sharding=wrong)

    def test_kinds_of_parts():
        from jaxlite.core.aval import ManualAxisType, UnreducedKind

        for make in (lambda **given: P("x", **given), ManualAxisType):
            assert make(unreduced={"y"}).unreduced_kind is UnreducedKind.sum and make().unreduced_kind is None
            with pytest.raises(ValueError, match="should be `None`"):
                make(unreduced_kind=UnreducedKind.max)
            with pytest.raises(TypeError, match="UnreducedKind"):
                make(unreduced={"y"}, unreduced_kind="max")
        with pytest.raises(TypeError, match="differs"):
            P("x", unreduced={"y"}) + P(None, unreduced={"z"}, unreduced_kind=UnreducedKind.min)
        assert P("x").update((None, "y"), {"x"}) == P(None, "y", unreduced={"x"})
