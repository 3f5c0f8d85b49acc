"""Forks, threads and interrupts at the end of the process, and an import of jax meanwhile: each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

PROGRAM = """
import os, sys, threading, warnings
import jaxlite, jaxlite.numpy as jnp

names = set()
done = False

def look_for_jax():
    while not done:
        try:
            import jax
            names.add(jax.numpy)  # not of a stand-in for it
        except ModuleNotFoundError:
            pass

looking = threading.Thread(target=look_for_jax)
looking.start()
x = jnp.ones(2)
compiled = jaxlite.jit(lambda x: x + 1)
compiled(x)
done = True
looking.join()
print(names)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    child = os.fork()
if not child:
    for call in (lambda: compiled(x), lambda: jaxlite.jit(jnp.sin)(x), lambda: jaxlite.jit(jnp.sin).lower(x).compile()):
        try:
            call()
        except RuntimeError as error:
            print("os.fork()" in str(error), flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(caught[0].category.__name__, flush=True)  # Python 3.12 warns too

def compile_on():
    while True:
        jaxlite.jit(lambda x: sum(jnp.sin(x) @ x for _ in range(20)))(jnp.ones((3, 3)))

threading.Thread(target=compile_on, daemon=True).start()
while len(jaxlite.compile_report()) < 4:
    pass
"""


def test_forks_and_exits():
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", PROGRAM], capture_output=True, text=True, timeout=120,
                          env={**os.environ, "JAXLITE_COMPILATION_CACHE_DIR": "", "JAXLITE_RECOMPILATION_LIMIT": "0"})
    assert done.stdout.split("\n")[:5] == ["set()", "True", "True", "True", "RuntimeWarning"], (done.stdout, done.stderr)
    assert done.returncode == 0, done.stderr


INTERRUPTED = """
import atexit, os, signal, threading, time
import jaxlite, numpy as np

@jaxlite.jit
def call(x):
    return jaxlite.pure_callback(lambda x: (time.sleep(0.001), np.asarray(x))[1], x, x)

def call_on():
    while True:
        call(np.ones(3, np.float32))

def interrupt():
    ending.wait()
    for _ in range(4):
        time.sleep(0.004)
        os.kill(os.getpid(), signal.SIGINT)

ending = threading.Event()
call(np.ones(3, np.float32))
for run in (call_on, call_on, interrupt):
    threading.Thread(target=run, daemon=True).start()
atexit.register(ending.set)
time.sleep(0.02)
"""


def test_interrupts_at_the_end_are_not_heard_while_threads_are_inside_xla():
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
