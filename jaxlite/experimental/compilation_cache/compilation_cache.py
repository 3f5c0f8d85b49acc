"""The folder of the persistent compile cache; `python -m jaxlite.cache` shows its entries."""

from __future__ import annotations

import os

from jaxlite.core.config import compilation_cache_dir

__all__ = ["reset_cache", "set_cache_dir"]
__dir__ = lambda: __all__


def set_cache_dir(path: str | os.PathLike[str]) -> None:
    """Keep compiled programs in a folder, and look for them there; the option `jax_compilation_cache_dir`."""
    compilation_cache_dir.set(os.fspath(path))


def reset_cache() -> None:
    """Forget what is known of the cache's folder. Here nothing is: each look-up follows the options in force."""
