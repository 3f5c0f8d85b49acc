"""Running a user's program as the main module, in jax's place, and sizes as text: what the command-line tools share."""

from __future__ import annotations

import os
import runpy
import sys
import types
from collections.abc import Sequence


def run_program(arguments: Sequence[str]) -> None:
    """Run a program with `jax` meaning jaxlite: `file arguments`, `-m module arguments`, or `-c code arguments`."""
    import jaxlite.as_jax  # noqa: F401  it takes jax's place

    _lead_children()
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _show_error
    first = arguments[0]
    if first == "-m":
        sys.argv = list(arguments[1:])
        sys.path[0] = os.getcwd()
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    elif first == "-c":
        sys.argv = ["-c", *arguments[2:]]
        sys.path[0] = ""
        _run_as_main(arguments[1], "<string>", None)
    elif os.path.isfile(first) and not first.endswith((".pyc", ".pyz", ".zip")):
        sys.argv = list(arguments)
        path = os.path.abspath(first)  # as Python names its program
        sys.path[0] = os.path.dirname(path)
        with open(first, "rb") as file:
            _run_as_main(file.read(), path, path)
    else:
        sys.argv = list(arguments)
        del sys.path[0]
        runpy.run_path(first, run_name="__main__")


def _show_error(kind: type[BaseException], error: BaseException, traceback: types.TracebackType | None) -> None:
    """Print an error that ends the program from the program's first line on, as if Python had started it."""
    launcher = ("<frozen runpy>", os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep)
    while traceback is not None and traceback.tb_frame.f_code.co_filename.startswith(launcher):
        traceback = traceback.tb_next
    sys.__excepthook__(kind, error.with_traceback(traceback), traceback)


def _lead_children() -> None:
    """Let the child processes of the program find jaxlite under jax's name too, in a folder of their path.

    Those that `multiprocessing` spawns take the path of this process, all others the environment.
    """
    folder = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "as_jax", "stand_in")
    sys.path.insert(1, folder)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH"))))


def _run_as_main(code: str | bytes, name: str, file: str | None) -> None:
    """Execute a program as the main module, which it stays until the process ends."""
    module = types.ModuleType("__main__")
    if file is not None:
        module.__file__ = file
    sys.modules["__main__"] = module
    exec(compile(code, name, "exec", dont_inherit=True), vars(module))  # without this file's `from __future__`


def bytes_text(size: float) -> str:
    """A size for people.

    >>> bytes_text(100), bytes_text(3 << 20)
    ('100 B', '3 MiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            break
        size /= 1024
    return f"{size:.4g} {unit}"


def table_text(rows: Sequence[Sequence[str]]) -> str:
    """Rows of cells as text with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
