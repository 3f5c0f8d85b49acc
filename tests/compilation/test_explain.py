"""Seeing inside: why each compile was needed, the report of all compiles, and the line while one lasts."""

from __future__ import annotations

import gc
import io
import os
import re
import subprocess
import sys
import threading
import time
import weakref
from collections import deque
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import jaxlite
from jaxlite import jit, lax
from jaxlite.compilation import compile_report, explain
from jaxlite.core import config
from lowering import progress

pytestmark = pytest.mark.usefixtures("uncached")

HERE = Path(__file__)
ROOT = HERE.resolve().parent.parent
F32 = np.float32


def ones(*shape):
    return np.ones(shape, F32)


@pytest.fixture
def told(caplog):
    """Switches the explanations on; a function that gives the paragraphs since its last call."""

    def messages():
        found = [record.message for record in caplog.records]
        caplog.clear()
        return found

    with jaxlite.explain_cache_misses():
        yield messages


# --- the difference between two signatures -----------------------------------------------------------


class Equal:
    def __init__(self, n):
        self.n = n

    def __repr__(self):
        return f"Equal({self.n})"

    def __eq__(self, other):
        return self.n == other.n

    def __hash__(self):
        return 0


class Broken(Equal):
    __hash__ = Equal.__hash__

    def __eq__(self, other):
        raise RuntimeError("not comparable")


def new_f():
    def f(x, y=0.0, *rest, mode="a", **others):
        return x

    return f


def call(*args, **kwargs):
    return args, kwargs


STATIC = {"static_argnums": 1, "static_argnames": "mode"}
X = ones(2)

# Options of jit, the calls before, the new call, and what is told of it.
DIFFERENCES = {
    "shape": ({}, [call(ones(31, 10))], call(ones(32, 10)), ["argument `x`: f32[32,10] was f32[31,10]"]),
    "rank": ({}, [call(ones(3))], call(ones(3, 1)), ["argument `x`: f32[3,1] was f32[3]"]),
    "dtype": ({}, [call(X, X)], call(X, np.ones(2, np.int8)), ["argument `y`: i8[2] was f32[2]"]),
    "weak type": ({}, [call(X, F32(1))], call(X, 1.0), ["weak type of argument `y`: weak f32[] was f32[]"]),
    "weak type and dtype": ({}, [call(X, F32(1))], call(X, 1), ["argument `y`: weak i32[] was f32[]"]),
    "inside a tree": ({}, [call({"a": 1, "x": [X, X]})], call({"a": 1, "x": [X, ones(3)]}),
                      ["argument `x['x'][1]`: f32[3] was f32[2]"]),
    "after a static one": (STATIC, [call(X, 3, X)], call(X, 3, ones(5)), ["argument `rest[0]`: f32[5] was f32[2]"]),
    "keyword": ({}, [call(X, z=X)], call(X, z=ones(5)), ["argument `z`: f32[5] was f32[2]"]),
    "a key more": ({}, [call({"a": X})], call({"a": X, "b": X}),
                   ["new pytree structure of `x`: a dict with keys 'a', 'b', was a dict with keys 'a'"]),
    "another container": ({}, [call(X, {"p": [X, X]})], call(X, {"p": (X, X)}),
                          ["new pytree structure of `y['p']`: a tuple of length 2, was a list of length 2"]),
    "None for an array": ({}, [call(X, X)], call(X, None), ["new pytree structure of `y`: None, was a leaf"]),
    "an argument more": ({}, [call(X)], call(X, X), ["argument `y`: f32[2], was not given"]),
    "a tree more": ({}, [call(X)], call(X, (X, X)), ["argument `y`: a pytree of 2 arrays, was not given"]),
    "an argument fewer": ({}, [call(X, w=X)], call(X), ["argument `w`: not given, was f32[2]"]),
    "another keyword": ({}, [call(X, w=X)], call(X, v=1),
                        ["argument `v`: weak i32[], was not given", "argument `w`: not given, was f32[2]"]),
    "by keyword": ({}, [call(X, X)], call(X, y=X), ["argument `y` is passed by keyword, was by position"]),
    "static": (STATIC, [call(X, 3)], call(X, 4), ["static argument `y`: 4 was 3"]),
    "static by name": (STATIC, [call(X, mode="a")], call(X, mode="b"), ["static argument `mode`: 'b' was 'a'"]),
    "static of another type": (STATIC, [call(X, 1)], call(X, True), ["static argument `y`: True (bool) was 1 (int)"]),
    "a static one more": (STATIC, [call(X)], call(X, 1), ["argument `y`: static 1, was not given"]),
    "static with ==": (STATIC, [call(X, Equal(1))], call(X, Equal(2)), ["static argument `y`: Equal(2) was Equal(1)"]),
    "the nearest of several": ({}, [call(ones(1), 1, 1), call(ones(2), 1, 1), call(ones(2), X, X)], call(ones(2), 1.0, 1),
                               ["argument `y`: weak f32[] was weak i32[]"]),
    "the latest of equals": ({}, [call(ones(1)), call(ones(2)), call(ones(3))], call(ones(4)),
                             ["argument `x`: f32[4] was f32[3]"]),
    "too many to list": ({}, [call([1] * 30)], call([1.0] * 30),
                         [*(f"argument `x[{n}]`: weak f32[] was weak i32[]" for n in range(5)), "and 25 more differences"]),
}


