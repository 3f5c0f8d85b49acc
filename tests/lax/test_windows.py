"""Windowed and cumulative reductions of lax, and scatters to a window's pick, against loops over NumPy arrays."""

from __future__ import annotations

import functools
import itertools
import re

import ml_dtypes
import numpy as np
import pytest

import jaxlite
from jaxlite import export, lax
from jaxlite.lax import windows_rules
from jaxlite.lax.windows import linear_recurrence
from lowering import xla

bfloat16 = np.dtype(ml_dtypes.bfloat16)
f32 = np.dtype(np.float32)


def windows(shape, sizes, strides, padding, base, spread):
    """For each window position the positions in the operand that it covers, None where it covers no element."""
    extents = [0 if n == 0 else 1 + (n - 1) * dilation for n, dilation in zip(shape, base, strict=True)]
    counts = [max(0, (extent + low + high - (1 + (size - 1) * dilation)) // stride + 1) for extent, size, stride,
              (low, high), dilation in zip(extents, sizes, strides, padding, spread, strict=True)]
    for out in itertools.product(*map(range, counts)):
        covered = []
        for offset in itertools.product(*map(range, sizes)):
            place = [o * stride + k * dilation - low for o, stride, k, dilation, (low, _) in
                     zip(out, strides, offset, spread, padding, strict=True)]
            inside = all(0 <= p < extent and p % dilation == 0
                         for p, extent, dilation in zip(place, extents, base, strict=True))
            covered.append(tuple(p // dilation for p, dilation in zip(place, base, strict=True)) if inside else None)
        yield out, covered


def pooled(x, combine, init, window):
    """The reduction of each window, in float64."""
    results = {}
    for out, covered in windows(x.shape, *window):
        total = init
        for place in covered:
            total = combine(total, init if place is None else x[place])
        results[out] = total
    shape = tuple(max((out[d] for out in results), default=-1) + 1 for d in range(x.ndim))
    return np.array([results[out] for out in itertools.product(*map(range, shape))], np.float64).reshape(shape)


# (sizes, strides, padding, base dilation, window dilation)
WINDOWS = [
    ((2, 3), (1, 1), ((0, 0), (0, 0)), (1, 1), (1, 1)),
    ((1, 2), (2, 3), ((1, 0), (0, 2)), (1, 1), (1, 1)),
    ((2, 2), (1, 2), ((1, 1), (2, 0)), (1, 2), (2, 1)),
    ((2, 1), (1, 1), ((-1, 0), (0, -2)), (1, 1), (1, 1)),
    ((5, 9), (1, 1), ((0, 0), (0, 0)), (1, 1), (1, 1)),
]
MONOIDS = [(lax.add, np.add, 0.0, "reduce_window_sum"), (lax.max, np.maximum, -np.inf, "reduce_window_max"),
           (lax.min, np.minimum, np.inf, "reduce_window_min"), (lax.mul, np.multiply, 1.0, "reduce_window")]


@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_reduce_window_matches_a_loop(window, rng):
    x = (rng.integers(-8, 9, (4, 5)) / 4).astype(f32)

    def every(x):
        return [lax.reduce_window(x, init, computation, *window) for computation, _, init, _ in MONOIDS]

    jaxpr = jaxlite.make_jaxpr(every)(x).jaxpr
    assert [eqn.primitive.name for eqn in jaxpr.eqns] == [name for *_, name in MONOIDS]
    for got, (_, combine, init, _) in zip(jaxlite.jit(every)(x), MONOIDS, strict=True):
        expected = pooled(x, combine, init, window)
        assert got.dtype == f32
        if expected.size or got.size:
            np.testing.assert_allclose(got, expected, rtol=1e-5)


@pytest.mark.parametrize("dtype", [np.int8, np.uint32, np.float16, bfloat16, np.complex64], ids=str)
def test_reduce_window_dtypes(dtype):
    x = np.arange(6).astype(dtype)
    got = np.asarray(lax.reduce_window(x, np.zeros((), dtype)[()], lax.add, (2,)))
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, (x[1:] + x[:-1]).astype(dtype))


def test_reduce_window_of_booleans_scalars_and_nothing():
    x = np.array([True, False, False, True])
    np.testing.assert_array_equal(lax.reduce_window(x, False, lax.bitwise_or, (2,)), [True, False, True])
    np.testing.assert_array_equal(lax.reduce_window(x, True, lax.min, (2,)), [False, False, False])
    assert float(lax.reduce_window(np.float32(3), 0.0, lax.add, ())) == 3
    assert lax.reduce_window(np.zeros((0, 3), f32), 0.0, lax.add, (1, 2)).shape == (0, 2)


def test_reduce_window_of_a_pytree(rng):
    x = rng.permutation(12).astype(f32)

    def later(a, b):
        first = lax.gt(a[0], b[0])
        return lax.select(first, a[0], b[0]), lax.select(first, a[1], b[1])

    value, index = lax.reduce_window((x, np.arange(12, dtype=np.int32)), (-np.inf, -1), later, (3,), (3,))
    np.testing.assert_array_equal(value, x.reshape(4, 3).max(1))
    np.testing.assert_array_equal(index, x.reshape(4, 3).argmax(1) + 3 * np.arange(4))


def test_reduce_window_weak_types():
    weak = jaxlite.ShapeDtypeStruct((3,), np.float32, weak_type=True)
    assert jaxlite.eval_shape(lambda x: lax.reduce_window(x, 0.0, lax.add, (2,)), weak).weak_type
    assert not jaxlite.eval_shape(lambda x: lax.reduce_window(x, 1.0, lax.add, (2,)), weak).weak_type


@pytest.mark.parametrize("padding, shape, window, strides, expected", [
    ("VALID", (3, 4), (2, 2), (1, 1), [(0, 0), (0, 0)]),
    ("SAME", (3, 4), (2, 3), (1, 1), [(0, 1), (1, 1)]),
    ("same_lower", (3, 4), (2, 3), (1, 1), [(1, 0), (1, 1)]),
    ("SAME", (7, 8), (3, 2), (2, 3), [(1, 1), (0, 0)]),
    ("SAME_LOWER", (5, 0), (4, 2), (3, 1), [(1, 1), (1, 0)]),
    ("SAME", (2,), (1,), (5,), [(0, 0)]),
])
def test_padtype_to_pads(padding, shape, window, strides, expected):
    assert lax.padtype_to_pads(shape, window, strides, padding) == expected


def test_reduce_window_shape_tuple():
    assert lax.reduce_window_shape_tuple((3, 4), (2, 2), (1, 1), ((0, 0), (0, 0))) == (2, 3)
    assert lax.reduce_window_shape_tuple((3, 4), (2, 2), (1, 2), ((0, 1), (0, 0)), (2, 2), (3, 1)) == (3, 3)
    assert lax.reduce_window_shape_tuple((3, 0), (5, 1), (1, 1), ((0, 0), (0, 0))) == (0, 0)


def call(*args):
    return lambda x: lax.reduce_window(x, *args)


@pytest.mark.parametrize("function, error, text", [
    (call(0.0, lax.add, (2,)), TypeError, "wrong number of window_dimensions"),
    (call(0.0, lax.add, (2, 2), (1,)), TypeError, "inconsistent window_strides"),
    (call(0.0, lax.add, (2, 2), (0, 1)), TypeError, "window_strides must have every element be strictly positive"),
    (call(0.0, lax.add, (2, 0)), TypeError, "window_dimensions must have every element be strictly positive"),
    (call(0.0, lax.add, (2, 1.5)), TypeError, "window_dimensions must be a sequence of integers"),
    (call(0.0, lax.add, (2, 2), None, "FOO"), RuntimeError, "Unrecognized padding type"),
    (call(0.0, lax.add, (2, 2), None, ((0, 0),)), ValueError, "padding must have one"),
    (call(0.0, lax.add, (2, 2), None, ((0, 0), 1)), TypeError, "padding must be"),
    (call(0.0, lax.add, (2, 2), None, "VALID", (0, 1)), TypeError, "base_dilation"),
    (call(0.0, lax.add, (2, 2), None, "VALID", None, (1,)), TypeError, "window_dilation"),
    (call(np.zeros(2, f32), lax.add, (2, 2)), TypeError, "init_values to be scalars"),
    (call(np.int32(1), lax.add, (2, 2)), TypeError, "dtype int32"),
    (call((0.0, 0.0), lax.add, (2, 2)), ValueError, "same tree structure"),
    (call(0.0, lambda a, b: (a, b), (2, 2)), ValueError, "same tree structure"),
    (call(0.0, lambda a, b: lax.gt(a, b), (2, 2)), ValueError, "own type"),
    (lambda x: lax.reduce_window(x, 0.0, lambda a, b: lax.add(a, lax.reduce_sum(x, (0, 1))), (1, 1)),
     NotImplementedError, "from outside"),
    (lambda x: lax.cumsum(x, 2), ValueError, "axis 2 is out of bounds"),
    (lambda x: lax.cumsum(x, -1), ValueError, "axis -1 is negative"),
    (lambda x: lax.cummax(lax.gt(x, 0.0)), TypeError, "cummax does not accept dtype bool"),
    (lambda x: lax.cumlogsumexp(lax.convert_element_type(x, np.int32)), TypeError, "does not accept dtype int32"),
    (lambda x: lax.padtype_to_pads((3,), (2,), (1, 1), "SAME"), ValueError, "equal length"),
    (lambda x: lax.padtype_to_pads((3,), (2,), (1,), 3), TypeError, "Unknown padding type"),
])
def test_wrong_arguments(function, error, text):
    with pytest.raises(error, match=text):
        jaxlite.make_jaxpr(function)(np.ones((3, 4), f32))


# --- cumulative reductions ---------------------------------------------------------------------------

CUMULATIVE = {"cumsum": np.cumsum, "cumprod": np.cumprod, "cummax": np.maximum.accumulate,
              "cummin": np.minimum.accumulate, "cumlogsumexp": np.logaddexp.accumulate}  # fmt: skip


def accumulated(name, x, axis, reverse):
    wide = x if x.dtype.kind in "iuc" else x.astype(np.float64)
    if reverse:
        wide = np.flip(wide, axis)
    result = CUMULATIVE[name](wide, axis=axis)
    return np.flip(result, axis) if reverse else result


def check_cumulative(name, x, axis, rtol):
    forward, backward = jaxlite.jit(lambda x: [getattr(lax, name)(x, axis, reverse) for reverse in (False, True)])(x)
    for got, reverse in ((forward, False), (backward, True)):
        assert got.dtype == x.dtype
        expected = accumulated(name, x, axis, reverse)
        expected = expected.astype(x.dtype) if x.dtype.kind in "iu" else expected
        np.testing.assert_allclose(np.asarray(got).astype(expected.dtype), expected, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("name, dtype", [
    (name, dtype) for name in CUMULATIVE for dtype in (np.int32, np.uint8, np.float32, np.float16, bfloat16)
    if name != "cumlogsumexp" or np.dtype(dtype).kind not in "iu"])
def test_cumulative_dtypes(name, dtype, rng):
    x = (rng.integers(0, 5, (20, 2)) / (1 if np.dtype(dtype).kind in "iu" else 2)).astype(dtype)
    check_cumulative(name, x, 0, {np.float32: 1e-6}.get(dtype, 0.02))


@pytest.mark.parametrize("name", CUMULATIVE)
@pytest.mark.parametrize("shape, axis", [((1,), 0), ((7,), 0), ((3, 5), 1), ((2, 40, 3), 1), ((2, 3, 18), 2), ((2, 9, 18), 2),
                                         ((259, 64, 1), 1), ((5, 18, 2), 1), ((3, 43, 64, 2), 2)])
def test_cumulative_shapes(name, shape, axis, rng):
    check_cumulative(name, rng.normal(size=shape).astype(f32), axis, 1e-5)


@pytest.mark.parametrize("name", CUMULATIVE)
@pytest.mark.parametrize("shape, axis, dtype", [
    ((5001,), 0, f32), ((4096, 2), 0, f32), ((17, 1024), 1, f32), ((2, 16500), 1, np.float16), ((5001,), 0, np.int32)])
def test_long_axes(name, shape, axis, dtype, rng):
    if name == "cumlogsumexp" and dtype is np.int32:
        return
    x = rng.integers(-9, 9, shape) if dtype is np.int32 else rng.normal(size=shape)
    if name == "cumprod":
        x = x | 1 if dtype is np.int32 else 1 + x / 256
    check_cumulative(name, x.astype(dtype), axis, 2e-5 if dtype is f32 else 0.02)


@pytest.mark.parametrize("shape, axis, loops", [((1000, 64), 1, 2), ((7, 50), 1, 1), ((8, 64, 64), 2, 2), ((256, 64, 2), 1, 2),
                                                ((50, 2000), 0, 1), ((2, 50, 20), 1, 1), ((1, 4000, 20), 1, 1),
                                                ((200, 64), 1, 2), ((5000,), 0, 2), ((4, 5000), 1, 1), ((4, 20000), 1, 2),
                                                ((4, 16384), 1, 1), ((20000, 4), 0, 1), ((10000, 50), 1, 2)])
def test_totals_are_those_of_a_few_rows_after_a_few_or_of_segments_of_long_ones(shape, axis, loops):
    text = jaxlite.jit(lambda x: lax.cumsum(x, axis)).lower(jaxlite.ShapeDtypeStruct(shape, f32)).as_text()
    assert text.count("stablehlo.while") == loops


@pytest.mark.parametrize("shape, axis, dtype, selections", [
    ((5500, 3), 1, f32, 2), ((1700, 10), 1, f32, 9), ((500, 3), 1, f32, 0), ((3, 5500), 0, f32, 0), ((5500, 3), 1, bfloat16, 0),
    ((1700, 13), 1, f32, 0)])
def test_totals_of_a_few_neighbours_in_a_large_array_are_selected(shape, axis, dtype, selections):
    text = jaxlite.jit(lambda x: lax.cumsum(x, axis)).lower(jaxlite.ShapeDtypeStruct(shape, dtype)).as_text()
    assert text.count("stablehlo.select ") == selections


@pytest.mark.parametrize("name", [name for name in CUMULATIVE if name != "cumlogsumexp"])
@pytest.mark.parametrize("shape, dtype", [((5500, 3), f32), ((2, 1400, 6), np.float16), ((2100, 8), np.int8)])
def test_totals_of_a_few_neighbours(name, shape, dtype, rng):
    x = rng.choice([1, -1, 2], shape, p=[0.6, 0.2, 0.2]).astype(dtype)
    if dtype is f32:
        x[0], x[1] = (np.nan, 1, 2), (np.inf, -np.inf, 0)
    with np.errstate(invalid="ignore"):
        check_cumulative(name, x, len(shape) - 1, 0)


def test_a_segment_of_a_long_product_may_leave_the_range_of_float32():
    x = np.ones(6000, f32)
    x[0], x[800:1040], x[5000] = 2.0**-120, 2, -0.5  # the second eighth is a factor of 2**240
    np.testing.assert_array_equal(lax.cumprod(x), np.cumprod(x))


@pytest.mark.parametrize("name", [name for name in CUMULATIVE if name != "cumlogsumexp"])
@pytest.mark.parametrize("shape, axis, dtype", [((30,), 0, f32), ((1, 28, 1), 1, np.int32), ((401,), 0, bfloat16)])
def test_one_row_in_a_loop_adds_up_several_elements_a_turn(name, shape, axis, dtype, rng):
    x = rng.choice([1, -1, 2], (2, *shape), p=[0.6, 0.38, 0.02]).astype(dtype)
    for reverse in (False, True):
        totals = functools.partial(getattr(lax, name), axis=axis, reverse=reverse)
        lowered = jaxlite.jit(functools.partial(lax.map, totals)).lower(x)
        assert lowered.as_text().count("stablehlo.dynamic_update_slice") == 4 + 1
        expected = np.stack([accumulated(name, row, axis, reverse) for row in x])
        np.testing.assert_array_equal(lowered.compile()(x), expected.astype(dtype))


@pytest.mark.parametrize("shape", [(2, 30), (11,)])
def test_several_rows_and_few_elements_are_added_up_one_a_turn(shape):
    program = jaxlite.jit(lambda x: lax.map(lambda x: lax.cumsum(x, x.ndim - 1), x))
    lowered = program.lower(jaxlite.ShapeDtypeStruct((3, *shape), f32))
    assert lowered.as_text().count("stablehlo.dynamic_update_slice") == 1 + 1


@pytest.mark.parametrize("program, copied", [(lambda x: lax.map(lax.cumsum, x), r"f32\[1024\]"),
                                             (lambda x: lax.cumsum(x, 1), r"f32\[300,1024\]")])
def test_nothing_is_copied_in_each_turn(program, copied):
    text = jaxlite.jit(program).lower(jaxlite.ShapeDtypeStruct((300, 1024), f32)).compile().as_text()
    assert not re.search(rf"= {copied}\S* copy\(", text)


def test_zero_stays_zero_in_a_product_in_a_loop():
    x = np.full((2, 30), 1e38, f32)
    x[:, 0] = 0  # infinity, which the product of the others would be, times 0 is NaN
    np.testing.assert_array_equal(jaxlite.jit(lambda x: lax.map(lax.cumprod, x))(x), np.zeros((2, 30)))


@pytest.mark.parametrize("name", ["cumsum", "cumprod", "cumlogsumexp"])
def test_cumulative_complex(name, rng):
    x = (rng.normal(size=9) + 1j * rng.normal(size=9)).astype(np.complex64)
    got = np.asarray(getattr(lax, name)(x))
    if name == "cumlogsumexp":
        np.testing.assert_allclose(np.exp(got), np.cumsum(np.exp(x)), rtol=1e-5)
    else:
        np.testing.assert_allclose(got, CUMULATIVE[name](x), rtol=1e-5)


@pytest.mark.parametrize("shape, axis, dtype", [
    ((0,), 0, f32), ((1, 3), 0, f32), ((9, 2), 0, f32), ((259, 64), 1, f32), ((2, 7, 3), 1, np.complex64),
    ((40,), 0, bfloat16), ((2, 7), 1, bfloat16), ((5, 2), 0, f32)])
def test_linear_recurrences(shape, axis, dtype, rng):
    given, terms = (rng.normal(size=(2, *shape)) + (1j * rng.normal(size=(2, *shape)) if dtype is np.complex64 else 0)) * 0.7
    terms = terms.astype(dtype)
    for reverse in (False, True):
        flipped = (lambda x: np.flip(x, axis)) if reverse else (lambda x: x)
        factors = given.astype(dtype)
        rows, total = [], 0
        for factor, term in zip(*(np.moveaxis(flipped(x).astype(np.result_type(x, f32)), axis, 0) for x in (factors, terms)),
                                strict=True):
            total = factor * total + term
            rows.append(total)
        np.moveaxis(flipped(factors), axis, 0)[:1] = np.inf  # counts for nothing
        expected = flipped(np.moveaxis(np.stack(rows), 0, axis)) if rows else terms
        for fun in (linear_recurrence, windows_rules._linear_recurrence_in_parallel):
            got = np.asarray(jaxlite.jit(fun, static_argnames=("axis", "reverse"))(factors, terms, axis=axis, reverse=reverse))
            assert got.dtype == dtype
            near = 0.03 if dtype is bfloat16 else 1e-4
            np.testing.assert_allclose(got.astype(expected.dtype), expected, rtol=near, atol=near)


def test_cumulative_operations_inside_a_loop(rng):
    x = rng.normal(size=(5, 40)).astype(f32)
    got = jaxlite.jit(lambda x: lax.fori_loop(0, 3, lambda i, x: lax.cumsum(x, 1), x))(x)
    np.testing.assert_allclose(got, x.astype(np.float64).cumsum(1).cumsum(1).cumsum(1), rtol=1e-5, atol=1e-4)


def test_running_totals_of_narrow_floats_do_not_stall():
    ones = np.ones(1000, bfloat16)  # a bfloat16 total would stay at 256
    assert float(np.asarray(lax.cumsum(ones))[-1]) == 1000
    assert float(np.asarray(lax.cumsum(np.full(3000, 0.1, np.float16)))[-1]) == pytest.approx(300, rel=1e-3)


@pytest.mark.parametrize("name", ["cumsum", "cummax"])
@pytest.mark.parametrize("dtype", [dtype for dtype in ("bfloat16", "float8_e4m3fn") if dtype.startswith(xla.WIDENED)])
def test_loops_over_narrow_floats_are_on_wider_arrays(name, dtype):
    # XLA:CPU would widen all of the array in every turn, which makes the time quadratic.
    text = jaxlite.jit(getattr(lax, name)).lower(jaxlite.ShapeDtypeStruct((100,), dtype)).as_text()
    writes = [line for line in text.splitlines() if "dynamic_update_slice" in line]
    assert writes and not any(narrow in line for line in writes for narrow in ("bf16", "f8"))


def test_cumulative_special_values():
    inf, nan = np.inf, np.nan
    x = np.array([-inf, -inf, 1, inf, nan, 0] + [0] * 20, f32)
    np.testing.assert_array_equal(np.asarray(lax.cumlogsumexp(x))[:6], [-inf, -inf, 1, inf, nan, nan])
    np.testing.assert_array_equal(np.asarray(lax.cumlogsumexp(x.reshape(2, 13), 1))[0, :6],
                                  [-inf, -inf, 1, inf, nan, nan])
    y = np.array([1, nan, 3], f32)
    np.testing.assert_array_equal(lax.cummax(y), [1, nan, nan])
    np.testing.assert_array_equal(lax.cummin(y, reverse=True), [nan, nan, 3])
    np.testing.assert_allclose(lax.cumlogsumexp(np.array([1000, 1000], f32)), [1000, 1000 + np.log(2)])


def test_cumulative_empty_and_weak():
    assert lax.cumsum(np.zeros((0, 3), f32)).shape == (0, 3)
    assert lax.cumsum(np.zeros((2, 0), f32), 0).shape == (2, 0)
    weak = jaxlite.ShapeDtypeStruct((3,), np.float32, weak_type=True)
    assert jaxlite.eval_shape(lax.cumsum, weak).weak_type
    text = " ".join(str(jaxlite.make_jaxpr(lambda x: lax.cumsum(x, 0, reverse=True))(np.ones(3, f32))).split())
    assert text == "{ lambda ; a:f32[3]. let b:f32[3] = cumsum[axis=0 reverse=True] a in (b,) }"


# --- a window's pick ---------------------------------------------------------------------------------

PICKS = [((2, 2), (1, 1), ((0, 0), (0, 0))), ((2, 3), (2, 2), ((1, 0), (1, 1))), ((1, 2), (1, 1), ((0, 0), (-1, 1)))]


def picked(x, window, best):
    """For each window position the place of its extreme."""
    for out, covered in windows(x.shape, *window, (1, 1), (1, 1)):
        inside = [place for place in covered if place is not None]
        yield out, best(inside, key=lambda place: x[place])


@pytest.mark.parametrize("window", PICKS, ids=str)
@pytest.mark.parametrize("primitive, best", [(lax.ge_p, max), (lax.le_p, min)])
def test_select_and_scatter_add_matches_a_loop(window, primitive, best, rng):
    from jaxlite.lax.windows import select_and_gather_add, select_and_scatter_add

    x = rng.permutation(20).reshape(4, 5).astype(f32)
    picks = list(picked(x, window, best))
    shape = tuple(np.max([out for out, _ in picks], 0) + 1)
    source = rng.integers(1, 9, shape).astype(f32)
    scattered, gathered = np.zeros((4, 5)), np.zeros(shape)
    for out, place in picks:
        scattered[place] += source[out]
        gathered[out] = 10 * x[place]
    np.testing.assert_array_equal(select_and_scatter_add(source, x, primitive, *window), scattered)
    np.testing.assert_array_equal(select_and_gather_add(10 * x, x, primitive, *window, (1, 1), (1, 1)), gathered)


def test_select_and_scatter_with_any_functions(rng):
    from jaxlite.lax.windows import select_and_scatter

    x = rng.permutation(12).reshape(3, 4).astype(f32)
    source = np.full((2, 3), 3.0, f32)
    window = ((2, 2), (1, 1), ((0, 0), (0, 0)))
    expected = np.ones((3, 4))
    for _, place in picked(x, window, max):
        expected[place] *= 3
    got = select_and_scatter(x, lax.ge, *window[:2], "VALID", source, 1.0, lax.mul)
    np.testing.assert_array_equal(got, expected)


def test_select_and_scatter_checks_its_source():
    from jaxlite.lax.windows import select_and_scatter_add

    with pytest.raises(TypeError, match=r"shape \(2,\), got \(3,\)"):
        select_and_scatter_add(np.ones(3, f32), np.ones(3, f32), lax.ge_p, (2,), (1,), "VALID")
    with pytest.raises(ValueError, match="select_prim"):
        select_and_scatter_add(np.ones(2, f32), np.ones(3, f32), lax.gt_p, (2,), (1,), "VALID")
    with pytest.raises(TypeError, match="same dtypes"):
        select_and_scatter_add(np.ones(2, np.int32), np.ones(3, f32), lax.ge_p, (2,), (1,), "VALID")


def test_cumulative_sums_elsewhere_are_one_window():
    """XLA knows that form; with a padding of its own before it, compiles for TPUs took minutes."""
    text = jaxlite.jit(lambda x: lax.cumsum(x, 0)).trace(np.ones(999, f32)).lower(lowering_platforms=("tpu",)).as_text()
    assert "stablehlo.reduce_window" in text and "stablehlo.pad" not in text


@pytest.mark.skipif(not xla.HAS_SCANS, reason="this jaxlib has no such operation")
def test_cumulative_reductions_on_gpus_are_calls_of_a_library():
    traced = jaxlite.jit(lambda x: lax.cummax(x, 1, reverse=True)).trace(np.ones((3, 5), f32))
    text = traced.lower(lowering_platforms=("cuda",)).as_text()
    assert "chlo.scan" in text and "is_reverse = true" in text
    # What is exported has to be readable by other versions.
    exported = export.export(jaxlite.jit(lambda x: lax.cummax(x)), platforms=["cuda"])(np.ones(5, f32))
    assert "reduce_window" in export.deserialize(exported.serialize()).mlir_module()
