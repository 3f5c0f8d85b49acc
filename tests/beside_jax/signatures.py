"""Parameters of all public functions and methods, here and in JAX: names, order, kinds and defaults.

    python tests/beside_jax/signatures.py [--jax PYTHON]    with a Python that has jaxlite; `make test-jax` runs it

A call that JAX takes must be one that is taken here. Parameters that JAX lacks are no difference.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
EMPTY, ANYTHING = "required", "a value"
# What differs and is meant to: names, and why.
KNOWN = {
    r"\.(core|interpreters|linear_util|api_util|source_info_util|extend\.lowering|extend\.backend)\b":
        "steps of JAX's own code",
    r"\.(SparseTracer|SparseTrace|Error|UnexpectedTracerError|Ref|Traced|Lowered|Compiled|Exported|Shard|Specialization)(\.|$)":
        "objects that programs do not make",
    r"\.colocated_python\.(func|obj)\.": "steps of its implementation",
    r"\.(lower_val|raise_val|read_loval|str_short)$": "called by position, or options by name",
    r"\.custom_gradient$": "logs and accumulators of JAX 0.12's backward passes are not there",
    r"\.compute_on$|pallas\.(Buffered|broadcast_to)$": "options for TPUs",
    r"\.(ShapeDtypeStruct|ShapedArray|swap|export|no_collectives|xla_metadata_call)$":
        "private parameters, and one that is a context's value",
}


def signatures(package: str, modules: dict[str, list[str]]) -> Iterator[tuple[str, Any]]:
    for module, names in modules.items():
        try:
            found = importlib.import_module(package + module[3:])
        except Exception:
            continue
        for name in names:
            value = getattr(found, name, None) if not inspect.ismodule(getattr(found, name, None)) else None
            members = [(f"{module}.{name}", value, 0)] if callable(value) else []
            if isinstance(value, type):
                public = [each for each in dir(value) if not each.startswith("_")]
                members += [(f"{module}.{name}.{each}", getattr(value, each, None), not isinstance(
                    inspect.getattr_static(value, each), (staticmethod, classmethod))) for each in public]
            for path, member, skipped in members:
                try:
                    parameters = list(inspect.signature(member).parameters.values())[skipped:]
                except (TypeError, ValueError):
                    continue
                yield path, [(each.name, int(each.kind), shown(each.default)) for each in parameters]


def shown(default: Any) -> str:
    if default is inspect.Parameter.empty:
        return EMPTY
    return repr(default) if isinstance(default, (bool, int, float, str, type(None), tuple)) else ANYTHING


def differences(ours: list[Any], theirs: list[Any]) -> Iterator[str]:
    kinds = {kind for _, kind, _ in ours}
    named = {name: (kind, default) for name, kind, default in ours}
    positional = [[name for name, kind, _ in side if kind < inspect.Parameter.VAR_POSITIONAL] for side in (ours, theirs)]
    for place, (name, kind, default) in enumerate(theirs):
        if kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            continue
        if kind < inspect.Parameter.VAR_POSITIONAL and inspect.Parameter.VAR_POSITIONAL not in kinds:
            here = positional[0][place] if place < len(positional[0]) else "no parameter"
            if here != name and kind and name not in named:
                yield f"{place}: {name} is {here}"
            if here == "no parameter":
                continue
        if not kind:
            continue
        if name not in named:
            if inspect.Parameter.VAR_KEYWORD not in kinds:
                yield f"no {name}"
        elif named[name][0] == inspect.Parameter.POSITIONAL_ONLY:
            yield f"{name} by position alone"
        elif not {ANYTHING, EMPTY, "None"} & {default, named[name][1]} and default != named[name][1]:
            yield f"{name}: {named[name][1]}, in JAX {default}"
    for name, (kind, default) in named.items():
        if default == EMPTY and kind == inspect.Parameter.KEYWORD_ONLY and name not in {each for each, _, _ in theirs}:
            yield f"{name} is required"


def main() -> int:
    warnings.simplefilter("ignore")
    with open(ROOT / "jaxlite" / "core" / "jax_names.txt", encoding="utf-8") as file:
        rows = [[word.partition("@")[0] for word in line.split()] for line in file]
    modules = {module: names for module, *names in rows}
    if "--dump" in sys.argv:
        print(json.dumps(dict(signatures("jax", modules))))
        return 0
    python = sys.argv[sys.argv.index("--jax") + 1] if "--jax" in sys.argv else str(ROOT / ".venv-jax" / "bin" / "python")
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    dumped = subprocess.check_output([python, __file__, "--dump"], env=env, stderr=subprocess.DEVNULL)
    theirs = json.loads(dumped.splitlines()[-1])
    sys.path.insert(0, str(ROOT))
    found = 0
    for path, ours in signatures("jaxlite", modules):
        texts = list(differences(json.loads(json.dumps(ours)), theirs[path])) if path in theirs else []
        if texts and not any(re.search(pattern, path) for pattern in KNOWN):
            found += 1
            print(f"{path}: {'; '.join(texts)}")
    print(f"{len(theirs)} signatures of JAX compared, {found} differ")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
