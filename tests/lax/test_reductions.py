"""Reductions of lax: named ones, argmax and argmin, and `reduce` with any computation, against NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import jaxlite
import jaxlite.numpy as jnp
from jaxlite import lax
from lowering import xla

bfloat16 = np.dtype(ml_dtypes.bfloat16)
INTS = [np.dtype(name) for name in ("int8", "int32", "uint8", "uint32")]
FLOATS = [np.dtype(np.float16), bfloat16, np.dtype(np.float32)]
COMPLEX = np.dtype(np.complex64)
BOOL = np.dtype(bool)
AXES = [(), (0,), (2, 0), (0, 1, 2)]
SHAPE = (3, 4, 2)

NAMED = [
    *((lax.reduce_sum, np.sum, dtype) for dtype in (*INTS, *FLOATS, COMPLEX)),
    *((lax.reduce_prod, np.prod, dtype) for dtype in (*INTS, *FLOATS, COMPLEX)),
    *((lax.reduce_max, np.max, dtype) for dtype in (*INTS, *FLOATS, COMPLEX, BOOL)),
    *((lax.reduce_min, np.min, dtype) for dtype in (*INTS, *FLOATS, COMPLEX, BOOL)),
    *((lax.reduce_and, np.bitwise_and.reduce, dtype) for dtype in (*INTS, BOOL)),
    *((lax.reduce_or, np.bitwise_or.reduce, dtype) for dtype in (*INTS, BOOL)),
    *((lax.reduce_xor, np.bitwise_xor.reduce, dtype) for dtype in (*INTS, BOOL)),
]


def draw(rng, shape, dtype):
    if dtype == BOOL:
        return rng.random(shape) < 0.6
    if dtype.kind in "iu":
        return rng.integers(0 if dtype.kind == "u" else -5, 6, shape).astype(dtype)
    if dtype.kind == "c":
        return (rng.integers(-2, 3, shape) + 1j * rng.integers(-2, 3, shape)).astype(dtype)
    return (rng.integers(-8, 9, shape) / 4).astype(dtype)


def wide(x):
    """Narrow floats as float64, so that NumPy can be asked; anything else as it is."""
    x = np.asarray(x)
    return x.astype(np.float64) if x.dtype in FLOATS else x


def outcome(case):
    function, _, dtype = case
    return f"{function.__name__}-{dtype}"


@pytest.mark.parametrize("case", NAMED, ids=outcome)
def test_named_reductions_match_numpy(case, rng):
    function, oracle, dtype = case
    x = draw(rng, SHAPE, dtype)
    results = jaxlite.jit(lambda x: [function(x, axes) for axes in AXES])(x)
    for axes, got in zip(AXES, results, strict=True):
        expected = x if axes == () else oracle(wide(x), axis=axes)
        assert got.dtype == dtype
        with np.errstate(over="ignore"):
            np.testing.assert_allclose(wide(got), wide(np.asarray(expected).astype(dtype)),
                                       rtol=0.1 if dtype.itemsize == 2 and dtype.kind != "i" else 1e-5)


@pytest.mark.parametrize("function, dtype, expected", [
    (lax.reduce_sum, np.float32, 0), (lax.reduce_prod, np.int32, 1),
    (lax.reduce_max, np.float32, -np.inf), (lax.reduce_min, np.float16, np.inf), (lax.reduce_max, bfloat16, -np.inf),
    (lax.reduce_max, np.int8, -128), (lax.reduce_min, np.uint8, 255), (lax.reduce_max, bool, False),
    (lax.reduce_max, np.complex64, complex(-np.inf, 0)), (lax.reduce_max, ml_dtypes.float8_e4m3fn, -448),
    (lax.reduce_and, np.int16, -1), (lax.reduce_and, bool, True), (lax.reduce_or, np.uint32, 0),
])
def test_reduction_of_nothing_is_the_identity(function, dtype, expected):
    got = np.asarray(function(np.zeros((0, 2), dtype), (0,)))
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, np.full(2, expected, dtype))


def test_extremes_propagate_nan():
    x = np.array([[1, np.nan, 3], [4, 5, 6]], np.float32)
    np.testing.assert_array_equal(lax.reduce_max(x, (1,)), [np.nan, 6])
    np.testing.assert_array_equal(lax.reduce_min(x, (0,)), [1, np.nan, 3])


def test_scalars_and_weak_types():
    weak = jaxlite.ShapeDtypeStruct((3,), np.float32, weak_type=True)
    weak_int = jaxlite.ShapeDtypeStruct((3,), np.int32, weak_type=True)
    assert float(lax.reduce_sum(2.5, ())) == 2.5
    for function in (lax.reduce_sum, lax.reduce_prod, lax.reduce_max, lax.reduce_min):
        assert jaxlite.eval_shape(lambda x, function=function: function(x, (0,)), weak).weak_type
    for function in (lax.reduce_and, lax.reduce_or, lax.reduce_xor):
        assert not jaxlite.eval_shape(lambda x, function=function: function(x, (0,)), weak_int).weak_type
    assert not jaxlite.eval_shape(lambda x: lax.argmax(x, 0, np.int32), weak).weak_type


@pytest.mark.parametrize("call, error, text", [
    (lambda x: lax.reduce_sum(x, (0, 0)), ValueError, "duplicate value in 'axes'"),
    (lambda x: lax.reduce_sum(x, (2,)), ValueError, r"reduction axes \(2,\) contains out-of-bounds"),
    (lambda x: lax.reduce_max(x, (-1,)), ValueError, r"out-of-bounds indices for float32\[2,3\]"),
    (lambda x: lax.reduce_sum(x, 0), TypeError, "axes must be a sequence of integers"),
    (lambda x: lax.reduce_sum(x, (0.5,)), TypeError, "axes must be a sequence of integers"),
    (lambda x: lax.reduce_sum(lax.gt(x, 0.0), (0,)), TypeError, "reduce_sum does not accept dtype bool"),
    (lambda x: lax.reduce_and(x, (0,)), TypeError, "reduce_and does not accept dtype float32"),
    (lambda x: lax.argmax(x, -1, np.int32), ValueError, "Invalid axis -1"),
    (lambda x: lax.argmin(x, 2, np.int32), ValueError, "Invalid axis 2"),
    (lambda x: lax.argmax(x, 0, np.float32), TypeError, "index_dtype must be an integer type"),
    (lambda x: lax.argmax(lax.complex(x, x), 0, np.int32), TypeError, "argmax does not accept dtype complex64"),
    (lambda x: lax.argmax(np.zeros((0, 2), np.float32), 0, np.int32), ValueError, "require non-empty"),
])
def test_wrong_arguments_of_named_reductions(call, error, text):
    with pytest.raises(error, match=text):
        jaxlite.make_jaxpr(call)(np.ones((2, 3), np.float32))


# --- argmax and argmin -------------------------------------------------------------------------------


@pytest.mark.parametrize("function, oracle", [(lax.argmax, np.argmax), (lax.argmin, np.argmin)])
@pytest.mark.parametrize("dtype", [*INTS[:2], INTS[3], *FLOATS, BOOL], ids=str)
def test_positions_match_numpy(function, oracle, dtype, rng):
    x = draw(rng, SHAPE, dtype)  # small integers: many ties
    got = jaxlite.jit(lambda x: [function(x, axis, np.int32) for axis in range(3)])(x)
    for axis in range(3):
        np.testing.assert_array_equal(got[axis], oracle(wide(x), axis))
        assert got[axis].dtype == np.int32


@pytest.mark.parametrize("function, oracle", [(lax.argmax, np.argmax), (lax.argmin, np.argmin)])
def test_positions_in_large_arrays(function, oracle, rng):
    x = rng.integers(-50, 50, (300, 120)).astype(np.float32)  # large enough for the form in two passes
    x[:, 7] = np.nan
    x[5, 3] = np.nan
    x[:, 9] = np.inf
    x[:, 11] = -np.inf
    for axis in (0, 1):
        np.testing.assert_array_equal(function(x, axis, np.uint8), oracle(x, axis).astype(np.uint8))
    short = x[:, :9].repeat(20, axis=0)
    np.testing.assert_array_equal(function(short, 1, np.int32), oracle(short, 1))
    k = rng.integers(-50, 50, 40000).astype(np.int32)
    assert int(function(k, 0, np.int32)) == oracle(k)


@pytest.mark.parametrize("function, oracle", [(lax.argmax, np.argmax), (lax.argmin, np.argmin)])
@pytest.mark.parametrize("shape, axis", [((300, 120), 0), ((300, 120), 1), ((5400, 9), 1), ((40, 1024), 1), ((2, 32768, 1), 1),
                                         ((40_000,), 0), ((3, 16411), 1)], ids=str)
@pytest.mark.parametrize("dtype", [*FLOATS[1:], np.dtype("float8_e4m3fn")], ids=str)
def test_positions_where_rows_or_parts_are_searched_first(function, oracle, shape, axis, dtype, rng):
    """Ties, infinities and NaN, behind them and in front of them."""
    x = rng.integers(-3, 4, shape).astype(np.float32)
    if dtype.itemsize > 1:
        x[rng.random(shape) < 1e-2] = np.inf
        x[rng.random(shape) < 1e-2] = -np.inf
    few = x.copy()
    few[rng.random(shape) < 1e-3] = np.nan
    for values in (x, few):
        got = function(jnp.asarray(values, dtype), axis, np.int32)
        np.testing.assert_array_equal(got, oracle(np.asarray(values, dtype).astype(np.float32), axis))


@pytest.mark.parametrize("function, oracle", [(lax.argmax, np.argmax), (lax.argmin, np.argmin)])
@pytest.mark.parametrize("dtype", [np.dtype(np.float32), np.dtype(jnp.bfloat16)], ids=str)
def test_positions_in_a_loop(function, oracle, dtype, rng):
    """Rows of 30 are searched in two passes there."""
    x = rng.integers(-3, 4, (6, 30, 30)).astype(np.float32)
    x[1, :, 4], x[2, 5], x[3] = np.inf, -np.inf, np.nan
    x[4, 7, 9] = x[4, 3, 20] = x[4, 20, 3] = np.nan
    x = x.astype(dtype)
    got = lax.map(lambda m: (function(m, 0, np.int32), function(m, 1, np.uint8)), x)
    for axis, places in enumerate(got):
        np.testing.assert_array_equal(places, oracle(x.astype(np.float32), axis + 1))


def test_extremes_are_found_with_their_positions():
    text = jaxlite.jit(lambda x: (x.max(1), x.argmax(1))).lower(np.ones((300, 6), np.float32)).compile().as_text()
    assert text.count(" reduce(") == 1


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, bool])
def test_positions_in_large_arrays_of_integers(dtype, rng):
    x = rng.random((2, 1 << 17)) > 0.9999
    x = (x if dtype is bool else x * 250 + 1).astype(dtype)
    for rows in (x, x[:, :-1], x.T):
        for function, oracle in ((lax.argmax, np.argmax), (lax.argmin, np.argmin)):
            np.testing.assert_array_equal(function(rows, rows.ndim - 1, np.int32), oracle(rows, -1))
            np.testing.assert_array_equal(function(rows, 0, np.int32), oracle(rows, 0))


def test_positions_of_integers_in_columns_are_one_reduction():
    for dtype in (np.int32, bool):
        text = jaxlite.jit(lambda x: lax.argmax(x, 0, np.int32)).lower(np.ones((300, 120), dtype)).as_text()
        assert text.count("stablehlo.reduce") == 1


def test_wide_positions_are_not_converted(x64):
    text = jaxlite.jit(lambda x: lax.argmax(x, 1, np.int64)).lower(np.ones((300, 3), np.float32)).as_text()
    assert "stablehlo.convert" not in text


def test_positions_of_nan_infinities_and_zeros():
    x = np.array([[1, np.nan, -np.inf, np.nan], [-np.inf] * 4, [0.0, -0.0, -0.0, 0.0], [np.inf, 1, np.inf, 2]],
                 np.float32)
    np.testing.assert_array_equal(lax.argmax(x, 1, np.int32), [1, 0, 0, 0])
    np.testing.assert_array_equal(lax.argmin(x, 1, np.int32), [1, 0, 0, 1])


def test_positions_where_all_is_the_worst_value():
    assert int(lax.argmax(np.full(5, np.iinfo(np.int32).min, np.int32), 0, np.int32)) == 0
    assert int(lax.argmin(np.full(5, 255, np.uint8), 0, np.int8)) == 0
    assert lax.argmax(np.zeros((3, 0), np.float32), 0, np.int8).shape == (0,)


def test_index_dtypes():
    x = np.array([3.0, 9.0], np.float32)
    assert lax.argmax(x, 0, np.uint16).dtype == np.uint16
    assert lax.argmax(x, 0, int).dtype == np.int32
    with pytest.warns(UserWarning, match="int64"):
        assert lax.argmax(x, 0, np.int64).dtype == np.int32


# --- reduce ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("computation, init, dtype, primitive", [
    (lax.add, 0.0, np.float32, "reduce_sum"), (lax.mul, 1, np.int32, "reduce_prod"),
    (lax.max, -np.inf, np.float32, "reduce_max"), (lax.min, np.inf, np.float32, "reduce_min"),
    (lax.max, -(2**31), np.int32, "reduce_max"), (lax.min, np.uint8(255), np.uint8, "reduce_min"),
    (lax.bitwise_and, -1, np.int32, "reduce_and"), (lax.bitwise_or, False, np.bool_, "reduce_or"),
    (lax.bitwise_xor, 0, np.int32, "reduce_xor"), (lax.add, 1.0, np.float32, "reduce"),
    (lax.max, 0.0, np.float32, "reduce"), (lambda x, y: lax.add(x, y), 0.0, np.float32, "reduce"),
])
def test_reduce_recognises_monoids(computation, init, dtype, primitive):
    jaxpr = jaxlite.make_jaxpr(lambda x: lax.reduce(x, init, computation, (0,)))(np.ones((2, 3), dtype)).jaxpr
    assert [eqn.primitive.name for eqn in jaxpr.eqns] == [primitive]


def test_reduce_of_one_operand(rng):
    x = draw(rng, (3, 4), np.dtype(np.float32))
    np.testing.assert_allclose(lax.reduce(x, 10.0, lax.add, (0,)), 10 + x.sum(0), rtol=1e-6)
    np.testing.assert_allclose(lax.reduce(x, -np.inf, lambda a, b: lax.max(a, b), (0, 1)), x.max())
    assert int(lax.reduce(np.array([1, 2, 4], np.int32), 0, lambda a, b: lax.bitwise_or(a, b), (0,))) == 7


def test_reduce_of_a_pytree(rng):
    x, y = draw(rng, (3, 4), np.dtype(np.float32)), draw(rng, (3, 4), np.dtype(np.int32))

    def both(a, b):
        return {"sum": lax.add(a["sum"], b["sum"]), "max": lax.max(a["max"], b["max"])}

    got = lax.reduce({"sum": x, "max": y}, {"sum": 0.0, "max": -100}, both, (1,))
    np.testing.assert_allclose(got["sum"], x.sum(1), rtol=1e-6)
    np.testing.assert_array_equal(got["max"], y.max(1))


def test_reduce_with_a_computation_that_looks_at_both_operands(rng):
    x = rng.permutation(12).astype(np.float32).reshape(3, 4)
    index = np.arange(12, dtype=np.int32).reshape(3, 4)

    def later(a, b):
        first = lax.gt(a[0], b[0])
        return lax.select(first, a[0], b[0]), lax.select(first, a[1], b[1])

    value, position = jaxlite.jit(lambda x, i: lax.reduce((x, i), (-np.inf, -1), later, (0, 1)))(x, index)
    assert float(value) == 11
    assert int(position) == np.argmax(x)


def test_reduce_calls_jitted_computations():
    product = jaxlite.jit(lambda a, b: lax.mul(lax.mul(a, b), 2.0))
    assert float(lax.reduce(np.ones(3, np.float32), 0.5, product, (0,))) == 4.0


def test_reduce_with_a_traced_initial_value():
    got = jaxlite.jit(lambda x, start: lax.reduce(x, start, lax.add, (0,)))(np.ones(3, np.float32), np.float32(2))
    assert float(got) == 5


def test_reduce_keeps_weak_types():
    weak = jaxlite.ShapeDtypeStruct((3,), np.float32, weak_type=True)
    strong = jaxlite.ShapeDtypeStruct((3,), np.float32)

    def result(init, operand):
        return jaxlite.eval_shape(lambda x: lax.reduce(x, init, lax.add, (0,)), operand)

    assert result(1.0, weak).weak_type
    assert not result(1.0, strong).weak_type
    assert not result(np.float32(1), weak).weak_type


def test_computations_that_say_the_same_compile_once():
    def computation():
        return lambda a, b: lax.add(lax.mul(a, 2.0), b)

    def jaxpr_of(computation):
        made = jaxlite.make_jaxpr(lambda x: lax.reduce(x, 1.0, computation, (0,)))(np.ones(3, np.float32))
        return made.jaxpr.eqns[0].params["jaxpr"]

    assert jaxpr_of(computation()) is jaxpr_of(computation())
    assert jaxpr_of(computation()) is not jaxpr_of(lambda a, b: lax.add(lax.mul(a, 3.0), b))
    assert jaxpr_of(computation()) is not jaxpr_of(lambda a, b: lax.add(lax.mul(b, 2.0), a))
    assert jaxpr_of(lambda a, b: lax.integer_pow(a, 2)) is not jaxpr_of(lambda a, b: lax.integer_pow(a, 3))


ones = np.ones((2, 3), np.float32)


@pytest.mark.parametrize("call, error, text", [
    (lambda x: lax.reduce(x, x, lax.add, (0,)), ValueError, "non-scalar initial value"),
    (lambda x: lax.reduce((x, x), 0.0, lax.add, (0,)), ValueError, "same tree structure as init_values"),
    (lambda x: lax.reduce((), (), lambda a, b: (), (0,)), ValueError, "at least one operand"),
    (lambda x: lax.reduce(x, np.int32(1), lax.add, (0,)), TypeError, "initial value has dtype int32"),
    (lambda x: lax.reduce(x, 0.0, lambda a, b: (a, b), (0,)), ValueError, "same tree structure as the operands"),
    (lambda x: lax.reduce(x, 0.0, lambda a, b: lax.gt(a, b), (0,)), ValueError, r"f32\[\], but gave bool\[\]"),
    (lambda x: lax.reduce((x, ones[:1]), (0.0, 0.0), lambda a, b: a, (0,)), ValueError, "equal shapes"),
    (lambda x: lax.reduce(x, 0.0, lax.add, 0), TypeError, "dimensions must be a sequence"),
    (lambda x: lax.reduce(x, 1.0, lax.add, (3,)), ValueError, "out-of-bounds"),
    (lambda x: lax.reduce(x, 0.0, lambda a, b: lax.add(a, ones), (0,)), NotImplementedError, "from outside"),
    (lambda x: lax.reduce(ones, 0.0, lambda a, b: lax.add(a, lax.reduce_sum(x, (0, 1))), (0,)), NotImplementedError,
     "from outside"),
])
def test_wrong_arguments_of_reduce(call, error, text):
    with pytest.raises(error, match=text):
        jaxlite.make_jaxpr(call)(ones)


def test_jaxprs_print_as_documented():
    def text(function):
        return " ".join(str(jaxlite.make_jaxpr(function)(ones)).split())

    assert text(lambda x: lax.reduce_sum(x, (0,))) == (
        "{ lambda ; a:f32[2,3]. let b:f32[3] = reduce_sum[axes=(0,) out_sharding=None] a in (b,) }")
    assert text(lambda x: lax.argmax(x, 1, np.int32)) == (
        "{ lambda ; a:f32[2,3]. let b:i32[2] = argmax[axes=(1,) index_dtype=int32] a in (b,) }")
    assert text(lambda x: lax.reduce(x, 1.0, lax.add, (0,))) == (
        "{ lambda ; a:f32[2,3]. let b:f32[3] = reduce[ dimensions=(0,) "
        "jaxpr={ lambda ; c:f32[] d:f32[]. let e:f32[] = add c d in (e,) } ] a 1.0:f32[] in (b,) }")


MASK = np.random.default_rng(2).random((130, 70)) < 0.4


@pytest.mark.parametrize("f", [
    lambda xp, mask: xp.sum(mask), lambda xp, mask: xp.sum(mask, axis=()), lambda xp, mask: xp.sum(mask, axis=0),
    lambda xp, mask: xp.sum(~mask, axis=1), lambda xp, mask: xp.sum(mask, dtype=np.int8),
    lambda xp, mask: xp.sum(xp.where(mask, 3, -7)), lambda xp, mask: xp.any(mask), lambda xp, mask: xp.any(mask & ~mask),
    lambda xp, mask: xp.all(mask), lambda xp, mask: xp.all(mask | ~mask), lambda xp, mask: xp.any(mask, axis=0),
    lambda xp, mask: xp.all(mask, axis=1),
])
def test_many_booleans_are_counted_like_few(f):
    for mask in (MASK, MASK[:3, :5]):
        found, expected = jaxlite.jit(lambda mask: f(jnp, mask))(mask), np.asarray(f(np, mask))
        assert np.array_equal(found, expected) and found.dtype == (np.int32 if expected.dtype == np.int64 else expected.dtype)


@pytest.mark.parametrize("shape, axis, is_merged", [
    ((16, 20, 32), 0, True), ((2, 16, 10, 32), 1, True), ((16, 640), 0, False), ((16, 20, 32), 1, False),
    ((4, 5, 6), 0, False)])
def test_sums_of_parts_that_are_weighted(shape, axis, is_merged):
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    others = [each for each in range(len(shape)) if each != axis]
    weights = np.expand_dims(np.arange(shape[axis], dtype=np.float32), others)
    weighted = jaxlite.jit(lambda x, weights: (x * weights).sum(axis))
    assert ("stablehlo.reshape" in weighted.lower(x, weights).as_text()) == is_merged
    np.testing.assert_allclose(weighted(x, weights), (x.astype(np.float64) * weights).sum(axis), rtol=1e-4, atol=1e-4)


def test_the_sum_of_one_product():
    assert jaxlite.jit(lambda x: lax.reduce_sum(x * 3, ()))(np.float32(2)) == 6


def test_booleans_are_reduced_as_floats_where_the_library_takes_them():
    reducers = lambda f, x: [line for line in jaxlite.jit(f).lower(x).as_text().splitlines() if "stablehlo.reduce(" in line]
    is_float = lambda f, x: all("xf32>" in line for line in reducers(f, x))
    assert is_float(lambda mask: jnp.sum(mask), MASK) and is_float(lambda mask: jnp.any(mask), MASK)
    assert not is_float(lambda mask: jnp.sum(mask), MASK[:3])
    assert not is_float(lambda mask: jnp.any(mask, axis=1), MASK)
    assert not is_float(lambda mask: jnp.sum(mask, axis=0), MASK.reshape(-1)[:6000].reshape(-1, 3))
    narrow = MASK.reshape(-1)[:6000].reshape(-1, 10)
    assert not is_float(lambda mask: jnp.sum(mask, axis=0), narrow)
    assert is_float(lambda x: jnp.sum(x > 0, axis=0), narrow.astype(np.float32))  # to compute them takes longer
    assert not is_float(lambda x: jnp.sum(x), MASK.astype(np.int32))
    looped = lambda mask: lax.fori_loop(0, 3, lambda k, count: count + jnp.sum(mask), jnp.int32(0))
    assert not is_float(looped, MASK)  # XLA compiles a small loop in one piece, but for what a library does
    xla.load_operation_classes()  # as for a lowering rule of a library
    assert is_float(lambda mask: jnp.sum(mask), MASK) and is_float(lambda mask: jnp.any(mask), MASK)


@pytest.mark.parametrize("shape, axes, is_in_parts", [
    ((70, 60), (0, 1), True), ((70, 60), (0,), True), ((3, 70, 30), (2,), True), ((1400, 3), (0,), True),
    ((1400, 3), (1,), False), ((20, 20), (0, 1), False)])
def test_complex_extremes_are_those_of_real_parts_where_the_library_takes_them(shape, axes, is_in_parts):
    rng = np.random.default_rng(0)
    x = (rng.integers(-9, 9, shape) + 1j * rng.integers(-99, 99, shape)).astype(np.complex64)
    x[:1] = complex(-np.inf, 5)
    lowered = jaxlite.jit(lambda x: (lax.reduce_max(x, axes), lax.reduce_min(x, axes))).lower(x)
    assert ("stablehlo.real" in lowered.as_text().partition("stablehlo.reduce")[0]) == is_in_parts
    for got, want in zip(lowered.compile()(x), (x.max(axes), x.min(axes)), strict=True):
        np.testing.assert_array_equal(got, want)


def test_sums_of_bfloat16_are_rounded_once():
    rng = np.random.default_rng(0)
    x, y = rng.random((2, 40, 8, 50)).astype(bfloat16)
    total = jaxlite.jit(lambda x, y: [lax.reduce_sum(x, (0,)), lax.reduce_sum(x, (2,)), lax.reduce_sum(x * y, (0, 2))])(x, y)
    wide = x.astype(np.float32)
    exact = [wide.sum(0), wide.sum(2), (x * y).astype(np.float32).sum((0, 2))]
    for got, want in zip(total, exact, strict=True):
        assert got.dtype == bfloat16
        np.testing.assert_allclose(np.asarray(got, np.float32), want, rtol=2**-8)


@pytest.mark.parametrize("shape", [(6, 10), (0, 3), (64, 64)])  # the last one is the library's
def test_extremes_of_bfloat16(shape):
    x = np.random.default_rng(0).normal(size=shape).astype(bfloat16)
    x[1:2], x[2:3] = -np.inf, np.nan if x.size < 4096 else np.inf  # the library passes over NaN on some processors
    lowered = jaxlite.jit(lambda x: (lax.reduce_max(x, (1,)), lax.reduce_min(x, (1,)))).lower(x)
    for got, want in zip(lowered.compile()(x), (x.max(1), x.min(1)), strict=True):
        assert got.dtype == bfloat16
        np.testing.assert_array_equal(np.asarray(got, np.float32), want.astype(np.float32))
    reducers = [line for line in lowered.as_text().splitlines() if "stablehlo.reduce(" in line]
    assert all(("xf32>" in line) == (x.size < 4096) for line in reducers)
