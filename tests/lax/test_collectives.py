"""Collectives over axes that vmap names: values against NumPy on the whole batch, transposes, nesting, errors."""

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite import lax

X = np.random.default_rng(0).normal(size=(4, 4, 8)).astype(np.float32)  # four examples of (4, 8)
GROUPS = [[0, 2], [3, 1]]


def same(value):
    return np.broadcast_to(value, (4, *value.shape))


def tiles(x, axis):
    return np.concatenate(list(x), axis)


def grouped(x):
    out = np.empty_like(x)
    for group in GROUPS:
        out[group] = x[group].sum(0)
    return out


# name, function of one example, what it does to the whole batch, whether it is linear
CASES = [
    ("psum", lambda x: lax.psum(x, "i"), lambda x: same(x.sum(0)), True),
    ("psum in groups", lambda x: lax.psum(x, "i", axis_index_groups=GROUPS), grouped, True),
    ("pmean", lambda x: lax.pmean(x, "i"), lambda x: same(x.mean(0)), True),
    ("pmax", lambda x: lax.pmax(x, "i"), lambda x: same(x.max(0)), False),
    ("pmin", lambda x: lax.pmin(x, ("i",)), lambda x: same(x.min(0)), False),
    ("all_gather", lambda x: lax.all_gather(x, "i"), same, True),
    ("all_gather at 1", lambda x: lax.all_gather(x, "i", axis=1), lambda x: same(np.moveaxis(x, 0, 1)), True),
    ("all_gather, tiled", lambda x: lax.all_gather(x, "i", axis=1, tiled=True), lambda x: same(tiles(x, 1)), True),
    ("all_gather in groups", lambda x: lax.all_gather(x, "i", axis_index_groups=GROUPS),
     lambda x: np.stack([x[[0, 2]], x[[3, 1]], x[[0, 2]], x[[3, 1]]]), True),
    ("all_to_all", lambda x: lax.all_to_all(x, "i", 0, 0), lambda x: x.swapaxes(0, 1), True),
    ("all_to_all to 1", lambda x: lax.all_to_all(x, "i", 0, 1), lambda x: np.transpose(x, (1, 2, 0)), True),
    ("all_to_all, tiled", lambda x: lax.all_to_all(x, "i", 1, 0, tiled=True),
     lambda x: np.stack([tiles(x[:, :, 2 * k:2 * k + 2], 0) for k in range(4)]), True),
    ("all_to_all, tiled, one axis", lambda x: lax.all_to_all(x, "i", 1, 1, tiled=True),
     lambda x: np.stack([tiles(x[:, :, 2 * k:2 * k + 2], 1) for k in range(4)]), True),
    ("pswapaxes", lambda x: lax.pswapaxes(x, "i", 0), lambda x: x.swapaxes(0, 1), True),
    ("psum_scatter", lambda x: lax.psum_scatter(x, "i"), lambda x: x.sum(0), True),
    ("psum_scatter in steps", lambda x: lax.psum_scatter_start(x, "i").done(), lambda x: x.sum(0), True),
    ("psum_scatter, tiled", lambda x: lax.psum_scatter(x, "i", scatter_dimension=1, tiled=True),
     lambda x: np.stack(np.split(x.sum(0), 4, 1)), True),
    ("ppermute", lambda x: lax.ppermute(x, "i", [(0, 1), (1, 2), (2, 3), (3, 0)]), lambda x: np.roll(x, 1, 0), True),
    ("pshuffle", lambda x: lax.pshuffle(x, "i", [2, 0, 3, 1]), lambda x: x[[2, 0, 3, 1]], True),
    ("pbroadcast", lambda x: lax.pbroadcast(x, "i", 2), lambda x: same(x[2]), True),
    ("axis_index", lambda x: x + lax.axis_index("i"), lambda x: x + np.arange(4)[:, None, None], False),
]
IDS = [row[0] for row in CASES]


def near(got, expected, tol=1e-5):
    got = np.asarray(got)
    assert got.shape == np.shape(expected)
    np.testing.assert_allclose(got, expected, rtol=tol, atol=tol)


