"""The examples run from their command line, and find what they should: checked against NumPy, truth and baselines."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import jaxlite
import jaxlite.numpy as jnp
from jaxlite import random

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def example(monkeypatch):
    """Imports an example by its name, as `python examples/NAME.py` finds it."""
    monkeypatch.syspath_prepend(ROOT / "examples")
    return importlib.import_module


@pytest.fixture
def run(example, monkeypatch, capsys, tmp_path):
    """Runs an example's command with a plot in `tmp_path`, and returns what it printed, as numbers found by a pattern."""

    def run(name, *flags, numbers):
        plot = tmp_path / "plot.png"
        monkeypatch.setattr(sys, "argv", [name, *flags, "--plot", str(plot)])
        example(name).main()
        printed = capsys.readouterr().out
        if importlib.util.find_spec("matplotlib"):
            assert plot.read_bytes().startswith(b"\x89PNG")
        else:
            assert "there is no PNG" in printed
        found = re.search(numbers, printed)
        assert found, printed
        return [float(each) for each in found.groups()]

    return run


NUMBER = r"\s*(-?[0-9.]+)"


def test_linear_regression_finds_the_least_squares_line(run):
    line = rf"y ={NUMBER} x \+{NUMBER}"
    *found, slope, intercept = run("linear_regression", "--steps", "300", numbers=rf"found +{line}\s+least squares +{line}")
    np.testing.assert_allclose(found, [slope, intercept], atol=0.05)
    np.testing.assert_allclose([slope, intercept], [3, -1], atol=0.2)


def test_a_step_of_the_linear_regression_is_a_function_of_its_state(example):
    module = example("linear_regression")
    x, y = module.draw_data(random.key(0), 200)
    state = module.init(random.key(1))
    (once, loss), (again, same) = module.update(state, x, y), module.update(state, x, y)
    assert jaxlite.tree.map(float, (once.params, loss)) == jaxlite.tree.map(float, (again.params, same))
    assert int(once.step) == 1
    assert not np.array_equal(random.key_data(once.key), random.key_data(state.key))


def test_gp_regression_finds_the_noise_and_a_band_that_holds_the_truth(run):
    noise, inside = run("gp_regression", "--steps", "40", numbers=rf"noise{NUMBER}[^%]*at{NUMBER}%")
    assert 0.15 < noise < 0.25
    assert inside > 90


def test_gp_regression_agrees_with_the_textbook(example):
    """The likelihood as a normal density and the prediction with an explicit inverse, in float64."""
    module = example("gp_regression")
    x, y = (np.asarray(each, np.float64) for each in module.draw_data(random.key(0), 60))
    z = np.linspace(-5, 5, 200)
    log_params = {"length": np.log(0.8), "amplitude": np.log(1.5), "noise": np.log(0.3)}
    x32, y32, z32, params32 = jaxlite.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), (x, y, z, log_params))

    def covariance(a, b):
        return 1.5**2 * np.exp(-((a[:, None] - b) ** 2) / (2 * 0.8**2))

    observed = covariance(x, x) + 0.3**2 * np.eye(60)
    inverse = np.linalg.inv(observed)
    density = -0.5 * (y @ inverse @ y + np.linalg.slogdet(2 * np.pi * observed)[1])
    np.testing.assert_allclose(module.loss(params32, x32, y32), -density / 60, rtol=1e-4)
    mean, deviation = module.predict(params32, x32, y32, z32)
    weights = covariance(z, x) @ inverse
    np.testing.assert_allclose(mean, weights @ y, atol=1e-3)
    np.testing.assert_allclose(deviation**2, 1.5**2 - np.sum(weights * covariance(z, x), axis=1), atol=1e-3)


def test_physics_swings_the_pendulum_up(run):
    end = rf"{NUMBER} degrees,{NUMBER} degrees/s"
    *found, angle, speed = run("physics", "--steps", "120", numbers=rf"at the end{end}\s+finer simulation{end}")
    assert abs(abs(angle) - 180) < 8
    assert abs(speed) < 15
    np.testing.assert_allclose(found, [angle, speed], atol=0.3)


