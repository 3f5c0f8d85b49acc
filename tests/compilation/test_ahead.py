"""Executables that a thread loads before programs ask for them: the same results, and nothing that shows."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import jaxlite
import jaxlite.compilation.execution  # which tells the cache its folder
from lowering.cache import ahead, entries, keys

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import os, sys, threading, time
import numpy as np
import jaxlite
from lowering import platforms
from lowering.cache import entries

mode = open(sys.argv[1]).read()
loads, started, load = [], [], entries.load

def watched(*args):
    loads.append(threading.current_thread().name)
    return load(*args)

entries.load = watched

def step(key, x):
    started.append(bool(platforms.clients))
    for _ in range(1000):
        if loads or mode != "ahead":
            break
        time.sleep(0.01)
    if mode == "fails":
        raise ValueError("as the user's function does")
    if mode == "two devices":
        jaxlite.config.update("jax_num_cpu_devices", 2)
    if mode == "forks":
        child = os.fork()
        if not child:
            with jaxlite.ensure_compile_time_eval():
                try:
                    jaxlite.jit(lambda x: x + 1)(np.float32(1))
                except RuntimeError as error:
                    print(str(error)[:40], flush=True)
            os._exit(0)
        os.waitpid(child, 0)
    noise = jaxlite.random.normal(key, (2, 3))
    return noise + x * (2 if mode == "changed" else 1)

key = np.array([1, 2], np.uint32)
step = jaxlite.jit(step)
print(np.asarray(step(key, np.float32(1))).tolist(), flush=True)
print(loads, started, len(jaxlite.devices()))
"""


@pytest.fixture
def run(tmp_path):
    """Runs the program in one of its modes: its output in lines, its exit status and its errors."""
    program, mode = tmp_path / "program.py", tmp_path / "mode"
    program.write_text(PROGRAM)
    environment = {**os.environ, "JAXLITE_COMPILATION_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT),
                   "JAXLITE_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "JAX_PLATFORMS": "cpu"}

    def run(name):
        mode.write_text(name)
        done = subprocess.run([sys.executable, str(program), str(mode)], env=environment, capture_output=True, text=True,
                              timeout=120)
        return done.stdout.splitlines(), done.returncode, done.stderr

    return run


@pytest.mark.skipif(keys.processors() == 1, reason="only where threads run side by side")
def test_processes_with_one_command(run):
    (first, told), status, err = run("cold")
    assert status == 0 and told == "['MainThread'] [False] 1", err  # which finds nothing
    lines, status, err = run("ahead")
    assert (lines, status) == ([first, "['jaxlite-ahead'] [False] 1"], 0), err  # in the thread alone, and no client shows
    (other, told), status, err = run("changed")
    assert status == 0 and other != first and told.endswith("[False] 1"), err
    assert run("cold")[0][0] == first
    lines, status, err = run("two devices")  # set before anything has asked for devices
    assert (lines[0], lines[1][-9:], status) == (first, "[False] 2", 0), err
    (told, again, _), status, err = run("forks")
    assert (told, again, status) == ("jit(<lambda>) cannot run in this process", first, 0), err
    assert "RuntimeWarning: os.fork() was called" in err
    lines, status, err = run("fails")  # while the thread loads
    assert not lines and status == 1 and err.splitlines()[-1] == "ValueError: as the user's function does"


# --- one list ----------------------------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path):
    before = jaxlite.config.jax_compilation_cache_dir
    jaxlite.config.update("jax_compilation_cache_dir", tmp_path)
    yield tmp_path
    jaxlite.config.update("jax_compilation_cache_dir", before)


def stored(sizes):
    """Entries with these numbers of bytes, as the executables of keys."""
    found = {}
    for number, size in enumerate(sizes):
        key, executable = bytes([number, 1]) * 16, bytes([number, 2]) * 16
        entries.folder().store(executable, bytes(size), {}, -1)
        found[key] = executable
    return found


def left_by(executables, surroundings=b"here"):
    """The list of a process that comes after one which used these."""
    earlier = ahead.List(bytes(32))
    earlier.start("device", surroundings, None)
    for key, executable in executables.items():
        earlier.note(key, executable)
    earlier.write()
    return ahead.List(bytes(32))


def test_the_largest_first_and_small_ones_not_at_all(cache):
    executables = {**stored((1_000, 60_000, 30_000)), bytes(32): b""}
    small, large, middle, no_executable = keys = [*executables]
    listed = left_by(executables)
    loads, done = [], threading.Event()

    def load(key):
        loads.append(key)
        if key == middle:
            done.set()
        return f"loaded {keys.index(key)}"

    listed.start("device", b"here", load)
    assert done.wait(60)
    assert listed.take(small) is listed.take(no_executable) is None  # and the list goes on
    assert listed.take(middle) == "loaded 2" and listed.take(large) == "loaded 1" and listed.take(large) is None
    assert loads == [large, middle]


def test_what_is_loading_is_waited_for_and_what_waits_is_left_to_the_caller(cache):
    first, second = stored((60_000, 30_000))
    listed = left_by(stored((60_000, 30_000)))
    began, go_on, loads = threading.Event(), threading.Event(), []

    def load(key):
        loads.append(key)
        began.set()
        assert go_on.wait(60)
        return "loaded"

    listed.start("device", b"here", load)
    assert began.wait(60) and listed.take(second) is None
    threading.Timer(0.05, go_on.set).start()
    assert listed.take(first) == "loaded" and loads == [first]


def test_another_program_ends_it(cache):
    first, second = stored((60_000, 30_000))
    listed = left_by(stored((60_000, 30_000)))
    began, go_on = threading.Event(), threading.Event()

    def load(key):
        began.set()
        assert go_on.wait(60)
        return "loaded"

    listed.start("device", b"here", load)
    assert began.wait(60) and listed.take(b"unknown") is None
    go_on.set()
    assert listed.take(first) is listed.take(second) is None


def test_nothing_is_loaded_where_executables_would_be_others(cache):
    (key,) = stored((60_000,))
    listed = left_by(stored((60_000,)))
    listed.start("device", b"elsewhere", lambda key: pytest.fail())
    assert listed.take(key) is None
