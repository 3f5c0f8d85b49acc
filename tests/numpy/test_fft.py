"""Fourier transforms against NumPy, and a few small operations about programs."""

from __future__ import annotations

import numpy as np
import pytest

import jaxlite
import jaxlite.numpy as jnp
from jaxlite import lax
from jaxlite.lax import program

f32 = np.dtype(np.float32)


def draw(rng, shape, real):
    values = rng.integers(-4, 5, shape)
    return values.astype(f32) if real else (values + 1j * rng.integers(-4, 5, shape)).astype(np.complex64)


def same(got, expected):
    assert got.dtype == (np.complex64 if np.iscomplexobj(expected) else f32)
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-4)


ONE = [((5,), {}), ((4, 5), {"axis": 0}), ((4, 5), {"n": 3}), ((4, 5), {"n": 8, "axis": 0, "norm": "ortho"}), ((1,), {"n": 1}),
       ((5,), {"norm": "forward"}), ((6,), {"norm": "backward"}), ((2, 2, 3), {"axis": 1, "n": 2})]


@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"])
def test_one_axis(name, rng):
    for shape, args in ONE:
        x = draw(rng, shape, name in ("rfft", "ihfft"))
        same(getattr(jnp.fft, name)(x, **args), getattr(np.fft, name)(x, **args))


MANY = [((4, 5), {}), ((3, 4, 5), {}), ((3, 4, 5), {"s": (3, 7), "axes": (1, 2)}), ((3, 4, 5), {"s": (2, 4), "axes": (2, 0)}),
        ((4, 5), {"norm": "ortho"}), ((4, 5), {"norm": "forward"})]


@pytest.mark.parametrize("name", ["fft2", "ifft2", "rfft2", "irfft2", "fftn", "ifftn", "rfftn", "irfftn"])
def test_several_axes(name, rng):
    for shape, args in MANY:
        x = draw(rng, shape, name.startswith("r"))
        same(getattr(jnp.fft, name)(x, **args), getattr(np.fft, name)(x, **args))


def test_no_axis_is_all_or_the_last(rng):
    x = draw(rng, (2, 3), True)
    same(jnp.fft.rfft(x, axis=None), np.fft.rfftn(x))
    same(jnp.fft.ifft(x, 2, None), np.fft.ifft(x, 2))


def test_more_axes_than_xla_has(rng):
    x = draw(rng, (2, 3, 2, 4, 3), True)
    same(jnp.fft.fftn(x), np.fft.fftn(x))
    same(jnp.fft.rfftn(x), np.fft.rfftn(x))
    np.testing.assert_allclose(jnp.fft.irfftn(jnp.fft.rfftn(x), s=x.shape, axes=range(5)), x, atol=1e-5)
    same(jnp.fft.fftn(x, axes=()), x.astype(np.complex64))


def test_dtypes(x64):
    for dtype, result in ((np.int32, np.complex64), (np.int64, np.complex128), (f32, np.complex64),
                          (np.float64, np.complex128)):
        assert jnp.fft.fft(np.ones(4, dtype)).dtype == result
    assert jnp.fft.rfft(np.ones(4)).dtype == np.complex128
    assert jnp.fft.irfft(np.ones(4, np.complex128)).dtype == np.float64
    with pytest.raises(ValueError, match="real"):
        jnp.fft.rfft(np.ones(4, np.complex64))


def test_empty_arrays():
    assert jnp.fft.fft(np.ones((0, 4), f32)).shape == (0, 4)
    assert jnp.fft.fft(np.ones(0, f32)).shape == (0,)
    assert jnp.fft.rfft2(np.ones((0, 4, 5), f32)).shape == (0, 4, 3)


