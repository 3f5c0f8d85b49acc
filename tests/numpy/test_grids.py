"""Grids, triangles, windows and index objects of jaxlite.numpy, against NumPy."""

import ml_dtypes
import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from lowering import xla

X = np.arange(12, dtype=np.float32).reshape(3, 4)
V = np.arange(-3, 3, dtype=np.int8)
F32 = np.dtype("float32")


def close(found, expected, rtol=1e-6, atol=1e-6):
    """Equal shapes, canonical dtypes and nearly equal values; sequences of arrays element by element."""
    if isinstance(expected, (list, tuple)):
        assert len(found) == len(expected)
        for each, wanted in zip(found, expected, strict=True):
            close(each, wanted, rtol, atol)
        return
    expected = np.asarray(expected)
    assert isinstance(found, jax.Array)
    assert (found.shape, found.dtype) == (expected.shape, jax.dtypes.canonicalize_dtype(expected.dtype))
    np.testing.assert_allclose(np.asarray(found), expected, rtol=rtol, atol=atol)


# --- evenly spaced values ----------------------------------------------------------------------------

SPACED = [
    ((0, 1), {"num": 5}), ((0.1, 0.7), {"num": 13}), ((5.0, -5.0), {"num": 7}),
    ((0, 1), {"num": 4, "endpoint": False}), ((2, 3), {"num": 1}),
    ((2, 3), {"num": 0}), ((2, 3), {"num": 1, "endpoint": False}), ((0, 10), {"num": 7, "dtype": int}),
    ((-3, 3), {"num": 8, "dtype": np.int8}),
    ((0, 1), {"num": 5, "dtype": bool}), ((0, 1 + 1j), {"num": 5}), ((0, 1), {"num": 3, "dtype": complex}),
    ((X[0], 2), {"num": 3}),
    ((X[0], X), {"num": 3, "axis": -1}), ((X[0], X), {"num": 3, "axis": 1}), ((X[0], 9), {"num": 0, "axis": 1}),
    ((1, 1), {"num": 3}),
    ((np.float16(0), np.float16(1)), {"num": 5}), ((np.int8(0), np.int8(7)), {"num": 5}), ((True, False), {"num": 3}),
]  # fmt: skip


@pytest.mark.parametrize(("bounds", "options"), SPACED, ids=repr)
def test_linspace_against_numpy(bounds, options):
    found, step = jnp.linspace(*bounds, retstep=True, **options)
    with np.errstate(all="ignore"):
        expected, expected_step = np.linspace(*bounds, retstep=True, **options)
    if "dtype" not in options:
        kind = jnp.result_type(*bounds)
        expected = expected.astype(kind if jnp.issubdtype(kind, jnp.inexact) else F32)
    close(found, expected)
    assert not found.weak_type
    if options.get("num", 50) > 1:
        np.testing.assert_allclose(np.asarray(step), expected_step, rtol=1e-3)
    else:
        assert np.isnan(step).all() or not options.get("endpoint", True)


def test_the_end_of_linspace_is_exact():
    for stop in (0.7, 1e-7, 123456.789):
        assert jnp.linspace(0.1, stop, 13)[-1] == np.float32(stop)
        assert jnp.linspace(0.1, stop, 13)[0] == np.float32(0.1)
    assert jnp.linspace(0, 1).shape == (50,)
    assert jnp.linspace(0, 1, np.int64(3)).shape == (3,)
    close(jax.jit(lambda a, b: jnp.linspace(a, b, 3))(1, 2), np.linspace(1, 2, 3, dtype=F32))


def test_linspace_with_x64(x64):
    found = jnp.linspace(0.1, 0.7, 13)
    assert found.dtype == np.float64
    np.testing.assert_allclose(np.asarray(found), np.linspace(0.1, 0.7, 13), rtol=1e-15)


