"""vmap: forms of in_axes and out_axes, nesting, other transformations inside and outside, control flow, errors."""

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite import lax
from jaxlite.core.aval import high_types

RNG = np.random.default_rng(0)
A = RNG.normal(size=(4, 3)).astype(np.float32)
B = RNG.normal(size=(3, 4)).astype(np.float32)
V = RNG.normal(size=3).astype(np.float32)


def near(got, expected, tol=1e-5):
    got, expected = np.asarray(got), np.asarray(expected)
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=tol, atol=tol)


# --- where the axes are ------------------------------------------------------------------------------

FORMS = [
    ("first", 0, 0, (A, A), A * 2 + A),
    ("shared", (0, None), 0, (A, V), A * 2 + V),
    ("both ends", (0, 1), 0, (A, B), A * 2 + B.T),
    ("from the end", (0, -1), 0, (A, B), A * 2 + B.T),
    ("out last", (0, None), 1, (A, V), (A * 2 + V).T),
    ("out from the end", (None, 0), -1, (V, A), (V * 2 + A).T),
    ("list", [0, None], 0, (A, V), A * 2 + V),
    ("scalars", (0, None), 0, (V, 1.0), V * 2 + 1),
]


@pytest.mark.parametrize("in_axes, out_axes, args, expected", [row[1:] for row in FORMS], ids=[row[0] for row in FORMS])
def test_axes(in_axes, out_axes, args, expected):
    near(jax.vmap(lambda x, y: x * 2 + y, in_axes, out_axes)(*args), expected)


def test_pytrees_and_prefixes():
    def fun(tree, scale):
        return {"sum": tree["a"] + tree["b"][0], "scale": scale}, tree["b"][1] * scale

    got, other = jax.vmap(fun, in_axes=({"a": 0, "b": (1, None)}, None), out_axes=({"sum": 1, "scale": None}, 0))(
        {"a": A, "b": (B, V)}, 2.0)
    near(got["sum"], (A + B.T).T)
    near(got["scale"], 2.0)
    near(other, np.tile(V * 2, (4, 1)))
    tree = jax.vmap(lambda tree: tree["a"] + tree["b"], in_axes=(1,))({"a": B, "b": B})  # one axis for a whole tree
    near(tree, 2 * B.T)


def test_a_traced_value_tells_its_axis():
    seen = []
    jax.vmap(lambda x: seen.append((x.batch_dim, x.val.shape, x.shape)), in_axes=1)(A)
    assert seen == [(1, (4, 3), (4,))]


def test_results_that_do_not_vary():
    near(jax.vmap(lambda x: 1.0)(A), np.ones(4))
    near(jax.vmap(lambda x: V, out_axes=None)(A), V)
    near(jax.vmap(lambda x: (x, V), out_axes=(0, 1))(A)[1], np.tile(V[:, None], (1, 4)))


def test_keyword_arguments_are_mapped_over_their_first_axis():
    near(jax.vmap(lambda x, y: x + y, in_axes=(None,))(V, y=A), V + A)


def test_axis_size():
    near(jax.vmap(lambda: V, axis_size=2)(), np.stack([V, V]))
    near(jax.vmap(lambda x: x + 1, in_axes=None, axis_size=2)(V), np.stack([V, V]) + 1)
    near(jax.vmap(lambda x: x + 1, axis_size=4)(A), A + 1)
    assert jax.vmap(lambda x: x + 1)(np.zeros((0, 3), np.float32)).shape == (0, 3)


def test_shapes_inside():
    def fun(x):
        assert x.shape == (3,) and x.ndim == 1 and len(x) == 3 and x.size == 3
        return x.reshape(1, -1)

    assert jax.vmap(fun)(A).shape == (4, 1, 3)


