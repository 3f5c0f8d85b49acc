"""The examples in docstrings, in the README and in docs/ run and print what they say."""

from __future__ import annotations

import ast
import doctest
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FLAGS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


def with_examples(files: list[Path]) -> list[str]:
    return sorted(str(file.relative_to(ROOT)) for file in files if ">>>" in file.read_text(encoding="utf-8"))


MODULES = with_examples([file for package in ("jaxlite", "lowering") for file in (ROOT / package).rglob("*.py")])
TEXTS = with_examples([*ROOT.glob("README.md"), *(ROOT / "docs").glob("*.md")])


def module_name(file: str) -> str:
    parts = Path(file).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@pytest.mark.parametrize("file", MODULES)
def test_docstring_examples(file: str) -> None:
    module = importlib.import_module(module_name(file))
    assert doctest.testmod(module, optionflags=FLAGS).failed == 0


@pytest.mark.parametrize("file", TEXTS)
def test_text_examples(file: str) -> None:
    assert doctest.testfile(str(ROOT / file), module_relative=False, optionflags=FLAGS, encoding="utf-8").failed == 0


# Programs in pages that are no doctests, with what stands before each of them: they run on eight devices.
ARRAYS = "x, w, f = np.ones((8, 16)), np.ones((16, 4)), lambda x, w: x @ w"
BLOCKS = {
    "README.md": ["", "import jaxlite\nbatch, params = jnp.ones((8, 2)), jnp.ones(2)"],
    "docs/eager.md": [""],
    "docs/sharding.md": [ARRAYS, f"{ARRAYS}\nmesh = jax.sharding.Mesh(np.array(jax.devices()), ('x',))", "h = y", ARRAYS, ""],
}
ELSEWHERE = {"docs/accelerators.md": "tests/accelerators", "docs/ffi.md": "tests/lax/test_foreign.py",
             "docs/processes.md": "tests/devices/test_processes.py"}


def blocks_of(page: Path) -> list[str]:
    found = re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    return [block for block in found if ">>>" not in block]


def run_block(block: str, names: dict) -> None:
    """A line whose comment begins with the name of an exception raises it."""
    for node in ast.parse(block).body:
        lines = block.splitlines()[node.lineno - 1:node.end_lineno]
        error = re.search(r"# (\w+Error)\b", lines[-1])
        code = compile(ast.Module([node], []), "block", "exec")
        if error is None:
            exec(code, names)
            continue
        try:
            exec(code, names)
        except Exception as raised:
            assert type(raised).__name__ == error[1], raised
        else:
            raise AssertionError(f"{lines[-1]}: nothing is raised")


@pytest.mark.parametrize("page", BLOCKS)
def test_blocks_of_pages_run(page: str) -> None:
    program = f"""
import sys; sys.path.insert(0, {str(ROOT / 'tests' / 'whole')!r})
import numpy as np, test_doctests as here
import jaxlite as jax, jaxlite.numpy as jnp
from jaxlite import NamedSharding, P, lax
names = dict(globals())
for before, block in zip(here.BLOCKS[{page!r}], here.blocks_of(here.ROOT / {page!r}), strict=True):
    exec(before, names)
    here.run_block(block, names)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120,
                          env={**os.environ, "JAX_NUM_CPU_DEVICES": "8", "PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr


def test_each_page_with_blocks_is_run() -> None:
    pages = {str(page.relative_to(ROOT)) for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")] if blocks_of(page)}
    assert pages == {*BLOCKS, *ELSEWHERE}
