"""The examples as pages: what a program says of itself, its code, and what it printed and drew when the site was built."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"

# Program -> arguments with which it takes seconds.
RUNS = {
    "linear_regression": "--steps 300",
    "gp_regression": "--steps 40",
    "physics": "--steps 200",
    "mlp_classifier": "--steps 150 --modules 30",
    "vae": "--steps 400 --pictures 1500",
    "running_statistics": "",
    "find_the_nan": "",
    "keep_a_model": "",
    "unzip_network": "",
    "pallas_softmax": "",
    "data_parallel": "--steps 8",
    "two_processes": "--steps 20",
}
DRAWS = frozenset(("linear_regression", "gp_regression", "physics", "mlp_classifier", "vae"))


def pieces(source: str) -> list[str]:
    """The statements of a program, cut where a definition with a body begins or ends; without its docstring."""
    lines, cuts = source.splitlines(), []
    body = ast.parse(source).body
    for statement in body[1:]:
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            first = min([statement.lineno, *(each.lineno for each in statement.decorator_list)])
            cuts += [first - 1, statement.end_lineno]
    bounds = [body[0].end_lineno, *cuts, len(lines)]
    found = ("\n".join(lines[low:high]).strip("\n") for low, high in zip(bounds, bounds[1:], strict=False))
    return [piece for piece in found if piece.strip()]


def page(name: str, folder: Path) -> str:
    """Run a program, with its picture in `folder`. Gives the page. Raises: RuntimeError if it fails."""
    file, picture = EXAMPLES / f"{name}.py", folder / f"{name}.png"
    source, flags = file.read_text(encoding="utf-8"), RUNS[name].split()
    extra = ["--plot", str(picture)] if name in DRAWS else []
    environment = {**os.environ, "PYTHONPATH": str(EXAMPLES.parent)}
    done = subprocess.run([sys.executable, str(file), *flags, *extra], env=environment, cwd=folder, capture_output=True,
                          text=True, timeout=600)
    if done.returncode:
        raise RuntimeError(f"examples/{name}.py fails:\n{done.stderr}")
    title, _, rest = (ast.get_docstring(ast.parse(source)) or "").partition("\n")
    printed = done.stdout.replace(str(picture), picture.name).strip("\n")
    text = f"# {name.replace('_', ' ').capitalize()}\n\n{title}\n\n````text\n{rest.strip(chr(10))}\n````\n\n"
    text += "".join(f"```python\n{piece}\n```\n\n" for piece in pieces(source))
    text += f"## What it printed\n\n````text\n$ {' '.join(['python', f'examples/{name}.py', *flags])}\n{printed}\n````\n\n"
    return text + (f"![What it drew]({picture.name})\n" if picture.exists() else "")


def write(folder: Path) -> None:
    """Write the pages of all examples, and their index."""
    folder.mkdir(exist_ok=True)
    for name in RUNS:
        (folder / f"{name}.md").write_text(page(name, folder), encoding="utf-8")
    listed = "\n".join(RUNS)
    (folder / "index.md").write_text(f"# Examples, run\n\n```{{toctree}}\n:maxdepth: 1\n\n{listed}\n```\n", encoding="utf-8")