@pytest.mark.parametrize("fun, oracle, linear", [row[1:] for row in CASES], ids=IDS)
def test_values_and_derivatives(fun, oracle, linear):
    def everything(x, ct):
        mapped = jax.vmap(fun, in_axes=1, axis_name="i")
        out, pull = jax.vjp(mapped, x)
        inside = jax.vmap(lambda x, ct: jax.vjp(fun, x)[1](ct)[0], in_axes=(1, 0), out_axes=1, axis_name="i")
        return out, jax.jvp(mapped, (x,), (jnp.cos(x),))[1], pull(ct)[0], inside(x, ct)

    moved, expected = np.swapaxes(X, 0, 1), oracle(X)  # the examples along axis 1
    ct = np.sin(np.arange(expected.size, dtype=np.float32)).reshape(expected.shape)
    out, tangent, back, inside = jax.jit(everything)(moved, ct)
    near(out, expected)
    left, right = np.sum(ct * np.asarray(tangent)), np.sum(np.cos(moved) * np.asarray(back))
    assert abs(left - right) < 1e-3 * max(1, abs(left))
    near(inside, back)  # collectives transposed as such, before vmap sees them
    if linear:
        near(tangent, oracle(np.cos(X)))


@pytest.mark.parametrize("fun, oracle, linear", [row[1:] for row in CASES], ids=IDS)
def test_beside_another_mapped_axis(fun, oracle, linear):
    pair = np.stack([X, -X], 2)  # examples, 4, two, 8
    got = jax.jit(jax.vmap(jax.vmap(fun, in_axes=1), axis_name="i"))(pair)  # the axis i is the outer one
    near(got, np.stack([oracle(X), oracle(-X)], 1))


def test_transposes_inside_the_mapped_function():
    x = X[:, 0, 0]
    near(jax.vmap(jax.grad(lambda x: lax.psum(jnp.sin(x), "i")), axis_name="i")(x), 4 * np.cos(x))
    near(jax.vmap(jax.grad(lambda x: lax.pmean(x * x, "i")), axis_name="i")(x), 2 * x)
    near(jax.vmap(jax.grad(lambda x: jnp.sum(lax.all_gather(x, "i") ** 2)), axis_name="i")(x), 8 * x)


def test_several_names():
    x = X[:2, :3, 0]

    def over(fun):
        return jax.jit(jax.vmap(jax.vmap(fun, axis_name="j"), axis_name="i"))(x)

    near(over(lambda x: lax.psum(x, ("i", "j"))), np.full((2, 3), x.sum()))
    near(over(lambda x: lax.psum(x, "j")), np.tile(x.sum(1, keepdims=True), (1, 3)))
    near(over(lambda x: lax.axis_index(("i", "j"))), np.arange(6).reshape(2, 3))
    near(over(lambda x: lax.all_gather(x, ("i", "j"))), np.broadcast_to(x.ravel(), (2, 3, 6)))
    near(over(lambda x: lax.pbroadcast(x, ("i", "j"), 4)), np.full((2, 3), x[1, 1]))
    near(over(lambda x: lax.ppermute(x, ("i", "j"), [(k, k + 1) for k in range(5)])),
         np.concatenate([[0], x.ravel()[:-1]]).reshape(2, 3))
    rows = np.arange(36.0, dtype=np.float32).reshape(2, 3, 6)
    both = jax.vmap(jax.vmap(lambda r: (lax.all_to_all(r, ("i", "j"), 0, 0), lax.psum_scatter(r, ("i", "j"))),
                             axis_name="j"), axis_name="i")(rows)
    near(both[0], rows.reshape(6, 6).T.reshape(2, 3, 6))
    near(both[1], rows.reshape(6, 6).sum(0).reshape(2, 3))