@pytest.mark.parametrize("case", DIFFERENCES)
def test_the_difference_is_told(case, told):
    options, before, (args, kwargs), expected = DIFFERENCES[case]

    g = jit(new_f(), **options)
    for earlier_args, earlier_kwargs in before:
        g.trace(*earlier_args, **earlier_kwargs)
    told()
    g.trace(*args, **kwargs)
    (paragraph,) = told()
    _, *lines = paragraph.splitlines()
    if len(before) + len(expected) > 2:
        which = f"nearest of {len(before)} earlier signatures" if len(before) > 1 else "earlier signature"
        assert lines.pop(0) == f"  difference to the {which}:"
    assert [line.strip() for line in lines] == expected
    g.trace(*args, **kwargs)
    assert told() == []


def test_static_objects_that_equal_themselves_alone(told):
    g = jit(lambda x, act: x, static_argnames="act")
    for _ in range(2):
        g.trace(X, act=lambda: 0)
    assert re.search(r"static argument `act`: <function .*> is not the same object as <function .*>, and objects of function "
                     "are equal to themselves alone; make it once", told()[1])


def test_an_exception_in_comparing_stops_nothing(told):
    g = jit(lambda x, n: x, static_argnums=1)
    g.trace(X, Equal(1))
    told()

    class Raises:
        __hash__ = object.__hash__

        def __eq__(self, other):
            return self is other

        def __repr__(self):
            raise RuntimeError("no repr")

    g.trace(X, Raises())
    (paragraph,) = told()
    assert "static argument `n`: <Raises instance at" in paragraph

    g = jit(lambda x, n: x, static_argnums=1)
    g.trace(X, Broken(1))
    told()
    other = Broken(2)
    Broken.__hash__ = lambda self: self.n  # so that only the explanation compares them
    try:
        g.trace(X, other)
    finally:
        Broken.__hash__ = Equal.__hash__
    assert "comparing it with earlier ones raised RuntimeError: not comparable" in told()[0]


VALUES = {"enable_x64": True, "numpy_dtype_promotion": "strict", "numpy_rank_promotion": "warn", "default_prng_impl": "rbg",
          "threefry_partitionable": False, "default_matmul_precision": "float32", "default_device": "cpu",
          "debug_nans": True, "debug_infs": True, "cpu_fusion_barriers": False,
          "remove_size_one_mesh_axis_from_type": True, "random_seed_offset": 3, "enable_custom_prng": True,
          "legacy_prng_key": "warn", "high_dynamic_range_gumbel": True, "check_static_indices": True,
          "explicit_x64_dtypes": "error", "exec_time_optimization_effort": 0.5, "memory_fitting_effort": 0.5,
          "optimization_level": "O1", "memory_fitting_level": "O1",
          "disable_most_optimizations": True, "threefry_gpu_kernel_lowering": True}


@pytest.mark.parametrize("name", config.PROGRAM_OPTIONS)
def test_a_changed_option_is_named(name, told):
    option = config.OPTIONS[name]
    g = jit(lambda x: x)
    g.trace(X)
    with option(VALUES[name]):
        g.trace(X)
        assert f"  changed option `jax_{name}`: {option.value!r} was " in told()[1]