@pytest.mark.parametrize("options", [{}, {"endpoint": False}, {"base": 2}, {"base": 2, "dtype": int}, {"num": 0}], ids=repr)
def test_logspace_against_numpy(options):
    options = {"num": 4, **options}
    for start, stop in ((0, 3), (X[0], 2.5)) if "dtype" not in options else ((0, 3),):
        expected = np.logspace(start, stop, **options).astype(options.get("dtype", F32))
        close(jnp.logspace(start, stop, **options), expected, rtol=5e-6)


def test_powers_of_ten_are_exact(x64):
    assert jnp.log10(10.0 ** jnp.arange(8)).tolist() == list(range(8))
    assert jnp.geomspace(1, 1000, 4)[-1] == 1000


@pytest.mark.parametrize(("bounds", "options"), [
    ((1, 1000), {}), ((-1, -1000), {}), ((1, 1000), {"endpoint": False}), ((X[1], 1000), {}),
    ((X[1], X + 1), {"axis": 1}),
    ((1j, 1000j), {}), ((1, 1000), {"num": 1}), ((1, 1000), {"num": 0}), ((1, 1000), {"dtype": np.float16}),
], ids=repr)  # fmt: skip
def test_geomspace_against_numpy(bounds, options):
    options = {"num": 4, **options}
    expected = np.geomspace(*bounds, **options)
    dtype = options.get("dtype") or (np.complex64 if np.iscomplexobj(expected) else F32)
    close(jnp.geomspace(*bounds, **options), expected.astype(dtype), rtol=2e-3 if dtype == np.float16 else 5e-6, atol=1e-4)


# --- matrices and triangles --------------------------------------------------------------------------


@pytest.mark.parametrize("args", [(3,), (2, 3), (3, 2, 1), (3, 3, -2), (2, 3, 9), (2, 3, -9), (0,), (2, 0),
                                  (2, 3, 2**40)], ids=repr)
def test_eye_and_tri_against_numpy(args):
    close(jnp.eye(*args), np.eye(*args).astype(F32))
    n, m, k = (*args, None, 0)[:3] if len(args) == 1 else (*args, 0)[:3]
    close(jnp.tri(*args), np.tri(n, m, min(k, 99)).astype(F32))


def test_eye_of_other_dtypes_and_at_traced_diagonals():
    close(jnp.eye(2, dtype=bool), np.eye(2, dtype=bool))
    close(jnp.eye(2, dtype=complex), np.eye(2, dtype=np.complex64))
    assert jnp.eye(2, dtype="bfloat16").dtype == ml_dtypes.bfloat16
    close(jnp.identity(2, int), np.identity(2, int))
    close(jnp.tri(2, 3, -1, int), np.tri(2, 3, -1, int))
    eye = jax.jit(lambda k: jnp.eye(3, 4, k))
    for k in (0, 2, -1, 7):
        close(eye(k), np.eye(3, 4, k, dtype=F32))
        close(jnp.eye(3, 4, jnp.array(k)), np.eye(3, 4, k, dtype=F32))


@pytest.mark.parametrize("k", [0, 1, -1, 10, -10])
def test_tril_and_triu_against_numpy(k):
    others = (np.ones((2, 2, 3), bool), np.arange(4, dtype=np.int8).reshape(2, 2), np.ones((0, 3), F32))
    for m in (X, *others) if abs(k) < 2 else (X,):
        close(jnp.tril(m, k), np.tril(m, k))
        close(jnp.triu(m, k), np.triu(m, k))


@pytest.mark.parametrize(("n", "k", "m"), [(3, 0, None), (3, 1, None), (3, -1, 4), (0, 0, None), (3, 2, 2), (2, -9, 3)])
def test_triangle_indices_against_numpy(n, k, m):
    close(jnp.tril_indices(n, k, m), tuple(map(np.asarray, np.tril_indices(n, k, m))))
    close(jnp.triu_indices(n, k, m), tuple(map(np.asarray, np.triu_indices(n, k, m))))
    mask = np.ones((n, m or n))
    close(jnp.tril_indices_from(mask, k), np.tril_indices_from(mask, k))
    close(jnp.triu_indices_from(jnp.asarray(mask), k), np.triu_indices_from(mask, k))


