"""Sorting, searching and sets of jaxlite.numpy, against NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import jaxlite
import jaxlite.numpy as jnp
from jaxlite.errors import ConcretizationTypeError

bfloat16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = [np.dtype(name) for name in ("bool", "int8", "uint8", "int32", "float16", "float32", "complex64")] + [bfloat16]
FLOATS = np.array([2, np.nan, 0, -0.0, np.inf, 2, np.nan, -np.inf, 0], np.float32)
INTS = np.array([3, 1, 2, 3, 1, 7], np.int32)


def draw(dtype, shape=(3, 5)):
    rng = np.random.default_rng(3)
    values = rng.integers(-4, 5, shape)
    if dtype.kind == "c":
        return (values + 1j * rng.integers(-2, 3, shape)).astype(dtype)
    return (np.abs(values) if dtype.kind in "bu" else values).astype(dtype)


def assert_equal(result, expected, signs=True):
    """Equal values and shapes; NaN equals NaN. Signs of zero count, unless told otherwise."""
    result, expected = np.asarray(result), np.asarray(expected)
    assert result.shape == expected.shape, (result, expected)
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    np.testing.assert_array_equal(result.astype(wide), expected.astype(wide))
    if signs and expected.dtype.kind == "f":
        np.testing.assert_array_equal(np.signbit(result[result == 0]), np.signbit(expected[expected == 0]))


# --- sorting -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_sort_and_argsort_match_numpy(dtype):
    x = draw(dtype)
    axes = (-1, 0, None)
    got = jaxlite.jit(lambda x: [(jnp.sort(x, axis), jnp.argsort(x, axis), jnp.sort(x, axis, descending=True),
                                  jnp.argsort(x, axis, descending=True), jnp.argsort(x, axis, stable=False))
                                 for axis in axes])(x)
    for axis, (ascending, order, descending, backwards, unstable) in zip(axes, got, strict=True):
        assert ascending.dtype == descending.dtype == dtype and order.dtype == backwards.dtype == np.int32
        expected = np.sort(x, axis)
        assert_equal(ascending, expected)
        assert_equal(order, np.argsort(x, axis, kind="stable"))
        assert_equal(descending, np.flip(expected, -1 if axis is None else axis))
        lines, positions = (x.ravel(), backwards) if axis is None else (x, backwards)
        assert_equal(np.take_along_axis(lines, np.asarray(positions), axis or 0 if axis is None else axis), descending)
        assert_equal(np.take_along_axis(lines, np.asarray(unstable), axis or 0 if axis is None else axis), ascending)


def test_order_of_nan_and_zeros():
    ascending, order, descending, backwards = jaxlite.jit(lambda x: (
        jnp.sort(x), jnp.argsort(x), jnp.sort(x, descending=True), jnp.argsort(x, descending=True)))(FLOATS)
    assert_equal(ascending, FLOATS[np.argsort(FLOATS, kind="stable")])
    assert_equal(order, np.argsort(FLOATS, kind="stable"))
    assert backwards.tolist() == [1, 6, 4, 0, 5, 2, 3, 8, 7]  # equals in their own order
    assert_equal(descending, np.asarray(ascending)[::-1])


def test_argsort_dtype_and_eager_edge_cases():
    assert jnp.argsort(INTS, dtype="uint8").dtype == np.uint8
    assert jnp.sort(np.zeros((2, 0))).shape == (2, 0)
    assert jnp.sort(3, axis=None).tolist() == [3]
    assert_equal(jnp.sort_complex(np.array([3, 1], np.int8)), np.array([1, 3], np.complex64))
    x = jnp.asarray(draw(np.dtype(np.int32)))
    assert_equal(x.sort(axis=0), np.sort(np.asarray(x), 0))
    assert_equal(x.argsort(), np.argsort(np.asarray(x), kind="stable"))


def test_lexsort_matches_numpy():
    first, second = draw(np.dtype(np.int32)), draw(np.dtype(np.float32))[::-1]
    assert_equal(jnp.lexsort((first, second)), np.lexsort((first, second)))
    assert_equal(jnp.lexsort((first, second), axis=0), np.lexsort((first, second), axis=0))
    assert_equal(jnp.lexsort(first), np.lexsort(first))
    assert jnp.lexsort((1, 2)) == 0
    many = np.random.default_rng(0).integers(0, 2, (35, 4, 30)).astype(np.float32)
    assert_equal(jnp.lexsort(many), np.lexsort(many))
    assert_equal(jnp.lexsort(many, axis=0), np.lexsort(many, axis=0))


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if dtype.kind != "c"], ids=str)
def test_partition_has_the_properties_of_one(dtype):
    x = draw(dtype, (4, 6))
    if dtype.kind == "i":
        x[1, 2] = np.iinfo(dtype).min  # has no negative
    got = jaxlite.jit(lambda x: [(jnp.partition(x, kth, axis), jnp.argpartition(x, kth, axis))
                                 for kth, axis in ((2, 1), (-1, 1), (0, 0))])(x)
    for (kth, axis), (parts, positions) in zip(((2, 1), (5, 1), (0, 0)), got, strict=True):
        assert parts.dtype == dtype
        wide = np.moveaxis(np.asarray(parts).astype(np.float64), axis, 1)
        assert_equal(np.sort(wide, 1), np.sort(np.moveaxis(x.astype(np.float64), axis, 1), 1))
        assert (wide[:, :kth + 1] <= wide[:, kth:kth + 1]).all() and (wide[:, kth:] >= wide[:, kth:kth + 1]).all()
        picked = np.moveaxis(np.take_along_axis(x, np.asarray(positions), axis).astype(np.float64), axis, 1)
        assert_equal(np.sort(picked, 1), np.sort(wide, 1))
        assert_equal(picked[:, kth], wide[:, kth])


@pytest.mark.parametrize("shape, axis, kth", [((20_000,), 0, 3), ((20_000,), 0, 100), ((20_000,), 0, 9000), ((5, 40), 1, 15),
                                              ((40, 5), 0, 16), ((7,), 0, 6), ((2, 3, 30), 2, 4)])
def test_argpartition_has_the_least_in_order_and_the_other_positions_in_theirs(shape, axis, kth):
    x = np.random.default_rng(0).integers(0, 9, shape).astype(np.float32)
    least, others = np.split(np.argsort(x, axis, kind="stable"), [kth + 1], axis)
    assert_equal(jnp.argpartition(x, kth, axis), np.concatenate([least, np.sort(others, axis)], axis))


def test_partition_puts_nan_of_either_sign_last():
    x = np.array([3, np.nan, 1, -np.nan, 2], np.float32)
    assert_equal(jnp.partition(x, 2), np.array([1, 2, 3, np.nan, np.nan], np.float32))
    assert jnp.partition(np.array([3, 1 + 2j, 1 - 2j, 0], np.complex64), 1).tolist()[:2] == [0, 1 - 2j]


def test_partition_of_floats_is_that_of_their_total_order():
    x = np.array([[0.0, -1.5, -0.0, np.inf], [np.nan, -np.inf, 2e-40, -3]], np.float32)
    for dtype in (np.float32, np.float16, jnp.bfloat16):
        got = jnp.partition(x.astype(dtype), 1).astype(np.float32)
        assert_equal(got, np.array([[-1.5, -0.0, np.inf, 0.0], [-np.inf, -3, np.nan, x.astype(dtype)[1, 2]]], np.float32))
        assert np.signbit(got[0, 1])


def test_derivatives_of_a_partition_are_permuted_alike():
    x = np.array([5.0, -1, 4, 2, 3], np.float32)
    assert_equal(jaxlite.grad(lambda x: (jnp.partition(x, 1) * np.arange(5.0, dtype=np.float32)).sum())(x),
                 np.array([2, 0, 3, 1, 4], np.float32))


# --- searching ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [dtype for dtype in DTYPES if dtype.kind != "c"], ids=str)
def test_argmax_and_argmin_match_numpy(dtype):
    x = draw(dtype)
    names = ("argmax", "argmin", "nanargmax", "nanargmin")
    cases = [(name, {"axis": axis, "keepdims": keepdims}) for name in names for axis in (None, 0, -1)
             for keepdims in (False, True)]
    got = jaxlite.jit(lambda x: [getattr(jnp, name)(x, **arguments) for name, arguments in cases])(x)
    for (name, arguments), result in zip(cases, got, strict=True):
        assert result.dtype == np.int32
        assert_equal(result, getattr(np, name)(x.astype(np.float64), **arguments))


def test_argmax_of_nan():
    x = np.array([[1, np.nan, 3], [np.nan] * 3], np.float32)
    assert jnp.argmax(x, 1).tolist() == [1, 0] and jnp.argmin(x, 1).tolist() == [1, 0]
    assert jnp.nanargmax(x, 1).tolist() == [2, -1] and jnp.nanargmin(x, 1).tolist() == [0, -1]
    assert jnp.argmax(np.zeros((0, 3)), axis=1).shape == (0,)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_nonzero_and_relatives_match_numpy(dtype):
    x = draw(dtype, (2, 3))
    wide = x.astype(np.complex128)
    for result, expected in zip(jnp.nonzero(x), np.nonzero(wide), strict=True):
        assert result.dtype == np.int32
        assert_equal(result, expected)
    assert_equal(jnp.flatnonzero(x), np.flatnonzero(wide))
    assert_equal(jnp.argwhere(x), np.argwhere(wide))


def test_nonzero_with_a_size():
    x = np.array([[0, 5, 0], [7, 0, 9]])
    got = jaxlite.jit(lambda x: (jnp.nonzero(x, size=5), jnp.nonzero(x, size=2), jnp.nonzero(x, size=5, fill_value=-1),
                                 jnp.nonzero(x, size=4, fill_value=(8, 9)), jnp.argwhere(x, size=4, fill_value=-2),
                                 jnp.flatnonzero(x, size=5, fill_value=77), jnp.nonzero(x, size=0),
                                 jnp.nonzero(x[:0], size=2)))(x)
    want = ([[0, 1, 1, 0, 0], [1, 0, 2, 0, 0]], [[0, 1], [1, 0]], [[0, 1, 1, -1, -1], [1, 0, 2, -1, -1]],
            [[0, 1, 1, 8], [1, 0, 2, 9]], [[0, 1], [1, 0], [1, 2], [-2, -2]], [1, 3, 5, 77, 77], [[], []],
            [[0, 0], [0, 0]])
    for result, expected in zip(got, want, strict=True):
        assert np.asarray(result).tolist() == expected
    for size in (9, None):
        found = jnp.nonzero(x, size=size, fill_value=(1, 1.5))
        assert all(each.dtype == np.float32 and not each.aval.weak_type for each in found)
    assert jnp.argwhere(np.float32(3)).shape == (1, 0) and jnp.argwhere(0, size=2).shape == (2, 0)


def test_extract_and_place_match_numpy():
    x = np.arange(6).reshape(2, 3)
    assert_equal(jnp.extract(x > 2, x), np.extract(x > 2, x))
    assert jnp.extract(x > 2, x, size=5, fill_value=9).tolist() == [3, 4, 5, 9, 9]
    for mask in (x > 2, x % 2 == 0, x < 0):
        expected = x.copy()
        np.place(expected, mask, [10, 20])
        assert_equal(jnp.place(x, mask, np.array([10, 20]), inplace=False), expected)
    assert jnp.place(x, x > 3, 7, inplace=False).tolist() == [[0, 1, 2], [3, 7, 7]]


METHODS = ("scan", "scan_unrolled", "sort", "compare_all")


@pytest.mark.parametrize("method", METHODS)
def test_searchsorted_matches_numpy(method):
    tables = [(np.array([1, 2, 2, 5, 9]), np.array([[0, 1, 2], [3, 9, 10]])),
              (np.array([-np.inf, -1, -0.0, 0, 2, np.nan, np.nan], np.float32),
               np.array([0, -0.0, np.nan, np.inf, -np.inf, 1], np.float32)),
              (np.array([1, 1 + 1j, 2 - 1j, 2], np.complex64), np.array([1, 1 + 2j, 2, 0], np.complex64)),
              (np.array([False, False, True]), np.array([True, False])),
              (np.array([1, 2, 3], np.uint8), np.float32(2.5)),
              (np.zeros(0), np.array([1.0]))]
    sides = ("left", "right")
    got = jaxlite.jit(lambda tables: [[jnp.searchsorted(a, v, side=side, method=method) for side in sides]
                                      for a, v in tables])(tables)
    for (a, v), results in zip(tables, got, strict=True):
        for side, result in zip(sides, results, strict=True):
            assert result.dtype == np.int32
            assert_equal(result, np.searchsorted(a, v, side))


def test_searchsorted_with_a_sorter_and_digitize():
    a = np.array([5, 1, 3, 1])
    order = np.argsort(a, kind="stable")
    assert_equal(jnp.searchsorted(a, np.array([0, 1, 4]), sorter=order), np.searchsorted(a, [0, 1, 4], sorter=order))
    x = np.array([[0, 1, 1.5], [3, 2.5, 4]], np.float32)
    for bins in (np.array([1, 2, 3.0]), np.array([3.0, 2, 1]), np.array([1.0, 1.0]), np.zeros(0)):
        for right in (False, True):
            assert_equal(jnp.digitize(x, bins, right), np.digitize(x, bins, right))


def test_select_and_piecewise():
    x = np.arange(6.0, dtype=np.float32)
    conditions = [x < 2, x > 3, x > 2]
    choices = [x, x * 10, np.float32(-1)]
    assert_equal(jnp.select(conditions, choices, 7), np.select(conditions, choices, 7))
    assert jnp.select([True], [3]).aval.weak_type
    functions = [lambda x: -x, 5, lambda x: x * x]
    conditions = [x < 1, x > 3]
    expected = np.piecewise(x, conditions, functions)
    assert_equal(jnp.piecewise(x, conditions, functions), expected)
    assert_equal(jaxlite.jit(lambda x: jnp.piecewise(x, [x < 1, x > 3], functions))(x), expected)
    assert jnp.piecewise(np.arange(4), [np.arange(4) > 1], [lambda x, y: x / y], 2).tolist() == [0, 0, 1, 1]
    assert jnp.piecewise(x, [x > 1, x > 3], [1, 2]).tolist() == [0, 0, 1, 1, 2, 2]  # the last that holds


# --- sets --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("x", [INTS, FLOATS, INTS > 2, INTS.reshape(2, 3), INTS.astype(np.uint8), INTS[:0],
                               (INTS + 1j * (INTS > 2)).astype(np.complex64)], ids=lambda x: f"{x.dtype}{x.shape}")
def test_unique_matches_numpy(x):
    results = jnp.unique(x, True, True, True)
    for result, expected in zip(results, np.unique(x, True, True, True), strict=True):
        assert_equal(result, expected, signs=False)
    assert results[0].dtype == x.dtype and {each.dtype for each in results[1:]} == {np.dtype(np.int32)}
    assert_equal(jnp.unique(x), np.unique(x), signs=False)
    jitted = jaxlite.jit(lambda x: jnp.unique(x, return_inverse=True, size=8, fill_value=1))(x)
    assert_equal(jitted[0][:len(np.unique(x))], np.unique(x), signs=False)
    assert_equal(jitted[1], results[2])


def test_unique_along_an_axis():
    x = np.array([[1, 2, 1], [0, 2, 0], [1, 2, 1]])
    for axis in (0, 1):
        for result, expected in zip(jnp.unique(x, True, True, True, axis=axis),
                                    np.unique(x, True, True, True, axis=axis), strict=True):
            assert_equal(result, np.reshape(expected, result.shape))
    rows = np.array([[1, np.nan], [1, np.nan]])
    assert jnp.unique(rows, axis=0).shape == (1, 2) and jnp.unique(rows, axis=0, equal_nan=False).shape == (2, 2)
    assert jnp.unique(np.zeros((3, 0)), axis=0).shape == (1, 0)
    long = (np.arange(30)[:, None] * 7919 % 5 >> np.arange(20) % 3) & 1  # longer rows are compared in parts
    assert_equal(jnp.unique(long, axis=0), np.unique(long, axis=0))
    assert len(jaxlite.make_jaxpr(lambda x: jnp.unique(x, axis=0, size=3))(np.zeros((8, 300), int)).eqns) < 100


def test_unique_fills_up_and_cuts_off():
    x = np.array([3, 1, 2, 3, 1], np.int32)
    got = jaxlite.jit(lambda x: (jnp.unique(x, True, True, True, size=5), jnp.unique(x, size=5, fill_value=9),
                                 jnp.unique(x, True, True, True, size=2)))(x)
    filled, given, cut = got
    assert [each.tolist() for each in filled] == [[1, 2, 3, 1, 1], [1, 2, 0, 1, 1], [2, 0, 1, 2, 0], [2, 1, 2, 0, 0]]
    assert given.tolist() == [1, 2, 3, 9, 9]
    assert [each.tolist() for each in cut] == [[1, 2], [1, 2], [2, 0, 1, 2, 0], [2, 1]]
    assert jnp.unique(x[:0], size=2, fill_value=5).tolist() == [5, 5]
    assert jnp.intersect1d(x, x, fill_value="unused").tolist() == jnp.unique(x, fill_value=2**40).tolist() == [1, 2, 3]
    for made in (jnp.intersect1d(x, x, size=4, fill_value=1.5), jnp.setxor1d(x, x[:0], size=4, fill_value=1.5)):
        assert made.tolist() == [1, 2, 3, 1.5] and made.dtype == np.float32
    assert jnp.intersect1d(x, x, size=4, fill_value=7).dtype == x.dtype
    assert jnp.setdiff1d(x, x[:0], size=4, fill_value=1.5).tolist() == [1, 2, 3, 1]
    with pytest.raises(TypeError, match="a real number is needed"):
        jnp.setdiff1d(x, x, size=1, fill_value=1j)


def test_unique_of_the_array_api_tells_nan_apart():
    values, indices, inverse, counts = jnp.unique_all(FLOATS)
    assert np.isnan(np.asarray(values)).sum() == 2 and counts.tolist() == [1, 3, 2, 1, 1, 1]
    assert_equal(values, np.unique(FLOATS, equal_nan=False), signs=False)
    assert_equal(np.asarray(values)[np.asarray(inverse)], np.where(FLOATS == 0, np.float32(0), FLOATS))
    assert jnp.unique_counts(INTS).counts.tolist() == [2, 1, 2, 1]
    assert jnp.unique_inverse(INTS).inverse_indices.tolist() == [2, 0, 1, 2, 0, 3]
    assert jnp.unique_values(INTS, size=5, fill_value=0).tolist() == [1, 2, 3, 7, 0]


PAIRS = [(INTS, np.array([2, 7, 3, 7, 9])), (INTS[:0], INTS), (FLOATS, np.array([2, np.nan, 5, 0], np.float32)),
         (INTS.reshape(2, 3), np.array([2.5, 3]))]


@pytest.mark.parametrize(("a", "b"), PAIRS, ids=range(len(PAIRS)))
def test_operations_on_two_sets_match_numpy(a, b):
    for name in ("union1d", "intersect1d", "setdiff1d"):
        assert_equal(getattr(jnp, name)(a, b), getattr(np, name)(a, b), signs=False)
    common, first, second = jnp.intersect1d(a, b, return_indices=True)
    for result, expected in zip((first, second), np.intersect1d(a, b, return_indices=True)[1:], strict=True):
        assert_equal(result, expected)
    exclusive = np.asarray(jnp.setxor1d(a, b))
    assert_equal(exclusive[exclusive == exclusive], [x for x in np.setxor1d(a, b) if x == x])
    methods = ("auto", "sort", "binary_search", "compare_all")
    for result in jaxlite.jit(lambda a, b: [jnp.isin(a, b, method=method) for method in methods])(a, b):
        assert_equal(result, np.isin(a, b))
    assert_equal(jnp.isin(a, b, invert=True), np.isin(a, b, invert=True))


def test_operations_on_two_sets_with_a_size():
    a, b = np.array([3, 1, 2, 3, 1]), np.array([2, 7, 3, 7])
    got = jaxlite.jit(lambda a, b: (
        jnp.union1d(a, b, size=6), jnp.union1d(a, b, size=6, fill_value=9), jnp.intersect1d(a, b, size=3),
        jnp.intersect1d(a, b, return_indices=True, size=3, fill_value=-5), jnp.intersect1d(a, b + 9, size=2),
        jnp.setdiff1d(a, b, size=3), jnp.setdiff1d(a, b, size=3, fill_value=8), jnp.setxor1d(a, b, size=4),
        jnp.setxor1d(a, b, size=4, fill_value=0), jnp.setxor1d(a, a, size=2),
        jnp.setdiff1d(a, b, assume_unique=True, size=3)))(a, b)
    want = ([1, 2, 3, 7, 1, 1], [1, 2, 3, 7, 9, 9], [2, 3, 2], ([2, 3, -5], [2, 0, 5], [0, 2, 4]), [0, 0], [1, 0, 0],
            [1, 8, 8], [1, 7, 1, 1], [1, 7, 0, 0], [0, 0], [1, 1, 0])
    for result, expected in zip(got, want, strict=True):
        if isinstance(expected, tuple):
            assert [each.tolist() for each in result] == [list(each) for each in expected]
        else:
            assert result.tolist() == expected


def test_nan_of_two_arrays_differ():
    x = np.array([np.nan, 1, np.nan], np.float32)
    assert jnp.intersect1d(x, x).tolist() == [1]
    assert np.isnan(np.asarray(jnp.setdiff1d(x, x))).tolist() == [True]
    assert np.isnan(np.asarray(jnp.setxor1d(x, x))).tolist() == [True, True]
    assert jnp.isin(x, x).tolist() == [False, True, False]


def test_concrete_arrays_inside_jit_need_no_size():
    assert jaxlite.jit(lambda: jnp.unique(INTS).sum())() == 13
    assert jaxlite.jit(lambda: jnp.nonzero(INTS > 2)[0].shape[0])() == 3


x = np.ones((2, 3), np.float32)
ERRORS = [
    (TypeError, "sort requires", lambda: jnp.sort([2, 1])),
    (ValueError, "axis -1 is out of bounds", lambda: jnp.sort(3)),
    (TypeError, "'kind'", lambda: jnp.argsort(x, kind="quicksort")),
    (TypeError, "'order'", lambda: jnp.sort(x, order="name")),
    (TypeError, "need sequence", lambda: jnp.lexsort(())),
    (ValueError, "same shape", lambda: jnp.lexsort((x[0], x[:, 0]))),
    (ValueError, "kth 3 is out of bounds", lambda: jnp.partition(x, 3)),
    (ValueError, "empty", lambda: jnp.argmax(x[:0])),
    (IndexError, "axis 2", lambda: jnp.argmin(x, axis=2)),
    (TypeError, "integer", lambda: jnp.argmin(x, axis=(0, 1))),
    (TypeError, "complex64", lambda: jnp.argmax(x + 1j)),
    (NotImplementedError, "'out'", lambda: jnp.argmax(x, out=x)),
    (ValueError, "0d", lambda: jnp.nonzero(3)),
    (ValueError, "tuple of length 2", lambda: jnp.nonzero(x, size=2, fill_value=(1,))),
    (ValueError, "negative", lambda: jnp.nonzero(x, size=-1)),
    *[(ValueError, "not greater than the size", call) for call in (
        lambda: jnp.compress(x[0] > 0, x, axis=1, size=-1), lambda: jnp.extract(x > 0, x, size=-1),
        lambda: jnp.compress(x[0] > 0, x, axis=1, size=4), lambda: jnp.compress(x[0, :2] > 0, x, axis=1, size=3),
        lambda: jnp.extract(x > 0, x, size=x.size + 1))],
    (ConcretizationTypeError, "size argument", lambda: jaxlite.jit(jnp.nonzero)(x)),
    (ConcretizationTypeError, "size argument", lambda: jaxlite.jit(jnp.unique)(x)),
    (ConcretizationTypeError, "size argument", lambda: jaxlite.jit(jnp.union1d)(x, x)),
    (ValueError, "out of bounds", lambda: jnp.extract(np.ones(9), x)),
    (ValueError, "in-place", lambda: jnp.place(x, x > 1, x)),
    (ValueError, "same size", lambda: jnp.place(x, x[0] > 1, x, inplace=False)),
    (ValueError, "empty array", lambda: jnp.place(x, x > 1, x[:0], inplace=False)),
    (ValueError, "side='middle'", lambda: jnp.searchsorted(x[0], 1, side="middle")),
    (ValueError, "method='guess'", lambda: jnp.searchsorted(x[0], 1, method="guess")),
    (ValueError, "1-dimensional", lambda: jnp.searchsorted(x, 1)),
    (ValueError, "1-dimensional", lambda: jnp.digitize(x, x)),
    (ValueError, "equal to choicelist", lambda: jnp.select([x > 1], [x, x])),
    (ValueError, "non-empty", lambda: jnp.select([], [])),
    (ValueError, "1 or 2", lambda: jnp.piecewise(x, [x > 1], [1, 2, 3])),
    (TypeError, "elementwise", lambda: jnp.piecewise(x, [x > 1], [lambda x: x[0]])),
    (ValueError, "fill_value must be specified", lambda: jnp.unique(x[:0], size=2)),
    (ValueError, "negative", lambda: jnp.unique(x, size=-1)),
    (ValueError, "axis 2", lambda: jnp.unique(x, axis=2)),
    (ValueError, "method='guess'", lambda: jnp.isin(x, x, method="guess")),
]


@pytest.mark.parametrize(("error", "text", "call"), ERRORS, ids=range(len(ERRORS)))
def test_errors(error, text, call):
    with pytest.raises(error, match=text):
        call()


def test_sets_of_complex_numbers_are_strongly_typed():
    x = jnp.full(3, 1j)
    for result in (jnp.unique(x), jnp.unique(x, size=2), jnp.unique(x[None], axis=0), jnp.union1d(x, x), jnp.intersect1d(x, x),
                   jnp.setdiff1d(x, 2 * x), jnp.setxor1d(x, 2 * x)):
        assert result.dtype == jnp.complex64 and not result.weak_type
    assert jnp.sort(x).weak_type and jnp.unique(jnp.full(3, 1.0)).weak_type
