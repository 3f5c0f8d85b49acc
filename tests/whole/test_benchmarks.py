"""The benchmark harness: its verdicts are right, and the worker measures jaxlite and survives a row that fails."""

import functools
import json
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest

import jaxlite
from benchmarks import bars, chart, fusion, operations, paired, programs, random_programs, run, sharded, worker, written
from benchmarks.bars import Figure, Verdict
from benchmarks.latency_programs import LATENCY, OURS_ALONE, QUICK
from benchmarks.sides import Measured, Side, same, seconds

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.5, "1.50 s"), (0.0123, "12.3 ms"), (0.5, "500 ms"), (4.7e-6, "4.70 µs"), (1e-6, "1.00 µs"), (733e-9, "733 ns")],
)
def test_seconds_have_three_digits_and_a_unit(value, text):
    assert seconds(value) == text


def verdict(ours, theirs, bar=0.5):
    return Verdict("eager", "x[1]", (ours, theirs), bar)


def test_a_row_holds_up_to_its_bar_and_by_its_best_times():
    slow, fast = Measured([2.0, 1.0, 9.0]), Measured([0.5, 7.0])
    assert verdict(fast, slow).holds
    assert not verdict(slow, fast).holds
    assert verdict(slow, fast).ratio == 2.0


def test_a_bar_of_one_has_room_for_noise_and_no_other_bar_has():
    assert verdict(Measured([1.02]), Measured([1.0]), bar=1.0).holds
    assert not verdict(Measured([1.03]), Measured([1.0]), bar=1.0).holds
    assert not verdict(Measured([0.51]), Measured([1.0]), bar=0.5).holds


def test_a_row_without_a_bar_is_shown_and_not_judged():
    for theirs in (Measured([1.0]), Measured()):
        row = verdict(Measured([9.0]), theirs, bar=None)
        assert row.holds and not row.close and row.cells()[5] == "-"
    assert bars.summary([verdict(Measured([9.0]), Measured([1.0]), bar=None)], []) == "### Summary\n\nEvery row holds.\n"


@pytest.mark.parametrize(("ratio", "again"), [(0.4, False), (0.49, True), (0.9, True), (1.1, False)])
def test_only_what_noise_may_have_decided_is_measured_again(ratio, again):
    assert verdict(Measured([ratio]), Measured([1.0])).close == again


def test_every_own_bar_is_for_a_row_that_there_is():
    calls = [name for name, _, _ in programs.CALLS]
    known = {
        "import": [*bars.fresh.IMPORT, *bars.fresh.WHOLE_PROCESS], "trace": programs.STAGED, "lower": programs.STAGED,
        "warm start": bars.fresh.WARM_START, "session": bars.fresh.SESSION, "warm call": calls, "eager": programs.EAGER_SHORT,
        "sharded": [f"{stage}, {sharded.STEP}" for stage in sharded.STAGES] + [
            f"call, {count} array{'s' * (count > 1)}" for count in sharded.CALLS],
    }  # fmt: skip
    assert all(row in known[group] for group, row in bars.ROW_BARS)
    assert all(name in LATENCY and measure in fusion.BARS for name, measure in fusion.PROGRAM_BARS)


def test_figures_of_several_rows():
    alone = lambda seconds, eqns=0: (Measured([seconds], eqns=eqns), Measured([1.0], eqns=eqns))
    table = {"compile, one after another": alone(2.0), "compile, each in a thread": alone(1.5)}
    (threads,) = bars.figures("concurrent compile", table)
    assert threads.value == 0.75 and not threads.holds and threads.close and set(threads.rows) == set(table)
    (above,) = bars.figures("import", dict(zip(bars.fresh.WHOLE_PROCESS, (alone(0.28), alone(0.25)), strict=True)))
    assert (above.ours, above.theirs) == ("30 ms", "0 ms") and above.holds
    row = functools.partial(programs.curve_row, "lax chain", stage="trace")
    small, large = {row(3_000): alone(3.0, eqns=3_000)}, {row(100_000): (Measured([150.0], eqns=100_000), Measured())}
    (growth,) = bars.figures("curve", small | large)
    assert growth.value == pytest.approx(1.5) and growth.theirs == "-" and not growth.holds
    assert not bars.figures("curve", small), "one of its rows was not measured"
    many = {f"x[{i}]": alone(1.0 if i % 2 else 0.25) for i in range(102)}
    assert bars.figures("eager", many)[0].value == pytest.approx(0.5)
    assert not bars.figures("eager", small), "of a few rows it would be another figure"