def test_pytrees_scalars_and_unmapped_values():
    def sums(x):
        return lax.psum({"x": x, "one": 1, "shared": jnp.float32(2), "flag": x > 0}, "i")

    out = jax.vmap(sums, axis_name="i")(X[:, 0, 0])
    near(out["x"], np.full(4, X[:, 0, 0].sum()))
    near(out["one"], np.full(4, 4))
    near(out["shared"], np.full(4, 8.0))
    near(out["flag"], np.full(4, (X[:, 0, 0] > 0).sum()))
    near(jax.vmap(lambda x: lax.all_gather(jnp.float32(3), "i"), axis_name="i")(X), np.full((4, 4), 3.0))
    near(jax.vmap(lambda x: lax.pmean(x, "i"), axis_name="i")(np.arange(4)), np.full(4, 1.5))
    assert jax.vmap(lambda x: jnp.zeros(lax.axis_size("i")), axis_name="i")(X).shape == (4, 4)
    near(jax.vmap(lambda x: lax.psum(x, "i"), axis_name="i", out_axes=None)(X), X.sum(0))
    near(jax.vmap(lambda: lax.axis_index("i"), axis_name="i", axis_size=3)(), np.arange(3))


def test_inside_of_jit_scan_cond_and_checkpoint():
    x = X[:, 0, 0]
    near(jax.vmap(jax.jit(lambda x: x - lax.pmean(x, "i")), axis_name="i")(x), x - x.mean())
    near(jax.vmap(lambda x: jax.jit(lambda: lax.axis_index("i"))(), axis_name="i")(x), np.arange(4))

    def steps(x):
        return lax.scan(lambda c, _: (c + lax.psum(c, "i"), None), x, None, length=2)[0]

    once = x + x.sum()
    near(jax.vmap(steps, axis_name="i")(x), once + once.sum())
    near(jax.vmap(lambda x: lax.cond(True, lambda: lax.psum(x, "i"), lambda: x), axis_name="i")(x), np.full(4, x.sum()))
    near(jax.vmap(jax.grad(jax.checkpoint(lambda x: lax.psum(jnp.sin(x), "i"))), axis_name="i")(x), 4 * np.cos(x))


def test_one_function_under_axes_of_two_sizes():
    fun = jax.jit(lambda x: lax.all_gather(x, "i").sum() + lax.axis_size("i"))
    for size in (2, 4):
        near(jax.vmap(fun, axis_name="i")(X[:size, 0, 0]), np.full(size, X[:size, 0, 0].sum() + size))


def test_the_innermost_binding_counts():
    near(jax.vmap(jax.vmap(lambda x: lax.psum(x, "i"), axis_name="i"), axis_name="i")(X[:2, :3, 0]),
         np.tile(X[:2, :3, 0].sum(1, keepdims=True), (1, 3)))


def test_jaxprs_with_an_axis_environment():
    text = str(jax.make_jaxpr(lambda x: lax.psum(x, "i"), axis_env=[("i", 4)])(X[0]))
    assert text == """\
{ lambda ; a:f32[4,8]. let
    b:f32[4,8] = psum[axes=('i',) axis_index_groups=None] a
  in (b,) }"""
    text = str(jax.make_jaxpr(lambda x: lax.pmean(x, "i") * lax.axis_index("i"), axis_env=[("i", 4)])(X[0]))
    assert "div b 4.0:f32[]" in text and "axis_index[axis_name=i]" in text
    text = str(jax.make_jaxpr(jax.vmap(lambda x: lax.psum(x, "i"), axis_name="i", out_axes=None))(X[0]))
    assert "reduce_sum" in text and "psum" not in text


ERRORS = [
    ("unbound", NameError, "unbound axis name", lambda: lax.psum(1.0, "i")),
    ("index", NameError, "unbound axis name", lambda: lax.axis_index("i")),
    ("other name", NameError, "unbound axis name", lambda: jax.vmap(lambda x: lax.psum(x, "j"), axis_name="i")(X)),
    ("no name", NameError, "unbound axis name", lambda: jax.vmap(lambda x: lax.all_gather(x, "i"))(X)),
    ("jit", NameError, "unbound axis name", lambda: jax.jit(lambda x: lax.axis_size("i"))(X)),
    ("groups", ValueError, "axis_index_groups must cover",
     lambda: jax.vmap(lambda x: lax.psum(x, "i", axis_index_groups=[[0, 1]]), axis_name="i")(X)),
    ("uneven groups", ValueError, "axis_index_groups must all be of one size",
     lambda: jax.vmap(lambda x: lax.all_gather(x, "i", axis_index_groups=[[0, 1, 2], [3]]), axis_name="i")(X)),
    ("split size", ValueError, "all_to_all requires the size",
     lambda: jax.vmap(lambda x: lax.all_to_all(x, "i", 1, 0), axis_name="i")(X)),
    ("scatter size", ValueError, "psum_scatter",
     lambda: jax.vmap(lambda x: lax.psum_scatter(x, "i", scatter_dimension=1), axis_name="i")(X)),
    ("permutation", ValueError, "permutation",
     lambda: jax.vmap(lambda x: lax.pshuffle(x, "i", [0, 0, 1, 2]), axis_name="i")(X)),
    ("two senders", ValueError, "distinct",
     lambda: jax.vmap(lambda x: lax.ppermute(x, "i", [(0, 1), (2, 1)]), axis_name="i")(X)),
]


