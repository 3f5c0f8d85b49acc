"""One side of the benchmark: times one group of rows with one frontend and prints one JSON line a row.

Run by `benchmarks.run` as `python -m benchmarks.worker`. A line is {"row", "times" (seconds a call, one per repeat)}
and, where it applies, "eqns" and "check" (a digest of the results, to see that both sides did the same work), or
{"row", "error"} where the row failed. The rows of the group "fusion" have several measures, under names of their own.
The rows of fresh processes are in `benchmarks.fresh`.
"""

from __future__ import annotations

import argparse
import functools
import gc
import hashlib
import importlib
import itertools
import json
import os
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter, process_time
from typing import Any, NamedTuple

import numpy as np

from benchmarks import latency_programs, operations, programs, sharded
from benchmarks.programs import Frontend, Program


class Effort(NamedTuple):
    """How long to measure: `repeats` samples, each of as many calls as fill `sample` seconds.

    Work that can be done only once is a sample by itself; there may be more of them, to fill `patience` seconds. The
    programs of the curve have `sizes` equations, for JAX up to `largest`, as it takes seconds for the larger ones.
    """

    repeats: int
    sample: float
    patience: float
    sizes: tuple[int, ...]
    largest: int


EFFORTS = {
    "quick": Effort(3, 1.5e-3, 0.05, (3_000, 100_000), 3_000),
    "full": Effort(12, 5e-3, 0.4, (1_000, 3_000, 10_000, 30_000, 100_000), 100_000),
}
Row = tuple[str, Callable[[], dict[str, Any]]]


def time_calls(call: Callable[[], Any], effort: Effort, finish: Callable[[Any], Any]) -> list[float]:
    """Seconds a call, `effort.repeats` times; `finish` waits for the last result of each sample."""
    count, spent = 1, 0.0
    finish(call())
    while True:  # warm up, and find how many calls fill a sample
        start = perf_counter()
        for _ in range(count):
            result = call()
        finish(result)
        spent = perf_counter() - start
        if spent >= effort.sample / 2:
            break
        count *= 2
    times = []
    for _ in range(effort.repeats):
        start = perf_counter()
        for _ in range(count):
            result = call()
        finish(result)
        times.append((perf_counter() - start) / count)
    return times


def time_once(prepare: Callable[[], Callable[[], Any]], effort: Effort) -> tuple[list[float], Any]:
    """Times work that a cache would answer the second time: `prepare` makes fresh work, untimed, for each sample."""
    prepare()()
    times: list[float] = []
    while len(times) < effort.repeats or (sum(times) < effort.patience and len(times) < 10 * effort.repeats):
        work = prepare()
        start = perf_counter()
        result = work()
        times.append(perf_counter() - start)
    return times, result


def count_eqns(jaxpr: Any, seen: set[int] | None = None) -> int:
    """Equations of a jaxpr and of every jaxpr in its parameters; a jaxpr used many times counts once."""
    seen = set() if seen is None else seen
    jaxpr = getattr(jaxpr, "jaxpr", jaxpr)
    if id(jaxpr) in seen:
        return 0
    seen.add(id(jaxpr))
    total = len(jaxpr.eqns)
    for eqn in jaxpr.eqns:
        for value in eqn.params.values():
            for inner in value if isinstance(value, (tuple, list)) else (value,):
                if hasattr(getattr(inner, "jaxpr", inner), "eqns"):
                    total += count_eqns(inner, seen)
    return total


def digest(result: Any) -> Any:
    """Dtype, shape, magnitude and a weighted mean (it sees order and sign) of every array in a result."""
    if isinstance(result, dict):
        return [digest(result[key]) for key in sorted(result)]
    if isinstance(result, (tuple, list)):
        return [digest(item) for item in result]
    if not (hasattr(result, "__array__") or isinstance(result, (bool, int, float))):
        return str(result)
    array = np.asarray(result)
    parts = [array.real, array.imag] if array.dtype.kind == "c" else [array]
    values = np.stack([part.astype(np.float64) for part in parts]).ravel()
    magnitude = float(np.abs(values).mean()) if array.size else 0.0
    weighted = float(np.linspace(1, 2, values.size) @ values / values.size / magnitude) if magnitude else 0.0
    return [str(array.dtype), list(array.shape), magnitude, weighted]


