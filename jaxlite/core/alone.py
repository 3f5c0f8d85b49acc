"""jaxlite and JAX register their types with one jaxlib, so a process holds one of the two: the second import says so."""

from __future__ import annotations

import importlib.machinery
import os
import sys
import types
from typing import Any

_WHY = "jaxlite and JAX cannot be in one process, since both register their types with one jaxlib; "
_WAY_OUT = " `import jaxlite.as_jax` first makes `import jax` mean jaxlite"
_OURS = os.path.join(os.path.dirname(os.path.dirname(__file__)), "as_jax", "")


class _Refusal:
    """A finder that lets others see that JAX is installed, but not import it; and the loader that it gives."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name != "jax":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None or (spec.origin or "").startswith(_OURS):
            return None
        loader: Any = self  # it has no base class: `importlib.abc` loads thirty modules
        spec.loader = loader
        return spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        return None

    def exec_module(self, module: types.ModuleType) -> None:
        raise ImportError(f"{_WHY}jaxlite has been imported here already.{_WAY_OUT}")


# Before jaxlite changes anything: a program that catches the error goes on with JAX.
if "jax._src.tree_util" in sys.modules and not hasattr(sys.modules.get("jax"), "compile_report"):
    raise ImportError(f"{_WHY}JAX has been imported here already.{_WAY_OUT}")
sys.meta_path.insert(0, _Refusal())
