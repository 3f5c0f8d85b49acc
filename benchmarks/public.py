"""Every public function, compiled and called on both sides: `python -m benchmarks.public jnp.sort jax.random`.

The calls are those of tests/beside_jax/rows.txt, on larger arrays of float32. A process of each side compiles some dozens of
them, twice each and in turns with the other side, and calls them. What is slower than a bar is measured again in fresh
processes by `benchmarks.paired`, for which `make` gives a program here: its name is a call such as `jax.numpy.sum(N2, axis=1)`.

`--size 256` gives extents of 256 instead of 64. With `--gradient` the programs are gradients: of the sum of the squares of all
results of floats, by all arguments of floats. Calls that do not compile on both sides are left out.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import select
import subprocess
import sys
from collections.abc import Callable, Iterator
from statistics import geometric_mean
from time import process_time
from typing import Any

import numpy as np

from benchmarks import paired
from benchmarks.programs import Frontend, Made
from benchmarks.sides import ROOT, seconds
from tests.beside_jax.cases import LETTER, SHARED, rows

BARS = {"compile": 1.1, "run": 1.1, "temporaries": 1.2}
CHUNK = 40  # calls that a process compiles
COMPILES, TURNS, TURN = 2, 4, 0.004
GRADIENT = " gradient"  # at the end of a name
LONGEST = 20  # seconds for one answer
_NO_PROGRAMS = ("jax.tree", "jax.dtypes", "jax.dlpack", "jax.nn.initializers", "jax.flatten_util")


def _array(ns: Frontend, letter: str, rank: str, size: int, seed: int) -> Any:
    random = np.random.default_rng(seed)
    shape = {"0": (), "1": (16 * size,), "3": (4, size, size), "4": (2, 4, size, size)}.get(rank, (size, size))
    if letter == "K":
        return ns.jax.random.key(seed)
    if letter in "IUJB":
        dtype = {"U": np.uint32, "B": np.bool_}.get(letter, np.int32)
        return random.integers(0, 2 if letter == "B" else 3 if letter == "J" else 50, shape).astype(dtype)
    if letter in "PQ":
        return random.uniform(0.1, 0.9, shape).astype(np.float32)
    if letter in "VW":
        return random.uniform(0.1, 0.9, 3 if letter == "V" else (2, 3)).astype(np.float32)
    values = random.standard_normal((size, size) if letter in "SDT" else shape).astype(np.float32)
    if letter in "DT":
        return values @ values.T / size + 3 * np.eye(size, dtype=np.float32) if letter == "D" else np.tril(values)
    return (values + 1j * values).astype(np.complex64) if letter == "C" else values


def make(name: str) -> Callable[[Frontend], Made]:
    """A program of a call, with a size behind it: `jax.numpy.sum(N2, axis=1) @64`. With `gradient` behind, the gradient."""
    call, _, size = name.removesuffix(GRADIENT).partition(" @")

    def made(ns: Frontend) -> Made:
        arrays: list[Any] = []
        shared: dict[str, str] = {}

        def replaced(found: re.Match[str]) -> str:
            letter, rank = found.groups()
            if letter not in shared or letter not in SHARED:
                shared[letter] = f"a{len(arrays)}"
                arrays.append(_array(ns, letter, rank, int(size or 64), len(arrays)))
            return shared[letter]

        function, _, arguments = call.partition("(")
        source = f"{function}({LETTER.sub(replaced, arguments)}".replace("jax.", f"{ns.jax.__name__}.")
        importlib.import_module(ns.jax.__name__ + function.removeprefix("jax").rpartition(".")[0])
        scope = {ns.jax.__name__: ns.jax, "jnp": ns.jnp, "lax": ns.lax, "np": np}
        names = ", ".join(f"a{i}" for i in range(len(arrays)))
        called = eval(f"lambda {names}: {source}", scope)
        return (_gradient(ns, called, arrays) if name.endswith(GRADIENT) else called), tuple(arrays)

    return made


def _gradient(ns: Frontend, function: Callable[..., Any], arrays: list[Any]) -> Callable[..., Any]:
    jnp = ns.jnp
    is_float = lambda x: jnp.issubdtype(jnp.result_type(x), jnp.floating)

    def total(*arguments: Any) -> Any:
        results = [x for x in ns.jax.tree_util.tree_leaves(function(*arguments)) if is_float(x)]
        return sum(jnp.sum(x * x) for x in results)

    return ns.jax.grad(total, [i for i, array in enumerate(arrays) if is_float(array)])


def calls(patterns: list[str], size: int, gradient: bool = False) -> Iterator[str]:
    for function, arguments in rows():
        name = f"{function}({arguments}) @{size}{GRADIENT if gradient else ''}"
        if arguments is not None and not function.startswith(_NO_PROGRAMS) and function.count(".") > 1 and (
                not patterns or any(re.search(pattern, name) for pattern in patterns)):
            yield name


def work(module: str) -> None:
    """What a worker does: compile the call of a line of stdin, or call the last one for a while."""
    jax, jnp, lax = map(importlib.import_module, (module, f"{module}.numpy", f"{module}.lax"))
    ns = Frontend(jax, jnp, lax)
    jax.jit(lambda x: x + 1).lower(1.0).compile()
    jitted: Any = None
    for line in sys.stdin:
        name = line.strip()
        facts: dict[str, Any] = {}
        try:
            if name:
                function, arguments = make(name)(ns)
                jitted, arguments = jax.jit(lambda *each, _f=function: _f(*each)), jax.device_put(arguments)
                lowered = jitted.lower(*arguments)
                start = process_time()
                compiled = lowered.compile()
                facts["compile"] = process_time() - start
                facts["temporaries"] = compiled.memory_analysis().temp_size_in_bytes
                jax.block_until_ready(jitted(*arguments))
                count = 1
            else:
                facts["run"], count = paired.least_time(jitted, arguments, jax.block_until_ready, TURN, count)
        except Exception as error:
            facts = {"error": f"{type(error).__name__}: {error}"[:100]}
        print(json.dumps(facts), flush=True)


class Worker:
    """One side's process for some calls."""

    def __init__(self, python: str, module: str):
        self.process = subprocess.Popen(
            [python, "-m", "benchmarks.public", "--work", module], cwd=ROOT,
            env=paired.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def ask(self, line: str) -> dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
            if not select.select([self.process.stdout], [], [], LONGEST)[0]:
                self.process.kill()
            return json.loads(self.process.stdout.readline())
        except (OSError, ValueError):
            return {"error": "no answer"}

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


def measure(workers: list[Worker], name: str) -> tuple[list[dict[str, float]], str]:
    """The least of each measure on each side, or what went wrong."""
    best: list[dict[str, float]] = [{} for _ in workers]
    for turn, line in enumerate([*[name] * COMPILES, *[""] * TURNS]):
        for side in (0, 1) if turn % 2 else (1, 0):
            facts = workers[side].ask(line)
            if "error" in facts:
                return best, facts["error"]
            best[side].update({key: min(value, best[side].get(key, value)) for key, value in facts.items()})
    return best, ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("patterns", nargs="*", help="regular expressions; all calls without any")
    parser.add_argument("--gradient", action="store_true")
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--skip", type=int, default=0, help="how many calls to leave out, from the first on")
    parser.add_argument("--first", action="store_true", help="the first call of each function alone")
    parser.add_argument("--python", default=str(ROOT / ".venv-latest/bin/python"), help="an interpreter for jaxlite")
    parser.add_argument("--jax-python", default=str(ROOT / ".venv-jax-latest/bin/python"), help="an interpreter with jax")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.work)
        return
    names = list(calls(options.patterns, options.size, options.gradient))
    if options.first:
        names = list({name.partition("(")[0]: name for name in reversed(names)}.values())[::-1]
    names = names[options.skip:]
    ratios: dict[str, list[float]] = {measure: [] for measure in BARS}
    workers: list[Worker] = []
    left = 0
    for name in names:
        if not left or any(worker.process.poll() is not None for worker in workers):
            for worker in workers:
                worker.close()
            workers, left = [Worker(options.python, "jaxlite"), Worker(options.jax_python, "jax")], CHUNK
        left -= 1
        best, error = measure(workers, name)
        if error:
            print(f"{name:60} {error}", flush=True)
            left = left if "no answer" not in error else 0
            continue
        cells = []
        for key, found in ratios.items():
            found.append(paired.ratio(best, key))
            text = seconds(best[0][key]) if key != "temporaries" else f"{best[0][key]:.3g} B"
            cells.append(f"{key} {text:>8} {found[-1]:5.2f}{'*' if found[-1] > BARS[key] else ' '}")
        print(f"{name:60} {'  '.join(cells)}", flush=True)
    for worker in workers:
        worker.close()
    for key, found in ratios.items():
        print(f"{key}: geometric mean {geometric_mean(found):.3f} of {len(found)} calls; "
              f"{sum(ratio > BARS[key] for ratio in found)} above {BARS[key]}")


if __name__ == "__main__":
    main()
