"""Programs of `benchmarks.random_programs` on both sides, in pairs: `python -m benchmarks.paired 1000-1059`.

For each seed both sides start a fresh process, make and compile the program, and then take turns, some milliseconds each, so
that what else the machine does meets both. The least of each measure counts. A program that misses a bar is measured again,
three times in fresh processes; what is still above it then is no noise.

Measures: CPU time of the compile, time of a call, temporaries of XLA. The last lines are geometric means and what misses.
`--source` measures other programs: those of `benchmarks.written` have names, and the names of their fields mean all of a field.
With `--off` there is a third side, jaxlite without fusion barriers: what part of a ratio is theirs?
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from statistics import geometric_mean
from time import perf_counter, process_time
from typing import Any

from benchmarks.programs import Frontend
from benchmarks.sides import ROOT, same, seconds

BARS = {"run": 1.05, "compile": 1.05, "temporaries": 1.2}
MEAN_BARS = {"run": 0.8, "compile": 0.7}
AGAIN = 3  # measurements after one that misses a bar
TURNS, TURN = 10, 0.03  # how often the sides take turns, and the seconds of one
SAMPLE = 2e-4
COMPILES, MOST_COMPILES, COMPILING = 2, 6, 0.4  # of a program, at least, and at most, if they take fewer seconds than that
_PAGE = 4096  # added to temporaries: below it they are nothing, and a ratio to nothing says nothing
_TINY = 1e-6
_LONGEST = 120  # seconds for one program on one side


def environment(barriers: bool = True) -> dict[str, str]:
    """Of a worker: what configures a side is from here."""
    own = ("JAX", "JAXLITE", "XLA")
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(own)},
        "JAX_PLATFORMS": "cpu", "JAX_ENABLE_COMPILATION_CACHE": "false", "PYTHONWARNINGS": "ignore",
        "JAXLITE_CPU_FUSION_BARRIERS": str(int(barriers)),
        # LAPACK's threads spin for 0.1 s when they have started: on jaxlite's side in the compile, on JAX's before it.
        "OPENBLAS_THREAD_TIMEOUT": "4",
    }  # fmt: skip


class Worker:
    """One side's process for one program: it compiles, and calls the program when asked to."""

    def __init__(self, python: str, module: str, source: str, name: str, barriers: bool = True):
        self.process = subprocess.Popen(
            ["timeout", str(_LONGEST), python, "-m", "benchmarks.paired", "--work", module, "--source", source, name], cwd=ROOT,
            env=environment(barriers), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.module = module
        self.best: dict[str, float] = self._answer()
        self.check = self.best.pop("check")

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None and self.process.stderr is not None
        line = self.process.stdout.readline()
        if not line:
            said = self.process.stderr.read().strip().splitlines() or [f"no answer in {_LONGEST} s"]
            raise RuntimeError(f"{self.module}: {said[-1][:200]}")
        return json.loads(line)

    def run(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("run\n")
        self.process.stdin.flush()
        self.best["run"] = min(self._answer()["run"], self.best.get("run", 1e9))

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


def work(module: str, source: str, name: str) -> None:
    """What a worker does: compile, tell, and then call for a while at each line of stdin."""
    ns = Frontend(*map(importlib.import_module, (module, f"{module}.numpy", f"{module}.lax")))
    from benchmarks.worker import digest

    jax = ns.jax
    function, arguments = importlib.import_module(source).make(name)(ns)
    jitted, arguments = jax.jit(function), jax.device_put(arguments)
    spent = least_compile(jax.jit, function, arguments)
    compiled = jitted.lower(*arguments).compile()
    tell = lambda **facts: print(json.dumps(facts), flush=True)
    tell(compile=spent, temporaries=compiled.memory_analysis().temp_size_in_bytes,
         check=digest(jax.tree_util.tree_leaves(jitted(*arguments))))
    count = 1  # calls that make up a sample: to wait for each of the short ones is to measure how threads wake up
    for _ in sys.stdin:
        least, count = least_time(jitted, arguments, jax.block_until_ready, TURN, count)
        tell(run=least)


def least_compile(jit: Callable[..., Any], function: Callable[..., Any], arguments: Sequence[Any]) -> float:
    """The least CPU time of some compiles of a function.

    The first compiles of a process are slower, and JAX's side may have had some of its own where it made the arguments.
    """
    times: list[float] = []
    while len(times) < COMPILES or len(times) < MOST_COMPILES and sum(times) < COMPILING:
        lowered = jit(lambda *args: function(*args)).lower(*arguments)
        start = process_time()
        lowered.compile()
        times.append(process_time() - start)
    return min(times)


def least_time(function: Callable[..., Any], arguments: Sequence[Any], wait: Callable[[Any], Any], turn: float, count: int,
               ) -> tuple[float, int]:
    """The least time of a call within a turn of some seconds, and how many calls make up a sample by then, `count` at first."""
    times: list[float] = []
    begin = perf_counter()
    while not times or perf_counter() - begin < turn:
        start = perf_counter()
        for _ in range(count):
            result = function(*arguments)
        wait(result)
        times.append((perf_counter() - start) / count)
        count = max(count, min(64, int(SAMPLE / times[-1])))
    return min(times), count


def measure(sides: Sequence[tuple[str, str, bool]], source: str, name: str) -> tuple[list[dict[str, float]], str]:
    """The measures of one program on each side, and a remark if the results differ."""
    workers: list[Worker] = []
    try:
        for python, module, barriers in sides:
            workers.append(Worker(python, module, source, name, barriers))
        for turn in range(TURNS):
            for worker in workers if turn % 2 else workers[::-1]:
                worker.run()
        return [worker.best for worker in workers], "" if _same(workers[0].check, workers[1].check) else "results differ"
    finally:
        for worker in workers:
            worker.close()


def _same(ours: list[Any], theirs: list[Any]) -> bool:
    """Whether two digests agree, but for arrays that are zero up to rounding."""
    return len(ours) == len(theirs) and all(
        same(a, b) or a[:2] == b[:2] and max(a[2], b[2]) < _TINY for a, b in zip(ours, theirs, strict=True))


def ratio(best: Sequence[dict[str, float]], measure: str, side: int = 0) -> float:
    """Of a side to JAX, which is the second."""
    extra = _PAGE if measure == "temporaries" else 0
    return (best[side][measure] + extra) / (best[1][measure] + extra)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", help="seeds, or ranges of them: 7 20-39; or what else the source names")
    parser.add_argument("--python", default=str(ROOT / ".venv-latest/bin/python"), help="an interpreter for jaxlite")
    parser.add_argument("--jax-python", default=str(ROOT / ".venv-jax-latest/bin/python"), help="an interpreter with jax")
    parser.add_argument("--off", action="store_true", help="measure jaxlite without fusion barriers as well")
    parser.add_argument("--again", type=int, default=AGAIN, help="how often to repeat what misses a bar")
    parser.add_argument("--source", default="benchmarks.random_programs", help="a module whose `make(name)` gives programs")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.work, options.source, options.names[0])
        return
    source = importlib.import_module(options.source)
    sides = [(options.python, "jaxlite", True), (options.jax_python, "jax", True)]
    sides += [(options.python, "jaxlite", False)] if options.off else []
    ratios: dict[str, dict[str, float]] = {measure: {} for measure in BARS}
    missed: list[str] = []
    expand = getattr(source, "expand", lambda name: [name])
    for name in [each for text in _names(options.names) for each in expand(text)]:
        label = f"{name} {getattr(source, 'family', lambda _: '')(name)}".strip()
        try:
            best, remark = measure(sides, options.source, name)
            for _ in range(options.again):
                if all(ratio(best, each) <= bar for each, bar in BARS.items()):
                    break
                more, _ = measure(sides, options.source, name)
                best = [{key: min(old[key], new[key]) for key in old} for old, new in zip(best, more, strict=True)]
        except (RuntimeError, OSError) as error:
            print(f"{label:28} {error}", flush=True)
            missed.append(label)
            continue
        cells = [f"{label:28}"]
        for each, bar in BARS.items():
            ratios[each][label] = found = ratio(best, each)
            text = seconds(best[0][each]) if each != "temporaries" else f"{best[0][each]:.3g} B"
            off = f" (off {ratio(best, each, 2):.2f})" if options.off else ""
            cells.append(f"{each} {text:>8} {found:5.2f}{'*' if found > bar else ' '}{off}")
            if found > bar:
                missed.append(f"{label}: {each} {found:.2f}")
        print("  ".join(cells), remark, flush=True)
    for each, found in ratios.items():
        if found:
            bar = f", bar {MEAN_BARS[each]}" if each in MEAN_BARS else ""
            print(f"{each}: geometric mean {geometric_mean(found.values()):.3f} of {len(found)} programs{bar}; "
                  f"{sum(value > BARS[each] for value in found.values())} above {BARS[each]}")
    print("missed:", "; ".join(missed) or "nothing")


def _names(texts: Sequence[str]) -> list[str]:
    names: list[str] = []
    for text in texts:
        first, dash, last = text.partition("-")
        names += map(str, range(int(first), int(last) + 1)) if dash and first.isdigit() and last.isdigit() else [text]
    return names


if __name__ == "__main__":
    main()
