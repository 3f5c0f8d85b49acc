"""Seeing inside: the files of JAXLITE_DUMP_IR_TO and the lines of JAXLITE_LOG_COMPILES."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import jaxlite
from jaxlite import jit, lax
from jaxlite.core import config as core_config

pytestmark = pytest.mark.usefixtures("uncached")

HERE = Path(__file__)
ROOT = HERE.resolve().parent.parent
F32 = np.float32


@pytest.fixture
def dump(tmp_path):
    """Sets the dump's options; gives the folder."""
    folder = tmp_path / "ir"
    jaxlite.config.update("jaxlite_dump_ir_to", str(folder))
    yield folder
    jaxlite.config.update("jaxlite_dump_ir_to", None)
    jaxlite.config.update("jaxlite_dump_ir_modes", "jaxpr,stablehlo,hlo")


def names(folder):
    return sorted(file.name for file in folder.iterdir() if not file.name.startswith((".", "index")))


def train_step(params, batch, unused):
    return {"w": lax.add(params["w"], lax.mul(batch, batch))}


def test_files_of_one_compile(dump):
    f = jit(train_step, donate_argnums=0)
    x = np.ones(3, F32)
    for _ in range(3):
        f({"w": x}, x, 1)
    stem = "0001_train_step"
    assert names(dump) == [f"{stem}.{end}" for end in ("compile.json", "hlo.txt", "jaxpr.txt", "stablehlo.mlir")]
    assert (dump / f"{stem}.jaxpr.txt").read_text().strip() == str(f.trace({"w": x}, x, 1).jaxpr)
    line = train_step.__code__.co_firstlineno
    mlir = (dump / f"{stem}.stablehlo.mlir").read_text()
    assert "stablehlo.multiply" in mlir and f'{HERE.name}":{line + 1}' in mlir
    assert (dump / f"{stem}.hlo.txt").read_text().startswith("HloModule jit_train_step")

    facts = json.loads((dump / f"{stem}.compile.json").read_text())
    assert facts["function"] == "train_step" and facts["location"] == f"{train_step.__code__.co_filename}:{line}"
    assert HERE.name in facts["called_from"]
    assert [(each["name"], each["type"], each["weak_type"], each["used"], each["donated"])
            for each in facts["arguments"]] == [("params['w']", "f32[3]", False, True, True),
                                                ("batch", "f32[3]", False, True, False),
                                                ("unused", "i32[]", True, False, False)]
    assert [each["type"] for each in facts["results"]] == ["f32[3]"]
    assert set(facts["seconds"]) == {"trace", "lower", "compile"} and all(t > 0 for t in facts["seconds"].values())
    assert facts["cost"]["flops"] == 6 and facts["memory"]["argument_size_in_bytes"] == 24
    assert facts["platform"] == "cpu" and facts["jaxlib"][:2] == "0."
    assert facts["files"] == [f"{stem}.jaxpr.txt", f"{stem}.stablehlo.mlir", f"{stem}.hlo.txt"]


def test_numbers_go_on(dump):
    dump.mkdir()
    (dump / "0041_before.hlo.txt").write_text("")
    (dump / "notes.txt").write_text("")
    jit(lambda x: lax.sin(x))(F32(1))
    lax.cos(np.ones(7, F32))
    assert {name.partition(".")[0] for name in names(dump)} >= {"0042_lambda", "0043_cos"}
    assert json.loads((dump / "0043_cos.compile.json").read_text())["location"] == ""  # made by no user function


@pytest.mark.parametrize(
    ("modes", "endings"),
    [("jaxpr", {"jaxpr.txt"}), ("hlo, stablehlo", {"hlo.txt", "stablehlo.mlir"}), ("", set()),
     ("all", {"hlo.txt", "stablehlo.mlir", "jaxpr.txt", "page.html"})],
)
def test_modes(dump, modes, endings):
    jaxlite.config.update("jaxlite_dump_ir_modes", modes)
    jit(lambda x: x)(F32(1))
    assert {name.partition(".")[2] for name in names(dump)} == endings | {"compile.json"}


def test_the_page_of_a_compile(dump):
    jaxlite.config.update("jaxlite_dump_ir_modes", "page")
    jit(train_step)({"w": np.ones(3, F32)}, np.ones(3, F32), 1)
    text = (dump / "0001_train_step.page.html").read_text()
    assert "stablehlo.multiply" in text and "optimised HLO" in text and "temporaries" in text
    assert 'href="0001_train_step.page.html">page<' in (dump / "index.html").read_text()


def test_an_unknown_mode_is_one_warning(dump, caplog):
    jaxlite.config.update("jaxlite_dump_ir_modes", "jaxpr,assembler")
    for _ in range(2):
        jit(lambda x: x)(F32(1))
    assert [record.message for record in caplog.records] == [
        "unknown in the modes of the IR dump: assembler; known are jaxpr, stablehlo, hlo, page, all"]
    assert len(names(dump)) == 4


def test_stages_are_dumped_when_they_compile(dump):
    lowered = jit(train_step).lower({"w": F32(1)}, F32(2), 1)
    assert not dump.exists()
    lowered.compile(), lowered.compile()
    assert len(names(dump)) == 4