@pytest.mark.parametrize("error, text, call", [row[1:] for row in ERRORS], ids=[row[0] for row in ERRORS])
def test_errors(error, text, call):
    with pytest.raises(error, match=text):
        call()


@pytest.mark.parametrize("reduce, axis", [
    ("sum", "i"), ("sum", ("i", 0)), ("max", (1, "i")), ("min", "i"), ("mean", ("i", 0)), ("var", "i"), ("std", ("i", 1)),
])
def test_reductions_of_numpy_take_named_axes(reduce, axis, rng):
    x = rng.normal(size=(4, 3, 2)).astype(np.float32)
    got = jax.vmap(lambda x: getattr(jnp, reduce)(x, axis=axis), axis_name="i")(x)
    axes = tuple(0 if each == "i" else each + 1 for each in (axis if isinstance(axis, tuple) else (axis,)))
    expected = getattr(np, reduce)(x, axis=axes)
    np.testing.assert_allclose(got, np.broadcast_to(expected, got.shape), rtol=1e-5)


def test_named_reductions_with_a_mask_and_those_that_are_none(rng):
    x = rng.normal(size=(4, 3)).astype(np.float32)
    got = jax.vmap(lambda x: jnp.mean(x, axis=("i", 0), where=x > 0), axis_name="i")(x)
    np.testing.assert_allclose(got, np.full(4, x.mean(where=x > 0)), rtol=1e-5)
    with pytest.raises(NotImplementedError, match=r"jnp.prod\(\): axis='i'"):
        jax.vmap(lambda x: jnp.prod(x, axis="i"), axis_name="i")(x)
    with pytest.raises(NameError, match="name: j.*psum.*\nNames bound here: 'i'"):
        jax.vmap(lambda x: jnp.sum(x, axis="j"), axis_name="i")(x)
    with pytest.raises(ValueError, match="named twice"):
        jax.vmap(lambda x: jnp.sum(x, axis=("i", "i")), axis_name="i")(x)


def test_the_mean_of_booleans_and_integers() -> None:
    for x in (np.array([True, False, True, True]), np.array([1, 2, 3, 6])):
        mean = jax.vmap(lambda each: lax.pmean(each, "i"), axis_name="i")(x)
        assert mean.dtype == np.float32 and mean.tolist() == [x.mean()] * 4


def test_reductions_are_weakly_typed_where_jax_has_them_so() -> None:
    weak = jnp.full(2, 3.0)
    assert weak.weak_type

    def is_weak(fun, axis=0, operand=weak):
        return jax.eval_shape(jax.vmap(fun, axis, axis_name="i", axis_size=2), operand).weak_type

    for reduce in (lax.psum, lax.pmean, lax.pmax, lax.pmin):
        assert not is_weak(lambda x, reduce=reduce: reduce(x, "i"))
    assert is_weak(lambda x: lax.psum(x, "i"), None, 3.0) and not is_weak(lambda x: lax.psum(x, "i"), None)
    known = jax.vmap(lambda _: lax.psum(jnp.asarray(3.0), "i"), axis_name="i")(jnp.zeros(2, "int32"))
    assert known.tolist() == [6, 6] and known.weak_type

    mesh = jax.make_mesh((1,), ("i",))
    for check, expected in ((True, True), (False, False)):
        part = jax.shard_map(lambda x: x * x, mesh=mesh, in_specs=jax.P(), out_specs=jax.P(), check_vma=check)
        assert jax.eval_shape(jax.grad(part), 2.0).weak_type is expected
