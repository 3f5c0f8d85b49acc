"""Spectra agree with SciPy's, and signals come back from them."""

from __future__ import annotations

import subprocess
import sys
import warnings

import numpy as np
import pytest
import scipy.signal as reference

import jaxlite
import jaxlite.numpy as jnp
from jaxlite.scipy import signal, spectra

REAL = np.random.default_rng(0).normal(size=(2, 60))
COMPLEX = REAL + 1j * REAL[::-1]


def close(got, want):
    for one, two in zip(got, want, strict=True):
        np.testing.assert_allclose(one, two, atol=1e-10)


@pytest.mark.parametrize("options", [
    {}, {"nperseg": 17, "noverlap": 5, "nfft": 20}, {"boundary": None, "detrend": "linear"},
    {"boundary": "odd", "padded": False},
    {"boundary": "constant", "window": "hamming", "return_onesided": False}, {"fs": 10.0, "window": np.hanning(16)},
    {"nperseg": 32}, {"nperseg": 48, "noverlap": 32},
])  # fmt: skip
def test_segments(options, x64):
    options = {"nperseg": 16, **options}
    run = jaxlite.jit(lambda x: signal.stft(x, **options))
    close(run(REAL), reference.stft(REAL, **options))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # SciPy's, of complex signals
        close(signal.stft(COMPLEX.T, axis=0, **options), reference.stft(COMPLEX.T, axis=0, **options))


def test_segments_have_256_values_by_default(x64):
    x = np.sin(np.arange(700.0))
    close(signal.welch(x), reference.welch(x))
    close(signal.csd(x, x[::-1]), reference.csd(x, x[::-1]))


@pytest.mark.parametrize("options", [
    {"average": "median"}, {"scaling": "spectrum", "detrend": False, "nfft": 21}, {"nperseg": 60}])
def test_densities(options, x64):
    options = {"nperseg": 16, **options}
    close(signal.welch(REAL, **options), reference.welch(REAL, **options))
    assert signal.csd(REAL, None, nperseg=16)[1].dtype == np.float64  # no sum of complex numbers
    close(signal.csd(REAL, REAL[::-1, :40], **{**options, "nperseg": 16}),
          reference.csd(REAL, REAL[::-1, :40], **{**options, "nperseg": 16}))


@pytest.mark.parametrize("length, boundary", [(16, True), (17, True), (16, False), (32, True), (32, False)])
def test_there_and_back(length, boundary, x64):
    _, _, given = reference.stft(REAL, nperseg=length, boundary="zeros" if boundary else None)
    options = {"nperseg": length, "boundary": boundary}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # where the ends have no weight
        close(signal.istft(given, **options)[1:], reference.istft(given, **options)[1:])
    if boundary:
        moved = jnp.moveaxis(given, (-1, -2), (0, -1))
        np.testing.assert_allclose(signal.istft(moved, nperseg=length, time_axis=0, freq_axis=-1)[1][:60], REAL.T, atol=1e-10)
        _, again = signal.istft(signal.stft(COMPLEX, nperseg=length)[2], nperseg=length, input_onesided=False)
        np.testing.assert_allclose(again[:, :60], COMPLEX, atol=1e-10)


def test_segments_of_whole_steps_are_copied_as_rows():
    x = np.ones(256, np.float32)
    there_and_back = lambda x: signal.istft(signal.stft(x, nperseg=64, noverlap=48)[2], nperseg=64, noverlap=48)[1].sum()
    for slope in (jaxlite.grad(lambda x: signal.welch(x, nperseg=64)[1].sum()), jaxlite.grad(there_and_back)):
        names = {eqn.primitive.name for eqn in jaxlite.make_jaxpr(slope)(x).jaxpr.eqns}
        assert "fft" in names and not names & {"gather", "scatter-add"}


def test_what_is_refused():
    for options, text in [
            ({"nperseg": 0}, "nperseg must be a positive"), ({"nperseg": 8, "noverlap": 8}, "noverlap must be less"),
            ({"nperseg": 8, "nfft": 4}, "nfft must be greater"), ({"boundary": "round"}, "Unknown boundary option")]:
        with pytest.raises(ValueError, match=text):
            signal.stft(REAL, **options)
    with pytest.raises(ValueError, match="average must be"):
        signal.welch(REAL, nperseg=8, average="mode")
    with pytest.raises(ValueError, match="at least 2d"):
        signal.istft(REAL[0])


@pytest.mark.parametrize("window", ["hann", "hamming", "blackman", "boxcar", "parzen", ("kaiser", 8.0)])
@pytest.mark.parametrize("size", [1, 2, 7, 16])
def test_windows_are_scipys(window, size):
    np.testing.assert_allclose(spectra._window(window, size), reference.get_window(window, size), atol=1e-15)


def test_usual_windows_need_no_scipy():
    code = ("import sys, jaxlite.numpy as jnp; from jaxlite.scipy import signal; signal.welch(jnp.ones(64), nperseg=16); "
            "print('scipy.signal' in sys.modules)")
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_a_cosine_transform_along_no_axis_is_the_array():
    for x in (jnp.array(1), jnp.array(True), jnp.ones((2, 2), jnp.float16)):
        for transform in (jaxlite.scipy.fft.dctn, jaxlite.scipy.fft.idctn):
            result = transform(x, axes=())
            assert result.dtype == x.dtype
            np.testing.assert_array_equal(result, x)
