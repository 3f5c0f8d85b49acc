"""The persistent compile cache: what is a hit, what is a miss, and that nothing on the disk can do harm."""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import jaxlite
import jaxlite.numpy as jnp
from jaxlite import jit, lax
from jaxlite.commands import cache as command
from lowering import executable, platforms, report, xla
from lowering.cache import entries, keys

ROOT = Path(__file__).resolve().parents[2]
X = np.linspace(0, 1, 8, dtype=np.float32)
KEY = bytes(range(32))


@pytest.fixture(autouse=True)
def _warnings_again(monkeypatch):
    monkeypatch.setattr(report, "_complaints", set())


@pytest.fixture
def folder(tmp_path):
    """The cache is on, in a folder of its own, for compiles of any length; gives the folder of its entries."""
    before = jaxlite.config.values
    jaxlite.config.update("jax_compilation_cache_dir", tmp_path / "cache")
    jaxlite.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    yield tmp_path / "cache" / "executables"
    for name in ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs", "jax_compilation_cache_max_size"):
        jaxlite.config.update(name, before[name])


def said(caplog, fun, *args, compiler_options=None):
    """What the log says of the cache in the one compile of a call, and the result."""
    caplog.clear()
    with jaxlite.log_compiles(True):
        jitted = jit(fun, compiler_options=compiler_options)
        jitted.clear_cache()  # what this process remembers
        out = np.asarray(jitted(*args))
    (line,) = [record.message for record in caplog.records if record.message.startswith("compiled")]
    return line.partition("(cache ")[2].rstrip(")") or "off", out


def program(source, file="a.py"):
    """The function `f` of a text, as if it stood in `file`."""
    names = {"jnp": jnp, "lax": lax, "np": np}
    exec(compile(source, file, "exec"), names)
    return names["f"]


# --- the key -----------------------------------------------------------------------------------------

SOURCE = "def f(x):\n    return jnp.sin(x) * 2.5\n"


def test_comments_files_and_lines_do_not_matter_and_meaning_does(folder, caplog):
    expected = np.sin(X) * 2.5
    assert said(caplog, program(SOURCE), X)[0] == "miss"
    edited = "# a comment\n\n\ndef f(renamed):\n    y = jnp.sin(renamed)  # another\n    return y * 2.5\n"
    for fun in (program(SOURCE, "/moved/b.py"), program(edited)):
        found, out = said(caplog, fun, X)
        assert found == "hit"
        np.testing.assert_allclose(out, expected, rtol=1e-6)
    changes = {
        "constant": (program(SOURCE.replace("2.5", "2.75")), X, None),
        "operation": (program(SOURCE.replace("sin", "cos")), X, None),
        "shape": (program(SOURCE), X[:7], None),
        "dtype": (program(SOURCE), X.astype(np.float16), None),
        "option": (program(SOURCE), X, {"xla_cpu_enable_fast_math": True}),
    }
    for what, (fun, x, options) in changes.items():
        assert said(caplog, fun, x, compiler_options=options)[0] == "miss", what
        assert said(caplog, fun, x, compiler_options=options)[0] == "hit", what
    np.testing.assert_allclose(said(caplog, program(SOURCE.replace("sin", "cos")), X)[1], np.cos(X) * 2.5, rtol=1e-6)


def key(text, *, overrides=None):
    device = platforms.devices("cpu")[0]
    module = xla.ir.Module.parse(text, xla.make_context())
    found = keys.key_of(module, device, executable.compile_options(device, overrides), overrides or {})
    return found and found.digest


IDENTITY = "func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> { return %a : tensor<4xf32> }"
CALL = """func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.custom_call @TARGET(%a) {api_version = 4 : i32} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32> }"""


def test_the_key_holds_versions_machine_and_flags(folder, monkeypatch):
    same = key(IDENTITY)
    assert len(same) == 32 and key(IDENTITY) == same
    others = []
    for owner, name, value in [(xla, "VERSIONS", ("0.0", 1)), (xla, "hardware_description", lambda device: b"+avx9"),
                               (os, "sched_getaffinity", lambda pid: range(99))]:
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, value)
            keys._machine.cache_clear()
            others.append(key(IDENTITY))
    with monkeypatch.context() as patch:
        patch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
        keys._machine.cache_clear()
        others.append(key(IDENTITY))
    with monkeypatch.context() as patch:
        patch.setitem(keys.settings, "version", lambda: "another")
        keys._machine.cache_clear()
        others.append(key(IDENTITY))
    assert key(IDENTITY) == same and len({same, *others}) == 6


