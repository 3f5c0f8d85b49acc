"""The benchmark harness: its verdicts are right, and the worker measures jaxlite and survives a row that fails."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

import jaxlite
from benchmarks import fusion, programs, run, worker
from benchmarks.latency_programs import LATENCY
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


def fusion_program(jax, off, on, checks=(1.0, 1.0, 1.0)):
    program = fusion.Program("chain")
    for which, (numbers, check) in enumerate(zip((jax, off, on), checks, strict=True)):
        row = dict(zip(fusion.BARS, numbers, strict=True))
        program.add(which, {**row, "check": check, "barriers": ["why"] * (which == 2)})
    return program


@pytest.mark.parametrize(
    ("on", "missed"),
    [((2.0, 1.0, 1e6), []), ((2.2, 1.0, 1e6), ["compile"]), ((1.0, 1.1, 0.0), ["run"]), ((1.0, 1.0, 1.3e6), ["temporaries"])],
)
def test_a_program_misses_the_bars_that_it_is_above(on, missed):
    program = fusion_program((2.0, 1.0, 1e6), (4.0, 0.5, 0.0), on)
    assert program.missed == missed
    assert ("**NO**" in " ".join(program.cells())) == bool(missed)


def test_the_best_of_all_rounds_counts_and_small_temporaries_do_not():
    program = fusion_program((2.0, 1.0, 0.0), (4.0, 0.5, 0.0), (3.0, 2.0, 300.0))
    program.add(2, {"compile": 1.0, "run": 5.0, "temporaries": 300.0, "check": 1.0, "barriers": []})
    assert program.ratio("compile") == 0.5 and program.ratio("compile", 1) == 0.25 and program.ratio("run") == 2.0
    assert program.missed == ["run"] and program.barriers == ["why"]
    assert "1 of 1" in fusion.report([program], reasons=True) and "1 x why" in fusion.report([program], reasons=True)


def test_without_barriers_on_and_off_share_their_samples():
    program = fusion.Program("chain")
    for which, run_time in enumerate((1.0, 1.04, 2.0)):
        numbers = {"compile": 1.0, "run": run_time, "temporaries": 0.0}
        program.add(which, {**numbers, "check": 1.0, "barriers": []})
    assert program.ratio("run") == 1.04 and program.ratio("run", 1) == 1.0 and not program.missed


def test_a_program_with_an_error_or_other_results_fails():
    assert "differ" in fusion_program(*[(1.0, 1.0, 1.0)] * 3, checks=(1.0, 1.0, 2.0)).error
    broken = fusion_program(*[(1.0, 1.0, 1.0)] * 3)
    broken.add(1, {"error": "TypeError: no"})
    assert broken.missed == ["results"] and "off: TypeError: no" in broken.cells()[-1]


def test_the_chapters_of_the_results_are_replaced_one_by_one(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "ROOT", tmp_path)
    monkeypatch.setattr(run, "RESULTS", tmp_path / "RESULTS.md")
    for title, text in [(run.FUSION_TITLE, "a"), (run.TITLE, "b"), (run.FUSION_TITLE, "c"), (run.TITLE, "d")]:
        run.write(title, [text, ""])
    assert run.RESULTS.read_text() == f"{run.TITLE}\n\nd\n\n{run.FUSION_TITLE}\n\nc\n"


def test_latency_programs_are_programs():
    ns = programs.Frontend(jaxlite, jaxlite.numpy, jaxlite.lax)
    large = {name for name in LATENCY if "MB" in name or "layers" in name or name == "Black-Scholes gradient"}
    for name in LATENCY.keys() - large:
        function, arguments = LATENCY[name](ns)
        assert all(aval.size for aval in jaxlite.jit(function).trace(*arguments).jaxpr.out_avals), name