def test_options_of_jit_are_named(told):
    def fun(x):
        return x

    jit(fun).trace(X)
    jit(fun, donate_argnums=0).trace(X)
    assert "changed option `donate_argnums` of jit: (0,) was ()" in told()[1]


def test_named_axes_are_named(told):
    g = jit(lambda x: lax.psum(x, "i"))
    jaxlite.vmap(g, axis_name="i")(ones(2))
    told()
    jaxlite.vmap(g, axis_name="i")(ones(3))
    assert any("named axes: 'i' of size 3 were 'i' of size 2" in each for each in told())


# --- which compile, and what else may have happened --------------------------------------------------


def test_one_paragraph_for_each_compile(told):
    def train_step(x):
        return lax.add(x, x)

    g = jit(train_step)
    g(X), g(X)
    line = train_step.__code__.co_firstlineno
    (paragraph,) = told()
    time = r"[\d.e+-]+ m?s"
    assert re.fullmatch(rf"compiled train_step at {HERE}:{line}, called at {HERE}:{line + 4} \(test_one_paragraph_\w+\): "
                        rf"trace {time}, lower {time}, compile {time}\n  first call", paragraph)


def test_silence_by_default(caplog):
    jit(lambda x: lax.add(x, x))(X)
    assert caplog.records == []


def test_traces_without_a_compile(told):
    inner = jit(lambda x: x)
    jit(lambda x: inner(x)).lower(X)
    inside, outside = told()
    assert inside.startswith("traced inside another function: <lambda> at ") and "compile " not in inside
    assert outside.startswith("traced <lambda> at ")
    inner(X)
    (compiled,) = told()
    assert compiled.endswith("traced before, compiled now")


def test_compiled_once_more(told):
    lowered = jit(lambda x: lax.add(x, x)).lower(X)
    lowered.compile()
    told()
    lowered.compile({"xla_cpu_enable_fast_math": True})
    (paragraph,) = told()
    assert "compiled once more: compiler options: (('xla_cpu_enable_fast_math', True),) was None" in paragraph
    assert "trace " not in paragraph.partition("\n")[0].partition(": ")[2] and "lower " not in paragraph


def test_a_function_that_is_defined_anew(told):
    def method(self, x):
        return x

    makers = [lambda: (lambda x: x), lambda: partial(new_f(), y=1.0), lambda: jaxlite.vmap(lambda x: x),
              lambda: method.__get__(Equal(1))]
    for make in makers:
        for count in range(3):
            jit(make()).trace(X)
            (paragraph,) = told()
            assert ("new function object" in paragraph) == (count > 0) and ("first call" in paragraph) == (count == 0)


def test_functions_of_one_line_are_different_functions(told):
    for fun in (lambda x: x, lambda x: lax.add(x, x)):
        jit(fun).trace(X)
        assert "first call" in told()[0]


def test_operations_are_never_called_redefined(told):
    with config.eager_on_host(False):
        lax.reshape(ones(11), (11, 1)), lax.reshape(ones(11), (1, 11))
    assert [each.partition("\n  ")[2] for each in told() if "reshape" in each] == ["first call"] * 2


def test_a_cleared_cache(told):
    g = jit(lambda x: x)
    g.trace(X)
    g.clear_cache()
    g.trace(X)
    assert "its cache was cleared" in told()[1]


def test_a_function_that_fails_was_never_traced(told):
    def fails(x):
        raise ValueError

    for _ in range(2):
        with pytest.raises(ValueError):
            jit(fails)(X)
    assert told() == [] and explain._codes(fails) not in explain._seen


def test_what_is_remembered_keeps_nothing_alive(told):
    class Anchor:
        pass

    anchor = Anchor()
    fun = lambda x, n: x
    alive = [weakref.ref(anchor), weakref.ref(fun)]
    jit(fun, static_argnums=1)(X, anchor)
    del fun, anchor
    jit(lambda x: x)(X)
    gc.collect()
    assert [reference() for reference in alive] == [None, None]


# --- the report --------------------------------------------------------------------------------------


