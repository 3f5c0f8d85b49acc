"""What of JAX's public API jaxlite lacks: makes `docs/missing.md`.

    python docs/missing.py names    with a Python that has jax: enter its public names into the list of JAX's names
    python docs/missing.py page     with a Python that has jaxlite, and the newest jaxlib: write the page from that list

The list has the names of the oldest JAX that jaxlite follows, and those that a later one added, with its version:
`name@0.12`. Names that a later version removed stay.

A name is public where JAX's documentation would look for it: a module outside of `_src` defines it, or imports it in
order to pass it on (`from x import y as y`, `__all__`). Kernels and MLIR's own bindings are left out; other
modules that are left out are listed by their names alone.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import pkgutil
import sys
import types
import warnings
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NAMES = ROOT / "jaxlite" / "core" / "jax_names.txt"
PAGE = ROOT / "docs" / "missing.md"
OLDEST = "0.10"

_NOT_OURS = (
    "jax.tools", "jax.collect_profile", "jax.extend.mlir.dialects.", "jax.extend.mlir.ir.", "jax.extend.mlir.passmanager.",
    "jax.extend.pallas", "jax.experimental.mosaic", "jax.experimental.pallas.", "jax.experimental.slab",
    "jax.experimental.jax2tf", "jax.experimental.x64_context",
)

# Modules and names of which there will be none soon, and why: the first that a name begins with.
_REASONS = {
    "jax.collect_profile": "it fetches profiles for TensorBoard; `jax.profiler` writes them",
    "jax.experimental.mosaic": "the rest of it is the implementation of Pallas for GPUs",
    "jax.extend.pallas": "it is the implementation of Pallas",
    "jax.tools": "they print programs; use `jax.jit(f).lower(x)`",
    "jax.cloud_tpu_init": "it sets up TPU machines of a cloud",
    "jax.experimental.thunky": "it writes programs for XLA's runtime on NVIDIA GPUs, and is new in JAX 0.12",
    "jax.experimental.fused": "it is for a compiler that is not part of jaxlib",
    "jax.experimental.control_deps": "it is for the TPU's scheduler",
    "jax.example_libraries.": "they are imports of the module",
    "jax.experimental.colocated_python.": "they are its implementation",
    "jax.experimental.jet.": "they are its tracers; jaxlite's implementation has none",
    "jax.experimental.mesh_utils.": "it is about coordinates of TPU chips, which jaxlite does not use",
    "jax.experimental.ode.": "a step of it, and imports of the module",
    "jax.experimental.scheduling_groups.": "they are the steps of JAX's rules for it",
    "jax.experimental.pallas.get_global": "JAX has it for Mosaic GPU and sparse cores alone",
    "jax.experimental.rnn.": "the rest of the module are cuDNN's primitives; `lstm` is a scan here, on every platform",
    "jax.experimental.sparse.": "a step of JAX's `sparsify`, and names for cuSPARSE",
    "jax.experimental.multihost_utils.": "the rest of the module is its implementation",
    "jax.lax.psend": "it is for NVIDIA's communication library; on other platforms it is an error in JAX",
    "jax.lax.precv": "it is for NVIDIA's communication library; on other platforms it is an error in JAX",
    "jax.interpreters.mlir.": "they are steps of JAX's lowering, which jaxlite does not have",
    "jax.core.": "deprecated in JAX, about its implementation",
    "jax.extend.core.primitives.": "their functions use other primitives here",
    "jax.experimental.layout.": "it is for types with layouts, which JAX is working on: on a CPU it is an error",
    "jax.interpreters.batching.": "their arguments have private classes, in JAX too",
    "jax.lax.ragged_all_to_all_p": "`ragged_all_to_all` uses other primitives here",
    "jax.lax.stage_p": "`stage` is not an operation here",
    "jax.interpreters.ad.": "their arguments have a private class, in JAX too",
    "jax.interpreters.partial_eval.": "rules about unknown values; jaxlite splits programs after linearization",
    "jax.interpreters.pxla.": "they are the steps of JAX's own compile",
}


def public_names() -> dict[str, list[str] | None]:
    """Of the installed JAX, by module; None for a module that needs a platform or a package that is not here."""
    import jax  # what is listed; nothing of jaxlite is loaded here

    warnings.simplefilter("ignore")
    found: dict[str, list[str] | None] = {}
    for name in _modules(jax):
        if name.startswith(_NOT_OURS):
            found[name] = []
            continue
        try:
            module = importlib.import_module(name)
        except ImportError:
            found[name] = None
            continue
        found[name] = sorted(each for each in _exported(module) if _is_there(module, each))
    return found


def with_names(lines: list[str], version: str, found: dict[str, list[str] | None]) -> list[str]:
    """The lines of the list, with the names of a version of JAX: what the oldest version has not gets a mark."""
    own = "" if version == OLDEST else version
    since = {}
    for line in lines:
        (module, _, all_since), *names = (word.partition("@") for word in line.split())
        since.update({(module, name): at or all_since for name, _, at in [("", "", ""), *names]})
    unknown = tuple(f"{module}." for module, names in found.items() if names is None)
    since = {name: at for name, at in since.items() if at != own or f"{name[0]}.".startswith(unknown)}
    for module, names in found.items():
        if names is None:
            continue
        since.update({(module, name): min(own, since.get((module, name), own)) for name in ["", *names]})
    return [" ".join([_marked(module, at), *(_marked(name, "" if added == at else added)
                                             for (within, name), added in sorted(since.items()) if within == module and name)])
            for (module, name), at in sorted(since.items()) if not name]


def _marked(name: str, version: str) -> str:
    return f"{name}@{version}" if version else name


def _modules(jax: types.ModuleType) -> Iterator[str]:
    yield "jax"
    for info in pkgutil.walk_packages(jax.__path__, "jax.", onerror=lambda name: None):
        known = not info.name.startswith(_NOT_OURS) or info.name in _NOT_OURS  # of what is left out, its first module
        if known and not any(part.startswith("_") for part in info.name.split(".")):
            yield info.name


def _exported(module: types.ModuleType) -> set[str]:
    names = set(getattr(module, "__all__", ()))
    for node in _statements(ast.parse(Path(module.__file__ or "").read_text(encoding="utf-8"))):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names.update(alias.asname for alias in node.names if alias.asname and alias.asname == alias.name.split(".")[-1])
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names.update(target.id for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return {name for name in names if not name.startswith("_")}


def _statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Those that stand in the module itself, under conditions too."""
    for node in ast.iter_child_nodes(tree):
        yield node
        if isinstance(node, (ast.If, ast.Try)):
            yield from _statements(node)


