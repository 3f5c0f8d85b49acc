"""Names that JAX has had since its versions for later jaxlibs, and what such a version changed."""

import numpy as np
import pytest
import scipy.linalg
import scipy.special

import jaxlite
import jaxlite.numpy as jnp
from jaxlite import lax
from jaxlite.experimental import sparse
from jaxlite.scipy.linalg import eigh
from jaxlite.scipy.special import erfcinv

X = np.array([[2, 5, 1], [3, -7, -2]], np.int32)


def test_minmax():
    for options in ({}, {"axis": 0}, {"axis": 1, "keepdims": True}):
        low, high = jnp.minmax(X, **options)
        np.testing.assert_array_equal(low, np.min(X, **options))
        np.testing.assert_array_equal(high, np.max(X, **options))
    assert [int(each) for each in jnp.minmax(X, initial=(-9, 9))] == [-9, 9]
    assert [int(each) for each in jnp.minmax(X, initial=4, where=X > 4)] == [4, 5]


@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.int8])
def test_top_k_gives_the_first_of_equal_elements(dtype):
    x = np.array([[1, 3, 1, 3], [100, 0, 7, 0]], dtype)
    for axis in (0, 1):
        for mode, sign in (("largest", -1), ("smallest", 1)):
            values, positions = jnp.top_k(x, 2, axis=axis, mode=mode)
            expected = np.take(np.argsort(sign * x.astype(np.int32), axis=axis, kind="stable"), [0, 1], axis)
            np.testing.assert_array_equal(positions, expected)
            np.testing.assert_array_equal(values, np.take_along_axis(x, expected, axis))


def test_top_k_of_the_smallest_is_in_total_order_and_has_a_derivative():
    x = np.array([0.0, -0.0, np.nan, 1, -np.inf], np.float32)
    values, positions = jnp.top_k(x, 5, mode="smallest")
    assert positions.tolist() == [4, 1, 0, 3, 2]
    np.testing.assert_array_equal(values, x[[4, 1, 0, 3, 2]])
    assert np.signbit(values[1:3]).tolist() == [True, False]
    gradient = jaxlite.grad(lambda x: (jnp.top_k(x, 2, mode="smallest")[0] * np.array([2, 3], np.float32)).sum())
    assert gradient(np.array([4, 1, 3], np.float32)).tolist() == [0, 2, 3]
    names = [eqn.primitive.name for eqn in jaxlite.make_jaxpr(lambda x: jnp.top_k(x, 2, mode="smallest"))(x).eqns]
    assert "sort" not in names  # which takes some forty times as long for a few elements of long rows
    assert jnp.top_k(np.array([True, False, True]), 2, mode="smallest")[1].tolist() == [1, 0]


def test_top_k_refuses():
    for options in ({"k": -1}, {"k": 4}, {"k": 1, "mode": "best"}, {"k": 4, "mode": "smallest"}, {"k": 1, "axis": 2}):
        with pytest.raises(ValueError):
            jnp.top_k(X, options.pop("k"), **options)


def test_log2_and_one_minus_square():
    x = np.array([8, 2, 1e-3], np.float32)
    np.testing.assert_allclose(lax.log2(x), np.log2(x), rtol=1e-6)
    np.testing.assert_allclose(lax.log2(1j * x), np.log2(1j * x), rtol=1e-6)
    near = np.array([1 - 2**-20, -1 + 2**-24, 1e-20], np.float32)
    np.testing.assert_allclose(lax.one_minus_square(near), 1 - near.astype(np.float64)**2, rtol=1e-7)
    np.testing.assert_array_equal(jaxlite.vmap(jaxlite.grad(lax.one_minus_square))(near), -2 * near)


@pytest.mark.parametrize("count", [0, 1, 3, 12])
def test_polynomial(count):
    coefficients = np.linspace(-1, 1, count)
    x = np.array([0.5, -1.5], np.float32)
    value, slope = jaxlite.jvp(lambda x: lax.polynomial(x, coefficients), (x,), (np.ones_like(x),))
    expected = np.polynomial.Polynomial([*coefficients, 0.0])
    np.testing.assert_allclose(value, expected(x.astype(float)), rtol=1e-5)
    np.testing.assert_allclose(slope, expected.deriv()(x.astype(float)), rtol=1e-5)


