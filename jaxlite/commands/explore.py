"""A page that shows a compile: `jaxlite.explore(f, *args)`, and `python -m jaxlite.explore prog.py [function]`.

One HTML file, which needs no network: Python, jaxpr, StableHLO and optimised HLO side by side. A click on a line in one marks
where it came from and what became of it in the others.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import types
from collections.abc import Callable
from typing import Any

from jaxlite.commands.programs import run_program
from jaxlite.compilation import dispatch
from jaxlite.compilation.jit import jit
from jaxlite.compilation.page import page
from jaxlite.core import config, source
from lowering import xla


def explore(f: Callable, *args: Any, path: os.PathLike | str | None = None, **kwargs: Any) -> str:
    """Compile a function and write a page that shows how.

    Args:
      f: a function, jitted or not.
      args, kwargs: its arguments, or objects with their `shape` and `dtype`.
      path: where to write the page; by default a new file in the folder for temporary files.

    Returns: the path. Nothing runs on a device. The persistent cache is left alone, so that the times are those of a compile.

    >>> import jaxlite, jaxlite.numpy as jnp, os
    >>> path = jaxlite.explore(lambda x: jnp.sin(x) * 2, jnp.ones(3))
    >>> os.path.basename(path), "stablehlo.sine" in open(path).read()
    ('_lambda_.html', True)
    """
    jitted: Any = f if isinstance(f, xla.PjitFunction) else jit(f)
    name = source.function_name(f)
    with config.enable_compilation_cache(False), config.progress(False):
        start = time.perf_counter()
        traced = jitted.trace(*args, **kwargs)
        seconds = {"trace": time.perf_counter() - start}
        start = time.perf_counter()
        lowered = traced.lower()
        seconds["lower"] = time.perf_counter() - start
        start = time.perf_counter()
        compiled = lowered.compile()
        seconds["compile"] = time.perf_counter() - start
    stats = compiled.memory_analysis()
    memory = {key: getattr(stats, key) for key in dir(stats) if key.endswith("_size_in_bytes")}
    device = compiled.runtime_executable().local_devices()[0]
    text = page(name, traced.jaxpr, lowered.as_text(debug_info=True), compiled.as_text(), seconds, memory,
                dict(compiled.cost_analysis() or {}), str(device))
    if path is None:
        path = os.path.join(tempfile.mkdtemp(prefix="jaxlite-explore-"), f"{_file_name(name)}.html")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return os.fspath(path)


class _Seen(BaseException):
    """Ends a program when the function that is looked for was called."""


def main(argv: list[str] | None = None) -> int:
    """Run a program until it calls a jitted function, and write the page for that call."""
    parser = argparse.ArgumentParser(prog="python -m jaxlite.explore", description=main.__doc__)
    parser.add_argument("program", help="a Python file; what follows the function's name are its arguments")
    parser.add_argument("function", nargs="?", help="the name of a jitted function; by default the first that is called")
    parser.add_argument("-o", "--output", help="where to write the page; default: FUNCTION.html in this folder")
    options, rest = parser.parse_known_args(argv)
    written: list[str] = []

    def observe(jitted: Any, args: Any, kwargs: Any) -> None:
        code = getattr(jitted.fun, "__code__", None)
        if code is None or source.is_own_file(code.co_filename) or options.function not in (None, jitted.name):
            return
        dispatch.observers.remove(observe)
        written.append(explore(jitted.call_path, *args, path=options.output or f"{_file_name(jitted.name)}.html", **kwargs))
        raise _Seen

    dispatch.observers.append(observe)
    try:
        run_program([options.program, *rest])
    except _Seen:
        pass
    finally:
        if observe in dispatch.observers:
            dispatch.observers.remove(observe)
    if not written:
        which = f" named {options.function}" if options.function else ""
        print(f"{options.program} called no jitted function{which}", file=sys.stderr)
        return 1
    print(written[0])
    return 0


def _file_name(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_" else "_" for letter in name)


class CallableModule(types.ModuleType):
    """The class of `jaxlite.explore`, a module and a function: `jaxlite.explore(f, *args)`."""

    def __call__(self, f: Callable, *args: Any, **kwargs: Any) -> str:
        return explore(f, *args, **kwargs)
