"""The benchmark harness: its verdicts are right, and the worker measures jaxlite and survives a row that fails."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import programs, run, worker
from benchmarks.run import Measured, Side, Verdict

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.5, "1.50 s"), (0.0123, "12.3 ms"), (0.5, "500 ms"), (4.7e-6, "4.70 µs"), (1e-6, "1.00 µs"), (733e-9, "733 ns")],
)
def test_seconds_have_three_digits_and_a_unit(value, text):
    assert run.seconds(value) == text


def verdict(ours, theirs, bar=0.5):
    return Verdict("eager", "x[1]", (ours, theirs), bar)


def test_a_row_holds_up_to_its_bar_and_by_its_best_times():
    slow, fast = Measured([2.0, 1.0, 9.0]), Measured([0.5, 7.0])
    assert verdict(fast, slow).holds
    assert not verdict(slow, fast).holds
    assert verdict(slow, fast).ratio == 2.0


def test_times_per_equation_use_each_sides_own_count():
    assert verdict(Measured([1.0], eqns=10), Measured([4.0], eqns=20)).ratio == 0.5


def test_a_row_fails_on_an_error_or_on_different_results_however_fast():
    broken = Measured(error="TypeError: no")
    assert not verdict(broken, Measured([9.0])).holds
    assert "jaxlite: TypeError: no" in verdict(broken, Measured([9.0])).cells()[-1]
    wrong = verdict(Measured([1.0], check=["float32", [2], 1.0]), Measured([9.0], check=["int32", [2], 1.0]))
    assert not wrong.holds
    assert "results differ" in wrong.error


def test_digests_agree_up_to_rounding_and_see_order_sign_and_dtype():
    import numpy as np

    x = np.arange(8, dtype=np.float32) - 3
    assert run.same(worker.digest({"a": (x, 2.0)}), worker.digest({"a": (x * np.float32(1 + 1e-6), 2.0)}))
    for other in (x[::-1], -x, x.astype(np.float64), x.reshape(2, 4), x[:7]):
        assert not run.same(worker.digest(x), worker.digest(other))
    assert run.same(worker.digest(np.array([math.nan])), worker.digest(np.array([math.nan])))


def test_expressions_are_python_and_names_are_unique():
    eager = programs.EAGER_SHORT + programs.EAGER_OTHER
    names = [name for name, _, _ in programs.CALLS]
    assert len(set(eager)) == len(eager) and len(set(names)) == len(names)
    for text in eager + [call for _, _, call in programs.CALLS]:
        compile(f"lambda: ({text})", text, "eval")


def test_the_worker_measures_jaxlite():
    command = [sys.executable, "-m", "benchmarks.worker", "--module", "jaxlite", "--effort", "quick"]
    chosen = ["--group", "trace", "--rows", "lax chain, 300$"]
    out = subprocess.run(command + chosen, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    (row,) = map(json.loads, out.splitlines())
    assert row["eqns"] >= 27 * 11 and min(row["times"]) > 0


@pytest.mark.parametrize(("folder", "line"), [("", "True"), ("/some/where", "False")])
def test_measured_processes_have_no_compile_cache_but_where_it_is_measured(folder, line):
    code = "from jaxlite.interpreters.execution import cache; print(not cache._settings['folder']())"
    out, err, _ = Side("jaxlite", sys.executable, "jaxlite").start("-c", code, cache=folder)
    assert out.strip() == line, err


def test_a_frontend_that_is_not_there_gives_failing_rows():
    sides = (Side("none", sys.executable, "no_such_frontend"), Side("neither", sys.executable, "no_such_frontend_too"))
    (row,) = run.compare(sides, "eager", "quick", "")
    assert not row.holds
    assert "no_such_frontend" in row.error
