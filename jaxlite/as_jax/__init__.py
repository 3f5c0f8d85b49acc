"""`import jaxlite.as_jax`: from then on `import jax` and all of `jax.*` are jaxlite's modules, the same objects.

It goes first: into the first line of a program, a conftest, or a sitecustomize. `python -m jaxlite program.py` does it for a
program that cannot be edited. An installed jax is not imported; `importlib.metadata.version("jax")` and `jax.__version__`
give the version of JAX whose API this jaxlib goes with. What jaxlite lacks fails at the name that is requested, with a
message that says so.

>>> import subprocess, sys
>>> program = "import jaxlite.as_jax; import jax.numpy as jnp, jaxlite; print(jnp is jaxlite.numpy)"
>>> print(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout.strip())
True
"""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from jaxlite.as_jax.private import ELSEWHERE, private_module
from jaxlite.compilation import explain, recompilation
from jaxlite.core import config, missing
from jaxlite.core.collector import count_as_old
from jaxlite.core.lazy import loader
from jaxlite.core.symbolic import Dim
from jaxlite.core.tracing import Tracer
from lowering import report
from lowering.xla import VERSION_TEXT, name_submodules

# JAX and jaxlib are released together, under one number.
VERSION_INFO = tuple(int(part) for part in VERSION_TEXT.split(".")[:3])
_dimensions = loader("jaxlite.as_jax.dimensions")
_logs = loader("jaxlite.as_jax.logs")
_metadata = loader("jaxlite.as_jax.metadata")  # with `importlib.metadata`, 5 to 10 ms that most programs need not wait for


# Loaders and finders have no base class: `importlib.abc` loads thirty modules, which takes 8 ms.


class _Loader:
    """Gives a module that exists already, with the attributes of its own that importing sets."""

    def __init__(self, module: types.ModuleType):
        self._module, self._own = module, getattr(module, "__spec__", None)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return self._module

    def exec_module(self, module: types.ModuleType) -> None:
        if self._own is not None:
            module.__spec__ = self._own
        if module.__name__ == "jaxlite":
            _begin()


class _Named:
    """Loads a module of jaxlite as its own loader does, and enters it under its name in JAX, which some seek in sys.modules."""

    def __init__(self, own: Any):
        self._own = own

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        return self._own.create_module(spec)

    def exec_module(self, module: types.ModuleType) -> None:
        assert module.__spec__ is not None
        module.__loader__ = module.__spec__.loader = self._own
        self._own.exec_module(module)
        _name_in_jax(module)


# Libraries that wrap whatever the dictionaries of these modules hold. Names that load on use are put there before.
_READ_WHOLE = {"scico": ("numpy", "numpy.fft", "numpy.linalg", "random", "scipy.special")}
# Modules that a library seeks in sys.modules, where JAX has them from the start.
_SOUGHT = {"tokamax": ("jax._src.lax.lax",)}


def _load_names(module: types.ModuleType) -> None:
    for name in dir(module):
        getattr(module, name)


class _Finder:
    """Leads `jax` and `jax.x` to the modules of jaxlite."""

    def find_spec(self, fullname: str, path: Sequence[str] | None = None,
                  target: types.ModuleType | None = None) -> importlib.machinery.ModuleSpec | None:
        count_as_old()  # of what importing a library makes, hardly anything is dropped again
        for each in _READ_WHOLE.pop(fullname, ()):
            _load_names(importlib.import_module(f"jaxlite.{each}"))
        for each in _SOUGHT.pop(fullname, ()):
            importlib.import_module(each)
        first, _, rest = fullname.partition(".")
        if first == "jaxlite":
            found = importlib.machinery.PathFinder.find_spec(fullname, path, target)
            if found is not None and found.loader is not None:
                found.loader = _Named(found.loader)  # type: ignore[assignment]
            return found
        if first != "jax":
            return None
        module = _module(rest)
        if module is None:
            if missing.is_in_jax(fullname):
                raise ModuleNotFoundError(f"No module named {fullname!r}: {missing.not_yet(fullname)}", name=fullname)
            return None
        sys.modules.pop(fullname, None)  # where the search for a spec enters the module, Python makes another from its own spec
        loader: Any = _Loader(module)
        return importlib.machinery.ModuleSpec(fullname, loader, is_package=hasattr(module, "__path__"))

    def find_distributions(self, context: Any = None) -> Iterable[Any]:
        name = getattr(context, "name", None)
        return [_metadata().Jax()] if name is None or name.lower() == "jax" else []


