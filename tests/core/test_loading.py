"""What a program does not use is not loaded, and is there when it is used."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite import lax

pytestmark = pytest.mark.usefixtures("uncached")

ROOT = Path(__file__).parents[2]
START = "import gc, sys, jaxlite as jax, jaxlite.numpy as jnp\nassert gc.isenabled() and gc.get_freeze_count() < 1000\n"


def loaded(program: str) -> set[str]:
    """The modules that a fresh process has after running a program."""
    done = subprocess.run([sys.executable, "-c", f"{START}{program}\nprint(*sys.modules)"], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=120, check=True)
    return set(done.stdout.split())


def test_an_import_loads_what_most_programs_need():
    modules = loaded("")
    assert modules.isdisjoint({
        "logging", "dataclasses", "scipy", "jaxlib.xla_client", "jaxlib.mlir.ir", "jaxlib.lapack",
        "jaxlite.random", "jaxlite.nn", "jaxlite.numpy.linalg", "jaxlite.numpy.sets", "jaxlite.numpy.statistics",
        "jaxlite.lax.convolution", "jaxlite.lax.control_flow", "jaxlite.lax.elementwise_rules", "lowering.rules.elementwise",
        "jaxlite.core.printer", "jaxlite.transforms.derivatives", "jaxlite.transforms.vmap"})


def test_a_compile_loads_the_rules_of_its_primitives_and_no_classes_of_operations():
    modules = loaded("assert jax.jit(lambda x: jnp.sin(x) @ x + 1)(jnp.ones(3)).shape == ()")
    assert {"lowering.rules.elementwise", "lowering.rules.dot"} <= modules
    assert modules.isdisjoint({"lowering.rules.linalg", "lowering.rules.control_flow", "jaxlite.lax.elementwise_rules",
                               "jaxlib.mlir.dialects.stablehlo", "jaxlib.mlir.dialects.func"})


def test_lowering_loads_the_rules_of_a_family_alone():
    modules = loaded("assert jax.jit(lambda x: jnp.sort(x)[1:])(jnp.ones(3)).tolist() == [1, 1]")
    assert {"lowering.rules.sorting", "lowering.rules.slicing"} <= modules
    assert modules.isdisjoint({"lowering.rules.parallel", "lowering.rules.pallas", "lowering.rules.control_flow"})


def test_a_derivative_loads_the_rules_of_its_primitives():
    modules = loaded("assert jax.make_jaxpr(jax.vmap(jax.grad(lambda x: jnp.sin(x) * x)))(jnp.ones(3))")
    assert {"jaxlite.lax.elementwise_rules", "jaxlite.lax.dot_rules"} <= modules
    assert modules.isdisjoint({"dataclasses", "jaxlite.lax.linalg_rules", "jaxlite.lax.control_flow",
                               "jaxlite.lax.special_rules", "jaxlite.lax.convolution_rules", "jaxlite.devices.sharding"})


@pytest.mark.parametrize("program", [
    "jax.lax.linalg.cholesky(x * jnp.eye(2)).sum()", "jax.lax.fori_loop(0, 2, lambda i, y: y * x, x)",
    "jax.lax.bessel_i1e(x)", "jax.lax.igamma(x, x)", "jax.lax.cond(x > 0, jnp.sin, jnp.cos, x)", "jax.random.gamma(key, x)",
    "jax.lax.conv(x * jnp.ones((1, 1, 2)), jnp.ones((1, 1, 1)), (1,), 'SAME').sum()",
])
def test_what_loads_within_a_derivative_has_its_rules(program):
    loaded(f"key = jax.random.PRNGKey(0) if 'key' in {program!r} else None\n"
           f"assert jax.make_jaxpr(jax.vmap(jax.jacfwd(lambda x: {program})))(jnp.ones(2)).eqns")


def test_taking_the_place_of_jax_loads_nothing_of_pythons():
    assert not {name for name in loaded("import jaxlite.as_jax") - loaded("") if not name.startswith("jax")}


def test_a_transposition_that_comes_first_finds_its_rules():
    loaded("assert jax.linear_transpose(lambda x: x * 3.0, jnp.ones(2))(jnp.ones(2))[0].tolist() == [3, 3]")


def test_an_arrays_sharding_has_its_methods_from_the_start():
    loaded("s = jnp.ones(3).sharding\nassert (s.num_devices, s.shard_shape((3,))) == (1, (3,)) and s.is_equivalent_to(s, 1)\n"
           "assert not hasattr(s, 'spec')")
    loaded("assert {'num_devices', 'devices_indices_map', 'device_set'} <= set(dir(jnp.ones(3).sharding))")


def test_modules_that_jax_imports_are_attributes_without_an_import():
    loaded("assert not jax.experimental.compilation_cache.compilation_cache.__name__.endswith('nothing')")


def test_who_reads_the_module_finds_classes_of_operations():
    (function,) = jax.jit(jnp.sin).lower(1.0).compiler_ir().body.operations
    assert type(function).__name__ == "FuncOp" and function.name.value == "main"
    assert [type(operation).__name__ for operation in function.body.blocks[0]] == ["SineOp", "ReturnOp"]


@pytest.mark.parametrize("package", [jax, jnp, lax], ids=["jaxlite", "numpy", "lax"])
def test_all_listed_names_are_there(package):
    assert [name for name in dir(package) if not hasattr(package, name)] == []
    with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'no_such_name'"):
        package.no_such_name  # noqa: B018


def test_threads_that_compile_at_once_find_their_rules():
    loaded("""
from concurrent.futures import ThreadPoolExecutor
x = jnp.arange(1.0, 5.0)
programs = [jnp.sort, jnp.cumsum, jnp.diag, jnp.argmax, jnp.fft.rfft, lambda x: x @ x,
            lambda x: jax.lax.fori_loop(0, 3, jnp.add, x), lambda x: jax.lax.cond(x[0] > 0, jnp.sin, jnp.cos, x),
            lambda x: jnp.linalg.inv(jnp.diag(x)), jax.lax.lgamma]
with ThreadPoolExecutor(len(programs)) as threads:
    for out in threads.map(lambda f: jax.jit(f)(x), programs):
        out.block_until_ready()""")