def test_the_summary_lists_what_does_not_hold():
    figure = Figure("curve", "growth", "1.50", "-", 1.5, 1.25)
    text = bars.summary([verdict(Measured([0.9]), Measured([1.0])), verdict(Measured([0.1]), Measured([1.0]))], [figure])
    assert "Rows that do not hold: 2" in text and "- eager: x[1]: 0.90, bar 0.5" in text
    assert "- curve: growth: 1.5, bar 1.25" in text and "| **NO** |" in text


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
    assert same(worker.digest({"a": (x, 2.0)}), worker.digest({"a": (x * np.float32(1 + 1e-6), 2.0)}))
    for other in (x[::-1], -x, x.astype(np.float64), x.reshape(2, 4), x[:7]):
        assert not same(worker.digest(x), worker.digest(other))
    assert same(worker.digest(np.array([math.nan])), worker.digest(np.array([math.nan])))


def test_expressions_are_python_and_names_are_unique():
    eager = programs.EAGER_SHORT + programs.EAGER_OTHER
    names = [name for name, _, _ in programs.CALLS]
    assert len(set(eager)) == len(eager) and len(set(names)) == len(names)
    for text in eager + [call for _, _, call in programs.CALLS]:
        compile(f"lambda: ({text})", text, "eval")


def test_operations_are_functions_of_the_arrays_they_name():
    ns = programs.Frontend(jaxlite, jaxlite.numpy, jaxlite.lax)
    assert len(set(operations.EXPRESSIONS)) == len(operations.EXPRESSIONS)
    for text in operations.EXPRESSIONS:
        compile(text, text, "eval")
    function, (at, x) = operations.program(ns, "jax.vmap(lambda row: row[at])(x)")
    assert (function(at, x) == x[:, at]).all()


