"""gaussian_kde against SciPy."""

import numpy as np
import pytest
import scipy.stats

import jaxlite
from jaxlite.scipy.stats import gaussian_kde

DRAW = np.random.default_rng(0)
SAMPLES = {1: DRAW.normal(size=9), 2: DRAW.normal(size=(2, 12)) * [[1.0], [2.5]]}
WEIGHTS = {1: DRAW.uniform(size=9), 2: DRAW.uniform(size=12)}
POINTS = {1: np.linspace(-3, 3, 7), 2: DRAW.normal(size=(2, 5))}


@pytest.mark.parametrize("rank", [1, 2])
@pytest.mark.parametrize("bandwidth", [None, "scott", "silverman", 0.7])
def test_densities(rank, bandwidth, x64):
    samples, points = SAMPLES[rank], POINTS[rank]
    for weights in (None, WEIGHTS[rank]):
        expected = scipy.stats.gaussian_kde(samples, bandwidth, weights)
        found = gaussian_kde(samples, bandwidth, weights)
        np.testing.assert_allclose(found.covariance, expected.covariance, rtol=1e-10)
        np.testing.assert_allclose(found.inv_cov, expected.inv_cov, rtol=1e-9)
        np.testing.assert_allclose(found.neff, expected.neff, rtol=1e-10)
        np.testing.assert_allclose(found(points), expected(points), rtol=1e-9)
        np.testing.assert_allclose(found.logpdf(points), expected.logpdf(points), rtol=1e-9, atol=1e-10)


def test_bandwidths_by_a_function_and_single_points(x64):
    found = gaussian_kde(SAMPLES[2], lambda kde: kde.neff ** -0.5)
    expected = scipy.stats.gaussian_kde(SAMPLES[2], lambda kde: kde.neff ** -0.5)
    np.testing.assert_allclose(found.pdf(POINTS[2][:, 0]), expected.pdf(POINTS[2][:, 0]), rtol=1e-9)
    assert (found.d, found.n) == (2, 12)


def test_integrals(x64):
    found, expected = gaussian_kde(SAMPLES[1], None, WEIGHTS[1]), scipy.stats.gaussian_kde(SAMPLES[1], None, WEIGHTS[1])
    np.testing.assert_allclose(found.integrate_box_1d(-0.5, 1.25), expected.integrate_box_1d(-0.5, 1.25), rtol=1e-9)
    np.testing.assert_allclose(found.integrate_gaussian(0.3, 1.7), expected.integrate_gaussian(0.3, 1.7), rtol=1e-9)
    plane, plane_expected = (kde(SAMPLES[2], 0.5, WEIGHTS[2]) for kde in (gaussian_kde, scipy.stats.gaussian_kde))
    mean, cov = np.array([0.5, -1.0]), np.array([[1.0, 0.3], [0.3, 2.0]])
    np.testing.assert_allclose(plane.integrate_gaussian(mean, cov), plane_expected.integrate_gaussian(mean, cov), rtol=1e-9)
    others = [kde(SAMPLES[2][:, :5]) for kde in (gaussian_kde, scipy.stats.gaussian_kde)]
    np.testing.assert_allclose(plane.integrate_kde(others[0]), plane_expected.integrate_kde(others[1]), rtol=1e-9)


def test_few_numbers_are_solved_for_and_offsets_far_from_zero_are_kept():
    jaxpr = str(jaxlite.make_jaxpr(lambda x, at: gaussian_kde(x)(at))(SAMPLES[2], POINTS[2]))
    assert jaxpr.count(" = triangular_solve") == 2 and "f32[2,60]" not in jaxpr
    assert jaxpr.count(" = exp") == jaxpr.count(" = log") == 1  # the logarithm is that of the determinant
    near, far = (gaussian_kde(np.float32(SAMPLES[1] + shift))(np.float32(POINTS[1] + shift)) for shift in (0, 4096))
    np.testing.assert_allclose(near, far, rtol=2e-2)


def test_draws_have_the_moments_of_the_density():
    kde = gaussian_kde(SAMPLES[2].astype(np.float32), None, WEIGHTS[2])
    drawn = kde.resample(jaxlite.random.key(0), (20_000,))
    assert (drawn.shape, drawn.dtype) == ((2, 20_000), np.float32)
    mean = SAMPLES[2] @ kde.weights
    spread = np.cov(SAMPLES[2], aweights=np.asarray(kde.weights), bias=True) + np.asarray(kde.covariance)
    np.testing.assert_allclose(drawn.mean(1), mean, atol=0.06)
    np.testing.assert_allclose(np.cov(drawn), spread, rtol=0.06, atol=0.06)
    assert kde.resample(jaxlite.random.key(1)).shape == (2,)


def test_it_goes_through_transformations(x64):
    kde = jaxlite.jit(gaussian_kde)(SAMPLES[1])
    expected = scipy.stats.gaussian_kde(SAMPLES[1])
    np.testing.assert_allclose(jaxlite.jit(lambda kde, x: kde(x))(kde, POINTS[1]), expected(POINTS[1]), rtol=1e-9)
    slope = jaxlite.jit(jaxlite.grad(lambda x: kde.logpdf(x)[0]))(0.4)
    step = 1e-5
    np.testing.assert_allclose(slope, (expected.logpdf(0.4 + step) - expected.logpdf(0.4 - step))[0] / (2 * step), rtol=1e-6)


@pytest.mark.parametrize("call, error, message", [
    (lambda: gaussian_kde(np.ones(1)), ValueError, "more than one sample"),
    (lambda: gaussian_kde(SAMPLES[1], "wide"), ValueError, "bw_method"),
    (lambda: gaussian_kde(SAMPLES[1], weights=np.ones(3)), ValueError, "weights must have shape"),
    (lambda: gaussian_kde(SAMPLES[2])(np.ones((3, 4))), ValueError, "points have dimension 3"),
    (lambda: gaussian_kde(SAMPLES[2]).integrate_box_1d(0, 1), ValueError, "1D"),
    (lambda: gaussian_kde(SAMPLES[2]).integrate_gaussian(np.ones(3), np.eye(2)), ValueError, "mean does not have"),
    (lambda: gaussian_kde(SAMPLES[2]).integrate_kde(gaussian_kde(SAMPLES[1])), ValueError, "same dimensionality"),
    (lambda: gaussian_kde(SAMPLES[1]).set_bandwidth(2), NotImplementedError, "make a new"),
])
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call()