def fresh(ns: Frontend, make: Program) -> tuple[Callable[..., Any], Any]:
    """A program's fresh function and its arguments as device arrays."""
    function, arguments = make(ns)
    return function, ns.jax.tree_util.tree_map(ns.jnp.asarray, arguments)


def trace_rows(ns: Frontend, effort: Effort) -> Iterator[Row]:
    for name, make in programs.STAGED.items():

        def row(make: Program = make) -> dict[str, Any]:
            def prepare() -> Callable[[], Any]:
                function, arguments = fresh(ns, make)
                jitted = ns.jax.jit(function)
                return lambda: jitted.trace(*arguments)

            times, traced = time_once(prepare, effort)
            return {"times": times, "eqns": count_eqns(traced.jaxpr)}

        yield name, row


def lower_rows(ns: Frontend, effort: Effort) -> Iterator[Row]:
    for name, make in programs.STAGED.items():

        def row(make: Program = make) -> dict[str, Any]:
            eqns = 0

            def prepare() -> Callable[[], Any]:
                nonlocal eqns
                function, arguments = fresh(ns, make)
                traced = ns.jax.jit(function).trace(*arguments)
                eqns = eqns or count_eqns(traced.jaxpr)
                return traced.lower

            times, _ = time_once(prepare, effort)
            return {"times": times, "eqns": eqns}

        yield name, row


def curve_rows(ns: Frontend, effort: Effort) -> Iterator[Row]:
    for name, sized in programs.CURVE.items():
        for equations in effort.sizes:
            if ns.jax.__name__ == "jax" and equations > effort.largest:
                continue
            measure = functools.cache(functools.partial(time_stages, ns, sized(equations), effort))
            for stage in ("trace", "lower"):
                yield programs.curve_row(name, equations, stage), lambda measure=measure, stage=stage: measure()[stage]


def time_stages(ns: Frontend, make: Program, effort: Effort) -> dict[str, dict[str, Any]]:
    """Trace and lower the same programs, with the garbage collector on, as users have it: it may cost more than linearly.

    CPU time, because a long sample seldom has the machine for itself and a short one does.
    """
    times: dict[str, list[float]] = {"trace": [], "lower": []}
    function, arguments = fresh(ns, programs.CURVE["jnp chain"](300))
    ns.jax.jit(function).lower(*arguments)  # the first one loads MLIR
    gc.unfreeze()
    gc.enable()
    while sum(times["trace"]) < effort.patience:
        function, arguments = fresh(ns, make)
        jitted = ns.jax.jit(function)
        gc.collect()
        start = process_time()
        traced = jitted.trace(*arguments)
        middle = process_time()
        lowered = traced.lower()
        times["trace"].append(middle - start)
        times["lower"].append(process_time() - middle)
        eqns = count_eqns(traced.jaxpr)
        del traced, lowered  # now, and not while the next sample is timed
    return {stage: {"times": each, "eqns": eqns} for stage, each in times.items()}


def compile_rows(ns: Frontend, effort: Effort) -> Iterator[Row]:
    return compiling(ns, effort, programs.COMPILED)


def compiling(ns: Frontend, effort: Effort, chosen: dict[str, Program]) -> Iterator[Row]:
    for name, make in chosen.items():

        def row(make: Program = make) -> dict[str, Any]:
            def prepare() -> Callable[[], Any]:
                function, arguments = fresh(ns, make)
                return ns.jax.jit(function).trace(*arguments).lower().compile

            return {"times": time_once(prepare, effort)[0]}

        yield name, row


