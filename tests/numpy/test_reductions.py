"""Sums, extremes, logic, moments, NaN-skipping reductions and running totals of jaxlite.numpy, against NumPy."""

from __future__ import annotations

import warnings

import ml_dtypes
import numpy as np
import pytest

import jaxlite
import jaxlite.numpy as jnp

bfloat16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = [np.dtype(name) for name in ("bool", "int8", "uint8", "int32", "float16", "float32", "complex64")]
DTYPES.append(bfloat16)
ARGUMENTS = [{}, {"axis": 1}, {"axis": (0, -1)}, {"axis": ()}, {"axis": 0, "keepdims": True}]


def draw(dtype, shape=(3, 4, 2)):
    """Small numbers, exact in every dtype, with both signs, zeros and repetitions where the dtype has them."""
    rng = np.random.default_rng(7)
    values = rng.integers(-4, 5, shape)
    if dtype.kind == "c":
        return (values + 1j * rng.integers(-4, 5, shape)).astype(dtype)
    if dtype.kind in "bu":
        values = np.abs(values)
    return (values if dtype.kind in "biu" else values / 2).astype(dtype)


def expected_dtype(name, dtype):
    if name in ("all", "any"):
        return np.dtype(bool)
    if name == "count_nonzero":
        return np.dtype(np.int32)
    if name in ("sum", "prod", "nansum", "nanprod") and dtype.kind in "biu":
        return np.dtype(np.uint32 if dtype.kind == "u" else np.int32)
    if name in ("mean", "nanmean"):
        return np.dtype(np.float32) if dtype.kind in "biu" else dtype
    if name in ("var", "std", "nanvar", "nanstd"):
        return np.dtype(np.float32) if dtype.kind in "biuc" else dtype
    return dtype


def check(result, expected, dtype, what):
    assert result.dtype == dtype, (what, result.dtype, dtype)
    assert result.shape == np.shape(expected), (what, result.shape, np.shape(expected))
    if dtype.kind in "biu":
        np.testing.assert_array_equal(np.asarray(result), np.asarray(expected).astype(dtype), str(what))
        return
    wide = np.complex128 if dtype.kind == "c" else np.float64
    rtol = {"float16": 2e-3, "bfloat16": 1.6e-2}.get(dtype.name, 1e-5)
    np.testing.assert_allclose(np.asarray(result).astype(wide), np.asarray(expected).astype(wide), rtol, rtol, True,
                               str(what))


def reference(name, x, **arguments):
    """NumPy's result, computed wide: integers as 64 bits, half floats as double precision."""
    wide = {"c": np.complex128, "i": np.int64, "u": np.uint64}.get(x.dtype.kind)
    if x.dtype.kind == "b":
        wide = None if name not in ("var", "std", "nanvar", "nanstd", "nansum", "nanprod") else np.int64
    elif wide is None:
        wide = np.float64
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return getattr(np, name)(x if wide is None else x.astype(wide), **arguments)


NAMES = ["sum", "prod", "max", "min", "all", "any", "mean", "var", "std", "count_nonzero", "nansum", "nanprod",
         "nanmax", "nanmin", "nanmean", "nanvar", "nanstd"]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_reductions_match_numpy_over_axes(dtype):
    x = draw(dtype)
    cases = [(name, arguments) for name in NAMES for arguments in ARGUMENTS]
    results = jaxlite.jit(lambda x: [getattr(jnp, name)(x, **arguments) for name, arguments in cases])(x)
    for (name, arguments), result in zip(cases, results, strict=True):
        check(result, reference(name, x, **arguments), expected_dtype(name, dtype), (name, arguments))


@pytest.mark.parametrize("name", NAMES)
def test_eager_reductions_of_nan_and_infinity_match_numpy(name):
    x = np.array([[1, np.nan, -3, 2], [np.nan, np.nan, np.nan, np.nan], [0, -0.0, np.inf, -np.inf]], np.float32)
    result = getattr(jnp, name)(x, axis=1)
    check(result, reference(name, x, axis=1), expected_dtype(name, x.dtype), name)


