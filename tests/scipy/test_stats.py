"""scipy.stats: every function of every distribution against SciPy, in one program for each dtype."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
import scipy.stats as oracle

import jaxlite
import jaxlite.numpy as jnp
import jaxlite.scipy.stats as stats
from tests.rule_checks import difference

X = np.concatenate([np.linspace(-4, 6, 21), [0.25, 0.75, 1.25, 9.0]])
K = np.array([0, 1, 2, 3, 5, -1, 12, 0.5, 7])
LOC_SCALE = {"loc": 0.25, "scale": 1.5}  # exact: a point at the edge of a support is there in both precisions

# Name -> where it is compared, and its parameters. Functions of probabilities get Q instead.
CONTINUOUS = {
    "norm": (X, (), LOC_SCALE), "cauchy": (X, (), LOC_SCALE), "expon": (X, (), LOC_SCALE), "laplace": (X, (), LOC_SCALE),
    "logistic": (X, (), LOC_SCALE), "uniform": (X, (), LOC_SCALE), "gumbel_l": (X, (), LOC_SCALE),
    "gumbel_r": (X, (), LOC_SCALE), "pareto": (X, (2.3,), LOC_SCALE), "gamma": (X, (2.3,), LOC_SCALE),
    "chi2": (X, (3.0,), LOC_SCALE), "beta": (X, (2.3, 1.4), LOC_SCALE), "t": (X, (3.5,), LOC_SCALE), "gennorm": (X, (1.4,), {}),
    "vonmises": (np.linspace(-3, 3, 9), (1.3,), {}), "wrapcauchy": (np.linspace(-1, 7, 12), (0.4,), {}),
    "truncnorm": (X, (-1.2, 1.9), LOC_SCALE), "truncnorm ": (X, (1.2, 2.9), LOC_SCALE),
    "truncnorm  ": (X, (-2.5, -1.0), LOC_SCALE),
}
DISCRETE = {
    "poisson": (K, (2.3,), {"loc": 1}), "bernoulli": (K, (0.3,), {}), "binom": (K, (7, 0.3), {"loc": 1}),
    "geom": (K, (0.3,), {"loc": 1}), "nbinom": (K, (3.4, 0.3), {"loc": 1}), "betabinom": (K, (7, 1.3, 2.2), {"loc": 1}),
}
Q = np.array([0.0, 0.01, 0.3, 0.5, 0.8, 0.99])


def functions(name):
    module = getattr(stats, name.strip())
    return {key: fun for key, fun in vars(module).items() if inspect.isfunction(fun) and fun.__module__ == module.__name__
            and not key.startswith("_") and key != "entropy"}


def cases():
    for name, (x, shapes, kwargs) in (CONTINUOUS | DISCRETE).items():
        for key, fun in functions(name).items():
            own = {word: value for word, value in kwargs.items() if word in inspect.signature(fun).parameters}
            # At probability 0 SciPy gives the number before the first one, -1.
            quantiles = Q[1:] if name == "bernoulli" else Q
            yield name, key, fun, (quantiles if key in ("ppf", "isf") else x), shapes, own


def test_each_distribution_has_a_row():
    elsewhere = {"dirichlet", "multinomial", "multivariate_normal", "gaussian_kde"}
    distributions = {name for name in dir(stats) if {"logpdf", "logpmf"} & set(dir(getattr(stats, name)))}
    assert {name.strip() for name in CONTINUOUS | DISCRETE} | elsewhere == distributions
    assert {"logpdf", "pdf", "cdf", "sf", "logcdf", "logsf", "ppf", "isf"} == set(functions("norm"))


@pytest.mark.parametrize("name", ["float32", "float64"])
def test_distributions_match_scipy(name, x64):
    dtype = np.dtype(name)
    rows = list(cases())

    @jaxlite.jit
    def run(xs):
        return [fun(x, *shapes, **kwargs) for (_, _, fun, _, shapes, kwargs), x in zip(rows, xs, strict=True)]

    xs = [x.astype(dtype) for _, _, _, x, _, _ in rows]
    failures = []
    with np.errstate(all="ignore"):
        for (distribution, key, _, _, shapes, kwargs), x, found in zip(rows, xs, run(xs), strict=True):
            reference = getattr(oracle, distribution.strip())
            expected = np.asarray(getattr(reference, key)(x.astype(np.float64), *shapes, **kwargs))
            assert found.dtype == dtype and found.shape == x.shape, (distribution, key)
            eps = np.finfo(dtype).eps
            # Logarithms of probabilities near one lose what is left out of it, in SciPy's generic ones as here.
            rough = 400 if key.startswith("log") or key in ("ppf", "isf") else 40
            close = np.isclose(np.asarray(found, np.float64), expected, rtol=2000 * eps, atol=rough * eps, equal_nan=True)
            if not close.all():
                failures.append(f"{distribution}.{key} at {x[~close][:3]}: {np.asarray(found)[~close][:3]}, not "
                                f"{expected[~close][:3]}")
    assert not failures, "\n".join(failures)


def test_distributions_of_vectors_match_scipy(x64, rng):
    p = np.array([0.2, 0.3, 0.5])
    counts = np.array([[1, 2, 3], [0, 0, 6], [1, 1, 1]])
    np.testing.assert_allclose(stats.multinomial.logpmf(counts, 6, p), oracle.multinomial.logpmf(counts, 6, p), rtol=1e-12)
    np.testing.assert_allclose(stats.multinomial.pmf(counts, 6, p), oracle.multinomial.pmf(counts, 6, p), rtol=1e-12)
    alpha = np.array([1.5, 2.0, 0.7])
    x = rng.dirichlet(alpha, 4).T
    for given in (x, x[:2]):
        np.testing.assert_allclose(stats.dirichlet.logpdf(given, alpha), oracle.dirichlet.logpdf(x, alpha), rtol=1e-12)
        np.testing.assert_allclose(stats.dirichlet.pdf(given, alpha), oracle.dirichlet.pdf(x, alpha), rtol=1e-12)
    assert stats.dirichlet.logpdf(np.array([0.5, 0.6, 0.2]), alpha) == -np.inf
    mean, root = rng.normal(size=3), rng.normal(size=(2, 3, 3))
    cov = root @ np.swapaxes(root, -1, -2) + np.eye(3)
    points = rng.normal(size=(2, 3))
    expected = [oracle.multivariate_normal.logpdf(point, mean, each) for point, each in zip(points, cov, strict=True)]
    np.testing.assert_allclose(stats.multivariate_normal.logpdf(points, mean, cov), expected, rtol=1e-12)
    np.testing.assert_allclose(stats.multivariate_normal.pdf(points, mean, cov[0]),
                               oracle.multivariate_normal.pdf(points, mean, cov[0]), rtol=1e-12)
    np.testing.assert_allclose(stats.multivariate_normal.logpdf(1.5, 0.5, 2.0), oracle.norm.logpdf(1.5, 0.5, 2**0.5))
    with pytest.raises(ValueError, match="cov must have shape"):
        stats.multivariate_normal.logpdf(points, mean, np.eye(2))
    with pytest.raises(ValueError, match="one entry fewer"):
        stats.dirichlet.logpdf(np.ones(5) / 5, alpha)


def test_entropy_of_poisson_distributions(x64):
    mu = np.array([0.1, 1.0, 5.0, 40.0, 59.0, 61.0, 200.0])
    expected = []
    for each in mu:
        log = oracle.poisson.logpmf(np.arange(600), each)
        expected.append(-np.sum(np.where(np.isfinite(log), np.exp(log) * log, 0)))
    np.testing.assert_allclose(stats.poisson.entropy(mu), expected, rtol=1e-10)
    moved = stats.poisson.entropy(mu[:2], loc=np.ones((3, 1), int))
    np.testing.assert_allclose(moved, [expected[:2]] * 3, rtol=1e-10)


def test_derivatives_by_differences(x64):
    rows = {"norm": (), "cauchy": (), "expon": (), "laplace": (), "logistic": (), "gumbel_r": (), "gamma": (2.3,),
            "chi2": (3.0,), "beta": (2.3, 1.4), "t": (3.5,), "pareto": (2.3,), "truncnorm": (-1.2, 1.9)}

    def logpdfs(x, loc, scale, delta):
        at = {"beta": x / 4, "pareto": x + 1.5}
        return jnp.stack([getattr(stats, name).logpdf(at.get(name, x), *[each * delta for each in shapes], loc=loc, scale=scale)
                          for name, shapes in rows.items()] + [stats.norm.logcdf(x, loc, scale), stats.norm.ppf(x / 3)])

    point, direction = (1.1, 0.1, 1.3, 1.0), (0.3, -0.5, 0.7, 0.2)
    point, direction = (tuple(np.float64(each) for each in values) for values in (point, direction))
    run = jaxlite.jit(lambda *args: jaxlite.jvp(logpdfs, args, direction))
    (expected,) = difference(lambda *args: run(*args)[0], point, direction, 1e-4)
    np.testing.assert_allclose(run(*point)[1], expected, rtol=1e-8, atol=1e-10)


def test_derivatives_are_finite_outside_of_the_support():
    for name, x, shapes in (("gamma", -1.0, (2.0,)), ("beta", 2.0, (2.0, 3.0)), ("pareto", 0.5, (2.0,)), ("uniform", 3.0, ())):
        assert jaxlite.grad(getattr(stats, name).pdf)(x, *shapes) == 0, name


def test_no_density_of_a_negative_scale():
    rows = {"expon": (), "gamma": (2.0,), "pareto": (2.0,), "uniform": (), "norm": (), "beta": (2.0, 3.0)}
    for name, shapes in rows.items():
        assert np.isnan(getattr(stats, name).pdf(np.array([-3.0, 0.5, 4.0]), *shapes, 0, -1)).all(), name


SAMPLE = np.array([[3.0, 1, 3, 2], [2, 2, 1, 1], [5, 5, 5, 1]], np.float32)


@pytest.mark.parametrize("axis", [None, 0, 1])
def test_summaries_match_scipy(axis):
    for keepdims in (False, True):
        found, expected = (each.mode(SAMPLE, axis=axis, keepdims=keepdims) for each in (stats, oracle))
        np.testing.assert_array_equal(found.mode, expected.mode)
        np.testing.assert_array_equal(found.count, expected.count)
    for method in ("average", "min", "max", "dense", "ordinal"):
        np.testing.assert_array_equal(stats.rankdata(SAMPLE, method, axis=axis), oracle.rankdata(SAMPLE, method, axis=axis))
    np.testing.assert_allclose(stats.sem(SAMPLE, axis=axis), oracle.sem(SAMPLE, axis=axis), rtol=1e-6)


def test_summary_errors():
    with pytest.raises(NotImplementedError, match="omit"):
        stats.mode(SAMPLE, nan_policy="omit")
    for axis, shape in ((1, (2, 1)), (None, (1, 1))):
        empty = stats.mode(jnp.zeros((2, 0), int), axis=axis, keepdims=True)
        assert empty.mode.shape == empty.count.shape == shape and jnp.isnan(empty.mode).all() and (empty.count == 0).all()
    assert stats.dirichlet.pdf(jnp.ones(0), jnp.ones(0)) == 0
    with pytest.raises(ValueError, match="nan_policy must be"):
        stats.sem(SAMPLE, nan_policy="foo")
    with pytest.raises(ValueError, match="unknown method 'foo'"):
        stats.rankdata(SAMPLE, "foo")


def test_no_slope_where_there_is_no_probability():
    value, slope = jaxlite.value_and_grad(lambda x: stats.pareto.logcdf(x, 2.0))(0.5)
    assert (value, slope) == (-np.inf, 0)
    assert stats.truncnorm.logsf(-np.inf, -1.0, 1.0) == 0
    assert jaxlite.grad(lambda k: stats.betabinom.logpmf(k, 3.0, 1.5, 2.0))(0.0) == 0


def test_truncnorm_of_no_range_is_nan():
    for name in ("pdf", "logpdf", "cdf", "logcdf", "sf", "logsf"):
        for a, b, scale in ((1.0, 0.0, 1.0), (1.0, 1.0, 1.0), (np.nan, 1.0, 1.0), (-1.0, 1.0, 0.0), (-1.0, 1.0, -1.0)):
            assert np.isnan(getattr(stats.truncnorm, name)(np.arange(-2.0, 3.0), a, b, 0.0, scale)).all(), (name, a, b, scale)
        assert not np.isnan(getattr(stats.truncnorm, name)(np.arange(-2.0, 3.0), -1.0, 1.0)).any()


def test_slopes_at_infinity():
    x = np.array([-1.0, 0.0, np.inf], np.float32)
    for distribution in (stats.gamma, stats.chi2):
        functions = distribution.cdf, distribution.sf, distribution.logcdf, distribution.logsf
        slopes = jaxlite.vmap(jaxlite.grad(lambda x: sum(f(x, 2.0) for f in functions)))(x)  # noqa: B023
        np.testing.assert_array_equal(slopes, 0)
        assert np.isnan(distribution.cdf(x, -1.0)).all() and np.isnan(distribution.sf(x, np.nan)).all()
    np.testing.assert_array_equal([stats.gumbel_l.logpdf(np.inf), stats.gumbel_r.logpdf(-np.inf)], -np.inf)


def test_tangents_of_the_logistic_density_are_products():
    slope, z = jaxlite.grad(stats.logistic.logpdf), np.array([0.0, 50.0, -50.0, 1.0], np.float32)
    np.testing.assert_allclose(jaxlite.vmap(slope)(z), -np.tanh(z / 2), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(jaxlite.grad(slope)(0.0), -0.5, rtol=1e-6)
    jaxpr = str(jaxlite.make_jaxpr(jaxlite.jacfwd(lambda t: stats.logistic.logpdf(z * t[0] + t[1])))(np.ones(3, np.float32)))
    assert "f32[3,4] = select_n" not in jaxpr and "f32[3,4] = mul" in jaxpr


def test_a_probability_that_is_not_a_number():
    assert np.isnan(stats.bernoulli.cdf(2, np.nan)) and np.isnan(stats.bernoulli.ppf(0.5, np.nan))


def test_a_von_mises_distribution_without_concentration_is_uniform():
    x = np.array([-3.0, 0.0, 1.0])
    np.testing.assert_allclose(stats.vonmises.pdf(x, 0.0), oracle.vonmises.pdf(x, 0.0), rtol=1e-6)
    assert np.isnan(stats.vonmises.pdf(0.0, -1.0))
    np.testing.assert_allclose(jaxlite.vmap(jaxlite.grad(stats.vonmises.logpdf, 1), (0, None))(x, 0.0), np.cos(x), rtol=1e-6)


def test_complex_numbers_where_the_formula_has_them():
    q = np.array([0.3 + 0.2j, 0.5j], np.complex64)
    np.testing.assert_allclose(stats.expon.ppf(q), -np.log(1 - q), rtol=1e-5)
    np.testing.assert_allclose(stats.pareto.ppf(q, 2.0), (1 - q) ** -0.5, rtol=1e-5)
    np.testing.assert_allclose(stats.uniform.ppf(q, 1.0, 2.0), 1 + 2 * q, rtol=1e-5)
    np.testing.assert_allclose(stats.cauchy.cdf(q), 0.5 + np.arctan(q) / np.pi, rtol=1e-5)
    error = stats.sem(q)
    assert error.dtype == np.complex64
    np.testing.assert_allclose(error, np.std(q, ddof=1) / np.sqrt(2), rtol=1e-5)
    cov = np.array([[2, 0.5], [0.5, 1]], np.float32)
    expected = -q @ np.linalg.inv(cov) @ q / 2 - np.log(2 * np.pi) - np.log(np.linalg.det(cov)) / 2
    np.testing.assert_allclose(stats.multivariate_normal.logpdf(q, np.zeros(2), cov), expected, rtol=1e-5)
    codes, distances = jaxlite.scipy.cluster.vq.vq(np.array([[1j], [3]]), np.array([[1 + 1j], [3 + 1j]]))
    assert codes.tolist() == [0, 1] and distances.tolist() == [1, 1]