def test_closures_and_odd_names(dump):
    big = np.ones(1 << 16, F32)

    def f(x):
        return lax.add(x, big)

    f.__name__ = "../odd name/" + "x" * 300
    jit(f)(big)
    (json_file,) = (dump / name for name in names(dump) if name.endswith("json"))
    assert re.fullmatch(r"0001_odd_name_x+\.compile\.json", json_file.name) and len(json_file.name) < 120
    assert [each["type"] for each in json.loads(json_file.read_text())["constants"]] == ["f32[65536]"]
    assert sum((dump / name).stat().st_size for name in names(dump)) < 30_000


def bad_folders(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    return [str(file), str(file / "below"), "/proc/nothing/here"]


@pytest.mark.parametrize("index", range(3))
def test_an_unwritable_folder_is_one_warning(dump, tmp_path, caplog, index):
    jaxlite.config.update("jaxlite_dump_ir_to", bad_folders(tmp_path)[index])
    for _ in range(3):
        assert jit(lambda x: lax.add(x, x))(F32(1)).tolist() == 2
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("jaxlite", "WARNING") and "cannot write" in record.message


def test_threads_get_their_own_numbers(dump, monkeypatch):
    listdir = os.listdir

    def slow_listdir(path):
        names = listdir(path)
        time.sleep(0.01)  # time for another thread to see the same names, if nothing prevents it
        return names

    monkeypatch.setattr(os, "listdir", slow_listdir)
    functions = [jit(lambda x, n=n: lax.add(x, F32(n))) for n in range(8)]
    threads = [threading.Thread(target=f, args=(F32(1),)) for f in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    files = names(dump)
    numbers = sorted({int(name[:4]) for name in files})
    assert numbers == list(range(1, len(numbers) + 1)) and len(files) == 4 * len(numbers)
    assert sum("lambda.compile.json" in name for name in files) == 8


SCRIPT = """
import numpy as np
from jaxlite import jit, lax
for n in range(4):
    jit(lambda x: lax.add(x, np.float32(n)))(np.float32(1))
"""


def run(tmp_path, code, count=1, **env):
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "JAXLITE_"))}
    started = [subprocess.Popen([sys.executable, "-c", code], env={**clean, "PYTHONPATH": str(ROOT), **env},
                                cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
               for _ in range(count)]
    done = [process.communicate(timeout=120) for process in started]
    assert all(process.returncode == 0 for process in started), done
    return done


def test_a_full_disk_is_one_warning(tmp_path):
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"  # every write fails from here on
    ((_, errors),) = run(tmp_path, "import jaxlite\n" + limit + SCRIPT, JAXLITE_DUMP_IR_TO="ir")
    assert errors.count("cannot write to the folder of the IR dump, ir") == 1


def test_processes_share_a_folder(tmp_path):
    run(tmp_path, SCRIPT, count=3, JAXLITE_DUMP_IR_TO="ir", JAXLITE_DUMP_IR_MODES="jaxpr")
    facts = [json.loads((tmp_path / "ir" / name).read_text()) for name in names(tmp_path / "ir") if "json" in name]
    assert len(facts) == 12 and len({each["process"] for each in facts}) == 3
    assert sorted(int(name[:4]) for name in names(tmp_path / "ir") if "json" in name) == list(range(1, 13))


def test_the_environment_asks_for_the_log(tmp_path):
    for name in ("JAXLITE_LOG_COMPILES", "JAX_LOG_COMPILES"):
        ((_, errors),) = run(tmp_path, SCRIPT, **{name: "1"})
        assert len(re.findall(r"^compiled <lambda> \(f32\[\]\) in ", errors, re.M)) == 4


def test_one_line_a_compile(caplog):
    f = jit(train_step)
    with jaxlite.log_compiles():
        for _ in range(2):
            f({"w": np.ones((2, 3), F32)}, np.ones((2, 3), F32), 1)
        jit(lambda *args: args[0])(*range(30))
    f({"w": F32(1)}, F32(2), 1)
    first, second = caplog.records
    assert (first.name, first.levelno) == ("jaxlite", logging.WARNING)
    assert re.fullmatch(r"compiled train_step \(f32\[2,3\], f32\[2,3\], i32\[\]\) in \d+\.\d{3} s: "
                        r"trace [\d.e+-]+ ms, lower [\d.e+-]+ ms, compile [\d.e+-]+ m?s", first.message)
    assert "... 10 more)" in second.message


def test_silence_by_default(caplog, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    jit(lambda x: x)(F32(1))
    assert caplog.records == [] and list(tmp_path.iterdir()) == []


def test_the_index_has_a_row_for_each_compile(tmp_path):
    with core_config.dump_ir_to(str(tmp_path)):
        jit(lambda x: lax.add(x, F32(1)))(F32(1))
        jit(lambda x: lax.mul(x, F32(2)))(F32(1))
    text = (tmp_path / "index.html").read_text()
    assert text.count("<tr><td>") == 2
    assert "test_dump.py:" in text
    links = re.findall('href="(.*?)"', text)
    assert len(links) == 8
    assert all((tmp_path / link).exists() for link in links)
