"""A program's process ends without searches for garbage, unless an object has something to do at its end."""

import gc
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import jaxlite.numpy as jnp
from jaxlite.commands.ending import _has_last_duties


class Finalized:
    def __del__(self):
        pass


def guarded():
    try:
        yield 1
    finally:
        print()


def simple():
    yield 1


def started(generator):
    next(generator)
    return generator


@pytest.mark.parametrize(("make", "expected"), [
    (Finalized, True),
    (type("Below", (Finalized,), {}), True),
    (tempfile.TemporaryFile, True),
    (lambda: started(guarded()), True),
    (lambda: started(simple()), False),
    (lambda: sys.__stderr__.buffer, False),
    (lambda: jnp.zeros(()), False),
    (object, False),
    (dict, False),
])
def test_objects_with_duties_are_found(make, expected):
    made = make()
    assert _has_last_duties([made]) is expected
    if hasattr(made, "close") and made is not sys.__stderr__.buffer:
        made.close()
    del made
    gc.collect()


PROGRAM = """
import gc, os, sys, weakref
import jax.numpy as jnp
class Thing: pass
def say(_, write=os.write): write(1, b"gone ")
thing = Thing()
sys.watch = weakref.ref(thing, say)
ring = Thing()
ring.ring = ring
{extra}
freeze = gc.freeze
gc.freeze = lambda write=os.write: (write(1, b"frozen "), freeze())
"""


@pytest.mark.parametrize(("extra", "expected"), [
    ("", "frozen gone "),
    ("ring.file = open('out', 'w'); ring.file.write('x')", ""),
])
def test_variables_of_modules_go_and_files_are_written(extra, expected, tmp_path):
    """A module that has functions is in cycles with them: `thing` goes because its module is cleared."""
    (tmp_path / "program.py").write_text(PROGRAM.format(extra=extra))
    done = subprocess.run([sys.executable, "-m", "jaxlite", "program.py"], cwd=tmp_path, capture_output=True, text=True,
                          timeout=120, check=False, env=os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])})
    assert (done.stdout, done.returncode, done.stderr) == (expected, 0, "")
    assert not extra or (tmp_path / "out").read_text() == "x"