def test_complex_extremes_are_lexicographic_and_spread_nan():
    x = np.array([[1 + 2j, 1 - 5j, 0 + 9j], [2, 1, complex(1, np.nan)]], np.complex64)
    largest, least, masked = jaxlite.jit(lambda x: (
        jnp.max(x, 1), jnp.min(x, 1), jnp.max(x[0], where=np.array([False, True, True]), initial=-9)))(x)
    assert largest[0] == 1 + 2j and least[0] == 9j and masked == 1 - 5j
    assert np.isnan(largest[1]) and np.isnan(least[1])
    named = jaxlite.vmap(lambda row: jnp.max(row, axis=(0, "i")), axis_name="i")
    assert list(named(x[:1].reshape(3, 1))) == [1 + 2j] * 3 and np.isnan(named(x)).all()


WHERE = np.array([[True, False, True, True], [False] * 4, [True, True, False, True]])
MASKED = [
    *((name, {}) for name in ("sum", "prod", "all", "any", "mean", "nansum", "nanprod", "nanmean")),
    *((name, {"initial": initial}) for name in ("max", "min", "nanmax", "nanmin") for initial in (1, -3)),
    ("sum", {"initial": 10}), ("prod", {"initial": 2}), ("var", {}), ("std", {}), ("nanvar", {}), ("nanstd", {}),
]


@pytest.mark.parametrize("dtype", [np.dtype(np.int32), np.dtype(np.float32)], ids=str)
def test_masks_and_initial_values_match_numpy(dtype):
    x = draw(dtype, (3, 4))
    if dtype.kind == "f":
        x[0, 2] = np.nan
    cases = [(name, {**arguments, **axes, "where": where}) for name, arguments in MASKED
             for axes, where in (({}, WHERE), ({"axis": 1}, WHERE[0]), ({"axis": 0, "keepdims": True}, WHERE[:, :1]),
                                 ({"axis": -1}, WHERE))]
    results = jaxlite.jit(lambda x: [getattr(jnp, name)(x, **arguments) for name, arguments in cases])(x)
    for (name, arguments), result in zip(cases, results, strict=True):
        expected = reference(name, x, **arguments)
        if name in ("nanmax", "nanmin"):
            expected = np.asarray(expected)
        check(result, expected, expected_dtype(name, dtype), (name, arguments))


def test_empty_reductions():
    x = np.zeros((0, 3), np.float32)
    got = jaxlite.jit(lambda x: [jnp.sum(x), jnp.prod(x, 0), jnp.all(x), jnp.any(x), jnp.mean(x), jnp.max(x, initial=4),
                                 jnp.var(x), jnp.max(x, axis=1), jnp.cumsum(x, 0), jnp.nansum(x)])(x)
    for result, value in zip(got, [0, [1, 1, 1], True, False, np.nan, 4, np.nan, np.zeros(0), x, 0], strict=True):
        np.testing.assert_array_equal(result, value)
    for name in ("max", "min", "nanmax", "nanmin"):
        with pytest.raises(ValueError, match="zero-size array to reduction operation"):
            getattr(jnp, name)(x)


def test_narrow_types_do_not_overflow():
    assert jnp.sum(np.full(1000, 100, np.int8)) == 100_000
    assert jnp.sum(np.full(100, 250, np.uint8)).dtype == np.uint32
    assert jnp.sum(np.full(5, 100, np.int8), promote_integers=False) == np.int8(500 - 512)
    halves = np.ones(4099, np.float16)  # one more than half floats can count to, one by one
    assert jnp.sum(halves) == np.float16(4099) and jnp.mean(halves) == 1
    assert jnp.mean(np.full(100, 60000, np.float16)) == 60000


def test_dtype_argument():
    x = np.array([[1, 2], [3, 0]], np.int32)
    cases = [("sum", "float16"), ("prod", "complex64"), ("mean", "float16"), ("var", "bfloat16"), ("sum", "int8"),
             ("nansum", "float32"), ("cumsum", "float16"), ("cumprod", "uint8"), ("std", "float32")]
    results = jaxlite.jit(lambda x: [getattr(jnp, name)(x, 0, dtype=dtype) for name, dtype in cases])(x)
    for (name, dtype), result in zip(cases, results, strict=True):
        check(result, getattr(np, name)(x.astype(np.float64), 0), np.dtype(jnp.dtype(dtype)), name)
    assert jnp.sum(x, 0, dtype=bool).tolist() == [True, True]
    assert jnp.prod(x, 0, dtype=bool).tolist() == [True, False]