def test_the_worker_measures_jaxlite():
    command = [sys.executable, "-m", "benchmarks.worker", "--module", "jaxlite", "--effort", "quick"]
    chosen = ["--group", "trace", "--rows", "lax chain, 300$"]
    out = subprocess.run(command + chosen, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    (row,) = map(json.loads, out.splitlines())
    assert row["eqns"] >= 27 * 11 and min(row["times"]) > 0


def test_the_curve_has_both_stages_of_each_size():
    ns = programs.Frontend(jaxlite, jaxlite.numpy, jaxlite.lax)
    effort = worker.EFFORTS["quick"]._replace(sizes=(300,), patience=0.0)
    rows = {name: measure() for name, measure in worker.curve_rows(ns, effort._replace(patience=1e-6))}
    assert set(rows) == {programs.curve_row(name, 300, stage) for name in programs.CURVE for stage in ("trace", "lower")}
    assert all(min(row["times"]) >= 0 and 250 < row["eqns"] < 600 for name, row in rows.items() if "step" not in name)


def test_functions_are_compiled_in_as_many_threads():
    ns = programs.Frontend(jaxlite, jaxlite.numpy, jaxlite.lax)
    rows = {name: measure() for name, measure in worker.concurrent_rows(ns, worker.EFFORTS["quick"]._replace(repeats=1))}
    assert len(rows) == 4 and all(len(row["times"]) == 1 for row in rows.values())


@pytest.mark.parametrize(("folder", "line"), [("", "True"), ("/some/where", "False")])
def test_measured_processes_have_no_compile_cache_but_where_it_is_measured(folder, line):
    code = "from lowering.cache import keys; import jaxlite.compilation.execution; print(not keys.settings['folder']())"
    out, err, _ = Side("jaxlite", sys.executable, "jaxlite").start("-c", code, cache=folder)
    assert out.strip() == line, err


def test_a_frontend_that_is_not_there_gives_failing_rows():
    sides = (Side("none", sys.executable, "no_such_frontend"), Side("neither", sys.executable, "no_such_frontend_too"))
    (row,), _ = run.compare(sides, "eager", "quick", "")
    assert not row.holds
    assert "no_such_frontend" in row.error


def fusion_program(jax, off, on, checks=(1.0, 1.0, 1.0)):
    program = fusion.Program("chain")
    for which, (numbers, check) in enumerate(zip((jax, off, on), checks, strict=True)):
        row = dict(zip(fusion.BARS, numbers, strict=True))
        program.add(which, {**row, "check": check, "barriers": ["why"] * (which == 2), "rolled": False})
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
    program.add(2, {"compile": 1.0, "run": 5.0, "temporaries": 300.0, "check": 1.0, "barriers": [], "rolled": False})
    assert program.ratio("compile") == 0.5 and program.ratio("compile", 1) == 0.25 and program.ratio("run") == 2.0
    assert program.missed == ["run"] and program.barriers == ["why"]
    report = fusion.report([program], reasons=True)
    assert re.search(r"fusion, run +\| 1.05 \| 1 +\| 0 +\| 2.00", report) and "1 x why" in report


@pytest.mark.parametrize("rolled, ratio", [(False, 1.04), (True, 2.0)])
def test_on_and_off_share_their_samples_if_they_are_the_same_program(rolled, ratio):
    program = fusion.Program("chain")
    for which, run_time in enumerate((1.0, 1.04, 2.0)):
        numbers = {"compile": 1.0, "run": run_time, "temporaries": 0.0}
        program.add(which, {**numbers, "check": 1.0, "barriers": [], "rolled": rolled and which == 2})
    assert program.ratio("run") == ratio and program.missed == ["run"] * rolled


def test_a_program_with_an_error_or_other_results_fails():
    assert "differ" in fusion_program(*[(1.0, 1.0, 1.0)] * 3, checks=(1.0, 1.0, 2.0)).error
    broken = fusion_program(*[(1.0, 1.0, 1.0)] * 3)
    broken.add(1, {"error": "TypeError: no"})
    assert broken.missed == ["results"] and "off: TypeError: no" in broken.cells()[-1]


def test_a_program_of_ours_alone_has_no_bars_and_counts_for_growth():
    small, large = (fusion.Program(name, (2,)) for name in ("RK4 gradient, 20 steps", "RK4 gradient, 100 steps"))
    for program, compile_time in ((small, 1.0), (large, 10.0)):
        program.add(2, {"compile": compile_time, "run": 1.0, "temporaries": 0.0, "check": 1.0, "barriers": ["why"],
                        "rolled": False})
    assert not small.missed and small.cells()[-2] == "-" and "FAILS" not in str(small.cells())
    growth, total = fusion.figures([small, large])
    assert (growth.value, growth.theirs, growth.holds) == (2.0, "-", False) and (total.ours, total.holds) == ("10.00 s", True)
    assert growth.name == "compile growth, RK4 gradient, 20 to 100 steps"
    assert growth.name in fusion.report([small, large], reasons=False)


def test_a_program_may_have_a_bar_of_its_own():
    program = fusion_program((1.0, 1.0, 1e6), (1.0, 1.0, 1e6), (0.5, 0.9, 1e6))
    assert not program.missed
    program.name = "transformer step, 12 layers"
    assert program.missed == ["compile", "run"] and "own bars: compile 0.25, run 0.8" in program.cells()[-1]


def test_the_chart_shows_what_the_results_say(tmp_path):
    rows = [Verdict("eager", name, (Measured([each]), Measured([1.0])), 0.5) for name, each in (("-x", 0.2), ("x[1]", 0.8))]
    told = "- Machine: a PDP-11, 1 core\n- JAX: python 3.11.7, jaxlib 0.10.2, jax 0.10.2\n- Date: 1976-01-01\n"
    fused = fusion.report([fusion_program((1.0, 1.0, 1e6), (1.0, 1.0, 1e6), (0.5, 0.9, 3e6))], reasons=False)
    results = tmp_path / "RESULTS.md"
    results.write_text("\n".join([run.TITLE, told, bars.summary(rows, []), run.FUSION_TITLE, told, fused]))
    ours, fusions = chart.read(results.read_text())
    assert ours.lines == [chart.Line("eager", 0.5, 2, 1, 0.4, 0.8, "x[1]")] and ours.facts["Date"] == "1976-01-01"
    assert [(line.group, line.hold, line.mean) for line in fusions.lines][::2] == [
        ("fusion, compile", 1, 0.5), ("fusion, temporaries", 0, 2.99),
    ]  # fmt: skip
    pytest.importorskip("matplotlib")
    assert chart.draw(results, tmp_path / "docs" / "chart.png") == ""
    assert (tmp_path / "docs" / "chart.png").read_bytes().startswith(b"\x89PNG")
    results.write_text("")
    assert "no summary" in chart.draw(results, tmp_path / "chart.png")


def test_the_front_page_says_what_the_results_say():
    waits = chart.waits(run.RESULTS.read_text())
    assert list(waits) == list(chart.WAITS)
    ratio = waits["import, and the first result of a jitted function"][-1]
    front = (run.ROOT / "README.md").read_text()
    assert float(re.search(r"in ([\d.]+) of the time that JAX takes", front)[1]) == pytest.approx(ratio, abs=0.05)


def test_the_chapters_of_the_results_are_replaced_one_by_one(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "ROOT", tmp_path)
    monkeypatch.setattr(run, "RESULTS", tmp_path / "RESULTS.md")
    monkeypatch.setattr(run, "CHART", tmp_path / "benchmarks.png")
    for title, text in [(run.FUSION_TITLE, "a"), (run.TITLE, "b"), (run.FUSION_TITLE, "c"), (run.TITLE, "d")]:
        run.write(title, [text, ""])
    assert run.RESULTS.read_text() == f"{run.TITLE}\n\nd\n\n{run.FUSION_TITLE}\n\nc\n"


def test_latency_programs_are_programs():
    assert not LATENCY.keys() & OURS_ALONE.keys() and set(QUICK) <= LATENCY.keys() | OURS_ALONE.keys()
    assert {name for pair in fusion.GROWTH for name in pair} <= LATENCY.keys() | OURS_ALONE.keys()
    ns = programs.Frontend(jaxlite, jaxlite.numpy, jaxlite.lax)
    large = {name for name in LATENCY if "MB" in name or "layers" in name or name == "Black-Scholes gradient"}
    for name in LATENCY.keys() - large:
        function, arguments = LATENCY[name](ns)
        assert all(aval.size for aval in jaxlite.jit(function).trace(*arguments).jaxpr.out_avals), name


def test_random_programs_are_the_same_in_each_process_and_of_all_families():
    assert {random_programs.family(seed) for seed in range(100)} == set(random_programs.FAMILIES)
    ns = programs.Frontend(jaxlite, jaxlite.numpy, jaxlite.lax)
    for seed in (2, 25, 44):
        text, again = (str(jaxlite.make_jaxpr(f)(*args)) for f, args in (random_programs.make(seed)(ns) for _ in range(2)))
        assert text == again and len(text) > 300


def test_written_programs_have_results_and_gradients():
    ns = programs.Frontend(jaxlite, jaxlite.numpy, jaxlite.lax)
    for name in written.expand("all") + written.expand("all.grad"):
        function, arguments = written.make(name)(ns)
        assert any(aval.size for aval in jaxlite.make_jaxpr(function)(*arguments).out_avals), name


def test_a_field_and_all_are_names_of_their_programs():
    fields = {written.family(name) for name in written.expand("all")}
    assert "statistics" in fields and "kalman_filter" in written.expand("statistics")
    assert sorted(name for field in fields for name in written.expand(field)) == sorted(written.PROGRAMS)
    assert written.expand("kalman_filter.grad") == ["kalman_filter.grad"]
    assert "viterbi.grad" not in written.expand("statistics.grad")
    with pytest.raises(SystemExit, match="the fields are agents, algorithms"):
        written.expand("kalman")


def test_pairs_of_processes_take_turns(monkeypatch):
    monkeypatch.setattr(paired, "TURNS", 1)
    sides = [(sys.executable, "jaxlite", True)] * 2
    best, remark = paired.measure(sides, "benchmarks.random_programs", "44")
    assert not remark and all(paired.ratio(best, each) > 0 for each in paired.BARS)
    with pytest.raises(RuntimeError, match="invalid literal"):
        paired.measure(sides, "benchmarks.random_programs", "no seed")
