"""`python -m jaxlite program.py arguments`: run a JAX program, unedited, with jaxlite in jax's place.

    python -m jaxlite program.py ...     a file, or a folder or archive with a __main__.py
    python -m jaxlite -m module ...      a module, such as pytest
    python -m jaxlite -c code ...        a program given as text
"""

from __future__ import annotations

import os
import runpy
import sys
import types


def main(arguments: list[str]) -> None:
    """Run what the arguments of the command line name."""
    if not arguments or arguments[0] in ("-h", "--help") or arguments[0] in ("-m", "-c") and len(arguments) < 2:
        print(__doc__)
        sys.exit(0 if arguments and arguments[0] in ("-h", "--help") else 2)
    import jaxlite.as_jax  # noqa: F401  it takes jax's place, which printing the help does not need

    _lead_children()

    first = arguments[0]
    if first == "-m":
        sys.argv = arguments[1:]
        sys.path[0] = os.getcwd()
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    elif first == "-c":
        sys.argv = ["-c", *arguments[2:]]
        sys.path[0] = ""
        _run(arguments[1], "<string>", None)
    elif os.path.isfile(first) and not first.endswith((".pyc", ".pyz", ".zip")):
        sys.argv = arguments
        sys.path[0] = os.path.dirname(os.path.abspath(first))
        with open(first, "rb") as file:
            _run(file.read(), first, first)
    else:
        sys.argv = arguments
        del sys.path[0]
        runpy.run_path(first, run_name="__main__")


def _lead_children() -> None:
    """Have the processes that the program starts find jaxlite under jax's name as well, in a folder of their path.

    Those that `multiprocessing` spawns take the path of this process, all others the environment.
    """
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "as_jax", "stand_in")
    sys.path.insert(1, folder)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH"))))


def _run(code: str | bytes, name: str, file: str | None) -> None:
    """Execute a program as the main module, which stays that until the process ends."""
    module = types.ModuleType("__main__")
    if file is not None:
        module.__file__ = file
    sys.modules["__main__"] = module
    exec(compile(code, name, "exec", dont_inherit=True), vars(module))  # its annotations are not text, as those here are


if __name__ == "__main__":
    main(sys.argv[1:])
