"""Shortcuts past lowering: what has the same identity, where there are none, and that they never lead astray."""

import marshal
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import jaxlite
import jaxlite.numpy as jnp
import lowering
from jaxlite import jit, lax
from jaxlite.core import config
from jaxlite.extend.core import Primitive
from lowering import report
from lowering.cache import entries, identity, shortcuts

ROOT = Path(__file__).resolve().parents[2]
X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
Y = X[::-1] + 2


def of(fun, *args, **options):
    return identity.identity(jit(fun, **options).trace(*args).jaxpr.jaxpr)


# --- identity ----------------------------------------------------------------------------------------


def scanned(step):
    return lambda x, y: lax.scan(step, x, y)


def loop(n):
    return lambda x, y: lax.fori_loop(0, n, lambda i, v: v + y, x)


def inner(name, value):
    def fun(x):
        return x * value

    fun.__name__ = name
    return jit(fun)


DIFFERENT = {
    "literal": (lambda x, y: x * 2.0, lambda x, y: x * 3.0),
    "sign of zero": (lambda x, y: x + 0.0, lambda x, y: x + -0.0),
    "operation": (lambda x, y: x + y, lambda x, y: x * y),
    "order of operands": (lambda x, y: x - y, lambda x, y: y - x),
    "order of results": (lambda x, y: (x, y), lambda x, y: (y, x)),
    "a result twice": (lambda x, y: (x + 1, x + 1), lambda x, y: (x + 1, x + 2)),
    "which value is read": (lambda x, y: jnp.sin(x) + jnp.cos(x), lambda x, y: jnp.sin(x) + jnp.cos(jnp.sin(x))),
    "axis": (lambda x, y: x.sum(0), lambda x, y: x.sum(1)),
    "dtype": (lambda x, y: x.astype("float16"), lambda x, y: x.astype("bfloat16")),
    "precision": (lambda x, y: jnp.dot(x, y.T), lambda x, y: jnp.dot(x, y.T, precision="highest")),
    "mode": (lambda x, y: x.at[5].set(1, mode="drop"), lambda x, y: x.at[5].set(1, mode="clip")),
    "body": (scanned(lambda c, v: (c + v, v)), scanned(lambda c, v: (c * v, v))),
    "length": (loop(3), loop(4)),
    "branches": (lambda x, y: lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, y),
                 lambda x, y: lax.cond(x[0, 0] > 0, jnp.cos, jnp.sin, y)),
    "name of a function": (lambda x, y: inner("a", 2.0)(x), lambda x, y: inner("b", 2.0)(x)),
    "inside a function": (lambda x, y: inner("a", 2.0)(x), lambda x, y: inner("a", 3.0)(x)),
    "generator": (lambda x, y: jaxlite.random.key_data(jaxlite.random.key(0)),
                  lambda x, y: jaxlite.random.key_data(jaxlite.random.key(0, impl="rbg"))),
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_another_program_has_another_identity(what):
    first, second = (of(fun, X, Y) for fun in DIFFERENT[what])
    assert first and second and first != second
    assert first == of(DIFFERENT[what][0], X, Y)


def test_types_are_told_apart():
    with jaxlite.enable_x64():
        values = [X, X[:1], X[0], X.astype(np.float16), X.astype(np.float64), X.astype(np.int32), 1.0, np.float32(1)]
        assert len({of(lambda x: x * 2, value) for value in values}) == len(values)


def test_values_of_params_are_told_apart():
    values = [
        0, False, 0.0, -0.0, 0j, "0", b"0", None, (), (0,), ((0,),), (0, 0), [0], "float32", np.dtype("float32"),
        np.dtype("float16"), np.float32(0), np.float64(0), np.int32(0), np.zeros(1, np.int32), np.zeros((1, 1), np.int32),
        lax.GatherScatterMode.CLIP, lax.Precision.HIGH, float("nan"), "literal", ("dtype", "float32"), ["dtype", "float32"],
        jaxlite.random.key(0).dtype,
    ]
    written = {marshal.dumps(identity._Writer().param(value), 2) for value in values}
    assert len(written) == len(values)


def test_names_and_lines_do_not_matter():
    def f(x, y):
        total = x + y
        return jnp.sin(total)

    def g(first, second):
        # another comment
        return jnp.sin(first + second)

    assert of(f, X, Y) == of(g, X, Y)


def mine():
    primitive = Primitive("mine_for_shortcuts")
    primitive.def_abstract_eval(lambda x: x)
    return primitive


