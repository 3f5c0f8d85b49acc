"""The documentation site: the pages of this folder, and a reference of every public name made from the code. `make docs`."""

from __future__ import annotations

import importlib
import inspect
import sys
import textwrap
import types
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

import executed  # noqa: E402

from jaxlite.version import __version__  # noqa: E402

project, author, release = "jaxlite", "the jaxlite authors", __version__
copyright = author
extensions = ["myst_parser"]
html_theme, html_title = "furo", f"jaxlite {__version__}"
exclude_patterns = ["_build"]
root_doc = "index"
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]
# Links to files of the repository that are no pages, and headings that begin below the first level.
suppress_warnings = ["myst.xref_missing", "myst.header", "misc.highlighting_failure"]

MODULES = (
    "jaxlite jaxlite.numpy jaxlite.numpy.linalg jaxlite.numpy.fft jaxlite.lax jaxlite.lax.linalg jaxlite.random jaxlite.nn "
    "jaxlite.nn.initializers jaxlite.scipy.linalg jaxlite.scipy.special jaxlite.scipy.stats jaxlite.scipy.optimize "
    "jaxlite.scipy.signal jaxlite.scipy.fft jaxlite.scipy.ndimage jaxlite.scipy.interpolate jaxlite.scipy.integrate "
    "jaxlite.scipy.sparse.linalg jaxlite.scipy.cluster.vq jaxlite.image jaxlite.ops jaxlite.tree jaxlite.tree_util "
    "jaxlite.sharding jaxlite.debug jaxlite.errors jaxlite.dtypes jaxlite.dlpack jaxlite.flatten_util jaxlite.test_util "
    "jaxlite.stages jaxlite.typing jaxlite.monitoring jaxlite.ffi jaxlite.profiler jaxlite.export jaxlite.distributed "
    "jaxlite.extend.core jaxlite.extend.backend jaxlite.extend.linear_util jaxlite.extend.random jaxlite.api_util "
    "jaxlite.experimental.checkify jaxlite.experimental.jet jaxlite.experimental.ode jaxlite.experimental.sparse "
    "jaxlite.experimental.sparse.linalg jaxlite.experimental.topologies jaxlite.experimental.unzip "
    "jaxlite.experimental.shard_map jaxlite.experimental.multihost_utils jaxlite.experimental.mesh_utils "
    "jaxlite.experimental.pallas jaxlite.example_libraries.stax jaxlite.example_libraries.optimizers"
).split()


def entry(name: str, value: object) -> str:
    """One public name as Markdown: its signature and its docstring as it is written."""
    try:
        signature = str(inspect.signature(value)).replace("'", "") if callable(value) else ""  # type: ignore[arg-type]
    except (TypeError, ValueError):
        signature = "(...)"
    doc = inspect.getdoc(value) if callable(value) or isinstance(value, property) else ""
    text = f"### `{name}`\n\n"
    if signature:
        text += "```python\n" + "\n".join(textwrap.wrap(name + signature, 100, subsequent_indent="    ")) + "\n```\n\n"
    return text + (f"````text\n{doc}\n````\n\n" if doc else "")


def page(module: str) -> str | None:
    """The reference of a module; None if there is none of that name."""
    try:
        found = importlib.import_module(module)
    except ImportError:
        return None
    names = [name for name in dir(found) if not name.startswith(("_", "@"))]
    text = f"# {module}\n\n````text\n{inspect.getdoc(found) or ''}\n````\n\n"
    for name in names:
        value = getattr(found, name)
        if not isinstance(value, types.ModuleType):
            text += entry(name, value)
    return text


def write_reference(app: object) -> None:
    """Write the pages of `reference/`, which git ignores."""
    folder = HERE / "reference"
    folder.mkdir(exist_ok=True)
    made = []
    for module in MODULES:
        text = page(module)
        if text is not None:
            (folder / f"{module}.md").write_text(text, encoding="utf-8")
            made.append(module)
    listed = "\n".join(made)
    (folder / "index.md").write_text(f"# Reference\n\n```{{toctree}}\n:maxdepth: 1\n\n{listed}\n```\n", encoding="utf-8")


def write_examples(app: object) -> None:
    """Write the pages of `examples/`, which git ignores: the programs run for it."""
    executed.write(HERE / "examples")


def setup(app: object) -> None:
    app.connect("builder-inited", write_examples)  # type: ignore[attr-defined]
    app.connect("builder-inited", write_reference)  # type: ignore[attr-defined]