def test_the_report_has_every_compile():
    def sum_of_powers(x, y, n, mode="m"):
        return lax.integer_pow(x, n)

    before = len(jaxlite.compile_report())
    g = jit(sum_of_powers, static_argnames=("n", "mode"))
    mode = ("q", lambda: 0, Equal)
    for _ in range(3):
        g(X, 1.0, 2), g(ones(3), 1.0, n=3, mode=mode)
    report = jaxlite.compile_report()
    first, second = report[before:]
    line = sum_of_powers.__code__.co_firstlineno
    assert (first.function, first.location) == ("sum_of_powers", f"{HERE}:{line}")
    assert first.signature == "f32[2], weak f32[], n=2"
    assert second.signature == "f32[3], weak f32[], mode=('q', <lambda>, Equal), n=3"
    assert second.number == first.number + 1 and "cpu" in first.device.lower() and first.reason == ""
    assert min(first.trace_seconds, first.lower_seconds, first.compile_seconds) > 0

    header, one, two, total = str(compile_report.CompileReport(report[before:])).splitlines()[:4]
    assert header.split() == ["ms:", "trace", "lower", "compile", "cache", "function", "signature", "defined", "at"]
    assert one.index("sum_of_powers") == two.index("sum_of_powers") == header.index("function")
    assert f"{first.compile_seconds * 1e3:.1f}" in one and one.endswith(first.location)
    seconds = sum(first.stages) + sum(second.stages)
    assert total.startswith(f"2 compiles, {seconds:.3f} s: trace ")


def test_a_stage_that_was_not_repeated_counts_once():
    before = len(jaxlite.compile_report())
    lowered = jit(lambda x: lax.add(x, x)).lower(X)
    lowered.compile(), lowered.compile({"xla_cpu_enable_fast_math": True})
    first, second = jaxlite.compile_report()[before:]
    assert min(first.stages) > 0 and second.stages[:2] == (0, 0) and second.compile_seconds > 0


def test_the_report_has_reasons_where_they_were_asked_for(told):
    g = jit(lambda x: x)
    g(ones(2)), g(ones(3))
    assert jaxlite.compile_report()[-1].reason == "argument `x`: f32[3] was f32[2]"


def test_the_persistent_cache_is_named(told, tmp_path):
    g = jit(lambda x: lax.sub(x, 7.0))
    with (config.enable_compilation_cache(True), config.compilation_cache_dir(str(tmp_path)),
          config.persistent_cache_min_compile_time_secs(0.0)):
        for found in "miss", "hit":
            g(X)
            g.clear_cache()
            (paragraph,) = told()
            assert paragraph.splitlines()[0].endswith(f" (cache {found})")
            last = jaxlite.compile_report()[-1]
            assert last.cache == found and f" {found} " in str(compile_report.CompileReport([last]))


def test_the_report_is_bounded(monkeypatch):
    monkeypatch.setattr(compile_report, "_records", deque(maxlen=2))
    for n in range(3):
        jit(lambda x: x)(ones(n))
    report = jaxlite.compile_report()
    assert [each.signature for each in report] == ["f32[1]", "f32[2]"]
    assert str(report).splitlines()[-1] == f"{report[0].number - 1} earlier ones are not kept"
    assert compile_report.LIMIT >= 1000


def test_an_empty_report():
    assert str(compile_report.CompileReport()).splitlines()[-1].startswith("0 compiles, 0.000 s")


# --- the line while a compile lasts ------------------------------------------------------------------


class Terminal:
    """Stands for stderr."""

    def __init__(self, tty=True):
        self.tty, self.text = tty, ""

    def isatty(self):
        return self.tty

    def write(self, text):
        self.text += text

    def flush(self):
        pass

    def screen(self):
        """What a terminal would show: the last line, after what erases it."""
        return self.text.rpartition("\r\x1b[K")[2]


@pytest.fixture
def terminal(monkeypatch):
    stderr = Terminal()
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=stderr))  # pytest changes sys.stderr after this
    monkeypatch.setattr(progress, "PATIENCE", 0.05)
    monkeypatch.setattr(progress, "_REDRAW", 0.02)
    yield stderr
    wait_for(lambda: progress._watcher is None)


def wait_for(condition):
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def sleepy(terminal, then=lambda x: x):
    @jit
    def slow(x):
        wait_for(lambda: "slow" in terminal.text)
        return then(x)

    return slow


def fail(error):
    def then(x):
        raise error

    return then


def test_a_long_stage_shows_a_line_until_it_ends(terminal):
    sleepy(terminal)(X)
    assert re.search(r"\r\x1b\[Kjaxlite: tracing slow, \d+\.\d s", terminal.text) and terminal.screen() == ""
    text = terminal.text
    wait_for(lambda: progress._watcher is None)
    assert terminal.text == text  # the user's own line is not erased later


