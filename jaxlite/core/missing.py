"""The error for a name of JAX that jaxlite lacks.

`jax_names.txt` in this folder lists JAX's public names, one module per line. It is read when the first name is missing.
"""

from __future__ import annotations

import functools
import os
import sys
from opcode import opmap

from jaxlite.core.source import is_own_file

PAGE = "docs/missing.md"
_IMPORT_FROM = opmap["IMPORT_FROM"]


@functools.cache
def jax_names() -> dict[str, frozenset[str]]:
    """JAX's public names by module: `{"jax.numpy": {"abs", ...}, ...}`."""
    with open(os.path.join(os.path.dirname(__file__), "jax_names.txt"), encoding="utf-8") as file:
        return {module: frozenset(names) for module, *names in map(str.split, file)}


def is_in_jax(module: str, name: str = "") -> bool:
    """Whether JAX has a module of this name (`jaxlite.x` is `jax.x`), or a name in it."""
    module = _jax_name(module)
    if not name:
        return module in jax_names()
    return name in jax_names().get(module, ()) or f"{module}.{name}" in jax_names()


def _jax_name(module: str) -> str:
    first, dot, rest = module.partition(".")
    return f"jax{dot}{rest}" if first == "jaxlite" else module


def not_yet(name: str) -> str:
    """The sentence for a name of JAX that jaxlite lacks."""
    return f"{_jax_name(name)} is in JAX, not yet in jaxlite; {PAGE} lists what is missing"


def missing(module: str, name: str) -> Exception:
    """The error for a name that a module has not; to be raised by its `__getattr__`.

    An AttributeError; where `from module import name` asks, an ImportError, which unlike the other keeps its message.
    """
    text = f"module {module!r} has no attribute {name!r}"
    if not name.startswith("_") and is_in_jax(module, name):
        text = f"{text}: {not_yet(f'{module}.{name}')}"
        if _is_from_import():
            return ImportError(text, name=module)
    return AttributeError(text, name=name, obj=sys.modules.get(module))


def _is_from_import() -> bool:
    """Whether the code that asked for the attribute is a `from ... import ...` statement."""
    frame = sys._getframe(2)
    while frame is not None and is_own_file(frame.f_code.co_filename):
        frame = frame.f_back  # type: ignore[assignment]
    return frame is not None and frame.f_code.co_code[frame.f_lasti] == _IMPORT_FROM