def test_mlp_classifier_does_better_than_the_commonest_kind(run):
    accuracies = rf"train{NUMBER}%, test{NUMBER}%;.*give{NUMBER}%"
    train, test, commonest = run("mlp_classifier", "--steps", "100", "--modules", "40", numbers=accuracies)
    assert train > commonest + 5
    assert test > commonest + 5


def test_mlp_classifier_labels_lines_and_counts_pairs(example, tmp_path):
    module = example("mlp_classifier")
    lines = ['"""What the module is for.', "", ">>> and_an_example()", '"""', "# a longer comment", "value = compute(1, 2)",
             "another = 1  # both", "x = 1"]  # fmt: skip
    (tmp_path / "source.py").write_text("\n".join(lines), encoding="utf-8")
    assert module.labelled_lines(tmp_path / "source.py") == [
        ("What the module is for.", 2), (">>> and_an_example()", 2), ("a longer comment", 1), ("value = compute(1, 2)", 0),
    ]  # fmt: skip
    same, again, other = module.features(["value = 1", "value = 1", "something else"])
    assert np.array_equal(same, again)
    assert same @ other < 0.5
    np.testing.assert_allclose([same @ same, other @ other], 1, rtol=1e-6)


def test_vae_learns_to_reconstruct(run):
    losses = rf"step +0 .*test{NUMBER}(?s:.*)step +59 .*test{NUMBER}.*divergence{NUMBER}"
    untrained, trained, divergence = run("vae", "--steps", "60", "--pictures", "500", numbers=losses)
    assert trained < untrained / 2
    assert divergence > 1  # the latent numbers say something


def test_char_gpt_learns_a_text_that_repeats_itself(example, capsys):
    text = "the quick brown fox jumps over the lazy dog. " * 60
    curve = example("char_gpt").train(text, steps=80, layers=1, width=32, heads=2, context=32, size=8)
    assert curve[0] > 3
    assert curve[-1] < 0.3
    printed = capsys.readouterr().out
    assert float(re.search(r"not seen: ([0-9.]+) nats", printed)[1]) < 0.3
    assert "quick brown fox" in printed.split("A sample:")[1]
    rows = re.findall(r"^  (\S.*?) +([0-9.]+) s", printed.split("Where the time went:")[1], re.M)
    assert [name for name, _ in rows] == [
        "import", "data and parameters", "trace", "lower", "compile", "80 steps", "loss on unseen text", "sample", "all",
    ]  # fmt: skip
    seconds = [float(each) for _, each in rows]
    assert sum(seconds[:-1]) == pytest.approx(seconds[-1], abs=0.05)


def test_data_parallel_curves_agree():
    command = [sys.executable, str(ROOT / "examples" / "data_parallel.py"), "--steps", "3", "--layers", "1"]
    flags = "--xla_backend_optimization_level=0"  # compiling is most of it, and where arrays lie does not depend on it
    printed = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT), "XLA_FLAGS": flags}, capture_output=True,
                             text=True, check=True, timeout=120).stdout
    differences = re.findall(r"^(.*): largest difference to one device (\S+)", printed, re.M)
    assert len(differences) == 3
    assert all(float(each) < 1e-4 for _, each in differences)


def test_pallas_softmax_is_one(example):
    assert example("pallas_softmax").main(["--rows", "3", "--columns", "5"]) < 1e-6


def test_two_processes_agree():
    command = [sys.executable, str(ROOT / "examples" / "two_processes.py"), "--steps", "20"]
    printed = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True,
                             timeout=120).stdout
    assert "2 processes, 2 devices" in printed
    found = re.search(rf"weights \[{NUMBER}{NUMBER}{NUMBER}{NUMBER} ?\]", printed)
    assert found, printed
    np.testing.assert_allclose([float(each) for each in found.groups()], [3, -2, 0.5, 1], atol=0.1)


@pytest.fixture
def printed(example, monkeypatch, capsys):
    """Runs an example's command and returns what it printed."""

    def run(name, *flags):
        monkeypatch.setattr(sys, "argv", [name, *map(str, flags)])
        example(name).main()
        return capsys.readouterr().out

    return run


