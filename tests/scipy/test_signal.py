"""scipy.signal, fft, ndimage, integrate and cluster.vq against SciPy."""

import itertools

import numpy as np
import pytest
import scipy.cluster.vq
import scipy.fft
import scipy.integrate
import scipy.ndimage
import scipy.signal

import jaxlite
import jaxlite.numpy as jnp
from jaxlite.scipy import cluster, fft, integrate, ndimage, signal
from tests.rule_checks import difference

MODES = ("full", "same", "valid")


def random(*shape, seed=0, kind="f"):
    draw = np.random.default_rng((seed, *shape))
    x = draw.normal(size=shape)
    return x + 1j * draw.normal(size=shape) if kind == "c" else draw.integers(-9, 9, shape) if kind == "i" else x


def check(found, expected, rtol=1e-10):
    expected = np.asarray(expected)
    assert found.shape == expected.shape and found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=rtol * max(1.0, np.abs(expected).max(initial=0)))


# --- convolutions ------------------------------------------------------------------------------------

# Odd and even sizes, the second larger, ranks one to three.
SHAPES = [((7,), (4,)), ((3,), (6,)), ((1,), (1,)), ((5, 6), (3, 2)), ((2, 3), (4, 4)), ((4, 3, 5), (2, 3, 1))]


@pytest.mark.parametrize("name, kind", [("convolve", "f"), ("convolve", "c"), ("correlate", "f"), ("correlate", "c")])
def test_convolutions_of_any_rank(name, kind, x64):
    def run(pairs):
        return [getattr(signal, name)(a, b, mode, method)
                for a, b in pairs for mode in MODES for method in ("direct", "fft")]

    pairs = [(random(*first, kind=kind), random(*second, seed=1, kind=kind)) for first, second in SHAPES]
    expected = [getattr(scipy.signal, name)(a, b, mode, "direct") for a, b in pairs for mode in MODES for _ in range(2)]
    for found, value in zip(jaxlite.jit(run)(pairs), expected, strict=True):
        check(found, value)


@pytest.mark.parametrize("name, kind", [("convolve2d", "f"), ("correlate2d", "f"), ("correlate2d", "c")])
def test_convolutions_of_matrices(name, kind, x64):
    def run(pairs):
        return [getattr(signal, name)(a, b, mode, boundary, 2.5)
                for a, b in pairs for mode in MODES for boundary in ("fill", "wrap", "symm")]

    pairs = [(random(*first, kind=kind), random(*second, seed=1, kind=kind))
             for first, second in [((5, 6), (3, 2)), ((4, 4), (4, 1)), ((3, 2), (3, 4))]]
    expected = [getattr(scipy.signal, name)(a, b, mode, boundary, 2.5)
                for a, b in pairs for mode in MODES for boundary in ("fill", "wrap", "symm")]
    for found, value in zip(jaxlite.jit(run)(pairs), expected, strict=True):
        check(found, value)


def test_convolutions_along_some_axes(x64):
    a, b, c = random(3, 5, 4), random(3, 2, 4, seed=1), random(1, 6, 1, seed=2)
    for other, mode, axes in itertools.product((b, c), MODES, (1, [1], (-2,))):
        check(signal.fftconvolve(a, other, mode, axes), scipy.signal.fftconvolve(a, other, mode, axes))
    check(signal.fftconvolve(a, b[:, :, :1], axes=(0, 1)), scipy.signal.fftconvolve(a, b[:, :, :1], axes=(0, 1)))


def test_convolutions_of_integers_narrow_floats_and_scalars():
    a, b = random(8, kind="i"), random(3, seed=1, kind="i")
    found = signal.convolve(a, b)
    assert found.dtype == np.float32 and found.tolist() == np.convolve(a, b).tolist()
    assert signal.fftconvolve(a.astype(np.float32), b.astype(np.float32)).dtype == np.float32
    half = signal.convolve(jnp.asarray(a, jnp.bfloat16), jnp.asarray(b, jnp.bfloat16), method="fft")
    assert half.dtype == jnp.bfloat16
    np.testing.assert_allclose(np.asarray(half, np.float32), np.convolve(a, b), rtol=0.02, atol=0.5)
    assert float(signal.convolve(2.0, 3.0)) == float(signal.fftconvolve(2.0, 3.0)) == 6
    assert signal.fftconvolve(jnp.zeros(0), jnp.ones(2)).shape == (0,)