def test_indices_are_wide_with_x64(x64):
    for found in (jnp.tril_indices(3), jnp.triu_indices_from(jnp.ones((2, 2))), jnp.diag_indices(2),
                  jnp.mask_indices(3, jnp.triu), jnp.indices((2, 2)), jnp.argwhere(jnp.ones(2)), jnp.unravel_index(3, (2, 2))):
        assert {each.dtype for each in found} == {np.dtype("int64")}


def test_diagonal_and_mask_indices():
    close(jnp.diag_indices(3), np.diag_indices(3))
    close(jnp.diag_indices(2, 3), np.diag_indices(2, 3))
    assert jnp.diag_indices(2, 0) == ()
    close(jnp.diag_indices_from(np.ones((3, 3))), np.diag_indices(3))
    close(jnp.mask_indices(3, jnp.triu, 1), np.mask_indices(3, np.triu, 1))
    close(jnp.mask_indices(3, jnp.triu, 1, size=2), (np.array([0, 0]), np.array([1, 2])))
    close(jax.jit(lambda: jnp.mask_indices(3, jnp.tril, size=7))(), tuple(np.append(i, 0) for i in np.mask_indices(3, np.tril)))


def test_fill_diagonal():
    for a, value in ((X, 9), (X.T, [7, 8]), (X, [1, 2, 3, 4, 5]), (X, X), (np.zeros((2, 2, 2), F32), 1),
                     (np.zeros((0, 3), F32), 1)):
        expected = a.copy()
        np.fill_diagonal(expected[:3] if a.ndim == 2 else expected, value)
        close(jnp.fill_diagonal(a, np.asarray(value), inplace=False), expected)
    close(jax.jit(lambda x, v: jnp.fill_diagonal(x, v, inplace=False))(X * 0, 2.0), np.eye(3, 4, dtype=F32) * 2)


# --- index grids -------------------------------------------------------------------------------------


def test_meshgrid_against_numpy():
    z = np.arange(2, dtype=np.int32)
    for vectors in ((), (X[0],), (X[0], V), (X[0], V, z), (X[0, :0], V)):
        for options in ({}, {"indexing": "ij"}, {"sparse": True}, {"sparse": True, "indexing": "ij"}):
            found = jnp.meshgrid(*vectors, **options)
            assert type(found) is (list if xla.VERSION < (0, 11) else tuple)
            close(list(found), list(np.meshgrid(*vectors, **options)))


def test_indices_ix_and_fromfunction():
    close(jnp.indices((2, 3)), np.indices((2, 3)))
    close(jnp.indices((2, 3), float, sparse=True), np.indices((2, 3), F32, sparse=True))
    close(jnp.indices((0, 2)), np.indices((0, 2)))
    close(jnp.ix_(V, np.array([1, 2])), np.ix_(V, np.array([1, 2])))
    close(jnp.array(X)[jnp.ix_(np.array([2, 0]), np.array([1, 3, 1]))], X[np.ix_([2, 0], [1, 3, 1])])
    assert jnp.ix_() == ()
    close(jnp.fromfunction(lambda i, j: i * 2 + j, (2, 3)), np.fromfunction(lambda i, j: i * 2 + j, (2, 3), dtype=F32))
    close(jnp.fromfunction(jnp.add, (2, 3), dtype=int), np.fromfunction(np.add, (2, 3), dtype=int))
    close(jnp.fromfunction(lambda i: jnp.stack([i, i + 1]), (3,), dtype=int), np.array([[0, 1], [1, 2], [2, 3]]))
    close(jnp.fromfunction(lambda i: 7.0, (3,)), np.full(3, 7, F32))
    # Arguments by name are mapped as well, as `vmap` does and JAX.
    close(jnp.fromfunction(lambda i, z: i * z, 3, dtype=int, z=np.array([5, 6, 7])), np.array([0, 6, 14]))