def test_a_kept_model_is_read_by_another_process(tmp_path):
    command = [sys.executable, str(ROOT / "examples" / "keep_a_model.py"), "--file", str(tmp_path / "model.bin")]
    text = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True,
                          timeout=120).stdout
    error, slope = (float(re.search(rf"{name}:{NUMBER}", text)[1]) for name in ("points", "slope at 0"))
    assert "float32[n] -> float32[n] on cpu, cuda" in text and error < 0.1 and abs(slope - 1) < 0.1


def test_statistics_run_along(example):
    layer, seen, loss = example("running_statistics").train(60)
    np.testing.assert_allclose(layer.mean[...], [3, -1, 0], atol=0.5)
    np.testing.assert_allclose(layer.variance[...], [4, 0.25, 1], rtol=0.5)
    assert loss < 1.5 and seen.shape == (32, 3) and 0 < abs(seen[...]).max() < 1


def test_the_nan_is_found(printed):
    text = printed("find_the_nan")
    assert re.search(r"checkify: the width is -\S+ in step 3 ", text)
    assert re.search(r"debug_nans: invalid value \(nan\) encountered in log at .*find_the_nan.py.*in step 3 of the loop", text)
    assert "all of the block" in text and "no condition broke" not in text


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++ to compile a handler with")
def test_native_code_agrees_with_numpy(printed):
    text = printed("native_code")
    assert all(float(each) < 1e-6 for each in re.findall(r"largest error.*: (\S+)", text)) and text.count("largest error") == 2


def test_char_gpt_sees_no_character_of_the_future(example):
    module = example("char_gpt")
    params = module.init_params(random.key(0), 11, 16, 1)
    tokens = np.arange(8)[None] % 11
    changed = np.where(np.arange(8) < 5, tokens, 10)
    logits = jaxlite.jit(module.logits, static_argnames="heads")
    scores, others = (np.asarray(logits(params, each, heads=2)) for each in (tokens, changed))
    np.testing.assert_allclose(scores[:, :5], others[:, :5], rtol=1e-5, atol=1e-6)
    assert not np.allclose(scores[:, 5:], others[:, 5:], atol=1e-2)


def test_char_gpt_refuses_a_text_that_is_too_short(example):
    with pytest.raises(SystemExit, match="it takes 660 at least"):
        example("char_gpt").train("too short " * 5)


def test_unzip_network_tells_the_spirals_apart(example, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["unzip_network", "--steps", "150"])
    example("unzip_network").main()
    printed = capsys.readouterr().out
    assert "layer 0: bias (32,), weights (2, 32)" in printed
    assert float(re.search(r"accuracy on new points:" + NUMBER, printed)[1]) > 90


def test_the_demos_programs_agree_with_numpy(example):
    demo = example("demo")
    rng = np.random.default_rng(0)
    points = rng.normal(size=(40, 3)).astype(np.float32)
    (centers, nearest), (expected, labels) = (
        demo.kmeans(step, points, points[:4], rounds=5) for step in (jaxlite.jit(demo.kmeans_step), demo.kmeans_step_numpy)
    )
    np.testing.assert_array_equal(nearest, labels)
    np.testing.assert_allclose(centers, expected, rtol=1e-5, atol=1e-6)
    field = rng.normal(size=(9, 7)).astype(np.float32)
    np.testing.assert_allclose(demo.wave(field, 20), demo.wave_numpy(field, 20), atol=1e-4)


def test_text_plots_put_points_where_they_belong(example):
    plots = example("plots")
    x = np.arange(5)
    lines = plots.text({".": (x, x), "#": ([0.0, 4.0], [4.0, 4.0])}, width=5, height=5).splitlines()
    assert lines == [
        "        4 |#   #",
        "          |   . ",
        "          |  .  ",
        "          | .   ",
        "        0 |.    ",
        "          +-----",
        "           0   4",
    ]


def test_a_plot_without_matplotlib_is_said_to_be_missing(example, monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    example("plots").save(lambda figure: None, str(tmp_path / "plot.png"), "plot")
    assert "there is no PNG" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())