@pytest.mark.parametrize("are_high_types", [False, True])
def test_types_in_place_of_arrays(are_high_types, monkeypatch):
    monkeypatch.setattr(high_types, "exist", are_high_types)
    # A library that builds values of types alone maps functions over them which look at shapes.
    array = jax.ShapeDtypeStruct((4, 3), np.float32)
    shapes = []
    out, size = jax.vmap(lambda x, y: (shapes.append((x.shape, y.shape)), (x, x.shape[0]))[1])(array, A)
    assert shapes == [((3,), (3,))] and out == array
    near(size, np.full(4, 3))
    with pytest.raises(TypeError, match="ShapeDtypeStruct"):
        jax.vmap(lambda x: x + 1)(array)


def test_scalars_chosen_by_a_batched_array():
    # Outside of vmap their shapes would have to agree, and JAX checks it there alone: a library's actions are of shape (1,).
    near(jax.vmap(lambda x: lax.select(x > 0, 2.0, 1.0))(A), np.where(A > 0, 2.0, 1.0))
    near(jax.vmap(lambda x: lax.select(x > 0, 2.0, 1.0), 1)(B), np.where(B.T > 0, 2.0, 1.0))


# --- with other transformations ----------------------------------------------------------------------


def test_nested():
    near(jax.vmap(jax.vmap(lambda x, y: x * y, (None, 0)), (0, None))(V, V), np.outer(V, V))
    near(jax.vmap(jax.vmap(jnp.dot, (0, None)), (None, 1), 1)(A, B), A @ B)


def test_inside_and_outside_of_jit_and_grad(count_traces):
    per_example = jax.vmap(jax.grad(lambda w, x: jnp.sum(jnp.tanh(w * x))), (None, 0))
    expected = A * (1 - np.tanh(V * A) ** 2)
    near(per_example(V, A), expected)
    near(jax.jit(per_example)(V, A), expected)
    near(jax.grad(lambda w: jnp.sum(jax.vmap(lambda x: jnp.sum(jnp.tanh(w * x)))(A)))(V), expected.sum(0))
    fun = count_traces(lambda x: x * 2)
    inner = jax.vmap(jax.jit(fun))
    near(inner(A), A * 2)
    inner(A)
    assert fun.count == 1
    near(jax.jvp(jax.vmap(jnp.sin), (V,), (V,))[1], np.cos(V) * V)


def test_program_has_one_equation_for_the_whole_batch():
    jaxpr = jax.make_jaxpr(jax.vmap(jnp.dot, (0, None)))(A, V).jaxpr
    assert [eqn.primitive.name for eqn in jaxpr.eqns] in (["dot_general"], ["jit"], ["pjit"])
    assert str(jax.make_jaxpr(jax.vmap(lambda x: lax.sin(x) * 2.0))(A)).count("\n") == 3


def test_indexing_and_updates():
    index = np.array([0, 2, 1, 5])
    near(jax.vmap(lambda x, i: x[i])(A, index), A[np.arange(4), np.minimum(index, 2)])
    near(jax.vmap(lambda x, i: x.at[i].add(1.0, mode="drop"))(A, index),
         A + (np.arange(3)[None] == index[:, None]))
    near(jax.vmap(lambda i: lax.dynamic_slice(V, (i,), (2,)))(np.array([0, 1])), np.stack([V[:2], V[1:]]))


# --- control flow ------------------------------------------------------------------------------------

LOOPS = {
    "cond": lambda x: lax.cond(x > 0, jnp.sin, lambda y: y * 2.0, x),
    "switch": lambda x: lax.switch((x * 3).astype(jnp.int32), [lambda y: y, jnp.cos, lambda y: -y], x),
    "while": lambda x: lax.while_loop(lambda c: c < 4.0, lambda c: c * 2.0 + 1.0, jnp.abs(x)),
    "while with a counter": lambda x: lax.while_loop(
        lambda c: (c[1] < 5.0) & (c[0] < 3), lambda c: (c[0] + 1, c[1] + jnp.abs(x)), (0, x))[1],
    "fori of a batched bound": lambda x: lax.fori_loop(0, (x * x * 4).astype(jnp.int32), lambda i, c: c * 1.5 + i, x),
    "scan": lambda x: lax.scan(lambda c, a: (c * a + x, c), x, jnp.arange(3.0))[0],
    "scan of an unbatched carry": lambda x: lax.scan(lambda c, a: (c + a * x, None), 0.0, jnp.arange(3.0))[0],
    "cond in scan": lambda x: lax.scan(lambda c, a: (lax.cond(c > 1, lambda v: v * 0.5, lambda v: v + a, c), None),
                                       x, jnp.arange(3.0))[0],
    "map": lambda x: jnp.sum(lax.map(lambda a: a * x, jnp.arange(3.0))),
}