GRID_KEYS = [
    np.s_[0:3], np.s_[0:3, 0:2], np.s_[:3], np.s_[0:3:2, 1:2:0.5], np.s_[0:3:5j, 1:2], np.s_[0:1:3j], np.s_[3:0:-1],
    np.s_[0:0], np.s_[:2, :2, :2],
]  # fmt: skip


@pytest.mark.parametrize("key", GRID_KEYS, ids=repr)
def test_mgrid_and_ogrid_against_numpy(key):
    def expected(value):
        return value.astype(F32) if value.dtype == np.float64 else value

    close(jnp.mgrid[key], expected(np.mgrid[key]))
    found, wanted = jnp.ogrid[key], np.ogrid[key]
    close(list(found), [expected(each) for each in wanted]) if isinstance(wanted, tuple) else close(found, expected(wanted))


JOINED = [
    np.s_[1, 2, 3], np.s_[1, 2.5], np.s_[0:5:2, 7], np.s_[0:1:5j], np.s_[:5], np.s_[-1:1:3j, [0] * 3, 5, 6],
    np.s_[V, 2], np.s_[X, X],
    np.s_["-1", X, X], np.s_["0,2", [1, 2, 3], [4, 5, 6]], np.s_["0,2,0", [1, 2, 3], [4, 5, 6]],
    np.s_["1,2,0", [1, 2, 3], [4, 5, 6]],
    np.s_["0,3,-1", X, X], np.s_["0,3,1", V], np.s_["0,4", 5], np.s_["r", [1, 2], [3, 4]], np.s_["c", [1, 2], [3, 4]],
    np.s_[True, False],
]  # fmt: skip


def strong_single(value):
    return np.asarray(value, F32 if value.dtype == np.float64 else value.dtype)


@pytest.mark.parametrize("key", JOINED, ids=range(len(JOINED)))
def test_r_against_numpy(key):
    close(jnp.r_[key], strong_single(np.r_[key]))


@pytest.mark.parametrize("key", [np.s_[1, 2], np.s_[1:4, 4:7], np.s_[V, V, V], np.s_[X, X[:, 0]],
                                 np.s_["-1,2", [1, 2], [3, 4]], np.s_[0:1:3j]], ids=range(6))
def test_c_against_numpy(key):
    close(jnp.c_[key], strong_single(np.c_[key]))


def test_index_expressions_are_numpys():
    assert jnp.s_[1:2, ..., None] == np.s_[1:2, ..., None]
    assert jnp.index_exp[1] == (1,)
    close(jnp.c_[V, V], np.c_[V, V])
    close(jax.jit(lambda x: jnp.r_[x, 1.0, 0:2])(X[0]), np.r_[X[0], 1, 0, 1].astype(F32))


def test_ravel_and_unravel_index_against_numpy():
    rows, columns = np.array([1, 2, 0]), np.array([2, 3, 0])
    for order in ("C", "F"):
        close(jnp.ravel_multi_index((rows, columns), (3, 4), order=order),
              np.ravel_multi_index((rows, columns), (3, 4), order=order))
    far = np.array([-2, 7, 1]), np.array([9, -1, 3])
    for mode in ("wrap", "clip"):
        close(jnp.ravel_multi_index(far, (3, 4), mode=mode), np.ravel_multi_index(far, (3, 4), mode=mode))
        close(jax.jit(lambda a, b, mode=mode: jnp.ravel_multi_index((a, b), (3, 4), mode=mode))(*far),
              np.ravel_multi_index(far, (3, 4), mode=mode))
    assert jnp.ravel_multi_index((V[4:], V[4:]), (3, 4)).dtype == np.int8
    assert jnp.ravel_multi_index((rows, columns), (3, 4), dtype="int8").dtype == np.int8
    assert jnp.ravel_multi_index((), ()) == 0

    positions = np.array([[5, 11, 0]])
    close(jnp.unravel_index(positions, (3, 4)), np.unravel_index(positions, (3, 4)))
    close(jnp.unravel_index(np.array([-1, -12, 12, 99, -13]), (3, 4)), (np.array([2, 0, 2, 2, 0]), np.array([3, 0, 3, 3, 0])))
    close(jnp.unravel_index(np.array([3, 5], np.uint8), (3, 4)), (np.array([0, 1], np.uint8), np.array([3, 1], np.uint8)))
    close(jnp.unravel_index(np.array(5), 12), (np.array(5),))
    close(jnp.unravel_index(np.array([2.5, 13, -1, -20]), (3, 4)), (np.array([0., 2, 2, 0]), np.array([2.5, 3, 3, 0])))
    assert jnp.unravel_index(0, ()) == ()
    found = jax.jit(lambda shape: jnp.unravel_index(np.array([4, 7, -1]), shape))((2, 3))
    close(found, (np.array([1, 1, 1]), np.array([1, 2, 2])))


