"""jaxlite.image: laws of interpolation, and loops over its definition."""

import math

import numpy as np
import pytest
import scipy.ndimage

import jaxlite
import jaxlite.numpy as jnp
from jaxlite import image
from tests.rule_checks import difference

KERNELS = {
    "linear": lambda x: max(0.0, 1 - x),
    "cubic": lambda x: 1.5 * x**3 - 2.5 * x**2 + 1 if x < 1 else -0.5 * x**3 + 2.5 * x**2 - 4 * x + 2 if x < 2 else 0.0,
    "lanczos3": lambda x: np.sinc(x) * np.sinc(x / 3) if x < 3 else 0.0,
    "lanczos5": lambda x: np.sinc(x) * np.sinc(x / 5) if x < 5 else 0.0,
}


def draw(*shape, seed=0):
    return np.random.default_rng((seed, *shape)).normal(size=shape)


def by_definition(line, new_size, kernel, antialias, scale=None, translation=0.0):
    scale = new_size / len(line) if scale is None else scale
    width = max(1 / scale, 1) if antialias else 1
    out = []
    for new in range(new_size):
        center = (new + 0.5 - translation) / scale  # in cells: the first element is from 0 to 1
        weights = [kernel(abs(center - (old + 0.5)) / width) for old in range(len(line))]
        inside = 0 <= center <= len(line)
        out.append(math.fsum(w * v for w, v in zip(weights, line, strict=True)) / sum(weights) if inside else 0.0)
    return np.array(out)