@pytest.mark.parametrize("name", LOOPS)
def test_control_flow_with_a_batched_predicate(name):
    fun = jax.jit(LOOPS[name])
    values = np.array([0.3, -0.8, 1.2, -1.5], np.float32)
    near(jax.jit(jax.vmap(fun))(values), [fun(value) for value in values])


def test_an_unbatched_predicate_stays_a_cond():
    jaxpr = jax.make_jaxpr(jax.vmap(lambda p, x: lax.cond(p, jnp.sin, jnp.cos, x), (None, 0)))(True, V)
    assert "cond" in str(jaxpr) and "select_n" not in str(jaxpr)


def test_a_batched_predicate_does_not_run_past_the_end():
    # the finished examples of a while loop keep their values, even where the body would make them NaN
    got = jax.vmap(lambda x: lax.while_loop(lambda c: c > 1.0, lambda c: jnp.sqrt(c - 1.0), x))(
        np.array([0.5, 10.0], np.float32))
    near(got, [0.5, np.sqrt(np.sqrt(2.0) - 1.0)])  # 10, 3, sqrt 2, and the last is below 1


# --- errors ------------------------------------------------------------------------------------------

ERRORS = [
    ("sizes", ValueError, "vmap got inconsistent sizes for array axes to be mapped",
     lambda: jax.vmap(lambda x, y: x)(A, B)),
    ("names in sizes", ValueError,
     r"(?s)size 2: axis 0 of argument x\['a'\] of type f32\[2\].*size 3: axis 1 of argument y of type",
     lambda: jax.vmap(lambda x, y: y, (0, 1))({"a": jnp.ones(2)}, jnp.ones((2, 3)))),
    ("name in rank", ValueError, "only 1 .*: argument y", lambda: jax.vmap(lambda x, y: y, (0, 1))(jnp.ones(2), jnp.ones(2))),
    ("rank", ValueError, "implies that its rank should be at least 3, but is only 2",
     lambda: jax.vmap(lambda x: x, in_axes=2)(A)),
    ("scalar", ValueError, "implies that its rank should be at least 1, but is only 0", lambda: jax.vmap(lambda x: x)(1.0)),
    ("length", ValueError, "tuple of entries corresponding to the positional", lambda: jax.vmap(lambda x: x, (0, 0))(A)),
    ("nothing mapped", ValueError, "at least one non-None value in in_axes", lambda: jax.vmap(lambda x: x, None)(A)),
    ("type of in_axes", TypeError, "vmap in_axes must be an int, None", lambda: jax.vmap(lambda x: x, in_axes="a")(A)),
    ("type of out_axes", TypeError, "vmap out_axes must be an int, None",
     lambda: jax.vmap(lambda x: x, out_axes="a")(A)),
    ("prefix", ValueError, "vmap in_axes", lambda: jax.vmap(lambda x: x["a"], in_axes=({"b": 0},))({"a": A})),
    ("mapped output", ValueError, "^at vmap out_axes, got axis spec None but output was batched on axis 0",
     lambda: jax.vmap(lambda x: x, out_axes=None)(A)),
    ("mapped output in a tree", ValueError, r"^at vmap out_axes\['b'\]\[1\], got axis spec None but output was batched on",
     lambda: jax.vmap(lambda x: {"a": x, "b": (1, x)}, out_axes={"a": 0, "b": None})(A)),
    ("out_axes", ValueError, "out of bounds|axis", lambda: jax.vmap(lambda x: x, out_axes=3)(A)),
    ("no array", TypeError, "", lambda: jax.vmap(lambda x: x)("text")),
]


