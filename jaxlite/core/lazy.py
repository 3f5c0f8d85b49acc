"""Lazy imports: names of packages that load their module on first use."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from types import ModuleType
from typing import Any

from jaxlite.core.filtering import boundary
from jaxlite.core.missing import missing


def loader(module: str) -> Callable[[], Any]:
    """A function that gives a module, and loads it when it is called for the first time.

    >>> loader("jaxlite.core.printer")().__name__
    'jaxlite.core.printer'
    """
    loaded = None

    def load() -> Any:
        nonlocal loaded
        if loaded is not None:
            return loaded
        found = import_module(module)  # waits for a thread that is importing it, which a look into sys.modules does not
        if not getattr(found.__spec__, "_initializing", False):
            loaded = found
        return found

    return load


class Lazy:
    """Names of a package, or of a module, that load on first use: the work of its `__getattr__` and `__dir__`.

    Args:
      package: its name.
      modules: those of its modules that are loaded when they are named.
      root: the package below which the modules of `names` are; by default `package` itself.
      names: for a module, the names that `package` takes from it, in one text.

    A name must not be that of a module too: importing this module would hide it.

    >>> lazy = Lazy("jaxlite.core", ["printer"], aval="ShapedArray AbstractToken")
    >>> lazy.load("printer").__name__, lazy.load("ShapedArray").__name__
    ('jaxlite.core.printer', 'ShapedArray')
    """

    def __init__(self, package: str, modules: Iterable[str] = (), root: str | None = None, **names: str):
        self._package, self._root = package, root or package
        self._namespace = vars(sys.modules[package])
        self._modules = frozenset(modules)
        self._home = {name: module for module, text in names.items() for name in text.split()}

    @boundary
    def load(self, name: str) -> Any:
        """The value of a name. Raises: AttributeError, or ImportError to an import, if the package has no such name."""
        if name in self._home:
            value = self._namespace[name] = getattr(import_module(f"{self._root}.{self._home[name]}"), name)
            return value
        if name in self._modules:
            return import_module(f"{self._package}.{name}")
        raise missing(self._package, name)

    def names(self) -> list[str]:
        """The public names of the package, sorted: what it imports, and what it loads on use; of modules the latter alone."""
        here = (name for name, value in self._namespace.items()
                if not name.startswith("_") and name != "annotations" and not isinstance(value, ModuleType))
        return sorted({*here, *self._home, *self._modules})
