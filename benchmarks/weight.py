"""How much code each room of jaxlite has, beside the files of JAX that do the same.

    python -m benchmarks.weight --jax FOLDER

FOLDER is an installed `jax` package. Counted are Python's tokens without comments, docstrings and line ends: a long line weighs
what it did as short ones. JAX's lowering rules stand beside its primitives and jaxlite's in `lowering`, so they share a row.
"""

from __future__ import annotations

import argparse
import ast
import io
import tokenize
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LAYOUT = frozenset((tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER))

# Room -> our folders and files, JAX's below `_src` (or `/`: below the package itself).
ROOMS = {
    "numpy": ("jaxlite/numpy", "numpy indexing.py"),
    "lax and lowering": (
        "jaxlite/lax lowering/rules lowering/module.py lowering/symbolic.py lowering/monoids.py lowering/padding.py",
        "lax shard_map.py callback.py interpreters/mlir.py"),
    "core, traces, transforms": (
        "jaxlite/core jaxlite/traces jaxlite/transforms jaxlite/state jaxlite/tree_util.py jaxlite/tree.py",
        "core.py ad_util.py ad_checkpoint.py api.py api_util.py config.py custom_api_util.py "
        "custom_batching.py custom_derivatives.py dtypes.py effects.py errors.py earray.py flatten_util.py "
        "interpreters/ad.py interpreters/batching.py interpreters/partial_eval.py interpreters/remat.py "
        "jaxpr_util.py linear_util.py literals.py pretty_printer.py source_info_util.py state ref.py "
        "traceback_util.py tree.py tree_util.py typing.py util.py abstract_arrays.py basearray.py hijax.py "
        "lru_cache.py frozen_dict.py sourcemap.py"),
    "compilation, devices, cache": (
        "jaxlite/compilation jaxlite/devices jaxlite/cache.py lowering/executable.py lowering/partitioning.py "
        "lowering/platforms.py lowering/plugins.py lowering/report.py lowering/progress.py lowering/xla.py "
        "lowering/cache",
        "array.py cache_key.py compilation_cache.py compilation_cache_interface.py compiler.py dispatch.py "
        "distributed.py clusters dlpack.py interpreters/pxla.py layout.py mesh.py mesh_utils.py "
        "named_sharding.py op_shardings.py partition_spec.py path.py pickle_util.py pjit.py pmap.py "
        "profiler.py sharding.py sharding_impls.py stages.py xla_bridge.py hardware_utils.py "
        "custom_partitioning.py custom_partitioning_sharding_rule.py monitoring.py debugging.py"),
    "random": ("jaxlite/random", "random blocked_sampler.py"),
    "nn": ("jaxlite/nn", "nn"),
    "scipy": ("jaxlite/scipy", "scipy third_party"),
    "export": ("jaxlite/export", "export"),
    "Pallas": ("jaxlite/experimental/pallas lowering/kernels", "pallas/*.py pallas/triton pallas/mosaic tpu_custom_call.py"),
    "sparse": ("jaxlite/experimental/sparse", "/experimental/sparse"),
    "fusion passes": ("lowering/passes", ""),
}


def tokens(file: Path) -> int:
    """The tokens of a file that do something."""
    source = file.read_text(encoding="utf-8")
    documented = (node.body[0] for node in ast.walk(ast.parse(source))
                  if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and node.body)
    docstrings = {node.lineno for node in documented if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)}
    return sum(each.type not in LAYOUT and not (each.type == tokenize.STRING and each.start[0] in docstrings)
               for each in tokenize.generate_tokens(io.StringIO(source).readline))


def weigh(top: Path, places: Iterable[str]) -> int:
    """The tokens of files and folders below `top`."""
    given = (each for place in places for each in top.glob(place))
    found = {file for each in given for file in ([each] if each.is_file() else each.rglob("*.py"))}
    return sum(map(tokens, found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jax", required=True, type=Path, help="the folder of an installed jax package")
    package = parser.parse_args().jax
    print("| room | jaxlite | JAX | ratio |\n|---|---|---|---|")
    for room, (ours, theirs) in ROOMS.items():
        mine = weigh(ROOT, ours.split())
        other = weigh(package, (each[1:] if each[0] == "/" else f"_src/{each}" for each in theirs.split()))
        print(f"| {room} | {mine:,} | {other:,} | {f'{mine / other:.2f}' if other else '-'} |")


if __name__ == "__main__":
    main()
