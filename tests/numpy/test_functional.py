"""Functions of numpy that take functions, and those that compare whole arrays."""

from __future__ import annotations

import math

import numpy as np
import pytest

import jaxlite
import jaxlite.numpy as jnp

f32 = np.dtype(np.float32)
NAN = np.array([np.nan, 1], f32)

PAIRS = [
    (np.arange(3.0), np.arange(3.0)), (np.arange(3.0), np.arange(3.0) + 1e-9), (np.arange(3.0), np.ones(3)),
    (np.ones((2, 3)), np.ones(3)), (np.ones(3), 1.0), (np.ones((1, 3)), np.ones((2, 1))), (NAN, NAN),
    (np.arange(3), np.arange(3.0)), (np.zeros(0), np.zeros(0)),
    (np.array([np.inf]), np.array([np.inf])), (np.array([True, False]), np.array([True, False])), (1, 1.0),
]


@pytest.mark.parametrize("a, b", PAIRS, ids=str)
def test_comparisons_match_numpy(a, b):
    a, b = (each.astype(f32) if getattr(each, "dtype", None) == np.float64 else each for each in (a, b))
    for name in ("allclose", "array_equal", "array_equiv"):
        got = getattr(jnp, name)(a, b)
        assert got.dtype == bool and got.shape == ()
        assert bool(got) == getattr(np, name)(a, b), name
    for name in ("allclose", "array_equal"):
        assert bool(getattr(jnp, name)(a, b, equal_nan=True)) == getattr(np, name)(a, b, equal_nan=True)


def test_comparisons_of_other_things():
    assert not jnp.array_equal(np.ones(2), np.ones(3)) and not jnp.array_equiv(np.ones(2), np.ones(3))
    few = jnp.array([1, 2], jnp.int4)
    assert jnp.array_equiv(few, few) and not jnp.array_equiv(few, few.astype(int))  # they have no common type
    assert jnp.array_equal([1, 2], [1, 2]) and not jnp.array_equal([1, 2], (1, 2, 3))
    for compare in (jnp.array_equal, jnp.array_equiv):  # equal texts would not be found equal
        with pytest.raises(TypeError):
            compare("a", "a")
        with pytest.raises(TypeError):
            compare(np.array(["a"]), np.array(["a"]))
        with pytest.raises(ValueError):
            compare(None, 1)
    assert jnp.allclose(np.float32(1), np.float32(1.05), rtol=0.1) and not jnp.allclose(1.0, 1.05)
    with pytest.raises((TypeError, ValueError)):
        jnp.allclose(np.ones(2), np.ones(3))
    assert bool(jaxlite.jit(jnp.array_equal)(np.ones(2), np.ones(2)))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_apply_along_axis(axis):
    x = np.arange(24, dtype=f32).reshape(2, 3, 4)
    np.testing.assert_array_equal(jnp.apply_along_axis(jnp.sum, axis, x), x.sum(axis))
    np.testing.assert_array_equal(jnp.apply_along_axis(jnp.cumsum, axis, x), x.cumsum(axis))
    outer = jnp.apply_along_axis(lambda v, by, plus=0: jnp.outer(v, v) * by + plus, axis, x, 2.0, plus=1)
    np.testing.assert_array_equal(outer, np.apply_along_axis(lambda v: np.outer(v, v) * 2 + 1, axis, x))


def test_apply_along_axis_of_vectors():
    assert float(jnp.apply_along_axis(jnp.sum, 0, np.ones(3, f32))) == 3
    tree = jnp.apply_along_axis(lambda row: [row[0], {"twice": 2 * row}], 1, np.ones((2, 3), f32))
    assert tree[0].shape == (2,) and (tree[1]["twice"] == np.full((2, 3), 2)).all()
    for axis, x in ((2, np.ones((2, 3))), (0, np.float32(0))):
        with pytest.raises(ValueError):
            jnp.apply_along_axis(jnp.sum, axis, x)


def test_scalars_are_arrays_or_numbers():
    class Box:
        """A container that looks like an array, as a tree of arrays may."""

        shape = ((3,), (2,))

    class Boxed(Box):
        __jax_array__ = lambda self: jnp.float32(1)

    assert jnp.isscalar(Boxed()) and not jnp.isscalar(Box()) and not jnp.isscalar(jaxlite.ShapeDtypeStruct((), f32))


@pytest.mark.parametrize("axes", [[0, 2], (1,), -1], ids=str)
def test_apply_over_axes(axes):
    x = np.arange(24, dtype=f32).reshape(2, 3, 4)
    np.testing.assert_array_equal(jnp.apply_over_axes(jnp.sum, x, axes), np.apply_over_axes(np.sum, x, axes))


def test_apply_over_axes_refuses():
    with pytest.raises(ValueError, match="correct shape"):
        jnp.apply_over_axes(lambda x, axis: x.sum(), np.ones((2, 3)), [0])
    with pytest.raises(ValueError):
        jnp.apply_over_axes(jnp.sum, np.ones((2, 3)), [2])


# (function, signature, argument shapes)
VECTORIZED = [
    (lambda x, y: x * y + 1, None, [(3,), (2, 1)]),
    (lambda x: x + 1, None, [()]),
    (lambda a, b: a @ b, "(n),(n)->()", [(2, 3), (3,)]),
    (lambda a, b: a @ b, "(n,m),(m)->(n)", [(2, 3), (5, 3)]),
    (lambda a, b: a @ b, " (n, m) , (m,k)->( n,k )", [(4, 1, 2, 3), (5, 3, 2)]),
    (lambda a: (a.sum(), a * 2), "(n)->(),(n)", [(2, 3)]),
    (lambda a: a[:2], "(n)->(k)", [(2, 3)]),
    (lambda a: a * 2, "(3)->(3)", [(2, 3)]),
    (lambda a: a * 2, "(3)->(3)", [(2, 4)]),  # a name as any other
    (lambda a, b: a + b, None, [(0, 2), (2,)]),
]