def concurrent_rows(ns: Frontend, effort: Effort) -> Iterator[Row]:
    """Compiles in threads, and hashing in threads: threads gain nothing where others keep the cores busy, nor does hashing."""
    count = os.cpu_count() or 1
    numbers = itertools.count()
    block = bytes(20_000_000)

    def compiles() -> list[Callable[[], Any]]:
        made = [fresh(ns, functools.partial(programs.one_kernel, number=next(numbers))) for _ in range(count)]
        return [ns.jax.jit(function).lower(*arguments).compile for function, arguments in made]

    def hashings() -> list[Callable[[], Any]]:
        return [lambda: hashlib.sha256(block)] * count

    def seconds_of(run_all: Callable[[list[Callable[[], Any]]], Any], tasks: list[Callable[[], Any]]) -> float:
        start = perf_counter()
        run_all(tasks)
        return perf_counter() - start

    @functools.cache
    def measure(make: Callable[[], list[Callable[[], Any]]]) -> list[tuple[float, ...]]:
        with ThreadPoolExecutor(count) as pool:
            ways = (lambda tasks: [task() for task in tasks], lambda tasks: list(pool.map(lambda task: task(), tasks)))
            samples = [[seconds_of(way, make()) for way in ways] for _ in range(1 + effort.repeats)]
        return list(zip(*samples[1:]))  # the first one starts the threads

    for name, make in (("compile", compiles), ("hashing", hashings)):
        for i, way in enumerate(("one after another", "each in a thread")):
            yield f"{name}, {way}", lambda make=make, i=i: {"times": measure(make)[i]}


def run_rows(ns: Frontend, effort: Effort) -> Iterator[Row]:
    longer = effort._replace(repeats=4 * effort.repeats)  # threads make run times noisy: the best of more samples
    return running(ns, longer, programs.COMPILED | programs.LONG_COMPILES)


def running(ns: Frontend, effort: Effort, chosen: dict[str, Program]) -> Iterator[Row]:
    for name, make in chosen.items():

        def row(make: Program = make) -> dict[str, Any]:
            function, arguments = fresh(ns, make)
            compiled = ns.jax.jit(function).lower(*arguments).compile()
            wait = ns.jax.block_until_ready
            times = time_calls(lambda: wait(compiled(*arguments)), effort, lambda _: None)
            return {"times": times, "check": digest(compiled(*arguments))}

        yield name, row


def operation_rows(ns: Frontend, effort: Effort, compiles: bool) -> Iterator[Row]:
    chosen = {text: functools.partial(operations.program, expression=text) for text in operations.EXPRESSIONS}
    return compiling(ns, effort._replace(repeats=2, patience=0.0), chosen) if compiles else running(ns, effort, chosen)


def first_rows(ns: Frontend, effort: Effort) -> Iterator[Row]:
    for name, make in programs.FIRST_CALLS.items():

        def row(make: Program = make) -> dict[str, Any]:
            def prepare() -> Callable[[], Any]:
                function, arguments = fresh(ns, make)
                jitted = ns.jax.jit(function)
                return lambda: ns.jax.block_until_ready(jitted(*arguments))

            times, result = time_once(prepare, effort)
            return {"times": times, "check": digest(result)}

        yield name, row


def expression_row(
    ns: Frontend, effort: Effort, environment: dict[str, Any], text: str, setup: str = ""
) -> Callable[[], dict[str, Any]]:
    """A row that is source text, so that both sides evaluate the same characters."""

    def row() -> dict[str, Any]:
        names = dict(environment)
        exec(setup, names)
        call = eval(f"lambda: ({text})", names)
        check = digest(call())
        return {"times": time_calls(call, effort, ns.jax.block_until_ready), "check": check}

    return row


def call_rows(ns: Frontend, effort: Effort) -> Iterator[Row]:
    environment = programs.call_environment(ns)
    for name, setup, text in programs.CALLS:
        yield name, expression_row(ns, effort, environment, text, setup)


def eager_rows(ns: Frontend, effort: Effort) -> Iterator[Row]:
    environment = programs.eager_environment(ns)
    for text in programs.EAGER_SHORT + programs.EAGER_OTHER:
        compiled = f"for _ in range(300): {text}"  # jaxlite's first calls compile nothing
        yield text, expression_row(ns, effort, environment, text, compiled)