@pytest.mark.parametrize("call, message", [
    (lambda: signal.convolve(jnp.ones(2), jnp.ones((2, 2))), "same number of dimensions"),
    (lambda: signal.convolve(jnp.ones(2), jnp.ones(2), "some"), "mode must be one of"),
    (lambda: signal.correlate(jnp.ones(2), jnp.ones(2), method="slow"), "method must be one of"),
    (lambda: signal.convolve(jnp.ones(0), jnp.ones(2)), "cannot be empty"),
    (lambda: signal.convolve(jnp.ones((2, 5)), jnp.ones((3, 3)), "valid"), "at least as large"),
    (lambda: signal.convolve2d(jnp.ones(2), jnp.ones(2)), "2-dimensional"),
    (lambda: signal.convolve2d(jnp.ones((2, 2)), jnp.ones((2, 2)), boundary="none"), "boundary must be one of"),
    (lambda: signal.fftconvolve(jnp.ones((2, 3)), jnp.ones((3, 3)), axes=1), "incompatible shapes"),
    (lambda: signal.detrend(jnp.ones(4), type="square"), "'linear' or 'constant'"),
    (lambda: signal.detrend(jnp.ones(4), bp=9), "less than length"),
    (lambda: fft.dct(jnp.ones(4), type=5), "type must be 1, 2, 3 or 4"),
    (lambda: fft.dct(jnp.ones(4), norm="twice"), "norm must be"),
    (lambda: fft.dct(jnp.ones(1), type=1), "needs at least 2"),
    (lambda: fft.dctn(jnp.ones((2, 2)), s=(2,), axes=(0, 1)), "same length"),
    (lambda: ndimage.map_coordinates(jnp.ones((2, 2)), [jnp.ones(3)], 1), "length input.ndim, but 1 != 2"),
    (lambda: cluster.vq.vq(jnp.ones((2, 2)), jnp.ones(2)), "same rank"),
    (lambda: cluster.vq.vq(jnp.ones((2, 2)), jnp.ones((2, 3))), "2 features and codes of 3"),
])
def test_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# --- trends ------------------------------------------------------------------------------------------


def test_trends(x64):
    x = random(3, 12, 2).cumsum(1)
    for axis, type, bp in [(-1, "constant", 0), (1, "linear", 0), (1, "linear", 5), (1, "linear", [4, 5, 9]), (0, "linear", 0)]:
        check(signal.detrend(x, axis, type, bp), scipy.signal.detrend(x, axis, type, bp))
    assert signal.detrend(np.arange(5, dtype=np.float32)).dtype == np.float32


# --- cosine transforms -------------------------------------------------------------------------------


@pytest.mark.parametrize("type", [1, 2, 3, 4])
def test_cosine_transforms(type, x64):
    norms = (None, "backward", "ortho", "forward")

    def run(library, x, y):
        for norm in norms:
            yield library.dct(x, type, norm=norm)
            yield library.idct(y, type, axis=0, norm=norm)
            yield library.dctn(y, type, norm=norm)
        yield library.dct(x, type, n=4)
        yield library.idct(x, type, n=9)
        yield library.idctn(y, type, s=(3, 6), axes=(1, 0), norm="ortho")
        yield library.dctn(y, type, s=3, axes=0)

    x, y = random(2, 7), random(6, 5, 2, seed=1)
    for found, value in zip(jaxlite.jit(lambda x, y: list(run(fft, x, y)))(x, y), run(scipy.fft, x, y), strict=True):
        check(found, value)


def test_cosine_transforms_of_other_types():
    x = random(5, 2, kind="i")
    assert fft.dct(x).dtype == np.float32
    np.testing.assert_allclose(fft.dct(x, axis=0), scipy.fft.dct(x, axis=0), rtol=1e-5, atol=1e-4)
    z = random(6, kind="c").astype(np.complex64)
    np.testing.assert_allclose(fft.idct(z), scipy.fft.idct(z.real) + 1j * scipy.fft.idct(z.imag), rtol=1e-4, atol=1e-6)
    assert fft.dct(jnp.ones(3, jnp.float16)).dtype == jnp.float32  # as JAX
    np.testing.assert_allclose(fft.dct(jnp.ones(1)), [2.0])


# --- values between elements -------------------------------------------------------------------------

# jaxlite's name of a mode -> SciPy's.
CONTINUED = {"constant": "grid-constant", "nearest": "nearest", "wrap": "grid-wrap", "mirror": "mirror", "reflect": "reflect"}


