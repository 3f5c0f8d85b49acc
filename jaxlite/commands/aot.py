"""Export from a command line.

    python -m jaxlite.aot module:function "f32[b,3]" "i32[]" --platforms cpu,cuda -o model.bin
    python -m jaxlite.aot show model.bin             signature, platforms, and the program as StableHLO
    python -m jaxlite.aot run model.bin x.npy 3      call it; results are printed, or saved with -o out.npz

A specification is a dtype, short or long, with a shape: `f32[8,3]`, `int32[]`, `bf16[batch,seq]`. Files are JAX's:
`jax.export` reads them.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxlite import export
from jaxlite.compilation.jit import jit
from jaxlite.core import dtypes
from jaxlite.core.errors import InconclusiveDimensionOperation
from jaxlite.core.shape_dtype import ShapeDtypeStruct
from jaxlite.core.tree import leaf_paths, tree_flatten_with_path, tree_unflatten
from lowering import xla


def parse_spec(text: str, scope: Any) -> ShapeDtypeStruct:
    """The type that `f32[8,3]` describes; names in a shape are symbolic dimensions of the scope.

    >>> parse_spec("f32[2,3]", None)
    ShapeDtypeStruct(shape=(2, 3), dtype=float32)
    """
    found = re.fullmatch(r"\s*(\w+)\s*\[(.*)\]\s*", text)
    if not found:
        raise ValueError(f"{text!r} is not a specification: write a dtype and a shape, as in f32[8,3]")
    name, sizes = found.groups()
    known, short = dtypes.NAMES
    dtype = short.get(name) or known.get(name)
    if dtype is None or dtype == dtypes.float0:
        raise ValueError(f"{text!r} is not a specification: {name!r} is not a dtype; write one, as in f32[8,3]")
    dtype = dtypes.canonicalize_dtype(dtype)
    parts = [part.strip() for part in sizes.split(",") if part.strip()]
    if all(part.isdigit() for part in parts):
        return ShapeDtypeStruct(tuple(map(int, parts)), dtype)
    return ShapeDtypeStruct(export.symbolic_shape(f"({sizes},)", scope=scope), dtype)


def _function(path: str) -> Any:
    module, _, name = path.partition(":")
    if not name:
        raise ValueError(f"{path!r} names no function: write module:function, or file.py:function")
    if module.endswith(".py"):
        sys.path.insert(0, os.path.dirname(os.path.abspath(module)))
        module = os.path.basename(module)[:-3]
    else:
        sys.path.insert(0, os.getcwd())
    function: Any = importlib.import_module(module)
    for part in name.split("."):
        function = getattr(function, part)
    if not callable(function):
        raise ValueError(f"{path!r} is not a function, it is {function!r}")
    return function if isinstance(function, xla.PjitFunction) else jit(function)


def _write(arguments: argparse.Namespace) -> None:
    scope = export.SymbolicScope(arguments.constraint)
    specs = [parse_spec(spec, scope) for spec in arguments.specs]
    platforms = arguments.platforms.split(",") if arguments.platforms else None
    exported = export.export(_function(arguments.target), platforms=platforms)(*specs)
    data = exported.serialize(vjp_order=arguments.vjp_order)
    Path(arguments.output or f"{exported.fun_name}.bin").write_bytes(data)
    print(_signature(export.deserialize(data)))  # what the file has


def _signature(exported: export.Exported) -> str:
    def side(tree: Any, avals: Sequence[Any]) -> list[str]:
        return ["".join(map(str, path)) + ": " + aval.str_short(short_dtypes=True)
                for path, aval in zip(leaf_paths(tree), avals, strict=True)]

    names = exported.argument_names()
    lines = [f"{exported.fun_name} for {', '.join(exported.platforms)}; calling convention "
             f"{exported.calling_convention_version}; {'with' if exported.has_vjp() else 'without'} its derivative"]
    lines += [f"  {name}: {aval.str_short(short_dtypes=True)}" for name, aval in zip(names, exported.in_avals, strict=True)]
    lines += [f"  result{line}" for line in side(exported.out_tree, exported.out_avals)]
    return "\n".join(lines)


def _show(arguments: argparse.Namespace) -> None:
    exported = export.deserialize(Path(arguments.file).read_bytes())
    print(_signature(exported))
    print(exported.mlir_module())


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        raise ValueError(f"{text!r} is not an input: give a .npy file, or a Python literal such as 3 or [1.0, 2.0]") from None


def _run(arguments: argparse.Namespace) -> None:
    exported = export.deserialize(Path(arguments.file).read_bytes())
    values = [np.load(text) if text.endswith(".npy") else _literal(text) for text in arguments.inputs]
    if len(values) != len(exported.in_avals):
        raise ValueError(f"{exported.fun_name} takes {len(exported.in_avals)} arrays, got {len(values)}")
    leaves = [np.asarray(value, aval.dtype) for value, aval in zip(values, exported.in_avals, strict=True)]
    args, kwargs = tree_unflatten(exported.in_tree, leaves)
    result = exported.call(*args, **kwargs)
    paths = tree_flatten_with_path(result)[0]
    if arguments.output:
        results: dict[str, Any] = {"result" + "".join(map(str, path)): np.asarray(leaf) for path, leaf in paths}
        np.savez(arguments.output, **results)
    else:
        for path, leaf in paths:
            print("result" + "".join(map(str, path)) + ":", leaf)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; gives its exit status."""
    given = list(sys.argv[1:] if argv is None else argv)
    command = given[0] if given and given[0] in ("show", "run") else "write"
    parser = argparse.ArgumentParser(prog="python -m jaxlite.aot", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    if command == "write":
        parser.add_argument("target", help="module:function or file.py:function")
        parser.add_argument("specs", nargs="*", help="one for each argument, as f32[8,3]")
        parser.add_argument("--platforms", help="cpu, cuda, rocm, tpu, separated by commas")
        parser.add_argument("--constraint", action="append", default=[], help="of symbolic dimensions, as 'b >= 2'")
        parser.add_argument("--vjp-order", type=int, default=0)
    else:
        parser.add_argument("file")
        if command == "run":
            parser.add_argument("inputs", nargs="*", help=".npy files or Python literals")
    if command != "show":
        parser.add_argument("-o", "--output")
    arguments = parser.parse_args(given[command != "write":])
    try:
        {"write": _write, "show": _show, "run": _run}[command](arguments)
    except (ValueError, TypeError, OSError, AttributeError, ImportError, ArithmeticError, LookupError, RuntimeError,
            InconclusiveDimensionOperation) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0