def test_the_processor_is_described():
    assert b"avx" in xla.hardware_description(platforms.devices("cpu")[0]) or os.uname().machine != "x86_64"


@pytest.mark.parametrize(
    ("target", "kept"), [("lapack_spotrf_ffi", True), ("xla_ffi_python_cpu_callback", False), ("mine", False)])
def test_programs_bound_to_this_process_are_not_cached(folder, target, kept):
    assert (key(CALL.replace("TARGET", target)) is not None) == kept


def test_programs_whose_temporaries_are_in_several_blocks_are_not_cached(folder, caplog):
    """XLA does not write them. That is no complaint about the cache, which works for all others."""
    x = np.linspace(0, 1, 1 << 20, dtype=np.float32)

    def f(x):
        sorted_each = [jnp.sort(x * k) for k in range(1, 13)]
        return sum(jnp.cumsum(each) @ sorted_each[(k + 7) % 12] for k, each in enumerate(sorted_each))

    for _ in range(2):
        assert said(caplog, f, x)[0] == "miss"
        assert not [record.message for record in caplog.records if "does not work" in record.message]


def test_compiles_that_are_asked_to_dump_are_not_cached(folder, monkeypatch):
    assert key(IDENTITY, overrides={"xla_dump_to": "somewhere"}) is None
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=somewhere")
    assert key(IDENTITY) is None


def test_short_compiles_are_not_kept_and_the_option_turns_it_off(folder, caplog, monkeypatch):
    jaxlite.config.update("jax_persistent_cache_min_compile_time_secs", 1000)
    for _ in range(2):
        assert said(caplog, lambda x: x - 3, X)[0] == "miss"
    assert not folder.exists()
    jaxlite.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    for none in ("", None):
        jaxlite.config.update("jax_compilation_cache_dir", none)
        assert said(caplog, lambda x: x - 4, X)[0] == "off"
    assert not folder.exists()


def test_the_dump_says_it(folder, tmp_path):
    for expected in ("miss", "hit"):
        jaxlite.config.update("jaxlite_dump_ir_to", str(tmp_path / expected))
        try:
            jit(lambda x: x * 7)(X)
        finally:
            jaxlite.config.update("jaxlite_dump_ir_to", None)
        (facts,) = (tmp_path / expected).glob("*.compile.json")
        assert json.loads(facts.read_text())["cache"] == expected


# --- processes ---------------------------------------------------------------------------------------

SCRIPT = """
import jaxlite, jaxlite.numpy as jnp, numpy as np
def f(x, y):
    return x + jnp.linalg.cholesky(jnp.eye(3) * 4)[0], jnp.sort(y)
x = jnp.arange(3.0)
a, b = jaxlite.jit(f, donate_argnums=0)(x, np.array([3., 1, 2], 'f'))
print(a.tolist(), b.tolist(), x.is_deleted())
"""


def start(code, parent, **environment):
    environment = {**os.environ, "JAXLITE_COMPILATION_CACHE_DIR": str(parent), "JAXLITE_LOG_COMPILES": "1",
                   "JAXLITE_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "PYTHONPATH": str(ROOT), **environment}
    return subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            text=True)


def test_processes_side_by_side_and_one_after(tmp_path):
    together = [start(SCRIPT, tmp_path, PYTHONHASHSEED=seed) for seed in "12"]
    outputs = [process.communicate(timeout=120) for process in together]
    outputs.append(start(SCRIPT, tmp_path, PYTHONHASHSEED="3").communicate(timeout=120))
    for out, err in outputs:
        assert out.strip() == "[2.0, 1.0, 2.0] [1.0, 2.0, 3.0] True", err
    *_, (_, err) = outputs
    compiles = [line for line in err.splitlines() if line.startswith("compiled ")]
    assert compiles and all(line.endswith("(cache hit)") for line in compiles), err
    found = command.entries(entries.Folder(str(tmp_path)))
    assert all(not entry["damage"] and entry["hits"] >= 1 for entry in found)
    assert stat.S_IMODE((tmp_path / "executables").stat().st_mode) == 0o700


@pytest.fixture
def one(tmp_path):
    """A folder with one entry; gives the folder, the entry's path and its content."""
    kept = entries.Folder(str(tmp_path))
    kept.store(KEY, b"an executable", {"function": "f"}, -1)
    path = tmp_path / "executables" / KEY.hex()
    return kept, path, path.read_bytes()