def test_the_stages_of_xla_have_a_line_too(terminal, monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE", 0.001)

    def unrolled(x):
        for _ in range(150):
            x = lax.sin(x)
        return x

    jit(unrolled)(X)
    assert "jaxlite: compiling unrolled, " in terminal.text and terminal.screen() == ""


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), SystemExit()])
def test_the_line_goes_with_an_exception(terminal, error):
    with pytest.raises(type(error)):
        sleepy(terminal, fail(error))(X)
    assert "slow" in terminal.text and terminal.screen() == "" and not progress._active


def test_a_stage_that_never_ended_is_forgotten(terminal):
    """As when an interrupt comes before `__exit__` has done anything."""
    stage = progress.Stage("lost", "compiling")
    stage.__enter__()
    wait_for(lambda: "lost" in terminal.text)
    del stage
    wait_for(lambda: progress._watcher is None)
    assert terminal.screen() == "" and not progress._active
    sleepy(terminal)(X)
    assert "slow" in terminal.text


def test_stages_inside_a_stage_are_part_of_it(terminal):
    def outer(x):
        with progress.Stage("inner", "compiling"):
            wait_for(lambda: "outer" in terminal.text)
        wait_for(lambda: terminal.text.count("outer") > 1)
        return x

    jit(outer)(X)
    assert "inner" not in terminal.text and terminal.screen() == ""


def test_threads_share_the_line(terminal):
    entered = threading.Barrier(3)

    def work(name):
        with progress.Stage(name, "compiling"):
            entered.wait(20)
            wait_for(lambda: "(and 2 more)" in terminal.text)

    threads = [threading.Thread(target=work, args=(f"name{n}",)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    wait_for(lambda: progress._watcher is None)
    assert terminal.screen() == "" and not progress._active


def test_the_time_of_stages_before_counts(terminal):
    with progress.Stage("f", "compiling", before=100.0):
        wait_for(lambda: "jaxlite: compiling f, 100." in terminal.text)


@pytest.mark.parametrize(("tty", "wish", "shown"), [(False, None, False), (True, False, False), (False, True, True)])
def test_who_sees_the_line(terminal, tty, wish, shown):
    terminal.tty = tty
    with config.progress(wish), progress.Stage("f", "compiling"):
        assert bool(progress._active) == shown
        if shown:
            wait_for(lambda: "compiling f" in terminal.text)
        else:
            assert progress._watcher is None or not progress._active
    assert shown or terminal.text == ""


@pytest.mark.parametrize("stderr", ["missing", "closed"])
def test_without_a_usable_stderr(monkeypatch, stderr):
    stderr = io.StringIO() if stderr == "closed" else None
    if stderr:
        stderr.close()
    monkeypatch.setattr(sys, "stderr", stderr)
    monkeypatch.setattr(progress, "PATIENCE", 0.001)
    jit(lambda x: x)(X)
    with config.progress(True):
        jit(lambda x: x)(X)
        with progress.Stage("f", "compiling"):
            time.sleep(0.05)
    wait_for(lambda: progress._watcher is None)


def test_a_short_stage_shows_nothing(terminal):
    for _ in range(20):
        with progress.Stage("f", "compiling"):
            time.sleep(0.005)  # together twice as long as the patience
    wait_for(lambda: progress._watcher is None)
    assert terminal.text == ""


# --- the environment ---------------------------------------------------------------------------------

SCRIPT = """
import numpy as np
from lowering import progress
progress.PATIENCE = 0.1
import time
from jaxlite import jit
def slow(x):
    time.sleep(0.5)
    return x
jit(slow)(np.float32(1))
"""


@pytest.mark.parametrize(
    ("variables", "explained", "line"),
    [({"JAXLITE_EXPLAIN": "1"}, True, False), ({"JAX_EXPLAIN_CACHE_MISSES": "1", "JAXLITE_PROGRESS": "1"}, True, True),
     ({"JAXLITE_PROGRESS": "0", "JAXLITE_EXPLAIN": "0"}, False, False)])
def test_the_environment_asks(variables, explained, line):
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "JAXLITE_"))}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env={**clean, "PYTHONPATH": str(ROOT), **variables},
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert ("compiled slow at <string>:7" in done.stderr) == explained
    assert ("jaxlite: tracing slow" in done.stderr) == line
