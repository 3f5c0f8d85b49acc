"""Options: all of JAX's are known, the page lists them, and those that change something do."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite.core import config as options
from lowering import xla

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def update():
    before = {}

    def set_option(name, value):
        before.setdefault(name, jax.config.read(name))
        jax.config.update(name, value)

    yield set_option
    for name, value in before.items():
        jax.config.update(name, value)


def test_the_page_is_up_to_date():
    spec = importlib.util.spec_from_file_location("options_page", ROOT / "docs" / "options.py")
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    if tool.PAGE.read_text(encoding="utf-8") != tool.page():
        pytest.fail("docs/config.md is not what the options are now: run `python docs/options.py`")


@pytest.mark.parametrize("environment", [".venv-jax", ".venv-jax-latest"])
def test_options_of_an_installed_jax_are_known(environment):
    python = ROOT / environment / "bin" / "python"
    if not python.exists():
        pytest.skip("no environment with jax")
    code = "import json, jax; print(json.dumps([*jax.config.values]))"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=120)
    for name in json.loads(done.stdout.splitlines()[-1]):
        jax.config.read(name)


def test_what_cannot_be_honoured_is_refused():
    jax.config.update("jax_error_checking_behavior_nan", "ignore")
    with pytest.raises(ValueError, match="use jaxlite.experimental.checkify"):
        jax.config.update("jax_error_checking_behavior_nan", "raise")
    with pytest.raises(ValueError, match=r"new enum value must be in \['warn', 'error'\]"):
        jax.config.update("jax_explicit_x64_dtypes", "allow")


def test_keys(update):
    words = jax.random.PRNGKey(0)
    assert words.dtype == np.uint32
    update("jax_legacy_prng_key", "error")
    for use in (jax.random.normal, jax.random.split, jax.random.key_data, jax.jit(jax.random.bits)):
        with pytest.raises(ValueError, match="Legacy uint32 key array passed as key to jax.random function"):
            use(words)
    update("jax_legacy_prng_key", "warn")
    with pytest.warns(UserWarning, match="Legacy uint32 key array"):
        assert jax.random.bits(words) == jax.random.bits(jax.random.key(0))
    update("jax_enable_custom_prng", True)
    assert jnp.issubdtype(jax.random.PRNGKey(0).dtype, jax.dtypes.prng_key)


def test_gumbel_numbers_of_more_bits(update):
    key = jax.random.key(0)
    low, high = (jax.random.gumbel(key, (4,), mode=mode) for mode in ("low", "high"))
    assert (jax.random.gumbel(key, (4,)) == low).all()
    update("jax_high_dynamic_range_gumbel", True)
    assert (jax.random.gumbel(key, (4,)) == high).all() and not (high == low).any()


def test_ints_out_of_bounds(update):
    x = jnp.arange(6.0).reshape(2, 3)
    update("jax_check_static_indices", True)
    for index, axis in ((2, 0), (-3, 0), ((0, 3), 1), ((..., None, -4), 1)):
        for read in (lambda x, index=index: x[index], jax.jit(lambda x, index=index: x[index])):
            with pytest.raises(IndexError, match=f"out of bounds for axis {axis} with size"):
                read(x)
    assert x[1, 2] == 5 and x[-2, jnp.int32(7)] == 2 and x[:, 1:9].shape == (2, 2) and x[np.array([5])].shape == (1, 3)


def test_types_of_64_bits(update):
    with jax.enable_x64(True):
        assert jax.config.x64_enabled is True
    if jax.config.jax_enable_x64:
        pytest.skip("they are there")
    update("jax_explicit_x64_dtypes", "error")
    with pytest.raises(ValueError, match="Explicitly requested dtype float64 requested in zeros is not available"):
        jnp.zeros(2, "float64")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert jnp.zeros(2, float).dtype == jnp.asarray(np.zeros(2)).dtype == np.float32


@pytest.mark.skipif(xla.VERSION < (0, 12), reason="as JAX of the same jaxlib")
def test_types_of_64_bits_are_truncated_with_a_warning():
    wide = jax.ShapeDtypeStruct((2,), "int64")
    for call in (lambda: jax.eval_shape(lambda x: x, wide), lambda: jax.jit(lambda x: x).trace(wide)):
        with pytest.warns(UserWarning, match="Explicitly requested dtype int64 requested in ShapeDtypeStruct") as warned:
            call()
        assert warned[0].filename == __file__


def test_meshes_that_are_entered(update):
    mesh = jax.make_mesh((1,), ("x",))
    with pytest.warns(DeprecationWarning, match="Use `with jax.set_mesh") as warned, mesh:
        pass
    assert warned[0].filename == __file__
    update("jax_disallow_mesh_context_manager", True)
    with pytest.raises(RuntimeError, match="Mesh context manager is disabled"), mesh:
        pass
    with jax.set_mesh(mesh):
        pass


def test_what_xla_is_told(update):
    def told(x):
        return jax.jit(lambda x: x + 1).lower(x).compile()

    for name, value in (("optimization_level", "O1"), ("memory_fitting_level", "O0"), ("exec_time_optimization_effort", 0.25),
                        ("memory_fitting_effort", 0.5), ("disable_most_optimizations", True)):
        update(f"jax_{name}", value)
        assert told(1.0)(1.0) == 2.0
    from jaxlite.compilation.options import process_options
    assert process_options() == {
        "optimization_level": 2, "memory_fitting_level": 1, "exec_time_optimization_effort": 0.25, "memory_fitting_effort": 0.5,
        "xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True, "xla_test_all_input_layouts": False}
    with pytest.raises(ValueError, match=r"new enum value must be in \['UNKNOWN', 'O0'"):
        jax.config.update("jax_optimization_level", "O9")


@pytest.mark.parametrize("name, value", [
    ("platforms", 1), ("compilation_cache_dir", 3), ("random_seed_offset", 2.5), ("compilation_cache_max_size", None),
    ("logging_level", 10), ("persistent_cache_min_compile_time_secs", [1]), ("exec_time_optimization_effort", object),
    ("xla_profile_version", "new"), ("persistent_cache_enable_xla_caches", 1)])
def test_a_value_of_a_wrong_type_is_refused(name, value):
    with pytest.raises(ValueError, match=f"{name}|must be None or of type str"):
        jax.config.update("jax_" + name, value)


def test_every_option_has_a_context_manager():
    assert len(options.OPTIONS) > 50 and not options.OPTIONS.keys() & options.WITHOUT_MEANING.keys()
    for name, option in options.OPTIONS.items():
        if not name.startswith(("transfer_guard", "log", "debug_log", "thread_guard")):
            with option(option.value):
                assert jax.config.read(f"jax_{name}") == option.value


def test_the_options_are_attributes_that_completion_shows():
    assert {f"jax_{name}" for name in options.OPTIONS} <= set(dir(jax.config))
    with jax.enable_x64(new_val=True):
        assert jax.config.jax_enable_x64


def test_a_library_may_put_a_function_in_the_place_of_a_method(monkeypatch):
    update = jax.config.update
    monkeypatch.setattr(jax.config, "update", lambda name, value: None if name == "jax_of_old" else update(name, value))
    jax.config.update("jax_of_old", 1)
    with pytest.raises(AttributeError, match="jax_of_new"):
        jax.config.update("jax_of_new", 1)
    jax.config.jax_enable_x64 = jax.config.jax_enable_x64  # still one of the options


def test_a_context_manager_may_be_entered_within_itself_by_hand_and_decorate():
    context = jax.enable_x64(True)
    with context:
        with context:
            pass
        assert jax.config.jax_enable_x64
    assert not jax.config.jax_enable_x64
    assert [jax.enable_x64(True)(lambda: jax.config.jax_enable_x64)(), jax.config.jax_enable_x64] == [True, False]

    def by_hand():
        jax.enable_x64(True).__enter__()
        return jax.config.jax_enable_x64

    with jax.enable_x64(False):  # which sets back what the hand leaves
        assert by_hand() and jax.config.jax_enable_x64
    assert not jax.config.jax_enable_x64


def test_options_of_jax_that_change_nothing():
    with jax.softmax_custom_jvp(True), jax.auto_pcast(False):
        assert jax.config.jax_softmax_custom_jvp and not jax.config.jax_auto_pcast
    assert jax.config.jax_auto_pcast and "jax_serialization_version" in jax.config.values
    code = "import jaxlite as jax; c = jax.config; print(c.jax_pgle_profiling_runs, c.jax_enable_pgle, c.jax_mtls_ca_file)"
    variables = {"JAX_PGLE_PROFILING_RUNS": "7", "JAX_ENABLE_PGLE": "yes", "JAX_MTLS_CA_FILE": "a"}
    run = functools.partial(subprocess.run, capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert run([sys.executable, "-c", code], env={**os.environ, **variables}).stdout == "7 True a\n"
    done = run([sys.executable, "-c", code], env={**os.environ, "JAX_ERROR_CHECKING_BEHAVIOR_NAN": "raise"})
    assert "takes no other value; use jaxlite.experimental.checkify" in done.stderr


def test_a_default_device_that_is_none_is_refused_at_once():
    for wrong in ("nope", 3):
        with pytest.raises(ValueError, match="must be passed either a Device object") as caught:
            jax.config.update("jax_default_device", wrong)
        assert [frame.path for frame in caught.traceback if "jaxlite/core" in str(frame.path)] == []
    with pytest.raises(ValueError, match="got: 'nope'"), jax.default_device("nope"):
        pass
    with jax.default_device("cpu"):
        assert jnp.ones(2).sum() == 2


def test_update_takes_the_names_of_jax():
    jax.config.update(name="jax_log_compiles", val=True)
    assert jax.config.jax_log_compiles
    jax.config.update("jax_log_compiles", val=False)
