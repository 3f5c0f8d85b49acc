"""Polynomials of the numpy API against NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

import jaxlite
import jaxlite.numpy as jnp
from jaxlite.numpy import polynomials

f32, i32, c64 = np.dtype(np.float32), np.dtype(np.int32), np.dtype(np.complex64)
A = np.array([1.0, -3, 2.5, 4], f32)
B = np.array([2.0, 1], f32)
I = np.array([3, 0, -2], i32)
C = np.array([1 + 1j, 2, -0.5j], c64)
X = np.linspace(-1, 2, 6).astype(f32).reshape(2, 3)
ONES = np.ones((3, 2), f32)

CASES = [  # name, arguments, keywords; NumPy is called the same way
    *((name, args, {}) for name in ("polyadd", "polysub") for args in ((A, B), (B, A), (I, I), (I, C), (A, 2.0), (A[:0], B))),
    *(("polymul", args, {}) for args in ((A, B), (I, I), (C, B), (A, 3.0), (A[1:2], A))),
    *(("polyder", (p, m), {}) for p in (A, I, C) for m in (0, 1, 2, 9)),
    *(("polyint", (p, m), {}) for p in (A, I, C) for m in (0, 1, 3)),
    ("polyint", (A, 2, 3.0), {}), ("polyint", (A, 3, np.array([1.0, 2, 3], f32)), {}), ("polyint", (A, 1, B[:1]), {}),
    *(("polyval", args, {}) for args in ((A, X), (I, I), (C, X), (A, 2.0), (I, 2), (A[:0], X), (A[:1], B), (ONES, B))),
    *(("poly", (z,), {}) for z in (A, I, C, A[:1], np.array([1 + 2j, 1 - 2j], c64), np.array([np.inf, 1], f32))),
]  # fmt: skip


def test_match_numpy():
    functions = [(getattr(polynomials, name), args, keywords) for name, args, keywords in CASES]
    # Static arguments stay static, arrays become arguments of one program.
    arrays = [[arg for arg in args if isinstance(arg, np.ndarray)] for _, args, _ in functions]

    @jaxlite.jit
    def run(arrays):
        results = []
        for (function, args, keywords), values in zip(functions, arrays, strict=True):
            values = iter(values)
            results.append(function(*(next(values) if isinstance(arg, np.ndarray) else arg for arg in args), **keywords))
        return results

    for got, (name, args, keywords) in zip(run(arrays), CASES, strict=True):
        wide = [arg.astype(np.result_type(arg, np.float64)) if isinstance(arg, np.ndarray) and arg.dtype.kind in "fc" else arg
                for arg in args]
        with np.errstate(invalid="ignore"):
            expected = np.asarray(getattr(np, name)(*wide, **keywords))
        label = f"{name} {args}"
        assert got.shape == expected.shape, label
        # Single precision on numbers up to a few hundred.
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-4, err_msg=label)


@pytest.mark.parametrize(("name", "args", "dtype"), [
    ("polyadd", (I, I), i32), ("polyadd", (I, 2), i32), ("polysub", (I, C), c64), ("polymul", (I, I), f32),
    ("polyder", (I,), f32), ("polyder", (ONES[0].astype(np.float16),), np.float16), ("polyint", (I,), f32),
    ("polyval", (I, 2), i32), ("polyval", (I, 2.0), f32), ("poly", (I,), f32), ("poly", (C,), c64),
    ("poly", (np.eye(2, dtype=f32),), c64), ("roots", (I,), c64), ("roots", (C,), c64),
])  # fmt: skip
def test_dtypes(name, args, dtype):
    assert getattr(polynomials, name)(*args).dtype == dtype


def test_double_precision(x64):
    p = np.array([1.0, -3, 2], np.float64)
    assert polynomials.roots(p).dtype == np.complex128 and polynomials.poly(p).dtype == np.float64
    np.testing.assert_allclose(np.sort(np.asarray(polynomials.roots(p)).real), [1, 2], rtol=1e-14)


def test_characteristic_polynomial(rng):
    matrix = rng.normal(size=(4, 4)).astype(f32)
    np.testing.assert_allclose(polynomials.poly(matrix), np.poly(matrix.astype(float)), rtol=1e-4, atol=1e-4)
    nothing = polynomials.poly(A[:0])
    assert nothing.shape == () and float(nothing) == 1


@pytest.mark.parametrize(("u", "v"), [(A, B), (B, A), (A, A), (I, I[:2]), (C, B), (A, B[:1])], ids=range(6))
def test_division(u, v):
    quotient, rest = map(np.asarray, polynomials.polydiv(u, v))
    assert quotient.shape == (max(len(u) - len(v) + 1, 1),) and rest.shape == u.shape
    np.testing.assert_allclose(np.polysub(np.polyadd(np.polymul(quotient, v), rest), u), 0, atol=1e-5)
    np.testing.assert_allclose(quotient, np.polydiv(u, v)[0], rtol=1e-5)
    np.testing.assert_allclose(rest[:len(rest) - len(v) + 1] if len(v) <= len(u) else 0, 0, atol=1e-5)


def test_leading_zeros_are_trimmed_on_request():
    zeros = np.array([0, 0, 1, 2], f32)
    assert polynomials.polymul(zeros, zeros).shape == (7,)
    np.testing.assert_array_equal(polynomials.polymul(zeros, zeros, trim_leading_zeros=True), [1, 4, 4])
    exact = np.array([1, 3, 2], f32), np.array([1, 1], f32)
    assert polynomials.polydiv(*exact, trim_leading_zeros=True)[1].shape == (0,)
    np.testing.assert_array_equal(polynomials.polymul(zeros * 0, B, trim_leading_zeros=True), np.zeros(2))


ROOTS = [[1, -3, 2], [0, 0, 1, -3, 2], [1, -3, 2, 0, 0], [0, 2, -4, 0], [2, 0, 0], [2, 1], [1, 0, 1], [5], [], [0, 0],
         [0, 0, 3]]


def ordered(values):
    return np.array(sorted(np.asarray(values).tolist(), key=lambda z: (round(z.real, 3), round(z.imag, 3))), np.complex128)


@pytest.mark.parametrize("p", ROOTS, ids=str)
def test_roots(p):
    p = np.array(p, f32)
    expected = np.roots(p)
    got = polynomials.roots(p)
    assert got.dtype == c64 and got.shape == expected.shape
    np.testing.assert_allclose(ordered(got), ordered(expected), atol=1e-5)
    # Without stripping, leading zeros stand for roots that are NaN.
    padded = np.asarray(polynomials.roots(p, strip_zeros=False))
    assert padded.shape == (max(len(p) - 1, 0),)
    finite = padded[np.isfinite(padded)]
    np.testing.assert_allclose(ordered(finite), ordered(expected), atol=1e-5)


def test_roots_under_jit():
    def padded(p):
        return polynomials.roots(p, strip_zeros=False)

    np.testing.assert_allclose(ordered(jaxlite.jit(padded)(A)), ordered(np.roots(A)), atol=1e-5)
    with pytest.raises(jaxlite.errors.ConcretizationTypeError, match="strip_zeros=False"):
        jaxlite.jit(polynomials.roots)(A)


@pytest.mark.parametrize("columns", [(), (2,)], ids=str)
@pytest.mark.parametrize("weighted", [False, True])
def test_fits(columns, weighted, rng):
    x = rng.uniform(-2, 2, 12).astype(f32)
    y = rng.normal(size=(12, *columns)).astype(f32)
    w = rng.uniform(0.5, 2, 12).astype(f32) if weighted else None
    wide = {"x": x.astype(float), "y": y.astype(float), "deg": 2, "w": w}
    coefficients, residuals, rank, s, rcond = polynomials.polyfit(x, y, 2, w=w, full=True)
    expected = np.polyfit(**wide, full=True)
    # Single precision, a problem of condition below ten.
    for got, reference in zip((coefficients, residuals, rank, s), expected, strict=False):
        np.testing.assert_allclose(got, reference, rtol=1e-4, atol=1e-5)
    assert float(rcond) == pytest.approx(12 * np.finfo(f32).eps)
    np.testing.assert_allclose(polynomials.polyfit(x, y, 2, w=w), coefficients, rtol=1e-5)
    for cov in (True, "unscaled"):
        got = polynomials.polyfit(x, y, 2, w=w, cov=cov)
        reference = np.polyfit(**wide, cov=cov)
        assert got[1].shape == reference[1].shape
        np.testing.assert_allclose(got[1], reference[1], rtol=1e-3, atol=1e-5)


def test_fits_of_other_kinds(rng):
    x = np.arange(5)
    np.testing.assert_allclose(polynomials.polyfit(x.astype(i32), (3 * x - 1).astype(i32), 1), [3, -1], rtol=1e-5)
    np.testing.assert_allclose(polynomials.polyfit(x.astype(f32), (3j * x - 1).astype(c64), 1), [3j, -1], atol=1e-5)
    rank = polynomials.polyfit(x[:2].astype(f32), x[:2].astype(f32), 3, full=True)[2]
    assert int(rank) == 2  # fewer points than coefficients
    assert int(polynomials.polyfit(x.astype(f32), x.astype(f32), 2, rcond=0.9, full=True)[2]) == 1


@pytest.mark.parametrize(("function", "error", "message"), [
    (lambda: polynomials.poly(np.ones((2, 3), f32)), ValueError, "square 2d"),
    (lambda: polynomials.poly([1.0]), TypeError, "got <class 'list'>"),
    (lambda: polynomials.polyadd([1], [2]), TypeError, "polyadd requires"),
    (lambda: polynomials.polydiv(A, A[:0]), ValueError, "v not empty"),
    (lambda: polynomials.polyder(A, -1), ValueError, "must be positive"),
    (lambda: polynomials.polyder(A, 1.5), TypeError, "integer"),
    (lambda: polynomials.polyint(A, -1), ValueError, "must be positive"),
    (lambda: polynomials.polyint(A, 2, A[:3]), ValueError, "length 1 or m"),
    (lambda: polynomials.roots(ONES), ValueError, "rank-1"),
    (lambda: polynomials.polyfit(A, A, -1), ValueError, "deg >= 0"),
    (lambda: polynomials.polyfit(ONES, A, 1), TypeError, "1D vector for x"),
    (lambda: polynomials.polyfit(A[:0], A[:0], 1), TypeError, "non-empty"),
    (lambda: polynomials.polyfit(A, B, 1), TypeError, "same length"),
    (lambda: polynomials.polyfit(A, A.reshape(4, 1, 1), 1), TypeError, "1D or 2D"),
    (lambda: polynomials.polyfit(A, A, 1, w=ONES), TypeError, "1-d array for weights"),
    (lambda: polynomials.polyfit(A, A, 1, w=B), TypeError, "w and y"),
    (lambda: polynomials.polyfit(A, A, 3, cov=True), ValueError, "number of data points"),
    (lambda: jaxlite.jit(lambda p: polynomials.polymul(p, p, trim_leading_zeros=True))(A),
     jaxlite.errors.ConcretizationTypeError, "leave trim_leading_zeros out"),
])  # fmt: skip
def test_errors(function, error, message):
    with pytest.raises(error, match=message):
        function()


def test_the_steps_of_a_polynomial_are_one_loop():
    text = str(jaxlite.make_jaxpr(polynomials.polyval)(np.ones(100, f32), jnp.float32(2)))
    assert text.count("scan[") == 1 and len(text) < 2000
    slope = jaxlite.make_jaxpr(jaxlite.grad(lambda x: polynomials.polyval(np.ones(100, f32), x).sum()))(np.ones(3, f32))
    assert "f32[100,3]" not in str(slope)  # no value of a step is kept


@pytest.mark.parametrize("count", [4, 18])
def test_derivatives_of_values(count):
    p, x = np.array([1.0, -2.0, 3.0, 0.5] * 5, f32)[:count], np.array([0.5, -2.0, 1.5], f32)
    by_coefficients, by_place = jaxlite.jacobian(polynomials.polyval, (0, 1))(p, x)
    np.testing.assert_allclose(by_coefficients, np.vander(x, count), rtol=1e-6)
    np.testing.assert_allclose(np.diag(by_place), np.polyval(np.polyder(p), x), rtol=1e-5)
    second = jaxlite.vmap(jaxlite.grad(jaxlite.grad(lambda x: polynomials.polyval(p, x))))(x)
    np.testing.assert_allclose(second, np.polyval(np.polyder(p, 2), x), rtol=1e-5)