def sharded_rows(ns: Frontend, effort: Effort) -> Iterator[Row]:
    wait = ns.jax.block_until_ready

    def single(call: Callable[[], Any]) -> dict[str, Any]:
        return {"times": time_calls(lambda: wait(call()), effort, lambda _: None), "check": digest(call())}

    for name, call in sharded.calls(ns).items():
        yield name, functools.partial(single, call)

    def stage(number: int) -> dict[str, Any]:
        """Times of one stage of the training step; what comes before it is not timed."""

        def prepare() -> Callable[[], Any]:
            function, arguments = sharded.training_step(ns)
            jitted = ns.jax.jit(function)
            if number == 0:
                return lambda: jitted.trace(*arguments)
            traced = jitted.trace(*arguments)
            return traced.lower if number == 1 else traced.lower().compile

        if number < 3:
            return {"times": time_once(prepare, effort)[0]}
        function, arguments = sharded.training_step(ns)
        compiled = ns.jax.jit(function).lower(*arguments).compile()
        return single(lambda: compiled(*arguments))

    for number, name in enumerate(sharded.STAGES):
        yield f"{name}, {sharded.STEP}", functools.partial(stage, number)


def fusion_rows(ns: Frontend, effort: Effort) -> Iterator[Row]:
    """Of each program the CPU seconds of compiles, the seconds of single calls, and the bytes of temporaries.

    A compile keeps several threads busy, so its CPU time tells more on a shared machine than the wall clock does.
    """

    def row(make: Program) -> dict[str, Any]:
        ns.jax.jit(lambda x: x * 2.0 + 1.0).lower(np.zeros(3, np.float32)).compile()  # what the first compile sets up
        compiles: list[float] = []
        while len(compiles) < 2 and sum(compiles) < 2.0 or sum(compiles) < 0.3 + 2 * effort.patience:
            function, arguments = fresh(ns, make)
            lowered = ns.jax.jit(function).lower(*arguments)
            start = process_time()
            compiled = lowered.compile()
            compiles.append(process_time() - start)
        check = digest(compiled(*arguments))
        wait = ns.jax.block_until_ready
        calls: list[float] = []
        while len(calls) < 2 * effort.repeats or sum(calls) < 0.2 + effort.patience:
            start = perf_counter()
            wait(compiled(*arguments))
            calls.append(perf_counter() - start)
        own = getattr(lowered, "_lowered", None)  # jaxlite's: what a compile was told to do is in nothing else but the dump
        return {
            "compile": min(compiles), "run": min(calls), "temporaries": compiled.memory_analysis().temp_size_in_bytes,
            "check": check, "barriers": getattr(own, "barriers", []),
            "rolled": not getattr(own, "is_unrolled", True),
        }  # fmt: skip

    for name, make in (latency_programs.LATENCY | latency_programs.OURS_ALONE).items():
        yield name, lambda make=make: row(make)


GROUPS = {
    "trace": trace_rows,
    "lower": lower_rows,
    "curve": curve_rows,
    "compile": compile_rows,
    "concurrent compile": concurrent_rows,
    "run": run_rows,
    "first call": first_rows,
    "warm call": call_rows,
    "eager": eager_rows,
    "sharded": sharded_rows,
    "fusion": fusion_rows,
    "operation compile": functools.partial(operation_rows, compiles=True),
    "operation run": functools.partial(operation_rows, compiles=False),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--module", required=True, help="the frontend to measure: jaxlite or jax")
    parser.add_argument("--group", required=True, choices=GROUPS)
    parser.add_argument("--effort", choices=EFFORTS, default="full")
    parser.add_argument("--rows", default="", help="regular expression: measure only the rows whose name it finds")
    options = parser.parse_args()
    module = options.module
    ns = Frontend(*map(importlib.import_module, (module, f"{module}.numpy", f"{module}.lax")))
    if options.group == "sharded":
        sharded.prepare(ns)
    gc.freeze()  # what the imports made stays; collecting between rows is then cheap
    for name, measure in GROUPS[options.group](ns, EFFORTS[options.effort]):
        if not re.search(options.rows, name):
            continue
        gc.collect()
        gc.disable()
        try:
            result = measure()
        except Exception as error:  # a row that fails is a result, and the rows after it still count
            result = {"error": f"{type(error).__name__}: {error}".splitlines()[0][:200]}
        finally:
            gc.enable()
        print(json.dumps({"row": name, **result}), flush=True)


if __name__ == "__main__":
    main()
