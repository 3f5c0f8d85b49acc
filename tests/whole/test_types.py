"""What type checkers see: the stubs are those of the code as it is, and they find a user's mistakes."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import typing
from pathlib import Path

import pytest

import jaxlite

ROOT = Path(__file__).resolve().parents[2]


def test_the_stubs_are_up_to_date():
    done = subprocess.run([sys.executable, "docs/make_stubs.py", "--check"], cwd=ROOT, capture_output=True, text=True,
                          timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


PROGRAM = '''
import jaxlite as jax
import jaxlite.numpy as jnp
from jaxlite import lax

@jax.jit
def step(params: jax.Array, x: jax.Array) -> jax.Array:
    return jnp.tanh(params @ x).sum()

good: jax.Array = step(jnp.ones((2, 2)), jnp.ones(2)) + jnp.zeros(3).at[1].set(2.0).mean(axis=0)
reveal_type(jnp.einsum("ij->i", jnp.eye(2)))
jnp.sum([1, 2])                         # a list is no array
jnp.zeros((2,), dtyp=jnp.float32)       # no such argument
step(jnp.ones(2))                       # an argument is missing
name: str = jnp.linspace(0, 1).shape    # a tuple
jnp.ones(3).sumn()                      # no such method
'''


def test_a_users_mistakes_are_found(tmp_path):
    pytest.importorskip("mypy", reason="mypy is not installed")
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path / "cache"), "--config-file", "", str(file)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    lines = {int(line.split(":")[1]) for line in done.stdout.splitlines() if ": error:" in line and "program.py" in line}
    assert lines == {12, 13, 14, 15, 16}, done.stdout + done.stderr
    assert 'Revealed type is "jaxlite.typing.Array"' in done.stdout


def test_pyright_finds_them_too(tmp_path):
    checker = shutil.which("basedpyright") or shutil.which("pyright")
    if checker is None:
        pytest.skip("pyright is not installed")
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "pyrightconfig.json").write_text(json.dumps({"extraPaths": [str(ROOT)], "typeCheckingMode": "basic"}))
    done = subprocess.run([checker, "--pythonpath", sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True,
                          timeout=300)
    lines = {int(line) for line in re.findall(r"program\.py:(\d+):\d+ - error", done.stdout)}
    assert lines == {12, 13, 14, 15, 16}, done.stdout + done.stderr


def test_annotations_can_be_checked_while_a_program_runs():
    kinds = [each for each in typing.get_args(jaxlite.typing.DTypeLike) if isinstance(each, type)]
    found = {each.__name__: isinstance(jaxlite.numpy.float32(1), each) for each in kinds}
    assert found == {"str": False, "dtype": False, "SupportsDType": True}
