"""SciPy's two tables of BLAS and LAPACK pointers, which is all that jaxlib asks it for.

jaxlib imports them by their full names, and with them the package `scipy.linalg`: 270 modules, 120 ms. What is imported
already is not looked for again.
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def at_hand() -> Iterator[None]:
    """Within the context they are imported, by themselves; after it they are forgotten, for a user who imports the package."""
    added = []
    with contextlib.suppress(ImportError, OSError):  # then jaxlib imports them as it does otherwise
        scipy = importlib.util.find_spec("scipy")
        folders = [os.path.join(path, "linalg") for path in (scipy and scipy.submodule_search_locations) or ()]
        for name in ("scipy.linalg.cython_blas", "scipy.linalg.cython_lapack"):
            if name in sys.modules:
                continue
            spec = importlib.machinery.PathFinder.find_spec(name, folders)
            if spec is None or spec.loader is None:
                break
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            sys.modules[name] = module
            added.append(name)
    try:
        yield
    finally:
        for name in added:
            sys.modules.pop(name, None)
