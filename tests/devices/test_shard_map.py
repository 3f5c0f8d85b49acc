"""shard_map agrees with the same computation on whole arrays: values, derivatives, batches, loops; and it complains as JAX."""

from __future__ import annotations

import numpy as np
import pytest

from tests.devices.eight import own_process

if (test_on_eight_devices := own_process(__file__)) is None:
    del test_on_eight_devices
    import jaxlite as jax
    import jaxlite.numpy as jnp
    from jaxlite import lax
    from jaxlite.errors import ShardingTypeError
    from jaxlite.experimental import checkify
    from jaxlite.experimental.shard_map import shard_map as older_shard_map
    from jaxlite.sharding import AxisType, Mesh, NamedSharding
    from jaxlite.sharding import PartitionSpec as P
    from tests import random_programs

    MESH = Mesh(np.array(jax.devices()).reshape(4, 2), ("x", "y"))
    X = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)
    W = np.random.default_rng(1).normal(size=(4, 3)).astype(np.float32)
    BLOCKS = X.reshape(4, 2, 4)

    def over(fun, in_specs, out_specs, **options):
        return jax.shard_map(fun, mesh=MESH, in_specs=in_specs, out_specs=out_specs, **options)

    def close(found, wanted):
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), found, wanted)

    def test_the_program_that_is_written():
        fun = over(lambda w, x: lax.psum(jnp.sin(x) * w, "x"), (P(), P("x")), P())
        assert str(jax.make_jaxpr(fun)(np.float32(2), X)) == """\
{ lambda ; a:f32[] b:f32[8,4]. let
    c:f32[2,4] = shard_map[
      check_vma=True
      in_specs=(P(), P('x',))
      jaxpr={ lambda ; d:f32[] e:f32[2,4]{V:x}. let
          f:f32[2,4]{V:x} = sin e
          g:f32[]{V:x} = pvary[axes=('x',)] d
          h:f32[2,4]{V:x} = mul f g
          i:f32[2,4] = psum_invariant[axes=('x',)] h
        in (i,) }
      mesh=Mesh('x': 4, 'y': 2, axis_types=(Auto, Auto))
      newly_manual_axes=frozenset({'x', 'y'})
      out_specs=(P(),)
    ] a b
  in (c,) }"""
        out = fun(2.0, X)
        close(out, (np.sin(BLOCKS) * 2).sum(0))
        assert out.sharding == NamedSharding(MESH, P())
        assert fun(2.0, jax.device_put(X, NamedSharding(MESH, P("y")))).sharding == out.sharding

    def test_extremes_of_groups_vary_from_group_to_group():
        groups = [[0, 2], [3, 1]]

        def largest(x):
            return lax.pmax(x, "x", axis_index_groups=groups)

        of_each = BLOCKS[np.array(groups)].max(1)[[0, 1, 0, 1]]  # devices 0 and 2 are in the first group
        close(over(largest, P("x"), P("x"))(X).reshape(4, 2, 4), of_each)
        close(over(lambda x: lax.pmin(x, "x", axis_index_groups=[range(4)]), P("x"), P())(X), BLOCKS.min(0))
        with pytest.raises(ValueError, match="require replication"):
            over(largest, P("x"), P())(X)

    def test_of_replicas_that_differ_the_first_counts():
        places = over(lambda: (10 * lax.axis_index("x") + lax.axis_index("y"))[None], (), P("x"), check_vma=False)()
        assert places.tolist() == [int(place) for place in places] == [0, 10, 20, 30]
        assert [int(shard.data[0]) for shard in places.addressable_shards] == [0, 1, 10, 11, 20, 21, 30, 31]

    @jax.custom_vjp
    def cube(x):
        return x ** 3

    cube.defvjp(lambda x: (x ** 3, x), lambda x, g: (3 * x ** 2 * g,))

    @jax.custom_jvp
    def square(x):
        return x * x

    square.defjvp(lambda primals, tangents: (primals[0] ** 2, 2 * primals[0] * tangents[0]))

    # Functions of a part, and of all parts together ([4, 2, 4]) with the same results: of weights that are the same
    # everywhere and of the part.
    PROGRAMS = {
        "mlp": (lambda w, x: lax.pmean(jnp.tanh(x @ w).sum(), "x"), lambda w, b: jnp.tanh(b @ w).sum() / 4),
        "closed over": (lambda w, x: lax.psum((x * X[:2] @ w).sum(), "x"), lambda w, b: (b * X[:2] @ w).sum()),
        "gather": (lambda w, x: lax.psum(jnp.sin(lax.all_gather(x, "x", tiled=True) @ w).sum(), "x") / 4,
                   lambda w, b: jnp.sin(b @ w).sum()),
        "ring": (lambda w, x: lax.psum((x * lax.pshuffle(jnp.sin(x), "x", [3, 0, 1, 2]) @ w).sum(), "x"),
                 lambda w, b: (b * jnp.roll(jnp.sin(b), 1, 0) @ w).sum()),
        "max": (lambda w, x: lax.pmax(jnp.max(x @ w), "x") * 2.0, lambda w, b: jnp.max(b @ w) * 2.0),
        "scan": (lambda w, x: lax.psum(
            lax.scan(lambda c, r: (jnp.sin(c + r @ w), c.sum()), lax.pcast(jnp.zeros(3), "x", to="varying"), x)[1].sum(), "x"),
                 lambda w, b: sum(lax.scan(lambda c, r: (jnp.sin(c + r @ w), c.sum()), jnp.zeros(3), b[i])[1].sum()
                                  for i in range(4))),
        "cond": (lambda w, x: lax.psum(lax.cond(lax.axis_index("x") < 2, lambda w, x: jnp.sin(x @ w).sum(),
                                                lambda w, x: -(x @ w).sum(), w, x), "x"),
                 lambda w, b: jnp.sin(b[:2] @ w).sum() - (b[2:] @ w).sum()),
        "custom rules": (lambda w, x: lax.psum((cube(w[:, 0]) * square(x)).sum(), "x"),
                         lambda w, b: (w[:, 0] ** 3 * b ** 2).sum()),
        "checkpoint": (lambda w, x: lax.psum(jax.checkpoint(lambda w: jnp.sin(jnp.sin(x @ w)))(w).sum(), "x"),
                       lambda w, b: jnp.sin(jnp.sin(b @ w)).sum()),
        "jit": (lambda w, x: jax.jit(lambda w, x: lax.psum(jnp.cos(x @ w).sum(), "x"))(w, x),
                lambda w, b: jnp.cos(b @ w).sum()),
        "scalar residual": (lambda w, x: lax.psum(jnp.sin(x.sum()) * jnp.sin(w.sum()), "x"),
                            lambda w, b: (jnp.sin(b.sum((1, 2))) * jnp.sin(w.sum())).sum()),
    }

    @pytest.mark.parametrize("check_vma", [True, False])
    def test_derivatives(check_vma):
        names = [*PROGRAMS]

        def mapped(names):
            return over(lambda w, x: [PROGRAMS[name][0](w, x) for name in names], (P(), P("x")), P(), check_vma=check_vma)

        def whole(names):
            return lambda w, x: [PROGRAMS[name][1](w, x.reshape(4, 2, 4)) for name in names]

        def answers(make):
            fun, forward = make(names), make([name for name in names if name != "custom rules"])

            def total(w, x):
                return sum((1 + i) * out for i, out in enumerate(fun(w, x)))

            def run(w, x):
                return (fun(w, x), jax.jvp(forward, (w, x), (jnp.cos(w), jnp.sin(x)))[1], jax.grad(total, (0, 1))(w, x),
                        jax.vmap(jax.grad(total), (0, None))(jnp.stack([w, 2 * w]), x))

            return jax.jit(run)(W, X)

        close(answers(mapped), answers(whole))

    def test_second_derivatives_and_eager_ones():
        def part(w, x):
            return lax.psum(jnp.sin(w * x).sum(), "x")

        mapped = over(part, (P(), P("x")), P())
        close(jax.hessian(mapped)(2.0, X), -(X ** 2 * np.sin(2 * X)).sum())
        close(jax.grad(lambda x: over(lambda x: jnp.sin(x) * 2, P("x"), P("x"))(x).sum())(X), 2 * np.cos(X))
        (_, twice), pull = jax.vjp(lambda w: (w, over(lambda x: x * w, P("x"), P("x"))(X)), 3.0)
        close(twice, 3 * X)
        close(pull((0.0, X))[0], (X * X).sum())

    def test_eager_gradients_with_respect_to_what_is_not_cut_yet():
        mesh = jax.make_mesh((4,), ("i",), devices=jax.devices()[:4])
        assert mesh.axis_types == (AxisType.Explicit,)
        f = jax.shard_map(lambda x, w: lax.psum(jnp.sin(x) * w, "i"), mesh=mesh, in_specs=(P("i"), P()), out_specs=P())
        found = jax.grad(lambda x, w: f(x, w).sum(), (0, 1))(jnp.ones(4), 2.0)
        close(found, (np.full(4, 2 * np.cos(1)), 4 * np.sin(1)))

    def test_axes_spread_by_vmap():
        def part(w, x):
            return lax.psum(jnp.tanh(x @ w), "x")

        batch = np.stack([X, 2 * X])
        for check in (True, False):
            mapped = jax.vmap(over(part, (P(), P("x")), P(), check_vma=check), (None, 0), spmd_axis_name="y")
            value = jax.jit(jax.value_and_grad(lambda w, mapped=mapped: (mapped(w, batch) ** 2).sum()))(W)
            close(value, jax.value_and_grad(lambda w: (jnp.tanh(batch @ w).reshape(2, 4, 2, 3).sum(1) ** 2).sum())(W))
        both = over(lambda x: jax.vmap(lambda row: lax.psum(row, ("x", "i")), axis_name="i")(x), P("x"), P())
        close(both(X), np.tile(X.sum(0), (2, 1)))
        outer = jax.vmap(over(lambda x: lax.psum(x, ("x", "i")), P("x"), P()), axis_name="i")
        close(outer(np.stack([X, X])), 2 * np.stack([BLOCKS.sum(0)] * 2))

    def test_some_axes_and_one_inside_another():
        def inner(x):
            return lax.psum(jnp.sin(x), "y") * 2 + lax.axis_index("y") + 10 * lax.axis_index("x")

        def outer(x):
            assert jax.sharding.get_abstract_mesh().manual_axes == ("x",) and jax.typeof(x).vma == {"x"}
            mapped = jax.shard_map(inner, in_specs=P(None, "y"), out_specs=P(None, "y"), axis_names={"y"})
            return mapped(x) + lax.axis_index("x")

        mapped = over(outer, P("x"), P("x"), axis_names={"x"})
        wanted = np.tile(2 * (np.sin(X[:, :2]) + np.sin(X[:, 2:])), 2) + np.repeat([0, 1], 2) + 11 * np.repeat(
            np.arange(4), 2)[:, None]
        close(jax.jit(mapped)(X), wanted)
        close(mapped(X), wanted)
        grad = jax.jit(jax.grad(lambda x: (mapped(x) ** 2).sum()))(X)
        close(grad, 2 * np.tile((wanted[:, :2] + wanted[:, 2:]), 2) * 2 * np.cos(X))
        placed = jax.jit(over(lambda x: x @ x.T, P("x"), P("x"), axis_names={"x"}))(
            jax.device_put(X, NamedSharding(MESH, P("x", "y"))))
        close(placed, np.concatenate([b @ b.T for b in BLOCKS]))

    def test_trees_meshes_and_other_spellings():
        def part(tree, nothing):
            assert nothing is None
            return {"sum": lax.psum(tree["a"], "x"), "rest": [tree["b"], tree["a"]]}

        specs = {"a": P("x"), "b": P("x", "y")}
        out = over(part, (specs, None), {"sum": P(), "rest": [P("x", "y"), P("x")]})({"a": X, "b": X}, None)
        close(out, {"sum": BLOCKS.sum(0), "rest": [X, X]})
        with jax.set_mesh(MESH):
            close(jax.jit(jax.shard_map(lambda x: lax.psum(x, "x"), in_specs=P("x"), out_specs=P()))(X), BLOCKS.sum(0))
            close(jax.smap(lambda x: lax.psum(x, "y"), in_axes=-1, out_axes=None, axis_name="y")(X), X[:, :2] + X[:, 2:])
        close(older_shard_map(lambda x: lax.psum(x, "x"), MESH, P("x"), P(), check_rep=False)(X), BLOCKS.sum(0))
        close(jax.shard_map(mesh=MESH, in_specs=P("x"), out_specs=P("x"))(lambda x: 2 * x)(X), 2 * X)
        one = jax.make_mesh((1,), ("q",))
        close(jax.shard_map(lambda x: lax.psum(x + lax.axis_index("q"), "q") + lax.all_gather(x, "q", to="invarying")[0],
                            mesh=one, in_specs=P("q"), out_specs=P())(X), 2 * X)
        explicit = jax.make_mesh((8,), ("q",), axis_types=(AxisType.Explicit,))
        close(jax.shard_map(lambda x: lax.psum(x, "q"), mesh=explicit, in_specs=P("q"), out_specs=P())(X), X.sum(0)[None])

    def test_what_is_cut_along_other_explicit_axes_stays_cut():
        mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
        with jax.set_mesh(mesh):
            x = jax.device_put(X, NamedSharding(mesh, P("x", "y")))
            manual = {"axis_names": {"x"}, "in_specs": P("x")}
            total = jax.shard_map(lambda part: lax.psum(jnp.sin(part), "x") * 2, out_specs=P(), **manual)
            assert jax.typeof(total(x)).str_short(True) == "f32[2,4@y]"
            close(total(x), np.sin(BLOCKS).sum(0) * 2)
            square = jax.grad(lambda x: (total(x) ** 2).sum())(x)
            assert jax.typeof(square).str_short(True) == "f32[8@x,4@y]"
            close(square, np.tile(8 * np.sin(BLOCKS).sum(0), (4, 1)) * np.cos(X))
            for fun, spec, shown, wanted in [
                    (lambda part: lax.all_gather(part, "x", tiled=True, to="invarying"), P(), "f32[8,4@y]", X),
                    (lambda part: lax.ppermute(part, "x", [(i, (i + 1) % 4) for i in range(4)]), P("x"), "f32[8@x,4@y]",
                     np.roll(X, 2, 0)),
                    (lambda part: lax.psum_scatter(jnp.tile(part, (2, 1)), "x", tiled=True), P("x"), "f32[4@x,4@y]",
                     np.tile(BLOCKS.sum(0), (2, 1)))]:
                made = jax.jit(jax.shard_map(fun, out_specs=spec, **manual))(x)
                assert jax.typeof(made).str_short(True) == shown
                close(made, wanted)
            with pytest.raises(ValueError, match="does not match the specs of the input"):
                jax.shard_map(lambda part: part, axis_names={"x"}, in_specs=P(None, "x"), out_specs=P())(x)
            with pytest.raises(ShardingTypeError, match="have to be unsharded"):
                wide = jax.shard_map(lambda part: lax.all_gather(part, "x", axis=1, tiled=True), out_specs=P("x"), **manual)
                wide(x)

    def test_debug_nans_looks_inside():
        fun = jax.jit(over(lambda x: lax.psum(jax.jit(jnp.log)(x * 2), "x"), P("x"), P()))
        bad = np.arange(-2, 6, dtype=np.float32)[:, None] + np.zeros((8, 4), np.float32)
        message = r"invalid value \({}\) encountered in log at .*test_shard_map.* inside of shard_map over x, y, on {}; found"
        with jax.debug_nans(True):
            with pytest.raises(FloatingPointError, match=message.format("nan", "part 0, 1")):
                fun(bad)
            with pytest.raises(FloatingPointError, match=message.format("nan", "every part")):
                fun(bad - 9)
            assert fun(bad + 3).shape == (2, 4)
        with jax.debug_infs(True), pytest.raises(FloatingPointError, match=message.format("inf", "part 2, 3")):
            fun(np.abs(bad))

    def test_what_runs_on_each_device(capfd):
        key = jax.random.key(0)
        mine = over(lambda k: jax.random.normal(jax.random.fold_in(k, lax.axis_index("x")), (1,)), P(), P("x"))(key)
        close(mine, [jax.random.normal(jax.random.fold_in(key, i), (1,))[0] for i in range(4)])
        keys = jax.random.split(key, 4)
        close(over(lambda k: jax.vmap(jax.random.normal)(lax.pshuffle(k, "x", [1, 0, 3, 2])), P("x"), P("x"))(keys),
              jax.vmap(jax.random.normal)(keys[jnp.array([1, 0, 3, 2])]))
        shapes = []

        def host(x):
            shapes.append(x.shape)
            return np.asarray(x) * 2

        doubled = over(lambda x: jax.pure_callback(host, jax.ShapeDtypeStruct(x.shape, x.dtype), x), P("x", "y"), P("x", "y"))
        close(jax.jit(doubled)(X), 2 * X)
        assert shapes == [(2, 2)] * 8
        over(lambda x: jax.debug.print("place {}", lax.axis_index("x")), P("x"), None)(X)
        jax.effects_barrier()
        printed = capfd.readouterr().out  # of eight threads
        assert printed.count("place ") == 8 and sorted(filter(str.isdigit, printed)) == [*"00112233"]
        ref = over(lambda x: (lambda r: (r.__setitem__(0, r[1]), r[...])[1])(jax.new_ref(x)), P("x"), P("x"))(X)
        close(ref, BLOCKS[:, [1, 1]].reshape(8, 4))

    @pytest.mark.parametrize("seed", [103, 115])
    def test_random_programs(seed):
        program = random_programs.write(seed)
        run = program.run(random_programs.jaxlite_names())
        arguments = list(program.arguments().values())
        stacked = [np.stack([x, *[x[::-1] if x.ndim else x] * 3]) for x in arguments]
        parts = over(lambda *xs: jax.tree.map(lambda out: jnp.asarray(out)[None], run(*[x[0] for x in xs])), P("x"), P("x"))
        found = jax.tree.leaves(jax.jit(parts)(*stacked))
        one = jax.jit(run)
        for place in (0, 3):
            close([each[place] for each in found], jax.tree.leaves(one(*[x[place] for x in stacked])))

    def test_ragged_all_to_all():
        counts = np.array([[1, 0, 2, 0], [0, 1, 0, 1], [1, 1, 0, 0], [0, 0, 1, 1]], np.int32)  # [sender, receiver]
        starts = np.cumsum(counts, 1) - counts
        places = np.cumsum(counts, 0) - counts

        def part(x, out, start, send, place, recv):
            return lax.ragged_all_to_all(x, out, start[0], send[0], place[0], recv[0], axis_name="x")

        x = np.arange(12, dtype=np.float32)
        got = over(part, (P("x"),) * 6, P("x"))(x, np.full(16, -1, np.float32), starts, counts, places, counts.T)
        wanted = np.full((4, 4), -1.0)
        for s in range(4):
            for r in range(4):
                wanted[r, places[s, r]:places[s, r] + counts[s, r]] = x[3 * s:][starts[s, r]:starts[s, r] + counts[s, r]]
        close(got.reshape(4, 4), wanted)

    @pytest.mark.parametrize("call, error, message", [
        (lambda: over(lambda x: x, P("x"), P())(X), ValueError, "only varying across mesh axes {} and not {x}"),
        (lambda: over(lambda x: x.sum(), P("x"), P("x"))(X), ValueError, "out_specs entry which is too long"),
        (lambda: over(lambda x: x, P("x"), P("x"))(1.0), ValueError, "in_specs entry which is too long"),
        (lambda: over(lambda x: x, P("x"), P("x"))(X[:3]), ValueError, "4 does not evenly divide 3"),
        (lambda: over(lambda x: x, P("z"), P("x"))(X), ValueError, "in_specs refers to 'z'"),
        (lambda: over(lambda x: x, P("x"), P("x"), axis_names={"y"})(X), ValueError, "must refer to an axis marked as manual"),
        (lambda: over(lambda x: lax.psum(x, "x"), P("y"), P("x"), axis_names={"y"})(X), ValueError,
         "out_specs argument must refer to an axis marked as manual"),
        (lambda: over(lambda x: x, P("x"), P("x"), axis_names={"q"})(X), ValueError, "to be a subset of mesh.axis_names"),
        (lambda: over(lambda x: x, 3, P("x")), TypeError, "must be a pytree of `jax.sharding.PartitionSpec` instances"),
        (lambda: over(lambda x, y: x, (P("x"),), P("x"))(X, X), ValueError, "pytree structure error"),
        (lambda: over(lambda x: (x, x), P("x"), (P("x"),))(X), ValueError, "pytree structure error"),
        (lambda: jax.shard_map(lambda x: x, in_specs=P("x"), out_specs=P("x"))(X), ValueError, "context mesh cannot be empty"),
        (lambda: over(lambda x: lax.psum(x, "z"), P("x"), P())(X), NameError, "unbound axis name: "),
        (lambda: over(lambda x: lax.psum(x, ("x", "y")), P("x"), P())(X), ValueError, "jax.lax.psum can only accept axis_name"),
        (lambda: over(lambda x: lax.scan(lambda c, r: (c + r.sum(), None), 0.0, x)[0], P("x"), P())(X), TypeError,
         r"pcast(..., ('x',), to='varying')`, to the initial carry value corresponding to the input carry c"),
        (lambda: over(lambda x: lax.cond(True, lambda: x, lambda: jnp.zeros((2, 4))), P("x"), P("x"))(X), TypeError,
         "the manual axis types do not match"),
        (lambda: over(lambda x: lax.cond(lax.axis_index("x") > 0, lambda: 1.0, lambda: 2.0), P("x"), P())(X), ValueError,
         "possibly varying over {x}"),
        (lambda: over(lambda x: lax.while_loop(lambda c: c < x.sum(), lambda c: c + 1, 0.0), P("x"), P())(X), ValueError,
         "possibly varying over {x}"),
        (lambda: over(lambda x: lax.cond(lax.axis_index("x") > 0, lambda: lax.pshuffle(x, "x", [1, 0, 2, 3]), lambda: x),
                      P("x"), P("x"))(X), ValueError, "would be waited for forever"),
        (lambda: over(lambda x: lax.pcast(x, "x", to="varying"), P("x"), P("x"))(X), ValueError, "Unsupported pcast"),
        (lambda: over(lambda x: x, [P("x")], P("x"))(X), ValueError, "pytree structure error"),
        (lambda: over(lambda x: x, P("x"), P("x"), axis_names="x"), TypeError, "should be of type `frozenset` or `set`"),
        (lambda: over(lambda x: lax.psum_scatter(x > 0, "y"), P(), P("y"))(X[:2]), TypeError, "does not accept dtype bool"),
        (lambda: over(lambda k: lax.pmax(k, "x"), P("x"), P())(jax.random.split(jax.random.key(0), 4)), TypeError,
         "pmax does not accept dtype key<fry>"),
        (lambda: over(lambda x: lax.ppermute(x, "x", "ab"), P("x"), P("x"))(X), TypeError, "must be a list or a tuple"),
        (lambda: over(lambda x: jax.device_put(x, NamedSharding(MESH, P("x"))), P("x"), P("x"))(X), ValueError,
         "also found in manual_axes"),
        (lambda: jax.vmap(over(lambda x: x, P("x"), P("x")), spmd_axis_name="z")(X[None]), ValueError, "no axis of the mesh"),
        (lambda: jax.smap(lambda x: x, in_axes=0.5, out_axes=0, axis_name="x"), TypeError, "smap in_axes must be an int"),
        (lambda: over(lambda x: x.sharding, P("x"), P("x"))(X), AttributeError, "use `jax.typeof(x)`"),
    ])  # fmt: skip
    def test_complaints(call, error, message):
        with pytest.raises(error) as caught:
            call()
        assert message in str(caught.value)

    def test_a_mesh_matches_that_of_the_context():
        for other in (Mesh(MESH.devices.T, ("x", "y")), Mesh(MESH.devices, ("x", "z")), MESH.abstract_mesh.update_axis_types(
                {"x": AxisType.Explicit})):
            with jax.set_mesh(MESH), pytest.raises(ValueError, match="should match the mesh passed to shard_map"):
                jax.shard_map(lambda x: x, mesh=other, in_specs=P("x"), out_specs=P("x"))(X)
            with jax.set_mesh(MESH):
                close(jax.shard_map(lambda x: 2 * x, mesh=MESH.abstract_mesh, in_specs=P("x"), out_specs=P("x"))(X), 2 * X)

    def test_a_cast_over_no_axes_does_nothing():
        assert lax.pcast({"a": X}, (), to="varying")["a"] is X

    def test_checkify():
        mesh = Mesh(np.array(jax.devices()[:2]), ("x",))

        def f(x):
            def step(carry, row):
                checkify.check(row < 9, "row {}", row)
                return carry + 1 / row, carry

            def half(y):
                checkify.check(y.sum() != 12, "sum {s} of {n}", s=y.sum(), n=2)
                return y / 2

            last, ys = lax.scan(step, 0 * x[0], x)
            count, x = lax.while_loop(lambda carry: carry[0] < 1, lambda carry: (carry[0] + 1, carry[1] * 1), (0, x))
            total = lax.psum(x.sum(), "x")
            checkify.check(total < 30, "total {}", total)
            return ys + lax.cond(x[0] > 4, half, lambda y: y * 1, x) + last / total

        checked = jax.jit(checkify.checkify(
            lambda x: jax.shard_map(f, mesh=mesh, in_specs=P("x"), out_specs=P("x"))(x), errors=checkify.all_checks))
        for x, message in [([1.0, 2, 3, 4], None), ([1.0, 2, 11, 10], "at mapped index 1: row 11.0 (`check` failed)"),
                           ([1.0, 2, 7, 5], "at mapped index 1: sum 12.0 of 2 (`check` failed)"),
                           ([4.0, 0, 1, 2], "at mapped index 0: division by zero"),
                           ([8.0, 8, 8, 8], "at mapped index 0: total 32.0 (`check` failed)")]:
            found = checked(jnp.array(x))[0].get()
            assert (found and found.splitlines()[0]) == message
        x = jnp.array([1.0, 2, 3, 4])
        plain = jax.shard_map(_without_loops, mesh=mesh, in_specs=P("x"), out_specs=P("x"))
        close(jax.jvp(lambda x: checked(x)[1], [x], [x]), jax.jvp(plain, [x], [x]))
        positive = jax.shard_map(lambda x: (checkify.check((x > 0).all(), "negative"), lax.psum(x, "x") * x)[1], mesh=mesh,
                                 in_specs=P("x"), out_specs=P("x"))
        total = lambda x: jnp.sum(checkify.checkify(positive)(x)[1] * x)
        close(jax.grad(total)(x), 2 * x * jnp.array([4.0, 6, 4, 6]) + jnp.array([10.0, 20, 10, 20]))

    def _without_loops(x):
        """What `test_checkify` computes where no value is greater than 4, without loops."""
        total = lax.psum(x.sum(), "x")
        return jnp.array([0, 1]) / x[0] + x + (1 / x).sum() / total

    # --- read back from text

    def test_a_printed_shard_map_is_read_back_and_runs():
        from jaxlite.core import jaxpr_as_fun, parse_jaxpr
        from jaxlite.core.errors import JaxprSyntaxError

        mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)

        @jax.shard_map(mesh=mesh, in_specs=(P("x", None), P()), out_specs=P(None, "y"), axis_names={"x", "y"}, check_vma=False)
        def f(a, b):
            total, _ = lax.scan(lambda c, row: (c + lax.psum(row, "x"), None), b, a)
            return lax.all_gather(total * lax.axis_index("y"), "x")

        closed = jax.make_jaxpr(jax.jit(f))(np.ones((8, 3), np.float32), np.ones(3, np.float32))
        text = closed.pretty_print(weak_types=True)
        parsed = parse_jaxpr(text)
        assert parsed.pretty_print(weak_types=True) == text
        args = np.arange(24, dtype=np.float32).reshape(8, 3), np.ones(3, np.float32)
        np.testing.assert_array_equal(jaxpr_as_fun(parsed)(*args)[0], f(*args))
        for right, wrong, message in (("mesh=Mesh(", "mesh=Mush(", "no mesh: Mush"),
                                      ("out_specs=(P(", "out_specs=(Q(", "no PartitionSpec: Q"),
                                      ("mesh=Mesh('x': 4,", "mesh=Mesh('x': 5,", "does not take such operands")):
            with pytest.raises(JaxprSyntaxError, match=message):
                parse_jaxpr(text.replace(right, wrong))

    def test_kernels_that_send_to_other_devices():
        """A ring: each device passes on what it got last, until all have everything."""
        from jaxlite.experimental import pallas as pl
        from jaxlite.experimental.pallas import tpu as pltpu

        def kernel(x_ref, o_ref, send, receive):
            me = jax.lax.axis_index("ring")
            slot = jax.lax.rem(me - pl.program_id(0) + 4, 4)
            pl.when(pl.program_id(0) == 0)(lambda: pltpu.sync_copy(x_ref, o_ref.at[slot]))
            right = (jax.lax.rem(me + 1, 4),)
            copy = pltpu.make_async_remote_copy(o_ref.at[slot], o_ref.at[slot], send, receive, device_id=right)
            copy.start()
            copy.wait()
            pl.semaphore_signal(receive, 1, device_id={"ring": me})

        anywhere, spec = pl.BlockSpec(memory_space=pl.ANY), jax.sharding.PartitionSpec("ring")
        gather = pl.pallas_call(kernel, jax.ShapeDtypeStruct((4, 2, 4), np.float32), grid=(3,), in_specs=[anywhere],
                                out_specs=anywhere, scratch_shapes=[pltpu.SemaphoreType.REGULAR] * 2, interpret=True)
        x = np.arange(32, dtype=np.float32).reshape(8, 4)
        mesh = jax.sharding.Mesh(np.array(jax.devices()[:4]), ("ring",))
        out = jax.jit(jax.shard_map(gather, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False))(x)
        np.testing.assert_array_equal(np.asarray(out).reshape(4, 8, 4), np.stack([x] * 4))

    def test_refs_are_cut_and_written():
        def scale(ref, y):
            ref[...] = ref[...] ** 2 * y
            return lax.psum(ref[...], "x")

        values, factor = np.arange(8, dtype=np.float32), np.arange(8, dtype=np.float32) - 3
        mapped = over(scale, (P("x"), P("x")), P())

        def both(v, y):
            ref = jax.new_ref(v)
            total = mapped(ref, y)
            return ref[...], total

        wanted = values**2 * factor, (values**2 * factor).reshape(4, 2).sum(0)
        cell = jax.new_ref(jnp.asarray(values))
        for outs in (jax.jit(both)(values, factor), (mapped(cell, factor), cell[...])[::-1]):
            for out, each in zip(outs, wanted, strict=True):
                np.testing.assert_allclose(out, each)
        slope = jax.grad(lambda v: both(v, factor)[0].sum())
        expected = 2 * values * factor
        np.testing.assert_allclose(jax.jit(jax.vmap(slope))(np.stack([values, -values])), [expected, -expected])
        with pytest.raises(ValueError, match="not evenly divisible"):
            mapped(jax.new_ref(jnp.ones(6)), factor)

    # --- what is made inside varies as what it is made like; Refs say along what they vary

    def types_inside(fun):
        found = []

        def body(x):
            found.append([str(jax.typeof(out)) for out in fun(x)])
            return x

        over(body, P("x"), P("x"))(X)
        return found[0]

    def test_what_is_made_like_a_value_varies_as_it_does():
        assert types_inside(lambda x: (jnp.zeros_like(x), jnp.full_like(x, 2, shape=(3,)), lax.full_like(x, 1, dtype=int),
                                       jax.grad(lambda x: 3.0)(x), jnp.zeros(x.shape))) == [
            "float32[2,4]{V:x}", "float32[3]{V:x}", "int32[2,4]{V:x}", "float32[2,4]{V:x}", "float32[2,4]"]

    def test_described_values_vary_as_those_that_they_describe():
        def fun(x):
            like, same = jax.eval_shape(lambda x: (2 * x, jnp.ones(3)), x)
            assert same.manual_axis_type.varying == frozenset() and like.update(dtype=int).manual_axis_type.varying == {"x"}
            total = lax.fori_loop(0, 2, lambda i, total: total + x.sum(), jnp.zeros_like(like, shape=()))
            return (jnp.ones_like(like), jnp.full_like(like, 2, int), lax.full_like(same, 1), total,
                    *jax.linear_transpose(lambda y: y * 2, like)(x), jax.make_jaxpr(lambda a, b: a[0, :3] + b)(like, same).jaxpr
                    .outvars[0].aval.update(shape=(5,)).manual_axis_type.varying and x)

        assert types_inside(fun) == ["float32[2,4]{V:x}", "int32[2,4]{V:x}", "float32[3]", "float32[]{V:x}",
                                     "float32[2,4]{V:x}", "float32[2,4]{V:x}"]
        assert jax.eval_shape(jnp.sin, X).manual_axis_type is None

    def test_a_barrier_leaves_what_is_the_same_everywhere_as_it_is():
        fun = over(lambda x, w: lax.optimization_barrier((x * 2, w + 1)), (P("x"), P()), (P("x"), P()))
        close(jax.jit(fun)(X, W), (X * 2, W + 1))
        close(jax.grad(lambda x, w: sum(each.sum() for each in fun(x, w)), (0, 1))(X, W), (np.full_like(X, 2), np.ones_like(W)))

    def test_loops_of_functions_that_know_nothing_of_meshes():
        def fun(x):
            key = jax.random.fold_in(jax.random.key(0), lax.axis_index("x"))
            return (jnp.gcd(x.astype(int), 6), jnp.polyval(x[0], 2.0), jnp.searchsorted(jnp.arange(3.0), x),
                    jax.random.poisson(key, 3.0, (2, 4)))

        wanted = [jnp.gcd(X.astype(int), 6), np.concatenate([jnp.polyval(row, 2.0)[None] for row in X[::2]]),
                  np.searchsorted(np.arange(3.0), X), np.concatenate([
                      jax.random.poisson(jax.random.fold_in(jax.random.key(0), index), 3.0, (2, 4)) for index in range(4)])]
        out = over(lambda x: [each if each.ndim else each[None] for each in fun(x)], P("x"), P("x"))(X)
        close(out, wanted)

    def test_refs_inside():
        def fun(x):
            total = jax.new_ref(jnp.zeros_like(x))
            lax.fori_loop(0, 3, lambda i, _: total.__setitem__(..., total[...] + i * x), None)
            same = jax.new_ref(jnp.zeros(4))
            same[...] += lax.psum(x.sum(0), "x")
            return total[...], same[...]

        close(over(fun, P("x"), (P("x"), P()))(X), (3 * X, X.sum(0)))

    @pytest.mark.parametrize("write", [
        lambda ref, x: ref.__setitem__(..., x), lambda ref, x: jax.ref.addupdate(ref, ..., x),
        lambda ref, x: ref.__setitem__(lax.axis_index("x") % 2, 1.0)])
    def test_what_varies_is_not_written_where_nothing_does(write):
        ref = jax.new_ref(jax.device_put(X[:2], NamedSharding(MESH, P())))
        with pytest.raises(ValueError, match=r"varies along the mesh axes \('x',\) is written to a Ref that is the same along "
                                             r"them, Ref\{float32\[2,4\]\}.* in_specs; .*pcast.*psum"):
            over(lambda x, ref: write(ref, x), (P("x"), P()), None)(X, ref)

    def test_cotangents_of_rules_vary_as_the_results():
        @jax.custom_vjp
        def total(x):
            return lax.psum(x, "x")

        total.defvjp(lambda x: (total(x), None), lambda _, ct: (lax.pcast(ct, "x", to="varying"),))  # ct is the same everywhere
        out = jax.grad(lambda x: (over(total, P("x"), P())(x) * X[:2]).sum())(X)
        close(out, np.tile(X[:2], (len(X) // 2, 1)))

    @pytest.mark.parametrize("rule, wrong", [
        (lambda w, x, ct: (lax.psum((x * ct).sum(), "x"), w * ct), None),
        (lambda w, x, ct: ((x * ct).sum(), w * ct), r"output\[0\] .* of type float32\[\]{V:x} .*input of type float32\[\],"),
        (lambda w, x, ct: (None, jnp.ones(ct.shape)), r"output\[1\] .* of type float32\[2,4\] .*float32\[2,4\]{V:x},")])
    def test_cotangents_of_rules_vary_as_the_arguments(rule, wrong):
        scale = jax.custom_vjp(lambda w, x: w * x)
        scale.defvjp(lambda w, x: (w * x, (w, x)), lambda kept, ct: rule(*kept, ct))
        of_both = over(jax.grad(lambda w, x: scale(w, x).sum(), (0, 1)), (P(), P("x")), (P(), P("x")))
        if wrong is None:  # the cotangent of a sum is one everywhere, but is given as it is for all others
            close(of_both(2.0, X), (X.sum(), np.full_like(X, 2)))
        else:
            with pytest.raises(ValueError, match=f"(?s){wrong} so the manual axis types do not match.*pcast"):
                of_both(2.0, X)

    def test_logs_of_backward_passes_are_joined_along_the_first_axis():
        def watched(value):
            @jax.custom_vjp
            def double(x):
                return 2 * x

            double.defvjp_with_logs(lambda x: (2 * x, x), lambda x, g: ((2 * g,), {"a": value(x, g)}))
            return double

        def logged(value, **options):
            fun = over(watched(value), P("x", None), P("x", None), **options)
            return jax.jit(lambda x: jax.vjp(fun, x)[1].with_logs(3 * x)[1]["a"])(X)

        close(logged(lambda x, g: x * g), 3 * X * X)
        close(logged(lambda x, g: x.sum()), BLOCKS.sum((1, 2)))
        close(logged(lambda x, g: lax.psum(x.sum(), "x")), [X.sum()])  # the same on all devices
        close(logged(lambda x, g: x.sum(), check_vma=False), np.repeat(BLOCKS.sum((1, 2)), 2))

    def test_eager_calls_of_new_functions_of_the_same_code_compile_once():
        def gradient(mesh=MESH):
            def fun(x):
                part = jax.shard_map(lambda v: lax.psum(v * v, "x") + v, mesh=mesh, in_specs=P("x"), out_specs=P("x"))
                return part(x).sum()

            return jax.grad(fun)(X)

        want = gradient()
        before = len(jax.compile_report())
        close(gradient(), want)
        assert len(jax.compile_report()) == before

    def test_an_eager_call_over_the_mesh_in_context_is_one_over_that_mesh():
        def doubled(mesh):
            with jax.set_mesh(mesh):
                return jax.shard_map(lambda v: v * 2, in_specs=P("x"), out_specs=P("x"))(X).sharding

        for mesh in (MESH, Mesh(MESH.devices[::-1], ("x", "y"))):
            assert doubled(mesh) == NamedSharding(mesh, P("x"))
