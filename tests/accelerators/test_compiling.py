"""Programs compile for accelerators that are not here. Needs their plugins: `make test-accelerators` installs them."""

from __future__ import annotations

import subprocess
import sys

import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite import lax
from jaxlite.core.array import single_device_sharding
from jaxlite.experimental import topologies
from lowering import platforms, targets
from tests.pages import blocks_of, run_block

TARGETS = {"h100": "gpu", "v5e:2x2": "tpu"}


@pytest.fixture(scope="module", params=TARGETS)
def device(request):
    if platforms.plugin_of(TARGETS[request.param]) is None:
        pytest.skip(f"the plugin for {TARGETS[request.param]} is not installed: make test-accelerators does that")
    return topologies.get_topology_desc(request.param).devices[0]


def test_the_page_about_accelerators(device):
    (program,) = blocks_of("docs/accelerators.md")
    names = {"jax": jax, "step": lambda x: jnp.tanh(x @ x).sum()}
    run_block(program if device.platform == "gpu" else program.replace('"h100"', '"v5e:2x2"'), names)
    assert names["compiled"].cost_analysis()["flops"] > 2 * 1024**3


def svd_economic(a):
    return jnp.linalg.svd(a, full_matrices=False)


def training_step(params, x, y):
    def loss(params):
        hidden = jax.nn.gelu(x @ params["in"])
        logits = jax.nn.log_softmax(hidden @ params["out"])
        return -jnp.mean(jnp.take_along_axis(logits, y[:, None], 1))

    value, gradient = jax.value_and_grad(loss)(params)
    return value, jax.tree.map(lambda p, g: p - 0.1 * g, params, gradient)


F, I, K, C = jnp.float32, jnp.int32, jnp.uint32, jnp.complex64
PROGRAMS = {
    "dot": (lambda x, y: jnp.tanh(x @ y), [(16, 16), F], [(16, 16), F]),
    "bfloat16 dot": (lambda x: (x @ x).sum(), [(16, 16), jnp.bfloat16]),
    "int8 dot": (lambda x: lax.dot(x, x, preferred_element_type=I), [(32, 32), jnp.int8]),
    "convolution": (lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "SAME"), [(2, 3, 8, 8), F], [(4, 3, 3, 3), F]),
    "sort": (lambda x, y: lax.sort((x, y), num_keys=1), [(99,), F], [(99,), I]),
    "top k": (lambda x: lax.top_k(x, 3), [(99,), F]),
    "approximate top k": (lambda x: lax.approx_max_k(x, 3), [(99,), F]),
    "fft": (lambda x: jnp.fft.irfft(jnp.fft.rfft(x)), [(64,), F]),
    "scan": (lambda x: lax.scan(lambda c, a: (c + a, c * a), x[0], x), [(9,), F]),
    "while": (lambda x: lax.while_loop(lambda c: c.sum() < 9, lambda c: c + 1, x), [(4,), F]),
    "cond": (lambda p, x: lax.cond(p > 0, jnp.sin, jnp.cos, x), [(), F], [(4,), F]),
    "cumulative sum": (jnp.cumsum, [(999,), F]),
    "argmax": (jnp.argmax, [(999,), F]),
    "window": (lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (2, 2), (2, 2), "VALID"), [(8, 8), F]),
    "gather, scatter": (lambda x, i: x.at[i].add(x[i]), [(9, 3), F], [(4,), I]),
    "random": (lambda key: (jax.random.normal(key, (9,)), jax.random.permutation(key, 9)), [(2,), K]),
    "special": (lambda x: lax.erf_inv(x) + lax.lgamma(x) + jax.scipy.special.gammainc(x, x), [(9,), F]),
    "complex": (lambda x: jnp.sin(x) * jnp.abs(x), [(9,), jnp.complex64]),
    "float8, int4": (lambda x, y: x.astype(F).sum() + y.astype(F).sum(), [(16,), jnp.float8_e4m3fn], [(16,), jnp.int4]),
    "cholesky": (jnp.linalg.cholesky, [(8, 8), F]),
    "triangular solve": (lambda a, b: jax.scipy.linalg.solve_triangular(a, b, lower=True), [(8, 8), F], [(8, 2), F]),
    "lu": (jax.scipy.linalg.lu, [(8, 8), F]),
    "gradient of solve": (jax.grad(lambda a, b: jnp.linalg.solve(a, b).sum()), [(8, 8), F], [(8,), F]),
    "qr": (jnp.linalg.qr, [(2, 8, 4), F]),
    "eigh": (jnp.linalg.eigh, [(8, 8), F]),
    "svd": (jnp.linalg.svd, [(8, 4), F]),
    "economic svd": (svd_economic, [(2, 4, 8), F]),
}


def offloaded(w, x):
    """What a gradient keeps of a branch: the products, in the host's memory."""
    branch = lambda x: lax.cond(x[0] > 0, lambda c: jnp.cos(w @ c), jnp.sin, x).sum()
    policy = jax.checkpoint_policies.offload_dot_with_no_batch_dims("device", "pinned_host")
    return jax.tree.leaves(jax.vjp(jax.checkpoint(branch, policy=policy), x)[1])


