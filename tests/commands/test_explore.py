"""The page that shows a compile, in a real browser where there is one."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

import jaxlite as jax
import jaxlite.numpy as jnp

PANES = ["Python", "jaxpr", "StableHLO", "optimised HLO"]


def helper(x):
    return jnp.tanh(x) * 2  # the line that is clicked


def f(x):
    y = jax.jit(helper)(x @ x)
    return jax.lax.fori_loop(0, 3, lambda i, c: c + jnp.sin(c), y).sum()


def data_of(path):
    text = path.read_text(encoding="utf-8")
    return json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])


def test_lines_are_tied_to_their_source(tmp_path):
    path = tmp_path / "page.html"
    assert jax.explore(f, np.ones((8, 8), np.float32), path=path) == str(path)
    data = data_of(path)
    panes = {pane["title"]: pane["lines"] for pane in data["panes"]}
    assert list(panes) == PANES
    (clicked,) = [line for line in panes["Python"] if line[0].endswith("# the line that is clicked")]
    tied = {title: [line for line in lines if line[1] == clicked[1]] for title, lines in panes.items()}
    assert any("tanh" in line[0] and line[2] == "tanh" for line in tied["jaxpr"])
    assert any("stablehlo.tanh" in line[0] and line[2] == "tanh" for line in tied["StableHLO"])
    assert any("tanh(" in line[0] and line[2] == "tanh" for line in tied["optimised HLO"])
    assert not any("loc(" in line[0] for line in panes["StableHLO"])
    assert {"box boxtop", "box", "box boxend"} <= {line[3] for line in panes["optimised HLO"]}
    assert [row["name"] for row in data["stages"]][:3] == ["trace", "lower", "compile"]
    assert any(row["kind"] == "bytes" and row["value"] > 0 for row in data["costs"])
    assert not re.search(r'(src|href)="', path.read_text(encoding="utf-8"))  # nothing from elsewhere


def test_the_command_line(tmp_path):
    (tmp_path / "prog.py").write_text("import sys, jaxlite\n@jaxlite.jit\ndef first(x): return x + 1\n@jaxlite.jit\n"
                                      "def second(x): return x * 2\nfirst(1); second(2); raise SystemExit('not reached')\n")

    def run(*args):
        command = [sys.executable, "-m", "jaxlite.explore", str(tmp_path / "prog.py"), *args]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)

    done = run("second")
    assert (done.returncode, done.stdout) == (0, "second.html\n"), done.stderr
    assert data_of(tmp_path / "second.html")["name"] == "second"


@pytest.fixture
def dom(tmp_path):
    """What a browser makes of a page: its elements as text, once the page's program ran."""
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
    if browser is None:
        pytest.skip("there is no Chromium to look at the page with")

    def dom(path, anchor=""):
        command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1600,900", "--dump-dom",
                   f"--user-data-dir={tmp_path / 'profile'}", f"file://{path}{anchor}"]
        return subprocess.run(command, capture_output=True, text=True, timeout=60).stdout

    return dom


def test_a_click_in_a_browser(tmp_path, dom):
    path = tmp_path / "page.html"
    jax.explore(f, np.ones((8, 8), np.float32), path=path)
    lines = data_of(path)["panes"][1]["lines"]
    tanh = next(number for number, line in enumerate(lines) if line[2] == "tanh")
    text = dom(path, f"#1:{tanh}")
    assert re.search(r'data-ready="\d+"', text)
    marked = [section for section in text.split("<section")[1:] if re.search(r'class="row[^"]* (same|near)', section)]
    assert len(marked) == 4
    assert re.search(r'class="row[^"]*same[^"]*"[^>]*>[^<]*stablehlo.tanh', text)


def test_5000_equations_do_not_stall(tmp_path, dom):
    def long(x):
        for _ in range(2500):
            x = x * 1.5 + x
        return x

    path = tmp_path / "page.html"
    jax.explore(long, np.float32(1), path=path)
    assert len(data_of(path)["panes"][1]["lines"]) > 5000
    text = dom(path)
    assert int(re.search(r'data-ready="(\d+)"', text)[1]) < 5000
    assert text.count('class="row') < 1000  # those in sight