@pytest.mark.parametrize("function, signature, shapes", VECTORIZED, ids=[str(entry[1:]) for entry in VECTORIZED])
def test_vectorize_matches_numpy(function, signature, shapes, rng):
    args = [rng.integers(-4, 5, shape).astype(f32) for shape in shapes]
    got = jnp.vectorize(function, signature=signature)(*args)
    if 0 in shapes[0]:
        expected = function(*args)
    else:
        numpy_signature = signature.replace("(3)->(3)", "(n)->(n)") if signature else None
        expected = np.vectorize(function, signature=numpy_signature)(*args)
    assert isinstance(got, tuple) == isinstance(expected, tuple)
    for one, other in zip(got if isinstance(got, tuple) else (got,), expected if isinstance(expected, tuple) else (expected,),
                          strict=True):
        np.testing.assert_array_equal(one, other)


def counted(jaxpr, name, found=0):
    """Elements that an operation computes in a program."""
    for eqn in jaxpr.eqns:
        found += math.prod(eqn.outvars[0].aval.shape) if eqn.primitive.name == name else 0
        for inner in jaxlite.extend.core.jaxprs_in_params(eqn.params):
            found = counted(getattr(inner, "jaxpr", inner), name, found)
    return found


@pytest.mark.parametrize("make", [lambda f: jnp.vectorize(f), lambda f: jnp.frompyfunc(f, 2, 1),
                                  lambda f: jnp.vectorize(f, signature="(),()->()")])
@pytest.mark.parametrize("shapes, computed", [
    (((4, 1), (5,)), 4), (((3, 1, 6), (1, 4, 6)), 18), (((1, 1), (2, 3)), 1), (((2,), ()), 2), (((0, 1), (4,)), 0)], ids=str)
def test_what_depends_on_one_argument_is_computed_once_for_each_of_its_elements(make, shapes, computed):
    x, y = (np.linspace(-1, 1, math.prod(shape), dtype=f32).reshape(shape) for shape in shapes)
    function = make(lambda a, b: jnp.sin(a) * b)
    jaxpr = jaxlite.make_jaxpr(function)(x, y)
    assert counted(jaxpr.jaxpr, "sin") == computed
    assert not {"scan", "while"} & {eqn.primitive.name for eqn in jaxpr.eqns}  # all elements at once
    np.testing.assert_allclose(function(x, y), np.sin(x) * y, rtol=1e-6)


def test_fromfunction_calls_the_function_once():
    calls = []

    def function(i, j):
        calls.append(i)
        return {"sum": i + 10 * j, "row": jnp.ones(2) * i}

    got = jnp.fromfunction(function, (2, 3), dtype=int)
    assert len(calls) == 1 and not calls[0].shape
    np.testing.assert_array_equal(got["sum"], np.fromfunction(lambda i, j: i + 10 * j, (2, 3)))
    assert got["row"].shape == (2, 3, 2) and got["row"][1, 2].tolist() == [1, 1]
    assert "scan" not in [eqn.primitive.name for eqn in jaxlite.make_jaxpr(lambda: jnp.fromfunction(jnp.add, (2, 3)))().eqns]
    with pytest.raises(TypeError, match="callable"):
        jnp.fromfunction(3, (2, 3))


def test_vectorize_passes_some_arguments_on():
    x = np.arange(3, dtype=f32)
    np.testing.assert_array_equal(jnp.vectorize(lambda a, k: a * k["by"], excluded={1})(x, {"by": 3}), x * 3)
    np.testing.assert_array_equal(jnp.vectorize(lambda a, k=2: a * k, excluded={"k"})(x, k=3), x * 3)
    np.testing.assert_array_equal(jnp.vectorize(lambda a, b: a if b is None else a + b)(x, None), x)
    np.testing.assert_array_equal(jnp.vectorize(lambda a, b: a + b)(x, b=x), x + x)
    assert jnp.vectorize(lambda a: jnp.ones(3))(x).shape == (3, 3)

    def named(a):
        """Its words."""

    assert jnp.vectorize(named).__name__ == "named" and jnp.vectorize(named).__doc__ == "Its words."


@pytest.mark.parametrize("signature, shapes, error", [
    ("(n,m),(m)->(n)", [(2, 3), (5, 4)], ValueError), ("(n)->", [(2,)], ValueError), ("(n)->()", [(2, 3)], ValueError),
    ("(n)->(n)", [(2,), (2,)], TypeError), ("(n)->(n)", [()], ValueError), ("(n)->(n),(n)", [(2,)], TypeError),
    ("(3),(3)->(3)", [(3,), (4,)], ValueError), (None, [(2,), (3,)], ValueError)], ids=str)
def test_vectorize_refuses(signature, shapes, error):
    with pytest.raises(error):
        jnp.vectorize(lambda a, *rest: a, signature=signature)(*[np.ones(shape, f32) for shape in shapes])


@pytest.mark.parametrize("excluded, error", [({-1}, ValueError), ({1.5}, TypeError)], ids=str)
def test_vectorize_refuses_odd_exclusions(excluded, error):
    with pytest.raises(error):
        jnp.vectorize(lambda a: a, excluded=excluded)