def test_coordinates_may_be_lists():
    assert ndimage.map_coordinates(np.arange(6).reshape(2, 3), [[1, 0], [1, 2]], 0).tolist() == [4, 2]


@pytest.mark.parametrize("mode", CONTINUED)
def test_values_between_elements(mode, x64):
    image, line = random(4, 5), random(1)
    places = np.random.default_rng(3).uniform(-9, 12, (2, 40))
    for order in (0, 1):
        check(ndimage.map_coordinates(image, list(places), order, mode, 1.5),
              scipy.ndimage.map_coordinates(image, places, order=order, mode=CONTINUED[mode], cval=1.5))
        check(ndimage.map_coordinates(line, [places[0]], order, mode),
              scipy.ndimage.map_coordinates(line, places[:1], order=order, mode=CONTINUED[mode]))


def test_values_between_integers_are_rounded():
    found = ndimage.map_coordinates(jnp.array([0, 3, -4]), [jnp.array([0.5, 1.5, 0.2, 1])], 1)
    assert (found.dtype, found.tolist()) == (np.int32, [2, -1, 1, 3])
    assert ndimage.map_coordinates(jnp.array([0, 3, -4]), [jnp.array([0.5, 1.5, 2.4])], 0).tolist() == [3, -4, -4]
    assert ndimage.map_coordinates(jnp.array([5, 6, 7]), [jnp.array([2, 0, 9])], 1, cval=-1).tolist() == [7, 5, -1]
    with pytest.raises(NotImplementedError, match="requires order<=1"):
        ndimage.map_coordinates(jnp.ones(3), [jnp.ones(3)], 2)
    with pytest.raises(NotImplementedError, match="does not yet support mode"):
        ndimage.map_coordinates(jnp.ones(3), [jnp.ones(3)], 1, "circle")


# --- the rest ----------------------------------------------------------------------------------------


def test_nearest_codes(x64):
    for obs, codes in [(random(9, 3), random(4, 3, seed=1)), (random(9), random(4, seed=1))]:
        for found, value in zip(cluster.vq.vq(obs, codes), scipy.cluster.vq.vq(obs, codes), strict=True):
            np.testing.assert_allclose(found, value, rtol=1e-12)


def test_integrals_of_samples(x64):
    y, x = random(3, 5), random(5, seed=1).cumsum()
    check(integrate.trapezoid(y, x), scipy.integrate.trapezoid(y, x))
    check(integrate.trapezoid(y, dx=0.5, axis=0), scipy.integrate.trapezoid(y, dx=0.5, axis=0))


def test_derivatives_and_batches(x64):
    x, kernel, places = random(6), random(3, seed=1), np.array([0.3, 2.7, 4.1])
    functions = {
        "convolve": lambda x: signal.convolve(x, kernel, "same"), "fft": lambda x: signal.fftconvolve(x, kernel),
        "detrend": signal.detrend, "dct": fft.dct, "between": lambda x: ndimage.map_coordinates(x, [places], 1),
        "where": lambda p: ndimage.map_coordinates(x, [p[:3] / 4 + 2.1], 1), "vq": lambda x: cluster.vq.vq(x, kernel)[1],
    }
    batch = np.stack([x, x[::-1] * 2])
    for name, fun in functions.items():
        fun, tangent = jaxlite.jit(fun), random(6, seed=2)
        _, pushed = jaxlite.jvp(fun, (x,), (tangent,))
        (slope,) = difference(fun, (x,), (tangent,))
        np.testing.assert_allclose(pushed, slope, rtol=1e-6, atol=1e-7, err_msg=name)
        np.testing.assert_allclose(jaxlite.vmap(fun)(batch), [fun(row) for row in batch], rtol=1e-10, err_msg=name)


@pytest.mark.parametrize("mode", ["same", "full"])
def test_zeros_beyond_the_edges_are_the_convolutions_own(mode):
    text = jaxlite.jit(lambda x: signal.convolve2d(x, np.ones((3, 2)), mode)).lower(np.ones((5, 6))).as_text()
    assert "convolution" in text and "slice" not in text and "stablehlo.pad" not in text


def test_two_samples_have_no_residual():
    np.testing.assert_allclose(signal.detrend(np.float32([1, 5])), [0, 0], atol=1e-6)
    np.testing.assert_allclose(signal.detrend(np.float32([3, 1, 5]), bp=1), [0, 0, 0], atol=1e-6)