def _is_there(module: types.ModuleType, name: str) -> bool:
    try:
        value = getattr(module, name)
    except AttributeError:
        return False
    if isinstance(value, types.ModuleType):  # the module itself is listed, or it is none of JAX's
        return False
    return not repr(value).startswith("~") and type(value).__name__ != "TypeVar"


def lacking() -> tuple[list[str], dict[str, list[str]]]:
    """The modules that jaxlite has not, and the names that the others lack, of the JAX of this jaxlib."""
    from jaxlite.core.missing import is_later, jax_names

    modules, names = [], {}
    for module, listed in jax_names().items():
        if is_later(module):
            continue
        ours = "jaxlite" + module[len("jax"):]
        try:
            found = importlib.import_module(ours)
        except ModuleNotFoundError:
            modules.append(module)
            continue
        absent = sorted(name for name in listed if not hasattr(found, name) and not is_later(module, name))
        if absent:
            names[module] = absent
    return modules, names


def page() -> str:
    """The text of `docs/missing.md`."""
    from jaxlite.core.missing import is_later, jax_names

    modules, names = lacking()
    if any(is_later(module, name) for module, listed in jax_names().items() for name in ["", *listed]):
        raise SystemExit("names of a later JAX are listed than that of this jaxlib: make the page with the newest one")
    total = sum(map(len, jax_names().values()))
    absent = sum(map(len, names.values())) + sum(len(jax_names()[module]) for module in modules)
    lines = [
        "# What is missing", "",
        "`python docs/missing.py page` generates this page from the list of JAX's public names in "
        "`jaxlite/core/jax_names.txt`; a test checks that it is up to date. Using one of these names raises an error that "
        "refers to this page.",
        "", f"{total - absent} of {total} names exist.", "", "## Modules", "",
    ]
    lines += [f"- `{module}`" + (f" ({len(jax_names()[module])} names)" if jax_names()[module] else "") for module in modules]
    lines += ["", "## Names in modules that exist", ""]
    lines += [f"- `{module}`: " + ", ".join(f"`{name}`" for name in absent) for module, absent in names.items()]
    listed = [f"{module}." for module in modules] + [f"{module}.{name}" for module, absent in names.items() for name in absent]
    reasons = {start: reason for start, reason in _REASONS.items() if any(name.startswith(start) for name in listed)}
    lines += ["", "## Why", "", "Reasons, where there are any beside a lack of demand:", ""]
    lines += [f"- `{start.rstrip('.')}`: {reason}" for start, reason in reasons.items()]
    return "\n".join(lines) + "\n"


def main(command: str = "page") -> None:
    if command == "names":
        import jax

        version = ".".join(jax.__version__.split(".")[:2])
        lines = with_names(NAMES.read_text(encoding="utf-8").splitlines(), version, public_names())
        NAMES.write_text("\n".join(lines) + "\n", encoding="utf-8")
    else:
        PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    sys.path[:1] = [str(ROOT)]
    main(*sys.argv[1:])