def _module(rest: str) -> types.ModuleType | None:
    """The module of jaxlite that `jax.<rest>` means."""
    if rest == "_src" or rest.startswith("_src."):
        return private_module(rest)
    ours = f"jaxlite.{ELSEWHERE.get(rest, rest)}" if rest else "jaxlite"
    try:
        module = importlib.import_module(ours)
    except ModuleNotFoundError as error:
        if error.name and (ours == error.name or ours.startswith(f"{error.name}.")):
            return None
        raise
    return module


def _name_in_jax(module: types.ModuleType) -> None:
    """Enter a module that is loaded under its name in JAX, and have it tell what it lacks."""
    if "__getattr__" not in vars(module):
        vars(module)["__getattr__"] = _teller(module.__name__)
    if "jax" in sys.modules:  # else it is entered when the program first imports jax
        sys.modules[f"jax{module.__name__.removeprefix('jaxlite')}"] = module


def _teller(module: str) -> Callable[[str], Any]:
    def __getattr__(name: str) -> Any:
        raise missing.missing(module, name)

    return __getattr__


def _say_whose_tracers(cls: type[Tracer], **options: Any) -> None:
    """Have classes of tracers name a module of JAX: autoray and others tell by it whose functions a value is for."""
    if cls.__module__.partition(".")[0] == "jaxlite":
        cls.__module__ = "jax.core"


def _version_module() -> types.ModuleType:
    module = types.ModuleType("jax.version", "The version of JAX whose API this is.")
    vars(module).update(__version__=VERSION_TEXT, __version_info__=VERSION_INFO)
    return module


def _begin() -> None:
    """What the first `import jax` of the program does: JAX would read the environment then, and load its modules."""
    config.read_environment()
    name_submodules()
    for name, module in [*sys.modules.items()]:
        if name.partition(".")[0] == "jaxlite":
            _name_in_jax(module)
    sys.modules["jaxlite.numpy"].__name__ = "jax.numpy"  # array-api-compat, SciPy and others tell by it whose namespace it is
    top = vars(sys.modules["jaxlite"])
    sys.modules.update({"jax.version": top["version"], "jax._src": top["_src"]})


def _install() -> None:
    if "jax" in sys.modules:
        raise ImportError(
            "jaxlite.as_jax: jax is imported already, so part of the program would use it and part jaxlite, and both own "
            "jaxlib's global state. Import jaxlite.as_jax before anything that imports jax, or run the program with "
            "`python -m jaxlite`.")
    sys.meta_path.insert(0, _Finder())
    recompilation.as_log = True
    report.logger_name = "jax._src.dispatch"  # that of JAX's lines about compiles: filters and levels name it, or "jax"
    report.log = lambda *args: _logs().log_stages(*args)
    explain.words, explain.tell = (lambda *args: _logs().explain_miss(*args)), lambda *args: None
    vars(sys.modules["jaxlite"]).update(
        __version__=VERSION_TEXT, __version_info__=VERSION_INFO, version=_version_module(),
        _src=private_module("_src"))  # some reach for its modules without an import
    shardings = private_module("_src.sharding_impls")  # jaxlib asks for it at every call, and libraries for what it lacks
    assert shardings is not None
    sys.modules[shardings.__name__] = shardings
    Dim._sorted_terms = property(lambda dim: _dimensions().sorted_terms(dim))  # type: ignore[attr-defined]  # jax2onnx
    Tracer.__init_subclass__ = classmethod(_say_whose_tracers)  # type: ignore[assignment,arg-type]  # some load later
    classes: list[type[Tracer]] = [Tracer]
    for cls in classes:
        _say_whose_tracers(cls)
        classes += cls.__subclasses__()


_install()