def test_moments_with_degrees_of_freedom_and_known_mean():
    x = draw(np.dtype(np.float32), (3, 4))
    c = draw(np.dtype(np.complex64), (3, 4))
    mean = x.mean(1, keepdims=True)
    got = jaxlite.jit(lambda x, c: [
        jnp.var(x, 1, ddof=1), jnp.std(x, 1, correction=1.5), jnp.var(x, 1, mean=mean), jnp.var(c, 0, ddof=1),
        jnp.nanvar(x, 1, ddof=1), jnp.nanstd(c), jnp.var(x, 1, ddof=4), jnp.std(x, 1, ddof=5)])(x, c)
    nan = np.full(3, np.nan)
    want = [x.var(1, ddof=1), x.std(1, ddof=1.5), x.var(1), c.var(0, ddof=1), x.var(1, ddof=1), c.std(), nan, nan]
    for result, expected in zip(got, want, strict=True):
        np.testing.assert_allclose(result, expected, 1e-5)
    with pytest.raises(ValueError, match="can't be provided simultaneously"):
        jnp.var(x, ddof=1, correction=1)
    with pytest.raises(ValueError, match="dtype must be complex"):
        jnp.var(c, dtype="float32")


RUNNING = ["cumsum", "cumprod", "nancumsum", "nancumprod"]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_running_totals_match_numpy(dtype):
    x = draw(dtype, (2, 3))
    cases = [(name, axis) for name in RUNNING for axis in (None, 0, -1)]
    results = jaxlite.jit(lambda x: [getattr(jnp, name)(x, axis) for name, axis in cases])(x)
    own = np.dtype(np.int32) if dtype.kind == "b" else dtype
    for (name, axis), result in zip(cases, results, strict=True):
        with np.errstate(all="ignore"):
            expected = getattr(np, name)(x.astype(np.int64) if dtype.kind in "biu" else x.astype(complex), axis)
        if dtype.kind in "biu":  # they wrap
            expected = expected.astype(own)
        check(result, expected if dtype.kind in "biuc" else expected.real, own, (name, axis))


def test_running_totals_of_nan_and_scalars():
    x = np.array([1, np.nan, 2], np.float32)
    np.testing.assert_array_equal(jnp.cumsum(x), np.cumsum(x))
    np.testing.assert_array_equal(jnp.nancumsum(x), [1, 1, 3])
    np.testing.assert_array_equal(jnp.nancumprod(x), [1, 1, 2])
    assert jnp.cumsum(3).tolist() == [3]
    np.testing.assert_array_equal(jnp.cumsum(np.array([2, 0, 1]), dtype=bool), [True, True, True])


def test_cumulative_functions_of_the_array_api():
    x = np.array([[1, 2], [3, 4]], np.int8)
    assert jnp.cumulative_sum(x, axis=1, include_initial=True).tolist() == [[0, 1, 3], [0, 3, 7]]
    assert jnp.cumulative_prod(x, axis=0, include_initial=True).tolist() == [[1, 1], [1, 2], [3, 8]]
    assert jnp.cumulative_sum(x[0]).dtype == np.int32
    with pytest.raises(ValueError, match="axis"):
        jnp.cumulative_sum(x)
    with pytest.raises(ValueError, match="scalar"):
        jnp.cumulative_sum(3)


def test_peak_to_peak_and_aliases():
    x = draw(np.dtype(np.int32))
    np.testing.assert_array_equal(jnp.ptp(x, axis=(0, 2), keepdims=True), np.ptp(x, axis=(0, 2), keepdims=True))
    assert jnp.amax(x) == x.max() and jnp.amin(x, axis=[0, 1]).tolist() == x.min((0, 1)).tolist()


def test_results_are_strongly_typed():
    weak = jnp.asarray(2.5)
    for name in ("sum", "prod", "max", "min", "mean", "ptp", "var", "nansum", "nanmean"):
        assert not getattr(jnp, name)(weak).aval.weak_type, name


def test_methods_are_the_functions():
    x = jnp.asarray(draw(np.dtype(np.float32), (2, 3)))
    for name in ("sum", "prod", "max", "min", "mean", "var", "std", "all", "any", "ptp", "cumsum", "cumprod"):
        np.testing.assert_array_equal(getattr(x, name)(), getattr(jnp, name)(x))


