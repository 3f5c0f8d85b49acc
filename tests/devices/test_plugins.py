"""Accelerator plugins: how they are found, and what is said where there are none."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite.experimental import topologies
from jaxlite.lax.linalg import spectra
from lowering import platforms, plugins, targets


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """A folder of packages, the only one that is searched."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(plugins, "_registered", {})
    monkeypatch.delenv("TPU_LIBRARY_PATH", raising=False)
    monkeypatch.delitem(sys.modules, "jax_plugins", raising=False)
    yield tmp_path
    sys.modules.pop("jax_plugins", None)


def test_a_vendors_package_registers_itself(packages):
    (packages / "vendor.py").write_text(
        "from lowering import plugins\n"
        "def initialize(): plugins.register('vendor', '/lib/vendor.so', options={'a': 1}, priority=500)\n")
    (packages / "vendor-1.0.dist-info").mkdir()
    (packages / "vendor-1.0.dist-info" / "entry_points.txt").write_text("[jax_plugins]\nvendor = vendor\n\n[other]\nx = y\n")
    found = plugins.find()
    assert next(iter(found)) == "vendor" and found["vendor"].options() == {"a": 1}


def test_wheels_are_found_by_their_files_and_not_imported(packages, monkeypatch):
    folder = packages / "jax_plugins" / "xla_cuda13"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("raise ImportError('imported')")
    (folder / "xla_cuda_plugin.so").write_bytes(b"")
    (packages / "libtpu.so").write_bytes(b"")
    monkeypatch.setenv("TPU_LIBRARY_PATH", str(packages / "libtpu.so"))
    found = plugins.find()
    assert list(found)[:2] == ["tpu", "cuda"]
    assert found["cuda"].library == str(folder / "xla_cuda_plugin.so") and found["cuda"].calls == "jax_cuda13_plugin"


def test_visible_devices_are_numbers(monkeypatch):
    monkeypatch.setitem(plugins._settings, "visible_devices", lambda kind: "0,2")
    assert plugins._gpu_options("cuda")["visible_devices"] == [0, 2]
    monkeypatch.setitem(plugins._settings, "visible_devices", lambda kind: "first")
    with pytest.raises(ValueError, match="jax_cuda_visible_devices is 'first'"):
        plugins._gpu_options("cuda")


def test_settings_are_read_when_a_client_starts(monkeypatch):
    """The number of this process is known later than which plugins there are."""
    platforms.installed()
    monkeypatch.setitem(platforms._settings, "nodes", lambda: {"node_id": 3, "num_nodes": 8})
    options = plugins._gpu_options("cuda")
    assert (options["node_id"], options["num_nodes"]) == (3, 8)


def test_a_device_without_a_plugin_is_one_line_in_the_log(monkeypatch, caplog):
    monkeypatch.setattr(platforms, "installed", dict)
    monkeypatch.setattr(platforms.os, "listdir", lambda folder: ["nvidiactl", "nvidia0", "kfd-other"])
    platforms._hint_at_plugins()
    (record,) = caplog.records
    assert record.getMessage().startswith("An NVIDIA GPU may be present on this machine, but its plugin is not installed (pip")


def test_what_is_not_here_is_an_error_that_says_how_to_get_it():
    if "tpu" in platforms.installed():
        pytest.skip("there is a TPU's plugin here")
    with pytest.raises(RuntimeError, match="Unknown backend: 'tpu' requested"):
        jax.devices("tpu")
    with pytest.raises(RuntimeError, match=r"needs the plugin of the platform 'tpu': pip install jaxlite\[tpu\]"):
        topologies.get_topology_desc("v5e:2x2")


def test_gpus_by_name():
    gpu, count = targets.gpu_named("A100:4")
    assert gpu.capability == (8, 0) and count == 4
    assert "core_count: 132" in targets.target_config(targets.GPUS["h100"])
    assert 'rocm_compute_capability { gcn_arch_name: "gfx942' in targets.target_config(targets.GPUS["mi300x"])
    assert list(map(targets.platform_of, ("mi300x", "h100:8", "tpu7x:2x2x1"))) == ["rocm", "cuda", "tpu"]
    with pytest.raises(ValueError, match="no GPU is known by the name 'h101'; known are t4, v100"):
        targets.gpu_named("h101")


def test_the_attached_topology():
    assert topologies.get_attached_topology().devices == jax.devices()


@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
@pytest.mark.parametrize("shape", [(5, 5), (2, 6, 4), (3, 7)])
def test_singular_values_by_eigenvalues(shape, dtype, rng):
    """What a TPU computes, here on the CPU: with repeated and vanishing singular values in the square one."""
    a = rng.normal(size=shape) + (1j * rng.normal(size=shape) if dtype is np.complex64 else 0)
    if shape == (5, 5):
        a = (a @ np.diag([1, 1, 0, 0, 2]) @ np.linalg.inv(a)).astype(dtype)
    options = dict(compute_uv=True, subset_by_index=None, algorithm=None)
    svd = jax.jit(lambda x: spectra._svd_by_eigh(x, full_matrices=True, **options))
    s, u, vt = (np.asarray(each) for each in svd(jnp.asarray(a, dtype)))
    expected = np.linalg.svd(a, compute_uv=False)
    np.testing.assert_allclose(s, expected, atol=2e-5 * expected.max())
    rank = s.shape[-1]
    np.testing.assert_allclose((u[..., :rank] * s[..., None, :]) @ vt[..., :rank, :], a, atol=3e-5 * expected.max())
    for unitary in (u, vt):
        product = np.conj(np.swapaxes(unitary, -1, -2)) @ unitary
        np.testing.assert_allclose(product, np.broadcast_to(np.eye(product.shape[-1]), product.shape), atol=1e-5)
