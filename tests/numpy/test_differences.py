"""Differences, gradients, integrals, interpolation and convolution of signals, against NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import jaxlite
import jaxlite.numpy as jnp

bfloat16 = np.dtype(ml_dtypes.bfloat16)
f32 = np.dtype(np.float32)
PHASES = np.array([0, 3, 6.5, -3, -6, 1, np.pi, -np.pi, 8], f32)


def draw(rng, shape, dtype=f32):
    values = rng.integers(-4, 5, shape)
    return np.asarray(values + 1j * rng.integers(-4, 5, shape) if np.dtype(dtype).kind == "c" else values).astype(dtype)


DIFFS = [
    ((5,), {}), ((5,), {"n": 2}), ((5,), {"n": 0}), ((5,), {"n": 7}), ((2, 5), {"axis": 0}), ((0,), {}), ((1,), {}),
    ((2, 5), {"prepend": 0.0}), ((2, 5), {"append": 0.0, "prepend": 1}), ((2, 5), {"append": np.ones((2, 2), f32)}),
]


@pytest.mark.parametrize("shape, args", DIFFS, ids=str)
def test_diff(shape, args, rng):
    x = draw(rng, shape)
    got = jnp.diff(x, **args)
    assert got.dtype == f32
    np.testing.assert_array_equal(got, np.diff(x, **args))


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.int32, bfloat16, np.complex64], ids=str)
def test_differences_keep_their_dtype(dtype, rng):
    x = np.abs(draw(rng, 5)).astype(dtype)
    got = jnp.diff(x)
    expected = np.diff(x) if dtype != bfloat16 else np.diff(x.astype(f32))
    assert got.dtype == dtype
    np.testing.assert_array_equal(np.asarray(got).astype(np.complex64), expected.astype(np.complex64))
    assert jnp.trapezoid(x).dtype == jnp.gradient(x).dtype == (
        dtype if dtype in (bfloat16, np.dtype(np.complex64)) or dtype is np.complex64 else f32)


@pytest.mark.parametrize("args", [{"n": -1}, {"axis": 3}], ids=str)
def test_diff_refuses(args):
    with pytest.raises(ValueError):
        jnp.diff(np.ones((2, 5), f32), **args)
    with pytest.raises(ValueError, match="one dimensional"):
        jnp.diff(1.0)


@pytest.mark.parametrize("shape, args", [
    ((5,), {}), ((2, 3), {}), ((), {}), ((0,), {}), ((5,), {"to_end": 1.0}),
    ((5,), {"to_begin": np.array([1, 2], f32), "to_end": np.array([[3.0]], f32)})], ids=str)
def test_ediff1d(shape, args, rng):
    x = draw(rng, shape)
    np.testing.assert_array_equal(jnp.ediff1d(x, **args), np.ediff1d(x, **args))


GRADIENTS = [
    ((5,), (), {}), ((2,), (), {}), ((4, 5), (), {}), ((4, 5), (2.0,), {}), ((4, 5), (2.0, 3.0), {}),
    ((4, 5), (2.0,), {"axis": 0}), ((4, 5), (), {"axis": (1,)}), ((3, 4, 5), (), {"axis": -1}), ((5,), ([0, 1, 3, 6, 7],), {}),
    ((4, 5), (np.arange(4.0) ** 2, np.arange(5.0) ** 2), {}), ((4, 5), (1.0, np.arange(5.0)), {}), ((5,), (2,), {}),
]


@pytest.mark.parametrize("shape, spacings, args", GRADIENTS, ids=str)
def test_gradient(shape, spacings, args, rng):
    x = draw(rng, shape)
    got = jnp.gradient(x, *[np.asarray(each, f32) if isinstance(each, np.ndarray) else each for each in spacings], **args)
    expected = np.gradient(x, *spacings, **args)
    assert isinstance(got, list) == isinstance(expected, (tuple, list))
    for one, other in zip(got if isinstance(got, list) else [got],
                          expected if isinstance(expected, (tuple, list)) else [expected], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def test_gradient_refuses():
    x = np.ones((4, 5), f32)
    for error, args, kwargs in ((TypeError, (1, 2, 3), {}), (ValueError, (np.arange(3.0), 1.0), {}),
                                (ValueError, (), {"axis": 5}), (NotImplementedError, (), {"edge_order": 1})):
        with pytest.raises(error):
            jnp.gradient(x, *args, **kwargs)
    with pytest.raises(ValueError, match="too small"):
        jnp.gradient(np.ones(1, f32))


@pytest.mark.parametrize("shape, args", [
    ((5,), {}), ((2, 5), {"axis": 0}), ((5,), {"dx": 2}), ((5,), {"x": np.arange(5.0) ** 2}), ((0,), {}), ((1,), {}),
    ((2, 5), {"x": np.arange(10.0).reshape(2, 5)}), ((2, 5), {"x": np.arange(2.0), "axis": 0})], ids=str)
def test_trapezoid(shape, args, rng):
    y = draw(rng, shape)
    given = {key: value.astype(f32) if isinstance(value, np.ndarray) else value for key, value in args.items()}
    integrate = getattr(np, "trapezoid", None) or np.trapz
    np.testing.assert_allclose(jnp.trapezoid(y, **given), integrate(y, **args), rtol=1e-5)


def test_trapezoid_along_an_axis_is_computed_there(rng):
    y, x = draw(rng, (4, 3, 5)), np.sort(draw(rng, (4, 3, 5)), axis=1)
    np.testing.assert_allclose(jnp.trapezoid(y, x, axis=1), (np.diff(x, axis=1) * (y[:, 1:] + y[:, :-1]) / 2).sum(1), rtol=1e-4)
    assert "transpose" not in str(jaxlite.make_jaxpr(lambda *given: jnp.trapezoid(*given, axis=1))(y, x))


@pytest.mark.parametrize("phases, args", [
    (PHASES, {}), (PHASES, {"discont": 5.0}), (PHASES, {"discont": 1.0}), (PHASES, {"period": 4}),
    (np.stack([PHASES, 2 * PHASES]), {}),
    (np.stack([PHASES, 2 * PHASES]), {"axis": 0}), (np.zeros(0, f32), {}), (PHASES.astype(np.int32), {"period": 4}),
    (PHASES.astype(np.int32), {"period": 5})], ids=str)
def test_unwrap(phases, args):
    got = jnp.unwrap(phases, **args)
    assert got.dtype == phases.dtype
    np.testing.assert_allclose(got, np.unwrap(phases, **args), rtol=1e-5, atol=1e-5)


def test_periods_that_are_arrays_or_traced():
    expected = np.unwrap(PHASES, period=3.0)
    for period in (np.float32(3), jnp.float32(3), np.asarray(3.0)):
        np.testing.assert_allclose(jnp.unwrap(PHASES, period=period), expected, rtol=1e-5, atol=1e-5)
    traced = jaxlite.jit(lambda period: jnp.unwrap(PHASES, period=period))(3.0)
    np.testing.assert_allclose(traced, expected, rtol=1e-5, atol=1e-5)


def test_unwrap_refuses():
    with pytest.raises(ValueError, match="complex"):
        jnp.unwrap(np.ones(3, np.complex64))
    with pytest.raises(ValueError):
        jnp.unwrap(PHASES, axis=1)


# --- interpolation -----------------------------------------------------------------------------------

X = np.array([-1, 0, 0.5, 1, 2.5, 3, 4, np.nan, np.inf, -np.inf], f32)
XP, FP = np.array([0, 1, 2, 3], f32), np.array([1, 3, -2, 4], f32)


@pytest.mark.parametrize("args", [{}, {"left": -9.0}, {"right": 9}, {"period": 2.5}, {"period": -3}], ids=str)
def test_interp(args):
    x = X[:7] if "period" in args else X
    np.testing.assert_allclose(jnp.interp(x, XP, FP, **args), np.interp(x, XP, FP, **args), rtol=1e-5)


def test_interp_beyond_the_samples():
    got = jnp.interp(np.array([-1, 4], f32), XP, FP, left="extrapolate", right="extrapolate")
    np.testing.assert_allclose(got, [-1, 10])
    np.testing.assert_allclose(jnp.interp(np.array([-1, 0, 7], f32), XP[:1], FP[:1]), [1, 1, 1])
    assert float(jnp.interp(1, np.array([0, 1, 1, 2], f32), FP)) in (3, -2)  # a jump


def test_interp_types_and_shapes():
    assert jnp.interp(2, np.arange(4), np.arange(4)).dtype == f32
    assert jnp.interp(X, XP, FP + 1j * FP).dtype == np.complex64
    assert jnp.interp(X[:6].reshape(3, 2), XP, FP).shape == (3, 2)
    assert jnp.interp(X[:0], XP, FP).shape == (0,)


def test_interp_refuses():
    for args, kwargs in (((X, XP, FP[:2]), {}), ((X, XP.reshape(2, 2), FP.reshape(2, 2)), {}), ((X, XP, FP), {"left": "foo"}),
                         ((X, XP, FP), {"period": 0}), ((X, XP, FP), {"period": XP})):
        with pytest.raises(ValueError):
            jnp.interp(*args, **kwargs)


# --- convolution -------------------------------------------------------------------------------------

LENGTHS = [(5, 3), (3, 5), (4, 2), (2, 4), (4, 4), (1, 1), (4, 5)]


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize("name", ["convolve", "correlate"])
def test_convolutions(name, mode, rng):
    for left, right in LENGTHS:
        a, v = draw(rng, left, np.complex64), draw(rng, right, np.complex64)
        np.testing.assert_allclose(getattr(jnp, name)(a, v, mode), getattr(np, name)(a, v, mode), rtol=1e-5, atol=1e-5)


def test_convolution_defaults_and_dtypes(rng):
    a, v = draw(rng, 5, np.int32), draw(rng, 3, np.int32)
    for name in ("convolve", "correlate"):
        function = getattr(jnp, name)
        got = function(a, v)
        assert got.dtype == f32
        np.testing.assert_array_equal(got, getattr(np, name)(a, v))
        assert function(a.astype(bfloat16), v.astype(bfloat16), preferred_element_type=np.float32).dtype == f32
        assert "HIGHEST" in str(jaxlite.make_jaxpr(lambda x, f=function: f(x, x, precision="highest"))(a))
        for bad in ((a[:0], v), (a.reshape(1, 5), v), (a, v, "x")):
            with pytest.raises(ValueError):
                function(*bad)


def test_default_floats_of_integers_with_x64(x64):
    """Some functions of integers give the default float, others float32 as `sin` does: as in JAX."""
    whole = jnp.arange(4, dtype=np.int32)
    for wide in (jnp.rint(whole), jnp.angle(whole), jnp.linalg.vector_norm(whole), jnp.unwrap(whole)):
        assert wide.dtype == np.float64
    assert jnp.trapezoid(whole).dtype == np.float32 and jnp.trapezoid(whole, dx=np.float64(1)).dtype == np.float64
    mask = whole > 1
    for narrow in (jnp.square(mask), mask // mask, mask % mask, mask ** mask, mask << mask, *divmod(mask, mask)):
        assert narrow.dtype == np.int32
    for wide in (jnp.sum(mask), jnp.cumsum(mask), jnp.prod(mask), jnp.trace(mask[None])):
        assert wide.dtype == np.int64