NONE = {
    "effects": lambda x: (jaxlite.debug.print("{}", x), x)[1],
    "a callback": lambda x: jaxlite.pure_callback(np.sin, x, x, vmap_method="sequential"),
    "effects in a body": lambda x: lax.scan(lambda c, v: (jaxlite.debug.print("{}", v), (c, v))[1], 0.0, x),
}


@pytest.mark.parametrize("what", NONE)
def test_programs_without_an_identity(what):
    assert of(NONE[what], X) is None


def test_primitives_of_others_have_no_identity():
    primitive = mine()
    assert of(primitive.bind, X) is None
    assert of(lambda x: lax.fori_loop(0, 3, lambda i, v: primitive.bind(v), x), X) is None


def test_unknown_params_have_no_identity():
    for value in (object(), len, {1: 2}, {1}, np.array([None])):
        with pytest.raises(identity._Unknown):
            identity._Writer().param((1, value))


# --- processes ---------------------------------------------------------------------------------------

SCRIPT = """
import sys, warnings
import jaxlite, jaxlite.numpy as jnp, numpy as np
from jaxlite import lax
warnings.simplefilter("always")
table = jnp.arange(4.0)
def step(carry, x):
    return carry * 0.5 + x, jnp.tanh(carry)
def f(unused, x, key):
    noise = jaxlite.random.normal(key, (3,))
    carry, out = lax.scan(jaxlite.checkpoint(step), x, jnp.ones((4, 3)))
    return carry + table[1], jaxlite.nn.relu(out).sum(0), noise
x = np.array([1., 2, 3], 'f')
key = jaxlite.random.key(3)
loss = lambda x, key: sum(each.sum() for each in f(None, x, key)[:2])
outs = jaxlite.jit(f)(x, jnp.asarray(x), key), jaxlite.jit(jaxlite.grad(loss))(x, key)
given = jnp.array(x)
outs += jaxlite.jit(lambda a: a + 1, donate_argnums=0)(given), table[::2]
print([np.asarray(each).tolist() for each in jaxlite.tree.leaves(outs)], given.is_deleted())
print(any(each in sys.modules for each in ("jaxlib.mlir.ir", "lowering.module", "lowering.lowered")))
"""


