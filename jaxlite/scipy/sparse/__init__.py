"""jaxlite.scipy.sparse: `linalg`, solvers of linear systems given by their products."""

from importlib import import_module as _import_module
from typing import Any as _Any


def __getattr__(name: str) -> _Any:
    if name == "linalg":  # loaded on first use
        return _import_module("jaxlite.scipy.sparse.linalg")
    raise AttributeError(f"module 'jaxlite.scipy.sparse' has no attribute {name!r}")
