"""The examples in docstrings, in the README and in docs/ run and print what they say."""

from __future__ import annotations

import doctest
import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pages import ROOT, blocks_of

FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def with_examples(files: list[Path]) -> list[str]:
    return sorted(str(file.relative_to(ROOT)) for file in files if ">>>" in file.read_text(encoding="utf-8"))


MODULES = with_examples([file for package in ("jaxlite", "lowering") for file in (ROOT / package).rglob("*.py")])
TEXTS = with_examples([*ROOT.glob("README.md"), *(ROOT / "docs").glob("*.md")])


OF_A_PROCESS = "jaxlite/as_jax/__init__.py"  # gives modules JAX's names when it is imported


def module_name(file: str) -> str:
    parts = Path(file).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@pytest.mark.parametrize("file", [file for file in MODULES if file != OF_A_PROCESS])
def test_docstring_examples(file: str) -> None:
    module = importlib.import_module(module_name(file))
    assert doctest.testmod(module, optionflags=FLAGS).failed == 0


def test_examples_of_what_changes_its_process() -> None:
    assert OF_A_PROCESS in MODULES
    run(f"import doctest, {module_name(OF_A_PROCESS)} as module; assert doctest.testmod(module) == (0, 3)")
    assert "jax" not in sys.modules or not sys.modules["jax"].__name__.startswith("jaxlite")


@pytest.mark.parametrize("file", TEXTS)
def test_text_examples(file: str) -> None:
    assert doctest.testfile(str(ROOT / file), module_relative=False, optionflags=FLAGS, encoding="utf-8").failed == 0


# Programs in pages that are no doctests, with what stands before each of them: they run on eight devices.
ARRAYS = "x, w, f = np.ones((8, 16)), np.ones((16, 4)), lambda x, w: x @ w"
BLOCKS = {
    "README.md": ["", "import jaxlite\nbatch, params = jnp.ones((8, 2)), jnp.ones(2)"],
    "docs/eager.md": ["", ""],
    "docs/sharding.md": [ARRAYS, f"{ARRAYS}\nmesh = jax.sharding.Mesh(np.array(jax.devices()), ('x',))", "h = y", ARRAYS, ""],
}
# Pages whose programs need a compiler, several processes, a plugin or TensorFlow: the tests that run them.
ELSEWHERE = {"docs/accelerators.md": "tests/accelerators/test_compiling.py", "docs/ffi.md": "tests/lax/test_foreign.py",
             "docs/export.md": "tests/experimental/test_jax2tf.py",
             "docs/processes.md": "tests/devices/test_processes.py"}


def run(program: str) -> None:
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120,
                          env={**os.environ, "JAX_NUM_CPU_DEVICES": "8", "PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", BLOCKS)
def test_blocks_of_pages_run(page: str) -> None:
    run(f"""
from tests import pages
import numpy as np, jaxlite as jax, jaxlite.numpy as jnp
from jaxlite import NamedSharding, P, lax
names = dict(globals())
for before, block in zip({BLOCKS[page]!r}, pages.blocks_of({page!r}), strict=True):
    exec(before, names)
    pages.run_block(block, names)
""")


def test_each_page_with_blocks_is_run() -> None:
    pages = [str(page.relative_to(ROOT)) for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]]
    assert {page for page in pages if blocks_of(page)} == {*BLOCKS, *ELSEWHERE}
    for page, test in ELSEWHERE.items():
        assert f'blocks_of("{page}")' in (ROOT / test).read_text(encoding="utf-8")
