"""Programs over eight devices agree with the same programs on one, and are laid out as asked."""

from __future__ import annotations

import re
import warnings
from functools import partial

import numpy as np
import pytest

from tests.devices.eight import own_process

if (test_on_eight_devices := own_process(__file__)) is None:
    del test_on_eight_devices
    import jaxlite as jax
    import jaxlite.numpy as jnp
    from jaxlite import lax
    from jaxlite.core import config
    from jaxlite.core.parser import parse_jaxpr
    from jaxlite.experimental import io_callback
    from jaxlite.sharding import Mesh, NamedSharding
    from jaxlite.sharding import PartitionSpec as P
    from tests import random_programs

    MESH = Mesh(np.array(jax.devices()).reshape(2, 4), ("x", "y"))
    X = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)

    def on(*spec):
        return NamedSharding(MESH, P(*spec))

    PAIR = Mesh(jax.devices()[:2], ("x",))
    SPREAD = jax.device_put(X, on("x", "y"))

    @pytest.mark.parametrize("fun, spec", [
        (lambda x: x + 1, P("x", "y")), (lambda x: x @ x, P("x", "y")), (lambda x: x.sum(0), P("y")),
        (lambda x: x.T, P("y", "x")), (lambda x: x[1, 2], P()),
        (lambda x: x[0], P("y")), (lambda x: x[:3], P(None, "y")), (lambda x: x[:7] + 1, P(None, "y")),
        (lambda x: x.reshape(4, 16), P("x")), (lambda x: jnp.where(x > 0, x, 0), P("x", "y")), (lambda x: x[x > 0], P()),
        (lambda x: jnp.linalg.cholesky(x @ x.T + 9 * jnp.eye(8)), None), (lambda x: jnp.sort(x, 0), P("x", "y")),
        (lambda x: jnp.unique(jnp.round(x)), None), (lambda x: x.at[jnp.array([1, 2])].set(0.0), None),
        (lambda x: x[jnp.array([1, 2])], None), (lambda x: jnp.concatenate([x, np.ones((8, 8), np.float32)]), None),
    ])  # fmt: skip
    def test_eager_operations(fun, spec):
        out = fun(SPREAD)
        np.testing.assert_allclose(out, fun(jnp.asarray(X)), rtol=1e-5, atol=1e-5)
        assert spec is None or out.sharding.spec == spec

    @pytest.mark.parametrize("axis_type", [jax.sharding.AxisType.Auto, jax.sharding.AxisType.Explicit])
    def test_matrices_of_a_batch_are_factored_where_they_are(axis_type):
        mesh = jax.make_mesh((2, 4), ("x", "y"), axis_types=(axis_type,) * 2)
        rng = np.random.default_rng(0)
        a = (rng.normal(size=(4, 4, 3, 3)) + 4 * np.eye(3)).astype(np.float32)
        b = rng.normal(size=(4, 4, 3, 2)).astype(np.float32)
        split = NamedSharding(mesh, P("x", "y"))

        def factored(a, b):
            q, r = jnp.linalg.qr(a)
            lower, d, upper = (a[..., i] for i in range(3))
            return (jnp.linalg.cholesky(a @ a.mT), q @ r, jnp.linalg.eigh(a)[0], jnp.linalg.svd(a, compute_uv=False),
                    jnp.linalg.solve(a, b), jnp.linalg.det(a), jax.scipy.linalg.solve_triangular(a, b),
                    lax.linalg.tridiagonal_solve(lower, d + 5, upper, b))

        with jax.set_mesh(mesh):
            compiled = jax.jit(factored).lower(*jax.device_put((a, b), split)).compile()
            results = compiled(*jax.device_put((a, b), split))
        assert not re.search("all-gather|all-reduce|all-to-all|collective-permute", compiled.as_text())
        for result, want in zip(results, jax.jit(factored)(a, b), strict=True):
            assert result.sharding.spec[:2] == ("x", "y")
            np.testing.assert_allclose(result, want, rtol=1e-5, atol=1e-5)

    @pytest.mark.parametrize("fun, collectives", [
        # XLA sends the edges that a rotation needs, and what a running total needs is gathered once
        (lambda x: jnp.roll(x, 1, 1) + 2 * jnp.roll(x, -1, 1), 2), (lambda x: jnp.cumsum(x, 1), 1),
        (lambda x: lax.cumlogsumexp(x, 1, reverse=True), 1), (lambda x: jnp.cumprod(x, 0), 0),
    ])  # fmt: skip
    def test_what_is_exchanged_along_an_axis(fun, collectives):
        x = np.random.default_rng(0).normal(size=(16, 256)).astype(np.float32) / 8
        split = jax.device_put(x, on(None, "y"))
        compiled = jax.jit(fun).lower(split).compile()
        assert len(re.findall("(?:all-gather|all-reduce|all-to-all|collective-permute)[(]", compiled.as_text())) == collectives
        result = compiled(split)
        assert result.sharding == on(None, "y")
        np.testing.assert_allclose(result, fun(jnp.asarray(x)), rtol=1e-5, atol=1e-5)

    def test_lines_that_are_not_split_are_sorted_and_added_up_where_they_are():
        x = np.random.default_rng(0).integers(0, 99, (64, 2048)).astype(np.float32)
        split = jax.device_put(x, on("x"))
        compiled = jax.jit(lambda x: (jnp.argsort(x, 1), jnp.sort(x.T, 0), jnp.cumsum(x, 1))).lower(split).compile()
        assert not re.search("all-gather|all-reduce|all-to-all|collective-permute", compiled.as_text())
        order, ordered, totals = compiled(split)
        np.testing.assert_array_equal(order, np.argsort(x, 1, kind="stable"))
        np.testing.assert_array_equal(ordered, np.sort(x.T, 0))
        np.testing.assert_array_equal(totals, np.cumsum(x, 1))

    def test_what_jit_is_asked_for():
        double = jax.jit(lambda x: (x * 2, x.sum()), in_shardings=on("y"), out_shardings=(on("x"), None))
        for x in (X, jax.device_put(X, on("y")), jnp.asarray(X)):
            out, total = double(x)
            np.testing.assert_array_equal(out, X * 2)
            np.testing.assert_allclose(total, X.sum(), rtol=1e-5)
            assert out.sharding == on("x") and total.sharding == on()
        with jax.set_mesh(MESH):
            uneven = jax.jit(jax.grad(lambda x: (lax.with_sharding_constraint(x * x, P(("x", "y"))) * x).sum()))(np.arange(6.0))
            np.testing.assert_array_equal(uneven, 3 * np.arange(6.0) ** 2)
            named = jax.jit(lambda x: lax.with_sharding_constraint(x + 1, P(None, "y")), in_shardings=P("x"))
            assert named(X).sharding == on(None, "y")
            assert jax.jit(named)(X).sharding == on(None, "y")  # inside another program

    @pytest.mark.parametrize("call, message", [
        (lambda: jax.jit(jnp.sin, in_shardings=on("y"))(SPREAD), "does not match the sharding on the respective arg"),
        (lambda: jax.jit(jnp.sin, out_shardings=on("x"))(np.zeros(3)), "axis 0 is partitioned 2 times"),
        (lambda: jax.jit(jnp.sin, in_shardings=on("x"))(np.zeros(3)), "axis 0 is partitioned 2 times"),
        (lambda: jax.jit(jnp.sin, in_shardings=(on(), on()))(X), "got a tuple or list of length 2"),
        (lambda: jax.jit(lambda x: x, in_shardings=on())(x=X), "does not support kwargs"),
        (lambda: jax.jit(jnp.sin, in_shardings=3), "in_shardings leaf specifications"),
        (lambda: lax.with_sharding_constraint(np.zeros(3), on("x")), "axis 0 is partitioned 2 times"),
        (lambda: SPREAD + jax.device_put(X, jax.devices()[1]), "Received incompatible devices for jitted computation"),
        (lambda: SPREAD + jax.device_put(X, NamedSharding(PAIR, P())), "incompatible devices"),
        (lambda: jax.jit(lambda a: lax.with_sharding_constraint(a, NamedSharding(PAIR, P())))(SPREAD),
         r"Got argument a .* and sharding_constraint inside jit with device ids \[0, 1\] .* at .*.py:\d+"),
        (lambda: jax.jit(lambda a: lax.with_sharding_constraint(
            lax.with_sharding_constraint(a, on("x")), NamedSharding(PAIR, P())))(X),
         "Got sharding_constraint inside .* and sharding_constraint inside jit"),
        (lambda: jax.jit(lambda a: a, out_shardings=NamedSharding(PAIR, P()))(SPREAD),
         "Got argument a .* and explicit output sharding with device ids"),
    ])  # fmt: skip
    def test_what_cannot_be_is_said(call, message):
        with pytest.raises(TypeError if "leaf" in message else ValueError, match=message):
            call()

    @pytest.mark.parametrize("fun", [
        lambda x, out: jnp.zeros((8, 8), out_sharding=out), lambda x, out: jnp.full((8, 8), 2.0, out_sharding=out),
        lambda x, out: jnp.asarray(x, out_sharding=out), lambda x, out: jnp.dot(x, x, out_sharding=out),
        lambda x, out: jnp.matmul(x, x, out_sharding=out), lambda x, out: jnp.einsum("ij,jk", x, x, out_sharding=out),
        lambda x, out: jnp.reshape(x, (16, 4), out_sharding=out), lambda x, out: x.at[:4].get(out_sharding=out),
        lambda x, out: jax.random.normal(jax.random.key(0), (8, 8), out_sharding=out),
    ])  # fmt: skip
    def test_out_sharding_is_heard(fun):
        out = on("y")
        for x in (SPREAD, jnp.asarray(X)):
            eager, compiled = fun(x, out), jax.jit(fun, static_argnums=1)(x, out)
            assert eager.sharding == out
            assert compiled.sharding == out
            np.testing.assert_allclose(eager, fun(jnp.asarray(X), None), rtol=1e-4, atol=1e-5)

    def test_arrays_like_one_that_was_placed():
        for make in (jnp.zeros_like, jnp.ones_like, lambda x: jnp.full_like(x, 2)):
            assert make(SPREAD).sharding == SPREAD.sharding
            stands_for = type("Parameter", (), {"__jax_array__": lambda self: SPREAD})()
            described = jax.ShapeDtypeStruct(SPREAD.shape, SPREAD.dtype, sharding=SPREAD.sharding)
            assert make(stands_for).sharding == make(described).sharding == SPREAD.sharding
        assert lax.full_like(SPREAD, 2).sharding == jnp.zeros_like(SPREAD, shape=SPREAD.shape).sharding == SPREAD.sharding
        assert len(jnp.full_like(SPREAD, X).devices()) == len(jnp.zeros_like(SPREAD, shape=(8,)).devices()) == 1
        placed = jax.device_put(X, jax.devices()[1])
        assert jnp.zeros_like(placed).devices() == {jax.devices()[1]}
        nowhere = jax.typeof(jnp.asarray(X)).sharding  # what programs hand on as they find it
        assert jax.random.bernoulli(jax.random.key(0), shape=(8, 8), out_sharding=nowhere).shape == (8, 8)

    def test_a_constraint_over_the_abstract_mesh_under_vmap():
        with jax.set_mesh(MESH):
            here = NamedSharding(jax.sharding.get_abstract_mesh(), P("x", "y"))
            out = jax.vmap(lambda x: lax.with_sharding_constraint(x, here))(jnp.stack([X, X]))
            assert out.sharding.spec == P(None, "x", "y") and out.sharding.mesh == MESH

    def test_a_spec_without_a_mesh():
        for call in (lambda: jax.jit(jnp.sin, in_shardings=P("x"))(X), lambda: lax.with_sharding_constraint(X, P("x"))):
            with pytest.raises(RuntimeError, match="requires a non-empty mesh in context"):
                call()

    def test_called_again_nothing_is_traced_or_missed(count_traces):
        fun = count_traces(lambda x, y: x @ y)
        jitted = jax.jit(fun)
        args = SPREAD, jax.device_put(X, on("y"))
        misses = jitted._cache_size()
        for _ in range(3):
            jitted(*args)
        assert fun.count == 1 and jitted._cache_size() == misses + 1
        before = len(jax.compile_report())
        jitted(jax.device_put(X, on("x", "y")), args[1])
        assert len(jax.compile_report()) == before
        jitted(X, args[1])  # another layout: compiled, not traced
        assert fun.count == 1 and len(jax.compile_report()) == before + 1

    def loss(params, x):
        for w in params:
            x = jnp.tanh(x @ w)
        return (x**2).mean()

    def test_a_training_step_is_that_of_one_device():
        params = [X * 0.3, X.T * 0.3]
        batch = np.random.default_rng(1).normal(size=(16, 8)).astype(np.float32)

        @jax.jit
        def step(params, x):
            return [w - 0.1 * g for w, g in zip(params, jax.grad(loss)(params, x), strict=True)]

        expected = step(params, batch)
        for weights, data in ((on(), on(("x", "y"))), (on(None, "y"), on("x")), (on("x", "y"), on())):
            found = step(jax.device_put(params, weights), jax.device_put(batch, data))
            for one, other in zip(found, expected, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)

    def test_transformations_of_constraints():
        def constrained(x):
            return jnp.sin(lax.with_sharding_constraint(x, on("x")))

        text = str(jax.make_jaxpr(jax.vmap(constrained, spmd_axis_name="y"))(X))
        assert "spec=P('y', 'x')" in text
        assert "spec=P(UNCONSTRAINED, 'x')" in str(jax.make_jaxpr(jax.vmap(constrained))(X))
        np.testing.assert_allclose(jax.jit(jax.vmap(constrained))(X), np.sin(X), rtol=1e-5)
        np.testing.assert_allclose(jax.jit(jax.grad(lambda x: constrained(x).sum()))(X), np.cos(X), rtol=1e-5)
        np.testing.assert_allclose(jax.grad(lambda x: constrained(x).sum())(SPREAD), np.cos(X), rtol=1e-5)
        assert jax.jit(jax.checkpoint(constrained))(X).sharding.spec == P("x")
        total, rows = jax.jit(lambda x: lax.scan(lambda c, row: (c + row, jnp.sin(c)), x[0], x))(SPREAD)
        np.testing.assert_allclose(total, X[0] + X.sum(0), rtol=1e-4, atol=1e-5)
        assert rows.shape == (8, 8)
        np.testing.assert_allclose(jax.jit(lambda x: lax.cond(x[0, 0] > 9, jnp.sin, jnp.cos, x))(SPREAD), np.cos(X), rtol=1e-5)
        np.testing.assert_allclose(jax.jit(lambda y: y + SPREAD)(X), 2 * X)  # closed over

    def test_shardings_of_a_call_inside_of_a_program():
        double = jax.jit(lambda x, y: (x * y, y), in_shardings=(on("x"), None), out_shardings=(None, on("y")))
        call = jax.make_jaxpr(double)(X, X).eqns[0]
        assert (call.params["in_shardings"], call.params["out_shardings"]) == ((on("x"), None), (None, on("y")))
        text = str(jax.make_jaxpr(jax.jit(lambda x: double(x, x)))(X))
        assert "sharding_constraint" not in text and "memory_kind=device), UnspecifiedValue)" in text
        assert str(parse_jaxpr(text)) == text

        def loss(x):
            return double(jnp.sin(x), x)[0].sum()

        expected = np.sin(X) + X * np.cos(X)
        pull_back = jax.make_jaxpr(jax.grad(loss))(X)
        calls = [eqn.params for eqn in pull_back.eqns if eqn.primitive.name == "jit"]
        assert [params.get("out_shardings") for params in calls] == [(None, on("y")), (on("x"), None)]
        saved = jax.checkpoint(loss, policy=jax.checkpoint_policies.everything_saveable)
        for fun in (loss, saved, jax.checkpoint(loss)):
            np.testing.assert_allclose(jax.jit(jax.grad(fun))(X), expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(jax.core.eval_jaxpr(pull_back.jaxpr, pull_back.consts, X)[0], expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(jax.jvp(loss, (X,), (X,))[1], (X * expected).sum(), rtol=1e-4)
        spread = jax.jit(jax.vmap(jax.jit(jnp.sin, out_shardings=on("y")), spmd_axis_name="x"))(np.stack([X, X]))
        assert spread.sharding == on("x", "y")
        with pytest.raises(ValueError, match="axis 0 is partitioned 2 times"):
            jax.jit(lambda x: double(x, x))(np.ones((3, 8)))
        with jax.set_mesh(MESH):
            assert "ctx_mesh=Mesh('x': 2" in str(jax.make_jaxpr(jax.jit(jnp.sin))(X))

    def test_the_same_random_bits_under_any_sharding():
        expected = jax.random.normal(jax.random.key(3), (8, 8))
        for spec in (P("x", "y"), P(None, ("y", "x"))):
            made = jax.jit(lambda key: jax.random.normal(key, (8, 8)), out_shardings=NamedSharding(MESH, spec))
            np.testing.assert_array_equal(made(jax.random.key(3)), expected)

    def test_callbacks_run_once_on_the_whole_value(capsys):
        seen = []

        def host(x):
            seen.append(x.shape)
            return np.sin(x)

        @jax.jit
        def program(x):
            jax.debug.print("sum {}", (x * 0).sum())
            return jax.pure_callback(host, jax.ShapeDtypeStruct((8, 8), np.float32), x)

        np.testing.assert_allclose(program(SPREAD), np.sin(X), rtol=1e-5)
        jax.effects_barrier()
        assert seen == [(8, 8)] and capsys.readouterr().out == "sum 0.0\n"
        jax.jit(lambda x: jax.debug.callback(host, x, partitioned=True))(jax.device_put(X, on("x", "y")))
        jax.effects_barrier()
        assert seen[1:] == [(8 // MESH.shape["x"], 8 // MESH.shape["y"])] * 8

    def test_ordered_callbacks_of_each_device_come_in_order():
        seen = []

        def note(name, x):
            seen.append((name, float(x)))
            return np.float32(x + 8)

        def on_each(x):
            first = x[0]
            late = first + 0 * lax.fori_loop(0, 1000, lambda i, c: jnp.sin(c), first)  # which would come last without tokens
            io_callback(lambda x: seen.append(("before", float(x))), None, late, ordered=True)
            last = lax.fori_loop(0, 2, lambda i, c: io_callback(partial(note, "loop"), first, c, ordered=True), first)
            jax.debug.callback(partial(note, "after"), first + 16, ordered=True)
            last = io_callback(lambda x: x, first, last, ordered=True)
            return lax.psum(last, ("x", "y"))

        spread = jax.shard_map(on_each, mesh=MESH, in_specs=P(("x", "y")), out_specs=P())

        def passed_on(name, x):
            seen.append((name, 0))
            return x

        def fun(x):
            jax.debug.callback(lambda: None, ordered=True)
            # Devices only wait for each other where one gives another data.
            total = spread(io_callback(partial(passed_on, "start"), x, x))
            jax.debug.callback(lambda: None, ordered=True)
            return io_callback(partial(passed_on, "end"), total, total)

        assert jax.jit(fun)(np.arange(8, dtype=np.float32)) == sum(range(8)) + 8 * 16
        jax.effects_barrier()
        assert seen[0][0] == "start" and seen[-1][0] == "end" and len(seen) == 2 + 8 * 4
        for device in range(8):
            values = [each for each in seen if each[0] in ("before", "loop", "after") and each[1] % 8 == device]
            assert values == [("before", device), ("loop", device), ("loop", device + 8), ("after", device + 16)]

    def test_what_xla_chose_is_shown(capsys):
        def fun(x):
            y = x @ x.T
            jax.debug.inspect_array_sharding({"y": y}, callback=lambda found: print(found.spec))
            return y.sum()

        jax.jit(fun)(SPREAD)
        jax.jit(jax.grad(fun))(SPREAD)
        assert capsys.readouterr().out == "P('x',)\nP('x',)\n"
        jax.jit(jax.shard_map(fun, mesh=MESH, in_specs=P("x", "y"), out_specs=P(), check_vma=False))(X)
        assert capsys.readouterr().out == "P()\n"
        jax.debug.visualize_array_sharding(jax.device_put(X[0], on("y")))
        assert capsys.readouterr().out.splitlines()[1:-1] == ["│" + "│".join(f"CPU {i},{i + 4}" for i in range(4)) + "│"]
        jax.debug.visualize_array_sharding(SPREAD)  # as wide as high: a line is 2.5 characters
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) == 11 and lines[2] == "│ CPU 0 │ CPU 1 │ CPU 2 │ CPU 3 │" and lines[1] == "│" + 4 * "       │"
        jax.debug.visualize_array_sharding(jax.device_put(X[:, :4], on(None, "x")))
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) == 11 and lines[5] == "│CPU 0,1,2,3│CPU 4,5,6,7│"

    def test_a_new_layout_is_the_reason_of_a_compile(caplog):
        with jax.explain_cache_misses():
            fun = jax.jit(lambda batch: batch * 3)
            fun(SPREAD)
            fun(jax.device_put(X, on()))
        assert "argument `batch`: P() was P('x', 'y')" in caplog.text

    def test_no_call_runs_on_other_devices_than_its_arguments():
        turned = NamedSharding(Mesh(MESH.devices[::-1], ("x", "y")), P("x"))
        with pytest.raises(ValueError, match="incompatible devices"):
            SPREAD + jax.device_put(X, turned)
        np.testing.assert_array_equal(jax.device_put(X, turned) + 1, X + 1)
        other = Mesh(MESH.devices.reshape(4, 2), ("p", "q"))  # the same devices, in the same order
        product = jax.jit(lambda x, y: x @ y)(SPREAD, jax.device_put(X, NamedSharding(other, P("p"))))
        np.testing.assert_allclose(product, X @ X, rtol=1e-4, atol=1e-5)
        kept = jax.device_put(X, NamedSharding(MESH, P("x"), memory_kind="pinned_host"))
        np.testing.assert_array_equal(kept + 1, X + 1)
        parts = jax.device_put(X, NamedSharding(jax.make_mesh((8,), ("e",)), P(unreduced={"e"})))
        np.testing.assert_array_equal(sum(np.asarray(part.data) for part in parts.addressable_shards), X)

    def test_stages_and_donation():
        lowered = jax.jit(lambda x: (x.T, x.sum()), donate_argnums=0).lower(
            jax.ShapeDtypeStruct((8, 8), np.float32, sharding=on("x", "y")))
        assert 'sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {"y"}]>' in lowered.as_text()
        compiled = lowered.compile()
        assert compiled.input_shardings == ((on("x", "y"),), {})
        assert compiled.output_shardings == (on("y", "x"), on())
        with pytest.raises(ValueError, match="input shardings that disagree"):
            compiled(jax.device_put(X, on("x")))
        given = jax.device_put(X, on("x", "y"))
        np.testing.assert_array_equal(compiled(given)[0], X.T)
        assert given.is_deleted()
        assert "sdy" not in jax.jit(jnp.sin).lower(X).as_text()  # on one device as ever

    def test_the_persistent_cache_tells_layouts_apart():
        def results(*shardings):
            return [jax.jit(lambda x: x @ x + 1)(jax.device_put(X, each)) for each in shardings]

        layouts = on("x"), on(None, "y"), on(), jax.devices()[0], on("x")
        first = results(*layouts)
        with jax.log_compiles():
            again = results(*layouts)
        assert {each.cache for each in jax.compile_report()[-4:]} <= {"hit", "miss"}
        for one, other in zip(first, again, strict=True):
            assert one.sharding == other.sharding
            np.testing.assert_allclose(one, X @ X + 1, rtol=1e-4, atol=1e-5)
            np.testing.assert_array_equal(one, other)

    @pytest.mark.parametrize("seed", range(6))
    def test_random_programs(seed):
        program = random_programs.write(seed)
        run = jax.jit(program.run(random_programs.jaxlite_names()))
        arguments = program.arguments()
        expected = jax.tree.leaves(run(*arguments.values()))
        rng = np.random.default_rng(seed)

        def somewhere(x):
            axes = [axis for axis, size in enumerate(x.shape) if size % 2 == 0 and size]
            return on(*[None] * int(rng.choice(axes)), "x") if axes else on()

        found = jax.tree.leaves(run(*[jax.device_put(x, somewhere(x)) for x in arguments.values()]))
        for one, other in zip(found, expected, strict=True):
            assert one.dtype == other.dtype and len(one.devices()) in (1, 8)  # one where the program reads no argument
            np.testing.assert_allclose(one, other, rtol=2e-3, atol=2e-3)

    def test_in_shardings_of_one_device_say_where_a_program_runs():
        there = jax.sharding.SingleDeviceSharding(jax.devices()[3])
        assert jax.jit(lambda a: a + 1, in_shardings=there)(1.0).devices() == {jax.devices()[3]}
        with pytest.raises(ValueError, match="incompatible devices"):
            jax.jit(lambda a: a + 1, in_shardings=there)(jax.device_put(1.0, jax.devices()[2]))
        with pytest.raises(ValueError, match="in_shardings should not be specified"):
            jax.jit(lambda a: a, in_shardings=there, device=jax.devices()[0])

    def test_an_array_that_was_donated_is_an_error_not_the_end():
        put = lambda: jax.device_put(np.ones(8, np.float32), NamedSharding(MESH, P("x")))
        add = jax.jit(lambda a, b: a + b, donate_argnums=0)
        kept, gone = put(), put()
        add(put(), kept), add(put(), kept), add(gone, kept)
        with pytest.raises(RuntimeError, match="deleted"):
            add(gone, kept)
        with pytest.raises(ValueError, match="donated in the same call"):
            add(kept, kept)
        assert (add(put(), kept) == 2).all()

    def test_tangents_of_integers_over_devices():
        x = jax.device_put(np.ones(8, np.float32), NamedSharding(MESH, P("x")))
        for f in (lambda a: (a * 2).astype(int), jax.shard_map(lambda a: (a * 2).astype(int), mesh=MESH, in_specs=P("x"),
                                                               out_specs=P("x"))):
            y, dy = jax.jit(lambda a, f=f: jax.jvp(f, (a,), (a,)))(x)
            assert (y == 2).all() and dy.dtype == jax.dtypes.float0 and dy.shape == (8,)

    def test_eval_shape_knows_out_shardings():
        wanted = NamedSharding(MESH, P("x"))
        assert jax.eval_shape(jax.jit(lambda a: a, out_shardings=wanted), np.ones(8)).sharding == wanted

    def test_the_context_of_a_constraint_is_shown():
        f = lambda a: jax.lax.with_sharding_constraint(a, NamedSharding(MESH, P("x")))
        assert "context_mesh=Mesh()\n" in (text := str(jax.make_jaxpr(f)(np.ones(8)))) and "frozenset({})" in text
        with jax.set_mesh(MESH):
            assert "context_mesh=AbstractMesh('x'" in str(jax.make_jaxpr(f)(np.ones(8)))
        with pytest.raises(ValueError, match="got sharding None"):
            jax.lax.with_sharding_constraint(np.ones(8), None)

    def test_a_warning_names_the_sharding_that_changed():
        f = jax.jit(lambda x: x + 1)
        with config.recompilation_limit(2), pytest.warns(UserWarning, match=r"argument `x`: P\('x',\) was P\(\)"):
            for spec in (P(), P("x")):
                f(jax.device_put(np.ones(8, np.float32), NamedSharding(MESH, spec)))

    def test_of_two_meshes_the_first_counts():
        other = Mesh(np.array(jax.devices()).reshape(4, 2), ("a", "b"))
        one, two = jax.device_put(X[0], on("x")), jax.device_put(X[0], NamedSharding(other, P("a")))
        assert (one + two).sharding == on("x") and (two + one).sharding == two.sharding

    def test_what_is_given_away_in_vain():
        for given, made, vain in ((on("x"), on("y"), True), (on("x"), on("x"), False), (on("x"), None, False)):
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                jax.jit(lambda x: x + 1, donate_argnums=0, out_shardings=made)(jax.device_put(X, given))
                jax.jit(lambda x: x[:4], donate_argnums=0)(jax.device_put(X, given))  # whether in vain is XLA's choice
            assert [str(each.message).startswith("Some donated buffers were not usable") for each in seen] == [True] * vain

    def test_arguments_that_are_not_read_do_not_say_where():
        a, b = (jax.device_put(2.0, device) for device in jax.devices()[1:3])
        second = jax.jit(lambda x, y: y + 1)
        for first in (SPREAD, a):  # which neither move y nor keep it from running
            for _ in range(2):
                assert second(first, b) == 3 and second(first, b).devices() == b.devices()
            free = second(first, 2.0)
            assert free.devices() == {jax.devices()[0]} and not free.committed
            assert second.lower(first, b).compile()(first, b) == 3
        assert jax.jit(jnp.zeros_like)(SPREAD).devices() == {jax.devices()[0]}
        assert jax.jit(lambda x, y: y + 1, keep_unused=True)(a, 2.0).devices() == a.devices()

    def test_what_cannot_be_together_is_named():
        a, b = (jax.device_put(1.0, device) for device in jax.devices()[:2])
        with pytest.raises(ValueError, match=r"argument t\[0\] of <lambda> .*device ids \[0\].* and argument t\[1\] of"):
            jax.jit(lambda t: t[0] + t[1])((a, b))

    def test_programs_wait_for_each_other_in_turn():
        # XLA ends the process when the devices wait for 40 seconds for one that has no thread.
        for _ in range(300):
            total, rows, mean = SPREAD.sum(), SPREAD.sum(0), SPREAD.mean()
            doubled = jnp.sum(SPREAD * 2)
        for got, want in ((total, X.sum()), (rows, X.sum(0)), (mean, X.mean()), (doubled, 2 * X.sum())):
            np.testing.assert_allclose(got, want, rtol=1e-5)

    def test_complex_constants_are_summed_up_over_devices():
        z = (X[:1] + 1j).astype(np.complex64)  # XLA ended the process

        def by_hand(operation, out):
            return jax.shard_map(lambda x: operation(jnp.broadcast_to(x, (8, 8))), mesh=MESH, in_specs=P(), out_specs=out,
                                 check_vma=False)(jnp.ones((1, 8)) * z[0, 0])

        def program():
            spread = lax.with_sharding_constraint(jnp.ones((8, 8)) + 1j, on("x", "y"))
            return (by_hand(lambda x: lax.psum(x, "x"), P()), by_hand(lambda x: lax.psum_scatter(x, "y", tiled=True), P("y")),
                    spread.sum(0), spread.sum())

        ones = np.ones((8, 8))
        for found, expected in zip(jax.jit(program)(), (2 * z[0, 0] * ones, 4 * z[0, 0] * ones, 8 + 8j, 64 + 64j), strict=True):
            np.testing.assert_allclose(found, np.broadcast_to(expected, found.shape), rtol=1e-6)

    @pytest.mark.parametrize("dtype", ["float32", "bfloat16", "complex64"])
    def test_extremes_over_devices_keep_nan(dtype):
        """XLA:CPU passes over NaN where it reduces over devices, and has no extremes of complex numbers there."""
        rng = np.random.default_rng(0)
        whole = rng.integers(0, 9, (8, 8)).astype(np.float32)
        if dtype != "complex64":  # whose order says nothing of NaN
            whole[rng.random((8, 8)) < 0.1] = np.nan
        x = jnp.asarray(whole).astype(dtype)
        segments = jnp.array([0, 1, 1, 0, 2, 2, 3, 3])

        def extremes(x):
            return [jnp.max(x, 0), jnp.min(x, 1), jnp.max(x), lax.reduce(x, x.dtype.type(-9), lambda a, b: lax.max(a, b), (0,)),
                    lax.reduce_min(x, (0, 1))]

        def scattered(x):
            return [jax.ops.segment_max(x, segments, 4), jnp.full((4, 8), 9, x.dtype).at[segments].min(x)]

        def by_hand(x):
            return [lax.pmax(x, "x"), lax.pmin(x, "x")]

        def compare(found, expected):
            found, expected = np.asarray(found).astype(np.complex64), np.asarray(expected).astype(np.complex64)
            np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
            np.testing.assert_array_equal(found[~np.isnan(found)], expected[~np.isnan(found)])

        spread = jax.device_put(x, on("x", "y"))
        for f in (extremes, scattered) if dtype != "complex64" else (extremes,):
            for found, expected in zip(jax.jit(f)(spread), f(x), strict=True):
                compare(found, expected)
        halves = jax.jit(jax.shard_map(by_hand, mesh=MESH, in_specs=P("x", "y"), out_specs=P(None, "y")))(spread)
        for found, extreme in zip(halves, (np.maximum, np.minimum), strict=True):
            compare(found, extreme(whole[:4], whole[4:]))

    def test_nan_is_searched_for_where_extremes_are_over_devices_alone():
        x = jax.device_put(X, on("x"))

        @jax.jit
        def scaled(x):
            return x / jnp.max(abs(x), 1, keepdims=True)

        def looped(x):
            return lax.fori_loop(0, 3, lambda _, x: scaled(x) - x.min(1, keepdims=True), x)

        for fun, searches in ((scaled, 0), (looped, 0), (lambda x: scaled(x.T), 1), (lambda x: jnp.max(scaled(x)), 1),
                              (lambda x: scaled(lax.with_sharding_constraint(x, on(None, "y"))), 1),
                              (lambda x: (jnp.tile(x, (8, 8)) > 3).any(), 0)):
            lowered = jax.jit(fun).lower(x)
            assert len(re.findall("applies stablehlo.or", lowered.as_text())) == searches
            np.testing.assert_allclose(lowered.compile()(x), jax.jit(fun)(X), rtol=1e-5)
        by_hand = jax.shard_map(lambda x: lax.pmax(x, "x"), mesh=MESH, in_specs=P("x"), out_specs=P())
        assert len(re.findall(" all-reduce[(]", jax.jit(by_hand).lower(x).compile().as_text())) == 1

    def test_gamma_variates_are_drawn_where_alpha_is():
        key, alpha = jax.random.key(0), np.linspace(0.2, 9, 256, dtype=np.float32).reshape(16, 16)
        compiled = jax.jit(jax.random.gamma).lower(key, jax.device_put(alpha, on("x"))).compile()
        assert "all-gather" not in compiled.as_text()
        drawn = compiled(key, jax.device_put(alpha, on("x")))
        assert drawn.sharding == on("x")
        np.testing.assert_allclose(drawn, jax.random.gamma(key, alpha), rtol=1e-6)

    def test_small_products_in_loops_are_summed_up_over_devices():
        cut, start = jax.device_put(X / 4, on("x")), np.ones((8, 8), np.float32)
        looped = jax.jit(lambda a, b: lax.fori_loop(0, 3, lambda _, c: c @ b, a))
        np.testing.assert_allclose(looped(start, cut), np.linalg.matrix_power(X / 4, 3).sum(0) * start, rtol=1e-4)

    def test_parts_that_are_weighted_stay_where_they_are():
        x, weights = np.random.default_rng(1).normal(size=(16, 20, 32)).astype(np.float32), np.arange(16, dtype=np.float32)
        weighted = jax.jit(lambda x, weights: (x * weights[:, None, None]).sum(0))
        spread = jax.device_put(x, on(None, None, "y"))
        assert "all-gather" not in weighted.lower(spread, weights).compile().as_text()
        np.testing.assert_allclose(weighted(spread, weights), np.einsum("ijk,i->jk", x, weights), rtol=1e-4, atol=1e-4)

    def test_steps_of_an_unrolled_loop_read_an_array_that_is_cut_at_places_that_xla_knows():
        def steps(rows, x):
            for t in range(6):
                x = jnp.tanh(x @ x + rows[t])
            return x

        rows, x = np.ones((6, 8, 8), np.float32), np.ones((8, 8), np.float32) / 9
        lowered = jax.jit(steps).lower(jax.device_put(rows, on(None, "y")), x)._lowered
        with lowered.tuned(True):
            assert "dynamic_slice" not in lowered.text()