@pytest.mark.parametrize("error, text, call", [row[1:] for row in ERRORS], ids=[row[0] for row in ERRORS])
def test_errors(error, text, call):
    with pytest.raises(error, match=text or None):
        call()


def test_callables_whose_name_is_no_text():
    class Named:
        __name__ = None
        __doc__ = None

        def __call__(self, x):
            return x * 2.0

    x = jnp.ones(2)
    for transform in (jax.vmap, jax.jit, jax.checkpoint, jax.jacfwd, jax.value_and_grad, jax.linearize):
        if transform is jax.linearize:
            assert transform(Named(), 1.0)[0] == 2.0
        elif transform is jax.value_and_grad:
            assert transform(Named())(1.0)[1] == 2.0
        else:
            out = transform(Named())(x)
            np.testing.assert_allclose(jnp.diag(out) if transform is jax.jacfwd else out, 2.0)


class Spec:
    def __init__(self, axis):
        self.axis = axis


@pytest.mark.parametrize("spec", [int, Spec])
def test_a_library_says_how_its_type_is_mapped(spec):
    from jaxlite.interpreters import batching

    class Named:
        def __init__(self, rows, rest, name):
            self.rows, self.rest, self.name = rows, rest, name

    def axis(given):
        return given.axis if isinstance(given, Spec) else given

    def to_elt(cont, _, value, given):
        return Named(cont(value.rows, axis(given)), value.rest, "element")

    def from_elt(cont, size, value, given):
        return Named(cont(size, value.rows, axis(given)), cont(size, value.rest, axis(given)), f"{size} of {value.name}")

    batching.register_vmappable(Named, spec, int, to_elt, from_elt, None)
    try:
        named = Named(jnp.asarray(A), jnp.asarray(V), "whole")

        @jax.jit
        def rows(x):
            out = jax.vmap(lambda each, by: {"out": Named(each["in"].rows * by, x, each["in"].name)},
                           in_axes=({"in": spec(0)}, 0), out_axes=spec(-1))({"in": named}, x)["out"]
            assert (named.name, out.name) == ("whole", "4 of element")
            return out.rows, out.rest

        by, rest = rows(np.arange(4.0, dtype=np.float32))
        near(by, (A * np.arange(4.0)[:, None]).T)
        near(rest, np.broadcast_to(np.arange(4.0)[:, None], (4, 4)))
        near(jax.vmap(lambda each, y: each.rows.sum() + y, in_axes=(None, 0))(named, A[:, 0]), A.sum() + A[:, 0])
        assert jax.vmap(lambda each: each, in_axes=spec(-1), axis_size=3)(Named(A, V, "")).rows.shape == (3, 4)
    finally:
        batching.unregister_vmappable(Named)
    with pytest.raises(TypeError, match="not a valid JAX type"):
        jax.vmap(lambda each, y: each.rows, in_axes=(0, 0))(named, V)


def test_sum_match_sums_what_varies() -> None:
    x = jnp.arange(6.0).reshape(3, 2)
    f = jax.vmap(lambda row: (2 * row, 5.0, row), out_axes=(None, None, 0), sum_match=True)
    total, same, rows = f(x)
    assert total.tolist() == [12.0, 18.0] and same == 5.0 and rows.tolist() == x.tolist()
    assert jax.grad(lambda x: f(x)[0] @ jnp.array([1.0, 3.0]))(x).tolist() == [[2.0, 6.0]] * 3


def test_axes_are_added_as_libraries_expect_it():
    """With JAX's operation: libraries whose arrays have rules for it may have none for `reshape` (quax)."""
    added = jax.make_jaxpr(jax.vmap(lambda x, y: x + y, in_axes=(0, None)))(np.ones((2, 3)), np.ones(3))
    assert [eqn.primitive.name for eqn in added.eqns] == ["broadcast_in_dim", "add"]
