"""How much code each folder of jaxlite has, beside the files of JAX that do the same.

    python -m benchmarks.weight --jax FOLDER

FOLDER is an installed `jax` package. Counted are Python's tokens without comments, docstrings, annotations and line ends: a
long line weighs what it did as short ones, and neither side gains by types that are said or left out. JAX's lowering rules
stand beside its primitives and jaxlite's in `lowering`, so they share a row.

The ratio compares what both have. Both sides include the public modules through which a folder is reached. The JAX side
includes files of other folders that do what jaxlite does inside of it (updates of arrays at indices, `logsumexp`, calls of
foreign functions and of cuDNN, the polar decomposition). What only jaxlite has (`ALONE`) is in a column of its own and not in
the ratio; what only JAX has is not counted (Mosaic GPU), nor are the kernels that come with Pallas (`ops`).
Fast paths within a file count like any other code.
"""

from __future__ import annotations

import argparse
import ast
import io
import tokenize
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LAYOUT = frozenset((tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER))

# Folder -> our folders and files, JAX's below `_src` (or `/`: below the package itself).
FOLDERS = {
    "numpy": ("jaxlite/numpy jaxlite/ops", "numpy indexing.py ops/scatter.py /numpy /ops"),
    "lax and lowering": (
        "jaxlite/lax jaxlite/extend/ffi.py lowering/rules lowering/module.py lowering/symbolic.py lowering/monoids.py "
        "lowering/padding.py lowering/passes/dce.py",
        "lax shard_map.py callback.py interpreters/mlir.py ffi.py shard_alike.py tpu/linalg/qdwh.py tpu/linalg/svd.py "
        "/lax /ffi.py"),
    "core, traces, transforms": (
        "jaxlite/core jaxlite/traces jaxlite/transforms jaxlite/state jaxlite/tree_util.py jaxlite/tree.py "
        "jaxlite/extend/api_util.py jaxlite/extend/linear_util.py jaxlite/extend/source_info_util.py",
        "core.py ad_util.py ad_checkpoint.py api.py api_util.py config.py custom_api_util.py "
        "custom_batching.py custom_derivatives.py dtypes.py effects.py errors.py earray.py flatten_util.py "
        "interpreters/ad.py interpreters/batching.py interpreters/partial_eval.py interpreters/remat.py "
        "jaxpr_util.py linear_util.py literals.py pretty_printer.py source_info_util.py state ref.py "
        "traceback_util.py tree.py tree_util.py typing.py util.py abstract_arrays.py basearray.py hijax.py "
        "lru_cache.py frozen_dict.py sourcemap.py /tree_util.py /tree.py"),
    "compilation, devices, cache": (
        "jaxlite/compilation jaxlite/devices lowering/executable.py lowering/lowered.py lowering/buffers.py "
        "lowering/partitioning.py lowering/platforms.py lowering/plugins.py lowering/report.py "
        "lowering/progress.py lowering/xla.py lowering/protobuf.py lowering/cache",
        "array.py cache_key.py compilation_cache.py compilation_cache_interface.py compiler.py dispatch.py "
        "distributed.py clusters dlpack.py interpreters/pxla.py layout.py mesh.py mesh_utils.py "
        "named_sharding.py op_shardings.py partition_spec.py path.py pickle_util.py pjit.py pmap.py "
        "profiler.py sharding.py sharding_impls.py stages.py xla_bridge.py hardware_utils.py "
        "custom_partitioning.py custom_partitioning_sharding_rule.py monitoring.py debugging.py"),
    "random": (
        "jaxlite/random jaxlite/experimental/random.py",
        "random /random.py"),
    "nn": ("jaxlite/nn", "nn cudnn ops/special.py /nn"),
    "scipy": ("jaxlite/scipy", "scipy third_party /scipy"),
    "export": ("jaxlite/export", "export /export.py"),
    "Pallas": (
        "jaxlite/experimental/pallas/*.py lowering/kernels",
        "pallas/*.py pallas/triton pallas/mosaic pallas/fuser tpu_custom_call.py"),
    "sparse": ("jaxlite/experimental/sparse", "/experimental/sparse"),
}

# What JAX has not. Folder -> the files in it, or beside it.
ALONE = {
    "core, traces, transforms":  # eager calls in NumPy; rare garbage collections
        "jaxlite/traces/host.py jaxlite/traces/host_plan.py jaxlite/traces/host_rules.py jaxlite/core/collector.py",
    "compilation, devices, cache":  # records of compiles; programs found without lowering; choices that XLA:CPU makes badly
        "jaxlite/compilation/compile_report.py jaxlite/compilation/page.py jaxlite/compilation/profile_summary.py "
        "lowering/progress.py lowering/cache/shortcuts.py lowering/passes/[!d]*.py",
}


class Bare(ast.NodeTransformer):
    """Takes docstrings and annotations out of a module."""

    def visit(self, node: ast.AST) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node, ast.AnnAssign):
            return ast.Pass() if node.value is None else ast.Assign([node.target], node.value)
        if isinstance(node, ast.arg):
            node.annotation = None
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            node.returns = None
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
        return node


def tokens(file: Path) -> int:
    """The tokens of a file that do something."""
    bare = ast.unparse(ast.fix_missing_locations(Bare().visit(ast.parse(file.read_text(encoding="utf-8")))))
    return sum(each.type not in LAYOUT for each in tokenize.generate_tokens(io.StringIO(bare + "\n").readline))


def files(top: Path, places: Iterable[str]) -> set[Path]:
    """The Python files among files and folders below `top`."""
    given = (each for place in places for each in top.glob(place))
    return {file for each in given for file in ([each] if each.is_file() else each.rglob("*.py"))}


def weigh(found: Iterable[Path]) -> int:
    """The tokens of files."""
    return sum(map(tokens, found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jax", required=True, type=Path, help="the folder of an installed jax package")
    package = parser.parse_args().jax
    print("| folder | jaxlite | JAX | ratio | jaxlite alone |\n|---|---|---|---|---|")
    for folder, (ours, theirs) in FOLDERS.items():
        alone = files(ROOT, ALONE.get(folder, "").split())
        mine = weigh(files(ROOT, ours.split()) - alone)
        other = weigh(files(package, (each[1:] if each[0] == "/" else f"_src/{each}" for each in theirs.split())))
        print(f"| {folder} | {mine:,} | {other:,} | {mine / other:.2f} | {f'{weigh(alone):,}' if alone else ''} |")


if __name__ == "__main__":
    main()
