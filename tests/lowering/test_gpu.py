"""What programs call on a GPU, as text: the calls of libraries have the form that their handlers take. Nothing runs."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite import lax
from jaxlite.lax import linalg
from lowering.cache import keys

F, C = jnp.float32, jnp.complex64
POLAR = linalg.SvdAlgorithm.POLAR


def lowered(function, *types, platform="cuda"):
    return jax.jit(function).trace(*(jax.ShapeDtypeStruct(*each) for each in types)).lower(lowering_platforms=(platform,))


def slim(a):
    return jnp.linalg.svd(a, full_matrices=False)


# Of each call: its name, configuration, and types.
CALLS = {
    "lu": (jax.scipy.linalg.lu_factor, [(4, 8, 6), F],
           r"@cu_lu_pivots_to_permutation\(.*\[1, 0\].*tensor<4x6xi32>\) -> tensor<4x8xi32>"),
    "update": (linalg.cholesky_update, [(8, 8), F], [(8,), F],
               r"@cu_cholesky_update_ffi.*operand_index = 0.*operand_index = 1"),
    # Up to 32 rows or columns, cuSOLVER gives square factors, whatever is asked for.
    "svd": (slim, [(2, 40, 20), F], r"gesvdj_ffi.*full_matrices = true.*2x40x40xf32>, tensor<2x20x20xf32>, tensor<2xi32>\)"),
    "large": (slim, [(40, 33), F], r"gesvdj_ffi.*full_matrices = false.*<40x33xf32>, tensor<33x33xf32>, tensor<i32>\)"),
    "polar": (lambda a: linalg.svd(a, algorithm=POLAR, full_matrices=False), [(8, 4), C],
              r"gesvdp_ffi.*full_matrices = false.*tensor<8x4xcomplex<f32>>, tensor<4x4xcomplex<f32>>, tensor<i32>\)"),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls(name):
    function, *types, pattern = CALLS[name]
    text = lowered(function, *types).as_text()
    assert re.search(pattern, text) and "stablehlo.while" not in text
    assert jax.eval_shape(function, *(jax.ShapeDtypeStruct(*each) for each in types)) == jax.tree.map(
        lambda info: jax.ShapeDtypeStruct(info.shape, info.dtype), lowered(function, *types).out_info)


def on_the_cpu(function, *arguments):
    """The program for a GPU, which has operations alone, run by the CPU."""
    checks = [jax.export.DisabledSafetyCheck.platform()]
    exported = jax.export.export(jax.jit(function), platforms=("cuda",), disabled_checks=checks)(*arguments)
    return exported.mlir_module(), exported.call(*arguments)


def test_complex_convolutions_are_real_ones_on_a_gpu():
    draw = np.random.default_rng(0).normal
    x, w = ((draw(size=shape) + 1j * draw(size=shape)).astype(C) for shape in ((2, 3, 8, 8), (4, 3, 3, 3)))
    text, result = on_the_cpu(lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "VALID"), x, w)
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))
    np.testing.assert_allclose(result, np.einsum("bihwkl,oikl->bohw", windows, w), rtol=1e-4, atol=1e-4)
    assert len(re.findall(r"stablehlo.convolution.*-> tensor<2x4x6x6xf32>", text)) == 3


def test_floats_are_sorted_by_the_order_that_xla_has_a_radix_sort_for():
    x = np.array([1, np.nan, -0.0, 0.0, -np.nan, -np.inf, -0.0, np.inf, -1], np.float32)
    text, result = on_the_cpu(jnp.argsort, x)
    assert result.tolist() == np.argsort(x, stable=True).tolist()
    (ending,) = re.findall(r"stablehlo.compare\s+LT, (%\w+), (%\w+),\s+TOTALORDER", text)
    for key in ending:  # NaN, else zero without its sign, else the number
        nan, number = re.search(rf"{key} = stablehlo.select %\w+, (%\w+), (%\w+)", text).groups()
        assert f"{nan} = stablehlo.constant dense<0x7FC00000>" in text and f"{number} = stablehlo.select" in text


def test_programs_with_calls_of_the_gpus_libraries_are_cached():
    assert keys._is_portable(lowered(jnp.linalg.eigh, [(8, 8), F])._lowered.module)
    call = jax.ffi.ffi_call("mine", jax.ShapeDtypeStruct((8,), F))
    assert not keys._is_portable(lowered(call, [(8,), F])._lowered.module)


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler to make libraries with")
def test_nvidias_wheels(tmp_path, monkeypatch):
    """Libraries of every version are loaded, and the folder of the assembler is found."""
    (source := tmp_path / "c.c").write_text("int x;")
    for folder, version in (("cu13", "13"), ("cuda_runtime", "12")):
        (lib := tmp_path / "nvidia" / folder / "lib").mkdir(parents=True)
        subprocess.run(["cc", "-shared", "-o", lib / f"libcudart.so.{version}", source], check=True)
    (tmp_path / "nvidia" / "cu13" / "bin").mkdir()
    (tmp_path / "nvidia" / "cu13" / "bin" / "ptxas").write_text("")
    code = ("from lowering import plugins; plugins.load_nvidia_libraries(); print(plugins.cuda_folder())\n"
            "print(*(line for line in open('/proc/self/maps') if 'libcudart' in line))")
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                         env={"PYTHONPATH": f"{tmp_path}:{':'.join(sys.path)}", "PATH": ""}).stdout
    assert out.startswith(str(tmp_path / "nvidia" / "cu13\n")) and "libcudart.so.12" in out and "libcudart.so.13" in out
