"""The two sides of a comparison: how their interpreters are run, what was measured on them, and how it is told."""

from __future__ import annotations

import json
import math
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TIMEOUT = 900  # seconds for one group on one side


@dataclass(frozen=True)
class Side:
    """One of the two frontends, the interpreter that has it, and environment variables that configure it."""

    label: str
    python: str
    module: str
    settings: tuple[tuple[str, str], ...] = ()

    def start(self, *arguments: str, cache: str = "") -> tuple[str, str, int]:
        """Run its interpreter; return stdout, stderr and the exit status, also where it did not end well.

        `cache` is the folder of its persistent compile cache; without one every compile is a compile.
        """
        command = [self.python, *arguments]
        try:
            done = subprocess.run(command, cwd=ROOT, env=self._environment(cache), capture_output=True, text=True,
                                  timeout=TIMEOUT)
        except subprocess.TimeoutExpired as expired:
            out = expired.stdout.decode() if isinstance(expired.stdout, bytes) else expired.stdout or ""
            return out, f"no answer within {TIMEOUT} s", -1
        return done.stdout, done.stderr, done.returncode

    def first_line(self, *arguments: str, cache: str = "") -> float:
        """Seconds from the start of its interpreter to the first line of its output; the process ends well, or it raises."""
        environment = self._environment(cache) | {"PYTHONUNBUFFERED": "1"}
        start = perf_counter()
        with subprocess.Popen([self.python, *arguments], cwd=ROOT, env=environment, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout
            process.stdout.readline()
            took = perf_counter() - start
            _, err = process.communicate(timeout=TIMEOUT)
        if process.returncode:
            raise SystemExit(f"{' '.join(arguments)} fails with {self.label}: {last_line(err)}")
        return took

    def _environment(self, cache: str) -> dict[str, str]:
        own = ("JAX", "JAXLITE", "XLA", "PYTHON")
        environment = {name: value for name, value in os.environ.items() if not name.startswith(own)}
        environment.update(JAX_PLATFORMS="cpu", PYTHONHASHSEED="0", JAX_COMPILATION_CACHE_DIR=cache, **dict(self.settings))
        environment.update(JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS="0", JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES="-1")
        if not cache:
            environment["JAX_ENABLE_COMPILATION_CACHE"] = "false"
        return environment

    def versions(self) -> dict[str, str]:
        """Versions of Python and of what matters, without importing any of it."""
        names = ["jaxlib", "numpy", *(["jax"] if self.module == "jax" else [])]
        code = (
            "import json, platform; from importlib.metadata import version; "
            f"print(json.dumps({{'python': platform.python_version(), **{{n: version(n) for n in {names}}}}}))"
        )
        out, err, status = self.start("-c", code)
        if status:
            raise SystemExit(f"{self.python} cannot be used as the {self.label} side: {last_line(err)}")
        return json.loads(out)

    def work(self, group: str, effort: str, rows: str) -> tuple[list[dict[str, Any]], str]:
        """Run `benchmarks.worker` for one group; return its rows, and why rows may be missing."""
        out, err, status = self.start(
            "-m", "benchmarks.worker", "--module", self.module, "--group", group, "--effort", effort, "--rows", rows
        )
        lines = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
        return lines, f"the process ended with {status}: {last_line(err)}" if status else ""


@dataclass
class Measured:
    """One row on one side, gathered over the rounds."""

    times: list[float] = field(default_factory=list)
    eqns: int = 0
    check: Any = None
    error: str = ""

    @property
    def best(self) -> float:
        return min(self.times) / (self.eqns or 1)

    @property
    def typical(self) -> float:
        return median(self.times) / (self.eqns or 1)


def last_line(text: str) -> str:
    return text.strip().splitlines()[-1][:200] if text.strip() else "no output"


def seconds(value: float) -> str:
    """Three digits and a unit."""
    unit, scale = next(((u, s) for u, s in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)) if value >= s), ("ns", 1e-9))
    value /= scale
    return f"{value:.{max(0, 2 - int(math.log10(max(value, 1))))}f} {unit}"


def same(a: Any, b: Any) -> bool:
    """Whether two digests of results agree, floats up to what another order of summation may do."""
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-3, abs_tol=1e-5) or (math.isnan(a) and math.isnan(b))
    return bool(a == b)


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table that reads well as plain text; the first row is its head. An empty last column is left out."""
    if not any(row[-1] for row in rows[1:]):
        rows = [row[:-1] for row in rows]
    widths = [min(48, max(map(len, column))) for column in zip(*rows, strict=True)]
    lines = ["| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) + " |" for row in rows]
    lines.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    return "\n".join(lines)