@pytest.mark.parametrize("method", KERNELS)
@pytest.mark.parametrize("antialias", [True, False])
def test_lines_follow_the_definition(method, antialias, x64):
    line = draw(9)
    sizes = (1, 4, 7, 14, 27)
    found = jaxlite.jit(lambda x: [image.resize(x, (size,), method, antialias) for size in sizes])(line)
    for values, size in zip(found, sizes, strict=True):
        np.testing.assert_allclose(values, by_definition(line, size, KERNELS[method], antialias), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("method", KERNELS)
def test_axes_are_independent(method, x64):
    x = draw(4, 6, 3)
    both = image.resize(x, (7, 4, 3), method)
    one_by_one = image.resize(image.resize(x, (7, 6, 3), method), (7, 4, 3), method)
    np.testing.assert_allclose(both, one_by_one, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(both[:, :, 1], image.resize(x[:, :, 1], (7, 4), method), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(image.resize(np.full((4, 6), 2.5), (9, 2), method), np.full((9, 2), 2.5), rtol=1e-12)


@pytest.mark.parametrize("shape, new_shape, first", [
    ((128, 64), (64, 32), (128, 32)), ((64, 32), (128, 64), (128, 32)), ((50, 80), (25, 160), (25, 80))])
def test_the_order_of_axes_has_the_fewest_multiplications(shape, new_shape, first):
    jaxpr = jaxlite.make_jaxpr(lambda x: image.resize(x, new_shape, "cubic"))(np.zeros(shape, np.float32)).jaxpr
    products = [eqn.outvars[0].aval.shape for eqn in jaxpr.eqns if eqn.primitive.name == "dot_general"]
    assert sorted(products[0]) == sorted(first)


def test_a_first_axis_is_resized_without_turning_the_image():
    x = np.zeros((4, 6, 3), np.float32)
    assert "transpose" not in str(jaxlite.make_jaxpr(lambda x: image.resize(x, (7, 6, 3), "cubic"))(x))


def test_linear_interpolation_is_that_of_scipy(x64):
    x = draw(5, 4)
    places = np.meshgrid((np.arange(8) + 0.5) * 5 / 8 - 0.5, (np.arange(9) + 0.5) * 4 / 9 - 0.5, indexing="ij")
    np.testing.assert_allclose(image.resize(x, (8, 9), "bilinear"),
                               scipy.ndimage.map_coordinates(x, places, order=1, mode="nearest"), rtol=1e-10)


def test_cubic_interpolation_is_exact_for_squares(x64):
    centers = np.arange(10) + 0.5
    found = image.resize(centers**2 - 3 * centers, (40,), image.ResizeMethod.CUBIC)
    new = (np.arange(40) + 0.5) / 4
    np.testing.assert_allclose(found[8:-8], (new**2 - 3 * new)[8:-8], rtol=1e-10, atol=1e-10)


def test_nearest_elements():
    x = np.arange(12).reshape(3, 4)
    assert image.resize(x, (6, 8), "nearest").tolist() == x.repeat(2, 0).repeat(2, 1).tolist()
    assert image.resize(x, (1, 2), "nearest").tolist() == [[5, 7]]
    assert image.resize(x, (3, 4), "nearest").tolist() == x.tolist()
    for size in (1, 2, 3, 5, 7, 11, 13):
        centers = (np.arange(size) + 0.5) * 7 / size
        assert image.resize(np.arange(7), (size,), "nearest").tolist() == np.floor(centers + 1e-9).tolist()


def test_a_vector_takes_an_int_as_its_shape():
    x = jnp.array([0.0, 4.0])
    np.testing.assert_array_equal(image.resize(x, 4, "linear"), image.resize(x, (4,), "linear"))
    with pytest.raises(ValueError, match="must have length equal"):
        image.resize(jnp.ones((2, 2)), 3, "linear")


def test_types():
    x = np.arange(4)
    assert image.resize(x, (2,), "nearest").dtype == np.int32
    assert image.resize(x, (8,), "linear").dtype == np.float32
    assert image.resize(jnp.ones(4, jnp.bfloat16), (8,), "cubic").dtype == jnp.bfloat16
    z = image.resize(np.array([0, 4j], np.complex64), (4,), "linear")
    assert (z.dtype, z.tolist()) == (np.complex64, [0, 1j, 3j, 4j])
    assert image.resize(np.ones((2, 3)), (0, 3), "linear").shape == (0, 3)
    assert image.resize(np.ones((0, 3)), (0, 6), "linear").shape == (0, 6)


def test_scaling_and_moving(x64):
    x = draw(8)
    for scale, translation in [(1.0, 2.0), (1.5, -1.25), (0.4, 1.0), (2.0, 0.0)]:
        found = image.scale_and_translate(x, (10,), (0,), np.array([scale]), np.array([translation]), "cubic")
        expected = by_definition(x, 10, KERNELS["cubic"], True, scale, translation)
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)
    moved = image.scale_and_translate(draw(4, 5), (4, 5), (-1,), np.ones(1), np.array([2.0]), "linear")
    np.testing.assert_allclose(moved, np.pad(draw(4, 5), [(0, 0), (2, 0)])[:, :5], rtol=1e-12)


def test_derivatives_and_batches(x64):
    x = draw(6, 5)

    @jaxlite.jit
    def move(t):
        return image.scale_and_translate(x, (6, 7), (0, 1), jnp.stack([t[0], 1.3]), t[1:], "lanczos3")

    t, tangent = np.array([0.9, 0.3, -0.2]), np.array([0.2, 1.0, -0.5])
    _, pushed = jaxlite.jvp(move, (t,), (tangent,))
    (slope,) = difference(move, (t,), (tangent,))
    np.testing.assert_allclose(pushed, slope, rtol=1e-6, atol=1e-8)
    found = jaxlite.vmap(lambda row: image.resize(row, (3,), "linear"))(x)
    np.testing.assert_allclose(found, image.resize(x, (6, 3), "linear"), rtol=1e-12)


@pytest.mark.parametrize("call, message", [
    (lambda: image.resize(np.ones(3), (3, 3), "linear"), "length equal to the number of dimensions"),
    (lambda: image.resize(np.ones(3), (-1,), "linear"), "negative"),
    (lambda: image.resize(np.ones(3), (4,), "smooth"), 'Unknown resize method "smooth"'),
    (lambda: image.resize(np.ones(0), (4,), "linear"), "without elements"),
    (lambda: image.scale_and_translate(np.ones(3), (4,), (0,), np.ones(1), np.ones(1), "nearest"), "Nearest"),
    (lambda: image.scale_and_translate(np.ones((3, 3)), (4, 4), (0,), np.ones(1), np.ones(1), "linear"), "axis 1"),
    (lambda: image.scale_and_translate(np.ones(3), (4,), (0,), np.ones(2), np.ones(1), "linear"), "one number for each"),
])
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_areas_and_pytorchs_cubic_weights():
    """Columns of weights: shared areas; Keys' kernel with slope -0.75 at 1, whose reach beyond the edges counts for them."""
    weights = lambda size, *args: np.asarray(image.resize(np.eye(size, dtype=np.float32), (size, 3), *args)).T
    np.testing.assert_allclose(weights(4, "area"), [[0.75, 0.25, 0, 0], [0, 0.5, 0.5, 0], [0, 0, 0.25, 0.75]], atol=1e-6)
    half = [-0.09375, 0.59375, 0.59375, -0.09375]
    np.testing.assert_allclose(weights(6, "bicubic-pytorch", False), [
        [0.5, *half[2:], 0, 0, 0], [0, *half, 0], [0, 0, 0, *half[:2], 0.5]], atol=1e-6)
    np.testing.assert_array_equal(weights(6, "bicubic-pytorch"), weights(6, "bicubic"))