@pytest.mark.parametrize("name, args", [
    ("fft", {"n": 0}), ("fft", {"axis": 3}), ("fft", {"axis": (0,)}), ("fft", {"norm": "x"}), ("hfft", {"norm": "x"}),
    ("fft2", {"axes": (0,)}), ("fftn", {"axes": (0, 0)}), ("fftn", {"s": (3, 4, 5)}), ("fftn", {"s": (3,), "axes": (0, 1)})],
    ids=str)
def test_arguments_that_do_not_fit(name, args):
    with pytest.raises(ValueError):
        getattr(jnp.fft, name)(np.ones((4, 5), np.complex64), **args)


@pytest.mark.parametrize("name", ["fftfreq", "rfftfreq"])
def test_frequencies(name):
    for n in (1, 5, 6):
        same(getattr(jnp.fft, name)(n, 0.5), getattr(np.fft, name)(n, 0.5))
    same(getattr(jnp.fft, name)(6.0), getattr(np.fft, name)(6))
    assert getattr(jnp.fft, name)(4, dtype=jnp.bfloat16).dtype == jnp.bfloat16
    for args in (([3],), (3, [1])):
        with pytest.raises(ValueError):
            getattr(jnp.fft, name)(*args)
    with pytest.raises(TypeError, match="real"):
        getattr(jnp.fft, name)(3, 1j)


def test_shifts(rng):
    x = draw(rng, (4, 5), True)
    for name in ("fftshift", "ifftshift"):
        for axes in (None, 0, (1,), (0, -1), (1, 1)):
            same(getattr(jnp.fft, name)(x, axes), getattr(np.fft, name)(x, axes))


def test_lax_fft(rng):
    x = draw(rng, (3, 4), False)
    same(lax.fft(x, "fft", (4,)), np.fft.fft(x))
    same(lax.fft(x, lax.FftType.IRFFT, (6,)), np.fft.irfft(x))
    text = str(jaxlite.make_jaxpr(lambda x: lax.fft(x, 2, (4,)))(x.real.copy()))
    assert "fft_lengths=(4,)" in text and ":c64[3,3]" in text
    for kind, lengths, error in (("foo", (4,), ValueError), (7, (4,), TypeError), ("fft", (5,), ValueError),
                                 ("rfft", (4,), ValueError), ("irfft", (4,), ValueError), ("fft", (1, 1, 3, 4), ValueError)):
        with pytest.raises(error):
            lax.fft(x, kind, lengths)


# --- programs ----------------------------------------------------------------------------------------


def test_composites_keep_their_name_and_run_as_written():
    scale = program.composite(lambda x, *, by, note: {"scaled": x * by, "note": x + 1}, "my.scale", 3)
    x = np.arange(3, dtype=f32)
    eager = scale(x, by=2.0, note=None)
    np.testing.assert_array_equal(eager["scaled"], x * 2)
    np.testing.assert_array_equal(jaxlite.jit(lambda x: scale(x, by=3, note="n")["scaled"])(x), x * 3)
    text = jaxlite.jit(lambda x: scale(x, by=2.0, note=None)).lower(x).as_text()
    assert 'stablehlo.composite "my.scale"' in text and "composite_attributes = {by = 2.0" in text and "version = 3" in text
    assert "composite[" in str(jaxlite.make_jaxpr(lambda x: scale(x, by=2.0, note=None))(x))
    with pytest.raises(TypeError, match="attribute"):
        scale(x, by=2, note=object())


def test_staging():
    assert program.stage(1).weak_type and program.stage(np.ones(2)).dtype == f32
    assert program.shape_as_value((2, 3)).tolist() == [2, 3]
    assert program.dtype(1) == np.int32 and program.dtype(np.ones(2)) == f32
    with pytest.raises(ValueError, match="got sharding None"):
        lax.with_sharding_constraint({"a": np.ones(2)}, None)
    assert lax.Tolerance(1e-3, 1e-4) == lax.Tolerance(1e-3, 1e-4) != lax.Tolerance(ulps=2)
    with pytest.raises(ValueError):
        lax.Tolerance(-1.0)
