"""Programs, calls and eager operations on the default device, on both sides in turns: `python -m benchmarks.accelerator`.

For a machine with a GPU or a TPU. Each round starts a fresh process for either side, which has some seconds; the least of each
measure counts. What needs more of them is left out, so give rows by a pattern: `--rows 'sort|sum'`.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from statistics import geometric_mean
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.paired import least_time
from benchmarks.programs import CALLS, COMPILED, EAGER_SHORT, Frontend, Program, _normal, call_environment, eager_environment
from benchmarks.sides import ROOT, same, seconds
from benchmarks.worker import digest

TURN = 0.1  # seconds for the calls of one row
EAGER = [*EAGER_SHORT[:12], "x + y", "jnp.sin(x)", "x @ y", "x.sum()", "jnp.where(mask, x, y)", "x.at[0].set(1.0)",
         "jnp.zeros((3, 4))", "jnp.asarray(n)", "jax.device_put(n)"]

# What libraries compute on a GPU, beside the programs of the benchmark of the CPU.
PROGRAMS: dict[str, Program] = {
    "running sums of 4096": lambda ns: (lambda x: ns.jnp.cumsum(x, axis=1), (_normal(256, 4096),)),
    "running sum of 10M": lambda ns: (ns.jnp.cumsum, (_normal(10_000_000),)),
    "argsort of 100k": lambda ns: (ns.jnp.argsort, (_normal(100_000),)),
    "sort of 1000 rows": lambda ns: (lambda x: ns.jnp.sort(x, axis=1), (_normal(1000, 512),)),
    "top k": lambda ns: (lambda x: ns.lax.top_k(x, 8), (_normal(128, 10_000),)),
    "argmax of rows of 20": lambda ns: (lambda x: ns.jnp.argmax(x, axis=1), (_normal(10_000, 20),)),
    "softmax of rows of 128": lambda ns: (ns.jax.nn.softmax, (_normal(4096, 128),)),
    "magnitudes of fft": lambda ns: (lambda x: ns.jnp.abs(ns.jnp.fft.fft(x)), (_normal(64, 1024),)),
    "normal, 1M": lambda ns: (lambda key: ns.jax.random.normal(key, (1000, 1000)), (np.array([0, 1], np.uint32),)),
    "solve, 32 of 16": lambda ns: (ns.jnp.linalg.solve, (_normal(32, 16, 16), _normal(32, 16, 1))),
    "cholesky of 128": lambda ns: (lambda x: ns.jnp.linalg.cholesky(x @ x.T + 64 * ns.jnp.eye(128)), (_normal(128, 128),)),
    "eigh of 64": lambda ns: (lambda x: ns.jnp.linalg.eigh(x @ x.T), (_normal(64, 64),)),
    "svd of 48 x 32": lambda ns: (ns.jnp.linalg.svd, (_normal(48, 32),)),
    **COMPILED,
}


def _evaluated(text: str, names: dict[str, Any]) -> Callable[[], Any]:
    code = compile(text, "row", "eval")
    return lambda: eval(code, names)


def rows(ns: Frontend) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    """Each row, and what measures it."""
    def timed(call: Callable[..., Any], arguments: Any = ()) -> float:
        ns.jax.block_until_ready(call(*arguments))
        return least_time(call, arguments, ns.jax.block_until_ready, TURN, 1)[0]

    def program(make: Program) -> dict[str, Any]:
        function, arguments = make(ns)
        times = [perf_counter()]
        traced = ns.jax.jit(function).trace(*arguments)
        times.append(perf_counter())
        lowered = traced.lower()
        times.append(perf_counter())
        compiled = lowered.compile()
        times.append(perf_counter())
        arguments = ns.jax.device_put(arguments)
        check = digest(ns.jax.tree_util.tree_leaves(compiled(*arguments)))
        trace, lower, build = (after - before for before, after in zip(times, times[1:], strict=False))
        return {"trace": trace, "lower": lower, "compile": build, "run": timed(compiled, arguments), "check": check}

    def call(setup: str, text: str) -> dict[str, Any]:
        names = call_environment(ns)
        exec(setup, names)
        return {"call": timed(_evaluated(text, names))}

    for name, setup, text in CALLS:
        yield name, lambda setup=setup, text=text: call(setup, text)
    for text in EAGER:
        yield text, lambda text=text: {"eager": timed(_evaluated(text, eager_environment(ns)))}
    for name, make in PROGRAMS.items():
        yield name, lambda make=make: program(make)


def work(module: str, limit: float, pattern: str) -> None:
    """What a process of one side does: print a line of JSON for each row, until its time is up."""
    begin = perf_counter()
    ns = Frontend(*map(importlib.import_module, (module, f"{module}.numpy", f"{module}.lax")))
    imported = perf_counter()
    device = ns.jax.devices()[0]
    started = perf_counter()
    ns.jax.block_until_ready(ns.jax.jit(lambda x: x + 1)(1.0))
    facts = {"import": imported - begin, "client": started - imported, "first jit": perf_counter() - started}
    print(json.dumps(["start", facts]), flush=True)
    for name, measure in rows(ns):
        if perf_counter() - begin > limit:
            break
        if re.search(pattern, name):
            print(json.dumps([name, measure()]), flush=True)
    print(f"{module} on {device.device_kind}", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="an interpreter for jaxlite")
    parser.add_argument("--jax-python", default=sys.executable, help="an interpreter with jax")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=30, help="for one side in one round")
    parser.add_argument("--rows", default="", help="a pattern that the names of rows have to match")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.work, options.seconds, options.rows)
        return
    found: dict[str, dict[str, dict[str, Any]]] = {"jaxlite": {}, "jax": {}}
    sides = [("jaxlite", options.python), ("jax", options.jax_python)]
    for number in range(options.rounds):
        for module, python in sides if number % 2 else sides[::-1]:
            done = subprocess.run(
                [python, "-m", "benchmarks.accelerator", "--work", module, "--seconds", str(options.seconds), "--rows",
                 options.rows], cwd=ROOT, env={**os.environ, "PYTHONWARNINGS": "ignore", "JAXLITE_RECOMPILATION_LIMIT": "0"},
                capture_output=True, text=True)
            if done.returncode:
                print(done.stderr[-2000:])
            elif not number:
                print(done.stderr.strip().splitlines()[-1])
            for line in done.stdout.splitlines():
                name, measures = json.loads(line)
                best = found[module].setdefault(name, measures)
                best.update({key: min(value, best[key]) for key, value in measures.items() if key != "check"})
    report(found["jaxlite"], found["jax"])


def report(ours: dict[str, dict[str, Any]], theirs: dict[str, dict[str, Any]]) -> None:
    """A line for each row that both sides have, and the geometric means."""
    ratios: dict[str, list[float]] = {}
    for name in ours:
        if name not in theirs:
            continue
        cells = []
        for measure, value in ours[name].items():
            if measure != "check":
                ratio = value / theirs[name][measure]
                ratios.setdefault(measure, []).append(ratio)
                cells.append(f"{measure} {seconds(value):>8} {ratio:5.2f}")
        agree = same(ours[name].get("check"), theirs[name].get("check"))
        print(f"{name:36}", "  ".join(cells), "" if agree else "results differ", flush=True)
    for measure, values in ratios.items():
        print(f"{measure}: geometric mean {geometric_mean(values):.3f} of {len(values)} rows")


if __name__ == "__main__":
    main()