def run(code, parent, **environment):
    environment = {**os.environ, "JAXLITE_COMPILATION_CACHE_DIR": str(parent), "JAXLITE_LOG_COMPILES": "1",
                   "JAXLITE_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "PYTHONPATH": str(ROOT), **environment}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), [line for line in done.stderr.splitlines() if line.startswith("compiled ")], done.stderr


def test_a_later_process_gets_the_same_without_lowering(tmp_path):
    (first, had_mlir), compiles, _ = run(SCRIPT, tmp_path, PYTHONHASHSEED="1")
    assert had_mlir == "True" and not any("hit" in line for line in compiles)
    (second, had_mlir), again, _ = run(SCRIPT, tmp_path, PYTHONHASHSEED="2")
    assert second == first and had_mlir == "False"
    assert len(again) == len(compiles) and all("lower 0 ms" in line and "(cache hit)" in line for line in again), again


def test_warnings_of_lowering_come_in_each_process(tmp_path):
    code = "import jaxlite, jaxlite.numpy as jnp; jaxlite.jit(lambda a: a.sum(), donate_argnums=0)(jnp.ones(3))"
    for _ in range(2):
        assert "donated buffers were not usable" in run(code, tmp_path)[2]


def test_a_folder_that_cannot_be_made_is_one_warning():
    code = "import jaxlite.numpy as jnp; print((jnp.ones(3) * 2).sum())"
    (out,), _, err = run(code, "/proc/none")
    assert out == "6.0" and err.count("cannot write") == 1


# --- in one process ----------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The cache is on, in a folder of its own."""
    monkeypatch.setattr(report, "_complaints", set())
    before = jaxlite.config.values
    jaxlite.config.update("jax_compilation_cache_dir", tmp_path)
    jaxlite.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    yield tmp_path
    for name in ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs"):
        jaxlite.config.update(name, before[name])


def said(caplog, fun, *args, **options):
    """What the log says of the cache and of lowering in the one compile of a call."""
    caplog.clear()
    with jaxlite.log_compiles(True):
        jitted = jit(fun, **options)
        jitted.clear_cache()
        out = jitted(*args)
    (line,) = [record.message for record in caplog.records if record.message.startswith("compiled")]
    return line.partition("(cache ")[2].rstrip(")"), "lower 0 ms" in line, np.asarray(out)


def double(x):
    return x * 2


def test_what_is_found_and_what_is_not(folder, caplog):
    assert said(caplog, double, X)[:2] == ("miss", False)
    assert said(caplog, double, X)[:2] == ("hit", True)
    assert said(caplog, double, X, keep_unused=True)[:2] == ("hit", False)  # the same module, and another shortcut to it
    assert said(caplog, double, X, keep_unused=True)[:2] == ("hit", True)
    assert said(caplog, double, X, compiler_options={"xla_cpu_enable_fast_math": True})[:2] == ("miss", False)
    assert said(caplog, double, X, donate_argnums=0)[:2] == ("miss", False)
    assert said(caplog, double, X[:1])[:2] == ("miss", False)


def test_values_of_small_arrays_are_told_apart(folder, caplog):
    for value in (2.0, 3.0):
        for found in (("miss", False), ("hit", True)):
            table = np.full(3, value, np.float32)
            *cache, out = said(caplog, lambda x, table=table: x * table, X)
            assert tuple(cache) == found and np.array_equal(out, X * table)


def test_options_that_lowering_asks_for_are_told_apart(folder, caplog):
    def bits(key):
        return jaxlite.random.bits(key, (4,))

    key, drawn = jaxlite.random.key(0), {}
    for _ in range(2):
        for flag in (True, False):
            with config.threefry_partitionable(flag):
                drawn.setdefault(flag, []).append(said(caplog, bits, key)[2].tolist())
    assert drawn[True][0] == drawn[True][1] != drawn[False][0] == drawn[False][1]


def test_there_is_none_past_custom_calls(folder, caplog):
    matrix = np.eye(3, dtype=np.float32) * 4
    assert said(caplog, jnp.linalg.cholesky, matrix)[:2] == ("miss", False)
    for _ in range(2):
        found, _, out = said(caplog, jnp.linalg.cholesky, matrix)
        assert found == "hit" and np.array_equal(out, np.eye(3) * 2)
    assert not (folder / "shortcuts").exists()


def test_who_dumps_sees_the_module(folder, caplog):
    said(caplog, double, X)
    jaxlite.config.update("jaxlite_dump_ir_to", str(folder / "dump"))
    try:
        assert said(caplog, double, X)[:2] == ("hit", False)
    finally:
        jaxlite.config.update("jaxlite_dump_ir_to", None)
    assert list((folder / "dump").glob("*.stablehlo.mlir"))


def spoil(path):
    content = path.read_bytes()
    path.write_bytes(content[:-5] + bytes([content[-5] ^ 4]) + content[-4:])


@pytest.mark.parametrize("how", ["the executable is gone", "the executable is damaged", "the shortcut is damaged"])
def test_a_way_that_leads_nowhere_is_not_taken(folder, caplog, how):
    said(caplog, double, X)
    (target,) = (folder / "executables").iterdir()
    (short,) = (folder / "shortcuts").iterdir()
    if how == "the executable is gone":
        target.unlink()
    else:
        spoil(target if "executable" in how else short)
    found, was_short, out = said(caplog, double, X)
    assert (found, was_short) == ("hit" if "shortcut" in how else "miss", False)
    np.testing.assert_array_equal(out, X * 2)
    assert said(caplog, double, X)[:2] == ("hit", True)


def test_sources_of_ours_are_known_by_their_contents(tmp_path, folder, monkeypatch):
    sources = shortcuts._sources.__wrapped__
    file = tmp_path / "part" / "rule.py"
    file.parent.mkdir()
    file.write_text("a = 1\n")
    assert sources((str(tmp_path),)) is None  # it is younger than this process
    monkeypatch.setattr(lowering, "IMPORTED", 1 << 62)
    seen = {sources((str(tmp_path),))}
    status = file.stat()
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    seen.add(sources((str(tmp_path),)))
    assert len(seen) == 1
    file.write_text("a = 2\n")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    seen.add(sources((str(tmp_path),)))
    file.rename(file.with_name("other.py"))
    seen.add(sources((str(tmp_path),)))
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "rule.py").write_text("")
    seen.add(sources((str(tmp_path),)))
    assert len(seen) == 3 and None not in seen
    assert sources((str(tmp_path / "missing"),)) is None


def test_limits_hold_for_shortcuts_too(folder):
    before = entries.limit()
    jaxlite.config.update("jax_compilation_cache_max_size", 64)
    try:
        jit(double)(X)
        assert not list(folder.glob("*/*"))
    finally:
        jaxlite.config.update("jax_compilation_cache_max_size", before)
