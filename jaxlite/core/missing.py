"""The error for a name of JAX that jaxlite lacks.

`jax_names.txt` in this folder lists JAX's public names, one module per line: those of the oldest JAX that jaxlite follows, and,
with a mark, those that a later version added (`name@0.12`). It is read when the first name is missing.
"""

from __future__ import annotations

import functools
import os
import sys
from opcode import opmap

from jaxlite.core.source import is_own_file
from lowering.xla import VERSION, VERSION_TEXT

PAGE = "docs/missing.md"
_IMPORT_FROM = opmap["IMPORT_FROM"]


@functools.cache
def jax_names() -> dict[str, frozenset[str]]:
    """JAX's public names by module: `{"jax.numpy": {"abs", ...}, ...}`."""
    return {module: frozenset(filter(None, versions)) for module, versions in _versions().items()}


@functools.cache
def _versions() -> dict[str, dict[str, str]]:
    """The version of JAX that added each name, by module, and under "" the module: an empty text if the oldest has it."""
    found = {}
    with open(os.path.join(os.path.dirname(__file__), "jax_names.txt"), encoding="utf-8") as file:
        for line in file:
            (module, _, own), *names = (word.partition("@") for word in line.split())
            found[module] = {"": own, **{name: version or own for name, _, version in names}}
    return found


def is_in_jax(module: str, name: str = "") -> bool:
    """Whether JAX has a module of this name (`jaxlite.x` is `jax.x`), or a name in it."""
    module = _jax_name(module)
    if not name:
        return module in jax_names()
    return name in jax_names().get(module, ()) or f"{module}.{name}" in jax_names()


def version_of(module: str, name: str = "") -> str:
    """The version of JAX that added a name or a module; an empty text if the oldest has it."""
    module = _jax_name(module)
    return _versions().get(module, {}).get(name) or _versions().get(f"{module}.{name}", {}).get("", "")


def is_later(module: str, name: str = "") -> bool:
    """Whether a name or a module is of a later JAX than that of this jaxlib, which jaxlite follows."""
    return tuple(map(int, filter(None, version_of(module, name).split(".")))) > VERSION


def _jax_name(module: str) -> str:
    first, dot, rest = module.partition(".")
    return f"jax{dot}{rest}" if first == "jaxlite" else module


def not_yet(module: str, name: str = "") -> str:
    """The sentence for a name or a module of JAX that jaxlite lacks."""
    whole = _jax_name(module) + (name and f".{name}")
    if is_later(module, name):
        return (f"{whole} is in JAX {version_of(module, name)}, and jaxlite follows the JAX of its jaxlib, which is "
                f"{VERSION_TEXT} here")
    return f"{whole} is in JAX, not yet in jaxlite; {PAGE} lists what is missing"


def missing(module: str, name: str) -> Exception:
    """The error for a name that a module has not; to be raised by its `__getattr__`.

    An AttributeError; where `from module import name` asks, an ImportError, which unlike the other keeps its message.
    """
    text = f"module {module!r} has no attribute {name!r}"
    if not name.startswith("_") and is_in_jax(module, name):
        text = f"{text}: {not_yet(module, name)}"
        if _is_from_import():
            return ImportError(text, name=module)
    return AttributeError(text, name=name, obj=sys.modules.get(module))


def _is_from_import() -> bool:
    """Whether the code that asked for the attribute is a `from ... import ...` statement."""
    frame = sys._getframe(2)
    while frame is not None and is_own_file(frame.f_code.co_filename):
        frame = frame.f_back  # type: ignore[assignment]
    return frame is not None and frame.f_code.co_code[frame.f_lasti] == _IMPORT_FROM
