"""Interpolation in grids against SciPy."""

import numpy as np
import pytest
import scipy.interpolate

import jaxlite
from jaxlite.scipy.interpolate import RegularGridInterpolator
from tests.rule_checks import difference

DRAW = np.random.default_rng(0)
LINES = [np.sort(DRAW.uniform(-2, 2, size)) for size in (4, 5, 3)]
VALUES = DRAW.normal(size=(4, 5, 3, 2))
POINTS = DRAW.uniform(-2.5, 2.5, (6, 7, 3))


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_values_of_scipy(rank, x64):
    lines, points = LINES[:rank], POINTS[..., :rank]
    values = VALUES[..., 0] if rank == 3 else VALUES[(slice(None),) * (rank + 1) + (0,) * (3 - rank)]

    def run(kind, method, fill):
        return kind(lines, values, method, False, fill)(points)

    for method in ("linear", "nearest"):
        for fill in (np.nan, 1.5, None):
            np.testing.assert_allclose(run(RegularGridInterpolator, method, fill),
                                       run(scipy.interpolate.RegularGridInterpolator, method, fill), rtol=1e-9, atol=1e-12)


def test_forms_of_points(x64):
    line, values = LINES[1], DRAW.normal(size=5)
    ours, theirs = (kind((line,), values, bounds_error=False, fill_value=None) for kind in
                    (RegularGridInterpolator, scipy.interpolate.RegularGridInterpolator))
    x = np.linspace(-2, 2, 6)
    np.testing.assert_allclose(ours(x), theirs(x), rtol=1e-10)
    plane = RegularGridInterpolator(LINES[:2], VALUES[..., 0, 0], fill_value=None)
    expected = scipy.interpolate.RegularGridInterpolator(LINES[:2], VALUES[..., 0, 0], bounds_error=False, fill_value=None)
    apart = (np.array([0.1, 0.2]), np.array([[0.5], [-0.5], [0.0]]))
    np.testing.assert_allclose(plane(apart), expected(tuple(np.broadcast_arrays(*apart))), rtol=1e-10)
    np.testing.assert_allclose(plane(POINTS[..., :2], "nearest"), expected(POINTS[..., :2], "nearest"), rtol=1e-10)
    for points in (np.array([0.1, 0.5]), np.array([0.1, 0.5, 0.2, -0.5])):  # a vector holds points one after the other
        assert plane(points).shape == expected(points).shape == (points.size // 2,)
        np.testing.assert_allclose(plane(points), expected(points), rtol=1e-10)
    at_grid = np.stack(np.meshgrid(*LINES[:2], indexing="ij"), -1)
    np.testing.assert_allclose(plane(at_grid), VALUES[..., 0, 0], rtol=1e-10)


def test_types():
    assert RegularGridInterpolator((np.arange(3),), np.arange(3))(np.array([0.5], np.float32)).dtype == np.float32
    z = RegularGridInterpolator((np.arange(2.0),), np.array([0, 2j], np.complex64))(np.array([0.5], np.float32))
    assert (z.dtype, z.tolist()) == (np.complex64, [1j])


def test_derivatives_batches_and_traced_grids(x64):
    points, tangent = POINTS[0, :, :2], DRAW.normal(size=(7, 2))

    def at(points):
        return RegularGridInterpolator(LINES[:2], VALUES[..., 0, 0], fill_value=None)(points)

    _, pushed = jaxlite.jvp(at, (points,), (tangent,))
    np.testing.assert_allclose(pushed, difference(at, (points,), (tangent,))[0], rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(jaxlite.vmap(at)(points)[:, 0], at(points), rtol=1e-10)

    @jaxlite.jit
    def traced(line, values):
        return RegularGridInterpolator((line,), values, fill_value=None)(np.array([0.25]))

    np.testing.assert_allclose(traced(LINES[1], VALUES[0, :, 0, 0]), np.interp([0.25], LINES[1], VALUES[0, :, 0, 0]))


@pytest.mark.parametrize("call, error, message", [
    (lambda: RegularGridInterpolator((np.arange(2),), np.arange(2), "cubic"), ValueError, "'cubic' is not defined"),
    (lambda: RegularGridInterpolator((np.arange(2),), np.arange(2), bounds_error=True), NotImplementedError, "cannot raise"),
    (lambda: RegularGridInterpolator((np.arange(2),) * 2, np.arange(2)), ValueError, "2 point arrays, but values has 1"),
    (lambda: RegularGridInterpolator((np.ones((2, 2)),), np.arange(2)), ValueError, "must be 1-dimensional"),
    (lambda: RegularGridInterpolator((np.arange(3),), np.arange(2)), ValueError, "3 points and 2 values in dimension 0"),
    (lambda: RegularGridInterpolator((np.array([1, 0]),), np.arange(2)), ValueError, "strictly ascending"),
    (lambda: RegularGridInterpolator((np.arange(1),), np.arange(1)), ValueError, "needs two"),
    (lambda: RegularGridInterpolator((np.arange(2),), np.arange(2), fill_value=1j), ValueError, "compatible with values"),
    (lambda: RegularGridInterpolator((np.arange(2),), np.arange(2))(np.ones((3, 2))), ValueError, "dimension 2 but this"),
])
def test_errors(call, error, message):
    with pytest.raises(error, match=message):
        call()