KILLED = {
    "in the middle of the file": "signal.signal(signal.SIGXFSZ, signal.SIG_DFL)\n"
                                 "resource.setrlimit(resource.RLIMIT_CORE, (0, 0))\n"
                                 "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))",
    "before the file has its name": "os.replace = lambda *names: os.kill(os.getpid(), signal.SIGKILL)",
}


@pytest.mark.parametrize("when", KILLED)
def test_killed_while_it_writes(one, when):
    kept, path, _ = one
    code = (f"import os, resource, signal, sys; from lowering.cache.entries import Folder\n{KILLED[when]}\n"
            f"Folder(sys.argv[1]).store({KEY!r}, bytes(1 << 20), {{}}, -1)")
    done = subprocess.run([sys.executable, "-c", code, str(path.parent.parent)], cwd=ROOT, timeout=120)
    assert done.returncode in (-signal.SIGKILL, -signal.SIGXFSZ)
    assert kept.load(KEY) == b"an executable"
    (left,) = path.parent.glob("*.tmp")
    os.utime(left, (0, 0))  # long ago
    after = entries.Folder(str(path.parent.parent))
    after.store(KEY, b"executable", {}, -1)
    assert not left.exists() and after.load(KEY) == b"executable"


# --- damage ------------------------------------------------------------------------------------------


def test_any_flipped_bit_and_any_truncation_is_a_miss(one):
    kept, path, content = one
    spoiled = [content[:size] for size in range(len(content))]
    for index in range(len(content)):
        spoiled.append(content[:index] + bytes([content[index] ^ (1 << index % 8)]) + content[index + 1:])
    for each in spoiled:
        path.write_bytes(each)
        assert kept.load(KEY) is None and not path.exists()
    kept.store(KEY, b"another", {}, -1)
    assert kept.load(KEY) == b"another"


def test_loads_are_counted_and_change_nothing(one):
    kept, path, content = one
    assert [kept.load(KEY) for _ in range(3)] == [b"an executable"] * 3
    assert entries.read_entry(str(path)).hits == 3 and path.read_bytes()[:len(content)] == content


def test_an_entry_under_another_name_is_a_miss(one):
    kept, path, _ = one
    other = bytes(32)
    path.rename(path.with_name(other.hex()))
    assert kept.load(other) is None


def test_what_jaxlib_refuses_is_replaced(folder, caplog):
    assert said(caplog, lambda x: x * 11, X)[0] == "miss"
    (path,) = folder.iterdir()
    entries.Folder(str(folder.parent)).store(bytes.fromhex(path.name), b"no executable, well kept", {}, -1)
    for expected in ("miss", "hit"):
        found, out = said(caplog, lambda x: x * 11, X)
        assert found == expected
        np.testing.assert_array_equal(out, X * 11)


def test_a_damaged_entry_of_a_program_is_replaced(folder, caplog):
    said(caplog, lambda x: x * 13, X)
    (path,) = folder.iterdir()
    path.write_bytes(path.read_bytes()[:-100])
    assert [said(caplog, lambda x: x * 13, X)[0] for _ in range(2)] == ["miss", "hit"]


def _of_another_user(monkeypatch, path):
    real = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: real + 1)


REFUSED = {
    "owned by another user": _of_another_user,
    "others can write": lambda patch, path: path.chmod(0o602),
    "the group can write": lambda patch, path: path.chmod(0o620),
    "a link": lambda patch, path: path.symlink_to(path.rename(path.with_name("elsewhere"))),
    "a pipe": lambda patch, path: (path.unlink(), os.mkfifo(path)),
}


@pytest.mark.parametrize("how", REFUSED)
def test_entries_that_others_may_have_written_are_not_loaded(one, how, monkeypatch):
    kept, path, _ = one
    REFUSED[how](monkeypatch, path)
    assert kept.load(KEY) is None


@pytest.mark.parametrize("how", ["owned by another user", "others can write", "the group can write", "a link"])
def test_folders_that_others_may_write_to_are_not_used(one, how, monkeypatch, caplog):
    _, path, content = one
    REFUSED[how](monkeypatch, path.parent)
    for _ in range(2):
        kept = entries.Folder(str(path.parent.parent))
        assert kept.refused and kept.load(KEY) is None
        kept.store(KEY, b"not written", {}, -1)
    assert path.read_bytes() == content
    assert len(caplog.records) == 1 and "does not use" in caplog.text


