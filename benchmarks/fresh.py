"""Rows of fresh processes: what a user waits for before the first result. `{module}` is jaxlite or jax.

A process that has imported a worker is not fresh, so an interpreter is given the statements and nothing else.
"""

from __future__ import annotations

import atexit
import functools
import re
import shutil
import socket
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter, time
from typing import Any, NamedTuple

from benchmarks.sessions import SESSIONS
from benchmarks.sides import Side, last_line

SMALL_JIT = "{module}.jit(lambda x: x + 1)(1.0).block_until_ready()"
EAGER = "x = jnp.arange(8.0)\nfloat(jnp.where(x > 3, x[None], x.at[1].set(0.0)).sum())"


class Script(NamedTuple):
    """What a process does untimed, and then timed, by itself."""

    timed: str
    before: str = ""


IMPORT: dict[str, Script] = {
    "import numpy API": Script("import {module}.numpy"),
    "first small jit call": Script(SMALL_JIT, before="import {module}"),
    "import and first small jit call": Script(f"import {{module}}\n{SMALL_JIT}"),
    "import and first jit result": Script(
        "import {module}, {module}.numpy as jnp\n"
        "{module}.jit(lambda x: jnp.sin(x) * 2 + 1)(jnp.arange(8.0)).block_until_ready()"
    ),
    "import and 5 eager operations": Script(f"import {{module}}.numpy as jnp\n{EAGER}"),
}

# Timed from outside, from its start to its end: the second is what any frontend on jaxlib must load.
WHOLE_PROCESS: dict[str, str] = {
    "process: import numpy API": "import {module}.numpy",
    "process: import NumPy, ml_dtypes, jaxlib._jax": "import numpy, ml_dtypes, jaxlib._jax",
}

# An earlier process has compiled the same, and both sides' persistent caches are on.
WARM_START: dict[str, Script] = {
    "training step, 12 layers": Script(
        "import {module}, {module}.numpy as jnp\n"
        "from benchmarks import programs\n"
        "f, arguments = programs.training_step(programs.Frontend({module}, jnp, {module}.lax), layers=12)\n"
        "{module}.block_until_ready({module}.jit(f)(*arguments))"
    ),
    "first small jit call": Script(SMALL_JIT, before="import {module}"),
    "5 eager operations": Script(EAGER, before="import {module}.numpy as jnp"),
}

# Single operations, most of them once: with nothing compiled, and after an earlier process did the same.
SESSION: dict[str, Script] = {
    name: Script(f"sessions.run({{module}}, jnp, {name!r})",
                 before="import {module}, {module}.numpy as jnp\nfrom benchmarks import sessions")
    for name in SESSIONS
}
AGAIN = ", again"

# What each of several processes runs; it ends with the time of day, which all processes of a machine share.
ALL_REDUCE = """
import time, numpy, {module}
{module}.distributed.initialize("127.0.0.1:{port}", {count}, {number})
P = {module}.sharding.PartitionSpec
mesh = {module}.sharding.Mesh(numpy.array({module}.devices()), ("i",))
cut = {module}.sharding.NamedSharding(mesh, P("i"))
x = {module}.make_array_from_callback(({count},), cut, lambda _: numpy.ones(1, numpy.float32))
total = {module}.shard_map(lambda x: {module}.lax.psum(x, "i"), mesh=mesh, in_specs=P("i"), out_specs=P())
assert float({module}.jit(total)(x)[0]) == {count}
print(flush=True)
print(time.time())
"""
PROCESSES = {"2 processes, start to first all-reduce": 2}


def import_rows(side: Side, rows: str) -> Iterator[dict[str, Any]]:
    """Each row once, in a process of its own."""
    yield from _scripts(side, IMPORT, rows, warm=False)
    for name, statement in WHOLE_PROCESS.items():
        if re.search(rows, name):
            start = perf_counter()
            _, err, status = side.start("-c", statement.format(module=side.module))
            took = perf_counter() - start
            yield {"row": name, "error": last_line(err)} if status else {"row": name, "times": [took]}


def warm_start_rows(side: Side, rows: str) -> Iterator[dict[str, Any]]:
    yield from _scripts(side, WARM_START, rows, warm=True)


def session_rows(side: Side, rows: str) -> Iterator[dict[str, Any]]:
    yield from _scripts(side, SESSION, rows, warm=False)
    yield from _scripts(side, {name + AGAIN: script for name, script in SESSION.items()}, rows, warm=True)


def process_rows(side: Side, rows: str) -> Iterator[dict[str, Any]]:
    """The time from the start of the first process to the result of the last one; nothing was compiled before."""
    for name, count in PROCESSES.items():
        if re.search(rows, name):
            with socket.socket() as probe:  # a port that nobody uses
                probe.bind(("127.0.0.1", 0))
                port = probe.getsockname()[1]
            codes = [ALL_REDUCE.format(module=side.module, port=port, count=count, number=number) for number in range(count)]
            start = time()
            with ThreadPoolExecutor(count) as threads:
                ended = list(threads.map(side.start, ["-c"] * count, codes))
            errors = [last_line(err) for _, err, status in ended if status]
            if errors:
                yield {"row": name, "error": errors[0]}
            else:
                yield {"row": name, "times": [max(float(last_line(out)) for out, _, _ in ended) - start]}


GROUPS = {"import": import_rows, "warm start": warm_start_rows, "session": session_rows, "processes": process_rows}


def _scripts(side: Side, scripts: dict[str, Script], rows: str, warm: bool) -> Iterator[dict[str, Any]]:
    for name, script in scripts.items():
        if re.search(rows, name):
            before, timed = (text.format(module=side.module) for text in (script.before, script.timed))
            code = f"from time import perf_counter\n{before}\nstart = perf_counter()\n{timed}\nprint(perf_counter() - start)"
            out, err, status = side.start("-c", code, cache=_filled_cache(side, code) if warm else "")
            yield {"row": name, "error": last_line(err)} if status else {"row": name, "times": [float(out)]}


@functools.cache
def _filled_cache(side: Side, code: str) -> str:
    """A folder that lives as long as this process, and holds what `code` compiles."""
    folder = tempfile.mkdtemp(prefix="warm-start-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    side.start("-c", code, cache=folder)
    return folder