# --- powers and windows ------------------------------------------------------------------------------


def test_vander_against_numpy():
    for x in (X[0], V, np.array([1 + 2j, 3], np.complex64)):
        for options in ({}, {"N": 2}, {"N": 5, "increasing": True}, {"N": 0}):
            with np.errstate(over="ignore"):
                close(jnp.vander(x, **options), np.vander(x, **options).astype(x.dtype), rtol=1e-5)


@pytest.mark.parametrize("name", ["bartlett", "blackman", "hamming", "hanning", "kaiser"])
def test_windows_against_numpy(name):
    args = (3.5,) if name == "kaiser" else ()
    for size in (0, 1, 2, 7, 8):
        close(getattr(jnp, name)(size, *args), getattr(np, name)(size, *args).astype(F32), atol=2e-7)
    for size in (True, 3.7, np.float16(3.7), jnp.array(3.7), jnp.array(True)):
        close(getattr(jnp, name)(size, *args), getattr(np, name)(int(size), *args).astype(F32), atol=2e-7)


def test_kaiser_of_a_traced_beta():
    kaiser = jax.jit(lambda beta: jnp.kaiser(6, beta))
    for beta in (0.0, 14.0):
        close(kaiser(beta), np.kaiser(6, beta).astype(F32), rtol=1e-5)


# --- errors ------------------------------------------------------------------------------------------

