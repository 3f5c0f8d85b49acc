"""Quantiles, weighted means, covariances and histograms of jaxlite.numpy, against NumPy."""

from __future__ import annotations

import warnings

import ml_dtypes
import numpy as np
import pytest

import jaxlite
import jaxlite.numpy as jnp
from jaxlite.errors import ConcretizationTypeError

bfloat16 = np.dtype(ml_dtypes.bfloat16)
RNG = np.random.default_rng(5)
X = RNG.normal(size=(3, 4, 5)).astype(np.float32)
WITH_NAN = np.where(RNG.random(X.shape) < 0.3, np.nan, X).astype(np.float32)
WITH_NAN[1, :, 2] = np.nan
INTS = np.array([[3, 1, 2, 9], [5, 5, 0, 1]], np.int32)
WEIGHTS = np.array([1, 2, 3, 4], np.float32)


def close(result, expected, rtol=1e-5):
    with np.errstate(all="ignore"):
        assert np.shape(result) == np.shape(expected)
        np.testing.assert_allclose(np.asarray(result).astype(np.float64), np.asarray(expected).astype(np.float64), rtol,
                                   1e-5)


def numpys(name, *args, **arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return getattr(np, name)(*args, **arguments)


# --- order statistics --------------------------------------------------------------------------------

PLACES = [{}, {"axis": 1}, {"axis": (0, 2)}, {"axis": -1, "keepdims": True}, {"keepdims": True}]


@pytest.mark.parametrize("x", [X, WITH_NAN, X[:1, :1], (X * 4).astype(np.int32)], ids=["numbers", "nan", "few", "ints"])
def test_medians_match_numpy(x):
    cases = [(name, place) for name in ("median", "nanmedian") for place in PLACES]
    results = jaxlite.jit(lambda x: [getattr(jnp, name)(x, **place) for name, place in cases])(x)
    for (name, place), result in zip(cases, results, strict=True):
        assert result.dtype == np.float32
        close(result, numpys(name, x, **place))


@pytest.mark.parametrize("name", ["quantile", "nanquantile", "percentile", "nanpercentile"])
@pytest.mark.parametrize("x", [X, WITH_NAN], ids=["numbers", "nan"])
def test_quantiles_match_numpy(name, x):
    whole = 100 if "percentile" in name else 1
    fractions = (np.float32(0.3) * whole, np.array([0, 0.25, 0.5, 0.9, 1], np.float32) * whole)
    cases = [(q, {**place, "method": method}) for method, places in (
        ("linear", PLACES), ("lower", PLACES[1:2]), ("higher", PLACES[2:3]), ("midpoint", PLACES[3:4]),
        ("inverted_cdf", PLACES[1:2])) for place in places for q in fractions]
    results = jaxlite.jit(lambda x: [getattr(jnp, name)(x, q, **arguments) for q, arguments in cases])(x)
    for (q, arguments), result in zip(cases, results, strict=True):
        assert result.dtype == np.float32
        close(result, numpys(name, x.astype(np.float64), q, **arguments), 1e-4)


def test_quantiles_of_floats_of_8_bits():
    x = jnp.array([[3.0, -1.0, 0.5], [1.0, 2.0, -4.0]]).astype(ml_dtypes.float8_e5m2)
    for function in (jnp.quantile, jnp.nanquantile):
        found = function(x, 0.5, axis=1)
        assert found.dtype == x.dtype and found.astype(float).tolist() == [0.5, 1]
    assert jnp.nanpercentile(x, 50, axis=0).astype(float).tolist() == [2, 0.5, -1.75]
    fractions = jnp.array([0.0, 0.5]).astype(ml_dtypes.float8_e5m2)
    for each, dtype in ((x, x.dtype), (x.astype(jnp.float16), jnp.float16)):
        assert jnp.quantile(each, fractions, axis=1).dtype == dtype
        assert jnp.quantile(each, fractions, axis=1).astype(float).tolist() == [[-1, -4], [0.5, 1]]


def test_densities_of_floats_of_8_bits():
    density, edges = jnp.histogram(jnp.arange(3).astype(ml_dtypes.float8_e5m2), density=True, bins=3)
    assert density.dtype == edges.dtype == ml_dtypes.float8_e5m2
    np.testing.assert_allclose(density.astype(float), [0.5, 0.5, 0.5], rtol=0.15)


def test_nearest_quantile_rounds_halves_down():
    got = jnp.quantile(WEIGHTS, np.array([0, 0.125, 0.375, 0.5, 0.625, 1]), method="nearest")
    assert got.tolist() == [1, 1, 2, 2, 3, 4]


def test_quantiles_of_other_dtypes_and_edge_cases():
    for dtype in (np.dtype(np.float16), bfloat16):
        x = np.arange(7).astype(dtype)
        assert jnp.median(x).dtype == dtype and jnp.median(x) == 3
        with jaxlite.numpy_dtype_promotion("strict"):  # what is computed in float32 is converted on purpose
            assert jnp.quantile(x, 0.5).dtype == dtype and jnp.nanpercentile(x, 50.0) == 3
    halves = np.arange(2047).astype(np.float16)
    assert jnp.quantile(halves, 0.999) == np.float16(2044)  # its position needs more digits than half floats have
    assert jnp.quantile(INTS, 1) == 9 and jnp.percentile(INTS, 100) == 9
    assert jnp.median(3) == 3 and jnp.median(INTS > 2) == 0.5
    assert np.isnan(jnp.median(X[:0])) and jnp.median(X[:0], 1).shape == (0, 5)
    assert jnp.quantile(X[0, 0], np.nan) != jnp.quantile(X[0, 0], np.nan)


def test_weighted_quantiles_match_numpy():
    q = np.array([0.1, 0.3, 0.77], np.float32)
    arguments = [({"axis": 1}, WEIGHTS), ({"axis": (0, 1)}, np.abs(X[:, :, 0])), ({}, np.abs(X)),
                 ({"axis": 1, "keepdims": True}, WEIGHTS)]
    results = jaxlite.jit(lambda x: [jnp.quantile(x, q, weights=weights, method="inverted_cdf", **place)
                                     for place, weights in arguments])(X)
    for (place, weights), result in zip(arguments, results, strict=True):
        close(result, np.quantile(X, q, weights=weights, method="inverted_cdf", **place))
    got = jnp.nanquantile(WITH_NAN, 0.3, axis=1, weights=WEIGHTS, method="inverted_cdf")
    weights = np.broadcast_to(WEIGHTS[:, None], X.shape)  # NumPy's own stretching of weights fails here
    close(got, numpys("nanquantile", WITH_NAN, 0.3, axis=1, weights=weights, method="inverted_cdf"))
    assert np.isnan(jnp.quantile(WEIGHTS, 0.3, weights=-WEIGHTS, method="inverted_cdf"))


# --- weighted means, covariances ---------------------------------------------------------------------


def test_average_matches_numpy():
    cases = [(X, {}), (X, {"axis": (0, 1)}), (X, {"weights": np.abs(X)}), (X, {"axis": 1, "weights": WEIGHTS}),
             (X, {"axis": (1, 0), "weights": np.abs(X[:, :, 0]).T}), (INTS, {"weights": INTS}),
             (X, {"axis": (0, 2), "weights": np.abs(X[:, 0]), "keepdims": True}), (X, {"axis": 2, "keepdims": True}),
             (X * 1j, {"axis": 1, "weights": WEIGHTS + 2j})]
    got = jaxlite.jit(lambda: [jnp.average(x, **arguments, returned=True) for x, arguments in cases])()
    for (x, arguments), (mean, total) in zip(cases, got, strict=True):
        expected, expected_total = np.average(x, **arguments, returned=True)
        np.testing.assert_allclose(mean, expected, 2e-5, 1e-6)
        np.testing.assert_allclose(total, np.broadcast_to(expected_total, np.shape(expected)), 1e-5)
    assert jnp.average(INTS).dtype == np.float32 and np.isnan(jnp.average(X[:0]))


def test_covariances_match_numpy():
    m, y = X[0], X[1]
    f, a = np.array([1, 2, 0, 3, 1]), np.array([1, 0.5, 2, 1, 3])
    cases = [(m, {}), (m, {"rowvar": False}), (m, {"bias": True}), (m, {"ddof": 2}), (m, {"y": y}), (m[0], {}),
             (m[0], {"y": y[0]}), (m, {"fweights": f}), (m, {"aweights": a}), (m, {"fweights": f, "aweights": a}),
             (m + 1j * y, {}), (INTS, {}), (m, {"fweights": f, "ddof": 0})]
    results = jaxlite.jit(lambda: [jnp.cov(x, **arguments) for x, arguments in cases])()
    for (x, arguments), result in zip(cases, results, strict=True):
        expected = np.cov(x, **arguments)
        assert result.shape == expected.shape
        np.testing.assert_allclose(result, expected, 1e-4, 1e-5)
    cases = [(m, {}), (m, {"y": y, "rowvar": False}), (m[0], {}), (m + 1j * y, {})]
    results = jaxlite.jit(lambda: [jnp.corrcoef(x, **arguments) for x, arguments in cases])()
    for (x, arguments), result in zip(cases, results, strict=True):
        np.testing.assert_allclose(result, np.corrcoef(x, **arguments), 1e-4, 1e-5)
    assert jnp.cov(m, dtype="float16").dtype == np.float16
    assert jnp.cov(X[0, :0]).shape == (0, 0) and np.isnan(np.asarray(jnp.cov(X[0, :2, :0]))).all()


# --- histograms --------------------------------------------------------------------------------------


def test_histograms_match_numpy():
    edges = np.array([-1, -0.5, 0.25, 1], np.float32)
    cases = [(X, {}), (X, {"bins": 5, "range": (-1, 1)}), (X, {"bins": edges}), (INTS, {"bins": 4}),
             (X, {"bins": 5, "density": True}), (X, {"bins": 5, "weights": np.abs(X)}), (INTS > 2, {"bins": 2}),
             (X, {"bins": edges, "weights": np.abs(X), "density": True}), (np.ones(3, np.float32), {"bins": 3}),
             (X, {"bins": 20, "range": (-2, 1)}), (INTS, {"bins": np.array([0, 1, 5, 9])}), (X[:0], {"bins": 3}),
             (INTS[:0], {"bins": 2, "weights": np.ones(INTS[:0].shape)})]
    results = jaxlite.jit(lambda: [jnp.histogram(x, **arguments) for x, arguments in cases])()
    for (x, arguments), (counts, found) in zip(cases, results, strict=True):
        x = x.astype(np.float64) if x.dtype == bool else x
        expected, expected_edges = np.histogram(x, **arguments)
        assert counts.dtype == found.dtype == np.float32
        close(found, expected_edges)
        close(counts, expected, 1e-4)
    close(jnp.histogram_bin_edges(INTS, 4, range=(0.5, 2)), np.histogram_bin_edges(INTS, 4, range=(0.5, 2)))
    assert [each.tolist() for each in jnp.histogram2d(X[0, 0, :0], X[0, 0, :0], 1)] == [[[0]], [0, 1], [0, 1]]
    counts, _ = jnp.histogram(np.zeros(5000, np.float16), 2)  # more than half floats can count to, one by one
    assert counts.tolist() == [0, 5000]
    assert jnp.histogram(np.array([np.nan, 1, 2], np.float32), np.array([0.0, 1.5, 3]))[0].tolist() == [1, 1]
    for call in (lambda: jnp.histogram(X, np.zeros(0)), lambda: jnp.histogramdd(X.reshape(60, 1), [np.zeros(0)])):
        with pytest.raises(IndexError, match="bins"):
            call()


def test_bins_of_integers_are_between_extremes_of_floats():
    lines = jaxlite.jit(lambda x: jnp.histogram(x, 3)).lower(INTS).as_text().splitlines()
    extremes = [line for line in lines if "stablehlo.reduce(" in line and ("maximum" in line or "minimum" in line)]
    assert len(extremes) == 2 and all("xf32>" in line for line in extremes)


def test_histograms_of_points_match_numpy():
    x, y, w = X.ravel(), X.ravel()[::-1], np.abs(X).ravel()
    edges = np.array([-1, 0, 1], np.float32)
    cases = [{"bins": 4}, {"bins": [3, 4]}, {"bins": (3, edges)}, {"bins": edges},
             {"bins": 4, "range": [(-1, 1), (0, 1)]}, {"bins": 4, "density": True},
             {"bins": 3, "weights": w}, {"bins": [edges, edges[1:]]}]
    got = jaxlite.jit(lambda x, y: [jnp.histogram2d(x, y, **arguments) for arguments in cases])(x, y)
    for arguments, results in zip(cases, got, strict=True):
        for result, expected in zip(results, np.histogram2d(x, y, **arguments), strict=True):
            close(result, expected, 1e-4)
    sample = X.reshape(20, 3)
    for arguments in ({"bins": (2, 3, 4)}, {"bins": 2, "range": [(-1, 1)] * 3}):
        counts, found = jnp.histogramdd(sample, **arguments)
        expected, expected_edges = np.histogramdd(sample, **arguments)
        assert counts.dtype == np.int32 and isinstance(found, list)
        close(counts, expected)
        for one, other in zip(found, expected_edges, strict=True):
            close(one, other)
    assert jnp.histogramdd(sample, 2, range=[None, (-1, 1), None])[0].sum() <= 20
    half, edges = jnp.histogramdd(sample.astype(np.float16), 2, density=True)
    assert half.dtype == edges[0].dtype == np.float16
    weighted, edges = jnp.histogramdd(sample.astype(np.float16), 2, weights=np.ones(20, np.float32))
    assert weighted.dtype == edges[0].dtype == np.float32


def test_bincount():
    x = INTS[0]
    assert jnp.bincount(x).tolist() == np.bincount(x).tolist()
    assert jnp.bincount(x, minlength=12).tolist() == np.bincount(x, minlength=12).tolist()
    got = jaxlite.jit(lambda x: (jnp.bincount(x, length=4), jnp.bincount(x, WEIGHTS, length=3),
                                 jnp.bincount(x, length=0), jnp.bincount(x[:0], length=2),
                                 jnp.bincount(np.array([-1, 2, 3]), length=3), jnp.bincount(x > 2, length=2)))(x)
    assert [each.tolist() for each in got] == [[0, 1, 1, 1], [0, 2, 3], [], [0, 0], [1, 0, 1], [2, 2]]
    assert got[0].dtype == np.int32 and got[1].dtype == np.float32
    assert jnp.bincount(np.array([200, 3], np.uint8), length=300)[200] == 1
    assert jnp.bincount(np.array([2**32 - 1, 1], np.uint32), length=2).tolist() == [0, 1]
    assert jnp.bincount(x[:0]).shape == (0,)


ERRORS = [
    (TypeError, "median requires", lambda: jnp.median([1, 2])),
    (ValueError, "does not support", lambda: jnp.median(X, out=X)),
    (ValueError, "overwrite_input", lambda: jnp.quantile(X, 0.5, overwrite_input=True)),
    (ValueError, "complex", lambda: jnp.quantile(X * 1j, 0.5)),
    (ValueError, r"\(1, 2\)", lambda: jnp.quantile(X, np.ones((1, 2)))),
    (ValueError, "'guess'", lambda: jnp.quantile(X, 0.5, method="guess")),
    (ValueError, "axis 3", lambda: jnp.median(X, 3)),
    (NotImplementedError, "inverted_cdf", lambda: jnp.quantile(WEIGHTS, 0.5, weights=WEIGHTS)),
    (ValueError, r"\(4,\)", lambda: jnp.quantile(X, 0.5, weights=WEIGHTS, method="inverted_cdf")),
    (ValueError, "Axis must be specified", lambda: jnp.average(X, weights=WEIGHTS)),
    (ValueError, "consistent", lambda: jnp.average(X, 0, weights=WEIGHTS)),
    (ValueError, "more than 2", lambda: jnp.cov(X)),
    (ValueError, "int32", lambda: jnp.cov(X[0], dtype="int32")),
    (TypeError, "integer", lambda: jnp.cov(X[0], fweights=np.ones(5))),
    (RuntimeError, "incompatible numbers", lambda: jnp.cov(X[0], aweights=np.ones(4))),
    (RuntimeError, "multidimensional", lambda: jnp.cov(X[0], aweights=np.ones((1, 5)))),
    (ValueError, "same shape", lambda: jnp.histogram(X, weights=WEIGHTS)),
    (ValueError, "range", lambda: jnp.histogram(X, range=(1, 2, 3))),
    (NotImplementedError, "string", lambda: jnp.histogram_bin_edges(X, "auto")),
    (TypeError, "integer", lambda: jnp.histogram(X, 3.0)),
    (ValueError, "bin for each dimension", lambda: jnp.histogramdd(X[0], (2, 3))),
    (ValueError, "3 pairs", lambda: jnp.histogramdd(X.reshape(20, 3), range=[(0, 1)])),
    (ValueError, "one weight", lambda: jnp.histogramdd(X[0], 2, weights=np.ones(3))),
    (TypeError, "integer type", lambda: jnp.bincount(WEIGHTS)),
    (ValueError, "1-dimensional", lambda: jnp.bincount(INTS)),
    (ValueError, r"\(2,\)", lambda: jnp.bincount(INTS[0], weights=WEIGHTS[:2])),
    (ConcretizationTypeError, "length", lambda: jaxlite.jit(jnp.bincount)(INTS[0])),
]


@pytest.mark.parametrize(("error", "text", "call"), ERRORS, ids=range(len(ERRORS)))
def test_errors(error, text, call):
    with pytest.raises(error, match=text):
        call()
