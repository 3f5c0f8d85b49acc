"""What every test shares: a fixed environment, fixed random draws, and a few fixtures.

Environment variables that configure jaxlite are removed before it is first imported, so that a developer's settings
do not change what the tests see; a test that is about one of them starts a subprocess with it.
"""

from __future__ import annotations

import atexit
import functools
import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest

from tests.quick_code import quick_options

for _name in [name for name in os.environ if name.startswith(("JAXLITE_", "JAX_"))]:
    del os.environ[_name]
os.environ["JAXLITE_RECOMPILATION_LIMIT"] = "0"  # tests compile one line for many cases

# The tests start some hundred processes. None of them should parse what another one has parsed before.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# No test reads or writes the user's compile cache. All processes of a run share one that ends with it: what is compiled is
# most of what the tests take, and much of it is compiled more than once.
if "PYTEST_XDIST_WORKER" not in os.environ:  # workers inherit it
    os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="jaxlite-tests-")
    atexit.register(shutil.rmtree, os.environ["XDG_CACHE_HOME"], ignore_errors=True)

# Where values are held to a tolerance, their programs are compiled quickly: see tests/quick_code.py. Folders that are
# about compiling, and tests marked `own_code`, get the code that users get. With TESTS_OWN_CODE=1, as in `make test-latest`,
# all do but those about rules, gradients and several devices, which no code generation changes: whole files, since what is
# compiled is forgotten where a test wants other code than the one before it.
COMPARED_FOLDERS = {"example_libraries", "image", "lax", "nn", "numpy", "ops", "random", "scipy", "state", "transforms"}
QUICK_FOLDERS = COMPARED_FOLDERS | {"devices", "experimental", "export"}
ABOUT_RULES = ("_rules.py", "_gradients.py")


def is_quick(item: pytest.Item, folder: str) -> bool:
    """Whether a test's programs are compiled quickly."""
    if folder not in QUICK_FOLDERS or item.get_closest_marker("own_code") is not None:
        return False
    return not os.environ.get("TESTS_OWN_CODE") or folder == "devices" or item.path.name.endswith(ABOUT_RULES)


@functools.cache
def _options_classes() -> tuple[type, type]:
    """XLA's compile options as they are, and with quick code generation."""
    from lowering import xla

    own: type = xla.CompileOptions
    quick = {name: str(value) if isinstance(value, bool) else value for name, value in quick_options().items()}

    class Quick(own):  # type: ignore[valid-type, misc]
        def __init__(self) -> None:
            super().__init__()
            self.env_option_overrides = []

        def __setattr__(self, name: str, value: Any) -> None:
            if name == "env_option_overrides":  # a program's own choices, and those of its test, come on top
                value = list((quick | dict(value)).items())
            super().__setattr__(name, value)

    return own, Quick


def generate_code(*, quick: bool) -> None:
    """From here on, compile for quick code generation or as users do. What is compiled is forgotten at a change."""
    import jaxlite
    from lowering import xla

    wanted: Any = _options_classes()[quick]
    if xla.CompileOptions is not wanted:
        xla.CompileOptions = wanted
        jaxlite.clear_caches()


@functools.cache
def _set_limits() -> None:
    """What passes do to large arrays, they do to those of the tests."""
    from tests import smallest

    smallest.set_limits()


# In most of these folders each eager operation is compiled at once, as its rules for XLA are what is tested. NumPy computes it
# as well where it may: its results are compared with the compiled ones to the bit.
def compare_with_compiled(program: Any, leaves: Any, device: Any, committed: bool, outs: list[Any]) -> None:
    """Fail where NumPy's results are not those of the executable."""
    for ours, theirs in zip(outs, program.executable(device, committed)(leaves), strict=True):
        for name in ("aval", "committed", "sharding", "format"):
            assert getattr(ours, name) == getattr(theirs, name), (program.closed, ours, theirs)
        assert np.asarray(ours).tobytes() == np.asarray(theirs).tobytes(), (program.closed, leaves, ours, theirs)


def compare_eager_operations(on: bool) -> None:
    """From here on, compile each eager operation and compare, or let NumPy do its first calls, as users have it."""
    from jaxlite.traces import host

    host.watchers[:] = [compare_with_compiled] if on else []


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    folder = item.path.relative_to(Path(__file__).parent).parts[0]
    if folder in COMPARED_FOLDERS or "jaxlite.traces.host" in sys.modules:
        compare_eager_operations(folder in COMPARED_FOLDERS)
    if os.environ.get("TESTS_SMALLEST"):
        _set_limits()
    if folder in QUICK_FOLDERS or "lowering.xla" in sys.modules:  # no test of another folder loads jaxlite for this
        generate_code(quick=is_quick(item, folder))


# All that collection makes lives until the end: what collects garbage need not go through it again and again.
@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()


hypothesis.settings.register_profile("jaxlite", derandomize=True, deadline=None, database=None)
hypothesis.settings.load_profile("jaxlite")


@pytest.fixture(autouse=True)
def _same_draws_every_run() -> None:
    np.random.seed(0)


@pytest.fixture
def rng() -> np.random.Generator:
    """A NumPy generator in the same state for every test."""
    return np.random.default_rng(0)


@pytest.fixture
def uncached(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is found in the persistent cache, here or in a process that the test starts."""
    from jaxlite.core import config

    monkeypatch.setenv("JAXLITE_ENABLE_COMPILATION_CACHE", "0")
    with config.enable_compilation_cache(False):
        yield


@pytest.fixture
def own_code() -> Callable[[], None]:
    """A function after which a test gets the code that XLA generates by default."""
    return functools.partial(generate_code, quick=False)


@pytest.fixture
def x64() -> Iterator[None]:
    """Runs the test with 64-bit types enabled."""
    import jaxlite  # here, so that tests without jaxlite do not pay for it

    with jaxlite.enable_x64():
        yield


@pytest.fixture
def count_traces() -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Wraps a function so that `.count` holds how often Python ran its body: under jit, how often it was traced."""

    def wrap(fun: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fun)
        def counted(*args: Any, **kwargs: Any) -> Any:
            counted.count += 1  # type: ignore[attr-defined]
            return fun(*args, **kwargs)

        counted.count = 0  # type: ignore[attr-defined]
        return counted

    return wrap