Concretization = jax.errors.ConcretizationTypeError
ERRORS = [
    (lambda: jnp.linspace(0, 1, -1), ValueError, "non-negative"), (lambda: jnp.linspace(0, 1, 2.5), TypeError, "float"),
    (lambda: jnp.linspace([0], 1, 3), TypeError, "linspace requires"),
    (lambda: jnp.linspace(None, 1), TypeError, "linspace requires"),
    (lambda: jnp.linspace("a", 1), TypeError, "linspace requires"),
    (lambda: jnp.linspace(X[0], V, 3), ValueError, "Incompatible"),
    (lambda: jnp.linspace(X[0], 1, 3, axis=2), ValueError, "out of bounds"),
    (lambda: jnp.linspace(0, 1, dtype="U1"), TypeError, "linspace"),
    (lambda: jax.jit(lambda n: jnp.linspace(0, 1, n))(3), Concretization, "num"),
    (lambda: jnp.eye(-1), ValueError, "negative"),
    (lambda: jnp.eye(2, -1), ValueError, "negative"), (lambda: jnp.eye(2.5), TypeError, "integer"),
    (lambda: jnp.eye(2, k=1.5), ValueError, "scalar integer"),
    (lambda: jnp.eye(2, k=np.array([1, 2])), ValueError, "scalar integer"),
    (lambda: jax.jit(jnp.eye)(3), TypeError, "static"),
    (lambda: jnp.tri(-1), TypeError, "nonnegative"), (lambda: jnp.tri(2, 3, 1.5), TypeError, "float"),
    (lambda: jnp.tril(V), ValueError, "2D"),
    (lambda: jnp.triu(1.0), ValueError, "2D"), (lambda: jnp.tril([[1]]), TypeError, "tril requires"),
    (lambda: jax.jit(lambda k: jnp.tril(X, k))(1), jax.errors.TracerIntegerConversionError, "static"),
    (lambda: jnp.tril_indices(-1), TypeError, "nonnegative"),
    (lambda: jnp.tril_indices_from(V), ValueError, "2-D"), (lambda: jnp.diag_indices(-1), ValueError, "nonnegative"),
    (lambda: jnp.diag_indices(2, -1), ValueError, "nonnegative"),
    (lambda: jnp.diag_indices_from(X), ValueError, r"\(3, 4\)"),
    (lambda: jnp.diag_indices_from(V), ValueError, "2-d"),
    (lambda: jnp.fill_diagonal(X, 1), NotImplementedError, "inplace=False"),
    (lambda: jnp.fill_diagonal(X, 1, True, inplace=False), NotImplementedError, "wrap"),
    (lambda: jnp.fill_diagonal(V, 1, inplace=False), ValueError, "2-d"),
    (lambda: jnp.fill_diagonal(np.zeros((2, 2, 3)), 1, inplace=False), ValueError, r"\(2, 2, 3\)"),
    (lambda: jnp.fill_diagonal(X, X[:0], inplace=False), ZeroDivisionError, "no elements"),
    (lambda: jnp.meshgrid(X, V), ValueError, r"\(3, 4\)"),
    (lambda: jnp.meshgrid(V, copy=False), ValueError, "copy"),
    (lambda: jnp.meshgrid(V, indexing="ab"), ValueError, "ab"),
    (lambda: jnp.meshgrid([1]), TypeError, "meshgrid requires"),
    (lambda: jnp.indices((-1,)), TypeError, "nonnegative"), (lambda: jnp.indices(3), TypeError, "int"),
    (lambda: jnp.indices((2,), bool), TypeError, "bool"), (lambda: jnp.ix_(X), ValueError, "1-dimensional"),
    (lambda: jnp.ix_(V > 0), NotImplementedError, "Boolean"),
    (lambda: jnp.mgrid[1], TypeError, "int"), (lambda: jnp.mgrid[0:3:0], ZeroDivisionError, "step"),
    (lambda: jnp.r_["a", 1], ValueError, "directive"),
    (lambda: jnp.r_[[1], "0"], ValueError, "beginning"), (lambda: jnp.r_[()], IndexError, "at least one"),
    (lambda: jnp.r_[X, X[0]], TypeError, r"\(3, 4\), \(4,\)"),
    (lambda: jnp.ravel_multi_index((V,), (3, 4)), AssertionError, "len"),
    (lambda: jnp.ravel_multi_index((V, V), (3, 4)), ValueError, "invalid entry"),
    (lambda: jnp.ravel_multi_index((V, V), (3, 4), mode="x"), ValueError, "mode"),
    (lambda: jnp.ravel_multi_index((V, V), (3, 4), "clip", "G"), ValueError, "order"),
    (lambda: jnp.ravel_multi_index((X, X), (3, 4)), ValueError, "integer"),
    (lambda: jnp.ravel_multi_index((V, V), (300, 4), "clip"), ValueError, "large enough"),
    (lambda: jax.jit(lambda i: jnp.ravel_multi_index((i, i), (3, 4)))(1), Concretization, "multi_index"),
    (lambda: jnp.unravel_index([1], (3,)), TypeError, "unravel_index requires"),
    (lambda: jnp.vander(X), ValueError, r"\(3, 4\)"),
    (lambda: jnp.vander(V, -1), ValueError, "nonnegative"), (lambda: jnp.vander(V > 0), TypeError, "bool"),
    (lambda: jnp.hanning(-3), TypeError, "nonnegative"),
    (lambda: jax.jit(jnp.hanning)(3), Concretization, "M"), (lambda: jnp.kaiser(4, [1]), TypeError, "kaiser requires"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "text"), ERRORS, ids=range(len(ERRORS)))
def test_errors(call, error, text):
    with pytest.raises(error, match=text):
        call()