# --- room --------------------------------------------------------------------------------------------


def test_the_least_recently_used_go_first(tmp_path):
    kept = entries.Folder(str(tmp_path))
    keys = [bytes([i]) * 32 for i in range(5)]
    for age, each in zip((50, 40, 30, 20), keys, strict=False):
        kept.store(each, bytes(1000), {}, -1)
        used = time.time() - age
        os.utime(tmp_path / "executables" / each.hex(), (used, used))
    assert kept.load(keys[0]) is not None  # now the last used
    size = (tmp_path / "executables" / keys[1].hex()).stat().st_size
    kept.store(keys[4], bytes(1000), {}, 4 * size)
    assert [kept.load(each) is not None for each in keys] == [True, False, False, True, True]
    kept.store(KEY, bytes(9000), {}, 4 * size)  # larger than all of it
    assert kept.load(KEY) is None and kept.load(keys[4]) is not None


def test_few_stores_look_at_the_whole_folder(tmp_path, monkeypatch):
    looks = []
    monkeypatch.setattr(entries.Folder, "_make_room", lambda self, limit: looks.append(self) or 0)
    kept = entries.Folder(str(tmp_path))
    for i in range(1, 9):
        kept.store(bytes([i]) * 32, bytes(1000), {}, 1 << 20)
        assert len(looks) == (i > 3)  # by then it has stored 1/256 of the limit
    another = entries.Folder(str(tmp_path))
    another.store(bytes([9]) * 32, bytes(1000), {}, 1 << 20)
    assert len(looks) == 1
    another.store(bytes(32), bytes(1000), {}, 1 << 20)  # one key in 256
    assert looks == [kept, another]


def test_a_full_disk_is_one_warning(tmp_path, caplog):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    kept = entries.Folder(str(tmp_path))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, before[1]))
    try:
        for _ in range(2):
            kept.store(KEY, bytes(1 << 20), {}, -1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert len(caplog.records) == 1 and "cannot write" in caplog.text
    assert list((tmp_path / "executables").iterdir()) == []


def test_a_read_only_disk_is_one_warning_and_hits_go_on(folder, caplog, monkeypatch):
    said(caplog, lambda x: x * 17, X)
    plain = os.open

    def read_only(path, flags, *rest, **options):
        if flags & (os.O_RDWR | os.O_WRONLY) and str(path).startswith(str(folder)):
            raise OSError(errno.EROFS, "Read-only file system")
        return plain(path, flags, *rest, **options)

    monkeypatch.setattr(os, "open", read_only)
    assert said(caplog, lambda x: x * 17, X)[0] == "hit"
    caplog.clear()
    for factor in (18, 19):
        np.testing.assert_array_equal(jit(lambda x, n=factor: x * n)(X), X * factor)
    assert len(caplog.records) == 1 and "Read-only file system" in caplog.text


# --- the command -------------------------------------------------------------------------------------


def test_list_verify_clear(folder, caplog, capsys):
    for _ in range(3):
        said(caplog, program("def some_step(x):\n    return x + 23\nf = some_step"), X)
    assert command.main([]) == 0
    head, row, total = capsys.readouterr().out.splitlines()
    columns = {name: row[head.index(name):].split("  ")[0] for name in ("function", "hits", "jaxlib", "platform")}
    assert columns == {"function": "some_step", "hits": "2", "jaxlib": xla.VERSION_TEXT, "platform": "cpu"}
    assert total.startswith("1 entries, ")
    assert command.main(["verify"]) == 0
    (path,) = folder.iterdir()
    path.write_bytes(b"jaxlite0" + path.read_bytes()[8:])
    assert command.main(["verify"]) == 1 and "of another format" in capsys.readouterr().out
    assert command.main(["list"]) == 0 and "(of another format)" in capsys.readouterr().out
    assert command.main(["clear"]) == 0 and list(folder.iterdir()) == []
    assert command.main(["--dir", ""]) == 0 and "is off" in capsys.readouterr().out


def test_the_default_folder_is_the_users_cache(monkeypatch):
    from jaxlite.core import config

    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere/else")
    assert config._cache_folder() == os.path.join("/somewhere/else", "jaxlite")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("HOME", "/home/someone")
    assert config._cache_folder() == "/home/someone/.cache/jaxlite"
