"""Programs run with jaxlite and with JAX, each in a process of its own, and what differs: `make test-jax`.

The programs are those that cases.py draws from the rows of rows.txt and grammar.py from the rules of grammar.txt, those of
expressions.txt and checks.txt, and the examples in the docstrings of the JAX that is installed. `--kind fresh --seed N` takes
the drawn ones alone, which nobody has seen before, and tells how many agree in each area; `--kind malformed` draws calls with
something wrong in them instead (malformed.py).
Values have to agree within the rounding of their dtype; dtypes, weak types, shapes,
structures and the classes of errors exactly. Differences that are meant stand in known.py with their reasons; any other fails.

What JAX gives is kept in build/beside_jax, since it stays the same for a version of JAX: a second run takes half the time.
"""

from __future__ import annotations

import argparse
import collections
import os
import pickle
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path
from typing import Any

import cases
import grammar
import malformed
import numpy as np
from known import ACCEPTED, ERRORS, KNOWN

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILD = ROOT / "build" / "beside_jax"

Program = str | tuple[str, ...]  # an expression after statements; the examples of one docstring


# The two sides


class Side:
    """One of the two: answers programs in processes of its own, one at a time."""

    def __init__(self, name: str, python: str) -> None:
        self.name, self.python = name, python
        self.env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH" and not k.startswith(("JAX_", "JAXLITE_"))}
        # Both sides with a quick code generation: most of the time is spent in XLA, on programs of a few operations.
        version = subprocess.check_output([python, "-c", "import jaxlib; print(jaxlib.__version__)"], text=True)
        emitters = "--xla_cpu_use_fusion_emitters=false " if version.startswith("0.10.") else ""  # later ones know no such flag
        self.env |= {"XLA_FLAGS": f"{emitters}--xla_backend_optimization_level=0"}
        self.env |= {"JAX_PLATFORMS": "cpu", "PYTHONDONTWRITEBYTECODE": "1", "JAXLITE_RECOMPILATION_LIMIT": "0"}
        if name == "jaxlite":
            self.env |= {"PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(BUILD / "cache")}

    def start(self, work: Any) -> tuple[subprocess.Popen[bytes], Path]:
        folder = Path(tempfile.mkdtemp(prefix="beside-jax-"))
        (folder / "work").write_bytes(pickle.dumps(work))
        command = [self.python, str(HERE / "worker.py"), self.name, str(folder / "work"), str(folder / "results")]
        with open(folder / "errors", "wb") as errors:
            return subprocess.Popen(command, env=self.env, cwd=folder, stdout=errors, stderr=errors), folder / "results"

    def ask(self, work: Any) -> Any:
        process, results = self.start(work)
        if process.wait():
            sys.exit(f"{self.name} does not run:\n{(results.parent / 'errors').read_text()}")
        answer = read(results)[0]
        shutil.rmtree(results.parent)
        return answer


def read(results: Path) -> list[Any]:
    found = []
    if results.exists():
        with open(results, "rb") as file:
            try:
                while True:
                    found.append(pickle.load(file))
            except (EOFError, pickle.UnpicklingError):
                pass
    return found


class Run:
    """A list of programs on its way through one side; a program that ends the process is answered with that."""

    def __init__(self, side: Side, programs: list[Program]) -> None:
        self.side, self.left = side, programs
        self.answers: dict[Program, Any] = {}
        self.process: subprocess.Popen[bytes] | None = None

    def poll(self) -> bool:
        """Whether all is answered."""
        if self.process is not None:
            code = self.process.poll()
            if code is None:
                return False
            found = read(self.results)
            self.answers |= zip(self.left, found)
            self.left = self.left[len(found):]
            if self.left:
                errors = (self.results.parent / "errors").read_text(errors="replace").strip().splitlines()
                self.answers[self.left.pop(0)] = (("died", code, errors[-1] if errors else ""), [])
            self.process = None
            shutil.rmtree(self.results.parent)
        if self.left:
            self.process, self.results = self.side.start(self.left)
        return not self.left and self.process is None

    def stop(self) -> None:
        """Keep what is answered by now."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.answers |= zip(self.left, read(self.results))
            shutil.rmtree(self.results.parent)


# Comparing


ROUNDING = {"float64": 1e-11, "complex128": 1e-11, "float32": 3e-5, "complex64": 3e-5, "float16": 4e-3, "bfloat16": 3e-2}


def close(a: np.ndarray, b: np.ndarray, size: float = 0.0) -> bool:
    """Whether two arrays of one dtype and shape are equal up to the rounding of numbers of a size, or of the largest here."""
    rounding = ROUNDING.get(str(a.dtype))
    if rounding is None:
        if str(a.dtype).startswith("float"):  # of 8 bits and less: exactly, NaN by NaN
            a, b = a.astype(np.float32), b.astype(np.float32)
            return bool(np.array_equal(a, b, equal_nan=True))
        return a.dtype.kind == "V" or bool(np.array_equal(a, b))
    a, b = (np.asarray(x, np.complex128 if x.dtype.kind == "c" else np.float64) for x in (a, b))
    finite = np.isfinite(a)
    if not (finite == np.isfinite(b)).all() or not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return False
    a, b = a[finite], b[finite]
    size = max(size, np.abs(b).max(initial=0), 0.05)  # arguments are of the size of one
    return bool((np.abs(a - b) <= rounding * np.maximum(np.abs(b), size)).all())


def largest(leaves: list[Any]) -> float:
    """The size of the floating-point numbers of an answer, by which its rounding errors are measured."""
    arrays = [np.asarray(leaf[-1], np.complex128) for leaf in leaves
              if isinstance(leaf[-1], np.ndarray) and str(leaf[-1].dtype) in ROUNDING]
    return max((float(np.abs(x[np.isfinite(x)]).max(initial=0)) for x in arrays), default=0.0)


def compare_leaves(a: Any, b: Any, size: float) -> str | None:
    """The kind of difference between two leaves, None where there is none."""
    if a[0] == "Array" and b[0] in ("bool", "int", "float", "complex", "ndarray"):
        same = a[-1].shape == np.shape(b[-1]) and close(a[-1], np.asarray(b[-1]).astype(a[-1].dtype), size)
        return "no array" if same else "value"
    if a[0] != b[0]:
        return "type"
    if a[0] == "jaxpr":
        if a[1] != b[1]:
            return "types of the jaxpr"
        if a[2] != b[2]:
            return "primitives" if len(a[2]) <= 1.5 * len(b[2]) + 3 else "many more primitives"
        return None if same_text(a[-1], b[-1]) else "repr"
    if not isinstance(a[-1], np.ndarray):
        if isinstance(a[-1], float):
            return None if close(np.float32(a[-1]), np.float32(b[-1])) else "value"
        if isinstance(a[-1], str):
            return None if same_text(a[-1], b[-1]) else "repr"
        return None if a[1:] == b[1:] else "value"
    if a[-1].dtype != b[-1].dtype:
        return "dtype"
    if a[-1].shape != b[-1].shape:
        return "shape"
    if a[1] != b[1] and a[-1].dtype != bool:  # docs/sharp_edges.md: no dtype is below bool
        return "weak type" if a[0] == "Array" else "dtype"
    if close(a[-1], b[-1], size):
        return None
    if str(a[-1].dtype) in ROUNDING:  # JAX's NaN left out?
        is_nan = np.isnan(np.asarray(b[-1], np.complex128))
        if is_nan.any() and close(*(np.where(is_nan, 0, x[-1]).astype(x[-1].dtype) for x in (a, b)), size=size):
            return "value of nan"
    return "value"


NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|\.\d+)", re.IGNORECASE)


def same_text(a: str, b: str) -> bool:
    """Whether two texts are the same but for white space and the rounding of the numbers in them."""
    if a == b:
        return True
    a, b = (re.sub(r"-(?=0\.?0*(?![\d.e]))", "+", text) for text in (a, b))  # zeros have no sign here
    if "".join(NUMBER.sub("#", a).split()) != "".join(NUMBER.sub("#", b).split()):
        return False
    x, y = (np.array([float(each) for each in NUMBER.findall(text)]) for text in (a, b))
    return len(x) == len(y) and bool(np.allclose(x, y, rtol=1e-4, atol=1e-5))


def same_print(a: str, b: str) -> bool:
    """Whether two examples print the same, or raise the same where nothing is printed."""
    if a.startswith("raised ") and b.startswith("raised "):
        return b.split()[1] in a.split()
    return same_text(a, b)


def said(line: str) -> str:
    """What the first clause of a line says, whatever its punctuation."""
    line = re.split(r"(?<=.{20})(?:[.;:,] |\.$)", line)[0]
    return words(line)


def words(text: str) -> str:
    """The words of a text; functions by their names, whether it has their places in memory or in a file."""
    text = re.sub(r"<function ([\w.<>]+) at 0x>|([\w.<>]+) at <\w+>:\d+", lambda found: found[1] or found[2], text)
    return re.sub(r"[^\w\[\]]+", " ", text).strip()


def compare(program: Program, ours: Any, theirs: Any) -> str | None:
    """The kind of difference between two answers, None where they agree."""
    (ours, our_warnings), (theirs, their_warnings) = ours, theirs
    if ours[0] in ("died", "late") or theirs[0] in ("died", "late"):
        return ours[0] if ours[0] in ("died", "late") else None
    if ours[0] == "error" and "is in JAX, not yet in jax" in ours[2]:
        return "missing"  # docs/missing.md lists it
    if theirs[0] == "error" and re.match(r"module 'jax[\w.]*' has no attribute", theirs[2]) and ours[:3] != theirs[:3]:
        return "newer"
    if ours[0] != theirs[0]:
        return "raises" if ours[0] == "error" else "accepts"
    if ours[0] == "printed":
        if any(each.endswith(" missing") for each in ours[1]):
            return "missing"
        return None if all(map(same_print, ours[1], theirs[1])) else "printed"
    if ours[0] == "error":
        if theirs[1][0] not in ours[1] and not (theirs[3] == ours[3]):
            return "class of error"
        return None if said(theirs[2]) in words(ours[2]) or same_text(ours[2], theirs[2]) else "words"
    if ours[1] != theirs[1]:
        return "structure"
    size = largest(theirs[2])
    kinds = [kind for kind in (compare_leaves(a, b, size) for a, b in zip(ours[2], theirs[2])) if kind]
    if kinds:
        return next((kind for kind in kinds if kind not in SOFT), kinds[0])
    return None if our_warnings == their_warnings else "warning"


ODD = ("class of error", "raises", "value of nan", "weak type", "type")  # of malformed calls: to be read, not failures
SOFT = ("words", "warning", "accepts", "missing", "no array", "newer")  # counted and shown; only the others fail
AREA = ("agree", "as meant", "softly", "otherwise")
EXPLAINED = {"missing": "docs/missing.md lists them", "accepts": "JAX raises", "newer": "this JAX has no such name",
             "no array": "JAX hands on what is no array, see docs/sharp_edges.md"}


KINDS = ("all", "fresh", "table", "grammar", "checks", "docstrings", "malformed")


def show(answer: Any) -> str:
    (found, caught) = answer
    if found[0] == "value":
        leaves = iter(found[2])

        def text(leaf: Any) -> str:
            if isinstance(leaf[-1], np.ndarray):
                array = leaf[-1]
                kind = {"Array": "", "Key": "key "}.get(leaf[0], leaf[0] + " ")
                numbers = np.array2string(array.ravel()[:12], max_line_width=10**6).replace("\n", "")
                return f"{kind}{array.dtype}{list(array.shape)}{'w' if leaf[1] is True else ''} {numbers}"
            return f"{leaf[0]} {leaf[-1]!r}"

        shown = re.sub(r"\*", lambda _: text(next(leaves, ("?", "?"))), found[1]) if "**" not in found[1] else str(found)
    elif found[0] == "error":
        shown = f"{found[3]}: {found[2]}"
    else:
        shown = " ".join(map(str, found))
    return shown[:400] + (f"   warns {', '.join(caught)}" if caught else "")


def first_difference(program: tuple[str, ...], ours: Any, theirs: Any) -> str:
    if ours[0][0] != "printed" or theirs[0][0] != "printed":
        return f"      jaxlite  {show(ours)}\n      JAX      {show(theirs)}"
    for i, (a, b) in enumerate(zip(ours[0][1], theirs[0][1])):
        if not same_print(a, b):
            return (f"      example {i}: {program[i].strip()}\n      jaxlite  {a.strip()[:400]}\n"
                    f"      JAX      {b.strip()[:400]}")
    return ""


def reason(name: str, program: Program, kind: str, ours: Any, theirs: Any) -> str | None:
    """Why a difference is meant, None for one that is not: by the program, and by what is said where errors differ."""
    text = program if isinstance(program, str) else name
    if kind == "class of error":
        said_by = " <> ".join(f"{found[3]}: {found[2]}" for (found, _) in (theirs, ours))
        for pattern, why in ERRORS:
            if re.search(pattern, said_by):
                return why
    if kind == "accepts":
        for pattern, why in ACCEPTED:
            if re.search(pattern, f"{theirs[0][3]}: {theirs[0][2]}"):
                return why
    for pattern, kinds, why in KNOWN:
        if (kinds == "*" or kind in kinds.split(", ")) and re.search(pattern, text):
            return why
    return None


# The command


def uncovered(names: list[str]) -> list[str]:
    """Public functions of the modules of the table without a row."""
    rows = {function for function, _ in cases.rows()}
    modules = {function.rpartition(".")[0] for function in rows} - {"jax"}
    return [name for name in names if name.rpartition(".")[0] in modules and name not in rows]


def choose(arguments: argparse.Namespace, docstrings: dict[str, list[str]],
           parameters: dict[str, list[str]]) -> dict[Program, str]:
    """The programs of this run, with the names they go by."""
    if arguments.code:
        return {code.replace("\\n", "\n"): "--code" for code in arguments.code}
    rng = random.Random(arguments.seed)
    tiers: dict[int, list[tuple[Program, str]]] = {0: [], 1: []}
    if arguments.kind == "malformed":
        tiers[0] = [(program, "malformed") for program in malformed.drawn(arguments.seed, parameters)]
    if arguments.kind in ("all", "table", "fresh"):
        for tier, module, program in cases.drawn_programs(arguments.seed):
            tiers[tier].append((program, f"table: {module}"))
    if arguments.kind in ("all", "grammar", "fresh"):
        tiers[0] += [(program, name) for name, program in grammar.drawn(arguments.seed)]
    if arguments.kind in ("all", "table"):
        for line in (HERE / "expressions.txt").read_text().splitlines():
            if line and not line.startswith("#"):
                tiers[0].append((line.replace("\\n", "\n"), "expressions.txt"))
    if arguments.kind in ("all", "checks"):
        for line in (HERE / "checks.txt").read_text().splitlines():
            if line and not line.startswith("#"):
                tiers[0].append((line.replace("\\n", "\n"), "checks.txt"))
    if arguments.kind in ("all", "docstrings"):
        tiers[0] += [(tuple(sources), name) for name, sources in docstrings.items()]
    wanted = re.compile(arguments.only)
    chosen: list[tuple[Program, str]] = []
    for tier in (0, 1):
        found = [each for each in tiers[tier] if wanted.search(f"{each[1]} {each[0]}")]
        rng.shuffle(found)
        chosen += found
    return dict(chosen[: arguments.sample] if arguments.sample else chosen)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jax", default=str(ROOT / ".venv-jax/bin/python"), help="the Python that has JAX")
    parser.add_argument("--seed", type=int, default=0, help="another seed draws other programs")
    parser.add_argument("--sample", type=int, default=3000, help="how many programs; 0 for all, which takes hours")
    parser.add_argument("--seconds", type=float, default=0, help="stop after this time and compare what was run")
    parser.add_argument("--only", default="", help="a pattern that the program or its name has")
    parser.add_argument("--kind", choices=KINDS, default="all")
    parser.add_argument("--code", action="append", help="compare this expression alone, and show both results")
    parser.add_argument("--again", action="store_true", help="ask JAX again, whatever is kept of its answers")
    parser.add_argument("--keep", help="a file for the answers of both sides, pickled")
    parser.add_argument("--show", type=int, default=8, help="how many differences of a kind to show")
    arguments = parser.parse_args()

    start = time.monotonic()
    theirs, ours = Side("jax", arguments.jax), Side("jaxlite", sys.executable)
    names, parameters, docstrings, version = theirs.ask("names")
    BUILD.mkdir(parents=True, exist_ok=True)
    kept = BUILD / f"jax-{version}-{zlib.crc32((HERE / 'worker.py').read_bytes()):x}.pickle"  # how it describes values counts
    cached: dict[Program, Any] = pickle.loads(kept.read_bytes()) if kept.exists() and not arguments.again else {}

    programs = choose(arguments, docstrings, parameters)
    runs = [Run(ours, list(programs)), Run(theirs, [each for each in programs if each not in cached])]
    try:
        while not all([run.poll() for run in runs]):
            time.sleep(0.1)
            if arguments.seconds and time.monotonic() - start > arguments.seconds:
                break
    finally:
        for run in runs:
            run.stop()
        cached |= runs[1].answers
        partial = kept.with_suffix(f".{os.getpid()}")
        partial.write_bytes(pickle.dumps(cached))
        partial.replace(kept)

    if arguments.keep:
        both = {each: (runs[0].answers[each], cached[each]) for each in programs if each in cached and each in runs[0].answers}
        Path(arguments.keep).write_bytes(pickle.dumps(both))
    report(arguments, programs, runs[0].answers, cached, uncovered(names), time.monotonic() - start, version)


def report(arguments: argparse.Namespace, programs: dict[Program, str], ours: dict[Program, Any], theirs: dict[Program, Any],
           missing: list[str], seconds: float, version: str) -> None:
    differ: dict[str, list[Program]] = collections.defaultdict(list)
    meant: collections.Counter[str] = collections.Counter()
    compared = collections.Counter()
    areas: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for program, name in programs.items():
        if program not in ours or program not in theirs:
            continue
        compared["docstrings" if isinstance(program, tuple) else "programs"] += 1
        kind = compare(program, ours[program], theirs[program])
        why = reason(name, program, kind, ours[program], theirs[program]) if kind else None
        areas[name]["agree" if kind is None else "as meant" if why else "softly" if kind in SOFT else "otherwise"] += 1
        if kind is None:
            continue
        if why is not None:
            meant[why] += 1
        else:
            differ[kind].append(program)
    passed = SOFT + ODD * (arguments.kind == "malformed")
    for kind, found in sorted(differ.items(), key=lambda each: each[0] in passed):
        if arguments.code:
            continue
        print(f"== {kind}: {len(found)}" + (f" ({EXPLAINED.get(kind, 'counted')}; no failure)" if kind in passed else ""))
        for program in found[: arguments.show]:
            if isinstance(program, tuple):
                print(f"   {programs[program]}\n{first_difference(program, ours[program], theirs[program])}")
            else:
                print("   " + program.replace("\n", "\n   "))
                print(f"      jaxlite  {show(ours[program])}\n      JAX      {show(theirs[program])}")
    if arguments.code:
        for program in programs:
            print(f"{program}\n   jaxlite  {show(ours[program])}\n   JAX      {show(theirs[program])}")
    if arguments.kind in ("fresh", "grammar"):
        for name, counts in sorted(areas.items()):
            print(f"{name:32} {counts.total():5}: " + ", ".join(f"{counts[each]} {each}" for each in AREA if counts[each])
                  + f"; {100 * (1 - counts['otherwise'] / counts.total()):.1f} %")
    if missing:
        print("== no row in rows.txt for:", " ".join(missing))
    hard = sum(len(found) for kind, found in differ.items() if kind not in passed)
    soft = sum(len(found) for kind, found in differ.items() if kind in passed)
    total = sum(compared.values())
    known = sum(meant.values())
    print(f"beside JAX {version}, seed {arguments.seed}: "
          f"{compared['programs']} programs and {compared['docstrings']} docstrings in {seconds:.0f} s; "
          f"{total - hard - soft - known} agree, {known} differ as they are meant to, "
          f"{soft} in words, warnings, missing names or by accepting more, {hard} otherwise")
    if hard or missing:
        print("again: make test-jax JAX_ARGS=\"--code '...'\"; differences that are meant go to tests/beside_jax/known.py")
    sys.exit(bool(hard or missing))


if __name__ == "__main__":
    main()