def test_program_is_flat_and_short():
    x = np.ones((2, 3), np.float32)

    def names(fun):
        return [eqn.primitive.name for eqn in jaxlite.make_jaxpr(fun)(x).jaxpr.eqns]

    assert names(jnp.sum) == ["reduce_sum"]
    assert names(lambda x: jnp.mean(x, 1)) == ["reduce_sum", "div"]
    assert names(lambda x: jnp.max(x, 1, keepdims=True)) == ["reduce_max", "broadcast_in_dim"]
    assert names(lambda x: jnp.argmax(x)) == ["reshape", "argmax"]
    assert names(lambda x: jnp.cumsum(x, 1)) == ["cumsum"]


ERRORS = [
    (TypeError, "sum requires ndarray", lambda: jnp.sum([1, 2])),
    (ValueError, "out of bounds", lambda: jnp.sum(np.ones((2, 3)), axis=2)),
    (IndexError, "out of bounds", lambda: jnp.mean(np.ones((2, 3)), axis=-3)),
    (ValueError, "duplicate", lambda: jnp.sum(np.ones((2, 3)), axis=(0, 0))),
    (NameError, "unbound axis name: x", lambda: jnp.sum(np.ones(3), axis="x")),
    (TypeError, "integer", lambda: jnp.sum(np.ones(3), axis=1.5)),
    (TypeError, "integer", lambda: jnp.cumsum(np.ones((2, 3)), axis=(0, 1))),
    (NotImplementedError, "'out'", lambda: jnp.sum(np.ones(3), out=np.zeros(()))),
    (ValueError, "boolean", lambda: jnp.sum(np.ones(3), where=np.ones(3))),
    (ValueError, r"\(2, 3\)", lambda: jnp.sum(np.ones(3), where=np.ones((2, 3), bool))),
    (ValueError, r"\(2,\)", lambda: jnp.mean(np.ones(3), where=np.ones(2, bool))),
    (ValueError, "specify 'initial'", lambda: jnp.max(np.ones(3), where=np.ones(3, bool))),
    (ValueError, "scalar", lambda: jnp.max(np.ones(3), initial=np.ones(3))),
    (ValueError, "inexact", lambda: jnp.std(np.ones(3), dtype="int32")),
]


@pytest.mark.parametrize(("error", "text", "call"), ERRORS, ids=[text for _, text, _ in ERRORS])
def test_errors(error, text, call):
    with pytest.raises(error, match=text):
        call()


def test_variance_of_four_bits():
    x = jnp.asarray([1, 2, 3, 6], "int4")
    assert jnp.var(x, dtype="float32") == 3.5
    np.testing.assert_allclose(jnp.std(x, dtype="float32") ** 2, 3.5, rtol=1e-6)
    assert jnp.nanvar(x, dtype="bfloat16") == 3.5


def test_the_mean_of_a_deviation_without_nan_is_nanmean():  # so that one program rounds both alike
    names = lambda fun: " ".join(eqn.primitive.name for eqn in jaxlite.make_jaxpr(fun)(np.ones(16, np.float32)).eqns)
    assert names(lambda x: jnp.nanmean(x, keepdims=True)) in names(jnp.nanstd)


def test_complex_extremes_of_equal_real_parts_have_the_gradient_of_the_one_that_is_taken():
    x = jnp.array([[2 - 4j, 3j, 1.0], [2 - 1j, 1.0, 1.0]], jnp.complex64)
    for reduce, expected in ((jnp.min, [[1, 1, 0.5], [0, 0, 0.5]]), (jnp.max, [[0, 0, 0.5], [1, 1, 0.5]])):
        for keepdims in (False, True):
            pull = jaxlite.vjp(lambda x, reduce=reduce, keepdims=keepdims: reduce(x, axis=0, keepdims=keepdims), x)
            np.testing.assert_array_equal(pull[1](jnp.ones_like(pull[0]))[0], expected)
        batched = jaxlite.vmap(jaxlite.jit(jaxlite.grad(lambda x, reduce=reduce: reduce(x).real)))(x.T)
        np.testing.assert_array_equal(batched, np.transpose(expected))
