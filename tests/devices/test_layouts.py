"""Arrays whose elements lie in memory in another order: made, read, computed with, donated, refused.

The oracle is NumPy, whose arrays say by their strides how they lie, and XLA's own word on the layout of a buffer.
"""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from tests.devices.eight import own_process

if (test_on_eight_devices := own_process(__file__)) is None:
    del test_on_eight_devices
    import jaxlite as jax
    import jaxlite.numpy as jnp
    from jaxlite import export, lax
    from jaxlite.experimental.layout import Format, Layout, with_layout_constraint
    from jaxlite.experimental.serialize_executable import deserialize_and_load, serialize
    from jaxlite.sharding import AxisType, NamedSharding, SingleDeviceSharding
    from jaxlite.sharding import PartitionSpec as P

    X = np.arange(32, dtype=np.float32).reshape(8, 4)
    MESH = jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
    ONE, MANY = SingleDeviceSharding(jax.devices()[0]), NamedSharding(MESH, P("x", "y"))
    ROWS, COLUMNS = Layout((0, 1)), Layout((1, 0))
    PLACES = {"one": ONE, "many": MANY}

    def order(array):
        return str(array._pjrt_layout)

    def main(lowered):
        return next(line for line in lowered.as_text().splitlines() if "@main" in line)

    @pytest.mark.parametrize("where", PLACES)
    def test_an_array_by_columns_has_the_same_values(where):
        y = jax.device_put(X, Format(COLUMNS, PLACES[where]))
        assert order(y) == "{0,1}" and y.format == Format(Layout((1, 0), (), 0), PLACES[where]) and y.committed
        assert (np.asarray(y) == X).all() and y.tobytes() == X.tobytes() and y.tolist() == X.tolist()
        assert repr(y) == repr(jnp.asarray(X)) and (pickle.loads(pickle.dumps(y)) == X).all()
        assert (y[1:, 2] == X[1:, 2]).all() and (y.at[0, 1].set(7.)[0] == X[0] + [0, 6, 0, 0]).all()
        for f in (lambda a: a * 2, lambda a: a.T @ a, lambda a: jnp.sort(-a, 0), lambda a: a.sum(0), lambda a: a):
            eager, jitted = f(y), jax.jit(f)(y)
            assert np.array_equal(eager, f(X)) and np.array_equal(jitted, f(X))
        assert order(y * 2) == order(jax.jit(lambda a: a)(y)) == "{1,0}"
        assert jax.device_put(y, Format(COLUMNS, PLACES[where])) is y and order(jax.device_put(y, PLACES[where])) == "{0,1}"
        back = jax.device_put(y, Format(ROWS, PLACES[where]), donate=True)
        assert order(back) == "{1,0}" and (np.asarray(back) == X).all() and y.is_deleted()
        parts = [each.data for each in jax.device_put(X, Format(COLUMNS, PLACES[where])).addressable_shards]
        assert {order(part) for part in parts} == {"{0,1}"}
        whole = jax.make_array_from_single_device_arrays((8, 4), PLACES[where], parts)
        assert order(whole) == "{0,1}" and (whole * 1 == X).all()
        made = jax.make_array_from_callback((8, 4), Format(COLUMNS, PLACES[where]), lambda index: X[index])
        assert order(made) == "{0,1}" and (made + 0 == X).all()

    def test_other_kinds_of_elements_and_of_trees():
        put = jax.device_put((X > 3, jnp.asarray(X, jnp.int4), 3.), (Format(COLUMNS, ONE), Format(COLUMNS, ONE), None))
        assert (put[0] == (X > 3)).all() and (put[1] + 0 == X.astype(np.int8).astype(jnp.int4)).all() and put[2] == 3
        keys = jax.random.split(jax.random.key(0), (2, 3))
        turned = jax.device_put(keys, Format(COLUMNS, ONE))
        assert order(turned._base_array) == "{2,0,1}"
        assert (jax.random.key_data(turned) == jax.random.key_data(keys)).all()
        assert (jax.random.bits(turned[1, 2]) == jax.random.bits(keys[1, 2])).all()
        assert order(jax.device_put(np.zeros((2, 3, 4)), Format(Layout([1, 2, 0]), ONE))) == "{0,2,1}"
        assert order(jnp.asarray(X).to_device(Format(COLUMNS, ONE))) == "{0,1}"

    @pytest.mark.parametrize("where", PLACES)
    def test_each_order_has_a_program(where):
        sharding, calls = PLACES[where], []

        @jax.jit
        def f(a):
            calls.append(a)
            return a * 2 + 1

        rows, columns = jax.device_put(X, sharding), jax.device_put(X, Format(COLUMNS, sharding))
        for _ in range(3):  # in Python, then in C++
            for a in (rows, columns):
                assert (np.asarray(f(a)) == X * 2 + 1).all()
        assert len(calls) == 1 and f._cache_size() == 2
        assert 'layout_mode = "{0,1}"' in main(f.lower(columns)) and "layout_mode" not in main(f.lower(rows))
        big = np.arange(1600., dtype=np.float32).reshape(40, 40)
        held = jax.device_put(big, Format(COLUMNS, sharding))
        assert (jax.jit(lambda b: held * b)(2.) == big * 2).all()

    @pytest.mark.parametrize("where", PLACES)
    def test_what_jit_is_told(where):
        sharding = PLACES[where]
        by_columns, by_rows = Format(COLUMNS, sharding), Format(ROWS, sharding)
        columns, rows = jax.device_put(X, by_columns), jax.device_put(X, sharding)

        def f(a):
            return a * 2

        made = jax.jit(f, out_shardings=by_columns)
        assert 'result_info = "result", mhlo.layout_mode = "{0,1}"' in main(made.lower(rows))
        assert [order(made(rows)) for _ in range(3)] == ["{0,1}"] * 3 and (made(rows) == X * 2).all()
        assert made.eval_shape(rows).format == made.lower(rows).out_info.format == by_columns
        assert made.lower(rows).compile().out_info.format.layout.major_to_minor == (1, 0)
        taken = jax.jit(f, in_shardings=by_columns)
        for a in (X, jnp.asarray(X), columns, X, columns):  # what is bound to no place is put there
            assert (taken(a) == X * 2).all()
        for told, given in ((by_columns, rows), (by_rows, columns), (Format(Layout.AUTO, sharding), columns)):
            with pytest.raises(ValueError, match="Layout passed to jit does not match"):
                jax.jit(f, in_shardings=told)(given)
        for what, said in (("in", "arguments with pytree key path a"), ("out", "outputs with pytree key path result")):
            with pytest.raises(ValueError, match=f"One of jit {said} is incompatible with its layout"):
                jax.jit(f, **{f"{what}_shardings": Format(Layout((0, 1, 2)), sharding)})(X)

    def test_compiled_ahead():
        auto, struct = Format(Layout.AUTO, ONE), jax.ShapeDtypeStruct((8, 4), np.float32)
        chosen = jax.jit(lambda a, b: (a.T @ b, a.T), in_shardings=auto, out_shardings=auto).lower(struct, struct).compile()
        assert [type(each.layout) for each in (*chosen.input_formats[0], *chosen.output_formats)] == [Layout] * 4
        columns, rows = jax.device_put(X, Format(COLUMNS, ONE)), jax.device_put(X, ONE)
        placed = [jax.device_put(X, each) for each in chosen.input_formats[0]]
        for given in ((X, X), placed, (jnp.asarray(X),) * 2):
            product, turned = chosen(*given)
            assert np.allclose(product, X.T @ X) and (turned == X.T).all()
            assert turned.format == chosen.output_formats[1]
        known = jax.jit(lambda a, b: a * 2).lower(jax.ShapeDtypeStruct.like(columns), X).compile()
        assert known.input_shardings == ((known.output_shardings, None), {})
        first, unread = known.input_formats[0]
        assert first.layout.major_to_minor == (1, 0) and unread == Format()
        for _ in range(2):
            assert (known(columns, X) == X * 2).all() and (known(X, columns) == X * 2).all()
            with pytest.raises(ValueError, match=r"(?s)disagree with the layouts of.*Argument a with shape float32\[8,4\]"):
                known(rows, X)
            with pytest.raises(ValueError, match="disagree with the layouts"):
                jax.jit(lambda a: a * 2).lower(rows).compile()(columns)
        again = deserialize_and_load(*serialize(known))
        assert (again(columns, X) == X * 2).all()
        with pytest.raises(TypeError, match="Layout.AUTO"):
            jax.ShapeDtypeStruct((8, 4), np.float32, sharding=auto)
        exported = export.export(jax.jit(lambda a: a * 2, in_shardings=Format(COLUMNS, ONE)))(struct)
        assert 'layout_mode = "{0,1}"' in exported.mlir_module() and (exported.call(columns) == X * 2).all()

    def test_what_is_bound_to_no_place_is_brought_into_order():
        # XLA would take its memory for rows.
        free = jax.jit(lambda a: a.T, out_shardings=Format(Layout.AUTO))(X)
        assert order(free) == "{0,1}" and not free.committed
        f = jax.jit(lambda a: a * 2)
        compiled = f.lower(jax.ShapeDtypeStruct((4, 8), np.float32)).compile()
        for _ in range(3):
            assert (f(free) == X.T * 2).all() and (compiled(free) == X.T * 2).all() and (free * 2 == X.T * 2).all()

    @pytest.mark.parametrize("where", PLACES)
    def test_donation(where):
        sharding = PLACES[where]
        for layout in (ROWS, COLUMNS):
            a = jax.device_put(X, Format(COLUMNS, sharding))
            made = jax.jit(lambda a: a * 2, donate_argnums=0, out_shardings=Format(layout, sharding))(a)
            assert a.is_deleted() and (np.asarray(made) == X * 2).all()
        auto = Format(Layout.AUTO, ONE)
        for one in ("in_shardings", "out_shardings"):
            with pytest.raises(ValueError, match="layout being donated"):
                jax.jit(lambda a: a * 2, donate_argnums=0, **{one: auto})(jnp.asarray(X))
        both = jax.jit(lambda a: a * 2, donate_argnums=0, in_shardings=auto, out_shardings=auto)
        assert "tf.aliasing_output" in main(both.lower(X))

    def test_constraints():
        placed = lax.with_sharding_constraint(X, Format(COLUMNS, MANY))
        assert order(placed) == "{0,1}" and placed.sharding == MANY and order(with_layout_constraint(X, COLUMNS)) == "{0,1}"
        text = jax.jit(lambda a: lax.with_sharding_constraint(a, Format(COLUMNS, MANY)) * 2).lower(X).as_text()
        assert text.index("sdy.sharding_constraint") < text.index("LayoutConstraint(%0)")
        jaxpr = str(jax.make_jaxpr(jax.vmap(lambda a: lax.with_sharding_constraint(a, Format(COLUMNS, MANY)), 1, 1))(
            np.ones((8, 3, 4))))
        assert "layout=Layout(major_to_minor=(2, 0, 1), tiling=None" in jaxpr and "UNCONSTRAINED" in jaxpr
        text = jax.jit(jax.vmap(lambda a: with_layout_constraint(a, Layout((1, 0, 2))))).lower(np.ones((2, 3, 4, 5))).as_text()
        assert "operand_layouts = [dense<[3, 1, 2, 0]> : tensor<4xindex>]" in text
        g = jax.jit(lambda a: with_layout_constraint(a, COLUMNS))
        assert (g(X) * 2 == X * 2).all() and (jax.jit(lambda a: a * 2)(g(X)) == X * 2).all()
        asked = jax.jit(lambda a: with_layout_constraint(a, COLUMNS) * 1, out_shardings=Format(COLUMNS, ONE))(X)
        assert order(asked) == "{0,1}" and (asked == X).all()
        assert (jax.grad(lambda a: (lax.with_sharding_constraint(a, Format(COLUMNS, MANY)) * X).sum())(X) == X).all()

    def test_what_says_no_order():
        for wrong, error, said in ((Format(Layout((2, 1, 0)), ONE), ValueError, "rank of the value should match"),
                                   (Format(Layout.AUTO, ONE), ValueError, "should be concrete"),
                                   (Format(Layout((0, 0)), ONE), Exception, "duplicate"),
                                   (Format(Layout((0, 7)), ONE), Exception, "out-of-bounds")):
            with pytest.raises(error, match=said):
                jax.device_put(X, wrong)
        with pytest.raises(TypeError, match="`out_sharding` argument only supports"):
            jax.sharding.reshard(X, Format(COLUMNS, MANY))
        with pytest.raises(TypeError, match="sharding argument"):
            Format(COLUMNS, P("x"))
