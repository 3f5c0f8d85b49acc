"""The few names under `jax._src` that widely used libraries import although they are private.

Each stands for a public equivalent of ours. The table says where, and which library needs it; nothing else of `jax._src`
is there.
"""

from __future__ import annotations

import importlib
import types
from typing import Any

# Module of jax._src -> module of ours, and which of its names: "theirs" or "theirs=ours".
_ALIASES: dict[str, list[tuple[str, str]]] = {
    "core": [
        ("jaxlite.core", "AbstractValue ShapedArray Tracer Trace"),  # equinox, jaxtyping, flax
        ("jaxlite.extend.core", "Primitive jaxpr_as_fun"),  # equinox, tensorflow_probability
    ],
    "dtypes": [("jaxlite.dtypes", "TypePromotionError extended finfo")],
    "flatten_util": [("jaxlite.flatten_util", "ravel_pytree")],  # older optimisers
    "traceback_util": [("jaxlite.core.filtering", "register_exclusion api_boundary=boundary")],  # flax, haiku, chex
    "tree_util": [("jaxlite.tree_util", "*")],
}


def private_module(rest: str) -> types.ModuleType | None:
    """A module that stands for `jax._src` or `jax._src.x`; None if no name of it is in the table."""
    name = rest.partition(".")[2]
    if name and name not in _ALIASES:
        return None
    module = types.ModuleType(f"jax.{rest}", "Aliases of public names: see jaxlite.as_jax.private.")
    if not name:
        module.__path__ = []
    found = {}
    for home, text in _ALIASES.get(name, ()):
        for each in text.split():
            theirs, _, ours = each.partition("=")
            found[theirs] = home, ours or theirs

    def __getattr__(wanted: str) -> Any:
        home, ours = found.get(wanted) or (found["*"][0] if "*" in found else "", wanted)
        if home and not wanted.startswith("__"):
            return getattr(importlib.import_module(home), ours)
        raise AttributeError(f"module {module.__name__!r} has no attribute {wanted!r}: it is private in JAX, and jaxlite has "
                             "no equivalent of it")

    module.__getattr__ = __getattr__  # type: ignore[method-assign]
    return module
