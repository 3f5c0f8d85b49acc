"""The shape of the code base: one module that imports jaxlib, imports that point one way, light imports, files of one idea."""

from __future__ import annotations

import ast
import importlib
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from tests import smallest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("jaxlite", "lowering")
DOOR = "lowering.xla"
FLOORS = ["lowering", "jaxlite.version", "jaxlite.core", "jaxlite.devices", "jaxlite.compilation", "jaxlite.traces",
          "jaxlite.lax", "jaxlite"]
# Modules that stand higher than their folder: what users call.
ABOVE = {"jaxlite.devices.api": "jaxlite"}
MAX_LINES = 1000


@cache
def modules() -> dict[str, Path]:
    """Dotted name -> file, for every module of both packages."""
    found = {}
    for package in PACKAGES:
        for file in sorted((ROOT / package).rglob("*.py")):
            parts = file.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


@cache
def read(module: str) -> tuple[str, list[tuple[str, int]]]:
    """A module's docstring, and (dotted name, line) of everything it imports anywhere in its text, inside functions too."""
    file = modules()[module]
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    found = []
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                ancestors = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join(ancestors + ([base] if base else []))
            # `from a import b` reaches module a.b where there is one, else the names of a
            found += [
                (f"{base}.{alias.name}" if f"{base}.{alias.name}" in modules() else base, node.lineno)
                for alias in node.names
            ]
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            function = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if function in ("import_module", "__import__") and isinstance(node.args[0].value, str):
                found.append((node.args[0].value, node.lineno))
    return ast.get_docstring(tree) or "", found


def imports(module: str) -> list[tuple[str, int]]:
    return read(module)[1]