ON_GPU = {
    "offloaded residuals": (offloaded, [(64, 64), F], [(64,), F]),
    "pivoted qr": (lambda a: jax.scipy.linalg.qr(a, pivoting=True), [(8, 4), F]),
    "large svd": (svd_economic, [(1100, 1050), F]),
    "large wide svd": (svd_economic, [(1050, 1100), F]),
    "eigenvalues": (jnp.linalg.eigvals, [(8, 8), F]),
    "tridiagonal": (lambda a: lax.linalg.tridiagonal(a), [(8, 8), F]),
    "tridiagonal solve": (lambda d, b: lax.linalg.tridiagonal_solve(d, d, d, b), [(8,), F], [(8, 2), F]),
    "householder": (lambda a, t, c: lax.linalg.ormqr(a, t, c), [(8, 4), F], [(4,), F], [(8, 4), F]),
    "callback": (lambda x: jax.pure_callback(lambda v: v, jax.ShapeDtypeStruct((4,), F), x), [(4,), F]),
}


def compiled(device, fun, *types):
    sharding = single_device_sharding(device)
    return jax.jit(fun).lower(*(jax.ShapeDtypeStruct(*each, sharding=sharding) for each in types)).compile()


@pytest.mark.parametrize("name", PROGRAMS)
def test_compiles_without_a_trace_of_the_cpu(device, name):
    text = compiled(device, *PROGRAMS[name]).as_text()
    assert "lapack" not in text and "cpu_callback" not in text and "opt-barrier" not in text


@pytest.mark.parametrize("name", ON_GPU)
def test_compiles_for_a_gpu(device, name):
    if device.platform != "gpu":
        pytest.skip("on GPUs alone")
    assert compiled(device, *ON_GPU[name]).memory_analysis().output_size_in_bytes > 0


def test_attention_by_cudnn(device, monkeypatch):
    if device.platform != "gpu":
        pytest.skip("on GPUs alone")
    monkeypatch.setattr("jaxlite.nn.cudnn_attention._require_cudnn", lambda: 256)
    attend = lambda *arrays: jax.nn.dot_product_attention(*arrays, implementation="cudnn", is_causal=True).astype(F).sum()
    text = compiled(device, jax.grad(attend, (0, 1, 2)), *[[(2, 128, 4, 64), jnp.bfloat16]] * 3).as_text()
    assert "__cudnn$fmhaSoftmax" in text and "__cudnn$fmhaSoftmaxBackward" in text


# Of the V100, CUDA 13 knows no more.
NAMES = [name for name, gpu in targets.GPUS.items() if isinstance(gpu.capability, tuple) and name != "v100"]
NAMES += ["v4:2x2x1", "v5p:2x2x1", "v6e:2x2"]


@pytest.mark.parametrize("name", NAMES)
def test_devices_by_name(name):
    if platforms.plugin_of(targets.platform_of(name)) is None:
        pytest.skip("the plugin is not installed: make test-accelerators does that")
    device = topologies.get_topology_desc(name).devices[0]
    assert compiled(device, jnp.tanh, [(16, 16), F]).memory_analysis().argument_size_in_bytes >= 1024


def test_callbacks_are_refused_on_a_tpu(device):
    if device.platform != "tpu":
        pytest.skip("on TPUs alone")
    with pytest.raises(Exception, match="pure_callback runs on CPU and GPU"):
        compiled(device, *ON_GPU["callback"])


def test_what_is_compiled_can_be_looked_at_and_not_run(device):
    made = compiled(device, lambda x: jnp.tanh(x @ x).sum(), ((256, 256), F))
    assert made.memory_analysis().argument_size_in_bytes == 256 * 256 * 4
    assert made.cost_analysis()["flops"] > 2 * 256**3
    with pytest.raises(RuntimeError, match="not on this machine"):
        made(jnp.ones((256, 256)))


def test_fits(device, tmp_path):
    program = tmp_path / "program.py"
    program.write_text("import sys, jaxlite as jax, jaxlite.numpy as jnp\n"
                       "def step(x): return x @ x\njax.jit(step)(jnp.ones((int(sys.argv[1]), 64)))\n")
    name = "h100" if device.platform == "gpu" else "v5e:2x2"
    done = subprocess.run([sys.executable, "-m", "jaxlite.fits", str(program), "64", "--on", name], capture_output=True,
                          text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    (row,) = [line for line in done.stdout.splitlines() if line.startswith("step ")]
    assert "yes" in row and "f32[64,64]" in row


def test_a_plugin_without_its_device_is_left_out_with_one_line():
    if not platforms.installed():
        pytest.skip("no plugin is installed")
    code = "import jaxlite as jax; print(jax.devices()[0].platform, jax.default_backend())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["cpu", "cpu"], done.stderr
    for name in platforms.installed():
        assert len([line for line in done.stderr.splitlines() if line.startswith(f"the platform {name} does not start")]) == 1