def test_coefficients_of_a_long_polynomial():
    """As an array they stay one; single ones may have the shape of x."""
    coefficients, x = np.linspace(-1, 1, 12).astype(np.float32), np.array([0.5, -1.5], np.float32)
    text = str(jaxlite.make_jaxpr(lax.polynomial)(x, coefficients))
    assert text.count("scan[") == 1 and "slice" not in text and "stack" not in text and "unroll=8" in text
    powers = np.vander(x.astype(float), 12, increasing=True)
    gradient = str(jaxlite.make_jaxpr(jaxlite.grad(lambda x: lax.polynomial(x, coefficients).sum()))(x))
    assert "f32[12,2]" not in gradient and "f32[11,2]" not in gradient  # no step is kept
    slopes = jaxlite.grad(lambda c: lax.polynomial(x, c).sum())(coefficients)
    np.testing.assert_allclose(slopes, powers.sum(0), rtol=1e-6)
    for each in ([*coefficients[:-1], np.stack([coefficients[-1]] * 2)], np.stack([coefficients] * 2, 1)):
        np.testing.assert_allclose(lax.polynomial(x, each), powers @ coefficients, rtol=1e-5)


def test_erfcinv():
    y = np.array([0, 1e-30, 1e-5, 0.3, 1, 1.7, 2, 2.1], np.float32)
    np.testing.assert_allclose(erfcinv(y), scipy.special.erfcinv(y.astype(float)), rtol=1e-6)
    np.testing.assert_allclose(erfcinv(np.array([0.3, 1.7], np.float16)), [0.733, -0.733], rtol=2e-3)


def test_heaviside_has_the_type_of_its_first_argument():
    assert not jnp.heaviside(X, 0.5).weak_type
    np.testing.assert_array_equal(jnp.heaviside(np.array([-2, 0, 3]), 0.5), [0, 0.5, 1])


def test_put_says_first_that_arrays_are_immutable():
    with pytest.raises(ValueError, match="inplace=False"):
        jnp.put(jnp.zeros(3), [0], 1)


def test_the_sum_of_all_of_a_sparse_matrix_is_a_number():
    total = sparse.sparsify(jnp.sum)(sparse.BCOO.fromdense(X))
    assert isinstance(total, jaxlite.Array) and int(total) == X.sum()


@pytest.mark.parametrize("kind", [np.float32, np.complex64])
def test_generalized_eigenvalues(kind):
    rng = np.random.default_rng(0)
    parts = rng.normal(size=(2, 2, 3, 3))
    a, b = (parts[0] + 1j * parts[1]).astype(kind) if kind is np.complex64 else parts[0].astype(kind)
    a, b = a + a.conj().T, b @ b.conj().T + np.eye(3, dtype=kind)
    for type in (1, 2, 3):
        values, vectors = map(np.asarray, eigh(np.stack([a, 2 * a]), b, type=type))
        expected = scipy.linalg.eigh(a, b, type=type, eigvals_only=True)
        np.testing.assert_allclose(values, [expected, 2 * expected], rtol=1e-4, atol=1e-4)
        for one, value, vector in ((a, values[0], vectors[0]), (2 * a, values[1], vectors[1])):
            left = {1: one, 2: one @ b, 3: b @ one}[type] @ vector
            np.testing.assert_allclose(left, (b @ vector if type == 1 else vector) * value, atol=1e-3)
            inner = np.linalg.inv(b) if type == 3 else b
            np.testing.assert_allclose(vector.conj().T @ inner @ vector, np.eye(3), atol=1e-4)
    with pytest.raises(ValueError):
        eigh(a, b, type=4)


def test_edges_of_whole_widths_are_exact():
    x = np.array([1, 2, 3, 10, 11, 15, 19, 25])
    counts, edges = jnp.histogram(x, range=(0, 25), bins=5)
    np.testing.assert_array_equal(counts, np.histogram(x, range=(0, 25), bins=5)[0])
    np.testing.assert_array_equal(edges, [0, 5, 10, 15, 20, 25])
    np.testing.assert_array_equal(jnp.linspace(0, 25, 6), edges)


def test_sorting_nothing_has_a_derivative():
    x = np.zeros((2, 0), np.float32)
    for f in (lambda x: jnp.sort(x, axis=0), lambda x: lax.top_k(x, 1, axis=0)[0]):
        out, tangent = jaxlite.jvp(f, (x,), (x,))
        assert out.shape == tangent.shape and out.shape[1] == 0