def inside(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def floor(name: str) -> int:
    """How high a module stands: it may import from its own floor and from those below."""
    folder = next((higher for module, higher in ABOVE.items() if inside(name, module)), name)
    return next(height for height, package in enumerate(FLOORS) if inside(folder, package))


def offending_imports(forbidden) -> list[str]:
    """"file:line imports name" for each import that `forbidden(module, imported)` says yes to."""
    return [
        f"{modules()[module].relative_to(ROOT)}:{line} imports {name}"
        for module in modules()
        for name, line in imports(module)
        if forbidden(module, name)
    ]


def run_python(code: str, *path: Path, arguments: Sequence[str] = ()) -> str:
    """stdout of `code` in a fresh interpreter that finds `path`, then this repository."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "JAXLITE_"))}
    env["PYTHONPATH"] = os.pathsep.join(map(str, [*path, ROOT]))
    done = subprocess.run([sys.executable, "-c", code, *arguments], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


# --- imports, read from the text ---------------------------------------------------------------------


def test_one_module_imports_jaxlib():
    assert {m for m in modules() for name, _ in imports(m) if inside(name, "jaxlib")} == {DOOR}


def test_nothing_imports_jax():
    assert offending_imports(lambda _, name: inside(name, "jax")) == []


def test_nothing_beyond_the_dependencies_is_imported():
    known = {*sys.stdlib_module_names, *PACKAGES, "jaxlib", "numpy", "ml_dtypes"}
    # jaxlib brings scipy; its sparse direct solver and its windows are loaded by the calls that need them. So are mpi4py,
    # TensorFlow, TensorStore, absl and opt_einsum.
    asked = [("jaxlite.experimental.sparse.linalg", "scipy"), ("jaxlite.scipy.spectra", "scipy"),
             ("jaxlite.devices.clusters", "mpi4py"), ("jaxlite.experimental.jax2tf.tensors", "tensorflow"),
             ("jaxlite.core.config", "absl"), ("jaxlite.as_jax.einsums", "opt_einsum"),
             ("jaxlite.experimental.array_serialization.tensorstore_impl", "tensorstore")]
    assert offending_imports(lambda module, name: name.partition(".")[0] not in known
                             and (module, name.partition(".")[0]) not in asked) == []


def test_imports_point_one_way():
    def upward(module, name):
        return any(inside(name, package) for package in PACKAGES) and floor(name) > floor(module)

    assert offending_imports(upward) == []


# Primitives, types and rules that a lower folder reaches by name, once a program needs them: what loads, and from where.
LOADED_FROM_ABOVE = {
    ("jaxlite.core", "jaxlite.extend.core"), ("jaxlite.core.primitive", "jaxlite.lax.explicit"),
    ("jaxlite.core.primitive", "jaxlite.lax.no_collectives"),
    ("jaxlite.core.shape_dtype", "jaxlite.state"), ("jaxlite.core.array", "jaxlite.devices.sharding"),
    ("jaxlite.core.type_parser", "jaxlite.devices.mesh"),
    ("jaxlite.core.type_parser", "jaxlite.devices.texts"),
    ("jaxlite.devices.placement", "jaxlite.lax.sharding"), ("jaxlite.devices.placement", "jaxlite.lax.device_put"),
    ("jaxlite.compilation.finite", "jaxlite.transforms.shard_checks"), ("jaxlite.lax.shard_map", "jaxlite.state.rules"),
    ("jaxlite.lax.device_put", "jaxlite.devices.api"), ("jaxlite.core.dtypes", "jaxlite.devices.extended"),
    ("jaxlite.lax.control_flow.polynomials", "jaxlite.numpy.polynomials"), ("jaxlite.lax.extended", "jaxlite.random.words"),
    ("jaxlite.traces.custom_rules", "jaxlite.extend.custom_calls"),
    ("jaxlite.compilation.execution", "jaxlite.traces.dead_code"),
}


def test_what_is_loaded_from_above_by_name_is_on_one_list():
    found = {(module, name) for module, file in modules().items()
             for name in re.findall(r"""loader\(["']([\w.]+)["']\)""", file.read_text(encoding="utf-8"))
             if floor(name) > floor(module)}
    assert found == LOADED_FROM_ABOVE


def test_no_two_modules_import_each_other():
    """No circle of any length, imports inside functions included; what loads lazily by name is not looked at."""
    names = set(modules())
    needs = {m: sorted({name for name, _ in imports(m) if name in names and name != m}) for m in names}
    done: set[str] = set()

    def visit(module, path):
        assert module not in path, " -> ".join([*path[path.index(module):], module])
        if module not in done:
            for name in needs[module]:
                if not inside(module, name):  # the package that a module stands in is loaded before it
                    visit(name, [*path, module])
            done.add(module)

    for module in sorted(names):
        visit(module, [])


def test_only_the_top_level_names_a_module_from_the_package_itself():
    # `from jaxlite import jit` inside jaxlite would need the finished package: a circle
    assert offending_imports(lambda module, name: name == "jaxlite") == []


@pytest.mark.parametrize(
    ("module", "statement", "target"),
    [
        ("jaxlite.core.a", "from jaxlite import lax", "jaxlite.lax"),
        ("jaxlite.core.a", "from ..lax import x", "jaxlite.lax"),
        ("jaxlite.core.a", "def f():\n  import jaxlite.lax.b as b", "jaxlite.lax.b"),
        ("jaxlite.core.a", "importlib.import_module('jaxlite.lax')", "jaxlite.lax"),
        ("lowering.a", "from jaxlite.core import x", "jaxlite.core"),
    ],
)
def test_the_import_reader_sees(module, statement, target, tmp_path, monkeypatch):
    file = tmp_path / "a.py"
    file.write_text(statement)
    known = {module: file, "jaxlite.lax": tmp_path / "lax" / "__init__.py", "jaxlite.core": tmp_path / "__init__.py"}
    monkeypatch.setattr(sys.modules[__name__], "modules", lambda: known)
    found = [name for name, _ in read.__wrapped__(module)[1]]
    assert found == [target]
    assert floor(target) > floor(module)


# --- imports, as they happen -------------------------------------------------------------------------

# What importing jaxlite must not load: lowering and MLIR's bindings come with the first compile, the rest with first use or
# never.
HEAVY = (
    "jaxlite.compilation.execution lowering.executable lowering.cache "
    "jax jaxlib.mlir scipy jaxlite.scipy matplotlib asyncio multiprocessing concurrent.futures.process unittest doctest "
    "pdb pydoc email http ssl xml sqlite3 tkinter setuptools pkg_resources pytest hypothesis subprocess"
).split()


@pytest.mark.parametrize("module", ["jaxlite", "jaxlite.numpy", "jaxlite.lax"])
def test_import_loads_nothing_heavy(module):
    out = run_python(f"import json, sys, {module}; print(json.dumps([n for n, m in sys.modules.items() if m]))")
    loaded = json.loads(out)
    assert module in loaded
    assert [name for name in loaded if any(inside(name, heavy) for heavy in HEAVY)] == []


def test_what_jaxlib_names_but_does_not_need_loads_on_use():
    """Its own functions still reach the modules, and everybody else gets them as they are."""
    out = run_python(
        "import sys, jaxlite, jaxlib.version\n"
        "build = jaxlib.version\n"
        "print(build.subprocess.Popen.__name__, build.pathlib.Path('a', 'b').name)\n"
        "import pathlib, subprocess\n"
        "print(subprocess.Popen is build.subprocess.Popen, isinstance(subprocess.__file__, str), subprocess.__spec__.name)"
    )
    assert out.splitlines() == ["Popen b", "True True subprocess"]


def test_a_primitive_is_found_by_name_wherever_it_is_made():
    makers = [name for name, file in modules().items()
              if re.search(r"^\w+ = Primitive\(", file.read_text(encoding="utf-8"), re.MULTILINE)]
    out = run_python(
        "import json, sys\n"
        "from jaxlite.core.primitive import find_primitive\n"
        "import jaxlite\n"
        "assert find_primitive('there is none') is None\n"
        f"print(json.dumps([name for name in {makers!r} if name not in sys.modules and name != 'jaxlite.traces.call_rules']))"
    )
    assert len(makers) > 20 and json.loads(out) == []


def test_a_lowering_loads_what_it_needs():
    """MLIR's logger is one, once the standard library's is loaded."""
    out = run_python(
        "import sys, jaxlite\n"
        "jaxlite.jit(lambda x: x + 1).lower(1.0)\n"
        "print('logging' in sys.modules, 'json' in sys.modules)\n"
        "from lowering.this_process import LateLogger\n"
        "told = LateLogger('told')\n"
        "told.debug('nobody listens')\n"
        "import logging\n"
        "logging.basicConfig(level=logging.DEBUG, stream=sys.stdout, format='%(name)s %(message)s')\n"
        "told.debug('of %s', 1)\n"
        "print(isinstance(logging.getLogger('x'), logging.Logger))"
    )
    assert out.splitlines() == ["False False", "told of 1", "True"]


def test_scipy_stands_on_numpy_and_nothing_stands_on_it():
    """jaxlite.scipy is the last floor but the top-level names, which load it on first use, and JAX's names for all that."""
    above = ("jaxlite.scipy", "jaxlite.as_jax")
    assert offending_imports(
        lambda module, name: inside(name, "jaxlite.scipy") and not any(inside(module, floor) for floor in above)) == []


def test_scipy_is_written_without_scipy():
    everything = [module for module in modules() if inside(module, "jaxlite.scipy")]
    out = run_python(
        f"import importlib, sys\nfor name in {everything}: importlib.import_module(name)\n"
        "import jaxlite; jaxlite.scipy.special.erf, jaxlite.scipy.linalg.expm, jaxlite.scipy.sparse.linalg.cg\n"
        "print([name for name in sys.modules if name.split('.')[0] == 'scipy'])"
    )
    assert out.strip() == "[]"


def test_lowering_stands_without_jaxlite():
    everything = [module for module in modules() if inside(module, "lowering")]
    out = run_python(
        f"import importlib, sys\nfor name in {everything}: importlib.import_module(name)\n"
        "print([name for name in sys.modules if name.split('.')[0] == 'jaxlite'])"
    )
    assert out.strip() == "[]"


FIRST = """
import importlib, os, sys, traceback, numpy, ml_dtypes
failed = []
for name in sys.argv[1:]:
    child = os.fork()  # of a process that has only the dependencies
    if not child:
        try:
            importlib.import_module(name)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        failed.append(name)
assert not {"jaxlite", "lowering", "jaxlib"} & set(sys.modules)
sys.exit(", ".join(failed) or 0)
"""


def test_each_module_may_be_imported_first():
    """None works only because another was imported before it."""
    run_python(FIRST, arguments=[m for m in modules() if m.count(".") <= 1])


def test_an_installed_jax_is_left_alone(tmp_path):
    marker = tmp_path / "imported"
    (tmp_path / "jax").mkdir()
    (tmp_path / "jax" / "__init__.py").write_text(
        f"open({str(marker)!r}, 'w').close()\nraise RuntimeError('jaxlite led jaxlib to import jax')\n"
    )
    out = run_python(
        "import numpy as np, jaxlite, jaxlite.numpy as jnp\n"
        "f = jaxlite.jit(lambda x, y: {'sum': (x @ y).sum(), 'sin': jnp.sin(x)})\n"
        "x = np.arange(6, dtype=np.float32).reshape(2, 3)\n"
        "for _ in range(3): out = f(x, jnp.ones((3, 2)))\n"
        "print(float(out['sum']), np.asarray(out['sin']).shape, jnp.arange(4)[1:].tolist(), repr(out['sum'].aval))",
        tmp_path,
    )
    assert out.startswith("30.0 (2, 3) [1, 2, 3]")
    assert not marker.exists()


def test_jax_and_jaxlite_exclude_each_other(tmp_path):
    """Whichever comes second says so, and the first goes on."""
    (tmp_path / "jax" / "_src").mkdir(parents=True)
    (tmp_path / "jax" / "__init__.py").write_text("import jax._src.tree_util\nnumpy = 'theirs'\n")
    for name in ("__init__", "tree_util"):
        (tmp_path / "jax" / "_src" / f"{name}.py").touch()
    second = "try: import {}\nexcept ImportError as error: print(error)\n"
    ours = run_python("import importlib.util, jaxlite, jaxlite.numpy as jnp\n" + second.format("jax")
                      + "print(importlib.util.find_spec('jax') is not None, float(jnp.ones(3).sum()))", tmp_path)
    theirs = run_python("import jax, jaxlib._jax\n" + second.format("jaxlite")
                        + "print(jax.numpy, 'sum' in dir(jaxlib._jax.ArrayImpl))", tmp_path)
    assert "cannot be in one process" in ours and ours.endswith("True 3.0\n")
    assert "JAX has been imported here already" in theirs and theirs.endswith("theirs False\n")


# --- files -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", modules())
def test_file_is_short_and_says_what_it_owns(module):
    text = modules()[module].read_text(encoding="utf-8")
    assert text.count("\n") <= MAX_LINES, f"{modules()[module]} has more than {MAX_LINES} lines: split it by idea"
    assert read(module)[0].strip(), f"{modules()[module]} lacks a module docstring"


def test_files_beside_the_package_itself_are_views():
    """A docstring, imports, names: what is under a public name is defined in a folder."""
    allowed = (ast.Import, ast.ImportFrom, ast.Assign, ast.Expr, ast.If)
    flat = {m: file for m, file in modules().items() if file.parent in (ROOT / "jaxlite", ROOT / "jaxlite" / "interpreters")}
    defined = [
        f"{m}:{node.lineno}" for m, file in flat.items() if m not in ("jaxlite", "jaxlite.__main__", "jaxlite.typing")
        for node in ast.parse(file.read_text(encoding="utf-8")).body
        if not isinstance(node, allowed) and getattr(node, "name", "") not in ("__getattr__", "__dir__")
    ]
    assert defined == []


def test_each_file_of_rules_has_a_namesake():
    """The file that binds a primitive and the file that lowers it have one name (jit binds in an interpreter)."""
    rules = {m.rpartition(".")[2] for m in modules() if m.startswith("lowering.rules.")}
    folders = ("jaxlite.lax.", "jaxlite.random.", "jaxlite.traces.", "jaxlite.compilation.", "jaxlite.export.",
             "jaxlite.experimental.")
    binders = {m.rpartition(".")[2] for m in modules() if m.startswith(folders)}
    assert rules - binders == set()


# --- packaging ---------------------------------------------------------------------------------------


def test_wheel_ships_both_packages_typed():
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert config["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == list(PACKAGES)
    for package in PACKAGES:
        assert (ROOT / package / "__init__.py").is_file()
        assert (ROOT / package / "py.typed").is_file()


def test_dependencies_are_the_three():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["dependencies"] == ["jaxlib>=0.10.2,<0.13", "numpy>=2", "ml_dtypes>=0.5"]
    assert project["requires-python"] == ">=3.11"


def test_version_has_one_source():
    # In a process of its own: in jax's place it has the version that it stands for.
    out = run_python("import jaxlite; from jaxlite.version import __version__; print(jaxlite.__version__ == __version__)")
    assert out.strip() == "True"


# Primitives of `lax` that type results over explicit axes themselves, take no arrays, or refuse arrays that are sharded so.
WITHOUT_SHARDING_RULE = set("after_all axis_index cond create_token custom_linear_solve dce_sink device_put iota "
                            "reduce reduce_window rng_bit_generator rng_uniform scan select_and_scatter sharding_constraint "
                            "while".split())


def test_every_primitive_has_a_sharding_rule() -> None:
    from jaxlite import lax
    from jaxlite.lax import explicit

    names = {getattr(lax, name).name for name in dir(lax) if name.endswith("_p")}
    assert names - explicit._RULES.keys() == WITHOUT_SHARDING_RULE


def test_the_limits_that_tests_of_passes_lower_exist():
    for name, limits in smallest.LIMITS.items():
        assert limits.keys() <= vars(importlib.import_module(name)).keys()
